//! Givens rotations.

use num_traits::Float;

use super::scalar::{Scalar, two_rows};

/// A Givens rotation: maps vectors `x` and `y` to `c x + conj(s) y` and `conj(c) y - s x`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation<S> {
    pub(crate) c: S,
    pub(crate) s: S,
}

impl<S: Scalar> Rotation<S> {
    /// The inverse rotation.
    pub(crate) fn adjoint(self) -> Self {
        Rotation { c: self.c.conj(), s: -self.s }
    }

    /// The rotation for transposed vectors.
    pub(crate) fn transposed(self) -> Self {
        Rotation { c: self.c, s: -self.s.conj() }
    }

    /// The rotation whose adjoint maps `(p, q)` to `(r, 0)`, and `r`.
    pub(crate) fn zeroing(p: S, q: S) -> (Self, S) {
        let (zero, one) = (S::Real::ZERO, S::Real::ONE);
        let signed = |u: S::Real| if p.re() < zero { -u } else { u };
        if q == S::ZERO {
            let c = S::real(signed(one));
            return (Rotation { c, s: S::ZERO }, c * p);
        }
        if p == S::ZERO {
            let size = q.size();
            return (Rotation { c: S::ZERO, s: -q.scaled(size.recip()) }, S::real(size));
        }
        let norm_1 = |x: S| x.re().size() + x.im().size();
        let (p_1, q_1) = (norm_1(p), norm_1(q));
        if p_1 >= q_1 {
            let (p_small, q_small) = (p.scaled(p_1.recip()), q.scaled(p_1.recip()));
            let p_sqr = p_small.norm_sqr();
            let u = signed((one + q_small.norm_sqr() / p_sqr).sqrt());
            let c = u.recip();
            let s = -(q_small * p_small.conj()).scaled(c / p_sqr);
            return (Rotation { c: S::real(c), s }, p.scaled(u));
        }
        let (p_small, q_small) = (p.scaled(q_1.recip()), q.scaled(q_1.recip()));
        let u = signed(q_1 * (p_small.norm_sqr() + q_small.norm_sqr()).sqrt());
        let size = p.size();
        let phase = p.scaled(size.recip());
        let s = -(phase.conj() * q.scaled(u.recip()));
        (Rotation { c: S::real(size / u), s }, phase.scaled(u))
    }

    /// Rotates two vectors of equal length.
    #[inline]
    pub(crate) fn rotate(self, x: &mut [S], y: &mut [S]) {
        let (c, s) = (self.c, self.s);
        let (c_conj, s_conj) = (c.conj(), s.conj());
        for (x, y) in x.iter_mut().zip(y) {
            let (old_x, old_y) = (*x, *y);
            *x = c * old_x + s_conj * old_y;
            *y = c_conj * old_y - s * old_x;
        }
    }

    /// Rotates rows `p` and `q` of a matrix of `n` columns, from column `from` on; `p < q`.
    pub(crate) fn rows(self, a: &mut [S], n: usize, (p, q): (usize, usize), from: usize) {
        let (x, y) = two_rows(a, n, p, q);
        self.rotate(&mut x[from..], &mut y[from..]);
    }

    /// Rotates columns `p` and `q` of the first `rows` rows of a matrix of `n` columns: the matrix
    /// times the rotation's matrix.
    pub(crate) fn columns(self, a: &mut [S], n: usize, (p, q): (usize, usize), rows: usize) {
        let Rotation { c, s } = self.transposed();
        let (c_conj, s_conj) = (c.conj(), s.conj());
        for row in a.chunks_exact_mut(n).take(rows) {
            let (x, y) = (row[p], row[q]);
            row[p] = c * x + s_conj * y;
            row[q] = c_conj * y - s * x;
        }
    }
}

/// Rotation by real numbers: `x` and `y` become `c x - s y` and `s x + c y`.
#[inline]
pub(crate) fn rotate_real<S: Scalar>(x: &mut [S], y: &mut [S], c: S::Real, s: S::Real) {
    for (x, y) in x.iter_mut().zip(y) {
        let (old_x, old_y) = (*x, *y);
        *x = old_x.scaled(c) - old_y.scaled(s);
        *y = old_x.scaled(s) + old_y.scaled(c);
    }
}
