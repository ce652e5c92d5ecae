//! PNG files.

use std::io::Cursor;

use png::{BitDepth, ColorType, DecodingError, Limits, Transformations};
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, ensure, err};

use crate::split::for_each_rows;

/// Maximum width and height.
const SIDE_MAX: u32 = 1_000_000;

fn invalid(e: &DecodingError) -> Error {
    err!(InvalidArgument, "Invalid PNG data: {e}")
}

/// Decodes an image of 8 or 16 bits per sample to `channels` channels (0: as in the file).
pub(super) fn decode(
    ctx: &KernelContext<'_>,
    bytes: &[u8],
    channels: usize,
    is_wide: bool,
) -> Result<Tensor> {
    let budget = ctx.budget();
    let limits = Limits { bytes: budget.limit_bytes().saturating_sub(budget.used_bytes()) };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(|e| invalid(&e))?;
    let (width, height, depth) = (header.width, header.height, header.bit_depth);
    let source_color = header.color_type;
    ensure!(
        (1..=SIDE_MAX).contains(&width) && (1..=SIDE_MAX).contains(&height),
        InvalidArgument,
        "Invalid PNG: it is {width} by {height} pixels, the sides must be 1 to {SIDE_MAX}"
    );
    let mut reader = decoder.read_info().map_err(|e| invalid(&e))?;
    let (color, out_depth) = reader.output_color_type();
    let size = reader.output_buffer_size();
    let size = size.ok_or_else(|| err!(ResourceExhausted, "a PNG of {width} by {height}"))?;
    let mut raw = ctx.allocate(DType::UInt8, Shape::new(&[size])?)?;
    reader.next_frame(raw.as_mut_slice::<u8>()?).map_err(|e| invalid(&e))?;
    let is_palette = source_color == ColorType::Indexed;
    // A palette image has four channels if the palette has transparency.
    let native = match (color, source_color) {
        (ColorType::GrayscaleAlpha, ColorType::Grayscale) => 1,
        (ColorType::Rgba, ColorType::Rgb) => 3,
        _ => color.samples(),
    };
    let layout = Layout {
        from: color.samples(),
        to: if channels == 0 { native } else { channels },
        is_16: out_depth == BitDepth::Sixteen,
        // As in TensorFlow, the alpha filler of shallow images has the bit depth of the file.
        opaque: match depth as u8 {
            16 => 65535,
            bits @ (1 | 2 | 4) if !(is_palette && color == ColorType::Rgba) => (1 << bits) - 1,
            _ => 255,
        },
    };
    layout.arrange(ctx, raw, [height as usize, width as usize], is_wide)
}

/// Conversion of decoded samples to output channels.
#[derive(Clone, Copy)]
struct Layout {
    from: usize,
    to: usize,
    is_16: bool,
    opaque: u16,
}

impl Layout {
    fn arrange(
        self,
        ctx: &KernelContext<'_>,
        raw: Tensor,
        [height, width]: [usize; 2],
        is_wide: bool,
    ) -> Result<Tensor> {
        let shape = Shape::new(&[height, width, self.to])?;
        if self.from == self.to && !self.is_16 && !is_wide {
            return raw.reshaped(shape);
        }
        let data = raw.as_slice::<u8>()?;
        let (source, row) = (data.len() / height, width * self.to);
        let cost = 5.0 * row as f64;
        if is_wide {
            let mut out = ctx.allocate(DType::UInt16, shape)?;
            let widen = |x: u16| if self.is_16 { x } else { x * 257 };
            for_each_rows(ctx, out.as_mut_slice::<u16>()?, row, cost, |first, out| {
                for (y, out) in (first..).zip(out.chunks_exact_mut(row)) {
                    self.row(&data[y * source..][..source], out, widen);
                }
            })?;
            return Ok(out);
        }
        let mut out = ctx.allocate(DType::UInt8, shape)?;
        let narrow = |x: u16| if self.is_16 { (x >> 8) as u8 } else { x as u8 };
        for_each_rows(ctx, out.as_mut_slice::<u8>()?, row, cost, |first, out| {
            for (y, out) in (first..).zip(out.chunks_exact_mut(row)) {
                self.row(&data[y * source..][..source], out, narrow);
            }
        })?;
        Ok(out)
    }

