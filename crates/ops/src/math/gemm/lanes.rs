//! SIMD vector types of the micro-kernels.

use std::marker::PhantomData;

use super::element::{Number, Sealed};
use super::kernel::{TileFn, tile};

/// A register of numbers of one type.
///
/// # Safety
///
/// The register has `LEN` numbers, the kernel uses `ROWS * VECTORS` accumulators, and `TILES` has
/// `ROWS` entries, entry `r` for tiles of `r + 1` rows. Every unsafe method requires the
/// instructions that `with_features` enables and, where it takes an address, that the `LEN` (or the
/// first `count`) numbers there are in bounds. Addresses need the alignment of one number only.
pub(super) unsafe trait Lanes: Copy {
    type Number: Number;
    /// Numbers per register.
    const LEN: usize;
    /// Rows of the largest tile of the kernel.
    const ROWS: usize;
    /// Registers that make up a row of the largest tile.
    const VECTORS: usize;
    /// Kernels indexed by rows less one, then by [`super::kernel::Width`].
    const TILES: &'static [[TileFn<Self::Number>; 3]];

    /// Runs `work`, which must be inlined here, compiled for the instructions of this register.
    unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R;
    /// Prefetches the cache line at `at`, which may be any address.
    unsafe fn prefetch(at: *const Self::Number);
    unsafe fn zero() -> Self;
    unsafe fn splat(x: Self::Number) -> Self;
    unsafe fn load(from: *const Self::Number) -> Self;
    /// The first `count` numbers, then zeros.
    unsafe fn load_partial(from: *const Self::Number, count: usize) -> Self;
    unsafe fn store(self, to: *mut Self::Number);
    /// Stores the first `count` numbers only.
    unsafe fn store_partial(self, to: *mut Self::Number, count: usize);
    unsafe fn plus(self, x: Self) -> Self;
    unsafe fn plus_product(self, x: Self, y: Self) -> Self;
    /// Transposes the square matrix of `LEN` registers.
    unsafe fn transpose(square: &mut [Self]);
}

/// Elements that load into a register of sums.
///
/// # Safety
///
/// As for [`Lanes`].
pub(super) unsafe trait LoadAs<V: Lanes>: Sealed<Sum = V::Number> {
    /// `LEN` elements, widened.
    unsafe fn load(from: *const Self) -> V;

    /// The first `count` elements, widened, then zeros.
    #[inline(always)]
    unsafe fn load_partial(from: *const Self, count: usize) -> V {
        let mut widened = [V::Number::ZERO; 16];
        // SAFETY: `V::LEN` is at most 16 and the caller vouches for the instructions and for
        // `count` elements at `from`.
        unsafe {
            for (i, x) in widened.iter_mut().enumerate().take(count) {
                *x = (*from.add(i)).widen();
            }
            V::load(widened.as_ptr())
        }
    }
}

/// A set of instructions to compile for.
///
/// # Safety
///
/// `with_features` must run its argument, and may be called only where the instructions exist.
pub(super) unsafe trait Features: Copy {
    unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R;
}

/// The instructions that the target always has.
#[derive(Clone, Copy)]
pub(super) struct Baseline;

// SAFETY: runs `work`, and needs nothing.
unsafe impl Features for Baseline {
    #[inline(always)]
    unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// Lanes as an array, left to the compiler's auto-vectorizer.
#[derive(Clone, Copy)]
pub(super) struct Auto<T, const LEN: usize, F>([T; LEN], PhantomData<F>);

impl<T, const LEN: usize, F> Auto<T, LEN, F> {
    #[inline(always)]
    fn new(lanes: [T; LEN]) -> Self {
        Self(lanes, PhantomData)
    }
}

// SAFETY: the array has `LEN` numbers, and `TILES` lists four kernels.
unsafe impl<T: Number, const LEN: usize, F: Features> Lanes for Auto<T, LEN, F> {
    type Number = T;
    const LEN: usize = LEN;
    const ROWS: usize = 4;
    const VECTORS: usize = 1;
    const TILES: &'static [[TileFn<T>; 3]] = &[
        [tile::<Self, 1, 1, true>, tile::<Self, 1, 1, true>, tile::<Self, 1, 1, false>],
        [tile::<Self, 2, 1, true>, tile::<Self, 2, 1, true>, tile::<Self, 2, 1, false>],
        [tile::<Self, 3, 1, true>, tile::<Self, 3, 1, true>, tile::<Self, 3, 1, false>],
        [tile::<Self, 4, 1, true>, tile::<Self, 4, 1, true>, tile::<Self, 4, 1, false>],
    ];

    #[inline(always)]
    unsafe fn with_features<R>(work: impl FnOnce() -> R) -> R {
        // SAFETY: the caller vouches for the instructions.
        unsafe { F::with_features(work) }
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const T) {}

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self::new([T::ZERO; LEN])
    }

    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Self::new([x; LEN])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller vouches for `LEN` numbers at `from`; an array aligns as its numbers.
        Self::new(unsafe { *from.cast::<[T; LEN]>() })
    }

    #[inline(always)]
    unsafe fn load_partial(from: *const T, count: usize) -> Self {
        let mut lanes = [T::ZERO; LEN];
        for (i, lane) in lanes.iter_mut().enumerate().take(count) {
            // SAFETY: the caller vouches for `count` numbers at `from`, and `i < count`.
            *lane = unsafe { *from.add(i) };
        }
        Self::new(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller vouches for room for `LEN` numbers at `to`.
        unsafe { *to.cast::<[T; LEN]>() = self.0 }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut T, count: usize) {
        for (i, lane) in self.0.iter().enumerate().take(count) {
            // SAFETY: the caller vouches for room for `count` numbers at `to`, and `i < count`.
            unsafe { *to.add(i) = *lane };
        }
    }

    #[inline(always)]
    unsafe fn plus(self, x: Self) -> Self {
        Self::new(std::array::from_fn(|i| self.0[i].plus(x.0[i])))
    }

    #[inline(always)]
    unsafe fn plus_product(self, x: Self, y: Self) -> Self {
        Self::new(std::array::from_fn(|i| self.0[i].plus_product(x.0[i], y.0[i])))
    }

    #[inline(always)]
    unsafe fn transpose(square: &mut [Self]) {
        for i in 0..LEN {
            for j in 0..i {
                let (x, y) = (square[i].0[j], square[j].0[i]);
                (square[i].0[j], square[j].0[i]) = (y, x);
            }
        }
    }
}

// SAFETY: reads `LEN` elements at `from`.
unsafe impl<E, const LEN: usize, F> LoadAs<Auto<E::Sum, LEN, F>> for E
where
    E: Sealed,
    F: Features,
{
    #[inline(always)]
    unsafe fn load(from: *const E) -> Auto<E::Sum, LEN, F> {
        // SAFETY: the caller vouches for `LEN` elements at `from`.
        Auto::new(std::array::from_fn(|i| unsafe { *from.add(i) }.widen()))
    }
}
