//! Stateless random ops: pure functions of their seed inputs.
//!
//! V1 ops take two seeds; V2 ops take key, counter and algorithm, which
//! `StatelessRandomGetKeyCounter` and similar ops derive from two seeds. The kernels are those of
//! `random`.

use std::f64::consts::FRAC_1_SQRT_2;

use thalweg_graph::{GradientContext, OpDef, Output, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lower, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bf16, ensure, f16};

use crate::gradients::{Arithmetic, set_repeated};
use crate::random::{
    ALGORITHM_PHILOX, binomial, full_int, gamma, gamma_gradient, lower_full_int, lower_multinomial,
    lower_normal, lower_truncated_normal, lower_uniform, lower_uniform_int, multinomial,
    multinomial_shape, normal, philox_from_seed, poisson, shuffle_rows, stateless_bounded_normal,
    stream_of_seed, truncated_normal, uniform, uniform_int, uniform_int_shape,
};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        STATELESS_RANDOM_UNIFORM,
        STATELESS_RANDOM_NORMAL,
        STATELESS_TRUNCATED_NORMAL,
        OpDef::new("StatelessRandomUniformInt", stateless_int_shape)
            .with_work(Work::per_output::<280>)
            .without_gradient(),
        OpDef::new("StatelessRandomUniformFullInt", stateless_shape)
            .with_work(Work::per_output::<90>)
            .without_gradient(),
        STATELESS_RANDOM_UNIFORM_V2,
        STATELESS_RANDOM_NORMAL_V2,
        STATELESS_TRUNCATED_NORMAL_V2,
        OpDef::new("StatelessRandomUniformIntV2", stateless_int_shape)
            .with_work(Work::per_output::<280>)
            .without_gradient(),
        OpDef::new("StatelessRandomUniformFullIntV2", stateless_shape)
            .with_work(Work::per_output::<90>)
            .without_gradient(),
        STATELESS_RANDOM_GAMMA_V2,
        STATELESS_RANDOM_GAMMA_V3,
        OpDef::new("StatelessRandomPoisson", stateless_shape)
            .with_work(Work::per_output::<7000>)
            .without_gradient(),
        OpDef::new("StatelessRandomBinomial", stateless_shape)
            .with_work(Work::per_output::<30000>)
            .without_gradient(),
        OpDef::new("StatelessMultinomial", stateless_multinomial_shape)
            .with_work(work::multinomial)
            .without_gradient(),
        STATELESS_PARAMETERIZED_TRUNCATED_NORMAL,
        OpDef::new("StatelessShuffle", shuffle_shape).with_work(Work::serial::<5>),
        OpDef::new("StatelessRandomGetKeyCounter", key_counter_shape),
        OpDef::new("StatelessRandomGetKeyCounterAlg", key_counter_shape),
        OpDef::new("StatelessRandomGetAlg", shape::scalar),
    ],
    kernels: &[
        cpu_kernel!("StatelessRandomUniform", "dtype" in [f16, bf16, f32, f64] => uniform; host_inputs: SEED),
        cpu_kernel!("StatelessRandomNormal", "dtype" in [f16, bf16, f32, f64] => normal; host_inputs: SEED),
        cpu_kernel!("StatelessTruncatedNormal", "dtype" in [f16, bf16, f32, f64] => truncated_normal; host_inputs: SEED),
        cpu_kernel!("StatelessRandomUniformInt", "dtype" in [i32, i64] => uniform_int; host_inputs: SEED),
        cpu_kernel!("StatelessRandomUniformFullInt", "dtype" in [i32, i64, u32, u64] => full_int; host_inputs: SEED),
        cpu_kernel!("StatelessRandomUniformV2", "dtype" in [f16, bf16, f32, f64] => uniform; host_inputs: KEY),
        cpu_kernel!("StatelessRandomNormalV2", "dtype" in [f16, bf16, f32, f64] => normal; host_inputs: KEY),
        cpu_kernel!("StatelessTruncatedNormalV2", "dtype" in [f16, bf16, f32, f64] => truncated_normal; host_inputs: KEY),
        cpu_kernel!("StatelessRandomUniformIntV2", "dtype" in [i32, i64, u32, u64] => uniform_int; host_inputs: KEY),
        cpu_kernel!("StatelessRandomUniformFullIntV2", "dtype" in [i32, i64, u32, u64] => full_int; host_inputs: KEY),
        cpu_kernel!("StatelessRandomGammaV2", "dtype" in [f16, f32, f64] => gamma; host_inputs: SEED),
        cpu_kernel!("StatelessRandomGammaV3", "dtype" in [f16, f32, f64] => gamma; host_inputs: KEY),
        cpu_kernel!("StatelessRandomPoisson", "dtype" in [f16, f32, f64, i32, i64] => poisson; host_inputs: SEED),
        cpu_kernel!("StatelessRandomBinomial", "T" in [f16, f32, f64] => binomial; host_inputs: SEED),
        cpu_kernel!("StatelessMultinomial", "T" in [f16, bf16, f32, f64] => multinomial; host_inputs: &["num_samples", "seed"]),
        cpu_kernel!("StatelessParameterizedTruncatedNormal", "dtype" in [f16, f32, f64] => stateless_bounded_normal; host_inputs: SEED),
        KernelSpec {
            op: "StatelessShuffle",
            create: shuffle_rows,
            host_inputs: &["key", "counter", "alg"],
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StatelessRandomGetKeyCounter",
            create: get_key_counter,
            is_cheap: true,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StatelessRandomGetKeyCounterAlg",
            create: get_key_counter,
            is_cheap: true,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StatelessRandomGetAlg",
            create: get_algorithm,
            is_cheap: true,
            ..KernelSpec::CPU
        },
        lowering("StatelessRandomUniform", lower_uniform, &["shape"]),
        lowering("StatelessRandomNormal", lower_normal, &["shape"]),
        lowering("StatelessTruncatedNormal", lower_truncated_normal, &["shape"]),
        lowering("StatelessRandomUniformInt", lower_uniform_int, &["shape", "minval", "maxval"]),
        lowering("StatelessRandomUniformFullInt", lower_full_int, &["shape"]),
        lowering("StatelessRandomUniformV2", lower_uniform, KEYED),
        lowering("StatelessRandomNormalV2", lower_normal, KEYED),
        lowering("StatelessTruncatedNormalV2", lower_truncated_normal, KEYED),
        lowering(
            "StatelessRandomUniformIntV2",
            lower_uniform_int,
            &["shape", "alg", "minval", "maxval"],
        ),
        lowering("StatelessRandomUniformFullIntV2", lower_full_int, KEYED),
        lowering("StatelessMultinomial", lower_multinomial, &["num_samples"]),
        lowering("StatelessRandomGetKeyCounter", lower_key_counter, &[]),
        lowering("StatelessRandomGetKeyCounterAlg", lower_key_counter, &[]),
        lowering("StatelessRandomGetAlg", lower_algorithm, &[]).of_shapes(),
    ],
};

