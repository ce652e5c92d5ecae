//! Where files lie: local folders here, stores behind URLs in a crate of their own.
//!
//! Paths are text with `/` between their parts, as TensorFlow has them; a URL's scheme says which
//! store is meant. Every error names the path and what was being done, with TensorFlow's code.

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

/// What is known of a file or folder without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Size of a file's content; 0 for what has none that is known, a pipe for instance.
    pub bytes: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// When it was last changed, since 1970.
    pub modified: Duration,
}

/// A file that is open for reading anywhere in it.
pub trait ReadAt: Send + Sync {
    /// The path it was opened by.
    fn path(&self) -> &str;
    /// Size of the content when it was last looked at.
    fn size(&self) -> Result<u64>;
    /// Fills `target` from `offset` on; less than its length comes only at the file's end.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize>;

    /// The content as memory that is read from the file as it is needed, where that can be had. The
    /// caller vouches that the file is not changed in place while the memory is there: a process
    /// that reads what was cut off dies. Files that are replaced as a whole are not changed.
    fn map(&self) -> Result<Option<Bytes>> {
        Ok(None)
    }
}

/// A file that is open for writing at its end.
pub trait WriteFile: Send {
    /// The path it was opened by.
    fn path(&self) -> &str;
    /// Adds to the end.
    fn write(&mut self, content: &[u8]) -> Result<()>;
    /// Lets other readers see what was written so far.
    fn flush(&mut self) -> Result<()>;
    /// As [`WriteFile::flush`], and makes it survive a loss of power.
    fn sync(&mut self) -> Result<()>;
    /// Ends the file; what was opened by [`Storage::replace`] takes its name only now.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Files by path.
pub trait Storage: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>>;
    /// Opens a new, empty file for writing; one that is there loses its content at once.
    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>>;
    /// Opens a file for writing at its end, making it if need be.
    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>>;
    /// Writes a file under another name, syncs it and renames it when it is finished: whoever looks
    /// sees the old content or the new. What is dropped unfinished leaves no trace.
    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>>;
    /// As [`Storage::replace`], but the content may not be on the disk when it takes its name: a
    /// loss of power, not of the process, may leave an empty file.
    fn replace_unsynced(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.replace(path)
    }
    /// Deletes what is left in a folder of replacements that processes which are gone did not finish,
    /// of files whose names `is_meant` says yes to.
    fn remove_leftovers(&self, folder: &str, is_meant: &dyn Fn(&str) -> bool) -> Result<()> {
        let _ = (folder, is_meant);
        Ok(())
    }
    /// Size, kind and age.
    fn metadata(&self, path: &str) -> Result<Metadata>;
    /// Names in a folder, without the folder's own, in no order.
    fn list(&self, folder: &str) -> Result<Vec<String>>;
    /// Deletes a file.
    fn remove(&self, path: &str) -> Result<()>;
    /// Deletes an empty folder.
    fn remove_folder(&self, path: &str) -> Result<()>;
    /// Renames a file; one that has the new name is replaced.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Makes a folder and those above it; one that is there is no error.
    fn create_folder(&self, path: &str) -> Result<()>;

    /// Whether there is a file or folder.
    fn exists(&self, path: &str) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.code(), Code::NotFound | Code::FailedPrecondition) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A file's whole content, if it is no more than `bytes_max`.
    fn read(&self, path: &str, bytes_max: usize) -> Result<Bytes> {
        let file = self.open(path)?;
        let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        let too_large =
            || err!(ResourceExhausted, "{path}: reading it takes more than {bytes_max} bytes");
        ensure!(size <= bytes_max, ResourceExhausted, "{}", too_large().message());
        let mut content = Vec::new();
        content.try_reserve_exact(size).map_err(|_| too_large())?;
        content.resize(size, 0);
        let read = file.read_at(0, &mut content)?;
        content.truncate(read);
        if read < size || size == 0 {
            // What tells no size, /proc for instance, may still have content.
            read_rest(&*file, &mut content, bytes_max)?;
        }
        Ok(content.into())
    }

    /// Replaces a file's content as [`Storage::replace`] does, making its folder if need be.
    fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        self.create_folder_of(path)?;
        let mut file = self.replace(path)?;
        file.write(content)?;
        file.finish()
    }

    /// Makes the folder that a file lies in.
    fn create_folder_of(&self, path: &str) -> Result<()> {
        match folder_of(path) {
            "" => Ok(()),
            folder => self.create_folder(folder),
        }
    }

    /// Paths that match a pattern, sorted: `*` and `?` stand for any characters but `/`, `[a-z]`
    /// and `[^a-z]` for one, `\` for the next character itself.
    fn matching(&self, pattern: &str) -> Result<Vec<String>> {
        glob::matching(self, pattern)
    }
}

/// The content of a file of which `content` is the beginning.
fn read_rest(file: &dyn ReadAt, content: &mut Vec<u8>, bytes_max: usize) -> Result<()> {
    const STEP: usize = 64 << 10;
    loop {
        let begin = content.len();
        ensure!(
            begin <= bytes_max,
            ResourceExhausted,
            "{}: reading it takes more than {bytes_max} bytes",
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

/// The folder part of a path, without the `/` that ends it; empty where there is none.
pub fn folder_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(end) => &path[..end],
        None => "",
    }
}

/// A name in a folder as one path.
pub fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        _ if folder.ends_with('/') => format!("{folder}{name}"),
        _ => format!("{folder}/{name}"),
    }
}

/// A failure that a reader of the standard library's kind can carry.
pub(crate) fn into_io(error: thalweg_tensor::Error) -> io::Error {
    io::Error::other(error)
}

/// The failure that [`into_io`] put in, or the one that a decoder found in the data itself.
pub(crate) fn from_io(path: &str, error: io::Error) -> thalweg_tensor::Error {
    let shown = error.to_string();
    match error.into_inner().and_then(|inner| inner.downcast::<thalweg_tensor::Error>().ok()) {
        Some(error) => *error,
        None => err!(DataLoss, "{path}: {shown}"),
    }
}
