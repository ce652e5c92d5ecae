//! Metadata of a step: times of its nodes and of its calls to other tasks, collected on request.

use std::sync::Arc;

use thalweg_proto as pb;
use thalweg_tensor::{DType, Shape};

/// One execution of a node.
#[derive(Clone, Debug, Default)]
pub struct NodeTiming {
    /// The node.
    pub node: Arc<str>,
    /// Its op.
    pub op: String,
    /// The device it ran on.
    pub device: Arc<str>,
    /// The thread that ran it, or on which it completed, numbered from 0 by first appearance.
    pub thread: u32,
    /// When its inputs were there, in ns since the step began; then it waited for a thread.
    pub ready_ns: u64,
    /// When it started, in ns since the step began. A `_Recv` asks for its tensor then.
    pub start_ns: u64,
    /// When it ended, in ns since the step began: when the tensor of a `_Recv` had arrived, when an asynchronous
    /// kernel completed. A `_Send` may deliver its tensor to who waits for it before it ends.
    pub end_ns: u64,
    /// The node with its op and inputs: `sum = AddV2(a, b:1, ^first)`. A `_Send` or `_Recv` ends with its tensor
    /// and the device at the other end: `a/_1 = _Send(a, edge_1_a @/job:ps/replica:0/task:0/device:CPU:0)`.
    pub label: String,
    /// Its outputs that other nodes read.
    pub outputs: Vec<TracedOutput>,
}

/// An output tensor of a node.
#[derive(Clone, Debug)]
pub struct TracedOutput {
    /// Which of the node's outputs it is.
    pub slot: u32,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// Its size in memory.
    pub bytes: u64,
}

impl NodeTiming {
    /// Its inputs as the label lists them: `a`, `b:1`, `^first`.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.arguments().filter(|argument| !argument.contains(" @"))
    }

    /// The tensor that a `_Send` or `_Recv` transfers, and the device at the other end.
    pub fn transferred(&self) -> Option<(&str, &str)> {
        self.arguments().find_map(|argument| argument.split_once(" @"))
    }

    fn arguments(&self) -> impl Iterator<Item = &str> {
        let call = self.label.split_once(" = ").map_or("", |(_, call)| call);
        let arguments = call.split_once('(').map_or("", |(_, arguments)| arguments);
        arguments
            .strip_suffix(')')
            .unwrap_or("")
            .split(", ")
            .filter(|argument| !argument.is_empty())
    }
}

/// The clock of a task as seen from the master's.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskClock {
    /// The task, `/job:ps/replica:0/task:0`.
    pub task: String,
    /// What its clock showed more than the master's, in ns.
    pub offset_ns: i64,
    /// How far `offset_ns` may be off; `None` if nothing is known about the task's clock.
    pub error_ns: Option<u64>,
    /// The shortest round trip to the task; 0 if none was made.
    pub round_trip_ns: u64,
}

/// The part of a step that another task ran. Times are ns since the step began.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// The task.
    pub task: String,
    /// When the master was to start the part. If the task did not know the graph yet, it was registered first.
    pub asked_ns: u64,
    /// When `RunGraph` was sent.
    pub sent_ns: u64,
    /// When the task began.
    pub began_ns: u64,
    /// When the task had ended.
    pub ended_ns: u64,
    /// When its answer had arrived.
    pub answered_ns: u64,
}

/// A tensor that a task sent to another one, as the sender saw it. Times are ns since the step began.
#[derive(Clone, Debug, PartialEq)]
pub struct SentTensor {
    /// The rendezvous key.
    pub key: String,
    /// When the receiver's request had arrived.
    pub requested_ns: u64,
    /// When the request and the tensor were there, and it was sent.
    pub sent_ns: u64,
}

