//! Fuzz targets as plain functions: no input may make them panic, abort or hang.
//!
//! `tests/hostile` runs them on stable Rust over a corpus with seeded mutations; the programs in
//! `fuzz_targets/` hand them to cargo-fuzz.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use thalweg::Registry;
use thalweg::formats::checkpoint::{BundleReader, ReadContext, object_graph, v1};
use thalweg::formats::events::{EventReader, Scalars};
use thalweg::formats::masked_crc32c;
use thalweg::formats::npz::NpzReader;
use thalweg::formats::record::{Compression, Index, ReadOptions, RecordReader};
use thalweg::formats::safetensors::SafetensorsReader;
use thalweg::formats::saved_model::TensorSpec;
use thalweg::formats::storage::{InMemory, MemoryStorage, Storage};
use thalweg::formats::{LocalStorage, Rooted};
use thalweg::graph::{Graph, Op};
use thalweg::kernel::Environment;
use thalweg::prelude::*;
use thalweg::proto::{self as pb, text};
use thalweg::runtime::{Session, system_environment};
use thalweg::tensor::{Budget, Bytes, npy};

/// What a graph from outside may take here.
const MEMORY_BYTES_MAX: usize = 64 << 20;
const STEP_TIME_MAX: Duration = Duration::from_secs(1);
/// Nodes of a graph that are fetched, last ones first.
const FETCHES_MAX: usize = 4;

/// Beginnings of messages that TensorFlow gives the code INTERNAL, though a graph's author erred.
const TENSORFLOWS_INTERNAL: [&str; 8] = [
    "Invalid variable reference",
    "Integer division by zero",
    "Mismatch of staged tensors",
    "A stack holds another dtype",
    "Variants that cannot be added",
    "ZerosLike does not support the variant",
    // A loop sends a tensor that is fetched inside it again and again.
    "Retval[",
    "A slice is outside its shape",
];

/// The value, or `None` for an error about the input. INTERNAL means a bug of ours, and so does a kernel
/// that panicked, except where TensorFlow itself has this code.
#[track_caller]
fn unless_bug<T>(result: Result<T>) -> Option<T> {
    if let Err(e) = &result
        && e.code() == Code::Internal
    {
        let is_known = TENSORFLOWS_INTERNAL.iter().any(|known| e.message().starts_with(known));
        assert!(is_known, "{e}");
    }
    result.ok()
}

/// A GraphDef in binary form: decoded, imported, planned, run.
pub fn graph_binary(bytes: &[u8]) {
    if let Ok(def) = pb::GraphDef::decode(Bytes::copy_from_slice(bytes)) {
        graph(def);
    }
}

/// A GraphDef in text form, likewise: what was decoded can be written and decoded again.
pub fn graph_text(bytes: &[u8]) {
    const MESSAGE: &str = "tensorflow.GraphDef";
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let Ok(def) = text::decode::<pb::GraphDef>(MESSAGE, source) else { return };
    let again: pb::GraphDef =
        text::decode(MESSAGE, &text::encode(MESSAGE, &def)).expect("what we wrote we can decode");
    assert_eq!(again.encode_to_vec(), def.encode_to_vec(), "{def:?}");
    graph(def);
}

/// A TensorProto: what is read can be written and read again.
pub fn tensor(bytes: &[u8]) {
    let Ok(proto) = pb::TensorProto::decode(Bytes::copy_from_slice(bytes)) else { return };
    let budget = Budget::new(MEMORY_BYTES_MAX);
    let Some(tensor) = unless_bug(Tensor::from_proto(&proto, Some(&budget))) else { return };
    if let Some(written) = unless_bug(tensor.to_proto()) {
        let again = Tensor::from_proto(&written, None).expect("what we wrote we can read");
        // As bytes, since NaN differs from itself.
        let rewritten = again.to_proto().expect("it could be written before");
        assert_eq!(rewritten.encode_to_vec(), written.encode_to_vec());
        assert_eq!((again.dtype(), again.shape()), (tensor.dtype(), tensor.shape()));
    }
    unless_bug(npy::write(&tensor));
}

/// The notation of op definitions: a name, then inputs, outputs and attrs, a line each.
pub fn notation(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let lines: Vec<&str> = source.lines().collect();
    for line in &lines {
        parse_op(&[], &[line]);
        parse_op(&[line], &["T: type", "N: int"]);
    }
    let (arguments, attrs) = lines.split_at(lines.len() / 2);
    parse_op(arguments, attrs);
}

/// Op definitions are code, so a mistake in one is INTERNAL; the message begins with the mistake, quoted.
fn parse_op(arguments: &[&str], attrs: &[&str]) {
    if let Err(e) = Op::parse("Fuzzed", arguments, arguments, attrs) {
        assert!(e.code() == Code::Internal && e.message().starts_with('"'), "{e}");
    }
}

