//! Checkpoints that TensorFlow wrote are read, and written again byte for byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use thalweg_formats::checkpoint::{
    BundleReader, BundleWriter, CheckpointState, MergeOptions, ReadContext, Slice, WriteOptions,
    data_path, index_path, merge, object_graph, object_graph::ObjectGraph, v1,
};
use thalweg_formats::storage::MemoryStorage as Memory;
use thalweg_formats::{LocalStorage, Storage, crc32c};
use thalweg_tensor::{Budget, Bytes, Code, DType, Shape, Tensor};

fn recorded() -> Arc<dyn Storage> {
    Arc::new(LocalStorage::default())
}

fn path(name: &str) -> String {
    format!("{}/../../testdata/checkpoints/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn open(name: &str) -> BundleReader {
    BundleReader::open(&recorded(), &path(name)).unwrap()
}

fn content(name: &str) -> Bytes {
    recorded().read(&path(name), 1 << 20).unwrap()
}

fn memory() -> (Memory, Arc<dyn Storage>) {
    let memory = Memory::default();
    (memory.clone(), Arc::new(memory))
}

fn writer(storage: &Arc<dyn Storage>, prefix: &str) -> BundleWriter {
    BundleWriter::create(storage, prefix, WriteOptions::default()).unwrap()
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

/// Rows `start..end` of a matrix of three columns whose elements count up from zero.
fn rows(start: usize, end: usize) -> Tensor {
    let numbers: Vec<f32> = (start * 3..end * 3).map(|i| i as f32).collect();
    Tensor::from_slice(shape(&[end - start, 3]), &numbers).unwrap()
}

fn words(words: &[&str]) -> Tensor {
    let strings = words.iter().map(|w| Bytes::copy_from_slice(w.as_bytes())).collect();
    Tensor::from_strings(shape(&[words.len()]), strings).unwrap()
}

fn assert_recorded(memory: &Memory, name: &str) {
    for file in [data_path(name, 0, 1), index_path(name)] {
        assert_eq!(Bytes::from(memory.content(&file)), content(&file), "{file}");
    }
}

#[test]
fn every_dtype() {
    let reader = open("dtypes");
    assert_eq!(reader.len(), 27);
    let mut seen = Vec::new();
    for (name, entry) in reader.entries() {
        let tensor = reader.read(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape().dims()), (entry.dtype, &[3][..]), "{name}");
        let expected: Vec<u8> = match entry.dtype {
            DType::Bool => vec![1, 0, 1],
            dtype => (0..3 * dtype.size()).map(|i| (i % 7 + 1) as u8).collect(),
        };
        assert_eq!(tensor.as_bytes().unwrap(), expected, "{name}");
        seen.push((entry.offset, name.to_owned(), tensor));
    }
    assert!(reader.verify().problems.is_empty());
    seen.sort_by_key(|(offset, ..)| *offset);
    let (memory, storage) = memory();
    let mut writer = writer(&storage, "dtypes");
    for (_, name, tensor) in &seen {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
    assert_recorded(&memory, "dtypes");
}

#[test]
fn strings_scalars_and_empty_tensors() {
    let reader = open("mixed");
    let expected = ["b/x", "empty", "no strings", "scalar", "strings", "word", "z"];
    assert_eq!(reader.names().collect::<Vec<_>>(), expected);
    assert_eq!(reader.read("z").unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert!(reader.read("scalar").unwrap().scalar_value::<bool>().unwrap());
    assert_eq!(reader.read("word").unwrap().strings().unwrap(), [&b"word"[..]]);
    let strings = reader.read("strings").unwrap();
    assert_eq!(
        strings.strings().unwrap(),
        [&b"abc"[..], b"", &[b'x'; 200], "\u{e9}".as_bytes(), b"\0\xff"]
    );
    assert_eq!(reader.read("empty").unwrap().shape().dims(), [0, 3]);
    let (memory, storage) = memory();
    let mut writer = writer(&storage, "mixed");
    for name in ["z", "b/x", "strings", "empty", "no strings", "scalar", "word"] {
        writer.add(name, &reader.read(name).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    assert_recorded(&memory, "mixed");
}

#[test]
fn variants() {
    let reader = open("variants");
    let list = reader.read("list").unwrap();
    let proto = list.to_proto().unwrap();
    assert_eq!(proto.variant_val[0].type_name, "tensorflow::TensorList");
    assert_eq!(proto.variant_val[0].tensors.len(), 2);
    let two = reader.read("two").unwrap();
    assert_eq!(two.to_proto().unwrap().variant_val, vec![proto.variant_val[0].clone(); 2]);
    let (_, storage) = memory();
    let mut writer = writer(&storage, "variants");
    writer.add("list", &list).unwrap();
    writer.add("two", &two).unwrap();
    writer.finish().unwrap();
    // Numbers within variants are written in another of TensorProto's forms than TensorFlow's.
    let again = BundleReader::open(&storage, "variants").unwrap();
    assert_eq!(again.read("two").unwrap().to_proto().unwrap(), two.to_proto().unwrap());
}

const SLICES: [(&str, &str); 11] = [
    ("rows", "4 3 0,1:-"),
    ("rows", "4 3 1,3:-"),
    ("columns", "4 3 -:0,2"),
    ("columns", "4 3 -:2,1"),
    ("words", "3 0,2"),
    ("words", "3 2,1"),
    ("half", "4 3 0,2:-"),
    ("whole", "4 3 -:-"),
    ("long", "200 0,63"),
    ("long", "200 63,65"),
    ("long", "200 128,72"),
];

#[test]
fn partitioned_tensors() {
    let reader = open("slices");
    for name in ["rows", "columns", "whole"] {
        assert_eq!(reader.read(name).unwrap().as_bytes().unwrap(), rows(0, 4).as_bytes().unwrap());
        let middle = reader.read_slice(name, &Slice::parse("1,2:-").unwrap()).unwrap();
        assert_eq!(middle.as_bytes().unwrap(), rows(1, 3).as_bytes().unwrap(), "{name}");
        let corner = reader.read_slice(name, &Slice::parse("2,2:1,2").unwrap()).unwrap();
        assert_eq!(corner.as_slice::<f32>().unwrap(), [7.0, 8.0, 10.0, 11.0], "{name}");
        assert_eq!(corner.shape().dims(), [2, 2]);
    }
    assert_eq!(reader.read("words").unwrap().strings().unwrap(), [&b"a"[..], b"bb", b"ccc"]);
    let last = reader.read_slice("words", &Slice::parse("1,2").unwrap()).unwrap();
    assert_eq!(last.strings().unwrap(), [&b"bb"[..], b"ccc"]);
    let numbers: Vec<i32> = (0..200).collect();
    assert_eq!(reader.read("long").unwrap().as_slice::<i32>().unwrap(), numbers);
    let half = reader.read("half").unwrap_err();
    assert_eq!(half.code(), Code::InvalidArgument, "{half}");
    assert!(half.message().contains("'half'"), "{half}");
    let there = reader.read_slice("half", &Slice::parse("0,2:1,1").unwrap()).unwrap();
    assert_eq!(there.as_slice::<f32>().unwrap(), [1.0, 4.0]);
    assert_eq!(reader.entry("long").unwrap().slices.len(), 3);
    assert_eq!(reader.stored_bytes("long"), 800);

    let (memory, storage) = memory();
    let mut writer = writer(&storage, "slices");
    for (name, spec) in SLICES {
        let (shape, slice) = Slice::parse_spec(spec).unwrap();
        let tensor = reader.read_slice(name, &slice).unwrap();
        writer.add_slice(name, &shape, &slice, &tensor).unwrap();
    }
    writer.finish().unwrap();
    assert_recorded(&memory, "slices");
}

#[test]
fn tables_of_several_blocks() {
    let (memory, storage) = memory();
    let mut many = writer(&storage, "many");
    for i in 0..9000 {
        many.add(&format!("layer_{i:05}/some/kernel"), &Tensor::scalar(i as f32)).unwrap();
    }
    many.finish().unwrap();
    let mut odd = writer(&storage, "odd");
    let one = Tensor::scalar(1.0f32);
    let mut names: Vec<String> = (0..4500u32)
        .map(|i| {
            let letter = char::from(b'a' + (i % 26) as u8);
            format!("{}{letter}{i:04}\u{ff}\u{ff}\u{ff}", "a".repeat(40))
        })
        .collect();
    names.extend((0..4500).map(|i| format!("b/{i}")));
    names.sort();
    for name in &names {
        odd.add(name, &one).unwrap();
    }
    odd.finish().unwrap();
    let sums = content("large.txt");
    for line in std::str::from_utf8(&sums).unwrap().lines() {
        let [file, length, sum] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let ours = memory.content(file);
        assert_eq!(ours.len().to_string(), length, "{file}");
        assert_eq!(format!("{:08x}", crc32c(&ours)), sum, "{file}");
    }
    let reader = BundleReader::open(&storage, "many").unwrap();
    assert_eq!(reader.len(), 9000);
    let last = reader.read("layer_08999/some/kernel").unwrap();
    assert_eq!(last.scalar_value::<f32>().unwrap(), 8999.0);
}

#[test]
fn more_tensors_than_16_bits_count() {
    let (_, storage) = memory();
    let mut many = writer(&storage, "many");
    for i in 0..70_000u32 {
        many.add(&format!("t{i}"), &Tensor::scalar(i)).unwrap();
    }
    many.finish().unwrap();
    let reader = BundleReader::open(&storage, "many").unwrap();
    assert_eq!(reader.len(), 70_000);
    for i in [0, 65_535, 65_536, 69_999] {
        assert_eq!(reader.read(&format!("t{i}")).unwrap().scalar_value::<u32>().unwrap(), i);
    }
}

#[test]
fn what_cannot_be_added() {
    let (memory, storage) = memory();
    let mut writer = writer(&storage, "x");
    let code = |result: thalweg_tensor::Result<()>| result.unwrap_err().code();
    let four = shape(&[4]);
    let slice = |text: &str| Slice::parse(text).unwrap();
    let pair = Tensor::vector(&[1.0f32, 2.0]).unwrap();
    writer.add("a", &pair).unwrap();
    assert_eq!(code(writer.add("a", &pair)), Code::InvalidArgument);
    assert_eq!(code(writer.add("", &pair)), Code::InvalidArgument);
    assert_eq!(code(writer.add("\0a", &pair)), Code::InvalidArgument);
    assert_eq!(code(writer.add_slice("a", &four, &slice("0,2"), &pair)), Code::InvalidArgument);
    writer.add_slice("s", &four, &slice("0,2"), &pair).unwrap();
    assert_eq!(code(writer.add("s", &pair)), Code::InvalidArgument);
    assert_eq!(code(writer.add_slice("s", &four, &slice("0,2"), &pair)), Code::InvalidArgument);
    assert_eq!(code(writer.add_slice("s", &four, &slice("0,3"), &pair)), Code::InvalidArgument);
    let five = shape(&[5]);
    assert_eq!(code(writer.add_slice("s", &five, &slice("2,2"), &pair)), Code::InvalidArgument);
    let ints = Tensor::vector(&[1, 2]).unwrap();
    assert_eq!(code(writer.add_slice("s", &four, &slice("2,2"), &ints)), Code::InvalidArgument);
    assert!(memory.paths().is_empty(), "nothing is there before the end");
    writer.finish().unwrap();
    assert_eq!(BundleReader::open(&storage, "x").unwrap().len(), 2);
}

#[test]
fn what_is_not_there() {
    let (_, storage) = memory();
    let mut writer = writer(&storage, "x");
    writer.add("a", &Tensor::scalar(1)).unwrap();
    writer.finish().unwrap();
    let reader = BundleReader::open(&storage, "x").unwrap();
    assert_eq!(reader.read("b").unwrap_err().code(), Code::NotFound);
    for wrong in ["x.index", "x.data-00000-of-00001"] {
        let error = BundleReader::open(&storage, wrong).err().unwrap();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.message().ends_with("the checkpoint is x"), "{error}");
    }
    storage.remove("x.data-00000-of-00001").unwrap();
    let error = BundleReader::open(&storage, "x").unwrap().read("a").unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("x.data-00000-of-00001"), "{error}");
}

#[test]
fn memory_is_charged_and_bounded() {
    let reader = open("mixed");
    let budget = Budget::new(1 << 20);
    let context = ReadContext { budget: Some(&budget), ..Default::default() };
    let tensor = reader.read_with("b/x", None, context).unwrap();
    assert!(budget.used_bytes() >= 32);
    drop(tensor);
    assert_eq!(budget.used_bytes(), 0);
    let none = Budget::new(16);
    let context = ReadContext { budget: Some(&none), ..Default::default() };
    let refused = reader.read_with("b/x", None, context).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[test]
fn large_tensors_are_read_in_parts() {
    let (_, storage) = memory();
    let numbers: Vec<u32> = (0..3_000_000).collect();
    let mut writer = writer(&storage, "x");
    writer.add("odd", &Tensor::scalar(7u8)).unwrap();
    writer.add("large", &Tensor::vector(&numbers).unwrap()).unwrap();
    writer.finish().unwrap();
    let reader = BundleReader::open(&storage, "x").unwrap();
    let in_threads = |count: usize, work: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            (0..count).for_each(|i| {
                scope.spawn(move || work(i));
            });
        });
    };
    let context = ReadContext { spread: &in_threads, ..Default::default() };
    for tensor in [reader.read("large"), reader.read_with("large", None, context)] {
        assert_eq!(tensor.unwrap().as_slice::<u32>().unwrap(), numbers);
    }
}

#[test]
fn merged_checkpoints() {
    let (memory, storage) = memory();
    let full = shape(&[4, 3]);
    for (part, range) in [("tmp/part-0", 0..1), ("tmp/part-1", 1..4)] {
        let mut writer = writer(&storage, part);
        let slice = Slice::parse(&format!("{},{}:-", range.start, range.len())).unwrap();
        writer.add(&format!("{part}/own"), &words(&[part])).unwrap();
        writer.add_slice("rows", &full, &slice, &rows(range.start, range.end)).unwrap();
        writer.finish().unwrap();
    }
    let parts = ["tmp/part-0", "tmp/part-1"];
    let missing = merge(&storage, &["tmp/part-0", "nowhere"], "out/x", MergeOptions::default());
    assert_eq!(missing.unwrap_err().code(), Code::NotFound);
    let same = merge(&storage, &["tmp/part-0", "tmp/part-0"], "out/x", MergeOptions::default());
    assert_eq!(same.unwrap_err().code(), Code::InvalidArgument);
    merge(&storage, &parts, "out/x", MergeOptions::default()).unwrap();
    let expected = ["out/x.data-00000-of-00002", "out/x.data-00001-of-00002", "out/x.index"];
    assert_eq!(memory.paths(), expected);
    let reader = BundleReader::open(&storage, "out/x").unwrap();
    assert_eq!(reader.read("rows").unwrap().as_bytes().unwrap(), rows(0, 4).as_bytes().unwrap());
    assert_eq!(reader.read("tmp/part-1/own").unwrap().strings().unwrap(), [&b"tmp/part-1"[..]]);
    assert_eq!(reader.verify().intact, 3);
}

#[test]
fn an_older_checkpoint_is_whole_until_the_new_one_is() {
    let (memory, storage) = memory();
    let save = |value: f32| {
        let mut writer = writer(&storage, "x");
        writer.add("a", &Tensor::scalar(value)).unwrap();
        let before = memory.snapshot();
        writer.finish().unwrap();
        before
    };
    let value = |memory: &Memory| {
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let reader = BundleReader::open(&storage, "x").unwrap();
        reader.read("a").unwrap().scalar_value::<f32>().unwrap()
    };
    save(1.0);
    for round in 2..6 {
        let old = save(round as f32);
        assert_eq!(value(&old), round as f32 - 1.0);
        assert_eq!(value(&memory), round as f32);
        assert_eq!(memory.paths().len(), 2, "{:?}", memory.paths());
        // A process that dies after the data are in place and before the index is.
        let data: Vec<String> =
            memory.paths().into_iter().filter(|p| p.contains(".data-")).collect();
        assert_eq!(data.len(), 1, "{data:?}");
        for path in &data {
            old.put(path, &memory.content(path));
        }
        assert_eq!(value(&old), round as f32 - 1.0);
    }
}

#[test]
fn the_first_format() {
    let storage = recorded();
    let reader = v1::Reader::open(&*storage, &path("first")).unwrap();
    let mixed = open("mixed");
    let dtypes = open("dtypes");
    for (name, saved) in reader.entries() {
        let tensor = reader.read(name).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (saved.dtype, &saved.shape));
        match name {
            "strings" => {
                let expected = mixed.read("strings").unwrap();
                assert_eq!(tensor.strings().unwrap(), expected.strings().unwrap());
            }
            "negative" => assert_eq!(tensor.as_slice::<i32>().unwrap(), [-1, i32::MIN]),
            "bytes" => assert_eq!(tensor.as_slice::<i8>().unwrap(), [-128, 127]),
            _ => {
                let expected = dtypes.read(name).unwrap();
                assert_eq!(tensor.as_bytes().unwrap(), expected.as_bytes().unwrap(), "{name}");
            }
        }
    }
    assert_eq!(reader.names().count(), 18);
    assert_eq!(reader.read("nothing").unwrap_err().code(), Code::NotFound);

    let (memory, written) = memory();
    let mut writer = v1::Writer::new(&*written, "first", WriteOptions::default());
    for name in reader.names() {
        writer.add(name, &reader.read(name).unwrap()).unwrap();
    }
    let twice = writer.add("strings", &reader.read("strings").unwrap());
    assert_eq!(twice.unwrap_err().code(), Code::InvalidArgument);
    let another = writer.add("strings", &rows(0, 1));
    assert_eq!(another.unwrap_err().code(), Code::Internal, "as TensorFlow has it");
    writer.finish().unwrap();
    assert_eq!(Bytes::from(memory.content("first")), content("first"));
}

