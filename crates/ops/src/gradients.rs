//! Helpers of gradient functions.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{PartialShape, Result};

/// Arithmetic on tensors in gradient functions.
pub(crate) trait Arithmetic {
    /// x + y.
    fn plus(&mut self, x: Output, y: Output) -> Result<Output>;
    /// x - y.
    fn minus(&mut self, x: Output, y: Output) -> Result<Output>;
    /// x y.
    fn times(&mut self, x: Output, y: Output) -> Result<Output>;
    /// x / y.
    fn over(&mut self, x: Output, y: Output) -> Result<Output>;
    /// -x.
    fn negated(&mut self, x: Output) -> Result<Output>;
    /// x².
    fn squared(&mut self, x: Output) -> Result<Output>;
    /// 1 / x.
    fn reciprocal(&mut self, x: Output) -> Result<Output>;
    /// x times a number.
    fn scaled(&mut self, x: Output, by: f64) -> Result<Output>;
    /// x plus a number.
    fn shifted(&mut self, x: Output, by: f64) -> Result<Output>;
    /// A number minus x.
    fn number_minus(&mut self, number: f64, x: Output) -> Result<Output>;
    /// `x` where the condition holds, else `y`; all broadcast.
    fn select(&mut self, condition: Output, x: Output, y: Output) -> Result<Output>;
    /// The sum over `axes`, each of which stays with size 1.
    fn sum_kept(&mut self, x: Output, axes: Output) -> Result<Output>;
}

impl Arithmetic for GradientContext<'_> {
    fn plus(&mut self, x: Output, y: Output) -> Result<Output> {
        self.add("AddV2", &[x, y])
    }

    fn minus(&mut self, x: Output, y: Output) -> Result<Output> {
        self.add("Sub", &[x, y])
    }

    fn times(&mut self, x: Output, y: Output) -> Result<Output> {
        self.add("Mul", &[x, y])
    }

    fn over(&mut self, x: Output, y: Output) -> Result<Output> {
        self.add("RealDiv", &[x, y])
    }

    fn negated(&mut self, x: Output) -> Result<Output> {
        self.add("Neg", &[x])
    }

    fn squared(&mut self, x: Output) -> Result<Output> {
        self.add("Square", &[x])
    }

    fn reciprocal(&mut self, x: Output) -> Result<Output> {
        self.add("Reciprocal", &[x])
    }

    fn scaled(&mut self, x: Output, by: f64) -> Result<Output> {
        let by = self.number_like(x, by)?;
        self.times(x, by)
    }

    fn shifted(&mut self, x: Output, by: f64) -> Result<Output> {
        let by = self.number_like(x, by)?;
        self.plus(x, by)
    }

    fn number_minus(&mut self, number: f64, x: Output) -> Result<Output> {
        let number = self.number_like(x, number)?;
        self.minus(number, x)
    }

    fn select(&mut self, condition: Output, x: Output, y: Output) -> Result<Output> {
        self.add("SelectV2", &[condition, x, y])
    }

    fn sum_kept(&mut self, x: Output, axes: Output) -> Result<Output> {
        self.op("Sum").inputs(&[x, axes]).attr("keep_dims", true).build()
    }
}

/// The conjugate of a complex tensor; a real tensor is returned unchanged.
pub(crate) fn conj(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    if g.dtype(x).is_complex() { g.add("Conj", &[x]) } else { Ok(x) }
}

/// The gradient of `y = f(x)` from the derivative at `x`. A complex `x` is passed conjugated: the
/// derivative of an analytic function at the conjugate is the derivative's conjugate.
pub(crate) fn chain_input(
    g: &mut GradientContext<'_>,
    slope: impl FnOnce(&mut GradientContext<'_>, Output) -> Result<Output>,
) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let x = conj(g, x)?;
    let slope = slope(g, x)?;
    let adjoint = g.times(grad, slope)?;
    g.set(0, adjoint)
}

/// As [`chain_input`], from the derivative in terms of the result `y`.
pub(crate) fn chain_output(
    g: &mut GradientContext<'_>,
    slope: impl FnOnce(&mut GradientContext<'_>, Output) -> Result<Output>,
) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let y = conj(g, y)?;
    let slope = slope(g, y)?;
    let adjoint = g.times(grad, slope)?;
    g.set(0, adjoint)
}

