//! `thalweg quickstart`: builds a small classifier, trains it, uses it from several threads, and
//! says what happened.

use std::io::Write;
use std::path::PathBuf;

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_kernel::Environment;
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use crate::{Failure, Registry, files};

/// Points to learn from, in as many arms of a spiral as there are classes.
const POINTS: usize = 300;
const CLASSES: usize = 3;
const HIDDEN: usize = 32;
const LEARNING_RATE: f32 = 1.0;
/// Threads that use the trained model at once, and steps that each of them takes.
const THREADS: usize = 4;
const STEPS_PER_THREAD: usize = 500;

/// Build a small model, train it, run it from several threads, and show what happened.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Steps of training
    #[arg(long, value_name = "N", default_value = "500", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// Where to write the timeline of one step; by default a file in the system's temporary folder
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Runs the tour.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let scope = Scope::new(registry.ops.clone());
    Model::build(&scope)?;
    let nodes = scope.with_graph(thalweg_graph::Graph::len);
    writeln!(out, "1. A graph of {nodes} nodes: a classifier of points in the plane.")?;
    writeln!(
        out,
        "     x [?,2] -> MatMul, BiasAdd, Relu [?,{HIDDEN}] -> MatMul, BiasAdd [?,{CLASSES}]"
    )?;
    writeln!(out, "     loss and its gradients -> AssignSubVariableOp on 4 variables")?;

    let options = SessionOptions::default();
    let environment = options.environment.clone();
    let session = Session::new(scope.to_graph(), registry.kernels.clone(), options)?;
    session.run(&[], &[], &["init"])?;
    let (x, labels) = spiral()?;
    writeln!(
        out,
        "\n2. Training on {POINTS} points in {CLASSES} spiral arms, {} steps:",
        args.steps
    )?;
    let seconds = train(args.steps, &session, &environment, (&x, &labels), out)?;
    writeln!(out, "     {:.0} us per step", seconds / f64::from(args.steps) * 1e6)?;

    let probabilities =
        session.run(&[("x", x.rows(POINTS - CLASSES, 1)?)], &["probabilities"], &[])?;
    writeln!(out, "\n3. Fetching: only what a fetch needs runs.")?;
    writeln!(
        out,
        "     probabilities of the last point of class 0: {}",
        crate::output::show(&probabilities[0])?
    )?;

    let rate = steps_from_threads(&session, &environment, &x)?;
    writeln!(
        out,
        "\n4. One session, {THREADS} threads at once: {rate:.0} predictions of one point per second."
    )?;

    let trace = write_trace(args, &session, (&x, &labels))?;
    writeln!(out, "\n5. A timeline of one training step: {}", trace.display())?;
    writeln!(out, "     open it at https://ui.perfetto.dev")?;
    writeln!(
        out,
        "\nNext: thalweg run GRAPH.pb runs a graph that TensorFlow wrote (thalweg run --help);"
    )?;
    writeln!(out, "      examples/ has programs that build their own.")?;
    writeln!(
        out,
        "{}",
        serde_json::json!({
            "nodes": nodes, "steps": args.steps, "seconds": seconds, "trace": trace.to_string_lossy()
        })
    )?;
    Ok(())
}

/// Trains, telling how the loss falls; returns the seconds that the steps took together.
fn train(
    steps: u32,
    session: &Session,
    environment: &Environment,
    (x, labels): (&Tensor, &Tensor),
    out: &mut dyn Write,
) -> Result<f64, Failure> {
    let step = session.make_callable(&["x", "labels"], &["loss", "accuracy"], &["train"])?;
    let feeds = [x.clone(), labels.clone()];
    let begin = environment.clock.monotonic();
    let mut told = 0;
    for i in 0..steps {
        let results = step.call(&feeds)?;
        if u64::from(i) * 4 >= told * u64::from(steps) || i + 1 == steps {
            told += 1;
            let (loss, accuracy) =
                (results[0].scalar_value::<f32>()?, results[1].scalar_value::<f32>()?);
            writeln!(out, "     step {i:4}: loss {loss:.3}, {:.0} % right", accuracy * 100.0)?;
        }
    }
    Ok((environment.clock.monotonic() - begin).as_secs_f64())
}

