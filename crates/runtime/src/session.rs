//! The in-process session: a graph, its state, and steps over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thalweg_graph::{Graph, Node};
use thalweg_kernel::{
    AnyKernel, Cancellation, Device, DeviceDescription, DeviceName, Environment, HostDevice,
    KernelRegistry, ResourceManager, StepContext,
};
use thalweg_plan::{Links, Options, StaticCosts, StepSignature, Target, compile};
use thalweg_proto as pb;
use thalweg_tensor::{Budget, Result, Tensor, ensure, err};

use crate::deadline;
use crate::environment::{memory_limit_bytes, system_environment};
use crate::executable::{Executable, KernelSource};
use crate::execute::{StepShared, StepState, Trace};
use crate::functions::Functions;
use crate::metadata::RunMetadata;
use crate::plan_cache::{CachedPlan, KeyRef, PlanCache};
use crate::pool::{Pool, Share};

/// How a session runs.
#[derive(Clone)]
pub struct SessionOptions {
    /// Threads that may run nodes of one step at once, the caller's among them.
    pub inter_threads: usize,
    /// Threads that may share one kernel's loop, the kernel's own among them.
    pub intra_threads: usize,
    /// Bytes that the session's tensors may take together.
    pub memory_limit_bytes: usize,
    /// Plans kept; beyond, the least recently used goes.
    pub plans_max: usize,
    /// How plans are made.
    pub plan: Options,
    /// Devices to run on; the first one is the client's. Empty means one CPU.
    pub devices: Vec<Arc<dyn Device>>,
    /// How fast tensors move between the devices.
    pub links: Links,
    /// Named state; `None` makes a manager for this session alone.
    pub resources: Option<Arc<ResourceManager>>,
    /// Time, entropy and files.
    pub environment: Environment,
}

impl Default for SessionOptions {
    fn default() -> Self {
        let threads = Pool::global().threads();
        SessionOptions {
            inter_threads: threads,
            intra_threads: threads,
            memory_limit_bytes: memory_limit_bytes(),
            plans_max: 256,
            plan: Options::default(),
            devices: Vec::new(),
            links: Links::default(),
            resources: None,
            environment: system_environment(),
        }
    }
}

/// How one step runs.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// The step ends with `DeadlineExceeded` after this long.
    pub timeout: Option<Duration>,
    /// Collect the times of nodes.
    pub trace: bool,
    /// Cancelling this ends the step.
    pub cancellation: Option<Cancellation>,
}

/// A graph and everything to run it, usable from any number of threads at once.
///
/// State (variables, random generators) lives as long as the session or, where a
/// [`ResourceManager`] was given, as long as that.
pub struct Session {
    core: Arc<SessionCore>,
}

type NodeOnDevice = (Arc<str>, Arc<str>);

/// What steps and function calls share.
pub(crate) struct SessionCore {
    graph: RwLock<Graph>,
    kernels: Arc<KernelRegistry>,
    devices: Vec<Arc<dyn Device>>,
    descriptions: Vec<DeviceDescription>,
    pub(crate) options: SessionOptions,
    pub(crate) pool: &'static Pool,
    budget: Arc<Budget>,
    resources: Arc<ResourceManager>,
    parallel: Arc<Share>,
    plans: PlanCache,
    pub(crate) functions: Functions,
    /// By node and device.
    stateful_kernels: Mutex<FxHashMap<NodeOnDevice, AnyKernel>>,
    next_step: AtomicU64,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Idle step states refer to the core, and it to them.
        self.core.plans.clear();
        self.core.functions.clear();
    }
}

impl Session {
    /// A session over `graph` with these kernels.
    pub fn new(
        graph: Graph,
        kernels: Arc<KernelRegistry>,
        mut options: SessionOptions,
    ) -> Result<Session> {
        ensure!(options.inter_threads > 0, InvalidArgument, "inter_threads must be at least 1");
        ensure!(options.intra_threads > 0, InvalidArgument, "intra_threads must be at least 1");
        let mut devices = std::mem::take(&mut options.devices);
        if devices.is_empty() {
            let name = DeviceName::cpu("localhost", 0, 0);
            let memory = options.memory_limit_bytes as u64;
            devices.push(HostDevice::shared(DeviceDescription::cpu(name, memory)));
        }
        let resources =
            options.resources.clone().unwrap_or_else(|| ResourceManager::new("localhost"));
        let pool = Pool::global();
        let core = SessionCore {
            graph: RwLock::new(graph),
            kernels,
            descriptions: devices.iter().map(|d| d.description().clone()).collect(),
            devices,
            pool,
            budget: Budget::new(options.memory_limit_bytes),
            resources,
            parallel: Arc::new(Share { pool, threads: options.intra_threads }),
            plans: PlanCache::new(options.plans_max),
            functions: Functions::default(),
            stateful_kernels: Mutex::default(),
            next_step: AtomicU64::new(1),
            options,
        };
        Ok(Session { core: Arc::new(core) })
    }

