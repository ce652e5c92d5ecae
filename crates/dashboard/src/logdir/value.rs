//! The value of a summary: a scalar, a histogram, images or texts, as TensorFlow 1 and 2 write them.

use thalweg_proto as pb;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Bytes, DType, Tensor, bf16, f16};

use super::thinned::Size;

/// Most buckets of a histogram; neighbours are merged in larger ones.
const BUCKETS_MAX: usize = 256;
/// Most images of one summary, and bytes of one.
const IMAGES_MAX: usize = 16;
const IMAGE_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a text.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most elements of a tensor that is read.
const ELEMENTS_MAX: i64 = 1 << 20;

/// What is shown of a summary.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Scalar(f64),
    /// Left and right limit and count of each bucket.
    Histogram(Vec<[f64; 3]>),
    Images(Vec<Image>),
    Text(String),
}

/// An encoded image.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Image {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Its content type.
    pub(super) kind: &'static str,
    pub(super) bytes: Bytes,
}

/// A value with the step and the time (seconds since 1970) of its event.
#[derive(Debug)]
pub(super) struct Timed<T> {
    pub(super) step: i64,
    pub(super) wall_time: f64,
    pub(super) value: T,
}

/// Bytes of a value beside its content.
const HEADER_BYTES: usize = 64;

