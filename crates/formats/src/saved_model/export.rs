//! Export of SavedModels that TensorFlow's loaders and servers accept.
//!
//! The format is that of TensorFlow 1 (without an object graph), because `tf.saved_model.load`,
//! `tf.compat.v1.saved_model.load` and TensorFlow Serving all load it. The folder is written under
//! a temporary name and renamed, so that no reader sees an incomplete one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;
use thalweg_proto::{
    self as pb, Codec, attr_value::Value, collection_def::Kind, meta_graph_def::MetaInfoDef,
    tensor_info::Encoding,
};
use thalweg_tensor::{Bytes, Context, Result, ensure, err};

use super::meta_graph::{check_file_name, make_constant, node_of};
use super::signature::Signature;
use super::{ASSETS_FOLDER, BINARY_FILE, SCHEMA_VERSION, VARIABLES_PREFIX, saver};
use crate::storage::{Storage, join};

/// The maximum size of a protobuf message.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;
/// The chunk size for copying assets.
const COPY_BYTES: usize = 1 << 20;
/// The maximum depth at which the folder of a failed export is removed.
const CLEANUP_DEPTH: usize = 4;
const ASSET_TYPE_URL: &str = "type.googleapis.com/tensorflow.AssetFileDef";

/// The contents of a SavedModel.
#[derive(Clone, Debug, Default)]
pub struct Export {
    /// The graph; its nodes must not request devices.
    pub graph: pb::GraphDef,
    /// The signatures.
    pub signatures: BTreeMap<String, Signature>,
    /// The tags of the MetaGraph.
    pub tags: BTreeSet<String>,
    /// Constants or placeholders that hold asset paths, with the files to copy.
    pub assets: Vec<(String, String)>,
    /// The node to run after the variables are restored.
    pub init_op: Option<String>,
}

/// A SavedModel without the values of its variables.
#[derive(Clone, Debug)]
pub struct Prepared {
    meta: pb::MetaGraphDef,
    /// Asset files to copy, by their name in the assets folder.
    assets: BTreeMap<String, String>,
}

/// The save op of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveStep {
    /// Fed with the checkpoint prefix.
    pub filename_tensor: String,
    /// Fetched.
    pub saved_tensor: String,
}

impl Export {
    /// Adds the save and restore ops of the graph's variables.
    pub fn prepare(mut self) -> Result<Prepared> {
        ensure!(
            !self.signatures.is_empty(),
            InvalidArgument,
            "a SavedModel needs at least one signature"
        );
        ensure!(!self.tags.is_empty(), InvalidArgument, "a SavedModel needs at least one tag");
        for node in &mut self.graph.node {
            node.device.clear();
            name_state(node);
        }
        let saver = saver::add(&mut self.graph)?;
        let mut collections = BTreeMap::new();
        if let Some(saver) = &saver {
            let value = saver.variables.iter().map(|v| v.encode_to_vec().into()).collect();
            collections
                .insert("variables", Kind::BytesList(pb::collection_def::BytesList { value }));
        }
        if let Some(node) = &self.init_op {
            let value = vec![node.clone()];
            let kind = Kind::NodeList(pb::collection_def::NodeList { value });
            collections.insert("saved_model_main_op", kind);
        }
        let (assets, defs) = self.place_assets()?;
        if !defs.is_empty() {
            let kind = Kind::AnyList(pb::collection_def::AnyList { value: defs });
            collections.insert("saved_model_assets", kind);
        }
        let mut signature_def = BTreeMap::new();
        for (name, signature) in &self.signatures {
            signature_def.insert(name.clone(), signature.to_proto()?);
        }
        let meta = pb::MetaGraphDef {
            meta_info_def: Some(MetaInfoDef {
                tags: self.tags.into_iter().collect(),
                ..Default::default()
            }),
            graph_def: Some(self.graph),
            saver_def: saver.map(|s| s.def),
            collection_def: collections
                .into_iter()
                .map(|(name, kind)| (name.to_owned(), pb::CollectionDef { kind: Some(kind) }))
                .collect(),
            signature_def,
            ..Default::default()
        };
        Ok(Prepared { meta, assets })
    }

