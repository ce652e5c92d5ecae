//! Ops D. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `DatasetCardinality`. Has no gradient. Options: [`DatasetCardinality`].
#[track_caller]
pub fn dataset_cardinality(input_dataset: impl Handle<Variant>) -> Output<i64> {
    DatasetCardinality::new().build(input_dataset)
}
options! { DatasetCardinality {
cardinality_options: &str = "cardinality_options", "\"\"";
} }
impl DatasetCardinality {
    /// Adds the node: see [`dataset_cardinality()`].
    #[track_caller]
    pub fn build(&self, input_dataset: impl Handle<Variant>) -> Output<i64> {
        self.0.on(&input_dataset, "DatasetCardinality").input(input_dataset).output()
    }
}

/// `DatasetToSingleElement`. Has no gradient. Options: [`DatasetToSingleElement`].
#[track_caller]
pub fn dataset_to_single_element(
    dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Vec<Output<Untyped>> {
    DatasetToSingleElement::new().build(dataset, output_types, output_shapes)
}
options! { DatasetToSingleElement {
metadata: &str = "metadata", "\"\"";
} }
impl DatasetToSingleElement {
    /// Adds the node: see [`dataset_to_single_element()`].
    #[track_caller]
    pub fn build(
        &self,
        dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&dataset, "DatasetToSingleElement")
            .input(dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .build();
        built.outputs("components", output_types.len())
    }
}

/// `DatasetToTFRecord`. Has no gradient.
#[track_caller]
pub fn dataset_to_tf_record(
    input_dataset: impl Handle<Variant>,
    filename: impl Operand<String>,
    compression_type: impl Operand<String>,
) -> Operation {
    NewOp::on(&input_dataset, "DatasetToTFRecord")
        .input(input_dataset)
        .input(filename)
        .input(compression_type)
        .operation()
}

/// `Dawsn`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn dawsn<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Dawsn").input(x).output()
}

/// `DebugGradientIdentity`. Has a gradient.
#[track_caller]
pub fn debug_gradient_identity<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "DebugGradientIdentity").input(input).output()
}

/// `DebugGradientRefIdentity`. Has a gradient.
#[track_caller]
pub fn debug_gradient_ref_identity<T: TensorType>(input: impl Handle<Ref<T>>) -> Output<Ref<T>> {
    NewOp::on(&input, "DebugGradientRefIdentity").input(input).output()
}

/// `DecodeAndCropJpeg`. Has no gradient. Options: [`DecodeAndCropJpeg`].
#[track_caller]
pub fn decode_and_crop_jpeg(
    contents: impl Handle<String>,
    crop_window: impl Operand<i32>,
) -> Output<u8> {
    DecodeAndCropJpeg::new().build(contents, crop_window)
}
options! { DecodeAndCropJpeg {
channels: i64 = "channels", "0";
ratio: i64 = "ratio", "1";
fancy_upscaling: bool = "fancy_upscaling", "true";
try_recover_truncated: bool = "try_recover_truncated", "false";
acceptable_fraction: f32 = "acceptable_fraction", "1.0";
dct_method: &str = "dct_method", "\"\"";
} }
impl DecodeAndCropJpeg {
    /// Adds the node: see [`decode_and_crop_jpeg()`].
    #[track_caller]
    pub fn build(
        &self,
        contents: impl Handle<String>,
        crop_window: impl Operand<i32>,
    ) -> Output<u8> {
        self.0.on(&contents, "DecodeAndCropJpeg").input(contents).input(crop_window).output()
    }
}

/// `DecodeBase64`. No gradient passes.
#[track_caller]
pub fn decode_base64(input: impl Handle<String>) -> Output<String> {
    NewOp::on(&input, "DecodeBase64").input(input).output()
}

/// `DecodeBmp`. Has no gradient. Options: [`DecodeBmp`].
#[track_caller]
pub fn decode_bmp(contents: impl Handle<String>) -> Output<u8> {
    DecodeBmp::new().build(contents)
}
options! { DecodeBmp {
channels: i64 = "channels", "0";
} }
impl DecodeBmp {
    /// Adds the node: see [`decode_bmp()`].
    #[track_caller]
    pub fn build(&self, contents: impl Handle<String>) -> Output<u8> {
        self.0.on(&contents, "DecodeBmp").input(contents).output()
    }
}

