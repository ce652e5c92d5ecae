//! Singular values and vectors.
//!
//! Small matrices are diagonalized by two-sided Jacobi rotations (Kogbetliantz), after a pivoted QR
//! if they are not square; larger ones are reduced to bidiagonal form by Householder reflections,
//! then diagonalized by QR steps (Golub and Kahan).

use num_traits::Float;

use super::bidiagonal;
use super::qr;
use super::rotation::Rotation;
use super::scalar::{Scalar, adjoint, largest, set_identity};

/// Matrices whose shorter side is below this are diagonalized by rotations.
const SMALL: usize = 16;
/// Maximum number of sweeps over all pairs of rows.
const SWEEPS_MAX: usize = 100;

/// Which singular vectors are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Vectors {
    /// No vectors.
    None,
    /// The first `min(m, n)` columns of `u` and `v` (`full_matrices` false).
    Thin,
    /// All columns of `u` and `v` (`full_matrices` true).
    Full,
}

/// Elements of scratch that [`decompose`] needs for `m` by `n`.
pub(crate) fn scratch_len((m, n): (usize, usize), vectors: Vectors) -> usize {
    let (long, short) = (m.max(n), m.min(n));
    let rotated = short * short + m * n + short;
    let rows = if vectors == Vectors::Full { long * long } else { m * n };
    let reflected = rows + short * short + bidiagonal::scratch_len(long, short);
    m * n + if short < SMALL { rotated } else { reflected } + qr::scratch_len(long, long)
}

/// Real elements of scratch that [`decompose`] needs for `m` by `n`.
pub(crate) fn real_scratch_len(m: usize, n: usize) -> usize {
    2 * m.max(n)
}

/// Destination of the results: singular values in descending order, and vectors as columns of `u`
/// and `v`, which are empty if no vectors are computed.
pub(crate) struct Output<'a, S: Scalar> {
    pub(crate) values: &'a mut [S::Real],
    pub(crate) u: &'a mut [S],
    pub(crate) v: &'a mut [S],
}

/// Decomposes the `m` by `n` matrix `a`: `a = u diag(values) v^H`. `order` has `max(m, n)`
/// elements. All results are NaN if the matrix is not finite or the iteration does not converge.
pub(crate) fn decompose<S: Scalar>(
    a: &[S],
    (m, n): (usize, usize),
    vectors: Vectors,
    out: Output<'_, S>,
    (order, norms): (&mut [usize], &mut [S::Real]),
    scratch: &mut [S],
) {
    let Output { values, u, v } = out;
    let scale = largest(&a[..m * n]);
    let is_finite = !scale.is_nan();
    let scale = if scale == S::Real::ZERO { S::Real::ONE } else { scale };
    let ended = is_finite && {
        let (work, scratch) = scratch.split_at_mut(m * n);
        work.iter_mut().zip(a).for_each(|(work, a)| *work = a.scaled(scale.recip()));
        let out = Output { values: &mut *values, u: &mut *u, v: &mut *v };
        if m.min(n) < SMALL {
            by_rotations(work, (m, n), vectors, out, (order, norms), scratch)
        } else {
            by_reflections(work, (m, n), vectors, out, norms, scratch)
        }
    };
    if !ended {
        values.fill(S::Real::nan());
        let nan = S::of(S::Real::nan(), S::Real::ZERO);
        u.fill(nan);
        v.fill(nan);
        return;
    }
    values.iter_mut().for_each(|x| *x *= scale);
    let (u_columns, v_columns) = columns_of((m, n), vectors);
    sort(values, (u, u_columns), (v, v_columns));
}

/// Number of columns of `u` and `v`.
pub(crate) fn columns_of((m, n): (usize, usize), vectors: Vectors) -> (usize, usize) {
    match vectors {
        Vectors::None => (0, 0),
        Vectors::Thin => (m.min(n), m.min(n)),
        Vectors::Full => (m, n),
    }
}

