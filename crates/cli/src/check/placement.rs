//! `thalweg check --device gpu`: which nodes an accelerator would run, and which stay on the CPU and why.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};
use thalweg_graph::{AttrValue, Graph, Node, Role};
use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_plan::{Choice, Links, Options, Pins, StaticCosts, Target, place};
use thalweg_proto as pb;
use thalweg_tensor::Result;

use super::shown;
use crate::{Failure, Registry};

/// The type of the accelerator; all types run the same ops.
const DEVICE_TYPE: &str = "GPU";
/// Memory of the devices that placement is asked about: it does not change the answer.
const MEMORY_BYTES: u64 = 1 << 40;

/// Where the nodes of graphs would run.
#[derive(Default)]
pub(super) struct Placed {
    on_accelerator: usize,
    /// Nodes on the CPU, by op and reason.
    on_cpu: BTreeMap<(String, String), Vec<String>>,
}

impl Placed {
    /// Adds the nodes of a graph as they would be placed, and those of its functions as far as an
    /// accelerator can run each of them.
    pub(super) fn add(&mut self, registry: &Registry, graph: &Graph, library: &[pb::FunctionDef]) {
        for (node, is_on_cpu) in graph.nodes().iter().zip(placement(registry, graph)) {
            match (is_on_cpu, reason(registry, node)) {
                // Neither computes anything.
                _ if is_given(node) => {}
                (_, Some(why)) => self.keep(&node.op.name, why, node.name.to_string()),
                (true, None) => {
                    let why = "it stays with state or with colocated nodes that do".to_owned();
                    self.keep(&node.op.name, why, node.name.to_string());
                }
                (false, None) => self.on_accelerator += 1,
            }
        }
        for function in library {
            let name = function.signature.as_ref().map_or("", |s| s.name.as_str());
            for def in &function.node_def {
                let Ok(op) = registry.ops.get(&def.op) else { continue };
                let mut node = Node::bare(def.name.as_str(), op.clone());
                for (attr, value) in &def.attr {
                    node.attrs.set(attr.as_str(), AttrValue::from_proto(value.clone()));
                }
                if is_given(&node) {
                    continue;
                }
                // The dtypes of a function that is called with several are not known here.
                let is_generic = def.attr.values().any(|value| {
                    matches!(value.value, Some(pb::attr_value::Value::Placeholder(_)))
                });
                match reason(registry, &node).filter(|_| !is_generic) {
                    Some(why) => self.keep(&def.op, why, format!("{name}/{}", def.name)),
                    None => self.on_accelerator += 1,
                }
            }
        }
    }

    fn keep(&mut self, op: &str, why: String, node: String) {
        self.on_cpu.entry((op.to_owned(), why)).or_default().push(node);
    }

    pub(super) fn to_json(&self) -> Value {
        let of_cpu = self
            .on_cpu
            .iter()
            .map(|((op, why), nodes)| json!({ "op": op, "why": why, "nodes": nodes }));
        json!({
            "device": "gpu",
            "nodes_on_device": self.on_accelerator,
            "on_cpu": of_cpu.collect::<Vec<_>>(),
        })
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let on_cpu: usize = self.on_cpu.values().map(Vec::len).sum();
        let all = self.on_accelerator + on_cpu;
        writeln!(out, "an accelerator runs {} of the {all} that compute", self.on_accelerator)?;
        for ((op, why), nodes) in &self.on_cpu {
            writeln!(out, "on the CPU: {op}: {why}")?;
            writeln!(out, "    {}", shown(nodes))?;
        }
        Ok(())
    }
}

/// For each node, whether placement over a CPU and an accelerator gives it the CPU. A graph that cannot
/// be placed (the check has said why) leaves all to the accelerator.
fn placement(registry: &Registry, graph: &Graph) -> Vec<bool> {
    let name = DeviceName::cpu("localhost", 0, 0);
    let accelerator = DeviceName { device_type: DEVICE_TYPE.into(), ..name.clone() };
    let cpu = DeviceDescription::cpu(name, MEMORY_BYTES);
    let accelerator =
        DeviceDescription { name: accelerator, shares_host_memory: false, ..cpu.clone() };
    let options =
        Options { allow_soft_placement: true, choice: Choice::Default, ..Options::default() };
    let target = Target {
        devices: &[cpu, accelerator],
        links: &Links::default(),
        costs: &StaticCosts,
        kernels: &registry.kernels,
        pins: &Pins::default(),
        options,
    };
    match place(graph.clone(), &target) {
        Ok((_, placement)) => placement.devices.iter().map(|&device| device == 0).collect(),
        Err(_) => vec![false; graph.len()],
    }
}

/// Whether a node's value is fed or constant.
fn is_given(node: &Node) -> bool {
    node.role() == Role::Const || node.op.name.starts_with("Placeholder")
}

/// Why an accelerator cannot run a node, if so.
fn reason(registry: &Registry, node: &Node) -> Option<String> {
    let specs = registry.kernels.for_op(&node.op.name);
    if node.role().is_interpreted() || specs.is_empty() {
        // What has no kernel at all is either structural, or named as unsupported.
        return None;
    }
    if registry.kernels.find(node, DEVICE_TYPE).is_ok() {
        return None;
    }
    match specs.iter().any(|spec| spec.serves(DEVICE_TYPE)) {
        true => Some("its dtypes have no lowering".to_owned()),
        false => Some("it has no lowering".to_owned()),
    }
}
