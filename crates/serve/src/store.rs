//! The models of a server by name: what requests find, and what the configuration asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use thalweg_proto::tensorflow::serving::{self as pb, model_spec::VersionChoice};
use thalweg_tensor::{Error, Result, bail, ensure, err};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::ModelConfig;
use crate::loader::Loader;
use crate::manager::{Event, Manager};
use crate::servable::Servable;
use crate::versions::{Attempts, Stage, Transition};

/// Options of loading and unloading.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The interval of polls for new versions; `None` polls once.
    pub poll_interval: Option<Duration>,
    /// The order of loading and unloading.
    pub transition: Transition,
    /// Retries of loading.
    pub attempts: Attempts,
    /// The number of versions that are loaded concurrently.
    pub load_threads: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            poll_interval: Some(Duration::from_secs(1)),
            transition: Transition::default(),
            attempts: Attempts::default(),
            load_threads: 1,
        }
    }
}

/// The models of a server. A task of its own loads and unloads them.
pub struct Store {
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
}

/// What requests read; the manager replaces it model by model.
#[derive(Default)]
pub(crate) struct Shared {
    models: RwLock<BTreeMap<String, Arc<ModelView>>>,
    changes: watch::Sender<u64>,
}

/// A snapshot of a model's state.
#[derive(Clone, Default)]
pub struct ModelView {
    /// The available versions.
    pub available: BTreeMap<i64, Arc<Servable>>,
    /// Version labels.
    pub labels: BTreeMap<String, i64>,
    /// All known versions, with the error if loading failed.
    pub statuses: BTreeMap<i64, (Stage, Option<Error>)>,
    /// Whether all requested versions are available or have failed for good.
    pub is_settled: bool,
    /// Why its folder cannot be read or is empty.
    pub poll_error: Option<Error>,
}

impl ModelView {
    fn is_same(&self, other: &ModelView) -> bool {
        let same = |(a, b): (&Arc<Servable>, &Arc<Servable>)| Arc::ptr_eq(a, b);
        self.available.len() == other.available.len()
            && self.available.values().zip(other.available.values()).all(same)
            && self.labels == other.labels
            && self.statuses == other.statuses
            && self.is_settled == other.is_settled
            && self.poll_error == other.poll_error
    }
}

impl Shared {
    /// Whether `view` differs from the published state.
    pub(crate) fn differs(&self, name: &str, view: Option<&ModelView>) -> bool {
        let models = self.models.read();
        match (models.get(name), view) {
            (Some(shown), Some(view)) => !shown.is_same(view),
            (shown, view) => shown.is_some() != view.is_some(),
        }
    }

