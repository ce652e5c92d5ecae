//! The in-process session: a graph, its state and its cached plans. `step` runs steps.

pub(crate) mod callable;
pub(crate) mod fetch_collector;
pub(crate) mod learning;
pub(crate) mod metadata;
mod metadata_proto;
pub(crate) mod options;
pub(crate) mod partial_run;
mod partitions;
mod placement_log;
pub(crate) mod plan_cache;
pub(crate) mod registered;
pub(crate) mod remote_tasks;
pub(crate) mod report;
pub(crate) mod sharing;
pub(crate) mod step;
pub(crate) mod trace;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use thalweg_graph::{Flag, Graph, Node};
use thalweg_kernel::{
    AnyKernel, Device, DeviceDescription, DeviceName, FunctionRunner, HostDevice, KernelOrigin,
    KernelRegistry, NodeStates, ResourceManager, SessionContext,
};
use thalweg_plan::{
    MeasuredSource, Pins, Plan, StaticCosts, StepSignature, Target, compile, place_state,
};
use thalweg_proto as pb;
use thalweg_tensor::{Budget, Result, Shape, Tensor, ensure, err};

use crate::execute::executable::{Create, Executable, Interface, KernelSource, StatefulKernels};
use crate::execute::wait_list::{PendingKernel, WaitList};
use crate::functions::Functions;
use crate::pool::background::PoolJobs;
use crate::pool::{Pool, Share};
use crate::session::callable::SharedConstants;
use crate::session::learning::Learning;
use crate::session::metadata::RunMetadata;
use crate::session::options::{RunOptions, SessionOptions};
use crate::session::plan_cache::{CachedPlan, KeyRef, PlanCache};
use crate::session::step::Step;

/// Number of sessions that this process has made: the high bits of step numbers.
static SESSIONS: AtomicU64 = AtomicU64::new(0);
/// Bits of a step's number that count the session's steps; above them is the session's number.
const STEP_BITS: u32 = 40;

/// A graph and all that is needed to run it, usable from any number of threads at once.
///
/// State (variables, random generators) lives as long as the session or, where a
/// [`ResourceManager`] was given, as long as that.
pub struct Session {
    core: Arc<SessionCore>,
}

/// Where there is one device, state is bound to it.
static NO_PINS: LazyLock<Pins> = LazyLock::new(Pins::default);

type NodeOnDevice = (Arc<str>, DeviceName);

/// The session as its steps and function calls own it.
pub(crate) struct SessionCore {
    /// A reference to itself, for function calls that outlive the borrow by which they were made.
    pub(crate) this: Weak<SessionCore>,
    graph: RwLock<Graph>,
    kernels: Arc<KernelRegistry>,
    pub(crate) devices: Vec<Arc<dyn Device>>,
    descriptions: Vec<DeviceDescription>,
    pub(crate) options: SessionOptions,
    pub(crate) pool: &'static Pool,
    pub(crate) context: Arc<SessionContext>,
    plans: PlanCache,
    pub(crate) functions: Functions,
    /// What stateful nodes keep, whatever their device.
    node_states: Arc<NodeStates>,
    /// By node and device.
    stateful_kernels: Mutex<FxHashMap<NodeOnDevice, AnyKernel>>,
    /// Devices of stateful nodes, fixed by the first plan that placed them.
    pins: Mutex<Pins>,
    /// How many of the graph's nodes were there when the cost model last placed its state.
    placed_nodes: Mutex<usize>,
    next_step: AtomicU64,
    /// Asynchronous kernels that have started and not completed.
    pub(crate) waits: Arc<WaitList<PendingKernel>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Background jobs own the core until they end.
        self.core.context.background.closing().cancel(err!(Cancelled, "the session was closed"));
        // Recycled step states own the core, which owns them by its plans.
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
        let first_step = SESSIONS.fetch_add(1, Ordering::Relaxed) << STEP_BITS | 1;
        let core = Arc::new_cyclic(|this| SessionCore {
            this: this.clone(),
            graph: RwLock::new(graph),
            kernels,
            descriptions: devices.iter().map(|d| d.description().clone()).collect(),
            devices,
            pool,
            context: Arc::new(session_context(this, &options, resources)),
            plans: PlanCache::new(options.plans_max),
            functions: Functions::default(),
            node_states: Arc::default(),
            stateful_kernels: Mutex::default(),
            pins: Mutex::default(),
            placed_nodes: Mutex::default(),
            next_step: AtomicU64::new(first_step),
            waits: Arc::default(),
            options,
        });
        Ok(Session { core })
    }

    /// A session over another graph that shares this one's named state, devices and limits.
    pub fn beside(&self, graph: Graph) -> Result<Session> {
        let options = SessionOptions {
            devices: self.core.devices.clone(),
            resources: Some(self.core.context.resources.clone()),
            budget: Some(self.core.context.state_budget.clone()),
            ..self.core.options.clone()
        };
        Session::new(graph, self.core.kernels.clone(), options)
    }

    /// Adds nodes to the graph; cached plans stay valid.
    pub fn extend(&self, def: pb::GraphDef) -> Result<()> {
        self.core.graph.write().extend(def)
    }

    /// Calls `look` with the graph as it is now.
    pub fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        self.core.with_graph(look)
    }

    /// Runs one step: feeds tensors, runs the nodes that the fetches and targets need, and returns the
    /// fetches in order.
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
        let key = KeyRef { choice: options.placement, ..KeyRef::new(&feeds, fetches, targets) };
        let plan = self.core.plan(key)?;
        let feeds = feeds.iter().map(|(_, tensor)| tensor.clone());
        Step::with_feeds(&self.core, plan, options, feeds)?.run(options)
    }

    /// As [`Session::run_with`], but does not wait: the step runs on the pool, which also makes the plan
    /// if it is not cached, and one of its threads calls `done` at the end.
    pub fn start(
        &self,
        options: RunOptions,
        feeds: Vec<(String, Tensor)>,
        fetches: Vec<String>,
        targets: Vec<String>,
        done: impl FnOnce(Result<(Vec<Tensor>, RunMetadata)>) + Send + 'static,
    ) {
        let core = self.core.clone();
        self.core.pool.spawn(move || {
            let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
            let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
            let names = &feeds[..];
            let key = KeyRef::new(&names, &fetches, &targets);
            let key = KeyRef { choice: options.placement, ..key };
            let step = core.plan(key).and_then(|plan| {
                let feeds = feeds.into_iter().map(|(_, tensor)| tensor);
                Step::with_feeds(&core, plan, &options, feeds)
            });
            match step {
                Ok(step) => step.start(&options, done),
                Err(e) => done(Err(e)),
            }
        });
    }

    /// Number of nodes that a step with these feeds, fetches and targets runs on this task.
    pub fn planned_nodes(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<usize> {
        let plan = self.core.plan(KeyRef::new(&feeds, fetches, targets))?;
        Ok(plan.executables.iter().map(|p| p.nodes.len()).sum())
    }

    /// Number of cached plans.
    pub fn cached_plans(&self) -> usize {
        self.core.plans.len()
    }

    pub(crate) fn core(&self) -> &Arc<SessionCore> {
        &self.core
    }

    /// Bytes charged now for tensors and state of the session, and of the other sessions of its task if
    /// it shares a budget with them.
    pub fn memory_used_bytes(&self) -> usize {
        self.core.context.state_budget.used_bytes()
    }
}

