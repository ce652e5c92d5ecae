//! A storage without files: for constant folding, tests, and sessions without file access.

use std::sync::Arc;

use thalweg_tensor::{Error, Result, err};

use super::{Metadata, ReadAt, Storage, WriteFile};

/// A storage that rejects every path.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStorage;

fn refused(path: &str) -> Error {
    err!(
        PermissionDenied,
        "{path}: this session may not access files; a server that other machines can reach gives its \
         clients those under its --file-root"
    )
}

impl Storage for NoStorage {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        Err(refused(path))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Err(refused(path))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Err(refused(path))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Err(refused(path))
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        Err(refused(path))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        Err(refused(folder))
    }

    fn remove(&self, path: &str) -> Result<()> {
        Err(refused(path))
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        Err(refused(path))
    }

    fn rename(&self, from: &str, _: &str) -> Result<()> {
        Err(refused(from))
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        Err(refused(path))
    }
}
