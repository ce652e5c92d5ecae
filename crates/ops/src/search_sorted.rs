//! Binary search in sorted values: `LowerBound`, `UpperBound` and `Bucketize`.

use half::{bf16, f16};
use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Element, PartialShape, Result, Tensor, ensure};

use crate::split::for_each_rows;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        LOWER_BOUND,
        UPPER_BOUND,
        OpDef::new("Bucketize", shape::unchanged).with_work(Work::per_output::<1000>),
    ],
    kernels: &[
        cpu_kernel!("LowerBound", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => lower_bound),
        cpu_kernel!("UpperBound", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => upper_bound),
        cpu_kernel!("Bucketize", "T" in [f32, f64, i32, i64] => bucketize),
        KernelSpec::lowering("LowerBound", |l| {
            lower_bound_count(l, |sorted, value| sorted.compare(Comparison::Less, value))
        }),
        KernelSpec::lowering("UpperBound", |l| {
            lower_bound_count(l, |sorted, value| value.compare(Comparison::Less, sorted).not())
        }),
        KernelSpec::lowering("Bucketize", lower_bucketize),
    ],
};

const LOWER_BOUND: OpDef = OpDef::new("LowerBound", bound_shape).with_work(work::search);

const UPPER_BOUND: OpDef = OpDef { name: "UpperBound", ..LOWER_BOUND };

fn bound_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let sorted = c.with_rank(0, "sorted_inputs", 2)?;
    let values = c.with_rank(1, "values", 2)?;
    PartialShape::new([sorted.dim(0)]).merge(&PartialShape::new([values.dim(0)]))?;
    c.set_output(0, values);
    Ok(())
}

/// Binary search for the first index in `0..len` for which `is_after` holds. The probed indices are
/// TensorFlow's, which is visible if values are not sorted.
#[inline(always)]
fn search(len: usize, is_after: impl Fn(usize) -> bool) -> usize {
    let (mut first, mut len) = (0, len);
    while len > 0 {
        let half = len / 2;
        if is_after(first + half) {
            len = half;
        } else {
            first += half + 1;
            len -= half + 1;
        }
    }
    first
}

fn lower_bound<T: Element + PartialOrd>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        bound::<T>(ctx, |sorted, value| {
            #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "NaN comes before no element")]
            search(sorted.len(), |i| !(sorted[i] < value))
        })
    })
}

fn upper_bound<T: Element + PartialOrd>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        bound::<T>(ctx, |sorted, value| search(sorted.len(), |i| value < sorted[i]))
    })
}

fn bound<T: Element>(
    ctx: &mut KernelContext<'_>,
    find: impl Fn(&[T], T) -> usize + Sync,
) -> Result<()> {
    let (sorted, values) = (ctx.input(0)?, ctx.input(1)?);
    for (tensor, name) in [(sorted, "sorted_inputs"), (values, "values")] {
        ensure!(
            tensor.rank() == 2,
            InvalidArgument,
            "Shape must be rank 2 but is rank {} for `{name}` argument",
            tensor.rank()
        );
    }
    ensure!(
        sorted.shape()[0] == values.shape()[0],
        InvalidArgument,
        "Leading dim_size of both tensors must match: {} and {}",
        sorted.shape(),
        values.shape()
    );
    let (width, count) = (sorted.shape()[1], values.shape()[1]);
    let (sorted, data) = (sorted.as_slice::<T>()?, values.as_slice::<T>()?);
    let place = |i: usize| find(&sorted[i / count * width..][..width], data[i]);
    let nanoseconds = 5.0 * f64::from(usize::BITS - width.leading_zeros()) + 2.0;
    let mut out = ctx.allocate_output(0, values.shape().clone())?;
    if out.dtype() == DType::Int64 {
        for_each_rows(ctx, out.as_mut_slice::<i64>()?, 1, nanoseconds, |first, out| {
            (first..).zip(out).for_each(|(i, out)| *out = place(i) as i64);
        })?;
    } else {
        ensure!(
            width <= i32::MAX as usize,
            InvalidArgument,
            "{width} sorted values are too many for 32-bit positions"
        );
        for_each_rows(ctx, out.as_mut_slice::<i32>()?, 1, nanoseconds, |first, out| {
            (first..).zip(out).for_each(|(i, out)| *out = place(i) as i32);
        })?;
    }
    ctx.set_output(0, out)
}

/// Counts for each value the elements of its sorted row that come before it.
fn lower_bound_count(l: &mut Lowering<'_>, is_before: fn(&Value, &Value) -> Value) -> Result<()> {
    let (sorted, values) = (l.input(0)?, l.input(1)?);
    ensure!(
        sorted.rank() == 2 && values.rank() == 2 && sorted.dims()[0] == values.dims()[0],
        InvalidArgument,
        "Leading dim_size of both tensors must match: {:?} and {:?}",
        sorted.dims(),
        values.dims()
    );
    let is_before = is_before(&sorted.expand(1), &values.expand(2));
    l.set(0, is_before.convert(l.output_dtype(0)).sum(&[2]))
}

