//! `MatrixBandPart`.

use thalweg_graph::{Gradient, GradientContext, OpDef, Work, shape};
use thalweg_hlo::Comparison;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Result, Shape, ensure};

use crate::cells::{Cell, nanoseconds_per_cell};
use crate::matrix_diag::{MOVED, split_matrix};
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[MATRIX_BAND_PART, BATCH_MATRIX_BAND_PART],
    kernels: &[
        kernel("MatrixBandPart"),
        kernel("BatchMatrixBandPart"),
        KernelSpec::lowering("MatrixBandPart", lower_band_part)
            .with_host_inputs(&["num_lower", "num_upper"]),
        KernelSpec::lowering("BatchMatrixBandPart", lower_band_part)
            .with_host_inputs(&["num_lower", "num_upper"]),
    ],
};

const fn kernel(op: &'static str) -> KernelSpec {
    KernelSpec {
        op,
        create: matrix_band_part,
        host_inputs: &["num_lower", "num_upper"],
        constraints: &[("T", MOVED)],
        ..KernelSpec::CPU
    }
}

const MATRIX_BAND_PART: OpDef =
    OpDef::new("MatrixBandPart", shape::unchanged).with_work(Work::moves).with_gradient(band_grad);

fn band_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, lower, upper) = (g.grad(0)?, g.input(1), g.input(2));
    let band = g.add("MatrixBandPart", &[grad, lower, upper])?;
    g.set(0, band)
}

const BATCH_MATRIX_BAND_PART: OpDef =
    OpDef { name: "BatchMatrixBandPart", gradient: Gradient::Unknown, ..MATRIX_BAND_PART };

/// The number of diagonals to keep on one side; negative means all.
fn kept(ctx: &KernelContext<'_>, i: usize, name: &str, size: usize, what: &str) -> Result<usize> {
    let given = ctx.input(i)?;
    ensure!(
        given.rank() == 0,
        InvalidArgument,
        "{name} must be scalar, got shape {}",
        given.shape()
    );
    kept_of(ctx.scalar_int(i, name)?, name, size, what)
}

fn kept_of(given: i64, name: &str, size: usize, what: &str) -> Result<usize> {
    ensure!(
        given <= size as i64,
        InvalidArgument,
        "{name} must be negative or less or equal to number of {what} ({size}) got: {given}"
    );
    Ok(usize::try_from(given).unwrap_or(size))
}

fn lower_band_part(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let shape = Shape::new(x.dims())?;
    let (_, rows, columns) = split_matrix(&shape)?;
    let lower = kept_of(l.int(1)?, "num_lower", rows, "rows")?;
    let upper = kept_of(l.int(2)?, "num_upper", columns, "columns")?;
    // How far right of the main diagonal an element is.
    let place = |dim: usize| x.iota(DType::Int64, &[rows, columns], dim);
    let distance = place(1) - place(0);
    let is_kept = distance
        .compare_to(Comparison::GreaterEqual, -(lower as f64))
        .and(&distance.compare_to(Comparison::LessEqual, upper as f64));
    l.set(0, is_kept.select(&x, &x.scalar_like(0.0)))
}

fn matrix_band_part(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = ctx.input(0)?.shape().clone();
        let (_, rows, columns) = split_matrix(&shape)?;
        let lower = kept(ctx, 1, "num_lower", rows, "rows")?;
        let upper = kept(ctx, 2, "num_upper", columns, "columns")?;
        let dtype = ctx.output_dtype(0)?;
        let (mut out, taken) = ctx.forward_input_or_allocate(&[0], dtype, &shape)?;
        with_cell!(dtype, C => {
            let source = if taken.is_some() { None } else { Some(C::view(ctx.input(0)?)?) };
            let cost = nanoseconds_per_cell::<C>() * columns as f64 + 5.0;
            for_each_rows(ctx, C::view_mut(&mut out)?, columns, cost, |first, out| {
                for (i, out) in (first..).zip(out.chunks_exact_mut(columns)) {
                    let row = i % rows;
                    let from = row.saturating_sub(lower).min(columns);
                    let to = (row + upper + 1).clamp(from, columns);
                    if let Some(source) = source {
                        out[from..to].clone_from_slice(&source[i * columns..][from..to]);
                    }
                    out[..from].fill(C::default());
                    out[to..].fill(C::default());
                }
            })?;
        });
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    #[test]
    fn bands() {
        let matrix =
            || Tensor::from_slice(Shape::new(&[2, 3]).unwrap(), &[1, 2, 3, 4, 5, 6]).unwrap();
        for (lower, upper, expected) in [
            (0i64, 0i64, [1, 0, 0, 0, 5, 0]),
            (-1, 0, [1, 0, 0, 4, 5, 0]),
            (0, 1, [1, 2, 0, 0, 5, 6]),
            (2, 3, [1, 2, 3, 4, 5, 6]),
            (-5, -7, [1, 2, 3, 4, 5, 6]),
        ] {
            let call = call("MatrixBandPart").input(matrix()).input(Tensor::scalar(lower));
            let got = call.input(Tensor::scalar(upper)).run().unwrap();
            assert_eq!(got.as_slice::<i32>().unwrap(), expected, "{lower} {upper}");
        }
    }

    #[test]
    fn hostile_inputs() {
        let empty = || Tensor::zeros(DType::Float, Shape::new(&[2, 0, 3]).unwrap()).unwrap();
        for (lower, upper) in [(1i64, 0i64), (0, 4), (i64::MAX, -1)] {
            let call = call("MatrixBandPart").input(empty()).input(Tensor::scalar(lower));
            assert_eq!(code(call.input(Tensor::scalar(upper)).run()), Some(Code::InvalidArgument));
        }
        let vector = call("MatrixBandPart").input(Tensor::vector(&[1f32]).unwrap());
        assert_eq!(
            code(vector.input(Tensor::scalar(0)).input(Tensor::scalar(0)).run()),
            Some(Code::InvalidArgument)
        );
    }
}
