//! Sequential readers of open files, and files in memory.

use std::io::{self, Read};
use std::sync::Arc;

use thalweg_tensor::{Bytes, Result};

use super::{ReadAt, into_io};

/// A sequential reader of an open file.
pub struct Sequential {
    file: Arc<dyn ReadAt>,
    offset: u64,
}

impl Sequential {
    /// Reads from `offset` on.
    pub fn new(file: Arc<dyn ReadAt>, offset: u64) -> Sequential {
        Sequential { file, offset }
    }
}

impl Read for Sequential {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(self.offset, target).map_err(into_io)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// A file in memory.
pub struct InMemory {
    /// The path in error messages.
    pub path: String,
    /// The content.
    pub content: Bytes,
}

impl ReadAt for InMemory {
    fn path(&self) -> &str {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        Ok(self.content.len() as u64)
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(self.content.len());
        let rest = &self.content[begin..];
        let read = rest.len().min(target.len());
        target[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn map(&self) -> Result<Option<Bytes>> {
        Ok(Some(self.content.clone()))
    }
}
