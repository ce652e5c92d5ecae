//! An upper bound on the memory of a decoded message, computed from its encoded bytes.
//!
//! An empty string has two bytes when encoded and a dozen times as many when decoded, an example with one
//! feature seventy times as many. Large messages are scanned along the fields that may hold many elements;
//! small ones are charged by the worst ratio.

use bytes::{Buf, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint};
use thalweg_proto::{Example, Feature};
use thalweg_rpc::Rope;

/// Messages up to this size are not scanned.
const SMALL_BYTES: usize = 1 << 10;
/// Decoded bytes per encoded byte of a small message, or of one that cannot be scanned.
const WORST_FACTOR: usize = 64;
/// A growing list has twice the capacity of its elements, and exists twice while it is reallocated.
const GROWTH: usize = 3;

/// Memory of the decoded fields of one kind.
pub(super) struct FieldKind {
    /// Decoded bytes of each field, besides its encoded bytes.
    each: usize,
    /// Decoded bytes for each encoded byte.
    factor: usize,
    /// Fields that are scanned recursively or counted.
    fields: &'static [(u32, &'static FieldKind)],
}

const PLAIN: FieldKind = FieldKind { each: 0, factor: 1, fields: &[] };
const STRING: FieldKind = FieldKind { each: GROWTH * size_of::<Bytes>(), ..PLAIN };
/// Packed numbers, a byte or more in the message and up to eight each in memory.
const NUMBERS: FieldKind = FieldKind { factor: GROWTH * 8, ..PLAIN };
/// Packed numbers of fixed size.
const FIXED: FieldKind = FieldKind { factor: GROWTH, ..PLAIN };

const TENSOR: FieldKind = FieldKind {
    each: 1024,
    fields: &[
        (5, &FIXED),
        (6, &FIXED),
        (7, &NUMBERS),
        (8, &STRING),
        (9, &FIXED),
        (10, &NUMBERS),
        (11, &NUMBERS),
        (12, &FIXED),
        (13, &NUMBERS),
        (14, &HANDLE),
        (15, &HANDLE),
        (16, &NUMBERS),
        (17, &NUMBERS),
    ],
    ..PLAIN
};
/// Resource handles and variants are not inputs of models; they are charged by the worst ratio.
const HANDLE: FieldKind = FieldKind { each: 512, factor: WORST_FACTOR, fields: &[] };
/// A name with a tensor, in a map.
const NAMED_TENSOR: FieldKind =
    FieldKind { each: 512, fields: &[(1, &STRING), (2, &TENSOR)], ..PLAIN };
/// A `PredictRequest`.
pub(super) const PREDICT: FieldKind =
    FieldKind { fields: &[(2, &NAMED_TENSOR), (3, &STRING)], ..PLAIN };
/// A `SessionRunRequest`.
pub(super) const SESSION_RUN: FieldKind =
    FieldKind { fields: &[(2, &NAMED_TENSOR), (3, &STRING), (4, &STRING)], ..PLAIN };

/// Typed contents of KServe's tensors.
const CONTENTS: FieldKind = FieldKind {
    fields: &[
        (1, &NUMBERS),
        (2, &NUMBERS),
        (3, &NUMBERS),
        (4, &NUMBERS),
        (5, &NUMBERS),
        (6, &FIXED),
        (7, &FIXED),
        (8, &STRING),
    ],
    ..PLAIN
};
const PARAMETER: FieldKind = FieldKind { each: 512, ..PLAIN };
const INFER_INPUT: FieldKind =
    FieldKind { each: 1024, fields: &[(3, &NUMBERS), (4, &PARAMETER), (5, &CONTENTS)], ..PLAIN };
/// A `ModelInferRequest`.
pub(super) const INFER: FieldKind = FieldKind {
    fields: &[(4, &PARAMETER), (5, &INFER_INPUT), (6, &PARAMETER), (7, &STRING)],
    ..PLAIN
};

