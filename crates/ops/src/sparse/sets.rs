//! Set ops along the last dimension of dense and sparse tensors: size, union, intersection,
//! difference.

use std::cmp::Ordering;
use std::ops::Range;

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use super::coo::{Coordinates, matrix, set_outputs, set_sparse_outputs, sparse_input_shapes};
use crate::cells::{Cell, blank};
use crate::indices::Indices;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SET_SIZE.without_gradient(),
        DENSE_TO_DENSE_SET_OPERATION.without_gradient(),
        DENSE_TO_SPARSE_SET_OPERATION.without_gradient(),
        SPARSE_TO_SPARSE_SET_OPERATION.without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "SetSize", create: size, ..KernelSpec::CPU },
        KernelSpec { op: "DenseToDenseSetOperation", create: dense_dense, ..KernelSpec::CPU },
        KernelSpec { op: "DenseToSparseSetOperation", create: dense_sparse, ..KernelSpec::CPU },
        KernelSpec { op: "SparseToSparseSetOperation", create: sparse_sparse, ..KernelSpec::CPU },
    ],
};

const SET_SIZE: OpDef = OpDef::new("SetSize", shape::unknown).with_work(Work::serial::<50>);

/// Set members of any dtype, which can be compared.
enum Members<'a> {
    Numbers(Indices<'a>),
    Strings(&'a [Bytes]),
}

impl<'a> Members<'a> {
    fn of(tensor: &'a Tensor) -> Result<Members<'a>> {
        Ok(match tensor.dtype() {
            DType::String => Members::Strings(tensor.strings()?),
            _ => Members::Numbers(Indices::of(tensor)?),
        })
    }
}

/// The values of two tensors, numbered consecutively.
struct Values<'a> {
    first: Members<'a>,
    second: Members<'a>,
    /// Number of values of the first tensor.
    boundary: usize,
}

impl<'a> Values<'a> {
    fn of(first: &'a Tensor, second: &'a Tensor) -> Result<Values<'a>> {
        let boundary = first.num_elements();
        Ok(Values { first: Members::of(first)?, second: Members::of(second)?, boundary })
    }

    fn number(&self, code: usize) -> i64 {
        let (side, i) = self.find(code);
        match side {
            Members::Numbers(numbers) => numbers.at(i),
            Members::Strings(_) => 0,
        }
    }

    fn text(&self, code: usize) -> &[u8] {
        let (side, i) = self.find(code);
        match side {
            Members::Strings(strings) => &strings[i],
            Members::Numbers(_) => &[],
        }
    }

    fn find(&self, code: usize) -> (&Members<'a>, usize) {
        match code.checked_sub(self.boundary) {
            None => (&self.first, code),
            Some(i) => (&self.second, i),
        }
    }

    fn compare(&self, a: i64, b: i64) -> Ordering {
        let (a, b) = (a as usize, b as usize);
        match self.first {
            Members::Numbers(_) => self.number(a).cmp(&self.number(b)),
            Members::Strings(_) => self.text(a).cmp(self.text(b)),
        }
    }
}

/// Runs of a sparse tensor's values with equal coordinates except the last.
fn runs<'a>(sparse: Coordinates<'a>) -> impl Iterator<Item = (&'a [i64], Range<usize>)> {
    let last = sparse.rank - 1;
    let prefix = move |i: usize| &sparse.row(i)[..last];
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= sparse.count {
            return None;
        }
        let group = prefix(start);
        let end = (start..sparse.count).find(|&i| prefix(i) != group).unwrap_or(sparse.count);
        let run = start..end;
        start = end;
        Some((group, run))
    })
}

/// A sparse tensor of sets, and the shape of its groups.
fn sparse_sets<'a>(
    ctx: &'a KernelContext<'_>,
    first: usize,
    validates: bool,
) -> Result<(Coordinates<'a>, Shape)> {
    let sparse = Coordinates::of_inputs(ctx, first)?;
    let shape = sparse.shape()?;
    if validates {
        sparse.check_sorted()?;
    }
    Ok((sparse, group_shape(&shape)?))
}

