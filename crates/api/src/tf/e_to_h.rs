//! Ops E, F, G, H. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `EditDistance`. No gradient passes. Options: [`EditDistance`].
#[track_caller]
pub fn edit_distance<T: TensorType>(
    hypothesis_indices: impl Operand<i64>,
    hypothesis_values: impl Handle<T>,
    hypothesis_shape: impl Operand<i64>,
    truth_indices: impl Operand<i64>,
    truth_values: impl Operand<T>,
    truth_shape: impl Operand<i64>,
) -> Output<f32> {
    EditDistance::new().build(
        hypothesis_indices,
        hypothesis_values,
        hypothesis_shape,
        truth_indices,
        truth_values,
        truth_shape,
    )
}
options! { EditDistance {
normalize: bool = "normalize", "true";
} }
impl EditDistance {
    /// Adds the node: see [`edit_distance()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        hypothesis_indices: impl Operand<i64>,
        hypothesis_values: impl Handle<T>,
        hypothesis_shape: impl Operand<i64>,
        truth_indices: impl Operand<i64>,
        truth_values: impl Operand<T>,
        truth_shape: impl Operand<i64>,
    ) -> Output<f32> {
        self.0
            .on(&hypothesis_values, "EditDistance")
            .input(hypothesis_indices)
            .input(hypothesis_values)
            .input(hypothesis_shape)
            .input(truth_indices)
            .input(truth_values)
            .input(truth_shape)
            .output()
    }
}

/// `Eig`.
///
/// `T`: float, double, complex64, complex128. `Tout`: complex64, complex128. Has a gradient. Returns `e`, `v`. Options: [`Eig`].
#[track_caller]
pub fn eig<Tout: TensorType, T: TensorType>(input: impl Handle<T>) -> (Output<Tout>, Output<Tout>) {
    Eig::new().build(input)
}
options! { Eig {
compute_v: bool = "compute_v", "true";
} }
impl Eig {
    /// Adds the node: see [`eig()`].
    #[track_caller]
    pub fn build<Tout: TensorType, T: TensorType>(
        &self,
        input: impl Handle<T>,
    ) -> (Output<Tout>, Output<Tout>) {
        let built = self.0.on(&input, "Eig").dtype::<Tout>("Tout").input(input).build();
        (built.output(0), built.output(1))
    }
}

/// `Einsum`: a product of tensors by Einstein's notation.
///
/// `T`: float, double, int32, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn einsum<T: TensorType>(g: &Graph, inputs: &[Output<T>], equation: &str) -> Output<T> {
    NewOp::new(g, "Einsum")
        .inputs(inputs)
        .attr("N", inputs.len() as i64)
        .dtype::<T>("T")
        .attr("equation", equation)
        .output()
}

/// `Elu`: the exponential linear unit.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn elu<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    NewOp::on(&features, "Elu").input(features).output()
}

/// `EluGrad`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn elu_grad<T: TensorType>(gradients: impl Handle<T>, outputs: impl Operand<T>) -> Output<T> {
    NewOp::on(&gradients, "EluGrad").input(gradients).input(outputs).output()
}

/// `Empty`. Has no gradient. Options: [`Empty`].
#[track_caller]
pub fn empty<Dtype: TensorType>(shape: impl Handle<i32>) -> Output<Dtype> {
    Empty::new().build(shape)
}
options! { Empty {
init: bool = "init", "false";
} }
impl Empty {
    /// Adds the node: see [`empty()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, shape: impl Handle<i32>) -> Output<Dtype> {
        self.0.on(&shape, "Empty").dtype::<Dtype>("dtype").input(shape).output()
    }
}

/// `EmptyTensorList`.
///
/// `ShapeType`: int32, int64. No gradient passes.
#[track_caller]
pub fn empty_tensor_list<ShapeType: TensorType>(
    element_shape: impl Handle<ShapeType>,
    max_num_elements: impl Operand<i32>,
    element_dtype: DType,
) -> Output<Variant> {
    NewOp::on(&element_shape, "EmptyTensorList")
        .input(element_shape)
        .input(max_num_elements)
        .attr("element_dtype", element_dtype)
        .output()
}

/// `EncodeBase64`. No gradient passes. Options: [`EncodeBase64`].
#[track_caller]
pub fn encode_base64(input: impl Handle<String>) -> Output<String> {
    EncodeBase64::new().build(input)
}
options! { EncodeBase64 {
pad: bool = "pad", "false";
} }
impl EncodeBase64 {
    /// Adds the node: see [`encode_base64()`].
    #[track_caller]
    pub fn build(&self, input: impl Handle<String>) -> Output<String> {
        self.0.on(&input, "EncodeBase64").input(input).output()
    }
}

/// `EncodeJpeg`. Has no gradient. Options: [`EncodeJpeg`].
#[track_caller]
pub fn encode_jpeg(image: impl Handle<u8>) -> Output<String> {
    EncodeJpeg::new().build(image)
}
options! { EncodeJpeg {
format: &str = "format", "\"\"";
quality: i64 = "quality", "95";
progressive: bool = "progressive", "false";
optimize_size: bool = "optimize_size", "false";
chroma_downsampling: bool = "chroma_downsampling", "true";
density_unit: &str = "density_unit", "\"in\"";
x_density: i64 = "x_density", "300";
y_density: i64 = "y_density", "300";
xmp_metadata: &str = "xmp_metadata", "\"\"";
} }
impl EncodeJpeg {
    /// Adds the node: see [`encode_jpeg()`].
    #[track_caller]
    pub fn build(&self, image: impl Handle<u8>) -> Output<String> {
        self.0.on(&image, "EncodeJpeg").input(image).output()
    }
}

/// `EncodeJpegVariableQuality`. Has no gradient.
#[track_caller]
pub fn encode_jpeg_variable_quality(
    images: impl Handle<u8>,
    quality: impl Operand<i32>,
) -> Output<String> {
    NewOp::on(&images, "EncodeJpegVariableQuality").input(images).input(quality).output()
}

/// `EncodePng`.
///
/// `T`: uint8, uint16. Has no gradient. Options: [`EncodePng`].
#[track_caller]
pub fn encode_png<T: TensorType>(image: impl Handle<T>) -> Output<String> {
    EncodePng::new().build(image)
}
options! { EncodePng {
compression: i64 = "compression", "-1";
} }
impl EncodePng {
    /// Adds the node: see [`encode_png()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, image: impl Handle<T>) -> Output<String> {
        self.0.on(&image, "EncodePng").input(image).output()
    }
}

/// `EncodeWav`. Has no gradient.
#[track_caller]
pub fn encode_wav(audio: impl Handle<f32>, sample_rate: impl Operand<i32>) -> Output<String> {
    NewOp::on(&audio, "EncodeWav").input(audio).input(sample_rate).output()
}

/// `EnsureShape`. Has a gradient.
#[track_caller]
pub fn ensure_shape<T: TensorType>(input: impl Handle<T>, shape: impl Dims) -> Output<T> {
    NewOp::on(&input, "EnsureShape").input(input).attr("shape", &shape.to_partial()).output()
}

/// `Enter`. Has no gradient. Options: [`Enter`].
#[track_caller]
pub fn enter<T: TensorType>(data: impl Handle<T>, frame_name: &str) -> Output<T> {
    Enter::new().build(data, frame_name)
}
options! { Enter {
is_constant: bool = "is_constant", "false";
parallel_iterations: i64 = "parallel_iterations", "10";
} }
impl Enter {
    /// Adds the node: see [`enter()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, data: impl Handle<T>, frame_name: &str) -> Output<T> {
        self.0.on(&data, "Enter").input(data).attr("frame_name", frame_name).output()
    }
}

/// `Equal`: whether elements are equal, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. No gradient passes. Options: [`Equal`].
#[track_caller]
pub fn equal<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    Equal::new().build(x, y)
}
options! { Equal {
incompatible_shape_error: bool = "incompatible_shape_error", "true";
} }
impl Equal {
    /// Adds the node: see [`equal()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
        self.0.on(&x, "Equal").input(x).input(y).output()
    }
}

/// `Erf`: the error function of each element.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn erf<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Erf").input(x).output()
}

/// `Erfc`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn erfc<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Erfc").input(x).output()
}

/// `Erfinv`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn erfinv<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Erfinv").input(x).output()
}

/// `EuclideanNorm`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`EuclideanNorm`].
#[track_caller]
pub fn euclidean_norm<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<T> {
    EuclideanNorm::new().build(input, reduction_indices)
}
options! { EuclideanNorm {
keep_dims: bool = "keep_dims", "false";
} }
impl EuclideanNorm {
    /// Adds the node: see [`euclidean_norm()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        input: impl Handle<T>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&input, "EuclideanNorm").input(input).input(reduction_indices).output()
    }
}

/// `Exit`. Has no gradient.
#[track_caller]
pub fn exit<T: TensorType>(data: impl Handle<T>) -> Output<T> {
    NewOp::on(&data, "Exit").input(data).output()
}

