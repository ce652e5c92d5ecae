//! TFRecord files and event files.

use std::collections::BTreeMap;

use thalweg_formats::events::{EventReader, Scalars};
use thalweg_formats::masked_crc32c;
use thalweg_formats::record::{Compression, FOOTER_BYTES, HEADER_BYTES, ReadOptions, RecordReader};
use thalweg_formats::storage::{ReadAt, join};
use thalweg_tensor::{Result, err};

use super::{Description, bytes_text, count};
use crate::checkpoint::source::storage;

/// The start of the file version in the first record of an event file.
const EVENT_VERSION: &[u8] = b"brain.Event:";

/// The maximum number of tags in text output; JSON output has all.
const TAGS_SHOWN_MAX: usize = 20;

/// Whether bytes begin with a record's length and a valid checksum of it.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    length_of(bytes).is_some()
}

fn length_of(header: &[u8]) -> Option<u64> {
    let (length, rest) = header.split_first_chunk::<8>()?;
    let sum = u32::from_le_bytes(*rest.first_chunk::<4>()?);
    (masked_crc32c(length) == sum).then(|| u64::from_le_bytes(*length))
}

/// A TFRecord file, plain or compressed.
pub(super) fn file(path: &str, size: u64, verify: bool) -> Result<Description> {
    let storage = storage();
    let options = ReadOptions { bad_records_max: u64::MAX, ..Default::default() };
    let mut reader = RecordReader::open_any(&*storage, path, options)?;
    let compression = reader.compression();
    let first = reader.next_record().ok().flatten().map(<[u8]>::to_vec);
    let is_event = first.as_ref().is_some_and(|record| {
        record.windows(EVENT_VERSION.len()).take(32).any(|part| part == EVENT_VERSION)
    });
    if is_event {
        return events(path, size);
    }
    let mut description = Description::new("TFRecord file");
    let is_compressed = compression != Compression::None;
    let records = if verify || is_compressed {
        read_all(&mut description, reader, first.is_some())
    } else {
        walk(&mut description, &*storage.open(path)?, size)?
    };
    description.summary = format!("{}, {}", count(records, "record"), bytes_text(size));
    if is_compressed {
        description.summary += ", compressed";
    }
    description.fact("records", records);
    description.fact("bytes", size);
    description.fact("compressed", is_compressed);
    Ok(description)
}

/// Reads all records and verifies checksums.
fn read_all(description: &mut Description, mut reader: RecordReader, has_first: bool) -> usize {
    let mut records = usize::from(has_first);
    loop {
        match reader.next_record() {
            Ok(Some(_)) => records += 1,
            Ok(None) => break,
            Err(e) => {
                description.problem(&e);
                break;
            }
        }
    }
    reader.bad_records().iter().for_each(|bad| description.problem(&bad.error));
    description.is_verified = true;
    records
}

/// Iterates over record headers without reading the data.
fn walk(description: &mut Description, file: &dyn ReadAt, size: u64) -> Result<usize> {
    let (mut at, mut records) = (0, 0);
    while at < size {
        let mut header = [0; HEADER_BYTES];
        let read = file.read_at(at, &mut header)?;
        let end = length_of(&header[..read]).and_then(|length| {
            at.checked_add(length)?.checked_add((HEADER_BYTES + FOOTER_BYTES) as u64)
        });
        match end {
            Some(end) if end <= size => (at, records) = (end, records + 1),
            found => {
                let what = if found.is_some() {
                    "the file ends within it"
                } else {
                    "the checksum of its length is wrong"
                };
                description.problem(&err!(
                    DataLoss,
                    "{}: record at byte {at}: {what}",
                    file.path()
                ));
                break;
            }
        }
    }
    Ok(records)
}

/// An event file, which is always read completely.
fn events(path: &str, size: u64) -> Result<Description> {
    let mut description = Description::new("event file");
    let mut reader = EventReader::open(&*storage(), path, ReadOptions::default())?;
    let mut scalars = Scalars::new();
    let (mut events, mut steps) = (0usize, None::<(i64, i64)>);
    loop {
        match scalars.next(&mut reader) {
            Ok(Some(found)) => {
                events += 1;
                for step in found.iter().map(|scalar| scalar.step) {
                    let (low, high) = steps.unwrap_or((step, step));
                    steps = Some((low.min(step), high.max(step)));
                }
            }
            Ok(None) => break,
            Err(e) => {
                description.problem(&e);
                break;
            }
        }
    }
    let tags = scalars.tags();
    description.summary = format!("{}, {}", count(events, "event"), bytes_text(size));
    if let Some((low, high)) = steps {
        description.summary += &format!(", steps {low} to {high}");
        description.fact("steps", vec![low, high]);
    }
    let mut listed: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (tag, (kind, number)) in &tags {
        if description.lines.len() < TAGS_SHOWN_MAX {
            description.lines.push(format!("{}: {tag} ({number})", kind.name()));
        }
        listed.entry(kind.name()).or_default().insert(tag, *number);
    }
    description.fact("events", events);
    description.fact("bytes", size);
    description.fact("tags", serde_json::json!(listed));
    description.is_verified = true;
    Ok(description)
}

/// A folder of event files.
pub(super) fn event_folder(folder: &str, names: &[String], verify: bool) -> Result<Description> {
    let mut description = Description::new("folder of event files");
    let files: Vec<&String> = names.iter().filter(|name| name.contains("tfevents")).collect();
    description.summary = count(files.len(), "event file");
    for name in &files {
        let path = join(folder, name);
        let size = storage().metadata(&path)?.bytes;
        match file(&path, size, verify) {
            Ok(one) => {
                description.lines.push(format!("{name}: {}", one.summary));
                description.problems.extend(one.problems);
            }
            Err(e) => description.problem(&e),
        }
    }
    description.fact("files", serde_json::json!(files));
    description.is_verified = true;
    Ok(description)
}
