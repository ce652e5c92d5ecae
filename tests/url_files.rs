//! Files of a store elsewhere, by commands, by a server's ops, and where they are refused.
#![cfg(all(feature = "cli", feature = "remote", feature = "s3", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[allow(dead_code, reason = "these tests need it whole and well")]
#[path = "../crates/storage/tests/support/fake_s3.rs"]
mod fake_s3;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use fake_s3::FakeS3;
use thalweg::cluster::{ConnectOptions, RemoteSession};
use thalweg::formats::Storage;
use thalweg::formats::record::{Compression, RecordWriter};
use thalweg::graph::Output;
use thalweg::prelude::*;
use thalweg::storage::{S3Settings, S3Storage};

const KEYS: &[(&str, &str)] = &[("AWS_ACCESS_KEY_ID", "ak"), ("AWS_SECRET_ACCESS_KEY", "sk")];

/// The command, with what it needs to know of the store.
fn command(store: &FakeS3, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(args).envs(KEYS.iter().copied()).env("S3_ENDPOINT", &store.endpoint);
    command
}

fn output(store: &FakeS3, args: &[&str]) -> String {
    let std::process::Output { status, stdout, stderr } = command(store, args).output().unwrap();
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn storage(store: &FakeS3) -> S3Storage {
    let variable = |name: &str| match name {
        "S3_ENDPOINT" => Some(store.endpoint.clone()),
        _ => KEYS.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
    };
    S3Storage::new(S3Settings::from_variables(variable).unwrap()).unwrap()
}

/// Three files of four records.
fn write_records(storage: &dyn Storage) {
    for file in 0..3 {
        let path = format!("s3://bucket/data/train-{file}");
        let mut writer = RecordWriter::new(storage.replace(&path).unwrap(), Compression::None);
        for record in 0..4 {
            writer.write(format!("record {file} {record}").as_bytes()).unwrap();
        }
        writer.finish().unwrap();
    }
}

#[test]
fn commands_take_urls() {
    let store = FakeS3::new();
    let storage = storage(&store);
    write_records(&storage);
    let counted = output(&store, &["tfrecord", "count", "s3://bucket/data/train-*"]);
    assert!(counted.contains("12 in all"), "{counted}");
    let merge = ["tfrecord", "merge", "s3://bucket/data/train-*", "--output", "s3://bucket/all"];
    assert!(output(&store, &merge).contains("12 records of 3 files"));
    let verified = output(&store, &["tfrecord", "verify", "s3://bucket/all"]);
    assert!(verified.contains("12 records, intact"), "{verified}");
    let graph =
        "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }
        node { name: 'y' op: 'Neg' input: 'x' attr { key: 'T' value { type: DT_FLOAT } } }";
    storage.write("s3://bucket/graph.pbtxt", graph.as_bytes()).unwrap();
    let run = ["run", "s3://bucket/graph.pbtxt", "--feed", "x=3", "--save", "y=s3://bucket/y.npy"];
    output(&store, &run);
    assert!(storage.read("s3://bucket/y.npy", 1000).unwrap().starts_with(b"\x93NUMPY"));
    let missing = command(&store, &["tfrecord", "count", "s3://bucket/nothing"]).output().unwrap();
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.contains("NOT_FOUND: s3://bucket/nothing"), "{said}");
}

/// A server in a process of its own; ended when dropped.
struct Server {
    child: Child,
    target: String,
}

