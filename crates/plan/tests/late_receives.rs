//! Delayed receives: tensors of other tasks are requested shortly before their readers can start.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use thalweg_graph::{Graph, Node, Output, Scope};
use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::*;
use thalweg_tensor::{DType, Shape};

const MEGABYTE: usize = 1 << 20;
/// Bytes of each weight; a layer reads and writes as much.
const WEIGHT_BYTES: usize = 4 * MEGABYTE;

/// The worker's part of a step that ends with `end`.
fn on_worker(s: &Scope, end: &str) -> Graph {
    let cpu = |job: &str| DeviceDescription::cpu(DeviceName::cpu(job, 0, 0), 1 << 40);
    let graph = s.to_graph();
    let target = Target {
        devices: &[cpu("worker"), cpu("ps")],
        links: &Links::default(),
        costs: &StaticCosts,
        kernels: &kernel_registry(FAMILIES),
        pins: &Pins::default(),
        options: Options { choice: Choice::Default, ..Options::default() },
    };
    let signature = StepSignature::resolve(&graph, &[], &[], &[end]).unwrap();
    compile(&graph, &signature, &target).unwrap().partitions.swap_remove(0).graph
}

fn variable(s: &Scope, name: &str, bytes: usize) -> Output {
    let mut ps = s.on_device("/job:ps");
    let shape = Shape::new(&[bytes / 4]).unwrap();
    let v = ps.op("VariableV2").name(name).attr("dtype", DType::Float).attr("shape", &shape);
    v.build().unwrap()
}

/// A chain of layers, each with a weight on the parameter server; its end and the weights.
fn chain(s: &Scope, layers: usize, bytes: usize) -> (Output, Vec<Output>) {
    let mut worker = s.on_device("/job:worker");
    let mut x = variable(s, "x", bytes);
    let weights: Vec<Output> = (0..layers).map(|i| variable(s, &format!("w{i}"), bytes)).collect();
    for (i, &w) in weights.iter().enumerate() {
        x = worker.op("AddV2").name(&format!("layer{i}")).inputs(&[x, w]).build().unwrap();
    }
    (worker.op("Neg").name("end").input(x).build().unwrap(), weights)
}

fn receives(graph: &Graph) -> impl Iterator<Item = &Node> {
    graph.nodes().iter().filter(|n| n.op.name == "_Recv")
}

/// For each receive of a weight, whether it waits for a node.
fn delayed(graph: &Graph) -> Vec<bool> {
    let weights = receives(graph).filter(|n| n.name.starts_with('w'));
    weights.map(|n| !n.control_inputs.is_empty()).collect()
}

/// For the receive of each weight, the layer that it follows.
fn followed(graph: &Graph, layers: usize) -> Vec<Option<usize>> {
    let layer_of = |i: usize| {
        let prefix = format!("w{i}_R");
        let node = receives(graph).find(|n| n.name.starts_with(&prefix)).unwrap();
        let after = node.control_inputs.first()?;
        graph.node(*after).name.strip_prefix("layer")?.parse().ok()
    };
    (0..layers).map(layer_of).collect()
}

#[test]
fn weights_come_a_few_layers_before_they_are_needed() {
    let s = Scope::new(op_registry(FAMILIES).unwrap());
    chain(&s, 40, WEIGHT_BYTES);
    let followed = followed(&on_worker(&s, "end"), 40);
    assert!(followed[..4].iter().all(Option::is_none), "the first ones come at once: {followed:?}");
    let ahead: Vec<usize> =
        (20..40).map(|i| i - followed[i].expect("later ones follow a layer")).collect();
    // A layer takes 0.63 ms, the transfer of a weight 4.3 ms; receives start twice as long ahead.
    assert!(ahead.iter().all(|&a| (11..=18).contains(&a)), "{ahead:?}");
}

#[test]
fn small_or_urgent_tensors_are_not_delayed() {
    for (layers, bytes) in [(40, 1024), (3, WEIGHT_BYTES), (10, 70_000)] {
        let s = Scope::new(op_registry(FAMILIES).unwrap());
        chain(&s, layers, bytes);
        let graph = on_worker(&s, "end");
        // These layers take far less time than the transfer of one weight.
        assert_eq!(delayed(&graph), vec![false; layers], "{layers} of {bytes}");
    }
    // Readers that wait for nothing else.
    let s = Scope::new(op_registry(FAMILIES).unwrap());
    let mut worker = s.on_device("/job:worker");
    let all: Vec<Output> = (0..20)
        .map(|i| {
            let w = variable(&s, &format!("w{i}"), WEIGHT_BYTES);
            worker.op("Neg").input(w).build().unwrap()
        })
        .collect();
    worker.op("AddN").name("end").inputs(&all).build().unwrap();
    assert_eq!(delayed(&on_worker(&s, "end")), [false; 20]);
}

/// A weight that two nodes read follows only what both wait for: the second might otherwise wait for
/// something that waits for it, a queue's element for instance.
#[test]
fn a_reader_gets_no_new_dependency() {
    let s = Scope::new(op_registry(FAMILIES).unwrap());
    let (end, weights) = chain(&s, 40, WEIGHT_BYTES);
    let mut worker = s.on_device("/job:worker");
    let seed = variable(&s, "seed", WEIGHT_BYTES);
    let mut aside = worker.op("Neg").input(seed).build().unwrap();
    for _ in 0..60 {
        aside = worker.op("Neg").input(aside).build().unwrap();
    }
    let both = worker.op("AddV2").inputs(&[aside, weights[30]]).build().unwrap();
    worker.op("AddV2").name("all").inputs(&[end, both]).build().unwrap();
    let followed = followed(&on_worker(&s, "all"), 40);
    assert_eq!(followed[30], None);
    assert!(followed[29].is_some() && followed[31].is_some());
}

/// A dead node would kill the receive that follows it.
#[test]
fn graphs_with_branches_stay_as_they_are() {
    let s = Scope::new(op_registry(FAMILIES).unwrap());
    let (end, _) = chain(&s, 40, WEIGHT_BYTES);
    let mut worker = s.on_device("/job:worker");
    let yes = worker.constant(&thalweg_tensor::Tensor::scalar(true)).unwrap();
    let switched = worker.op("Switch").name("switch").inputs(&[end, yes]).build_all().unwrap();
    worker.op("Merge").name("all").inputs(&switched).build_all().unwrap();
    assert_eq!(delayed(&on_worker(&s, "all")), [false; 40]);
}
