//! Tensors in responses, encoded in the typed fields that TensorFlow Serving fills (`float_val` and so on): many
//! clients read only those.

use bytes::Bytes;
use prost::Message;
use thalweg_proto::TensorProto;
use thalweg_rpc::{Pieces, field_len};
use thalweg_tensor::{DType, Result, Tensor, bf16, f16};

/// Encodes an entry of a map from names to tensors, or a named tensor, as field `field`. Elements
/// whose memory layout is their wire format are not copied.
pub(super) fn put_named(
    pieces: &mut Pieces,
    field: u32,
    name: &str,
    tensor: &Tensor,
) -> Result<()> {
    let (head, raw) = fields(tensor)?;
    let raw_len = raw.as_ref().map_or(0, |(number, bytes)| field_len(*number, bytes.len()));
    let value_len = head.encoded_len() + raw_len;
    pieces.begin_field(field, field_len(1, name.len()) + field_len(2, value_len));
    pieces.put_bytes(1, Bytes::copy_from_slice(name.as_bytes()));
    pieces.begin_field(2, value_len);
    pieces.put_fields(&head);
    if let Some((number, bytes)) = raw {
        pieces.put_bytes(number, bytes);
    }
    Ok(())
}

/// The message without the elements that are sent from the tensor's memory, and those bytes with their field.
fn fields(tensor: &Tensor) -> Result<(TensorProto, Option<(u32, Bytes)>)> {
    let mut proto = TensorProto {
        dtype: tensor.dtype().to_proto(),
        tensor_shape: Some(tensor.shape().to_proto()),
        ..Default::default()
    };
    let raw = match tensor.dtype() {
        DType::Float => Some(5),
        DType::Double => Some(6),
        DType::Complex64 => Some(9),
        DType::Bool => Some(11),
        DType::Complex128 => Some(12),
        _ => None,
    };
    if let Some(number) = raw {
        // A packed field concatenates its elements; an empty one is omitted.
        let bytes = tensor.to_bytes()?;
        return Ok((proto, (!bytes.is_empty()).then_some((number, bytes))));
    }
    match tensor.dtype() {
        DType::Int8 => proto.int_val = widened(tensor.as_slice::<i8>()?),
        DType::Int16 => proto.int_val = widened(tensor.as_slice::<i16>()?),
        DType::Int32 => proto.int_val = tensor.as_slice::<i32>()?.to_vec(),
        DType::UInt8 => proto.int_val = widened(tensor.as_slice::<u8>()?),
        DType::UInt16 => proto.int_val = widened(tensor.as_slice::<u16>()?),
        DType::Int64 => proto.int64_val = tensor.as_slice::<i64>()?.to_vec(),
        DType::UInt32 => proto.uint32_val = tensor.as_slice::<u32>()?.to_vec(),
        DType::UInt64 => proto.uint64_val = tensor.as_slice::<u64>()?.to_vec(),
        DType::Half => {
            let bits = |x: &f16| i32::from(x.to_bits());
            proto.half_val = tensor.as_slice::<f16>()?.iter().map(bits).collect();
        }
        DType::BFloat16 => {
            let bits = |x: &bf16| i32::from(x.to_bits());
            proto.half_val = tensor.as_slice::<bf16>()?.iter().map(bits).collect();
        }
        _ => proto = tensor.to_proto()?,
    }
    Ok((proto, None))
}

fn widened<T: Copy + Into<i32>>(values: &[T]) -> Vec<i32> {
    values.iter().map(|&v| v.into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use thalweg_proto::tensorflow::serving as pb;
    use thalweg_rpc::response;
    use thalweg_tensor::Shape;

    #[test]
    fn encoded_outputs_decode() {
        let large = Tensor::zeros(DType::Float, Shape::new(&[100, 100]).unwrap()).unwrap();
        let tensors = [
            ("float", Tensor::vector(&[1.5f32, -2.0]).unwrap()),
            ("double", Tensor::scalar(0.1f64)),
            ("bool", Tensor::vector(&[true, false]).unwrap()),
            ("int8", Tensor::vector(&[-5i8]).unwrap()),
            ("int32", Tensor::vector(&[1i32, -1]).unwrap()),
            ("int64", Tensor::vector(&[i64::MIN]).unwrap()),
            ("uint16", Tensor::vector(&[65535u16]).unwrap()),
            ("uint64", Tensor::vector(&[u64::MAX]).unwrap()),
            ("half", Tensor::vector(&[f16::from_f32(1.5)]).unwrap()),
            ("string", Tensor::scalar_string("hi")),
            ("empty", Tensor::zeros(DType::Float, Shape::new(&[0, 3]).unwrap()).unwrap()),
            ("large", large),
        ];
        let mut pieces = Pieces::default();
        for (name, tensor) in &tensors {
            put_named(&mut pieces, 1, name, tensor).unwrap();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(response(pieces).into_body().collect()).unwrap().to_bytes();
        let decoded = pb::PredictResponse::decode(&bytes[5..]).unwrap();
        assert_eq!(decoded.outputs.len(), tensors.len());
        for (name, tensor) in &tensors {
            let got = Tensor::from_proto(&decoded.outputs[*name], None).unwrap();
            assert_eq!(got.shape(), tensor.shape(), "{name}");
            assert_eq!(got.to_proto().unwrap(), tensor.to_proto().unwrap(), "{name}");
            assert!(decoded.outputs[*name].tensor_content.is_empty(), "{name}");
        }
        assert_eq!(decoded.outputs["float"].float_val, [1.5, -2.0]);
        assert_eq!(decoded.outputs["bool"].bool_val, [true, false]);
    }
}
