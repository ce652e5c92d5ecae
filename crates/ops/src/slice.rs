//! `Slice`, `StridedSlice` and strided assignment.

use smallvec::SmallVec;
use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{NodeAttrs, OpDef, PartialValue, ValueContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{PartialShape, RANK_MAX, Result, Shape, Tensor, ensure, err};

use crate::cells::blank;
use crate::reshape::broadcast_strides;
use crate::strided::{Dim, StridedCopy, strides};
use crate::work;
use crate::{slice_gradients, slice_lowering as lowering};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SLICE.with_gradient(slice_gradients::slice),
        STRIDED_SLICE.with_gradient(slice_gradients::strided_slice),
        STRIDED_SLICE_GRAD.with_gradient(slice_gradients::strided_slice_grad),
        TENSOR_STRIDED_SLICE_UPDATE.with_gradient(slice_gradients::tensor_strided_slice_update),
    ],
    kernels: &[
        KernelSpec {
            op: "Slice",
            host_inputs: &["begin", "size"],
            create: slice,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StridedSlice",
            host_inputs: &["begin", "end", "strides"],
            create: strided_slice,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StridedSliceGrad",
            host_inputs: &["shape", "begin", "end", "strides"],
            create: strided_slice_grad,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "TensorStridedSliceUpdate",
            host_inputs: &["begin", "end", "strides"],
            create: tensor_strided_slice_update,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("Slice", lowering::slice).with_host_inputs(&["begin", "size"]),
        KernelSpec::lowering("StridedSlice", lowering::strided_slice)
            .with_host_inputs(&["begin", "end", "strides"]),
        KernelSpec::lowering("StridedSliceGrad", lowering::strided_slice_grad)
            .with_host_inputs(&["shape", "begin", "end", "strides"]),
        KernelSpec::lowering("TensorStridedSliceUpdate", lowering::tensor_strided_slice_update)
            .with_host_inputs(&["begin", "end", "strides"]),
    ],
};

type Dims = SmallVec<[Option<usize>; 4]>;

const SLICE: OpDef =
    OpDef::new("Slice", slice_shape).with_work(|c| work::range_of(c, 0)).with_value(slice_value);

fn slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (begin, size) = (c.partial_value(1), c.partial_value(2));
    let lens = [c.with_rank(1, "begin", 1)?.dim(0), c.with_rank(2, "size", 1)?.dim(0)];
    let known = [c.input(0).rank(), lens[0], lens[1]];
    let Some(rank) = known.into_iter().flatten().next().filter(|&r| r <= RANK_MAX) else {
        return Ok(());
    };
    ensure!(
        known.into_iter().flatten().all(|r| r == rank),
        InvalidArgument,
        "begin and size must have as many elements as input has dimensions: {}, {} and {}",
        c.input(1),
        c.input(2),
        c.input(0)
    );
    let at = |value: &Option<PartialValue>, i: usize| -> Option<i64> {
        value.as_ref().and_then(|v| v.elements.get(i).copied().flatten())
    };
    let mut dims = Dims::new();
    for i in 0..rank {
        dims.push(match (at(&begin, i), at(&size, i), c.input(0).dim(i)) {
            (Some(begin), Some(size), Some(dim)) => Some(slice_range(i, begin, size, dim)?.1),
            (_, Some(size), _) if size >= 0 => Some(size as usize),
            _ => None,
        });
    }
    c.set_output(0, PartialShape::new(dims));
    Ok(())
}

/// Begin and length of the slice of dimension `i`; size -1 extends to the end.
pub(crate) fn slice_range(i: usize, begin: i64, size: i64, dim: usize) -> Result<(usize, usize)> {
    let dim = dim as i64;
    ensure!(
        (0..=dim).contains(&begin),
        InvalidArgument,
        "Expected begin[{i}] in [0, {dim}], but got {begin}"
    );
    let left = dim - begin;
    let size = if size == -1 { left } else { size };
    ensure!(
        (0..=left).contains(&size),
        InvalidArgument,
        "Expected size[{i}] in [0, {left}], but got {size}"
    );
    Ok((begin as usize, size as usize))
}

fn slice_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (value, begin, size) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let ([Some(begin)], [Some(size)]) = (&begin.elements[..], &size.elements[..]) else {
        return None;
    };
    let (start, len) = slice_range(0, *begin, *size, value.elements.len()).ok()?;
    Some(PartialValue::vector(value.elements[start..start + len].iter().copied()))
}

