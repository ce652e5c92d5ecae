//! The JSON API: what is below `/api/`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use thalweg_ops::Registry;
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Bytes, Result, bail, err};
use tokio::sync::Semaphore;

use crate::cluster::ClusterWatch;
use crate::graph::{self, Placed};
use crate::logdir::Logdir;
use crate::simulation::{Changes, Simulated, Simulation};
use crate::steps::{Steps, Tracer};
use crate::web::query::Query;
use crate::web::reply::{JSON, Reply};

/// Most requests whose answers are made at once; further ones wait.
const REQUESTS_MAX: usize = 8;
/// How long a trace waits for a step of a client.
const TRACE_LIMIT: Duration = Duration::from_secs(30);
/// The id of the simulated step.
const SIMULATED: &str = "simulated";

/// Answers requests below `/api/`.
pub(crate) struct Api {
    pub(crate) sources: Arc<Sources>,
    permits: Arc<Semaphore>,
    /// One step is traced, and one simulated, at a time.
    tracing: Arc<Semaphore>,
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
}

impl Api {
    pub(crate) fn new(sources: Sources) -> Api {
        let one = || Arc::new(Semaphore::new(1));
        let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
        Api { sources: Arc::new(sources), permits, tracing: one(), simulating: one() }
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
        let is_of_files = !matches!(path, "/api/state" | "/api/simulation" | "/api/image");
        if let Some(logdir) = self.sources.logdir.as_ref().filter(|_| is_of_files) {
            logdir.ask().await;
        }
        let (path, sources) = (path.to_owned(), self.sources.clone());
        blocking(&self.permits, move || sources.get(&path, &query)).await
    }

    /// Answers a POST.
    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> Reply {
        let sources = self.sources.clone();
        match path {
            "/api/trace" => {
                let Ok(_permit) = self.tracing.clone().try_acquire_owned() else {
                    return Reply::refusal(StatusCode::CONFLICT, "a step is being traced already");
                };
                blocking(&self.permits, move || sources.trace()).await
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
                Some(graph) => Reply::json(&graph),
                None => absent("graph", "--graph, and no event file has one"),
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
                Reply::download(JSON, "step.perfetto.json", events.to_string())
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

    fn graph(&self, run: Option<&str>) -> Result<Option<Value>> {
        if let Some(graph) = self.graph.as_ref().filter(|_| run.is_none()) {
            let placed = match (&self.simulation, &self.cluster) {
                (Some(_), _) => placed_by(&self.simulated()?.timeline),
                (None, Some(cluster)) => {
                    graph::placed_on(graph, &self.registry, &cluster.devices())
                }
                (None, None) => Placed::new(),
            };
            return Ok(Some(graph::to_json(graph, &self.registry, &placed)));
        }
        let Some(bytes) = self.logdir.as_ref().and_then(|logdir| logdir.graph(run)) else {
            return Ok(None);
        };
        let def = pb::GraphDef::decode_from(&mut Bytes::clone(&bytes))
            .map_err(|e| err!(DataLoss, "the graph of the event file cannot be read: {e}"))?;
        Ok(Some(graph::to_json(&def, &self.registry, &Placed::new())))
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

    fn trace(&self) -> Result<Reply> {
        let Some(tracer) = &self.tracer else {
            bail!(Unimplemented, "there is no cluster whose steps this dashboard can trace")
        };
        match tracer.trace_next(TRACE_LIMIT)? {
            Some(step) => Ok(Reply::json(&json!({ "id": self.steps.add(step) }))),
            None => Err(err!(DeadlineExceeded, "no step was run")),
        }
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