const FEATURE_BYTES: usize = size_of::<String>() + size_of::<Feature>();
const BYTES_LIST: FieldKind = FieldKind { fields: &[(1, &STRING)], ..PLAIN };
const FLOAT_LIST: FieldKind = FieldKind { fields: &[(1, &FIXED)], ..PLAIN };
const INT_LIST: FieldKind = FieldKind { fields: &[(1, &NUMBERS)], ..PLAIN };
const FEATURE: FieldKind =
    FieldKind { fields: &[(1, &BYTES_LIST), (2, &FLOAT_LIST), (3, &INT_LIST)], ..PLAIN };
/// A feature with its name: map nodes are at least half full, and names are allocated separately.
const ENTRY: FieldKind =
    FieldKind { each: 2 * FEATURE_BYTES + 32, fields: &[(2, &FEATURE)], ..PLAIN };
/// The first node of a map has a capacity of eleven.
const FEATURES: FieldKind = FieldKind { each: 12 * FEATURE_BYTES, fields: &[(1, &ENTRY)], ..PLAIN };
/// An example is also serialized to a string for the model.
const EXAMPLE: FieldKind = FieldKind {
    each: GROWTH * size_of::<Example>() + size_of::<Bytes>(),
    factor: 2,
    fields: &[(1, &FEATURES)],
};
const EXAMPLES: FieldKind = FieldKind { fields: &[(1, &EXAMPLE), (2, &EXAMPLE)], ..PLAIN };
const INPUT: FieldKind = FieldKind { fields: &[(1, &EXAMPLES), (2, &EXAMPLES)], ..PLAIN };
const TASK: FieldKind = FieldKind { each: 512, ..PLAIN };
/// A request for `Classify`, `Regress` or `MultiInference`.
pub(super) const EXAMPLES_REQUEST: FieldKind =
    FieldKind { fields: &[(1, &TASK), (2, &INPUT)], ..PLAIN };

/// Upper bound on the bytes of the encoded and the decoded message.
pub(super) fn bytes_max(rope: &Rope, kind: &FieldKind) -> usize {
    let bytes = rope.remaining();
    if bytes <= SMALL_BYTES {
        return bytes.saturating_mul(WORST_FACTOR);
    }
    let mut rest = rope.clone();
    let inside = scan(&mut rest, bytes, kind);
    // A message that cannot be scanned fails to decode, unless it has deprecated group fields.
    let unknown = rest.remaining().saturating_mul(WORST_FACTOR);
    bytes.saturating_add(inside.unwrap_or(unknown))
}

