//! `ImageSummary`.

use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_proto as pb;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Bytes, DType, Result, Tensor, bail, ensure, err, f16};

use super::{numbered_tag, set_summary, text, value};
use crate::parsing::scalar_string;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("ImageSummary", shape::scalar)
        .with_work(Work::serial::<20>)
        .without_gradient()],
    kernels: &[KernelSpec { op: "ImageSummary", create: image_summary, ..KernelSpec::CPU }],
};

/// Default color of pixels with non-finite values: red.
const BAD_COLOR: [u8; 4] = [255, 0, 0, 255];

/// Value ranges below this are shown as black.
const ZERO_THRESHOLD: f32 = 1e-6;

fn image_summary(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let max_images = init.attrs().int("max_images")?;
    let proto = init.attrs().tensor_proto("bad_color")?;
    let bad_color = if proto.dtype == 0 {
        BAD_COLOR.to_vec()
    } else {
        let color = Tensor::from_proto(proto, Some(init.budget))?;
        ensure!(
            color.dtype() == DType::UInt8 && color.rank() == 1,
            InvalidArgument,
            "bad_color must be a vector of uint8, got {} of shape {}",
            color.dtype(),
            color.shape()
        );
        color.as_slice::<u8>()?.to_vec()
    };
    AnyKernel::new(move |ctx| summarize(ctx, max_images, &bad_color))
}

/// Sizes of an image.
#[derive(Clone, Copy)]
struct Size {
    height: usize,
    width: usize,
    depth: usize,
}

fn summarize(ctx: &mut KernelContext<'_>, max_images: i64, bad_color: &[u8]) -> Result<()> {
    let tag = text(&scalar_string(ctx, 0, "tag")?)?;
    let values = image_values(ctx, &tag, ctx.input(1)?, max_images, bad_color)?;
    set_summary(ctx, values)
}

/// One summary value for each of the first images of a batch.
pub(crate) fn image_values(
    ctx: &KernelContext<'_>,
    tag: &str,
    tensor: &Tensor,
    max_images: i64,
    bad_color: &[u8],
) -> Result<Vec<pb::summary::Value>> {
    let &[batch, height, width, depth @ (1 | 3 | 4)] = tensor.shape().dims() else {
        bail!(
            InvalidArgument,
            "Tensor must be 4-D with last dim 1, 3, or 4, not {}",
            tensor.shape()
        )
    };
    let fits = |n: usize| n < 1 << 31;
    ensure!(
        fits(height) && fits(width) && height.checked_mul(width).is_some_and(|n| fits(n * depth)),
        InvalidArgument,
        "hw and depth must be less than 2^31, got shape {}",
        tensor.shape()
    );
    let size = Size { height, width, depth };
    let elements = height * width * depth;
    let mut values = Vec::new();
    for i in 0..batch.min(usize::try_from(max_images).unwrap_or(0)) {
        ctx.check_cancelled()?;
        let mut pixels = ctx.allocate(DType::UInt8, thalweg_tensor::Shape::new(&[elements])?)?;
        to_bytes(tensor, i * elements, depth, bad_color, pixels.as_mut_slice()?)?;
        let picture = pb::summary::Image {
            height: height as i32,
            width: width as i32,
            colorspace: depth as i32,
            encoded_image_string: encode_png(pixels.as_slice()?, size)?,
        };
        values.push(value(numbered_tag(tag, "image", i, max_images), Content::Image(picture)));
    }
    Ok(values)
}

/// Converts the image that begins at element `start` of `tensor` to bytes.
fn to_bytes(
    tensor: &Tensor,
    start: usize,
    depth: usize,
    bad_color: &[u8],
    pixels: &mut [u8],
) -> Result<()> {
    let range = start..start + pixels.len();
    if tensor.dtype() == DType::UInt8 {
        pixels.copy_from_slice(&tensor.as_slice::<u8>()?[range]);
        return Ok(());
    }
    ensure!(
        depth <= bad_color.len(),
        InvalidArgument,
        "expected depth <= bad_color.size, got depth = {depth}, bad_color.size = {}",
        bad_color.len()
    );
    let bad_color = &bad_color[..depth];
    match tensor.dtype() {
        DType::Float => {
            let one = |x: f32, scale: f32, offset: f32| (x * scale + offset) as u8;
            let split = |x: f32| (x, x.is_finite());
            normalize(&tensor.as_slice::<f32>()?[range], split, one, bad_color, pixels);
        }
        DType::Double => {
            let one =
                |x: f64, scale: f32, offset: f32| (x * f64::from(scale) + f64::from(offset)) as u8;
            let split = |x: f64| (x as f32, x.is_finite());
            normalize(&tensor.as_slice::<f64>()?[range], split, one, bad_color, pixels);
        }
        DType::Half => {
            let one = |x: f16, scale: f32, offset: f32| {
                let scaled = x * f16::from_f32(scale) + f16::from_f32(offset);
                scaled.to_f32() as u8
            };
            let split = |x: f16| (x.to_f32(), x.is_finite());
            normalize(&tensor.as_slice::<f16>()?[range], split, one, bad_color, pixels);
        }
        other => bail!(InvalidArgument, "ImageSummary does not support dtype {other}"),
    }
    Ok(())
}

