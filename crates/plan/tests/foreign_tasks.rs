//! Any task may be TensorFlow's: what a plan gives to another task is made of TensorFlow's ops alone.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use prost::Message;
use thalweg_graph::{Graph, OpRegistry};
use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::*;
use thalweg_proto as pb;

/// Graphs that TensorFlow wrote, with feeds, fetches and targets.
type Step =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);
const STEPS: &[Step] = &[
    ("mlp", &["x:0", "keep:0"], &["probabilities:0", "class:0"], &[]),
    ("functions", &["x:0"], &["y:0"], &[]),
    ("variables", &[], &["y:0"], &[]),
    ("variables", &[], &[], &["init"]),
];

/// The graph with every other node on another task, where it may be.
fn spread(file: &str, ops: &Arc<OpRegistry>) -> Graph {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/graphs");
    let bytes = std::fs::read(folder.join(format!("{file}.pb"))).unwrap();
    let mut def = pb::GraphDef::decode(&bytes[..]).unwrap();
    for (i, node) in def.node.iter_mut().enumerate() {
        node.device = ["/job:ps/task:0", "/job:worker/task:0"][i % 2].into();
    }
    Graph::from_def(ops.clone(), def).unwrap()
}

fn plan(graph: &Graph, step: &Step, options: Options) -> Plan {
    let (_, feeds, fetches, targets) = step;
    let cpu = |job: &str| DeviceDescription::cpu(DeviceName::cpu(job, 0, 0), 1 << 40);
    let target = Target {
        devices: &[cpu("worker"), cpu("ps")],
        links: &Links::default(),
        costs: &StaticCosts,
        kernels: &kernel_registry(FAMILIES),
        pins: &Pins::default(),
        options,
    };
    let signature = StepSignature::resolve(graph, feeds, fetches, targets).unwrap();
    compile(graph, &signature, &target).unwrap()
}

/// What TensorFlow would refuse in a graph that it is sent.
fn unknown_to_tensorflow(graph: &Graph) -> Vec<String> {
    let tensorflow = OpRegistry::new([]).unwrap();
    let def = graph.to_def();
    let library = def.library.unwrap_or_default();
    let functions: BTreeSet<&str> =
        library.function.iter().filter_map(|f| Some(f.signature.as_ref()?.name.as_str())).collect();
    let of_functions = library.function.iter().flat_map(|f| &f.node_def);
    let mut found = Vec::new();
    for node in def.node.iter().chain(of_functions) {
        let Ok(op) = tensorflow.get(&node.op) else {
            if !functions.contains(node.op.as_str()) {
                found.push(format!("{}: {} is no op of TensorFlow's", node.name, node.op));
            }
            continue;
        };
        // TensorFlow ignores unknown attrs that begin with an underscore.
        let unknown = |name: &&String| {
            !name.starts_with('_') && !op.attrs.iter().any(|attr| attr.name == **name)
        };
        for name in node.attr.keys().filter(unknown) {
            found.push(format!("{}: {} has no attr '{name}'", node.name, node.op));
        }
    }
    found
}

#[test]
fn other_tasks_get_ops_that_tensorflow_knows() {
    let ops = op_registry(FAMILIES).unwrap();
    for step in STEPS {
        let graph = spread(step.0, &ops);
        for (optimize, lower, bfloat16_transfers) in
            [(true, false, false), (true, true, false), (false, false, true), (true, true, true)]
        {
            let options = Options {
                optimize,
                lower,
                bfloat16_transfers,
                allow_soft_placement: true,
                choice: Choice::Default,
            };
            let plan = plan(&graph, step, options);
            let (own, others): (Vec<&Partition>, Vec<&Partition>) =
                plan.partitions.iter().partition(|p| p.device.job == "worker");
            assert_eq!((own.len(), others.len()), (1, 1), "{}: both have something", step.0);
            let nodes = others[0].graph.nodes();
            assert!(nodes.iter().any(|n| n.op.name == "_Send" || n.op.name == "_Recv"));
            assert_eq!(unknown_to_tensorflow(&others[0].graph), Vec::<String>::new(), "{}", step.0);
        }
    }
}

/// The check itself can fail.
#[test]
fn the_check_finds_an_op_that_is_not_tensorflows() {
    use thalweg_graph::{OpDef, Scope, shape};
    use thalweg_kernel::Family;
    static OWN: Family = Family {
        ops: &[OpDef::new("OwnOp", shape::unknown).with_interface("| y: float")],
        kernels: &[],
    };
    let families: Vec<&Family> = FAMILIES.iter().copied().chain([&OWN]).collect();
    let ops = op_registry(&families).unwrap();
    let mut s = Scope::new(ops.clone());
    s.op("OwnOp").name("own").build().unwrap();
    assert_eq!(unknown_to_tensorflow(&s.to_graph()), ["own: OwnOp is no op of TensorFlow's"]);
}
