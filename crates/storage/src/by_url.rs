//! Dispatch of paths to stores by URL scheme.

use std::sync::Arc;
#[cfg(any(feature = "s3", feature = "hdfs"))]
use std::sync::OnceLock;

use thalweg_formats::LocalStorage;
use thalweg_formats::storage::{Metadata, ReadAt, Storage, WriteFile};
use thalweg_tensor::{Bytes, Result, bail, ensure, err};

#[cfg(any(feature = "s3", feature = "hdfs"))]
use crate::driver::Driver;
use crate::url::Url;

/// Which URLs may be accessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedUrls {
    /// All URLs that the process's credentials permit.
    All,
    /// URLs with one of these prefixes, compared by whole path components: `s3://bucket/folder`,
    /// `s3://`. No URL if the list is empty.
    Under(Vec<String>),
}

/// A storage that selects the store by the scheme of a path: `s3://bucket/key`,
/// `hdfs://host:port/path`; `file:///path` and plain paths are local files.
pub struct ByUrl {
    local: Arc<dyn Storage>,
    allowed: AllowedUrls,
    #[cfg(any(feature = "s3", feature = "hdfs"))]
    driver: OnceLock<Result<Driver>>,
    #[cfg(feature = "s3")]
    s3: OnceLock<Result<crate::s3::S3Storage>>,
    #[cfg(feature = "hdfs")]
    hdfs: OnceLock<crate::hdfs::HdfsStorage>,
}

impl Default for ByUrl {
    /// All stores, with the permissions of the process.
    fn default() -> ByUrl {
        ByUrl::new(Arc::new(LocalStorage::default()), AllowedUrls::All)
    }
}

impl ByUrl {
    /// A storage with `local` for local files. Other stores are opened, with settings from the
    /// environment, when a path first names them.
    pub fn new(local: Arc<dyn Storage>, allowed: AllowedUrls) -> ByUrl {
        ByUrl {
            local,
            allowed,
            #[cfg(any(feature = "s3", feature = "hdfs"))]
            driver: OnceLock::new(),
            #[cfg(feature = "s3")]
            s3: OnceLock::new(),
            #[cfg(feature = "hdfs")]
            hdfs: OnceLock::new(),
        }
    }

    /// Whether a path is a URL, including `file://`, rather than a plain path.
    pub fn is_url(path: &str) -> bool {
        Url::parse(path).is_some()
    }

    /// The store of a path.
    fn store(&self, path: &str) -> Result<&dyn Storage> {
        let Some(url) = Url::parse(path).filter(|url| url.scheme != "file") else {
            return Ok(&*self.local);
        };
        self.check_allowed(path, &url)?;
        match url.scheme {
            #[cfg(feature = "s3")]
            "s3" => self.s3(),
            #[cfg(feature = "hdfs")]
            "hdfs" => self.hdfs(),
            #[cfg(not(feature = "s3"))]
            "s3" => bail!(Unimplemented, "{path}: this program was built without the feature 's3'"),
            #[cfg(not(feature = "hdfs"))]
            "hdfs" => {
                bail!(Unimplemented, "{path}: this program was built without the feature 'hdfs'")
            }
            scheme => bail!(
                Unimplemented,
                "File system scheme '{scheme}' not implemented (file: '{path}')"
            ),
        }
    }

    fn check_allowed(&self, path: &str, url: &Url<'_>) -> Result<()> {
        let AllowedUrls::Under(folders) = &self.allowed else { return Ok(()) };
        ensure!(
            !url.path.split('/').any(|part| part == ".."),
            PermissionDenied,
            "{path}: '..' must not be part of a path when access is limited by --allow-url"
        );
        let mut folders = folders.iter().filter_map(|folder| Url::parse(folder));
        ensure!(
            folders.any(|folder| url.is_in(&folder)),
            PermissionDenied,
            "{path}: access to this URL is not allowed; `thalweg server --allow-url` allows URL prefixes"
        );
        Ok(())
    }

    #[cfg(any(feature = "s3", feature = "hdfs"))]
    fn driver(&self) -> Result<Driver> {
        self.driver.get_or_init(Driver::new).clone()
    }

