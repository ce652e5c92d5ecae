//! Helpers of the decomposition tests.

use num_traits::Float;

use super::scalar::{Scalar, adjoint, multiply, number};

/// A small generator of uniform numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Uniform in -1..1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub(crate) fn matrix<S: Scalar>(&mut self, rows: usize, columns: usize) -> Vec<S> {
        (0..rows * columns).map(|_| S::of(number(self.uniform()), number(self.uniform()))).collect()
    }
}

pub(crate) fn number_of<R: Float>(x: f64) -> R {
    number(x)
}

pub(crate) fn product<S: Scalar>(a: &[S], b: &[S], sizes: (usize, usize, usize)) -> Vec<S> {
    let mut c = vec![S::ZERO; sizes.0 * sizes.2];
    multiply(a, b, &mut c, sizes);
    c
}

pub(crate) fn adjoint_of<S: Scalar>(a: &[S], rows: usize, columns: usize) -> Vec<S> {
    let mut out = vec![S::ZERO; rows * columns];
    adjoint(a, rows, columns, &mut out);
    out
}

/// Asserts that two matrices differ by at most `slack` units in the last place of the largest
/// element.
pub(crate) fn assert_close<S: Scalar>(a: &[S], b: &[S], slack: f64) {
    assert_eq!(a.len(), b.len());
    let largest = a.iter().chain(b).fold(S::Real::ONE, |m, x| m.max(x.size()));
    let limit = largest * S::Real::epsilon() * number(slack);
    for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).size() <= limit, "element {i}: {x:?} is not {y:?} within {limit:?}");
    }
}

/// Asserts that the columns of `q`, of `rows` by `columns`, are orthonormal.
pub(crate) fn assert_orthonormal<S: Scalar>(q: &[S], rows: usize, columns: usize, slack: f64) {
    let gram = product(&adjoint_of(q, rows, columns), q, (columns, rows, columns));
    let mut identity = vec![S::ZERO; columns * columns];
    super::scalar::set_identity(&mut identity, columns);
    assert_close(&gram, &identity, slack);
}