/// An .npy file: what is read can be written and read again.
pub fn npy_file(bytes: &[u8]) {
    let budget = Budget::new(MEMORY_BYTES_MAX);
    let tensor = npy::read(Bytes::copy_from_slice(bytes), Some(&budget));
    let Some(tensor) = unless_bug(tensor) else { return };
    let Some(written) = unless_bug(npy::write(&tensor)) else { return };
    match npy::read(written.clone().into(), None) {
        Ok(again) => {
            assert_eq!((again.dtype(), again.shape()), (tensor.dtype(), tensor.shape()));
            assert_eq!(npy::write(&again).expect("it could be written before"), written);
        }
        // Types that NumPy does not know are written as raw bytes, which tell nothing of it.
        Err(e) => assert_eq!(e.code(), Code::Unimplemented, "{e}"),
    }
}

/// A TFRecord file, plain or compressed: records that are read are those that a reader which passes
/// over damage reads first.
pub fn record_file(bytes: &[u8]) {
    let content = Bytes::copy_from_slice(bytes);
    for compression in [Compression::None, Compression::Zlib, Compression::Gzip] {
        let strict = records(&content, compression, 0);
        let lenient = records(&content, compression, u64::MAX);
        assert_eq!(strict[..], lenient[..strict.len()]);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        unless_bug(Index::parse("fuzzed", text));
    }
}

fn records(content: &Bytes, compression: Compression, bad_records_max: u64) -> Vec<Vec<u8>> {
    let options = ReadOptions {
        compression,
        bad_records_max,
        record_bytes_max: MEMORY_BYTES_MAX,
        ..Default::default()
    };
    let file = Arc::new(InMemory { path: "fuzzed".into(), content: content.clone() });
    let mut reader = RecordReader::from_file(file, options).expect("memory can be read");
    let mut found = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => found.push(record.to_vec()),
            Ok(None) => return found,
            Err(e) => {
                assert_eq!(e.code(), Code::DataLoss, "{e}");
                return found;
            }
        }
    }
}

/// An event file, or one event by itself: numbers and tags are found or refused.
pub fn event_file(bytes: &[u8]) {
    let content = Bytes::copy_from_slice(bytes);
    let mut framed = Vec::new();
    framed.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    framed.extend_from_slice(&masked_crc32c(&framed[..8]).to_le_bytes());
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(&masked_crc32c(bytes).to_le_bytes());
    for content in [content, framed.into()] {
        let open = || {
            let file = Arc::new(InMemory { path: "fuzzed".into(), content: content.clone() });
            let records = RecordReader::from_file(file, ReadOptions::default());
            EventReader::from_records(records.expect("memory can be read"))
        };
        let (mut reader, mut scalars) = (open(), Scalars::new());
        while let Some(Some(_)) = unless_bug(scalars.next(&mut reader)) {}
        let mut reader = open();
        while let Some(Some(_)) = unless_bug(reader.next_event()) {}
    }
}

/// The index of a checkpoint, or one block of it, whose checksums are right: tensors are read or
/// refused. The bytes are also the data.
pub fn checkpoint_index(bytes: &[u8]) {
    for index in [bytes.to_vec(), table_of(bytes)] {
        let memory = MemoryStorage::with("x.index", &index);
        memory.put("x.data-00000-of-00001", bytes);
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let budget = Budget::new(MEMORY_BYTES_MAX);
        let context = ReadContext { budget: Some(&budget), ..Default::default() };
        if let Some(reader) = unless_bug(BundleReader::open(&storage, "x")) {
            for name in reader.names() {
                unless_bug(reader.read_with(name, None, context));
            }
            for problem in reader.verify().problems {
                unless_bug::<()>(Err(problem));
            }
            unless_bug(reader.check_sizes());
            unless_bug(object_graph::read(&reader));
        }
        if let Some(reader) = unless_bug(v1::Reader::open(&memory, "x.index")) {
            for name in reader.names() {
                unless_bug(reader.read_with(name, None, context));
            }
        }
    }
}

/// Files of tensors of other programs: `.npz` and safetensors. Tensors are read or refused.
pub fn tensor_file(bytes: &[u8]) {
    let memory = MemoryStorage::with("x", bytes);
    let budget = Budget::new(MEMORY_BYTES_MAX);
    if let Some(reader) = unless_bug(NpzReader::open(&memory, "x")) {
        for name in reader.names() {
            unless_bug(reader.read(name, Some(&budget)));
        }
    }
    if let Some(reader) = unless_bug(SafetensorsReader::open(&memory, "x")) {
        for (name, _) in reader.entries() {
            unless_bug(reader.read(name, Some(&budget)));
        }
    }
}

