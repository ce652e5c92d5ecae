//! Optimizers and sparse updates of variables on an accelerator, held to the CPU.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use thalweg_graph::{
    Adjoint, ArgType, GradientOptions, Graph, NodeId, Op, Output, Scope, gradients,
};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, Complex32, DType, Shape, Tensor, bf16, f16};

fn scope() -> Scope {
    Scope::new(op_registry(FAMILIES).unwrap())
}

fn session(s: &Scope, options: SessionOptions) -> Session {
    Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap()
}

fn add(s: &mut Scope, op: &str, inputs: &[Output]) -> Output {
    s.op(op).inputs(inputs).build().unwrap()
}

fn matrix(rows: usize, columns: usize, value: impl Fn(usize) -> f32) -> Tensor {
    let values: Vec<f32> = (0..rows * columns).map(value).collect();
    let shape = Shape::new(&[rows, columns]).unwrap();
    Tensor::vector(&values).unwrap().reshaped(shape).unwrap()
}

/// A constant in a dtype; the imaginary part of complex ones is half of the real part.
fn constant(s: &mut Scope, dtype: DType, value: &Tensor) -> Output {
    let value = s.constant(value).unwrap();
    in_dtype(s, dtype, value)
}

fn in_dtype(s: &mut Scope, dtype: DType, value: Output) -> Output {
    if dtype != DType::Complex64 {
        return s.cast(value, dtype).unwrap();
    }
    let half = s.number(DType::Float, 0.5).unwrap();
    let half = add(s, "Mul", &[value, half]);
    add(s, "Complex", &[value, half])
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let wide = |x: f32| f64::from(x);
    match tensor.dtype() {
        DType::Float => tensor.as_slice::<f32>().unwrap().iter().map(|&x| wide(x)).collect(),
        DType::Double => tensor.as_slice::<f64>().unwrap().to_vec(),
        DType::Half => tensor.as_slice::<f16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::BFloat16 => tensor.as_slice::<bf16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        _ => {
            let all = tensor.as_slice::<Complex32>().unwrap();
            all.iter().flat_map(|x| [wide(x.re), wide(x.im)]).collect()
        }
    }
}

fn assert_close(got: &Tensor, wanted: &Tensor, tolerance: f64, what: &str) {
    let (got, wanted) = (numbers(got), numbers(wanted));
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (i, (x, y)) in got.iter().zip(&wanted).enumerate() {
        let is_close = (x - y).abs() <= tolerance * (1.0 + y.abs());
        assert!(is_close, "{what}: element {i} is {x}, on the CPU {y}");
    }
}

/// A variable behind a reference or a handle, what initializes it, and what reads it.
fn variable(
    s: &mut Scope,
    is_ref: bool,
    initial: Output,
    shape: &[usize],
) -> (Output, NodeId, Output) {
    let dtype = s.with_graph(|g| g.output(initial).dtype);
    let name = format!("v{}", s.with_graph(Graph::len));
    let shape = Shape::new(shape).unwrap();
    let op = if is_ref { "VariableV2" } else { "VarHandleOp" };
    let op = s.op(op).name(&name).attr("dtype", dtype).attr("shape", &shape);
    let op = if is_ref { op } else { op.attr("shared_name", &*name) };
    let state = op.build().unwrap();
    let assign = if is_ref { "Assign" } else { "AssignVariableOp" };
    let init = s.op(assign).inputs(&[state, initial]).build_node().unwrap();
    let read = match is_ref {
        true => add(s, "Identity", &[state]),
        false => s.op("ReadVariableOp").input(state).attr("dtype", dtype).build().unwrap(),
    };
    (state, init, read)
}

/// The nodes of a graph with all forms of every optimizer.
struct Optimizers {
    scope: Scope,
    init: Vec<String>,
    updates: Vec<String>,
    /// Name of the op, and what reads one of its variables.
    reads: Vec<(String, String)>,
}

