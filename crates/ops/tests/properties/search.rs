//! Finding, sorting and counting.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

#[test]
fn finds_what_is_not_zero() {
    check("Where", 60, |random| {
        let dims = random.dims(1, 5, 3);
        let array = random.array(&dims, -1, 1);
        let found: Vec<Vec<usize>> =
            indices(&dims).into_iter().filter(|index| array.at(index) != 0.0).collect();
        let expected = Array::vector(&signed(&found.concat())).reshaped(&[found.len(), dims.len()]);
        let dtype = random.pick(&[DType::Bool, DType::Float, DType::Int32, DType::Int64]);
        Call::new("Where").array(&array, dtype).gives(&expected)
    });
}

#[test]
fn the_largest_few() {
    check("TopKV2", 80, |random| {
        let mut dims = random.few_dims(1, 3, 4);
        let last = dims.len() - 1;
        dims[last] = if random.once_in(5) { random.size(50, 300) } else { random.size(1, 12) };
        let k = random.size(0, dims[last]);
        let array = random.array(&dims, -5, 5);
        let (mut values, mut places) = (Vec::new(), Vec::new());
        for row in array.values.chunks(dims[last]) {
            let mut order: Vec<usize> = (0..row.len()).collect();
            // Of equal elements the one with the lower index comes first.
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            values.extend(order[..k].iter().map(|&i| row[i]));
            places.extend(order[..k].iter().map(|&i| i as f64));
        }
        dims[last] = k;
        let expected = [Array { dims: dims.clone(), values }, Array { dims, values: places }];
        let call = Call::new("TopKV2").array(&array, random.pick(NUMBERS));
        call.scalar(k as i64, DType::Int32).all_give(&expected)
    });
}

#[test]
fn bounds() {
    for op in ["LowerBound", "UpperBound"] {
        check(op, 60, |random| {
            let [rows, sorted, wanted] = [random.size(1, 3), random.size(0, 9), random.size(0, 5)];
            let mut array = random.array(&[rows, sorted], -5, 5);
            array.values.chunks_mut(sorted.max(1)).for_each(|row| row.sort_by(f64::total_cmp));
            let values = random.array(&[rows, wanted], -6, 6);
            let expected = Array::from_fn(&[rows, wanted], |index| {
                let value = values.at(index);
                let row = (0..sorted).map(|i| array.at(&[index[0], i]));
                row.filter(|&v| v < value || (op == "UpperBound" && v == value)).count() as f64
            });
            let dtype = random.pick(&[DType::Float, DType::Double, DType::Int32, DType::Int64]);
            let call = Call::new(op).array(&array, dtype).array(&values, dtype);
            call.attr("out_type", random.pick(INDICES)).gives(&expected)
        });
    }
}

#[test]
fn buckets() {
    check("Bucketize", 60, |random| {
        let mut bounds: Vec<f32> =
            (0..random.size(0, 6)).map(|_| random.between(-9, 9) as f32).collect();
        bounds.sort_by(f32::total_cmp);
        let dims = random.dims(0, 3, 4);
        let array = random.array(&dims, -10, 10);
        let expected = array.map(|v| bounds.iter().filter(|&&b| f64::from(b) <= v).count() as f64);
        let dtype = random.pick(&[DType::Float, DType::Double, DType::Int32, DType::Int64]);
        let call = Call::new("Bucketize").array(&array, dtype);
        call.attr("boundaries", &bounds[..]).gives(&expected)
    });
}

#[test]
fn permutations() {
    check("InvertPermutation", 40, |random| {
        let size = random.size(0, 12);
        let order = random.permutation(size);
        let mut inverse = vec![0; order.len()];
        for (place, &value) in order.iter().enumerate() {
            inverse[value] = place;
        }
        let call = Call::new("InvertPermutation").sizes(&order, random.pick(INDICES));
        call.gives(&Array::vector(&signed(&inverse)))
    });
}

#[test]
fn histograms() {
    check("Bincount", 40, |random| {
        let size = random.size(0, 6);
        let count = random.size(0, 12);
        let values = random.array(&[count], 0, 8);
        // Values out of range are not counted.
        let counts: Vec<i64> = (0..size)
            .map(|bin| values.values.iter().filter(|&&v| v == bin as f64).count() as i64)
            .collect();
        let call = Call::new("Bincount").array(&values, DType::Int32);
        let call = call.scalar(size as i64, DType::Int32);
        let none = Array::vector(&[]);
        call.array(&none, random.pick(&[DType::Int32, DType::Float])).gives(&Array::vector(&counts))
    });
}
