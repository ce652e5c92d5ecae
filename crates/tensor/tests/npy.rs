//! `.npy` files: those that NumPy wrote, those that we write, and malformed ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use thalweg_tensor::*;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/npy"))
}

fn sample(name: &str) -> Bytes {
    std::fs::read(folder().join(format!("{name}.npy"))).unwrap().into()
}

fn read(name: &str) -> Tensor {
    npy::read(sample(name), None).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn samples() -> Vec<(String, Bytes)> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder()).unwrap().map(|f| f.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "npy"));
    paths.sort();
    let name = |p: &PathBuf| p.file_stem().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|p| (name(p), std::fs::read(p).unwrap().into())).collect()
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

/// The sample of this type in all its orders holds 0 to 5.
fn check<T: Element>(name: &str, number: impl Fn(i32) -> T) {
    let expected: Vec<T> = (0..6).map(number).collect();
    for suffix in ["", "_fortran", "_big"] {
        if suffix == "_big" && size_of::<T>() == 1 {
            continue;
        }
        let t = read(&format!("{name}{suffix}"));
        assert_eq!((t.dtype(), t.shape()), (T::DTYPE, &shape(&[2, 3])), "{name}{suffix}");
        assert_eq!(t.as_slice::<T>().unwrap(), expected, "{name}{suffix}");
    }
}

#[test]
fn every_numeric_type_in_every_order() {
    check("bool", |i| i != 0);
    check("int8", |i| i as i8);
    check("int16", |i| i as i16);
    check("int32", |i| i);
    check("int64", i64::from);
    check("uint8", |i| i as u8);
    check("uint16", |i| i as u16);
    check("uint32", |i| i as u32);
    check("uint64", |i| i as u64);
    check("float16", |i| f16::from_f32(i as f32));
    check("float32", |i| i as f32);
    check("float64", f64::from);
    check("complex64", |i| Complex32::new(i as f32, -i as f32));
    check("complex128", |i| Complex64::new(i.into(), (-i).into()));
    for name in ["int32_v2", "int32_v3", "int32_big_fortran"] {
        assert_eq!(read(name).as_slice::<i32>().unwrap(), [0, 1, 2, 3, 4, 5], "{name}");
    }
}

#[test]
fn ranks() {
    assert_eq!(read("scalar").scalar_value::<i32>().unwrap(), 7);
    assert_eq!(read("vector").as_slice::<i64>().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(read("empty").shape(), &shape(&[0, 3]));
    let deep = read("rank5_fortran");
    assert_eq!(deep.shape(), &shape(&[1, 2, 3, 4, 5]));
    assert_eq!(deep.as_slice::<i32>().unwrap(), (0..120).collect::<Vec<_>>());
}

#[test]
fn strings_lose_their_padding() {
    let words = ["a", "", "höhe", "日本", "x\0y", "zz"];
    for name in ["unicode", "unicode_big", "unicode_fortran", "bytes"] {
        let t = read(name);
        assert_eq!(t.shape(), &shape(&[2, 3]), "{name}");
        assert_eq!(t.strings().unwrap(), words.map(str::as_bytes), "{name}");
    }
}

#[test]
fn types_that_numpy_does_not_know() {
    let expected: Vec<bf16> = (0..6).map(|i| bf16::from_f32(i as f32)).collect();
    assert_eq!(read("bfloat16").as_slice::<bf16>().unwrap(), expected);
    assert_eq!(read("float8").dtype(), DType::Float8E5m2);
    let raw = Tensor::zeros(DType::Float8E4m3fn, shape(&[2])).unwrap();
    for (file, message) in [
        (sample("records"), "UNIMPLEMENTED: an .npy file of records; a tensor has one type"),
        (sample("datetime"), "UNIMPLEMENTED: an .npy file of type '<M8[s]', which no tensor has"),
        (
            npy::write(&raw).unwrap().into(),
            "UNIMPLEMENTED: an .npy file of raw type '|V1': the file does not say what its bytes \
             mean ('V2' is taken for bfloat16; save other types as numbers that NumPy knows)",
        ),
    ] {
        assert_eq!(npy::read(file, None).unwrap_err().to_string(), message);
    }
}

#[test]
fn numpys_files_are_written_byte_for_byte() {
    for (name, bytes) in samples() {
        let is_plain = !["_fortran", "_big", "_v2", "_v3"].iter().any(|s| name.ends_with(s));
        if is_plain && !["records", "datetime", "unicode", "float8"].contains(&name.as_str()) {
            let tensor = npy::read(bytes.clone(), None).unwrap();
            assert_eq!(npy::write(&tensor).unwrap(), bytes, "{name}");
        }
    }
}

#[test]
fn every_dtype_is_written() {
    for &dtype in DType::ALL {
        if matches!(dtype, DType::Resource | DType::Variant) {
            continue;
        }
        let tensor = Tensor::zeros(dtype, shape(&[3, 1])).unwrap();
        let file = npy::write(&tensor).unwrap();
        assert!(file.len().is_multiple_of(64) || file.len() > 64, "{dtype}");
        match npy::read(file.into(), None) {
            Ok(back) => assert_eq!(back.shape(), tensor.shape(), "{dtype}"),
            Err(e) => assert!(e.message().contains("raw type '|V1'"), "{dtype}: {e}"),
        }
    }
    let handles = Tensor::zeros(DType::Variant, Shape::scalar()).unwrap();
    assert_eq!(
        npy::write(&handles).unwrap_err().to_string(),
        "INVALID_ARGUMENT: an .npy file cannot hold variant elements"
    );
    let padded = Tensor::scalar_string(Bytes::from_static(b"a\0"));
    assert_eq!(
        npy::write(&padded).unwrap_err().to_string(),
        "INVALID_ARGUMENT: string 0 ends in a zero byte, which an .npy file cannot keep"
    );
}

#[test]
fn data_are_viewed_where_they_can_be() {
    let file = sample("float32");
    let mut memory = Vec::<u8>::with_capacity(64 + file.len());
    let start = memory.as_ptr().align_offset(64);
    memory.resize(start, 0);
    memory.extend_from_slice(&file);
    let bytes = Bytes::from(memory).slice(start..);
    let t = npy::read(bytes.clone(), None).unwrap();
    assert!(bytes.as_ptr_range().contains(&t.as_bytes().unwrap().as_ptr()));
    let budget = Budget::new(1 << 20);
    let t = npy::read(sample("float32_fortran"), Some(&budget)).unwrap();
    assert!(budget.used_bytes() >= 24);
    drop(t);
    assert_eq!(budget.used_bytes(), 0);
}

/// A version 1 file with this header and this many bytes of data.
fn file(header: &str, data: usize) -> Bytes {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 1);
    bytes.into()
}

