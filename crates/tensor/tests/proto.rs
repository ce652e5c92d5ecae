//! `TensorProto` in every encoding of every dtype.

use std::sync::Arc;

use thalweg_proto::{
    ResourceHandleProto, TensorProto, TensorShapeProto, VariantTensorDataProto,
    resource_handle_proto::DtypeAndShape, tensor_shape_proto::Dim,
};
use thalweg_tensor::*;

/// Three values of a dtype, as a value list sets them and as memory holds them.
struct Case {
    dtype: DType,
    set: fn(&mut TensorProto, &[usize]),
    bytes: [Vec<u8>; 3],
}

fn le<const N: usize, T>(values: [T; 3], to_bytes: impl Fn(T) -> [u8; N]) -> [Vec<u8>; 3] {
    values.map(|v| to_bytes(v).to_vec())
}

const INTS: [i32; 3] = [5, -3, 7];

/// Every dtype of plain elements. Narrow integers travel in 32 bits, halves as their bits.
fn cases() -> Vec<Case> {
    [own_field_cases(), shared_field_cases()].into_iter().flatten().collect()
}

/// Dtypes that share a field of the message with others.
fn shared_field_cases() -> Vec<Case> {
    fn ints(p: &mut TensorProto, which: &[usize]) {
        p.int_val = which.iter().map(|&i| INTS[i]).collect();
    }
    let narrow = |dtype, size: usize| Case {
        dtype,
        set: ints,
        bytes: INTS.map(|i| i.to_le_bytes()[..size].to_vec()),
    };
    let float8 = |dtype| Case {
        dtype,
        set: |p, which| p.float8_val = which.iter().map(|&i| [0x10, 0x91, 0x38][i]).collect(),
        bytes: [0x10, 0x91, 0x38].map(|b| vec![b]),
    };
    fn halves(p: &mut TensorProto, which: &[usize]) {
        p.half_val = which.iter().map(|&i| [0x3c00, 0xc000, 0x0001][i]).collect();
    }
    let half = |dtype| Case {
        dtype,
        set: halves,
        bytes: le([0x3c00u16, 0xc000, 0x0001], u16::to_le_bytes),
    };
    vec![
        half(DType::Half),
        half(DType::BFloat16),
        narrow(DType::Int8, 1),
        narrow(DType::UInt8, 1),
        narrow(DType::Int16, 2),
        narrow(DType::UInt16, 2),
        narrow(DType::Int32, 4),
        narrow(DType::QInt8, 1),
        narrow(DType::QUInt8, 1),
        narrow(DType::QInt16, 2),
        narrow(DType::QUInt16, 2),
        narrow(DType::QInt32, 4),
        narrow(DType::Int4, 1),
        narrow(DType::UInt4, 1),
        narrow(DType::Int2, 1),
        narrow(DType::UInt2, 1),
        float8(DType::Float8E5m2),
        float8(DType::Float8E4m3fn),
        float8(DType::Float8E4m3fnuz),
        float8(DType::Float8E4m3b11fnuz),
        float8(DType::Float8E5m2fnuz),
    ]
}

/// Dtypes with a field of their own.
fn own_field_cases() -> Vec<Case> {
    let case = |dtype, set, bytes| Case { dtype, set, bytes };
    vec![
        case(
            DType::Float,
            |p, which| p.float_val = which.iter().map(|&i| [1.5, -2.0, 3.25][i]).collect(),
            le([1.5f32, -2.0, 3.25], f32::to_le_bytes),
        ),
        case(
            DType::Double,
            |p, which| p.double_val = which.iter().map(|&i| [1.5, -2.0, 1e300][i]).collect(),
            le([1.5f64, -2.0, 1e300], f64::to_le_bytes),
        ),
        case(
            DType::Int64,
            |p, which| p.int64_val = which.iter().map(|&i| [1, i64::MIN, i64::MAX][i]).collect(),
            le([1, i64::MIN, i64::MAX], i64::to_le_bytes),
        ),
        case(
            DType::UInt32,
            |p, which| p.uint32_val = which.iter().map(|&i| [1, u32::MAX, 7][i]).collect(),
            le([1, u32::MAX, 7], u32::to_le_bytes),
        ),
        case(
            DType::UInt64,
            |p, which| p.uint64_val = which.iter().map(|&i| [1, u64::MAX, 7][i]).collect(),
            le([1, u64::MAX, 7], u64::to_le_bytes),
        ),
        case(
            DType::Bool,
            |p, which| p.bool_val = which.iter().map(|&i| [true, false, true][i]).collect(),
            [vec![1], vec![0], vec![1]],
        ),
        case(
            DType::Complex64,
            |p, which| {
                let parts = [[1.0, -1.0], [0.5, 2.0], [3.0, 4.0]];
                p.scomplex_val = which.iter().flat_map(|&i| parts[i]).collect();
            },
            [[1.0f32, -1.0], [0.5, 2.0], [3.0, 4.0]].map(|c| c.map(f32::to_le_bytes).concat()),
        ),
        case(
            DType::Complex128,
            |p, which| {
                let parts = [[1.0, -1.0], [0.5, 2.0], [3.0, 4.0]];
                p.dcomplex_val = which.iter().flat_map(|&i| parts[i]).collect();
            },
            [[1.0f64, -1.0], [0.5, 2.0], [3.0, 4.0]].map(|c| c.map(f64::to_le_bytes).concat()),
        ),
    ]
}