impl SessionCore {
    pub(crate) fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        look(&self.graph.read())
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.context.budget
    }

    /// Adds the functions of another graph's library: gradients of functions, or a registered graph's.
    pub(crate) fn adopt_functions(&self, from: &Graph) {
        self.graph.write().adopt_functions(from);
    }

    pub(crate) fn plan(&self, key: KeyRef<'_>) -> Result<Arc<CachedPlan>> {
        if let Some(plan) = self.plans.find(key) {
            return Ok(plan);
        }
        let plan = self.make_plan(key, &[], &SharedConstants::default())?;
        Ok(self.plans.insert(key, plan))
    }

    /// A plan for feeds of these shapes, or of any shapes if there are none; `shared` are constants of
    /// another plan that it uses too.
    pub(crate) fn make_plan(
        &self,
        key: KeyRef<'_>,
        shapes: &[Shape],
        shared: &SharedConstants,
    ) -> Result<Arc<CachedPlan>> {
        ensure!(
            !key.fetches.is_empty() || !key.targets.is_empty(),
            InvalidArgument,
            "Must specify at least one target to fetch or execute."
        );
        let plan = self.compile(key, shapes)?;
        let choice = key.choice.unwrap_or(self.options.plan.choice);
        let learning = Learning::of(choice, &plan);
        self.finish_plan(key, shapes, (plan, learning), shared)
    }

    /// Makes what runs a plan.
    pub(crate) fn finish_plan(
        &self,
        key: KeyRef<'_>,
        shapes: &[Shape],
        (plan, learning): (Plan, Option<Arc<Learning>>),
        shared: &SharedConstants,
    ) -> Result<Arc<CachedPlan>> {
        let of_client = |count: usize| if key.is_partial { 0 } else { count };
        let client = Interface {
            feeds: of_client(key.feeds.len()),
            fetches: of_client(key.fetches.len()),
            is_function: false,
            is_partial: key.is_partial,
            may_receive_dead: false,
        };
        let (executables, remote) = self.make_executables(plan.partitions, client, shared)?;
        Ok(CachedPlan::new(key.to_owned(), shapes, executables, remote, learning))
    }

    /// The devices of this task and of the other tasks that are known, with the speeds that are known.
    pub(crate) fn all_devices(&self) -> Vec<DeviceDescription> {
        let mut devices = self.descriptions.clone();
        if let Some(tasks) = &self.options.remote_tasks {
            devices.extend(tasks.devices());
        }
        devices.into_iter().map(|d| self.options.cost_model.speeds.describe(d)).collect()
    }

    /// The devices of this task.
    pub(crate) fn own_devices(&self) -> &[DeviceDescription] {
        &self.descriptions
    }

    /// The device where feeds enter and fetches leave.
    pub(crate) fn client_device(&self) -> &DeviceDescription {
        &self.descriptions[0]
    }

    pub(crate) fn compile(&self, key: KeyRef<'_>, shapes: &[Shape]) -> Result<Plan> {
        let feeds: Vec<&str> = (0..key.feeds.len()).map(|i| key.feeds.get(i)).collect();
        let graph = self.graph.read();
        let mut signature = StepSignature::resolve(&graph, &feeds, key.fetches, key.targets)?;
        signature.feed_shapes = shapes.to_vec();
        signature.is_partial = key.is_partial;
        let devices = self.all_devices();
        let measured = self.options.cost_model.measured.read();
        let costs = MeasuredSource { measured: &measured, devices: &devices };
        let mut options = self.options.plan;
        options.choice = key.choice.unwrap_or(options.choice);
        let base = self.target(&devices, &NO_PINS);
        let base = Target { costs: &costs, options, ..base };
        if devices.len() == 1 {
            self.log_placement(&graph, &signature, &base)?;
            return compile(&graph, &signature, &base);
        }
        // Plans are made one after the other: where one places state, the next must too.
        let mut pins = self.pins.lock();
        let mut placed_nodes = self.placed_nodes.lock();
        if *placed_nodes < graph.len() {
            *placed_nodes = graph.len();
            *pins = place_state(&graph, &Target { pins: &pins, ..base });
        }
        let target = Target { pins: &pins, ..base };
        self.log_placement(&graph, &signature, &target)?;
        let plan = compile(&graph, &signature, &target)?;
        for partition in &plan.partitions {
            let stateful = partition.graph.nodes().iter().filter(|n| n.op.has(Flag::Stateful));
            for node in stateful.filter(|n| graph.find(&n.name).is_some()) {
                pins.entry(node.name.clone()).or_insert_with(|| partition.device.clone());
            }
        }
        Ok(plan)
    }

    /// The devices, links and kernels that plans are made for, with estimated costs.
    pub(crate) fn target<'a>(
        &'a self,
        devices: &'a [DeviceDescription],
        pins: &'a Pins,
    ) -> Target<'a> {
        Target {
            devices,
            links: &self.options.cost_model.links,
            costs: &StaticCosts,
            kernels: &self.kernels,
            pins,
            options: self.options.plan,
        }
    }

    /// The kernel of a stateful node, which all plans of the session share.
    pub(crate) fn stateful_kernel(
        &self,
        node: &Node,
        device: &DeviceName,
        create: Create<'_>,
    ) -> Result<AnyKernel> {
        let mut kernels = self.stateful_kernels.lock();
        let key = (node.name.clone(), device.clone());
        if let Some(kernel) = kernels.get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = create()?;
        kernels.insert(key, kernel.clone());
        Ok(kernel)
    }

    /// Named state.
    pub(crate) fn resources(&self) -> &Arc<ResourceManager> {
        &self.context.resources
    }

    /// From which kernels are created whose nodes have these states.
    fn kernel_origin(&self, states: Arc<NodeStates>) -> KernelOrigin {
        KernelOrigin {
            kernels: self.kernels.clone(),
            budget: self.context.budget.clone(),
            environment: self.options.environment.clone(),
            states,
        }
    }

    /// From which the kernels of the session's own nodes are created.
    pub(crate) fn own_kernel_origin(&self) -> KernelOrigin {
        self.kernel_origin(self.node_states.clone())
    }

    /// Compiles the body of a function for one device. Stateful kernels belong to the executable and keep
    /// their states in `states`: the names of its nodes are not unique in the session.
    pub(crate) fn compile_for_one(
        &self,
        graph: &Graph,
        signature: &StepSignature,
        interface: Interface,
        device: &Arc<dyn Device>,
        states: Arc<NodeStates>,
    ) -> Result<Executable> {
        let descriptions = [device.description().clone()];
        let pins = Pins::default();
        let mut plan = compile(graph, signature, &self.target(&descriptions, &pins))?;
        let partition = plan.partitions.pop().ok_or_else(|| err!(Internal, "no partition"))?;
        let constants = SharedConstants::default();
        let origin = self.kernel_origin(states);
        let stateful: &StatefulKernels<'_> = &|_, create| create();
        let source = KernelSource { origin: &origin, stateful, constants: &constants };
        Executable::new(partition.graph, device.clone(), interface, &source)
    }
}

/// What the steps of a session share; `core` runs their functions.
fn session_context(
    core: &Weak<SessionCore>,
    options: &SessionOptions,
    resources: Arc<ResourceManager>,
) -> SessionContext {
    let own = || Budget::new(options.memory_limit_bytes);
    let state_budget = options.budget.clone().unwrap_or_else(own);
    let functions: Weak<dyn FunctionRunner> = core.clone();
    let pool = Pool::global();
    SessionContext {
        budget: Budget::child(&state_budget),
        state_budget,
        keeps_packed_weights: options.keeps_packed_weights,
        resources,
        parallel: Arc::new(Share { pool, threads: options.intra_threads }),
        background: Arc::new(PoolJobs::new(pool)),
        functions: Some(functions),
        environment: options.environment.clone(),
    }
}
