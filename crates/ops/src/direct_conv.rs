//! Direct convolution without im2col: rows of a padded image are used as matrix factors in place,
//! since consecutive windows overlap in them.
//! The row of a window, all channels, is contiguous in memory; the rows of a window are factors at
//! equal distances, whose products `sum_products` sums. Rows outside the image are left out. Where
//! small images have many cells outside, the same window of all images forms one factor: all cells
//! outside the image are then left out, and no padding is needed.

use std::ops::Range;

use parking_lot::Mutex;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Error, Form, Result, Shape, Tensor, err};

use crate::math::gemm::{self, MatMut, StridedBatch, Write};
use crate::patches::Convolution;
use crate::product::{Factor, cached_form};
use crate::split::{Disjoint, for_each_rows};
use crate::window::{Axis, Grid};

/// Filter columns per packed panel.
const PANEL: usize = 32;
/// Maximum filter elements for which gradients are summed in several partial sums.
const FILTER_MAX: usize = 1 << 18;
/// Parts into which a batch is divided for threads.
const PARTS: usize = 16;
/// Images that are convolved together, window by window.
const GROUP: usize = 8;
/// Minimum channels for one product per window and per filter cell.
const DEEP: usize = 8;
/// Nanoseconds per multiplication.
const COST: f64 = 0.02;

/// A convolution that is computed directly.
pub(crate) struct Direct {
    convolution: Convolution,
    y: Axis,
    x: Axis,
}

impl Direct {
    /// The convolution, if the direct method is faster for it: two-dimensional, without dilation,
    /// with long rows, of elements that are their own accumulator type.
    pub(crate) fn new<A: Factor>(convolution: &Convolution) -> Option<Direct> {
        let [depth, y, x] = convolution.grid.axes;
        let is_flat = (depth.input, depth.window, depth.output, depth.before) == (1, 1, 1, 0);
        let fits = convolution.groups == 1 && x.dilation == 1 && A::SUMS_IN_PLACE;
        let is_wide = x.output >= 6 && convolution.out_channels >= 16;
        (is_flat && fits && is_wide).then_some(Direct { convolution: *convolution, y, x })
    }

    /// The convolution that computes the input gradient, if the stride is 1.
    pub(crate) fn backwards<A: Factor>(convolution: &Convolution) -> Option<Direct> {
        let reversed = |axis: Axis| {
            let is_simple = (axis.stride, axis.dilation) == (1, 1);
            let before = (axis.window - 1).checked_sub(axis.before).filter(|_| is_simple)?;
            Some(Axis { input: axis.output, output: axis.input, before, ..axis })
        };
        let [depth, y, x] = convolution.grid.axes;
        let axes = [reversed(depth)?, reversed(y)?, reversed(x)?];
        let (in_channels, out_channels) = (convolution.out_channels, convolution.in_channels);
        let grid = Grid { axes };
        Direct::new::<A>(&Convolution { grid, in_channels, out_channels, ..*convolution })
    }

    /// Elements of a window's row of cells.
    fn cells(&self) -> usize {
        self.x.window * self.convolution.in_channels
    }

