//! Writing of V2 checkpoints.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use thalweg_proto::{BundleHeaderProto, VersionDef, bundle_header_proto::Endianness};
use thalweg_tensor::{Context, DType, Error, Result, Shape, Tensor, ensure, err};

use super::digest::Digest;
use super::ordered::slice_key;
use super::reader::VERSION;
use super::table::TableWriter;
use super::{
    BundleReader, Entry, ParallelFor, Slice, data_path, index_path, objects, prefix_of,
    sequentially,
};
use crate::Storage;
use crate::storage::{WriteFile, folder_of};

/// The size of a chunk that is checksummed and then written while it is in the cache.
const CHUNK_BYTES: usize = 1 << 20;

/// Options of writing a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Whether files are synced to disk before they are renamed. Without it, a power failure (not a
    /// crash of the process) may leave an unreadable checkpoint.
    pub sync: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { sync: true }
    }
}

impl WriteOptions {
    /// A file that is renamed into place when it is finished.
    pub fn replace(self, storage: &dyn Storage, path: &str) -> Result<Box<dyn WriteFile>> {
        if self.sync { storage.replace(path) } else { storage.replace_unsynced(path) }
    }
}

/// A tensor or slice to add.
pub struct Item<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// The shape of the whole tensor and the slice; `None` for a whole tensor.
    pub part: Option<(&'a Shape, &'a Slice)>,
    /// The elements.
    pub tensor: &'a Tensor,
}

/// A data file that is written.
struct Data {
    file: Box<dyn WriteFile>,
    shard: u32,
    offset: u64,
}

/// A checkpoint that is written. No file has its final name before [`BundleWriter::finish`]; a
/// writer that is dropped removes its files. An earlier checkpoint with the same prefix stays
/// readable until then.
pub struct BundleWriter {
    storage: Arc<dyn Storage>,
    prefix: String,
    options: WriteOptions,
    data: Vec<Data>,
    shards: u32,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The error after which no more tensors can be added: the data file has bytes without an
    /// entry.
    failed: Option<Error>,
}

impl BundleWriter {
    /// Begins a checkpoint with this prefix; creates its folder if necessary.
    pub fn create(
        storage: &Arc<dyn Storage>,
        prefix: &str,
        options: WriteOptions,
    ) -> Result<BundleWriter> {
        Self::create_files(storage, prefix, options, 1)
    }

    /// As [`BundleWriter::create`], with this number of data files, which [`BundleWriter::add_all`]
    /// writes in parallel.
    pub fn create_files(
        storage: &Arc<dyn Storage>,
        prefix: &str,
        options: WriteOptions,
        files: u32,
    ) -> Result<BundleWriter> {
        storage.create_folder_of(prefix)?;
        remove_leftovers(&**storage, prefix);
        let files = files.max(1);
        let shards = unused_shard_count(storage, prefix, files);
        let open = |shard: u32| {
            let file = options.replace(&**storage, &data_path(prefix, shard, shards))?;
            Ok(Data { file, shard, offset: 0 })
        };
        Ok(BundleWriter {
            storage: storage.clone(),
            prefix: prefix.to_owned(),
            options,
            data: (0..files).map(open).collect::<Result<_>>()?,
            shards,
            entries: BTreeMap::new(),
            failed: None,
        })
    }

