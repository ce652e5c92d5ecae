//! Lowering of `TopK` and its like.
//!
//! Rows are sorted as a whole, so unsorted results are sorted too, and NaN come last.

use thalweg_hlo::{Comparison, Reduction, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, bail};

use crate::rows_lowering::{gathered, wide};
use crate::top_k::{checked_k, checked_n};

/// Whether `a` comes before `b` in a sorted row: NaN after all numbers.
fn comes_before(comparison: Comparison, a: &Value, b: &Value) -> Value {
    let is_before = a.compare(comparison, b);
    match a.dtype().is_integer() {
        true => is_before,
        false => is_before.or(&b.is_nan().and(&a.is_nan().not())),
    }
}

pub(crate) fn top_k(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let k = if l.num_inputs() > 1 { l.int(1)? } else { l.attrs().int("k")? };
    let Some(last) = x.rank().checked_sub(1) else {
        bail!(InvalidArgument, "input must be >= 1-D, got a scalar");
    };
    let k = checked_k(k, Some(x.dims()[last]))?;
    let positions = x.iota(DType::Int32, x.dims(), last);
    let sorted = Value::sort_together(&[x, positions], last, |pairs| {
        comes_before(Comparison::Greater, &pairs[0].0, &pairs[0].1)
    });
    l.set(0, sorted[0].slice_dim(last, 0, k))?;
    l.set(1, sorted[1].slice_dim(last, 0, k).convert(l.output_dtype(1)))
}

/// Fewer than `k` predictions exceed the target's, and all are finite.
pub(crate) fn in_top_k(l: &mut Lowering<'_>) -> Result<()> {
    let (predictions, targets) = (l.input(0)?, wide(&l.input(1)?));
    let classes = predictions.dims()[1] as f64;
    let is_there = targets
        .compare_to(Comparison::GreaterEqual, 0.0)
        .and(&targets.compare_to(Comparison::Less, classes));
    let wanted = gathered(&predictions, &targets, 1, 1).expand(1);
    let larger = predictions.compare(Comparison::Greater, &wanted);
    let larger = larger.convert(DType::Int64).sum(&[1]);
    let is_first = if l.num_inputs() > 2 {
        larger.compare(Comparison::Less, &l.input(2)?.convert(DType::Int64))
    } else {
        larger.compare_to(Comparison::Less, l.attrs().int("k")? as f64)
    };
    let is_finite = predictions.is_finite().reduce(Reduction::And, &[1]);
    l.set(0, is_there.and(&is_first).and(&is_finite))
}

pub(crate) fn nth_element(l: &mut Lowering<'_>) -> Result<()> {
    let (x, n) = (l.input(0)?, l.int(1)?);
    let Some(last) = x.rank().checked_sub(1) else {
        bail!(InvalidArgument, "Input must be at least rank 1 but is rank 0");
    };
    let columns = x.dims()[last];
    let n = checked_n(n, Some(columns))?;
    let n = if l.attrs().bool("reverse")? { columns - 1 - n } else { n };
    let sorted = Value::sort_together(&[x], last, |pairs| {
        comes_before(Comparison::Less, &pairs[0].0, &pairs[0].1)
    });
    let dims = l.output_dims(0)?;
    l.set(0, sorted[0].slice_dim(last, n, n + 1).reshape(&dims))
}
