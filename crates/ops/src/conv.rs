//! 2-D and 3-D convolutions and their gradient ops.

use half::{bf16, f16};
use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Constraint, Family, KernelContext, KernelInit, KernelSpec, Lower};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, ensure};

use crate::conv_gradients;
use crate::conv_lowering;
use crate::map::{narrowed, wide_view};
use crate::math::widen::Widen;
use crate::patches::Convolution;
use crate::product::Factor;
use crate::window::Sliding;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        CONV_2D.with_gradient(conv_gradients::conv_2d),
        CONV_2D_BACKPROP_INPUT.with_gradient(conv_gradients::conv_2d_to_images),
        CONV_2D_BACKPROP_FILTER.with_gradient(conv_gradients::conv_2d_to_filter),
        CONV_3D.with_gradient(conv_gradients::conv_3d),
        CONV_3D_BACKPROP_INPUT,
        CONV_3D_BACKPROP_FILTER,
        CONV_3D_BACKPROP_INPUT_V2.with_gradient(conv_gradients::conv_3d_to_images),
        CONV_3D_BACKPROP_FILTER_V2.with_gradient(conv_gradients::conv_3d_to_filter),
    ],
    kernels: &[
        cpu_kernel!("Conv2D", "T" in [f32, f64, f16, bf16, i32] => forward),
        cpu_kernel!("Conv2DBackpropInput", "T" in [f32, f64, f16, bf16, i32] => backward_images;
            host_inputs: &["input_sizes"]),
        cpu_kernel!("Conv2DBackpropFilter", "T" in [f32, f64, f16, bf16] => backward_filter;
            host_inputs: &["filter_sizes"]),
        cpu_kernel!("Conv3D", "T" in [f32, f64, f16, bf16] => forward),
        cpu_kernel!("Conv3DBackpropInput", "T" in [f32, f64, f16] => backward_images),
        cpu_kernel!("Conv3DBackpropFilter", "T" in [f32, f64, f16] => backward_filter),
        cpu_kernel!("Conv3DBackpropInputV2", "T" in [f32, f64, f16, bf16] => backward_images;
            host_inputs: &["input_sizes"]),
        cpu_kernel!("Conv3DBackpropFilterV2", "T" in [f32, f64, f16, bf16] => backward_filter;
            host_inputs: &["filter_sizes"]),
        lowered("Conv2D", conv_lowering::forward),
        lowered("Conv2DBackpropInput", conv_lowering::to_images).with_host_inputs(&["input_sizes"]),
        lowered("Conv2DBackpropFilter", conv_lowering::to_filter)
            .with_host_inputs(&["filter_sizes"]),
        lowered("Conv3D", conv_lowering::forward),
        lowered("Conv3DBackpropInput", conv_lowering::to_images),
        lowered("Conv3DBackpropFilter", conv_lowering::to_filter),
        lowered("Conv3DBackpropInputV2", conv_lowering::to_images)
            .with_host_inputs(&["input_sizes"]),
        lowered("Conv3DBackpropFilterV2", conv_lowering::to_filter)
            .with_host_inputs(&["filter_sizes"]),
    ],
};

/// The lowering of a convolution of floats: few accelerators convolve integers.
const fn lowered(op: &'static str, lower: Lower) -> KernelSpec {
    KernelSpec::lowering(op, lower).for_dtypes(FLOATS)
}

const FLOATS: &[Constraint] =
    &[("T", &[DType::Float, DType::Double, DType::Half, DType::BFloat16])];

const CONV_2D: OpDef = OpDef::new("Conv2D", |c| convolved_shape(c, 2)).with_work(work::convolution);

const CONV_2D_BACKPROP_INPUT: OpDef =
    OpDef { name: "Conv2DBackpropInput", shape: |c| input_shape(c, 2), ..CONV_2D };

const CONV_2D_BACKPROP_FILTER: OpDef =
    OpDef { name: "Conv2DBackpropFilter", shape: |c| filter_shape(c, 2), ..CONV_2D };