/// `DecodeCSV`.
///
/// `OUTTYPE`: float, double, int32, string, int64. Has no gradient. Options: [`DecodeCSV`].
#[track_caller]
pub fn decode_csv(
    records: impl Handle<String>,
    record_defaults: &[Output<Untyped>],
) -> Vec<Output<Untyped>> {
    DecodeCSV::new().build(records, record_defaults)
}
options! { DecodeCSV {
field_delim: &str = "field_delim", "\",\"";
use_quote_delim: bool = "use_quote_delim", "true";
na_value: &str = "na_value", "\"\"";
select_cols: &[i64] = "select_cols", "[]";
} }
impl DecodeCSV {
    /// Adds the node: see [`decode_csv()`].
    #[track_caller]
    pub fn build(
        &self,
        records: impl Handle<String>,
        record_defaults: &[Output<Untyped>],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&records, "DecodeCSV")
            .input(records)
            .inputs(record_defaults)
            .attr("OUT_TYPE", &dtypes_of(record_defaults)[..])
            .build();
        built.outputs("output", record_defaults.len())
    }
}

/// `DecodeCompressed`. Has no gradient. Options: [`DecodeCompressed`].
#[track_caller]
pub fn decode_compressed(bytes: impl Handle<String>) -> Output<String> {
    DecodeCompressed::new().build(bytes)
}
options! { DecodeCompressed {
compression_type: &str = "compression_type", "\"\"";
} }
impl DecodeCompressed {
    /// Adds the node: see [`decode_compressed()`].
    #[track_caller]
    pub fn build(&self, bytes: impl Handle<String>) -> Output<String> {
        self.0.on(&bytes, "DecodeCompressed").input(bytes).output()
    }
}

/// `DecodeGif`. Has no gradient.
#[track_caller]
pub fn decode_gif(contents: impl Handle<String>) -> Output<u8> {
    NewOp::on(&contents, "DecodeGif").input(contents).output()
}

/// `DecodeImage`.
///
/// `Dtype`: float, uint8, uint16. Has no gradient. Options: [`DecodeImage`].
#[track_caller]
pub fn decode_image<Dtype: TensorType>(contents: impl Handle<String>) -> Output<Dtype> {
    DecodeImage::new().build(contents)
}
options! { DecodeImage {
channels: i64 = "channels", "0";
expand_animations: bool = "expand_animations", "true";
} }
impl DecodeImage {
    /// Adds the node: see [`decode_image()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, contents: impl Handle<String>) -> Output<Dtype> {
        self.0.on(&contents, "DecodeImage").dtype::<Dtype>("dtype").input(contents).output()
    }
}

/// `DecodeJSONExample`. Has no gradient.
#[track_caller]
pub fn decode_json_example(json_examples: impl Handle<String>) -> Output<String> {
    NewOp::on(&json_examples, "DecodeJSONExample").input(json_examples).output()
}

/// `DecodeJpeg`: the pixels of a JPEG image. Has no gradient. Options: [`DecodeJpeg`].
#[track_caller]
pub fn decode_jpeg(contents: impl Handle<String>) -> Output<u8> {
    DecodeJpeg::new().build(contents)
}
options! { DecodeJpeg {
channels: i64 = "channels", "0";
ratio: i64 = "ratio", "1";
fancy_upscaling: bool = "fancy_upscaling", "true";
try_recover_truncated: bool = "try_recover_truncated", "false";
acceptable_fraction: f32 = "acceptable_fraction", "1.0";
dct_method: &str = "dct_method", "\"\"";
} }
impl DecodeJpeg {
    /// Adds the node: see [`decode_jpeg()`].
    #[track_caller]
    pub fn build(&self, contents: impl Handle<String>) -> Output<u8> {
        self.0.on(&contents, "DecodeJpeg").input(contents).output()
    }
}

