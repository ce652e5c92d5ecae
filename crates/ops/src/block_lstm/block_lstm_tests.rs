//! Compares with steps computed one by one, gradients with finite differences, and checks sizes
//! that do not match.

use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

use crate::testing::{call, pairs};

const SIZES: [usize; 4] = [3, 2, 3, 4];

fn numbers(seed: u32, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.num_elements()).map(|_| next()).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// The inputs but the first: x, cells, outputs, weights, peepholes, bias.
fn inputs() -> Vec<Tensor> {
    let [steps, batch, inputs, units] = SIZES;
    [
        &[steps, batch, inputs][..],
        &[batch, units],
        &[batch, units],
        &[inputs + units, 4 * units],
        &[units],
        &[units],
        &[units],
        &[4 * units],
    ]
    .iter()
    .zip(1..)
    .map(|(dims, seed)| numbers(seed, dims))
    .collect()
}

fn forward(taken: i64, inputs: &[Tensor], peepholes: bool) -> Result<Vec<Tensor>> {
    let mut call = call("BlockLSTMV2").input(Tensor::scalar(taken)).attr("use_peephole", peepholes);
    for input in inputs {
        call = call.input(input.clone());
    }
    call.run_all()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect()
}

/// Reference outputs and cells of all steps, in double precision.
fn written_out(inputs: &[Tensor], peepholes: bool) -> (Vec<f64>, Vec<f64>) {
    let [steps, batch, width, units] = SIZES;
    let v: Vec<Vec<f64>> = inputs.iter().map(values).collect();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let see = if peepholes { 1.0 } else { 0.0 };
    let (mut outputs, mut cells) = (Vec::new(), Vec::new());
    let (mut c, mut h) = (v[1].clone(), v[2].clone());
    for t in 0..steps {
        let (mut next_c, mut next_h) = (c.clone(), h.clone());
        for row in 0..batch {
            for u in 0..units {
                let gate = |g: usize| {
                    let column = g * units + u;
                    let x = |k: usize| match k < width {
                        true => v[0][(t * batch + row) * width + k],
                        false => h[row * units + k - width],
                    };
                    let sum: f64 =
                        (0..width + units).map(|k| x(k) * v[3][k * 4 * units + column]).sum();
                    sum + v[7][column]
                };
                let at = row * units + u;
                let input_gate = sigmoid(gate(0) + see * c[at] * v[4][u]);
                let forget = sigmoid(gate(1) + see * c[at] * v[5][u]);
                next_c[at] = gate(2).tanh() * input_gate + c[at] * forget;
                let output_gate = sigmoid(gate(3) + see * next_c[at] * v[6][u]);
                next_h[at] = output_gate * next_c[at].tanh();
            }
        }
        (c, h) = (next_c, next_h);
        cells.extend_from_slice(&c);
        outputs.extend_from_slice(&h);
    }
    (outputs, cells)
}

#[test]
fn steps_follow_each_other() {
    for peepholes in [false, true] {
        let inputs = inputs();
        let (outputs, cells) = written_out(&inputs, peepholes);
        let got = forward(SIZES[0] as i64, &inputs, peepholes).unwrap();
        for (got, expected) in [(&got[6], &outputs), (&got[1], &cells)] {
            for (x, y) in pairs(&values(got), expected) {
                assert!((x - y).abs() < 1e-5, "{x} {y}");
            }
        }
        // Steps beyond `seq_len_max` are zero, the others are equal.
        let short = forward(2, &inputs, peepholes).unwrap();
        let len = 2 * SIZES[1] * SIZES[3];
        assert_eq!(values(&short[6])[..len], values(&got[6])[..len]);
        assert!(values(&short[6])[len..].iter().all(|x| *x == 0.0));
    }
}

