//! Requests from outside to trace the next step of a client, and the steps that were traced.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use thalweg_runtime::RunMetadata;
use thalweg_tensor::{Result, ensure};
use tokio::sync::oneshot;

/// Most requests that wait for a step.
const WAITING_MAX: usize = 8;
/// Most traced steps that are kept.
const KEPT_MAX: usize = 8;
/// Most timings of a step that are kept; the earliest are.
const NODES_MAX: usize = 50_000;
/// Most timings of all kept steps together.
const KEPT_NODES_MAX: usize = 200_000;

/// A traced step of a client.
#[derive(Clone, Debug, Default)]
pub struct TracedStep {
    /// The number of the step; 0 if no other task took part.
    pub id: u64,
    /// The handle of the client's session.
    pub session: String,
    /// Its report, with the times of all tasks by the master's clock.
    pub metadata: RunMetadata,
}

/// Decides which steps are traced.
#[derive(Default)]
pub(crate) struct Tracer {
    /// Whether the next step is to be traced: all that other steps read.
    is_wanted: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<oneshot::Sender<Arc<TracedStep>>>,
    /// Whether a step is being traced.
    is_tracing: bool,
    kept: VecDeque<Arc<TracedStep>>,
}

/// The permission to trace a step. Dropping it without a report, as a failed step does, leaves the requests for
/// the next one.
pub(crate) struct Ticket(Arc<Tracer>);

impl Tracer {
    /// Asks for the next step; the result is sent when it has ended.
    pub(crate) fn next_step(&self) -> Result<oneshot::Receiver<Arc<TracedStep>>> {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.is_closed());
        ensure!(
            state.waiting.len() < WAITING_MAX,
            ResourceExhausted,
            "{WAITING_MAX} requests wait for a step to trace already"
        );
        let (sender, receiver) = oneshot::channel();
        state.waiting.push(sender);
        self.is_wanted.store(!state.is_tracing, Ordering::Relaxed);
        Ok(receiver)
    }

    /// The steps that were traced, the latest last.
    pub(crate) fn kept(&self) -> Vec<Arc<TracedStep>> {
        self.state.lock().kept.iter().cloned().collect()
    }

    /// Whether a step that begins now is to be traced.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Ticket> {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.is_closed());
        self.is_wanted.store(false, Ordering::Relaxed);
        if state.is_tracing || state.waiting.is_empty() {
            return None;
        }
        state.is_tracing = true;
        Some(Ticket(self.clone()))
    }
}

impl Ticket {
    /// The report of the step, for those who asked.
    pub(crate) fn report(self, session: &str, mut metadata: RunMetadata) {
        metadata.partition_graphs.clear();
        metadata.cost_graph = None;
        metadata.nodes.truncate(NODES_MAX);
        let id = metadata.step;
        let step = Arc::new(TracedStep { id, session: session.to_owned(), metadata });
        let mut state = self.0.state.lock();
        for waiting in state.waiting.drain(..) {
            // Those that have given up have no receiver.
            let _ = waiting.send(step.clone());
        }
        state.kept.push_back(step);
        let nodes = |kept: &VecDeque<Arc<TracedStep>>| -> usize {
            kept.iter().map(|step| step.metadata.nodes.len()).sum()
        };
        while state.kept.len() > KEPT_MAX || nodes(&state.kept) > KEPT_NODES_MAX {
            state.kept.pop_front();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_tracing = false;
        self.0.is_wanted.store(!state.waiting.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_at_a_time_is_traced_for_all_who_wait() {
        let tracer = Arc::new(Tracer::default());
        assert!(tracer.begin().is_none(), "nobody asked");
        let (mut first, second) = (tracer.next_step().unwrap(), tracer.next_step().unwrap());
        drop(second);
        let failed = tracer.begin().unwrap();
        assert!(tracer.begin().is_none(), "a step is being traced");
        drop(failed);
        let ticket = tracer.begin().expect("the request still waits");
        let mut late = tracer.next_step().unwrap();
        assert!(tracer.begin().is_none(), "a step is being traced");
        ticket.report("s", RunMetadata { step: 7, ..Default::default() });
        for receiver in [&mut first, &mut late] {
            assert_eq!(receiver.try_recv().unwrap().id, 7);
        }
        assert!(tracer.begin().is_none(), "all were answered");
    }

    #[test]
    fn requests_and_kept_steps_are_bounded() {
        let tracer = Arc::new(Tracer::default());
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| tracer.next_step().unwrap()).collect();
        assert!(tracer.next_step().is_err());
        drop(waiting);
        for step in 0..2 * KEPT_MAX as u64 {
            let _receiver = tracer.next_step().unwrap();
            let ticket = tracer.begin().unwrap();
            ticket.report("s", RunMetadata { step, ..Default::default() });
        }
        let kept: Vec<u64> = tracer.kept().iter().map(|step| step.id).collect();
        assert_eq!(kept, (KEPT_MAX as u64..2 * KEPT_MAX as u64).collect::<Vec<_>>());
    }
}
