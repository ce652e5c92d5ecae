//! Layers: building blocks of a network with their own variables.

mod attention;
mod bidirectional;
mod conv;
mod dense;
mod embedding;
mod norm;
mod pool;
mod recurrent;
mod residual;

pub use attention::MultiHeadAttention;
pub use bidirectional::Bidirectional;
pub use conv::{Conv1d, Conv2d, Conv2dTranspose};
pub use dense::{Dense, Dropout, Flatten};
pub(crate) use embedding::lookup;
pub use embedding::{Embedding, Table};
pub use norm::{BatchNorm, LayerNorm};
pub use pool::{AveragePool2d, GlobalAveragePool2d, GlobalMaxPool2d, MaxPool2d};
pub use recurrent::{Gru, Lstm};
pub use residual::{PositionEmbedding, Residual};

use std::panic::Location;

use thalweg_api::{Any, Output, TensorType, on_behalf_of};
use thalweg_tensor::{Error, err};

use crate::view::cast_to;
use crate::{Model, Phase};

/// A layer: a function of one tensor, with variables.
///
/// A function or closure of a model and a float tensor is a layer too:
///
/// ```
/// use thalweg_api::Output;
/// use thalweg_train::{Dense, Layer, Model, Sequential};
///
/// let model = Model::new();
/// let x = model.placeholder::<f32>("x", [None, Some(4)]);
/// let net = Sequential::new()
///     .then(Dense::new(8).relu())
///     .then(|_: &Model, x: &Output<f32>| x * 2.0)
///     .then(Dense::new(3));
/// let y = net.apply(&model, &x);
/// model.check().unwrap();
/// assert_eq!(y.shape().to_string(), "[?,3]");
/// ```
pub trait Layer {
    /// Adds the layer's nodes to the model, with `x` as input. Layers are defined by this function
    /// and used by [`Layer::apply`].
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32>;

    /// The layer's output for `x`. Mistakes are those of the calling line.
    #[track_caller]
    fn apply<T: TensorType>(&self, model: &Model, x: &Output<T>) -> Output<f32>
    where
        Self: Sized,
    {
        let view = x.any().within(model);
        on_behalf_of(Location::caller(), || self.build(model, &view).within(model))
    }

    /// The output of a whole network, in the name scope of `x`, without a model at hand. Called again
    /// with the same name scope, it finds the variables of the first call.
    #[track_caller]
    fn forward<T: TensorType>(&self, phase: Phase, x: &Output<T>) -> Output<f32>
    where
        Self: Sized,
    {
        let model = Model::of(x.graph());
        match phase {
            Phase::Training => self.apply(&model, x),
            Phase::Inference => self.apply(&model.inference(), x),
        }
    }
}

impl<F: Fn(&Model, &Output<f32>) -> Output<f32>> Layer for F {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        self(model, &x.typed())
    }
}

impl Model {
    /// Keeps a mistake of the line that applied the layer; a handle that stands for the output.
    #[track_caller]
    pub(crate) fn mistake(&self, error: Error) -> Output<f32> {
        self.record(Location::caller(), error);
        self.poisoned()
    }

    /// As [`Model::mistake`], for an input of the wrong shape; none if the input is poisoned itself.
    #[track_caller]
    pub(crate) fn wrong_shape(&self, what: &str, x: &Output<f32>) -> Output<f32> {
        match x.endpoint() {
            Ok(_) => self.mistake(err!(InvalidArgument, "{what}, got shape {}", x.shape())),
            Err(_) => self.poisoned(),
        }
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
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let last =
            self.0.iter().fold(x.clone(), |x, layer| layer.build(model, &x.within(model)).any());
        last.typed()
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
    /// The activation of `x`.
    #[track_caller]
    pub fn of<T: TensorType>(self, x: &Output<T>) -> Output<T> {
        match self {
            Activation::Linear => x.clone(),
            Activation::Relu => x.relu(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Tanh => x.tanh(),
            Activation::Softmax => x.softmax(),
            Activation::Swish => x * x.sigmoid(),
            Activation::Gelu => {
                // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
                let number = |value: f32| -> Output<T> {
                    let value = x.graph().constant(value);
                    x.dtype().map_or_else(|| value.any(), |dtype| cast_to(&value, dtype)).typed()
                };
                let cube = x.square() * x;
                let scale = (2.0 / std::f64::consts::PI).sqrt() as f32;
                let gate = ((x + cube * number(0.044_715)) * number(scale)).tanh() + number(1.0);
                x * (gate * number(0.5))
            }
        }
    }

    /// The activation of `y` with a bias, in the dtype of the model's products.
    pub(crate) fn with_bias(
        self,
        model: &Model,
        y: &Output<f32>,
        bias: Option<&Output<f32>>,
    ) -> Output<f32> {
        let of_floats = || self.of(&bias.map_or_else(|| y.clone(), |bias| y.bias_add(bias)));
        match (model.compute, self, bias) {
            // Probabilities are floats, and without work there is nothing to round.
            (None, ..) | (_, Activation::Softmax, _) | (_, Activation::Linear, None) => of_floats(),
            (Some(dtype), ..) => {
                let mut y = cast_to(y, dtype);
                if let Some(bias) = bias {
                    y = y.bias_add(cast_to(bias, dtype));
                }
                self.of(&y).cast::<f32>()
            }
        }
    }
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
