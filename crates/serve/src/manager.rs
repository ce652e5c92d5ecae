//! The version manager: a task that polls for versions and has them loaded and unloaded.
//!
//! It owns the state machine of each model and waits for events only: listing folders, loading and
//! freeing run on blocking threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thalweg_kernel::Clock;
use thalweg_tensor::{Error, Result, err, trim_recycled_memory};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tracing::{error, info, warn};

use crate::config::ModelConfig;
use crate::idle_priority;
use crate::loader::{Loader, Stamp};
use crate::servable::Servable;
use crate::store::{ModelView, Shared, StoreOptions};
use crate::versions::{Action, Versions};

/// The interval at which retries are checked.
const TICK: Duration = Duration::from_millis(500);
/// The interval at which an unloading version is checked for remaining requests.
const UNLOAD_CHECK: Duration = Duration::from_millis(5);
/// The delay after a load or unload before free memory is returned to the system.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(1200);

/// Events of the manager.
pub(crate) enum Event {
    /// Serve these models, and no others.
    Configure(Vec<ModelConfig>, oneshot::Sender<()>),
    /// The versions found in the folders of the models.
    Found(Vec<Poll>),
    /// Loading has ended; if it failed, with the fingerprint of the folder's files before.
    Loaded(String, i64, Result<Arc<Servable>, (Error, Stamp)>),
    /// A version is unloaded.
    Unloaded(String, i64),
}

/// The versions found in the folder of a model.
pub(crate) struct Poll {
    config: ModelConfig,
    versions: Result<BTreeMap<i64, String>>,
    /// Versions that failed to load, with their current fingerprints.
    failed: Vec<(i64, Stamp)>,
}

/// The state of one model.
struct Managed {
    config: ModelConfig,
    versions: Versions,
    servables: BTreeMap<i64, Arc<Servable>>,
    folders: BTreeMap<i64, String>,
    /// The fingerprints of versions that failed to load.
    failed: BTreeMap<i64, Stamp>,
    /// Whether its folder has been listed.
    was_polled: bool,
    /// Why there is no version to serve.
    poll_error: Option<Error>,
    /// Versions that were requested by number and do not exist.
    missing: BTreeSet<i64>,
    /// Whether the model was removed from the configuration.
    is_removed: bool,
}

/// Manages the models of a server.
pub(crate) struct Manager {
    loader: Arc<Loader>,
    options: StoreOptions,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<Event>,
    models: BTreeMap<String, Managed>,
    load_places: Arc<Semaphore>,
    is_polling: bool,
}

