//! Eigenvalues and eigenvectors of matrices without symmetry.
//!
//! Complex matrices go through the Schur form; real ones through the real Schur form, whose blocks of
//! two rows are pairs of conjugate eigenvalues.

use num_complex::Complex;
use num_traits::Float;

use super::scalar::{Scalar, largest, multiply, number, set_identity};
use super::{hessenberg, real_schur, schur};

/// Elements of scratch that [`complex`] needs for `n` rows.
pub(crate) fn complex_scratch_len(n: usize) -> usize {
    2 * n * n + schur::scratch_len(n)
}

/// Eigenvalues of the complex matrix `a`, in ascending order of absolute value, and eigenvectors of
/// length 1 as columns of `vectors`, which may be empty. `a` is overwritten. Returns false if the
/// Schur form did not converge.
pub(crate) fn complex<S: Scalar>(
    a: &mut [S],
    n: usize,
    values: &mut [S],
    vectors: &mut [S],
    scratch: &mut [S],
) -> bool {
    let (u, scratch) = scratch.split_at_mut(n * n);
    let (x, scratch) = scratch.split_at_mut(n * n);
    if !schur::decompose(a, n, u, scratch) {
        return false;
    }
    (0..n).for_each(|i| values[i] = a[i * n + i]);
    if !vectors.is_empty() {
        vectors_of_triangle(a, n, x);
        multiply(u, x, vectors, (n, n, n));
        for j in 0..n {
            normalize_column(vectors, n, j);
        }
    }
    for i in 0..n {
        let mut least = i;
        for j in i + 1..n {
            if values[j].size() < values[least].size() {
                least = j;
            }
        }
        if least != i {
            values.swap(i, least);
            vectors.chunks_exact_mut(n).for_each(|row| row.swap(i, least));
        }
    }
    true
}

/// Eigenvectors of an upper triangular matrix, as columns of the upper triangular `x`.
fn vectors_of_triangle<S: Scalar>(t: &[S], n: usize, x: &mut [S]) {
    let norm = super::scalar::norm_sqr(t).sqrt();
    let least = (S::Real::epsilon() * norm).max(S::Real::min_positive_value());
    set_identity(x, n);
    for k in (0..n).rev() {
        for i in (0..k).rev() {
            let mut sum = -t[i * n + k];
            for j in i + 1..k {
                sum -= t[i * n + j] * x[j * n + k];
            }
            let mut gap = t[i * n + i] - t[k * n + k];
            if gap == S::ZERO {
                gap = S::of(least, gap.im());
            }
            x[i * n + k] = sum.over(gap);
        }
    }
}

fn normalize_column<S: Scalar>(a: &mut [S], n: usize, j: usize) {
    let norm = (0..n).fold(S::Real::ZERO, |sum, i| sum + a[i * n + j].norm_sqr()).sqrt();
    if norm > S::Real::ZERO {
        (0..n).for_each(|i| a[i * n + j] = a[i * n + j].scaled(norm.recip()));
    }
}

/// Elements of scratch that [`real`] needs for `n` rows.
pub(crate) fn real_scratch_len(n: usize) -> usize {
    n * n + hessenberg::scratch_len(n)
}

