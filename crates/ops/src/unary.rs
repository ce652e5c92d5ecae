//! Unary elementwise ops and their gradient ops.

use std::f64::consts::FRAC_2_SQRT_PI;

use thalweg_graph::{GradientContext, OpDef, Output, Work, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{Family, KernelSpec};
use thalweg_tensor::{Complex32, Complex64, DType, Result, bf16, f16};

use crate::elementwise::{Binary, binary_same_size, unary};
use crate::functions::*;
use crate::gradients::{Arithmetic, chain_input, chain_output, conj};
use crate::lowering::{self, wide_pairs, wide_unary};
use crate::math::simd::Level;
use crate::number::Number;
use crate::special_lowering::{erfc, in_double, lower_erf};
use crate::work;

const ABS: OpDef = OpDef::new("Abs", shape::unchanged)
    .with_gradient(|g| chain_input(g, |g, x| g.add("Sign", &[x])));

const SQUARE: OpDef = OpDef::new("Square", shape::unchanged)
    .with_gradient(|g| chain_input(g, |g, x| g.scaled(x, 2.0)));

/// A function that a polynomial evaluates.
const fn transcendental(name: &'static str) -> OpDef {
    OpDef::new(name, shape::unchanged).with_work(work::function::<60>)
}

/// A function that the mathematical library evaluates for one number at a time.
const fn library(name: &'static str) -> OpDef {
    OpDef::new(name, shape::unchanged).with_work(Work::per_output::<1500>)
}

/// Kernels for real and complex floating-point dtypes.
macro_rules! floating {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, Complex32, Complex64] => unary::<$op>)
    };
}

/// Kernels for real floating-point dtypes.
macro_rules! real {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64] => unary::<$op>)
    };
}

/// Kernels of a gradient op.
macro_rules! gradient {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, Complex32, Complex64] => binary_same_size::<$op>)
    };
}

