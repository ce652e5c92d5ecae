//! `ExtractImagePatches` and `ExtractVolumePatches`: windows of images as channels.

use smallvec::SmallVec;
use thalweg_graph::{GradientContext, NodeAttrs, OpDef, Output, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, ensure, err};

use crate::cells::{Cell, nanoseconds_per_cell};
use crate::split::for_each_rows;
use crate::window::{Axis, Grid, Padding, Sliding};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("ExtractImagePatches", patches_shape)
            .with_work(Work::per_output::<20>)
            .with_gradient(patches_grad),
        OpDef::new("ExtractVolumePatches", patches_shape)
            .with_work(Work::per_output::<20>)
            .with_gradient(patches_grad),
    ],
    kernels: &[
        KernelSpec {
            op: "ExtractImagePatches",
            constraints: &[("T", NUMBERS)],
            create: extract,
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "ExtractVolumePatches",
            constraints: &[("T", NUMBERS)],
            create: extract,
            ..KernelSpec::CPU
        },
        KernelSpec::lowering("ExtractImagePatches", lower_extract).for_dtypes(&[("T", NUMBERS)]),
        KernelSpec::lowering("ExtractVolumePatches", lower_extract).for_dtypes(&[("T", NUMBERS)]),
    ],
};

const NUMBERS: &[DType] = &[
    DType::Complex128,
    DType::Complex64,
    DType::Double,
    DType::Float,
    DType::BFloat16,
    DType::Half,
    DType::Int32,
    DType::Int8,
    DType::UInt8,
    DType::Int16,
    DType::UInt16,
    DType::UInt32,
    DType::Int64,
    DType::UInt64,
];

/// Numbers the pixels from 1, extracts patches of these numbers, and adds each element of the
/// gradient to the pixel with the number at its position; 0 marks padding.
fn patches_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let (grad, input, op) = (g.grad(0)?, g.input(0), g.node().op.name.clone());
    let spatial = if g.attrs().get("rates").is_some() { 2 } else { 3 };
    let shape = g.shape_of(input)?;
    let (one, all) = (g.ints(&[1])?, g.ints(&[-1])?);
    let axis = g.int(0)?;
    let part = |g: &mut GradientContext<'_>, of: Output, from: i32, to: i32| {
        let (from, to, step) = (g.ints(&[from])?, g.ints(&[to])?, g.ints(&[1])?);
        g.add("StridedSlice", &[of, from, to, step])
    };
    let batch = part(g, shape, 0, 1)?;
    let space = part(g, shape, 1, spatial + 1)?;
    let channels = part(g, shape, spatial + 1, spatial + 2)?;
    let pixels = g.add("Prod", &[space, axis])?;
    let (start, step) = (g.int(1)?, g.int(1)?);
    let end = g.add("AddV2", &[pixels, step])?;
    let numbers = g.add("Range", &[start, end, step])?;
    let concat = |g: &mut GradientContext<'_>, parts: &[Output]| {
        let inputs: SmallVec<[Output; 6]> = parts.iter().copied().chain([axis]).collect();
        g.op("ConcatV2").inputs(&inputs).build()
    };
    let as_image = concat(g, &[one, space, one])?;
    let numbers = g.add("Reshape", &[numbers, as_image])?;
    let attrs = ["ksizes", "strides", "rates", "padding"];
    let numbers = g.op_like(&op, &attrs).input(numbers).build()?;
    let numbers = g.add("Reshape", &[numbers, all])?;
    let numbers = g.add("Sub", &[numbers, step])?;
    // Moves cells first, so that they are the rows that are summed.
    let split = concat(g, &[batch, all, channels])?;
    let grad = g.add("Reshape", &[grad, split])?;
    let order = g.ints(&[1, 0, 2])?;
    let grad = g.add("Transpose", &[grad, order])?;
    let summed = g.add("UnsortedSegmentSum", &[grad, numbers, pixels])?;
    let summed = g.add("Transpose", &[summed, order])?;
    let result = g.add("Reshape", &[summed, shape])?;
    g.set(0, result)
}

