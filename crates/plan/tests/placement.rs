//! Placement by the cost model over random graphs and devices: constraints, colocation and memory are
//! kept, equal inputs give equal plans, and large graphs are placed in time.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use thalweg_graph::{AttrValue, Graph, Output, Scope};
use thalweg_kernel::{DeviceDescription, DeviceName, DeviceSpec, KernelRegistry};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::*;
use thalweg_tensor::{Code, DType, PartialShape, Result, Shape, Tensor};

struct World {
    devices: Vec<DeviceDescription>,
    links: Links,
    kernels: Arc<KernelRegistry>,
    pins: Pins,
}

impl World {
    fn of(devices: Vec<DeviceDescription>) -> World {
        let kernels = kernel_registry(FAMILIES);
        World { devices, links: Links::default(), kernels, pins: Pins::default() }
    }

    fn place(&self, graph: &Graph, choice: Choice) -> Result<(Graph, Placement)> {
        let target = Target {
            devices: &self.devices,
            links: &self.links,
            costs: &StaticCosts,
            kernels: &self.kernels,
            pins: &self.pins,
            options: Options { choice, ..Options::default() },
        };
        place(graph.clone(), &target)
    }
}

fn cpu(task: u32, index: u32, memory_bytes: u64) -> DeviceDescription {
    DeviceDescription::cpu(DeviceName::cpu("worker", task, index), memory_bytes)
}

/// Numbers by xorshift: the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

fn random_devices(random: &mut Random) -> Vec<DeviceDescription> {
    let (tasks, each) = (1 + random.below(3) as u32, 1 + random.below(3) as u32);
    let mut devices: Vec<DeviceDescription> =
        (0..tasks).flat_map(|task| (0..each).map(move |i| cpu(task, i, 1 << 30))).collect();
    for device in &mut devices {
        device.flops_per_second *= (1 + random.below(8)) as f64;
        device.memory_bytes_per_second *= (1 + random.below(8)) as f64;
    }
    devices
}

/// Products, sums and variables, some with device strings or colocated with others.
fn random_graph(random: &mut Random, nodes: usize, tasks: u32) -> Graph {
    let scope = Scope::new(op_registry(FAMILIES).unwrap());
    let mut made: Vec<Output> = Vec::new();
    for i in 0..nodes {
        let name = format!("n{i}");
        let shape = PartialShape::new([Some(64), Some(64)]);
        let device = match random.below(8) {
            0 => format!("/task:{}", random.below(tasks as usize)),
            1 => "/device:CPU:0".to_owned(),
            _ => String::new(),
        };
        let mut scope = scope.on_device(&device);
        let pick = |random: &mut Random| made[random.below(made.len())];
        let new = match random.below(if made.is_empty() { 2 } else { 6 }) {
            0 => scope.op("VariableV2").attr("dtype", DType::Float).attr("shape", &shape),
            1 => {
                let value = Tensor::zeros(DType::Float, Shape::new(&[64, 64]).unwrap()).unwrap();
                let proto = AttrValue::Tensor(Arc::new(value.to_proto().unwrap()));
                scope.op("Const").attr("value", proto).attr("dtype", DType::Float)
            }
            2 => scope.op("MatMul").input(pick(random)).input(pick(random)),
            3 => scope.op("AddV2").input(pick(random)).input(pick(random)),
            _ => {
                let other = pick(random);
                let class = format!("loc:@n{}", other.node.index());
                let build = scope.op("Tanh").input(pick(random));
                match random.below(3) {
                    0 => build.attr("_class", &[class.as_str()][..]),
                    _ => build,
                }
            }
        };
        // A class may contradict the device strings: such a node is left out.
        if let Ok(output) = new.name(&name).build() {
            made.push(output);
        }
    }
    scope.to_graph()
}

fn check_constraints(graph: &Graph, world: &World, placement: &Placement) {
    let mut of_class: BTreeMap<&str, u32> = BTreeMap::new();
    for id in graph.ids() {
        let (node, device) = (graph.node(id), placement.devices[id.index()]);
        let spec: DeviceSpec = node.device.parse().unwrap();
        let name = &world.devices[device as usize].name;
        let takes_state = node.inputs.iter().any(|&e| graph.output(e).is_ref);
        assert!(spec.matches(name) || takes_state, "{}: '{}' on {name}", node.name, node.device);
        of_class.insert(&node.name, device);
    }
    for node in graph.nodes() {
        let Some(AttrValue::List(list)) = node.attrs.get("_class") else { continue };
        for class in &list.s {
            let other = std::str::from_utf8(&class["loc:@".len()..]).unwrap();
            assert_eq!(of_class[&*node.name], of_class[other], "{} with {other}", node.name);
        }
    }
}

