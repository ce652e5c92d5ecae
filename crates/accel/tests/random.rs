//! Random ops on an accelerator: the numbers of a CPU's kernels, step by step.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use thalweg_graph::{Output, Scope};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{DType, Shape, Tensor, bf16, f16};

const FLOATS: [DType; 4] = [DType::Half, DType::BFloat16, DType::Float, DType::Double];

fn scope() -> Scope {
    Scope::new(op_registry(FAMILIES).unwrap())
}

fn session(s: &Scope, options: SessionOptions) -> Session {
    Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap()
}

fn ints(s: &mut Scope, values: &[i32]) -> Output {
    s.constant(&Tensor::vector(values).unwrap()).unwrap()
}

/// A node of an op whose seeds are 7 and -11.
fn seeded(s: &mut Scope, op: &str, name: &str, inputs: &[Output], dtype: (&str, DType)) -> Output {
    let op = s.op(op).name(name).inputs(inputs).attr("seed", 7i64).attr("seed2", -11i64);
    op.attr(dtype.0, dtype.1).build().unwrap()
}

/// Elements as doubles.
fn doubles(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::Half => tensor.as_slice::<f16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::BFloat16 => tensor.as_slice::<bf16>().unwrap().iter().map(|x| x.to_f64()).collect(),
        DType::Float => tensor.as_slice::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        DType::Double => tensor.as_slice::<f64>().unwrap().to_vec(),
        other => panic!("{other} is no float"),
    }
}

/// The part of elements that differ, and the greatest difference.
fn difference(a: &Tensor, b: &Tensor) -> (f64, f64) {
    assert_eq!(a.shape(), b.shape());
    let (a, b) = (doubles(a), doubles(b));
    let count = a.iter().zip(&b).filter(|(a, b)| a != b).count();
    let most = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    (count as f64 / a.len() as f64, most)
}

/// One region of random nodes alone, over several steps.
#[test]
fn seeded_numbers_are_those_of_the_cpu() {
    let Some(accelerator) = support::accelerator("seeded_numbers_are_those_of_the_cpu") else {
        return;
    };
    let (mut s, mut exact, mut close) = (scope(), Vec::new(), Vec::new());
    let shape = ints(&mut s, &[59, 17]);
    for dtype in FLOATS {
        for op in ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"] {
            let name = format!("{op}_{dtype:?}");
            seeded(&mut s, op, &name, &[shape], ("dtype", dtype));
            let list = if op == "RandomUniform" { &mut exact } else { &mut close };
            list.push(format!("{name}:0"));
        }
    }
    let low = s.constant(&Tensor::scalar(-3i32)).unwrap();
    let high = s.constant(&Tensor::scalar(i32::MAX)).unwrap();
    seeded(&mut s, "RandomUniformInt", "i32", &[shape, low, high], ("Tout", DType::Int32));
    let low = s.constant(&Tensor::scalar(i64::MIN)).unwrap();
    let high = s.constant(&Tensor::scalar((1i64 << 40) + 17)).unwrap();
    seeded(&mut s, "RandomUniformInt", "i64", &[shape, low, high], ("Tout", DType::Int64));
    let logits: Vec<f32> = (0..91).map(|i| (i as f32).sin() * 3.0).collect();
    let logits = Tensor::from_slice(Shape::new(&[7, 13]).unwrap(), &logits).unwrap();
    let (logits, samples) =
        (s.constant(&logits).unwrap(), s.constant(&Tensor::scalar(103i32)).unwrap());
    let draw = seeded(&mut s, "Multinomial", "draw", &[logits, samples], ("T", DType::Float));
    assert_eq!(draw.index, 0);
    exact.extend(["i32:0", "i64:0", "draw:0"].map(String::from));

    let fetches: Vec<&str> = exact.iter().chain(&close).map(String::as_str).collect();
    let (here, there) =
        (session(&s, SessionOptions::default()), session(&s, support::options(&accelerator)));
    let before = accelerator.counts();
    for step in 0..3 {
        let wanted = here.run(&[], &fetches, &[]).unwrap();
        let got = there.run(&[], &fetches, &[]).unwrap();
        for (i, name) in fetches.iter().enumerate() {
            if i < exact.len() {
                let same = wanted[i].as_bytes().unwrap() == got[i].as_bytes().unwrap();
                assert!(same, "{name} in step {step}");
                continue;
            }
            let (part, most) = difference(&wanted[i], &got[i]);
            // One in a thousand may be rounded to the number beside.
            let (allowed, bound) = match wanted[i].dtype() {
                DType::Half => (2e-3, 2e-3),
                DType::BFloat16 => (2e-3, 1.6e-2),
                DType::Float => (2e-3, 1e-6),
                _ => (1.0, 1e-14),
            };
            assert!(part <= allowed && most < bound, "{name} in step {step}: {part}, {most}");
        }
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (1, 3));
}

