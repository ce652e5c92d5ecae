//! Names of temporary files: `.NAME.PROCESS-NUMBER.tmp` beside the `NAME` that they get at the end.
//! A later process can tell from the name whether the writer still runs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thalweg_tensor::{Result, bail};

/// The numbers of this process's temporary files, and the next number.
static OPEN: Mutex<(BTreeSet<u64>, u64)> = Mutex::new((BTreeSet::new(), 0));

fn open() -> MutexGuard<'static, (BTreeSet<u64>, u64)> {
    // A panic while the lock was held cannot leave it inconsistent.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a temporary file.
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    number: u64,
}

impl Temporary {
    /// A unique temporary name beside `target`.
    pub(super) fn beside(path: &str, target: &Path) -> Result<Temporary> {
        let Some(name) = target.file_name() else {
            bail!(NotFound, "{path}: cannot write: not the name of a file");
        };
        let number = {
            let mut open = open();
            let number = open.1;
            open.1 += 1;
            open.0.insert(number);
            number
        };
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{number}.tmp", std::process::id()));
        Ok(Temporary { path: target.with_file_name(temporary), number })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        open().0.remove(&self.number);
    }
}

/// Whether a name is that of a temporary file whose writer has ended, for a target name that
/// `is_target` accepts.
pub(super) fn is_stale(name: &str, is_target: &dyn Fn(&str) -> bool) -> bool {
    let Some((target, process, number)) = parts(name) else { return false };
    is_target(target) && !is_written(process, number)
}

fn parts(name: &str) -> Option<(&str, u32, u64)> {
    let (target, writer) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    let (process, number) = writer.split_once('-')?;
    Some((target, process.parse().ok()?, number.parse().ok()?))
}

/// Whether a process may still write the file. The process id may have been reused; then the file
/// stays until a later check.
fn is_written(process: u32, number: u64) -> bool {
    if process == std::process::id() {
        return open().0.contains(&number);
    }
    let processes = Path::new("/proc");
    // Without /proc every process may be running.
    !processes.join("self").exists() || processes.join(process.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn only_what_nobody_writes_is_left() {
        let ours = Temporary::beside("a", Path::new("/x/a.index")).unwrap();
        let name = ours.path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_index = |target: &str| target == "a.index";
        assert!(!is_stale(&name, &is_index), "{name} is being written");
        drop(ours);
        assert!(is_stale(&name, &is_index), "{name} is of this process's number");
        assert!(!is_stale(&name, &|_| false));
        // The number exceeds the maximum process id.
        assert!(is_stale(".a.index.4294967295-0.tmp", &is_index));
        assert!(!is_stale(".a.index.1-0.tmp", &is_index), "the first process is always there");
        for other in ["a.index", ".a.index.tmp", ".a.index.5.tmp", ".a.index.x-1.tmp", ".tmp", ""] {
            assert!(!is_stale(other, &|_| true), "{other}");
        }
        assert_eq!(
            Temporary::beside("/", Path::new("/")).err().map(|e| e.code()),
            Some(Code::NotFound)
        );
    }
}
