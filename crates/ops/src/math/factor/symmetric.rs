//! Eigenvalues and eigenvectors of Hermitian matrices: tridiagonal form, then shifted QR steps.

use num_traits::Float;

use super::householder::{apply_left, reflector};
use super::rotation::rotate_real;
use super::scalar::{Scalar, dot, dot_conj, largest, number, set_identity, transpose, two_rows};

/// Maximum number of QR steps per eigenvalue.
const ROUNDS_MAX: usize = 30;

/// Elements of scratch that [`decompose`] needs for `n` rows.
pub(crate) fn scratch_len(n: usize) -> usize {
    n * n + 4 * n
}

/// Eigenvalues, in ascending order, of the Hermitian matrix whose lower triangle is in `a`, and its
/// eigenvectors as columns of `a`, if `with_vectors`. `off` has `n` elements. Returns false if the
/// iteration did not converge. The eigenvalues are NaN if the input is not finite.
pub(crate) fn decompose<S: Scalar>(
    a: &mut [S],
    n: usize,
    values: &mut [S::Real],
    off: &mut [S::Real],
    with_vectors: bool,
    scratch: &mut [S],
) -> bool {
    if n == 0 {
        return true;
    }
    fill_upper(a, n);
    let mut scale = largest(&a[..n * n]);
    if scale.is_nan() {
        values.fill(S::Real::nan());
        set_identity(a, n);
        return true;
    }
    if scale == S::Real::ZERO {
        scale = S::Real::ONE;
    }
    a.iter_mut().for_each(|x| *x = x.scaled(scale.recip()));
    let (taus, scratch) = scratch.split_at_mut(n);
    let (rows, scratch) = scratch.split_at_mut(n * n);
    tridiagonalize(a, n, taus, (values, off), scratch);
    if with_vectors {
        form_vectors(a, n, taus, scratch);
        transpose(a, n, n, rows);
    }
    let ended = iterate((values, off), with_vectors.then_some(rows), n);
    sort(values, with_vectors.then_some(rows), n);
    values.iter_mut().for_each(|x| *x *= scale);
    if with_vectors {
        transpose(rows, n, n, a);
    }
    ended
}

/// Sets the upper triangle to the conjugate of the lower one, and the diagonal to its real part.
fn fill_upper<S: Scalar>(a: &mut [S], n: usize) {
    for i in 0..n {
        a[i * n + i] = S::real(a[i * n + i].re());
        for j in 0..i {
            a[j * n + i] = a[i * n + j].conj();
        }
    }
}

/// Reduces `a` to a real tridiagonal matrix; the Householder vectors stay below its first
/// subdiagonal.
fn tridiagonalize<S: Scalar>(
    a: &mut [S],
    n: usize,
    taus: &mut [S],
    (diagonal, off): (&mut [S::Real], &mut [S::Real]),
    scratch: &mut [S],
) {
    let half = number::<S::Real>(0.5);
    let (v, p) = scratch.split_at_mut(n);
    for k in 0..n - 1 {
        let (v, p) = (&mut v[..n - k - 1], &mut p[..n - k - 1]);
        for (i, v) in v.iter_mut().enumerate() {
            *v = a[(k + 1 + i) * n + k];
        }
        let (tau, beta) = reflector(v);
        taus[k] = tau;
        off[k] = beta;
        // H A H^H = A - v q^H - q v^H with q = p - (tau v^H p / 2) v and p = conj(tau) A v.
        for (i, p) in p.iter_mut().enumerate() {
            let row = &a[(k + 1 + i) * n + k + 1..(k + 2 + i) * n];
            *p = tau.conj() * dot(row, v);
        }
        let middle = (tau * dot_conj(p, v)).scaled(half);
        p.iter_mut().zip(&*v).for_each(|(p, &v)| *p -= middle * v);
        for i in 0..v.len() {
            let (v_i, p_i) = (v[i], p[i]);
            let row = &mut a[(k + 1 + i) * n + k + 1..(k + 2 + i) * n];
            for ((a, &v), &p) in row.iter_mut().zip(&*v).zip(&*p) {
                *a -= v_i * p.conj() + p_i * v.conj();
            }
        }
        for (i, &v) in v.iter().enumerate() {
            a[(k + 1 + i) * n + k] = v;
        }
    }
    for (i, d) in diagonal.iter_mut().enumerate() {
        *d = a[i * n + i].re();
    }
}

/// Replaces the Householder vectors in `a` by the product of their reflections.
fn form_vectors<S: Scalar>(a: &mut [S], n: usize, taus: &[S], scratch: &mut [S]) {
    let (v, sums) = scratch.split_at_mut(n);
    for k in (0..n - 1).rev() {
        let v = &mut v[..n - k - 1];
        for (i, v) in v.iter_mut().enumerate() {
            *v = a[(k + 1 + i) * n + k];
        }
        // Row and column k + 1 of the product are still those of the identity.
        for i in k + 1..n {
            a[i * n + k + 1] = S::ZERO;
            a[(k + 1) * n + i] = S::ZERO;
        }
        a[(k + 1) * n + k + 1] = S::ONE;
        apply_left(a, n, (k + 1, k + 1), (v, taus[k].conj()), sums);
    }
    a[..n].fill(S::ZERO);
    (0..n).for_each(|i| a[i * n] = S::ZERO);
    a[0] = S::ONE;
}

