//! `Cast`: conversion of elements to another dtype.
//!
//! A cast is a chain of at most three loops: narrow floats are widened to `f32`, converted, and
//! rounded to the target. The middle loop converts between the types that processors compute with.
//! Numbers out of an integer's range become what x86-64's conversion instructions return, as in
//! TensorFlow.

use std::marker::PhantomData;

use smallvec::SmallVec;
use thalweg_graph::{GradientContext, OpDef, PartialValue, ValueContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Complex32, Complex64, DType, Element, Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz,
    Float8E5m2, Float8E5m2fnuz, Result, ensure, err, f16,
};

use crate::cast_lowering::lower_cast;
use crate::elementwise::{Unary, UnaryLoop, unary_loop};
use crate::math::half_slices;
use crate::math::simd::Level;
use crate::stage::{STAGE_BYTES, Stage, round_to_bfloat16};

const CAST: OpDef =
    OpDef::new("Cast", shape::unchanged).with_value(cast_value).with_gradient(cast_grad);

/// Casts the adjoint back; only floating-point and complex dtypes propagate it.
fn cast_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let from = g.dtype(g.input(0));
    let is_smooth = |dtype: DType| match dtype {
        DType::Half | DType::BFloat16 | DType::Float | DType::Double => true,
        dtype => dtype.is_complex(),
    };
    if !is_smooth(from) || !is_smooth(g.dtype(g.output(0))) {
        return Ok(());
    }
    let grad = g.grad(0)?;
    let adjoint = g.cast(grad, from)?;
    g.set(0, adjoint)
}

pub(crate) static FAMILY: Family = Family {
    ops: &[CAST],
    kernels: &[
        KernelSpec { op: "Cast", create: cast, ..KernelSpec::CPU },
        KernelSpec::lowering("Cast", lower_cast),
    ],
};

/// Integer casts keep the static value, among the dtypes of shape inference.
fn cast_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    let is_wide = c.attrs().dtype("DstT").ok()? == DType::Int64;
    let mut value = c.input(0)?;
    for element in &mut value.elements {
        *element = element.filter(|&e| is_wide || i32::try_from(e).is_ok());
    }
    Some(value)
}

/// One step of a chain, with the bytes per element before and after it.
#[derive(Clone, Copy)]
struct Link {
    step: Step,
    from_bytes: usize,
    to_bytes: usize,
}

#[derive(Clone, Copy)]
enum Step {
    /// Converts elements.
    Loop(UnaryLoop),
    /// Clears low mantissa bits in single precision, so that the following conversion truncates
    /// instead of rounding.
    Single(u32),
    /// Clears low mantissa bits in double precision.
    Double(u64),
}

impl Step {
    /// # Safety
    ///
    /// As for the loop; `bytes` are the memory of `n` elements before the step.
    unsafe fn run(self, from: *const u8, to: *mut u8, n: usize, bytes: usize) {
        // SAFETY: as the caller promises; both sides of a mask are aligned for its floats.
        unsafe {
            match self {
                Step::Loop(run) => run(from, to, n),
                Step::Single(mask) => {
                    let from = std::slice::from_raw_parts(from.cast::<u32>(), bytes / 4);
                    let to = std::slice::from_raw_parts_mut(to.cast::<u32>(), bytes / 4);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from & mask);
                }
                Step::Double(mask) => {
                    let from = std::slice::from_raw_parts(from.cast::<u64>(), bytes / 8);
                    let to = std::slice::from_raw_parts_mut(to.cast::<u64>(), bytes / 8);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from & mask);
                }
            }
        }
    }
}

fn cast(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (from, to) = (attrs.dtype("SrcT")?, attrs.dtype("DstT")?);
    if storage(from) == storage(to) {
        return AnyKernel::new(move |ctx| {
            let x = ctx.take_input(0)?;
            let y = if from == to { x } else { x.bitcast_same_size(to)? };
            ctx.set_output(0, y)
        });
    }
    let links = chain(storage(from), storage(to), attrs.bool("Truncate")?)?;
    AnyKernel::new(move |ctx| convert(ctx, &links, from, to))
}

/// The dtype that a quantized dtype's elements are stored as.
fn storage(dtype: DType) -> DType {
    match dtype {
        DType::QInt8 => DType::Int8,
        DType::QUInt8 => DType::UInt8,
        DType::QInt16 => DType::Int16,
        DType::QUInt16 => DType::UInt16,
        DType::QInt32 => DType::Int32,
        other => other,
    }
}

