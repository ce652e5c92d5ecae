//! Prune, place, optimize and partition over invented graphs and devices.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;

use prost::Message;
use thalweg_graph::{Graph, NodeId, Output, Scope};
use thalweg_kernel::{DeviceDescription, DeviceName, KernelRegistry};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::*;
use thalweg_tensor::{Code, DType, Error, Result, Shape, Tensor};

struct World {
    devices: Vec<DeviceDescription>,
    links: Links,
    kernels: Arc<KernelRegistry>,
    pins: Pins,
    options: Options,
}

fn world(cpus: u32) -> World {
    let cpu = |i| DeviceDescription::cpu(DeviceName::cpu("localhost", 0, i), 1 << 30);
    World {
        devices: (0..cpus).map(cpu).collect(),
        links: Links::default(),
        kernels: kernel_registry(FAMILIES),
        pins: Pins::default(),
        options: Options { optimize: false, choice: Choice::Greedy, ..Options::default() },
    }
}

impl World {
    fn plan(
        &self,
        graph: &Graph,
        feeds: &[&str],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<Plan> {
        let step = StepSignature::resolve(graph, feeds, fetches, targets)?;
        compile(graph, &step, &self.target())
    }

    fn target(&self) -> Target<'_> {
        Target {
            devices: &self.devices,
            links: &self.links,
            costs: &StaticCosts,
            kernels: &self.kernels,
            pins: &self.pins,
            options: self.options,
        }
    }
}

fn scope() -> Scope {
    Scope::new(op_registry(FAMILIES).unwrap())
}

fn named(s: &mut Scope, op: &str, name: &str, inputs: &[Output]) -> Output {
    s.op(op).name(name).inputs(inputs).build().unwrap()
}

fn placeholder(s: &mut Scope, name: &str) -> Output {
    s.op("Placeholder").name(name).attr("dtype", DType::Float).build().unwrap()
}

fn constant(s: &mut Scope, name: &str, value: f32) -> Output {
    let proto =
        thalweg_graph::AttrValue::Tensor(Arc::new(Tensor::scalar(value).to_proto().unwrap()));
    s.op("Const").name(name).attr("value", proto).attr("dtype", DType::Float).build().unwrap()
}

/// Names of all nodes of a plan, sorted.
fn names(plan: &Plan) -> Vec<String> {
    let nodes = plan.partitions.iter().flat_map(|p| p.graph.nodes());
    let mut names: Vec<String> = nodes.map(|n| n.name.to_string()).collect();
    names.sort();
    names
}

fn op_of<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
    let node = plan.partitions.iter().find_map(|p| Some(p.graph.node(p.graph.find(name)?)));
    node.map(|n| n.op.name.as_str())
}

/// Index of the CPU that a node is on.
fn cpu_of(plan: &Plan, name: &str) -> u32 {
    plan.partitions.iter().find(|p| p.graph.find(name).is_some()).unwrap().device.index
}

fn refused(result: Result<Plan>) -> Error {
    result.map(|_| ()).unwrap_err()
}

