//! `FractionalMaxPool`, `FractionalAvgPool` and their gradients: pooling over regions of random
//! sizes.
//!
//! A sequence of row borders and one of column borders split an image into regions. Overlapping
//! regions include the first pixel of the next one.

use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_graph::{Gradient, GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::math::random::distributions::unit_f64;
use crate::math::random::philox::Philox;
use crate::random::own_generator;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[MAX_POOL, MAX_POOL_GRAD, AVG_POOL, AVG_POOL_GRAD],
    kernels: &[
        cpu_kernel!("FractionalMaxPool", "T" in [f32, f64, i32, i64] => pool::<Largest>),
        cpu_kernel!("FractionalAvgPool", "T" in [f32, f64, i32, i64] => pool::<Average>),
        cpu_kernel!("FractionalMaxPoolGrad", "T" in [f32, f64, i32, i64] => max_grad),
        cpu_kernel!("FractionalAvgPoolGrad", "T" in [f32, f64, i32, i64] => avg_grad),
    ],
};

const MAX_POOL: OpDef = OpDef::new("FractionalMaxPool", pool_shape)
    .with_work(Work::per_input::<8>)
    .with_gradient(max_pool_gradient);

const AVG_POOL: OpDef =
    OpDef { name: "FractionalAvgPool", gradient: Gradient::By(avg_pool_gradient), ..MAX_POOL };

const MAX_POOL_GRAD: OpDef =
    OpDef::new("FractionalMaxPoolGrad", max_grad_shape).with_work(Work::per_output::<8>);

const AVG_POOL_GRAD: OpDef =
    OpDef { name: "FractionalAvgPoolGrad", shape: avg_grad_shape, ..MAX_POOL_GRAD };

fn max_pool_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let inputs = [g.input(0), g.output(0), g.grad(0)?, g.output(1), g.output(2)];
    let adjoint = g.op_like("FractionalMaxPoolGrad", &["overlapping"]).inputs(&inputs).build()?;
    g.set(0, adjoint)
}

fn avg_pool_gradient(g: &mut GradientContext<'_>) -> Result<()> {
    let input = g.input(0);
    let shape = g.shape_of(input)?;
    let inputs = [g.cast(shape, DType::Int64)?, g.grad(0)?, g.output(1), g.output(2)];
    let adjoint = g.op_like("FractionalAvgPoolGrad", &["overlapping"]).inputs(&inputs).build()?;
    g.set(0, adjoint)
}

fn pool_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, "value", 4)?;
    let ratios = c.attrs().floats("pooling_ratio")?;
    ensure!(
        ratios.len() == 4,
        InvalidArgument,
        "pooling_ratio field must specify 4 dimensions, has {}",
        ratios.len()
    );
    let dims = input.dims().unwrap_or_default();
    let mut out: SmallVec<[Option<usize>; 4]> = SmallVec::new();
    for (&dim, &ratio) in dims.iter().zip(ratios) {
        ensure!(
            ratio >= 1.0,
            InvalidArgument,
            "pooling_ratio cannot be smaller than 1, got: {ratio}"
        );
        out.push(dim.map(|d| (d as f32 / ratio) as usize));
    }
    let borders = |size: Option<usize>| PartialShape::new([size.map(|s| s + 1)]);
    c.set_output(1, borders(out[1]));
    c.set_output(2, borders(out[2]));
    c.set_output(0, PartialShape::new(out));
    Ok(())
}

fn max_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.with_rank(0, "orig_input", 4)?);
    Ok(())
}

fn avg_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.shape_from_input(0)?;
    c.set_output(0, shape.merge(&PartialShape::of_rank(4))?);
    Ok(())
}

/// Output size of a dimension for a pooling ratio.
fn pooled_size(size: usize, ratio: f32) -> Result<usize> {
    ensure!(ratio >= 1.0, InvalidArgument, "pooling_ratio cannot be smaller than 1, got: {ratio}");
    let pooled = (size as f32 / ratio).floor() as usize;
    ensure!(
        pooled > 0,
        InvalidArgument,
        "Pooling ratio {ratio} is higher than the dimension's size {size}"
    );
    Ok(pooled)
}

