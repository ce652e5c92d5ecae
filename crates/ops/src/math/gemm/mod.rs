//! GEMM: the matrix product `C = A * B` or `C += A * B`, for every numeric type.
//!
//! Factors may have any strides, so transposed factors need no copy. The result has the same bits
//! for any number of threads: work is divided by shape only, and each element of the product is
//! summed by one block, in order. Sums of `bf16` and `f16` are kept in `f32` and rounded once;
//! integers wrap. Zeros are not skipped, so NaN and infinity propagate.
//!
//! The module has no thread pool and no allocator: the caller passes a parallel loop and scratch
//! memory.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod drive;
mod element;
#[cfg(test)]
mod gemm_tests;
mod kernel;
mod lanes;
mod matrix;
mod pack;
mod plan;
mod vector;
mod workspace;

use std::mem::MaybeUninit;

use drive::{Job, Part, SCRATCH_ALIGNMENT};
use plan::{Plan, Shape};

pub use element::Element;
pub use matrix::{MatMut, MatRef};

/// Runs `work(i)` for every `i` in `0..count`, on as many threads as the caller has, and returns
/// when all calls have returned.
pub type ParallelFor<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// The instruction set to use. Results may differ in their last bits from one level to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The baseline of the compilation target.
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

/// Why a product was not computed; the content of the destination is then unspecified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The destination does not have the product's size.
    ShapeMismatch,
    /// The scratch is shorter than [`Gemm::scratch_len`].
    ScratchTooSmall,
    /// A thread could not allocate its workspace, which is less than a megabyte.
    OutOfMemory,
    /// The parallel loop did not run all blocks, because it was cancelled.
    Interrupted,
    /// The element type is not its own accumulator type.
    Unsupported,
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

/// A strided batch: matrices of one size at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct StridedBatch<'a, T> {
    /// Elements; the first matrix begins at the start.
    pub data: &'a [T],
    /// Number of rows and columns of each matrix.
    pub size: (usize, usize),
    /// Row and column strides.
    pub strides: (usize, usize),
    /// Distance between the beginnings of consecutive matrices.
    pub step: usize,
}

impl<T> StridedBatch<'_, T> {
    /// Whether all elements of the first `count` matrices are in bounds.
    fn has(&self, count: usize) -> bool {
        let Some(others) = count.checked_sub(1) else { return true };
        let last = others.saturating_mul(self.step).min(self.data.len());
        MatRef::new(&self.data[last..], self.size, self.strides).is_some()
    }
}

/// Sets `c` to the sum of `count` products, or adds that sum to `c`, on the caller's thread and
/// without packing. The element type must be its own accumulator type, and the columns of the right
/// factors must be contiguous.
pub fn sum_products<T: Element>(
    a: StridedBatch<'_, T>,
    b: StridedBatch<'_, T>,
    count: usize,
    mut c: MatMut<'_, T>,
    write: Write,
) -> Result<(), Error> {
    let ((m, k), (inner, n)) = (a.size, b.size);
    let fits = inner == k && (c.rows(), c.cols()) == (m, n) && b.strides.1 == 1;
    if !fits || !a.has(count) || !b.has(count) {
        return Err(Error::ShapeMismatch);
    }
    if (k == 0 || count == 0) && write == Write::Overwrite {
        c.fill(T::narrow(<T::Sum as element::Number>::ZERO));
    }
    if m == 0 || n == 0 || k == 0 || count == 0 {
        return Ok(());
    }
    let level = Level::best();
    let shape = Shape { m, n, k, a_strides: a.strides, b_strides: b.strides };
    let mut job = Job {
        shape,
        plan: Plan::IN_PLACE,
        a: a.data.as_ptr(),
        b: b.data.as_ptr(),
        c_row_stride: c.row_stride(),
        c: c.as_mut_ptr(),
        accumulate: write == Write::Accumulate,
        scratch: &mut [],
        parallel: &|_, _| {},
        part: Part::Summing { count, a_step: a.step, b_step: b.step },
    };
    // SAFETY: the machine has the level; all elements of all factors are in bounds, as was just seen.
    unsafe { T::run(level, &mut job) }
}

