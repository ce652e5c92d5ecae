//! Matrix products, softmax and the losses based on it.

use thalweg_tensor::*;

use crate::array::Array;
use crate::harness::*;

const FACTORS: &[DType] =
    &[DType::Float, DType::Double, DType::Half, DType::BFloat16, DType::Int32, DType::Int64];

/// A small dimension, sometimes zero or larger than the tiles of a blocked loop.
fn extent(random: &mut Random) -> usize {
    match random.below(12) {
        0 => 0,
        1 => random.size(17, 40),
        _ => random.size(1, 9),
    }
}

/// The last two dimensions of a factor in memory.
fn stored(rows: usize, columns: usize, transposed: bool) -> [usize; 2] {
    if transposed { [columns, rows] } else { [rows, columns] }
}

#[test]
fn products_of_matrices() {
    check("MatMul", 80, |random| {
        let [m, k, n] = [0; 3].map(|_| extent(random));
        let (a_over, b_over) = (random.flag(), random.flag());
        let a = random.array(&stored(m, k, a_over), -2, 2);
        let b = random.array(&stored(k, n, b_over), -2, 2);
        let expected = Array::from_fn(&[m, n], |index| {
            let a_at = |i| a.at(&stored(index[0], i, a_over));
            let b_at = |i| b.at(&stored(i, index[1], b_over));
            (0..k).map(|i| a_at(i) * b_at(i)).sum()
        });
        let dtype = random.pick(FACTORS);
        let call = Call::new("MatMul").array(&a, dtype).array(&b, dtype);
        call.attr("transpose_a", a_over).attr("transpose_b", b_over).gives(&expected)
    });
}

#[test]
fn products_of_batches() {
    check("BatchMatMulV2", 80, |random| {
        let [m, k, n] = [0; 3].map(|_| extent(random).min(20));
        let (a_over, b_over) = (random.flag(), random.flag());
        let batch = random.few_dims(0, 3, 3);
        let mut operand = |matrix: [usize; 2]| {
            let missing = if random.flag() { random.size(0, batch.len()) } else { 0 };
            let own = batch[missing..].iter();
            let own: Vec<usize> = own.map(|&d| if random.once_in(3) { 1 } else { d }).collect();
            random.array(&[&own[..], &matrix].concat(), -2, 2)
        };
        let a = operand(stored(m, k, a_over));
        let b = operand(stored(k, n, b_over));
        let rank = a.rank().max(b.rank());
        let dim = |i: usize| {
            let own = |x: &Array| (i + x.rank()).checked_sub(rank).map_or(1, |at| x.dims[at]);
            if own(&a) == 1 { own(&b) } else { own(&a) }
        };
        let shared: Vec<usize> = (0..rank - 2).map(dim).collect();
        let element = |x: &Array, outer: &[usize], matrix: [usize; 2]| {
            let outer = outer[rank - x.rank()..].iter().zip(&x.dims);
            let outer: Vec<usize> = outer.map(|(&i, &d)| if d == 1 { 0 } else { i }).collect();
            x.at(&[&outer[..], &matrix].concat())
        };
        let expected = Array::from_fn(&[&shared[..], &[m, n]].concat(), |index| {
            let (outer, at) = index.split_at(rank - 2);
            let a_at = |i| element(&a, outer, stored(at[0], i, a_over));
            let b_at = |i| element(&b, outer, stored(i, at[1], b_over));
            (0..k).map(|i| a_at(i) * b_at(i)).sum()
        });
        let dtype = random.pick(FACTORS);
        let call = Call::new("BatchMatMulV2").array(&a, dtype).array(&b, dtype);
        call.attr("adj_x", a_over).attr("adj_y", b_over).gives(&expected)
    });
}

/// The softmax of a row, computed by its definition.
fn softmax(row: &[f64]) -> Vec<f64> {
    let total: f64 = row.iter().map(|v| v.exp()).sum();
    row.iter().map(|v| v.exp() / total).collect()
}

/// Applies a function to each row of the last dimension.
fn by_row(array: &Array, function: impl Fn(&[f64]) -> Vec<f64>) -> Array {
    let width = array.dims.last().copied().unwrap().max(1);
    let values = array.values.chunks(width).flat_map(function).collect();
    Array { dims: array.dims.clone(), values }
}

#[test]
fn softmax_of_rows() {
    check("Softmax", 60, |random| {
        let dims = random.dims(1, 3, 9);
        let logits = random.array(&dims, -6, 6);
        let dtype = random.pick(FLOATS);
        let call = Call::new("Softmax").array(&logits, dtype);
        call.gives(&by_row(&logits, softmax))?;
        let ones = by_row(&logits, |row| vec![1.0; row.len()]);
        let sums = by_row(&Array::of(&call.output()?), |row| vec![row.iter().sum(); row.len()]);
        same(&sums.to_tensor(dtype), &ones).context(|| call.describe())?;
        let logarithm = |row: &[f64]| softmax(row).iter().map(|p| p.ln()).collect();
        Call::new("LogSoftmax").array(&logits, dtype).gives(&by_row(&logits, logarithm))
    });
}

#[test]
fn cross_entropy() {
    check("SoftmaxCrossEntropyWithLogits", 60, |random| {
        let [rows, classes] = [random.size(0, 5), random.size(1, 7)];
        let logits = random.array(&[rows, classes], -4, 4);
        let labels = random.array(&[rows, classes], 0, 4).map(|v| v / 4.0);
        let probable = by_row(&logits, softmax);
        let loss = Array::from_fn(&[rows], |row| {
            let term = |c| -labels.at(&[row[0], c]) * probable.at(&[row[0], c]).ln();
            (0..classes).map(term).sum()
        });
        // The gradient assumes that labels sum to one, even if they do not.
        let slope = Array::from_fn(&[rows, classes], |at| probable.at(at) - labels.at(at));
        let dtype = random.pick(&[DType::Float, DType::Double]);
        let call = Call::new("SoftmaxCrossEntropyWithLogits").array(&logits, dtype);
        call.array(&labels, dtype).all_give(&[loss, slope])
    });
}

#[test]
fn cross_entropy_of_one_label() {
    check("SparseSoftmaxCrossEntropyWithLogits", 60, |random| {
        let [rows, classes] = [random.size(1, 5), random.size(1, 7)];
        let logits = random.array(&[rows, classes], -4, 4);
        let labels = random.array(&[rows], 0, classes as i64 - 1);
        let probable = by_row(&logits, softmax);
        let right = |row: usize| labels.at(&[row]) as usize;
        let loss = Array::from_fn(&[rows], |at| -probable.at(&[at[0], right(at[0])]).ln());
        let slope = Array::from_fn(&[rows, classes], |at| {
            probable.at(at) - f64::from(right(at[0]) == at[1])
        });
        let dtype = random.pick(&[DType::Float, DType::Double]);
        let call = Call::new("SparseSoftmaxCrossEntropyWithLogits").array(&logits, dtype);
        call.array(&labels, random.pick(INDICES)).all_give(&[loss, slope])
    });
}
