//! Source ops: placeholders, constants filled with one value, ranges.

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{GradientContext, OpDef, PartialValue, Role, ValueContext, Work, gradient};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{
    Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Tensor, bail, bf16, ensure,
    err, f16,
};

use crate::cells::blank;
use crate::gradient_shapes::flat;
use crate::lists::{self, values::zero_variants};
use crate::split::for_each_rows;
use crate::strided::StridedCopy;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        PLACEHOLDER,
        PLACEHOLDER_V2,
        PLACEHOLDER_WITH_DEFAULT.with_gradient(gradient::unchanged),
        FILL.with_gradient(fill_grad),
        ZEROS_LIKE.without_gradient(),
        ONES_LIKE.without_gradient(),
        RANGE.without_gradient(),
        LIN_SPACE.without_gradient(),
        OpDef::new("Empty", shape::from_first_input).with_work(Work::moves),
    ],
    kernels: &[
        KernelSpec { op: "Placeholder", create: placeholder, ..KernelSpec::CPU },
        KernelSpec { op: "PlaceholderV2", create: placeholder, ..KernelSpec::CPU },
        KernelSpec {
            op: "PlaceholderWithDefault",
            is_cheap: true,
            create: |_| AnyKernel::new(forward),
            ..KernelSpec::CPU
        },
        KernelSpec { op: "Fill", host_inputs: &["dims"], create: fill, ..KernelSpec::CPU },
        KernelSpec { op: "ZerosLike", create: zeros_like, ..KernelSpec::CPU },
        KernelSpec { op: "OnesLike", create: ones_like, ..KernelSpec::CPU },
        cpu_kernel!("Range", "Tidx" in [i32, i64, f32, f64, f16, bf16] => range;
            host_inputs: &["start", "limit", "delta"]),
        cpu_kernel!("LinSpace", "T" in [f32, f64, f16, bf16] => lin_space;
            host_inputs: &["start", "stop", "num"]),
        KernelSpec { op: "Empty", host_inputs: &["shape"], create: empty, ..KernelSpec::CPU },
        KernelSpec::lowering("PlaceholderWithDefault", |l| l.forward(0, 0)),
        KernelSpec::lowering("Fill", lower_fill).with_host_inputs(&["dims"]),
        KernelSpec::lowering("ZerosLike", |l| l.unary(Value::zeros_like)),
        KernelSpec::beside_regions("ZerosLike", lists::lowering::zeros_like, zeros_like)
            .for_dtypes(&[("T", &[DType::Variant])]),
        KernelSpec::lowering("OnesLike", |l| l.unary(Value::ones_like)),
        KernelSpec::lowering("Range", lower_range)
            .with_host_inputs(&["start", "limit", "delta"])
            .for_dtypes(&[("Tidx", RANGED)]),
        KernelSpec::lowering("LinSpace", lower_lin_space).with_host_inputs(&["num"]),
        KernelSpec::lowering("Empty", lower_empty).with_host_inputs(&["shape"]),
    ],
};

/// Dtypes of ranges.
const RANGED: &[DType] =
    &[DType::Int32, DType::Int64, DType::Float, DType::Double, DType::Half, DType::BFloat16];

const PLACEHOLDER: OpDef = OpDef {
    name: "Placeholder",
    shape: shape::from_attr,
    role: Role::Placeholder,
    work: Work::none,
    ..OpDef::DEFAULT
};
const PLACEHOLDER_V2: OpDef = OpDef {
    name: "PlaceholderV2",
    shape: shape::from_attr,
    role: Role::Placeholder,
    work: Work::none,
    ..OpDef::DEFAULT
};

/// Fails: the kernel runs only if the step did not feed the node.
fn placeholder(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (dtype, shape) = (init.attrs().dtype("dtype")?, init.attrs().shape("shape")?);
    AnyKernel::new(move |ctx| {
        let name = &ctx.node().name;
        match shape.rank() {
            None | Some(0) => bail!(
                InvalidArgument,
                "You must feed a value for placeholder tensor '{name}' with dtype {dtype}"
            ),
            Some(_) => bail!(
                InvalidArgument,
                "You must feed a value for placeholder tensor '{name}' with dtype {dtype} and \
                 shape {shape}"
            ),
        }
    })
}

const PLACEHOLDER_WITH_DEFAULT: OpDef = OpDef {
    name: "PlaceholderWithDefault",
    shape: placeholder_with_default_shape,
    role: Role::PlaceholderWithDefault,
    work: Work::none,
    ..OpDef::DEFAULT
};

