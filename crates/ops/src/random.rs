//! Random ops that keep a generator between steps: uniform, normal, gamma, Poisson, shuffles, draws.
//!
//! The numbers are TensorFlow's, bit for bit, for the same seeds. A step sets its stretch of the
//! stream aside first, under a lock; then any number of threads fill any part of the output.

mod fill;
mod parameterized;
mod selection;
mod source;

pub(crate) use fill::{full_int, normal, truncated_normal, uniform, uniform_int};
pub(crate) use parameterized::{binomial, gamma, poisson, stateless_bounded_normal};
pub(crate) use selection::{multinomial, shuffle_rows};
pub(crate) use source::{ALGORITHM_PHILOX, own_generator, philox_from_seed};

use parameterized::{bounded_normal, gamma_grad};
use thalweg_graph::{Flag, OpDef, ShapeContext, shape};
use thalweg_kernel::{Family, KernelSpec};
use thalweg_tensor::{PartialShape, Result, bf16, ensure, f16};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RANDOM_UNIFORM,
        RANDOM_STANDARD_NORMAL,
        TRUNCATED_NORMAL,
        RANDOM_UNIFORM_INT,
        RANDOM_SHUFFLE,
        MULTINOMIAL,
        RANDOM_GAMMA,
        RANDOM_GAMMA_GRAD,
        RANDOM_POISSON,
        RANDOM_POISSON_V2,
        PARAMETERIZED_TRUNCATED_NORMAL,
    ],
    kernels: &[
        cpu_kernel!("RandomUniform", "dtype" in [f16, bf16, f32, f64] => uniform; host_inputs: &["shape"]),
        cpu_kernel!("RandomStandardNormal", "dtype" in [f16, bf16, f32, f64] => normal; host_inputs: &["shape"]),
        cpu_kernel!("TruncatedNormal", "dtype" in [f16, bf16, f32, f64] => truncated_normal; host_inputs: &["shape"]),
        cpu_kernel!("RandomUniformInt", "Tout" in [i32, i64] => uniform_int; host_inputs: &["shape", "minval", "maxval"]),
        KernelSpec { op: "RandomShuffle", create: shuffle_rows, ..KernelSpec::CPU },
        cpu_kernel!("Multinomial", "T" in [f16, bf16, f32, f64] => multinomial; host_inputs: &["num_samples"]),
        cpu_kernel!("RandomGamma", "T" in [f16, f32, f64] => gamma; host_inputs: &["shape"]),
        cpu_kernel!("RandomGammaGrad", "T" in [f32, f64] => gamma_grad),
        cpu_kernel!("RandomPoisson", "dtype" in [f16, f32, f64] => poisson; host_inputs: &["shape"]),
        cpu_kernel!("RandomPoissonV2", "dtype" in [f16, f32, f64, i32, i64] => poisson; host_inputs: &["shape"]),
        cpu_kernel!("ParameterizedTruncatedNormal", "dtype" in [f16, f32, f64] => bounded_normal; host_inputs: &["shape"]),
    ],
};

