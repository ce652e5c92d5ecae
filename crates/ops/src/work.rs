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

/// A division, for which processors have no vector instruction if the numbers are integers.
pub(crate) fn division(c: &WorkContext<'_>) -> Work {
    let is_integer = c.output_dtype(0).is_some_and(DType::is_integer);
    Work::scaled(c, if is_integer { 200.0 } else { 10.0 })
}

/// A function of each element: `FLOPS` operations, and eight times as many for numbers of 64 bits
/// and more, whose loops are not vectorized.
pub(crate) fn function<const FLOPS: u32>(c: &WorkContext<'_>) -> Work {
    const NOT_VECTORIZED: f64 = 8.0;
    let is_wide = c.output_dtype(0).is_some_and(|dtype| dtype.size() >= 8);
    Work::scaled(c, f64::from(FLOPS) * if is_wide { NOT_VECTORIZED } else { 1.0 })
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
    const SCATTERED: f64 = 30.0;
    let columns = c.output_dims(0).last().copied().unwrap_or(1.0);
    Work::of(c, SCATTERED * multiply_add(c) * c.input_elements(1) * columns)
}

/// A convolution and its adjoints, which are as much work: for each element of its output, the
/// filter's part for one channel times a window.
pub(crate) fn convolution(c: &WorkContext<'_>) -> Work {
    let (elements, filter) = convolved(c);
    let window = filter.split_last().map_or(1.0, |(_, window)| window.iter().product());
    Work::of(c, 2.0 * window * elements)
}

/// A convolution in which each output channel has one input channel, and its adjoints: the first
/// two dimensions of the filter are the window. The adjoints are not vectorized.
pub(crate) fn depthwise(c: &WorkContext<'_>) -> Work {
    windows(c, if c.inputs() == 3 { 24.0 } else { 2.0 })
}

/// A dilation: an addition and a comparison, which is not vectorized, for each part of a window.
pub(crate) fn dilation(c: &WorkContext<'_>) -> Work {
    windows(c, 600.0)
}

fn windows(c: &WorkContext<'_>, flops: f64) -> Work {
    let (elements, filter) = convolved(c);
    Work::of(c, flops * filter.iter().take(2).product::<f64>() * elements)
}

/// The elements of the convolution's output and the dimensions of its filter. Adjoints have three
/// inputs, the last of which is the output's adjoint; that of the filter has the filter's sizes for
/// a filter.
fn convolved(c: &WorkContext<'_>) -> (f64, SmallVec<[f64; 4]>) {
    let is_adjoint = c.inputs() == 3;
    let elements = if is_adjoint { c.input_elements(2) } else { c.output_elements(0) };
    let filter = c.input_dims(1);
    (elements, if is_adjoint && filter.len() < 2 { c.output_dims(0) } else { filter })
}

/// A pool: `FLOPS` operations for each part of a window.
pub(crate) fn pool<const FLOPS: u32>(c: &WorkContext<'_>) -> Work {
    Work::of(c, f64::from(FLOPS) * pooled(c) * c.output_elements(0))
}

