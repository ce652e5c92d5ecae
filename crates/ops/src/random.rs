//! Stateful random ops: uniform, normal, gamma, Poisson, shuffle, multinomial.
//!
//! For the same seeds the numbers equal TensorFlow's bit for bit. A step first reserves its range
//! of the random stream, under a lock; then any number of threads fill the output.

mod fill;
mod lowering;
mod parameterized;
mod selection;
mod source;
mod stream_lowering;

pub(crate) use fill::{fill_same, full_int, normal, truncated_normal, uniform, uniform_int};
pub(crate) use lowering::{
    lower_full_int, lower_multinomial, lower_normal, lower_truncated_normal, lower_uniform,
    lower_uniform_int, scalars, stream_of_seed,
};
pub(crate) use parameterized::{binomial, gamma, poisson, stateless_bounded_normal};
pub(crate) use selection::{multinomial, shuffle_rows};
pub(crate) use source::{ALGORITHM_AUTO, ALGORITHM_PHILOX, own_generator, philox_from_seed};

pub(crate) use stream_lowering::Stream;

use lowering::WORDS;
use parameterized::{bounded_normal, gamma_grad};
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{Family, KernelSpec, Lower};
use thalweg_tensor::{PartialShape, Result, bf16, ensure, f16};

use crate::gradients::{Arithmetic, set_repeated};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RANDOM_UNIFORM,
        RANDOM_STANDARD_NORMAL,
        TRUNCATED_NORMAL,
        OpDef::new("RandomUniformInt", uniform_int_shape).with_work(Work::per_output::<280>),
        OpDef::new("RandomShuffle", shape::unchanged)
            .with_work(Work::serial::<5>)
            .without_gradient(),
        OpDef::new("Multinomial", multinomial_shape)
            .with_work(work::multinomial)
            .without_gradient(),
        OpDef::new("RandomGamma", samples_by_parameters)
            .with_work(Work::per_output::<15000>)
            .with_gradient(|g| gamma_gradient(g, 1)),
        OpDef::new("RandomGammaGrad", shape::broadcast).with_work(Work::per_output::<15000>),
        OpDef::new("RandomPoisson", samples_by_parameters).with_work(Work::per_output::<7000>),
        OpDef::new("RandomPoissonV2", samples_by_parameters).with_work(Work::per_output::<7000>),
        OpDef::new("ParameterizedTruncatedNormal", bounded_normal_shape)
            .with_work(Work::per_output::<1700>)
            .without_gradient(),
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
        lowering("RandomUniform", lower_uniform, &["shape"]),
        lowering("RandomStandardNormal", lower_normal, &["shape"]),
        lowering("TruncatedNormal", lower_truncated_normal, &["shape"]),
        lowering("RandomUniformInt", lower_uniform_int, &["shape", "minval", "maxval"]),
        lowering("Multinomial", lower_multinomial, &["num_samples"]),
    ],
};

/// The lowering of an op with a generator of its own.
const fn lowering(
    op: &'static str,
    lower: Lower,
    host_inputs: &'static [&'static str],
) -> KernelSpec {
    KernelSpec::lowering(op, lower).with_host_inputs(host_inputs).with_step_words(WORDS)
}

const RANDOM_UNIFORM: OpDef = OpDef::new("RandomUniform", shape::from_first_input)
    .with_work(Work::per_output::<90>)
    .without_gradient();

const RANDOM_STANDARD_NORMAL: OpDef =
    OpDef { name: "RandomStandardNormal", work: Work::per_output::<280>, ..RANDOM_UNIFORM };

const TRUNCATED_NORMAL: OpDef =
    OpDef { name: "TruncatedNormal", work: Work::per_output::<1100>, ..RANDOM_UNIFORM };

/// The output shape is the value of input 0; the bounds are scalars.
pub(crate) fn uniform_int_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for name in ["minval", "maxval"] {
        c.with_rank(c.input_range(name)?.start, name, 0)?;
    }
    shape::from_first_input(c)
}

