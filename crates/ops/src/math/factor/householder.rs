//! Householder reflections `H = I - tau v v^H` with `v[0] = 1`, which map a vector to a multiple of
//! the first unit vector.

use num_traits::Float;

use super::scalar::{Scalar, add_scaled, dot, norm_sqr, subtract_scaled};

/// Computes the reflection that maps `x` to `(beta, 0, ..)`. The tail of `x` becomes the tail of
/// `v`, its first element becomes 1; returns `tau` and the real `beta`, whose sign is opposite to
/// that of `x[0]`.
pub(crate) fn reflector<S: Scalar>(x: &mut [S]) -> (S, S::Real) {
    let Some((first, tail)) = x.split_first_mut() else { return (S::ZERO, S::Real::ZERO) };
    let head = std::mem::replace(first, S::ONE);
    let rest = norm_sqr(tail);
    let tiny = S::Real::min_positive_value();
    if rest <= tiny && head.im() * head.im() <= tiny {
        tail.fill(S::ZERO);
        return (S::ZERO, head.re());
    }
    let norm = (head.norm_sqr() + rest).sqrt();
    let beta = if head.re() >= S::Real::ZERO { -norm } else { norm };
    let inverse = S::ONE.over(head - S::real(beta));
    tail.iter_mut().for_each(|x| *x *= inverse);
    ((S::real(beta) - head).conj().scaled(beta.recip()), beta)
}

/// `a = H a` for the rows of `a` that `v` covers: rows `row..row + v.len()`, columns from `column`
/// on, of a matrix of `n` columns. `scratch` has `n` elements.
pub(crate) fn apply_left<S: Scalar>(
    a: &mut [S],
    n: usize,
    (row, column): (usize, usize),
    (v, tau): (&[S], S),
    scratch: &mut [S],
) {
    if tau == S::ZERO || column >= n {
        return;
    }
    let rows = a.chunks_exact_mut(n).skip(row).take(v.len());
    let sums = &mut scratch[..n - column];
    sums.fill(S::ZERO);
    for (a, v) in rows.zip(v) {
        add_scaled(sums, v.conj(), &a[column..]);
    }
    for (a, &v) in a.chunks_exact_mut(n).skip(row).take(v.len()).zip(v) {
        subtract_scaled(&mut a[column..], tau * v, sums);
    }
}

/// `a = a H` for columns `column..column + v.len()` of the first `rows` rows of a matrix of `n`
/// columns.
pub(crate) fn apply_right<S: Scalar>(
    a: &mut [S],
    n: usize,
    (rows, column): (usize, usize),
    (v, tau): (&[S], S),
) {
    if tau == S::ZERO {
        return;
    }
    for a in a.chunks_exact_mut(n).take(rows) {
        let part = &mut a[column..column + v.len()];
        let sum = dot(part, v) * tau;
        for (a, &v) in part.iter_mut().zip(v) {
            *a -= sum * v.conj();
        }
    }
}
