//! Hessenberg form: zero below the first subdiagonal, similar to the matrix.

use super::householder::{apply_left, apply_right, reflector};
use super::scalar::{Scalar, set_identity};

/// Elements of scratch that [`reduce`] needs for `n` rows.
pub(crate) fn scratch_len(n: usize) -> usize {
    n * n + 2 * n
}

/// Replaces the `n` by `n` matrix `a` by its Hessenberg form `H` and sets `u` with `a = u H u^H`.
/// `scratch` has [`scratch_len`] elements.
pub(crate) fn reduce<S: Scalar>(a: &mut [S], n: usize, u: &mut [S], scratch: &mut [S]) {
    set_identity(u, n);
    if n < 2 {
        return;
    }
    let (taus, scratch) = scratch.split_at_mut(n);
    let (vectors, sums) = scratch.split_at_mut(n * n);
    for k in 0..n - 1 {
        let v = &mut vectors[k * n..k * n + n - k - 1];
        for (i, v) in v.iter_mut().enumerate() {
            *v = a[(k + 1 + i) * n + k];
        }
        let (tau, beta) = reflector(v);
        taus[k] = tau;
        a[(k + 1) * n + k] = S::real(beta);
        (k + 2..n).for_each(|i| a[i * n + k] = S::ZERO);
        apply_left(a, n, (k + 1, k + 1), (v, tau), sums);
        apply_right(a, n, (n, k + 1), (v, tau.conj()));
    }
    for k in (0..n - 1).rev() {
        let v = &vectors[k * n..k * n + n - k - 1];
        apply_left(u, n, (k + 1, k + 1), (v, taus[k].conj()), sums);
    }
}
