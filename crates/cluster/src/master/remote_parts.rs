//! Parts of a plan that other tasks run: registered with each once, started in every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, Registration};
use thalweg_plan::Partition;
use thalweg_proto as pb;
use thalweg_runtime::{RemotePartitions, RemotePartitionsDone, RunMetadata, RunOptions};
use thalweg_tensor::{Error, Result};
use tracing::trace;

use crate::cluster_spec::TaskName;
use crate::errors::from_task;
use crate::master::session_peers::{RemoteTask, SessionPeers};
use crate::master::step::{Action, Actions, Event, MasterStep, Rest};
use crate::network::single_flight::SingleFlight;
use crate::network::transport::{Call, RunGraphReport};
use crate::watch::Awaited;

/// The parts of a plan that run elsewhere.
pub(crate) struct Registered {
    parts: Arc<[Arc<RemotePart>]>,
}

/// One task's part of a plan.
struct RemotePart {
    peers: Arc<SessionPeers>,
    task: Arc<RemoteTask>,
    /// The graph, until the task has it.
    graph: Mutex<Option<pb::GraphDef>>,
    /// What the task calls it.
    handle: SingleFlight<String>,
}

impl Registered {
    /// Parts for the tasks whose devices they name.
    pub(crate) fn new(peers: &Arc<SessionPeers>, parts: Vec<Partition>) -> Registered {
        let mut by_task: BTreeMap<TaskName, Vec<Graph>> = BTreeMap::new();
        for part in parts {
            by_task.entry(TaskName::of(&part.device)).or_default().push(part.graph);
        }
        let part = |(name, graphs): (TaskName, Vec<Graph>)| {
            Arc::new(RemotePart {
                peers: peers.clone(),
                task: peers.task(&name),
                graph: Mutex::new(Some(joined(&graphs))),
                handle: SingleFlight::default(),
            })
        };
        Registered { parts: by_task.into_iter().map(part).collect() }
    }
}

/// The graphs of one task's devices as one message.
fn joined(graphs: &[Graph]) -> pb::GraphDef {
    let mut defs = graphs.iter().map(Graph::to_def);
    let mut whole = defs.next().unwrap_or_default();
    defs.for_each(|def| whole.node.extend(def.node));
    whole.library.get_or_insert_default();
    whole.versions.get_or_insert_with(|| pb::VersionDef {
        producer: thalweg_graph::GRAPH_VERSION,
        ..Default::default()
    });
    whole
}

impl RemotePart {
    /// Gives `then` the name by which the task knows the part; opens the session there and sends
    /// the graph first if that is still to be done.
    fn ready(self: &Arc<Self>, then: impl FnOnce(Result<String>) + Send + 'static) {
        if !self.handle.get(Box::new(then)) {
            return;
        }
        let part = self.clone();
        self.peers.open(&self.task, move |opened| match opened {
            Ok(()) => part.register(),
            Err(e) => part.handle.complete(&Err(e)),
        });
    }

    fn register(self: &Arc<Self>) {
        let peers = &self.peers;
        let request = pb::RegisterGraphRequest {
            session_handle: peers.handle.clone(),
            create_worker_session_called: true,
            graph_def: self.graph.lock().clone(),
            graph_options: Some(peers.config.graph_options.clone().unwrap_or_default()),
            debug_options: Some(pb::DebugOptions::default()),
            config_proto: Some(peers.config.clone()),
            ..Default::default()
        };
        let part = self.clone();
        let done = Box::new(move |response: Result<pb::RegisterGraphResponse>| {
            let handle = response.map(|response| response.graph_handle);
            if handle.is_ok() {
                // A task that starts anew has lost the session with it; it is never sent again.
                *part.graph.lock() = None;
            }
            part.handle.complete(&handle);
        });
        peers.ask(&self.task.name, done, |transport, call, done| {
            transport.register_graph(call, request, done);
        });
    }
}

impl Drop for RemotePart {
    fn drop(&mut self) {
        let Some(graph_handle) = self.handle.known().filter(|_| !self.peers.is_closed()) else {
            return;
        };
        let request = pb::DeregisterGraphRequest {
            session_handle: self.peers.handle.clone(),
            create_worker_session_called: true,
            graph_handle,
        };
        self.peers.member.notify(&self.task.name, |transport, call, done| {
            transport.deregister_graph(call, request, done);
        });
    }
}

