//! Tensors as serialized `TensorProto` messages.

use prost::Message;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_proto as pb;
use thalweg_tensor::{Code, Error, Result, Tensor, ensure, err};

use super::{scalar_string, set_scalar_string};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ParseTensor", shape::unknown).without_gradient(),
        OpDef::new("SerializeTensor", shape::scalar).without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "ParseTensor", create: parse_tensor, ..KernelSpec::CPU },
        KernelSpec { op: "SerializeTensor", create: serialize_tensor, ..KernelSpec::CPU },
    ],
};

fn parse_tensor(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let wanted = init.attrs().dtype("out_type")?;
    AnyKernel::new(move |ctx| {
        let serialized = scalar_string(ctx, 0, "serialized")?;
        let proto = pb::TensorProto::decode(serialized)
            .map_err(|e| err!(InvalidArgument, "Cannot parse tensor from proto: {e}"))?;
        let tensor = Tensor::from_proto(&proto, Some(ctx.budget())).map_err(unparsable)?;
        ensure!(
            tensor.dtype() == wanted,
            InvalidArgument,
            "Type mismatch between parsed tensor ({}) and dtype ({wanted})",
            tensor.dtype()
        );
        ctx.set_output(0, tensor)
    })
}

/// Every parse error is INVALID_ARGUMENT, except RESOURCE_EXHAUSTED.
fn unparsable(e: Error) -> Error {
    match e.code() {
        Code::ResourceExhausted => e,
        _ => err!(InvalidArgument, "Cannot parse tensor from proto: {}", e.message()),
    }
}

fn serialize_tensor(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let proto = ctx.input(0)?.to_proto()?;
        let length = proto.encoded_len();
        ensure!(
            i32::try_from(length).is_ok(),
            InvalidArgument,
            "Tensor does not serialize to proto: {length} bytes exceed a message"
        );
        ctx.budget().check(length)?;
        set_scalar_string(ctx, 0, proto.encode_to_vec())
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape};

    use super::*;
    use crate::testing::{call, code};

    fn parse(bytes: Vec<u8>, dtype: DType) -> Result<Tensor> {
        call("ParseTensor").input(Tensor::scalar_string(bytes)).attr("out_type", dtype).run()
    }

    #[test]
    fn round_trips() {
        let words = vec!["a".into(), "".into()];
        for tensor in [
            Tensor::vector(&[1.5f32, f32::NAN]).unwrap(),
            Tensor::vector(&[true, false]).unwrap(),
            Tensor::scalar(7u64),
            Tensor::zeros(DType::Complex128, Shape::new(&[0, 3]).unwrap()).unwrap(),
            Tensor::from_strings(Shape::new(&[2]).unwrap(), words).unwrap(),
        ] {
            let bytes = call("SerializeTensor").input(tensor.clone()).run().unwrap();
            let back = parse(bytes.strings().unwrap()[0].to_vec(), tensor.dtype()).unwrap();
            assert_eq!(back.shape(), tensor.shape());
            assert_eq!(back.to_proto().unwrap().encode_to_vec(), bytes.strings().unwrap()[0]);
        }
    }

    #[test]
    fn hostile_bytes() {
        let huge = pb::TensorProto {
            dtype: DType::Float.to_proto(),
            tensor_shape: Some(Shape::new(&[1 << 40]).unwrap().to_proto()),
            float_val: vec![1.0],
            ..Default::default()
        };
        let refused = parse(huge.encode_to_vec(), DType::Float).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        for bytes in [b"xx".to_vec(), Vec::new(), b"\x08\x01\x12\x02\x12".to_vec()] {
            let refused = parse(bytes, DType::Float).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
        }
        let int = Tensor::scalar(1i32).to_proto().unwrap().encode_to_vec();
        assert_eq!(code(parse(int, DType::Float)), Some(Code::InvalidArgument));
    }
}