/// Optimizers for variables of a dtype, fed by "grad" and "rows", their indices by "indices".
fn optimizers(dtype: DType) -> Optimizers {
    let mut scope = scope();
    let s = &mut scope;
    let feed = |s: &mut Scope, name: &str, dtype: DType| {
        s.op("Placeholder").name(name).attr("dtype", dtype).build().unwrap()
    };
    let gradient = feed(s, "grad", DType::Float);
    let gradient = in_dtype(s, dtype, gradient);
    let rows = feed(s, "rows", DType::Float);
    let rows = in_dtype(s, dtype, rows);
    let indices = feed(s, "indices", DType::Int32);
    let registry = op_registry(FAMILIES).unwrap();
    let mut all = Optimizers { scope, init: vec![], updates: vec![], reads: vec![] };
    for spec in FAMILIES.iter().flat_map(|f| f.kernels).filter(|k| k.lower.is_some()) {
        let fits = spec.constraints.iter().all(|(_, allowed)| allowed.contains(&dtype));
        if spec.op.contains("Apply") && fits {
            let op = registry.get(spec.op).unwrap();
            all.add(op, dtype, &[gradient, rows, indices]);
        }
    }
    all
}

impl Optimizers {
    fn add(&mut self, op: &Op, dtype: DType, feeds: &[Output; 3]) {
        let is_sparse = op.inputs.iter().any(|arg| arg.name == "indices");
        let s = &mut self.scope;
        let mut inputs = Vec::new();
        for (i, arg) in op.inputs.iter().enumerate() {
            inputs.push(match arg.name.as_str() {
                _ if arg.is_ref || arg.ty == ArgType::Fixed(DType::Resource) => {
                    let start = matrix(4, 3, |k| 0.1 * (i + 1) as f32 + 0.01 * k as f32);
                    let start = constant(s, dtype, &start);
                    let (state, init, read) = variable(s, arg.is_ref, start, &[4, 3]);
                    self.init.push(s.with_graph(|g| g.node(init).name.to_string()));
                    self.reads.push((op.name.clone(), s.name_of(read)));
                    state
                }
                "grad" | "delta" => feeds[usize::from(is_sparse)],
                "indices" => feeds[2],
                "global_step" => s.constant(&Tensor::scalar(3i64)).unwrap(),
                name => constant(s, dtype, &Tensor::scalar(parameter(name))),
            });
        }
        let mut node = s.op(&op.name).inputs(&inputs);
        for attr in ["use_nesterov", "multiply_linear_by_lr"] {
            if op.attrs.iter().any(|a| a.name == attr) {
                node = node.attr(attr, op.name.starts_with("Resource"));
            }
        }
        let node = node.build_node().unwrap();
        self.updates.push(s.with_graph(|g| g.node(node).name.to_string()));
    }

    /// The variables after some steps.
    fn run(&self, options: SessionOptions) -> Vec<Tensor> {
        let session = session(&self.scope, options);
        fn names(all: &[String]) -> Vec<&str> {
            all.iter().map(String::as_str).collect()
        }
        session.run(&[], &[], &names(&self.init)).unwrap();
        for step in 0..3 {
            let value = |k: usize| ((k * 7 + step * 3) % 11) as f32 / 11.0 - 0.4;
            let feeds = [
                ("grad:0", matrix(4, 3, value)),
                ("rows:0", matrix(5, 3, value)),
                ("indices:0", Tensor::vector(&[1i32, 3, 1, 1, 0]).unwrap()),
            ];
            session.run(&feeds, &[], &names(&self.updates)).unwrap();
        }
        let reads: Vec<&str> = self.reads.iter().map(|(_, read)| read.as_str()).collect();
        session.run(&[], &reads, &[]).unwrap()
    }
}

fn parameter(name: &str) -> f32 {
    match name {
        "rho" | "momentum" | "beta1" | "beta" | "beta1_power" => 0.9,
        "beta2" | "beta2_power" => 0.95,
        "epsilon" | "l1" => 0.01,
        "lr_power" => -0.5,
        _ => 0.1,
    }
}

