//! What gradient functions of several families share.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::Result;

/// The conjugate of a complex tensor; a real one as it is.
pub(crate) fn conj(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    if g.dtype(x).is_complex() { g.add("Conj", &[x]) } else { Ok(x) }
}

/// Sets the adjoints of two inputs that were broadcast against each other: each is summed over the
/// dimensions along which its input was repeated.
pub(crate) fn set_broadcast(
    g: &mut GradientContext<'_>,
    (i, of_i): (usize, Option<Output>),
    (j, of_j): (usize, Option<Output>),
) -> Result<()> {
    let (x, y) = (g.input(i), g.input(j));
    let (shape_x, shape_y) = (g.shape(x), g.shape(y));
    let are_equal = shape_x.to_shape().is_some() && shape_x == shape_y;
    if are_equal {
        for (k, adjoint) in [(i, of_i), (j, of_j)] {
            if let Some(adjoint) = adjoint {
                g.set(k, adjoint)?;
            }
        }
        return Ok(());
    }
    let shapes = [g.shape_of(x)?, g.shape_of(y)?];
    let axes = g.op("BroadcastGradientArgs").inputs(&shapes).build_all()?;
    for ((k, adjoint), (axes, shape)) in
        [(i, of_i), (j, of_j)].into_iter().zip(axes.into_iter().zip(shapes))
    {
        if let Some(adjoint) = adjoint {
            let summed = g.add("Sum", &[adjoint, axes])?;
            let reshaped = g.add("Reshape", &[summed, shape])?;
            g.set(k, reshaped)?;
        }
    }
    Ok(())
}
