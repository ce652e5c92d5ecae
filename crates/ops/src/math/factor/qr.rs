//! QR decomposition by Householder reflections, with and without column pivoting.

use num_traits::Float;

use super::householder::{apply_left, reflector};
use super::scalar::{Scalar, number, set_identity};

/// Elements of scratch that the functions here need for a matrix of `m` rows and `n` columns.
pub(crate) fn scratch_len(m: usize, n: usize) -> usize {
    2 * m + n
}

/// Replaces the `m` by `n` matrix `a` by `R` on and above the diagonal and the Householder vectors
/// below it; `taus` has `min(m, n)` elements.
pub(crate) fn factor<S: Scalar>(
    a: &mut [S],
    (m, n): (usize, usize),
    taus: &mut [S],
    scratch: &mut [S],
) {
    for (k, tau) in taus.iter_mut().enumerate() {
        *tau = eliminate(a, (m, n), k, scratch);
    }
}

/// Makes column `k` zero below the diagonal; returns the reflection's `tau`.
fn eliminate<S: Scalar>(a: &mut [S], (m, n): (usize, usize), k: usize, scratch: &mut [S]) -> S {
    let (v, sums) = scratch.split_at_mut(m);
    let v = &mut v[..m - k];
    for (i, v) in v.iter_mut().enumerate() {
        *v = a[(k + i) * n + k];
    }
    let (tau, beta) = reflector(v);
    apply_left(a, n, (k, k + 1), (v, tau), sums);
    a[k * n + k] = S::real(beta);
    for (i, &v) in v.iter().enumerate().skip(1) {
        a[(k + i) * n + k] = v;
    }
    tau
}

/// Multiplies `b`, of `m` rows and `columns` columns, by `Q^H` from the left.
pub(crate) fn apply_adjoint<S: Scalar>(
    (qr, taus): (&[S], &[S]),
    (m, n): (usize, usize),
    b: &mut [S],
    columns: usize,
    scratch: &mut [S],
) {
    for (k, &tau) in taus.iter().enumerate() {
        let (v, sums) = reflection(qr, (m, n), k, scratch);
        apply_left(b, columns, (k, 0), (v, tau), sums);
    }
}

/// Multiplies `b`, of `m` rows and `columns` columns, by `Q` from the left.
pub(crate) fn apply<S: Scalar>(
    (qr, taus): (&[S], &[S]),
    (m, n): (usize, usize),
    b: &mut [S],
    columns: usize,
    scratch: &mut [S],
) {
    for (k, tau) in taus.iter().enumerate().rev() {
        let (v, sums) = reflection(qr, (m, n), k, scratch);
        apply_left(b, columns, (k, 0), (v, tau.conj()), sums);
    }
}

/// The vector of reflection `k`, and the rest of the scratch.
fn reflection<'a, S: Scalar>(
    qr: &[S],
    (m, n): (usize, usize),
    k: usize,
    scratch: &'a mut [S],
) -> (&'a [S], &'a mut [S]) {
    let (v, sums) = scratch.split_at_mut(m);
    let v = &mut v[..m - k];
    v[0] = S::ONE;
    for (i, v) in v.iter_mut().enumerate().skip(1) {
        *v = qr[(k + i) * n + k];
    }
    (v, sums)
}

/// The first `columns` columns of `Q`, as `m` rows.
pub(crate) fn form_q<S: Scalar>(
    (qr, taus): (&[S], &[S]),
    (m, n): (usize, usize),
    q: &mut [S],
    columns: usize,
    scratch: &mut [S],
) {
    set_identity(q, columns);
    for (k, tau) in taus.iter().enumerate().rev() {
        let (v, sums) = reflection(qr, (m, n), k, scratch);
        // Columns before the k-th are still identity columns, which are zero in the rows of `v`.
        apply_left(q, columns, (k, k.min(columns)), (v, tau.conj()), sums);
    }
}

/// The first `rows` rows of `R`, as rows of `n`.
pub(crate) fn copy_r<S: Scalar>(qr: &[S], n: usize, r: &mut [S], rows: usize) {
    for (i, (to, from)) in
        r.chunks_exact_mut(n.max(1)).zip(qr.chunks_exact(n.max(1))).enumerate().take(rows)
    {
        let zeros = i.min(n);
        to[..zeros].fill(S::ZERO);
        to[zeros..].copy_from_slice(&from[zeros..]);
    }
}

