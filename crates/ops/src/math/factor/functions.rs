//! Matrix square root, logarithm and exponential.

use num_complex::Complex;
use num_traits::Float;

use super::scalar::{Scalar, adjoint, largest, multiply, number, set_identity};
use super::{lu, schur};

/// Nodes and weights of seven-point Gauss-Legendre quadrature on 0..1.
const NODES: [(f64, f64); 7] = [
    (0.025_446_043_828_620_74, 0.064_742_483_084_434_85),
    (0.129_234_407_200_302_78, 0.139_852_695_744_638_33),
    (0.297_077_424_311_301_4, 0.190_915_025_252_559_47),
    (0.5, 0.208_979_591_836_734_7),
    (0.702_922_575_688_698_6, 0.190_915_025_252_559_47),
    (0.870_765_592_799_697_2, 0.139_852_695_744_638_33),
    (0.974_553_956_171_379_3, 0.064_742_483_084_434_85),
];

/// Maximum number of square roots in a logarithm before it fails.
const ROOTS_MAX: usize = 200;

/// Elements of scratch that the functions here need for `n` rows.
pub(crate) fn scratch_len(n: usize) -> usize {
    6 * n * n + schur::scratch_len(n)
}

/// Replaces the upper triangular `t` by its principal square root.
fn root_of_triangle<S: Scalar>(t: &mut [S], n: usize) {
    for j in 0..n {
        t[j * n + j] = t[j * n + j].root();
        for i in (0..j).rev() {
            let mut sum = t[i * n + j];
            for k in i + 1..j {
                sum -= t[i * n + k] * t[k * n + j];
            }
            t[i * n + j] = sum.over(t[i * n + i] + t[j * n + j]);
        }
    }
}

/// The principal square root of the complex matrix `a`, in place; NaN if it does not exist.
pub(crate) fn square_root<S: Scalar>(a: &mut [S], n: usize, scratch: &mut [S]) {
    through_schur(a, n, scratch, |t, _| {
        root_of_triangle(t, n);
        true
    });
}

/// The principal logarithm of the complex matrix `a`, in place; NaN if it does not exist.
pub(crate) fn logarithm<S: Scalar>(a: &mut [S], n: usize, scratch: &mut [S]) {
    through_schur(a, n, scratch, |t, scratch| logarithm_of_triangle(t, n, scratch));
}

/// Applies `work` to the Schur form of `a` and transforms the result back into `a`.
fn through_schur<S: Scalar>(
    a: &mut [S],
    n: usize,
    scratch: &mut [S],
    work: impl FnOnce(&mut [S], &mut [S]) -> bool,
) {
    let (u, rest) = scratch.split_at_mut(n * n);
    let (product, rest) = rest.split_at_mut(n * n);
    if !(schur::decompose(a, n, u, rest) && work(a, rest)) {
        a.fill(S::of(S::Real::nan(), S::Real::nan()));
        return;
    }
    multiply(u, a, product, (n, n, n));
    let back = &mut rest[..n * n];
    adjoint(u, n, n, back);
    multiply(product, back, a, (n, n, n));
}

/// Logarithm by inverse scaling and squaring: square roots until the matrix is near the identity,
/// then quadrature of `x (1 + s x)^-1`.
fn logarithm_of_triangle<S: Scalar>(t: &mut [S], n: usize, scratch: &mut [S]) -> bool {
    let mut doublings = S::Real::ONE;
    let near = number::<S::Real>(0.2);
    let mut roots = 0;
    loop {
        let distance = (0..n * n).fold(S::Real::ZERO, |far, at| {
            let one = if at / n == at % n { S::ONE } else { S::ZERO };
            far.max((t[at] - one).size())
        });
        if distance * number(n as f64) <= near {
            break;
        }
        roots += 1;
        if roots > ROOTS_MAX {
            return false;
        }
        root_of_triangle(t, n);
        doublings = doublings + doublings;
    }
    (0..n).for_each(|i| t[i * n + i] -= S::ONE);
    let (sum, rest) = scratch.split_at_mut(n * n);
    let (matrix, rest) = rest.split_at_mut(n * n);
    let x = &mut rest[..n * n];
    sum.fill(S::ZERO);
    let upper = super::triangular::Triangle { lower: false, adjoint: false };
    for (node, weight) in NODES {
        for (at, (m, &t)) in matrix.iter_mut().zip(&*t).enumerate() {
            let one = if at / n == at % n { S::ONE } else { S::ZERO };
            *m = one + t.scaled(number(node));
        }
        x.copy_from_slice(t);
        super::triangular::solve(matrix, n, upper, x, n);
        sum.iter_mut().zip(&*x).for_each(|(sum, x)| *sum += x.scaled(number(weight)));
    }
    t.iter_mut().zip(&*sum).for_each(|(t, sum)| *t = sum.scaled(doublings));
    true
}

/// The square root of a real matrix, computed in `wide` as a complex one; NaN if it is not real.
pub(crate) fn real_square_root<R>(
    a: &mut [R],
    n: usize,
    wide: &mut [Complex<R>],
    scratch: &mut [Complex<R>],
) where
    R: Scalar<Real = R> + Float,
    Complex<R>: Scalar<Real = R>,
{
    wide.iter_mut().zip(&*a).for_each(|(wide, &a)| *wide = Complex::new(a, R::ZERO));
    square_root(wide, n, scratch);
    let limit = largest(wide) * R::epsilon().sqrt();
    // Comparisons with NaN are false: NaN stays NaN.
    let is_real = !wide.iter().any(|x| x.im.size() > limit);
    for (a, wide) in a.iter_mut().zip(&*wide) {
        *a = if is_real { wide.re } else { R::nan() };
    }
}