/// Scales an image so that its largest value is 255; if there are negative values, zero becomes
/// 128. `split` returns an element as a float, and whether it is finite in its own type.
fn normalize<T: Copy>(
    values: &[T],
    split: fn(T) -> (f32, bool),
    one: impl Fn(T, f32, f32) -> u8,
    bad_color: &[u8],
    pixels: &mut [u8],
) {
    let depth = bad_color.len();
    let is_good = |pixel: &[T]| pixel.iter().all(|&x| split(x).1);
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for pixel in values.chunks_exact(depth).filter(|p| is_good(p)) {
        for &x in pixel {
            low = low.min(split(x).0);
            high = high.max(split(x).0);
        }
    }
    let (largest, span, offset) = match low < 0.0 {
        true => (low.abs().max(high.abs()), 127.0, 128.0),
        false => (high, 255.0, 0.0),
    };
    let scale = if largest < ZERO_THRESHOLD { 0.0 } else { span / largest };
    for (pixel, target) in values.chunks_exact(depth).zip(pixels.chunks_exact_mut(depth)) {
        if is_good(pixel) {
            target.iter_mut().zip(pixel).for_each(|(t, &x)| *t = one(x, scale, offset));
        } else {
            target.copy_from_slice(bad_color);
        }
    }
}

fn encode_png(pixels: &[u8], size: Size) -> Result<Bytes> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size.width as u32, size.height as u32);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match size.depth {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    // An image without pixels cannot be encoded as PNG.
    let bad = |e: png::EncodingError| {
        err!(InvalidArgument, "a picture of {}x{} cannot be PNG: {e}", size.height, size.width)
    };
    let mut writer = encoder.write_header().map_err(bad)?;
    writer.write_image_data(pixels).map_err(bad)?;
    writer.finish().map_err(bad)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Element, Shape};

    use super::super::tests::decoded;
    use super::*;
    use crate::testing::{call, code};

    fn summary<T: Element>(dims: &[usize], values: &[T], max: i64) -> Result<Tensor> {
        call("ImageSummary")
            .input(Tensor::scalar_string(&b"p"[..]))
            .input(Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap())
            .attr("max_images", max)
            .run()
    }

    fn pixels(value: &pb::summary::Value) -> Vec<u8> {
        let Some(Content::Image(image)) = &value.value else { panic!("{value:?}") };
        let decoder = png::Decoder::new(std::io::Cursor::new(&image.encoded_image_string));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels
    }

    #[test]
    fn floats_are_scaled() {
        let positive = decoded(summary(&[1, 1, 2, 1], &[1.0f32, 0.5], 3));
        assert_eq!((positive[0].tag.as_str(), pixels(&positive[0])), ("p/image/0", vec![255, 127]));
        let signed = decoded(summary(&[1, 1, 3, 1], &[-2.0f32, 0.0, 1.0], 1));
        assert_eq!((signed[0].tag.as_str(), pixels(&signed[0])), ("p/image", vec![1, 128, 191]));
        let bad = decoded(summary(&[1, 1, 2, 3], &[f64::NAN, 0.0, 1.0, 1.0, 1.0, 0.0], 3));
        assert_eq!(pixels(&bad[0]), [255, 0, 0, 255, 255, 0]);
        let half = f16::from_f32;
        let halves = decoded(summary(&[1, 1, 2, 1], &[half(1.0), half(0.5)], 3));
        assert_eq!(pixels(&halves[0]), [255, 127]);
        let dark = decoded(summary(&[1, 1, 1, 1], &[1e-9f32], 3));
        assert_eq!(pixels(&dark[0]), [0]);
        let beyond_floats = decoded(summary(&[1, 1, 2, 1], &[1e300f64, 0.5], 3));
        assert_eq!(pixels(&beyond_floats[0]), [0, 0]);
    }

    #[test]
    fn bytes_pass() {
        let values = decoded(summary(&[3, 1, 1, 4], &(0u8..12).collect::<Vec<_>>(), 2));
        assert_eq!(values.len(), 2);
        assert_eq!(pixels(&values[1]), [4, 5, 6, 7]);
    }

    #[test]
    fn bad_shapes() {
        for dims in [&[1, 1, 1, 2][..], &[1, 1, 1], &[1, 1, 1, 0]] {
            let values = vec![0u8; dims.iter().product()];
            assert_eq!(code(summary(dims, &values, 3)), Some(Code::InvalidArgument), "{dims:?}");
        }
        assert_eq!(code(summary::<u8>(&[1, 0, 5, 1], &[], 3)), Some(Code::InvalidArgument));
        assert!(decoded(summary::<u8>(&[0, 1, 1, 1], &[], 3)).is_empty());
    }
}
