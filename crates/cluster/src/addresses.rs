//! Where tasks are: looked up anew for every connection, since a task may come back elsewhere.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use thalweg_rpc::Resolve;
use thalweg_tensor::{Context, Result, ensure, err};
use tracing::warn;

use crate::cluster_spec::{ClusterSpec, TaskName};

/// Bytes that a cluster file may have.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Tells where tasks are.
pub trait Addresses: Send + Sync {
    /// Where a task is now, `host:port`; none where nobody knows.
    fn address(&self, task: &TaskName) -> Option<String>;

    /// A number that changes when an address has.
    fn generation(&self) -> u64 {
        0
    }
}

impl Addresses for ClusterSpec {
    fn address(&self, task: &TaskName) -> Option<String> {
        ClusterSpec::address(self, task).map(str::to_owned)
    }
}

/// The address of one task, for a channel to it.
pub(crate) struct TaskAddress {
    pub(crate) task: TaskName,
    pub(crate) addresses: Arc<dyn Addresses>,
}

impl Resolve for TaskAddress {
    fn address(&self) -> Option<String> {
        self.addresses.address(&self.task)
    }
}

/// How the text of a cluster file is read.
pub type ParseCluster = fn(&str) -> Result<ClusterSpec>;

/// A file that says where the tasks of a cluster are, read again when it has changed.
///
/// Only addresses may change: tasks that were not there at first are not known, and one that the
/// file no longer names stays where it was.
pub struct ClusterFile {
    path: PathBuf,
    parse: ParseCluster,
    state: Mutex<State>,
}

struct State {
    cluster: ClusterSpec,
    /// What the file looked like when it was read.
    version: Option<Version>,
    generation: u64,
}

#[derive(PartialEq)]
struct Version {
    inode: u64,
    len: u64,
    modified: Option<SystemTime>,
}

impl ClusterFile {
    /// Reads the file.
    pub fn open(path: &Path, parse: ParseCluster) -> Result<ClusterFile> {
        let (cluster, version) = read(path, parse)?;
        let state = State { cluster, version: Some(version), generation: 0 };
        Ok(ClusterFile { path: path.to_owned(), parse, state: Mutex::new(state) })
    }

    /// The cluster as the file says it now.
    pub fn cluster(&self) -> ClusterSpec {
        self.refreshed(|state| state.cluster.clone())
    }

    /// Looks at what is known, after a look at the file.
    fn refreshed<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        let mut state = self.state.lock();
        let now = std::fs::metadata(&self.path).ok().map(|found| Version::of(&found));
        if now.is_some() && now != state.version {
            state.version = now;
            match read(&self.path, self.parse) {
                Ok((cluster, version)) => state.take(&cluster, version),
                // It may be half written; its next version will be read too.
                Err(e) => {
                    let path = self.path.display();
                    warn!(
                        target: "thalweg::cluster",
                        path = %path,
                        "{path}: {e}; what it said before counts"
                    );
                }
            }
        }
        look(&state)
    }
}

impl Addresses for ClusterFile {
    fn address(&self, task: &TaskName) -> Option<String> {
        self.refreshed(|state| state.cluster.address(task).map(str::to_owned))
    }

    fn generation(&self) -> u64 {
        self.refreshed(|state| state.generation)
    }
}

impl State {
    fn take(&mut self, cluster: &ClusterSpec, version: Version) {
        self.version = Some(version);
        for (task, address) in cluster.tasks() {
            if self.cluster.move_to(task, address) {
                self.generation += 1;
            }
        }
    }
}

impl Version {
    fn of(found: &std::fs::Metadata) -> Version {
        Version { inode: found.ino(), len: found.len(), modified: found.modified().ok() }
    }
}

fn read(path: &Path, parse: ParseCluster) -> Result<(ClusterSpec, Version)> {
    let failed = |e: std::io::Error| err!(InvalidArgument, "'{}': {e}", path.display());
    // Looked at first: what is written after that is found by the next look.
    let version = Version::of(&std::fs::metadata(path).map_err(failed)?);
    ensure!(
        version.len <= FILE_BYTES_MAX,
        ResourceExhausted,
        "'{}' has {} bytes; a cluster file has at most {FILE_BYTES_MAX}",
        path.display(),
        version.len
    );
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let cluster = parse(text.trim()).context(|| format!("'{}'", path.display()))?;
    Ok((cluster, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_file() {
        let name = format!("thalweg-addresses-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "ps=a:1;worker=b:2\n").unwrap();
        let file = ClusterFile::open(&path, str::parse).unwrap();
        let at = |job: &str, index| file.address(&TaskName::new(job, index));
        assert_eq!(at("ps", 0).as_deref(), Some("a:1"));
        let before = file.generation();
        // Another task is not known, and one that is gone stays.
        std::fs::write(&path, "ps=c:33,d:4\n").unwrap();
        assert_eq!(at("ps", 0).as_deref(), Some("c:33"));
        assert_eq!(at("ps", 1), None);
        assert_eq!(at("worker", 0).as_deref(), Some("b:2"));
        assert_ne!(file.generation(), before);
        let before = file.generation();
        for broken in ["ps=", "nonsense, at length"] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(at("ps", 0).as_deref(), Some("c:33"));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(at("ps", 0).as_deref(), Some("c:33"));
        assert_eq!(file.generation(), before);
        assert!(ClusterFile::open(&path, str::parse).is_err());
    }
}