    /// Chooses the names of asset files and sets them in the graph.
    fn place_assets(
        &mut self,
    ) -> Result<(BTreeMap<String, String>, Vec<pb::google::protobuf::Any>)> {
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        let mut defs = Vec::new();
        for (tensor, source) in &self.assets {
            let base = source.rsplit('/').next().unwrap_or_default();
            check_file_name(base)?;
            let mut name = base.to_owned();
            for i in 1.. {
                if files.get(&name).is_none_or(|other| other == source) {
                    break;
                }
                name = format!("{i}_{base}");
            }
            let node = self.graph.node.iter_mut().find(|n| n.name == node_of(tensor));
            let node = node.ok_or_else(|| {
                err!(InvalidArgument, "asset {source}: the graph has no node '{}'", node_of(tensor))
            })?;
            make_constant(node, &name).context(|| format!("asset {source}"))?;
            let info = pb::TensorInfo {
                encoding: Some(Encoding::Name(format!("{}:0", node.name))),
                ..Default::default()
            };
            let def = pb::AssetFileDef { tensor_info: Some(info), filename: name.clone() };
            defs.push(pb::google::protobuf::Any {
                type_url: ASSET_TYPE_URL.to_owned(),
                value: def.encode_to_vec().into(),
            });
            files.insert(name, source.clone());
        }
        Ok((files, defs))
    }
}

/// Sets a variable's `shared_name` to the name of its node if it is empty: loaders may rename
/// nodes.
fn name_state(node: &mut pb::NodeDef) {
    if node.op != "VarHandleOp" {
        return;
    }
    let name = node.attr.entry("shared_name".to_owned()).or_default();
    if !matches!(&name.value, Some(Value::S(given)) if !given.is_empty()) {
        name.value = Some(Value::S(Bytes::from(node.name.clone())));
    }
}

impl Prepared {
    /// The graph with save and restore ops.
    pub fn graph(&self) -> &pb::GraphDef {
        self.meta.graph_def.as_ref().expect("`prepare` puts it there")
    }

    /// The save op, if there are variables.
    pub fn save_step(&self) -> Option<SaveStep> {
        self.meta.saver_def.as_ref().map(|saver| SaveStep {
            filename_tensor: saver.filename_tensor_name.clone(),
            saved_tensor: saver.save_tensor_name.clone(),
        })
    }

    /// Writes the folder, which must not exist. `save` writes the checkpoint of the variables under
    /// the given prefix.
    pub fn write(
        &self,
        storage: &dyn Storage,
        folder: &str,
        save: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let folder = folder.trim_end_matches('/');
        ensure!(!folder.is_empty(), InvalidArgument, "the folder of a SavedModel needs a name");
        ensure!(
            !storage.exists(folder)?,
            AlreadyExists,
            "{folder} exists; a SavedModel is written to a new folder"
        );
        let temporary = temporary_folder(folder);
        let written = self.fill(storage, &temporary, save).and_then(|()| {
            // Checked again: another process may have written it, and a rename replaces an empty folder.
            ensure!(!storage.exists(folder)?, AlreadyExists, "{folder} exists");
            storage.rename(&temporary, folder)
        });
        if written.is_err() {
            remove(storage, &temporary, CLEANUP_DEPTH);
        }
        written
    }

    fn fill(
        &self,
        storage: &dyn Storage,
        folder: &str,
        save: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let bytes = self.meta.encoded_len();
        ensure!(
            bytes < MESSAGE_BYTES_MAX,
            ResourceExhausted,
            "the graph takes {bytes} bytes, more than the {MESSAGE_BYTES_MAX} of a protobuf message; keep \
             weights in variables, not in constants"
        );
        storage.create_folder(folder)?;
        if self.meta.saver_def.is_some() {
            let prefix = join(folder, VARIABLES_PREFIX);
            storage.create_folder_of(&prefix)?;
            save(&prefix)?;
        }
        for (name, source) in &self.assets {
            let target = join(&join(folder, ASSETS_FOLDER), name);
            copy(storage, source, &target).context(|| "asset")?;
        }
        let model = pb::SavedModel {
            saved_model_schema_version: SCHEMA_VERSION,
            meta_graphs: vec![self.meta.clone()],
        };
        storage.write(&join(folder, BINARY_FILE), &model.to_bytes())
    }
}

/// A temporary name beside the folder, which model servers ignore.
fn temporary_folder(folder: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = folder.rsplit('/').next().unwrap_or_default();
    let parent = &folder[..folder.len() - name.len()];
    format!("{parent}.{name}.{}-{number}.tmp", std::process::id())
}

fn copy(storage: &dyn Storage, source: &str, target: &str) -> Result<()> {
    let from = storage.open(source)?;
    storage.create_folder_of(target)?;
    let mut to = storage.replace(target)?;
    let mut block = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let read = from.read_at(offset, &mut block)?;
        if read == 0 {
            return to.finish();
        }
        to.write(&block[..read])?;
        offset += read as u64;
    }
}

/// Removes a folder and the files written into it; errors are ignored.
fn remove(storage: &dyn Storage, folder: &str, depth: usize) {
    for name in storage.list(folder).unwrap_or_default() {
        let path = join(folder, &name);
        match storage.metadata(&path) {
            Ok(found) if found.is_folder && depth > 0 => remove(storage, &path, depth - 1),
            _ => {
                let _ = storage.remove(&path);
            }
        }
    }
    let _ = storage.remove_folder(folder);
}
