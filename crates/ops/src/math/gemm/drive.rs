//! Executes a GEMM plan: packs panels of the right factor, then multiplies blocks.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::element::Sealed;
use super::kernel::{Tile, Width};
use super::lanes::{Lanes, LoadAs};
use super::pack::{Strip, pack};
use super::plan::{Geometry, Plan, Shape, Split};
use super::vector::MatrixVector;
use super::workspace::with_workspace;
use super::{Error, ParallelFor};

/// A product to compute. `m`, `n` and `k` are not zero.
pub struct Job<'a, E> {
    pub(super) shape: Shape,
    pub(super) plan: Plan,
    /// Element `(0, 0)` of each matrix. The elements of `shape` are in bounds, and the job has
    /// exclusive access to those of `c`.
    pub(super) a: *const E,
    pub(super) b: *const E,
    pub(super) c: *mut E,
    pub(super) c_row_stride: usize,
    pub(super) accumulate: bool,
    /// Memory for the packed right factor; it is only read if the factor is already packed.
    pub(super) scratch: *mut [MaybeUninit<u8>],
    pub(super) parallel: ParallelFor<'a>,
    pub(super) part: Part,
}

/// Which part of the product a job computes. Where packing and multiplying are separate jobs, the
/// right factor is one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Packs and multiplies.
    Whole,
    /// Packs the right factor into the scratch.
    Packing,
    /// Multiplies by the right factor that is packed in the scratch.
    Multiplying,
    /// Sums the products of a strided batch of factors without packing.
    Summing {
        /// Number of products in the sum, and the distances between the beginnings of their
        /// factors.
        count: usize,
        a_step: usize,
        b_step: usize,
    },
}

/// Additional scratch bytes for aligning the packed panels.
pub(super) const SCRATCH_ALIGNMENT: usize = 64;

/// Panels that one task packs.
const PANELS_PER_GROUP: usize = 8;

/// The parameters of the micro-kernel `V` for elements `E` that the plan depends on.
pub(super) const fn geometry<E: Sealed, V: Lanes>() -> Geometry {
    Geometry {
        rows: V::ROWS,
        vectors: V::VECTORS,
        len: V::LEN,
        number_bytes: size_of::<V::Number>(),
        in_place: E::SUMS_IN_PLACE,
    }
}

