//! Image decoding ops: JPEG, PNG, GIF and BMP.
//!
//! Dimensions are read and memory is charged before pixels are decoded, so that a small file cannot
//! allocate more than the budget.

use bytes::Bytes;
use thalweg_graph::{NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::jpeg::{Crop, JpegSettings};
use super::{bmp, gif, jpeg, png};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        DECODE_JPEG,
        DECODE_AND_CROP_JPEG,
        OpDef::new("DecodePng", image_shape).with_work(Work::fixed::<1000>),
        OpDef::new("DecodeGif", gif_shape).with_work(Work::fixed::<1000>),
        OpDef::new("DecodeBmp", image_shape).with_work(Work::fixed::<1000>),
        OpDef::new("DecodeImage", any_image_shape).with_work(Work::fixed::<1000>),
        OpDef::new("ExtractJpegShape", jpeg_shape_shape),
    ],
    kernels: &[
        kernel("DecodeJpeg"),
        kernel("DecodeAndCropJpeg"),
        kernel("DecodePng"),
        kernel("DecodeGif"),
        kernel("DecodeBmp"),
        kernel("DecodeImage"),
        KernelSpec { op: "ExtractJpegShape", create: jpeg_shape, ..KernelSpec::CPU },
    ],
};

const fn kernel(op: &'static str) -> KernelSpec {
    KernelSpec { op, create: decode, ..KernelSpec::CPU }
}

const DECODE_JPEG: OpDef = OpDef::new("DecodeJpeg", image_shape).with_work(Work::fixed::<1000>);

const DECODE_AND_CROP_JPEG: OpDef =
    OpDef { name: "DecodeAndCropJpeg", shape: crop_shape, ..DECODE_JPEG };

/// The requested number of channels; `None` if it depends on the image.
fn channels_known(c: &ShapeContext<'_>) -> Result<Option<usize>> {
    c.with_rank(0, "contents", 0)?;
    Ok(Some(c.attrs().size("channels")?).filter(|&n| n > 0))
}

fn image_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let channels = channels_known(c)?;
    c.set_output(0, PartialShape::new([None, None, channels]));
    Ok(())
}

fn crop_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let channels = channels_known(c)?;
    let window = c.with_rank(1, "crop_window", 1)?;
    ensure!(
        window.dim(0).is_none_or(|n| n == 4),
        InvalidArgument,
        "crop_window must have four elements, got shape {window}"
    );
    let window = c.partial_value(1).and_then(|value| value.known());
    let size = |i: usize| window.as_ref().and_then(|w| usize::try_from(*w.get(i)?).ok());
    c.set_output(0, PartialShape::new([size(2), size(3), channels]));
    Ok(())
}

fn gif_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "contents", 0)?;
    c.set_output(0, PartialShape::new([None, None, None, Some(3)]));
    Ok(())
}

fn any_image_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let channels = channels_known(c)?;
    if !c.attrs().bool("expand_animations")? {
        c.set_output(0, PartialShape::new([None, None, channels]));
    }
    Ok(())
}

fn jpeg_shape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "contents", 0)?;
    c.set_output(0, PartialShape::new([Some(3)]));
    Ok(())
}

/// File formats, detected by their signature.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Jpeg,
    Png,
    Gif,
    Bmp,
}

impl Format {
    fn of(bytes: &[u8]) -> Result<Format> {
        ensure!(!bytes.is_empty(), InvalidArgument, "Input is empty.");
        if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            Ok(Format::Jpeg)
        } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Ok(Format::Png)
        } else if bytes.starts_with(b"GIF8") {
            Ok(Format::Gif)
        } else if bytes.starts_with(b"BM") {
            Ok(Format::Bmp)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            bail!(Unimplemented, "WebP images are not supported")
        } else {
            bail!(
                InvalidArgument,
                "Unknown image file format. One of JPEG, PNG, GIF, BMP required."
            )
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::Gif => "GIF",
            Format::Bmp => "BMP",
        }
    }
}

/// The decode op of a kernel; ops differ in the formats that they accept and in the output rank.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decoder {
    Jpeg,
    CropJpeg,
    Png,
    Gif,
    Bmp,
    Image,
}

