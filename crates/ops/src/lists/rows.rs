//! `TensorList` ops between lists and whole tensors: stack, unstack, gather, scatter, split,
//! concat.

use smallvec::SmallVec;
use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::join::joined;
use super::list::{Taken, TensorList, check_dtype, check_element, element_shape, shape_input};
use super::{gradients, lowering};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        TENSOR_LIST_STACK.with_gradient(gradients::stack),
        TENSOR_LIST_GATHER.with_gradient(gradients::gather),
        TENSOR_LIST_CONCAT.with_gradient(gradients::concat),
        TENSOR_LIST_CONCAT_V2.with_gradient(gradients::concat),
        TENSOR_LIST_FROM_TENSOR.with_gradient(gradients::from_tensor),
        TENSOR_LIST_SPLIT.with_gradient(gradients::split),
        TENSOR_LIST_SCATTER.with_gradient(gradients::scatter),
        TENSOR_LIST_SCATTER_V2.with_gradient(gradients::scatter),
        TENSOR_LIST_SCATTER_INTO_EXISTING_LIST.with_gradient(gradients::scatter_into),
    ],
    kernels: &[
        KernelSpec {
            op: "TensorListStack",
            host_inputs: &["element_shape"],
            create: stack,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorListGather",
            host_inputs: &["indices", "element_shape"],
            create: gather,
            ..KernelSpec::CPU
        },
        KernelSpec { op: "TensorListConcat", create: concat, ..KernelSpec::CPU },
        KernelSpec {
            op: "TensorListConcatV2",
            host_inputs: &["element_shape", "leading_dims"],
            create: concat_v2,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorListFromTensor",
            host_inputs: &["element_shape"],
            create: |_| AnyKernel::new(from_tensor),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorListSplit",
            host_inputs: &["element_shape", "lengths"],
            create: |_| AnyKernel::new(split),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorListScatter",
            host_inputs: &["indices", "element_shape"],
            create: |_| AnyKernel::new(scatter),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorListScatterV2",
            host_inputs: &["indices", "element_shape", "num_elements"],
            create: |_| AnyKernel::new(scatter),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorListScatterIntoExistingList",
            host_inputs: &["indices"],
            create: scatter_into,
            ..KernelSpec::CPU
        },
        KernelSpec::beside_regions("TensorListStack", lowering::stack, stack)
            .with_host_inputs(&["element_shape"]),
        KernelSpec::beside_regions("TensorListGather", lowering::gather, gather)
            .with_host_inputs(&["indices", "element_shape"]),
        KernelSpec::beside_regions("TensorListConcatV2", lowering::concat, concat_v2)
            .with_host_inputs(&["element_shape", "leading_dims"]),
        KernelSpec::beside_regions("TensorListFromTensor", lowering::from_tensor, |_| {
            AnyKernel::new(from_tensor)
        })
        .with_host_inputs(&["element_shape"]),
        KernelSpec::beside_regions("TensorListSplit", lowering::split, |_| AnyKernel::new(split))
            .with_host_inputs(&["element_shape", "lengths"]),
        KernelSpec::beside_regions("TensorListScatter", lowering::scatter, |_| {
            AnyKernel::new(scatter)
        })
        .with_host_inputs(&["indices", "element_shape"]),
        KernelSpec::beside_regions("TensorListScatterV2", lowering::scatter, |_| {
            AnyKernel::new(scatter)
        })
        .with_host_inputs(&["indices", "element_shape", "num_elements"]),
        KernelSpec::beside_regions(
            "TensorListScatterIntoExistingList",
            lowering::scatter_into,
            scatter_into,
        )
        .with_host_inputs(&["indices"]),
    ],
};

const TENSOR_LIST_STACK: OpDef =
    OpDef::new("TensorListStack", stack_shape).with_work(Work::copies_outputs);

fn stack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rows = usize::try_from(c.attrs().int("num_elements")?).ok();
    let element = c.shape_from_input(1)?;
    if let Some(dims) = element.dims() {
        c.set_output(0, PartialShape::new([rows].into_iter().chain(dims.iter().copied())));
    }
    Ok(())
}

fn stack(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    let expected = init.attrs().int("num_elements")?;
    AnyKernel::new(move |ctx| {
        let list = TensorList::input(ctx, 0)?;
        check_dtype(&list, dtype)?;
        let shape = element_shape(ctx, &list, 1)?;
        ensure!(
            expected == -1 || list.len() as i64 == expected,
            InvalidArgument,
            "Operation expected a list with {expected} elements but got a list with {} elements.",
            list.len()
        );
        let shape = TensorList::merged_shape(shape, list.elements())?;
        let output = stacked(ctx, dtype, &shape, list.len(), |i| list.elements()[i].as_ref())?;
        ctx.set_output(0, output)
    })
}

