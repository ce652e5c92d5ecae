//! Sliding windows over images: sizes, strides, padding, and positions.
//!
//! Two and three spatial dimensions are treated as three; 2-D images have a first spatial dimension
//! of size 1. Loops work on NHWC; other layouts are transposed.

use std::ops::Range;

use smallvec::SmallVec;
use thalweg_graph::NodeAttrs;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{PartialShape, Result, Shape, Tensor, bail, ensure};

use crate::strided::{StridedCopy, strides};

/// Sizes along the spatial dimensions.
pub(crate) type Sizes = [usize; 3];

/// One spatial dimension of an image and the windows on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Axis {
    /// Input size.
    pub(crate) input: usize,
    /// Window size.
    pub(crate) window: usize,
    /// Stride.
    pub(crate) stride: usize,
    /// Dilation.
    pub(crate) dilation: usize,
    /// Padding before the image.
    pub(crate) before: usize,
    /// Number of windows.
    pub(crate) output: usize,
}

impl Axis {
    /// The cells of window `output` that are inside the image, and the position of the first of
    /// them.
    #[inline]
    pub(crate) fn cells(&self, output: usize) -> (Range<usize>, usize) {
        let start = output * self.stride;
        if self.dilation == 1 {
            // As below, without divisions.
            let first = self.before.saturating_sub(start);
            let end = (self.input + self.before).saturating_sub(start).min(self.window).max(first);
            return (first..end, (start + first).saturating_sub(self.before));
        }
        let first = self.before.saturating_sub(start).div_ceil(self.dilation);
        let end = (self.input + self.before).saturating_sub(start).div_ceil(self.dilation);
        let end = end.min(self.window).max(first);
        (first..end, (start + first * self.dilation).saturating_sub(self.before))
    }

    /// The distance from a window's first cell to the end of its last one.
    pub(crate) fn reach(&self) -> usize {
        (self.window - 1) * self.dilation + 1
    }

    /// The distance from the first cell of the first window to that of the last, plus 1: the size of
    /// the output with its elements a stride apart.
    pub(crate) fn spread(&self) -> usize {
        self.output.saturating_sub(1) * self.stride + 1
    }

    /// Padding before and after the image, as far as windows reach.
    pub(crate) fn padding(&self) -> (i64, i64) {
        let end = self.spread() + self.reach() - 1;
        (self.before as i64, end.saturating_sub(self.input + self.before) as i64)
    }

    /// The windows that are entirely inside the image.
    pub(crate) fn inside(&self) -> Range<usize> {
        let first = self.before.div_ceil(self.stride);
        let reach = (self.window - 1) * self.dilation;
        let starts = (self.input + self.before).saturating_sub(reach);
        first..starts.div_ceil(self.stride).min(self.output)
    }

    /// The window whose cell `cell` is at position `input`, if there is one.
    pub(crate) fn window_with(&self, input: usize, cell: usize) -> Option<usize> {
        let start = (input + self.before).checked_sub(cell * self.dilation)?;
        (start % self.stride == 0 && start / self.stride < self.output)
            .then_some(start / self.stride)
    }
}

/// Padding of images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Padding {
    /// `SAME`: the output size is the input size divided by the stride, rounded up.
    Same,
    /// `VALID`: no padding.
    Valid,
    /// `EXPLICIT`: before and after, for each dimension.
    Explicit([(usize, usize); 3]),
}

/// Data format: positions of batch, space and channels in a shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Format {
    /// Number of spatial dimensions, 2 or 3.
    pub(crate) spatial: usize,
    /// Whether the channels come before the spatial dimensions.
    pub(crate) channels_first: bool,
}

impl Format {
    /// The format in the attr `data_format`; channels last if there is none.
    pub(crate) fn from_attrs(attrs: NodeAttrs<'_>, spatial: usize) -> Result<Format> {
        let channels_first = match attrs.get("data_format") {
            None => false,
            Some(_) => match attrs.string("data_format")? {
                "NHWC" | "NDHWC" => false,
                "NCHW" | "NCDHW" => true,
                other => bail!(Unimplemented, "data_format {other} has no CPU kernel"),
            },
        };
        Ok(Format { spatial, channels_first })
    }

    /// As [`Format::from_attrs`], with the number of dimensions determined by the format's name.
    pub(crate) fn of_any_rank(attrs: NodeAttrs<'_>) -> Result<Format> {
        let is_volume = attrs.string("data_format")?.contains('D');
        Format::from_attrs(attrs, if is_volume { 3 } else { 2 })
    }

