//! Schur form of complex matrices: triangular, and unitarily similar to the matrix.

use num_traits::Float;

use super::hessenberg;
use super::rotation::Rotation;
use super::scalar::{Scalar, largest, number, set_identity};

/// Maximum number of QR steps per row.
const ROUNDS_MAX: usize = 30;

/// Elements of scratch that [`decompose`] needs for `n` rows.
pub(crate) fn scratch_len(n: usize) -> usize {
    hessenberg::scratch_len(n)
}

/// Replaces the complex `n` by `n` matrix `a` by the upper triangular `T` and sets `u` with `a = u
/// T u^H`. Returns false if the iteration did not converge or the matrix is not finite.
pub(crate) fn decompose<S: Scalar>(a: &mut [S], n: usize, u: &mut [S], scratch: &mut [S]) -> bool {
    set_identity(u, n);
    if n == 0 {
        return true;
    }
    if largest(&a[..n * n]).is_nan() {
        return false;
    }
    hessenberg::reduce(a, n, u, scratch);
    let (mut end, mut rounds, mut total) = (n - 1, 0, 0);
    loop {
        while end > 0 && deflate(a, n, end - 1) {
            rounds = 0;
            end -= 1;
        }
        if end == 0 {
            break;
        }
        rounds += 1;
        total += 1;
        if total > ROUNDS_MAX * n {
            return false;
        }
        let mut start = end - 1;
        while start > 0 && !deflate(a, n, start - 1) {
            start -= 1;
        }
        step(a, n, (start, end), u, rounds);
    }
    for i in 1..n {
        a[i * n..i * n + i].fill(S::ZERO);
    }
    true
}

fn norm_1<S: Scalar>(x: S) -> S::Real {
    x.re().size() + x.im().size()
}

/// Whether the subdiagonal element of row `i` is negligible; it is then set to zero.
fn deflate<S: Scalar>(a: &mut [S], n: usize, i: usize) -> bool {
    let around = norm_1(a[i * n + i]) + norm_1(a[(i + 1) * n + i + 1]);
    let below = norm_1(a[(i + 1) * n + i]);
    let is_small = below <= S::Real::epsilon() * around;
    if is_small {
        a[(i + 1) * n + i] = S::ZERO;
    }
    is_small
}

/// Wilkinson's shift: the eigenvalue of the last two rows that is closer to the last diagonal
/// element; at some rounds an exceptional shift, so that the iteration does not cycle.
fn shift<S: Scalar>(a: &[S], n: usize, end: usize, rounds: usize) -> S {
    let at = |i: usize, j: usize| a[i * n + j];
    if (rounds == 10 || rounds == 20) && end > 1 {
        return S::real(at(end, end - 1).re().size() + at(end - 1, end - 2).re().size());
    }
    let block = [at(end - 1, end - 1), at(end - 1, end), at(end, end - 1), at(end, end)];
    let size = block.iter().fold(S::Real::ZERO, |sum, x| sum + x.size());
    let [p, q, r, s] = block.map(|x| x.scaled(size.recip()));
    let half = number::<S::Real>(0.5);
    let (product, difference) = (q * r, p - s);
    let root = (difference * difference + product.scaled(number(4.0))).root();
    let determinant = p * s - product;
    let mut first = (p + s + root).scaled(half);
    let mut second = (p + s - root).scaled(half);
    // The smaller eigenvalue is computed from the product, without cancellation.
    if norm_1(first) > norm_1(second) {
        second = determinant.over(first);
    } else if norm_1(second) != S::Real::ZERO {
        first = determinant.over(second);
    }
    let nearer = if norm_1(first - s) < norm_1(second - s) { first } else { second };
    nearer.scaled(size)
}

/// One implicit QR step on rows `start..=end`.
fn step<S: Scalar>(
    a: &mut [S],
    n: usize,
    (start, end): (usize, usize),
    u: &mut [S],
    rounds: usize,
) {
    let shift = shift(a, n, end, rounds);
    let (mut turn, _) = Rotation::zeroing(a[start * n + start] - shift, a[(start + 1) * n + start]);
    for i in start..end {
        if i > start {
            let (next, value) = Rotation::zeroing(a[i * n + i - 1], a[(i + 1) * n + i - 1]);
            a[i * n + i - 1] = value;
            a[(i + 1) * n + i - 1] = S::ZERO;
            turn = next;
        }
        turn.adjoint().rows(a, n, (i, i + 1), i);
        turn.columns(a, n, (i, i + 1), (i + 3).min(end + 1));
        turn.columns(u, n, (i, i + 1), n);
    }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::super::testing::*;
    use super::*;

    fn check<R>()
    where
        Complex<R>: Scalar,
    {
        let mut random = Random::new(37);
        for n in [1, 2, 3, 5, 12, 30] {
            for kind in 0..3 {
                let mut a = random.matrix::<Complex<R>>(n, n);
                if kind == 1 {
                    // A cyclic permutation: all eigenvalues have absolute value 1.
                    a.fill(<Complex<R> as Scalar>::ZERO);
                    (0..n).for_each(|i| a[i * n + (i + 1) % n] = <Complex<R> as Scalar>::ONE);
                }
                let (mut t, mut u) = (a.clone(), a.clone());
                let mut scratch = vec![<Complex<R> as Scalar>::ZERO; scratch_len(n)];
                assert!(decompose(&mut t, n, &mut u, &mut scratch), "{n} {kind}");
                assert_orthonormal(&u, n, n, 1e3);
                let back = product(&product(&u, &t, (n, n, n)), &adjoint_of(&u, n, n), (n, n, n));
                assert_close(&back, &a, 1e3);
            }
        }
    }

    #[test]
    fn forms_multiply_back() {
        check::<f32>();
        check::<f64>();
        let mut bad = vec![Complex::new(f64::INFINITY, 0.0); 4];
        let mut u = bad.clone();
        assert!(!decompose(&mut bad, 2, &mut u, &mut [Complex::new(0.0, 0.0); 8]));
    }
}
