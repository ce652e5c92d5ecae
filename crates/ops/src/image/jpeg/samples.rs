//! Upsampling and color conversion of JPEG planes.

use std::ops::Range;

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Result, Shape, Tensor};

use super::frame::{Component, Frame, invalid};
use super::transform::{Factors, Method};
use crate::image::pixels::table;
use crate::split::for_each_rows;

/// The samples of one component.
pub(super) struct Plane {
    samples: Tensor,
    /// Distance between rows in samples; rows consist of whole blocks.
    stride: usize,
    /// Height and width in samples that belong to the image.
    height: usize,
    width: usize,
    /// Pixels of the image per sample, across and down.
    across: usize,
    down: usize,
}

/// Options of the conversion to samples.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub(super) method: Method,
    /// Scale denominator: pixels of the file per output pixel.
    pub(super) ratio: usize,
    /// Fancy upsampling: subsampled planes are interpolated instead of repeated.
    pub(super) is_smooth: bool,
}

impl Plane {
    /// Inverse DCT of all blocks of a component. Subsampled planes are transformed at a larger
    /// scale where that avoids upsampling.
    pub(super) fn new(
        ctx: &KernelContext<'_>,
        frame: &Frame,
        component: &Component,
        settings: Settings,
    ) -> Result<Plane> {
        let least = 8 / settings.ratio;
        let mut side = least;
        while side < 8
            && (frame.h_max * least).is_multiple_of(component.h * side * 2)
            && (frame.v_max * least).is_multiple_of(component.v * side * 2)
        {
            side *= 2;
        }
        let is_whole = (frame.h_max * least).is_multiple_of(component.h * side)
            && (frame.v_max * least).is_multiple_of(component.v * side);
        if !is_whole {
            return Err(invalid("sampling factors that do not divide each other"));
        }
        let quantization = component.quantization.as_ref();
        let quantization = quantization.ok_or_else(|| invalid("a component has no scan"))?;
        let factors = Factors::new(quantization, settings.method, side);
        let [blocks_across, blocks_down] = component.blocks;
        let stride = blocks_across * side;
        let mut samples = ctx.allocate(DType::UInt8, Shape::new(&[blocks_down * side, stride])?)?;
        let coefficients = component.coefficients.as_slice::<i16>()?.as_chunks::<64>().0;
        let band = stride * side;
        let cost = blocks_across as f64 * 150.0;
        for_each_rows(ctx, samples.as_mut_slice::<u8>()?, band, cost, |first, out| {
            for (row, out) in (first..).zip(out.chunks_exact_mut(band)) {
                let blocks = &coefficients[row * blocks_across..][..blocks_across];
                for (x, block) in blocks.iter().enumerate() {
                    factors.transform(block, &mut out[x * side..], stride);
                }
            }
        })?;
        Ok(Plane {
            samples,
            stride,
            height: (frame.height * component.v * side).div_ceil(frame.v_max * 8),
            width: (frame.width * component.h * side).div_ceil(frame.h_max * 8),
            across: frame.h_max * least / (component.h * side),
            down: frame.v_max * least / (component.v * side),
        })
    }

    /// `count` samples from `first` on of row `y`, clamped to the last row.
    fn row<'a>(&self, data: &'a [u8], y: usize, first: usize, count: usize) -> &'a [u8] {
        &data[y.min(self.height - 1) * self.stride + first..][..count]
    }

    /// Row `y` of the image from column `start` on, one sample per pixel. Samples outside of these
    /// columns do not influence the result. `sums` is scratch for the plane's samples.
    fn read(&self, (y, start): (usize, usize), is_smooth: bool, sums: &mut [i32], out: &mut [u8]) {
        let Ok(data) = self.samples.as_slice::<u8>() else { return };
        let (first, count) = (start / self.across, out.len().div_ceil(self.across));
        let source = self.row(data, y / self.down, first, count);
        let other = self.row(data, self.neighbour(y), first, count);
        let is_wide = self.width > 2 && count > 1;
        match (self.across, self.down) {
            (1, 1) => out.copy_from_slice(source),
            (2, 1) if is_smooth && is_wide => widen(source, out),
            (1, 2) if is_smooth => {
                let bias = if y.is_multiple_of(2) { 1 } else { 2 };
                for ((out, &near), &far) in out.iter_mut().zip(source).zip(other) {
                    *out = ((i32::from(near) * 3 + i32::from(far) + bias) >> 2) as u8;
                }
            }
            (2, 2) if is_smooth && is_wide => {
                let sums = &mut sums[..count];
                for ((sum, &near), &far) in sums.iter_mut().zip(source).zip(other) {
                    *sum = i32::from(near) * 3 + i32::from(far);
                }
                widen_sums(sums, out);
            }
            (across, _) => {
                for (x, out) in out.iter_mut().enumerate() {
                    *out = source[x / across];
                }
            }
        }
    }

    /// The other plane row to interpolate with for row `y` of the image, with two rows per plane
    /// row.
    fn neighbour(&self, y: usize) -> usize {
        let near = y / 2;
        if y.is_multiple_of(2) { near.saturating_sub(1) } else { near + 1 }
    }
}

/// Upsamples by two: each sample is 3/4 of the nearer and 1/4 of the farther input.
fn widen(source: &[u8], out: &mut [u8]) {
    let last = source.len() - 1;
    for (x, out) in out.iter_mut().enumerate() {
        let at = x / 2;
        let near = i32::from(source[at]);
        *out = match x % 2 {
            0 if at == 0 => near,
            0 => (near * 3 + i32::from(source[at - 1]) + 1) >> 2,
            _ if at == last => near,
            _ => (near * 3 + i32::from(source[at + 1]) + 2) >> 2,
        } as u8;
    }
}