/// # Safety
///
/// The instructions of `V` exist, and the job's plan was made for `geometry::<E, V>()`.
pub(super) unsafe fn run<E, V>(job: &mut Job<'_, E>) -> Result<(), Error>
where
    V: Lanes,
    E: LoadAs<V>,
{
    if let Part::Summing { count, a_step, b_step } = job.part {
        // SAFETY: the caller vouches for the instructions, the job for its elements.
        return unsafe { sum_batch::<E, V>(job, count, a_step, b_step) };
    }
    if job.plan.vector {
        if job.part == Part::Packing {
            return Ok(());
        }
        let product = MatrixVector::new(job);
        // SAFETY: the instructions exist; each block is run once.
        return each_once(job.parallel, product.blocks(), &|block| unsafe {
            product.run::<V>(block);
        });
    }
    let needed = job.plan.packed_bytes(&geometry::<E, V>());
    let start = job.scratch.cast::<u8>();
    let offset = start.align_offset(SCRATCH_ALIGNMENT);
    let packed = match job.scratch.len().checked_sub(offset) {
        _ if needed == 0 => std::ptr::null_mut(),
        Some(len) if len >= needed => start.wrapping_add(offset).cast::<V::Number>(),
        _ => return Err(Error::ScratchTooSmall),
    };
    let Job { shape, plan, .. } = *job;
    let product = Product {
        shape,
        plan,
        a: job.a,
        b: job.b,
        c: job.c,
        c_row_stride: job.c_row_stride,
        accumulate: job.accumulate,
        packed,
        out_of_memory: AtomicBool::new(false),
    };
    for chunk in 0..plan.chunks.parts {
        let panels = plan.chunks.range(chunk);
        if plan.pack_b && job.part != Part::Multiplying {
            let groups = plan.depth.parts * Split::at_most(panels.len(), PANELS_PER_GROUP).parts;
            let tasks = Split { len: groups, parts: groups.min(plan.tasks_max) };
            each_once(job.parallel, tasks.parts, &|task| {
                for group in tasks.range(task) {
                    // SAFETY: each task is run once, so nothing else accesses what it writes.
                    unsafe { product.pack_panels::<V>(&panels, group) };
                }
            })?;
        }
        if job.part == Part::Packing {
            continue;
        }
        let columns = Split::at_most(panels.len(), plan.panels_per_block);
        let blocks = plan.row_blocks.parts * columns.parts;
        let tasks = Split { len: blocks, parts: blocks.min(plan.tasks_max) };
        each_once(job.parallel, tasks.parts, &|task| {
            for block in tasks.range(task) {
                // SAFETY: the panels of this chunk were packed if need be, as `each_once` made
                // sure; each task is run once, so nothing else accesses what it writes.
                unsafe { product.multiply_block::<V>(&panels, &columns, block) };
            }
        })?;
    }
    if product.out_of_memory.into_inner() { Err(Error::OutOfMemory) } else { Ok(()) }
}

/// # Safety
///
/// As for [`run`]; the batch has `count` pairs of factors in bounds, and the columns of the right
/// factors are contiguous.
unsafe fn sum_batch<E, V>(
    job: &Job<'_, E>,
    count: usize,
    a_step: usize,
    b_step: usize,
) -> Result<(), Error>
where
    V: Lanes,
    E: LoadAs<V>,
{
    if !E::SUMS_IN_PLACE {
        return Err(Error::Unsupported);
    }
    let Shape { m, n, k, a_strides, b_strides } = job.shape;
    let (tiles, panel) = (Split::at_most(m, V::ROWS), V::LEN * V::VECTORS);
    for col in (0..n).step_by(panel) {
        let cols = panel.min(n - col);
        let width = Width::of::<V>(cols);
        for tile in 0..tiles.parts {
            let rows = tiles.range(tile);
            let kernel = V::TILES[rows.len() - 1][width as usize];
            // SAFETY: the instructions exist; the tile lies inside the product, whose factors are
            // read in place because elements are sums.
            unsafe {
                kernel(&Tile {
                    depth: k,
                    a: job.a.add(rows.start * a_strides.0).cast(),
                    a_row_stride: a_strides.0,
                    a_col_stride: a_strides.1,
                    b: job.b.add(col).cast(),
                    b_row_stride: b_strides.0,
                    c: job.c.add(rows.start * job.c_row_stride + col).cast(),
                    c_row_stride: job.c_row_stride,
                    tail: width.tail::<V>(cols),
                    accumulate: job.accumulate,
                    count,
                    a_step,
                    b_step,
                });
            }
        }
    }
    Ok(())
}

/// Runs `work(i)` exactly once for every `i` in `0..count`, or fails.
///
/// Each call of `parallel` takes its index from an atomic counter, so memory safety does not depend
/// on the caller's indices.
fn each_once(
    parallel: ParallelFor<'_>,
    count: usize,
    work: &(dyn Fn(usize) + Sync),
) -> Result<(), Error> {
    if count == 1 {
        work(0);
        return Ok(());
    }
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    parallel(count, &|_| {
        let i = next.fetch_add(1, Ordering::Relaxed);
        if i < count {
            work(i);
            done.fetch_add(1, Ordering::Release);
        }
    });
    if done.load(Ordering::Acquire) == count { Ok(()) } else { Err(Error::Interrupted) }
}

/// State shared by all blocks.
struct Product<E: Sealed> {
    shape: Shape,
    plan: Plan,
    a: *const E,
    b: *const E,
    c: *mut E,
    c_row_stride: usize,
    accumulate: bool,
    /// Packed panels of the current chunk: by part of the depth, then by panel.
    packed: *mut E::Sum,
    out_of_memory: AtomicBool,
}

// SAFETY: the factors are only read; blocks write disjoint parts of `c` and tasks disjoint parts of
// `packed`, as the unsafe methods require.
unsafe impl<E: Sealed> Sync for Product<E> {}

impl<E: Sealed> Product<E> {
    /// Where panel `panel` of `count` is packed, for the terms `depth`.
    fn packed_panel(&self, count: usize, panel: usize, depth: &Range<usize>) -> *mut E::Sum {
        let rows_before = depth.start * count + depth.len() * panel;
        self.packed.wrapping_add(rows_before * self.plan.panel)
    }

    /// Packs some panels for one part of the depth.
    ///
    /// # Safety
    ///
    /// The instructions of `V` exist, and no other call with the same `group` is under way.
    unsafe fn pack_panels<V>(&self, panels: &Range<usize>, group: usize)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        let Plan { depth, panel, .. } = self.plan;
        let (row_stride, col_stride) = self.shape.b_strides;
        let groups = Split::at_most(panels.len(), PANELS_PER_GROUP);
        let depth = depth.range(group / groups.parts);
        // A few rows at a time if rows are contiguous, so that reads stay in nearby cache lines.
        let step = if col_stride == 1 { 16 } else { depth.len() };
        for start in depth.clone().step_by(step) {
            for index in groups.range(group % groups.parts) {
                let col = (panels.start + index) * panel;
                // SAFETY: row `start` and column `col` are inside the factor, and so is the strip;
                // `packed` has room for `panels.len()` panels of the whole depth, of which this is
                // one, and the strip's rows start at `start` in it.
                unsafe {
                    let strip = Strip {
                        from: self.b.add(start * row_stride + col * col_stride),
                        lanes: panel.min(self.shape.n - col),
                        lane_stride: col_stride,
                        depth: step.min(depth.end - start),
                        depth_stride: row_stride,
                    };
                    let to = self.packed_panel(panels.len(), index, &depth);
                    pack::<E, V>(&strip, to.add((start - depth.start) * panel), panel);
                }
            }
        }
    }

    /// # Safety
    ///
    /// The instructions of `V` exist, the panels are packed if the plan says so, and no other call
    /// with the same `block` is under way.
    unsafe fn multiply_block<V>(&self, panels: &Range<usize>, columns: &Split, block: usize)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        let plan = &self.plan;
        // Row index varies fastest: blocks that run at the same time share panels.
        let rows = plan.row_blocks.range(block % plan.row_blocks.parts);
        let columns = columns.range(block / plan.row_blocks.parts);
        let tiles = Split::at_most(rows.len(), V::ROWS);
        let a_width = V::ROWS.next_multiple_of(V::LEN);
        let a_numbers = if plan.pack_a { tiles.parts * a_width * plan.depth.longest() } else { 0 };
        let first_col = (panels.start + columns.start) * plan.panel;
        let cols = (columns.len() * plan.panel).min(self.shape.n - first_col);
        let sums = if E::SUMS_IN_PLACE { 0 } else { rows.len() * cols };
        let bytes = (a_numbers + sums) * size_of::<V::Number>();
        let done = with_workspace(bytes, |workspace| {
            let packed_a = workspace.cast::<V::Number>();
            // SAFETY: as the caller vouches; the workspace has room for `a_numbers` and `sums`.
            unsafe {
                let c = self.c.add(rows.start * self.c_row_stride + first_col);
                let mut block = Block {
                    product: self,
                    panels: panels.clone(),
                    rows,
                    tiles,
                    columns,
                    packed_a,
                    a_width,
                    c: c.cast(),
                    c_row_stride: self.c_row_stride,
                };
                if E::SUMS_IN_PLACE {
                    block.multiply::<V>(self.accumulate);
                } else {
                    block.c = packed_a.add(a_numbers);
                    block.c_row_stride = cols;
                    if self.accumulate {
                        block.widen(c, cols);
                    }
                    block.multiply::<V>(self.accumulate);
                    block.narrow(c, cols);
                }
            }
        });
        if done.is_none() {
            self.out_of_memory.store(true, Ordering::Relaxed);
        }
    }
}

