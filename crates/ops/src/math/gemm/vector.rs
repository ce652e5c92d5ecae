//! GEMV: memory-bound, so the matrix is read once, in order, and never packed.

use std::ops::Range;

use super::drive::Job;
use super::element::{Number, Sealed};
use super::lanes::{Lanes, LoadAs};
use super::plan::{Shape, Split};

/// Output `i` is the sum over `p` of `matrix[i, p] * vector[p]`.
#[derive(Clone, Copy)]
pub(super) struct MatrixVector<E> {
    matrix: *const E,
    output_stride: usize,
    depth_stride: usize,
    vector: *const E,
    vector_stride: usize,
    depth: usize,
    to: *mut E,
    to_stride: usize,
    accumulate: bool,
    /// Outputs by block.
    blocks: Split,
}

// SAFETY: the factors are only read, and blocks write disjoint outputs, as `run` requires.
unsafe impl<E: Sealed> Sync for MatrixVector<E> {}

/// Which outputs a pass over the matrix produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Dot products, one output at a time: the terms of an output are contiguous.
    Dots,
    /// All outputs at once, term by term: outputs are contiguous.
    Sweep,
}

/// Outputs that a sweep accumulates on the stack.
const SWEEP_MAX: usize = 1024;
/// Minimum elements of the matrix in a block.
const BLOCK_ELEMENTS: usize = 1 << 17;

/// Whether this module computes the product.
pub(super) fn is_vector(shape: &Shape) -> bool {
    form(shape).is_some()
}

fn form(shape: &Shape) -> Option<Form> {
    let (output_stride, depth_stride, vector_stride) = match shape {
        Shape { m: 1, a_strides, b_strides, .. } => (b_strides.1, b_strides.0, a_strides.1),
        Shape { n: 1, a_strides, b_strides, .. } => (a_strides.0, a_strides.1, b_strides.0),
        _ => return None,
    };
    if depth_stride == 1 && vector_stride == 1 {
        Some(Form::Dots)
    } else {
        (output_stride == 1).then_some(Form::Sweep)
    }
}

impl<E: Sealed> MatrixVector<E> {
    /// The job as a matrix-vector product; [`is_vector`] must hold.
    pub(super) fn new(job: &Job<'_, E>) -> Self {
        let Shape { m, n, k, a_strides, b_strides } = job.shape;
        let outputs = if m == 1 { n } else { m };
        let per_block = match form(&job.shape) {
            Some(Form::Dots) => (BLOCK_ELEMENTS / k).max(4),
            _ => (BLOCK_ELEMENTS / k).clamp(SWEEP_MAX / 2, SWEEP_MAX),
        };
        let (depth, accumulate, to) = (k, job.accumulate, job.c);
        let blocks = Split::at_most(outputs, per_block);
        if m == 1 {
            Self {
                matrix: job.b,
                output_stride: b_strides.1,
                depth_stride: b_strides.0,
                vector: job.a,
                vector_stride: a_strides.1,
                to_stride: 1,
                depth,
                accumulate,
                to,
                blocks,
            }
        } else {
            Self {
                matrix: job.a,
                output_stride: a_strides.0,
                depth_stride: a_strides.1,
                vector: job.b,
                vector_stride: b_strides.0,
                to_stride: job.c_row_stride,
                depth,
                accumulate,
                to,
                blocks,
            }
        }
    }

