//! Concatenation of the tensors of several requests, with padding, and splitting of the answers.

use std::sync::Arc;

use thalweg_tensor::{Budget, Context, DType, Result, Shape, Tensor, ensure};

/// How tensors are concatenated.
#[derive(Clone, Copy)]
pub(crate) struct JoinOptions<'a> {
    /// The rows of the result; missing rows are copies of the last one.
    ///
    /// Padding with a real row avoids inputs of zeros, which some models cannot process.
    pub(crate) rows: usize,
    /// Whether tensors whose dimensions beyond the first differ are padded to one shape, as
    /// TensorFlow Serving's `pad_variable_length_inputs` does: each with its own first element.
    pub(crate) pads: bool,
    /// The budget that the result is charged to.
    pub(crate) budget: &'a Arc<Budget>,
}

/// Concatenates rows. Memory is allocated once, and not at all for a single tensor that needs no
/// padding.
pub(crate) fn join(parts: &[Tensor], options: JoinOptions<'_>) -> Result<Tensor> {
    let first = &parts[0];
    if parts.len() == 1 && first.shape().first() == Some(&options.rows) {
        return Ok(first.clone());
    }
    let dims = joined_dims(parts, options)?;
    let shape = Shape::new(&dims)?;
    let allocation = || format!("{} requests as one tensor of shape {shape}", parts.len());
    if first.dtype() == DType::String {
        return join_strings(parts, shape.clone(), options.budget).context(allocation);
    }
    let size = first.dtype().size();
    let filled = Tensor::filled_with(
        first.dtype(),
        shape.clone(),
        Some(options.budget),
        |whole: &mut [u8]| {
            let row_bytes = whole.len() / options.rows.max(1);
            let mut at = 0;
            for part in parts {
                let end = at + part.shape()[0] * row_bytes;
                put(part.as_bytes()?, part.shape().dims(), size, &mut whole[at..end], &dims);
                at = end;
            }
            while row_bytes > 0 && at < whole.len() {
                whole.copy_within(at - row_bytes..at, at);
                at += row_bytes;
            }
            Ok(())
        },
    );
    filled.context(allocation)
}

/// The shape of the result, which holds every part.
fn joined_dims(parts: &[Tensor], options: JoinOptions<'_>) -> Result<Vec<usize>> {
    let first = &parts[0];
    let mut dims = first.shape().dims().to_vec();
    for part in &parts[1..] {
        ensure!(
            part.rank() == dims.len() && part.dtype() == first.dtype(),
            InvalidArgument,
            "{} {} and {} {} cannot be rows of one batch",
            first.dtype(),
            first.shape(),
            part.dtype(),
            part.shape()
        );
        for (largest, &dim) in dims.iter_mut().zip(part.shape().iter()).skip(1) {
            ensure!(
                options.pads || *largest == dim,
                InvalidArgument,
                "shapes {} and {} cannot be rows of one batch",
                first.shape(),
                part.shape()
            );
            *largest = (*largest).max(dim);
        }
    }
    for part in parts {
        ensure!(
            part.num_elements() > 0 || part.shape()[1..] == dims[1..],
            InvalidArgument,
            "an input of shape {} has no element to pad it with to {dims:?}",
            part.shape()
        );
    }
    if let Some(rows) = dims.first_mut() {
        *rows = options.rows;
    }
    Ok(dims)
}

/// Copies a part to its position in the result; where the part is narrower, its first element fills
/// the rest.
fn put(part: &[u8], narrow: &[usize], size: usize, whole: &mut [u8], wide: &[usize]) {
    if narrow[1..] == wide[1..] {
        whole.copy_from_slice(part);
        return;
    }
    whole[..size].copy_from_slice(&part[..size]);
    let mut filled = size;
    while filled < whole.len() {
        let more = filled.min(whole.len() - filled);
        whole.copy_within(..more, filled);
        filled += more;
    }
    for (from, to, run) in runs(narrow, wide) {
        whole[to * size..(to + run) * size].copy_from_slice(&part[from * size..][..run * size]);
    }
}

/// Contiguous runs of elements of a tensor within a wider one: offset in each, and length.
fn runs<'a>(
    narrow: &'a [usize],
    wide: &'a [usize],
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    let last = narrow.len() - 1;
    let run = narrow[last];
    let count: usize = narrow[..last].iter().product();
    (0..count).map(move |index| {
        let (mut rest, mut to, mut stride) = (index, 0, wide[last]);
        for axis in (0..last).rev() {
            to += rest % narrow[axis] * stride;
            rest /= narrow[axis];
            stride *= wide[axis];
        }
        (index * run, to, run)
    })
}

