//! The scalar functions of the unary ops, by compute type.

use num_complex::Complex;
use thalweg_tensor::{Complex32, Complex64};

use crate::elementwise::Unary;
use crate::math::rsqrt;
use crate::math::simd::Level;
use crate::math::{complex, float};
use crate::number::{Number, Real};
use crate::operand::apply_but_for;

/// Declares an op's type and its function for each element type:
/// `Exp { f32: simd 0.6, |x| float::exp::<L>(x); }` expands to
/// ```text
/// pub(crate) struct Exp;
/// impl Unary<f32> for Exp {
///     type Out = f32;
///     const NANOSECONDS: f64 = 0.6;
///     const IS_SIMD: bool = true;
///     fn apply<L: Level>(x: f32) -> f32 { float::exp::<L>(x) }
/// }
/// ```
/// A function for `Complex` is computed in double precision for both widths.
macro_rules! functions {
    ($($op:ident { $($t:ident: $kind:ident $cost:literal, |$x:ident| $value:expr
        $(, $is_rare:path, |$y:ident| $rare:expr)?;)+ })+) => { $(
        pub(crate) struct $op;
        $(functions!(@one $op, $t, $kind, $cost, $x, $value $(, $is_rare, $y, $rare)?);)+
    )+ };
    (@one $op:ident, $t:ident, partial, $cost:literal, $x:ident, $value:expr, $is_rare:path,
        $y:ident, $rare:expr) => {
        impl Unary<$t> for $op {
            type Out = $t;
            const NANOSECONDS: f64 = $cost;
            #[inline(always)]
            fn apply<L: Level>($x: $t) -> $t {
                $value
            }
            fn run(x: &[$t], out: &mut [$t]) {
                apply_but_for::<Self, $t>(x, out, $is_rare, |$y| $rare);
            }
        }
    };
    (@one $op:ident, Complex, $kind:ident, $cost:literal, $x:ident, $value:expr) => {
        functions!(@one $op, Complex64, $kind, $cost, $x, $value);
        impl Unary<Complex32> for $op {
            type Out = Complex32;
            const NANOSECONDS: f64 = $cost;
            const IS_SIMD: bool = functions!(@is_simd $kind);
            #[inline(always)]
            fn apply<L: Level>(x: Complex32) -> Complex32 {
                let wide = Complex64::new(f64::from(x.re), f64::from(x.im));
                let result = <$op as Unary<Complex64>>::apply::<L>(wide);
                Complex32::new(result.re as f32, result.im as f32)
            }
        }
    };
    (@one $op:ident, $t:ident, $kind:ident, $cost:literal, $x:ident, $value:expr) => {
        impl Unary<$t> for $op {
            type Out = $t;
            const NANOSECONDS: f64 = $cost;
            const IS_SIMD: bool = functions!(@is_simd $kind);
            #[inline(always)]
            fn apply<L: Level>($x: $t) -> $t {
                $value
            }
        }
    };
    (@is_simd simd) => { true };
    (@is_simd call) => { false };
}

impl Unary<f32> for Rsqrt {
    type Out = f32;
    const NANOSECONDS: f64 = 0.2;

    #[inline(always)]
    fn apply<L: Level>(x: f32) -> f32 {
        1.0 / x.sqrt()
    }

    fn run(x: &[f32], out: &mut [f32]) {
        rsqrt::rsqrt(x, out);
    }
}

