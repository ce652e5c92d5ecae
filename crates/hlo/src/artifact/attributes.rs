//! Attributes of operations as StableHLO's generic form writes them.

use thalweg_tensor::{DType, Result, bail, err};

use super::known::{integer, numbers, required};
use super::module::Operation;
use super::tables::{Attr, Element, Type};
use crate::program::Body;
use crate::value::array;

/// The attributes between the braces; may be empty. `operand` is the dtype of the first operand.
pub(super) fn text(op: &Operation, body: &Body, operand: DType) -> Result<String> {
    match op.name.as_str() {
        "dot_general" => Ok(format!(
            "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {:?}, \
             rhs_batching_dimensions = {:?}, lhs_contracting_dimensions = {:?}, \
             rhs_contracting_dimensions = {:?}>{}",
            required(op, "lhs_batching_dimensions")?,
            required(op, "rhs_batching_dimensions")?,
            required(op, "lhs_contracting_dimensions")?,
            required(op, "rhs_contracting_dimensions")?,
            precision(op, body, operand),
        )),
        "gather" => gather(op, &required(op, "slice_sizes")?),
        "scatter" => scatter(op),
        "convolution" => convolution(op, body, operand, &required(op, "padding")?),
        _ => plain(op),
    }
}

/// Attributes that mean the same under the same name.
fn plain(op: &Operation) -> Result<String> {
    let Attr::Dictionary(all) = &*op.attrs else { return Ok(String::new()) };
    let mut texts = Vec::new();
    for (name, attr) in all {
        // Names come from the file.
        let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name || matches!(name.as_str(), "result_accuracy" | "operandSegmentSizes") {
            continue;
        }
        let value = match &**attr {
            Attr::Int(x, bits) => format!("{x} : i{bits}"),
            Attr::Bool(x) => x.to_string(),
            // No type of comparison.
            Attr::Enum(4, 0) => continue,
            Attr::Enum(kind, value) => enumeration(*kind, *value)
                .ok_or_else(|| err!(Unimplemented, "'{name}' of {} is {value}", op.name))?,
            Attr::Tensor(ty, _) => tensor(op, name, ty)?,
            Attr::Array(all) if all.is_empty() => continue,
            _ => bail!(Unimplemented, "{} has an attribute '{name}' that is not read", op.name),
        };
        texts.push(format!("{name} = {value}"));
    }
    Ok(texts.join(", "))
}

/// Lists of numbers are arrays if they have one dimension.
fn tensor(op: &Operation, name: &str, ty: &Type) -> Result<String> {
    let numbers = required(op, name)?;
    match ty {
        Type::Tensor(Element::Known(DType::Int64), dims) if dims.len() == 1 => Ok(array(&numbers)),
        Type::Tensor(Element::Known(DType::Bool), dims) if dims.len() == 1 => Ok(flags(&numbers)),
        Type::Tensor(Element::Known(DType::Int64), dims) if dims.len() == 2 => Ok(pairs(&numbers)),
        _ => bail!(Unimplemented, "{} has an attribute '{name}' that is not read", op.name),
    }
}

fn flags(numbers: &[i64]) -> String {
    let all: Vec<String> = numbers.iter().map(|x| (*x != 0).to_string()).collect();
    if all.is_empty() { "array<i1>".into() } else { format!("array<i1: {}>", all.join(", ")) }
}

/// Padding before and after each dimension.
fn pairs(numbers: &[i64]) -> String {
    let pairs: Vec<String> = numbers.chunks(2).map(|pair| format!("{pair:?}")).collect();
    match pairs.len() {
        0 => "dense<> : tensor<0x2xi64>".to_owned(),
        n => format!("dense<[{}]> : tensor<{n}x2xi64>", pairs.join(", ")),
    }
}

fn enumeration(kind: u64, value: u64) -> Option<String> {
    let (name, values): (&str, &[&str]) = match kind {
        3 => ("comparison_direction", &["EQ", "NE", "GE", "GT", "LE", "LT"]),
        4 => ("comparison_type", &["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"]),
        7 => ("fft_type", &["FFT", "IFFT", "RFFT", "IRFFT"]),
        11 => ("precision", &["DEFAULT", "HIGH", "HIGHEST"]),
        12 => ("rng_algorithm", &["default", "three_fry", "philox"]),
        16 => ("transpose", &["transpose_invalid", "no_transpose", "transpose", "adjoint"]),
        _ => return None,
    };
    let value = values.get(usize::try_from(value).ok()?)?;
    Some(format!("#stablehlo<{name} {}>", value.to_uppercase()))
}

