//! Ops R. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `RFFT`: the Fourier transform of real numbers.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has a gradient.
#[track_caller]
pub fn rfft<Tcomplex: TensorType, Treal: TensorType>(
    input: impl Handle<Treal>,
    fft_length: impl Operand<i32>,
) -> Output<Tcomplex> {
    NewOp::on(&input, "RFFT").dtype::<Tcomplex>("Tcomplex").input(input).input(fft_length).output()
}

/// `RFFT2D`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has a gradient.
#[track_caller]
pub fn rfft2d<Tcomplex: TensorType, Treal: TensorType>(
    input: impl Handle<Treal>,
    fft_length: impl Operand<i32>,
) -> Output<Tcomplex> {
    NewOp::on(&input, "RFFT2D")
        .dtype::<Tcomplex>("Tcomplex")
        .input(input)
        .input(fft_length)
        .output()
}

/// `RFFT3D`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has no gradient.
#[track_caller]
pub fn rfft3d<Tcomplex: TensorType, Treal: TensorType>(
    input: impl Handle<Treal>,
    fft_length: impl Operand<i32>,
) -> Output<Tcomplex> {
    NewOp::on(&input, "RFFT3D")
        .dtype::<Tcomplex>("Tcomplex")
        .input(input)
        .input(fft_length)
        .output()
}

/// `RFFTND`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has no gradient.
#[track_caller]
pub fn rfftnd<Tcomplex: TensorType, Treal: TensorType>(
    input: impl Handle<Treal>,
    fft_length: impl Operand<i32>,
    axes: impl Operand<i32>,
) -> Output<Tcomplex> {
    NewOp::on(&input, "RFFTND")
        .dtype::<Tcomplex>("Tcomplex")
        .input(input)
        .input(fft_length)
        .input(axes)
        .output()
}

/// `RGBToHSV`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn rgb_to_hsv<T: TensorType>(images: impl Handle<T>) -> Output<T> {
    NewOp::on(&images, "RGBToHSV").input(images).output()
}

/// `RaggedBincount`.
///
/// `T`: float, double, int32, int64. `Tidx`: int32, int64. Has no gradient. Options: [`RaggedBincount`].
#[track_caller]
pub fn ragged_bincount<Tidx: TensorType, T: TensorType>(
    splits: impl Operand<i64>,
    values: impl Operand<Tidx>,
    size: impl Operand<Tidx>,
    weights: impl Handle<T>,
) -> Output<T> {
    RaggedBincount::new().build(splits, values, size, weights)
}
options! { RaggedBincount {
binary_output: bool = "binary_output", "false";
} }
impl RaggedBincount {
    /// Adds the node: see [`ragged_bincount()`].
    #[track_caller]
    pub fn build<Tidx: TensorType, T: TensorType>(
        &self,
        splits: impl Operand<i64>,
        values: impl Operand<Tidx>,
        size: impl Operand<Tidx>,
        weights: impl Handle<T>,
    ) -> Output<T> {
        self.0
            .on(&weights, "RaggedBincount")
            .input(splits)
            .input(values)
            .input(size)
            .input(weights)
            .output()
    }
}

/// `RaggedCountSparseOutput`.
///
/// `T`: int32, int64. `OutputType`: float, double, int32, int64. Has no gradient. Returns `output_indices`, `output_values`, `output_dense_shape`. Options: [`RaggedCountSparseOutput`].
#[track_caller]
pub fn ragged_count_sparse_output<T: TensorType, OutputType: TensorType>(
    splits: impl Operand<i64>,
    values: impl Handle<T>,
    weights: impl Operand<OutputType>,
    binary_output: bool,
) -> (Output<i64>, Output<OutputType>, Output<i64>) {
    RaggedCountSparseOutput::new().build(splits, values, weights, binary_output)
}
options! { RaggedCountSparseOutput {
minlength: i64 = "minlength", "-1";
maxlength: i64 = "maxlength", "-1";
} }
impl RaggedCountSparseOutput {
    /// Adds the node: see [`ragged_count_sparse_output()`].
    #[track_caller]
    pub fn build<T: TensorType, OutputType: TensorType>(
        &self,
        splits: impl Operand<i64>,
        values: impl Handle<T>,
        weights: impl Operand<OutputType>,
        binary_output: bool,
    ) -> (Output<i64>, Output<OutputType>, Output<i64>) {
        let built = self
            .0
            .on(&values, "RaggedCountSparseOutput")
            .input(splits)
            .input(values)
            .input(weights)
            .attr("binary_output", binary_output)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `RaggedCross`.
///
/// `DenseTypes`: string, int64. `OutRowSplitsType`: int32, int64. `OutValuesType`: string, int64. `RaggedSplitsTypes`: int32, int64. `RaggedValuesTypes`: string, int64. `SparseValuesTypes`: string, int64. Has no gradient. Returns `output_values`, `output_row_splits`.
#[track_caller]
pub fn ragged_cross<OutValuesType: TensorType, OutRowSplitsType: TensorType>(
    g: &Graph,
    ragged_values: &[Output<Untyped>],
    ragged_row_splits: &[Output<Untyped>],
    sparse_indices: &[Output<i64>],
    sparse_values: &[Output<Untyped>],
    sparse_shape: &[Output<i64>],
    dense_inputs: &[Output<Untyped>],
    input_order: &str,
    hashed_output: bool,
    num_buckets: i64,
    hash_key: i64,
) -> (Output<OutValuesType>, Output<OutRowSplitsType>) {
    let built = NewOp::new(g, "RaggedCross")
        .dtype::<OutValuesType>("out_values_type")
        .dtype::<OutRowSplitsType>("out_row_splits_type")
        .inputs(ragged_values)
        .attr("ragged_values_types", &dtypes_of(ragged_values)[..])
        .inputs(ragged_row_splits)
        .attr("ragged_splits_types", &dtypes_of(ragged_row_splits)[..])
        .inputs(sparse_indices)
        .attr("Nsparse", sparse_indices.len() as i64)
        .inputs(sparse_values)
        .attr("sparse_values_types", &dtypes_of(sparse_values)[..])
        .inputs(sparse_shape)
        .inputs(dense_inputs)
        .attr("dense_types", &dtypes_of(dense_inputs)[..])
        .attr("input_order", input_order)
        .attr("hashed_output", hashed_output)
        .attr("num_buckets", num_buckets)
        .attr("hash_key", hash_key)
        .build();
    (built.output(0), built.output(1))
}

/// Outputs of [`ragged_fill_empty_rows`].
#[derive(Clone, Debug)]
pub struct RaggedFillEmptyRowsOutputs<T: TensorType> {
    /// `output_value_rowids`.
    pub output_value_rowids: Output<i64>,
    /// `output_values`.
    pub output_values: Output<T>,
    /// `empty_row_indicator`.
    pub empty_row_indicator: Output<bool>,
    /// `reverse_index_map`.
    pub reverse_index_map: Output<i64>,
}

/// `RaggedFillEmptyRows`. Has a gradient. Returns `output_value_rowids`, `output_values`, `empty_row_indicator`, `reverse_index_map`.
#[track_caller]
pub fn ragged_fill_empty_rows<T: TensorType>(
    value_rowids: impl Operand<i64>,
    values: impl Handle<T>,
    nrows: impl Operand<i64>,
    default_value: impl Operand<T>,
) -> RaggedFillEmptyRowsOutputs<T> {
    let built = NewOp::on(&values, "RaggedFillEmptyRows")
        .input(value_rowids)
        .input(values)
        .input(nrows)
        .input(default_value)
        .build();
    RaggedFillEmptyRowsOutputs {
        output_value_rowids: built.output(0),
        output_values: built.output(1),
        empty_row_indicator: built.output(2),
        reverse_index_map: built.output(3),
    }
}

/// `RaggedFillEmptyRowsGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient. Returns `d_values`, `d_default_value`.
#[track_caller]
pub fn ragged_fill_empty_rows_grad<T: TensorType>(
    reverse_index_map: impl Operand<i64>,
    grad_values: impl Handle<T>,
) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&grad_values, "RaggedFillEmptyRowsGrad")
        .input(reverse_index_map)
        .input(grad_values)
        .build();
    (built.output(0), built.output(1))
}

/// `RaggedGather`.
///
/// `Tindices`: int32, int64. `Tsplits`: int32, int64. Has a gradient. Returns `output_nested_splits`, `output_dense_values`.
#[track_caller]
pub fn ragged_gather<Tvalues: TensorType, Tindices: TensorType, Tsplits: TensorType>(
    g: &Graph,
    params_nested_splits: &[Output<Tsplits>],
    params_dense_values: impl Operand<Tvalues>,
    indices: impl Operand<Tindices>,
    output_ragged_rank: i64,
) -> (Vec<Output<Tsplits>>, Output<Tvalues>) {
    let built = NewOp::new(g, "RaggedGather")
        .inputs(params_nested_splits)
        .attr("PARAMS_RAGGED_RANK", params_nested_splits.len() as i64)
        .dtype::<Tsplits>("Tsplits")
        .input(params_dense_values)
        .input(indices)
        .attr("OUTPUT_RAGGED_RANK", output_ragged_rank)
        .build();
    (
        built.outputs("output_nested_splits", usize::try_from(output_ragged_rank).unwrap_or(0)),
        built.named("output_dense_values"),
    )
}

/// `RaggedRange`.
///
/// `T`: float, double, int32, int64. `Tsplits`: int32, int64. No gradient passes. Returns `rt_nested_splits`, `rt_dense_values`.
#[track_caller]
pub fn ragged_range<Tsplits: TensorType, T: TensorType>(
    starts: impl Handle<T>,
    limits: impl Operand<T>,
    deltas: impl Operand<T>,
) -> (Output<Tsplits>, Output<T>) {
    let built = NewOp::on(&starts, "RaggedRange")
        .dtype::<Tsplits>("Tsplits")
        .input(starts)
        .input(limits)
        .input(deltas)
        .build();
    (built.output(0), built.output(1))
}

