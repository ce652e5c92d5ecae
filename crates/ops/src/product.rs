//! Matrix products for kernels: threads, scratch memory and errors.

use std::mem::MaybeUninit;

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Element, Form, Result, Shape, Tensor, err};

use crate::math::gemm::{self, Gemm, MatMut, MatRef, Write};

/// Element types of matrices.
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
    let product =
        Gemm::new(a, b).ok_or_else(|| err!(Internal, "matrices have incompatible shapes"))?;
    let mut scratch = ctx.allocate(DType::UInt8, Shape::new(&[product.scratch_len()])?)?;
    let scratch = as_uninit(scratch.as_mut_slice()?);
    on_threads(ctx, |run_blocks| product.run(c, write, scratch, run_blocks))
}

/// As [`multiply`], where `b` is all of `weights`. If the session caches packed weights and packing
/// pays, weights that occur again are packed, and later products use the packed form.
pub(crate) fn multiply_weights<T: Factor>(
    ctx: &KernelContext<'_>,
    a: MatRef<'_, T>,
    (weights, b): (&Tensor, MatRef<'_, T>),
    c: MatMut<'_, T>,
    write: Write,
) -> Result<()> {
    if ctx.step().keeps_packed_weights()
        && let Some(product) = Gemm::prepacked(a, b)
        && let Some(packed) = packed_weights(ctx, weights, b, &product)?
    {
        let packed = as_packed(packed)?;
        // SAFETY: `packed_weights` packed a right factor of this size and these elements.
        let run = |run_blocks: gemm::ParallelFor<'_>| unsafe {
            product.run_packed(a, c, write, packed, run_blocks)
        };
        return on_threads(ctx, run);
    }
    multiply(ctx, a, b, c, write)
}

/// The packed weights, if they are cached.
fn packed_weights<'w, T: Factor>(
    ctx: &KernelContext<'_>,
    weights: &'w Tensor,
    b: MatRef<'_, T>,
    product: &Gemm<'_, T>,
) -> Result<Option<&'w Tensor>> {
    let elements = weights.as_slice::<T>()?;
    if b.as_ptr() != elements.as_ptr() || b.rows() * b.cols() != elements.len() {
        return Ok(None);
    }
    let sizes = [b.rows(), b.cols(), b.row_stride(), b.col_stride()];
    let form = Form { rule: "right factor in panels", sizes };
    let bytes = product.scratch_len();
    Ok(cached_form(ctx, weights, form, bytes, || {
        let mut packed = ctx.zeros(DType::UInt8, Shape::new(&[bytes])?)?;
        let memory = as_uninit(packed.as_mut_slice()?);
        on_threads(ctx, |run_blocks| product.pack(memory, run_blocks))?;
        Ok(packed)
    }))
}

/// The form `form` of weights, of `bytes` bytes, if it is cached. It is computed by `derive` at the
/// second request, as long as half of the session's memory budget stays free for steps.
pub(crate) fn cached_form<'w>(
    ctx: &KernelContext<'_>,
    weights: &'w Tensor,
    form: Form,
    bytes: usize,
    derive: impl FnOnce() -> Result<Tensor>,
) -> Option<&'w Tensor> {
    if !ctx.step().keeps_packed_weights() {
        return None;
    }
    let budget = ctx.budget();
    let has_room = || budget.left_bytes().saturating_sub(bytes) >= budget.limit_bytes() / 2;
    weights.derived(form, || if has_room() { derive().ok() } else { None })
}

/// Passes a parallel loop over the step's threads to `work`.
fn on_threads(
    ctx: &KernelContext<'_>,
    work: impl FnOnce(gemm::ParallelFor<'_>) -> Result<(), gemm::Error>,
) -> Result<()> {
    let cancellation = ctx.step().cancellation();
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
    /// Packs `b`, for left factors of `rows` rows.
    pub(crate) fn new(
        ctx: &KernelContext<'_>,
        rows: usize,
        b: MatRef<'a, T>,
    ) -> Result<Packed<'a, T>> {
        let product = Gemm::prepacked_right(rows, b);
        let mut scratch = ctx.allocate(DType::UInt8, Shape::new(&[product.scratch_len()])?)?;
        let memory = as_uninit(scratch.as_mut_slice()?);
        on_threads(ctx, |run_blocks| product.pack(memory, run_blocks))?;
        Ok(Packed { product, scratch })
    }

    /// As [`multiply`], with the packed factor.
    pub(crate) fn multiply(
        &self,
        ctx: &KernelContext<'_>,
        a: MatRef<'_, T>,
        c: MatMut<'_, T>,
        write: Write,
    ) -> Result<()> {
        let packed = as_packed(&self.scratch)?;
        let product = &self.product;
        // SAFETY: `new` packed the factor into this memory, which nothing else writes.
        on_threads(ctx, |run_blocks| unsafe { product.run_packed(a, c, write, packed, run_blocks) })
    }
}