/// The adjoint of a pool, whose output is like input 1.
pub(crate) fn pool_grad<const FLOPS: u32>(c: &WorkContext<'_>) -> Work {
    Work::of(c, f64::from(FLOPS) * pooled(c) * c.input_elements(1))
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

/// Operations of a product in the time of one of a decomposition, which proceeds by rows.
const DECOMPOSITION: f64 = 6.0;

/// `flops(rows, columns)` operations of a decomposition for each matrix of the first input.
pub(crate) fn per_matrix(c: &WorkContext<'_>, flops: fn(f64, f64) -> f64) -> Work {
    let dims = c.input_dims(0);
    let [batch @ .., rows, columns] = &dims[..] else { return Work::per_input::<1>(c) };
    Work::of(c, DECOMPOSITION * flops(*rows, *columns) * batch.iter().product::<f64>())
}

/// A decomposition of each matrix of the first input, then `flops(rows)` operations for each number of
/// the result.
pub(crate) fn solve(c: &WorkContext<'_>, decompose: fn(f64) -> f64, flops: fn(f64) -> f64) -> Work {
    let rows = c.input_dims(0).last().copied().unwrap_or(1.0);
    let work = per_matrix(c, |_, _| 1.0);
    let results = DECOMPOSITION * flops(rows) * c.output_elements(0);
    Work { flops: work.flops * decompose(rows) + results, ..work }
}

/// A Fourier transform of the last `rank` dimensions; of all if it is not fixed.
pub(crate) fn fourier(c: &WorkContext<'_>, rank: Option<usize>) -> Work {
    let (from, to) = (c.input_dims(0), c.output_dims(0));
    let larger = |a: &[f64], b: &[f64]| a.iter().product::<f64>().max(b.iter().product());
    let last =
        |dims: &[f64]| dims[dims.len() - rank.unwrap_or(dims.len()).min(dims.len())..].to_vec();
    let size = larger(&last(&from), &last(&to));
    Work::of(c, 12.0 * larger(&from, &to) * size.max(2.0).log2())
}

/// Sorts along the last dimension as many as the output has, or finds the largest.
pub(crate) fn sort(c: &WorkContext<'_>) -> Work {
    const VISIT: f64 = 100.0;
    const COMPARISON: f64 = 400.0;
    let size = c.output_dims(0).last().copied().unwrap_or(1.0);
    let sorted = COMPARISON * c.output_elements(0) * size.max(1.0).log2();
    Work::of(c, VISIT * c.input_elements(0) + sorted)
}

/// A binary search in a row of the first input for each number of the second.
pub(crate) fn search(c: &WorkContext<'_>) -> Work {
    const STEP: f64 = 600.0;
    let size = c.input_dims(0).last().copied().unwrap_or(2.0);
    Work::of(c, STEP * c.output_elements(0) * size.max(2.0).log2())
}

/// A distribution from each row of the first input, and a binary search in it for each sample.
pub(crate) fn multinomial(c: &WorkContext<'_>) -> Work {
    const LOGIT: f64 = 500.0;
    let work = search(c);
    Work { flops: work.flops + LOGIT * c.input_elements(0), ..work }
}

/// A triangular system with a band matrix, given by its diagonals.
pub(crate) fn banded(c: &WorkContext<'_>) -> Work {
    let bands = c.input_dims(0).iter().rev().nth(1).copied().unwrap_or(1.0);
    Work::of(c, DECOMPOSITION * multiply_add(c) * bands * c.output_elements(0))
}

/// Rows of input 0 that the indices in input 1 select are read, and added.
pub(crate) fn sparse_rows(c: &WorkContext<'_>) -> Work {
    let rows = c.input_dims(0).first().copied().unwrap_or(1.0).max(1.0);
    let part = c.input_elements(1) / rows;
    let rest: f64 = (1..c.inputs()).map(|i| c.input_bytes(i)).sum();
    let bytes = c.input_bytes(0) * part + rest + c.output_bytes(0);
    Work { flops: 50.0 * c.input_elements(0) * part, bytes, seconds: 0.0 }
}

/// Rows that the indices in input 1 select are copied, after `flops` operations to find each.
pub(crate) fn gather(c: &WorkContext<'_>, flops: f64) -> Work {
    Work { flops: flops * c.input_elements(1), ..Work::copies_outputs(c) }
}

/// Slices, whose positions are the rows of input `i`, are changed by those in the input after it.
pub(crate) fn scatter(c: &WorkContext<'_>, i: usize) -> Work {
    const FIND: f64 = 600.0;
    const ELEMENT: f64 = 200.0;
    let slices = c.input_elements(i) / c.input_dims(i).last().copied().unwrap_or(1.0).max(1.0);
    Work::of(c, FIND * slices + ELEMENT * c.input_elements(i + 1))
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
