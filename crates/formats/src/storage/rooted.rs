//! A storage restricted to one folder.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thalweg_tensor::{Error, Result, ensure, err};

use super::local::local;
use super::{LocalStorage, Metadata, ReadAt, Storage, WriteFile, failed};

/// Local files under one root folder. Relative paths begin there, and absolute paths and targets of
/// symbolic links must be within it.
#[derive(Clone, Debug)]
pub struct Rooted {
    /// The canonical root.
    root: PathBuf,
    files: LocalStorage,
}

impl Rooted {
    /// The files under `root`, which must exist.
    pub fn new(root: &str, files: LocalStorage) -> Result<Rooted> {
        let found = Path::new(root).canonicalize();
        let root = found.map_err(|e| failed("make it the root of files", root, &e))?;
        Ok(Rooted { root, files })
    }

    /// The canonical path; fails if it is outside the root.
    fn inside(&self, path: &str) -> Result<String> {
        let outside = || -> Error {
            err!(
                PermissionDenied,
                "{path}: only files under {} may be accessed",
                self.root.display()
            )
        };
        let asked = local(path).map_err(|_| outside())?;
        ensure!(
            !asked.components().any(|part| part == Component::ParentDir),
            PermissionDenied,
            "{path}: a path under --file-root may not contain '..'"
        );
        let full = if asked.is_absolute() { asked.to_owned() } else { self.root.join(asked) };
        // The nearest existing ancestor is resolved, because the file itself may not exist yet.
        let there = full.ancestors().find(|p| p.symlink_metadata().is_ok()).ok_or_else(outside)?;
        let real = there.canonicalize().map_err(|e| failed("look at it", path, &e))?;
        ensure!(
            real.starts_with(&self.root),
            PermissionDenied,
            "{path}: only files under {} may be accessed",
            self.root.display()
        );
        full.into_os_string().into_string().map_err(|_| outside())
    }
}

impl Storage for Rooted {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        self.files.open(&self.inside(path)?)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.files.create(&self.inside(path)?)
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.files.append(&self.inside(path)?)
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.files.replace(&self.inside(path)?)
    }

    fn replace_unsynced(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.files.replace_unsynced(&self.inside(path)?)
    }

    fn remove_leftovers(&self, folder: &str, is_target: &dyn Fn(&str) -> bool) -> Result<()> {
        self.files.remove_leftovers(&self.inside(folder)?, is_target)
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        self.files.metadata(&self.inside(path)?)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.files.list(&self.inside(folder)?)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.files.remove(&self.inside(path)?)
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        self.files.remove_folder(&self.inside(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.files.rename(&self.inside(from)?, &self.inside(to)?)
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        self.files.create_folder(&self.inside(path)?)
    }
}
