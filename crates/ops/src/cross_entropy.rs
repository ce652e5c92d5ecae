//! Softmax cross entropy with dense and sparse labels, and its gradient.

use half::{bf16, f16};
use num_traits::{Float, One};
use thalweg_graph::{GradientContext, OpDef, Output, ShapeContext, Work, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Element, PartialShape, Result, Shape, bail, ensure};

use crate::gradients::{Arithmetic, set_repeated};
use crate::indices::Indices;
use crate::lowering::{set_narrow, wide};
use crate::map::{narrowed, wide_view};
use crate::math::fold::{Fold, Maximum};
use crate::math::real::Real;
use crate::math::rows::{exponentials, exponentials_of, log_of_sum, scale};
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::softmax::Exponentials;
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("SoftmaxCrossEntropyWithLogits", dense_shape)
            .with_work(Work::per_output::<150>)
            .with_gradient(dense_grad),
        OpDef::new("SparseSoftmaxCrossEntropyWithLogits", sparse_shape)
            .with_work(Work::per_output::<80>)
            .with_gradient(sparse_grad),
    ],
    kernels: &[
        cpu_kernel!("SoftmaxCrossEntropyWithLogits", "T" in [f32, f64, f16, bf16] => dense),
        cpu_kernel!("SparseSoftmaxCrossEntropyWithLogits", "T" in [f32, f64, f16, bf16] => sparse),
        KernelSpec::lowering("SoftmaxCrossEntropyWithLogits", lower_dense),
        KernelSpec::lowering("SparseSoftmaxCrossEntropyWithLogits", lower_sparse),
    ],
};

/// The adjoint of the logits: `backprop`, the gradient of the loss, times the adjoint of the loss;
/// for second derivatives plus the softmax gradient of the adjoint of `backprop`.
fn logits_adjoint(g: &mut GradientContext<'_>) -> Result<Output> {
    let backprop = g.output(1);
    let by_row = loss_adjoint(g)?;
    let adjoint = g.times(by_row, backprop)?;
    if g.adjoint(1).is_none() {
        return Ok(adjoint);
    }
    let (grad, softmax) = (g.grad(1)?, g.add("Softmax", &[g.input(0)])?);
    let (weighted, last) = (g.times(grad, softmax)?, g.ints(&[-1])?);
    let mean = g.sum_kept(weighted, last)?;
    let centred = g.minus(grad, mean)?;
    let of_backprop = g.times(centred, softmax)?;
    g.plus(adjoint, of_backprop)
}

/// The adjoint of the loss as a column.
fn loss_adjoint(g: &mut GradientContext<'_>) -> Result<Output> {
    let (grad, last) = (g.grad(0)?, g.int(-1)?);
    g.add("ExpandDims", &[grad, last])
}

fn dense_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let of_logits = logits_adjoint(g)?;
    let (by_row, log_softmax) = (loss_adjoint(g)?, g.add("LogSoftmax", &[g.input(0)])?);
    let negative = g.negated(log_softmax)?;
    let of_labels = g.times(by_row, negative)?;
    set_repeated(g, 0, of_logits)?;
    set_repeated(g, 1, of_labels)
}

fn sparse_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let of_logits = logits_adjoint(g)?;
    g.set(0, of_logits)
}

fn dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let both = shape::broadcast_shapes(c.input(0), c.input(1))?;
    ensure!(
        both.rank().is_none_or(|rank| rank == 2),
        InvalidArgument,
        "logits {} and labels {} must be matrices, or broadcast to one",
        c.input(0),
        c.input(1)
    );
    c.set_output(0, PartialShape::new([both.dim(0)]));
    c.set_output(1, both.merge(&PartialShape::of_rank(2))?);
    Ok(())
}

fn sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let logits = c.with_rank(0, "logits", 2)?;
    let labels = c.with_rank(1, "labels", 1)?;
    let batch = PartialShape::new([logits.dim(0)]).merge(&labels)?;
    c.set_output(1, PartialShape::new([batch.dim(0), logits.dim(1)]));
    c.set_output(0, batch);
    Ok(())
}

