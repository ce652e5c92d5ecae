//! Reading of V2 checkpoints.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;
use thalweg_proto::{BundleHeaderProto, bundle_header_proto::Endianness};
use thalweg_tensor::{Budget, Code, Context, DType, Error, Result, Tensor, bail, ensure, err};

use super::ordered::slice_key;
use super::pieces::{self, Ranges};
use super::shard::Shard;
use super::slice::{for_each_run, overlap};
use super::table::{KeyBytesLimit, Table};
use super::{Entry, ParallelFor, Slice, damaged, data_path, index_path, objects, sequentially};
use crate::Storage;

/// The latest supported version of the format.
pub(super) const VERSION: i32 = 1;

/// The resources of a read.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    /// The memory budget of the tensor.
    pub budget: Option<&'a Arc<Budget>>,
    /// A parallel for, used for large tensors.
    pub spread: ParallelFor<'a>,
}

impl Default for ReadContext<'_> {
    fn default() -> Self {
        ReadContext { budget: None, spread: &sequentially }
    }
}

/// A checkpoint with its index in memory; data files are opened on demand.
pub struct BundleReader {
    storage: Arc<dyn Storage>,
    prefix: String,
    shards: u32,
    is_big_endian: bool,
    is_mapped: bool,
    /// Tensors, sorted by name.
    tensors: Vec<(String, Entry)>,
    /// Slices, by key.
    slices: BTreeMap<Vec<u8>, Entry>,
    open: Mutex<BTreeMap<u32, Arc<Shard>>>,
}

/// A stored slice of a tensor: its extent and its entry.
type Piece<'a> = (Ranges, &'a Entry);

/// The result of [`BundleReader::verify`].
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// The number of intact tensors.
    pub intact: usize,
    /// The errors of the others.
    pub problems: Vec<Error>,
    /// The number of bytes that were read.
    pub bytes: u64,
}

impl BundleReader {
    /// Reads the index of the checkpoint with this prefix.
    pub fn open(storage: &Arc<dyn Storage>, prefix: &str) -> Result<BundleReader> {
        let path = index_path(prefix);
        let file = storage.open(&path).map_err(|e| hinted(e, prefix))?;
        let table = Table::open(file)?;
        let mut entries = table.entries();
        let first = entries.advance()?;
        let header = match first {
            Some(value) if entries.key().is_empty() => BundleHeaderProto::decode(&value[..])
                .map_err(|e| damaged(&path, 0, format_args!("the header is invalid: {e}")))?,
            _ => bail!(
                DataLoss,
                "{path}: byte 0: an SSTable without the header entry of a checkpoint index"
            ),
        };
        let mut reader = BundleReader::with_header(storage, prefix, &header)?;
        let mut keys = KeyBytesLimit::new(&table);
        while let Some(value) = entries.advance()? {
            let key = entries.key();
            keys.count(key)?;
            let entry = reader.entry_of(&value).map_err(|e| {
                let shown = String::from_utf8_lossy(key).into_owned();
                let what = format!("the entry of '{}' is invalid: {}", shown, e.message());
                damaged(&path, entries.offset(), what)
            })?;
            if key[0] == 0 {
                reader.slices.insert(key.to_vec(), entry);
                continue;
            }
            let name = std::str::from_utf8(key).map_err(|_| {
                damaged(&path, entries.offset(), "the name of a tensor is not UTF-8")
            })?;
            reader.tensors.push((name.to_owned(), entry));
        }
        Ok(reader)
    }

    fn with_header(
        storage: &Arc<dyn Storage>,
        prefix: &str,
        header: &BundleHeaderProto,
    ) -> Result<BundleReader> {
        let path = index_path(prefix);
        let version = header.version.clone().unwrap_or_default();
        ensure!(
            version.min_consumer <= VERSION && !version.bad_consumers.contains(&VERSION),
            InvalidArgument,
            "{path}: the checkpoint needs a reader of version {} or newer; this reader has \
             version {VERSION}",
            version.min_consumer
        );
        let shards = u32::try_from(header.num_shards).ok();
        let shards = shards.ok_or_else(|| {
            damaged(&path, 0, format_args!("it names {} data files", header.num_shards))
        })?;
        let endianness = Endianness::try_from(header.endianness)
            .map_err(|_| damaged(&path, 0, "the byte order is unknown"))?;
        Ok(BundleReader {
            storage: storage.clone(),
            prefix: prefix.to_owned(),
            shards,
            is_big_endian: endianness == Endianness::Big,
            is_mapped: false,
            tensors: Vec::new(),
            slices: BTreeMap::new(),
            open: Mutex::default(),
        })
    }

