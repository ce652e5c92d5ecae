//! Elementwise kernels: dispatch, broadcasting, threading and buffer forwarding.
//!
//! An op is a type that implements [`Unary`] or [`Binary`] for its compute types. Only loops over
//! raw memory are compiled for each op and type; shapes, broadcasting, threads and buffer
//! forwarding are handled once for all. Half-precision operands are widened to single precision in
//! small blocks, passed to the `f32` loop and rounded back.

use std::ops::Range;

use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Element, Result, Shape, Tensor, ensure};

use crate::broadcast::{Plan, broadcast_shape};
use crate::math::simd::{Baseline, Level, Loop};
pub(crate) use crate::operand::{Binary, Operand, Unary};
use crate::operand::{BinaryLoop, start};
use crate::stage::{Form, Memory, STAGE_BYTES, Stage, empty_stage, fill_stage, stage_len};

/// A kernel that applies `Op` to every element of its input.
pub(crate) fn unary<Op, T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Op: Unary<T::Compute>,
    T: Operand,
{
    let kernel = UnaryKernel {
        run: unary_loop::<Op, T::Compute>,
        form: T::FORM,
        from: T::DTYPE,
        to: output_dtype::<T, Op::Out>(init)?,
        nanoseconds: Op::NANOSECONDS,
    };
    kernel.into_any()
}

/// A kernel that applies `Op` to the elements of two inputs, broadcast against each other.
pub(crate) fn binary<Op, T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Op: Binary<T::Compute>,
    T: Operand,
{
    BinaryKernel::new::<Op, T>(init)?.into_any()
}

/// As [`binary`], for two inputs with equal numbers of elements; the output has the first one's
/// shape.
pub(crate) fn binary_same_size<Op, T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    Op: Binary<T::Compute>,
    T: Operand,
{
    let kernel = BinaryKernel::new::<Op, T>(init)?;
    AnyKernel::new(move |ctx| {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            x.num_elements() == y.num_elements(),
            InvalidArgument,
            "both inputs must have as many elements, got shapes {} and {}",
            x.shape(),
            y.shape()
        );
        kernel.check_inputs(x, y)?;
        kernel.compute_aligned(ctx)
    })
}

/// The output's dtype, which must be the one that loops with operands `T` and result `Out` write.
fn output_dtype<T: Operand, Out: Element>(init: &KernelInit<'_>) -> Result<DType> {
    let dtype = init.output_dtype(0);
    let is_rounded = T::FORM != Form::Plain && Out::DTYPE == DType::Float;
    let written = if is_rounded { T::DTYPE } else { Out::DTYPE };
    ensure!(dtype == written, InvalidArgument, "the output must be {written}, not {dtype}");
    Ok(dtype)
}

/// Reads and writes `n` elements; the memory must not overlap.
pub(crate) type UnaryLoop = unsafe fn(*const u8, *mut u8, usize);

/// # Safety
///
/// `x` is valid for `n` elements of `X` and `out` for `n` of `Op::Out`, with exclusive access to
/// `out`.
pub(crate) unsafe fn unary_loop<Op: Unary<X>, X: Element>(x: *const u8, out: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    let (x, out) = unsafe {
        (std::slice::from_raw_parts(x.cast(), n), std::slice::from_raw_parts_mut(out.cast(), n))
    };
    Op::run(x, out);
}

/// Which operands advance along a row; the other is a scalar.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Side {
    Both,
    Left,
    Right,
}

struct Zip<'a, Op, X, Out>(&'a [X], &'a [X], &'a mut [Out], std::marker::PhantomData<Op>);

impl<Op: Binary<X>, X: Element> Loop for Zip<'_, Op, X, Op::Out> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        for ((out, &x), &y) in self.2.iter_mut().zip(self.0).zip(self.1) {
            *out = Op::apply::<L>(x, y);
        }
    }
}

struct ZipLeft<'a, Op, X, Out>(&'a [X], X, &'a mut [Out], std::marker::PhantomData<Op>);

