//! Follows the event files below a folder: finds new ones, and reads what was appended to known ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_formats::Storage;
use thalweg_formats::events::EventReader;
use thalweg_formats::record::{Compression, FOOTER_BYTES, HEADER_BYTES, ReadOptions};
use thalweg_formats::storage::join;
use thalweg_proto as pb;
use thalweg_tensor::{Error, Result};
use tracing::warn;

/// Most levels of folders below the root.
const DEPTH_MAX: usize = 8;
/// Most files and folders that are looked at, and event files that are followed.
const ENTRIES_MAX: usize = 50_000;
const FILES_MAX: usize = 2_000;
/// Largest event.
const EVENT_BYTES_MAX: usize = 128 << 20;
/// Events that are read between two calls that hand them on.
const BATCH_EVENTS: usize = 256;
const BATCH_BYTES: u64 = 8 << 20;

/// The event files below a folder.
pub(super) struct Follower {
    storage: Arc<dyn Storage>,
    root: String,
    files: BTreeMap<String, Followed>,
}

/// An event file.
struct Followed {
    /// The folder of the file, relative to the root.
    run: Arc<str>,
    /// Where the next event begins.
    offset: u64,
    /// The size of the file when it was read last.
    size: u64,
    /// Whether nothing more is read: it is compressed, or damaged.
    is_done: bool,
}

impl Follower {
    pub(super) fn new(storage: Arc<dyn Storage>, root: &str) -> Follower {
        Follower { storage, root: root.to_owned(), files: BTreeMap::new() }
    }

    /// Looks for new event files. Files that are gone keep what was read of them.
    pub(super) fn find(&mut self) -> Result<()> {
        let mut left = ENTRIES_MAX;
        let root = self.root.clone();
        self.find_in(&root, ".", DEPTH_MAX, &mut left)
    }

    fn find_in(&mut self, folder: &str, run: &str, depth: usize, left: &mut usize) -> Result<()> {
        let run_name: Arc<str> = run.into();
        let mut names = self.storage.list(folder)?;
        names.sort();
        for name in names {
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            let path = join(folder, &name);
            // A file may be removed meanwhile; a symbolic link may be dangling.
            let Ok(found) = self.storage.metadata(&path) else { continue };
            if found.is_folder && depth > 0 {
                let run = if run == "." { name } else { format!("{run}/{name}") };
                // A folder that cannot be read hides nothing but itself.
                let _ = self.find_in(&path, &run, depth - 1, left);
            } else if !found.is_folder
                && name.contains("tfevents")
                && self.files.len() < FILES_MAX
                && !self.files.contains_key(&path)
            {
                let run = run_name.clone();
                self.files.insert(path, Followed { run, offset: 0, size: 0, is_done: false });
            }
        }
        Ok(())
    }

    /// Reads what was appended; calls `add` with a run and its next events.
    pub(super) fn read(&mut self, mut add: impl FnMut(&str, Vec<pb::Event>)) {
        for (path, file) in &mut self.files {
            if let Err(e) = file.read(&*self.storage, path, &mut add) {
                file.end(path, &e);
            }
        }
    }
}

