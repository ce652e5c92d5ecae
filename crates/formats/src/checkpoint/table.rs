//! SSTables: blocks, an index of the blocks, and a footer with the offset of the index.
//!
//! A block is followed by its compression type and the masked CRC-32C of both. The index has an
//! entry per block: a key that is not less than the block's last one, and the block's offset and
//! size.

use std::sync::Arc;

use thalweg_tensor::{Bytes, Result, ensure, err};

use super::block::{Block, BlockBuilder, Entries, put_varint};
use super::{damaged, snappy};
use crate::masked_crc32c;
use crate::storage::{ReadAt, WriteFile};
use crate::wire::varint;

/// The magic number at the end of the file.
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// The size of the footer: two block handles of at most twenty bytes each, and the magic number.
const FOOTER_BYTES: usize = 48;
/// The size of a block's trailer: compression type and checksum.
const TRAILER_BYTES: u64 = 5;
/// The size at which a block is full.
const BLOCK_BYTES: usize = 256 << 10;
/// The number of entries between restart points.
const RESTART_INTERVAL: usize = 16;

/// An SSTable that is read.
pub(super) struct Table {
    file: Arc<dyn ReadAt>,
    size: u64,
    /// Block handles in order, each with a key between the block's last key and the next block's
    /// first.
    places: Vec<(Box<[u8]>, Place)>,
}

/// A block handle: offset and size, without the trailer.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u64,
}

impl Place {
    /// Decodes a block handle; returns the rest of the bytes.
    fn decode(bytes: &[u8]) -> Result<(Place, &[u8])> {
        let (offset, a) = varint(bytes)?;
        let (length, b) = varint(&bytes[a..])?;
        Ok((Place { offset, bytes: length }, &bytes[a + b..]))
    }

    fn encode(self, target: &mut Vec<u8>) {
        put_varint(target, self.offset);
        put_varint(target, self.bytes);
    }
}