pub(crate) static FAMILY: Family = Family {
    ops: &[
        ABS,
        OpDef::new("Neg", shape::unchanged).with_gradient(|g| through(g, "Neg")),
        OpDef::new("Sign", shape::unchanged).with_gradient(zero_grad),
        SQUARE,
        OpDef::new("Sqrt", shape::unchanged).with_gradient(|g| by_grad_op(g, "SqrtGrad")),
        OpDef::new("Rsqrt", shape::unchanged)
            .with_work(Work::per_output::<2>)
            .with_gradient(|g| by_grad_op(g, "RsqrtGrad")),
        OpDef::new("Reciprocal", shape::unchanged)
            .with_gradient(|g| by_grad_op(g, "ReciprocalGrad")),
        OpDef::new("Inv", shape::unchanged).with_gradient(|g| by_grad_op(g, "ReciprocalGrad")),
        transcendental("Exp").with_gradient(|g| chain_output(g, |_, y| Ok(y))),
        transcendental("Expm1").with_gradient(|g| chain_input(g, |g, x| g.add("Exp", &[x]))),
        transcendental("Log").with_gradient(|g| chain_input(g, |g, x| g.reciprocal(x))),
        transcendental("Log1p").with_gradient(log1p_grad),
        transcendental("Sin")
            .with_work(work::function::<150>)
            .with_gradient(|g| chain_input(g, |g, x| g.add("Cos", &[x]))),
        transcendental("Cos").with_work(work::function::<150>).with_gradient(cos_grad),
        library("Tan").with_gradient(tan_grad),
        library("Asin").with_gradient(|g| chain_input(g, asin_slope)),
        library("Acos").with_gradient(acos_grad),
        library("Atan").with_gradient(atan_grad),
        library("Sinh").with_gradient(|g| chain_input(g, |g, x| g.add("Cosh", &[x]))),
        library("Cosh").with_gradient(|g| chain_input(g, |g, x| g.add("Sinh", &[x]))),
        transcendental("Tanh").with_gradient(|g| by_conjugating_grad_op(g, "TanhGrad")),
        library("Asinh").with_gradient(|g| over_function_of_output(g, "Cosh")),
        library("Acosh").with_gradient(|g| over_function_of_output(g, "Sinh")),
        library("Atanh").with_gradient(atanh_grad),
        transcendental("Sigmoid").with_gradient(|g| by_conjugating_grad_op(g, "SigmoidGrad")),
        transcendental("Erf").with_gradient(|g| chain_input(g, |g, x| gauss(g, x, FRAC_2_SQRT_PI))),
        library("Erfc").with_gradient(|g| chain_input(g, |g, x| gauss(g, x, -FRAC_2_SQRT_PI))),
        OpDef::new("Floor", shape::unchanged).without_gradient(),
        OpDef::new("Ceil", shape::unchanged).without_gradient(),
        OpDef::new("Rint", shape::unchanged).without_gradient(),
        OpDef::new("Round", shape::unchanged).without_gradient(),
        OpDef::new("IsNan", shape::unchanged),
        OpDef::new("IsInf", shape::unchanged),
        OpDef::new("IsFinite", shape::unchanged),
        OpDef::new("LogicalNot", shape::unchanged).without_gradient(),
        OpDef::new("Conj", shape::unchanged)
            .with_work(Work::moves)
            .with_gradient(|g| through(g, "Conj")),
        OpDef::new("Real", shape::unchanged).with_work(Work::moves).with_gradient(real_grad),
        OpDef::new("Imag", shape::unchanged).with_work(Work::moves).with_gradient(imag_grad),
        library("Angle").with_gradient(angle_grad),
        OpDef::new("ComplexAbs", shape::unchanged)
            .with_work(Work::per_output::<300>)
            .with_gradient(complex_abs_grad),
        OpDef::new("TanhGrad", shape::unchanged).with_gradient(tanh_grad_grad),
        OpDef::new("SigmoidGrad", shape::unchanged).with_gradient(sigmoid_grad_grad),
        OpDef::new("SqrtGrad", shape::unchanged).with_gradient(sqrt_grad_grad),
        OpDef::new("RsqrtGrad", shape::unchanged)
            .with_work(Work::per_output::<4>)
            .with_gradient(rsqrt_grad_grad),
        OpDef::new("ReciprocalGrad", shape::unchanged).with_gradient(reciprocal_grad_grad),
        OpDef::new("InvGrad", shape::unchanged).with_gradient(reciprocal_grad_grad),
    ],
    kernels: &[
        cpu_kernel!("Abs", "T" in [f16, bf16, f32, f64, i8, i16, i32, i64] => unary::<Abs>),
        cpu_kernel!("Neg", "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, Complex32, Complex64] => unary::<Neg>),
        cpu_kernel!("Sign", "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, Complex32, Complex64] => unary::<Sign>),
        cpu_kernel!("Square", "T" in [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => unary::<Square>),
        floating!("Sqrt", Sqrt),
        floating!("Rsqrt", Rsqrt),
        floating!("Reciprocal", Reciprocal),
        floating!("Inv", Reciprocal),
        floating!("Exp", Exp),
        floating!("Expm1", Expm1),
        floating!("Log", Log),
        floating!("Log1p", Log1p),
        floating!("Sin", Sin),
        floating!("Cos", Cos),
        floating!("Tan", Tan),
        floating!("Asin", Asin),
        floating!("Acos", Acos),
        floating!("Atan", Atan),
        floating!("Sinh", Sinh),
        floating!("Cosh", Cosh),
        floating!("Tanh", Tanh),
        floating!("Asinh", Asinh),
        floating!("Acosh", Acosh),
        floating!("Atanh", Atanh),
        floating!("Sigmoid", Sigmoid),
        real!("Erf", Erf),
        real!("Erfc", Erfc),
        real!("Floor", Floor),
        real!("Ceil", Ceil),
        cpu_kernel!("Rint", "T" in [f32, f64] => unary::<Round>),
        cpu_kernel!("Round", "T" in [f16, bf16, f32, f64, i32, i64] => unary::<Round>),
        real!("IsNan", IsNan),
        real!("IsInf", IsInf),
        real!("IsFinite", IsFinite),
        KernelSpec { op: "LogicalNot", create: unary::<LogicalNot, bool>, ..KernelSpec::CPU },
        cpu_kernel!("Conj", "T" in [Complex32, Complex64] => unary::<Conj>),
        cpu_kernel!("Real", "T" in [Complex32, Complex64] => unary::<RealPart>),
        cpu_kernel!("Imag", "T" in [Complex32, Complex64] => unary::<ImaginaryPart>),
        cpu_kernel!("Angle", "T" in [Complex32, Complex64] => unary::<Angle>),
        cpu_kernel!("ComplexAbs", "T" in [Complex32, Complex64] => unary::<ComplexAbs>),
        gradient!("TanhGrad", TanhGrad),
        gradient!("SigmoidGrad", SigmoidGrad),
        gradient!("SqrtGrad", SqrtGrad),
        gradient!("RsqrtGrad", RsqrtGrad),
        gradient!("ReciprocalGrad", ReciprocalGrad),
        gradient!("InvGrad", ReciprocalGrad),
        KernelSpec::lowering("Abs", |l| wide_unary(l, Value::abs)),
        KernelSpec::lowering("Neg", |l| wide_unary(l, Value::negate)),
        KernelSpec::lowering("Sign", |l| wide_unary(l, Value::sign)),
        KernelSpec::lowering("Square", |l| wide_unary(l, Value::square)),
        KernelSpec::lowering("Sqrt", |l| wide_unary(l, Value::sqrt)),
        KernelSpec::lowering("Rsqrt", |l| wide_unary(l, Value::rsqrt)),
        KernelSpec::lowering("Reciprocal", |l| wide_unary(l, Value::reciprocal)),
        KernelSpec::lowering("Inv", |l| wide_unary(l, Value::reciprocal)),
        KernelSpec::lowering("Exp", |l| wide_unary(l, Value::exp)),
        KernelSpec::lowering("Expm1", |l| wide_unary(l, Value::exp_minus_one)),
        KernelSpec::lowering("Log", |l| wide_unary(l, Value::log)),
        KernelSpec::lowering("Log1p", |l| wide_unary(l, Value::log_plus_one)),
        KernelSpec::lowering("Sin", |l| wide_unary(l, Value::sine)),
        KernelSpec::lowering("Cos", |l| wide_unary(l, Value::cosine)),
        KernelSpec::lowering("Tan", |l| wide_unary(l, Value::tan)),
        KernelSpec::lowering("Asin", |l| wide_unary(l, lowering::asin)),
        KernelSpec::lowering("Acos", |l| wide_unary(l, lowering::acos)),
        KernelSpec::lowering("Atan", |l| wide_unary(l, lowering::atan)),
        KernelSpec::lowering("Sinh", |l| wide_unary(l, lowering::sinh)),
        KernelSpec::lowering("Cosh", |l| wide_unary(l, lowering::cosh)),
        KernelSpec::lowering("Tanh", |l| wide_unary(l, Value::tanh)),
        KernelSpec::lowering("Asinh", |l| wide_unary(l, lowering::asinh)),
        KernelSpec::lowering("Acosh", |l| wide_unary(l, lowering::acosh)),
        KernelSpec::lowering("Atanh", |l| wide_unary(l, lowering::atanh)),
        KernelSpec::lowering("Sigmoid", |l| wide_unary(l, Value::logistic)),
        KernelSpec::lowering("Erf", lower_erf),
        KernelSpec::lowering("Erfc", |l| in_double(l, erfc)),
        KernelSpec::lowering("Floor", |l| wide_unary(l, Value::floor)),
        KernelSpec::lowering("Ceil", |l| wide_unary(l, Value::ceil)),
        KernelSpec::lowering("Rint", |l| wide_unary(l, Value::round_half_even)),
        KernelSpec::lowering("Round", |l| wide_unary(l, round)),
        KernelSpec::lowering("IsNan", |l| wide_unary(l, Value::is_nan)),
        KernelSpec::lowering("IsInf", |l| wide_unary(l, is_infinite)),
        KernelSpec::lowering("IsFinite", |l| wide_unary(l, Value::is_finite)),
        KernelSpec::lowering("LogicalNot", |l| wide_unary(l, Value::not)),
        KernelSpec::lowering("Conj", |l| wide_unary(l, Value::conjugate)),
        KernelSpec::lowering("Real", |l| wide_unary(l, Value::real)),
        KernelSpec::lowering("Imag", |l| wide_unary(l, Value::imaginary)),
        KernelSpec::lowering("Angle", |l| wide_unary(l, |x| x.imaginary().atan2(&x.real()))),
        KernelSpec::lowering("ComplexAbs", |l| wide_unary(l, Value::abs)),
        KernelSpec::lowering("TanhGrad", |l| {
            wide_pairs(l, |y, dy| dy * (y.ones_like() - y.square()))
        }),
        KernelSpec::lowering("SigmoidGrad", |l| {
            wide_pairs(l, |y, dy| dy * y * (y.ones_like() - y))
        }),
        KernelSpec::lowering("SqrtGrad", |l| wide_pairs(l, |y, dy| dy * 0.5 / y.conjugate())),
        KernelSpec::lowering("RsqrtGrad", |l| {
            wide_pairs(l, |y, dy| dy * -0.5 * (y.square() * y).conjugate())
        }),
        KernelSpec::lowering("ReciprocalGrad", |l| {
            wide_pairs(l, |y, dy| dy.negate() * y.square().conjugate())
        }),
        KernelSpec::lowering("InvGrad", |l| {
            wide_pairs(l, |y, dy| dy.negate() * y.square().conjugate())
        }),
    ],
};

/// To the nearest integer; integers to 0, as in TensorFlow.
fn round(x: &Value) -> Value {
    if x.dtype().is_integer() { x.zeros_like() } else { x.round_half_even() }
}

fn is_infinite(x: &Value) -> Value {
    x.abs().compare(Comparison::Equal, &x.highest_like())
}

/// The op is linear, so the gradient is the op applied to the adjoint.
fn through(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let adjoint = g.add(op, &[grad])?;
    g.set(0, adjoint)
}

fn zero_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let zeros = g.add("ZerosLike", &[g.input(0)])?;
    g.set(0, zeros)
}

/// The gradient as an op of the result and its adjoint, which conjugates the result itself.
fn by_grad_op(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let adjoint = g.add(op, &[y, grad])?;
    g.set(0, adjoint)
}

/// The gradient as an op of the conjugated result and its adjoint.
fn by_conjugating_grad_op(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let y = conj(g, y)?;
    let adjoint = g.add(op, &[y, grad])?;
    g.set(0, adjoint)
}

/// The adjoint divided by `op` of the result.
fn over_function_of_output(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let y = conj(g, y)?;
    let divisor = g.add(op, &[y])?;
    let adjoint = g.over(grad, divisor)?;
    g.set(0, adjoint)
}

fn log1p_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let shifted = g.shifted(x, 1.0)?;
        g.reciprocal(shifted)
    })
}

