//! Input rows: pipelines over a file of examples, and reading an event file.
//!
//! TensorFlow wrote the graphs (`benches/graphs/make_input.py`); the files that they read are
//! generated here with fixed content, in the folder that peers share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use prost::Message;
use thalweg_formats::LocalStorage;
use thalweg_formats::events::{EventReader, EventWriter, Scalars, summary};
use thalweg_formats::record::{Compression, ReadOptions, RecordWriter};
use thalweg_formats::storage::Storage;
use thalweg_proto as pb;
use thalweg_proto::attr_value::Value;
use thalweg_proto::event::What;
use thalweg_proto::feature::Kind;
use thalweg_proto::summary::value::Value as Content;
use thalweg_tensor::{Bytes, Result, err};

/// The graphs of the rows, by name.
const GRAPHS: &[(&str, &[u8])] = &[
    ("input/tfrecord_read", include_bytes!("../../graphs/input_tfrecord_read.pb")),
    ("input/parse_example_batched", include_bytes!("../../graphs/input_parse_example_batched.pb")),
    ("input/parse_single", include_bytes!("../../graphs/input_parse_single.pb")),
    ("input/mnist_pipeline", include_bytes!("../../graphs/input_mnist_pipeline.pb")),
];

/// Examples in the file: each has a string of [`IMAGE_BYTES`] and a number.
pub(crate) const EXAMPLES: usize = 30_000;
const IMAGE_BYTES: usize = 784;
/// Events in the event file, each with one scalar; the tags alternate.
const EVENTS: i64 = 50_000;
const TAGS: &[&str] = &["loss", "accuracy", "learning_rate", "gradients/norm"];

/// The graph of a row over a file of examples, which is generated; `None` for other rows.
pub(crate) fn graph(row: &str) -> Option<Result<pb::GraphDef>> {
    let (_, file) = GRAPHS.iter().find(|(name, _)| *name == row)?;
    Some(examples().and_then(|path| {
        let mut def = pb::GraphDef::decode(*file).map_err(|e| err!(DataLoss, "{row}: {e}"))?;
        let node = def.node.iter_mut().find(|node| node.name == "filenames");
        let value = node.and_then(|node| node.attr.get_mut("value"));
        let Some(Value::Tensor(names)) = value.and_then(|value| value.value.as_mut()) else {
            return Err(err!(DataLoss, "{row}: the graph has no constant 'filenames'"));
        };
        names.string_val = vec![path.into()];
        Ok(def)
    }))
}

/// Path of a file that peers share.
fn shared_file(name: &str) -> Result<String> {
    let folder = std::env::var_os(crate::rows::GRAPHS_VARIABLE).map(PathBuf::from);
    let path = folder.unwrap_or_else(std::env::temp_dir).join(name);
    path.into_os_string().into_string().map_err(|p| err!(InvalidArgument, "{p:?} is not UTF-8"))
}

/// Pseudo-random numbers, which neither a compressor nor a branch predictor can exploit.
fn scramble(i: usize) -> u32 {
    let mixed = (i as u32).wrapping_mul(2_654_435_761);
    (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b)
}

/// Writes the file of examples; returns its path.
fn examples() -> Result<String> {
    let path = shared_file("input_examples.tfrecord")?;
    let file = LocalStorage::default().replace(&path)?;
    let mut writer = RecordWriter::new(file, Compression::None);
    for i in 0..EXAMPLES {
        let pixel = |j| (scramble(i * IMAGE_BYTES + j) >> 24) as u8;
        let image: Vec<u8> = (0..IMAGE_BYTES).map(pixel).collect();
        let image = Kind::BytesList(pb::BytesList { value: vec![image.into()] });
        let label = Kind::Int64List(pb::Int64List { value: vec![(i % 10) as i64] });
        let feature: BTreeMap<String, pb::Feature> = [("image", image), ("label", label)]
            .map(|(name, kind)| (name.to_owned(), pb::Feature { kind: Some(kind) }))
            .into();
        let example = pb::Example { features: Some(pb::Features { feature }) };
        writer.write(&example.encode_to_vec())?;
    }
    writer.finish()?;
    Ok(path)
}

/// An event file and its reader.
pub(crate) struct Events {
    path: String,
}

impl Events {
    /// Writes the file, if `row` is the event file row, and reads it once.
    pub(crate) fn new(row: &str) -> Option<Result<Events>> {
        (row == "events/read").then(|| {
            let events = Events { path: event_file()? };
            let found = events.read()?;
            match found as f64 == Events::UNITS {
                true => Ok(events),
                false => Err(err!(Internal, "{found} numbers of {EVENTS} were found")),
            }
        })
    }

    /// Events in the file.
    pub(crate) const UNITS: f64 = EVENTS as f64;

    pub(crate) fn run(&self, runs: u64) -> Result<()> {
        (0..runs).try_for_each(|_| self.read().map(drop))
    }

    /// Collects the scalars of each tag; returns their number.
    fn read(&self) -> Result<usize> {
        let storage = LocalStorage::default();
        let mut reader = EventReader::open(&storage, &self.path, ReadOptions::default())?;
        let (mut scalars, mut series) = (Scalars::new(), Vec::<Vec<(f64, i64, f64)>>::new());
        while let Some(found) = scalars.next(&mut reader)? {
            for scalar in found {
                if scalar.tag >= series.len() {
                    series.resize_with(scalar.tag + 1, Vec::new);
                }
                series[scalar.tag].push((scalar.wall_time, scalar.step, scalar.value));
            }
        }
        Ok(std::hint::black_box(series).iter().map(Vec::len).sum())
    }
}

/// Writes an event file whose scalars alternate between the encodings of TensorFlow 1 and 2;
/// publishes its path for the other peer, and returns it.
fn event_file() -> Result<String> {
    let (storage, folder) = (LocalStorage::default(), shared_file("events")?);
    if let Ok(files) = storage.list(&folder) {
        for old in files {
            storage.remove(&thalweg_formats::storage::join(&folder, &old))?;
        }
    }
    let mut writer =
        EventWriter::create(&storage, &folder, Duration::from_secs(1_700_000_000), "")?;
    for step in 0..EVENTS {
        let tag = TAGS[step as usize % TAGS.len()];
        let number = scramble(step as usize) as f32 / u32::MAX as f32;
        let value = match step % 2 {
            0 => summary::plain(tag, Content::SimpleValue(number)),
            _ => summary::scalar(tag, number)?,
        };
        let event = pb::Event {
            wall_time: 1.7e9 + step as f64,
            step,
            what: Some(What::Summary(pb::Summary { value: vec![value] })),
            ..Default::default()
        };
        writer.write(&event)?;
    }
    let path = writer.path().to_owned();
    writer.flush()?;
    let units = Bytes::from(EVENTS.to_string());
    storage.write(&shared_file("events_read.units")?, &units)?;
    Ok(path)
}
