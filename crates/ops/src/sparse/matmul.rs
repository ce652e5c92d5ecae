//! `SparseTensorDenseMatMul`.

use thalweg_graph::OpDef;
use thalweg_graph::shape::ShapeContext;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, Element, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16,
};

use super::{dense_lowering, gradients};
use crate::indices::Indices;
use crate::number::Number;
use crate::split::Disjoint;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[SPARSE_TENSOR_DENSE_MAT_MUL.with_gradient(gradients::matmul)],
    kernels: &[
        cpu_kernel!("SparseTensorDenseMatMul", "T" in [
        f32, f64, f16, bf16, i32, Complex32, Complex64
    ] => product; host_inputs: &["a_shape"]),
        KernelSpec::lowering("SparseTensorDenseMatMul", dense_lowering::product)
            .with_host_inputs(&["a_shape"]),
    ],
};

const SPARSE_TENSOR_DENSE_MAT_MUL: OpDef =
    OpDef::new("SparseTensorDenseMatMul", product_shape).with_work(work::sparse_product);

fn product_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (adjoint_a, adjoint_b) = (c.attrs().bool("adjoint_a")?, c.attrs().bool("adjoint_b")?);
    let indices = c.with_rank(0, "a_indices", 2)?;
    let values = c.with_rank(1, "a_values", 1)?;
    c.with_rank(2, "a_shape", 1)?;
    let b = c.with_rank(3, "b", 2)?;
    indices.merge(&PartialShape::new([values.dim(0), Some(2)]))?;
    let a = c.shape_from_input(2)?.merge(&PartialShape::of_rank(2))?;
    let (rows, inner) = if adjoint_a { (a.dim(1), a.dim(0)) } else { (a.dim(0), a.dim(1)) };
    let (b_inner, columns) = if adjoint_b { (b.dim(1), b.dim(0)) } else { (b.dim(0), b.dim(1)) };
    PartialShape::new([inner]).merge(&PartialShape::new([b_inner]))?;
    c.set_output(0, PartialShape::new([rows, columns]));
    Ok(())
}

/// Element types with their accumulator types.
trait Factor: Element {
    type Sum: Number;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
    fn conjugate(self) -> Self {
        self
    }
}

macro_rules! factors {
    ($($t:ty => $sum:ty: $widen:expr, $narrow:expr, $conjugate:expr;)+) => { $(
        impl Factor for $t {
            type Sum = $sum;
            #[inline(always)]
            fn widen(self) -> $sum {
                let widen: fn($t) -> $sum = $widen;
                widen(self)
            }
            #[inline(always)]
            fn narrow(sum: $sum) -> $t {
                let narrow: fn($sum) -> $t = $narrow;
                narrow(sum)
            }
            #[inline(always)]
            fn conjugate(self) -> $t {
                let conjugate: fn($t) -> $t = $conjugate;
                conjugate(self)
            }
        }
    )+ };
}

factors! {
    f32 => f32: |x| x, |x| x, |x| x;
    f64 => f64: |x| x, |x| x, |x| x;
    i32 => i32: |x| x, |x| x, |x| x;
    f16 => f32: f32::from, f16::from_f32, |x| x;
    bf16 => f32: f32::from, bf16::from_f32, |x| x;
    Complex32 => Complex32: |x| x, |x| x, |x| x.conj();
    Complex64 => Complex64: |x| x, |x| x, |x| x.conj();
}

/// Sizes of a product with compatible operands.
struct Sizes {
    /// Number of values of the sparse matrix.
    count: usize,
    rows: usize,
    inner: usize,
    columns: usize,
}

fn check(ctx: &KernelContext<'_>, adjoint_a: bool, adjoint_b: bool) -> Result<Sizes> {
    let (indices, values) = (ctx.input(0)?, ctx.input(1)?);
    let (shape, b) = (ctx.input(2)?, ctx.input(3)?);
    ensure!(
        b.rank() == 2,
        InvalidArgument,
        "Tensor 'b' is not a matrix, it has shape {}",
        b.shape()
    );
    ensure!(
        shape.rank() == 1 && shape.num_elements() == 2,
        InvalidArgument,
        "Tensor 'a_shape' must have 2 elements, has shape {}",
        shape.shape()
    );
    ensure!(
        values.rank() == 1,
        InvalidArgument,
        "Tensor 'a_values' is not a vector, it has shape {}",
        values.shape()
    );
    ensure!(
        indices.shape()[..] == [values.num_elements(), 2],
        InvalidArgument,
        "Tensor 'a_indices' must have shape [{},2], has {}",
        values.num_elements(),
        indices.shape()
    );
    let a = ctx.shape_input(2, "a_shape")?;
    let (rows, inner) = if adjoint_a { (a[1], a[0]) } else { (a[0], a[1]) };
    let (b_inner, columns) =
        if adjoint_b { (b.shape()[1], b.shape()[0]) } else { (b.shape()[0], b.shape()[1]) };
    ensure!(
        inner == b_inner,
        InvalidArgument,
        "Cannot multiply A and B because inner dimension does not match: {inner} vs. {b_inner}.  \
         Did you forget a transpose?"
    );
    Ok(Sizes { count: values.num_elements(), rows, inner, columns })
}

