//! Writing of TFRecord files.

use std::io::{self, Write};

use flate2::write::{GzEncoder, ZlibEncoder};
use thalweg_tensor::Result;

use super::{Compression, FOOTER_BYTES, HEADER_BYTES};
use crate::masked_crc32c;
use crate::storage::{WriteFile, from_io, into_io};

/// Writes records to a file.
pub struct RecordWriter {
    path: String,
    sink: Sink,
    /// The number of uncompressed bytes written so far.
    offset: u64,
}

enum Sink {
    Plain(Box<dyn WriteFile>),
    Zlib(ZlibEncoder<Adapter>),
    Gzip(GzEncoder<Adapter>),
}

/// Adapts a file to `io::Write`.
struct Adapter(Box<dyn WriteFile>);

impl Write for Adapter {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.0.write(content).map_err(into_io)?;
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(into_io)
    }
}

impl RecordWriter {
    /// Writes to a file that is empty, or uncompressed and intact.
    pub fn new(file: Box<dyn WriteFile>, compression: Compression) -> RecordWriter {
        let path = file.path().to_owned();
        let level = flate2::Compression::default();
        let sink = match compression {
            Compression::None => Sink::Plain(file),
            Compression::Zlib => Sink::Zlib(ZlibEncoder::new(Adapter(file), level)),
            Compression::Gzip => Sink::Gzip(GzEncoder::new(Adapter(file), level)),
        };
        RecordWriter { path, sink, offset: 0 }
    }

    /// The number of uncompressed bytes written so far, which is the offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The file's path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds a record.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&length);
        header[8..].copy_from_slice(&masked_crc32c(&length).to_le_bytes());
        self.put(&header)?;
        self.put(data)?;
        self.put(&masked_crc32c(data).to_le_bytes())?;
        self.offset += (HEADER_BYTES + data.len() + FOOTER_BYTES) as u64;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.sink {
            Sink::Plain(file) => file.write(bytes),
            Sink::Zlib(encoder) => encoder.write_all(bytes).map_err(|e| from_io(&self.path, e)),
            Sink::Gzip(encoder) => encoder.write_all(bytes).map_err(|e| from_io(&self.path, e)),
        }
    }

    /// Flushes, so that readers see what was written; a compressed file is readable only when it is
    /// finished.
    pub fn flush(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Plain(file) => file.flush(),
            Sink::Zlib(encoder) => encoder.flush().map_err(|e| from_io(&self.path, e)),
            Sink::Gzip(encoder) => encoder.flush().map_err(|e| from_io(&self.path, e)),
        }
    }

    /// As [`RecordWriter::flush`], and syncs to disk.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        match &mut self.sink {
            Sink::Plain(file) => file.sync(),
            Sink::Zlib(encoder) => encoder.get_mut().0.sync(),
            Sink::Gzip(encoder) => encoder.get_mut().0.sync(),
        }
    }

    /// Ends the file.
    pub fn finish(self) -> Result<()> {
        let file = match self.sink {
            Sink::Plain(file) => Ok(file),
            Sink::Zlib(encoder) => encoder.finish().map(|adapter| adapter.0),
            Sink::Gzip(encoder) => encoder.finish().map(|adapter| adapter.0),
        };
        file.map_err(|e| from_io(&self.path, e))?.finish()
    }
}