impl Server {
    fn start(store: &FakeS3, args: &[&str]) -> Server {
        let mut command = command(store, &[&["server", "--port", "0"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        // One that listens everywhere listens here too.
        let target = format!("grpc://{}", address.replace("0.0.0.0", "127.0.0.1"));
        Server { child, target }
    }

    /// A session that reads, writes, saves and restores.
    fn session(&self) -> RemoteSession {
        let mut s = thalweg::scope();
        let path = s.op("Placeholder").name("path").attr("dtype", DType::String).build().unwrap();
        s.op("ReadFile").name("read").input(path).build().unwrap();
        let text = s.constant(&Tensor::scalar_string("written")).unwrap();
        s.op("WriteFile").name("write").inputs(&[path, text]).build_node().unwrap();
        s.op("MatchingFiles").name("match").input(path).build().unwrap();
        let one = |text: &str| {
            Tensor::from_strings(Shape::new(&[1]).unwrap(), vec![text.to_owned().into()]).unwrap()
        };
        let (name, slice) = (s.constant(&one("w")).unwrap(), s.constant(&one("")).unwrap());
        let weights = s.constant(&Tensor::vector(&[1.0f32, 2.0, 3.0]).unwrap()).unwrap();
        let types = &[DType::Float][..];
        let save = s.op("SaveV2").name("save").inputs(&[path, name, slice, weights]);
        save.attr("dtypes", types).build_node().unwrap();
        let restore = s.op("RestoreV2").name("restore").inputs(&[path, name, slice]);
        restore.attr("dtypes", types).build().unwrap();
        add_dataset(&mut s, path);
        let graph = s.to_graph().to_def();
        RemoteSession::open(&self.target, graph, ConnectOptions::default()).unwrap()
    }
}

/// The records of the file that `path` names, one at a step.
fn add_dataset(s: &mut Scope, path: Output) {
    let (kind, size) = (Tensor::scalar_string(""), Tensor::scalar(0i64));
    let (kind, size) = (s.constant(&kind).unwrap(), s.constant(&size).unwrap());
    let dataset = s.add("TFRecordDataset", &[path, kind, size]).unwrap();
    let iterator = s.op("IteratorV2").attr("shared_name", "records").attr("container", "");
    let iterator = iterator.attr("output_types", &[DType::String][..]);
    let iterator = iterator.attr("output_shapes", &[PartialShape::scalar()][..]).build().unwrap();
    s.op("MakeIterator").name("begin").inputs(&[dataset, iterator]).build_node().unwrap();
    let next = s.op("IteratorGetNext").name("next").input(iterator);
    let next = next.attr("output_types", &[DType::String][..]);
    next.attr("output_shapes", &[PartialShape::scalar()][..]).build().unwrap();
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path(text: &str) -> (&'static str, Tensor) {
    ("path", Tensor::scalar_string(text.to_owned()))
}

#[test]
fn ops_of_a_server_take_urls() {
    let store = FakeS3::new();
    let storage = storage(&store);
    write_records(&storage);
    let server = Server::start(&store, &[]);
    let session = server.session();
    session.run(&[path("s3://bucket/new")], &[], &["write"]).unwrap();
    assert_eq!(&storage.read("s3://bucket/new", 99).unwrap()[..], b"written");
    let read = session.run(&[path("s3://bucket/new")], &["read"], &[]).unwrap();
    assert_eq!(&read[0].strings().unwrap()[0][..], b"written");
    let found = session.run(&[path("s3://bucket/data/train-[12]")], &["match"], &[]).unwrap();
    assert_eq!(found[0].strings().unwrap().len(), 2);
    session.run(&[path("s3://bucket/data/train-2")], &[], &["begin"]).unwrap();
    for record in 0..4 {
        let next = session.run(&[], &["next"], &[]).unwrap();
        assert_eq!(next[0].strings().unwrap()[0], format!("record 2 {record}"));
    }
    assert_eq!(session.run(&[], &["next"], &[]).unwrap_err().code(), Code::OutOfRange);
    session.run(&[path("s3://bucket/model/ckpt-1")], &[], &["save"]).unwrap();
    assert!(storage.exists("s3://bucket/model/ckpt-1.index").unwrap());
    let restored = session.run(&[path("s3://bucket/model/ckpt-1")], &["restore"], &[]).unwrap();
    assert_eq!(restored[0].as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    let missing = session.run(&[path("s3://bucket/nothing")], &["read"], &[]).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing}");
    assert!(missing.message().contains("s3://bucket/nothing"), "{missing}");
}

#[test]
fn a_server_that_others_reach_touches_what_it_was_told() {
    let store = FakeS3::new();
    storage(&store).write("s3://bucket/in/x", b"x").unwrap();
    let root = std::env::temp_dir().join(format!("thalweg-url-files-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let root = root.to_str().unwrap();
    std::fs::write(format!("{root}/file"), "x").unwrap();
    let outside = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let code = |session: &RemoteSession, text: &str| {
        session.run(&[path(text)], &["read"], &[]).err().map(|e| e.code())
    };
    let refused = Some(Code::PermissionDenied);
    let server = Server::start(&store, &["--host", "0.0.0.0"]);
    let session = server.session();
    assert_eq!(code(&session, outside), refused);
    assert_eq!(code(&session, "s3://bucket/in/x"), refused);
    let flags = ["--host", "0.0.0.0", "--file-root", root, "--allow-url", "s3://bucket/in"];
    let server = Server::start(&store, &flags);
    let session = server.session();
    assert_eq!(code(&session, outside), refused);
    assert_eq!(code(&session, &format!("{root}/file")), None);
    assert_eq!(code(&session, "s3://bucket/in/x"), None);
    assert_eq!(code(&session, "s3://bucket/other"), refused);
    std::fs::remove_dir_all(root).unwrap();
}