/// Some rows and panels of the product, computed by one thread.
struct Block<'a, E: Sealed> {
    product: &'a Product<E>,
    /// Panels of the current chunk.
    panels: Range<usize>,
    rows: Range<usize>,
    tiles: Split,
    /// Panels of the block, counted from the first of the chunk.
    columns: Range<usize>,
    packed_a: *mut E::Sum,
    a_width: usize,
    /// Destination of the sums: element `(0, 0)` of the block.
    c: *mut E::Sum,
    c_row_stride: usize,
}

impl<E: Sealed> Block<'_, E> {
    /// # Safety
    ///
    /// The instructions of `V` exist; the pointers are valid for as many numbers as the plan says.
    unsafe fn multiply<V>(&self, accumulate: bool)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        let plan = &self.product.plan;
        for part in 0..plan.depth.parts {
            let depth = plan.depth.range(part);
            if plan.pack_a {
                // SAFETY: the caller vouches for it.
                unsafe { self.pack_rows::<V>(&depth) };
            }
            for column in self.columns.clone() {
                // SAFETY: the caller vouches for it; the rows of `depth` are packed.
                unsafe { self.multiply_panel::<V>(column, &depth, accumulate || part > 0) };
            }
        }
    }

    unsafe fn pack_rows<V>(&self, depth: &Range<usize>)
    where
        V: Lanes,
        E: LoadAs<V>,
    {
        let (row_stride, col_stride) = self.product.shape.a_strides;
        for tile in 0..self.tiles.parts {
            let rows = self.tiles.range(tile);
            // SAFETY: the block's rows and `depth` are inside the factor; the workspace has
            // `a_width * depth.len()` numbers for each tile.
            unsafe {
                let first = (self.rows.start + rows.start) * row_stride;
                let strip = Strip {
                    from: self.product.a.add(first + depth.start * col_stride),
                    lanes: rows.len(),
                    lane_stride: row_stride,
                    depth: depth.len(),
                    depth_stride: col_stride,
                };
                let to = self.packed_a.add(tile * self.a_width * depth.len());
                pack::<E, V>(&strip, to, self.a_width);
            }
        }
    }

    unsafe fn multiply_panel<V>(&self, column: usize, depth: &Range<usize>, accumulate: bool)
    where
        V: Lanes<Number = E::Sum>,
    {
        let Product { shape, plan, a, b, .. } = *self.product;
        let col = (self.panels.start + column) * plan.panel;
        let cols = plan.panel.min(shape.n - col);
        let width = Width::of::<V>(cols);
        let (b, b_row_stride) = if plan.pack_b {
            (self.product.packed_panel(self.panels.len(), column, depth).cast_const(), plan.panel)
        } else {
            let first = depth.start * shape.b_strides.0 + col;
            (b.cast::<E::Sum>().wrapping_add(first), shape.b_strides.0)
        };
        for tile in 0..self.tiles.parts {
            let rows = self.tiles.range(tile);
            let (a, a_row_stride, a_col_stride) = if plan.pack_a {
                let packed = self.packed_a.wrapping_add(tile * self.a_width * depth.len());
                (packed.cast_const(), 1, self.a_width)
            } else {
                let (row_stride, col_stride) = shape.a_strides;
                let row = self.rows.start + rows.start;
                let first = row * row_stride + depth.start * col_stride;
                (a.cast::<E::Sum>().wrapping_add(first), row_stride, col_stride)
            };
            let to = rows.start * self.c_row_stride + (column - self.columns.start) * plan.panel;
            let kernel = V::TILES[rows.len() - 1][width as usize];
            // SAFETY: the instructions exist; the tile lies inside the block, whose factors are
            // packed, or are read in place because elements are sums; the first part of the depth
            // initializes `c` unless the caller said that it is initialized.
            unsafe {
                kernel(&Tile {
                    depth: depth.len(),
                    a,
                    a_row_stride,
                    a_col_stride,
                    b,
                    b_row_stride,
                    c: self.c.add(to),
                    c_row_stride: self.c_row_stride,
                    tail: width.tail::<V>(cols),
                    accumulate,
                    count: 1,
                    a_step: 0,
                    b_step: 0,
                });
            }
        }
    }

    /// Sets the sums to the elements at `from`, in the rows of the product.
    unsafe fn widen(&self, from: *const E, cols: usize) {
        for row in 0..self.rows.len() {
            for col in 0..cols {
                // SAFETY: the block has these rows and columns, here and there.
                unsafe {
                    let x = *from.add(row * self.product.c_row_stride + col);
                    *self.c.add(row * self.c_row_stride + col) = x.widen();
                }
            }
        }
    }

    /// Rounds the sums to elements at `to`, in the rows of the product.
    unsafe fn narrow(&self, to: *mut E, cols: usize) {
        for row in 0..self.rows.len() {
            // SAFETY: the block has these rows and columns, here and there, and they are its own;
            // the sums are computed, and elements of the product were initialized by the caller.
            unsafe {
                let sums = self.c.add(row * self.c_row_stride);
                let to = to.add(row * self.product.c_row_stride);
                E::narrow_row(
                    std::slice::from_raw_parts(sums, cols),
                    std::slice::from_raw_parts_mut(to, cols),
                );
            }
        }
    }
}