/// As [`complex`], for a real matrix. Eigenvalues are in the order in which they are found; of a
/// conjugate pair the one with positive imaginary part comes first.
pub(crate) fn real<R>(
    a: &mut [R],
    n: usize,
    values: &mut [Complex<R>],
    vectors: &mut [Complex<R>],
    scratch: &mut [R],
) -> bool
where
    R: Scalar<Real = R> + Float,
    Complex<R>: Scalar<Real = R>,
{
    let (u, scratch) = scratch.split_at_mut(n * n);
    let scale = largest(&a[..n * n]);
    if scale.is_nan() {
        return false;
    }
    let scale = if scale == R::ZERO { R::ONE } else { scale };
    a.iter_mut().for_each(|x| *x = *x / scale);
    if !real_schur::decompose(a, n, u, scratch) {
        return false;
    }
    a.iter_mut().for_each(|x| *x *= scale);
    values_of_blocks(a, n, values);
    if !values.iter().all(|x| x.is_finite_number()) {
        return false;
    }
    if vectors.is_empty() {
        return true;
    }
    BackSubstitution { t: a, n, values, norm: R::ZERO }.run();
    let x = &mut scratch[..n * n];
    // Elements below the diagonal are left over from the diagonal blocks and are not part of the
    // vectors.
    for i in 0..n {
        a[i * n..i * n + i].fill(R::ZERO);
    }
    multiply(u, a, x, (n, n, n));
    let mut j = 0;
    while j < n {
        let value = values[j];
        let is_real = value.im.size() <= value.re.size() * (R::epsilon() + R::epsilon());
        if is_real || j + 1 == n {
            (0..n).for_each(|i| vectors[i * n + j] = Complex::new(x[i * n + j], R::ZERO));
            normalize_column(vectors, n, j);
            j += 1;
            continue;
        }
        for i in 0..n {
            let own = Complex::new(x[i * n + j], x[i * n + j + 1]);
            vectors[i * n + j] = own;
            vectors[i * n + j + 1] = Scalar::conj(own);
        }
        normalize_column(vectors, n, j);
        normalize_column(vectors, n, j + 1);
        j += 2;
    }
    true
}

/// The eigenvalues of the diagonal blocks of a real Schur form.
fn values_of_blocks<R: Scalar<Real = R> + Float>(t: &[R], n: usize, values: &mut [Complex<R>]) {
    let mut i = 0;
    while i < n {
        if i + 1 == n || t[(i + 1) * n + i] == R::ZERO {
            values[i] = Complex::new(t[i * n + i], R::ZERO);
            i += 1;
            continue;
        }
        let (below, above) = (t[(i + 1) * n + i], t[i * n + i + 1]);
        let half = (t[i * n + i] - t[(i + 1) * n + i + 1]) * number(0.5);
        let size = half.size().max(below.size()).max(above.size());
        let (p, x, y) = (half / size, below / size, above / size);
        let im = size * (p * p + x * y).size().sqrt();
        let re = t[(i + 1) * n + i + 1] + half;
        values[i] = Complex::new(re, im);
        values[i + 1] = Complex::new(re, -im);
        i += 2;
    }
}

/// Eigenvectors of a real Schur form, which they replace column by column from the right. Of a
/// conjugate pair, the first column is the real part and the second the imaginary part.
struct BackSubstitution<'a, R> {
    t: &'a mut [R],
    n: usize,
    values: &'a [Complex<R>],
    norm: R,
}