/// Sorts the values in descending order, each with its columns.
fn sort<S: Scalar>(
    values: &mut [S::Real],
    (u, u_columns): (&mut [S], usize),
    (v, v_columns): (&mut [S], usize),
) {
    for i in 0..values.len() {
        let mut best = i;
        for j in i + 1..values.len() {
            if values[j] > values[best] {
                best = j;
            }
        }
        if best != i {
            values.swap(i, best);
            u.chunks_exact_mut(u_columns.max(1)).for_each(|row| row.swap(i, best));
            v.chunks_exact_mut(v_columns.max(1)).for_each(|row| row.swap(i, best));
        }
    }
}

/// Reduces `a` to a square matrix by QR of its longer side; returns the matrix with the vectors so
/// far.
fn by_rotations<S: Scalar>(
    a: &mut [S],
    (m, n): (usize, usize),
    vectors: Vectors,
    out: Output<'_, S>,
    (order, norms): (&mut [usize], &mut [S::Real]),
    scratch: &mut [S],
) -> bool {
    let Output { values, u, v } = out;
    let k = m.min(n);
    let (work, scratch) = scratch.split_at_mut(k * k);
    let wanted = vectors != Vectors::None;
    let (u_columns, v_columns) = columns_of((m, n), vectors);
    if m == n {
        work.copy_from_slice(a);
        if wanted {
            set_identity(u, m);
            set_identity(v, n);
        }
    } else {
        let (long, is_wide) = (m.max(n), n > m);
        let (tall, scratch) = scratch.split_at_mut(m * n);
        let (taus, scratch) = scratch.split_at_mut(k);
        if is_wide {
            adjoint(a, m, n, tall);
        } else {
            tall.copy_from_slice(a);
        }
        qr::factor_pivoted(tall, (long, k), (taus, order), norms, scratch);
        for i in 0..k {
            for j in 0..k {
                let r = if j < i { S::ZERO } else { tall[i * k + j] };
                if is_wide { work[j * k + i] = r.conj() } else { work[i * k + j] = r }
            }
        }
        if wanted {
            let (q, q_columns, p) =
                if is_wide { (&mut *v, v_columns, &mut *u) } else { (&mut *u, u_columns, &mut *v) };
            qr::form_q((tall, taus), (long, k), q, q_columns, scratch);
            p.fill(S::ZERO);
            for (j, &place) in order[..k].iter().enumerate() {
                p[place * k + j] = S::ONE;
            }
        }
    }
    let mut state = Sweep { work, k, u: &mut *u, u_columns, v: &mut *v, v_columns, wanted };
    if !state.run() {
        return false;
    }
    state.finish(values);
    true
}

/// State of the Jacobi sweeps: a square matrix that converges to diagonal form.
struct Sweep<'a, S> {
    work: &'a mut [S],
    k: usize,
    u: &'a mut [S],
    u_columns: usize,
    v: &'a mut [S],
    v_columns: usize,
    wanted: bool,
}