/// Element types of pooling.
trait Pooled: Element + PartialOrd {
    const LOWEST: Self;
    fn plus(self, other: Self) -> Self;
    /// The mean of `count` numbers whose sum this is.
    fn divided_by(self, count: usize) -> Self;
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
}

macro_rules! pooled {
    ($($t:ident: $plus:path;)+) => { $(
        impl Pooled for $t {
            const LOWEST: Self = $t::MIN;

            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }

            fn divided_by(self, count: usize) -> Self {
                self / count.max(1) as $t
            }

            fn to_f64(self) -> f64 {
                self as f64
            }

            fn from_f64(value: f64) -> Self {
                value as $t
            }
        }
    )+ };
}

pooled! {
    f32: std::ops::Add::add;
    f64: std::ops::Add::add;
    i32: i32::wrapping_add;
    i64: i64::wrapping_add;
}

/// The pooling function.
trait PoolFunction: 'static {
    fn pool<T: Pooled>(values: impl Iterator<Item = T>) -> T;
}

struct Largest;
struct Average;

impl PoolFunction for Largest {
    fn pool<T: Pooled>(values: impl Iterator<Item = T>) -> T {
        values.fold(T::LOWEST, |best, x| if x > best { x } else { best })
    }
}

impl PoolFunction for Average {
    fn pool<T: Pooled>(values: impl Iterator<Item = T>) -> T {
        let mut count = 0;
        let sum = values.fold(T::default(), |sum, x| {
            count += 1;
            sum.plus(x)
        });
        sum.divided_by(count)
    }
}

/// Region borders.
struct Regions<'a> {
    rows: &'a [i64],
    columns: &'a [i64],
    overlapping: bool,
    /// Rows, columns and channels of an image.
    image: [usize; 3],
}

impl Regions<'_> {
    /// Checks that the borders are ascending and within the image.
    fn check(&self) -> Result<()> {
        for (name, borders, size) in
            [("row", self.rows, self.image[0]), ("col", self.columns, self.image[1])]
        {
            let is_sound = borders.windows(2).all(|pair| pair[0] <= pair[1])
                && borders.first().is_none_or(|&first| first >= 0)
                && borders.last().is_none_or(|&last| last <= size as i64);
            ensure!(
                is_sound && borders.len() >= 2,
                InvalidArgument,
                "{name}_pooling_sequence must ascend from 0 to at most {size}, is {borders:?}"
            );
        }
        Ok(())
    }

    fn span(&self, borders: &[i64], i: usize, size: usize) -> std::ops::Range<usize> {
        let end = borders[i + 1] as usize + usize::from(self.overlapping);
        borders[i] as usize..end.min(size)
    }

    /// Number of regions in an image.
    fn count(&self) -> usize {
        (self.rows.len() - 1) * (self.columns.len() - 1)
    }

    /// The pixels of region `i`.
    fn pixels(&self, i: usize) -> impl Iterator<Item = usize> + use<> {
        let across = self.columns.len() - 1;
        let [rows, columns, _] = self.image;
        let wide = self.span(self.columns, i % across, columns);
        let high = self.span(self.rows, i / across, rows);
        high.flat_map(move |y| wide.clone().map(move |x| y * columns + x))
    }

    fn pixels_of_image(&self) -> usize {
        self.image[0] * self.image[1]
    }
}

/// Random borders of `count` regions of a dimension of this size.
fn borders(
    ctx: &KernelContext<'_>,
    size: usize,
    count: usize,
    generator: &mut Philox,
    pseudo_random: bool,
) -> Result<Tensor> {
    let mut tensor = ctx.zeros(DType::Int64, Shape::new(&[count + 1])?)?;
    let borders = tensor.as_mut_slice::<i64>()?;
    let least = size / count;
    if pseudo_random {
        let alpha = size as f64 / count as f64;
        let most = ((least as f64 + 2.0) / alpha - 1.0)
            .min((size + 1 - least) as f64 / alpha - (count as f64 - 1.0));
        let block = generator.reserve(1).block();
        let u = unit_f64(block[0], block[1]) * most;
        for (i, border) in borders.iter_mut().enumerate().skip(1) {
            *border = ((alpha * (i as f64 + u)).ceil() as i64 - 1).clamp(0, size as i64);
        }
        borders[count] = size as i64;
        return Ok(tensor);
    }
    // Some regions are larger by one; their positions are shuffled.
    let sizes = &mut borders[1..];
    sizes.fill(least as i64);
    sizes[..size % count].iter_mut().for_each(|s| *s += 1);
    let mut words = generator.reserve((count as u64).div_ceil(4));
    let mut block = [0; 4];
    for i in 0..count - 1 {
        if i % 4 == 0 {
            block = words.next_block();
        }
        sizes.swap(i, i + block[i % 4] as usize % (count - i));
    }
    for i in 1..count {
        sizes[i] += sizes[i - 1];
    }
    Ok(tensor)
}

