//! `TensorList` ops that create a list, or read or change single elements.

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::list::{Taken, TensorList, check_dtype, check_element, element_shape, shape_input};
use super::{gradients, lowering};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        EMPTY_TENSOR_LIST.without_gradient(),
        TENSOR_LIST_RESERVE.without_gradient(),
        TENSOR_LIST_PUSH_BACK.with_gradient(gradients::push_back),
        TENSOR_LIST_PUSH_BACK_BATCH.without_gradient(),
        TENSOR_LIST_POP_BACK.with_gradient(gradients::pop_back),
        TENSOR_LIST_GET_ITEM.with_gradient(gradients::get_item),
        TENSOR_LIST_SET_ITEM.with_gradient(gradients::set_item),
        TENSOR_LIST_LENGTH.without_gradient(),
        TENSOR_LIST_ELEMENT_SHAPE.without_gradient(),
        TENSOR_LIST_RESIZE.with_gradient(gradients::resize),
        TENSOR_LIST_CONCAT_LISTS.without_gradient(),
    ],
    kernels: &[
        KernelSpec {
            op: "EmptyTensorList",
            host_inputs: &["element_shape", "max_num_elements"],
            create: empty,
            ..CHEAP
        },
        KernelSpec {
            op: "TensorListReserve",
            host_inputs: &["element_shape", "num_elements"],
            create: reserve,
            ..CHEAP
        },
        KernelSpec { op: "TensorListPushBack", create: push_back, ..CHEAP },
        KernelSpec { op: "TensorListPushBackBatch", create: push_back_batch, ..KernelSpec::CPU },
        KernelSpec {
            op: "TensorListPopBack",
            host_inputs: &["element_shape"],
            create: pop_back,
            ..CHEAP
        },
        KernelSpec {
            op: "TensorListGetItem",
            host_inputs: &["index", "element_shape"],
            create: get_item,
            ..CHEAP
        },
        KernelSpec { op: "TensorListSetItem", host_inputs: &["index"], create: set_item, ..CHEAP },
        KernelSpec {
            op: "TensorListLength",
            host_outputs: &["length"],
            create: |_| AnyKernel::new(length),
            ..CHEAP
        },
        KernelSpec {
            op: "TensorListElementShape",
            host_outputs: &["element_shape"],
            create: element_shape_of,
            ..CHEAP
        },
        KernelSpec {
            op: "TensorListResize",
            host_inputs: &["size"],
            create: |_| AnyKernel::new(resize),
            ..CHEAP
        },
        KernelSpec { op: "TensorListConcatLists", create: concat_lists, ..KernelSpec::CPU },
        KernelSpec::beside_regions("EmptyTensorList", lowering::empty, empty)
            .with_host_inputs(&["element_shape", "max_num_elements"]),
        KernelSpec::beside_regions("TensorListReserve", lowering::reserve, reserve)
            .with_host_inputs(&["element_shape", "num_elements"]),
        KernelSpec::beside_regions("TensorListPushBack", lowering::push_back, push_back),
        KernelSpec::beside_regions("TensorListPopBack", lowering::pop_back, pop_back)
            .with_host_inputs(&["element_shape"]),
        KernelSpec::beside_regions("TensorListGetItem", lowering::get_item, get_item)
            .with_host_inputs(&["element_shape"]),
        KernelSpec::beside_regions("TensorListSetItem", lowering::set_item, set_item),
        KernelSpec::beside_regions("TensorListLength", lowering::length, |_| {
            AnyKernel::new(length)
        })
        .of_shapes(),
        KernelSpec::beside_regions(
            "TensorListElementShape",
            lowering::element_shape,
            element_shape_of,
        )
        .of_shapes(),
        KernelSpec::beside_regions("TensorListResize", lowering::resize, |_| {
            AnyKernel::new(resize)
        })
        .with_host_inputs(&["size"]),
    ],
};

const CHEAP: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::CPU };

const EMPTY_TENSOR_LIST: OpDef = OpDef::new("EmptyTensorList", shape::scalar);

fn empty(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let mut list = TensorList::new(dtype, shape_input(ctx, 0)?);
        list.elements_max = ctx.scalar_int(1, "max_num_elements")?;
        ctx.set_output(0, list.into_tensor()?)
    })
}

const TENSOR_LIST_RESERVE: OpDef = OpDef::new("TensorListReserve", shape::scalar);

fn reserve(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let mut list = TensorList::new(dtype, shape_input(ctx, 0)?);
        list.resize(size(ctx, 1, "num_elements")?, None, ctx.budget())?;
        ctx.set_output(0, list.into_tensor()?)
    })
}