impl<S: Scalar> Sweep<'_, S> {
    fn at(&self, i: usize, j: usize) -> S {
        self.work[i * self.k + j]
    }

    /// Sweeps until the off-diagonal elements are negligible.
    fn run(&mut self) -> bool {
        let tiny = S::Real::min_positive_value();
        let precision = S::Real::epsilon() + S::Real::epsilon();
        let mut top = (0..self.k).map(|i| self.at(i, i).size()).fold(S::Real::ZERO, S::Real::max);
        for _ in 0..SWEEPS_MAX {
            let mut is_diagonal = true;
            for p in 1..self.k {
                for q in 0..p {
                    let limit = tiny.max(precision * top);
                    if !(self.at(p, q).size() > limit || self.at(q, p).size() > limit) {
                        continue;
                    }
                    is_diagonal = false;
                    if self.make_real((p, q), &mut top) {
                        self.diagonalize((p, q));
                        top = top.max(self.at(p, p).size()).max(self.at(q, q).size());
                    }
                }
            }
            if is_diagonal {
                return true;
            }
        }
        false
    }

    /// Multiplies row `i` of the matrix and the matching column of `u` by a phase.
    fn turn_row(&mut self, i: usize, phase: S) {
        let k = self.k;
        self.work[i * k..(i + 1) * k].iter_mut().for_each(|x| *x *= phase);
        scale_column(self.u, self.u_columns, i, phase.conj());
    }

    /// Makes the block of rows and columns `p` and `q` real, with a zero at its lower left. Returns
    /// false if the block is then diagonal.
    fn make_real(&mut self, (p, q): (usize, usize), top: &mut S::Real) -> bool {
        let tiny = S::Real::min_positive_value();
        let is_real = [(p, p), (p, q), (q, p), (q, q)]
            .iter()
            .all(|&(i, j)| self.at(i, j).im() == S::Real::ZERO);
        if is_real && S::ONE.im() == S::Real::ZERO && size_of::<S>() == size_of::<S::Real>() {
            return true;
        }
        let k = self.k;
        let phase = |x: S| S::real(x.size()).over(x);
        let length = (self.at(p, p).norm_sqr() + self.at(q, p).norm_sqr()).sqrt();
        if length == S::Real::ZERO {
            self.work[p * k + p] = S::ZERO;
            self.work[q * k + p] = S::ZERO;
            if self.at(p, q).im().size() > tiny {
                self.turn_row(p, phase(self.at(p, q)));
            }
        } else {
            let inverse = length.recip();
            let turn = Rotation {
                c: self.at(p, p).conj().scaled(inverse),
                s: self.at(q, p).scaled(inverse),
            };
            self.rotate_rows((p, q), turn);
            self.rotate_u((p, q), turn.adjoint());
            if self.at(p, q).im().size() > tiny {
                let phase = phase(self.at(p, q));
                scale_column(self.work, k, q, phase);
                scale_column(self.v, self.v_columns, q, phase);
            }
        }
        if self.at(q, q).im().size() > tiny {
            self.turn_row(q, phase(self.at(q, q)));
        }
        *top = top.max(self.at(p, p).size()).max(self.at(q, q).size());
        let limit = tiny.max(S::Real::epsilon() * *top);
        self.at(p, q).size() > limit || self.at(q, p).size() > limit
    }

    /// Diagonalizes the real block of rows and columns `p` and `q`.
    fn diagonalize(&mut self, (p, q): (usize, usize)) {
        let (left, right) = two_by_two::<S::Real>([
            [self.at(p, p).re(), self.at(p, q).re()],
            [self.at(q, p).re(), self.at(q, q).re()],
        ]);
        let wide = |r: Rotation<S::Real>| Rotation { c: S::real(r.c), s: S::real(r.s) };
        let (left, right) = (wide(left), wide(right));
        let k = self.k;
        self.rotate_rows((p, q), left);
        self.rotate_u((p, q), left.transposed());
        right.columns(self.work, k, (p, q), k);
        if self.wanted {
            let rows = self.v.len() / self.v_columns.max(1);
            right.columns(self.v, self.v_columns, (p, q), rows);
        }
    }

    /// Rotates rows `p` and `q`, `p > q`.
    fn rotate_rows(&mut self, (p, q): (usize, usize), turn: Rotation<S>) {
        let (second, first) = super::scalar::two_rows(self.work, self.k, q, p);
        turn.rotate(first, second);
    }

    fn rotate_u(&mut self, pair: (usize, usize), turn: Rotation<S>) {
        if self.wanted {
            let rows = self.u.len() / self.u_columns.max(1);
            turn.columns(self.u, self.u_columns, pair, rows);
        }
    }

    /// Makes the diagonal positive; signs and phases go to `u`.
    fn finish(&mut self, values: &mut [S::Real]) {
        let tiny = S::Real::min_positive_value();
        for (i, value) in values.iter_mut().enumerate() {
            let own = self.at(i, i);
            *value = own.re().size();
            if own.im().size() > tiny {
                *value = own.size();
                scale_column(self.u, self.u_columns, i, own.scaled(value.recip()));
            } else if own.re() < S::Real::ZERO {
                scale_column(self.u, self.u_columns, i, -S::ONE);
            }
        }
    }
}

