//! Changes of state of a training run, logged by a `StateObserver` and replayed on another server.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use support::*;
use thalweg_cluster::{RemoteSession, TaskOptions};
use thalweg_graph::{Output, Scope};
use thalweg_kernel::{StateObserver, StepId, Variable};
use thalweg_tensor::{DType, PartialShape, Resource, Shape, Tensor};

const ROWS: usize = 6;
const WIDTH: usize = 3;

/// Changes in order: the resource's name, the op that changed it, and a variable's new value.
#[derive(Default)]
struct Log(Mutex<Vec<Entry>>);

struct Entry {
    kind: &'static str,
    name: String,
    update: String,
    value: Option<Tensor>,
}

impl StateObserver for Log {
    fn after_update(&self, resource: &dyn Resource, update: &str, step: StepId) {
        assert!(step.number > 0 && step.request != 0);
        let any: &dyn Any = resource;
        let variable = any.downcast_ref::<Variable>();
        // The value is read under the log's lock, so later entries have later values.
        let mut entries = self.0.lock().unwrap();
        entries.push(Entry {
            kind: resource.kind(),
            name: variable.map(|v| v.name().to_string()).unwrap_or_default(),
            update: update.to_owned(),
            value: variable.and_then(Variable::snapshot),
        });
    }

    fn removed(&self, container: &str, name: &str, resource: &dyn Resource) {
        assert_eq!(container, "local");
        let (kind, update) = (resource.kind(), "removed".to_owned());
        let entry = Entry { kind, name: name.to_owned(), update, value: None };
        self.0.lock().unwrap().push(entry);
    }
}

/// Variables of a graph: their names and, for each, the nodes that assign and read it.
struct Model {
    scope: Scope,
    gradient: Output,
    rows: Output,
    row_numbers: Output,
    names: Vec<String>,
    train: Vec<String>,
}

const REF: &[&str] = &["ref/w", "ref/accum", "ref/adam", "ref/m", "ref/v", "ref/table", "ref/sums"];
const RESOURCE: &[&str] =
    &["res/w", "res/accum", "res/adam", "res/m", "res/v", "res/table", "res/sums"];

impl Model {
    fn new() -> Model {
        let mut scope = scope();
        let gradient = placeholder(&mut scope, "gradient");
        let rows = placeholder(&mut scope, "rows");
        let numbers = scope.op("Placeholder").name("row_numbers").attr("dtype", DType::Int32);
        let row_numbers = numbers.build().unwrap();
        let names = REF.iter().chain(RESOURCE).map(|&n| n.to_owned()).collect();
        Model { scope, gradient, rows, row_numbers, names, train: Vec::new() }
    }

    /// A variable with nodes `NAME/assign` (of the placeholder `NAME/value`) and `NAME/read`.
    fn variable(&mut self, name: &str) -> Output {
        let s = &mut self.scope;
        let shape = PartialShape::new([Some(ROWS), Some(WIDTH)]);
        let value = placeholder(s, &format!("{name}/value"));
        let assign = format!("{name}/assign");
        if name.starts_with("ref/") {
            let declared = s.op("VariableV2").name(name).attr("dtype", DType::Float);
            let variable = declared.attr("shape", &shape).build().unwrap();
            s.op("Assign").name(&assign).inputs(&[variable, value]).build().unwrap();
            let read = s.op("Identity").name(&format!("{name}/read"));
            read.input(variable).build().unwrap();
            return variable;
        }
        let declared = s.op("VarHandleOp").name(name).attr("dtype", DType::Float);
        let handle = declared.attr("shape", &shape).attr("shared_name", name).build().unwrap();
        let set = s.op("AssignVariableOp").name(&assign).attr("dtype", DType::Float);
        set.inputs(&[handle, value]).build_all().unwrap();
        let read = s.op("ReadVariableOp").name(&format!("{name}/read"));
        read.attr("dtype", DType::Float).input(handle).build().unwrap();
        handle
    }

    fn step(&mut self, op: &str, inputs: &[Output]) {
        let name = op.to_owned();
        let node = self.scope.op(op).name(&name).inputs(inputs);
        node.build_all().unwrap();
        self.train.push(name);
    }

    /// Momentum and Adam, dense and sparse, with references and with handles.
    fn with_training() -> Model {
        let mut m = Model::new();
        let number = |m: &mut Model, x: f32| m.scope.constant(&Tensor::scalar(x)).unwrap();
        let [lr, momentum, beta1, beta2, epsilon] =
            [0.1, 0.9, 0.9, 0.999, 1e-8].map(|x| number(&mut m, x));
        let vars: Vec<Output> = m.names.clone().iter().map(|name| m.variable(name)).collect();
        let (g, rows, at) = (m.gradient, m.rows, m.row_numbers);
        let [w, accum, adam, mm, v, table, sums] = vars[..7].try_into().unwrap();
        m.step("ApplyMomentum", &[w, accum, lr, g, momentum]);
        m.step("ApplyAdam", &[adam, mm, v, beta1, beta2, lr, beta1, beta2, epsilon, g]);
        m.step("SparseApplyAdagrad", &[table, sums, lr, rows, at]);
        m.step("ScatterSub", &[w, at, rows]);
        m.step("AssignAdd", &[adam, g]);
        let [w, accum, adam, mm, v, table, sums] = vars[7..].try_into().unwrap();
        m.step("ResourceApplyMomentum", &[w, accum, lr, g, momentum]);
        m.step("ResourceApplyAdam", &[adam, mm, v, beta1, beta2, lr, beta1, beta2, epsilon, g]);
        m.step("ResourceSparseApplyMomentum", &[table, sums, lr, rows, at, momentum]);
        m.step("ResourceScatterAdd", &[w, at, rows]);
        m.step("AssignSubVariableOp", &[adam, g]);
        m.other_state();
        m
    }

