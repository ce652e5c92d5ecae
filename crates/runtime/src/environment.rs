//! The real world: the system's clock, entropy, files and memory.
#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use thalweg_formats::LocalStorage;
use thalweg_kernel::{Clock, Entropy, Environment};

/// Memory taken for granted when the system does not tell.
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

/// 80 % of what the machine, or the control group that we are in, lets us have.
pub fn memory_limit_bytes() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    });
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    let bytes = [machine, group].into_iter().flatten().min().unwrap_or(FALLBACK_MEMORY_BYTES);
    usize::try_from(bytes / 10 * 8).unwrap_or(usize::MAX)
}
