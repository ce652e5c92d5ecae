//! Robustness tests: malformed graphs, tensors and files cause no panic, no abort and no hang.
//!
//! Recorded graphs are damaged in seeded ways, as bytes and as messages, for `HOSTILE_SECONDS`
//! (60 by default, shared by the tests here). A failure names its seed; `HOSTILE_SEED=n` runs that one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "these tests are bounded by real time")]

#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the fuzzing crate calls these from outside")]
mod targets;

mod ops;
mod random;

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use base64::Engine;
use prost::Message;
use random::Random;
use thalweg::formats::events::summary;
use thalweg::formats::record::{Compression, RecordWriter};
use thalweg::formats::{LocalStorage, Storage};
use thalweg::graph::Graph;
use thalweg::prelude::*;
use thalweg::proto::{self as pb, attr_value::Value as Attr, text};
use thalweg::runtime::Session;

/// Limit on the time of one case: far more than a step's deadline.
const CASE_TIME_MAX: Duration = Duration::from_secs(30);
const FAILURES_MAX: usize = 10;

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(path)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == extension));
    files.sort();
    assert!(!files.is_empty(), "{} holds no .{extension} files", folder.display());
    files
}

/// Graphs of the recorded cases, and those that TensorFlow wrote as files.
static GRAPHS: LazyLock<Vec<pb::GraphDef>> = LazyLock::new(|| {
    let mut graphs = Vec::new();
    for file in files(&testdata("golden"), "gz") {
        let mut lines = String::new();
        let file = std::fs::File::open(file).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut lines).unwrap();
        for line in lines.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let encoded = case["graph"].as_str().unwrap();
            let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
            graphs.push(pb::GraphDef::decode(&bytes[..]).unwrap());
        }
    }
    for file in files(&testdata("graphs"), "pb") {
        graphs.push(pb::GraphDef::decode(&std::fs::read(file).unwrap()[..]).unwrap());
    }
    graphs
});

