//! `BlockLSTMGrad`: backpropagation through time.

use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Result, Shape, Tensor, ensure};

use super::loops::{ForwardStep, Peepholes, add_products, step_back};
use super::{GATES, Settings, Sizes, rows, rows_mut, view};
use crate::map::{narrowed, wide_view};
use crate::math::fold::{Sum, loops};
use crate::math::gemm::Write;
use crate::math::widen::Widen;
use crate::product::{Packed, multiply};
use crate::reduce::{Layout, fold};
use crate::split::Disjoint;

/// Nanoseconds per unit and step.
const UNIT_COST: f64 = 2.0;

pub(super) fn backward<T: Widen<Wide = f32>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(&init.node.op.name, init.attrs())?;
    AnyKernel::new(move |ctx| {
        let sizes = Sizes::new(ctx)?;
        check_sequences(ctx, sizes)?;
        let inputs: Vec<Tensor> =
            (1..ctx.num_inputs()).map(|i| wide_view::<T>(ctx, i)).collect::<Result<_>>()?;
        let pass = Backward { ctx, sizes, settings: &settings, inputs: &inputs };
        for (i, adjoint) in pass.run()?.into_iter().enumerate() {
            let adjoint = narrowed::<T>(ctx, adjoint)?;
            ctx.set_output(i, adjoint)?;
        }
        Ok(())
    })
}

/// Checks the inputs that only the gradient op has, of shape `[time, batch, units]`.
fn check_sequences(ctx: &KernelContext<'_>, sizes: Sizes) -> Result<()> {
    let expected = sizes.sequence()?;
    for i in 9..ctx.num_inputs() {
        let shape = ctx.input(i)?.shape();
        ensure!(
            *shape == expected,
            InvalidArgument,
            "{} must have shape {expected}, got {shape}",
            ctx.node().op.inputs[i].name
        );
    }
    Ok(())
}

struct Backward<'a> {
    ctx: &'a KernelContext<'a>,
    sizes: Sizes,
    settings: &'a Settings,
    /// All inputs but the first, in single precision.
    inputs: &'a [Tensor],
}

