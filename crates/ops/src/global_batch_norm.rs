//! `BatchNormWithGlobalNormalization`, an op of old graphs, with given mean and variance.

use half::f16;
use thalweg_graph::{GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{DType, PartialShape, Result, Shape, ensure};

use crate::math::widen::Widen;
use crate::split::{Disjoint, for_each_rows};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("BatchNormWithGlobalNormalization", norm_shape)
            .with_work(Work::per_output::<4>)
            .with_gradient(norm_gradient),
        OpDef::new("BatchNormWithGlobalNormalizationGrad", norm_grad_shape)
            .with_work(Work::per_output::<12>),
    ],
    kernels: &[
        cpu_kernel!("BatchNormWithGlobalNormalization", "T" in [f32, f64, f16] => norm),
        cpu_kernel!("BatchNormWithGlobalNormalizationGrad", "T" in [f32, f64, f16] => norm_grad),
    ],
};

fn norm_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let inputs = [g.input(0), g.input(1), g.input(2), g.input(4), g.grad(0)?];
    let attrs = ["variance_epsilon", "scale_after_normalization"];
    let op = "BatchNormWithGlobalNormalizationGrad";
    let adjoints = g.op_like(op, &attrs).inputs(&inputs).build_all()?;
    adjoints.into_iter().enumerate().try_for_each(|(i, adjoint)| g.set(i, adjoint))
}

/// The shapes of the images and of the vectors of channels, as far as known.
fn split_shapes(
    c: &ShapeContext<'_>,
    images: &PartialShape,
    vectors: &[usize],
) -> Result<(PartialShape, PartialShape)> {
    let mut channels = PartialShape::new([images.dim(3)]);
    for &i in vectors {
        channels = channels.merge(&c.with_rank(i, "a channel's vector", 1)?)?;
    }
    let dims = images.dims().unwrap_or_default().iter().copied().take(3);
    Ok((PartialShape::new(dims.chain([channels.dim(0)])), channels))
}

fn norm_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, "t", 4)?;
    let (images, _) = split_shapes(c, &images, &[1, 2, 3, 4])?;
    c.set_output(0, images);
    Ok(())
}

fn norm_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, "t", 4)?.merge(&c.with_rank(4, "backprop", 4)?)?;
    let (images, channels) = split_shapes(c, &images, &[1, 2, 3])?;
    c.set_output(0, images);
    for i in 1..5 {
        c.set_output(i, channels.clone());
    }
    Ok(())
}

/// Float types that are computed in double precision and rounded once.
trait Rounded: Widen {
    fn value(wide: Self::Wide) -> f64;
    fn wide(value: f64) -> Self::Wide;

    fn load(x: Self) -> f64 {
        let mut wide = [Self::Wide::default()];
        Self::widen(&[x], &mut wide);
        Self::value(wide[0])
    }

    fn store(value: f64) -> Self {
        let mut narrow = [Self::default()];
        Self::narrow(&[Self::wide(value)], &mut narrow);
        narrow[0]
    }
}

macro_rules! rounded {
    ($($t:ty: $wide:ty;)+) => { $(
        impl Rounded for $t {
            fn value(wide: $wide) -> f64 {
                wide.into()
            }

            fn wide(value: f64) -> $wide {
                value as $wide
            }
        }
    )+ };
}

rounded! {
    f32: f32;
    f64: f64;
    f16: f32;
}

/// The number of channels, which the vectors in `vectors` must have.
fn check(ctx: &KernelContext<'_>, vectors: &[usize]) -> Result<usize> {
    let images = ctx.input(0)?.shape();
    ensure!(images.rank() == 4, InvalidArgument, "input must be 4-dimensional{images}");
    for &i in vectors {
        let shape = ctx.input(i)?.shape();
        ensure!(
            shape.dims() == [images[3]],
            InvalidArgument,
            "input {i} must have an element for each of {} channels, has shape {shape}",
            images[3]
        );
    }
    Ok(images[3])
}

fn norm<T: Rounded>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let epsilon = f64::from(init.attrs().float("variance_epsilon")?);
    let is_scaled = init.attrs().bool("scale_after_normalization")?;
    AnyKernel::new(move |ctx| {
        let channels = check(ctx, &[1, 2, 3, 4])?;
        let mut out = ctx.allocate_output(0, ctx.input(0)?.shape().clone())?;
        let [images, mean, variance, beta, gamma] = [0, 1, 2, 3, 4].map(|i| ctx.slice::<T>(i));
        let (images, mean, variance) = (images?, mean?, variance?);
        let (beta, gamma) = (beta?, gamma?);
        for_each_rows(
            ctx,
            out.as_mut_slice::<T>()?,
            channels,
            8.0 * channels as f64,
            |first, out| {
                let images = &images[first * channels..][..out.len()];
                for c in 0..channels {
                    let scale = if is_scaled { T::load(gamma[c]) } else { 1.0 };
                    let factor = scale / (T::load(variance[c]) + epsilon).sqrt();
                    let (mean, beta) = (T::load(mean[c]), T::load(beta[c]));
                    let pixels = images[c..].iter().step_by(channels);
                    for (out, &x) in out[c..].iter_mut().step_by(channels).zip(pixels) {
                        *out = T::store((T::load(x) - mean) * factor + beta);
                    }
                }
            },
        )?;
        ctx.set_output(0, out)
    })
}