fn lower_dense(l: &mut Lowering<'_>) -> Result<()> {
    let dims = l.output_dims(1)?;
    ensure!(
        dims.len() == 2,
        InvalidArgument,
        "logits {:?} and labels {:?} must be matrices, or broadcast to one",
        l.input(0)?.dims(),
        l.input(1)?.dims()
    );
    let [logits, labels] = [0, 1].map(|i| Ok(wide(&l.input(i)?).broadcast_to(&dims)));
    let (logits, labels): (Result<Value>, Result<Value>) = (logits, labels);
    set_losses(l, &logits?, &labels?)
}

/// A label out of range makes the loss and the gradient of its row NaN, as TensorFlow does on a GPU.
fn lower_sparse(l: &mut Lowering<'_>) -> Result<()> {
    let (logits, labels) = (wide(&l.input(0)?), l.input(1)?);
    ensure!(
        logits.rank() == 2 && labels.rank() == 1 && logits.dims()[0] == labels.dims()[0],
        InvalidArgument,
        "logits {:?} must be a matrix and labels {:?} have one element for each row",
        logits.dims(),
        labels.dims()
    );
    ensure!(
        logits.dims()[1] > 0,
        InvalidArgument,
        "Must have at least one class, but got logits shape {:?}",
        logits.dims()
    );
    let classes = logits.iota(labels.dtype(), logits.dims(), 1);
    let labels = labels.expand(1);
    let is_own = classes.compare(Comparison::Equal, &labels).convert(logits.dtype());
    let is_valid = labels
        .compare_to(Comparison::GreaterEqual, 0.0)
        .and(&labels.compare_to(Comparison::Less, logits.dims()[1] as f64));
    let one_hot = is_valid.select(&is_own, &logits.scalar_like(f64::NAN));
    set_losses(l, &logits, &one_hot)
}

/// Sets the outputs from matrices of one size.
fn set_losses(l: &mut Lowering<'_>, logits: &Value, labels: &Value) -> Result<()> {
    if logits.num_elements() == 0 {
        let losses = logits.splat(logits.dtype(), &logits.dims()[..1], 0.0);
        set_narrow(l, 0, &losses)?;
        return set_narrow(l, 1, logits);
    }
    let rows = Exponentials::of(logits);
    let losses = (labels * (rows.sum.log() - &rows.centred)).sum(&[1]);
    set_narrow(l, 0, &losses)?;
    set_narrow(l, 1, &(rows.exponentials / rows.sum - labels))
}

/// A matrix broadcast to the common size: a stride of 0 repeats.
#[derive(Clone, Copy)]
struct Matrix<'a, A> {
    data: &'a [A],
    row_step: usize,
    column_step: usize,
}

impl<'a, A: Copy> Matrix<'a, A> {
    fn new(data: &'a [A], dims: &Shape) -> Self {
        let (rows, columns) = match dims.dims() {
            [rows, columns] => (*rows, *columns),
            [columns] => (1, *columns),
            _ => (1, 1),
        };
        Matrix {
            data,
            row_step: if rows == 1 { 0 } else { columns },
            column_step: usize::from(columns != 1),
        }
    }

    fn copy_row(&self, row: usize, out: &mut [A]) {
        let start = row * self.row_step;
        match self.column_step {
            0 => out.fill(self.data[start]),
            _ => out.copy_from_slice(&self.data[start..start + out.len()]),
        }
    }

    /// The row, if its elements are contiguous.
    fn row(&self, row: usize, columns: usize) -> Option<&'a [A]> {
        let start = row * self.row_step;
        (self.column_step == 1 || columns == 1).then(|| &self.data[start..start + columns])
    }
}

