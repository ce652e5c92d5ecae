//! Local response normalization across channels.

use half::{bf16, f16};
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_hlo::{Reduction, Value, Window};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{Element, Result, ensure};

use crate::lowering::{check_same_shapes, set_narrow, wide};
use crate::map::{narrowed, wide_view};
use crate::math::widen::Widen;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[LRN.with_gradient(gradient_of_lrn), LRN_GRAD],
    kernels: &[
        cpu_kernel!("LRN", "T" in [f32, f16, bf16] => lrn),
        cpu_kernel!("LRNGrad", "T" in [f32, f16, bf16] => lrn_grad),
        KernelSpec::lowering("LRN", lower_lrn),
        KernelSpec::lowering("LRNGrad", lower_lrn_grad),
    ],
};

const LRN: OpDef = OpDef::new("LRN", images).with_work(Work::per_output::<1200>);

const LRN_GRAD: OpDef = OpDef { name: "LRNGrad", work: Work::per_output::<2400>, ..LRN };

fn images(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = c.with_rank(0, "images", 4)?;
    for i in 1..c.num_inputs() {
        shape = shape.merge(c.input(i))?;
    }
    c.set_output(0, shape);
    Ok(())
}

#[derive(Clone, Copy)]
struct Settings {
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Settings {
    fn new(attrs: NodeAttrs<'_>) -> Result<Settings> {
        let radius = attrs.int("depth_radius")?;
        ensure!(
            (0..=i64::from(i32::MAX)).contains(&radius),
            InvalidArgument,
            "depth_radius = {radius} must be at least 0 and fit an int"
        );
        Ok(Settings {
            radius: radius as usize,
            bias: attrs.float("bias")?,
            alpha: attrs.float("alpha")?,
            beta: attrs.float("beta")?,
        })
    }

    fn neighbours(&self, channel: usize, channels: usize) -> std::ops::Range<usize> {
        channel.saturating_sub(self.radius)..(channel + self.radius + 1).min(channels)
    }

    /// The base of the divisor: bias plus alpha times the sum of squares over the channel window.
    fn norm(&self, pixel: &[f32], channel: usize) -> f32 {
        let near = &pixel[self.neighbours(channel, pixel.len())];
        self.bias + self.alpha * near.iter().map(|x| x * x).sum::<f32>()
    }

    fn cost(&self, channels: usize) -> f64 {
        channels as f64 * (20.0 + 2.0 * self.radius.min(channels) as f64)
    }
}

/// The sums over the channels within the radius of each channel.
fn lowered_window(x: &Value, settings: &Settings) -> Value {
    let radius = settings.radius.min(x.dims()[3]);
    let window = Window {
        size: vec![1, 1, 1, 2 * radius + 1],
        strides: vec![1; 4],
        dilations: vec![1; 4],
        padding: vec![(0, 0), (0, 0), (0, 0), (radius as i64, radius as i64)],
    };
    x.reduce_window(Reduction::Sum, &window)
}

/// The base of the divisor, and its power.
fn lowered_norm(x: &Value, settings: &Settings) -> (Value, Value) {
    let sums = lowered_window(&x.square(), settings);
    let norm = sums * f64::from(settings.alpha) + f64::from(settings.bias);
    let power = norm.power(&norm.scalar_like(-f64::from(settings.beta)));
    (norm, power)
}

fn images_of(l: &Lowering<'_>, i: usize) -> Result<Value> {
    check_same_shapes(l, 0)?;
    let x = wide(&l.input(i)?);
    ensure!(x.rank() == 4, InvalidArgument, "in must be 4-dimensional, got shape {:?}", x.dims());
    Ok(x)
}

fn lower_lrn(l: &mut Lowering<'_>) -> Result<()> {
    let (settings, x) = (Settings::new(l.attrs())?, images_of(l, 0)?);
    if x.num_elements() == 0 {
        return set_narrow(l, 0, &x);
    }
    let (_, power) = lowered_norm(&x, &settings);
    set_narrow(l, 0, &(x * power))
}

fn lower_lrn_grad(l: &mut Lowering<'_>) -> Result<()> {
    let settings = Settings::new(l.attrs())?;
    let (grads, x, y) = (images_of(l, 0)?, images_of(l, 1)?, images_of(l, 2)?);
    if x.num_elements() == 0 {
        return set_narrow(l, 0, &x);
    }
    let (norm, power) = lowered_norm(&x, &settings);
    let factor = -2.0 * f64::from(settings.alpha) * f64::from(settings.beta);
    let slopes = lowered_window(&(y * factor / norm * &grads), &settings);
    set_narrow(l, 0, &(grads * power + slopes * x))
}

fn lrn<T: Widen<Wide = f32>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape().clone();
        ensure!(shape.rank() == 4, InvalidArgument, "in must be 4-dimensional, got shape {shape}");
        let (channels, input) = (shape[3], wide_view::<T>(ctx, 0)?);
        let data = input.as_slice::<f32>()?;
        let mut out = ctx.allocate(f32::DTYPE, shape)?;
        let cost = settings.cost(channels);
        for_each_rows(ctx, out.as_mut_slice()?, channels, cost, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(channels)) {
                let pixel = &data[i * channels..(i + 1) * channels];
                for (c, out) in out.iter_mut().enumerate() {
                    *out = pixel[c] * settings.norm(pixel, c).powf(-settings.beta);
                }
            }
        })?;
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

