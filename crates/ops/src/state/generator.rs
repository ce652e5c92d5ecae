//! Random ops whose generator state is a variable: a two-word counter, then the key.
//!
//! The distributions are those of `random`; this module reads and advances the variable.

use thalweg_graph::{OpDef, ShapeContext, Work, shape};
use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Element, PartialShape, Result, Tensor, bail, bf16, ensure, f16};

use crate::math::random::distributions::{FullInt, Integer};
use crate::math::random::philox::{BLOCKS_PER_OUTPUT, Philox};
use crate::random::{
    ALGORITHM_AUTO, ALGORITHM_PHILOX, Stream, binomial, fill_same, full_int, lower_full_int,
    lower_normal, lower_truncated_normal, lower_uniform, lower_uniform_int, normal, scalars,
    truncated_normal, uniform, uniform_int,
};
use crate::variable::{change, variable_input};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        STATEFUL_UNIFORM,
        OpDef {
            name: "StatefulStandardNormalV2",
            work: Work::per_output::<280>,
            ..STATEFUL_UNIFORM
        },
        OpDef {
            name: "StatefulTruncatedNormal",
            work: Work::per_output::<1100>,
            ..STATEFUL_UNIFORM
        },
        STATEFUL_UNIFORM_FULL_INT,
        STATEFUL_UNIFORM_INT,
        STATEFUL_RANDOM_BINOMIAL,
        STATEFUL_STANDARD_NORMAL,
        OpDef::new("RngSkip", shape::unknown),
        OpDef::new("RngReadAndSkip", words_shape),
        OpDef::new("NonDeterministicInts", shape::from_first_input)
            .with_work(Work::per_output::<90>),
    ],
    kernels: &[
        cpu_kernel!("StatefulUniform", "dtype" in [f16, bf16, f32, f64] => uniform; host_inputs: STATE),
        cpu_kernel!("StatefulStandardNormalV2", "dtype" in [f16, bf16, f32, f64] => normal; host_inputs: STATE),
        cpu_kernel!("StatefulTruncatedNormal", "dtype" in [f16, bf16, f32, f64] => truncated_normal; host_inputs: STATE),
        cpu_kernel!("StatefulUniformFullInt", "dtype" in [i32, i64, u32, u64] => full_int; host_inputs: STATE),
        cpu_kernel!("StatefulUniformInt", "dtype" in [i32, i64] => uniform_int; host_inputs: STATE),
        cpu_kernel!("StatefulRandomBinomial", "T" in [f16, f32, f64] => binomial; host_inputs: STATE),
        cpu_kernel!("StatefulStandardNormal", "dtype" in [f16, bf16, f32, f64] => normal; host_inputs: &["resource", "shape"]),
        KernelSpec {
            op: "RngSkip",
            host_inputs: &["resource", "algorithm", "delta"],
            is_cheap: true,
            create: skip,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "RngReadAndSkip",
            host_inputs: &["resource", "alg", "delta"],
            is_cheap: true,
            create: read_and_skip,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("StatefulUniform", lower_uniform).with_host_inputs(DRAWN),
        KernelSpec::lowering("StatefulStandardNormalV2", lower_normal).with_host_inputs(DRAWN),
        KernelSpec::lowering("StatefulTruncatedNormal", lower_truncated_normal)
            .with_host_inputs(DRAWN),
        KernelSpec::lowering("StatefulUniformFullInt", lower_full_int).with_host_inputs(DRAWN),
        KernelSpec::lowering("StatefulUniformInt", lower_uniform_int).with_host_inputs(&[
            "algorithm",
            "shape",
            "minval",
            "maxval",
        ]),
        KernelSpec::lowering("RngSkip", |l| lower_skip(l).map(drop))
            .with_host_inputs(&["algorithm"]),
        KernelSpec::lowering("RngReadAndSkip", lower_read_and_skip).with_host_inputs(&["alg"]),
        cpu_kernel!("NonDeterministicInts", "dtype" in [i32, i64, u32, u64] => unpredictable; host_inputs: &["shape"]),
    ],
};

const STATE: &[&str] = &["resource", "algorithm", "shape"];
/// What the lowerings read on the host.
const DRAWN: &[&str] = &["algorithm", "shape"];
/// Threefry, the algorithm of XLA's devices.
const ALGORITHM_THREEFRY: i64 = 2;
/// Number of words in a generator's state: counter and key.
const WORDS: usize = 3;

