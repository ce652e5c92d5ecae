//! Gradients of sparse and ragged ops. Only values have gradients: indices, shapes and row splits
//! are integers.

use thalweg_graph::{GradientContext, IndexedSlices, Output};
use thalweg_tensor::{DType, Result, bail};

use crate::gradients::{Arithmetic, conj, set_repeated};

/// The sum of all elements.
fn total(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let (everything, first) = (g.ints(&[-1])?, g.ints(&[0])?);
    let flat = g.add("Reshape", &[x, everything])?;
    g.add("Sum", &[flat, first])
}

/// Column `i` of a matrix.
fn column(g: &mut GradientContext<'_>, matrix: Output, i: i32) -> Result<Output> {
    let (begin, end, steps) = (g.ints(&[0, i])?, g.ints(&[0, i + 1])?, g.ints(&[1, 1])?);
    g.op("StridedSlice")
        .inputs(&[matrix, begin, end, steps])
        .attr("begin_mask", 1i64)
        .attr("end_mask", 1i64)
        .attr("shrink_axis_mask", 2i64)
        .build()
}

/// The number of rows, as a scalar int32.
fn rows(g: &mut GradientContext<'_>, of: Output) -> Result<Output> {
    let shape = g.shape_of(of)?;
    let (begin, end) = (g.ints(&[0])?, g.ints(&[1])?);
    g.op("StridedSlice").inputs(&[shape, begin, end, end]).attr("shrink_axis_mask", 1i64).build()
}

/// 0, 1, .. up to the number of rows of `of`, as int64.
fn row_numbers(g: &mut GradientContext<'_>, of: Output) -> Result<Output> {
    let (zero, one) = (g.number(DType::Int64, 0.0)?, g.number(DType::Int64, 1.0)?);
    let rows = rows(g, of)?;
    let rows = g.cast(rows, DType::Int64)?;
    g.add("Range", &[zero, rows, one])
}

/// The shape of a tensor as a vector of int64.
fn long_shape(g: &mut GradientContext<'_>, of: Output) -> Result<Output> {
    let shape = g.shape_of(of)?;
    g.cast(shape, DType::Int64)
}

pub(crate) fn to_dense(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, values) = (g.grad(0)?, g.input(2));
    let mut indices = g.input(0);
    // A scalar or a vector of indices is a matrix with one column.
    if g.shape(indices).rank() != Some(2) {
        let rank = g.add("Size", &[g.input(1)])?;
        let everything = g.int(-1)?;
        let shape = g.op("Pack").inputs(&[everything, rank]).attr("N", 2i64).build()?;
        indices = g.add("Reshape", &[indices, shape])?;
    }
    let of_values = g.add("GatherNd", &[grad, indices])?;
    let (all, taken) = (total(g, grad)?, total(g, of_values)?);
    let of_default = g.minus(all, taken)?;
    g.set(3, of_default)?;
    match g.shape(values).rank() {
        Some(1) => g.set(2, of_values),
        // A single value may be broadcast.
        _ => set_repeated(g, 2, of_values),
    }
}

pub(crate) fn tensor_dense_add(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let of_values = g.add("GatherNd", &[grad, g.input(0)])?;
    g.set(1, of_values)?;
    g.set(3, grad)
}

/// The coordinates in the dense operand for the coordinates of the sparse one, under broadcasting.
fn partner_indices(g: &mut GradientContext<'_>) -> Result<Output> {
    let (indices, shape, dense) = (g.input(0), g.input(2), g.input(3));
    let dense_shape = long_shape(g, dense)?;
    let (rank, dense_rank) = (g.add("Size", &[shape])?, g.add("Size", &[dense_shape])?);
    let missing = g.minus(rank, dense_rank)?;
    let zero = g.int(0)?;
    let begin = g.op("Pack").inputs(&[zero, missing]).attr("N", 2i64).build()?;
    let everything = g.ints(&[-1, -1])?;
    let columns = g.add("Slice", &[indices, begin, everything])?;
    // Dimensions of size 1 of the dense operand are broadcast.
    let one = g.number(DType::Int64, 1.0)?;
    let is_repeated = g.add("Equal", &[dense_shape, one])?;
    let nothing = g.add("ZerosLike", &[columns])?;
    g.select(is_repeated, nothing, columns)
}

