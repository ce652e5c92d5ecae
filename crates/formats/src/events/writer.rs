//! Writing of event files.

use std::time::Duration;

use thalweg_proto::event::What;
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Bytes, Result, err};

use super::FILE_VERSION;
use crate::record::{Compression, RecordWriter};
use crate::storage::{Storage, join};

/// Writes an event file.
pub struct EventWriter {
    records: RecordWriter,
    scratch: Vec<u8>,
}

/// The name of an event file that is created at `wall`, with `suffix` after the host name.
pub fn file_name(wall: Duration, suffix: &str) -> String {
    format!("events.out.tfevents.{:010}.{}{suffix}", wall.as_secs(), host_name())
}

/// The host name, for the file name only.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match name.trim() {
        name if !name.is_empty() && name.chars().all(is_plain) => name.to_owned(),
        _ => "localhost".to_owned(),
    }
}

impl EventWriter {
    /// Creates a file in `folder`, which is created if necessary. `wall` is the time since 1970.
    pub fn create(
        storage: &dyn Storage,
        folder: &str,
        wall: Duration,
        suffix: &str,
    ) -> Result<EventWriter> {
        if !folder.is_empty() {
            storage.create_folder(folder)?;
        }
        let path = join(folder, &file_name(wall, suffix));
        let records = RecordWriter::new(storage.append(&path)?, Compression::None);
        let mut writer = EventWriter { records, scratch: Vec::new() };
        let version = pb::Event {
            wall_time: wall.as_secs_f64(),
            what: Some(What::FileVersion(FILE_VERSION.into())),
            source_metadata: Some(pb::SourceMetadata { writer: "thalweg".into() }),
            ..Default::default()
        };
        writer.write(&version)?;
        Ok(writer)
    }

    /// The file's path.
    pub fn path(&self) -> &str {
        self.records.path()
    }

    /// Adds an event.
    pub fn write(&mut self, event: &pb::Event) -> Result<()> {
        self.scratch.clear();
        event.encode_into(&mut self.scratch);
        self.records.write(&self.scratch)
    }

    /// Adds a serialized event.
    pub fn write_serialized(&mut self, event: &[u8]) -> Result<()> {
        self.records.write(event)
    }

    /// Adds summary values of a step.
    pub fn summary(
        &mut self,
        wall: Duration,
        step: i64,
        values: Vec<pb::summary::Value>,
    ) -> Result<()> {
        self.what(wall, step, What::Summary(pb::Summary { value: values }))
    }

    /// Adds a serialized `Summary` of a step, the output of `MergeSummary`.
    pub fn write_summary(&mut self, wall: Duration, step: i64, summary: &[u8]) -> Result<()> {
        let summary = pb::Summary::decode_from(&mut &*summary);
        let summary = summary.map_err(|e| err!(InvalidArgument, "not a Summary: {e}"))?;
        self.summary(wall, step, summary.value)
    }

    /// Adds a graph.
    pub fn graph(&mut self, wall: Duration, graph: &pb::GraphDef) -> Result<()> {
        self.what(wall, 0, What::GraphDef(graph.to_bytes().into()))
    }

    /// Adds the `RunMetadata` of a step under a tag.
    pub fn run_metadata(
        &mut self,
        wall: Duration,
        step: i64,
        tag: &str,
        metadata: &pb::RunMetadata,
    ) -> Result<()> {
        let run_metadata = Bytes::from(metadata.to_bytes());
        let tagged = pb::TaggedRunMetadata { tag: tag.to_owned(), run_metadata };
        self.what(wall, step, What::TaggedRunMetadata(tagged))
    }

    fn what(&mut self, wall: Duration, step: i64, what: What) -> Result<()> {
        let wall_time = wall.as_secs_f64();
        self.write(&pb::Event { wall_time, step, what: Some(what), ..Default::default() })
    }

    /// Flushes, so that readers see what was written.
    pub fn flush(&mut self) -> Result<()> {
        self.records.flush()
    }

    /// Ends the file.
    pub fn finish(self) -> Result<()> {
        self.records.finish()
    }
}