    /// The number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.parts
    }

    /// Computes the outputs of one block.
    ///
    /// # Safety
    ///
    /// The instructions of `V` exist, and no other call with the same `block` is under way.
    pub(super) unsafe fn run<V>(&self, block: usize)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        let outputs = self.blocks.range(block);
        // SAFETY: the caller vouches for the instructions; the outputs are within the job's.
        unsafe {
            V::with_features(
                #[inline(always)]
                || {
                    if self.depth_stride == 1 && self.vector_stride == 1 {
                        let in_fours = outputs.start + outputs.len() / 4 * 4;
                        for output in (outputs.start..in_fours).step_by(4) {
                            self.dots::<V, 4>(output);
                        }
                        for output in in_fours..outputs.end {
                            self.dots::<V, 1>(output);
                        }
                    } else {
                        self.sweep::<V>(&outputs);
                    }
                },
            );
        }
    }

    /// Computes `ROWS` outputs from `output` on as dot products.
    #[inline(always)]
    unsafe fn dots<V, const ROWS: usize>(&self, output: usize)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        // SAFETY: the caller vouches for the instructions and for the outputs; terms `p` to
        // `p + V::LEN`, or to `p + rest`, exist; `V::LEN` is at most 16.
        unsafe {
            let row = |i: usize| self.matrix.add((output + i) * self.output_stride);
            // Two sums each, so that an addition does not wait for the one before.
            let mut sums = [[V::zero(); 2]; ROWS];
            let pairs = self.depth / (2 * V::LEN) * (2 * V::LEN);
            for p in (0..pairs).step_by(2 * V::LEN) {
                for j in 0..2 {
                    let p = p + j * V::LEN;
                    let x = E::load(self.vector.add(p));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        sums[j] = sums[j].plus_product(E::load(row(i).add(p)), x);
                    }
                }
            }
            for p in (pairs..self.depth).step_by(V::LEN) {
                let rest = V::LEN.min(self.depth - p);
                let x = E::load_partial(self.vector.add(p), rest);
                for (i, sums) in sums.iter_mut().enumerate() {
                    sums[0] = sums[0].plus_product(E::load_partial(row(i).add(p), rest), x);
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                let mut lanes = [V::Number::ZERO; 16];
                sums[0].plus(sums[1]).store(lanes.as_mut_ptr());
                let sum = lanes.iter().fold(V::Number::ZERO, |sum, &x| sum.plus(x));
                self.put(output + i, sum);
            }
        }
    }

    /// Computes at most `SWEEP_MAX` contiguous outputs.
    #[inline(always)]
    unsafe fn sweep<V>(&self, outputs: &Range<usize>)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        let mut sums = [V::Number::ZERO; SWEEP_MAX];
        // SAFETY: the caller vouches for the instructions and for the outputs, and `p` stays below
        // `depth`.
        unsafe {
            let in_fours = self.depth / 4 * 4;
            for p in (0..in_fours).step_by(4) {
                self.add_terms::<V, 4>(&mut sums, outputs, p);
            }
            for p in in_fours..self.depth {
                self.add_terms::<V, 1>(&mut sums, outputs, p);
            }
            for (output, &sum) in outputs.clone().zip(&sums) {
                self.put(output, sum);
            }
        }
    }

    /// Adds `TERMS` terms from `p` on to each sum.
    #[inline(always)]
    unsafe fn add_terms<V, const TERMS: usize>(
        &self,
        sums: &mut [V::Number; SWEEP_MAX],
        outputs: &Range<usize>,
        p: usize,
    ) where
        V: Lanes,
        E: LoadAs<V>,
    {
        let count = outputs.len();
        let whole = count / V::LEN * V::LEN;
        // SAFETY: the caller vouches for the instructions and for the terms; the outputs from
        // `start + i` on exist, `V::LEN` or `count - whole` of them, and so do as many sums, because
        // `count` is at most `SWEEP_MAX`, a multiple of `V::LEN`.
        unsafe {
            let mut x = [V::zero(); TERMS];
            let mut rows = [self.matrix; TERMS];
            for j in 0..TERMS {
                x[j] = V::splat((*self.vector.add((p + j) * self.vector_stride)).widen());
                rows[j] = self.matrix.add((p + j) * self.depth_stride + outputs.start);
            }
            let sums = sums.as_mut_ptr();
            for i in (0..whole).step_by(V::LEN) {
                let mut sum = V::load(sums.add(i));
                for j in 0..TERMS {
                    sum = sum.plus_product(x[j], E::load(rows[j].add(i)));
                }
                sum.store(sums.add(i));
            }
            if whole < count {
                let mut sum = V::load(sums.add(whole));
                for j in 0..TERMS {
                    let row = E::load_partial(rows[j].add(whole), count - whole);
                    sum = sum.plus_product(x[j], row);
                }
                sum.store(sums.add(whole));
            }
        }
    }

    #[inline(always)]
    unsafe fn put(&self, output: usize, sum: E::Sum) {
        // SAFETY: the caller vouches for the output, which belongs to its block.
        unsafe {
            let to = self.to.add(output * self.to_stride);
            *to = E::narrow(if self.accumulate { (*to).widen().plus(sum) } else { sum });
        }
    }
}