/// What the lowerings of ops with a key read on the host.
const KEYED: &[&str] = &["shape", "alg"];

const fn lowering(
    op: &'static str,
    lower: Lower,
    host_inputs: &'static [&'static str],
) -> KernelSpec {
    KernelSpec::lowering(op, lower).with_host_inputs(host_inputs)
}

const SEED: &[&str] = &["shape", "seed"];
const KEY: &[&str] = &["shape", "key", "counter", "alg"];

const STATELESS_RANDOM_UNIFORM: OpDef = OpDef::new("StatelessRandomUniform", stateless_shape)
    .with_work(Work::per_output::<90>)
    .without_gradient();

const STATELESS_RANDOM_NORMAL: OpDef = OpDef {
    name: "StatelessRandomNormal",
    work: Work::per_output::<280>,
    ..STATELESS_RANDOM_UNIFORM
};

const STATELESS_TRUNCATED_NORMAL: OpDef = OpDef {
    name: "StatelessTruncatedNormal",
    work: Work::per_output::<1100>,
    ..STATELESS_RANDOM_UNIFORM
};

const STATELESS_RANDOM_UNIFORM_V2: OpDef = OpDef::new("StatelessRandomUniformV2", stateless_shape)
    .with_work(Work::per_output::<90>)
    .without_gradient();