#[test]
fn only_what_is_needed_is_kept() {
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    let a = named(&mut s, "Neg", "a", &[x]);
    let b = named(&mut s, "Neg", "b", &[a]);
    named(&mut s, "Neg", "c", &[b]);
    let wait = s.op("NoOp").name("wait").after(&[x.node, a.node]).build_node().unwrap();
    s.op("Neg").name("d").input(b).after(&[wait]).build().unwrap();
    let graph = s.to_graph();
    let w = world(1);
    type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a [&'a str]);
    let cases: [Case<'_>; 6] = [
        (&["x"], &["b"], &[], &["_recv_x_0", "_send_b_0", "a", "b"]),
        (&["a"], &["b"], &[], &["_recv_a_0", "_send_b_0", "b"]),
        (&["b"], &["b"], &[], &["_recv_b_0", "_send_b_0"]),
        (&["x"], &["a", "a"], &[], &["_recv_x_0", "_send_a_0", "_send_a_0_1", "a"]),
        // A fed placeholder does not run for its order; another fed node does, as in TensorFlow.
        (&["x", "b"], &["d"], &[], &["_recv_b_0", "_recv_x_0", "_send_d_0", "a", "d", "wait"]),
        (&[], &[], &["wait"], &["a", "wait", "x"]),
    ];
    for (feeds, fetches, targets, expected) in cases {
        assert_eq!(names(&w.plan(&graph, feeds, fetches, targets).unwrap()), expected);
    }
}

#[test]
fn constraints_hold_or_are_refused() {
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    let mut last = x;
    let devices =
        ["/device:CPU:1", "/job:localhost/task:0/cpu:1", "/replica:0/device:CPU:1", "/cpu:0"];
    for (i, device) in devices.iter().enumerate() {
        last = named(&mut s.on_device(device), "Neg", &format!("n{i}"), &[last]);
    }
    named(&mut s.on_device("/job:nosuch/task:3"), "Neg", "far", &[x]);
    named(&mut s.on_device("/gpu:0"), "Neg", "gpu", &[x]);
    named(&mut s.on_device("not a device"), "Neg", "bad", &[x]);
    let graph = s.to_graph();
    let mut w = world(2);
    let plan = w.plan(&graph, &["x"], &["n3"], &[]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|i| cpu_of(&plan, &format!("n{i}"))), [1, 1, 1, 0]);
    let e = refused(w.plan(&graph, &["x"], &["far"], &[]));
    assert_eq!(e.code(), Code::InvalidArgument);
    let all = "/job:localhost/replica:0/task:0/device:CPU";
    assert!(
        e.message().contains(&format!(
            "Cannot assign a device for operation far: {{{{node far}}}} was explicitly assigned to \
             /job:nosuch/task:3 but available devices are [ {all}:0, {all}:1 ]. Make sure the device \
             specification refers to a valid device.\n\t [[far]]"
        )),
        "{e}"
    );
    assert_eq!(refused(w.plan(&graph, &["x"], &["bad"], &[])).code(), Code::InvalidArgument);
    assert_eq!(refused(world(1).plan(&graph, &["x"], &["far"], &[])).code(), Code::InvalidArgument);
    w.options.allow_soft_placement = true;
    assert!(w.plan(&graph, &["x"], &["far", "gpu"], &[]).is_ok());
}

fn variable(s: &mut Scope, name: &str) -> Output {
    let shape = Shape::scalar();
    s.op("VariableV2").name(name).attr("dtype", DType::Float).attr("shape", &shape).build().unwrap()
}

/// The client's device and the variable's differ. Only a fetch may wait for the variable's updates.
#[test]
fn a_fetch_of_a_variable_travels_apart_from_other_reads() {
    let s = scope();
    let (mut here, mut there) = (s.on_device("/cpu:0"), s.on_device("/cpu:1"));
    let v = variable(&mut there, "v");
    let read = named(&mut there, "Identity", "read", &[v]);
    let computed = named(&mut there, "Neg", "computed", &[read]);
    named(&mut here, "AddV2", "sum", &[read, computed]);
    let (graph, w) = (s.to_graph(), world(2));
    let plan = |fetch: &str, is_partial: bool| {
        let mut step = StepSignature::resolve(&graph, &[], &[fetch, "sum"], &[]).unwrap();
        step.is_partial = is_partial;
        compile(&graph, &step, &w.target()).unwrap()
    };
    let marked = |plan: &Plan| {
        let nodes = plan.partitions.iter().flat_map(|p| p.graph.nodes());
        let mut ops: Vec<String> =
            nodes.filter(|n| fetches_alias(n)).map(|n| n.op.name.to_string()).collect();
        ops.sort();
        ops
    };
    let sends_of_read = |plan: &Plan| {
        let names = names(plan);
        names.iter().filter(|name| name.starts_with("read_S")).count()
    };
    // Both devices are of one task, so a call of a partial run need not wait for the other calls.
    for is_partial in [false, true] {
        let apart = plan("read", is_partial);
        assert_eq!(marked(&apart), ["_Recv", "_Send", "_Send"]);
        assert_eq!(sends_of_read(&apart), 2);
    }
    let together = plan("computed", false);
    assert!(marked(&together).is_empty());
    assert_eq!(sends_of_read(&together), 1);
}

