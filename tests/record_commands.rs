//! `thalweg tfrecord` and `thalweg events` on files, whole and damaged.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

#[path = "support/folder.rs"]
mod folder;

use std::process::{Command, Output};
use std::time::Duration;

use folder::Folder;
use prost::Message;
use serde_json::Value as Json;
use thalweg::formats::events::{EventWriter, Histogram, summary};
use thalweg::formats::record::{Compression, RecordWriter};
use thalweg::formats::{LocalStorage, Storage};
use thalweg::proto as pb;

fn thalweg(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = thalweg(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&text(args)).unwrap()
}

fn write_records(path: &str, records: &[&[u8]], compression: Compression) {
    let mut writer = RecordWriter::new(LocalStorage::default().create(path).unwrap(), compression);
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
}

fn example() -> Vec<u8> {
    let int = pb::Int64List { value: vec![7, -1] };
    let bytes = pb::BytesList { value: vec!["word".into(), vec![0, 255].into()] };
    let feature = |kind| pb::Feature { kind: Some(kind) };
    let features = pb::Features {
        feature: [
            ("label".to_owned(), feature(pb::feature::Kind::Int64List(int))),
            ("data".to_owned(), feature(pb::feature::Kind::BytesList(bytes))),
        ]
        .into(),
    };
    pb::Example { features: Some(features) }.encode_to_vec()
}

#[test]
fn records_are_counted_and_shown() {
    let folder = Folder::new("commands-count");
    let (plain, packed) = (folder.path("a"), folder.path("b"));
    let example = example();
    write_records(&plain, &[b"\xff\xffone", &example], Compression::None);
    write_records(&packed, &[b"three"], Compression::Gzip);
    let counted = json(&["tfrecord", "count", &plain, &packed, "--json"]);
    assert_eq!(
        (&counted["records"], &counted["files"][1]["compression"]),
        (&3.into(), &"gzip".into())
    );
    assert!(text(&["tfrecord", "count", &plain, &packed]).contains("3 in all"));
    let shown = text(&["tfrecord", "cat", &plain]);
    let lines: Vec<Json> = shown.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines[0]["data"], "//9vbmU=");
    assert_eq!(lines[1]["example"]["label"], serde_json::json!([7, -1]));
    assert_eq!(lines[1]["example"]["data"], serde_json::json!(["word", {"base64": "AP8="}]));
    assert_eq!(lines[1]["offset"], 21);
    let raw = thalweg(&["tfrecord", "cat", &plain, "--raw", "--limit", "1"]).stdout;
    assert_eq!(raw, b"\xff\xffone");
    assert!(text(&["tfrecord", "cat", &packed, "--skip", "1"]).is_empty());
}

#[test]
fn damage_is_named_and_passed_over() {
    let folder = Folder::new("commands-verify");
    let path = folder.path("a");
    write_records(&path, &[b"one", b"two", b"three"], Compression::None);
    assert!(text(&["tfrecord", "verify", &path]).contains("3 records, intact"));
    let mut content = std::fs::read(&path).unwrap();
    content[19 + 13] ^= 1;
    std::fs::write(&path, &content).unwrap();
    let output = thalweg(&["tfrecord", "verify", &path, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let said: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["damaged"], &said["files"][0]["damaged"][0]["offset"]),
        (&1.into(), &19.into())
    );
    let counted = thalweg(&["tfrecord", "count", &path]);
    assert_eq!(counted.status.code(), Some(1));
    let words = String::from_utf8(counted.stderr).unwrap();
    assert!(words.contains("record at byte 19") && words.contains(&path), "{words}");
    let mended = folder.path("b");
    text(&["tfrecord", "skip-bad", &path, "--output", &mended]);
    assert_eq!(json(&["tfrecord", "count", &mended, "--json"])["records"], 2);
    let stingy = thalweg(&[
        "tfrecord",
        "skip-bad",
        &path,
        "--output",
        &folder.path("c"),
        "--bad-record-limit",
        "0",
    ]);
    assert_eq!(stingy.status.code(), Some(1));
    assert!(!std::path::Path::new(&folder.path("c")).exists());
}

#[test]
fn files_are_split_merged_and_indexed() {
    let folder = Folder::new("commands-split");
    let path = folder.path("a");
    write_records(&path, &[b"0", b"1", b"2", b"3", b"4"], Compression::Zlib);
    let prefix = folder.path("part");
    text(&["tfrecord", "split", &path, "--shards", "2", "--output", &prefix]);
    let parts = [format!("{prefix}-00000-of-00002"), format!("{prefix}-00001-of-00002")];
    assert_eq!(thalweg(&["tfrecord", "cat", "--raw", &parts[0]]).stdout, b"024");
    let merged = folder.path("m");
    let args =
        ["tfrecord", "merge", &parts[0], &parts[1], "--output", &merged, "--compression", "gzip"];
    text(&args);
    assert_eq!(thalweg(&["tfrecord", "cat", "--raw", &merged]).stdout, b"02413");
    text(&["tfrecord", "index", &parts[1]]);
    let index = std::fs::read_to_string(format!("{}.idx", parts[1])).unwrap();
    assert_eq!(index, "0 17\n17 17\n");
    let packed = thalweg(&["tfrecord", "index", &merged]);
    assert_eq!(packed.status.code(), Some(1));
    let itself = thalweg(&["tfrecord", "merge", &parts[0], "--output", &parts[0]]);
    assert_eq!(itself.status.code(), Some(1));
    let missing = thalweg(&["tfrecord", "cat", &folder.path("no")]);
    assert!(String::from_utf8(missing.stderr).unwrap().contains("NOT_FOUND"));
}

#[test]
fn events_are_listed() {
    let folder = Folder::new("commands-events");
    let now = Duration::from_secs(1_800_000_000);
    let storage = LocalStorage::default();
    let mut writer = EventWriter::create(&storage, &folder.path("run/train"), now, ".v2").unwrap();
    for step in 0..3 {
        let loss = summary::scalar("loss", 1.0 / (step + 1) as f32).unwrap();
        writer.summary(now, step, vec![loss]).unwrap();
    }
    let mut spread = Histogram::new();
    spread.add(1.5);
    writer.summary(now, 3, vec![summary::histogram("weights", spread)]).unwrap();
    writer.graph(now, &pb::GraphDef::default()).unwrap();
    writer.finish().unwrap();
    let scalars = text(&["events", "scalars", &folder.path(""), "--csv"]);
    let lines: Vec<&str> = scalars.lines().collect();
    assert_eq!(lines.len(), 4, "{scalars}");
    assert!(lines[2].ends_with(",loss,1,1800000000,0.5"), "{scalars}");
    let tags = json(&["events", "tags", &folder.path("run"), "--json"]);
    let named = |tag: &str| {
        let tags = tags["files"][0]["tags"].as_array().unwrap();
        tags.iter().find(|t| t["tag"] == tag).cloned().unwrap_or_default()
    };
    assert_eq!((&named("loss")["kind"], &named("loss")["count"]), (&"scalars".into(), &3.into()));
    assert_eq!(
        (&named("weights")["kind"], &named("")["kind"]),
        (&"histograms".into(), &"graphs".into())
    );
    let one = text(&["events", "scalars", &folder.path("run"), "--tag", "loss", "--json"]);
    assert_eq!(one.lines().count(), 3);
    let empty = thalweg(&["events", "tags", &folder.path("nothing")]);
    assert_eq!(empty.status.code(), Some(1));
}