impl RemotePartitions for Registered {
    fn start(
        &self,
        step: u64,
        options: &RunOptions,
        cancellation: &Cancellation,
        done: RemotePartitionsDone,
    ) -> Box<dyn Send + Sync> {
        if let Some(part) = self.parts.first() {
            let (session, tasks) = (&part.peers.handle, self.parts.len());
            trace!(
                target: "thalweg::step",
                session,
                step,
                "step {step} of session {session} starts on {tasks} other tasks"
            );
        }
        let under_way = Arc::new(UnderWay {
            parts: self.parts.clone(),
            step,
            reports: pb::ExecutorOpts {
                record_costs: options.cost_graph,
                record_timeline: options.trace,
                record_partition_graphs: options.partition_graphs,
                report_tensor_allocations_upon_oom: false,
            },
            machine: Mutex::new(MasterStep::new(self.parts.len())),
            calls: self.parts.iter().map(|_| Cancellation::default()).collect(),
            end: Mutex::new((Some(done), RunMetadata::default())),
        });
        let told = under_way.clone();
        let cancelled =
            cancellation.on_cancel(move |cause| told.on(Event::Cancelled(cause.clone())));
        under_way.on(Event::Begin);
        Box::new(Guard { under_way, _cancelled: cancelled })
    }
}

/// A step on its way on other tasks.
struct UnderWay {
    parts: Arc<[Arc<RemotePart>]>,
    step: u64,
    reports: pb::ExecutorOpts,
    machine: Mutex<MasterStep>,
    /// For each part, what ends its call.
    calls: Box<[Cancellation]>,
    /// Who is told of the end, and what was reported so far.
    end: Mutex<(Option<RemotePartitionsDone>, RunMetadata)>,
}

/// Ends the step everywhere when it is dropped.
struct Guard {
    under_way: Arc<UnderWay>,
    _cancelled: Registration,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.under_way.on(Event::Over);
        if let Some(part) = self.under_way.parts.first() {
            part.peers.member.steps.forget(self.under_way.step);
        }
    }
}

impl UnderWay {
    fn on(self: &Arc<Self>, event: Event) {
        let mut actions = Actions::new();
        self.machine.lock().on(event, &mut actions);
        for action in actions {
            match action {
                Action::Run(i) => self.run(i),
                Action::GiveUp(i, cause) => self.calls[i].cancel(cause),
                Action::Finish(result) => self.finish(result),
                Action::Cleanup(i) => {
                    let part = &self.parts[i];
                    let request = pb::CleanupGraphRequest { step_id: self.step as i64 };
                    part.peers.member.notify(&part.task.name, |transport, call, done| {
                        transport.cleanup_graph(call, request, done);
                    });
                }
            }
        }
    }

    fn run(self: &Arc<Self>, i: usize) {
        let step = self.clone();
        self.parts[i].ready(move |handle| match handle {
            Ok(handle) => step.send(i, handle),
            Err(e) => step.answered(i, Err(e)),
        });
    }

    fn send(self: &Arc<Self>, i: usize, graph_handle: String) {
        let part = &self.parts[i];
        let Some(transport) = &part.peers.member.transport else { return };
        let request = pb::RunGraphRequest {
            session_handle: part.peers.handle.clone(),
            create_worker_session_called: true,
            graph_handle,
            step_id: self.step as i64,
            exec_opts: Some(self.reports),
            store_errors_in_response_body: true,
            request_id: part.peers.entropy().next_u64().max(1) as i64,
            ..Default::default()
        };
        let step = self.clone();
        let awaited = Awaited::Part(part.task.name.clone());
        let waits = part.peers.member.watch.wait(self.step, awaited);
        let done = Box::new(move |report: Result<RunGraphReport>| {
            drop(waits);
            step.answered(i, report);
        });
        let call = Call { to: &part.task.name, timeout: None, cancellation: &self.calls[i] };
        transport.run_graph(call, request, done);
    }

    fn answered(self: &Arc<Self>, i: usize, report: Result<RunGraphReport>) {
        let result = match report {
            Ok(report) => {
                self.end.lock().1.absorb(report.metadata);
                Ok(if report.is_forgotten { Rest::Nothing } else { Rest::Something })
            }
            Err(e) => Err(self.named(i, e)),
        };
        self.on(Event::Answered(i, result));
    }

    fn named(&self, i: usize, error: Error) -> Error {
        from_task(&self.parts[i].task.name.to_string(), error)
    }

    fn finish(&self, result: Result<()>) {
        let (done, report) = std::mem::take(&mut *self.end.lock());
        if let Some(done) = done {
            done(result.map(|()| report));
        }
    }
}
