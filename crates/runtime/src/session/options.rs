//! Options of a session and of a step.

use std::sync::Arc;
use std::time::Duration;

use thalweg_kernel::{
    Cancellation, Device, DeviceDescription, DeviceName, Environment, HostDevice, PhysicalDevice,
    ResourceManager, name_devices,
};
use thalweg_plan::{Links, Options};
use thalweg_tensor::Budget;

use crate::environment::{memory_limit_bytes, system_environment};
use crate::pool::Pool;
use crate::session::remote_tasks::RemoteTasks;

/// Options of a session.
#[derive(Clone)]
pub struct SessionOptions {
    /// Threads that may run nodes of one step at once, the caller's among them; for each device,
    /// and for each function that runs within the step.
    pub inter_threads: usize,
    /// Threads that may share one kernel's loop, the kernel's own among them.
    pub intra_threads: usize,
    /// Bytes that the session's tensors and objects may take together, where `budget` is `None`.
    pub memory_limit_bytes: usize,
    /// The budget of the task that the session belongs to: the session's own budget is a child of it,
    /// and state (variables, queues, tables) is charged to it. `None` makes one of
    /// `memory_limit_bytes` for this session alone.
    pub budget: Option<Arc<Budget>>,
    /// Whether kernels keep the packed form of weights that several steps multiply by, charged to the
    /// session: for sessions whose variables do not change.
    pub keeps_packed_weights: bool,
    /// Most cached plans; beyond, the least recently used is evicted.
    pub plans_max: usize,
    /// Options of planning.
    pub plan: Options,
    /// Devices to run on; the first one is the client's. Empty means one CPU.
    pub devices: Vec<Arc<dyn Device>>,
    /// Other tasks, whose devices plans may use too.
    pub remote_tasks: Option<Arc<dyn RemoteTasks>>,
    /// Speed of transfers between the devices.
    pub links: Links,
    /// Named state; `None` makes a manager for this session alone.
    pub resources: Option<Arc<ResourceManager>>,
    /// Clock, entropy and files.
    pub environment: Environment,
    /// Called for each node that a plan places.
    pub placement_log: Option<PlacementLog>,
}

impl SessionOptions {
    /// With one CPU and these accelerators as devices. Nodes that state no device run on the first
    /// accelerator if they can, as in TensorFlow.
    #[must_use]
    pub fn with_accelerators(self, accelerators: &[Arc<dyn PhysicalDevice>]) -> SessionOptions {
        let memory = self.memory_limit_bytes as u64;
        let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), memory);
        let accelerators = name_devices(accelerators, "localhost", 0, 1);
        let devices = std::iter::once(HostDevice::shared(cpu)).chain(accelerators).collect();
        SessionOptions { devices, ..self }
    }
}

/// Called with a node's name, its op and its device.
pub type PlacementLog = Arc<dyn Fn(&str, &str, &str) + Send + Sync>;

impl Default for SessionOptions {
    fn default() -> Self {
        let threads = Pool::global().threads();
        SessionOptions {
            inter_threads: threads,
            intra_threads: threads,
            memory_limit_bytes: memory_limit_bytes(),
            budget: None,
            keeps_packed_weights: false,
            plans_max: 256,
            plan: Options::default(),
            devices: Vec::new(),
            remote_tasks: None,
            links: Links::default(),
            resources: None,
            environment: system_environment(),
            placement_log: None,
        }
    }
}

/// Options of one step.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// The step ends with `DeadlineExceeded` after this long.
    pub timeout: Option<Duration>,
    /// Collect the times of nodes.
    pub trace: bool,
    /// Report the graphs that ran, one for each device.
    pub partition_graphs: bool,
    /// Report the cost of each node.
    pub cost_graph: bool,
    /// Cancelling this ends the step.
    pub cancellation: Option<Cancellation>,
    /// The client's number for the request, which a `StateObserver` sees; 0 if there is none.
    pub request_id: i64,
}