/// `RaggedTensorFromVariant`.
///
/// `Tsplits`: int32, int64. Has a gradient. Returns `output_nested_splits`, `output_dense_values`.
#[track_caller]
pub fn ragged_tensor_from_variant<Tvalues: TensorType, Tsplits: TensorType>(
    encoded_ragged: impl Handle<Variant>,
    input_ragged_rank: i64,
    output_ragged_rank: i64,
) -> (Vec<Output<Tsplits>>, Output<Tvalues>) {
    let built = NewOp::on(&encoded_ragged, "RaggedTensorFromVariant")
        .dtype::<Tvalues>("Tvalues")
        .dtype::<Tsplits>("Tsplits")
        .input(encoded_ragged)
        .attr("input_ragged_rank", input_ragged_rank)
        .attr("output_ragged_rank", output_ragged_rank)
        .build();
    (
        built.outputs("output_nested_splits", usize::try_from(output_ragged_rank).unwrap_or(0)),
        built.named("output_dense_values"),
    )
}

/// `RaggedTensorToSparse`.
///
/// `Tsplits`: int32, int64. Has a gradient. Returns `sparse_indices`, `sparse_values`, `sparse_dense_shape`.
#[track_caller]
pub fn ragged_tensor_to_sparse<T: TensorType, Tsplits: TensorType>(
    g: &Graph,
    rt_nested_splits: &[Output<Tsplits>],
    rt_dense_values: impl Operand<T>,
) -> (Output<i64>, Output<T>, Output<i64>) {
    let built = NewOp::new(g, "RaggedTensorToSparse")
        .inputs(rt_nested_splits)
        .attr("RAGGED_RANK", rt_nested_splits.len() as i64)
        .dtype::<Tsplits>("Tsplits")
        .input(rt_dense_values)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `RaggedTensorToTensor`.
///
/// `Tindex`: int32, int64. `Tshape`: int32, int64. Has a gradient.
#[track_caller]
pub fn ragged_tensor_to_tensor<T: TensorType, Tindex: TensorType, Tshape: TensorType>(
    shape: impl Handle<Tshape>,
    values: impl Operand<T>,
    default_value: impl Operand<T>,
    row_partition_tensors: &[Output<Tindex>],
    row_partition_types: &[&str],
) -> Output<T> {
    NewOp::on(&shape, "RaggedTensorToTensor")
        .input(shape)
        .input(values)
        .input(default_value)
        .inputs(row_partition_tensors)
        .attr("num_row_partition_tensors", row_partition_tensors.len() as i64)
        .dtype::<Tindex>("Tindex")
        .attr("row_partition_types", row_partition_types)
        .output()
}

/// `RaggedTensorToVariant`.
///
/// `Tsplits`: int32, int64. Has a gradient.
#[track_caller]
pub fn ragged_tensor_to_variant<Tvalues: TensorType, Tsplits: TensorType>(
    g: &Graph,
    rt_nested_splits: &[Output<Tsplits>],
    rt_dense_values: impl Operand<Tvalues>,
    batched_input: bool,
) -> Output<Variant> {
    NewOp::new(g, "RaggedTensorToVariant")
        .inputs(rt_nested_splits)
        .attr("RAGGED_RANK", rt_nested_splits.len() as i64)
        .dtype::<Tsplits>("Tsplits")
        .input(rt_dense_values)
        .attr("batched_input", batched_input)
        .output()
}

/// `RaggedTensorToVariantGradient`.
///
/// `Tsplits`: int32, int64. Has no gradient.
#[track_caller]
pub fn ragged_tensor_to_variant_gradient<Tvalues: TensorType, Tsplits: TensorType>(
    encoded_ragged_grad: impl Handle<Variant>,
    row_splits: impl Operand<Tsplits>,
    dense_values_shape: impl Operand<i32>,
) -> Output<Tvalues> {
    NewOp::on(&encoded_ragged_grad, "RaggedTensorToVariantGradient")
        .dtype::<Tvalues>("Tvalues")
        .input(encoded_ragged_grad)
        .input(row_splits)
        .input(dense_values_shape)
        .output()
}

/// `RandomCrop`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64. No gradient passes. Options: [`RandomCrop`].
#[track_caller]
pub fn random_crop<T: TensorType>(image: impl Handle<T>, size: impl Operand<i64>) -> Output<T> {
    RandomCrop::new().build(image, size)
}
options! { RandomCrop {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomCrop {
    /// Adds the node: see [`random_crop()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        image: impl Handle<T>,
        size: impl Operand<i64>,
    ) -> Output<T> {
        self.0.on(&image, "RandomCrop").input(image).input(size).output()
    }
}

/// `RandomDataset`. Has no gradient. Options: [`RandomDataset`].
#[track_caller]
pub fn random_dataset(
    seed: impl Handle<i64>,
    seed2: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    RandomDataset::new().build(seed, seed2, output_types, output_shapes)
}
options! { RandomDataset {
metadata: &str = "metadata", "\"\"";
} }
impl RandomDataset {
    /// Adds the node: see [`random_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        seed: impl Handle<i64>,
        seed2: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&seed, "RandomDataset")
            .input(seed)
            .input(seed2)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `RandomDatasetV2`. Has no gradient. Options: [`RandomDatasetV2`].
#[track_caller]
pub fn random_dataset_v2(
    seed: impl Handle<i64>,
    seed2: impl Operand<i64>,
    seed_generator: impl Operand<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    RandomDatasetV2::new().build(seed, seed2, seed_generator, output_types, output_shapes)
}
options! { RandomDatasetV2 {
rerandomize_each_iteration: bool = "rerandomize_each_iteration", "false";
metadata: &str = "metadata", "\"\"";
} }
impl RandomDatasetV2 {
    /// Adds the node: see [`random_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        seed: impl Handle<i64>,
        seed2: impl Operand<i64>,
        seed_generator: impl Operand<Resource>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&seed, "RandomDatasetV2")
            .input(seed)
            .input(seed2)
            .input(seed_generator)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `RandomGamma`.
///
/// `S`: int32, int64. `T`: float, double, half. Has a gradient. Options: [`RandomGamma`].
#[track_caller]
pub fn random_gamma<S: TensorType, T: TensorType>(
    shape: impl Handle<S>,
    alpha: impl Operand<T>,
) -> Output<T> {
    RandomGamma::new().build(shape, alpha)
}
options! { RandomGamma {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomGamma {
    /// Adds the node: see [`random_gamma()`].
    #[track_caller]
    pub fn build<S: TensorType, T: TensorType>(
        &self,
        shape: impl Handle<S>,
        alpha: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&shape, "RandomGamma").input(shape).input(alpha).output()
    }
}

/// `RandomGammaGrad`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn random_gamma_grad<T: TensorType>(
    alpha: impl Handle<T>,
    sample: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&alpha, "RandomGammaGrad").input(alpha).input(sample).output()
}

/// `RandomIndexShuffle`.
///
/// `Tseed`: int32, int64, uint32, uint64. `Dtype`: int32, int64, uint32, uint64. No gradient passes. Options: [`RandomIndexShuffle`].
#[track_caller]
pub fn random_index_shuffle<Dtype: TensorType, Tseed: TensorType>(
    index: impl Handle<Dtype>,
    seed: impl Operand<Tseed>,
    max_index: impl Operand<Dtype>,
) -> Output<Dtype> {
    RandomIndexShuffle::new().build(index, seed, max_index)
}
options! { RandomIndexShuffle {
rounds: i64 = "rounds", "4";
} }
impl RandomIndexShuffle {
    /// Adds the node: see [`random_index_shuffle()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, Tseed: TensorType>(
        &self,
        index: impl Handle<Dtype>,
        seed: impl Operand<Tseed>,
        max_index: impl Operand<Dtype>,
    ) -> Output<Dtype> {
        self.0.on(&index, "RandomIndexShuffle").input(index).input(seed).input(max_index).output()
    }
}

