//! Calls, branches and loops that are part of a region's program.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;

use thalweg_accel::Accelerator;
use thalweg_graph::{AttrValue, Attrs, GradientOptions, Graph, IntoAttr, Output, Scope, gradients};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, PartialShape, Result, Shape, Tensor};

fn scope() -> Scope {
    Scope::new(op_registry(FAMILIES).unwrap())
}

fn session(s: &Scope, accelerator: &Arc<Accelerator>) -> Session {
    let options = support::options(accelerator);
    Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap()
}

fn cpu_session(s: &Scope) -> Session {
    Session::new(s.to_graph(), kernel_registry(FAMILIES), SessionOptions::default()).unwrap()
}

fn placeholder(s: &mut Scope, name: &str, dtype: DType) -> Output {
    s.op("Placeholder").name(name).attr("dtype", dtype).build().unwrap()
}

fn named(s: &mut Scope, name: &str, value: Output) {
    s.op("Identity").name(name).input(value).build().unwrap();
}

fn int(s: &mut Scope, x: i32) -> Result<Output> {
    s.constant(&Tensor::scalar(x))
}

fn float(s: &mut Scope, x: f32) -> Result<Output> {
    s.constant(&Tensor::scalar(x))
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.as_slice::<f32>().unwrap().to_vec()
}

/// A handle of a variable of 32-bit floats.
fn variable(s: &mut Scope, name: &str, shape: &[usize]) -> Output {
    let op = s.op("VarHandleOp").name(name).attr("dtype", DType::Float);
    let op = op.attr("shared_name", name).attr("shape", &Shape::new(shape).unwrap());
    op.build().unwrap()
}

fn read(s: &mut Scope, handle: Output) -> Result<Output> {
    s.op("ReadVariableOp").input(handle).attr("dtype", DType::Float).build()
}

/// Runs `body` while a counter is less than `limit`; the other variables at the end.
fn counted(
    s: &mut Scope,
    limit: Output,
    init: &[Output],
    mut body: impl FnMut(&mut Scope, &[Output]) -> Result<Vec<Output>>,
) -> Vec<Output> {
    let zero = int(s, 0).unwrap();
    let all: Vec<Output> = std::iter::once(zero).chain(init.iter().copied()).collect();
    let ends = s.while_loop(
        &all,
        |s, vars| s.add("Less", &[vars[0], limit]),
        |s, vars| {
            let one = int(s, 1)?;
            let next = s.add("AddV2", &[vars[0], one])?;
            Ok(std::iter::once(next).chain(body(s, &vars[1..])?).collect())
        },
    );
    ends.unwrap()[1..].to_vec()
}

#[test]
fn a_loop_is_one_execution() {
    let Some(accelerator) = support::accelerator("a_loop_is_one_execution") else { return };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let limit = placeholder(&mut s, "limit", DType::Int32);
    let doubled = s.add("AddV2", &[x, x]).unwrap();
    let ends = counted(&mut s, limit, &[doubled], |s, v| Ok(vec![s.add("AddV2", &[v[0], x])?]));
    let end = s.add("Neg", &[ends[0]]).unwrap();
    named(&mut s, "end", end);
    let session = session(&s, &accelerator);
    let before = accelerator.counts();
    for limit in [100i32, 0, -3, 1000] {
        let fed = Tensor::vector(&[1f32, 0.5]).unwrap();
        let feeds = [("x:0", fed), ("limit:0", Tensor::scalar(limit))];
        let got = session.run(&feeds, &["end:0"], &[]).unwrap();
        let turns = limit.max(0) as f32 + 2.0;
        assert_eq!(floats(&got[0]), [-turns, -0.5 * turns]);
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 4));
}