/// Sets the adjoints of two inputs that were broadcast against each other: each is summed over the
/// dimensions along which its input was broadcast.
pub(crate) fn set_broadcast(
    g: &mut GradientContext<'_>,
    (i, of_i): (usize, Option<Output>),
    (j, of_j): (usize, Option<Output>),
) -> Result<()> {
    let (x, y) = (g.input(i), g.input(j));
    let axes =
        repeated_axes(g, [&g.shape(x), &g.shape(y)], |g| Ok([g.shape_of(x)?, g.shape_of(y)?]))?;
    for ((k, adjoint), axes) in [(i, of_i), (j, of_j)].into_iter().zip(axes) {
        if let Some(adjoint) = adjoint {
            let summed = sum_to_shape(g, adjoint, axes, g.input(k))?;
            g.set(k, summed)?;
        }
    }
    Ok(())
}

/// Sets the adjoint of an input that was broadcast to the shape of `adjoint`.
pub(crate) fn set_repeated(g: &mut GradientContext<'_>, i: usize, adjoint: Output) -> Result<()> {
    let x = g.input(i);
    let [axes, _] = repeated_axes(g, [&g.shape(x), &g.shape(adjoint)], |g| {
        Ok([g.shape_of(x)?, g.shape_of(adjoint)?])
    })?;
    let summed = sum_to_shape(g, adjoint, axes, x)?;
    g.set(i, summed)
}

/// The axes over which to sum a tensor of the broadcast shape to get each input's shape; `None` if
/// it is that shape already. `vectors` returns both shapes at run time if they are not known.
pub(crate) fn repeated_axes(
    g: &mut GradientContext<'_>,
    shapes: [&PartialShape; 2],
    vectors: impl FnOnce(&mut GradientContext<'_>) -> Result<[Output; 2]>,
) -> Result<[Option<Output>; 2]> {
    let Some(known) = known_repeated_axes(shapes) else {
        let vectors = vectors(g)?;
        let axes = g.op("BroadcastGradientArgs").inputs(&vectors).build_all()?;
        return Ok([Some(axes[0]), Some(axes[1])]);
    };
    let mut axes = [None, None];
    for (axes, known) in axes.iter_mut().zip(known) {
        if !known.is_empty() {
            *axes = Some(g.ints(&known)?);
        }
    }
    Ok(axes)
}

/// Sums over the axes, if any, and reshapes to the shape of `like`.
pub(crate) fn sum_to_shape(
    g: &mut GradientContext<'_>,
    adjoint: Output,
    axes: Option<Output>,
    like: Output,
) -> Result<Output> {
    let Some(axes) = axes else { return Ok(adjoint) };
    let (summed, shape) = (g.add("Sum", &[adjoint, axes])?, g.shape_of(like)?);
    g.add("Reshape", &[summed, shape])
}

/// Axes along which each of two tensors is broadcast, if the shapes are sufficiently known.
fn known_repeated_axes([x, y]: [&PartialShape; 2]) -> Option<[Vec<i32>; 2]> {
    let (x, y) = (x.dims()?, y.dims()?);
    let rank = x.len().max(y.len());
    let size = |dims: &[Option<usize>], axis: usize| match (axis + dims.len()).checked_sub(rank) {
        Some(at) => dims[at],
        None => Some(1),
    };
    let mut axes = [Vec::new(), Vec::new()];
    for axis in 0..rank {
        let is_missing = |dims: &[Option<usize>]| axis + dims.len() < rank;
        match (size(x, axis), size(y, axis)) {
            (Some(1), Some(1)) => {
                // Size 1 in both, but the dimension is missing in one of them and must be removed
                // there.
                (0..2).filter(|&k| is_missing([x, y][k])).for_each(|k| axes[k].push(axis as i32));
            }
            (Some(1), _) => axes[0].push(axis as i32),
            (_, Some(1)) => axes[1].push(axis as i32),
            (Some(_), Some(_)) => {}
            _ => return None,
        }
    }
    Some(axes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_axes_as_far_as_known() {
        let axes = |x: &[Option<usize>], y: &[Option<usize>]| {
            let shapes = [x, y].map(|dims| PartialShape::new(dims.iter().copied()));
            known_repeated_axes([&shapes[0], &shapes[1]])
        };
        assert_eq!(axes(&[Some(2), Some(3)], &[Some(3)]), Some([vec![], vec![0]]));
        assert_eq!(axes(&[Some(2), Some(1)], &[Some(1), Some(3)]), Some([vec![1], vec![0]]));
        assert_eq!(axes(&[Some(1)], &[]), Some([vec![], vec![0]]));
        // Summing over a dimension of size 1 is harmless.
        assert_eq!(axes(&[None], &[Some(1)]), Some([vec![], vec![0]]));
        assert_eq!(axes(&[None], &[Some(3)]), None);
        assert_eq!(known_repeated_axes([&PartialShape::unknown(), &PartialShape::scalar()]), None);
    }
}