/// The default must fit the declared shape; fed tensors may have any shape that fits.
fn placeholder_with_default_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let declared = c.attrs().shape("shape")?;
    c.input(0).merge(&declared)?;
    c.set_output(0, declared);
    Ok(())
}

/// Sets the output to the only input.
pub(crate) fn forward(ctx: &mut KernelContext<'_>) -> Result<()> {
    let input = ctx.take_input(0)?;
    ctx.set_output(0, input)
}

const FILL: OpDef = OpDef::new("Fill", fill_shape).with_work(Work::moves).with_value(fill_value);

fn fill_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    ensure!(
        c.input(0).rank().is_none_or(|r| r <= 1),
        InvalidArgument,
        "dims must be a vector, got shape {}",
        c.input(0)
    );
    c.with_rank(1, "value", 0)?;
    // A scalar `dims` is the size of a vector, as in old GraphDefs.
    let shape = match c.partial_value(0) {
        Some(dims) => PartialValue { is_scalar: false, ..dims }.to_shape()?,
        None => c.shape_from_input(0)?,
    };
    c.set_output(0, shape);
    Ok(())
}

fn fill_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (dims, value) = (c.input(0)?, c.input(1)?.first());
    match dims.elements[..] {
        [] => Some(PartialValue::scalar(value)),
        [Some(n @ 0..=1024)] => Some(PartialValue::vector(vec![value; n as usize])),
        _ => None,
    }
}

fn fill_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let (all, axis) = (flat(g, grad)?, g.int(0)?);
    let adjoint = g.add("Sum", &[all, axis])?;
    g.set(1, adjoint)
}

fn fill(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let dims = ctx.input(0)?;
        ensure!(
            dims.rank() <= 1,
            InvalidArgument,
            "dims must represent a vector, got shape {}",
            dims.shape()
        );
        let shape = Shape::from_i64(&ctx.ints(0, "dims")?)?;
        let value = ctx.input(1)?;
        ensure!(
            value.num_elements() == 1 && value.rank() <= 1,
            InvalidArgument,
            "value must represent a scalar, got shape {}",
            value.shape()
        );
        let output = filled(ctx, value, dtype, shape)?;
        ctx.set_output(0, output)
    })
}

fn lower_fill(l: &mut Lowering<'_>) -> Result<()> {
    let (value, dims) = (l.input(1)?, l.output_dims(0)?);
    l.set(0, value.reshape(&[]).broadcast_to(&dims))
}

/// A tensor whose elements all equal `value`.
pub(crate) fn filled(
    ctx: &KernelContext<'_>,
    value: &Tensor,
    dtype: DType,
    shape: Shape,
) -> Result<Tensor> {
    let copy = StridedCopy::filling(&[shape.num_elements()], &[0], 0);
    let mut output = blank(ctx, dtype, shape)?;
    copy.run(ctx, value, &mut output)?;
    Ok(output)
}

const ZEROS_LIKE: OpDef = OpDef::new("ZerosLike", shape::unchanged).with_work(Work::moves);

fn zeros_like(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let output = match dtype {
            DType::Variant => zero_variants(ctx, input)?,
            _ => ctx.zeros(dtype, input.shape().clone())?,
        };
        ctx.set_output(0, output)
    })
}

const ONES_LIKE: OpDef = OpDef::new("OnesLike", shape::unchanged).with_work(Work::moves);

fn ones_like(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    let one = one(dtype)?;
    AnyKernel::new(move |ctx| {
        let output = filled(ctx, &one, dtype, ctx.input(0)?.shape().clone())?;
        ctx.set_output(0, output)
    })
}

/// The scalar 1 of a dtype.
pub(crate) fn one(dtype: DType) -> Result<Tensor> {
    Ok(match dtype {
        DType::Float => Tensor::scalar(1f32),
        DType::Double => Tensor::scalar(1f64),
        DType::Half => Tensor::scalar(f16::ONE),
        DType::BFloat16 => Tensor::scalar(bf16::ONE),
        DType::Int8 => Tensor::scalar(1i8),
        DType::Int16 => Tensor::scalar(1i16),
        DType::Int32 => Tensor::scalar(1i32),
        DType::Int64 => Tensor::scalar(1i64),
        DType::UInt8 => Tensor::scalar(1u8),
        DType::UInt16 => Tensor::scalar(1u16),
        DType::UInt32 => Tensor::scalar(1u32),
        DType::UInt64 => Tensor::scalar(1u64),
        DType::Bool => Tensor::scalar(true),
        DType::Complex64 => Tensor::scalar(Complex32::new(1.0, 0.0)),
        DType::Complex128 => Tensor::scalar(Complex64::new(1.0, 0.0)),
        other => bail!(Unimplemented, "the number 1 does not exist in dtype {other}"),
    })
}