fn proto(dtype: DType, dims: &[i64]) -> TensorProto {
    let dim = dims.iter().map(|&size| Dim { size, name: String::new() }).collect();
    TensorProto {
        dtype: dtype.to_proto(),
        tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }),
        ..Default::default()
    }
}

#[test]
fn all_dtypes_are_covered() {
    let mut covered: Vec<DType> = cases().iter().map(|c| c.dtype).collect();
    covered.extend([DType::String, DType::Resource, DType::Variant]);
    covered.sort();
    assert_eq!(covered, DType::ALL);
}

#[test]
fn value_lists_and_content_mean_the_same() {
    for case in cases() {
        let dtype = case.dtype;
        let mut listed = proto(dtype, &[3, 1]);
        (case.set)(&mut listed, &[0, 1, 2]);
        let mut packed = proto(dtype, &[3, 1]);
        packed.tensor_content = case.bytes.concat().into();
        for p in [&listed, &packed] {
            let t = Tensor::from_proto(p, None).unwrap();
            assert_eq!((t.dtype(), t.shape().dims()), (dtype, &[3, 1][..]));
            assert_eq!(t.as_bytes().unwrap(), case.bytes.concat(), "{dtype}");
            // Written messages are always packed.
            assert_eq!(t.to_proto().unwrap(), packed, "{dtype}");
        }
    }
}

#[test]
fn short_and_long_lists() {
    for case in cases() {
        let [first, second, _] = &case.bytes;
        let zero = vec![0; first.len()];
        for (which, expected) in [
            (&[][..], [&zero, &zero, &zero, &zero]),
            (&[0], [first, first, first, first]),
            (&[0, 1], [first, second, second, second]),
            (&[0, 1, 0, 1, 2, 2], [first, second, first, second]),
        ] {
            let mut p = proto(case.dtype, &[4]);
            (case.set)(&mut p, which);
            let t = Tensor::from_proto(&p, None).unwrap();
            let expected: Vec<u8> = expected.into_iter().flatten().copied().collect();
            assert_eq!(t.as_bytes().unwrap(), expected, "{}: {which:?}", case.dtype);
        }
    }
}

#[test]
fn scalars_and_empty_tensors() {
    for case in cases() {
        let mut p = TensorProto { dtype: case.dtype.to_proto(), ..Default::default() };
        (case.set)(&mut p, &[1]);
        let t = Tensor::from_proto(&p, None).unwrap();
        assert_eq!((t.rank(), t.as_bytes().unwrap()), (0, &case.bytes[1][..]), "{}", case.dtype);
        let empty = Tensor::from_proto(&proto(case.dtype, &[2, 0]), None).unwrap();
        assert_eq!(empty.shape().dims(), [2, 0]);
        assert_eq!(empty.to_proto().unwrap(), proto(case.dtype, &[2, 0]));
    }
}

#[test]
fn content_of_the_wrong_length() {
    for case in cases() {
        for len in [1, case.dtype.size() * 3 - 1, case.dtype.size() * 3 + 1] {
            let mut p = proto(case.dtype, &[3]);
            p.tensor_content = vec![0; len].into();
            assert_eq!(
                Tensor::from_proto(&p, None).unwrap_err().to_string(),
                format!(
                    "INVALID_ARGUMENT: {len} bytes are not a {} tensor of shape [3]",
                    case.dtype
                )
            );
        }
    }
}