/// `BlockLSTM` has another gate order than `BlockLSTMV2`, adds a forget bias, and clips cells.
#[test]
fn the_first_op_is_the_second_in_another_order() {
    let units = SIZES[3];
    let inputs = inputs();
    let expected = forward(3, &inputs, false).unwrap();
    // Gate order of `BlockLSTMV2`: input, forget, candidate, output.
    let columns = |row: &[f32], forget_bias: f32| -> Vec<f32> {
        let part = |gate: usize| row[gate * units..(gate + 1) * units].to_vec();
        let forget = part(1).iter().map(|x| x + forget_bias).collect();
        [part(0), part(2), forget, part(3)].concat()
    };
    let weights: Vec<f32> = inputs[3]
        .as_slice::<f32>()
        .unwrap()
        .chunks(4 * units)
        .flat_map(|row| columns(row, 0.0))
        .collect();
    let bias = columns(inputs[7].as_slice().unwrap(), -0.5);
    let mut turned = inputs.clone();
    turned[3] = Tensor::from_slice(inputs[3].shape().clone(), &weights).unwrap();
    turned[7] = Tensor::vector(&bias).unwrap();
    let first = |clip: f32| {
        let call = call("BlockLSTM").input(Tensor::scalar(3i64)).attr("cell_clip", clip);
        let call = turned.iter().fold(call, |call, input| call.input(input.clone()));
        call.attr("forget_bias", 0.5f32).run_all().unwrap()
    };
    let got = first(0.0);
    for (got, expected) in pairs(&got, &expected) {
        for (x, y) in pairs(&values(got), &values(expected)) {
            assert!((x - y).abs() < 1e-5, "{x} {y}");
        }
    }
    assert!(values(&got[1]).iter().any(|x| x.abs() > 0.25));
    assert!(values(&first(0.25)[1]).iter().all(|x| x.abs() <= 0.25));
}

/// The sum of outputs and cells with position-dependent weights.
fn weighed(inputs: &[Tensor], peepholes: bool) -> f64 {
    let (outputs, cells) = written_out(inputs, peepholes);
    let weigh = |x: &[f64]| x.iter().zip(1..).map(|(x, i)| x * f64::from(i) / 7.0).sum::<f64>();
    weigh(&outputs) + weigh(&cells)
}

#[test]
fn gradients_are_slopes() {
    for peepholes in [false, true] {
        let inputs = inputs();
        let kept = forward(SIZES[0] as i64, &inputs, peepholes).unwrap();
        let count = kept[0].num_elements() as i32;
        let places: Vec<f32> = (1..=count).map(|i| i as f32 / 7.0).collect();
        let adjoint = Tensor::from_slice(kept[0].shape().clone(), &places).unwrap();
        let mut call = call("BlockLSTMGradV2").input(Tensor::scalar(SIZES[0] as i64));
        for input in inputs.iter().chain(&kept).chain([&adjoint, &adjoint]) {
            call = call.input(input.clone());
        }
        let gradients = call.attr("use_peephole", peepholes).run_all().unwrap();
        for (i, gradient) in gradients.iter().enumerate() {
            assert_eq!(gradient.shape(), inputs[i].shape());
            for (j, &got) in values(gradient).iter().enumerate() {
                let moved = |by: f32| {
                    let mut inputs = inputs.clone();
                    let mut numbers = inputs[i].as_slice::<f32>().unwrap().to_vec();
                    numbers[j] += by;
                    let shape = inputs[i].shape().clone();
                    inputs[i] = Tensor::from_slice(shape, &numbers).unwrap();
                    weighed(&inputs, peepholes)
                };
                let slope = (moved(1.0 / 1024.0) - moved(-1.0 / 1024.0)) * 512.0;
                assert!(
                    (slope - got).abs() < 2e-3 * (1.0 + slope.abs()),
                    "input {i} element {j}: {got}, not {slope}"
                );
            }
        }
    }
}

#[test]
fn shapes() {
    let call = |x: &str, bias: &str| {
        let call = call("BlockLSTM").shape(DType::Int64, "").shape(DType::Float, x);
        let call = ["2,?", "2,?", "?,?", "?", "?", "?", bias]
            .iter()
            .fold(call, |call, shape| call.shape(DType::Float, shape));
        call.infer()
    };
    assert!(call("5,2,3", "8").starts_with("[5,2,2] [5,2,2]"));
    assert!(call("5,?,3", "?").starts_with("[5,?,?]"));
    assert!(call("5,3", "8").starts_with("INVALID_ARGUMENT"));
}

#[test]
fn sizes_must_fit() {
    let good = inputs();
    for taken in [-1, 4, i64::MAX] {
        assert_eq!(forward(taken, &good, false).unwrap_err().code(), Code::InvalidArgument);
    }
    for (i, dims) in [
        (0, &[3, 2][..]),
        (0, &[3, 5, 3]),
        (1, &[2]),
        (1, &[2, 3]),
        (2, &[1, 4]),
        (3, &[6, 16]),
        (3, &[7, 15]),
        (4, &[3]),
        (5, &[1, 4]),
        (6, &[0]),
        (7, &[12]),
    ] {
        let mut inputs = good.clone();
        inputs[i] = numbers(1, dims);
        let refused = forward(3, &inputs, false).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "input {i}: {dims:?}");
    }
    // A sequence of length zero is valid.
    let mut empty = good;
    empty[0] = numbers(1, &[0, 2, 3]);
    assert_eq!(forward(0, &empty, false).unwrap()[6].shape().dims(), [0, 2, 4]);
}