/// Sets the adjoints of the sparse values, and of the dense operand from the adjoint of each value.
fn set_cwise(g: &mut GradientContext<'_>, at: Output, values: Output, dense: Output) -> Result<()> {
    g.set(1, values)?;
    let shape = long_shape(g, g.input(3))?;
    let of_dense = g.add("ScatterNd", &[at, dense, shape])?;
    g.set(3, of_dense)
}

pub(crate) fn cwise_mul(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, at) = (g.grad(0)?, g.input(1), partner_indices(g)?);
    let y = g.add("GatherNd", &[g.input(3), at])?;
    let (of_x, of_y) = (g.times(grad, y)?, g.times(grad, x)?);
    set_cwise(g, at, of_x, of_y)
}

pub(crate) fn cwise_div(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, at) = (g.grad(0)?, g.input(1), partner_indices(g)?);
    let y = g.add("GatherNd", &[g.input(3), at])?;
    let of_x = g.over(grad, y)?;
    let quotient = g.over(x, y)?;
    let slope = g.over(quotient, y)?;
    let lost = g.times(grad, slope)?;
    let of_y = g.negated(lost)?;
    set_cwise(g, at, of_x, of_y)
}

pub(crate) fn add(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, sum) = (g.grad(1)?, g.output(0));
    let (a, b) = (g.input(0), g.input(3));
    let of = g.op("SparseAddGrad").inputs(&[grad, a, b, sum]).build_all()?;
    g.set(1, of[0])?;
    g.set(4, of[1])
}

/// The adjoints of the sum's values are gathered to the values of both operands.
pub(crate) fn add_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let sum = g.input(3);
    let one = g.number(DType::Int64, 1.0)?;
    let numbers = row_numbers(g, sum)?;
    // From 1, since 0 marks values that the sum does not contain.
    let numbers = g.plus(numbers, one)?;
    let (a, b) = (g.input(1), g.input(2));
    let origins = g.op("SparseAddGrad").inputs(&[numbers, a, b, sum]).build_all()?;
    let count = rows(g, sum)?;
    let mut parts = Vec::with_capacity(2);
    for (i, origin) in origins.into_iter().enumerate() {
        let (grad, origin) = (g.grad(i)?, g.minus(origin, one)?);
        parts.push(g.add("UnsortedSegmentSum", &[grad, origin, count])?);
    }
    let adjoint = g.plus(parts[0], parts[1])?;
    g.set(0, adjoint)
}

pub(crate) fn fill_empty_rows(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, map) = (g.grad(1)?, g.output(3));
    let op = format!("{}Grad", g.node().op.name);
    let of = g.op(&op).inputs(&[map, grad]).build_all()?;
    g.set(1, of[0])?;
    g.set(3, of[1])
}

pub(crate) fn reorder(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices, shape) = (g.grad(1)?, g.input(0), g.input(2));
    let numbers = row_numbers(g, indices)?;
    let sorted = g.op("SparseReorder").inputs(&[indices, numbers, shape]).build_all()?;
    let places = g.add("InvertPermutation", &[sorted[1]])?;
    let axis = g.int(0)?;
    let adjoint = g.add("GatherV2", &[grad, places, axis])?;
    g.set(1, adjoint)
}

pub(crate) fn slice(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, cut) = (g.grad(1)?, g.output(0));
    let (indices, start) = (g.input(0), g.input(3));
    let adjoint = g.add("SparseSliceGrad", &[grad, indices, start, cut])?;
    g.set(1, adjoint)
}