    pub(crate) fn rank(self) -> usize {
        self.spatial + 2
    }

    pub(crate) fn channel_dim(self) -> usize {
        if self.channels_first { 1 } else { self.spatial + 1 }
    }

    fn first_spatial_dim(self) -> usize {
        if self.channels_first { 2 } else { 1 }
    }

    /// Positions of the spatial dimensions.
    pub(crate) fn spatial_dims(self) -> Range<usize> {
        self.first_spatial_dim()..self.first_spatial_dim() + self.spatial
    }

    /// The spatial entries of a list with one entry per dimension; `filler` for missing dimensions.
    fn spatial_of<T: Copy>(self, list: &[T], filler: T) -> [T; 3] {
        let mut spatial = [filler; 3];
        let own = &list[self.first_spatial_dim()..][..self.spatial];
        spatial[3 - self.spatial..].copy_from_slice(own);
        spatial
    }

    /// Batch, spatial sizes and channels of a shape of the right rank.
    pub(crate) fn split(self, shape: &[usize]) -> (usize, Sizes, usize) {
        (shape[0], self.spatial_of(shape, 1), shape[self.channel_dim()])
    }

    /// As [`Format::split`], for partially known shapes.
    pub(crate) fn split_partial(
        self,
        shape: &PartialShape,
    ) -> (Option<usize>, [Option<usize>; 3], Option<usize>) {
        match shape.dims() {
            Some(dims) if dims.len() == self.rank() => {
                (dims[0], self.spatial_of(dims, Some(1)), dims[self.channel_dim()])
            }
            _ => (None, [None; 3], None),
        }
    }

    /// A list with one entry per dimension.
    pub(crate) fn join<T: Copy>(self, batch: T, spatial: [T; 3], channels: T) -> SmallVec<[T; 5]> {
        let own = spatial[3 - self.spatial..].iter().copied();
        let mut list = SmallVec::new();
        list.push(batch);
        if self.channels_first {
            list.push(channels);
        }
        list.extend(own);
        if !self.channels_first {
            list.push(channels);
        }
        list
    }

    /// The images transposed to channels last.
    pub(crate) fn to_channels_last(
        self,
        ctx: &KernelContext<'_>,
        images: Tensor,
    ) -> Result<Tensor> {
        if !self.channels_first {
            return Ok(images);
        }
        let axes: SmallVec<[usize; 5]> = [0].into_iter().chain(2..self.rank()).chain([1]).collect();
        permuted(ctx, &images, &axes)
    }

    /// Transposes channels-last images to this format.
    pub(crate) fn restore(self, ctx: &KernelContext<'_>, images: Tensor) -> Result<Tensor> {
        if !self.channels_first {
            return Ok(images);
        }
        let last = self.rank() - 1;
        let axes: SmallVec<[usize; 5]> = [0, last].into_iter().chain(1..last).collect();
        permuted(ctx, &images, &axes)
    }

    /// The sizes of images of this shape after transposition to channels last.
    pub(crate) fn channels_last(self) -> Format {
        Format { channels_first: false, ..self }
    }
}

/// A transposed copy whose dimension `i` is the tensor's dimension `axes[i]`.
pub(crate) fn permuted(ctx: &KernelContext<'_>, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
    let dims: SmallVec<[usize; 5]> = axes.iter().map(|&a| tensor.shape()[a]).collect();
    let from = strides(tensor.shape());
    let source: SmallVec<[isize; 5]> = axes.iter().map(|&a| from[a] as isize).collect();
    let mut out = ctx.allocate(tensor.dtype(), Shape::new(&dims)?)?;
    StridedCopy::filling(&dims, &source, 0).run(ctx, tensor, &mut out)?;
    Ok(out)
}

/// The attrs of sliding windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sliding {
    pub(crate) format: Format,
    pub(crate) strides: Sizes,
    pub(crate) dilations: Sizes,
    pub(crate) padding: Padding,
    /// Whether batch or channels have a stride or a dilation, which no kernel supports.
    slides_batch_or_channels: bool,
}

impl Sliding {
    /// From the attrs `strides` and `padding`, and `dilations` and `explicit_paddings` if they
    /// exist.
    pub(crate) fn from_attrs(attrs: NodeAttrs<'_>, spatial: usize) -> Result<Sliding> {
        let format = Format::from_attrs(attrs, spatial)?;
        Self::with_strides(attrs, format, attrs.ints("strides")?)
    }

