//! KServe's protocol (version 2, the Open Inference Protocol): the parts that its gRPC and REST
//! interfaces share.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thalweg_formats::saved_model::{Signature, TensorSpec};
use thalweg_proto::google::protobuf::Int64Value;
use thalweg_proto::inference as pb;
use thalweg_proto::inference::model_metadata_response::TensorMetadata;
use thalweg_proto::tensorflow::serving::{ModelSpec, model_spec::VersionChoice};
use thalweg_tensor::{DType, PartialShape, RANK_MAX, Result, Shape, Tensor, bail, ensure, err};

use crate::engine::Engine;
use thalweg_runtime::saved_model::described;

/// The request parameter that names the signature to run.
pub(crate) const SIGNATURE_NAME: &str = "signature_name";
/// Triton's platform name for SavedModels.
const PLATFORM: &str = "tensorflow_savedmodel";
/// The supported extensions of Triton.
const EXTENSIONS: &[&str] = &["binary_tensor_data"];
/// The maximum bytes of request text in an error message.
const SHOWN_BYTES: usize = 80;

const DATATYPES: &[(&str, DType)] = &[
    ("BOOL", DType::Bool),
    ("UINT8", DType::UInt8),
    ("UINT16", DType::UInt16),
    ("UINT32", DType::UInt32),
    ("UINT64", DType::UInt64),
    ("INT8", DType::Int8),
    ("INT16", DType::Int16),
    ("INT32", DType::Int32),
    ("INT64", DType::Int64),
    ("FP16", DType::Half),
    ("FP32", DType::Float),
    ("FP64", DType::Double),
    ("BF16", DType::BFloat16),
    ("BYTES", DType::String),
];

/// The dtype with this name.
pub(crate) fn dtype(datatype: &str) -> Result<DType> {
    let found = DATATYPES.iter().find(|(name, _)| *name == datatype);
    found.map(|(_, dtype)| *dtype).ok_or_else(|| {
        let names: Vec<&str> = DATATYPES.iter().map(|(name, _)| *name).collect();
        err!(
            InvalidArgument,
            "unknown datatype '{}'; expected one of {}",
            shown(datatype),
            names.join(", ")
        )
    })
}

/// The name of a dtype, if the protocol has one for it.
pub(crate) fn datatype(dtype: DType) -> Result<&'static str> {
    let found = DATATYPES.iter().find(|(_, known)| *known == dtype);
    found
        .map(|(name, _)| *name)
        .ok_or_else(|| err!(Unimplemented, "the protocol has no datatype for {dtype}"))
}

/// The beginning of a text, for error messages.
pub(crate) fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES)]
}

/// The model and version of a request: a number, a label, or the latest if neither is given.
pub(crate) fn spec(name: &str, version: &str) -> ModelSpec {
    let version_choice = match version.parse::<i64>() {
        _ if version.is_empty() => None,
        Ok(value) => Some(VersionChoice::Version(Int64Value { value })),
        Err(_) => Some(VersionChoice::VersionLabel(version.to_owned())),
    };
    ModelSpec { name: name.to_owned(), version_choice, ..Default::default() }
}

/// Whether a model has an available version. Fails if the model is unknown.
pub(crate) fn is_model_ready(engine: &Engine, spec: &ModelSpec) -> Result<bool> {
    let is_known = engine.store.view(&spec.name).is_some();
    ensure!(is_known, NotFound, "unknown model '{}'", shown(&spec.name));
    Ok(engine.store.get(Some(spec)).is_ok())
}

/// The metadata of the server.
pub(crate) fn server_metadata() -> pb::ServerMetadataResponse {
    pb::ServerMetadataResponse {
        name: "thalweg".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.iter().map(|&name| name.to_owned()).collect(),
    }
}

/// The inputs and outputs of a model's default signature.
pub(crate) fn model_metadata(
    engine: &Engine,
    spec: &ModelSpec,
) -> Result<pb::ModelMetadataResponse> {
    let servable = engine.store.get(Some(spec))?;
    let (_, signature) = servable.signature("")?;
    let view = engine.store.view(servable.model());
    let available = view.iter().flat_map(|view| view.available.keys());
    let one = |(name, spec): (&String, &TensorSpec)| TensorMetadata {
        name: name.clone(),
        // A dtype that the protocol cannot name has TensorFlow's name, which is unambiguous.
        datatype: datatype(spec.dtype).unwrap_or_else(|_| spec.dtype.name()).to_owned(),
        shape: sizes(&spec.shape),
    };
    Ok(pb::ModelMetadataResponse {
        name: servable.model().to_owned(),
        versions: available.map(ToString::to_string).collect(),
        platform: PLATFORM.to_owned(),
        inputs: signature.inputs.iter().map(one).collect(),
        outputs: signature.outputs.iter().map(one).collect(),
    })
}

/// The dimensions, -1 for unknown ones; the protocol cannot express an unknown rank.
fn sizes(shape: &PartialShape) -> Vec<i64> {
    let size = |dim: &Option<usize>| dim.and_then(|d| i64::try_from(d).ok()).unwrap_or(-1);
    shape.dims().map_or_else(|| vec![-1], |dims| dims.iter().map(size).collect())
}

/// Rejects parameters that would change the answer and are not supported; other parameters are
/// hints.
pub(crate) fn check_parameter(name: &str) -> Result<()> {
    match name {
        "sequence_id" | "sequence_start" | "sequence_end" => {
            bail!(
                Unimplemented,
                "the parameter '{name}' is not supported: models have no sequence state"
            )
        }
        "shared_memory_region" => {
            bail!(Unimplemented, "tensors in shared memory are not supported")
        }
        "classification" => bail!(Unimplemented, "the parameter 'classification' is not supported"),
        _ => Ok(()),
    }
}