impl Table {
    /// Reads footer and index. Errors distinguish files that are not tables, or truncated, from
    /// damaged ones.
    pub(super) fn open(file: Arc<dyn ReadAt>) -> Result<Table> {
        let size = file.size()?;
        let mut table = Table { file, size, places: Vec::new() };
        let path = table.path().to_owned();
        let footer_at = size.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| {
            damaged(
                &path,
                size,
                format_args!("the file ends; an SSTable has at least {FOOTER_BYTES} bytes"),
            )
        })?;
        let footer = table.bytes(footer_at, FOOTER_BYTES)?;
        let (places, magic) = footer.split_at(FOOTER_BYTES - 8);
        ensure!(
            magic == MAGIC.to_le_bytes(),
            DataLoss,
            "{path}: byte {}: the file does not end in the magic number of an SSTable: it is \
             truncated or has another format",
            size - 8
        );
        let index = Place::decode(places).and_then(|(_, rest)| Place::decode(rest));
        let (index, _) = index.map_err(|_| damaged(&path, footer_at, "the footer is invalid"))?;
        table.places = table.read_places(index)?;
        Ok(table)
    }

    fn read_places(&self, index: Place) -> Result<Vec<(Box<[u8]>, Place)>> {
        let mut entries = self.read_block(index)?.entries();
        let mut keys = KeyBytes::new(self);
        let mut places: Vec<(Box<[u8]>, Place)> = Vec::new();
        while let Some(value) = self.at(index, entries.advance())? {
            let (place, _) = self.at(index, Place::decode(&value))?;
            // Blocks must be in ascending order, so none is read twice, however many the index lists.
            let begin = places.last().map_or(0, |(_, p)| p.offset + p.bytes + TRAILER_BYTES);
            let is_next = place.offset >= begin;
            let end = place.offset.checked_add(place.bytes);
            let is_inside = end.and_then(|end| end.checked_add(TRAILER_BYTES));
            ensure!(
                is_next && is_inside.is_some_and(|end| end <= self.size),
                DataLoss,
                "{}: byte {}: the index block refers to a block out of order or beyond the end of the file",
                self.path(),
                index.offset
            );
            keys.count(entries.key())?;
            places.push((entries.key().into(), place));
        }
        Ok(places)
    }

    /// The file's path.
    pub(super) fn path(&self) -> &str {
        self.file.path()
    }

    /// All entries, in order.
    pub(super) fn entries(&self) -> TableEntries<'_> {
        TableEntries { table: self, next: 0, block: None, last_key: Vec::new() }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let i = self.places.partition_point(|(last, _)| &last[..] < key);
        let Some(&(_, place)) = self.places.get(i) else { return Ok(None) };
        let mut entries = self.read_block(place)?.entries();
        while let Some(value) = self.at(place, entries.advance())? {
            if entries.key() >= key {
                return Ok((entries.key() == key).then_some(value));
            }
        }
        Ok(None)
    }

    fn at<T>(&self, place: Place, result: Result<T>) -> Result<T> {
        result.map_err(|e| damaged(self.path(), place.offset, e.message()))
    }

    fn read_block(&self, place: Place) -> Result<Block> {
        let with_trailer = place.bytes.checked_add(TRAILER_BYTES);
        let end = with_trailer.and_then(|n| n.checked_add(place.offset));
        let length = with_trailer.and_then(|n| usize::try_from(n).ok());
        let (Some(length), true) = (length, end.is_some_and(|end| end <= self.size)) else {
            let what =
                format!("a block of {} bytes extends beyond the end of the file", place.bytes);
            return Err(damaged(self.path(), place.offset, what));
        };
        let mut block = self.bytes(place.offset, length)?;
        let sum = block.split_off(length - 4);
        ensure!(
            masked_crc32c(&block).to_le_bytes() == sum[..],
            DataLoss,
            "{}: byte {}: the checksum of a block of {} bytes is wrong",
            self.path(),
            place.offset,
            place.bytes
        );
        let kind = block.split_off(length - 5);
        let content = match kind[0] {
            0 => Ok(block),
            1 => snappy::decompress(&block).map(Bytes::from),
            kind => Err(err!(Unimplemented, "a block has the unknown compression type {kind}")),
        };
        self.at(place, content.and_then(Block::new))
    }

    fn bytes(&self, offset: u64, length: usize) -> Result<Bytes> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| {
            err!(ResourceExhausted, "{}: out of memory for {length} bytes", self.path())
        })?;
        bytes.resize(length, 0);
        let read = self.file.read_at(offset, &mut bytes)?;
        ensure!(
            read == length,
            DataLoss,
            "{}: byte {}: the file became shorter while it was read",
            self.path(),
            offset + read as u64
        );
        Ok(bytes.into())
    }
}

/// Bounds the memory of keys taken from a table to a multiple of the file's size: with prefix
/// compression a few bytes can be a long key.
pub(super) struct KeyBytes<'a> {
    table: &'a Table,
    left: u64,
}

impl<'a> KeyBytes<'a> {
    /// No keys yet.
    pub(super) fn new(table: &'a Table) -> KeyBytes<'a> {
        const KEY_BYTES_MAX: u64 = 2 << 30;
        let left = table.size.saturating_mul(32).saturating_add(1 << 20).min(KEY_BYTES_MAX);
        KeyBytes { table, left }
    }

    /// Counts a key.
    pub(super) fn count(&mut self, key: &[u8]) -> Result<()> {
        let left = self.left.checked_sub(key.len() as u64);
        self.left = left.ok_or_else(|| {
            err!(
                ResourceExhausted,
                "{}: the tensor names in it exceed the limit on their total length",
                self.table.path()
            )
        })?;
        Ok(())
    }
}

/// An iterator over the entries of a table.
pub(super) struct TableEntries<'a> {
    table: &'a Table,
    next: usize,
    block: Option<(Place, Entries)>,
    last_key: Vec<u8>,
}