    /// As [`Sliding::from_attrs`], with the given strides.
    pub(crate) fn with_strides(
        attrs: NodeAttrs<'_>,
        format: Format,
        strides: &[i64],
    ) -> Result<Sliding> {
        let (strides, strides_elsewhere) = positive(format, strides, "Stride")?;
        let dilations = match attrs.get("dilations") {
            Some(_) => attrs.ints("dilations")?,
            None => &[1; 5][..format.rank()],
        };
        let (dilations, dilates_elsewhere) = positive(format, dilations, "Dilation rate")?;
        let explicit = match attrs.get("explicit_paddings") {
            Some(_) => attrs.ints("explicit_paddings")?,
            None => &[],
        };
        let padding = match attrs.string("padding")? {
            "EXPLICIT" => Padding::Explicit(explicit_paddings(format, explicit)?),
            _ if !explicit.is_empty() => bail!(
                InvalidArgument,
                "explicit_paddings must be empty if the padding attribute is not EXPLICIT"
            ),
            "SAME" => Padding::Same,
            _ => Padding::Valid,
        };
        let slides_batch_or_channels = strides_elsewhere || dilates_elsewhere;
        Ok(Sliding { format, strides, dilations, padding, slides_batch_or_channels })
    }

    /// From the given sizes, for channels-last images. With two spatial dimensions the first size
    /// is 1.
    pub(crate) fn over_space(
        spatial: usize,
        strides: Sizes,
        dilations: Sizes,
        padding: Padding,
    ) -> Sliding {
        let format = Format { spatial, channels_first: false };
        Sliding { format, strides, dilations, padding, slides_batch_or_channels: false }
    }

    /// Rejects strides and dilations of batch and channels.
    pub(crate) fn check(self) -> Result<Sliding> {
        ensure!(
            !self.slides_batch_or_channels,
            Unimplemented,
            "strides and dilations in the batch and depth dimensions are not supported"
        );
        Ok(self)
    }

    /// The windows along dimension `i` of images of this size.
    pub(crate) fn axis(&self, i: usize, input: usize, window: usize) -> Result<Axis> {
        let (stride, dilation) = (self.strides[i], self.dilations[i]);
        ensure!(window > 0, InvalidArgument, "a window must not be empty");
        let too_large = || {
            thalweg_tensor::err!(InvalidArgument, "windows of {window} on {input} are too large")
        };
        let limit = usize::MAX >> 8;
        let reach =
            (window - 1).checked_mul(dilation).filter(|&r| r < limit).ok_or_else(too_large)?;
        let reach = reach + 1;
        let fits = |padded: usize| -> Result<usize> {
            let count = (padded as i64 - reach as i64 + stride as i64) / stride as i64;
            usize::try_from(count).map_err(|_| {
                thalweg_tensor::err!(
                    InvalidArgument,
                    "Computed output size would be negative: {count} [input_size: {input}, effective_filter_size: {reach}, stride: {stride}]"
                )
            })
        };
        let (before, output) = match self.padding {
            Padding::Valid => (0, fits(input)?),
            Padding::Explicit(all) => {
                let (before, after) = all[i];
                let padded = before.checked_add(after).and_then(|p| p.checked_add(input));
                (before, fits(padded.filter(|&p| p < limit).ok_or_else(too_large)?)?)
            }
            Padding::Same => {
                let output = input.div_ceil(stride);
                let needed = output.saturating_sub(1) * stride + reach;
                (needed.saturating_sub(input) / 2, output)
            }
        };
        Ok(Axis { input, window, stride, dilation, before, output })
    }

    /// The windows along all dimensions.
    pub(crate) fn axes(&self, input: Sizes, window: Sizes) -> Result<[Axis; 3]> {
        Ok([
            self.axis(0, input[0], window[0])?,
            self.axis(1, input[1], window[1])?,
            self.axis(2, input[2], window[2])?,
        ])
    }

    /// The output sizes as far as those of image and window are known.
    pub(crate) fn partial_output(
        &self,
        input: [Option<usize>; 3],
        window: [Option<usize>; 3],
    ) -> Result<[Option<usize>; 3]> {
        let mut output = [None; 3];
        for (i, output) in output.iter_mut().enumerate() {
            // With `SAME` padding the number of windows does not depend on the window size.
            let window =
                if self.padding == Padding::Same { window[i].or(Some(1)) } else { window[i] };
            if let (Some(input), Some(window)) = (input[i], window) {
                *output = Some(self.axis(i, input, window)?.output);
            }
        }
        Ok(output)
    }
}

