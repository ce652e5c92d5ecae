//! Gradients of shape ops.

use thalweg_graph::GradientContext;
use thalweg_tensor::Result;

use crate::gradient_shapes::reshaped_like;
use crate::gradients::set_repeated;

/// Gradient of `Reshape`, `ExpandDims` and `Squeeze`: the adjoint in the input's shape.
pub(crate) fn reshape(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let adjoint = reshaped_like(g, grad, x)?;
    g.set(0, adjoint)
}

/// Gradient of `BroadcastTo`: the sum over the copies of each element.
pub(crate) fn broadcast_to(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    set_repeated(g, 0, grad)
}
