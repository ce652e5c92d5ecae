//! Arithmetic as TensorFlow's CPU kernels define it, by kind of element: integers wrap, integer
//! division by zero is an error, floats follow IEEE 754.

use num_complex::Complex;
use thalweg_tensor::{Element, Result, Tensor, bf16, ensure, f16};

/// Elements that can be added, subtracted, multiplied and divided.
pub(crate) trait Number: Element {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// The sum, wrapping.
    fn plus(self, other: Self) -> Self;
    /// The difference, wrapping.
    fn minus(self, other: Self) -> Self;
    /// The product, wrapping.
    fn times(self, other: Self) -> Self;
    /// The quotient; for integers truncated, and zero for a zero divisor.
    fn over(self, other: Self) -> Self;

    /// A subnormal number as zero of its sign. Kernels run in denormals-are-zero mode, but
    /// selections and library functions that inspect bits ignore it.
    #[inline(always)]
    fn flushed(self) -> Self {
        self
    }

    /// Fails if an integer divisor is zero.
    fn check_divisor(_divisor: &Tensor) -> Result<()> {
        Ok(())
    }
}

/// Real numbers.
pub(crate) trait Real: Number + PartialOrd {
    /// The quotient, truncated.
    fn truncated_quotient(self, other: Self) -> Self;
    /// The remainder of the truncated quotient; has the sign of `self`.
    fn truncated_remainder(self, other: Self) -> Self;
    /// The quotient, rounded down.
    fn floored_quotient(self, other: Self) -> Self;
    /// The remainder of the floored quotient; has the sign of `other`.
    fn floored_remainder(self, other: Self) -> Self;
    /// The maximum; NaN if either is NaN.
    fn larger(self, other: Self) -> Self;
    /// The minimum; NaN if either is NaN.
    fn smaller(self, other: Self) -> Self;
    /// -1, 0 or 1; NaN for NaN.
    fn sign(self) -> Self;
    /// The absolute value, wrapping.
    fn magnitude(self) -> Self;
}

/// Numbers with minimum and maximum as scatter updates compute them.
pub(crate) trait Ordered: Number {
    /// `other` if it is less, else `self`, also where either is NaN.
    fn lesser(self, other: Self) -> Self;
    /// `other` if it is greater, else `self`, also where either is NaN.
    fn greater(self, other: Self) -> Self;
}

macro_rules! ordered {
    ($($t:ty),+) => { $(
        impl Ordered for $t {
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                if other < self { other } else { self }
            }

            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
        }
    )+ };
}

ordered!(i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64);

fn refuse_zeros<T: Number>(divisor: &Tensor) -> Result<()> {
    let has_zero = divisor.as_slice::<T>()?.iter().fold(false, |any, &y| any | (y == T::ZERO));
    ensure!(!has_zero, InvalidArgument, "Integer division by zero");
    Ok(())
}

macro_rules! integers {
    ($($t:ident: $sign:expr, $magnitude:expr, $floored:expr;)+) => { $(
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }

            fn check_divisor(divisor: &Tensor) -> Result<()> {
                refuse_zeros::<$t>(divisor)
            }
        }

        impl Real for $t {
            #[inline(always)]
            fn truncated_quotient(self, other: Self) -> Self {
                self.over(other)
            }

            #[inline(always)]
            fn truncated_remainder(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }

            #[inline(always)]
            fn floored_quotient(self, other: Self) -> Self {
                let floored: fn($t, $t, $t) -> bool = $floored;
                let rest = self.truncated_remainder(other);
                self.over(other).wrapping_sub($t::from(floored(rest, self, other)))
            }

            #[inline(always)]
            fn floored_remainder(self, other: Self) -> Self {
                let floored: fn($t, $t, $t) -> bool = $floored;
                let rest = self.truncated_remainder(other);
                if floored(rest, self, other) { rest.wrapping_add(other) } else { rest }
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn sign(self) -> Self {
                let sign: fn($t) -> $t = $sign;
                sign(self)
            }

            #[inline(always)]
            fn magnitude(self) -> Self {
                let magnitude: fn($t) -> $t = $magnitude;
                magnitude(self)
            }
        }
    )+ };
}