/// `RandomPoisson`.
///
/// `S`: int32, int64. `Dtype`: float, double, half. Has no gradient. Options: [`RandomPoisson`].
#[track_caller]
pub fn random_poisson<S: TensorType, Dtype: TensorType>(
    shape: impl Handle<S>,
    rate: impl Operand<Dtype>,
) -> Output<Dtype> {
    RandomPoisson::new().build(shape, rate)
}
options! { RandomPoisson {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomPoisson {
    /// Adds the node: see [`random_poisson()`].
    #[track_caller]
    pub fn build<S: TensorType, Dtype: TensorType>(
        &self,
        shape: impl Handle<S>,
        rate: impl Operand<Dtype>,
    ) -> Output<Dtype> {
        self.0.on(&shape, "RandomPoisson").input(shape).input(rate).output()
    }
}

/// `RandomPoissonV2`.
///
/// `R`: float, double, int32, int64, half. `S`: int32, int64. `Dtype`: float, double, int32, int64, half. Has no gradient. Options: [`RandomPoissonV2`].
#[track_caller]
pub fn random_poisson_v2<Dtype: TensorType, S: TensorType, R: TensorType>(
    shape: impl Handle<S>,
    rate: impl Operand<R>,
) -> Output<Dtype> {
    RandomPoissonV2::new().build(shape, rate)
}
options! { RandomPoissonV2 {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomPoissonV2 {
    /// Adds the node: see [`random_poisson_v2()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, S: TensorType, R: TensorType>(
        &self,
        shape: impl Handle<S>,
        rate: impl Operand<R>,
    ) -> Output<Dtype> {
        self.0
            .on(&shape, "RandomPoissonV2")
            .dtype::<Dtype>("dtype")
            .input(shape)
            .input(rate)
            .output()
    }
}

/// `RandomShuffle`: the rows in random order. No gradient passes. Options: [`RandomShuffle`].
#[track_caller]
pub fn random_shuffle<T: TensorType>(value: impl Handle<T>) -> Output<T> {
    RandomShuffle::new().build(value)
}
options! { RandomShuffle {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomShuffle {
    /// Adds the node: see [`random_shuffle()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, value: impl Handle<T>) -> Output<T> {
        self.0.on(&value, "RandomShuffle").input(value).output()
    }
}

/// `RandomShuffleQueue`. Has no gradient. Options: [`RandomShuffleQueue`].
#[track_caller]
pub fn random_shuffle_queue(g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
    RandomShuffleQueue::new().build(g, component_types)
}
options! { RandomShuffleQueue {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
min_after_dequeue: i64 = "min_after_dequeue", "0";
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl RandomShuffleQueue {
    /// Adds the node: see [`random_shuffle_queue()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
        self.0.new(g, "RandomShuffleQueue").attr("component_types", component_types).output()
    }
}

/// `RandomShuffleQueueV2`. Has no gradient. Options: [`RandomShuffleQueueV2`].
#[track_caller]
pub fn random_shuffle_queue_v2(g: &Graph, component_types: &[DType]) -> Output<Resource> {
    RandomShuffleQueueV2::new().build(g, component_types)
}
options! { RandomShuffleQueueV2 {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
min_after_dequeue: i64 = "min_after_dequeue", "0";
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl RandomShuffleQueueV2 {
    /// Adds the node: see [`random_shuffle_queue_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Resource> {
        self.0.new(g, "RandomShuffleQueueV2").attr("component_types", component_types).output()
    }
}

/// `RandomStandardNormal`: random numbers of the standard normal distribution.
///
/// `T`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes. Options: [`RandomStandardNormal`].
#[track_caller]
pub fn random_standard_normal<Dtype: TensorType, T: TensorType>(
    shape: impl Handle<T>,
) -> Output<Dtype> {
    RandomStandardNormal::new().build(shape)
}
options! { RandomStandardNormal {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomStandardNormal {
    /// Adds the node: see [`random_standard_normal()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, T: TensorType>(&self, shape: impl Handle<T>) -> Output<Dtype> {
        self.0.on(&shape, "RandomStandardNormal").dtype::<Dtype>("dtype").input(shape).output()
    }
}

/// `RandomUniform`: random numbers, uniform in [0, 1).
///
/// `T`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes. Options: [`RandomUniform`].
#[track_caller]
pub fn random_uniform<Dtype: TensorType, T: TensorType>(shape: impl Handle<T>) -> Output<Dtype> {
    RandomUniform::new().build(shape)
}
options! { RandomUniform {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomUniform {
    /// Adds the node: see [`random_uniform()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, T: TensorType>(&self, shape: impl Handle<T>) -> Output<Dtype> {
        self.0.on(&shape, "RandomUniform").dtype::<Dtype>("dtype").input(shape).output()
    }
}

/// `RandomUniformInt`: random integers of a range.
///
/// `T`: int32, int64. `Tout`: int32, int64. Has no gradient. Options: [`RandomUniformInt`].
#[track_caller]
pub fn random_uniform_int<Tout: TensorType, T: TensorType>(
    shape: impl Handle<T>,
    minval: impl Operand<Tout>,
    maxval: impl Operand<Tout>,
) -> Output<Tout> {
    RandomUniformInt::new().build(shape, minval, maxval)
}
options! { RandomUniformInt {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl RandomUniformInt {
    /// Adds the node: see [`random_uniform_int()`].
    #[track_caller]
    pub fn build<Tout: TensorType, T: TensorType>(
        &self,
        shape: impl Handle<T>,
        minval: impl Operand<Tout>,
        maxval: impl Operand<Tout>,
    ) -> Output<Tout> {
        self.0.on(&shape, "RandomUniformInt").input(shape).input(minval).input(maxval).output()
    }
}

/// `Range`: the numbers of an arithmetic sequence.
///
/// `Tidx`: float, double, int32, int64, bfloat16, half. No gradient passes.
#[track_caller]
pub fn range<Tidx: TensorType>(
    start: impl Handle<Tidx>,
    limit: impl Operand<Tidx>,
    delta: impl Operand<Tidx>,
) -> Output<Tidx> {
    NewOp::on(&start, "Range").input(start).input(limit).input(delta).output()
}

/// `RangeDataset`. Has no gradient. Options: [`RangeDataset`].
#[track_caller]
pub fn range_dataset(
    start: impl Handle<i64>,
    stop: impl Operand<i64>,
    step: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    RangeDataset::new().build(start, stop, step, output_types, output_shapes)
}
options! { RangeDataset {
metadata: &str = "metadata", "\"\"";
replicate_on_split: bool = "replicate_on_split", "false";
} }
impl RangeDataset {
    /// Adds the node: see [`range_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        start: impl Handle<i64>,
        stop: impl Operand<i64>,
        step: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&start, "RangeDataset")
            .input(start)
            .input(stop)
            .input(step)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Rank`: the number of dimensions. No gradient passes.
#[track_caller]
pub fn rank<T: TensorType>(input: impl Handle<T>) -> Output<i32> {
    NewOp::on(&input, "Rank").input(input).output()
}

/// `ReadFile`. No gradient passes.
#[track_caller]
pub fn read_file(filename: impl Handle<String>) -> Output<String> {
    NewOp::on(&filename, "ReadFile").input(filename).output()
}

/// `ReadVariableOp`: the value of a resource variable. Has a gradient.
#[track_caller]
pub fn read_variable_op<Dtype: TensorType>(resource: impl Handle<Resource>) -> Output<Dtype> {
    NewOp::on(&resource, "ReadVariableOp").dtype::<Dtype>("dtype").input(resource).output()
}

/// `ReaderNumRecordsProduced`. Has no gradient.
#[track_caller]
pub fn reader_num_records_produced(reader_handle: impl Handle<Ref<String>>) -> Output<i64> {
    NewOp::on(&reader_handle, "ReaderNumRecordsProduced").input(reader_handle).output()
}

/// `ReaderNumRecordsProducedV2`. Has no gradient.
#[track_caller]
pub fn reader_num_records_produced_v2(reader_handle: impl Handle<Resource>) -> Output<i64> {
    NewOp::on(&reader_handle, "ReaderNumRecordsProducedV2").input(reader_handle).output()
}

/// `ReaderNumWorkUnitsCompleted`. Has no gradient.
#[track_caller]
pub fn reader_num_work_units_completed(reader_handle: impl Handle<Ref<String>>) -> Output<i64> {
    NewOp::on(&reader_handle, "ReaderNumWorkUnitsCompleted").input(reader_handle).output()
}

/// `ReaderNumWorkUnitsCompletedV2`. Has no gradient.
#[track_caller]
pub fn reader_num_work_units_completed_v2(reader_handle: impl Handle<Resource>) -> Output<i64> {
    NewOp::on(&reader_handle, "ReaderNumWorkUnitsCompletedV2").input(reader_handle).output()
}

/// `ReaderRead`. Has no gradient. Returns `key`, `value`.
#[track_caller]
pub fn reader_read(
    reader_handle: impl Handle<Ref<String>>,
    queue_handle: impl Operand<Ref<String>>,
) -> (Output<String>, Output<String>) {
    let built =
        NewOp::on(&reader_handle, "ReaderRead").input(reader_handle).input(queue_handle).build();
    (built.output(0), built.output(1))
}

/// `ReaderReadUpTo`. Has no gradient. Returns `keys`, `values`.
#[track_caller]
pub fn reader_read_up_to(
    reader_handle: impl Handle<Ref<String>>,
    queue_handle: impl Operand<Ref<String>>,
    num_records: impl Operand<i64>,
) -> (Output<String>, Output<String>) {
    let built = NewOp::on(&reader_handle, "ReaderReadUpTo")
        .input(reader_handle)
        .input(queue_handle)
        .input(num_records)
        .build();
    (built.output(0), built.output(1))
}

/// `ReaderReadUpToV2`. Has no gradient. Returns `keys`, `values`.
#[track_caller]
pub fn reader_read_up_to_v2(
    reader_handle: impl Handle<Resource>,
    queue_handle: impl Operand<Resource>,
    num_records: impl Operand<i64>,
) -> (Output<String>, Output<String>) {
    let built = NewOp::on(&reader_handle, "ReaderReadUpToV2")
        .input(reader_handle)
        .input(queue_handle)
        .input(num_records)
        .build();
    (built.output(0), built.output(1))
}

/// `ReaderReadV2`. Has no gradient. Returns `key`, `value`.
#[track_caller]
pub fn reader_read_v2(
    reader_handle: impl Handle<Resource>,
    queue_handle: impl Operand<Resource>,
) -> (Output<String>, Output<String>) {
    let built =
        NewOp::on(&reader_handle, "ReaderReadV2").input(reader_handle).input(queue_handle).build();
    (built.output(0), built.output(1))
}

/// `ReaderReset`. Has no gradient.
#[track_caller]
pub fn reader_reset(reader_handle: impl Handle<Ref<String>>) -> Operation {
    NewOp::on(&reader_handle, "ReaderReset").input(reader_handle).operation()
}

/// `ReaderResetV2`. Has no gradient.
#[track_caller]
pub fn reader_reset_v2(reader_handle: impl Handle<Resource>) -> Operation {
    NewOp::on(&reader_handle, "ReaderResetV2").input(reader_handle).operation()
}

/// `ReaderRestoreState`. Has no gradient.
#[track_caller]
pub fn reader_restore_state(
    reader_handle: impl Handle<Ref<String>>,
    state: impl Operand<String>,
) -> Operation {
    NewOp::on(&reader_handle, "ReaderRestoreState").input(reader_handle).input(state).operation()
}

/// `ReaderRestoreStateV2`. Has no gradient.
#[track_caller]
pub fn reader_restore_state_v2(
    reader_handle: impl Handle<Resource>,
    state: impl Operand<String>,
) -> Operation {
    NewOp::on(&reader_handle, "ReaderRestoreStateV2").input(reader_handle).input(state).operation()
}

/// `ReaderSerializeState`. Has no gradient.
#[track_caller]
pub fn reader_serialize_state(reader_handle: impl Handle<Ref<String>>) -> Output<String> {
    NewOp::on(&reader_handle, "ReaderSerializeState").input(reader_handle).output()
}

/// `ReaderSerializeStateV2`. Has no gradient.
#[track_caller]
pub fn reader_serialize_state_v2(reader_handle: impl Handle<Resource>) -> Output<String> {
    NewOp::on(&reader_handle, "ReaderSerializeStateV2").input(reader_handle).output()
}

/// `Real`.
///
/// `T`: complex64, complex128. `Tout`: float, double. Has a gradient.
#[track_caller]
pub fn real<Tout: TensorType, T: TensorType>(input: impl Handle<T>) -> Output<Tout> {
    NewOp::on(&input, "Real").dtype::<Tout>("Tout").input(input).output()
}

/// `RealDiv`: the quotient of real numbers, with broadcasting.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn real_div<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "RealDiv").input(x).input(y).output()
}

/// `RebatchDataset`. Has no gradient. Options: [`RebatchDataset`].
#[track_caller]
pub fn rebatch_dataset(
    input_dataset: impl Handle<Variant>,
    num_replicas: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    RebatchDataset::new().build(input_dataset, num_replicas, output_types, output_shapes)
}
options! { RebatchDataset {
use_fallback: bool = "use_fallback", "true";
} }
impl RebatchDataset {
    /// Adds the node: see [`rebatch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        num_replicas: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "RebatchDataset")
            .input(input_dataset)
            .input(num_replicas)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `RebatchDatasetV2`. Has no gradient.
#[track_caller]
pub fn rebatch_dataset_v2(
    input_dataset: impl Handle<Variant>,
    batch_sizes: impl Operand<i64>,
    drop_remainder: impl Operand<bool>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "RebatchDatasetV2")
        .input(input_dataset)
        .input(batch_sizes)
        .input(drop_remainder)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `Reciprocal`: one divided by each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn reciprocal<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Reciprocal").input(x).output()
}

/// `ReciprocalGrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn reciprocal_grad<T: TensorType>(y: impl Handle<T>, dy: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "ReciprocalGrad").input(y).input(dy).output()
}

/// `ReduceDataset`. Has no gradient. Options: [`ReduceDataset`].
#[track_caller]
pub fn reduce_dataset(
    input_dataset: impl Handle<Variant>,
    initial_state: &[Output<Untyped>],
    other_arguments: &[Output<Untyped>],
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Vec<Output<Untyped>> {
    ReduceDataset::new().build(
        input_dataset,
        initial_state,
        other_arguments,
        f,
        output_types,
        output_shapes,
    )
}
options! { ReduceDataset {
use_inter_op_parallelism: bool = "use_inter_op_parallelism", "true";
metadata: &str = "metadata", "\"\"";
} }
impl ReduceDataset {
    /// Adds the node: see [`reduce_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        initial_state: &[Output<Untyped>],
        other_arguments: &[Output<Untyped>],
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&input_dataset, "ReduceDataset")
            .input(input_dataset)
            .inputs(initial_state)
            .attr("Tstate", &dtypes_of(initial_state)[..])
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .build();
        built.outputs("components", output_types.len())
    }
}

/// `ReduceJoin`. No gradient passes. Options: [`ReduceJoin`].
#[track_caller]
pub fn reduce_join(
    inputs: impl Handle<String>,
    reduction_indices: impl Operand<i32>,
) -> Output<String> {
    ReduceJoin::new().build(inputs, reduction_indices)
}
options! { ReduceJoin {
keep_dims: bool = "keep_dims", "false";
separator: &str = "separator", "\"\"";
} }
impl ReduceJoin {
    /// Adds the node: see [`reduce_join()`].
    #[track_caller]
    pub fn build(
        &self,
        inputs: impl Handle<String>,
        reduction_indices: impl Operand<i32>,
    ) -> Output<String> {
        self.0.on(&inputs, "ReduceJoin").input(inputs).input(reduction_indices).output()
    }
}

/// `RefEnter`. Has no gradient. Options: [`RefEnter`].
#[track_caller]
pub fn ref_enter<T: TensorType>(data: impl Handle<Ref<T>>, frame_name: &str) -> Output<Ref<T>> {
    RefEnter::new().build(data, frame_name)
}
options! { RefEnter {
is_constant: bool = "is_constant", "false";
parallel_iterations: i64 = "parallel_iterations", "10";
} }
impl RefEnter {
    /// Adds the node: see [`ref_enter()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        data: impl Handle<Ref<T>>,
        frame_name: &str,
    ) -> Output<Ref<T>> {
        self.0.on(&data, "RefEnter").input(data).attr("frame_name", frame_name).output()
    }
}

/// `RefExit`. Has no gradient.
#[track_caller]
pub fn ref_exit<T: TensorType>(data: impl Handle<Ref<T>>) -> Output<Ref<T>> {
    NewOp::on(&data, "RefExit").input(data).output()
}

/// `RefIdentity`. Has a gradient.
#[track_caller]
pub fn ref_identity<T: TensorType>(input: impl Handle<Ref<T>>) -> Output<Ref<T>> {
    NewOp::on(&input, "RefIdentity").input(input).output()
}

/// `RefMerge`. Has no gradient. Returns `output`, `value_index`.
#[track_caller]
pub fn ref_merge<T: TensorType>(
    g: &Graph,
    inputs: &[Output<Ref<T>>],
) -> (Output<Ref<T>>, Output<i32>) {
    let built = NewOp::new(g, "RefMerge")
        .inputs(inputs)
        .attr("N", inputs.len() as i64)
        .dtype::<T>("T")
        .build();
    (built.output(0), built.output(1))
}

/// `RefNextIteration`. Has no gradient.
#[track_caller]
pub fn ref_next_iteration<T: TensorType>(data: impl Handle<Ref<T>>) -> Output<Ref<T>> {
    NewOp::on(&data, "RefNextIteration").input(data).output()
}

/// `RefSwitch`. Has no gradient. Returns `output_false`, `output_true`.
#[track_caller]
pub fn ref_switch<T: TensorType>(
    data: impl Handle<Ref<T>>,
    pred: impl Operand<bool>,
) -> (Output<Ref<T>>, Output<Ref<T>>) {
    let built = NewOp::on(&data, "RefSwitch").input(data).input(pred).build();
    (built.output(0), built.output(1))
}

/// `RegexFullMatch`. Has no gradient.
#[track_caller]
pub fn regex_full_match(input: impl Handle<String>, pattern: impl Operand<String>) -> Output<bool> {
    NewOp::on(&input, "RegexFullMatch").input(input).input(pattern).output()
}

/// `RegexReplace`. No gradient passes. Options: [`RegexReplace`].
#[track_caller]
pub fn regex_replace(
    input: impl Handle<String>,
    pattern: impl Operand<String>,
    rewrite: impl Operand<String>,
) -> Output<String> {
    RegexReplace::new().build(input, pattern, rewrite)
}
options! { RegexReplace {
replace_global: bool = "replace_global", "true";
} }
impl RegexReplace {
    /// Adds the node: see [`regex_replace()`].
    #[track_caller]
    pub fn build(
        &self,
        input: impl Handle<String>,
        pattern: impl Operand<String>,
        rewrite: impl Operand<String>,
    ) -> Output<String> {
        self.0.on(&input, "RegexReplace").input(input).input(pattern).input(rewrite).output()
    }
}

/// `Relu`: the rectified linear unit.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn relu<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    NewOp::on(&features, "Relu").input(features).output()
}

/// `Relu6`: the rectified linear unit up to 6.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn relu6<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    NewOp::on(&features, "Relu6").input(features).output()
}

/// `Relu6Grad`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn relu6_grad<T: TensorType>(
    gradients: impl Handle<T>,
    features: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&gradients, "Relu6Grad").input(gradients).input(features).output()
}

/// `ReluGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn relu_grad<T: TensorType>(gradients: impl Handle<T>, features: impl Operand<T>) -> Output<T> {
    NewOp::on(&gradients, "ReluGrad").input(gradients).input(features).output()
}

