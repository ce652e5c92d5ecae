//! An in-memory file system, for tests and for data that is never written to disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_tensor::{Bytes, Error, Result, err};

use super::{InMemory, Metadata, ReadAt, Storage, WriteFile, join};

type Files = BTreeMap<String, Bytes>;

/// Files by path; folders exist implicitly. Clones share the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage(Arc<Mutex<Files>>);

impl MemoryStorage {
    /// The one file `path`.
    pub fn with(path: &str, content: &[u8]) -> MemoryStorage {
        let storage = MemoryStorage::default();
        storage.put(path, content);
        storage
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        // A panic while the lock was held cannot leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file there.
    pub fn put(&self, path: &str, content: &[u8]) {
        self.files().insert(path.to_owned(), Bytes::copy_from_slice(content));
    }

    /// The content of a file; empty if there is none.
    pub fn content(&self, path: &str) -> Vec<u8> {
        self.files().get(path).map(|content| content.to_vec()).unwrap_or_default()
    }

    /// All paths, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.files().keys().cloned().collect()
    }

    /// A copy of the files.
    pub fn snapshot(&self) -> MemoryStorage {
        MemoryStorage(Arc::new(Mutex::new(self.files().clone())))
    }

    fn find(&self, path: &str) -> Result<Bytes> {
        self.files().get(path).cloned().ok_or_else(|| missing(path))
    }
}

fn missing(path: &str) -> Error {
    err!(NotFound, "{path}: no such file")
}

struct Writer {
    path: String,
    content: Vec<u8>,
    storage: MemoryStorage,
    /// Whether it is invisible until it is finished.
    is_hidden: bool,
}

impl Writer {
    fn show(&self) {
        self.storage.put(&self.path, &self.content);
    }
}

impl WriteFile for Writer {
    fn path(&self) -> &str {
        &self.path
    }

    fn write(&mut self, content: &[u8]) -> Result<()> {
        self.content.extend_from_slice(content);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.is_hidden {
            self.show();
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.show();
        Ok(())
    }
}

impl MemoryStorage {
    fn writer(&self, path: &str, content: Vec<u8>, is_hidden: bool) -> Box<dyn WriteFile> {
        Box::new(Writer { path: path.to_owned(), content, storage: self.clone(), is_hidden })
    }
}

impl Storage for MemoryStorage {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(InMemory { path: path.to_owned(), content: self.find(path)? }))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.put(path, &[]);
        Ok(self.writer(path, Vec::new(), false))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let there = self.find(path).unwrap_or_default();
        Ok(self.writer(path, there.to_vec(), false))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Ok(self.writer(path, Vec::new(), true))
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        let bytes = self.find(path)?.len() as u64;
        Ok(Metadata { bytes, is_folder: false, modified: Default::default() })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let begin = join(folder, "");
        let inside = |path: &String| {
            let rest = path.strip_prefix(&begin)?;
            Some(rest.split('/').next().unwrap_or(rest).to_owned())
        };
        let names: BTreeSet<String> = self.files().keys().filter_map(inside).collect();
        Ok(names.into_iter().collect())
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.files().remove(path).map(drop).ok_or_else(|| missing(path))
    }

    fn remove_folder(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.files();
        let content = files.remove(from).ok_or_else(|| missing(from))?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn create_folder(&self, _: &str) -> Result<()> {
        Ok(())
    }
}