struct Settings {
    decoder: Decoder,
    /// 0: as in the image.
    channels: usize,
    dtype: DType,
    expands_animations: bool,
    jpeg: JpegSettings,
}

impl Settings {
    fn new(init: &KernelInit<'_>) -> Result<Settings> {
        let attrs = init.attrs();
        let decoder = match init.node.op.name.as_str() {
            "DecodeJpeg" => Decoder::Jpeg,
            "DecodeAndCropJpeg" => Decoder::CropJpeg,
            "DecodePng" => Decoder::Png,
            "DecodeGif" => Decoder::Gif,
            "DecodeBmp" => Decoder::Bmp,
            _ => Decoder::Image,
        };
        let jpeg = match decoder {
            Decoder::Jpeg | Decoder::CropJpeg => JpegSettings::from_attrs(attrs)?,
            _ => JpegSettings::default(),
        };
        let expands_animations = decoder == Decoder::Gif
            || (decoder == Decoder::Image && attrs.bool("expand_animations")?);
        let channels = checked_channels(decoder, attrs)?;
        Ok(Settings { decoder, channels, dtype: init.output_dtype(0), expands_animations, jpeg })
    }
}

fn checked_channels(decoder: Decoder, attrs: NodeAttrs<'_>) -> Result<usize> {
    if decoder == Decoder::Gif {
        return Ok(3);
    }
    let channels = attrs.int("channels")?;
    let is_bmp = decoder == Decoder::Bmp;
    ensure!(
        matches!(channels, 0 | 3 | 4) || (channels == 1 && !is_bmp),
        InvalidArgument,
        "`channels` must be 0, {}3 or 4, but is {channels}",
        if is_bmp { "" } else { "1, " }
    );
    Ok(channels as usize)
}

/// Rejects formats that the op does not accept.
fn check_format(format: Format, decoder: Decoder, channels: usize) -> Result<()> {
    let (name, op) = (format.name(), format!("{decoder:?}"));
    match format {
        Format::Bmp => ensure!(
            matches!(decoder, Decoder::Bmp | Decoder::Image),
            InvalidArgument,
            "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` \
             instead of Decode{op}"
        ),
        _ => ensure!(
            decoder != Decoder::Bmp,
            InvalidArgument,
            "Trying to decode {name} format using DecodeBmp op. Use `decode_image` instead."
        ),
    }
    ensure!(
        format == Format::Jpeg || decoder != Decoder::CropJpeg,
        InvalidArgument,
        "DecodeAndCropJpeg operation can run on JPEG only, but detected {name}."
    );
    let is_possible = match format {
        Format::Jpeg => channels != 4,
        Format::Png => true,
        Format::Gif => matches!(channels, 0 | 3),
        Format::Bmp => channels != 1,
    };
    ensure!(is_possible, InvalidArgument, "{name} does not support {channels} channels");
    Ok(())
}

fn contents(ctx: &KernelContext<'_>) -> Result<Bytes> {
    let tensor = ctx.input(0)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "`contents` must be scalar but got shape {}",
        tensor.shape()
    );
    Ok(tensor.strings()?[0].clone())
}

fn decode(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init)?;
    AnyKernel::new(move |ctx| {
        let bytes = contents(ctx)?;
        let format = Format::of(&bytes)?;
        check_format(format, settings.decoder, settings.channels)?;
        let crop = match settings.decoder {
            Decoder::CropJpeg => Some(crop_window(ctx)?),
            _ => None,
        };
        let channels = settings.channels;
        let image = match format {
            Format::Jpeg => jpeg::decode(ctx, &bytes, channels, settings.jpeg, crop)?,
            Format::Png => png::decode(ctx, &bytes, channels, settings.dtype != DType::UInt8)?,
            Format::Bmp => bmp::decode(ctx, &bytes, channels)?,
            Format::Gif => {
                let frames = gif::decode(
                    ctx,
                    &bytes,
                    settings.decoder == Decoder::Image && !settings.expands_animations,
                )?;
                match settings.expands_animations {
                    true => frames,
                    false => only_frame(frames)?,
                }
            }
        };
        let image = match (settings.decoder, format) {
            (Decoder::Gif, Format::Jpeg | Format::Png) => one_frame(image)?,
            _ => image,
        };
        let image = in_dtype(ctx, image, settings.dtype)?;
        ctx.set_output(0, image)
    })
}

