//! The model server: SavedModels behind TensorFlow Serving's gRPC and REST interfaces, and
//! KServe's.
//!
//! A [`Store`] holds models: it polls for versions, loads, warms up and unloads them, and resolves
//! the [`Servable`] of a request. [`inference`] and [`examples`] run a servable. [`Server`] accepts
//! requests over gRPC and HTTP.

mod batching;
pub mod config;
mod connection;
pub mod engine;
pub mod examples;
mod growing;
mod grpc;
mod idle_priority;
pub mod inference;
mod inflate;
mod kserve;
mod listen;
pub mod loader;
mod manager;
mod memory_reservation;
pub mod metrics;
pub mod policy;
mod read_only;
mod rest;
pub mod servable;
pub mod server;
mod sizes;
pub mod store;
pub mod versions;
pub mod warmup;

pub use batching::{Batching, Parameters as BatchingParameters};
pub use config::ModelConfig;
pub use connection::ConnectionTimeouts;
pub use engine::Engine;
pub use loader::{Loader, LoaderOptions};
pub use policy::VersionPolicy;
pub use read_only::ReadOnly;
pub use servable::Servable;
pub use server::{Server, ServerOptions};
pub use store::{Store, StoreOptions};