fn slice(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (begin, size) = (ctx.input(1)?, ctx.input(2)?);
        let shape = ctx.input(0)?.shape();
        let is_right = |t: &Tensor| t.rank() == 1 && t.num_elements() == shape.rank();
        ensure!(
            is_right(begin) && is_right(size),
            InvalidArgument,
            "Expected begin and size arguments to be 1-D tensors of size {}, but got shapes {} \
             and {} instead.",
            shape.rank(),
            begin.shape(),
            size.shape()
        );
        let (begin, size) = (ctx.ints(1, "begin")?, ctx.ints(2, "size")?);
        let mut part = Part::default();
        for (i, &dim) in shape.iter().enumerate() {
            let (begin, len) = slice_range(i, begin[i], size[i], dim)?;
            part.dims.push(PartDim { begin, step: 1, len });
        }
        let output = part.take(ctx, 0)?;
        ctx.set_output(0, output)
    })
}

/// A slice of a tensor, per dimension.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) dims: SmallVec<[PartDim; 6]>,
}

/// A slice of one dimension: `len` elements from `begin` at distance `step`.
#[derive(Clone, Copy)]
pub(crate) struct PartDim {
    pub(crate) begin: usize,
    pub(crate) step: i64,
    pub(crate) len: usize,
}

impl Part {
    pub(crate) fn sizes(&self) -> SmallVec<[usize; 6]> {
        self.dims.iter().map(|d| d.len).collect()
    }

    fn num_elements(&self) -> usize {
        self.dims.iter().map(|d| d.len).product()
    }

    /// This slice of input `i`, copied unless it is the whole tensor or whole rows.
    fn take(&self, ctx: &mut KernelContext<'_>, i: usize) -> Result<Tensor> {
        let input = ctx.input(i)?;
        let is_whole = |(part, &dim): (&PartDim, &usize)| part.len == dim && part.step == 1;
        let mut whole_from = self.dims.len();
        while whole_from > 0
            && is_whole((&self.dims[whole_from - 1], &input.shape()[whole_from - 1]))
        {
            whole_from -= 1;
        }
        if whole_from == 0 {
            return ctx.take_input(i);
        }
        if whole_from == 1 && self.dims[0].step == 1 {
            let budget = Some(ctx.budget());
            return input.rows(self.dims[0].begin, self.dims[0].len, budget);
        }
        let sizes = self.sizes();
        let mut output = blank(ctx, input.dtype(), Shape::new(&sizes)?)?;
        let from = strides(input.shape());
        // An empty slice may begin beyond the end.
        if output.num_elements() > 0 {
            let start = self.dims.iter().zip(&from).map(|(d, s)| d.begin * s).sum();
            let source: SmallVec<[isize; 6]> = self
                .dims
                .iter()
                .zip(&from)
                .map(|(d, &s)| if d.len == 1 { 0 } else { d.step as isize * s as isize })
                .collect();
            StridedCopy::filling(&sizes, &source, start).run(ctx, input, &mut output)?;
        }
        Ok(output)
    }

    /// Writes `source`, with strides `source_strides`, to this slice of `target`.
    fn put(
        &self,
        ctx: &KernelContext<'_>,
        source: &Tensor,
        source_strides: &[isize],
        target: &mut Tensor,
    ) -> Result<()> {
        if self.num_elements() == 0 {
            return Ok(());
        }
        let mut copy = StridedCopy::default();
        for ((d, &source), stride) in
            self.dims.iter().zip(source_strides).zip(strides(target.shape()))
        {
            let last = d.len - 1;
            let step = if last == 0 { 1 } else { d.step };
            copy.target_start += d.begin * stride;
            let target = step.unsigned_abs() as usize * stride;
            if step > 0 {
                copy.dims.push(Dim { len: d.len, source, target });
            } else {
                // Iterating backwards over the target also iterates backwards over the source.
                copy.target_start -= last * target;
                copy.source_start = copy.source_start.wrapping_add_signed(last as isize * source);
                copy.dims.push(Dim { len: d.len, source: -source, target });
            }
        }
        copy.run(ctx, source, target)
    }
}