fn group_shape(shape: &Shape) -> Result<Shape> {
    ensure!(shape.rank() >= 2, InvalidArgument, "Shape {shape} has rank {} < 2", shape.rank());
    Shape::new(&shape[..shape.rank() - 1])
}

/// The index of a group in row-major order.
fn place(group: &[i64], shape: &Shape) -> Option<usize> {
    let mut place = 0;
    for (&x, &size) in group.iter().zip(shape.iter()) {
        let x = usize::try_from(x).ok().filter(|&x| x < size)?;
        place = place * size + x;
    }
    Some(place)
}

fn checked_place(group: &[i64], shape: &Shape) -> Result<usize> {
    match place(group, shape) {
        Some(place) => Ok(place),
        None => bail!(Internal, "group {group:?} lies outside the shape {shape}"),
    }
}

fn size(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let validates = init.attrs().bool("validate_indices")?;
    AnyKernel::new(move |ctx| {
        let (sparse, shape) = sparse_sets(ctx, 0, validates)?;
        let values = Values::of(ctx.input(1)?, ctx.input(1)?)?;
        let mut sorted = ctx.allocate(DType::Int64, Shape::new(&[sparse.count])?)?;
        let codes = sorted.as_mut_slice::<i64>()?;
        codes.iter_mut().enumerate().for_each(|(i, c)| *c = i as i64);
        let mut output = ctx.zeros(DType::Int32, shape.clone())?;
        let sizes = output.as_mut_slice::<i32>()?;
        for (group, run) in runs(sparse) {
            let set = &mut codes[run];
            set.sort_unstable_by(|&a, &b| values.compare(a, b));
            let distinct = set.chunk_by(|&a, &b| values.compare(a, b).is_eq()).count();
            sizes[checked_place(group, &shape)?] = distinct as i32;
        }
        ctx.set_output(0, output)
    })
}

/// The set operation.
#[derive(Clone, Copy)]
enum Operation {
    FirstOnly,
    SecondOnly,
    Intersection,
    Union,
}

impl Operation {
    fn of(init: &KernelInit<'_>) -> Result<Operation> {
        let name = init.attrs().string("set_operation")?;
        Ok(match name.to_ascii_lowercase().as_str() {
            "a-b" => Operation::FirstOnly,
            "b-a" => Operation::SecondOnly,
            "intersection" => Operation::Intersection,
            "union" => Operation::Union,
            _ => bail!(InvalidArgument, "Invalid set_operation {name}"),
        })
    }

    fn keeps(self, in_first: bool, in_second: bool) -> bool {
        match self {
            Operation::FirstOnly => in_first && !in_second,
            Operation::SecondOnly => in_second && !in_first,
            Operation::Intersection => in_first && in_second,
            Operation::Union => true,
        }
    }
}

/// Collects the results group by group.
struct Collector<'a> {
    values: Values<'a>,
    operation: Operation,
    /// Codes of the results, followed by scratch for the members of a group.
    codes: Tensor,
    /// The group of each result.
    groups: Tensor,
    count: usize,
    largest: usize,
}

