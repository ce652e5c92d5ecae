//! Conversion from and to `TensorProto`, in every encoding that TensorFlow writes.
//!
//! Plain elements are encoded as `tensor_content` (little-endian, row-major) or as typed value lists, in
//! which the last value repeats to fill the shape and an empty list means zeroes. Strings are encoded as
//! `string_val`, or as `tensor_content` with all lengths as varints before all bytes.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use half::{bf16, f16};
use num_complex::Complex;
use thalweg_proto::{
    ResourceHandleProto, TensorProto, VariantTensorDataProto, resource_handle_proto::DtypeAndShape,
};

use crate::{
    Budget, Charge, DType, Element, PartialShape, QInt8, QInt16, QInt32, QUInt8, QUInt16,
    ResourceHandle, Result, SHORT_STRING_BYTES, Shape, Tensor, Variant, VariantValue, bail,
    check_nesting, ensure, err, with_charge,
};

impl Shape {
    /// The concrete shape in a message; unknown sizes are an error.
    pub fn from_proto(proto: &thalweg_proto::TensorShapeProto) -> Result<Shape> {
        ensure!(!proto.unknown_rank, InvalidArgument, "a tensor's shape has an unknown rank");
        let dims: Vec<i64> = proto.dim.iter().map(|d| d.size).collect();
        Shape::from_i64(&dims)
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> thalweg_proto::TensorShapeProto {
        PartialShape::from(self).to_proto()
    }
}

impl Tensor {
    /// The tensor in a message that was received. Content that the tensor shares with the message is
    /// charged to `budget`, too, for as long as the tensor lives.
    pub fn from_received_proto(mut proto: TensorProto, budget: &Arc<Budget>) -> Result<Tensor> {
        charge_content(&mut proto, budget)?;
        Tensor::from_proto(&proto, Some(budget))
    }

    /// The tensor in a message. Memory is charged to `budget`: a few bytes can fill a large shape.
    /// Content that the tensor shares with the message is not charged: a graph's constants are shared
    /// by all plans.
    pub fn from_proto(proto: &TensorProto, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        let dtype = DType::from_proto(proto.dtype)?;
        let shape = match &proto.tensor_shape {
            Some(shape) => Shape::from_proto(shape)?,
            None => Shape::scalar(),
        };
        if !proto.tensor_content.is_empty() {
            return match dtype {
                DType::String => decode_strings(shape, proto.tensor_content.clone(), budget),
                _ => Tensor::from_bytes(dtype, shape, proto.tensor_content.clone()),
            };
        }
        let fill = Fill { shape, budget };
        match dtype {
            DType::Float => fill.numbers(&proto.float_val, |&x| x),
            DType::Double => fill.numbers(&proto.double_val, |&x| x),
            DType::Int32 => fill.numbers(&proto.int_val, |&x| x),
            DType::UInt8 => fill.numbers(&proto.int_val, |&x| x as u8),
            DType::Int16 => fill.numbers(&proto.int_val, |&x| x as i16),
            DType::Int8 => fill.numbers(&proto.int_val, |&x| x as i8),
            DType::UInt16 => fill.numbers(&proto.int_val, |&x| x as u16),
            DType::QInt8 => fill.numbers(&proto.int_val, |&x| QInt8(x as i8)),
            DType::QUInt8 => fill.numbers(&proto.int_val, |&x| QUInt8(x as u8)),
            DType::QInt16 => fill.numbers(&proto.int_val, |&x| QInt16(x as i16)),
            DType::QUInt16 => fill.numbers(&proto.int_val, |&x| QUInt16(x as u16)),
            DType::QInt32 => fill.numbers(&proto.int_val, |&x| QInt32(x)),
            DType::Int64 => fill.numbers(&proto.int64_val, |&x| x),
            DType::UInt32 => fill.numbers(&proto.uint32_val, |&x| x),
            DType::UInt64 => fill.numbers(&proto.uint64_val, |&x| x),
            DType::Bool => fill.numbers(&proto.bool_val, |&x| x),
            DType::Half => fill.numbers(&proto.half_val, |&x| f16::from_bits(x as u16)),
            DType::BFloat16 => fill.numbers(&proto.half_val, |&x| bf16::from_bits(x as u16)),
            DType::Complex64 => fill.complex(&proto.scomplex_val),
            DType::Complex128 => fill.complex(&proto.dcomplex_val),
            DType::String => fill.objects(dtype, &proto.string_val, Tensor::strings_mut),
            DType::Resource => {
                let handles: Result<Vec<_>> =
                    proto.resource_handle_val.iter().map(handle_from_proto).collect();
                Tensor::from_resources(fill.shape, handles?)
            }
            DType::Variant => {
                let values: Result<Vec<VariantValue>> =
                    proto.variant_val.iter().map(|v| EncodedVariant::decode(v, budget)).collect();
                fill.objects(dtype, &values?, Tensor::variants_mut)
            }
            DType::Int4 | DType::UInt4 | DType::Int2 | DType::UInt2 => {
                let bytes: Vec<u8> = proto.int_val.iter().map(|&x| x as u8).collect();
                fill.raw_bytes(dtype, &bytes)
            }
            _ => fill.raw_bytes(dtype, &proto.float8_val),
        }
    }

