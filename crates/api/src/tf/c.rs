//! Ops C. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `CSVDataset`.
///
/// `OutputTypes`: float, double, int32, string, int64. Has no gradient.
#[track_caller]
pub fn csv_dataset(
    filenames: impl Handle<String>,
    compression_type: impl Operand<String>,
    buffer_size: impl Operand<i64>,
    header: impl Operand<bool>,
    field_delim: impl Operand<String>,
    use_quote_delim: impl Operand<bool>,
    na_value: impl Operand<String>,
    select_cols: impl Operand<i64>,
    record_defaults: &[Output<Untyped>],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&filenames, "CSVDataset")
        .input(filenames)
        .input(compression_type)
        .input(buffer_size)
        .input(header)
        .input(field_delim)
        .input(use_quote_delim)
        .input(na_value)
        .input(select_cols)
        .inputs(record_defaults)
        .attr("output_types", &dtypes_of(record_defaults)[..])
        .attr("output_shapes", output_shapes)
        .output()
}

/// `CSVDatasetV2`.
///
/// `OutputTypes`: float, double, int32, string, int64. Has no gradient.
#[track_caller]
pub fn csv_dataset_v2(
    filenames: impl Handle<String>,
    compression_type: impl Operand<String>,
    buffer_size: impl Operand<i64>,
    header: impl Operand<bool>,
    field_delim: impl Operand<String>,
    use_quote_delim: impl Operand<bool>,
    na_value: impl Operand<String>,
    select_cols: impl Operand<i64>,
    record_defaults: &[Output<Untyped>],
    exclude_cols: impl Operand<i64>,
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&filenames, "CSVDatasetV2")
        .input(filenames)
        .input(compression_type)
        .input(buffer_size)
        .input(header)
        .input(field_delim)
        .input(use_quote_delim)
        .input(na_value)
        .input(select_cols)
        .inputs(record_defaults)
        .attr("output_types", &dtypes_of(record_defaults)[..])
        .input(exclude_cols)
        .attr("output_shapes", output_shapes)
        .output()
}

/// Outputs of [`ctc_beam_search_decoder`].
#[derive(Clone, Debug)]
pub struct CTCBeamSearchDecoderOutputs<T: TensorType> {
    /// `decoded_indices`.
    pub decoded_indices: Vec<Output<i64>>,
    /// `decoded_values`.
    pub decoded_values: Vec<Output<i64>>,
    /// `decoded_shape`.
    pub decoded_shape: Vec<Output<i64>>,
    /// `log_probability`.
    pub log_probability: Output<T>,
}

/// `CTCBeamSearchDecoder`.
///
/// `T`: float, double. No gradient passes. Returns `decoded_indices`, `decoded_values`, `decoded_shape`, `log_probability`. Options: [`CTCBeamSearchDecoder`].
#[track_caller]
pub fn ctc_beam_search_decoder<T: TensorType>(
    inputs: impl Handle<T>,
    sequence_length: impl Operand<i32>,
    beam_width: i64,
    top_paths: i64,
) -> CTCBeamSearchDecoderOutputs<T> {
    CTCBeamSearchDecoder::new().build(inputs, sequence_length, beam_width, top_paths)
}
options! { CTCBeamSearchDecoder {
merge_repeated: bool = "merge_repeated", "true";
} }
impl CTCBeamSearchDecoder {
    /// Adds the node: see [`ctc_beam_search_decoder()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        inputs: impl Handle<T>,
        sequence_length: impl Operand<i32>,
        beam_width: i64,
        top_paths: i64,
    ) -> CTCBeamSearchDecoderOutputs<T> {
        let built = self
            .0
            .on(&inputs, "CTCBeamSearchDecoder")
            .input(inputs)
            .input(sequence_length)
            .attr("beam_width", beam_width)
            .attr("top_paths", top_paths)
            .build();
        CTCBeamSearchDecoderOutputs {
            decoded_indices: built
                .outputs("decoded_indices", usize::try_from(top_paths).unwrap_or(0)),
            decoded_values: built
                .outputs("decoded_values", usize::try_from(top_paths).unwrap_or(0)),
            decoded_shape: built.outputs("decoded_shape", usize::try_from(top_paths).unwrap_or(0)),
            log_probability: built.named("log_probability"),
        }
    }
}