fn join_strings(parts: &[Tensor], shape: Shape, budget: &Arc<Budget>) -> Result<Tensor> {
    let wide = shape.dims().to_vec();
    let row: usize = wide[1..].iter().product();
    let mut whole = Tensor::zeros_in(DType::String, shape, Some(budget))?;
    let items = whole.strings_mut()?;
    let mut at = 0;
    for part in parts {
        let (from, narrow) = (part.strings()?, part.shape().dims());
        let to = &mut items[at..at + narrow[0] * row];
        at += to.len();
        if narrow[1..] == wide[1..] {
            to.clone_from_slice(from);
            continue;
        }
        to.fill(from[0].clone());
        for (begin, place, run) in runs(narrow, &wide) {
            to[place..place + run].clone_from_slice(&from[begin..begin + run]);
        }
    }
    while row > 0 && at < items.len() {
        let (filled, rest) = items.split_at_mut(at);
        rest[..row].clone_from_slice(&filled[at - row..]);
        at += row;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use thalweg_tensor::Code;

    use super::*;

    fn floats(rows: usize, columns: usize, values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(&[rows, columns]).unwrap(), values).unwrap()
    }

    fn words(columns: usize, items: &[&'static str]) -> Tensor {
        let items = items.iter().map(|s| Bytes::from_static(s.as_bytes())).collect::<Vec<_>>();
        let shape = Shape::new(&[items.len() / columns, columns]).unwrap();
        Tensor::from_strings(shape, items).unwrap()
    }

    fn joined(parts: &[Tensor], rows: usize, pads: bool) -> Result<Tensor> {
        join(parts, JoinOptions { rows, pads, budget: &Budget::new(1 << 20) })
    }

    #[test]
    fn rows_are_joined_and_filled_up() {
        let parts = [floats(1, 2, &[1.0, 2.0]), floats(2, 2, &[3.0, 4.0, 5.0, 6.0])];
        let whole = joined(&parts, 5, false).unwrap();
        assert_eq!(whole.shape().dims(), [5, 2]);
        let expected = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 5.0, 6.0, 5.0, 6.0];
        assert_eq!(whole.as_slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn one_full_part_is_not_copied() {
        let part = floats(2, 1, &[1.0, 2.0]);
        let whole = joined(std::slice::from_ref(&part), 2, true).unwrap();
        assert!(whole.shares_memory_with(&part));
    }

    #[test]
    fn strings_and_empty_rows_are_joined() {
        let whole = joined(&[words(1, &["a"]), words(1, &["b"])], 4, false).unwrap();
        assert_eq!(whole.strings().unwrap(), ["a", "b", "b", "b"]);
        assert_eq!(joined(&[floats(2, 0, &[])], 4, true).unwrap().shape().dims(), [4, 0]);
    }

    #[test]
    fn different_widths_are_padded_with_their_first_element() {
        let parts = [floats(1, 2, &[1.0, 2.0]), floats(2, 1, &[3.0, 4.0])];
        let whole = joined(&parts, 4, true).unwrap();
        assert_eq!(whole.shape().dims(), [4, 2]);
        assert_eq!(whole.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 3.0, 4.0, 3.0, 4.0, 3.0]);
        let whole = joined(&[words(2, &["a", "b"]), words(1, &["c", "d"])], 3, true).unwrap();
        assert_eq!(whole.strings().unwrap(), ["a", "b", "c", "c", "d", "c"]);
        let deep = |dims: &[usize], from: i32| {
            let shape = Shape::new(dims).unwrap();
            let values: Vec<i32> = (from..).take(shape.num_elements()).collect();
            Tensor::from_slice(shape, &values).unwrap()
        };
        let whole = joined(&[deep(&[1, 1, 3], 1), deep(&[1, 2, 2], 5)], 2, true).unwrap();
        let expected = [1, 2, 3, 1, 1, 1, 5, 6, 5, 7, 8, 5];
        assert_eq!(whole.as_slice::<i32>().unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_joined_is_named() {
        let one = floats(1, 1, &[1.0]);
        for (other, pads, words) in [
            (Tensor::vector(&[1.0f32]).unwrap(), true, "float [1,1] and float [1]"),
            (floats(1, 2, &[1.0, 2.0]), false, "shapes [1,1] and [1,2]"),
            (floats(1, 0, &[]), true, "no element to pad"),
            (words(1, &["a"]), true, "float [1,1] and string [1,1]"),
        ] {
            let error = joined(&[one.clone(), other], 2, pads).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn a_batch_is_charged_once_and_bounded() {
        let budget = Budget::new(1000);
        let parts = [floats(1, 50, &[0.0; 50]), floats(2, 1, &[0.0; 2])];
        let options = JoinOptions { rows: 3, pads: true, budget: &budget };
        let whole = join(&parts, options).unwrap();
        assert!((600..1000).contains(&budget.used_bytes()), "{}", budget.used_bytes());
        drop(whole);
        assert_eq!(budget.used_bytes(), 0);
        let error = join(&parts, JoinOptions { rows: 1000, ..options }).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert!(error.message().contains("2 requests as one tensor of shape [1000,50]"), "{error}");
        let texts = [words(1, &["a"]), words(1, &["b"])];
        assert_eq!(
            join(&texts, JoinOptions { rows: 1000, ..options }).err().map(|e| e.code()),
            Some(Code::ResourceExhausted)
        );
        assert_eq!(budget.used_bytes(), 0);
    }
}
