//! The environment of an ordinary process: the system's clock, entropy and files; its memory limit.
#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use thalweg_formats::LocalStorage;
use thalweg_kernel::{Clock, Entropy, Environment};

/// Bytes of memory that are assumed if the system does not report them.
const FALLBACK_MEMORY_BYTES: u64 = 4 << 30;

/// The environment of an ordinary process.
pub fn system_environment() -> Environment {
    Environment {
        clock: Arc::new(SystemClock { start: Instant::now() }),
        entropy: Arc::new(SystemEntropy { counter: AtomicU64::new(0), keys: RandomState::new() }),
        storage: Arc::new(LocalStorage::default()),
    }
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

/// A counter hashed under keys that the standard library draws from the system.
struct SystemEntropy {
    counter: AtomicU64,
    keys: RandomState,
}

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}

/// 80 % of the machine's memory, or of the limit of this process's control groups if that is smaller.
pub fn memory_limit_bytes() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    });
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let group = group_memory_bytes(&groups, &read);
    let bytes = [machine, group].into_iter().flatten().min().unwrap_or(FALLBACK_MEMORY_BYTES);
    usize::try_from(bytes / 10 * 8).unwrap_or(usize::MAX)
}

/// The smallest memory limit of the process's control groups and their ancestors, of version 1 or 2;
/// `groups` is the content of /proc/self/cgroup. In a container the root of the visible hierarchy is
/// the process's group, whatever its name outside.
fn group_memory_bytes(groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = match number {
            "0" if controllers.is_empty() => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = PathBuf::from(format!("{root}{group}"));
        let around = group.ancestors().take_while(|path| path.starts_with(root));
        // "max" is no number, and no limit.
        limits.extend(around.filter_map(|path| read(&path.join(file))?.trim().parse::<u64>().ok()));
    }
    limits.into_iter().min()
}

/// Resident set size of this process in bytes; 0 if the system does not report it.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The id of this start of the machine, which processes that share its clock have in common; empty if the system
/// does not report it.
pub fn system_boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        let read = |path: &Path| {
            let text = files.iter().find(|(name, _)| Path::new(name) == path)?.1;
            Some(text.to_owned())
        };
        group_memory_bytes(groups, &read)
    }

    #[test]
    fn limits_of_control_groups() {
        let second = "0::/system.slice/job\n";
        let inner = "/sys/fs/cgroup/system.slice/job/memory.max";
        assert_eq!(limit(second, &[(inner, "1000\n")]), Some(1000));
        let around = ("/sys/fs/cgroup/system.slice/memory.max", "500\n");
        assert_eq!(limit(second, &[(inner, "max\n"), around]), Some(500));
        assert_eq!(limit(second, &[(inner, "max\n")]), None);
        // In a container of the second version the group is the root.
        assert_eq!(limit("0::/\n", &[("/sys/fs/cgroup/memory.max", "7\n")]), Some(7));
        // The first version: outside a container, and inside, where only the root is ours.
        let first = "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n0::/docker/ab\n";
        let outside = "/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes";
        assert_eq!(limit(first, &[(outside, "42\n")]), Some(42));
        let inside = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(limit(first, &[(inside, "41\n")]), Some(41));
        assert_eq!(limit("broken\n1:\n", &[]), None);
        assert!(resident_bytes() > 1 << 20);
    }
}