/// As [`multiply`], on the caller's thread, for products that need no scratch.
pub(crate) fn multiply_here<T: Factor>(
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    write: Write,
) -> Result<()> {
    let product =
        Gemm::new(a, b).ok_or_else(|| err!(Internal, "matrices have incompatible shapes"))?;
    product.run(c, write, &mut [], &|blocks, work| (0..blocks).for_each(work)).map_err(describe)
}

/// Whether a product of these sizes is small enough to need no scratch.
pub(crate) fn is_small<T: Factor>(a: MatRef<'_, T>, b: MatRef<'_, T>) -> bool {
    Gemm::new(a, b).is_some_and(|product| product.scratch_len() == 0)
}

fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the layouts are the same, and the borrow has the same lifetime; no code reads the
    // bytes after the product, which alone could leave them uninitialized.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
}

fn as_packed(memory: &Tensor) -> Result<&[MaybeUninit<u8>]> {
    let bytes = memory.as_slice::<u8>()?;
    // SAFETY: the layouts are the same, and the borrow is as long.
    Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
}

fn describe(error: gemm::Error) -> thalweg_tensor::Error {
    match error {
        gemm::Error::OutOfMemory => err!(ResourceExhausted, "out of memory for a matrix product"),
        other => err!(Internal, "a matrix product failed: {other:?}"),
    }
}