fn norm_grad<T: Rounded>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let epsilon = f64::from(init.attrs().float("variance_epsilon")?);
    let is_scaled = init.attrs().bool("scale_after_normalization")?;
    AnyKernel::new(move |ctx| {
        let channels = check(ctx, &[1, 2, 3])?;
        let shape = ctx.input(0)?.shape().clone();
        let given = ctx.input(4)?.shape();
        ensure!(
            *given == shape,
            InvalidArgument,
            "backprop must have the shape of t, {shape}, but has {given}"
        );
        let mut dx = ctx.allocate_output(0, shape)?;
        let mut sums = ctx.zeros(DType::Double, Shape::new(&[channels, 4])?)?;
        let [images, mean, variance, gamma, grads] = [0, 1, 2, 3, 4].map(|i| ctx.slice::<T>(i));
        let (images, mean, variance) = (images?, mean?, variance?);
        let (gamma, grads) = (gamma?, grads?);
        let written = Disjoint::new(dx.as_mut_slice::<T>()?);
        let results = Disjoint::new(sums.as_mut_slice::<f64>()?);
        let pixels = images.len().checked_div(channels).unwrap_or(0);
        // One thread sums a channel, so the order of summation is fixed.
        ctx.parallel_for(channels, 8.0 * pixels as f64, |range| {
            for c in range {
                let (mean, spread) = (T::load(mean[c]), T::load(variance[c]) + epsilon);
                let scale = if is_scaled { T::load(gamma[c]) } else { 1.0 };
                let inverse = 1.0 / spread.sqrt();
                let (mut sum, mut product) = (0.0, 0.0);
                for at in (c..images.len()).step_by(channels) {
                    let grad = T::load(grads[at]);
                    sum += grad;
                    product += grad * (T::load(images[at]) - mean);
                    // SAFETY: elements of channel `c` are this call's alone.
                    unsafe { written.part(at..at + 1)[0] = T::store(grad * inverse * scale) };
                }
                // SAFETY: as above.
                let results = unsafe { results.part(4 * c..4 * c + 4) };
                results[0] = -sum * inverse * scale;
                results[1] = -0.5 * product * scale * inverse / spread;
                results[2] = sum;
                results[3] = if is_scaled { product * inverse } else { 0.0 };
            }
        })?;
        ctx.set_output(0, dx)?;
        for i in 0..4 {
            let mut out = ctx.allocate_output(i + 1, Shape::new(&[channels])?)?;
            let results = sums.as_slice::<f64>()?[i..].iter().step_by(4);
            out.as_mut_slice::<T>()?.iter_mut().zip(results).for_each(|(o, &x)| *o = T::store(x));
            ctx.set_output(i + 1, out)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, Tensor};

    fn vector(values: [f32; 2]) -> Tensor {
        Tensor::vector(&values).unwrap()
    }

    fn images(values: [f32; 4]) -> Tensor {
        Tensor::from_slice(Shape::new(&[1, 2, 1, 2]).unwrap(), &values).unwrap()
    }

    #[test]
    fn normalizes_and_goes_back() {
        for is_scaled in [true, false] {
            let attrs = |op| {
                let call = call(op).attr("variance_epsilon", 0f32);
                call.attr("scale_after_normalization", is_scaled)
            };
            let scale = if is_scaled { [2.0, 3.0] } else { [1.0, 1.0] };
            let got =
                attrs("BatchNormWithGlobalNormalization").input(images([1.0, 2.0, 5.0, 10.0]));
            let got = got.input(vector([1.0, 2.0])).input(vector([4.0, 16.0]));
            let got = got.input(vector([7.0, 8.0])).input(vector([2.0, 3.0])).run().unwrap();
            let expected = [7.0, 8.0, 7.0 + 2.0 * scale[0], 8.0 + 2.0 * scale[1]];
            assert_eq!(got.as_slice::<f32>().unwrap(), expected);
            let got = attrs("BatchNormWithGlobalNormalizationGrad");
            let got = got.input(images([1.0, 2.0, 5.0, 10.0])).input(vector([1.0, 2.0]));
            let got = got.input(vector([4.0, 16.0])).input(vector([2.0, 3.0]));
            let got = got.input(images([1.0, 0.0, 1.0, 2.0])).run_all().unwrap();
            let half = [scale[0] / 2.0, scale[1] / 4.0];
            assert_eq!(got[0].as_slice::<f32>().unwrap(), [half[0], 0.0, half[0], 2.0 * half[1]]);
            assert_eq!(got[1].as_slice::<f32>().unwrap(), [-2.0 * half[0], -2.0 * half[1]]);
            assert_eq!(got[2].as_slice::<f32>().unwrap(), [-half[0] / 2.0, -half[1] / 2.0]);
            assert_eq!(got[3].as_slice::<f32>().unwrap(), [2.0, 2.0]);
            let of_scale = if is_scaled { [2.0, 4.0] } else { [0.0, 0.0] };
            assert_eq!(got[4].as_slice::<f32>().unwrap(), of_scale);
        }
    }

    #[test]
    fn hostile_inputs() {
        let run = |images: Tensor, last: Tensor| {
            let call = call("BatchNormWithGlobalNormalization").input(images);
            let call = call.input(vector([1.0; 2])).input(vector([1.0; 2])).input(vector([1.0; 2]));
            let call = call.input(last).attr("variance_epsilon", 0f32);
            call.attr("scale_after_normalization", true).run()
        };
        assert!(run(images([0.0; 4]), vector([1.0; 2])).is_ok());
        assert_eq!(code(run(images([0.0; 4]), Tensor::scalar(1f32))), Some(Code::InvalidArgument));
        assert_eq!(code(run(vector([1.0; 2]), vector([1.0; 2]))), Some(Code::InvalidArgument));
        assert_eq!(f64::from(f16::from_f32(0.1)), f16::load(f16::store(0.1)));
    }
}