/// The attrs of pooling.
struct PoolAttrs {
    ratios: [f32; 4],
    pseudo_random: bool,
    deterministic: bool,
}

/// The generator, and the borders if they are to stay the same in all steps (`deterministic`).
struct State {
    generator: Philox,
    kept: Option<[Tensor; 2]>,
}

impl PoolAttrs {
    fn from_init(init: &KernelInit<'_>) -> Result<PoolAttrs> {
        let attrs = init.attrs();
        let ratios = attrs.floats("pooling_ratio")?;
        let ratios: [f32; 4] = ratios
            .try_into()
            .map_err(|_| err!(InvalidArgument, "pooling_ratio field must specify 4 dimensions"))?;
        ensure!(
            ratios.iter().all(|&r| r >= 1.0),
            InvalidArgument,
            "pooling_ratio cannot be smaller than 1, got: {ratios:?}"
        );
        ensure!(
            ratios[0] == 1.0 && ratios[3] == 1.0,
            Unimplemented,
            "Fractional pooling is not yet supported on the batch nor channel dimension."
        );
        Ok(PoolAttrs {
            ratios,
            pseudo_random: attrs.bool("pseudo_random")?,
            deterministic: attrs.bool("deterministic")?,
        })
    }

    /// The borders of rows and columns for images of this shape.
    fn borders(
        &self,
        ctx: &KernelContext<'_>,
        state: &mut State,
        out: &Shape,
    ) -> Result<[Tensor; 2]> {
        let shape = ctx.input(0)?.shape();
        let fits = |kept: &&[Tensor; 2]| {
            (0..2).all(|i| {
                let borders = kept[i].as_slice::<i64>().unwrap_or_default();
                borders.len() == out[i + 1] + 1 && borders.last() == Some(&(shape[i + 1] as i64))
            })
        };
        if let Some(kept) = state.kept.as_ref().filter(fits) {
            return Ok(kept.clone());
        }
        let State { generator, .. } = state;
        let made = [
            borders(ctx, shape[1], out[1], generator, self.pseudo_random)?,
            borders(ctx, shape[2], out[2], generator, self.pseudo_random)?,
        ];
        if self.deterministic {
            state.kept = Some(made.clone());
        }
        Ok(made)
    }
}

fn pool<R: PoolFunction, T: Pooled>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let overlapping = init.attrs().bool("overlapping")?;
    let cut = PoolAttrs::from_init(init)?;
    let state = Mutex::new(State { generator: own_generator(init)?, kept: None });
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        ensure!(shape.rank() == 4, InvalidArgument, "tensor_in must be 4-dimensional, is {shape}");
        let mut dims = [0; 4];
        for (out, (&size, &ratio)) in dims.iter_mut().zip(shape.iter().zip(&cut.ratios)) {
            *out = pooled_size(size, ratio)?;
        }
        let dims = Shape::new(&dims)?;
        let [rows, columns] = cut.borders(ctx, &mut state.lock(), &dims)?;
        let mut out = ctx.allocate_output(0, dims)?;
        let channels = shape[3];
        let regions = Regions {
            rows: rows.as_slice()?,
            columns: columns.as_slice()?,
            overlapping,
            image: [shape[1], shape[2], channels],
        };
        let data = ctx.slice::<T>(0)?;
        let cost = 2.0 * (data.len() / out.num_elements().max(1) * channels) as f64;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, channels, cost, |first, out| {
            for (row, out) in (first..).zip(out.chunks_exact_mut(channels)) {
                let (image, region) = (row / regions.count(), row % regions.count());
                let data = &data[image * regions.pixels_of_image() * channels..];
                for (c, out) in out.iter_mut().enumerate() {
                    *out = R::pool(regions.pixels(region).map(|p| data[p * channels + c]));
                }
            }
        })?;
        ctx.set_output(0, out)?;
        ctx.set_output(1, rows)?;
        ctx.set_output(2, columns)
    })
}

