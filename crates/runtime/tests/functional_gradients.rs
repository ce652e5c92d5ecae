//! Branches, loops and calls built in Rust, and gradients through them: against slopes measured by
//! small steps, and against what TensorFlow computes for the programs in `functions.jsonl.gz`.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../ops/tests/support/cases.rs"]
mod cases;
mod support;

use support::{options, registries, scope, session};
use thalweg_graph::{
    Adjoint, Branch, Endpoint, GradientOptions, Graph, Output, Scope, TensorName, gradients,
};
use thalweg_kernel::KernelRegistry;
use thalweg_plan::Options;
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, PartialShape, Result, Shape, Tensor};

fn feed(s: &mut Scope, name: &str, shape: &[usize]) -> Output {
    let shape = PartialShape::from(&Shape::new(shape).unwrap());
    let node = s.op("Placeholder").name(name).attr("dtype", DType::Double);
    node.attr("shape", &shape).build().unwrap()
}

fn number(s: &mut Scope, x: f64) -> Result<Output> {
    s.constant(&Tensor::scalar(x))
}

fn int(s: &mut Scope, x: i32) -> Result<Output> {
    s.constant(&Tensor::scalar(x))
}

/// The sum of all elements.
fn total(s: &mut Scope, x: Output) -> Result<Output> {
    let rank = s.add("Rank", &[x])?;
    let (zero, one) = (int(s, 0)?, int(s, 1)?);
    let axes = s.add("Range", &[zero, rank, one])?;
    s.add("Sum", &[x, axes])
}

fn dense(s: &mut Scope, ys: &[Output], xs: &[Output]) -> Vec<Output> {
    let adjoints = gradients(s, ys, xs, &GradientOptions::default()).unwrap();
    adjoints.into_iter().map(|a: Adjoint| a.to_dense(s).unwrap()).collect()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.as_slice::<f64>().unwrap().to_vec()
}

