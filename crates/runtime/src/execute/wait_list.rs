//! Lists of waits that have not ended, for diagnosis of steps that do not progress.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::execute::executable::Executable;
use crate::session::Session;

/// Waits that have not ended. Adding and removing one takes a short lock and does no formatting.
pub struct WaitList<T>(Mutex<Slots<T>>);

struct Slots<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for WaitList<T> {
    fn default() -> Self {
        WaitList(Mutex::new(Slots { entries: Vec::new(), free: Vec::new() }))
    }
}

impl<T> WaitList<T> {
    /// Adds a wait, which ends when the guard is dropped.
    pub fn add(self: &Arc<Self>, wait: T) -> WaitGuard<T> {
        let mut slots = self.0.lock();
        let at = match slots.free.pop() {
            Some(at) => {
                slots.entries[at] = Some(wait);
                at
            }
            None => {
                slots.entries.push(Some(wait));
                slots.entries.len() - 1
            }
        };
        WaitGuard { list: self.clone(), at }
    }

    /// At most `most` of the waits, in no order.
    pub fn list(&self, most: usize) -> Vec<T>
    where
        T: Clone,
    {
        self.0.lock().entries.iter().flatten().take(most).cloned().collect()
    }
}

/// A wait in a [`WaitList`]; dropping it ends the wait.
pub struct WaitGuard<T> {
    list: Arc<WaitList<T>>,
    at: usize,
}

impl<T> Drop for WaitGuard<T> {
    fn drop(&mut self) {
        let mut slots = self.list.0.lock();
        let over = slots.entries[self.at].take();
        slots.free.push(self.at);
        drop(slots);
        // It may own the last reference to a graph: that is freed without the lock.
        drop(over);
    }
}

/// An asynchronous kernel that has started and not completed.
#[derive(Clone)]
pub(crate) struct PendingKernel {
    pub(crate) step: u64,
    pub(crate) exec: Arc<Executable>,
    pub(crate) node: u32,
    pub(crate) since: Duration,
}

/// A node that waits: for a queue, an accumulator, a file.
#[derive(Clone, Debug)]
pub struct NodeWait {
    /// The number of its step.
    pub step: u64,
    /// Its name.
    pub node: String,
    /// Its op.
    pub op: String,
    /// The node that its first input comes from: the queue or accumulator, if it has one.
    pub on: Option<String>,
    /// When it began, by the session's clock.
    pub since: Duration,
}

impl Session {
    /// At most `most` of the asynchronous nodes that have started and not completed, in no order.
    /// `_Recv` nodes are not among them: the rendezvous lists those.
    pub fn waits(&self, most: usize) -> Vec<NodeWait> {
        let describe = |wait: PendingKernel| {
            let graph = &wait.exec.graph;
            let node = &graph.nodes()[wait.node as usize];
            let on = node.inputs.first().map(|input| graph.node(input.node).name.to_string());
            NodeWait {
                step: wait.step,
                node: node.name.to_string(),
                op: node.op.name.clone(),
                on,
                since: wait.since,
            }
        };
        self.core().waits.list(most).into_iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_come_and_go() {
        let list = Arc::new(WaitList::default());
        let first = list.add(1);
        let second = list.add(2);
        assert_eq!(list.list(10), [1, 2]);
        assert_eq!(list.list(1), [1]);
        drop(first);
        assert_eq!(list.list(10), [2]);
        let third = list.add(3);
        assert_eq!(list.list(10), [3, 2]);
        drop((second, third));
        assert!(list.list(10).is_empty());
    }
}