fn chain(from: DType, to: DType, truncates: bool) -> Result<SmallVec<[Link; 4]>> {
    let unsupported = || err!(Unimplemented, "Cast from {from} to {to} is not supported");
    let mut links = SmallVec::new();
    let mut link = |step, from: DType, to: DType| {
        links.push(Link { step, from_bytes: from.size(), to_bytes: to.size() });
    };
    let (mut here, mut there) = (from, to);
    if let Some((run, wide)) = widening(from) {
        link(Step::Loop(run), from, wide);
        here = wide;
    }
    if let Some(step) = truncation(from, to).filter(|_| truncates) {
        link(step, here, here);
    }
    let rounding = narrowing(to);
    if let Some((_, wide)) = rounding {
        there = wide;
    }
    if here != there {
        link(Step::Loop(core_loop(here, there).ok_or_else(unsupported)?), here, there);
    }
    if let Some((run, wide)) = rounding {
        link(Step::Loop(run), wide, to);
    }
    Ok(links)
}

/// Clears the digits that `to` cannot represent, of a float in single or double precision.
fn truncation(from: DType, to: DType) -> Option<Step> {
    let (has, keeps) = (digits(from)?, digits(to)?);
    match has {
        _ if has <= keeps => None,
        52 => Some(Step::Double(u64::MAX << (52 - keeps))),
        _ => Some(Step::Single(u32::MAX << (23 - keeps))),
    }
}

/// The digits of a float's mantissa.
pub(crate) fn digits(dtype: DType) -> Option<u32> {
    match dtype {
        DType::Double | DType::Complex128 => Some(52u32),
        DType::Float | DType::Complex64 => Some(23),
        DType::Half => Some(10),
        DType::BFloat16 => Some(7),
        DType::Float8E4m3fn | DType::Float8E4m3fnuz | DType::Float8E4m3b11fnuz => Some(3),
        DType::Float8E5m2 | DType::Float8E5m2fnuz => Some(2),
        _ => None,
    }
}

/// Source and target of a cast, for several threads on disjoint parts.
struct Memory(*const u8, *mut u8);

// SAFETY: threads read the operand and write disjoint parts of the output; `convert` holds both.
unsafe impl Sync for Memory {}

impl Memory {
    fn at(&self, from: usize, to: usize) -> (*const u8, *mut u8) {
        (self.0.wrapping_add(from), self.1.wrapping_add(to))
    }
}

fn convert(ctx: &mut KernelContext<'_>, links: &[Link], from: DType, to: DType) -> Result<()> {
    let x = ctx.input(0)?;
    ensure!(x.dtype() == from, Internal, "expected {from}, got {}", x.dtype());
    let mut out = ctx.allocate(to, x.shape().clone())?;
    // SAFETY: a loop that gives bool writes `bool`s.
    let memory = Memory(x.as_bytes()?.as_ptr(), unsafe { out.bytes_mut()? }.as_mut_ptr());
    let nanoseconds = 0.1 * (from.size() + to.size()) as f64 * links.len() as f64;
    ctx.parallel_for(x.num_elements(), nanoseconds, |range| {
        let (from, to) = memory.at(range.start * from.size(), range.start * to.size());
        // SAFETY: the loops are those for these dtypes, the ranges lie within the tensors and are
        // disjoint, and the tensors are held above.
        unsafe { run_chain(links, from, to, range.len()) };
    })?;
    ctx.set_output(0, out)
}

/// # Safety
/// `from` and `to` point to `n` elements of the dtypes that the chain begins and ends with.
unsafe fn run_chain(links: &[Link], from: *const u8, to: *mut u8, n: usize) {
    let (Some(first), Some(last)) = (links.first(), links.last()) else { return };
    if links.len() == 1 {
        // SAFETY: as the caller promises.
        return unsafe { first.step.run(from, to, n, n * first.from_bytes) };
    }
    // An element has at most 16 bytes, so this many fit in the buffer in every form.
    let len = STAGE_BYTES / 16;
    let mut stages = [Stage::new(), Stage::new()];
    for start in (0..n).step_by(len) {
        let n = len.min(n - start);
        let mut here = from.wrapping_add(start * first.from_bytes);
        for (i, link) in links.iter().enumerate() {
            let next = if i + 1 == links.len() {
                to.wrapping_add(start * last.to_bytes)
            } else {
                stages[i % 2].clear(n * link.to_bytes)
            };
            // SAFETY: what is read lies in the operand or was written by the link before, what is
            // written lies in the output or fits the stage; the two differ, since links alternate
            // between the stages.
            unsafe { link.step.run(here, next, n, n * link.from_bytes) };
            here = next;
        }
    }
}

