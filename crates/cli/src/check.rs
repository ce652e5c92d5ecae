//! `thalweg check`: lists what a graph needs that this program lacks, without running it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_formats::Storage;
use thalweg_formats::saved_model::SavedModelFile;
use thalweg_graph::{AttrValue, Graph, Node, Op};
use thalweg_kernel::{Environment, KernelInit};
use thalweg_proto as pb;
use thalweg_runtime::memory_limit_bytes;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Budget, Error, Result, err};

use crate::{Failure, Registry, files, graph_file, needed, ops};

/// The number of nodes that are listed for each missing feature; the others are counted.
const NODES_SHOWN: usize = 8;
/// The memory limit of kernels that are instantiated by the check.
const KERNEL_BYTES_MAX: usize = 1 << 30;

/// List the ops, dtypes and attrs that a graph needs and that are not supported.
///
/// For a SavedModel folder: what loading it and running its signatures needs, including its files.
/// The exit code is 1 if anything is not supported.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// GraphDef, MetaGraphDef or SavedModel (file or folder), binary or text
    graph: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Checks the graph.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let mut lacks = Lacks::default();
    let graphs = if files::is_folder(&args.graph)? {
        model_graphs(&args.graph, &mut lacks)?
    } else {
        graph_file::read_any(&args.graph)?
    };
    let mut nodes = 0;
    for graph in graphs {
        nodes += graph.node.len();
        check(registry, graph, &mut lacks);
    }
    if args.json {
        writeln!(out, "{}", lacks.to_json(nodes))?;
    } else {
        lacks.write_text(nodes, out)?;
    }
    match lacks.0.len() {
        0 => Ok(()),
        n => Err(Failure::Failed(err!(
            Unimplemented,
            "{} needs {n} thing{} that {} not here",
            args.graph.display(),
            if n == 1 { "" } else { "s" },
            if n == 1 { "is" } else { "are" }
        ))),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Op,
    Dtype,
    Attr,
    Graph,
    File,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Op => "op",
            Kind::Dtype => "dtype",
            Kind::Attr => "attr",
            Kind::Graph => "graph",
            Kind::File => "file",
        }
    }
}

/// Missing features, and the nodes that need them.
#[derive(Default)]
struct Lacks(BTreeMap<(Kind, String, String), Vec<String>>);

impl Lacks {
    fn add(&mut self, kind: Kind, op: &str, what: impl Into<String>, node: &str) {
        let nodes = self.0.entry((kind, op.to_owned(), what.into())).or_default();
        if !nodes.iter().any(|n| n == node) {
            nodes.push(node.to_owned());
        }
    }

    fn to_json(&self, nodes: usize) -> serde_json::Value {
        let lack = |((kind, op, what), nodes): (&(Kind, String, String), &Vec<String>)| serde_json::json!({"kind": kind.name(), "op": op, "what": what, "nodes": nodes});
        let lacks: Vec<serde_json::Value> = self.0.iter().map(lack).collect();
        serde_json::json!({"nodes": nodes, "lacks": lacks})
    }

    fn write_text(&self, nodes: usize, out: &mut dyn Write) -> Result<(), Failure> {
        for ((kind, op, what), nodes) in &self.0 {
            writeln!(out, "{} {op}: {what}", kind.name())?;
            let shown = nodes.iter().take(NODES_SHOWN).map(String::as_str).collect::<Vec<_>>();
            let more = match nodes.len().saturating_sub(NODES_SHOWN) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            writeln!(out, "    needed by {}{more}", shown.join(", "))?;
        }
        if self.0.is_empty() {
            writeln!(out, "all {nodes} nodes can run here")?;
        }
        Ok(())
    }
}

