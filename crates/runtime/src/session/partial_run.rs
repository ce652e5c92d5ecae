//! Partial runs: one step whose feeds and fetches are split over several calls.
//!
//! The client's feeds are sent to the step's rendezvous, and its fetches received from it. The step
//! begins with the first call and ends when every feed was given and every node has run; dropping the
//! [`PartialRun`] before cancels it.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use thalweg_graph::{Endpoint, Graph, NodeId};
use thalweg_kernel::{RendezvousKey, Value};
use thalweg_plan::StepSignature;
use thalweg_tensor::{Error, Result, Tensor, bail, ensure, err};

use crate::execute::step::StepShared;
use crate::session::fetch_collector::{FetchCollector, StepEnd};
use crate::session::metadata::RunMetadata;
use crate::session::options::RunOptions;
use crate::session::plan_cache::{CachedPlan, KeyRef};
use crate::session::step::{CallerLink, Step};
use crate::session::{Session, SessionCore};

/// The fetches of one call in order and, from the last call, the step's report.
pub type PartialRunOutputs = (Vec<Tensor>, Option<RunMetadata>);

type Done = Box<dyn FnOnce(Result<PartialRunOutputs>) + Send>;

/// A step that runs in several calls, from any number of threads.
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
    /// Whether the [`PartialRun`] was dropped; a call that has not begun fails then.
    is_dropped: bool,
    end: Arc<StepEnd>,
}

/// One feed or fetch.
struct Tensors {
    endpoint: Endpoint,
    key: RendezvousKey,
    /// Whether a call has fed or fetched it.
    is_used: bool,
}

impl Session {
    /// Prepares a step whose feeds and fetches are split over several calls; each is given once.
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
        let plan =
            core.plan(KeyRef { is_partial: true, ..KeyRef::new(&feeds, fetches, targets) })?;
        Ok(PartialRun { core, plan, progress: Arc::new(Mutex::new(progress)) })
    }
}

/// The endpoint and the rendezvous key of each feed or fetch, by name.
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
    /// Feeds and fetches some of the tensors. The call returns when it has its fetches; the last one
    /// also waits for the end of the step.
    pub fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let feeds = feeds.iter().map(|(name, t)| ((*name).to_owned(), t.clone())).collect();
        let fetches = fetches.iter().map(|&name| name.to_owned()).collect();
        let (sender, receiver) = mpsc::channel();
        self.start(RunOptions::default(), feeds, fetches, move |result| {
            // The receiver lives until it has received.
            let _ = sender.send(result);
        });
        let outputs =
            receiver.recv().unwrap_or_else(|_| Err(err!(Internal, "the step was dropped")));
        outputs.map(|(tensors, _)| tensors)
    }

    /// As [`PartialRun::run`], but does not wait: a thread of the pool calls `done`. The call's timeout
    /// and cancellation end the whole step.
    pub fn start(
        &self,
        options: RunOptions,
        feeds: Vec<(String, Tensor)>,
        fetches: Vec<String>,
        done: impl FnOnce(Result<PartialRunOutputs>) + Send + 'static,
    ) {
        let (core, plan, progress) = (self.core.clone(), self.plan.clone(), self.progress.clone());
        self.core.pool.spawn(move || {
            if let Err((e, done)) =
                begin_call(&core, &plan, &progress, &options, feeds, &fetches, Box::new(done))
            {
                done(Err(e));
            }
        });
    }

    /// Whether no further call can succeed: the step failed, or all was fed and fetched.
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
        // Once all was fed and fetched, the last call waits for the end of the step.
        let step = progress.step.clone().filter(|_| !progress.is_used_up());
        drop(progress);
        if let Some(step) = step {
            step.cancellation.cancel(dropped());
        }
    }
}

fn dropped() -> Error {
    err!(Cancelled, "the partial run was dropped")
}

/// Checks a call and starts it; after an error `done` is returned, and the caller calls it.
fn begin_call(
    core: &Arc<SessionCore>,
    plan: &Arc<CachedPlan>,
    progress: &Mutex<Progress>,
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
            let id = core.next_step_id(options);
            let rendezvous = core.rendezvous(plan, id);
            let step = Step::with_rendezvous(core, plan.clone(), options, id, rendezvous);
            locked.step = Some(step.shared().clone());
            begun.insert(step).shared().clone()
        }
    };
    let (is_last, end) = (locked.is_used_up(), locked.end.clone());
    drop(locked);

    let link = CallerLink::new(options, &step.cancellation);
    // Events: this function has sent the feeds; and the end of the step, if the call is the last.
    let call = FetchCollector::new(fetches.len(), 1 + usize::from(is_last), move |result| {
        drop(link);
        done(result);
    });
    let rendezvous = step.rendezvous.clone().expect("a partial step has a rendezvous");
    // Fetches first: with its last feed a step may end at once, and its rendezvous with it.
    call.receive(&fetch_keys, &*rendezvous);
    for (key, (_, tensor)) in feed_keys.iter().zip(feeds) {
        if rendezvous.send(key, Value::Tensor(tensor)).is_err() {
            // The step is cancelled; its cause answers the call, below.
            break;
        }
    }
    if let Some(step) = begun {
        let end = end.clone();
        step.start(options, move |result| end.set(result.map(|(_, metadata)| metadata)));
    }
    if is_last {
        let call = call.clone();
        end.wait(move |result| call.event(result.map(Some)));
    }
    call.event(step.cancellation.check().map(|()| None));
    Ok(())
}

/// Keys of a call's feeds and of its fetches.
type Keys = (Vec<RendezvousKey>, Vec<RendezvousKey>);

impl Progress {
    fn is_used_up(&self) -> bool {
        self.feeds.values().chain(self.fetches.values()).all(|t| t.is_used)
    }

    /// Marks the call's feeds and fetches as used, and returns their keys. After an error nothing is
    /// marked.
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