/// `DecodePaddedRaw`.
///
/// `OutType`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. No gradient passes. Options: [`DecodePaddedRaw`].
#[track_caller]
pub fn decode_padded_raw<OutType: TensorType>(
    input_bytes: impl Handle<String>,
    fixed_length: impl Operand<i32>,
) -> Output<OutType> {
    DecodePaddedRaw::new().build(input_bytes, fixed_length)
}
options! { DecodePaddedRaw {
little_endian: bool = "little_endian", "true";
} }
impl DecodePaddedRaw {
    /// Adds the node: see [`decode_padded_raw()`].
    #[track_caller]
    pub fn build<OutType: TensorType>(
        &self,
        input_bytes: impl Handle<String>,
        fixed_length: impl Operand<i32>,
    ) -> Output<OutType> {
        self.0
            .on(&input_bytes, "DecodePaddedRaw")
            .dtype::<OutType>("out_type")
            .input(input_bytes)
            .input(fixed_length)
            .output()
    }
}

/// `DecodePng`: the pixels of a PNG image.
///
/// `Dtype`: uint8, uint16. Has no gradient. Options: [`DecodePng`].
#[track_caller]
pub fn decode_png<Dtype: TensorType>(contents: impl Handle<String>) -> Output<Dtype> {
    DecodePng::new().build(contents)
}
options! { DecodePng {
channels: i64 = "channels", "0";
} }
impl DecodePng {
    /// Adds the node: see [`decode_png()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, contents: impl Handle<String>) -> Output<Dtype> {
        self.0.on(&contents, "DecodePng").dtype::<Dtype>("dtype").input(contents).output()
    }
}

/// `DecodeRaw`: the bytes of strings as numbers.
///
/// `OutType`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half. No gradient passes. Options: [`DecodeRaw`].
#[track_caller]
pub fn decode_raw<OutType: TensorType>(bytes: impl Handle<String>) -> Output<OutType> {
    DecodeRaw::new().build(bytes)
}
options! { DecodeRaw {
little_endian: bool = "little_endian", "true";
} }
impl DecodeRaw {
    /// Adds the node: see [`decode_raw()`].
    #[track_caller]
    pub fn build<OutType: TensorType>(&self, bytes: impl Handle<String>) -> Output<OutType> {
        self.0.on(&bytes, "DecodeRaw").dtype::<OutType>("out_type").input(bytes).output()
    }
}

/// `DecodeWav`. Has no gradient. Returns `audio`, `sample_rate`. Options: [`DecodeWav`].
#[track_caller]
pub fn decode_wav(contents: impl Handle<String>) -> (Output<f32>, Output<i32>) {
    DecodeWav::new().build(contents)
}
options! { DecodeWav {
desired_channels: i64 = "desired_channels", "-1";
desired_samples: i64 = "desired_samples", "-1";
} }
impl DecodeWav {
    /// Adds the node: see [`decode_wav()`].
    #[track_caller]
    pub fn build(&self, contents: impl Handle<String>) -> (Output<f32>, Output<i32>) {
        let built = self.0.on(&contents, "DecodeWav").input(contents).build();
        (built.output(0), built.output(1))
    }
}

/// `DeepCopy`. Has no gradient.
#[track_caller]
pub fn deep_copy<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "DeepCopy").input(x).output()
}

/// `DeleteIterator`. Has no gradient.
#[track_caller]
pub fn delete_iterator(handle: impl Handle<Resource>, deleter: impl Operand<Variant>) -> Operation {
    NewOp::on(&handle, "DeleteIterator").input(handle).input(deleter).operation()
}

/// `DeleteMemoryCache`. Has no gradient.
#[track_caller]
pub fn delete_memory_cache(
    handle: impl Handle<Resource>,
    deleter: impl Operand<Variant>,
) -> Operation {
    NewOp::on(&handle, "DeleteMemoryCache").input(handle).input(deleter).operation()
}

/// `DeleteMultiDeviceIterator`. Has no gradient.
#[track_caller]
pub fn delete_multi_device_iterator(
    multi_device_iterator: impl Handle<Resource>,
    iterators: &[Output<Resource>],
    deleter: impl Operand<Variant>,
) -> Operation {
    NewOp::on(&multi_device_iterator, "DeleteMultiDeviceIterator")
        .input(multi_device_iterator)
        .inputs(iterators)
        .attr("N", iterators.len() as i64)
        .input(deleter)
        .operation()
}

/// `DeleteSeedGenerator`. Has no gradient.
#[track_caller]
pub fn delete_seed_generator(
    handle: impl Handle<Resource>,
    deleter: impl Operand<Variant>,
) -> Operation {
    NewOp::on(&handle, "DeleteSeedGenerator").input(handle).input(deleter).operation()
}

