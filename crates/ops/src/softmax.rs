//! `Softmax` and `LogSoftmax` along the last dimension.

use half::{bf16, f16};
use num_traits::Float;
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Result, ensure};

use crate::gradients::Arithmetic;
use crate::lowering::{set_narrow, wide};
use crate::map::{narrowed, widened};
use crate::math::fold::{Fold, Maximum};
use crate::math::real::Real;
use crate::math::rows::{exponentials, log_softmax_row, scale, softmax_short_rows};
use crate::math::widen::Widen;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[SOFTMAX, LOG_SOFTMAX],
    kernels: &[
        cpu_kernel!("Softmax", "T" in [f32, f64, f16, bf16] => softmax),
        cpu_kernel!("LogSoftmax", "T" in [f32, f64, f16, bf16] => log_softmax),
        KernelSpec::lowering("Softmax", |l| {
            lower_by_rows(l, |exponentials, sum, _| exponentials / sum)
        }),
        KernelSpec::lowering("LogSoftmax", |l| {
            lower_by_rows(l, |_, sum, centred| centred - sum.log())
        }),
    ],
};

const SOFTMAX: OpDef = OpDef::new("Softmax", rank_at_least_one)
    .with_work(Work::per_output::<70>)
    .with_gradient(softmax_grad);

const LOG_SOFTMAX: OpDef = OpDef { name: "LogSoftmax", ..SOFTMAX }.with_gradient(log_softmax_grad);

/// y (grad - Σ grad y), along the last dimension.
fn softmax_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let (weighted, last) = (g.times(grad, y)?, g.ints(&[-1])?);
    let mean = g.sum_kept(weighted, last)?;
    let centred = g.minus(grad, mean)?;
    let adjoint = g.times(centred, y)?;
    g.set(0, adjoint)
}

/// grad - softmax Σ grad.
fn log_softmax_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, y) = (g.grad(0)?, g.output(0));
    let (softmax, last) = (g.add("Exp", &[y])?, g.ints(&[-1])?);
    let sum = g.sum_kept(grad, last)?;
    let share = g.times(sum, softmax)?;
    let adjoint = g.minus(grad, share)?;
    g.set(0, adjoint)
}

fn rank_at_least_one(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank_at_least(0, "logits", 1)?.clone();
    c.set_output(0, shape);
    Ok(())
}

/// The logits of each row less their maximum, their exponentials, and the sums of these.
pub(crate) struct Exponentials {
    pub(crate) centred: Value,
    pub(crate) exponentials: Value,
    pub(crate) sum: Value,
}

impl Exponentials {
    /// Of logits with classes in the last dimension; there is one.
    pub(crate) fn of(logits: &Value) -> Exponentials {
        let (dims, last) = (logits.dims(), [logits.rank() - 1]);
        let centred = logits - logits.max_of(&last).keep_dims(dims, &last);
        let exponentials = centred.exp();
        let sum = exponentials.sum(&last).keep_dims(dims, &last);
        Exponentials { centred, exponentials, sum }
    }
}

/// Lowers a function of the exponentials, their sum and the centred logits of each row.
fn lower_by_rows(
    l: &mut Lowering<'_>,
    f: impl FnOnce(&Value, &Value, &Value) -> Value,
) -> Result<()> {
    let logits = l.input(0)?;
    ensure!(
        logits.rank() >= 1,
        InvalidArgument,
        "logits must have >= 1 dimension, got {:?}",
        logits.dims()
    );
    if logits.num_elements() == 0 {
        return l.set(0, logits);
    }
    let rows = Exponentials::of(&wide(&logits));
    set_narrow(l, 0, &f(&rows.exponentials, &rows.sum, &rows.centred))
}

fn softmax<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
    Maximum: Fold<T::Wide>,
{
    AnyKernel::new(|ctx| {
        by_rows::<T>(ctx, |rows, columns| {
            if columns <= SHORT_ROW {
                return softmax_short_rows::<T::Wide, Maximum>(rows, columns);
            }
            for row in rows.chunks_exact_mut(columns) {
                let sum = exponentials(row);
                scale(row, sum.recip());
            }
        })
    })
}