impl<'a> Collector<'a> {
    fn new(
        ctx: &KernelContext<'_>,
        first: &'a Tensor,
        second: &'a Tensor,
        operation: Operation,
    ) -> Result<Collector<'a>> {
        let shape = Shape::new(&[first.num_elements() + second.num_elements()])?;
        Ok(Collector {
            values: Values::of(first, second)?,
            operation,
            codes: ctx.allocate(DType::Int64, shape.clone())?,
            groups: ctx.allocate(DType::Int64, shape)?,
            count: 0,
            largest: 0,
        })
    }

    /// Combines the sets of the values `first` and `second`. Over all calls, each value occurs at
    /// most once.
    fn add(&mut self, group: usize, first: Range<usize>, second: Range<usize>) -> Result<()> {
        let boundary = self.values.boundary;
        let members = first.chain(second.start + boundary..second.end + boundary);
        let (codes, groups) = (self.codes.as_mut_slice::<i64>()?, self.groups.as_mut_slice()?);
        let mut len = 0;
        for (slot, code) in codes[self.count..].iter_mut().zip(members) {
            *slot = code as i64;
            len += 1;
        }
        let values = &self.values;
        codes[self.count..][..len].sort_unstable_by(|&a, &b| values.compare(a, b));
        let (start, end, mut next) = (self.count, self.count + len, self.count);
        while next < end {
            let code = codes[next];
            let (mut in_first, mut in_second) = (false, false);
            while next < end && values.compare(codes[next], code).is_eq() {
                let is_second = codes[next] as usize >= boundary;
                in_first |= !is_second;
                in_second |= is_second;
                next += 1;
            }
            if self.operation.keeps(in_first, in_second) {
                codes[self.count] = code;
                groups[self.count] = group as i64;
                self.count += 1;
            }
        }
        self.largest = self.largest.max(self.count - start);
        Ok(())
    }

    fn finish(
        self,
        ctx: &KernelContext<'_>,
        first: &Tensor,
        second: &Tensor,
        shape: &Shape,
    ) -> Result<[Tensor; 3]> {
        let (count, rank) = (self.count, shape.rank() + 1);
        let mut indices = matrix(ctx, count, rank)?;
        let groups = &self.groups.as_slice::<i64>()?[..count];
        let mut ordinal = 0;
        for (i, row) in indices.as_mut_slice::<i64>()?.chunks_exact_mut(rank).enumerate() {
            // A group that occurs again after another one starts anew.
            ordinal = if i > 0 && groups[i - 1] == groups[i] { ordinal + 1 } else { 0 };
            row[rank - 1] = ordinal;
            let mut place = groups[i] as usize;
            for (x, &size) in row[..rank - 1].iter_mut().zip(shape.iter()).rev() {
                *x = (place % size) as i64;
                place /= size;
            }
        }
        let mut values = blank(ctx, first.dtype(), Shape::new(&[count])?)?;
        let codes = &self.codes.as_slice::<i64>()?[..count];
        let boundary = self.values.boundary;
        with_cell!(first.dtype(), C => {
            let (first, second) = (C::view(first)?, C::view(second)?);
            for (slot, &code) in C::view_mut(&mut values)?.iter_mut().zip(codes) {
                let code = code as usize;
                slot.clone_from(match code.checked_sub(boundary) {
                    None => &first[code],
                    Some(i) => &second[i],
                });
            }
        });
        let mut sizes: SmallVec<[i64; 6]> = shape.to_i64().into_iter().collect();
        sizes.push(self.largest as i64);
        Ok([indices, values, Tensor::vector(&sizes)?])
    }
}

fn check_groups(first: &Shape, second: &Shape) -> Result<()> {
    ensure!(
        first == second,
        InvalidArgument,
        "The sets' shapes must match in all but the last dimension: {first} and {second}"
    );
    Ok(())
}

const DENSE_TO_DENSE_SET_OPERATION: OpDef =
    OpDef::new("DenseToDenseSetOperation", dense_dense_shape).with_work(Work::serial::<50>);

fn dense_dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (first, second) =
        (c.with_rank_at_least(0, "set1", 2)?, c.with_rank_at_least(1, "set2", 2)?);
    let groups = |shape: &PartialShape| match shape.dims() {
        Some(dims) => PartialShape::new(dims[..dims.len() - 1].iter().copied()),
        None => PartialShape::unknown(),
    };
    let rank = groups(first).merge(&groups(second))?.rank().map(|r| r + 1);
    set_sparse_outputs(c, 0, None, rank);
    Ok(())
}

fn dense_dense(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let operation = Operation::of(init)?;
    AnyKernel::new(move |ctx| {
        let (first, second) = (ctx.input(0)?, ctx.input(1)?);
        let shape = group_shape(first.shape())?;
        check_groups(&shape, &group_shape(second.shape())?)?;
        let (a, b) = (first.shape()[shape.rank()], second.shape()[shape.rank()]);
        let mut collector = Collector::new(ctx, first, second, operation)?;
        // Without members, the number of sets is unlimited.
        let groups = if a + b == 0 { 0 } else { shape.num_elements() };
        for group in 0..groups {
            collector.add(group, group * a..(group + 1) * a, group * b..(group + 1) * b)?;
        }
        let outputs = collector.finish(ctx, first, second, &shape)?;
        set_outputs(ctx, outputs)
    })
}