    pub(crate) fn publish(&self, name: &str, view: Option<ModelView>) {
        match view {
            Some(view) => self.models.write().insert(name.to_owned(), Arc::new(view)),
            None => self.models.write().remove(name),
        };
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Store {
    /// Starts loading these models, on the runtime of the caller.
    pub fn start(models: Vec<ModelConfig>, loader: Arc<Loader>, options: StoreOptions) -> Store {
        let shared = Arc::new(Shared::default());
        // Requests before the first poll get UNAVAILABLE rather than NOT_FOUND.
        for model in &models {
            shared.publish(&model.name, Some(ModelView::default()));
        }
        let (events, incoming) = mpsc::unbounded_channel();
        let manager = Manager::new(loader, options, shared.clone(), events.clone());
        tokio::spawn(manager.run(models, incoming));
        Store { shared, events }
    }

    /// The version that a request refers to.
    pub fn get(&self, spec: Option<&pb::ModelSpec>) -> Result<Arc<Servable>> {
        let Some(spec) = spec else { bail!(InvalidArgument, "Missing ModelSpec") };
        ensure!(!spec.name.is_empty(), InvalidArgument, "ModelSpec has no name specified.");
        let view = self.view(&spec.name);
        let found = match (&spec.version_choice, &view) {
            (Some(VersionChoice::VersionLabel(label)), Some(view)) => {
                let version = view.labels.get(label).ok_or_else(|| {
                    err!(
                        InvalidArgument,
                        "Unrecognized servable version label: {label}; model '{}' has {{{}}}",
                        spec.name,
                        view.labels.keys().cloned().collect::<Vec<_>>().join(", ")
                    )
                })?;
                view.available.get(version)
            }
            (Some(VersionChoice::Version(version)), Some(view)) => {
                view.available.get(&version.value)
            }
            (None, Some(view)) => view.available.values().next_back(),
            (_, None) => None,
        };
        found.cloned().ok_or_else(|| not_found(spec, view.as_deref()))
    }

    /// A snapshot of a model's state.
    pub fn view(&self, name: &str) -> Option<Arc<ModelView>> {
        self.shared.models.read().get(name).cloned()
    }

    /// Snapshots of all models.
    pub fn views(&self) -> BTreeMap<String, Arc<ModelView>> {
        self.shared.models.read().clone()
    }

    /// Whether every model has an available version.
    pub fn is_ready(&self) -> bool {
        self.shared.models.read().values().all(|view| !view.available.is_empty())
    }

    /// The status of a model's versions, newest first: all, or the requested one.
    pub fn status(&self, spec: Option<&pb::ModelSpec>) -> Result<Vec<pb::ModelVersionStatus>> {
        let Some(spec) = spec else { bail!(InvalidArgument, "Missing ModelSpec") };
        let name = &spec.name;
        ensure!(!name.is_empty(), InvalidArgument, "Missing model name in request.");
        let view = self.view(name);
        let wanted = match (&spec.version_choice, &view) {
            (Some(VersionChoice::Version(version)), _) => Some(version.value),
            (Some(VersionChoice::VersionLabel(label)), Some(view)) => {
                Some(*view.labels.get(label).ok_or_else(|| {
                    err!(InvalidArgument, "Unrecognized servable version label: {label}")
                })?)
            }
            _ => None,
        };
        let statuses = view.as_ref().map(|view| &view.statuses);
        let chosen: Vec<_> = statuses
            .into_iter()
            .flatten()
            .rev()
            .filter(|(number, _)| wanted.is_none_or(|w| w == **number))
            .map(|(&number, (stage, error))| version_status(number, *stage, error.as_ref()))
            .collect();
        if chosen.is_empty() {
            if let Some(poll_error) = view.and_then(|v| v.poll_error.clone()) {
                return Err(poll_error);
            }
            match wanted {
                Some(version) => {
                    bail!(NotFound, "Could not find version {version} of model {name}")
                }
                None => bail!(NotFound, "Could not find any versions of model {name}"),
            }
        }
        Ok(chosen)
    }

    /// Replaces the configured models and waits until they are loaded. Fails with the first error
    /// of a model, or of the version of a label.
    pub async fn reload(&self, models: Vec<ModelConfig>) -> Result<()> {
        let names: Vec<String> = models.iter().map(|m| m.name.clone()).collect();
        let labels: Vec<(String, BTreeMap<String, i64>)> =
            models.iter().map(|m| (m.name.clone(), m.labels.clone())).collect();
        let (sender, receiver) = oneshot::channel();
        let gone = |_| err!(Unavailable, "the server is shutting down");
        self.events.send(Event::Configure(models, sender)).map_err(|_| gone(()))?;
        receiver.await.map_err(|_| gone(()))?;
        self.settled(&names).await;
        for (name, labels) in &labels {
            if let Some(view) = self.view(name) {
                check_loaded(name, &view, labels)?;
            }
        }
        Ok(())
    }

    /// Waits until these models are available, have failed for good, or fail for the first time.
    pub async fn settled(&self, names: &[String]) {
        let mut changes = self.shared.changes.subscribe();
        let is_settled = |name: &String| {
            self.view(name).is_none_or(|view| {
                view.is_settled || view.poll_error.is_some() || {
                    let failed = |(_, error): &(Stage, Option<Error>)| error.is_some();
                    view.available.is_empty() && view.statuses.values().any(failed)
                }
            })
        };
        while !names.iter().all(is_settled) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Fails if a model has no available version, or a label refers to an unavailable one.
fn check_loaded(name: &str, view: &ModelView, labels: &BTreeMap<String, i64>) -> Result<()> {
    let failed = view.statuses.values().find_map(|(_, error)| error.as_ref());
    let reason = failed.or(view.poll_error.as_ref()).filter(|_| view.available.is_empty());
    if let Some(error) = reason {
        return Err(error.clone().map_message(|m| format!("model '{name}': {m}")));
    }
    for (label, version) in labels {
        ensure!(
            view.available.contains_key(version),
            FailedPrecondition,
            "the label '{label}' of model '{name}' refers to version {version}, which is not available"
        );
    }
    Ok(())
}

fn version_status(number: i64, stage: Stage, error: Option<&Error>) -> pb::ModelVersionStatus {
    pb::ModelVersionStatus {
        version: number,
        state: stage.to_proto() as i32,
        status: Some(pb::StatusProto {
            error_code: error.map_or(0, |e| e.code() as i32),
            error_message: error.map_or_else(String::new, |e| e.message().to_owned()),
        }),
    }
}

/// The error for a request without a version to run.
fn not_found(spec: &pb::ModelSpec, view: Option<&ModelView>) -> Error {
    let name = &spec.name;
    let request = match &spec.version_choice {
        Some(VersionChoice::Version(version)) => format!("Specific({name}, {})", version.value),
        Some(VersionChoice::VersionLabel(label)) => format!("Label({name}, {label})"),
        None => format!("Latest({name})"),
    };
    let Some(view) = view else {
        return err!(NotFound, "Servable not found for request: {request}");
    };
    if view.available.is_empty() {
        if let Some(poll_error) = &view.poll_error {
            return poll_error.clone();
        }
        if let Some(error) = view.statuses.values().find_map(|(_, error)| error.as_ref()) {
            return err!(Unavailable, "no version of model '{name}' could be loaded: {error}");
        }
        if !view.is_settled {
            return err!(Unavailable, "model '{name}' is being loaded");
        }
    }
    let there: Vec<String> = view.available.keys().map(ToString::to_string).collect();
    err!(
        NotFound,
        "Servable not found for request: {request}; available versions: {{{}}}",
        there.join(", ")
    )
}
