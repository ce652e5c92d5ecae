//! Which requests run on the thread that read them.
//!
//! Handing a step to the pool and its answer back wakes two threads. For a model of a few small ops that
//! takes longer than the step, and at load most of the server's time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use thalweg_runtime::Callable;
use thalweg_tensor::Tensor;

/// Bytes of inputs that a step may have and be taken for short: its time was learnt with others.
const FEED_BYTES_MAX: usize = 4 << 10;
/// A step that took longer keeps connections waiting.
const LONG: Duration = Duration::from_millis(1);
/// Steps that go to the pool after such a one.
const AWAY: u32 = 1000;

/// What is known of a method's steps.
#[derive(Default)]
pub(crate) struct Quick {
    /// Steps that have to go to the pool.
    away: AtomicU32,
}

impl Quick {
    /// Whether a step with these inputs may run on the thread that asks.
    pub(crate) fn allows(&self, callable: &Callable, feeds: &[Tensor]) -> bool {
        let bytes = feeds.iter().fold(0usize, |sum, t| sum.saturating_add(t.size_bytes()));
        if bytes > FEED_BYTES_MAX || !callable.is_short() {
            return false;
        }
        let away = self.away.load(Ordering::Relaxed);
        if away > 0 {
            // Several at once may count one step; that is as good.
            self.away.store(away - 1, Ordering::Relaxed);
        }
        away == 0
    }

    /// A step that was allowed took this long.
    pub(crate) fn ran(&self, took: Duration) {
        if took > LONG {
            self.away.store(AWAY, Ordering::Relaxed);
        }
    }
}
