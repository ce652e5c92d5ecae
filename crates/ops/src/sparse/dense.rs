//! Ops between sparse and dense tensors: `SparseToDense`, `SparseTensorDenseAdd` and the like.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16,
};

use super::coo::{Coordinates, sparse_input_shapes};
use super::{dense_lowering, gradients};
use crate::cells::{Cell, blank, fill};
use crate::gather::Points;
use crate::indices::Indices;
use crate::number::Number;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_TO_DENSE.with_gradient(gradients::to_dense),
        SPARSE_TENSOR_DENSE_ADD.with_gradient(gradients::tensor_dense_add),
        OpDef::new("SparseDenseCwiseAdd", cwise_shape).with_work(Work::serial::<10>),
        SPARSE_DENSE_CWISE_DIV.with_gradient(gradients::cwise_div),
        SPARSE_DENSE_CWISE_MUL.with_gradient(gradients::cwise_mul),
    ],
    kernels: &[
        KernelSpec {
            op: "SparseToDense",
            constraints: &[("T", MOVABLE)],
            create: sparse_to_dense,
            ..KernelSpec::CPU
        },
        cpu_kernel!("SparseTensorDenseAdd", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => add_to_dense),
        cpu_kernel!("SparseDenseCwiseAdd", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => cwise_add),
        cpu_kernel!("SparseDenseCwiseDiv", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => cwise_div),
        cpu_kernel!("SparseDenseCwiseMul", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => cwise_mul),
        KernelSpec::lowering("SparseToDense", dense_lowering::to_dense)
            .with_host_inputs(&["output_shape"]),
        KernelSpec::lowering("SparseTensorDenseAdd", dense_lowering::add_to_dense)
            .with_host_inputs(&["a_shape"]),
        KernelSpec::lowering("SparseDenseCwiseAdd", |l| dense_lowering::combine(l, Value::plus))
            .with_host_inputs(&["sp_shape"]),
        KernelSpec::lowering("SparseDenseCwiseDiv", |l| {
            dense_lowering::combine(l, Value::divided_by)
        })
        .with_host_inputs(&["sp_shape"]),
        KernelSpec::lowering("SparseDenseCwiseMul", |l| dense_lowering::combine(l, Value::times))
            .with_host_inputs(&["sp_shape"]),
    ],
};

const MOVABLE: &[DType] = &[
    DType::Float,
    DType::Double,
    DType::Half,
    DType::BFloat16,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Bool,
    DType::String,
    DType::Complex64,
    DType::Complex128,
    DType::QInt8,
    DType::QUInt8,
    DType::QInt16,
    DType::QUInt16,
];

const SPARSE_TO_DENSE: OpDef = OpDef::new("SparseToDense", to_dense_shape).with_work(Work::moves);

fn to_dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.shape_from_input(1)?);
    Ok(())
}

fn sparse_to_dense(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let validates = init.attrs().bool("validate_indices")?;
    AnyKernel::new(move |ctx| {
        let (indices, values, default) = (ctx.input(0)?, ctx.input(2)?, ctx.input(3)?);
        let (count, rank) = check_to_dense(ctx)?;
        let shape = ctx.shape_input(1, "output_shape")?;
        let points = Points::new(Indices::of(indices)?, rank, &shape);
        let mut before = None;
        for i in 0..count {
            let Some(offset) = points.offset(i) else {
                bail!(
                    InvalidArgument,
                    "indices[{i}] = {} is out of bounds: need 0 <= index < {shape}",
                    points.show(i)
                );
            };
            // Offsets are in the order of the coordinates.
            if validates && before >= Some(offset) {
                let what = if before == Some(offset) { "repeated" } else { "out of order" };
                bail!(InvalidArgument, "indices[{i}] = {} is {what}", points.show(i));
            }
            before = Some(offset);
        }
        let mut output = blank(ctx, values.dtype(), shape)?;
        with_cell!(values.dtype(), C => {
            let (values, default) = (C::view(values)?, &C::view(default)?[0]);
            let target = C::view_mut(&mut output)?;
            let cost = crate::cells::nanoseconds_per_cell::<C>();
            for_each_rows(ctx, target, 1, cost, |_, part| fill(part, default))?;
            for i in 0..count {
                let offset = points.offset(i).expect("all were checked");
                target[offset].clone_from(&values[if values.len() == 1 { 0 } else { i }]);
            }
        });
        ctx.set_output(0, output)
    })
}