fn lower_bucketize(l: &mut Lowering<'_>) -> Result<()> {
    let (x, boundaries) = (l.input(0)?, l.attrs().floats("boundaries")?);
    check_boundaries(boundaries)?;
    let boundaries = x.constant(&Tensor::vector(boundaries)?);
    // As the CPU kernel compares: integers as floats.
    let dtype = if x.dtype() == DType::Double { DType::Double } else { DType::Float };
    let last = x.rank();
    let is_below =
        x.convert(dtype).expand(last).compare(Comparison::Less, &boundaries.convert(dtype));
    l.set(0, is_below.not().convert(DType::Int32).sum(&[last]))
}

fn check_boundaries(boundaries: &[f32]) -> Result<()> {
    ensure!(
        !boundaries.windows(2).any(|pair| pair[1] < pair[0]),
        InvalidArgument,
        "Expected sorted boundaries"
    );
    Ok(())
}

/// Types that are compared with bucket boundaries.
trait Bucketed: Element {
    /// Whether `self < boundary`.
    fn is_below(self, boundary: f32) -> bool;
}

impl Bucketed for f32 {
    fn is_below(self, boundary: f32) -> bool {
        self < boundary
    }
}

impl Bucketed for f64 {
    fn is_below(self, boundary: f32) -> bool {
        self < f64::from(boundary)
    }
}

impl Bucketed for i32 {
    fn is_below(self, boundary: f32) -> bool {
        (self as f32) < boundary
    }
}

impl Bucketed for i64 {
    fn is_below(self, boundary: f32) -> bool {
        (self as f32) < boundary
    }
}

fn bucketize<T: Bucketed>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let boundaries = init.attrs().floats("boundaries")?.to_vec();
    check_boundaries(&boundaries)?;
    AnyKernel::new(move |ctx| {
        let mut out = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
        let data = ctx.slice::<T>(0)?;
        let nanoseconds = 5.0 * f64::from(usize::BITS - boundaries.len().leading_zeros()) + 1.0;
        for_each_rows(ctx, out.as_mut_slice::<i32>()?, 1, nanoseconds, |first, out| {
            for (out, &x) in out.iter_mut().zip(&data[first..]) {
                *out = search(boundaries.len(), |i| x.is_below(boundaries[i])) as i32;
            }
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, Shape, Tensor};

    fn row(values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(&[1, values.len()]).unwrap(), values).unwrap()
    }

    #[test]
    fn shapes() {
        let infer = |sorted, values| {
            call("LowerBound").shape(DType::Float, sorted).shape(DType::Float, values).infer()
        };
        assert_eq!(infer("2,5", "2,7"), "[2,7]");
        assert_eq!(infer("unknown", "?,7"), "[?,7]");
        assert!(infer("2,5", "3,7").starts_with("INVALID_ARGUMENT"));
        assert!(infer("5", "7").starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn bounds_with_nan_and_ties() {
        let nan = f32::NAN;
        for (sorted, values, lower, upper) in [
            (
                &[1.0, 2.0, 2.0, 5.0][..],
                &[0.0, 2.0, 3.0, 6.0, nan][..],
                &[0, 1, 3, 4, 0][..],
                &[0, 3, 3, 4, 4][..],
            ),
            (&[1.0, nan, 3.0], &[2.0, nan], &[1, 0], &[2, 3]),
            (&[], &[1.0], &[0], &[0]),
        ] {
            for (op, expected) in [("LowerBound", lower), ("UpperBound", upper)] {
                let got = call(op).input(row(sorted)).input(row(values)).run().unwrap();
                assert_eq!(got.as_slice::<i32>().unwrap(), expected, "{op} {sorted:?}");
            }
        }
        let got = call("LowerBound").input(row(&[1.0])).input(Tensor::scalar(1f32)).run();
        assert_eq!(code(got), Some(Code::InvalidArgument));
    }

    #[test]
    fn buckets() {
        let values = [-5.0, 0.0, 1.0, 10.0, 100.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let bounds = &[0f32, 10.0, 100.0][..];
        let got = call("Bucketize").input(row(&values)).attr("boundaries", bounds).run().unwrap();
        assert_eq!(got.as_slice::<i32>().unwrap(), [0, 1, 1, 2, 3, 3, 3, 0]);
        let unsorted = call("Bucketize").input(row(&values)).attr("boundaries", &[1f32, 0.0][..]);
        assert_eq!(code(unsorted.run()), Some(Code::InvalidArgument));
    }
}