/// As [`widen`], for sums of two rows with weights that add up to four.
fn widen_sums(sums: &[i32], out: &mut [u8]) {
    let last = sums.len() - 1;
    for (x, out) in out.iter_mut().enumerate() {
        let at = x / 2;
        let near = sums[at];
        *out = match x % 2 {
            0 if at == 0 => (near * 4 + 8) >> 4,
            0 => (near * 3 + sums[at - 1] + 8) >> 4,
            _ if at == last => (near * 4 + 7) >> 4,
            _ => (near * 3 + sums[at + 1] + 7) >> 4,
        } as u8;
    }
}

/// Color space of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Space {
    Grey,
    YCbCr,
    Rgb,
    Cmyk,
    Ycck,
}

impl Space {
    pub(super) fn of(frame: &Frame) -> Space {
        match (frame.components.len(), frame.adobe) {
            (1, _) => Space::Grey,
            (3, _) if frame.has_jfif => Space::YCbCr,
            (3, Some(0)) => Space::Rgb,
            (3, Some(_)) => Space::YCbCr,
            (3, None) if frame.ids() == *b"RGB" => Space::Rgb,
            (3, None) => Space::YCbCr,
            (_, Some(2)) => Space::Ycck,
            _ => Space::Cmyk,
        }
    }
}

/// A part of the output.
pub(super) struct Window {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

/// The part `window` of a frame's image, with one or three channels. As in libjpeg-turbo, columns
/// are decoded from the start of an MCU, and upsampling does not read beyond them.
pub(super) fn image(
    ctx: &KernelContext<'_>,
    frame: &Frame,
    channels: usize,
    settings: Settings,
    window: &Window,
) -> Result<Tensor> {
    let space = Space::of(frame);
    let has_luma = matches!(space, Space::Grey | Space::YCbCr);
    let used = if channels == 1 && has_luma { 1 } else { frame.components.len() };
    let planes = frame.components[..used].iter();
    let planes: Vec<Plane> =
        planes.map(|c| Plane::new(ctx, frame, c, settings)).collect::<Result<_>>()?;
    let is_smooth = settings.is_smooth && settings.ratio < 8;
    let Window { rows, columns } = window;
    let shape = Shape::new(&[rows.len(), columns.len(), channels])?;
    let mut out = ctx.allocate(DType::UInt8, shape)?;
    let unit = 8 * frame.h_max / settings.ratio;
    let start = columns.start / unit * unit;
    let (width, skipped) = (columns.end - start, columns.start - start);
    let row = columns.len() * channels;
    // Allocated here, where a failed allocation can be reported; each row uses copies.
    let lines = table(4 * width, |_| 0u8)?;
    let sums = table(width, |_| 0i32)?;
    let inverts = frame.adobe.is_some();
    for_each_rows(ctx, out.as_mut_slice::<u8>()?, row, 6.0 * row as f64, |first, out| {
        let (mut lines, mut sums) = (lines.clone(), sums.clone());
        for (y, out) in (rows.start + first..).zip(out.chunks_exact_mut(row)) {
            for (plane, line) in planes.iter().zip(lines.chunks_exact_mut(width)) {
                plane.read((y, start), is_smooth, &mut sums, line);
            }
            let line = |i: usize| &lines[i * width + skipped..(i + 1) * width];
            convert(space, inverts, [line(0), line(1), line(2), line(3)], channels, out);
        }
    })?;
    Ok(out)
}

/// One row of pixels from the rows of its planes.
fn convert(space: Space, inverts: bool, [a, b, c, k]: [&[u8]; 4], channels: usize, out: &mut [u8]) {
    if channels == 1 && matches!(space, Space::Grey | Space::YCbCr) {
        out.copy_from_slice(a);
        return;
    }
    for (x, out) in out.chunks_exact_mut(channels).enumerate() {
        let color = match space {
            Space::Grey => [a[x]; 3],
            Space::Rgb => [a[x], b[x], c[x]],
            Space::YCbCr => ycbcr_to_rgb(a[x], b[x], c[x]),
            Space::Cmyk => cmyk_to_rgb([a[x], b[x], c[x]], k[x], inverts),
            Space::Ycck => {
                cmyk_to_rgb(ycbcr_to_rgb(a[x], b[x], c[x]).map(|x| 255 - x), k[x], inverts)
            }
        };
        match channels {
            1 => out[0] = luma(color),
            _ => out.copy_from_slice(&color),
        }
    }
}

/// RGB from YCbCr, with 16 fractional bits.
#[inline(always)]
fn ycbcr_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let half = 1 << 15;
    let r = y + ((91_881 * cr + half) >> 16);
    let g = y + ((-22_554 * cb - 46_802 * cr + half) >> 16);
    let b = y + ((116_130 * cb + half) >> 16);
    [r, g, b].map(|x| x.clamp(0, 255) as u8)
}

fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = 19_595 * u32::from(r) + 38_470 * u32::from(g) + 7_471 * u32::from(b);
    ((sum + 32_768) >> 16) as u8
}

/// RGB from CMYK. Files with an Adobe segment store inverted CMYK.
fn cmyk_to_rgb(colors: [u8; 3], black: u8, inverts: bool) -> [u8; 3] {
    let part = |x: u8| if inverts { u32::from(x) } else { 255 - u32::from(x) };
    colors.map(|x| (part(x) * part(black) / 255) as u8)
}
