//! The JSON API: what is below `/api/`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_kernel::DeviceName;
use thalweg_ops::Registry;
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Bytes, Code, Result, bail, ensure, err};
use tokio::sync::{Semaphore, mpsc};

use crate::cluster::ClusterWatch;
use crate::graph::{self, Placed};
use crate::logdir::Logdir;
use crate::simulation::{Changes, Simulated, Simulation};
use crate::steps::{Steps, Tracer};
use crate::web::query::Query;
use crate::web::reply::{JSON, Reply};

/// Most requests whose answers are made at once, and of these the ones that may be large; further ones wait.
const REQUESTS_MAX: usize = 8;
const LARGE_REQUESTS_MAX: usize = 2;
/// How long a trace waits for a step of a client.
const TRACE_LIMIT: Duration = Duration::from_secs(30);
/// How often, and how long each time, a client's session is waited for before that.
const SESSION_ATTEMPTS: u32 = 8;
const SESSION_INTERVAL: Duration = Duration::from_millis(500);
/// Most tasks on which a step is waited for at once.
const MASTERS_MAX: usize = 64;
/// The id of the simulated step.
const SIMULATED: &str = "simulated";

/// Answers requests below `/api/`.
pub(crate) struct Api {
    pub(crate) sources: Arc<Sources>,
    permits: Arc<Semaphore>,
    large_permits: Arc<Semaphore>,
    /// One step is traced, and one simulated, at a time.
    tracing: Semaphore,
    simulating: Arc<Semaphore>,
}

/// What the dashboard shows.
pub(crate) struct Sources {
    pub(crate) title: String,
    pub(crate) cluster: Option<Arc<ClusterWatch>>,
    pub(crate) logdir: Option<Arc<Logdir>>,
    pub(crate) graph: Option<pb::GraphDef>,
    pub(crate) registry: Registry,
    pub(crate) steps: Arc<Steps>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) simulation: Option<Arc<dyn Simulation>>,
    /// The last simulation.
    pub(crate) simulated: Mutex<Option<Arc<Simulated>>>,
    /// The last graph that was asked for: to place one takes long.
    pub(crate) last_graph: Mutex<Option<(ShownGraph, Bytes)>>,
}

/// What the answer of `/api/graph` is made from.
pub(crate) struct ShownGraph {
    /// The serialized graph of event files; none for that of the file.
    recorded: Option<Bytes>,
    devices: Vec<DeviceName>,
    simulated: Option<Arc<Simulated>>,
}

impl PartialEq for ShownGraph {
    fn eq(&self, other: &ShownGraph) -> bool {
        let is_same_simulation = match (&self.simulated, &other.simulated) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        is_same_simulation && self.recorded == other.recorded && self.devices == other.devices
    }
}

impl Api {
    pub(crate) fn new(sources: Sources) -> Api {
        Api {
            sources: Arc::new(sources),
            permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            large_permits: Arc::new(Semaphore::new(LARGE_REQUESTS_MAX)),
            tracing: Semaphore::new(1),
            simulating: Arc::new(Semaphore::new(1)),
        }
    }

    /// Answers a GET.
    pub(crate) async fn get(&self, path: &str, query: &str) -> Reply {
        let query = match Query::parse(query) {
            Ok(query) => query,
            Err(e) => return Reply::error(&e),
        };
        if path == "/api/cluster" {
            return match &self.sources.cluster {
                Some(cluster) => Reply::json(&cluster.snapshot().await),
                None => absent("cluster", "--connect"),
            };
        }
        if path == "/api/trace" {
            return Reply::method_not_allowed("POST");
        }
        // Where the answer depends on event files, these are read first.
        let is_of_files = !matches!(path, "/api/simulation" | "/api/image");
        if let Some(logdir) = self.sources.logdir.as_ref().filter(|_| is_of_files) {
            logdir.ask().await;
        }
        let permits = match path {
            "/api/graph" | "/api/step" | "/api/step.perfetto" => &self.large_permits,
            _ => &self.permits,
        };
        let (path, sources) = (path.to_owned(), self.sources.clone());
        blocking(permits, move || sources.get(&path, &query)).await
    }

    /// Answers a POST.
    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> Reply {
        let sources = self.sources.clone();
        match path {
            "/api/trace" => {
                let Ok(_permit) = self.tracing.try_acquire() else {
                    return Reply::refusal(StatusCode::CONFLICT, "a step is being traced already");
                };
                sources.trace().await.unwrap_or_else(|e| Reply::error(&e))
            }
            "/api/simulation" => {
                let changes = match Changes::parse(body) {
                    Ok(changes) => changes,
                    Err(e) => return Reply::error(&e),
                };
                blocking(&self.simulating, move || sources.simulate(&changes)).await
            }
            _ => Reply::refusal(StatusCode::NOT_FOUND, &format!("{path} takes no POST")),
        }
    }
}

