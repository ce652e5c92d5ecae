//! `/api/graph`: the nodes and edges of a GraphDef as flat arrays.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};
use thalweg_graph::{Graph, NodeId};
use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_ops::Registry;
use thalweg_plan::{CostSource, Links, Options, Pins, Reason, StaticCosts, Target, place};
use thalweg_proto as pb;

/// Most nodes and edges that are shown; of a larger graph, the first ones.
const NODES_MAX: usize = 40_000;
const EDGES_MAX: usize = 100_000;
/// Memory of the devices that placement is asked about: those of the cluster do not say how much they have.
const MEMORY_BYTES: u64 = 1 << 40;

/// The device of a node, and why it has it.
pub(crate) type Placed = HashMap<String, (String, String)>;

/// The nodes and edges of a graph, in the form that is sent.
#[derive(Default)]
struct Columns {
    devices: Positions,
    ops: Positions,
    names: Vec<String>,
    op: Vec<usize>,
    device: Vec<usize>,
    seconds: Vec<f64>,
    bytes: Vec<u64>,
    edges: Vec<i64>,
    reasons: Vec<String>,
}

/// Texts and their positions in the order of their first appearance.
#[derive(Default)]
struct Positions {
    by_text: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Positions {
    fn of(&mut self, text: &str) -> usize {
        if let Some(&position) = self.by_text.get(text) {
            return position;
        }
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// A graph with the devices of its nodes, `placed` where it names them. Sizes and times are estimates from
/// shapes; a graph with ops that are not known has none.
pub(crate) fn to_json(def: &pb::GraphDef, registry: &Registry, placed: &Placed) -> Value {
    match Graph::from_def(registry.ops.clone(), def.clone()) {
        Ok(graph) => of_graph(&graph, placed),
        Err(_) => of_def(def, placed),
    }
}

/// The devices that placement gives the nodes of a graph; none if it cannot be placed there.
pub(crate) fn placed_on(def: &pb::GraphDef, registry: &Registry, devices: &[DeviceName]) -> Placed {
    let describe = |name: &DeviceName| DeviceDescription::cpu(name.clone(), MEMORY_BYTES);
    let devices: Vec<DeviceDescription> = devices.iter().map(describe).collect();
    let options = Options { allow_soft_placement: true, ..Options::default() };
    let target = Target {
        devices: &devices,
        links: &Links::default(),
        costs: &StaticCosts,
        kernels: &registry.kernels,
        pins: &Pins::default(),
        options,
    };
    if devices.is_empty() {
        return Placed::new();
    }
    let graph = Graph::from_def(registry.ops.clone(), def.clone());
    let Ok((graph, placement)) = graph.and_then(|graph| place(graph, &target)) else {
        return Placed::new();
    };
    let of = |((node, &device), reason): ((&thalweg_graph::Node, &u32), &Reason)| {
        let device = devices.get(device as usize)?.name.to_string();
        Some((node.name.to_string(), (device, reason.text().to_owned())))
    };
    let nodes = graph.nodes().iter().zip(&placement.devices).zip(&placement.reasons);
    nodes.filter_map(of).collect()
}

fn of_graph(graph: &Graph, placed: &Placed) -> Value {
    let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), MEMORY_BYTES);
    let mut columns = Columns::default();
    let shown = graph.len().min(NODES_MAX);
    let mut edges = 0;
    for (i, node) in graph.nodes().iter().enumerate() {
        edges += node.inputs.len() + node.control_inputs.len();
        if i >= shown {
            continue;
        }
        let cost = StaticCosts.cost(graph, NodeId(i as u32), &cpu);
        columns.add(&node.name, &node.op.name, &node.device, placed);
        columns.seconds.push(cost.seconds);
        columns.bytes.push(cost.output_bytes);
        for input in &node.inputs {
            let bytes = StaticCosts.tensor_bytes(graph, *input);
            columns.edge(input.node.index(), i, i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        for control in &node.control_inputs {
            columns.edge(control.index(), i, -1);
        }
    }
    columns.finish(graph.len(), edges)
}

fn of_def(def: &pb::GraphDef, placed: &Placed) -> Value {
    let shown = def.node.len().min(NODES_MAX);
    let positions: BTreeMap<&str, usize> =
        def.node.iter().take(shown).enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let (mut columns, mut edges) = (Columns::default(), 0);
    for (i, node) in def.node.iter().enumerate() {
        edges += node.input.len();
        if i >= shown {
            continue;
        }
        columns.add(&node.name, &node.op, &node.device, placed);
        columns.seconds.push(0.0);
        columns.bytes.push(0);
        for input in &node.input {
            let (name, bytes) = match input.strip_prefix('^') {
                Some(name) => (name, -1),
                None => (input.rsplit_once(':').map_or(input.as_str(), |(name, _)| name), 0),
            };
            if let Some(&from) = positions.get(name) {
                columns.edge(from, i, bytes);
            }
        }
    }
    columns.finish(def.node.len(), edges)
}

impl Columns {
    fn add(&mut self, name: &str, op: &str, device: &str, placed: &Placed) {
        let found = placed.get(name);
        let device = found.map_or(device, |(device, _)| device);
        self.names.push(name.to_owned());
        self.op.push(self.ops.of(op));
        self.device.push(self.devices.of(device));
        if !placed.is_empty() {
            self.reasons.push(found.map_or(String::new(), |(_, reason)| reason.clone()));
        }
    }

    fn edge(&mut self, from: usize, to: usize, bytes: i64) {
        if from < NODES_MAX && self.edges.len() < 3 * EDGES_MAX {
            self.edges.extend([from as i64, to as i64, bytes]);
        }
    }

    fn finish(self, nodes: usize, edges: usize) -> Value {
        let is_whole = nodes == self.names.len() && edges == self.edges.len() / 3;
        let mut json = Map::new();
        let mut set = |name: &str, value: Value| json.insert(name.to_owned(), value);
        set("devices", self.devices.texts.into());
        set("ops", self.ops.texts.into());
        set("name", self.names.into());
        set("op", self.op.into());
        set("device", self.device.into());
        set("seconds", self.seconds.into());
        set("bytes", self.bytes.into());
        set("edges", self.edges.into());
        if !self.reasons.is_empty() {
            set("reason", self.reasons.into());
        }
        if !is_whole {
            // What the whole graph has.
            set("truncated", json!({ "nodes": nodes, "edges": edges }));
        }
        Value::Object(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> pb::GraphDef {
        pb::text::decode("tensorflow.GraphDef", text).unwrap()
    }

    const PRODUCT: &str = "
        node { name: 'a' op: 'Placeholder' device: '/job:ps/task:0'
               attr { key: 'dtype' value { type: DT_FLOAT } }
               attr { key: 'shape' value { shape { dim { size: 10 } dim { size: 20 } } } } }
        node { name: 'b' op: 'MatMul' input: 'a' input: 'a:0' input: '^c'
               attr { key: 'T' value { type: DT_FLOAT } }
               attr { key: 'transpose_b' value { b: true } } }
        node { name: 'c' op: 'NoOp' }";

    #[test]
    fn edges_have_sizes_and_nodes_have_times() {
        let json = to_json(&parse(PRODUCT), &Registry::built_in(), &Placed::new());
        let names: Vec<&str> =
            json["name"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        let position = |name: &str| names.iter().position(|n| *n == name).unwrap();
        let (a, b, c) = (position("a"), position("b"), position("c"));
        assert_eq!(json["edges"], json!([a, b, 800, a, b, 800, c, b, -1]));
        assert_eq!(json["bytes"][b], 400);
        assert!(json["seconds"][b].as_f64().unwrap() > 0.0);
        let device = json["device"][a].as_u64().unwrap() as usize;
        assert_eq!(json["devices"][device], "/job:ps/task:0");
        assert!(json.get("reason").is_none() && json.get("truncated").is_none());
    }

    #[test]
    fn ops_that_are_not_known_are_shown_too() {
        let def = parse(
            "node { name: 'a' op: 'Mystery' } node { name: 'b' op: 'Mystery' input: 'a:1' input: '^a' input: 'gone' }",
        );
        let json = to_json(&def, &Registry::built_in(), &Placed::new());
        assert_eq!((&json["ops"], &json["op"]), (&json!(["Mystery"]), &json!([0, 0])));
        assert_eq!(json["edges"], json!([0, 1, 0, 0, 1, -1]));
        assert_eq!(json["truncated"]["edges"], 3);
    }

    #[test]
    fn placement_names_device_and_reason() {
        let devices = [DeviceName::cpu("ps", 0, 0), DeviceName::cpu("worker", 0, 0)];
        let (def, registry) = (parse(PRODUCT), Registry::built_in());
        let placed = placed_on(&def, &registry, &devices);
        assert_eq!(placed["a"].0, devices[0].to_string());
        let json = to_json(&def, &registry, &placed);
        assert_eq!(json["reason"].as_array().unwrap().len(), 3);
        assert!(placed_on(&def, &registry, &[]).is_empty());
    }

    #[test]
    fn large_graphs_are_cut() {
        let node = |i: usize| pb::NodeDef {
            name: format!("n{i}"),
            op: "Mystery".into(),
            input: (0..i.min(4)).map(|k| format!("n{k}")).collect(),
            ..Default::default()
        };
        let def =
            pb::GraphDef { node: (0..NODES_MAX + 9).map(node).collect(), ..Default::default() };
        let json = to_json(&def, &Registry::built_in(), &Placed::new());
        assert_eq!(json["name"].as_array().unwrap().len(), NODES_MAX);
        assert_eq!(json["edges"].as_array().unwrap().len(), 3 * EDGES_MAX);
        assert_eq!(json["truncated"]["nodes"], NODES_MAX + 9);
    }
}