/// Outputs of [`ctc_greedy_decoder`].
#[derive(Clone, Debug)]
pub struct CTCGreedyDecoderOutputs<T: TensorType> {
    /// `decoded_indices`.
    pub decoded_indices: Output<i64>,
    /// `decoded_values`.
    pub decoded_values: Output<i64>,
    /// `decoded_shape`.
    pub decoded_shape: Output<i64>,
    /// `log_probability`.
    pub log_probability: Output<T>,
}

/// `CTCGreedyDecoder`.
///
/// `T`: float, double. No gradient passes. Returns `decoded_indices`, `decoded_values`, `decoded_shape`, `log_probability`. Options: [`CTCGreedyDecoder`].
#[track_caller]
pub fn ctc_greedy_decoder<T: TensorType>(
    inputs: impl Handle<T>,
    sequence_length: impl Operand<i32>,
) -> CTCGreedyDecoderOutputs<T> {
    CTCGreedyDecoder::new().build(inputs, sequence_length)
}
options! { CTCGreedyDecoder {
merge_repeated: bool = "merge_repeated", "false";
blank_index: i64 = "blank_index", "-1";
} }
impl CTCGreedyDecoder {
    /// Adds the node: see [`ctc_greedy_decoder()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        inputs: impl Handle<T>,
        sequence_length: impl Operand<i32>,
    ) -> CTCGreedyDecoderOutputs<T> {
        let built =
            self.0.on(&inputs, "CTCGreedyDecoder").input(inputs).input(sequence_length).build();
        CTCGreedyDecoderOutputs {
            decoded_indices: built.output(0),
            decoded_values: built.output(1),
            decoded_shape: built.output(2),
            log_probability: built.output(3),
        }
    }
}