#[test]
fn branches_are_part_of_the_program() {
    let Some(accelerator) = support::accelerator("branches_are_part_of_the_program") else {
        return;
    };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let index = placeholder(&mut s, "index", DType::Int32);
    let zero = float(&mut s, 0.0).unwrap();
    let is_positive = s.add("Greater", &[x, zero]).unwrap();
    let y = s
        .cond(
            is_positive,
            |s| Ok(vec![s.add("Mul", &[x, x])?, float(s, 5.0)?]),
            |s| Ok(vec![s.add("Neg", &[x])?, float(s, 5.0)?]),
        )
        .unwrap();
    let y0 = y[0];
    let branch = |factor: f32| -> thalweg_graph::Branch<'_> {
        Box::new(move |s: &mut Scope| {
            let factor = float(s, factor)?;
            Ok(vec![s.add("Mul", &[y0, factor])?])
        })
    };
    let z = s.case(index, vec![branch(1.0), branch(10.0), branch(100.0)]).unwrap();
    let sum = s.add("AddV2", &[z[0], y[1]]).unwrap();
    named(&mut s, "sum", sum);
    let session = session(&s, &accelerator);
    let before = accelerator.counts();
    for (x, index, want) in [
        (3.0f32, 0i32, 14.0f32),
        (-3.0, 1, 35.0),
        (2.0, 2, 405.0),
        (2.0, 7, 405.0),
        (2.0, -1, 405.0),
    ] {
        let feeds = [("x:0", Tensor::scalar(x)), ("index:0", Tensor::scalar(index))];
        assert_eq!(floats(&session.run(&feeds, &["sum:0"], &[]).unwrap()[0]), [want]);
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 5));
}

/// Branches within a loop, and a function that is called in both.
#[test]
fn functions_are_nested() {
    let Some(accelerator) = support::accelerator("functions_are_nested") else { return };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let limit = int(&mut s, 10).unwrap();
    // Collatz: halve what is even, else three times and one more.
    let ends = counted(&mut s, limit, &[x], |s, v| {
        let two = float(s, 2.0)?;
        let rest = s.add("FloorMod", &[v[0], two])?;
        let zero = float(s, 0.0)?;
        let is_even = s.add("Equal", &[rest, zero])?;
        s.cond(
            is_even,
            |s| Ok(vec![s.add("RealDiv", &[v[0], two])?]),
            |s| {
                let one = float(s, 1.0)?;
                let two = int(s, 2)?;
                let inner =
                    counted(s, two, &[v[0]], |s, w| Ok(vec![s.add("AddV2", &[w[0], v[0]])?]));
                Ok(vec![s.add("AddV2", &[inner[0], one])?])
            },
        )
    });
    named(&mut s, "end", ends[0]);
    let there = session(&s, &accelerator);
    let before = accelerator.counts();
    for (x, want) in [(7.0f32, 10.0f32), (27.0, 214.0)] {
        let got = there.run(&[("x:0", Tensor::scalar(x))], &["end:0"], &[]).unwrap();
        assert_eq!(floats(&got[0]), [want]);
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 2));
}

