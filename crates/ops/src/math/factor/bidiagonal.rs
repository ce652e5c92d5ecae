//! Singular values of tall matrices by reduction to bidiagonal form.

use num_traits::Float;

use super::householder::{apply_left, apply_right, reflector};
use super::rotation::rotate_real;
use super::scalar::{Scalar, number, set_identity, two_rows};

/// QR steps for each singular value, at most.
const ROUNDS_MAX: usize = 40;

/// Elements of scratch that [`decompose`] needs for `m` by `n`, `m >= n`.
pub(crate) fn scratch_len(m: usize, n: usize) -> usize {
    2 * n + n * m + n * n + m
}

/// Singular value decomposition of the tall `m` by `n` matrix `a`. Sets the singular values, in any
/// order, and writes singular vectors as rows: `u_rows` receives as many columns of `u` as it has
/// rows of `m` elements, `v_rows` the columns of `v`; either may be empty. `a` is overwritten;
/// `off` has `n` elements. Returns false if the iteration did not converge.
pub(crate) fn decompose<S: Scalar>(
    a: &mut [S],
    (m, n): (usize, usize),
    (values, off): (&mut [S::Real], &mut [S::Real]),
    (u_rows, v_rows): (&mut [S], &mut [S]),
    scratch: &mut [S],
) -> bool {
    let (taus, scratch) = scratch.split_at_mut(2 * n);
    let (left, scratch) = scratch.split_at_mut(n * m);
    let (right, sums) = scratch.split_at_mut(n * n);
    let off = &mut off[..n];
    reduce(a, (m, n), (left, right), taus, (values, off), sums);
    if !v_rows.is_empty() {
        // `u_rows` is the transposed product of the adjoint reflections; for the rows of `v` the
        // reflections' conjugates are applied from the right in reverse order.
        set_identity(u_rows, m);
        let count = u_rows.len() / m;
        for k in (0..n).rev() {
            let v = &mut left[k * m..k * m + m - k];
            v.iter_mut().for_each(|x| *x = x.conj());
            apply_right(u_rows, m, (count, k), (v, taus[k].conj()));
        }
        set_identity(v_rows, n);
        for k in (0..n.saturating_sub(1)).rev() {
            let v = &mut right[k * n..k * n + n - k - 1];
            v.iter_mut().for_each(|x| *x = x.conj());
            apply_right(v_rows, n, (n, k + 1), (v, taus[n + k].conj()));
        }
    }
    let ended = iterate(values, off, (u_rows, m), (v_rows, n));
    for (i, value) in values.iter_mut().enumerate() {
        if *value < S::Real::ZERO {
            *value = -*value;
            if !v_rows.is_empty() {
                v_rows[i * n..(i + 1) * n].iter_mut().for_each(|x| *x = -*x);
            }
        }
    }
    ended
}

/// Reduces `a` to real upper bidiagonal form; the left and right reflections are kept.
fn reduce<S: Scalar>(
    a: &mut [S],
    (m, n): (usize, usize),
    (left, right): (&mut [S], &mut [S]),
    taus: &mut [S],
    (diagonal, off): (&mut [S::Real], &mut [S::Real]),
    sums: &mut [S],
) {
    for k in 0..n {
        let v = &mut left[k * m..k * m + m - k];
        for (i, v) in v.iter_mut().enumerate() {
            *v = a[(k + i) * n + k];
        }
        let (tau, beta) = reflector(v);
        taus[k] = tau;
        diagonal[k] = beta;
        apply_left(a, n, (k, k + 1), (v, tau), sums);
        off[k] = S::Real::ZERO;
        if k + 1 == n {
            break;
        }
        // The row, as a column of the adjoint: A H^H has the row beta, 0, ..
        let v = &mut right[k * n..k * n + n - k - 1];
        for (v, a) in v.iter_mut().zip(&a[k * n + k + 1..(k + 1) * n]) {
            *v = a.conj();
        }
        let (tau, beta) = reflector(v);
        taus[n + k] = tau;
        off[k] = beta;
        apply_rows(&mut a[(k + 1) * n..], n, k + 1, (v, tau.conj()));
    }
}

/// `a H` on all rows, for columns from `column` on.
fn apply_rows<S: Scalar>(a: &mut [S], n: usize, column: usize, reflection: (&[S], S)) {
    let rows = a.len() / n;
    apply_right(a, n, (rows, column), reflection);
}

