//! One task of a cluster: its name, its devices, and the state that outlives sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_graph::OpRegistry;
use thalweg_kernel::{
    Device, DeviceDescription, DeviceName, Environment, HostDevice, KernelRegistry, PhysicalDevice,
    ResourceManager, StateObserver, name_devices,
};
use thalweg_plan::Choice;
use thalweg_proto as pb;
use thalweg_runtime::{CostModel, memory_limit_bytes, system_environment};
use thalweg_tensor::{Budget, Result, ensure};

use crate::cluster_spec::TaskName;

/// Bytes of the memory limit that only messages may take; a sixteenth of a limit below 16 MiB.
const INCOMING_RESERVE_BYTES: usize = 1 << 20;

/// CPU devices that a task may have, or one session may ask for.
pub const CPUS_MAX: i32 = 256;

/// How tensors travel between tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TensorTransport {
    /// By the stream protocol between tasks of ours, by gRPC otherwise.
    #[default]
    Auto,
    /// By gRPC always, as TensorFlow's tasks do.
    Grpc,
}

/// Options of a task.
#[derive(Clone)]
pub struct TaskOptions {
    /// The job it belongs to.
    pub job: String,
    /// Its number within the job.
    pub index: u32,
    /// Bytes that tensors, objects and messages may take together: of all sessions, of state, and of
    /// requests that are being received.
    pub memory_limit_bytes: usize,
    /// Maximum number of concurrent steps, including steps that wait.
    pub steps_max: usize,
    /// Maximum number of nodes of a session's graph.
    pub graph_nodes_max: usize,
    /// Clock, entropy and file systems.
    pub environment: Environment,
    /// How long `CreateSession` waits for tasks that its graph names and that have never answered.
    pub startup_timeout: Duration,
    /// After this long without an answer another task is declared lost.
    pub heartbeat_timeout: Duration,
    /// Rewrites the graphs that masters of other tasks register, before validation.
    pub rewrite: Option<fn(&mut pb::GraphDef)>,
    /// How tensors travel to and from other tasks.
    pub tensor_transport: TensorTransport,
    /// Observes every change of the task's named state.
    pub observer: Option<Arc<dyn StateObserver>>,
    /// Default config of its clients' sessions. Its `device_count` is the number of the task's CPU
    /// devices.
    pub session_config: pb::ConfigProto,
    /// Its accelerators. Tasks of one process may share them.
    pub accelerators: Vec<Arc<dyn PhysicalDevice>>,
    /// How its clients' sessions choose devices, if their configs do not say it.
    pub placement: Choice,
    /// What devices, transfers and nodes cost; its clients' sessions share it.
    pub cost_model: CostModel,
}

impl Default for TaskOptions {
    fn default() -> Self {
        TaskOptions {
            job: "local".into(),
            index: 0,
            memory_limit_bytes: memory_limit_bytes(),
            steps_max: 100_000,
            graph_nodes_max: 4_000_000,
            environment: system_environment(),
            startup_timeout: Duration::from_secs(600),
            heartbeat_timeout: Duration::from_secs(30),
            rewrite: None,
            tensor_transport: TensorTransport::default(),
            observer: None,
            session_config: pb::ConfigProto::default(),
            accelerators: Vec::new(),
            placement: Choice::default(),
            cost_model: CostModel::default(),
        }
    }
}

/// A task: the state that its sessions share.
pub struct Task {
    /// Its options.
    pub options: TaskOptions,
    /// Its ops.
    pub ops: Arc<OpRegistry>,
    /// Its kernels.
    pub kernels: Arc<KernelRegistry>,
    /// Named state. TensorFlow calls the default container after the job.
    pub resources: Arc<ResourceManager>,
    /// The task's memory. Budgets of sessions are its children; state is charged to it.
    pub budget: Arc<Budget>,
    /// Memory of messages that are being received: a child of `budget` that keeps
    /// 1 MiB, so that a full task still takes requests to close sessions.
    pub incoming: Arc<Budget>,
    steps: Arc<AtomicUsize>,
    /// Differs from that of every other start of the task.
    pub incarnation: u64,
}