const RANDOM_UNIFORM: OpDef = OpDef {
    name: "RandomUniform",
    inputs: &["shape: T"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "dtype: {half, bfloat16, float, double}",
        "T: {int32, int64}",
    ],
    shape: shape::from_first_input,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

const RANDOM_STANDARD_NORMAL: OpDef = OpDef { name: "RandomStandardNormal", ..RANDOM_UNIFORM };

const TRUNCATED_NORMAL: OpDef = OpDef { name: "TruncatedNormal", ..RANDOM_UNIFORM };

const RANDOM_UNIFORM_INT: OpDef = OpDef {
    name: "RandomUniformInt",
    inputs: &["shape: T", "minval: Tout", "maxval: Tout"],
    outputs: &["output: Tout"],
    attrs: &["seed: int = 0", "seed2: int = 0", "Tout: {int32, int64}", "T: {int32, int64}"],
    shape: uniform_int_shape,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

/// As the first input says; the bounds are scalars.
pub(crate) fn uniform_int_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for name in ["minval", "maxval"] {
        c.with_rank(c.input_range(name)?.start, name, 0)?;
    }
    shape::from_first_input(c)
}

const RANDOM_SHUFFLE: OpDef = OpDef {
    name: "RandomShuffle",
    inputs: &["value: T"],
    outputs: &["output: T"],
    attrs: &["seed: int = 0", "seed2: int = 0", "T: type"],
    shape: shape::unchanged,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

const MULTINOMIAL: OpDef = OpDef {
    name: "Multinomial",
    inputs: &["logits: T", "num_samples: int32"],
    outputs: &["output: output_dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
        "output_dtype: {int32, int64} = DT_INT64",
    ],
    shape: multinomial_shape,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

/// Rows of logits by the number of draws.
pub(crate) fn multinomial_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let logits = c.with_rank(0, "logits", 2)?;
    c.with_rank(1, "num_samples", 0)?;
    let samples = match c.partial_value(1).and_then(|value| value.elements[0]) {
        None => None,
        Some(samples) => {
            ensure!(
                samples >= 0,
                InvalidArgument,
                "num_samples should be nonnegative, got {samples}"
            );
            Some(samples as usize)
        }
    };
    c.set_output(0, PartialShape::new([logits.dim(0), samples]));
    Ok(())
}

const RANDOM_GAMMA: OpDef = OpDef {
    name: "RandomGamma",
    inputs: &["shape: S", "alpha: T"],
    outputs: &["output: T"],
    attrs: &["seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "T: {half, float, double}"],
    shape: samples_by_parameters,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

/// As the first input says, followed by the shape of the second.
fn samples_by_parameters(c: &mut ShapeContext<'_>) -> Result<()> {
    let samples = c.shape_from_input(0)?;
    let joined = match (samples.dims(), c.input(1).dims()) {
        (Some(samples), Some(parameters)) => {
            PartialShape::new(samples.iter().chain(parameters).copied())
        }
        _ => PartialShape::unknown(),
    };
    c.set_output(0, joined);
    Ok(())
}

const RANDOM_GAMMA_GRAD: OpDef = OpDef {
    name: "RandomGammaGrad",
    inputs: &["alpha: T", "sample: T"],
    outputs: &["output: T"],
    attrs: &["T: {float, double}"],
    shape: shape::broadcast,
    ..OpDef::DEFAULT
};

const RANDOM_POISSON: OpDef = OpDef {
    name: "RandomPoisson",
    inputs: &["shape: S", "rate: dtype"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "S: {int32, int64}",
        "dtype: {half, float, double}",
    ],
    shape: samples_by_parameters,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

const RANDOM_POISSON_V2: OpDef = OpDef {
    name: "RandomPoissonV2",
    inputs: &["shape: S", "rate: R"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "S: {int32, int64}",
        "R: {half, float, double, int32, int64} = DT_DOUBLE",
        "dtype: {half, float, double, int32, int64} = DT_INT64",
    ],
    shape: samples_by_parameters,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

const PARAMETERIZED_TRUNCATED_NORMAL: OpDef = OpDef {
    name: "ParameterizedTruncatedNormal",
    inputs: &["shape: T", "means: dtype", "stdevs: dtype", "minvals: dtype", "maxvals: dtype"],
    outputs: &["output: dtype"],
    attrs: &[
        "seed: int = 0",
        "seed2: int = 0",
        "dtype: {half, bfloat16, float, double}",
        "T: {int32, int64}",
    ],
    shape: bounded_normal_shape,
    flags: &[Flag::Stateful],
    ..OpDef::DEFAULT
};

/// As the first input says; the parameters are scalars or vectors.
fn bounded_normal_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for input in 1..c.num_inputs() {
        let parameter = c.input(input);
        ensure!(
            parameter.rank().is_none_or(|rank| rank <= 1),
            InvalidArgument,
            "a parameter must be a scalar or vector, got shape {parameter}"
        );
    }
    shape::from_first_input(c)
}
