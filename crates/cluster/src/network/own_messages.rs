//! Messages of our own services and extensions. TensorFlow's messages and those of gRPC's health protocol
//! are in `thalweg-proto`.

use thalweg_kernel::Device;
use thalweg_tensor::Origin;

/// Request of `/thalweg.Peer/Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {
    /// Maximum number of waits in the response.
    #[prost(uint32, tag = "1")]
    pub waits_max: u32,
    /// Whether the response lists the tasks of the cluster.
    #[prost(bool, tag = "2")]
    pub with_cluster: bool,
}

/// The status of a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    /// Its name, `/job:ps/replica:0/task:0`.
    #[prost(string, tag = "1")]
    pub task: String,
    /// The version of the program.
    #[prost(string, tag = "2")]
    pub version: String,
    /// A random number, drawn at the start of the task.
    #[prost(fixed64, tag = "3")]
    pub incarnation: u64,
    /// Names of its devices.
    #[prost(string, repeated, tag = "4")]
    pub devices: Vec<String>,
    /// Sessions of clients on its master.
    #[prost(uint64, tag = "5")]
    pub master_sessions: u64,
    /// Worker sessions that masters of other tasks have on it.
    #[prost(uint64, tag = "6")]
    pub worker_sessions: u64,
    /// Steps of clients that succeeded.
    #[prost(uint64, tag = "7")]
    pub master_steps: u64,
    /// Steps of clients that failed.
    #[prost(uint64, tag = "8")]
    pub master_steps_failed: u64,
    /// `RunGraph` calls that succeeded.
    #[prost(uint64, tag = "9")]
    pub worker_steps: u64,
    /// `RunGraph` calls that failed.
    #[prost(uint64, tag = "10")]
    pub worker_steps_failed: u64,
    /// Steps of clients that run now.
    #[prost(uint64, tag = "11")]
    pub steps_now: u64,
    /// Resident memory of the process.
    #[prost(uint64, tag = "12")]
    pub resident_bytes: u64,
    /// Limit on the memory of its tensors.
    #[prost(uint64, tag = "13")]
    pub memory_limit_bytes: u64,
    /// Number of its variables.
    #[prost(uint64, tag = "14")]
    pub variables: u64,
    /// Bytes of the values of its variables.
    #[prost(uint64, tag = "15")]
    pub variable_bytes: u64,
    /// Number of its other named resources: queues, tables, iterators.
    #[prost(uint64, tag = "16")]
    pub resources: u64,
    /// Time since it was started.
    #[prost(uint64, tag = "17")]
    pub uptime_ms: u64,
    /// Its waits, at most `waits_max`, the longest first.
    #[prost(message, repeated, tag = "18")]
    pub waits: Vec<WaitInfo>,
    /// Other tasks that it has reported as silent.
    #[prost(message, repeated, tag = "19")]
    pub silent: Vec<SilentTask>,
    /// Its process id.
    #[prost(uint32, tag = "20")]
    pub process: u32,
    /// Number of threads that run its kernels.
    #[prost(uint32, tag = "21")]
    pub threads: u32,
    /// Its accelerators.
    #[prost(message, repeated, tag = "22")]
    pub accelerators: Vec<AcceleratorInfo>,
    /// The tasks of its cluster, itself included, if that was asked for; none if it is in no cluster.
    #[prost(message, repeated, tag = "23")]
    pub cluster: Vec<TaskInfo>,
    /// Its queues by name, at most [`QUEUES_MAX`].
    #[prost(message, repeated, tag = "24")]
    pub queues: Vec<QueueInfo>,
    /// Bytes of tensors received from other tasks.
    #[prost(message, repeated, tag = "25")]
    pub received: Vec<ReceivedInfo>,
    /// The staleness clocks of the workers of a training that keeps them here: the steps of each.
    #[prost(int64, repeated, tag = "26")]
    pub clocks: Vec<i64>,
}

/// The most queues that a status lists.
pub const QUEUES_MAX: usize = 256;

/// A task of a cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskInfo {
    /// Its name, `/job:ps/replica:0/task:0`.
    #[prost(string, tag = "1")]
    pub task: String,
    /// Its address, `host:port`, in the cluster specification.
    #[prost(string, tag = "2")]
    pub address: String,
}

/// A queue of a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QueueInfo {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of its elements.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// The most that it may have; -1 if there is no limit.
    #[prost(int64, tag = "3")]
    pub capacity: i64,
}

