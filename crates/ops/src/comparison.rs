//! Comparisons and logical ops with broadcasting.

use thalweg_graph::{OpDef, ShapeContext, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{
    Bytes, Complex32, Complex64, DType, Element, PartialShape, QInt8, QInt16, QInt32, QUInt8,
    QUInt16, Result, Tensor, bf16, ensure, f16,
};

use crate::broadcast::{Plan, broadcast_shape};
use crate::elementwise::{Binary, BinaryKernel, Operand, binary};
use crate::lowering::check_same_shapes;
use crate::math::simd::Level;
use crate::number::Real;
use crate::split::for_each_rows;

/// `z = x ? y`, a bool for each pair of elements.
const fn compare(name: &'static str) -> OpDef {
    OpDef::new(name, shape::broadcast).without_gradient()
}

/// Equality, which with `incompatible_shape_error` false has a result for shapes that do not
/// broadcast.
const fn equality(name: &'static str) -> OpDef {
    OpDef { shape: equality_shape, ..compare(name) }
}

const APPROXIMATE_EQUAL: OpDef = OpDef { shape: shape::merged, ..compare("ApproximateEqual") };

macro_rules! ordered {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64] => binary::<$op>)
    };
}

macro_rules! equality {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [
            f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64,
            QInt8, QInt16, QInt32, QUInt8, QUInt16,
        ] => equal::<$op>)
    };
}

pub(crate) static FAMILY: Family = Family {
    ops: &[
        equality("Equal"),
        equality("NotEqual"),
        compare("Less"),
        compare("LessEqual"),
        compare("Greater"),
        compare("GreaterEqual"),
        APPROXIMATE_EQUAL,
        compare("LogicalAnd"),
        compare("LogicalOr"),
    ],
    kernels: &[
        equality!("Equal", Equal),
        KernelSpec {
            op: "Equal",
            constraints: &[("T", &[DType::String])],
            create: |init| equal_strings(init, true),
            ..KernelSpec::CPU
        },
        equality!("NotEqual", NotEqual),
        KernelSpec {
            op: "NotEqual",
            constraints: &[("T", &[DType::String])],
            create: |init| equal_strings(init, false),
            ..KernelSpec::CPU
        },
        ordered!("Less", Less),
        ordered!("LessEqual", LessEqual),
        ordered!("Greater", Greater),
        ordered!("GreaterEqual", GreaterEqual),
        cpu_kernel!("ApproximateEqual", "T" in [f32, f64] => approximate_equal),
        KernelSpec { op: "LogicalAnd", create: binary::<And, bool>, ..KernelSpec::CPU },
        KernelSpec { op: "LogicalOr", create: binary::<Or, bool>, ..KernelSpec::CPU },
        KernelSpec::lowering("Equal", |l| lower_equality(l, Comparison::Equal)),
        KernelSpec::lowering("NotEqual", |l| lower_equality(l, Comparison::NotEqual)),
        KernelSpec::lowering("Less", |l| l.binary(|x, y| x.compare(Comparison::Less, y))),
        KernelSpec::lowering("LessEqual", |l| l.binary(|x, y| x.compare(Comparison::LessEqual, y))),
        KernelSpec::lowering("Greater", |l| l.binary(|x, y| x.compare(Comparison::Greater, y))),
        KernelSpec::lowering("GreaterEqual", |l| {
            l.binary(|x, y| x.compare(Comparison::GreaterEqual, y))
        }),
        KernelSpec::lowering("ApproximateEqual", |l| {
            let tolerance = f64::from(l.attrs().float("tolerance")?);
            check_same_shapes(l, 0)?;
            l.binary(|x, y| (x - y).abs().compare_to(Comparison::Less, tolerance))
        }),
        KernelSpec::lowering("LogicalAnd", |l| l.binary(Value::and)),
        KernelSpec::lowering("LogicalOr", |l| l.binary(Value::or)),
    ],
};