/// A table of one block.
fn table_of(block: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut add = |content: &[u8]| {
        let begin = file.len() as u64;
        file.extend_from_slice(content);
        file.push(0);
        let sum = masked_crc32c(&file[begin as usize..]);
        file.extend_from_slice(&sum.to_le_bytes());
        let mut place = Vec::new();
        prost::encoding::encode_varint(begin, &mut place);
        prost::encoding::encode_varint(content.len() as u64, &mut place);
        place
    };
    let place = add(block);
    // One entry: nothing shared, a key of one byte, a place; then where it is written in full.
    let entry = [&[0, 1, place.len() as u8, 0xff], &place[..]].concat();
    let index = add(&[&entry[..], &[0, 0, 0, 0, 1, 0, 0, 0]].concat());
    let mut footer = [place, index].concat();
    footer.resize(40, 0);
    footer.extend_from_slice(&0xdb47_7524_8b80_fb57u64.to_le_bytes());
    file.extend_from_slice(&footer);
    file
}

/// The file of a SavedModel, in a folder that may hold variables and assets: loaded, and each signature
/// run, within bounds. Its graph may touch files of this folder only.
pub fn saved_model(folder: &Path, bytes: &[u8]) {
    let path = folder.to_str().expect("the folder's name is text");
    std::fs::write(folder.join("saved_model.pb"), bytes).expect("the folder can be written to");
    let mut options = LoadOptions { timeout: Some(STEP_TIME_MAX), ..Default::default() };
    options.session.memory_limit_bytes = MEMORY_BYTES_MAX;
    let files = Rooted::new(path, LocalStorage { syncs: false }).expect("the folder is there");
    options.session.environment.storage = Arc::new(files);
    let Registry { ops, kernels } = thalweg::registry().clone();
    let loaded = SavedModel::load(path, &[], (ops, kernels), options);
    let Some(model) = unless_bug(loaded) else { return };
    for (name, signature) in model.signatures() {
        let zeros = |spec: &TensorSpec| {
            let dims: Vec<usize> =
                spec.shape.dims().unwrap_or_default().iter().map(|d| d.unwrap_or(1)).collect();
            let budget = Budget::new(MEMORY_BYTES_MAX);
            Tensor::zeros_in(spec.dtype, Shape::new(&dims)?, Some(&budget))
        };
        let inputs: Result<Vec<(&str, Tensor)>> =
            signature.inputs.iter().map(|(key, spec)| Ok((key.as_str(), zeros(spec)?))).collect();
        let Some(inputs) = unless_bug(inputs) else { continue };
        let Some(step) = unless_bug(model.step(name, &inputs, &[])) else { continue };
        let feeds: Vec<(&str, Tensor)> =
            step.feeds.iter().map(|(tensor, value)| (tensor.as_str(), value.clone())).collect();
        let fetches: Vec<&str> = step.fetches.iter().map(String::as_str).collect();
        fed_step(model.session(), &feeds, &fetches, &[]);
    }
}

/// Imports a graph, exports it, and runs its last nodes within bounds of memory and time.
pub fn graph(def: pb::GraphDef) {
    let imported = Graph::from_def(thalweg::registry().ops.clone(), def);
    let Some(graph) = unless_bug(imported) else { return };
    let exported = graph.to_def();
    let again = Graph::from_def(graph.registry().clone(), exported.clone())
        .expect("what we exported we can import");
    assert_eq!(again.to_def().encode_to_vec(), exported.encode_to_vec());
    let fetches: Vec<String> = graph
        .nodes()
        .iter()
        .rev()
        .filter(|node| !node.outputs.is_empty())
        .take(FETCHES_MAX)
        .map(|node| node.name.to_string())
        .collect();
    let target = graph.nodes().last().map(|node| node.name.to_string());
    for optimize in [true, false] {
        let mut options = SessionOptions {
            memory_limit_bytes: MEMORY_BYTES_MAX,
            environment: Environment {
                storage: Environment::frozen().storage,
                ..system_environment()
            },
            ..Default::default()
        };
        options.plan.optimize = optimize;
        let kernels = thalweg::registry().kernels.clone();
        let session = Session::new(graph.clone(), kernels, options).expect("the options are good");
        for fetch in &fetches {
            step(&session, &[fetch], &[]);
        }
        if let Some(target) = &target {
            step(&session, &[], &[target]);
        }
    }
}

fn step(session: &Session, fetches: &[&str], targets: &[&str]) {
    fed_step(session, &[], fetches, targets);
}

fn fed_step(session: &Session, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) {
    let options = RunOptions { timeout: Some(STEP_TIME_MAX), ..Default::default() };
    let result = session.run_with(&options, feeds, fetches, targets);
    unless_bug(result.map_err(|e| e.map_message(|m| format!("{m} ({fetches:?} {targets:?})"))));
}
