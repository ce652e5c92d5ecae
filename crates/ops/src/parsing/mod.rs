//! Parsing and decoding ops.

pub(crate) mod compressed;
pub(crate) mod csv;
pub(crate) mod example;
mod features;
pub(crate) mod json;
mod outputs;
pub(crate) mod raw;
pub(crate) mod sequence;
pub(crate) mod serialized_tensor;
mod steps;
pub(crate) mod wav;

use thalweg_kernel::KernelContext;
use thalweg_tensor::{Bytes, Result, Shape, Tensor, charge_string, ensure};

/// The scalar string in input `i`, called `name`.
pub(crate) fn scalar_string(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<Bytes> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be a scalar, got shape {}",
        tensor.shape()
    );
    Ok(tensor.strings()?[0].clone())
}

/// Sets output `i` to a scalar string, which is charged to the session.
pub(crate) fn set_scalar_string(
    ctx: &mut KernelContext<'_>,
    i: usize,
    value: Vec<u8>,
) -> Result<()> {
    ctx.set_output(i, Tensor::scalar_string(charge_string(value, ctx.budget())?))
}

/// The sizes of `shape` followed by `size`.
pub(crate) fn with_last(shape: &Shape, size: usize) -> Result<Shape> {
    let mut dims = shape.dims().to_vec();
    dims.push(size);
    Shape::new(&dims)
}
