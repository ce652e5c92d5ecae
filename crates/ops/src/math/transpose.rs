//! Blocked transposition: tiles are transposed in registers, in an order that uses each cache line
//! of both sides while it is cached.

/// A tile of a transposition: `target[r * target_stride + c] = source[r + c * source_stride]` for
/// `r` below `height` and `c` below `width`.
pub(crate) struct Tile<C> {
    /// First cell of the source; cells along `r` are contiguous.
    pub(crate) source: *const C,
    /// Distance between cells along `c` in the source.
    pub(crate) source_stride: isize,
    /// First cell of the target; cells along `c` are contiguous.
    pub(crate) target: *mut C,
    /// Distance between cells along `r` in the target.
    pub(crate) target_stride: usize,
    /// Bound of `r`.
    pub(crate) height: usize,
    /// Bound of `c`.
    pub(crate) width: usize,
}

impl<C> Clone for Tile<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Tile<C> {}

impl<C: Clone> Tile<C> {
    /// Transposes. `streams` says that the target is too large for any cache, so non-temporal
    /// stores pay.
    ///
    /// # Safety
    ///
    /// All cells of the tile must be valid, for reading in the source and for writing in the
    /// target, with exclusive access to the target.
    pub(crate) unsafe fn run(self, streams: bool) {
        let _ = streams;
        #[cfg(target_arch = "x86_64")]
        if !std::mem::needs_drop::<C>() && x86::run(self, streams) {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match (self.height, self.width) {
                (_, 2) => self.narrow::<2>(),
                (_, 3) => self.narrow::<3>(),
                (_, 4) => self.narrow::<4>(),
                (2, _) => self.low::<2>(),
                (3, _) => self.low::<3>(),
                (4, _) => self.low::<4>(),
                _ => self.cells(0..self.height, 0..self.width),
            }
        }
    }

    fn part(self, r: usize, c: usize, height: usize, width: usize) -> Tile<C> {
        Tile {
            source: self.source.wrapping_offset(r as isize + c as isize * self.source_stride),
            target: self.target.wrapping_add(r * self.target_stride + c),
            height,
            width,
            ..self
        }
    }

