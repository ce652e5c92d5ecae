//! Lowerings of the `TensorList` ops: in a program a list is rows of a buffer (`List`).
//!
//! A mistake that shows in what is known when a program is compiled is an error, and the region then runs in
//! parts, where the kernels report it. An index that is known only in a step is not checked: it stands for the
//! nearest element.

use thalweg_hlo::{GatherDims, ScatterDims, Value};
use thalweg_kernel::{Elements, List, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

/// The shape that a tensor of a list op says: a scalar -1 for any, -1 for any size.
fn shape_of(tensor: &Tensor) -> Result<PartialShape> {
    let sizes: Vec<i64> = match tensor.dtype() {
        DType::Int32 => tensor.as_slice::<i32>()?.iter().map(|&x| x.into()).collect(),
        _ => tensor.as_slice::<i64>()?.to_vec(),
    };
    if tensor.rank() == 0 {
        ensure!(sizes[..] == [-1], InvalidArgument, "a shape must be a vector, or -1");
        return Ok(PartialShape::unknown());
    }
    ensure!(tensor.rank() == 1, InvalidArgument, "a shape must be a vector, or -1");
    let size = |&n: &i64| match n {
        -1 => Ok(None),
        n => usize::try_from(n).map(Some).map_err(|_| err!(InvalidArgument, "a size of {n}")),
    };
    Ok(PartialShape::new(sizes.iter().map(size).collect::<Result<Vec<_>>>()?))
}

/// Input `i`, which is known, as a scalar.
fn scalar(l: &Lowering<'_>, i: usize) -> Result<i64> {
    ensure!(l.host(i)?.rank() == 0, InvalidArgument, "input {i} must be a scalar");
    l.int(i)
}

fn count(n: i64, name: &str) -> Result<usize> {
    usize::try_from(n)
        .map_err(|_| err!(InvalidArgument, "{name} must be a non negative number, but got {n}"))
}

/// The dimensions of elements as input `i` says, for a list of which none is set.
fn dims_input(l: &Lowering<'_>, i: usize, list: &List) -> Result<Option<Vec<usize>>> {
    let shape = shape_of(l.host(i)?)?.merge(&list.element_shape)?;
    if let Some(dims) = list.element_dims() {
        let dims = Shape::new(&dims)?;
        ensure!(
            shape.is_compatible_with(&dims),
            InvalidArgument,
            "elements are {dims}, not {shape}"
        );
    }
    Ok(shape.to_shape().map(|shape| shape.to_vec()))
}

fn of_dtype<'a>(l: &Lowering<'a>, i: usize) -> Result<&'a List> {
    let (list, dtype) = (l.list(i)?, l.attrs().dtype("element_dtype")?);
    ensure!(list.dtype == dtype, InvalidArgument, "the list has {}, not {dtype}", list.dtype);
    Ok(list)
}

pub(crate) fn empty(l: &mut Lowering<'_>) -> Result<()> {
    let mut list = List::new(l.attrs().dtype("element_dtype")?, shape_of(l.host(0)?)?, 0);
    list.elements_max = usize::try_from(scalar(l, 1)?).ok();
    l.set_list(0, list)
}

pub(crate) fn reserve(l: &mut Lowering<'_>) -> Result<()> {
    let length = count(scalar(l, 1)?, "num_elements")?;
    let list = List::new(l.attrs().dtype("element_dtype")?, shape_of(l.host(0)?)?, length);
    l.set_list(0, list)
}

pub(crate) fn push_back(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?;
    let pushed = match l.known(1) {
        Some(element) => list.pushed_known(l.program(), element)?,
        None => list.pushed(l.program(), &l.input(1)?)?,
    };
    l.set_list(0, pushed)
}

pub(crate) fn pop_back(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?;
    let dims = dims_input(l, 1, list)?;
    ensure!(
        dims.is_some() || !list.has_unset,
        Unimplemented,
        "an element of unknown shape that nothing has set"
    );
    let (rest, element) = list.popped(l.program(), dims.as_deref())?;
    l.set_list(0, rest)?;
    match &list.elements {
        Elements::Equal(known) => l.set_host(1, known.clone()),
        _ => l.set(1, element),
    }
}

/// The index that input `i` is, a scalar; whether it is less than the length is checked if both are known.
fn index(l: &Lowering<'_>, i: usize, list: &List) -> Result<Value> {
    if let (Some(_), Some(length)) = (l.known(i), list.known_length()) {
        let at = l.int(i)?;
        ensure!(
            usize::try_from(at).is_ok_and(|at| at < length),
            InvalidArgument,
            "element {at} of a list with {length} elements"
        );
    }
    let value = l.input(i)?;
    ensure!(value.num_elements() == 1, InvalidArgument, "an index must be a scalar");
    Ok(value.reshape(&[]))
}

pub(crate) fn get_item(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?;
    let at = index(l, 1, list)?;
    let dims = dims_input(l, 2, list)?;
    let item = list.get(l.program(), &at, dims.as_deref())?;
    l.set(0, item)
}