    /// Queues, tables and accumulators are observed too.
    fn other_state(&mut self) {
        let gradient = self.gradient;
        queue(&mut self.scope, gradient);
        self.train.push("enqueue".into());
        let s = &mut self.scope;
        let table = s.op("MutableHashTableV2").name("table").attr("key_dtype", DType::Int64);
        let table = table.attr("value_dtype", DType::Int64).build().unwrap();
        let one = s.constant(&Tensor::vector(&[1i64]).unwrap()).unwrap();
        self.step("LookupTableInsertV2", &[table, one, one]);
        let s = &mut self.scope;
        let shape = PartialShape::new([Some(ROWS), Some(WIDTH)]);
        let sum = s.op("ConditionalAccumulator").name("sum").attr("dtype", DType::Float);
        let sum = sum.attr("shape", &shape).build().unwrap();
        let now = s.constant(&Tensor::scalar(0i64)).unwrap();
        self.step("AccumulatorApplyGradient", &[sum, now, gradient]);
    }
}

/// Pseudorandom numbers in [-0.5, 0.5).
fn noise(seed: u32, rows: usize) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let values: Vec<f32> = (0..rows * WIDTH).map(|_| next()).collect();
    Tensor::from_slice(Shape::new(&[rows, WIDTH]).unwrap(), &values).unwrap()
}

/// The bits of every variable.
fn bits(session: &RemoteSession, names: &[String]) -> Vec<Vec<u32>> {
    let reads: Vec<String> = names.iter().map(|n| format!("{n}/read")).collect();
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    let tensors = session.run(&[], &reads, &[]).unwrap();
    let bits = |t: &Tensor| t.as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect();
    tensors.iter().map(bits).collect()
}

fn server(log: Option<Arc<Log>>) -> TestServer {
    let observer = log.map(|log| -> Arc<dyn StateObserver> { log });
    TestServer::with(TaskOptions { observer, ..Default::default() }, Default::default())
}

#[test]
fn a_logged_training_run_can_be_replayed() {
    let log = Arc::new(Log::default());
    let first = server(Some(log.clone()));
    let model = Model::with_training();
    let session = first.open(&model.scope);
    for (i, name) in model.names.iter().enumerate() {
        let value = (format!("{name}/value"), noise(i as u32, ROWS));
        let feeds = [(value.0.as_str(), value.1)];
        session.run(&feeds, &[], &[&format!("{name}/assign")]).unwrap();
    }
    let train: Vec<&str> = model.train.iter().map(String::as_str).collect();
    for step in 0..20u32 {
        let at = Tensor::vector(&[step as i32 % 6, (step as i32 + 2) % 6]).unwrap();
        let feeds = [
            ("gradient", noise(100 + step, ROWS)),
            ("rows", noise(200 + step, 2)),
            ("row_numbers", at),
        ];
        session.run(&feeds, &[], &train).unwrap();
    }
    let expected = bits(&session, &model.names);

    // Every op that changes something was seen, and every kind of state.
    let entries = log.0.lock().unwrap();
    let seen: BTreeSet<&str> = entries.iter().map(|e| e.update.as_str()).collect();
    let ops = model.train.iter().map(|name| match name.as_str() {
        "enqueue" => "QueueEnqueueV2",
        other => other,
    });
    for op in ops.chain(["Assign", "AssignVariableOp"]) {
        assert!(seen.contains(op), "{op} changed state without a log entry: {seen:?}");
    }
    let kinds: BTreeSet<&str> = entries.iter().map(|e| e.kind).collect();
    assert!(kinds.len() >= 4, "{kinds:?}");

    let second = server(None);
    let mut empty = Model::new();
    for name in empty.names.clone() {
        empty.variable(&name);
    }
    let replica = second.open(&empty.scope);
    for entry in entries.iter().filter(|e| !e.name.is_empty()) {
        let value = entry.value.clone().expect("a variable that changed has a value");
        let assign = format!("{}/assign", entry.name);
        let feed = format!("{}/value", entry.name);
        replica.run(&[(feed.as_str(), value)], &[], &[&assign]).unwrap();
    }
    assert_eq!(bits(&replica, &empty.names), expected);
}

#[test]
fn removals_are_logged() {
    let log = Arc::new(Log::default());
    let server = server(Some(log.clone()));
    let mut model = Model::new();
    let handle = model.variable("res/w");
    model.variable("ref/w");
    model.scope.op("DestroyResourceOp").name("destroy").input(handle).build_all().unwrap();
    let session = server.open(&model.scope);
    for name in ["res/w", "ref/w"] {
        let feed = format!("{name}/value");
        let feeds = [(feed.as_str(), noise(1, ROWS))];
        session.run(&feeds, &[], &[&format!("{name}/assign")]).unwrap();
    }
    session.run(&[], &[], &["destroy"]).unwrap();
    RemoteSession::reset(&server.target(), &[]).unwrap();
    let entries = log.0.lock().unwrap();
    let removed: Vec<&str> =
        entries.iter().filter(|e| e.update == "removed").map(|e| e.name.as_str()).collect();
    assert_eq!(removed, ["res/w", "ref/w"]);
}
