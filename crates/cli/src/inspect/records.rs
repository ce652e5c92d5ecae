//! TFRecord files and event files.

use std::collections::BTreeMap;

use thalweg_formats::events::{EventReader, Scalars};
use thalweg_formats::masked_crc32c;
use thalweg_formats::record::{Compression, FOOTER_BYTES, HEADER_BYTES, ReadOptions, RecordReader};
use thalweg_formats::storage::{ReadAt, join};
use thalweg_tensor::{Result, err};

use super::{Finding, bytes_text, count};
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
pub(super) fn file(path: &str, size: u64, verify: bool) -> Result<Finding> {
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
    let mut finding = Finding::new("TFRecord file");
    let is_compressed = compression != Compression::None;
    let records = if verify || is_compressed {
        read_all(&mut finding, reader, first.is_some())
    } else {
        walk(&mut finding, &*storage.open(path)?, size)?
    };
    finding.summary = format!("{}, {}", count(records, "record"), bytes_text(size));
    if is_compressed {
        finding.summary += ", compressed";
    }
    finding.fact("records", records);
    finding.fact("bytes", size);
    finding.fact("compressed", is_compressed);
    Ok(finding)
}

/// Reads all records and verifies checksums.
fn read_all(finding: &mut Finding, mut reader: RecordReader, has_first: bool) -> usize {
    let mut records = usize::from(has_first);
    loop {
        match reader.next_record() {
            Ok(Some(_)) => records += 1,
            Ok(None) => break,
            Err(e) => {
                finding.problem(&e);
                break;
            }
        }
    }
    reader.bad_records().iter().for_each(|bad| finding.problem(&bad.error));
    finding.is_verified = true;
    records
}

/// Iterates over record headers without reading the data.
fn walk(finding: &mut Finding, file: &dyn ReadAt, size: u64) -> Result<usize> {
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
                let what =
                    if found.is_some() { "the file ends in it" } else { "its length is broken" };
                finding.problem(&err!(DataLoss, "{}: record at byte {at}: {what}", file.path()));
                break;
            }
        }
    }
    Ok(records)
}

/// An event file, which is always read completely.
fn events(path: &str, size: u64) -> Result<Finding> {
    let mut finding = Finding::new("event file");
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
                finding.problem(&e);
                break;
            }
        }
    }
    let tags = scalars.tags();
    finding.summary = format!("{}, {}", count(events, "event"), bytes_text(size));
    if let Some((low, high)) = steps {
        finding.summary += &format!(", numbers of steps {low} to {high}");
        finding.fact("steps", vec![low, high]);
    }
    let mut listed: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for (tag, (kind, number)) in &tags {
        if finding.lines.len() < TAGS_SHOWN_MAX {
            finding.lines.push(format!("{}: {tag} ({number})", kind.name()));
        }
        listed.entry(kind.name()).or_default().insert(tag, *number);
    }
    finding.fact("events", events);
    finding.fact("bytes", size);
    finding.fact("tags", serde_json::json!(listed));
    finding.is_verified = true;
    Ok(finding)
}

/// A folder of event files.
pub(super) fn event_folder(folder: &str, names: &[String], verify: bool) -> Result<Finding> {
    let mut finding = Finding::new("folder of event files");
    let files: Vec<&String> = names.iter().filter(|name| name.contains("tfevents")).collect();
    finding.summary = count(files.len(), "event file");
    for name in &files {
        let path = join(folder, name);
        let size = storage().metadata(&path)?.bytes;
        match file(&path, size, verify) {
            Ok(one) => {
                finding.lines.push(format!("{name}: {}", one.summary));
                finding.problems.extend(one.problems);
            }
            Err(e) => finding.problem(&e),
        }
    }
    finding.fact("files", serde_json::json!(files));
    finding.is_verified = true;
    Ok(finding)
}
