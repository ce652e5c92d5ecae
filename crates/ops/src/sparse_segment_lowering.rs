//! Lowering of sparse segment reductions whose number of segments is known.

use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use crate::rows_lowering::{gathered, scattered};
use crate::sparse_segment::Scale;

/// Data or its gradient in the dtype of sums, indices, and segment ids as a column.
fn inputs(l: &Lowering<'_>) -> Result<(Value, Value, Value)> {
    let (data, indices, ids) = (l.input(0)?, l.input(1)?, l.input(2)?);
    ensure!(
        data.rank() >= 1 && indices.rank() == 1 && ids.dims() == indices.dims(),
        InvalidArgument,
        "segment_ids and indices should have same size, are {:?} and {:?}",
        ids.dims(),
        indices.dims()
    );
    let is_narrow = matches!(data.dtype(), DType::Half | DType::BFloat16);
    let data = if is_narrow { data.convert(DType::Float) } else { data };
    Ok((data, indices, ids))
}

/// The factor of each segment, by the number of its rows.
fn factors(data: &Value, ids: &Value, segments: usize, scale: Scale) -> Result<Value> {
    let one = data.splat(data.dtype(), ids.dims(), 1.0);
    let none = data.splat(data.dtype(), &[segments], 0.0);
    let rows = scattered(&none, &ids.expand(1), &one, Value::plus)?;
    let rows = rows.maximum(&rows.scalar_like(1.0));
    let rows = if scale == Scale::SqrtN { rows.sqrt() } else { rows };
    Ok(rows.reciprocal())
}

/// Sums gathered rows by segment, and scales the sums.
pub(crate) fn combine(l: &mut Lowering<'_>, scale: Scale) -> Result<()> {
    let (data, indices, ids) = inputs(l)?;
    let dims = l.output_dims(0)?;
    let rows = gathered(&data, &indices, 0, 0);
    let none = data.splat(data.dtype(), &dims, 0.0);
    let mut sums = scattered(&none, &ids.expand(1), &rows, Value::plus)?;
    if scale != Scale::None {
        sums = sums * factors(&data, &ids, dims[0], scale)?.broadcast_in(&dims, &[0]);
    }
    l.set(0, sums.convert(l.output_dtype(0)))
}

/// Adds the scaled row of each segment to the rows that it was summed from.
pub(crate) fn spread(l: &mut Lowering<'_>, scale: Scale) -> Result<()> {
    let (mut grad, indices, ids) = inputs(l)?;
    let dims = l.output_dims(0)?;
    if scale != Scale::None {
        let factors = factors(&grad, &ids, grad.dims()[0], scale)?;
        grad = &grad * factors.broadcast_in(grad.dims(), &[0]);
    }
    let rows = gathered(&grad, &ids, 0, 0);
    let none = grad.splat(grad.dtype(), &dims, 0.0);
    let sums = scattered(&none, &indices.expand(1), &rows, Value::plus)?;
    l.set(0, sums.convert(l.output_dtype(0)))
}