/// What is fetched beside a node, and so its region, does not matter to its numbers.
#[test]
fn all_plans_share_a_sequence() {
    let Some(accelerator) = support::accelerator("all_plans_share_a_sequence") else { return };
    let mut s = scope();
    let shape = ints(&mut s, &[5]);
    let a = seeded(&mut s, "RandomUniform", "a", &[shape], ("dtype", DType::Float));
    let b = seeded(&mut s, "RandomUniform", "b", &[shape], ("dtype", DType::Float));
    s.op("AddV2").name("sum").inputs(&[a, b]).build().unwrap();
    let mut cpu = s.on_device(support::CPU);
    cpu.op("Mul").name("product").inputs(&[a, b]).build().unwrap();
    let (here, there) =
        (session(&s, SessionOptions::default()), session(&s, support::options(&accelerator)));
    for fetches in [&["a:0"][..], &["sum:0"], &["b:0", "product:0"], &["a:0"], &["b:0"]] {
        let wanted = here.run(&[], fetches, &[]).unwrap();
        let got = there.run(&[], fetches, &[]).unwrap();
        for (wanted, got) in wanted.iter().zip(&got) {
            assert_eq!(wanted.as_bytes().unwrap(), got.as_bytes().unwrap(), "{fetches:?}");
        }
    }
}

/// A layer with dropout learns the same on both; one program runs each step.
#[test]
fn dropout_trains_as_on_the_cpu() {
    let Some(accelerator) = support::accelerator("dropout_trains_as_on_the_cpu") else { return };
    let mut s = scope();
    let node =
        |s: &mut Scope, op: &str, inputs: &[Output]| s.op(op).inputs(inputs).build().unwrap();
    let weights_shape = Shape::new(&[8, 4]).unwrap();
    let op = s.op("VariableV2").name("w").attr("dtype", DType::Float);
    let w = op.attr("shape", &weights_shape).build().unwrap();
    let shape = ints(&mut s, &[8, 4]);
    let initial = seeded(&mut s, "TruncatedNormal", "t", &[shape], ("dtype", DType::Float));
    s.op("Assign").name("init").inputs(&[w, initial]).build().unwrap();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    let y = node(&mut s, "MatMul", &[x, w]);
    let shape = node(&mut s, "Shape", &[y]);
    let drawn = seeded(&mut s, "RandomUniform", "drawn", &[shape], ("dtype", DType::Float));
    let rate = s.constant(&Tensor::scalar(0.25f32)).unwrap();
    let is_kept = node(&mut s, "GreaterEqual", &[drawn, rate]);
    let zero = node(&mut s, "ZerosLike", &[y]);
    let dropped = node(&mut s, "SelectV2", &[is_kept, y, zero]);
    let op = s.op("MatMul").inputs(&[x, dropped]).attr("transpose_a", true);
    let adjoint = op.build().unwrap();
    let rate = s.constant(&Tensor::scalar(0.01f32)).unwrap();
    let change = node(&mut s, "Mul", &[adjoint, rate]);
    s.op("AssignSub").name("step").inputs(&[w, change]).build().unwrap();
    let (here, there) =
        (session(&s, SessionOptions::default()), session(&s, support::options(&accelerator)));
    let fed: Vec<f32> = (0..48).map(|i| (i as f32 * 0.7).cos()).collect();
    let fed = Tensor::from_slice(Shape::new(&[6, 8]).unwrap(), &fed).unwrap();
    for session in [&here, &there] {
        session.run(&[], &[], &["init"]).unwrap();
        session.run(&[("x:0", fed.clone())], &[], &["step"]).unwrap();
    }
    let before = accelerator.counts();
    for _ in 0..6 {
        for session in [&here, &there] {
            session.run(&[("x:0", fed.clone())], &[], &["step"]).unwrap();
        }
    }
    let after = accelerator.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (0, 6));
    let weights = |session: &Session| session.run(&[], &["w:0"], &[]).unwrap().remove(0);
    let (_, most) = difference(&weights(&here), &weights(&there));
    assert!(most < 1e-6, "{most}");
}

/// The state of `tf.random.Generator` lives in the device's memory.
#[test]
fn a_generator_in_a_variable_goes_on_there() {
    let Some(accelerator) = support::accelerator("a_generator_in_a_variable") else { return };
    let mut s = scope();
    let op = s.op("VarHandleOp").name("g").attr("dtype", DType::Int64);
    let handle = op.attr("shape", &Shape::new(&[3]).unwrap()).build().unwrap();
    let state = s.constant(&Tensor::vector(&[-2i64, 5, 77]).unwrap()).unwrap();
    let algorithm = s.constant(&Tensor::scalar(1i64)).unwrap();
    s.op("AssignVariableOp").name("init").inputs(&[handle, state]).build_node().unwrap();
    let shape = ints(&mut s, &[1001]);
    let op = s.op("StatefulUniform").name("u").inputs(&[handle, algorithm, shape]);
    op.attr("dtype", DType::Float).build().unwrap();
    let op = s.op("ReadVariableOp").name("read").input(handle).attr("dtype", DType::Int64);
    op.build().unwrap();
    let (here, there) =
        (session(&s, SessionOptions::default()), session(&s, support::options(&accelerator)));
    let fetch = |session: &Session, name: &str| session.run(&[], &[name], &[]).unwrap().remove(0);
    for session in [&here, &there] {
        session.run(&[], &[], &["init"]).unwrap();
    }
    for _ in 0..3 {
        for name in ["u:0", "read:0"] {
            let (wanted, got) = (fetch(&here, name), fetch(&there, name));
            assert_eq!(wanted.as_bytes().unwrap(), got.as_bytes().unwrap(), "{name}");
        }
    }
}
