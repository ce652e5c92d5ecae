//! Lowering of ops that read and change rows and points of variables: each costs what it touches, as the
//! memory of the variable is donated to its new value.
//!
//! An index out of range selects zeros, and its update is left out, as by TensorFlow's GPU kernels.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{Code, DType, Result, ensure};

use crate::gather::has_lenient_policy;
use crate::rows_lowering::{gathered, gathered_points, scattered};
use crate::scatter::Update;
use crate::variable_rows::batch_dimensions;

/// The dtypes of variables whose rows have minima and maxima, by the names of the ops' attrs.
pub(crate) const ORDERED: &[(&str, &[DType])] = &[("T", REALS)];
pub(crate) const RESOURCE_ORDERED: &[(&str, &[DType])] = &[("dtype", REALS)];

const REALS: &[DType] = &[
    DType::Half,
    DType::BFloat16,
    DType::Float,
    DType::Double,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
];

/// What the variable of input `i` holds; `missing` is the code if it is behind a handle and nothing has
/// assigned it.
pub(crate) fn held(l: &Lowering<'_>, i: usize, missing: Code) -> Result<Value> {
    l.read_variable(i).map_err(|e| match l.node().op.inputs.get(i).is_some_and(|arg| !arg.is_ref) {
        true => e.with_code(missing),
        false => e,
    })
}

/// Combines rows of updates, or one scalar, with rows of a variable.
pub(crate) fn scatter_rows(
    l: &mut Lowering<'_>,
    combine: fn(&Value, &Value) -> Value,
) -> Result<()> {
    let (value, indices, updates) = (held(l, 0, Code::NotFound)?, l.input(1)?, l.input(2)?);
    if indices.num_elements() > 0 {
        ensure!(value.rank() > 0, InvalidArgument, "params must be at least 1-D, got a scalar");
        check_dtypes(&value, &updates)?;
        let wanted = [indices.dims(), &value.dims()[1..]].concat();
        ensure!(
            updates.rank() == 0 || *updates.dims() == wanted,
            InvalidArgument,
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got \
             updates.shape {:?}, indices.shape {:?}, params.shape {:?}",
            updates.dims(),
            indices.dims(),
            value.dims()
        );
        let rows = updates.broadcast_to(&wanted);
        let points = indices.expand(indices.rank());
        l.assign_variable(0, scattered(&value, &points, &rows, combine)?)?;
    }
    forward_reference(l)
}

/// Combines slices of updates with those of a variable that rows of indices select.
pub(crate) fn scatter_points(l: &mut Lowering<'_>, update: Update) -> Result<()> {
    has_lenient_policy(&l.attrs())?;
    let (value, indices, updates) = (held(l, 0, Code::NotFound)?, l.input(1)?, l.input(2)?);
    check_dtypes(&value, &updates)?;
    let scattered = scattered(&value, &indices, &updates, |x, y| update.lower(x, y))?;
    l.assign_variable(0, scattered)?;
    forward_reference(l)
}

fn check_dtypes(value: &Value, updates: &Value) -> Result<()> {
    ensure!(
        value.dtype() == updates.dtype(),
        InvalidArgument,
        "the variable is {}, the updates {}",
        value.dtype(),
        updates.dtype()
    );
    Ok(())
}

/// Output 0, if there is one, is the reference to the variable.
pub(crate) fn forward_reference(l: &mut Lowering<'_>) -> Result<()> {
    if l.node().outputs.is_empty() { Ok(()) } else { l.forward(0, 0) }
}

/// Gathers rows; the first `batch_dims` dimensions are shared with the indices.
pub(crate) fn gather_rows(l: &mut Lowering<'_>) -> Result<()> {
    let (value, indices) = (held(l, 0, Code::NotFound)?, l.input(1)?);
    let batch = batch_dimensions(l.attrs().int("batch_dims")?, indices.rank())?;
    ensure!(
        batch < value.rank() && value.dims()[..batch] == indices.dims()[..batch],
        InvalidArgument,
        "params.shape {:?} and indices.shape {:?} must agree in their first {batch} dimensions, and \
         params have one more",
        value.dims(),
        indices.dims()
    );
    l.set(0, gathered(&value, &indices, batch, batch))
}

pub(crate) fn gather_points(l: &mut Lowering<'_>) -> Result<()> {
    let (value, indices) = (held(l, 0, Code::NotFound)?, l.input(1)?);
    ensure!(value.rank() >= 1, InvalidArgument, "params must be at least a vector");
    l.set(0, gathered_points(&value, &indices)?)
}