#[test]
fn variables_are_assigned_in_loops_and_branches() {
    let Some(accelerator) = support::accelerator("variables_are_assigned_in_loops") else { return };
    let mut s = scope();
    let (v, w) = (variable(&mut s, "v", &[2]), variable(&mut s, "w", &[2]));
    let x = placeholder(&mut s, "x", DType::Float);
    let assign = |s: &mut Scope, name: &str, handle: Output| {
        s.op("AssignVariableOp").name(name).inputs(&[handle, x]).build_node().unwrap();
    };
    assign(&mut s, "init_v", v);
    assign(&mut s, "init_w", w);
    let limit = placeholder(&mut s, "limit", DType::Int32);
    let zero = float(&mut s, 0.0).unwrap();
    let ends = counted(&mut s, limit, &[zero], |s, totals| {
        let w = read(s, w)?;
        let add = s.op("AssignAddVariableOp").inputs(&[v, w]).attr("dtype", DType::Float);
        let add = add.build_node()?;
        let mut after = s.after(&[add]);
        let now = read(&mut after, v)?;
        let axes = s.constant(&Tensor::vector(&[0i32])?)?;
        let sum = s.add("Sum", &[now, axes])?;
        Ok(vec![s.add("AddV2", &[totals[0], sum])?])
    });
    named(&mut s, "total", ends[0]);
    let is_large = placeholder(&mut s, "is_large", DType::Bool);
    let changed = s
        .cond(
            is_large,
            |s| {
                let old = read(s, w)?;
                let twice = s.add("AddV2", &[old, old])?;
                let op = s.op("AssignVariableOp").inputs(&[w, twice]);
                let assigned = op.attr("dtype", DType::Float).build_node()?;
                Ok(vec![read(&mut s.after(&[assigned]), w)?])
            },
            |s| Ok(vec![read(s, w)?]),
        )
        .unwrap();
    named(&mut s, "changed", changed[0]);
    for (name, handle) in [("read_v", v), ("read_w", w)] {
        let op = s.op("ReadVariableOp").name(name).input(handle).attr("dtype", DType::Float);
        op.build().unwrap();
    }
    let there = session(&s, &accelerator);
    let fed = || [("x:0", Tensor::vector(&[1f32, 2.0]).unwrap())];
    // A variable that has no value yet cannot be a value of the program: the loop runs in parts.
    let e = there.run(&[("limit:0", Tensor::scalar(1i32))], &["total:0"], &[]).unwrap_err();
    assert!(matches!(e.code(), Code::FailedPrecondition | Code::NotFound), "{e}");
    there.run(&fed(), &[], &["init_v", "init_w"]).unwrap();
    let before = accelerator.counts();
    let got = there.run(&[("limit:0", Tensor::scalar(3i32))], &["total:0"], &[]).unwrap();
    assert_eq!(floats(&got[0]), [6.0 + 9.0 + 12.0]);
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
    let read = |name: &str| floats(&there.run(&[], &[name], &[]).unwrap()[0]);
    assert_eq!((read("read_v:0"), read("read_w:0")), (vec![4.0, 8.0], vec![1.0, 2.0]));
    let before = accelerator.counts();
    for (is_large, want) in [(true, [2f32, 4.0]), (false, [2.0, 4.0]), (true, [4.0, 8.0])] {
        let got = there.run(&[("is_large:0", Tensor::scalar(is_large))], &["changed:0"], &[]);
        assert_eq!(floats(&got.unwrap()[0]), want);
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 3));
    assert_eq!(read("read_w:0"), [4.0, 8.0]);
    // A loop without iterations leaves the variable as it is.
    there.run(&[("limit:0", Tensor::scalar(0i32))], &["total:0"], &[]).unwrap();
    assert_eq!(read("read_v:0"), [4.0, 8.0]);
}

/// A shape that is an argument of a function is known when the program is compiled.
#[test]
fn known_values_pass_through_functions() {
    let Some(accelerator) = support::accelerator("known_values_pass_through_functions") else {
        return;
    };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let shape_of = placeholder(&mut s, "like", DType::Float);
    let shape = s.op("Shape").input(shape_of).build().unwrap();
    let zero = float(&mut s, 0.0).unwrap();
    let axes = s.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
    let sum = s.add("Sum", &[x, axes]).unwrap();
    let is_positive = s.add("Greater", &[sum, zero]).unwrap();
    let limit = int(&mut s, 3).unwrap();
    let y = s
        .cond(
            is_positive,
            |s| Ok(vec![s.add("Reshape", &[x, shape])?]),
            |s| {
                let filled = s.add("Fill", &[shape, zero])?;
                Ok(counted(s, limit, &[filled], |s, v| {
                    let again = s.add("Reshape", &[v[0], shape])?;
                    let one = float(s, 1.0)?;
                    Ok(vec![s.add("AddV2", &[again, one])?])
                }))
            },
        )
        .unwrap();
    named(&mut s, "y", y[0]);
    let there = session(&s, &accelerator);
    let before = accelerator.counts();
    let like = Tensor::zeros(DType::Float, Shape::new(&[2, 2]).unwrap()).unwrap();
    for (sign, want) in [(1f32, [1f32, 2.0, 3.0, 4.0]), (-1.0, [3.0; 4])] {
        let x = Tensor::vector(&[sign, 2.0 * sign, 3.0 * sign, 4.0 * sign]).unwrap();
        let got = there.run(&[("x:0", x), ("like:0", like.clone())], &["y:0"], &[]).unwrap();
        assert_eq!((got[0].shape().dims(), floats(&got[0])), (&[2, 2][..], want.to_vec()));
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 2));
}

