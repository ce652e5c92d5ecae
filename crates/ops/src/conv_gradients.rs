//! Gradients of convolutions.
//!
//! A convolution is bilinear in images and filter, and so are its gradient ops in their inputs: the
//! gradient of each of the three ops consists of the other two.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::Result;

/// The three ops of one kind of convolution, and the attrs that they share.
struct Kind {
    forward: &'static str,
    to_images: &'static str,
    to_filter: &'static str,
    attrs: &'static [&'static str],
}

const TWO_DIMENSIONS: Kind = Kind {
    forward: "Conv2D",
    to_images: "Conv2DBackpropInput",
    to_filter: "Conv2DBackpropFilter",
    attrs: &[
        "strides",
        "use_cudnn_on_gpu",
        "padding",
        "explicit_paddings",
        "data_format",
        "dilations",
    ],
};

const THREE_DIMENSIONS: Kind = Kind {
    forward: "Conv3D",
    to_images: "Conv3DBackpropInputV2",
    to_filter: "Conv3DBackpropFilterV2",
    attrs: &["strides", "padding", "data_format", "dilations"],
};

const DEPTHWISE: Kind = Kind {
    forward: "DepthwiseConv2dNative",
    to_images: "DepthwiseConv2dNativeBackpropInput",
    to_filter: "DepthwiseConv2dNativeBackpropFilter",
    attrs: &["strides", "padding", "explicit_paddings", "data_format", "dilations"],
};

impl Kind {
    fn convolved(
        &self,
        g: &mut GradientContext<'_>,
        images: Output,
        filter: Output,
    ) -> Result<Output> {
        g.op_like(self.forward, self.attrs).inputs(&[images, filter]).build()
    }

    fn of_images(
        &self,
        g: &mut GradientContext<'_>,
        images: Output,
        filter: Output,
        dy: Output,
    ) -> Result<Output> {
        let sizes = g.shape_of(images)?;
        g.op_like(self.to_images, self.attrs).inputs(&[sizes, filter, dy]).build()
    }

    fn of_filter(
        &self,
        g: &mut GradientContext<'_>,
        images: Output,
        filter: Output,
        dy: Output,
    ) -> Result<Output> {
        let sizes = g.shape_of(filter)?;
        g.op_like(self.to_filter, self.attrs).inputs(&[images, sizes, dy]).build()
    }

    /// Gradient of `forward(images, filter)`.
    fn forward_grad(&self, g: &mut GradientContext<'_>) -> Result<()> {
        let (grad, images, filter) = (g.grad(0)?, g.input(0), g.input(1));
        let adjoint = self.of_images(g, images, filter, grad)?;
        g.set(0, adjoint)?;
        let adjoint = self.of_filter(g, images, filter, grad)?;
        g.set(1, adjoint)
    }

    /// Gradient of `to_images(sizes, filter, dy)`.
    fn to_images_grad(&self, g: &mut GradientContext<'_>) -> Result<()> {
        let (grad, filter, dy) = (g.grad(0)?, g.input(1), g.input(2));
        let adjoint = self.of_filter(g, grad, filter, dy)?;
        g.set(1, adjoint)?;
        let adjoint = self.convolved(g, grad, filter)?;
        g.set(2, adjoint)
    }

    /// Gradient of `to_filter(images, sizes, dy)`.
    fn to_filter_grad(&self, g: &mut GradientContext<'_>) -> Result<()> {
        let (grad, images, dy) = (g.grad(0)?, g.input(0), g.input(2));
        let adjoint = self.of_images(g, images, grad, dy)?;
        g.set(0, adjoint)?;
        let adjoint = self.convolved(g, images, grad)?;
        g.set(2, adjoint)
    }
}

/// Gradient of `Conv2D`.
pub(crate) fn conv_2d(g: &mut GradientContext<'_>) -> Result<()> {
    TWO_DIMENSIONS.forward_grad(g)
}

/// Gradient of `Conv2DBackpropInput`.
pub(crate) fn conv_2d_to_images(g: &mut GradientContext<'_>) -> Result<()> {
    TWO_DIMENSIONS.to_images_grad(g)
}

/// Gradient of `Conv2DBackpropFilter`.
pub(crate) fn conv_2d_to_filter(g: &mut GradientContext<'_>) -> Result<()> {
    TWO_DIMENSIONS.to_filter_grad(g)
}

/// Gradient of `Conv3D`.
pub(crate) fn conv_3d(g: &mut GradientContext<'_>) -> Result<()> {
    THREE_DIMENSIONS.forward_grad(g)
}

/// Gradient of `Conv3DBackpropInputV2`.
pub(crate) fn conv_3d_to_images(g: &mut GradientContext<'_>) -> Result<()> {
    THREE_DIMENSIONS.to_images_grad(g)
}

/// Gradient of `Conv3DBackpropFilterV2`.
pub(crate) fn conv_3d_to_filter(g: &mut GradientContext<'_>) -> Result<()> {
    THREE_DIMENSIONS.to_filter_grad(g)
}

/// Gradient of `DepthwiseConv2dNative`.
pub(crate) fn depthwise(g: &mut GradientContext<'_>) -> Result<()> {
    DEPTHWISE.forward_grad(g)
}

/// Gradient of `DepthwiseConv2dNativeBackpropInput`.
pub(crate) fn depthwise_to_images(g: &mut GradientContext<'_>) -> Result<()> {
    DEPTHWISE.to_images_grad(g)
}

/// Gradient of `DepthwiseConv2dNativeBackpropFilter`.
pub(crate) fn depthwise_to_filter(g: &mut GradientContext<'_>) -> Result<()> {
    DEPTHWISE.to_filter_grad(g)
}
