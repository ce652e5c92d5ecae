//! The world outside: time, entropy, files. Kernels see it only through these.

use std::sync::Arc;
use std::time::Duration;

use thalweg_formats::{NoStorage, Storage};

/// Time, so that a simulator can own it.
pub trait Clock: Send + Sync {
    /// Since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    /// Since 1970, as the machine believes.
    fn wall(&self) -> Duration;
}

/// Numbers that nobody can predict, for ops whose seeds are both 0.
pub trait Entropy: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// What a process lends its kernels.
#[derive(Clone)]
pub struct Environment {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unpredictable seeds.
    pub entropy: Arc<dyn Entropy>,
    /// Files that a step may touch.
    pub storage: Arc<dyn Storage>,
}

impl Environment {
    /// Time stands still, entropy is a counter, there are no files: for folding and for tests.
    pub fn frozen() -> Environment {
        let frozen = Arc::new(Frozen);
        Environment { clock: frozen.clone(), entropy: frozen, storage: Arc::new(NoStorage) }
    }
}

struct Frozen;

impl Clock for Frozen {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }
}

impl Entropy for Frozen {
    fn next_u64(&self) -> u64 {
        1
    }
}