/// What does not fit into one program runs in parts: branches of several shapes, a variable of a loop that
/// grows, a variable that a branch is the first to assign.
#[test]
fn what_cannot_be_compiled_runs_in_parts() {
    let Some(accelerator) = support::accelerator("what_cannot_be_compiled_runs_in_parts") else {
        return;
    };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let condition = placeholder(&mut s, "condition", DType::Bool);
    let axis = int(&mut s, 0).unwrap();
    let twice = |s: &mut Scope, x: Output| s.op("ConcatV2").inputs(&[x, x, axis]).build();
    let y = s.cond(condition, |s| Ok(vec![twice(s, x)?]), |_| Ok(vec![x])).unwrap();
    let sum = s.add("AddV2", &[y[0], y[0]]).unwrap();
    named(&mut s, "branches", sum);
    let limit = placeholder(&mut s, "limit", DType::Int32);
    let ends = counted(&mut s, limit, &[x], |s, v| Ok(vec![twice(s, v[0])?]));
    let negated = s.add("Neg", &[ends[0]]).unwrap();
    named(&mut s, "grown", negated);
    let v = variable(&mut s, "v", &[2]);
    let first = s
        .cond(
            condition,
            |s| {
                let op = s.op("AssignVariableOp").inputs(&[v, x]).attr("dtype", DType::Float);
                let assigned = op.build_node()?;
                Ok(vec![read(&mut s.after(&[assigned]), v)?])
            },
            |s| float(s, 0.0).map(|zero| vec![zero]),
        )
        .unwrap();
    named(&mut s, "first", first[0]);
    let there = session(&s, &accelerator);
    let fed = || Tensor::vector(&[1f32, 2.0]).unwrap();
    for (condition, want) in [(true, vec![2f32, 4.0, 2.0, 4.0]), (false, vec![2.0, 4.0])] {
        let feeds = [("x:0", fed()), ("condition:0", Tensor::scalar(condition))];
        assert_eq!(floats(&there.run(&feeds, &["branches:0"], &[]).unwrap()[0]), want);
    }
    let feeds = [("x:0", fed()), ("limit:0", Tensor::scalar(2i32))];
    let got = there.run(&feeds, &["grown:0"], &[]).unwrap();
    assert_eq!(floats(&got[0]), [-1.0, -2.0].repeat(4));
    let feeds = [("x:0", fed()), ("condition:0", Tensor::scalar(false))];
    assert_eq!(floats(&there.run(&feeds, &["first:0"], &[]).unwrap()[0]), [0.0]);
    for _ in 0..2 {
        let feeds = [("x:0", fed()), ("condition:0", Tensor::scalar(true))];
        assert_eq!(floats(&there.run(&feeds, &["first:0"], &[]).unwrap()[0]), [1.0, 2.0]);
    }
}

