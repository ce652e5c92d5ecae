//! Memory reservations of loaded versions; versions that share equal variables share their charges.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_runtime::SharedVariable;
use thalweg_tensor::Charge;

/// The memory that a version is assumed to need, released when it is dropped.
pub(crate) struct MemoryReservation {
    bytes: usize,
    parts: Mutex<Charges>,
}

struct Charges {
    /// The charge of this version alone.
    own: Charge,
    /// Charges that several versions share, by variable; each is released with the last of them.
    shared: BTreeMap<(Arc<str>, Arc<str>), Arc<Charge>>,
}

impl MemoryReservation {
    /// A reservation for files of this size, which `own` charges.
    pub(crate) fn new(bytes: usize, own: Charge) -> MemoryReservation {
        MemoryReservation { bytes, parts: Mutex::new(Charges { own, shared: BTreeMap::new() }) }
    }

    /// The size of the files in bytes, whether or not their contents are shared.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Uses the charge of `other` for a variable that both share.
    pub(crate) fn share(&self, other: &MemoryReservation, variable: &SharedVariable) {
        let name = &variable.name;
        let charge = {
            let Charges { own, shared } = &mut *other.parts.lock();
            let split = || Arc::new(own.split(variable.bytes));
            shared.entry(name.clone()).or_insert_with(split).clone()
        };
        let Charges { own, shared } = &mut *self.parts.lock();
        if !shared.contains_key(name) {
            drop(own.split(variable.bytes));
            shared.insert(name.clone(), charge);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Budget;

    #[test]
    fn shared_variables_are_charged_once_until_the_last_version_is_dropped() {
        let budget = Budget::new(1000);
        let reservation = || MemoryReservation::new(100, Charge::new(&budget, 100).unwrap());
        let variable = |name: &str, bytes| SharedVariable { name: ("".into(), name.into()), bytes };
        let (first, second, third) = (reservation(), reservation(), reservation());
        second.share(&first, &variable("w", 70));
        second.share(&first, &variable("v", 20));
        assert_eq!(budget.used_bytes(), 210);
        third.share(&second, &variable("w", 70));
        third.share(&first, &variable("w", 70));
        assert_eq!(budget.used_bytes(), 140);
        drop(first);
        assert_eq!(budget.used_bytes(), 130);
        drop(second);
        assert_eq!(budget.used_bytes(), 100);
        drop(third);
        assert_eq!(budget.used_bytes(), 0);
        // The variables may exceed the reservation: files may be smaller than what is loaded from them.
        let (first, second) = (reservation(), reservation());
        second.share(&first, &variable("w", 500));
        assert_eq!(budget.used_bytes(), 100);
        drop((first, second));
        assert_eq!(budget.used_bytes(), 0);
    }
}
