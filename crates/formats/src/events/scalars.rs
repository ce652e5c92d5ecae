//! Extraction of scalars from event files, without decoding the rest.
//!
//! A scalar is a `simple_value`, as TensorFlow 1 writes it, or a tensor of one element. The first
//! value of a tag names its plugin; later values need not.

use std::collections::BTreeMap;

use prost::Message;
use thalweg_proto as pb;
use thalweg_tensor::{Bytes, DType, Result, Tensor, bf16, err, f16};

use super::EventReader;
use crate::wire::{Content, Fields};

/// The kind of data under a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the dashboard's")]
pub enum TagKind {
    Scalar,
    Histogram,
    Image,
    Audio,
    Text,
    Graph,
    RunMetadata,
    HParams,
    Tensor,
}

impl TagKind {
    /// The name of TensorBoard's plugin.
    pub fn name(self) -> &'static str {
        match self {
            TagKind::Scalar => "scalars",
            TagKind::Histogram => "histograms",
            TagKind::Image => "images",
            TagKind::Audio => "audio",
            TagKind::Text => "text",
            TagKind::Graph => "graphs",
            TagKind::RunMetadata => "run_metadata",
            TagKind::HParams => "hparams",
            TagKind::Tensor => "tensors",
        }
    }

    fn of_plugin(name: &[u8]) -> Option<TagKind> {
        Some(match name {
            b"scalars" => TagKind::Scalar,
            b"histograms" => TagKind::Histogram,
            b"images" => TagKind::Image,
            b"audio" => TagKind::Audio,
            b"text" => TagKind::Text,
            b"hparams" => TagKind::HParams,
            b"" => return None,
            _ => TagKind::Tensor,
        })
    }
}

/// The tags of a file, with their kind and number of events.
pub type Tags = BTreeMap<String, (TagKind, u64)>;

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// The index of the tag, see [`Scalars::tag`].
    pub tag: usize,
    /// The step.
    pub step: i64,
    /// Seconds since 1970.
    pub wall_time: f64,
    /// The value.
    pub value: f64,
}

/// Reads tags and scalars of event files.
#[derive(Default)]
pub struct Scalars {
    names: Vec<String>,
    /// By the bytes of the name: a known name need not be checked for UTF-8 again.
    by_name: BTreeMap<Box<[u8]>, usize>,
    kinds: Vec<(TagKind, u64)>,
    /// The scalars of the last event.
    found: Vec<Scalar>,
}

/// The relevant fields of a summary value.
#[derive(Default)]
struct Value<'a> {
    tag: &'a [u8],
    plugin: &'a [u8],
    simple: Option<f32>,
    tensor: Option<&'a [u8]>,
    other: Option<TagKind>,
}

impl Scalars {
    /// No tags yet.
    pub fn new() -> Scalars {
        Scalars::default()
    }

    /// The name of a tag.
    pub fn tag(&self, tag: usize) -> &str {
        &self.names[tag]
    }

    /// All tags seen so far.
    pub fn tags(&self) -> Tags {
        self.names.iter().cloned().zip(self.kinds.iter().copied()).collect()
    }

    /// Reads the next event of a file; returns its scalars, or `None` at the end.
    pub fn next(&mut self, reader: &mut EventReader) -> Result<Option<&[Scalar]>> {
        self.found.clear();
        let Some(event) = reader.next_serialized()? else { return Ok(None) };
        let read = self.event(event);
        read.map_err(|e| {
            let (path, offset) = (reader.path(), reader.event_offset());
            err!(DataLoss, "{path}: record at byte {offset} is not an event: {}", e.message())
        })?;
        Ok(Some(&self.found))
    }

    fn event(&mut self, event: &[u8]) -> Result<()> {
        let (mut wall_time, mut step, mut summary) = (0.0, 0i64, None);
        for field in Fields::new(event) {
            match field? {
                (1, Content::Fixed64(bits)) => wall_time = f64::from_bits(bits),
                (2, Content::Varint(number)) => step = number.cast_signed(),
                (4 | 9, Content::Bytes(_)) => self.count("", TagKind::Graph),
                (5, Content::Bytes(message)) => summary = Some(message),
                (8, Content::Bytes(message)) => self.run_metadata(message)?,
                _ => {}
            }
        }
        for field in Fields::new(summary.unwrap_or_default()) {
            if let (1, Content::Bytes(message)) = field? {
                let value = Value::read(message)?;
                self.value(&value, step, wall_time)?;
            }
        }
        Ok(())
    }

    fn run_metadata(&mut self, message: &[u8]) -> Result<()> {
        let tagged = pb::TaggedRunMetadata::decode(message)
            .map_err(|e| err!(DataLoss, "run metadata: {e}"))?;
        self.count(&tagged.tag, TagKind::RunMetadata);
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>, step: i64, wall_time: f64) -> Result<()> {
        let tag = match self.by_name.get(value.tag) {
            Some(&tag) => tag,
            None => {
                let name = std::str::from_utf8(value.tag).map_err(|_| {
                    err!(DataLoss, "the tag {:?} is not UTF-8", Bytes::copy_from_slice(value.tag))
                })?;
                self.add(name, value.kind())
            }
        };
        let (kind, count) = &mut self.kinds[tag];
        *count += 1;
        if *kind != TagKind::Scalar {
            return Ok(());
        }
        let number = match (value.simple, value.tensor) {
            (Some(number), _) => Some(f64::from(number)),
            (None, Some(tensor)) => match plain_number(tensor) {
                Some(number) => Some(number),
                None => number(tensor)?,
            },
            (None, None) => None,
        };
        if let Some(value) = number {
            self.found.push(Scalar { tag, step, wall_time, value });
        }
        Ok(())
    }