/// `count` elements of this shape as the rows of a tensor.
fn stacked<'a>(
    ctx: &KernelContext<'_>,
    dtype: DType,
    shape: &PartialShape,
    count: usize,
    element: impl Fn(usize) -> Option<&'a Tensor> + Sync,
) -> Result<Tensor> {
    let Some(shape) = shape.to_shape() else {
        bail!(
            InvalidArgument,
            "Tried to stack elements of which none tells the shape, with non-fully-defined \
             element_shape: {shape}"
        );
    };
    let len = shape.num_elements();
    let mut dims: SmallVec<[usize; 6]> = smallvec::smallvec![count];
    dims.extend_from_slice(&shape);
    joined(ctx, dtype, Shape::new(&dims)?, count, |i| (element(i), i * len..(i + 1) * len))
}

const TENSOR_LIST_GATHER: OpDef =
    OpDef::new("TensorListGather", gather_shape).with_work(Work::copies_outputs);

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let element = c.shape_from_input(2)?;
    if let (Some(&[rows]), Some(dims)) = (c.input(1).dims(), element.dims()) {
        c.set_output(0, PartialShape::new([rows].into_iter().chain(dims.iter().copied())));
    }
    Ok(())
}

fn gather(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let list = TensorList::input(ctx, 0)?;
        check_dtype(&list, dtype)?;
        let mut shape = element_shape(ctx, &list, 2)?;
        let indices = ctx.slice::<i32>(1)?;
        let at = |index: i32| {
            usize::try_from(index).ok().and_then(|i| list.elements().get(i)).ok_or_else(|| {
                err!(
                    InvalidArgument,
                    "Index {index} out of range; list only has {} elements.",
                    list.len()
                )
            })
        };
        for &index in indices {
            shape = TensorList::merged_shape(shape, [at(index)?])?;
        }
        let element = |i: usize| at(indices[i]).ok().and_then(Option::as_ref);
        let output = stacked(ctx, dtype, &shape, indices.len(), element)?;
        ctx.set_output(0, output)
    })
}

const TENSOR_LIST_CONCAT: OpDef =
    OpDef::new("TensorListConcat", concat_shape).with_work(Work::copies_outputs);

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let element = c.attrs().shape("element_shape")?;
    set_concat_shapes(c, &element);
    Ok(())
}

fn set_concat_shapes(c: &mut ShapeContext<'_>, element: &PartialShape) {
    if let Some([_, rest @ ..]) = element.dims() {
        c.set_output(0, PartialShape::new([None].into_iter().chain(rest.iter().copied())));
    }
    c.set_output(1, PartialShape::of_rank(1));
}

/// As in TensorFlow, the first size of the attr is ignored.
fn concat(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    let shape = init.attrs().shape("element_shape")?;
    AnyKernel::new(move |ctx| {
        let list = TensorList::input(ctx, 0)?;
        check_dtype(&list, dtype)?;
        let (_, rest) = split_first(&shape)?;
        concatenate(ctx, &list, None, rest, &[])
    })
}

const TENSOR_LIST_CONCAT_V2: OpDef =
    OpDef::new("TensorListConcatV2", concat_v2_shape).with_work(Work::copies_outputs);

fn concat_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let element = c.shape_from_input(1)?;
    set_concat_shapes(c, &element);
    Ok(())
}

fn concat_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let list = TensorList::input(ctx, 0)?;
        check_dtype(&list, dtype)?;
        let (first, rest) = split_first(&element_shape(ctx, &list, 1)?)?;
        let leading = ctx.ints(2, "leading_dims")?;
        concatenate(ctx, &list, first, rest, &leading)
    })
}

/// The first size of a shape, and the others as a shape.
fn split_first(shape: &PartialShape) -> Result<(Option<usize>, PartialShape)> {
    match shape.dims() {
        None => Ok((None, PartialShape::unknown())),
        Some([first, rest @ ..]) => Ok((*first, PartialShape::new(rest.iter().copied()))),
        Some([]) => bail!(
            InvalidArgument,
            "Concat requires elements to be at least vectors, found scalars instead."
        ),
    }
}

