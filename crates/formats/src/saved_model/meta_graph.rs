//! A MetaGraph of a SavedModel, and how it is loaded.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use prost::Message;
use thalweg_proto::{self as pb, attr_value::Value, collection_def::Kind, tensor_info::Encoding};
use thalweg_tensor::{Context, DType, Result, Tensor, bail, ensure, err};

use super::functions::Functions;
use super::signature::Signature;
use super::{ASSETS_FOLDER, VARIABLES_PREFIX, saver, unrestored};
use crate::storage::{Storage, join};

/// The prefix of signatures that are meant for loaders, not for callers.
const INTERNAL_PREFIX: &str = "__saved_model_";
const INIT_SIGNATURE: &str = "__saved_model_init_op";
/// The collections in which older models name the init op, newest first.
const INIT_COLLECTIONS: [&str; 2] = ["saved_model_main_op", "legacy_init_op"];
const ASSETS_COLLECTION: &str = "saved_model_assets";

/// A MetaGraph of a SavedModel.
#[derive(Clone, Debug)]
pub struct MetaGraph {
    folder: String,
    def: pb::MetaGraphDef,
}

/// The restore op of a MetaGraph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// Fed with [`Restore::prefix`].
    pub filename_tensor: String,
    /// The targets: the saver's restore op, and one for variables that it leaves out.
    pub ops: Vec<String>,
    /// The checkpoint prefix.
    pub prefix: String,
}

impl MetaGraph {
    pub(super) fn new(folder: String, def: pb::MetaGraphDef) -> MetaGraph {
        MetaGraph { folder, def }
    }

    /// The SavedModel folder.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// The MetaGraphDef.
    pub fn def(&self) -> &pb::MetaGraphDef {
        &self.def
    }

    /// Takes the graph.
    pub fn take_graph(&mut self) -> Result<pb::GraphDef> {
        let graph = self.def.graph_def.take();
        graph.ok_or_else(|| err!(DataLoss, "{}: the MetaGraph has no graph", self.folder))
    }

    /// The signatures, by name.
    pub fn signatures(&self) -> Result<BTreeMap<String, Signature>> {
        let mut found = BTreeMap::new();
        for (name, def) in &self.def.signature_def {
            if !name.starts_with(INTERNAL_PREFIX) {
                let signature = Signature::from_proto(def)
                    .context(|| format!("{}: signature '{name}'", self.folder))?;
                found.insert(name.clone(), signature);
            }
        }
        Ok(found)
    }

    /// The functions of the model's objects; the graph must not have been taken.
    pub fn functions(&self) -> Functions {
        Functions::of(&self.def)
    }

    /// The restore op; `None` if there are no variables. Nodes for variables that the saver leaves
    /// out are added to the graph.
    pub fn restore(&mut self, storage: &Arc<dyn Storage>) -> Result<Option<Restore>> {
        let saver = self.def.saver_def.clone().filter(|s| !s.restore_op_name.is_empty());
        let Some(saver) = saver else { return Ok(None) };
        let prefix = join(&self.folder, VARIABLES_PREFIX);
        let index = format!("{prefix}.index");
        if !storage.exists(&index)? {
            let variables = self.count_variables();
            ensure!(
                variables == 0,
                NotFound,
                "{index} is missing: it says where the values of the model's {variables} variables are"
            );
            return Ok(None);
        }
        ensure!(
            !saver.filename_tensor_name.is_empty(),
            InvalidArgument,
            "{}: its saver does not say which tensor takes the name of the checkpoint",
            self.folder
        );
        let filename_tensor = saver.filename_tensor_name;
        let mut ops = vec![node_of(&saver.restore_op_name).to_owned()];
        let forgotten = unrestored::find(&self.def, &ops[0], storage, &prefix)?;
        if let Some(graph) = &mut self.def.graph_def
            && !forgotten.is_empty()
        {
            ops.push(saver::add_restore(graph, &filename_tensor, &forgotten)?);
        }
        Ok(Some(Restore { filename_tensor, ops, prefix }))
    }

    fn count_variables(&self) -> usize {
        let nodes = self.def.graph_def.iter().flat_map(|g| &g.node);
        nodes.filter(|n| matches!(&n.op[..], "VarHandleOp" | "VariableV2" | "Variable")).count()
    }

