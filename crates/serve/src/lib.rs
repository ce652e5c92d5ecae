//! The model server: SavedModels behind TensorFlow Serving's gRPC and REST interfaces.
//!
//! A [`Store`] holds models: it looks for versions, has them loaded, warmed and unloaded, and says which
//! [`Servable`] a request means. [`inference`] and [`examples`] run one. [`Server`] brings requests over
//! gRPC and HTTP and takes the answers away.

mod batching;
pub mod config;
mod connection;
pub mod engine;
pub mod examples;
mod growing;
mod grpc;
pub mod inference;
mod inflate;
mod kserve;
mod leisure;
mod listen;
pub mod loader;
mod manager;
pub mod metrics;
pub mod policy;
mod read_only;
mod rest;
mod room;
pub mod servable;
pub mod server;
mod sizes;
pub mod store;
pub mod versions;
pub mod warmup;

pub use batching::{Batching, Parameters as BatchingParameters};
pub use config::ModelConfig;
pub use connection::Patience;
pub use engine::Engine;
pub use loader::{Loader, LoaderOptions};
pub use policy::VersionPolicy;
pub use read_only::ReadOnly;
pub use servable::Servable;
pub use server::{Server, ServerOptions};
pub use store::{Store, StoreOptions};