macro_rules! tests {
    ($($(#[$doc:meta])* $op:ident: $kind:ident, |$x:ident, $y:ident| $value:expr;)+) => { $(
        $(#[$doc])*
        struct $op;

        impl<T: $kind> Binary<T> for $op {
            type Out = bool;

            #[inline(always)]
            fn apply<L: Level>($x: T, $y: T) -> bool {
                $value
            }
        }
    )+ };
}

tests! {
    /// x = y.
    Equal: Element, |x, y| x == y;
    /// x ≠ y.
    NotEqual: Element, |x, y| x != y;
    /// x < y.
    Less: Real, |x, y| x < y;
    /// x ≤ y.
    LessEqual: Real, |x, y| x <= y;
    /// x > y.
    Greater: Real, |x, y| x > y;
    /// x ≥ y.
    GreaterEqual: Real, |x, y| x >= y;
}

/// Both.
struct And;

impl Binary<bool> for And {
    type Out = bool;

    #[inline(always)]
    fn apply<L: Level>(x: bool, y: bool) -> bool {
        x & y
    }
}

/// Either.
struct Or;

impl Binary<bool> for Or {
    type Out = bool;

    #[inline(always)]
    fn apply<L: Level>(x: bool, y: bool) -> bool {
        x | y
    }
}

fn equality_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.attrs().bool("incompatible_shape_error")? {
        return shape::broadcast(c);
    }
    // Shapes that do not broadcast give a scalar, so the result's shape is known only if both
    // shapes are and broadcast.
    let (x, y) = (c.input(0), c.input(1));
    let known = x.to_shape().is_some() && y.to_shape().is_some();
    let result = match shape::broadcast_shapes(x, y) {
        Ok(shape) if known => shape,
        Ok(_) => PartialShape::unknown(),
        Err(_) => PartialShape::scalar(),
    };
    c.set_output(0, result);
    Ok(())
}

/// The result for shapes that do not broadcast, unless that is an error.
fn incompatible_result(init: &KernelInit<'_>) -> Result<Option<bool>> {
    let fails = init.attrs().bool("incompatible_shape_error")?;
    Ok((!fails).then(|| init.node.op.name == "NotEqual"))
}

fn lower_equality(l: &mut Lowering<'_>, comparison: Comparison) -> Result<()> {
    let (x, y) = (l.input(0)?, l.input(1)?);
    let fits = shape::broadcast_shapes(
        &PartialShape::new(x.dims().iter().map(|&d| Some(d))),
        &PartialShape::new(y.dims().iter().map(|&d| Some(d))),
    );
    if fits.is_err() && !l.attrs().bool("incompatible_shape_error")? {
        let result = f64::from(comparison == Comparison::NotEqual);
        return l.set(0, l.program().scalar(DType::Bool, result));
    }
    l.set(0, x.compare(comparison, &y))
}

fn fits(x: &Tensor, y: &Tensor) -> bool {
    broadcast_shape(&[x.shape(), y.shape()]).is_ok()
}

fn equal<Op, T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Op: Binary<T::Compute, Out = bool>,
    T: Operand,
{
    let Some(misfit) = incompatible_result(init)? else { return binary::<Op, T>(init) };
    let kernel = BinaryKernel::new::<Op, T>(init)?;
    AnyKernel::new(move |ctx| {
        if !fits(ctx.input(0)?, ctx.input(1)?) {
            return ctx.set_output(0, Tensor::scalar(misfit));
        }
        kernel.compute(ctx)
    })
}

fn equal_strings(init: &KernelInit<'_>, is_equal: bool) -> Result<AnyKernel> {
    let misfit = incompatible_result(init)?;
    AnyKernel::new(move |ctx| {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        if let Some(misfit) = misfit
            && !fits(x, y)
        {
            return ctx.set_output(0, Tensor::scalar(misfit));
        }
        let shape = broadcast_shape(&[x.shape(), y.shape()])?;
        let plan = Plan::new(&shape, [x.shape(), y.shape()]);
        let mut out = ctx.allocate(DType::Bool, shape)?;
        let (x, y): (&[Bytes], &[Bytes]) = (x.strings()?, y.strings()?);
        let [x_stride, y_stride] = plan.row_strides();
        for_each_rows(ctx, out.as_mut_slice::<bool>()?, 1, 10.0, |first, part| {
            plan.for_each_row(first..first + part.len(), |[i, j], position, len| {
                for k in 0..len {
                    let same = x[i + k * x_stride] == y[j + k * y_stride];
                    part[position - first + k] = same == is_equal;
                }
            });
        })?;
        ctx.set_output(0, out)
    })
}

/// |x - y| < tolerance; the shapes must be the same.
fn approximate_equal<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Real + From<f32>,
{
    let tolerance = T::from(init.attrs().float("tolerance")?);
    AnyKernel::new(move |ctx| {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            x.shape() == y.shape(),
            InvalidArgument,
            "x and y must have one shape, got {} and {}",
            x.shape(),
            y.shape()
        );
        let mut out = ctx.allocate(DType::Bool, x.shape().clone())?;
        let (x, y) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
        for_each_rows(ctx, out.as_mut_slice::<bool>()?, 1, 0.5, |first, part| {
            let range = first..first + part.len();
            for ((out, &x), &y) in part.iter_mut().zip(&x[range.clone()]).zip(&y[range]) {
                *out = x.minus(y).magnitude() < tolerance;
            }
        })?;
        ctx.set_output(0, out)
    })
}
