//! Fully connected layers, dropout and flattening.

use crate::model::concat;
use thalweg_api::{Any, NewOp, Output};
use thalweg_tensor::err;

use super::{Activation, Layer};
use crate::model::in_compute_dtype;
use crate::{Initializer, Model, Phase, losses};

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
    pub fn kernel_initializer(self, kernel: Initializer) -> Dense {
        Dense { kernel, ..self }
    }

    /// Adds an L2 penalty `l2 * sum(W^2)` to the loss.
    #[must_use]
    pub fn l2(self, l2: f32) -> Dense {
        Dense { l2, ..self }
    }
}

impl Layer for Dense {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(inputs) = model.features(x) else { return model.poisoned() };
        let layer = model.layer("dense");
        let weights = layer.parameter("kernel", &[inputs, self.units], &self.kernel);
        if self.l2 > 0.0 && layer.phase() == Phase::Training {
            layer.add_penalty(&layer.full_name("kernel"), &losses::l2(&weights, self.l2));
        }
        let y = rows_times(&layer, &x.typed().within(&layer), &weights, self.units);
        let bias =
            self.has_bias.then(|| layer.parameter("bias", &[self.units], &Initializer::Zeros));
        self.activation.with_bias(&layer, &y, bias.as_ref())
    }
}

/// Matrix product over the last dimension of `x`, whatever the leading dimensions.
pub(super) fn rows_times(
    layer: &Model,
    x: &Output<f32>,
    weights: &Output<f32>,
    units: usize,
) -> Output<f32> {
    let shape = x.shape();
    let product = |x: &Output<f32>| in_compute_dtype(layer, (x, weights), |x, w| x.matmul(w));
    match shape.dims() {
        Some([_, _]) => product(x),
        Some([leading @ .., Some(inputs)]) if !leading.is_empty() => {
            let rows = product(&x.reshape([-1, *inputs as i32]));
            if leading.iter().filter(|size| size.is_none()).count() < 2 {
                // At most one size is unknown: Reshape infers it.
                let sizes = leading.iter().map(|size| size.map_or(-1, |size| size as i32));
                return rows.reshape(sizes.chain([units as i32]).collect::<Vec<i32>>());
            }
            let leading: Output<i32> = NewOp::new(layer, "StridedSlice")
                .input(x.shape_tensor())
                .input([0])
                .input([-1])
                .input([1])
                .output();
            rows.reshape(concat(&[&leading, &layer.constant([units as i32])], 0))
        }
        _ => layer.wrong_shape("a dense layer needs an input of rank 2 or more", x),
    }
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
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let x = x.typed::<f32>();
        if !(0.0..1.0).contains(&self.rate) {
            let rate = self.rate;
            let error = err!(InvalidArgument, "the dropout rate must be in [0, 1), got {rate}");
            return model.mistake(error);
        }
        if model.phase() == Phase::Inference || self.rate == 0.0 {
            return x;
        }
        let layer = model.layer("dropout");
        let x = x.within(&layer);
        let uniform = layer.random_uniform::<f32>(&x.shape_tensor());
        let scale = (1.0 / (1.0 - f64::from(self.rate))) as f32;
        uniform.greater_equal(self.rate).select(x * scale, 0.0)
    }
}

/// Reshapes `[batch, ...]` to `[batch, features]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flatten;

impl Layer for Flatten {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let x = x.typed::<f32>();
        let shape = x.shape();
        let sizes = shape.dims().and_then(|dims| dims.get(1..));
        match sizes.and_then(|sizes| sizes.iter().copied().product::<Option<usize>>()) {
            Some(size) => x.reshape([-1, size as i32]),
            None => model.wrong_shape("all sizes but the first must be known to flatten", &x),
        }
    }
}
