//! Connectionist temporal classification (CTC): loss and decoders.
//!
//! The last class is the blank. Probabilities are summed in log space, in double precision.

mod beam_search;
mod decode;
mod loss;

use decode::{beam_search_decoder, greedy_decoder};
use loss::ctc_loss;
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{Family, KernelContext, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bail, ensure};

use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CTC_LOSS.with_gradient(loss_gradient),
        CTC_LOSS_V2.with_gradient(loss_gradient),
        CTC_GREEDY_DECODER.without_gradient(),
        CTC_BEAM_SEARCH_DECODER.without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "CTCLoss", constraints: FLOATS, create: ctc_loss, ..KernelSpec::CPU },
        KernelSpec { op: "CTCLossV2", create: ctc_loss, ..KernelSpec::CPU },
        KernelSpec {
            op: "CTCGreedyDecoder",
            constraints: FLOATS,
            create: greedy_decoder,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "CTCBeamSearchDecoder",
            constraints: FLOATS,
            create: beam_search_decoder,
            ..KernelSpec::CPU
        },
    ],
};

const FLOATS: &[thalweg_kernel::Constraint] = &[("T", &[DType::Float, DType::Double])];

const CTC_LOSS: OpDef = OpDef::new("CTCLoss", loss_shape).with_work(Work::per_input::<100>);

const CTC_LOSS_V2: OpDef = OpDef::new("CTCLossV2", loss_shape).with_work(Work::per_input::<100>);

const CTC_GREEDY_DECODER: OpDef =
    OpDef::new("CTCGreedyDecoder", greedy_shape).with_work(Work::per_input::<80>);

const CTC_BEAM_SEARCH_DECODER: OpDef =
    OpDef::new("CTCBeamSearchDecoder", beam_shape).with_work(Work::serial::<500>);

fn loss_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs = c.with_rank(0, "inputs", 3)?;
    let indices = c.with_rank(1, "labels_indices", 2)?;
    let values = c.with_rank(2, "labels_values", 1)?;
    let lengths = c.with_rank(3, "sequence_length", 1)?;
    PartialShape::new([indices.dim(0)]).merge(&values)?;
    let batch = PartialShape::new([inputs.dim(1)]).merge(&lengths)?.dim(0);
    c.set_output(0, PartialShape::new([batch]));
    c.set_output(1, PartialShape::new([inputs.dim(0), batch, inputs.dim(2)]));
    Ok(())
}

/// The second output is the gradient of each sequence's loss. Its own gradient is not implemented:
/// requesting it is an error.
fn loss_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, slope, last) = (g.grad(0)?, g.output(1), g.int(-1)?);
    let message = "the CTC loss has no second derivative";
    let slope = g.op("PreventGradient").input(slope).attr("message", message).build()?;
    let grad = g.add("ExpandDims", &[grad, last])?;
    let adjoint = g.add("Mul", &[grad, slope])?;
    g.set(0, adjoint)
}

fn batch_known(c: &ShapeContext<'_>) -> Result<Option<usize>> {
    let inputs = c.with_rank(0, "inputs", 3)?;
    let lengths = c.with_rank(1, "sequence_length", 1)?;
    Ok(PartialShape::new([inputs.dim(1)]).merge(&lengths)?.dim(0))
}

fn greedy_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let batch = batch_known(c)?;
    c.set_output(0, PartialShape::new([None, Some(2)]));
    c.set_output(1, PartialShape::new([None]));
    c.set_output(2, PartialShape::new([Some(2)]));
    c.set_output(3, PartialShape::new([batch, Some(1)]));
    Ok(())
}

fn beam_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let batch = batch_known(c)?;
    let paths = c.attrs().size("top_paths")?;
    for path in 0..paths {
        c.set_output(path, PartialShape::new([None, Some(2)]));
        c.set_output(paths + path, PartialShape::new([None]));
        c.set_output(2 * paths + path, PartialShape::new([Some(2)]));
    }
    c.set_output(3 * paths, PartialShape::new([batch, Some(paths)]));
    Ok(())
}

/// The sizes of the logits: time, sequences (batch), classes.
#[derive(Clone, Copy)]
struct Sizes {
    times: usize,
    batch: usize,
    classes: usize,
}

fn sizes_of(ctx: &KernelContext<'_>) -> Result<Sizes> {
    let shape = ctx.input(0)?.shape();
    let [times, batch, classes] = *shape.dims() else {
        bail!(InvalidArgument, "inputs is not a 3-Tensor, it has shape {shape}");
    };
    ensure!(
        i32::try_from(classes).is_ok(),
        InvalidArgument,
        "num_classes cannot exceed max int, is {classes}"
    );
    Ok(Sizes { times, batch, classes })
}

/// The sequence lengths in input `i`, not clamped.
fn lengths_of<'a>(ctx: &'a KernelContext<'_>, i: usize) -> Result<&'a [i32]> {
    let lengths = ctx.input(i)?;
    ensure!(
        lengths.rank() == 1,
        InvalidArgument,
        "sequence_length is not a vector, it has shape {}",
        lengths.shape()
    );
    lengths.as_slice()
}

/// The logits in double precision.
fn scores_of(ctx: &KernelContext<'_>) -> Result<Tensor> {
    let input = ctx.input(0)?;
    if input.dtype() == DType::Double {
        return Ok(input.clone());
    }
    let data = input.as_slice::<f32>()?;
    let mut scores = ctx.allocate(DType::Double, input.shape().clone())?;
    for_each_rows(ctx, scores.as_mut_slice::<f64>()?, 1, 0.4, |first, out| {
        out.iter_mut().zip(&data[first..]).for_each(|(out, &x)| *out = f64::from(x));
    })?;
    Ok(scores)
}

/// Converts results to the dtype of output `i`.
fn in_dtype_of(ctx: &KernelContext<'_>, i: usize, results: Tensor) -> Result<Tensor> {
    if ctx.output_dtype(i)? == DType::Double {
        return Ok(results);
    }
    let mut out = ctx.allocate(DType::Float, results.shape().clone())?;
    let results = results.as_slice::<f64>()?;
    for_each_rows(ctx, out.as_mut_slice::<f32>()?, 1, 0.4, |first, out| {
        out.iter_mut().zip(&results[first..]).for_each(|(out, &x)| *out = x as f32);
    })?;
    Ok(out)
}

/// `ln(e^a + e^b)`.
fn log_add(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY {
        return b;
    }
    if b == f64::NEG_INFINITY {
        return a;
    }
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    high + (low - high).exp().ln_1p()
}
