//! 2-D pooling.

use thalweg_api::{Any, NewOp, Output};

use super::{Layer, Padding};
use crate::Model;

macro_rules! pool {
    ($(#[$doc:meta])* $name:ident, $op:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            window: usize,
            stride: usize,
            padding: Padding,
        }

        impl $name {
            /// Pooling with a square window and a stride of the same size.
            pub fn new(window: usize) -> $name {
                $name { window, stride: window, padding: Padding::Valid }
            }

            /// Sets the stride in both dimensions.
            #[must_use]
            pub fn stride(self, stride: usize) -> $name {
                $name { stride, ..self }
            }

            /// Sets the padding.
            #[must_use]
            pub fn padding(self, padding: Padding) -> $name {
                $name { padding, ..self }
            }
        }

        impl Layer for $name {
            fn build(&self, model: &Model, x: &Output<Any>) -> Output<f32> {
                let (window, stride) = (self.window as i64, self.stride as i64);
                let node = NewOp::new(model, $op).input(&x.typed::<f32>());
                let node = node.attr("ksize", &[1, window, window, 1][..]);
                let node = node.attr("strides", &[1, stride, stride, 1][..]);
                node.attr("padding", self.padding.name()).output()
            }
        }
    };
}

pool!(
    /// Max pooling of images.
    MaxPool2d,
    "MaxPool"
);
pool!(
    /// Average pooling of images.
    AveragePool2d,
    "AvgPool"
);

/// Global average pooling: the mean of each channel over height and width.
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalAveragePool2d;

impl Layer for GlobalAveragePool2d {
    fn build(&self, _: &Model, x: &Output<Any>) -> Output<f32> {
        x.typed::<f32>().mean_axes([1, 2])
    }
}

/// Global max pooling: the maximum of each channel over height and width.
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalMaxPool2d;

impl Layer for GlobalMaxPool2d {
    fn build(&self, _: &Model, x: &Output<Any>) -> Output<f32> {
        x.typed::<f32>().max_axes([1, 2])
    }
}