/// All forms, several steps, sparse ones with an index that occurs three times.
fn optimizers_agree(dtype: DType, tolerance: f64, at_least: usize) {
    let Some(accelerator) = support::accelerator("optimizers_agree") else { return };
    let all = optimizers(dtype);
    assert!(all.updates.len() >= at_least, "{} optimizers", all.updates.len());
    let wanted = all.run(SessionOptions::default());
    let before = accelerator.counts().1;
    let got = all.run(support::options(&accelerator));
    // To initialize, to read, and twice a step: dense and sparse updates wait for different feeds.
    assert_eq!(accelerator.counts().1 - before, 2 * 3 + 1, "executions");
    for ((op, _), (got, wanted)) in all.reads.iter().zip(got.iter().zip(&wanted)) {
        assert_close(got, wanted, tolerance, op);
    }
}

#[test]
fn optimizers_of_floats() {
    optimizers_agree(DType::Float, 1e-5, 56);
}

#[test]
fn optimizers_of_doubles() {
    optimizers_agree(DType::Double, 1e-12, 56);
}

#[test]
fn optimizers_of_16_bit_floats() {
    optimizers_agree(DType::Half, 2e-3, 40);
    optimizers_agree(DType::BFloat16, 2e-2, 40);
}

#[test]
fn optimizers_of_complex_numbers() {
    optimizers_agree(DType::Complex64, 1e-5, 25);
}

/// A network with one hidden layer under Adam: its parameters, the loss, and the step.
struct Network {
    scope: Scope,
    init: Vec<String>,
    step: String,
    parameters: Vec<String>,
}

fn network() -> Network {
    let mut scope = scope();
    let s = &mut scope;
    let feed = |s: &mut Scope, name: &str, dtype: DType| {
        s.op("Placeholder").name(name).attr("dtype", dtype).build().unwrap()
    };
    let (x, labels) = (feed(s, "x", DType::Float), feed(s, "labels", DType::Int32));
    let mut init = Vec::new();
    let mut add_variable = |s: &mut Scope, initial: &Tensor| {
        let shape = initial.shape().to_vec();
        let initial = s.constant(initial).unwrap();
        let (state, node, read) = variable(s, false, initial, &shape);
        init.push(s.with_graph(|g| g.node(node).name.to_string()));
        (state, read)
    };
    let initial = [
        matrix(8, 16, |k| ((k * 37) % 19) as f32 / 40.0 - 0.2),
        Tensor::zeros(DType::Float, Shape::new(&[16]).unwrap()).unwrap(),
        matrix(16, 4, |k| ((k * 29) % 23) as f32 / 40.0 - 0.2),
        Tensor::zeros(DType::Float, Shape::new(&[4]).unwrap()).unwrap(),
    ];
    let parameters: Vec<(Output, Output)> = initial.iter().map(|t| add_variable(s, t)).collect();
    let read: Vec<Output> = parameters.iter().map(|p| p.1).collect();
    let hidden = add(s, "MatMul", &[x, read[0]]);
    let hidden = add(s, "BiasAdd", &[hidden, read[1]]);
    let hidden = add(s, "Relu", &[hidden]);
    let logits = add(s, "MatMul", &[hidden, read[2]]);
    let logits = add(s, "BiasAdd", &[logits, read[3]]);
    let loss = add(s, "SparseSoftmaxCrossEntropyWithLogits", &[logits, labels]);
    let zero = s.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
    let loss = s.op("Mean").name("loss").inputs(&[loss, zero]).build().unwrap();
    let adjoints = gradients(s, &[loss], &read, &GradientOptions::default()).unwrap();
    let powers = [0.9f32, 0.999].map(|b| add_variable(s, &Tensor::scalar(b)));
    let [rate, beta1, beta2, epsilon] =
        [0.01, 0.9, 0.999, 1e-7].map(|x| s.number(DType::Float, x).unwrap());
    let mut updates = Vec::new();
    for ((state, _), (adjoint, initial)) in parameters.iter().zip(adjoints.iter().zip(&initial)) {
        let Adjoint::Dense(gradient) = *adjoint else { panic!("dense gradients") };
        let zeros = Tensor::zeros(DType::Float, initial.shape().clone()).unwrap();
        let slots = [0, 1].map(|_| add_variable(s, &zeros).0);
        let [beta1_power, beta2_power] = powers.map(|p| p.1);
        let rest = [beta1_power, beta2_power, rate, beta1, beta2, epsilon, gradient];
        let inputs = [&[*state, slots[0], slots[1]][..], &rest].concat();
        updates.push(s.op("ResourceApplyAdam").inputs(&inputs).build_node().unwrap());
    }
    let mut after = s.after(&updates);
    let decays: Vec<NodeId> = powers
        .iter()
        .zip([beta1, beta2])
        .map(|(&(state, read), beta)| {
            let next = add(&mut after, "Mul", &[read, beta]);
            after.op("AssignVariableOp").inputs(&[state, next]).build_node().unwrap()
        })
        .collect();
    let step = s.after(&decays).op("NoOp").name("step").build_node().unwrap();
    let step = s.with_graph(|g| g.node(step).name.to_string());
    let parameters = read.iter().map(|&read| s.name_of(read)).collect();
    Network { scope, init, step, parameters }
}