    /// The message, with plain elements in `tensor_content` that shares this tensor's memory.
    pub fn to_proto(&self) -> Result<TensorProto> {
        let mut proto = TensorProto {
            dtype: self.dtype().to_proto(),
            tensor_shape: Some(self.shape().to_proto()),
            ..Default::default()
        };
        match self.dtype() {
            DType::String => proto.string_val = self.strings()?.to_vec(),
            DType::Resource => {
                proto.resource_handle_val = self.resources()?.iter().map(handle_to_proto).collect();
            }
            DType::Variant => {
                let encode = |v: &VariantValue| match v {
                    None => Ok(VariantTensorDataProto::default()),
                    Some(value) => encode_variant(value.as_ref()),
                };
                proto.variant_val = self.variants()?.iter().map(encode).collect::<Result<_>>()?;
            }
            _ => proto.tensor_content = self.to_bytes()?,
        }
        Ok(proto)
    }

    /// The elements as bytes that share this tensor's memory.
    pub fn to_bytes(&self) -> Result<Bytes> {
        struct Owner(Tensor);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.as_bytes().expect("`to_bytes` saw that the host can read it")
            }
        }
        self.as_bytes()?;
        Ok(if self.num_elements() == 0 {
            Bytes::new()
        } else {
            Bytes::from_owner(Owner(self.clone()))
        })
    }
}

/// Fills a shape from a value list whose last value repeats; values beyond the shape are ignored,
/// as TensorFlow does.
struct Fill<'a> {
    shape: Shape,
    budget: Option<&'a Arc<Budget>>,
}

impl Fill<'_> {
    fn numbers<S, T: Element>(self, values: &[S], convert: impl Fn(&S) -> T) -> Result<Tensor> {
        let mut tensor = Tensor::allocate(T::DTYPE, self.shape, self.budget)?;
        let target = tensor.as_mut_slice::<T>()?;
        for (t, v) in target.iter_mut().zip(values) {
            *t = convert(v);
        }
        if let Some(rest) = target.get_mut(values.len()..) {
            rest.fill(values.last().map_or_else(T::default, convert));
        }
        Ok(tensor)
    }

    fn complex<T: Copy>(self, parts: &[T]) -> Result<Tensor>
    where
        Complex<T>: Element,
    {
        let pairs: Vec<Complex<T>> =
            parts.chunks_exact(2).map(|p| Complex { re: p[0], im: p[1] }).collect();
        self.numbers(&pairs, |&x| x)
    }

    fn objects<T: Clone>(
        self,
        dtype: DType,
        values: &[T],
        items: fn(&mut Tensor) -> Result<&mut [T]>,
    ) -> Result<Tensor> {
        let mut tensor = Tensor::zeros_in(dtype, self.shape, self.budget)?;
        let target = items(&mut tensor)?;
        let given = values.len().min(target.len());
        let (first, rest) = target.split_at_mut(given);
        first.clone_from_slice(&values[..given]);
        if let Some(last) = values.last() {
            rest.fill(last.clone());
        }
        Ok(tensor)
    }

    fn raw_bytes(self, dtype: DType, values: &[u8]) -> Result<Tensor> {
        let mut tensor = Tensor::allocate(dtype, self.shape, self.budget)?;
        let (target, last) = (tensor.as_mut_bytes()?, values.last().copied().unwrap_or(0));
        for (i, t) in target.iter_mut().enumerate() {
            *t = values.get(i).copied().unwrap_or(last);
        }
        Ok(tensor)
    }
}

