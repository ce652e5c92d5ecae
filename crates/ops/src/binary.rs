//! Element-wise binary arithmetic with broadcasting.

use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::{GradientContext, OpDef, Output, PartialValue, ValueContext, Work, shape};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{
    Budget, Bytes, Complex32, Complex64, DType, Result, StringBuilder, bf16, f16,
};

use crate::arithmetic::*;
use crate::broadcast::{Plan, broadcast_shape};
use crate::elementwise::binary;
use crate::gradients::{Arithmetic, conj, set_broadcast};
use crate::lowering::{self, is_zero, wide_binary};
use crate::number::Real;
use crate::work;

const ADD: OpDef = OpDef::new("Add", shape::broadcast)
    .with_value(|c| integers(c, i64::checked_add))
    .with_gradient(add_grad);

const ADD_V2: OpDef = OpDef::new("AddV2", shape::broadcast)
    .with_value(|c| integers(c, i64::checked_add))
    .with_gradient(add_grad);

const SUB: OpDef = OpDef::new("Sub", shape::broadcast)
    .with_value(|c| integers(c, i64::checked_sub))
    .with_gradient(sub_grad);

const MUL: OpDef = OpDef::new("Mul", shape::broadcast)
    .with_value(|c| integers(c, i64::checked_mul))
    .with_gradient(mul_grad);

const TRUNCATE_DIV: OpDef = OpDef::new("TruncateDiv", shape::broadcast)
    .with_work(work::division)
    .with_value(|c| integers(c, i64::checked_div))
    .without_gradient();

const FLOOR_DIV: OpDef = OpDef::new("FloorDiv", shape::broadcast)
    .with_work(work::division)
    .with_value(|c| integers(c, |x, y| (y != 0).then(|| x.floored_quotient(y))))
    .without_gradient();

const FLOOR_MOD: OpDef = OpDef::new("FloorMod", shape::broadcast)
    .with_work(Work::per_output::<300>)
    .with_value(|c| integers(c, |x, y| (y != 0).then(|| x.floored_remainder(y))))
    .with_gradient(floor_mod_grad);

const MAXIMUM: OpDef = OpDef::new("Maximum", shape::broadcast)
    .with_value(|c| integers(c, |x, y| Some(x.max(y))))
    .with_gradient(|g| extreme_grad(g, "GreaterEqual"));

const MINIMUM: OpDef = OpDef::new("Minimum", shape::broadcast)
    .with_value(|c| integers(c, |x, y| Some(x.min(y))))
    .with_gradient(|g| extreme_grad(g, "LessEqual"));

/// Kernels for all numeric dtypes.
macro_rules! number {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => binary::<$op>)
    };
}

/// Kernels for all real dtypes.
macro_rules! ordered {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64] => binary::<$op>)
    };
}

/// Kernels for real and complex floating-point dtypes.
macro_rules! floating {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, Complex32, Complex64] => binary::<$op>)
    };
}

