//! Sessions: steps by handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thalweg_graph::{Endpoint, NodeId};
use thalweg_runtime::{Callable, RunMetadata, RunOptions, SessionOptions, system_environment};
use thalweg_storage::ByUrl;
use thalweg_tensor::{Code, Error, Result, Tensor, ensure, err};

use crate::feed::Feeds;
use crate::fetch::{Fetch, Fetches};
use crate::graph::Graph;
use crate::node::poisoned;
use crate::output::{Raw, Target};
use crate::steps::RunSteps;

/// A session of a [`Graph`], usable from any number of threads at once.
///
/// It owns the values of the graph's variables. Nodes that are added to the graph later belong to it
/// too; the next step adds them first, and initializes new variables. Clones share the session.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    graph: Graph,
    runner: Runner,
    steps: Mutex<FxHashMap<StepKey, Arc<Planned>>>,
    /// Nodes of the graph that steps can use: the runner has them, and their variables have values.
    ready: AtomicUsize,
    growth: Mutex<Growth>,
}

/// How much of the graph the session has taken over.
struct Growth {
    /// Nodes that the runner has.
    nodes: usize,
    /// Variables and other initializers that have run, or that the program itself takes care of.
    initialized: (usize, usize),
}

enum Runner {
    Local(thalweg_runtime::Session),
    Other(Box<dyn RunSteps + Send + Sync>),
}

/// Which step it is: its feeds, fetches and targets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct StepKey {
    pub(crate) feeds: SmallVec<[Endpoint; 4]>,
    pub(crate) fetches: SmallVec<[Endpoint; 4]>,
    pub(crate) targets: SmallVec<[NodeId; 2]>,
}

/// A step that has run before.
pub(crate) enum Planned {
    Callable(Callable),
    Names { feeds: Vec<String>, fetches: Vec<String>, targets: Vec<String> },
}

/// Most steps that a session remembers: beyond, it forgets all of them.
const STEPS_MAX: usize = 1024;

/// Session options with access to URLs: local files, and the stores that this program was built with.
pub fn session_options() -> SessionOptions {
    let mut environment = system_environment();
    environment.storage = Arc::new(ByUrl::default());
    SessionOptions { environment, ..SessionOptions::default() }
}

impl Graph {
    /// A session in this process, with its variables initialized; an error that lists all mistakes
    /// of the graph if there are any.
    pub fn session(&self) -> Result<Session> {
        self.session_with(session_options())
    }

    /// As [`Graph::session`], with options.
    pub fn session_with(&self, options: SessionOptions) -> Result<Session> {
        let session = self.uninitialized_session_with(options)?;
        session.initialize()?;
        Ok(session)
    }

    /// A session whose variables have no values yet: for programs that restore a checkpoint.
    /// Variables that are added to the graph later are initialized.
    pub fn uninitialized_session_with(&self, options: SessionOptions) -> Result<Session> {
        self.check()?;
        let graph = self.as_scope().to_graph();
        let nodes = graph.len();
        let kernels = self.registry().kernels.clone();
        let local = thalweg_runtime::Session::new(graph, kernels, options)?;
        Ok(Session::over(self, Runner::Local(local), nodes))
    }

    /// A session on another runner, such as a server, that has this graph as it is now. Variables
    /// are not initialized: they may have values there.
    pub fn session_over(&self, runner: impl RunSteps + Send + Sync + 'static) -> Result<Session> {
        self.check()?;
        let nodes = self.as_scope().with_graph(thalweg_graph::Graph::len);
        Ok(Session::over(self, Runner::Other(Box::new(runner)), nodes))
    }
}

impl Session {
    fn over(graph: &Graph, runner: Runner, nodes: usize) -> Session {
        let growth = Growth { nodes, initialized: graph.initializer_counts() };
        Session(Arc::new(Inner {
            graph: graph.root(),
            runner,
            steps: Mutex::default(),
            ready: AtomicUsize::new(nodes),
            growth: Mutex::new(growth),
        }))
    }

    /// The graph that it runs.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// The session without this API, if it is in this process.
    pub fn local(&self) -> Option<&thalweg_runtime::Session> {
        match &self.0.runner {
            Runner::Local(session) => Some(session),
            Runner::Other(_) => None,
        }
    }

    /// Gives all variables their initial values.
    pub fn initialize(&self) -> Result<()> {
        let mut growth = self.growth()?;
        growth.initialized = (0, 0);
        self.grow(&mut growth)
    }