#[test]
fn state_and_its_group_stay_together() {
    let s = scope();
    let (mut here, mut there) = (s.on_device("/cpu:0"), s.on_device("/cpu:1"));
    let mut free = s.clone();
    let v = variable(&mut there, "v");
    let w1 = variable(&mut here, "w");
    let c = constant(&mut here, "c", 1.0);
    named(&mut free, "Assign", "init", &[v, c]);
    // `w` is read by value, which does not colocate its reader.
    named(&mut free, "Assign", "copy", &[v, w1]);
    // If the device strings of a variable and of its reader differ, that of the variable counts.
    named(&mut here, "Assign", "torn", &[v, c]);
    let class: &[&str] = &["loc:@v"];
    free.op("Neg").name("beside").input(c).attr("_class", class).build().unwrap();
    here.op("Neg").name("apart").input(c).attr("_class", class).build().unwrap();
    variable(&mut free, "anywhere");
    let graph = s.to_graph();
    let mut w = world(2);
    let plan = w.plan(&graph, &[], &[], &["init", "copy", "beside"]).unwrap();
    assert_eq!(["v", "w", "init", "copy", "beside"].map(|n| cpu_of(&plan, n)), [1, 0, 1, 1, 1]);
    for _ in 0..2 {
        assert_eq!(cpu_of(&w.plan(&graph, &[], &[], &["torn"]).unwrap(), "torn"), 1);
        // A later plan finds it there, though it asked for another place.
        w.pins.insert("torn".into(), DeviceName::cpu("localhost", 0, 1));
    }
    let e = refused(w.plan(&graph, &[], &[], &["init", "apart"]));
    assert_eq!(e.code(), Code::InvalidArgument);
    assert!(e.message().contains("Cannot colocate nodes"), "{e}");
    // State that has a place keeps it.
    for i in [1, 0] {
        w.pins.insert("anywhere".into(), DeviceName::cpu("localhost", 0, i));
        assert_eq!(cpu_of(&w.plan(&graph, &[], &["anywhere"], &[]).unwrap(), "anywhere"), i);
    }
}

/// Devices of several tasks, this client's first.
fn cluster(tasks: &[(&str, u32)]) -> World {
    let cpu =
        |&(job, task): &(&str, u32)| DeviceDescription::cpu(DeviceName::cpu(job, task, 0), 1 << 30);
    let mut w = world(1);
    w.devices = tasks.iter().map(cpu).collect();
    w.options.choice = Choice::Default;
    w
}

/// The task that a node is on.
fn task_of(plan: &Plan, name: &str) -> String {
    let part = plan.partitions.iter().find(|p| p.graph.find(name).is_some()).unwrap();
    format!("{}:{}", part.device.job, part.device.task)
}

