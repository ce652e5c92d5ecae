//! `Dilation2D`: grayscale morphological dilation, and its gradients.

use half::{bf16, f16};
use thalweg_graph::{Gradient, GradientContext, NodeAttrs, OpDef, ShapeContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit};
use thalweg_tensor::{Element, PartialShape, Result, Shape, ensure};

use crate::split::{Disjoint, for_each_rows};
use crate::window::{Axis, Padding, Sliding};
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[DILATION_2D, DILATION_2D_BACKPROP_INPUT, DILATION_2D_BACKPROP_FILTER],
    kernels: &[
        cpu_kernel!("Dilation2D", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32,
            u64] => dilate),
        cpu_kernel!("Dilation2DBackpropInput", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8,
            u16, u32, u64] => to_input),
        cpu_kernel!("Dilation2DBackpropFilter", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8,
            u16, u32, u64] => to_filter),
    ],
};

const DILATION_2D: OpDef =
    OpDef::new("Dilation2D", dilation_shape).with_work(work::dilation).with_gradient(dilation_grad);

fn dilation_grad(g: &mut GradientContext<'_>) -> Result<()> {
    let inputs = [g.input(0), g.input(1), g.grad(0)?];
    for (i, op) in ["Dilation2DBackpropInput", "Dilation2DBackpropFilter"].into_iter().enumerate() {
        let attrs = ["strides", "rates", "padding"];
        let adjoint = g.op_like(op, &attrs).inputs(&inputs).build()?;
        g.set(i, adjoint)?;
    }
    Ok(())
}

const DILATION_2D_BACKPROP_INPUT: OpDef = OpDef {
    name: "Dilation2DBackpropInput",
    shape: shape::unchanged,
    gradient: Gradient::Unknown,
    ..DILATION_2D
};

const DILATION_2D_BACKPROP_FILTER: OpDef =
    OpDef { name: "Dilation2DBackpropFilter", shape: filter_shape, ..DILATION_2D_BACKPROP_INPUT };

fn filter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(1).clone());
    Ok(())
}

fn dilation_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, "input", 4)?;
    let filter = c.with_rank(1, "filter", 3)?;
    let sliding = sliding(c.attrs())?;
    let depth = PartialShape::new([input.dim(3)]).merge(&PartialShape::new([filter.dim(2)]))?;
    let output = sliding.partial_output(
        [Some(1), input.dim(1), input.dim(2)],
        [Some(1), filter.dim(0), filter.dim(1)],
    )?;
    c.set_output(0, PartialShape::new([input.dim(0), output[1], output[2], depth.dim(0)]));
    Ok(())
}

fn sliding(attrs: NodeAttrs<'_>) -> Result<Sliding> {
    let read = |name: &str| -> Result<[usize; 3]> {
        let list = attrs.ints(name)?;
        ensure!(
            list.len() == 4,
            InvalidArgument,
            "{name} must specify 4 dimensions, has {}",
            list.len()
        );
        ensure!(
            list[0] == 1 && list[3] == 1,
            Unimplemented,
            "{name} are only supported across spatial dimensions."
        );
        let is_sensible = |x: &i64| (1..=i64::from(i32::MAX)).contains(x);
        ensure!(
            list[1..3].iter().all(is_sensible),
            InvalidArgument,
            "{name} must be > 0, got {list:?}"
        );
        Ok([1, list[1] as usize, list[2] as usize])
    };
    let padding = if attrs.string("padding")? == "SAME" { Padding::Same } else { Padding::Valid };
    Ok(Sliding::over_space(2, read("strides")?, read("rates")?, padding))
}

/// Element types of images.
trait Gray: Element + PartialOrd {
    /// The lowest value, which no sum is below.
    const LOWEST: Self;
    /// The sum, wrapping.
    fn plus(self, other: Self) -> Self;
}

macro_rules! grays {
    ($($t:ident: $plus:path;)+) => { $(
        impl Gray for $t {
            const LOWEST: Self = $t::MIN;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
        }
    )+ };
}

grays! {
    f32: std::ops::Add::add;
    f64: std::ops::Add::add;
    f16: std::ops::Add::add;
    bf16: std::ops::Add::add;
    i8: i8::wrapping_add;
    i16: i16::wrapping_add;
    i32: i32::wrapping_add;
    i64: i64::wrapping_add;
    u8: u8::wrapping_add;
    u16: u16::wrapping_add;
    u32: u32::wrapping_add;
    u64: u64::wrapping_add;
}

/// The sizes of one call.
struct Dilation {
    batch: usize,
    rows: Axis,
    columns: Axis,
    depth: usize,
}

/// Position of a window's maximum: cell of the filter, pixel of the image.
struct Origin<T> {
    value: T,
    cell: usize,
    pixel: Option<usize>,
}

