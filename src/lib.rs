//! Thalweg: distributed TensorFlow, reimplemented in Rust.
//!
//! A graph is built and run:
//!
//! ```
//! use thalweg::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let mut scope = thalweg::scope();
//! let x = scope.placeholder(DType::Float, &PartialShape::new([None]))?;
//! let two = scope.constant(&Tensor::scalar(2.0f32))?;
//! let y = scope.op("Mul").name("y").inputs(&[x, two]).build()?;
//! let session = thalweg::session(&scope)?;
//! let x_value = Tensor::vector(&[1.0f32, 2.0, 3.0])?;
//! let results = session.run(&[(&scope.name_of(x), x_value)], &[&scope.name_of(y)], &[])?;
//! assert_eq!(results[0].as_slice::<f32>()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! The parts are crates of their own, re-exported here under their bare names: [`tensor`] (tensors,
//! errors), [`formats`] (file formats), [`graph`] (ops, graphs, scopes), [`kernel`] (the kernel
//! API), [`ops`] (the built-in ops), [`runtime`] (sessions), `cluster` (distributed sessions, with
//! the feature `remote`), [`storage`] (files behind URLs), [`train`] (models and optimizers),
//! [`proto`] (TensorFlow's messages).
//!
//! All of them log by `tracing`: a program sees no message until it installs a subscriber, such as
//! `tracing_subscriber::fmt().init()`. Errors are returned, never only logged. Targets and fields
//! stand in `docs/src/how-to/logging.md`.

use std::sync::{Arc, LazyLock};

use graph::Scope;
use kernel::Environment;
use runtime::{LoadOptions, SavedModel, Session, SessionOptions};
use tensor::Result;

#[cfg(feature = "cli")]
pub use thalweg_cli as cli;
#[cfg(feature = "remote")]
pub use thalweg_cluster as cluster;
pub use thalweg_formats as formats;
pub use thalweg_graph as graph;
pub use thalweg_kernel as kernel;
pub use thalweg_ops as ops;
pub use thalweg_proto as proto;
pub use thalweg_runtime as runtime;
pub use thalweg_storage as storage;
pub use thalweg_tensor as tensor;
pub use thalweg_train as train;

pub use ops::Registry;
pub use train::{RunSteps, Saver, SaverOptions};

/// The items that most programs need.
pub mod prelude {
    #[cfg(feature = "remote")]
    pub use crate::cluster::{Connect, ConnectOptions, RemoteSession};
    pub use crate::graph::{Adjoint, GradientOptions, Graph, Output, Scope, gradients};
    pub use crate::ops::dataset::Dataset;
    pub use crate::runtime::{
        Callable, LoadOptions, RunMetadata, RunOptions, SavedModel, SavedModelBuilder, Session,
        SessionOptions,
    };
    pub use crate::tensor::{Code, DType, Error, PartialShape, Result, Shape, Tensor};
    pub use crate::train::{
        Activation, Attention, AveragePool, BatchNorm, Clip, Conv, Dense, Dropout, Embedding,
        Flatten, Gru, Initializer, Layer, LayerNorm, Lstm, MaxPool, Mode, Model, MovingAverage,
        Optimizer, Padding, Placement, Positions, Rate, Residual, Rng, Rule, Saver, SaverOptions,
        Sequential, Variable, losses, metrics,
    };
    #[cfg(feature = "remote")]
    pub use crate::train::{Cluster, Net, Samples, TrainOptions, Trainer};
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::built_in);

/// All ops and kernels of this crate.
pub fn registry() -> &'static Registry {
    &REGISTRY
}

/// A scope at the root of a new graph, with all ops.
pub fn scope() -> Scope {
    Scope::new(registry().ops.clone())
}

/// Session options with access to URLs: local files, and the stores that this crate was built with.
pub fn session_options() -> SessionOptions {
    SessionOptions { environment: environment(), ..SessionOptions::default() }
}

fn environment() -> Environment {
    let storage = Arc::new(storage::ByUrl::default());
    Environment { storage, ..runtime::system_environment() }
}

/// A session for the graph that `scope` has built so far, with all kernels and [`session_options`].
pub fn session(scope: &Scope) -> Result<Session> {
    Session::new(scope.to_graph(), registry().kernels.clone(), session_options())
}

/// The SavedModel in `folder`, with all kernels and default options: the only MetaGraph, or the one
/// for serving.
pub fn saved_model(folder: &str) -> Result<SavedModel> {
    let Registry { ops, kernels } = registry().clone();
    let mut options = LoadOptions::default();
    options.session.environment = environment();
    SavedModel::load(folder, &[], (ops, kernels), options)
}

/// Iterates over the elements of an input pipeline, with the process's threads and files.
///
/// ```
/// use thalweg::prelude::*;
///
/// # fn main() -> Result<()> {
/// let pipeline = Dataset::range(0..10).shuffle(10, 7).batch(4).prefetch(1);
/// let mut seen = 0;
/// for element in thalweg::elements(&pipeline)? {
///     seen += element?[0].num_elements();
/// }
/// assert_eq!(seen, 10);
/// # Ok(())
/// # }
/// ```
pub fn elements(pipeline: &ops::dataset::Dataset) -> Result<ops::dataset::Elements> {
    pipeline.elements_in(&runtime::detached_step(environment()))
}

#[cfg(doctest)]
mod book;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