fn cos_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let sin = g.add("Sin", &[x])?;
        g.negated(sin)
    })
}

fn tan_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let cos = g.add("Cos", &[x])?;
        let secant = g.reciprocal(cos)?;
        g.squared(secant)
    })
}

/// (1 - x²)^-1/2.
fn asin_slope(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let square = g.squared(x)?;
    let rest = g.number_minus(1.0, square)?;
    let root = g.add("Sqrt", &[rest])?;
    g.reciprocal(root)
}

fn acos_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let slope = asin_slope(g, x)?;
        g.negated(slope)
    })
}

fn atan_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let square = g.squared(x)?;
        let sum = g.shifted(square, 1.0)?;
        g.reciprocal(sum)
    })
}

fn atanh_grad(g: &mut GradientContext<'_>) -> Result<()> {
    chain_input(g, |g, x| {
        let square = g.squared(x)?;
        let rest = g.number_minus(1.0, square)?;
        g.reciprocal(rest)
    })
}

/// scale e^-x².
fn gauss(g: &mut GradientContext<'_>, x: Output, scale: f64) -> Result<Output> {
    let square = g.squared(x)?;
    let exponent = g.negated(square)?;
    let bell = g.add("Exp", &[exponent])?;
    g.scaled(bell, scale)
}

/// The complex number with these real and imaginary parts.
fn complex(g: &mut GradientContext<'_>, re: Output, im: Output) -> Result<Output> {
    let tout = if g.dtype(re) == DType::Double { DType::Complex128 } else { DType::Complex64 };
    g.op("Complex").inputs(&[re, im]).attr("Tout", tout).build()
}