/// The conversion of a narrow dtype to one that the loops convert.
fn widening(dtype: DType) -> Option<(UnaryLoop, DType)> {
    Some(match dtype {
        DType::Half => (half_to_single as UnaryLoop, DType::Float),
        DType::BFloat16 => (unary_loop::<FromBFloat16, u16>, DType::Float),
        DType::Float8E5m2 => (unary_loop::<FromFloat8, Float8E5m2>, DType::Float),
        DType::Float8E4m3fn => (unary_loop::<FromFloat8, Float8E4m3fn>, DType::Float),
        DType::Float8E4m3fnuz => (unary_loop::<FromFloat8, Float8E4m3fnuz>, DType::Float),
        DType::Float8E4m3b11fnuz => (unary_loop::<FromFloat8, Float8E4m3b11fnuz>, DType::Float),
        DType::Float8E5m2fnuz => (unary_loop::<FromFloat8, Float8E5m2fnuz>, DType::Float),
        DType::Int4 => (unary_loop::<SignExtend<4>, u8>, DType::Int8),
        DType::Int2 => (unary_loop::<SignExtend<2>, u8>, DType::Int8),
        DType::UInt4 => (unary_loop::<LowBits<4>, u8>, DType::UInt8),
        DType::UInt2 => (unary_loop::<LowBits<2>, u8>, DType::UInt8),
        _ => return None,
    })
}

/// The conversion of a dtype that the loops convert to a narrow one.
fn narrowing(dtype: DType) -> Option<(UnaryLoop, DType)> {
    Some(match dtype {
        DType::Half => (single_to_half as UnaryLoop, DType::Float),
        DType::BFloat16 => (single_to_bfloat16, DType::Float),
        DType::Float8E5m2 => (unary_loop::<ToFloat8<Float8E5m2>, f32>, DType::Float),
        DType::Float8E4m3fn => (unary_loop::<ToFloat8<Float8E4m3fn>, f32>, DType::Float),
        DType::Float8E4m3fnuz => (unary_loop::<ToFloat8<Float8E4m3fnuz>, f32>, DType::Float),
        DType::Float8E4m3b11fnuz => (unary_loop::<ToFloat8<Float8E4m3b11fnuz>, f32>, DType::Float),
        DType::Float8E5m2fnuz => (unary_loop::<ToFloat8<Float8E5m2fnuz>, f32>, DType::Float),
        // The upper bits of the byte are zero, for signed types too.
        DType::Int4 | DType::UInt4 => (unary_loop::<LowBits<4>, u8>, DType::UInt8),
        DType::Int2 | DType::UInt2 => (unary_loop::<LowBits<2>, u8>, DType::UInt8),
        _ => return None,
    })
}

/// # Safety
/// As for a [`UnaryLoop`] from half to float.
unsafe fn half_to_single(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let from = std::slice::from_raw_parts(from.cast::<f16>(), n);
        half_slices::widen(from, std::slice::from_raw_parts_mut(to.cast(), n));
    }
}

/// # Safety
/// As for a [`UnaryLoop`] from float to half.
unsafe fn single_to_half(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let from = std::slice::from_raw_parts(from.cast(), n);
        half_slices::narrow(from, std::slice::from_raw_parts_mut(to.cast::<f16>(), n));
    }
}

/// # Safety
/// As for a [`UnaryLoop`] from float to bfloat16.
unsafe fn single_to_bfloat16(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        round_to_bfloat16(
            std::slice::from_raw_parts(from.cast(), n),
            std::slice::from_raw_parts_mut(to.cast(), n),
        );
    }
}

/// bfloat16 bits to single precision.
struct FromBFloat16;

impl Unary<u16> for FromBFloat16 {
    type Out = f32;

    #[inline(always)]
    fn apply<L: Level>(x: u16) -> f32 {
        f32::from_bits(u32::from(x) << 16)
    }
}

struct FromFloat8;

struct ToFloat8<F>(PhantomData<F>);