pub(crate) static FAMILY: Family = Family {
    ops: &[
        ADD,
        ADD_V2,
        SUB,
        MUL,
        OpDef::new("MulNoNan", shape::broadcast).with_gradient(mul_no_nan_grad),
        OpDef::new("Div", shape::broadcast)
            .with_work(work::division)
            .with_gradient(|g| div_grad(g, "RealDiv")),
        OpDef::new("RealDiv", shape::broadcast).with_gradient(|g| div_grad(g, "RealDiv")),
        OpDef::new("DivNoNan", shape::broadcast).with_gradient(|g| div_grad(g, "DivNoNan")),
        TRUNCATE_DIV,
        FLOOR_DIV,
        OpDef::new("Mod", shape::broadcast).with_work(Work::per_output::<300>),
        FLOOR_MOD,
        OpDef::new("TruncateMod", shape::broadcast).with_work(Work::per_output::<300>),
        OpDef::new("Pow", shape::broadcast)
            .with_work(Work::per_output::<600>)
            .with_gradient(pow_grad),
        MAXIMUM,
        MINIMUM,
        OpDef::new("SquaredDifference", shape::broadcast)
            .with_work(Work::per_output::<2>)
            .with_gradient(squared_difference_grad),
        OpDef::new("Atan2", shape::broadcast)
            .with_work(Work::per_output::<2000>)
            .with_gradient(atan2_grad),
        OpDef::new("Xdivy", shape::broadcast).with_gradient(xdivy_grad),
        OpDef::new("Xlogy", shape::broadcast)
            .with_work(Work::per_output::<100>)
            .with_gradient(xlogy_grad),
        OpDef::new("Xlog1py", shape::broadcast)
            .with_work(Work::per_output::<100>)
            .with_gradient(xlog1py_grad),
        OpDef::new("NextAfter", shape::broadcast).with_gradient(next_after_grad),
        OpDef::new("Complex", shape::broadcast).with_work(Work::moves).with_gradient(complex_grad),
    ],
    kernels: &[
        cpu_kernel!("Add", "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, u8, Complex32, Complex64] => binary::<Add>),
        KernelSpec {
            op: "Add",
            constraints: &[("T", &[DType::String])],
            create: add_strings,
            ..KernelSpec::CPU
        },
        number!("AddV2", Add),
        number!("Sub", Sub),
        number!("Mul", Mul),
        floating!("MulNoNan", MulNoNan),
        number!("Div", Div),
        floating!("RealDiv", Div),
        floating!("DivNoNan", DivNoNan),
        ordered!("TruncateDiv", TruncateDiv),
        ordered!("FloorDiv", FloorDiv),
        cpu_kernel!("Mod", "T" in [f32, f64, i32, i64] => binary::<Mod>),
        ordered!("FloorMod", FloorMod),
        cpu_kernel!("TruncateMod", "T" in [f32, f64, i32, i64] => binary::<TruncateMod>),
        cpu_kernel!("Pow", "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, Complex32, Complex64] => binary::<Pow>),
        ordered!("Maximum", Maximum),
        ordered!("Minimum", Minimum),
        cpu_kernel!("SquaredDifference", "T" in [f16, bf16, f32, f64, i32, i64, Complex32, Complex64] => binary::<SquaredDifference>),
        cpu_kernel!("Atan2", "T" in [f16, bf16, f32, f64] => binary::<Atan2>),
        floating!("Xdivy", Xdivy),
        floating!("Xlogy", Xlogy),
        floating!("Xlog1py", Xlog1py),
        cpu_kernel!("NextAfter", "T" in [f32, f64] => binary::<NextAfter>),
        cpu_kernel!("Complex", "T" in [f32, f64] => binary::<MakeComplex>),
        KernelSpec::lowering("Add", |l| l.binary(Value::plus)),
        KernelSpec::lowering("AddV2", |l| l.binary(Value::plus)),
        KernelSpec::lowering("Sub", |l| l.binary(Value::minus)),
        KernelSpec::lowering("Mul", |l| l.binary(Value::times)),
        KernelSpec::lowering("MulNoNan", |l| {
            wide_binary(l, |x, y| is_zero(y).select(&y.zeros_like(), &(x * y)))
        }),
        KernelSpec::lowering("Div", |l| wide_binary(l, Value::divided_by)),
        KernelSpec::lowering("RealDiv", |l| wide_binary(l, Value::divided_by)),
        KernelSpec::lowering("DivNoNan", |l| {
            wide_binary(l, |x, y| is_zero(y).select(&y.zeros_like(), &(x / y)))
        }),
        KernelSpec::lowering("TruncateDiv", |l| wide_binary(l, lowering::truncated_quotient)),
        KernelSpec::lowering("FloorDiv", |l| wide_binary(l, lowering::floored_quotient)),
        KernelSpec::lowering("Mod", |l| wide_binary(l, Value::remainder)),
        KernelSpec::lowering("FloorMod", |l| wide_binary(l, lowering::floored_remainder)),
        KernelSpec::lowering("TruncateMod", |l| wide_binary(l, Value::remainder)),
        KernelSpec::lowering("Pow", |l| wide_binary(l, power)),
        KernelSpec::lowering("Maximum", |l| wide_binary(l, lowering::maximum)),
        KernelSpec::lowering("Minimum", |l| wide_binary(l, lowering::minimum)),
        KernelSpec::lowering("SquaredDifference", |l| wide_binary(l, squared_difference)),
        KernelSpec::lowering("Atan2", |l| wide_binary(l, Value::atan2)),
        KernelSpec::lowering("Xdivy", |l| wide_binary(l, |x, y| is_zero(x).select(x, &(x / y)))),
        KernelSpec::lowering("Xlogy", |l| {
            wide_binary(l, |x, y| is_zero(x).select(x, &(x * y.log())))
        }),
        KernelSpec::lowering("Xlog1py", |l| {
            wide_binary(l, |x, y| is_zero(x).select(x, &(x * y.log_plus_one())))
        }),
        KernelSpec::lowering("NextAfter", |l| wide_binary(l, lowering::next_after)),
        KernelSpec::lowering("Complex", |l| wide_binary(l, Value::complex)),
    ],
};

/// Everything to the power of 0 is 1, also NaN.
fn power(x: &Value, y: &Value) -> Value {
    match x.dtype().is_complex() || x.dtype().is_integer() {
        true => x.power(y),
        false => is_zero(y).select(&x.ones_like(), &x.power(y)),
    }
}

/// |x - y|².
fn squared_difference(x: &Value, y: &Value) -> Value {
    let difference = x - y;
    &difference * difference.conjugate()
}

fn add_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    set_broadcast(g, (0, Some(grad)), (1, Some(grad)))
}

fn sub_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let negative = g.negated(grad)?;
    set_broadcast(g, (0, Some(grad)), (1, Some(negative)))
}