/// The masks of a strided slice: one bit for each entry of the specification.
#[derive(Clone, Copy)]
pub(crate) struct Masks {
    begin: i64,
    end: i64,
    ellipsis: i64,
    new_axis: i64,
    shrink_axis: i64,
}

impl Masks {
    /// The masks in the attrs of a node.
    pub(crate) fn from_attrs(attrs: &NodeAttrs<'_>) -> Result<Masks> {
        Ok(Masks {
            begin: attrs.int("begin_mask")?,
            end: attrs.int("end_mask")?,
            ellipsis: attrs.int("ellipsis_mask")?,
            new_axis: attrs.int("new_axis_mask")?,
            shrink_axis: attrs.int("shrink_axis_mask")?,
        })
    }
}

/// The origin of a dimension of the result.
#[derive(Clone, Copy, PartialEq)]
enum Axis {
    /// A dimension of the input.
    Kept(usize),
    /// A dimension of the input that an index removes.
    Dropped(usize),
    /// A new dimension of size 1.
    New,
}

/// The specification for one dimension of the input; `None` is unknown.
#[derive(Clone, Copy)]
struct Spec {
    begin: Option<i64>,
    end: Option<i64>,
    stride: Option<i64>,
    is_index: bool,
}

/// Maximum entries of a specification: the masks have 32 bits.
const ENTRIES_MAX: usize = 31;

type Specs = SmallVec<[Spec; 6]>;
type Axes = SmallVec<[Axis; 6]>;

/// Assigns the entries to the input's dimensions; an ellipsis covers as many as are missing.
fn assign_entries(
    masks: Masks,
    begin: &[Option<i64>],
    end: &[Option<i64>],
    stride: &[Option<i64>],
    rank: usize,
) -> Result<(Specs, Axes)> {
    const WHOLE: Spec =
        Spec { begin: Some(0), end: Some(i64::MAX), stride: Some(1), is_index: false };
    let n = stride.len();
    let has = |mask: i64, i: usize| mask >> i & 1 == 1;
    let ellipses = (0..n).filter(|&i| has(masks.ellipsis, i)).count();
    ensure!(ellipses <= 1, InvalidArgument, "Multiple ellipses in slice spec not allowed");
    let is_new = |i: usize| has(masks.new_axis, i) && !has(masks.ellipsis, i);
    let named = n - ellipses - (0..n).filter(|&i| is_new(i)).count();
    let missing = rank.saturating_sub(named);
    let (mut specs, mut axes) = (Specs::new(), Axes::new());
    let whole = |specs: &mut Specs, axes: &mut Axes| {
        for _ in 0..missing {
            axes.push(Axis::Kept(specs.len()));
            specs.push(WHOLE);
        }
    };
    for i in 0..n {
        if has(masks.ellipsis, i) {
            whole(&mut specs, &mut axes);
        } else if is_new(i) {
            axes.push(Axis::New);
        } else {
            ensure!(
                specs.len() < rank,
                InvalidArgument,
                "Index out of range using input dim {}; input has only {rank} dims",
                specs.len()
            );
            let is_index = has(masks.shrink_axis, i);
            let axis = specs.len();
            axes.push(if is_index { Axis::Dropped(axis) } else { Axis::Kept(axis) });
            // A masked bound is the end of the dimension on its side.
            let open = |mask, value: Option<i64>, edge: fn(bool) -> i64| {
                if has(mask, i) && !is_index { stride[i].map(|s| edge(s > 0)) } else { value }
            };
            specs.push(Spec {
                begin: open(masks.begin, begin[i], |up| if up { 0 } else { i64::MAX }),
                end: open(masks.end, end[i], |up| if up { i64::MAX } else { i64::MIN }),
                stride: stride[i],
                is_index,
            });
        }
    }
    if ellipses == 0 {
        whole(&mut specs, &mut axes);
    }
    Ok((specs, axes))
}

/// A strided slice of a tensor.
pub(crate) struct StridedSlice {
    /// The slice before dimensions are removed and added.
    pub(crate) part: Part,
    axes: Axes,
}

