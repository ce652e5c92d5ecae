//! Gradients of `TensorList` ops. The adjoint of a list is the list of its elements' adjoints.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result};

/// The gradient of a push pops, in reverse order.
pub(crate) fn push_back(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, shape) = (g.grad(0)?, g.shape_of(g.input(1))?);
    let popped =
        g.op_like("TensorListPopBack", &["element_dtype"]).inputs(&[grad, shape]).build_all()?;
    g.set(0, popped[0])?;
    g.set(1, popped[1])
}

pub(crate) fn pop_back(g: &mut GradientContext<'_>) -> Result<()> {
    let (list, element) = (g.grad(0)?, g.grad(1)?);
    let pushed = g.add("TensorListPushBack", &[list, element])?;
    g.set(0, pushed)
}

/// A list of the same length in which only the element that was read is set.
pub(crate) fn get_item(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, index) = (g.grad(0)?, g.input(1));
    let unset = unset_like(g, g.input(0), grad)?;
    let set = g.add("TensorListSetItem", &[unset, index, grad])?;
    g.set(0, set)
}

pub(crate) fn set_item(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, index, item) = (g.grad(0)?, g.input(1), g.input(2));
    let nothing = g.add("ZerosLike", &[item])?;
    let mut list = g.add("TensorListSetItem", &[grad, index, nothing])?;
    if g.attrs().bool("resize_if_index_out_of_bounds")? {
        let length = g.add("TensorListLength", &[g.input(0)])?;
        list = g.add("TensorListResize", &[list, length])?;
    }
    g.set(0, list)?;
    let shape = g.shape_of(item)?;
    let of_item =
        g.op_like("TensorListGetItem", &["element_dtype"]).inputs(&[grad, index, shape]).build()?;
    g.set(2, of_item)
}

pub(crate) fn resize(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, length) = (g.grad(0)?, g.add("TensorListLength", &[g.input(0)])?);
    let resized = g.add("TensorListResize", &[grad, length])?;
    g.set(0, resized)
}

pub(crate) fn stack(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let shape = row_shape(g, grad)?;
    let list = g.add("TensorListFromTensor", &[grad, shape])?;
    g.set(0, list)
}

pub(crate) fn from_tensor(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, tensor) = (g.grad(0)?, g.input(0));
    let rows = g.shape(tensor).dim(0).map_or(-1, |n| n as i64);
    let shape = row_shape(g, tensor)?;
    let stacked = g
        .op_like("TensorListStack", &["element_dtype"])
        .inputs(&[grad, shape])
        .attr("num_elements", rows)
        .build()?;
    g.set(0, stacked)
}

pub(crate) fn concat(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, lengths) = (g.grad(0)?, g.output(1));
    let shape = element_shape(g, g.input(0))?;
    let list = g.add("TensorListSplit", &[grad, shape, lengths])?;
    g.set(0, list)
}

pub(crate) fn split(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, lengths) = (g.grad(0)?, g.input(2));
    let (any, rest, axis) = (g.ints(&[-1])?, row_shape(g, g.input(0))?, g.int(0)?);
    let shape = g.op("ConcatV2").inputs(&[any, rest]).input(axis).build()?;
    let joined = g
        .op_like("TensorListConcatV2", &["element_dtype"])
        .inputs(&[grad, shape, lengths])
        .build()?;
    g.set(0, joined)
}

pub(crate) fn gather(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, indices) = (g.grad(0)?, g.input(1));
    let unset = unset_like(g, g.input(0), grad)?;
    let list = g.add("TensorListScatterIntoExistingList", &[unset, grad, indices])?;
    g.set(0, list)
}

pub(crate) fn scatter(g: &mut GradientContext<'_>) -> Result<()> {
    let grad = g.grad(0)?;
    let rows = gathered(g, grad, g.input(0), g.input(1))?;
    g.set(0, rows)
}

pub(crate) fn scatter_into(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, tensor, indices) = (g.grad(0)?, g.input(1), g.input(2));
    let rows = gathered(g, grad, tensor, indices)?;
    g.set(1, rows)?;
    let nothing = g.add("ZerosLike", &[tensor])?;
    let list = g.add("TensorListScatterIntoExistingList", &[grad, nothing, indices])?;
    g.set(0, list)
}

/// The elements of `list` that correspond to the rows of `tensor`.
fn gathered(
    g: &mut GradientContext<'_>,
    list: Output,
    tensor: Output,
    indices: Output,
) -> Result<Output> {
    let shape = row_shape(g, tensor)?;
    g.op_like("TensorListGather", &["element_dtype"]).inputs(&[list, indices, shape]).build()
}

/// A list as long as `list` without set elements, for elements as in `like`.
fn unset_like(g: &mut GradientContext<'_>, list: Output, like: Output) -> Result<Output> {
    let dtype = g.dtype(like);
    let (shape, length) = (element_shape(g, list)?, g.add("TensorListLength", &[list])?);
    g.op("TensorListReserve").inputs(&[shape, length]).attr("element_dtype", dtype).build()
}

fn element_shape(g: &mut GradientContext<'_>, list: Output) -> Result<Output> {
    g.op("TensorListElementShape").input(list).attr("shape_type", DType::Int32).build()
}

/// The shape of a tensor's rows, as a vector of int32.
fn row_shape(g: &mut GradientContext<'_>, tensor: Output) -> Result<Output> {
    let shape = g.shape_of(tensor)?;
    let (begin, size) = (g.ints(&[1])?, g.ints(&[-1])?);
    g.add("Slice", &[shape, begin, size])
}