    /// The node to run after variables and assets are restored, which for instance initializes
    /// tables.
    pub fn init_op(&self) -> Result<Option<String>> {
        if let Some(signature) = self.def.signature_def.get(INIT_SIGNATURE) {
            let output = signature.outputs.get(INIT_SIGNATURE);
            let Some(Encoding::Name(name)) = output.and_then(|o| o.encoding.as_ref()) else {
                bail!(InvalidArgument, "{}: {INIT_SIGNATURE} names no node", self.folder);
            };
            return Ok(Some(node_of(name).to_owned()));
        }
        for collection in INIT_COLLECTIONS {
            let Some(def) = self.def.collection_def.get(collection) else { continue };
            let names = match &def.kind {
                Some(Kind::NodeList(list)) => &list.value[..],
                _ => &[],
            };
            let [name] = names else {
                bail!(
                    FailedPrecondition,
                    "{}: the collection {collection} must name one node, it names {}",
                    self.folder,
                    names.len()
                );
            };
            return Ok(Some(node_of(name).to_owned()));
        }
        Ok(None)
    }

    /// Sets the tensors of assets to the current paths of the files.
    pub fn resolve_assets(&mut self, storage: &dyn Storage) -> Result<()> {
        let assets = self.assets().context(|| &self.folder)?;
        if assets.is_empty() {
            return Ok(());
        }
        let graph = self.def.graph_def.iter_mut().flat_map(|g| &mut g.node);
        let mut nodes: BTreeMap<&str, &mut pb::NodeDef> = BTreeMap::new();
        let mut names: Vec<(String, &mut pb::NodeDef)> =
            graph.map(|node| (node.name.clone(), node)).collect();
        for (name, node) in &mut names {
            nodes.insert(name, node);
        }
        for (tensor, file) in &assets {
            let path = join(&join(&self.folder, ASSETS_FOLDER), file);
            ensure!(storage.exists(&path)?, NotFound, "the model's asset {path} is missing");
            let node = nodes.get_mut(node_of(tensor)).ok_or_else(|| {
                err!(InvalidArgument, "asset {file}: the graph has no node '{}'", node_of(tensor))
            })?;
            make_constant(node, &path).context(|| format!("asset {file}"))?;
        }
        Ok(())
    }

    /// Asset tensors and their files.
    fn assets(&self) -> Result<BTreeMap<String, String>> {
        let mut defs = self.def.asset_file_def.clone();
        if defs.is_empty()
            && let Some(Kind::AnyList(list)) =
                self.def.collection_def.get(ASSETS_COLLECTION).and_then(|c| c.kind.as_ref())
        {
            for any in &list.value {
                let def = pb::AssetFileDef::decode(any.value.clone());
                defs.push(def.map_err(|e| err!(DataLoss, "the list of assets: {e}"))?);
            }
        }
        let mut found = BTreeMap::new();
        for def in defs {
            let encoding = def.tensor_info.and_then(|info| info.encoding);
            let Some(Encoding::Name(tensor)) = encoding else {
                bail!(InvalidArgument, "asset {:?} names no tensor", def.filename);
            };
            check_file_name(&def.filename)?;
            let before = found.insert(tensor.clone(), def.filename.clone());
            ensure!(
                before.as_ref().is_none_or(|b| *b == def.filename),
                InvalidArgument,
                "'{tensor}' stands for two assets"
            );
        }
        Ok(found)
    }
}

/// Rejects names that could lead out of the folder.
pub(super) fn check_file_name(name: &str) -> Result<()> {
    let mut parts = Path::new(name).components().peekable();
    let is_inside = parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
        && !name.contains("://");
    ensure!(
        is_inside,
        InvalidArgument,
        "asset {name:?} is refused: an asset's file lies in the model's folder {ASSETS_FOLDER}"
    );
    Ok(())
}

/// The node of a node or tensor name.
pub(super) fn node_of(name: &str) -> &str {
    let name = name.strip_prefix('^').unwrap_or(name);
    match name.rsplit_once(':') {
        Some((node, index)) if index.bytes().all(|b| b.is_ascii_digit()) => node,
        _ => name,
    }
}

/// Replaces a placeholder or constant by the constant `path`.
pub(super) fn make_constant(node: &mut pb::NodeDef, path: &str) -> Result<()> {
    ensure!(
        matches!(&node.op[..], "Placeholder" | "Const"),
        InvalidArgument,
        "'{}' ({}) is neither a placeholder nor a constant",
        node.name,
        node.op
    );
    let value = Tensor::scalar_string(path.to_owned()).to_proto()?;
    node.op = "Const".to_owned();
    node.attr.retain(|name, _| name.starts_with('_'));
    let attr = |value| pb::AttrValue { value: Some(value) };
    node.attr.insert("dtype".into(), attr(Value::Type(DType::String.to_proto())));
    node.attr.insert("value".into(), attr(Value::Tensor(Box::new(value))));
    Ok(())
}