impl Spec {
    /// The slice of dimension `i`, of size `dim`, as far as known.
    fn part(&self, i: usize, dim: Option<usize>) -> Result<Option<PartDim>> {
        ensure!(self.stride != Some(0), InvalidArgument, "strides[{i}] must be non-zero");
        if self.is_index {
            ensure!(
                self.stride.is_none_or(|s| s > 0),
                InvalidArgument,
                "only stride 1 allowed on non-range indexing."
            );
            return self.index(i, dim);
        }
        let (Some(begin), Some(end), Some(step), Some(dim)) =
            (self.begin, self.end, self.stride, dim)
        else {
            return Ok(None);
        };
        let dim = dim as i64;
        let (low, high) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
        let clamp = |x: i64| if x < 0 { dim + x } else { x }.clamp(low, high);
        let (begin, end) = (clamp(begin), clamp(end));
        let distance = if step > 0 { end - begin } else { begin - end };
        let len = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
        Ok(Some(PartDim { begin: begin.max(0) as usize, step, len: len as usize }))
    }

    /// The single element that an index selects.
    fn index(&self, i: usize, dim: Option<usize>) -> Result<Option<PartDim>> {
        let (Some(begin), Some(dim)) = (self.begin, dim) else { return Ok(None) };
        let index = if begin < 0 { begin + dim as i64 } else { begin };
        ensure!(
            (0..dim as i64).contains(&index),
            InvalidArgument,
            "slice index {begin} of dimension {i} out of bounds."
        );
        Ok(Some(PartDim { begin: index as usize, step: 1, len: 1 }))
    }
}

impl StridedSlice {
    /// The slice of a tensor of shape `shape` with begin, end and strides in inputs `first`, `first
    /// + 1` and `first + 2`.
    pub(crate) fn from_inputs(
        ctx: &KernelContext<'_>,
        masks: Masks,
        first: usize,
        shape: &[usize],
    ) -> Result<StridedSlice> {
        let (begin, end, stride) =
            (ctx.input(first)?, ctx.input(first + 1)?, ctx.input(first + 2)?);
        ensure!(
            begin.rank() == 1
                && begin.shape() == end.shape()
                && begin.shape() == stride.shape()
                && begin.num_elements() <= ENTRIES_MAX,
            InvalidArgument,
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, \
             and {} instead.",
            begin.shape(),
            end.shape(),
            stride.shape()
        );
        let (begin, end) = (ctx.ints(first, "begin")?, ctx.ints(first + 1, "end")?);
        StridedSlice::new(masks, [&begin, &end, &ctx.ints(first + 2, "strides")?], shape)
    }

    /// The slice of a tensor of shape `shape` with these begin, end and strides, of equal lengths.
    pub(crate) fn new(masks: Masks, bounds: [&[i64]; 3], shape: &[usize]) -> Result<StridedSlice> {
        let [begin, end, stride] = bounds
            .map(|values| values.iter().copied().map(Some).collect::<SmallVec<[Option<i64>; 4]>>());
        let (specs, axes) = assign_entries(masks, &begin, &end, &stride, shape.len())?;
        let mut part = Part::default();
        for (i, (spec, &dim)) in specs.iter().zip(shape).enumerate() {
            let dim = spec.part(i, Some(dim))?;
            part.dims.push(dim.ok_or_else(|| err!(Internal, "a slice of known bounds is known"))?);
        }
        Ok(StridedSlice { part, axes })
    }

    /// The shape of the slice.
    pub(crate) fn shape(&self) -> Result<Shape> {
        let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
        for axis in &self.axes {
            match *axis {
                Axis::Kept(i) => dims.push(self.part.dims[i].len),
                Axis::New => dims.push(1),
                Axis::Dropped(_) => {}
            }
        }
        Shape::new(&dims)
    }

    /// Writes `value`, broadcast to the slice's shape, to the slice of `target`.
    pub(crate) fn put(
        &self,
        ctx: &KernelContext<'_>,
        value: &Tensor,
        target: &mut Tensor,
    ) -> Result<()> {
        let from = broadcast_strides(value.shape(), &self.shape()?)?;
        let mut from = from.into_iter();
        let mut source: SmallVec<[isize; 6]> = smallvec::smallvec![0; self.part.dims.len()];
        for axis in &self.axes {
            match *axis {
                Axis::Kept(i) => source[i] = from.next().unwrap_or(0),
                Axis::New => drop(from.next()),
                Axis::Dropped(_) => {}
            }
        }
        self.part.put(ctx, value, &source, target)
    }
}

