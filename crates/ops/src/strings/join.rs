//! `StringJoin`, `ReduceJoin` and `UnsortedSegmentJoin`.

use bytes::Bytes;
use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, StringBuilder, Tensor, bail, ensure};

use super::text::write_strings;
use crate::indices::Indices;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("StringJoin", string_join_shape).without_gradient(),
        OpDef::new("ReduceJoin", reduce_join_shape).without_gradient(),
        OpDef::new("UnsortedSegmentJoin", unsorted_segment_join_shape),
    ],
    kernels: &[
        KernelSpec { op: "StringJoin", create: string_join, ..KernelSpec::CPU },
        KernelSpec { op: "ReduceJoin", create: reduce_join, ..KernelSpec::CPU },
        KernelSpec { op: "UnsortedSegmentJoin", create: unsorted_segment_join, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per appended string.
const NANOSECONDS_PER_STRING: f64 = 20.0;

fn string_join_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = PartialShape::scalar();
    for i in 0..c.num_inputs() {
        let input = c.input(i);
        if input.rank().is_none() {
            // It may be a scalar, or determine the shape.
            return Ok(());
        }
        if input.rank() != Some(0) {
            shape = if shape.rank() == Some(0) { input.clone() } else { shape.merge(input)? };
        }
    }
    c.set_output(0, shape);
    Ok(())
}

fn string_join(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let separator = init.attrs().bytes("separator")?.clone();
    AnyKernel::new(move |ctx| {
        let shape = joined_shape(ctx)?;
        let mut inputs = SmallVec::<[&[Bytes]; 8]>::new();
        for i in 0..ctx.num_inputs() {
            inputs.push(ctx.input(i)?.strings()?);
        }
        // A scalar is broadcast; a vector of one element is only indexed at 0.
        let at = |strings: &[Bytes], i: usize| if strings.len() == 1 { 0 } else { i };
        let cost = NANOSECONDS_PER_STRING * (1 + inputs.len()) as f64;
        let output = write_strings(ctx, shape, cost, |i, text| {
            join(text, inputs.iter().map(|s| &s[at(s, i)]), &separator)
        })?;
        drop(inputs);
        ctx.set_output(0, output)
    })
}

fn joined_shape(ctx: &KernelContext<'_>) -> Result<Shape> {
    let mut shape = Shape::scalar();
    for i in 0..ctx.num_inputs() {
        let own = ctx.input(i)?.shape();
        if own.rank() == 0 {
            continue;
        }
        if shape.rank() == 0 {
            shape = own.clone();
        }
        ensure!(
            *own == shape,
            InvalidArgument,
            "inputs that are not scalars must have one shape, got {shape} and {own}"
        );
    }
    Ok(shape)
}

fn join<'a>(
    text: &mut StringBuilder,
    strings: impl Iterator<Item = &'a Bytes>,
    separator: &[u8],
) -> Result<()> {
    for (i, string) in strings.enumerate() {
        if i > 0 {
            text.push(separator)?;
        }
        text.push(string)?;
    }
    Ok(())
}

fn reduce_join_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let keep = c.attrs().bool("keep_dims")?;
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    let axes = c.partial_value(1).and_then(|v| v.known());
    let Some(axes) = axes else {
        if keep {
            c.set_output(0, PartialShape::of_rank(dims.len()));
        }
        return Ok(());
    };
    // Invalid axes are reported by the kernel, with TensorFlow's codes.
    let Ok(order) = reduced_axes(axes.iter().copied(), dims.len()) else { return Ok(()) };
    let kept = dims.iter().enumerate().filter_map(|(d, &size)| match order.contains(&d) {
        true => keep.then_some(Some(1)),
        false => Some(size),
    });
    let shape = PartialShape::new(kept.collect::<SmallVec<[_; 4]>>());
    c.set_output(0, shape);
    Ok(())
}