fn real_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let zero = g.number_like(grad, 0.0)?;
    let adjoint = complex(g, grad, zero)?;
    g.set(0, adjoint)
}

fn imag_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let zero = g.number_like(grad, 0.0)?;
    let adjoint = complex(g, zero, grad)?;
    g.set(0, adjoint)
}

/// -grad / (im x + i re x), as in TensorFlow.
fn angle_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x) = (g.grad(0)?, g.input(0));
    let tout = g.dtype(grad);
    let re = g.op("Real").input(x).attr("Tout", tout).build()?;
    let im = g.op("Imag").input(x).attr("Tout", tout).build()?;
    let swapped = complex(g, im, re)?;
    let inverse = g.reciprocal(swapped)?;
    let zero = g.number_like(grad, 0.0)?;
    let wide = complex(g, grad, zero)?;
    let negative = g.negated(wide)?;
    let adjoint = g.times(negative, inverse)?;
    g.set(0, adjoint)
}

/// grad x / |x|; 0 at 0.
fn complex_abs_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.output(0));
    let zero = g.number_like(grad, 0.0)?;
    let (grad, y) = (complex(g, grad, zero)?, complex(g, y, zero)?);
    let product = g.times(grad, x)?;
    let adjoint = g.add("DivNoNan", &[product, y])?;
    g.set(0, adjoint)
}

