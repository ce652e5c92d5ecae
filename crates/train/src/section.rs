//! Critical sections in a graph, under a mutex on some task.

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result, Tensor};

use crate::ModelScope;

/// A mutex on a task, shared by name. A step that fails or is aborted releases it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutex {
    handle: Output,
}

/// An open critical section: nodes that are added to it run under the mutex.
pub(crate) struct Section {
    lock: Output,
    pub(crate) inside: ModelScope,
}

impl Mutex {
    pub(crate) fn new(model: &ModelScope, device: &str, name: &str) -> Result<Mutex> {
        let mut beside = model.top_on(device);
        let handle = beside.op("MutexV2").name(name).attr("shared_name", name).build()?;
        Ok(Mutex { handle })
    }

    /// Waits for the mutex once the `ready` nodes have run.
    pub(crate) fn enter(self, at: &ModelScope, ready: &[NodeId]) -> Result<Section> {
        let mut at = at.with_scope(at.after(&[]));
        let lock = at.op("MutexLock").input(self.handle).after(ready).build()?;
        Ok(Section { lock, inside: at.with_scope(at.after(&[lock.node])) })
    }
}

impl Section {
    /// Makes nodes that are added from now on run after `nodes` too.
    pub(crate) fn after(&mut self, nodes: &[NodeId]) {
        self.inside = self.inside.with_scope(self.inside.after(nodes));
    }

    /// Releases the mutex after `nodes`.
    pub(crate) fn leave(mut self, name: &str, nodes: &[NodeId]) -> Result<NodeId> {
        let node = self.inside.op("ConsumeMutexLock").name(name).input(self.lock);
        node.after(nodes).build_node()
    }
}

/// Fails the step with `sentence` unless the condition holds; the error shows the int64 tensors.
pub(crate) fn check(
    at: &mut ModelScope,
    holds: Output,
    sentence: &str,
    shown: Output,
) -> Result<NodeId> {
    let sentence = at.constant(&Tensor::scalar_string(sentence.to_owned()))?;
    let types = [DType::String, DType::Int64];
    let node = at.op("Assert").inputs(&[holds, sentence, shown]).attr("T", &types[..]);
    node.build_node()
}