/// The report of a step, as TensorFlow's `RunMetadata`.
#[derive(Clone, Debug, Default)]
pub struct RunMetadata {
    /// When the step began, in ns since 1970; 0 unless nodes were timed.
    pub started_ns: u64,
    /// When a thread began to end the step, which gathers the fetches, in ns since the step began.
    pub ending_ns: u64,
    /// How long the step took on its master's task, in ns; 0 unless nodes were timed.
    pub duration_ns: u64,
    /// Nodes in the order in which they finished, up to a limit; empty unless tracing
    /// was asked for.
    pub nodes: Vec<NodeTiming>,
    /// The graphs that ran, one for each device, if they were asked for.
    pub partition_graphs: Vec<pb::GraphDef>,
    /// The cost of each node, if that was asked for.
    pub cost_graph: Option<pb::CostGraphDef>,
    /// The number of the step; 0 unless other tasks took part.
    pub step: u64,
    /// The task of the master; empty unless other tasks took part.
    pub master: String,
    /// The clocks by which times of other tasks were aligned.
    pub clocks: Vec<TaskClock>,
    /// The parts of the step that other tasks ran.
    pub dispatches: Vec<Dispatch>,
    /// What tasks of ours sent to others.
    pub sent: Vec<SentTensor>,
    /// Reports of other tasks that [`RunMetadata::merge`] is to add.
    pub task_reports: Vec<TaskReport>,
}

/// What another task reports of its part of a step, by its own clock.
#[derive(Clone, Debug, Default)]
pub struct TaskReport {
    /// The task.
    pub task: String,
    /// When the master was to start the part, in ns since 1970 by the master's clock.
    pub asked_ns: u64,
    /// When it sent `RunGraph`, by the master's clock.
    pub sent_ns: u64,
    /// When the answer had arrived, by the master's clock.
    pub answered_ns: u64,
    /// When the task began, by its own clock.
    pub began_ns: u64,
    /// When it had ended, by its own clock.
    pub ended_ns: u64,
    /// The report, by its own clock.
    pub metadata: RunMetadata,
}

impl RunMetadata {
    /// Merges the report of another task, by the same clock, about the same step.
    pub fn absorb(&mut self, other: RunMetadata) {
        if self.started_ns == 0 {
            self.started_ns = other.started_ns;
        }
        if self.step == 0 {
            (self.step, self.master) = (other.step, other.master);
        }
        // What began before the step did, as far as clocks can tell, is shown at its beginning.
        let at = shift(i128::from(other.started_ns) - i128::from(self.started_ns));
        self.nodes.extend(other.nodes.into_iter().map(|node| NodeTiming {
            ready_ns: at(node.ready_ns),
            start_ns: at(node.start_ns),
            end_ns: at(node.end_ns),
            ..node
        }));
        self.dispatches.extend(other.dispatches.into_iter().map(|dispatch| Dispatch {
            asked_ns: at(dispatch.asked_ns),
            sent_ns: at(dispatch.sent_ns),
            began_ns: at(dispatch.began_ns),
            ended_ns: at(dispatch.ended_ns),
            answered_ns: at(dispatch.answered_ns),
            ..dispatch
        }));
        self.sent.extend(other.sent.into_iter().map(|sent| SentTensor {
            requested_ns: at(sent.requested_ns),
            sent_ns: at(sent.sent_ns),
            ..sent
        }));
        self.clocks.extend(other.clocks);
        self.task_reports.extend(other.task_reports);
        self.partition_graphs.extend(other.partition_graphs);
        match (&mut self.cost_graph, other.cost_graph) {
            (Some(own), Some(theirs)) => own.node.extend(theirs.node),
            (own @ None, theirs) => *own = theirs,
            (Some(_), None) => {}
        }
    }
}

impl RunMetadata {
    /// Adds the report of another task, whose clock is known now, and what the task sent to others (in ns since
    /// 1970 by its clock).
    pub fn merge(&mut self, report: TaskReport, clock: TaskClock, sent: Vec<SentTensor>) {
        let TaskReport { task, asked_ns, sent_ns, answered_ns, began_ns, ended_ns, metadata } =
            report;
        if self.started_ns == 0 {
            self.started_ns = asked_ns;
        }
        let of_master = shift(-i128::from(self.started_ns));
        let of_task = shift(-i128::from(self.started_ns) - i128::from(clock.offset_ns));
        self.dispatches.push(Dispatch {
            task,
            asked_ns: of_master(asked_ns),
            sent_ns: of_master(sent_ns),
            began_ns: of_task(began_ns),
            ended_ns: of_task(ended_ns),
            answered_ns: of_master(answered_ns),
        });
        self.sent.extend(sent.into_iter().map(|sent| SentTensor {
            requested_ns: of_task(sent.requested_ns),
            sent_ns: of_task(sent.sent_ns),
            ..sent
        }));
        let started_ns = shift(-i128::from(clock.offset_ns))(metadata.started_ns);
        self.clocks.push(clock);
        self.absorb(RunMetadata { started_ns, ..metadata });
    }
}