const RANGE: OpDef =
    OpDef::new("Range", range_shape).with_work(Work::moves).with_value(range_value);

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut size = None;
    if let (Some(start), Some(limit), Some(delta)) = (c.constant(0), c.constant(1), c.constant(2)) {
        size = match start.dtype() {
            DType::Float => constant_size::<f32>(&start, &limit, &delta)?,
            DType::Double => constant_size::<f64>(&start, &limit, &delta)?,
            DType::Half => constant_size::<f16>(&start, &limit, &delta)?,
            DType::BFloat16 => constant_size::<bf16>(&start, &limit, &delta)?,
            _ => None,
        };
    }
    if let (Some(start), Some(limit), Some(delta)) = range_bounds(|i| c.partial_value(i)) {
        size = Some(i64::range_size(start, limit, delta)?);
    }
    c.set_output(0, PartialShape::new([size]));
    Ok(())
}

fn range_bounds(
    mut input: impl FnMut(usize) -> Option<PartialValue>,
) -> (Option<i64>, Option<i64>, Option<i64>) {
    let mut bound = |i| input(i).and_then(|v| v.elements.first().copied().flatten());
    (bound(0), bound(1), bound(2))
}

fn constant_size<T: Ranged>(
    start: &Tensor,
    limit: &Tensor,
    delta: &Tensor,
) -> Result<Option<usize>> {
    let (start, limit, delta) =
        (start.scalar_value()?, limit.scalar_value()?, delta.scalar_value()?);
    T::range_size(start, limit, delta).map(Some)
}

fn range_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (Some(start), Some(limit), Some(delta)) = range_bounds(|i| c.input(i)) else { return None };
    let size = i64::range_size(start, limit, delta).ok().filter(|&n| n <= 1024)?;
    Some(PartialValue::vector((0..size).map(|i| Some(i64::at(start, delta, i)))))
}

/// Element types of ranges.
trait Ranged: Element {
    /// Number of elements from `start` up to but excluding `limit`.
    fn range_size(start: Self, limit: Self, delta: Self) -> Result<usize>;
    /// The `i`-th element.
    fn at(start: Self, delta: Self, i: usize) -> Self;

    /// Sets `part` to the elements from the `first`-th on.
    fn fill(part: &mut [Self], start: Self, delta: Self, first: usize) {
        for (i, x) in part.iter_mut().enumerate() {
            *x = Self::at(start, delta, first + i);
        }
    }
}

macro_rules! ranged_integers {
    ($($t:ty),+) => { $(
        impl Ranged for $t {
            fn range_size(start: Self, limit: Self, delta: Self) -> Result<usize> {
                ensure!(delta != 0, InvalidArgument, "Requires delta != 0: 0");
                check_direction(start <= limit, start >= limit, delta > 0, (&start, &limit))?;
                let count = start.abs_diff(limit).div_ceil(delta.unsigned_abs());
                usize::try_from(count)
                    .ok()
                    .filter(|&n| n <= i64::MAX as usize && i64::try_from(start.abs_diff(limit)).is_ok())
                    .ok_or_else(too_long)
            }

            fn at(start: Self, delta: Self, i: usize) -> Self {
                start.wrapping_add(delta.wrapping_mul(i as $t))
            }

            fn fill(part: &mut [Self], start: Self, delta: Self, first: usize) {
                // Repeated addition is as exact as multiplication here, and cheaper.
                let mut next = Self::at(start, delta, first);
                for x in part {
                    *x = next;
                    next = next.wrapping_add(delta);
                }
            }
        }
    )+ };
}

ranged_integers!(i32, i64);

macro_rules! ranged_floats {
    ($($t:ty: $from:expr;)+) => { $(
        impl Ranged for $t {
            fn range_size(start: Self, limit: Self, delta: Self) -> Result<usize> {
                let (a, b, step) = (f64::from(start), f64::from(limit), f64::from(delta));
                ensure!(step != 0.0, InvalidArgument, "Requires delta != 0: {delta}");
                check_direction(a <= b, a >= b, step > 0.0, (&start, &limit))?;
                let count = ((b - a) / step).abs().ceil();
                // The comparison also rejects NaN.
                ensure!(count < i64::MAX as f64, InvalidArgument, "{}", too_long().message());
                Ok(count as usize)
            }

            fn at(start: Self, delta: Self, i: usize) -> Self {
                #[allow(clippy::redundant_closure_call, reason = "one of the closures is a cast")]
                let i: $t = ($from)(i);
                start + i * delta
            }
        }
    )+ };
}

