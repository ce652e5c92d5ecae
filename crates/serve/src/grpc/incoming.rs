//! Decoding of `PredictRequest` with the numbers of tensors decoded straight into their tensors.
//!
//! `tensor_content` shares the message's memory. Packed `float_val` and `double_val` hold the same bytes under
//! another field number: if the tensor's dtype and shape precede the field and their element count matches, the
//! bytes are copied once, from the frames to the tensor. Every other encoding is decoded as the generated code
//! decodes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, decode_varint, encode_varint};
use prost::{DecodeError, Message};
use thalweg_proto::TensorProto;
use thalweg_proto::tensorflow::serving as pb;
use thalweg_tensor::{Budget, DType, Result, Shape, Tensor};

/// The fields of a `PredictRequest` that are used.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PredictRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) model_spec: Option<pb::ModelSpec>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) inputs: BTreeMap<String, IncomingTensor>,
    #[prost(string, repeated, tag = "3")]
    pub(super) output_filter: Vec<String>,
}

/// A `TensorProto`.
#[derive(Clone, Debug, Default)]
pub(super) struct IncomingTensor {
    proto: TensorProto,
    /// All numbers of `float_val` or `double_val`; `proto` has none then.
    numbers: Option<Tensor>,
}

const DTYPE: u32 = 1;
const TENSOR_SHAPE: u32 = 2;
const TENSOR_CONTENT: u32 = 4;
const FLOAT_VAL: u32 = 5;
const DOUBLE_VAL: u32 = 6;

impl IncomingTensor {
    /// The tensor; memory that is not allocated yet is charged to `budget`.
    pub(super) fn tensor(self, budget: &Arc<Budget>) -> Result<Tensor> {
        match self.numbers {
            Some(numbers) => Ok(numbers),
            None => Tensor::from_proto(&self.proto, Some(budget)),
        }
    }

    /// The dtype and shape of a field's numbers, if it holds all elements of the tensor.
    fn expected_numbers(&self, tag: u32, bytes: usize) -> Option<(DType, Shape)> {
        let is_first = self.numbers.is_none()
            && self.proto.float_val.is_empty()
            && self.proto.double_val.is_empty()
            && self.proto.tensor_content.is_empty();
        let dtype = DType::from_proto(self.proto.dtype).ok()?;
        let is_for =
            matches!((tag, dtype), (FLOAT_VAL, DType::Float) | (DOUBLE_VAL, DType::Double));
        let shape = Shape::from_proto(self.proto.tensor_shape.as_ref()?).ok()?;
        let is_all = shape.num_elements().checked_mul(dtype.size()) == Some(bytes);
        (is_first && is_for && is_all && bytes > 0).then_some((dtype, shape))
    }

    /// Decodes packed numbers.
    fn packed(
        &mut self,
        tag: u32,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let len = decode_varint(buf)?;
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        if bytes <= buf.remaining()
            && let Some((dtype, shape)) = self.expected_numbers(tag, bytes)
        {
            // At most as much memory as the message has.
            let read = Tensor::filled_with(dtype, shape, None, |target| {
                buf.copy_to_slice(target);
                Ok(())
            });
            if let Ok(numbers) = read {
                self.numbers = Some(numbers);
                return Ok(());
            }
        }
        self.move_to_proto();
        let mut head = Vec::with_capacity(10);
        encode_varint(len, &mut head);
        let mut again = head.as_slice().chain(&mut *buf);
        self.proto.merge_field(tag, WireType::LengthDelimited, &mut again, context)
    }

    /// Moves the numbers to the field of the generated code: a later field may change their meaning.
    fn move_to_proto(&mut self) {
        let Some(numbers) = self.numbers.take() else { return };
        if let Ok(floats) = numbers.as_slice::<f32>() {
            self.proto.float_val = floats.to_vec();
        } else if let Ok(doubles) = numbers.as_slice::<f64>() {
            self.proto.double_val = doubles.to_vec();
        }
    }

    fn whole(&self) -> TensorProto {
        let mut whole = self.clone();
        whole.move_to_proto();
        whole.proto
    }
}

impl PartialEq for IncomingTensor {
    fn eq(&self, other: &IncomingTensor) -> bool {
        self.whole() == other.whole()
    }
}

