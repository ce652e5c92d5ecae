//! Layers: building blocks of a network with their own variables.

mod attention;
mod conv;
mod dense;
mod embedding;
mod norm;
mod pool;
mod recurrent;
mod residual;

pub use attention::Attention;
pub use conv::Conv;
pub use dense::{Dense, Dropout, Flatten};
pub use embedding::Embedding;
pub(crate) use embedding::lookup;
pub use norm::{BatchNorm, LayerNorm};
pub use pool::{AveragePool, MaxPool, global_average_pool};
pub use recurrent::{Gru, Lstm};
pub use residual::{Positions, Residual};

use thalweg_api as api;
use thalweg_graph::Output;
use thalweg_tensor::Result;

use crate::{Model, Phase};

/// A layer: a function of one tensor, with variables.
pub trait Layer {
    /// Adds the layer's nodes to the model, with `x` as input.
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output>;

    /// Adds a whole net by handle, in the name scope of `x`. Called again with the same name scope,
    /// it finds the variables of the first call.
    #[track_caller]
    #[must_use]
    fn forward<T: api::TensorType>(&self, phase: Phase, x: &api::Output<T>) -> api::Output<f32>
    where
        Self: Sized,
    {
        let graph = x.graph();
        let Ok(at) = x.endpoint() else { return api::Output::poisoned(graph) };
        let added = graph.build(|_| {
            let model = Model::of(graph);
            match phase {
                Phase::Training => self.apply(&mut { model }, at),
                Phase::Inference => self.apply(&mut model.inference(), at),
            }
        });
        added.map_or_else(|| api::Output::poisoned(graph), |at| graph.output(at))
    }
}

/// A sequence of layers, each applied to the output of the one before.
#[derive(Default)]
pub struct Sequential(Vec<Box<dyn Layer>>);

impl Sequential {
    /// An empty sequence: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a layer.
    #[must_use]
    pub fn then(mut self, layer: impl Layer + 'static) -> Sequential {
        self.0.push(Box::new(layer));
        self
    }
}

impl Layer for Sequential {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        self.0.iter().try_fold(x, |x, layer| layer.apply(model, x))
    }
}

/// An activation function, applied to the output of a layer element by element (softmax: by rows).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The identity.
    #[default]
    Linear,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// Gaussian error linear unit, by its tanh approximation.
    Gelu,
    /// `x * sigmoid(x)`.
    Swish,
    /// Softmax over the last dimension.
    Softmax,
}

impl Activation {
    /// Adds the activation of `x`.
    pub fn apply(self, model: &mut Model, x: Output) -> Result<Output> {
        match self {
            Activation::Linear => Ok(x),
            Activation::Relu => model.add("Relu", &[x]),
            Activation::Sigmoid => model.add("Sigmoid", &[x]),
            Activation::Tanh => model.add("Tanh", &[x]),
            Activation::Softmax => model.add("Softmax", &[x]),
            Activation::Swish => {
                let gate = model.add("Sigmoid", &[x])?;
                model.add("Mul", &[x, gate])
            }
            Activation::Gelu => gelu(model, x),
        }
    }
}

/// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
fn gelu(model: &mut Model, x: Output) -> Result<Output> {
    let dtype = model.dtype(x);
    let square = model.add("Square", &[x])?;
    let cube = model.add("Mul", &[square, x])?;
    let small = model.number(dtype, 0.044_715)?;
    let cube = model.add("Mul", &[cube, small])?;
    let sum = model.add("AddV2", &[x, cube])?;
    let scale = model.number(dtype, (2.0 / std::f64::consts::PI).sqrt())?;
    let scaled = model.add("Mul", &[sum, scale])?;
    let tanh = model.add("Tanh", &[scaled])?;
    let one = model.number(dtype, 1.0)?;
    let gate = model.add("AddV2", &[tanh, one])?;
    let half = model.number(dtype, 0.5)?;
    let gate = model.add("Mul", &[gate, half])?;
    model.add("Mul", &[x, gate])
}

/// Padding of an image at its borders, as TensorFlow's `padding` attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// Zero padding so that the output size is the input size divided by the stride, rounded up.
    #[default]
    Same,
    /// No padding.
    Valid,
}

impl Padding {
    fn name(self) -> &'static str {
        match self {
            Padding::Same => "SAME",
            Padding::Valid => "VALID",
        }
    }
}
