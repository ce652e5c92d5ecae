//! The scalar trait of the decompositions.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use num_complex::Complex;
use num_traits::Float;

/// A real or complex floating-point number.
pub(crate) trait Scalar:
    Copy
    + Debug
    + PartialEq
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// The type of the real and imaginary parts.
    type Real: Scalar<Real = Self::Real> + Float + Debug;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// The real number `x`.
    fn real(x: Self::Real) -> Self;
    /// The number with these parts; real types drop the second.
    fn of(re: Self::Real, im: Self::Real) -> Self;
    /// The real part.
    fn re(self) -> Self::Real;
    /// The imaginary part.
    fn im(self) -> Self::Real;
    /// The conjugate.
    fn conj(self) -> Self;
    /// The square of the absolute value.
    fn norm_sqr(self) -> Self::Real;
    /// The absolute value.
    fn size(self) -> Self::Real;
    /// The product with a real number.
    fn scaled(self, x: Self::Real) -> Self;
    /// The quotient; it overflows only where the result does.
    fn over(self, other: Self) -> Self;
    /// The principal square root.
    fn root(self) -> Self;

    /// Whether both parts are finite.
    fn is_finite_number(self) -> bool {
        self.re().is_finite() && self.im().is_finite()
    }
}

macro_rules! scalars {
    ($($t:ty),+) => { $(
        impl Scalar for $t {
            type Real = $t;
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;

            #[inline(always)]
            fn real(x: $t) -> $t {
                x
            }

            #[inline(always)]
            fn of(re: $t, _im: $t) -> $t {
                re
            }

            #[inline(always)]
            fn re(self) -> $t {
                self
            }

            #[inline(always)]
            fn im(self) -> $t {
                0.0
            }

            #[inline(always)]
            fn conj(self) -> $t {
                self
            }

            #[inline(always)]
            fn norm_sqr(self) -> $t {
                self * self
            }

            #[inline(always)]
            fn size(self) -> $t {
                self.abs()
            }

            #[inline(always)]
            fn scaled(self, x: $t) -> $t {
                self * x
            }

            #[inline(always)]
            fn over(self, other: $t) -> $t {
                self / other
            }

            #[inline(always)]
            fn root(self) -> $t {
                self.sqrt()
            }
        }

        impl Scalar for Complex<$t> {
            type Real = $t;
            const ZERO: Self = Complex { re: 0.0, im: 0.0 };
            const ONE: Self = Complex { re: 1.0, im: 0.0 };

            #[inline(always)]
            fn real(x: $t) -> Self {
                Complex::new(x, 0.0)
            }

            #[inline(always)]
            fn of(re: $t, im: $t) -> Self {
                Complex::new(re, im)
            }

            #[inline(always)]
            fn re(self) -> $t {
                self.re
            }

            #[inline(always)]
            fn im(self) -> $t {
                self.im
            }

            #[inline(always)]
            fn conj(self) -> Self {
                Complex::new(self.re, -self.im)
            }

            #[inline(always)]
            fn norm_sqr(self) -> $t {
                self.re * self.re + self.im * self.im
            }

            #[inline(always)]
            fn size(self) -> $t {
                self.re.hypot(self.im)
            }

            #[inline(always)]
            fn scaled(self, x: $t) -> Self {
                Complex::new(self.re * x, self.im * x)
            }

            /// The divisor is scaled by its larger part, so that its square cannot overflow.
            #[inline]
            fn over(self, other: Self) -> Self {
                let (a, b, c, d) = (self.re, self.im, other.re, other.im);
                if d == 0.0 {
                    return Complex::new(a / c, b / c);
                }
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

            #[inline]
            fn root(self) -> Self {
                self.sqrt()
            }
        }
    )+ };
}

scalars!(f32, f64);

/// The constant `x` in the precision of `R`.
pub(crate) fn number<R: Float>(x: f64) -> R {
    R::from(x).unwrap_or_else(R::nan)
}

/// `y += a x`, element by element.
#[inline]
pub(crate) fn add_scaled<S: Scalar>(y: &mut [S], a: S, x: &[S]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// `y -= a x`, element by element.
#[inline]
pub(crate) fn subtract_scaled<S: Scalar>(y: &mut [S], a: S, x: &[S]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y -= a * x;
    }
}

/// The sum of `x[i] conj(y[i])`.
#[inline]
pub(crate) fn dot_conj<S: Scalar>(x: &[S], y: &[S]) -> S {
    sum_of(x, y, |x, y| x * y.conj())
}

/// The sum of `x[i] y[i]`.
#[inline]
pub(crate) fn dot<S: Scalar>(x: &[S], y: &[S]) -> S {
    sum_of(x, y, |x, y| x * y)
}

/// The sum of the squares of absolute values.
#[inline]
pub(crate) fn norm_sqr<S: Scalar>(x: &[S]) -> S::Real {
    dot_conj(x, x).re()
}

/// The sum of `term(x[i], y[i])`, in several independent accumulators.
#[inline(always)]
fn sum_of<S: Scalar>(x: &[S], y: &[S], term: impl Fn(S, S) -> S) -> S {
    const LANES: usize = 8;
    let mut lanes = [S::ZERO; LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let (x_rest, y_rest) = (xs.remainder(), ys.remainder());
    for (x, y) in xs.zip(ys) {
        for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += term(x, y);
        }
    }
    let mut sum = S::ZERO;
    for (&x, &y) in x_rest.iter().zip(y_rest) {
        sum += term(x, y);
    }
    for (low, high) in [(0, 4), (1, 5), (2, 6), (3, 7), (0, 2), (1, 3), (0, 1)] {
        let other = lanes[high];
        lanes[low] += other;
    }
    sum + lanes[0]
}

/// The largest absolute value; NaN if an element is not finite.
pub(crate) fn largest<S: Scalar>(x: &[S]) -> S::Real {
    let mut largest = S::Real::ZERO;
    for x in x {
        let size = x.size();
        if !size.is_finite() {
            return S::Real::nan();
        }
        if size > largest {
            largest = size;
        }
    }
    largest
}

/// Sets `a`, which has rows of `n` elements, to the first rows of the identity.
pub(crate) fn set_identity<S: Scalar>(a: &mut [S], n: usize) {
    a.fill(S::ZERO);
    for (i, row) in a.chunks_exact_mut(n.max(1)).enumerate().take(n) {
        row[i] = S::ONE;
    }
}

/// Two rows of `n` elements of `a`, the first before the second.
#[inline]
pub(crate) fn two_rows<S>(
    a: &mut [S],
    n: usize,
    first: usize,
    second: usize,
) -> (&mut [S], &mut [S]) {
    let (head, tail) = a.split_at_mut(second * n);
    (&mut head[first * n..(first + 1) * n], &mut tail[..n])
}

/// `out` becomes the transpose of `a`, which has `rows` rows of `columns`.
pub(crate) fn transpose<S: Copy>(a: &[S], rows: usize, columns: usize, out: &mut [S]) {
    for (i, row) in a.chunks_exact(columns.max(1)).enumerate().take(rows) {
        for (j, &x) in row.iter().enumerate() {
            out[j * rows + i] = x;
        }
    }
}

/// `out` becomes the conjugate transpose of `a`, which has `rows` rows of `columns`.
pub(crate) fn adjoint<S: Scalar>(a: &[S], rows: usize, columns: usize, out: &mut [S]) {
    for (i, row) in a.chunks_exact(columns.max(1)).enumerate().take(rows) {
        for (j, &x) in row.iter().enumerate() {
            out[j * rows + i] = x.conj();
        }
    }
}

/// `c = a b`, for `a` of `m` by `k` and `b` of `k` by `n`.
pub(crate) fn multiply<S: Scalar>(a: &[S], b: &[S], c: &mut [S], (m, k, n): (usize, usize, usize)) {
    c[..m * n].fill(S::ZERO);
    if k == 0 || n == 0 {
        return;
    }
    for (row, out) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)).take(m) {
        for (&x, other) in row.iter().zip(b.chunks_exact(n)) {
            add_scaled(out, x, other);
        }
    }
}