fn dense<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
    Maximum: Fold<T::Wide>,
{
    AnyKernel::new(|ctx| {
        let (logits, labels) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        let both = shape::broadcast_shapes(&logits.into(), &labels.into())
            .ok()
            .and_then(|both| both.to_shape());
        let Some(both) = both else {
            bail!(
                InvalidArgument,
                "logits and labels must be broadcastable: logits_size={logits} labels_size={labels}"
            );
        };
        ensure!(
            both.rank() == 2,
            InvalidArgument,
            "logits {logits} and labels {labels} must be matrices, or broadcast to one"
        );
        let (wide_logits, wide_labels) = (wide_view::<T>(ctx, 0)?, wide_view::<T>(ctx, 1)?);
        let logits = Matrix::new(wide_logits.as_slice::<T::Wide>()?, logits);
        let labels = Matrix::new(wide_labels.as_slice::<T::Wide>()?, labels);
        by_rows::<T>(ctx, &both, |i, loss, row| {
            logits.copy_row(i, row);
            let (largest, log) = log_of_sum(row);
            let Some(labels) = labels.row(i, row.len()) else {
                let label = labels.data[i * labels.row_step];
                *loss = row.iter().map(|&x| label * (log - (x - largest))).sum();
                let sum = exponentials(row);
                scale(row, sum.recip());
                return row.iter_mut().for_each(|x| *x = *x - label);
            };
            *loss = weighted_loss(row, labels, largest, log);
            let sum = exponentials(row);
            softmax_less_labels(row, labels, sum.recip());
        })
    })
}

vectorized! {
    fn weighted_loss<L>[A: Real](row: &[A], labels: &[A], largest: A, log: A) -> A {
        let mut lanes = [A::zero(); 16];
        for (row, labels) in row.chunks(16).zip(labels.chunks(16)) {
            for ((&x, &label), sum) in row.iter().zip(labels).zip(&mut lanes) {
                *sum += label * (log - (x - largest));
            }
        }
        lanes.into_iter().sum()
    }
}

vectorized! {
    fn softmax_less_labels<L>[A: Real](row: &mut [A], labels: &[A], factor: A) {
        for (x, &label) in row.iter_mut().zip(labels) {
            *x = *x * factor - label;
        }
    }
}

fn sparse<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
    Maximum: Fold<T::Wide>,
{
    AnyKernel::new(|ctx| {
        let (logits, labels) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        ensure!(logits.rank() == 2, InvalidArgument, "logits must be 2-D, but got shape {logits}");
        ensure!(labels.rank() == 1, InvalidArgument, "labels must be 1-D, but got shape {labels}");
        ensure!(
            logits[0] == labels[0],
            InvalidArgument,
            "logits and labels must have the same first dimension, got logits shape {logits} and labels shape {labels}"
        );
        let (shape, classes) = (logits.clone(), logits[1]);
        ensure!(
            classes > 0,
            InvalidArgument,
            "Must have at least one class, but got logits shape {logits}"
        );
        let (count, labels) = (labels[0], ctx.input(1)?.clone());
        let labels = Indices::of(&labels)?;
        for i in 0..count {
            ensure!(
                labels.below(i, classes).is_some(),
                InvalidArgument,
                "Received a label value of {} which is outside the valid range of [0, {classes})",
                labels.at(i)
            );
        }
        let wide_logits = wide_view::<T>(ctx, 0)?;
        let logits = wide_logits.as_slice::<T::Wide>()?;
        by_rows::<T>(ctx, &shape, |i, loss, row| {
            let label = labels.at(i) as usize;
            row.copy_from_slice(&logits[i * classes..(i + 1) * classes]);
            let own = row[label];
            let (largest, sum) = exponentials_of(row);
            *loss = sum.ln() - (own - largest);
            scale(row, sum.recip());
            row[label] = row[label] - T::Wide::one();
        })
    })
}