/// As [`factor`], with column pivoting: each step takes the remaining column of largest norm, and
/// column `j` of the factored matrix is column `order[j]` of `a`. `norms` has `2 n` elements.
pub(crate) fn factor_pivoted<S: Scalar>(
    a: &mut [S],
    (m, n): (usize, usize),
    (taus, order): (&mut [S], &mut [usize]),
    norms: &mut [S::Real],
    scratch: &mut [S],
) {
    let (updated, direct) = norms.split_at_mut(n);
    for j in 0..n {
        order[j] = j;
        direct[j] = column_norm(a, (m, n), 0, j);
        updated[j] = direct[j];
    }
    let limit = S::Real::epsilon().sqrt();
    for k in 0..taus.len() {
        let mut pivot = k;
        for j in k + 1..n {
            if updated[j] > updated[pivot] {
                pivot = j;
            }
        }
        if pivot != k {
            a.chunks_exact_mut(n).for_each(|row| row.swap(k, pivot));
            order.swap(k, pivot);
            updated.swap(k, pivot);
            direct.swap(k, pivot);
        }
        taus[k] = eliminate(a, (m, n), k, scratch);
        // Downdates the norms of the remaining columns; recomputes one only where cancellation
        // would lose digits.
        for j in k + 1..n {
            if updated[j] == S::Real::ZERO {
                continue;
            }
            let ratio = a[k * n + j].size() / updated[j];
            let left = ((S::Real::ONE + ratio) * (S::Real::ONE - ratio)).max(S::Real::ZERO);
            let shrunk = updated[j] / direct[j];
            if left * shrunk * shrunk <= limit {
                direct[j] = column_norm(a, (m, n), k + 1, j);
                updated[j] = direct[j];
            } else {
                updated[j] *= left.sqrt();
            }
        }
    }
}

fn column_norm<S: Scalar>(a: &[S], (m, n): (usize, usize), from: usize, j: usize) -> S::Real {
    (from..m).fold(S::Real::ZERO, |sum, i| sum + a[i * n + j].norm_sqr()).sqrt()
}

/// Numerical rank: the number of diagonal elements of the pivoted `R` above the rounding error.
pub(crate) fn rank<S: Scalar>(qr: &[S], (m, n): (usize, usize)) -> usize {
    let count = m.min(n);
    let diagonal = |i: usize| qr[i * n + i].size();
    let largest = (0..count).map(diagonal).fold(S::Real::ZERO, |a, b| if b > a { b } else { a });
    let limit = largest * S::Real::epsilon() * number(count as f64);
    (0..count).take_while(|&i| diagonal(i) > limit).count()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(23);
        for (m, n) in [(0, 3), (3, 0), (1, 1), (3, 3), (5, 2), (2, 5), (20, 13), (13, 20)] {
            for is_pivoted in [false, true] {
                let mut a = random.matrix::<S>(m, n);
                if n > 2 && m > 0 {
                    // One column depends on another, and one is zero.
                    (0..m).for_each(|i| {
                        a[i * n + 1] = a[i * n];
                        a[i * n + 2] = S::ZERO;
                    });
                }
                let (k, mut qr) = (m.min(n), a.clone());
                let mut taus = vec![S::ZERO; k];
                let mut order: Vec<usize> = (0..n).collect();
                let mut scratch = vec![S::ZERO; scratch_len(m, n)];
                if is_pivoted {
                    let mut norms = vec![S::Real::ZERO; 2 * n];
                    factor_pivoted(
                        &mut qr,
                        (m, n),
                        (&mut taus, &mut order),
                        &mut norms,
                        &mut scratch,
                    );
                    if n > 3 && m >= n {
                        assert_eq!(rank(&qr, (m, n)), n - 2);
                    }
                } else {
                    factor(&mut qr, (m, n), &mut taus, &mut scratch);
                }
                let expected: Vec<S> = (0..m * n).map(|at| a[at / n * n + order[at % n]]).collect();
                for columns in [k, m] {
                    let (mut q, mut r) = (vec![S::ZERO; m * columns], vec![S::ZERO; columns * n]);
                    form_q(
                        (&qr, &taus),
                        (m, n),
                        &mut q,
                        columns,
                        &mut vec![S::ZERO; scratch_len(m, m)],
                    );
                    copy_r(&qr, n, &mut r, columns);
                    assert_orthonormal(&q, m, columns, 1e2);
                    assert_close(&product(&q, &r, (m, columns, n)), &expected, 1e2);
                }
                let mut whole = vec![S::ZERO; m * m];
                set_identity(&mut whole, m);
                let mut scratch = vec![S::ZERO; scratch_len(m, m)];
                apply((&qr, &taus), (m, n), &mut whole, m, &mut scratch);
                apply_adjoint((&qr, &taus), (m, n), &mut whole, m, &mut scratch);
                let mut identity = vec![S::ZERO; m * m];
                set_identity(&mut identity, m);
                assert_close(&whole, &identity, 1e2);
            }
        }
    }

    #[test]
    fn factors_multiply_back() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
        check::<f32>();
        check::<num_complex::Complex<f32>>();
    }

    #[test]
    fn signs_are_lapacks() {
        let mut a = [4.0, 1.0, 2.0, 3.0];
        let mut taus = [0.0; 2];
        factor(&mut a, (2, 2), &mut taus, &mut [0.0; 6]);
        assert!((a[0] + 20f64.sqrt()).size() < 1e-12 && a[3] > 0.0);
    }
}