#[test]
fn slices_in_the_first_format() {
    let storage = recorded();
    let reader = v1::Reader::open(&*storage, &path("first-slices")).unwrap();
    assert_eq!(reader.read("rows").unwrap().as_bytes().unwrap(), rows(0, 4).as_bytes().unwrap());
    let middle = reader.read_slice("rows", &Slice::parse("0,3:1,1").unwrap()).unwrap();
    assert_eq!(middle.as_slice::<f32>().unwrap(), [1.0, 4.0, 7.0]);
    assert_eq!(reader.read("scalar").unwrap().scalar_value::<f64>().unwrap(), 2.5);
    let (memory, written) = memory();
    let mut writer = v1::Writer::new(&*written, "first-slices", WriteOptions::default());
    for (name, saved) in reader.entries() {
        for slice in &saved.slices {
            let tensor = reader.read_slice(name, slice).unwrap();
            writer.add_slice(name, &saved.shape, slice, &tensor).unwrap();
        }
    }
    writer.finish().unwrap();
    assert_eq!(Bytes::from(memory.content("first-slices")), content("first-slices"));
}

#[test]
fn the_first_format_in_several_files() {
    let (_, storage) = memory();
    let full = shape(&[4, 3]);
    for (i, range) in [0..1, 1..4].into_iter().enumerate() {
        let path = format!("d/x-{i:05}-of-00002");
        let mut writer = v1::Writer::new(&*storage, &path, WriteOptions::default());
        let slice = Slice::parse(&format!("{},{}:-", range.start, range.len())).unwrap();
        writer.add_slice("rows", &full, &slice, &rows(range.start, range.end)).unwrap();
        writer.finish().unwrap();
    }
    let reader = v1::Reader::open(&*storage, "d/x-?????-of-?????").unwrap();
    assert_eq!(reader.read("rows").unwrap().as_bytes().unwrap(), rows(0, 4).as_bytes().unwrap());
    let half = v1::Reader::open(&*storage, "d/x-00000-of-00002").unwrap();
    assert_eq!(half.read("rows").unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(v1::Reader::open(&*storage, "d/y*").err().unwrap().code(), Code::NotFound);
    let unsigned = Tensor::scalar(1u32);
    let mut writer = v1::Writer::new(&*storage, "z", WriteOptions::default());
    assert_eq!(writer.add("u", &unsigned).unwrap_err().code(), Code::InvalidArgument);
    let brain = Tensor::scalar(thalweg_tensor::bf16::ONE);
    assert_eq!(writer.add("b", &brain).unwrap_err().code(), Code::Unimplemented);
}

#[test]
fn the_latest_checkpoint_of_a_folder() {
    let (memory, storage) = memory();
    assert_eq!(CheckpointState::read(&*storage, "run").unwrap(), None);
    let state = CheckpointState {
        latest: "run/model-20".into(),
        all: vec!["run/model-10".into(), "run/model-20".into(), "/elsewhere/x".into()],
        timestamps: vec![1.5, 2.5, 3.0],
        last_preserved: 1.0,
    };
    state.write(&*storage, "run").unwrap();
    let text = String::from_utf8(memory.content("run/checkpoint")).unwrap();
    assert!(text.starts_with("model_checkpoint_path: \"model-20\"\n"), "{text}");
    assert_eq!(CheckpointState::read(&*storage, "run").unwrap(), Some(state));
    memory.put("run/checkpoint", b"model_checkpoint_path: 7");
    let error = CheckpointState::read(&*storage, "run").unwrap_err();
    assert_eq!(error.code(), Code::DataLoss);
}

#[test]
fn objects_and_their_values() {
    let reader = open("objects");
    let graph = object_graph::read(&reader).unwrap().unwrap();
    assert!(object_graph::read(&open("mixed")).unwrap().is_none());
    // The objects in the order in which TensorFlow meets them.
    let mut ours = ObjectGraph::default();
    for path in [&["model"][..], &["step"], &["model", "kernel"], &["model", "layers"]] {
        ours.at(path).unwrap();
    }
    let keys = [
        ours.variable(&["step"], "Variable").unwrap(),
        ours.variable(&["model", "kernel"], "kernel").unwrap(),
        ours.variable(&["model", "layers", "0"], "count").unwrap(),
        ours.variable(&["model", "layers", "1"], "words").unwrap(),
    ];
    assert_eq!(ours.to_proto(), graph);
    assert_eq!(reader.read(&keys[0]).unwrap().scalar_value::<i64>().unwrap(), 7);
    assert_eq!(reader.read(&keys[3]).unwrap().strings().unwrap(), [&b"text"[..]]);
    assert_eq!(
        ours.variable(&["step"], "again").err().map(|e| e.code()),
        Some(Code::InvalidArgument)
    );
    let slot = ours.slot(&["optimizer"], &["model", "a/b.c"], "m", "m").unwrap();
    assert_eq!(slot, "model/a.Sb..c/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE");
}

#[test]
fn mapped_files_are_viewed() {
    let storage = recorded();
    let reader = BundleReader::open(&storage, &path("dtypes")).unwrap();
    let mapped = BundleReader::open(&storage, &path("dtypes")).unwrap().mapped();
    for (name, entry) in reader.entries() {
        let [copied, viewed] = [&reader, &mapped].map(|reader| reader.read(name).unwrap());
        assert_eq!(copied.as_bytes().unwrap(), viewed.as_bytes().unwrap(), "{name}");
        let is_aligned = entry.offset.is_multiple_of(entry.dtype.size() as u64);
        assert_eq!(viewed.is_unique(), !is_aligned, "{name}");
    }
    // The memory stays as long as a tensor shows it.
    let tensor = mapped.read("float32").unwrap();
    drop(mapped);
    assert_eq!(tensor.as_bytes().unwrap().len(), 12);
    // A damaged file is seen here too.
    let (memory, storage) = memory();
    let mut writer = writer(&storage, "x");
    let numbers: Vec<u32> = (0..3_000_000).collect();
    writer.add("a", &Tensor::vector(&numbers).unwrap()).unwrap();
    writer.finish().unwrap();
    let mapped = BundleReader::open(&storage, "x").unwrap().mapped();
    assert_eq!(mapped.read("a").unwrap().as_slice::<u32>().unwrap(), numbers);
    let mut data = memory.content("x.data-00000-of-00001");
    data[9_000_000] ^= 1;
    memory.put("x.data-00000-of-00001", &data);
    let mapped = BundleReader::open(&storage, "x").unwrap().mapped();
    assert_eq!(mapped.read("a").unwrap_err().code(), Code::DataLoss);
    memory.put("x.data-00000-of-00001", &data[..100]);
    let mapped = BundleReader::open(&storage, "x").unwrap().mapped();
    assert_eq!(mapped.read("a").unwrap_err().code(), Code::OutOfRange);
}