/// The output shape is `[rows of logits, num_samples]`.
pub(crate) fn multinomial_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let logits = c.with_rank(0, "logits", 2)?;
    c.with_rank(1, "num_samples", 0)?;
    let samples = match c.partial_value(1).and_then(|v| v.first()) {
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

/// The derivative of the samples with respect to `alpha`, input `i`, at a fixed cumulative
/// probability.
pub(crate) fn gamma_gradient(g: &mut GradientContext<'_>, i: usize) -> Result<()> {
    let (grad, alpha, sample) = (g.grad(0)?, g.input(i), g.output(0));
    let slope = g.add("RandomGammaGrad", &[alpha, sample])?;
    let adjoint = g.times(grad, slope)?;
    set_repeated(g, i, adjoint)
}

/// The output shape is the value of input 0 followed by the shape of input 1.
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

/// The output shape is the value of input 0; the parameters are scalars or vectors.
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

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use crate::testing::{Call, call, code};

    fn seeded(op: &'static str) -> Call {
        let is_stateful = !op.starts_with("Stateless");
        if is_stateful { call(op).attr("seed", 7i64).attr("seed2", -11i64) } else { call(op) }
    }

    fn ints(values: &[i32]) -> Tensor {
        Tensor::vector(values).unwrap()
    }

    #[test]
    fn shapes() {
        let uniform = || call("RandomUniform").attr("dtype", DType::Float);
        assert_eq!(uniform().constant(ints(&[2, 3])).infer(), "[2,3]");
        assert_eq!(uniform().shape(DType::Int32, "2").infer(), "[?,?]");
        assert_eq!(uniform().shape(DType::Int32, "unknown").infer(), "<unknown>");
        let gamma =
            |alpha: &str| call("RandomGamma").constant(ints(&[5])).shape(DType::Float, alpha);
        assert_eq!(gamma("2,?").infer(), "[5,2,?]");
        assert_eq!(gamma("").infer(), "[5]");
        let draw = |logits: &str| call("Multinomial").shape(DType::Float, logits);
        assert_eq!(draw("4,7").constant(Tensor::scalar(3)).infer(), "[4,3]");
        assert_eq!(draw("?,7").shape(DType::Int32, "").infer(), "[?,?]");
        assert!(
            draw("4,7,1").constant(Tensor::scalar(3)).infer().contains("logits must have rank 2")
        );
        assert!(draw("4,7").constant(Tensor::scalar(-1)).infer().contains("nonnegative"));
        let keyed = |key: &str| {
            let shape = call("StatelessRandomNormalV2").constant(ints(&[2]));
            shape.shape(DType::UInt64, key).shape(DType::UInt64, "2").shape(DType::Int32, "")
        };
        assert_eq!(keyed("1").infer(), "[2]");
        assert_eq!(keyed("?").infer(), "[2]");
        assert!(keyed("2").infer().contains("key must have shape [1], not [2]"));
        let grad = call("RandomGammaGrad").shape(DType::Float, "2,1").shape(DType::Float, "3");
        assert_eq!(grad.infer(), "[2,3]");
    }

    /// A million elements in many blocks give the same bits in any order of the blocks.
    #[test]
    fn blocks_in_any_order_give_the_same_bits() {
        let shape = || ints(&[1000, 257]);
        let key = || Tensor::vector(&[1u64]).unwrap();
        let counter = || Tensor::vector(&[2u64, 3]).unwrap();
        let alpha = || Tensor::vector(&[0.5f32, 2.0, 30.0]).unwrap();
        let logits = || {
            let values: Vec<f32> = (0..300).map(|i| (i as f32).sin()).collect();
            Tensor::from_slice(Shape::new(&[100, 3]).unwrap(), &values).unwrap()
        };
        let calls: [fn() -> Call; 4] = [
            || seeded("RandomUniform").attr("dtype", DType::Half),
            || seeded("RandomStandardNormal").attr("dtype", DType::Float),
            || seeded("TruncatedNormal").attr("dtype", DType::Double),
            || seeded("TruncatedNormal").attr("dtype", DType::BFloat16),
        ];
        let same = |make: &dyn Fn() -> Call| {
            let (forwards, backwards) = (make().run().unwrap(), make().backwards().run().unwrap());
            assert_eq!(forwards.as_bytes().unwrap(), backwards.as_bytes().unwrap());
        };
        for make in calls {
            same(&|| make().input(shape()));
        }
        same(&|| {
            let call = seeded("StatelessRandomUniformFullIntV2").attr("dtype", DType::Int64);
            call.input(shape()).input(key()).input(counter()).input(Tensor::scalar(1))
        });
        same(&|| seeded("RandomGamma").input(ints(&[3001])).input(alpha()));
        same(&|| seeded("Multinomial").input(logits()).input(Tensor::scalar(57)));
        same(&|| {
            let items: Vec<i16> = (0..30_000).collect();
            seeded("RandomShuffle").input(Tensor::vector(&items).unwrap())
        });
    }

    #[test]
    fn mistakes() {
        let code = |call: Call| call.run().unwrap_err().code();
        let uniform = || seeded("RandomUniform").attr("dtype", DType::Float);
        let long = |values: &[i64]| Tensor::vector(values).unwrap();
        assert_eq!(code(uniform().input(Tensor::scalar(3))), Code::InvalidArgument);
        assert_eq!(code(uniform().input(ints(&[-1]))), Code::InvalidArgument);
        assert_eq!(code(uniform().input(long(&[1 << 40, 1 << 40]))), Code::InvalidArgument);
        assert_eq!(code(uniform().input(long(&[1 << 40]))), Code::ResourceExhausted);
        let integers = |low: i64, high: i64| {
            let call = seeded("RandomUniformInt").input(ints(&[2]));
            call.input(Tensor::scalar(low)).input(Tensor::scalar(high))
        };
        assert_eq!(code(integers(5, 5)), Code::InvalidArgument);
        assert!(integers(i64::MIN, i64::MAX).run().is_ok());
        let logits = |rows: usize, classes: usize| {
            let shape = Shape::new(&[rows, classes]).unwrap();
            seeded("Multinomial").input(Tensor::zeros(DType::Float, shape).unwrap())
        };
        assert_eq!(code(logits(2, 0).input(Tensor::scalar(1))), Code::InvalidArgument);
        assert_eq!(code(logits(2, 1).input(Tensor::scalar(-1))), Code::InvalidArgument);
        assert_eq!(logits(0, 3).input(Tensor::scalar(5)).run().unwrap().num_elements(), 0);
        let seed = |seed: &[i64]| {
            let call = call("StatelessRandomNormal").attr("dtype", DType::Float).input(ints(&[2]));
            call.input(Tensor::vector(seed).unwrap())
        };
        assert_eq!(code(seed(&[1])), Code::InvalidArgument);
        assert!(seed(&[i64::MIN, i64::MAX]).run().is_ok());
        let keyed = |counter: &[u64], alg: i32| {
            let call = call("StatelessRandomUniformV2").attr("dtype", DType::Float);
            call.input(ints(&[2]))
                .input(Tensor::vector(&[1u64]).unwrap())
                .input(Tensor::vector(counter).unwrap())
                .input(Tensor::scalar(alg))
        };
        assert_eq!(code(keyed(&[1], 1)), Code::InvalidArgument);
        assert_eq!(code(keyed(&[1, 2], 2)), Code::InvalidArgument);
        assert!(keyed(&[1, 2], 3).run().is_ok());
    }

    #[test]
    fn parameters_of_any_kind() {
        let bounded = |shape: &[i32], [mean, stddev, low, high]: [f32; 4]| {
            let call = seeded("ParameterizedTruncatedNormal").input(ints(shape));
            [mean, stddev, low, high].iter().fold(call, |call, &x| call.input(Tensor::scalar(x)))
        };
        let values = bounded(&[1000], [0.0, 1.0, -0.5, 0.5]).run().unwrap();
        assert!(values.as_slice::<f32>().unwrap().iter().all(|x| x.abs() <= 0.5));
        assert_eq!(
            bounded(&[2], [0.0, -1.0, 0.0, 1.0]).run().unwrap_err().code(),
            Code::InvalidArgument
        );
        assert_eq!(
            bounded(&[], [0.0, 1.0, 0.0, 1.0]).run().unwrap_err().code(),
            Code::InvalidArgument
        );
        assert_eq!(
            bounded(&[2], [f32::NAN, 1.0, 0.0, 1.0]).run().unwrap_err().code(),
            Code::Internal
        );
        let binomial = |shape: &[i32]| {
            let counts =
                Tensor::from_slice(Shape::new(&[2, 1]).unwrap(), &[10.0f32, 20.0]).unwrap();
            call("StatelessRandomBinomial")
                .input(ints(shape))
                .input(ints(&[1, 2]))
                .input(counts)
                .input(Tensor::vector(&[0.1f32, 0.5, 0.7]).unwrap())
        };
        let drawn = binomial(&[2, 3]).run().unwrap();
        assert_eq!(drawn.as_slice::<i64>().unwrap(), [3, 6, 5, 2, 8, 13]);
        assert_eq!(code(binomial(&[3, 3]).run()), Some(Code::InvalidArgument));
        let poisson = seeded("RandomPoissonV2")
            .input(ints(&[3]))
            .input(Tensor::vector(&[f64::NAN, f64::INFINITY, -1.0]).unwrap());
        assert_eq!(poisson.run().unwrap().shape().dims(), [3, 3]);
    }
}
