//! Sharing of memory between equal variables of two sessions.

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
    /// Lets variables share the memory of `other`'s variables of the same name and equal value. A later
    /// update of either copies the value first. Returns all variables that share memory now.
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
                // A variable that exceeds this session's budget keeps its own memory.
                if own.update(&*variable, "share", StepId::default(), take).is_err() {
                    continue;
                }
            }
            shared.push(SharedVariable { name: (container, name), bytes });
        }
        shared
    }
}

/// Whether two tensors are in host memory and bitwise equal.
fn is_same(a: &Tensor, b: &Tensor) -> bool {
    let is_alike = a.dtype() == b.dtype() && a.shape() == b.shape();
    let (Ok(x), Ok(y)) = (a.as_bytes(), b.as_bytes()) else { return false };
    is_alike && (a.shares_memory_with(b) || x == y)
}
