//! The elementwise loops of one LSTM time step.

use thalweg_tensor::{Result, Tensor};

use super::Settings;
use crate::math::float;
use crate::math::vectorized::vectorized;

/// Peephole weights, one number per unit.
#[derive(Clone, Copy)]
pub(super) struct Peepholes<'a> {
    pub(super) input_gate: &'a [f32],
    pub(super) forget: &'a [f32],
    pub(super) output_gate: &'a [f32],
}

impl<'a> Peepholes<'a> {
    /// The three weights, if the settings enable peepholes.
    pub(super) fn new(settings: &Settings, weights: &'a [Tensor; 3]) -> Result<Option<Self>> {
        let [input_gate, forget, output_gate] = weights;
        let (input_gate, forget, output_gate) =
            (input_gate.as_slice()?, forget.as_slice()?, output_gate.as_slice()?);
        Ok(settings.has_peepholes.then_some(Peepholes { input_gate, forget, output_gate }))
    }
}

/// Outputs of a step for one row of the batch.
pub(super) struct StepOutputs<'a> {
    pub(super) input_gate: &'a mut [f32],
    pub(super) cells: &'a mut [f32],
    pub(super) forget: &'a mut [f32],
    pub(super) output_gate: &'a mut [f32],
    pub(super) candidate: &'a mut [f32],
    pub(super) cell_output: &'a mut [f32],
    pub(super) output: &'a mut [f32],
}

/// Computes the outputs of a step from a row of gate sums, which is overwritten.
pub(super) fn step(
    gates: &mut [f32],
    past: &[f32],
    peepholes: Option<Peepholes<'_>>,
    settings: &Settings,
    kept: &mut StepOutputs<'_>,
) {
    let units = past.len();
    let at = |gate: usize| gate * units..(gate + 1) * units;
    let order = settings.order;
    if let Some(weights) = peepholes {
        add_products(&mut gates[at(order.input_gate)], past, weights.input_gate);
        add_products(&mut gates[at(order.forget)], past, weights.forget);
    }
    sigmoid(kept.input_gate, &gates[at(order.input_gate)], 0.0);
    sigmoid(kept.forget, &gates[at(order.forget)], settings.forget_bias);
    tanh(kept.candidate, &gates[at(order.candidate)]);
    mix(kept.cells, kept.candidate, kept.input_gate, past, kept.forget);
    if settings.clip > 0.0 {
        let clip = settings.clip;
        // Not `clamp`, which panics if the limit is NaN.
        kept.cells.iter_mut().for_each(|x| *x = if *x > clip { clip } else { x.max(-clip) });
    }
    if let Some(weights) = peepholes {
        add_products(&mut gates[at(order.output_gate)], kept.cells, weights.output_gate);
    }
    sigmoid(kept.output_gate, &gates[at(order.output_gate)], 0.0);
    tanh(kept.cell_output, kept.cells);
    multiply(kept.output, kept.output_gate, kept.cell_output);
}

vectorized! {
    fn sigmoid<L>(out: &mut [f32], x: &[f32], offset: f32) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = float::sigmoid::<L>(x + offset);
        }
    }
}

vectorized! {
    fn tanh<L>(out: &mut [f32], x: &[f32]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = float::tanh::<L>(x);
        }
    }
}

vectorized! {
    fn multiply<L>(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }
}

vectorized! {
    pub(super) fn add_products<L>(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out += a * b;
        }
    }
}

vectorized! {
    /// `a b + c d`.
    fn mix<L>(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32], d: &[f32]) {
        for ((((out, &a), &b), &c), &d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *out = a * b + c * d;
        }
    }
}

/// The forward pass's values of a row, and the adjoints of its outputs.
#[derive(Clone, Copy)]
pub(super) struct ForwardStep<'a> {
    pub(super) past: &'a [f32],
    pub(super) input_gate: &'a [f32],
    pub(super) cells: &'a [f32],
    pub(super) forget: &'a [f32],
    pub(super) output_gate: &'a [f32],
    pub(super) candidate: &'a [f32],
    pub(super) cell_output: &'a [f32],
    /// Adjoints of the cells and the outputs at this step.
    pub(super) cells_grad: &'a [f32],
    pub(super) output_grad: &'a [f32],
}

/// Sets a row of the gates' adjoints. `cells` is the adjoint of the cells from the next step and
/// becomes the one for the previous step; `output` is the adjoint of the outputs from the next
/// step.
pub(super) fn step_back(
    gates: &mut [f32],
    cells: &mut [f32],
    output: &[f32],
    peepholes: Option<Peepholes<'_>>,
    settings: &Settings,
    forward: ForwardStep<'_>,
) {
    let units = forward.past.len();
    let at = |gate: usize| gate * units..(gate + 1) * units;
    let order = settings.order;
    output_gate_back(&mut gates[at(order.output_gate)], cells, output, forward);
    if let Some(weights) = peepholes {
        add_products(cells, &gates[at(order.output_gate)], weights.output_gate);
    }
    input_gate_back(&mut gates[at(order.input_gate)], cells, forward);
    candidate_back(&mut gates[at(order.candidate)], cells, forward);
    forget_gate_back(&mut gates[at(order.forget)], cells, forward);
    if let Some(weights) = peepholes {
        add_products(cells, &gates[at(order.input_gate)], weights.input_gate);
        add_products(cells, &gates[at(order.forget)], weights.forget);
    }
}

vectorized! {
    /// Adjoints of the output gates and of the cells.
    fn output_gate_back<L>(gates: &mut [f32], cells: &mut [f32], output: &[f32], row: ForwardStep<'_>) {
        let rows = row.output_gate.iter().zip(row.cell_output).zip(row.output_grad).zip(row.cells_grad);
        let given = output.iter().zip(rows);
        for ((gate, cell), (&later, (((&output_gate, &cell_output), &own), &own_cell))) in
            gates.iter_mut().zip(cells).zip(given)
        {
            let output = own + later;
            *gate = output_gate * (1.0 - output_gate) * output * cell_output;
            *cell += (1.0 - cell_output * cell_output) * output * output_gate + own_cell;
        }
    }
}

vectorized! {
    fn input_gate_back<L>(gates: &mut [f32], cells: &[f32], row: ForwardStep<'_>) {
        let rows = row.input_gate.iter().zip(row.candidate);
        for ((gate, &cell), (&input_gate, &candidate)) in gates.iter_mut().zip(cells).zip(rows) {
            *gate = input_gate * (1.0 - input_gate) * cell * candidate;
        }
    }
}

vectorized! {
    fn candidate_back<L>(gates: &mut [f32], cells: &[f32], row: ForwardStep<'_>) {
        let rows = row.input_gate.iter().zip(row.candidate);
        for ((gate, &cell), (&input_gate, &candidate)) in gates.iter_mut().zip(cells).zip(rows) {
            *gate = (1.0 - candidate * candidate) * cell * input_gate;
        }
    }
}

vectorized! {
    /// Adjoints of the forget gates and of the previous cells.
    fn forget_gate_back<L>(gates: &mut [f32], cells: &mut [f32], row: ForwardStep<'_>) {
        let rows = row.forget.iter().zip(row.past);
        for ((gate, cell), (&forget, &past)) in gates.iter_mut().zip(cells).zip(rows) {
            *gate = forget * (1.0 - forget) * *cell * past;
            *cell *= forget;
        }
    }
}