/// The borders in inputs `first` and `first + 1`, for gradients of shape `out` of images of shape
/// `image`.
fn given_regions<'a>(
    ctx: &'a KernelContext<'_>,
    first: usize,
    image: &[usize],
    out: &Shape,
    overlapping: bool,
) -> Result<Regions<'a>> {
    ensure!(
        image.len() == 4 && out.rank() == 4 && image[0] == out[0] && image[3] == out[3],
        InvalidArgument,
        "images {image:?} and gradients {out} must have 4 dimensions, and batch and channels alike"
    );
    for (i, size) in [(first, out[1]), (first + 1, out[2])] {
        let shape = ctx.input(i)?.shape();
        ensure!(
            shape.rank() == 1 && shape[0] == size + 1,
            InvalidArgument,
            "a pooling sequence for {size} regions must have one border more, has shape {shape}"
        );
    }
    let regions = Regions {
        rows: ctx.slice(first)?,
        columns: ctx.slice(first + 1)?,
        overlapping,
        image: [image[1], image[2], image[3]],
    };
    regions.check()?;
    Ok(regions)
}

fn max_grad<T: Pooled>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let overlapping = init.attrs().bool("overlapping")?;
    AnyKernel::new(move |ctx| {
        let (image, pooled) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        let given = ctx.input(2)?.shape();
        ensure!(
            pooled == given,
            InvalidArgument,
            "out_backprop must have the shape of the output, {pooled}, but has {given}"
        );
        let regions = given_regions(ctx, 3, image, given, overlapping)?;
        let (data, output, gradient) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?, ctx.slice::<T>(2)?);
        let mut out = ctx.zeros(T::DTYPE, image.clone())?;
        let (channels, count) = (image[3], regions.count());
        let size = regions.pixels_of_image() * channels;
        let is_other = crate::indices::FirstBad::new();
        for_each_rows(ctx, out.as_mut_slice::<T>()?, size, 4.0 * size as f64, |first, out| {
            for (image, out) in (first..).zip(out.chunks_exact_mut(size)) {
                let data = &data[image * size..][..size];
                for i in 0..count * channels {
                    let (region, c) = (i / channels, i % channels);
                    let mut best = (T::LOWEST, None);
                    for pixel in regions.pixels(region) {
                        let x = data[pixel * channels + c];
                        if x > best.0 || best.1.is_none() {
                            best = (x, Some(pixel));
                        }
                    }
                    let at = image * count * channels + i;
                    match best {
                        (value, Some(pixel)) if value == output[at] => {
                            let out = &mut out[pixel * channels + c];
                            *out = out.plus(gradient[at]);
                        }
                        _ => is_other.note(at),
                    }
                }
            }
        })?;
        if let Some(at) = is_other.get() {
            bail!(InvalidArgument, "orig_output does not match orig_input at element {at}");
        }
        ctx.set_output(0, out)
    })
}