/// `RemoteCall`. Has no gradient.
#[track_caller]
pub fn remote_call(
    target: impl Handle<String>,
    args: &[Output<Untyped>],
    tout: &[DType],
    f: &Function,
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&target, "RemoteCall")
        .input(target)
        .inputs(args)
        .attr("Tin", &dtypes_of(args)[..])
        .attr("Tout", tout)
        .attr("f", f)
        .build();
    built.outputs("output", tout.len())
}

/// `RepeatDataset`. Has no gradient. Options: [`RepeatDataset`].
#[track_caller]
pub fn repeat_dataset(
    input_dataset: impl Handle<Variant>,
    count: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    RepeatDataset::new().build(input_dataset, count, output_types, output_shapes)
}
options! { RepeatDataset {
metadata: &str = "metadata", "\"\"";
} }
impl RepeatDataset {
    /// Adds the node: see [`repeat_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        count: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "RepeatDataset")
            .input(input_dataset)
            .input(count)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `RequantizationRange`.
///
/// `Tinput`: qint32. Has no gradient. Returns `output_min`, `output_max`.
#[track_caller]
pub fn requantization_range<Tinput: TensorType>(
    input: impl Handle<Tinput>,
    input_min: impl Operand<f32>,
    input_max: impl Operand<f32>,
) -> (Output<f32>, Output<f32>) {
    let built = NewOp::on(&input, "RequantizationRange")
        .input(input)
        .input(input_min)
        .input(input_max)
        .build();
    (built.output(0), built.output(1))
}

/// `Requantize`.
///
/// `Tinput`: qint32. `OutType`: qint8, quint8. Has no gradient. Returns `output`, `output_min`, `output_max`.
#[track_caller]
pub fn requantize<OutType: TensorType, Tinput: TensorType>(
    input: impl Handle<Tinput>,
    input_min: impl Operand<f32>,
    input_max: impl Operand<f32>,
    requested_output_min: impl Operand<f32>,
    requested_output_max: impl Operand<f32>,
) -> (Output<OutType>, Output<f32>, Output<f32>) {
    let built = NewOp::on(&input, "Requantize")
        .dtype::<OutType>("out_type")
        .input(input)
        .input(input_min)
        .input(input_max)
        .input(requested_output_min)
        .input(requested_output_max)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `Reshape`: the elements in another shape.
///
/// `Tshape`: int32, int64. Has a gradient.
#[track_caller]
pub fn reshape<T: TensorType, Tshape: TensorType>(
    tensor: impl Handle<T>,
    shape: impl Operand<Tshape>,
) -> Output<T> {
    NewOp::on(&tensor, "Reshape").input(tensor).input(shape).output()
}

/// `ResizeArea`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has no gradient. Options: [`ResizeArea`].
#[track_caller]
pub fn resize_area<T: TensorType>(images: impl Handle<T>, size: impl Operand<i32>) -> Output<f32> {
    ResizeArea::new().build(images, size)
}
options! { ResizeArea {
align_corners: bool = "align_corners", "false";
} }
impl ResizeArea {
    /// Adds the node: see [`resize_area()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        images: impl Handle<T>,
        size: impl Operand<i32>,
    ) -> Output<f32> {
        self.0.on(&images, "ResizeArea").input(images).input(size).output()
    }
}

/// `ResizeBicubic`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`ResizeBicubic`].
#[track_caller]
pub fn resize_bicubic<T: TensorType>(
    images: impl Handle<T>,
    size: impl Operand<i32>,
) -> Output<f32> {
    ResizeBicubic::new().build(images, size)
}
options! { ResizeBicubic {
align_corners: bool = "align_corners", "false";
half_pixel_centers: bool = "half_pixel_centers", "false";
} }
impl ResizeBicubic {
    /// Adds the node: see [`resize_bicubic()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        images: impl Handle<T>,
        size: impl Operand<i32>,
    ) -> Output<f32> {
        self.0.on(&images, "ResizeBicubic").input(images).input(size).output()
    }
}