/// `CTCLoss`.
///
/// `T`: float, double. Has a gradient. Returns `loss`, `gradient`. Options: [`CTCLoss`].
#[track_caller]
pub fn ctc_loss<T: TensorType>(
    inputs: impl Handle<T>,
    labels_indices: impl Operand<i64>,
    labels_values: impl Operand<i32>,
    sequence_length: impl Operand<i32>,
) -> (Output<T>, Output<T>) {
    CTCLoss::new().build(inputs, labels_indices, labels_values, sequence_length)
}
options! { CTCLoss {
preprocess_collapse_repeated: bool = "preprocess_collapse_repeated", "false";
ctc_merge_repeated: bool = "ctc_merge_repeated", "true";
ignore_longer_outputs_than_inputs: bool = "ignore_longer_outputs_than_inputs", "false";
} }
impl CTCLoss {
    /// Adds the node: see [`ctc_loss()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        inputs: impl Handle<T>,
        labels_indices: impl Operand<i64>,
        labels_values: impl Operand<i32>,
        sequence_length: impl Operand<i32>,
    ) -> (Output<T>, Output<T>) {
        let built = self
            .0
            .on(&inputs, "CTCLoss")
            .input(inputs)
            .input(labels_indices)
            .input(labels_values)
            .input(sequence_length)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `CTCLossV2`. Has a gradient. Returns `loss`, `gradient`. Options: [`CTCLossV2`].
#[track_caller]
pub fn ctc_loss_v2(
    inputs: impl Handle<f32>,
    labels_indices: impl Operand<i64>,
    labels_values: impl Operand<i32>,
    sequence_length: impl Operand<i32>,
) -> (Output<f32>, Output<f32>) {
    CTCLossV2::new().build(inputs, labels_indices, labels_values, sequence_length)
}
options! { CTCLossV2 {
preprocess_collapse_repeated: bool = "preprocess_collapse_repeated", "false";
ctc_merge_repeated: bool = "ctc_merge_repeated", "true";
ignore_longer_outputs_than_inputs: bool = "ignore_longer_outputs_than_inputs", "false";
} }
impl CTCLossV2 {
    /// Adds the node: see [`ctc_loss_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        inputs: impl Handle<f32>,
        labels_indices: impl Operand<i64>,
        labels_values: impl Operand<i32>,
        sequence_length: impl Operand<i32>,
    ) -> (Output<f32>, Output<f32>) {
        let built = self
            .0
            .on(&inputs, "CTCLossV2")
            .input(inputs)
            .input(labels_indices)
            .input(labels_values)
            .input(sequence_length)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `CacheDataset`. Has no gradient. Options: [`CacheDataset`].
#[track_caller]
pub fn cache_dataset(
    input_dataset: impl Handle<Variant>,
    filename: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    CacheDataset::new().build(input_dataset, filename, output_types, output_shapes)
}
options! { CacheDataset {
metadata: &str = "metadata", "\"\"";
} }
impl CacheDataset {
    /// Adds the node: see [`cache_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        filename: impl Operand<String>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "CacheDataset")
            .input(input_dataset)
            .input(filename)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `CacheDatasetV2`. Has no gradient. Options: [`CacheDatasetV2`].
#[track_caller]
pub fn cache_dataset_v2(
    input_dataset: impl Handle<Variant>,
    filename: impl Operand<String>,
    cache: impl Operand<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    CacheDatasetV2::new().build(input_dataset, filename, cache, output_types, output_shapes)
}
options! { CacheDatasetV2 {
metadata: &str = "metadata", "\"\"";
} }
impl CacheDatasetV2 {
    /// Adds the node: see [`cache_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        filename: impl Operand<String>,
        cache: impl Operand<Resource>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "CacheDatasetV2")
            .input(input_dataset)
            .input(filename)
            .input(cache)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Case`. Has a gradient. Options: [`Case`].
#[track_caller]
pub fn case(
    branch_index: impl Handle<i32>,
    input: &[Output<Untyped>],
    tout: &[DType],
    branches: &[Function],
) -> Vec<Output<Untyped>> {
    Case::new().build(branch_index, input, tout, branches)
}
options! { Case {
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl Case {
    /// Adds the node: see [`case()`].
    #[track_caller]
    pub fn build(
        &self,
        branch_index: impl Handle<i32>,
        input: &[Output<Untyped>],
        tout: &[DType],
        branches: &[Function],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&branch_index, "Case")
            .input(branch_index)
            .inputs(input)
            .attr("Tin", &dtypes_of(input)[..])
            .attr("Tout", tout)
            .attr("branches", functions_attr(branches))
            .build();
        built.outputs("output", tout.len())
    }
}

/// `Cast`: elements converted to another type. Has a gradient. Options: [`Cast`].
#[track_caller]
pub fn cast<DstT: TensorType, SrcT: TensorType>(x: impl Handle<SrcT>) -> Output<DstT> {
    Cast::new().build(x)
}
options! { Cast {
truncate: bool = "Truncate", "false";
} }
impl Cast {
    /// Adds the node: see [`cast()`].
    #[track_caller]
    pub fn build<DstT: TensorType, SrcT: TensorType>(&self, x: impl Handle<SrcT>) -> Output<DstT> {
        self.0.on(&x, "Cast").dtype::<DstT>("DstT").input(x).output()
    }
}

/// `Ceil`: each element rounded up.
///
/// `T`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn ceil<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Ceil").input(x).output()
}

/// `CheckNumerics`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn check_numerics<T: TensorType>(tensor: impl Handle<T>, message: &str) -> Output<T> {
    NewOp::on(&tensor, "CheckNumerics").input(tensor).attr("message", message).output()
}

/// `CheckNumericsV2`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn check_numerics_v2<T: TensorType>(tensor: impl Handle<T>, message: &str) -> Output<T> {
    NewOp::on(&tensor, "CheckNumericsV2").input(tensor).attr("message", message).output()
}

/// `Cholesky`: the lower triangular factor of positive definite matrices.
///
/// `T`: float, double, complex64, complex128. Has a gradient.
#[track_caller]
pub fn cholesky<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "Cholesky").input(input).output()
}

/// `CholeskyGrad`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn cholesky_grad<T: TensorType>(l: impl Handle<T>, grad: impl Operand<T>) -> Output<T> {
    NewOp::on(&l, "CholeskyGrad").input(l).input(grad).output()
}

/// `ChooseFastestDataset`. Has no gradient.
#[track_caller]
pub fn choose_fastest_dataset(
    g: &Graph,
    input_datasets: &[Output<Variant>],
    num_experiments: i64,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::new(g, "ChooseFastestDataset")
        .inputs(input_datasets)
        .attr("N", input_datasets.len() as i64)
        .attr("num_experiments", num_experiments)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ClipByValue`: elements limited to a range.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half. Has a gradient.
#[track_caller]
pub fn clip_by_value<T: TensorType>(
    t: impl Handle<T>,
    clip_value_min: impl Operand<T>,
    clip_value_max: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&t, "ClipByValue").input(t).input(clip_value_min).input(clip_value_max).output()
}

/// `CloseSummaryWriter`. Has no gradient.
#[track_caller]
pub fn close_summary_writer(writer: impl Handle<Resource>) -> Operation {
    NewOp::on(&writer, "CloseSummaryWriter").input(writer).operation()
}

/// Outputs of [`combined_non_max_suppression`].
#[derive(Clone, Debug)]
pub struct CombinedNonMaxSuppressionOutputs {
    /// `nmsed_boxes`.
    pub nmsed_boxes: Output<f32>,
    /// `nmsed_scores`.
    pub nmsed_scores: Output<f32>,
    /// `nmsed_classes`.
    pub nmsed_classes: Output<f32>,
    /// `valid_detections`.
    pub valid_detections: Output<i32>,
}

/// `CombinedNonMaxSuppression`. Has no gradient. Returns `nmsed_boxes`, `nmsed_scores`, `nmsed_classes`, `valid_detections`. Options: [`CombinedNonMaxSuppression`].
#[track_caller]
pub fn combined_non_max_suppression(
    boxes: impl Handle<f32>,
    scores: impl Operand<f32>,
    max_output_size_per_class: impl Operand<i32>,
    max_total_size: impl Operand<i32>,
    iou_threshold: impl Operand<f32>,
    score_threshold: impl Operand<f32>,
) -> CombinedNonMaxSuppressionOutputs {
    CombinedNonMaxSuppression::new().build(
        boxes,
        scores,
        max_output_size_per_class,
        max_total_size,
        iou_threshold,
        score_threshold,
    )
}
options! { CombinedNonMaxSuppression {
pad_per_class: bool = "pad_per_class", "false";
clip_boxes: bool = "clip_boxes", "true";
} }
impl CombinedNonMaxSuppression {
    /// Adds the node: see [`combined_non_max_suppression()`].
    #[track_caller]
    pub fn build(
        &self,
        boxes: impl Handle<f32>,
        scores: impl Operand<f32>,
        max_output_size_per_class: impl Operand<i32>,
        max_total_size: impl Operand<i32>,
        iou_threshold: impl Operand<f32>,
        score_threshold: impl Operand<f32>,
    ) -> CombinedNonMaxSuppressionOutputs {
        let built = self
            .0
            .on(&boxes, "CombinedNonMaxSuppression")
            .input(boxes)
            .input(scores)
            .input(max_output_size_per_class)
            .input(max_total_size)
            .input(iou_threshold)
            .input(score_threshold)
            .build();
        CombinedNonMaxSuppressionOutputs {
            nmsed_boxes: built.output(0),
            nmsed_scores: built.output(1),
            nmsed_classes: built.output(2),
            valid_detections: built.output(3),
        }
    }
}

/// `Complex`.
///
/// `T`: float, double. `Tout`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn complex<Tout: TensorType, T: TensorType>(
    real: impl Handle<T>,
    imag: impl Operand<T>,
) -> Output<Tout> {
    NewOp::on(&real, "Complex").dtype::<Tout>("Tout").input(real).input(imag).output()
}

/// `ComplexAbs`.
///
/// `T`: complex64, complex128. `Tout`: float, double. Has a gradient.
#[track_caller]
pub fn complex_abs<Tout: TensorType, T: TensorType>(x: impl Handle<T>) -> Output<Tout> {
    NewOp::on(&x, "ComplexAbs").dtype::<Tout>("Tout").input(x).output()
}

/// `ComputeAccidentalHits`. Has no gradient. Returns `indices`, `ids`, `weights`. Options: [`ComputeAccidentalHits`].
#[track_caller]
pub fn compute_accidental_hits(
    true_classes: impl Handle<i64>,
    sampled_candidates: impl Operand<i64>,
    num_true: i64,
) -> (Output<i32>, Output<i64>, Output<f32>) {
    ComputeAccidentalHits::new().build(true_classes, sampled_candidates, num_true)
}
options! { ComputeAccidentalHits {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl ComputeAccidentalHits {
    /// Adds the node: see [`compute_accidental_hits()`].
    #[track_caller]
    pub fn build(
        &self,
        true_classes: impl Handle<i64>,
        sampled_candidates: impl Operand<i64>,
        num_true: i64,
    ) -> (Output<i32>, Output<i64>, Output<f32>) {
        let built = self
            .0
            .on(&true_classes, "ComputeAccidentalHits")
            .input(true_classes)
            .input(sampled_candidates)
            .attr("num_true", num_true)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Concat`: tensors joined along an axis. Has a gradient.
#[track_caller]
pub fn concat<T: TensorType>(concat_dim: impl Handle<i32>, values: &[Output<T>]) -> Output<T> {
    NewOp::on(&concat_dim, "Concat")
        .input(concat_dim)
        .inputs(values)
        .attr("N", values.len() as i64)
        .dtype::<T>("T")
        .output()
}

/// `ConcatOffset`.
///
/// `ShapeType`: int32, int64. No gradient passes.
#[track_caller]
pub fn concat_offset<ShapeType: TensorType>(
    concat_dim: impl Handle<i32>,
    shape: &[Output<ShapeType>],
) -> Vec<Output<ShapeType>> {
    let built = NewOp::on(&concat_dim, "ConcatOffset")
        .input(concat_dim)
        .inputs(shape)
        .attr("N", shape.len() as i64)
        .dtype::<ShapeType>("shape_type")
        .build();
    built.outputs("offset", shape.len())
}

/// `ConcatV2`: tensors joined along an axis.
///
/// `Tidx`: int32, int64. Has a gradient.
#[track_caller]
pub fn concat_v2<T: TensorType, Tidx: TensorType>(
    g: &Graph,
    values: &[Output<T>],
    axis: impl Operand<Tidx>,
) -> Output<T> {
    NewOp::new(g, "ConcatV2")
        .inputs(values)
        .attr("N", values.len() as i64)
        .dtype::<T>("T")
        .input(axis)
        .output()
}

/// `ConcatenateDataset`. Has no gradient. Options: [`ConcatenateDataset`].
#[track_caller]
pub fn concatenate_dataset(
    input_dataset: impl Handle<Variant>,
    another_dataset: impl Operand<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ConcatenateDataset::new().build(input_dataset, another_dataset, output_types, output_shapes)
}
options! { ConcatenateDataset {
metadata: &str = "metadata", "\"\"";
} }
impl ConcatenateDataset {
    /// Adds the node: see [`concatenate_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        another_dataset: impl Operand<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ConcatenateDataset")
            .input(input_dataset)
            .input(another_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ConditionalAccumulator`. Has no gradient. Options: [`ConditionalAccumulator`].
#[track_caller]
pub fn conditional_accumulator(g: &Graph, dtype: DType, shape: impl Dims) -> Output<Ref<String>> {
    ConditionalAccumulator::new().build(g, dtype, shape)
}
options! { ConditionalAccumulator {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
reduction_type: &str = "reduction_type", "\"MEAN\"";
} }
impl ConditionalAccumulator {
    /// Adds the node: see [`conditional_accumulator()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtype: DType, shape: impl Dims) -> Output<Ref<String>> {
        self.0
            .new(g, "ConditionalAccumulator")
            .attr("dtype", dtype)
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `Conj`.
///
/// `T`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn conj<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "Conj").input(input).output()
}

/// `ConjugateTranspose`.
///
/// `Tperm`: int32, int64. Has a gradient.
#[track_caller]
pub fn conjugate_transpose<T: TensorType, Tperm: TensorType>(
    x: impl Handle<T>,
    perm: impl Operand<Tperm>,
) -> Output<T> {
    NewOp::on(&x, "ConjugateTranspose").input(x).input(perm).output()
}

/// `Const`: a constant. No gradient passes.
#[track_caller]
pub fn const_<Dtype: TensorType>(g: &Graph, value: &Tensor) -> Output<Dtype> {
    NewOp::new(g, "Const").dtype::<Dtype>("dtype").attr("value", tensor_attr(value)).output()
}

/// `ConsumeMutexLock`. Has no gradient.
#[track_caller]
pub fn consume_mutex_lock(mutex_lock: impl Handle<Variant>) -> Operation {
    NewOp::on(&mutex_lock, "ConsumeMutexLock").input(mutex_lock).operation()
}

/// `ControlTrigger`. Has no gradient.
#[track_caller]
pub fn control_trigger(g: &Graph) -> Operation {
    NewOp::new(g, "ControlTrigger").operation()
}

/// `Conv2D`: the convolution of images with filters.
///
/// `T`: float, double, int32, bfloat16, half. Has a gradient. Options: [`Conv2D`].
#[track_caller]
pub fn conv2d<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv2D::new().build(input, filter, strides, padding)
}
options! { Conv2D {
use_cudnn_on_gpu: bool = "use_cudnn_on_gpu", "true";
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1]";
} }
impl Conv2D {
    /// Adds the node: see [`conv2d()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "Conv2D")
            .input(input)
            .input(filter)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv2DBackpropFilter`: the gradient of a convolution by its filters.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`Conv2DBackpropFilter`].
#[track_caller]
pub fn conv2d_backprop_filter<T: TensorType>(
    input: impl Handle<T>,
    filter_sizes: impl Operand<i32>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv2DBackpropFilter::new().build(input, filter_sizes, out_backprop, strides, padding)
}
options! { Conv2DBackpropFilter {
use_cudnn_on_gpu: bool = "use_cudnn_on_gpu", "true";
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1]";
} }
impl Conv2DBackpropFilter {
    /// Adds the node: see [`conv2d_backprop_filter()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter_sizes: impl Operand<i32>,
        out_backprop: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "Conv2DBackpropFilter")
            .input(input)
            .input(filter_sizes)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv2DBackpropInput`: the gradient of a convolution by its images, also a transposed convolution.
///
/// `T`: float, double, int32, bfloat16, half. Has a gradient. Options: [`Conv2DBackpropInput`].
#[track_caller]
pub fn conv2d_backprop_input<T: TensorType>(
    input_sizes: impl Operand<i32>,
    filter: impl Handle<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv2DBackpropInput::new().build(input_sizes, filter, out_backprop, strides, padding)
}
options! { Conv2DBackpropInput {
use_cudnn_on_gpu: bool = "use_cudnn_on_gpu", "true";
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1]";
} }
impl Conv2DBackpropInput {
    /// Adds the node: see [`conv2d_backprop_input()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input_sizes: impl Operand<i32>,
        filter: impl Handle<T>,
        out_backprop: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&filter, "Conv2DBackpropInput")
            .input(input_sizes)
            .input(filter)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv3D`: the convolution of volumes with filters.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`Conv3D`].
#[track_caller]
pub fn conv3d<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv3D::new().build(input, filter, strides, padding)
}
options! { Conv3D {
data_format: &str = "data_format", "\"NDHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1, 1]";
} }
impl Conv3D {
    /// Adds the node: see [`conv3d()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "Conv3D")
            .input(input)
            .input(filter)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv3DBackpropFilter`.
///
/// `T`: float, double, half. Has no gradient. Options: [`Conv3DBackpropFilter`].
#[track_caller]
pub fn conv3d_backprop_filter<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv3DBackpropFilter::new().build(input, filter, out_backprop, strides, padding)
}
options! { Conv3DBackpropFilter {
dilations: &[i64] = "dilations", "[1, 1, 1, 1, 1]";
} }
impl Conv3DBackpropFilter {
    /// Adds the node: see [`conv3d_backprop_filter()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter: impl Operand<T>,
        out_backprop: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "Conv3DBackpropFilter")
            .input(input)
            .input(filter)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv3DBackpropFilterV2`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`Conv3DBackpropFilterV2`].
#[track_caller]
pub fn conv3d_backprop_filter_v2<T: TensorType>(
    input: impl Handle<T>,
    filter_sizes: impl Operand<i32>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv3DBackpropFilterV2::new().build(input, filter_sizes, out_backprop, strides, padding)
}
options! { Conv3DBackpropFilterV2 {
data_format: &str = "data_format", "\"NDHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1, 1]";
} }
impl Conv3DBackpropFilterV2 {
    /// Adds the node: see [`conv3d_backprop_filter_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter_sizes: impl Operand<i32>,
        out_backprop: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "Conv3DBackpropFilterV2")
            .input(input)
            .input(filter_sizes)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv3DBackpropInput`.
///
/// `T`: float, double, half. Has no gradient. Options: [`Conv3DBackpropInput`].
#[track_caller]
pub fn conv3d_backprop_input<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv3DBackpropInput::new().build(input, filter, out_backprop, strides, padding)
}
options! { Conv3DBackpropInput {
dilations: &[i64] = "dilations", "[1, 1, 1, 1, 1]";
} }
impl Conv3DBackpropInput {
    /// Adds the node: see [`conv3d_backprop_input()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter: impl Operand<T>,
        out_backprop: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "Conv3DBackpropInput")
            .input(input)
            .input(filter)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Conv3DBackpropInputV2`.
///
/// `T`: float, double, bfloat16, half. `Tshape`: int32, int64. Has a gradient. Options: [`Conv3DBackpropInputV2`].
#[track_caller]
pub fn conv3d_backprop_input_v2<T: TensorType, Tshape: TensorType>(
    input_sizes: impl Handle<Tshape>,
    filter: impl Operand<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    Conv3DBackpropInputV2::new().build(input_sizes, filter, out_backprop, strides, padding)
}
options! { Conv3DBackpropInputV2 {
data_format: &str = "data_format", "\"NDHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1, 1]";
} }
impl Conv3DBackpropInputV2 {
    /// Adds the node: see [`conv3d_backprop_input_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, Tshape: TensorType>(
        &self,
        input_sizes: impl Handle<Tshape>,
        filter: impl Operand<T>,
        out_backprop: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input_sizes, "Conv3DBackpropInputV2")
            .input(input_sizes)
            .input(filter)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Cos`: the cosine of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn cos<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Cos").input(x).output()
}

/// `Cosh`: the hyperbolic cosine of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn cosh<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Cosh").input(x).output()
}

/// `CountUpTo`.
///
/// `T`: int32, int64. Has no gradient.
#[track_caller]
pub fn count_up_to<T: TensorType>(ref_: impl Handle<Ref<T>>, limit: i64) -> Output<T> {
    NewOp::on(&ref_, "CountUpTo").input(ref_).attr("limit", limit).output()
}

/// `CreateSummaryFileWriter`. Has no gradient.
#[track_caller]
pub fn create_summary_file_writer(
    writer: impl Handle<Resource>,
    logdir: impl Operand<String>,
    max_queue: impl Operand<i32>,
    flush_millis: impl Operand<i32>,
    filename_suffix: impl Operand<String>,
) -> Operation {
    NewOp::on(&writer, "CreateSummaryFileWriter")
        .input(writer)
        .input(logdir)
        .input(max_queue)
        .input(flush_millis)
        .input(filename_suffix)
        .operation()
}

/// `CropAndResize`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`CropAndResize`].
#[track_caller]
pub fn crop_and_resize<T: TensorType>(
    image: impl Handle<T>,
    boxes: impl Operand<f32>,
    box_ind: impl Operand<i32>,
    crop_size: impl Operand<i32>,
) -> Output<f32> {
    CropAndResize::new().build(image, boxes, box_ind, crop_size)
}
options! { CropAndResize {
method: &str = "method", "\"bilinear\"";
extrapolation_value: f32 = "extrapolation_value", "0.0";
} }
impl CropAndResize {
    /// Adds the node: see [`crop_and_resize()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        image: impl Handle<T>,
        boxes: impl Operand<f32>,
        box_ind: impl Operand<i32>,
        crop_size: impl Operand<i32>,
    ) -> Output<f32> {
        self.0
            .on(&image, "CropAndResize")
            .input(image)
            .input(boxes)
            .input(box_ind)
            .input(crop_size)
            .output()
    }
}