/// Strings as `tensor_content` has them: every length as a varint, then every byte.
fn decode_strings(
    shape: Shape,
    mut content: Bytes,
    budget: Option<&Arc<Budget>>,
) -> Result<Tensor> {
    let elements = shape.num_elements();
    // Each length takes a byte at least, so a valid shape is no larger than the content.
    ensure!(
        elements <= content.len(),
        InvalidArgument,
        "{} bytes cannot hold {elements} strings",
        content.len()
    );
    let mut lengths = Vec::with_capacity(elements);
    for _ in 0..elements {
        lengths.push(read_varint(&mut content)?);
    }
    let mut tensor = Tensor::zeros_in(DType::String, shape, budget)?;
    for (slot, length) in tensor.strings_mut()?.iter_mut().zip(lengths) {
        let length = usize::try_from(length).ok().filter(|&n| n <= content.len());
        let length = length
            .ok_or_else(|| err!(InvalidArgument, "a string ends beyond the tensor's content"))?;
        *slot = content.split_to(length);
    }
    ensure!(content.is_empty(), InvalidArgument, "{} bytes follow the last string", content.len());
    Ok(tensor)
}

/// Charges the bytes of a message that a tensor made from it shares.
fn charge_content(proto: &mut TensorProto, budget: &Arc<Budget>) -> Result<()> {
    let strings = proto.string_val.iter_mut().filter(|s| s.len() > SHORT_STRING_BYTES);
    for bytes in strings.chain(Some(&mut proto.tensor_content).filter(|b| !b.is_empty())) {
        let charge = Charge::new(budget, bytes.len())?;
        *bytes = with_charge(std::mem::take(bytes), charge);
    }
    for tensor in proto.variant_val.iter_mut().flat_map(|v| &mut v.tensors) {
        charge_content(tensor, budget)?;
    }
    Ok(())
}

fn read_varint(bytes: &mut Bytes) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        ensure!(bytes.has_remaining(), InvalidArgument, "a string's length is cut off");
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    bail!(InvalidArgument, "a string's length has more than 64 bits")
}

fn handle_from_proto(proto: &ResourceHandleProto) -> Result<ResourceHandle> {
    let mut dtypes_and_shapes = Vec::with_capacity(proto.dtypes_and_shapes.len());
    for d in &proto.dtypes_and_shapes {
        let shape =
            d.shape.as_ref().map_or_else(|| Ok(PartialShape::scalar()), PartialShape::from_proto);
        dtypes_and_shapes.push((DType::from_proto(d.dtype)?, shape?));
    }
    Ok(ResourceHandle {
        device: proto.device.as_str().into(),
        container: proto.container.as_str().into(),
        name: proto.name.as_str().into(),
        dtypes_and_shapes: dtypes_and_shapes.into(),
        owned: None,
    })
}

fn handle_to_proto(handle: &ResourceHandle) -> ResourceHandleProto {
    let describe = |(dtype, shape): &(DType, PartialShape)| DtypeAndShape {
        dtype: dtype.to_proto(),
        shape: Some(shape.to_proto()),
    };
    ResourceHandleProto {
        device: handle.device.to_string(),
        container: handle.container.to_string(),
        name: handle.name.to_string(),
        dtypes_and_shapes: handle.dtypes_and_shapes.iter().map(describe).collect(),
        ..Default::default()
    }
}

/// A variant in its wire encoding. Kernels that know its type name decode it.
#[derive(Debug)]
struct EncodedVariant {
    type_name: String,
    metadata: Bytes,
    tensors: Vec<Tensor>,
    depth: usize,
}