    /// Sets `out` to the convolution.
    pub(crate) fn forward<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        filter: &Tensor,
        out: &mut [A],
    ) -> Result<()> {
        let Convolution { batch, out_channels, .. } = self.convolution;
        let packed = match self.cached_filter::<A>(ctx, filter) {
            Some(cached_filter) => cached_filter.clone(),
            None => self.packed::<A>(ctx, filter)?,
        };
        let packed = packed.as_slice::<A>()?;
        if self.is_mostly_padding::<A>() {
            return self.forward_by_window(ctx, images, packed, out);
        }
        let rows = self.y.output.div_ceil(PARTS.div_ceil(batch.max(1)));
        let blocks = self.y.output.div_ceil(rows);
        let row_len = self.x.output * out_channels;
        let work = rows * row_len * self.cells() * self.y.window;
        let out = Disjoint::new(out);
        self.each(ctx, batch * blocks, COST * work as f64, |item| {
            let (image, block) = (item / blocks, item % blocks);
            let range = block * rows..((block + 1) * rows).min(self.y.output);
            let source = self.rows(ctx, images, image, self.covered_rows(&range))?;
            let source = source.view(images)?;
            let first = image * self.y.output;
            let at = (first + range.start) * row_len..(first + range.end) * row_len;
            // SAFETY: blocks are disjoint ranges of rows of the batch.
            self.forward_rows(&source, packed, range, unsafe { out.part(at) })
        })
    }

    /// Whether leaving out all cells outside the images pays: there are many, there are enough
    /// images for tiles, and their addresses do not all map to the same sets of the first-level
    /// cache.
    fn is_mostly_padding<A: Factor>(&self) -> bool {
        let on_image = |axis: &Axis| (0..axis.output).map(|i| axis.cells(i).0.len()).sum::<usize>();
        let all = self.y.output * self.y.window * self.x.output * self.x.window;
        let image = self.x.input * self.y.input * self.convolution.in_channels * size_of::<A>();
        let has_many = on_image(&self.y) * on_image(&self.x) < all - all / 20;
        let is_deep = self.convolution.in_channels >= DEEP;
        has_many && is_deep && self.convolution.batch >= GROUP && !image.is_multiple_of(2048)
    }

    /// Window by window, for several images at once.
    fn forward_by_window<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        packed: &[A],
        out: &mut [A],
    ) -> Result<()> {
        let Convolution { batch, out_channels, .. } = self.convolution;
        let image_out = self.x.output * self.y.output * out_channels;
        let work = GROUP * image_out * self.cells() * self.y.window;
        let out = Disjoint::new(out);
        self.each(ctx, batch.div_ceil(GROUP), COST * work as f64, |group| {
            let group = group * GROUP..((group + 1) * GROUP).min(batch);
            // SAFETY: groups are disjoint ranges of images.
            let out = unsafe { out.part(group.start * image_out..group.end * image_out) };
            for y in 0..self.y.output {
                for x in 0..self.x.output {
                    self.forward_window(images, packed, &group, (y, x), out)?;
                }
            }
            Ok(())
        })
    }

    fn forward_window<A: Factor>(
        &self,
        images: &[A],
        packed: &[A],
        group: &Range<usize>,
        (y, x): (usize, usize),
        out: &mut [A],
    ) -> Result<()> {
        let Convolution { in_channels, out_channels, .. } = self.convolution;
        let ((rows, top), (columns, left)) = (self.y.cells(y), self.x.cells(x));
        let (row, cells) = (self.x.input * in_channels, columns.len() * in_channels);
        let image = self.y.input * row;
        let start = group.start * image + top * row + left * in_channels;
        let a = StridedBatch {
            data: &images[start.min(images.len())..],
            size: (group.len(), cells),
            strides: (image, 1),
            step: self.y.dilation * row,
        };
        let first = (rows.start * self.x.window + columns.start) * in_channels * PANEL;
        let terms = self.cells() * self.y.window;
        let image_out = self.x.output * self.y.output * out_channels;
        let at = (y * self.x.output + x) * out_channels;
        for (panel, packed) in packed.chunks_exact(terms * PANEL).enumerate() {
            let count = PANEL.min(out_channels - panel * PANEL);
            let b = StridedBatch {
                data: &packed[first.min(packed.len())..],
                size: (cells, count),
                strides: (PANEL, 1),
                step: self.cells() * PANEL,
            };
            let c = destination(&mut out[at + panel * PANEL..], (group.len(), count), image_out)?;
            gemm::sum_products(a, b, rows.len(), c, Write::Overwrite).map_err(describe)?;
        }
        Ok(())
    }

    fn forward_rows<A: Factor>(
        &self,
        source: &Source<'_, A>,
        packed: &[A],
        range: Range<usize>,
        out: &mut [A],
    ) -> Result<()> {
        let Convolution { in_channels, out_channels, .. } = self.convolution;
        let (cells, width) = (self.cells(), self.x.output);
        let terms = cells * self.y.window;
        for (panel, packed) in packed.chunks_exact(terms * PANEL).enumerate() {
            let columns = PANEL.min(out_channels - panel * PANEL);
            for (y, out) in range.clone().zip(out.chunks_exact_mut(width * out_channels)) {
                let (window, first) = self.y.cells(y);
                let a = StridedBatch {
                    data: source.from(first),
                    size: (width, cells),
                    strides: (self.x.stride * in_channels, 1),
                    step: self.y.dilation * source.pitch,
                };
                let b = StridedBatch {
                    data: &packed[(window.start * cells * PANEL).min(packed.len())..],
                    size: (cells, columns),
                    strides: (PANEL, 1),
                    step: cells * PANEL,
                };
                let c = destination(&mut out[panel * PANEL..], (width, columns), out_channels)?;
                let result = gemm::sum_products(a, b, window.len(), c, Write::Overwrite);
                result.map_err(describe)?;
            }
        }
        Ok(())
    }

    /// The filters in the form of [`Direct::packed`], if the session caches packed weights.
    fn cached_filter<'f, A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        filter: &'f Tensor,
    ) -> Option<&'f Tensor> {
        let columns = self.convolution.out_channels;
        let terms = self.cells() * self.y.window;
        let form = Form { rule: "filters in panels", sizes: [terms, columns, 0, 0] };
        let bytes = terms * columns.next_multiple_of(PANEL) * size_of::<A>();
        cached_form(ctx, filter, form, bytes, || self.packed::<A>(ctx, filter))
    }

    /// The filters in panels of columns, each contiguous; missing columns of the last panel are
    /// zero.
    fn packed<A: Factor>(&self, ctx: &KernelContext<'_>, filter: &Tensor) -> Result<Tensor> {
        let filter = filter.as_slice::<A>()?;
        let columns = self.convolution.out_channels;
        let terms = self.cells() * self.y.window;
        let panels = columns.div_ceil(PANEL);
        let mut packed = ctx.allocate(A::DTYPE, Shape::new(&[panels, terms, PANEL])?)?;
        let data = packed.as_mut_slice::<A>()?;
        for_each_rows(ctx, data, PANEL, 5.0, |first, part| {
            for (row, to) in (first..).zip(part.chunks_exact_mut(PANEL)) {
                let (panel, term) = (row / terms, row % terms);
                let from = &filter[term * columns..(term + 1) * columns][panel * PANEL..];
                let count = from.len().min(PANEL);
                to[..count].copy_from_slice(&from[..count]);
                to[count..].fill(A::default());
            }
        })?;
        Ok(packed)
    }

    /// Filters rotated by 180 degrees with input and output channels exchanged, for
    /// [`Direct::backwards`].
    pub(crate) fn rotated_filter<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        filter: &[A],
    ) -> Result<Tensor> {
        let Convolution { in_channels, out_channels, .. } = self.convolution;
        let cells = self.x.window * self.y.window;
        let shape = Shape::new(&[cells, in_channels, out_channels])?;
        let mut rotated_filter = ctx.allocate(A::DTYPE, shape)?;
        let data = rotated_filter.as_mut_slice::<A>()?;
        let each = in_channels * out_channels;
        for_each_rows(ctx, data, each, 1.0 * each as f64, |first, part| {
            for (cell, to) in (first..).zip(part.chunks_exact_mut(each)) {
                let from = &filter[(cells - 1 - cell) * each..(cells - cell) * each];
                for (i, to) in to.chunks_exact_mut(out_channels).enumerate() {
                    for (o, to) in to.iter_mut().enumerate() {
                        *to = from[o * in_channels + i];
                    }
                }
            }
        })?;
        Ok(rotated_filter)
    }

    /// Sets `filter` to the gradient of the filters; returns false if they are too large.
    pub(crate) fn backward_filter<A: Factor + std::ops::AddAssign>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        gradient: &[A],
        filter: &mut [A],
    ) -> Result<bool> {
        let batch = self.convolution.batch;
        if filter.len() > FILTER_MAX || batch == 0 {
            return Ok(false);
        }
        let parts = PARTS.min(batch);
        let mut sums = ctx.zeros(A::DTYPE, Shape::new(&[parts, filter.len()])?)?;
        let sums = sums.as_mut_slice::<A>()?;
        let pixels = self.x.output * self.y.output;
        let work = COST * (filter.len() * pixels * batch / parts) as f64;
        let all = Disjoint::new(&mut *sums);
        let len = filter.len();
        self.each(ctx, parts, work, |part| {
            // SAFETY: every part is handed out once.
            let sums = unsafe { all.part(part * len..(part + 1) * len) };
            for image in part * batch / parts..(part + 1) * batch / parts {
                if self.convolution.in_channels >= DEEP {
                    self.add_image_by_cell(images, gradient, image, sums)?;
                    continue;
                }
                let source = self.rows(ctx, images, image, 0..self.y.input)?;
                self.add_image(&source.view(images)?, gradient, image, sums)?;
            }
            Ok(())
        })?;
        let sums = &*sums;
        for_each_rows(ctx, filter, 1, 0.3 * parts as f64, |first, filter| {
            filter.copy_from_slice(&sums[first..first + filter.len()]);
            for sums in sums.chunks_exact(len).skip(1) {
                let sums = &sums[first..first + filter.len()];
                filter.iter_mut().zip(sums).for_each(|(x, &sum)| *x += sum);
            }
        })?;
        Ok(true)
    }

    /// Adds the contribution of one image to the gradient of the filters.
    fn add_image<A: Factor>(
        &self,
        source: &Source<'_, A>,
        gradient: &[A],
        image: usize,
        sums: &mut [A],
    ) -> Result<()> {
        let Convolution { in_channels, out_channels, .. } = self.convolution;
        let (cells, y) = (self.cells(), self.y);
        let row_len = self.x.output * out_channels;
        for (cell, sums) in sums.chunks_exact_mut(cells * out_channels).enumerate() {
            let (Range { start: first, end }, row) = windows_over(&y, cell);
            if first >= end {
                continue;
            }
            let a = StridedBatch {
                data: source.from(row),
                size: (cells, self.x.output),
                strides: (1, self.x.stride * in_channels),
                step: y.stride * source.pitch,
            };
            let b = StridedBatch {
                data: &gradient[(image * y.output + first) * row_len..],
                size: (self.x.output, out_channels),
                strides: (out_channels, 1),
                step: row_len,
            };
            let c = destination(sums, (cells, out_channels), out_channels)?;
            gemm::sum_products(a, b, end - first, c, Write::Accumulate).map_err(describe)?;
        }
        Ok(())
    }

    /// As [`Direct::add_image`], cell by cell: cells outside the image are left out.
    fn add_image_by_cell<A: Factor>(
        &self,
        images: &[A],
        gradient: &[A],
        image: usize,
        sums: &mut [A],
    ) -> Result<()> {
        let Convolution { in_channels, out_channels, .. } = self.convolution;
        let (row, row_out) = (self.x.input * in_channels, self.x.output * out_channels);
        let images = &images[image * self.y.input * row..(image + 1) * self.y.input * row];
        let gradient = &gradient[image * self.y.output * row_out..];
        for (cell, sums) in sums.chunks_exact_mut(in_channels * out_channels).enumerate() {
            let (rows, top) = windows_over(&self.y, cell / self.x.window);
            let (columns, left) = windows_over(&self.x, cell % self.x.window);
            if rows.is_empty() || columns.is_empty() {
                continue;
            }
            let a = StridedBatch {
                data: &images[top * row + left * in_channels..],
                size: (in_channels, columns.len()),
                strides: (1, self.x.stride * in_channels),
                step: self.y.stride * row,
            };
            let b = StridedBatch {
                data: &gradient[rows.start * row_out + columns.start * out_channels..],
                size: (columns.len(), out_channels),
                strides: (out_channels, 1),
                step: row_out,
            };
            let c = destination(sums, (in_channels, out_channels), out_channels)?;
            gemm::sum_products(a, b, rows.len(), c, Write::Accumulate).map_err(describe)?;
        }
        Ok(())
    }

    /// Rows of an image that these rows of windows cover.
    fn covered_rows(&self, windows: &Range<usize>) -> Range<usize> {
        let (first, last) = (self.y.cells(windows.start), self.y.cells(windows.end - 1));
        let end = last.1 + last.0.len().saturating_sub(1) * self.y.dilation + 1;
        first.1.min(self.y.input)..end.min(self.y.input).max(first.1.min(self.y.input))
    }

    /// Rows of an image for sliding windows: padded, unless all windows are inside the image.
    fn rows<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        image: usize,
        rows: Range<usize>,
    ) -> Result<Rows> {
        let channels = self.convolution.in_channels;
        let row_len = self.x.input * channels;
        let start = (image * self.y.input + rows.start) * row_len;
        let reach = (self.x.output - 1) * self.x.stride + self.x.window;
        if self.x.before == 0 && reach <= self.x.input {
            let range = start..start + rows.len() * row_len;
            return Ok(Rows { padded: None, range, first: rows.start, pitch: row_len });
        }
        let (pitch, before) = (reach * channels, self.x.before * channels);
        let mut padded = ctx.allocate(A::DTYPE, Shape::new(&[rows.len(), pitch])?)?;
        let len = row_len.min(pitch - before);
        let source = images[start..].chunks(row_len.max(1));
        for (to, from) in padded.as_mut_slice::<A>()?.chunks_exact_mut(pitch).zip(source) {
            to[..before].fill(A::default());
            to[before..before + len].copy_from_slice(&from[..len]);
            to[before + len..].fill(A::default());
        }
        Ok(Rows { padded: Some(padded), range: 0..0, first: rows.start, pitch })
    }

    /// Calls `work(i)` for every part, in parallel.
    fn each(
        &self,
        ctx: &KernelContext<'_>,
        parts: usize,
        nanoseconds: f64,
        work: impl Fn(usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        ctx.parallel_for(parts, nanoseconds, |range| {
            for part in range {
                if let Err(error) = work(part) {
                    *failure.lock() = Some(error);
                }
            }
        })?;
        failure.into_inner().map_or(Ok(()), Err)
    }
}

