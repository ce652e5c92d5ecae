//! SavedModels: a graph with signatures, variables and assets in one folder.
//!
//! A folder holds `saved_model.pb` (or `.pbtxt`), the variables as a checkpoint under `variables/`,
//! and asset files under `assets/`. Nothing is run here: [`SavedModelFile`] describes the contents,
//! [`MetaGraph`] how to load one of its graphs, and [`Export`] writes a new folder.

mod captures;
mod export;
mod functions;
mod meta_graph;
mod saver;
mod signature;
mod unrestored;

use std::collections::BTreeSet;

use thalweg_proto as pb;
use thalweg_tensor::{Code, Context, Error, Result, bail, ensure, err};

pub use export::{Export, Prepared, SaveStep};
pub use functions::{Call, Function, Functions};
pub use meta_graph::{MetaGraph, Restore};
pub use saver::{RUN_STATE_ATTR, SLICE_ATTR, SLICE_OF_ATTR};
pub use signature::{PREDICT_METHOD, Signature, TensorSpec};

use crate::message;
use crate::storage::{Storage, join};

/// The tag of graphs for serving.
pub const SERVE_TAG: &str = "serve";
/// The default signature name.
pub const DEFAULT_SIGNATURE: &str = "serving_default";

const BINARY_FILE: &str = "saved_model.pb";
const TEXT_FILE: &str = "saved_model.pbtxt";
/// The chunked format for more than 2 GB, which is not supported.
const CHUNKED_FILE: &str = "saved_model.cpb";
/// Checkpoint of the variables.
const VARIABLES_PREFIX: &str = "variables/variables";
const ASSETS_FOLDER: &str = "assets";
/// The schema version of the format.
const SCHEMA_VERSION: i64 = 1;
/// The maximum number of versions that an error message lists.
const VERSIONS_SHOWN: usize = 8;

/// The contents of a `saved_model.pb`.
#[derive(Clone, Debug)]
pub struct SavedModelFile {
    folder: String,
    meta_graphs: Vec<pb::MetaGraphDef>,
}

/// Whether a folder is a SavedModel.
pub fn is_saved_model(storage: &dyn Storage, folder: &str) -> bool {
    let has = |name: &str| storage.exists(&join(folder, name)).unwrap_or(false);
    has(BINARY_FILE) || has(TEXT_FILE) || has(CHUNKED_FILE)
}

impl SavedModelFile {
    /// Reads the file of a folder, at most `bytes_max` bytes. Constants are read into their own
    /// memory without a copy.
    pub fn read(storage: &dyn Storage, folder: &str, bytes_max: usize) -> Result<SavedModelFile> {
        let binary = join(folder, BINARY_FILE);
        let text = join(folder, TEXT_FILE);
        let (path, model): (String, pb::SavedModel) = if storage.exists(&binary)? {
            let model = message::read(storage, &binary, bytes_max)?;
            (binary, model)
        } else if storage.exists(&text)? {
            let bytes = storage.read(&text, bytes_max)?;
            let model = decode_text(&bytes).context(|| &text)?;
            (text, model)
        } else {
            return Err(missing(storage, folder));
        };
        ensure!(!model.meta_graphs.is_empty(), DataLoss, "{path}: the SavedModel has no MetaGraph");
        Ok(SavedModelFile { folder: folder.to_owned(), meta_graphs: model.meta_graphs })
    }

    /// All MetaGraphs.
    pub fn into_meta_graphs(self) -> Vec<MetaGraph> {
        let SavedModelFile { folder, meta_graphs } = self;
        meta_graphs.into_iter().map(|def| MetaGraph::new(folder.clone(), def)).collect()
    }

    /// The tags of each MetaGraph.
    pub fn tag_sets(&self) -> Vec<BTreeSet<&str>> {
        self.meta_graphs.iter().map(tags).collect()
    }