const CONV_3D: OpDef = OpDef { name: "Conv3D", shape: |c| convolved_shape(c, 3), ..CONV_2D };

const CONV_3D_BACKPROP_INPUT: OpDef =
    OpDef { name: "Conv3DBackpropInput", shape: |c| as_input(c, 0), ..CONV_3D };

const CONV_3D_BACKPROP_FILTER: OpDef =
    OpDef { name: "Conv3DBackpropFilter", shape: |c| as_input(c, 1), ..CONV_3D_BACKPROP_INPUT };

const CONV_3D_BACKPROP_INPUT_V2: OpDef =
    OpDef { name: "Conv3DBackpropInputV2", shape: |c| input_shape(c, 3), ..CONV_3D };

const CONV_3D_BACKPROP_FILTER_V2: OpDef =
    OpDef { name: "Conv3DBackpropFilterV2", shape: |c| filter_shape(c, 3), ..CONV_3D };

fn convolved_shape(c: &mut ShapeContext<'_>, spatial: usize) -> Result<()> {
    let sliding = Sliding::from_attrs(c.attrs(), spatial)?;
    let format = sliding.format;
    let images = c.with_rank(0, "input", format.rank())?;
    let filter = c.with_rank(1, "filter", format.rank())?;
    let (batch, sizes, in_channels) = format.split_partial(&images);
    let mut window = [Some(1); 3];
    for i in 0..spatial {
        window[3 - spatial + i] = filter.dim(i).filter(|&size| size > 0);
    }
    let (group_in, out_channels) = (filter.dim(spatial), filter.dim(spatial + 1));
    if let (Some(inner), Some(group)) = (in_channels, group_in) {
        ensure!(
            group > 0 && inner % group == 0,
            InvalidArgument,
            "Depth of input ({inner}) is not a multiple of input depth of filter ({group})"
        );
        let groups = inner / group;
        ensure!(
            out_channels.is_none_or(|out| groups > 0 && out % groups == 0),
            InvalidArgument,
            "Depth of output ({out_channels:?}) is not a multiple of the number of groups ({groups})"
        );
    }
    let output = sliding.partial_output(sizes, window)?;
    c.set_output(0, PartialShape::new(format.join(batch, output, out_channels)));
    Ok(())
}

fn input_shape(c: &mut ShapeContext<'_>, spatial: usize) -> Result<()> {
    let rank = spatial + 2;
    let sizes = c.shape_from_input(0)?;
    // Height and width alone may be given.
    let shape = if sizes.rank() == Some(rank) { sizes } else { PartialShape::of_rank(rank) };
    c.set_output(0, shape);
    Ok(())
}

fn filter_shape(c: &mut ShapeContext<'_>, spatial: usize) -> Result<()> {
    let shape = c.shape_from_input(1)?.merge(&PartialShape::of_rank(spatial + 2))?;
    c.set_output(0, shape);
    Ok(())
}

fn as_input(c: &mut ShapeContext<'_>, i: usize) -> Result<()> {
    c.set_output(0, c.input(i).merge(&PartialShape::of_rank(5))?);
    Ok(())
}

fn sliding_of(init: &KernelInit<'_>) -> Result<Sliding> {
    let spatial = if init.node.op.name.starts_with("Conv3D") { 3 } else { 2 };
    Sliding::from_attrs(init.attrs(), spatial)?.check()
}

fn forward<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Factor,
{
    let sliding = sliding_of(init)?;
    AnyKernel::new(move |ctx| {
        let (images, filter) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        let convolution = Convolution::new(&sliding, images, filter)?;
        let format = sliding.format;
        let images = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
        let filter = wide_view::<T>(ctx, 1)?;
        let output = convolution.grid.output();
        let shape =
            format.channels_last().join(convolution.batch, output, convolution.out_channels);
        let mut out = ctx.allocate(T::Wide::DTYPE, Shape::new(&shape)?)?;
        let data = out.as_mut_slice::<T::Wide>()?;
        convolution.forward(ctx, images.as_slice()?, &filter, data)?;
        finish::<T>(ctx, out, sliding)
    })
}

