//! LU decomposition with partial pivoting; solve, inverse and determinant.

use num_traits::Float;

use super::scalar::{Scalar, adjoint, set_identity, subtract_scaled, two_rows};
use super::triangular::{self, Triangle};

/// Replaces the `n` by `n` matrix `a` by its LU factors: the unit lower triangle is below the
/// diagonal, the upper triangle on and above it. Row `i` of their product is row `order[i]` of the
/// matrix. Returns whether the number of row exchanges is odd.
pub(crate) fn factor<S: Scalar>(a: &mut [S], n: usize, order: &mut [usize]) -> bool {
    let mut is_odd = false;
    for (i, place) in order.iter_mut().enumerate() {
        *place = i;
    }
    for k in 0..n {
        let mut pivot = k;
        let mut largest = a[k * n + k].size();
        for i in k + 1..n {
            let size = a[i * n + k].size();
            if size > largest {
                (pivot, largest) = (i, size);
            }
        }
        if pivot != k {
            let (x, y) = two_rows(a, n, k, pivot);
            x.swap_with_slice(y);
            order.swap(k, pivot);
            is_odd = !is_odd;
        }
        if largest == S::Real::ZERO {
            continue;
        }
        let (head, tail) = a.split_at_mut((k + 1) * n);
        let row = &head[k * n..];
        let pivot = row[k];
        for other in tail.chunks_exact_mut(n) {
            let factor = other[k].over(pivot);
            other[k] = factor;
            subtract_scaled(&mut other[k + 1..], factor, &row[k + 1..]);
        }
    }
    is_odd
}

/// Whether a pivot is zero, so that there is no inverse. A NaN pivot does not count.
pub(crate) fn is_singular<S: Scalar>(lu: &[S], n: usize) -> bool {
    (0..n).any(|i| lu[i * n + i].size() == S::Real::ZERO)
}

/// Solves `a x = b`, or `a^H x = b`, from the factors of `a`. `b` has `n` rows of `columns` and is
/// copied to `x`, permuted where necessary; `scratch` has the same length.
pub(crate) fn solve<S: Scalar>(
    (lu, order): (&[S], &[usize]),
    n: usize,
    is_adjoint: bool,
    x: &mut [S],
    columns: usize,
    scratch: &mut [S],
) {
    let copy_row = |to: &mut [S], at: usize, from: &[S], index: usize| {
        to[at * columns..(at + 1) * columns]
            .copy_from_slice(&from[index * columns..(index + 1) * columns]);
    };
    if is_adjoint {
        triangular::solve(lu, n, Triangle { lower: false, adjoint: true }, x, columns);
        solve_unit(lu, n, true, x, columns);
        scratch[..x.len()].copy_from_slice(x);
        (0..n).for_each(|i| copy_row(x, order[i], scratch, i));
    } else {
        scratch[..x.len()].copy_from_slice(x);
        (0..n).for_each(|i| copy_row(x, i, scratch, order[i]));
        solve_unit(lu, n, false, x, columns);
        triangular::solve(lu, n, Triangle { lower: false, adjoint: false }, x, columns);
    }
}

/// Solves with the unit lower triangle, or its adjoint.
fn solve_unit<S: Scalar>(lu: &[S], n: usize, is_adjoint: bool, x: &mut [S], columns: usize) {
    if columns == 0 {
        return;
    }
    for step in 0..n {
        let i = if is_adjoint { n - 1 - step } else { step };
        let (before, rest) = x.split_at_mut(i * columns);
        let own = &mut rest[..columns];
        for (other, &factor) in before.chunks_exact_mut(columns).zip(&lu[i * n..i * n + i]) {
            if is_adjoint {
                subtract_scaled(other, factor.conj(), own);
            } else {
                subtract_scaled(own, factor, other);
            }
        }
    }
}

/// The inverse from the factors, or its adjoint. `out` and `scratch` have `n` by `n` elements.
pub(crate) fn inverse<S: Scalar>(
    factors: (&[S], &[usize]),
    n: usize,
    is_adjoint: bool,
    out: &mut [S],
    scratch: &mut [S],
) {
    set_identity(out, n);
    solve(factors, n, false, out, n, scratch);
    if is_adjoint {
        scratch[..n * n].copy_from_slice(out);
        adjoint(&scratch[..n * n], n, n, out);
    }
}

/// The determinant from the factors, as its sign (a number of absolute value 1) and the logarithm
/// of its absolute value.
pub(crate) fn log_determinant<S: Scalar>(lu: &[S], n: usize, is_odd: bool) -> (S, S::Real) {
    let mut sign = if is_odd { -S::ONE } else { S::ONE };
    let mut log = S::Real::ZERO;
    for i in 0..n {
        let pivot = lu[i * n + i];
        let size = pivot.size();
        sign *= if size == S::Real::ZERO { S::ZERO } else { pivot.scaled(size.recip()) };
        log += Float::ln(size);
    }
    (sign, log)
}

/// The determinant from the factors.
pub(crate) fn determinant<S: Scalar>(lu: &[S], n: usize, is_odd: bool) -> S {
    let product = (0..n).fold(S::ONE, |product, i| product * lu[i * n + i]);
    if is_odd { -product } else { product }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(17);
        for n in [0, 1, 2, 3, 8, 21] {
            let a = random.matrix::<S>(n, n);
            let (mut lu, mut order) = (a.clone(), vec![0; n]);
            let is_odd = factor(&mut lu, n, &mut order);
            let (mut l, mut u) = (lu.clone(), lu.clone());
            for i in 0..n {
                for j in 0..n {
                    if j >= i {
                        l[i * n + j] = if i == j { S::ONE } else { S::ZERO };
                    }
                    if j < i {
                        u[i * n + j] = S::ZERO;
                    }
                }
            }
            let back = product(&l, &u, (n, n, n));
            let permuted: Vec<S> = (0..n * n).map(|at| a[order[at / n] * n + at % n]).collect();
            assert_close(&back, &permuted, 1e2);
            let b = random.matrix::<S>(n, 2);
            let mut scratch = vec![S::ZERO; n * n.max(2)];
            for is_adjoint in [false, true] {
                let mut x = b.clone();
                solve((&lu, &order), n, is_adjoint, &mut x, 2, &mut scratch);
                let matrix = if is_adjoint { adjoint_of(&a, n, n) } else { a.clone() };
                assert_close(&product(&matrix, &x, (n, n, 2)), &b, 1e6);
            }
            let mut inverted = vec![S::ZERO; n * n];
            inverse((&lu, &order), n, false, &mut inverted, &mut scratch);
            let mut identity = vec![S::ZERO; n * n];
            set_identity(&mut identity, n);
            assert_close(&product(&a, &inverted, (n, n, n)), &identity, 1e6);
            let (sign, log) = log_determinant(&lu, n, is_odd);
            let whole = determinant(&lu, n, is_odd);
            assert_close(&[sign.scaled(Float::exp(log))], &[whole], 1e3);
        }
    }

    #[test]
    fn factors_multiply_back() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
        check::<f32>();
    }

    #[test]
    fn singular_matrices_are_known() {
        let mut a = [1.0, 2.0, 2.0, 4.0];
        let is_odd = factor(&mut a, 2, &mut [0; 2]);
        assert!(is_singular(&a, 2) && determinant(&a, 2, is_odd) == 0.0);
        let mut a = [f64::NAN; 4];
        factor(&mut a, 2, &mut [0; 2]);
        assert!(!is_singular(&a, 2));
    }
}
