//! Critical sections in a graph, under a mutex on some task.

use thalweg_api::{Graph, NewOp, Operation, Output, Resource, Variant, tf};

use crate::view::after;

/// A mutex on a task, shared by name. A step that fails or is aborted releases it.
#[derive(Clone, Debug)]
pub(crate) struct Mutex {
    handle: Output<Resource>,
}

/// An open critical section: nodes that are added to its view run under the mutex.
pub(crate) struct Section {
    lock: Output<Variant>,
    pub(crate) inside: Graph,
}

impl Mutex {
    pub(crate) fn new(graph: &Graph, device: &str, name: &str) -> Mutex {
        let beside = graph.root().device(device);
        Mutex {
            handle: NewOp::new(&beside, "MutexV2").name(name).attr("shared_name", name).output(),
        }
    }

    /// Waits for the mutex once the `ready` nodes have run.
    pub(crate) fn enter(&self, at: &Graph, ready: &[Operation]) -> Section {
        let lock = tf::mutex_lock(self.handle.within(&after(at, ready)));
        Section { inside: at.after(&[&lock]), lock }
    }
}

impl Section {
    /// Makes nodes that are added from now on run after `nodes` too.
    pub(crate) fn after(&mut self, nodes: &[Operation]) {
        self.inside = after(&self.inside, nodes);
    }

    /// Releases the mutex after `nodes`.
    pub(crate) fn leave(self, name: &str, nodes: &[Operation]) -> Operation {
        let at = after(&self.inside, nodes);
        NewOp::new(&at, "ConsumeMutexLock").name(name).input(&self.lock).operation()
    }
}

/// Fails the step with `sentence` unless the condition holds; the error shows the numbers.
pub(crate) fn check(holds: &Output<bool>, sentence: &str, shown: &Output<i64>) -> Operation {
    let sentence = holds.graph().constant::<String>(sentence);
    tf::assert(holds, &[sentence.any(), shown.any()])
}