fn lrn_grad<T: Widen<Wide = f32>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let settings = Settings::new(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape().clone();
        ensure!(shape.rank() == 4, InvalidArgument, "in must be 4-dimensional, got shape {shape}");
        for i in 1..3 {
            let other = ctx.input(i)?.shape();
            ensure!(
                *other == shape,
                InvalidArgument,
                "input_grads, input_image and output_image must have one shape, got {shape} and {other}"
            );
        }
        let channels = shape[3];
        let views = [wide_view::<T>(ctx, 0)?, wide_view::<T>(ctx, 1)?, wide_view::<T>(ctx, 2)?];
        let [grads, input, output] = [0, 1, 2].map(|i| views[i].as_slice::<f32>());
        let (grads, input, output) = (grads?, input?, output?);
        let mut out = ctx.zeros(f32::DTYPE, shape)?;
        let cost = settings.cost(channels);
        for_each_rows(ctx, out.as_mut_slice::<f32>()?, channels, cost, |first, out| {
            for (i, out) in (first..).zip(out.chunks_exact_mut(channels)) {
                let range = i * channels..(i + 1) * channels;
                let (grads, pixel) = (&grads[range.clone()], &input[range.clone()]);
                let output = &output[range];
                for c in 0..channels {
                    let norm = settings.norm(pixel, c);
                    out[c] += grads[c] * norm.powf(-settings.beta);
                    let slope = -2.0 * settings.alpha * settings.beta * output[c] / norm * grads[c];
                    for near in settings.neighbours(c, channels) {
                        out[near] += slope * pixel[near];
                    }
                }
            }
        })?;
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

fn gradient_of_lrn(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, x, y) = (g.grad(0)?, g.input(0), g.output(0));
    let node = g.op_like("LRNGrad", &["depth_radius", "bias", "alpha", "beta"]);
    let adjoint = node.inputs(&[grad, x, y]).build()?;
    g.set(0, adjoint)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, DType, Shape, Tensor};

    use crate::testing::call;

    #[test]
    fn shapes() {
        assert_eq!(call("LRN").shape(DType::Float, "2,?,4,5").infer(), "[2,?,4,5]");
        assert!(call("LRN").shape(DType::Float, "2,3").infer().starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn hostile_settings() {
        let image = |dims: &[usize]| {
            Tensor::from_slice(Shape::new(dims).unwrap(), &vec![2.0f32; dims.iter().product()])
                .unwrap()
        };
        for radius in [-1, i64::MAX] {
            let error = call("LRN").input(image(&[1, 1, 1, 3])).attr("depth_radius", radius).run();
            assert_eq!(error.unwrap_err().code(), Code::InvalidArgument);
        }
        let error = call("LRN").input(image(&[3])).run().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let all = call("LRN").input(image(&[1, 1, 1, 3])).attr("depth_radius", i64::from(i32::MAX));
        let got = all.run().unwrap();
        // 2 / sqrt(1 + 3 * 4)
        assert!((got.as_slice::<f32>().unwrap()[0] - 0.554_7).abs() < 1e-4);
    }
}