impl Message for IncomingTensor {
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match (tag, wire_type) {
            (FLOAT_VAL | DOUBLE_VAL, WireType::LengthDelimited) => self.packed(tag, buf, context),
            (DTYPE | TENSOR_SHAPE | TENSOR_CONTENT | FLOAT_VAL | DOUBLE_VAL, _) => {
                self.move_to_proto();
                self.proto.merge_field(tag, wire_type, buf, context)
            }
            _ => self.proto.merge_field(tag, wire_type, buf, context),
        }
    }

    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.whole().encode_raw(buf);
    }

    fn encoded_len(&self) -> usize {
        self.whole().encoded_len()
    }

    fn clear(&mut self) {
        *self = IncomingTensor::default();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use thalweg_proto::{TensorShapeProto, tensor_shape_proto::Dim};

    use super::*;

    fn shape(dims: &[i64]) -> TensorShapeProto {
        let dim = |&size: &i64| Dim { size, ..Default::default() };
        TensorShapeProto { dim: dims.iter().map(dim).collect(), ..Default::default() }
    }

    fn message(dtype: DType, dims: &[i64]) -> TensorProto {
        let (dtype, tensor_shape) = (dtype.to_proto(), Some(shape(dims)));
        TensorProto { dtype, tensor_shape, ..Default::default() }
    }

    fn floats(dims: &[i64], values: &[f32]) -> Vec<u8> {
        TensorProto { float_val: values.to_vec(), ..message(DType::Float, dims) }.encode_to_vec()
    }

    fn joined(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    /// Decodes the bytes with the generated code and with ours, in one piece and in several.
    fn same(bytes: &[u8]) -> Option<IncomingTensor> {
        let expected = TensorProto::decode(bytes);
        let whole = IncomingTensor::decode(bytes);
        for at in 0..=bytes.len().min(40) {
            let (front, back) = bytes.split_at(at);
            let pieces = Bytes::copy_from_slice(front).chain(Bytes::copy_from_slice(back));
            assert_eq!(
                IncomingTensor::decode(pieces).is_ok(),
                expected.is_ok(),
                "{bytes:?} cut at {at}"
            );
        }
        let Ok(expected) = expected else {
            assert!(whole.is_err(), "{bytes:?}");
            return None;
        };
        let whole = whole.unwrap();
        assert_eq!(whole.whole(), expected, "{bytes:?}");
        assert_eq!(whole.encode_to_vec(), expected.encode_to_vec());
        let budget = Budget::new(1 << 20);
        let (given, wanted) =
            (whole.clone().tensor(&budget), Tensor::from_proto(&expected, Some(&budget)));
        match (given, wanted) {
            (Ok(given), Ok(wanted)) => {
                assert_eq!(given.to_proto().unwrap(), wanted.to_proto().unwrap(), "{bytes:?}");
            }
            (given, wanted) => assert_eq!(given.is_ok(), wanted.is_ok(), "{bytes:?}"),
        }
        Some(whole)
    }

    #[test]
    fn numbers_are_decoded_into_their_tensor() {
        let whole = same(&floats(&[2, 2], &[1.0, -0.0, f32::INFINITY, 4.0]));
        assert!(whole.unwrap().numbers.is_some());
        let double = TensorProto { double_val: vec![1.5, 2.5], ..message(DType::Double, &[2]) };
        assert!(same(&double.encode_to_vec()).unwrap().numbers.is_some());
    }

    #[test]
    fn every_other_encoding_is_decoded_as_generated() {
        let (head, tail) = (
            message(DType::Float, &[4]).encode_to_vec(),
            TensorProto { float_val: vec![1.0, 2.0], ..Default::default() }.encode_to_vec(),
        );
        let unpacked = joined(&[&[0x2d], &3.0f32.to_le_bytes(), &[0x2d], &4.0f32.to_le_bytes()]);
        let again = TensorProto { tensor_shape: Some(shape(&[1])), ..Default::default() };
        let content = TensorProto {
            tensor_content: Bytes::from_static(&[0; 16]),
            ..message(DType::Float, &[4])
        };
        let all = floats(&[4], &[1.0, 2.0, 3.0, 4.0]);
        let double = TensorProto { dtype: DType::Double.to_proto(), ..Default::default() };
        for bytes in [
            joined(&[&head, &tail, &tail]),
            joined(&[&head, &tail, &unpacked]),
            joined(&[&head, &unpacked, &tail]),
            joined(&[&tail, &tail, &head]),
            // More or fewer elements than the shape has, none, one for all.
            joined(&[&all, &tail]),
            floats(&[2], &[1.0, 2.0, 3.0]),
            floats(&[5], &[1.0]),
            floats(&[0], &[]),
            floats(&[], &[7.0]),
            head.clone(),
            // A later field changes the meaning of an earlier one.
            joined(&[&all, &again.encode_to_vec()]),
            joined(&[&all, &content.encode_to_vec()]),
            joined(&[&content.encode_to_vec(), &tail]),
            joined(&[&all, &double.encode_to_vec()]),
            joined(&[&all, &all]),
            TensorProto { int_val: vec![1, 2, -3], ..message(DType::Int32, &[3]) }.encode_to_vec(),
            TensorProto { float_val: vec![1.0; 3], ..message(DType::Int32, &[3]) }.encode_to_vec(),
        ] {
            same(&bytes);
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let all = floats(&[4], &[1.0, 2.0, 3.0, 4.0]);
        for len in 0..all.len() {
            same(&all[..len]);
        }
        for (dims, len) in [
            (&[4i64][..], vec![0x2a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            (&[1 << 40], vec![0x2a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
            (&[1 << 62, 4], vec![0x2a, 0x10]),
            (&[-1], vec![0x2a, 0x04, 0, 0, 0, 0]),
            (&[1], vec![0x2a, 0x03, 0, 0, 0]),
            (&[1], vec![0x2a, 0x05, 0, 0, 0, 0, 0]),
            (&[1], vec![0x2a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
            (&[1], vec![0x28, 0x01]),
        ] {
            same(&joined(&[&message(DType::Float, dims).encode_to_vec(), &len]));
        }
    }

    #[test]
    fn a_request_is_decoded_as_generated() {
        let tensor = TensorProto { float_val: vec![1.0; 3], ..message(DType::Float, &[3]) };
        let request = pb::PredictRequest {
            model_spec: Some(pb::ModelSpec { name: "m".to_owned(), ..Default::default() }),
            inputs: BTreeMap::from([("x".to_owned(), tensor.clone()), ("y".to_owned(), tensor)]),
            output_filter: vec!["out".to_owned()],
            ..Default::default()
        };
        let read = PredictRequest::decode(&request.encode_to_vec()[..]).unwrap();
        assert_eq!(
            (&read.model_spec, &read.output_filter),
            (&request.model_spec, &request.output_filter)
        );
        assert!(read.inputs.values().all(|input| input.numbers.is_some()));
        let whole: BTreeMap<String, TensorProto> =
            read.inputs.iter().map(|(name, input)| (name.clone(), input.whole())).collect();
        assert_eq!(whole, request.inputs);
    }
}
