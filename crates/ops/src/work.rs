//! The work of products, convolutions, windows and decompositions, which more than the number of
//! elements determines.

use smallvec::SmallVec;
use thalweg_graph::{Work, WorkContext};
use thalweg_tensor::DType;

/// Operations of a product of two numbers and its addition to a sum.
fn multiply_add(c: &WorkContext<'_>) -> f64 {
    match c.output_dtype(0) {
        Some(DType::Complex64 | DType::Complex128) => 8.0,
        _ => 2.0,
    }
}

/// A product of matrices: a row times a column for each element.
pub(crate) fn matrix_product(c: &WorkContext<'_>) -> Work {
    let attrs = c.attrs();
    let transposed = attrs.bool("transpose_a").or_else(|_| attrs.bool("adj_x")).unwrap_or(false);
    let dims = c.input_dims(0);
    let inner = dims.iter().rev().nth(usize::from(transposed)).copied().unwrap_or(1.0);
    Work::of(c, multiply_add(c) * inner * c.output_elements(0))
}

/// A contraction of two tensors of which only the sizes matter. With one batch, the sizes are
/// `m * k`, `k * n` and `m * n`, and the product of the three is `(m * n * k)^2`.
pub(crate) fn contraction(c: &WorkContext<'_>) -> Work {
    let sizes = c.input_elements(0) * c.input_elements(1) * c.output_elements(0);
    Work::of(c, multiply_add(c) * sizes.sqrt())
}

/// Einstein summation: a step for each combination of all labels.
pub(crate) fn einsum(c: &WorkContext<'_>) -> Work {
    let Ok(equation) = c.attrs().string("equation") else { return Work::moves(c) };
    let terms = equation.split("->").next().unwrap_or_default().split(',');
    let mut sizes: SmallVec<[(char, f64); 8]> = SmallVec::new();
    let mut broadcast = 1.0f64;
    for (i, term) in terms.enumerate() {
        let dims = c.input_dims(i);
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let labels = |text: &str| text.chars().filter(|l| l.is_alphabetic()).collect::<Vec<_>>();
        let (before, after) = (labels(before), labels(after));
        let middle = before.len()..dims.len().saturating_sub(after.len()).max(before.len());
        broadcast = broadcast.max(dims.get(middle).unwrap_or_default().iter().product());
        let last = dims.iter().rev().zip(after.iter().rev());
        for (&size, &label) in dims.iter().zip(&before).chain(last) {
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                Some((_, known)) => *known = known.max(size),
                None => sizes.push((label, size)),
            }
        }
    }
    let steps = sizes.iter().map(|(_, size)| size).product::<f64>() * broadcast;
    Work::of(c, if c.inputs() > 1 { multiply_add(c) * steps } else { steps })
}

/// A product of a sparse matrix (`indices`, `values`) and a dense one.
pub(crate) fn sparse_product(c: &WorkContext<'_>) -> Work {
    let columns = c.output_dims(0).last().copied().unwrap_or(1.0);
    Work::of(c, multiply_add(c) * c.input_elements(1) * columns)
}

/// A convolution: the filter's part for one output channel times a window, for each element.
pub(crate) fn convolution(c: &WorkContext<'_>) -> Work {
    convolved(c, c.output_elements(0), &c.input_dims(1))
}

/// The adjoint of a convolution's input: as much work as the convolution.
pub(crate) fn convolution_to_input(c: &WorkContext<'_>) -> Work {
    convolved(c, c.input_elements(2), &c.input_dims(1))
}

/// The adjoint of a convolution's filter: as much work as the convolution.
pub(crate) fn convolution_to_filter(c: &WorkContext<'_>) -> Work {
    convolved(c, c.input_elements(2), &c.output_dims(0))
}

fn convolved(c: &WorkContext<'_>, elements: f64, filter: &[f64]) -> Work {
    let window = filter.split_last().map_or(1.0, |(_, window)| window.iter().product());
    Work::of(c, 2.0 * window * elements)
}

/// A window of the size of the filter's first two dimensions, for each element of the result.
pub(crate) fn depthwise(c: &WorkContext<'_>) -> Work {
    windows(c, c.output_elements(0), &c.input_dims(1))
}

/// The adjoint of the input of such an op.
pub(crate) fn depthwise_to_input(c: &WorkContext<'_>) -> Work {
    windows(c, c.input_elements(2), &c.input_dims(1))
}

/// The adjoint of the filter of such an op.
pub(crate) fn depthwise_to_filter(c: &WorkContext<'_>) -> Work {
    windows(c, c.input_elements(2), &c.output_dims(0))
}

fn windows(c: &WorkContext<'_>, elements: f64, filter: &[f64]) -> Work {
    let window: f64 = filter.iter().take(2).product();
    Work::of(c, 2.0 * window * elements)
}

/// A pool: a window for each element.
pub(crate) fn pool(c: &WorkContext<'_>) -> Work {
    Work::of(c, pooled(c) * c.output_elements(0))
}

/// The adjoint of a pool, whose output is like input 1: a window and an addition for each element.
pub(crate) fn pool_grad(c: &WorkContext<'_>) -> Work {
    Work::of(c, (pooled(c) + 1.0) * c.input_elements(1))
}