/// Concatenates elements along their first dimension. The length of an uninitialized element comes
/// from `leading`, else from `first`, else from the initialized elements.
fn concatenate(
    ctx: &mut KernelContext<'_>,
    list: &TensorList,
    first: Option<usize>,
    rest: PartialShape,
    leading: &[i64],
) -> Result<()> {
    let (common, rest) = common_sizes(list, first, rest)?;
    let Some(rest) = rest.to_shape() else {
        bail!(
            InvalidArgument,
            "All except the first dimension must be fully defined when concating a list of which \
             no element is set. element_shape: {rest}"
        );
    };
    let count = list.len();
    let mut lengths = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
    let mut ends = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
    let inner = rest.num_elements();
    let mut rows = 0usize;
    let slots = lengths.as_mut_slice::<i64>()?.iter_mut().zip(ends.as_mut_slice::<i64>()?);
    for (i, (slot, end)) in slots.enumerate() {
        let length = match (&list.elements()[i], leading.get(i)) {
            (Some(tensor), _) => tensor.shape()[0],
            (None, Some(&given)) => usize::try_from(given).map_err(|_| {
                err!(InvalidArgument, "leading_dims must not be negative, one is {given}")
            })?,
            (None, None) => common.ok_or_else(|| {
                err!(InvalidArgument, "the first dimension of uninitialized element {i} is unknown")
            })?,
        };
        rows = rows
            .checked_add(length)
            .filter(|r| r.checked_mul(inner.max(1)).is_some_and(|n| i64::try_from(n).is_ok()))
            .ok_or_else(|| err!(InvalidArgument, "the concatenated elements are too large"))?;
        (*slot, *end) = (length as i64, (rows * inner) as i64);
    }
    let mut dims: SmallVec<[usize; 6]> = smallvec::smallvec![rows];
    dims.extend_from_slice(&rest);
    let ends = ends.as_slice::<i64>()?;
    let output = joined(ctx, list.dtype, Shape::new(&dims)?, count, |i| {
        let start = if i == 0 { 0 } else { ends[i - 1] };
        (list.elements()[i].as_ref(), start as usize..ends[i] as usize)
    })?;
    ctx.set_output(0, output)?;
    ctx.set_output(1, lengths)
}

/// The first size of all initialized elements, and their other sizes; `first` is the required first
/// size, if given. If the list's shape is fully known, elements are not checked: the rows of a
/// split tensor may differ from it.
fn common_sizes(
    list: &TensorList,
    first: Option<usize>,
    mut rest: PartialShape,
) -> Result<(Option<usize>, PartialShape)> {
    let is_told = list.shape.to_shape().is_some();
    let mut common = first;
    let mut differ = false;
    for (i, tensor) in list.elements().iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        let [size, others @ ..] = &tensor.shape()[..] else {
            bail!(InvalidArgument, "Concat saw a scalar shape at index {i}, not a vector's");
        };
        ensure!(
            is_told || first.is_none_or(|first| first == *size),
            InvalidArgument,
            "element {i} has the first size {size}, not that of element_shape"
        );
        differ |= !is_told && *common.get_or_insert(*size) != *size;
        rest = rest.merge(&PartialShape::new(others.iter().map(|&d| Some(d))))?;
    }
    Ok((common.filter(|_| !differ), rest))
}

const TENSOR_LIST_FROM_TENSOR: OpDef =
    OpDef::new("TensorListFromTensor", shape::scalar).with_work(Work::moves);

fn from_tensor(ctx: &mut KernelContext<'_>) -> Result<()> {
    let tensor = ctx.input(0)?;
    let mut list = TensorList::new(tensor.dtype(), shape_input(ctx, 1)?);
    let (rows, row_shape) = rows_of(tensor)?;
    check_element(&list, &row_shape)?;
    list.resize(rows, None, ctx.budget())?;
    for i in 0..rows {
        list.set(i, Some(row(ctx, tensor, i, &row_shape)?), ctx.budget())?;
    }
    ctx.set_output(0, list.into_tensor()?)
}

/// Number and shape of a tensor's rows.
fn rows_of(tensor: &Tensor) -> Result<(usize, Shape)> {
    let [rows, dims @ ..] = &tensor.shape()[..] else {
        bail!(
            InvalidArgument,
            "Tensor must be at least a vector, but saw shape: {}",
            tensor.shape()
        );
    };
    Ok((*rows, Shape::new(dims)?))
}

/// Row `i` of a tensor.
fn row(ctx: &KernelContext<'_>, tensor: &Tensor, i: usize, shape: &Shape) -> Result<Tensor> {
    tensor.rows(i, 1, Some(ctx.budget()))?.reshaped(shape.clone())
}

const TENSOR_LIST_SPLIT: OpDef =
    OpDef::new("TensorListSplit", shape::scalar).with_work(Work::moves);

