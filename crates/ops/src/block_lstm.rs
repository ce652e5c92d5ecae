//! `BlockLSTM`: LSTM over whole sequences, and its gradient.
//!
//! The input products of all time steps are one matrix product, and so are the gradients of the
//! weights; the recurrent weights are packed once for the small products of the time steps.

mod backward;
mod forward;
mod loops;
mod lowering;

use backward::backward;
use forward::forward;
use half::f16;
use lowering::{lower_backward, lower_forward};
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, ShapeContext};
use thalweg_kernel::{Family, KernelContext, KernelSpec};
use thalweg_tensor::{PartialShape, Result, Shape, ensure, err};

use crate::math::gemm::{MatMut, MatRef};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        BLOCK_LSTM.with_gradient(gradient),
        BLOCK_LSTM_V2.with_gradient(gradient_v2),
        BLOCK_LSTM_GRAD.without_gradient(),
        BLOCK_LSTM_GRAD_V2.without_gradient(),
    ],
    kernels: &[
        cpu_kernel!("BlockLSTM", "T" in [f32, f16] => forward;
            host_inputs: &["seq_len_max"]),
        cpu_kernel!("BlockLSTMV2", "T" in [f32, f16] => forward;
            host_inputs: &["seq_len_max"]),
        cpu_kernel!("BlockLSTMGrad", "T" in [f32, f16] => backward;
            host_inputs: &["seq_len_max"]),
        cpu_kernel!("BlockLSTMGradV2", "T" in [f32, f16] => backward;
            host_inputs: &["seq_len_max"]),
        KernelSpec::lowering("BlockLSTM", lower_forward),
        KernelSpec::lowering("BlockLSTMV2", lower_forward),
        KernelSpec::lowering("BlockLSTMGrad", lower_backward),
        KernelSpec::lowering("BlockLSTMGradV2", lower_backward),
    ],
};

const BLOCK_LSTM: OpDef = OpDef::new("BlockLSTM", sequence_shapes).with_work(work::lstm);

const BLOCK_LSTM_V2: OpDef = OpDef { name: "BlockLSTMV2", ..BLOCK_LSTM };

const BLOCK_LSTM_GRAD: OpDef =
    OpDef::new("BlockLSTMGrad", gradient_shapes).with_work(work::lstm_grad);

const BLOCK_LSTM_GRAD_V2: OpDef = OpDef { name: "BlockLSTMGradV2", ..BLOCK_LSTM_GRAD };

fn gradient(g: &mut GradientContext<'_>) -> Result<()> {
    by_op(g, "BlockLSTMGrad")
}

fn gradient_v2(g: &mut GradientContext<'_>) -> Result<()> {
    by_op(g, "BlockLSTMGradV2")
}

/// Adjoints of the gates and of intermediate steps are not propagated, as in TensorFlow.
fn by_op(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let (cells, outputs) = (g.grad(1)?, g.grad(6)?);
    let mut inputs = g.inputs().to_vec();
    inputs.extend((0..7).map(|i| g.output(i)));
    inputs.extend([cells, outputs]);
    let adjoints = g.op_like(op, &["use_peephole"]).inputs(&inputs).build_all()?;
    (0..8).try_for_each(|i| g.set(i + 1, adjoints[i]))
}

fn sequence_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    let (x, bias) = (c.with_rank(1, "x", 3)?, c.with_rank(8, "b", 1)?);
    let units = bias.dim(0).map(|gates| gates / GATES);
    for i in 0..7 {
        c.set_output(i, PartialShape::new([x.dim(0), x.dim(1), units]));
    }
    Ok(())
}

fn gradient_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 0..8 {
        c.set_output(i, c.input(i + 1).clone());
    }
    Ok(())
}

const GATES: usize = 4;

/// Order of the gates in a row.
#[derive(Clone, Copy)]
struct Order {
    input_gate: usize,
    candidate: usize,
    forget: usize,
    output_gate: usize,
}

impl Order {
    fn of(op: &str) -> Order {
        match op.ends_with("V2") {
            true => Order { input_gate: 0, forget: 1, candidate: 2, output_gate: 3 },
            false => Order { input_gate: 0, candidate: 1, forget: 2, output_gate: 3 },
        }
    }
}

