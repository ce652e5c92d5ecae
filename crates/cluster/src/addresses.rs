//! Resolvers of task addresses. A task may restart at another address, so every connection attempt resolves it
//! again.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use thalweg_rpc::Resolve;
use thalweg_tensor::{Context, Result, ensure, err};
use tracing::warn;

use crate::cluster_spec::{ClusterSpec, TaskName};

/// Maximum size of a cluster file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Resolves tasks to addresses.
pub trait Addresses: Send + Sync {
    /// The current address of `task`, `host:port`; none if it is not known.
    fn address(&self, task: &TaskName) -> Option<String>;

    /// Changes whenever an address has changed.
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

/// Parses the text of a cluster file.
pub type ParseCluster = fn(&str) -> Result<ClusterSpec>;

/// A file with the tasks of a cluster and their addresses, read again when it has changed.
///
/// Only addresses may change. Tasks that are added to the file later are ignored; a task that is removed
/// from it keeps its last address.
pub struct ClusterFile {
    path: PathBuf,
    parse: ParseCluster,
    state: Mutex<State>,
}

struct State {
    cluster: ClusterSpec,
    /// Inode, length and modification time of the file when it was read.
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

    /// The cluster, after reading the file again if it has changed.
    pub fn cluster(&self) -> ClusterSpec {
        self.refreshed(|state| state.cluster.clone())
    }

    /// Calls `read_state` with the state, after reading the file again if it has changed.
    fn refreshed<R>(&self, read_state: impl FnOnce(&State) -> R) -> R {
        let mut state = self.state.lock();
        let now = std::fs::metadata(&self.path).ok().map(|found| Version::of(&found));
        if now.is_some() && now != state.version {
            state.version = now;
            match read(&self.path, self.parse) {
                Ok((cluster, version)) => state.update(&cluster, version),
                // The file may be half written; its next version will be read too.
                Err(e) => {
                    let path = self.path.display();
                    warn!(
                        target: "thalweg::cluster",
                        path = %path,
                        "{path}: {e}; the addresses that were read before stay in use"
                    );
                }
            }
        }
        read_state(&state)
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
    fn update(&mut self, cluster: &ClusterSpec, version: Version) {
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
    // Taken before the text is read: a later change gives another version.
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
    use thalweg_tensor::Code;

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
        // A task that was added later is unknown; a removed task keeps its address.
        std::fs::write(&path, "ps=c:33,d:4\n").unwrap();
        assert_eq!(at("ps", 0).as_deref(), Some("c:33"));
        assert_eq!(at("ps", 1), None);
        assert_eq!(at("worker", 0).as_deref(), Some("b:2"));
        assert_ne!(file.generation(), before);
        let before = file.generation();
        for broken in ["ps=", "no job list"] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(at("ps", 0).as_deref(), Some("c:33"));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(at("ps", 0).as_deref(), Some("c:33"));
        assert_eq!(file.generation(), before);
        let e = ClusterFile::open(&path, str::parse).err().expect("the file was removed");
        assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    }
}