pub(crate) fn reduce_sum(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices, shape) = (g.grad(0)?, g.input(0), g.input(2));
    let (zero, one, rank) = (g.int(0)?, g.int(1)?, g.add("Size", &[shape])?);
    let everything = g.ints(&[-1])?;
    let axes = g.add("Reshape", &[g.input(3), everything])?;
    let shifted = g.plus(axes, rank)?;
    let axes = g.add("FloorMod", &[shifted, rank])?;
    let all = g.add("Range", &[zero, rank, one])?;
    let (ones, zeros) = (g.add("OnesLike", &[all])?, g.add("ZerosLike", &[axes])?);
    // 1 for kept dimensions, 0 for summed ones.
    let stays = g.op("DynamicStitch").inputs(&[all, axes, ones, zeros]).attr("N", 2i64).build()?;
    let stays = g.cast(stays, DType::Int64)?;
    let goes = g.number_minus(1.0, stays)?;
    let sizes = g.times(shape, stays)?;
    let sizes = g.plus(sizes, goes)?;
    let kept = g.add("Reshape", &[grad, sizes])?;
    let at = g.times(indices, stays)?;
    let adjoint = g.add("GatherNd", &[kept, at])?;
    g.set(1, adjoint)
}

/// y (grad - sum of y grad over the row).
pub(crate) fn softmax(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let (indices, shape) = (g.input(0), g.input(2));
    let product = g.times(y, grad)?;
    let last = g.ints(&[-1])?;
    let sums = g.add("SparseReduceSum", &[indices, product, shape, last])?;
    let (begin, end, steps) = (g.ints(&[0, 0])?, g.ints(&[0, -1])?, g.ints(&[1, 1])?);
    let at = g
        .op("StridedSlice")
        .inputs(&[indices, begin, end, steps])
        .attr("begin_mask", 3i64)
        .attr("end_mask", 1i64)
        .build()?;
    let sums = g.add("GatherNd", &[sums, at])?;
    let rest = g.minus(grad, sums)?;
    let adjoint = g.times(rest, y)?;
    g.set(1, adjoint)
}

/// The conjugate transpose of a matrix.
fn adjoint_matrix(g: &mut GradientContext<'_>, matrix: Output) -> Result<Output> {
    let order = g.ints(&[1, 0])?;
    let transposed = g.add("Transpose", &[matrix, order])?;
    conj(g, transposed)
}

/// Gradient of `a b`, where each factor is optionally an adjoint.
pub(crate) fn matmul(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let (adjoint_a, adjoint_b) = (g.attrs().bool("adjoint_a")?, g.attrs().bool("adjoint_b")?);
    let (indices, values, shape, b) = (g.input(0), g.input(1), g.input(2), g.input(3));
    let product = g.op("SparseTensorDenseMatMul").inputs(&[indices, values, shape, grad]);
    let of_b = product.attr("adjoint_a", !adjoint_a).build()?;
    let (of_b, b) = match adjoint_b {
        true => (adjoint_matrix(g, of_b)?, adjoint_matrix(g, b)?),
        false => (of_b, b),
    };
    g.set(3, of_b)?;
    // A value at (r, c) multiplies row c of b and adds to row r of the product.
    let (r, c) = (column(g, indices, 0)?, column(g, indices, 1)?);
    let axis = g.int(0)?;
    let (to, from) = if adjoint_a { (c, r) } else { (r, c) };
    let to = g.add("GatherV2", &[grad, to, axis])?;
    let from = g.add("GatherV2", &[b, from, axis])?;
    let (left, right) = if adjoint_a { (from, to) } else { (to, from) };
    let right = conj(g, right)?;
    let (terms, last) = (g.times(left, right)?, g.ints(&[1])?);
    let of_values = g.add("Sum", &[terms, last])?;
    g.set(1, of_values)
}

/// The adjoints of gathered rows are summed into the rows of the values.
pub(crate) fn ragged_gather(g: &mut GradientContext<'_>) -> Result<()> {
    let (splits, outputs) = (g.num_inputs() - 2, g.num_outputs());
    let (grad, values) = (g.grad(outputs - 1)?, g.input(splits));
    let numbers = row_numbers(g, values)?;
    let mut inputs = g.inputs().to_vec();
    inputs[splits] = numbers;
    let attrs = ["PARAMS_RAGGED_RANK", "OUTPUT_RAGGED_RANK"];
    let picked = g.op_like("RaggedGather", &attrs).inputs(&inputs).build_all()?;
    let rows = IndexedSlices {
        values: grad,
        indices: picked[outputs - 1],
        dense_shape: g.shape_of(values)?,
    };
    g.set_rows(splits, rows);
    Ok(())
}

