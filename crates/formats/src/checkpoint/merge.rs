//! Merging of the checkpoints that the tasks of a cluster saved (`MergeV2Checkpoints`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use thalweg_tensor::{Code, Result, ensure};

use super::writer::{remove_others, unused_shard_count, write_index};
use super::{BundleReader, Entry, WriteOptions, data_path, index_path};
use crate::Storage;
use crate::storage::folder_of;

/// Options of merging.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeOptions {
    /// Whether to remove the folders of the merged checkpoints if they are empty.
    pub delete_old_dirs: bool,
    /// Whether missing checkpoints are ignored.
    pub allow_missing: bool,
    /// Options of writing the new index.
    pub write: WriteOptions,
}

/// The merged index.
#[derive(Default)]
struct Merged {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The data files of the merged checkpoints; the position is the number of the data file in the
    /// result.
    data: Vec<String>,
}

/// Merges the checkpoints with these prefixes. Their data files are renamed, no data is copied; the
/// new index is written last, so an earlier checkpoint with the same prefix stays readable until
/// then.
pub fn merge(
    storage: &Arc<dyn Storage>,
    prefixes: &[&str],
    destination: &str,
    options: MergeOptions,
) -> Result<()> {
    let mut merged = Merged::default();
    for prefix in prefixes {
        match BundleReader::open(storage, prefix) {
            Ok(part) => merged.add(&part)?,
            Err(e) if options.allow_missing && e.code() == Code::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    storage.create_folder_of(destination)?;
    let shards = u32::try_from(merged.data.len()).unwrap_or(u32::MAX);
    let shards = unused_shard_count(storage, destination, shards);
    for (i, path) in merged.data.iter().enumerate() {
        storage.rename(path, &data_path(destination, i as u32, shards))?;
    }
    write_index(&**storage, destination, shards, &merged.entries, options.write)?;
    // The checkpoint is complete; files of the old one and of the parts are garbage now.
    remove_others(&**storage, destination, shards, &merged.entries);
    for prefix in prefixes.iter().filter(|prefix| **prefix != destination) {
        let _ = storage.remove(&index_path(prefix));
    }
    if options.delete_old_dirs {
        let mut folders: Vec<&str> = prefixes.iter().map(|prefix| folder_of(prefix)).collect();
        folders.dedup();
        for folder in folders.iter().filter(|folder| **folder != folder_of(destination)) {
            let _ = storage.remove_folder(folder);
        }
    }
    Ok(())
}

impl Merged {
    fn add(&mut self, part: &BundleReader) -> Result<()> {
        let path = index_path(part.prefix());
        ensure!(
            !part.is_big_endian(),
            Unimplemented,
            "{path}: merging checkpoints of machines with the other byte order"
        );
        let mut numbers = BTreeMap::new();
        for (key, entry) in part.raw_entries() {
            let mut entry = entry.clone();
            if entry.slices.is_empty() {
                let number = *numbers.entry(entry.shard).or_insert_with(|| {
                    self.data.push(data_path(part.prefix(), entry.shard, part.shards()));
                    self.data.len() as u32 - 1
                });
                entry.shard = number;
            }
            self.add_entry(&path, key, entry)?;
        }
        Ok(())
    }

    fn add_entry(&mut self, path: &str, key: &[u8], entry: Entry) -> Result<()> {
        let slot = match self.entries.entry(key.to_vec()) {
            Slot::Vacant(slot) => {
                slot.insert(entry);
                return Ok(());
            }
            Slot::Occupied(slot) => slot.into_mut(),
        };
        let name = String::from_utf8_lossy(key);
        ensure!(
            !slot.slices.is_empty() && !entry.slices.is_empty(),
            InvalidArgument,
            "{path}: tensor '{name}' is also in a checkpoint that it is to be merged with"
        );
        ensure!(
            slot.dtype == entry.dtype && slot.shape == entry.shape,
            InvalidArgument,
            "{path}: tensor '{name}' has slices of a {} tensor of shape {}, in another checkpoint of \
             a {} tensor of shape {}",
            entry.dtype,
            entry.shape,
            slot.dtype,
            slot.shape
        );
        slot.slices.extend(entry.slices);
        Ok(())
    }
}