pub(crate) fn set_item(l: &mut Lowering<'_>) -> Result<()> {
    let (list, item) = (of_dtype(l, 0)?.clone(), l.input(2)?);
    let mut list = list;
    if l.attrs().bool("resize_if_index_out_of_bounds")? {
        let (Some(length), Some(_)) = (list.known_length(), l.known(1)) else {
            bail!(Unimplemented, "a list that grows by an index that is known only in a step");
        };
        let needed = count(l.int(1)?, "index")?.saturating_add(1);
        if needed > length {
            list = list.resized(l.program(), needed)?;
        }
    }
    ensure!(l.input_dims(1)?.is_empty(), InvalidArgument, "an index must be a scalar");
    let at = index(l, 1, &list)?;
    ensure!(list.length_max > 0, InvalidArgument, "an empty list has no element to set");
    let set = list.set(l.program(), &at, &item)?;
    l.set_list(0, set)
}

pub(crate) fn length(l: &mut Lowering<'_>) -> Result<()> {
    let list = l.list(0)?;
    match list.known_length() {
        Some(n) => l.set_host(0, Tensor::scalar(i32::try_from(n).unwrap_or(i32::MAX))),
        None => {
            let length = list.length(l.program());
            l.set(0, length)
        }
    }
}

pub(crate) fn element_shape(l: &mut Lowering<'_>) -> Result<()> {
    let shape = &l.list(0)?.element_shape;
    let is_long = l.output_dtype(0) == DType::Int64;
    let sizes = shape.dims().map(|dims| dims.iter().map(|d| d.map_or(-1, |d| d as i64)));
    let sizes: Option<Vec<i64>> = sizes.map(Iterator::collect);
    let tensor = match sizes {
        None if is_long => Tensor::scalar(-1i64),
        None => Tensor::scalar(-1i32),
        Some(sizes) if is_long => Tensor::vector(&sizes)?,
        Some(sizes) => Tensor::vector(&sizes.iter().map(|&n| n as i32).collect::<Vec<i32>>())?,
    };
    l.set_host(0, tensor)
}

pub(crate) fn resize(l: &mut Lowering<'_>) -> Result<()> {
    let resized = l.list(0)?.resized(l.program(), count(scalar(l, 1)?, "size")?)?;
    l.set_list(0, resized)
}

pub(crate) fn stack(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?;
    let (expected, dims) = (l.attrs().int("num_elements")?, dims_input(l, 1, list)?);
    let fits = expected == -1 || list.known_length().is_some_and(|n| n as i64 == expected);
    ensure!(fits, InvalidArgument, "a list of {expected} elements is expected");
    let stacked = list.stacked(l.program(), dims.as_deref())?;
    l.set(0, stacked)
}

pub(crate) fn gather(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?;
    let dims = dims_input(l, 2, list)?;
    let (at, length) = (l.ints(1)?, list.known_length());
    let is_in = |&i: &i64| usize::try_from(i).is_ok_and(|i| length.is_some_and(|n| i < n));
    ensure!(at.iter().all(is_in), InvalidArgument, "an index beyond the list");
    if let (true, Some(dims)) = (at.is_empty(), &dims) {
        let none = Tensor::zeros(list.dtype, Shape::new(&[&[0], &dims[..]].concat())?)?;
        return l.set_host(0, none);
    }
    ensure!(!at.is_empty(), Unimplemented, "the shape of no elements");
    ensure!(
        dims.is_some() || !list.has_unset,
        Unimplemented,
        "an element of unknown shape that nothing has set"
    );
    let rows = list.stacked(l.program(), dims.as_deref())?;
    let indices = l.input(1)?.flatten();
    let count = indices.num_elements();
    let of_rows = GatherDims {
        offset_dims: (1..rows.rank()).collect(),
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: 1,
        ..GatherDims::default()
    };
    let element = &rows.dims()[1..];
    let (sizes, result) = ([&[1], element].concat(), [&[count], element].concat());
    let gathered = rows.gather(&indices.expand(1), &of_rows, &sizes, &result);
    l.set(0, gathered)
}

pub(crate) fn from_tensor(l: &mut Lowering<'_>) -> Result<()> {
    let (rows, shape) = (l.input(0)?, shape_of(l.host(1)?)?);
    ensure!(rows.rank() > 0, InvalidArgument, "a tensor of rank 0 has no rows");
    let row = Shape::new(&rows.dims()[1..])?;
    ensure!(shape.is_compatible_with(&row), InvalidArgument, "elements are {row}, not {shape}");
    l.set_list(0, List::of_rows(rows, shape))
}

/// `TensorListScatter` and `TensorListScatterV2`.
pub(crate) fn scatter(l: &mut Lowering<'_>) -> Result<()> {
    let asked = if l.num_inputs() > 3 { scalar(l, 3)? } else { -1 };
    ensure!(asked >= -1, InvalidArgument, "num_elements must be at least -1, is {asked}");
    let mut needed = 0;
    for i in l.ints(1)? {
        needed = count(i, "an index")?.saturating_add(1).max(needed);
    }
    let length = usize::try_from(asked).unwrap_or(needed);
    ensure!(needed <= length, InvalidArgument, "an index beyond the list");
    let list = List::new(l.input(0)?.dtype(), shape_of(l.host(2)?)?, length);
    put_rows(l, &list, 0, 1)
}