/// QR steps until the matrix is diagonal; `rows` holds the vectors.
fn iterate<S: Scalar>(
    (diagonal, off): (&mut [S::Real], &mut [S::Real]),
    mut rows: Option<&mut [S]>,
    n: usize,
) -> bool {
    let (epsilon, tiny) = (S::Real::epsilon(), S::Real::min_positive_value());
    let (mut end, mut start) = (n - 1, 0);
    for _ in 0..=ROUNDS_MAX * n {
        for i in start..end {
            let scaled = off[i] / epsilon;
            if off[i].size() < tiny
                || scaled * scaled <= diagonal[i].size() + diagonal[i + 1].size()
            {
                off[i] = S::Real::ZERO;
            }
        }
        while end > 0 && off[end - 1] == S::Real::ZERO {
            end -= 1;
        }
        if end == 0 {
            return true;
        }
        start = end - 1;
        while start > 0 && off[start - 1] != S::Real::ZERO {
            start -= 1;
        }
        step(diagonal, off, (start, end), rows.as_deref_mut(), n);
    }
    false
}

/// One implicit QR step on rows `start..=end`, with Wilkinson's shift.
fn step<S: Scalar>(
    diagonal: &mut [S::Real],
    off: &mut [S::Real],
    (start, end): (usize, usize),
    mut rows: Option<&mut [S]>,
    n: usize,
) {
    let zero = S::Real::ZERO;
    let half = (diagonal[end - 1] - diagonal[end]) * number(0.5);
    let e = off[end - 1];
    let mut shift = diagonal[end];
    if half == zero {
        shift -= e.size();
    } else if e != zero {
        let reach = half.hypot(e);
        let sum = half + if half > zero { reach } else { -reach };
        shift -= if e * e == zero { e / (sum / e) } else { e * e / sum };
    }
    let (mut x, mut z) = (diagonal[start] - shift, off[start]);
    for k in start..end {
        if z == zero {
            break;
        }
        let (c, s) = plane(x, z);
        let (d, e, f) = (diagonal[k], off[k], diagonal[k + 1]);
        let (lower, corner) = (s * d + c * e, s * e + c * f);
        diagonal[k] = c * (c * d - s * e) - s * (c * e - s * f);
        diagonal[k + 1] = s * lower + c * corner;
        off[k] = c * lower - s * corner;
        if k > start {
            off[k - 1] = c * off[k - 1] - s * z;
        }
        x = off[k];
        if k + 1 < end {
            z = -(s * off[k + 1]);
            off[k + 1] = c * off[k + 1];
        }
        if let Some(rows) = rows.as_deref_mut() {
            let (first, second) = two_rows(rows, n, k, k + 1);
            rotate_real(first, second, c, s);
        }
    }
}

/// Cosine and sine with `s x + c z = 0`.
fn plane<R: Float>(x: R, z: R) -> (R, R) {
    let (zero, one) = (R::zero(), R::one());
    if z == zero {
        return (if x < zero { -one } else { one }, zero);
    }
    if x == zero {
        return (zero, if z < zero { one } else { -one });
    }
    if x.abs() > z.abs() {
        let ratio = z / x;
        let length = (one + ratio * ratio).sqrt();
        let c = (if x < zero { -length } else { length }).recip();
        (c, -(ratio * c))
    } else {
        let ratio = x / z;
        let length = (one + ratio * ratio).sqrt();
        let s = -(if z < zero { -length } else { length }).recip();
        (-(ratio * s), s)
    }
}

/// Sorts the values in ascending order, each with its row.
fn sort<S: Scalar>(values: &mut [S::Real], mut rows: Option<&mut [S]>, n: usize) {
    for i in 0..n {
        let mut least = i;
        for j in i + 1..n {
            if values[j] < values[least] {
                least = j;
            }
        }
        if least != i {
            values.swap(i, least);
            if let Some(rows) = rows.as_deref_mut() {
                let (x, y) = two_rows(rows, n, i, least);
                x.swap_with_slice(y);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(31);
        for n in [1, 2, 3, 4, 9, 30] {
            for kind in 0..4 {
                let x = random.matrix::<S>(n, n);
                let mut a = match kind {
                    0 => product(&x, &adjoint_of(&x, n, n), (n, n, n)),
                    1 => vec![S::ONE; n * n],
                    2 => vec![S::ZERO; n * n],
                    _ => {
                        let scale = |i: usize| number_of::<S::Real>(10f64.powi(-(i as i32 % 7)));
                        (0..n * n).map(|at| x[at].scaled(scale(at / n) * scale(at % n))).collect()
                    }
                };
                let mut lower = a.clone();
                fill_upper(&mut a, n);
                let (mut values, mut off) = (vec![S::Real::ZERO; n], vec![S::Real::ZERO; n]);
                let mut scratch = vec![S::ZERO; scratch_len(n)];
                assert!(decompose(&mut lower, n, &mut values, &mut off, true, &mut scratch));
                assert!(values.is_sorted());
                assert_orthonormal(&lower, n, n, 1e3);
                let left = product(&a, &lower, (n, n, n));
                let right: Vec<S> = (0..n * n).map(|at| lower[at].scaled(values[at % n])).collect();
                assert_close(&left, &right, 1e3);
                let (mut alone, mut copy) = (vec![S::Real::ZERO; n], a.clone());
                assert!(decompose(&mut copy, n, &mut alone, &mut off, false, &mut scratch));
                assert_close(&alone, &values, 1e3);
            }
        }
        let mut bad = vec![S::real(S::Real::nan()); 4];
        let mut values = vec![S::Real::ZERO; 2];
        let mut scratch = vec![S::ZERO; scratch_len(2)];
        assert!(decompose(&mut bad, 2, &mut values, &mut [S::Real::ZERO; 2], true, &mut scratch));
        assert!(values[0].is_nan());
    }

    #[test]
    fn vectors_and_values_belong_together() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
        check::<f32>();
        check::<num_complex::Complex<f32>>();
    }
}
