//! Accumulation of sparse gradients.
//!
//! Two gradients are merged like sorted lists, even if they are not sorted: the order of rows is
//! TensorFlow's. The mean of a row is over the gradients that contain it.

use std::sync::Arc;

use thalweg_kernel::Outputs;
use thalweg_tensor::{Budget, DType, PartialShape, Result, Shape, Tensor, ensure, f16};

use super::accumulator::vector;
use super::table_rows::copy_row;
use crate::number::Number;

/// The accumulated rows.
pub(super) struct SparseSum {
    indices: Tensor,
    values: Tensor,
    /// For each row, the number of gradients that contain it.
    counts: Tensor,
}

/// The source of a row of a merged sum.
#[derive(Clone, Copy)]
enum Origin {
    Old(usize),
    New(usize),
    Both(usize, usize),
}

impl SparseSum {
    /// Checks a gradient against an accumulator of shape `declared` that contains `before`.
    pub(super) fn check(
        declared: &PartialShape,
        before: Option<&SparseSum>,
        indices: &Tensor,
        values: &Tensor,
        shape: Option<&Tensor>,
    ) -> Result<()> {
        ensure!(
            indices.rank() == 1,
            InvalidArgument,
            "indices must be a vector, got shape {}",
            indices.shape()
        );
        ensure!(
            values.rank() >= 1 && values.shape()[0] == indices.num_elements(),
            InvalidArgument,
            "values of shape {} are not {} rows, as there are indices",
            values.shape(),
            indices.num_elements()
        );
        if let Some(shape) = shape {
            check_shape(declared, shape.as_slice()?)?;
        }
        let dims = declared.dims().unwrap_or_default();
        if let Some(&Some(rows)) = dims.first() {
            for (i, &index) in indices.as_slice::<i64>()?.iter().enumerate() {
                ensure!(
                    index < rows as i64,
                    InvalidArgument,
                    "Shape mismatch: index of slice {i} exceeded limits of shape; index is {index} \
                     exceeded {rows}"
                );
            }
        }
        let rest = &values.shape()[1..];
        if let Some(before) = before {
            ensure!(
                before.values.shape()[1..] == *rest,
                InvalidArgument,
                "Shape mismatch: expected rows of shape {:?}, got {rest:?}",
                &before.values.shape()[1..]
            );
            return Ok(());
        }
        ensure!(
            dims.len() <= values.rank(),
            InvalidArgument,
            "Shape mismatch: expected values rank at least {}, got {}",
            dims.len(),
            values.rank()
        );
        for (i, (dim, &got)) in dims.iter().skip(1).zip(rest).enumerate() {
            ensure!(
                dim.is_none_or(|dim| dim == got),
                InvalidArgument,
                "Shape mismatch: expected values dim {} to be {dim:?}, got {got}",
                i + 1
            );
        }
        Ok(())
    }

    pub(super) fn new(
        indices: &Tensor,
        values: &Tensor,
        budget: &Arc<Budget>,
    ) -> Result<SparseSum> {
        let n = indices.num_elements();
        let mut counts = Tensor::allocate(DType::Int32, vector(n)?, Some(budget))?;
        counts.as_mut_slice::<i32>()?.fill(1);
        let own = |tensor: &Tensor| tensor.deep_copy(Some(budget));
        Ok(SparseSum { indices: own(indices)?, values: own(values)?, counts })
    }