/// The spatial entries, and whether another entry is not 1.
fn positive(format: Format, list: &[i64], name: &str) -> Result<(Sizes, bool)> {
    ensure!(
        list.len() == format.rank(),
        InvalidArgument,
        "{name} must have {} values, but has {}",
        format.rank(),
        list.len()
    );
    let spatial = format.spatial_of(list, 1);
    let mut sizes = [1; 3];
    for (size, value) in sizes.iter_mut().zip(spatial) {
        ensure!(
            (1..=i64::from(i32::MAX)).contains(&value),
            InvalidArgument,
            "{name} must be > 0, but got {value}"
        );
        *size = value as usize;
    }
    Ok((sizes, list[0] != 1 || list[format.channel_dim()] != 1))
}

fn explicit_paddings(format: Format, list: &[i64]) -> Result<[(usize, usize); 3]> {
    ensure!(
        list.len() == 2 * format.rank(),
        InvalidArgument,
        "explicit_paddings must contain {} values, but got: {}",
        2 * format.rank(),
        list.len()
    );
    ensure!(
        list.iter().all(|&p| (0..=i64::from(i32::MAX)).contains(&p)),
        InvalidArgument,
        "All elements of explicit_paddings must be nonnegative"
    );
    let pairs: SmallVec<[(usize, usize); 5]> =
        list.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect();
    ensure!(
        pairs[0] == (0, 0) && pairs[format.channel_dim()] == (0, 0),
        InvalidArgument,
        "Nonzero explicit padding in the batch or depth dimensions is not supported"
    );
    Ok(format.spatial_of(&pairs, (0, 0)))
}

/// A cell of a window: its index, and its distance in pixels from the first cell that is inside the
/// image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) index: usize,
    pub(crate) pixel: usize,
}

/// Adjacent windows of a row with the same cells inside the image.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// Number of windows.
    pub(crate) windows: usize,
    /// The cells of each window that are inside the image.
    pub(crate) cells: &'a [Cell],
    /// The pixel of the batch at the first window's first cell.
    pub(crate) first: usize,
    /// Distance in pixels between windows.
    pub(crate) stride: usize,
}

/// Windows on channels-last images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) axes: [Axis; 3],
}

impl Grid {
    /// Pixels per image.
    #[inline]
    pub(crate) fn input_pixels(&self) -> usize {
        self.axes.iter().map(|a| a.input).product()
    }