/// `Exp`: e to the power of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn exp<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Exp").input(x).output()
}

/// `ExpandDims`: inserts a dimension of size 1.
///
/// `Tdim`: int32, int64. Has a gradient.
#[track_caller]
pub fn expand_dims<T: TensorType, Tdim: TensorType>(
    input: impl Handle<T>,
    dim: impl Operand<Tdim>,
) -> Output<T> {
    NewOp::on(&input, "ExpandDims").input(input).input(dim).output()
}

/// `ExperimentalAssertNextDataset`. Has no gradient.
#[track_caller]
pub fn experimental_assert_next_dataset(
    input_dataset: impl Handle<Variant>,
    transformations: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalAssertNextDataset")
        .input(input_dataset)
        .input(transformations)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalBytesProducedStatsDataset`. Has no gradient.
#[track_caller]
pub fn experimental_bytes_produced_stats_dataset(
    input_dataset: impl Handle<Variant>,
    tag: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalBytesProducedStatsDataset")
        .input(input_dataset)
        .input(tag)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalCSVDataset`.
///
/// `OutputTypes`: float, double, int32, string, int64. Has no gradient.
#[track_caller]
pub fn experimental_csv_dataset(
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
    NewOp::on(&filenames, "ExperimentalCSVDataset")
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

/// `ExperimentalChooseFastestDataset`. Has no gradient.
#[track_caller]
pub fn experimental_choose_fastest_dataset(
    g: &Graph,
    input_datasets: &[Output<Variant>],
    num_experiments: i64,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::new(g, "ExperimentalChooseFastestDataset")
        .inputs(input_datasets)
        .attr("N", input_datasets.len() as i64)
        .attr("num_experiments", num_experiments)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalDatasetCardinality`. Has no gradient.
#[track_caller]
pub fn experimental_dataset_cardinality(input_dataset: impl Handle<Variant>) -> Output<i64> {
    NewOp::on(&input_dataset, "ExperimentalDatasetCardinality").input(input_dataset).output()
}

/// `ExperimentalDatasetToTFRecord`. Has no gradient.
#[track_caller]
pub fn experimental_dataset_to_tf_record(
    input_dataset: impl Handle<Variant>,
    filename: impl Operand<String>,
    compression_type: impl Operand<String>,
) -> Operation {
    NewOp::on(&input_dataset, "ExperimentalDatasetToTFRecord")
        .input(input_dataset)
        .input(filename)
        .input(compression_type)
        .operation()
}

/// `ExperimentalDenseToSparseBatchDataset`. Has no gradient.
#[track_caller]
pub fn experimental_dense_to_sparse_batch_dataset(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    row_shape: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalDenseToSparseBatchDataset")
        .input(input_dataset)
        .input(batch_size)
        .input(row_shape)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalDirectedInterleaveDataset`. Has no gradient.
#[track_caller]
pub fn experimental_directed_interleave_dataset(
    selector_input_dataset: impl Handle<Variant>,
    data_input_datasets: &[Output<Variant>],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&selector_input_dataset, "ExperimentalDirectedInterleaveDataset")
        .input(selector_input_dataset)
        .inputs(data_input_datasets)
        .attr("N", data_input_datasets.len() as i64)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalGroupByReducerDataset`. Has no gradient.
#[track_caller]
pub fn experimental_group_by_reducer_dataset(
    input_dataset: impl Handle<Variant>,
    key_func_other_arguments: &[Output<Untyped>],
    init_func_other_arguments: &[Output<Untyped>],
    reduce_func_other_arguments: &[Output<Untyped>],
    finalize_func_other_arguments: &[Output<Untyped>],
    key_func: &Function,
    init_func: &Function,
    reduce_func: &Function,
    finalize_func: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalGroupByReducerDataset")
        .input(input_dataset)
        .inputs(key_func_other_arguments)
        .attr("Tkey_func_other_arguments", &dtypes_of(key_func_other_arguments)[..])
        .inputs(init_func_other_arguments)
        .attr("Tinit_func_other_arguments", &dtypes_of(init_func_other_arguments)[..])
        .inputs(reduce_func_other_arguments)
        .attr("Treduce_func_other_arguments", &dtypes_of(reduce_func_other_arguments)[..])
        .inputs(finalize_func_other_arguments)
        .attr("Tfinalize_func_other_arguments", &dtypes_of(finalize_func_other_arguments)[..])
        .attr("key_func", key_func)
        .attr("init_func", init_func)
        .attr("reduce_func", reduce_func)
        .attr("finalize_func", finalize_func)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalGroupByWindowDataset`. Has no gradient.
#[track_caller]
pub fn experimental_group_by_window_dataset(
    input_dataset: impl Handle<Variant>,
    key_func_other_arguments: &[Output<Untyped>],
    reduce_func_other_arguments: &[Output<Untyped>],
    window_size_func_other_arguments: &[Output<Untyped>],
    key_func: &Function,
    reduce_func: &Function,
    window_size_func: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalGroupByWindowDataset")
        .input(input_dataset)
        .inputs(key_func_other_arguments)
        .attr("Tkey_func_other_arguments", &dtypes_of(key_func_other_arguments)[..])
        .inputs(reduce_func_other_arguments)
        .attr("Treduce_func_other_arguments", &dtypes_of(reduce_func_other_arguments)[..])
        .inputs(window_size_func_other_arguments)
        .attr("Twindow_size_func_other_arguments", &dtypes_of(window_size_func_other_arguments)[..])
        .attr("key_func", key_func)
        .attr("reduce_func", reduce_func)
        .attr("window_size_func", window_size_func)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalIgnoreErrorsDataset`. Has no gradient. Options: [`ExperimentalIgnoreErrorsDataset`].
#[track_caller]
pub fn experimental_ignore_errors_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ExperimentalIgnoreErrorsDataset::new().build(input_dataset, output_types, output_shapes)
}
options! { ExperimentalIgnoreErrorsDataset {
log_warning: bool = "log_warning", "false";
} }
impl ExperimentalIgnoreErrorsDataset {
    /// Adds the node: see [`experimental_ignore_errors_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ExperimentalIgnoreErrorsDataset")
            .input(input_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ExperimentalIteratorGetDevice`. Has no gradient.
#[track_caller]
pub fn experimental_iterator_get_device(resource: impl Handle<Resource>) -> Output<String> {
    NewOp::on(&resource, "ExperimentalIteratorGetDevice").input(resource).output()
}

/// `ExperimentalLatencyStatsDataset`. Has no gradient.
#[track_caller]
pub fn experimental_latency_stats_dataset(
    input_dataset: impl Handle<Variant>,
    tag: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalLatencyStatsDataset")
        .input(input_dataset)
        .input(tag)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalMapAndBatchDataset`. Has no gradient. Options: [`ExperimentalMapAndBatchDataset`].
#[track_caller]
pub fn experimental_map_and_batch_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    batch_size: impl Operand<i64>,
    num_parallel_calls: impl Operand<i64>,
    drop_remainder: impl Operand<bool>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ExperimentalMapAndBatchDataset::new().build(
        input_dataset,
        other_arguments,
        batch_size,
        num_parallel_calls,
        drop_remainder,
        f,
        output_types,
        output_shapes,
    )
}
options! { ExperimentalMapAndBatchDataset {
preserve_cardinality: bool = "preserve_cardinality", "false";
} }
impl ExperimentalMapAndBatchDataset {
    /// Adds the node: see [`experimental_map_and_batch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        batch_size: impl Operand<i64>,
        num_parallel_calls: impl Operand<i64>,
        drop_remainder: impl Operand<bool>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ExperimentalMapAndBatchDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(batch_size)
            .input(num_parallel_calls)
            .input(drop_remainder)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ExperimentalMatchingFilesDataset`. Has no gradient.
#[track_caller]
pub fn experimental_matching_files_dataset(patterns: impl Handle<String>) -> Output<Variant> {
    NewOp::on(&patterns, "ExperimentalMatchingFilesDataset").input(patterns).output()
}

/// `ExperimentalMaxIntraOpParallelismDataset`. Has no gradient.
#[track_caller]
pub fn experimental_max_intra_op_parallelism_dataset(
    input_dataset: impl Handle<Variant>,
    max_intra_op_parallelism: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalMaxIntraOpParallelismDataset")
        .input(input_dataset)
        .input(max_intra_op_parallelism)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalNonSerializableDataset`. Has no gradient.
#[track_caller]
pub fn experimental_non_serializable_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalNonSerializableDataset")
        .input(input_dataset)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalParallelInterleaveDataset`. Has no gradient.
#[track_caller]
pub fn experimental_parallel_interleave_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    cycle_length: impl Operand<i64>,
    block_length: impl Operand<i64>,
    sloppy: impl Operand<bool>,
    buffer_output_elements: impl Operand<i64>,
    prefetch_input_elements: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalParallelInterleaveDataset")
        .input(input_dataset)
        .inputs(other_arguments)
        .attr("Targuments", &dtypes_of(other_arguments)[..])
        .input(cycle_length)
        .input(block_length)
        .input(sloppy)
        .input(buffer_output_elements)
        .input(prefetch_input_elements)
        .attr("f", f)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalParseExampleDataset`.
///
/// `Tdense`: float, string, int64. Has no gradient. Options: [`ExperimentalParseExampleDataset`].
#[track_caller]
pub fn experimental_parse_example_dataset(
    input_dataset: impl Handle<Variant>,
    num_parallel_calls: impl Operand<i64>,
    dense_defaults: &[Output<Untyped>],
    sparse_keys: &[&str],
    dense_keys: &[&str],
    sparse_types: &[DType],
    dense_shapes: &[PartialShape],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ExperimentalParseExampleDataset::new().build(
        input_dataset,
        num_parallel_calls,
        dense_defaults,
        sparse_keys,
        dense_keys,
        sparse_types,
        dense_shapes,
        output_types,
        output_shapes,
    )
}
options! { ExperimentalParseExampleDataset {
sloppy: bool = "sloppy", "false";
} }
impl ExperimentalParseExampleDataset {
    /// Adds the node: see [`experimental_parse_example_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        num_parallel_calls: impl Operand<i64>,
        dense_defaults: &[Output<Untyped>],
        sparse_keys: &[&str],
        dense_keys: &[&str],
        sparse_types: &[DType],
        dense_shapes: &[PartialShape],
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ExperimentalParseExampleDataset")
            .input(input_dataset)
            .input(num_parallel_calls)
            .inputs(dense_defaults)
            .attr("Tdense", &dtypes_of(dense_defaults)[..])
            .attr("sparse_keys", sparse_keys)
            .attr("dense_keys", dense_keys)
            .attr("sparse_types", sparse_types)
            .attr("dense_shapes", dense_shapes)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ExperimentalPrivateThreadPoolDataset`. Has no gradient.
#[track_caller]
pub fn experimental_private_thread_pool_dataset(
    input_dataset: impl Handle<Variant>,
    num_threads: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalPrivateThreadPoolDataset")
        .input(input_dataset)
        .input(num_threads)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalRandomDataset`. Has no gradient.
#[track_caller]
pub fn experimental_random_dataset(
    seed: impl Handle<i64>,
    seed2: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&seed, "ExperimentalRandomDataset")
        .input(seed)
        .input(seed2)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalRebatchDataset`. Has no gradient. Options: [`ExperimentalRebatchDataset`].
#[track_caller]
pub fn experimental_rebatch_dataset(
    input_dataset: impl Handle<Variant>,
    num_replicas: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ExperimentalRebatchDataset::new().build(
        input_dataset,
        num_replicas,
        output_types,
        output_shapes,
    )
}
options! { ExperimentalRebatchDataset {
use_fallback: bool = "use_fallback", "true";
} }
impl ExperimentalRebatchDataset {
    /// Adds the node: see [`experimental_rebatch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        num_replicas: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ExperimentalRebatchDataset")
            .input(input_dataset)
            .input(num_replicas)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ExperimentalScanDataset`. Has no gradient. Options: [`ExperimentalScanDataset`].
#[track_caller]
pub fn experimental_scan_dataset(
    input_dataset: impl Handle<Variant>,
    initial_state: &[Output<Untyped>],
    other_arguments: &[Output<Untyped>],
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ExperimentalScanDataset::new().build(
        input_dataset,
        initial_state,
        other_arguments,
        f,
        output_types,
        output_shapes,
    )
}
options! { ExperimentalScanDataset {
preserve_cardinality: bool = "preserve_cardinality", "false";
} }
impl ExperimentalScanDataset {
    /// Adds the node: see [`experimental_scan_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        initial_state: &[Output<Untyped>],
        other_arguments: &[Output<Untyped>],
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ExperimentalScanDataset")
            .input(input_dataset)
            .inputs(initial_state)
            .attr("Tstate", &dtypes_of(initial_state)[..])
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ExperimentalSlidingWindowDataset`. Has no gradient.
#[track_caller]
pub fn experimental_sliding_window_dataset(
    input_dataset: impl Handle<Variant>,
    window_size: impl Operand<i64>,
    window_shift: impl Operand<i64>,
    window_stride: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalSlidingWindowDataset")
        .input(input_dataset)
        .input(window_size)
        .input(window_shift)
        .input(window_stride)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalTakeWhileDataset`. Has no gradient.
#[track_caller]
pub fn experimental_take_while_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    predicate: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalTakeWhileDataset")
        .input(input_dataset)
        .inputs(other_arguments)
        .attr("Targuments", &dtypes_of(other_arguments)[..])
        .attr("predicate", predicate)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalUnbatchDataset`. Has no gradient.
#[track_caller]
pub fn experimental_unbatch_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalUnbatchDataset")
        .input(input_dataset)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `ExperimentalUniqueDataset`. Has no gradient.
#[track_caller]
pub fn experimental_unique_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "ExperimentalUniqueDataset")
        .input(input_dataset)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `Expint`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn expint<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Expint").input(x).output()
}

/// `Expm1`: e to the power of each element, minus 1.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn expm1<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Expm1").input(x).output()
}

/// `ExtractImagePatches`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn extract_image_patches<T: TensorType>(
    images: impl Handle<T>,
    ksizes: &[i64],
    strides: &[i64],
    rates: &[i64],
    padding: &str,
) -> Output<T> {
    NewOp::on(&images, "ExtractImagePatches")
        .input(images)
        .attr("ksizes", ksizes)
        .attr("strides", strides)
        .attr("rates", rates)
        .attr("padding", padding)
        .output()
}

/// `ExtractJpegShape`.
///
/// `OutputType`: int32, int64. Has no gradient.
#[track_caller]
pub fn extract_jpeg_shape<OutputType: TensorType>(
    contents: impl Handle<String>,
) -> Output<OutputType> {
    NewOp::on(&contents, "ExtractJpegShape")
        .dtype::<OutputType>("output_type")
        .input(contents)
        .output()
}

/// `ExtractVolumePatches`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn extract_volume_patches<T: TensorType>(
    input: impl Handle<T>,
    ksizes: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    NewOp::on(&input, "ExtractVolumePatches")
        .input(input)
        .attr("ksizes", ksizes)
        .attr("strides", strides)
        .attr("padding", padding)
        .output()
}

/// `FFT`: the discrete Fourier transform along the last axis.
///
/// `Tcomplex`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn fft<Tcomplex: TensorType>(input: impl Handle<Tcomplex>) -> Output<Tcomplex> {
    NewOp::on(&input, "FFT").input(input).output()
}

/// `FFT2D`.
///
/// `Tcomplex`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn fft2d<Tcomplex: TensorType>(input: impl Handle<Tcomplex>) -> Output<Tcomplex> {
    NewOp::on(&input, "FFT2D").input(input).output()
}

/// `FFT3D`.
///
/// `Tcomplex`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn fft3d<Tcomplex: TensorType>(input: impl Handle<Tcomplex>) -> Output<Tcomplex> {
    NewOp::on(&input, "FFT3D").input(input).output()
}

/// `FFTND`.
///
/// `Tcomplex`: complex64, complex128. Has no gradient.
#[track_caller]
pub fn fftnd<Tcomplex: TensorType>(
    input: impl Handle<Tcomplex>,
    fft_length: impl Operand<i32>,
    axes: impl Operand<i32>,
) -> Output<Tcomplex> {
    NewOp::on(&input, "FFTND").input(input).input(fft_length).input(axes).output()
}

/// `FIFOQueue`. Has no gradient. Options: [`FIFOQueue`].
#[track_caller]
pub fn fifo_queue(g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
    FIFOQueue::new().build(g, component_types)
}
options! { FIFOQueue {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl FIFOQueue {
    /// Adds the node: see [`fifo_queue()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
        self.0.new(g, "FIFOQueue").attr("component_types", component_types).output()
    }
}

/// `FIFOQueueV2`. Has no gradient. Options: [`FIFOQueueV2`].
#[track_caller]
pub fn fifo_queue_v2(g: &Graph, component_types: &[DType]) -> Output<Resource> {
    FIFOQueueV2::new().build(g, component_types)
}
options! { FIFOQueueV2 {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl FIFOQueueV2 {
    /// Adds the node: see [`fifo_queue_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Resource> {
        self.0.new(g, "FIFOQueueV2").attr("component_types", component_types).output()
    }
}

/// `FakeParam`. No gradient passes.
#[track_caller]
pub fn fake_param<Dtype: TensorType>(g: &Graph, shape: impl Dims) -> Output<Dtype> {
    NewOp::new(g, "FakeParam").dtype::<Dtype>("dtype").attr("shape", &shape.to_partial()).output()
}

/// `FakeQuantWithMinMaxArgs`. Has a gradient. Options: [`FakeQuantWithMinMaxArgs`].
#[track_caller]
pub fn fake_quant_with_min_max_args(inputs: impl Handle<f32>) -> Output<f32> {
    FakeQuantWithMinMaxArgs::new().build(inputs)
}
options! { FakeQuantWithMinMaxArgs {
min: f32 = "min", "-6.0";
max: f32 = "max", "6.0";
num_bits: i64 = "num_bits", "8";
narrow_range: bool = "narrow_range", "false";
} }
impl FakeQuantWithMinMaxArgs {
    /// Adds the node: see [`fake_quant_with_min_max_args()`].
    #[track_caller]
    pub fn build(&self, inputs: impl Handle<f32>) -> Output<f32> {
        self.0.on(&inputs, "FakeQuantWithMinMaxArgs").input(inputs).output()
    }
}

/// `FakeQuantWithMinMaxArgsGradient`. No gradient passes. Options: [`FakeQuantWithMinMaxArgsGradient`].
#[track_caller]
pub fn fake_quant_with_min_max_args_gradient(
    gradients: impl Handle<f32>,
    inputs: impl Operand<f32>,
) -> Output<f32> {
    FakeQuantWithMinMaxArgsGradient::new().build(gradients, inputs)
}
options! { FakeQuantWithMinMaxArgsGradient {
min: f32 = "min", "-6.0";
max: f32 = "max", "6.0";
num_bits: i64 = "num_bits", "8";
narrow_range: bool = "narrow_range", "false";
} }
impl FakeQuantWithMinMaxArgsGradient {
    /// Adds the node: see [`fake_quant_with_min_max_args_gradient()`].
    #[track_caller]
    pub fn build(&self, gradients: impl Handle<f32>, inputs: impl Operand<f32>) -> Output<f32> {
        self.0
            .on(&gradients, "FakeQuantWithMinMaxArgsGradient")
            .input(gradients)
            .input(inputs)
            .output()
    }
}

/// `FakeQuantWithMinMaxVars`. Has a gradient. Options: [`FakeQuantWithMinMaxVars`].
#[track_caller]
pub fn fake_quant_with_min_max_vars(
    inputs: impl Handle<f32>,
    min: impl Operand<f32>,
    max: impl Operand<f32>,
) -> Output<f32> {
    FakeQuantWithMinMaxVars::new().build(inputs, min, max)
}
options! { FakeQuantWithMinMaxVars {
num_bits: i64 = "num_bits", "8";
narrow_range: bool = "narrow_range", "false";
} }
impl FakeQuantWithMinMaxVars {
    /// Adds the node: see [`fake_quant_with_min_max_vars()`].
    #[track_caller]
    pub fn build(
        &self,
        inputs: impl Handle<f32>,
        min: impl Operand<f32>,
        max: impl Operand<f32>,
    ) -> Output<f32> {
        self.0.on(&inputs, "FakeQuantWithMinMaxVars").input(inputs).input(min).input(max).output()
    }
}

/// `FakeQuantWithMinMaxVarsGradient`. No gradient passes. Returns `backprops_wrt_input`, `backprop_wrt_min`, `backprop_wrt_max`. Options: [`FakeQuantWithMinMaxVarsGradient`].
#[track_caller]
pub fn fake_quant_with_min_max_vars_gradient(
    gradients: impl Handle<f32>,
    inputs: impl Operand<f32>,
    min: impl Operand<f32>,
    max: impl Operand<f32>,
) -> (Output<f32>, Output<f32>, Output<f32>) {
    FakeQuantWithMinMaxVarsGradient::new().build(gradients, inputs, min, max)
}
options! { FakeQuantWithMinMaxVarsGradient {
num_bits: i64 = "num_bits", "8";
narrow_range: bool = "narrow_range", "false";
} }
impl FakeQuantWithMinMaxVarsGradient {
    /// Adds the node: see [`fake_quant_with_min_max_vars_gradient()`].
    #[track_caller]
    pub fn build(
        &self,
        gradients: impl Handle<f32>,
        inputs: impl Operand<f32>,
        min: impl Operand<f32>,
        max: impl Operand<f32>,
    ) -> (Output<f32>, Output<f32>, Output<f32>) {
        let built = self
            .0
            .on(&gradients, "FakeQuantWithMinMaxVarsGradient")
            .input(gradients)
            .input(inputs)
            .input(min)
            .input(max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `FakeQuantWithMinMaxVarsPerChannel`. Has a gradient. Options: [`FakeQuantWithMinMaxVarsPerChannel`].
#[track_caller]
pub fn fake_quant_with_min_max_vars_per_channel(
    inputs: impl Handle<f32>,
    min: impl Operand<f32>,
    max: impl Operand<f32>,
) -> Output<f32> {
    FakeQuantWithMinMaxVarsPerChannel::new().build(inputs, min, max)
}
options! { FakeQuantWithMinMaxVarsPerChannel {
num_bits: i64 = "num_bits", "8";
narrow_range: bool = "narrow_range", "false";
} }
impl FakeQuantWithMinMaxVarsPerChannel {
    /// Adds the node: see [`fake_quant_with_min_max_vars_per_channel()`].
    #[track_caller]
    pub fn build(
        &self,
        inputs: impl Handle<f32>,
        min: impl Operand<f32>,
        max: impl Operand<f32>,
    ) -> Output<f32> {
        self.0
            .on(&inputs, "FakeQuantWithMinMaxVarsPerChannel")
            .input(inputs)
            .input(min)
            .input(max)
            .output()
    }
}

/// `FakeQuantWithMinMaxVarsPerChannelGradient`. No gradient passes. Returns `backprops_wrt_input`, `backprop_wrt_min`, `backprop_wrt_max`. Options: [`FakeQuantWithMinMaxVarsPerChannelGradient`].
#[track_caller]
pub fn fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: impl Handle<f32>,
    inputs: impl Operand<f32>,
    min: impl Operand<f32>,
    max: impl Operand<f32>,
) -> (Output<f32>, Output<f32>, Output<f32>) {
    FakeQuantWithMinMaxVarsPerChannelGradient::new().build(gradients, inputs, min, max)
}
options! { FakeQuantWithMinMaxVarsPerChannelGradient {
num_bits: i64 = "num_bits", "8";
narrow_range: bool = "narrow_range", "false";
} }
impl FakeQuantWithMinMaxVarsPerChannelGradient {
    /// Adds the node: see [`fake_quant_with_min_max_vars_per_channel_gradient()`].
    #[track_caller]
    pub fn build(
        &self,
        gradients: impl Handle<f32>,
        inputs: impl Operand<f32>,
        min: impl Operand<f32>,
        max: impl Operand<f32>,
    ) -> (Output<f32>, Output<f32>, Output<f32>) {
        let built = self
            .0
            .on(&gradients, "FakeQuantWithMinMaxVarsPerChannelGradient")
            .input(gradients)
            .input(inputs)
            .input(min)
            .input(max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Fill`: a tensor of one value.
///
/// `IndexType`: int32, int64. Has a gradient.
#[track_caller]
pub fn fill<T: TensorType, IndexType: TensorType>(
    dims: impl Handle<IndexType>,
    value: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&dims, "Fill").input(dims).input(value).output()
}

/// `FilterDataset`. Has no gradient. Options: [`FilterDataset`].
#[track_caller]
pub fn filter_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    predicate: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    FilterDataset::new().build(
        input_dataset,
        other_arguments,
        predicate,
        output_types,
        output_shapes,
    )
}
options! { FilterDataset {
metadata: &str = "metadata", "\"\"";
} }
impl FilterDataset {
    /// Adds the node: see [`filter_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        predicate: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "FilterDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .attr("predicate", predicate)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `FinalizeDataset`. Has no gradient. Options: [`FinalizeDataset`].
#[track_caller]
pub fn finalize_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    FinalizeDataset::new().build(input_dataset, output_types, output_shapes)
}
options! { FinalizeDataset {
has_captured_ref: bool = "has_captured_ref", "false";
} }
impl FinalizeDataset {
    /// Adds the node: see [`finalize_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "FinalizeDataset")
            .input(input_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Fingerprint`. Has no gradient.
#[track_caller]
pub fn fingerprint<T: TensorType>(
    data: impl Handle<T>,
    method: impl Operand<String>,
) -> Output<u8> {
    NewOp::on(&data, "Fingerprint").input(data).input(method).output()
}

/// `FixedLengthRecordDataset`. Has no gradient. Options: [`FixedLengthRecordDataset`].
#[track_caller]
pub fn fixed_length_record_dataset(
    filenames: impl Handle<String>,
    header_bytes: impl Operand<i64>,
    record_bytes: impl Operand<i64>,
    footer_bytes: impl Operand<i64>,
    buffer_size: impl Operand<i64>,
) -> Output<Variant> {
    FixedLengthRecordDataset::new().build(
        filenames,
        header_bytes,
        record_bytes,
        footer_bytes,
        buffer_size,
    )
}
options! { FixedLengthRecordDataset {
metadata: &str = "metadata", "\"\"";
} }
impl FixedLengthRecordDataset {
    /// Adds the node: see [`fixed_length_record_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        filenames: impl Handle<String>,
        header_bytes: impl Operand<i64>,
        record_bytes: impl Operand<i64>,
        footer_bytes: impl Operand<i64>,
        buffer_size: impl Operand<i64>,
    ) -> Output<Variant> {
        self.0
            .on(&filenames, "FixedLengthRecordDataset")
            .input(filenames)
            .input(header_bytes)
            .input(record_bytes)
            .input(footer_bytes)
            .input(buffer_size)
            .output()
    }
}

/// `FixedLengthRecordDatasetV2`. Has no gradient. Options: [`FixedLengthRecordDatasetV2`].
#[track_caller]
pub fn fixed_length_record_dataset_v2(
    filenames: impl Handle<String>,
    header_bytes: impl Operand<i64>,
    record_bytes: impl Operand<i64>,
    footer_bytes: impl Operand<i64>,
    buffer_size: impl Operand<i64>,
    compression_type: impl Operand<String>,
) -> Output<Variant> {
    FixedLengthRecordDatasetV2::new().build(
        filenames,
        header_bytes,
        record_bytes,
        footer_bytes,
        buffer_size,
        compression_type,
    )
}
options! { FixedLengthRecordDatasetV2 {
metadata: &str = "metadata", "\"\"";
} }
impl FixedLengthRecordDatasetV2 {
    /// Adds the node: see [`fixed_length_record_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        filenames: impl Handle<String>,
        header_bytes: impl Operand<i64>,
        record_bytes: impl Operand<i64>,
        footer_bytes: impl Operand<i64>,
        buffer_size: impl Operand<i64>,
        compression_type: impl Operand<String>,
    ) -> Output<Variant> {
        self.0
            .on(&filenames, "FixedLengthRecordDatasetV2")
            .input(filenames)
            .input(header_bytes)
            .input(record_bytes)
            .input(footer_bytes)
            .input(buffer_size)
            .input(compression_type)
            .output()
    }
}

/// `FixedLengthRecordReader`. Has no gradient. Options: [`FixedLengthRecordReader`].
#[track_caller]
pub fn fixed_length_record_reader(g: &Graph, record_bytes: i64) -> Output<Ref<String>> {
    FixedLengthRecordReader::new().build(g, record_bytes)
}
options! { FixedLengthRecordReader {
header_bytes: i64 = "header_bytes", "0";
footer_bytes: i64 = "footer_bytes", "0";
hop_bytes: i64 = "hop_bytes", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl FixedLengthRecordReader {
    /// Adds the node: see [`fixed_length_record_reader()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, record_bytes: i64) -> Output<Ref<String>> {
        self.0.new(g, "FixedLengthRecordReader").attr("record_bytes", record_bytes).output()
    }
}

/// `FixedLengthRecordReaderV2`. Has no gradient. Options: [`FixedLengthRecordReaderV2`].
#[track_caller]
pub fn fixed_length_record_reader_v2(g: &Graph, record_bytes: i64) -> Output<Resource> {
    FixedLengthRecordReaderV2::new().build(g, record_bytes)
}
options! { FixedLengthRecordReaderV2 {
header_bytes: i64 = "header_bytes", "0";
footer_bytes: i64 = "footer_bytes", "0";
hop_bytes: i64 = "hop_bytes", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
encoding: &str = "encoding", "\"\"";
} }
impl FixedLengthRecordReaderV2 {
    /// Adds the node: see [`fixed_length_record_reader_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, record_bytes: i64) -> Output<Resource> {
        self.0.new(g, "FixedLengthRecordReaderV2").attr("record_bytes", record_bytes).output()
    }
}

/// `FixedUnigramCandidateSampler`. Has no gradient. Returns `sampled_candidates`, `true_expected_count`, `sampled_expected_count`. Options: [`FixedUnigramCandidateSampler`].
#[track_caller]
pub fn fixed_unigram_candidate_sampler(
    true_classes: impl Handle<i64>,
    num_true: i64,
    num_sampled: i64,
    unique: bool,
    range_max: i64,
) -> (Output<i64>, Output<f32>, Output<f32>) {
    FixedUnigramCandidateSampler::new().build(
        true_classes,
        num_true,
        num_sampled,
        unique,
        range_max,
    )
}
options! { FixedUnigramCandidateSampler {
vocab_file: &str = "vocab_file", "\"\"";
distortion: f32 = "distortion", "1.0";
num_reserved_ids: i64 = "num_reserved_ids", "0";
num_shards: i64 = "num_shards", "1";
shard: i64 = "shard", "0";
unigrams: &[f32] = "unigrams", "[]";
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl FixedUnigramCandidateSampler {
    /// Adds the node: see [`fixed_unigram_candidate_sampler()`].
    #[track_caller]
    pub fn build(
        &self,
        true_classes: impl Handle<i64>,
        num_true: i64,
        num_sampled: i64,
        unique: bool,
        range_max: i64,
    ) -> (Output<i64>, Output<f32>, Output<f32>) {
        let built = self
            .0
            .on(&true_classes, "FixedUnigramCandidateSampler")
            .input(true_classes)
            .attr("num_true", num_true)
            .attr("num_sampled", num_sampled)
            .attr("unique", unique)
            .attr("range_max", range_max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `FlatMapDataset`. Has no gradient. Options: [`FlatMapDataset`].
#[track_caller]
pub fn flat_map_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    FlatMapDataset::new().build(input_dataset, other_arguments, f, output_types, output_shapes)
}
options! { FlatMapDataset {
metadata: &str = "metadata", "\"\"";
} }
impl FlatMapDataset {
    /// Adds the node: see [`flat_map_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "FlatMapDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Floor`: each element rounded down.
///
/// `T`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn floor<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Floor").input(x).output()
}

/// `FloorDiv`: the quotient rounded down.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn floor_div<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "FloorDiv").input(x).input(y).output()
}

/// `FloorMod`: the remainder with the sign of the divisor.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn floor_mod<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "FloorMod").input(x).input(y).output()
}

/// `FlushSummaryWriter`. Has no gradient.
#[track_caller]
pub fn flush_summary_writer(writer: impl Handle<Resource>) -> Operation {
    NewOp::on(&writer, "FlushSummaryWriter").input(writer).operation()
}

/// `For`. Has a gradient.
#[track_caller]
pub fn for_(
    start: impl Handle<i32>,
    limit: impl Operand<i32>,
    delta: impl Operand<i32>,
    input: &[Output<Untyped>],
    body: &Function,
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&start, "For")
        .input(start)
        .input(limit)
        .input(delta)
        .inputs(input)
        .attr("T", &dtypes_of(input)[..])
        .attr("body", body)
        .build();
    built.outputs("output", input.len())
}

/// `FractionalAvgPool`.
///
/// `T`: float, double, int32, int64. Has a gradient. Returns `output`, `row_pooling_sequence`, `col_pooling_sequence`. Options: [`FractionalAvgPool`].
#[track_caller]
pub fn fractional_avg_pool<T: TensorType>(
    value: impl Handle<T>,
    pooling_ratio: &[f32],
) -> (Output<T>, Output<i64>, Output<i64>) {
    FractionalAvgPool::new().build(value, pooling_ratio)
}
options! { FractionalAvgPool {
pseudo_random: bool = "pseudo_random", "false";
overlapping: bool = "overlapping", "false";
deterministic: bool = "deterministic", "false";
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl FractionalAvgPool {
    /// Adds the node: see [`fractional_avg_pool()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        value: impl Handle<T>,
        pooling_ratio: &[f32],
    ) -> (Output<T>, Output<i64>, Output<i64>) {
        let built = self
            .0
            .on(&value, "FractionalAvgPool")
            .input(value)
            .attr("pooling_ratio", pooling_ratio)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `FractionalAvgPoolGrad`.
///
/// `T`: float, double, int32, int64. Has no gradient. Options: [`FractionalAvgPoolGrad`].
#[track_caller]
pub fn fractional_avg_pool_grad<T: TensorType>(
    orig_input_tensor_shape: impl Operand<i64>,
    out_backprop: impl Handle<T>,
    row_pooling_sequence: impl Operand<i64>,
    col_pooling_sequence: impl Operand<i64>,
) -> Output<T> {
    FractionalAvgPoolGrad::new().build(
        orig_input_tensor_shape,
        out_backprop,
        row_pooling_sequence,
        col_pooling_sequence,
    )
}
options! { FractionalAvgPoolGrad {
overlapping: bool = "overlapping", "false";
} }
impl FractionalAvgPoolGrad {
    /// Adds the node: see [`fractional_avg_pool_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input_tensor_shape: impl Operand<i64>,
        out_backprop: impl Handle<T>,
        row_pooling_sequence: impl Operand<i64>,
        col_pooling_sequence: impl Operand<i64>,
    ) -> Output<T> {
        self.0
            .on(&out_backprop, "FractionalAvgPoolGrad")
            .input(orig_input_tensor_shape)
            .input(out_backprop)
            .input(row_pooling_sequence)
            .input(col_pooling_sequence)
            .output()
    }
}

/// `FractionalMaxPool`.
///
/// `T`: float, double, int32, int64. Has a gradient. Returns `output`, `row_pooling_sequence`, `col_pooling_sequence`. Options: [`FractionalMaxPool`].
#[track_caller]
pub fn fractional_max_pool<T: TensorType>(
    value: impl Handle<T>,
    pooling_ratio: &[f32],
) -> (Output<T>, Output<i64>, Output<i64>) {
    FractionalMaxPool::new().build(value, pooling_ratio)
}
options! { FractionalMaxPool {
pseudo_random: bool = "pseudo_random", "false";
overlapping: bool = "overlapping", "false";
deterministic: bool = "deterministic", "false";
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl FractionalMaxPool {
    /// Adds the node: see [`fractional_max_pool()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        value: impl Handle<T>,
        pooling_ratio: &[f32],
    ) -> (Output<T>, Output<i64>, Output<i64>) {
        let built = self
            .0
            .on(&value, "FractionalMaxPool")
            .input(value)
            .attr("pooling_ratio", pooling_ratio)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `FractionalMaxPoolGrad`.
///
/// `T`: float, double, int32, int64. Has no gradient. Options: [`FractionalMaxPoolGrad`].
#[track_caller]
pub fn fractional_max_pool_grad<T: TensorType>(
    orig_input: impl Handle<T>,
    orig_output: impl Operand<T>,
    out_backprop: impl Operand<T>,
    row_pooling_sequence: impl Operand<i64>,
    col_pooling_sequence: impl Operand<i64>,
) -> Output<T> {
    FractionalMaxPoolGrad::new().build(
        orig_input,
        orig_output,
        out_backprop,
        row_pooling_sequence,
        col_pooling_sequence,
    )
}
options! { FractionalMaxPoolGrad {
overlapping: bool = "overlapping", "false";
} }
impl FractionalMaxPoolGrad {
    /// Adds the node: see [`fractional_max_pool_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input: impl Handle<T>,
        orig_output: impl Operand<T>,
        out_backprop: impl Operand<T>,
        row_pooling_sequence: impl Operand<i64>,
        col_pooling_sequence: impl Operand<i64>,
    ) -> Output<T> {
        self.0
            .on(&orig_input, "FractionalMaxPoolGrad")
            .input(orig_input)
            .input(orig_output)
            .input(out_backprop)
            .input(row_pooling_sequence)
            .input(col_pooling_sequence)
            .output()
    }
}

/// `FresnelCos`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn fresnel_cos<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "FresnelCos").input(x).output()
}

/// `FresnelSin`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn fresnel_sin<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "FresnelSin").input(x).output()
}

/// Outputs of [`fused_batch_norm`].
#[derive(Clone, Debug)]
pub struct FusedBatchNormOutputs<T: TensorType> {
    /// `y`.
    pub y: Output<T>,
    /// `batch_mean`.
    pub batch_mean: Output<T>,
    /// `batch_variance`.
    pub batch_variance: Output<T>,
    /// `reserve_space_1`.
    pub reserve_space_1: Output<T>,
    /// `reserve_space_2`.
    pub reserve_space_2: Output<T>,
}

/// `FusedBatchNorm`.
///
/// `T`: float. Has a gradient. Returns `y`, `batch_mean`, `batch_variance`, `reserve_space_1`, `reserve_space_2`. Options: [`FusedBatchNorm`].
#[track_caller]
pub fn fused_batch_norm<T: TensorType>(
    x: impl Handle<T>,
    scale: impl Operand<T>,
    offset: impl Operand<T>,
    mean: impl Operand<T>,
    variance: impl Operand<T>,
) -> FusedBatchNormOutputs<T> {
    FusedBatchNorm::new().build(x, scale, offset, mean, variance)
}
options! { FusedBatchNorm {
epsilon: f32 = "epsilon", "0.0001";
exponential_avg_factor: f32 = "exponential_avg_factor", "1.0";
data_format: &str = "data_format", "\"NHWC\"";
is_training: bool = "is_training", "true";
} }
impl FusedBatchNorm {
    /// Adds the node: see [`fused_batch_norm()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        x: impl Handle<T>,
        scale: impl Operand<T>,
        offset: impl Operand<T>,
        mean: impl Operand<T>,
        variance: impl Operand<T>,
    ) -> FusedBatchNormOutputs<T> {
        let built = self
            .0
            .on(&x, "FusedBatchNorm")
            .input(x)
            .input(scale)
            .input(offset)
            .input(mean)
            .input(variance)
            .build();
        FusedBatchNormOutputs {
            y: built.output(0),
            batch_mean: built.output(1),
            batch_variance: built.output(2),
            reserve_space_1: built.output(3),
            reserve_space_2: built.output(4),
        }
    }
}

/// Outputs of [`fused_batch_norm_grad`].
#[derive(Clone, Debug)]
pub struct FusedBatchNormGradOutputs<T: TensorType> {
    /// `x_backprop`.
    pub x_backprop: Output<T>,
    /// `scale_backprop`.
    pub scale_backprop: Output<T>,
    /// `offset_backprop`.
    pub offset_backprop: Output<T>,
    /// `reserve_space_3`.
    pub reserve_space_3: Output<T>,
    /// `reserve_space_4`.
    pub reserve_space_4: Output<T>,
}

/// `FusedBatchNormGrad`.
///
/// `T`: float. Has a gradient. Returns `x_backprop`, `scale_backprop`, `offset_backprop`, `reserve_space_3`, `reserve_space_4`. Options: [`FusedBatchNormGrad`].
#[track_caller]
pub fn fused_batch_norm_grad<T: TensorType>(
    y_backprop: impl Handle<T>,
    x: impl Operand<T>,
    scale: impl Operand<T>,
    reserve_space_1: impl Operand<T>,
    reserve_space_2: impl Operand<T>,
) -> FusedBatchNormGradOutputs<T> {
    FusedBatchNormGrad::new().build(y_backprop, x, scale, reserve_space_1, reserve_space_2)
}
options! { FusedBatchNormGrad {
epsilon: f32 = "epsilon", "0.0001";
data_format: &str = "data_format", "\"NHWC\"";
is_training: bool = "is_training", "true";
} }
impl FusedBatchNormGrad {
    /// Adds the node: see [`fused_batch_norm_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        y_backprop: impl Handle<T>,
        x: impl Operand<T>,
        scale: impl Operand<T>,
        reserve_space_1: impl Operand<T>,
        reserve_space_2: impl Operand<T>,
    ) -> FusedBatchNormGradOutputs<T> {
        let built = self
            .0
            .on(&y_backprop, "FusedBatchNormGrad")
            .input(y_backprop)
            .input(x)
            .input(scale)
            .input(reserve_space_1)
            .input(reserve_space_2)
            .build();
        FusedBatchNormGradOutputs {
            x_backprop: built.output(0),
            scale_backprop: built.output(1),
            offset_backprop: built.output(2),
            reserve_space_3: built.output(3),
            reserve_space_4: built.output(4),
        }
    }
}

/// Outputs of [`fused_batch_norm_grad_v2`].
#[derive(Clone, Debug)]
pub struct FusedBatchNormGradV2Outputs<T: TensorType, U: TensorType> {
    /// `x_backprop`.
    pub x_backprop: Output<T>,
    /// `scale_backprop`.
    pub scale_backprop: Output<U>,
    /// `offset_backprop`.
    pub offset_backprop: Output<U>,
    /// `reserve_space_3`.
    pub reserve_space_3: Output<U>,
    /// `reserve_space_4`.
    pub reserve_space_4: Output<U>,
}

/// `FusedBatchNormGradV2`.
///
/// `T`: float, bfloat16, half. `U`: float. Has a gradient. Returns `x_backprop`, `scale_backprop`, `offset_backprop`, `reserve_space_3`, `reserve_space_4`. Options: [`FusedBatchNormGradV2`].
#[track_caller]
pub fn fused_batch_norm_grad_v2<T: TensorType, U: TensorType>(
    y_backprop: impl Handle<T>,
    x: impl Operand<T>,
    scale: impl Operand<f32>,
    reserve_space_1: impl Operand<U>,
    reserve_space_2: impl Operand<U>,
) -> FusedBatchNormGradV2Outputs<T, U> {
    FusedBatchNormGradV2::new().build(y_backprop, x, scale, reserve_space_1, reserve_space_2)
}
options! { FusedBatchNormGradV2 {
epsilon: f32 = "epsilon", "0.0001";
data_format: &str = "data_format", "\"NHWC\"";
is_training: bool = "is_training", "true";
} }
impl FusedBatchNormGradV2 {
    /// Adds the node: see [`fused_batch_norm_grad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, U: TensorType>(
        &self,
        y_backprop: impl Handle<T>,
        x: impl Operand<T>,
        scale: impl Operand<f32>,
        reserve_space_1: impl Operand<U>,
        reserve_space_2: impl Operand<U>,
    ) -> FusedBatchNormGradV2Outputs<T, U> {
        let built = self
            .0
            .on(&y_backprop, "FusedBatchNormGradV2")
            .input(y_backprop)
            .input(x)
            .input(scale)
            .input(reserve_space_1)
            .input(reserve_space_2)
            .build();
        FusedBatchNormGradV2Outputs {
            x_backprop: built.output(0),
            scale_backprop: built.output(1),
            offset_backprop: built.output(2),
            reserve_space_3: built.output(3),
            reserve_space_4: built.output(4),
        }
    }
}

/// Outputs of [`fused_batch_norm_grad_v3`].
#[derive(Clone, Debug)]
pub struct FusedBatchNormGradV3Outputs<T: TensorType, U: TensorType> {
    /// `x_backprop`.
    pub x_backprop: Output<T>,
    /// `scale_backprop`.
    pub scale_backprop: Output<U>,
    /// `offset_backprop`.
    pub offset_backprop: Output<U>,
    /// `reserve_space_4`.
    pub reserve_space_4: Output<U>,
    /// `reserve_space_5`.
    pub reserve_space_5: Output<U>,
}

/// `FusedBatchNormGradV3`.
///
/// `T`: float, bfloat16, half. `U`: float. Has a gradient. Returns `x_backprop`, `scale_backprop`, `offset_backprop`, `reserve_space_4`, `reserve_space_5`. Options: [`FusedBatchNormGradV3`].
#[track_caller]
pub fn fused_batch_norm_grad_v3<T: TensorType, U: TensorType>(
    y_backprop: impl Handle<T>,
    x: impl Operand<T>,
    scale: impl Operand<f32>,
    reserve_space_1: impl Operand<U>,
    reserve_space_2: impl Operand<U>,
    reserve_space_3: impl Operand<U>,
) -> FusedBatchNormGradV3Outputs<T, U> {
    FusedBatchNormGradV3::new().build(
        y_backprop,
        x,
        scale,
        reserve_space_1,
        reserve_space_2,
        reserve_space_3,
    )
}
options! { FusedBatchNormGradV3 {
epsilon: f32 = "epsilon", "0.0001";
data_format: &str = "data_format", "\"NHWC\"";
is_training: bool = "is_training", "true";
} }
impl FusedBatchNormGradV3 {
    /// Adds the node: see [`fused_batch_norm_grad_v3()`].
    #[track_caller]
    pub fn build<T: TensorType, U: TensorType>(
        &self,
        y_backprop: impl Handle<T>,
        x: impl Operand<T>,
        scale: impl Operand<f32>,
        reserve_space_1: impl Operand<U>,
        reserve_space_2: impl Operand<U>,
        reserve_space_3: impl Operand<U>,
    ) -> FusedBatchNormGradV3Outputs<T, U> {
        let built = self
            .0
            .on(&y_backprop, "FusedBatchNormGradV3")
            .input(y_backprop)
            .input(x)
            .input(scale)
            .input(reserve_space_1)
            .input(reserve_space_2)
            .input(reserve_space_3)
            .build();
        FusedBatchNormGradV3Outputs {
            x_backprop: built.output(0),
            scale_backprop: built.output(1),
            offset_backprop: built.output(2),
            reserve_space_4: built.output(3),
            reserve_space_5: built.output(4),
        }
    }
}

/// Outputs of [`fused_batch_norm_v2`].
#[derive(Clone, Debug)]
pub struct FusedBatchNormV2Outputs<T: TensorType, U: TensorType> {
    /// `y`.
    pub y: Output<T>,
    /// `batch_mean`.
    pub batch_mean: Output<U>,
    /// `batch_variance`.
    pub batch_variance: Output<U>,
    /// `reserve_space_1`.
    pub reserve_space_1: Output<U>,
    /// `reserve_space_2`.
    pub reserve_space_2: Output<U>,
}

/// `FusedBatchNormV2`.
///
/// `T`: float, bfloat16, half. `U`: float. Has a gradient. Returns `y`, `batch_mean`, `batch_variance`, `reserve_space_1`, `reserve_space_2`. Options: [`FusedBatchNormV2`].
#[track_caller]
pub fn fused_batch_norm_v2<T: TensorType, U: TensorType>(
    x: impl Handle<T>,
    scale: impl Operand<U>,
    offset: impl Operand<U>,
    mean: impl Operand<U>,
    variance: impl Operand<U>,
) -> FusedBatchNormV2Outputs<T, U> {
    FusedBatchNormV2::new().build(x, scale, offset, mean, variance)
}
options! { FusedBatchNormV2 {
epsilon: f32 = "epsilon", "0.0001";
exponential_avg_factor: f32 = "exponential_avg_factor", "1.0";
data_format: &str = "data_format", "\"NHWC\"";
is_training: bool = "is_training", "true";
} }
impl FusedBatchNormV2 {
    /// Adds the node: see [`fused_batch_norm_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, U: TensorType>(
        &self,
        x: impl Handle<T>,
        scale: impl Operand<U>,
        offset: impl Operand<U>,
        mean: impl Operand<U>,
        variance: impl Operand<U>,
    ) -> FusedBatchNormV2Outputs<T, U> {
        let built = self
            .0
            .on(&x, "FusedBatchNormV2")
            .input(x)
            .input(scale)
            .input(offset)
            .input(mean)
            .input(variance)
            .build();
        FusedBatchNormV2Outputs {
            y: built.output(0),
            batch_mean: built.output(1),
            batch_variance: built.output(2),
            reserve_space_1: built.output(3),
            reserve_space_2: built.output(4),
        }
    }
}

/// Outputs of [`fused_batch_norm_v3`].
#[derive(Clone, Debug)]
pub struct FusedBatchNormV3Outputs<T: TensorType, U: TensorType> {
    /// `y`.
    pub y: Output<T>,
    /// `batch_mean`.
    pub batch_mean: Output<U>,
    /// `batch_variance`.
    pub batch_variance: Output<U>,
    /// `reserve_space_1`.
    pub reserve_space_1: Output<U>,
    /// `reserve_space_2`.
    pub reserve_space_2: Output<U>,
    /// `reserve_space_3`.
    pub reserve_space_3: Output<U>,
}

/// `FusedBatchNormV3`: batch normalization of images.
///
/// `T`: float, bfloat16, half. `U`: float, bfloat16. Has a gradient. Returns `y`, `batch_mean`, `batch_variance`, `reserve_space_1`, `reserve_space_2`, `reserve_space_3`. Options: [`FusedBatchNormV3`].
#[track_caller]
pub fn fused_batch_norm_v3<T: TensorType, U: TensorType>(
    x: impl Handle<T>,
    scale: impl Operand<U>,
    offset: impl Operand<U>,
    mean: impl Operand<U>,
    variance: impl Operand<U>,
) -> FusedBatchNormV3Outputs<T, U> {
    FusedBatchNormV3::new().build(x, scale, offset, mean, variance)
}
options! { FusedBatchNormV3 {
epsilon: f32 = "epsilon", "0.0001";
exponential_avg_factor: f32 = "exponential_avg_factor", "1.0";
data_format: &str = "data_format", "\"NHWC\"";
is_training: bool = "is_training", "true";
} }
impl FusedBatchNormV3 {
    /// Adds the node: see [`fused_batch_norm_v3()`].
    #[track_caller]
    pub fn build<T: TensorType, U: TensorType>(
        &self,
        x: impl Handle<T>,
        scale: impl Operand<U>,
        offset: impl Operand<U>,
        mean: impl Operand<U>,
        variance: impl Operand<U>,
    ) -> FusedBatchNormV3Outputs<T, U> {
        let built = self
            .0
            .on(&x, "FusedBatchNormV3")
            .input(x)
            .input(scale)
            .input(offset)
            .input(mean)
            .input(variance)
            .build();
        FusedBatchNormV3Outputs {
            y: built.output(0),
            batch_mean: built.output(1),
            batch_variance: built.output(2),
            reserve_space_1: built.output(3),
            reserve_space_2: built.output(4),
            reserve_space_3: built.output(5),
        }
    }
}

/// `Gather`: rows of a tensor.
///
/// `Tindices`: int32, int64. Has a gradient. Options: [`Gather`].
#[track_caller]
pub fn gather<Tparams: TensorType, Tindices: TensorType>(
    params: impl Handle<Tparams>,
    indices: impl Operand<Tindices>,
) -> Output<Tparams> {
    Gather::new().build(params, indices)
}
options! { Gather {
validate_indices: bool = "validate_indices", "true";
} }
impl Gather {
    /// Adds the node: see [`gather()`].
    #[track_caller]
    pub fn build<Tparams: TensorType, Tindices: TensorType>(
        &self,
        params: impl Handle<Tparams>,
        indices: impl Operand<Tindices>,
    ) -> Output<Tparams> {
        self.0.on(&params, "Gather").input(params).input(indices).output()
    }
}

/// `GatherNd`: slices of a tensor by index vectors.
///
/// `Tindices`: int32, int16, int64. Has a gradient. Options: [`GatherNd`].
#[track_caller]
pub fn gather_nd<Tparams: TensorType, Tindices: TensorType>(
    params: impl Handle<Tparams>,
    indices: impl Operand<Tindices>,
) -> Output<Tparams> {
    GatherNd::new().build(params, indices)
}
options! { GatherNd {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl GatherNd {
    /// Adds the node: see [`gather_nd()`].
    #[track_caller]
    pub fn build<Tparams: TensorType, Tindices: TensorType>(
        &self,
        params: impl Handle<Tparams>,
        indices: impl Operand<Tindices>,
    ) -> Output<Tparams> {
        self.0.on(&params, "GatherNd").input(params).input(indices).output()
    }
}

/// `GatherV2`: slices along an axis.
///
/// `Taxis`: int32, int64. `Tindices`: int32, int16, int64. Has a gradient. Options: [`GatherV2`].
#[track_caller]
pub fn gather_v2<Tparams: TensorType, Tindices: TensorType, Taxis: TensorType>(
    params: impl Handle<Tparams>,
    indices: impl Operand<Tindices>,
    axis: impl Operand<Taxis>,
) -> Output<Tparams> {
    GatherV2::new().build(params, indices, axis)
}
options! { GatherV2 {
batch_dims: i64 = "batch_dims", "0";
} }
impl GatherV2 {
    /// Adds the node: see [`gather_v2()`].
    #[track_caller]
    pub fn build<Tparams: TensorType, Tindices: TensorType, Taxis: TensorType>(
        &self,
        params: impl Handle<Tparams>,
        indices: impl Operand<Tindices>,
        axis: impl Operand<Taxis>,
    ) -> Output<Tparams> {
        self.0.on(&params, "GatherV2").input(params).input(indices).input(axis).output()
    }
}

/// `GeneratorDataset`. Has no gradient. Options: [`GeneratorDataset`].
#[track_caller]
pub fn generator_dataset(
    g: &Graph,
    init_func_other_args: &[Output<Untyped>],
    next_func_other_args: &[Output<Untyped>],
    finalize_func_other_args: &[Output<Untyped>],
    init_func: &Function,
    next_func: &Function,
    finalize_func: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    GeneratorDataset::new().build(
        g,
        init_func_other_args,
        next_func_other_args,
        finalize_func_other_args,
        init_func,
        next_func,
        finalize_func,
        output_types,
        output_shapes,
    )
}
options! { GeneratorDataset {
metadata: &str = "metadata", "\"\"";
} }
impl GeneratorDataset {
    /// Adds the node: see [`generator_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        init_func_other_args: &[Output<Untyped>],
        next_func_other_args: &[Output<Untyped>],
        finalize_func_other_args: &[Output<Untyped>],
        init_func: &Function,
        next_func: &Function,
        finalize_func: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .new(g, "GeneratorDataset")
            .inputs(init_func_other_args)
            .attr("Tinit_func_args", &dtypes_of(init_func_other_args)[..])
            .inputs(next_func_other_args)
            .attr("Tnext_func_args", &dtypes_of(next_func_other_args)[..])
            .inputs(finalize_func_other_args)
            .attr("Tfinalize_func_args", &dtypes_of(finalize_func_other_args)[..])
            .attr("init_func", init_func)
            .attr("next_func", next_func)
            .attr("finalize_func", finalize_func)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `GetOptions`. Has no gradient.
#[track_caller]
pub fn get_options(input_dataset: impl Handle<Variant>) -> Output<String> {
    NewOp::on(&input_dataset, "GetOptions").input(input_dataset).output()
}

/// `Greater`: whether the first is greater, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn greater<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    NewOp::on(&x, "Greater").input(x).input(y).output()
}

/// `GreaterEqual`: whether the first is greater or equal, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn greater_equal<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    NewOp::on(&x, "GreaterEqual").input(x).input(y).output()
}

/// `GroupByReducerDataset`. Has no gradient.
#[track_caller]
pub fn group_by_reducer_dataset(
    input_dataset: impl Handle<Variant>,
    key_func_other_arguments: &[Output<Untyped>],
    init_func_other_arguments: &[Output<Untyped>],
    reduce_func_other_arguments: &[Output<Untyped>],
    finalize_func_other_arguments: &[Output<Untyped>],
    key_func: &Function,
    init_func: &Function,
    reduce_func: &Function,
    finalize_func: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "GroupByReducerDataset")
        .input(input_dataset)
        .inputs(key_func_other_arguments)
        .attr("Tkey_func_other_arguments", &dtypes_of(key_func_other_arguments)[..])
        .inputs(init_func_other_arguments)
        .attr("Tinit_func_other_arguments", &dtypes_of(init_func_other_arguments)[..])
        .inputs(reduce_func_other_arguments)
        .attr("Treduce_func_other_arguments", &dtypes_of(reduce_func_other_arguments)[..])
        .inputs(finalize_func_other_arguments)
        .attr("Tfinalize_func_other_arguments", &dtypes_of(finalize_func_other_arguments)[..])
        .attr("key_func", key_func)
        .attr("init_func", init_func)
        .attr("reduce_func", reduce_func)
        .attr("finalize_func", finalize_func)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `GroupByWindowDataset`. Has no gradient. Options: [`GroupByWindowDataset`].
#[track_caller]
pub fn group_by_window_dataset(
    input_dataset: impl Handle<Variant>,
    key_func_other_arguments: &[Output<Untyped>],
    reduce_func_other_arguments: &[Output<Untyped>],
    window_size_func_other_arguments: &[Output<Untyped>],
    key_func: &Function,
    reduce_func: &Function,
    window_size_func: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    GroupByWindowDataset::new().build(
        input_dataset,
        key_func_other_arguments,
        reduce_func_other_arguments,
        window_size_func_other_arguments,
        key_func,
        reduce_func,
        window_size_func,
        output_types,
        output_shapes,
    )
}
options! { GroupByWindowDataset {
metadata: &str = "metadata", "\"\"";
} }
impl GroupByWindowDataset {
    /// Adds the node: see [`group_by_window_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        key_func_other_arguments: &[Output<Untyped>],
        reduce_func_other_arguments: &[Output<Untyped>],
        window_size_func_other_arguments: &[Output<Untyped>],
        key_func: &Function,
        reduce_func: &Function,
        window_size_func: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "GroupByWindowDataset")
            .input(input_dataset)
            .inputs(key_func_other_arguments)
            .attr("Tkey_func_other_arguments", &dtypes_of(key_func_other_arguments)[..])
            .inputs(reduce_func_other_arguments)
            .attr("Treduce_func_other_arguments", &dtypes_of(reduce_func_other_arguments)[..])
            .inputs(window_size_func_other_arguments)
            .attr(
                "Twindow_size_func_other_arguments",
                &dtypes_of(window_size_func_other_arguments)[..],
            )
            .attr("key_func", key_func)
            .attr("reduce_func", reduce_func)
            .attr("window_size_func", window_size_func)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `HSVToRGB`.
///
/// `T`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn hsv_to_rgb<T: TensorType>(images: impl Handle<T>) -> Output<T> {
    NewOp::on(&images, "HSVToRGB").input(images).output()
}

/// `HashTable`. No gradient passes. Options: [`HashTable`].
#[track_caller]
pub fn hash_table(g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Ref<String>> {
    HashTable::new().build(g, key_dtype, value_dtype)
}
options! { HashTable {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
} }
impl HashTable {
    /// Adds the node: see [`hash_table()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Ref<String>> {
        self.0
            .new(g, "HashTable")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `HashTableV2`. No gradient passes. Options: [`HashTableV2`].
#[track_caller]
pub fn hash_table_v2(g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
    HashTableV2::new().build(g, key_dtype, value_dtype)
}
options! { HashTableV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
use_node_name_sharing: bool = "use_node_name_sharing", "false";
} }
impl HashTableV2 {
    /// Adds the node: see [`hash_table_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
        self.0
            .new(g, "HashTableV2")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `HistogramFixedWidth`.
///
/// `T`: float, double, int32, int64. `Dtype`: int32, int64. Has no gradient.
#[track_caller]
pub fn histogram_fixed_width<Dtype: TensorType, T: TensorType>(
    values: impl Handle<T>,
    value_range: impl Operand<T>,
    nbins: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&values, "HistogramFixedWidth")
        .dtype::<Dtype>("dtype")
        .input(values)
        .input(value_range)
        .input(nbins)
        .output()
}

/// `HistogramSummary`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn histogram_summary<T: TensorType>(
    tag: impl Handle<String>,
    values: impl Operand<T>,
) -> Output<String> {
    NewOp::on(&tag, "HistogramSummary").input(tag).input(values).output()
}