/// Predictions per second of threads that share the session.
fn steps_from_threads(session: &Session, environment: &Environment, x: &Tensor) -> Result<f64> {
    let predict = session.make_callable(&["x"], &["class"], &[])?;
    let begin = environment.clock.monotonic();
    std::thread::scope(|threads| {
        let handles: Vec<_> = (0..THREADS)
            .map(|thread| {
                let predict = &predict;
                threads.spawn(move || {
                    for i in 0..STEPS_PER_THREAD {
                        predict.call(&[x.rows((thread + i * THREADS) % POINTS, 1)?])?;
                    }
                    Ok(())
                })
            })
            .collect();
        let join = |h: std::thread::ScopedJoinHandle<'_, Result<()>>| {
            h.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        handles.into_iter().try_for_each(join)
    })?;
    let seconds = (environment.clock.monotonic() - begin).as_secs_f64();
    Ok((THREADS * STEPS_PER_THREAD) as f64 / seconds)
}

fn write_trace(args: &Args, session: &Session, (x, labels): (&Tensor, &Tensor)) -> Result<PathBuf> {
    let path = args
        .trace
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join("thalweg-quickstart-trace.json"));
    let options = RunOptions { trace: true, ..Default::default() };
    let feeds = [("x", x.clone()), ("labels", labels.clone())];
    let (_, metadata) = session.run_with(&options, &feeds, &["loss"], &["train"])?;
    files::write(&path, metadata.to_trace_json().as_bytes())?;
    Ok(path)
}

/// Points of a spiral with as many arms as classes, and the arm of each.
fn spiral() -> Result<(Tensor, Tensor)> {
    let (mut points, mut labels) = (Vec::new(), Vec::new());
    for i in 0..POINTS {
        let class = i % CLASSES;
        let radius = (i / CLASSES) as f32 / (POINTS / CLASSES) as f32;
        // A little unevenness, the same in every run.
        let shake = ((i * 7919 % 101) as f32 / 101.0 - 0.5) * 0.4;
        let angle = 4.0 * radius + class as f32 * std::f32::consts::TAU / CLASSES as f32 + shake;
        points.extend([radius * angle.sin(), radius * angle.cos()]);
        labels.push(class as i32);
    }
    Ok((Tensor::from_slice(Shape::new(&[POINTS, 2])?, &points)?, Tensor::vector(&labels)?))
}

/// Two layers, their loss, and a step down its slope.
struct Model {
    scope: Scope,
    inits: Vec<NodeId>,
}

