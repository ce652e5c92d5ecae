//! `BlockLSTM` and its gradient in programs: a loop over time with one product per step. The products of
//! the inputs with their weights, and those that make the weights' adjoints, are outside of the loop.

use thalweg_hlo::{Comparison, DotDims, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use super::{GATES, Order, Settings, Sizes};
use crate::lowering::{set_narrow, wide};

/// Outputs of a step.
const KEPT: usize = 7;

/// The inputs of either op, in single precision.
struct Pass {
    settings: Settings,
    /// `taken` is the number of steps that may be computed.
    sizes: Sizes,
    /// The number of steps that are computed, where it is not known: a scalar of dtype int32.
    limit: Option<Value>,
    inputs: Vec<Value>,
}

impl Pass {
    fn new(l: &Lowering<'_>) -> Result<Pass> {
        let settings = Settings::new(&l.node().op.name, l.attrs())?;
        let steps = l.input_dims(1)?.first().map_or(0, |&steps| steps as i64);
        let (taken, limit) = match l.host(0) {
            Ok(_) => (l.int(0)?, None),
            Err(_) => {
                let limit = l.input(0)?.reshape(&[]);
                let (least, most) = (limit.scalar_like(0.0), limit.scalar_like(steps as f64));
                (steps, Some(limit.clamp(&least, &most).convert(DType::Int32)))
            }
        };
        let sizes = Sizes::checked(&|i| l.input_shape(i), taken)?;
        let expected = sizes.sequence()?;
        for i in 9..l.num_inputs() {
            let shape = l.input_shape(i)?;
            ensure!(
                shape == expected,
                InvalidArgument,
                "{} must have shape {expected}, got {shape}",
                l.node().op.inputs[i].name
            );
        }
        let inputs = l.inputs_from(1)?.iter().map(wide).collect();
        Ok(Pass { settings, sizes, limit, inputs })
    }

    /// Input `i` of the op.
    fn input(&self, i: usize) -> &Value {
        &self.inputs[i - 1]
    }

    /// The steps of a sequence that may be computed.
    fn taken(&self, i: usize) -> Value {
        self.input(i).slice_dim(0, 0, self.sizes.taken)
    }

    fn is_empty(&self) -> bool {
        let Sizes { taken, batch, units, .. } = self.sizes;
        taken == 0 || batch == 0 || units == 0
    }

    fn zeros(&self, dims: &[usize]) -> Value {
        self.input(1).splat(DType::Float, dims, 0.0)
    }

    /// The weights of the inputs and of the outputs of the step before.
    fn weights(&self) -> (Value, Value) {
        let Sizes { inputs, units, .. } = self.sizes;
        let weights = self.input(4);
        (weights.slice_dim(0, 0, inputs), weights.slice_dim(0, inputs, inputs + units))
    }

    /// Part of a row of gates.
    fn gate(&self, gates: &Value, gate: usize) -> Value {
        let units = self.sizes.units;
        let last = gates.rank() - 1;
        gates.slice_dim(last, gate * units, (gate + 1) * units)
    }

    /// The values before each step: the initial ones, then those of all steps but the last.
    fn before(&self, initial: usize, sequence: usize) -> Value {
        let Sizes { taken, batch, units, .. } = self.sizes;
        let later = self.input(sequence).slice_dim(0, 0, taken - 1);
        self.input(initial).reshape(&[1, batch, units]).concatenate(&[later], 0)
    }

    /// Repeats `body` for each step; it gets the number of steps before and the values.
    fn repeat(
        &self,
        initial: &[Value],
        body: impl FnOnce(&Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let count = self.input(1).splat(DType::Int32, &[], 0.0);
        let all: Vec<Value> = std::iter::once(count).chain(initial.iter().cloned()).collect();
        let is_left = |values: &[Value]| match &self.limit {
            Some(limit) => values[0].compare(Comparison::Less, limit),
            None => values[0].compare_to(Comparison::Less, self.sizes.taken as f64),
        };
        let next = |values: &[Value]| {
            let count = &values[0] + 1.0;
            std::iter::once(count).chain(body(&values[0], &values[1..])).collect()
        };
        Value::repeat_while(&all, is_left, next).split_off(1)
    }
}

/// The part of a sequence at a step.
fn at(sequence: &Value, step: &Value) -> Value {
    let (zero, dims) = (step.scalar_like(0.0), sequence.dims());
    let starts = [step.clone(), zero.clone(), zero];
    sequence.dynamic_slice(&starts, &[1, dims[1], dims[2]]).reshape(&dims[1..])
}

/// The sequence with another part at a step.
fn put(sequence: &Value, step: &Value, part: &Value) -> Value {
    let (zero, dims) = (step.scalar_like(0.0), sequence.dims());
    let starts = [step.clone(), zero.clone(), zero];
    sequence.dynamic_update_slice(&part.reshape(&[1, dims[1], dims[2]]), &starts)
}

/// `a b`, `a` transposed or `b` transposed, of matrices.
fn product(a: &Value, b: &Value, contracting: (usize, usize)) -> Value {
    let contracting = (vec![contracting.0], vec![contracting.1]);
    a.dot_general(b, &DotDims { contracting, ..DotDims::default() }, DType::Float)
}

pub(super) fn lower_forward(l: &mut Lowering<'_>) -> Result<()> {
    let pass = Pass::new(l)?;
    let Sizes { steps, taken, batch, inputs, units } = pass.sizes;
    let sequence = pass.zeros(&[steps, batch, units]);
    if pass.is_empty() {
        return (0..KEPT).try_for_each(|i| set_narrow(l, i, &sequence));
    }
    let (of_inputs, recurrent) = pass.weights();
    let x = pass.taken(1).reshape(&[taken * batch, inputs]);
    let gates = product(&x, &of_inputs, (1, 0)) + pass.input(8);
    let gates = gates.reshape(&[taken, batch, GATES * units]);
    let mut initial = vec![pass.input(2).clone(), pass.input(3).clone()];
    initial.extend(std::iter::repeat_n(sequence, KEPT));
    let results = pass.repeat(&initial, |step, values| {
        let gates = at(&gates, step) + product(&values[1], &recurrent, (1, 0));
        let kept = pass.step(&gates, &values[0]);
        let mut next = vec![kept[1].clone(), kept[6].clone()];
        next.extend(values[2..].iter().zip(&kept).map(|(all, part)| put(all, step, part)));
        next
    });
    (0..KEPT).try_for_each(|i| set_narrow(l, i, &results[2 + i]))
}

impl Pass {
    /// The outputs of a step from its gates and the cells before.
    fn step(&self, gates: &Value, past: &Value) -> [Value; KEPT] {
        let Settings { order, forget_bias, clip, has_peepholes } = self.settings;
        let Order { input_gate, candidate, forget, output_gate } = order;
        let seen = |gate: usize, cells: &Value, weights: usize| match has_peepholes {
            true => self.gate(gates, gate) + cells * self.input(weights),
            false => self.gate(gates, gate),
        };
        let input_gate = seen(input_gate, past, 5).logistic();
        let forget = (seen(forget, past, 6) + f64::from(forget_bias)).logistic();
        let candidate = self.gate(gates, candidate).tanh();
        let mut cells = &candidate * &input_gate + past * &forget;
        if clip > 0.0 {
            let (most, least) = (cells.scalar_like(clip.into()), cells.scalar_like((-clip).into()));
            let raised = cells.compare(Comparison::GreaterEqual, &least).select(&cells, &least);
            cells = cells.compare(Comparison::Greater, &most).select(&most, &raised);
        }
        let output_gate = seen(output_gate, &cells, 7).logistic();
        let cell_output = cells.tanh();
        let output = &output_gate * &cell_output;
        [input_gate, cells, forget, output_gate, candidate, cell_output, output]
    }

    /// The adjoints of a step's gates, and of the cells before. `cells` is the adjoint of the step's cells
    /// and `output` that of its outputs, both from the next step.
    fn step_back(&self, kept: &KeptStep, cells: &Value, output: &Value) -> (Value, Value) {
        let slope = |gate: &Value| gate * (gate.ones_like() - gate);
        let tanh_slope = |y: &Value| y.ones_like() - y.square();
        let output = &kept.output_grad + output;
        let of_output = slope(&kept.output_gate) * &output * &kept.cell_output;
        let mut cells =
            cells + tanh_slope(&kept.cell_output) * &output * &kept.output_gate + &kept.cells_grad;
        if self.settings.has_peepholes {
            cells = cells + &of_output * self.input(7);
        }
        let of_input = slope(&kept.input_gate) * &cells * &kept.candidate;
        let of_candidate = tanh_slope(&kept.candidate) * &cells * &kept.input_gate;
        let of_forget = slope(&kept.forget) * &cells * &kept.past;
        cells = cells * &kept.forget;
        if self.settings.has_peepholes {
            cells = cells + &of_input * self.input(5) + &of_forget * self.input(6);
        }
        let Order { input_gate, candidate, forget, output_gate } = self.settings.order;
        let mut gates = [
            (input_gate, of_input),
            (candidate, of_candidate),
            (forget, of_forget),
            (output_gate, of_output),
        ];
        gates.sort_by_key(|(place, _)| *place);
        let [first, rest @ ..] = gates.map(|(_, adjoint)| adjoint);
        (first.concatenate(&rest, 1), cells)
    }
}

/// The forward pass's values at a step, and the adjoints of its outputs.
struct KeptStep {
    past: Value,
    input_gate: Value,
    forget: Value,
    output_gate: Value,
    candidate: Value,
    cell_output: Value,
    cells_grad: Value,
    output_grad: Value,
}

pub(super) fn lower_backward(l: &mut Lowering<'_>) -> Result<()> {
    let pass = Pass::new(l)?;
    let Sizes { taken, batch, units, .. } = pass.sizes;
    if pass.is_empty() {
        for i in 0..8 {
            let zeros = pass.zeros(pass.input(i + 1).dims());
            set_narrow(l, i, &zeros)?;
        }
        return Ok(());
    }
    let past = pass.before(2, 10);
    let kept = [11, 12, 13, 14, 16, 17].map(|i| pass.taken(i));
    let input_gates = pass.taken(9);
    let (_, recurrent) = pass.weights();
    let state = pass.zeros(&[batch, units]);
    let initial = [state.clone(), state, pass.zeros(&[taken, batch, GATES * units])];
    let results = pass.repeat(&initial, |count, values| {
        let last = match &pass.limit {
            Some(limit) => limit - 1.0,
            None => count.scalar_like(taken as f64 - 1.0),
        };
        let step = last - count;
        let [forget, output_gate, candidate, cell_output, cells_grad, output_grad] =
            kept.each_ref().map(|sequence| at(sequence, &step));
        let (past, input_gate) = (at(&past, &step), at(&input_gates, &step));
        let kept = KeptStep {
            past,
            input_gate,
            forget,
            output_gate,
            candidate,
            cell_output,
            cells_grad,
            output_grad,
        };
        let (gates, cells) = pass.step_back(&kept, &values[0], &values[1]);
        let output = product(&gates, &recurrent, (1, 1));
        vec![cells, output, put(&values[2], &step, &gates)]
    });
    let [cells, output, gates] = &results[..] else { return Ok(()) };
    set_narrow(l, 1, cells)?;
    set_narrow(l, 2, output)?;
    pass.set_of_inputs(l, gates)?;
    pass.set_of_peepholes(l, gates, &past)
}

impl Pass {
    /// Sets the adjoints of the inputs, the weights and the bias.
    fn set_of_inputs(&self, l: &mut Lowering<'_>, gates: &Value) -> Result<()> {
        let Sizes { steps, taken, batch, inputs, units } = self.sizes;
        let gates = gates.reshape(&[taken * batch, GATES * units]);
        let (of_inputs, _) = self.weights();
        let x = product(&gates, &of_inputs, (1, 1)).reshape(&[taken, batch, inputs]);
        let rest = [(steps - taken) as i64, 0, 0];
        set_narrow(l, 0, &x.pad(&x.scalar_like(0.0), &[0; 3], &rest, &[0; 3]))?;
        let x = self.taken(1).reshape(&[taken * batch, inputs]);
        let past = self.before(3, 15).reshape(&[taken * batch, units]);
        let of_inputs = product(&x, &gates, (0, 0));
        let recurrent = product(&past, &gates, (0, 0));
        set_narrow(l, 3, &of_inputs.concatenate(&[recurrent], 0))?;
        set_narrow(l, 7, &gates.sum(&[0]))
    }

    /// Sets the adjoints of the peephole weights; `past` is the cells before each step.
    fn set_of_peepholes(&self, l: &mut Lowering<'_>, gates: &Value, past: &Value) -> Result<()> {
        if !self.settings.has_peepholes {
            let zeros = self.zeros(&[self.sizes.units]);
            return (4..7).try_for_each(|i| set_narrow(l, i, &zeros));
        }
        let Order { input_gate, forget, output_gate, .. } = self.settings.order;
        let cells = self.taken(10);
        for (i, gate, cells) in [(4, input_gate, past), (5, forget, past), (6, output_gate, &cells)]
        {
            set_narrow(l, i, &(self.gate(gates, gate) * cells).sum(&[0, 1]))?;
        }
        Ok(())
    }
}