/// An image as an animation of one frame.
fn one_frame(image: Tensor) -> Result<Tensor> {
    let mut dims = vec![1];
    dims.extend_from_slice(image.shape().dims());
    image.reshaped(Shape::new(&dims)?)
}

/// The image of an animation that has one frame.
fn only_frame(frames: Tensor) -> Result<Tensor> {
    let shape = frames.shape().clone();
    ensure!(
        shape[0] == 1,
        InvalidArgument,
        "Got {} frames, but animated gifs can only be decoded by tf.io.decode_gif or \
         tf.io.decode_image",
        shape[0]
    );
    frames.reshaped(Shape::new(&shape[1..])?)
}

fn crop_window(ctx: &KernelContext<'_>) -> Result<Crop> {
    let tensor = ctx.input(1)?;
    ensure!(
        tensor.shape().dims() == [4],
        InvalidArgument,
        "crop_window must have four elements, got shape {}",
        tensor.shape()
    );
    let window = tensor.as_slice::<i32>()?;
    Ok(Crop { y: window[0], x: window[1], height: window[2], width: window[3] })
}

/// Decoded samples in the op's dtype: 16-bit values have the 8-bit value as upper byte, floats are
/// in [0, 1].
fn in_dtype(ctx: &KernelContext<'_>, image: Tensor, dtype: DType) -> Result<Tensor> {
    if image.dtype() == dtype {
        return Ok(image);
    }
    let mut out = ctx.allocate(dtype, image.shape().clone())?;
    match (image.dtype(), dtype) {
        (DType::UInt8, DType::UInt16) => {
            let data = image.as_slice::<u8>()?;
            convert(ctx, data, out.as_mut_slice::<u16>()?, |x| u16::from(x) << 8)?;
        }
        (DType::UInt8, DType::Float) => {
            let data = image.as_slice::<u8>()?;
            convert(ctx, data, out.as_mut_slice::<f32>()?, |x| f32::from(x) * (1.0 / 255.0))?;
        }
        (DType::UInt16, DType::Float) => {
            let data = image.as_slice::<u16>()?;
            convert(ctx, data, out.as_mut_slice::<f32>()?, |x| f32::from(x) * (1.0 / 65535.0))?;
        }
        (from, to) => bail!(Internal, "{from} samples cannot be converted to {to}"),
    }
    Ok(out)
}

fn convert<A: Copy + Sync, B: Send>(
    ctx: &KernelContext<'_>,
    data: &[A],
    out: &mut [B],
    work: impl Fn(A) -> B + Sync,
) -> Result<()> {
    for_each_rows(ctx, out, 1, 0.5, |first, out| {
        out.iter_mut().zip(&data[first..]).for_each(|(out, &x)| *out = work(x));
    })
}