    /// The MetaGraph with exactly these tags; without tags, the only one or that for serving.
    pub fn select(mut self, wanted: &[&str]) -> Result<MetaGraph> {
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        let find = |set: &BTreeSet<&str>| self.meta_graphs.iter().position(|m| tags(m) == *set);
        let found = match (wanted.is_empty(), self.meta_graphs.len()) {
            (true, 1) => Some(0),
            (true, _) => find(&[SERVE_TAG].into()),
            _ => find(&wanted),
        };
        let Some(found) = found else {
            let shown = |set: &BTreeSet<&str>| {
                format!("[{}]", set.iter().copied().collect::<Vec<_>>().join(", "))
            };
            let there: Vec<String> = self.tag_sets().iter().map(shown).collect();
            let folder = &self.folder;
            let there = there.join(", ");
            if wanted.is_empty() {
                bail!(
                    InvalidArgument,
                    "{folder}: the model has several MetaGraphs; choose one by its tags: {there}"
                );
            }
            bail!(
                NotFound,
                "{folder}: no MetaGraph has the tags {}; there are {there}",
                shown(&wanted)
            );
        };
        Ok(MetaGraph::new(self.folder, self.meta_graphs.swap_remove(found)))
    }
}

/// The error for an unknown signature, with a list of the existing ones.
pub fn unknown_signature<'a>(
    folder: &str,
    name: &str,
    signatures: impl Iterator<Item = &'a String>,
    functions: &'a Functions,
) -> Error {
    fn quoted<'a>(names: impl Iterator<Item = &'a String>) -> String {
        names.map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ")
    }
    let there = match quoted(signatures) {
        none if none.is_empty() => "it has none".to_owned(),
        some => format!("it has {some}"),
    };
    let functions = match quoted(functions.by_path().keys()) {
        none if none.is_empty() => String::new(),
        some => format!(", and the functions {some}"),
    };
    err!(NotFound, "{folder}: there is no signature '{name}'; {there}{functions}")
}

fn tags(meta: &pb::MetaGraphDef) -> BTreeSet<&str> {
    meta.meta_info_def.iter().flat_map(|info| &info.tags).map(String::as_str).collect()
}

fn decode_text(bytes: &[u8]) -> Result<pb::SavedModel> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| err!(DataLoss, "not text: byte {} is not UTF-8", e.valid_up_to()))?;
    pb::text::decode("tensorflow.SavedModel", text)
        .map_err(|e| err!(DataLoss, "not a SavedModel: {e}"))
}

/// The error for a folder that is not a SavedModel, with a suggestion.
fn missing(storage: &dyn Storage, folder: &str) -> Error {
    match storage.metadata(folder) {
        Ok(found) if !found.is_folder => {
            return err!(
                InvalidArgument,
                "{folder}: a SavedModel is a folder with {BINARY_FILE} in it, this is a file"
            );
        }
        Ok(_) => {}
        Err(e) if e.code() == Code::NotFound => {
            return err!(NotFound, "there is no folder {folder}");
        }
        Err(e) => return e,
    }
    if storage.exists(&join(folder, CHUNKED_FILE)).unwrap_or(false) {
        return err!(
            Unimplemented,
            "{folder}: {CHUNKED_FILE} is TensorFlow's chunked format for more than 2 GB, which is not supported; \
             save the model without experimental_image_format, with its weights as variables"
        );
    }
    let mut versions: Vec<u64> = storage
        .list(folder)
        .unwrap_or_default()
        .iter()
        .filter(|name| is_saved_model(storage, &join(folder, name)))
        .filter_map(|name| name.parse().ok())
        .collect();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    let Some(newest) = versions.first() else {
        return err!(NotFound, "{folder}: there is neither {BINARY_FILE} nor {TEXT_FILE} in it");
    };
    let shown: Vec<String> =
        versions.iter().take(VERSIONS_SHOWN).map(ToString::to_string).collect();
    err!(
        NotFound,
        "{folder} holds versions of a model ({}): give one of them, {} for instance",
        shown.join(", "),
        join(folder, &newest.to_string())
    )
}
