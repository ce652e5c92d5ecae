//! Batch and layer normalization.

use thalweg_graph::Output;
use thalweg_tensor::{Result, ensure};

use super::Layer;
use crate::{Initializer, Model, Phase, Variable};

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

    /// Updates a moving average: `moving -= (moving - batch) * (1 - momentum)`.
    fn follow(self, layer: &mut Model, kept: &Variable, batch: Output) -> Result<()> {
        let old = kept.read(layer)?;
        let gap = layer.add("Sub", &[old, batch])?;
        let part = layer.float(1.0 - self.momentum)?;
        let step = layer.add("Mul", &[gap, part])?;
        let node = layer.op("AssignSubVariableOp").inputs(&[kept.handle, step]).build_node()?;
        layer.add_update(node);
        Ok(())
    }
}

impl Default for BatchNorm {
    fn default() -> Self {
        BatchNorm::new()
    }
}

impl Layer for BatchNorm {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let channels = model.features(x)?;
        let rank = model.shape(x).rank();
        ensure!(
            rank == Some(2) || rank == Some(4),
            InvalidArgument,
            "batch normalization needs an input of rank 2 or 4, got shape {}",
            model.shape(x)
        );
        let mut layer = model.layer("batch_normalization");
        let dims = [channels];
        let variable = |layer: &Model, name, first| layer.parameter(name, &dims, &first);
        let scale = variable(&layer, "gamma", Initializer::Ones)?.read(&mut layer)?;
        let offset = variable(&layer, "beta", Initializer::Zeros)?.read(&mut layer)?;
        let kept = |layer: &Model, name, first| {
            layer.counter(name, thalweg_tensor::DType::Float, &dims, &first)
        };
        let mean = kept(&layer, "moving_mean", Initializer::Zeros)?;
        let variance = kept(&layer, "moving_variance", Initializer::Ones)?;

        let images = if rank == Some(4) {
            x
        } else {
            let shape = layer.ints(&[-1, 1, 1, channels as i32])?;
            layer.add("Reshape", &[x, shape])?
        };
        let is_training = layer.phase() == Phase::Training;
        let used = if is_training {
            let none = layer.constant(&thalweg_tensor::Tensor::vector::<f32>(&[])?)?;
            [none, none]
        } else {
            [mean.read(&mut layer)?, variance.read(&mut layer)?]
        };
        let node = layer.op("FusedBatchNormV3").inputs(&[images, scale, offset, used[0], used[1]]);
        let node = node.attr("epsilon", self.epsilon).attr("is_training", is_training);
        let outputs = node.build_all()?;
        if is_training {
            self.follow(&mut layer, &mean, outputs[1])?;
            self.follow(&mut layer, &variance, outputs[2])?;
        }
        if rank == Some(4) {
            return Ok(outputs[0]);
        }
        let shape = layer.ints(&[-1, channels as i32])?;
        layer.add("Reshape", &[outputs[0], shape])
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
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let features = model.features(x)?;
        let mut layer = model.layer("layer_normalization");
        let scale = layer.parameter("gamma", &[features], &Initializer::Ones)?.read(&mut layer)?;
        let offset = layer.parameter("beta", &[features], &Initializer::Zeros)?.read(&mut layer)?;
        let axis = layer.ints(&[-1])?;
        let mean = layer.op("Mean").inputs(&[x, axis]).attr("keep_dims", true).build()?;
        let gap = layer.add("Sub", &[x, mean])?;
        let square = layer.add("Square", &[gap])?;
        let node = layer.op("Mean").inputs(&[square, axis]).attr("keep_dims", true);
        let variance = node.build()?;
        let dtype = layer.dtype(x);
        let epsilon = layer.number(dtype, f64::from(self.epsilon))?;
        let variance = layer.add("AddV2", &[variance, epsilon])?;
        let inverse = layer.add("Rsqrt", &[variance])?;
        let normal = layer.add("Mul", &[gap, inverse])?;
        let scaled = layer.add("Mul", &[normal, scale])?;
        layer.add("AddV2", &[scaled, offset])
    }
}
