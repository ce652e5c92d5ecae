//! Random kernels with parameters given as tensors: gamma, Poisson, binomial, truncated normal.

use num_traits::{AsPrimitive, Float};
use smallvec::SmallVec;
use thalweg_graph::shape::broadcast_shapes;
use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, ensure, err, f16};

use super::source::{Source, shape_position};
use crate::math::random::distributions::Real;
use crate::math::random::gamma::{DOUBLE, Precision, SINGLE, sample_derivative};
use crate::math::random::philox::Philox;
use crate::math::random::rejection::{Binomial, FromSample, Gamma, Poisson, Sampler, fill_samples};
use crate::math::random::truncated::{
    COMMON_BATCH, Truncation, TruncationError, blocks_reserved, fill_batches, fill_columns,
};
use crate::split::for_each_rows;

/// Nanoseconds per value of rejection sampling: a few normal values and logarithms.
const SAMPLE_NANOSECONDS: f64 = 100.0;

/// Gamma values of rate 1 and shape `alpha`.
pub(crate) fn gamma<T: FromSample + Element>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    sampled::<_, T>(init, "alpha", Gamma::new)
}

/// Poisson values; `parameter` is the name of the input with the rates.
pub(crate) fn poisson<T: FromSample + Element>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let parameter = if init.node.input_range("rate").is_ok() { "rate" } else { "lam" };
    sampled::<_, T>(init, parameter, Poisson::new::<T>)
}

/// Values by rejection sampling, with one parameter each.
///
/// A stateful op draws `shape` values for each parameter. The shape input of a stateless op is the
/// whole output shape, whose last dimensions must be the parameter's shape.
fn sampled<S, T>(
    init: &KernelInit<'_>,
    parameter: &'static str,
    sampler: fn(f64) -> S,
) -> Result<AnyKernel>
where
    S: Sampler + 'static,
    T: FromSample + Element,
{
    let source = Source::new(init)?;
    let input = init.node.input_range(parameter)?.start;
    AnyKernel::new(move |ctx| {
        let mut shape = ctx.shape_input(0, "shape")?;
        let parameters = ctx.input(input)?;
        if let Source::Own(_) = source {
            shape = Shape::new(&[shape.dims(), parameters.shape().dims()].concat())?;
        } else {
            check_suffix(&shape, parameters.shape())?;
        }
        let mut out = ctx.allocate_output(0, shape)?;
        if out.num_elements() > 0 {
            let philox = source.for_outputs(ctx, out.num_elements())?;
            let wide = to_double(ctx, parameters)?;
            let wide = wide.as_slice::<f64>()?;
            let sampler = |i: usize| sampler(wide[i]);
            fill_out::<_, T>(ctx, philox, &sampler, wide.len(), &mut out)?;
        }
        ctx.set_output(0, out)
    })
}

fn fill_out<S: Sampler, T: FromSample + Element>(
    ctx: &KernelContext<'_>,
    philox: Philox,
    sampler: &(dyn Fn(usize) -> S + Sync),
    parameters: usize,
    out: &mut Tensor,
) -> Result<()> {
    let samples = out.num_elements() / parameters;
    for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, SAMPLE_NANOSECONDS, |first, part| {
        fill_samples(philox, sampler, [samples, parameters], first, part);
    })
}

fn check_suffix(shape: &Shape, parameters: &Shape) -> Result<()> {
    ensure!(
        shape.ends_with(parameters),
        InvalidArgument,
        "Shape passed in must end with broadcasted shape: {shape} does not end with {parameters}"
    );
    Ok(())
}

/// The elements converted to f64.
fn to_double(ctx: &KernelContext<'_>, tensor: &Tensor) -> Result<Tensor> {
    fn widen<T: Element + AsPrimitive<f64>>(
        ctx: &KernelContext<'_>,
        tensor: &Tensor,
    ) -> Result<Tensor> {
        let mut wide = ctx.allocate(DType::Double, tensor.shape().clone())?;
        let target = wide.as_mut_slice::<f64>()?;
        target.iter_mut().zip(tensor.as_slice::<T>()?).for_each(|(w, t)| *w = t.as_());
        Ok(wide)
    }
    match tensor.dtype() {
        DType::Double => Ok(tensor.clone()),
        DType::Float => widen::<f32>(ctx, tensor),
        DType::Half => widen::<f16>(ctx, tensor),
        DType::Int32 => widen::<i32>(ctx, tensor),
        DType::Int64 => widen::<i64>(ctx, tensor),
        other => Err(err!(InvalidArgument, "a parameter cannot be {other}")),
    }
}