    /// Copies one cell.
    ///
    /// # Safety
    /// As for [`Tile::run`], for this cell.
    #[inline(always)]
    unsafe fn cell(&self, r: usize, c: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let from = self.source.offset(r as isize + c as isize * self.source_stride);
            *self.target.add(r * self.target_stride + c) = (*from).clone();
        }
    }

    /// Copies a part, cell by cell.
    ///
    /// # Safety
    ///
    /// As for [`Tile::run`].
    unsafe fn cells(&self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) {
        for r in rows {
            for c in columns.clone() {
                // SAFETY: the caller's promise.
                unsafe { self.cell(r, c) };
            }
        }
    }

    /// A tile of few columns, such as image channels gathered from planes.
    ///
    /// # Safety
    /// As for [`Tile::run`]; `W` is the width.
    unsafe fn narrow<const W: usize>(&self) {
        for r in 0..self.height {
            for c in 0..W {
                // SAFETY: the caller's promise.
                unsafe { self.cell(r, c) };
            }
        }
    }

    /// A tile of few rows, such as image channels split into planes.
    ///
    /// # Safety
    /// As for [`Tile::run`]; `H` is the height.
    unsafe fn low<const H: usize>(&self) {
        for c in 0..self.width {
            for r in 0..H {
                // SAFETY: the caller's promise.
                unsafe { self.cell(r, c) };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Tile;

    /// Transposes by blocks if there is a [`Block`] for cells of this size.
    pub(super) fn run<C: Clone>(tile: Tile<C>, streams: bool) -> bool {
        if tile.height < 4 || tile.width < 4 {
            return false;
        }
        let has_avx = is_x86_feature_detected!("avx");
        // SAFETY: the cells are plain bytes of this size, the features are there, and the tile is
        // valid as the caller of `Tile::run` promises.
        unsafe {
            match size_of::<C>() {
                1 => blocks::<_, Bytes8>(cast::<C, u8>(tile)),
                2 => blocks::<_, Words8>(cast::<C, u16>(tile)),
                4 if has_avx && streams => stream_avx(cast::<C, u32>(tile)),
                4 if has_avx => avx_singles(cast::<C, u32>(tile)),
                4 => blocks::<_, Singles4>(cast::<C, u32>(tile)),
                8 if has_avx => avx_doubles(cast::<C, u64>(tile)),
                _ => return false,
            }
        }
        true
    }

    fn cast<C, T>(tile: Tile<C>) -> Tile<T> {
        Tile {
            source: tile.source.cast(),
            target: tile.target.cast(),
            source_stride: tile.source_stride,
            target_stride: tile.target_stride,
            height: tile.height,
            width: tile.width,
        }
    }

    /// A square of cells that is transposed in registers. Cells need no alignment.
    trait Block<T> {
        /// Cells along each side.
        const SIDE: usize;

        /// # Safety
        /// The square must be valid on both sides, and the machine must have the instructions.
        unsafe fn turn(
            source: *const T,
            source_stride: isize,
            target: *mut T,
            target_stride: usize,
        );
    }

    /// Transposes a tile block by block: two blocks along the target's rows, so that cache lines
    /// are written whole, before the next rows.
    ///
    /// # Safety
    /// As for [`Tile::run`] and [`Block::turn`].
    #[inline(always)]
    unsafe fn blocks<T: Copy, B: Block<T>>(tile: Tile<T>) {
        let side = B::SIDE;
        let (height, width) = (tile.height / side * side, tile.width / side * side);
        for pair in (0..width).step_by(2 * side) {
            for r in (0..height).step_by(side) {
                for c in (pair..(pair + 2 * side).min(width)).step_by(side) {
                    let part = tile.part(r, c, side, side);
                    // SAFETY: the block lies within the tile.
                    unsafe {
                        B::turn(part.source, tile.source_stride, part.target, tile.target_stride);
                    }
                }
            }
        }
        // SAFETY: as for the whole tile.
        unsafe {
            unaligned_cells(tile, 0..tile.height, width..tile.width);
            unaligned_cells(tile, height..tile.height, 0..width);
        }
    }

    /// Copies the cells that do not fill a block.
    ///
    /// # Safety
    /// As for [`Tile::run`].
    #[inline(always)]
    unsafe fn unaligned_cells<T: Copy>(
        tile: Tile<T>,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
    ) {
        for c in columns {
            for r in rows.clone() {
                let part = tile.part(r, c, 1, 1);
                // SAFETY: the cell lies within the tile.
                unsafe { part.target.write_unaligned(part.source.read_unaligned()) };
            }
        }
    }

    #[target_feature(enable = "avx")]
    unsafe fn avx_singles(tile: Tile<u32>) {
        // SAFETY: the caller's promise.
        unsafe { blocks::<_, Singles8>(tile) }
    }

    #[target_feature(enable = "avx")]
    unsafe fn avx_doubles(tile: Tile<u64>) {
        // SAFETY: the caller's promise.
        unsafe { blocks::<_, Doubles4>(tile) }
    }

    /// Cells of 4 bytes in a cache line.
    const LINE: usize = 16;

    #[repr(align(64))]
    struct Lines([u32; 8 * LINE]);

    /// Writes whole cache lines with non-temporal stores, which avoids reading them first.
    ///
    /// # Safety
    /// As for [`Tile::run`]; the machine must have AVX.
    #[target_feature(enable = "avx")]
    unsafe fn stream_avx(tile: Tile<u32>) {
        let is_aligned = tile.target.addr().is_multiple_of(64)
            && tile.target_stride.is_multiple_of(LINE)
            && tile.height.is_multiple_of(8)
            && tile.width.is_multiple_of(LINE);
        if !is_aligned {
            // SAFETY: the caller's promise.
            return unsafe { blocks::<_, Singles8>(tile) };
        }
        let mut lines = Lines([0; 8 * LINE]);
        let turned = lines.0.as_mut_ptr();
        for c in (0..tile.width).step_by(LINE) {
            for r in (0..tile.height).step_by(8) {
                let part = tile.part(r, c, 8, LINE);
                // SAFETY: the two blocks lie within the tile, the lines hold them, and the lines
                // of the target are aligned, as checked above.
                unsafe {
                    let second = part.part(0, 8, 8, 8);
                    Singles8::turn(part.source, tile.source_stride, turned, LINE);
                    Singles8::turn(second.source, tile.source_stride, turned.add(8), LINE);
                    for row in 0..8 {
                        let from = turned.add(row * LINE).cast::<__m256i>();
                        let to = part.target.add(row * tile.target_stride).cast::<__m256i>();
                        _mm256_stream_si256(to, _mm256_load_si256(from));
                        _mm256_stream_si256(to.add(1), _mm256_load_si256(from.add(1)));
                    }
                }
            }
        }
        // The streamed stores must be visible before other threads learn that the work is done.
        _mm_sfence();
    }

    /// 8 by 8 cells of 4 bytes.
    struct Singles8;

    impl Block<u32> for Singles8 {
        const SIDE: usize = 8;

        #[inline(always)]
        unsafe fn turn(source: *const u32, stride: isize, target: *mut u32, target_stride: usize) {
            // SAFETY: the caller's promise: eight rows of eight cells on either side, and AVX.
            unsafe {
                let row = |i: isize| _mm256_loadu_ps(source.offset(i * stride).cast());
                let pair = |i| (row(i), row(i + 1));
                let mix = |(a, b)| (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (a, b, c, d) = (mix(pair(0)), mix(pair(2)), mix(pair(4)), mix(pair(6)));
                let quads = |x: (__m256, __m256), y: (__m256, __m256)| {
                    [
                        _mm256_shuffle_ps::<0x44>(x.0, y.0),
                        _mm256_shuffle_ps::<0xEE>(x.0, y.0),
                        _mm256_shuffle_ps::<0x44>(x.1, y.1),
                        _mm256_shuffle_ps::<0xEE>(x.1, y.1),
                    ]
                };
                let (left, right) = (quads(a, b), quads(c, d));
                for i in 0..4 {
                    let low = _mm256_permute2f128_ps::<0x20>(left[i], right[i]);
                    let high = _mm256_permute2f128_ps::<0x31>(left[i], right[i]);
                    _mm256_storeu_ps(target.add(i * target_stride).cast(), low);
                    _mm256_storeu_ps(target.add((i + 4) * target_stride).cast(), high);
                }
            }
        }
    }

    /// 4 by 4 cells of 4 bytes.
    struct Singles4;

    impl Block<u32> for Singles4 {
        const SIDE: usize = 4;

        #[inline(always)]
        unsafe fn turn(source: *const u32, stride: isize, target: *mut u32, target_stride: usize) {
            // SAFETY: the caller's promise: four rows of four cells on either side.
            unsafe {
                let row = |i: isize| _mm_loadu_ps(source.offset(i * stride).cast());
                let (mut a, mut b, mut c, mut d) = (row(0), row(1), row(2), row(3));
                _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
                for (i, turned) in [a, b, c, d].into_iter().enumerate() {
                    _mm_storeu_ps(target.add(i * target_stride).cast(), turned);
                }
            }
        }
    }

    /// 4 by 4 cells of 8 bytes.
    struct Doubles4;

    impl Block<u64> for Doubles4 {
        const SIDE: usize = 4;

        #[inline(always)]
        unsafe fn turn(source: *const u64, stride: isize, target: *mut u64, target_stride: usize) {
            // SAFETY: the caller's promise: four rows of four cells on either side, and AVX.
            unsafe {
                let row = |i: isize| _mm256_loadu_pd(source.offset(i * stride).cast());
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                let (even, odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                let (even2, odd2) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
                let turned = [
                    _mm256_permute2f128_pd::<0x20>(even, even2),
                    _mm256_permute2f128_pd::<0x20>(odd, odd2),
                    _mm256_permute2f128_pd::<0x31>(even, even2),
                    _mm256_permute2f128_pd::<0x31>(odd, odd2),
                ];
                for (i, turned) in turned.into_iter().enumerate() {
                    _mm256_storeu_pd(target.add(i * target_stride).cast(), turned);
                }
            }
        }
    }

    /// 8 by 8 cells of 2 bytes.
    struct Words8;

    impl Block<u16> for Words8 {
        const SIDE: usize = 8;

        #[inline(always)]
        unsafe fn turn(source: *const u16, stride: isize, target: *mut u16, target_stride: usize) {
            // SAFETY: the caller's promise: eight rows of eight cells on either side.
            unsafe {
                let row = |i: usize| _mm_loadu_si128(source.offset(i as isize * stride).cast());
                // Three rounds of the same shuffle transpose the block.
                let mut rows: [__m128i; 8] = std::array::from_fn(row);
                for _ in 0..3 {
                    rows = std::array::from_fn(|i| {
                        let (a, b) = (rows[i / 2], rows[i / 2 + 4]);
                        if i % 2 == 0 { _mm_unpacklo_epi16(a, b) } else { _mm_unpackhi_epi16(a, b) }
                    });
                }
                for (i, turned) in rows.into_iter().enumerate() {
                    _mm_storeu_si128(target.add(i * target_stride).cast(), turned);
                }
            }
        }
    }

    /// 8 by 8 cells of 1 byte.
    struct Bytes8;

    impl Block<u8> for Bytes8 {
        const SIDE: usize = 8;

        #[inline(always)]
        unsafe fn turn(source: *const u8, stride: isize, target: *mut u8, target_stride: usize) {
            // SAFETY: the caller's promise: eight rows of eight cells on either side.
            unsafe {
                let row = |i: isize| _mm_loadl_epi64(source.offset(i * stride).cast());
                let pair = |i| _mm_unpacklo_epi8(row(i), row(i + 4));
                let (a, b, c, d) = (pair(0), pair(1), pair(2), pair(3));
                let (even, even2) = (_mm_unpacklo_epi8(a, c), _mm_unpackhi_epi8(a, c));
                let (odd, odd2) = (_mm_unpacklo_epi8(b, d), _mm_unpackhi_epi8(b, d));
                let turned = [
                    _mm_unpacklo_epi8(even, odd),
                    _mm_unpackhi_epi8(even, odd),
                    _mm_unpacklo_epi8(even2, odd2),
                    _mm_unpackhi_epi8(even2, odd2),
                ];
                for (i, two) in turned.into_iter().enumerate() {
                    let (low, high) = (
                        target.add(2 * i * target_stride),
                        target.add((2 * i + 1) * target_stride),
                    );
                    _mm_storel_epi64(low.cast(), two);
                    _mm_storel_epi64(high.cast(), _mm_unpackhi_epi64(two, two));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transposes a matrix of distinct numbers both ways and checks every cell.
    fn check<C: Clone + PartialEq + std::fmt::Debug>(number: impl Fn(usize) -> C) {
        for (height, width) in
            [(1, 1), (3, 5), (4, 9), (8, 8), (9, 2), (16, 32), (17, 35), (64, 16)]
        {
            for streams in [false, true] {
                let source: Vec<C> = (0..height * width).map(&number).collect();
                let mut target: Vec<C> = vec![number(0); height * width];
                let tile = Tile {
                    source: source.as_ptr(),
                    source_stride: height as isize,
                    target: target.as_mut_ptr(),
                    target_stride: width,
                    height,
                    width,
                };
                // SAFETY: both hold `height * width` cells.
                unsafe { tile.run(streams) };
                for r in 0..height {
                    for c in 0..width {
                        let (got, wanted) = (&target[r * width + c], &source[r + c * height]);
                        assert_eq!(got, wanted, "{height}x{width} at {r},{c}");
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_of_any_cell_are_turned() {
        check(|i| i as u8);
        check(|i| i as u16);
        check(|i| i as u32);
        check(|i| i as u64);
        check(|i| [i as u64, !i as u64]);
        check(|i| i.to_string());
    }
}
