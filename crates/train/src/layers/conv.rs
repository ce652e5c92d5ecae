//! 2-D convolution.

use thalweg_graph::Output;
use thalweg_tensor::Result;

use super::{Activation, Layer, Padding};
use crate::{Initializer, Model};

/// 2-D convolution of images `[batch, height, width, channels]`, with bias and activation.
#[derive(Clone, Debug)]
pub struct Conv {
    filters: usize,
    window: [usize; 2],
    stride: usize,
    padding: Padding,
    activation: Activation,
    has_bias: bool,
    kernel: Initializer,
}

impl Conv {
    /// A convolution with this number of filters and this kernel size (height, width).
    pub fn new(filters: usize, window: [usize; 2]) -> Conv {
        Conv {
            filters,
            window,
            stride: 1,
            padding: Padding::Same,
            activation: Activation::Linear,
            has_bias: true,
            kernel: Initializer::GlorotUniform,
        }
    }

    /// Sets the stride in both dimensions.
    #[must_use]
    pub fn stride(self, stride: usize) -> Conv {
        Conv { stride, ..self }
    }

    /// Sets the padding.
    #[must_use]
    pub fn padding(self, padding: Padding) -> Conv {
        Conv { padding, ..self }
    }

    /// Sets the activation function.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Conv {
        Conv { activation, ..self }
    }

    /// Uses ReLU.
    #[must_use]
    pub fn relu(self) -> Conv {
        self.activation(Activation::Relu)
    }

    /// Omits the bias, as before a normalization.
    #[must_use]
    pub fn without_bias(self) -> Conv {
        Conv { has_bias: false, ..self }
    }

    /// Sets the initializer of the kernel.
    #[must_use]
    pub fn kernel(self, kernel: Initializer) -> Conv {
        Conv { kernel, ..self }
    }
}

impl Layer for Conv {
    fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
        let channels = model.features(x)?;
        let mut layer = model.layer("conv2d");
        let dims = [self.window[0], self.window[1], channels, self.filters];
        let kernel = layer.parameter("kernel", &dims, &self.kernel)?.read(&mut layer)?;
        let stride = self.stride as i64;
        let node = layer.op("Conv2D").inputs(&[x, kernel]);
        let node = node.attr("strides", &[1, stride, stride, 1][..]);
        let mut y = node.attr("padding", self.padding.name()).build()?;
        if self.has_bias {
            let bias = layer.parameter("bias", &[self.filters], &Initializer::Zeros)?;
            let bias = bias.read(&mut layer)?;
            y = layer.add("BiasAdd", &[y, bias])?;
        }
        self.activation.apply(&mut layer, y)
    }
}
