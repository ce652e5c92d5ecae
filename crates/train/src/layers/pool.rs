//! 2-D pooling.

use thalweg_graph::Output;
use thalweg_tensor::Result;

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
            fn apply(&self, model: &mut Model, x: Output) -> Result<Output> {
                let (window, stride) = (self.window as i64, self.stride as i64);
                let node = model.op($op).input(x).attr("ksize", &[1, window, window, 1][..]);
                let node = node.attr("strides", &[1, stride, stride, 1][..]);
                node.attr("padding", self.padding.name()).build()
            }
        }
    };
}

pool!(
    /// Max pooling.
    MaxPool,
    "MaxPool"
);
pool!(
    /// Average pooling.
    AveragePool,
    "AvgPool"
);

/// Global average pooling: the mean of each channel over height and width.
pub fn global_average_pool(model: &mut Model, x: Output) -> Result<Output> {
    let axes = model.ints(&[1, 2])?;
    model.add("Mean", &[x, axes])
}
