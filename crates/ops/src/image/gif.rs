//! GIF decoding: each frame is drawn over the previous one.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};
use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Error, Result, Shape, Tensor, ensure, err};

fn invalid(e: &DecodingError) -> Error {
    err!(InvalidArgument, "Invalid GIF data: {e}")
}

fn open(bytes: &[u8], skips: bool) -> Result<Decoder<Cursor<&[u8]>>> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(MemoryLimit::Unlimited);
    options.skip_frame_decoding(skips);
    options.read_info(Cursor::new(bytes)).map_err(|e| invalid(&e))
}

/// Number of frames, and the maximum height and width.
fn measure(bytes: &[u8], only_first: bool) -> Result<[usize; 3]> {
    let mut decoder = open(bytes, true)?;
    let (mut count, mut height, mut width) = (0, 0, 0);
    loop {
        match decoder.next_frame_info() {
            Ok(Some(frame)) => {
                count += 1;
                height = height.max(usize::from(frame.height));
                width = width.max(usize::from(frame.width));
            }
            Ok(None) => break,
            Err(e) if count == 0 => return Err(invalid(&e)),
            // Frames before a damaged one are kept.
            Err(_) => break,
        }
    }
    ensure!(count > 0, InvalidArgument, "Invalid GIF data: it has no frame");
    ensure!(
        height > 0 && width > 0,
        InvalidArgument,
        "Invalid GIF data: its frames are {width} by {height} pixels"
    );
    Ok([if only_first { 1 } else { count }, height, width])
}

/// The RGB frames in order, or only the first.
pub(super) fn decode(ctx: &KernelContext<'_>, bytes: &[u8], only_first: bool) -> Result<Tensor> {
    let [count, height, width] = measure(bytes, only_first)?;
    let mut out = ctx.zeros(DType::UInt8, Shape::new(&[count, height, width, 3])?)?;
    let mut indices = ctx.allocate(DType::UInt8, Shape::new(&[height * width])?)?;
    let size = height * width * 3;
    let canvas = out.as_mut_slice::<u8>()?;
    let mut decoder = open(bytes, false)?;
    let mut drawn = 0;
    while drawn < count {
        ctx.check_cancelled()?;
        if drawn > 0 {
            canvas.copy_within((drawn - 1) * size..drawn * size, drawn * size);
        }
        let frame = &mut canvas[drawn * size..(drawn + 1) * size];
        match draw(&mut decoder, indices.as_mut_slice()?, [height, width], frame) {
            Ok(true) => drawn += 1,
            Ok(false) => break,
            Err(e) if drawn == 0 => return Err(e),
            Err(_) => break,
        }
    }
    ensure!(drawn > 0, InvalidArgument, "Invalid GIF data: it has no frame");
    if drawn < count { out.rows(0, drawn, None) } else { Ok(out) }
}

/// Draws the next frame over the canvas; returns false after the last.
fn draw(
    decoder: &mut Decoder<Cursor<&[u8]>>,
    indices: &mut [u8],
    [height, width]: [usize; 2],
    canvas: &mut [u8],
) -> Result<bool> {
    let Some(frame) = decoder.next_frame_info().map_err(|e| invalid(&e))? else {
        return Ok(false);
    };
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    ensure!(
        frame_width <= width && frame_height <= height,
        InvalidArgument,
        "Invalid GIF data: a frame of {frame_width} by {frame_height} pixels"
    );
    let transparent = frame.transparent;
    let indices = &mut indices[..frame_width * frame_height];
    decoder.read_into_buffer(indices).map_err(|e| invalid(&e))?;
    let palette = decoder.palette().map_err(|e| invalid(&e))?.as_chunks::<3>().0;
    if frame_width == 0 {
        return Ok(true);
    }
    for (row, indices) in indices.chunks_exact(frame_width).enumerate() {
        let y = top + row;
        if y >= height || left >= width {
            break;
        }
        let line = &mut canvas[(y * width + left) * 3..(y + 1) * width * 3];
        for (pixel, &index) in line.as_chunks_mut::<3>().0.iter_mut().zip(indices) {
            if transparent == Some(index) {
                continue;
            }
            *pixel = *palette.get(usize::from(index)).ok_or_else(|| {
                err!(
                    InvalidArgument,
                    "Invalid GIF data: color {index} of a palette of {}",
                    palette.len()
                )
            })?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{Code, Result, Tensor};

    /// Two frames of 2 by 2: red, then a green pixel over it.
    fn animation() -> Vec<u8> {
        let mut bytes = Vec::new();
        let palette = [255, 0, 0, 0, 255, 0];
        let mut encoder = gif::Encoder::new(&mut bytes, 2, 2, &palette).unwrap();
        let whole = gif::Frame::from_indexed_pixels(2, 2, vec![0; 4], None);
        encoder.write_frame(&whole).unwrap();
        let mut dot = gif::Frame::from_indexed_pixels(2, 1, vec![1, 0], Some(0));
        dot.top = 1;
        encoder.write_frame(&dot).unwrap();
        drop(encoder);
        bytes
    }

    fn run(op: &'static str, bytes: &[u8]) -> Result<Tensor> {
        call(op).input(Tensor::scalar_string(bytes.to_vec())).run()
    }

    #[test]
    fn frames_are_drawn_over_each_other() {
        let got = run("DecodeGif", &animation()).unwrap();
        assert_eq!(got.shape().dims(), [2, 2, 2, 3]);
        let (r, g) = ([255, 0, 0], [0, 255, 0]);
        assert_eq!(got.as_slice::<u8>().unwrap(), [r, r, r, r, r, r, g, r].as_flattened());
        assert_eq!(run("DecodePng", &animation()).unwrap_err().code(), Code::InvalidArgument);
        let first = call("DecodeImage")
            .input(Tensor::scalar_string(animation()))
            .attr("expand_animations", false)
            .run()
            .unwrap();
        assert_eq!(first.shape().dims(), [2, 2, 3]);
    }

    #[test]
    fn what_comes_before_the_damage() {
        let whole = animation();
        for end in 0..whole.len() {
            if let Ok(got) = run("DecodeGif", &whole[..end]) {
                assert_eq!(got.shape().dims()[1..], [2, 2, 3]);
            }
        }
    }
}