/// Input `i`, a number of elements.
fn size(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<usize> {
    let size = ctx.scalar_int(i, name)?;
    usize::try_from(size)
        .map_err(|_| err!(InvalidArgument, "{name} must be a non negative number, but got {size}"))
}

const TENSOR_LIST_PUSH_BACK: OpDef =
    OpDef::new("TensorListPushBack", shape::scalar).with_work(Work::none);

fn push_back(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let (element, mut taken) = (ctx.take_input(1)?, Taken::input(ctx, 0)?);
        let list = taken.list();
        check_element(list, element.shape())?;
        check_dtype(list, dtype)?;
        ensure!(
            list.elements_max < 0 || (list.len() as i64) < list.elements_max,
            InvalidArgument,
            "Tried to push item into a full list. List size: {} max_num_elements: {}",
            list.len(),
            list.elements_max
        );
        taken.writable(1, ctx.budget())?.push(Some(element), ctx.budget())?;
        ctx.set_output(0, taken.into_tensor()?)
    })
}

const TENSOR_LIST_PUSH_BACK_BATCH: OpDef =
    OpDef::new("TensorListPushBackBatch", batch_shape).with_work(Work::moves);

fn batch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let handles = c.with_rank(0, "input_handles", 1)?;
    let rows = c.with_rank_at_least(1, "tensor", 1)?.dim(0);
    c.set_output(0, handles.merge(&PartialShape::new([rows]))?);
    Ok(())
}

fn push_back_batch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let (handles, tensor) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            handles.rank() == 1,
            InvalidArgument,
            "Expected input_handles to be a vector, but saw shape: {}",
            handles.shape()
        );
        ensure!(
            tensor.shape().first() == Some(&handles.num_elements()),
            InvalidArgument,
            "Expected one row of tensor for each list, but saw shapes {} and {}",
            tensor.shape(),
            handles.shape()
        );
        let row_shape = Shape::new(&tensor.shape()[1..])?;
        let mut output = ctx.zeros(DType::Variant, handles.shape().clone())?;
        let slots = output.variants_mut()?;
        for (i, (handle, slot)) in handles.variants()?.iter().zip(slots).enumerate() {
            let list = TensorList::of(handle, &format!("the input handle at index {i}"))?;
            check_element(&list, &row_shape)?;
            check_dtype(&list, dtype)?;
            let mut copy = list.copy(1, ctx.budget())?;
            let row = tensor.rows(i, 1, Some(ctx.budget()))?.reshaped(row_shape.clone())?;
            copy.push(Some(row), ctx.budget())?;
            *slot = copy.into_variant();
        }
        ctx.set_output(0, output)
    })
}

const TENSOR_LIST_POP_BACK: OpDef =
    OpDef::new("TensorListPopBack", pop_back_shape).with_work(Work::none);

fn pop_back_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    c.set_output(1, c.shape_from_input(1)?);
    Ok(())
}

fn pop_back(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let mut taken = Taken::input(ctx, 0)?;
        check_dtype(taken.list(), dtype)?;
        let unset = match taken.list().elements().last() {
            None => bail!(InvalidArgument, "Trying to pop from an empty list."),
            Some(None) => Some(zeros(ctx, dtype, &element_shape(ctx, taken.list(), 1)?)?),
            Some(Some(_)) => None,
        };
        let popped = taken.writable(0, ctx.budget())?.pop().flatten();
        let element = popped.or(unset).ok_or_else(|| err!(Internal, "the list has an element"))?;
        ctx.set_output(0, taken.into_tensor()?)?;
        ctx.set_output(1, element)
    })
}

/// The value of an uninitialized element: zeros.
fn zeros(ctx: &KernelContext<'_>, dtype: DType, shape: &PartialShape) -> Result<Tensor> {
    let Some(shape) = shape.to_shape() else {
        bail!(
            InvalidArgument,
            "Trying to read an uninitialized element but element_shape is not fully defined: {shape}"
        );
    };
    ctx.zeros(dtype, shape)
}

const TENSOR_LIST_GET_ITEM: OpDef =
    OpDef::new("TensorListGetItem", get_item_shape).with_work(Work::none);

fn get_item_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.shape_from_input(2)?);
    Ok(())
}

fn get_item(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let list = TensorList::input(ctx, 0)?;
        check_dtype(&list, dtype)?;
        // As in TensorFlow, a vector of one element is accepted as a scalar.
        let [index] = ctx.ints(1, "index")?[..] else {
            bail!(InvalidArgument, "index must be a scalar, got shape {}", ctx.input(1)?.shape());
        };
        let item = match element(&list, index)? {
            Some(item) => item.clone(),
            None => {
                let mut shape = element_shape(ctx, &list, 2)?;
                if shape.to_shape().is_none() {
                    shape = TensorList::merged_shape(shape, list.elements())?;
                }
                zeros(ctx, dtype, &shape)?
            }
        };
        ctx.set_output(0, item)
    })
}

