//! `.npz` and safetensors files: those of NumPy are read, what is written comes back, damage is seen.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use thalweg_formats::npz::{NpzReader, NpzWriter};
use thalweg_formats::safetensors::{SafetensorsReader, SafetensorsWriter};
use thalweg_formats::storage::MemoryStorage;
use thalweg_formats::{LocalStorage, Storage};
use thalweg_proto::TensorProto;
use thalweg_tensor::{Code, DType, Result, Shape, Tensor, bf16};

fn recorded(name: &str) -> MemoryStorage {
    let path = format!("{}/../../testdata/checkpoints/{name}", env!("CARGO_MANIFEST_DIR"));
    MemoryStorage::with("x", &LocalStorage::default().read(&path, 1 << 20).unwrap())
}

fn all_of_npz(storage: &MemoryStorage) -> Result<BTreeMap<String, TensorProto>> {
    let reader = NpzReader::open(storage, "x")?;
    let read = |name: &str| {
        let (tensor, info) = (reader.read(name, None)?, reader.info(name)?);
        assert_eq!((tensor.dtype(), tensor.shape()), (info.dtype, &info.shape), "{name}");
        Ok((name.to_owned(), tensor.to_proto()?))
    };
    reader.names().map(read).collect()
}

#[test]
fn files_of_numpy() {
    for name in ["plain.npz", "compressed.npz"] {
        let storage = recorded(name);
        let reader = NpzReader::open(&storage, "x").unwrap();
        let names: Vec<&str> = reader.names().collect();
        assert_eq!(names, ["rows", "a/b", "words", "fortran", "empty"], "{name}");
        let rows: Vec<f32> = (0..12u8).map(f32::from).collect();
        assert_eq!(reader.read("rows", None).unwrap().as_slice::<f32>().unwrap(), rows);
        assert_eq!(reader.read("a/b", None).unwrap().as_slice::<i64>().unwrap(), [1, -2]);
        assert_eq!(reader.read("words", None).unwrap().strings().unwrap(), [&b"a"[..], b"bb"]);
        let fortran = reader.read("fortran", None).unwrap();
        assert_eq!(fortran.as_slice::<u16>().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(reader.info("empty").unwrap().shape.dims(), [0, 2]);
        assert_eq!(reader.read("none", None).unwrap_err().code(), Code::NotFound);
    }
}

#[test]
fn damaged_archives() {
    for name in ["plain.npz", "compressed.npz"] {
        let storage = recorded(name);
        let whole = all_of_npz(&storage).unwrap();
        let content = storage.content("x");
        let check = |changed: &[u8], what: &str| {
            storage.put("x", changed);
            match all_of_npz(&storage) {
                // Names are in the directory, which has no checksum.
                Ok(read) => read.iter().for_each(|(name, tensor)| {
                    assert!(whole.get(name).is_none_or(|right| right == tensor), "{what}: {name}");
                }),
                Err(e) => {
                    assert_ne!(e.code(), Code::Internal, "{what}: {e}");
                    assert!(e.message().contains('x'), "{what}: {e}");
                }
            }
        };
        for at in 0..content.len() {
            let mut changed = content.clone();
            changed[at] ^= 0x41;
            check(&changed, &format!("{name}: byte {at}"));
        }
        for length in 0..content.len() {
            check(&content[..length], &format!("{name}: cut to {length}"));
            assert_eq!(
                NpzReader::open(&storage, "x").err().map(|e| e.code()),
                Some(Code::DataLoss),
                "{name}: cut to {length}"
            );
        }
    }
}

#[test]
fn more_arrays_than_16_bits_count() {
    let storage = MemoryStorage::default();
    let mut writer = NpzWriter::new(storage.replace("x").unwrap());
    for i in 0..66_000 {
        writer.add(&format!("t{i}"), &Tensor::scalar(i)).unwrap();
    }
    writer.finish().unwrap();
    let reader = NpzReader::open(&storage, "x").unwrap();
    assert_eq!(reader.names().count(), 66_000);
    assert_eq!(reader.read("t65999", None).unwrap().scalar_value::<i32>().unwrap(), 65_999);
}

fn safetensors(storage: &MemoryStorage) {
    let tensors = [
        ("a", Tensor::vector(&[1.5f32, 2.5, 3.5]).unwrap()),
        ("b", Tensor::scalar(7i64)),
        ("c", Tensor::vector(&[true, false, true]).unwrap()),
        ("d", Tensor::vector(&[bf16::ONE]).unwrap()),
        ("e", Tensor::zeros(DType::Double, Shape::new(&[0, 4]).unwrap()).unwrap()),
    ];
    let listed = tensors.iter().map(|(n, t)| ((*n).to_owned(), t.dtype(), t.shape().clone()));
    let texts = BTreeMap::from([("format".to_owned(), "tf".to_owned())]);
    let file = storage.replace("x").unwrap();
    let mut writer = SafetensorsWriter::new(file, listed.collect(), &texts).unwrap();
    while let Some(name) = writer.next_name().map(str::to_owned) {
        let (_, tensor) = tensors.iter().find(|(n, _)| *n == name).unwrap();
        writer.add(tensor).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn safetensors_files() {
    let storage = MemoryStorage::default();
    safetensors(&storage);
    let reader = SafetensorsReader::open(&storage, "x").unwrap();
    assert_eq!(reader.metadata()["format"], "tf");
    let names: Vec<&str> = reader.entries().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    for (name, info) in reader.entries() {
        assert!(info.offset.is_multiple_of(info.dtype.size() as u64), "{name} is aligned");
    }
    assert_eq!(reader.read("a", None).unwrap().as_slice::<f32>().unwrap(), [1.5, 2.5, 3.5]);
    assert_eq!(reader.read("c", None).unwrap().as_slice::<bool>().unwrap(), [true, false, true]);
    assert_eq!(reader.read("e", None).unwrap().shape().dims(), [0, 4]);
    let complex = vec![("z".to_owned(), DType::Complex128, Shape::scalar())];
    let refused = SafetensorsWriter::new(storage.replace("y").unwrap(), complex, &BTreeMap::new());
    assert_eq!(refused.err().unwrap().code(), Code::InvalidArgument);
}

#[test]
fn damaged_safetensors() {
    let storage = MemoryStorage::default();
    safetensors(&storage);
    let content = storage.content("x");
    let try_all = || {
        let reader = SafetensorsReader::open(&storage, "x")?;
        reader.entries().try_for_each(|(name, _)| reader.read(name, None).map(drop))
    };
    for length in 0..content.len() {
        storage.put("x", &content[..length]);
        assert_eq!(try_all().unwrap_err().code(), Code::DataLoss, "cut to {length}");
    }
    for at in 0..content.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = content.clone();
            changed[at] ^= flip;
            storage.put("x", &changed);
            // There are no checksums: what comes may be wrong, but it comes or is refused.
            if let Err(e) = try_all() {
                assert_ne!(e.code(), Code::Internal, "{at}: {e}");
            }
        }
    }
    for header in [
        r#"{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}}"#,
        r#"{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}"#,
        r#"{"a":7}"#,
        "[]",
    ] {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&[0; 4]);
        storage.put("x", &file);
        assert_eq!(try_all().unwrap_err().code(), Code::DataLoss, "{header}");
    }
}