    /// Adds a tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.add_one(&Item { name, part: None, tensor })
    }

    /// Adds a slice of a tensor of shape `shape`; further slices may follow, here or in checkpoints
    /// that are merged with this one.
    pub fn add_slice(
        &mut self,
        name: &str,
        shape: &Shape,
        slice: &Slice,
        tensor: &Tensor,
    ) -> Result<()> {
        self.add_one(&Item { name, part: Some((shape, slice)), tensor })
    }

    fn add_one(&mut self, item: &Item<'_>) -> Result<()> {
        self.check_writable()?;
        let key = self.key_of(item)?;
        self.note(item)?;
        match self.data[0].put(item.name, item.tensor) {
            Ok(entry) => {
                self.entries.insert(key, entry);
                Ok(())
            }
            Err(e) => {
                self.failed = Some(e.clone());
                Err(e)
            }
        }
    }

    /// Adds tensors, distributed over all data files, which are written in parallel. `check` is
    /// called before each tensor; an error of it stops the write.
    pub fn add_all(
        &mut self,
        items: &[Item<'_>],
        check: &(dyn Fn() -> Result<()> + Sync),
        spread: ParallelFor<'_>,
    ) -> Result<()> {
        self.check_writable()?;
        let keys = match self.keys_of(items) {
            Ok(keys) => keys,
            Err(e) => {
                self.failed = Some(e.clone());
                return Err(e);
            }
        };
        let shares = shares(items, self.data.len());
        let data: Vec<Mutex<Data>> = self.data.drain(..).map(Mutex::new).collect();
        let written: Vec<Mutex<Vec<Result<Entry>>>> =
            shares.iter().map(|_| Mutex::default()).collect();
        spread(data.len(), &|k| {
            let mut data = locked(&data[k]);
            for &i in &shares[k] {
                let entry = check().and_then(|()| data.put(items[i].name, items[i].tensor));
                let has_failed = entry.is_err();
                locked(&written[k]).push(entry);
                if has_failed {
                    break;
                }
            }
        });
        self.data.extend(data.into_iter().map(unlocked));
        for (share, written) in shares.iter().zip(written.into_iter().map(unlocked)) {
            for (&i, entry) in share.iter().zip(written) {
                match entry {
                    Ok(entry) => _ = self.entries.insert(keys[i].clone(), entry),
                    Err(e) => self.failed = Some(e),
                }
            }
        }
        self.check_writable()
    }

    /// The keys of all items; slices are recorded.
    fn keys_of(&mut self, items: &[Item<'_>]) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::with_capacity(items.len());
        let mut seen = BTreeSet::new();
        for item in items {
            let key = self.key_of(item)?;
            ensure!(seen.insert(key.clone()), InvalidArgument, "{}", twice(item.name).message());
            self.note(item)?;
            keys.push(key);
        }
        Ok(keys)
    }

    fn check_writable(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// The index key of an item; fails if it cannot be added.
    fn key_of(&self, item: &Item<'_>) -> Result<Vec<u8>> {
        let Item { name, tensor, .. } = item;
        check_name(name)?;
        if let Some((shape, slice)) = item.part {
            ensure!(
                slice.shape_in(shape)? == *tensor.shape(),
                InvalidArgument,
                "slice '{slice}' of tensor '{name}' of shape {shape} cannot be a tensor of shape {}",
                tensor.shape()
            );
        }
        let key = match item.part {
            Some((_, slice)) if !slice.is_full() => slice_key(name, slice),
            _ => name.as_bytes().to_vec(),
        };
        ensure!(!self.entries.contains_key(&key), InvalidArgument, "{}", twice(name).message());
        Ok(key)
    }

    /// Records a slice in the entry of the whole tensor.
    fn note(&mut self, item: &Item<'_>) -> Result<()> {
        match item.part {
            Some((shape, slice)) if !slice.is_full() => {
                self.list_slice(item.name, shape, slice, item.tensor.dtype())
            }
            _ => Ok(()),
        }
    }

    /// Records a slice in the entry of the whole tensor.
    fn list_slice(&mut self, name: &str, shape: &Shape, slice: &Slice, dtype: DType) -> Result<()> {
        match self.entries.entry(name.as_bytes().to_vec()) {
            Slot::Vacant(slot) => {
                slot.insert(Entry {
                    dtype,
                    shape: shape.clone(),
                    slices: vec![slice.clone()],
                    shard: 0,
                    offset: 0,
                    bytes: 0,
                    sum: 0,
                });
            }
            Slot::Occupied(mut slot) => {
                let whole = slot.get_mut();
                ensure!(
                    !whole.slices.is_empty(),
                    InvalidArgument,
                    "tensor '{name}' is added whole and in slices"
                );
                ensure!(
                    whole.dtype == dtype && whole.shape == *shape,
                    InvalidArgument,
                    "tensor '{name}' has slices of a {} tensor of shape {} and of a {dtype} tensor \
                     of shape {shape}",
                    whole.dtype,
                    whole.shape
                );
                whole.slices.push(slice.clone());
            }
        }
        Ok(())
    }

    /// Renames the data files into place, then the index. An earlier checkpoint with this prefix is
    /// complete until then; its data files are deleted afterwards.
    pub fn finish(self) -> Result<()> {
        self.finish_with(&sequentially)
    }

    /// As [`BundleWriter::finish`], with data files synced in parallel.
    pub fn finish_with(mut self, spread: ParallelFor<'_>) -> Result<()> {
        self.check_writable()?;
        let data: Vec<Mutex<Option<Data>>> =
            self.data.drain(..).map(|data| Mutex::new(Some(data))).collect();
        let results: Vec<Mutex<Result<()>>> = data.iter().map(|_| Mutex::new(Ok(()))).collect();
        spread(data.len(), &|k| {
            if let Some(data) = locked(&data[k]).take() {
                *locked(&results[k]) = data.file.finish();
            }
        });
        results.into_iter().try_for_each(unlocked)?;
        write_index(&*self.storage, &self.prefix, self.shards, &self.entries, self.options)?;
        remove_others(&*self.storage, &self.prefix, self.shards, &self.entries);
        Ok(())
    }
}

impl Data {
    /// Writes a tensor; returns its entry.
    fn put(&mut self, name: &str, tensor: &Tensor) -> Result<Entry> {
        let begin = self.offset;
        let sum = self
            .write(tensor)
            .map_err(|e| e.map_message(|m| format!("saving tensor '{name}': {m}")))?;
        Ok(Entry {
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
            slices: Vec::new(),
            shard: self.shard,
            offset: begin,
            bytes: self.offset - begin,
            sum,
        })
    }

    /// Writes the elements; returns their masked checksum.
    fn write(&mut self, tensor: &Tensor) -> Result<u32> {
        if tensor.dtype().is_object() {
            let encoded = objects::encode(tensor)?;
            for piece in &encoded.pieces {
                self.file.write(piece)?;
                self.offset += piece.len() as u64;
            }
            return Ok(encoded.sum);
        }
        let mut digest = Digest::new();
        for chunk in tensor.as_bytes()?.chunks(CHUNK_BYTES) {
            digest.update(chunk);
            self.file.write(chunk)?;
            self.offset += chunk.len() as u64;
        }
        Ok(digest.masked())
    }
}

/// Assigns items to files: each to the one with the fewest bytes so far.
fn shares(items: &[Item<'_>], files: usize) -> Vec<Vec<usize>> {
    let mut shares = vec![(0, Vec::new()); files];
    for (i, item) in items.iter().enumerate() {
        let least = shares.iter_mut().min_by_key(|(bytes, _)| *bytes);
        let (bytes, share) = least.expect("a checkpoint has a data file at least");
        *bytes += item.tensor.size_bytes();
        share.push(i);
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

fn twice(name: &str) -> Error {
    err!(InvalidArgument, "tensor '{name}' is added to the checkpoint twice")
}

/// Locks a mutex, ignoring poisoning: a thread that panicked leaves an incomplete file at worst.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Fails for names that collide with the header or with keys of slices.
fn check_name(name: &str) -> Result<()> {
    ensure!(!name.is_empty(), InvalidArgument, "a tensor in a checkpoint needs a name");
    ensure!(
        !name.starts_with('\0'),
        InvalidArgument,
        "the name of a tensor in a checkpoint begins with a zero byte"
    );
    Ok(())
}

/// Removes temporary files of this checkpoint whose writers were killed. Errors are ignored: the
/// files only take space.
pub(super) fn remove_leftovers(storage: &dyn Storage, prefix: &str) {
    let (_, name) = parts(prefix);
    let _ = storage.remove_leftovers(folder_of(prefix), &|file| prefix_of(file) == Some(name));
}

/// A number of data files, `wanted` or one more, such that no file name collides with the current
/// checkpoint of this prefix.
pub(super) fn unused_shard_count(storage: &Arc<dyn Storage>, prefix: &str, wanted: u32) -> u32 {
    match BundleReader::open(storage, prefix) {
        Ok(old) if old.shards() == wanted => wanted + 1,
        // An old checkpoint that cannot be read needs no protection.
        _ => wanted,
    }
}

/// Removes data files of the prefix that the current checkpoint does not use: those of the replaced
/// checkpoint, and those of writers that were killed before they wrote an index. Errors are
/// ignored.
pub(super) fn remove_others(
    storage: &dyn Storage,
    prefix: &str,
    shards: u32,
    entries: &BTreeMap<Vec<u8>, Entry>,
) {
    let (folder, base) = parts(prefix);
    let mut used: BTreeSet<String> =
        entries.values().map(|entry| data_path(base, entry.shard, shards)).collect();
    used.insert(index_path(base));
    for name in storage.list(folder_of(prefix)).unwrap_or_default() {
        if prefix_of(&name) == Some(base) && !used.contains(&name) {
            let _ = storage.remove(&format!("{folder}{name}"));
        }
    }
}

/// The folder of a prefix with its trailing `/`, and the rest.
fn parts(prefix: &str) -> (&str, &str) {
    prefix.split_at(prefix.rfind('/').map_or(0, |end| end + 1))
}

/// Writes the index of a checkpoint whose data files are in place.
pub(super) fn write_index(
    storage: &dyn Storage,
    prefix: &str,
    shards: u32,
    entries: &BTreeMap<Vec<u8>, Entry>,
    options: WriteOptions,
) -> Result<()> {
    let mut table = TableWriter::new(options.replace(storage, &index_path(prefix))?);
    let header = BundleHeaderProto {
        num_shards: i32::try_from(shards)
            .map_err(|_| err!(InvalidArgument, "{shards} data files are too many"))?,
        endianness: Endianness::Little.into(),
        version: Some(VersionDef { producer: VERSION, ..Default::default() }),
    };
    table.add(b"", &header.encode_to_vec())?;
    for (key, entry) in entries {
        let value = entry
            .encode()
            .context(|| format!("the entry of '{}'", String::from_utf8_lossy(key)))?;
        table.add(key, &value)?;
    }
    table.finish()
}
