//! Real Schur form: quasi-triangular, with a 2 by 2 diagonal block for each pair of conjugate
//! eigenvalues.

use num_traits::Float;

use super::hessenberg;
use super::householder::{apply_left, apply_right, reflector};
use super::rotation::Rotation;
use super::scalar::{Scalar, number};

/// Maximum number of QR steps per row.
const ROUNDS_MAX: usize = 40;

/// Replaces the real `n` by `n` matrix `a` by its Schur form `T` and sets `u` with `a = u T u^T`.
/// `scratch` is as for the Hessenberg form. Returns false if the iteration did not converge.
pub(crate) fn decompose<R: Scalar<Real = R> + Float>(
    a: &mut [R],
    n: usize,
    u: &mut [R],
    scratch: &mut [R],
) -> bool {
    hessenberg::reduce(a, n, u, scratch);
    if n == 0 {
        return true;
    }
    let norm = a.iter().fold(R::ZERO, |sum, x| sum + Scalar::size(*x));
    if norm == R::ZERO {
        return true;
    }
    let tiny = (norm * R::epsilon() * R::epsilon()).max(R::min_positive_value());
    let mut state = Iteration { t: a, n, u, shifted: R::ZERO, tiny };
    let (mut rows, mut rounds, mut total) = (n, 0, 0);
    while rows > 0 {
        let end = rows - 1;
        let start = state.block_start(end);
        if start == end {
            let diagonal = state.at(end, end) + state.shifted;
            state.set(end, end, diagonal);
            if end > 0 {
                state.set(end, end - 1, R::ZERO);
            }
            rows -= 1;
            rounds = 0;
        } else if start + 1 == end {
            state.standardize_block(end);
            rows -= 2;
            rounds = 0;
        } else {
            let shift = state.shift(end, rounds);
            rounds += 1;
            total += 1;
            if total > ROUNDS_MAX * n {
                return false;
            }
            let (middle, vector) = state.begin((start, end), shift);
            state.step((start, middle, end), vector, scratch);
        }
    }
    true
}

/// State of the QR iteration: a Hessenberg matrix that converges to Schur form.
struct Iteration<'a, R> {
    t: &'a mut [R],
    n: usize,
    u: &'a mut [R],
    /// Sum of the exceptional shifts that were subtracted from the diagonal.
    shifted: R,
    tiny: R,
}