fn split(ctx: &mut KernelContext<'_>) -> Result<()> {
    let (tensor, lengths) = (ctx.input(0)?, ctx.input(2)?);
    ensure!(
        lengths.rank() == 1,
        InvalidArgument,
        "Expected lengths to be a vector, received shape: {}",
        lengths.shape()
    );
    let (rows, row_shape) = rows_of(tensor)?;
    let mut list = TensorList::new(tensor.dtype(), shape_input(ctx, 1)?);
    let (_, rest) = split_first(&list.shape)?;
    ensure!(
        rest.is_compatible_with(&row_shape),
        InvalidArgument,
        "tensor shape {} is not compatible with element_shape {}",
        tensor.shape(),
        list.shape
    );
    let mut start = 0usize;
    for &length in lengths.as_slice::<i64>()? {
        let piece = usize::try_from(length).ok().filter(|&n| n <= rows - start);
        let Some(piece) = piece else {
            bail!(
                InvalidArgument,
                "rows {start} to {start} + {length} exceed the tensor, which has {rows} rows"
            );
        };
        list.push(Some(tensor.rows(start, piece, Some(ctx.budget()))?), ctx.budget())?;
        start += piece;
    }
    ensure!(
        start == rows,
        InvalidArgument,
        "Unused values in tensor. Length of tensor: {rows} Values used: {start}"
    );
    ctx.set_output(0, list.into_tensor()?)
}

const TENSOR_LIST_SCATTER: OpDef =
    OpDef::new("TensorListScatter", shape::scalar).with_work(Work::moves);
const TENSOR_LIST_SCATTER_V2: OpDef =
    OpDef::new("TensorListScatterV2", shape::scalar).with_work(Work::moves);

fn scatter(ctx: &mut KernelContext<'_>) -> Result<()> {
    let tensor = ctx.input(0)?;
    let asked = if ctx.num_inputs() > 3 { ctx.scalar_int(3, "num_elements")? } else { -1 };
    ensure!(asked >= -1, InvalidArgument, "num_elements must be at least -1, is {asked}");
    let mut list = TensorList::new(tensor.dtype(), shape_input(ctx, 2)?);
    let indices = ctx.slice::<i32>(1)?;
    let (row_shape, needed) = check_rows(&list, tensor, indices)?;
    let len = usize::try_from(asked).unwrap_or(needed);
    ensure!(
        needed <= len,
        InvalidArgument,
        "TensorListScatter: Trying to scatter at index {} in list with size {len}",
        needed - 1
    );
    list.resize(len, None, ctx.budget())?;
    put_rows(ctx, &mut list, tensor, indices, &row_shape)?;
    ctx.set_output(0, list.into_tensor()?)
}

/// Checks that the rows of `tensor` can be written to `indices` of the list; returns the rows'
/// shape and the required length of the list.
fn check_rows(list: &TensorList, tensor: &Tensor, indices: &[i32]) -> Result<(Shape, usize)> {
    let (rows, row_shape) = rows_of(tensor)?;
    ensure!(
        rows == indices.len(),
        InvalidArgument,
        "Invalid number of rows in input tensor. Expected: {} Actual: {rows}",
        indices.len()
    );
    check_element(list, &row_shape)?;
    let mut needed = 0;
    for &index in indices {
        let i = usize::try_from(index).map_err(|_| {
            err!(InvalidArgument, "Indices in TensorListScatter must all be non-negative.")
        })?;
        needed = needed.max(i + 1);
    }
    Ok((row_shape, needed))
}

/// Sets the elements at `indices` to the rows; for equal indices the last one applies.
fn put_rows(
    ctx: &KernelContext<'_>,
    list: &mut TensorList,
    tensor: &Tensor,
    indices: &[i32],
    shape: &Shape,
) -> Result<()> {
    for (i, &index) in indices.iter().enumerate() {
        list.set(index as usize, Some(row(ctx, tensor, i, shape)?), ctx.budget())?;
    }
    Ok(())
}

const TENSOR_LIST_SCATTER_INTO_EXISTING_LIST: OpDef =
    OpDef::new("TensorListScatterIntoExistingList", shape::scalar).with_work(Work::moves);

fn scatter_into(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("element_dtype")?;
    AnyKernel::new(move |ctx| {
        let mut taken = Taken::input(ctx, 0)?;
        check_dtype(taken.list(), dtype)?;
        let (tensor, indices) = (ctx.input(1)?, ctx.slice::<i32>(2)?);
        let (row_shape, needed) = check_rows(taken.list(), tensor, indices)?;
        let more = needed.saturating_sub(taken.list().len());
        let list = taken.writable(more, ctx.budget())?;
        if more > 0 {
            // TensorFlow extends the list by empty float tensors here, not by uninitialized
            // elements.
            let filler = Tensor::vector::<f32>(&[])?;
            list.resize(needed, Some(&filler).filter(|_| dtype == DType::Float), ctx.budget())?;
        }
        put_rows(ctx, list, tensor, indices, &row_shape)?;
        ctx.set_output(0, taken.into_tensor()?)
    })
}
