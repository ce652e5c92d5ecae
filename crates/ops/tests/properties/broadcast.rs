//! Element-wise ops on operands of different shapes.

use thalweg_tensor::*;

use crate::array::Array;
use crate::harness::*;

/// Dimensions of one operand that broadcasts to `result`: leading ones may be missing, others may
/// be one.
fn operand(random: &mut Random, result: &[usize]) -> Vec<usize> {
    let missing = if random.once_in(3) { random.size(0, result.len()) } else { 0 };
    result[missing..].iter().map(|&d| if random.once_in(3) { 1 } else { d }).collect()
}

/// The broadcast dimensions of the operands.
fn together(operands: &[&Array]) -> Vec<usize> {
    let rank = operands.iter().map(|a| a.rank()).max().unwrap();
    let mut dims = vec![1; rank];
    for operand in operands {
        let skipped = rank - operand.rank();
        for (dim, &own) in dims[skipped..].iter_mut().zip(&operand.dims) {
            if own != 1 {
                *dim = own;
            }
        }
    }
    dims
}

/// The element of an operand for an index of the result.
fn spread(operand: &Array, index: &[usize]) -> f64 {
    let own = &index[index.len() - operand.rank()..];
    let own: Vec<usize> =
        own.iter().zip(&operand.dims).map(|(&i, &d)| if d == 1 { 0 } else { i }).collect();
    operand.at(&own)
}

struct Binary {
    op: &'static str,
    types: &'static [DType],
    /// The range of values of each operand.
    ranges: [(i64, i64); 2],
    function: fn(f64, f64) -> f64,
}

const INTEGERS_TOO: &[DType] = &[
    DType::Float,
    DType::Double,
    DType::Half,
    DType::BFloat16,
    DType::Int32,
    DType::Int64,
    DType::Int16,
    DType::Int8,
    DType::UInt8,
];

const POWERS: &[DType] =
    &[DType::Float, DType::Double, DType::Half, DType::BFloat16, DType::Int32, DType::Int64];

const BINARY: &[Binary] = &[
    Binary {
        op: "AddV2",
        types: INTEGERS_TOO,
        ranges: [(0, 100), (0, 100)],
        function: |a, b| a + b,
    },
    Binary { op: "Sub", types: INTEGERS_TOO, ranges: [(0, 100), (0, 100)], function: |a, b| a - b },
    Binary { op: "Mul", types: INTEGERS_TOO, ranges: [(0, 16), (0, 16)], function: |a, b| a * b },
    Binary { op: "Maximum", types: INTEGERS_TOO, ranges: [(0, 9), (0, 9)], function: f64::max },
    Binary { op: "Minimum", types: NUMBERS, ranges: [(-9, 9), (-9, 9)], function: f64::min },
    Binary {
        op: "SquaredDifference",
        types: POWERS,
        ranges: [(-9, 9), (-9, 9)],
        function: |a, b| (a - b) * (a - b),
    },
    Binary { op: "Pow", types: POWERS, ranges: [(-4, 4), (0, 3)], function: f64::powf },
    Binary {
        op: "FloorDiv",
        types: &[DType::Float, DType::Double, DType::Int32, DType::Int64],
        ranges: [(-20, 20), (1, 5)],
        function: |a, b| (a / b).floor(),
    },
    Binary {
        op: "FloorMod",
        types: &[DType::Float, DType::Double, DType::Int32, DType::Int64],
        ranges: [(-20, 20), (-5, -1)],
        function: |a, b| a - b * (a / b).floor(),
    },
    Binary {
        op: "Greater",
        types: INTEGERS_TOO,
        ranges: [(0, 5), (0, 5)],
        function: |a, b| f64::from(a > b),
    },
    Binary {
        op: "LessEqual",
        types: NUMBERS,
        ranges: [(-3, 3), (-3, 3)],
        function: |a, b| f64::from(a <= b),
    },
    Binary {
        op: "Equal",
        types: MOVABLE,
        ranges: [(0, 3), (0, 3)],
        function: |a, b| f64::from(a == b),
    },
];

#[test]
fn binary_ops_broadcast() {
    for binary in BINARY {
        check(binary.op, 60, |random| {
            let result = random.dims(0, 5, 3);
            let [a, b] = binary.ranges.map(|(low, high)| {
                let dims = operand(random, &result);
                random.array(&dims, low, high)
            });
            let expected = Array::from_fn(&together(&[&a, &b]), |index| {
                (binary.function)(spread(&a, index), spread(&b, index))
            });
            let dtype = random.pick(binary.types);
            Call::new(binary.op).array(&a, dtype).array(&b, dtype).gives(&expected)
        });
    }
}

#[test]
fn select_broadcasts() {
    check("SelectV2", 100, |random| {
        let result = random.dims(0, 5, 3);
        let [condition, a, b] = [(0, 1), (1, 50), (51, 99)].map(|(low, high)| {
            let dims = operand(random, &result);
            random.array(&dims, low, high)
        });
        let dims = together(&[&condition, &a, &b]);
        let expected = Array::from_fn(&dims, |index| {
            spread(if spread(&condition, index) != 0.0 { &a } else { &b }, index)
        });
        let dtype = random.pick(MOVABLE);
        let call = Call::new("SelectV2").array(&condition, DType::Bool);
        call.array(&a, dtype).array(&b, dtype).gives(&expected)
    });
}

#[test]
fn broadcast_to() {
    check("BroadcastTo", 80, |random| {
        let dims = random.dims(0, 5, 3);
        let given = Array::counting(&operand(random, &dims));
        let expected = Array::from_fn(&dims, |index| spread(&given, index));
        let dtype = random.pick(MOVABLE);
        let call = Call::new("BroadcastTo").array(&given, dtype);
        call.sizes(&dims, random.pick(INDICES)).gives(&expected)
    });
}

/// Broadcasting followed by a sum over the axes gives each element times its number of copies.
#[test]
fn gradient_args_undo_broadcasting() {
    check("BroadcastGradientArgs", 60, |random| {
        let result = random.dims(0, 5, 3);
        let operands = [operand(random, &result), operand(random, &result)];
        let arrays = operands.clone().map(|dims| Array::filled(&dims, 1.0));
        let dims = together(&[&arrays[0], &arrays[1]]);
        let call = Call::new("BroadcastGradientArgs");
        let axes =
            call.sizes(&operands[0], DType::Int32).sizes(&operands[1], DType::Int32).arrays()?;
        for (axes, own) in axes.iter().zip(&operands) {
            let sum = Call::new("Sum")
                .array(&Array::filled(&dims, 1.0), DType::Double)
                .array(axes, DType::Int32)
                .output()?;
            let back = Call::new("Reshape").tensor(sum).sizes(own, DType::Int32);
            let (whole, part) = (dims.iter().product::<usize>(), own.iter().product::<usize>());
            let times = if part == 0 { 0.0 } else { whole as f64 / part as f64 };
            back.gives(&Array::filled(own, times))?;
        }
        Ok(())
    });
}