impl<R: Scalar<Real = R> + Float> Iteration<'_, R> {
    fn at(&self, i: usize, j: usize) -> R {
        self.t[i * self.n + j]
    }

    fn set(&mut self, i: usize, j: usize, x: R) {
        self.t[i * self.n + j] = x;
    }

    /// The first row of the unreduced block that ends with row `end`.
    fn block_start(&self, end: usize) -> usize {
        let mut start = end;
        while start > 0 {
            let around =
                Scalar::size(self.at(start - 1, start - 1)) + Scalar::size(self.at(start, start));
            let limit = (around * R::epsilon()).max(self.tiny);
            if Scalar::size(self.at(start, start - 1)) <= limit {
                break;
            }
            start -= 1;
        }
        start
    }

    /// Standardizes a 2 by 2 block: makes it triangular if its eigenvalues are real.
    fn standardize_block(&mut self, end: usize) {
        let n = self.n;
        let half = (self.at(end - 1, end - 1) - self.at(end, end)) * number(0.5);
        let discriminant = half * half + self.at(end, end - 1) * self.at(end - 1, end);
        for i in [end - 1, end] {
            let diagonal = self.at(i, i) + self.shifted;
            self.set(i, i, diagonal);
        }
        if discriminant >= R::ZERO {
            let root = discriminant.sqrt();
            let first = if half >= R::ZERO { half + root } else { half - root };
            let (turn, _) = Rotation::zeroing(first, self.at(end, end - 1));
            turn.adjoint().rows(self.t, n, (end - 1, end), end - 1);
            turn.columns(self.t, n, (end - 1, end), end + 1);
            self.set(end, end - 1, R::ZERO);
            turn.columns(self.u, n, (end - 1, end), n);
        }
        if end > 1 {
            self.set(end - 1, end - 2, R::ZERO);
        }
    }

    /// The shift: the last two diagonal elements and the product of the off-diagonal ones; at some
    /// rounds an exceptional shift, so that the iteration does not cycle.
    fn shift(&mut self, end: usize, rounds: usize) -> [R; 3] {
        let mut shift = [
            self.at(end, end),
            self.at(end - 1, end - 1),
            self.at(end, end - 1) * self.at(end - 1, end),
        ];
        if rounds == 10 {
            let from = shift[0];
            self.take_from_diagonal(end, from);
            let size =
                Scalar::size(self.at(end, end - 1)) + Scalar::size(self.at(end - 1, end - 2));
            let part = number::<R>(0.75) * size;
            shift = [part, part, number::<R>(-0.4375) * size * size];
        }
        if rounds == 30 {
            let half = (shift[1] - shift[0]) * number(0.5);
            let square = half * half + shift[2];
            if square > R::ZERO {
                let root = if shift[1] < shift[0] { -square.sqrt() } else { square.sqrt() };
                let from = shift[0] - shift[2] / (root + half);
                self.take_from_diagonal(end, from);
                shift = [number(0.964); 3];
            }
        }
        shift
    }

    fn take_from_diagonal(&mut self, end: usize, x: R) {
        self.shifted += x;
        for i in 0..=end {
            let diagonal = self.at(i, i) - x;
            self.set(i, i, diagonal);
        }
    }

    /// The row at which the step begins, and the first column of the shifted square there.
    fn begin(&self, (start, end): (usize, usize), shift: [R; 3]) -> (usize, [R; 3]) {
        let mut middle = end - 2;
        loop {
            let own = self.at(middle, middle);
            let (r, s) = (shift[0] - own, shift[1] - own);
            let vector = [
                (r * s - shift[2]) / self.at(middle + 1, middle) + self.at(middle, middle + 1),
                self.at(middle + 1, middle + 1) - own - r - s,
                self.at(middle + 2, middle + 1),
            ];
            if middle == start {
                return (middle, vector);
            }
            let left =
                self.at(middle, middle - 1) * (Scalar::size(vector[1]) + Scalar::size(vector[2]));
            let right = vector[0]
                * (Scalar::size(self.at(middle - 1, middle - 1))
                    + Scalar::size(own)
                    + Scalar::size(self.at(middle + 1, middle + 1)));
            if Scalar::size(left) < R::epsilon() * right {
                return (middle, vector);
            }
            middle -= 1;
        }
    }

    /// A Francis double-shift QR step: chases a bulge down the subdiagonal.
    fn step(
        &mut self,
        (start, middle, end): (usize, usize, usize),
        first: [R; 3],
        scratch: &mut [R],
    ) {
        let n = self.n;
        for k in middle..end {
            let len = 3.min(end + 1 - k);
            let mut v = first;
            if k > middle {
                for (i, v) in v.iter_mut().enumerate().take(len) {
                    *v = self.at(k + i, k - 1);
                }
            }
            let v = &mut v[..len];
            let (tau, beta) = reflector(v);
            if beta == R::ZERO {
                continue;
            }
            if k > middle {
                self.set(k, k - 1, beta);
            } else if k > start {
                let flipped = -self.at(k, k - 1);
                self.set(k, k - 1, flipped);
            }
            apply_left(self.t, n, (k, k), (v, tau), scratch);
            apply_right(self.t, n, ((k + 4).min(end + 1), k), (v, tau));
            apply_right(self.u, n, (n, k), (v, tau));
        }
        for i in middle + 2..=end {
            self.set(i, i - 2, R::ZERO);
            if i > middle + 2 {
                self.set(i, i - 3, R::ZERO);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn forms_multiply_back() {
        let mut random = Random::new(59);
        for n in [1, 2, 3, 4, 5, 9, 30] {
            let a = random.matrix::<f64>(n, n);
            let (mut t, mut u) = (a.clone(), vec![0.0; n * n]);
            let mut scratch = vec![0.0; hessenberg::scratch_len(n)];
            assert!(decompose(&mut t, n, &mut u, &mut scratch));
            assert_orthonormal(&u, n, n, 1e3);
            let back = product(&product(&u, &t, (n, n, n)), &adjoint_of(&u, n, n), (n, n, n));
            assert_close(&back, &a, 1e3);
            for i in 2..n {
                assert!(t[i * n..i * n + i - 1].iter().all(|&x| x == 0.0));
            }
        }
    }
}
