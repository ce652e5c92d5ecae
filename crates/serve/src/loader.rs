//! Loading of a version: memory reservation, graph, variables, warm-up.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_formats::saved_model::{SavedModelFile, is_saved_model};
use thalweg_formats::storage::{Metadata, Storage, join};
use thalweg_runtime::saved_model::Registries;
use thalweg_runtime::{LoadOptions, SavedModel, SessionOptions, memory_limit_bytes};
use thalweg_tensor::{Budget, Charge, Result, trim_recycled_memory};

use crate::batching::{Batching, Parameters};
use crate::config::ModelConfig;
use crate::memory_reservation::MemoryReservation;
use crate::metrics::Metrics;
use crate::servable::Servable;
use crate::warmup::{self, WarmUp};

/// Options of loading.
#[derive(Clone)]
pub struct LoaderOptions {
    /// The session options of each version.
    pub session: SessionOptions,
    /// The tags of the MetaGraph; empty for `serve`.
    pub tags: Vec<String>,
    /// The maximum size of the files of all loaded models together, in bytes.
    pub memory_limit_bytes: usize,
    /// The warm-up of a version before it is available.
    pub warm_up: WarmUp,
    /// Whether and how requests are batched.
    pub batching: Option<Batching>,
    /// Whether a version's own `batching_params.pbtxt` takes precedence.
    pub batching_per_model: bool,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions {
            session: LoadOptions::default().session,
            tags: Vec::new(),
            memory_limit_bytes: memory_limit_bytes(),
            warm_up: WarmUp::default(),
            batching: None,
            batching_per_model: false,
        }
    }
}

/// Loads versions of models.
pub struct Loader {
    registries: Registries,
    options: LoaderOptions,
    budget: Arc<Budget>,
    metrics: Arc<Metrics>,
    /// Loaded versions by model, whose equal variables later versions share.
    loaded: Mutex<BTreeMap<String, Vec<Weak<Servable>>>>,
}

impl Loader {
    /// A loader with these ops and kernels.
    pub fn new(registries: Registries, options: LoaderOptions) -> Loader {
        let budget = Budget::new(options.memory_limit_bytes);
        Loader { registries, options, budget, metrics: Arc::default(), loaded: Mutex::default() }
    }