#[test]
fn tasks_are_chosen_as_tensorflow_does() {
    let s = scope();
    let mut free = s.clone();
    let (mut ps, mut ps1) = (s.on_device("/job:ps"), s.on_device("/job:ps/task:1"));
    let mut worker = s.on_device("/job:worker");
    let x = placeholder(&mut free, "x");
    let v = variable(&mut ps1, "v");
    let first = named(&mut ps, "Neg", "first", &[v]);
    let own = named(&mut worker, "Neg", "own", &[first]);
    let one = constant(&mut free, "one", 1.0);
    let far = named(&mut ps, "Mul", "far", &[one, x]);
    let both = constant(&mut free, "both", 1.0);
    let a = named(&mut ps, "Mul", "a", &[both, far]);
    let sum = named(&mut free, "AddN", "sum", &[own, a, both]);
    let _ = sum;
    let graph = s.to_graph();
    let w = cluster(&[("worker", 1), ("ps", 1), ("ps", 0), ("worker", 0)]);
    let plan = w.plan(&graph, &["x"], &["sum"], &[]).unwrap();
    for (node, task) in [
        ("v", "ps:1"),
        // The first by name where the client's own does not match.
        ("first", "ps:0"),
        ("own", "worker:1"),
        ("sum", "worker:1"),
        // A node without inputs is placed with its readers, if they are on one device.
        ("one", "ps:0"),
        ("both", "worker:1"),
        ("_recv_x_0", "worker:1"),
        ("_send_sum_0", "worker:1"),
    ] {
        assert_eq!(task_of(&plan, node), task, "{node}");
    }
}

#[test]
fn a_tensor_goes_to_a_device_once() {
    let s = scope();
    let (mut ps, mut worker) = (s.on_device("/job:ps"), s.on_device("/job:worker"));
    let x = placeholder(&mut worker, "x");
    let a = named(&mut ps, "Neg", "a", &[x]);
    let b = named(&mut ps, "Mul", "b", &[a, x]);
    named(&mut worker, "Mul", "c", &[b, b]);
    let plan = cluster(&[("worker", 0), ("ps", 0)]).plan(&s.to_graph(), &["x"], &["c"], &[]);
    let plan = plan.unwrap();
    let count = |op: &str| {
        let nodes = plan.partitions.iter().flat_map(|p| p.graph.nodes());
        // Edges to the client are not narrowed.
        let is_cut = |n: &&thalweg_graph::Node| n.attrs.get("client_terminated").is_none();
        nodes.filter(|n| n.op.name == op).filter(is_cut).count()
    };
    assert_eq!((count("_Send"), count("_Recv")), (2, 2));
}

#[test]
fn chosen_edges_between_tasks_are_sent_as_bfloat16() {
    let s = scope();
    let (mut ps, mut worker) = (s.on_device("/job:ps"), s.on_device("/job:worker"));
    let x = placeholder(&mut worker, "x");
    let chosen = worker.op("Neg").name("chosen").attr(BFLOAT16_SENDS, true).input(x).build();
    let not = worker.op("Exp").name("not").attr(BFLOAT16_SENDS, false).input(x).build();
    let (chosen, not, other) =
        (chosen.unwrap(), not.unwrap(), named(&mut worker, "Abs", "other", &[x]));
    named(&mut worker, "Neg", "near", &[chosen]);
    named(&mut ps, "AddN", "sum", &[chosen, not, other]);
    let plan = |w: &World| w.plan(&s.to_graph(), &["x"], &["sum", "near"], &[]).unwrap();
    let narrowed = |w: &World| -> Vec<String> {
        let plan = plan(w);
        let nodes = plan.partitions.iter().flat_map(|p| p.graph.nodes());
        let sent =
            nodes.filter(|n| n.op.name == "_Send" && n.attrs.get("client_terminated").is_none());
        let narrow = thalweg_graph::IntoAttr::into_attr(DType::BFloat16);
        sent.filter(|n| n.attrs.get("T") == Some(&narrow)).map(|n| n.name.to_string()).collect()
    };
    let mut w = cluster(&[("worker", 0), ("ps", 0)]);
    assert_eq!(narrowed(&w), ["chosen_S0"]);
    w.options.bfloat16_transfers = true;
    // The sum comes back for the client.
    assert_eq!(narrowed(&w).len(), 4);
}