    /// Memory-maps local data files: tensors whose elements are aligned there are views of the
    /// file, verified and not copied. The caller guarantees that data files are replaced and not
    /// modified in place while tensors exist, as [`crate::storage::ReadAt::map`] requires. That
    /// holds for a served model, but not for a folder that other programs modify.
    pub fn mapped(mut self) -> BundleReader {
        self.is_mapped = !self.is_big_endian;
        self.open = Mutex::default();
        self
    }

    fn entry_of(&self, value: &[u8]) -> Result<Entry> {
        let entry = Entry::decode(value)?;
        ensure!(
            entry.shard < self.shards || !entry.slices.is_empty(),
            DataLoss,
            "its shard id is {}; there are {} data files",
            entry.shard,
            self.shards
        );
        ensure!(
            !(self.is_big_endian && entry.dtype.is_object()),
            Unimplemented,
            "{} tensors in the byte order of a machine of other endianness",
            entry.dtype
        );
        Ok(entry)
    }

    /// The prefix of the checkpoint.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The number of data files.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| name.as_str())
    }

    /// All tensors, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.tensors.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The entry of a tensor.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        let found = self.tensors.binary_search_by(|(other, _)| other.as_str().cmp(name));
        found.ok().map(|i| &self.tensors[i].1)
    }

    /// The entry of a slice.
    pub fn slice_entry(&self, name: &str, slice: &Slice) -> Option<&Entry> {
        self.slices.get(&slice_key(name, slice))
    }

    /// The stored size of a tensor with all its slices, in bytes.
    pub fn stored_bytes(&self, name: &str) -> u64 {
        let Some(entry) = self.entry(name) else { return 0 };
        let slices = entry.slices.iter().filter_map(|slice| self.slice_entry(name, slice));
        entry.bytes + slices.map(|slice| slice.bytes).sum::<u64>()
    }

    /// The entry of a tensor; fails if there is none.
    pub fn required(&self, name: &str) -> Result<&Entry> {
        self.entry(name).ok_or_else(|| {
            err!(NotFound, "Key {name} not found in checkpoint {}", index_path(&self.prefix))
        })
    }

    /// Reads a whole tensor.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        self.read_with(name, None, ReadContext::default())
    }

    /// Reads a slice of a tensor.
    pub fn read_slice(&self, name: &str, slice: &Slice) -> Result<Tensor> {
        self.read_with(name, Some(slice), ReadContext::default())
    }

    /// Reads a tensor or a slice, with a budget and threads.
    pub fn read_with(
        &self,
        name: &str,
        slice: Option<&Slice>,
        context: ReadContext<'_>,
    ) -> Result<Tensor> {
        let entry = self.required(name)?;
        let whole = Slice::full(entry.shape.rank()).ranges(&entry.shape)?;
        let wanted = match slice {
            None => whole.clone(),
            Some(slice) => slice.ranges(&entry.shape)?,
        };
        if entry.slices.is_empty() && wanted == whole {
            return self.read_entry(name, entry, context);
        }
        let parts = self.parts(name, entry, &wanted)?;
        self.assemble(name, entry.dtype, &wanted, &parts, context)
    }

    /// The stored slices that intersect the requested part.
    fn parts<'a>(
        &'a self,
        name: &str,
        entry: &'a Entry,
        wanted: &Ranges,
    ) -> Result<Vec<Piece<'a>>> {
        if entry.slices.is_empty() {
            let all = Slice::full(entry.shape.rank()).ranges(&entry.shape)?;
            return Ok(vec![(all, entry)]);
        }
        let mut ranges: Vec<Ranges> =
            entry.slices.iter().map(|slice| slice.ranges(&entry.shape)).collect::<Result<_>>()?;
        let found = pieces::check_disjoint(&ranges)
            .and_then(|()| pieces::covering(&ranges, wanted))
            .context(|| format!("{}: tensor '{name}'", index_path(&self.prefix)))?;
        let piece = |i: usize| {
            let stored = self.stored_slice(name, entry, &entry.slices[i])?;
            Ok((std::mem::take(&mut ranges[i]), stored))
        };
        found.into_iter().map(piece).collect()
    }

    /// The entry of a slice that its tensor's entry lists.
    fn stored_slice(&self, name: &str, entry: &Entry, slice: &Slice) -> Result<&Entry> {
        let path = index_path(&self.prefix);
        let Some(stored) = self.slice_entry(name, slice) else {
            bail!(DataLoss, "{path}: slice {slice} of tensor '{name}' is listed and missing");
        };
        let is_right = stored.dtype == entry.dtype
            && stored.slices.is_empty()
            && stored.shape == slice.shape_in(&entry.shape)?;
        ensure!(
            is_right,
            DataLoss,
            "{path}: slice {slice} of tensor '{name}' differs from its entry in dtype or shape"
        );
        Ok(stored)
    }

    fn assemble(
        &self,
        name: &str,
        dtype: DType,
        wanted: &Ranges,
        parts: &[Piece<'_>],
        context: ReadContext<'_>,
    ) -> Result<Tensor> {
        if dtype.is_object() {
            let ranges: Vec<&Ranges> = parts.iter().map(|(ranges, _)| ranges).collect();
            let read = |i: usize| self.read_entry(name, parts[i].1, context);
            return pieces::assemble(dtype, wanted, &ranges, context.budget, &read);
        }
        // A piece beyond the end of the file must fail before memory is allocated.
        for (_, entry) in parts {
            self.shard(entry.shard)?.check(name, entry)?;
        }
        Tensor::filled_with(dtype, pieces::shape_of(wanted)?, context.budget, |target| {
            parts.iter().try_for_each(|part| self.copy_part(name, part, wanted, target, context))
        })
    }

    /// Copies the elements of one stored slice to their position; directly from the file if they
    /// are contiguous.
    fn copy_part(
        &self,
        name: &str,
        (ranges, entry): &Piece<'_>,
        wanted: &Ranges,
        target: &mut [u8],
        context: ReadContext<'_>,
    ) -> Result<()> {
        let Some(common) = overlap(ranges, wanted) else { return Ok(()) };
        let size = entry.dtype.size();
        let (mut runs, mut place) = (0, 0..0);
        for_each_run(ranges, wanted, &common, |_, to, count| {
            runs += 1;
            place = to * size..(to + count) * size;
        });
        if runs == 1 && place.len() as u64 == entry.bytes {
            let target = &mut target[place];
            self.shard(entry.shard)?.fill(name, entry, target, context.spread)?;
            self.fix_order(entry.dtype, target);
            return Ok(());
        }
        let part = self.read_entry(name, entry, context)?;
        pieces::copy(ranges, wanted, part.as_bytes()?, target, size);
        Ok(())
    }

    /// Reads a tensor or slice that is stored as a whole.
    fn read_entry(&self, name: &str, entry: &Entry, context: ReadContext<'_>) -> Result<Tensor> {
        let shard = self.shard(entry.shard)?;
        shard.check(name, entry)?;
        if entry.dtype.is_object() {
            return decode_objects(&shard, name, entry, context.budget);
        }
        if let Some(tensor) = shard.view(name, entry, context.spread)? {
            return Ok(tensor);
        }
        Tensor::filled_with(entry.dtype, entry.shape.clone(), context.budget, |target| {
            shard.fill(name, entry, target, context.spread)?;
            self.fix_order(entry.dtype, target);
            Ok(())
        })
    }

    /// Swaps bytes if the checkpoint was written on a big-endian machine.
    fn fix_order(&self, dtype: DType, bytes: &mut [u8]) {
        if self.is_big_endian {
            let part = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
            bytes.chunks_exact_mut(part).for_each(<[u8]>::reverse);
        }
    }

    fn shard(&self, shard: u32) -> Result<Arc<Shard>> {
        // A panic while the lock was held cannot leave the map inconsistent.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = open.get(&shard) {
            return Ok(shard.clone());
        }
        let path = data_path(&self.prefix, shard, self.shards);
        let file = self.storage.open(&path).map_err(|e| {
            e.map_message(|m| format!("{m} (the index {} names it)", index_path(&self.prefix)))
        })?;
        let opened = Arc::new(Shard::new(file, self.is_mapped)?);
        open.insert(shard, opened.clone());
        Ok(opened)
    }

    /// Reads everything and verifies every checksum.
    pub fn verify(&self) -> VerifyReport {
        let mut report = VerifyReport::default();
        for (name, entry) in &self.tensors {
            match self.verify_tensor(name, entry) {
                Ok(bytes) => {
                    report.intact += 1;
                    report.bytes += bytes;
                }
                Err(e) => report.problems.push(e),
            }
        }
        report
    }

    /// Verifies a tensor with all its slices; returns the number of bytes read.
    fn verify_tensor(&self, name: &str, entry: &Entry) -> Result<u64> {
        if entry.slices.is_empty() {
            return self.verify_entry(name, entry);
        }
        let wanted = Slice::full(entry.shape.rank()).ranges(&entry.shape)?;
        let mut bytes = 0;
        for (_, slice) in self.parts(name, entry, &wanted)? {
            bytes += self.verify_entry(name, slice)?;
        }
        Ok(bytes)
    }

    fn verify_entry(&self, name: &str, entry: &Entry) -> Result<u64> {
        let shard = self.shard(entry.shard)?;
        shard.check(name, entry)?;
        if entry.dtype.is_object() {
            decode_objects(&shard, name, entry, None)?;
        } else {
            shard.verify(name, entry)?;
        }
        Ok(entry.bytes)
    }

    /// Fails if a data file is missing or too short; reads no data.
    pub fn check_sizes(&self) -> Result<()> {
        let whole = self.tensors.iter().filter(|(_, entry)| entry.slices.is_empty());
        for (name, entry) in whole {
            self.shard(entry.shard)?.check(name, entry)?;
        }
        for (name, entry) in &self.tensors {
            for slice in &entry.slices {
                let stored = self.stored_slice(name, entry, slice)?;
                self.shard(stored.shard)?.check(name, stored)?;
            }
        }
        Ok(())
    }

    /// All entries of the index with those of slices, by key.
    pub(super) fn raw_entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let slices = self.slices.iter().map(|(key, entry)| (&key[..], entry));
        slices.chain(self.tensors.iter().map(|(name, entry)| (name.as_bytes(), entry)))
    }

    /// Whether elements are big-endian.
    pub(super) fn is_big_endian(&self) -> bool {
        self.is_big_endian
    }
}

fn decode_objects(
    shard: &Shard,
    name: &str,
    entry: &Entry,
    budget: Option<&Arc<Budget>>,
) -> Result<Tensor> {
    let content = shard.bytes(entry)?;
    let decoded = objects::decode(entry.dtype, &entry.shape, &content, budget);
    let (tensor, sum) = decoded.map_err(|e| match e.code() {
        Code::ResourceExhausted => e,
        _ => damaged(
            shard.path(),
            entry.offset,
            format_args!("tensor '{name}' is damaged: {}", e.message()),
        ),
    })?;
    shard.check_sum(name, entry, sum)?;
    Ok(tensor)
}

/// Adds a hint if a file of a checkpoint was given instead of its prefix.
fn hinted(error: Error, prefix: &str) -> Error {
    match super::prefix_of(prefix) {
        Some(meant) if error.code() == Code::NotFound => error.map_message(|m| {
            format!("{m}: {prefix} is a file of a checkpoint; the checkpoint is {meant}")
        }),
        _ => error,
    }
}
