//! Cholesky factors of Hermitian positive definite matrices, and their gradient.

use num_traits::Float;

use super::scalar::{Scalar, dot_conj};
use super::triangular::{self, Triangle};

/// Replaces the lower triangle of the `n` by `n` matrix `a`, diagonal included, by its factor `L`
/// with `L L^H = a`; the upper triangle is neither read nor written. Returns false if the matrix is
/// not positive definite; the content of `a` is then unspecified.
pub(crate) fn factor<S: Scalar>(a: &mut [S], n: usize) -> bool {
    for i in 0..n {
        let (done, rest) = a.split_at_mut(i * n);
        let row = &mut rest[..n];
        for j in 0..i {
            let other = &done[j * n..(j + 1) * n];
            let sum = dot_conj(&row[..j], &other[..j]);
            row[j] = (row[j] - sum).scaled(other[j].re().recip());
        }
        let squares = super::scalar::norm_sqr(&row[..i]);
        let pivot = row[i].re() - squares;
        if pivot <= S::Real::ZERO {
            return false;
        }
        row[i] = S::real(pivot.sqrt());
    }
    true
}

/// Sets the elements above the diagonal to zero.
pub(crate) fn clear_upper<S: Scalar>(a: &mut [S], n: usize) {
    for (i, row) in a.chunks_exact_mut(n.max(1)).enumerate().take(n) {
        row[i + 1..].fill(S::ZERO);
    }
}

/// Solves `L L^H x = b` in place, for `b` of `n` rows and `columns` columns.
pub(crate) fn solve<S: Scalar>(l: &[S], n: usize, b: &mut [S], columns: usize) {
    triangular::solve(l, n, Triangle { lower: true, adjoint: false }, b, columns);
    triangular::solve(l, n, Triangle { lower: true, adjoint: true }, b, columns);
}

/// The gradient with respect to the factored matrix, from the factor `l` and the gradient with
/// respect to `l`, whose lower triangle is read. `out` and `scratch` have `n` by `n` elements.
pub(crate) fn gradient<S: Scalar>(l: &[S], grad: &[S], n: usize, out: &mut [S], scratch: &mut [S]) {
    let half = (S::Real::ONE + S::Real::ONE).recip();
    // The lower triangle of L^H grad, its diagonal halved.
    out.fill(S::ZERO);
    for k in 0..n {
        for i in 0..=k {
            let factor = l[k * n + i].conj();
            for j in 0..=i {
                out[i * n + j] += factor * grad[k * n + j];
            }
        }
    }
    for i in 0..n {
        out[i * n + i] = out[i * n + i].scaled(half);
    }
    // Computes L^-H X L^-1 for the matrix X above; the right factor is applied through the adjoint.
    let adjoint = Triangle { lower: true, adjoint: true };
    triangular::solve(l, n, adjoint, out, n);
    super::scalar::adjoint(out, n, n, scratch);
    triangular::solve(l, n, adjoint, scratch, n);
    for i in 0..n {
        for j in 0..n {
            out[i * n + j] = (scratch[i * n + j] + scratch[j * n + i].conj()).scaled(half);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(3);
        for n in [0, 1, 2, 3, 7, 20] {
            let x = random.matrix::<S>(n, n + 2);
            let a = product(&x, &adjoint_of(&x, n, n + 2), (n, n + 2, n));
            let mut l = a.clone();
            assert!(factor(&mut l, n));
            clear_upper(&mut l, n);
            let back = product(&l, &adjoint_of(&l, n, n), (n, n, n));
            assert_close(&back, &a, 1e2);
            let b = random.matrix::<S>(n, 3);
            let mut solution = b.clone();
            solve(&l, n, &mut solution, 3);
            assert_close(&product(&a, &solution, (n, n, 3)), &b, 1e5);
        }
        let mut indefinite = vec![S::ONE, S::ZERO, S::real(number_of(2.0)), S::ONE];
        assert!(!factor(&mut indefinite, 2));
    }

    #[test]
    fn factors_multiply_back() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
        check::<f32>();
    }

    /// Compares the gradient of the sum of `w L` with finite differences.
    #[test]
    fn gradients_are_differences() {
        let mut random = Random::new(5);
        let n = 4;
        let x = random.matrix::<f64>(n, n + 2);
        let a = product(&x, &adjoint_of(&x, n, n + 2), (n, n + 2, n));
        let w = random.matrix::<f64>(n, n);
        let value = |a: &[f64]| {
            let mut l = a.to_vec();
            assert!(factor(&mut l, n));
            clear_upper(&mut l, n);
            l.iter().zip(&w).map(|(l, w)| l * w).sum::<f64>()
        };
        let mut l = a.clone();
        factor(&mut l, n);
        let (mut out, mut scratch) = (vec![0.0; n * n], vec![0.0; n * n]);
        gradient(&l, &w, n, &mut out, &mut scratch);
        for i in 0..n {
            for j in 0..=i {
                let step = 1e-6;
                let (mut up, mut down) = (a.clone(), a.clone());
                for (m, s) in [(&mut up, step), (&mut down, -step)] {
                    m[i * n + j] += s;
                    m[j * n + i] = m[i * n + j];
                }
                let slope = (value(&up) - value(&down)) / (2.0 * step);
                let own = if i == j { out[i * n + i] } else { 2.0 * out[i * n + j] };
                assert!((slope - own).size() < 1e-5, "{i} {j}: {slope} {own}");
            }
        }
    }
}
