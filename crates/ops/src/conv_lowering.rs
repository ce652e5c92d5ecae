//! Lowerings of convolutions, depthwise convolutions, and their gradient ops.
//!
//! A depthwise convolution is one with a group for each channel. Convolutions of 16-bit floats have narrow
//! operands and results in the program, whatever a compiler makes of them: GPUs sum their products in 32 bits.

use thalweg_hlo::{Convolution as Hlo, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, Shape, ensure};

use crate::conv::full_input_shape;
use crate::depthwise::Depthwise;
use crate::patches::Convolution;
use crate::window::{Axis, Format, Grid, Sliding};

/// `Conv2D` and `Conv3D`.
pub(crate) fn forward(l: &mut Lowering<'_>) -> Result<()> {
    let sliding = sliding(l)?;
    let of = Convolution::new(&sliding, &l.input_shape(0)?, &l.input_shape(1)?)?;
    let conv = Grouped::new(&sliding, &of);
    let (images, filter) = (l.input(0)?, l.input(1)?);
    l.set(0, conv.forward(&images, &filter))
}

/// `Conv2DBackpropInput`, `Conv3DBackpropInput` and `Conv3DBackpropInputV2`.
pub(crate) fn to_images(l: &mut Lowering<'_>) -> Result<()> {
    let sliding = sliding(l)?;
    let (filter_shape, gradient) = (l.input_shape(1)?, l.input_shape(2)?);
    let images = full_input_shape(&sliding, shape_of(l, 0)?, &filter_shape, &gradient)?;
    let of = Convolution::new(&sliding, &images, &filter_shape)?;
    let conv = Grouped::new(&sliding, &of);
    conv.check_gradient(l)?;
    let (filter, gradient) = (l.input(1)?, l.input(2)?);
    l.set(0, conv.to_images(&filter, &gradient))
}

/// `Conv2DBackpropFilter`, `Conv3DBackpropFilter` and `Conv3DBackpropFilterV2`.
pub(crate) fn to_filter(l: &mut Lowering<'_>) -> Result<()> {
    let sliding = sliding(l)?;
    let of = Convolution::new(&sliding, &l.input_shape(0)?, &shape_of(l, 1)?)?;
    let conv = Grouped::new(&sliding, &of);
    conv.check_gradient(l)?;
    let (images, gradient) = (l.input(0)?, l.input(2)?);
    l.set(0, conv.to_filter(&images, &gradient))
}

/// `DepthwiseConv2dNative`.
pub(crate) fn depthwise(l: &mut Lowering<'_>) -> Result<()> {
    let sliding = sliding(l)?;
    let filter_shape = l.input_shape(1)?;
    let of = Depthwise::new(&sliding, &l.input_shape(0)?, &filter_shape)?;
    let conv = Grouped::of_depthwise(&of);
    let (images, filter) = (l.input(0)?, l.input(1)?);
    l.set(0, conv.forward(&images, &filter.reshape(&conv.filter_dims())))
}

/// `DepthwiseConv2dNativeBackpropInput`.
pub(crate) fn depthwise_to_images(l: &mut Lowering<'_>) -> Result<()> {
    let sliding = sliding(l)?;
    let images = l.shape_input(0, "input_sizes")?;
    let of = Depthwise::new(&sliding, &images, &l.input_shape(1)?)?;
    let conv = Grouped::of_depthwise(&of);
    conv.check_gradient(l)?;
    let (filter, gradient) = (l.input(1)?, l.input(2)?);
    l.set(0, conv.to_images(&filter.reshape(&conv.filter_dims()), &gradient))
}

/// `DepthwiseConv2dNativeBackpropFilter`.
pub(crate) fn depthwise_to_filter(l: &mut Lowering<'_>) -> Result<()> {
    let sliding = sliding(l)?;
    let filter = l.shape_input(1, "filter_sizes")?;
    let of = Depthwise::new(&sliding, &l.input_shape(0)?, &filter)?;
    let conv = Grouped::of_depthwise(&of);
    conv.check_gradient(l)?;
    let (images, gradient) = (l.input(0)?, l.input(2)?);
    l.set(0, conv.to_filter(&images, &gradient).reshape(filter.dims()))
}

fn sliding(l: &Lowering<'_>) -> Result<Sliding> {
    let spatial = if l.node().op.name.starts_with("Conv3D") { 3 } else { 2 };
    Sliding::from_attrs(l.attrs(), spatial)?.check()
}

/// The shape in input `i`: a vector of sizes, or a tensor that has the shape.
fn shape_of(l: &Lowering<'_>, i: usize) -> Result<Shape> {
    let argument = &l.node().op.inputs[i].name;
    match argument.ends_with("_sizes") {
        true => l.shape_input(i, argument),
        false => l.input_shape(i),
    }
}

/// A convolution of images by filters `[.., in / groups, out]`.
struct Grouped {
    format: Format,
    grid: Grid,
    batch: usize,
    in_channels: usize,
    out_channels: usize,
    groups: usize,
}

impl Grouped {
    fn new(sliding: &Sliding, of: &Convolution) -> Grouped {
        let Convolution { batch, grid, in_channels, out_channels, groups } = *of;
        Grouped { format: sliding.format, grid, batch, in_channels, out_channels, groups }
    }

    fn of_depthwise(of: &Depthwise) -> Grouped {
        Grouped {
            format: of.sliding.format,
            grid: of.grid,
            batch: of.batch,
            in_channels: of.channels,
            out_channels: of.outs(),
            groups: of.channels,
        }
    }

