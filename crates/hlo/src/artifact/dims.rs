//! Dimensions of results, where the module leaves them open.

use smallvec::SmallVec;
use thalweg_tensor::{Result, Shape, ensure, err};

use super::known::{integer, positions, required};
use super::module::Operation;
use super::tables::Type;
use crate::value::{Dims, Value};
use crate::window::window_positions;

/// Whether the operation is one of those that modules may use: those without a rule of their own here have
/// results of the shape of operand 0.
const SHAPED_AS_FIRST: &[&str] = &[
    "abs",
    "add",
    "and",
    "atan2",
    "cbrt",
    "ceil",
    "cholesky",
    "compare",
    "complex",
    "convert",
    "cosine",
    "count_leading_zeros",
    "divide",
    "dynamic_update_slice",
    "exponential",
    "exponential_minus_one",
    "floor",
    "imag",
    "is_finite",
    "log",
    "log_plus_one",
    "logistic",
    "map",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "popcnt",
    "power",
    "real",
    "reduce_precision",
    "remainder",
    "reverse",
    "round_nearest_afz",
    "round_nearest_even",
    "rsqrt",
    "select_and_scatter",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sine",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "xor",
];
/// Operations whose results have the shapes of their operands, one by one.
const SHAPED_AS_EACH: &[&str] = &["sort", "scatter"];
/// Operations whose results have shapes that the module always says, or that their rule computes.
const OTHERS: &[&str] = &[
    "bitcast_convert",
    "broadcast_in_dim",
    "clamp",
    "concatenate",
    "convolution",
    "dot_general",
    "dynamic_slice",
    "fft",
    "gather",
    "iota",
    "pad",
    "reduce",
    "reduce_window",
    "reshape",
    "rng_bit_generator",
    "select",
    "slice",
    "transpose",
    "triangular_solve",
];

/// Whether modules may use an operation that needs no treatment of its own.
pub(super) fn is_plain(name: &str) -> bool {
    [SHAPED_AS_FIRST, SHAPED_AS_EACH, OTHERS].iter().any(|list| list.contains(&name))
}

/// Dimensions of the results of a plain operation.
pub(super) fn result_dims(op: &Operation, operands: &[Value]) -> Result<Vec<Dims>> {
    op.results
        .iter()
        .enumerate()
        .map(|(i, (_, ty))| {
            let Type::Tensor(_, declared) = &**ty else {
                return Err(err!(Unimplemented, "{} makes {}", op.name, describe(ty)));
            };
            let declared: Option<Dims> = declared.iter().copied().collect();
            let dims = match declared {
                Some(dims) => dims,
                None => inferred(op, i, operands)?,
            };
            // Products of dimensions must not overflow.
            Shape::new(&dims)?;
            Ok(dims)
        })
        .collect()
}

/// What a type is, for messages.
pub(super) fn describe(ty: &Type) -> String {
    match ty {
        Type::Other(what) => (*what).to_owned(),
        Type::Token => "a token".to_owned(),
        Type::Element(_) => "a number that is no tensor".to_owned(),
        Type::Tensor(element, dims) => {
            let dim = |d: &Option<usize>| d.map_or("?".to_owned(), |d| d.to_string());
            let dims: Vec<String> = dims.iter().map(dim).collect();
            format!("{element:?}[{}]", dims.join(","))
        }
    }
}

