//! Which graphs become calls of fused attention.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_graph::{Adjoint, GradientOptions, NodeId, Output, Scope, gradients};
use thalweg_kernel::{Environment, KernelOrigin, NodeStates};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::Region;
use thalweg_tensor::{Budget, DType, Shape, Tensor};

use crate::compile::{InputKind, LoweredRegion, Target, lower_region};
use crate::device::Precision;

const LENGTH: usize = 64;
const TARGET: Target<'_> = Target {
    platform: "cuda",
    device_type: "GPU",
    precision: Precision::Full,
    fuses_attention: true,
};

/// The text of the program of a graph over q, k, v and the adjoint of the attention.
fn text(dtype: DType, build: impl FnOnce(&mut Scope, [Output; 4]) -> Vec<Output>) -> String {
    lowered(TARGET, dtype, build).text
}

fn lowered(
    target: Target<'_>,
    dtype: DType,
    build: impl FnOnce(&mut Scope, [Output; 4]) -> Vec<Output>,
) -> LoweredRegion {
    let mut scope = Scope::new(op_registry(FAMILIES).unwrap());
    let args = [0i64, 1, 2, 3]
        .map(|i| scope.op("_Arg").attr("T", dtype).attr("index", i).build().unwrap());
    let outputs = build(&mut scope, args);
    let body = scope.to_graph();
    let region = Region {
        node: NodeId(0),
        body,
        is_static: vec![false; 4],
        is_read_on_host: vec![false; outputs.len()],
        outputs,
        handles: BTreeMap::new(),
        parts: None,
    };
    let origin = KernelOrigin {
        kernels: kernel_registry(FAMILIES),
        budget: Budget::new(1 << 30),
        environment: Environment::frozen(),
        states: Arc::new(NodeStates::default()),
    };
    let shape = Shape::new(&[2, 3, LENGTH, 16]).unwrap();
    let inputs: Vec<InputKind> = (0..4).map(|_| InputKind::Buffer(dtype, shape.clone())).collect();
    lower_region(&region, &inputs, &[], &origin, target).unwrap()
}

fn add(s: &mut Scope, op: &str, inputs: &[Output]) -> Output {
    s.add(op, inputs).unwrap()
}

fn product(s: &mut Scope, x: Output, y: Output, adj_y: bool) -> Output {
    s.op("BatchMatMulV2").inputs(&[x, y]).attr("adj_y", adj_y).build().unwrap()
}

fn number(s: &mut Scope, x: f32) -> Output {
    s.constant(&Tensor::scalar(x)).unwrap()
}

/// 1 on and below the diagonal, 0 above.
fn band(s: &mut Scope, dtype: DType) -> Output {
    let sizes = s.constant(&Tensor::vector(&[LENGTH as i32; 2]).unwrap()).unwrap();
    let one = number(s, 1.0);
    let ones = add(s, "Fill", &[sizes, one]);
    let [low, high] = [-1i32, 0].map(|n| s.constant(&Tensor::scalar(n)).unwrap());
    let band = add(s, "MatrixBandPart", &[ones, low, high]);
    s.cast(band, dtype).unwrap()
}

/// Scaled scores in float.
fn scores(s: &mut Scope, [q, k, ..]: [Output; 4]) -> Output {
    let scores = product(s, q, k, true);
    let scores = s.cast(scores, DType::Float).unwrap();
    let scale = number(s, 0.25);
    add(s, "Mul", &[scores, scale])
}

/// Attention with these scores, and the adjoints of q, k and v.
fn attention(s: &mut Scope, args: [Output; 4], scores: Output, dtype: DType) -> Vec<Output> {
    let weights = add(s, "Softmax", &[scores]);
    let weights = s.cast(weights, dtype).unwrap();
    let output = product(s, weights, args[2], false);
    let loss = add(s, "Mul", &[output, args[3]]);
    let adjoints = gradients(s, &[loss], &args[..3], &GradientOptions::default()).unwrap();
    let dense = |adjoint: &Adjoint| match adjoint {
        Adjoint::Dense(output) => *output,
        Adjoint::Sparse(_) => panic!("dense gradients"),
    };
    [output].into_iter().chain(adjoints.iter().map(dense)).collect()
}

/// Calls of the attention and of its gradient.
fn calls(text: &str) -> (usize, usize) {
    let count = |name: &str| text.matches(&format!("\"__cudnn$fmhaSoftmax{name}\"")).count();
    (count(""), count("Backward"))
}

/// The values that a line names, in their order.
fn values_of(line: &str) -> Vec<&str> {
    line.split([',', ' ', '(', ')']).filter(|word| word.starts_with('%')).collect()
}

/// The value that became this one by casts.
fn uncast<'a>(text: &'a str, mut value: &'a str) -> &'a str {
    let made_by = |value: &str| text.lines().find(|l| l.starts_with(&format!("{value} = ")));
    while let Some(line) = made_by(value).filter(|line| line.contains("stablehlo.convert")) {
        value = values_of(line)[1];
    }
    value
}

fn causal_by_select(s: &mut Scope, args: [Output; 4]) -> Output {
    let (scores, seen) = (scores(s, args), band(s, DType::Bool));
    let blocked = number(s, -1e9);
    add(s, "SelectV2", &[seen, scores, blocked])
}

#[test]
fn attention_and_its_gradient_are_two_calls() {
    for dtype in [DType::BFloat16, DType::Half] {
        let text = text(dtype, |s, args| {
            let scores = scores(s, args);
            attention(s, args, scores, dtype)
        });
        assert_eq!(calls(&text), (1, 1), "{text}");
        assert!(text.contains("NO_MASK") && text.contains("fmha_scale\\\":0.25,"), "{text}");
        let gradient = text.lines().find(|line| line.contains("Backward")).unwrap();
        let returned = text.lines().rev().find(|line| line.starts_with("return")).unwrap();
        let adjoints: Vec<&str> =
            values_of(returned)[1..4].iter().map(|v| uncast(&text, v)).collect();
        assert_eq!(adjoints, values_of(gradient)[..3], "{text}");
    }
}