fn jpeg_shape(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_wide = init.attrs().dtype("output_type")? == DType::Int64;
    AnyKernel::new(move |ctx| {
        let header = jpeg::Header::read(&contents(ctx)?)?;
        let shape = [header.height, header.width, header.components];
        let shape = match is_wide {
            true => Tensor::vector(&shape.map(|x| x as i64))?,
            false => Tensor::vector(&shape.map(|x| x as i32))?,
        };
        ctx.set_output(0, shape)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;
    use thalweg_tensor::Code;

    fn run(op: &'static str, bytes: &[u8]) -> Result<Tensor> {
        call(op).input(Tensor::scalar_string(bytes.to_vec())).run()
    }

    fn file(image: &Tensor, op: &'static str) -> Vec<u8> {
        call(op).input(image.clone()).run().unwrap().strings().unwrap()[0].to_vec()
    }

    fn pattern(channels: usize) -> Tensor {
        let data: Vec<u8> = (0..30 * 20 * channels).map(|i| (i * 7 % 251) as u8).collect();
        Tensor::from_slice(Shape::new(&[20, 30, channels]).unwrap(), &data).unwrap()
    }

    #[test]
    fn png_there_and_back() {
        for channels in 1..=4 {
            let image = pattern(channels);
            let back = run("DecodePng", &file(&image, "EncodePng")).unwrap();
            assert_eq!(back.shape(), image.shape());
            assert_eq!(back.as_bytes().unwrap(), image.as_bytes().unwrap());
            let again = run("DecodeImage", &file(&image, "EncodePng")).unwrap();
            assert_eq!(again.as_bytes().unwrap(), image.as_bytes().unwrap());
        }
    }

    #[test]
    fn jpeg_there_and_back() {
        let data: Vec<u8> =
            (0..24 * 32).flat_map(|i| [(i / 32 * 8) as u8, (i % 32 * 6) as u8, 100]).collect();
        let image = Tensor::from_slice(Shape::new(&[24, 32, 3]).unwrap(), &data).unwrap();
        let bytes = file(&image, "EncodeJpeg");
        let back = run("DecodeJpeg", &bytes).unwrap();
        assert_eq!(back.shape(), image.shape());
        let pairs = back.as_slice::<u8>().unwrap().iter().zip(&data);
        assert!(pairs.clone().all(|(a, b)| a.abs_diff(*b) < 12));
        let shape = run("ExtractJpegShape", &bytes).unwrap();
        assert_eq!(shape.as_slice::<i32>().unwrap(), [24, 32, 3]);
        let window = call("DecodeAndCropJpeg")
            .input(Tensor::scalar_string(bytes.clone()))
            .input(Tensor::vector(&[3, 5, 4, 7]).unwrap())
            .run()
            .unwrap();
        assert_eq!(window.shape().dims(), [4, 7, 3]);
        // The crop's last column is upsampled like an image's last column.
        let at = (3 * 32 + 5) * 3;
        assert_eq!(
            window.as_slice::<u8>().unwrap()[..18],
            back.as_slice::<u8>().unwrap()[at..at + 18]
        );
        for (ratio, dims) in [(2, [12, 16, 3]), (4, [6, 8, 3]), (8, [3, 4, 3])] {
            let small = call("DecodeJpeg")
                .input(Tensor::scalar_string(bytes.clone()))
                .attr("ratio", ratio as i64)
                .run()
                .unwrap();
            assert_eq!(small.shape().dims(), dims);
        }
        for hostile in [&bytes[..bytes.len() - 10], &bytes[..bytes.len() / 2], &bytes[..30]] {
            assert_eq!(run("DecodeJpeg", hostile).unwrap_err().code(), Code::InvalidArgument);
        }
    }

    /// Damaged files must give an error or an image, never a panic.
    #[test]
    fn damaged_files() {
        let mut files = vec![file(&pattern(3), "EncodePng"), file(&pattern(3), "EncodeJpeg")];
        files.push(b"GIF89a\x02\0\x02\0\xf0\0\0\xff\0\0\0\0\0!\xf9\x04\0\x0a\0\0\0,\0\0\0\0\x02\0\x02\0\0\x02\x02D\x52\0;".to_vec());
        let mut bmp =
            b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\x18\0".to_vec();
        bmp.resize(70, 9);
        files.push(bmp);
        let mut state = 5u32;
        let mut next = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for original in &files {
            for _ in 0..50 {
                let mut bytes = original.clone();
                for _ in 0..=next(3) {
                    let at = next(bytes.len());
                    bytes[at] = next(256) as u8;
                }
                bytes.truncate(if next(3) == 0 { next(original.len()) } else { original.len() });
                let _ = run("DecodeImage", &bytes);
                let _ = run("ExtractJpegShape", &bytes);
            }
        }
    }

    #[test]
    fn wrong_files() {
        for (op, bytes) in [
            ("DecodePng", &b"junk"[..]),
            ("DecodeImage", b""),
            ("DecodeBmp", b"\xff\xd8\xff\xe0"),
            ("DecodePng", b"BM"),
            ("DecodeGif", b"GIF89a"),
            ("ExtractJpegShape", b"\x89PNG\r\n\x1a\n"),
        ] {
            assert_eq!(run(op, bytes).unwrap_err().code(), Code::InvalidArgument, "{op}");
        }
        let many = Tensor::from_strings(Shape::new(&[1]).unwrap(), vec![Bytes::new()]).unwrap();
        let error = call("DecodePng").input(many).run().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}
