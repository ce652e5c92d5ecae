//! Tridiagonal systems.

use num_traits::Float;

use super::scalar::{Scalar, number, subtract_scaled, two_rows};

/// The three diagonals of a matrix of `n` rows: element `i` of each is in row `i`, so the last of
/// `upper` and the first of `lower` are ignored.
#[derive(Clone, Copy)]
pub(crate) struct Diagonals<'a, S> {
    pub(crate) upper: &'a [S],
    pub(crate) main: &'a [S],
    pub(crate) lower: &'a [S],
}

/// Solves the system in place, without pivoting; `x` has `n` rows of `columns`. Returns false if a
/// pivot is zero. `scratch` has `n` elements.
pub(crate) fn solve<S: Scalar>(
    matrix: Diagonals<'_, S>,
    x: &mut [S],
    columns: usize,
    scratch: &mut [S],
) -> bool {
    let n = matrix.main.len();
    let mut pivot = S::ZERO;
    for i in 0..n {
        if i > 0 {
            let factor = matrix.lower[i];
            scratch[i - 1] = matrix.upper[i - 1].over(pivot);
            let (before, own) = two_rows(x, columns, i - 1, i);
            subtract_scaled(own, factor, before);
            pivot = matrix.main[i] - factor * scratch[i - 1];
        } else {
            pivot = matrix.main[0];
        }
        if pivot == S::ZERO {
            return false;
        }
        let own = &mut x[i * columns..(i + 1) * columns];
        own.iter_mut().for_each(|x| *x = x.over(pivot));
    }
    for i in (0..n.saturating_sub(1)).rev() {
        let (own, after) = two_rows(x, columns, i, i + 1);
        subtract_scaled(own, scratch[i], after);
    }
    true
}

/// As [`solve`], with partial pivoting; `perturb` replaces pivots that are too small instead of
/// failing. `scratch` has `3 n` elements.
pub(crate) fn solve_pivoted<S: Scalar>(
    matrix: Diagonals<'_, S>,
    x: &mut [S],
    columns: usize,
    perturb: bool,
    scratch: &mut [S],
) -> bool {
    let n = matrix.main.len();
    // Row exchanges give the upper triangle three diagonals.
    let (main, rest) = scratch.split_at_mut(n);
    let (upper, second) = rest.split_at_mut(n);
    let second = &mut second[..n];
    main.copy_from_slice(matrix.main);
    upper.copy_from_slice(matrix.upper);
    second.fill(S::ZERO);
    let all =
        [matrix.main, &matrix.upper[..n.saturating_sub(1)], matrix.lower.get(1..).unwrap_or(&[])];
    let largest = all
        .iter()
        .flat_map(|d| d.iter())
        .fold(S::Real::ZERO, |a, b| if b.size() > a { b.size() } else { a });
    let least = (largest * S::Real::epsilon()).max(S::Real::min_positive_value() * number(3.0));
    for i in 0..n {
        if i + 1 < n {
            let below = matrix.lower[i + 1];
            if below.size() > main[i].size() {
                let (own, other) = two_rows(x, columns, i, i + 1);
                own.swap_with_slice(other);
                let factor = main[i].over(below);
                let next = if i + 2 < n { matrix.upper[i + 1] } else { S::ZERO };
                main[i] = below;
                let above = std::mem::replace(&mut upper[i], matrix.main[i + 1]);
                second[i] = next;
                main[i + 1] = above - factor * matrix.main[i + 1];
                if i + 2 < n {
                    upper[i + 1] = -(factor * next);
                }
                subtract_scaled(other, factor, own);
                continue;
            }
        }
        if perturb && main[i].size() < least {
            main[i] = S::real(if main[i].re() < S::Real::ZERO { -least } else { least });
        }
        if main[i] == S::ZERO {
            return false;
        }
        if i + 1 < n {
            let factor = matrix.lower[i + 1].over(main[i]);
            main[i + 1] -= factor * upper[i];
            let (own, other) = two_rows(x, columns, i, i + 1);
            subtract_scaled(other, factor, own);
        }
    }
    for i in (0..n).rev() {
        let (own, after) = x.split_at_mut((i + 1) * columns);
        let own = &mut own[i * columns..];
        if i + 1 < n {
            subtract_scaled(own, upper[i], &after[..columns]);
        }
        if i + 2 < n {
            subtract_scaled(own, second[i], &after[columns..2 * columns]);
        }
        own.iter_mut().for_each(|x| *x = x.over(main[i]));
    }
    true
}

/// `out = matrix x`, for `x` of `n` rows of `columns`.
pub(crate) fn multiply<S: Scalar>(
    matrix: Diagonals<'_, S>,
    x: &[S],
    columns: usize,
    out: &mut [S],
) {
    let n = matrix.main.len();
    if columns == 0 {
        return;
    }
    for (i, out) in out.chunks_exact_mut(columns).enumerate().take(n) {
        let row = |i: usize| &x[i * columns..(i + 1) * columns];
        out.iter_mut().zip(row(i)).for_each(|(out, &x)| *out = matrix.main[i] * x);
        if i > 0 {
            super::scalar::add_scaled(out, matrix.lower[i], row(i - 1));
        }
        if i + 1 < n {
            super::scalar::add_scaled(out, matrix.upper[i], row(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(43);
        for n in [0, 1, 2, 3, 4, 9, 40] {
            let [upper, mut main, lower] = [0; 3].map(|_| random.matrix::<S>(1, n));
            if n > 3 {
                main[0] = S::ZERO;
                main[2] = S::ZERO;
            }
            let matrix = Diagonals { upper: &upper, main: &main, lower: &lower };
            let b = random.matrix::<S>(n, 2);
            let mut x = b.clone();
            let mut scratch = vec![S::ZERO; 3 * n];
            assert!(solve_pivoted(matrix, &mut x, 2, false, &mut scratch));
            let mut back = vec![S::ZERO; n * 2];
            multiply(matrix, &x, 2, &mut back);
            assert_close(&back, &b, 1e6);
            main.iter_mut().for_each(|x| *x += S::real(number_of(4.0)));
            let matrix = Diagonals { upper: &upper, main: &main, lower: &lower };
            let mut y = b.clone();
            assert!(solve(matrix, &mut y, 2, &mut scratch));
            multiply(matrix, &y, 2, &mut back);
            assert_close(&back, &b, 1e3);
        }
        let zero = [S::ZERO; 3];
        let matrix = Diagonals { upper: &zero, main: &zero, lower: &zero };
        let mut scratch = [S::ZERO; 9];
        assert!(!solve(matrix, &mut [S::ONE; 3], 1, &mut scratch));
        assert!(!solve_pivoted(matrix, &mut [S::ONE; 3], 1, false, &mut scratch));
        assert!(solve_pivoted(matrix, &mut [S::ONE; 3], 1, true, &mut scratch));
    }

    #[test]
    fn solutions_solve() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
    }
}