const STRIDED_SLICE: OpDef = OpDef::new("StridedSlice", strided_slice_shape)
    .with_work(|c| work::range_of(c, 0))
    .with_value(strided_slice_value);

fn strided_slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let entries = |c: &ShapeContext<'_>, i: usize| c.partial_value(i).map(|v| v.elements);
    let lens = [1, 2, 3].map(|i| c.input(i).dim(0));
    for (i, name) in [(1, "begin"), (2, "end"), (3, "strides")] {
        c.with_rank(i, name, 1)?;
    }
    let Some(n) = lens.into_iter().flatten().next() else { return Ok(()) };
    ensure!(
        lens.into_iter().flatten().all(|len| len == n) && n <= ENTRIES_MAX,
        InvalidArgument,
        "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, and \
         {} instead.",
        c.input(1),
        c.input(2),
        c.input(3)
    );
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let unknown = || smallvec::smallvec![None; n];
    let [begin, end, stride] = [1, 2, 3].map(|i| entries(c, i).unwrap_or_else(unknown));
    let masks = Masks::from_attrs(&c.attrs())?;
    let (specs, axes) = assign_entries(masks, &begin, &end, &stride, dims.len())?;
    let mut result = Dims::new();
    for axis in axes {
        match axis {
            Axis::New => result.push(Some(1)),
            Axis::Kept(i) => result.push(specs[i].part(i, dims[i])?.map(|p| p.len)),
            Axis::Dropped(i) => drop(specs[i].part(i, dims[i])?),
        }
    }
    c.set_output(0, PartialShape::new(result));
    Ok(())
}

/// The static value: a slice of a vector, or one element as a scalar.
fn strided_slice_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let (value, begin, end, stride) = (c.input(0)?, c.input(1)?, c.input(2)?, c.input(3)?);
    if value.is_scalar {
        return None;
    }
    let masks = Masks::from_attrs(&c.attrs()).ok()?;
    let (specs, axes) =
        assign_entries(masks, &begin.elements, &end.elements, &stride.elements, 1).ok()?;
    let part = specs[0].part(0, Some(value.elements.len())).ok()??;
    let picked = (0..part.len).map(|i| {
        let at = part.begin as i64 + i as i64 * part.step;
        value.elements[at as usize]
    });
    match axes[..] {
        [Axis::Kept(_)] => Some(PartialValue::vector(picked)),
        [Axis::Dropped(_)] => Some(PartialValue::scalar(value.elements[part.begin])),
        _ => None,
    }
}

fn strided_slice(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let masks = Masks::from_attrs(&init.attrs())?;
    AnyKernel::new(move |ctx| {
        let slice = StridedSlice::from_inputs(ctx, masks, 1, ctx.input(0)?.shape())?;
        let output = slice.part.take(ctx, 0)?.reshaped(slice.shape()?)?;
        ctx.set_output(0, output)
    })
}

const STRIDED_SLICE_GRAD: OpDef =
    OpDef::new("StridedSliceGrad", shape::from_first_input).with_work(Work::moves);

fn strided_slice_grad(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let masks = Masks::from_attrs(&init.attrs())?;
    let dtype = init.output_dtype(0);
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(0, "shape")?;
        let slice = StridedSlice::from_inputs(ctx, masks, 1, &shape)?;
        let dy = ctx.input(4)?;
        let expected = slice.shape()?;
        ensure!(
            *dy.shape() == expected,
            InvalidArgument,
            "shape of dy was {} instead of {expected}",
            dy.shape()
        );
        let mut output = ctx.zeros(dtype, shape)?;
        slice.put(ctx, dy, &mut output)?;
        ctx.set_output(0, output)
    })
}

const TENSOR_STRIDED_SLICE_UPDATE: OpDef =
    OpDef::new("TensorStridedSliceUpdate", shape::unchanged).with_work(Work::moves);

fn tensor_strided_slice_update(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let masks = Masks::from_attrs(&init.attrs())?;
    AnyKernel::new(move |ctx| {
        let slice = StridedSlice::from_inputs(ctx, masks, 1, ctx.input(0)?.shape())?;
        let mut output = ctx.take_input(0)?;
        output.make_unique(Some(ctx.budget()))?;
        slice.put(ctx, ctx.input(4)?, &mut output)?;
        ctx.set_output(0, output)
    })
}
