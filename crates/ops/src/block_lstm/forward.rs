//! `BlockLSTM`: all time steps of a sequence.

use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Result, Tensor};

use super::loops::{Peepholes, StepOutputs, step};
use super::{GATES, Settings, Sizes, rows, rows_mut};
use crate::map::{narrowed, wide_view};
use crate::math::gemm::Write;
use crate::math::widen::Widen;
use crate::product::{Packed, multiply};
use crate::split::{Disjoint, for_each_rows};

/// Nanoseconds per unit and step.
const UNIT_COST: f64 = 4.0;
/// Outputs per step: gates, cells, outputs.
const KEPT: usize = 7;

pub(super) fn forward<T: Widen<Wide = f32>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(&init.node.op.name, init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = Sizes::new(ctx)?;
        let mut kept = Vec::with_capacity(KEPT);
        for _ in 0..KEPT {
            kept.push(ctx.allocate(DType::Float, sizes.sequence()?)?);
        }
        run::<T>(ctx, sizes, &settings, &mut kept)?;
        for (i, tensor) in kept.into_iter().enumerate() {
            let tensor = narrowed::<T>(ctx, tensor)?;
            ctx.set_output(i, tensor)?;
        }
        Ok(())
    })
}

fn run<T: Widen<Wide = f32>>(
    ctx: &KernelContext<'_>,
    sizes: Sizes,
    settings: &Settings,
    kept: &mut [Tensor],
) -> Result<()> {
    let Sizes { taken, batch, units, .. } = sizes;
    let mut slices = Vec::with_capacity(KEPT);
    for tensor in kept {
        let slice = tensor.as_mut_slice::<f32>()?;
        // Steps that are not computed are zero.
        slice[taken * sizes.step_len()..].fill(0.0);
        slices.push(Disjoint::new(slice));
    }
    if taken * sizes.step_len() == 0 {
        return Ok(());
    }
    let mut gates = gates_of_inputs::<T>(ctx, sizes)?;
    let width = GATES * units;
    let (first_cells, first_output) = (wide_view::<T>(ctx, 2)?, wide_view::<T>(ctx, 3)?);
    let (first_cells, first_output) = (first_cells.as_slice()?, first_output.as_slice()?);
    let weights = wide_view::<T>(ctx, 4)?;
    let recurrent = &weights.as_slice::<f32>()?[sizes.inputs * width..];
    let first = rows(first_output, batch, units)?;
    let recurrent = Packed::new(ctx, batch, rows(recurrent, units, width)?)?;
    let peepholes = [wide_view::<T>(ctx, 5)?, wide_view::<T>(ctx, 6)?, wide_view::<T>(ctx, 7)?];
    let peepholes = Peepholes::new(settings, &peepholes)?;
    for (t, gates) in gates.as_mut_slice()?.chunks_exact_mut(batch * width).enumerate() {
        let before = t.checked_sub(1).map(|t| t * sizes.step_len());
        let past = match before {
            None => first,
            // SAFETY: nothing else refers to the outputs until the steps below.
            Some(at) => rows(unsafe { slices[6].part(at..at + batch * units) }, batch, units)?,
        };
        recurrent.multiply(ctx, past, rows_mut(gates, batch, width)?, Write::Accumulate)?;
        for_each_rows(ctx, gates, width, UNIT_COST * units as f64, |first_row, gates| {
            for (row, gates) in (first_row..).zip(gates.chunks_exact_mut(width)) {
                let at = t * sizes.step_len() + row * units;
                // SAFETY: a row of a step is one call's alone, and so is that of the step before.
                let part = |i: usize, at: usize| unsafe { slices[i].part(at..at + units) };
                let past = match before {
                    None => &first_cells[row * units..(row + 1) * units],
                    Some(before) => part(1, before + row * units),
                };
                let [input_gate, cells, forget, output_gate, candidate, cell_output, output] =
                    std::array::from_fn(|i| part(i, at));
                let mut kept = StepOutputs {
                    input_gate,
                    cells,
                    forget,
                    output_gate,
                    candidate,
                    cell_output,
                    output,
                };
                step(gates, past, peepholes, settings, &mut kept);
            }
        })?;
    }
    Ok(())
}

/// The products of the inputs with their weights plus the bias, for the gates of all steps.
fn gates_of_inputs<T: Widen<Wide = f32>>(ctx: &KernelContext<'_>, sizes: Sizes) -> Result<Tensor> {
    let Sizes { taken, batch, inputs, units, .. } = sizes;
    let width = GATES * units;
    let (x, weights, bias) =
        (wide_view::<T>(ctx, 1)?, wide_view::<T>(ctx, 4)?, wide_view::<T>(ctx, 8)?);
    let bias = bias.as_slice::<f32>()?;
    let mut tensor = ctx.allocate(DType::Float, sizes.gates()?)?;
    let gates = tensor.as_mut_slice::<f32>()?;
    for_each_rows(ctx, gates, width, 0.1 * width as f64, |_, part| {
        part.chunks_exact_mut(width).for_each(|row| row.copy_from_slice(bias));
    })?;
    let a = rows(x.as_slice::<f32>()?, taken * batch, inputs)?;
    let b = rows(weights.as_slice::<f32>()?, inputs, width)?;
    multiply(ctx, a, b, rows_mut(gates, taken * batch, width)?, Write::Accumulate)?;
    Ok(tensor)
}