    /// How much of the graph the session has taken over, for one thread at a time. The nodes of a
    /// body that is being traced are none that a session can have.
    fn growth(&self) -> Result<MutexGuard<'_, Growth>> {
        ensure!(
            self.0.graph.body() == 0,
            FailedPrecondition,
            "a session cannot run steps within the closure of a branch or loop that is being built"
        );
        Ok(self.0.growth.lock())
    }

    /// Gives the runner what the graph has grown by, and new variables their initial values.
    fn grow(&self, growth: &mut Growth) -> Result<()> {
        let scope = self.0.graph.as_scope();
        let runner: &dyn RunSteps = match &self.0.runner {
            Runner::Local(session) => session,
            Runner::Other(runner) => &**runner,
        };
        let counts = scope.with_graph(|g| {
            if growth.nodes < g.len() {
                runner.extend(g, growth.nodes)?;
                growth.nodes = g.len();
            }
            // While the graph is locked: the nodes of these variables are there, and the reads of
            // all others are yet to come.
            Ok(self.0.graph.initializer_counts())
        })?;
        if growth.initialized != counts {
            self.run_nodes(self.0.graph.initializers(growth.initialized, counts))?;
            growth.initialized = counts;
        }
        self.0.ready.store(growth.nodes, Ordering::Release);
        Ok(())
    }

    /// Runs a step of these nodes alone.
    pub(crate) fn run_nodes(&self, nodes: Vec<NodeId>) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let targets = nodes.into();
        let key = StepKey { feeds: SmallVec::new(), fetches: SmallVec::new(), targets };
        let step = self.plan(&key)?;
        self.call(&step, &RunOptions::default(), Vec::new()).map(|_| ())
    }

    /// Runs one step: feeds values, runs the nodes that the fetches and targets need, and returns
    /// the fetches as the types that the caller asks for.
    ///
    /// ```
    /// use thalweg_api::{Graph, Output, feed};
    /// # fn main() -> thalweg_api::Result<()> {
    /// let g = Graph::new();
    /// let x: Output<f32> = g.placeholder("x", [None]);
    /// let (double, sum) = (&x * 2.0, x.sum());
    /// let session = g.session()?;
    /// let step: (Vec<f32>, f32) = session.run((&double, &sum), feed! { x: [1.0, 2.5] }, &[])?;
    /// assert_eq!(step, (vec![2.0, 5.0], 3.5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F: Fetch<R>, R>(
        &self,
        fetches: F,
        feeds: impl Feeds,
        targets: &[&dyn Target],
    ) -> Result<R> {
        self.run_with(&RunOptions::default(), fetches, feeds, targets).map(|(result, _)| result)
    }

    /// As [`Session::run`], with options and a report.
    pub fn run_with<F: Fetch<R>, R>(
        &self,
        options: &RunOptions,
        fetches: F,
        feeds: impl Feeds,
        targets: &[&dyn Target],
    ) -> Result<(R, RunMetadata)> {
        self.sync()?;
        let feeds = feeds.into_feeds();
        let (mut handles, mut tensors) = (SmallVec::<[Endpoint; 4]>::new(), Vec::new());
        for feed in feeds {
            let (at, tensor) = (self.endpoint(&feed.handle)?, feed.value?);
            self.check_feed(at, &tensor)?;
            handles.push(at);
            tensors.push(tensor);
        }
        let key = StepKey {
            feeds: handles,
            fetches: self.fetched(&fetches)?,
            targets: self.targets(targets)?,
        };
        let step = self.plan(&key)?;
        let (results, metadata) = self.call(&step, options, tensors)?;
        Ok((fetches.value(&mut results.into_iter())?, metadata))
    }

    /// The tensors that fetches stand for.
    pub(crate) fn fetched(&self, fetches: &impl Fetches) -> Result<SmallVec<[Endpoint; 4]>> {
        let mut found: Result<SmallVec<[Endpoint; 4]>> = Ok(SmallVec::new());
        fetches.visit(&mut |handle| {
            if let Ok(list) = &mut found {
                match self.endpoint(handle) {
                    Ok(at) => list.push(at),
                    Err(e) => found = Err(e),
                }
            }
        });
        found
    }

    pub(crate) fn targets(&self, targets: &[&dyn Target]) -> Result<SmallVec<[NodeId; 2]>> {
        targets.iter().map(|target| self.0.graph.node_of(*target)).collect()
    }

    /// The tensor of a handle, which must be one of this session's graph.
    pub(crate) fn endpoint(&self, handle: &Raw) -> Result<Endpoint> {
        self.0.graph.checked(handle)?.ok_or_else(poisoned)
    }

    /// Checks a fed tensor against the dtype and static shape of what it is fed to.
    pub(crate) fn check_feed(&self, at: Endpoint, tensor: &Tensor) -> Result<()> {
        self.0.graph.as_scope().with_graph(|g| {
            let node = g.node(at.node);
            let name = &node.name;
            let info = node.outputs.get(at.index as usize).ok_or_else(|| {
                let outputs = node.outputs.len();
                err!(
                    InvalidArgument,
                    "feed of '{name}:{}': the node has {outputs} outputs",
                    at.index
                )
            })?;
            ensure!(
                info.dtype == tensor.dtype(),
                InvalidArgument,
                "feed of '{name}': it holds {}, but the tensor fed holds {}",
                info.dtype,
                tensor.dtype()
            );
            ensure!(
                info.shape.is_compatible_with(tensor.shape()),
                InvalidArgument,
                "feed of '{name}': its shape is {:?}, but the tensor fed has shape {}",
                info.shape,
                tensor.shape()
            );
            Ok(())
        })
    }

    /// Reports mistakes, and adds what the graph has grown by since the last step.
    pub(crate) fn sync(&self) -> Result<()> {
        self.0.graph.check()?;
        let now = self.0.graph.as_scope().with_graph(thalweg_graph::Graph::len);
        if now == self.0.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        // One thread extends the session; others that come meanwhile wait until the variables have
        // values.
        self.grow(&mut *self.growth()?)
    }

    /// The step of this key, planned when it runs first.
    pub(crate) fn plan(&self, key: &StepKey) -> Result<Arc<Planned>> {
        if let Some(found) = self.0.steps.lock().get(key) {
            return Ok(found.clone());
        }
        let scope = self.0.graph.as_scope();
        let names = |list: &[Endpoint]| list.iter().map(|&at| scope.name_of(at)).collect();
        let (feeds, fetches): (Vec<String>, Vec<String>) = (names(&key.feeds), names(&key.fetches));
        let targets: Vec<String> = scope.with_graph(|g| {
            key.targets.iter().map(|&node| g.node(node).name.to_string()).collect()
        });
        let planned = match &self.0.runner {
            Runner::Local(session) => {
                let made = session.make_callable(&refs(&feeds), &refs(&fetches), &refs(&targets));
                Planned::Callable(made.map_err(|e| self.explained(e))?)
            }
            Runner::Other(_) => Planned::Names { feeds, fetches, targets },
        };
        let planned = Arc::new(planned);
        let mut steps = self.0.steps.lock();
        if steps.len() >= STEPS_MAX {
            steps.clear();
        }
        steps.insert(key.clone(), planned.clone());
        Ok(planned)
    }

    /// Runs a step with feeds in the order of its key.
    pub(crate) fn call(
        &self,
        step: &Planned,
        options: &RunOptions,
        feeds: Vec<Tensor>,
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let result = match (step, &self.0.runner) {
            (Planned::Callable(callable), _) => callable.call_with(options, &feeds),
            (Planned::Names { feeds: names, fetches, targets }, Runner::Other(runner)) => {
                let feeds: Vec<(&str, Tensor)> =
                    names.iter().map(String::as_str).zip(feeds).collect();
                runner.run_step_with(options, &feeds, &refs(fetches), &refs(targets))
            }
            (Planned::Names { .. }, Runner::Local(_)) => {
                Err(err!(Internal, "a step of this process has a callable"))
            }
        };
        result.map_err(|e| self.explained(e))
    }

    /// The error of a step with the source line that added the failed node.
    fn explained(&self, error: Error) -> Error {
        let Some(name) = error.node().map(str::to_owned) else { return error };
        let scope = self.0.graph.as_scope();
        let found = scope.with_graph(|g| {
            let id = g.find(&name)?;
            let output = g.node(id).outputs.first().map(|o| (o.dtype, o.shape.clone()));
            Some((id, g.node(id).op.name == "Placeholder", output))
        });
        let Some((id, is_placeholder, output)) = found else { return error };
        let Some(line) = self.0.graph.line_of(id) else { return error };
        let at = format!("{}:{}", line.file(), line.line());
        match output {
            Some((dtype, shape)) if is_placeholder && error.code() == Code::InvalidArgument => {
                error.map_message(|_| {
                    format!(
                        "placeholder '{name}' ({dtype} {shape:?}, added at {at}) was not fed: this \
                         step needs a value for it, as in `feed! {{ {name}: value }}`"
                    )
                })
            }
            _ => error.map_message(|m| format!("{m} (node '{name}' was added at {at})")),
        }
    }
}

impl RunSteps for Session {
    fn run_step_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        self.sync()?;
        match &self.0.runner {
            Runner::Local(session) => session.run_with(options, feeds, fetches, targets),
            Runner::Other(runner) => runner.run_step_with(options, feeds, fetches, targets),
        }
    }

    fn extend(&self, graph: &thalweg_graph::Graph, from: usize) -> Result<()> {
        match &self.0.runner {
            Runner::Local(session) => RunSteps::extend(session, graph, from),
            Runner::Other(runner) => runner.extend(graph, from),
        }
    }
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
