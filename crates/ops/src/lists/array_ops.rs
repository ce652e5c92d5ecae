//! Ops on tensor arrays.

use smallvec::SmallVec;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::array::{TensorArray, Traits};
use super::array_definitions::*;
use super::handle::{set_handle, set_shared_handle, step_state, unique_name};
use super::join::joined;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TENSOR_ARRAY,
        TENSOR_ARRAY_V2,
        TENSOR_ARRAY_V3,
        TENSOR_ARRAY_GRAD,
        TENSOR_ARRAY_GRAD_V2,
        TENSOR_ARRAY_GRAD_V3,
        TENSOR_ARRAY_GRAD_WITH_SHAPE,
        TENSOR_ARRAY_WRITE,
        TENSOR_ARRAY_WRITE_V2,
        TENSOR_ARRAY_WRITE_V3,
        TENSOR_ARRAY_READ,
        TENSOR_ARRAY_READ_V2,
        TENSOR_ARRAY_READ_V3,
        TENSOR_ARRAY_GATHER,
        TENSOR_ARRAY_GATHER_V2,
        TENSOR_ARRAY_GATHER_V3,
        TENSOR_ARRAY_SCATTER,
        TENSOR_ARRAY_SCATTER_V2,
        TENSOR_ARRAY_SCATTER_V3,
        TENSOR_ARRAY_CONCAT,
        TENSOR_ARRAY_CONCAT_V2,
        TENSOR_ARRAY_CONCAT_V3,
        TENSOR_ARRAY_SPLIT,
        TENSOR_ARRAY_SPLIT_V2,
        TENSOR_ARRAY_SPLIT_V3,
        TENSOR_ARRAY_SIZE,
        TENSOR_ARRAY_SIZE_V2,
        TENSOR_ARRAY_SIZE_V3,
        TENSOR_ARRAY_CLOSE,
        TENSOR_ARRAY_CLOSE_V2,
        TENSOR_ARRAY_CLOSE_V3,
        TENSOR_ARRAY_PACK,
        TENSOR_ARRAY_UNPACK,
    ],
    kernels: &[
        KernelSpec { op: "TensorArray", host_inputs: &["size"], create: array, ..CHEAP },
        KernelSpec { op: "TensorArrayV2", host_inputs: &["size"], create: array, ..CHEAP },
        KernelSpec { op: "TensorArrayV3", host_inputs: &["size"], create: array, ..CHEAP },
        KernelSpec { op: "TensorArrayGrad", create: gradient_array, ..CHEAP },
        KernelSpec { op: "TensorArrayGradV2", create: gradient_array, ..CHEAP },
        KernelSpec { op: "TensorArrayGradV3", create: gradient_array, ..CHEAP },
        KernelSpec {
            op: "TensorArrayGradWithShape",
            host_inputs: &["shape_to_prepend"],
            create: gradient_array,
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayWrite",
            host_inputs: &["index"],
            create: |_| AnyKernel::new(write),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayWriteV2",
            host_inputs: &["index"],
            create: |_| AnyKernel::new(write),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayWriteV3",
            host_inputs: &["index"],
            create: |_| AnyKernel::new(write),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayRead",
            host_inputs: &["index"],
            create: |_| AnyKernel::new(read),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayReadV2",
            host_inputs: &["index"],
            create: |_| AnyKernel::new(read),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayReadV3",
            host_inputs: &["index"],
            create: |_| AnyKernel::new(read),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArrayGather",
            host_inputs: &["indices"],
            create: gather,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayGatherV2",
            host_inputs: &["indices"],
            create: gather,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayGatherV3",
            host_inputs: &["indices"],
            create: gather,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayScatter",
            host_inputs: &["indices"],
            create: |_| AnyKernel::new(scatter),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayScatterV2",
            host_inputs: &["indices"],
            create: |_| AnyKernel::new(scatter),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayScatterV3",
            host_inputs: &["indices"],
            create: |_| AnyKernel::new(scatter),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayConcat",
            host_outputs: &["lengths"],
            create: concat,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayConcatV2",
            host_outputs: &["lengths"],
            create: concat,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArrayConcatV3",
            host_outputs: &["lengths"],
            create: concat,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArraySplit",
            host_inputs: &["lengths"],
            create: |_| AnyKernel::new(split),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArraySplitV2",
            host_inputs: &["lengths"],
            create: |_| AnyKernel::new(split),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArraySplitV3",
            host_inputs: &["lengths"],
            create: |_| AnyKernel::new(split),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorArraySize",
            host_outputs: &["size"],
            create: |_| AnyKernel::new(size),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArraySizeV2",
            host_outputs: &["size"],
            create: |_| AnyKernel::new(size),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorArraySizeV3",
            host_outputs: &["size"],
            create: |_| AnyKernel::new(size),
            ..CHEAP
        },
        KernelSpec { op: "TensorArrayClose", create: |_| AnyKernel::new(close), ..CHEAP },
        KernelSpec { op: "TensorArrayCloseV2", create: |_| AnyKernel::new(close), ..CHEAP },
        KernelSpec { op: "TensorArrayCloseV3", create: |_| AnyKernel::new(close), ..CHEAP },
        KernelSpec { op: "TensorArrayPack", create: gather, ..KernelSpec::CPU },
        KernelSpec {
            op: "TensorArrayUnpack",
            create: |_| AnyKernel::new(scatter),
            ..KernelSpec::CPU
        },
    ],
};