/// Gradient of b (1 - a²).
fn tanh_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let (a, b) = (conj(g, a)?, conj(g, b)?);
    let product = g.times(b, a)?;
    let doubled = g.scaled(product, -2.0)?;
    let of_a = g.times(grad, doubled)?;
    let of_b = g.add("TanhGrad", &[a, grad])?;
    g.set(0, of_a)?;
    g.set(1, of_b)
}

/// Gradient of b a (1 - a).
fn sigmoid_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let (a, b) = (conj(g, a)?, conj(g, b)?);
    let product = g.times(grad, b)?;
    let doubled = g.scaled(a, 2.0)?;
    let slope = g.number_minus(1.0, doubled)?;
    let of_a = g.times(product, slope)?;
    let of_b = g.add("SigmoidGrad", &[a, grad])?;
    g.set(0, of_a)?;
    g.set(1, of_b)
}

/// Gradient of b / 2a*.
fn sqrt_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, y) = (g.grad(0)?, g.input(0), g.output(0));
    let quotient = g.over(grad, a)?;
    let conjugate = conj(g, quotient)?;
    let product = g.times(conjugate, y)?;
    let (of_a, of_b) = (g.negated(product)?, g.scaled(quotient, 0.5)?);
    g.set(0, of_a)?;
    g.set(1, of_b)
}

/// Gradient of -b a*³ / 2.
fn rsqrt_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let (a, grad_conj) = (conj(g, a)?, conj(g, grad)?);
    let square = g.squared(a)?;
    let product = g.times(b, square)?;
    let scaled = g.scaled(product, -1.5)?;
    let of_a = g.times(grad_conj, scaled)?;
    let of_b = g.add("RsqrtGrad", &[a, grad])?;
    g.set(0, of_a)?;
    g.set(1, of_b)
}

/// Gradient of -b a*².
fn reciprocal_grad_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, a, b) = (g.grad(0)?, g.input(0), g.input(1));
    let (a, grad_conj) = (conj(g, a)?, conj(g, grad)?);
    let product = g.times(b, a)?;
    let scaled = g.scaled(product, -2.0)?;
    let of_a = g.times(grad_conj, scaled)?;
    let of_b = g.add("ReciprocalGrad", &[a, grad])?;
    g.set(0, of_a)?;
    g.set(1, of_b)
}

/// Conjugation, the identity for real numbers; gradients of complex functions need it.
trait Conjugate: Number {
    fn conjugate(self) -> Self;
    const HALF: Self;
}

macro_rules! conjugates {
    ($($t:ty: $half:expr, |$x:ident| $value:expr;)+) => { $(
        impl Conjugate for $t {
            const HALF: Self = $half;

            #[inline(always)]
            fn conjugate(self) -> Self {
                let $x = self;
                $value
            }
        }
    )+ };
}

conjugates! {
    f32: 0.5, |x| x;
    f64: 0.5, |x| x;
    Complex32: Complex32 { re: 0.5, im: 0.0 }, |x| x.conj();
    Complex64: Complex64 { re: 0.5, im: 0.0 }, |x| x.conj();
}

macro_rules! gradients {
    ($($(#[$doc:meta])* $op:ident: |$y:ident, $dy:ident| $value:expr;)+) => { $(
        $(#[$doc])*
        struct $op;

        impl<T: Conjugate> Binary<T> for $op {
            type Out = T;

            #[inline(always)]
            fn apply<L: Level>($y: T, $dy: T) -> T {
                $value
            }
        }
    )+ };
}

gradients! {
    /// dy (1 - y²).
    TanhGrad: |y, dy| dy.times(T::ONE.minus(y.times(y)));
    /// dy y (1 - y).
    SigmoidGrad: |y, dy| dy.times(y).times(T::ONE.minus(y));
    /// dy / 2y, with `y` conjugated; for the two above the caller conjugates.
    SqrtGrad: |y, dy| dy.times(T::HALF).over(y.conjugate());
    /// -dy y³ / 2.
    RsqrtGrad: |y, dy| T::ZERO.minus(dy.times(T::HALF)).times(y.times(y).times(y).conjugate());
    /// -dy y².
    ReciprocalGrad: |y, dy| T::ZERO.minus(dy).times(y.times(y).conjugate());
}
