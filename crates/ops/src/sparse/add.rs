//! Elementwise merges of two sparse tensors: `SparseAdd`, `SparseSparseMaximum`,
//! `SparseSparseMinimum`.

use std::cmp::Ordering;

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{
    Complex32, Complex64, Element, PartialShape, Result, Shape, Tensor, bf16, ensure, f16,
};

use super::coo::{Coordinates, matrix, set_sparse_outputs, sparse_input_shapes};
use super::gradients;
use crate::number::{Number, Ordered};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        SPARSE_ADD.with_gradient(gradients::add),
        SPARSE_ADD_GRAD.with_gradient(gradients::add_grad),
        OpDef::new("SparseSparseMaximum", extreme_shape).with_work(Work::serial::<20>),
        OpDef::new("SparseSparseMinimum", extreme_shape).with_work(Work::serial::<20>),
    ],
    kernels: &[
        cpu_kernel!("SparseAdd", "T" in [f32, f64, i8, i16, i32, i64, Complex32, Complex64] => add),
        cpu_kernel!("SparseAddGrad", "T" in [
            f32, f64, i8, i16, i32, i64, Complex32, Complex64
        ] => add_grad),
        cpu_kernel!("SparseSparseMaximum", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => maximum),
        cpu_kernel!("SparseSparseMinimum", "T" in [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
        ] => minimum),
    ],
};

const SPARSE_ADD: OpDef = OpDef::new("SparseAdd", add_shape).with_work(Work::serial::<20>);

fn add_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rank = c.with_rank(2, "a_shape", 1)?.dim(0);
    set_sparse_outputs(c, 0, None, rank);
    Ok(())
}

/// Numbers whose absolute value is compared with a threshold of a real type.
trait Thresholded: Number {
    type Threshold: Element;
    /// Whether the absolute value is at least `threshold`.
    fn reaches(self, threshold: Self::Threshold) -> bool;
}

macro_rules! thresholded {
    ($($t:ty, $threshold:ty: $reaches:expr;)+) => { $(
        impl Thresholded for $t {
            type Threshold = $threshold;
            #[inline(always)]
            fn reaches(self, threshold: $threshold) -> bool {
                let reaches: fn($t, $threshold) -> bool = $reaches;
                reaches(self, threshold)
            }
        }
    )+ };
}

thresholded! {
    f32, f32: |x, t| t <= x.abs();
    f64, f64: |x, t| t <= x.abs();
    // Narrow types are compared as wider numbers, which cannot overflow.
    i8, i8: |x, t| i32::from(t) <= i32::from(x).abs();
    i16, i16: |x, t| i32::from(t) <= i32::from(x).abs();
    i32, i32: |x, t| t <= x.wrapping_abs();
    i64, i64: |x, t| t <= x.wrapping_abs();
    Complex32, f32: |x, t| t <= x.norm();
    Complex64, f64: |x, t| t <= x.norm();
}

/// Two sparse tensors whose coordinates are merged.
struct Pair<'a> {
    a: Coordinates<'a>,
    b: Coordinates<'a>,
}

/// Which of the tensors have a value at a coordinate, with its index.
enum Occurrence {
    First(usize),
    Second(usize),
    Both(usize, usize),
}

impl<'a> Pair<'a> {
    fn of_inputs(ctx: &'a KernelContext<'_>) -> Result<Pair<'a>> {
        let (a, b) = (Coordinates::of_inputs(ctx, 0)?, Coordinates::of_inputs(ctx, 3)?);
        ensure!(
            a.rank == b.rank,
            InvalidArgument,
            "Ranks of input tensors must match, but saw ranks: {} and {}",
            a.rank,
            b.rank
        );
        ensure!(a.rank > 0, InvalidArgument, "sparse tensors of rank 0 cannot be combined");
        ensure!(
            a.sizes == b.sizes,
            InvalidArgument,
            "Operands' shapes do not match: got {:?} and {:?}",
            a.sizes,
            b.sizes
        );
        Ok(Pair { a, b })
    }

    /// Calls `visit` for every coordinate of either tensor, in order if both are sorted.
    fn walk(&self, mut visit: impl FnMut(Occurrence)) {
        let (mut i, mut j) = (0, 0);
        while i < self.a.count && j < self.b.count {
            match self.a.row(i).cmp(self.b.row(j)) {
                Ordering::Less => {
                    visit(Occurrence::First(i));
                    i += 1;
                }
                Ordering::Equal => {
                    visit(Occurrence::Both(i, j));
                    i += 1;
                    j += 1;
                }
                Ordering::Greater => {
                    visit(Occurrence::Second(j));
                    j += 1;
                }
            }
        }
        (i..self.a.count).for_each(|i| visit(Occurrence::First(i)));
        (j..self.b.count).for_each(|j| visit(Occurrence::Second(j)));
    }

    /// The coordinates and values of the result: `keep` returns the value at a coordinate, or
    /// `None` to drop it.
    fn merge<T: Element>(
        &self,
        ctx: &KernelContext<'_>,
        keep: impl Fn(&Occurrence) -> Option<T>,
    ) -> Result<(Tensor, Tensor)> {
        let mut count = 0;
        self.walk(|place| count += usize::from(keep(&place).is_some()));
        let mut indices = matrix(ctx, count, self.a.rank)?;
        let mut values = ctx.allocate(T::DTYPE, Shape::new(&[count])?)?;
        let (rows, out) = (indices.as_mut_slice::<i64>()?, values.as_mut_slice::<T>()?);
        let (rank, mut n) = (self.a.rank, 0);
        self.walk(|place| {
            let Some(value) = keep(&place) else { return };
            let row = match place {
                Occurrence::First(i) | Occurrence::Both(i, _) => self.a.row(i),
                Occurrence::Second(j) => self.b.row(j),
            };
            rows[n * rank..(n + 1) * rank].copy_from_slice(row);
            out[n] = value;
            n += 1;
        });
        Ok((indices, values))
    }
}

