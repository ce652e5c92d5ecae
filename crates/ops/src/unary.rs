//! Element-wise ops of one input, and the ones that give their gradients.

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{Family, KernelSpec};
use thalweg_tensor::{Complex32, Complex64, bf16, f16};

use crate::elementwise::{Binary, binary_same_size, unary};
use crate::functions::*;
use crate::math::simd::Level;
use crate::number::Number;

const REAL: &[&str] = &["T: {bfloat16, half, float, double}"];
const FLOATING: &[&str] = &["T: {bfloat16, half, float, double, complex64, complex128}"];
const SIGNED: &[&str] =
    &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"];
const COMPLEX: &[&str] =
    &["T: {complex64, complex128} = DT_COMPLEX64", "Tout: {float, double} = DT_FLOAT"];

/// `y = f(x)`, of the same type and shape.
const fn map(name: &'static str, attrs: &'static [&'static str]) -> OpDef {
    OpDef {
        name,
        inputs: &["x: T"],
        outputs: &["y: T"],
        attrs,
        shape: shape::unchanged,
        ..OpDef::DEFAULT
    }
}

/// `y = f(x)`, a flag for each element.
const fn test(name: &'static str) -> OpDef {
    OpDef { outputs: &["y: bool"], ..map(name, REAL) }
}

/// One real number of each complex one.
const fn part(name: &'static str) -> OpDef {
    OpDef { inputs: &["input: T"], outputs: &["output: Tout"], ..map(name, COMPLEX) }
}

/// The gradient of an op from its result and the result's gradient.
const fn grad(name: &'static str) -> OpDef {
    OpDef { inputs: &["y: T", "dy: T"], outputs: &["z: T"], ..map(name, FLOATING) }
}

const ABS: OpDef = map("Abs", &["T: {bfloat16, half, float, double, int8, int16, int32, int64}"]);

const SQUARE: OpDef = map(
    "Square",
    &[
        "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
    ],
);

const LOGICAL_NOT: OpDef =
    OpDef { inputs: &["x: bool"], outputs: &["y: bool"], ..map("LogicalNot", &[]) };

const CONJ: OpDef = OpDef {
    inputs: &["input: T"],
    outputs: &["output: T"],
    ..map("Conj", &["T: {complex64, complex128, variant} = DT_COMPLEX64"])
};

const COMPLEX_ABS: OpDef = OpDef { outputs: &["y: Tout"], ..map("ComplexAbs", COMPLEX) };

/// A kernel for real and complex floating point.
macro_rules! floating {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, Complex32, Complex64] => unary::<$op>)
    };
}

/// A kernel for real floating point.
macro_rules! real {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64] => unary::<$op>)
    };
}

/// A kernel for the gradient of a function.
macro_rules! gradient {
    ($name:literal, $op:ty) => {
        cpu_kernel!($name, "T" in [f16, bf16, f32, f64, Complex32, Complex64] => binary_same_size::<$op>)
    };
}

pub(crate) static FAMILY: Family = Family {
    ops: &[
        ABS,
        map("Neg", SIGNED),
        map("Sign", SIGNED),
        SQUARE,
        map("Sqrt", FLOATING),
        map("Rsqrt", FLOATING),
        map("Reciprocal", SIGNED),
        map("Inv", SIGNED),
        map("Exp", FLOATING),
        map("Expm1", FLOATING),
        map("Log", FLOATING),
        map("Log1p", FLOATING),
        map("Sin", FLOATING),
        map("Cos", FLOATING),
        map("Tan", FLOATING),
        map("Asin", FLOATING),
        map("Acos", FLOATING),
        map("Atan", FLOATING),
        map("Sinh", FLOATING),
        map("Cosh", FLOATING),
        map("Tanh", FLOATING),
        map("Asinh", FLOATING),
        map("Acosh", FLOATING),
        map("Atanh", FLOATING),
        map("Sigmoid", FLOATING),
        map("Erf", REAL),
        map("Erfc", REAL),
        map("Floor", REAL),
        map("Ceil", REAL),
        map("Rint", REAL),
        map("Round", SIGNED),
        test("IsNan"),
        test("IsInf"),
        test("IsFinite"),
        LOGICAL_NOT,
        CONJ,
        part("Real"),
        part("Imag"),
        part("Angle"),
        COMPLEX_ABS,
        grad("TanhGrad"),
        grad("SigmoidGrad"),
        grad("SqrtGrad"),
        grad("RsqrtGrad"),
        grad("ReciprocalGrad"),
        grad("InvGrad"),
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
    ],
};

/// Conjugates, where there is something to conjugate: gradients of complex functions need it.
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
                let $y = $y.conjugate();
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
    /// dy / 2y.
    SqrtGrad: |y, dy| dy.times(T::HALF).over(y);
    /// -dy y³ / 2.
    RsqrtGrad: |y, dy| T::ZERO.minus(dy.times(T::HALF)).times(y.times(y).times(y));
    /// -dy y².
    ReciprocalGrad: |y, dy| T::ZERO.minus(dy).times(y.times(y));
}
