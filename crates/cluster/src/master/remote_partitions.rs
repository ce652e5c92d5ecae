//! The partitions of a plan that other tasks run: `RegisterGraph` once, `RunGraph` in every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_graph::Graph;
use thalweg_kernel::{Cancellation, Registration};
use thalweg_plan::Partition;
use thalweg_proto as pb;
use thalweg_runtime::{
    RemotePartitions, RemotePartitionsDone, RunMetadata, RunOptions, TaskReport,
};
use thalweg_tensor::{Error, Result};
use tracing::trace;

use crate::cluster_spec::TaskName;
use crate::diagnostics::WaitTarget;
use crate::errors::from_task;
use crate::master::session_peers::{RemoteTask, SessionPeers};
use crate::master::step::{Action, Actions, Cleanup, Event, MasterStep};
use crate::network::single_flight::SingleFlight;
use crate::network::transport::{Call, RunGraphReport};

/// The partitions of one plan on other tasks, joined by task.
pub(crate) struct RegisteredPartitions {
    partitions: Arc<[Arc<RegisteredPartition>]>,
}

/// The partitions on one task, joined into one graph.
struct RegisteredPartition {
    peers: Arc<SessionPeers>,
    task: Arc<RemoteTask>,
    /// The graph, until it is registered.
    graph: Mutex<Option<pb::GraphDef>>,
    /// The graph handle that `RegisterGraph` returned.
    handle: SingleFlight<String>,
}

impl RegisteredPartitions {
    /// Groups partitions by the task of their device.
    pub(crate) fn new(
        peers: &Arc<SessionPeers>,
        partitions: Vec<Partition>,
    ) -> RegisteredPartitions {
        let mut by_task: BTreeMap<TaskName, Vec<Graph>> = BTreeMap::new();
        for partition in partitions {
            by_task.entry(TaskName::of(&partition.device)).or_default().push(partition.graph);
        }
        let partition = |(name, graphs): (TaskName, Vec<Graph>)| {
            Arc::new(RegisteredPartition {
                peers: peers.clone(),
                task: peers.task(&name),
                graph: Mutex::new(Some(joined(&graphs))),
                handle: SingleFlight::default(),
            })
        };
        RegisteredPartitions { partitions: by_task.into_iter().map(partition).collect() }
    }
}

/// The graphs of one task's devices as one `GraphDef`.
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