impl Manager {
    pub(crate) fn new(
        loader: Arc<Loader>,
        options: StoreOptions,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Manager {
        Manager {
            clock: loader.session().environment.clock.clone(),
            load_places: Arc::new(Semaphore::new(options.load_threads.max(1))),
            loader,
            options,
            shared,
            events,
            models: BTreeMap::new(),
            is_polling: false,
        }
    }

    /// Runs until the process ends.
    pub(crate) async fn run(
        mut self,
        models: Vec<ModelConfig>,
        mut incoming: mpsc::UnboundedReceiver<Event>,
    ) {
        self.configure(models);
        let mut tick = tokio::time::interval(TICK);
        let mut looked = self.clock.monotonic();
        loop {
            tokio::select! {
                event = incoming.recv() => match event {
                    Some(event) => self.handle(event),
                    None => return,
                },
                _ = tick.tick() => {
                    let now = self.clock.monotonic();
                    let is_due = |interval| now.saturating_sub(looked) >= interval;
                    if self.options.poll_interval.is_some_and(is_due) {
                        looked = now;
                        self.poll();
                    }
                    self.advance_all();
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Configure(models, configured) => {
                self.configure(models);
                // The caller may have dropped the receiver.
                let _ = configured.send(());
            }
            Event::Found(found) => {
                self.is_polling = false;
                found.into_iter().for_each(|poll| self.found(poll));
            }
            Event::Loaded(name, number, result) => self.loaded(&name, number, result),
            Event::Unloaded(name, number) => {
                if let Some(model) = self.models.get_mut(&name) {
                    model.versions.unloaded(number);
                }
                self.advance(&name);
            }
        }
    }

    fn configure(&mut self, models: Vec<ModelConfig>) {
        let names: BTreeSet<&String> = models.iter().map(|m| &m.name).collect();
        for (name, model) in &mut self.models {
            model.is_removed = !names.contains(name);
        }
        for config in models {
            let versions = || Versions::new(self.options.transition, self.options.attempts);
            let name = config.name.clone();
            let model = self.models.entry(name).or_insert_with(|| Managed {
                config: config.clone(),
                versions: versions(),
                servables: BTreeMap::new(),
                folders: BTreeMap::new(),
                failed: BTreeMap::new(),
                was_polled: false,
                poll_error: None,
                missing: BTreeSet::new(),
                is_removed: false,
            });
            if model.config.base_path != config.base_path {
                // Another folder: its versions replace those loaded, which are unloaded first.
                model.versions.want(&BTreeSet::new());
            }
            model.was_polled = false;
            model.config = config;
        }
        self.advance_all();
        self.is_polling = false;
        self.poll();
    }

    /// Starts a poll of the folders.
    fn poll(&mut self) {
        if self.is_polling {
            return;
        }
        self.is_polling = true;
        let existing = self.models.values().filter(|m| !m.is_removed);
        let asked: Vec<(ModelConfig, Vec<(i64, String)>)> =
            existing.map(|m| (m.config.clone(), m.failed_folders())).collect();
        let (loader, events) = (self.loader.clone(), self.events.clone());
        tokio::task::spawn_blocking(move || {
            let poll = |(config, failed): (ModelConfig, Vec<(i64, String)>)| {
                let versions = loader.find(&config);
                let failed = failed.into_iter().map(|(n, f)| (n, loader.stamp(&f))).collect();
                Poll { config, versions, failed }
            };
            // The manager may have ended.
            let _ = events.send(Event::Found(asked.into_iter().map(poll).collect()));
        });
    }

    fn found(&mut self, poll: Poll) {
        let Poll { config, versions, failed } = poll;
        let Some(model) = self.models.get_mut(&config.name) else { return };
        if model.config != config || model.is_removed {
            return;
        }
        model.was_polled = true;
        // The files have changed since: the copy may be complete now.
        for (number, stamp) in failed {
            if model.failed.get(&number).is_some_and(|before| *before != stamp) {
                model.failed.remove(&number);
                model.versions.changed(number);
            }
        }
        match versions {
            Ok(folders) => {
                let existing: BTreeSet<i64> = folders.keys().copied().collect();
                let wanted = config.policy.choose(&existing);
                let base = &config.base_path;
                model.poll_error = wanted.is_empty().then(|| {
                    let name = &config.name;
                    err!(NotFound, "{base} has none of the configured versions of model '{name}'")
                });
                let missing = config.policy.missing(&existing);
                if model.missing != missing {
                    for number in &missing {
                        let name = &config.name;
                        warn!(
                            target: "thalweg::serve",
                            model = name,
                            version = number,
                            "version {number} of model '{name}' is configured, but {base} does not have it"
                        );
                    }
                    model.missing = missing;
                }
                model.folders = folders;
                model.versions.want(&wanted);
            }
            // Loaded versions stay: a storage error is no reason to stop serving.
            Err(error) => model.poll_error = Some(error),
        }
        self.advance(&config.name);
    }

    fn loaded(&mut self, name: &str, number: i64, result: Result<Arc<Servable>, (Error, Stamp)>) {
        let Some(model) = self.models.get_mut(name) else { return };
        model.failed.remove(&number);
        let outcome = match result {
            Ok(servable) => {
                model.servables.insert(number, servable);
                Ok(())
            }
            Err((error, stamp)) => {
                model.failed.insert(number, stamp);
                error!(
                    target: "thalweg::serve",
                    model = name,
                    version = number,
                    "version {number} of model '{name}' cannot be loaded: {error}"
                );
                Err(error)
            }
        };
        let was_loaded = outcome.is_ok();
        model.versions.loaded(number, outcome, self.clock.monotonic());
        if was_loaded {
            info!(
                target: "thalweg::serve",
                model = name,
                version = number,
                "version {number} of model '{name}' is available"
            );
        }
        self.advance(name);
    }

    fn advance_all(&mut self) {
        let names: Vec<String> = self.models.keys().cloned().collect();
        names.iter().for_each(|name| self.advance(name));
    }

    /// Runs the actions that are due for a model, and publishes its state.
    fn advance(&mut self, name: &str) {
        let now = self.clock.monotonic();
        let Some(model) = self.models.get_mut(name) else { return };
        if model.is_removed {
            model.versions.want(&BTreeSet::new());
        }
        let actions = model.versions.actions(now);
        let mut leaving = Vec::new();
        for &action in &actions {
            match action {
                Action::Load(number) => {
                    let folder = model.folders.get(&number).cloned().unwrap_or_default();
                    start_load(&self.loader, &self.load_places, &self.events, name, number, folder);
                }
                Action::Unload(number) => leaving.push((number, model.servables.remove(&number))),
            }
        }
        let is_over = model.is_removed && model.is_empty();
        let view = (!is_over).then(|| model.view());
        if is_over {
            self.models.remove(name);
        }
        if self.shared.differs(name, view.as_ref()) {
            self.shared.publish(name, view);
        }
        for (number, servable) in leaving {
            start_unload(&self.events, name, number, servable);
        }
    }
}

impl Managed {
    fn failed_folders(&self) -> Vec<(i64, String)> {
        let folder = |number: &i64| Some((*number, self.folders.get(number)?.clone()));
        self.failed.keys().filter_map(folder).collect()
    }

    fn is_empty(&self) -> bool {
        self.versions.all().values().all(|v| v.stage == crate::versions::Stage::End)
    }

    fn view(&self) -> ModelView {
        let statuses = self.versions.all().iter();
        ModelView {
            available: self.servables.clone(),
            labels: self.config.labels.clone(),
            statuses: statuses.map(|(&n, v)| (n, (v.stage, v.error.clone()))).collect(),
            is_settled: self.was_polled && self.versions.is_settled(),
            poll_error: self.poll_error.clone(),
        }
    }
}

fn start_load(
    loader: &Arc<Loader>,
    places: &Arc<Semaphore>,
    events: &mpsc::UnboundedSender<Event>,
    name: &str,
    number: i64,
    folder: String,
) {
    let (loader, places, events) = (loader.clone(), places.clone(), events.clone());
    let name = name.to_owned();
    tokio::spawn(async move {
        // The semaphore is never closed, so a permit becomes free eventually.
        let place = places.acquire_owned().await;
        let of_thread = name.clone();
        let loading = idle_priority::run(move || {
            let stamp = loader.stamp(&folder);
            loader.load(&of_thread, number, &folder).map_err(|e| (e, stamp))
        });
        let result = loading.await.unwrap_or_else(|e| Err((e, Stamp::default())));
        let _ = events.send(Event::Loaded(name, number, result));
        drop(place);
        release_free_memory().await;
    });
}

/// Makes the allocator return free memory to the system: it keeps free memory for a second and
/// returns it when a thread ends.
async fn release_free_memory() {
    tokio::time::sleep(GIVE_BACK_AFTER).await;
    let _ = idle_priority::run(|| ()).await;
}

/// Waits for the requests of a version to end, then frees its memory on a background thread.
fn start_unload(
    events: &mpsc::UnboundedSender<Event>,
    name: &str,
    number: i64,
    servable: Option<Arc<Servable>>,
) {
    let (events, name) = (events.clone(), name.to_owned());
    tokio::spawn(async move {
        if let Some(servable) = servable {
            while Arc::strong_count(&servable) > 1 {
                tokio::time::sleep(UNLOAD_CHECK).await;
            }
            // Without a background thread it is freed here.
            let _ = idle_priority::run(move || {
                drop(servable);
                trim_recycled_memory();
            })
            .await;
        }
        info!(
            target: "thalweg::serve",
            model = name,
            version = number,
            "version {number} of model '{name}' is unloaded"
        );
        let _ = events.send(Event::Unloaded(name, number));
        release_free_memory().await;
    });
}