/// As [`multiply`], on the caller's thread, for use inside of parallel loops.
pub(crate) fn multiply_alone<T: Factor>(
    ctx: &KernelContext<'_>,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
    write: Write,
) -> Result<()> {
    let product =
        Gemm::new(a, b).ok_or_else(|| err!(Internal, "matrices have incompatible shapes"))?;
    let mut scratch = ctx.allocate(DType::UInt8, Shape::new(&[product.scratch_len()])?)?;
    let scratch = as_uninit(scratch.as_mut_slice()?);
    product.run(c, write, scratch, &|blocks, work| (0..blocks).for_each(work)).map_err(describe)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use half::{bf16, f16};
    use thalweg_tensor::Budget;

    use super::*;
    use crate::testing::{Call, call};

    /// Numbers whose products round, so that another order of summation changes the bits.
    fn numbers(dtype: DType, dims: &[usize], seed: u64) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let values = (0..shape.num_elements()).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        });
        match dtype {
            DType::Double => Tensor::from_slice(shape, &values.map(f64::from).collect::<Vec<_>>()),
            DType::Half => {
                Tensor::from_slice(shape, &values.map(f16::from_f32).collect::<Vec<_>>())
            }
            DType::BFloat16 => {
                Tensor::from_slice(shape, &values.map(bf16::from_f32).collect::<Vec<_>>())
            }
            DType::Int32 => {
                Tensor::from_slice(shape, &values.map(|x| (x * 1e9) as i32).collect::<Vec<_>>())
            }
            _ => Tensor::from_slice(shape, &values.collect::<Vec<_>>()),
        }
        .unwrap()
    }

    fn bits(of: &Tensor) -> Vec<u8> {
        of.as_bytes().unwrap().to_vec()
    }

    /// Runs the call until it uses packed weights and compares each result with that of uncached
    /// weights; returns whether they were packed.
    fn check(make: impl Fn() -> Call, what: &str) -> bool {
        let plain = bits(&make().run().unwrap());
        let budget = Budget::new(1 << 30);
        for round in 0..3 {
            let kept = bits(&make().caching_weights(&budget).run().unwrap());
            assert_eq!(kept, plain, "{what}, round {round}");
        }
        let kept = bits(&make().caching_weights(&budget).backwards().run().unwrap());
        assert_eq!(kept, plain, "{what}, backwards");
        budget.used_bytes() > 0
    }

    #[test]
    fn packed_weights_give_the_same_bits() {
        let (mut packed, mut seed) = (0, 0);
        let sizes = [
            (2, 130, 128),
            (7, 64, 300),
            (3, 600, 129),
            (65, 70, 130),
            (1, 150, 150),
            (5, 200, 1),
            (3, 40, 40),
            (0, 128, 128),
            (4, 0, 128),
        ];
        for (m, k, n) in sizes {
            for dtype in [DType::Float, DType::Double, DType::Half, DType::BFloat16, DType::Int32] {
                for (left, right) in [(false, false), (false, true), (true, false)] {
                    seed += 1;
                    let swap = |swap, a, b| if swap { [b, a] } else { [a, b] };
                    let a = numbers(dtype, &swap(left, m, k), seed);
                    let b = numbers(dtype, &swap(right, k, n), seed + 1000);
                    let make = || {
                        let call = call("MatMul").input(a.clone()).input(b.clone());
                        call.attr("transpose_a", left).attr("transpose_b", right)
                    };
                    let what = format!("{dtype} {m}x{k}x{n} {left} {right}");
                    packed += usize::from(check(make, &what));
                }
            }
        }
        assert!(packed > 50, "only {packed} were packed");
    }

    #[test]
    fn other_products_read_packed_weights_too() {
        let make = |op: &'static str, a: &[usize], b: &[usize]| {
            let (a, b) = (numbers(DType::Float, a, 1), numbers(DType::Float, b, 2));
            move || call(op).input(a.clone()).input(b.clone())
        };
        let batches = make("BatchMatMulV2", &[3, 4, 200], &[200, 256]);
        assert!(check(batches, "a batch and one matrix"));
        let each = make("BatchMatMulV2", &[3, 4, 200], &[3, 200, 256]);
        assert!(!check(each, "pairs of matrices"));
        let pixels = make("Conv2D", &[1, 5, 5, 64], &[1, 1, 64, 256]);
        let images = || pixels().attr("strides", [1i64; 4].as_slice()).attr("padding", "SAME");
        assert!(check(images, "pixels"));
        let shapes: [(&[usize], &[usize]); 2] =
            [(&[2, 9, 9, 5], &[3, 3, 5, 40]), (&[9, 7, 7, 16], &[3, 3, 16, 32])];
        for (input, filter) in shapes {
            let call = make("Conv2D", input, filter);
            let windows = || call().attr("strides", [1i64; 4].as_slice()).attr("padding", "SAME");
            assert!(check(windows, "windows"), "{filter:?}");
        }
    }

    #[test]
    fn weights_that_change_are_packed_anew() {
        let budget = Budget::new(1 << 30);
        let a = numbers(DType::Float, &[8, 300], 1);
        let mut b = numbers(DType::Float, &[300, 256], 2);
        let product = |b: &Tensor, kept: Option<&Arc<Budget>>| {
            let call = call("MatMul").input(a.clone()).input(b.clone());
            let call = match kept {
                Some(budget) => call.caching_weights(budget),
                None => call,
            };
            bits(&call.run().unwrap())
        };
        for round in 0..5 {
            let plain = product(&b, None);
            for _ in 0..3 {
                assert_eq!(product(&b, Some(&budget)), plain, "round {round}");
            }
            assert!(budget.used_bytes() > 0);
            b.as_mut_slice::<f32>().unwrap()[round * 1000] += 1.0;
            assert_eq!(budget.used_bytes(), 0);
        }
    }

    #[test]
    fn weights_stay_as_they_are_where_memory_is_short() {
        let (a, b) = (numbers(DType::Float, &[8, 300], 1), numbers(DType::Float, &[300, 256], 2));
        // The budget suffices for the product and the packed form, but less than half would stay
        // free.
        let budget = Budget::new(600 << 10);
        for _ in 0..4 {
            let call = call("MatMul").input(a.clone()).input(b.clone());
            call.caching_weights(&budget).run().unwrap();
            assert_eq!(budget.used_bytes(), 0);
        }
    }
}
