//! Options of a session and of a step.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thalweg_kernel::{
    Cancellation, Device, DeviceDescription, DeviceName, Environment, HostDevice, PhysicalDevice,
    ResourceManager, name_devices,
};
use thalweg_plan::{Choice, DeviceSpeeds, Links, Options, Reason};
use thalweg_tensor::Budget;

use crate::environment::{memory_limit_bytes, system_environment};
use crate::pool::Pool;
use crate::session::learning::SharedCosts;
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
    /// What devices, transfers and nodes cost. It is used, and extended by what steps measure, where
    /// devices are chosen by the cost model.
    pub cost_model: CostModel,
    /// Named state; `None` makes a manager for this session alone.
    pub resources: Option<Arc<ResourceManager>>,
    /// Clock, entropy and files.
    pub environment: Environment,
    /// Called for each node that a plan places, before the plan is used.
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

/// What devices, transfers and nodes cost; clones share the measurements.
#[derive(Clone, Default)]
pub struct CostModel {
    /// Latency and bandwidth of the links between devices.
    pub links: Links,
    /// Speeds of devices, where they are known better than their descriptions say.
    pub speeds: DeviceSpeeds,
    /// What nodes took in earlier steps.
    pub measured: SharedCosts,
}

/// A node that a plan places.
#[derive(Clone, Debug)]
pub struct PlacedNode<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Its op.
    pub op: &'a str,
    /// Its device.
    pub device: &'a DeviceName,
    /// Why it has this device.
    pub reason: Reason,
    /// When it finishes by the cost model, in seconds since the step's begin; `None` for the default
    /// rules.
    pub finish_seconds: Option<f64>,
    /// Where else it could be, and when it would finish there.
    pub elsewhere: Vec<(&'a DeviceName, f64)>,
}

impl fmt::Display for PlacedNode<'_> {
    /// The reason in a few words: `earliest finish (12 us; 40 us on ...)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.text())?;
        let Some(finish) = self.finish_seconds else { return Ok(()) };
        write!(f, " ({}", Microseconds(finish))?;
        let others = self.elsewhere.iter().filter(|(device, _)| *device != self.device);
        for (device, finish) in others.take(ELSEWHERE_SHOWN) {
            write!(f, "; {} on {device}", Microseconds(*finish))?;
        }
        f.write_str(")")
    }
}

/// Most other devices that the text of a [`PlacedNode`] lists.
const ELSEWHERE_SHOWN: usize = 3;

struct Microseconds(f64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} us", self.0 * 1e6)
    }
}

/// Called with each node that a plan places.
pub type PlacementLog = Arc<dyn Fn(&PlacedNode<'_>) + Send + Sync>;

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
            cost_model: CostModel::default(),
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
    /// How devices are chosen for this step, if not as in the session's options.
    pub placement: Option<Choice>,
    /// Cancelling this ends the step.
    pub cancellation: Option<Cancellation>,
    /// The client's number for the request, which a `StateObserver` sees; 0 if there is none.
    pub request_id: i64,
}