/// Element `index`, which must exist; `None` if it is uninitialized.
fn element(list: &TensorList, index: i64) -> Result<&Option<Tensor>> {
    usize::try_from(index).ok().and_then(|i| list.elements().get(i)).ok_or_else(|| {
        err!(
            InvalidArgument,
            "Trying to access element {index} in a list with {} elements.",
            list.len()
        )
    })
}

const TENSOR_LIST_SET_ITEM: OpDef =
    OpDef::new("TensorListSetItem", shape::scalar).with_work(Work::none);

fn set_item(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    let grows = init.attrs().bool("resize_if_index_out_of_bounds")?;
    AnyKernel::new(move |ctx| {
        let (item, mut taken) = (ctx.take_input(2)?, Taken::input(ctx, 0)?);
        check_dtype(taken.list(), dtype)?;
        let index = ctx.scalar_int(1, "index")?;
        let len = taken.list().len();
        let Some(i) = usize::try_from(index).ok().filter(|&i| grows || i < len) else {
            bail!(
                InvalidArgument,
                "Trying to modify element {index} in a list with {len} elements."
            );
        };
        check_element(taken.list(), item.shape())?;
        let list = taken.writable((i + 1).saturating_sub(len), ctx.budget())?;
        if i >= len {
            list.resize(i + 1, None, ctx.budget())?;
        }
        list.set(i, Some(item), ctx.budget())?;
        ctx.set_output(0, taken.into_tensor()?)
    })
}

const TENSOR_LIST_LENGTH: OpDef = OpDef::new("TensorListLength", shape::scalar);

fn length(ctx: &mut KernelContext<'_>) -> Result<()> {
    let len = TensorList::input(ctx, 0)?.len();
    ctx.set_output(0, Tensor::scalar(i32::try_from(len).unwrap_or(i32::MAX)))
}

const TENSOR_LIST_ELEMENT_SHAPE: OpDef = OpDef::new("TensorListElementShape", shape::unknown);

fn element_shape_of(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let is_long = init.output_dtype(0) == DType::Int64;
    AnyKernel::new(move |ctx| {
        let list = TensorList::input(ctx, 0)?;
        let size = |d: &Option<usize>| d.map_or(-1, |d| d as i64);
        let output = match list.shape.dims() {
            None if is_long => Tensor::scalar(-1i64),
            None => Tensor::scalar(-1i32),
            Some(dims) if is_long => Tensor::vector(&dims.iter().map(size).collect::<Vec<i64>>())?,
            Some(dims) => {
                Tensor::vector(&dims.iter().map(|d| size(d) as i32).collect::<Vec<i32>>())?
            }
        };
        ctx.set_output(0, output)
    })
}

const TENSOR_LIST_RESIZE: OpDef = OpDef::new("TensorListResize", shape::scalar);

fn resize(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut taken = Taken::input(ctx, 0)?;
    let len = size(ctx, 1, "size")?;
    let more = len.saturating_sub(taken.list().len());
    taken.writable(more, ctx.budget())?.resize(len, None, ctx.budget())?;
    ctx.set_output(0, taken.into_tensor()?)
}

const TENSOR_LIST_CONCAT_LISTS: OpDef = OpDef::new("TensorListConcatLists", shape::merged);

fn concat_lists(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            a.shape() == b.shape(),
            InvalidArgument,
            "Incompatible input TensorList tensor shapes: {} vs. {}",
            a.shape(),
            b.shape()
        );
        let mut output = ctx.zeros(DType::Variant, a.shape().clone())?;
        let pairs = a.variants()?.iter().zip(b.variants()?);
        for ((a, b), slot) in pairs.zip(output.variants_mut()?) {
            let (a, b) = (TensorList::of(a, "input_a")?, TensorList::of(b, "input_b")?);
            check_dtype(&a, dtype)?;
            check_dtype(&b, dtype)?;
            ensure!(
                a.shape == b.shape,
                InvalidArgument,
                "the lists are of different element shapes: {} vs. {}",
                a.shape,
                b.shape
            );
            let mut joined = a.copy(b.len(), ctx.budget())?;
            for element in b.elements() {
                joined.push(element.clone(), ctx.budget())?;
            }
            *slot = joined.into_variant();
        }
        ctx.set_output(0, output)
    })
}