    /// The sum of this sum and another gradient.
    pub(super) fn plus(
        &self,
        indices: &Tensor,
        values: &Tensor,
        budget: &Arc<Budget>,
    ) -> Result<SparseSum> {
        let (old, new) = (self.indices.as_slice::<i64>()?, indices.as_slice::<i64>()?);
        let rows = Merge::of(old, new).count();
        let mut dims = self.values.shape().dims().to_vec();
        dims[0] = rows;
        let mut sum = SparseSum {
            indices: Tensor::allocate(DType::Int64, vector(rows)?, Some(budget))?,
            values: Tensor::allocate(values.dtype(), Shape::new(&dims)?, Some(budget))?,
            counts: Tensor::allocate(DType::Int32, vector(rows)?, Some(budget))?,
        };
        let width = dims[1..].iter().product();
        let before = self.counts.as_slice::<i32>()?;
        for (row, origin) in Merge::of(old, new).enumerate() {
            let (index, count) = match origin {
                Origin::Old(i) => {
                    copy_row(&self.values, i, &mut sum.values, row, width)?;
                    (old[i], before[i])
                }
                Origin::New(j) => {
                    copy_row(values, j, &mut sum.values, row, width)?;
                    (new[j], 1)
                }
                Origin::Both(i, j) => {
                    copy_row(&self.values, i, &mut sum.values, row, width)?;
                    match values.dtype() {
                        DType::Half => add::<f16>(&mut sum.values, row, values, j, width)?,
                        DType::Float => add::<f32>(&mut sum.values, row, values, j, width)?,
                        _ => add::<f64>(&mut sum.values, row, values, j, width)?,
                    }
                    (old[i], before[i].saturating_add(1))
                }
            };
            sum.indices.as_mut_slice::<i64>()?[row] = index;
            sum.counts.as_mut_slice::<i32>()?[row] = count;
        }
        Ok(sum)
    }

    /// Indices, values and shape; `first` is the size of the first dimension, if known.
    pub(super) fn into_outputs(
        mut self,
        is_mean: bool,
        first: Option<Option<usize>>,
        budget: &Arc<Budget>,
    ) -> Result<Outputs> {
        if is_mean {
            self.values.make_unique(Some(budget))?;
            let counts = self.counts.as_slice::<i32>()?;
            match self.values.dtype() {
                DType::Half => {
                    divide(&mut self.values, counts, |c| f16::from_f32(c as f32))?;
                }
                DType::Float => divide(&mut self.values, counts, |c| c as f32)?,
                _ => divide(&mut self.values, counts, f64::from)?,
            }
        }
        let mut shape = self.values.shape().to_i64();
        shape[0] = first.flatten().map_or(-1, |rows| rows as i64);
        let shape = Tensor::vector(&shape)?;
        Ok([self.indices, self.values, shape].into_iter().map(Into::into).collect())
    }
}

fn check_shape(declared: &PartialShape, shape: &[i64]) -> Result<()> {
    let dims = declared.dims().unwrap_or_default();
    ensure!(
        dims.len() <= shape.len(),
        InvalidArgument,
        "Shape mismatch: expected shape rank at least {}, got {}",
        dims.len(),
        shape.len()
    );
    for (i, (dim, &got)) in dims.iter().zip(shape).enumerate() {
        ensure!(
            dim.is_none_or(|dim| dim as i64 == got),
            InvalidArgument,
            "Shape mismatch: expected dim {i} of {declared}, got {got}"
        );
    }
    Ok(())
}

/// Iterates over two lists of indices, merged.
struct Merge<'a> {
    old: &'a [i64],
    new: &'a [i64],
    i: usize,
    j: usize,
}

impl<'a> Merge<'a> {
    fn of(old: &'a [i64], new: &'a [i64]) -> Self {
        Merge { old, new, i: 0, j: 0 }
    }
}

impl Iterator for Merge<'_> {
    type Item = Origin;

    fn next(&mut self) -> Option<Origin> {
        let (i, j) = (self.i, self.j);
        let origin = match (self.old.get(i), self.new.get(j)) {
            (None, None) => return None,
            (Some(old), Some(new)) if old == new => Origin::Both(i, j),
            (Some(old), Some(new)) if old > new => Origin::New(j),
            (Some(_), _) => Origin::Old(i),
            (None, Some(_)) => Origin::New(j),
        };
        self.i += usize::from(!matches!(origin, Origin::New(_)));
        self.j += usize::from(!matches!(origin, Origin::Old(_)));
        Some(origin)
    }
}

