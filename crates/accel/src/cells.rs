//! The values of a region's variables while it is enqueued: all locked, so that another step updates them
//! before or after as a whole.

use std::sync::Arc;

use parking_lot::RwLockWriteGuard;
use thalweg_kernel::VariableBuffer;
use thalweg_tensor::{Result, Tensor, ensure, err};

use crate::inputs::Signature;
use crate::memory::is_sole_holder;

/// The values of a region's variables while it is enqueued.
pub(crate) enum Cells<'a> {
    /// Locked, in the order of the region's variables.
    Locked(Vec<Option<RwLockWriteGuard<'a, Tensor>>>),
    /// Copies of the references, where changes are observed.
    Snapshots(Vec<Option<Tensor>>),
}

impl<'a> Cells<'a> {
    pub(crate) fn lock(
        buffers: &'a [Option<Arc<VariableBuffer>>],
        is_observed: bool,
    ) -> Result<Cells<'a>> {
        if is_observed {
            let snapshot = |b: &Option<Arc<VariableBuffer>>| b.as_ref().map(|b| b.snapshot());
            return Ok(Cells::Snapshots(buffers.iter().map(snapshot).collect()));
        }
        let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].is_some()).collect();
        let address = |i: usize| buffers[i].as_ref().map(|b| Arc::as_ptr(b).addr());
        order.sort_by_key(|&i| address(i));
        ensure!(
            order.windows(2).all(|w| address(w[0]) != address(w[1])),
            Internal,
            "two variables share a buffer"
        );
        let mut guards: Vec<Option<RwLockWriteGuard<'a, Tensor>>> =
            buffers.iter().map(|_| None).collect();
        for i in order {
            guards[i] = buffers[i].as_ref().map(|b| b.lock());
        }
        Ok(Cells::Locked(guards))
    }

    pub(crate) fn get(&self, position: usize) -> Option<&Tensor> {
        match self {
            Cells::Locked(guards) => guards[position].as_deref(),
            Cells::Snapshots(snapshots) => snapshots[position].as_ref(),
        }
    }

    pub(crate) fn value(&self, position: usize) -> Result<Tensor> {
        self.get(position)
            .cloned()
            .ok_or_else(|| err!(Internal, "an argument of a region has no value"))
    }

    /// Whether nothing but the variable holds its memory.
    pub(crate) fn is_sole_holder(&self, position: usize) -> bool {
        match self {
            Cells::Locked(guards) => guards[position].as_deref().is_some_and(is_sole_holder),
            Cells::Snapshots(_) => false,
        }
    }

    /// Whether the values are of the types that a program was compiled for.
    pub(crate) fn fit(&self, signature: &Signature) -> bool {
        let types = signature.variables().iter().enumerate();
        types.into_iter().all(|(i, value_type)| match (self.get(i), value_type) {
            (Some(value), Some(value_type)) => value_type.is_of(value),
            (None, None) => true,
            _ => false,
        })
    }

    /// Replaces a value under its lock; the value comes back if there is no lock or it changes size.
    pub(crate) fn set(&mut self, position: usize, value: Tensor) -> Option<Tensor> {
        match self {
            Cells::Locked(guards) => match &mut guards[position] {
                Some(guard) if guard.num_elements() == value.num_elements() => {
                    **guard = value;
                    None
                }
                _ => Some(value),
            },
            Cells::Snapshots(_) => Some(value),
        }
    }
}
