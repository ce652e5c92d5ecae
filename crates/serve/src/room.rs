//! Memory that versions are taken to need: each alone, or several together for weights that are equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_runtime::SharedVariable;
use thalweg_tensor::Charge;

/// Memory that a version is taken to need, given back when it is gone.
pub(crate) struct Room {
    bytes: usize,
    parts: Mutex<Parts>,
}

struct Parts {
    /// What is for this version alone.
    own: Charge,
    /// What is for several, by the variable that they share; given back with the last of them.
    shared: BTreeMap<(Arc<str>, Arc<str>), Arc<Charge>>,
}

impl Room {
    /// Room for files of so many bytes, which are charged.
    pub(crate) fn new(bytes: usize, own: Charge) -> Room {
        Room { bytes, parts: Mutex::new(Parts { own, shared: BTreeMap::new() }) }
    }

    /// Bytes of the files, whether or not others share what was in them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// From now on the memory of this variable is that of `other`'s.
    pub(crate) fn share(&self, other: &Room, variable: &SharedVariable) {
        let name = &variable.name;
        let charge = {
            let Parts { own, shared } = &mut *other.parts.lock();
            let split = || Arc::new(own.split(variable.bytes));
            shared.entry(name.clone()).or_insert_with(split).clone()
        };
        let Parts { own, shared } = &mut *self.parts.lock();
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
    fn what_is_shared_is_charged_once_until_the_last_has_gone() {
        let budget = Budget::new(1000);
        let room = || Room::new(100, Charge::new(&budget, 100).unwrap());
        let variable = |name: &str, bytes| SharedVariable { name: ("".into(), name.into()), bytes };
        let (first, second, third) = (room(), room(), room());
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
        // More than there is: files may be smaller than what is made of them.
        let (first, second) = (room(), room());
        second.share(&first, &variable("w", 500));
        assert_eq!(budget.used_bytes(), 100);
        drop((first, second));
        assert_eq!(budget.used_bytes(), 0);
    }
}
