//! Training: layers, losses, optimizers, and the coordination of workers. All of them add nodes to
//! a graph.
//!
//! A [`Model`] is a scope that also keeps its variables. Layers add nodes and look variables up by
//! name, so one function builds a network for training and, with the same variables, again for
//! inference:
//!
//! ```
//! use thalweg_graph::{Output, Scope};
//! use thalweg_tensor::{DType, Result};
//! use thalweg_train::{Dense, Dropout, Layer, Model, Optimizer, losses};
//!
//! fn net(model: &mut Model, x: Output) -> Result<Output> {
//!     let x = Dense::new(128).relu().apply(model, x)?;
//!     let x = Dropout::new(0.5).apply(model, x)?;
//!     Dense::new(10).apply(model, x)
//! }
//!
//! # fn main() -> Result<()> {
//! let mut model = Model::new(Scope::new(thalweg_ops::op_registry(thalweg_ops::FAMILIES)?));
//! let images = model.input("images", DType::Float, &[None, Some(784)])?;
//! let labels = model.input("labels", DType::Int64, &[None])?;
//! let logits = net(&mut model, images)?;
//! let loss = losses::softmax_cross_entropy(&mut model, logits, labels)?;
//! let train = Optimizer::adam(1e-3).minimize(&mut model, loss)?;
//! let init = model.init()?;
//! let logits = net(&mut model.inference(), images)?;
//! # let _ = (train, init, logits);
//! # assert_eq!(model.variables().iter().filter(|v| v.is_trainable).count(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! Names of variables and slots are TensorFlow's, so its checkpoints can be restored.

mod accumulation;
mod average;
mod by_handle;
mod chief;
mod clip;
#[cfg(feature = "remote")]
mod cluster;
mod export;
pub mod layers;
pub mod leases;
mod loss_scale;
pub mod losses;
pub mod metrics;
pub mod mnist;
mod mode;
mod model;
mod optimizer;
mod optimizers;
mod partition;
mod placement;
mod rng;
mod saver;
mod schedule;
mod section;
mod summaries;
#[cfg(feature = "remote")]
pub mod trainer;
mod weights;

pub use accumulation::Accumulation;
pub use average::MovingAverage;
pub use chief::Chief;
pub use clip::Clip;
#[cfg(feature = "remote")]
pub use cluster::{Cluster, Stops};
pub use export::{Served, export, export_with};
pub use layers::{
    Activation, Attention, AveragePool, BatchNorm, Conv, Dense, Dropout, Embedding, Flatten, Gru,
    Layer, LayerNorm, Lstm, MaxPool, Padding, Positions, Residual, Sequential, global_average_pool,
};
pub use loss_scale::LossScale;
pub use metrics::Metric;
pub use mode::{ChiefOps, Coordinated, Mode, Order, Replica, train_towers};
pub use model::{Model, Phase};
pub use optimizer::{Optimizer, Rule};
pub use optimizers::{Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Momentum, RmsProp, Sgd};
pub use partition::{Parameter, Partitioner};
pub use placement::{Placement, Spread};
pub use rng::Rng;
pub use saver::{Checkpoints, Saver, SaverOptions};
pub use schedule::Rate;
pub use thalweg_api::{Initializer, Part, RunSteps, VariableInfo as Variable};
#[cfg(feature = "remote")]
pub use trainer::{Net, Samples, TrainOptions, Trainer};
pub use weights::Weights;