const STATEFUL_UNIFORM: OpDef =
    OpDef::new("StatefulUniform", from_shape_input).with_work(Work::per_output::<90>);

const STATEFUL_UNIFORM_FULL_INT: OpDef =
    OpDef { name: "StatefulUniformFullInt", ..STATEFUL_UNIFORM };

const STATEFUL_UNIFORM_INT: OpDef = OpDef { name: "StatefulUniformInt", ..STATEFUL_UNIFORM };

const STATEFUL_RANDOM_BINOMIAL: OpDef =
    OpDef { name: "StatefulRandomBinomial", work: Work::per_output::<30000>, ..STATEFUL_UNIFORM };

const STATEFUL_STANDARD_NORMAL: OpDef =
    OpDef { name: "StatefulStandardNormal", work: Work::per_output::<280>, ..STATEFUL_UNIFORM };

fn from_shape_input(c: &mut ShapeContext<'_>) -> Result<()> {
    let position = c.input_range("shape")?.start;
    if position == 2 {
        c.with_rank(1, "algorithm", 0)?;
    }
    let shape = c.shape_from_input(position)?;
    c.set_output(0, shape);
    Ok(())
}

fn words_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new([Some(WORDS)]));
    Ok(())
}

/// The position of this step's numbers: the generator in the variable at input 0, which is advanced
/// by `reserve`. `algorithm` is the input with the algorithm; in V1 ops it is the first element of
/// the variable.
pub(crate) fn advance(
    ctx: &KernelContext<'_>,
    algorithm: Option<usize>,
    reserve: impl FnOnce(&mut Philox) -> Philox,
) -> Result<Philox> {
    if let Some(input) = algorithm {
        check_algorithm(named_algorithm(ctx.input(input)?)?)?;
    }
    let variable = variable_input(ctx, 0)?;
    change(ctx, &variable, |state| {
        ensure!(
            state.dtype() == DType::Int64,
            InvalidArgument,
            "dtype of RNG state variable must be int64, not {}",
            state.dtype()
        );
        ensure!(
            state.rank() == 1,
            InvalidArgument,
            "RNG state must have one and only one dimension, not {}",
            state.rank()
        );
        let mut words = state.as_mut_slice::<i64>()?;
        if algorithm.is_none() {
            let Some((&mut named, rest)) = words.split_first_mut() else {
                bail!(InvalidArgument, "Size of tensor must be at least 1");
            };
            check_algorithm(named)?;
            words = rest;
        }
        let size = words.len();
        let [low, high, key, ..] = words else {
            bail!(
                InvalidArgument,
                "For the Philox algorithm, the size of state must be at least {WORDS}; got {size}"
            );
        };
        let counter = [low.cast_unsigned(), high.cast_unsigned()];
        let mut philox = Philox::from_words(key.cast_unsigned(), counter);
        let start = reserve(&mut philox);
        let (_, counter) = philox.words();
        (*low, *high) = (counter[0].cast_signed(), counter[1].cast_signed());
        Ok(start)
    })
}

/// As [`advance`] in a program; `algorithm` is the tensor that names the algorithm, and `next` makes the
/// counter that follows.
pub(crate) fn advance_lowered(
    l: &mut Lowering<'_>,
    algorithm: &Tensor,
    next: impl FnOnce(&Stream) -> [Value; 2],
) -> Result<Stream> {
    check_algorithm(named_algorithm(algorithm)?)?;
    let state = l.read_variable(0)?;
    ensure!(
        state.dtype() == DType::Int64,
        InvalidArgument,
        "dtype of RNG state variable must be int64, not {}",
        state.dtype()
    );
    ensure!(
        state.rank() == 1,
        InvalidArgument,
        "RNG state must have one and only one dimension, not {}",
        state.rank()
    );
    let size = state.dims()[0];
    ensure!(
        size >= WORDS,
        InvalidArgument,
        "For the Philox algorithm, the size of state must be at least {WORDS}; got {size}"
    );
    let [low, high, key] = scalars(&state.bitcast(DType::UInt64));
    let stream = Stream::new(&key, [low, high]);
    let [low, high] = next(&stream).map(|word| word.reshape(&[1]).bitcast(DType::Int64));
    l.assign_variable(0, low.concatenate(&[high, state.slice_dim(0, 2, size)], 0))?;
    Ok(stream)
}