/// The precision of a product: the module's, or the program's where the module has the default.
fn precision(op: &Operation, body: &Body, operand: DType) -> String {
    let own = match op.attr("precision_config") {
        Some(Attr::Array(all)) => all
            .iter()
            .map(|attr| match &**attr {
                Attr::Enum(11, value @ 1..) => enumeration(11, *value),
                _ => None,
            })
            .collect::<Option<Vec<String>>>()
            .filter(|all| all.len() == 2),
        _ => None,
    };
    let text =
        own.map_or_else(|| body.precision_text(operand), |all| format!("[{}]", all.join(", ")));
    format!(", precision_config = {text}")
}

/// Numbers of an attribute that older modules lack.
fn optional(op: &Operation, name: &str) -> Vec<i64> {
    numbers(op, name).unwrap_or_default()
}

/// Attributes of a gather of slices of these sizes.
pub(super) fn gather(op: &Operation, sizes: &[i64]) -> Result<String> {
    Ok(format!(
        "dimension_numbers = #stablehlo.gather<offset_dims = {:?}, collapsed_slice_dims = {:?}, \
         operand_batching_dims = {:?}, start_indices_batching_dims = {:?}, start_index_map = {:?}, \
         index_vector_dim = {}>, indices_are_sorted = {}, slice_sizes = {}",
        required(op, "offset_dims")?,
        required(op, "collapsed_slice_dims")?,
        optional(op, "operand_batching_dims"),
        optional(op, "start_indices_batching_dims"),
        required(op, "start_index_map")?,
        integer(op, "index_vector_dim")?,
        is_set(op, "indices_are_sorted"),
        array(sizes)
    ))
}

fn scatter(op: &Operation) -> Result<String> {
    Ok(format!(
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {:?}, \
         inserted_window_dims = {:?}, input_batching_dims = {:?}, \
         scatter_indices_batching_dims = {:?}, scatter_dims_to_operand_dims = {:?}, \
         index_vector_dim = {}>, indices_are_sorted = {}, unique_indices = {}",
        required(op, "update_window_dims")?,
        required(op, "inserted_window_dims")?,
        optional(op, "input_batching_dims"),
        optional(op, "scatter_indices_batching_dims"),
        required(op, "scatter_dims_to_operand_dims")?,
        integer(op, "index_vector_dim")?,
        is_set(op, "indices_are_sorted"),
        is_set(op, "unique_indices"),
    ))
}

fn is_set(op: &Operation, name: &str) -> bool {
    matches!(op.attr(name), Some(Attr::Bool(true)))
}

/// Attributes of a convolution with this padding, as pairs.
pub(super) fn convolution(
    op: &Operation,
    body: &Body,
    operand: DType,
    padding: &[i64],
) -> Result<String> {
    let order = |side: &str, names: [(&str, &str); 2], space: &str| -> Result<String> {
        let space = required(op, &format!("{side}_{space}"))?;
        let mut labels = vec![String::new(); space.len() + 2];
        let spatial = space.iter().enumerate().map(|(i, &at)| (at, i.to_string()));
        let mut all: Vec<(i64, String)> = spatial.collect();
        for (name, label) in names {
            all.push((integer(op, &format!("{side}_{name}_dimension"))?, label.to_owned()));
        }
        for (at, label) in all {
            let slot = usize::try_from(at).ok().and_then(|at| labels.get_mut(at));
            *slot.ok_or_else(|| err!(InvalidArgument, "{} has no dimension {at}", op.name))? =
                label;
        }
        Ok(labels.join(", "))
    };
    let space = "spatial_dimensions";
    Ok(format!(
        "dimension_numbers = #stablehlo.conv<[{}]x[{}]->[{}]>, window_strides = {}, padding = {}, \
         lhs_dilation = {}, rhs_dilation = {}, window_reversal = {}, \
         feature_group_count = {} : i64, batch_group_count = {} : i64{}",
        order("input", [("batch", "b"), ("feature", "f")], space)?,
        order("kernel", [("input_feature", "i"), ("output_feature", "o")], space)?,
        order("output", [("batch", "b"), ("feature", "f")], space)?,
        array(&required(op, "window_strides")?),
        pairs(padding),
        array(&required(op, "lhs_dilation")?),
        array(&required(op, "rhs_dilation")?),
        flags(&required(op, "window_reversal")?),
        integer(op, "feature_group_count")?,
        integer(op, "batch_group_count")?,
        precision(op, body, operand),
    ))
}