/// Adds `delta` to a time; the result is not negative.
fn shift(delta: i128) -> impl Fn(u64) -> u64 {
    move |ns| (i128::from(ns) + delta).clamp(0, i128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(label: &str) -> NodeTiming {
        NodeTiming {
            node: "n".into(),
            op: "Op".into(),
            device: "d".into(),
            thread: 0,
            ready_ns: 0,
            start_ns: 10,
            end_ns: 30,
            label: label.into(),
            outputs: Vec::new(),
        }
    }

    #[test]
    fn labels_name_inputs_and_transferred_tensors() {
        let sum = timing("sum = AddV2(a, b:1, ^first)");
        assert_eq!(sum.inputs().collect::<Vec<_>>(), ["a", "b:1", "^first"]);
        assert_eq!(sum.transferred(), None);
        let send = timing("a/_1 = _Send(a, edge_1_a @/job:ps/replica:0/task:0/device:CPU:0)");
        assert_eq!(send.inputs().collect::<Vec<_>>(), ["a"]);
        let peer = "/job:ps/replica:0/task:0/device:CPU:0";
        assert_eq!(send.transferred(), Some(("edge_1_a", peer)));
        for odd in ["", "x", "c = Const()", "x = Op(", "[16B] 1.0Mb/s a from b to c"] {
            assert_eq!(
                (timing(odd).inputs().count(), timing(odd).transferred()),
                (0, None),
                "{odd}"
            );
        }
    }

    #[test]
    fn reports_of_other_tasks_are_shifted_by_their_clocks() {
        let mut own = RunMetadata { started_ns: 1_000_000, ..Default::default() };
        // The other clock is 900 us behind.
        let report = TaskReport {
            task: "/job:ps/replica:0/task:0".into(),
            asked_ns: 1_000_010,
            sent_ns: 1_000_020,
            answered_ns: 1_000_200,
            began_ns: 100_050,
            ended_ns: 100_150,
            metadata: RunMetadata {
                started_ns: 100_050,
                nodes: vec![timing("")],
                ..Default::default()
            },
        };
        let clock = TaskClock {
            task: report.task.clone(),
            offset_ns: -900_000,
            error_ns: Some(5),
            round_trip_ns: 10,
        };
        let sent = SentTensor { key: "k".into(), requested_ns: 100_060, sent_ns: 100_070 };
        own.merge(report, clock, vec![sent]);
        let (node, dispatch) = (&own.nodes[0], &own.dispatches[0]);
        assert_eq!((node.ready_ns, node.start_ns, node.end_ns), (50, 60, 80));
        assert_eq!((dispatch.asked_ns, dispatch.sent_ns, dispatch.began_ns), (10, 20, 50));
        assert_eq!((dispatch.ended_ns, dispatch.answered_ns), (150, 200));
        assert_eq!((own.sent[0].requested_ns, own.sent[0].sent_ns), (60, 70));
    }

    #[test]
    fn what_began_before_the_step_is_shown_at_its_begin() {
        let mut own = RunMetadata { started_ns: 1000, ..Default::default() };
        let nodes = vec![timing("")];
        own.absorb(RunMetadata { started_ns: 1100, nodes: nodes.clone(), ..Default::default() });
        own.absorb(RunMetadata { started_ns: 980, nodes, ..Default::default() });
        let times: Vec<_> = own.nodes.iter().map(|n| (n.ready_ns, n.start_ns, n.end_ns)).collect();
        assert_eq!(times, [(100, 110, 130), (0, 0, 10)]);
    }
}