fn mul_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let (x, y) = (conj(g, x)?, conj(g, y)?);
    let (of_x, of_y) = (g.times(grad, y)?, g.times(x, grad)?);
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

fn mul_no_nan_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let (of_x, of_y) = (g.add("MulNoNan", &[grad, y])?, g.add("MulNoNan", &[x, grad])?);
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

/// Gradient of a quotient that the op `divide` computes.
fn div_grad(g: &mut GradientContext<'_>, divide: &str) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let (x, y) = (conj(g, x)?, conj(g, y)?);
    let of_x = g.add(divide, &[grad, y])?;
    let negative = g.negated(x)?;
    let quotient = g.add(divide, &[negative, y])?;
    let slope = g.add(divide, &[quotient, y])?;
    let of_y = g.times(grad, slope)?;
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

/// x mod y = x - y floor(x / y).
fn floor_mod_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let quotient = g.add("FloorDiv", &[x, y])?;
    let slope = g.negated(quotient)?;
    let of_y = g.times(grad, slope)?;
    set_broadcast(g, (0, Some(grad)), (1, Some(of_y)))
}

/// d/dx = y x^(y-1); d/dy = x^y ln x, and 0 where the logarithm is not real.
fn pow_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y, z) = (g.grad(0)?, g.input(0), g.input(1), g.output(0));
    let (x, y, z) = (conj(g, x)?, conj(g, y)?, conj(g, z)?);
    let less = g.shifted(y, -1.0)?;
    let power = g.add("Pow", &[x, less])?;
    let scaled = g.times(grad, y)?;
    let of_x = g.times(scaled, power)?;
    let zero = g.number_like(x, 0.0)?;
    let compare = if g.dtype(x).is_complex() { "NotEqual" } else { "Greater" };
    let has_logarithm = g.add(compare, &[x, zero])?;
    // Replaces arguments without a logarithm by 1: the branch that is not selected must not be NaN
    // either.
    let one = g.number_like(x, 1.0)?;
    let safe = g.select(has_logarithm, x, one)?;
    let logarithm = g.add("Log", &[safe])?;
    let product = g.times(grad, z)?;
    let of_y = g.times(product, logarithm)?;
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

/// Sends the adjoint to `x` where it compares so with `y`, else to `y`; for equal elements `x` gets
/// it.
fn extreme_grad(g: &mut GradientContext<'_>, compare: &str) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let is_first = g.add(compare, &[x, y])?;
    let zero = g.number_like(grad, 0.0)?;
    let (of_x, of_y) = (g.select(is_first, grad, zero)?, g.select(is_first, zero, grad)?);
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

fn squared_difference_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.input(1));
    let (doubled, difference) = (g.scaled(grad, 2.0)?, g.minus(x, y)?);
    let of_x = g.times(doubled, difference)?;
    let of_y = g.negated(of_x)?;
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

fn atan2_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, y, x) = (g.grad(0)?, g.input(0), g.input(1));
    let (y_squared, x_squared) = (g.squared(y)?, g.squared(x)?);
    let radius_squared = g.plus(y_squared, x_squared)?;
    let quotient = g.over(grad, radius_squared)?;
    let of_y = g.times(x, quotient)?;
    let negative = g.negated(y)?;
    let of_x = g.times(negative, quotient)?;
    set_broadcast(g, (0, Some(of_y)), (1, Some(of_x)))
}