/// A mistake in a branch that does not run is none.
#[test]
fn mistakes_count_where_they_run() {
    let Some(accelerator) = support::accelerator("mistakes_count_where_they_run") else { return };
    let mut s = scope();
    let (x, y) = (placeholder(&mut s, "x", DType::Float), placeholder(&mut s, "y", DType::Float));
    let condition = placeholder(&mut s, "condition", DType::Bool);
    let z = s
        .cond(
            condition,
            |s| Ok(vec![s.op("MatMul").name("wrong").inputs(&[x, y]).build()?]),
            |s| Ok(vec![s.add("Neg", &[x])?]),
        )
        .unwrap();
    named(&mut s, "z", z[0]);
    let there = session(&s, &accelerator);
    let matrix = || Tensor::zeros(DType::Float, Shape::new(&[2, 3]).unwrap()).unwrap();
    let feeds = |condition: bool| {
        [("x:0", matrix()), ("y:0", matrix()), ("condition:0", Tensor::scalar(condition))]
    };
    there.run(&feeds(false), &["z:0"], &[]).unwrap();
    let e = there.run(&feeds(true), &["z:0"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::InvalidArgument, "{e}");
    assert!(e.to_string().contains("wrong"), "{e}");
    there.run(&feeds(false), &["z:0"], &[]).unwrap();
}

#[test]
fn gradients_agree_with_the_cpu() {
    let Some(accelerator) = support::accelerator("gradients_agree_with_the_cpu") else { return };
    let mut s = scope();
    let shape = PartialShape::from(&Shape::new(&[3]).unwrap());
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).attr("shape", &shape);
    let x = x.build().unwrap();
    let limit = int(&mut s, 5).unwrap();
    let ends = counted(&mut s, limit, &[x], |s, v| {
        let sine = s.add("Sin", &[v[0]])?;
        Ok(vec![s.add("Mul", &[sine, x])?])
    });
    let axes = s.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
    let total = s.add("Sum", &[ends[0], axes]).unwrap();
    let zero = float(&mut s, 0.0).unwrap();
    let is_positive = s.add("Greater", &[total, zero]).unwrap();
    let y = s
        .cond(
            is_positive,
            |s| Ok(vec![s.add("Mul", &[total, total])?]),
            |s| Ok(vec![s.add("Exp", &[total])?]),
        )
        .unwrap();
    let adjoints = gradients(&mut s, &[y[0]], &[x], &GradientOptions::default()).unwrap();
    let adjoint = adjoints.into_iter().next().unwrap().to_dense(&mut s).unwrap();
    named(&mut s, "y", y[0]);
    named(&mut s, "dx", adjoint);
    let (there, here) = (session(&s, &accelerator), cpu_session(&s));
    let before = accelerator.counts();
    for x in [[0.5f32, 1.5, -2.0], [-0.3, 2.5, 1.0], [-1.0, -1.0, 0.25]] {
        let feeds = [("x:0", Tensor::vector(&x).unwrap())];
        let got = there.run(&feeds, &["y:0", "dx:0"], &[]).unwrap();
        let want = here.run(&feeds, &["y:0", "dx:0"], &[]).unwrap();
        for (got, want) in got.iter().zip(&want) {
            for (got, want) in floats(got).iter().zip(floats(want)) {
                assert!((got - want).abs() <= 1e-4 * want.abs().max(1.0), "{got} vs. {want}");
            }
        }
    }
    // Both loops, the lists between them and both branches are one program.
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 3));
}

