//! Shapes in gradient functions: constants if they are known statically, else nodes that compute
//! them.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result, Tensor};

/// The shape of `x` as a vector of `dtype`, an integer type.
pub(crate) fn shape_as(g: &mut GradientContext<'_>, x: Output, dtype: DType) -> Result<Output> {
    if dtype != DType::Int64 {
        let shape = g.shape_of(x)?;
        return g.cast(shape, dtype);
    }
    match g.shape(x).to_shape() {
        Some(shape) => {
            let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
            g.scope().constant(&Tensor::vector(&dims)?)
        }
        None => g.op("Shape").input(x).attr("out_type", DType::Int64).build(),
    }
}

/// `x` reshaped to the shape of `like`.
pub(crate) fn reshaped_like(
    g: &mut GradientContext<'_>,
    x: Output,
    like: Output,
) -> Result<Output> {
    let shape = g.shape_of(like)?;
    g.add("Reshape", &[x, shape])
}

/// `x` flattened to a vector.
pub(crate) fn flat(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let any = g.ints(&[-1])?;
    g.add("Reshape", &[x, any])
}

/// The number of dimensions of `x`, a scalar int32.
pub(crate) fn rank_of(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    match g.shape(x).rank() {
        Some(rank) => g.int(rank as i32),
        None => g.add("Rank", &[x]),
    }
}

/// Slice of a vector: `vector[begin..end]`, or `vector[begin..]`.
pub(crate) fn part(
    g: &mut GradientContext<'_>,
    vector: Output,
    begin: i32,
    end: Option<i32>,
) -> Result<Output> {
    let [from, to, one] = [g.ints(&[begin])?, g.ints(&[end.unwrap_or(0)])?, g.ints(&[1])?];
    let node = g.op("StridedSlice").inputs(&[vector, from, to, one]);
    node.attr("end_mask", i64::from(end.is_none())).build()
}

/// Element `i` of a vector, a scalar.
pub(crate) fn element(g: &mut GradientContext<'_>, vector: Output, i: i32) -> Result<Output> {
    let [from, to, one] = [g.ints(&[i])?, g.ints(&[i + 1])?, g.ints(&[1])?];
    let node = g.op("StridedSlice").inputs(&[vector, from, to, one]);
    node.attr("shrink_axis_mask", 1i64).build()
}

/// Size of the first dimension of `x`, a scalar int32.
pub(crate) fn first_size(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let known = g.shape(x).dims().and_then(|d| d.first().copied().flatten());
    match known.and_then(|size| i32::try_from(size).ok()) {
        Some(size) => g.int(size),
        None => {
            let shape = g.shape_of(x)?;
            element(g, shape, 0)
        }
    }
}

/// Concatenates vectors.
pub(crate) fn joined(g: &mut GradientContext<'_>, vectors: &[Output]) -> Result<Output> {
    let axis = g.int(0)?;
    g.op("ConcatV2").inputs(vectors).input(axis).build()
}

/// `x` with dimensions of size 1 appended until it has the rank of `like`, so that it broadcasts
/// along the first dimensions.
pub(crate) fn as_leading(g: &mut GradientContext<'_>, x: Output, like: Output) -> Result<Output> {
    let (shape, rank) = (g.shape(x), g.shape(like).rank());
    if let (Some(of_x), Some(rank)) = (shape.rank(), rank) {
        if of_x >= rank {
            return Ok(x);
        }
        let missing = vec![1; rank - of_x];
        let (dims, ones) = (g.shape_of(x)?, g.ints(&missing)?);
        let target = joined(g, &[dims, ones])?;
        return g.add("Reshape", &[x, target]);
    }
    let (of_x, rank, one) = (rank_of(g, x)?, rank_of(g, like)?, g.int(1)?);
    let missing = g.add("Sub", &[rank, of_x])?;
    let missing = flat(g, missing)?;
    let (dims, ones) = (g.shape_of(x)?, g.add("Fill", &[missing, one])?);
    let target = joined(g, &[dims, ones])?;
    g.add("Reshape", &[x, target])
}