/// The size of a pool's window; if an input states it, that of windows that do not overlap.
fn pooled(c: &WorkContext<'_>) -> f64 {
    match c.attrs().ints("ksize") {
        Ok(sizes) => sizes.iter().map(|&size| size as f64).product(),
        Err(_) => c.input_elements(0) / c.output_elements(0).max(1.0),
    }
}

/// An LSTM over a sequence: a product with the weights in each step, and the gates.
pub(crate) fn lstm(c: &WorkContext<'_>) -> Work {
    lstm_products(c, 1.0)
}

/// The adjoint of an LSTM: a product for the inputs and one for the weights in each step.
pub(crate) fn lstm_grad(c: &WorkContext<'_>) -> Work {
    lstm_products(c, 2.0)
}

fn lstm_products(c: &WorkContext<'_>, products: f64) -> Work {
    const GATES: f64 = 200.0;
    let steps: f64 = c.input_dims(1).iter().take(2).product();
    let cells = c.input_dims(2).last().copied().unwrap_or(1.0);
    Work::of(c, products * steps * (2.0 * c.input_elements(4) + GATES * cells))
}

/// `flops(rows, columns)` operations for each matrix of the first input.
pub(crate) fn per_matrix(c: &WorkContext<'_>, flops: fn(f64, f64) -> f64) -> Work {
    let dims = c.input_dims(0);
    let [batch @ .., rows, columns] = &dims[..] else { return Work::per_input::<1>(c) };
    Work::of(c, flops(*rows, *columns) * batch.iter().product::<f64>())
}

/// A decomposition of each matrix of the first input, then `flops(rows)` operations for each number of
/// the result.
pub(crate) fn solve(c: &WorkContext<'_>, decompose: fn(f64) -> f64, flops: fn(f64) -> f64) -> Work {
    let rows = c.input_dims(0).last().copied().unwrap_or(1.0);
    let work = per_matrix(c, |_, _| 1.0);
    Work { flops: work.flops * decompose(rows) + flops(rows) * c.output_elements(0), ..work }
}

/// A Fourier transform of the last `rank` dimensions; of all if it is not fixed.
pub(crate) fn fourier(c: &WorkContext<'_>, rank: Option<usize>, is_real: bool) -> Work {
    let (from, to) = (c.input_dims(0), c.output_dims(0));
    let larger = |a: &[f64], b: &[f64]| a.iter().product::<f64>().max(b.iter().product());
    let last =
        |dims: &[f64]| dims[dims.len() - rank.unwrap_or(dims.len()).min(dims.len())..].to_vec();
    let size = larger(&last(&from), &last(&to));
    let each = if is_real { 2.5 } else { 5.0 };
    Work::of(c, each * larger(&from, &to) * size.max(2.0).log2())
}

/// Sorts along the last dimension, or finds the largest.
pub(crate) fn sort(c: &WorkContext<'_>) -> Work {
    const COMPARISON: f64 = 40.0;
    let size = c.input_dims(0).last().copied().unwrap_or(2.0);
    Work::of(c, COMPARISON * c.input_elements(0) * size.max(2.0).log2())
}

/// A binary search in a row of the first input for each number of the second.
pub(crate) fn search(c: &WorkContext<'_>) -> Work {
    const STEP: f64 = 40.0;
    let size = c.input_dims(0).last().copied().unwrap_or(2.0);
    Work::of(c, STEP * c.output_elements(0) * size.max(2.0).log2())
}

/// A distribution from each row of the first input, and a binary search in it for each sample.
pub(crate) fn multinomial(c: &WorkContext<'_>) -> Work {
    const LOGIT: f64 = 60.0;
    let work = search(c);
    Work { flops: work.flops + LOGIT * c.input_elements(0), ..work }
}

/// A product of a band matrix, given by its diagonals, and columns.
pub(crate) fn banded(c: &WorkContext<'_>) -> Work {
    let bands = c.input_dims(0).iter().rev().nth(1).copied().unwrap_or(1.0);
    Work::of(c, multiply_add(c) * bands * c.output_elements(0))
}

/// Rows of input 0 that the indices in input 1 select are read, and added.
pub(crate) fn sparse_rows(c: &WorkContext<'_>) -> Work {
    let rows = c.input_dims(0).first().copied().unwrap_or(1.0).max(1.0);
    let part = c.input_elements(1) / rows;
    let rest: f64 = (1..c.inputs()).map(|i| c.input_bytes(i)).sum();
    let bytes = c.input_bytes(0) * part + rest + c.output_bytes(0);
    Work { flops: c.input_elements(0) * part, bytes, seconds: 0.0 }
}

/// Nothing if each output is a range of rows of input `i`, which shares its memory, else a copy.
pub(crate) fn range_of(c: &WorkContext<'_>, i: usize) -> Work {
    let (whole, part) = (c.input_dims(i), c.output_dims(0));
    let is_range = whole.split_first().is_some_and(|(_, row)| part.ends_with(row));
    if is_range && part.len() <= whole.len() { Work::default() } else { Work::copies_outputs(c) }
}

/// A file is opened and its contents are moved.
pub(crate) fn file(c: &WorkContext<'_>) -> Work {
    const BYTES_PER_SECOND: f64 = 5e8;
    let Work { flops, bytes, seconds } = Work::fixed::<100>(c);
    Work { flops, bytes, seconds: seconds + bytes / BYTES_PER_SECOND }
}