    #[cfg(feature = "s3")]
    fn s3(&self) -> Result<&dyn Storage> {
        let make = || {
            let settings = crate::s3::S3Settings::from_variables(|name| std::env::var(name).ok())?;
            crate::s3::S3Storage::with_driver(settings, self.driver()?)
        };
        match self.s3.get_or_init(make) {
            Ok(store) => Ok(store),
            Err(e) => Err(e.clone()),
        }
    }

    #[cfg(feature = "hdfs")]
    fn hdfs(&self) -> Result<&dyn Storage> {
        let driver = self.driver()?;
        Ok(self.hdfs.get_or_init(|| crate::hdfs::HdfsStorage::with_driver(driver)))
    }
}

/// The scheme of a path: files cannot be renamed from one store to another.
fn scheme(path: &str) -> &str {
    Url::parse(path).map_or("file", |url| url.scheme)
}

impl Storage for ByUrl {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        self.store(path)?.open(path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.store(path)?.create(path)
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.store(path)?.append(path)
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.store(path)?.replace(path)
    }

    fn replace_unsynced(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.store(path)?.replace_unsynced(path)
    }

    fn remove_leftovers(&self, folder: &str, is_target: &dyn Fn(&str) -> bool) -> Result<()> {
        self.store(folder)?.remove_leftovers(folder, is_target)
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        self.store(path)?.metadata(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.store(folder)?.list(folder)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.store(path)?.remove(path)
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        self.store(path)?.remove_folder(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let store = self.store(from)?;
        self.store(to)?;
        if scheme(from) != scheme(to) {
            return Err(err!(Unimplemented, "Renaming {from} to {to} not implemented"));
        }
        store.rename(from, to)
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        self.store(path)?.create_folder(path)
    }

    fn exists(&self, path: &str) -> Result<bool> {
        self.store(path)?.exists(path)
    }

    fn read(&self, path: &str, bytes_max: usize) -> Result<Bytes> {
        self.store(path)?.read(path, bytes_max)
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        self.store(path)?.write(path, content)
    }

    fn create_folder_of(&self, path: &str) -> Result<()> {
        self.store(path)?.create_folder_of(path)
    }

    fn matching(&self, pattern: &str) -> Result<Vec<String>> {
        self.store(pattern)?.matching(pattern)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn code(allowed: AllowedUrls, path: &str) -> Option<Code> {
        let storage = ByUrl::new(Arc::new(LocalStorage::default()), allowed);
        storage.store(path).err().map(|e| e.code())
    }

    #[test]
    fn urls_outside_the_allowed_prefixes_are_refused() {
        let under = |urls: &[&str]| AllowedUrls::Under(urls.iter().map(|&u| u.into()).collect());
        let refused = Some(Code::PermissionDenied);
        assert_eq!(code(under(&[]), "s3://b/k"), refused);
        assert_eq!(code(under(&["s3://a"]), "s3://b/k"), refused);
        assert_eq!(code(under(&["s3://b/x"]), "s3://b/k"), refused);
        assert_eq!(code(under(&["s3://b/x"]), "s3://b/x/../k"), refused);
        assert_ne!(code(under(&["s3://b/x"]), "s3://b/x/k"), refused);
        assert_eq!(code(under(&[]), "/tmp/x"), None);
        assert_eq!(code(under(&[]), "file:///tmp/x"), None);
        assert_eq!(code(AllowedUrls::All, "gs://b/k"), Some(Code::Unimplemented));
    }

    #[test]
    fn local_files_stay_local() {
        let storage = ByUrl::default();
        let folder = std::env::temp_dir().join(format!("thalweg-by-url-{}", std::process::id()));
        let plain = folder.join("a").to_str().unwrap().to_owned();
        let url = format!("file://{plain}");
        storage.write(&url, b"text").unwrap();
        assert_eq!(&storage.read(&plain, 9).unwrap()[..], b"text");
        assert!(storage.exists(&url).unwrap());
        let e = storage.rename(&plain, "s3://b/k").unwrap_err();
        assert_eq!(e.code(), Code::Unimplemented);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn leftovers_of_local_files_are_removed() {
        let folder = std::env::temp_dir().join(format!("thalweg-left-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // No process has such a high process id.
        let left = folder.join(".a.index.4294967295-0.tmp");
        std::fs::write(&left, b"").unwrap();
        let storage = ByUrl::default();
        storage.remove_leftovers(folder.to_str().unwrap(), &|name| name == "a.index").unwrap();
        assert!(!left.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