fn avg_grad<T: Pooled>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let overlapping = init.attrs().bool("overlapping")?;
    AnyKernel::new(move |ctx| {
        let given = ctx.input(0)?;
        ensure!(
            given.shape().dims() == [4],
            InvalidArgument,
            "original input tensor shape must be 1-dimensional and 4 elements, is {}",
            given.shape()
        );
        let image = ctx.shape_input(0, "orig_input_tensor_shape")?;
        let regions = given_regions(ctx, 2, &image, ctx.input(1)?.shape(), overlapping)?;
        let gradient = ctx.slice::<T>(1)?;
        let mut sums = ctx.zeros(DType::Double, image.clone())?;
        let (channels, count) = (image[3], regions.count());
        let size = regions.pixels_of_image() * channels;
        for_each_rows(ctx, sums.as_mut_slice::<f64>()?, size, 2.0 * size as f64, |first, out| {
            for (image, out) in (first..).zip(out.chunks_exact_mut(size)) {
                for region in 0..count {
                    let shares = regions.pixels(region).count() as f64;
                    let at = (image * count + region) * channels;
                    for pixel in regions.pixels(region) {
                        let out = &mut out[pixel * channels..][..channels];
                        for (out, &x) in out.iter_mut().zip(&gradient[at..]) {
                            *out += x.to_f64() / shares;
                        }
                    }
                }
            }
        })?;
        let mut out = ctx.allocate_output(0, image)?;
        let sums = sums.as_slice::<f64>()?;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 1.0, |first, out| {
            for (out, &x) in out.iter_mut().zip(&sums[first..]) {
                *out = T::from_f64(x);
            }
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call, code};
    use thalweg_tensor::Code;

    fn pool_call(op: &'static str, ratio: f32) -> Call {
        let ratios = [1.0, ratio, ratio, 1.0];
        call(op).attr("pooling_ratio", &ratios[..]).attr("seed", 3).attr("seed2", 4)
    }

    fn image(size: usize) -> Tensor {
        let values: Vec<f32> = (0..2 * size * size).map(|i| (i * 7 % 31) as f32).collect();
        Tensor::from_slice(Shape::new(&[1, size, size, 2]).unwrap(), &values).unwrap()
    }

    #[test]
    fn shapes() {
        let call = pool_call("FractionalMaxPool", 1.5).shape(DType::Float, "?,7,?,2");
        assert_eq!(call.infer(), "[?,4,?,2] [5] [?]");
        let call = pool_call("FractionalMaxPool", 0.5).shape(DType::Float, "1,7,7,2");
        assert!(call.infer().starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn regions_cover_the_image() {
        for (pseudo_random, overlapping, ratio) in
            [(false, false, 1.4), (true, false, 1.4), (true, true, 2.6), (false, true, 1.0)]
        {
            let attrs = |call: Call| call.attr("overlapping", overlapping);
            let call_of = |op| {
                attrs(pool_call(op, ratio).input(image(9))).attr("pseudo_random", pseudo_random)
            };
            let [max, rows, columns] =
                call_of("FractionalMaxPool").run_all().unwrap().try_into().unwrap();
            for borders in [&rows, &columns] {
                let borders = borders.as_slice::<i64>().unwrap();
                assert!(borders[0] == 0 && borders.ends_with(&[9]), "{borders:?}");
                let sizes = borders.windows(2).map(|p| p[1] - p[0]);
                let least = 9 / (borders.len() as i64 - 1);
                assert!(sizes.into_iter().all(|s| s == least || s == least + 1), "{borders:?}");
            }
            let ones = Tensor::from_slice(max.shape().clone(), &vec![1f32; max.num_elements()]);
            let grad = attrs(call("FractionalMaxPoolGrad").input(image(9)).input(max.clone()));
            let grad = grad.input(ones.clone().unwrap()).input(rows.clone()).input(columns.clone());
            let sum: f32 = grad.run().unwrap().as_slice::<f32>().unwrap().iter().sum();
            assert_eq!(sum, max.num_elements() as f32);
            let shape = Tensor::vector(&[1i64, 9, 9, 2]).unwrap();
            let grad = attrs(call("FractionalAvgPoolGrad").input(shape).input(ones.unwrap()));
            let grad = grad.input(rows).input(columns).run().unwrap();
            let sum: f32 = grad.as_slice::<f32>().unwrap().iter().sum();
            assert!((sum - max.num_elements() as f32).abs() < 1e-3);
        }
    }

    #[test]
    fn hostile_inputs() {
        assert_eq!(
            code(pool_call("FractionalAvgPool", f32::NAN).input(image(3)).run_all()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(pool_call("FractionalAvgPool", 4.0).input(image(3)).run_all()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(pool_call("FractionalAvgPool", 1.5).input(Tensor::scalar(1f32)).run_all()),
            Some(Code::InvalidArgument)
        );
        for borders in
            [&[0i64, 2, 9][..], &[0, 3], &[2, 1, 3], &[-1, 1, 3], &[i64::MIN, 0, i64::MAX]]
        {
            let grad =
                call("FractionalAvgPoolGrad").input(Tensor::vector(&[1i64, 3, 3, 2]).unwrap());
            let grad = grad.input(image(2)).input(Tensor::vector(borders).unwrap());
            assert_eq!(
                code(grad.input(Tensor::vector(borders).unwrap()).run()),
                Some(Code::InvalidArgument),
                "{borders:?}"
            );
        }
    }
}