    fn axes(&self) -> &[Axis] {
        &self.grid.axes[3 - self.format.spatial..]
    }

    fn each<T>(&self, f: impl FnMut(&Axis) -> T) -> Vec<T> {
        self.axes().iter().map(f).collect()
    }

    fn image_dims(&self) -> Vec<usize> {
        let sizes = self.grid.axes.map(|a| a.input);
        self.format.join(self.batch, sizes, self.in_channels).to_vec()
    }

    fn result_dims(&self) -> Vec<usize> {
        self.format.join(self.batch, self.grid.output(), self.out_channels).to_vec()
    }

    fn filter_dims(&self) -> Vec<usize> {
        let channels = [self.in_channels / self.groups, self.out_channels];
        self.each(|a| a.window).into_iter().chain(channels).collect()
    }

    fn check_gradient(&self, l: &Lowering<'_>) -> Result<()> {
        let (expected, got) = (self.result_dims(), l.input_shape(2)?);
        ensure!(
            got.dims() == expected,
            InvalidArgument,
            "{}: out_backprop must have shape {expected:?}, got {got}",
            l.node().op.name
        );
        Ok(())
    }

    /// Where images have batch, channels and space, with the roles of the first two exchanged on
    /// request.
    fn of_images(&self, is_exchanged: bool) -> (usize, usize, Vec<usize>) {
        let (batch, channels) = (0, self.format.channel_dim());
        let space = self.format.spatial_dims().collect();
        if is_exchanged { (channels, batch, space) } else { (batch, channels, space) }
    }

    /// Where filters have input channels, output channels and space, or the other way round.
    fn of_filter(&self, is_exchanged: bool) -> (usize, usize, Vec<usize>) {
        let spatial = self.format.spatial;
        let (ins, outs, space) = (spatial, spatial + 1, (0..spatial).collect());
        if is_exchanged { (outs, ins, space) } else { (ins, outs, space) }
    }

    fn forward(&self, images: &Value, filter: &Value) -> Value {
        let spatial = self.format.spatial;
        let by = Hlo {
            input: self.of_images(false),
            filter: self.of_filter(false),
            output: self.of_images(false),
            strides: self.each(|a| a.stride),
            padding: self.each(Axis::padding),
            input_dilation: vec![1; spatial],
            filter_dilation: self.each(|a| a.dilation),
            reverses_filter: false,
            feature_groups: self.groups,
            batch_groups: 1,
        };
        convolved(images, filter, &by, &self.result_dims())
    }

    /// The gradient of the images: the gradient of the result, with its elements a stride apart, by
    /// the reversed filter with its channels exchanged.
    fn to_images(&self, filter: &Value, gradient: &Value) -> Value {
        let spatial = self.format.spatial;
        let padding = |a: &Axis| {
            let before = a.reach() as i64 - 1 - a.before as i64;
            (before, (a.input + a.reach()) as i64 - 1 - a.spread() as i64 - before)
        };
        let by = Hlo {
            input: self.of_images(false),
            filter: self.of_filter(true),
            output: self.of_images(false),
            strides: vec![1; spatial],
            padding: self.each(padding),
            input_dilation: self.each(|a| a.stride),
            filter_dilation: self.each(|a| a.dilation),
            reverses_filter: true,
            feature_groups: self.groups,
            batch_groups: 1,
        };
        convolved(gradient, &self.exchanged_groups(filter), &by, &self.image_dims())
    }

    /// The filter `[.., in / groups, out]` as `[.., in, out / groups]`.
    fn exchanged_groups(&self, filter: &Value) -> Value {
        if self.groups == 1 {
            return filter.clone();
        }
        let spatial = self.format.spatial;
        let (ins, outs) = (self.in_channels / self.groups, self.out_channels / self.groups);
        let space = self.each(|a| a.window);
        let split = [&space[..], &[ins, self.groups, outs]].concat();
        let order: Vec<usize> = (0..spatial).chain([spatial + 1, spatial, spatial + 2]).collect();
        let joined = [&space[..], &[self.in_channels, outs]].concat();
        filter.reshape(&split).transpose(&order).reshape(&joined)
    }

    /// The gradient of the filter: the images, with channels as batch and batch as channels, by the
    /// gradient of the result with its elements a stride apart.
    fn to_filter(&self, images: &Value, gradient: &Value) -> Value {
        let spatial = self.format.spatial;
        let padding = |a: &Axis| {
            let needed = (a.reach() - 1 + a.spread()) as i64;
            (a.before as i64, needed - (a.input + a.before) as i64)
        };
        let by = Hlo {
            input: self.of_images(true),
            filter: self.of_images(false),
            output: self.of_filter(false),
            strides: self.each(|a| a.dilation),
            padding: self.each(padding),
            input_dilation: vec![1; spatial],
            filter_dilation: self.each(|a| a.stride),
            reverses_filter: false,
            feature_groups: 1,
            batch_groups: self.groups,
        };
        convolved(images, gradient, &by, &self.filter_dims())
    }
}

/// The convolution in the dtype of the images; zeros if there is nothing to sum.
fn convolved(images: &Value, filter: &Value, by: &Hlo, result: &[usize]) -> Value {
    if images.num_elements() == 0 || filter.num_elements() == 0 || result.contains(&0) {
        return images.splat(images.dtype(), result, 0.0);
    }
    images.convolution(filter, by, result)
}
