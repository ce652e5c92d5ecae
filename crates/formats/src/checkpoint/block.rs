//! Blocks of an SSTable: entries sorted by key, with prefix-compressed keys.
//!
//! An entry is three varints (shared key bytes, further key bytes, value bytes), the rest of the
//! key, and the value. At restart points a key is written in full; their offsets are at the end of
//! the block.

use thalweg_tensor::{Bytes, Error, Result, ensure, err};

use crate::wire::varint;

/// The maximum length of a key; names of tensors are far shorter.
const KEY_BYTES_MAX: usize = 1 << 20;

/// A block in memory.
pub(super) struct Block {
    entries: Bytes,
}

impl Block {
    /// A block with this uncompressed content.
    pub(super) fn new(mut content: Bytes) -> Result<Block> {
        let bad = || err!(DataLoss, "a block has no restart array");
        let (_, count) = content.split_last_chunk::<4>().ok_or_else(bad)?;
        let restarts = usize::try_from(u32::from_le_bytes(*count)).map_err(|_| bad())?;
        let tail = restarts.checked_add(1).and_then(|n| n.checked_mul(4)).ok_or_else(bad)?;
        let end = content.len().checked_sub(tail).ok_or_else(bad)?;
        content.truncate(end);
        Ok(Block { entries: content })
    }

    /// An iterator over its entries.
    pub(super) fn entries(&self) -> Entries {
        Entries { rest: self.entries.clone(), key: Vec::new(), is_first: true }
    }
}

/// An iterator over the entries of a block.
pub(super) struct Entries {
    rest: Bytes,
    key: Vec<u8>,
    is_first: bool,
}

impl Entries {
    /// The key of the current entry.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Advances to the next entry and returns its value.
    pub(super) fn advance(&mut self) -> Result<Option<Bytes>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let bad = || -> Error { err!(DataLoss, "an entry extends beyond the end of its block") };
        let mut numbers = [0usize; 3];
        for number in &mut numbers {
            let (value, length) = varint(&self.rest).map_err(|_| bad())?;
            *number = usize::try_from(value).map_err(|_| bad())?;
            self.rest = self.rest.split_off(length);
        }
        let [shared, more, value_bytes] = numbers;
        let is_whole = more.checked_add(value_bytes).is_some_and(|n| n <= self.rest.len());
        ensure!(is_whole && shared <= self.key.len(), DataLoss, "{}", bad().message());
        ensure!(shared + more <= KEY_BYTES_MAX, DataLoss, "a key has {} bytes", shared + more);
        let suffix = self.rest.split_to(more);
        // The keys agree up to `shared`, so the remaining bytes decide the order.
        ensure!(
            self.is_first || suffix[..] > self.key[shared..],
            DataLoss,
            "the keys of a block are not in order"
        );
        self.is_first = false;
        self.key.truncate(shared);
        self.key.extend_from_slice(&suffix);
        Ok(Some(self.rest.split_to(value_bytes)))
    }
}

/// A block under construction.
pub(super) struct BlockBuilder {
    content: Vec<u8>,
    restarts: Vec<u32>,
    /// The number of entries between restart points.
    interval: usize,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn new(interval: usize) -> BlockBuilder {
        BlockBuilder {
            content: Vec::new(),
            restarts: vec![0],
            interval,
            since_restart: 0,
            last_key: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// The current size of the block in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.content.len() + 4 * (self.restarts.len() + 1)
    }

    /// Adds an entry whose key sorts after all earlier ones.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.since_restart < self.interval {
            self.last_key.iter().zip(key).take_while(|(a, b)| a == b).count()
        } else {
            self.restarts.push(u32::try_from(self.content.len()).unwrap_or(u32::MAX));
            self.since_restart = 0;
            0
        };
        for number in [shared, key.len() - shared, value.len()] {
            put_varint(&mut self.content, number as u64);
        }
        self.content.extend_from_slice(&key[shared..]);
        self.content.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.since_restart += 1;
    }

    /// The block's content; a new block begins.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut content = std::mem::take(&mut self.content);
        for restart in &self.restarts {
            content.extend_from_slice(&restart.to_le_bytes());
        }
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        content.extend_from_slice(&count.to_le_bytes());
        *self = BlockBuilder::new(self.interval);
        content
    }
}

/// Appends a varint.
pub(super) fn put_varint(target: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        target.push(number as u8 | 0x80);
        number >>= 7;
    }
    target.push(number as u8);
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn read(content: Vec<u8>) -> Result<Vec<(Vec<u8>, Bytes)>> {
        let mut entries = Block::new(content.into())?.entries();
        let mut all = Vec::new();
        while let Some(value) = entries.advance()? {
            all.push((entries.key().to_vec(), value));
        }
        Ok(all)
    }

    #[test]
    fn what_is_put_in_comes_out() {
        let mut block = BlockBuilder::new(3);
        let keys: Vec<String> = (0..50).map(|i| format!("layer{i:03}/kernel")).collect();
        for key in &keys {
            block.add(key.as_bytes(), key.to_uppercase().as_bytes());
        }
        assert!(!block.is_empty());
        let (bytes, content) = (block.bytes(), block.finish());
        assert_eq!(content.len(), bytes);
        let all = read(content).unwrap();
        assert_eq!(all.len(), 50);
        for ((key, value), expected) in all.iter().zip(&keys) {
            assert_eq!(key, expected.as_bytes());
            assert_eq!(value, expected.to_uppercase().as_bytes());
        }
        assert!(block.is_empty());
    }

    #[test]
    fn broken_blocks_are_refused() {
        let restarts = [0, 0, 0, 0, 1, 0, 0, 0];
        let with = |entries: &[u8]| [entries, &restarts].concat();
        assert_eq!(read(vec![]).err().map(|e| e.code()), Some(Code::DataLoss));
        assert_eq!(read(vec![0, 0, 0]).err().map(|e| e.code()), Some(Code::DataLoss));
        assert_eq!(read(vec![255, 255, 255, 255]).err().map(|e| e.code()), Some(Code::DataLoss));
        assert_eq!(
            read(with(b"\x01\x01\x00a")).err().map(|e| e.code()),
            Some(Code::DataLoss),
            "shares with nothing"
        );
        assert_eq!(read(with(b"\x00\x09\x00a")).err().map(|e| e.code()), Some(Code::DataLoss));
        assert_eq!(read(with(b"\x00\x01\x09a")).err().map(|e| e.code()), Some(Code::DataLoss));
        assert_eq!(
            read(with(b"\x00\x01\x00b\x00\x01\x00a")).err().map(|e| e.code()),
            Some(Code::DataLoss),
            "order"
        );
        assert_eq!(
            read(with(b"\x00\x01\x00a\x00\x01\x00a")).err().map(|e| e.code()),
            Some(Code::DataLoss),
            "twice"
        );
        assert_eq!(
            read(with(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00a"))
                .err()
                .map(|e| e.code()),
            Some(Code::DataLoss)
        );
        assert_eq!(read(with(b"\x00\x01\x00a\x01\x01\x00b")).unwrap().len(), 2);
    }
}