/// QR steps until the superdiagonal is zero.
fn iterate<S: Scalar>(
    d: &mut [S::Real],
    e: &mut [S::Real],
    (u_rows, m): (&mut [S], usize),
    (v_rows, n): (&mut [S], usize),
) -> bool {
    let zero = S::Real::ZERO;
    let epsilon = S::Real::epsilon();
    let size = d.iter().chain(e.iter()).fold(zero, |a, b| a.max(b.size()));
    let tiny = size * epsilon * epsilon;
    let mut end = n - 1;
    for _ in 0..=ROUNDS_MAX * n {
        for i in 0..end {
            if e[i].size() <= (epsilon * (d[i].size() + d[i + 1].size())).max(tiny) {
                e[i] = zero;
            }
        }
        while end > 0 && e[end - 1] == zero {
            end -= 1;
        }
        if end == 0 {
            return true;
        }
        let mut start = end - 1;
        while start > 0 && e[start - 1] != zero {
            start -= 1;
        }
        let limit = size * epsilon * number(0.5);
        if let Some(i) = (start..=end).find(|&i| d[i].size() <= tiny.max(limit * epsilon)) {
            d[i] = zero;
            if i < end {
                clear_row((d, e), (i, end), (u_rows, m));
            } else {
                clear_column((d, e), (start, end), (v_rows, n));
            }
            continue;
        }
        step((d, e), (start, end), (u_rows, m), (v_rows, n));
    }
    false
}

/// Cosine, sine and length with `c x + s y = r` and `c y - s x = 0`.
fn plane<R: Float>(x: R, y: R) -> (R, R, R) {
    let length = x.hypot(y);
    if length == R::zero() {
        return (R::one(), R::zero(), R::zero());
    }
    (x / length, y / length, length)
}

/// Row `x` becomes `c x + s y`, row `y` becomes `c y - s x`.
fn turn<S: Scalar>(rows: &mut [S], len: usize, (x, y): (usize, usize), c: S::Real, s: S::Real) {
    if rows.is_empty() {
        return;
    }
    let (first, second) = (x.min(y), x.max(y));
    let (low, high) = two_rows(rows, len, first, second);
    if x < y { rotate_real(low, high, c, -s) } else { rotate_real(high, low, c, -s) }
}

/// Handles a zero at diagonal element `i`: rotations with the rows below clear its superdiagonal
/// element.
fn clear_row<S: Scalar>(
    (d, e): (&mut [S::Real], &mut [S::Real]),
    (i, end): (usize, usize),
    (u_rows, m): (&mut [S], usize),
) {
    let mut bulge = std::mem::replace(&mut e[i], S::Real::ZERO);
    for k in i + 1..=end {
        if bulge == S::Real::ZERO {
            break;
        }
        let (c, s, length) = plane(d[k], bulge);
        d[k] = length;
        turn(u_rows, m, (k, i), c, s);
        if k < end {
            bulge = -(s * e[k]);
            e[k] = c * e[k];
        }
    }
}

/// Handles a zero at the end of the diagonal: rotations with the columns before clear its
/// superdiagonal element.
fn clear_column<S: Scalar>(
    (d, e): (&mut [S::Real], &mut [S::Real]),
    (start, end): (usize, usize),
    (v_rows, n): (&mut [S], usize),
) {
    let mut bulge = std::mem::replace(&mut e[end - 1], S::Real::ZERO);
    for k in (start..end).rev() {
        if bulge == S::Real::ZERO {
            break;
        }
        let (c, s, length) = plane(d[k], bulge);
        d[k] = length;
        turn(v_rows, n, (k, end), c, s);
        if k > start {
            bulge = -(s * e[k - 1]);
            e[k - 1] = c * e[k - 1];
        }
    }
}

/// One implicit QR step with Wilkinson's shift.
fn step<S: Scalar>(
    (d, e): (&mut [S::Real], &mut [S::Real]),
    (start, end): (usize, usize),
    (u_rows, m): (&mut [S], usize),
    (v_rows, n): (&mut [S], usize),
) {
    let zero = S::Real::ZERO;
    // The eigenvalue of the trailing 2 by 2 block of B^T B that is nearer to its last element,
    // scaled by the largest element there.
    let scale = [d[end - 1], d[end], e[end - 1], d[start], e[start]]
        .iter()
        .fold(zero, |a, b| a.max(b.size()));
    let (p, q, r) = (d[end - 1] / scale, d[end] / scale, e[end - 1] / scale);
    let f = if end - 1 > start { e[end - 2] / scale } else { zero };
    let half = ((p * p + f * f) - (q * q + r * r)) * number(0.5);
    let corner = p * r;
    let reach = half.hypot(corner);
    let sum = half + if half < zero { -reach } else { reach };
    let shift = (q * q + r * r) - if sum == zero { zero } else { corner * corner / sum };
    let (first, next) = (d[start] / scale, e[start] / scale);
    let (mut x, mut y) = (first - shift / first, next);
    for k in start..end {
        let (c, s, length) = plane(x, y);
        if k > start {
            e[k - 1] = length;
        }
        turn(v_rows, n, (k, k + 1), c, s);
        let (diagonal, over) = (d[k], e[k]);
        let (top, rest) = (c * diagonal + s * over, c * over - s * diagonal);
        let (bulge, below) = (s * d[k + 1], c * d[k + 1]);
        let (c, s, length) = plane(top, bulge);
        d[k] = length;
        turn(u_rows, m, (k, k + 1), c, s);
        e[k] = c * rest + s * below;
        d[k + 1] = c * below - s * rest;
        if k + 1 < end {
            x = e[k];
            y = s * e[k + 1];
            e[k + 1] = c * e[k + 1];
        }
    }
}