    fn row<T>(self, source: &[u8], out: &mut [T], cast: impl Fn(u16) -> T) {
        let bytes = if self.is_16 { 2 } else { 1 };
        let sample = |pixel: &[u8], i: usize| match self.is_16 {
            true => u16::from_be_bytes([pixel[2 * i], pixel[2 * i + 1]]),
            false => u16::from(pixel[i]),
        };
        let pixels = source.chunks_exact(bytes * self.from);
        for (pixel, out) in pixels.zip(out.chunks_exact_mut(self.to)) {
            let read = |i: usize| sample(pixel, i);
            let is_color = self.from >= 3;
            let alpha = if self.from.is_multiple_of(2) { read(self.from - 1) } else { self.opaque };
            let color = if is_color { [read(0), read(1), read(2)] } else { [read(0); 3] };
            let values = match self.to {
                1 => [self.grey(color), 0, 0, 0],
                2 => [color[0], alpha, 0, 0],
                _ => [color[0], color[1], color[2], alpha],
            };
            out.iter_mut().zip(values).for_each(|(out, value)| *out = cast(value));
        }
    }

    /// Luma of an RGB color, with weights in units of 1/32768; 16-bit samples are rounded, 8-bit
    /// samples truncated.
    fn grey(self, [r, g, b]: [u16; 3]) -> u16 {
        if r == g && g == b {
            return r;
        }
        let sum = 9797 * u32::from(r) + 19234 * u32::from(g) + 3737 * u32::from(b);
        ((sum + if self.is_16 { 16384 } else { 0 }) >> 15) as u16
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{DType, Result, Tensor};

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn decode(hex: &str, channels: i64, dtype: DType) -> Result<Tensor> {
        call("DecodePng")
            .input(Tensor::scalar_string(bytes(hex)))
            .attr("channels", channels)
            .attr("dtype", dtype)
            .run()
    }

    const G1: &str = "89504e470d0a1a0a0000000d494844520000000400000002010000000057d340ce0000000c49444154789c6358c0100000023400f11604b23f0000000049454e44ae426082";
    const G2: &str = "89504e470d0a1a0a0000000d494844520000000400000001020000000096e748b00000000a49444154789c63900600001d001c8ef4f5210000000049454e44ae426082";
    const G8: &str = "89504e470d0a1a0a0000000d49484452000000030000000108000000003e8b4b680000000c49444154789c6360a8ff0f000201017fb5e6b7cd0000000049454e44ae426082";
    const G8TRNS: &str = "89504e470d0a1a0a0000000d49484452000000030000000108000000003e8b4b680000000274524e53007fb629a1950000000c49444154789c6360a8ff0f000201017fb5e6b7cd0000000049454e44ae426082";
    const GA8: &str = "89504e470d0a1a0a0000000d49484452000000020000000108040000005e2bb7010000000d49444154789c63106850f80f00030401b0f6d1ccb10000000049454e44ae426082";
    const GA16: &str = "89504e470d0a1a0a0000000d4948445200000001000000011004000000e58cd0410000000d49444154789c6310326960040001ea00c8737f7af90000000049454e44ae426082";
    const RGB8: &str = "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000000f49444154789c63606462fef8e9330005cd02dd94ea32b50000000049454e44ae426082";
    const RGB16: &str = "89504e470d0a1a0a0000000d4948445200000001000000011002000000c0e78f9d0000000f49444154789c6360646266f9f80900030301ee67e2b7ff0000000049454e44ae426082";
    const RGB8TRNS: &str = "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000000674524e53000100020003c94babf50000000f49444154789c63606462fef8e9330005cd02dd94ea32b50000000049454e44ae426082";
    const RGBA8: &str = "89504e470d0a1a0a0000000d4948445200000002000000010806000000f4227f8a0000001149444154789c636064626ef8f8e9f37f000c30045c4c338e480000000049454e44ae426082";
    const PAL8: &str = "89504e470d0a1a0a0000000d49484452000000030000000108030000002c3ee48600000009504c5445010203111213f1f2f3c1eb34b00000000c49444154789c6360606402000008000436e0b0a60000000049454e44ae426082";
    const PAL8T: &str = "89504e470d0a1a0a0000000d49484452000000030000000108030000002c3ee48600000009504c5445010203111213f1f2f3c1eb34b00000000274524e5380004d1055730000000c49444154789c6360606402000008000436e0b0a60000000049454e44ae426082";
    const PAL2: &str = "89504e470d0a1a0a0000000d4948445200000003000000010203000000668efc2700000009504c5445010203111213f1f2f3c1eb34b00000000a49444154789c63900000001a00192d88f4360000000049454e44ae426082";
    const PALBAD: &str = "89504e470d0a1a0a0000000d49484452000000030000000108030000002c3ee48600000009504c5445010203111213f1f2f3c1eb34b00000000c49444154789c636060e40400000f000bfd5fb25d0000000049454e44ae426082";

    /// Name, file, requested channels, samples.
    const CASES: &[(&str, &str, i64, &[u8])] = &[
        ("g1", G1, 0, &[255, 0, 255, 0, 0, 255, 0, 255]),
        ("g1", G1, 1, &[255, 0, 255, 0, 0, 255, 0, 255]),
        ("g1", G1, 3, &[255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 0, 0, 0, 0, 255]),
        ("g1", G1, 4, &[255, 255, 255, 1, 0, 0, 0, 1, 255, 255, 255, 1, 0, 0, 0, 1]),
        ("g2", G2, 0, &[0, 85, 170, 255]),
        ("g2", G2, 1, &[0, 85, 170, 255]),
        ("g2", G2, 3, &[0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255]),
        ("g2", G2, 4, &[0, 0, 0, 3, 85, 85, 85, 3, 170, 170, 170, 3, 255, 255, 255, 3]),
        ("g8", G8, 0, &[0, 127, 255]),
        ("g8", G8, 1, &[0, 127, 255]),
        ("g8", G8, 3, &[0, 0, 0, 127, 127, 127, 255, 255, 255]),
        ("g8", G8, 4, &[0, 0, 0, 255, 127, 127, 127, 255, 255, 255, 255, 255]),
        ("g8trns", G8TRNS, 0, &[0, 127, 255]),
        ("g8trns", G8TRNS, 1, &[0, 127, 255]),
        ("g8trns", G8TRNS, 3, &[0, 0, 0, 127, 127, 127, 255, 255, 255]),
        ("g8trns", G8TRNS, 4, &[0, 0, 0, 255, 127, 127, 127, 0, 255, 255, 255, 255]),
        ("ga8", GA8, 0, &[16, 128, 32, 255]),
        ("ga8", GA8, 1, &[16, 32]),
        ("ga8", GA8, 3, &[16, 16, 16, 32, 32, 32]),
        ("ga8", GA8, 4, &[16, 16, 16, 128, 32, 32, 32, 255]),
        ("ga16", GA16, 0, &[18, 128]),
        ("ga16", GA16, 1, &[18]),
        ("ga16", GA16, 3, &[18, 18, 18]),
        ("ga16", GA16, 4, &[18, 18, 18, 128]),
        ("rgb8", RGB8, 0, &[1, 2, 3, 241, 242, 243]),
        ("rgb8", RGB8, 1, &[1, 241]),
        ("rgb8", RGB8, 3, &[1, 2, 3, 241, 242, 243]),
        ("rgb8", RGB8, 4, &[1, 2, 3, 255, 241, 242, 243, 255]),
        ("rgb16", RGB16, 0, &[1, 3, 241]),
        ("rgb16", RGB16, 1, &[29]),
        ("rgb16", RGB16, 3, &[1, 3, 241]),
        ("rgb16", RGB16, 4, &[1, 3, 241, 255]),
        ("rgb8trns", RGB8TRNS, 0, &[1, 2, 3, 241, 242, 243]),
        ("rgb8trns", RGB8TRNS, 1, &[1, 241]),
        ("rgb8trns", RGB8TRNS, 3, &[1, 2, 3, 241, 242, 243]),
        ("rgb8trns", RGB8TRNS, 4, &[1, 2, 3, 0, 241, 242, 243, 255]),
        ("rgba8", RGBA8, 0, &[1, 2, 3, 128, 241, 242, 243, 255]),
        ("rgba8", RGBA8, 1, &[1, 241]),
        ("rgba8", RGBA8, 3, &[1, 2, 3, 241, 242, 243]),
        ("rgba8", RGBA8, 4, &[1, 2, 3, 128, 241, 242, 243, 255]),
        ("pal8", PAL8, 0, &[1, 2, 3, 17, 18, 19, 241, 242, 243]),
        ("pal8", PAL8, 1, &[1, 17, 241]),
        ("pal8", PAL8, 3, &[1, 2, 3, 17, 18, 19, 241, 242, 243]),
        ("pal8", PAL8, 4, &[1, 2, 3, 255, 17, 18, 19, 255, 241, 242, 243, 255]),
        ("pal8t", PAL8T, 0, &[1, 2, 3, 128, 17, 18, 19, 0, 241, 242, 243, 255]),
        ("pal8t", PAL8T, 1, &[1, 17, 241]),
        ("pal8t", PAL8T, 3, &[1, 2, 3, 17, 18, 19, 241, 242, 243]),
        ("pal8t", PAL8T, 4, &[1, 2, 3, 128, 17, 18, 19, 0, 241, 242, 243, 255]),
        ("pal2", PAL2, 0, &[1, 2, 3, 17, 18, 19, 241, 242, 243]),
        ("pal2", PAL2, 1, &[1, 17, 241]),
        ("pal2", PAL2, 3, &[1, 2, 3, 17, 18, 19, 241, 242, 243]),
        ("pal2", PAL2, 4, &[1, 2, 3, 3, 17, 18, 19, 3, 241, 242, 243, 3]),
        ("palbad", PALBAD, 0, &[1, 2, 3, 17, 18, 19, 0, 0, 0]),
        ("palbad", PALBAD, 1, &[1, 17, 0]),
        ("palbad", PALBAD, 3, &[1, 2, 3, 17, 18, 19, 0, 0, 0]),
        ("palbad", PALBAD, 4, &[1, 2, 3, 255, 17, 18, 19, 255, 0, 0, 0, 255]),
    ];

    #[test]
    fn what_tensorflow_makes_of_small_files() {
        for (name, hex, channels, expected) in CASES {
            let got = decode(hex, *channels, DType::UInt8).unwrap();
            // The first samples are sufficient.
            let got = &got.as_slice::<u8>().unwrap()[..expected.len()];
            assert_eq!(got, *expected, "{name} as {channels} channels");
        }
    }

    #[test]
    fn sixteen_bits() {
        let (_, hex, ..) = CASES.iter().find(|case| case.0 == "rgb16").unwrap();
        let got = decode(hex, 0, DType::UInt16).unwrap();
        assert_eq!(got.as_slice::<u16>().unwrap(), [258, 772, 61938]);
        let got = decode(hex, 1, DType::UInt16).unwrap();
        assert_eq!(got.as_slice::<u16>().unwrap(), [7594]);
        let (_, hex, ..) = CASES.iter().find(|case| case.0 == "rgb8trns").unwrap();
        let got = decode(hex, 4, DType::UInt16).unwrap();
        assert_eq!(got.as_slice::<u16>().unwrap(), [257, 514, 771, 0, 61937, 62194, 62451, 65535]);
    }
}
