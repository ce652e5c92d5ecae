//! Packing of factors into the order in which the micro-kernel reads them.

use super::element::Number;
use super::lanes::{Lanes, LoadAs};

/// Elements between a load and the address that is prefetched for later loads of the same lane:
/// more lanes are packed at a time than the hardware prefetcher follows.
const PREFETCH_DISTANCE: usize = 64;

/// Some rows of the left factor, or columns of the right one: `lanes` of them, `depth` long.
#[derive(Clone, Copy)]
pub(super) struct Strip<E> {
    pub(super) from: *const E,
    pub(super) lanes: usize,
    pub(super) lane_stride: usize,
    pub(super) depth: usize,
    pub(super) depth_stride: usize,
}

/// Writes the strip as `depth` rows of `width` sums: its lanes, then padding of unspecified
/// content.
///
/// # Safety
///
/// The instructions of `V` exist; the strip's elements are in bounds; `to` has room for
/// `depth * width` numbers which nothing else accesses; `width` is a multiple of `V::LEN` and at
/// least `lanes`.
pub(super) unsafe fn pack<E, V>(strip: &Strip<E>, to: *mut V::Number, width: usize)
where
    V: Lanes,
    E: LoadAs<V>,
{
    // SAFETY: the caller vouches for the instructions and for what the three functions need.
    unsafe {
        V::with_features(
            #[inline(always)]
            || {
                if strip.lane_stride == 1 {
                    pack_adjacent_lanes::<E, V>(strip, to, width);
                } else if strip.depth_stride == 1 {
                    pack_adjacent_depth::<E, V>(strip, to, width);
                } else {
                    pack_scattered::<E, V>(strip, to, width);
                }
            },
        );
    }
}

/// Lanes are contiguous in memory: rows are copied.
#[inline(always)]
unsafe fn pack_adjacent_lanes<E, V>(strip: &Strip<E>, to: *mut V::Number, width: usize)
where
    V: Lanes,
    E: LoadAs<V>,
{
    let whole = strip.lanes / V::LEN * V::LEN;
    let rest = strip.lanes - whole;
    // SAFETY: row `p` of the strip has `lanes = whole + rest` elements, row `p` of `to` has `width`
    // numbers, and `whole` and `width` are multiples of `V::LEN`.
    unsafe {
        for p in 0..strip.depth {
            let (from, to) = (strip.from.add(p * strip.depth_stride), to.add(p * width));
            for lane in (0..whole).step_by(V::LEN) {
                E::load(from.add(lane)).store(to.add(lane));
            }
            if rest > 0 {
                E::load_partial(from.add(whole), rest).store(to.add(whole));
            }
            for lane in ((whole + rest).next_multiple_of(V::LEN)..width).step_by(V::LEN) {
                V::zero().store(to.add(lane));
            }
        }
    }
}

/// The depth is contiguous in memory: squares are transposed in registers.
#[inline(always)]
unsafe fn pack_adjacent_depth<E, V>(strip: &Strip<E>, to: *mut V::Number, width: usize)
where
    V: Lanes,
    E: LoadAs<V>,
{
    for lane in (0..width).step_by(V::LEN) {
        let whole = strip.depth / V::LEN * V::LEN;
        // SAFETY: `to` has `width` numbers, a multiple of `V::LEN`, in each of the `V::LEN` rows
        // from `p`, or in the last `depth - whole`.
        unsafe {
            for p in (0..whole).step_by(V::LEN) {
                let square = load_square::<E, V>(strip, lane, |row| {
                    V::prefetch(row.wrapping_add(p + PREFETCH_DISTANCE).cast());
                    E::load(row.add(p))
                });
                for (i, register) in square.iter().enumerate().take(V::LEN) {
                    register.store(to.add((p + i) * width + lane));
                }
            }
            let rest = strip.depth - whole;
            if rest > 0 {
                let square =
                    load_square::<E, V>(strip, lane, |row| E::load_partial(row.add(whole), rest));
                for (i, register) in square.iter().enumerate().take(rest) {
                    register.store(to.add((whole + i) * width + lane));
                }
            }
        }
    }
}

/// The `V::LEN` lanes from `lane` on, transposed; lanes out of range repeat the last.
#[inline(always)]
unsafe fn load_square<E, V>(strip: &Strip<E>, lane: usize, load: impl Fn(*const E) -> V) -> [V; 16]
where
    V: Lanes,
    E: LoadAs<V>,
{
    // SAFETY: the caller vouches for the instructions; the lane exists, and `V::LEN` is at most 16.
    unsafe {
        let mut square = [V::zero(); 16];
        for (i, register) in square.iter_mut().enumerate().take(V::LEN) {
            let lane = (lane + i).min(strip.lanes - 1);
            *register = load(strip.from.add(lane * strip.lane_stride));
        }
        V::transpose(&mut square[..V::LEN]);
        square
    }
}

/// Neither dimension is contiguous: one element at a time.
#[inline(always)]
unsafe fn pack_scattered<E, V>(strip: &Strip<E>, to: *mut V::Number, width: usize)
where
    V: Lanes,
    E: LoadAs<V>,
{
    for p in 0..strip.depth {
        for lane in 0..width {
            // SAFETY: element `(lane, p)` is in the strip if `lane < lanes`; `to` has `width`
            // numbers in row `p`.
            unsafe {
                let x = if lane < strip.lanes {
                    (*strip.from.add(lane * strip.lane_stride + p * strip.depth_stride)).widen()
                } else {
                    V::Number::ZERO
                };
                *to.add(p * width + lane) = x;
            }
        }
    }
}
