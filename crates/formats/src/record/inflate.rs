//! A strict zlib decoder.

use std::io::{self, BufRead, Read};

use flate2::{Decompress, FlushDecompress, Status};

/// Decompresses a zlib stream. Unlike the library's own reader it reports a truncated stream as
/// damage.
pub(super) struct Inflate<R> {
    source: R,
    state: Decompress,
    is_at_end: bool,
}

impl<R: BufRead> Inflate<R> {
    pub(super) fn new(source: R) -> Inflate<R> {
        Inflate { source, state: Decompress::new(true), is_at_end: false }
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        while !self.is_at_end && !target.is_empty() {
            let input = self.source.fill_buf()?;
            let is_all = input.is_empty();
            let (before_in, before_out) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(input, target, FlushDecompress::None);
            let consumed = (self.state.total_in() - before_in) as usize;
            let produced = (self.state.total_out() - before_out) as usize;
            self.source.consume(consumed);
            let status = status.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            self.is_at_end = status == Status::StreamEnd;
            if produced > 0 {
                return Ok(produced);
            }
            if is_all && !self.is_at_end {
                // An empty file is a valid file without records.
                if self.state.total_in() == 0 {
                    self.is_at_end = true;
                    break;
                }
                let what = "the file ends within its zlib stream";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
        }
        Ok(0)
    }
}
