//! Batch and layer normalization.

use thalweg_api::{Any, NewOp, Output};

use super::Layer;
use crate::{Initializer, Model, Phase};

/// Batch normalization: each channel gets mean 0 and variance 1 over the batch, then a learned
/// scale and offset. Inference uses the moving averages that training kept.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm {
    momentum: f32,
    epsilon: f32,
}

impl BatchNorm {
    /// With TensorFlow's settings: momentum 0.99, epsilon 0.001.
    pub fn new() -> BatchNorm {
        BatchNorm { momentum: 0.99, epsilon: 1e-3 }
    }

    /// Sets the momentum: the fraction of the moving averages that stays at each step.
    #[must_use]
    pub fn momentum(self, momentum: f32) -> BatchNorm {
        BatchNorm { momentum, ..self }
    }

    /// Sets the constant that is added to variances.
    #[must_use]
    pub fn epsilon(self, epsilon: f32) -> BatchNorm {
        BatchNorm { epsilon, ..self }
    }
}

impl Default for BatchNorm {
    fn default() -> Self {
        BatchNorm::new()
    }
}

impl Layer for BatchNorm {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let x = x.typed::<f32>();
        let Some(channels) = model.features(&x) else { return model.poisoned() };
        let rank = x.shape().rank();
        if rank != Some(2) && rank != Some(4) {
            return model.wrong_shape("batch normalization needs an input of rank 2 or 4", &x);
        }
        let layer = model.layer("batch_normalization");
        let mut images = x.within(&layer);
        if rank == Some(2) {
            images = images.reshape([-1, 1, 1, channels as i32]);
        }
        let scale = layer.parameter("gamma", &[channels], &Initializer::Ones);
        let offset = layer.parameter("beta", &[channels], &Initializer::Zeros);
        let mean = layer.counter::<f32>("moving_mean", &[channels], &Initializer::Zeros);
        let variance = layer.counter::<f32>("moving_variance", &[channels], &Initializer::Ones);
        let is_training = layer.phase() == Phase::Training;
        let node = NewOp::new(&layer, "FusedBatchNormV3").input(&images).input(&scale);
        let node = node.input(&offset);
        let node = if is_training {
            let none = layer.constant(Vec::<f32>::new());
            node.input(&none).input(&none)
        } else {
            node.input(mean.value()).input(variance.value())
        };
        let node = node.attr("epsilon", self.epsilon).attr("is_training", is_training).build();
        if is_training {
            // moving -= (moving - batch) * (1 - momentum)
            for (kept, i) in [(&mean, 1), (&variance, 2)] {
                let batch = node.output::<f32>(i);
                let step = (kept.read_within(&layer) - batch) * (1.0 - self.momentum);
                layer.add_update(&kept.assign_sub(&step));
            }
        }
        let y = node.output::<f32>(0);
        if rank == Some(4) { y } else { y.reshape([-1, channels as i32]) }
    }
}

/// Layer normalization: each row gets mean 0 and variance 1, then a learned scale and offset.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    epsilon: f32,
}

impl LayerNorm {
    /// With TensorFlow's epsilon, 0.001.
    pub fn new() -> LayerNorm {
        LayerNorm { epsilon: 1e-3 }
    }

    /// Sets the constant that is added to variances.
    #[must_use]
    pub fn epsilon(self, epsilon: f32) -> LayerNorm {
        LayerNorm { epsilon }
    }
}

impl Default for LayerNorm {
    fn default() -> Self {
        LayerNorm::new()
    }
}

impl Layer for LayerNorm {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(features) = model.features(x) else { return model.poisoned() };
        let layer = model.layer("layer_normalization");
        let x = x.typed::<f32>().within(&layer);
        let scale = layer.parameter("gamma", &[features], &Initializer::Ones);
        let offset = layer.parameter("beta", &[features], &Initializer::Zeros);
        let gap = &x - x.mean_keepdims([-1]);
        let variance = gap.square().mean_keepdims([-1]);
        gap * (variance + self.epsilon).rsqrt() * scale + offset
    }
}
