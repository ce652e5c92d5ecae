//! Batches of matrices: sizes, parallel loops, scratch memory.

use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Element, Error, Result, Shape, Tensor, ensure, err};

use crate::math::factor::scalar::Scalar;
use crate::split::Disjoint;

/// Element types of dense decompositions.
pub(crate) trait Dense: Element + Scalar<Real: Element> {}

impl<T: Element + Scalar<Real: Element>> Dense for T {}

/// The sizes of a batch of matrices, in the last two dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The batch dimensions.
    pub(crate) dims: SmallVec<[usize; 4]>,
    /// Number of matrices.
    pub(crate) count: usize,
    /// Rows per matrix.
    pub(crate) rows: usize,
    /// Columns per matrix.
    pub(crate) columns: usize,
}

impl Batch {
    /// The sizes of input `i`.
    pub(crate) fn of(ctx: &KernelContext<'_>, i: usize) -> Result<Batch> {
        let shape = ctx.input(i)?.shape();
        let [dims @ .., rows, columns] = shape.dims() else {
            thalweg_tensor::bail!(
                InvalidArgument,
                "Input tensor {i} must have rank >= 2, got {}",
                shape.rank()
            );
        };
        let dims = SmallVec::from_slice(dims);
        Ok(Batch { count: dims.iter().product(), dims, rows: *rows, columns: *columns })
    }

    /// The sizes of input `i`, whose matrices must be square.
    pub(crate) fn square(ctx: &KernelContext<'_>, i: usize) -> Result<Batch> {
        let batch = Batch::of(ctx, i)?;
        ensure!(
            batch.rows == batch.columns,
            InvalidArgument,
            "Input matrix must be square, got {} by {}",
            batch.rows,
            batch.columns
        );
        Ok(batch)
    }

    /// Checks that input `i` has the same batch dimensions.
    pub(crate) fn check_same(&self, other: &Batch, i: usize) -> Result<()> {
        ensure!(
            self.dims.len() == other.dims.len(),
            InvalidArgument,
            "All input tensors must have the same rank, but input {i} has {} batch dimensions \
                instead of {}",
            other.dims.len(),
            self.dims.len()
        );
        ensure!(
            self.dims == other.dims,
            InvalidArgument,
            "All input tensors must have the same outer dimensions, but input {i} has {:?} instead \
                of {:?}",
            other.dims,
            self.dims
        );
        Ok(())
    }

    /// Elements per matrix.
    pub(crate) fn each(&self) -> usize {
        self.rows * self.columns
    }

    /// The batch dimensions followed by `last`.
    pub(crate) fn shape(&self, last: &[usize]) -> Result<Shape> {
        let dims: SmallVec<[usize; 6]> = self.dims.iter().chain(last).copied().collect();
        Shape::new(&dims)
    }
}

/// An output divided into one equal part per matrix.
pub(crate) struct Parts<'a, T> {
    data: Disjoint<'a, T>,
    each: usize,
}

impl<'a, T> Parts<'a, T> {
    /// Parts of `each` elements.
    pub(crate) fn new(data: &'a mut [T], each: usize) -> Self {
        Parts { data: Disjoint::new(data), each }
    }

    /// Empty parts, for loops with fewer outputs.
    pub(crate) fn none() -> Self {
        Parts::new(&mut [], 0)
    }
}

/// Calls `body` for each of `count` matrices with its parts of the outputs, in parallel if that
/// pays. If several fail, the error of the first matrix is returned.
pub(crate) fn for_each_matrix<A: Send, B: Send, C: Send>(
    ctx: &KernelContext<'_>,
    (count, nanoseconds): (usize, f64),
    outputs: (Parts<'_, A>, Parts<'_, B>, Parts<'_, C>),
    body: impl Fn(usize, &mut [A], &mut [B], &mut [C]) -> Result<()> + Sync,
) -> Result<()> {
    let (a, b, c) = outputs;
    ensure!(
        [(a.data.len(), a.each), (b.data.len(), b.each), (c.data.len(), c.each)]
            .iter()
            .all(|&(len, each)| each.checked_mul(count).is_some_and(|needed| needed <= len)),
        Internal,
        "the outputs are too small for {count} matrices"
    );
    let failure: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    ctx.parallel_for(count, nanoseconds + 50.0, |range| {
        for index in range {
            // SAFETY: `parallel_for` hands out each index once, and the parts of different indices
            // do not overlap.
            let (a, b, c) = unsafe {
                (
                    a.data.part(index * a.each..(index + 1) * a.each),
                    b.data.part(index * b.each..(index + 1) * b.each),
                    c.data.part(index * c.each..(index + 1) * c.each),
                )
            };
            if let Err(error) = body(index, a, b, c) {
                let mut failure = failure.lock();
                if failure.as_ref().is_none_or(|(first, _)| index < *first) {
                    *failure = Some((index, error));
                }
            }
        }
    })?;
    failure.into_inner().map_or(Ok(()), |(_, error)| Err(error))
}

/// Scratch of `len` elements, charged to the session; contents are unspecified.
pub(crate) fn scratch<T: Element>(ctx: &KernelContext<'_>, len: usize) -> Result<Tensor> {
    ctx.allocate(T::DTYPE, Shape::new(&[len])?)
}

/// A buffer for `len` indices.
pub(crate) fn positions(len: usize) -> Result<Vec<usize>> {
    let mut positions = Vec::new();
    positions
        .try_reserve_exact(len)
        .map_err(|_| err!(ResourceExhausted, "out of memory for {len} positions"))?;
    positions.resize(len, 0);
    Ok(positions)
}

/// The output in place of one that was not requested: a scalar zero.
pub(crate) fn unrequested_output(ctx: &KernelContext<'_>, dtype: DType) -> Result<Tensor> {
    ctx.zeros(dtype, Shape::scalar())
}

/// Nanoseconds for as many multiply-adds as the product of these. The sizes of an empty batch may
/// be of any magnitude, so the product is computed in floating point.
pub(crate) fn cost(factors: &[usize]) -> f64 {
    factors.iter().fold(0.5, |product, &factor| product * factor as f64)
}
