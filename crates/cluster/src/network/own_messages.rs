//! Messages between tasks of ours. TensorFlow's, and those of the health protocol that probes speak,
//! are in `thalweg-proto`.

use thalweg_tensor::Origin;

/// `/thalweg.Peer/Status`: how a task is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {
    /// How many waits the answer may have.
    #[prost(uint32, tag = "1")]
    pub waits_max: u32,
}

/// What a task tells of itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    /// Its name, `/job:ps/replica:0/task:0`.
    #[prost(string, tag = "1")]
    pub task: String,
    /// The version of its program.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Differs from that of every other start of the task.
    #[prost(fixed64, tag = "3")]
    pub incarnation: u64,
    /// Names of its devices.
    #[prost(string, repeated, tag = "4")]
    pub devices: Vec<String>,
    /// Sessions that clients have opened here.
    #[prost(uint64, tag = "5")]
    pub master_sessions: u64,
    /// Sessions that masters of other tasks have opened here.
    #[prost(uint64, tag = "6")]
    pub worker_sessions: u64,
    /// Steps of clients that ended well here.
    #[prost(uint64, tag = "7")]
    pub master_steps: u64,
    /// Steps of clients that failed.
    #[prost(uint64, tag = "8")]
    pub master_steps_failed: u64,
    /// Parts of steps that ran here for masters of other tasks and ended well.
    #[prost(uint64, tag = "9")]
    pub worker_steps: u64,
    /// Such parts that failed.
    #[prost(uint64, tag = "10")]
    pub worker_steps_failed: u64,
    /// Steps of clients that are on their way now.
    #[prost(uint64, tag = "11")]
    pub steps_now: u64,
    /// Memory that the process has.
    #[prost(uint64, tag = "12")]
    pub resident_bytes: u64,
    /// Memory that its tensors may take.
    #[prost(uint64, tag = "13")]
    pub memory_limit_bytes: u64,
    /// Variables that it holds.
    #[prost(uint64, tag = "14")]
    pub variables: u64,
    /// Bytes of their values.
    #[prost(uint64, tag = "15")]
    pub variable_bytes: u64,
    /// Other named state: queues, tables, iterators.
    #[prost(uint64, tag = "16")]
    pub resources: u64,
    /// How long it has been up.
    #[prost(uint64, tag = "17")]
    pub uptime_ms: u64,
    /// What waits here, as far as was asked for.
    #[prost(message, repeated, tag = "18")]
    pub waits: Vec<WaitInfo>,
    /// Other tasks that owe it an answer and say nothing.
    #[prost(message, repeated, tag = "19")]
    pub silent: Vec<SilentTask>,
    /// Its process.
    #[prost(uint32, tag = "20")]
    pub process: u32,
    /// Threads that run its kernels.
    #[prost(uint32, tag = "21")]
    pub threads: u32,
}

/// Somebody waits for something.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WaitInfo {
    /// What kind of wait it is.
    #[prost(enumeration = "WaitKind", tag = "1")]
    pub kind: i32,
    /// The step; zero if there is none yet.
    #[prost(uint64, tag = "2")]
    pub step: u64,
    /// The task that waits.
    #[prost(string, tag = "3")]
    pub task: String,
    /// The task that it waits for; empty if that does not depend on a task.
    #[prost(string, tag = "4")]
    pub of: String,
    /// A rendezvous key, or a node.
    #[prost(string, tag = "5")]
    pub what: String,
    /// The node's op.
    #[prost(string, tag = "6")]
    pub op: String,
    /// The node that it waits on: a queue, an accumulator.
    #[prost(string, tag = "7")]
    pub on: String,
    /// For how long.
    #[prost(uint64, tag = "8")]
    pub waited_ms: u64,
}

/// Kinds of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
pub enum WaitKind {
    /// A node of a step: for a queue, an accumulator, a file.
    Node = 0,
    /// A task, for a tensor of another.
    Tensor = 1,
    /// A master, for another task to run its part of a step.
    Part = 2,
    /// A session that is being opened, for a task to be there.
    Task = 3,
}

/// A task that says nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SilentTask {
    /// Its name.
    #[prost(string, tag = "1")]
    pub task: String,
    /// For how long.
    #[prost(uint64, tag = "2")]
    pub silent_ms: u64,
}

/// `/thalweg.Peer/Stop`: a task is to end, as SIGTERM ends it, once nobody has a session on it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StopRequest {
    /// The task that is meant, `/job:ps/replica:0/task:0`: another one at its address does not end.
    #[prost(string, tag = "1")]
    pub task: String,
    /// How long it waits for sessions to be closed before it ends all the same.
    #[prost(uint64, tag = "2")]
    pub grace_ms: u64,
}

/// It will end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StopResponse {}

/// Fields of ours in a `RunGraphResponse`. TensorFlow's masters skip them as unknown fields.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunGraphResponseExtension {
    /// What the worker adds to its answer.
    #[prost(message, optional, tag = "20000")]
    pub(crate) part: Option<PartEnd>,
}

/// How a worker's part of a step ended, beyond what TensorFlow's message says.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartEnd {
    /// Whether the worker has dropped all state of the step: it needs no `CleanupGraph`.
    #[prost(bool, tag = "1")]
    pub(crate) is_forgotten: bool,
    /// Where the error in the response arose.
    #[prost(message, optional, tag = "2")]
    pub(crate) error: Option<ErrorOrigin>,
}

/// Where an error arose; its text is sent beside it and shows these fields already.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ErrorOrigin {
    /// The node that failed.
    #[prost(string, optional, tag = "1")]
    pub(crate) node: Option<String>,
    /// The function that could not be called.
    #[prost(string, optional, tag = "2")]
    pub(crate) function: Option<String>,
    /// The task that failed, if it is not the one that reports the error.
    #[prost(string, optional, tag = "3")]
    pub(crate) task: Option<String>,
}

impl From<ErrorOrigin> for Origin {
    fn from(ErrorOrigin { node, function, task }: ErrorOrigin) -> Origin {
        Origin { node, function, task }
    }
}

impl From<&Origin> for ErrorOrigin {
    fn from(Origin { node, function, task }: &Origin) -> ErrorOrigin {
        ErrorOrigin { node: node.clone(), function: function.clone(), task: task.clone() }
    }
}
