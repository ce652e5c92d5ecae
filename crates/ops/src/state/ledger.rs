//! Memory charges of state that is not in tensors: map entries, strings.

use std::sync::Arc;

use thalweg_tensor::{Budget, Result};

/// Bytes charged for some state; they are released when the state is dropped.
pub(super) struct Ledger {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Ledger {
    pub(super) fn new(budget: Arc<Budget>) -> Ledger {
        Ledger { budget, bytes: 0 }
    }

    /// The budget that is charged.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Charges more bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Result<()> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Releases some bytes.
    pub(super) fn give(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.budget.give_back(bytes);
        self.bytes -= bytes;
    }

    /// Releases all bytes.
    pub(super) fn clear(&mut self) {
        self.give(self.bytes);
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.clear();
    }
}