/// The window sizes from the attrs; images have one more spatial dimension of size 1.
struct Windows {
    /// Number of spatial dimensions.
    spatial: usize,
    sizes: [usize; 3],
    sliding: Sliding,
}

impl Windows {
    fn from_attrs(attrs: NodeAttrs<'_>) -> Result<Windows> {
        let (spatial, rates) = match attrs.get("rates") {
            Some(_) => (2, attrs.ints("rates")?),
            None => (3, &[1; 5][..]),
        };
        let sizes = spatial_sizes(attrs.ints("ksizes")?, spatial, "ksizes")?;
        let strides = spatial_sizes(attrs.ints("strides")?, spatial, "strides")?;
        let rates = spatial_sizes(rates, spatial, "rates")?;
        let is_same = attrs.string("padding")? == "SAME";
        let padding = if is_same { Padding::Same } else { Padding::Valid };
        let sliding = Sliding::over_space(spatial, strides, rates, padding);
        Ok(Windows { spatial, sizes, sliding })
    }

    fn axis(&self, i: usize, input: usize) -> Result<Axis> {
        self.sliding.axis(i, input, self.sizes[i])
    }

    /// Elements of one patch.
    fn depth(&self, channels: usize) -> Result<usize> {
        let depth =
            self.sizes.iter().try_fold(channels, |product, &size| product.checked_mul(size));
        depth.ok_or_else(|| err!(InvalidArgument, "patches of {:?} are too large", self.sizes))
    }
}

/// The entries between the first and the last, preceded by ones for missing dimensions.
fn spatial_sizes(list: &[i64], spatial: usize, name: &str) -> Result<[usize; 3]> {
    ensure!(
        list.len() == spatial + 2,
        InvalidArgument,
        "{name} must have {} values, but has {}",
        spatial + 2,
        list.len()
    );
    ensure!(
        list[0] == 1 && list[spatial + 1] == 1,
        Unimplemented,
        "Only support {name} across space."
    );
    let mut sizes = [1; 3];
    for (to, &size) in sizes[3 - spatial..].iter_mut().zip(&list[1..]) {
        ensure!((1..=i64::from(i32::MAX)).contains(&size), OutOfRange, "{name} is out of range.");
        *to = size as usize;
    }
    Ok(sizes)
}

fn patches_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let is_volume = c.attrs().get("rates").is_none();
    let input = c.with_rank(0, "input", if is_volume { 5 } else { 4 })?;
    // Attrs that the kernel rejects with another code are not checked here.
    let strides = c.attrs().ints("strides")?;
    ensure!(
        strides.iter().all(|&s| s > 0) || c.input(0).rank().is_none(),
        InvalidArgument,
        "Stride must be > 0, but got {strides:?}"
    );
    let windows = match Windows::from_attrs(c.attrs()) {
        Ok(windows) => windows,
        Err(e) if e.code() == thalweg_tensor::Code::InvalidArgument => return Err(e),
        Err(_) => return Ok(()),
    };
    let Some(dims) = input.dims() else { return Ok(()) };
    let mut out: SmallVec<[Option<usize>; 5]> = dims.iter().copied().collect();
    for i in 0..windows.spatial {
        let axis = 3 - windows.spatial + i;
        out[i + 1] = dims[i + 1].map(|d| windows.axis(axis, d)).transpose()?.map(|a| a.output);
    }
    let last = dims.len() - 1;
    out[last] = dims[last].map(|d| windows.depth(d)).transpose()?;
    c.set_output(0, PartialShape::new(out));
    Ok(())
}

