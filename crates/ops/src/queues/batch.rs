//! Stacking queue elements into batches, and unstacking.

use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_tensor::{Budget, DType, PartialShape, Result, Shape, Tensor, ensure};

use crate::cells::Cell;
use crate::strided::strides;

/// The shape of a batch of `count` elements; unknown sizes count as zero.
pub(crate) fn batch_shape(count: usize, element: &PartialShape) -> Result<Shape> {
    let dims = element.dims().unwrap_or_default().iter().map(|d| d.unwrap_or(0));
    let dims: SmallVec<[usize; 6]> = std::iter::once(count).chain(dims).collect();
    Shape::new(&dims)
}

/// Row `index` of a batch, without the batch dimension.
pub(crate) fn row(batch: &Tensor, index: usize, budget: &Arc<Budget>) -> Result<Tensor> {
    let shape = Shape::new(batch.shape().get(1..).unwrap_or_default())?;
    batch.rows(index, 1, Some(budget))?.reshaped(shape)
}

/// Stacks elements of one dtype; smaller ones are zero-padded where `shape` has unknown sizes.
pub(crate) fn stack<'a>(
    elements: impl ExactSizeIterator<Item = &'a Tensor> + Clone,
    dtype: DType,
    shape: &PartialShape,
    budget: &Arc<Budget>,
) -> Result<Tensor> {
    let mut dims: SmallVec<[usize; 6]> = SmallVec::from_slice(&batch_shape(elements.len(), shape)?);
    let mut is_even = true;
    for element in elements.clone() {
        ensure!(
            element.rank() + 1 == dims.len() && element.dtype() == dtype,
            Internal,
            "{element:?} is not an element of {dtype} and shape {shape}"
        );
        for (dim, &size) in dims[1..].iter_mut().zip(element.shape().iter()) {
            *dim = (*dim).max(size);
        }
    }
    for element in elements.clone() {
        is_even &= dims[1..] == *element.shape().dims();
    }
    let shape = Shape::new(&dims)?;
    let mut batch = if is_even || dtype == DType::Resource {
        Tensor::blank_in(dtype, shape, Some(budget))?
    } else {
        Tensor::zeros_in(dtype, shape, Some(budget))?
    };
    let row: usize = dims[1..].iter().product();
    if row > 0 {
        with_cell!(dtype, C => {
            let rows = C::view_mut(&mut batch)?.chunks_exact_mut(row);
            for (target, element) in rows.zip(elements) {
                copy_into::<C>(C::view(element)?, element.shape(), target, &dims[1..]);
            }
        });
    }
    Ok(batch)
}

/// Copies an array to the origin of a larger one.
fn copy_into<C: Cell>(source: &[C], source_dims: &[usize], target: &mut [C], dims: &[usize]) {
    if source_dims == dims {
        target.clone_from_slice(source);
        return;
    }
    let (Some((&run, outer)), false) = (source_dims.split_last(), source.is_empty()) else {
        return;
    };
    let distances = strides(dims);
    for (i, run) in source.chunks_exact(run).enumerate() {
        let (mut rest, mut start) = (i, 0);
        for (&size, &distance) in outer.iter().zip(&distances).rev() {
            start += rest % size * distance;
            rest /= size;
        }
        target[start..start + run.len()].clone_from_slice(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn ints(dims: &[usize], values: &[i32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    #[test]
    fn uneven_elements_are_filled_up() {
        let budget = Budget::new(1 << 20);
        let open = PartialShape::of_rank(2);
        let elements = [
            ints(&[1, 3], &[1, 2, 3]),
            ints(&[2, 1], &[4, 5]),
            ints(&[0, 2], &[]),
            ints(&[1, 1], &[6]),
        ];
        let batch = stack(elements.iter(), DType::Int32, &open, &budget).unwrap();
        assert_eq!(batch.shape().dims(), [4, 2, 3]);
        assert_eq!(
            batch.as_slice::<i32>().unwrap(),
            [1, 2, 3, 0, 0, 0, 4, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0]
        );
        assert_eq!(row(&batch, 1, &budget).unwrap().as_slice::<i32>().unwrap(), [4, 0, 0, 5, 0, 0]);
        let none: [Tensor; 0] = [];
        let empty = stack(none.iter(), DType::Int32, &open, &budget).unwrap();
        assert_eq!(empty.shape().dims(), [0, 0, 0]);
    }

    #[test]
    fn strings_and_scalars() {
        let budget = Budget::new(1 << 20);
        let words = [Tensor::scalar_string("a"), Tensor::scalar_string("b")];
        let batch = stack(words.iter(), DType::String, &PartialShape::scalar(), &budget).unwrap();
        assert_eq!(batch.strings().unwrap(), ["a", "b"]);
        assert_eq!(
            code(stack(words.iter(), DType::String, &PartialShape::of_rank(1), &budget)),
            Some(Code::Internal),
            "queues check shapes before"
        );
    }
}