/// Sets the output to these images, whose channels are the last dimension.
fn finish<T: Widen>(ctx: &mut KernelContext<'_>, images: Tensor, sliding: Sliding) -> Result<()> {
    let images = narrowed::<T>(ctx, images)?;
    let images = sliding.format.restore(ctx, images)?;
    ctx.set_output(0, images)
}

/// The shape in input `i`: a vector of sizes, or a tensor that has the shape.
fn shape_of(ctx: &KernelContext<'_>, i: usize, name: &str) -> Result<Shape> {
    let argument = &ctx.node().op.inputs[i].name;
    match argument.ends_with("_sizes") {
        true => ctx.shape_input(i, name),
        false => Ok(ctx.input(i)?.shape().clone()),
    }
}

fn check_gradient(ctx: &KernelContext<'_>, sliding: &Sliding, of: &Convolution) -> Result<()> {
    let expected = sliding.format.join(of.batch, of.grid.output(), of.out_channels);
    let got = ctx.input(2)?.shape();
    ensure!(
        got.dims() == &expected[..],
        InvalidArgument,
        "{}: out_backprop must have shape {expected:?}, got {got}",
        ctx.node().op.name
    );
    Ok(())
}

fn backward_images<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Factor + std::ops::AddAssign,
{
    let sliding = sliding_of(init)?;
    AnyKernel::new(move |ctx| {
        let (filter, gradient) = (ctx.input(1)?.shape(), ctx.input(2)?.shape());
        let images = shape_of(ctx, 0, "input_sizes")?;
        let images = full_input_shape(&sliding, images, filter, gradient)?;
        let convolution = Convolution::new(&sliding, &images, filter)?;
        check_gradient(ctx, &sliding, &convolution)?;
        let format = sliding.format;
        let filter = wide_view::<T>(ctx, 1)?;
        let gradient = format.to_channels_last(ctx, wide_view::<T>(ctx, 2)?)?;
        let (batch, sizes, channels) = format.split(&images);
        let shape = Shape::new(&format.channels_last().join(batch, sizes, channels))?;
        let mut out = ctx.allocate(T::Wide::DTYPE, shape)?;
        let data = out.as_mut_slice::<T::Wide>()?;
        convolution.backward_images(ctx, filter.as_slice()?, gradient.as_slice()?, data)?;
        finish::<T>(ctx, out, sliding)
    })
}

/// The shape of the images; for two-dimensional images, height and width alone may be given.
pub(crate) fn full_input_shape(
    sliding: &Sliding,
    sizes: Shape,
    filter: &Shape,
    gradient: &Shape,
) -> Result<Shape> {
    let format = sliding.format;
    if format.spatial != 2 || sizes.rank() != 2 || filter.rank() != 4 || gradient.rank() != 4 {
        return Ok(sizes);
    }
    let dims: SmallVec<[usize; 5]> = format.join(gradient[0], [1, sizes[0], sizes[1]], filter[2]);
    Shape::new(&dims)
}