/// `CropAndResizeGradBoxes`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has no gradient. Options: [`CropAndResizeGradBoxes`].
#[track_caller]
pub fn crop_and_resize_grad_boxes<T: TensorType>(
    grads: impl Handle<f32>,
    image: impl Operand<T>,
    boxes: impl Operand<f32>,
    box_ind: impl Operand<i32>,
) -> Output<f32> {
    CropAndResizeGradBoxes::new().build(grads, image, boxes, box_ind)
}
options! { CropAndResizeGradBoxes {
method: &str = "method", "\"bilinear\"";
} }
impl CropAndResizeGradBoxes {
    /// Adds the node: see [`crop_and_resize_grad_boxes()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        grads: impl Handle<f32>,
        image: impl Operand<T>,
        boxes: impl Operand<f32>,
        box_ind: impl Operand<i32>,
    ) -> Output<f32> {
        self.0
            .on(&grads, "CropAndResizeGradBoxes")
            .input(grads)
            .input(image)
            .input(boxes)
            .input(box_ind)
            .output()
    }
}

/// `CropAndResizeGradImage`.
///
/// `T`: float, double, half. Has no gradient. Options: [`CropAndResizeGradImage`].
#[track_caller]
pub fn crop_and_resize_grad_image<T: TensorType>(
    grads: impl Handle<f32>,
    boxes: impl Operand<f32>,
    box_ind: impl Operand<i32>,
    image_size: impl Operand<i32>,
) -> Output<T> {
    CropAndResizeGradImage::new().build(grads, boxes, box_ind, image_size)
}
options! { CropAndResizeGradImage {
method: &str = "method", "\"bilinear\"";
} }
impl CropAndResizeGradImage {
    /// Adds the node: see [`crop_and_resize_grad_image()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        grads: impl Handle<f32>,
        boxes: impl Operand<f32>,
        box_ind: impl Operand<i32>,
        image_size: impl Operand<i32>,
    ) -> Output<T> {
        self.0
            .on(&grads, "CropAndResizeGradImage")
            .dtype::<T>("T")
            .input(grads)
            .input(boxes)
            .input(box_ind)
            .input(image_size)
            .output()
    }
}