/// What a task has received from another one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReceivedInfo {
    /// The task that sent it.
    #[prost(string, tag = "1")]
    pub from: String,
    /// Bytes of its tensors in memory, since this task was started.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// An accelerator of a task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AcceleratorInfo {
    /// The full name of the device.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its model.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// Programs compiled.
    #[prost(uint64, tag = "3")]
    pub compilations: u64,
    /// Programs loaded that an earlier process compiled.
    #[prost(uint64, tag = "4")]
    pub loads: u64,
    /// Programs run.
    #[prost(uint64, tag = "5")]
    pub executions: u64,
    /// Bytes copied from the host.
    #[prost(uint64, tag = "6")]
    pub bytes_from_host: u64,
    /// Bytes copied to the host.
    #[prost(uint64, tag = "7")]
    pub bytes_to_host: u64,
    /// Bytes of its memory in use.
    #[prost(uint64, tag = "8")]
    pub memory_used_bytes: u64,
    /// The most that were in use at once.
    #[prost(uint64, tag = "9")]
    pub memory_peak_bytes: u64,
    /// The most that may be.
    #[prost(uint64, tag = "10")]
    pub memory_limit_bytes: u64,
}

impl AcceleratorInfo {
    /// What a device says of itself, if it counts.
    pub(crate) fn of(device: &dyn Device) -> Option<AcceleratorInfo> {
        let stats = device.stats()?;
        Some(AcceleratorInfo {
            name: device.description().name.to_string(),
            kind: stats.kind,
            compilations: stats.compilations,
            loads: stats.loads,
            executions: stats.executions,
            bytes_from_host: stats.bytes_from_host,
            bytes_to_host: stats.bytes_to_host,
            memory_used_bytes: stats.memory_used_bytes,
            memory_peak_bytes: stats.memory_peak_bytes,
            memory_limit_bytes: stats.memory_limit_bytes,
        })
    }
}

/// One wait.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WaitInfo {
    /// The kind of wait.
    #[prost(enumeration = "WaitKind", tag = "1")]
    pub kind: i32,
    /// The step id; zero if there is no step yet.
    #[prost(uint64, tag = "2")]
    pub step: u64,
    /// The task that waits.
    #[prost(string, tag = "3")]
    pub task: String,
    /// The task that it waits for; empty if it waits for no task.
    #[prost(string, tag = "4")]
    pub of: String,
    /// The rendezvous key or the node that waits.
    #[prost(string, tag = "5")]
    pub what: String,
    /// The node's op.
    #[prost(string, tag = "6")]
    pub op: String,
    /// The node of the resource that it waits on: a queue, an accumulator.
    #[prost(string, tag = "7")]
    pub on: String,
    /// Duration of the wait.
    #[prost(uint64, tag = "8")]
    pub waited_ms: u64,
}

/// Kinds of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
pub enum WaitKind {
    /// A node of a step waits for a queue, an accumulator or a file.
    Node = 0,
    /// A task waits for a tensor of another.
    Tensor = 1,
    /// A master waits for the answer to `RunGraph`.
    Partition = 2,
    /// `CreateSession` waits for a task to start.
    Task = 3,
}

/// A silent task.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SilentTask {
    /// Its name.
    #[prost(string, tag = "1")]
    pub task: String,
    /// Duration of its silence.
    #[prost(uint64, tag = "2")]
    pub silent_ms: u64,
}

/// Request of `/thalweg.Peer/Stop`: the task ends, as by SIGTERM, once it has no session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StopRequest {
    /// The name of the task, `/job:ps/replica:0/task:0`; another task at the same address refuses.
    #[prost(string, tag = "1")]
    pub task: String,
    /// After this long the task ends although it has sessions.
    #[prost(uint64, tag = "2")]
    pub grace_ms: u64,
}

/// The task will end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StopResponse {}

/// Fields of ours in a `RunGraphResponse`. TensorFlow's masters skip them as unknown fields.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunGraphResponseExtension {
    /// What the worker adds to its answer.
    #[prost(message, optional, tag = "20000")]
    pub(crate) partition: Option<PartitionEnd>,
}

/// How the run of a worker's partition ended, beyond what TensorFlow's message says.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartitionEnd {
    /// Whether the worker has dropped all state of the step: it needs no `CleanupGraph`.
    #[prost(bool, tag = "1")]
    pub(crate) is_cleaned_up: bool,
    /// Where the error in the response arose.
    #[prost(message, optional, tag = "2")]
    pub(crate) error: Option<ErrorOrigin>,
    /// When the partition of a traced step began, in ns since 1970 by the worker's clock.
    #[prost(fixed64, tag = "3")]
    pub(crate) began_ns: u64,
    /// When it had ended.
    #[prost(fixed64, tag = "4")]
    pub(crate) ended_ns: u64,
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
    /// The task on which it failed.
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
