//! Partial runs: one step whose feeds come, and whose fetches leave, in several calls.
//!
//! The step's `_Recv` and `_Send` of the client are real ones here: a feed is sent into the step's
//! rendezvous, a fetch received from it. The step begins with the first call and ends when every
//! feed was given and every node has run; dropping the run cancels what is left of it.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use thalweg_graph::{Endpoint, Graph, NodeId};
use thalweg_kernel::{Registration, RendezvousKey, Value};
use thalweg_plan::StepSignature;
use thalweg_tensor::{Error, Result, Tensor, bail, ensure, err};

use crate::execute::StepState;
use crate::execute::deadline;
use crate::execute::step::StepShared;
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::{CachedPlan, KeyRef};
use crate::session::report::Reports;
use crate::session::{Session, SessionCore};

/// What one call gave: its fetches in order and, after the last call, the step's report.
pub type Part = (Vec<Tensor>, Option<RunMetadata>);

type Done = Box<dyn FnOnce(Result<Part>) + Send>;

/// A step that runs in parts. Any number of threads may call it at once.
pub struct PartialRun {
    core: Arc<SessionCore>,
    plan: Arc<CachedPlan>,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Default)]
struct Progress {
    feeds: BTreeMap<String, Tensors>,
    fetches: BTreeMap<String, Tensors>,
    /// The step, once it has begun.
    step: Option<Arc<StepShared>>,
    /// Whether nobody can call it any more; calls on their way do not begin then.
    is_dropped: bool,
    end: End,
}

/// One feed or fetch.
struct Tensors {
    endpoint: Endpoint,
    key: RendezvousKey,
    /// Whether it was fed or fetched; once is all it gets.
    is_used: bool,
}

#[derive(Default)]
enum End {
    #[default]
    Running,
    /// The last call waits for it.
    Awaited(Arc<Call>),
    Over(Result<RunMetadata>),
}

impl Session {
    /// Prepares a step whose feeds and fetches come in parts; each counts once.
    pub fn partial_run(
        &self,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<PartialRun> {
        ensure!(
            !fetches.is_empty() || !targets.is_empty(),
            InvalidArgument,
            "Must specify at least one target to fetch or execute."
        );
        let core = self.core().clone();
        let signature =
            core.with_graph(|graph| StepSignature::resolve(graph, feeds, fetches, targets))?;
        let progress = core.with_graph(|graph| Progress {
            feeds: tensors(&core, graph, feeds, &signature.feeds),
            fetches: tensors(&core, graph, fetches, &signature.fetches),
            ..Default::default()
        });
        let both = signature.fetches.iter().zip(fetches).find(|(e, _)| signature.feeds.contains(e));
        if let Some((_, name)) = both {
            bail!(InvalidArgument, "{name} is both fed and fetched.");
        }
        let mut sorted = signature.fetches.clone();
        sorted.sort();
        ensure!(
            sorted.windows(2).all(|w| w[0] != w[1]),
            InvalidArgument,
            "a tensor is fetched more than once"
        );
        let plan = core.plan(KeyRef { feeds: &feeds, fetches, targets, is_partial: true })?;
        Ok(PartialRun { core, plan, progress: Arc::new(Mutex::new(progress)) })
    }
}

/// Names with what they mean, and the keys under which the step knows them.
fn tensors(
    core: &SessionCore,
    graph: &Graph,
    names: &[&str],
    endpoints: &[Endpoint],
) -> BTreeMap<String, Tensors> {
    let client = core.client_device();
    let device = client.name.to_string();
    let tensor = |(name, &endpoint): (&&str, &Endpoint)| {
        let full = format!("{}:{}", graph.node(endpoint.node).name, endpoint.index);
        let key = RendezvousKey::new(&device, client.incarnation, &device, &full);
        ((*name).to_owned(), Tensors { endpoint, key, is_used: false })
    };
    names.iter().zip(endpoints).map(tensor).collect()
}

impl PartialRun {
    /// Feeds some, fetches some, and waits for what is fetched; the last call also for the end.
    pub fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let feeds = feeds.iter().map(|(name, t)| ((*name).to_owned(), t.clone())).collect();
        let fetches = fetches.iter().map(|&name| name.to_owned()).collect();
        let (tell, told) = mpsc::channel();
        self.start(RunOptions::default(), feeds, fetches, move |result| {
            // The receiver is below.
            let _ = tell.send(result);
        });
        let part = told.recv().unwrap_or_else(|_| Err(err!(Internal, "the step was dropped")));
        part.map(|(tensors, _)| tensors)
    }