/// Lists of known size: rows that a loop takes and makes, states that it stacks, and their gradients.
#[test]
fn lists_are_part_of_the_program() {
    let Some(accelerator) = support::accelerator("lists_are_part_of_the_program") else { return };
    let mut s = scope();
    let shape = PartialShape::from(&Shape::new(&[4, 3]).unwrap());
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).attr("shape", &shape);
    let x = x.build().unwrap();
    let squares = s.map_fn(&[x], |s, row| Ok(vec![s.add("Mul", &[row[0], row[0]])?])).unwrap();
    let start = s.constant(&Tensor::vector(&[1f32, 0.5, 0.25]).unwrap()).unwrap();
    let sums = s.scan(&[squares[0]], &[start], |s, state, row| {
        let sine = s.add("Sin", &[state[0]])?;
        Ok(vec![s.add("AddV2", &[sine, row[0]])?])
    });
    let sums = sums.unwrap();
    let axes = s.constant(&Tensor::vector(&[0i32, 1]).unwrap()).unwrap();
    let total = s.add("Sum", &[sums[0], axes]).unwrap();
    let adjoints = gradients(&mut s, &[total], &[x], &GradientOptions::default()).unwrap();
    let adjoint = adjoints.into_iter().next().unwrap().to_dense(&mut s).unwrap();
    named(&mut s, "sums", sums[0]);
    named(&mut s, "dx", adjoint);
    let (there, here) = (session(&s, &accelerator), cpu_session(&s));
    for (fetches, turns) in [(&["sums:0"][..], 2), (&["sums:0", "dx:0"], 2)] {
        let before = accelerator.counts();
        for turn in 0..turns {
            let x: Vec<f32> = (0..12).map(|i| (i as f32 - 5.0 + turn as f32) / 7.0).collect();
            let x = Tensor::from_slice(Shape::new(&[4, 3]).unwrap(), &x).unwrap();
            let got = there.run(&[("x:0", x.clone())], fetches, &[]).unwrap();
            let want = here.run(&[("x:0", x)], fetches, &[]).unwrap();
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(got.shape(), want.shape());
                for (got, want) in floats(got).iter().zip(floats(want)) {
                    assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{got} vs. {want}");
                }
            }
        }
        let after = accelerator.counts();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, turns), "{fetches:?}");
    }
}

/// A list whose length depends on values stays on the host.
#[test]
fn lists_of_unknown_length_run_in_parts() {
    let Some(accelerator) = support::accelerator("lists_of_unknown_length_run_in_parts") else {
        return;
    };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let scalar = s.constant(&Tensor::vector::<i32>(&[]).unwrap()).unwrap();
    let any = int(&mut s, -1).unwrap();
    let list = s.op("EmptyTensorList").inputs(&[scalar, any]).attr("element_dtype", DType::Float);
    let list = list.build().unwrap();
    let limit = float(&mut s, 100.0).unwrap();
    let ends = s.while_loop(
        &[x, list],
        |s, v| s.add("Less", &[v[0], limit]),
        |s, v| {
            let pushed = s.add("TensorListPushBack", &[v[1], v[0]])?;
            Ok(vec![s.add("AddV2", &[v[0], v[0]])?, pushed])
        },
    );
    let ends = ends.unwrap();
    let stack = s.op("TensorListStack").inputs(&[ends[1], scalar]);
    let stack = stack.attr("element_dtype", DType::Float).build().unwrap();
    let doubled = s.add("AddV2", &[stack, stack]).unwrap();
    named(&mut s, "doubled", doubled);
    let there = session(&s, &accelerator);
    for (x, count) in [(20f32, 3), (1.0, 7), (200.0, 0)] {
        let got = there.run(&[("x:0", Tensor::scalar(x))], &["doubled:0"], &[]).unwrap();
        let want: Vec<f32> = (0..count).map(|i| 2.0 * x * f32::powi(2.0, i)).collect();
        assert_eq!(floats(&got[0]), want);
    }
}

