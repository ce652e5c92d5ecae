//! A moving view of bytes that come in order.

use std::io::{self, Read};

/// The bytes that are next, as many as were asked for.
pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// Where in the source `begin` is.
    offset: u64,
    is_at_end: bool,
    /// Bytes asked of the source at once.
    chunk_bytes: usize,
}

impl<R: Read> Window<R> {
    pub(super) fn new(source: R, offset: u64, chunk_bytes: usize) -> Window<R> {
        let buffer = Vec::new();
        Window { source, buffer, begin: 0, end: 0, offset, is_at_end: false, chunk_bytes }
    }

    /// Where in the source the view begins.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The view.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Makes the view at least `count` bytes long, if there are as many; returns whether it is.
    /// Memory grows as bytes come, not as they are asked for.
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

    /// Room for more after the view: by moving it to the front, then by doubling.
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

    /// Moves the view's beginning on, by no more than it is long.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.begin);
        self.begin += count;
        self.offset += count as u64;
    }
}