fn train(network: &Network, session: &Session, steps: usize) -> (f32, Vec<Tensor>) {
    let names: Vec<&str> = network.init.iter().map(String::as_str).collect();
    session.run(&[], &[], &names).unwrap();
    let mut loss = 0.0;
    for step in 0..steps {
        let x = matrix(6, 8, |k| ((k * 13 + step * 5) % 17) as f32 / 17.0);
        let labels: Vec<i32> = (0..6).map(|k| (k + step as i32) % 4).collect();
        let feeds = [("x:0", x), ("labels:0", Tensor::vector(&labels).unwrap())];
        let got = session.run(&feeds, &["loss:0"], &[&network.step]).unwrap();
        loss = numbers(&got[0])[0] as f32;
    }
    let reads: Vec<&str> = network.parameters.iter().map(String::as_str).collect();
    (loss, session.run(&[], &reads, &[]).unwrap())
}

/// Forward pass, gradients, Adam and the powers of its rates: one program, run once a step.
#[test]
fn a_training_step_is_one_program() {
    let Some(accelerator) = support::accelerator("a_training_step_is_one_program") else { return };
    let network = network();
    let wanted = train(&network, &session(&network.scope, SessionOptions::default()), 30);
    let on_device = session(&network.scope, support::options(&accelerator));
    let before = accelerator.counts();
    let got = train(&network, &on_device, 30);
    let after = accelerator.counts();
    // Besides, a program that initializes: the final read forwards the variables.
    assert!(after.1 - before.1 <= 30 + 2, "{} executions", after.1 - before.1);
    assert!(after.0 - before.0 <= 3, "{} compilations", after.0 - before.0);
    assert!((got.0 - wanted.0).abs() < 1e-5, "the loss is {}, on the CPU {}", got.0, wanted.0);
    for (i, (got, wanted)) in got.1.iter().zip(&wanted.1).enumerate() {
        assert_close(got, wanted, 1e-4, &format!("parameter {i}"));
    }
}