const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

/// TensorFlow's container names of arrays and gradient arrays.
const ARRAYS: &str = "_tensor_arrays";
const GRADIENTS: &str = "_tensor_array_grads";

fn array(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let name = match attrs.string("tensor_array_name")? {
        "" => init.node.name.to_string(),
        given => given.to_owned(),
    };
    let traits = Traits {
        dtype: attrs.dtype("dtype")?,
        shape: attrs.shape("element_shape")?,
        grows: attrs.bool("dynamic_size")?,
        clears_after_read: attrs.bool("clear_after_read")?,
        // Only V3 has the attr.
        has_identical_shapes: attrs.bool("identical_element_shapes").unwrap_or(false),
    };
    AnyKernel::new(move |ctx| {
        let len = ctx.scalar_int(0, "size")?;
        let len = usize::try_from(len)
            .map_err(|_| err!(InvalidArgument, "Size should be >= 0, is {len}"))?;
        let (name, budget) = (unique_name(&name), ctx.budget());
        set_handle(ctx, ARRAYS, &name, || TensorArray::new(name.clone(), &traits, len, budget))?;
        set_flow(ctx, Tensor::scalar(0f32))
    })
}

/// Sets the flow output of V3 creation ops.
fn set_flow(ctx: &mut KernelContext<'_>, flow: Tensor) -> Result<()> {
    if ctx.num_outputs() > 1 { ctx.set_output(1, flow) } else { Ok(()) }
}

fn gradient_array(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let source = init.attrs().string("source")?.to_owned();
    AnyKernel::new(move |ctx| {
        let forward = step_state::<TensorArray>(ctx, 0)?;
        let prefix = match ctx.num_inputs() {
            3 => ctx.shape_input(2, "shape_to_prepend")?,
            _ => Shape::scalar(),
        };
        let (name, budget) = (format!("{}@{source}", forward.name).into(), ctx.budget());
        let make = || forward.gradients(std::sync::Arc::clone(&name), &prefix, budget);
        set_shared_handle(ctx, GRADIENTS, &name, make)?;
        let flow = ctx.take_input(1)?;
        set_flow(ctx, flow)
    })
}

/// Checks that the array has the op's dtype.
fn check_dtype(array: &TensorArray, dtype: DType) -> Result<()> {
    ensure!(
        array.dtype == dtype,
        InvalidArgument,
        "TensorArray dtype is {} but Op has dtype {dtype}.",
        array.dtype
    );
    Ok(())
}

/// Sets the output of a writing op to the flow in its last input.
fn pass_flow(ctx: &mut KernelContext<'_>) -> Result<()> {
    let flow = ctx.take_input(ctx.num_inputs() - 1)?;
    ctx.set_output(0, flow)
}

fn write(ctx: &mut KernelContext<'_>) -> Result<()> {
    let array = step_state::<TensorArray>(ctx, 0)?;
    let (index, value) = (ctx.scalar_int(1, "index")?, ctx.take_input(2)?);
    check_dtype(&array, value.dtype())?;
    array.write(ctx, index, value)?;
    pass_flow(ctx)
}

fn read(ctx: &mut KernelContext<'_>) -> Result<()> {
    let array = step_state::<TensorArray>(ctx, 0)?;
    check_dtype(&array, ctx.output_dtype(0)?)?;
    let value = array.read(ctx, ctx.scalar_int(1, "index")?)?;
    ctx.set_output(0, value)
}

