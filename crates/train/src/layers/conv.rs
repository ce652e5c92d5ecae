//! Convolutions.

use crate::model::stack;
use thalweg_api::{Any, NewOp, Output};

use super::{Activation, Layer, Padding};
use crate::model::in_compute_dtype;
use crate::{Initializer, Model};

/// Settings that convolutions share.
#[derive(Clone, Debug)]
struct Settings {
    filters: usize,
    stride: usize,
    padding: Padding,
    activation: Activation,
    has_bias: bool,
    kernel: Initializer,
}

macro_rules! convolution {
    ($(#[$doc:meta])* $name:ident, $window:ty, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            window: $window,
            settings: Settings,
        }

        impl $name {
            #[doc = concat!("A convolution with this number of filters and this kernel size (", $what, ").")]
            pub fn new(filters: usize, window: $window) -> $name {
                let settings = Settings {
                    filters,
                    stride: 1,
                    padding: Padding::Same,
                    activation: Activation::Linear,
                    has_bias: true,
                    kernel: Initializer::GlorotUniform,
                };
                $name { window, settings }
            }

            /// Sets the stride in every dimension.
            #[must_use]
            pub fn stride(mut self, stride: usize) -> $name {
                self.settings.stride = stride;
                self
            }

            /// Sets the padding.
            #[must_use]
            pub fn padding(mut self, padding: Padding) -> $name {
                self.settings.padding = padding;
                self
            }

            /// Sets the activation function.
            #[must_use]
            pub fn activation(mut self, activation: Activation) -> $name {
                self.settings.activation = activation;
                self
            }

            /// Uses ReLU.
            #[must_use]
            pub fn relu(self) -> $name {
                self.activation(Activation::Relu)
            }

            /// Omits the bias, as before a normalization.
            #[must_use]
            pub fn without_bias(mut self) -> $name {
                self.settings.has_bias = false;
                self
            }

            /// Sets the initializer of the kernel.
            #[must_use]
            pub fn kernel_initializer(mut self, kernel: Initializer) -> $name {
                self.settings.kernel = kernel;
                self
            }
        }
    };
}

convolution!(
    /// 1-D convolution of sequences `[batch, time, channels]`, with bias and activation.
    Conv1d,
    usize,
    "time steps"
);
convolution!(
    /// 2-D convolution of images `[batch, height, width, channels]`, with bias and activation.
    Conv2d,
    [usize; 2],
    "height, width"
);
convolution!(
    /// Transposed 2-D convolution: the gradient of a convolution by its input, which makes images
    /// larger by the stride. With bias and activation.
    Conv2dTranspose,
    [usize; 2],
    "height, width"
);

impl Settings {
    /// The convolution of images with a kernel `[height, width, channels, filters]`.
    fn convolve(&self, layer: &Model, x: &Output<f32>, kernel: &Output<f32>) -> Output<f32> {
        in_compute_dtype(layer, (x, kernel), |x, kernel| {
            self.node(NewOp::new(layer, "Conv2D").input(x).input(kernel)).output()
        })
    }

    fn node<'a>(&self, node: NewOp<'a>) -> NewOp<'a> {
        let stride = self.stride as i64;
        let node = node.attr("strides", &[1, stride, stride, 1][..]);
        node.attr("padding", self.padding.name())
    }

    fn bias_and_activation(&self, layer: &Model, y: &Output<f32>) -> Output<f32> {
        let bias =
            self.has_bias.then(|| layer.parameter("bias", &[self.filters], &Initializer::Zeros));
        self.activation.with_bias(layer, y, bias.as_ref())
    }
}

impl Layer for Conv1d {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(channels) = model.features(x) else { return model.poisoned() };
        let layer = model.layer("conv1d");
        // A sequence is an image of height 1.
        let images = x.typed::<f32>().within(&layer).expand_dims(1i32);
        let dims = [self.window, channels, self.settings.filters];
        let kernel = layer.parameter("kernel", &dims, &self.settings.kernel).expand_dims(0i32);
        let y = self.settings.convolve(&layer, &images, &kernel).squeeze(&[1]);
        self.settings.bias_and_activation(&layer, &y)
    }
}

impl Layer for Conv2d {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(channels) = model.features(x) else { return model.poisoned() };
        let layer = model.layer("conv2d");
        let dims = [self.window[0], self.window[1], channels, self.settings.filters];
        let kernel = layer.parameter("kernel", &dims, &self.settings.kernel);
        let y = self.settings.convolve(&layer, &x.typed().within(&layer), &kernel);
        self.settings.bias_and_activation(&layer, &y)
    }
}

impl Layer for Conv2dTranspose {
    fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
        let Some(channels) = model.features(x) else { return model.poisoned() };
        let layer = model.layer("conv2d_transpose");
        let x = x.typed::<f32>().within(&layer);
        let Settings { filters, stride, padding, .. } = self.settings;
        let dims = [self.window[0], self.window[1], filters, channels];
        let kernel = layer.parameter("kernel", &dims, &self.settings.kernel);
        // Each size: the largest that the convolution would have made this one of.
        let sizes = x.shape_tensor();
        let more = |window: usize| match padding {
            Padding::Same => 0,
            Padding::Valid => window.saturating_sub(stride) as i32,
        };
        let size = |axis: i32| sizes.gather(axis);
        let [height, width] =
            [1, 2].map(|axis| size(axis) * stride as i32 + more(self.window[axis as usize - 1]));
        let target = stack(&[&size(0), &height, &width, &layer.constant(filters as i32)]);
        let y = in_compute_dtype(&layer, (&kernel, &x), |kernel, x| {
            let node = NewOp::new(&layer, "Conv2DBackpropInput").input(&target);
            self.settings.node(node.input(kernel).input(x)).output()
        });
        self.settings.bias_and_activation(&layer, &y)
    }
}
