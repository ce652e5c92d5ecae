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
    handles: Vec<(Box<[u8]>, BlockHandle)>,
}

/// A block handle: offset and size, without the trailer.
#[derive(Clone, Copy, Debug)]
struct BlockHandle {
    offset: u64,
    bytes: u64,
}

impl BlockHandle {
    /// Decodes a block handle; returns the rest of the bytes.
    fn decode(bytes: &[u8]) -> Result<(BlockHandle, &[u8])> {
        let (offset, a) = varint(bytes)?;
        let (length, b) = varint(&bytes[a..])?;
        Ok((BlockHandle { offset, bytes: length }, &bytes[a + b..]))
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
        let mut table = Table { file, size, handles: Vec::new() };
        let path = table.path().to_owned();
        let footer_at = size.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| {
            damaged(
                &path,
                size,
                format_args!("the file ends; an SSTable has at least {FOOTER_BYTES} bytes"),
            )
        })?;
        let footer = table.bytes(footer_at, FOOTER_BYTES)?;
        let (handles, magic) = footer.split_at(FOOTER_BYTES - 8);
        ensure!(
            magic == MAGIC.to_le_bytes(),
            DataLoss,
            "{path}: byte {}: the file does not end in the magic number of an SSTable: it is \
             truncated or has another format",
            size - 8
        );
        let index = BlockHandle::decode(handles).and_then(|(_, rest)| BlockHandle::decode(rest));
        let (index, _) = index.map_err(|_| damaged(&path, footer_at, "the footer is invalid"))?;
        table.handles = table.read_places(index)?;
        Ok(table)
    }

    fn read_places(&self, index: BlockHandle) -> Result<Vec<(Box<[u8]>, BlockHandle)>> {
        let mut entries = self.read_block(index)?.entries();
        let mut keys = KeyBytesLimit::new(self);
        let mut handles: Vec<(Box<[u8]>, BlockHandle)> = Vec::new();
        while let Some(value) = self.at(index, entries.advance())? {
            let (handle, _) = self.at(index, BlockHandle::decode(&value))?;
            // Blocks must be in ascending order, so none is read twice, however many the index lists.
            let begin = handles.last().map_or(0, |(_, p)| p.offset + p.bytes + TRAILER_BYTES);
            let is_next = handle.offset >= begin;
            let end = handle.offset.checked_add(handle.bytes);
            let is_inside = end.and_then(|end| end.checked_add(TRAILER_BYTES));
            ensure!(
                is_next && is_inside.is_some_and(|end| end <= self.size),
                DataLoss,
                "{}: byte {}: the index block refers to a block out of order or beyond the end of the file",
                self.path(),
                index.offset
            );
            keys.count(entries.key())?;
            handles.push((entries.key().into(), handle));
        }
        Ok(handles)
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
        let i = self.handles.partition_point(|(last, _)| &last[..] < key);
        let Some(&(_, handle)) = self.handles.get(i) else { return Ok(None) };
        let mut entries = self.read_block(handle)?.entries();
        while let Some(value) = self.at(handle, entries.advance())? {
            if entries.key() >= key {
                return Ok((entries.key() == key).then_some(value));
            }
        }
        Ok(None)
    }

    fn at<T>(&self, handle: BlockHandle, result: Result<T>) -> Result<T> {
        result.map_err(|e| damaged(self.path(), handle.offset, e.message()))
    }

    fn read_block(&self, handle: BlockHandle) -> Result<Block> {
        let with_trailer = handle.bytes.checked_add(TRAILER_BYTES);
        let end = with_trailer.and_then(|n| n.checked_add(handle.offset));
        let length = with_trailer.and_then(|n| usize::try_from(n).ok());
        let (Some(length), true) = (length, end.is_some_and(|end| end <= self.size)) else {
            let what =
                format!("a block of {} bytes extends beyond the end of the file", handle.bytes);
            return Err(damaged(self.path(), handle.offset, what));
        };
        let mut block = self.bytes(handle.offset, length)?;
        let sum = block.split_off(length - 4);
        ensure!(
            masked_crc32c(&block).to_le_bytes() == sum[..],
            DataLoss,
            "{}: byte {}: the checksum of a block of {} bytes is wrong",
            self.path(),
            handle.offset,
            handle.bytes
        );
        let kind = block.split_off(length - 5);
        let content = match kind[0] {
            0 => Ok(block),
            1 => snappy::decompress(&block).map(Bytes::from),
            kind => Err(err!(Unimplemented, "a block has the unknown compression type {kind}")),
        };
        self.at(handle, content.and_then(Block::new))
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
pub(super) struct KeyBytesLimit<'a> {
    table: &'a Table,
    left: u64,
}

impl<'a> KeyBytesLimit<'a> {
    /// No keys yet.
    pub(super) fn new(table: &'a Table) -> KeyBytesLimit<'a> {
        const KEY_BYTES_MAX: u64 = 2 << 30;
        let left = table.size.saturating_mul(32).saturating_add(1 << 20).min(KEY_BYTES_MAX);
        KeyBytesLimit { table, left }
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
    block: Option<(BlockHandle, Entries)>,
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
            if let Some((handle, entries)) = &mut self.block {
                if let Some(value) = self.table.at(*handle, entries.advance())? {
                    return Ok(Some(value));
                }
                self.last_key = entries.key().to_vec();
                self.block = None;
            }
            let Some(&(_, handle)) = self.table.handles.get(self.next) else { return Ok(None) };
            let mut entries = self.table.read_block(handle)?.entries();
            let first = self.table.at(handle, entries.advance())?;
            ensure!(
                self.next == 0 || entries.key() > &self.last_key[..],
                DataLoss,
                "{}: byte {}: the keys of two blocks are not in order",
                self.table.path(),
                handle.offset
            );
            self.next += 1;
            self.block = Some((handle, entries));
            if first.is_some() {
                return Ok(first);
            }
        }
    }

    /// The offset of the current entry's block.
    pub(super) fn offset(&self) -> u64 {
        self.block.as_ref().map_or(0, |(handle, _)| handle.offset)
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
    written: Option<BlockHandle>,
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
        if let Some(handle) = self.written.take() {
            self.list(&separator(&self.last_key, key), handle);
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
        if let Some(handle) = self.written.take() {
            self.list(&successor(&self.last_key), handle);
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

    fn list(&mut self, key: &[u8], handle: BlockHandle) {
        let mut value = Vec::new();
        handle.encode(&mut value);
        self.index.add(key, &value);
    }

    fn end_block(&mut self) -> Result<()> {
        let content = self.block.finish();
        self.written = Some(self.write_block(&content)?);
        Ok(())
    }

    fn write_block(&mut self, content: &[u8]) -> Result<BlockHandle> {
        let handle = BlockHandle { offset: self.offset, bytes: content.len() as u64 };
        let mut digest = super::digest::Digest::new();
        digest.update(content);
        digest.update(&[0]);
        let mut trailer = [0; TRAILER_BYTES as usize];
        trailer[1..].copy_from_slice(&digest.masked().to_le_bytes());
        self.file.write(content)?;
        self.file.write(&trailer)?;
        self.offset += handle.bytes + TRAILER_BYTES;
        Ok(handle)
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