/// Feeds by name, one after the other.
struct Point(Vec<(&'static str, Vec<usize>, Vec<f64>)>);

impl Point {
    fn feeds(&self) -> Vec<(&'static str, Tensor)> {
        let tensor =
            |shape: &[usize], v: &[f64]| Tensor::from_slice(Shape::new(shape).unwrap(), v).unwrap();
        self.0.iter().map(|(name, shape, v)| (*name, tensor(shape, v))).collect()
    }
}

/// Checks the gradient of `y` by `xs` at a point, and the gradient of its square sum.
fn check(mut s: Scope, y: Output, xs: &[Output], mut at: Point) {
    let loss = total(&mut s, y).unwrap();
    let first = dense(&mut s, &[loss], xs);
    let mut squares = Vec::new();
    for &g in &first {
        let square = s.add("Mul", &[g, g]).unwrap();
        squares.push(total(&mut s, square).unwrap());
    }
    let of_squares = s.add("AddN", &squares).unwrap();
    let second = dense(&mut s, &[of_squares], xs);
    let name = |s: &Scope, t: Output| s.name_of(t);
    let names: Vec<Vec<String>> = [(loss, &first), (of_squares, &second)]
        .iter()
        .map(|(y, gs)| {
            std::iter::once(name(&s, *y)).chain(gs.iter().map(|&g| name(&s, g))).collect()
        })
        .collect();
    for (threads, lower) in [(1, false), (3, false), (1, true), (3, true)] {
        let plan = Options { lower, ..Options::default() };
        let options = SessionOptions { plan, ..options(threads) };
        let run = Session::new(s.to_graph(), registries().1, options).unwrap();
        for fetches in &names {
            let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
            slopes(&run, &fetches, &mut at);
        }
    }
}

/// Compares fetched gradients with slopes of the first fetch.
fn slopes(run: &Session, fetches: &[&str], at: &mut Point) {
    const STEP: f64 = 1e-5;
    let out = run.run(&at.feeds(), fetches, &[]).unwrap();
    for (x, gradient) in out[1..].iter().enumerate() {
        for (i, &given) in values(gradient).iter().enumerate() {
            let mut value = |by: f64| {
                at.0[x].2[i] += by;
                let y = run.run(&at.feeds(), &fetches[..1], &[]).unwrap();
                at.0[x].2[i] -= by;
                values(&y[0])[0]
            };
            let slope = (value(STEP) - value(-STEP)) / (2.0 * STEP);
            let tolerance = 1e-5 + 1e-5 * slope.abs();
            assert!((slope - given).abs() < tolerance, "{fetches:?} {x} {i}: {given} vs. {slope}");
        }
    }
}

fn xy() -> Point {
    Point(vec![("x", vec![3], vec![0.3, -0.7, 1.1]), ("y", vec![3], vec![0.9, 0.2, -0.4])])
}

#[test]
fn cond_and_case() {
    for taken in [true, false] {
        let mut s = scope();
        let (x, y) = (feed(&mut s, "x", &[3]), feed(&mut s, "y", &[3]));
        let condition = s.constant(&Tensor::scalar(taken)).unwrap();
        let out = s
            .cond(
                condition,
                |s| {
                    let wave = s.add("Sin", &[x])?;
                    Ok(vec![s.add("Mul", &[wave, y])?, x])
                },
                |s| {
                    let two = number(s, 2.0)?;
                    let e = s.add("Exp", &[x])?;
                    Ok(vec![s.add("Mul", &[e, two])?, s.add("Mul", &[e, x])?])
                },
            )
            .unwrap();
        let product = s.add("Mul", &out).unwrap();
        check(s, product, &[x, y], xy());
    }
    for index in 0..4 {
        let mut s = scope();
        let (x, y) = (feed(&mut s, "x", &[3]), feed(&mut s, "y", &[3]));
        let at = int(&mut s, index).unwrap();
        let branches: Vec<Branch<'_>> = vec![
            Box::new(|s| Ok(vec![s.add("Mul", &[x, x])?])),
            Box::new(|_| Ok(vec![y])),
            Box::new(|s| {
                let product = s.add("Mul", &[x, y])?;
                Ok(vec![s.add("Tanh", &[product])?])
            }),
        ];
        let out = s.case(at, branches).unwrap();
        let product = s.add("Mul", &[out[0], x]).unwrap();
        check(s, product, &[x, y], xy());
    }
}

/// Five times `v = tanh(v * y) + x`.
fn recurrence(s: &mut Scope, x: Output, y: Output) -> Result<Vec<Output>> {
    let (zero, five) = (int(s, 0)?, int(s, 5)?);
    s.while_loop(
        &[zero, x],
        |s, vars| s.add("Less", &[vars[0], five]),
        |s, vars| {
            let one = int(s, 1)?;
            let product = s.add("Mul", &[vars[1], y])?;
            let bent = s.add("Tanh", &[product])?;
            Ok(vec![s.add("AddV2", &[vars[0], one])?, s.add("AddV2", &[bent, x])?])
        },
    )
}

#[test]
fn loops() {
    let mut s = scope();
    let (x, y) = (feed(&mut s, "x", &[3]), feed(&mut s, "y", &[3]));
    let out = recurrence(&mut s, x, y).unwrap();
    check(s, out[1], &[x, y], xy());
}

/// The variable gets shorter with each iteration, the way out depends on values.
#[test]
fn loops_that_change_shapes() {
    let mut s = scope();
    let x = feed(&mut s, "x", &[5]);
    let two = int(&mut s, 2).unwrap();
    let out = s
        .while_loop(
            &[x],
            |s, vars| {
                let size = s.add("Size", &[vars[0]])?;
                s.add("Greater", &[size, two])
            },
            |s, vars| {
                let ones = s.constant(&Tensor::vector(&[1i32])?)?;
                let rest = s.constant(&Tensor::vector(&[-1i32])?)?;
                let tail = s.add("Slice", &[vars[0], ones, rest])?;
                let sine = s.add("Sin", &[tail])?;
                Ok(vec![s.add("Mul", &[sine, tail])?])
            },
        )
        .unwrap();
    assert_eq!(s.with_graph(|g| g.output(out[0]).shape.to_string()), "[?]");
    check(s, out[0], &[x], Point(vec![("x", vec![5], vec![0.3, -0.7, 1.1, 0.8, -1.3])]));
}

#[test]
fn loops_within_branches_within_loops() {
    let mut s = scope();
    let (x, y) = (feed(&mut s, "x", &[3]), feed(&mut s, "y", &[3]));
    let (zero, three) = (int(&mut s, 0).unwrap(), int(&mut s, 3).unwrap());
    let out = s
        .while_loop(
            &[zero, x],
            |s, vars| s.add("Less", &[vars[0], three]),
            |s, vars| {
                let (one, v) = (int(s, 1)?, vars[1]);
                let is_second = s.add("Equal", &[vars[0], one])?;
                let next = s.cond(
                    is_second,
                    |s| Ok(vec![recurrence(s, v, y)?[1]]),
                    |s| Ok(vec![s.add("Mul", &[v, y])?]),
                )?;
                Ok(vec![s.add("AddV2", &[vars[0], one])?, next[0]])
            },
        )
        .unwrap();
    check(s, out[1], &[x, y], xy());
}

#[test]
fn rows() {
    let point = || {
        let rows = vec![0.3, -0.7, 1.1, 0.8, -1.3, 0.2, 0.5, 0.6];
        Point(vec![("rows", vec![4, 2], rows), ("w", vec![2], vec![0.4, -0.9])])
    };
    let step = |s: &mut Scope, h: &[Output], row: &[Output], w: Output| {
        let scaled = s.add("Mul", &[h[0], w])?;
        let sum = s.add("AddV2", &[scaled, row[0]])?;
        Ok(vec![s.add("Tanh", &[sum])?])
    };
    let begin = |s: &mut Scope| s.constant(&Tensor::vector(&[0.1f64, 0.2]).unwrap()).unwrap();

    let mut s = scope();
    let (x, w) = (feed(&mut s, "rows", &[4, 2]), feed(&mut s, "w", &[2]));
    let h = begin(&mut s);
    let out = s.foldl(&[x], &[h], |s, h, row| step(s, h, row, w)).unwrap();
    check(s, out[0], &[x, w], point());

    let mut s = scope();
    let (x, w) = (feed(&mut s, "rows", &[4, 2]), feed(&mut s, "w", &[2]));
    let h = begin(&mut s);
    let out = s.scan(&[x], &[h], |s, h, row| step(s, h, row, w)).unwrap();
    assert_eq!(s.with_graph(|g| g.output(out[0]).shape.to_string()), "[4,2]");
    check(s, out[0], &[x, w], point());

    let mut s = scope();
    let (x, w) = (feed(&mut s, "rows", &[4, 2]), feed(&mut s, "w", &[2]));
    let out = s
        .map_fn(&[x], |s, row| {
            let product = s.add("Mul", &[row[0], w])?;
            Ok(vec![s.add("Sin", &[product])?])
        })
        .unwrap();
    check(s, out[0], &[x, w], point());
}

/// Three times, and backwards; and not at all, with a step of zero.
#[test]
fn counted_loops() {
    for (start, limit, delta) in [(1, 6, 2), (3, 0, -1), (2, 2, 0)] {
        let int = |name: &str, value: i32| {
            format!(
                r#"node {{ name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }}
                   attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{}} int_val: {value} }} }} }} }} "#
            )
        };
        let text = r#"
            library { function { signature { name: "turn" input_arg { name: "i" type: DT_INT32 }
                input_arg { name: "x" type: DT_DOUBLE } input_arg { name: "w" type: DT_DOUBLE }
                output_arg { name: "y" type: DT_DOUBLE } output_arg { name: "v" type: DT_DOUBLE } }
              node_def { name: "c" op: "Cast" input: "i" attr { key: "SrcT" value { type: DT_INT32 } } attr { key: "DstT" value { type: DT_DOUBLE } } }
              node_def { name: "m" op: "Mul" input: "x" input: "w" attr { key: "T" value { type: DT_DOUBLE } } }
              node_def { name: "s" op: "Sin" input: "m:z:0" attr { key: "T" value { type: DT_DOUBLE } } }
              node_def { name: "a" op: "Mul" input: "s:y:0" input: "c:y:0" attr { key: "T" value { type: DT_DOUBLE } } }
              ret { key: "y" value: "a:z:0" } ret { key: "v" value: "w" } } }
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_DOUBLE } } attr { key: "shape" value { shape { dim { size: 3 } } } } }
            node { name: "y" op: "Placeholder" attr { key: "dtype" value { type: DT_DOUBLE } } attr { key: "shape" value { shape { dim { size: 3 } } } } }
            node { name: "for" op: "For" input: "start" input: "limit" input: "delta" input: "x" input: "y"
              attr { key: "T" value { list { type: DT_DOUBLE type: DT_DOUBLE } } } attr { key: "body" value { func { name: "turn" } } } } "#
            .to_owned()
            + &int("start", start)
            + &int("limit", limit)
            + &int("delta", delta);
        let def = thalweg_proto::text::decode("tensorflow.GraphDef", &text).unwrap();
        let graph = Graph::from_def(registries().0, def).unwrap();
        let end = |name: &str| Endpoint { node: graph.find(name).unwrap(), index: 0 };
        let (x, w, y) = (end("x"), end("y"), end("for"));
        let mut s = Scope::of(graph);
        let y = s.add("Square", &[y]).unwrap();
        check(s, y, &[x, w], xy());
    }
}