/// Runs `case` for seeds until the time is up; fails with the seeds that panicked.
fn for_seeds(share: f64, case: impl Fn(&mut Random)) {
    let seconds: f64 = std::env::var("HOSTILE_SECONDS").map_or(60.0, |s| s.parse().unwrap());
    let only: Option<u64> = std::env::var("HOSTILE_SEED").ok().map(|s| s.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(seconds * share);
    let mut failures = Vec::new();
    let mut seed = only.unwrap_or(0);
    loop {
        let begin = Instant::now();
        let mut random = Random::new(seed);
        if catch_unwind(AssertUnwindSafe(|| case(&mut random))).is_err() {
            failures.push(format!("seed {seed} panicked"));
        }
        if begin.elapsed() > CASE_TIME_MAX {
            failures.push(format!("seed {seed} took {:?}", begin.elapsed()));
        }
        seed += 1;
        if only.is_some() || Instant::now() > end || failures.len() >= FAILURES_MAX {
            break;
        }
    }
    println!("{seed} cases");
    assert!(failures.is_empty(), "{failures:?}");
}

fn damage_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => {
                let end = (at + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                let end = (at + random.below(64)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            4 => bytes.splice(at..at, [0xff; 9]).for_each(drop),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

fn damage_shape(shape: &mut pb::TensorShapeProto, random: &mut Random) {
    match random.below(4) {
        0 => shape.unknown_rank = !shape.unknown_rank,
        1 => shape
            .dim
            .push(pb::tensor_shape_proto::Dim { size: random.number(), ..Default::default() }),
        2 => drop(shape.dim.pop()),
        _ => {
            let at = random.below(shape.dim.len());
            if let Some(dim) = shape.dim.get_mut(at) {
                dim.size = random.number();
            }
        }
    }
}

fn damage_tensor(tensor: &mut pb::TensorProto, random: &mut Random) {
    match random.below(4) {
        0 => tensor.dtype = 1 + random.below(30) as i32,
        1 => damage_shape(tensor.tensor_shape.get_or_insert_default(), random),
        2 if tensor.dtype == 3 => {
            // Axes, sizes and indices are int32: these reach the kernels.
            let numbers = tensor.tensor_content.len() / 4;
            tensor.tensor_content = (0..numbers)
                .flat_map(|_| (random.number() as i32).to_le_bytes())
                .collect::<Vec<_>>()
                .into();
            tensor.int_val.iter_mut().for_each(|x| *x = random.number() as i32);
        }
        _ => {
            let mut content = tensor.tensor_content.to_vec();
            if let Some(byte) = {
                let at = random.below(content.len());
                content.get_mut(at)
            } {
                *byte = random.next() as u8;
            }
            tensor.tensor_content = content.into();
        }
    }
}

fn damage_attr(value: &mut pb::AttrValue, random: &mut Random) {
    match &mut value.value {
        Some(Attr::I(i)) => *i = random.number(),
        Some(Attr::F(x)) => *x = [0.0, -1.0, f32::NAN, f32::INFINITY, 1e30][random.below(5)],
        Some(Attr::B(b)) => *b = !*b,
        Some(Attr::Type(t)) => *t = random.below(30) as i32,
        Some(Attr::Shape(shape)) => damage_shape(shape, random),
        Some(Attr::Tensor(tensor)) => damage_tensor(tensor, random),
        Some(Attr::List(list)) => {
            list.i.iter_mut().for_each(|i| *i = random.number());
            if random.below(2) == 0 {
                list.i.push(random.number());
                list.r#type.push(1);
            }
        }
        Some(Attr::S(s)) => *s = [&b""[..], b"SAME", b"VALID", b"NHWC"][random.below(4)].into(),
        _ => value.value = Some(Attr::I(random.number())),
    }
}

/// Changes a graph so that it still looks like one.
fn damage_graph(def: &mut pb::GraphDef, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let names: Vec<String> = def.node.iter().map(|n| n.name.clone()).collect();
        let at = random.below(def.node.len());
        let Some(node) = def.node.get_mut(at) else { return };
        let keys: Vec<String> = node.attr.keys().cloned().collect();
        match random.below(8) {
            0 => {
                let other = random.pick(&GRAPHS).and_then(|g| random_op(g, at));
                node.op = other.unwrap_or_default();
            }
            1 => {
                let name = random.pick(&names).cloned().unwrap_or_default();
                let position = random.below(node.input.len());
                if let Some(input) = node.input.get_mut(position) {
                    *input = format!("{name}:{}", random.below(3));
                }
            }
            2 => node.input.push(random.pick(&names).cloned().unwrap_or_default()),
            3 => drop(node.input.pop()),
            _ => {
                if let Some(value) = random.pick(&keys).and_then(|k| node.attr.get_mut(k)) {
                    damage_attr(value, random);
                }
            }
        }
    }
}

fn random_op(graph: &pb::GraphDef, at: usize) -> Option<String> {
    graph.node.get(at % graph.node.len().max(1)).map(|n| n.op.clone())
}

#[test]
fn damaged_graphs() {
    for_seeds(0.25, |random| {
        let mut def = random.pick(&GRAPHS).unwrap().clone();
        damage_graph(&mut def, random);
        targets::graph(def);
    });
}

/// Each op in turn, so that a short run sees every one.
#[test]
fn invented_nodes() {
    let ops = ops::all();
    for_seeds(0.35, |random| {
        let op = random.seed() as usize % ops.len();
        targets::graph(ops::invent(&ops[op], random));
    });
}

#[test]
fn damaged_bytes_of_graphs() {
    for_seeds(0.1, |random| {
        let mut bytes = random.pick(&GRAPHS).unwrap().encode_to_vec();
        damage_bytes(&mut bytes, random);
        targets::graph_binary(&bytes);
    });
}

#[test]
fn damaged_texts_of_graphs() {
    for_seeds(0.1, |random| {
        let graph = random.pick(&GRAPHS).unwrap();
        let mut bytes = text::encode("tensorflow.GraphDef", graph).into_bytes();
        damage_bytes(&mut bytes, random);
        targets::graph_text(&bytes);
    });
}

#[test]
fn damaged_tensors() {
    let mut tensors = Vec::new();
    for attr in GRAPHS.iter().flat_map(|g| &g.node).filter_map(|n| n.attr.get("value")) {
        if let Some(Attr::Tensor(tensor)) = &attr.value {
            tensors.push(tensor.clone());
        }
    }
    for_seeds(0.05, |random| {
        let mut tensor = random.pick(&tensors).unwrap().clone();
        damage_tensor(&mut tensor, random);
        targets::tensor(&tensor.encode_to_vec());
        let mut bytes = tensor.encode_to_vec();
        damage_bytes(&mut bytes, random);
        targets::tensor(&bytes);
    });
}

#[test]
fn damaged_notation() {
    let lines: Vec<&str> = thalweg::graph::TENSORFLOW_INTERFACES
        .lines()
        .flat_map(|l| l.split(['|', ';']).map(str::trim))
        .filter(|l| l.contains(':'))
        .collect();
    for_seeds(0.05, |random| {
        let mut bytes = Vec::new();
        for _ in 0..4 {
            bytes.extend_from_slice(random.pick(&lines).unwrap().as_bytes());
            bytes.push(b'\n');
        }
        damage_bytes(&mut bytes, random);
        targets::notation(&bytes);
    });
}

#[test]
fn damaged_npy_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/tensor/tests/data/npy");
    let files: Vec<Vec<u8>> =
        files(&folder, "npy").iter().map(|f| std::fs::read(f).unwrap()).collect();
    for_seeds(0.05, |random| {
        let mut bytes = random.pick(&files).unwrap().clone();
        damage_bytes(&mut bytes, random);
        targets::npy_file(&bytes);
    });
}

#[test]
fn damaged_saved_models() {
    let base = std::env::temp_dir().join(format!("thalweg-hostile-models-{}", std::process::id()));
    let mut models = Vec::new();
    for name in ["v1", "v2"] {
        let (from, to) = (testdata("saved_models").join(name), base.join(name));
        for part in ["variables", "assets"] {
            std::fs::create_dir_all(to.join(part)).unwrap();
            for file in std::fs::read_dir(from.join(part)).unwrap().map(|f| f.unwrap()) {
                std::fs::copy(file.path(), to.join(part).join(file.file_name())).unwrap();
            }
        }
        models.push((to, std::fs::read(from.join("saved_model.pb")).unwrap()));
    }
    for_seeds(0.1, |random| {
        let (folder, whole) = random.pick(&models).unwrap();
        let mut bytes = whole.clone();
        damage_bytes(&mut bytes, random);
        targets::saved_model(folder, &bytes);
    });
    std::fs::remove_dir_all(base).unwrap();
}

/// A TFRecord file and an event file, plain and compressed.
fn files_of_records() -> Vec<Vec<u8>> {
    let event = pb::Event {
        step: 3,
        what: Some(pb::event::What::Summary(pb::Summary {
            value: vec![summary::scalar("loss", 0.5).unwrap(), summary::text("t", &["x"]).unwrap()],
        })),
        ..Default::default()
    };
    let records = [b"one".to_vec(), Vec::new(), event.encode_to_vec(), vec![7; 300]];
    let folder = std::env::temp_dir().join(format!("thalweg-hostile-{}", std::process::id()));
    let storage = LocalStorage { syncs: false };
    let mut files = vec![event.encode_to_vec()];
    for compression in [Compression::None, Compression::Zlib, Compression::Gzip] {
        storage.create_folder(folder.to_str().unwrap()).unwrap();
        let path = folder.join("records");
        let file = storage.create(path.to_str().unwrap()).unwrap();
        let mut writer = RecordWriter::new(file, compression);
        records.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap();
        files.push(std::fs::read(path).unwrap());
    }
    std::fs::remove_dir_all(folder).unwrap();
    files
}

#[test]
fn damaged_files_of_records() {
    let files = files_of_records();
    for_seeds(0.05, |random| {
        let mut bytes = random.pick(&files).unwrap().clone();
        damage_bytes(&mut bytes, random);
        targets::record_file(&bytes);
        targets::event_file(&bytes);
    });
}

/// Indexes of checkpoints that TensorFlow wrote, and their blocks.
#[test]
fn damaged_checkpoints() {
    let folder = testdata("checkpoints");
    let mut files: Vec<Vec<u8>> =
        files(&folder, "index").iter().map(|f| std::fs::read(f).unwrap()).collect();
    files.push(std::fs::read(folder.join("first")).unwrap());
    // The first block of a table ends before the empty list of filters.
    let blocks: Vec<Vec<u8>> = files
        .iter()
        .filter_map(|file| {
            let end =
                file.windows(13).position(|w| w == b"\0\0\0\0\x01\0\0\0\0\xc0\xf2\xa1\xb0")?;
            Some(file[..end - 5].to_vec())
        })
        .collect();
    assert_eq!(blocks.len(), files.len());
    files.extend(blocks);
    for_seeds(0.05, |random| {
        let mut bytes = random.pick(&files).unwrap().clone();
        damage_bytes(&mut bytes, random);
        targets::checkpoint_index(&bytes);
    });
}

#[test]
fn damaged_files_of_tensors() {
    let mut files: Vec<Vec<u8>> = files(&testdata("checkpoints"), "npz")
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    files.push([&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 8]].concat());
    for_seeds(0.02, |random| {
        let mut bytes = random.pick(&files).unwrap().clone();
        damage_bytes(&mut bytes, random);
        targets::tensor_file(&bytes);
    });
}

#[test]
fn absurd_tensors_are_refused() {
    let mut scope = thalweg::scope();
    let dims = scope.constant(&Tensor::vector(&[1i64 << 60]).unwrap()).unwrap();
    let value = scope.constant(&Tensor::scalar(1.0f32)).unwrap();
    let fill = scope.op("Fill").name("fill").inputs(&[dims, value]).build();
    let code = fill
        .and_then(|_| thalweg::session(&scope)?.run(&[], &["fill"], &[]))
        .map(drop)
        .unwrap_err()
        .code();
    assert!(matches!(code, Code::ResourceExhausted | Code::InvalidArgument), "{code:?}");

    let source = r#"node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
        attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1
        tensor_shape { dim { size: 1152921504606846976 } } } } } }"#;
    let def: pb::GraphDef = text::decode("tensorflow.GraphDef", source).unwrap();
    let registry = thalweg::registry();
    let code = Graph::from_def(registry.ops.clone(), def)
        .and_then(|g| Session::new(g, registry.kernels.clone(), SessionOptions::default()))
        .and_then(|session| session.run(&[], &["c"], &[]))
        .map(drop)
        .unwrap_err()
        .code();
    assert!(matches!(code, Code::ResourceExhausted | Code::InvalidArgument), "{code:?}");
}