fn extract(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let windows = Windows::from_attrs(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let shape = input.shape();
        ensure!(
            shape.rank() == windows.spatial + 2,
            InvalidArgument,
            "input must be {}-dimensional{shape}",
            windows.spatial + 2
        );
        let mut sizes = [1; 3];
        sizes[3 - windows.spatial..].copy_from_slice(&shape[1..=windows.spatial]);
        let axis = |i: usize| windows.axis(i, sizes[i]);
        let grid = Grid { axes: [axis(0)?, axis(1)?, axis(2)?] };
        let channels = shape[windows.spatial + 1];
        let mut dims: SmallVec<[usize; 5]> = shape.iter().copied().collect();
        dims[1..=windows.spatial].copy_from_slice(&grid.output()[3 - windows.spatial..]);
        let depth = windows.depth(channels)?;
        dims[windows.spatial + 1] = depth;
        let mut out = ctx.allocate(input.dtype(), Shape::new(&dims)?)?;
        if out.num_elements() > 0 {
            with_cell!(input.dtype(), C => {
                let source = C::view(input)?;
                let cost = nanoseconds_per_cell::<C>() * depth as f64 + 20.0;
                for_each_rows(ctx, C::view_mut(&mut out)?, depth, cost, |first, out| {
                    for (window, out) in (first..).zip(out.chunks_exact_mut(depth)) {
                        patch(&grid, window, channels, source, out);
                    }
                })?;
            });
        }
        ctx.set_output(0, out)
    })
}

/// Concatenates, for each place in a window, the pixels there of all windows.
fn lower_extract(l: &mut Lowering<'_>) -> Result<()> {
    let (x, windows) = (l.input(0)?, Windows::from_attrs(l.attrs())?);
    let (spatial, dims) = (windows.spatial, l.output_dims(0)?);
    let rank = spatial + 2;
    if dims.contains(&0) {
        return l.set(0, x.splat(x.dtype(), &dims, 0.0));
    }
    let axes = (0..spatial)
        .map(|i| windows.axis(3 - spatial + i, x.dims()[i + 1]))
        .collect::<Result<Vec<Axis>>>()?;
    let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
    for (i, axis) in axes.iter().enumerate() {
        let covered = (axis.output - 1) * axis.stride + (axis.window - 1) * axis.dilation + 1;
        low[i + 1] = axis.before as i64;
        high[i + 1] = covered as i64 - (axis.before + axis.input) as i64;
    }
    let padded = x.pad(&x.scalar_like(0.0), &low, &high, &vec![0; rank]);
    let strides: Vec<usize> =
        [1].into_iter().chain(axes.iter().map(|axis| axis.stride)).chain([1]).collect();
    let places: usize = axes.iter().map(|axis| axis.window).product();
    let mut parts = Vec::with_capacity(places);
    for place in 0..places {
        let (mut starts, mut limits) = (vec![0; rank], padded.dims().to_vec());
        let mut rest = place;
        for (i, axis) in axes.iter().enumerate().rev() {
            starts[i + 1] = rest % axis.window * axis.dilation;
            limits[i + 1] = starts[i + 1] + (axis.output - 1) * axis.stride + 1;
            rest /= axis.window;
        }
        parts.push(padded.slice(&starts, &limits, &strides));
    }
    l.set(0, parts[0].concatenate(&parts[1..], rank - 1))
}