functions! {
    Sqrt {
        f32: simd 0.5, |x| x.sqrt();
        f64: simd 1.0, |x| x.sqrt();
        Complex: call 15.0, |x| x.sqrt();
    }
    Rsqrt {
        f64: simd 1.5, |x| 1.0 / x.sqrt();
        Complex: call 20.0, |x| Complex64::ONE.over(x.sqrt());
    }
    Reciprocal {
        f32: simd 0.4, |x| 1.0 / x;
        f64: simd 0.8, |x| 1.0 / x;
        Complex: call 3.0, |x| Complex64::ONE.over(x);
    }
    Exp {
        f32: simd 0.6, |x| float::exp::<L>(x);
        f64: call 4.0, |x| x.exp();
        Complex: call 20.0, |x| complex::exp(x);
    }
    Expm1 {
        f32: simd 0.8, |x| float::expm1::<L>(x);
        f64: call 8.0, |x| x.exp_m1();
        Complex: call 30.0, |x| complex::expm1(x);
    }
    Log {
        f32: simd 0.7, |x| float::log::<L>(x);
        f64: call 5.0, |x| x.ln();
        Complex: call 25.0, |x| x.ln();
    }
    Log1p {
        f32: simd 1.0, |x| float::log1p::<L>(x);
        f64: call 8.0, |x| x.ln_1p();
        Complex: call 30.0, |x| complex::log1p(x);
    }
    Sin {
        f32: partial 1.0, |x| float::sin::<L>(x), float::is_far, |x| x.sin();
        f64: call 8.0, |x| x.sin();
        Complex: call 30.0, |x| complex::sin(x);
    }
    Cos {
        f32: partial 1.0, |x| float::cos::<L>(x), float::is_far, |x| x.cos();
        f64: call 8.0, |x| x.cos();
        Complex: call 30.0, |x| complex::cos(x);
    }
    Tan {
        f32: call 8.0, |x| x.tan();
        f64: call 10.0, |x| x.tan();
        Complex: call 40.0, |x| complex::tan(x);
    }
    Asin {
        f32: call 6.0, |x| x.asin();
        f64: call 8.0, |x| x.asin();
        Complex: call 60.0, |x| complex::asin(x);
    }
    Acos {
        f32: call 6.0, |x| x.acos();
        f64: call 8.0, |x| x.acos();
        Complex: call 60.0, |x| complex::acos(x);
    }
    Atan {
        f32: call 6.0, |x| x.atan();
        f64: call 8.0, |x| x.atan();
        Complex: call 60.0, |x| complex::atan(x);
    }
    Sinh {
        f32: call 8.0, |x| x.sinh();
        f64: call 10.0, |x| x.sinh();
        Complex: call 40.0, |x| complex::sinh(x);
    }
    Cosh {
        f32: call 8.0, |x| x.cosh();
        f64: call 10.0, |x| x.cosh();
        Complex: call 40.0, |x| complex::cosh(x);
    }
    Tanh {
        f32: simd 0.8, |x| float::tanh::<L>(x);
        f64: call 10.0, |x| x.tanh();
        Complex: call 40.0, |x| complex::tanh(x);
    }
    Asinh {
        f32: call 12.0, |x| f64::from(x).asinh() as f32;
        f64: call 12.0, |x| libm::asinh(x);
        Complex: call 60.0, |x| complex::asinh(x);
    }
    Acosh {
        f32: call 12.0, |x| f64::from(x).acosh() as f32;
        f64: call 12.0, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
        Complex: call 60.0, |x| complex::acosh(x);
    }
    Atanh {
        f32: call 12.0, |x| libm::atanhf(x);
        f64: call 12.0, |x| libm::atanh(x);
        Complex: call 60.0, |x| complex::atanh(x);
    }
    Sigmoid {
        f32: simd 0.8, |x| float::sigmoid::<L>(x);
        f64: call 6.0, |x| sigmoid(x);
        Complex: call 30.0, |x| Complex64::ONE.over(Complex64::ONE + complex::exp(-x));
    }
    Erf {
        f32: simd 0.6, |x| float::erf::<L>(x);
        f64: call 12.0, |x| libm::erf(x);
    }
    Erfc {
        f32: call 8.0, |x| libm::erfcf(x);
        f64: call 14.0, |x| libm::erfc(x);
    }
    Floor {
        f32: simd 0.3, |x| x.flushed().floor();
        f64: simd 0.6, |x| x.flushed().floor();
    }
    Ceil {
        f32: simd 0.3, |x| x.flushed().ceil();
        f64: simd 0.6, |x| x.flushed().ceil();
    }
    Round {
        f32: simd 0.3, |x| x.round_ties_even();
        f64: simd 0.6, |x| x.round_ties_even();
        // As in TensorFlow, whose kernel rounds every integer to zero.
        i32: simd 0.3, |_x| 0;
        i64: simd 0.6, |_x| 0;
    }
    Conj {
        Complex32: simd 0.6, |x| x.conj();
        Complex64: simd 1.2, |x| x.conj();
    }
    LogicalNot {
        bool: simd 0.1, |x| !x;
    }
}

fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e) + if x.is_nan() { x } else { 0.0 }
}

/// The absolute value.
pub(crate) struct Abs;

impl<T: Real> Unary<T> for Abs {
    type Out = T;

    #[inline(always)]
    fn apply<L: Level>(x: T) -> T {
        x.magnitude()
    }
}

/// The negative, wrapping.
pub(crate) struct Neg;

macro_rules! negatives {
    ($($t:ty: |$x:ident| $value:expr;)+) => { $(
        impl Unary<$t> for Neg {
            type Out = $t;

            #[inline(always)]
            fn apply<L: Level>($x: $t) -> $t {
                $value
            }
        }
    )+ };
}

negatives! {
    f32: |x| -x;
    f64: |x| -x;
    i8: |x| x.wrapping_neg();
    i16: |x| x.wrapping_neg();
    i32: |x| x.wrapping_neg();
    i64: |x| x.wrapping_neg();
    Complex32: |x| -x;
    Complex64: |x| -x;
}

/// The square, wrapping.
pub(crate) struct Square;

impl<T: Number> Unary<T> for Square {
    type Out = T;

    #[inline(always)]
    fn apply<L: Level>(x: T) -> T {
        x.times(x)
    }
}

/// The sign of a real number, or z / |z| of a complex one.
pub(crate) struct Sign;

macro_rules! signs {
    ($($t:ty: |$x:ident| $value:expr;)+) => { $(
        impl Unary<$t> for Sign {
            type Out = $t;

            #[inline(always)]
            fn apply<L: Level>($x: $t) -> $t {
                $value
            }
        }
    )+ };
}

signs! {
    f32: |x| x.sign();
    f64: |x| x.sign();
    i8: |x| x.sign();
    i16: |x| x.sign();
    i32: |x| x.sign();
    i64: |x| x.sign();
    Complex32: |x| direction(x);
    Complex64: |x| direction(x);
}

/// z / |z|, scaled by the larger part so that its square cannot overflow.
#[inline(always)]
fn direction<T: num_traits::Float>(z: Complex<T>) -> Complex<T> {
    let (large, small) = (z.re.abs().max(z.im.abs()), z.re.abs().min(z.im.abs()));
    if large == T::zero() {
        return Complex::new(T::zero(), T::zero());
    }
    let ratio = small / large;
    z / (large * (T::one() + ratio * ratio).sqrt())
}

/// Functions whose result has another type than the element.
macro_rules! into_other {
    ($($op:ident { $($t:ty => $out:ty: |$x:ident| $value:expr;)+ })+) => { $(
        pub(crate) struct $op;
        $(impl Unary<$t> for $op {
            type Out = $out;

            #[inline(always)]
            fn apply<L: Level>($x: $t) -> $out {
                $value
            }
        })+
    )+ };
}

into_other! {
    IsNan {
        f32 => bool: |x| x.is_nan();
        f64 => bool: |x| x.is_nan();
    }
    IsInf {
        f32 => bool: |x| x.is_infinite();
        f64 => bool: |x| x.is_infinite();
    }
    IsFinite {
        f32 => bool: |x| x.is_finite();
        f64 => bool: |x| x.is_finite();
    }
    RealPart {
        Complex32 => f32: |x| x.re;
        Complex64 => f64: |x| x.re;
    }
    ImaginaryPart {
        Complex32 => f32: |x| x.im;
        Complex64 => f64: |x| x.im;
    }
    Angle {
        Complex32 => f32: |x| x.arg();
        Complex64 => f64: |x| x.arg();
    }
    ComplexAbs {
        Complex32 => f32: |x| x.norm();
        Complex64 => f64: |x| x.norm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigmoid_of_extremes() {
        assert_eq!(sigmoid(f64::NEG_INFINITY), 0.0);
        assert_eq!(sigmoid(f64::INFINITY), 1.0);
        assert!(sigmoid(f64::NAN).is_nan());
        assert!(sigmoid(-740.0) > 0.0);
    }
}