/// The reduced dimensions, the fastest varying first.
fn reduced_axes(axes: impl Iterator<Item = i64>, rank: usize) -> Result<SmallVec<[usize; 4]>> {
    let mut order = SmallVec::new();
    for axis in axes {
        let from_front = if axis < 0 { axis + rank as i64 } else { axis };
        ensure!(
            (0..rank as i64).contains(&from_front),
            OutOfRange,
            "reduction dimension {axis} is not one of the input's {rank}"
        );
        let dim = from_front as usize;
        ensure!(
            !order.contains(&dim),
            InvalidArgument,
            "reduction dimension {axis} is named twice"
        );
        order.push(dim);
    }
    Ok(order)
}

fn reduce_join(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (keep, separator) = (attrs.bool("keep_dims")?, attrs.bytes("separator")?.clone());
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let axes = ctx.input(1)?.as_slice::<i32>()?;
        let order = reduced_axes(axes.iter().map(|&a| i64::from(a)), input.rank())?;
        let walk = Walk::new(input.shape(), &order);
        let sizes = input.shape().iter().enumerate().filter_map(|(d, &size)| {
            let is_reduced = order.contains(&d);
            if is_reduced { keep.then_some(1) } else { Some(size) }
        });
        let shape = Shape::new(&sizes.collect::<SmallVec<[usize; 4]>>())?;
        let strings = input.strings()?;
        let steps: usize = walk.folded.iter().map(|d| d.0).product();
        let cost = NANOSECONDS_PER_STRING * (1 + steps) as f64;
        let output = write_strings(ctx, shape, cost, |i, text| {
            let start = offset(&walk.kept, i);
            let positions = (0..steps).map(|s| start + offset(&walk.folded, s));
            join(text, positions.map(|p| &strings[p]), &separator)
        })?;
        ctx.set_output(0, output)
    })
}

/// Sizes and strides of the kept and of the reduced dimensions, the fastest varying first.
struct Walk {
    kept: SmallVec<[(usize, usize); 4]>,
    folded: SmallVec<[(usize, usize); 4]>,
}

impl Walk {
    fn new(dims: &[usize], order: &[usize]) -> Walk {
        let stride = |d: usize| dims[d + 1..].iter().product::<usize>();
        let kept = (0..dims.len()).rev().filter(|d| !order.contains(d));
        Walk {
            kept: kept.map(|d| (dims[d], stride(d))).collect(),
            folded: order.iter().map(|&d| (dims[d], stride(d))).collect(),
        }
    }
}

fn offset(dims: &[(usize, usize)], mut index: usize) -> usize {
    let mut at = 0;
    for &(size, stride) in dims {
        at += index % size.max(1) * stride;
        index /= size.max(1);
    }
    at
}

fn unsorted_segment_join_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (Some(data), Some(ids)) = (c.input(0).dims(), c.input(1).dims()) else { return Ok(()) };
    ensure!(!ids.is_empty(), InvalidArgument, "segment_ids must not be a scalar");
    ensure!(
        ids.len() <= data.len(),
        InvalidArgument,
        "segment_ids must be a prefix of the inputs' shape, got {} and {}",
        c.input(1),
        c.input(0)
    );
    let segments = c.partial_value(2).and_then(|v| v.elements.first().copied().flatten());
    let first = segments.and_then(|n| usize::try_from(n).ok());
    let dims = std::iter::once(first).chain(data[ids.len()..].iter().copied());
    let shape = PartialShape::new(dims.collect::<SmallVec<[_; 4]>>());
    c.set_output(0, shape);
    Ok(())
}