/// Makes an answer on a thread that may block.
async fn blocking(
    permits: &Arc<Semaphore>,
    answer: impl FnOnce() -> Result<Reply> + Send + 'static,
) -> Reply {
    // The semaphores are never closed.
    let permit = permits.clone().acquire_owned().await;
    let answered = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        answer().unwrap_or_else(|e| Reply::error(&e))
    });
    match answered.await {
        Ok(reply) => reply,
        Err(_) => Reply::error(&err!(Internal, "the answer could not be made")),
    }
}

/// The answer for something that the dashboard was started without.
fn absent(what: &str, flag: &str) -> Reply {
    let sentence = format!("there is no {what}: the dashboard was started without {flag}");
    Reply::refusal(StatusCode::NOT_FOUND, &sentence)
}

impl Sources {
    fn get(&self, path: &str, query: &Query) -> Result<Reply> {
        let series = || Ok((query.required("run")?, query.required("tag")?));
        Ok(match path {
            "/api/state" => Reply::json(&self.state()),
            "/api/graph" => match self.graph(query.get("run"))? {
                Some(reply) => reply,
                None => absent("graph", "GRAPH, and no event file has one"),
            },
            "/api/steps" => Reply::json(&self.steps()?),
            "/api/step" => Reply::json(&match query.required("id")? {
                SIMULATED => self.simulated()?.timeline.clone(),
                id => self.steps.timeline(id)?,
            }),
            "/api/step.perfetto" => {
                let events = match query.required("id")? {
                    SIMULATED => self.simulated()?.trace_events.clone(),
                    id => self.steps.trace_events(id)?,
                };
                Reply::download(JSON, "step.perfetto.json", events)
            }
            "/api/simulation" => match &self.simulation {
                Some(simulation) => Reply::json(&simulation.describe()),
                None => absent("simulation", "--simulate"),
            },
            _ => {
                let Some(logdir) = &self.logdir else { return Ok(no_logdir(path)) };
                match path {
                    "/api/runs" => Reply::json(&logdir.runs()),
                    "/api/scalars" => {
                        let ((run, tag), after) = (series()?, query.number("after", Some(0))?);
                        Reply::json(&logdir.scalars(run, tag, after)?)
                    }
                    "/api/histograms" => {
                        let (run, tag) = series()?;
                        Reply::json(&logdir.histograms(run, tag)?)
                    }
                    "/api/images" => {
                        let (run, tag) = series()?;
                        Reply::json(&logdir.images(run, tag)?)
                    }
                    "/api/image" => {
                        let (run, tag) = series()?;
                        let (step, index) =
                            (query.number("step", None)?, query.number("index", Some(0))?);
                        let (kind, bytes) = logdir.image(run, tag, step, index)?;
                        Reply::new(kind, bytes)
                    }
                    "/api/texts" => {
                        let (run, tag) = series()?;
                        Reply::json(&logdir.texts(run, tag)?)
                    }
                    _ => unknown(path),
                }
            }
        })
    }

