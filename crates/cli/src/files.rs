//! File access of commands: bounded reads, atomic writes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use thalweg_formats::Storage;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Bytes, Code, Error, Result, bail, ensure, err};

/// The storage for local paths and URLs.
pub(crate) fn storage() -> &'static Arc<dyn Storage> {
    static STORAGE: LazyLock<Arc<dyn Storage>> = LazyLock::new(|| Arc::new(ByUrl::default()));
    &STORAGE
}

/// The content of a file of at most `bytes_max`.
pub(crate) fn read(path: &Path, bytes_max: usize) -> Result<Bytes> {
    if let Some(url) = url(path) {
        return storage().read(url, bytes_max);
    }
    let at = |e: io::Error| file_error(path, &e);
    ensure!(!path.is_dir(), InvalidArgument, "{} is a folder; a file was expected", path.display());
    let file = File::open(path).map_err(at)?;
    let mut content = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut content).map_err(at)?;
    ensure!(
        content.len() <= bytes_max,
        ResourceExhausted,
        "{} has more than {bytes_max} bytes",
        path.display()
    );
    Ok(content.into())
}

/// Whether the path is a folder.
pub(crate) fn is_folder(path: &Path) -> Result<bool> {
    let Some(url) = url(path) else { return Ok(path.is_dir()) };
    match storage().metadata(url) {
        Ok(found) => Ok(found.is_folder),
        Err(e) if e.code() == Code::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// A path that is a URL.
fn url(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| ByUrl::is_url(path))
}

/// Fails early if [`write`] would fail because the folder does not exist.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    if url(path).is_some() {
        return Ok(());
    }
    let folder = folder_of(path);
    ensure!(
        folder.is_dir(),
        NotFound,
        "{} cannot be written: there is no folder {}",
        path.display(),
        folder.display()
    );
    ensure!(!path.is_dir(), InvalidArgument, "{} is a folder", path.display());
    Ok(())
}

/// Writes a file atomically: under a temporary name, then renamed.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(url) = url(path) {
        return storage().write(url, content);
    }
    check_writable(path)?;
    let Some(name) = path.file_name() else {
        bail!(InvalidArgument, "{} is not the name of a file", path.display());
    };
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(format!(".{}", std::process::id()));
    let temporary = folder_of(path).join(temporary_name);
    let written = (|| {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        file_error(path, &e)
    })
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn file_error(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => err!(NotFound, "{path}: no such file"),
        io::ErrorKind::PermissionDenied => {
            err!(PermissionDenied, "{path}: permission denied")
        }
        io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => {
            err!(ResourceExhausted, "{path}: {error}")
        }
        _ => Error::new(Code::Unknown, format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_codes() {
        let folder = std::env::temp_dir();
        assert_eq!(read(&folder, 10).unwrap_err().code(), Code::InvalidArgument);
        let missing = folder.join("thalweg-no-such-folder/file");
        assert_eq!(read(&missing, 10).unwrap_err().code(), Code::NotFound);
        assert_eq!(write(&missing, b"").unwrap_err().code(), Code::NotFound);
        assert_eq!(write(&folder, b"").unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(read(Path::new("/dev/zero"), 10).unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn writes_leave_nothing_beside() {
        let folder = std::env::temp_dir().join(format!("thalweg-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.bin");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(&read(&path, 3).unwrap()[..], b"two");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
