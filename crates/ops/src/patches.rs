//! im2col and col2im: convolutions as matrix products.

use std::ops::Range;

use parking_lot::Mutex;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Error, Result, Shape, Tensor, ensure, err};

use crate::direct_conv::Direct;
use crate::math::gemm::{MatMut, MatRef, Write};
use crate::product::{Factor, multiply, multiply_alone, multiply_weights};
use crate::split::{Disjoint, for_each_rows};
use crate::window::{Grid, Sizes, Sliding};

/// Elements of the patch matrix that one thread builds at a time; they fit in the second-level
/// cache.
const CHUNK: usize = 1 << 17;
/// As `CHUNK`, where all threads work on one patch matrix.
const LARGE_CHUNK: usize = 1 << 20;

/// A convolution of a batch of images in NHWC with filters `[.., in / groups, out]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) batch: usize,
    pub(crate) grid: Grid,
    pub(crate) in_channels: usize,
    pub(crate) out_channels: usize,
    /// Number of groups (grouped convolution).
    pub(crate) groups: usize,
}

impl Convolution {
    /// Checks that images and filters are compatible. `filter` has the spatial sizes first, then
    /// the input and output channels.
    pub(crate) fn new(sliding: &Sliding, images: &Shape, filter: &Shape) -> Result<Convolution> {
        let format = sliding.format;
        for (shape, name) in [(images, "input"), (filter, "filter")] {
            ensure!(
                shape.rank() == format.rank(),
                InvalidArgument,
                "convolution {name} must be {}-dimensional: {shape}",
                format.rank()
            );
        }
        ensure!(
            filter.num_elements() > 0,
            InvalidArgument,
            "filter must not have zero elements, got shape {filter}"
        );
        let (batch, sizes, in_channels) = format.split(images);
        let window = filter_window(filter);
        let (group_in, out_channels) = (filter[format.rank() - 2], filter[format.rank() - 1]);
        ensure!(
            in_channels > 0 && in_channels % group_in == 0,
            InvalidArgument,
            "input depth must be evenly divisible by filter depth: {in_channels} vs {group_in}"
        );
        let groups = in_channels / group_in;
        ensure!(
            out_channels % groups == 0,
            InvalidArgument,
            "output depth must be evenly divisible by number of groups: {out_channels} vs {groups}"
        );
        let grid = Grid { axes: sliding.axes(sizes, window)? };
        Ok(Convolution { batch, grid, in_channels, out_channels, groups })
    }

    /// Output pixels of the whole batch.
    fn rows(&self) -> usize {
        self.batch * self.grid.output_pixels()
    }

    fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }

    fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }

    /// Elements of a window in one group.
    fn columns(&self) -> usize {
        self.grid.cells() * self.group_in()
    }

    /// Whether the convolution is pointwise with stride 1: the images are their own patch matrix.
    fn is_pointwise(&self) -> bool {
        self.groups == 1
            && self.grid.axes.iter().all(|a| (a.window, a.stride, a.before) == (1, 1, 0))
            && self.grid.input_pixels() == self.grid.output_pixels()
    }

    fn chunk_rows(&self, elements: usize, rows: usize) -> usize {
        (elements / self.columns()).clamp(32, rows.max(32))
    }

    /// Sets `out` to the convolution.
    pub(crate) fn forward<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        filter: &Tensor,
        out: &mut [A],
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let (rows, outs) = (self.rows(), self.out_channels);
        if self.is_pointwise() {
            let a = view(images, (rows, self.in_channels), (self.in_channels, 1))?;
            let b = view(filter.as_slice::<A>()?, (self.in_channels, outs), (outs, 1))?;
            let c = view_mut(out, (rows, outs), outs)?;
            return multiply_weights(ctx, a, (filter, b), c, Write::Overwrite);
        }
        if let Some(direct) = Direct::new::<A>(self) {
            return direct.forward(ctx, images, filter, out);
        }
        let filter = filter.as_slice::<A>()?;
        let chunk = self.chunk_rows(CHUNK, rows);
        let cost = 0.03 * (chunk * self.columns()) as f64 * outs as f64;
        let out = Disjoint::new(out);
        self.in_chunks(ctx, rows.div_ceil(chunk), cost, |layout, i| {
            let range = i * chunk..((i + 1) * chunk).min(rows);
            // SAFETY: chunks are disjoint ranges of rows.
            let out = unsafe { out.part(range.start * outs..range.end * outs) };
            self.forward_rows(ctx, images, filter, (range, out), layout)
        })
    }

    fn forward_rows<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        filter: &[A],
        (range, out): (Range<usize>, &mut [A]),
        layout: &mut [A],
    ) -> Result<()> {
        let (columns, outs, group_out) = (self.columns(), self.out_channels, self.group_out());
        let layout = &mut layout[..range.len() * columns];
        for group in 0..self.groups {
            for (row, layout) in range.clone().zip(layout.chunks_exact_mut(columns)) {
                self.im2col_row(images, row, group, layout);
            }
            let first = group * group_out;
            let a = view(layout, (range.len(), columns), (columns, 1))?;
            let b = view(&filter[first..], (columns, group_out), (outs, 1))?;
            let c = view_mut(&mut out[first..], (range.len(), group_out), outs)?;
            multiply_alone(ctx, a, b, c, Write::Overwrite)?;
        }
        Ok(())
    }

    /// Calls `work(scratch, i)` for every chunk, in parallel; the scratch has `CHUNK` elements, or
    /// 32 rows if that is more.
    fn in_chunks<A: Factor>(
        &self,
        ctx: &KernelContext<'_>,
        chunks: usize,
        nanoseconds_per_chunk: f64,
        work: impl Fn(&mut [A], usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let scratch_shape = Shape::new(&[self.chunk_rows(CHUNK, usize::MAX), self.columns()])?;
        ctx.parallel_for(chunks, nanoseconds_per_chunk, |range| {
            let run = || -> Result<()> {
                let mut scratch = ctx.allocate(A::DTYPE, scratch_shape.clone())?;
                let scratch = scratch.as_mut_slice::<A>()?;
                range.clone().try_for_each(|i| work(scratch, i))
            };
            if let Err(error) = run() {
                *failure.lock() = Some(error);
            }
        })?;
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// im2col: copies the window of one output pixel, in order, with zeros outside the image.
    fn im2col_row<A: Factor>(&self, images: &[A], row: usize, group: usize, out: &mut [A]) {
        let (pixels, channels) = (self.grid.output_pixels(), self.in_channels);
        let (image, window) = (row / pixels, row % pixels);
        let (depth, first) = (self.group_in(), group * self.group_in());
        if !self.grid.is_inside(window) {
            out.fill(A::default());
        }
        let base = image * self.grid.input_pixels();
        let step = self.grid.axes[2].dilation;
        self.grid.visit_rows(window, |cell, pixel, count| {
            let out = &mut out[cell * depth..(cell + count) * depth];
            let start = (base + pixel) * channels;
            if depth == channels && step == 1 {
                return out.copy_from_slice(&images[start..start + out.len()]);
            }
            for (i, out) in out.chunks_exact_mut(depth).enumerate() {
                let start = start + i * step * channels + first;
                out.copy_from_slice(&images[start..start + depth]);
            }
        });
    }

    /// Sets `images` to the gradient of the images.
    pub(crate) fn backward_images<A: Factor + std::ops::AddAssign>(
        &self,
        ctx: &KernelContext<'_>,
        filter: &[A],
        gradient: &[A],
        images: &mut [A],
    ) -> Result<()> {
        if images.is_empty() || gradient.is_empty() {
            images.fill(A::default());
            return Ok(());
        }
        let (rows, outs) = (self.rows(), self.out_channels);
        if self.is_pointwise() {
            let a = view(gradient, (rows, outs), (outs, 1))?;
            let b = view(filter, (outs, self.in_channels), (1, outs))?;
            let c = view_mut(images, (rows, self.in_channels), self.in_channels)?;
            return multiply(ctx, a, b, c, Write::Overwrite);
        }
        if let Some(direct) = Direct::backwards::<A>(self) {
            let turned = direct.rotated_filter(ctx, filter)?;
            return direct.forward(ctx, gradient, &turned, images);
        }
        images.fill(A::default());
        let image_len = images.len() / self.batch;
        let pixels = self.grid.output_pixels();
        let cost = 0.03 * (pixels * self.columns()) as f64 * outs as f64;
        let images = Disjoint::new(images);
        self.in_chunks(ctx, self.batch, cost, |layout, image| {
            // SAFETY: every image is handed out once.
            let out = unsafe { images.part(image * image_len..(image + 1) * image_len) };
            let gradient = &gradient[image * pixels * outs..(image + 1) * pixels * outs];
            self.backward_image(ctx, filter, gradient, out, layout)
        })
    }

    fn backward_image<A: Factor + std::ops::AddAssign>(
        &self,
        ctx: &KernelContext<'_>,
        filter: &[A],
        gradient: &[A],
        out: &mut [A],
        layout: &mut [A],
    ) -> Result<()> {
        let (columns, outs, group_out) = (self.columns(), self.out_channels, self.group_out());
        let pixels = self.grid.output_pixels();
        let chunk = self.chunk_rows(CHUNK, pixels).min(layout.len() / columns);
        for start in (0..pixels).step_by(chunk) {
            let count = chunk.min(pixels - start);
            let layout = &mut layout[..count * columns];
            for group in 0..self.groups {
                let first = group * group_out;
                let a = view(&gradient[start * outs + first..], (count, group_out), (outs, 1))?;
                let b = view(&filter[first..], (group_out, columns), (1, outs))?;
                let c = view_mut(layout, (count, columns), columns)?;
                multiply_alone(ctx, a, b, c, Write::Overwrite)?;
                for (window, layout) in (start..).zip(layout.chunks_exact(columns)) {
                    self.col2im_row(layout, window, group, out);
                }
            }
        }
        Ok(())
    }

    /// col2im: adds a window's cells to the image pixels that they cover.
    fn col2im_row<A: Factor + std::ops::AddAssign>(
        &self,
        layout: &[A],
        window: usize,
        group: usize,
        image: &mut [A],
    ) {
        let (depth, channels) = (self.group_in(), self.in_channels);
        let step = self.grid.axes[2].dilation;
        self.grid.visit_rows(window, |cell, pixel, count| {
            let cells = &layout[cell * depth..(cell + count) * depth];
            for (i, cell) in cells.chunks_exact(depth).enumerate() {
                let start = (pixel + i * step) * channels + group * depth;
                let image = &mut image[start..start + depth];
                image.iter_mut().zip(cell).for_each(|(x, &c)| *x += c);
            }
        });
    }

    /// Sets `filter` to the gradient of the filters.
    pub(crate) fn backward_filter<A: Factor + std::ops::AddAssign>(
        &self,
        ctx: &KernelContext<'_>,
        images: &[A],
        gradient: &[A],
        filter: &mut [A],
    ) -> Result<()> {
        filter.fill(A::default());
        let (rows, outs, columns) = (self.rows(), self.out_channels, self.columns());
        if rows == 0 {
            return Ok(());
        }
        if self.is_pointwise() {
            let a = view(images, (self.in_channels, rows), (1, self.in_channels))?;
            let b = view(gradient, (rows, outs), (outs, 1))?;
            return multiply(ctx, a, b, view_mut(filter, (columns, outs), outs)?, Write::Overwrite);
        }
        if let Some(direct) = Direct::new::<A>(self)
            && direct.backward_filter(ctx, images, gradient, filter)?
        {
            return Ok(());
        }
        let chunk = self.chunk_rows(LARGE_CHUNK, rows);
        let mut layout = ctx.allocate(A::DTYPE, Shape::new(&[chunk, columns])?)?;
        let group_out = self.group_out();
        for start in (0..rows).step_by(chunk) {
            let count = chunk.min(rows - start);
            for group in 0..self.groups {
                let layout = &mut layout.as_mut_slice::<A>()?[..count * columns];
                for_each_rows(ctx, layout, columns, 0.3 * columns as f64, |first, part| {
                    for (i, part) in (first..).zip(part.chunks_exact_mut(columns)) {
                        self.im2col_row(images, start + i, group, part);
                    }
                })?;
                let first = group * group_out;
                let a = view(layout, (columns, count), (1, columns))?;
                let b = view(&gradient[start * outs + first..], (count, group_out), (outs, 1))?;
                let c = view_mut(&mut filter[first..], (columns, group_out), outs)?;
                multiply(ctx, a, b, c, Write::Accumulate)?;
            }
        }
        Ok(())
    }
}

/// The spatial sizes of filters, whose last two dimensions are channels.
pub(crate) fn filter_window(filter: &[usize]) -> Sizes {
    let spatial = filter.len() - 2;
    let mut window = [1; 3];
    window[3 - spatial..].copy_from_slice(&filter[..spatial]);
    window
}

fn view<T>(data: &[T], size: (usize, usize), strides: (usize, usize)) -> Result<MatRef<'_, T>> {
    MatRef::new(data, size, strides).ok_or_else(|| err!(Internal, "a factor is out of bounds"))
}

fn view_mut<T>(data: &mut [T], size: (usize, usize), stride: usize) -> Result<MatMut<'_, T>> {
    MatMut::new(data, size, stride)
        .ok_or_else(|| err!(Internal, "a matrix product is out of bounds"))
}
