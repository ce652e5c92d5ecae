//! The storage abstraction: local folders here, object stores behind URLs in a crate of their own.
//!
//! Paths are text separated by `/`, as in TensorFlow; a URL's scheme selects the store. Every error
//! names the path and the operation, with TensorFlow's code.

mod error;
mod glob;
mod local;
mod map;
mod memory;
mod none;
mod reader;
mod rooted;
mod temporary;

pub use local::LocalStorage;
pub use memory::MemoryStorage;
pub use none::NoStorage;
pub use reader::{InMemory, Sequential};
pub use rooted::Rooted;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thalweg_tensor::{Bytes, Code, Result, ensure, err};

pub(crate) use error::failed;

/// The metadata of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The size of a file in bytes; 0 if it is unknown, for instance for a pipe.
    pub bytes: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The modification time, since 1970.
    pub modified: Duration,
}

/// A file that is open for random-access reading.
pub trait ReadAt: Send + Sync {
    /// The path it was opened by.
    fn path(&self) -> &str;
    /// The current size in bytes.
    fn size(&self) -> Result<u64>;
    /// Reads into `target` from `offset`; returns less than its length only at the end of the file.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize>;

    /// Memory-maps the file, if that is supported. The caller guarantees that the file is not
    /// modified in place while the memory exists: a process that reads a truncated page is killed.
    /// Files that are replaced atomically are not modified.
    fn map(&self) -> Result<Option<Bytes>> {
        Ok(None)
    }
}

/// A file that is open for appending.
pub trait WriteFile: Send {
    /// The path it was opened by.
    fn path(&self) -> &str;
    /// Appends.
    fn write(&mut self, content: &[u8]) -> Result<()>;
    /// Flushes, so that other readers see what was written.
    fn flush(&mut self) -> Result<()>;
    /// As [`WriteFile::flush`], and syncs to disk.
    fn sync(&mut self) -> Result<()>;
    /// Closes the file; one of [`Storage::replace`] gets its name only now.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A file system.
pub trait Storage: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>>;
    /// Creates an empty file for writing; an existing one is truncated at once.
    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>>;
    /// Opens a file for appending; creates it if necessary.
    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>>;
    /// Replaces a file atomically: writes a temporary file, syncs it and renames it when it is
    /// finished, so that readers see the old content or the new. An unfinished file is removed on
    /// drop.
    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>>;
    /// As [`Storage::replace`] without syncing: a power failure, not a crash of the process, may
    /// leave an empty file.
    fn replace_unsynced(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.replace(path)
    }
    /// Removes temporary files in a folder that belong to processes that have ended, for target
    /// names that `is_target` accepts.
    fn remove_leftovers(&self, folder: &str, is_target: &dyn Fn(&str) -> bool) -> Result<()> {
        let _ = (folder, is_target);
        Ok(())
    }
    /// Size, kind and modification time.
    fn metadata(&self, path: &str) -> Result<Metadata>;
    /// Names in a folder, without the folder's path, in no particular order.
    fn list(&self, folder: &str) -> Result<Vec<String>>;
    /// Deletes a file.
    fn remove(&self, path: &str) -> Result<()>;
    /// Deletes an empty folder.
    fn remove_folder(&self, path: &str) -> Result<()>;
    /// Renames a file; an existing target is replaced.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Creates a folder and its parents; an existing one is not an error.
    fn create_folder(&self, path: &str) -> Result<()>;

    /// Whether a file or folder exists.
    fn exists(&self, path: &str) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.code(), Code::NotFound | Code::FailedPrecondition) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A file's whole content, at most `bytes_max` bytes.
    fn read(&self, path: &str, bytes_max: usize) -> Result<Bytes> {
        let file = self.open(path)?;
        let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        let too_large = || err!(ResourceExhausted, "{path}: the file exceeds {bytes_max} bytes");
        ensure!(size <= bytes_max, ResourceExhausted, "{}", too_large().message());
        let mut content = Vec::new();
        content.try_reserve_exact(size).map_err(|_| too_large())?;
        content.resize(size, 0);
        let read = file.read_at(0, &mut content)?;
        content.truncate(read);
        if read < size || size == 0 {
            // A file of size 0 may have content, in /proc for instance.
            read_rest(&*file, &mut content, bytes_max)?;
        }
        Ok(content.into())
    }

    /// Replaces a file's content as [`Storage::replace`] does; creates its folder if necessary.
    fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        self.create_folder_of(path)?;
        let mut file = self.replace(path)?;
        file.write(content)?;
        file.finish()
    }

    /// Creates the folder of a file.
    fn create_folder_of(&self, path: &str) -> Result<()> {
        match folder_of(path) {
            "" => Ok(()),
            folder => self.create_folder(folder),
        }
    }

    /// Paths that match a glob pattern, sorted: `*` and `?` match any characters but `/`, `[a-z]`
    /// and `[^a-z]` match one, `\` escapes the next character.
    fn matching(&self, pattern: &str) -> Result<Vec<String>> {
        glob::matching(self, pattern)
    }
}

/// Reads the rest of a file of which `content` is the beginning.
fn read_rest(file: &dyn ReadAt, content: &mut Vec<u8>, bytes_max: usize) -> Result<()> {
    const STEP: usize = 64 << 10;
    loop {
        let begin = content.len();
        ensure!(
            begin <= bytes_max,
            ResourceExhausted,
            "{}: the file exceeds {bytes_max} bytes",
            file.path()
        );
        content.resize(begin + STEP, 0);
        let read = file.read_at(begin as u64, &mut content[begin..])?;
        content.truncate(begin + read);
        if read == 0 {
            return Ok(());
        }
    }
}

/// The folder of a path, without trailing `/`; empty if there is none.
pub fn folder_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(end) => &path[..end],
        None => "",
    }
}

/// Joins a folder and a name.
pub fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        _ if folder.ends_with('/') => format!("{folder}{name}"),
        _ => format!("{folder}/{name}"),
    }
}

/// Wraps an error in an `io::Error`.
pub(crate) fn into_io(error: thalweg_tensor::Error) -> io::Error {
    io::Error::other(error)
}

/// The error that [`into_io`] wrapped, or the error of a decoder.
pub(crate) fn from_io(path: &str, error: io::Error) -> thalweg_tensor::Error {
    let shown = error.to_string();
    match error.into_inner().and_then(|inner| inner.downcast::<thalweg_tensor::Error>().ok()) {
        Some(error) => *error,
        None => err!(DataLoss, "{path}: {shown}"),
    }
}