impl EncodedVariant {
    fn decode(
        proto: &VariantTensorDataProto,
        budget: Option<&Arc<Budget>>,
    ) -> Result<VariantValue> {
        if proto.type_name.is_empty() {
            return Ok(None);
        }
        let tensors: Vec<Tensor> =
            proto.tensors.iter().map(|t| Tensor::from_proto(t, budget)).collect::<Result<_>>()?;
        let mut depth = 0;
        for tensor in &tensors {
            depth = depth.max(check_nesting(tensor)?);
        }
        Ok(Some(Arc::new(EncodedVariant {
            type_name: proto.type_name.clone(),
            metadata: proto.metadata.clone(),
            tensors,
            depth,
        })))
    }
}

impl Variant for EncodedVariant {
    fn type_name(&self) -> &str {
        &self.type_name
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        Some((self.metadata.clone(), self.tensors.clone()))
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

fn encode_variant(value: &dyn Variant) -> Result<VariantTensorDataProto> {
    let (metadata, tensors) = value.encode().ok_or_else(|| {
        err!(InvalidArgument, "a variant of type {} cannot leave its process", value.type_name())
    })?;
    Ok(VariantTensorDataProto {
        type_name: value.type_name().to_owned(),
        metadata,
        tensors: tensors.iter().map(Tensor::to_proto).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    fn proto(dtype: DType, dims: &[i64]) -> TensorProto {
        let shape = Shape::from_i64(dims).unwrap().to_proto();
        TensorProto { dtype: dtype.to_proto(), tensor_shape: Some(shape), ..Default::default() }
    }

    #[test]
    fn the_last_value_fills_and_none_means_zero() {
        let mut p = proto(DType::Float, &[4]);
        assert_eq!(Tensor::from_proto(&p, None).unwrap().as_slice::<f32>().unwrap(), [0.0; 4]);
        p.float_val = vec![1.0, 2.0];
        let t = Tensor::from_proto(&p, None).unwrap();
        assert_eq!(t.as_slice::<f32>().unwrap(), [1.0, 2.0, 2.0, 2.0]);
        p.float_val = vec![7.0; 5];
        assert_eq!(Tensor::from_proto(&p, None).unwrap().as_slice::<f32>().unwrap(), [7.0; 4]);
    }

    #[test]
    fn strings_in_both_encodings() {
        let mut p = proto(DType::String, &[2]);
        p.tensor_content = Bytes::from_static(&[2, 1, b'a', b'b', b'c']);
        let t = Tensor::from_proto(&p, None).unwrap();
        assert_eq!(t.strings().unwrap(), [&b"ab"[..], b"c"]);
        let back = Tensor::from_proto(&t.to_proto().unwrap(), None).unwrap();
        assert_eq!(back.strings().unwrap(), t.strings().unwrap());
        for broken in [&[2, 9, b'a'][..], &[0xff; 12], &[0, 0, 0], &[1]] {
            p.tensor_content = Bytes::copy_from_slice(broken);
            let e = Tensor::from_proto(&p, None).unwrap_err();
            assert_eq!(e.code(), Code::InvalidArgument, "{broken:?}: {e}");
        }
    }

    #[test]
    fn a_few_bytes_cannot_fill_a_huge_shape() {
        let budget = Budget::new(1 << 20);
        for dtype in [DType::Float, DType::String, DType::Bool, DType::Complex64] {
            let refused = Tensor::from_proto(&proto(dtype, &[1 << 60]), Some(&budget)).unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{dtype}");
        }
    }

    #[test]
    fn content_is_shared_both_ways() {
        let t = Tensor::vector(&[1i64, 2, 3]).unwrap();
        let p = t.to_proto().unwrap();
        assert_eq!(p.tensor_content.as_ptr(), t.as_bytes().unwrap().as_ptr());
        let back = Tensor::from_proto(&p, None).unwrap();
        assert_eq!(back.as_slice::<i64>().unwrap(), [1, 2, 3]);
        let mut short = p.clone();
        short.tensor_content = p.tensor_content.slice(1..);
        assert_eq!(Tensor::from_proto(&short, None).unwrap_err().code(), Code::InvalidArgument);
    }
}
