//! Files in memory: fast, and a second implementation of the trait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use thalweg_formats::storage::{InMemory, Metadata, ReadAt, Storage, WriteFile};
use thalweg_tensor::{Error, Result, err};

type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Files by path, without folders.
#[derive(Clone, Default)]
pub(crate) struct Memory(Files);

#[allow(dead_code, reason = "each test takes what it needs")]
impl Memory {
    pub(crate) fn with(path: &str, content: &[u8]) -> Memory {
        let memory = Memory::default();
        memory.0.lock().unwrap().insert(path.to_owned(), content.to_vec());
        memory
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        self.0.lock().unwrap()[path].clone()
    }

    /// All paths, sorted.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    /// A copy of everything.
    pub(crate) fn snapshot(&self) -> Memory {
        Memory(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    pub(crate) fn put(&self, path: &str, content: &[u8]) {
        self.0.lock().unwrap().insert(path.to_owned(), content.to_vec());
    }

    fn find(&self, path: &str) -> Result<Vec<u8>> {
        let files = self.0.lock().unwrap();
        files.get(path).cloned().ok_or_else(|| missing(path))
    }
}

fn missing(path: &str) -> Error {
    err!(NotFound, "{path}: there is no such file")
}

struct Writer(String, Vec<u8>, Files);

impl WriteFile for Writer {
    fn path(&self) -> &str {
        &self.0
    }

    fn write(&mut self, content: &[u8]) -> Result<()> {
        self.1.extend_from_slice(content);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.2.lock().unwrap().insert(self.0.clone(), self.1.clone());
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

impl Storage for Memory {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(InMemory { path: path.to_owned(), content: self.find(path)?.into() }))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(Writer(path.to_owned(), Vec::new(), self.0.clone())))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let there = self.find(path).unwrap_or_default();
        Ok(Box::new(Writer(path.to_owned(), there, self.0.clone())))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.create(path)
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        let bytes = self.find(path)?.len() as u64;
        Ok(Metadata { bytes, is_folder: false, modified: Default::default() })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let files = self.0.lock().unwrap();
        let inside = |path: &String| path.strip_prefix(&format!("{folder}/")).map(str::to_owned);
        Ok(files.keys().filter_map(inside).collect())
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.0.lock().unwrap().remove(path).map(drop).ok_or_else(|| missing(path))
    }

    fn remove_folder(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let content = self.find(from)?;
        self.remove(from)?;
        self.0.lock().unwrap().insert(to.to_owned(), content);
        Ok(())
    }

    fn create_folder(&self, _: &str) -> Result<()> {
        Ok(())
    }
}
