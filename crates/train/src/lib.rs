//! Training: layers, losses, optimizers, and the coordination of workers. All of them add nodes to
//! a graph.
//!
//! A [`Model`] is a graph with the variables of layers. Layers add nodes and look variables up by
//! name, so one function builds a network for training and, with the same variables, again for
//! inference:
//!
//! ```
//! use thalweg_api::{Output, Result, feed};
//! use thalweg_train::{Adam, Dense, Dropout, Layer, Model, losses};
//!
//! fn net(model: &Model, x: &Output<f32>) -> Output<f32> {
//!     let x = Dense::new(128).relu().apply(model, x);
//!     let x = Dropout::new(0.5).apply(model, &x);
//!     Dense::new(10).apply(model, &x)
//! }
//!
//! # fn main() -> Result<()> {
//! let model = Model::new();
//! let images = model.placeholder::<f32>("images", [None, Some(784)]);
//! let labels = model.placeholder::<i64>("labels", [None]);
//! let loss = losses::softmax_cross_entropy(&net(&model, &images), &labels);
//! let train = Adam::new(1e-3).minimize(&loss);
//! let guesses = net(&model.inference(), &images).argmax(1);
//!
//! let session = model.session()?; // mistakes above are reported here, with their source lines
//! let feeds = feed! { images: vec![[0.5f32; 784]; 2], labels: [3, 7] };
//! let loss: f32 = session.run(&loss, feeds, &[&train])?;
//! # let _ = (loss, guesses);
//! # assert_eq!(model.trainable().len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! Names of variables and slots are TensorFlow's, so its checkpoints can be restored.

mod accumulation;
mod average;
mod chief;
mod clip;
#[cfg(feature = "remote")]
mod cluster;
mod export;
mod gradient;
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
mod state;
#[cfg(feature = "remote")]
pub mod trainer;
mod view;
mod weights;

pub use accumulation::Accumulation;
pub use average::MovingAverage;
pub use chief::Chief;
pub use clip::Clip;
#[cfg(feature = "remote")]
pub use cluster::{Cluster, Stops};
pub use export::{Served, export, export_with};
pub use gradient::{Gradient, Gradients};
pub use layers::{
    Activation, AveragePool2d, BatchNorm, Bidirectional, Conv1d, Conv2d, Conv2dTranspose, Dense,
    Dropout, Embedding, Flatten, GlobalAveragePool2d, GlobalMaxPool2d, Gru, Layer, LayerNorm, Lstm,
    MaxPool2d, MultiHeadAttention, Padding, PositionEmbedding, Residual, Sequential, Table,
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
pub use weights::{Weights, weighted_mean};