ranged_floats! {
    f32: |i| i as f32;
    f64: |i| i as f64;
    f16: |i| f16::from_f64(i as f64);
    bf16: |i| bf16::from_f64(i as f64);
}

fn check_direction(
    is_upward: bool,
    is_downward: bool,
    is_positive: bool,
    (start, limit): (&dyn std::fmt::Display, &dyn std::fmt::Display),
) -> Result<()> {
    let (is_right, order, sign) =
        if is_positive { (is_upward, "<=", '>') } else { (is_downward, ">=", '<') };
    ensure!(
        is_right,
        InvalidArgument,
        "Requires start {order} limit when delta {sign} 0: {start}/{limit}"
    );
    Ok(())
}

fn too_long() -> thalweg_tensor::Error {
    err!(InvalidArgument, "Requires ((limit - start) / delta) <= {}", i64::MAX)
}

fn range<T: Ranged>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let bound = |i: usize| ctx.input(i)?.scalar_value::<T>();
        let (start, limit, delta) = (bound(0)?, bound(1)?, bound(2)?);
        let size = T::range_size(start, limit, delta)?;
        let mut output = ctx.allocate_output(0, Shape::new(&[size])?)?;
        for_each_rows(ctx, output.as_mut_slice::<T>()?, 1, 0.5, |first, part| {
            T::fill(part, start, delta, first);
        })?;
        ctx.set_output(0, output)
    })
}

fn lower_range(l: &mut Lowering<'_>) -> Result<()> {
    let (start, delta, dims) = (l.input(0)?, l.input(2)?, l.output_dims(0)?);
    l.set(0, start.iota(start.dtype(), &dims, 0) * delta + start)
}

const LIN_SPACE: OpDef = OpDef::new("LinSpace", lin_space_shape).with_work(Work::per_output::<60>);

fn lin_space_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (i, name) in ["start", "stop", "num"].into_iter().enumerate() {
        c.with_rank(i, name, 0)?;
    }
    let size = match c.partial_value(2).and_then(|v| v.first()) {
        Some(num) => Some(positive(num)?),
        None => None,
    };
    c.set_output(0, PartialShape::new([size]));
    Ok(())
}

fn positive(num: i64) -> Result<usize> {
    ensure!(num > 0, InvalidArgument, "Requires num > 0: {num}");
    Ok(num as usize)
}

fn lin_space<T: Ranged + num_traits::Float>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        for (i, name) in ["start", "stop", "num"].into_iter().enumerate() {
            let shape = ctx.input(i)?.shape();
            ensure!(shape.rank() == 0, InvalidArgument, "{name} must be a scalar, not {shape}");
        }
        let (start, stop): (T, T) = (ctx.input(0)?.scalar_value()?, ctx.input(1)?.scalar_value()?);
        let num = positive(ctx.scalar_int(2, "num")?)?;
        let mut output = ctx.allocate_output(0, Shape::new(&[num])?)?;
        let step = (stop - start) / T::at(T::zero(), T::one(), num.max(2) - 1);
        let elements = output.as_mut_slice::<T>()?;
        for_each_rows(ctx, elements, 1, 0.5, |first, part| {
            T::fill(part, start, step, first);
        })?;
        if num > 1 {
            elements[num - 1] = stop;
        }
        ctx.set_output(0, output)
    })
}

fn lower_lin_space(l: &mut Lowering<'_>) -> Result<()> {
    let (start, stop, num) = (l.input(0)?, l.input(1)?, positive(l.int(2)?)?);
    let positions = start.iota(DType::Int64, &[num], 0);
    let steps = start.scalar_like((num.max(2) - 1) as f64);
    let step = (&stop - &start) / steps;
    let line = positions.convert(start.dtype()) * step + &start;
    let is_last = positions.compare_to(Comparison::Equal, (num.max(2) - 1) as f64);
    l.set(0, is_last.select(&stop, &line))
}

fn lower_empty(l: &mut Lowering<'_>) -> Result<()> {
    let zero = l.program().scalar(l.output_dtype(0), 0.0);
    l.set(0, zero.broadcast_to(&l.output_dims(0)?))
}

/// Zeroed even if `init` is false: recycled memory must not be disclosed.
fn empty(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let output = ctx.zeros(dtype, ctx.shape_input(0, "shape")?)?;
        ctx.set_output(0, output)
    })
}