impl<'a> Backward<'a> {
    /// Input `i` of the op.
    fn input(&self, i: usize) -> Result<&'a [f32]> {
        self.inputs[i - 1].as_slice()
    }

    fn zeros(&self, dims: &[usize]) -> Result<Tensor> {
        self.ctx.zeros(DType::Float, Shape::new(dims)?)
    }

    /// The adjoints of all inputs but the first.
    fn run(&self) -> Result<Vec<Tensor>> {
        let Sizes { taken, batch, units, .. } = self.sizes;
        let mut gates = self.ctx.allocate(DType::Float, self.sizes.gates()?)?;
        let (mut cells, mut output) = (self.zeros(&[batch, units])?, self.zeros(&[batch, units])?);
        let mut peepholes = [self.zeros(&[units])?, self.zeros(&[units])?, self.zeros(&[units])?];
        if taken * batch * units > 0 {
            self.steps(gates.as_mut_slice()?, cells.as_mut_slice()?, output.as_mut_slice()?)?;
            if self.settings.has_peepholes {
                self.of_peepholes(gates.as_slice()?, &mut peepholes)?;
            }
        }
        let gates = gates.as_slice::<f32>()?;
        let (x, weights) = (self.of_inputs(gates)?, self.of_weights(gates)?);
        let width = GATES * units;
        let layout = Layout::new(&[taken * batch, width], &[true, false]);
        let bias = Shape::new(&[width])?;
        let bias = fold::<f32>(self.ctx, gates, &layout, &loops::<f32, Sum>(), &bias)?;
        let [input_gate, forget, output_gate] = peepholes;
        Ok(vec![x, cells, output, weights, input_gate, forget, output_gate, bias])
    }

    /// Computes the adjoints of the gates, step by step in reverse; `cells` and `output` are left
    /// with the adjoints of the initial state.
    fn steps(&self, gates: &mut [f32], cells: &mut [f32], output: &mut [f32]) -> Result<()> {
        let Sizes { batch, inputs, units, .. } = self.sizes;
        let width = GATES * units;
        let recurrent = &self.input(4)?[inputs * width..];
        let recurrent = view(recurrent, (width, units), (1, width))?;
        let packed = Packed::new(self.ctx, batch, recurrent)?;
        let weights = [5, 6, 7].map(|i| self.inputs[i - 1].clone());
        let peepholes = Peepholes::new(self.settings, &weights)?;
        for (t, gates) in gates.chunks_exact_mut(batch * width).enumerate().rev() {
            let (gate_rows, cell_rows) = (Disjoint::new(gates), Disjoint::new(&mut *cells));
            let later = &*output;
            let kept = Steps::new(self, t)?;
            self.ctx.parallel_for(batch, UNIT_COST * units as f64, |range| {
                for row in range {
                    let own = row * units..(row + 1) * units;
                    // SAFETY: every row is handed out once.
                    let (gates, cells) = unsafe {
                        (
                            gate_rows.part(row * width..(row + 1) * width),
                            cell_rows.part(own.clone()),
                        )
                    };
                    let later = &later[own];
                    step_back(gates, cells, later, peepholes, self.settings, kept.row(row));
                }
            })?;
            let a = rows(gates, batch, width)?;
            packed.multiply(self.ctx, a, rows_mut(output, batch, units)?, Write::Overwrite)?;
        }
        Ok(())
    }

    /// Adjoints of the peephole weights.
    fn of_peepholes(&self, gates: &[f32], adjoints: &mut [Tensor; 3]) -> Result<()> {
        let Sizes { batch, units, .. } = self.sizes;
        let order = self.settings.order;
        for (i, row) in gates.chunks_exact(GATES * units).enumerate() {
            let gate = |gate: usize| &row[gate * units..(gate + 1) * units];
            let steps = Steps::new(self, i / batch)?.row(i % batch);
            add_products(adjoints[0].as_mut_slice()?, gate(order.input_gate), steps.past);
            add_products(adjoints[1].as_mut_slice()?, gate(order.forget), steps.past);
            add_products(adjoints[2].as_mut_slice()?, gate(order.output_gate), steps.cells);
        }
        Ok(())
    }

    /// Adjoint of the inputs: one product for all steps.
    fn of_inputs(&self, gates: &[f32]) -> Result<Tensor> {
        let Sizes { steps, taken, batch, inputs, units } = self.sizes;
        let width = GATES * units;
        let mut out = self.ctx.allocate(DType::Float, Shape::new(&[steps, batch, inputs])?)?;
        let data = out.as_mut_slice::<f32>()?;
        let (used, rest) = data.split_at_mut(taken * batch * inputs);
        rest.fill(0.0);
        let weights = view(self.input(4)?, (width, inputs), (1, width))?;
        let c = rows_mut(used, taken * batch, inputs)?;
        multiply(self.ctx, rows(gates, taken * batch, width)?, weights, c, Write::Overwrite)?;
        Ok(out)
    }

    /// Adjoint of the weights: a product for the rows of the inputs and one for the rows of the
    /// previous outputs.
    fn of_weights(&self, gates: &[f32]) -> Result<Tensor> {
        let Sizes { taken, batch, inputs, units, .. } = self.sizes;
        let (width, count) = (GATES * units, taken * batch);
        let mut out = self.ctx.allocate(DType::Float, Shape::new(&[inputs + units, width])?)?;
        let data = out.as_mut_slice::<f32>()?;
        let (of_input, recurrent) = data.split_at_mut(inputs * width);
        let gates = rows(gates, count, width)?;
        let x = view(self.input(1)?, (inputs, count), (1, inputs))?;
        multiply(self.ctx, x, gates, rows_mut(of_input, inputs, width)?, Write::Overwrite)?;
        // The previous output at each step: the initial one, then those of all steps but the last.
        let mut outputs = self.ctx.allocate(DType::Float, Shape::new(&[count, units])?)?;
        let past = outputs.as_mut_slice::<f32>()?;
        let (first, later) = past.split_at_mut((batch * units).min(count * units));
        first.copy_from_slice(&self.input(3)?[..first.len()]);
        later.copy_from_slice(&self.input(15)?[..later.len()]);
        let past = view(past, (units, count), (1, units))?;
        multiply(self.ctx, past, gates, rows_mut(recurrent, units, width)?, Write::Overwrite)?;
        Ok(out)
    }
}

/// The forward pass's values at the steps, and the adjoints of its outputs.
struct Steps<'a> {
    kept: ForwardStep<'a>,
    units: usize,
}

impl<'a> Steps<'a> {
    fn new(pass: &Backward<'a>, t: usize) -> Result<Steps<'a>> {
        let len = pass.sizes.step_len();
        let of = |i: usize| Ok(&pass.input(i)?[t * len..(t + 1) * len]);
        let past = match t.checked_sub(1) {
            None => pass.input(2)?,
            Some(before) => &pass.input(10)?[before * len..(before + 1) * len],
        };
        let kept = ForwardStep {
            past,
            input_gate: of(9)?,
            cells: of(10)?,
            forget: of(11)?,
            output_gate: of(12)?,
            candidate: of(13)?,
            cell_output: of(14)?,
            cells_grad: of(16)?,
            output_grad: of(17)?,
        };
        Ok(Steps { kept, units: pass.sizes.units })
    }

    /// The values of one sample.
    fn row(&self, row: usize) -> ForwardStep<'a> {
        let cut = |x: &'a [f32]| &x[row * self.units..(row + 1) * self.units];
        ForwardStep {
            past: cut(self.kept.past),
            input_gate: cut(self.kept.input_gate),
            cells: cut(self.kept.cells),
            forget: cut(self.kept.forget),
            output_gate: cut(self.kept.output_gate),
            candidate: cut(self.kept.candidate),
            cell_output: cut(self.kept.cell_output),
            cells_grad: cut(self.kept.cells_grad),
            output_grad: cut(self.kept.output_grad),
        }
    }
}
