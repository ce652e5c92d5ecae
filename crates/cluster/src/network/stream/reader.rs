//! Buffered reads of a stream: headers through a small buffer, tensors straight into their memory.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of the buffer; small, because bytes of a large tensor that it holds are copied twice.
const BUFFER_BYTES: usize = 4096;

/// The reading side of a connection.
pub(super) struct Reader<R> {
    source: R,
    buffer: Box<[u8; BUFFER_BYTES]>,
    /// `start..end` is the unconsumed range of the buffer.
    start: usize,
    end: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(source: R) -> Reader<R> {
        Reader { source, buffer: Box::new([0; BUFFER_BYTES]), start: 0, end: 0 }
    }

    /// The next `N` bytes; none if the stream ends before the first.
    pub(super) async fn array<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        const { assert!(N <= BUFFER_BYTES) }
        while self.end - self.start < N {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            match self.source.read(&mut self.buffer[self.end..]).await? {
                0 if self.end == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.end += count,
            }
        }
        let taken = self.buffer[self.start..self.start + N].try_into();
        self.start += N;
        Ok(Some(taken.expect("the slice has N bytes")))
    }

    /// The next `N` bytes; an error if the stream ends before them.
    pub(super) async fn array_whole<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.array().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Fills `target`.
    pub(super) async fn fill(&mut self, target: &mut [u8]) -> io::Result<()> {
        let buffered = target.len().min(self.end - self.start);
        target[..buffered].copy_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        if buffered < target.len() {
            self.source.read_exact(&mut target[buffered..]).await?;
        }
        Ok(())
    }

    /// The next `count` bytes; the caller bounds `count`.
    pub(super) async fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes).await?;
        Ok(bytes)
    }

    /// Skips `count` bytes.
    pub(super) async fn skip(&mut self, mut count: usize) -> io::Result<()> {
        let mut scratch = [0; BUFFER_BYTES];
        while count > 0 {
            let len = count.min(BUFFER_BYTES);
            self.fill(&mut scratch[..len]).await?;
            count -= len;
        }
        Ok(())
    }
}
