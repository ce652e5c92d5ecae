//! Lowering of ops on shapes.

use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, RANK_MAX, Result, Shape, Tensor, ensure, err};

use crate::reshape::{joint_sizes, resolve, summed_axes};

pub(crate) fn reshape(l: &mut Lowering<'_>) -> Result<()> {
    let (x, sizes) = (l.input(0)?, l.host(1)?);
    ensure!(sizes.rank() <= 1, InvalidArgument, "sizes input must be 1-D, not {}", sizes.shape());
    let shape = resolve(&l.ints(1)?, &Shape::new(x.dims())?)?;
    l.set(0, x.reshape(&shape))
}

/// Reshapes to the dimensions that the shape function found.
pub(crate) fn to_output_dims(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?, l.output_dims(0)?);
    l.set(0, x.reshape(&dims))
}

pub(crate) fn shapes(l: &mut Lowering<'_>) -> Result<()> {
    for i in 0..l.num_inputs() {
        let dims: Vec<i64> = l.input_dims(i)?.iter().map(|&d| d as i64).collect();
        l.set_host(i, ints(l.output_dtype(i), &dims, false)?)?;
    }
    Ok(())
}

pub(crate) fn rank(l: &mut Lowering<'_>) -> Result<()> {
    let rank = l.input_dims(0)?.len() as i64;
    l.set_host(0, ints(l.output_dtype(0), &[rank], true)?)
}

pub(crate) fn size(l: &mut Lowering<'_>) -> Result<()> {
    let elements = Shape::new(&l.input_dims(0)?)?.num_elements() as i64;
    l.set_host(0, ints(l.output_dtype(0), &[elements], true)?)
}

pub(crate) fn broadcast_to(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?, l.output_dims(0)?);
    l.set(0, x.broadcast_to(&dims))
}

pub(crate) fn broadcast_args(l: &mut Lowering<'_>) -> Result<()> {
    let (a, b) = two_shapes(l)?;
    l.set_host(0, ints(l.output_dtype(0), &joint_sizes(&a, &b)?, false)?)
}

pub(crate) fn broadcast_gradient_args(l: &mut Lowering<'_>) -> Result<()> {
    let (a, b) = two_shapes(l)?;
    for (i, axes) in summed_axes(&a, &b)?.iter().enumerate() {
        l.set_host(i, ints(l.output_dtype(i), axes, false)?)?;
    }
    Ok(())
}

fn two_shapes(l: &Lowering<'_>) -> Result<(Vec<i64>, Vec<i64>)> {
    let (a, b) = (l.ints(0)?, l.ints(1)?);
    let rank = a.len().max(b.len());
    ensure!(rank <= RANK_MAX, InvalidArgument, "rank {rank} exceeds {RANK_MAX}");
    Ok((a, b))
}

/// Sizes or indices as a vector, or as a scalar.
pub(crate) fn ints(dtype: DType, values: &[i64], is_scalar: bool) -> Result<Tensor> {
    let shape = if is_scalar { Shape::scalar() } else { Shape::new(&[values.len()])? };
    if dtype == DType::Int64 {
        return Tensor::from_slice(shape, values);
    }
    let narrow = |&value: &i64| {
        i32::try_from(value)
            .map_err(|_| err!(InvalidArgument, "{value} does not fit the 32-bit output type"))
    };
    Tensor::from_slice(shape, &values.iter().map(narrow).collect::<Result<Vec<i32>>>()?)
}