/// The windows whose cell `cell` is inside the image, and the position of that cell in the first of
/// them.
fn windows_over(axis: &Axis, cell: usize) -> (Range<usize>, usize) {
    let offset = cell * axis.dilation;
    let first = axis.before.saturating_sub(offset).div_ceil(axis.stride);
    let end = (axis.input + axis.before).saturating_sub(offset).div_ceil(axis.stride);
    (first..end.min(axis.output), (first * axis.stride + offset).saturating_sub(axis.before))
}

/// Rows of an image: a padded copy, or the image itself.
struct Rows {
    padded: Option<Tensor>,
    range: Range<usize>,
    first: usize,
    pitch: usize,
}

impl Rows {
    fn view<'a, A: Factor>(&'a self, images: &'a [A]) -> Result<Source<'a, A>> {
        let data = match &self.padded {
            Some(padded) => padded.as_slice()?,
            None => &images[self.range.clone()],
        };
        Ok(Source { data, first: self.first, pitch: self.pitch })
    }
}

struct Source<'a, A> {
    data: &'a [A],
    /// Index of the first row of the data.
    first: usize,
    /// Elements per row.
    pitch: usize,
}

impl<'a, A> Source<'a, A> {
    /// The data from a row on; empty if the row is out of range.
    fn from(&self, row: usize) -> &'a [A] {
        let start = row.saturating_sub(self.first).saturating_mul(self.pitch);
        &self.data[start.min(self.data.len())..]
    }
}

fn destination<A>(
    data: &mut [A],
    size: (usize, usize),
    row_stride: usize,
) -> Result<MatMut<'_, A>> {
    MatMut::new(data, size, row_stride)
        .ok_or_else(|| err!(Internal, "a matrix product is out of bounds"))
}

fn describe(error: gemm::Error) -> Error {
    err!(Internal, "a convolution failed: {error:?}")
}