fn log_softmax<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Real,
    Maximum: Fold<T::Wide>,
{
    AnyKernel::new(|ctx| {
        by_rows::<T>(ctx, |rows, columns| {
            rows.chunks_exact_mut(columns).for_each(log_softmax_row);
        })
    })
}

/// Rows up to this length are processed together.
const SHORT_ROW: usize = 32;
/// Elements of short rows that are processed together; they fit in the first-level cache.
const ELEMENTS_AT_ONCE: usize = 1024;

/// Calls `work`, which computes in place, on several rows of the logits.
fn by_rows<T: Widen>(
    ctx: &mut KernelContext<'_>,
    work: impl Fn(&mut [T::Wide], usize) + Sync,
) -> Result<()> {
    let shape = ctx.input(0)?.shape();
    ensure!(shape.rank() >= 1, InvalidArgument, "logits must have >= 1 dimension, got {shape}");
    let columns = shape[shape.rank() - 1];
    let (mut wide, is_blank) = widened::<T>(ctx, 0)?;
    let source = if is_blank { Some(ctx.slice::<T::Wide>(0)?) } else { None };
    let nanoseconds = 1.0 * columns as f64;
    for_each_rows(ctx, wide.as_mut_slice()?, columns, nanoseconds, |first, out| {
        let (mut start, at_once) = (first * columns, (ELEMENTS_AT_ONCE / columns).max(1));
        for rows in out.chunks_mut(at_once * columns) {
            if let Some(source) = source {
                rows.copy_from_slice(&source[start..start + rows.len()]);
            }
            start += rows.len();
            work(rows, columns);
        }
    })?;
    let output = narrowed::<T>(ctx, wide)?;
    ctx.set_output(0, output)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Tensor};

    use crate::testing::{call, pairs};

    #[test]
    fn shapes() {
        assert_eq!(call("Softmax").shape(DType::Float, "2,?").infer(), "[2,?]");
        assert!(call("LogSoftmax").shape(DType::Float, "").infer().starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn rows_sum_to_one() {
        let mut state = 1u32;
        for columns in [1, 2, 15, 16, 17, 100, 1000, 3001] {
            let values: Vec<f32> = (0..3 * columns)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 16) as f32 / 1000.0 - 30.0
                })
                .collect();
            let shape = thalweg_tensor::Shape::new(&[3, columns]).unwrap();
            let input = Tensor::from_slice(shape, &values).unwrap();
            let soft = call("Softmax").input(input.clone()).run().unwrap();
            let logs = call("LogSoftmax").input(input.clone()).run().unwrap();
            let (soft, logs) = (soft.as_slice::<f32>().unwrap(), logs.as_slice::<f32>().unwrap());
            for row in soft.chunks(columns) {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
            }
            for (s, l) in pairs(soft, logs) {
                assert!((s.ln() - l).abs() < 2e-5 || *s < 1e-37, "{s} {l}");
            }
        }
    }

    #[test]
    fn special_values() {
        const LOWEST: f32 = f32::NEG_INFINITY;
        let run = |op, x: &[f32]| {
            let got = call(op).input(Tensor::vector(x).unwrap()).run().unwrap();
            got.as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(run("Softmax", &[LOWEST, 1.0]), [0.0, 1.0]);
        assert_eq!(run("LogSoftmax", &[LOWEST, 1.0]), [LOWEST, 0.0]);
        assert_eq!(run("Softmax", &[1e30, -1e30]), [1.0, 0.0]);
        assert!(run("Softmax", &[LOWEST, LOWEST]).iter().all(|x| x.is_nan()));
        assert!(run("Softmax", &[]).is_empty());
        let scalar = call("Softmax").input(Tensor::scalar(1.0f32)).run();
        assert_eq!(scalar.unwrap_err().code(), Code::InvalidArgument);
    }
}