/// The element indices in input 1, or all indices if the op has no such input.
fn indices(
    ctx: &KernelContext<'_>,
    name: &str,
    all: impl FnOnce() -> Result<usize>,
) -> Result<Vec<i64>> {
    if ctx.input_range(name).is_err() {
        return Ok((0..all()? as i64).collect());
    }
    let indices = ctx.input(1)?;
    ensure!(
        indices.rank() == 1,
        InvalidArgument,
        "Expected indices to be a vector, but received shape: {}",
        indices.shape()
    );
    Ok(ctx.ints(1, name)?.into_vec())
}

/// Reads several elements.
fn read_all(ctx: &KernelContext<'_>, array: &TensorArray, indices: &[i64]) -> Result<Vec<Tensor>> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(indices.len())
        .map_err(|_| err!(ResourceExhausted, "out of memory for {} tensors", indices.len()))?;
    for &index in indices {
        values.push(array.read(ctx, index)?);
    }
    Ok(values)
}

/// An empty tensor: `rows` followed by the sizes of `shape`, which must be fully known.
fn nothing_of(ctx: &KernelContext<'_>, shape: &PartialShape) -> Result<Tensor> {
    let Some(shape) = shape.to_shape() else {
        bail!(
            Unimplemented,
            "TensorArray has size zero, but element shape {shape} is not fully defined. Currently \
             only static shapes are supported when packing zero-size TensorArrays."
        );
    };
    let dims: SmallVec<[usize; 6]> = [0].iter().chain(&shape[..]).copied().collect();
    ctx.zeros(ctx.output_dtype(0)?, Shape::new(&dims)?)
}

fn gather(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let shape = init.attrs().shape("element_shape")?;
    AnyKernel::new(move |ctx| {
        let (array, dtype) = (step_state::<TensorArray>(ctx, 0)?, ctx.output_dtype(0)?);
        check_dtype(&array, dtype)?;
        array.merge_shape(&shape)?;
        let indices = indices(ctx, "indices", || array.packed_len())?;
        if indices.is_empty() {
            let output = nothing_of(ctx, &shape)?;
            return ctx.set_output(0, output);
        }
        let values = read_all(ctx, &array, &indices)?;
        let first = values[0].shape();
        ensure!(
            shape.is_compatible_with(first),
            InvalidArgument,
            "TensorArray was passed element_shape {shape} which does not match the Tensor at index \
             0: {first}"
        );
        for (i, value) in values.iter().enumerate() {
            ensure!(
                value.shape() == first,
                InvalidArgument,
                "TensorArray has inconsistent shapes.  Index 0 has shape: {first} but index {i} \
                 has shape: {}",
                value.shape()
            );
        }
        let len = first.num_elements();
        let dims: SmallVec<[usize; 6]> = [values.len()].iter().chain(&first[..]).copied().collect();
        let output = joined(ctx, dtype, Shape::new(&dims)?, values.len(), |i| {
            (Some(&values[i]), i * len..(i + 1) * len)
        })?;
        ctx.set_output(0, output)
    })
}

fn concat(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let shape = init.attrs().shape("element_shape_except0")?;
    AnyKernel::new(move |ctx| {
        let (array, dtype) = (step_state::<TensorArray>(ctx, 0)?, ctx.output_dtype(0)?);
        check_dtype(&array, dtype)?;
        let indices: Vec<i64> = (0..array.packed_len()? as i64).collect();
        if indices.is_empty() {
            let output = nothing_of(ctx, &shape)?;
            ctx.set_output(0, output)?;
            return ctx.set_output(1, Tensor::vector::<i64>(&[])?);
        }
        let values = read_all(ctx, &array, &indices)?;
        let mut lengths = Vec::with_capacity(values.len());
        let mut ends = vec![0usize];
        for (i, value) in values.iter().enumerate() {
            lengths.push(checked_rows(&values[0], value, i, &shape)? as i64);
            ends.push(ends[i] + value.num_elements());
        }
        let rows = lengths.iter().sum::<i64>() as usize;
        let rest = &values[0].shape()[1..];
        let dims: SmallVec<[usize; 6]> = [rows].iter().chain(rest).copied().collect();
        let output = joined(ctx, dtype, Shape::new(&dims)?, values.len(), |i| {
            (Some(&values[i]), ends[i]..ends[i + 1])
        })?;
        ctx.set_output(0, output)?;
        ctx.set_output(1, Tensor::vector(&lengths)?)
    })
}

