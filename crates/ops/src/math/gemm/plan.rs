//! Blocking of a product: a function of its shape and the kernel's, never of the number of threads.

use std::ops::Range;

use super::vector::is_vector;

/// The parameters of a micro-kernel and its numbers that the plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Rows and registers per row of the largest tile.
    pub(super) rows: usize,
    pub(super) vectors: usize,
    /// Numbers per register, and bytes per number.
    pub(super) len: usize,
    pub(super) number_bytes: usize,
    /// Whether the kernel can read and write elements in place.
    pub(super) in_place: bool,
}

/// The sizes and strides of the factors, `m x k` and `k x n`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Row and column strides.
    pub(super) a_strides: (usize, usize),
    pub(super) b_strides: (usize, usize),
}

/// The blocking of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Whether it is a matrix times a vector, which `vector` blocks by itself.
    pub(super) vector: bool,
    /// Ranges of the inner dimension, each summed in registers, added in order.
    pub(super) depth: Split,
    /// Whether the factors are packed before they are multiplied.
    pub(super) pack_a: bool,
    pub(super) pack_b: bool,
    /// Columns per panel of the right factor, a multiple of the register.
    pub(super) panel: usize,
    /// Ranges of panels, packed one range at a time into the scratch.
    pub(super) chunks: Split,
    /// Blocks are `row_blocks` by `panels_per_block`.
    pub(super) row_blocks: Split,
    pub(super) panels_per_block: usize,
    /// Blocks are grouped into at most this many tasks, each with enough work for a thread.
    pub(super) tasks_max: usize,
}

/// `0..len` in `parts` ranges whose lengths differ by at most one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) len: usize,
    pub(super) parts: usize,
}

/// Bytes of the right factor that are packed at once, unless one panel has more.
const PACKED_BYTES_MAX: usize = 8 << 20;
/// Bytes along the inner dimension that a tile sums in registers.
const DEPTH_BYTES_MAX: usize = 2048;
/// Tiles of rows in a block: their packed form stays in the second-level cache.
const TILES_PER_BLOCK: usize = 4;
/// Columns in a block: enough to make up for packing the rows.
const BLOCK_COLS_MAX: usize = 1024;
/// Bytes of the right factor up to which it may be read in place.
const IN_PLACE_BYTES_MAX: usize = 1536 << 10;
/// Minimum depth and columns for prepacking a right factor whose rows are contiguous,
const PREPACK_DEPTH_MIN: usize = 64;
const PREPACK_COLUMNS_MIN: usize = 128;
/// and its minimum bytes, by whether the left factor has few rows or many.
const PREPACK_ROWS_FEW: usize = 64;
const PREPACK_BYTES_FEW: usize = 64 << 10;
const PREPACK_BYTES_MANY: usize = 512 << 10;
/// Minimum number of multiplications in a block.
const BLOCK_WORK_MIN: usize = 1 << 19;
/// Number of blocks to aim for, where there is enough work.
const BLOCKS_WANTED: usize = 16;

impl Split {
    const WHOLE: Split = Split { len: 1, parts: 1 };

    /// The smallest number of parts of at most `max` each.
    pub(super) fn at_most(len: usize, max: usize) -> Self {
        Self { len, parts: len.div_ceil(max).max(1) }
    }

    /// The range of part `i`.
    pub(super) fn range(&self, i: usize) -> Range<usize> {
        let (base, longer) = (self.len / self.parts, self.len % self.parts);
        let start = i * base + i.min(longer);
        start..start + base + usize::from(i < longer)
    }

    /// The length of the longest part.
    pub(super) fn longest(&self) -> usize {
        self.len.div_ceil(self.parts)
    }
}

impl Plan {
    /// For products that are not divided: nothing is packed.
    pub(super) const IN_PLACE: Plan = Plan {
        vector: false,
        depth: Split::WHOLE,
        pack_a: false,
        pack_b: false,
        panel: 1,
        chunks: Split::WHOLE,
        row_blocks: Split::WHOLE,
        panels_per_block: 1,
        tasks_max: 1,
    };

    pub(super) fn new(shape: &Shape, kernel: &Geometry) -> Self {
        Self::cut(shape, kernel, pack_b(shape, kernel), PACKED_BYTES_MAX)
    }

    /// The right factor is packed, all of it at once.
    pub(super) fn prepacked_right(shape: &Shape, kernel: &Geometry) -> Self {
        Self::cut(shape, kernel, true, usize::MAX)
    }