impl Dilation {
    fn new(ctx: &KernelContext<'_>, sliding: &Sliding) -> Result<Dilation> {
        let (input, filter) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        ensure!(input.rank() == 4, InvalidArgument, "input must be 4-dimensional{input}");
        ensure!(filter.rank() == 3, InvalidArgument, "filter must be 3-dimensional: {filter}");
        ensure!(
            input[3] == filter[2],
            InvalidArgument,
            "input and filter must have the same depth: {} vs {}",
            input[3],
            filter[2]
        );
        Ok(Dilation {
            batch: input[0],
            rows: sliding.axis(1, input[1], filter[0])?,
            columns: sliding.axis(2, input[2], filter[1])?,
            depth: input[3],
        })
    }

    fn output(&self) -> Result<Shape> {
        Shape::new(&[self.batch, self.rows.output, self.columns.output, self.depth])
    }

    /// As [`Dilation::new`], with the gradient of the output in input 2.
    fn with_gradient(ctx: &KernelContext<'_>, sliding: &Sliding) -> Result<Dilation> {
        let dilation = Dilation::new(ctx, sliding)?;
        let (expected, got) = (dilation.output()?, ctx.input(2)?.shape());
        ensure!(
            *got == expected,
            InvalidArgument,
            "out_backprop has incompatible size: {got} instead of {expected}"
        );
        Ok(dilation)
    }

    fn windows(&self) -> usize {
        self.rows.output * self.columns.output
    }

    fn pixels(&self) -> usize {
        self.rows.input * self.columns.input
    }

    fn cells(&self) -> usize {
        self.rows.window * self.columns.window
    }

    /// The maximum sum in window `window` of an image, in channel `d`.
    fn largest<T: Gray>(&self, image: &[T], filter: &[T], window: usize, d: usize) -> Origin<T> {
        let at = (window / self.columns.output, window % self.columns.output);
        let ((rows, top), (columns, left)) = (self.rows.cells(at.0), self.columns.cells(at.1));
        // If no sum is above the lowest value, the gradient goes to the window's first pixel.
        let start = |axis: &Axis, at: usize| (at * axis.stride).saturating_sub(axis.before);
        let (y, x) = (start(&self.rows, at.0), start(&self.columns, at.1));
        let is_inside = y < self.rows.input && x < self.columns.input;
        let pixel = is_inside.then_some(y * self.columns.input + x);
        let mut best = Origin { value: T::LOWEST, cell: 0, pixel };
        for (i, row) in rows.enumerate() {
            let y = top + i * self.rows.dilation;
            for (j, column) in columns.clone().enumerate() {
                let pixel = y * self.columns.input + left + j * self.columns.dilation;
                let cell = row * self.columns.window + column;
                let sum = image[pixel * self.depth + d].plus(filter[cell * self.depth + d]);
                if sum > best.value {
                    best = Origin { value: sum, cell, pixel: Some(pixel) };
                }
            }
        }
        best
    }

    /// Nanoseconds per window.
    fn cost(&self) -> f64 {
        2.0 * self.cells() as f64 + 5.0
    }
}