const DENSE_TO_SPARSE_SET_OPERATION: OpDef =
    OpDef::new("DenseToSparseSetOperation", dense_sparse_shape).with_work(Work::serial::<50>);

fn dense_sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let first = c.with_rank_at_least(0, "set1", 2)?;
    let (_, rank) = sparse_input_shapes(c, 1)?;
    set_sparse_outputs(c, 0, None, first.rank().or(rank));
    Ok(())
}

fn dense_sparse(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let operation = Operation::of(init)?;
    let validates = init.attrs().bool("validate_indices")?;
    AnyKernel::new(move |ctx| {
        let outputs = dense_sparse_sets(ctx, operation, validates)?;
        set_outputs(ctx, outputs)
    })
}

fn dense_sparse_sets(
    ctx: &KernelContext<'_>,
    operation: Operation,
    validates: bool,
) -> Result<[Tensor; 3]> {
    let (first, second) = (ctx.input(0)?, ctx.input(2)?);
    let shape = group_shape(first.shape())?;
    let (sparse, sparse_shape) = sparse_sets(ctx, 1, validates)?;
    check_groups(&shape, &sparse_shape)?;
    let len = first.shape()[shape.rank()];
    let mut collector = Collector::new(ctx, first, second, operation)?;
    let mut others = runs(sparse);
    let mut next = others.next();
    let mut group = 0;
    while group < shape.num_elements() {
        let run = next.as_ref().map(|(g, run)| (place(g, &shape), run.clone()));
        let mut own = 0..0;
        match run {
            Some((Some(at), run)) if at >= group && (len == 0 || at == group) => {
                // A group that is only in the sparse tensor.
                (group, own) = (at, run);
                next = others.next();
            }
            _ if len == 0 => break,
            _ => {}
        }
        collector.add(group, group * len..(group + 1) * len, own)?;
        group += 1;
    }
    collector.finish(ctx, first, second, &shape)
}

const SPARSE_TO_SPARSE_SET_OPERATION: OpDef =
    OpDef::new("SparseToSparseSetOperation", sparse_sparse_shape).with_work(Work::serial::<50>);

fn sparse_sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (_, first) = sparse_input_shapes(c, 0)?;
    let (_, second) = sparse_input_shapes(c, 3)?;
    let rank = PartialShape::new([first]).merge(&PartialShape::new([second]))?.dim(0);
    set_sparse_outputs(c, 0, None, rank);
    Ok(())
}

fn sparse_sparse(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let operation = Operation::of(init)?;
    let validates = init.attrs().bool("validate_indices")?;
    AnyKernel::new(move |ctx| {
        let outputs = sparse_sparse_sets(ctx, operation, validates)?;
        set_outputs(ctx, outputs)
    })
}

fn sparse_sparse_sets(
    ctx: &KernelContext<'_>,
    operation: Operation,
    validates: bool,
) -> Result<[Tensor; 3]> {
    let (first, second) = (ctx.input(1)?, ctx.input(4)?);
    let (a, shape) = sparse_sets(ctx, 0, validates)?;
    let (b, other_shape) = sparse_sets(ctx, 3, validates)?;
    check_groups(&shape, &other_shape)?;
    let mut collector = Collector::new(ctx, first, second, operation)?;
    let (mut a, mut b) = (runs(a).peekable(), runs(b).peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) => x.cmp(y),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        let one = if order.is_le() { a.next() } else { None };
        let other = if order.is_ge() { b.next() } else { None };
        let group = one.as_ref().or(other.as_ref()).map_or(&[][..], |(group, _)| group);
        let at = checked_place(group, &shape)?;
        let run = |set: Option<(&[i64], Range<usize>)>| set.map_or(0..0, |(_, run)| run);
        collector.add(at, run(one), run(other))?;
    }
    collector.finish(ctx, first, second, &shape)
}
