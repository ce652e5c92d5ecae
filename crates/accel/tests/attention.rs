//! Attention and its gradient on an accelerator, held to the CPU: where the plugin has fused attention, by that.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use thalweg_graph::{Adjoint, GradientOptions, Output, Scope, gradients};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{Session, SessionOptions};
use thalweg_tensor::{DType, Shape, Tensor, bf16};

const DIMS: [usize; 4] = [2, 3, 128, 64];
const NAMES: [&str; 4] = ["q", "k", "v", "adjoint"];

fn add(s: &mut Scope, op: &str, inputs: &[Output]) -> Output {
    s.add(op, inputs).unwrap()
}

/// Attention in 16 bits with a softmax of floats; the names of the output and of the adjoints of q, k and v.
fn attention(s: &mut Scope, is_causal: bool) -> Vec<String> {
    let shape = Shape::new(&DIMS).unwrap();
    let [q, k, v, adjoint] = NAMES.map(|name| {
        let x = s.op("Placeholder").name(name).attr("dtype", DType::Float).attr("shape", &shape);
        let x = x.build().unwrap();
        s.cast(x, DType::BFloat16).unwrap()
    });
    let scores = s.op("BatchMatMulV2").inputs(&[q, k]).attr("adj_y", true).build().unwrap();
    let scores = s.cast(scores, DType::Float).unwrap();
    let scale = s.number(DType::Float, 0.125).unwrap();
    let mut scores = add(s, "Mul", &[scores, scale]);
    if is_causal {
        let sizes = s.constant(&Tensor::vector(&[DIMS[2] as i32; 2]).unwrap()).unwrap();
        let one = s.number(DType::Float, 1.0).unwrap();
        let ones = add(s, "Fill", &[sizes, one]);
        let [low, high] = [-1i32, 0].map(|n| s.constant(&Tensor::scalar(n)).unwrap());
        let seen = add(s, "MatrixBandPart", &[ones, low, high]);
        let seen = s.cast(seen, DType::Bool).unwrap();
        let blocked = s.number(DType::Float, -1e9).unwrap();
        scores = add(s, "SelectV2", &[seen, scores, blocked]);
    }
    let weights = add(s, "Softmax", &[scores]);
    let weights = s.cast(weights, DType::BFloat16).unwrap();
    let output = add(s, "BatchMatMulV2", &[weights, v]);
    let loss = add(s, "Mul", &[output, adjoint]);
    let adjoints = gradients(s, &[loss], &[q, k, v], &GradientOptions::default()).unwrap();
    let adjoints = adjoints.into_iter().map(|adjoint| match adjoint {
        Adjoint::Dense(output) => output,
        Adjoint::Sparse(_) => panic!("dense gradients"),
    });
    std::iter::once(output).chain(adjoints).map(|output| s.name_of(output)).collect()
}

fn run(options: SessionOptions, is_causal: bool) -> Vec<Vec<f64>> {
    let mut scope = Scope::new(op_registry(FAMILIES).unwrap());
    let fetches = attention(&mut scope, is_causal);
    let session = Session::new(scope.to_graph(), kernel_registry(FAMILIES), options).unwrap();
    let feeds: Vec<(&str, Tensor)> = NAMES
        .iter()
        .enumerate()
        .map(|(i, name)| {
            // Deterministic numbers between -1 and 1.
            let number = |n: usize| ((n * (2 * i + 37) + i) as f32 * 0.731).sin();
            let all: Vec<f32> = (0..DIMS.iter().product()).map(number).collect();
            (*name, Tensor::vector(&all).unwrap().reshaped(Shape::new(&DIMS).unwrap()).unwrap())
        })
        .collect();
    let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
    let results = session.run(&feeds, &fetches, &[]).unwrap();
    let numbers = |t: &Tensor| t.as_slice::<bf16>().unwrap().iter().map(|x| x.to_f64()).collect();
    results.iter().map(numbers).collect()
}

#[test]
fn attention_agrees_with_the_cpu() {
    let Some(accelerator) = support::accelerator("attention_agrees_with_the_cpu") else { return };
    for is_causal in [false, true] {
        let wanted = run(SessionOptions::default(), is_causal);
        let got = run(support::options(&accelerator), is_causal);
        for ((got, wanted), name) in got.iter().zip(&wanted).zip(["output", "q", "k", "v"]) {
            let norm = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
            let gap = norm(&mut got.iter().zip(wanted).map(|(x, y)| x - y));
            let size = norm(&mut wanted.iter().copied());
            // Operands, weights and results of both have 8 bits, and terms of the adjoints cancel.
            let error = gap / size;
            println!("{name}, causal {is_causal}: error {error:.4}");
            assert!(size > 0.0 && error < 0.05, "{name}, causal {is_causal}: error {error}");
        }
    }
}