/// Coefficients of the numerator of the Padé approximant of degree 13.
const PADE: [f64; 14] = [
    64_764_752_532_480_000.0,
    32_382_376_266_240_000.0,
    7_771_770_303_897_600.0,
    1_187_353_796_428_800.0,
    129_060_195_264_000.0,
    10_559_470_521_600.0,
    670_442_572_800.0,
    33_522_128_640.0,
    1_323_241_920.0,
    40_840_800.0,
    960_960.0,
    16_380.0,
    182.0,
    1.0,
];

/// The exponential of `a`, in place, by scaling and squaring of a Padé approximant.
pub(crate) fn exponential<S: Scalar>(
    a: &mut [S],
    n: usize,
    order: &mut [usize],
    scratch: &mut [S],
) {
    let norm = (0..n)
        .map(|j| (0..n).fold(S::Real::ZERO, |sum, i| sum + a[i * n + j].size()))
        .fold(S::Real::ZERO, |a, b| if b > a || b.is_nan() { b } else { a });
    if !norm.is_finite() {
        a.fill(S::of(S::Real::nan(), S::Real::nan()));
        return;
    }
    let mut halvings = 0;
    let mut size = norm;
    while size > number(5.0) {
        size *= number(0.5);
        halvings += 1;
    }
    let shrink = number::<S::Real>(0.5).powi(halvings);
    a.iter_mut().for_each(|x| *x = x.scaled(shrink));
    let (square, rest) = scratch.split_at_mut(n * n);
    let (even, rest) = rest.split_at_mut(n * n);
    let (odd, rest) = rest.split_at_mut(n * n);
    let (next, rest) = rest.split_at_mut(n * n);
    multiply(a, a, square, (n, n, n));
    horner(&[12, 10, 8, 6, 4, 2, 0], square, n, even, next);
    horner(&[13, 11, 9, 7, 5, 3, 1], square, n, odd, next);
    multiply(a, odd, next, (n, n, n));
    // (even - odd) x = even + odd
    for ((a, even), &odd) in a.iter_mut().zip(even.iter_mut()).zip(&*next) {
        *a = *even + odd;
        *even -= odd;
    }
    lu::factor(even, n, order);
    lu::solve((even, order), n, false, a, n, &mut rest[..n * n]);
    for _ in 0..halvings {
        square.copy_from_slice(a);
        multiply(square, square, a, (n, n, n));
    }
}

/// The polynomial in `square` with these coefficients of [`PADE`], highest first.
fn horner<S: Scalar>(degrees: &[usize], square: &[S], n: usize, out: &mut [S], next: &mut [S]) {
    // Divided by the largest coefficient, so that single precision can hold all of them.
    let coefficient = |degree: usize| number::<S::Real>(PADE[degree] / PADE[0]);
    set_identity(out, n);
    out.iter_mut().for_each(|x| *x = x.scaled(coefficient(degrees[0])));
    for &degree in &degrees[1..] {
        multiply(out, square, next, (n, n, n));
        out.copy_from_slice(next);
        (0..n).for_each(|i| out[i * n + i] += S::real(coefficient(degree)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    type C = Complex<f64>;

    #[test]
    fn roots_square_and_logarithms_undo_exponentials() {
        let mut random = Random::new(41);
        for n in [1, 2, 4, 7] {
            let a = random.matrix::<C>(n, n);
            let mut scratch = vec![C::ZERO; scratch_len(n)];
            let mut root = a.clone();
            square_root(&mut root, n, &mut scratch);
            assert_close(&product(&root, &root, (n, n, n)), &a, 1e4);
            let mut log = a.clone();
            logarithm(&mut log, n, &mut scratch);
            exponential(&mut log, n, &mut vec![0; n], &mut scratch);
            assert_close(&log, &a, 1e5);
            // A larger norm takes the squaring steps.
            let big: Vec<C> = a.iter().map(|x| x.scaled(9.0)).collect();
            let half: Vec<C> = a.iter().map(|x| x.scaled(4.5)).collect();
            let (mut big_exp, mut half_exp) = (big, half);
            exponential(&mut big_exp, n, &mut vec![0; n], &mut scratch);
            exponential(&mut half_exp, n, &mut vec![0; n], &mut scratch);
            assert_close(&product(&half_exp, &half_exp, (n, n, n)), &big_exp, 1e5);
        }
    }

    #[test]
    fn real_roots() {
        let mut a = [4.0, 1.0, 2.0, 3.0];
        let mut wide = vec![C::ZERO; 4];
        let mut scratch = vec![C::ZERO; scratch_len(2)];
        real_square_root(&mut a, 2, &mut wide, &mut scratch);
        assert_close(&product(&a, &a, (2, 2, 2)), &[4.0, 1.0, 2.0, 3.0], 1e3);
        let mut none = [1.0, 2.0, 2.0, 1.0];
        real_square_root(&mut none, 2, &mut wide, &mut scratch);
        assert!(none.iter().all(|x| x.is_nan()));
    }
}
