//! Tensors written to a checkpoint of the second format.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost::Message;
use thalweg_proto::{BundleHeaderProto, VersionDef, bundle_header_proto::Endianness};
use thalweg_tensor::{Context, DType, Error, Result, Shape, Tensor, ensure, err};

use super::digest::Digest;
use super::ordered::slice_key;
use super::reader::VERSION;
use super::table::TableWriter;
use super::{BundleReader, Entry, Slice, data_path, index_path, objects, prefix_of};
use crate::Storage;
use crate::storage::{WriteFile, folder_of};

/// Bytes that are summed and written while they are near.
const CHUNK_BYTES: usize = 1 << 20;

/// How a checkpoint is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Whether files are on the disk before they take their names. Without, a loss of power (not of
    /// the process) may leave a checkpoint that cannot be read.
    pub sync: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { sync: true }
    }
}

impl WriteOptions {
    /// A file that takes its name when it is finished.
    pub fn replace(self, storage: &dyn Storage, path: &str) -> Result<Box<dyn WriteFile>> {
        if self.sync { storage.replace(path) } else { storage.replace_unsynced(path) }
    }
}

/// A checkpoint that is being written. Nothing has its name before [`BundleWriter::finish`], and what
/// is dropped unfinished leaves no trace; a checkpoint that has the name stays whole until then.
pub struct BundleWriter {
    storage: Arc<dyn Storage>,
    prefix: String,
    options: WriteOptions,
    data: Box<dyn WriteFile>,
    offset: u64,
    shards: u32,
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Why nothing more can be added: the data file has bytes that no entry accounts for.
    failed: Option<Error>,
}

impl BundleWriter {
    /// Begins a checkpoint with this prefix, making its folder if need be.
    pub fn create(
        storage: &Arc<dyn Storage>,
        prefix: &str,
        options: WriteOptions,
    ) -> Result<BundleWriter> {
        storage.create_folder_of(prefix)?;
        remove_leftovers(&**storage, prefix);
        let shards = free_layout(storage, prefix, 1);
        let data = options.replace(&**storage, &data_path(prefix, 0, shards))?;
        Ok(BundleWriter {
            storage: storage.clone(),
            prefix: prefix.to_owned(),
            options,
            data,
            offset: 0,
            shards,
            entries: BTreeMap::new(),
            failed: None,
        })
    }

    /// Adds a tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        check_name(name)?;
        self.add_entry(name.as_bytes().to_vec(), name, tensor)
    }

    /// Adds a part of a tensor whose whole has `shape`; further parts may follow, here or in
    /// checkpoints that this one is merged with.
    pub fn add_slice(
        &mut self,
        name: &str,
        shape: &Shape,
        slice: &Slice,
        tensor: &Tensor,
    ) -> Result<()> {
        check_name(name)?;
        ensure!(
            slice.shape_in(shape)? == *tensor.shape(),
            InvalidArgument,
            "slice '{slice}' of tensor '{name}' of shape {shape} cannot be a tensor of shape {}",
            tensor.shape()
        );
        if slice.is_full() {
            return self.add(name, tensor);
        }
        let key = slice_key(name, slice);
        ensure!(
            !self.entries.contains_key(&key),
            InvalidArgument,
            "slice '{slice}' of tensor '{name}' is added twice"
        );
        self.list_slice(name, shape, slice, tensor.dtype())?;
        self.add_entry(key, name, tensor)
    }

    /// Notes in the entry of the whole tensor that there is a slice.
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

    fn add_entry(&mut self, key: Vec<u8>, name: &str, tensor: &Tensor) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        ensure!(
            !self.entries.contains_key(&key),
            InvalidArgument,
            "tensor '{name}' is added to the checkpoint twice"
        );
        let begin = self.offset;
        let sum = match self.put(tensor) {
            Ok(sum) => sum,
            Err(e) => {
                let e = e.map_message(|m| format!("saving tensor '{name}': {m}"));
                self.failed = Some(e.clone());
                return Err(e);
            }
        };
        let entry = Entry {
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
            slices: Vec::new(),
            shard: 0,
            offset: begin,
            bytes: self.offset - begin,
            sum,
        };
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Writes the elements; their masked checksum.
    fn put(&mut self, tensor: &Tensor) -> Result<u32> {
        if tensor.dtype().is_object() {
            let encoded = objects::encode(tensor)?;
            for piece in &encoded.pieces {
                self.data.write(piece)?;
                self.offset += piece.len() as u64;
            }
            return Ok(encoded.sum);
        }
        let mut digest = Digest::new();
        for chunk in tensor.as_bytes()?.chunks(CHUNK_BYTES) {
            digest.update(chunk);
            self.data.write(chunk)?;
            self.offset += chunk.len() as u64;
        }
        Ok(digest.masked())
    }

    /// Puts the data in their place, then the index: the checkpoint is there. An older one of this
    /// prefix is whole until then, and its data go away after.
    pub fn finish(self) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.data.finish()?;
        write_index(&*self.storage, &self.prefix, self.shards, &self.entries, self.options)?;
        remove_others(&*self.storage, &self.prefix, self.shards, &self.entries);
        Ok(())
    }
}

/// A name that the index can have beside its header and the keys of slices.
fn check_name(name: &str) -> Result<()> {
    ensure!(!name.is_empty(), InvalidArgument, "a tensor in a checkpoint needs a name");
    ensure!(
        !name.starts_with('\0'),
        InvalidArgument,
        "the name of a tensor in a checkpoint begins with a zero byte"
    );
    Ok(())
}

/// Removes unfinished files of this checkpoint whose writers were killed. They take room and do no
/// harm, so it is no matter if that fails.
pub(super) fn remove_leftovers(storage: &dyn Storage, prefix: &str) {
    let (_, name) = parts(prefix);
    let _ = storage.remove_leftovers(folder_of(prefix), &|file| prefix_of(file) == Some(name));
}

/// A number of data files, `wanted` or one more, with which no name is that of a file of the
/// checkpoint that has the prefix now.
pub(super) fn free_layout(storage: &Arc<dyn Storage>, prefix: &str, wanted: u32) -> u32 {
    match BundleReader::open(storage, prefix) {
        Ok(old) if old.shards() == wanted => wanted + 1,
        // One that cannot be read is nothing to keep.
        _ => wanted,
    }
}

/// Removes the data files of the prefix that the checkpoint which is there now does not have: those
/// of the one that it replaced, and those of writers that were killed before they had an index. They
/// too do no harm.
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

/// The folder of a prefix, with the `/` that ends it, and the rest.
fn parts(prefix: &str) -> (&str, &str) {
    prefix.split_at(prefix.rfind('/').map_or(0, |end| end + 1))
}

/// Writes the index of a checkpoint whose data are in place.
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