    fn state(&self) -> Value {
        let has_graph =
            self.graph.is_some() || self.logdir.as_ref().is_some_and(|l| l.graph(None).is_some());
        let has_timeline =
            self.tracer.is_some() || self.simulation.is_some() || !self.steps.is_empty();
        let mode = match (&self.cluster, &self.simulation) {
            (Some(_), _) => "cluster",
            (None, Some(_)) => "simulation",
            (None, None) => "logdir",
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "title": self.title,
            "mode": mode,
            "has": {
                "cluster": self.cluster.is_some(),
                "logdir": self.logdir.is_some(),
                "graph": has_graph,
                "timeline": has_timeline,
                "simulation": self.simulation.is_some(),
            },
        })
    }

    /// The graph of the file, or of the event files; placed where there are devices for it.
    fn graph(&self, run: Option<&str>) -> Result<Option<Reply>> {
        let of_file = self.graph.as_ref().filter(|_| run.is_none());
        let recorded = match of_file {
            Some(_) => None,
            None => self.logdir.as_ref().and_then(|logdir| logdir.graph(run)),
        };
        if of_file.is_none() && recorded.is_none() {
            return Ok(None);
        }
        let devices = self.cluster.as_ref().map_or_else(Vec::new, |cluster| cluster.devices());
        let simulated = match (&self.simulation, of_file) {
            (Some(_), Some(_)) => Some(self.simulated()?),
            _ => None,
        };
        let shown = ShownGraph { recorded, devices, simulated };
        let mut last = self.last_graph.lock();
        if let Some((_, json)) = last.as_ref().filter(|(of, _)| *of == shown) {
            return Ok(Some(Reply::new(JSON, json.clone())));
        }
        let decoded = match &shown.recorded {
            Some(bytes) => {
                Some(pb::GraphDef::decode_from(&mut Bytes::clone(bytes)).map_err(|e| {
                    err!(DataLoss, "the graph of the event file cannot be read: {e}")
                })?)
            }
            None => None,
        };
        let Some(def) = decoded.as_ref().or(of_file) else { return Ok(None) };
        let placed = match &shown.simulated {
            Some(simulated) => placed_by(&simulated.timeline),
            None => graph::placed_on(def, &self.registry, &shown.devices),
        };
        let json: Bytes = graph::to_json(def, &self.registry, &placed).to_string().into();
        *last = Some((shown, json.clone()));
        Ok(Some(Reply::new(JSON, json)))
    }

    fn steps(&self) -> Result<Value> {
        let mut json = self.steps.to_json();
        if self.simulation.is_some()
            && let Some(steps) = json["steps"].as_array_mut()
        {
            steps.push(json!({
                "id": SIMULATED,
                "label": "simulated step",
                "seconds": self.simulated()?.timeline["step_seconds"],
                "time_ms": 0,
                "simulated": true,
            }));
        }
        Ok(json)
    }

    /// The last simulation, or the first: that of the original.
    fn simulated(&self) -> Result<Arc<Simulated>> {
        if let Some(last) = &*self.simulated.lock() {
            return Ok(last.clone());
        }
        let Some(simulation) = &self.simulation else {
            bail!(NotFound, "there is no simulation: the dashboard was started without --simulate")
        };
        let first = Arc::new(simulation.simulate(&Changes::default())?);
        *self.simulated.lock() = Some(first.clone());
        Ok(first)
    }

    fn simulate(&self, changes: &Changes) -> Result<Reply> {
        let Some(simulation) = &self.simulation else {
            return Ok(absent("simulation", "--simulate"));
        };
        let result = Arc::new(simulation.simulate(changes)?);
        *self.simulated.lock() = Some(result.clone());
        Ok(Reply::json(&json!({ "timeline": result.timeline, "train": result.train })))
    }

    /// Traces the next step on every task that has a session of a client; the first that was run is the
    /// answer, and others are listed when they have been run.
    async fn trace(&self) -> Result<Reply> {
        let (Some(tracer), Some(cluster)) = (&self.tracer, &self.cluster) else {
            bail!(Unimplemented, "there is no cluster whose steps this dashboard can trace")
        };
        cluster.ask().await;
        let mut masters = cluster.masters();
        // A client may be about to open its session.
        for _ in 0..SESSION_ATTEMPTS {
            if !masters.is_empty() {
                break;
            }
            tokio::time::sleep(SESSION_INTERVAL).await;
            masters = cluster.masters();
        }
        ensure!(!masters.is_empty(), FailedPrecondition, "no client has a session on the cluster");
        let (sender, mut traced) = mpsc::unbounded_channel();
        for master in masters.into_iter().take(MASTERS_MAX) {
            let (tracer, steps, sender) = (tracer.clone(), self.steps.clone(), sender.clone());
            tokio::task::spawn_blocking(move || {
                let step = tracer.trace_next(&master, TRACE_LIMIT);
                // Nobody waits for the later ones.
                let _ = sender.send(step.map(|step| steps.add(step)));
            });
        }
        drop(sender);
        let mut failure = err!(DeadlineExceeded, "no step was run");
        while let Some(step) = traced.recv().await {
            match step {
                Ok(id) => return Ok(Reply::json(&json!({ "id": id }))),
                Err(e) if e.code() == Code::DeadlineExceeded => {}
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }
}

/// The placement in a simulated timeline.
fn placed_by(timeline: &Value) -> Placed {
    let text = |node: &Value, key: &str| node[key].as_str().map(str::to_owned);
    let node = |node: &Value| {
        let place = (text(node, "device")?, text(node, "reason").unwrap_or_default());
        Some((text(node, "node")?, place))
    };
    timeline["placement"].as_array().into_iter().flatten().filter_map(node).collect()
}

/// The paths that are answered from event files.
const OF_LOGDIR: &[&str] =
    &["/api/runs", "/api/scalars", "/api/histograms", "/api/images", "/api/image", "/api/texts"];

fn no_logdir(path: &str) -> Reply {
    match OF_LOGDIR.contains(&path) {
        true => absent("folder of event files", "--logdir"),
        false => unknown(path),
    }
}

fn unknown(path: &str) -> Reply {
    Reply::refusal(StatusCode::NOT_FOUND, &format!("there is no {path}"))
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
