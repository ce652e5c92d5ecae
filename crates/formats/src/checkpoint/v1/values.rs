//! Elements as the typed lists of a `TensorProto`.

use std::sync::Arc;

use thalweg_proto::TensorProto;
use thalweg_tensor::{
    Budget, Complex32, Complex64, DType, QInt8, QInt32, QUInt8, Result, Shape, Tensor, bail,
    ensure, f16,
};

/// Encodes the elements of a tensor, without dtype and shape.
pub(super) fn encode(tensor: &Tensor) -> Result<TensorProto> {
    let mut proto = TensorProto::default();
    macro_rules! ints {
        ($t:ty, $convert:expr) => {
            proto.int_val = tensor.as_slice::<$t>()?.iter().map($convert).collect()
        };
    }
    match tensor.dtype() {
        DType::Float => proto.float_val = tensor.as_slice::<f32>()?.to_vec(),
        DType::Double => proto.double_val = tensor.as_slice::<f64>()?.to_vec(),
        DType::Int32 => proto.int_val = tensor.as_slice::<i32>()?.to_vec(),
        DType::UInt8 => ints!(u8, |&x| i32::from(x)),
        DType::Int16 => ints!(i16, |&x| i32::from(x)),
        DType::Int8 => ints!(i8, |&x| i32::from(x)),
        DType::UInt16 => ints!(u16, |&x| i32::from(x)),
        DType::QInt8 => ints!(QInt8, |x| i32::from(x.0)),
        DType::QUInt8 => ints!(QUInt8, |x| i32::from(x.0)),
        DType::QInt32 => ints!(QInt32, |x| x.0),
        DType::Int64 => proto.int64_val = tensor.as_slice::<i64>()?.to_vec(),
        DType::Bool => proto.bool_val = tensor.as_slice::<bool>()?.to_vec(),
        DType::Half => {
            proto.half_val =
                tensor.as_slice::<f16>()?.iter().map(|x| i32::from(x.to_bits())).collect();
        }
        DType::Complex64 => {
            let parts = tensor.as_slice::<Complex32>()?.iter().flat_map(|x| [x.re, x.im]);
            proto.scomplex_val = parts.collect();
        }
        DType::Complex128 => {
            let parts = tensor.as_slice::<Complex64>()?.iter().flat_map(|x| [x.re, x.im]);
            proto.dcomplex_val = parts.collect();
        }
        DType::String => proto.string_val = tensor.strings()?.to_vec(),
        DType::UInt32 | DType::UInt64 => {
            bail!(InvalidArgument, "a V1 checkpoint cannot hold {} tensors", tensor.dtype())
        }
        dtype => {
            bail!(Unimplemented, "a V1 checkpoint cannot hold {dtype} tensors")
        }
    }
    Ok(proto)
}

/// Decodes a tensor; the message must list all elements.
pub(super) fn decode(
    mut proto: TensorProto,
    dtype: DType,
    shape: &Shape,
    budget: Option<&Arc<Budget>>,
) -> Result<Tensor> {
    let listed = match dtype {
        DType::Float => proto.float_val.len(),
        DType::Double => proto.double_val.len(),
        DType::Int64 => proto.int64_val.len(),
        DType::Bool => proto.bool_val.len(),
        DType::Half | DType::BFloat16 => proto.half_val.len(),
        DType::Complex64 => proto.scomplex_val.len() / 2,
        DType::Complex128 => proto.dcomplex_val.len() / 2,
        DType::String => proto.string_val.len(),
        DType::UInt32 => proto.uint32_val.len(),
        DType::UInt64 => proto.uint64_val.len(),
        _ => proto.int_val.len(),
    };
    ensure!(
        listed == shape.num_elements() && proto.tensor_content.is_empty(),
        DataLoss,
        "{listed} elements do not make a {dtype} tensor of shape {shape}"
    );
    proto.dtype = dtype.to_proto();
    proto.tensor_shape = Some(shape.to_proto());
    Tensor::from_proto(&proto, budget)
}