impl<R> BackSubstitution<'_, R>
where
    R: Scalar<Real = R> + Float,
    Complex<R>: Scalar<Real = R>,
{
    fn at(&self, i: usize, j: usize) -> R {
        self.t[i * self.n + j]
    }

    fn set(&mut self, i: usize, j: usize, x: R) {
        self.t[i * self.n + j] = x;
    }

    fn run(&mut self) {
        self.norm = (0..self.n).fold(R::ZERO, |sum, i| {
            (i.saturating_sub(1)..self.n).fold(sum, |sum, j| sum + Scalar::size(self.at(i, j)))
        });
        if self.norm == R::ZERO {
            return set_identity(self.t, self.n);
        }
        let mut k = self.n;
        while k > 0 {
            k -= 1;
            if self.values[k].im == R::ZERO {
                self.real_vector(k);
            } else if self.values[k].im < R::ZERO && k > 0 {
                self.complex_vector(k);
                k -= 1;
            }
        }
    }

    /// The sum over columns `from..=to` of row `i` times column `k`.
    fn sum(&self, i: usize, (from, to): (usize, usize), k: usize) -> R {
        (from..=to).fold(R::ZERO, |sum, j| sum + self.at(i, j) * self.at(j, k))
    }

    fn real_vector(&mut self, k: usize) {
        let p = self.values[k].re;
        let (mut last_r, mut last_w, mut from) = (R::ZERO, R::ZERO, k);
        self.set(k, k, R::ONE);
        for i in (0..k).rev() {
            let w = self.at(i, i) - p;
            let r = self.sum(i, (from, k), k);
            let value = self.values[i];
            if value.im < R::ZERO {
                (last_w, last_r) = (w, r);
                continue;
            }
            from = i;
            if value.im == R::ZERO {
                let divisor = if w == R::ZERO { R::epsilon() * self.norm } else { w };
                self.set(i, k, -(r / divisor));
            } else {
                // A 2 by 2 diagonal block: solve for its two rows together.
                let (x, y) = (self.at(i, i + 1), self.at(i + 1, i));
                let gap = value.re - p;
                let t = (x * last_r - last_w * r) / (gap * gap + value.im * value.im);
                self.set(i, k, t);
                let other = if Scalar::size(x) > Scalar::size(last_w) {
                    (-r - w * t) / x
                } else {
                    (-last_r - y * t) / last_w
                };
                self.set(i + 1, k, other);
            }
            let size = Scalar::size(self.at(i, k));
            if R::epsilon() * size * size > R::ONE {
                (i..self.n).for_each(|j| self.t[j * self.n + k] = self.t[j * self.n + k] / size);
            }
        }
    }

    fn complex_vector(&mut self, k: usize) {
        let (p, q) = (self.values[k].re, self.values[k].im);
        let mut from = k - 1;
        let first = if Scalar::size(self.at(k, k - 1)) > Scalar::size(self.at(k - 1, k)) {
            let below = self.at(k, k - 1);
            Complex::new(q / below, -((self.at(k, k) - p) / below))
        } else {
            let above = Complex::new(R::ZERO, -self.at(k - 1, k));
            above.over(Complex::new(self.at(k - 1, k - 1) - p, q))
        };
        self.set_pair(k - 1, k, first);
        self.set_pair(k, k, Complex::new(R::ZERO, R::ONE));
        let (mut last_w, mut last) = (R::ZERO, Complex::new(R::ZERO, R::ZERO));
        for i in (0..k - 1).rev() {
            let sums = Complex::new(self.sum(i, (from, k), k - 1), self.sum(i, (from, k), k));
            let w = self.at(i, i) - p;
            if self.values[i].im < R::ZERO {
                (last_w, last) = (w, sums);
                continue;
            }
            from = i;
            if self.values[i].im == R::ZERO {
                let own = (-sums).over(Complex::new(w, q));
                self.set_pair(i, k, own);
            } else {
                self.complex_block((i, k), (w, sums), (last_w, last));
            }
            let size = Scalar::size(self.at(i, k - 1)).max(Scalar::size(self.at(i, k)));
            if R::epsilon() * size * size > R::ONE {
                for j in i..self.n {
                    let own = self.pair(j, k);
                    self.set_pair(j, k, own.scaled(size.recip()));
                }
            }
        }
    }

    /// Solves two rows of a 2 by 2 block for a pair of columns.
    fn complex_block(
        &mut self,
        (i, k): (usize, usize),
        (w, sums): (R, Complex<R>),
        (last_w, last): (R, Complex<R>),
    ) {
        let (p, q) = (self.values[k].re, self.values[k].im);
        let value = self.values[i];
        let (x, y) = (self.at(i, i + 1), self.at(i + 1, i));
        let gap = value.re - p;
        let mut divisor = Complex::new(gap * gap + value.im * value.im - q * q, gap * (q + q));
        if divisor.re == R::ZERO && divisor.im == R::ZERO {
            let size = [w, q, x, y, last_w].iter().fold(R::ZERO, |sum, &x| sum + Scalar::size(x));
            divisor.re = R::epsilon() * self.norm * size;
        }
        let numerator = Complex::new(
            x * last.re - last_w * sums.re + q * sums.im,
            x * last.im - last_w * sums.im - q * sums.re,
        );
        let own = numerator.over(divisor);
        self.set_pair(i, k, own);
        let other = if Scalar::size(x) > Scalar::size(last_w) + Scalar::size(q) {
            Complex::new(
                (-sums.re - w * own.re + q * own.im) / x,
                (-sums.im - w * own.im - q * own.re) / x,
            )
        } else {
            let rest = Complex::new(-last.re - y * own.re, -last.im - y * own.im);
            rest.over(Complex::new(last_w, q))
        };
        self.set_pair(i + 1, k, other);
    }

    fn pair(&self, i: usize, k: usize) -> Complex<R> {
        Complex::new(self.at(i, k - 1), self.at(i, k))
    }

    fn set_pair(&mut self, i: usize, k: usize, x: Complex<R>) {
        self.set(i, k - 1, x.re);
        self.set(i, k, x.im);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// Asserts `a v = v d` and that vectors have length 1.
    fn check_pairs<R>(
        a: &[Complex<R>],
        n: usize,
        values: &[Complex<R>],
        vectors: &[Complex<R>],
        slack: f64,
    ) where
        R: Scalar<Real = R> + Float,
        Complex<R>: Scalar<Real = R>,
    {
        let left = product(a, vectors, (n, n, n));
        let right: Vec<Complex<R>> = (0..n * n).map(|at| vectors[at] * values[at % n]).collect();
        assert_close(&left, &right, slack);
        for j in 0..n {
            let length = (0..n).fold(R::ZERO, |sum, i| sum + Scalar::norm_sqr(vectors[i * n + j]));
            assert_close(&[length], &[R::ONE], 1e2);
        }
    }

    fn check<R>()
    where
        R: Scalar<Real = R> + Float,
        Complex<R>: Scalar<Real = R>,
    {
        let zero = Complex::new(R::ZERO, R::ZERO);
        let mut random = Random::new(53);
        for n in [1, 2, 3, 4, 6, 11, 25] {
            let a = random.matrix::<Complex<R>>(n, n);
            let (mut values, mut vectors) = (vec![zero; n], vec![zero; n * n]);
            let mut scratch = vec![zero; complex_scratch_len(n)];
            assert!(complex(&mut a.clone(), n, &mut values, &mut vectors, &mut scratch));
            check_pairs(&a, n, &values, &vectors, 1e3);
            assert!(values.is_sorted_by(|x, y| Scalar::size(*x) <= Scalar::size(*y)));
            for kind in 0..4 {
                let mut a = random.matrix::<R>(n, n);
                match kind {
                    // A cyclic permutation, whose eigenvalues are the roots of unity.
                    1 => {
                        a.fill(R::ZERO);
                        (0..n).for_each(|i| a[i * n + (i + 1) % n] = R::ONE);
                    }
                    2 => (0..n).for_each(|i| (0..i).for_each(|j| a[i * n + j] = a[j * n + i])),
                    3 => set_identity(&mut a, n),
                    _ => {}
                }
                let mut scratch = vec![R::ZERO; real_scratch_len(n)];
                assert!(real(&mut a.clone(), n, &mut values, &mut vectors, &mut scratch));
                let wide: Vec<Complex<R>> = a.iter().map(|&x| Complex::new(x, R::ZERO)).collect();
                check_pairs(&wide, n, &values, &vectors, 1e4);
            }
        }
        let mut bad = vec![R::nan(); 9];
        let mut scratch = vec![R::ZERO; real_scratch_len(3)];
        assert!(!real(&mut bad, 3, &mut [zero; 3], &mut [zero; 9], &mut scratch));
    }

    #[test]
    fn vectors_and_values_belong_together() {
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn order_and_signs_are_eigens() {
        let zero = Complex::new(0.0, 0.0);
        let (mut values, mut vectors) = ([zero; 2], [zero; 4]);
        let mut scratch = vec![0.0; real_scratch_len(2)];
        let mut a = [4.0, 1.0, 2.0, 3.0];
        assert!(real(&mut a, 2, &mut values, &mut vectors, &mut scratch));
        assert!((values[0].re - 5.0).size() < 1e-12 && (values[1].re - 2.0).size() < 1e-12);
        assert!(vectors[0].re > 0.7 && vectors[1].re < -0.44, "{vectors:?}");
    }
}
