//! Row-wise loops of softmax and cross entropy.

use super::fold::{Fold, Maximum, loops};
use super::real::Real;
use super::vectorized::vectorized;

/// Independent accumulators.
const LANES: usize = 16;

/// Replaces a row by `e^(x - max)`; returns the sum.
pub(crate) fn exponentials<A: Real>(row: &mut [A]) -> A
where
    Maximum: Fold<A>,
{
    exponentials_of(row).1
}

/// As [`exponentials`]; returns the maximum and the sum.
pub(crate) fn exponentials_of<A: Real>(row: &mut [A]) -> (A, A)
where
    Maximum: Fold<A>,
{
    let largest = (loops::<A, Maximum>().run)(row);
    (largest, exponentials_below(row, largest))
}

vectorized! {
    fn exponentials_below<L>[A: Real](row: &mut [A], largest: A) -> A {
        let mut lanes = [A::zero(); LANES];
        let mut chunks = row.chunks_exact_mut(LANES);
        for chunk in &mut chunks {
            for (x, sum) in chunk.iter_mut().zip(&mut lanes) {
                *x = (*x - largest).exp_at::<L>();
                *sum += *x;
            }
        }
        for (x, sum) in chunks.into_remainder().iter_mut().zip(&mut lanes) {
            *x = (*x - largest).exp_at::<L>();
            *sum += *x;
        }
        total(&lanes)
    }
}

vectorized! {
    /// Replaces short rows by their softmax; exponentials are computed over all rows at once, which
    /// vectorizes for any row length.
    pub(crate) fn softmax_short_rows<L>[A: Real, M: Fold<A>](rows: &mut [A], columns: usize) {
        for row in rows.chunks_exact_mut(columns) {
            let largest = row.iter().fold(M::START, |a, &x| M::merge(a, x));
            for x in row {
                *x = *x - largest;
            }
        }
        for x in &mut *rows {
            *x = x.exp_at::<L>();
        }
        for row in rows.chunks_exact_mut(columns) {
            let sum = row.iter().fold(A::zero(), |sum, &x| sum + x);
            let factor = sum.recip();
            for x in row {
                *x *= factor;
            }
        }
    }
}

/// Sums the lanes pairwise.
#[inline(always)]
fn total<A: Real>(lanes: &[A; LANES]) -> A {
    let mut lanes = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

vectorized! {
    /// Multiplies a row by a factor.
    pub(crate) fn scale<L>[A: Real](row: &mut [A], factor: A) {
        for x in row {
            *x *= factor;
        }
    }
}

/// The maximum of a row, and the logarithm of the sum of `e^(x - max)`.
pub(crate) fn log_of_sum<A: Real>(row: &[A]) -> (A, A)
where
    Maximum: Fold<A>,
{
    let largest = (loops::<A, Maximum>().run)(row);
    (largest, sum_of_exponentials(row, largest).ln())
}

vectorized! {
    fn sum_of_exponentials<L>[A: Real](row: &[A], largest: A) -> A {
        let mut lanes = [A::zero(); LANES];
        let chunks = row.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (&x, sum) in chunk.iter().zip(&mut lanes) {
                *sum += (x - largest).exp_at::<L>();
            }
        }
        for (&x, sum) in rest.iter().zip(&mut lanes) {
            *sum += (x - largest).exp_at::<L>();
        }
        total(&lanes)
    }
}

/// Replaces a row by the logarithm of its softmax.
pub(crate) fn log_softmax_row<A: Real>(row: &mut [A])
where
    Maximum: Fold<A>,
{
    let (largest, log) = log_of_sum(row);
    subtract_twice(row, largest, log);
}

vectorized! {
    // Two subtractions: `x - max` is exact near the maximum, `x - (max + log_sum)` is not.
    fn subtract_twice<L>[A: Real](row: &mut [A], a: A, b: A) {
        for x in row {
            *x = (*x - a) - b;
        }
    }
}
