//! The local file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use thalweg_tensor::{Bytes, Result, ensure, err};

use super::temporary::{self, Temporary};
use super::{Metadata, ReadAt, Storage, WriteFile, failed};

/// The size of the write buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// The local file system, with the permissions of the process.
#[derive(Clone, Copy, Debug)]
pub struct LocalStorage {
    /// Whether finished files are synced to disk before they are renamed. Without it, a power
    /// failure may leave an empty file.
    pub syncs: bool,
}

impl Default for LocalStorage {
    fn default() -> Self {
        LocalStorage { syncs: true }
    }
}

/// The local path; other schemes than `file` are rejected.
pub(super) fn local(path: &str) -> Result<&Path> {
    let Some((scheme, rest)) = path.split_once("://") else {
        return Ok(Path::new(path));
    };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if scheme.is_empty() || !scheme.chars().all(is_scheme) {
        return Ok(Path::new(path));
    }
    ensure!(
        scheme == "file",
        Unimplemented,
        "File system scheme '{scheme}' not implemented (file: '{path}')"
    );
    // `file://` is followed by a host, which is this machine, up to the next `/`.
    match rest.find('/') {
        Some(begin) => Ok(Path::new(&rest[begin..])),
        None => Ok(Path::new("")),
    }
}

impl Storage for LocalStorage {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        let file = File::open(local(path)?).map_err(|e| failed("open it", path, &e))?;
        Ok(Arc::new(LocalFile { path: path.to_owned(), file }))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let file = File::create(local(path)?).map_err(|e| failed("create it", path, &e))?;
        Ok(Box::new(Writer::new(path, file, None, self.syncs)))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let mut options = OpenOptions::new();
        let opened = options.append(true).create(true).open(local(path)?);
        let file = opened.map_err(|e| failed("open it for appending", path, &e))?;
        Ok(Box::new(Writer::new(path, file, None, self.syncs)))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        let target = local(path)?.to_owned();
        ensure!(!target.is_dir(), FailedPrecondition, "{path}: cannot write it: it is a folder");
        let temporary = Temporary::beside(path, &target)?;
        let opened = OpenOptions::new().write(true).create_new(true).open(&temporary.path);
        let file = opened.map_err(|e| failed("write it", path, &e))?;
        let names = Some(Names { temporary, target });
        Ok(Box::new(Writer::new(path, file, names, self.syncs)))
    }

    fn replace_unsynced(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        LocalStorage { syncs: false }.replace(path)
    }

    fn remove_leftovers(&self, folder: &str, is_target: &dyn Fn(&str) -> bool) -> Result<()> {
        for name in self.list(folder)? {
            if temporary::is_stale(&name, is_target) {
                self.remove(&super::join(folder, &name))?;
            }
        }
        Ok(())
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        let found = fs::metadata(local(path)?).map_err(|e| failed("look at it", path, &e))?;
        let modified = found.modified().ok();
        Ok(Metadata {
            bytes: if found.is_dir() { 0 } else { found.len() },
            is_folder: found.is_dir(),
            modified: modified
                .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
                .unwrap_or_default(),
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let at = |e: io::Error| failed("list it", folder, &e);
        let path = match local(folder)? {
            empty if empty == Path::new("") => Path::new("."),
            path => path,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(at)? {
            // Paths are UTF-8 text here; names that are not are left out, as no caller can open them.
            names.extend(entry.map_err(at)?.file_name().into_string());
        }
        Ok(names)
    }

    fn remove(&self, path: &str) -> Result<()> {
        fs::remove_file(local(path)?).map_err(|e| failed("delete it", path, &e))
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        fs::remove_dir(local(path)?).map_err(|e| failed("delete it", path, &e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let renamed = fs::rename(local(from)?, local(to)?);
        renamed.map_err(|e| failed(&format!("rename it to {to}"), from, &e))
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        fs::create_dir_all(local(path)?).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => {
                err!(FailedPrecondition, "{path}: cannot make the folder: it is a file")
            }
            _ => failed("make the folder", path, &e),
        })
    }
}

struct LocalFile {
    path: String,
    file: File,
}

impl ReadAt for LocalFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        let found = self.file.metadata().map_err(|e| failed("look at it", &self.path, &e))?;
        ensure!(
            !found.is_dir(),
            FailedPrecondition,
            "{}: cannot read it: it is a folder",
            self.path
        );
        Ok(found.len())
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let mut read = 0;
        while read < target.len() {
            match self.file.read_at(&mut target[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed("read it", &self.path, &e)),
            }
        }
        Ok(read)
    }

    fn map(&self) -> Result<Option<Bytes>> {
        let length = usize::try_from(self.size()?).map_err(|_| {
            err!(ResourceExhausted, "{}: the file is larger than the address space", self.path)
        })?;
        let mapped = super::map::map(&self.file, length);
        mapped.map(Some).map_err(|e| failed("map it", &self.path, &e))
    }
}

/// The names of a file that is being replaced.
struct Names {
    temporary: Temporary,
    target: PathBuf,
}

struct Writer {
    path: String,
    file: File,
    pending: Vec<u8>,
    /// The name that the file gets at the end; `None` after that.
    names: Option<Names>,
    syncs: bool,
}

impl Writer {
    fn new(path: &str, file: File, names: Option<Names>, syncs: bool) -> Writer {
        Writer { path: path.to_owned(), file, pending: Vec::new(), names, syncs }
    }

    fn send(&mut self) -> Result<()> {
        let sent = self.file.write_all(&self.pending);
        self.pending.clear();
        sent.map_err(|e| failed("write to it", &self.path, &e))
    }

    fn take_name(&mut self) -> Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        let at = |e: io::Error| failed("rename it", &self.path, &e);
        fs::rename(&names.temporary.path, &names.target).map_err(at)?;
        let folder = match names.target.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        self.names = None;
        if self.syncs {
            // The new name is part of the folder, which is synced too.
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(at)?;
        }
        Ok(())
    }
}

impl WriteFile for Writer {
    fn path(&self) -> &str {
        &self.path
    }

    fn write(&mut self, content: &[u8]) -> Result<()> {
        if self.pending.len() + content.len() > BUFFER_BYTES {
            self.send()?;
        }
        if content.len() >= BUFFER_BYTES {
            let written = self.file.write_all(content);
            return written.map_err(|e| failed("write to it", &self.path, &e));
        }
        self.pending.extend_from_slice(content);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.send()
    }

    fn sync(&mut self) -> Result<()> {
        self.send()?;
        self.file.sync_all().map_err(|e| failed("sync it", &self.path, &e))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.syncs && self.names.is_some() {
            self.sync()?;
        } else {
            self.send()?;
        }
        self.take_name()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        match &self.names {
            Some(names) => {
                let _ = fs::remove_file(&names.temporary.path);
            }
            None => {
                let _ = self.send();
            }
        }
    }
}
