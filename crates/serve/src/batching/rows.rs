//! Tensors of several requests as one, and the answers taken apart again.

use std::sync::Arc;

use thalweg_tensor::{Budget, DType, Result, Shape, Tensor, ensure};

/// The tensors' rows one after the other, then copies of the last row up to `rows` in all.
///
/// Filling up with a row that is real keeps models whole that would choke on zeros.
pub(crate) fn join(parts: &[Tensor], rows: usize, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
    let first = &parts[0];
    if parts.len() == 1 && first.shape().first() == Some(&rows) {
        return Ok(first.clone());
    }
    let mut dims = first.shape().dims().to_vec();
    dims[0] = rows;
    let shape = Shape::new(&dims)?;
    if first.dtype() == DType::String {
        return join_strings(parts, shape);
    }
    Tensor::filled_with(first.dtype(), shape, budget, |bytes| {
        let row_bytes = bytes.len() / rows.max(1);
        let mut at = 0;
        for part in parts {
            let part = part.as_bytes()?;
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        while row_bytes > 0 && at < bytes.len() {
            bytes.copy_within(at - row_bytes..at, at);
            at += row_bytes;
        }
        Ok(())
    })
}

fn join_strings(parts: &[Tensor], shape: Shape) -> Result<Tensor> {
    let mut items = Vec::with_capacity(shape.num_elements());
    for part in parts {
        items.extend_from_slice(part.strings()?);
    }
    let row = shape[1..].iter().product::<usize>();
    while row > 0 && items.len() < shape.num_elements() {
        items.extend_from_within(items.len() - row..);
    }
    Tensor::from_strings(shape, items)
}

/// Pads tensors that differ in other dimensions than the first to one shape, with zeros or empty
/// strings: TensorFlow Serving's `pad_variable_length_inputs`.
pub(crate) fn pad_alike(parts: &mut [Tensor]) -> Result<()> {
    let mut widest = parts[0].shape().dims().to_vec();
    for part in parts.iter() {
        ensure!(
            part.rank() == widest.len(),
            InvalidArgument,
            "inputs of one batch have {} and {} dimensions",
            widest.len(),
            part.rank()
        );
        for (most, &dim) in widest.iter_mut().zip(part.shape().iter()).skip(1) {
            *most = (*most).max(dim);
        }
    }
    for part in parts {
        widest[0] = part.shape()[0];
        if part.shape().dims() != widest {
            *part = padded(part, &widest)?;
        }
    }
    Ok(())
}

fn padded(tensor: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let mut wide = Tensor::zeros(tensor.dtype(), Shape::new(dims)?)?;
    let narrow = tensor.shape().dims();
    if narrow.contains(&0) {
        return Ok(wide);
    }
    // Runs of the last dimension lie together in both.
    let run = narrow[narrow.len() - 1];
    let runs: usize = narrow[..narrow.len() - 1].iter().product();
    let place = |mut index: usize| {
        let (mut at, mut stride) = (0, dims[dims.len() - 1]);
        for axis in (0..narrow.len() - 1).rev() {
            at += index % narrow[axis] * stride;
            index /= narrow[axis];
            stride *= dims[axis];
        }
        at
    };
    if tensor.dtype() == DType::String {
        let (from, to) = (tensor.strings()?, wide.strings_mut()?);
        for index in 0..runs {
            let at = place(index);
            to[at..at + run].clone_from_slice(&from[index * run..][..run]);
        }
        return Ok(wide);
    }
    let size = tensor.dtype().size();
    let from = tensor.as_bytes()?;
    Tensor::filled_with(tensor.dtype(), Shape::new(dims)?, None, |to| {
        to.fill(0);
        for index in 0..runs {
            let at = place(index) * size;
            to[at..at + run * size].copy_from_slice(&from[index * run * size..][..run * size]);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn floats(rows: usize, columns: usize, values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(&[rows, columns]).unwrap(), values).unwrap()
    }

    #[test]
    fn rows_are_joined_and_filled_up() {
        let parts = [floats(1, 2, &[1.0, 2.0]), floats(2, 2, &[3.0, 4.0, 5.0, 6.0])];
        let joined = join(&parts, 5, None).unwrap();
        assert_eq!(joined.shape().dims(), [5, 2]);
        let expected = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0];
        assert_eq!(joined.as_slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn one_full_part_is_not_copied() {
        let part = floats(2, 1, &[1.0, 2.0]);
        assert!(join(std::slice::from_ref(&part), 2, None).unwrap().shares_memory_with(&part));
    }

    #[test]
    fn strings_and_empty_rows_are_joined() {
        let words = |items: &[&'static str]| {
            let items = items.iter().map(|s| Bytes::from_static(s.as_bytes())).collect::<Vec<_>>();
            Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
        };
        let joined = join(&[words(&["a"]), words(&["b"])], 4, None).unwrap();
        assert_eq!(joined.strings().unwrap(), ["a", "b", "b", "b"]);
        assert_eq!(join(&[floats(2, 0, &[])], 4, None).unwrap().shape().dims(), [4, 0]);
    }

    #[test]
    fn different_widths_are_padded() {
        let mut parts = [floats(1, 2, &[1.0, 2.0]), floats(2, 1, &[3.0, 4.0])];
        pad_alike(&mut parts).unwrap();
        assert_eq!(parts[0].as_slice::<f32>().unwrap(), [1.0, 2.0]);
        assert_eq!(parts[1].as_slice::<f32>().unwrap(), [3.0, 0.0, 4.0, 0.0]);
        let mut ranks = [floats(1, 1, &[1.0]), Tensor::vector(&[1.0f32]).unwrap()];
        assert!(pad_alike(&mut ranks).is_err());
    }
}