/// Decoded bytes besides the encoded ones; none if the message cannot be scanned.
fn scan(buf: &mut Rope, bytes: usize, kind: &FieldKind) -> Option<usize> {
    let end = buf.remaining().checked_sub(bytes)?;
    let mut total = 0usize;
    while buf.remaining() > end {
        let (tag, wire_type) = decode_key(buf).ok()?;
        let skipped = match wire_type {
            WireType::Varint => {
                decode_varint(buf).ok()?;
                0
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(buf).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        if skipped > buf.remaining() {
            return None;
        }
        let known = kind.fields.iter().find(|(number, _)| *number == tag);
        let Some((_, field)) = known else {
            buf.advance(skipped);
            continue;
        };
        let is_delimited = wire_type == WireType::LengthDelimited;
        // Unpacked numbers are one field each.
        let more = if is_delimited { skipped.saturating_mul(field.factor - 1) } else { GROWTH * 8 };
        total = total.saturating_add(field.each).saturating_add(more);
        if is_delimited && !field.fields.is_empty() {
            total = total.saturating_add(scan(buf, skipped, field)?);
        } else {
            buf.advance(skipped);
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message;
    use thalweg_proto::tensorflow::serving as pb;
    use thalweg_proto::{BytesList, Features, Int64List, TensorProto, feature};
    use thalweg_tensor::DType;

    use super::*;

    /// The message in data frames of `frame` bytes.
    fn rope(message: &impl Message, frame: usize) -> Rope {
        let mut rope = Rope::default();
        for piece in message.encode_to_vec().chunks(frame) {
            rope.push(Bytes::copy_from_slice(piece));
        }
        rope
    }

    fn predict(tensor: TensorProto) -> pb::PredictRequest {
        let inputs = BTreeMap::from([("x".to_owned(), tensor)]);
        pb::PredictRequest { inputs, ..Default::default() }
    }

    fn examples(example: Example, count: usize) -> pb::ClassificationRequest {
        let list = pb::ExampleList { examples: vec![example; count] };
        let input = pb::Input { kind: Some(pb::input::Kind::ExampleList(list)) };
        pb::ClassificationRequest { input: Some(input), ..Default::default() }
    }

    fn example(kind: feature::Kind) -> Example {
        let feature = BTreeMap::from([("f".to_owned(), Feature { kind: Some(kind) })]);
        Example { features: Some(Features { feature }) }
    }

    #[test]
    fn many_small_elements_are_charged_by_their_decoded_size() {
        let count = 10_000;
        let strings = TensorProto {
            dtype: DType::String.to_proto(),
            string_val: vec![Bytes::new(); count],
            ..Default::default()
        };
        let ints = Int64List { value: vec![1; count] };
        let words = BytesList { value: vec![Bytes::new(); count] };
        for frame in [7, 1000, 1 << 20] {
            let taken = bytes_max(&rope(&predict(strings.clone()), frame), &PREDICT);
            assert!(taken >= count * size_of::<Bytes>(), "{taken}");
            let empty =
                bytes_max(&rope(&examples(Example::default(), count), frame), &EXAMPLES_REQUEST);
            assert!(empty >= count * size_of::<Example>(), "{empty}");
            let one = example(feature::Kind::Int64List(Int64List::default()));
            let with_one = bytes_max(&rope(&examples(one, count), frame), &EXAMPLES_REQUEST);
            assert!(with_one >= count * 11 * FEATURE_BYTES, "{with_one}");
            let ints = example(feature::Kind::Int64List(ints.clone()));
            let ints = bytes_max(&rope(&examples(ints, 1), frame), &EXAMPLES_REQUEST);
            assert!(ints >= count * 8, "{ints}");
            let words = example(feature::Kind::BytesList(words.clone()));
            let words = bytes_max(&rope(&examples(words, 1), frame), &EXAMPLES_REQUEST);
            assert!(words >= count * size_of::<Bytes>(), "{words}");
        }
    }

    #[test]
    fn typed_contents_are_charged_too() {
        use thalweg_proto::inference::{
            InferTensorContents, ModelInferRequest, model_infer_request,
        };
        let contents = InferTensorContents {
            bytes_contents: vec![Bytes::new(); 10_000],
            ..Default::default()
        };
        let input = model_infer_request::InferInputTensor {
            contents: Some(contents),
            ..Default::default()
        };
        let request = ModelInferRequest { inputs: vec![input], ..Default::default() };
        let taken = bytes_max(&rope(&request, 1000), &INFER);
        assert!(taken >= 10_000 * size_of::<Bytes>(), "{taken}");
        let raw = vec![vec![1; 1 << 20].into()];
        let request = ModelInferRequest { raw_input_contents: raw, ..Default::default() };
        let taken = bytes_max(&rope(&request, 1000), &INFER);
        assert!((1 << 20..(1 << 20) + 4096).contains(&taken), "{taken}");
    }

    #[test]
    fn large_elements_are_charged_once() {
        let content = TensorProto { tensor_content: vec![1; 1 << 20].into(), ..Default::default() };
        let picture =
            TensorProto { string_val: vec![vec![1; 1 << 20].into()], ..Default::default() };
        for tensor in [content, picture] {
            let taken = bytes_max(&rope(&predict(tensor), 16 << 10), &PREDICT);
            assert!((1 << 20..(1 << 20) + 4096).contains(&taken), "{taken}");
        }
    }

    #[test]
    fn malformed_messages_are_charged_by_the_worst_ratio() {
        let bytes = vec![0x0b; 10_000];
        let mut rope = Rope::default();
        rope.push(bytes.into());
        assert!(bytes_max(&rope, &PREDICT) > 10_000 * 32);
        // A length beyond the end, within a message and at the end.
        for bytes in [vec![0x12, 0xff, 0xff, 0x7f], vec![0x12, 0x02, 0x12, 0x7f]] {
            let mut rope = Rope::default();
            rope.push(Bytes::from([0x1a, 0x00].repeat(5000)));
            rope.push(bytes.into());
            bytes_max(&rope, &PREDICT);
        }
    }
}