/// A function that calls itself is refused as on the CPU.
#[test]
fn recursive_functions_are_refused() {
    let Some(accelerator) = support::accelerator("recursive_functions_are_refused") else { return };
    let mut s = scope();
    let x = placeholder(&mut s, "x", DType::Float);
    let zero = float(&mut s, 0.0).unwrap();
    let is_positive = s.add("Greater", &[x, zero]).unwrap();
    let y =
        s.cond(is_positive, |s| Ok(vec![s.add("Neg", &[x])?]), |s| Ok(vec![s.add("Abs", &[x])?]));
    named(&mut s, "y", y.unwrap()[0]);
    let mut def = s.to_graph().to_def();
    // The node of the first branch becomes a call of the branch.
    let library = def.library.as_mut().unwrap();
    let function = library.function.iter_mut().find(|f| f.node_def.iter().any(|n| n.op == "Neg"));
    let function = function.unwrap();
    let name = function.signature.as_ref().unwrap().name.clone();
    let node = function.node_def.iter_mut().find(|n| n.op == "Neg").unwrap();
    node.op = "PartitionedCall".into();
    node.attr.clear();
    for attr in ["Tin", "Tout"] {
        node.attr.insert(attr.into(), (&[DType::Float][..]).into_attr().to_proto());
    }
    node.attr.insert("f".into(), AttrValue::function(&name, &Attrs::default()).to_proto());
    for output in function.ret.values_mut() {
        *output = output.replace(":y:", ":output:");
    }
    let graph = Graph::from_def(op_registry(FAMILIES).unwrap(), def).unwrap();
    let options = support::options(&accelerator);
    let there = Session::new(graph, kernel_registry(FAMILIES), options).unwrap();
    let e = there.run(&[("x:0", Tensor::scalar(1f32))], &["y:0"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
    let got = there.run(&[("x:0", Tensor::scalar(-1f32))], &["y:0"], &[]).unwrap();
    assert_eq!(floats(&got[0]), [1.0]);
}

/// A recurrent net that reads rows by their index: its gradient saves the length and shape of a list in lists,
/// which are known because all their elements are equal.
#[test]
fn elements_that_are_equal_are_known() {
    let Some(accelerator) = support::accelerator("elements_that_are_equal_are_known") else {
        return;
    };
    let mut s = scope();
    let shape = PartialShape::from(&Shape::new(&[4, 3]).unwrap());
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).attr("shape", &shape);
    let x = x.build().unwrap();
    let row = s.constant(&Tensor::vector(&[3i32]).unwrap()).unwrap();
    let rows = s.add("TensorListFromTensor", &[x, row]).unwrap();
    let (zero, limit) = (int(&mut s, 0).unwrap(), int(&mut s, 4).unwrap());
    let start = s.constant(&Tensor::vector(&[0.5f32, 1.0, -1.0]).unwrap()).unwrap();
    let ends = s.while_loop(
        &[zero, start, rows],
        |s, v| s.add("Less", &[v[0], limit]),
        |s, v| {
            let item = s.op("TensorListGetItem").inputs(&[v[2], v[0], row]);
            let item = item.attr("element_dtype", DType::Float).build()?;
            let sum = s.add("AddV2", &[v[1], item])?;
            let one = int(s, 1)?;
            Ok(vec![s.add("AddV2", &[v[0], one])?, s.add("Tanh", &[sum])?, v[2]])
        },
    );
    let axes = s.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
    let total = s.add("Sum", &[ends.unwrap()[1], axes]).unwrap();
    let adjoints = gradients(&mut s, &[total], &[x], &GradientOptions::default()).unwrap();
    let adjoint = adjoints.into_iter().next().unwrap().to_dense(&mut s).unwrap();
    named(&mut s, "dx", adjoint);
    let (there, here) = (session(&s, &accelerator), cpu_session(&s));
    let before = accelerator.counts();
    let x: Vec<f32> = (0..12).map(|i| (i as f32 - 5.0) / 7.0).collect();
    let x = Tensor::from_slice(Shape::new(&[4, 3]).unwrap(), &x).unwrap();
    let got = there.run(&[("x:0", x.clone())], &["dx:0"], &[]).unwrap();
    let want = here.run(&[("x:0", x)], &["dx:0"], &[]).unwrap();
    for (got, want) in floats(&got[0]).iter().zip(floats(&want[0])) {
        assert!((got - want).abs() <= 1e-5, "{got} vs. {want}");
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1));
}
