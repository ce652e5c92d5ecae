//! The micro-kernel: a register tile of the product, accumulated over the inner dimension.

use super::lanes::Lanes;

/// Arguments of one call of the kernel.
#[derive(Clone, Copy)]
pub(super) struct Tile<T> {
    /// Terms per sum.
    pub(super) depth: usize,
    /// First row of the left factor, and the distances between its rows and columns.
    pub(super) a: *const T,
    pub(super) a_row_stride: usize,
    pub(super) a_col_stride: usize,
    /// First columns of the right factor, and the distance between its rows.
    pub(super) b: *const T,
    pub(super) b_row_stride: usize,
    /// Destination of the sums, and the distance between its rows.
    pub(super) c: *mut T,
    pub(super) c_row_stride: usize,
    /// Columns in the last register of a row, `1..=LEN`.
    pub(super) tail: usize,
    /// Whether the sums are added to what `c` holds.
    pub(super) accumulate: bool,
    /// Number of products in the sum, and the distances between the beginnings of their factors.
    pub(super) count: usize,
    pub(super) a_step: usize,
    pub(super) b_step: usize,
}

/// A kernel for a certain number of rows and registers per row.
///
/// # Safety
///
/// The instructions of its [`Lanes`] exist. With `rows` and `cols` the size of the tile: each of
/// the `count` left factors has `rows` rows of `depth` numbers and each right factor has `depth`
/// rows of `cols` numbers at the given strides; `c` has `rows` rows of `cols` numbers to which the
/// call has exclusive access, initialized if `accumulate` is set.
pub(super) type TileFn<T> = unsafe fn(&Tile<T>);

/// Position of a kernel in a row of [`Lanes::TILES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// One register, of which `tail` lanes are columns.
    Narrow = 0,
    /// All registers, the last with `tail` columns.
    Partial = 1,
    /// All registers, all lanes.
    Full = 2,
}

impl Width {
    /// The width for `cols` columns, at least one and at most those of a tile.
    pub(super) fn of<V: Lanes>(cols: usize) -> Width {
        match cols {
            _ if cols <= V::LEN => Width::Narrow,
            _ if cols < V::LEN * V::VECTORS => Width::Partial,
            _ => Width::Full,
        }
    }

    /// Columns in the last register of a row.
    pub(super) fn tail<V: Lanes>(self, cols: usize) -> usize {
        if self == Width::Full { V::LEN } else { (cols - 1) % V::LEN + 1 }
    }
}

/// Kernels for tiles of the listed numbers of rows, for [`Lanes::TILES`].
#[cfg(target_arch = "x86_64")]
macro_rules! tiles {
    ($lanes:ty: $($rows:literal)+) => {
        &[$([
            tile::<$lanes, $rows, 1, true>,
            tile::<$lanes, $rows, 2, true>,
            tile::<$lanes, $rows, 2, false>,
        ]),+]
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use tiles;

/// Multiplies one tile of `ROWS` rows of `VECTORS` registers.
///
/// # Safety
///
/// As for [`TileFn`]; without `PARTIAL` every register is full.
pub(super) unsafe fn tile<V, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(
    tile: &Tile<V::Number>,
) where
    V: Lanes,
{
    // SAFETY: the caller vouches for the instructions and for what `multiply` needs.
    unsafe {
        V::with_features(
            #[inline(always)]
            || multiply::<V, ROWS, VECTORS, PARTIAL>(tile),
        );
    }
}

#[inline(always)]
unsafe fn multiply<V, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(
    tile: &Tile<V::Number>,
) where
    V: Lanes,
{
    let Tile { a_row_stride, a_col_stride, b_row_stride, c, c_row_stride, tail, .. } = *tile;
    // SAFETY: `a` and `b` move `depth` times from each of their places, so reads stay in the rows and
    // columns that the caller vouches for (the last move, which may lead outside, wraps and is not
    // read). Only the last register of a row is partial.
    unsafe {
        for i in 0..ROWS {
            for j in 0..VECTORS {
                V::prefetch(c.wrapping_add(i * c_row_stride + j * V::LEN));
            }
        }
        let mut sums = [[V::zero(); VECTORS]; ROWS];
        for place in 0..tile.count {
            let mut a = tile.a.add(place * tile.a_step);
            let mut b = tile.b.add(place * tile.b_step);
            for _ in 0..tile.depth {
                let mut right = [V::zero(); VECTORS];
                for (j, right) in right.iter_mut().enumerate() {
                    *right = if PARTIAL && j + 1 == VECTORS {
                        V::load_partial(b.add(j * V::LEN), tail)
                    } else {
                        V::load(b.add(j * V::LEN))
                    };
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = V::splat(*a.add(i * a_row_stride));
                    // Indexed: without link-time optimization the constructor of a `Zip` is a call,
                    // which keeps the sums in memory.
                    for j in 0..VECTORS {
                        sums[j] = sums[j].plus_product(left, right[j]);
                    }
                }
                a = a.wrapping_add(a_col_stride);
                b = b.wrapping_add(b_row_stride);
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                let c = c.add(i * c_row_stride + j * V::LEN);
                match (PARTIAL && j + 1 == VECTORS, tile.accumulate) {
                    (false, false) => sum.store(c),
                    (false, true) => V::load(c).plus(sum).store(c),
                    (true, false) => sum.store_partial(c, tail),
                    (true, true) => V::load_partial(c, tail).plus(sum).store_partial(c, tail),
                }
            }
        }
    }
}
