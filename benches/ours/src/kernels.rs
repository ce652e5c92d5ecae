//! Rows of one kernel each, as a table. The graph of such a row is also written to a file, which
//! the TensorFlow peer loads, so that both run the same graph.

use thalweg_graph::{AttrValue, IntoAttr, Output, Scope};
use thalweg_tensor::{DType, Element, Result, Shape, Tensor, f16};

/// A row: an op on constants.
pub(crate) struct KernelRow {
    name: &'static str,
    op: &'static str,
    inputs: &'static [Input],
    attrs: &'static [(&'static str, Attr)],
    /// Work in one run: floating-point operations for products, elements for the rest.
    pub(crate) units: usize,
}

enum Input {
    F32(&'static [usize]),
    F16(&'static [usize]),
    /// Positive floats.
    Positive(&'static [usize]),
    /// 1 or 0 in random order.
    Bools(&'static [usize]),
    Int(i32),
    Ints(&'static [i32]),
    /// Pairs of integers.
    IntMatrix(&'static [i32]),
    /// The first number of ids below the second, scattered.
    Ids(usize, usize),
    /// The first number of ids below the second, ascending.
    SortedIds(usize, usize),
    /// Indices of shape `[count, 1]` below the other.
    Points(usize, usize),
}

enum Attr {
    Number(i64),
    Numbers(&'static [i64]),
    Text(&'static str),
    Flag(bool),
    Type(DType),
}

use Attr::{Flag, Number, Numbers, Text, Type};
use Input::{Bools, F16, F32, Ids, Int, IntMatrix, Ints, Points, Positive, SortedIds};

const fn row(
    name: &'static str,
    op: &'static str,
    inputs: &'static [Input],
    attrs: &'static [(&'static str, Attr)],
    units: usize,
) -> KernelRow {
    KernelRow { name, op, inputs, attrs, units }
}

const MATRIX: Input = F32(&[1024, 1024]);
const MILLION: usize = 1 << 20;
const SAME: (&str, Attr) = ("padding", Text("SAME"));
const STEP_1: (&str, Attr) = ("strides", Numbers(&[1, 1, 1, 1]));
const STEP_2: (&str, Attr) = ("strides", Numbers(&[1, 2, 2, 1]));
const WINDOW_2: (&str, Attr) = ("ksize", Numbers(&[1, 2, 2, 1]));
const WINDOW_3: (&str, Attr) = ("ksize", Numbers(&[1, 3, 3, 1]));
/// 8 images of 56x56 with 64 channels.
const IMAGES: Input = F32(&[8, 56, 56, 64]);
const IMAGES_SIZE: Input = Ints(&[8, 56, 56, 64]);
const IMAGE_ELEMENTS: usize = 8 * 56 * 56 * 64;
const CONV_3X3: usize = 2 * 8 * 56 * 56 * 64 * 64 * 9;
const CHANNELS: Input = F32(&[64]);
const FLOAT: (&str, Attr) = ("dtype", Type(DType::Float));
const SEED: (&str, Attr) = ("seed", Number(1));

#[rustfmt::skip]
const ROWS: &[KernelRow] = &[
    row("elementwise/relu/1M", "Relu", &[MATRIX], &[], MILLION),
    row("elementwise/sigmoid/1M", "Sigmoid", &[MATRIX], &[], MILLION),
    row("elementwise/log/1M", "Log", &[Positive(&[1024, 1024])], &[], MILLION),
    row("elementwise/sqrt/1M", "Sqrt", &[Positive(&[1024, 1024])], &[], MILLION),
    row("elementwise/rsqrt/1M", "Rsqrt", &[Positive(&[1024, 1024])], &[], MILLION),
    row("elementwise/sin/1M", "Sin", &[MATRIX], &[], MILLION),
    row("elementwise/erf/1M", "Erf", &[MATRIX], &[], MILLION),
    row("elementwise/div/1M", "RealDiv", &[MATRIX, Positive(&[1024, 1024])], &[], MILLION),
    row("elementwise/pow/1M", "Pow", &[Positive(&[1024, 1024]), MATRIX], &[], MILLION),
    row("elementwise/maximum/1M", "Maximum", &[MATRIX, MATRIX], &[], MILLION),
    row("elementwise/greater/1M", "Greater", &[MATRIX, MATRIX], &[], MILLION),
    row("elementwise/select/1M", "SelectV2", &[Bools(&[1024, 1024]), MATRIX, MATRIX], &[], MILLION),
    row("elementwise/add_f16/1M", "AddV2", &[F16(&[1024, 1024]), F16(&[1024, 1024])], &[], MILLION),
    row("elementwise/add_row/1M", "AddV2", &[MATRIX, F32(&[1024])], &[], MILLION),
    row("elementwise/add_column/1M", "AddV2", &[MATRIX, F32(&[1024, 1])], &[], MILLION),
    row("elementwise/cast_f16/1M", "Cast", &[MATRIX], &[("DstT", Type(DType::Half))], MILLION),
    row("elementwise/bias_add/1M", "BiasAdd", &[MATRIX, F32(&[1024])], &[], MILLION),
    row("elementwise/relu_grad/1M", "ReluGrad", &[MATRIX, MATRIX], &[], MILLION),
    row("reduce/sum_rows/1M", "Sum", &[MATRIX, Int(1)], &[], MILLION),
    row("reduce/sum_columns/1M", "Sum", &[MATRIX, Int(0)], &[], MILLION),
    row("reduce/sum_short_rows/1M", "Sum", &[F32(&[131_072, 8]), Int(1)], &[], MILLION),
    row("reduce/mean_images/1.6M", "Mean", &[IMAGES, Ints(&[1, 2])], &[], IMAGE_ELEMENTS),
    row("reduce/max_rows/1M", "Max", &[MATRIX, Int(1)], &[], MILLION),
    row("reduce/argmax_rows/1M", "ArgMax", &[MATRIX, Int(1)], &[], MILLION),
    row("reduce/bias_grad/1M", "BiasAddGrad", &[MATRIX], &[], MILLION),
    row("softmax/1024x10", "Softmax", &[F32(&[1024, 10])], &[], 10_240),
    row("softmax/log_128x1000", "LogSoftmax", &[F32(&[128, 1000])], &[], 128_000),
    row("softmax/sparse_cross_entropy_128x1000", "SparseSoftmaxCrossEntropyWithLogits",
        &[F32(&[128, 1000]), Ids(128, 1000)], &[], 128_000),
    row("conv/3x3_64", "Conv2D", &[IMAGES, F32(&[3, 3, 64, 64])], &[STEP_1, SAME], CONV_3X3),
    row("conv/1x1_64_256", "Conv2D", &[IMAGES, F32(&[1, 1, 64, 256])], &[STEP_1, SAME],
        2 * 8 * 56 * 56 * 64 * 256),
    row("conv/7x7_stride_2", "Conv2D", &[F32(&[8, 112, 112, 3]), F32(&[7, 7, 3, 64])],
        &[STEP_2, SAME], 2 * 8 * 56 * 56 * 64 * 7 * 7 * 3),
    row("conv/backprop_input", "Conv2DBackpropInput",
        &[IMAGES_SIZE, F32(&[3, 3, 64, 64]), IMAGES], &[STEP_1, SAME], CONV_3X3),
    row("conv/backprop_filter", "Conv2DBackpropFilter",
        &[IMAGES, Ints(&[3, 3, 64, 64]), IMAGES], &[STEP_1, SAME], CONV_3X3),
    row("conv/depthwise_3x3", "DepthwiseConv2dNative", &[IMAGES, F32(&[3, 3, 64, 1])],
        &[STEP_1, SAME], 2 * IMAGE_ELEMENTS * 9),
    row("matmul/batch_64x128", "BatchMatMulV2", &[F32(&[64, 128, 64]), F32(&[64, 64, 128])], &[],
        2 * 64 * 128 * 128 * 64),
    row("pool/max_2x2", "MaxPool", &[IMAGES], &[WINDOW_2, STEP_2, SAME], IMAGE_ELEMENTS),
    row("pool/max_3x3", "MaxPool", &[IMAGES], &[WINDOW_3, STEP_2, SAME], IMAGE_ELEMENTS),
    row("pool/avg_3x3", "AvgPool", &[IMAGES], &[WINDOW_3, STEP_1, SAME], IMAGE_ELEMENTS),
    row("pool/max_grad_2x2", "MaxPoolGrad", &[IMAGES, F32(&[8, 28, 28, 64]), F32(&[8, 28, 28, 64])],
        &[WINDOW_2, STEP_2, SAME], IMAGE_ELEMENTS),
    row("batch_norm/training", "FusedBatchNormV3",
        &[IMAGES, CHANNELS, CHANNELS, F32(&[0]), F32(&[0])], &[("is_training", Flag(true))],
        IMAGE_ELEMENTS),
    row("batch_norm/inference", "FusedBatchNormV3",
        &[IMAGES, CHANNELS, CHANNELS, CHANNELS, Positive(&[64])],
        &[("is_training", Flag(false))], IMAGE_ELEMENTS),
    row("batch_norm/grad", "FusedBatchNormGradV3",
        &[IMAGES, IMAGES, CHANNELS, CHANNELS, Positive(&[64]), Positive(&[64])],
        &[("is_training", Flag(true))], IMAGE_ELEMENTS),
    row("gather/scalars_1M", "GatherV2", &[F32(&[65_536]), Ids(MILLION, 65_536), Int(0)], &[],
        MILLION),
    row("gather/nd_8192x128", "GatherNd", &[F32(&[65_536, 128]), Points(8192, 65_536)], &[],
        8192 * 128),
    row("scatter/nd_8192x128", "ScatterNd",
        &[Points(8192, 65_536), F32(&[8192, 128]), Ints(&[65_536, 128])], &[], 8192 * 128),
    row("scatter/segment_sum_8192x128", "UnsortedSegmentSum",
        &[F32(&[8192, 128]), Ids(8192, 1024), Int(1024)], &[], 8192 * 128),
    row("scatter/sorted_segment_sum_8192x128", "SegmentSum",
        &[F32(&[8192, 128]), SortedIds(8192, 1024)], &[], 8192 * 128),
    row("transpose/nhwc_nchw", "Transpose", &[IMAGES, Ints(&[0, 3, 1, 2])], &[], IMAGE_ELEMENTS),
    row("transpose/heads", "Transpose", &[F32(&[32, 128, 8, 64]), Ints(&[0, 2, 1, 3])], &[],
        32 * 128 * 8 * 64),
    row("concat/pad_1M", "Pad", &[F32(&[8, 54, 54, 64]), IntMatrix(&[0, 0, 1, 1, 1, 1, 0, 0])], &[], IMAGE_ELEMENTS),
    row("concat/tile_1M", "Tile", &[F32(&[1024, 128]), Ints(&[1, 8])], &[], MILLION),
    row("concat/slice_1M", "Slice", &[F32(&[1024, 2048]), Ints(&[0, 512]), Ints(&[1024, 1024])],
        &[], MILLION),
    row("random/uniform/1M", "RandomUniform", &[Ints(&[1024, 1024])], &[FLOAT, SEED], MILLION),
    row("random/truncated_normal/1M", "TruncatedNormal", &[Ints(&[1024, 1024])], &[FLOAT, SEED],
        MILLION),
    row("sort/top_k_128x1000", "TopKV2", &[F32(&[128, 1000]), Int(10)], &[], 128_000),
];

/// The row of this name.
pub(crate) fn find(name: &str) -> Option<&'static KernelRow> {
    ROWS.iter().find(|r| r.name == name)
}

impl KernelRow {
    /// Adds the row to a graph; the node's name is the one that the peers run.
    pub(crate) fn build(&self, scope: &mut Scope) -> Result<Output> {
        let inputs: Vec<Output> =
            self.inputs.iter().map(|i| scope.constant(&i.tensor()?)).collect::<Result<_>>()?;
        let node = scope.op(self.op).name("node_0").inputs(&inputs);
        self.attrs.iter().fold(node, |node, (name, value)| node.attr(name, value.value())).build()
    }
}

impl Attr {
    fn value(&self) -> AttrValue {
        match self {
            Number(x) => (*x).into_attr(),
            Numbers(x) => (*x).into_attr(),
            Text(x) => (*x).into_attr(),
            Flag(x) => (*x).into_attr(),
            Type(x) => (*x).into_attr(),
        }
    }
}

impl Input {
    fn tensor(&self) -> Result<Tensor> {
        // Between -0.5 and 0.5: no subnormals, no infinities.
        let float = |i: usize| {
            ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let shape = |dims: &[usize]| Shape::new(dims);
        match self {
            F32(dims) => filled(shape(dims)?, float),
            Positive(dims) => filled(shape(dims)?, |i| float(i) + 0.6),
            F16(dims) => filled(shape(dims)?, |i| f16::from_f32(float(i))),
            Bools(dims) => filled(shape(dims)?, |i| float(i) > 0.0),
            Int(x) => Ok(Tensor::scalar(*x)),
            Ints(x) => Tensor::vector(x),
            IntMatrix(x) => Tensor::from_slice(shape(&[x.len() / 2, 2])?, x),
            Ids(count, below) => filled(shape(&[*count])?, |i| scattered(i, *below)),
            SortedIds(count, below) => filled(shape(&[*count])?, |i| (i * below / count) as i32),
            Points(count, below) => filled(shape(&[*count, 1])?, |i| scattered(i, *below)),
        }
    }
}

/// In an order that defeats prefetching.
fn scattered(i: usize, below: usize) -> i32 {
    (i * 40_503 % below) as i32
}

fn filled<T: Element>(shape: Shape, element: impl Fn(usize) -> T) -> Result<Tensor> {
    let elements: Vec<T> = (0..shape.num_elements()).map(element).collect();
    Tensor::from_slice(shape, &elements)
}