    fn count(&mut self, name: &str, kind: TagKind) {
        let tag = self.by_name.get(name.as_bytes()).copied();
        let tag = tag.unwrap_or_else(|| self.add(name, kind));
        self.kinds[tag].1 += 1;
    }

    /// Adds a tag; returns its index.
    fn add(&mut self, name: &str, kind: TagKind) -> usize {
        let tag = self.names.len();
        self.by_name.insert(name.as_bytes().into(), tag);
        self.names.push(name.to_owned());
        self.kinds.push((kind, 0));
        tag
    }
}

impl<'a> Value<'a> {
    /// The kind of a tag by its first value.
    fn kind(&self) -> TagKind {
        TagKind::of_plugin(self.plugin).or(self.other).unwrap_or(if self.simple.is_some() {
            TagKind::Scalar
        } else {
            TagKind::Tensor
        })
    }

    fn read(message: &'a [u8]) -> Result<Value<'a>> {
        let mut value = Value::default();
        for field in Fields::new(message) {
            match field? {
                (1, Content::Bytes(tag)) => value.tag = tag,
                (2, Content::Fixed32(bits)) => value.simple = Some(f32::from_bits(bits)),
                (3 | 5, _) => value.other = Some(TagKind::Histogram),
                (4, _) => value.other = Some(TagKind::Image),
                (6, _) => value.other = Some(TagKind::Audio),
                (8, Content::Bytes(tensor)) => value.tensor = Some(tensor),
                (9, Content::Bytes(metadata)) => value.plugin = plugin_name(metadata)?,
                _ => {}
            }
        }
        Ok(value)
    }
}

/// The plugin name of a `SummaryMetadata`.
fn plugin_name(metadata: &[u8]) -> Result<&[u8]> {
    let mut name = &[][..];
    for field in Fields::new(metadata) {
        let (1, Content::Bytes(data)) = field? else { continue };
        for field in Fields::new(data) {
            if let (1, Content::Bytes(found)) = field? {
                name = found;
            }
        }
    }
    Ok(name)
}

/// The value of a tensor encoded as TensorFlow's and our writers encode a scalar `float`; `None`
/// for any other encoding.
fn plain_number(tensor: &[u8]) -> Option<f64> {
    const FLOAT: Content<'_> = Content::Varint(pb::DataType::DtFloat as u64);
    let mut number = None;
    for (i, field) in Fields::new(tensor).enumerate() {
        match (i, field.ok()?) {
            (0, (1, content)) if content == FLOAT => {}
            (1, (2, Content::Bytes([]))) => {}
            (2, (4, Content::Bytes(content))) => {
                number = Some(f32::from_le_bytes(content.try_into().ok()?));
            }
            (2, (5, Content::Bytes(packed))) => {
                number = Some(f32::from_le_bytes(packed.try_into().ok()?));
            }
            (2, (5, Content::Fixed32(bits))) => number = Some(f32::from_bits(bits)),
            _ => return None,
        }
    }
    number.map(f64::from)
}

/// The only element of a tensor, if it has one and it is numeric.
fn number(tensor: &[u8]) -> Result<Option<f64>> {
    let proto = pb::TensorProto::decode(Bytes::copy_from_slice(tensor))
        .map_err(|e| err!(DataLoss, "a tensor cannot be read: {e}"))?;
    let dims = proto.tensor_shape.iter().flat_map(|shape| &shape.dim);
    if dims.clone().any(|dim| dim.size != 1) || dims.count() > 8 {
        return Ok(None);
    }
    let tensor = Tensor::from_proto(&proto, None)?;
    macro_rules! element {
        ($t:ty) => {
            tensor.as_slice::<$t>()?.first().map(|&x| f64::from(x))
        };
    }
    Ok(match tensor.dtype() {
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
        DType::Int64 => tensor.as_slice::<i64>()?.first().map(|&x| x as f64),
        DType::UInt64 => tensor.as_slice::<u64>()?.first().map(|&x| x as f64),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value that the fast path decodes, the general path decodes to the same number.
    #[test]
    fn both_ways_to_a_number_agree() {
        let float = |rest: &[u8]| [&b"\x08\x01\x12\x00"[..], rest].concat();
        for (tensor, expected) in [
            (float(b"\x22\x04\x00\x00\x20\x40"), Some(2.5)),
            (float(b"\x2a\x04\x00\x00\x20\x40"), Some(2.5)),
            (float(b"\x2d\x00\x00\x20\x40"), Some(2.5)),
            // Two numbers, none, another type, a vector, another order.
            (float(b"\x2a\x08\x00\x00\x20\x40\x00\x00\x20\x40"), None),
            (float(b"\x2a\x04\x00\x00\x20\x40\x2a\x04\x00\x00\x20\x40"), None),
            (float(b""), None),
            (float(b"\x22\x03\x00\x00\x20"), None),
            (b"\x08\x02\x12\x00\x22\x08\0\0\0\0\0\0\x04\x40".to_vec(), None),
            (b"\x08\x01\x12\x04\x12\x02\x08\x01\x2d\x00\x00\x20\x40".to_vec(), None),
            (b"\x12\x00\x08\x01\x2d\x00\x00\x20\x40".to_vec(), None),
            (b"\x08\x01\x12\x00\x2d\x00".to_vec(), None),
        ] {
            assert_eq!(plain_number(&tensor), expected, "{tensor:?}");
            if expected.is_some() {
                assert_eq!(number(&tensor).unwrap(), expected, "{tensor:?}");
            }
        }
        let written = Tensor::scalar(0.75f32).to_proto().unwrap().encode_to_vec();
        assert_eq!(plain_number(&written), Some(0.75));
    }
}