impl TableEntries<'_> {
    /// The key of the current entry.
    pub(super) fn key(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |(_, entries)| entries.key())
    }

    /// Advances to the next entry and returns its value.
    pub(super) fn advance(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some((place, entries)) = &mut self.block {
                if let Some(value) = self.table.at(*place, entries.advance())? {
                    return Ok(Some(value));
                }
                self.last_key = entries.key().to_vec();
                self.block = None;
            }
            let Some(&(_, place)) = self.table.places.get(self.next) else { return Ok(None) };
            let mut entries = self.table.read_block(place)?.entries();
            let first = self.table.at(place, entries.advance())?;
            ensure!(
                self.next == 0 || entries.key() > &self.last_key[..],
                DataLoss,
                "{}: byte {}: the keys of two blocks are not in order",
                self.table.path(),
                place.offset
            );
            self.next += 1;
            self.block = Some((place, entries));
            if first.is_some() {
                return Ok(first);
            }
        }
    }

    /// The offset of the current entry's block.
    pub(super) fn offset(&self) -> u64 {
        self.block.as_ref().map_or(0, |(place, _)| place.offset)
    }
}

/// An SSTable that is written.
pub(super) struct TableWriter {
    file: Box<dyn WriteFile>,
    offset: u64,
    block: BlockBuilder,
    index: BlockBuilder,
    last_key: Vec<u8>,
    /// A block that is written but not yet in the index: its index key can be shortened once the
    /// next key is known.
    written: Option<Place>,
}

impl TableWriter {
    /// Writes to a new file.
    pub(super) fn new(file: Box<dyn WriteFile>) -> TableWriter {
        TableWriter {
            file,
            offset: 0,
            block: BlockBuilder::new(RESTART_INTERVAL),
            index: BlockBuilder::new(1),
            last_key: Vec::new(),
            written: None,
        }
    }

    /// Adds an entry whose key sorts after all earlier ones.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(place) = self.written.take() {
            self.list(&separator(&self.last_key, key), place);
        }
        self.block.add(key, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        if self.block.bytes() >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    /// Writes index and footer.
    pub(super) fn finish(mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        if let Some(place) = self.written.take() {
            self.list(&successor(&self.last_key), place);
        }
        let (filters, index) = (BlockBuilder::new(RESTART_INTERVAL).finish(), self.index.finish());
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        self.write_block(&filters)?.encode(&mut footer);
        self.write_block(&index)?.encode(&mut footer);
        footer.resize(FOOTER_BYTES - 8, 0);
        footer.extend_from_slice(&MAGIC.to_le_bytes());
        self.file.write(&footer)?;
        self.file.finish()
    }

    fn list(&mut self, key: &[u8], place: Place) {
        let mut value = Vec::new();
        place.encode(&mut value);
        self.index.add(key, &value);
    }

    fn end_block(&mut self) -> Result<()> {
        let content = self.block.finish();
        self.written = Some(self.write_block(&content)?);
        Ok(())
    }

    fn write_block(&mut self, content: &[u8]) -> Result<Place> {
        let place = Place { offset: self.offset, bytes: content.len() as u64 };
        let mut digest = super::digest::Digest::new();
        digest.update(content);
        digest.update(&[0]);
        let mut trailer = [0; TRAILER_BYTES as usize];
        trailer[1..].copy_from_slice(&digest.masked().to_le_bytes());
        self.file.write(content)?;
        self.file.write(&trailer)?;
        self.offset += place.bytes + TRAILER_BYTES;
        Ok(place)
    }
}

/// A short key `k` with `first <= k < second`.
fn separator(first: &[u8], second: &[u8]) -> Vec<u8> {
    let shared = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    if let (Some(&a), Some(&b)) = (first.get(shared), second.get(shared))
        && a < 0xff
        && a + 1 < b
    {
        return [&first[..shared], &[a + 1]].concat();
    }
    first.to_vec()
}

/// A short key that is not less than `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    match key.iter().position(|&byte| byte != 0xff) {
        Some(i) => [&key[..i], &[key[i] + 1]].concat(),
        None => key.to_vec(),
    }
}