/// 1 where `x` is not 0, else 0, in the dtype of `x`.
fn nonzero(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let zero = g.number_like(x, 0.0)?;
    let is_nonzero = g.add("NotEqual", &[x, zero])?;
    let dtype = g.dtype(x);
    g.cast(is_nonzero, dtype)
}

/// Sets both adjoints from the derivatives with respect to `x` and `y`.
fn set_slopes(g: &mut GradientContext<'_>, by_x: Output, by_y: Output) -> Result<()> {
    let grad = g.grad(0)?;
    let (of_x, of_y) = (g.times(by_x, grad)?, g.times(by_y, grad)?);
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

fn xdivy_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (x, y) = (g.input(0), g.input(1));
    let (nonzero, negative, square) = (nonzero(g, x)?, g.negated(x)?, g.squared(y)?);
    let (by_x, by_y) = (g.add("Xdivy", &[nonzero, y])?, g.add("Xdivy", &[negative, square])?);
    set_slopes(g, by_x, by_y)
}

fn xlogy_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (x, y) = (g.input(0), g.input(1));
    let nonzero = nonzero(g, x)?;
    let (by_x, by_y) = (g.add("Xlogy", &[nonzero, y])?, g.add("Xdivy", &[x, y])?);
    set_slopes(g, by_x, by_y)
}

fn xlog1py_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (x, y) = (g.input(0), g.input(1));
    let (nonzero, shifted) = (nonzero(g, x)?, g.shifted(y, 1.0)?);
    let (by_x, by_y) = (g.add("Xlog1py", &[nonzero, y])?, g.add("Xdivy", &[x, shifted])?);
    set_slopes(g, by_x, by_y)
}

/// The derivative with respect to `x` is 1, with respect to `y` 0.
fn next_after_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.input(1));
    set_broadcast(g, (0, Some(grad)), (1, None))?;
    let zeros = g.add("ZerosLike", &[y])?;
    g.set(1, zeros)
}

fn complex_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let tout = g.dtype(x);
    let of_x = g.op("Real").input(grad).attr("Tout", tout).build()?;
    let of_y = g.op("Imag").input(grad).attr("Tout", tout).build()?;
    set_broadcast(g, (0, Some(of_x)), (1, Some(of_y)))
}

/// The static value of an integer op on scalars and vectors, for shape inference.
fn integers(c: &mut ValueContext<'_>, apply: fn(i64, i64) -> Option<i64>) -> Option<PartialValue> {
    let (x, y) = (c.input(0)?, c.input(1)?);
    let (x_len, y_len) = (x.elements.len(), y.elements.len());
    if x_len != y_len && x_len != 1 && y_len != 1 {
        return None;
    }
    let len = if x_len == 1 { y_len } else { x_len };
    let at = |v: &PartialValue, i: usize| v.elements[if v.elements.len() == 1 { 0 } else { i }];
    let elements: SmallVec<[Option<i64>; 4]> =
        (0..len).map(|i| apply(at(&x, i)?, at(&y, i)?)).collect();
    Some(PartialValue { elements, is_scalar: x.is_scalar && y.is_scalar })
}

/// `Add` of strings concatenates them.
fn add_strings(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        let shape = broadcast_shape(&[x.shape(), y.shape()])?;
        let plan = Plan::new(&shape, [x.shape(), y.shape()]);
        let mut out = ctx.zeros(DType::String, shape)?;
        let (x, y) = (x.strings()?, y.strings()?);
        let (strides, n) = (plan.row_strides(), out.num_elements());
        let strings = out.strings_mut()?;
        let mut failure = None;
        plan.for_each_row(0..n, |[i, j], position, len| {
            for k in 0..len {
                match join(&x[i + k * strides[0]], &y[j + k * strides[1]], ctx.budget()) {
                    Ok(joined) => strings[position + k] = joined,
                    Err(e) => failure = Some(e),
                }
            }
        });
        failure.map_or(Ok(()), Err)?;
        ctx.set_output(0, out)
    })
}

fn join(x: &Bytes, y: &Bytes, budget: &Arc<Budget>) -> Result<Bytes> {
    if y.is_empty() {
        return Ok(x.clone());
    }
    let mut joined = StringBuilder::new(budget);
    joined.reserve(x.len() + y.len())?;
    joined.push(x)?;
    joined.push(y)?;
    joined.take()
}