/// The runtime's own ops in a client's graph: it may hold them, but not fool the runtime with them.
#[test]
fn internal_ops_from_outside() {
    let argument = r#"node { name: "a" op: "_Arg" attr { key: "T" value { type: DT_FLOAT } }
        attr { key: "index" value { i: INDEX } } }"#;
    let result = r#"node { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
        attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1 } } } }
        node { name: "r" op: "_Retval" input: "c" attr { key: "T" value { type: DT_FLOAT } }
        attr { key: "index" value { i: INDEX } } }"#;
    let receive = r#"node { name: "r" op: "_Recv" attr { key: "tensor_type" value { type: DT_FLOAT } }
        attr { key: "tensor_name" value { s: "x" } } attr { key: "send_device" value { s: "" } }
        attr { key: "recv_device" value { s: "" } }
        attr { key: "send_device_incarnation" value { i: 1 } }
        attr { key: "client_terminated" value { b: CLIENT } } }"#;
    for template in [argument, result, receive] {
        for (index, client) in [("0", "true"), ("1000000", "false"), ("4294967295", "true")] {
            let source = template.replace("INDEX", index).replace("CLIENT", client);
            targets::graph(text::decode("tensorflow.GraphDef", &source).unwrap());
        }
    }
}

/// A graph of layers of additions: loaded from its bytes, planned, run.
fn large_graph(nodes: usize, seconds_max: u64) {
    const WIDTH: usize = 1000;
    let attr = |value| pb::AttrValue { value: Some(value) };
    let one = pb::TensorProto { dtype: 1, float_val: vec![1.0], ..Default::default() };
    let mut def = pb::GraphDef::default();
    for i in 0..nodes {
        let name = format!("n{i}");
        def.node.push(if i < WIDTH {
            let attr = [
                ("dtype".to_owned(), attr(Attr::Type(1))),
                ("value".to_owned(), attr(Attr::Tensor(Box::new(one.clone())))),
            ];
            pb::NodeDef { name, op: "Const".into(), attr: attr.into(), ..Default::default() }
        } else {
            let input = vec![format!("n{}", i - WIDTH), format!("n{}", i - WIDTH + (i + 1) % 2)];
            let attr = [("T".to_owned(), attr(Attr::Type(1)))];
            pb::NodeDef {
                name,
                op: "Minimum".into(),
                input,
                attr: attr.into(),
                ..Default::default()
            }
        });
    }
    let bytes = def.encode_to_vec();
    drop(def);
    let begin = Instant::now();
    let def = pb::GraphDef::decode(&bytes[..]).unwrap();
    let registry = thalweg::registry();
    let graph = Graph::from_def(registry.ops.clone(), def).unwrap();
    let loaded = begin.elapsed();
    let session = Session::new(graph, registry.kernels.clone(), SessionOptions::default()).unwrap();
    let last = format!("n{}", nodes - 1);
    let fetches: Vec<String> = (nodes - WIDTH..nodes).map(|i| format!("n{i}")).collect();
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    session.run(&[], &fetches, &[]).unwrap();
    let planned = begin.elapsed();
    let result = session.run(&[], &[&last], &[]).unwrap();
    assert_eq!(result[0].scalar_value::<f32>().unwrap(), 1.0);
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = memory.lines().find(|l| l.starts_with("VmHWM")).unwrap_or_default().to_owned();
    println!("{nodes} nodes: loaded in {loaded:?}, first step after {planned:?}, {memory}");
    assert!(begin.elapsed() < Duration::from_secs(seconds_max), "{:?}", begin.elapsed());
}

#[test]
fn a_hundred_thousand_nodes() {
    large_graph(100_000, 120);
}

#[test]
#[ignore = "a minute, and gigabytes"]
fn a_million_nodes() {
    large_graph(1_000_000, 300);
}

/// The generator tests nothing if `Graph::from_def` refuses all of an op's graphs.
#[test]
fn invented_nodes_get_to_their_kernels() {
    let ops = ops::all();
    let mut refused = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let is_taken = |n: usize| {
            let def = ops::invent(op, &mut Random::new((n * ops.len() + i) as u64));
            Graph::from_def(thalweg::registry().ops.clone(), def).is_ok()
        };
        if !(0..30).any(is_taken) {
            refused.push(op.name());
        }
    }
    assert!(refused.len() * 10 <= ops.len(), "refused with all generated inputs: {refused:?}");
}
