//! Thalweg: distributed TensorFlow, reimplemented in Rust.
//!
//! A graph is built by handles that know their graph and their element type, and run by handle:
//!
//! ```
//! use thalweg::{Adam, Graph, Init, Output, Result, feed};
//!
//! # fn main() -> Result<()> {
//! let g = Graph::new();
//! let x = g.placeholder::<f32>("x", [None, Some(2)]);
//! let labels = g.placeholder::<i64>("labels", [None]);
//! let w = g.variable("w", Init::glorot([2, 3]));
//! let logits = x.matmul(&w) + g.variable("b", Init::zeros([3]));
//! let loss = logits.softmax_cross_entropy(&labels).mean();
//! let train = Adam::new(0.1).minimize(&loss);
//!
//! let session = g.session()?; // mistakes above are reported here, with their source lines
//! let points = [[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]];
//! for _ in 0..50 {
//!     let _: f32 = session.run(&loss, feed! { x: points, labels: [0, 1, 2] }, &[&train])?;
//! }
//! let (loss, best): (f32, Vec<i64>) =
//!     session.run((&loss, &logits.argmax(1)), feed! { x: points, labels: [0, 1, 2] }, &[])?;
//! assert!(loss < 0.2);
//! assert_eq!(best, [0, 1, 2]);
//! # Ok(())
//! # }
//! ```
//!
//! The layers below are there as well: ops by name and [`graph::Scope`], where every node returns a
//! `Result`.
//!
//! The parts are crates of their own, re-exported here under their bare names: [`tensor`] (tensors,
//! errors), [`accel`] (GPUs and TPUs), [`api`] (the typed handles), [`formats`] (file formats), [`graph`] (ops, graphs, scopes), [`kernel`] (the kernel
//! API), [`ops`] (the built-in ops), [`runtime`] (sessions), `cluster` (distributed sessions, with
//! the feature `remote`), [`storage`] (files behind URLs), [`train`] (models and optimizers),
//! [`proto`] (TensorFlow's messages).
//!
//! All of them log by `tracing`: a program sees no message until it installs a subscriber, such as
//! `tracing_subscriber::fmt().init()`. Errors are returned, never only logged. Targets and fields
//! stand in `docs/src/how-to/logging.md`.

use graph::Scope;
use kernel::Environment;
use runtime::{LoadOptions, SavedModel};

pub use thalweg_accel as accel;
pub use thalweg_api as api;
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

pub use api::{
    Any, Graph, Init, LoopOptions, NewOp, OpGradient, Operation, Output, Ref, Registry, Resource,
    RunSteps, Session, Step, TensorType, Variable, Variant, case, cond, custom_gradient, ellipsis,
    feed, foldl, gradients, map_fn, new_axis, scan, session_options, stepped, switch_case, tf,
    while_loop,
};
pub use tensor::{Code, DType, Error, Result, Shape, Tensor};
pub use train::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Momentum, RmsProp, Saver, SaverOptions, Sgd,
};

/// The items that most programs need.
///
/// `Graph`, `Output`, `Session` and `Variable` are those of the typed API; code on the level of
/// scopes names those below itself, such as [`crate::graph::Output`].
pub mod prelude {
    pub use crate::api::{
        Any, Graph, Init, LoopOptions, NewOp, Operation, Output, RunSteps, Session, Step,
        TensorType, Variable, case, cond, custom_gradient, ellipsis, feed, foldl, gradients,
        map_fn, new_axis, scan, stepped, switch_case, tf, while_loop,
    };
    #[cfg(feature = "remote")]
    pub use crate::cluster::{Connect, ConnectOptions, RemoteSession};
    pub use crate::graph::{Adjoint, GradientOptions, Scope};
    pub use crate::ops::dataset::Dataset;
    pub use crate::runtime::{
        Callable, LoadOptions, RunMetadata, RunOptions, SavedModel, SavedModelBuilder,
        SessionOptions,
    };
    pub use crate::tensor::{Code, DType, Error, PartialShape, Result, Shape, Tensor};
    pub use crate::train::{
        Activation, Adadelta, Adagrad, Adam, AdamW, Adamax, AveragePool2d, BatchNorm,
        Bidirectional, Clip, Conv1d, Conv2d, Conv2dTranspose, Dense, Dropout, Embedding, Flatten,
        Ftrl, GlobalAveragePool2d, GlobalMaxPool2d, Gru, Initializer, Layer, LayerNorm, LossScale,
        Lstm, MaxPool2d, Mode, Model, Momentum, MovingAverage, MultiHeadAttention, Optimizer,
        Padding, Phase, Placement, PositionEmbedding, Rate, Residual, RmsProp, Rng, Rule, Saver,
        SaverOptions, Sequential, Sgd, losses, metrics, mnist,
    };
    #[cfg(feature = "remote")]
    pub use crate::train::{Cluster, Net, Samples, TrainOptions, Trainer};
}

/// All ops and kernels of this crate.
pub fn registry() -> Registry {
    Registry::built_in()
}

/// A scope at the root of a new graph, with all ops.
pub fn scope() -> Scope {
    Scope::new(registry().ops.clone())
}

fn environment() -> Environment {
    session_options().environment
}

/// A session for the graph that `scope` has built so far, with all kernels and [`session_options`].
pub fn session(scope: &Scope) -> Result<runtime::Session> {
    runtime::Session::new(scope.to_graph(), registry().kernels.clone(), session_options())
}

/// The SavedModel in `folder`, with all kernels and default options: the only MetaGraph, or the one
/// for serving.
pub fn saved_model(folder: &str) -> Result<SavedModel> {
    let Registry { ops, kernels } = registry();
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