pub(crate) fn scatter_into(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?.clone();
    let length = list.known_length();
    let is_in = |i: i64| usize::try_from(i).is_ok_and(|i| length.is_some_and(|n| i < n));
    ensure!(l.ints(2)?.into_iter().all(is_in), Unimplemented, "the list may become longer");
    put_rows(l, &list, 1, 2)
}

/// Sets output 0 to the list with rows of a tensor at some indices.
fn put_rows(l: &mut Lowering<'_>, list: &List, tensor: usize, indices: usize) -> Result<()> {
    let (updates, indices) = (l.input(tensor)?, l.input(indices)?.flatten());
    ensure!(
        updates.rank() > 0 && updates.dims()[0] == indices.num_elements(),
        InvalidArgument,
        "{} indices of rows {:?}",
        indices.num_elements(),
        updates.dims()
    );
    let mut list = list.with_rows(l.program(), &updates.dims()[1..], list.length_max)?;
    list.elements = Elements::Any;
    if indices.num_elements() > 0 && list.length_max > 0 {
        let dims = ScatterDims {
            update_window_dims: (1..updates.rank()).collect(),
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            ..ScatterDims::default()
        };
        let put = |rows: Value| {
            rows.scatter(&indices.expand(1), &updates, &dims, false, |_, new| new.clone())
        };
        list.rows = list.rows.map(put);
    }
    l.set_list(0, list)
}

pub(crate) fn concat(l: &mut Lowering<'_>) -> Result<()> {
    let list = of_dtype(l, 0)?;
    let dims = dims_input(l, 1, list)?;
    ensure!(!list.has_unset, Unimplemented, "an element that nothing has set may have any length");
    let rows = list.stacked(l.program(), dims.as_deref())?;
    let [count, each, rest @ ..] = rows.dims() else {
        bail!(InvalidArgument, "Concat requires elements to be at least vectors");
    };
    let lengths = vec![*each as i64; *count];
    let joined = rows.reshape(&[&[count * each], rest].concat());
    l.set(0, joined)?;
    l.set_host(1, Tensor::vector(&lengths)?)
}

pub(crate) fn split(l: &mut Lowering<'_>) -> Result<()> {
    let (tensor, lengths) = (l.input(0)?, l.ints(2)?);
    ensure!(l.host(2)?.rank() == 1, InvalidArgument, "lengths must be a vector");
    let first = count(*lengths.first().unwrap_or(&0), "a length")?;
    let is_even = lengths.iter().all(|&n| n == first as i64);
    ensure!(is_even, Unimplemented, "a list in a program has tensors of one shape");
    ensure!(
        tensor.rank() > 0 && first.checked_mul(lengths.len()) == Some(tensor.dims()[0]),
        InvalidArgument,
        "{lengths:?} are not the rows of {:?}",
        tensor.dims()
    );
    let shape = shape_of(l.host(1)?)?;
    let piece = Shape::new(&[&[first], &tensor.dims()[1..]].concat())?;
    ensure!(shape.is_compatible_with(&piece), Unimplemented, "elements are {piece}, not {shape}");
    let rows = tensor.reshape(&[&[lengths.len(), first], &tensor.dims()[1..]].concat());
    l.set_list(0, List::of_rows(rows, shape))
}

/// `ZerosLike` of a list.
pub(crate) fn zeros_like(l: &mut Lowering<'_>) -> Result<()> {
    let mut list = l.list(0)?.clone();
    list.rows = list.rows.map(|rows| rows.zeros_like());
    list.elements = Elements::Any;
    l.set_list(0, list)
}

/// `AddN` of lists of equal lengths.
pub(crate) fn add_n(l: &mut Lowering<'_>) -> Result<()> {
    let mut sum = l.list(0)?.clone();
    for i in 1..l.num_inputs() {
        let other = l.list(i)?;
        let (a, b) = (sum.known_length(), other.known_length());
        ensure!(a.is_some() && a == b, Unimplemented, "lists of lengths {a:?} and {b:?} are added");
        ensure!(
            sum.dtype == other.dtype && sum.dtype != DType::Bool,
            InvalidArgument,
            "lists of {} and {} are added",
            sum.dtype,
            other.dtype
        );
        sum.element_shape = sum.element_shape.merge(&other.element_shape)?;
        sum.has_unset |= other.has_unset;
        sum.elements = Elements::Any;
        let Some(dims) = sum.element_dims().or_else(|| other.element_dims()) else {
            continue;
        };
        let capacity = sum.length_max;
        let rows = |list: &List| -> Result<Value> {
            let rows = list.with_rows(l.program(), &dims, capacity)?.rows;
            let rows = rows.ok_or_else(|| err!(Internal, "a list has no rows"))?;
            Ok(rows.slice_dim(0, 0, capacity))
        };
        let added = rows(&sum)?.plus(&rows(other)?);
        sum.rows = Some(added);
    }
    l.set_list(0, sum)
}