macro_rules! float8 {
    ($($t:ty),+) => { $(
        impl Unary<$t> for FromFloat8 {
            type Out = f32;
            const IS_SIMD: bool = false;

            #[inline(always)]
            fn apply<L: Level>(x: $t) -> f32 {
                x.to_f32()
            }
        }

        impl Unary<f32> for ToFloat8<$t> {
            type Out = $t;
            const IS_SIMD: bool = false;

            #[inline(always)]
            fn apply<L: Level>(x: f32) -> $t {
                <$t>::from_f32(x)
            }
        }
    )+ };
}

float8!(Float8E5m2, Float8E4m3fn, Float8E4m3fnuz, Float8E4m3b11fnuz, Float8E5m2fnuz);

/// A number in the low `N` bits of a byte, unsigned.
struct LowBits<const N: u32>;

impl<const N: u32> Unary<u8> for LowBits<N> {
    type Out = u8;

    #[inline(always)]
    fn apply<L: Level>(x: u8) -> u8 {
        x & ((1 << N) - 1)
    }
}

/// A number in the low `N` bits of a byte, signed.
struct SignExtend<const N: u32>;

impl<const N: u32> Unary<u8> for SignExtend<N> {
    type Out = i8;

    #[inline(always)]
    fn apply<L: Level>(x: u8) -> i8 {
        (x << (8 - N)) as i8 >> (8 - N)
    }
}

/// A type that casts start from; `Wide` represents its values exactly.
trait Source: Element {
    type Wide: Wide;
    fn widen(self) -> Self::Wide;
}

/// The few intermediate types of all conversions. (Widening more than needed costs nothing: the
/// compiler removes it.)
trait Wide {
    fn convert<D: Target>(self) -> D;
}

/// A target type of casts.
trait Target: Element {
    fn from_i64(x: i64) -> Self;
    fn from_u64(x: u64) -> Self;
    fn from_f32(x: f32) -> Self;
    fn from_f64(x: f64) -> Self;
    fn from_complex32(x: Complex32) -> Self {
        Self::from_f32(x.re)
    }
    fn from_complex64(x: Complex64) -> Self {
        Self::from_f64(x.re)
    }
}

macro_rules! wides {
    ($($t:ty: $convert:ident;)+) => { $(
        impl Wide for $t {
            #[inline(always)]
            fn convert<D: Target>(self) -> D {
                D::$convert(self)
            }
        }
    )+ };
}

wides! {
    i64: from_i64;
    u64: from_u64;
    f32: from_f32;
    f64: from_f64;
    Complex32: from_complex32;
    Complex64: from_complex64;
}

macro_rules! sources {
    ($($t:ty: $wide:ty, |$x:ident| $value:expr;)+) => { $(
        impl Source for $t {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                let $x = self;
                $value
            }
        }
    )+ };
}

sources! {
    bool: i64, |x| i64::from(x);
    i8: i64, |x| i64::from(x);
    i16: i64, |x| i64::from(x);
    i32: i64, |x| i64::from(x);
    i64: i64, |x| x;
    u8: i64, |x| i64::from(x);
    u16: i64, |x| i64::from(x);
    u32: i64, |x| i64::from(x);
    u64: u64, |x| x;
    f32: f32, |x| x;
    f64: f64, |x| x;
    Complex32: Complex32, |x| x;
    Complex64: Complex64, |x| x;
}

macro_rules! targets {
    ($($t:ty: |$float:ident| $from_f32:expr, $from_f64:expr;)+) => { $(
        impl Target for $t {
            #[inline(always)]
            fn from_i64(x: i64) -> Self {
                x as $t
            }

            #[inline(always)]
            fn from_u64(x: u64) -> Self {
                x as $t
            }

            #[inline(always)]
            fn from_f32($float: f32) -> Self {
                $from_f32
            }

            #[inline(always)]
            fn from_f64($float: f64) -> Self {
                $from_f64
            }
        }
    )+ };
}

targets! {
    i8: |x| f32_to_i32(x) as i8, f64_to_i32(x) as i8;
    i16: |x| f32_to_i32(x) as i16, f64_to_i32(x) as i16;
    i32: |x| f32_to_i32(x), f64_to_i32(x);
    i64: |x| f32_to_i64(x), f64_to_i64(x);
    u8: |x| f32_to_i32(x) as u8, f64_to_i32(x) as u8;
    u16: |x| f32_to_i32(x) as u16, f64_to_i32(x) as u16;
    u32: |x| f32_to_i64(x) as u32, f64_to_i64(x) as u32;
    u64: |x| f32_to_u64(x), f64_to_u64(x);
    f32: |x| x, x as f32;
    f64: |x| f64::from(x), x;
}

