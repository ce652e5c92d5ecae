//! Functions of two elements, for the binary ops.

use thalweg_tensor::{Code, Complex32, Complex64, Element, Error, Result, Tensor, ensure};

use crate::elementwise::{Binary, Unary};
use crate::functions::{Log, Log1p};
use crate::math::complex;
use crate::math::simd::Level;
use crate::number::{Number, Real};

/// Declares op types whose function is the same expression for every element type with a trait:
/// `Sub: Number, 0.4, |x, y| x.minus(y);`.
macro_rules! zips {
    ($($(#[$doc:meta])* $op:ident: $kind:ident, $cost:literal, |$x:ident, $y:ident| $value:expr;)+) => { $(
        $(#[$doc])*
        pub(crate) struct $op;

        impl<T: $kind> Binary<T> for $op {
            type Out = T;
            const NANOSECONDS: f64 = $cost;
            // Nothing below depends on the level.
            const IS_EXACT: bool = true;

            #[inline(always)]
            fn apply<L: Level>($x: T, $y: T) -> T {
                $value
            }
        }
    )+ };
}

zips! {
    /// The sum.
    Add: Number, 0.4, |x, y| x.plus(y);
    /// The difference.
    Sub: Number, 0.4, |x, y| x.minus(y);
    /// The product.
    Mul: Number, 0.4, |x, y| x.times(y);
    /// The product; 0 where `y` is 0, whatever `x`.
    MulNoNan: Number, 0.4, |x, y| if y == T::ZERO { T::ZERO } else { x.times(y) };
    /// The quotient; 0 where `y` is 0.
    DivNoNan: Number, 0.6, |x, y| if y == T::ZERO { T::ZERO } else { x.over(y) };
    /// The quotient; 0 where `x` is 0, whatever `y`.
    Xdivy: Number, 0.6, |x, y| if x == T::ZERO { x } else { x.over(y) };
    /// The larger.
    Maximum: Real, 0.4, |x, y| x.larger(y);
    /// The smaller.
    Minimum: Real, 0.4, |x, y| x.smaller(y);
}

/// Division-like ops, each with its code for an integer divisor of zero.
macro_rules! divisions {
    ($($(#[$doc:meta])* $op:ident: $kind:ident, $code:ident, |$x:ident, $y:ident| $value:expr;)+) => { $(
        $(#[$doc])*
        pub(crate) struct $op;

        impl<T: $kind> Binary<T> for $op {
            type Out = T;
            const NANOSECONDS: f64 = 1.5;

            #[inline(always)]
            fn apply<L: Level>($x: T, $y: T) -> T {
                $value
            }

            fn check(divisor: &Tensor) -> Result<()> {
                T::check_divisor(divisor).map_err(|e| Error::new(Code::$code, e.message()))
            }
        }
    )+ };
}

divisions! {
    /// The quotient.
    Div: Number, InvalidArgument, |x, y| x.over(y);
    /// The quotient, rounded towards zero. (TensorFlow reports a zero divisor as an internal error
    /// here.)
    TruncateDiv: Real, Internal, |x, y| x.truncated_quotient(y);
    /// The quotient, rounded down.
    FloorDiv: Real, InvalidArgument, |x, y| x.floored_quotient(y);
    /// The remainder with the sign of `x`.
    Mod: Real, InvalidArgument, |x, y| x.truncated_remainder(y);
    /// As `Mod`, with another code for a zero divisor.
    TruncateMod: Real, Internal, |x, y| x.truncated_remainder(y);
    /// The remainder with the sign of `y`.
    FloorMod: Real, InvalidArgument, |x, y| x.floored_remainder(y);
}

/// |x - y|².
pub(crate) struct SquaredDifference;

macro_rules! squared_differences {
    ($($t:ty: |$d:ident| $value:expr;)+) => { $(
        impl Binary<$t> for SquaredDifference {
            type Out = $t;

            #[inline(always)]
            fn apply<L: Level>(x: $t, y: $t) -> $t {
                let $d = x.minus(y);
                $value
            }
        }
    )+ };
}

squared_differences! {
    f32: |d| d * d;
    f64: |d| d * d;
    i32: |d| d.wrapping_mul(d);
    i64: |d| d.wrapping_mul(d);
    Complex32: |d| d * d.conj();
    Complex64: |d| d * d.conj();
}

/// Declares op types by one function call per element type.
macro_rules! calls {
    ($($(#[$doc:meta])* $op:ident { $($t:ty: $cost:literal, |$x:ident, $y:ident| $value:expr;)+ })+) => { $(
        $(#[$doc])*
        pub(crate) struct $op;

        $(impl Binary<$t> for $op {
            type Out = $t;
            const NANOSECONDS: f64 = $cost;
            const IS_SIMD: bool = false;

            #[inline(always)]
            fn apply<L: Level>($x: $t, $y: $t) -> $t {
                $value
            }
        })+
    )+ };
}

calls! {
    /// The angle of the point (y, x), with arguments in C's order.
    Atan2 {
        f32: 10.0, |y, x| angle(y, x, y.atan2(x), (y.to_bits() | x.to_bits()) << 1 == 0);
        f64: 20.0, |y, x| angle(y, x, y.atan2(x), (y.to_bits() | x.to_bits()) << 1 == 0);
    }
    /// The next representable number after `x` towards `y`.
    NextAfter {
        f32: 3.0, |x, y| libm::nextafterf(x, y);
        f64: 3.0, |x, y| libm::nextafter(x, y);
    }
}

/// `atan2`; where both numbers are subnormal and compare equal to zero (denormals-are-zero mode),
/// the angle of two equal numbers, as in TensorFlow.
#[inline(always)]
fn angle<T: num_traits::Float + num_traits::FloatConst>(y: T, x: T, angle: T, are_zero: bool) -> T {
    if are_zero || !(y == T::zero() && x == T::zero()) {
        return angle;
    }
    let quarter = T::FRAC_PI_4();
    (if x.is_sign_negative() { T::PI() - quarter } else { quarter }).copysign(y)
}

/// x ln y; 0 where `x` is 0, whatever `y`.
pub(crate) struct Xlogy;

impl<T: Number> Binary<T> for Xlogy
where
    Log: Unary<T, Out = T>,
{
    type Out = T;
    const NANOSECONDS: f64 = <Log as Unary<T>>::NANOSECONDS + 0.2;
    const IS_SIMD: bool = <Log as Unary<T>>::IS_SIMD;

    #[inline(always)]
    fn apply<L: Level>(x: T, y: T) -> T {
        if x == T::ZERO { x } else { x.times(Log::apply::<L>(y.flushed())) }
    }
}

/// x ln(1 + y); 0 where `x` is 0, whatever `y`.
pub(crate) struct Xlog1py;

impl<T: Number> Binary<T> for Xlog1py
where
    Log1p: Unary<T, Out = T>,
{
    type Out = T;
    const NANOSECONDS: f64 = <Log1p as Unary<T>>::NANOSECONDS + 0.2;
    const IS_SIMD: bool = <Log1p as Unary<T>>::IS_SIMD;

    #[inline(always)]
    fn apply<L: Level>(x: T, y: T) -> T {
        if x == T::ZERO { x } else { x.times(Log1p::apply::<L>(y)) }
    }
}

/// A complex number from its real and imaginary parts.
pub(crate) struct MakeComplex;

impl Binary<f32> for MakeComplex {
    type Out = Complex32;

    #[inline(always)]
    fn apply<L: Level>(re: f32, im: f32) -> Complex32 {
        Complex32::new(re, im)
    }
}

impl Binary<f64> for MakeComplex {
    type Out = Complex64;

    #[inline(always)]
    fn apply<L: Level>(re: f64, im: f64) -> Complex64 {
        Complex64::new(re, im)
    }
}

/// x to the power of y.
pub(crate) struct Pow;

macro_rules! powers {
    ($($t:ty: $cost:literal, |$x:ident, $y:ident| $value:expr, $check:expr;)+) => { $(
        impl Binary<$t> for Pow {
            type Out = $t;
            const NANOSECONDS: f64 = $cost;
            const IS_SIMD: bool = false;

            #[inline(always)]
            fn apply<L: Level>($x: $t, $y: $t) -> $t {
                $value
            }

            fn check(exponent: &Tensor) -> Result<()> {
                let check: fn(&Tensor) -> Result<()> = $check;
                check(exponent)
            }
        }
    )+ };
}

powers! {
    f32: 8.0, |x, y| if y == 0.0 { 1.0 } else { x.flushed().powf(y) }, |_| Ok(());
    f64: 20.0, |x, y| if y == 0.0 { 1.0 } else { x.flushed().powf(y) }, |_| Ok(());
    Complex64: 60.0, |x, y| complex::power(x, y), |_| Ok(());
    Complex32: 60.0, |x, y| narrow(complex::power(widen(x), widen(y))), |_| Ok(());
    i8: 5.0, |x, y| x.wrapping_pow(y as u32), refuse_negatives::<i8>;
    i16: 5.0, |x, y| x.wrapping_pow(y as u32), refuse_negatives::<i16>;
    i32: 5.0, |x, y| x.wrapping_pow(y as u32), refuse_negatives::<i32>;
    i64: 5.0, |x, y| integer_power(x, y), refuse_negatives::<i64>;
}

fn refuse_negatives<T: Element + Real>(exponent: &Tensor) -> Result<()> {
    let has_negative = exponent.as_slice::<T>()?.iter().any(|&y| y < T::ZERO);
    ensure!(!has_negative, InvalidArgument, "an integer has no negative integer power");
    Ok(())
}

/// x to the power of y by repeated squaring; the exponent may exceed 32 bits.
fn integer_power(mut base: i64, exponent: i64) -> i64 {
    let (mut result, mut rest) = (1i64, exponent.max(0));
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        rest >>= 1;
    }
    result
}

fn widen(x: Complex32) -> Complex64 {
    Complex64::new(f64::from(x.re), f64::from(x.im))
}

fn narrow(x: Complex64) -> Complex32 {
    Complex32::new(x.re as f32, x.im as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;

    #[test]
    fn powers_wrap_and_refuse() {
        assert_eq!(integer_power(3, 4), 81);
        assert_eq!(integer_power(-1, i64::MAX), -1);
        assert_eq!(integer_power(7, 0), 1);
        assert_eq!(
            code(refuse_negatives::<i32>(&Tensor::vector(&[1, -1]).unwrap())),
            Some(Code::InvalidArgument)
        );
        assert!(refuse_negatives::<i32>(&Tensor::vector(&[1, 0]).unwrap()).is_ok());
    }
}
