//! The product of two matrices, `C = A * B` or `C += A * B`, for every numeric type.
//!
//! Factors may have any strides, so that transposed ones need no copy first. The same bits come out
//! whatever the number of threads: the work is cut by shape only, each element of the product is
//! summed by one block, in order. Sums of `bf16` and `f16` are kept in `f32` and rounded once;
//! integers wrap. Nothing is skipped for being zero, so NaN and infinity spread as they should.
//!
//! It knows no pool and no allocator: the caller brings both.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod drive;
mod element;
mod kernel;
mod lanes;
mod matrix;
mod pack;
mod plan;
#[cfg(test)]
mod tests;
mod vector;
mod workspace;

use std::mem::MaybeUninit;

use drive::{Job, SCRATCH_ALIGNMENT};
use plan::{Plan, Shape};

pub use element::Element;
pub use matrix::{MatMut, MatRef};

/// Runs `work(i)` for every `i` in `0..count`, on as many threads as the caller has, and returns
/// when all are done.
pub type ParallelFor<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// The instructions to use. Results may differ in their last bits from one level to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What the compilation target always has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512F.
    Avx512,
}

impl Level {
    /// The best level of this machine.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 && is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if avx2 {
                return Self::Avx2;
            }
        }
        Self::Portable
    }
}

/// Why a product was not computed; the destination then holds anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The destination is not of the product's size.
    ShapeMismatch,
    /// There is less scratch than [`Gemm::scratch_len`].
    ScratchTooSmall,
    /// A thread could not allocate its workspace, which is less than a megabyte.
    OutOfMemory,
    /// The parallel loop left blocks out, as one does that was cancelled.
    Interrupted,
}

/// A product of two matrices, ready to be computed.
///
/// ```ignore
/// let product = Gemm::new(a, b).ok_or_else(|| mismatch())?;
/// let mut scratch = Vec::new();
/// scratch.try_reserve_exact(product.scratch_len())?;
/// product.run(c, Write::Overwrite, scratch.spare_capacity_mut(), &parallel_for)?;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a, T> {
    a: MatRef<'a, T>,
    b: MatRef<'a, T>,
    level: Level,
    shape: Shape,
    plan: Plan,
}

/// What happens to the destination's old values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// They are not read.
    Overwrite,
    /// The product is added to them.
    Accumulate,
}

impl<'a, T: Element> Gemm<'a, T> {
    /// The product `a * b`, or `None` if the inner dimensions differ.
    pub fn new(a: MatRef<'a, T>, b: MatRef<'a, T>) -> Option<Self> {
        Self::with_level(a, b, Level::best())
    }

    /// As [`Gemm::new`], with the instructions of `level`, or the best if the machine lacks them.
    pub fn with_level(a: MatRef<'a, T>, b: MatRef<'a, T>, level: Level) -> Option<Self> {
        if a.cols() != b.rows() {
            return None;
        }
        let level = level.min(Level::best());
        let (m, k, n) = (a.rows(), a.cols(), b.cols());
        // A stride along a dimension of size 1 is never used; 1 is the convenient one.
        let stride = |stride, size| if size <= 1 { 1 } else { stride };
        let shape = Shape {
            m,
            n,
            k,
            a_strides: (stride(a.row_stride(), m), stride(a.col_stride(), k)),
            b_strides: (stride(b.row_stride(), k), stride(b.col_stride(), n)),
        };
        let plan = Plan::new(&shape, &T::geometry(level));
        Some(Self { a, b, level, shape, plan })
    }

    /// Bytes of scratch that [`Gemm::run`] needs: none for small products, some megabytes at most
    /// but for extremely long inner dimensions.
    pub fn scratch_len(&self) -> usize {
        match self.plan.packed_bytes(&T::geometry(self.level)) {
            0 => 0,
            bytes => bytes.saturating_add(SCRATCH_ALIGNMENT),
        }
    }

    /// Computes the product into `c`. The content of `scratch` does not matter.
    pub fn run(
        &self,
        mut c: MatMut<'_, T>,
        write: Write,
        scratch: &mut [MaybeUninit<u8>],
        parallel: ParallelFor<'_>,
    ) -> Result<(), Error> {
        let Shape { m, n, k, .. } = self.shape;
        if (c.rows(), c.cols()) != (m, n) {
            return Err(Error::ShapeMismatch);
        }
        if k == 0 && write == Write::Overwrite {
            c.fill(T::narrow(<T::Sum as element::Number>::ZERO));
        }
        if m == 0 || n == 0 || k == 0 {
            return Ok(());
        }
        let mut job = Job {
            shape: self.shape,
            plan: self.plan,
            a: self.a.as_ptr(),
            b: self.b.as_ptr(),
            c_row_stride: c.row_stride(),
            c: c.as_mut_ptr(),
            accumulate: write == Write::Accumulate,
            scratch,
            parallel,
        };
        // SAFETY: `with_level` took a level that the machine has and made the plan for it; the
        // views vouch for their elements.
        unsafe { T::run(self.level, &mut job) }
    }
}