/// Number of successes in `counts` trials of probability `probs`; the two broadcast.
pub(crate) fn binomial<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + Float + Into<f64>,
{
    let source = Source::new(init)?;
    let counts = init.node.input_range("counts")?.start;
    let probs = init.node.input_range("probs")?.start;
    let shape = shape_position(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(shape, "shape")?;
        let (count, prob) = (ctx.input(counts)?, ctx.input(probs)?);
        let common = broadcast(&[count.shape(), prob.shape()])?;
        check_suffix(&shape, &common)?;
        let mut out = ctx.allocate_output(0, shape)?;
        let n = common.num_elements();
        let elements = out.num_elements() as u64;
        let philox = if source.is_state() {
            // As TensorFlow reserves them: two hundred numbers for each group of up to four
            // samples.
            let samples = elements.checked_div(n as u64).unwrap_or(0);
            let numbers = (n as u64).wrapping_mul(200).wrapping_mul(samples + 3) / 4;
            source.start(ctx, |generator| generator.reserve_outputs(numbers))?
        } else if elements > 0 {
            source.for_outputs(ctx, out.num_elements())?
        } else {
            return ctx.set_output(0, out);
        };
        if elements > 0 {
            let count = Operand::<T>::new(count, &common)?;
            let prob = Operand::<T>::new(prob, &common)?;
            let sampler = |i: usize| Binomial::new(count.at(i), prob.at(i));
            match out.dtype() {
                DType::Half => fill_out::<_, f16>(ctx, philox, &sampler, n, &mut out),
                DType::Float => fill_out::<_, f32>(ctx, philox, &sampler, n, &mut out),
                DType::Double => fill_out::<_, f64>(ctx, philox, &sampler, n, &mut out),
                DType::Int32 => fill_out::<_, i32>(ctx, philox, &sampler, n, &mut out),
                _ => fill_out::<_, i64>(ctx, philox, &sampler, n, &mut out),
            }?;
        }
        ctx.set_output(0, out)
    })
}

/// The broadcast shape of several tensors.
fn broadcast(shapes: &[&Shape]) -> Result<Shape> {
    let mut common = PartialShape::scalar();
    for &shape in shapes {
        common = broadcast_shapes(&common, &PartialShape::from(shape))?;
    }
    common
        .to_shape()
        .ok_or_else(|| err!(InvalidArgument, "shape {common} has too many elements for 63 bits"))
}

/// A tensor broadcast to a shape.
struct Operand<'a, T> {
    elements: &'a [T],
    /// Size and stride of each dimension of the common shape, innermost first; broadcast dimensions
    /// have stride 0.
    strides: SmallVec<[(usize, usize); 4]>,
    is_whole: bool,
}

impl<'a, T: Element> Operand<'a, T> {
    fn new(tensor: &'a Tensor, common: &Shape) -> Result<Self> {
        let mut stride = 1;
        let mut strides = SmallVec::new();
        let own = tensor.shape().iter().rev().copied().chain(std::iter::repeat(1));
        for (&size, own) in common.iter().rev().zip(own) {
            strides.push((size, if own == 1 { 0 } else { stride }));
            stride *= own;
        }
        let is_whole = tensor.num_elements() == common.num_elements();
        Ok(Operand { elements: tensor.as_slice()?, strides, is_whole })
    }

    /// The element at `index` of the common shape.
    fn at(&self, index: usize) -> T {
        if self.is_whole {
            return self.elements[index];
        }
        let (mut rest, mut position) = (index, 0);
        for &(size, stride) in &self.strides {
            position += rest % size * stride;
            rest /= size;
        }
        self.elements[position]
    }
}

/// d sample / d alpha for samples of gamma distributions.
pub(crate) fn gamma_grad<T>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + AsPrimitive<f64>,
    f64: AsPrimitive<T>,
{
    let precision: Precision = if T::DTYPE == DType::Float { SINGLE } else { DOUBLE };
    AnyKernel::new(move |ctx| {
        let (alpha, sample) = (ctx.input(0)?, ctx.input(1)?);
        let common = broadcast(&[alpha.shape(), sample.shape()])?;
        let mut out = ctx.allocate_output(0, common.clone())?;
        let alpha = Operand::<T>::new(alpha, &common)?;
        let sample = Operand::<T>::new(sample, &common)?;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, SAMPLE_NANOSECONDS, |first, part| {
            for (i, value) in (first..).zip(part) {
                let slope = sample_derivative(alpha.at(i).as_(), sample.at(i).as_(), precision);
                *value = slope.as_();
            }
        })?;
        ctx.set_output(0, out)
    })
}