/// Calls `work(i, loss, gradient)` for every row `i`, and sets the outputs.
fn by_rows<T: Widen>(
    ctx: &mut KernelContext<'_>,
    shape: &Shape,
    work: impl Fn(usize, &mut T::Wide, &mut [T::Wide]) + Sync,
) -> Result<()>
where
    T::Wide: Real,
{
    let (rows, columns) = (shape[0], shape[1]);
    let mut losses = ctx.zeros(T::Wide::DTYPE, Shape::new(&[rows])?)?;
    let mut gradients = ctx.allocate(T::Wide::DTYPE, shape.clone())?;
    if columns > 0 {
        let losses = Disjoint::new(losses.as_mut_slice::<T::Wide>()?);
        let gradients = Disjoint::new(gradients.as_mut_slice::<T::Wide>()?);
        ctx.parallel_for(rows, 2.0 * columns as f64, |range| {
            for i in range {
                // SAFETY: `parallel_for` hands out every row once.
                let (loss, row) = unsafe {
                    (losses.part(i..i + 1), gradients.part(i * columns..(i + 1) * columns))
                };
                work(i, &mut loss[0], row);
            }
        })?;
    }
    let (losses, gradients) = (narrowed::<T>(ctx, losses)?, narrowed::<T>(ctx, gradients)?);
    ctx.set_output(0, losses)?;
    ctx.set_output(1, gradients)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Tensor};

    use super::*;
    use crate::testing::{call, pairs};

    #[test]
    fn shapes() {
        let dense = |a, b| {
            let call = call("SoftmaxCrossEntropyWithLogits").shape(DType::Float, a);
            call.shape(DType::Float, b).infer()
        };
        assert_eq!(dense("2,3", "2,3"), "[2] [2,3]");
        assert_eq!(dense("?,3", "1,3"), "[?] [?,3]");
        assert_eq!(dense("unknown", "2,3"), "[?] [?,?]");
        assert!(dense("2,3", "2,4").starts_with("INVALID_ARGUMENT"));
        assert!(dense("3", "3").starts_with("INVALID_ARGUMENT"));
        let sparse = |a, b| {
            let call = call("SparseSoftmaxCrossEntropyWithLogits").shape(DType::Float, a);
            call.shape(DType::Int32, b).infer()
        };
        assert_eq!(sparse("?,3", "2"), "[2] [2,3]");
        assert!(sparse("2,3", "3").starts_with("INVALID_ARGUMENT"));
        assert!(sparse("2,3", "2,1").starts_with("INVALID_ARGUMENT"));
    }

    fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    #[test]
    fn sparse_labels_are_one_hot_ones() {
        let logits = tensor(&[2, 3], &[0.5, -1.0, 2.0, 100.0, 0.0, -100.0]);
        let labels = Tensor::vector(&[2i64, 0]).unwrap();
        let one_hot = tensor(&[2, 3], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        let sparse =
            call("SparseSoftmaxCrossEntropyWithLogits").input(logits.clone()).input(labels);
        let dense = call("SoftmaxCrossEntropyWithLogits").input(logits).input(one_hot);
        for (a, b) in pairs(&sparse.run_all().unwrap(), &dense.run_all().unwrap()) {
            let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
            pairs(a, b).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} {b}"));
        }
    }

    #[test]
    fn either_side_broadcasts() {
        let full = tensor(&[2, 3], &[1.0; 6]);
        let zeros = tensor(&[2, 3], &[0.0; 6]);
        for (logits, labels) in [
            (zeros.clone(), full.clone()),
            (zeros.clone(), tensor(&[3], &[1.0; 3])),
            (zeros.clone(), tensor(&[2, 1], &[1.0; 2])),
            (zeros.clone(), tensor(&[1, 1], &[1.0])),
            (tensor(&[2, 1], &[0.0; 2]), full.clone()),
            (tensor(&[], &[0.0]), full.clone()),
        ] {
            let call = call("SoftmaxCrossEntropyWithLogits").input(logits).input(labels);
            let outputs = call.run_all().unwrap();
            for loss in outputs[0].as_slice::<f32>().unwrap() {
                assert!((loss - 3.295_837).abs() < 1e-5);
            }
            for x in outputs[1].as_slice::<f32>().unwrap() {
                assert!((x + 0.666_666_7).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn hostile_inputs() {
        let sparse = |logits: &[usize], labels: &[i32]| {
            let logits = Tensor::zeros(DType::Float, Shape::new(logits).unwrap()).unwrap();
            let call = call("SparseSoftmaxCrossEntropyWithLogits").input(logits);
            call.input(Tensor::vector(labels).unwrap()).run().unwrap_err().code()
        };
        for (logits, labels) in [
            (&[2, 3][..], &[0, 3][..]),
            (&[2, 3], &[0, -1]),
            (&[2, 3], &[i32::MIN, i32::MAX]),
            (&[2, 3], &[0]),
            (&[3], &[0]),
            (&[2, 0], &[0, 0]),
        ] {
            assert_eq!(sparse(logits, labels), Code::InvalidArgument);
        }
    }
}