pub(crate) fn ragged_to_sparse(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, values) = (g.grad(1)?, g.num_inputs() - 1);
    let shape = g.shape_of(g.input(values))?;
    let adjoint = g.add("Reshape", &[grad, shape])?;
    g.set(values, adjoint)
}

/// The adjoint of each position of the result goes to the row of values at that position, or to the
/// default.
pub(crate) fn ragged_to_dense(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, values) = (g.grad(0)?, g.input(1));
    let types = g.attrs().strings("row_partition_types")?;
    let ragged = types.iter().filter(|t| &t[..] != b"FIRST_DIM_SIZE").count() as i32 + 1;
    let shape = g.shape_of(g.output(0))?;
    let (begin, size) = (g.ints(&[0])?, g.ints(&[ragged])?);
    let outer = g.add("Slice", &[shape, begin, size])?;
    // The same op applied to row numbers returns the source row of each position.
    let numbers = row_numbers(g, values)?;
    let nowhere = g.number(DType::Int64, -1.0)?;
    let partitions = g.inputs()[3..].to_vec();
    let attrs = ["num_row_partition_tensors", "row_partition_types"];
    let places = g
        .op_like("RaggedTensorToTensor", &attrs)
        .inputs(&[outer, numbers, nowhere])
        .inputs(&partitions)
        .build()?;
    let flat = g.ints(&[-1])?;
    let places = g.add("Reshape", &[places, flat])?;
    let values_shape = g.shape_of(values)?;
    let (begin, size) = (g.ints(&[1])?, g.ints(&[-1])?);
    let element = g.add("Slice", &[values_shape, begin, size])?;
    let axis = g.int(0)?;
    let rows_shape = g.op("ConcatV2").inputs(&[flat, element, axis]).attr("N", 2i64).build()?;
    let grads = g.add("Reshape", &[grad, rows_shape])?;
    let count = rows(g, values)?;
    let of_values = g.add("UnsortedSegmentSum", &[grads, places, count])?;
    g.set(1, of_values)?;
    // Positions without a value form segment 0; the others are dropped.
    let zeros = g.add("ZerosLike", &[places])?;
    let is_value = g.add("GreaterEqual", &[places, zeros])?;
    let ones = g.add("OnesLike", &[places])?;
    let minus_one = g.negated(ones)?;
    let segments = g.select(is_value, minus_one, zeros)?;
    let one = g.int(1)?;
    let defaults = g.add("UnsortedSegmentSum", &[grads, segments, one])?;
    let default = g.add("Reshape", &[defaults, element])?;
    set_repeated(g, 2, default)
}

pub(crate) fn ragged_to_variant(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, values) = (g.grad(0)?, g.num_inputs() - 1);
    let dtype = g.attrs().dtype("Tsplits")?;
    let splits = match values {
        0 => g.number(dtype, 0.0)?,
        _ => g.input(0),
    };
    let shape = g.shape_of(g.input(values))?;
    let adjoint = g
        .op_like("RaggedTensorToVariantGradient", &["Tvalues"])
        .inputs(&[grad, splits, shape])
        .build()?;
    g.set(values, adjoint)
}

pub(crate) fn ragged_from_variant(g: &mut GradientContext<'_>) -> Result<()> {
    let is_batched = match g.shape(g.input(0)).rank() {
        Some(0) => false,
        Some(1) => true,
        _ => bail!(
            InvalidArgument,
            "RaggedTensorFromVariant can only be differentiated if its input is known to be a \
             scalar or a vector"
        ),
    };
    let last = g.num_outputs() - 1;
    let grad = g.grad(last)?;
    let splits: Vec<Output> = (0..last).map(|i| g.output(i)).collect();
    let adjoint = g
        .op_like("RaggedTensorToVariant", &["Tsplits"])
        .inputs(&splits)
        .input(grad)
        .attr("RAGGED_RANK", last as i64)
        .attr("batched_input", is_batched)
        .build()?;
    g.set(0, adjoint)
}