#[test]
fn causal_masks_are_recognized() {
    let masks: [fn(&mut Scope, [Output; 4]) -> Output; 3] = [
        causal_by_select,
        // scores seen - 1e9 (1 - seen)
        |s, args| {
            let (scores, seen) = (scores(s, args), band(s, DType::Float));
            let (one, large) = (number(s, 1.0), number(s, 1e9));
            let kept = add(s, "Mul", &[scores, seen]);
            let unseen = add(s, "Sub", &[one, seen]);
            let blocked = add(s, "Mul", &[unseen, large]);
            add(s, "Sub", &[kept, blocked])
        },
        // scores + (1 - seen) -1e9, scaled afterwards.
        |s, args| {
            let scores = product(s, args[0], args[1], true);
            let scores = s.cast(scores, DType::Float).unwrap();
            let seen = band(s, DType::Float);
            let (one, large, four) = (number(s, 1.0), number(s, -1e9), number(s, 4.0));
            let unseen = add(s, "Sub", &[one, seen]);
            let blocked = add(s, "Mul", &[unseen, large]);
            let masked = add(s, "AddV2", &[blocked, scores]);
            add(s, "RealDiv", &[masked, four])
        },
    ];
    for (i, mask) in masks.into_iter().enumerate() {
        let text = text(DType::BFloat16, |s, args| {
            let scores = mask(s, args);
            attention(s, args, scores, DType::BFloat16)
        });
        assert_eq!(calls(&text), (1, 1), "mask {i}: {text}");
        assert!(text.contains("CAUSAL") && text.contains("fmha_scale\\\":0.25,"), "mask {i}");
    }
}

#[test]
fn other_graphs_are_left_alone() {
    type Build = fn(&mut Scope, [Output; 4]) -> Vec<Output>;
    let cases: [(&str, Build, (usize, usize)); 5] = [
        (
            "a mask of later positions",
            |s, args| {
                let (scores, seen) = (scores(s, args), band(s, DType::Bool));
                let blocked = number(s, -1e9);
                let scores = add(s, "SelectV2", &[seen, blocked, scores]);
                attention(s, args, scores, DType::BFloat16)
            },
            (0, 0),
        ),
        (
            "a penalty that leaves weights",
            |s, args| {
                let (scores, seen) = (scores(s, args), band(s, DType::Float));
                let scores = add(s, "AddV2", &[scores, seen]);
                attention(s, args, scores, DType::BFloat16)
            },
            (0, 0),
        ),
        (
            "scores that depend on an argument",
            |s, args| {
                let scores = scores(s, args);
                let bias = product(s, args[2], args[3], true);
                let bias = s.cast(bias, DType::Float).unwrap();
                let scores = add(s, "AddV2", &[scores, bias]);
                attention(s, args, scores, DType::BFloat16)
            },
            (0, 0),
        ),
        (
            "weights that change before the product",
            |s, args| {
                let scores = scores(s, args);
                let weights = add(s, "Softmax", &[scores]);
                let two = number(s, 2.0);
                let weights = add(s, "Mul", &[weights, two]);
                let weights = s.cast(weights, DType::BFloat16).unwrap();
                vec![product(s, weights, args[2], false)]
            },
            (0, 0),
        ),
        ("an adjoint that changes on its way", attention_with_adjoint_scaled_twice, (1, 0)),
    ];
    for (what, build, expected) in cases {
        let text = text(DType::BFloat16, build);
        assert_eq!(calls(&text), expected, "{what}: {text}");
    }
}

/// Attention, and the adjoint of k for scores whose adjoint is scaled twice.
fn attention_with_adjoint_scaled_twice(s: &mut Scope, args: [Output; 4]) -> Vec<Output> {
    let logits = scores(s, args);
    let weights = add(s, "Softmax", &[logits]);
    let narrow = s.cast(weights, DType::BFloat16).unwrap();
    let output = product(s, narrow, args[2], false);
    let adjoint = product(s, args[3], args[2], true);
    let adjoint = s.cast(adjoint, DType::Float).unwrap();
    let weighted = add(s, "Mul", &[adjoint, weights]);
    let last = s.constant(&Tensor::vector(&[-1i32]).unwrap()).unwrap();
    let sum = s.op("Sum").inputs(&[weighted, last]).attr("keep_dims", true);
    let sum = sum.build().unwrap();
    let centred = add(s, "Sub", &[adjoint, sum]);
    let centred = add(s, "Mul", &[centred, weights]);
    let half = number(s, 0.5);
    let centred = add(s, "Mul", &[centred, half]);
    let centred = s.cast(centred, DType::BFloat16).unwrap();
    vec![output, product(s, centred, args[1], false)]
}

#[test]
fn only_where_the_plugin_has_it() {
    let build = |s: &mut Scope, args: [Output; 4]| {
        let scores = causal_by_select(s, args);
        attention(s, args, scores, DType::BFloat16)
    };
    assert!(lowered(TARGET, DType::BFloat16, build).has_fused_attention);
    for other in [Target { platform: "cpu", ..TARGET }, Target { fuses_attention: false, ..TARGET }]
    {
        let region = lowered(other, DType::BFloat16, build);
        assert!(!region.has_fused_attention && calls(&region.text) == (0, 0), "{other:?}");
    }
    let of_floats = text(DType::Float, |s, args| {
        let scores = causal_by_select(s, args);
        attention(s, args, scores, DType::Float)
    });
    assert_eq!(calls(&of_floats), (0, 0));
}
