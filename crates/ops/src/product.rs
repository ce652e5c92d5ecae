//! Products of matrices for kernels: threads, scratch and errors as they need them.

use std::mem::MaybeUninit;

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Element, Result, Shape, Tensor, err};

use crate::math::gemm::{self, Gemm, MatMut, MatRef, Write};

/// Element types that matrices may have.
pub(crate) trait Factor: Element + gemm::Element {}

impl<T: Element + gemm::Element> Factor for T {}

/// Sets `c` to `a * b`, or adds that to it, on the step's threads.
pub(crate) fn multiply<T: Factor>(
    ctx: &KernelContext<'_>,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    write: Write,
) -> Result<()> {
    let product = Gemm::new(a, b).ok_or_else(|| err!(Internal, "matrices do not fit"))?;
    let mut scratch = ctx.allocate(DType::UInt8, Shape::new(&[product.scratch_len()])?)?;
    let scratch = as_uninit(scratch.as_mut_slice()?);
    on_threads(ctx, |run_blocks| product.run(c, write, scratch, run_blocks))
}

/// Has `work` run its blocks on the step's threads.
fn on_threads(
    ctx: &KernelContext<'_>,
    work: impl FnOnce(gemm::ParallelFor<'_>) -> Result<(), gemm::Error>,
) -> Result<()> {
    let cancellation = &ctx.step().cancellation;
    let result = work(&|blocks: usize, work: &(dyn Fn(usize) + Sync)| {
        ctx.parallel().run(blocks, &|i| {
            if !cancellation.is_cancelled() {
                work(i);
            }
        });
    });
    ctx.check_cancelled()?;
    result.map_err(describe)
}

/// A right factor that is packed once and multiplied many times.
pub(crate) struct Packed<'a, T> {
    product: Gemm<'a, T>,
    scratch: Tensor,
}

impl<'a, T: Factor> Packed<'a, T> {
    /// Packs `b`, for left factors of so many rows.
    pub(crate) fn new(
        ctx: &KernelContext<'_>,
        rows: usize,
        b: MatRef<'a, T>,
    ) -> Result<Packed<'a, T>> {
        let product = Gemm::keeping_right(rows, b);
        let mut scratch = ctx.allocate(DType::UInt8, Shape::new(&[product.scratch_len()])?)?;
        let memory = as_uninit(scratch.as_mut_slice()?);
        on_threads(ctx, |run_blocks| product.pack(memory, run_blocks))?;
        Ok(Packed { product, scratch })
    }

    /// As [`multiply`], with the factor that was packed.
    pub(crate) fn multiply(
        &mut self,
        ctx: &KernelContext<'_>,
        a: MatRef<'_, T>,
        c: MatMut<'_, T>,
        write: Write,
    ) -> Result<()> {
        let memory = as_uninit(self.scratch.as_mut_slice()?);
        let product = &self.product;
        // SAFETY: `new` packed the factor into this memory, which nothing else writes.
        on_threads(ctx, |run_blocks| unsafe { product.run_packed(a, c, write, memory, run_blocks) })
    }
}

/// As [`multiply`], on the caller's thread alone, for products that need no scratch.
pub(crate) fn multiply_here<T: Factor>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    write: Write,
) -> Result<()> {
    let product = Gemm::new(a, b).ok_or_else(|| err!(Internal, "matrices do not fit"))?;
    product.run(c, write, &mut [], &|blocks, work| (0..blocks).for_each(work)).map_err(describe)
}

/// Whether a product of these sizes is too small to need scratch.
pub(crate) fn is_small<T: Factor>(a: MatRef<'_, T>, b: MatRef<'_, T>) -> bool {
    Gemm::new(a, b).is_some_and(|product| product.scratch_len() == 0)
}

fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the layouts are the same, and the borrow is as long; nobody reads the bytes after
    // the product, which alone could leave them uninitialised.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
}

fn describe(error: gemm::Error) -> thalweg_tensor::Error {
    match error {
        gemm::Error::OutOfMemory => err!(ResourceExhausted, "out of memory for a matrix product"),
        other => err!(Internal, "a matrix product failed: {other:?}"),
    }
}

/// As [`multiply`], on the caller's thread alone; for loops that are parallel already.
pub(crate) fn multiply_alone<T: Factor>(
    ctx: &KernelContext<'_>,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    write: Write,
) -> Result<()> {
    let product = Gemm::new(a, b).ok_or_else(|| err!(Internal, "matrices do not fit"))?;
    let mut scratch = ctx.allocate(DType::UInt8, Shape::new(&[product.scratch_len()])?)?;
    let scratch = as_uninit(scratch.as_mut_slice()?);
    product.run(c, write, scratch, &|blocks, work| (0..blocks).for_each(work)).map_err(describe)
}
