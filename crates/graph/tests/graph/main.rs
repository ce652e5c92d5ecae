//! Tests of the public interface, with the ops of the workspace.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod errors;
mod functions;
mod rewrites;
mod roles;
mod round_trip;
mod scopes;
mod shapes;
mod support;