/// `DenseBincount`.
///
/// `T`: float, double, int32, int64. `Tidx`: int32, int64. Has no gradient. Options: [`DenseBincount`].
#[track_caller]
pub fn dense_bincount<Tidx: TensorType, T: TensorType>(
    input: impl Handle<Tidx>,
    size: impl Operand<Tidx>,
    weights: impl Operand<T>,
) -> Output<T> {
    DenseBincount::new().build(input, size, weights)
}
options! { DenseBincount {
binary_output: bool = "binary_output", "false";
} }
impl DenseBincount {
    /// Adds the node: see [`dense_bincount()`].
    #[track_caller]
    pub fn build<Tidx: TensorType, T: TensorType>(
        &self,
        input: impl Handle<Tidx>,
        size: impl Operand<Tidx>,
        weights: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&input, "DenseBincount").input(input).input(size).input(weights).output()
    }
}

/// `DenseCountSparseOutput`.
///
/// `T`: int32, int64. `OutputType`: float, double, int32, int64. Has no gradient. Returns `output_indices`, `output_values`, `output_dense_shape`. Options: [`DenseCountSparseOutput`].
#[track_caller]
pub fn dense_count_sparse_output<T: TensorType, OutputType: TensorType>(
    values: impl Handle<T>,
    weights: impl Operand<OutputType>,
    binary_output: bool,
) -> (Output<i64>, Output<OutputType>, Output<i64>) {
    DenseCountSparseOutput::new().build(values, weights, binary_output)
}
options! { DenseCountSparseOutput {
minlength: i64 = "minlength", "-1";
maxlength: i64 = "maxlength", "-1";
} }
impl DenseCountSparseOutput {
    /// Adds the node: see [`dense_count_sparse_output()`].
    #[track_caller]
    pub fn build<T: TensorType, OutputType: TensorType>(
        &self,
        values: impl Handle<T>,
        weights: impl Operand<OutputType>,
        binary_output: bool,
    ) -> (Output<i64>, Output<OutputType>, Output<i64>) {
        let built = self
            .0
            .on(&values, "DenseCountSparseOutput")
            .input(values)
            .input(weights)
            .attr("binary_output", binary_output)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `DenseToDenseSetOperation`.
///
/// `T`: int32, uint8, int16, int8, string, int64, uint16. No gradient passes. Returns `result_indices`, `result_values`, `result_shape`. Options: [`DenseToDenseSetOperation`].
#[track_caller]
pub fn dense_to_dense_set_operation<T: TensorType>(
    set1: impl Handle<T>,
    set2: impl Operand<T>,
    set_operation: &str,
) -> (Output<i64>, Output<T>, Output<i64>) {
    DenseToDenseSetOperation::new().build(set1, set2, set_operation)
}
options! { DenseToDenseSetOperation {
validate_indices: bool = "validate_indices", "true";
} }
impl DenseToDenseSetOperation {
    /// Adds the node: see [`dense_to_dense_set_operation()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        set1: impl Handle<T>,
        set2: impl Operand<T>,
        set_operation: &str,
    ) -> (Output<i64>, Output<T>, Output<i64>) {
        let built = self
            .0
            .on(&set1, "DenseToDenseSetOperation")
            .input(set1)
            .input(set2)
            .attr("set_operation", set_operation)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `DenseToSparseBatchDataset`. Has no gradient.
#[track_caller]
pub fn dense_to_sparse_batch_dataset(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    row_shape: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "DenseToSparseBatchDataset")
        .input(input_dataset)
        .input(batch_size)
        .input(row_shape)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `DenseToSparseSetOperation`.
///
/// `T`: int32, uint8, int16, int8, string, int64, uint16. No gradient passes. Returns `result_indices`, `result_values`, `result_shape`. Options: [`DenseToSparseSetOperation`].
#[track_caller]
pub fn dense_to_sparse_set_operation<T: TensorType>(
    set1: impl Handle<T>,
    set2_indices: impl Operand<i64>,
    set2_values: impl Operand<T>,
    set2_shape: impl Operand<i64>,
    set_operation: &str,
) -> (Output<i64>, Output<T>, Output<i64>) {
    DenseToSparseSetOperation::new().build(
        set1,
        set2_indices,
        set2_values,
        set2_shape,
        set_operation,
    )
}
options! { DenseToSparseSetOperation {
validate_indices: bool = "validate_indices", "true";
} }
impl DenseToSparseSetOperation {
    /// Adds the node: see [`dense_to_sparse_set_operation()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        set1: impl Handle<T>,
        set2_indices: impl Operand<i64>,
        set2_values: impl Operand<T>,
        set2_shape: impl Operand<i64>,
        set_operation: &str,
    ) -> (Output<i64>, Output<T>, Output<i64>) {
        let built = self
            .0
            .on(&set1, "DenseToSparseSetOperation")
            .input(set1)
            .input(set2_indices)
            .input(set2_values)
            .input(set2_shape)
            .attr("set_operation", set_operation)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `DepthToSpace`: moves channels into blocks of pixels. Has a gradient. Options: [`DepthToSpace`].
#[track_caller]
pub fn depth_to_space<T: TensorType>(input: impl Handle<T>, block_size: i64) -> Output<T> {
    DepthToSpace::new().build(input, block_size)
}
options! { DepthToSpace {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl DepthToSpace {
    /// Adds the node: see [`depth_to_space()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>, block_size: i64) -> Output<T> {
        self.0.on(&input, "DepthToSpace").input(input).attr("block_size", block_size).output()
    }
}

/// `DepthwiseConv2dNative`: the convolution of each channel with filters of its own.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`DepthwiseConv2dNative`].
#[track_caller]
pub fn depthwise_conv2d_native<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    DepthwiseConv2dNative::new().build(input, filter, strides, padding)
}
options! { DepthwiseConv2dNative {
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1]";
} }
impl DepthwiseConv2dNative {
    /// Adds the node: see [`depthwise_conv2d_native()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        filter: impl Operand<T>,
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "DepthwiseConv2dNative")
            .input(input)
            .input(filter)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `DepthwiseConv2dNativeBackpropFilter`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`DepthwiseConv2dNativeBackpropFilter`].
#[track_caller]
pub fn depthwise_conv2d_native_backprop_filter<T: TensorType>(
    input: impl Handle<T>,
    filter_sizes: impl Operand<i32>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    DepthwiseConv2dNativeBackpropFilter::new().build(
        input,
        filter_sizes,
        out_backprop,
        strides,
        padding,
    )
}
options! { DepthwiseConv2dNativeBackpropFilter {
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1]";
} }
impl DepthwiseConv2dNativeBackpropFilter {
    /// Adds the node: see [`depthwise_conv2d_native_backprop_filter()`].
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
            .on(&input, "DepthwiseConv2dNativeBackpropFilter")
            .input(input)
            .input(filter_sizes)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `DepthwiseConv2dNativeBackpropInput`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`DepthwiseConv2dNativeBackpropInput`].
#[track_caller]
pub fn depthwise_conv2d_native_backprop_input<T: TensorType>(
    input_sizes: impl Operand<i32>,
    filter: impl Handle<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    DepthwiseConv2dNativeBackpropInput::new().build(
        input_sizes,
        filter,
        out_backprop,
        strides,
        padding,
    )
}
options! { DepthwiseConv2dNativeBackpropInput {
explicit_paddings: &[i64] = "explicit_paddings", "[]";
data_format: &str = "data_format", "\"NHWC\"";
dilations: &[i64] = "dilations", "[1, 1, 1, 1]";
} }
impl DepthwiseConv2dNativeBackpropInput {
    /// Adds the node: see [`depthwise_conv2d_native_backprop_input()`].
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
            .on(&filter, "DepthwiseConv2dNativeBackpropInput")
            .input(input_sizes)
            .input(filter)
            .input(out_backprop)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `Dequantize`.
///
/// `T`: qint8, quint8, qint32, qint16, quint16. `Dtype`: float, bfloat16. Has no gradient. Options: [`Dequantize`].
#[track_caller]
pub fn dequantize<Dtype: TensorType, T: TensorType>(
    input: impl Handle<T>,
    min_range: impl Operand<f32>,
    max_range: impl Operand<f32>,
) -> Output<Dtype> {
    Dequantize::new().build(input, min_range, max_range)
}
options! { Dequantize {
mode: &str = "mode", "\"MIN_COMBINED\"";
narrow_range: bool = "narrow_range", "false";
axis: i64 = "axis", "-1";
} }
impl Dequantize {
    /// Adds the node: see [`dequantize()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, T: TensorType>(
        &self,
        input: impl Handle<T>,
        min_range: impl Operand<f32>,
        max_range: impl Operand<f32>,
    ) -> Output<Dtype> {
        self.0
            .on(&input, "Dequantize")
            .dtype::<Dtype>("dtype")
            .input(input)
            .input(min_range)
            .input(max_range)
            .output()
    }
}

/// `DeserializeIterator`. Has no gradient.
#[track_caller]
pub fn deserialize_iterator(
    resource_handle: impl Handle<Resource>,
    serialized: impl Operand<Variant>,
) -> Operation {
    NewOp::on(&resource_handle, "DeserializeIterator")
        .input(resource_handle)
        .input(serialized)
        .operation()
}

/// `DeserializeManySparse`. Has no gradient. Returns `sparse_indices`, `sparse_values`, `sparse_shape`.
#[track_caller]
pub fn deserialize_many_sparse<Dtype: TensorType>(
    serialized_sparse: impl Handle<String>,
) -> (Output<i64>, Output<Dtype>, Output<i64>) {
    let built = NewOp::on(&serialized_sparse, "DeserializeManySparse")
        .dtype::<Dtype>("dtype")
        .input(serialized_sparse)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `DeserializeSparse`.
///
/// `Tserialized`: string, variant. Has no gradient. Returns `sparse_indices`, `sparse_values`, `sparse_shape`.
#[track_caller]
pub fn deserialize_sparse<Dtype: TensorType, Tserialized: TensorType>(
    serialized_sparse: impl Handle<Tserialized>,
) -> (Output<i64>, Output<Dtype>, Output<i64>) {
    let built = NewOp::on(&serialized_sparse, "DeserializeSparse")
        .dtype::<Dtype>("dtype")
        .input(serialized_sparse)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `DestroyResourceOp`. Has no gradient. Options: [`DestroyResourceOp`].
#[track_caller]
pub fn destroy_resource_op(resource: impl Handle<Resource>) -> Operation {
    DestroyResourceOp::new().build(resource)
}
options! { DestroyResourceOp {
ignore_lookup_error: bool = "ignore_lookup_error", "true";
} }
impl DestroyResourceOp {
    /// Adds the node: see [`destroy_resource_op()`].
    #[track_caller]
    pub fn build(&self, resource: impl Handle<Resource>) -> Operation {
        self.0.on(&resource, "DestroyResourceOp").input(resource).operation()
    }
}

/// `DestroyTemporaryVariable`. Has no gradient.
#[track_caller]
pub fn destroy_temporary_variable<T: TensorType>(
    ref_: impl Handle<Ref<T>>,
    var_name: &str,
) -> Output<T> {
    NewOp::on(&ref_, "DestroyTemporaryVariable").input(ref_).attr("var_name", var_name).output()
}

/// `DeviceIndex`. No gradient passes.
#[track_caller]
pub fn device_index(g: &Graph, device_names: &[&str]) -> Output<i32> {
    NewOp::new(g, "DeviceIndex").attr("device_names", device_names).output()
}

/// `Diag`: a diagonal tensor.
///
/// `T`: float, double, int32, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn diag<T: TensorType>(diagonal: impl Handle<T>) -> Output<T> {
    NewOp::on(&diagonal, "Diag").input(diagonal).output()
}

/// `DiagPart`.
///
/// `T`: float, double, int32, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn diag_part<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "DiagPart").input(input).output()
}

/// `Digamma`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn digamma<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Digamma").input(x).output()
}

