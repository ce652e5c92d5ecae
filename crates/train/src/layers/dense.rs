//! Fully connected layers, dropout and flattening.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::{Activation, Layer};
use crate::{Initializer, Model, Phase};

/// Fully connected layer: `activation(x W + b)`.
#[derive(Clone, Debug)]
pub struct Dense {
    units: usize,
    activation: Activation,
    has_bias: bool,
    kernel: Initializer,
    l2: f32,
}

impl Dense {
    /// A layer with this number of output units.
    pub fn new(units: usize) -> Dense {
        Dense {
            units,
            activation: Activation::Linear,
            has_bias: true,
            kernel: Initializer::GlorotUniform,
            l2: 0.0,
        }
    }

    /// Sets the activation function.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Dense {
        Dense { activation, ..self }
    }

    /// Uses ReLU.
    #[must_use]
    pub fn relu(self) -> Dense {
        self.activation(Activation::Relu)
    }

    /// Omits the bias.
    #[must_use]
    pub fn without_bias(self) -> Dense {
        Dense { has_bias: false, ..self }
    }

    /// Sets the initializer of the weights.
    #[must_use]
    pub fn kernel(self, kernel: Initializer) -> Dense {
        Dense { kernel, ..self }
    }

    /// Adds an L2 penalty `l2 * sum(W^2)` to the loss.
    #[must_use]
    pub fn l2(self, l2: f32) -> Dense {
        Dense { l2, ..self }
    }
}

impl Layer for Dense {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let inputs = model.features(x)?;
        let mut layer = model.layer("dense");
        let kernel = layer.parameter("kernel", &[inputs, self.units], &self.kernel)?;
        let weights = kernel.read(&mut layer)?;
        if self.l2 > 0.0 && layer.phase() == Phase::Training {
            let penalty = crate::losses::l2(&mut layer, weights, self.l2)?;
            layer.add_penalty(&kernel.parts[0], penalty);
        }
        let mut y = rows_times(&mut layer, x, weights, self.units)?;
        if self.has_bias {
            let bias = layer.parameter("bias", &[self.units], &Initializer::Zeros)?;
            let bias = bias.read(&mut layer)?;
            y = layer.add("BiasAdd", &[y, bias])?;
        }
        self.activation.apply(&mut layer, y)
    }
}

/// Matrix product over the last dimension of `x`, whatever the leading dimensions.
pub(super) fn rows_times(
    model: &mut Model,
    x: Output,
    weights: Output,
    units: usize,
) -> Result<Output> {
    let shape = model.shape(x);
    let rank = shape.rank();
    ensure!(
        rank.is_some_and(|rank| rank >= 2),
        InvalidArgument,
        "a dense layer needs an input of rank 1 or more, got shape {shape}"
    );
    if rank == Some(2) {
        return model.add("MatMul", &[x, weights]);
    }
    let inputs = model.features(x)?;
    let flat = model.ints(&[-1, inputs as i32])?;
    let rows = model.add("Reshape", &[x, flat])?;
    let product = model.add("MatMul", &[rows, weights])?;
    let shape = replace_last(model, x, units)?;
    model.add("Reshape", &[product, shape])
}

/// The shape of `x` with another last dimension.
fn replace_last(model: &mut Model, x: Output, last: usize) -> Result<Output> {
    let dims = model.shape(x);
    let known: Option<Vec<i32>> =
        dims.dims().map(|dims| dims.iter().map(|d| d.map_or(-1, |d| d as i32)).collect());
    if let Some(mut known) =
        known.filter(|k| k[..k.len() - 1].iter().filter(|d| **d < 0).count() < 2)
    {
        // At most one size is unknown: Reshape infers it.
        let end = known.len() - 1;
        known[end] = last as i32;
        return model.ints(&known);
    }
    let shape = model.shape_of(x)?;
    let (zero, end, one) = (model.ints(&[0])?, model.ints(&[-1])?, model.ints(&[1])?);
    let leading = model.add("StridedSlice", &[shape, zero, end, one])?;
    let last = model.ints(&[last as i32])?;
    let axis = model.int(0)?;
    model.op("ConcatV2").inputs(&[leading, last, axis]).build()
}

/// Dropout: sets a random fraction of the elements to zero during training and scales the others up
/// by `1 / (1 - rate)`.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    rate: f32,
}

impl Dropout {
    /// Dropout with this rate, in `[0, 1)`.
    pub fn new(rate: f32) -> Dropout {
        Dropout { rate }
    }
}

impl Layer for Dropout {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        ensure!(
            (0.0..1.0).contains(&self.rate),
            InvalidArgument,
            "the dropout rate must be in [0, 1), got {}",
            self.rate
        );
        if model.phase() == Phase::Inference || self.rate == 0.0 {
            return Ok(x);
        }
        let mut layer = model.layer("dropout");
        let dtype = layer.dtype(x);
        let shape = layer.shape_of(x)?;
        let (seed, seed2) = layer.next_seeds();
        let node = layer.op("RandomUniform").input(shape).attr("dtype", dtype);
        let uniform = node.attr("seed", seed).attr("seed2", seed2).build()?;
        let rate = layer.number(dtype, f64::from(self.rate))?;
        let stays = layer.add("GreaterEqual", &[uniform, rate])?;
        let scale = layer.number(dtype, 1.0 / (1.0 - f64::from(self.rate)))?;
        let scaled = layer.add("Mul", &[x, scale])?;
        let zero = layer.number(dtype, 0.0)?;
        layer.add("SelectV2", &[stays, scaled, zero])
    }
}

/// Reshapes `[batch, ...]` to `[batch, features]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flatten;

impl Layer for Flatten {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let shape = model.shape(x);
        let size =
            shape.dims().and_then(|dims| dims.get(1..)?.iter().copied().product::<Option<usize>>());
        ensure!(
            size.is_some(),
            InvalidArgument,
            "a tensor of shape {shape} cannot be flattened: all but its first size must be known"
        );
        let target = model.ints(&[-1, size.unwrap_or(1) as i32])?;
        model.add("Reshape", &[x, target])
    }
}