impl Task {
    /// A task without sessions or named state.
    pub fn new(options: TaskOptions, ops: Arc<OpRegistry>, kernels: Arc<KernelRegistry>) -> Task {
        let resources = ResourceManager::with_observer(&options.job, options.observer.clone());
        // Zero means "not known" in the protocol.
        let incarnation = options.environment.entropy.next_u64().max(1);
        let budget = Budget::new(options.memory_limit_bytes);
        let reserve = INCOMING_RESERVE_BYTES.min(options.memory_limit_bytes / 16);
        let incoming = Budget::child_with_reserve(&budget, reserve);
        Task {
            options,
            ops,
            kernels,
            resources,
            budget,
            incoming,
            steps: Arc::default(),
            incarnation,
        }
    }

    /// The task's name as messages have it, `/job:local/replica:0/task:0`.
    pub fn name(&self) -> String {
        format!("/job:{}/replica:0/task:{}", self.options.job, self.options.index)
    }

    /// Empties containers, the default one if none is named.
    pub(crate) fn reset(&self, containers: &[String]) {
        match containers {
            [] => self.resources.reset(""),
            containers => containers.iter().for_each(|c| self.resources.reset(c)),
        }
    }

    /// A permit for one concurrent step, released when it is dropped.
    pub(crate) fn begin_step(&self) -> Result<StepPermit> {
        let permit = StepPermit(self.steps.clone());
        let before = self.steps.fetch_add(1, Ordering::Relaxed);
        ensure!(
            before < self.options.steps_max,
            ResourceExhausted,
            "{before} steps are running, and this task runs at most {} at once; run fewer steps concurrently",
            self.options.steps_max
        );
        Ok(permit)
    }

    /// Number of running steps.
    pub fn steps(&self) -> usize {
        self.steps.load(Ordering::Relaxed)
    }

    /// Its devices: CPU devices, which share the machine's cores, then accelerators.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.first_devices(self.cpus())
    }

    /// The first `cpus` CPU devices, and the accelerators.
    pub(crate) fn first_devices(&self, cpus: u32) -> Vec<Arc<dyn Device>> {
        self.devices_of(&TaskName::new(&self.options.job, self.options.index), cpus)
    }

    /// How many CPU devices it has.
    pub(crate) fn cpus(&self) -> u32 {
        let count = self.options.session_config.device_count.get("CPU").copied().unwrap_or(1);
        count.clamp(1, CPUS_MAX) as u32
    }

    /// The same devices, under the task's name in a propagated cluster.
    pub(crate) fn devices_of(&self, task: &TaskName, cpus: u32) -> Vec<Arc<dyn Device>> {
        let device = |i: u32| {
            let name = DeviceName::cpu(&task.job, task.index, i);
            let memory = self.options.memory_limit_bytes as u64;
            let incarnation = self.incarnation.wrapping_add(u64::from(i));
            HostDevice::shared(DeviceDescription {
                incarnation,
                ..DeviceDescription::cpu(name, memory)
            })
        };
        let accelerators =
            name_devices(&self.options.accelerators, &task.job, task.index, self.incarnation);
        (0..cpus.max(1)).map(device).chain(accelerators).collect()
    }
}

/// A permit for one of a task's concurrent steps.
pub(crate) struct StepPermit(Arc<AtomicUsize>);

impl Drop for StepPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A device as a `DeviceAttributes` message.
pub(crate) fn attributes(device: &DeviceDescription) -> pb::DeviceAttributes {
    pb::DeviceAttributes {
        name: device.name.to_string(),
        device_type: device.name.device_type.clone(),
        memory_limit: device.memory_bytes as i64,
        locality: Some(pb::DeviceLocality::default()),
        incarnation: device.incarnation,
        xla_global_id: -1,
        ..Default::default()
    }
}
