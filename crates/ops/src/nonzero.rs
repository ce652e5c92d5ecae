//! `Where`: coordinates of nonzero elements.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{
    Complex32, Complex64, DType, Element, PartialShape, Result, Shape, bf16, ensure, f16,
};

use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("Where", where_shape).with_work(Work::per_input::<60>)],
    kernels: &[cpu_kernel!("Where", "T" in [
        bool, f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
    ] => find)],
};

fn where_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new([None, c.input(0).rank()]));
    Ok(())
}

/// Elements that are counted, and then located, per block; blocks do not depend on the values.
const BLOCK: usize = 1 << 16;

fn find<T: Element>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let input = ctx.input(0)?;
        let rank = input.rank();
        ensure!(rank > 0, InvalidArgument, "WhereOp : Unhandled input dimensions: {rank}");
        let elements = input.as_slice::<T>()?;
        let is_set = |x: &T| *x != T::default();
        let blocks = elements.len().div_ceil(BLOCK);
        let mut starts = ctx.zeros(DType::Int64, Shape::new(&[blocks])?)?;
        let starts = starts.as_mut_slice::<i64>()?;
        for_each_block(ctx, starts, |i, count| {
            let block = &elements[i * BLOCK..elements.len().min((i + 1) * BLOCK)];
            *count = block.iter().map(|x| i64::from(is_set(x))).sum();
        })?;
        let mut total = 0;
        for start in starts.iter_mut() {
            total += std::mem::replace(start, total);
        }
        let mut output = ctx.allocate_output(0, Shape::new(&[total as usize, rank])?)?;
        let target = Disjoint::new(output.as_mut_slice::<i64>()?);
        let shape = input.shape();
        let ends = [&starts[1.min(blocks)..], &[total]].concat();
        ctx.parallel_for(blocks, BLOCK as f64, |range| {
            for block in range {
                let rows = starts[block] as usize * rank..ends[block] as usize * rank;
                // SAFETY: the blocks' rows follow each other without overlap.
                let rows = unsafe { target.part(rows) };
                let last = elements.len().min((block + 1) * BLOCK);
                locate(&elements[block * BLOCK..last], block * BLOCK, shape, rows, is_set);
            }
        })?;
        ctx.set_output(0, output)
    })
}

fn for_each_block(
    ctx: &KernelContext<'_>,
    counts: &mut [i64],
    body: impl Fn(usize, &mut i64) + Sync,
) -> Result<()> {
    crate::split::for_each_rows(ctx, counts, 1, BLOCK as f64 * 0.3, |first, part| {
        for (i, count) in part.iter_mut().enumerate() {
            body(first + i, count);
        }
    })
}

/// Writes the coordinates of the nonzero elements of a block that begins at `first`.
fn locate<T>(
    block: &[T],
    first: usize,
    shape: &Shape,
    rows: &mut [i64],
    is_set: impl Fn(&T) -> bool,
) {
    let rank = shape.rank();
    let width = shape[rank - 1];
    let mut found = 0;
    let mut at = first;
    // One run of the innermost dimension at a time, along which the other coordinates are constant.
    while at < first + block.len() && found < rows.len() {
        let column = at % width;
        let len = (width - column).min(first + block.len() - at);
        let before = found;
        for (i, x) in block[at - first..][..len].iter().enumerate() {
            // Writes every coordinate and advances only for nonzero elements, which needs no
            // branch.
            if let Some(slot) = rows.get_mut(found + rank - 1) {
                *slot = (column + i) as i64;
            }
            found += if is_set(x) { rank } else { 0 };
        }
        if rank > 1 {
            for row in rows[before..found].chunks_exact_mut(rank) {
                let mut position = at / width;
                for (coordinate, &size) in row.iter_mut().zip(shape.iter()).rev().skip(1) {
                    *coordinate = (position % size) as i64;
                    position /= size;
                }
            }
        }
        at += len;
    }
}