    /// Windows per image.
    #[inline]
    pub(crate) fn output_pixels(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    /// Cells per window; saturates.
    pub(crate) fn cells(&self) -> usize {
        self.axes.iter().fold(1, |cells: usize, a| cells.saturating_mul(a.window))
    }

    /// The sizes of the output.
    #[inline]
    pub(crate) fn output(&self) -> Sizes {
        self.axes.map(|a| a.output)
    }

    /// Position of window `index` along each dimension.
    #[inline]
    pub(crate) fn position(&self, index: usize) -> [usize; 3] {
        let [_, rows, columns] = self.output();
        let row = index / columns;
        [row / rows, row % rows, index % columns]
    }

    /// Whether all cells of window `index` are inside the image.
    pub(crate) fn is_inside(&self, index: usize) -> bool {
        let at = self.position(index);
        self.axes.iter().zip(at).all(|(axis, at)| axis.inside().contains(&at))
    }

    /// Divides the windows from `first` on, counted over the batch, into runs: `out` has a row of
    /// `row_len` for each window, and `work` is called with the rows of each run.
    pub(crate) fn for_each_run<A>(
        &self,
        first: usize,
        row_len: usize,
        out: &mut [A],
        mut work: impl FnMut(&mut [A], &Run<'_>),
    ) {
        let inside = self.axes[2].inside();
        let (mut cells, mut listed) = (SmallVec::<[Cell; 64]>::new(), None);
        let (mut next, mut out) = (first, out);
        while !out.is_empty() {
            let (image, index) = (next / self.output_pixels(), next % self.output_pixels());
            let at = self.position(index);
            let alike = if inside.contains(&at[2]) { inside.end - at[2] } else { 1 };
            let windows = alike.min(out.len() / row_len);
            let [(planes, z), (rows, y), (columns, x)] =
                [0, 1, 2].map(|i| self.axes[i].cells(at[i]));
            let first = (z * self.axes[1].input + y) * self.axes[2].input + x;
            let part = Some([planes, rows, columns]);
            if listed != part {
                listed = part;
                cells.clear();
                self.visit_rows(index, |cell, pixel, count| {
                    let step = self.axes[2].dilation;
                    let at = |i| Cell { index: cell + i, pixel: pixel + i * step - first };
                    cells.extend((0..count).map(at));
                });
            }
            let (now, later) = out.split_at_mut(windows * row_len);
            let (stride, first) = (self.axes[2].stride, image * self.input_pixels() + first);
            work(now, &Run { windows, cells: &cells, first, stride });
            (next, out) = (next + windows, later);
        }
    }

    /// Calls `visit(cell, pixel, count)` for the cells of window `index` that are inside the image,
    /// row by row: cells `cell..` are at `count` pixels from `pixel` on, at the distance of the
    /// last dimension's dilation.
    #[inline]
    pub(crate) fn visit_rows(&self, index: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let at = self.position(index);
        let [depth, row, column] = self.axes;
        let (planes, first_plane) = depth.cells(at[0]);
        let (rows, first_row) = row.cells(at[1]);
        let (columns, first_column) = column.cells(at[2]);
        if columns.is_empty() {
            return;
        }
        for (i, plane) in planes.enumerate() {
            let z = first_plane + i * depth.dilation;
            for (j, cell_row) in rows.clone().enumerate() {
                let y = first_row + j * row.dilation;
                let cell = (plane * row.window + cell_row) * column.window + columns.start;
                let pixel = (z * row.input + y) * column.input + first_column;
                visit(cell, pixel, columns.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every cell of every window with the definition.
    #[test]
    fn cells_lie_where_they_should() {
        for (input, window, stride, dilation, before, output) in [
            (5, 3, 1, 1, 1, 5),
            (5, 3, 2, 1, 1, 3),
            (6, 3, 1, 2, 2, 6),
            (2, 5, 3, 3, 7, 4),
            (4, 1, 2, 1, 0, 2),
        ] {
            let axis = Axis { input, window, stride, dilation, before, output };
            for o in 0..output {
                let expected: Vec<(usize, usize)> = (0..window)
                    .filter_map(|k| {
                        let at = (o * stride + k * dilation).checked_sub(before)?;
                        (at < input).then_some((k, at))
                    })
                    .collect();
                let (cells, first) = axis.cells(o);
                assert_eq!(axis.inside().contains(&o), expected.len() == window);
                let got: Vec<(usize, usize)> =
                    cells.clone().map(|k| (k, first + (k - cells.start) * dilation)).collect();
                assert_eq!(got, expected, "{axis:?} window {o}");
                for (k, at) in expected {
                    assert_eq!(axis.window_with(at, k), Some(o));
                }
            }
        }
    }

    /// Runs list every cell of every window once, for any division of the windows.
    #[test]
    fn runs_cover_all_windows() {
        let same = |input: usize, window, stride, dilation| Axis {
            input,
            window,
            stride,
            dilation,
            before: (window - 1) * dilation / 2,
            output: input.div_ceil(stride),
        };
        for axes in [
            [same(1, 1, 1, 1), same(5, 3, 1, 1), same(9, 3, 1, 1)],
            [same(3, 2, 2, 1), same(4, 3, 2, 1), same(11, 4, 2, 2)],
            [same(1, 1, 1, 1), same(2, 5, 1, 3), same(3, 7, 1, 1)],
        ] {
            let grid = Grid { axes };
            let (batch, pixels) = (2, grid.output_pixels());
            let mut expected = Vec::new();
            for window in 0..batch * pixels {
                let base = window / pixels * grid.input_pixels();
                grid.visit_rows(window % pixels, |cell, pixel, count| {
                    let at = |i| (window, cell + i, base + pixel + i * axes[2].dilation);
                    expected.extend((0..count).map(at));
                });
            }
            for piece in [1, 4, batch * pixels] {
                let mut got = Vec::new();
                let mut windows: Vec<usize> = (0..batch * pixels).collect();
                for windows in windows.chunks_mut(piece) {
                    grid.for_each_run(windows[0], 1, windows, |windows, run| {
                        assert_eq!(windows.len(), run.windows);
                        for (i, window) in windows.iter().enumerate() {
                            let first = run.first + i * run.stride;
                            let at = |c: &Cell| (*window, c.index, first + c.pixel);
                            got.extend(run.cells.iter().map(at));
                        }
                    });
                }
                assert_eq!(got, expected, "{grid:?} by {piece}");
            }
        }
    }
}
