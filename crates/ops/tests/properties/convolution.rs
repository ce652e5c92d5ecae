//! Convolutions, their gradient ops, and pooling, compared with the definition.

use thalweg_tensor::*;

use crate::array::{Array, indices};
use crate::harness::*;

/// Window positions along one spatial axis.
#[derive(Clone, Copy)]
struct Axis {
    input: usize,
    window: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    output: usize,
}

impl Axis {
    /// An axis under a padding; `None` if the window does not fit.
    fn new(
        [input, window, stride, dilation]: [usize; 4],
        padding: &str,
        explicit: [usize; 2],
    ) -> Option<Axis> {
        let reach = (window - 1) * dilation + 1;
        let (before, output) = match padding {
            "SAME" => {
                let output = input.div_ceil(stride);
                (((output - 1) * stride + reach).saturating_sub(input) / 2, output)
            }
            "VALID" => (0, (input.checked_sub(reach)?) / stride + 1),
            _ => {
                let padded = input + explicit[0] + explicit[1];
                (explicit[0], padded.checked_sub(reach)? / stride + 1)
            }
        };
        Some(Axis { input, window, stride, dilation, before, output })
    }

    /// The input position of a window cell, unless it is padding.
    fn source(&self, output: usize, cell: usize) -> Option<usize> {
        (output * self.stride + cell * self.dilation)
            .checked_sub(self.before)
            .filter(|&i| i < self.input)
    }
}

/// The axes of a sliding window, and the corresponding attrs.
struct Sliding {
    axes: Vec<Axis>,
    padding: &'static str,
    explicit: Vec<[usize; 2]>,
    channels_first: bool,
}

impl Sliding {
    fn random(
        random: &mut Random,
        spatial: usize,
        paddings: &[&'static str],
        dilation_max: usize,
    ) -> Sliding {
        let padding = random.pick(paddings);
        let (mut axes, mut explicit) = (Vec::new(), Vec::new());
        while axes.len() < spatial {
            let dilation = if random.once_in(3) { random.size(1, dilation_max) } else { 1 };
            let sizes = [random.size(1, 6), random.size(1, 3), random.size(1, 3), dilation];
            let pads = [random.size(0, 2), random.size(0, 2)];
            if let Some(axis) = Axis::new(sizes, padding, pads) {
                axes.push(axis);
                explicit.push(pads);
            }
        }
        Sliding { axes, padding, explicit, channels_first: random.flag() }
    }

    /// Whether all padding is narrower than the window.
    fn pads_are_narrow(&self) -> bool {
        let mut axes = self.axes.iter().zip(&self.explicit);
        let narrow = |(axis, pads): (&Axis, &[usize; 2])| pads.iter().all(|&p| p < axis.window);
        axes.all(narrow)
    }

    /// Dimensions in the data format.
    fn dims(&self, batch: usize, spatial: &[usize], channels: usize) -> Vec<usize> {
        if self.channels_first {
            [&[batch, channels], spatial].concat()
        } else {
            [&[batch], spatial, &[channels]].concat()
        }
    }

    fn input_dims(&self, batch: usize, channels: usize) -> Vec<usize> {
        let spatial: Vec<usize> = self.axes.iter().map(|a| a.input).collect();
        self.dims(batch, &spatial, channels)
    }

    fn output_dims(&self, batch: usize, channels: usize) -> Vec<usize> {
        let spatial: Vec<usize> = self.axes.iter().map(|a| a.output).collect();
        self.dims(batch, &spatial, channels)
    }

    /// The window's extent.
    fn window(&self) -> Vec<usize> {
        self.axes.iter().map(|a| a.window).collect()
    }

    /// A list attr with ones for batch and channels.
    fn list(&self, of: fn(&Axis) -> usize) -> Vec<i64> {
        let spatial: Vec<usize> = self.axes.iter().map(of).collect();
        signed(&self.dims(1, &spatial, 1))
    }

    fn data_format(&self) -> &'static str {
        match (self.axes.len(), self.channels_first) {
            (2, false) => "NHWC",
            (2, true) => "NCHW",
            (_, false) => "NDHWC",
            (_, true) => "NCDHW",
        }
    }