/// Truncated normal values, with parameters for each row of the output.
pub(crate) fn bounded_normal<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + Real + Float,
{
    let source = Source::new(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(0, "shape")?;
        let Some((&rows, rest)) = shape.split_first() else {
            return Err(err!(InvalidArgument, "Shape tensor must not be empty"));
        };
        let row_len = rest.iter().product::<usize>();
        const NAMES: [&str; 4] = ["means", "stddevs", "minvals", "maxvals"];
        for (input, name) in (1..).zip(NAMES) {
            check_row_parameter(ctx.input(input)?, name, rows)?;
        }
        let is_common = ctx.input(1)?.num_elements() == 1
            && ctx.input(2)?.num_elements() == 1
            && ctx.input(3)?.rank() == 0
            && ctx.input(4)?.rank() == 0;
        let mut out = ctx.allocate_output(0, shape)?;
        if out.num_elements() > 0 {
            let (batches, batch_len) = if is_common {
                ((out.num_elements() as u64).div_ceil(COMMON_BATCH), COMMON_BATCH)
            } else {
                (rows as u64, row_len as u64)
            };
            let blocks = blocks_reserved(batches, batch_len);
            let philox = source.start(ctx, |generator| generator.reserve(blocks))?;
            let [mean, stddev, minval, maxval] =
                [ctx.slice::<T>(1)?, ctx.slice(2)?, ctx.slice(3)?, ctx.slice(4)?];
            let pick = |values: &[T], row: usize| values[if values.len() == 1 { 0 } else { row }];
            let parameters = |row: usize| Truncation {
                mean: pick(mean, row),
                stddev: pick(stddev, row),
                minval: pick(minval, row),
                maxval: pick(maxval, row),
            };
            fill_batches(philox, batch_len as usize, parameters, out.as_mut_slice()?)
                .map_err(truncation_error)?;
        }
        ctx.set_output(0, out)
    })
}

fn check_row_parameter(tensor: &Tensor, name: &str, rows: usize) -> Result<()> {
    ensure!(
        tensor.rank() <= 1,
        InvalidArgument,
        "Input {name} should be a scalar or vector, got shape: {}",
        tensor.shape()
    );
    let len = tensor.num_elements();
    ensure!(
        len == 1 || len == rows,
        InvalidArgument,
        "Input {name} should have length 1 or shape[0] ({rows}), got shape: {}",
        tensor.shape()
    );
    Ok(())
}

fn truncation_error(error: TruncationError) -> thalweg_tensor::Error {
    match error {
        TruncationError::InvalidParameters => err!(
            InvalidArgument,
            "Invalid parameters: stddev must be positive, minval below maxval, and one of them finite"
        ),
        TruncationError::NothingAccepted => {
            err!(Internal, "the truncated normal sampler did not accept a value")
        }
    }
}

/// Truncated normal values, with parameters that broadcast to the output's last dimensions.
pub(crate) fn stateless_bounded_normal<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Element + Real + Float,
{
    let source = Source::new(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(0, "shape")?;
        let inputs = [ctx.input(2)?, ctx.input(3)?, ctx.input(4)?, ctx.input(5)?];
        let common = broadcast(&inputs.map(Tensor::shape))?;
        check_suffix(&shape, &common)?;
        let mut out = ctx.allocate_output(0, shape)?;
        if out.num_elements() > 0 {
            let philox = source.for_outputs(ctx, out.num_elements())?;
            let operand = |tensor| Operand::<T>::new(tensor, &common);
            let [mean, stddev, minval, maxval] = [
                operand(inputs[0])?,
                operand(inputs[1])?,
                operand(inputs[2])?,
                operand(inputs[3])?,
            ];
            let parameters = |i: usize| Truncation {
                mean: mean.at(i),
                stddev: stddev.at(i),
                minval: minval.at(i),
                maxval: maxval.at(i),
            };
            fill_columns(philox, common.num_elements(), parameters, out.as_mut_slice()?)
                .map_err(truncation_error)?;
        }
        ctx.set_output(0, out)
    })
}
