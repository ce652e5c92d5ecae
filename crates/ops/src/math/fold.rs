//! Reductions (sum, product, minimum, maximum, mean) over contiguous runs and over columns.
//!
//! Sums use pairwise summation over blocks, so that their error grows with the logarithm of the
//! count; the blocking depends on the sizes only.

use num_complex::Complex;

use super::vectorized::vectorized;
use crate::window::{Cell, Run};

/// An associative operation, up to rounding, with an identity element.
pub(crate) trait Fold<A>: 'static {
    /// The identity element.
    const START: A;

    /// The term that an element contributes, such as its square.
    #[inline(always)]
    fn term(x: A) -> A {
        x
    }

    /// Combines two accumulators.
    fn merge(a: A, b: A) -> A;

    /// Turns accumulators over `count` elements each into results, such as a sum into a mean.
    #[inline(always)]
    fn finish(_folds: &mut [A], _count: usize) {}

    /// Merges `b` into `a` in place. Storing a select back where one of its operands came from
    /// compiles to a slow masked store, so minimum and maximum implement this differently.
    #[inline(always)]
    fn merge_into(a: &mut A, b: A)
    where
        A: Copy,
    {
        *a = Self::merge(*a, b);
    }

    /// Reduces a run that is short enough to need no pairwise summation.
    fn run(x: &[A]) -> A
    where
        A: Copy,
        Self: Sized,
    {
        fold_run::<A, Self>(x)
    }
}

/// `a` if it is NaN, else `other`.
#[inline(always)]
fn keep_nan<A: num_traits::Float>(a: A, other: A) -> A {
    if a.is_nan() { a } else { other }
}

/// Sum; integers wrap.
pub(crate) struct Sum;
/// Product; integers wrap.
pub(crate) struct Product;
/// Maximum; NaN if an element is NaN.
pub(crate) struct Maximum;
/// Minimum; NaN if an element is NaN.
pub(crate) struct Minimum;
/// Mean.
pub(crate) struct Mean;
/// Sum of squared absolute values; integers wrap.
pub(crate) struct SumOfSquares;
/// Maximum, ignoring NaN.
pub(crate) struct MaximumNumber;
/// Minimum, ignoring NaN.
pub(crate) struct MinimumNumber;

macro_rules! folds {
    ($($t:ty: $fold:ident from $start:expr, |$x:ident| $term:expr, |$a:ident, $b:ident| $merge:expr
        $(, in place $into:expr)? $(, but for NaN $number:ident)? $(, in the end $end:expr)?;)+) => { $(
        impl Fold<$t> for $fold {
            const START: $t = $start;

            #[inline(always)]
            fn term($x: $t) -> $t {
                $term
            }

            #[inline(always)]
            fn merge($a: $t, $b: $t) -> $t {
                $merge
            }

            $(
                #[inline(always)]
                fn merge_into(a: &mut $t, b: $t) {
                    *a = ($into)(*a, b);
                }
            )?

            $(
                fn run(x: &[$t]) -> $t {
                    fold_numbers::<$t, $number>(x)
                }
            )?

            $(
                #[inline(always)]
                fn finish(folds: &mut [$t], count: usize) {
                    folds.iter_mut().for_each(|x| *x = ($end)(*x, count));
                }
            )?
        }
    )+ };
}

macro_rules! integer_folds {
    ($($t:ty),+) => { $(
        folds! {
            $t: Sum from 0, |x| x, |a, b| a.wrapping_add(b);
            $t: Product from 1, |x| x, |a, b| a.wrapping_mul(b);
            $t: Maximum from <$t>::MIN, |x| x, |a, b| a.max(b);
            $t: Minimum from <$t>::MAX, |x| x, |a, b| a.min(b);
            $t: MaximumNumber from <$t>::MIN, |x| x, |a, b| a.max(b);
            $t: MinimumNumber from <$t>::MAX, |x| x, |a, b| a.min(b);
            $t: SumOfSquares from 0, |x| x.wrapping_mul(x), |a, b| a.wrapping_add(b);
        }
    )+ };
}