    /// As [`PartialRun::run`], but does not wait: a thread of the pool calls `done`. A timeout, or
    /// the caller's wish, that ends the call ends the whole step.
    pub fn start(
        &self,
        options: RunOptions,
        feeds: Vec<(String, Tensor)>,
        fetches: Vec<String>,
        done: impl FnOnce(Result<Part>) + Send + 'static,
    ) {
        let (core, plan, progress) = (self.core.clone(), self.plan.clone(), self.progress.clone());
        self.core.pool.spawn(move || {
            if let Err((e, done)) =
                begin_part(&core, &plan, &progress, &options, feeds, &fetches, Box::new(done))
            {
                done(Err(e));
            }
        });
    }

    /// Whether nothing more can come of it: it failed, or everything was fed and fetched.
    pub fn is_over(&self) -> bool {
        let progress = self.progress.lock();
        let has_failed = progress.step.as_ref().is_some_and(|s| s.cancellation.is_cancelled());
        has_failed || progress.is_used_up()
    }
}

impl Drop for PartialRun {
    fn drop(&mut self) {
        let mut progress = self.progress.lock();
        progress.is_dropped = true;
        let step = progress.step.clone().filter(|_| matches!(progress.end, End::Running));
        drop(progress);
        if let Some(step) = step {
            step.cancellation.cancel(dropped());
        }
    }
}

fn dropped() -> Error {
    err!(Cancelled, "the partial run was given up")
}

/// One call that waits for its fetches.
struct Call {
    state: Mutex<CallState>,
}

struct CallState {
    left: usize,
    values: Vec<Option<Value>>,
    metadata: Option<RunMetadata>,
    done: Option<Done>,
    /// What may end the step while this call waits.
    _ends: (Option<Registration>, Option<deadline::Armed>),
}

impl Call {
    /// Counts one of the things waited for as there.
    fn arrived(&self, what: impl FnOnce(&mut CallState) -> Result<()>) {
        let mut state = self.state.lock();
        let result = what(&mut state);
        state.left = state.left.saturating_sub(1);
        if result.is_ok() && state.left > 0 {
            return;
        }
        // The first error answers; what comes later finds nobody.
        let Some(done) = state.done.take() else { return };
        let values = std::mem::take(&mut state.values);
        let metadata = state.metadata.take();
        drop(state);
        // Of a variable the call gets what it is now, with the updates that the call waited for.
        let tensor = |value: Value| match value.without_alias() {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        };
        done(
            result.map(|()| (values.into_iter().flatten().filter_map(tensor).collect(), metadata)),
        );
    }
}

/// Checks a call and sets it going; on an error the answer is the caller's to give.
fn begin_part(
    core: &Arc<SessionCore>,
    plan: &Arc<CachedPlan>,
    progress: &Arc<Mutex<Progress>>,
    options: &RunOptions,
    feeds: Vec<(String, Tensor)>,
    fetches: &[String],
    done: Done,
) -> Result<(), (Error, Done)> {
    let mut locked = progress.lock();
    let (feed_keys, fetch_keys) = match locked.claim(core, &feeds, fetches) {
        Ok(keys) => keys,
        Err(e) => return Err((e, done)),
    };
    let mut begun = None;
    let step = match &locked.step {
        Some(step) => step.clone(),
        None => {
            let states = core.partial_states(plan, options);
            let step = states[0].shared.clone();
            begun = Some(states);
            locked.step = Some(step.clone());
            step
        }
    };
    let is_last = locked.is_used_up();
    let cancellation = &step.cancellation;
    let link = options.cancellation.as_ref().map(|caller| caller.link(cancellation));
    let deadline = options.timeout.and_then(|t| deadline::arm(cancellation, t));
    let call = Arc::new(Call {
        state: Mutex::new(CallState {
            // One more than the fetches: this function itself.
            left: fetches.len() + 1 + usize::from(is_last),
            values: vec![None; fetches.len()],
            metadata: None,
            done: Some(done),
            _ends: (link, deadline),
        }),
    });
    let mut is_over = None;
    if is_last {
        match std::mem::replace(&mut locked.end, End::Awaited(call.clone())) {
            End::Over(result) => is_over = Some(result),
            End::Running | End::Awaited(_) => {}
        }
    }
    drop(locked);

    let rendezvous = step.rendezvous.clone().expect("a partial step has a rendezvous");
    // Fetches first: with its last feed a step may end at once, and its rendezvous with it.
    for (i, key) in fetch_keys.iter().enumerate() {
        let call = call.clone();
        let received = move |value| call.arrived(|state| state.put(i, value));
        rendezvous.receive(key, Box::new(received));
    }
    for (key, (_, tensor)) in feed_keys.iter().zip(feeds) {
        if rendezvous.send(key, Value::Tensor(tensor)).is_err() {
            // The step is cancelled; the cause answers, below.
            break;
        }
    }
    if let Some(states) = begun {
        start(&states, plan, options, progress);
    }
    if let Some(result) = is_over {
        call.arrived(|state| result.map(|metadata| state.metadata = Some(metadata)));
    }
    call.arrived(|_| step.cancellation.check());
    Ok(())
}