impl<Op: Binary<X>, X: Element> Loop for ZipLeft<'_, Op, X, Op::Out> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        for (out, &x) in self.2.iter_mut().zip(self.0) {
            *out = Op::apply::<L>(x, self.1);
        }
    }
}

struct ZipRight<'a, Op, X, Out>(X, &'a [X], &'a mut [Out], std::marker::PhantomData<Op>);

impl<Op: Binary<X>, X: Element> Loop for ZipRight<'_, Op, X, Op::Out> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        for (out, &y) in self.2.iter_mut().zip(self.1) {
            *out = Op::apply::<L>(self.0, y);
        }
    }
}

/// # Safety
///
/// `x` and `y` are valid for `n` elements of `X` each, or for one as `SIDE` says, and `out` for `n`
/// of `Op::Out`, with exclusive access to `out`.
unsafe fn binary_loop<Op: Binary<X>, X: Element, const SIDE: u8>(
    x: *const u8,
    y: *const u8,
    out: *mut u8,
    n: usize,
) {
    let op = std::marker::PhantomData::<Op>;
    let (x, y) = (x.cast::<X>(), y.cast::<X>());
    // SAFETY: as the caller promises.
    unsafe {
        let out = std::slice::from_raw_parts_mut(out.cast::<Op::Out>(), n);
        let slice = |start: *const X| std::slice::from_raw_parts(start, n);
        match SIDE {
            BOTH => start(Zip(slice(x), slice(y), out, op), Op::IS_SIMD),
            LEFT => start(ZipLeft(slice(x), *y, out, op), Op::IS_SIMD),
            _ => start(ZipRight(*x, slice(y), out, op), Op::IS_SIMD),
        }
    }
}

/// For a few elements; either operand may be the output.
///
/// # Safety
///
/// All three are valid for `n` elements, with exclusive access to `out`.
unsafe fn few_loop<Op: Binary<X>, X: Element>(x: *const u8, y: *const u8, out: *mut u8, n: usize) {
    let (x, y, out) = (x.cast::<X>(), y.cast::<X>(), out.cast::<Op::Out>());
    for i in 0..n {
        // SAFETY: as the caller promises; no reference to the memory is made.
        unsafe { out.add(i).write(Op::apply::<Baseline>(x.add(i).read(), y.add(i).read())) };
    }
}

/// Up to this many elements, dispatch to a SIMD level costs more than it gains.
const FEW: usize = 16;

const BOTH: u8 = 0;
const LEFT: u8 = 1;
const RIGHT: u8 = 2;

struct UnaryKernel {
    run: UnaryLoop,
    form: Form,
    from: DType,
    to: DType,
    nanoseconds: f64,
}

impl UnaryKernel {
    /// Not generic, so that all ops share one compiled kernel.
    fn into_any(self) -> Result<AnyKernel> {
        AnyKernel::new(move |ctx| self.compute(ctx))
    }

    fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let x = ctx.input(0)?;
        ensure!(x.dtype() == self.from, Internal, "expected {}, got {}", self.from, x.dtype());
        let n = x.num_elements();
        let (mut out, x) = if self.from == self.to && x.is_unique() {
            (ctx.take_input(0)?, None)
        } else {
            (ctx.allocate(self.to, x.shape().clone())?, Some(ctx.input(0)?.as_bytes()?.as_ptr()))
        };
        // SAFETY: a loop for bool writes `bool`s.
        let start = unsafe { out.bytes_mut()? }.as_mut_ptr();
        let x = x.unwrap_or(start);
        let memory = Memory { x, y: x, out: start };
        let (from_size, to_size) = (self.from.size(), self.to.size());
        ctx.parallel_for(n, self.nanoseconds, |range| {
            let part = memory.at(range.start * from_size, 0, range.start * to_size);
            // SAFETY: the dtypes are those that the loop was made for, the ranges lie within the
            // tensors, are disjoint, and the tensors are held by `ctx` and `out`.
            unsafe { self.run(part, range.len()) };
        })?;
        ctx.set_output(0, out)
    }

    /// # Safety
    ///
    /// As for the loop; here `x` and `out` may be equal.
    unsafe fn run(&self, memory: Memory, n: usize) {
        if self.form == Form::Plain && memory.x != memory.out {
            // SAFETY: as the caller promises.
            return unsafe { (self.run)(memory.x, memory.out, n) };
        }
        let (from_size, to_size) = (self.from.size(), self.to.size());
        let is_rounded = self.form != Form::Plain && self.from == self.to;
        let len = stage_len(self.form, from_size);
        let (mut x, mut result) = (Stage::new(), Stage::new());
        if is_rounded {
            result.clear(len.min(n) * size_of::<f32>());
        }
        for start in (0..n).step_by(len) {
            let part = memory.at(start * from_size, 0, start * to_size);
            let n = len.min(n - start);
            // SAFETY: the part lies within what the caller promises; stages hold `len` elements,
            // and the loop does not see the memory that its operand was copied from.
            unsafe {
                fill_stage(self.form, from_size, part.x, x.start(), n);
                if is_rounded {
                    (self.run)(x.start(), result.start(), n);
                    empty_stage(self.form, result.start(), part.out, n);
                } else {
                    (self.run)(x.start(), part.out, n);
                }
            }
        }
    }
}

/// Rows shorter than this are first gathered into a buffer: a call per row would cost more.
const SHORT_ROW: usize = 16;

pub(crate) struct BinaryKernel {
    both: BinaryLoop,
    left: BinaryLoop,
    right: BinaryLoop,
    /// For operands in their compute type, where the SIMD level does not matter.
    few: Option<BinaryLoop>,
    /// For contiguous operands that are widened.
    fused: Option<BinaryLoop>,
    form: Form,
    from: DType,
    to: DType,
    nanoseconds: f64,
    check: fn(&Tensor) -> Result<()>,
}