fn check_bounds(indices: Indices<'_>, count: usize, rows: usize, columns: usize) -> Result<()> {
    for i in 0..count {
        for (k, size) in [(0, rows), (1, columns)] {
            if indices.below(2 * i + k, size).is_none() {
                bail!(
                    InvalidArgument,
                    "{} from index[{i},{k}] out of bounds (>={size})",
                    indices.at(2 * i + k)
                );
            }
        }
    }
    Ok(())
}

fn product<T: Factor>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let adjoint_a = init.attrs().bool("adjoint_a")?;
    let adjoint_b = init.attrs().bool("adjoint_b")?;
    AnyKernel::new(move |ctx| {
        let Sizes { count, rows, inner, columns } = check(ctx, adjoint_a, adjoint_b)?;
        let shape = Shape::new(&[rows, columns])?;
        if count == 0 || shape.num_elements() == 0 || inner == 0 {
            let output = ctx.zeros(T::DTYPE, shape)?;
            return ctx.set_output(0, output);
        }
        let (row_at, inner_at) = if adjoint_a { (1, 0) } else { (0, 1) };
        let indices = Indices::of(ctx.input(0)?)?;
        let (a_rows, a_columns) = if adjoint_a { (inner, rows) } else { (rows, inner) };
        check_bounds(indices, count, a_rows, a_columns)?;
        let transposed = if adjoint_b { Some(adjoint::<T>(ctx, ctx.input(3)?)?) } else { None };
        let b = transposed.as_ref().map_or(ctx.input(3)?, |t| t).as_slice::<T>()?;
        let values = ctx.slice::<T>(1)?;
        let mut sums = ctx.zeros(T::Sum::DTYPE, shape.clone())?;
        let target = Disjoint::new(sums.as_mut_slice::<T::Sum>()?);
        // Work is divided by columns, so that each sum adds its terms in the order of the values.
        ctx.parallel_for(columns, count as f64, |range| {
            for (i, &value) in values.iter().enumerate() {
                let value = if adjoint_a { value.conjugate() } else { value }.widen();
                let row = indices.at(2 * i + row_at) as usize * columns;
                let from = indices.at(2 * i + inner_at) as usize * columns;
                // SAFETY: ranges of columns are disjoint, and one thread's parts live in turn.
                let to = unsafe { target.part(row + range.start..row + range.end) };
                for (sum, x) in to.iter_mut().zip(&b[from + range.start..from + range.end]) {
                    *sum = sum.plus(value.times(x.widen()));
                }
            }
        })?;
        if T::Sum::DTYPE == T::DTYPE {
            return ctx.set_output(0, sums);
        }
        let mut output = ctx.allocate_output(0, shape)?;
        let sums = sums.as_slice::<T::Sum>()?;
        output.as_mut_slice::<T>()?.iter_mut().zip(sums).for_each(|(x, &s)| *x = T::narrow(s));
        ctx.set_output(0, output)
    })
}

/// The conjugate transpose.
fn adjoint<T: Factor>(ctx: &KernelContext<'_>, b: &Tensor) -> Result<Tensor> {
    let (rows, columns) = (b.shape()[0], b.shape()[1]);
    let mut output = ctx.allocate(T::DTYPE, Shape::new(&[columns, rows])?)?;
    let from = b.as_slice::<T>()?;
    crate::split::for_each_rows(ctx, output.as_mut_slice()?, rows, rows as f64, |first, part| {
        for (n, row) in part.chunks_exact_mut(rows).enumerate() {
            let column = from[first + n..].iter().step_by(columns);
            row.iter_mut().zip(column).for_each(|(to, x): (&mut T, &T)| *to = x.conjugate());
        }
    })?;
    Ok(output)
}