const STATELESS_RANDOM_NORMAL_V2: OpDef = OpDef {
    name: "StatelessRandomNormalV2",
    work: Work::per_output::<280>,
    ..STATELESS_RANDOM_UNIFORM_V2
};

const STATELESS_TRUNCATED_NORMAL_V2: OpDef = OpDef {
    name: "StatelessTruncatedNormalV2",
    work: Work::per_output::<1100>,
    ..STATELESS_RANDOM_UNIFORM_V2
};

const STATELESS_RANDOM_GAMMA_V2: OpDef = OpDef::new("StatelessRandomGammaV2", stateless_shape)
    .with_work(Work::per_output::<15000>)
    .with_gradient(|g| gamma_gradient(g, 2));

const STATELESS_RANDOM_GAMMA_V3: OpDef = OpDef::new("StatelessRandomGammaV3", stateless_shape)
    .with_work(Work::per_output::<15000>)
    .with_gradient(|g| gamma_gradient(g, 4));

const STATELESS_PARAMETERIZED_TRUNCATED_NORMAL: OpDef =
    OpDef::new("StatelessParameterizedTruncatedNormal", stateless_shape)
        .with_work(Work::per_output::<1700>)
        .with_gradient(truncated_normal_gradient);

/// The derivative of the samples with respect to each parameter at a fixed cumulative probability.
fn truncated_normal_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, sample) = (g.grad(0)?, g.output(0));
    let [mean, deviation, low, high] = [2, 3, 4, 5].map(|i| g.input(i));
    let mut standard = |x: Output| {
        let distance = g.minus(x, mean)?;
        g.over(distance, deviation)
    };
    let (low, high, sample) = (standard(low)?, standard(high)?, standard(sample)?);
    let probability = probability_below(g, sample, low, high)?;
    let logarithm = g.add("Log", &[probability])?;
    let by_high = relative_density(g, sample, high, logarithm)?;
    let negative = g.negated(probability)?;
    let logarithm = g.add("Log1p", &[negative])?;
    let by_low = relative_density(g, sample, low, logarithm)?;
    for (i, slope) in [(3, sample), (4, by_low), (5, by_high)] {
        let adjoint = g.times(grad, slope)?;
        set_repeated(g, i, adjoint)?;
    }
    set_repeated(g, 2, grad)
}

/// The cumulative probability of the sample, clamped away from 0 and 1 so that its logarithm is
/// finite.
fn probability_below(
    g: &mut GradientContext<'_>,
    sample: Output,
    low: Output,
    high: Output,
) -> Result<Output> {
    let (least, epsilon) = match g.dtype(sample) {
        DType::Half => (f16::MIN_POSITIVE.to_f64(), f16::EPSILON.to_f64()),
        DType::Float => (f32::MIN_POSITIVE.into(), f32::EPSILON.into()),
        _ => (f64::MIN_POSITIVE, f64::EPSILON),
    };
    let (below_low, below_high) = (normal_distribution(g, low)?, normal_distribution(g, high)?);
    let below_sample = normal_distribution(g, sample)?;
    let (part, whole) = (g.minus(below_sample, below_low)?, g.minus(below_high, below_low)?);
    let probability = g.over(part, whole)?;
    let (least, most) = (g.number_like(sample, least)?, g.number_like(sample, 1.0 - epsilon)?);
    let capped = g.add("Minimum", &[probability, most])?;
    g.add("Maximum", &[capped, least])
}