    /// The plan of a product whose right factor is packed once for many products, if that pays:
    /// where the factor would be packed anyway, or where reading it row by row costs more than a
    /// product of few rows.
    pub(super) fn prepack_right(&self, shape: &Shape, kernel: &Geometry) -> Option<Self> {
        let &Shape { m, n, k, .. } = shape;
        if self.vector || m == 0 || n == 0 || k == 0 {
            return None;
        }
        let kept = Self::prepacked_right(shape, kernel);
        let bytes = k.saturating_mul(n).saturating_mul(kernel.number_bytes);
        let is_deep = k >= PREPACK_DEPTH_MIN && n >= PREPACK_COLUMNS_MIN;
        let is_tight = kept.packed_bytes(kernel) <= bytes.saturating_add(bytes / 8);
        let is_long =
            bytes >= if m <= PREPACK_ROWS_FEW { PREPACK_BYTES_FEW } else { PREPACK_BYTES_MANY };
        (self.pack_b || (is_deep && is_tight && is_long)).then_some(kept)
    }

    fn cut(shape: &Shape, kernel: &Geometry, pack_b: bool, packed_bytes_max: usize) -> Self {
        let &Shape { m, n, k, .. } = shape;
        let depth = Split::at_most(k, DEPTH_BYTES_MAX / kernel.number_bytes);
        let panel = kernel.len * if n <= kernel.len { 1 } else { kernel.vectors };
        let panels = n.div_ceil(panel);
        let panel_bytes = k.saturating_mul(panel * kernel.number_bytes);
        let chunk_panels_max =
            if pack_b { (packed_bytes_max / panel_bytes.max(1)).max(1) } else { panels.max(1) };
        let chunks = Split::at_most(panels, chunk_panels_max);

        let panels_per_block_max = (BLOCK_COLS_MAX / panel).max(1);
        let pack_a = pack_a(shape, kernel, panels);
        let mut panels_per_block = chunks.longest().min(panels_per_block_max).max(1);
        let work = m.saturating_mul(n).saturating_mul(k);
        let wanted = BLOCKS_WANTED.min(work / BLOCK_WORK_MIN);
        let mut row_blocks = row_blocks(m, TILES_PER_BLOCK * kernel.rows);
        let too_few = |row_blocks: &Split, panels_per_block| {
            row_blocks.parts.saturating_mul(panels.div_ceil(panels_per_block)) < wanted
        };
        if pack_a && too_few(&row_blocks, panels_per_block) {
            // Reduces the rows of a block before its columns: each column of blocks packs the rows
            // again.
            row_blocks = self::row_blocks(m, TILES_PER_BLOCK / 2 * kernel.rows);
        }
        while panels_per_block > 1 && too_few(&row_blocks, panels_per_block) {
            panels_per_block = panels_per_block.div_ceil(2);
        }
        Self {
            vector: is_vector(shape),
            depth,
            pack_a,
            pack_b,
            panel,
            chunks,
            row_blocks,
            panels_per_block,
            tasks_max: (work / BLOCK_WORK_MIN).max(1),
        }
    }

    /// Bytes for the packed panels of a chunk; saturates.
    pub(super) fn packed_bytes(&self, kernel: &Geometry) -> usize {
        if self.vector || !self.pack_b {
            return 0;
        }
        let numbers =
            self.depth.len.saturating_mul(self.chunks.longest().saturating_mul(self.panel));
        numbers.saturating_mul(kernel.number_bytes)
    }
}

/// Blocks of at most `max` rows. If there are many, their number is even, so that two threads share
/// them evenly.
fn row_blocks(m: usize, max: usize) -> Split {
    let blocks = Split::at_most(m, max);
    let parts = if blocks.parts > 2 { blocks.parts.next_multiple_of(2) } else { blocks.parts };
    Split { parts, ..blocks }
}

fn pack_b(shape: &Shape, kernel: &Geometry) -> bool {
    let in_order = kernel.in_place && shape.b_strides.1 == 1;
    let bytes = shape.k.saturating_mul(shape.n).saturating_mul(kernel.number_bytes);
    !in_order || (shape.m > 4 * kernel.rows && bytes > IN_PLACE_BYTES_MAX)
}

fn pack_a(shape: &Shape, kernel: &Geometry, panels: usize) -> bool {
    let (row_stride, col_stride) = shape.a_strides;
    // Rows at a multiple of a large power of two map to the same few sets of the first-level cache.
    let row_bytes = row_stride.saturating_mul(kernel.number_bytes);
    let places = 4096 >> row_bytes.trailing_zeros().min(12);
    let crowded = kernel.rows > 7 * places && shape.m > 7 * places;
    !kernel.in_place || (panels > 2 && (crowded || col_stride != 1))
}