#[test]
fn hostile_headers() {
    let dict = |descr: &str, shape: &str| {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
    };
    for (header, data, message) in [
        (dict("<f4", "(2,)"), 7, "must have 8 bytes of data, it has 7"),
        (dict("<f4", "(2,)"), 9, "must have 8 bytes of data, it has 9"),
        (dict("<f4", "(1152921504606846976,)"), 8, "must have 4611686018427387904 bytes"),
        (dict("<f8", "(4611686018427387904,)"), 8, "must have more than 2^64 bytes"),
        (dict("<f4", "(4294967296, 4294967296)"), 8, "too many elements"),
        (dict("<f4", "(99999999999999999999,)"), 8, "a size is no number"),
        (dict("<f4", "(-1,)"), 8, "a size is no number"),
        (dict("<f4", "2"), 8, "expected '('"),
        (dict("<f4", &format!("({})", "1,".repeat(300))), 4, "the rank exceeds 254"),
        (dict("S0", "(4611686018427387904,)"), 0, "strings of width 0"),
        (dict("S18446744073709551615", "(2,)"), 8, "must have more than 2^64 bytes"),
        (dict("U18446744073709551615", "(2,)"), 8, "which no tensor has"),
        (dict("S99999999999999999999", "(2,)"), 8, "which no tensor has"),
        (dict("", "(2,)"), 8, "which no tensor has"),
        (dict("<", "(2,)"), 8, "which no tensor has"),
        (dict("<f", "(2,)"), 8, "which no tensor has"),
        (dict("|O", "(2,)"), 16, "which no tensor has"),
        (dict("|O8", "(2,)"), 16, "pickled Python objects"),
        (dict("<f16", "(2,)"), 32, "which no tensor has"),
        (dict("<U1", "(1,)"), 4, "0x1010101 in an .npy file is no Unicode character"),
        ("{".into(), 0, "expected a quoted string"),
        ("{'".into(), 0, "a string has no end"),
        ("{}".into(), 0, "it must have 'descr', 'fortran_order' and 'shape'"),
        ("{'shape': (2,), 'descr': '<f4'}".into(), 8, "it must have"),
        ("{'shape': (2,)".into(), 8, "expected '}'"),
        ("{'shap': (2,)}".into(), 8, "the key 'shap' is unknown"),
        ("{} extra".into(), 8, "something follows"),
        ("\u{e9}".into(), 8, "expected '{'"),
        (String::new(), 8, "expected '{'"),
    ] {
        let error = npy::read(file(&header, data), None).expect_err(&header);
        assert!(error.message().contains(message), "{header}: {error}");
        assert!(matches!(error.code(), Code::InvalidArgument | Code::Unimplemented), "{error}");
    }
    for (bytes, message) in [
        (&b""[..], "does not begin with"),
        (b"\x93NUMPX\x01\x00", "does not begin with"),
        (b"\x93NUMPY", "ends in its header"),
        (b"\x93NUMPY\x01\x00\x10", "ends in its header"),
        (b"\x93NUMPY\x01\x00\x10\x00{", "ends in its header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "ends in its header"),
        (b"\x93NUMPY\x04\x00\x10\x00{", "version 4.0"),
        (b"\x93NUMPY\x01\x00\x01\x00\xff", "is not text"),
    ] {
        let error = npy::read(Bytes::from_static(bytes), None).unwrap_err();
        assert!(error.message().contains(message), "{bytes:?}: {error}");
    }
    let small = Budget::new(64);
    let many = file(&dict("S1", "(1000,)"), 1000);
    assert_eq!(npy::read(many, Some(&small)).unwrap_err().code(), Code::ResourceExhausted);
}

#[test]
fn mutated_files_never_do_harm() {
    for (name, bytes) in samples() {
        // Of a type that no tensor has, which the header says.
        let refused = npy::read(bytes.clone(), None).err().map(|e| e.code());
        for len in 0..bytes.len() {
            let e = npy::read(bytes.slice(..len), None).unwrap_err();
            let is_expected = e.code() == Code::InvalidArgument || Some(e.code()) == refused;
            assert!(is_expected, "{name} cut at {len}: {e}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, b' ', b'\'', b'0', b'9', b')', b'{', bytes[at] ^ 1, 0xff] {
                let mut mutated = bytes.to_vec();
                mutated[at] = value;
                let budget = Budget::new(1 << 16);
                match npy::read(mutated.into(), Some(&budget)) {
                    Ok(t) => {
                        assert!(t.num_elements() <= bytes.len(), "{name}: byte {at} is {value}");
                    }
                    Err(e) => assert_ne!(e.code(), Code::Internal, "{name}: byte {at}: {e}"),
                }
            }
        }
    }
}
