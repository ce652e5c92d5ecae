//! `BlockLSTM` and its gradient on an accelerator: the numbers of the CPU's kernels.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use thalweg_graph::{Output, Scope};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{Code, DType, Shape, Tensor};

/// An op, its dtype and attrs, and whether it has peepholes.
type Case = (&'static str, DType, &'static [(&'static str, f32)], bool);

const STEPS: usize = 5;
const BATCH: usize = 3;
const INPUTS: usize = 4;
const UNITS: usize = 6;

/// Numbers between -1 and 1.
fn numbers(seed: usize, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let number = |i: usize| (((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5) - 1.0;
    let values: Vec<f32> = (0..shape.num_elements()).map(number).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// An op with its gradient: the graph, and the names of all outputs.
fn graph(op: &str, dtype: DType, attrs: &[(&str, f32)], peepholes: bool) -> (Scope, Vec<String>) {
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let taken = s.op("Placeholder").name("taken").attr("dtype", DType::Int64).build().unwrap();
    // The gradient op takes the forward op's outputs, and two adjoints.
    let dims: [&[usize]; 10] = [
        &[STEPS, BATCH, INPUTS],
        &[BATCH, UNITS],
        &[BATCH, UNITS],
        &[INPUTS + UNITS, 4 * UNITS],
        &[UNITS],
        &[UNITS],
        &[UNITS],
        &[4 * UNITS],
        &[STEPS, BATCH, UNITS],
        &[STEPS, BATCH, UNITS],
    ];
    let fixed: Vec<Output> = (dims.iter().enumerate())
        .map(|(i, dims)| {
            let value = s.constant(&numbers(i, dims)).unwrap();
            s.cast(value, dtype).unwrap()
        })
        .collect();
    let mut node = s.op(op).name("forward").input(taken).inputs(&fixed[..8]);
    for (name, value) in attrs {
        node = node.attr(name, *value);
    }
    let outputs = node.attr("use_peephole", peepholes).build_all().unwrap();
    let gradient = op.replace("LSTM", "LSTMGrad");
    let node = s.op(&gradient).name("backward").input(taken).inputs(&fixed[..8]);
    let node = node.inputs(&outputs).inputs(&fixed[8..]);
    node.attr("use_peephole", peepholes).build_all().unwrap();
    let names = |node: &str, count: usize| -> Vec<String> {
        (0..count).map(|i| format!("{node}:{i}")).collect()
    };
    (s, [names("forward", 7), names("backward", 8)].concat())
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    match tensor.dtype() {
        DType::Half => {
            let values = tensor.as_slice::<thalweg_tensor::f16>().unwrap();
            values.iter().map(|x| x.to_f32()).collect()
        }
        _ => tensor.as_slice::<f32>().unwrap().to_vec(),
    }
}

#[test]
fn sequences_and_gradients_are_those_of_the_cpu() {
    let test = "sequences_and_gradients_are_those_of_the_cpu";
    let Some(accelerator) = support::accelerator(test) else { return };
    let cases: [Case; 5] = [
        ("BlockLSTM", DType::Float, &[("forget_bias", 1.0)], false),
        ("BlockLSTM", DType::Float, &[("forget_bias", 0.5), ("cell_clip", 0.3)], true),
        ("BlockLSTMV2", DType::Float, &[("cell_clip", 0.0)], false),
        ("BlockLSTMV2", DType::Float, &[("cell_clip", 0.4)], true),
        ("BlockLSTMV2", DType::Half, &[("cell_clip", 0.0)], true),
    ];
    for (op, dtype, attrs, peepholes) in cases {
        let (s, names) = graph(op, dtype, attrs, peepholes);
        let fetches: Vec<&str> = names.iter().map(String::as_str).collect();
        let session = |options| Session::new(s.to_graph(), kernel_registry(FAMILIES), options);
        let here = session(SessionOptions::default()).unwrap();
        let there = session(support::options(&accelerator)).unwrap();
        let before = accelerator.counts();
        for taken in [0, 1, 3, 5i64] {
            let feeds = [("taken:0", Tensor::scalar(taken))];
            let wanted = here.run(&feeds, &fetches, &[]).unwrap();
            let got = there.run(&feeds, &fetches, &[]).unwrap();
            let bound = if dtype == DType::Half { 8e-3 } else { 2e-6 };
            for ((name, wanted), got) in fetches.iter().zip(&wanted).zip(&got) {
                assert_eq!(wanted.shape(), got.shape());
                for (a, b) in floats(wanted).iter().zip(floats(got)) {
                    let limit = bound * a.abs().max(1.0);
                    assert!((a - b).abs() <= limit, "{op} {taken} {name}: {a} and {b}");
                }
            }
        }
        let after = accelerator.counts();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 4), "{op}");
    }
}

/// A number of steps that is known when the region is compiled is checked.
#[test]
fn a_known_length_must_fit() {
    let Some(accelerator) = support::accelerator("a_known_length_must_fit") else { return };
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let taken = s.constant(&Tensor::scalar(6i64)).unwrap();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    let dims: [&[usize]; 7] = [&[1, 2], &[1, 2], &[5, 8], &[2], &[2], &[2], &[8]];
    let mut inputs = vec![taken, x];
    inputs.extend(dims.iter().map(|dims| s.constant(&numbers(1, dims)).unwrap()));
    s.op("BlockLSTM").name("y").inputs(&inputs).build_all().unwrap();
    let options = support::options(&accelerator);
    let session = Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap();
    let run = |steps: usize| session.run(&[("x:0", numbers(2, &[steps, 1, 3]))], &["y:6"], &[]);
    assert_eq!(run(5).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(run(7).unwrap()[0].shape().dims(), [7, 1, 2]);
}