/// Advances the generator as [`skip_outputs`] does.
fn lower_skip(l: &mut Lowering<'_>) -> Result<Stream> {
    let (algorithm, delta) = (l.host(1)?, l.input(2)?);
    ensure!(delta.rank() == 0, InvalidArgument, "delta must have shape [], not {:?}", delta.dims());
    let delta = if delta.dtype() == DType::UInt64 { delta } else { delta.bitcast(DType::UInt64) };
    advance_lowered(l, algorithm, |stream| {
        let (_, [low, high]) = stream.words();
        let count = delta * BLOCKS_PER_OUTPUT as f64;
        let moved = low.plus(&count);
        let upper = count.shift_right_logical(&count.scalar_like(32.0));
        let lower = |word: &Value| word.convert(DType::UInt32);
        let is_lost = upper
            .compare_to(Comparison::Equal, u32::MAX.into())
            .and(&lower(&moved).compare(Comparison::Less, &lower(&count)));
        let carry = moved.compare(Comparison::Less, low).and(&is_lost.not());
        let high = high.plus(&carry.convert(DType::UInt64));
        [moved, high]
    })
}

fn lower_read_and_skip(l: &mut Lowering<'_>) -> Result<()> {
    let stream = lower_skip(l)?;
    let (key, [low, high]) = stream.words();
    let words = [low, high, &key].map(|word| word.reshape(&[1]));
    let words = words[0].concatenate(&words[1..], 0);
    l.set(0, words.bitcast(DType::Int64))
}

fn named_algorithm(tensor: &Tensor) -> Result<i64> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "the algorithm must have shape [], not {}",
        tensor.shape()
    );
    match tensor.dtype() {
        DType::Int32 => Ok(tensor.scalar_value::<i32>()?.into()),
        _ => tensor.scalar_value(),
    }
}

fn check_algorithm(algorithm: i64) -> Result<()> {
    if algorithm == i64::from(ALGORITHM_PHILOX) || algorithm == i64::from(ALGORITHM_AUTO) {
        return Ok(());
    }
    if algorithm == ALGORITHM_THREEFRY {
        bail!(Unimplemented, "this device has no ThreeFry generator");
    }
    bail!(InvalidArgument, "Unsupported algorithm id: {algorithm}")
}

/// The number of values to skip.
fn delta(ctx: &KernelContext<'_>) -> Result<u64> {
    let tensor = ctx.input(2)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "delta must have shape [], not {}",
        tensor.shape()
    );
    match tensor.dtype() {
        DType::Int64 => Ok(tensor.scalar_value::<i64>()?.cast_unsigned()),
        _ => tensor.scalar_value(),
    }
}

/// Skips the numbers for `outputs` values, and returns the position before. As in TensorFlow, the
/// carry into the upper half of the counter is lost when nearly 2^64 blocks are skipped, which
/// includes small negative skips.
fn skip_outputs(philox: &mut Philox, outputs: u64) -> Philox {
    let start = *philox;
    let count = outputs.wrapping_mul(BLOCKS_PER_OUTPUT);
    let (key, [low, high]) = start.words();
    let (moved, carry) = low.overflowing_add(count);
    let is_lost = count >> 32 == u64::from(u32::MAX) && (moved as u32) < count as u32;
    let high = high.wrapping_add(u64::from(carry && !is_lost));
    *philox = Philox::from_words(key, [moved, high]);
    start
}

fn skip(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let delta = delta(ctx)?;
        advance(ctx, Some(1), |philox| skip_outputs(philox, delta))?;
        Ok(())
    })
}

fn read_and_skip(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let delta = delta(ctx)?;
        let start = advance(ctx, Some(1), |philox| skip_outputs(philox, delta))?;
        let (key, [low, high]) = start.words();
        ctx.set_output(0, Tensor::vector(&[low, high, key].map(u64::cast_signed))?)
    })
}

/// Integers from the operating system's entropy.
fn unpredictable<T: Integer + Element>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = ctx.shape_input(0, "shape")?;
        let entropy = &ctx.step().environment().entropy;
        let word = || entropy.next_u64();
        let philox = Philox::from_words(word(), [word(), word()]);
        let mut out = ctx.allocate_output(0, shape)?;
        fill_same(ctx, philox, &FullInt::<T>::default(), out.as_mut_slice()?)?;
        ctx.set_output(0, out)
    })
}