    /// The attrs that convolutions and pooling share.
    fn attrs(&self, call: Call) -> Call {
        let call = call.attr("strides", &self.list(|a| a.stride)[..]);
        let call = call.attr("padding", self.padding).attr("data_format", self.data_format());
        if self.padding != "EXPLICIT" {
            return call;
        }
        let mut pads = self.explicit.clone();
        pads.insert(0, [0, 0]);
        pads.insert(if self.channels_first { 1 } else { pads.len() }, [0, 0]);
        call.attr("explicit_paddings", &signed(&pads.concat())[..])
    }

    fn dilated(&self, call: Call) -> Call {
        self.attrs(call).attr("dilations", &self.list(|a| a.dilation)[..])
    }

    /// For every output position and window cell, the input position, unless it is padding.
    fn pairs(&self) -> Vec<[Vec<usize>; 3]> {
        let outputs: Vec<usize> = self.axes.iter().map(|a| a.output).collect();
        let mut pairs = Vec::new();
        for output in indices(&outputs) {
            for cell in indices(&self.window()) {
                let sources: Option<Vec<usize>> =
                    (0..self.axes.len()).map(|i| self.axes[i].source(output[i], cell[i])).collect();
                if let Some(source) = sources {
                    pairs.push([source, cell, output.clone()]);
                }
            }
        }
        pairs
    }
}

/// A convolution: the products of input and filter elements for each output element.
struct Convolution {
    input: Array,
    filter: Array,
    output: Array,
    taps: Vec<[usize; 3]>,
}

impl Convolution {
    /// `connect` returns the filter's last two indices for an input and an output channel, if these
    /// channels are connected.
    fn new(
        random: &mut Random,
        sliding: &Sliding,
        channels: [usize; 2],
        filter_channels: [usize; 2],
        connect: impl Fn(usize, usize) -> Option<[usize; 2]>,
    ) -> Convolution {
        let batch = random.size(1, 2);
        let input = random.array(&sliding.input_dims(batch, channels[0]), -3, 3);
        let filter = [sliding.window(), filter_channels.to_vec()].concat();
        let filter = random.array(&filter, -3, 3);
        let output = random.array(&sliding.output_dims(batch, channels[1]), -3, 3);
        let mut taps = Vec::new();
        for [source, cell, target] in sliding.pairs() {
            for index in indices(&[batch, channels[0], channels[1]]) {
                let [b, from, to] = index[..] else { unreachable!("three dimensions") };
                let Some(weight) = connect(from, to) else { continue };
                taps.push([
                    input.place(&sliding.dims(b, &source, from)),
                    filter.place(&[&cell[..], &weight].concat()),
                    output.place(&sliding.dims(b, &target, to)),
                ]);
            }
        }
        Convolution { input, filter, output, taps }
    }

    /// One of the three contractions: 0 the input's adjoint, 1 the filter's, 2 the output.
    fn contract(&self, result: usize) -> Array {
        let arrays = [&self.input, &self.filter, &self.output];
        let mut sums = Array::filled(&arrays[result].dims, 0.0);
        for tap in &self.taps {
            let product: f64 =
                (0..3).filter(|&i| i != result).map(|i| arrays[i].values[tap[i]]).product();
            sums.values[tap[result]] += product;
        }
        sums
    }