/// `Dilation2D`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn dilation2d<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    strides: &[i64],
    rates: &[i64],
    padding: &str,
) -> Output<T> {
    NewOp::on(&input, "Dilation2D")
        .input(input)
        .input(filter)
        .attr("strides", strides)
        .attr("rates", rates)
        .attr("padding", padding)
        .output()
}

/// `Dilation2DBackpropFilter`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn dilation2d_backprop_filter<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    rates: &[i64],
    padding: &str,
) -> Output<T> {
    NewOp::on(&input, "Dilation2DBackpropFilter")
        .input(input)
        .input(filter)
        .input(out_backprop)
        .attr("strides", strides)
        .attr("rates", rates)
        .attr("padding", padding)
        .output()
}

/// `Dilation2DBackpropInput`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn dilation2d_backprop_input<T: TensorType>(
    input: impl Handle<T>,
    filter: impl Operand<T>,
    out_backprop: impl Operand<T>,
    strides: &[i64],
    rates: &[i64],
    padding: &str,
) -> Output<T> {
    NewOp::on(&input, "Dilation2DBackpropInput")
        .input(input)
        .input(filter)
        .input(out_backprop)
        .attr("strides", strides)
        .attr("rates", rates)
        .attr("padding", padding)
        .output()
}

/// `DirectedInterleaveDataset`. Has no gradient. Options: [`DirectedInterleaveDataset`].
#[track_caller]
pub fn directed_interleave_dataset(
    selector_input_dataset: impl Handle<Variant>,
    data_input_datasets: &[Output<Variant>],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    DirectedInterleaveDataset::new().build(
        selector_input_dataset,
        data_input_datasets,
        output_types,
        output_shapes,
    )
}
options! { DirectedInterleaveDataset {
stop_on_empty_dataset: bool = "stop_on_empty_dataset", "false";
} }
impl DirectedInterleaveDataset {
    /// Adds the node: see [`directed_interleave_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        selector_input_dataset: impl Handle<Variant>,
        data_input_datasets: &[Output<Variant>],
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&selector_input_dataset, "DirectedInterleaveDataset")
            .input(selector_input_dataset)
            .inputs(data_input_datasets)
            .attr("N", data_input_datasets.len() as i64)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `DisableCopyOnRead`. Has no gradient.