fn add<T: Number>(
    sum: &mut Tensor,
    row: usize,
    values: &Tensor,
    j: usize,
    width: usize,
) -> Result<()> {
    let target = &mut sum.as_mut_slice::<T>()?[row * width..(row + 1) * width];
    for (sum, &value) in target.iter_mut().zip(&values.as_slice::<T>()?[j * width..]) {
        *sum = sum.plus(value);
    }
    Ok(())
}

fn divide<T: Number>(values: &mut Tensor, counts: &[i32], number: impl Fn(i32) -> T) -> Result<()> {
    let values = values.as_mut_slice::<T>()?;
    if !counts.is_empty() && !values.is_empty() {
        let width = values.len() / counts.len();
        for (row, &count) in values.chunks_exact_mut(width).zip(counts) {
            row.iter_mut().for_each(|x| *x = x.over(number(count)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn rows(indices: &[i64], values: &[f32]) -> (Tensor, Tensor) {
        let shape = Shape::new(&[indices.len(), values.len() / indices.len().max(1)]).unwrap();
        (Tensor::vector(indices).unwrap(), Tensor::from_slice(shape, values).unwrap())
    }

    fn merged(old: &[i64], new: &[i64]) -> Vec<i64> {
        let at = |origin| match origin {
            Origin::Old(i) | Origin::Both(i, _) => old[i],
            Origin::New(j) => new[j],
        };
        Merge::of(old, new).map(at).collect()
    }

    #[test]
    fn gradients_merge_in_tensorflows_order() {
        assert_eq!(merged(&[0, 3], &[3, 1]), [0, 3, 1]);
        assert_eq!(merged(&[1], &[3, 1, 2]), [1, 3, 1, 2]);
        assert_eq!(merged(&[], &[2, 1]), [2, 1]);
        assert_eq!(merged(&[1, 5], &[0, 5, 9]), [0, 1, 5, 9]);
        let budget = Budget::new(1 << 20);
        let ((i, a), (j, b)) = (rows(&[0, 3], &[1.0, 2.0]), rows(&[3, 4], &[4.0, 5.0]));
        let sum = SparseSum::new(&i, &a, &budget).unwrap().plus(&j, &b, &budget).unwrap();
        let outputs = sum.into_outputs(true, Some(Some(5)), &budget).unwrap();
        let values = outputs[1].tensor().unwrap().as_slice::<f32>().unwrap();
        assert_eq!(values, [1.0, 3.0, 5.0]);
        assert_eq!(outputs[2].tensor().unwrap().as_slice::<i64>().unwrap(), [5, 1]);
    }

    #[test]
    fn gradients_that_do_not_fit_are_refused() {
        let declared = PartialShape::new([Some(4), Some(1)]);
        let scalar = Tensor::scalar(1i64);
        let (i, v) = rows(&[1, 3], &[1.0, 2.0]);
        let check = |i: &Tensor, v: &Tensor, shape: &[i64]| {
            let shape = Tensor::vector(shape).unwrap();
            SparseSum::check(&declared, None, i, v, Some(&shape))
        };
        assert!(check(&i, &v, &[4, 1]).is_ok());
        assert_eq!(code(check(&i, &v, &[4])), Some(Code::InvalidArgument), "too few sizes");
        assert_eq!(code(check(&i, &v, &[5, 1])), Some(Code::InvalidArgument), "another size");
        assert_eq!(
            code(check(&scalar, &v, &[4, 1])),
            Some(Code::InvalidArgument),
            "indices are a vector"
        );
        assert_eq!(
            code(check(&i, &Tensor::scalar(1.0f32), &[4, 1])),
            Some(Code::InvalidArgument),
            "values have rows"
        );
        let (wide, values) = rows(&[1, 3], &[1.0; 4]);
        assert_eq!(
            code(check(&wide, &values, &[4, 1])),
            Some(Code::InvalidArgument),
            "rows are too wide"
        );
        let (far, values) = rows(&[4], &[1.0]);
        assert_eq!(
            code(check(&far, &values, &[4, 1])),
            Some(Code::InvalidArgument),
            "beyond the last row"
        );
    }
}