impl Followed {
    fn read(
        &mut self,
        storage: &dyn Storage,
        path: &str,
        add: &mut impl FnMut(&str, Vec<pb::Event>),
    ) -> Result<()> {
        // A file that is gone may come back.
        let Ok(found) = storage.metadata(path) else { return Ok(()) };
        if self.is_done || found.bytes == self.size {
            return Ok(());
        }
        if found.bytes < self.offset {
            // It was written anew; what was read before cannot be taken back.
            self.offset = 0;
        }
        self.size = found.bytes;
        let options = ReadOptions {
            offset: self.offset,
            record_bytes_max: EVENT_BYTES_MAX,
            ends_within_header: true,
            ..Default::default()
        };
        let mut reader = EventReader::open(storage, path, options)?;
        // An offset into compressed bytes is none into the file: such a file is read once.
        self.is_done = reader.records().compression() != Compression::None;
        let (mut events, mut begin) = (Vec::new(), self.offset);
        loop {
            let next = reader.next_event();
            let offset = reader.records().offset();
            let is_end = !matches!(next, Ok(Some(_)));
            match next {
                Ok(Some(event)) => {
                    events.push(event);
                    self.offset = offset;
                }
                Ok(None) => {}
                // More of it may come.
                Err(_) if self.is_incomplete(storage, path) => {}
                Err(e) => self.end(path, &e),
            }
            if is_end || events.len() >= BATCH_EVENTS || offset - begin >= BATCH_BYTES {
                add(&self.run, std::mem::take(&mut events));
                begin = offset;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Whether the file, when its size was taken, ended within the event at `offset`.
    fn is_incomplete(&self, storage: &dyn Storage, path: &str) -> bool {
        let mut length = [0; 8];
        let read = storage.open(path).and_then(|file| file.read_at(self.offset, &mut length));
        let length = u64::from_le_bytes(length);
        let whole = (HEADER_BYTES + FOOTER_BYTES) as u64;
        read.is_ok_and(|read| read == 8)
            && length <= EVENT_BYTES_MAX as u64
            && self.offset + whole + length > self.size
    }

    /// Nothing more of the file can be read.
    fn end(&mut self, path: &str, error: &Error) {
        warn!(
            target: "thalweg::dashboard",
            path, "{}; the rest of the file is not shown", error.message()
        );
        self.is_done = true;
    }
}

#[cfg(test)]
mod tests {
    use thalweg_formats::LocalStorage;
    use thalweg_formats::events::{EventWriter, summary};

    use super::*;
    use crate::folder_tests::TestFolder;

    /// The serialized events of an event file with these steps.
    fn file(folder: &TestFolder, steps: std::ops::Range<i64>) -> Vec<u8> {
        let (storage, now) = (LocalStorage::default(), std::time::Duration::from_secs(1));
        let mut writer = EventWriter::create(&storage, &folder.0, now, ".source").unwrap();
        for step in steps {
            let values = vec![summary::scalar("loss", step as f32).unwrap()];
            writer.summary(now, step, values).unwrap();
        }
        writer.flush().unwrap();
        let path = writer.path().to_owned();
        drop(writer);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        bytes
    }

    fn read(follower: &mut Follower) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        follower.find().unwrap();
        follower.read(|run, events| {
            let summaries =
                events.iter().filter(|e| matches!(e.what, Some(pb::event::What::Summary(_))));
            found.extend(summaries.map(|e| (run.to_owned(), e.step)));
        });
        found
    }

    #[test]
    fn growing_files_are_read_once() {
        let folder = TestFolder::new("growing");
        let bytes = file(&folder, 1..100);
        let run = format!("{}/train/sub", folder.0);
        std::fs::create_dir_all(&run).unwrap();
        let path = format!("{run}/events.out.tfevents.1.host");
        let mut follower = Follower::new(Arc::new(LocalStorage::default()), &folder.0);
        assert!(read(&mut follower).is_empty());
        let mut found = Vec::new();
        // Cuts within headers, data and footers.
        for end in (0..bytes.len()).step_by(37).chain([bytes.len()]) {
            std::fs::write(&path, &bytes[..end]).unwrap();
            found.extend(read(&mut follower));
        }
        let expected: Vec<_> = (1..100).map(|step| ("train/sub".to_owned(), step)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn damage_ends_a_file_and_others_go_on() {
        let folder = TestFolder::new("damage");
        let mut bytes = file(&folder, 1..50);
        let good = bytes.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        let path = format!("{}/a.tfevents", folder.0);
        std::fs::write(format!("{}/b.tfevents", folder.0), &good).unwrap();
        let mut follower = Follower::new(Arc::new(LocalStorage::default()), &folder.0);
        for more in 0..10 {
            let grown: Vec<u8> = bytes.iter().copied().chain(vec![0; more]).collect();
            std::fs::write(&path, grown).unwrap();
            let found = read(&mut follower);
            match more {
                0 => assert!(found.len() > 60 && found.len() < 90, "{}", found.len()),
                _ => assert!(found.is_empty(), "{found:?}"),
            }
        }
        assert!(follower.files[&path].is_done);
        assert!(found_runs(&follower).iter().all(|run| run == "."));
    }

    #[test]
    fn a_large_event_may_be_written_slowly() {
        let folder = TestFolder::new("slow");
        let bytes = file(&folder, 1..2);
        let path = format!("{}/a.tfevents", folder.0);
        let mut follower = Follower::new(Arc::new(LocalStorage::default()), &folder.0);
        let mut found = Vec::new();
        for end in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..end]).unwrap();
            found.extend(read(&mut follower));
        }
        assert_eq!(found, [(".".to_owned(), 1)]);
    }

    fn found_runs(follower: &Follower) -> Vec<String> {
        follower.files.values().map(|file| file.run.to_string()).collect()
    }
}