impl Model {
    fn build(scope: &Scope) -> Result<()> {
        let mut m = Model { scope: scope.clone(), inits: Vec::new() };
        let x = m.placeholder("x", DType::Float, &PartialShape::new([None, Some(2)]))?;
        let labels = m.placeholder("labels", DType::Int32, &PartialShape::of_rank(1))?;
        let w1 = m.variable("w1", &[2, HIDDEN])?;
        let b1 = m.variable("b1", &[HIDDEN])?;
        let w2 = m.variable("w2", &[HIDDEN, CLASSES])?;
        let b2 = m.variable("b2", &[CLASSES])?;

        let product = m.scope.add("MatMul", &[x, w1.value])?;
        let sums = m.scope.add("BiasAdd", &[product, b1.value])?;
        let hidden = m.scope.add("Relu", &[sums])?;
        let product = m.scope.add("MatMul", &[hidden, w2.value])?;
        let logits = m.scope.add("BiasAdd", &[product, b2.value])?;
        m.scope.op("Softmax").name("probabilities").input(logits).build()?;
        let axis = m.scope.constant(&Tensor::scalar(1i32))?;
        let class = m.named("class", "ArgMax", &[logits, axis])?;

        let losses = m
            .scope
            .op("SparseSoftmaxCrossEntropyWithLogits")
            .inputs(&[logits, labels])
            .build_all()?;
        let all = m.scope.constant(&Tensor::vector(&[0i32])?)?;
        m.named("loss", "Mean", &[losses[0], all])?;
        let labels = m.scope.op("Cast").input(labels).attr("DstT", DType::Int64).build()?;
        let is_right = m.scope.add("Equal", &[class, labels])?;
        let is_right = m.scope.op("Cast").input(is_right).attr("DstT", DType::Float).build()?;
        m.named("accuracy", "Mean", &[is_right, all])?;

        // The gradients, by hand: the graph can be as long as one likes.
        let d_logits = losses[1];
        let d_hidden = m.product(d_logits, w2.value, false, true)?;
        let d_sums = m.scope.add("ReluGrad", &[d_hidden, sums])?;
        let d_w2 = m.product(hidden, d_logits, true, false)?;
        let d_b2 = m.scope.add("BiasAddGrad", &[d_logits])?;
        let d_w1 = m.product(x, d_sums, true, false)?;
        let d_b1 = m.scope.add("BiasAddGrad", &[d_sums])?;
        let rate = m.scope.constant(&Tensor::scalar(LEARNING_RATE / POINTS as f32))?;
        let mut updates = Vec::new();
        for (variable, gradient) in [(w1, d_w1), (b1, d_b1), (w2, d_w2), (b2, d_b2)] {
            let step = m.scope.add("Mul", &[gradient, rate])?;
            let update =
                m.scope.op("AssignSubVariableOp").inputs(&[variable.handle, step]).build_node()?;
            updates.push(update);
        }
        m.scope.op("NoOp").name("train").after(&updates).build_node()?;
        m.scope.op("NoOp").name("init").after(&m.inits).build_node()?;
        Ok(())
    }

    fn placeholder(&mut self, name: &str, dtype: DType, shape: &PartialShape) -> Result<Output> {
        self.scope.op("Placeholder").name(name).attr("dtype", dtype).attr("shape", shape).build()
    }

    fn named(&mut self, name: &str, op: &str, inputs: &[Output]) -> Result<Output> {
        self.scope.op(op).name(name).inputs(inputs).build()
    }

    fn product(
        &mut self,
        a: Output,
        b: Output,
        transpose_a: bool,
        transpose_b: bool,
    ) -> Result<Output> {
        let product = self.scope.op("MatMul").inputs(&[a, b]);
        product.attr("transpose_a", transpose_a).attr("transpose_b", transpose_b).build()
    }

    /// A variable that `init` fills with random numbers, seeded, so that every run is the same.
    fn variable(&mut self, name: &str, dims: &[usize]) -> Result<Variable> {
        let shape = PartialShape::from(&Shape::new(dims)?);
        let mut scope = self.scope.child(name);
        let handle = scope
            .op("VarHandleOp")
            .name("handle")
            .attr("dtype", DType::Float)
            .attr("shape", &shape)
            .attr("shared_name", name)
            .build()?;
        let sizes: Vec<i32> = dims.iter().map(|&d| d as i32).collect();
        let sizes = scope.constant(&Tensor::vector(&sizes)?)?;
        let normal = scope
            .op("RandomStandardNormal")
            .input(sizes)
            .attr("dtype", DType::Float)
            .attr("seed", self.inits.len() as i64 + 1)
            .build()?;
        let scale = scope.constant(&Tensor::scalar(0.5f32))?;
        let start = scope.add("Mul", &[normal, scale])?;
        self.inits.push(scope.op("AssignVariableOp").inputs(&[handle, start]).build_node()?);
        let value = scope.op("ReadVariableOp").input(handle).attr("dtype", DType::Float).build()?;
        Ok(Variable { handle, value })
    }
}

#[derive(Clone, Copy)]
struct Variable {
    handle: Output,
    value: Output,
}