/// `Cross`: the cross product of vectors of three elements.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn cross<T: TensorType>(a: impl Handle<T>, b: impl Operand<T>) -> Output<T> {
    NewOp::on(&a, "Cross").input(a).input(b).output()
}

/// `Cumprod`: the product of the elements up to each, along an axis.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Cumprod`].
#[track_caller]
pub fn cumprod<T: TensorType, Tidx: TensorType>(
    x: impl Handle<T>,
    axis: impl Operand<Tidx>,
) -> Output<T> {
    Cumprod::new().build(x, axis)
}
options! { Cumprod {
exclusive: bool = "exclusive", "false";
reverse: bool = "reverse", "false";
} }
impl Cumprod {
    /// Adds the node: see [`cumprod()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        x: impl Handle<T>,
        axis: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&x, "Cumprod").input(x).input(axis).output()
    }
}

/// `Cumsum`: the sum of the elements up to each, along an axis.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Cumsum`].
#[track_caller]
pub fn cumsum<T: TensorType, Tidx: TensorType>(
    x: impl Handle<T>,
    axis: impl Operand<Tidx>,
) -> Output<T> {
    Cumsum::new().build(x, axis)
}
options! { Cumsum {
exclusive: bool = "exclusive", "false";
reverse: bool = "reverse", "false";
} }
impl Cumsum {
    /// Adds the node: see [`cumsum()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        x: impl Handle<T>,
        axis: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&x, "Cumsum").input(x).input(axis).output()
    }
}

/// `CumulativeLogsumexp`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. Has a gradient. Options: [`CumulativeLogsumexp`].
#[track_caller]
pub fn cumulative_logsumexp<T: TensorType, Tidx: TensorType>(
    x: impl Handle<T>,
    axis: impl Operand<Tidx>,
) -> Output<T> {
    CumulativeLogsumexp::new().build(x, axis)
}
options! { CumulativeLogsumexp {
exclusive: bool = "exclusive", "false";
reverse: bool = "reverse", "false";
} }
impl CumulativeLogsumexp {
    /// Adds the node: see [`cumulative_logsumexp()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        x: impl Handle<T>,
        axis: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&x, "CumulativeLogsumexp").input(x).input(axis).output()
    }
}
