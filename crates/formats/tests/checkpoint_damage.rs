//! Damaged checkpoints: every byte changed in turn, every length cut. What comes is the right data,
//! or an error that names the file and the place.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use thalweg_formats::Storage;
use thalweg_formats::checkpoint::{BundleReader, Slice, v1};
use thalweg_formats::storage::LocalStorage;
use thalweg_formats::storage::MemoryStorage as Memory;
use thalweg_proto::TensorProto;
use thalweg_tensor::{Code, Error, Result};

const BUNDLES: [&str; 4] = ["mixed", "slices", "variants", "objects"];
const FIRST: [&str; 2] = ["first", "first-slices"];

/// A recorded checkpoint, in memory.
fn recorded(name: &str) -> Memory {
    let folder = format!("{}/../../testdata/checkpoints", env!("CARGO_MANIFEST_DIR"));
    let memory = Memory::default();
    for file in LocalStorage::default().list(&folder).unwrap() {
        let rest = file.strip_prefix(name);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) {
            let path = format!("{folder}/{file}");
            memory.put(&file, &LocalStorage::default().read(&path, 1 << 20).unwrap());
        }
    }
    assert!(!memory.paths().is_empty(), "{name}");
    memory
}

/// Every tensor under its name, or why there is none; an error if the checkpoint does not open.
type Everything = Result<Vec<(String, Result<TensorProto>)>>;

fn everything(memory: &Memory, name: &str) -> Everything {
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    if FIRST.contains(&name) {
        let reader = v1::Reader::open(&*storage, name)?;
        let read = |name: &str| (name.to_owned(), reader.read(name).and_then(|t| t.to_proto()));
        return Ok(reader.names().map(read).collect());
    }
    let reader = BundleReader::open(&storage, name)?;
    let slice = Slice::parse("0,2:1,1").unwrap();
    let read = |name: &str| {
        // This one is only half there.
        let tensor = match name {
            "half" => reader.read_slice(name, &slice),
            _ => reader.read(name),
        };
        (name.to_owned(), tensor.and_then(|t| t.to_proto()))
    };
    let all: Vec<_> = reader.names().map(read).collect();
    let problems = reader.verify().problems;
    let bad = all.iter().filter(|(_, tensor)| tensor.is_err()).count();
    let half = usize::from(name == "slices");
    assert!(problems.len() == bad + half || bad > 0 && problems.len() == bad, "{problems:?}");
    Ok(all)
}

fn check_error(e: &Error, file: &str, what: &str) {
    let is_expected = matches!(
        e.code(),
        Code::DataLoss
            | Code::OutOfRange
            | Code::InvalidArgument
            | Code::Unimplemented
            | Code::ResourceExhausted
    );
    assert!(is_expected, "{what}: {e}");
    assert!(e.message().contains(file) && e.message().contains("byte"), "{what}: {e}");
}

/// How many of the damages were seen.
fn check(damaged: &Everything, whole: &Everything, file: &str, what: &str) -> bool {
    let damaged = match damaged {
        Ok(damaged) => damaged,
        Err(e) => {
            check_error(e, file, what);
            return true;
        }
    };
    let whole = whole.as_ref().unwrap();
    assert_eq!(damaged.len(), whole.len(), "{what}");
    let mut is_seen = false;
    for ((name, tensor), (right_name, right)) in damaged.iter().zip(whole) {
        assert_eq!(name, right_name, "{what}");
        match tensor {
            Ok(tensor) => assert_eq!(tensor, right.as_ref().unwrap(), "{what}: {name}"),
            Err(e) => {
                check_error(e, file, what);
                is_seen = true;
            }
        }
    }
    is_seen
}

#[test]
fn every_byte_changed() {
    for name in BUNDLES.iter().chain(&FIRST) {
        let memory = recorded(name);
        let whole = everything(&memory, name);
        for file in memory.paths() {
            let content = memory.content(&file);
            let (mut seen, mut all) = (0, 0);
            for at in 0..content.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut changed = content.clone();
                    changed[at] ^= flip;
                    memory.put(&file, &changed);
                    let what = format!("{file}: byte {at} ^ {flip:#x}");
                    let is_seen = check(&everything(&memory, name), &whole, &file, &what);
                    seen += usize::from(is_seen);
                    all += 1;
                }
            }
            memory.put(&file, &content);
            // Only the empty list of filters and the padding of the footer mean nothing.
            let unseen = all - seen;
            assert!(unseen <= 3 * 50, "{file}: {unseen} of {all} changes were not seen");
            assert!(!file.contains(".data-") || unseen == 0, "{file}: {unseen}");
        }
    }
}

#[test]
fn every_length_cut() {
    for name in BUNDLES.iter().chain(&FIRST) {
        let memory = recorded(name);
        let whole = everything(&memory, name);
        for file in memory.paths() {
            let content = memory.content(&file);
            for length in 0..content.len() {
                memory.put(&file, &content[..length]);
                let what = format!("{file}: cut to {length}");
                let is_seen = check(&everything(&memory, name), &whole, &file, &what);
                assert!(is_seen, "{what}");
            }
            memory.put(&file, &content);
        }
    }
}

#[test]
fn files_of_two_checkpoints_mixed() {
    let memory = recorded("mixed");
    let other = recorded("slices");
    memory.put("mixed.data-00000-of-00001", &other.content("slices.data-00000-of-00001"));
    let all = everything(&memory, "mixed").unwrap();
    let read = all.iter().filter(|(_, tensor)| tensor.is_ok()).map(|(name, _)| name.as_str());
    // These have no bytes.
    assert_eq!(read.collect::<Vec<_>>(), ["empty"]);
}
