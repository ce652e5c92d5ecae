//! Summary ops: serialized `Summary` messages for TensorBoard.

pub(crate) mod audio;
pub(crate) mod histogram;
pub(crate) mod image;
pub(crate) mod writer;

use std::collections::HashSet;

use prost::Message;
use thalweg_formats::wire::{Content as Wire, Fields};
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_proto::summary::value::Value as Content;
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Bytes, DType, Result, Tensor, bf16, ensure, err, f16};

use crate::parsing::{scalar_string, set_scalar_string};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ScalarSummary", shape::scalar).without_gradient(),
        OpDef::new("MergeSummary", shape::scalar).without_gradient(),
        OpDef::new("TensorSummary", shape::scalar).without_gradient(),
        OpDef::new("TensorSummaryV2", shape::scalar).without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "ScalarSummary", create: scalar_summary, ..KernelSpec::CPU },
        KernelSpec { op: "MergeSummary", create: merge_summary, ..KernelSpec::CPU },
        KernelSpec { op: "TensorSummary", create: tensor_summary, ..KernelSpec::CPU },
        KernelSpec { op: "TensorSummaryV2", create: tensor_summary_v2, ..KernelSpec::CPU },
    ],
};

/// A tag as text.
pub(crate) fn text(tag: &Bytes) -> Result<String> {
    String::from_utf8(tag.to_vec())
        .map_err(|_| err!(InvalidArgument, "the tag {tag:?} of a summary is not valid UTF-8"))
}

/// One value under a tag.
pub(crate) fn value(tag: String, content: Content) -> pb::summary::Value {
    pb::summary::Value { tag, value: Some(content), ..Default::default() }
}

/// Sets the output to the message.
pub(crate) fn set_summary(
    ctx: &mut KernelContext<'_>,
    value: Vec<pb::summary::Value>,
) -> Result<()> {
    let summary = pb::Summary { value };
    ctx.budget().check(summary.encoded_len())?;
    set_scalar_string(ctx, 0, summary.to_bytes())
}

/// The tag of one of several images or audio clips.
pub(crate) fn numbered_tag(base: &str, kind: &str, number: usize, max: i64) -> String {
    if max > 1 { format!("{base}/{kind}/{number}") } else { format!("{base}/{kind}") }
}

/// Calls a function with each element of a real tensor.
pub(crate) fn for_each_number(
    tensor: &Tensor,
    mut each: impl FnMut(f64) -> Result<()>,
) -> Result<()> {
    macro_rules! numbers {
        ($($dtype:ident: $t:ty => $widen:expr),+ $(,)?) => {
            match tensor.dtype() {
                $(DType::$dtype => {
                    tensor.as_slice::<$t>()?.iter().try_for_each(|&x| each($widen(x)))
                })+
                other => Err(err!(InvalidArgument, "summaries do not support dtype {other}")),
            }
        };
    }
    numbers! {
        Float: f32 => f64::from,
        Double: f64 => f64::from,
        Half: f16 => f64::from,
        BFloat16: bf16 => f64::from,
        Int8: i8 => f64::from,
        Int16: i16 => f64::from,
        Int32: i32 => f64::from,
        Int64: i64 => |x| x as f64,
        UInt8: u8 => f64::from,
        UInt16: u16 => f64::from,
        UInt32: u32 => f64::from,
        UInt64: u64 => |x| x as f64,
    }
}

fn scalar_summary(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (tags, values) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            tags.shape() == values.shape(),
            InvalidArgument,
            "tags and values are not the same shape: {} != {}",
            tags.shape(),
            values.shape()
        );
        let mut summary = Vec::new();
        let mut tag = tags.strings()?.iter();
        for_each_number(values, |x| {
            let tag = text(tag.next().expect("tags are as many as values"))?;
            summary.push(value(tag, Content::SimpleValue(x as f32)));
            Ok(())
        })?;
        set_summary(ctx, summary)
    })
}

fn merge_summary(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (mut seen, mut merged) = (HashSet::new(), Vec::new());
        for i in 0..ctx.num_inputs() {
            for bytes in ctx.input(i)?.strings()? {
                let summary = pb::Summary::decode_from(&mut bytes.clone()).map_err(|e| {
                    err!(InvalidArgument, "Could not parse one of the summary inputs: {e}")
                })?;
                for value in summary.value {
                    ensure!(
                        value.tag.is_empty() || !seen.contains(&value.tag),
                        InvalidArgument,
                        "Duplicate tag {} found in summary inputs",
                        value.tag
                    );
                    seen.insert(value.tag);
                }
                // The serialized values only, without unknown fields of the messages.
                ctx.budget().check(merged.len() + bytes.len())?;
                for field in Fields::new(bytes) {
                    let (number, content) = field?;
                    if let (1, Wire::Bytes(value)) = (number, content) {
                        push_value(value, &mut merged);
                    }
                }
            }
        }
        set_scalar_string(ctx, 0, merged)
    })
}

