//! Image encoding ops: JPEG and PNG.

use bytes::Bytes;
use jpeg_encoder::{ColorType, Encoder, PixelDensity, PixelDensityUnit, SamplingFactor};
use parking_lot::Mutex;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Error, PartialShape, Result, Shape, bail, charge_string, ensure, err};

use crate::parsing::set_scalar_string;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("EncodePng", png_shape).with_work(Work::serial::<20>),
        OpDef::new("EncodeJpeg", jpeg_shape).with_work(Work::serial::<6>),
        OpDef::new("EncodeJpegVariableQuality", variable_quality_shape)
            .with_work(Work::serial::<6>),
    ],
    kernels: &[
        KernelSpec { op: "EncodePng", create: encode_png, ..KernelSpec::CPU },
        KernelSpec { op: "EncodeJpeg", create: encode_jpeg, ..KernelSpec::CPU },
        KernelSpec {
            op: "EncodeJpegVariableQuality",
            create: encode_jpeg_variable_quality,
            ..KernelSpec::CPU
        },
    ],
};

/// The dimensions before the three of an image.
fn png_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let image = c.with_rank_at_least(0, "image", 3)?;
    let shape = match image.dims() {
        Some(dims) => PartialShape::new(dims[..dims.len() - 3].iter().copied()),
        None => PartialShape::unknown(),
    };
    c.set_output(0, shape);
    Ok(())
}

fn jpeg_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "image", 3)?;
    c.set_output(0, PartialShape::scalar());
    Ok(())
}

fn variable_quality_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "quality", 0)?;
    jpeg_shape(c)
}

fn encode_png(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let compression = init.attrs().int("compression")?;
    let level = match compression {
        -1 => png::DeflateCompression::Level(6),
        0 => png::DeflateCompression::NoCompression,
        1..=9 => png::DeflateCompression::Level(compression as u8),
        _ => bail!(InvalidArgument, "compression should be in [-1,9], got {compression}"),
    };
    AnyKernel::new(move |ctx| {
        let image = ctx.input(0)?;
        let shape = image.shape();
        ensure!(
            shape.rank() >= 3,
            InvalidArgument,
            "images must be at least rank 3, got shape {shape}"
        );
        let (outer, inner) = shape.split_at(shape.rank() - 3);
        let [height, width, channels] = [inner[0], inner[1], inner[2]];
        ensure!(
            (1..=4).contains(&channels),
            InvalidArgument,
            "image must have 1, 2, 3, or 4 channels, got {channels}"
        );
        let mut out = ctx.zeros(DType::String, Shape::new(outer)?)?;
        let size = height * width * channels * image.dtype().size();
        ensure!(
            size > 0 || out.num_elements() == 0,
            InvalidArgument,
            "an image without pixels cannot be encoded as PNG; its shape is {shape}"
        );
        let (bytes, is_wide) = (image.as_bytes()?, image.dtype() == DType::UInt16);
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        for_each_rows(ctx, out.strings_mut()?, 1, 20.0 * size as f64, |first, out| {
            for (i, out) in (first..).zip(out) {
                let image = &bytes[i * size..(i + 1) * size];
                let file = png_file(image, [height, width, channels], is_wide, level);
                match file.and_then(|file| charge_string(file, ctx.budget())) {
                    Ok(file) => *out = file,
                    Err(e) => *failure.lock() = Some(e),
                }
            }
        })?;
        if let Some(e) = failure.into_inner() {
            return Err(e);
        }
        ctx.set_output(0, out)
    })
}

