//! Local files on a disk that fails when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_formats::storage::{LocalStorage, Metadata, ReadAt, Storage, WriteFile};
use thalweg_tensor::{Error, Result, err};

/// What fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    /// Writing, once so many bytes are written.
    FullAfter(usize),
    /// This one of all calls that change something.
    Step(usize),
    /// This one of all files that are finished: its sync.
    Finish(usize),
}

impl Plan {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Plan::FullAfter(_) => "full",
            Plan::Step(_) => "step",
            Plan::Finish(_) => "finish",
        }
    }
}

#[derive(Default)]
struct Counts {
    bytes: AtomicUsize,
    steps: AtomicUsize,
    finishes: AtomicUsize,
    failures: AtomicUsize,
}

/// Local files with failures.
#[derive(Clone)]
pub(crate) struct Failing {
    plan: Plan,
    counts: Arc<Counts>,
}

const FILES: LocalStorage = LocalStorage { syncs: false };

impl Failing {
    pub(crate) fn new(plan: Plan) -> Failing {
        Failing { plan, counts: Arc::default() }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.counts.failures.load(Ordering::Relaxed) > 0
    }

    fn fail(&self, path: &str, what: &str) -> Error {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        err!(ResourceExhausted, "{path}: cannot {what} it: this disk fails as planned")
    }

    /// Counts a step that changes something; it may be the one that fails.
    fn step(&self, path: &str, what: &str) -> Result<()> {
        let n = self.counts.steps.fetch_add(1, Ordering::Relaxed);
        if matches!(self.plan, Plan::Step(at) if at == n) {
            return Err(self.fail(path, what));
        }
        Ok(())
    }
}

struct Writer {
    inner: Box<dyn WriteFile>,
    disk: Failing,
}

impl WriteFile for Writer {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn write(&mut self, content: &[u8]) -> Result<()> {
        self.disk.step(self.inner.path(), "write")?;
        let before = self.disk.counts.bytes.fetch_add(content.len(), Ordering::Relaxed);
        if let Plan::FullAfter(bytes) = self.disk.plan
            && before + content.len() > bytes
        {
            // As on a real disk, a part of it is there.
            self.inner.write(&content[..bytes.saturating_sub(before)])?;
            return Err(self.disk.fail(self.inner.path(), "write"));
        }
        self.inner.write(content)
    }

    fn flush(&mut self) -> Result<()> {
        self.disk.step(self.inner.path(), "flush")?;
        self.inner.flush()
    }

    fn sync(&mut self) -> Result<()> {
        self.disk.step(self.inner.path(), "sync")?;
        self.inner.sync()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.disk.step(self.inner.path(), "finish")?;
        let n = self.disk.counts.finishes.fetch_add(1, Ordering::Relaxed);
        if matches!(self.disk.plan, Plan::Finish(at) if at == n) {
            return Err(self.disk.fail(self.inner.path(), "sync"));
        }
        self.inner.finish()
    }
}

impl Failing {
    fn wrapped(&self, inner: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(Writer { inner, disk: self.clone() })
    }
}

impl Storage for Failing {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        FILES.open(path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.step(path, "create")?;
        Ok(self.wrapped(FILES.create(path)?))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.step(path, "append to")?;
        Ok(self.wrapped(FILES.append(path)?))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        self.step(path, "replace")?;
        Ok(self.wrapped(FILES.replace(path)?))
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        FILES.metadata(path)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        FILES.list(folder)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.step(path, "delete")?;
        FILES.remove(path)
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        self.step(path, "delete")?;
        FILES.remove_folder(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.step(from, "rename")?;
        FILES.rename(from, to)
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        self.step(path, "make")?;
        FILES.create_folder(path)
    }

    fn remove_leftovers(&self, folder: &str, is_target: &dyn Fn(&str) -> bool) -> Result<()> {
        FILES.remove_leftovers(folder, is_target)
    }
}
