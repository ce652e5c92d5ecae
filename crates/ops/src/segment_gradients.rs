//! Gradients of segment sums, products and extrema.

use thalweg_graph::{GradientContext, IndexedSlices, Output};
use thalweg_tensor::{DType, Result};

use crate::gradient_shapes::{as_leading, first_size};

/// Segment ids of the differentiated op.
struct Segments {
    /// The segment of each row; rows with negative ids belong to no segment.
    ids: Output,
    /// `num_segments`, for unsorted ids only, which may be negative.
    count: Option<Output>,
    /// The ids, with 0 for negative ones, and whether they were non-negative.
    clipped: Option<[Output; 2]>,
}

impl Segments {
    fn new(g: &mut GradientContext<'_>) -> Result<Segments> {
        let (ids, count) = (g.input(1), (g.num_inputs() > 2).then(|| g.input(2)));
        let mut clipped = None;
        if count.is_some() {
            let zero = g.number_like(ids, 0.0)?;
            clipped = Some([g.add("Maximum", &[ids, zero])?, g.add("GreaterEqual", &[ids, zero])?]);
        }
        Ok(Segments { ids, count, clipped })
    }

    fn sum(&self, g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
        match self.count {
            Some(count) => g.add("UnsortedSegmentSum", &[x, self.ids, count]),
            None => g.add("SegmentSum", &[x, self.ids]),
        }
    }

    fn product(&self, g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
        match self.count {
            Some(count) => g.add("UnsortedSegmentProd", &[x, self.ids, count]),
            None => g.add("SegmentProd", &[x, self.ids]),
        }
    }

    /// The entry of each row's segment; unspecified for rows without a segment.
    fn gather_any(&self, g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
        let axis = g.int(0)?;
        let ids = self.clipped.map_or(self.ids, |[ids, _]| ids);
        g.add("GatherV2", &[x, ids, axis])
    }

    /// The entry of each row's segment; zeros for rows without a segment.
    fn gather(&self, g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
        let gathered = self.gather_any(g, x)?;
        let Some([_, has_segment]) = self.clipped else { return Ok(gathered) };
        let has_segment = as_leading(g, has_segment, gathered)?;
        let zeros = g.add("ZerosLike", &[gathered])?;
        g.add("SelectV2", &[has_segment, gathered, zeros])
    }
}

/// Counts as divisors, at least one: an unused quotient of an empty segment would otherwise have a
/// NaN derivative.
fn at_least_one(g: &mut GradientContext<'_>, counts: Output) -> Result<Output> {
    let (zero, one) = (g.number_like(counts, 0.0)?, g.number_like(counts, 1.0)?);
    let is_empty = g.add("Equal", &[counts, zero])?;
    g.add("SelectV2", &[is_empty, one, counts])
}

/// Gradient of `SegmentSum` and `UnsortedSegmentSum`.
pub(crate) fn sum(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, segments) = (g.grad(0)?, Segments::new(g)?);
    let adjoint = segments.gather(g, grad)?;
    g.set(0, adjoint)
}

/// Gradient of `SegmentMean`.
pub(crate) fn mean(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, segments) = (g.grad(0)?, Segments::new(g)?);
    let (shape, one) = (g.shape_of(segments.ids)?, g.number_like(grad, 1.0)?);
    let ones = g.add("Fill", &[shape, one])?;
    let rows = segments.sum(g, ones)?;
    let rows = at_least_one(g, rows)?;
    let rows = as_leading(g, rows, grad)?;
    let share = g.add("RealDiv", &[grad, rows])?;
    let adjoint = segments.gather(g, share)?;
    g.set(0, adjoint)
}

/// Gradient of minimum and maximum: the elements that equal the result share its adjoint.
pub(crate) fn extremum(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, data, segments) = (g.grad(0)?, g.input(0), Segments::new(g)?);
    let best = segments.gather_any(g, g.output(0))?;
    let is_best = g.add("Equal", &[data, best])?;
    let ones = g.cast(is_best, g.dtype(grad))?;
    let count = segments.sum(g, ones)?;
    let count = at_least_one(g, count)?;
    let share = g.add("RealDiv", &[grad, count])?;
    let share = segments.gather(g, share)?;
    let zeros = g.add("ZerosLike", &[share])?;
    let adjoint = g.add("SelectV2", &[is_best, share, zeros])?;
    g.set(0, adjoint)
}

/// Gradient of `SegmentProd` and `UnsortedSegmentProd`. The derivative with respect to an element
/// is the product of the others: the segment's product divided by the element, unless it is zero;
/// then, if it is the segment's only zero, the product of all nonzero elements.
pub(crate) fn product(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, data, segments) = (g.grad(0)?, g.input(0), Segments::new(g)?);
    let (zero, one) = (g.number_like(data, 0.0)?, g.number_like(data, 1.0)?);
    let is_zero = g.add("Equal", &[data, zero])?;
    let counted = g.cast(is_zero, DType::Int32)?;
    let (zeros, single) = (segments.sum(g, counted)?, g.int(1)?);
    let has_two = g.add("Greater", &[zeros, single])?;
    let nothing = g.add("ZerosLike", &[grad])?;
    let grad = g.add("SelectV2", &[has_two, nothing, grad])?;
    let without_zeros = g.add("SelectV2", &[is_zero, one, data])?;
    let of_nonzero = segments.product(g, without_zeros)?;
    let of_nonzero = segments.gather_any(g, of_nonzero)?;
    let whole = segments.gather_any(g, g.output(0))?;
    let divided = g.add("RealDiv", &[whole, without_zeros])?;
    let slope = g.add("SelectV2", &[is_zero, of_nonzero, divided])?;
    let grad = segments.gather(g, grad)?;
    let adjoint = g.add("Mul", &[grad, slope])?;
    g.set(0, adjoint)
}

/// Gradient of `SparseSegmentSum` and `SparseSegmentSumWithNumSegments`.
pub(crate) fn sparse_sum(g: &mut GradientContext<'_>) -> Result<()> {
    sparse(g, "SparseSegmentSumGrad", "SparseSegmentSumGradV2")
}

/// Gradient of `SparseSegmentMean` and `SparseSegmentMeanWithNumSegments`.
pub(crate) fn sparse_mean(g: &mut GradientContext<'_>) -> Result<()> {
    sparse(g, "SparseSegmentMeanGrad", "SparseSegmentMeanGradV2")
}

/// Gradient of `SparseSegmentSqrtN` and `SparseSegmentSqrtNWithNumSegments`.
pub(crate) fn sparse_sqrt_n(g: &mut GradientContext<'_>) -> Result<()> {
    sparse(g, "SparseSegmentSqrtNGrad", "SparseSegmentSqrtNGradV2")
}

/// The attr `sparse_gradient` selects a dense gradient or `IndexedSlices`.
fn sparse(g: &mut GradientContext<'_>, whole: &str, as_rows: &str) -> Result<()> {
    let (grad, data, indices, ids) = (g.grad(0)?, g.input(0), g.input(1), g.input(2));
    let inputs = [grad, indices, ids, first_size(g, data)?];
    if g.attrs().bool("sparse_gradient")? {
        let rows = g.op(as_rows).inputs(&inputs).build_all()?;
        let dense_shape = g.shape_of(data)?;
        g.set_rows(0, IndexedSlices { values: rows[0], indices: rows[1], dense_shape });
        return Ok(());
    }
    let adjoint = g.op(whole).inputs(&inputs).build()?;
    g.set(0, adjoint)
}