/// Checks the inputs of `SparseToDense`; returns the number of values and the rank.
fn check_to_dense(ctx: &KernelContext<'_>) -> Result<(usize, usize)> {
    let (indices, shape) = (ctx.input(0)?, ctx.input(1)?);
    let (values, default) = (ctx.input(2)?, ctx.input(3)?);
    let (count, rank) = match indices.shape()[..] {
        [] => (1, 1),
        [count] => (count, 1),
        [count, rank] => (count, rank),
        _ => bail!(
            InvalidArgument,
            "sparse_indices should be a scalar, vector, or matrix, got shape {}",
            indices.shape()
        ),
    };
    ensure!(
        shape.rank() == 1,
        InvalidArgument,
        "output_shape must be rank 1, got shape {}",
        shape.shape()
    );
    ensure!(
        shape.num_elements() == rank,
        InvalidArgument,
        "output_shape has incorrect number of elements: {} should be: {rank}",
        shape.num_elements()
    );
    ensure!(
        values.rank() == 0 || values.shape()[..] == [count],
        InvalidArgument,
        "sparse_values has incorrect shape {}, should be [] or [{count}]",
        values.shape()
    );
    ensure!(default.rank() == 0, InvalidArgument, "default_value should be a scalar");
    Ok((count, rank))
}

const SPARSE_TENSOR_DENSE_ADD: OpDef =
    OpDef::new("SparseTensorDenseAdd", dense_add_shape).with_work(Work::moves);

fn dense_add_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(3).clone());
    Ok(())
}

/// Checks that TensorFlow has a kernel for the rank.
fn check_rank(rank: usize) -> Result<()> {
    ensure!(
        (1..=5).contains(&rank),
        InvalidArgument,
        "Only tensors with ranks between 1 and 5 are currently supported. Tensor rank: {rank}"
    );
    Ok(())
}

fn add_to_dense<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        check_dense_add(ctx)?;
        let shape = ctx.input(3)?.shape().clone();
        {
            let points = Points::new(Indices::of(ctx.input(0)?)?, shape.rank(), &shape);
            for i in 0..ctx.input(1)?.num_elements() {
                ensure!(
                    points.offset(i).is_some(),
                    InvalidArgument,
                    "Sparse tensor has some invalid index on row {i}: {} is outside {shape}",
                    points.show(i)
                );
            }
        }
        let mut output = ctx.take_input(3)?;
        output.make_unique(Some(ctx.budget()))?;
        let points = Points::new(Indices::of(ctx.input(0)?)?, shape.rank(), &shape);
        let target = output.as_mut_slice::<T>()?;
        for (i, &value) in ctx.slice::<T>(1)?.iter().enumerate() {
            let offset = points.offset(i).expect("all were checked");
            target[offset] = target[offset].plus(value);
        }
        ctx.set_output(0, output)
    })
}