fn inferred(op: &Operation, result: usize, operands: &[Value]) -> Result<Dims> {
    let of = |i: usize| {
        let operand = operands.get(i).map(|v| v.dims.clone());
        operand.ok_or_else(|| err!(InvalidArgument, "{} has no operand {i}", op.name))
    };
    match op.name.as_str() {
        name if SHAPED_AS_FIRST.contains(&name) => of(0),
        name if SHAPED_AS_EACH.contains(&name) => of(result),
        "clamp" | "select" | "triangular_solve" => of(1),
        "bitcast_convert" => {
            let same = operands.first().filter(|v| {
                matches!(&*op.results[0].1, Type::Tensor(super::tables::Element::Known(dtype), _)
                    if dtype.size() == v.dtype.size())
            });
            same.map(|v| v.dims.clone()).ok_or_else(|| not_inferred(op))
        }
        "transpose" => {
            let dims = of(0)?;
            let permutation = positions(op, "permutation", dims.len())?;
            Ok(permutation.into_iter().map(|p| dims[p]).collect())
        }
        "reduce" => {
            let dims = of(0)?;
            let reduced = positions(op, "dimensions", dims.len())?;
            let kept = dims.iter().enumerate().filter(|(i, _)| !reduced.contains(i));
            Ok(kept.map(|(_, &d)| d).collect())
        }
        "concatenate" => {
            let mut dims = of(0)?;
            let axis = usize::try_from(integer(op, "dimension")?).unwrap_or(usize::MAX);
            ensure!(axis < dims.len(), InvalidArgument, "concatenate along dimension {axis}");
            dims[axis] = operands.iter().filter_map(|v| v.dims.get(axis)).sum();
            Ok(dims)
        }
        "pad" => padded(op, &of(0)?),
        "slice" => sliced(op),
        "dynamic_slice" => sizes(op, "slice_sizes"),
        "dot_general" => product(op, &of(0)?, &of(1)?),
        "gather" => gathered(op, &of(1)?, &sizes(op, "slice_sizes")?),
        "reduce_window" => windows(op, &of(0)?),
        "convolution" => convolved(op, &of(0)?, &of(1)?, &required(op, "padding")?),
        "fft" => transformed(op, of(0)?),
        _ => Err(not_inferred(op)),
    }
}

fn not_inferred(op: &Operation) -> thalweg_tensor::Error {
    err!(
        Unimplemented,
        "the shape of a result of {} cannot be found from the arguments; export the model with static shapes",
        op.name
    )
}

fn sizes(op: &Operation, name: &str) -> Result<Dims> {
    let size = |x: i64| {
        usize::try_from(x).map_err(|_| err!(InvalidArgument, "'{name}' of {} has {x}", op.name))
    };
    required(op, name)?.into_iter().map(size).collect()
}

fn padded(op: &Operation, dims: &[usize]) -> Result<Dims> {
    let [low, high, interior] = ["edge_padding_low", "edge_padding_high", "interior_padding"]
        .map(|name| required(op, name));
    let (low, high, interior) = (low?, high?, interior?);
    padded_by(dims, &low, &high, &interior)
}

/// Dimensions after padding.
pub(super) fn padded_by(
    dims: &[usize],
    low: &[i64],
    high: &[i64],
    interior: &[i64],
) -> Result<Dims> {
    let dim = |i: usize| {
        let size = i64::try_from(dims[i]).ok()?;
        let inside = (size - 1).max(0).checked_mul(*interior.get(i)?)?.checked_add(size)?;
        let total = inside.checked_add(*low.get(i)?)?.checked_add(*high.get(i)?)?;
        usize::try_from(total).ok()
    };
    let padded: Option<Dims> = (0..dims.len()).map(dim).collect();
    padded.ok_or_else(|| {
        err!(InvalidArgument, "{dims:?} cannot be padded by {low:?}, {high:?} and {interior:?}")
    })
}

fn sliced(op: &Operation) -> Result<Dims> {
    let (starts, limits) = (sizes(op, "start_indices")?, sizes(op, "limit_indices")?);
    let strides = sizes(op, "strides")?;
    let dims: Option<Dims> = (0..starts.len())
        .map(|i| {
            let stride = strides.get(i).filter(|s| **s > 0)?;
            Some(limits.get(i)?.checked_sub(starts[i])?.div_ceil(*stride))
        })
        .collect();
    dims.ok_or_else(|| err!(InvalidArgument, "slice from {starts:?} to {limits:?} by {strides:?}"))
}

fn product(op: &Operation, left: &[usize], right: &[usize]) -> Result<Dims> {
    let of = |name: &str, rank: usize| positions(op, name, rank);
    let batch = of("lhs_batching_dimensions", left.len())?;
    let right_batch = of("rhs_batching_dimensions", right.len())?;
    let contracted = of("lhs_contracting_dimensions", left.len())?;
    let right_contracted = of("rhs_contracting_dimensions", right.len())?;
    let rest = |dims: &[usize], a: &[usize], b: &[usize]| -> Vec<usize> {
        let others = (0..dims.len()).filter(|i| !a.contains(i) && !b.contains(i));
        others.map(|i| dims[i]).collect()
    };
    let mut dims: Dims = batch.iter().map(|&b| left[b]).collect();
    dims.extend(rest(left, &batch, &contracted));
    dims.extend(rest(right, &right_batch, &right_contracted));
    Ok(dims)
}

