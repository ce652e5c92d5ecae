//! S3-compatible object stores: objects as files, key prefixes as folders.
//!
//! An object is created and replaced atomically. A rename is a copy followed by a deletion, so that
//! other readers may see both names. A folder exists if a key has its name and `/` as prefix; an
//! empty folder is an object whose key ends with `/`.

mod client;
mod connections;
mod error_response;
mod objects;
mod settings;
mod sign;
#[cfg(feature = "https")]
mod tls;
mod writer;
mod xml;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_formats::storage::{Metadata, ReadAt, Storage, WriteFile};
use thalweg_tensor::{Code, Error, Result, bail, ensure, err};

use crate::driver::Driver;
use crate::remote_file::RemoteFile;
use client::{Client, Object};
use objects::{Head, Listing, ObjectSource};
pub use settings::{Credentials, Retries, S3Settings};
use writer::{PART_BYTES, Visibility, Writer};

/// An S3-compatible object store.
pub struct S3Storage {
    client: Arc<Client>,
    driver: Driver,
}

impl S3Storage {
    /// A store with these settings that has not connected yet.
    pub fn new(settings: S3Settings) -> Result<S3Storage> {
        S3Storage::with_driver(settings, Driver::new()?)
    }

    pub(crate) fn with_driver(settings: S3Settings, driver: Driver) -> Result<S3Storage> {
        Ok(S3Storage { client: Arc::new(Client::new(settings)?), driver })
    }

    /// Runs a request for an object.
    fn wait<T, F>(&self, object: &Object, work: impl FnOnce(Arc<Client>, Object) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.driver.wait(work(Arc::clone(&self.client), object.clone()))
    }

    /// The object of a path and its metadata; fails if the path is a folder.
    fn file(&self, path: &str, operation: &'static str) -> Result<(Object, Head)> {
        let object = Object::parse(path)?;
        ensure!(
            !is_folder_name(&object),
            FailedPrecondition,
            "{}",
            is_a_folder_error(path, operation).message()
        );
        let head = self.head(&object, operation)?;
        match head {
            Some(head) => Ok((object, head)),
            None if self.is_folder(&object)? => Err(is_a_folder_error(path, operation)),
            None => Err(err!(NotFound, "{path}: cannot {operation}: no such object")),
        }
    }

    fn head(&self, object: &Object, operation: &'static str) -> Result<Option<Head>> {
        self.wait(object, |client, object| async move { client.head(&object, operation).await })
    }

    /// Whether there are keys with this prefix.
    fn is_folder(&self, object: &Object) -> Result<bool> {
        let prefix = object.with_key(folder_key(&object.key));
        let listing = self.list_some(&prefix, 1)?;
        Ok(object.key.is_empty() || !listing.keys.is_empty() || !listing.folders.is_empty())
    }

    fn list_some(&self, prefix: &Object, names_max: usize) -> Result<Listing> {
        self.wait(
            prefix,
            |client, prefix| async move { client.list(&prefix, Some(names_max)).await },
        )
    }

    fn put(&self, object: &Object, content: Bytes) -> Result<()> {
        self.wait(object, |client, object| async move { client.put(&object, content).await })
    }

    fn delete(&self, object: &Object) -> Result<()> {
        self.wait(object, |client, object| async move { client.delete(&object).await })
    }

    fn writer(&self, object: Object, visibility: Visibility) -> Writer {
        Writer::new(Arc::clone(&self.client), self.driver.clone(), object, visibility)
    }

    fn copy(&self, from: &Object, to: &Object) -> Result<()> {
        let from = from.clone();
        self.wait(to, |client, to| async move {
            let head = client.head(&from, "copy it").await?;
            let gone = || err!(NotFound, "{}: it was deleted while it was being copied", from.url);
            client.copy(&from, &to, &head.ok_or_else(gone)?).await
        })
    }

    fn rename_folder(&self, from: &Object, to: &Object) -> Result<()> {
        let (from, to) = (from.with_key(folder_key(&from.key)), to.with_key(folder_key(&to.key)));
        ensure!(
            from.bucket != to.bucket || !to.key.starts_with(&from.key),
            InvalidArgument,
            "{}: a folder cannot be renamed into itself",
            from.url
        );
        let keys =
            self.wait(&from, |client, from| async move { client.keys_below(&from).await })?;
        for key in &keys {
            let name = key.strip_prefix(from.key.as_str()).unwrap_or_default();
            let target = to.with_key(format!("{}{name}", to.key));
            self.copy(&from.with_key(key.clone()), &target)?;
        }
        keys.into_iter().try_for_each(|key| self.delete(&from.with_key(key)))
    }

    /// An object to write; its name must not be that of a folder.
    fn target(path: &str) -> Result<Object> {
        let object = Object::parse(path)?;
        ensure!(
            !is_folder_name(&object),
            FailedPrecondition,
            "{}",
            is_a_folder_error(path, "write it").message()
        );
        Ok(object)
    }
}