#[test]
fn random_plans_keep_constraints_and_colocation_and_are_repeatable() {
    let mut placed = 0;
    for seed in 1..=150 {
        let mut random = Random(seed * 7919);
        let world = World::of(random_devices(&mut random));
        let tasks = world.devices.iter().map(|d| d.name.task).max().unwrap() + 1;
        let graph = random_graph(&mut random, 10 + seed as usize, tasks);
        let default = world.place(&graph, Choice::Default);
        let mut durations = Vec::new();
        for choice in [Choice::Greedy, Choice::Etf, Choice::Auto] {
            let first = world.place(&graph, choice);
            // What the default rules refuse is contradictory.
            assert_eq!(first.is_ok(), default.is_ok(), "seed {seed} {choice:?}");
            let Ok((_, placement)) = first else { continue };
            check_constraints(&graph, &world, &placement);
            let again = world.place(&graph, choice).unwrap().1;
            assert_eq!(placement.devices, again.devices, "seed {seed}");
            assert_eq!(placement.predicted, again.predicted, "seed {seed}");
            durations.push(placement.seconds);
            placed += 1;
        }
        if let [greedy, etf, auto] = durations[..] {
            // The default rules stay unless another placement promises a tenth less.
            assert!(0.9 * auto <= greedy.min(etf), "seed {seed}: {durations:?}");
        }
    }
    assert!(placed > 150, "{placed} placements were checked");
}

/// Eight tensors of 4 MB that are all needed at the end.
fn eight_large_tensors() -> Graph {
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let shape = s.constant(&Tensor::vector(&[1000i32, 1000]).unwrap()).unwrap();
    let mut all = Vec::new();
    for i in 0..8 {
        let dtype = s.op("RandomUniform").name(&format!("r{i}")).input(shape);
        all.push(dtype.attr("dtype", DType::Float).build().unwrap());
    }
    s.op("AddN").name("sum").inputs(&all).build().unwrap();
    s.to_graph()
}

#[test]
fn memory_limits_are_kept() {
    let graph = eight_large_tensors();
    let (small, large) = (10 << 20, 60 << 20);
    // The fast device has room for two of them.
    let mut world = World::of(vec![cpu(0, 0, large), cpu(0, 1, small)]);
    world.devices[1].memory_bytes_per_second *= 50.0;
    world.devices[1].flops_per_second *= 50.0;
    for choice in [Choice::Greedy, Choice::Etf, Choice::Auto] {
        let (_, placement) = world.place(&graph, choice).unwrap();
        let of = |name: &str| placement.devices[graph.find(name).unwrap().index()];
        let on_fast = (0..8).filter(|i| of(&format!("r{i}")) == 1).count();
        assert!(on_fast <= 2 && of("sum") == 0, "{choice:?}: {on_fast} on the small device");
    }
    let world = World::of(vec![cpu(0, 0, small), cpu(0, 1, small)]);
    for choice in [Choice::Greedy, Choice::Etf, Choice::Auto] {
        let e = world.place(&graph, choice).err().expect("there is no room");
        assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
        assert!(e.to_string().contains("has no room for 'r"), "{e}");
    }
}

#[test]
fn variables_lie_where_they_are_used() {
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let shape = PartialShape::new([Some(512), Some(512)]);
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).attr("shape", &shape);
    let mut x = x.build().unwrap();
    for i in 0..4 {
        let w = s.op("VariableV2").name(&format!("w{i}")).attr("dtype", DType::Float);
        let w = w.attr("shape", &shape).build().unwrap();
        x = s.op("MatMul").name(&format!("y{i}")).input(x).input(w).build().unwrap();
    }
    let graph = s.to_graph();
    let mut world = World::of(vec![cpu(0, 0, 1 << 30), cpu(1, 0, 1 << 30)]);
    world.devices[1].flops_per_second *= 100.0;
    world.devices[1].memory_bytes_per_second *= 100.0;
    let (_, placement) = world.place(&graph, Choice::Auto).unwrap();
    for id in graph.ids() {
        let node = graph.node(id);
        if node.op.name != "Placeholder" {
            assert_eq!(placement.devices[id.index()], 1, "{} on the fast task", node.name);
        }
    }
    let product = graph.find("y0").unwrap().index();
    let elsewhere: BTreeMap<u32, f64> = placement.elsewhere[product].iter().copied().collect();
    assert!(elsewhere.is_empty() || elsewhere[&1] < elsewhere[&0], "{elsewhere:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what is checked is the time that planning takes")]
fn forty_thousand_nodes_are_placed_in_seconds() {
    let mut random = Random(42);
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let shape = PartialShape::new([Some(64), Some(64)]);
    let x = s.op("VariableV2").name("x").attr("dtype", DType::Float).attr("shape", &shape);
    let mut made = vec![x.build().unwrap()];
    // Not optimised, the code takes about ten times as long.
    let nodes = if cfg!(debug_assertions) { 8_000 } else { 40_000 };
    while made.len() < nodes {
        let recent = made.len().saturating_sub(200);
        let mut pick = || made[recent + random.below(made.len() - recent)];
        let (a, b) = (pick(), pick());
        let op = ["MatMul", "AddV2", "Mul"][made.len() % 3];
        made.push(s.op(op).input(a).input(b).build().unwrap());
    }
    let graph = s.to_graph();
    let devices: Vec<_> = (0..8).flat_map(|t| (0..4).map(move |i| cpu(t, i, 1 << 40))).collect();
    let world = World::of(devices);
    for choice in [Choice::Greedy, Choice::Etf, Choice::Auto] {
        let begin = Instant::now();
        world.place(&graph, choice).unwrap();
        let seconds = begin.elapsed().as_secs_f64();
        println!("{choice:?}: {seconds:.2} s");
        assert!(seconds < 5.0 || cfg!(debug_assertions), "{choice:?}: {seconds} s");
    }
}
