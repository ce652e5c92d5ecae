//! A sliding window over a byte stream.

use std::io::{self, Read};

/// The next bytes of a stream.
pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// The offset of `begin` in the source.
    offset: u64,
    is_at_end: bool,
    /// The read size.
    chunk_bytes: usize,
}

impl<R: Read> Window<R> {
    pub(super) fn new(source: R, offset: u64, chunk_bytes: usize) -> Window<R> {
        let buffer = Vec::new();
        Window { source, buffer, begin: 0, end: 0, offset, is_at_end: false, chunk_bytes }
    }

    /// The offset of the window in the source.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes in the window.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Extends the window to at least `count` bytes, if the source has them; returns whether it
    /// does. Memory grows with the bytes that arrive, not with `count`.
    #[inline]
    pub(super) fn fill(&mut self, count: usize) -> io::Result<bool> {
        if self.end - self.begin >= count {
            return Ok(true);
        }
        self.fill_from_source(count)
    }

    #[cold]
    fn fill_from_source(&mut self, count: usize) -> io::Result<bool> {
        while self.end - self.begin < count && !self.is_at_end {
            self.make_room();
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => self.end += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.end - self.begin >= count)
    }

    /// Makes space after the window: by moving it to the front, then by doubling.
    fn make_room(&mut self) {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        if self.end == self.buffer.len() {
            let room = self.buffer.len().clamp(self.chunk_bytes, 64 << 20);
            self.buffer.resize(self.end + room, 0);
        }
    }

    /// Advances the start of the window by at most its length.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.begin);
        self.begin += count;
        self.offset += count as u64;
    }
}
