//! Triangular systems.

use super::scalar::{Scalar, subtract_scaled};

/// Which triangle of a matrix is read, and whether its adjoint is solved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triangle {
    pub(crate) lower: bool,
    pub(crate) adjoint: bool,
}

/// Solves `a x = b`, or `a^H x = b`, in place; `b` has `n` rows and `columns` columns.
pub(crate) fn solve<S: Scalar>(a: &[S], n: usize, triangle: Triangle, b: &mut [S], columns: usize) {
    if columns == 0 {
        return;
    }
    let Triangle { lower, adjoint } = triangle;
    // The adjoint is solved by columns, so that rows of `a` are read in order in both cases.
    for step in 0..n {
        let i = if lower == adjoint { n - 1 - step } else { step };
        let row = &a[i * n..(i + 1) * n];
        if adjoint {
            let (before, rest) = b.split_at_mut(i * columns);
            let (own, after) = rest.split_at_mut(columns);
            divide(own, row[i].conj());
            let (others, factors) =
                if lower { (before, &row[..i]) } else { (after, &row[i + 1..]) };
            for (other, &factor) in others.chunks_exact_mut(columns).zip(factors) {
                subtract_scaled(other, factor.conj(), own);
            }
        } else {
            let (before, rest) = b.split_at_mut(i * columns);
            let (own, after) = rest.split_at_mut(columns);
            let (others, factors) =
                if lower { (&*before, &row[..i]) } else { (&*after, &row[i + 1..]) };
            for (other, &factor) in others.chunks_exact(columns).zip(factors) {
                subtract_scaled(own, factor, other);
            }
            divide(own, row[i]);
        }
    }
}

fn divide<S: Scalar>(x: &mut [S], by: S) {
    x.iter_mut().for_each(|x| *x = x.over(by));
}

/// Solves a banded triangular system: `bands[i][j]` is element `(j, j - i)` of a lower matrix, and
/// element `(j, j + count - 1 - i)` of an upper one.
pub(crate) fn solve_banded<S: Scalar>(
    bands: &[S],
    (count, n): (usize, usize),
    triangle: Triangle,
    b: &mut [S],
    columns: usize,
) {
    if columns == 0 {
        return;
    }
    let Triangle { lower, adjoint } = triangle;
    let band = |distance: usize, row: usize| {
        bands[(if lower { distance } else { count - 1 - distance }) * n + row]
    };
    for step in 0..n {
        let is_forward = lower != adjoint;
        let i = if is_forward { step } else { n - 1 - step };
        for distance in 1..count {
            // Index of an unknown that is already solved, and the matrix element of it.
            let other = if is_forward { i.checked_sub(distance) } else { Some(i + distance) };
            let Some(other) = other.filter(|&other| other < n) else { break };
            let factor = if adjoint { band(distance, other).conj() } else { band(distance, i) };
            let (first, second) = (i.min(other), i.max(other));
            let (x, y) = super::scalar::two_rows(b, columns, first, second);
            if is_forward { subtract_scaled(y, factor, x) } else { subtract_scaled(x, factor, y) }
        }
        let pivot = band(0, i);
        divide(&mut b[i * columns..(i + 1) * columns], if adjoint { pivot.conj() } else { pivot });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(11);
        for n in [0, 1, 2, 5, 9] {
            for (lower, adjoint) in [(true, false), (true, true), (false, false), (false, true)] {
                let mut a = random.matrix::<S>(n, n);
                (0..n).for_each(|i| a[i * n + i] += S::real(number_of(4.0)));
                let b = random.matrix::<S>(n, 3);
                let mut x = b.clone();
                let triangle = Triangle { lower, adjoint };
                solve(&a, n, triangle, &mut x, 3);
                let mut cleared = a.clone();
                for i in 0..n {
                    for j in 0..n {
                        if (j > i) == lower && i != j {
                            cleared[i * n + j] = S::ZERO;
                        }
                    }
                }
                let matrix = if adjoint { adjoint_of(&cleared, n, n) } else { cleared.clone() };
                assert_close(&product(&matrix, &x, (n, n, 3)), &b, 1e4);
                // The same system in banded form, with exactly all bands and with too many.
                for count in [n, n + 2] {
                    if count == 0 {
                        continue;
                    }
                    let mut bands = vec![S::real(number_of(99.0)); count * n];
                    for i in 0..n {
                        for j in 0..n {
                            let distance = i.abs_diff(j);
                            if (i >= j) == lower || i == j {
                                let at = if lower { distance } else { count - 1 - distance };
                                bands[at * n + i] = cleared[i * n + j];
                            }
                        }
                    }
                    let mut y = b.clone();
                    solve_banded(&bands, (count, n), triangle, &mut y, 3);
                    assert_close(&y, &x, 1e4);
                }
            }
        }
    }

    #[test]
    fn solutions_solve() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
    }
}