#[test]
fn work_goes_where_it_ends_first() {
    let mut s = scope();
    let shape = s.constant(&Tensor::vector(&[1000i32, 1000]).unwrap()).unwrap();
    let one = constant(&mut s, "one", 1.0);
    let big = named(&mut s, "Fill", "big", &[shape, one]);
    named(&mut s, "Neg", "neg", &[big]);
    let graph = s.to_graph();
    let mut w = world(3);
    w.devices[2].memory_bytes_per_second *= 100.0;
    let plan = w.plan(&graph, &[], &[], &["neg"]).unwrap();
    assert_eq!(cpu_of(&plan, "neg"), 2, "the fast device");
    assert!(plan.placement.reasons.contains(&Reason::EarliestFinish));
    assert!(!plan.placement.predicted.is_empty());
    let times = &plan.placement.predicted;
    assert!(
        times.iter().all(|(start, end)| start <= end) && times.iter().any(|(_, end)| *end > 0.0)
    );
    // Behind a slow link the fast device does not pay off.
    w.links.within_task = (1.0, 1e3);
    w.devices[2].memory_bytes_per_second = 1e9;
    assert_eq!(cpu_of(&w.plan(&graph, &[], &["neg"], &[]).unwrap(), "neg"), 0);
}

#[test]
fn constants_fold_and_equal_nodes_merge() {
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    let (a, b) = (constant(&mut s, "a", 2.0), constant(&mut s, "b", 3.0));
    let sum = named(&mut s, "AddV2", "sum", &[a, b]);
    let same = named(&mut s, "Identity", "same", &[sum]);
    let y1 = named(&mut s, "Mul", "y1", &[x, same]);
    let y2 = named(&mut s, "Mul", "y2", &[x, same]);
    named(&mut s, "AddV2", "y", &[y1, y2]);
    // Behind a control edge nothing folds, and the edge stays.
    let wait = s.op("NoOp").name("wait").build_node().unwrap();
    let proto =
        thalweg_graph::AttrValue::Tensor(Arc::new(Tensor::scalar(1f32).to_proto().unwrap()));
    let late = s.op("Const").name("late").attr("value", proto).attr("dtype", DType::Float);
    let late = late.after(&[wait]).build().unwrap();
    named(&mut s, "AddV2", "later", &[late, a]);
    // 0.0 and -0.0 are equal, but different constants.
    let (zero, minus) = (constant(&mut s, "zero", 0.0), constant(&mut s, "minus", -0.0));
    let (inv1, inv2) =
        (named(&mut s, "Inv", "inv1", &[zero]), named(&mut s, "Inv", "inv2", &[minus]));
    s.op("Pack").name("both").inputs(&[inv1, inv2]).build().unwrap();
    // Equal random ops are not merged.
    let shape = s.constant(&Tensor::vector(&[1i32]).unwrap()).unwrap();
    for name in ["r1", "r2"] {
        let random = s.op("RandomUniform").name(name).input(shape).attr("dtype", DType::Float);
        random.build().unwrap();
    }
    // A node that fails is not folded; the step reports its error.
    let (zero, seven) = (Tensor::vector(&[0i32]).unwrap(), Tensor::vector(&[7i32]).unwrap());
    let (zero, seven) = (s.constant(&zero).unwrap(), s.constant(&seven).unwrap());
    named(&mut s, "FloorDiv", "fails", &[seven, zero]);
    let graph = s.to_graph();
    let mut w = world(1);
    w.options.optimize = true;
    let plan = w.plan(&graph, &["x"], &["y"], &[]).unwrap();
    assert_eq!(names(&plan), ["_recv_x_0", "_send_y_0", "sum", "y", "y1"]);
    assert_eq!(op_of(&plan, "sum"), Some("Const"));
    // A fed node has the value of the feed.
    let plan = w.plan(&graph, &["x", "sum"], &["y"], &[]).unwrap();
    assert_eq!(op_of(&plan, "same"), Some("Identity"));
    let plan = w.plan(&graph, &[], &["later"], &[]).unwrap();
    assert!(op_of(&plan, "later") == Some("AddV2") && op_of(&plan, "wait").is_some());
    let plan = w.plan(&graph, &[], &["r1", "r2"], &[]).unwrap();
    assert!(op_of(&plan, "r1").is_some() && op_of(&plan, "r2").is_some());
    let plan = w.plan(&graph, &[], &["fails"], &[]).unwrap();
    assert_eq!(op_of(&plan, "fails"), Some("FloorDiv"));
    let plan = w.plan(&graph, &[], &["inv1", "inv2"], &[]).unwrap();
    assert!(op_of(&plan, "inv1").is_some() && op_of(&plan, "inv2").is_some());
}

