//! The minimum-norm least squares solution, for any rank.

use super::qr;
use super::scalar::Scalar;
use super::triangular::{self, Triangle};

/// Elements of scratch that [`solve`] needs for a matrix of `m` by `n` and `columns` right sides.
pub(crate) fn scratch_len(m: usize, n: usize, columns: usize) -> usize {
    let k = m.min(n);
    2 * k + n * k + n * columns + qr::scratch_len(m.max(n), n.max(columns).max(k))
}

/// Solves `min |a x - b|`; `x` is the solution of minimum norm. `a`, of `m` by `n`, and `b`, of `m`
/// rows and `columns` columns, are overwritten; `order` and `norms` have `n` and `2 n` elements.
pub(crate) fn solve<S: Scalar>(
    (a, b): (&mut [S], &mut [S]),
    (m, n, columns): (usize, usize, usize),
    x: &mut [S],
    (order, norms): (&mut [usize], &mut [S::Real]),
    scratch: &mut [S],
) {
    x.fill(S::ZERO);
    let k = m.min(n);
    if k == 0 || columns == 0 {
        return;
    }
    let (taus, rest) = scratch.split_at_mut(k);
    let (inner_taus, rest) = rest.split_at_mut(k);
    let (wide, rest) = rest.split_at_mut(n * k);
    let (solution, scratch) = rest.split_at_mut(n * columns);
    qr::factor_pivoted(a, (m, n), (taus, order), norms, scratch);
    let rank = qr::rank(a, (m, n));
    qr::apply_adjoint((a, taus), (m, n), b, columns, scratch);
    if rank == 0 {
        return;
    }
    // The first `rank` rows of R, transposed, are an n by rank matrix, whose QR factors give the
    // minimum-norm solution.
    let rows = a.chunks_exact(n).take(rank);
    let wide = &mut wide[..n * rank];
    for (i, row) in rows.enumerate() {
        for (j, &value) in row.iter().enumerate() {
            wide[j * rank + i] = if j < i { S::ZERO } else { value.conj() };
        }
    }
    let inner_taus = &mut inner_taus[..rank];
    qr::factor(wide, (n, rank), inner_taus, scratch);
    let y = &mut solution[..n * columns];
    y.fill(S::ZERO);
    y[..rank * columns].copy_from_slice(&b[..rank * columns]);
    let upper = Triangle { lower: false, adjoint: true };
    triangular::solve(&wide[..rank * rank], rank, upper, &mut y[..rank * columns], columns);
    qr::apply((wide, inner_taus), (n, rank), y, columns, scratch);
    for (j, &place) in order.iter().enumerate() {
        x[place * columns..(place + 1) * columns]
            .copy_from_slice(&y[j * columns..(j + 1) * columns]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn check<S: Scalar>() {
        let mut random = Random::new(29);
        for (m, n, rank) in
            [(4, 4, 4), (6, 3, 3), (3, 6, 3), (6, 4, 2), (4, 6, 2), (1, 5, 1), (5, 1, 1)]
        {
            let (left, right) = (random.matrix::<S>(m, rank), random.matrix::<S>(rank, n));
            let a = product(&left, &right, (m, rank, n));
            let b = random.matrix::<S>(m, 2);
            let mut x = vec![S::ZERO; n * 2];
            let (mut order, mut norms) = (vec![0; n], vec![S::Real::ZERO; 2 * n]);
            let mut scratch = vec![S::ZERO; scratch_len(m, n, 2)];
            let (mut a_copy, mut b_copy) = (a.clone(), b.clone());
            solve(
                (&mut a_copy, &mut b_copy),
                (m, n, 2),
                &mut x,
                (&mut order, &mut norms),
                &mut scratch,
            );
            // The residual is orthogonal to the columns, the solution lies in the row space.
            let mut residual = product(&a, &x, (m, n, 2));
            residual.iter_mut().zip(&b).for_each(|(r, &b)| *r -= b);
            let normal = product(&adjoint_of(&a, m, n), &residual, (n, m, 2));
            assert_close(&normal, &vec![S::ZERO; n * 2], 1e4);
            let gram = product(&right, &adjoint_of(&right, rank, n), (rank, n, rank));
            let inside = product(&right, &x, (rank, n, 2));
            let mut z = inside.clone();
            let mut factors = gram.clone();
            let mut order = vec![0; rank];
            super::super::lu::factor(&mut factors, rank, &mut order);
            super::super::lu::solve(
                (&factors, &order),
                rank,
                false,
                &mut z,
                2,
                &mut vec![S::ZERO; rank * 2],
            );
            let projected = product(&adjoint_of(&right, rank, n), &z, (n, rank, 2));
            assert_close(&projected, &x, 1e6);
        }
    }

    #[test]
    fn solutions_are_shortest() {
        check::<f64>();
        check::<num_complex::Complex<f64>>();
    }
}