integers! {
    i8: |x| x.signum(), |x| x.wrapping_abs(), |rest, x, y| rest != 0 && (x < 0) != (y < 0);
    i16: |x| x.signum(), |x| x.wrapping_abs(), |rest, x, y| rest != 0 && (x < 0) != (y < 0);
    i32: |x| x.signum(), |x| x.wrapping_abs(), |rest, x, y| rest != 0 && (x < 0) != (y < 0);
    i64: |x| x.signum(), |x| x.wrapping_abs(), |rest, x, y| rest != 0 && (x < 0) != (y < 0);
    u8: |x| x.min(1), |x| x, |_, _, _| false;
    u16: |x| x.min(1), |x| x, |_, _, _| false;
    u32: |x| x.min(1), |x| x, |_, _, _| false;
    u64: |x| x.min(1), |x| x, |_, _, _| false;
}

macro_rules! floats {
    ($($t:ident),+) => { $(
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }

            #[inline(always)]
            fn flushed(self) -> Self {
                if self == 0.0 { (0.0 as $t).copysign(self) } else { self }
            }
        }

        impl Real for $t {
            #[inline(always)]
            fn truncated_quotient(self, other: Self) -> Self {
                (self / other).trunc()
            }

            #[inline(always)]
            fn truncated_remainder(self, other: Self) -> Self {
                // The library function inspects bits, and a subnormal divisor counts as zero.
                if other == 0.0 { $t::NAN } else { self % other }
            }

            #[inline(always)]
            fn floored_quotient(self, other: Self) -> Self {
                (self / other).floor()
            }

            #[inline(always)]
            fn floored_remainder(self, other: Self) -> Self {
                let rest = self.truncated_remainder(other);
                if rest != 0.0 && (rest < 0.0) != (other < 0.0) { rest + other } else { rest }
            }

            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                // `x` if it is NaN; if `y` is NaN, no comparison holds and `y` is the result.
                (if self > other || self.is_nan() { self } else { other }).flushed()
            }

            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                (if self < other || self.is_nan() { self } else { other }).flushed()
            }

            #[inline(always)]
            fn sign(self) -> Self {
                let sign = if self > 0.0 { 1.0 } else { 0.0 } - if self < 0.0 { 1.0 } else { 0.0 };
                if self.is_nan() { self } else { sign }
            }

            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
        }

        impl Number for Complex<$t> {
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            const ONE: Self = Complex { re: 1.0, im: 0.0 };

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }

            /// The divisor is scaled by its larger part, so that its square cannot overflow.
            #[inline(always)]
            fn over(self, other: Self) -> Self {
                let (a, b, c, d) = (self.re, self.im, other.re, other.im);
                if c.abs() >= d.abs() {
                    let ratio = d / c;
                    let denominator = c + d * ratio;
                    Complex::new((a + b * ratio) / denominator, (b - a * ratio) / denominator)
                } else {
                    let ratio = c / d;
                    let denominator = c * ratio + d;
                    Complex::new((a * ratio + b) / denominator, (b * ratio - a) / denominator)
                }
            }
        }
    )+ };
}

floats!(f32, f64);

macro_rules! halves {
    ($($t:ident),+) => { $(
        /// Computed in single precision and rounded.
        impl Number for $t {
            const ZERO: Self = $t::ZERO;
            const ONE: Self = $t::ONE;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $t::from_f32(f32::from(self) + f32::from(other))
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                $t::from_f32(f32::from(self) - f32::from(other))
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                $t::from_f32(f32::from(self) * f32::from(other))
            }

            #[inline(always)]
            fn over(self, other: Self) -> Self {
                $t::from_f32(f32::from(self) / f32::from(other))
            }
        }
    )+ };
}

halves!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floored_division_of_integers() {
        for (x, y, quotient, remainder) in
            [(7i32, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0)]
        {
            assert_eq!((x.floored_quotient(y), x.floored_remainder(y)), (quotient, remainder));
        }
        assert_eq!(i32::MIN.over(-1), i32::MIN);
        assert_eq!(i32::MIN.floored_quotient(-1), i32::MIN);
        assert_eq!(i64::MIN.truncated_remainder(-1), 0);
        assert_eq!(200u8.floored_quotient(7), 28);
        assert_eq!(5i8.over(0), 0);
    }

    #[test]
    fn nan_wins_over_order() {
        assert!(f32::NAN.larger(1.0).is_nan() && 1.0f32.larger(f32::NAN).is_nan());
        assert!(f64::NAN.smaller(1.0).is_nan() && 1.0f64.smaller(f64::NAN).is_nan());
        assert!(f32::NAN.sign().is_nan());
        assert_eq!((-3.5f32).floored_remainder(2.5), 1.5);
    }

    #[test]
    fn complex_division_does_not_overflow() {
        let large = Complex::new(1e300, 1e300);
        assert_eq!(large.over(large), Complex::new(1.0, 0.0));
    }
}