    /// The storage of models.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.options.session.environment.storage
    }

    /// The session options of each version.
    pub fn session(&self) -> &SessionOptions {
        &self.options.session
    }

    /// The metrics of loading and running.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The size of the files of loaded models, in bytes.
    pub fn loaded_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// The versions of a model in its folder, with their folders.
    ///
    /// A folder that is itself a SavedModel counts as version 1.
    pub fn find(&self, config: &ModelConfig) -> Result<BTreeMap<i64, String>> {
        let storage = &**self.storage();
        let base = &config.base_path;
        let mut found = BTreeMap::new();
        for name in storage.list(base)? {
            let Some(number) = version_of(&name) else { continue };
            let folder = join(base, &name);
            // A version that is being copied has no graph yet, or a temporary name.
            if is_saved_model(storage, &folder) {
                found.insert(number, folder);
            }
        }
        if found.is_empty() && is_saved_model(storage, base) {
            found.insert(1, base.clone());
        }
        Ok(found)
    }

    /// Loads one version and warms it up.
    pub fn load(&self, model: &str, version: i64, folder: &str) -> Result<Arc<Servable>> {
        let clock = &self.options.session.environment.clock;
        let begin = clock.monotonic();
        let loaded = self.read(model, version, folder);
        let end = clock.monotonic();
        self.metrics.load(folder, loaded.is_ok(), end.saturating_sub(begin));
        let servable = loaded?;
        let warmed = warmup::warm(&servable, &self.options.warm_up, &**self.storage());
        let took = clock.monotonic().saturating_sub(end);
        self.metrics.warm_up(folder, warmed.is_ok(), took);
        warmed?;
        // After the warm-up, because signatures may assign variables.
        self.share(&servable);
        Ok(servable)
    }

    fn read(&self, model: &str, version: i64, folder: &str) -> Result<Arc<Servable>> {
        let storage = &**self.storage();
        let bytes = folder_bytes(storage, folder)?;
        let charge = Charge::new(&self.budget, bytes).map_err(|e| {
            let (used, limit) = (self.budget.used_bytes(), self.budget.limit_bytes());
            e.map_message(|_| {
                format!(
                    "version {version} of model '{model}' has {} MB of files, and {} of the {} MB that \
                     models may take are taken: unload something, or allow more with --memory-limit",
                    bytes.div_ceil(1 << 20),
                    used >> 20,
                    limit >> 20
                )
            })
        })?;
        let session = self.options.session.clone();
        let file = SavedModelFile::read(storage, folder, session.memory_limit_bytes)?;
        let tags: Vec<&str> = self.options.tags.iter().map(String::as_str).collect();
        let meta = file.select(&tags)?;
        let signature_defs = meta.def().signature_def.clone();
        let session = SessionOptions { keeps_packed_weights: true, ..session };
        let options = LoadOptions { session, ..Default::default() };
        let saved = SavedModel::of(meta, self.registries.clone(), options)?;
        let reservation = MemoryReservation::new(bytes, charge);
        let watch = (self.metrics.clone(), self.options.session.environment.clock.clone());
        let name = model.to_owned();
        let servable = Servable::new(name, version, saved, signature_defs, reservation, watch);
        Ok(Arc::new(servable.with_batching(self.batching(folder)?)))
    }

    /// Makes a version that is not available yet share equal variables with other versions of its
    /// model.
    fn share(&self, servable: &Arc<Servable>) {
        let mut loaded = self.loaded.lock();
        loaded.retain(|_, versions| {
            versions.retain(|version| version.strong_count() > 0);
            !versions.is_empty()
        });
        let others = loaded.entry(servable.model().to_owned()).or_default();
        // The newest first: it is most likely to have equal variables.
        let there = others.iter().rev().filter_map(Weak::upgrade);
        if there.filter(|other| servable.share_with(other)).count() > 0 {
            trim_recycled_memory();
        }
        others.push(Arc::downgrade(servable));
    }

    /// The batching of the version in `folder`.
    fn batching(&self, folder: &str) -> Result<Option<Batching>> {
        let path = join(folder, BATCHING_FILE);
        if !self.options.batching_per_model || !self.storage().exists(&path)? {
            return Ok(self.options.batching.clone());
        }
        Parameters::read(&**self.storage(), &path).map(|found| Some(Batching::Set(found)))
    }
}

impl Loader {
    /// A fingerprint of a version's files: their number, sizes and modification times.
    pub fn stamp(&self, folder: &str) -> Stamp {
        let mut stamp = Stamp::default();
        // An unreadable file counts as missing; loading reports the error.
        let _ = each_file(&**self.storage(), folder, |file| {
            stamp.files += 1;
            stamp.bytes = stamp.bytes.saturating_add(file.bytes);
            stamp.modified = stamp.modified.max(file.modified);
        });
        stamp
    }
}

/// See [`Loader::stamp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    files: usize,
    bytes: u64,
    modified: Duration,
}

/// The file in which a version sets its batching parameters.
const BATCHING_FILE: &str = "batching_params.pbtxt";

/// The version number of a folder name; leading zeros are allowed.
fn version_of(name: &str) -> Option<i64> {
    let name = name.trim_end_matches('/');
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    name.parse().ok()
}

/// The size of a model's files in bytes: graph and variables.
fn folder_bytes(storage: &dyn Storage, folder: &str) -> Result<usize> {
    let mut bytes: u64 = 0;
    each_file(storage, folder, |file| bytes = bytes.saturating_add(file.bytes))?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn each_file(storage: &dyn Storage, folder: &str, mut look: impl FnMut(&Metadata)) -> Result<()> {
    for part in ["", "variables", "assets"] {
        let folder = if part.is_empty() { folder.to_owned() } else { join(folder, part) };
        if !storage.exists(&folder)? {
            continue;
        }
        for name in storage.list(&folder)? {
            let found = storage.metadata(&join(&folder, &name))?;
            if !found.is_folder {
                look(&found);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_versions() {
        for (name, number) in [
            ("1", Some(1)),
            ("0", Some(0)),
            ("00042", Some(42)),
            ("1700000000/", Some(1_700_000_000)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.tmp", None),
            ("variables", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(version_of(name), number, "{name:?}");
        }
    }
}
