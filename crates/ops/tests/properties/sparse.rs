//! Sparse tensors compared with dense ones.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

/// The indices and values of nonzero elements.
fn sparse_of(array: &Array) -> (Array, Array) {
    let found: Vec<Vec<usize>> =
        indices(&array.dims).into_iter().filter(|index| array.at(index) != 0.0).collect();
    let values: Vec<f64> = found.iter().map(|index| array.at(index)).collect();
    let places = Array::vector(&signed(&found.concat())).reshaped(&[found.len(), array.rank()]);
    (places, Array { dims: vec![values.len()], values })
}

/// A mostly zero array.
fn thin(random: &mut Random, dims: &[usize]) -> Array {
    random.array(dims, -9, 9).map(|v| if v.abs() > 5.0 { v } else { 0.0 })
}

/// Adds the three parts of a sparse tensor to a call.
fn with_sparse(call: Call, array: &Array, dtype: DType) -> Call {
    let (places, values) = sparse_of(array);
    let call = call.array(&places, DType::Int64).array(&values, dtype);
    call.sizes(&array.dims, DType::Int64)
}

#[test]
fn dense_to_sparse_and_back() {
    check("SparseToDense of Where", 60, |random| {
        let dims = random.dims(1, 4, 4);
        let given = thin(random, &dims).to_tensor(random.pick(&[
            DType::Float,
            DType::Double,
            DType::Int32,
            DType::Int64,
        ]));
        let places = Call::new("Where").tensor(given.clone()).output()?;
        let values = Call::new("GatherNd").tensor(given.clone()).tensor(places.clone()).output()?;
        let call = Call::new("SparseToDense").tensor(places).sizes(&dims, DType::Int64);
        call.tensor(values).scalar(0, given.dtype()).gives_back(&given)
    });
}

#[test]
fn sums_of_sparse_tensors() {
    check("SparseAdd", 60, |random| {
        let dims = random.dims(1, 4, 3);
        let (a, b) = (thin(random, &dims), thin(random, &dims));
        let dtype = random.pick(&[DType::Float, DType::Double, DType::Int32, DType::Int64]);
        let call = with_sparse(with_sparse(Call::new("SparseAdd"), &a, dtype), &b, dtype);
        // Values below the threshold are dropped.
        let call = call.scalar(1, dtype);
        let sum = Array::from_fn(&dims, |index| a.at(index) + b.at(index));
        let (places, values) = sparse_of(&sum);
        call.all_give(&[places, values, Array::vector(&signed(&dims))])?;
        let call = with_sparse(Call::new("SparseTensorDenseAdd"), &a, dtype);
        call.array(&b, dtype).gives(&sum)
    });
}

#[test]
fn order_of_sparse_tensors() {
    check("SparseReorder", 60, |random| {
        let dims = random.dims(1, 4, 4);
        let (places, values) = sparse_of(&thin(random, &dims));
        let order = random.permutation(values.values.len());
        let shuffled_places = Array::from_fn(&places.dims, |at| places.at(&[order[at[0]], at[1]]));
        let shuffled_values = Array::from_fn(&values.dims, |at| values.at(&[order[at[0]]]));
        let call = Call::new("SparseReorder").array(&shuffled_places, DType::Int64);
        let call = call.array(&shuffled_values, random.pick(&[DType::Float, DType::Int32]));
        call.sizes(&dims, DType::Int64).all_give(&[places, values])
    });
}

#[test]
fn products_with_dense_matrices() {
    check("SparseTensorDenseMatMul", 60, |random| {
        let [m, k, n] = [random.size(1, 6), random.size(1, 6), random.size(0, 6)];
        let (a_over, b_over) = (random.flag(), random.flag());
        let stored = |r, c, over| if over { [c, r] } else { [r, c] };
        let a = thin(random, &stored(m, k, a_over));
        let b = random.array(&stored(k, n, b_over), -3, 3);
        let expected = Array::from_fn(&[m, n], |at| {
            let a_at = |i| a.at(&stored(at[0], i, a_over));
            (0..k).map(|i| a_at(i) * b.at(&stored(i, at[1], b_over))).sum()
        });
        let dtype = random.pick(&[DType::Float, DType::Double, DType::Int32]);
        let call = with_sparse(Call::new("SparseTensorDenseMatMul"), &a, dtype).array(&b, dtype);
        call.attr("adjoint_a", a_over).attr("adjoint_b", b_over).gives(&expected)
    });
}

#[test]
fn sums_over_axes() {
    check("SparseReduceSum", 50, |random| {
        let dims = random.dims(1, 4, 4);
        let array = thin(random, &dims);
        let (axis, written) = random.axis(dims.len());
        let mut left = dims.clone();
        left.remove(axis);
        let expected = Array::from_fn(&left, |index| {
            let element = |i| array.at(&[&index[..axis], &[i], &index[axis..]].concat());
            (0..dims[axis]).map(element).sum()
        });
        let call = with_sparse(Call::new("SparseReduceSum"), &array, DType::Float);
        call.ints(&[written], DType::Int32).gives(&expected)
    });
}

#[test]
fn concatenations_of_sparse_tensors() {
    check("SparseConcat", 50, |random| {
        let mut dims = random.dims(1, 3, 4);
        let (axis, written) = random.axis(dims.len());
        let parts: Vec<Array> = (0..random.size(2, 3))
            .map(|_| {
                dims[axis] = random.size(1, 3);
                thin(random, &dims)
            })
            .collect();
        let dtype = random.pick(&[DType::Float, DType::Int64]);
        let whole = {
            let call = parts.iter().fold(Call::new("ConcatV2"), |c, p| c.array(p, dtype));
            let call = call.scalar(written, DType::Int32).attr("N", parts.len() as i64);
            Array::of(&call.output()?)
        };
        let split: Vec<(Array, Array)> = parts.iter().map(sparse_of).collect();
        let mut call = Call::new("SparseConcat");
        for (places, _) in &split {
            call = call.array(places, DType::Int64);
        }
        for (_, values) in &split {
            call = call.array(values, dtype);
        }
        for part in &parts {
            call = call.sizes(&part.dims, DType::Int64);
        }
        let (places, values) = sparse_of(&whole);
        let call = call.attr("concat_dim", written).attr("N", parts.len() as i64);
        call.all_give(&[places, values, Array::vector(&signed(&whole.dims))])
    });
}
