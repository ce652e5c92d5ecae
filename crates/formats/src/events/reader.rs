//! Reading of event files, and search for them.

use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Bytes, Result, err};

use crate::record::{ReadOptions, RecordReader};
use crate::storage::{Storage, join};

/// The maximum depth of the search for event files.
const DEPTH_MAX: usize = 32;

/// Reads an event file.
pub struct EventReader {
    records: RecordReader,
}

impl EventReader {
    /// Opens a file.
    pub fn open(storage: &dyn Storage, path: &str, options: ReadOptions) -> Result<EventReader> {
        Ok(EventReader { records: RecordReader::open_any(storage, path, options)? })
    }

    /// Reads the events that are in records.
    pub fn from_records(records: RecordReader) -> EventReader {
        EventReader { records }
    }

    /// The file's path.
    pub fn path(&self) -> &str {
        self.records.path()
    }

    /// The offset of the last event.
    pub fn event_offset(&self) -> u64 {
        self.records.record_offset()
    }

    /// The underlying record reader.
    pub fn records(&self) -> &RecordReader {
        &self.records
    }

    /// The next event, serialized.
    pub fn next_serialized(&mut self) -> Result<Option<&[u8]>> {
        self.records.next_record()
    }

    /// The next event, or none at the end.
    pub fn next_event(&mut self) -> Result<Option<pb::Event>> {
        let Some(record) = self.records.next_record()? else { return Ok(None) };
        let event = pb::Event::decode_from(&mut Bytes::copy_from_slice(record));
        let (path, offset) = (self.records.path(), self.records.record_offset());
        let what = "is not an event";
        let event =
            event.map_err(|e| err!(DataLoss, "{path}: record at byte {offset} {what}: {e}"));
        event.map(Some)
    }
}

/// The event files at `path`, a file or a folder that is searched recursively, sorted by name.
pub fn event_files(storage: &dyn Storage, path: &str) -> Result<Vec<String>> {
    if !storage.metadata(path)?.is_folder {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    collect(storage, path, DEPTH_MAX, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(
    storage: &dyn Storage,
    folder: &str,
    depth: usize,
    files: &mut Vec<String>,
) -> Result<()> {
    for name in storage.list(folder)? {
        let path = join(folder, &name);
        // A file may be removed during the search; a symbolic link may be dangling.
        let Ok(found) = storage.metadata(&path) else { continue };
        if found.is_folder {
            if depth > 0 {
                collect(storage, &path, depth - 1, files)?;
            }
        } else if name.contains("tfevents") {
            files.push(path);
        }
    }
    Ok(())
}