impl RegisteredPartition {
    /// Passes the graph handle to `then`, after `CreateWorkerSession` and `RegisterGraph` if this is the
    /// first step.
    fn with_handle(self: &Arc<Self>, then: impl FnOnce(Result<String>) + Send + 'static) {
        if !self.handle.get(Box::new(then)) {
            return;
        }
        let partition = self.clone();
        self.peers.create_worker_session(&self.task, move |opened| match opened {
            Ok(()) => partition.register(),
            Err(e) => partition.handle.complete(&Err(e)),
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
        let partition = self.clone();
        let done = Box::new(move |response: Result<pb::RegisterGraphResponse>| {
            let handle = response.map(|response| response.graph_handle);
            if handle.is_ok() {
                // Not needed again: a task that restarts has lost the worker session too.
                *partition.graph.lock() = None;
            }
            partition.handle.complete(&handle);
        });
        peers.call(&self.task.name, done, |transport, call, done| {
            transport.register_graph(call, request, done);
        });
    }
}

impl Drop for RegisteredPartition {
    fn drop(&mut self) {
        let Some(graph_handle) = self.handle.result().filter(|_| !self.peers.is_closed()) else {
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

impl RemotePartitions for RegisteredPartitions {
    fn start(
        &self,
        step: u64,
        options: &RunOptions,
        cancellation: &Cancellation,
        done: RemotePartitionsDone,
    ) -> Box<dyn Send + Sync> {
        if let Some(partition) = self.partitions.first() {
            let (session, tasks) = (&partition.peers.handle, self.partitions.len());
            trace!(
                target: "thalweg::step",
                session,
                step,
                "step {step} of session {session} starts on {tasks} other tasks"
            );
        }
        let times = options.trace.then(|| {
            if let Some(partition) = self.partitions.first() {
                let diagnostics = &partition.peers.member.diagnostics;
                diagnostics.sent.begin(step, diagnostics.wall());
            }
            self.partitions.iter().map(|_| Mutex::default()).collect()
        });
        let step = Arc::new(RemoteStep {
            times,
            partitions: self.partitions.clone(),
            step,
            reports: pb::ExecutorOpts {
                record_costs: options.cost_graph,
                record_timeline: options.trace,
                record_partition_graphs: options.partition_graphs,
                report_tensor_allocations_upon_oom: false,
            },
            machine: Mutex::new(MasterStep::new(self.partitions.len())),
            calls: self.partitions.iter().map(|_| Cancellation::default()).collect(),
            end: Mutex::new((Some(done), RunMetadata::default())),
        });
        let cancelled_step = step.clone();
        let cancelled = cancellation
            .on_cancel(move |cause| cancelled_step.handle(Event::Cancelled(cause.clone())));
        step.handle(Event::Begin);
        Box::new(CleanupOnDrop { step, _cancelled: cancelled })
    }
}

/// One step on the other tasks: drives a [`MasterStep`].
struct RemoteStep {
    partitions: Arc<[Arc<RegisteredPartition>]>,
    step: u64,
    reports: pb::ExecutorOpts,
    machine: Mutex<MasterStep>,
    /// For each partition, if the step is traced.
    times: Option<Box<[Mutex<CallTimes>]>>,
    /// Cancels the `RunGraph` call of each partition.
    calls: Box<[Cancellation]>,
    /// Called with the result of the step; and the reports received so far.
    end: Mutex<(Option<RemotePartitionsDone>, RunMetadata)>,
}

/// When a partition was called, in ns since 1970.
#[derive(Clone, Copy, Default)]
struct CallTimes {
    /// When it was to start.
    asked_ns: u64,
    /// When `RunGraph` was sent.
    sent_ns: u64,
}

/// Cleans the step up on all other tasks when it is dropped.
struct CleanupOnDrop {
    step: Arc<RemoteStep>,
    _cancelled: Registration,
}

impl Drop for CleanupOnDrop {
    fn drop(&mut self) {
        self.step.handle(Event::StepEnded);
        if let Some(partition) = self.step.partitions.first() {
            partition.peers.member.steps.clean_up(self.step.step);
        }
    }
}

impl RemoteStep {
    fn handle(self: &Arc<Self>, event: Event) {
        let mut actions = Actions::new();
        self.machine.lock().handle(event, &mut actions);
        for action in actions {
            match action {
                Action::Run(i) => self.run(i),
                Action::CancelCall(i, cause) => self.calls[i].cancel(cause),
                Action::Finish(result) => self.finish(result),
                Action::Cleanup(i) => {
                    let partition = &self.partitions[i];
                    let request = pb::CleanupGraphRequest { step_id: self.step as i64 };
                    partition.peers.member.notify(&partition.task.name, |transport, call, done| {
                        transport.cleanup_graph(call, request, done);
                    });
                }
            }
        }
    }

    fn run(self: &Arc<Self>, i: usize) {
        if let Some(times) = &self.times {
            times[i].lock().asked_ns = self.now_ns(i);
        }
        let step = self.clone();
        self.partitions[i].with_handle(move |handle| match handle {
            Ok(handle) => step.send(i, handle),
            Err(e) => step.run_graph_done(i, Err(e)),
        });
    }

    fn send(self: &Arc<Self>, i: usize, graph_handle: String) {
        let partition = &self.partitions[i];
        let Some(transport) = &partition.peers.member.transport else { return };
        let request = pb::RunGraphRequest {
            session_handle: partition.peers.handle.clone(),
            create_worker_session_called: true,
            graph_handle,
            step_id: self.step as i64,
            exec_opts: Some(self.reports),
            store_errors_in_response_body: true,
            request_id: partition.peers.entropy().next_u64().max(1) as i64,
            ..Default::default()
        };
        let step = self.clone();
        let target = WaitTarget::RunGraph(partition.task.name.clone());
        let waits = partition.peers.member.diagnostics.wait(self.step, target);
        let done = Box::new(move |report: Result<RunGraphReport>| {
            drop(waits);
            step.run_graph_done(i, report);
        });
        let call = Call { to: &partition.task.name, timeout: None, cancellation: &self.calls[i] };
        if let Some(times) = &self.times {
            times[i].lock().sent_ns = self.now_ns(i);
        }
        transport.run_graph(call, request, done);
    }

    fn run_graph_done(self: &Arc<Self>, i: usize, report: Result<RunGraphReport>) {
        let result = match report {
            Ok(report) => {
                match &self.times {
                    Some(times) => {
                        self.keep_report(i, *times[i].lock(), report.metadata, report.ended_ns);
                    }
                    None => self.end.lock().1.absorb(report.metadata),
                }
                Ok(if report.is_cleaned_up { Cleanup::Done } else { Cleanup::Needed })
            }
            Err(e) => Err(self.with_task_name(i, e)),
        };
        self.handle(Event::RunGraphDone(i, result));
    }

    /// Keeps the report of a traced partition until the clock of its task is known.
    fn keep_report(
        &self,
        i: usize,
        CallTimes { asked_ns, sent_ns }: CallTimes,
        metadata: RunMetadata,
        ended_ns: u64,
    ) {
        let partition = &self.partitions[i];
        let last_ns = metadata.nodes.iter().map(|n| n.end_ns).max().unwrap_or(0);
        let report = TaskReport {
            task: partition.task.name.to_string(),
            asked_ns,
            sent_ns,
            answered_ns: self.now_ns(i),
            began_ns: metadata.started_ns,
            ended_ns: match ended_ns {
                // A task of TensorFlow.
                0 => metadata.started_ns.saturating_add(last_ns),
                ended_ns => ended_ns,
            },
            metadata,
        };
        let merged = &mut self.end.lock().1;
        (merged.step, merged.master) = (self.step, partition.peers.member.name.to_string());
        merged.task_reports.push(report);
    }

    fn now_ns(&self, i: usize) -> u64 {
        self.partitions[i].peers.member.diagnostics.wall().as_nanos() as u64
    }

    fn with_task_name(&self, i: usize, error: Error) -> Error {
        from_task(&self.partitions[i].task.name.to_string(), error)
    }

    fn finish(&self, result: Result<()>) {
        let (done, report) = std::mem::take(&mut *self.end.lock());
        if let Some(done) = done {
            done(result.map(|()| report));
        }
    }
}