#[test]
fn folding_has_bounds() {
    let mut s = scope();
    let one = constant(&mut s, "one", 1.0);
    let target: Vec<NodeId> = (0..2000)
        .map(|i| {
            let dims = s.constant(&Tensor::vector(&[200_000 + i]).unwrap()).unwrap();
            s.add("Fill", &[dims, one]).unwrap().node
        })
        .collect();
    s.op("NoOp").name("all").after(&target).build_node().unwrap();
    let mut w = world(1);
    w.options.optimize = true;
    let plan = w.plan(&s.to_graph(), &[], &[], &["all"]).unwrap();
    let bytes: usize = plan.partitions.iter().map(|p| p.graph.to_def().encoded_len()).sum();
    assert!(bytes < 100 << 20, "{bytes} bytes from 2000 small nodes");
}

/// A graph over two devices with data, control, shared and duplicate edges.
fn two_device_graph() -> Graph {
    let s = scope();
    let (mut here, mut there) = (s.on_device("/cpu:0"), s.on_device("/cpu:1"));
    let x = placeholder(&mut here, "x");
    let a = named(&mut there, "Neg", "a", &[x]);
    let b = named(&mut there, "Mul", "b", &[a, x]);
    let c = named(&mut here, "Mul", "c", &[b, b]);
    here.op("NoOp").name("done").after(&[a.node, c.node]).build_node().unwrap();
    s.to_graph()
}

#[test]
fn equal_inputs_give_byte_equal_plans() {
    let w = world(2);
    let text = || -> String {
        let plan = w.plan(&two_device_graph(), &["x"], &["c"], &["done"]).unwrap();
        let mut text = String::new();
        for p in &plan.partitions {
            text += &format!("{}\n", p.device);
            for n in p.graph.to_def().node {
                let key = n
                    .attr
                    .get("tensor_name")
                    .map(|v| format!(" {:?}", v.value))
                    .unwrap_or_default();
                text += &format!("  {} = {}({}){key}\n", n.name, n.op, n.input.join(", "));
            }
        }
        text
    };
    let bytes = || -> Vec<Vec<u8>> {
        let plan = w.plan(&two_device_graph(), &["x"], &["c"], &["done"]).unwrap();
        plan.partitions.iter().map(|p| p.graph.to_def().encode_to_vec()).collect()
    };
    assert_eq!(bytes(), bytes());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/two_devices.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, text()).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert_eq!(text(), expected, "run with UPDATE=1 if the change is meant");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
fn time_grows_with_the_nodes_not_faster() {
    let build = |nodes: usize| {
        let mut s = scope();
        let x = placeholder(&mut s, "x");
        // Many different constants: they must not be compared with each other.
        let last = (0..nodes / 2).fold(x, |last, i| {
            let c = s.constant(&Tensor::scalar(i as f32)).unwrap();
            s.add("AddV2", &[last, c]).unwrap()
        });
        (s.to_graph(), s.name_of(last))
    };
    let seconds = |nodes: usize, cpus: u32| {
        let (graph, last) = build(nodes);
        let mut w = world(cpus);
        w.options.optimize = true;
        let begin = std::time::Instant::now();
        w.plan(&graph, &["x"], &[&last], &[]).unwrap();
        begin.elapsed().as_secs_f64()
    };
    for cpus in [1, 2] {
        let (small, large) = (seconds(10_000, cpus), seconds(100_000, cpus));
        assert!(large < 40.0 * small + 2.0, "{small} s for 10,000 nodes, {large} s for 100,000");
    }
}