impl CallState {
    fn put(&mut self, i: usize, value: Result<Value>) -> Result<()> {
        self.values[i] = match value? {
            value @ (Value::Tensor(_) | Value::Alias(_)) => Some(value),
            Value::Dead => {
                bail!(InvalidArgument, "fetch {i} is the result of a branch not taken")
            }
            _ => bail!(Internal, "fetch {i} was not produced"),
        };
        Ok(())
    }
}

fn start(
    states: &[Arc<StepState>],
    plan: &Arc<CachedPlan>,
    options: &RunOptions,
    progress: &Arc<Mutex<Progress>>,
) {
    let (remote, plan, reports) = (plan.remote.clone(), plan.clone(), Reports::from(options));
    let (shared, resources) = (states[0].shared.clone(), states[0].context.step_resources());
    let (progress, resources) = (progress.clone(), resources.clone());
    let end = move || {
        resources.clear();
        let remote = shared.end_remote();
        let result = shared.cancellation.check().map(|()| reports.of(&plan, &shared, remote));
        let previous = std::mem::replace(&mut progress.lock().end, End::Over(result.clone()));
        if let End::Awaited(call) = previous {
            call.arrived(|state| result.map(|metadata| state.metadata = Some(metadata)));
        }
    };
    StepState::start_all(states, remote.as_deref(), options, Box::new(end));
}

/// Keys of a call's feeds and of its fetches.
type Keys = (Vec<RendezvousKey>, Vec<RendezvousKey>);

impl Progress {
    fn is_used_up(&self) -> bool {
        self.feeds.values().chain(self.fetches.values()).all(|t| t.is_used)
    }

    /// Marks what a call feeds and fetches, unless the call makes a mistake: then nothing changes.
    fn claim(
        &mut self,
        core: &SessionCore,
        feeds: &[(String, Tensor)],
        fetches: &[String],
    ) -> Result<Keys> {
        if self.is_dropped {
            return Err(dropped());
        }
        for (i, (name, _)) in feeds.iter().enumerate() {
            let Some(feed) = self.feeds.get(name) else {
                bail!(InvalidArgument, "The feed {name} was not specified in partial_run_setup.");
            };
            let is_repeated = feeds[..i].iter().any(|(other, _)| other == name);
            ensure!(
                !feed.is_used && !is_repeated,
                InvalidArgument,
                "The feed {name} has already been fed."
            );
        }
        for (i, name) in fetches.iter().enumerate() {
            let Some(fetch) = self.fetches.get(name) else {
                bail!(InvalidArgument, "The fetch {name} was not specified in partial_run_setup.");
            };
            ensure!(
                !fetch.is_used && !fetches[..i].contains(name),
                InvalidArgument,
                "The fetch {name} has already been fetched."
            );
        }
        core.with_graph(|graph| self.check_computable(graph, feeds, fetches))?;
        let take = |tensors: &mut BTreeMap<String, Tensors>, name: &String| {
            let tensor = tensors.get_mut(name)?;
            tensor.is_used = true;
            Some(tensor.key.clone())
        };
        let fed = feeds.iter().filter_map(|(name, _)| take(&mut self.feeds, name)).collect();
        let fetched = fetches.iter().filter_map(|name| take(&mut self.fetches, name)).collect();
        Ok((fed, fetched))
    }

    /// A fetch that needs a feed still to come would wait for a later call, which would wait for it.
    fn check_computable(
        &self,
        graph: &Graph,
        feeds: &[(String, Tensor)],
        fetches: &[String],
    ) -> Result<()> {
        let missing = |e: &Endpoint| {
            let found = self.feeds.iter().find(|(_, t)| t.endpoint == *e)?;
            Some(!found.1.is_used && feeds.iter().all(|(name, _)| name != found.0))
        };
        let mut seen = vec![false; graph.len()];
        let mut stack: Vec<NodeId> = Vec::new();
        stack.extend(fetches.iter().filter_map(|f| Some(self.fetches.get(f)?.endpoint.node)));
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let node = graph.node(id);
            for e in &node.inputs {
                match missing(e) {
                    Some(false) => {}
                    Some(true) => bail!(
                        InvalidArgument,
                        "Fetch {}:{} can't be computed from the feeds that have been fed so far.",
                        graph.node(e.node).name,
                        e.index
                    ),
                    None => stack.push(e.node),
                }
            }
            let runs = |id: &&NodeId| missing(&Endpoint { node: **id, index: 0 }).is_none();
            stack.extend(node.control_inputs.iter().filter(runs));
        }
        Ok(())
    }
}