fn scale_column<S: Scalar>(a: &mut [S], columns: usize, j: usize, by: S) {
    a.chunks_exact_mut(columns.max(1)).for_each(|row| row[j] *= by);
}

/// Rotations from the left and from the right that make a real block diagonal.
fn two_by_two<R: Scalar<Real = R> + Float>(
    [[a, b], [c, d]]: [[R; 2]; 2],
) -> (Rotation<R>, Rotation<R>) {
    let (sum, difference) = (a + d, c - b);
    let tiny = R::min_positive_value();
    // First makes the block symmetric.
    let first = if difference.size() < tiny {
        Rotation { c: R::ONE, s: R::ZERO }
    } else {
        let ratio = sum / difference;
        let length = (R::ONE + ratio * ratio).sqrt();
        Rotation { s: length.recip(), c: ratio / length }
    };
    let x = first.c * a + first.s * c;
    let y = first.c * b + first.s * d;
    let z = first.c * d - first.s * b;
    let right = symmetric_rotation(x, y, z);
    let back = right.transposed();
    let left =
        Rotation { c: first.c * back.c - first.s * back.s, s: first.c * back.s + first.s * back.c };
    (left, right)
}

/// The rotation that makes `[x y; y z]` diagonal.
fn symmetric_rotation<R: Scalar<Real = R> + Float>(x: R, y: R, z: R) -> Rotation<R> {
    let twice = y.size() + y.size();
    if twice < R::min_positive_value() {
        return Rotation { c: R::ONE, s: R::ZERO };
    }
    let ratio = (x - z) / twice;
    let length = (ratio * ratio + R::ONE).sqrt();
    let tangent = if ratio > R::ZERO { (ratio + length).recip() } else { (ratio - length).recip() };
    let cosine = (tangent * tangent + R::ONE).sqrt().recip();
    let sign = if tangent > R::ZERO { R::ONE } else { -R::ONE };
    Rotation { c: cosine, s: -(sign * (y / y.size()) * tangent.size() * cosine) }
}