impl Size for Timed<f64> {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

impl Size for Timed<Vec<[f64; 3]>> {
    fn bytes(&self) -> usize {
        HEADER_BYTES + size_of_val(&self.value[..])
    }
}

impl Size for Timed<Vec<Image>> {
    fn bytes(&self) -> usize {
        self.value.iter().map(|image| HEADER_BYTES + image.bytes.len()).sum()
    }
}

impl Size for Timed<String> {
    fn bytes(&self) -> usize {
        HEADER_BYTES + self.value.len()
    }
}

impl Value {
    /// Reads a summary value; none if it is not of a kind that is shown. `plugin` is the tag's plugin: later
    /// values of a tag need not name it.
    pub(super) fn read(value: pb::summary::Value, plugin: &str) -> Option<Value> {
        match value.value? {
            Content::SimpleValue(number) => Some(Value::Scalar(f64::from(number))),
            Content::Histo(histogram) => Some(Value::Histogram(buckets(&histogram))),
            Content::Image(image) => {
                let size = (u32::try_from(image.width).ok()?, u32::try_from(image.height).ok()?);
                Some(Value::Images(vec![read_image(size, &image.encoded_image_string)?]))
            }
            Content::Tensor(tensor) => match plugin {
                "scalars" => number(&tensor).map(Value::Scalar),
                "histograms" => Some(Value::Histogram(tensor_buckets(&tensor)?)),
                "images" => tensor_images(&tensor).map(Value::Images),
                "text" => Some(Value::Text(text(&tensor)?)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The tensor of a summary, if it is small.
fn read_tensor(proto: &pb::TensorProto) -> Option<Tensor> {
    let dims = proto.tensor_shape.iter().flat_map(|shape| &shape.dim);
    let elements = dims.map(|dim| dim.size).try_fold(1i64, i64::checked_mul)?;
    if !(0..=ELEMENTS_MAX).contains(&elements) {
        return None;
    }
    Tensor::from_proto(proto, None).ok()
}

/// The only element of a numeric tensor.
fn number(proto: &pb::TensorProto) -> Option<f64> {
    let tensor = read_tensor(proto).filter(|tensor| tensor.num_elements() == 1)?;
    macro_rules! element {
        ($t:ty) => {
            tensor.as_slice::<$t>().ok()?.first().map(|&x| f64::from(x))
        };
    }
    match tensor.dtype() {
        DType::Float => element!(f32),
        DType::Double => element!(f64),
        DType::Half => element!(f16),
        DType::BFloat16 => element!(bf16),
        DType::Int8 => element!(i8),
        DType::Int16 => element!(i16),
        DType::Int32 => element!(i32),
        DType::UInt8 => element!(u8),
        DType::UInt16 => element!(u16),
        DType::UInt32 => element!(u32),
        DType::Int64 => tensor.as_slice::<i64>().ok()?.first().map(|&x| x as f64),
        DType::UInt64 => tensor.as_slice::<u64>().ok()?.first().map(|&x| x as f64),
        _ => None,
    }
}

/// TensorFlow 1's histogram: upper limits, the first and the last of which may be infinite.
fn buckets(histogram: &pb::HistogramProto) -> Vec<[f64; 3]> {
    let (min, max) = (histogram.min, histogram.max);
    let mut left = min;
    let mut buckets = Vec::new();
    for (&limit, &count) in histogram.bucket_limit.iter().zip(&histogram.bucket) {
        let right = limit.min(max);
        // Empty buckets outside of the values' range.
        if right > left || count > 0.0 {
            buckets.push([left, right.max(left), count]);
            left = right.max(left);
        }
    }
    merged(&buckets)
}

/// TensorFlow 2's histogram: a row of left limit, right limit and count for each bucket.
fn tensor_buckets(proto: &pb::TensorProto) -> Option<Vec<[f64; 3]>> {
    let tensor = read_tensor(proto)?;
    let shape = tensor.shape();
    if shape.len() != 2 || shape[1] != 3 {
        return None;
    }
    let rows = |values: Vec<f64>| values.chunks_exact(3).map(|r| [r[0], r[1], r[2]]).collect();
    let buckets: Vec<[f64; 3]> = match tensor.dtype() {
        DType::Double => rows(tensor.as_slice::<f64>().ok()?.to_vec()),
        DType::Float => {
            rows(tensor.as_slice::<f32>().ok()?.iter().map(|&x| f64::from(x)).collect())
        }
        _ => return None,
    };
    Some(merged(&buckets))
}

/// At most [`BUCKETS_MAX`] buckets.
fn merged(buckets: &[[f64; 3]]) -> Vec<[f64; 3]> {
    let group = buckets.len().div_ceil(BUCKETS_MAX).max(1);
    let merge = |group: &[[f64; 3]]| {
        let count = group.iter().map(|[_, _, count]| count).sum();
        Some([group.first()?[0], group.last()?[1], count])
    };
    buckets.chunks(group).filter_map(merge).collect()
}

/// Width, height and encoded images.
fn tensor_images(proto: &pb::TensorProto) -> Option<Vec<Image>> {
    let strings = strings(proto)?;
    let [width, height, files @ ..] = &strings[..] else { return None };
    let size = |text: &Bytes| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
    let size = (size(width)?, size(height)?);
    let images = files.iter().take(IMAGES_MAX);
    let images: Vec<Image> = images.filter_map(|bytes| read_image(size, bytes)).collect();
    (!images.is_empty()).then_some(images)
}

/// An image in a format that cannot contain scripts.
fn read_image((width, height): (u32, u32), bytes: &Bytes) -> Option<Image> {
    let kind = match &bytes[..] {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        _ => return None,
    };
    // A copy: the bytes are a view of the whole event.
    let bytes = Bytes::copy_from_slice(bytes);
    (bytes.len() <= IMAGE_BYTES_MAX).then_some(Image { width, height, kind, bytes })
}

/// The strings of a tensor, one below the other.
fn text(proto: &pb::TensorProto) -> Option<String> {
    let mut text = String::new();
    for string in strings(proto)? {
        if !text.is_empty() {
            text.push('\n');
        }
        let rest = TEXT_BYTES_MAX.saturating_sub(text.len());
        let cut = &string[..string.len().min(rest)];
        text.push_str(&String::from_utf8_lossy(cut));
        if cut.len() < string.len() {
            text.push('…');
            break;
        }
    }
    Some(text)
}

fn strings(proto: &pb::TensorProto) -> Option<Vec<Bytes>> {
    let tensor = read_tensor(proto).filter(|tensor| tensor.dtype() == DType::String)?;
    Some(tensor.strings().ok()?.to_vec())
}

#[cfg(test)]
mod tests {
    use thalweg_formats::events::{Histogram, summary};
    use thalweg_tensor::Shape;

    use super::*;

    fn read(value: pb::summary::Value) -> Option<Value> {
        let plugin = value.metadata.as_ref().and_then(|m| m.plugin_data.as_ref());
        let plugin = plugin.map_or(String::new(), |p| p.plugin_name.clone());
        Value::read(value, &plugin)
    }

    #[test]
    fn scalars_of_both_versions() {
        let old = summary::plain("loss", Content::SimpleValue(0.5));
        assert_eq!(read(old), Some(Value::Scalar(0.5)));
        assert_eq!(read(summary::scalar("loss", 0.25).unwrap()), Some(Value::Scalar(0.25)));
        let vector = Tensor::vector(&[1.0f32, 2.0]).unwrap();
        let class = pb::DataClass::Tensor;
        let value = summary::for_plugin("x", "scalars", Bytes::new(), class, &vector).unwrap();
        assert_eq!(read(value), None);
    }

    #[test]
    fn histograms_of_both_versions() {
        let mut histogram = Histogram::new();
        [1.0, 1.0, 2.0, -3.0].into_iter().for_each(|x| histogram.add(x));
        let Some(Value::Histogram(buckets)) = read(summary::histogram("w", histogram)) else {
            panic!("no histogram")
        };
        assert_eq!(buckets.iter().map(|b| b[2]).sum::<f64>(), 4.0);
        assert_eq!((buckets[0][0], buckets.last().unwrap()[1]), (-3.0, 2.0));
        assert!(buckets.iter().all(|[left, right, _]| left <= right), "{buckets:?}");
        assert!(buckets.windows(2).all(|w| w[0][1] == w[1][0]), "{buckets:?}");

        let rows: Vec<f64> =
            (0..1000).flat_map(|i| [f64::from(i), f64::from(i + 1), 1.0]).collect();
        let tensor = Tensor::from_slice(Shape::new(&[1000, 3]).unwrap(), &rows).unwrap();
        let class = pb::DataClass::Tensor;
        let value = summary::for_plugin("w", "histograms", Bytes::new(), class, &tensor).unwrap();
        let Some(Value::Histogram(buckets)) = read(value) else { panic!("no histogram") };
        assert!(buckets.len() <= BUCKETS_MAX, "{}", buckets.len());
        assert_eq!(buckets.iter().map(|b| b[2]).sum::<f64>(), 1000.0);
        assert_eq!((buckets[0][0], buckets.last().unwrap()[1]), (0.0, 1000.0));
    }

    #[test]
    fn images_are_images() {
        let png = Bytes::from_static(b"\x89PNG....");
        let script = Bytes::from_static(b"<svg onload='alert(1)'>");
        let files = [png.clone(), script.clone()];
        let Some(Value::Images(images)) = read(summary::images("i", 28, 20, &files).unwrap())
        else {
            panic!("no image")
        };
        assert_eq!(images.len(), 1);
        assert_eq!((images[0].width, images[0].height, images[0].kind), (28, 20, "image/png"));
        let image = |bytes: Bytes| {
            let image = pb::summary::Image {
                width: 2,
                height: -1,
                encoded_image_string: bytes,
                ..Default::default()
            };
            read(summary::plain("i", Content::Image(image)))
        };
        assert_eq!((image(png), image(script)), (None, None));
    }

    #[test]
    fn texts_are_cut() {
        let long = "ä".repeat(TEXT_BYTES_MAX);
        let Some(Value::Text(text)) = read(summary::text("t", &["a", &long, "b"]).unwrap()) else {
            panic!("no text")
        };
        assert!(
            text.starts_with("a\nää") && text.ends_with('…') && text.len() < TEXT_BYTES_MAX + 10
        );
    }
}
