//! Sparse tensors in coordinate (COO) format: indices, values, dense shape.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, ensure};

use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::split::for_each_rows;

/// The coordinates of a sparse tensor's values, one row each, and the sizes of its dense shape.
/// Bounds are checked on request only.
#[derive(Clone, Copy)]
pub(crate) struct Coordinates<'a> {
    /// All rows, concatenated.
    pub(crate) all: &'a [i64],
    /// Number of rows.
    pub(crate) count: usize,
    /// Length of a row.
    pub(crate) rank: usize,
    /// Sizes of the dense shape; empty if unknown.
    pub(crate) sizes: &'a [i64],
}

impl<'a> Coordinates<'a> {
    /// The coordinates in the matrix `name`, without sizes.
    pub(crate) fn of_matrix(indices: &'a Tensor, name: &str) -> Result<Coordinates<'a>> {
        let &[count, rank] = &indices.shape()[..] else {
            return Err(thalweg_tensor::err!(
                InvalidArgument,
                "{name} should be a matrix but received shape {}",
                indices.shape()
            ));
        };
        Ok(Coordinates { all: indices.as_slice()?, count, rank, sizes: &[] })
    }

    /// The coordinates of a sparse tensor with indices, values and shape of compatible sizes.
    pub(crate) fn of(
        indices: &'a Tensor,
        values: &Tensor,
        shape: &'a Tensor,
    ) -> Result<Coordinates<'a>> {
        let mut found = Self::of_matrix(indices, "indices")?;
        ensure!(
            values.rank() == 1,
            InvalidArgument,
            "values should be a vector but received shape {}",
            values.shape()
        );
        ensure!(
            shape.rank() == 1,
            InvalidArgument,
            "the dense shape should be a vector but received shape {}",
            shape.shape()
        );
        ensure!(
            found.count == values.num_elements(),
            InvalidArgument,
            "there are {} rows of indices but {} values",
            found.count,
            values.num_elements()
        );
        ensure!(
            found.rank == shape.num_elements(),
            InvalidArgument,
            "indices have {} columns, but the dense shape has {} elements",
            found.rank,
            shape.num_elements()
        );
        found.sizes = shape.as_slice()?;
        Ok(found)
    }

    /// As [`Coordinates::of`], of the inputs `first`, `first + 1` and `first + 2`.
    pub(crate) fn of_inputs(ctx: &'a KernelContext<'_>, first: usize) -> Result<Coordinates<'a>> {
        Self::of(ctx.input(first)?, ctx.input(first + 1)?, ctx.input(first + 2)?)
    }

    /// Row `i`.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> &'a [i64] {
        &self.all[i * self.rank..(i + 1) * self.rank]
    }

    /// The dense shape, if it is valid.
    pub(crate) fn shape(&self) -> Result<Shape> {
        Shape::from_i64(self.sizes)
    }

    /// Checks that all coordinates are within the dense shape.
    pub(crate) fn check_bounds(&self) -> Result<()> {
        for i in 0..self.count {
            self.check_row(i)?;
        }
        Ok(())
    }

    /// Checks that row `i` is within the dense shape.
    #[inline]
    pub(crate) fn check_row(&self, i: usize) -> Result<()> {
        let row = self.row(i);
        let is_inside = row.iter().zip(self.sizes).all(|(x, size)| (0..*size).contains(x));
        ensure!(
            is_inside,
            InvalidArgument,
            "indices[{i}] = {row:?} is out of bounds: need 0 <= index < {:?}",
            self.sizes
        );
        Ok(())
    }

    /// Checks that all coordinates are within the dense shape, distinct, and in row-major order.
    pub(crate) fn check_sorted(&self) -> Result<()> {
        for i in 0..self.count {
            self.check_row(i)?;
            if i == 0 {
                continue;
            }
            let (before, row) = (self.row(i - 1), self.row(i));
            ensure!(before != row, InvalidArgument, "indices[{i}] = {row:?} is repeated");
            ensure!(
                before < row,
                InvalidArgument,
                "indices[{i}] = {row:?} is out of order. Many sparse ops require sorted indices; \
                 SparseReorder creates a correctly ordered copy."
            );
        }
        Ok(())
    }

    /// Indices of the rows sorted in row-major order (stable).
    pub(crate) fn order(&self, ctx: &KernelContext<'_>) -> Result<Tensor> {
        self.order_by(ctx, |a, b| self.row(a).cmp(self.row(b)))
    }

    /// Indices of the rows sorted by `compare`.
    pub(crate) fn order_by(
        &self,
        ctx: &KernelContext<'_>,
        compare: impl Fn(usize, usize) -> std::cmp::Ordering,
    ) -> Result<Tensor> {
        let mut order = ctx.allocate(DType::Int64, Shape::new(&[self.count])?)?;
        let positions = order.as_mut_slice::<i64>()?;
        positions.iter_mut().enumerate().for_each(|(i, p)| *p = i as i64);
        if !positions.is_sorted_by(|&a, &b| compare(a as usize, b as usize).is_le()) {
            positions.sort_unstable_by(|&a, &b| compare(a as usize, b as usize).then(a.cmp(&b)));
        }
        Ok(order)
    }
}