#[track_caller]
pub fn disable_copy_on_read(resource: impl Handle<Resource>) -> Operation {
    NewOp::on(&resource, "DisableCopyOnRead").input(resource).operation()
}

/// `Div`: the quotient; integers are rounded toward zero.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn div<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Div").input(x).input(y).output()
}

/// `DivNoNan`: the quotient, 0 where the divisor is 0.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn div_no_nan<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "DivNoNan").input(x).input(y).output()
}

/// `DrawBoundingBoxes`.
///
/// `T`: float, half. No gradient passes.
#[track_caller]
pub fn draw_bounding_boxes<T: TensorType>(
    images: impl Handle<T>,
    boxes: impl Operand<f32>,
) -> Output<T> {
    NewOp::on(&images, "DrawBoundingBoxes").input(images).input(boxes).output()
}

/// `DrawBoundingBoxesV2`.
///
/// `T`: float, half. Has no gradient.
#[track_caller]
pub fn draw_bounding_boxes_v2<T: TensorType>(
    images: impl Handle<T>,
    boxes: impl Operand<f32>,
    colors: impl Operand<f32>,
) -> Output<T> {
    NewOp::on(&images, "DrawBoundingBoxesV2").input(images).input(boxes).input(colors).output()
}

/// `DummyMemoryCache`. Has no gradient.
#[track_caller]
pub fn dummy_memory_cache(g: &Graph) -> Output<Resource> {
    NewOp::new(g, "DummyMemoryCache").output()
}

/// `DummySeedGenerator`. Has no gradient.
#[track_caller]
pub fn dummy_seed_generator(g: &Graph) -> Output<Resource> {
    NewOp::new(g, "DummySeedGenerator").output()
}

/// `DynamicPartition`: the rows of each partition. Has a gradient.
#[track_caller]
pub fn dynamic_partition<T: TensorType>(
    data: impl Handle<T>,
    partitions: impl Operand<i32>,
    num_partitions: i64,
) -> Vec<Output<T>> {
    let built = NewOp::on(&data, "DynamicPartition")
        .input(data)
        .input(partitions)
        .attr("num_partitions", num_partitions)
        .build();
    built.outputs("outputs", usize::try_from(num_partitions).unwrap_or(0))
}

/// `DynamicStitch`: rows of several tensors, each at its index. Has a gradient.
#[track_caller]
pub fn dynamic_stitch<T: TensorType>(
    g: &Graph,
    indices: &[Output<i32>],
    data: &[Output<T>],
) -> Output<T> {
    NewOp::new(g, "DynamicStitch")
        .inputs(indices)
        .attr("N", indices.len() as i64)
        .inputs(data)
        .dtype::<T>("T")
        .output()
}