/// The ratio of the densities at a bound and at the sample, times `exp(logarithm)`.
fn relative_density(
    g: &mut GradientContext<'_>,
    sample: Output,
    limit: Output,
    logarithm: Output,
) -> Result<Output> {
    let (sample, limit) = (g.squared(sample)?, g.squared(limit)?);
    let difference = g.minus(sample, limit)?;
    let half = g.scaled(difference, 0.5)?;
    let exponent = g.plus(half, logarithm)?;
    g.add("Exp", &[exponent])
}

/// The normal cumulative distribution function, by `Erf` or `Erfc`, whichever cancels less.
fn normal_distribution(g: &mut GradientContext<'_>, x: Output) -> Result<Output> {
    let scaled = g.scaled(x, FRAC_1_SQRT_2)?;
    let size = g.add("Abs", &[scaled])?;
    let (limit, zero) = (g.number_like(x, FRAC_1_SQRT_2)?, g.number_like(x, 0.0)?);
    let (is_near, is_positive) =
        (g.add("Less", &[size, limit])?, g.add("Greater", &[scaled, zero])?);
    let (erf, tail) = (g.add("Erf", &[scaled])?, g.add("Erfc", &[size])?);
    let (near, right) = (g.shifted(erf, 1.0)?, g.number_minus(2.0, tail)?);
    let far = g.select(is_positive, right, tail)?;
    let twice = g.select(is_near, near, far)?;
    g.scaled(twice, 0.5)
}

/// The output shape is the value of input 0; seed or key inputs have fixed shapes.
fn stateless_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_source(c)?;
    shape::from_first_input(c)
}

fn stateless_int_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_source(c)?;
    uniform_int_shape(c)
}

fn stateless_multinomial_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_source(c)?;
    multinomial_shape(c)
}

fn shuffle_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_source(c)?;
    shape::unchanged(c)
}

fn check_source(c: &ShapeContext<'_>) -> Result<()> {
    if let Ok(range) = c.input_range("seed") {
        return check_len(&c.with_rank(range.start, "seed", 1)?, "seed", 2);
    }
    let key = c.input_range("key")?.start;
    check_len(&c.with_rank(key, "key", 1)?, "key", 1)?;
    c.with_rank(key + 1, "counter", 1)?;
    c.with_rank(key + 2, "alg", 0)?;
    Ok(())
}

fn check_len(vector: &PartialShape, name: &str, len: usize) -> Result<()> {
    ensure!(
        vector.dim(0).is_none_or(|d| d == len),
        InvalidArgument,
        "{name} must have shape [{len}], not {vector}"
    );
    Ok(())
}

fn key_counter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    check_len(&c.with_rank(0, "seed", 1)?, "seed", 2)?;
    c.set_output(0, PartialShape::new([Some(1)]));
    c.set_output(1, PartialShape::new([Some(2)]));
    c.set_output(2, PartialShape::scalar());
    Ok(())
}

/// Key and counter for two seeds, and the algorithm if the op has that output.
fn get_key_counter(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (key, counter) = philox_from_seed(ctx.input(0)?)?.words();
        ctx.set_output(0, Tensor::vector(&[key])?)?;
        ctx.set_output(1, Tensor::vector(&counter)?)?;
        if ctx.num_outputs() > 2 {
            ctx.set_output(2, Tensor::scalar(ALGORITHM_PHILOX))?;
        }
        Ok(())
    })
}

fn lower_key_counter(l: &mut Lowering<'_>) -> Result<()> {
    let stream = stream_of_seed(l, 0)?;
    let (key, [low, high]) = stream.words();
    l.set(0, key.reshape(&[1]))?;
    l.set(1, low.reshape(&[1]).concatenate(&[high.reshape(&[1])], 0))?;
    match l.node().outputs.len() {
        2 => Ok(()),
        _ => l.set_host(2, Tensor::scalar(ALGORITHM_PHILOX)),
    }
}

fn lower_algorithm(l: &mut Lowering<'_>) -> Result<()> {
    l.set_host(0, Tensor::scalar(ALGORITHM_PHILOX))
}

/// The algorithm of this device.
fn get_algorithm(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| ctx.set_output(0, Tensor::scalar(ALGORITHM_PHILOX)))
}
