//! Variables of two sessions that hold the same numbers, in the same memory.

use std::sync::Arc;

use thalweg_kernel::{StepId, Variable};
use thalweg_tensor::Tensor;

use crate::Session;

/// A variable that shares its value's memory with that of another session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedVariable {
    /// Its container and name.
    pub name: (Arc<str>, Arc<str>),
    /// Bytes of its value.
    pub bytes: usize,
}

impl Session {
    /// Has variables take the value that `other`'s variables of the same names have, where the two are
    /// equal, so that there is one of each in memory. Who changes one later changes a copy. Says which
    /// variables share now; those that did before are among them.
    pub fn share_variables(&self, other: &Session) -> Vec<SharedVariable> {
        let (own, others) = (self.core().resources(), other.core().resources());
        let mut shared = Vec::new();
        for (container, name, variable) in own.all_of::<Variable>() {
            let theirs = others.find::<Variable>(container.clone(), name.clone());
            let Some(theirs) = theirs.and_then(|v| v.snapshot()) else { continue };
            let Some(mine) = variable.snapshot().filter(|mine| is_same(mine, &theirs)) else {
                continue;
            };
            let bytes = mine.size_bytes();
            if !mine.shares_memory_with(&theirs) {
                let take = || variable.assign(theirs);
                // What there is no room for in this session's books stays as it is.
                if own.update(&*variable, "share", StepId::default(), take).is_err() {
                    continue;
                }
            }
            shared.push(SharedVariable { name: (container, name), bytes });
        }
        shared
    }
}

/// Whether two tensors are equal to the bit, and memory of the host.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    let is_alike = a.dtype() == b.dtype() && a.shape() == b.shape();
    let (Ok(x), Ok(y)) = (a.as_bytes(), b.as_bytes()) else { return false };
    is_alike && (a.shares_memory_with(b) || x == y)
}