impl Target for bool {
    #[inline(always)]
    fn from_i64(x: i64) -> bool {
        x != 0
    }

    #[inline(always)]
    fn from_u64(x: u64) -> bool {
        x != 0
    }

    #[inline(always)]
    fn from_f32(x: f32) -> bool {
        x != 0.0
    }

    #[inline(always)]
    fn from_f64(x: f64) -> bool {
        x != 0.0
    }
}

macro_rules! complex_targets {
    ($($t:ty: $part:ty;)+) => { $(
        impl Target for $t {
            #[inline(always)]
            fn from_i64(x: i64) -> Self {
                <$t>::new(x as $part, 0.0)
            }

            #[inline(always)]
            fn from_u64(x: u64) -> Self {
                <$t>::new(x as $part, 0.0)
            }

            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                <$t>::new(<$part as Target>::from_f32(x), 0.0)
            }

            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                <$t>::new(<$part as Target>::from_f64(x), 0.0)
            }

            #[inline(always)]
            fn from_complex32(x: Complex32) -> Self {
                <$t>::new(<$part as Target>::from_f32(x.re), <$part as Target>::from_f32(x.im))
            }

            #[inline(always)]
            fn from_complex64(x: Complex64) -> Self {
                <$t>::new(<$part as Target>::from_f64(x.re), <$part as Target>::from_f64(x.im))
            }
        }
    )+ };
}

complex_targets! {
    Complex32: f32;
    Complex64: f64;
}

/// Float to integer as x86-64's instructions do it: values out of range become the minimum of the
/// type.
macro_rules! to_integer {
    ($($name:ident: $from:ty => $to:ty;)+) => { $(
        #[inline(always)]
        fn $name(x: $from) -> $to {
            // The bound is a power of two, so it is exact; NaN fails the comparison.
            let fits = x.abs() < -(<$to>::MIN as $from);
            let safe = if fits { x } else { 0.0 };
            // SAFETY: the number is finite and within the range. (The plain cast would test again,
            // in a way that does not vectorize.)
            let converted = unsafe { safe.to_int_unchecked::<$to>() };
            if fits { converted } else { <$to>::MIN }
        }
    )+ };
}

to_integer! {
    f32_to_i32: f32 => i32;
    f64_to_i32: f64 => i32;
    f32_to_i64: f32 => i64;
    f64_to_i64: f64 => i64;
}

/// The result of the two signed conversions by which compilers convert to u64.
#[inline(always)]
fn combine_to_u64(low: i64, high: i64) -> u64 {
    (low | (high & (low >> 63))) as u64
}

#[inline(always)]
fn f32_to_u64(x: f32) -> u64 {
    combine_to_u64(f32_to_i64(x), f32_to_i64(x - 9_223_372_036_854_775_808.0))
}

#[inline(always)]
fn f64_to_u64(x: f64) -> u64 {
    combine_to_u64(f64_to_i64(x), f64_to_i64(x - 9_223_372_036_854_775_808.0))
}

/// Conversion to `D`.
struct To<D>(PhantomData<D>);

impl<S: Source, D: Target> Unary<S> for To<D> {
    type Out = D;
    // Only pairs that are common in programs.
    const IS_SIMD: bool = size_of::<S>() + size_of::<D>() <= 12
        && (matches!(D::DTYPE, DType::Float) || matches!(S::DTYPE, DType::Float));

    #[inline(always)]
    fn apply<L: Level>(x: S) -> D {
        x.widen().convert()
    }
}