impl BinaryKernel {
    pub(crate) fn new<Op, T>(init: &KernelInit<'_>) -> Result<Self>
    where
        Op: Binary<T::Compute>,
        T: Operand,
    {
        Ok(BinaryKernel {
            both: binary_loop::<Op, T::Compute, BOTH>,
            left: binary_loop::<Op, T::Compute, LEFT>,
            right: binary_loop::<Op, T::Compute, RIGHT>,
            few: (Op::IS_EXACT && T::FORM == Form::Plain).then_some(few_loop::<Op, T::Compute>),
            fused: T::fused::<Op>(),
            form: T::FORM,
            from: T::DTYPE,
            to: output_dtype::<T, Op::Out>(init)?,
            nanoseconds: Op::NANOSECONDS,
            check: Op::check,
        })
    }

    /// Not generic, so that all ops share one compiled kernel.
    fn into_any(self) -> Result<AnyKernel> {
        AnyKernel::new(move |ctx| self.compute(ctx))
    }

    pub(crate) fn compute(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        self.check_inputs(x, y)?;
        if x.shape() == y.shape() {
            return self.compute_aligned(ctx);
        }
        self.compute_broadcast(ctx)
    }

    fn check_inputs(&self, x: &Tensor, y: &Tensor) -> Result<()> {
        ensure!(
            x.dtype() == self.from && y.dtype() == self.from,
            Internal,
            "expected two {} tensors, got {} and {}",
            self.from,
            x.dtype(),
            y.dtype()
        );
        if x.num_elements() == 0 { Ok(()) } else { (self.check)(y) }
    }

    /// The fast path: operands of equal shape.
    fn compute_aligned(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0)?, ctx.input(1)?);
        let (n, is_kept) = (x.num_elements(), self.from == self.to);
        let reused = if is_kept && x.is_unique() {
            Some(0)
        } else if is_kept && y.is_unique() && x.shape() == y.shape() {
            Some(1)
        } else {
            None
        };
        let mut out = match reused {
            Some(i) => ctx.take_input(i)?,
            None => ctx.allocate(self.to, x.shape().clone())?,
        };
        let memory = self.memory(ctx, &mut out, reused)?;
        if let (Some(few), true) = (self.few, n <= FEW) {
            // SAFETY: the dtypes are those that the loop was made for, all three tensors have `n`
            // elements, and they are held by `ctx` and `out`.
            unsafe { few(memory.x, memory.y, memory.out, n) };
            return ctx.set_output(0, out);
        }
        let (from_size, to_size) = (self.from.size(), self.to.size());
        ctx.parallel_for(n, self.nanoseconds, |range| {
            let at = range.start * from_size;
            // SAFETY: the dtypes are those that the loops were made for, the ranges lie within the
            // tensors, are disjoint, and the tensors are held by `ctx` and `out`.
            unsafe { self.run(Side::Both, memory.at(at, at, range.start * to_size), range.len()) };
        })?;
        ctx.set_output(0, out)
    }

    fn compute_broadcast(&self, ctx: &mut KernelContext<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0)?.shape().clone(), ctx.input(1)?.shape().clone());
        let shape = broadcast_shape(&[&x, &y])?;
        let plan = Plan::new(&shape, [&x, &y]);
        let (mut out, reused) = self.output(ctx, &shape)?;
        let memory = self.memory(ctx, &mut out, reused)?;
        // A block boundary inside a row only costs an additional call.
        ctx.parallel_for(shape.num_elements(), self.nanoseconds, |range| {
            // SAFETY: the plan walks the tensors' shapes; as above for the rest.
            unsafe { self.run_plan(&plan, memory, range) };
        })?;
        ctx.set_output(0, out)
    }

    fn output(
        &self,
        ctx: &mut KernelContext<'_>,
        shape: &Shape,
    ) -> Result<(Tensor, Option<usize>)> {
        if self.from == self.to {
            return ctx.forward_input_or_allocate(&[0, 1], self.to, shape);
        }
        Ok((ctx.allocate(self.to, shape.clone())?, None))
    }

    /// Addresses of the operands and the output; one operand may be the output.
    fn memory(
        &self,
        ctx: &KernelContext<'_>,
        out: &mut Tensor,
        reused: Option<usize>,
    ) -> Result<Memory> {
        // SAFETY: a loop that gives bool writes `bool`s.
        let start = unsafe { out.bytes_mut()? }.as_mut_ptr();
        let operand = |i| -> Result<*const u8> {
            if reused == Some(i) { Ok(start) } else { Ok(ctx.input(i)?.as_bytes()?.as_ptr()) }
        };
        Ok(Memory { x: operand(0)?, y: operand(1)?, out: start })
    }

    fn side(&self, side: Side) -> BinaryLoop {
        match side {
            Side::Both => self.both,
            Side::Left => self.left,
            Side::Right => self.right,
        }
    }

    /// # Safety
    ///
    /// As for the loops; here an operand that advances and `out` may be equal.
    unsafe fn run(&self, side: Side, memory: Memory, n: usize) {
        if self.form == Form::Plain && memory.x != memory.out && memory.y != memory.out {
            // SAFETY: as the caller promises.
            return unsafe { (self.side(side))(memory.x, memory.y, memory.out, n) };
        }
        // SAFETY: as the caller promises.
        unsafe { self.run_staged(side, memory, n) };
    }

    /// # Safety
    /// As for [`Self::run`].
    unsafe fn run_staged(&self, side: Side, memory: Memory, n: usize) {
        if let (Some(fused), Side::Both) = (self.fused, side) {
            // SAFETY: as the caller promises.
            return unsafe { fused(memory.x, memory.y, memory.out, n) };
        }
        let (from_size, to_size) = (self.from.size(), self.to.size());
        let is_rounded = self.form != Form::Plain && self.from == self.to;
        let len = stage_len(self.form, from_size);
        let (mut x, mut y, mut result) = (Stage::new(), Stage::new(), Stage::new());
        if is_rounded {
            result.clear(len.min(n) * size_of::<f32>());
        }
        for start in (0..n).step_by(len) {
            let at = start * from_size;
            let part = memory.at(
                if side == Side::Right { 0 } else { at },
                if side == Side::Left { 0 } else { at },
                start * to_size,
            );
            let n = len.min(n - start);
            let x_len = if side == Side::Right { 1 } else { n };
            let y_len = if side == Side::Left { 1 } else { n };
            // SAFETY: the part lies within what the caller promises; stages hold `len` elements,
            // and the loop sees no operand in the memory that it writes.
            unsafe {
                let staged = |from: *const u8, stage: &mut Stage, n| {
                    if self.form == Form::Plain && from != part.out.cast_const() {
                        return from;
                    }
                    fill_stage(self.form, from_size, from, stage.start(), n);
                    stage.start().cast_const()
                };
                let x = staged(part.x, &mut x, x_len);
                let y = staged(part.y, &mut y, y_len);
                if is_rounded {
                    (self.side(side))(x, y, result.start(), n);
                    empty_stage(self.form, result.start(), part.out, n);
                } else {
                    (self.side(side))(x, y, part.out, n);
                }
            }
        }
    }

    /// # Safety
    ///
    /// `memory` holds tensors whose shapes `plan` was made for; no other thread accesses `range`.
    unsafe fn run_plan(&self, plan: &Plan<2>, memory: Memory, range: Range<usize>) {
        let (from_size, to_size) = (self.from.size(), self.to.size());
        if plan.row_len() < SHORT_ROW {
            // SAFETY: as the caller promises.
            return unsafe { self.run_short_rows(plan, memory, range) };
        }
        let side = match plan.row_strides() {
            [1, 0] => Side::Left,
            [0, 1] => Side::Right,
            _ => Side::Both,
        };
        plan.for_each_row(range, |[x, y], position, len| {
            let part = memory.at(x * from_size, y * from_size, position * to_size);
            // SAFETY: the plan stays within the tensors. An operand that is the output has the
            // output's shape, so it advances with it.
            unsafe { self.run(side, part, len) };
        });
    }

    /// # Safety
    /// As for [`Self::run_plan`].
    unsafe fn run_short_rows(&self, plan: &Plan<2>, memory: Memory, range: Range<usize>) {
        let (from_size, to_size) = (self.from.size(), self.to.size());
        let (mut x, mut y) = (Stage::new(), Stage::new());
        let [x_stride, y_stride] = plan.row_strides();
        for start in range.clone().step_by(STAGE_BYTES / from_size) {
            let end = range.end.min(start + STAGE_BYTES / from_size);
            let (x_stage, y_stage) = (x.start(), y.start());
            plan.for_each_row(start..end, |[x, y], position, len| {
                let to = (position - start) * from_size;
                // SAFETY: the plan stays within the tensors, and the stages hold the elements
                // from `start` to `end`.
                unsafe {
                    let (x, y) = (memory.x.add(x * from_size), memory.y.add(y * from_size));
                    copy_row(from_size, x, x_stride, x_stage.add(to), len);
                    copy_row(from_size, y, y_stride, y_stage.add(to), len);
                }
            });
            let out = memory.out.wrapping_add(start * to_size);
            // SAFETY: both stages are filled; the output's part is this thread's alone, and what
            // the operands had there has been read.
            unsafe { self.run(Side::Both, Memory { x: x_stage, y: y_stage, out }, end - start) };
        }
    }
}