/// Larger matrices: reduces `a` or its adjoint, whichever is tall, to bidiagonal form.
fn by_reflections<S: Scalar>(
    a: &mut [S],
    (m, n): (usize, usize),
    vectors: Vectors,
    out: Output<'_, S>,
    off: &mut [S::Real],
    scratch: &mut [S],
) -> bool {
    let Output { values, u, v } = out;
    let (long, short) = (m.max(n), m.min(n));
    let wanted = vectors != Vectors::None;
    let (u_columns, v_columns) = columns_of((m, n), vectors);
    let (left, left_columns, right) = if n > m { (v, v_columns, u) } else { (u, u_columns, v) };
    let needed = if vectors == Vectors::Full { long * long } else { m * n };
    let (rows, scratch) = scratch.split_at_mut(needed);
    let (right_rows, scratch) = scratch.split_at_mut(short * short);
    let tall: &mut [S] = if n > m {
        let (tall, _) = rows.split_at_mut(m * n);
        adjoint(a, m, n, tall);
        a.copy_from_slice(tall);
        a
    } else {
        a
    };
    let rows = &mut rows[..if wanted { long * left_columns } else { 0 }];
    let right_rows = &mut right_rows[..if wanted { short * short } else { 0 }];
    let ended =
        bidiagonal::decompose(tall, (long, short), (values, off), (rows, right_rows), scratch);
    if wanted && ended {
        super::scalar::transpose(rows, left_columns, long, left);
        super::scalar::transpose(right_rows, short, short, right);
    }
    ended
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::super::testing::*;
    use super::*;

    fn check_one<S: Scalar>(a: &[S], (m, n): (usize, usize)) {
        let k = m.min(n);
        let mut alone = Vec::new();
        for vectors in [Vectors::None, Vectors::Thin, Vectors::Full] {
            let (u_columns, v_columns) = columns_of((m, n), vectors);
            let (mut u, mut v) = (vec![S::ZERO; m * u_columns], vec![S::ZERO; n * v_columns]);
            let mut values = vec![S::Real::ZERO; k];
            let out = Output { values: &mut values, u: &mut u, v: &mut v };
            let mut scratch = vec![S::ZERO; scratch_len((m, n), vectors)];
            let mut norms = vec![S::Real::ZERO; real_scratch_len(m, n)];
            let mut order = vec![0; m.max(n)];
            decompose(a, (m, n), vectors, out, (&mut order, &mut norms), &mut scratch);
            assert!(values.iter().rev().is_sorted() && values.iter().all(|&x| x >= S::Real::ZERO));
            if vectors == Vectors::None {
                alone = values;
                continue;
            }
            assert_close(&alone, &values, 1e3);
            assert_orthonormal(&u, m, u_columns, 1e3);
            assert_orthonormal(&v, n, v_columns, 1e3);
            let scaled: Vec<S> = (0..m * k)
                .map(|at| u[at / k * u_columns + at % k].scaled(values[at % k]))
                .collect();
            let thin: Vec<S> = (0..n * k).map(|at| v[at / k * v_columns + at % k]).collect();
            let back = product(&scaled, &adjoint_of(&thin, n, k), (m, k, n));
            assert_close(&back, a, 1e3);
        }
    }

    fn check<S: Scalar>() {
        let mut random = Random::new(47);
        for (m, n) in
            [(1, 1), (2, 2), (5, 3), (3, 5), (8, 8), (17, 17), (40, 20), (20, 40), (33, 2)]
        {
            let a = random.matrix::<S>(m, n);
            check_one(&a, (m, n));
            check_one(&vec![S::ZERO; m * n], (m, n));
            check_one(&vec![S::ONE; m * n], (m, n));
            // Matrices of low rank, and with entries of very different magnitude.
            let low = product(&random.matrix::<S>(m, 2), &random.matrix::<S>(2, n), (m, 2, n));
            check_one(&low, (m, n));
            let graded: Vec<S> = (0..m * n)
                .map(|at| a[at].scaled(number_of(10f64.powi(-((at / n + at % n) as i32 % 12)))))
                .collect();
            check_one(&graded, (m, n));
        }
    }

    #[test]
    fn factors_multiply_back() {
        check::<f64>();
        check::<Complex<f64>>();
        check::<f32>();
        check::<Complex<f32>>();
    }

    #[test]
    fn signs_are_eigens() {
        let a = [4.0, 1.0, 2.0, 3.0];
        let (mut values, mut u, mut v) = ([0.0; 2], [0.0; 4], [0.0; 4]);
        let out = Output { values: &mut values, u: &mut u, v: &mut v };
        let mut scratch = vec![0.0; scratch_len((2, 2), Vectors::Thin)];
        decompose(&a, (2, 2), Vectors::Thin, out, (&mut [0; 2], &mut [0.0; 4]), &mut scratch);
        assert!(u[0] > 0.7 && u[1] < -0.6 && v[0] > 0.8 && v[1] < -0.5, "{u:?} {v:?}");
    }

    #[test]
    fn nan_ends() {
        for n in [2, 20] {
            let a = vec![f64::NAN; n * n];
            let (mut values, mut u, mut v) = (vec![0.0; n], vec![0.0; n * n], vec![0.0; n * n]);
            let out = Output { values: &mut values, u: &mut u, v: &mut v };
            let mut scratch = vec![0.0; scratch_len((n, n), Vectors::Full)];
            let (mut order, mut norms) = (vec![0; n], vec![0.0; 2 * n]);
            decompose(&a, (n, n), Vectors::Full, out, (&mut order, &mut norms), &mut scratch);
            assert!(values.iter().chain(&u).chain(&v).all(|x| x.is_nan()));
        }
    }
}
