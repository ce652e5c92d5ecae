//! Elementwise maps, in place if the input buffer can be forwarded.
//!
//! Blocks that fit the L1 cache are copied to the output and computed there, so that one loop
//! serves both cases.

use thalweg_kernel::KernelContext;
use thalweg_tensor::{Element, Result, Tensor, ensure};

use crate::math::widen::Widen;
use crate::split::for_each_rows;

/// Elements per block.
const BLOCK: usize = 2048;

/// Sets output 0 to the first input with `work` applied.
pub(crate) fn map<T: Widen>(
    ctx: &mut KernelContext<'_>,
    nanoseconds_per_element: f64,
    work: impl Fn(&mut [T::Wide]) + Sync,
) -> Result<()> {
    let shape = ctx.input(0)?.shape().clone();
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
    let source = if taken.is_some() { None } else { Some(ctx.slice::<T>(0)?) };
    for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, nanoseconds_per_element, |first, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            if let Some(source) = source {
                out.copy_from_slice(&source[first + i * BLOCK..][..out.len()]);
            }
            T::with_wide_mut(out, &work);
        }
    })?;
    ctx.set_output(0, out)
}

/// Sets output 0 to the first input with `work` applied, which also reads the second input, of the
/// same shape.
pub(crate) fn map_with<T: Widen>(
    ctx: &mut KernelContext<'_>,
    nanoseconds_per_element: f64,
    work: impl Fn(&mut [T::Wide], &[T::Wide]) + Sync,
) -> Result<()> {
    let (shape, other) = (ctx.input(0)?.shape().clone(), ctx.input(1)?.shape());
    ensure!(
        shape == *other,
        InvalidArgument,
        "Inputs to {} must have the same size and shape, but are {shape} and {other}",
        ctx.node().op.name
    );
    let (mut out, taken) = ctx.forward_input_or_allocate(&[0], T::DTYPE, &shape)?;
    let source = if taken.is_some() { None } else { Some(ctx.slice::<T>(0)?) };
    let other = ctx.slice::<T>(1)?;
    for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, nanoseconds_per_element, |first, out| {
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let start = first + i * BLOCK;
            if let Some(source) = source {
                out.copy_from_slice(&source[start..][..out.len()]);
            }
            let other = &other[start..][..out.len()];
            T::with_wide_mut(out, |out| T::with_wide(other, |other| work(out, other)));
        }
    })?;
    ctx.set_output(0, out)
}

/// Input `i` in the wider type, in mutable memory. The flag says that the elements are still to be
/// copied from the input, which then has the wider type itself.
pub(crate) fn widened<T: Widen>(ctx: &mut KernelContext<'_>, i: usize) -> Result<(Tensor, bool)> {
    let shape = ctx.input(i)?.shape().clone();
    if T::DTYPE == T::Wide::DTYPE {
        let (tensor, taken) = ctx.forward_input_or_allocate(&[i], T::DTYPE, &shape)?;
        return Ok((tensor, taken.is_none()));
    }
    Ok((wide_copy::<T>(ctx, i)?, false))
}

/// Input `i` in the wider type: shared if it has that type, else converted.
pub(crate) fn wide_view<T: Widen>(ctx: &KernelContext<'_>, i: usize) -> Result<Tensor> {
    if T::DTYPE == T::Wide::DTYPE {
        return Ok(ctx.input(i)?.clone());
    }
    wide_copy::<T>(ctx, i)
}

fn wide_copy<T: Widen>(ctx: &KernelContext<'_>, i: usize) -> Result<Tensor> {
    let (shape, data) = (ctx.input(i)?.shape().clone(), ctx.slice::<T>(i)?);
    let mut wide = ctx.allocate(T::Wide::DTYPE, shape)?;
    for_each_rows(ctx, wide.as_mut_slice()?, 1, 0.3, |first, out| {
        T::widen(&data[first..first + out.len()], out);
    })?;
    Ok(wide)
}

/// The results converted to the dtype of the tensor.
pub(crate) fn narrowed<T: Widen>(ctx: &KernelContext<'_>, wide: Tensor) -> Result<Tensor> {
    if T::DTYPE == T::Wide::DTYPE {
        return Ok(wide);
    }
    let mut out = ctx.allocate(T::DTYPE, wide.shape().clone())?;
    let data = wide.as_slice()?;
    for_each_rows(ctx, out.as_mut_slice()?, 1, 0.3, |first, out| {
        T::narrow(&data[first..first + out.len()], out);
    })?;
    Ok(out)
}