fn dilate<T: Gray>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sliding = sliding(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let dilation = Dilation::new(ctx, &sliding)?;
        let mut out = ctx.allocate_output(0, dilation.output()?)?;
        let (input, filter) = (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?);
        let (depth, windows) = (dilation.depth, dilation.windows());
        let cost = dilation.cost() * depth as f64;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, depth, cost, |first, out| {
            for (row, out) in (first..).zip(out.chunks_exact_mut(depth)) {
                let image = &input[row / windows * dilation.pixels() * depth..];
                for (d, out) in out.iter_mut().enumerate() {
                    *out = dilation.largest(image, filter, row % windows, d).value;
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

fn to_input<T: Gray>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sliding = sliding(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let dilation = Dilation::with_gradient(ctx, &sliding)?;
        let mut out = ctx.zeros(T::DTYPE, ctx.input(0)?.shape().clone())?;
        let (input, filter, gradient) =
            (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?, ctx.slice::<T>(2)?);
        let (depth, windows) = (dilation.depth, dilation.windows());
        let size = dilation.pixels() * depth;
        let cost = dilation.cost() * (windows * depth) as f64;
        for_each_rows(ctx, out.as_mut_slice::<T>()?, size, cost, |first, out| {
            for (image, out) in (first..).zip(out.chunks_exact_mut(size)) {
                let (input, gradient) =
                    (&input[image * size..], &gradient[image * windows * depth..]);
                for (i, &gradient) in gradient[..windows * depth].iter().enumerate() {
                    let (window, d) = (i / depth, i % depth);
                    let origin = dilation.largest(input, filter, window, d);
                    if let Some(pixel) = origin.pixel {
                        let out = &mut out[pixel * depth + d];
                        *out = out.plus(gradient);
                    }
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

fn to_filter<T: Gray>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let sliding = sliding(init.attrs())?;
    AnyKernel::new(move |ctx| {
        let dilation = Dilation::with_gradient(ctx, &sliding)?;
        let mut out = ctx.zeros(T::DTYPE, ctx.input(1)?.shape().clone())?;
        let (input, filter, gradient) =
            (ctx.slice::<T>(0)?, ctx.slice::<T>(1)?, ctx.slice::<T>(2)?);
        let (depth, windows) = (dilation.depth, dilation.windows());
        let shared = Disjoint::new(out.as_mut_slice::<T>()?);
        let cost = dilation.cost() * (windows * dilation.batch) as f64;
        // One thread sums a channel, so the order of summation is fixed.
        ctx.parallel_for(depth, cost, |channels| {
            for d in channels {
                for window in 0..windows * dilation.batch {
                    let image = &input[window / windows * dilation.pixels() * depth..];
                    let origin = dilation.largest(image, filter, window % windows, d);
                    let at = origin.cell * depth + d;
                    // SAFETY: elements of channel `d` are this call's alone.
                    let out = unsafe { shared.part(at..at + 1) };
                    out[0] = out[0].plus(gradient[window * depth + d]);
                }
            }
        })?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call, code};
    use thalweg_tensor::{Code, DType, Tensor};

    fn with_attrs(call: Call, strides: [i64; 2], rates: [i64; 2], padding: &str) -> Call {
        let [strides, rates] = [strides, rates].map(|[a, b]| [1, a, b, 1]);
        let call = call.attr("strides", &strides[..]).attr("rates", &rates[..]);
        call.attr("padding", padding)
    }

    fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    #[test]
    fn shapes() {
        let infer = |input, filter, padding| {
            let call = call("Dilation2D").shape(DType::Float, input).shape(DType::Float, filter);
            with_attrs(call, [2, 1], [1, 2], padding).infer()
        };
        assert_eq!(infer("1,5,7,?", "2,3,4", "VALID"), "[1,2,3,4]");
        assert_eq!(infer("?,5,?,2", "2,3,?", "SAME"), "[?,3,?,2]");
        assert!(infer("1,5,7,3", "2,3,4", "SAME").starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn sums_and_where_they_came_from() {
        let image = || tensor(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        let filter = || tensor(&[2, 2, 1], &[0.4, 0.3, 0.1, 0.0]);
        let call_with =
            |op| with_attrs(call(op).input(image()).input(filter()), [1, 1], [1, 1], "SAME");
        let got = call_with("Dilation2D").run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [4.0, 4.1, 4.3, 4.4]);
        let gradient = || tensor(&[1, 2, 2, 1], &[1.0, 10.0, 100.0, 1000.0]);
        let got = call_with("Dilation2DBackpropInput").input(gradient()).run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [0.0, 0.0, 0.0, 1111.0]);
        let got = call_with("Dilation2DBackpropFilter").input(gradient()).run().unwrap();
        assert_eq!(got.as_slice::<f32>().unwrap(), [1000.0, 100.0, 10.0, 1.0]);
    }

    #[test]
    fn hostile_inputs() {
        let image = || tensor(&[1, 2, 2, 1], &[1.0, 2.0, 3.0, f32::NAN]);
        let run = |filter: Tensor, gradient: Option<Tensor>, strides, rates| {
            let op = if gradient.is_some() { "Dilation2DBackpropInput" } else { "Dilation2D" };
            let call = call(op).input(image()).input(filter);
            let call = if let Some(gradient) = gradient { call.input(gradient) } else { call };
            with_attrs(call, strides, rates, "VALID").run()
        };
        let filter = || tensor(&[1, 1, 1], &[f32::NEG_INFINITY]);
        assert!(run(filter(), None, [1, 1], [1, 1]).is_ok());
        assert!(run(filter(), Some(image()), [1, 1], [1, 1]).is_ok());
        assert_eq!(
            code(run(filter(), Some(filter()), [1, 1], [1, 1])),
            Some(Code::InvalidArgument)
        );
        assert_eq!(code(run(filter(), None, [0, 1], [1, 1])), Some(Code::InvalidArgument));
        assert_eq!(code(run(filter(), None, [1, 1], [i64::MAX, 1])), Some(Code::InvalidArgument));
        assert_eq!(
            code(run(tensor(&[0, 1, 1], &[]), None, [1, 1], [1, 1])),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(run(Tensor::scalar(1f32), None, [1, 1], [1, 1])),
            Some(Code::InvalidArgument)
        );
    }
}