#[test]
fn mistakes_fail_on_the_line_that_makes_them() {
    let mut s = scope();
    let x = feed(&mut s, "x", &[3]);
    let condition = s.constant(&Tensor::scalar(true)).unwrap();
    let nodes = s.with_graph(Graph::len);
    let e = s.cond(condition, |_| Ok(vec![x]), |s| Ok(vec![int(s, 1)?])).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    let e = s.while_loop(&[x], |_, _| Ok(condition), |_, _| Ok(vec![])).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    let e = s.cond(condition, |s| Ok(vec![s.add("Nonsense", &[x])?]), |_| Ok(vec![x]));
    assert_eq!(e.unwrap_err().code(), Code::NotFound);
    // What was begun is gone.
    assert_eq!(s.with_graph(Graph::len), nodes);
}

/// A function that calls itself has no gradient that ends.
#[test]
fn recursion_is_refused() {
    let text = r#"
        library { function { signature { name: "f" input_arg { name: "x" type: DT_DOUBLE } output_arg { name: "y" type: DT_DOUBLE } }
          node_def { name: "again" op: "f" input: "x" } ret { key: "y" value: "again:y:0" } } }
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_DOUBLE } } }
        node { name: "y" op: "f" input: "x" }"#;
    let def = thalweg_proto::text::decode("tensorflow.GraphDef", text).unwrap();
    let graph = Graph::from_def(registries().0, def).unwrap();
    let end = |name: &str| Endpoint { node: graph.find(name).unwrap(), index: 0 };
    let (x, y) = (end("x"), end("y"));
    let e = gradients(&mut Scope::of(graph), &[y], &[x], &GradientOptions::default()).unwrap_err();
    assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
}