fn add<T: Thresholded>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let threshold_dtype = init.attrs().dtype("Treal")?;
    ensure!(
        threshold_dtype == T::Threshold::DTYPE,
        InvalidArgument,
        "thresh must be {} for values of {}, is {threshold_dtype}",
        T::Threshold::DTYPE,
        T::DTYPE
    );
    AnyKernel::new(|ctx| {
        let pair = Pair::of_inputs(ctx)?;
        ensure!(
            ctx.input(6)?.rank() == 0,
            InvalidArgument,
            "The magnitude threshold must be a scalar: got shape {}",
            ctx.input(6)?.shape()
        );
        let threshold = ctx.slice::<T::Threshold>(6)?[0];
        let (a, b) = (ctx.slice::<T>(1)?, ctx.slice::<T>(4)?);
        let (indices, values) = pair.merge(ctx, |place| {
            // The threshold applies to sums only: values of one tensor alone are kept.
            match *place {
                Occurrence::First(i) => Some(a[i]),
                Occurrence::Second(j) => Some(b[j]),
                Occurrence::Both(i, j) => Some(a[i].plus(b[j])).filter(|s| s.reaches(threshold)),
            }
        })?;
        let shape = ctx.input(2)?.clone();
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, shape)
    })
}

const SPARSE_ADD_GRAD: OpDef =
    OpDef::new("SparseAddGrad", add_grad_shape).with_work(Work::serial::<20>);

fn add_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (output, name) in [(0, "a_indices"), (1, "b_indices")] {
        let indices = c.with_rank(output + 1, name, 2)?;
        c.set_output(output, PartialShape::new([indices.dim(0)]));
    }
    Ok(())
}

fn add_grad<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let grad = ctx.input(0)?;
        let a = Coordinates::of_matrix(ctx.input(1)?, "a_indices")?;
        let b = Coordinates::of_matrix(ctx.input(2)?, "b_indices")?;
        let sum = Coordinates::of_matrix(ctx.input(3)?, "sum_indices")?;
        ensure!(
            grad.rank() == 1 && grad.num_elements() == sum.count,
            InvalidArgument,
            "backprop_val_grad must be a vector of {} values, got shape {}",
            sum.count,
            grad.shape()
        );
        ensure!(
            a.rank == b.rank && b.rank == sum.rank,
            InvalidArgument,
            "The densified operands should have the same ndims; for A, B, Sum got: {}, {}, {}",
            a.rank,
            b.rank,
            sum.rank
        );
        let grad = grad.as_slice::<T>()?;
        let mut outputs = Vec::with_capacity(2);
        for part in [a, b] {
            let mut output = ctx.zeros(T::DTYPE, Shape::new(&[part.count])?)?;
            let slots = output.as_mut_slice::<T>()?;
            pick(part, sum, |i, k| slots[i] = grad[k]);
            outputs.push(output);
        }
        for (i, output) in outputs.into_iter().enumerate() {
            ctx.set_output(i, output)?;
        }
        Ok(())
    })
}

/// Calls `found(i, k)` for each row `i` of `part` that equals row `k` of `all`; both are sorted.
fn pick(part: Coordinates<'_>, all: Coordinates<'_>, mut found: impl FnMut(usize, usize)) {
    let (mut i, mut k) = (0, 0);
    while i < part.count && k < all.count {
        match part.row(i).cmp(all.row(k)) {
            Ordering::Less => i += 1,
            Ordering::Equal => {
                found(i, k);
                i += 1;
            }
            Ordering::Greater => k += 1,
        }
    }
}

fn extreme_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    sparse_input_shapes(c, 0)?;
    sparse_input_shapes(c, 3)?;
    c.set_output(0, PartialShape::of_rank(2));
    c.set_output(1, PartialShape::of_rank(1));
    Ok(())
}

/// A kernel for the minimum or maximum of two values; missing values are zero.
fn extreme<T: Ordered>(
    choose: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let pair = Pair::of_inputs(ctx)?;
        pair.a.check_bounds()?;
        pair.b.check_bounds()?;
        let (a, b) = (ctx.slice::<T>(1)?, ctx.slice::<T>(4)?);
        // NaN on either side gives NaN.
        let choose = |x: T, y: T| if is_nan(&y) { y } else { choose(x, y) };
        let (indices, values) = pair.merge(ctx, |place| {
            Some(match *place {
                Occurrence::First(i) => choose(a[i], T::default()),
                Occurrence::Second(j) => choose(T::default(), b[j]),
                Occurrence::Both(i, j) => choose(a[i], b[j]),
            })
        })?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)
    })
}

#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn is_nan<T: PartialEq>(x: &T) -> bool {
    x != x
}

fn maximum<T: Ordered>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    extreme::<T>(T::greater)
}

fn minimum<T: Ordered>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    extreme::<T>(T::lesser)
}