fn is_folder_name(object: &Object) -> bool {
    object.key.is_empty() || object.key.ends_with('/')
}

/// The key prefix of a folder.
fn folder_key(key: &str) -> String {
    match key.trim_end_matches('/') {
        "" => String::new(),
        key => format!("{key}/"),
    }
}

fn is_a_folder_error(path: &str, operation: &str) -> Error {
    err!(FailedPrecondition, "{path}: cannot {operation}: it is a folder")
}

impl Storage for S3Storage {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        let (object, head) = self.file(path, "open it")?;
        let source = ObjectSource { client: Arc::clone(&self.client), object, tag: head.tag };
        Ok(Arc::new(RemoteFile::new(path, head.bytes, source, self.driver.clone())))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let object = Self::target(path)?;
        self.put(&object, Bytes::new())?;
        Ok(Box::new(self.writer(object, Visibility::Flushed).after(0, Vec::new())))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let object = Self::target(path)?;
        let Some(head) = self.head(&object, "open it for appending")? else {
            return self.create(path);
        };
        let writer = self.writer(object, Visibility::Flushed);
        // Small content is written again, large content is copied by the store.
        Ok(Box::new(match usize::try_from(head.bytes) {
            Ok(bytes) if bytes < PART_BYTES => writer.after(0, self.read(path, bytes)?.into()),
            _ => writer.after(head.bytes, Vec::new()),
        }))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(self.writer(Self::target(path)?, Visibility::Finished)))
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        let object = Object::parse(path)?;
        // Stores that keep objects as files fail on a HEAD of a folder, so folders are listed first. A user who
        // may read a bucket's objects but not list them has no folders.
        match self.is_folder(&object) {
            Ok(true) => {
                return Ok(Metadata { bytes: 0, is_folder: true, modified: Duration::ZERO });
            }
            Err(e) if e.code() != Code::PermissionDenied => return Err(e),
            _ => {}
        }
        let head = if is_folder_name(&object) { None } else { self.head(&object, "stat it")? };
        let Head { bytes, modified, .. } =
            head.ok_or_else(|| err!(NotFound, "{path}: cannot stat it: no such object"))?;
        Ok(Metadata { bytes, is_folder: false, modified })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let object = Object::parse(folder)?;
        let prefix = object.with_key(folder_key(&object.key));
        let listing =
            self.wait(&prefix, |client, prefix| async move { client.list(&prefix, None).await })?;
        if listing.keys.is_empty() && listing.folders.is_empty() && !object.key.is_empty() {
            if self.head(&object, "list it")?.is_some() {
                bail!(FailedPrecondition, "{folder}: cannot list it: it is not a folder");
            }
            bail!(NotFound, "{folder}: cannot list it: no such folder");
        }
        let names = listing.keys.iter().chain(&listing.folders);
        let names = names.filter_map(|key| key.strip_prefix(prefix.key.as_str()));
        let names = names.map(|name| name.trim_end_matches('/'));
        // The folder's own marker object has no name in it.
        Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    fn remove(&self, path: &str) -> Result<()> {
        // DELETE succeeds whether or not the object existed.
        let (object, _) = self.file(path, "delete it")?;
        self.delete(&object)
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        let object = Object::parse(path)?;
        let mark = object.with_key(folder_key(&object.key));
        let listing = self.list_some(&mark, 2)?;
        let mut keys = listing.keys.iter().chain(&listing.folders).peekable();
        ensure!(
            keys.peek().is_some() && !object.key.is_empty(),
            NotFound,
            "{path}: cannot delete it: no such folder"
        );
        ensure!(
            keys.all(|key| *key == mark.key),
            FailedPrecondition,
            "{path}: cannot delete it: it is not empty"
        );
        self.delete(&mark)
    }

    /// Copies and deletes: not atomic, but a file appears under its new name completely. The files
    /// of a folder are copied one by one, then deleted.
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (Object::parse(from)?, Self::target(to)?);
        if (&source.bucket, &source.key) == (&target.bucket, &target.key) {
            return Ok(());
        }
        if self.is_folder(&source)? && !source.key.is_empty() {
            return self.rename_folder(&source, &target);
        }
        self.copy(&self.file(from, "rename it")?.0, &target)?;
        self.delete(&source)
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        let object = Object::parse(path)?;
        if self.is_folder(&object)? {
            return Ok(());
        }
        let file = object.with_key(object.key.trim_end_matches('/').to_owned());
        // A file of that name is listed before all keys that it is a prefix of.
        let first = self.list_some(&file, 1)?.keys.into_iter().next();
        ensure!(
            first != Some(file.key),
            FailedPrecondition,
            "{path}: cannot make the folder: it is a file"
        );
        self.put(&object.with_key(folder_key(&object.key)), Bytes::new())
    }

    /// Does nothing: objects need no folder.
    fn create_folder_of(&self, _: &str) -> Result<()> {
        Ok(())
    }
}