/// The loop between two types that processors compute with.
fn core_loop(from: DType, to: DType) -> Option<UnaryLoop> {
    macro_rules! pick {
        ($dtype:expr, $t:ident => $body:expr) => {
            match $dtype {
                DType::Bool => {
                    type $t = bool;
                    $body
                }
                DType::Int8 => {
                    type $t = i8;
                    $body
                }
                DType::Int16 => {
                    type $t = i16;
                    $body
                }
                DType::Int32 => {
                    type $t = i32;
                    $body
                }
                DType::Int64 => {
                    type $t = i64;
                    $body
                }
                DType::UInt8 => {
                    type $t = u8;
                    $body
                }
                DType::UInt16 => {
                    type $t = u16;
                    $body
                }
                DType::UInt32 => {
                    type $t = u32;
                    $body
                }
                DType::UInt64 => {
                    type $t = u64;
                    $body
                }
                DType::Float => {
                    type $t = f32;
                    $body
                }
                DType::Double => {
                    type $t = f64;
                    $body
                }
                DType::Complex64 => {
                    type $t = Complex32;
                    $body
                }
                DType::Complex128 => {
                    type $t = Complex64;
                    $body
                }
                _ => return None,
            }
        };
    }
    Some(pick!(from, S => pick!(to, D => unary_loop::<To<D>, S> as UnaryLoop)))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Shape, Tensor};

    use super::*;
    use crate::testing::code;

    #[test]
    fn floats_out_of_range_become_what_the_processor_makes_of_them() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for (x, as_i8, as_i32, as_u32, as_i64, as_u64) in [
            (nan, 0, i32::MIN, 0, i64::MIN, 1 << 63),
            (inf, 0, i32::MIN, 0, i64::MIN, 1 << 63),
            (300.7, 44, 300, 300, 300, 300),
            (-1.5, -1, -1, u32::MAX, -1, u64::MAX),
            (1e10, 0, i32::MIN, 1_410_065_408, 10_000_000_000, 10_000_000_000),
            (2_147_483_648.0, 0, i32::MIN, 1 << 31, 1 << 31, 1 << 31),
            (9.3e18, 0, i32::MIN, 0, i64::MIN, 9_300_000_300_729_368_576),
        ] {
            assert_eq!(i8::from_f32(x), as_i8, "{x}");
            assert_eq!(i32::from_f32(x), as_i32, "{x}");
            assert_eq!(u32::from_f32(x), as_u32, "{x}");
            assert_eq!(<i64 as Target>::from_f32(x), as_i64, "{x}");
            assert_eq!(<u64 as Target>::from_f32(x), as_u64, "{x}");
        }
        assert_eq!(f32_to_i32(-2_147_483_648.0), i32::MIN);
        assert_eq!(f64_to_i32(-2_147_483_647.5), -2_147_483_647);
        assert_eq!(f64_to_i64(4_611_686_018_427_387_904.0), 1 << 62);
    }

    fn through(from: DType, to: DType, truncates: bool, bytes: &[u8]) -> Vec<u8> {
        let n = bytes.len() / from.size();
        let x = Tensor::from_bytes(from, Shape::new(&[n]).unwrap(), bytes.to_vec().into()).unwrap();
        let mut out = vec![0u8; n * to.size()];
        let links = chain(from, to, truncates).unwrap();
        // SAFETY: both sides have `n` elements of their dtypes.
        unsafe { run_chain(&links, x.as_bytes().unwrap().as_ptr(), out.as_mut_ptr(), n) };
        out
    }

    #[test]
    fn truncation_cuts_off() {
        let bits = |x: f32| x.to_le_bytes();
        let x: Vec<u8> = [1.005_859_4, 1.999_999, -1.999_999].into_iter().flat_map(bits).collect();
        let cut = through(DType::Float, DType::BFloat16, true, &x);
        assert_eq!(cut, [0x80, 0x3f, 0xff, 0x3f, 0xff, 0xbf]);
        let rounded = through(DType::Float, DType::BFloat16, false, &x);
        assert_eq!(rounded, [0x81, 0x3f, 0x00, 0x40, 0x00, 0xc0]);
        let x: Vec<u8> = 1.999_999_999_9f64.to_le_bytes().to_vec();
        let cut = through(DType::Double, DType::Float, true, &x);
        assert_eq!(cut, 1.999_999_9f32.to_le_bytes());
    }

    #[test]
    fn long_chains_work_in_stages() {
        let values: Vec<u8> =
            (0..1000).flat_map(|i| f16::from_f32(i as f32 - 500.0).to_le_bytes()).collect();
        let there = through(DType::Half, DType::BFloat16, false, &values);
        let ints = through(DType::BFloat16, DType::Int32, false, &there);
        for (i, bytes) in ints.chunks_exact(4).enumerate() {
            let got = i32::from_le_bytes(bytes.try_into().unwrap());
            let exact = i as i32 - 500;
            assert!((got - exact).abs() <= exact.abs() / 256 + 1, "{got} is not {exact}");
        }
        let small = through(DType::Int32, DType::Int4, false, &(-1i32).to_le_bytes());
        assert_eq!(small, [15]);
        assert_eq!(through(DType::Int4, DType::Int32, false, &small), (-1i32).to_le_bytes());
        assert_eq!(code(chain(DType::Float, DType::String, false)), Some(Code::Unimplemented));
    }
}