fn backward_filter<T: Widen>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T::Wide: Factor + std::ops::AddAssign,
{
    let sliding = sliding_of(init)?;
    AnyKernel::new(move |ctx| {
        let shape = shape_of(ctx, 1, "filter_sizes")?;
        let convolution = Convolution::new(&sliding, ctx.input(0)?.shape(), &shape)?;
        check_gradient(ctx, &sliding, &convolution)?;
        let format = sliding.format;
        let images = format.to_channels_last(ctx, wide_view::<T>(ctx, 0)?)?;
        let gradient = format.to_channels_last(ctx, wide_view::<T>(ctx, 2)?)?;
        let mut out = ctx.allocate(T::Wide::DTYPE, shape)?;
        let data = out.as_mut_slice::<T::Wide>()?;
        convolution.backward_filter(ctx, images.as_slice()?, gradient.as_slice()?, data)?;
        let out = narrowed::<T>(ctx, out)?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::{Call, call};

    #[test]
    fn shapes() {
        for (images, filter, padding, expected) in [
            ("2,7,6,3", "3,3,3,8", "SAME", "[2,4,3,8]"),
            ("2,7,6,3", "3,3,3,8", "VALID", "[2,3,2,8]"),
            ("?,7,?,4", "3,3,2,8", "VALID", "[?,3,?,8]"),
            ("unknown", "?,3,2,8", "SAME", "[?,?,?,8]"),
        ] {
            let call = call("Conv2D").shape(DType::Float, images).shape(DType::Float, filter);
            let call = call.attr("strides", &[1i64, 2, 2, 1][..]).attr("padding", padding);
            assert_eq!(call.infer(), expected, "{images} {filter}");
        }
        for (images, filter) in
            [("2,7,6", "3,3,3,8"), ("2,7,6,3", "3,3,2,8"), ("2,7,6,4", "3,3,2,7")]
        {
            let call = call("Conv2D").shape(DType::Float, images).shape(DType::Float, filter);
            let call = call.attr("strides", &[1i64, 1, 1, 1][..]).attr("padding", "SAME");
            assert!(call.infer().starts_with("INVALID_ARGUMENT"), "{images} {filter}");
        }
    }

    fn counted(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let n = shape.num_elements() as i32;
        let values: Vec<i32> = (0..n).map(|i| i.wrapping_mul(7919) % 13 - 6).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    struct Case {
        batch: usize,
        image: [usize; 2],
        filter: [usize; 2],
        channels: [usize; 2],
        groups: usize,
        strides: [i64; 2],
        dilations: [i64; 2],
        padding: &'static str,
    }

    const CASES: [Case; 13] = [
        Case {
            batch: 2,
            image: [5, 6],
            filter: [3, 3],
            channels: [2, 3],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 2,
            image: [7, 6],
            filter: [3, 2],
            channels: [3, 2],
            groups: 1,
            strides: [2, 3],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 2,
            image: [7, 8],
            filter: [3, 3],
            channels: [2, 2],
            groups: 1,
            strides: [1, 2],
            dilations: [2, 3],
            padding: "VALID",
        },
        Case {
            batch: 2,
            image: [4, 4],
            filter: [1, 1],
            channels: [5, 4],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "VALID",
        },
        Case {
            batch: 2,
            image: [6, 5],
            filter: [2, 3],
            channels: [4, 6],
            groups: 2,
            strides: [1, 1],
            dilations: [1, 2],
            padding: "SAME",
        },
        Case {
            batch: 2,
            image: [3, 3],
            filter: [5, 5],
            channels: [1, 2],
            groups: 1,
            strides: [2, 2],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 9,
            image: [7, 8],
            filter: [5, 5],
            channels: [9, 20],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 2,
            image: [9, 8],
            filter: [3, 3],
            channels: [3, 40],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 2,
            image: [9, 13],
            filter: [3, 4],
            channels: [16, 17],
            groups: 1,
            strides: [2, 2],
            dilations: [1, 1],
            padding: "VALID",
        },
        Case {
            batch: 9,
            image: [8, 7],
            filter: [3, 5],
            channels: [16, 18],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 2,
            image: [12, 9],
            filter: [3, 3],
            channels: [2, 16],
            groups: 1,
            strides: [1, 1],
            dilations: [2, 1],
            padding: "SAME",
        },
        Case {
            batch: 9,
            image: [3, 6],
            filter: [7, 3],
            channels: [8, 16],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "SAME",
        },
        Case {
            batch: 17,
            image: [6, 6],
            filter: [2, 2],
            channels: [16, 33],
            groups: 1,
            strides: [1, 1],
            dilations: [1, 1],
            padding: "SAME",
        },
    ];

    fn with_attrs(call: Call, case: &Case, format: &str) -> Call {
        let list = |x: [i64; 2]| match format {
            "NHWC" => [1, x[0], x[1], 1],
            _ => [1, 1, x[0], x[1]],
        };
        let call = call.attr("strides", &list(case.strides)[..]);
        let call = call.attr("dilations", &list(case.dilations)[..]);
        call.attr("padding", case.padding).attr("data_format", format)
    }

    /// Calls `visit(out, image, filter)` with the indices of every product of a convolution.
    fn visit_products(case: &Case, out: &Shape, mut visit: impl FnMut(usize, usize, usize)) {
        let [h, w] = case.image;
        let [kh, kw] = case.filter;
        let [ins, outs] = case.channels;
        let group_in = ins / case.groups;
        let before = |i: usize, size: usize, window: usize| {
            let reach = (window - 1) * case.dilations[i] as usize + 1;
            let needed = (out[i + 1] - 1) * case.strides[i] as usize + reach;
            if case.padding == "SAME" { needed.saturating_sub(size) / 2 } else { 0 }
        };
        let (top, left) = (before(0, h, kh), before(1, w, kw));
        for o in 0..out.num_elements() {
            let (n, y, x, c) = (
                o / outs / out[2] / out[1],
                o / outs / out[2] % out[1],
                o / outs % out[2],
                o % outs,
            );
            for (i, j, d) in (0..kh * kw * group_in)
                .map(|k| (k / group_in / kw, k / group_in % kw, k % group_in))
            {
                let row = (y * case.strides[0] as usize + i * case.dilations[0] as usize)
                    .checked_sub(top);
                let column = (x * case.strides[1] as usize + j * case.dilations[1] as usize)
                    .checked_sub(left);
                let (Some(row), Some(column)) = (row, column) else { continue };
                if row < h && column < w {
                    let depth = c / (outs / case.groups) * group_in + d;
                    visit(
                        o,
                        ((n * h + row) * w + column) * ins + depth,
                        ((i * kw + j) * group_in + d) * outs + c,
                    );
                }
            }
        }
    }

    #[test]
    fn against_products_written_out() {
        for case in &CASES {
            let ([h, w], [kh, kw], [ins, outs]) = (case.image, case.filter, case.channels);
            let images = counted(&[case.batch, h, w, ins]);
            let filter = counted(&[kh, kw, ins / case.groups, outs]);
            let call = call("Conv2D").input(images.clone()).input(filter.clone());
            let out = with_attrs(call, case, "NHWC").run().unwrap();
            let mut expected = vec![0; out.num_elements()];
            let (x, f) = (images.as_slice::<i32>().unwrap(), filter.as_slice::<i32>().unwrap());
            visit_products(case, out.shape(), |o, i, k| expected[o] += x[i] * f[k]);
            assert_eq!(out.as_slice::<i32>().unwrap(), expected);
        }
    }

    #[test]
    fn gradients_against_products_written_out() {
        let float = |t: &Tensor| {
            let values: Vec<f32> = t.as_slice::<i32>().unwrap().iter().map(|&x| x as f32).collect();
            Tensor::from_slice(t.shape().clone(), &values).unwrap()
        };
        for case in &CASES {
            let ([h, w], [kh, kw], [ins, outs]) = (case.image, case.filter, case.channels);
            let images = float(&counted(&[case.batch, h, w, ins]));
            let filter = float(&counted(&[kh, kw, ins / case.groups, outs]));
            let forward = call("Conv2D").input(images.clone()).input(filter.clone());
            let out = with_attrs(forward, case, "NHWC").run().unwrap();
            let dy = float(&counted(out.shape()));
            let sizes = |t: &Tensor| {
                let dims: Vec<i32> = t.shape().iter().map(|&d| d as i32).collect();
                Tensor::vector(&dims).unwrap()
            };
            let call_images =
                call("Conv2DBackpropInput").input(sizes(&images)).input(filter.clone());
            let dx = with_attrs(call_images.input(dy.clone()), case, "NHWC").run().unwrap();
            let call_filter =
                call("Conv2DBackpropFilter").input(images.clone()).input(sizes(&filter));
            let dw = with_attrs(call_filter.input(dy.clone()), case, "NHWC").run().unwrap();
            let (mut expected_dx, mut expected_dw) =
                (vec![0.0; images.num_elements()], vec![0.0; filter.num_elements()]);
            let (x, f) = (images.as_slice::<f32>().unwrap(), filter.as_slice::<f32>().unwrap());
            let g = dy.as_slice::<f32>().unwrap();
            visit_products(case, out.shape(), |o, i, k| {
                expected_dx[i] += g[o] * f[k];
                expected_dw[k] += g[o] * x[i];
            });
            assert_eq!(dx.as_slice::<f32>().unwrap(), expected_dx);
            assert_eq!(dw.as_slice::<f32>().unwrap(), expected_dw);
        }
    }

    #[test]
    fn channels_first_is_the_same_transposed() {
        let case = &CASES[1];
        let last = counted(&[1, 7, 6, 3]);
        let values = last.as_slice::<i32>().unwrap();
        let first: Vec<i32> = (0..values.len()).map(|i| values[i % 42 * 3 + i / 42]).collect();
        let first = Tensor::from_slice(Shape::new(&[1, 3, 7, 6]).unwrap(), &first).unwrap();
        let run = |images, format| {
            let call = call("Conv2D").input(images).input(counted(&[3, 2, 3, 2]));
            with_attrs(call, case, format).run().unwrap()
        };
        let (a, b) = (run(last, "NHWC"), run(first, "NCHW"));
        let (a, b) = (a.as_slice::<i32>().unwrap(), b.as_slice::<i32>().unwrap());
        let pixels = a.len() / 2;
        (0..a.len()).for_each(|i| assert_eq!(b[i], a[i % pixels * 2 + i / pixels]));
    }

    #[test]
    fn hostile_inputs() {
        let run = |images: &[usize], filter: &[usize]| {
            let call = call("Conv2D").input(counted(images)).input(counted(filter));
            call.attr("strides", &[1i64, 1, 1, 1][..]).attr("padding", "VALID").run()
        };
        for (images, filter) in [
            (&[5, 5, 3][..], &[3, 3, 3, 2][..]),
            (&[1, 5, 5, 3], &[3, 3, 2]),
            (&[1, 5, 5, 3], &[3, 3, 2, 2]),
            (&[1, 5, 5, 4], &[3, 3, 2, 3]),
            (&[1, 5, 5, 3], &[0, 3, 3, 2]),
            (&[1, 5, 5, 0], &[3, 3, 0, 2]),
            (&[1, 2, 2, 3], &[4, 4, 3, 2]),
        ] {
            assert_eq!(
                run(images, filter).unwrap_err().code(),
                Code::InvalidArgument,
                "{images:?}"
            );
        }
        assert_eq!(run(&[0, 5, 5, 3], &[3, 3, 3, 2]).unwrap().shape().dims(), [0, 3, 3, 2]);
        let gradient = |sizes: &[i32]| {
            let call = call("Conv2DBackpropInput").input(Tensor::vector(sizes).unwrap());
            let call = call.input(counted(&[3, 3, 2, 2])).input(counted(&[1, 5, 5, 2]));
            call.attr("strides", &[1i64, 1, 1, 1][..]).attr("padding", "SAME").run()
        };
        assert_eq!(gradient(&[5, 5]).unwrap().shape().dims(), [1, 5, 5, 2]);
        for sizes in [&[1, -5, 5, 2][..], &[1, 5, 5, 3], &[2, 5, 5, 2], &[1, 6, 5, 2], &[5], &[]] {
            assert_eq!(gradient(sizes).unwrap_err().code(), Code::InvalidArgument, "{sizes:?}");
        }
    }
}
