//! An incremental memory charge for a request whose size is not known in advance.

use std::sync::Arc;

use thalweg_tensor::{Budget, Result};

/// The first increment in bytes; later increments double the charge, so that many small allocations
/// do not each access the budget.
const FIRST_BYTES: usize = 4 << 10;

/// A charge that grows.
#[derive(Debug)]
pub(crate) struct GrowingCharge {
    budget: Arc<Budget>,
    used: usize,
    taken: usize,
}

impl GrowingCharge {
    /// An empty charge.
    pub(crate) fn new(budget: &Arc<Budget>) -> GrowingCharge {
        GrowingCharge { budget: budget.clone(), used: 0, taken: 0 }
    }

    /// Adds bytes to the charge.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        self.used = self.used.saturating_add(bytes);
        if self.used <= self.taken { Ok(()) } else { self.grow() }
    }

    #[cold]
    fn grow(&mut self) -> Result<()> {
        let needed = self.used - self.taken;
        let ahead = needed.max(self.taken).max(FIRST_BYTES);
        let taken = match self.budget.take(ahead) {
            Ok(()) => ahead,
            // The exact amount may still be available.
            Err(_) => self.budget.take(needed).map(|()| needed)?,
        };
        self.taken += taken;
        Ok(())
    }
}

impl Drop for GrowingCharge {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn it_charges_ahead_and_releases() {
        let budget = Budget::new(20 << 10);
        let mut charge = GrowingCharge::new(&budget);
        assert_eq!(budget.used_bytes(), 0);
        charge.add(1).unwrap();
        assert_eq!(budget.used_bytes(), 4 << 10);
        charge.add(4 << 10).unwrap();
        assert_eq!(budget.used_bytes(), 8 << 10);
        charge.add(10 << 10).unwrap();
        assert!((14 << 10..=20 << 10).contains(&budget.used_bytes()));
        assert_eq!(charge.add(10 << 10).err().map(|e| e.code()), Some(Code::ResourceExhausted));
        assert_eq!(charge.add(usize::MAX).err().map(|e| e.code()), Some(Code::ResourceExhausted));
        drop(charge);
        assert_eq!(budget.used_bytes(), 0);
    }
}