/// What happens to the destination's old values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The old values are not read.
    Overwrite,
    /// The product is added to the old values.
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
        let shape = Shape { m, n, k, a_strides: strides_of(&a), b_strides: strides_of(&b) };
        let plan = Plan::new(&shape, &T::geometry(level));
        Some(Self { a, b, level, shape, plan })
    }

    /// Bytes of scratch that [`Gemm::run`] needs: zero for small products, at most a few megabytes
    /// except for extremely long inner dimensions.
    pub fn scratch_len(&self) -> usize {
        match self.plan.packed_bytes(&T::geometry(self.level)) {
            0 => 0,
            bytes => bytes.saturating_add(SCRATCH_ALIGNMENT),
        }
    }

    /// The product of row-major left factors of `m` rows and one right factor, which [`Gemm::pack`]
    /// packs once.
    pub fn prepacked_right(m: usize, b: MatRef<'a, T>) -> Self {
        let (k, n) = (b.rows(), b.cols());
        let shape = Shape { m, n, k, a_strides: (k, 1), b_strides: strides_of(&b) };
        let level = Level::best();
        let plan = Plan::prepacked_right(&shape, &T::geometry(level));
        Self { a: MatRef::empty(), b, level, shape, plan }
    }

    /// The product `a * b` with a right factor that [`Gemm::pack`] packs once for many products, or
    /// `None` if prepacking does not pay. The packed form depends on the right factor alone, and
    /// the product has the same bits as without prepacking.
    pub fn prepacked(a: MatRef<'a, T>, b: MatRef<'a, T>) -> Option<Self> {
        let product = Self::new(a, b)?;
        let geometry = T::geometry(product.level);
        let plan = product.plan.prepack_right(&product.shape, &geometry)?;
        Some(Self { plan, ..product })
    }

    /// Packs the right factor of a product that was made for prepacking.
    pub fn pack(
        &self,
        scratch: &mut [MaybeUninit<u8>],
        parallel: ParallelFor<'_>,
    ) -> Result<(), Error> {
        // Packing does not write to the destination, so the pointer is null.
        self.run_part(std::ptr::null_mut(), (0, false), scratch, parallel, Part::Packing)
    }

    /// Computes the product with a right factor that is already packed.
    ///
    /// # Safety
    ///
    /// [`Gemm::pack`] wrote `packed`, for a right factor of this size and these elements, and the
    /// address of `packed` modulo 64 has not changed since.
    pub unsafe fn run_packed(
        &self,
        a: MatRef<'_, T>,
        c: MatMut<'_, T>,
        write: Write,
        packed: &[MaybeUninit<u8>],
        parallel: ParallelFor<'_>,
    ) -> Result<(), Error> {
        let Shape { m, k, .. } = self.shape;
        if (a.rows(), a.cols()) != (m, k) || self.plan.chunks.parts != 1 {
            return Err(Error::ShapeMismatch);
        }
        let a_strides = strides_of(&a);
        let of = Gemm { a, shape: Shape { a_strides, ..self.shape }, ..*self };
        // Multiplying only reads the packed panels.
        let packed = std::ptr::from_ref(packed).cast_mut();
        of.run_into(c, write, packed, parallel, Part::Multiplying)
    }

    /// Computes the product into `c`. The content of `scratch` is ignored and overwritten.
    pub fn run(
        &self,
        c: MatMut<'_, T>,
        write: Write,
        scratch: &mut [MaybeUninit<u8>],
        parallel: ParallelFor<'_>,
    ) -> Result<(), Error> {
        self.run_into(c, write, scratch, parallel, Part::Whole)
    }

    fn run_into(
        &self,
        mut c: MatMut<'_, T>,
        write: Write,
        scratch: *mut [MaybeUninit<u8>],
        parallel: ParallelFor<'_>,
        part: Part,
    ) -> Result<(), Error> {
        let Shape { m, n, k, .. } = self.shape;
        if (c.rows(), c.cols()) != (m, n) || (self.a.rows(), self.a.cols()) != (m, k) {
            return Err(Error::ShapeMismatch);
        }
        if k == 0 && write == Write::Overwrite {
            c.fill(T::narrow(<T::Sum as element::Number>::ZERO));
        }
        if m == 0 || n == 0 || k == 0 {
            return Ok(());
        }
        let destination = (c.row_stride(), write == Write::Accumulate);
        self.run_part(c.as_mut_ptr(), destination, scratch, parallel, part)
    }

    /// `c` is the first element of a destination of the product's size, or null if the part is
    /// packing.
    fn run_part(
        &self,
        c: *mut T,
        (c_row_stride, accumulate): (usize, bool),
        scratch: *mut [MaybeUninit<u8>],
        parallel: ParallelFor<'_>,
        part: Part,
    ) -> Result<(), Error> {
        let Shape { m, n, k, .. } = self.shape;
        if m == 0 || n == 0 || k == 0 {
            return Ok(());
        }
        let mut job = Job {
            shape: self.shape,
            plan: self.plan,
            a: self.a.as_ptr(),
            b: self.b.as_ptr(),
            c_row_stride,
            c,
            accumulate,
            scratch,
            parallel,
            part,
        };
        // SAFETY: `with_level` took a level that the machine has and made the plan for it; the
        // views vouch for their elements, and callers of `run_packed` for what is packed.
        unsafe { T::run(self.level, &mut job) }
    }
}

/// Row and column strides. The stride of a dimension of size 1 is not used, so 1 is returned for
/// it.
fn strides_of<T>(of: &MatRef<'_, T>) -> (usize, usize) {
    let stride = |stride, size| if size <= 1 { 1 } else { stride };
    (stride(of.row_stride(), of.rows()), stride(of.col_stride(), of.cols()))
}
