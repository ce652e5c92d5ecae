//! BMP files without compression.

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Result, Shape, Tensor, ensure, err};

use crate::split::for_each_rows;

/// Bytes up to and including the number of bits per pixel.
const HEADER_MIN: usize = 32;
/// Maximum bytes of pixels.
const PIXEL_BYTES_MAX: i64 = 1 << 30;

struct Header {
    /// Offset of the pixel data.
    offset: usize,
    width: usize,
    height: usize,
    is_top_down: bool,
    channels: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Header> {
        ensure!(
            bytes.len() >= HEADER_MIN,
            InvalidArgument,
            "Incomplete bmp content, requires at least {HEADER_MIN} bytes, got {}",
            bytes.len()
        );
        let int = |at: usize| {
            i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (offset, width, height) = (int(10), int(18), int(22));
        let bits = u16::from_le_bytes([bytes[28], bytes[29]]);
        ensure!(width > 0, InvalidArgument, "Width must be positive, is {width}");
        ensure!(
            height != 0 && height != i32::MIN,
            InvalidArgument,
            "Height must be nonzero, is {height}"
        );
        let channels = usize::from(bits / 8);
        ensure!(
            matches!(channels, 1 | 3 | 4),
            InvalidArgument,
            "Number of channels inherent in the image must be 1, 3 or 4, was {channels}"
        );
        let pixels = i64::from(width) * i64::from(height.unsigned_abs());
        ensure!(
            pixels < PIXEL_BYTES_MAX / channels as i64,
            InvalidArgument,
            "Total possible pixel bytes must be less than 2^30: {width} by {height}"
        );
        let offset = usize::try_from(offset)
            .map_err(|_| err!(InvalidArgument, "header size {offset} must not be negative"))?;
        Ok(Header {
            offset,
            width: width as usize,
            height: height.unsigned_abs() as usize,
            is_top_down: height < 0,
            channels,
        })
    }
}

/// Decodes an image to `channels` channels (0: as in the file).
pub(super) fn decode(ctx: &KernelContext<'_>, bytes: &[u8], channels: usize) -> Result<Tensor> {
    let header = Header::read(bytes)?;
    let Header { offset, width, height, is_top_down, channels: from } = header;
    let to = if channels == 0 { from } else { channels };
    let stride = (from * width).next_multiple_of(4);
    let needed = offset.saturating_add(stride * height);
    ensure!(
        bytes.len() == needed,
        InvalidArgument,
        "a bmp of {width} by {height} pixels of {from} bytes needs {needed} bytes, got {}",
        bytes.len()
    );
    let pixels = &bytes[offset..];
    let mut out = ctx.allocate(DType::UInt8, Shape::new(&[height, width, to])?)?;
    let row = width * to;
    for_each_rows(ctx, out.as_mut_slice::<u8>()?, row, 2.0 * row as f64, |first, out| {
        for (y, out) in (first..).zip(out.chunks_exact_mut(row)) {
            let source_y = if is_top_down { y } else { height - 1 - y };
            let source = pixels[source_y * stride..].chunks_exact(from);
            for (pixel, out) in source.zip(out.chunks_exact_mut(to)) {
                let color = match from {
                    1 => [pixel[0], pixel[0], pixel[0], 255],
                    3 => [pixel[2], pixel[1], pixel[0], 255],
                    _ => [pixel[2], pixel[1], pixel[0], pixel[3]],
                };
                out.copy_from_slice(&color[..to]);
            }
        }
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{Code, Result, Tensor};

    fn file(width: i32, height: i32, bits: u16, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = b"BM\0\0\0\0\0\0\0\0".to_vec();
        bytes.extend(54u32.to_le_bytes());
        bytes.extend(40u32.to_le_bytes());
        bytes.extend(width.to_le_bytes());
        bytes.extend(height.to_le_bytes());
        bytes.extend(1u16.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.resize(54, 0);
        bytes.extend(pixels);
        bytes
    }

    fn decode(bytes: Vec<u8>, channels: i64) -> Result<Vec<u8>> {
        let got = call("DecodeBmp")
            .input(Tensor::scalar_string(bytes))
            .attr("channels", channels)
            .run()?;
        Ok(got.as_slice::<u8>()?.to_vec())
    }

    #[test]
    fn rows_from_below() {
        let pixels = [1, 2, 3, 4, 5, 6, 0, 0, 11, 12, 13, 14, 15, 16, 0, 0];
        let upside = decode(file(2, 2, 24, &pixels), 0).unwrap();
        assert_eq!(upside, [13, 12, 11, 16, 15, 14, 3, 2, 1, 6, 5, 4]);
        let downside = decode(file(2, -2, 24, &pixels), 3).unwrap();
        assert_eq!(downside, [3, 2, 1, 6, 5, 4, 13, 12, 11, 16, 15, 14]);
        let grey = decode(file(4, 1, 8, &[1, 2, 3, 4]), 4).unwrap();
        assert_eq!(grey, [1, 1, 1, 255, 2, 2, 2, 255, 3, 3, 3, 255, 4, 4, 4, 255]);
        assert_eq!(decode(file(1, 1, 32, &[1, 2, 3, 4]), 0).unwrap(), [3, 2, 1, 4]);
    }

    #[test]
    fn hostile_headers() {
        for bytes in [
            file(20, 20, 24, &[0; 10]),
            file(-2, 2, 24, &[0; 100]),
            file(2, i32::MIN, 24, &[0; 100]),
            file(1 << 30, 1 << 30, 24, &[0; 100]),
            file(2, 2, 16, &[0; 100]),
            file(2, 0, 24, &[0; 100]),
            file(2, 1, 24, &[0; 9]),
            b"BM\0\0".to_vec(),
        ] {
            assert_eq!(decode(bytes, 0).unwrap_err().code(), Code::InvalidArgument);
        }
    }
}