    /// The forward op and both backward ones.
    fn check(&self, sliding: &Sliding, ops: [&'static str; 3], dtype: DType) -> Result<()> {
        let [forward, by_input, by_filter] = ops;
        let call = Call::new(forward).array(&self.input, dtype).array(&self.filter, dtype);
        sliding.dilated(call).gives(&self.contract(2))?;
        let call = Call::new(by_input).sizes(&self.input.dims, DType::Int32);
        let call = call.array(&self.filter, dtype).array(&self.output, dtype);
        sliding.dilated(call).gives(&self.contract(0))?;
        let call = Call::new(by_filter).array(&self.input, dtype);
        let call = call.sizes(&self.filter.dims, DType::Int32).array(&self.output, dtype);
        sliding.dilated(call).gives(&self.contract(1))
    }
}

/// A number of channels: a few, or more than a vector register holds.
fn channels(random: &mut Random) -> usize {
    if random.once_in(6) { random.size(9, 20) } else { random.size(1, 4) }
}

const ALL_PADDINGS: &[&str] = &["SAME", "VALID", "EXPLICIT"];

const CONV2D: [&str; 3] = ["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"];

const CONV3D: [&str; 3] = ["Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"];

const DEPTHWISE: [&str; 3] = [
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropInput",
    "DepthwiseConv2dNativeBackpropFilter",
];

#[test]
fn convolutions_in_two_dimensions() {
    check("Conv2D", 80, |random| {
        let sliding = Sliding::random(random, 2, ALL_PADDINGS, 3);
        let [from, to] = [channels(random), channels(random)];
        let all = |from, to| Some([from, to]);
        let case = Convolution::new(random, &sliding, [from, to], [from, to], all);
        let dtype = random.pick(&[DType::Float, DType::Double]);
        case.check(&sliding, CONV2D, dtype)
    });
}

#[test]
fn convolutions_in_groups() {
    check("Conv2D in groups", 60, |random| {
        let sliding = Sliding::random(random, 2, ALL_PADDINGS, 3);
        let groups = random.size(2, 3);
        let [from, to] = [random.size(1, 3), random.size(1, 3)];
        let grouped = |i: usize, o: usize| (i / from == o / to).then_some([i % from, o]);
        let channels = [groups * from, groups * to];
        let case = Convolution::new(random, &sliding, channels, [from, groups * to], grouped);
        case.check(&sliding, CONV2D, DType::Float)
    });
}

#[test]
fn convolutions_in_three_dimensions() {
    check("Conv3D", 40, |random| {
        let sliding = Sliding::random(random, 3, &["SAME", "VALID"], 2);
        let [from, to] = [random.size(1, 3), random.size(1, 3)];
        let all = |from, to| Some([from, to]);
        let case = Convolution::new(random, &sliding, [from, to], [from, to], all);
        case.check(&sliding, CONV3D, random.pick(&[DType::Float, DType::Double]))
    });
}

#[test]
fn convolutions_channel_by_channel() {
    check("DepthwiseConv2dNative", 80, |random| {
        let sliding = Sliding::random(random, 2, ALL_PADDINGS, 3);
        let [from, times] = [channels(random), random.size(1, 3)];
        let own = |i: usize, o: usize| (o / times == i).then_some([i, o % times]);
        let case = Convolution::new(random, &sliding, [from, from * times], [from, times], own);
        case.check(&sliding, DEPTHWISE, random.pick(&[DType::Float, DType::Double]))
    });
}

/// Runs a pooling op and compares with `function` applied to each window.
fn pools(
    random: &mut Random,
    op: &'static str,
    sliding: &Sliding,
    types: &[DType],
    function: fn(&[f64]) -> f64,
) -> Result<()> {
    let [batch, channels] = [random.size(1, 2), random.size(1, 3)];
    let input = random.array(&sliding.input_dims(batch, channels), -20, 20);
    let mut output = Array::filled(&sliding.output_dims(batch, channels), 0.0);
    let mut covered = vec![Vec::new(); output.values.len()];
    for [source, _, target] in sliding.pairs() {
        for index in indices(&[batch, channels]) {
            let target = output.place(&sliding.dims(index[0], &target, index[1]));
            covered[target].push(input.at(&sliding.dims(index[0], &source, index[1])));
        }
    }
    output.values = covered.iter().map(|c| function(c)).collect();
    let call = Call::new(op).array(&input, random.pick(types));
    let call = sliding.attrs(call.attr("ksize", &sliding.list(|a| a.window)[..]));
    call.gives(&output)
}

fn largest(covered: &[f64]) -> f64 {
    covered.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn average(covered: &[f64]) -> f64 {
    covered.iter().sum::<f64>() / covered.len() as f64
}

#[test]
fn pooling() {
    let paddings = &["SAME", "VALID"];
    check("MaxPool", 80, |random| {
        let mut sliding = Sliding::random(random, 2, ALL_PADDINGS, 1);
        // No window may lie entirely in the padding.
        while sliding.padding == "EXPLICIT" && !sliding.pads_are_narrow() {
            sliding = Sliding::random(random, 2, ALL_PADDINGS, 1);
        }
        pools(random, "MaxPool", &sliding, NUMBERS, largest)
    });
    check("AvgPool", 80, |random| {
        let sliding = Sliding::random(random, 2, paddings, 1);
        pools(random, "AvgPool", &sliding, FLOATS, average)
    });
    check("MaxPool3D", 40, |random| {
        let sliding = Sliding::random(random, 3, paddings, 1);
        pools(random, "MaxPool3D", &sliding, &[DType::Float], largest)
    });
    check("AvgPool3D", 40, |random| {
        let sliding = Sliding::random(random, 3, paddings, 1);
        pools(random, "AvgPool3D", &sliding, &[DType::Float, DType::Double], average)
    });
}