fn check_dense_add(ctx: &KernelContext<'_>) -> Result<()> {
    let (indices, values) = (ctx.input(0)?, ctx.input(1)?);
    let (shape, dense) = (ctx.input(2)?, ctx.input(3)?);
    ensure!(
        indices.rank() == 2,
        InvalidArgument,
        "Input a_indices should be a matrix but received shape: {}",
        indices.shape()
    );
    ensure!(
        values.rank() == 1 && shape.rank() == 1,
        InvalidArgument,
        "Inputs a_values and a_shape should be vectors but received shapes: {} and {}",
        values.shape(),
        shape.shape()
    );
    ensure!(
        values.num_elements() == indices.shape()[0],
        InvalidArgument,
        "Number of values must match first dimension of indices. Got {} values, indices shape: {}",
        values.num_elements(),
        indices.shape()
    );
    ensure!(
        shape.num_elements() == indices.shape()[1],
        InvalidArgument,
        "Number of dimensions must match second dimension of indices. Got {} dimensions, indices \
         shape: {}",
        shape.num_elements(),
        indices.shape()
    );
    ensure!(
        shape.num_elements() == dense.rank(),
        InvalidArgument,
        "Two operands have different ranks; received: {} and {}",
        shape.num_elements(),
        dense.rank()
    );
    let sizes = ctx.ints(2, "a_shape")?;
    ensure!(
        sizes[..] == dense.shape().to_i64()[..],
        InvalidArgument,
        "the shapes differ (no broadcasting is supported): {:?} and {}",
        &sizes[..],
        dense.shape()
    );
    check_rank(dense.rank())
}

const SPARSE_DENSE_CWISE_DIV: OpDef =
    OpDef::new("SparseDenseCwiseDiv", cwise_shape).with_work(Work::serial::<10>);
const SPARSE_DENSE_CWISE_MUL: OpDef =
    OpDef::new("SparseDenseCwiseMul", cwise_shape).with_work(Work::serial::<10>);

fn cwise_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (count, _) = sparse_input_shapes(c, 0)?;
    c.set_output(0, PartialShape::new([count]));
    Ok(())
}

/// Strides of the dense operand, broadcast to the sparse one's shape.
fn broadcast_strides(sparse: &Coordinates<'_>, dense: &Tensor) -> Result<SmallVec<[usize; 6]>> {
    let shape = sparse.shape()?;
    let dims = dense.shape();
    let fits = dims.len() <= shape.len()
        && dims.iter().rev().zip(shape.iter().rev()).all(|(&d, &s)| d == s || (d == 1 && s > 0));
    ensure!(
        fits,
        InvalidArgument,
        "SparseDenseBinaryOp broadcasts dense to sparse only; got incompatible shapes: [{shape}] \
         vs. [{dims}]"
    );
    let own = crate::strided::strides(dims);
    let missing = shape.len() - dims.len();
    let stride = |i: usize| match i.checked_sub(missing) {
        Some(j) if dims[j] > 1 => own[j],
        _ => 0,
    };
    Ok((0..shape.len()).map(stride).collect())
}

fn cwise<T: Number>(
    divides: bool,
    combine: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let sparse = Coordinates::of_inputs(ctx, 0)?;
        let (values, dense) = (ctx.input(1)?, ctx.input(3)?);
        ensure!(
            values.num_elements() > 0 || sparse.count == 0,
            InvalidArgument,
            "The SparseTensor has no values"
        );
        let strides = broadcast_strides(&sparse, dense)?;
        check_rank(sparse.rank)?;
        sparse.check_bounds()?;
        let (values, elements) = (values.as_slice::<T>()?, dense.as_slice::<T>()?);
        let partner = |i: usize| {
            let offset: usize =
                sparse.row(i).iter().zip(&strides).map(|(&x, &s)| x as usize * s).sum();
            elements[offset]
        };
        // Here division of floats by zero is an error, too, but only for divisors that are used.
        ensure!(
            !divides || (0..sparse.count).all(|i| partner(i) != T::default()),
            InvalidArgument,
            "SparseDenseCwiseDiv cannot divide by zero, but input dense tensor contains zero"
        );
        let mut output = ctx.allocate_output(0, Shape::new(&[sparse.count])?)?;
        for_each_rows(ctx, output.as_mut_slice::<T>()?, 1, 4.0, |first, part| {
            for (n, slot) in part.iter_mut().enumerate() {
                *slot = combine(values[first + n], partner(first + n));
            }
        })?;
        ctx.set_output(0, output)
    })
}

fn cwise_add<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    cwise::<T>(false, T::plus)
}

fn cwise_div<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    cwise::<T>(true, T::over)
}

fn cwise_mul<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    cwise::<T>(false, T::times)
}