/// Fills the patch of window `window` of the batch; padding is zero.
fn patch<C: Cell>(grid: &Grid, window: usize, channels: usize, source: &[C], out: &mut [C]) {
    let (image, window) = (window / grid.output_pixels(), window % grid.output_pixels());
    if !grid.is_inside(window) {
        out.fill(C::default());
    }
    let image = &source[image * grid.input_pixels() * channels..];
    let step = grid.axes[2].dilation;
    grid.visit_rows(window, |cell, pixel, count| {
        if step == 1 {
            let len = count * channels;
            let from = &image[pixel * channels..][..len];
            out[cell * channels..][..len].clone_from_slice(from);
            return;
        }
        for i in 0..count {
            let from = &image[(pixel + i * step) * channels..][..channels];
            out[(cell + i) * channels..][..channels].clone_from_slice(from);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call};
    use thalweg_tensor::Tensor;

    fn image_call(sizes: [i64; 2], strides: [i64; 2], rates: [i64; 2], padding: &str) -> Call {
        let [sizes, strides, rates] = [sizes, strides, rates].map(|[a, b]| [1i64, a, b, 1]);
        call("ExtractImagePatches")
            .attr("ksizes", &sizes[..])
            .attr("strides", &strides[..])
            .attr("rates", &rates[..])
            .attr("padding", padding)
    }

    #[test]
    fn shapes() {
        let call = |input, padding| {
            image_call([2, 3], [2, 1], [1, 2], padding).shape(DType::Float, input).infer()
        };
        assert_eq!(call("1,5,7,2", "VALID"), "[1,2,3,12]");
        assert_eq!(call("?,5,?,2", "SAME"), "[?,3,?,12]");
        assert!(call("5,7,2", "SAME").starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn every_cell_against_the_definition() {
        for (padding, rate, stride) in
            [("VALID", 1, 1), ("SAME", 1, 2), ("SAME", 2, 1), ("VALID", 2, 1)]
        {
            let values: Vec<f32> = (1..=2 * 5 * 4 * 2).map(|i| i as f32).collect();
            let input = Tensor::from_slice(Shape::new(&[2, 5, 4, 2]).unwrap(), &values).unwrap();
            let call = image_call([3, 2], [stride, stride], [rate, rate], padding);
            let got = call.input(input).backwards().run().unwrap();
            let [n, rows, columns, depth] = *got.shape().dims() else { panic!("rank 4") };
            let (stride, rate) = (stride as usize, rate as usize);
            let before = |size: usize, windows: usize, cells: usize| {
                let needed = (windows - 1) * stride + (cells - 1) * rate + 1;
                if padding == "SAME" { needed.saturating_sub(size) / 2 } else { 0 }
            };
            let (top, left) = (before(5, rows, 3), before(4, columns, 2));
            for (i, &x) in got.as_slice::<f32>().unwrap().iter().enumerate() {
                let (channel, cell) = (i % 2, i % depth / 2);
                let (column, row) = (i / depth % columns, i / depth / columns % rows);
                let y = (row * stride + cell / 2 * rate).wrapping_sub(top);
                let x_at = (column * stride + cell % 2 * rate).wrapping_sub(left);
                let image = i / depth / columns / rows;
                let expected = if y < 5 && x_at < 4 {
                    values[((image * 5 + y) * 4 + x_at) * 2 + channel]
                } else {
                    0.0
                };
                assert_eq!(x, expected, "{padding} {rate} {stride} at {i}");
            }
            assert_eq!(n, 2);
        }
    }

    #[test]
    fn hostile_inputs() {
        let image =
            |dims: &[usize]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
        let most = i64::from(i32::MAX);
        for (sizes, strides, rates) in [
            ([0, 1], [1, 1], [1, 1]),
            ([1, 1], [0, 1], [1, 1]),
            ([1, 1], [1, 1], [-1, 1]),
            ([i64::MAX, 1], [1, 1], [1, 1]),
            ([most, most], [1, 1], [1, 1]),
        ] {
            for padding in ["SAME", "VALID"] {
                let got = image_call(sizes, strides, rates, padding).input(image(&[1, 2, 2, 1]));
                let got = got.run();
                assert!(got.is_err() || got.is_ok_and(|t| t.num_elements() == 0), "{sizes:?}");
            }
        }
        let got = image_call([2, 2], [1, 1], [1, 1], "SAME").input(image(&[1, 0, 2, 1])).run();
        assert_eq!(got.unwrap().shape().dims(), [1, 0, 2, 4]);
        let got =
            image_call([most, 1], [1, 1], [most, 1], "VALID").input(image(&[1, 2, 2, 1])).run();
        assert!(got.is_err() || got.is_ok_and(|t| t.num_elements() == 0));
    }
}