fn unsorted_segment_join(init: &KernelInit<'_>) -> Result<AnyKernel> {
    // TensorFlow reads this separator, unlike the others, up to its first zero byte.
    let separator = init.attrs().bytes("separator")?;
    let len = separator.iter().position(|&b| b == 0).unwrap_or(separator.len());
    let separator = separator.slice(..len);
    AnyKernel::new(move |ctx| {
        let (input, ids) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(ids.rank() > 0, InvalidArgument, "segment_ids must not be a scalar");
        ensure!(
            input.shape().starts_with(ids.shape()),
            InvalidArgument,
            "segment_ids of shape {} must be a prefix of the inputs' shape {}",
            ids.shape(),
            input.shape()
        );
        let segments = ctx.scalar_int(2, "num_segments")?;
        let Ok(segments) = usize::try_from(segments) else {
            bail!(InvalidArgument, "num_segments must not be negative, is {segments}")
        };
        let inner = &input.shape()[ids.rank()..];
        let columns: usize = inner.iter().product();
        let mut dims = SmallVec::<[usize; 4]>::from_slice(&[segments]);
        dims.extend_from_slice(inner);
        let shape = Shape::new(&dims)?;
        let groups = Groups::new(ctx, ids, segments)?;
        let (starts, members) = (groups.starts.as_slice::<i64>()?, groups.members.as_slice()?);
        let strings = input.strings()?;
        let per_group = 1 + ids.num_elements() / segments.max(1);
        let cost = NANOSECONDS_PER_STRING * (1 + per_group) as f64;
        let output = write_strings(ctx, shape, cost, |i, text| {
            let (segment, column) = (i / columns, i % columns);
            let members: &[i64] = members;
            let range = starts[segment] as usize..starts[segment + 1] as usize;
            for &member in &members[range] {
                // Leading empty strings produce no separator.
                if !text.as_bytes().is_empty() {
                    text.push(&separator)?;
                }
                text.push(&strings[member as usize * columns + column])?;
            }
            Ok(())
        })?;
        ctx.set_output(0, output)
    })
}

/// Indices by segment: those of segment `s` are `members[starts[s]..starts[s + 1]]`, in order.
struct Groups {
    starts: Tensor,
    members: Tensor,
}

