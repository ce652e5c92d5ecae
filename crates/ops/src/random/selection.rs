//! `RandomShuffle` and `Multinomial`.

use num_traits::AsPrimitive;
use parking_lot::Mutex;
use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Element, Error, Result, Shape, Tensor, bail, ensure, err};

use super::source::Source;
use crate::math::random::philox::Philox;
use crate::math::random::selection::{multinomial_blocks, multinomial_row, shuffle};
use crate::split::{Disjoint, for_each_rows};

/// Shuffles the rows of the first input.
pub(crate) fn shuffle_rows(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let source = Source::new(init)?;
    AnyKernel::new(move |ctx| {
        let value = ctx.input(0)?;
        let rows = value.shape().first().copied().unwrap_or(0);
        if rows <= 1 || value.num_elements() <= 1 {
            let value = ctx.take_input(0)?;
            return ctx.set_output(0, value);
        }
        let mut order = ctx.allocate(DType::Int64, Shape::new(&[rows])?)?;
        let philox = source.start(ctx, |generator| generator.reserve_samples(rows as u64 - 1))?;
        let indices = order.as_mut_slice::<i64>()?;
        (0..).zip(indices.iter_mut()).for_each(|(i, index)| *index = i);
        shuffle(philox, indices);
        let out = gather_rows(ctx, ctx.input(0)?, order.as_slice()?)?;
        ctx.set_output(0, out)
    })
}

/// The rows of `value` in the order of `order`, a permutation.
fn gather_rows(ctx: &KernelContext<'_>, value: &Tensor, order: &[i64]) -> Result<Tensor> {
    match value.dtype() {
        DType::String => gather_strings(ctx, value, order),
        DType::Resource => {
            let rows = gather_objects(value.resources()?, order)?;
            Tensor::from_resources(value.shape().clone(), rows)
        }
        DType::Variant => {
            let rows = gather_objects(value.variants()?, order)?;
            let out = Tensor::from_variants(value.shape().clone(), rows)?;
            out.ensure_charged(ctx.budget())?;
            Ok(out)
        }
        _ => gather_plain(ctx, value, order),
    }
}

fn gather_plain(ctx: &KernelContext<'_>, value: &Tensor, order: &[i64]) -> Result<Tensor> {
    let mut out = ctx.allocate_output(0, value.shape().clone())?;
    let source = value.as_bytes()?;
    let row_bytes = source.len() / order.len();
    // SAFETY: only whole elements of the input, of the same dtype, are written.
    let target = unsafe { out.bytes_mut()? };
    for_each_rows(ctx, target, row_bytes, 3.0 + row_bytes as f64 / 8.0, |first, rows| {
        let order = &order[first..];
        match row_bytes {
            1 => copy_fixed::<1>(source, order, rows),
            2 => copy_fixed::<2>(source, order, rows),
            4 => copy_fixed::<4>(source, order, rows),
            8 => copy_fixed::<8>(source, order, rows),
            _ => {
                for (target, &row) in rows.chunks_exact_mut(row_bytes).zip(order) {
                    let start = row as usize * row_bytes;
                    target.copy_from_slice(&source[start..start + row_bytes]);
                }
            }
        }
    })?;
    Ok(out)
}

/// Copies rows of `N` bytes, each by one load and one store.
fn copy_fixed<const N: usize>(source: &[u8], order: &[i64], rows: &mut [u8]) {
    let source = source.as_chunks::<N>().0;
    for (target, &row) in rows.as_chunks_mut::<N>().0.iter_mut().zip(order) {
        *target = source[row as usize];
    }
}

fn gather_strings(ctx: &KernelContext<'_>, value: &Tensor, order: &[i64]) -> Result<Tensor> {
    let mut out = ctx.zeros(DType::String, value.shape().clone())?;
    let source = value.strings()?;
    let row_len = source.len() / order.len();
    for (target, &row) in out.strings_mut()?.chunks_exact_mut(row_len).zip(order) {
        let start = row as usize * row_len;
        target.clone_from_slice(&source[start..start + row_len]);
    }
    Ok(out)
}

fn gather_objects<T: Clone>(source: &[T], order: &[i64]) -> Result<Vec<T>> {
    let row_len = source.len() / order.len();
    let mut rows = Vec::new();
    rows.try_reserve_exact(source.len())
        .map_err(|_| err!(ResourceExhausted, "out of memory for {} handles", source.len()))?;
    for &row in order {
        let start = row as usize * row_len;
        rows.extend_from_slice(&source[start..start + row_len]);
    }
    Ok(rows)
}

/// Draws class indices with probabilities `softmax(logits)`.
pub(crate) fn multinomial<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + AsPrimitive<f64>,
{
    let source = Source::new(init)?;
    let is_narrow = init.attrs().dtype("output_dtype")? == DType::Int32;
    AnyKernel::new(move |ctx| {
        let (rows, classes) = logits_shape(ctx.input(0)?)?;
        let samples = ctx.scalar_int(1, "num_samples")?;
        let samples = usize::try_from(samples).map_err(|_| {
            err!(InvalidArgument, "num_samples should be nonnegative, got {samples}")
        })?;
        ensure!(classes > 0, InvalidArgument, "num_classes should be positive, got {classes}");
        let mut out = ctx.allocate_output(0, Shape::new(&[rows, samples])?)?;
        if out.num_elements() > 0 {
            let blocks = multinomial_blocks(rows as u64, samples as u64);
            let philox = source.start(ctx, |generator| generator.reserve(blocks))?;
            if is_narrow {
                draw_rows::<T, i32>(ctx, philox, classes, samples, out.as_mut_slice()?)?;
            } else {
                draw_rows::<T, i64>(ctx, philox, classes, samples, out.as_mut_slice()?)?;
            }
        }
        ctx.set_output(0, out)
    })
}

fn logits_shape(logits: &Tensor) -> Result<(usize, usize)> {
    match *logits.shape().dims() {
        [rows, classes] => Ok((rows, classes)),
        _ => bail!(InvalidArgument, "logits should be a matrix, got shape {}", logits.shape()),
    }
}

/// Draws all rows in parallel; each thread widens a row of logits into its own scratch.
fn draw_rows<T, C>(
    ctx: &KernelContext<'_>,
    philox: Philox,
    classes: usize,
    samples: usize,
    out: &mut [C],
) -> Result<()>
where
    T: Element + AsPrimitive<f64>,
    C: Element,
    usize: AsPrimitive<C>,
{
    let logits = ctx.slice::<T>(0)?;
    let (rows, out) = (out.len() / samples, Disjoint::new(out));
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let draw = |row: usize, scratch: &mut [f64]| {
        let row_logits = &logits[row * classes..(row + 1) * classes];
        scratch.iter_mut().zip(row_logits).for_each(|(wide, logit)| *wide = logit.as_());
        // SAFETY: `parallel_for` hands out each row once, and rows are disjoint.
        let drawn = unsafe { out.part(row * samples..(row + 1) * samples) };
        multinomial_row(philox, row as u64, scratch, drawn);
    };
    let scratch = || ctx.allocate(DType::Double, Shape::new(&[classes])?);
    let cost = 10.0 * classes as f64 + 40.0 * samples as f64;
    ctx.parallel_for(rows, cost, |range| {
        let result = scratch().and_then(|mut scratch| {
            let scratch = scratch.as_mut_slice()?;
            range.for_each(|row| draw(row, scratch));
            Ok(())
        });
        if let Err(e) = result {
            *failure.lock() = Some(e);
        }
    })?;
    failure.into_inner().map_or(Ok(()), Err)
}
