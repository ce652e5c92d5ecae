//! `thalweg check`: lists what a graph needs that is not supported, without running it.

mod placement;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_formats::Storage;
use thalweg_formats::saved_model::SavedModelFile;
use thalweg_graph::{AttrValue, Graph, Node, Op};
use thalweg_kernel::{Environment, KernelInit, NodeStates};
use thalweg_proto as pb;
use thalweg_runtime::memory_limit_bytes;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Budget, Error, Result, err};

use crate::accelerator::wants_accelerator;
use crate::{Failure, Registry, files, graph_file, ops, prune};
use placement::Placed;

/// The number of nodes that are listed for each unsupported feature; the others are counted.
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

    /// Also say which nodes this device would run: gpu, for any accelerator, names the ops that stay on
    /// the CPU
    #[arg(long, value_name = "DEVICE", value_parser = ["cpu", "gpu"], ignore_case = true,
          help_heading = "Accelerators")]
    device: Option<String>,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Checks the graph.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let mut unsupported = Unsupported::default();
    let graphs = if files::is_folder(&args.graph)? {
        model_graphs(&args.graph, &mut unsupported)?
    } else {
        graph_file::read_any(&args.graph)?
    };
    let mut nodes = 0;
    let mut placed = wants_accelerator(args.device.as_deref()).then(Placed::default);
    for graph in graphs {
        nodes += graph.node.len();
        let library = graph.library.clone().unwrap_or_default().function;
        let graph = check(registry, graph, &mut unsupported);
        if let (Some(placed), Some(graph)) = (&mut placed, graph) {
            placed.add(registry, &graph, &library);
        }
    }
    if placed.is_some() {
        unsupported.0.retain(|(_, op, _), _| !ops::needs_accelerator(registry.kernels.for_op(op)));
    }
    if args.json {
        let mut all = unsupported.to_json(nodes);
        if let Some(placed) = &placed {
            all["placement"] = placed.to_json();
        }
        writeln!(out, "{all}")?;
    } else {
        unsupported.write_text(nodes, out)?;
        if let Some(placed) = &placed {
            placed.write_text(out)?;
        }
    }
    match unsupported.0.len() {
        0 => Ok(()),
        n => Err(Failure::Failed(err!(
            Unimplemented,
            "{} needs {n} unsupported feature{}",
            args.graph.display(),
            if n == 1 { "" } else { "s" }
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

/// Unsupported features, and the nodes that need them.
#[derive(Default)]
struct Unsupported(BTreeMap<(Kind, String, String), Vec<String>>);

impl Unsupported {
    fn add(&mut self, kind: Kind, op: &str, what: impl Into<String>, node: &str) {
        let nodes = self.0.entry((kind, op.to_owned(), what.into())).or_default();
        if !nodes.iter().any(|n| n == node) {
            nodes.push(node.to_owned());
        }
    }

    fn to_json(&self, nodes: usize) -> serde_json::Value {
        let mut unsupported = Vec::new();
        for ((kind, op, what), nodes) in &self.0 {
            let kind = kind.name();
            unsupported.push(serde_json::json!({
                "kind": kind, "op": op, "what": what, "nodes": nodes,
            }));
        }
        serde_json::json!({"nodes": nodes, "unsupported": unsupported})
    }

    fn write_text(&self, nodes: usize, out: &mut dyn Write) -> Result<(), Failure> {
        for ((kind, op, what), nodes) in &self.0 {
            writeln!(out, "{} {op}: {what}", kind.name())?;
            writeln!(out, "    needed by {}", shown(nodes))?;
        }
        if self.0.is_empty() {
            writeln!(out, "all {nodes} nodes are supported")?;
        }
        Ok(())
    }
}

/// The first nodes of a list, and how many more there are.
fn shown(nodes: &[String]) -> String {
    let first = nodes.iter().take(NODES_SHOWN).map(String::as_str).collect::<Vec<_>>();
    let more = match nodes.len().saturating_sub(NODES_SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{}{more}", first.join(", "))
}

/// The graphs of a SavedModel, each pruned to the nodes that loading and its signatures need.
fn model_graphs(folder: &Path, unsupported: &mut Unsupported) -> Result<Vec<pb::GraphDef>> {
    let storage: Arc<dyn Storage> = Arc::new(ByUrl::default());
    let folder = folder.to_str().ok_or_else(|| {
        err!(InvalidArgument, "{}: the path of the folder must be UTF-8", folder.display())
    })?;
    let file = SavedModelFile::read(&*storage, folder, memory_limit_bytes())?;
    let mut graphs = Vec::new();
    for mut meta in file.into_meta_graphs() {
        let mut note = |kind: Kind, error: &Error| {
            unsupported.add(kind, "", error.message(), "the model");
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
        graphs.push(prune::prune(meta.take_graph()?, &roots));
    }
    Ok(graphs)
}

/// Checks a graph; returns it if it could be built.
fn check(registry: &Registry, def: pb::GraphDef, unsupported: &mut Unsupported) -> Option<Graph> {
    let functions: Vec<&pb::FunctionDef> = def.library.iter().flat_map(|l| &l.function).collect();
    let names: Vec<&str> =
        functions.iter().filter_map(|f| Some(f.signature.as_ref()?.name.as_str())).collect();
    for node in &def.node {
        check_def(registry, &names, node, &node.name, unsupported);
    }
    for (function, name) in functions.iter().zip(&names) {
        for node in &function.node_def {
            check_def(registry, &names, node, &format!("{name}/{}", node.name), unsupported);
        }
    }
    // A graph can only be built if all its ops are known; its kernels check further attrs.
    let is_known = |op: &str| names.contains(&op) || registry.ops.get(op).is_ok();
    if !def.node.iter().all(|n| is_known(&n.op)) {
        return None;
    }
    match Graph::from_def(registry.ops.clone(), def) {
        Ok(graph) => {
            check_kernels(registry, &graph, unsupported);
            Some(graph)
        }
        Err(e) => {
            unsupported.add(Kind::Graph, "", e.to_string(), "the graph");
            None
        }
    }
}

/// Checks a node by itself: its op, its attrs, its dtypes.
fn check_def(
    registry: &Registry,
    functions: &[&str],
    def: &pb::NodeDef,
    name: &str,
    unsupported: &mut Unsupported,
) {
    if functions.contains(&def.op.as_str()) {
        return;
    }
    let Ok(op) = registry.ops.get(&def.op) else {
        unsupported.add(Kind::Op, &def.op, "unknown to TensorFlow 2.21 and to this program", name);
        return;
    };
    if !ops::has(registry, &def.op) {
        unsupported.add(Kind::Op, &def.op, "it has no kernel", name);
        return;
    }
    for attr in def.attr.keys().filter(|a| !a.starts_with('_')) {
        if op.attr(attr).is_none() {
            unsupported.add(Kind::Attr, &def.op, format!("the op has no attr '{attr}'"), name);
        }
    }
    check_dtypes(registry, op, def, name, unsupported);
}

fn check_dtypes(
    registry: &Registry,
    op: &Arc<Op>,
    def: &pb::NodeDef,
    name: &str,
    unsupported: &mut Unsupported,
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
        let is_elsewhere = ops::needs_accelerator(registry.kernels.for_op(&op.name));
        let kind = if is_elsewhere { Kind::Op } else { Kind::Dtype };
        unsupported.add(kind, &op.name, e.message(), name);
    }
}

/// Instantiates every kernel, to check its attrs.
fn check_kernels(registry: &Registry, graph: &Graph, unsupported: &mut Unsupported) {
    let (budget, environment) = (Budget::new(KERNEL_BYTES_MAX), Environment::frozen());
    let states = NodeStates::default();
    for node in graph.nodes() {
        let is_structural = node.role().is_interpreted();
        let Ok(kernel) = registry.kernels.find(node, "CPU") else { continue };
        if is_structural {
            continue;
        }
        let init = KernelInit { node, budget: &budget, environment: &environment, states: &states };
        if let Err(e) = (kernel.create)(&init) {
            unsupported.add(Kind::Attr, &node.op.name, e.message(), &node.name);
        }
    }
}