/// A table of many rows and its slot are updated where they are.
#[test]
fn sparse_updates_use_the_memory_of_the_table() {
    let Some(accelerator) = support::accelerator("sparse_updates_use_the_memory") else { return };
    const ROWS: usize = 1 << 16;
    let mut s = scope();
    let start = s.constant(&matrix(ROWS, 16, |_| 1.0)).unwrap();
    let (table, init, read) = variable(&mut s, false, start, &[ROWS, 16]);
    let (slot, init_slot, _) = variable(&mut s, false, start, &[ROWS, 16]);
    let indices = s.op("Placeholder").name("i").attr("dtype", DType::Int64).build().unwrap();
    let rate = s.number(DType::Float, 1.0).unwrap();
    let gradient = s.constant(&matrix(3, 16, |_| 1.0)).unwrap();
    let update = s
        .op("ResourceSparseApplyAdagrad")
        .inputs(&[table, slot, rate, gradient, indices])
        .build_node()
        .unwrap();
    let gather = s
        .op("ResourceGather")
        .name("rows")
        .inputs(&[table, indices])
        .attr("dtype", DType::Float)
        .build()
        .unwrap();
    let name = |node: NodeId| s.with_graph(|g| g.node(node).name.to_string());
    let session = session(&s, support::options(&accelerator));
    session.run(&[], &[], &[&name(init), &name(init_slot)]).unwrap();
    let bytes = ROWS * 16 * 4;
    for step in 0..20i64 {
        let feeds = [("i:0", Tensor::vector(&[step, 7, 7]).unwrap())];
        session.run(&feeds, &[], &[&name(update)]).unwrap();
        // The table, its slot, their initial value, and little else.
        let used = accelerator.used_bytes();
        assert!(used < 4 * bytes, "{used} bytes are in use after step {step}");
    }
    // Once for each step: the accumulator of row 30 is 1, that of row 3 became 2.
    let feeds = [("i:0", Tensor::vector(&[30i64, 3, -1]).unwrap())];
    let got = session.run(&feeds, &[&s.name_of(gather)], &[]).unwrap();
    let got = numbers(&got[0]);
    assert!((got[16] - (1.0 - 1.0 / 2f64.sqrt())).abs() < 1e-6, "{}", got[16]);
    assert_eq!((got[0], got[32]), (1.0, 0.0), "out of range, a gather selects zeros");
    let row = |accum: f64| -> f64 { (2..=41).map(|k| 1.0 / (f64::from(k) + accum).sqrt()).sum() };
    let all = numbers(&session.run(&[], &[&s.name_of(read)], &[]).unwrap()[0]);
    // Row 7: twice a step, and once more in step 7.
    let wanted = 1.0 - row(0.0) - 1.0 / 42f64.sqrt();
    assert!((all[7 * 16] - wanted).abs() < 1e-4, "{} instead of {wanted}", all[7 * 16]);
}

#[test]
fn mistakes_have_the_codes_of_the_cpu() {
    let Some(accelerator) = support::accelerator("mistakes_have_the_codes") else { return };
    let mut s = scope();
    let start = s.constant(&matrix(4, 3, |_| 1.0)).unwrap();
    let (var, init, _) = variable(&mut s, true, start, &[4, 3]);
    let (slot, init_slot, _) = variable(&mut s, true, start, &[4, 3]);
    let one = s.number(DType::Float, 1.0).unwrap();
    let gradient = s.op("Placeholder").name("g").attr("dtype", DType::Float).build().unwrap();
    let step = s.op("ApplyAdagrad").inputs(&[var, slot, one, gradient]).build_node().unwrap();
    let own = s.op("ApplyAdagrad").inputs(&[var, var, one, gradient]).build_node().unwrap();
    let name = |node: NodeId| s.with_graph(|g| g.node(node).name.to_string());
    let mistakes = |options: SessionOptions| -> Vec<Code> {
        let session = session(&s, options);
        let run = |rows: usize, targets: &[&str]| -> Option<Code> {
            let feeds = [("g:0", matrix(rows, 3, |_| 1.0))];
            session.run(&feeds, &[], targets).err().map(|e| e.code())
        };
        let unset = run(4, &[&name(step)]);
        session.run(&[], &[], &[&name(init), &name(init_slot)]).unwrap();
        let wrong = [run(5, &[&name(step)]), run(4, &[&name(own)])];
        assert_eq!(run(4, &[&name(step)]), None);
        [unset].into_iter().chain(wrong).flatten().collect()
    };
    let wanted = mistakes(SessionOptions::default());
    assert_eq!(wanted.len(), 3, "{wanted:?}");
    assert_eq!(mistakes(support::options(&accelerator)), wanted);
}