    /// Adds nodes; plans made before stay good.
    pub fn extend(&self, def: pb::GraphDef) -> Result<()> {
        self.core.graph.write().extend(def)
    }

    /// Looks at the graph as it stands.
    pub fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        self.core.with_graph(look)
    }

    /// Feeds tensors, runs what the fetches and targets need, returns the fetches in order.
    pub fn run(
        &self,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Vec<Tensor>> {
        self.run_with(&RunOptions::default(), feeds, fetches, targets).map(|(tensors, _)| tensors)
    }

    /// As [`Session::run`], with options and a report.
    pub fn run_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let plan = self.core.plan(KeyRef { feeds: &feeds, fetches, targets })?;
        self.core.clone().run_plan(&plan, options, feeds.iter().map(|(_, tensor)| tensor.clone()))
    }

    /// Prepares one kind of step; calling it looks nothing up.
    pub fn make_callable(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Callable> {
        let plan = self.core.plan(KeyRef { feeds: &feeds, fetches, targets })?;
        Ok(Callable { core: self.core.clone(), plan })
    }

    /// How many nodes a step with these feeds, fetches and targets runs.
    pub fn planned_nodes(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<usize> {
        let plan = self.core.plan(KeyRef { feeds: &feeds, fetches, targets })?;
        Ok(plan.parts.iter().map(|p| p.nodes.len()).sum())
    }

    /// Memory that the session's tensors take now.
    pub fn memory_used_bytes(&self) -> usize {
        self.core.budget.used_bytes()
    }
}

/// One kind of step of a session, ready to run.
pub struct Callable {
    core: Arc<SessionCore>,
    plan: Arc<CachedPlan>,
}

impl Callable {
    /// Runs the step with feeds in the order they were named.
    pub fn call(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        self.call_with(&RunOptions::default(), feeds).map(|(tensors, _)| tensors)
    }

    /// As [`Callable::call`], with options and a report.
    pub fn call_with(
        &self,
        options: &RunOptions,
        feeds: &[Tensor],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let expected = self.plan.key.feeds.len();
        ensure!(
            feeds.len() == expected,
            InvalidArgument,
            "{expected} feeds expected, got {}",
            feeds.len()
        );
        self.core.clone().run_plan(&self.plan, options, feeds.iter().cloned())
    }
}

impl SessionCore {
    pub(crate) fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        look(&self.graph.read())
    }

    fn plan(&self, key: KeyRef<'_>) -> Result<Arc<CachedPlan>> {
        if let Some(plan) = self.plans.find(key) {
            return Ok(plan);
        }
        let feeds: Vec<&str> = (0..key.feeds.len()).map(|i| key.feeds.get(i)).collect();
        let graph = self.graph.read();
        let signature = StepSignature::resolve(&graph, &feeds, key.fetches, key.targets)?;
        let plan = compile(&graph, &signature, &self.target(&self.descriptions))?;
        drop(graph);
        let mut parts = Vec::with_capacity(plan.partitions.len());
        for partition in plan.partitions {
            let device = self
                .devices
                .iter()
                .find(|d| d.description().name == partition.device)
                .ok_or_else(|| err!(Internal, "{} is not a device here", partition.device))?;
            parts.push(Arc::new(self.make_executable(partition.graph, device)?));
        }
        Ok(self.plans.insert(key, CachedPlan::new(key.to_owned(), parts)))
    }

    fn target<'a>(&'a self, devices: &'a [DeviceDescription]) -> Target<'a> {
        Target {
            devices,
            links: &self.options.links,
            costs: &StaticCosts,
            kernels: &self.kernels,
            options: self.options.plan,
        }
    }

    fn make_executable(&self, graph: Graph, device: &Arc<dyn Device>) -> Result<Executable> {
        let device_name: Arc<str> = device.description().name.to_string().into();
        let stateful = |node: &Node, create: &dyn Fn() -> Result<AnyKernel>| {
            let mut kernels = self.stateful_kernels.lock();
            let key = (node.name.clone(), device_name.clone());
            if let Some(kernel) = kernels.get(&key) {
                return Ok(kernel.clone());
            }
            let kernel = create()?;
            kernels.insert(key, kernel.clone());
            Ok(kernel)
        };
        let source = KernelSource {
            kernels: &self.kernels,
            budget: &self.budget,
            environment: &self.options.environment,
            stateful: &stateful,
        };
        Executable::new(graph, device.clone(), &source)
    }

    /// Compiles a graph all of which runs on one device: a function's body.
    pub(crate) fn compile_for_one(
        &self,
        graph: &Graph,
        signature: &StepSignature,
        device: &Arc<dyn Device>,
    ) -> Result<Executable> {
        let descriptions = [device.description().clone()];
        let mut plan = compile(graph, signature, &self.target(&descriptions))?;
        let partition = plan.partitions.pop().ok_or_else(|| err!(Internal, "no partition"))?;
        self.make_executable(partition.graph, device)
    }

    fn run_plan(
        self: Arc<Self>,
        plan: &CachedPlan,
        options: &RunOptions,
        feeds: impl Iterator<Item = Tensor>,
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let step_id = self.next_step.fetch_add(1, Ordering::Relaxed);
        let is_plain = plan.parts.len() == 1 && options.cancellation.is_none() && !options.trace;
        let recycled = if is_plain { recycled_state(&plan.parts[0], step_id) } else { None };
        let mut states: SmallVec<[Arc<StepState>; 1]> = match recycled {
            Some(state) => smallvec::smallvec![state],
            None => self.new_states(plan, options, step_id),
        };
        // Feeds enter on the first device, which is the client's.
        if let Some(state) = Arc::get_mut(&mut states[0]) {
            for (i, tensor) in feeds.enumerate() {
                check_feed(plan, i, &tensor)?;
                state.set_feed(i, tensor);
            }
        }
        let deadline = options.timeout.map(|t| deadline::arm(&states[0].context.cancellation, t));
        let result = StepState::run_to_end(&states);
        drop(deadline);
        result?;
        let tensors: Vec<Tensor> =
            (0..plan.key.fetches.len()).map(|i| states[0].take_fetch(i)).collect::<Result<_>>()?;
        let nodes = if options.trace { states[0].shared.take_timings() } else { Vec::new() };
        if is_plain && let Some(state) = states.pop() {
            plan.parts[0].free.lock().push(state);
        }
        Ok((tensors, RunMetadata { nodes }))
    }

    fn new_states(
        self: &Arc<Self>,
        plan: &CachedPlan,
        options: &RunOptions,
        step_id: u64,
    ) -> SmallVec<[Arc<StepState>; 1]> {
        let cancellation = options.cancellation.clone().unwrap_or_default();
        let begin = || Trace::new(self.options.environment.clock.monotonic());
        let shared = Arc::new(StepShared::new(
            cancellation.clone(),
            (plan.parts.len() > 1).then(Arc::default),
            options.trace.then(begin),
            self.pool,
            self.options.inter_threads,
        ));
        let step_resources = ResourceManager::new("step");
        let state = |exec: &Arc<Executable>| {
            let context = Arc::new(StepContext {
                step_id,
                call_depth: 0,
                budget: self.budget.clone(),
                state_budget: self.budget.clone(),
                cancellation: cancellation.clone(),
                resources: self.resources.clone(),
                step_resources: step_resources.clone(),
                parallel: self.parallel.clone(),
                functions: self.clone(),
                environment: self.options.environment.clone(),
                device: exec.device.clone(),
            });
            Arc::new(StepState::new(exec, context, shared.clone()))
        };
        plan.parts.iter().map(state).collect()
    }
}

/// A state of an earlier step, ready for this one. One that somebody still holds is let go.
fn recycled_state(exec: &Executable, step_id: u64) -> Option<Arc<StepState>> {
    loop {
        let mut state = exec.free.lock().pop()?;
        if Arc::get_mut(&mut state).and_then(|s| s.reset(step_id)).is_some() {
            return Some(state);
        }
    }
}

fn check_feed(plan: &CachedPlan, i: usize, tensor: &Tensor) -> Result<()> {
    let node = &plan.parts[0].graph.nodes()[i];
    let expected = node.outputs[0].dtype;
    ensure!(
        tensor.dtype() == expected,
        InvalidArgument,
        "'{}' is {expected}, but {} was fed",
        plan.key.feeds[i],
        tensor.dtype()
    );
    Ok(())
}