/// The graphs of a SavedModel, each pruned to what loading it and its signatures need.
fn model_graphs(folder: &Path, lacks: &mut Lacks) -> Result<Vec<pb::GraphDef>> {
    let storage: Arc<dyn Storage> = Arc::new(ByUrl::default());
    let folder = folder.to_str().ok_or_else(|| {
        err!(InvalidArgument, "{}: the name of the folder must be text", folder.display())
    })?;
    let file = SavedModelFile::read(&*storage, folder, memory_limit_bytes())?;
    let mut graphs = Vec::new();
    for mut meta in file.into_meta_graphs() {
        let mut note = |kind: Kind, error: &Error| {
            lacks.add(kind, "", error.message(), "the model");
        };
        let mut roots = Vec::new();
        match meta.signatures() {
            Ok(signatures) => {
                let outputs = signatures.values().flat_map(|s| s.outputs.values());
                roots.extend(outputs.map(|spec| spec.tensor.clone()));
            }
            Err(e) => note(Kind::Graph, &e),
        }
        match meta.restore(&storage) {
            Ok(restore) => roots.extend(restore.into_iter().flat_map(|r| r.ops)),
            Err(e) => note(Kind::File, &e),
        }
        match meta.init_op() {
            Ok(init) => roots.extend(init),
            Err(e) => note(Kind::Graph, &e),
        }
        if let Err(e) = meta.resolve_assets(&*storage) {
            note(Kind::File, &e);
        }
        graphs.push(needed::keep(meta.take_graph()?, &roots));
    }
    Ok(graphs)
}

fn check(registry: &Registry, def: pb::GraphDef, lacks: &mut Lacks) {
    let functions: Vec<&pb::FunctionDef> = def.library.iter().flat_map(|l| &l.function).collect();
    let names: Vec<&str> =
        functions.iter().filter_map(|f| Some(f.signature.as_ref()?.name.as_str())).collect();
    for node in &def.node {
        check_def(registry, &names, node, &node.name, lacks);
    }
    for (function, name) in functions.iter().zip(&names) {
        for node in &function.node_def {
            check_def(registry, &names, node, &format!("{name}/{}", node.name), lacks);
        }
    }
    // Only a graph whose ops are all known can be made; its kernels tell what else they refuse.
    let is_known = |op: &str| names.contains(&op) || registry.ops.get(op).is_ok();
    if !def.node.iter().all(|n| is_known(&n.op)) {
        return;
    }
    match Graph::from_def(registry.ops.clone(), def) {
        Ok(graph) => check_kernels(registry, &graph, lacks),
        Err(e) => lacks.add(Kind::Graph, "", e.to_string(), "the graph"),
    }
}

/// Checks a node by itself: its op, its attrs, its dtypes.
fn check_def(
    registry: &Registry,
    functions: &[&str],
    def: &pb::NodeDef,
    name: &str,
    lacks: &mut Lacks,
) {
    if functions.contains(&def.op.as_str()) {
        return;
    }
    let Ok(op) = registry.ops.get(&def.op) else {
        lacks.add(Kind::Op, &def.op, "neither TensorFlow 2.21 nor this program knows it", name);
        return;
    };
    if !ops::has(registry, &def.op) {
        lacks.add(Kind::Op, &def.op, "it has no kernel here", name);
        return;
    }
    for attr in def.attr.keys().filter(|a| !a.starts_with('_')) {
        if op.attr(attr).is_none() {
            lacks.add(Kind::Attr, &def.op, format!("there is no attr '{attr}'"), name);
        }
    }
    check_dtypes(registry, op, def, name, lacks);
}

fn check_dtypes(
    registry: &Registry,
    op: &Arc<Op>,
    def: &pb::NodeDef,
    name: &str,
    lacks: &mut Lacks,
) {
    let is_placeholder =
        |a: &pb::AttrValue| matches!(a.value, Some(pb::attr_value::Value::Placeholder(_)));
    let is_structural = registry.kernels.for_op(&op.name).is_empty();
    if is_structural || def.attr.values().any(is_placeholder) {
        return;
    }
    let mut node = Node::bare(name, op.clone());
    for (attr, value) in &def.attr {
        node.attrs.set(attr.as_str(), AttrValue::from_proto(value.clone()));
    }
    if let Err(e) = registry.kernels.find(&node, "CPU") {
        lacks.add(Kind::Dtype, &op.name, e.message(), name);
    }
}

/// Instantiates every kernel, to check its attrs.
fn check_kernels(registry: &Registry, graph: &Graph, lacks: &mut Lacks) {
    let (budget, environment) = (Budget::new(KERNEL_BYTES_MAX), Environment::frozen());
    for node in graph.nodes() {
        let is_structural = node.role().is_interpreted();
        let Ok(kernel) = registry.kernels.find(node, "CPU") else { continue };
        if is_structural {
            continue;
        }
        let init = KernelInit { node, budget: &budget, environment: &environment };
        if let Err(e) = (kernel.create)(&init) {
            lacks.add(Kind::Attr, &node.op.name, e.message(), &node.name);
        }
    }
}