integer_folds!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float_folds {
    ($($t:ty),+) => { $(
        folds! {
            $t: Sum from 0.0, |x| x, |a, b| a + b;
            $t: Product from 1.0, |x| x, |a, b| a * b;
            $t: Maximum from <$t>::NEG_INFINITY, |x| x, |a, b| keep_nan(a, if a > b { a } else { b }),
                but for NaN MaximumNumber;
            $t: Minimum from <$t>::INFINITY, |x| x, |a, b| keep_nan(a, if a < b { a } else { b }),
                but for NaN MinimumNumber;
            $t: MaximumNumber from <$t>::NEG_INFINITY, |x| x, |a, b| if b > a { b } else { a },
                in place <$t>::max;
            $t: MinimumNumber from <$t>::INFINITY, |x| x, |a, b| if b < a { b } else { a },
                in place <$t>::min;
            $t: SumOfSquares from 0.0, |x| x * x, |a, b| a + b;
            $t: Mean from 0.0, |x| x, |a, b| a + b,
                in the end |sum: $t, count: usize| sum * (1.0 / count as f64) as $t;
        }
        folds! {
            Complex<$t>: Sum from Complex { re: 0.0, im: 0.0 }, |x| x, |a, b| a + b;
            Complex<$t>: Product from Complex { re: 1.0, im: 0.0 }, |x| x, |a, b| a * b;
            Complex<$t>: SumOfSquares from Complex { re: 0.0, im: 0.0 },
                |x| Complex { re: x.norm_sqr(), im: 0.0 }, |a, b| a + b;
        }
    )+ };
}

float_folds!(f32, f64);

folds! {
    bool: Maximum from false, |x| x, |a, b| a | b;
    bool: Minimum from true, |x| x, |a, b| a & b;
    bool: MaximumNumber from false, |x| x, |a, b| a | b;
    bool: MinimumNumber from true, |x| x, |a, b| a & b;
}

/// The loops of one reduction on one type.
#[derive(Clone, Copy)]
pub(crate) struct FoldLoops<A> {
    /// The identity element.
    pub(crate) start: A,
    /// Reduces a run that is short enough to need no pairwise summation.
    pub(crate) run: fn(&[A]) -> A,
    /// Merges `x[i * stride + j]` into `acc[j]` for every row `i` that begins in `x`.
    pub(crate) columns: fn(&mut [A], &[A], usize),
    /// Merges the accumulator `x[j]` into `acc[j]`.
    pub(crate) merge: fn(&mut [A], &[A]),
    /// Reduces the `i`th of consecutive runs of this length into `out[i]`.
    pub(crate) short_runs: fn(&mut [A], &[A], usize),
}

/// The loops of `F` on `A`.
pub(crate) fn loops<A: Copy + 'static, F: Fold<A>>() -> FoldLoops<A> {
    FoldLoops {
        start: F::START,
        run: F::run,
        columns: fold_columns::<A, F>,
        merge: merge_slices::<A, F>,
        short_runs: fold_short_runs::<A, F>,
    }
}

/// Independent accumulators of a run, which hide the latency of additions.
const LANES: usize = 64;

/// Merges the upper half of the lanes into the lower half; with constant sizes this compiles to a
/// few instructions.
#[inline(always)]
fn halved<A: Copy, F: Fold<A>, const N: usize, const HALF: usize>(lanes: &[A; N]) -> [A; HALF] {
    std::array::from_fn(|i| F::merge(lanes[i], lanes[HALF + i]))
}

/// Merges all lanes pairwise.
#[inline(always)]
fn all_lanes<A: Copy, F: Fold<A>>(lanes: &[A; LANES]) -> A {
    let lanes: [A; 32] = halved::<A, F, 64, 32>(lanes);
    let lanes: [A; 16] = halved::<A, F, 32, 16>(&lanes);
    let lanes: [A; 8] = halved::<A, F, 16, 8>(&lanes);
    let lanes: [A; 4] = halved::<A, F, 8, 4>(&lanes);
    let lanes: [A; 2] = halved::<A, F, 4, 2>(&lanes);
    F::merge(lanes[0], lanes[1])
}

vectorized! {
    fn fold_run<L>[A: Copy, F: Fold<A>](x: &[A]) -> A {
        if x.len() < LANES / 2 {
            return x.iter().fold(F::START, |a, &x| F::merge(a, F::term(x)));
        }
        let mut lanes = [F::START; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = F::merge(*lane, F::term(x));
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = F::merge(*lane, F::term(x));
        }
        all_lanes::<A, F>(&lanes)
    }
}