/// Sets all outputs, in order.
pub(crate) fn set_outputs(
    ctx: &mut KernelContext<'_>,
    outputs: impl IntoIterator<Item = Tensor>,
) -> Result<()> {
    for (i, output) in outputs.into_iter().enumerate() {
        ctx.set_output(i, output)?;
    }
    Ok(())
}

/// Uninitialized memory for `count` rows of coordinates.
pub(crate) fn matrix(ctx: &KernelContext<'_>, count: usize, rank: usize) -> Result<Tensor> {
    ctx.allocate(DType::Int64, Shape::new(&[count, rank])?)
}

/// The elements of `values` at these indices, which must be in bounds.
pub(crate) fn take(ctx: &KernelContext<'_>, values: &Tensor, positions: &[i64]) -> Result<Tensor> {
    let mut output = blank(ctx, values.dtype(), Shape::new(&[positions.len()])?)?;
    with_cell!(values.dtype(), C => {
        let (from, to) = (C::view(values)?, C::view_mut(&mut output)?);
        for_each_rows(ctx, to, 1, 1.0 + nanoseconds_per_cell::<C>(), |first, part| {
            for (t, &position) in part.iter_mut().zip(&positions[first..]) {
                t.clone_from(&from[position as usize]);
            }
        })?;
    });
    Ok(output)
}

/// The rows of coordinates at these indices, which must be in bounds.
pub(crate) fn take_rows(
    ctx: &KernelContext<'_>,
    from: Coordinates<'_>,
    positions: &[i64],
) -> Result<Tensor> {
    let mut output = matrix(ctx, positions.len(), from.rank)?;
    for_each_rows(ctx, output.as_mut_slice::<i64>()?, from.rank, 3.0, |first, part| {
        for (row, &position) in part.chunks_exact_mut(from.rank).zip(&positions[first..]) {
            row.copy_from_slice(from.row(position as usize));
        }
    })?;
    Ok(output)
}

/// Strides of a valid dense shape, as signed numbers.
pub(crate) fn strides(sizes: &[i64]) -> SmallVec<[i64; 6]> {
    let mut strides: SmallVec<[i64; 6]> = smallvec::smallvec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i].wrapping_mul(sizes[i]);
    }
    strides
}

/// The shapes of a sparse tensor's three parts, as outputs `first..first + 3`.
pub(crate) fn set_sparse_outputs(
    c: &mut ShapeContext<'_>,
    first: usize,
    count: Option<usize>,
    rank: Option<usize>,
) {
    c.set_output(first, PartialShape::new([count, rank]));
    c.set_output(first + 1, PartialShape::new([count]));
    c.set_output(first + 2, PartialShape::new([rank]));
}

/// Checks the shapes of a sparse tensor's parts in inputs `first..first + 3`; returns the number of
/// values and the rank, as far as known.
pub(crate) fn sparse_input_shapes(
    c: &ShapeContext<'_>,
    first: usize,
) -> Result<(Option<usize>, Option<usize>)> {
    let indices = c.with_rank(first, "indices", 2)?;
    let values = c.with_rank(first + 1, "values", 1)?;
    let shape = c.with_rank(first + 2, "the dense shape", 1)?;
    let count = PartialShape::new([indices.dim(0)]).merge(&values)?;
    let rank = PartialShape::new([indices.dim(1)]).merge(&shape)?;
    Ok((count.dim(0), rank.dim(0)))
}
