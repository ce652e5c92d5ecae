//! A read-only storage for served models.

use std::sync::Arc;

use thalweg_formats::storage::{Metadata, ReadAt, Storage, WriteFile};
use thalweg_tensor::{Result, bail};

/// A storage wrapper that rejects all changes.
pub struct ReadOnly(pub Arc<dyn Storage>);

fn refused<T>(path: &str) -> Result<T> {
    bail!(PermissionDenied, "{path}: served models must not change files")
}

impl Storage for ReadOnly {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        self.0.open(path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        refused(path)
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        refused(path)
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        refused(path)
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        self.0.metadata(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.0.list(folder)
    }

    fn remove(&self, path: &str) -> Result<()> {
        refused(path)
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        refused(path)
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        refused(from)
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        refused(path)
    }
}