vectorized! {
    /// As [`fold_run`], but NaN if an element is NaN. The test takes one comparison for two
    /// elements, which is cheaper than merging with NaN checks.
    fn fold_numbers<L>[A: num_traits::Float, F: Fold<A>](x: &[A]) -> A {
        const HALF: usize = LANES / 2;
        let mut lanes = [F::START; LANES];
        let mut nans = [A::zero(); HALF];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for x in chunks {
            for i in 0..HALF {
                let (a, b) = (x[i], x[HALF + i]);
                lanes[i] = F::merge(lanes[i], a);
                lanes[HALF + i] = F::merge(lanes[HALF + i], b);
                nans[i] = if a.is_nan() | b.is_nan() { A::nan() } else { nans[i] };
            }
        }
        for (lane, &x) in lanes.iter_mut().zip(rest) {
            *lane = F::merge(*lane, x);
        }
        let count_nans = |x: &[A]| x.iter().fold(0, |n, x| n + u32::from(x.is_nan()));
        if count_nans(&nans) + count_nans(rest) > 0 {
            return A::nan();
        }
        all_lanes::<A, F>(&lanes)
    }
}

vectorized! {
    fn fold_columns<L>[A: Copy, F: Fold<A>](acc: &mut [A], x: &[A], stride: usize) {
        let n = acc.len();
        let mut rest = x;
        // Four rows at a time, so that accumulators are loaded and stored once for the four.
        while rest.len() >= 3 * stride + n && n > 0 {
            let (a, b) = (&rest[..n], &rest[stride..stride + n]);
            let (c, d) = (&rest[2 * stride..2 * stride + n], &rest[3 * stride..3 * stride + n]);
            for ((((acc, &a), &b), &c), &d) in acc.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                let left = F::merge(F::term(a), F::term(b));
                let right = F::merge(F::term(c), F::term(d));
                F::merge_into(acc, F::merge(left, right));
            }
            rest = rest.get(4 * stride..).unwrap_or(&[]);
        }
        while rest.len() >= n && n > 0 {
            for (acc, &a) in acc.iter_mut().zip(rest) {
                F::merge_into(acc, F::term(a));
            }
            rest = rest.get(stride..).unwrap_or(&[]);
        }
    }
}

vectorized! {
    fn merge_slices<L>[A: Copy, F: Fold<A>](acc: &mut [A], x: &[A]) {
        for (acc, &x) in acc.iter_mut().zip(x) {
            F::merge_into(acc, x);
        }
    }
}

vectorized! {
    fn fold_short_runs<L>[A: Copy, F: Fold<A>](out: &mut [A], x: &[A], len: usize) {
        for (out, run) in out.iter_mut().zip(x.chunks_exact(len)) {
            *out = run.iter().fold(F::START, |a, &x| F::merge(a, F::term(x)));
        }
    }
}

/// Reduces `K` times `N` channels of a window in registers; `x` begins with the channels of its
/// first cell.
#[inline(always)]
fn fold_block<A: Copy, F: Fold<A>, const K: usize, const N: usize>(
    out: &mut [A],
    x: &[A],
    cells: &[Cell],
    channels: usize,
) {
    let mut acc = [[F::START; N]; K];
    for cell in cells {
        let (x, _) = x[cell.pixel * channels..][..K * N].as_chunks::<N>();
        for (acc, x) in acc.iter_mut().zip(x) {
            // Whole arrays, since element by element the stores would be masked: see `merge_into`.
            let before = *acc;
            *acc = std::array::from_fn(|i| F::merge(before[i], F::term(x[i])));
        }
    }
    out.copy_from_slice(acc.as_flattened());
    F::finish(out, cells.len());
}

vectorized! {
    /// Reduces each window of a run of windows, on images with this many channels, into `out`.
    pub(crate) fn fold_windows<L>[A: Copy, F: Fold<A>](
        out: &mut [A],
        images: &[A],
        run: &Run<'_>,
        channels: usize,
    ) {
        for (i, out) in out.chunks_exact_mut(channels).enumerate() {
            // The position of a window without cells may be out of bounds.
            let from = |c| images.get((run.first + i * run.stride) * channels + c..).unwrap_or(&[]);
            let (wide, rest) = out.as_chunks_mut::<64>();
            let mut at = 0;
            for out in wide {
                fold_block::<A, F, 4, 16>(out, from(at), run.cells, channels);
                at += 64;
            }
            let (narrow, rest) = rest.as_chunks_mut::<16>();
            for out in narrow {
                fold_block::<A, F, 1, 16>(out, from(at), run.cells, channels);
                at += 16;
            }
            for out in rest.chunks_exact_mut(1) {
                fold_block::<A, F, 1, 1>(out, from(at), run.cells, channels);
                at += 1;
            }
        }
    }
}
