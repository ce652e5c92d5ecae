//! The environment of a process: clock, entropy and files. Kernels reach them only through this.

use std::sync::Arc;
use std::time::Duration;

use thalweg_formats::{NoStorage, Storage};

/// A clock; a simulator implements its own.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary fixed moment; monotonic.
    fn monotonic(&self) -> Duration;
    /// Time since 1970 by the system's clock.
    fn wall(&self) -> Duration;
}

/// Unpredictable random numbers, for ops whose seeds are both 0.
pub trait Entropy: Send + Sync {
    /// 64 random bits.
    fn next_u64(&self) -> u64;
}

/// Clock, entropy and files of a process.
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
    /// Time is always 0, entropy always 1, and there are no files: for constant folding and tests.
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