fn tensor_summary(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let node_name = init.node.name.to_string();
    AnyKernel::new(move |ctx| {
        let name = pb::summary::Value { node_name: node_name.clone(), ..Default::default() };
        let tensor = tensor_value(ctx.input(0)?)?;
        set_joined(ctx, &[name, tensor])
    })
}

fn tensor_summary_v2(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let tag = text(&scalar_string(ctx, 0, "tag")?)?;
        let serialized = scalar_string(ctx, 2, "serialized_summary_metadata")?;
        let mut metadata = pb::SummaryMetadata::default();
        // As in TensorFlow, invalid metadata is used as far as it can be parsed.
        let _ = metadata.merge(serialized);
        let name = pb::summary::Value { tag, ..Default::default() };
        let tensor = tensor_value(ctx.input(1)?)?;
        let metadata = pb::summary::Value { metadata: Some(metadata), ..Default::default() };
        set_joined(ctx, &[name, tensor, metadata])
    })
}

fn tensor_value(tensor: &Tensor) -> Result<pb::summary::Value> {
    let proto = tensor.to_proto()?;
    Ok(value(String::new(), Content::Tensor(proto)))
}

/// Sets the output to one value with the fields of `parts`, in this order: TensorFlow serializes
/// fields in the order of their numbers, including those of a `oneof`.
fn set_joined(ctx: &mut KernelContext<'_>, parts: &[pb::summary::Value]) -> Result<()> {
    let length: usize = parts.iter().map(Message::encoded_len).sum();
    ctx.budget().check(2 * length)?;
    let mut joined = Vec::with_capacity(length);
    for part in parts {
        part.encode_into(&mut joined);
    }
    let mut summary = Vec::with_capacity(length + 16);
    push_value(&joined, &mut summary);
    set_scalar_string(ctx, 0, summary)
}

/// Appends a serialized value to a serialized summary.
fn push_value(value: &[u8], summary: &mut Vec<u8>) {
    prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, summary);
    prost::encoding::encode_varint(value.len() as u64, summary);
    summary.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Shape};

    use super::*;
    use crate::testing::{call, code};

    pub(crate) fn decoded(output: Result<Tensor>) -> Vec<pb::summary::Value> {
        pb::Summary::decode_from(&mut output.unwrap().strings().unwrap()[0].clone()).unwrap().value
    }

    fn words(items: &[&str]) -> Tensor {
        let items: Vec<Bytes> =
            items.iter().map(|s| Bytes::copy_from_slice(s.as_bytes())).collect();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    fn scalar(tag: &str, value: Tensor) -> Result<Tensor> {
        call("ScalarSummary").input(Tensor::scalar_string(tag.to_owned())).input(value).run()
    }

    #[test]
    fn scalars() {
        for one in [Tensor::scalar(3u8), Tensor::scalar(3i64), Tensor::scalar(3.0f64)] {
            let values = decoded(scalar("loss", one));
            assert_eq!(values, [value("loss".into(), Content::SimpleValue(3.0))]);
        }
        let both = call("ScalarSummary")
            .input(words(&["a", "b"]))
            .input(Tensor::vector(&[1.0f32, 2.0]).unwrap());
        assert_eq!(decoded(both.run()).len(), 2);
        let uneven = call("ScalarSummary").input(words(&["a", "b"])).input(Tensor::scalar(1.0f32));
        assert_eq!(uneven.run().unwrap_err().code(), Code::InvalidArgument);
        let not_text = Tensor::scalar_string(&b"\xff"[..]);
        assert_eq!(
            code(call("ScalarSummary").input(not_text).input(Tensor::scalar(1i8)).run()),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn merging() {
        let merge =
            |a: Tensor, b: Tensor| call("MergeSummary").input(a).input(b).attr("N", 2).run();
        let a = scalar("a", Tensor::scalar(1.0f32)).unwrap();
        let b = scalar("b", Tensor::scalar(2.0f32)).unwrap();
        assert_eq!(decoded(merge(a.clone(), b)).len(), 2);
        assert_eq!(merge(a.clone(), a.clone()).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(
            code(merge(a, Tensor::scalar_string(&b"\x0a\x7f"[..]))),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn tensors_keep_the_order_of_fields() {
        let output = call("TensorSummaryV2")
            .input(Tensor::scalar_string(&b"t"[..]))
            .input(Tensor::vector(&[1.0f32, 2.0]).unwrap())
            .input(Tensor::scalar_string(&b""[..]))
            .run();
        let bytes = output.unwrap().strings().unwrap()[0].clone();
        assert_eq!(bytes[..7], *b"\x0a\x19\x0a\x01tB\x12");
        assert_eq!(bytes[bytes.len() - 2..], *b"J\0");
        let broken = call("TensorSummaryV2")
            .input(Tensor::scalar_string(&b"t"[..]))
            .input(Tensor::scalar(1.0f32))
            .input(Tensor::scalar_string(&b"\x0a\x7f"[..]));
        assert_eq!(decoded(broken.run())[0].tag, "t");
    }
}
