//! Random kernels with one distribution for all elements.

use thalweg_kernel::{AnyKernel, KernelContext, KernelInit};
use thalweg_tensor::{DType, Element, Result, bail, ensure};

use super::source::{Source, shape_position};
use crate::math::random::distributions::{
    Distribution, FullInt, Integer, Normal, Real, TruncatedNormal, Uniform, UniformInt, fill,
};
use crate::math::random::philox::Philox;
use crate::split::Disjoint;

/// Nanoseconds per group of values: random bits only, or also a logarithm and a sine.
const PLAIN_NANOSECONDS: f64 = 3.0;

fn normal_nanoseconds<T: Element>() -> f64 {
    if T::DTYPE == DType::Double { 36.0 } else { 10.0 }
}

/// Uniform in [0, 1).
pub(crate) fn uniform<T: Real + Element>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    same_everywhere(init, Uniform::<T>::default(), PLAIN_NANOSECONDS)
}

/// Normal with mean 0 and standard deviation 1.
pub(crate) fn normal<T: Real + Element>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    same_everywhere(init, Normal::<T>::default(), normal_nanoseconds::<T>())
}

/// Truncated standard normal: within two standard deviations of the mean.
pub(crate) fn truncated_normal<T: Real + Element>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    same_everywhere(init, TruncatedNormal::<T>::default(), 2.0 * normal_nanoseconds::<T>())
}

/// Uniform over all integers of the type.
pub(crate) fn full_int<T: Integer + Element>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    same_everywhere(init, FullInt::<T>::default(), PLAIN_NANOSECONDS)
}

fn same_everywhere<D>(
    init: &KernelInit<'_>,
    distribution: D,
    nanoseconds_per_group: f64,
) -> Result<AnyKernel>
where
    D: Distribution<Item: Element> + Send + Sync + 'static,
{
    let source = Source::new(init)?;
    let shape = shape_position(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(shape, "shape")?;
        let mut out = ctx.allocate_output(0, shape)?;
        let philox = source.for_outputs(ctx, out.num_elements())?;
        fill_groups(ctx, philox, &distribution, nanoseconds_per_group, out.as_mut_slice()?)?;
        ctx.set_output(0, out)
    })
}

/// Uniform integers in `[minval, maxval)`.
pub(crate) fn uniform_int<T>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Integer + Element + std::fmt::Display,
{
    let source = Source::new(init)?;
    let minval = init.node.input_range("minval")?.start;
    let maxval = init.node.input_range("maxval")?.start;
    let shape = shape_position(init)?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.shape_input(shape, "shape")?;
        let low: T = scalar(ctx, minval, "minval")?;
        let high: T = scalar(ctx, maxval, "maxval")?;
        let mut out = ctx.allocate_output(0, shape)?;
        // An empty tensor accepts an empty range; with a generator in a variable the range is
        // checked first, as in TensorFlow.
        if out.num_elements() > 0 || source.is_state() {
            let Some(distribution) = UniformInt::new(low, high) else {
                bail!(InvalidArgument, "Need minval < maxval, got {low} >= {high}");
            };
            let philox = source.for_outputs(ctx, out.num_elements())?;
            fill_groups(ctx, philox, &distribution, PLAIN_NANOSECONDS, out.as_mut_slice()?)?;
        }
        ctx.set_output(0, out)
    })
}

fn scalar<T: Element>(ctx: &KernelContext<'_>, input: usize, name: &str) -> Result<T> {
    let tensor = ctx.input(input)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be 0-D, got shape {}",
        tensor.shape()
    );
    tensor.scalar_value()
}

/// Fills `out` with values that cost little more than their random bits.
pub(crate) fn fill_same<D: Distribution<Item: Element> + Sync>(
    ctx: &KernelContext<'_>,
    philox: Philox,
    distribution: &D,
    out: &mut [D::Item],
) -> Result<()> {
    fill_groups(ctx, philox, distribution, PLAIN_NANOSECONDS, out)
}

/// Fills `out` in parallel; blocks begin at group boundaries, so that the bits do not depend on the
/// division of work.
fn fill_groups<D: Distribution<Item: Element> + Sync>(
    ctx: &KernelContext<'_>,
    philox: Philox,
    distribution: &D,
    nanoseconds_per_group: f64,
    out: &mut [D::Item],
) -> Result<()> {
    let len = out.len();
    let out = Disjoint::new(out);
    ctx.parallel_for(len.div_ceil(D::GROUP), nanoseconds_per_group, |groups| {
        let range = groups.start * D::GROUP..(groups.end * D::GROUP).min(len);
        // SAFETY: `parallel_for` hands out disjoint ranges of groups.
        let part = unsafe { out.part(range) };
        fill(philox, distribution, groups.start as u64, part);
    })
}