/// Rejects an input that the signature does not have.
pub(crate) fn check_input(signature: &Signature, name: &str) -> Result<()> {
    ensure!(
        signature.inputs.contains_key(name),
        InvalidArgument,
        "unexpected input '{}'; the inputs are {{{}}}",
        shown(name),
        described(&signature.inputs)
    );
    Ok(())
}

/// Rejects an output that the signature does not have.
pub(crate) fn check_output(signature: &Signature, name: &str) -> Result<()> {
    ensure!(
        signature.outputs.contains_key(name),
        InvalidArgument,
        "unexpected output '{}'; the outputs are {{{}}}",
        shown(name),
        described(&signature.outputs)
    );
    Ok(())
}

/// A shape of a request.
pub(crate) fn shape(sizes: &[i64]) -> Result<Shape> {
    ensure!(
        sizes.len() <= RANK_MAX,
        InvalidArgument,
        "the shape has {} dimensions; at most {RANK_MAX} are supported",
        sizes.len()
    );
    Shape::from_i64(sizes)
}

/// A tensor from its raw form: elements in memory layout, strings each with a length prefix.
pub(crate) fn from_raw(dtype: DType, shape: Shape, mut raw: Bytes) -> Result<Tensor> {
    if dtype != DType::String {
        return Tensor::from_bytes(dtype, shape, raw);
    }
    let expected = shape.num_elements();
    let mut strings = Vec::new();
    while !raw.is_empty() {
        ensure!(
            strings.len() < expected,
            InvalidArgument,
            "the input has more strings than shape {shape} has elements"
        );
        ensure!(raw.len() >= 4, InvalidArgument, "the raw strings end within a length");
        let len = raw.get_u32_le() as usize;
        ensure!(
            len <= raw.len(),
            InvalidArgument,
            "a raw string should have {len} bytes, {} are left",
            raw.len()
        );
        strings.push(raw.split_to(len));
    }
    ensure!(
        strings.len() == expected,
        InvalidArgument,
        "{} strings are not a tensor of shape {shape}",
        strings.len()
    );
    Tensor::from_strings(shape, strings)
}

/// The raw form of a tensor; not copied, except for strings.
pub(crate) fn to_raw(tensor: &Tensor) -> Result<Bytes> {
    if tensor.dtype() != DType::String {
        return tensor.to_bytes();
    }
    let strings = tensor.strings()?;
    let mut raw = BytesMut::with_capacity(strings.iter().map(|s| 4 + s.len()).sum());
    for string in strings {
        let len = u32::try_from(string.len());
        raw.put_u32_le(len.map_err(|_| err!(Unimplemented, "a string has 4 GiB or more"))?);
        raw.put_slice(string);
    }
    Ok(raw.freeze())
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn datatypes_round_trip() {
        for (name, wanted) in DATATYPES {
            assert_eq!(dtype(name).unwrap(), *wanted);
            assert_eq!(datatype(*wanted).unwrap(), *name);
        }
        assert!(dtype("fp32").unwrap_err().message().contains("'fp32'; expected one of BOOL"));
        assert!(dtype(&"\u{e9}".repeat(1000)).unwrap_err().message().len() < 300);
        assert_eq!(datatype(DType::Complex64).err().map(|e| e.code()), Some(Code::Unimplemented));
    }

    #[test]
    fn versions() {
        let choice = |version: &str| spec("m", version).version_choice;
        assert_eq!(choice(""), None);
        assert_eq!(choice("12"), Some(VersionChoice::Version(Int64Value { value: 12 })));
        assert_eq!(choice("stable"), Some(VersionChoice::VersionLabel("stable".into())));
    }

    #[test]
    fn raw_round_trip() {
        let shape = Shape::new(&[2, 1]).unwrap();
        let strings = vec![Bytes::from_static(b"ab"), Bytes::new()];
        let tensor = Tensor::from_strings(shape.clone(), strings).unwrap();
        let raw = to_raw(&tensor).unwrap();
        assert_eq!(&raw[..], b"\x02\0\0\0ab\0\0\0\0");
        let back = from_raw(DType::String, shape.clone(), raw).unwrap();
        assert_eq!(back.strings().unwrap(), tensor.strings().unwrap());
        let floats = Tensor::from_slice(shape.clone(), &[1.5f32, -2.0]).unwrap();
        let back = from_raw(DType::Float, shape, to_raw(&floats).unwrap()).unwrap();
        assert_eq!(back.as_slice::<f32>().unwrap(), [1.5, -2.0]);
    }

    #[test]
    fn invalid_raw_contents_are_rejected() {
        let refused = |dtype, sizes: &[usize], raw: &'static [u8]| {
            let shape = Shape::new(sizes).unwrap();
            from_raw(dtype, shape, Bytes::from_static(raw)).unwrap_err().message().to_owned()
        };
        assert!(refused(DType::String, &[2], b"\x01\0\0\0a").contains("1 strings are not"));
        assert!(refused(DType::String, &[0], b"\x01\0\0\0a").contains("more strings"));
        assert!(refused(DType::String, &[1], b"\x01\0\0").contains("within a length"));
        assert!(refused(DType::String, &[1], b"\xff\xff\xff\xffa").contains("1 are left"));
        assert!(refused(DType::String, &[1 << 40], b"").contains("0 strings"));
        assert!(refused(DType::Float, &[1 << 40], b"abcd").contains("4 bytes are not"));
        assert!(shape(&[0; 300]).unwrap_err().message().contains("300 dimensions"));
        let e = shape(&[-1]).unwrap_err();
        assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    }
}