impl Groups {
    fn new(ctx: &KernelContext<'_>, ids: &Tensor, segments: usize) -> Result<Groups> {
        let count = ids.num_elements();
        let ids = Indices::of(ids)?;
        let mut starts = ctx.zeros(DType::Int64, Shape::new(&[segments.saturating_add(1)])?)?;
        let mut members = ctx.allocate(DType::Int64, Shape::new(&[count])?)?;
        let next = starts.as_mut_slice::<i64>()?;
        for i in 0..count {
            let Some(id) = ids.below(i, segments) else {
                bail!(
                    InvalidArgument,
                    "segment_ids must lie in 0..{segments}, but number {i} is {}",
                    ids.at(i)
                )
            };
            next[id] += 1;
        }
        // Ends of the segments; filling from the back turns them into starts.
        let mut total = 0;
        for slot in next.iter_mut() {
            total += *slot;
            *slot = total;
        }
        let slots = members.as_mut_slice::<i64>()?;
        for i in (0..count).rev() {
            let id = ids.below(i, segments).expect("checked above");
            next[id] -= 1;
            slots[next[id] as usize] = i as i64;
        }
        Ok(Groups { starts, members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::Code;

    fn strings(dims: &[usize], text: &'static str) -> Tensor {
        let items =
            text.split(' ').filter(|s| !s.is_empty()).map(|s| Bytes::from_static(s.as_bytes()));
        Tensor::from_strings(Shape::new(dims).unwrap(), items.collect()).unwrap()
    }

    fn shown(tensor: &Tensor) -> String {
        let items = tensor.strings().unwrap().iter().map(|s| String::from_utf8_lossy(s));
        format!("{} {}", tensor.shape(), items.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn joins_element_by_element() {
        let join = |a: Tensor, b: Tensor| {
            call("StringJoin").input(a).input(b).attr("N", 2i64).attr("separator", "-").run()
        };
        let pair = strings(&[2], "a b");
        assert_eq!(shown(&join(pair.clone(), strings(&[], "x")).unwrap()), "[2] a-x b-x");
        assert_eq!(shown(&join(strings(&[1], "a"), strings(&[], "b")).unwrap()), "[1] a-b");
        assert_eq!(shown(&join(strings(&[0], ""), strings(&[], "b")).unwrap()), "[0] ");
        assert_eq!(code(join(pair.clone(), strings(&[1], "x"))), Some(Code::InvalidArgument));
        assert_eq!(code(join(pair, strings(&[1, 2], "x y"))), Some(Code::InvalidArgument));
        assert_eq!(shown(&call("StringJoin").attr("N", 0i64).run().unwrap()), "[] ");
    }

    #[test]
    fn joins_along_dimensions_in_the_order_named() {
        let cube = strings(&[2, 2, 2], "a b c d e f g h");
        for (axes, expected) in [
            (&[0, 2][..], "[2] aebf cgdh"),
            (&[2, 0], "[2] abef cdgh"),
            (&[-1, 1], "[2] abcd efgh"),
            (&[0, 1, 2], "[] aecgbfdh"),
            (&[], "[2,2,2] a b c d e f g h"),
        ] {
            let axes = Tensor::vector::<i32>(axes).unwrap();
            let joined = call("ReduceJoin").input(cube.clone()).input(axes).run();
            assert_eq!(shown(&joined.unwrap()), expected);
        }
        for (axes, code) in [(&[0, 0][..], "InvalidArgument"), (&[3], "OutOfRange")] {
            let axes = Tensor::vector::<i32>(axes).unwrap();
            let refused = call("ReduceJoin").input(cube.clone()).input(axes).run().unwrap_err();
            assert_eq!(format!("{:?}", refused.code()), code);
        }
        let axis = Tensor::scalar(0i32);
        let empty = call("ReduceJoin").input(strings(&[0, 2], "")).input(axis).run();
        assert_eq!(shown(&empty.unwrap()), "[2]  ");
    }

    #[test]
    fn joins_by_segment() {
        let run = |data: Tensor, ids: &[i32], n: i64| {
            let call = call("UnsortedSegmentJoin").input(data);
            call.input(Tensor::vector(ids).unwrap())
                .input(Tensor::scalar(n))
                .attr("separator", ",")
                .run()
        };
        let rows = strings(&[3, 2], "a b c d e f");
        assert_eq!(shown(&run(rows.clone(), &[0, 1, 0], 2).unwrap()), "[2,2] a,e b,f c d");
        assert_eq!(shown(&run(strings(&[0], ""), &[], 2).unwrap()), "[2]  ");
        let blanks = ["", "", "a", "", "b"].map(|s| Bytes::from_static(s.as_bytes()));
        let blanks = Tensor::from_strings(Shape::new(&[5]).unwrap(), blanks.to_vec()).unwrap();
        assert_eq!(shown(&run(blanks, &[0; 5], 1).unwrap()), "[1] a,,b");
        let cut = call("UnsortedSegmentJoin").input(strings(&[2], "a b"));
        let cut = cut.input(Tensor::vector(&[0, 0]).unwrap()).input(Tensor::scalar(1i32));
        assert_eq!(shown(&cut.attr("separator", "-\0+").run().unwrap()), "[1] a-b");
        for (ids, n) in [(&[0, 2, 0][..], 2), (&[0, -1, 0], 2), (&[0, 1], 2), (&[0, 1, 0], -1)] {
            assert_eq!(code(run(rows.clone(), ids, n)), Some(Code::InvalidArgument));
        }
        assert_eq!(code(run(rows, &[0, 1, 0], i64::MAX)), Some(Code::InvalidArgument));
    }

    #[test]
    fn shapes() {
        let infer = |axes: &[i32], shape: &str| {
            let axes = Tensor::vector(axes).unwrap();
            call("ReduceJoin").shape(DType::String, shape).constant(axes).infer()
        };
        assert_eq!(infer(&[1], "2,3,?"), "[2,?]");
        assert_eq!(infer(&[7], "2,3"), "<unknown>");
        let segments = call("UnsortedSegmentJoin")
            .shape(DType::String, "4,5,?")
            .shape(DType::Int32, "4")
            .constant(Tensor::scalar(7i32));
        assert_eq!(segments.infer(), "[7,5,?]");
        let join = call("StringJoin").shape(DType::String, "").shape(DType::String, "2,?");
        assert_eq!(join.attr("N", 2i64).infer(), "[2,?]");
    }
}