/// Dimensions of slices of these sizes at indices of these dimensions.
pub(super) fn gathered(op: &Operation, indices: &[usize], sizes: &[usize]) -> Result<Dims> {
    let optional = |name: &str| match op.attr(name) {
        Some(_) => positions(op, name, sizes.len()),
        None => Ok(Vec::new()),
    };
    let dropped = [optional("collapsed_slice_dims")?, optional("operand_batching_dims")?].concat();
    let vector_dim = integer(op, "index_vector_dim")?;
    let mut batches = (0..indices.len()).filter(|&i| i as i64 != vector_dim).map(|i| indices[i]);
    let mut windows = (0..sizes.len()).filter(|i| !dropped.contains(i)).map(|i| sizes[i]);
    let offsets = required(op, "offset_dims")?;
    let rank = batches.clone().count() + offsets.len();
    let dims: Option<Dims> = (0..rank)
        .map(|i| if offsets.contains(&(i as i64)) { windows.next() } else { batches.next() })
        .collect();
    dims.ok_or_else(|| err!(InvalidArgument, "gather makes slices that do not fit its result"))
}

fn windows(op: &Operation, dims: &[usize]) -> Result<Dims> {
    let size = required(op, "window_dimensions")?;
    let [strides, base, dilations] =
        ["window_strides", "base_dilations", "window_dilations"].map(|name| required(op, name));
    let padding = required(op, "padding")?;
    windowed(dims, &size, &strides?, &padding, (&base?, &dilations?))
}

/// Dimensions of the positions of a window.
fn windowed(
    dims: &[usize],
    size: &[i64],
    strides: &[i64],
    padding: &[i64],
    dilations: (&[i64], &[i64]),
) -> Result<Dims> {
    let all = window_positions(dims, size, strides, padding, dilations);
    all.ok_or_else(|| err!(InvalidArgument, "windows of size {size:?} do not fit {dims:?}"))
}

/// Dimensions of a convolution; `padding` holds pairs.
pub(super) fn convolved(
    op: &Operation,
    input: &[usize],
    kernel: &[usize],
    padding: &[i64],
) -> Result<Dims> {
    let rank = input.len();
    let at = |name: &str| -> Result<usize> {
        let position = usize::try_from(integer(op, name)?).ok().filter(|p| *p < rank);
        position.ok_or_else(|| err!(InvalidArgument, "'{name}' of {} is too large", op.name))
    };
    ensure!(kernel.len() == rank, InvalidArgument, "a convolution of {input:?} and {kernel:?}");
    let pick =
        |dims: &[usize], at: Vec<usize>| -> Vec<usize> { at.iter().map(|&i| dims[i]).collect() };
    let space = pick(input, positions(op, "input_spatial_dimensions", rank)?);
    let window = pick(kernel, positions(op, "kernel_spatial_dimensions", rank)?);
    let output = positions(op, "output_spatial_dimensions", rank)?;
    let size: Vec<i64> = window.iter().map(|&d| d as i64).collect();
    let [strides, base, dilations] =
        ["window_strides", "lhs_dilation", "rhs_dilation"].map(|name| required(op, name));
    let moved = windowed(&space, &size, &strides?, padding, (&base?, &dilations?))?;
    let groups = usize::try_from(integer(op, "batch_group_count")?).ok().filter(|g| *g > 0);
    let groups = groups.ok_or_else(|| err!(InvalidArgument, "a convolution without batches"))?;
    let mut dims: Dims = SmallVec::from_elem(0, rank);
    dims[at("output_batch_dimension")?] = input[at("input_batch_dimension")?] / groups;
    dims[at("output_feature_dimension")?] = kernel[at("kernel_output_feature_dimension")?];
    for (to, size) in output.into_iter().zip(moved) {
        dims[to] = size;
    }
    Ok(dims)
}

fn transformed(op: &Operation, mut dims: Dims) -> Result<Dims> {
    let lengths = sizes(op, "fft_length")?;
    let kind = match op.attr("fft_type") {
        Some(super::tables::Attr::Enum(_, kind)) => *kind,
        _ => return Err(not_inferred(op)),
    };
    if let (Some(last), Some(&length)) = (dims.last_mut(), lengths.last()) {
        match kind {
            2 => *last = length / 2 + 1,
            3 => *last = length,
            _ => {}
        }
    }
    Ok(dims)
}
