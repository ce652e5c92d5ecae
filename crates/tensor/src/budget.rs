//! Limits on memory, and what has been taken against them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Result, bail};

/// A limit on the bytes that tensors of a session or a task may hold together.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(limit_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget { limit_bytes, used_bytes: AtomicUsize::new(0) })
    }

    /// The limit.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// What is taken now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// What could be taken now.
    pub fn left_bytes(&self) -> usize {
        self.limit_bytes.saturating_sub(self.used_bytes())
    }

    /// Takes `bytes`, or fails with `ResourceExhausted` and takes nothing.
    pub fn take(&self, bytes: usize) -> Result<()> {
        let before = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.checked_add(bytes).is_none_or(|total| total > self.limit_bytes) {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return self.refuse(bytes, before);
        }
        Ok(())
    }

    /// Whether `bytes` could be taken now; takes nothing.
    pub fn check(&self, bytes: usize) -> Result<()> {
        let used = self.used_bytes();
        if used.checked_add(bytes).is_none_or(|total| total > self.limit_bytes) {
            return self.refuse(bytes, used);
        }
        Ok(())
    }

    #[cold]
    fn refuse(&self, bytes: usize, used: usize) -> Result<()> {
        bail!(
            ResourceExhausted,
            "out of memory: {bytes} bytes asked for, {used} of {} in use",
            self.limit_bytes
        )
    }

    /// Gives back what [`Budget::take`] took.
    pub fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes taken from a budget for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Takes `bytes` from `budget`.
    pub fn new(budget: &Arc<Budget>, bytes: usize) -> Result<Charge> {
        budget.take(bytes)?;
        Ok(Charge { budget: budget.clone(), bytes })
    }

    /// So many of its bytes, or all there are, as a charge of their own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { budget: self.budget.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_charge_takes_nothing() {
        let budget = Budget::new(100);
        let first = Charge::new(&budget, 60).unwrap();
        assert!(Charge::new(&budget, 60).is_err());
        assert!(Charge::new(&budget, usize::MAX).is_err());
        assert_eq!((budget.used_bytes(), budget.left_bytes()), (60, 40));
        let mut first = first;
        let part = first.split(20);
        drop(first.split(100));
        assert_eq!(budget.used_bytes(), 20);
        drop((first, part));
        assert_eq!(budget.used_bytes(), 0);
    }
}
