//! Parts of a graph that run one at a time: critical sections under a mutex on some task.

use thalweg_graph::{NodeId, Output};
use thalweg_tensor::{DType, Result, Tensor};

use crate::Model;

/// A mutex on a task, found by its name by whoever asks for it. A step that fails or is aborted
/// lets go of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutex {
    handle: Output,
}

/// A critical section that is open: nodes that are added to it run under the mutex.
pub(crate) struct Section {
    lock: Output,
    pub(crate) inside: Model,
}

impl Mutex {
    pub(crate) fn new(model: &Model, device: &str, name: &str) -> Result<Mutex> {
        let mut beside = model.top_on(device);
        let handle = beside.op("MutexV2").name(name).attr("shared_name", name).build()?;
        Ok(Mutex { handle })
    }

    /// Waits for the mutex once `ready` nodes have run.
    pub(crate) fn enter(self, at: &Model, ready: &[NodeId]) -> Result<Section> {
        let mut at = at.with_scope(at.after(&[]));
        let lock = at.op("MutexLock").input(self.handle).after(ready).build()?;
        Ok(Section { lock, inside: at.with_scope(at.after(&[lock.node])) })
    }
}

impl Section {
    /// What is added from now on runs after `nodes` too.
    pub(crate) fn after(&mut self, nodes: &[NodeId]) {
        self.inside = self.inside.with_scope(self.inside.after(nodes));
    }

    /// Ends it after `nodes`.
    pub(crate) fn leave(mut self, name: &str, nodes: &[NodeId]) -> Result<NodeId> {
        let node = self.inside.op("ConsumeMutexLock").name(name).input(self.lock);
        node.after(nodes).build_node()
    }
}

/// Fails the step, with this sentence, unless it holds. What is shown are int64s.
pub(crate) fn check(
    at: &mut Model,
    holds: Output,
    sentence: &str,
    shown: Output,
) -> Result<NodeId> {
    let sentence = at.constant(&Tensor::scalar_string(sentence.to_owned()))?;
    let types = [DType::String, DType::Int64];
    let node = at.op("Assert").inputs(&[holds, sentence, shown]).attr("T", &types[..]);
    node.build_node()
}