/// The number of rows of element `i`, whose other sizes must equal those of the first.
fn checked_rows(first: &Tensor, value: &Tensor, i: usize, rest: &PartialShape) -> Result<usize> {
    let [rows, others @ ..] = &value.shape()[..] else {
        bail!(
            InvalidArgument,
            "Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean \
             to call pack?"
        );
    };
    ensure!(
        first.shape().get(1..) == Some(others) && rest.is_compatible_with(&Shape::new(others)?),
        InvalidArgument,
        "index {i} has shape {}, but index 0 has {}, and {rest} was asked for (excepting the first \
         dimension)",
        value.shape(),
        first.shape()
    );
    Ok(*rows)
}

/// The value to split into elements, and the shape of its rows.
fn rows_of(ctx: &KernelContext<'_>, array: &TensorArray) -> Result<(Tensor, Shape)> {
    let value = ctx.input(ctx.input_range("value")?.start)?;
    check_dtype(array, value.dtype())?;
    let [_, dims @ ..] = &value.shape()[..] else {
        bail!(
            InvalidArgument,
            "Input value for unpack must be at least a vector but received shape: {}",
            value.shape()
        );
    };
    Ok((value.clone(), Shape::new(dims)?))
}

fn scatter(ctx: &mut KernelContext<'_>) -> Result<()> {
    let array = step_state::<TensorArray>(ctx, 0)?;
    let (value, row_shape) = rows_of(ctx, &array)?;
    let rows = value.shape()[0];
    let is_unpack = ctx.input_range("indices").is_err();
    let indices = indices(ctx, "indices", || Ok(rows))?;
    ensure!(
        indices.len() == rows,
        InvalidArgument,
        "Expected len(indices) == values.shape[0], but saw: {} vs. {rows}",
        indices.len()
    );
    let needed = indices.iter().copied().max().map_or(0, |i| usize::try_from(i + 1).unwrap_or(0));
    let len = if array.grows() { array.len()?.max(needed) } else { array.len()? };
    ensure!(
        if is_unpack { rows == len } else { needed <= len },
        InvalidArgument,
        "{rows} rows, the last of them for index {}, do not go into an array of size {len}",
        needed as i64 - 1
    );
    array.mark_len(len);
    for (i, &index) in indices.iter().enumerate() {
        let row = value.rows(i, 1, Some(ctx.budget()))?.reshaped(row_shape.clone())?;
        array.write(ctx, index, row)?;
    }
    pass_flow(ctx)
}

fn split(ctx: &mut KernelContext<'_>) -> Result<()> {
    let array = step_state::<TensorArray>(ctx, 0)?;
    let lengths = ctx.input(2)?;
    ensure!(
        lengths.rank() == 1,
        InvalidArgument,
        "Expected lengths to be a vector, received shape: {}",
        lengths.shape()
    );
    let lengths = ctx.ints(2, "lengths")?;
    let (value, _) = rows_of(ctx, &array)?;
    let rows = value.shape()[0];
    let mut total = Some(0usize);
    for &length in &lengths {
        let length = usize::try_from(length).ok();
        total = total.and_then(|t| t.checked_add(length?));
    }
    ensure!(
        total == Some(rows),
        InvalidArgument,
        "Expected sum of lengths to be equal to values.shape[0], but the lengths are {lengths:?} \
         and value's shape is: {}",
        value.shape()
    );
    let len = if array.grows() { array.len()?.max(lengths.len()) } else { array.len()? };
    ensure!(
        len == lengths.len(),
        InvalidArgument,
        "TensorArray's size is not equal to the size of lengths ({len} vs. {})",
        lengths.len()
    );
    array.mark_len(len);
    let mut start = 0;
    for (i, &length) in lengths.iter().enumerate() {
        let piece = value.rows(start, length as usize, Some(ctx.budget()))?;
        array.write(ctx, i as i64, piece)?;
        start += length as usize;
    }
    pass_flow(ctx)
}

fn size(ctx: &mut KernelContext<'_>) -> Result<()> {
    let len = step_state::<TensorArray>(ctx, 0)?.len()?;
    ctx.set_output(0, Tensor::scalar(i32::try_from(len).unwrap_or(i32::MAX)))
}

fn close(ctx: &mut KernelContext<'_>) -> Result<()> {
    step_state::<TensorArray>(ctx, 0)?.close();
    Ok(())
}