/// `ResizeBicubicGrad`.
///
/// `T`: float, double. Has no gradient. Options: [`ResizeBicubicGrad`].
#[track_caller]
pub fn resize_bicubic_grad<T: TensorType>(
    grads: impl Handle<f32>,
    original_image: impl Operand<T>,
) -> Output<T> {
    ResizeBicubicGrad::new().build(grads, original_image)
}
options! { ResizeBicubicGrad {
align_corners: bool = "align_corners", "false";
half_pixel_centers: bool = "half_pixel_centers", "false";
} }
impl ResizeBicubicGrad {
    /// Adds the node: see [`resize_bicubic_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        grads: impl Handle<f32>,
        original_image: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&grads, "ResizeBicubicGrad").input(grads).input(original_image).output()
    }
}

/// `ResizeBilinear`: images resized with bilinear interpolation.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`ResizeBilinear`].
#[track_caller]
pub fn resize_bilinear<T: TensorType>(
    images: impl Handle<T>,
    size: impl Operand<i32>,
) -> Output<f32> {
    ResizeBilinear::new().build(images, size)
}
options! { ResizeBilinear {
align_corners: bool = "align_corners", "false";
half_pixel_centers: bool = "half_pixel_centers", "false";
} }
impl ResizeBilinear {
    /// Adds the node: see [`resize_bilinear()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        images: impl Handle<T>,
        size: impl Operand<i32>,
    ) -> Output<f32> {
        self.0.on(&images, "ResizeBilinear").input(images).input(size).output()
    }
}

/// `ResizeBilinearGrad`.
///
/// `T`: float, double, bfloat16, half. No gradient passes. Options: [`ResizeBilinearGrad`].
#[track_caller]
pub fn resize_bilinear_grad<T: TensorType>(
    grads: impl Handle<f32>,
    original_image: impl Operand<T>,
) -> Output<T> {
    ResizeBilinearGrad::new().build(grads, original_image)
}
options! { ResizeBilinearGrad {
align_corners: bool = "align_corners", "false";
half_pixel_centers: bool = "half_pixel_centers", "false";
} }
impl ResizeBilinearGrad {
    /// Adds the node: see [`resize_bilinear_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        grads: impl Handle<f32>,
        original_image: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&grads, "ResizeBilinearGrad").input(grads).input(original_image).output()
    }
}

/// `ResizeNearestNeighbor`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`ResizeNearestNeighbor`].
#[track_caller]
pub fn resize_nearest_neighbor<T: TensorType>(
    images: impl Handle<T>,
    size: impl Operand<i32>,
) -> Output<T> {
    ResizeNearestNeighbor::new().build(images, size)
}
options! { ResizeNearestNeighbor {
align_corners: bool = "align_corners", "false";
half_pixel_centers: bool = "half_pixel_centers", "false";
} }
impl ResizeNearestNeighbor {
    /// Adds the node: see [`resize_nearest_neighbor()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        images: impl Handle<T>,
        size: impl Operand<i32>,
    ) -> Output<T> {
        self.0.on(&images, "ResizeNearestNeighbor").input(images).input(size).output()
    }
}

/// `ResizeNearestNeighborGrad`.
///
/// `T`: float, double, int32, uint8, int8, bfloat16, half. Has no gradient. Options: [`ResizeNearestNeighborGrad`].
#[track_caller]
pub fn resize_nearest_neighbor_grad<T: TensorType>(
    grads: impl Handle<T>,
    size: impl Operand<i32>,
) -> Output<T> {
    ResizeNearestNeighborGrad::new().build(grads, size)
}
options! { ResizeNearestNeighborGrad {
align_corners: bool = "align_corners", "false";
half_pixel_centers: bool = "half_pixel_centers", "false";
} }
impl ResizeNearestNeighborGrad {
    /// Adds the node: see [`resize_nearest_neighbor_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        grads: impl Handle<T>,
        size: impl Operand<i32>,
    ) -> Output<T> {
        self.0.on(&grads, "ResizeNearestNeighborGrad").input(grads).input(size).output()
    }
}

/// `ResourceAccumulatorApplyGradient`.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_accumulator_apply_gradient<Dtype: TensorType>(
    handle: impl Handle<Resource>,
    local_step: impl Operand<i64>,
    gradient: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&handle, "ResourceAccumulatorApplyGradient")
        .input(handle)
        .input(local_step)
        .input(gradient)
        .operation()
}

/// `ResourceAccumulatorNumAccumulated`. Has no gradient.
#[track_caller]
pub fn resource_accumulator_num_accumulated(handle: impl Handle<Resource>) -> Output<i32> {
    NewOp::on(&handle, "ResourceAccumulatorNumAccumulated").input(handle).output()
}

/// `ResourceAccumulatorSetGlobalStep`. Has no gradient.
#[track_caller]
pub fn resource_accumulator_set_global_step(
    handle: impl Handle<Resource>,
    new_global_step: impl Operand<i64>,
) -> Operation {
    NewOp::on(&handle, "ResourceAccumulatorSetGlobalStep")
        .input(handle)
        .input(new_global_step)
        .operation()
}

/// `ResourceAccumulatorTakeGradient`.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_accumulator_take_gradient<Dtype: TensorType>(
    handle: impl Handle<Resource>,
    num_required: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&handle, "ResourceAccumulatorTakeGradient")
        .dtype::<Dtype>("dtype")
        .input(handle)
        .input(num_required)
        .output()
}