fn png_file(
    image: &[u8],
    [height, width, channels]: [usize; 3],
    is_wide: bool,
    level: png::DeflateCompression,
) -> Result<Vec<u8>> {
    let failed = |e: png::EncodingError| err!(Internal, "PNG encoding failed: {e}");
    let side = |x: usize| {
        u32::try_from(x).map_err(|_| err!(InvalidArgument, "a PNG cannot have a side of {x}"))
    };
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side(width)?, side(height)?);
    encoder.set_color(match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    encoder.set_depth(if is_wide { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
    encoder.set_deflate_compression(level);
    let mut writer = encoder.write_header().map_err(failed)?;
    if is_wide {
        let mut swapped = Vec::new();
        swapped
            .try_reserve_exact(image.len())
            .map_err(|_| err!(ResourceExhausted, "out of memory for {} samples", image.len()))?;
        swapped.extend(image.as_chunks::<2>().0.iter().flat_map(|&[low, high]| [high, low]));
        writer.write_image_data(&swapped).map_err(failed)?;
    } else {
        writer.write_image_data(image).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    Ok(file)
}

/// Options of a JPEG file.
#[derive(Clone)]
struct JpegOptions {
    /// Number of channels that the format requires.
    channels: Option<usize>,
    quality: i64,
    is_progressive: bool,
    is_optimized: bool,
    has_small_chroma: bool,
    density: PixelDensity,
    xmp: Bytes,
}

impl JpegOptions {
    fn from_attrs(init: &KernelInit<'_>) -> Result<JpegOptions> {
        let attrs = init.attrs();
        let channels = match attrs.string("format")? {
            "" => None,
            "grayscale" => Some(1),
            "rgb" => Some(3),
            other => bail!(InvalidArgument, "format must be '', grayscale or rgb, is {other}"),
        };
        let quality = attrs.int("quality")?;
        check_quality(quality)?;
        let unit = match attrs.string("density_unit")? {
            "in" => PixelDensityUnit::Inches,
            "cm" => PixelDensityUnit::Centimeters,
            other => bail!(InvalidArgument, "density_unit must be 'in' or 'cm', is {other}"),
        };
        let density = (attrs.int("x_density")? as u16, attrs.int("y_density")? as u16);
        Ok(JpegOptions {
            channels,
            quality,
            is_progressive: attrs.bool("progressive")?,
            is_optimized: attrs.bool("optimize_size")?,
            has_small_chroma: attrs.bool("chroma_downsampling")?,
            density: PixelDensity { density, unit },
            xmp: attrs.bytes("xmp_metadata")?.clone(),
        })
    }
}

fn check_quality(quality: i64) -> Result<()> {
    ensure!(
        (0..=100).contains(&quality),
        InvalidArgument,
        "quality must be in [0,100], got {quality}"
    );
    Ok(())
}

fn encode_jpeg(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let options = JpegOptions::from_attrs(init)?;
    AnyKernel::new(move |ctx| {
        let file = jpeg_file(ctx, &options)?;
        set_scalar_string(ctx, 0, file)
    })
}

fn encode_jpeg_variable_quality(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let quality = ctx.scalar_int(1, "quality")?;
        check_quality(quality)?;
        let unit = PixelDensityUnit::Inches;
        let options = JpegOptions {
            channels: None,
            quality,
            is_progressive: false,
            is_optimized: false,
            has_small_chroma: true,
            density: PixelDensity { density: (300, 300), unit },
            xmp: Bytes::new(),
        };
        let file = jpeg_file(ctx, &options)?;
        set_scalar_string(ctx, 0, file)
    })
}

fn jpeg_file(ctx: &KernelContext<'_>, options: &JpegOptions) -> Result<Vec<u8>> {
    let image = ctx.input(0)?;
    let shape = image.shape();
    let [height, width, channels] = *shape.dims() else {
        bail!(InvalidArgument, "image must be 3-dimensional, got shape {shape}");
    };
    ensure!(
        matches!(channels, 1 | 3),
        InvalidArgument,
        "image must have 1 or 3 channels, got shape {shape}"
    );
    if let Some(expected) = options.channels {
        ensure!(
            channels == expected,
            InvalidArgument,
            "format expects {expected} channels, got shape {shape}"
        );
    }
    let side = |x: usize| u16::try_from(x).ok().filter(|&x| x > 0);
    let (Some(width), Some(height)) = (side(width), side(height)) else {
        bail!(Internal, "JPEG encoding failed: no file can have shape {shape}");
    };
    // The encoder may buffer the coefficients of the whole image.
    let _scratch = ctx.allocate(DType::Int16, shape.clone())?;
    let failed = |e: jpeg_encoder::EncodingError| err!(Internal, "JPEG encoding failed: {e}");
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, options.quality.max(1) as u8);
    encoder.set_density(options.density);
    encoder.set_progressive(options.is_progressive);
    encoder.set_optimized_huffman_tables(options.is_optimized);
    encoder.set_sampling_factor(match options.has_small_chroma {
        true => SamplingFactor::R_4_2_0,
        false => SamplingFactor::R_4_4_4,
    });
    if !options.xmp.is_empty() {
        let mut segment = b"http://ns.adobe.com/xap/1.0/\0".to_vec();
        segment.extend_from_slice(&options.xmp);
        encoder.add_app_segment(1, segment).map_err(failed)?;
    }
    let color = if channels == 1 { ColorType::Luma } else { ColorType::Rgb };
    encoder.encode(image.as_slice::<u8>()?, width, height, color).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use crate::testing::call;
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    fn image(dims: &[usize], dtype: DType) -> Tensor {
        Tensor::zeros(dtype, Shape::new(dims).unwrap()).unwrap()
    }

    #[test]
    fn a_batch_of_files() {
        for dtype in [DType::UInt8, DType::UInt16] {
            let got = call("EncodePng").input(image(&[2, 3, 4, 5, 3], dtype)).run().unwrap();
            assert_eq!(got.shape().dims(), [2, 3]);
            assert!(got.strings().unwrap().iter().all(|file| file.starts_with(b"\x89PNG")));
            assert_eq!(call("EncodePng").shape(dtype, "2,?,4,5,3").infer(), "[2,?]");
        }
        let none = call("EncodePng").input(image(&[0, 4, 5, 3], DType::UInt8)).run().unwrap();
        assert_eq!(none.num_elements(), 0);
    }

    #[test]
    fn sixteen_bits_there_and_back() {
        let data: Vec<u16> = (0..4 * 5 * 3).map(|i| i * 1000).collect();
        let image = Tensor::from_slice(Shape::new(&[4, 5, 3]).unwrap(), &data).unwrap();
        let file = call("EncodePng").input(image).run().unwrap();
        let back = call("DecodePng").input(file).attr("dtype", DType::UInt16).run().unwrap();
        assert_eq!(back.as_slice::<u16>().unwrap(), data);
    }

    #[test]
    fn hostile_images() {
        for (dims, code) in [
            (&[2, 3][..], Code::InvalidArgument),
            (&[2, 3, 5], Code::InvalidArgument),
            (&[2, 3, 0], Code::InvalidArgument),
            (&[0, 3, 3], Code::InvalidArgument),
        ] {
            let error = call("EncodePng").input(image(dims, DType::UInt8)).run().unwrap_err();
            assert_eq!(error.code(), code, "{dims:?}");
        }
        for (dims, code) in [
            (&[2, 3][..], Code::InvalidArgument),
            (&[2, 3, 4], Code::InvalidArgument),
            (&[0, 3, 3], Code::Internal),
            (&[1, 70_000, 1], Code::Internal),
        ] {
            let error = call("EncodeJpeg").input(image(dims, DType::UInt8)).run().unwrap_err();
            assert_eq!(error.code(), code, "{dims:?}");
        }
        for quality in [-1, 101, i64::MAX] {
            let bad = call("EncodeJpeg").input(image(&[2, 2, 3], DType::UInt8));
            let error = bad.attr("quality", quality).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
        }
        let plain = call("EncodeJpeg").input(image(&[9, 2, 3], DType::UInt8));
        for setting in ["progressive", "optimize_size", "chroma_downsampling"] {
            call("EncodeJpeg")
                .input(image(&[9, 2, 3], DType::UInt8))
                .attr(setting, true)
                .run()
                .unwrap();
        }
        plain.attr("xmp_metadata", "hello").run().unwrap();
    }
}