/// Copies a row of `n` elements, or one element `n` times.
///
/// # Safety
///
/// `from` is valid for `n` elements of `size` bytes, or for one if `stride` is 0, and `to` for `n`.
#[inline]
unsafe fn copy_row(size: usize, from: *const u8, stride: usize, to: *mut u8, n: usize) {
    // SAFETY: as the caller promises; the accesses do not need alignment.
    unsafe {
        match size {
            1 => copy_row_of::<u8>(from, stride, to, n),
            2 => copy_row_of::<u16>(from, stride, to, n),
            4 => copy_row_of::<u32>(from, stride, to, n),
            8 => copy_row_of::<u64>(from, stride, to, n),
            _ => copy_row_of::<u128>(from, stride, to, n),
        }
    }
}

/// # Safety
/// As for [`copy_row`].
#[inline(always)]
unsafe fn copy_row_of<T: Copy>(from: *const u8, stride: usize, to: *mut u8, n: usize) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for i in 0..n {
        // SAFETY: as the caller of `copy_row` promises.
        unsafe { to.add(i).write_unaligned(from.add(i * stride).read_unaligned()) };
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::call;

    fn tensor(sizes: &[usize], first: f32) -> Tensor {
        let n: usize = sizes.iter().product();
        let values: Vec<f32> = (0..n).map(|i| first + i as f32).collect();
        Tensor::from_slice(Shape::new(sizes).unwrap(), &values).unwrap()
    }

    /// Subtraction is not commutative, so exchanged operands and wrong elements change the result.
    fn check_sub(x: &[usize], y: &[usize], in_place: bool) {
        let (a, b) = (tensor(x, 1.0), tensor(y, 1000.0));
        let shape = broadcast_shape(&[a.shape(), b.shape()]).unwrap();
        let plan = Plan::new(&shape, [a.shape(), b.shape()]);
        let (left, right) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
        let mut expected = vec![0.0; shape.num_elements()];
        let strides = plan.row_strides();
        plan.for_each_row(0..expected.len(), |[i, j], position, len| {
            for k in 0..len {
                expected[position + k] = left[i + k * strides[0]] - right[j + k * strides[1]];
            }
        });
        // Shared inputs cannot be overwritten.
        let held = (!in_place).then(|| (a.clone(), b.clone()));
        let got = call("Sub").input(a).input(b).backwards().run().unwrap();
        assert_eq!(got.shape(), &shape);
        assert_eq!(got.as_slice::<f32>().unwrap(), expected, "{x:?} - {y:?}");
        drop(held);
    }

    #[test]
    fn every_path_gives_the_same_elements() {
        for (x, y) in [
            (&[4][..], &[4][..]),
            (&[4], &[]),
            (&[], &[4]),
            (&[2000], &[2000]),
            (&[2000], &[1]),
            (&[1], &[2000]),
            (&[700, 3], &[3]),
            (&[700, 3], &[700, 1]),
            (&[3], &[700, 3]),
            (&[40, 50], &[50]),
            (&[40, 1], &[40, 50]),
            (&[5, 1, 30], &[7, 1]),
            (&[0, 3], &[3]),
            (&[1, 1, 1], &[]),
        ] {
            check_sub(x, y, false);
            check_sub(x, y, true);
        }
    }

    #[test]
    fn halves_go_through_stages() {
        let values: Vec<f16> = (0..1500).map(|i| f16::from_f32(i as f32 / 64.0)).collect();
        let x = Tensor::vector(&values).unwrap();
        let sum = call("AddV2").input(x.clone()).input(x.clone()).run().unwrap();
        let negative = call("Neg").input(x).run().unwrap();
        for (i, &value) in values.iter().enumerate() {
            let doubled = f16::from_f32(value.to_f32() * 2.0);
            assert_eq!(sum.as_slice::<f16>().unwrap()[i], doubled);
            assert_eq!(negative.as_slice::<f16>().unwrap()[i], -value);
        }
    }

    #[test]
    fn mistakes_have_their_codes() {
        let sub = call("Sub").input(tensor(&[2, 3], 0.0)).input(tensor(&[2], 0.0)).run();
        assert_eq!(sub.unwrap_err().code(), Code::InvalidArgument);
        let zero = || Tensor::vector(&[1i32, 0]).unwrap();
        for (op, code) in [("FloorDiv", Code::InvalidArgument), ("TruncateDiv", Code::Internal)] {
            let result = call(op).input(zero()).input(zero()).run();
            assert_eq!(result.unwrap_err().code(), code, "{op}");
        }
        let grad = call("TanhGrad").input(tensor(&[2], 0.0)).input(tensor(&[3], 0.0)).run();
        assert_eq!(grad.unwrap_err().code(), Code::InvalidArgument);
    }
}