/// `ResourceApplyAdaMax`.
///
/// `T`: float, double, half. Has no gradient. Options: [`ResourceApplyAdaMax`].
#[track_caller]
pub fn resource_apply_ada_max<T: TensorType>(
    var: impl Handle<Resource>,
    m: impl Operand<Resource>,
    v: impl Operand<Resource>,
    beta1_power: impl Operand<T>,
    lr: impl Operand<T>,
    beta1: impl Operand<T>,
    beta2: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAdaMax::new().build(var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad)
}
options! { ResourceApplyAdaMax {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyAdaMax {
    /// Adds the node: see [`resource_apply_ada_max()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        m: impl Operand<Resource>,
        v: impl Operand<Resource>,
        beta1_power: impl Operand<T>,
        lr: impl Operand<T>,
        beta1: impl Operand<T>,
        beta2: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdaMax")
            .input(var)
            .input(m)
            .input(v)
            .input(beta1_power)
            .input(lr)
            .input(beta1)
            .input(beta2)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyAdadelta`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyAdadelta`].
#[track_caller]
pub fn resource_apply_adadelta<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    accum_update: impl Operand<Resource>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAdadelta::new().build(var, accum, accum_update, lr, rho, epsilon, grad)
}
options! { ResourceApplyAdadelta {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyAdadelta {
    /// Adds the node: see [`resource_apply_adadelta()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        accum_update: impl Operand<Resource>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdadelta")
            .input(var)
            .input(accum)
            .input(accum_update)
            .input(lr)
            .input(rho)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyAdagrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyAdagrad`].
#[track_caller]
pub fn resource_apply_adagrad<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAdagrad::new().build(var, accum, lr, grad)
}
options! { ResourceApplyAdagrad {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl ResourceApplyAdagrad {
    /// Adds the node: see [`resource_apply_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyAdagradDA`.
///
/// `T`: float, double. Has no gradient. Options: [`ResourceApplyAdagradDA`].
#[track_caller]
pub fn resource_apply_adagrad_da<T: TensorType>(
    var: impl Handle<Resource>,
    gradient_accumulator: impl Operand<Resource>,
    gradient_squared_accumulator: impl Operand<Resource>,
    grad: impl Operand<T>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    global_step: impl Operand<i64>,
) -> Operation {
    ResourceApplyAdagradDA::new().build(
        var,
        gradient_accumulator,
        gradient_squared_accumulator,
        grad,
        lr,
        l1,
        l2,
        global_step,
    )
}
options! { ResourceApplyAdagradDA {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyAdagradDA {
    /// Adds the node: see [`resource_apply_adagrad_da()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        gradient_accumulator: impl Operand<Resource>,
        gradient_squared_accumulator: impl Operand<Resource>,
        grad: impl Operand<T>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        global_step: impl Operand<i64>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdagradDA")
            .input(var)
            .input(gradient_accumulator)
            .input(gradient_squared_accumulator)
            .input(grad)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(global_step)
            .operation()
    }
}

/// `ResourceApplyAdagradV2`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyAdagradV2`].
#[track_caller]
pub fn resource_apply_adagrad_v2<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAdagradV2::new().build(var, accum, lr, epsilon, grad)
}
options! { ResourceApplyAdagradV2 {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl ResourceApplyAdagradV2 {
    /// Adds the node: see [`resource_apply_adagrad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdagradV2")
            .input(var)
            .input(accum)
            .input(lr)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyAdam`: one step of Adam on a resource variable.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyAdam`].
#[track_caller]
pub fn resource_apply_adam<T: TensorType>(
    var: impl Handle<Resource>,
    m: impl Operand<Resource>,
    v: impl Operand<Resource>,
    beta1_power: impl Operand<T>,
    beta2_power: impl Operand<T>,
    lr: impl Operand<T>,
    beta1: impl Operand<T>,
    beta2: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAdam::new().build(
        var,
        m,
        v,
        beta1_power,
        beta2_power,
        lr,
        beta1,
        beta2,
        epsilon,
        grad,
    )
}
options! { ResourceApplyAdam {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ResourceApplyAdam {
    /// Adds the node: see [`resource_apply_adam()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        m: impl Operand<Resource>,
        v: impl Operand<Resource>,
        beta1_power: impl Operand<T>,
        beta2_power: impl Operand<T>,
        lr: impl Operand<T>,
        beta1: impl Operand<T>,
        beta2: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdam")
            .input(var)
            .input(m)
            .input(v)
            .input(beta1_power)
            .input(beta2_power)
            .input(lr)
            .input(beta1)
            .input(beta2)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyAdamWithAmsgrad`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ResourceApplyAdamWithAmsgrad`].
#[track_caller]
pub fn resource_apply_adam_with_amsgrad<T: TensorType>(
    var: impl Handle<Resource>,
    m: impl Operand<Resource>,
    v: impl Operand<Resource>,
    vhat: impl Operand<Resource>,
    beta1_power: impl Operand<T>,
    beta2_power: impl Operand<T>,
    lr: impl Operand<T>,
    beta1: impl Operand<T>,
    beta2: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAdamWithAmsgrad::new().build(
        var,
        m,
        v,
        vhat,
        beta1_power,
        beta2_power,
        lr,
        beta1,
        beta2,
        epsilon,
        grad,
    )
}
options! { ResourceApplyAdamWithAmsgrad {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyAdamWithAmsgrad {
    /// Adds the node: see [`resource_apply_adam_with_amsgrad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        m: impl Operand<Resource>,
        v: impl Operand<Resource>,
        vhat: impl Operand<Resource>,
        beta1_power: impl Operand<T>,
        beta2_power: impl Operand<T>,
        lr: impl Operand<T>,
        beta1: impl Operand<T>,
        beta2: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAdamWithAmsgrad")
            .input(var)
            .input(m)
            .input(v)
            .input(vhat)
            .input(beta1_power)
            .input(beta2_power)
            .input(lr)
            .input(beta1)
            .input(beta2)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyAddSign`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ResourceApplyAddSign`].
#[track_caller]
pub fn resource_apply_add_sign<T: TensorType>(
    var: impl Handle<Resource>,
    m: impl Operand<Resource>,
    lr: impl Operand<T>,
    alpha: impl Operand<T>,
    sign_decay: impl Operand<T>,
    beta: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyAddSign::new().build(var, m, lr, alpha, sign_decay, beta, grad)
}
options! { ResourceApplyAddSign {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyAddSign {
    /// Adds the node: see [`resource_apply_add_sign()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        m: impl Operand<Resource>,
        lr: impl Operand<T>,
        alpha: impl Operand<T>,
        sign_decay: impl Operand<T>,
        beta: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyAddSign")
            .input(var)
            .input(m)
            .input(lr)
            .input(alpha)
            .input(sign_decay)
            .input(beta)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyCenteredRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyCenteredRMSProp`].
#[track_caller]
pub fn resource_apply_centered_rms_prop<T: TensorType>(
    var: impl Handle<Resource>,
    mg: impl Operand<Resource>,
    ms: impl Operand<Resource>,
    mom: impl Operand<Resource>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyCenteredRMSProp::new().build(var, mg, ms, mom, lr, rho, momentum, epsilon, grad)
}
options! { ResourceApplyCenteredRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyCenteredRMSProp {
    /// Adds the node: see [`resource_apply_centered_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        mg: impl Operand<Resource>,
        ms: impl Operand<Resource>,
        mom: impl Operand<Resource>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyCenteredRMSProp")
            .input(var)
            .input(mg)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyFtrl`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ResourceApplyFtrl`].
#[track_caller]
pub fn resource_apply_ftrl<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    linear: impl Operand<Resource>,
    grad: impl Operand<T>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Operation {
    ResourceApplyFtrl::new().build(var, accum, linear, grad, lr, l1, l2, lr_power)
}
options! { ResourceApplyFtrl {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl ResourceApplyFtrl {
    /// Adds the node: see [`resource_apply_ftrl()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        linear: impl Operand<Resource>,
        grad: impl Operand<T>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyFtrl")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(lr_power)
            .operation()
    }
}

/// `ResourceApplyFtrlV2`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ResourceApplyFtrlV2`].
#[track_caller]
pub fn resource_apply_ftrl_v2<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    linear: impl Operand<Resource>,
    grad: impl Operand<T>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    l2_shrinkage: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Operation {
    ResourceApplyFtrlV2::new().build(var, accum, linear, grad, lr, l1, l2, l2_shrinkage, lr_power)
}
options! { ResourceApplyFtrlV2 {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl ResourceApplyFtrlV2 {
    /// Adds the node: see [`resource_apply_ftrl_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        linear: impl Operand<Resource>,
        grad: impl Operand<T>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        l2_shrinkage: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyFtrlV2")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(l2_shrinkage)
            .input(lr_power)
            .operation()
    }
}

/// `ResourceApplyGradientDescent`: one step of gradient descent on a resource variable.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyGradientDescent`].
#[track_caller]
pub fn resource_apply_gradient_descent<T: TensorType>(
    var: impl Handle<Resource>,
    alpha: impl Operand<T>,
    delta: impl Operand<T>,
) -> Operation {
    ResourceApplyGradientDescent::new().build(var, alpha, delta)
}
options! { ResourceApplyGradientDescent {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyGradientDescent {
    /// Adds the node: see [`resource_apply_gradient_descent()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        alpha: impl Operand<T>,
        delta: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyGradientDescent")
            .input(var)
            .input(alpha)
            .input(delta)
            .operation()
    }
}

/// `ResourceApplyKerasMomentum`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyKerasMomentum`].
#[track_caller]
pub fn resource_apply_keras_momentum<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    momentum: impl Operand<T>,
) -> Operation {
    ResourceApplyKerasMomentum::new().build(var, accum, lr, grad, momentum)
}
options! { ResourceApplyKerasMomentum {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ResourceApplyKerasMomentum {
    /// Adds the node: see [`resource_apply_keras_momentum()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        momentum: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyKerasMomentum")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(momentum)
            .operation()
    }
}

/// `ResourceApplyMomentum`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyMomentum`].
#[track_caller]
pub fn resource_apply_momentum<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    momentum: impl Operand<T>,
) -> Operation {
    ResourceApplyMomentum::new().build(var, accum, lr, grad, momentum)
}
options! { ResourceApplyMomentum {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ResourceApplyMomentum {
    /// Adds the node: see [`resource_apply_momentum()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        momentum: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyMomentum")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(momentum)
            .operation()
    }
}

/// `ResourceApplyPowerSign`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ResourceApplyPowerSign`].
#[track_caller]
pub fn resource_apply_power_sign<T: TensorType>(
    var: impl Handle<Resource>,
    m: impl Operand<Resource>,
    lr: impl Operand<T>,
    logbase: impl Operand<T>,
    sign_decay: impl Operand<T>,
    beta: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyPowerSign::new().build(var, m, lr, logbase, sign_decay, beta, grad)
}
options! { ResourceApplyPowerSign {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyPowerSign {
    /// Adds the node: see [`resource_apply_power_sign()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        m: impl Operand<Resource>,
        lr: impl Operand<T>,
        logbase: impl Operand<T>,
        sign_decay: impl Operand<T>,
        beta: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyPowerSign")
            .input(var)
            .input(m)
            .input(lr)
            .input(logbase)
            .input(sign_decay)
            .input(beta)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyProximalAdagrad`.
///
/// `T`: float, double. Has no gradient. Options: [`ResourceApplyProximalAdagrad`].
#[track_caller]
pub fn resource_apply_proximal_adagrad<T: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyProximalAdagrad::new().build(var, accum, lr, l1, l2, grad)
}
options! { ResourceApplyProximalAdagrad {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyProximalAdagrad {
    /// Adds the node: see [`resource_apply_proximal_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyProximalAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(grad)
            .operation()
    }
}

/// `ResourceApplyProximalGradientDescent`.
///
/// `T`: float, double. Has no gradient. Options: [`ResourceApplyProximalGradientDescent`].
#[track_caller]
pub fn resource_apply_proximal_gradient_descent<T: TensorType>(
    var: impl Handle<Resource>,
    alpha: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    delta: impl Operand<T>,
) -> Operation {
    ResourceApplyProximalGradientDescent::new().build(var, alpha, l1, l2, delta)
}
options! { ResourceApplyProximalGradientDescent {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyProximalGradientDescent {
    /// Adds the node: see [`resource_apply_proximal_gradient_descent()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        alpha: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        delta: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyProximalGradientDescent")
            .input(var)
            .input(alpha)
            .input(l1)
            .input(l2)
            .input(delta)
            .operation()
    }
}

/// `ResourceApplyRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ResourceApplyRMSProp`].
#[track_caller]
pub fn resource_apply_rms_prop<T: TensorType>(
    var: impl Handle<Resource>,
    ms: impl Operand<Resource>,
    mom: impl Operand<Resource>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Operation {
    ResourceApplyRMSProp::new().build(var, ms, mom, lr, rho, momentum, epsilon, grad)
}
options! { ResourceApplyRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl ResourceApplyRMSProp {
    /// Adds the node: see [`resource_apply_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Resource>,
        ms: impl Operand<Resource>,
        mom: impl Operand<Resource>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceApplyRMSProp")
            .input(var)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .operation()
    }
}

/// `ResourceConditionalAccumulator`. Has no gradient. Options: [`ResourceConditionalAccumulator`].
#[track_caller]
pub fn resource_conditional_accumulator(
    g: &Graph,
    dtype: DType,
    shape: impl Dims,
) -> Output<Resource> {
    ResourceConditionalAccumulator::new().build(g, dtype, shape)
}
options! { ResourceConditionalAccumulator {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
reduction_type: &str = "reduction_type", "\"MEAN\"";
} }
impl ResourceConditionalAccumulator {
    /// Adds the node: see [`resource_conditional_accumulator()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtype: DType, shape: impl Dims) -> Output<Resource> {
        self.0
            .new(g, "ResourceConditionalAccumulator")
            .attr("dtype", dtype)
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `ResourceCountUpTo`.
///
/// `T`: int32, int64. Has no gradient.
#[track_caller]
pub fn resource_count_up_to<T: TensorType>(
    resource: impl Handle<Resource>,
    limit: i64,
) -> Output<T> {
    NewOp::on(&resource, "ResourceCountUpTo")
        .dtype::<T>("T")
        .input(resource)
        .attr("limit", limit)
        .output()
}

/// `ResourceGather`: rows of a resource variable.
///
/// `Tindices`: int32, int64. Has a gradient. Options: [`ResourceGather`].
#[track_caller]
pub fn resource_gather<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
) -> Output<Dtype> {
    ResourceGather::new().build(resource, indices)
}
options! { ResourceGather {
batch_dims: i64 = "batch_dims", "0";
validate_indices: bool = "validate_indices", "true";
} }
impl ResourceGather {
    /// Adds the node: see [`resource_gather()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, Tindices: TensorType>(
        &self,
        resource: impl Handle<Resource>,
        indices: impl Operand<Tindices>,
    ) -> Output<Dtype> {
        self.0
            .on(&resource, "ResourceGather")
            .dtype::<Dtype>("dtype")
            .input(resource)
            .input(indices)
            .output()
    }
}

/// `ResourceGatherNd`.
///
/// `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn resource_gather_nd<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
) -> Output<Dtype> {
    NewOp::on(&resource, "ResourceGatherNd")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(indices)
        .output()
}

/// `ResourceScatterAdd`: adds to rows of a resource variable.
///
/// `Tindices`: int32, int64. `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_scatter_add<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterAdd")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceScatterDiv`.
///
/// `Tindices`: int32, int64. `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_scatter_div<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterDiv")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceScatterMax`.
///
/// `Tindices`: int32, int64. `Dtype`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_scatter_max<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterMax")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceScatterMin`.
///
/// `Tindices`: int32, int64. `Dtype`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_scatter_min<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterMin")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceScatterMul`.
///
/// `Tindices`: int32, int64. `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_scatter_mul<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterMul")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceScatterNdAdd`.
///
/// `Tindices`: int32, int64. Has no gradient. Options: [`ResourceScatterNdAdd`].
#[track_caller]
pub fn resource_scatter_nd_add<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Operation {
    ResourceScatterNdAdd::new().build(ref_, indices, updates)
}
options! { ResourceScatterNdAdd {
use_locking: bool = "use_locking", "true";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ResourceScatterNdAdd {
    /// Adds the node: see [`resource_scatter_nd_add()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Resource>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&ref_, "ResourceScatterNdAdd")
            .input(ref_)
            .input(indices)
            .input(updates)
            .operation()
    }
}

/// `ResourceScatterNdMax`.
///
/// `Tindices`: int32, int64. Has no gradient. Options: [`ResourceScatterNdMax`].
#[track_caller]
pub fn resource_scatter_nd_max<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Operation {
    ResourceScatterNdMax::new().build(ref_, indices, updates)
}
options! { ResourceScatterNdMax {
use_locking: bool = "use_locking", "true";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ResourceScatterNdMax {
    /// Adds the node: see [`resource_scatter_nd_max()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Resource>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&ref_, "ResourceScatterNdMax")
            .input(ref_)
            .input(indices)
            .input(updates)
            .operation()
    }
}

/// `ResourceScatterNdMin`.
///
/// `Tindices`: int32, int64. Has no gradient. Options: [`ResourceScatterNdMin`].
#[track_caller]
pub fn resource_scatter_nd_min<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Operation {
    ResourceScatterNdMin::new().build(ref_, indices, updates)
}
options! { ResourceScatterNdMin {
use_locking: bool = "use_locking", "true";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ResourceScatterNdMin {
    /// Adds the node: see [`resource_scatter_nd_min()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Resource>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&ref_, "ResourceScatterNdMin")
            .input(ref_)
            .input(indices)
            .input(updates)
            .operation()
    }
}

/// `ResourceScatterNdSub`.
///
/// `Tindices`: int32, int64. Has no gradient. Options: [`ResourceScatterNdSub`].
#[track_caller]
pub fn resource_scatter_nd_sub<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Operation {
    ResourceScatterNdSub::new().build(ref_, indices, updates)
}
options! { ResourceScatterNdSub {
use_locking: bool = "use_locking", "true";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ResourceScatterNdSub {
    /// Adds the node: see [`resource_scatter_nd_sub()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Resource>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&ref_, "ResourceScatterNdSub")
            .input(ref_)
            .input(indices)
            .input(updates)
            .operation()
    }
}

/// `ResourceScatterNdUpdate`.
///
/// `Tindices`: int32, int64. Has no gradient. Options: [`ResourceScatterNdUpdate`].
#[track_caller]
pub fn resource_scatter_nd_update<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Operation {
    ResourceScatterNdUpdate::new().build(ref_, indices, updates)
}
options! { ResourceScatterNdUpdate {
use_locking: bool = "use_locking", "true";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ResourceScatterNdUpdate {
    /// Adds the node: see [`resource_scatter_nd_update()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Resource>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&ref_, "ResourceScatterNdUpdate")
            .input(ref_)
            .input(indices)
            .input(updates)
            .operation()
    }
}

/// `ResourceScatterSub`.
///
/// `Tindices`: int32, int64. `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn resource_scatter_sub<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterSub")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceScatterUpdate`.
///
/// `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn resource_scatter_update<Dtype: TensorType, Tindices: TensorType>(
    resource: impl Handle<Resource>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "ResourceScatterUpdate")
        .input(resource)
        .input(indices)
        .input(updates)
        .operation()
}

/// `ResourceSparseApplyAdadelta`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyAdadelta`].
#[track_caller]
pub fn resource_sparse_apply_adadelta<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    accum_update: impl Operand<Resource>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyAdadelta::new().build(
        var,
        accum,
        accum_update,
        lr,
        rho,
        epsilon,
        grad,
        indices,
    )
}
options! { ResourceSparseApplyAdadelta {
use_locking: bool = "use_locking", "false";
} }
impl ResourceSparseApplyAdadelta {
    /// Adds the node: see [`resource_sparse_apply_adadelta()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        accum_update: impl Operand<Resource>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyAdadelta")
            .input(var)
            .input(accum)
            .input(accum_update)
            .input(lr)
            .input(rho)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceSparseApplyAdagrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyAdagrad`].
#[track_caller]
pub fn resource_sparse_apply_adagrad<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyAdagrad::new().build(var, accum, lr, grad, indices)
}
options! { ResourceSparseApplyAdagrad {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl ResourceSparseApplyAdagrad {
    /// Adds the node: see [`resource_sparse_apply_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceSparseApplyAdagradDA`.
///
/// `T`: float, double. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyAdagradDA`].
#[track_caller]
pub fn resource_sparse_apply_adagrad_da<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    gradient_accumulator: impl Operand<Resource>,
    gradient_squared_accumulator: impl Operand<Resource>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    global_step: impl Operand<i64>,
) -> Operation {
    ResourceSparseApplyAdagradDA::new().build(
        var,
        gradient_accumulator,
        gradient_squared_accumulator,
        grad,
        indices,
        lr,
        l1,
        l2,
        global_step,
    )
}
options! { ResourceSparseApplyAdagradDA {
use_locking: bool = "use_locking", "false";
} }
impl ResourceSparseApplyAdagradDA {
    /// Adds the node: see [`resource_sparse_apply_adagrad_da()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        gradient_accumulator: impl Operand<Resource>,
        gradient_squared_accumulator: impl Operand<Resource>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        global_step: impl Operand<i64>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyAdagradDA")
            .input(var)
            .input(gradient_accumulator)
            .input(gradient_squared_accumulator)
            .input(grad)
            .input(indices)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(global_step)
            .operation()
    }
}

/// `ResourceSparseApplyAdagradV2`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyAdagradV2`].
#[track_caller]
pub fn resource_sparse_apply_adagrad_v2<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyAdagradV2::new().build(var, accum, lr, epsilon, grad, indices)
}
options! { ResourceSparseApplyAdagradV2 {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl ResourceSparseApplyAdagradV2 {
    /// Adds the node: see [`resource_sparse_apply_adagrad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyAdagradV2")
            .input(var)
            .input(accum)
            .input(lr)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceSparseApplyCenteredRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyCenteredRMSProp`].
#[track_caller]
pub fn resource_sparse_apply_centered_rms_prop<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    mg: impl Operand<Resource>,
    ms: impl Operand<Resource>,
    mom: impl Operand<Resource>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyCenteredRMSProp::new()
        .build(var, mg, ms, mom, lr, rho, momentum, epsilon, grad, indices)
}
options! { ResourceSparseApplyCenteredRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl ResourceSparseApplyCenteredRMSProp {
    /// Adds the node: see [`resource_sparse_apply_centered_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        mg: impl Operand<Resource>,
        ms: impl Operand<Resource>,
        mom: impl Operand<Resource>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyCenteredRMSProp")
            .input(var)
            .input(mg)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceSparseApplyFtrl`.
///
/// `T`: float, double, bfloat16, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyFtrl`].
#[track_caller]
pub fn resource_sparse_apply_ftrl<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    linear: impl Operand<Resource>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Operation {
    ResourceSparseApplyFtrl::new().build(var, accum, linear, grad, indices, lr, l1, l2, lr_power)
}
options! { ResourceSparseApplyFtrl {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl ResourceSparseApplyFtrl {
    /// Adds the node: see [`resource_sparse_apply_ftrl()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        linear: impl Operand<Resource>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyFtrl")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(indices)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(lr_power)
            .operation()
    }
}

/// `ResourceSparseApplyFtrlV2`.
///
/// `T`: float, double, bfloat16, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyFtrlV2`].
#[track_caller]
pub fn resource_sparse_apply_ftrl_v2<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    linear: impl Operand<Resource>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    l2_shrinkage: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Operation {
    ResourceSparseApplyFtrlV2::new().build(
        var,
        accum,
        linear,
        grad,
        indices,
        lr,
        l1,
        l2,
        l2_shrinkage,
        lr_power,
    )
}
options! { ResourceSparseApplyFtrlV2 {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl ResourceSparseApplyFtrlV2 {
    /// Adds the node: see [`resource_sparse_apply_ftrl_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        linear: impl Operand<Resource>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        l2_shrinkage: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyFtrlV2")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(indices)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(l2_shrinkage)
            .input(lr_power)
            .operation()
    }
}

/// `ResourceSparseApplyKerasMomentum`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyKerasMomentum`].
#[track_caller]
pub fn resource_sparse_apply_keras_momentum<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    momentum: impl Operand<T>,
) -> Operation {
    ResourceSparseApplyKerasMomentum::new().build(var, accum, lr, grad, indices, momentum)
}
options! { ResourceSparseApplyKerasMomentum {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ResourceSparseApplyKerasMomentum {
    /// Adds the node: see [`resource_sparse_apply_keras_momentum()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        momentum: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyKerasMomentum")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(indices)
            .input(momentum)
            .operation()
    }
}

/// `ResourceSparseApplyMomentum`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyMomentum`].
#[track_caller]
pub fn resource_sparse_apply_momentum<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    momentum: impl Operand<T>,
) -> Operation {
    ResourceSparseApplyMomentum::new().build(var, accum, lr, grad, indices, momentum)
}
options! { ResourceSparseApplyMomentum {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ResourceSparseApplyMomentum {
    /// Adds the node: see [`resource_sparse_apply_momentum()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        momentum: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyMomentum")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(indices)
            .input(momentum)
            .operation()
    }
}

/// `ResourceSparseApplyProximalAdagrad`.
///
/// `T`: float, double. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyProximalAdagrad`].
#[track_caller]
pub fn resource_sparse_apply_proximal_adagrad<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    accum: impl Operand<Resource>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyProximalAdagrad::new().build(var, accum, lr, l1, l2, grad, indices)
}
options! { ResourceSparseApplyProximalAdagrad {
use_locking: bool = "use_locking", "false";
} }
impl ResourceSparseApplyProximalAdagrad {
    /// Adds the node: see [`resource_sparse_apply_proximal_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        accum: impl Operand<Resource>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyProximalAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceSparseApplyProximalGradientDescent`.
///
/// `T`: float, double. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyProximalGradientDescent`].
#[track_caller]
pub fn resource_sparse_apply_proximal_gradient_descent<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    alpha: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyProximalGradientDescent::new().build(var, alpha, l1, l2, grad, indices)
}
options! { ResourceSparseApplyProximalGradientDescent {
use_locking: bool = "use_locking", "false";
} }
impl ResourceSparseApplyProximalGradientDescent {
    /// Adds the node: see [`resource_sparse_apply_proximal_gradient_descent()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        alpha: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyProximalGradientDescent")
            .input(var)
            .input(alpha)
            .input(l1)
            .input(l2)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceSparseApplyRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`ResourceSparseApplyRMSProp`].
#[track_caller]
pub fn resource_sparse_apply_rms_prop<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Resource>,
    ms: impl Operand<Resource>,
    mom: impl Operand<Resource>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Operation {
    ResourceSparseApplyRMSProp::new().build(var, ms, mom, lr, rho, momentum, epsilon, grad, indices)
}
options! { ResourceSparseApplyRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl ResourceSparseApplyRMSProp {
    /// Adds the node: see [`resource_sparse_apply_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Resource>,
        ms: impl Operand<Resource>,
        mom: impl Operand<Resource>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Operation {
        self.0
            .on(&var, "ResourceSparseApplyRMSProp")
            .input(var)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .operation()
    }
}

/// `ResourceStridedSliceAssign`.
///
/// `Index`: int32, int64. Has no gradient. Options: [`ResourceStridedSliceAssign`].
#[track_caller]
pub fn resource_strided_slice_assign<T: TensorType, Index: TensorType>(
    ref_: impl Handle<Resource>,
    begin: impl Operand<Index>,
    end: impl Operand<Index>,
    strides: impl Operand<Index>,
    value: impl Operand<T>,
) -> Operation {
    ResourceStridedSliceAssign::new().build(ref_, begin, end, strides, value)
}
options! { ResourceStridedSliceAssign {
begin_mask: i64 = "begin_mask", "0";
end_mask: i64 = "end_mask", "0";
ellipsis_mask: i64 = "ellipsis_mask", "0";
new_axis_mask: i64 = "new_axis_mask", "0";
shrink_axis_mask: i64 = "shrink_axis_mask", "0";
} }
impl ResourceStridedSliceAssign {
    /// Adds the node: see [`resource_strided_slice_assign()`].
    #[track_caller]
    pub fn build<T: TensorType, Index: TensorType>(
        &self,
        ref_: impl Handle<Resource>,
        begin: impl Operand<Index>,
        end: impl Operand<Index>,
        strides: impl Operand<Index>,
        value: impl Operand<T>,
    ) -> Operation {
        self.0
            .on(&ref_, "ResourceStridedSliceAssign")
            .input(ref_)
            .input(begin)
            .input(end)
            .input(strides)
            .input(value)
            .operation()
    }
}

/// `Restore`. No gradient passes. Options: [`Restore`].
#[track_caller]
pub fn restore<Dt: TensorType>(
    file_pattern: impl Handle<String>,
    tensor_name: impl Operand<String>,
) -> Output<Dt> {
    Restore::new().build(file_pattern, tensor_name)
}
options! { Restore {
preferred_shard: i64 = "preferred_shard", "-1";
} }
impl Restore {
    /// Adds the node: see [`restore()`].
    #[track_caller]
    pub fn build<Dt: TensorType>(
        &self,
        file_pattern: impl Handle<String>,
        tensor_name: impl Operand<String>,
    ) -> Output<Dt> {
        self.0
            .on(&file_pattern, "Restore")
            .dtype::<Dt>("dt")
            .input(file_pattern)
            .input(tensor_name)
            .output()
    }
}

/// `RestoreSlice`. No gradient passes. Options: [`RestoreSlice`].
#[track_caller]
pub fn restore_slice<Dt: TensorType>(
    file_pattern: impl Handle<String>,
    tensor_name: impl Operand<String>,
    shape_and_slice: impl Operand<String>,
) -> Output<Dt> {
    RestoreSlice::new().build(file_pattern, tensor_name, shape_and_slice)
}
options! { RestoreSlice {
preferred_shard: i64 = "preferred_shard", "-1";
} }
impl RestoreSlice {
    /// Adds the node: see [`restore_slice()`].
    #[track_caller]
    pub fn build<Dt: TensorType>(
        &self,
        file_pattern: impl Handle<String>,
        tensor_name: impl Operand<String>,
        shape_and_slice: impl Operand<String>,
    ) -> Output<Dt> {
        self.0
            .on(&file_pattern, "RestoreSlice")
            .dtype::<Dt>("dt")
            .input(file_pattern)
            .input(tensor_name)
            .input(shape_and_slice)
            .output()
    }
}

/// `RestoreV2`: tensors of a checkpoint. No gradient passes.
#[track_caller]
pub fn restore_v2(
    prefix: impl Handle<String>,
    tensor_names: impl Operand<String>,
    shape_and_slices: impl Operand<String>,
    dtypes: &[DType],
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&prefix, "RestoreV2")
        .input(prefix)
        .input(tensor_names)
        .input(shape_and_slices)
        .attr("dtypes", dtypes)
        .build();
    built.outputs("tensors", dtypes.len())
}

/// `Reverse`.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn reverse<T: TensorType>(tensor: impl Handle<T>, dims: impl Operand<bool>) -> Output<T> {
    NewOp::on(&tensor, "Reverse").input(tensor).input(dims).output()
}

/// `ReverseSequence`: a part of each sequence reversed.
///
/// `Tlen`: int32, int64. Has a gradient. Options: [`ReverseSequence`].
#[track_caller]
pub fn reverse_sequence<T: TensorType, Tlen: TensorType>(
    input: impl Handle<T>,
    seq_lengths: impl Operand<Tlen>,
    seq_dim: i64,
) -> Output<T> {
    ReverseSequence::new().build(input, seq_lengths, seq_dim)
}
options! { ReverseSequence {
batch_dim: i64 = "batch_dim", "0";
} }
impl ReverseSequence {
    /// Adds the node: see [`reverse_sequence()`].
    #[track_caller]
    pub fn build<T: TensorType, Tlen: TensorType>(
        &self,
        input: impl Handle<T>,
        seq_lengths: impl Operand<Tlen>,
        seq_dim: i64,
    ) -> Output<T> {
        self.0
            .on(&input, "ReverseSequence")
            .input(input)
            .input(seq_lengths)
            .attr("seq_dim", seq_dim)
            .output()
    }
}

/// `ReverseV2`: a tensor reversed along axes.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient.
#[track_caller]
pub fn reverse_v2<Tidx: TensorType, T: TensorType>(
    tensor: impl Handle<T>,
    axis: impl Operand<Tidx>,
) -> Output<T> {
    NewOp::on(&tensor, "ReverseV2").input(tensor).input(axis).output()
}

/// `RewriteDataset`. Has no gradient.
#[track_caller]
pub fn rewrite_dataset(
    input_dataset: impl Handle<Variant>,
    rewrite_name: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "RewriteDataset")
        .input(input_dataset)
        .input(rewrite_name)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `RightShift`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn right_shift<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "RightShift").input(x).input(y).output()
}

/// `Rint`: each element rounded to the nearest integer.
///
/// `T`: float, double. No gradient passes.
#[track_caller]
pub fn rint<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Rint").input(x).output()
}

/// `RngReadAndSkip`. Has no gradient.
#[track_caller]
pub fn rng_read_and_skip(
    resource: impl Handle<Resource>,
    alg: impl Operand<i32>,
    delta: impl Operand<u64>,
) -> Output<i64> {
    NewOp::on(&resource, "RngReadAndSkip").input(resource).input(alg).input(delta).output()
}

/// `RngSkip`. Has no gradient.
#[track_caller]
pub fn rng_skip(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    delta: impl Operand<i64>,
) -> Operation {
    NewOp::on(&resource, "RngSkip").input(resource).input(algorithm).input(delta).operation()
}

/// `Roll`: elements shifted along axes, cyclically.
///
/// `Taxis`: int32, int64. `Tshift`: int32, int64. Has a gradient.
#[track_caller]
pub fn roll<T: TensorType, Tshift: TensorType, Taxis: TensorType>(
    input: impl Handle<T>,
    shift: impl Operand<Tshift>,
    axis: impl Operand<Taxis>,
) -> Output<T> {
    NewOp::on(&input, "Roll").input(input).input(shift).input(axis).output()
}

/// `Round`: each element rounded, halves to even.
///
/// `T`: float, double, int32, int64, bfloat16, half. No gradient passes.
#[track_caller]
pub fn round<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Round").input(x).output()
}

/// `Rsqrt`: one divided by the square root of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn rsqrt<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Rsqrt").input(x).output()
}

/// `RsqrtGrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn rsqrt_grad<T: TensorType>(y: impl Handle<T>, dy: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "RsqrtGrad").input(y).input(dy).output()
}
