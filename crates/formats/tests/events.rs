//! Event files: what is written is read, and damage in every place is seen.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use thalweg_formats::events::{
    EventReader, EventWriter, HParam, Histogram, Scalar, Scalars, TagKind, event_files,
    session_end, session_start, summary,
};
use thalweg_formats::record::ReadOptions;
use thalweg_formats::storage::MemoryStorage as Memory;
use thalweg_proto as pb;
use thalweg_proto::event::What;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Bytes, Code};

const NOW: Duration = Duration::from_millis(1_800_000_000_500);

fn written() -> (Memory, String) {
    let storage = Memory::default();
    let mut writer = EventWriter::create(&storage, "logs", NOW, ".v2").unwrap();
    let old = |value| summary::plain("old", Content::SimpleValue(value));
    writer.summary(NOW, 1, vec![summary::scalar("new", 0.5).unwrap(), old(2.0)]).unwrap();
    writer.summary(NOW, -2, vec![old(f32::NAN)]).unwrap();
    let mut spread = Histogram::new();
    [1.0, -3.0].iter().for_each(|&x| spread.add(x));
    let values = vec![
        summary::histogram("h", spread),
        summary::text("t", &["one", "two"]).unwrap(),
        summary::images("i", 2, 1, &[Bytes::from_static(b"png")]).unwrap(),
        summary::audio("a", &[Bytes::from_static(b"wav")]).unwrap(),
        session_start(&BTreeMap::from([("rate".into(), HParam::Number(0.1))]), "g", NOW).unwrap(),
        session_end(true, NOW).unwrap(),
    ];
    writer.summary(NOW, 2, values).unwrap();
    writer.graph(NOW, &pb::GraphDef::default()).unwrap();
    writer.run_metadata(NOW, 3, "step3", &pb::RunMetadata::default()).unwrap();
    let path = writer.path().to_owned();
    writer.finish().unwrap();
    (storage, path)
}

fn scalars(storage: &Memory, path: &str) -> (Vec<Scalar>, Scalars, thalweg_tensor::Result<()>) {
    let mut reader = EventReader::open(storage, path, ReadOptions::default()).unwrap();
    let (mut all, mut found) = (Vec::new(), Scalars::new());
    loop {
        match found.next(&mut reader) {
            Ok(Some(scalars)) => all.extend_from_slice(scalars),
            Ok(None) => return (all, found, Ok(())),
            Err(e) => return (all, found, Err(e)),
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let (storage, path) = written();
    assert!(path.starts_with("logs/events.out.tfevents.1800000000."), "{path}");
    assert!(path.ends_with(".v2"), "{path}");
    let mut reader = EventReader::open(&storage, &path, ReadOptions::default()).unwrap();
    let first = reader.next_event().unwrap().unwrap();
    assert_eq!(first.what, Some(What::FileVersion("brain.Event:2".into())));
    let second = reader.next_event().unwrap().unwrap();
    assert_eq!((second.step, second.wall_time), (1, 1_800_000_000.5));
    let mut rest = 0;
    while reader.next_event().unwrap().is_some() {
        rest += 1;
    }
    assert_eq!(rest, 4);
}

#[test]
fn numbers_and_tags() {
    let (storage, path) = written();
    let (all, found, end) = scalars(&storage, &path);
    end.unwrap();
    let shown: Vec<(&str, i64)> = all.iter().map(|s| (found.tag(s.tag), s.step)).collect();
    assert_eq!(shown, [("new", 1), ("old", 1), ("old", -2)]);
    assert_eq!((all[0].value, all[1].value, all[0].wall_time), (0.5, 2.0, 1_800_000_000.5));
    assert!(all[2].value.is_nan());
    let tags = found.tags();
    let kinds = [
        ("new", TagKind::Scalar, 1),
        ("old", TagKind::Scalar, 2),
        ("h", TagKind::Histogram, 1),
        ("t", TagKind::Text, 1),
        ("i", TagKind::Image, 1),
        ("a", TagKind::Audio, 1),
        ("_hparams_/session_start_info", TagKind::HParams, 1),
        ("_hparams_/session_end_info", TagKind::HParams, 1),
        ("", TagKind::Graph, 1),
        ("step3", TagKind::RunMetadata, 1),
    ];
    for (tag, kind, count) in kinds {
        assert_eq!(tags[tag], (kind, count), "{tag}");
    }
    assert_eq!(tags.len(), kinds.len());
}

#[test]
fn damage_anywhere_is_seen() {
    let (storage, path) = written();
    let content = storage.content(&path);
    let (all, ..) = scalars(&storage, &path);
    for place in 0..content.len() {
        let mut damaged = content.clone();
        damaged[place] ^= 1 << (place % 8);
        let (found, _, end) = scalars(&Memory::with("f", &damaged), "f");
        assert!(found.len() <= all.len() && found.iter().zip(&all).all(same), "{place}");
        let e = end.unwrap_err();
        assert_eq!(e.code(), Code::DataLoss, "{e}");
        assert!(e.message().starts_with("f: record at byte "), "{e}");
    }
    for length in 0..content.len() {
        let (found, _, end) = scalars(&Memory::with("f", &content[..length]), "f");
        assert!(found.len() <= all.len() && found.iter().zip(&all).all(same), "{length}");
        if let Err(e) = end {
            assert!(e.message().starts_with("f: record at byte "), "{e}");
        }
    }
}

fn same((a, b): (&Scalar, &Scalar)) -> bool {
    (a.tag, a.step, a.wall_time, a.value.to_bits())
        == (b.tag, b.step, b.wall_time, b.value.to_bits())
}

/// Records that are whole but no events.
#[test]
fn what_is_no_event_is_refused() {
    let storage = Memory::default();
    let mut writer = EventWriter::create(&storage, "", NOW, "").unwrap();
    writer.write_serialized(b"\x0a\xff").unwrap();
    let path = writer.path().to_owned();
    writer.finish().unwrap();
    let (_, _, end) = scalars(&storage, &path);
    assert_eq!(end.unwrap_err().code(), Code::DataLoss);
    let mut reader = EventReader::open(&storage, &path, ReadOptions::default()).unwrap();
    reader.next_event().unwrap();
    assert_eq!(reader.next_event().unwrap_err().code(), Code::DataLoss);
}

#[test]
fn files_of_a_folder() {
    let folder = std::env::temp_dir().join(format!("thalweg-events-{}", std::process::id()));
    let storage = thalweg_formats::LocalStorage::default();
    let root = folder.to_str().unwrap();
    for run in ["b", "a/c"] {
        EventWriter::create(&storage, &format!("{root}/{run}"), NOW, "").unwrap().finish().unwrap();
    }
    std::fs::write(folder.join("other.txt"), b"").unwrap();
    let files = event_files(&storage, root).unwrap();
    assert_eq!(files.len(), 2);
    assert!(files[0].starts_with(&format!("{root}/a/c/events.out.tfevents.")), "{files:?}");
    assert_eq!(event_files(&storage, &files[1]).unwrap(), files[1..]);
    assert_eq!(event_files(&storage, "/no/such").unwrap_err().code(), Code::NotFound);
    std::fs::remove_dir_all(folder).unwrap();
    // What is written can be decoded as the message that it is.
    let value = summary::scalar("x", 1.0).unwrap();
    assert_eq!(pb::summary::Value::decode(&value.encode_to_vec()[..]).unwrap(), value);
}