/// Attrs of a node.
#[derive(Clone, Copy)]
struct Settings {
    order: Order,
    forget_bias: f32,
    /// Cell values are clipped to this absolute value; no clipping if not positive.
    clip: f32,
    /// Whether there are peephole connections.
    has_peepholes: bool,
}

impl Settings {
    fn new(op: &str, attrs: NodeAttrs<'_>) -> Result<Settings> {
        let float = |name: &str| match attrs.get(name) {
            Some(_) => attrs.float(name),
            None => Ok(0.0),
        };
        Ok(Settings {
            order: Order::of(op),
            forget_bias: float("forget_bias")?,
            clip: float("cell_clip")?,
            has_peepholes: attrs.bool("use_peephole")?,
        })
    }
}

/// Sizes that the inputs agree on.
#[derive(Clone, Copy)]
struct Sizes {
    /// Time steps of the input, and the first `seq_len_max` of them, which are computed.
    steps: usize,
    taken: usize,
    batch: usize,
    inputs: usize,
    units: usize,
}

impl Sizes {
    fn new(ctx: &KernelContext<'_>) -> Result<Sizes> {
        let taken = ctx.scalar_int(0, "seq_len_max")?;
        Sizes::checked(&|i| Ok(ctx.input(i)?.shape().clone()), taken)
    }

    /// Checks the shapes of the inputs that both ops have.
    fn checked(shape_of: &dyn Fn(usize) -> Result<Shape>, taken: i64) -> Result<Sizes> {
        let dims = |i: usize, name: &str, rank: usize| {
            let shape = shape_of(i)?;
            ensure!(
                shape.rank() == rank,
                InvalidArgument,
                "{name} must have {rank} dimensions, got shape {shape}"
            );
            Ok(shape)
        };
        let (x, cells) = (dims(1, "x", 3)?, dims(2, "cs_prev", 2)?);
        let sizes = Sizes {
            steps: x[0],
            taken: usize::try_from(taken).unwrap_or(usize::MAX),
            batch: x[1],
            inputs: x[2],
            units: cells[1],
        };
        ensure!(
            sizes.taken <= sizes.steps,
            InvalidArgument,
            "seq_len_max must be from 0 to the {} steps of x, got {taken}",
            sizes.steps
        );
        let Sizes { batch, inputs, units, .. } = sizes;
        let gates = units.saturating_mul(GATES);
        dims(3, "h_prev", 2)?;
        for (i, name, expected) in [
            (2, "cs_prev", &[batch, units][..]),
            (3, "h_prev", &[batch, units]),
            (4, "w", &[inputs.saturating_add(units), gates]),
            (5, "wci", &[units]),
            (6, "wcf", &[units]),
            (7, "wco", &[units]),
            (8, "b", &[gates]),
        ] {
            let shape = shape_of(i)?;
            ensure!(
                shape.dims() == expected,
                InvalidArgument,
                "{name} must have shape {expected:?} for x of shape {x} and {units} units, got {shape}"
            );
        }
        Ok(sizes)
    }

    /// Elements of one gate for the whole batch at one step.
    fn step_len(&self) -> usize {
        self.batch * self.units
    }

    /// The shape of an output with one value for each step, sample and unit.
    fn sequence(&self) -> Result<Shape> {
        Shape::new(&[self.steps, self.batch, self.units])
    }

    /// Gates of the computed steps, a row for each step and sample.
    fn gates(&self) -> Result<Shape> {
        Shape::new(&[self.taken, self.batch, GATES * self.units])
    }
}

fn view<T>(data: &[T], size: (usize, usize), strides: (usize, usize)) -> Result<MatRef<'_, T>> {
    MatRef::new(data, size, strides).ok_or_else(|| err!(Internal, "a factor is out of bounds"))
}

fn rows<T>(data: &[T], rows: usize, columns: usize) -> Result<MatRef<'_, T>> {
    view(data, (rows, columns), (columns, 1))
}

fn rows_mut<T>(data: &mut [T], rows: usize, columns: usize) -> Result<MatMut<'_, T>> {
    MatMut::row_major(data, rows, columns)
        .ok_or_else(|| err!(Internal, "a matrix product is out of bounds"))
}

#[cfg(test)]
mod block_lstm_tests;