/// Programs that TensorFlow traced: our gradient of its graph gives its numbers.
#[test]
fn programs_of_tensorflow() {
    let (ops, kernels) = registries();
    let mut played = 0;
    for case in
        cases::cases().iter().filter(|c| c["id"].as_str().unwrap().starts_with("functions/"))
    {
        let xs = cases::strings(&case["wrt"]);
        if xs.is_empty() || !can_run(case, &kernels) {
            continue;
        }
        let graph = Graph::from_def(ops.clone(), cases::graph_of(case)).unwrap();
        let end = |name: &String| {
            let name = TensorName::parse(name).unwrap();
            Endpoint { node: graph.find(name.node).unwrap(), index: name.index }
        };
        let step = &case["steps"][0];
        let y = end(&cases::strings(&step["fetch"])[0]);
        let xs: Vec<Output> = xs.iter().map(end).collect();
        let mut s = Scope::of(graph);
        let ours = dense(&mut s, &[y], &xs);
        let names: Vec<String> = ours.iter().map(|&g| s.name_of(g)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let got = session(s.to_graph(), 2).run(&[], &names, &[]).unwrap();
        let expected: Vec<Tensor> =
            step["expect"].as_array().unwrap()[1..].iter().map(cases::tensor).collect();
        assert_eq!(got.len(), expected.len(), "{}", case["id"]);
        for (got, expected) in got.iter().zip(expected) {
            let (got, expected) =
                (got.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap().to_vec());
            assert_eq!(got.len(), expected.len(), "{}", case["id"]);
            for (a, b) in got.iter().zip(expected) {
                assert!((a - b).abs() < 1e-4 + 1e-4 * b.abs(), "{}: {a} vs. {b}", case["id"]);
            }
        }
        played += 1;
    }
    assert!(played >= PROGRAMS, "{played} programs were played");
}

/// Recorded programs whose ops all have kernels.
const PROGRAMS: usize = 14;

fn can_run(case: &serde_json::Value, kernels: &KernelRegistry) -> bool {
    let runs = |op: &String| {
        let is_interpreted = thalweg_graph::structural::OPS.iter().any(|def| def.name == op);
        is_interpreted || !kernels.for_op(op).is_empty()
    };
    cases::strings(&case["ops"]).iter().all(runs)
}