#[test]
fn strings() {
    let long = vec![b'x'; 300];
    let mut p = proto(DType::String, &[4]);
    p.string_val = vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from(long.clone())];
    let t = Tensor::from_proto(&p, None).unwrap();
    assert_eq!(t.strings().unwrap(), [&b"ab"[..], b"", &long, &long]);
    let back = t.to_proto().unwrap();
    assert_eq!(Tensor::from_proto(&back, None).unwrap().strings().unwrap(), t.strings().unwrap());

    let mut packed = proto(DType::String, &[3]);
    let mut content = vec![2, 0, 0xac, 0x02, b'a', b'b'];
    content.extend_from_slice(&long);
    packed.tensor_content = content.into();
    let t = Tensor::from_proto(&packed, None).unwrap();
    assert_eq!(t.strings().unwrap(), [&b"ab"[..], b"", &long]);

    let empty = Tensor::from_proto(&proto(DType::String, &[0]), None).unwrap();
    assert_eq!(empty.to_proto().unwrap(), proto(DType::String, &[0]));
    for (content, message) in [
        (&[2, 1, b'a'][..], "a string ends beyond the tensor's content"),
        (&[2, 1, b'a', b'b', b'c', b'd'], "1 bytes follow the last string"),
        (&[0x80, 0x80], "a string's length is cut off"),
        (&[0xff; 20], "a string's length has more than 64 bits"),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1], "a string ends beyond"),
        (&[0], "1 bytes cannot hold 2 strings"),
    ] {
        let mut p = proto(DType::String, &[2]);
        p.tensor_content = Bytes::copy_from_slice(content);
        let error = Tensor::from_proto(&p, None).unwrap_err();
        assert!(error.message().starts_with(message), "{content:?}: {error}");
        assert_eq!(error.code(), Code::InvalidArgument);
    }
}

#[test]
fn resource_handles() {
    let handle = ResourceHandleProto {
        device: "/job:ps/replica:0/task:1/device:CPU:0".into(),
        container: "localhost".into(),
        name: "weights".into(),
        dtypes_and_shapes: vec![DtypeAndShape {
            dtype: DType::Float.to_proto(),
            shape: proto(DType::Float, &[-1, 3]).tensor_shape,
        }],
        ..Default::default()
    };
    let mut p = proto(DType::Resource, &[1]);
    p.resource_handle_val = vec![handle];
    let t = Tensor::from_proto(&p, None).unwrap();
    let held = &t.resources().unwrap()[0];
    assert_eq!(&*held.name, "weights");
    assert_eq!(held.dtypes_and_shapes[0].1.to_string(), "[?,3]");
    assert_eq!(t.to_proto().unwrap(), p);
    p.resource_handle_val.clear();
    assert_eq!(
        Tensor::from_proto(&p, None).unwrap_err().to_string(),
        "INVALID_ARGUMENT: 0 elements do not fill shape [1]"
    );
}

#[test]
fn variants_of_unknown_types_round_trip() {
    let mut inner = proto(DType::Int32, &[2]);
    inner.tensor_content = Bytes::from_static(&[1, 0, 0, 0, 2, 0, 0, 0]);
    let mut p = proto(DType::Variant, &[2]);
    p.variant_val = vec![
        VariantTensorDataProto {
            type_name: "somebody::Set".into(),
            metadata: Bytes::from_static(b"\x01\x02"),
            tensors: vec![inner],
        },
        VariantTensorDataProto::default(),
    ];
    let t = Tensor::from_proto(&p, None).unwrap();
    let values = t.variants().unwrap();
    assert_eq!(values[0].as_ref().unwrap().type_name(), "somebody::Set");
    assert!(values[1].is_none());
    assert_eq!(t.to_proto().unwrap(), p);
}

#[derive(Debug)]
struct Rooted;

impl Variant for Rooted {
    fn type_name(&self) -> &str {
        "Rooted"
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        None
    }
}

#[test]
fn variants_without_a_proto_form_are_refused() {
    let t = Tensor::from_variants(Shape::scalar(), vec![Some(Arc::new(Rooted))]).unwrap();
    assert_eq!(
        t.to_proto().unwrap_err().to_string(),
        "INVALID_ARGUMENT: a variant of type Rooted cannot leave its process"
    );
}

#[test]
fn shapes_that_no_tensor_has() {
    let mut unknown_rank = proto(DType::Float, &[]);
    unknown_rank.tensor_shape.as_mut().unwrap().unknown_rank = true;
    let untyped = TensorProto { dtype: 0, ..proto(DType::Float, &[]) };
    let mystery = TensorProto { dtype: 77, ..proto(DType::Float, &[]) };
    for (p, message) in [
        (unknown_rank, "a tensor's shape has an unknown rank"),
        (proto(DType::Float, &[2, -1]), "dimension 1 must be at least 0, got -1, in [2, -1]"),
        (
            proto(DType::Float, &[1 << 40, 1 << 40]),
            "shape [1099511627776,1099511627776] has too many elements for 63 bits",
        ),
        (proto(DType::Float, &[1; 255]), "rank 255 exceeds 254"),
        (untyped, "0 (DT_INVALID) is not a data type a tensor can have"),
        (mystery, "77 (unknown) is not a data type a tensor can have"),
    ] {
        let error = Tensor::from_proto(&p, None).unwrap_err();
        assert_eq!(error.to_string(), format!("INVALID_ARGUMENT: {message}"));
    }
    let referenced = TensorProto { dtype: 101, ..proto(DType::Float, &[]) };
    assert_eq!(Tensor::from_proto(&referenced, None).unwrap().dtype(), DType::Float);
}
