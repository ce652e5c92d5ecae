//! Ops T, U, V, W, X, Y, Z. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `TFRecordDataset`. Has no gradient. Options: [`TFRecordDataset`].
#[track_caller]
pub fn tf_record_dataset(
    filenames: impl Handle<String>,
    compression_type: impl Operand<String>,
    buffer_size: impl Operand<i64>,
) -> Output<Variant> {
    TFRecordDataset::new().build(filenames, compression_type, buffer_size)
}
options! { TFRecordDataset {
metadata: &str = "metadata", "\"\"";
} }
impl TFRecordDataset {
    /// Adds the node: see [`tf_record_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        filenames: impl Handle<String>,
        compression_type: impl Operand<String>,
        buffer_size: impl Operand<i64>,
    ) -> Output<Variant> {
        self.0
            .on(&filenames, "TFRecordDataset")
            .input(filenames)
            .input(compression_type)
            .input(buffer_size)
            .output()
    }
}

/// `TFRecordDatasetV2`. Has no gradient. Options: [`TFRecordDatasetV2`].
#[track_caller]
pub fn tf_record_dataset_v2(
    filenames: impl Handle<String>,
    compression_type: impl Operand<String>,
    buffer_size: impl Operand<i64>,
    byte_offsets: impl Operand<i64>,
) -> Output<Variant> {
    TFRecordDatasetV2::new().build(filenames, compression_type, buffer_size, byte_offsets)
}
options! { TFRecordDatasetV2 {
metadata: &str = "metadata", "\"\"";
} }
impl TFRecordDatasetV2 {
    /// Adds the node: see [`tf_record_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        filenames: impl Handle<String>,
        compression_type: impl Operand<String>,
        buffer_size: impl Operand<i64>,
        byte_offsets: impl Operand<i64>,
    ) -> Output<Variant> {
        self.0
            .on(&filenames, "TFRecordDatasetV2")
            .input(filenames)
            .input(compression_type)
            .input(buffer_size)
            .input(byte_offsets)
            .output()
    }
}

/// `TFRecordReader`. Has no gradient. Options: [`TFRecordReader`].
#[track_caller]
pub fn tf_record_reader(g: &Graph) -> Output<Ref<String>> {
    TFRecordReader::new().build(g)
}
options! { TFRecordReader {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
compression_type: &str = "compression_type", "\"\"";
} }
impl TFRecordReader {
    /// Adds the node: see [`tf_record_reader()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Ref<String>> {
        self.0.new(g, "TFRecordReader").output()
    }
}

/// `TFRecordReaderV2`. Has no gradient. Options: [`TFRecordReaderV2`].
#[track_caller]
pub fn tf_record_reader_v2(g: &Graph) -> Output<Resource> {
    TFRecordReaderV2::new().build(g)
}
options! { TFRecordReaderV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
compression_type: &str = "compression_type", "\"\"";
} }
impl TFRecordReaderV2 {
    /// Adds the node: see [`tf_record_reader_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Resource> {
        self.0.new(g, "TFRecordReaderV2").output()
    }
}

/// `TakeDataset`. Has no gradient. Options: [`TakeDataset`].
#[track_caller]
pub fn take_dataset(
    input_dataset: impl Handle<Variant>,
    count: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    TakeDataset::new().build(input_dataset, count, output_types, output_shapes)
}
options! { TakeDataset {
metadata: &str = "metadata", "\"\"";
} }
impl TakeDataset {
    /// Adds the node: see [`take_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        count: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "TakeDataset")
            .input(input_dataset)
            .input(count)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `TakeWhileDataset`. Has no gradient. Options: [`TakeWhileDataset`].
#[track_caller]
pub fn take_while_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    predicate: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    TakeWhileDataset::new().build(
        input_dataset,
        other_arguments,
        predicate,
        output_types,
        output_shapes,
    )
}
options! { TakeWhileDataset {
metadata: &str = "metadata", "\"\"";
} }
impl TakeWhileDataset {
    /// Adds the node: see [`take_while_dataset()`].
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
            .on(&input_dataset, "TakeWhileDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .attr("predicate", predicate)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Tan`: the tangent of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn tan<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Tan").input(x).output()
}

/// `Tanh`: the hyperbolic tangent of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn tanh<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Tanh").input(x).output()
}

/// `TanhGrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn tanh_grad<T: TensorType>(y: impl Handle<T>, dy: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "TanhGrad").input(y).input(dy).output()
}

/// `TemporaryVariable`. Has no gradient. Options: [`TemporaryVariable`].
#[track_caller]
pub fn temporary_variable<Dtype: TensorType>(g: &Graph, shape: impl Dims) -> Output<Ref<Dtype>> {
    TemporaryVariable::new().build(g, shape)
}
options! { TemporaryVariable {
var_name: &str = "var_name", "\"\"";
} }
impl TemporaryVariable {
    /// Adds the node: see [`temporary_variable()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, g: &Graph, shape: impl Dims) -> Output<Ref<Dtype>> {
        self.0
            .new(g, "TemporaryVariable")
            .dtype::<Dtype>("dtype")
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `TensorArray`. No gradient passes. Options: [`TensorArray`].
#[track_caller]
pub fn tensor_array(size: impl Handle<i32>, dtype: DType) -> Output<Ref<String>> {
    TensorArray::new().build(size, dtype)
}
options! { TensorArray {
dynamic_size: bool = "dynamic_size", "false";
clear_after_read: bool = "clear_after_read", "true";
tensor_array_name: &str = "tensor_array_name", "\"\"";
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
} }
impl TensorArray {
    /// Adds the node: see [`tensor_array()`].
    #[track_caller]
    pub fn build(&self, size: impl Handle<i32>, dtype: DType) -> Output<Ref<String>> {
        self.0.on(&size, "TensorArray").input(size).attr("dtype", dtype).output()
    }
}

/// `TensorArrayClose`. No gradient passes.
#[track_caller]
pub fn tensor_array_close(handle: impl Handle<Ref<String>>) -> Operation {
    NewOp::on(&handle, "TensorArrayClose").input(handle).operation()
}

/// `TensorArrayCloseV2`. No gradient passes.
#[track_caller]
pub fn tensor_array_close_v2(handle: impl Handle<String>) -> Operation {
    NewOp::on(&handle, "TensorArrayCloseV2").input(handle).operation()
}

/// `TensorArrayCloseV3`. No gradient passes.
#[track_caller]
pub fn tensor_array_close_v3(handle: impl Handle<Resource>) -> Operation {
    NewOp::on(&handle, "TensorArrayCloseV3").input(handle).operation()
}

/// `TensorArrayConcat`. Has a gradient. Returns `value`, `lengths`. Options: [`TensorArrayConcat`].
#[track_caller]
pub fn tensor_array_concat<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    flow_in: impl Operand<f32>,
) -> (Output<Dtype>, Output<i64>) {
    TensorArrayConcat::new().build(handle, flow_in)
}
options! { TensorArrayConcat {
element_shape_except0: impl Dims = "element_shape_except0", "unknown", |value| &value.to_partial();
} }
impl TensorArrayConcat {
    /// Adds the node: see [`tensor_array_concat()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<Ref<String>>,
        flow_in: impl Operand<f32>,
    ) -> (Output<Dtype>, Output<i64>) {
        let built = self
            .0
            .on(&handle, "TensorArrayConcat")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(flow_in)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `TensorArrayConcatV2`. Has a gradient. Returns `value`, `lengths`. Options: [`TensorArrayConcatV2`].
#[track_caller]
pub fn tensor_array_concat_v2<Dtype: TensorType>(
    handle: impl Handle<String>,
    flow_in: impl Operand<f32>,
) -> (Output<Dtype>, Output<i64>) {
    TensorArrayConcatV2::new().build(handle, flow_in)
}
options! { TensorArrayConcatV2 {
element_shape_except0: impl Dims = "element_shape_except0", "unknown", |value| &value.to_partial();
} }
impl TensorArrayConcatV2 {
    /// Adds the node: see [`tensor_array_concat_v2()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<String>,
        flow_in: impl Operand<f32>,
    ) -> (Output<Dtype>, Output<i64>) {
        let built = self
            .0
            .on(&handle, "TensorArrayConcatV2")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(flow_in)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `TensorArrayConcatV3`. Has a gradient. Returns `value`, `lengths`. Options: [`TensorArrayConcatV3`].
#[track_caller]
pub fn tensor_array_concat_v3<Dtype: TensorType>(
    handle: impl Handle<Resource>,
    flow_in: impl Operand<f32>,
) -> (Output<Dtype>, Output<i64>) {
    TensorArrayConcatV3::new().build(handle, flow_in)
}
options! { TensorArrayConcatV3 {
element_shape_except0: impl Dims = "element_shape_except0", "unknown", |value| &value.to_partial();
} }
impl TensorArrayConcatV3 {
    /// Adds the node: see [`tensor_array_concat_v3()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<Resource>,
        flow_in: impl Operand<f32>,
    ) -> (Output<Dtype>, Output<i64>) {
        let built = self
            .0
            .on(&handle, "TensorArrayConcatV3")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(flow_in)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `TensorArrayGather`. Has a gradient. Options: [`TensorArrayGather`].
#[track_caller]
pub fn tensor_array_gather<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    indices: impl Operand<i32>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    TensorArrayGather::new().build(handle, indices, flow_in)
}
options! { TensorArrayGather {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
} }
impl TensorArrayGather {
    /// Adds the node: see [`tensor_array_gather()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<Ref<String>>,
        indices: impl Operand<i32>,
        flow_in: impl Operand<f32>,
    ) -> Output<Dtype> {
        self.0
            .on(&handle, "TensorArrayGather")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(indices)
            .input(flow_in)
            .output()
    }
}

/// `TensorArrayGatherV2`. Has a gradient. Options: [`TensorArrayGatherV2`].
#[track_caller]
pub fn tensor_array_gather_v2<Dtype: TensorType>(
    handle: impl Handle<String>,
    indices: impl Operand<i32>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    TensorArrayGatherV2::new().build(handle, indices, flow_in)
}
options! { TensorArrayGatherV2 {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
} }
impl TensorArrayGatherV2 {
    /// Adds the node: see [`tensor_array_gather_v2()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<String>,
        indices: impl Operand<i32>,
        flow_in: impl Operand<f32>,
    ) -> Output<Dtype> {
        self.0
            .on(&handle, "TensorArrayGatherV2")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(indices)
            .input(flow_in)
            .output()
    }
}

/// `TensorArrayGatherV3`. Has a gradient. Options: [`TensorArrayGatherV3`].
#[track_caller]
pub fn tensor_array_gather_v3<Dtype: TensorType>(
    handle: impl Handle<Resource>,
    indices: impl Operand<i32>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    TensorArrayGatherV3::new().build(handle, indices, flow_in)
}
options! { TensorArrayGatherV3 {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
} }
impl TensorArrayGatherV3 {
    /// Adds the node: see [`tensor_array_gather_v3()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<Resource>,
        indices: impl Operand<i32>,
        flow_in: impl Operand<f32>,
    ) -> Output<Dtype> {
        self.0
            .on(&handle, "TensorArrayGatherV3")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(indices)
            .input(flow_in)
            .output()
    }
}

/// `TensorArrayGrad`. No gradient passes.
#[track_caller]
pub fn tensor_array_grad(
    handle: impl Handle<String>,
    flow_in: impl Operand<f32>,
    source: &str,
) -> Output<Ref<String>> {
    NewOp::on(&handle, "TensorArrayGrad")
        .input(handle)
        .input(flow_in)
        .attr("source", source)
        .output()
}

/// `TensorArrayGradV2`. No gradient passes.
#[track_caller]
pub fn tensor_array_grad_v2(
    handle: impl Handle<String>,
    flow_in: impl Operand<f32>,
    source: &str,
) -> Output<String> {
    NewOp::on(&handle, "TensorArrayGradV2")
        .input(handle)
        .input(flow_in)
        .attr("source", source)
        .output()
}

/// `TensorArrayGradV3`. No gradient passes. Returns `grad_handle`, `flow_out`.
#[track_caller]
pub fn tensor_array_grad_v3(
    handle: impl Handle<Resource>,
    flow_in: impl Operand<f32>,
    source: &str,
) -> (Output<Resource>, Output<f32>) {
    let built = NewOp::on(&handle, "TensorArrayGradV3")
        .input(handle)
        .input(flow_in)
        .attr("source", source)
        .build();
    (built.output(0), built.output(1))
}

/// `TensorArrayGradWithShape`. No gradient passes. Returns `grad_handle`, `flow_out`.
#[track_caller]
pub fn tensor_array_grad_with_shape(
    handle: impl Handle<Resource>,
    flow_in: impl Operand<f32>,
    shape_to_prepend: impl Operand<i32>,
    source: &str,
) -> (Output<Resource>, Output<f32>) {
    let built = NewOp::on(&handle, "TensorArrayGradWithShape")
        .input(handle)
        .input(flow_in)
        .input(shape_to_prepend)
        .attr("source", source)
        .build();
    (built.output(0), built.output(1))
}

/// `TensorArrayPack`. Has no gradient. Options: [`TensorArrayPack`].
#[track_caller]
pub fn tensor_array_pack<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    TensorArrayPack::new().build(handle, flow_in)
}
options! { TensorArrayPack {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
} }
impl TensorArrayPack {
    /// Adds the node: see [`tensor_array_pack()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        handle: impl Handle<Ref<String>>,
        flow_in: impl Operand<f32>,
    ) -> Output<Dtype> {
        self.0
            .on(&handle, "TensorArrayPack")
            .dtype::<Dtype>("dtype")
            .input(handle)
            .input(flow_in)
            .output()
    }
}

/// `TensorArrayRead`. Has a gradient.
#[track_caller]
pub fn tensor_array_read<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    index: impl Operand<i32>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    NewOp::on(&handle, "TensorArrayRead")
        .dtype::<Dtype>("dtype")
        .input(handle)
        .input(index)
        .input(flow_in)
        .output()
}

/// `TensorArrayReadV2`. Has a gradient.
#[track_caller]
pub fn tensor_array_read_v2<Dtype: TensorType>(
    handle: impl Handle<String>,
    index: impl Operand<i32>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    NewOp::on(&handle, "TensorArrayReadV2")
        .dtype::<Dtype>("dtype")
        .input(handle)
        .input(index)
        .input(flow_in)
        .output()
}

/// `TensorArrayReadV3`. Has a gradient.
#[track_caller]
pub fn tensor_array_read_v3<Dtype: TensorType>(
    handle: impl Handle<Resource>,
    index: impl Operand<i32>,
    flow_in: impl Operand<f32>,
) -> Output<Dtype> {
    NewOp::on(&handle, "TensorArrayReadV3")
        .dtype::<Dtype>("dtype")
        .input(handle)
        .input(index)
        .input(flow_in)
        .output()
}

/// `TensorArrayScatter`. Has a gradient.
#[track_caller]
pub fn tensor_array_scatter<T: TensorType>(
    handle: impl Handle<Ref<String>>,
    indices: impl Operand<i32>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayScatter")
        .input(handle)
        .input(indices)
        .input(value)
        .input(flow_in)
        .output()
}

/// `TensorArrayScatterV2`. Has a gradient.
#[track_caller]
pub fn tensor_array_scatter_v2<T: TensorType>(
    handle: impl Handle<String>,
    indices: impl Operand<i32>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayScatterV2")
        .input(handle)
        .input(indices)
        .input(value)
        .input(flow_in)
        .output()
}

/// `TensorArrayScatterV3`. Has a gradient.
#[track_caller]
pub fn tensor_array_scatter_v3<T: TensorType>(
    handle: impl Handle<Resource>,
    indices: impl Operand<i32>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayScatterV3")
        .input(handle)
        .input(indices)
        .input(value)
        .input(flow_in)
        .output()
}

/// `TensorArraySize`. No gradient passes.
#[track_caller]
pub fn tensor_array_size(
    handle: impl Handle<Ref<String>>,
    flow_in: impl Operand<f32>,
) -> Output<i32> {
    NewOp::on(&handle, "TensorArraySize").input(handle).input(flow_in).output()
}

/// `TensorArraySizeV2`. No gradient passes.
#[track_caller]
pub fn tensor_array_size_v2(
    handle: impl Handle<String>,
    flow_in: impl Operand<f32>,
) -> Output<i32> {
    NewOp::on(&handle, "TensorArraySizeV2").input(handle).input(flow_in).output()
}

/// `TensorArraySizeV3`. No gradient passes.
#[track_caller]
pub fn tensor_array_size_v3(
    handle: impl Handle<Resource>,
    flow_in: impl Operand<f32>,
) -> Output<i32> {
    NewOp::on(&handle, "TensorArraySizeV3").input(handle).input(flow_in).output()
}

/// `TensorArraySplit`. Has a gradient.
#[track_caller]
pub fn tensor_array_split<T: TensorType>(
    handle: impl Handle<Ref<String>>,
    value: impl Operand<T>,
    lengths: impl Operand<i64>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArraySplit")
        .input(handle)
        .input(value)
        .input(lengths)
        .input(flow_in)
        .output()
}

/// `TensorArraySplitV2`. Has a gradient.
#[track_caller]
pub fn tensor_array_split_v2<T: TensorType>(
    handle: impl Handle<String>,
    value: impl Operand<T>,
    lengths: impl Operand<i64>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArraySplitV2")
        .input(handle)
        .input(value)
        .input(lengths)
        .input(flow_in)
        .output()
}

/// `TensorArraySplitV3`. Has a gradient.
#[track_caller]
pub fn tensor_array_split_v3<T: TensorType>(
    handle: impl Handle<Resource>,
    value: impl Operand<T>,
    lengths: impl Operand<i64>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArraySplitV3")
        .input(handle)
        .input(value)
        .input(lengths)
        .input(flow_in)
        .output()
}

/// `TensorArrayUnpack`. Has no gradient.
#[track_caller]
pub fn tensor_array_unpack<T: TensorType>(
    handle: impl Handle<Ref<String>>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayUnpack").input(handle).input(value).input(flow_in).output()
}

/// `TensorArrayV2`. No gradient passes. Options: [`TensorArrayV2`].
#[track_caller]
pub fn tensor_array_v2(size: impl Handle<i32>, dtype: DType) -> Output<String> {
    TensorArrayV2::new().build(size, dtype)
}
options! { TensorArrayV2 {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
dynamic_size: bool = "dynamic_size", "false";
clear_after_read: bool = "clear_after_read", "true";
tensor_array_name: &str = "tensor_array_name", "\"\"";
} }
impl TensorArrayV2 {
    /// Adds the node: see [`tensor_array_v2()`].
    #[track_caller]
    pub fn build(&self, size: impl Handle<i32>, dtype: DType) -> Output<String> {
        self.0.on(&size, "TensorArrayV2").input(size).attr("dtype", dtype).output()
    }
}

/// `TensorArrayV3`. No gradient passes. Returns `handle`, `flow`. Options: [`TensorArrayV3`].
#[track_caller]
pub fn tensor_array_v3(size: impl Handle<i32>, dtype: DType) -> (Output<Resource>, Output<f32>) {
    TensorArrayV3::new().build(size, dtype)
}
options! { TensorArrayV3 {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
dynamic_size: bool = "dynamic_size", "false";
clear_after_read: bool = "clear_after_read", "true";
identical_element_shapes: bool = "identical_element_shapes", "false";
tensor_array_name: &str = "tensor_array_name", "\"\"";
} }
impl TensorArrayV3 {
    /// Adds the node: see [`tensor_array_v3()`].
    #[track_caller]
    pub fn build(&self, size: impl Handle<i32>, dtype: DType) -> (Output<Resource>, Output<f32>) {
        let built = self.0.on(&size, "TensorArrayV3").input(size).attr("dtype", dtype).build();
        (built.output(0), built.output(1))
    }
}

/// `TensorArrayWrite`. Has a gradient.
#[track_caller]
pub fn tensor_array_write<T: TensorType>(
    handle: impl Handle<Ref<String>>,
    index: impl Operand<i32>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayWrite")
        .input(handle)
        .input(index)
        .input(value)
        .input(flow_in)
        .output()
}

/// `TensorArrayWriteV2`. Has a gradient.
#[track_caller]
pub fn tensor_array_write_v2<T: TensorType>(
    handle: impl Handle<String>,
    index: impl Operand<i32>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayWriteV2")
        .input(handle)
        .input(index)
        .input(value)
        .input(flow_in)
        .output()
}

/// `TensorArrayWriteV3`. Has a gradient.
#[track_caller]
pub fn tensor_array_write_v3<T: TensorType>(
    handle: impl Handle<Resource>,
    index: impl Operand<i32>,
    value: impl Operand<T>,
    flow_in: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&handle, "TensorArrayWriteV3")
        .input(handle)
        .input(index)
        .input(value)
        .input(flow_in)
        .output()
}

/// `TensorDataset`. Has no gradient. Options: [`TensorDataset`].
#[track_caller]
pub fn tensor_dataset(
    g: &Graph,
    components: &[Output<Untyped>],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    TensorDataset::new().build(g, components, output_shapes)
}
options! { TensorDataset {
metadata: &str = "metadata", "\"\"";
} }
impl TensorDataset {
    /// Adds the node: see [`tensor_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        components: &[Output<Untyped>],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .new(g, "TensorDataset")
            .inputs(components)
            .attr("Toutput_types", &dtypes_of(components)[..])
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `TensorListConcat`. Has a gradient. Returns `tensor`, `lengths`. Options: [`TensorListConcat`].
#[track_caller]
pub fn tensor_list_concat<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
) -> (Output<ElementDtype>, Output<i64>) {
    TensorListConcat::new().build(input_handle)
}
options! { TensorListConcat {
element_shape: impl Dims = "element_shape", "unknown", |value| &value.to_partial();
} }
impl TensorListConcat {
    /// Adds the node: see [`tensor_list_concat()`].
    #[track_caller]
    pub fn build<ElementDtype: TensorType>(
        &self,
        input_handle: impl Handle<Variant>,
    ) -> (Output<ElementDtype>, Output<i64>) {
        let built = self
            .0
            .on(&input_handle, "TensorListConcat")
            .dtype::<ElementDtype>("element_dtype")
            .input(input_handle)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `TensorListConcatLists`. No gradient passes.
#[track_caller]
pub fn tensor_list_concat_lists(
    input_a: impl Handle<Variant>,
    input_b: impl Operand<Variant>,
    element_dtype: DType,
) -> Output<Variant> {
    NewOp::on(&input_a, "TensorListConcatLists")
        .input(input_a)
        .input(input_b)
        .attr("element_dtype", element_dtype)
        .output()
}

/// `TensorListConcatV2`.
///
/// `ShapeType`: int32, int64. Has a gradient. Returns `tensor`, `lengths`.
#[track_caller]
pub fn tensor_list_concat_v2<ElementDtype: TensorType, ShapeType: TensorType>(
    input_handle: impl Handle<Variant>,
    element_shape: impl Operand<ShapeType>,
    leading_dims: impl Operand<i64>,
) -> (Output<ElementDtype>, Output<i64>) {
    let built = NewOp::on(&input_handle, "TensorListConcatV2")
        .dtype::<ElementDtype>("element_dtype")
        .input(input_handle)
        .input(element_shape)
        .input(leading_dims)
        .build();
    (built.output(0), built.output(1))
}

/// `TensorListElementShape`.
///
/// `ShapeType`: int32, int64. No gradient passes.
#[track_caller]
pub fn tensor_list_element_shape<ShapeType: TensorType>(
    input_handle: impl Handle<Variant>,
) -> Output<ShapeType> {
    NewOp::on(&input_handle, "TensorListElementShape")
        .dtype::<ShapeType>("shape_type")
        .input(input_handle)
        .output()
}

/// `TensorListFromTensor`: a list of the rows of a tensor.
///
/// `ShapeType`: int32, int64. Has a gradient.
#[track_caller]
pub fn tensor_list_from_tensor<ElementDtype: TensorType, ShapeType: TensorType>(
    tensor: impl Handle<ElementDtype>,
    element_shape: impl Operand<ShapeType>,
) -> Output<Variant> {
    NewOp::on(&tensor, "TensorListFromTensor").input(tensor).input(element_shape).output()
}

/// `TensorListGather`. Has a gradient.
#[track_caller]
pub fn tensor_list_gather<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
    indices: impl Operand<i32>,
    element_shape: impl Operand<i32>,
) -> Output<ElementDtype> {
    NewOp::on(&input_handle, "TensorListGather")
        .dtype::<ElementDtype>("element_dtype")
        .input(input_handle)
        .input(indices)
        .input(element_shape)
        .output()
}

/// `TensorListGetItem`.
///
/// `Tshape`: int32, int64. Has a gradient.
#[track_caller]
pub fn tensor_list_get_item<ElementDtype: TensorType, Tshape: TensorType>(
    input_handle: impl Handle<Variant>,
    index: impl Operand<i32>,
    element_shape: impl Operand<Tshape>,
) -> Output<ElementDtype> {
    NewOp::on(&input_handle, "TensorListGetItem")
        .dtype::<ElementDtype>("element_dtype")
        .input(input_handle)
        .input(index)
        .input(element_shape)
        .output()
}

/// `TensorListLength`. No gradient passes.
#[track_caller]
pub fn tensor_list_length(input_handle: impl Handle<Variant>) -> Output<i32> {
    NewOp::on(&input_handle, "TensorListLength").input(input_handle).output()
}

/// `TensorListPopBack`. Has a gradient. Returns `output_handle`, `tensor`.
#[track_caller]
pub fn tensor_list_pop_back<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
    element_shape: impl Operand<i32>,
) -> (Output<Variant>, Output<ElementDtype>) {
    let built = NewOp::on(&input_handle, "TensorListPopBack")
        .dtype::<ElementDtype>("element_dtype")
        .input(input_handle)
        .input(element_shape)
        .build();
    (built.output(0), built.output(1))
}

/// `TensorListPushBack`. Has a gradient.
#[track_caller]
pub fn tensor_list_push_back<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
    tensor: impl Operand<ElementDtype>,
) -> Output<Variant> {
    NewOp::on(&input_handle, "TensorListPushBack").input(input_handle).input(tensor).output()
}

/// `TensorListPushBackBatch`. No gradient passes.
#[track_caller]
pub fn tensor_list_push_back_batch<ElementDtype: TensorType>(
    input_handles: impl Handle<Variant>,
    tensor: impl Operand<ElementDtype>,
) -> Output<Variant> {
    NewOp::on(&input_handles, "TensorListPushBackBatch").input(input_handles).input(tensor).output()
}

/// `TensorListReserve`.
///
/// `ShapeType`: int32, int64. No gradient passes.
#[track_caller]
pub fn tensor_list_reserve<ShapeType: TensorType>(
    element_shape: impl Handle<ShapeType>,
    num_elements: impl Operand<i32>,
    element_dtype: DType,
) -> Output<Variant> {
    NewOp::on(&element_shape, "TensorListReserve")
        .input(element_shape)
        .input(num_elements)
        .attr("element_dtype", element_dtype)
        .output()
}

/// `TensorListResize`. Has a gradient.
#[track_caller]
pub fn tensor_list_resize(
    input_handle: impl Handle<Variant>,
    size: impl Operand<i32>,
) -> Output<Variant> {
    NewOp::on(&input_handle, "TensorListResize").input(input_handle).input(size).output()
}

/// `TensorListScatter`.
///
/// `ShapeType`: int32, int64. Has a gradient.
#[track_caller]
pub fn tensor_list_scatter<ElementDtype: TensorType, ShapeType: TensorType>(
    tensor: impl Handle<ElementDtype>,
    indices: impl Operand<i32>,
    element_shape: impl Operand<ShapeType>,
) -> Output<Variant> {
    NewOp::on(&tensor, "TensorListScatter")
        .input(tensor)
        .input(indices)
        .input(element_shape)
        .output()
}

/// `TensorListScatterIntoExistingList`. Has a gradient.
#[track_caller]
pub fn tensor_list_scatter_into_existing_list<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
    tensor: impl Operand<ElementDtype>,
    indices: impl Operand<i32>,
) -> Output<Variant> {
    NewOp::on(&input_handle, "TensorListScatterIntoExistingList")
        .input(input_handle)
        .input(tensor)
        .input(indices)
        .output()
}

/// `TensorListScatterV2`.
///
/// `ShapeType`: int32, int64. Has a gradient.
#[track_caller]
pub fn tensor_list_scatter_v2<ElementDtype: TensorType, ShapeType: TensorType>(
    tensor: impl Handle<ElementDtype>,
    indices: impl Operand<i32>,
    element_shape: impl Operand<ShapeType>,
    num_elements: impl Operand<i32>,
) -> Output<Variant> {
    NewOp::on(&tensor, "TensorListScatterV2")
        .input(tensor)
        .input(indices)
        .input(element_shape)
        .input(num_elements)
        .output()
}

/// `TensorListSetItem`. Has a gradient. Options: [`TensorListSetItem`].
#[track_caller]
pub fn tensor_list_set_item<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
    index: impl Operand<i32>,
    item: impl Operand<ElementDtype>,
) -> Output<Variant> {
    TensorListSetItem::new().build(input_handle, index, item)
}
options! { TensorListSetItem {
resize_if_index_out_of_bounds: bool = "resize_if_index_out_of_bounds", "false";
} }
impl TensorListSetItem {
    /// Adds the node: see [`tensor_list_set_item()`].
    #[track_caller]
    pub fn build<ElementDtype: TensorType>(
        &self,
        input_handle: impl Handle<Variant>,
        index: impl Operand<i32>,
        item: impl Operand<ElementDtype>,
    ) -> Output<Variant> {
        self.0
            .on(&input_handle, "TensorListSetItem")
            .input(input_handle)
            .input(index)
            .input(item)
            .output()
    }
}

/// `TensorListSplit`.
///
/// `ShapeType`: int32, int64. Has a gradient.
#[track_caller]
pub fn tensor_list_split<ElementDtype: TensorType, ShapeType: TensorType>(
    tensor: impl Handle<ElementDtype>,
    element_shape: impl Operand<ShapeType>,
    lengths: impl Operand<i64>,
) -> Output<Variant> {
    NewOp::on(&tensor, "TensorListSplit").input(tensor).input(element_shape).input(lengths).output()
}

/// `TensorListStack`: the tensors of a list, stacked. Has a gradient. Options: [`TensorListStack`].
#[track_caller]
pub fn tensor_list_stack<ElementDtype: TensorType>(
    input_handle: impl Handle<Variant>,
    element_shape: impl Operand<i32>,
) -> Output<ElementDtype> {
    TensorListStack::new().build(input_handle, element_shape)
}
options! { TensorListStack {
num_elements: i64 = "num_elements", "-1";
} }
impl TensorListStack {
    /// Adds the node: see [`tensor_list_stack()`].
    #[track_caller]
    pub fn build<ElementDtype: TensorType>(
        &self,
        input_handle: impl Handle<Variant>,
        element_shape: impl Operand<i32>,
    ) -> Output<ElementDtype> {
        self.0
            .on(&input_handle, "TensorListStack")
            .dtype::<ElementDtype>("element_dtype")
            .input(input_handle)
            .input(element_shape)
            .output()
    }
}

/// `TensorScatterAdd`.
///
/// `Tindices`: int32, int64. Has a gradient. Options: [`TensorScatterAdd`].
#[track_caller]
pub fn tensor_scatter_add<T: TensorType, Tindices: TensorType>(
    tensor: impl Handle<T>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<T> {
    TensorScatterAdd::new().build(tensor, indices, updates)
}
options! { TensorScatterAdd {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl TensorScatterAdd {
    /// Adds the node: see [`tensor_scatter_add()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        tensor: impl Handle<T>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&tensor, "TensorScatterAdd").input(tensor).input(indices).input(updates).output()
    }
}

/// `TensorScatterMax`.
///
/// `Tindices`: int32, int64. Has a gradient. Options: [`TensorScatterMax`].
#[track_caller]
pub fn tensor_scatter_max<T: TensorType, Tindices: TensorType>(
    tensor: impl Handle<T>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<T> {
    TensorScatterMax::new().build(tensor, indices, updates)
}
options! { TensorScatterMax {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl TensorScatterMax {
    /// Adds the node: see [`tensor_scatter_max()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        tensor: impl Handle<T>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&tensor, "TensorScatterMax").input(tensor).input(indices).input(updates).output()
    }
}

/// `TensorScatterMin`.
///
/// `Tindices`: int32, int64. Has a gradient. Options: [`TensorScatterMin`].
#[track_caller]
pub fn tensor_scatter_min<T: TensorType, Tindices: TensorType>(
    tensor: impl Handle<T>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<T> {
    TensorScatterMin::new().build(tensor, indices, updates)
}
options! { TensorScatterMin {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl TensorScatterMin {
    /// Adds the node: see [`tensor_scatter_min()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        tensor: impl Handle<T>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&tensor, "TensorScatterMin").input(tensor).input(indices).input(updates).output()
    }
}

/// `TensorScatterSub`.
///
/// `Tindices`: int32, int64. Has a gradient. Options: [`TensorScatterSub`].
#[track_caller]
pub fn tensor_scatter_sub<T: TensorType, Tindices: TensorType>(
    tensor: impl Handle<T>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<T> {
    TensorScatterSub::new().build(tensor, indices, updates)
}
options! { TensorScatterSub {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl TensorScatterSub {
    /// Adds the node: see [`tensor_scatter_sub()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        tensor: impl Handle<T>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&tensor, "TensorScatterSub").input(tensor).input(indices).input(updates).output()
    }
}

/// `TensorScatterUpdate`: a tensor with slices replaced.
///
/// `Tindices`: int32, int16, int64, uint16. Has a gradient. Options: [`TensorScatterUpdate`].
#[track_caller]
pub fn tensor_scatter_update<T: TensorType, Tindices: TensorType>(
    tensor: impl Handle<T>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<T> {
    TensorScatterUpdate::new().build(tensor, indices, updates)
}
options! { TensorScatterUpdate {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl TensorScatterUpdate {
    /// Adds the node: see [`tensor_scatter_update()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        tensor: impl Handle<T>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&tensor, "TensorScatterUpdate")
            .input(tensor)
            .input(indices)
            .input(updates)
            .output()
    }
}

/// `TensorSliceDataset`. Has no gradient. Options: [`TensorSliceDataset`].
#[track_caller]
pub fn tensor_slice_dataset(
    g: &Graph,
    components: &[Output<Untyped>],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    TensorSliceDataset::new().build(g, components, output_shapes)
}
options! { TensorSliceDataset {
is_files: bool = "is_files", "false";
metadata: &str = "metadata", "\"\"";
replicate_on_split: bool = "replicate_on_split", "false";
} }
impl TensorSliceDataset {
    /// Adds the node: see [`tensor_slice_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        components: &[Output<Untyped>],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .new(g, "TensorSliceDataset")
            .inputs(components)
            .attr("Toutput_types", &dtypes_of(components)[..])
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `TensorStridedSliceUpdate`.
///
/// `Index`: int32, int64. Has a gradient. Options: [`TensorStridedSliceUpdate`].
#[track_caller]
pub fn tensor_strided_slice_update<T: TensorType, Index: TensorType>(
    input: impl Handle<T>,
    begin: impl Operand<Index>,
    end: impl Operand<Index>,
    strides: impl Operand<Index>,
    value: impl Operand<T>,
) -> Output<T> {
    TensorStridedSliceUpdate::new().build(input, begin, end, strides, value)
}
options! { TensorStridedSliceUpdate {
begin_mask: i64 = "begin_mask", "0";
end_mask: i64 = "end_mask", "0";
ellipsis_mask: i64 = "ellipsis_mask", "0";
new_axis_mask: i64 = "new_axis_mask", "0";
shrink_axis_mask: i64 = "shrink_axis_mask", "0";
} }
impl TensorStridedSliceUpdate {
    /// Adds the node: see [`tensor_strided_slice_update()`].
    #[track_caller]
    pub fn build<T: TensorType, Index: TensorType>(
        &self,
        input: impl Handle<T>,
        begin: impl Operand<Index>,
        end: impl Operand<Index>,
        strides: impl Operand<Index>,
        value: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&input, "TensorStridedSliceUpdate")
            .input(input)
            .input(begin)
            .input(end)
            .input(strides)
            .input(value)
            .output()
    }
}

/// `TensorSummary`. No gradient passes. Options: [`TensorSummary`].
#[track_caller]
pub fn tensor_summary<T: TensorType>(tensor: impl Handle<T>) -> Output<String> {
    TensorSummary::new().build(tensor)
}
options! { TensorSummary {
description: &str = "description", "\"\"";
labels: &[&str] = "labels", "[]";
display_name: &str = "display_name", "\"\"";
} }
impl TensorSummary {
    /// Adds the node: see [`tensor_summary()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, tensor: impl Handle<T>) -> Output<String> {
        self.0.on(&tensor, "TensorSummary").input(tensor).output()
    }
}

/// `TensorSummaryV2`. No gradient passes.
#[track_caller]
pub fn tensor_summary_v2<T: TensorType>(
    tag: impl Handle<String>,
    tensor: impl Operand<T>,
    serialized_summary_metadata: impl Operand<String>,
) -> Output<String> {
    NewOp::on(&tag, "TensorSummaryV2")
        .input(tag)
        .input(tensor)
        .input(serialized_summary_metadata)
        .output()
}

/// `TextLineDataset`. Has no gradient. Options: [`TextLineDataset`].
#[track_caller]
pub fn text_line_dataset(
    filenames: impl Handle<String>,
    compression_type: impl Operand<String>,
    buffer_size: impl Operand<i64>,
) -> Output<Variant> {
    TextLineDataset::new().build(filenames, compression_type, buffer_size)
}
options! { TextLineDataset {
metadata: &str = "metadata", "\"\"";
} }
impl TextLineDataset {
    /// Adds the node: see [`text_line_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        filenames: impl Handle<String>,
        compression_type: impl Operand<String>,
        buffer_size: impl Operand<i64>,
    ) -> Output<Variant> {
        self.0
            .on(&filenames, "TextLineDataset")
            .input(filenames)
            .input(compression_type)
            .input(buffer_size)
            .output()
    }
}

/// `TextLineReader`. Has no gradient. Options: [`TextLineReader`].
#[track_caller]
pub fn text_line_reader(g: &Graph) -> Output<Ref<String>> {
    TextLineReader::new().build(g)
}
options! { TextLineReader {
skip_header_lines: i64 = "skip_header_lines", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl TextLineReader {
    /// Adds the node: see [`text_line_reader()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Ref<String>> {
        self.0.new(g, "TextLineReader").output()
    }
}

/// `TextLineReaderV2`. Has no gradient. Options: [`TextLineReaderV2`].
#[track_caller]
pub fn text_line_reader_v2(g: &Graph) -> Output<Resource> {
    TextLineReaderV2::new().build(g)
}
options! { TextLineReaderV2 {
skip_header_lines: i64 = "skip_header_lines", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl TextLineReaderV2 {
    /// Adds the node: see [`text_line_reader_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Resource> {
        self.0.new(g, "TextLineReaderV2").output()
    }
}

/// `ThreadUnsafeUnigramCandidateSampler`. Has no gradient. Returns `sampled_candidates`, `true_expected_count`, `sampled_expected_count`. Options: [`ThreadUnsafeUnigramCandidateSampler`].
#[track_caller]
pub fn thread_unsafe_unigram_candidate_sampler(
    true_classes: impl Handle<i64>,
    num_true: i64,
    num_sampled: i64,
    unique: bool,
    range_max: i64,
) -> (Output<i64>, Output<f32>, Output<f32>) {
    ThreadUnsafeUnigramCandidateSampler::new().build(
        true_classes,
        num_true,
        num_sampled,
        unique,
        range_max,
    )
}
options! { ThreadUnsafeUnigramCandidateSampler {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl ThreadUnsafeUnigramCandidateSampler {
    /// Adds the node: see [`thread_unsafe_unigram_candidate_sampler()`].
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
            .on(&true_classes, "ThreadUnsafeUnigramCandidateSampler")
            .input(true_classes)
            .attr("num_true", num_true)
            .attr("num_sampled", num_sampled)
            .attr("unique", unique)
            .attr("range_max", range_max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Tile`: a tensor repeated along each dimension.
///
/// `Tmultiples`: int32, int64. Has a gradient.
#[track_caller]
pub fn tile<T: TensorType, Tmultiples: TensorType>(
    input: impl Handle<T>,
    multiples: impl Operand<Tmultiples>,
) -> Output<T> {
    NewOp::on(&input, "Tile").input(input).input(multiples).output()
}

/// `Timestamp`. No gradient passes.
#[track_caller]
pub fn timestamp(g: &Graph) -> Output<f64> {
    NewOp::new(g, "Timestamp").output()
}

/// `TopK`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient. Returns `values`, `indices`. Options: [`TopK`].
#[track_caller]
pub fn top_k<T: TensorType>(input: impl Handle<T>, k: i64) -> (Output<T>, Output<i32>) {
    TopK::new().build(input, k)
}
options! { TopK {
sorted: bool = "sorted", "true";
} }
impl TopK {
    /// Adds the node: see [`top_k()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>, k: i64) -> (Output<T>, Output<i32>) {
        let built = self.0.on(&input, "TopK").input(input).attr("k", k).build();
        (built.output(0), built.output(1))
    }
}

/// `TopKV2`: the k largest elements along the last axis, and their indices.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tk`: int32, int16, int64. `IndexType`: int32, int16, int64. Has a gradient. Returns `values`, `indices`. Options: [`TopKV2`].
#[track_caller]
pub fn top_k_v2<IndexType: TensorType, T: TensorType, Tk: TensorType>(
    input: impl Handle<T>,
    k: impl Operand<Tk>,
) -> (Output<T>, Output<IndexType>) {
    TopKV2::new().build(input, k)
}
options! { TopKV2 {
sorted: bool = "sorted", "true";
} }
impl TopKV2 {
    /// Adds the node: see [`top_k_v2()`].
    #[track_caller]
    pub fn build<IndexType: TensorType, T: TensorType, Tk: TensorType>(
        &self,
        input: impl Handle<T>,
        k: impl Operand<Tk>,
    ) -> (Output<T>, Output<IndexType>) {
        let built = self
            .0
            .on(&input, "TopKV2")
            .dtype::<IndexType>("index_type")
            .input(input)
            .input(k)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `Transpose`: the dimensions in another order.
///
/// `Tperm`: int32, int64. Has a gradient.
#[track_caller]
pub fn transpose<T: TensorType, Tperm: TensorType>(
    x: impl Handle<T>,
    perm: impl Operand<Tperm>,
) -> Output<T> {
    NewOp::on(&x, "Transpose").input(x).input(perm).output()
}

/// `TridiagonalMatMul`.
///
/// `T`: float, double, complex64, complex128. Has a gradient.
#[track_caller]
pub fn tridiagonal_mat_mul<T: TensorType>(
    superdiag: impl Handle<T>,
    maindiag: impl Operand<T>,
    subdiag: impl Operand<T>,
    rhs: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&superdiag, "TridiagonalMatMul")
        .input(superdiag)
        .input(maindiag)
        .input(subdiag)
        .input(rhs)
        .output()
}

/// `TridiagonalSolve`.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Options: [`TridiagonalSolve`].
#[track_caller]
pub fn tridiagonal_solve<T: TensorType>(
    diagonals: impl Handle<T>,
    rhs: impl Operand<T>,
) -> Output<T> {
    TridiagonalSolve::new().build(diagonals, rhs)
}
options! { TridiagonalSolve {
partial_pivoting: bool = "partial_pivoting", "true";
perturb_singular: bool = "perturb_singular", "false";
} }
impl TridiagonalSolve {
    /// Adds the node: see [`tridiagonal_solve()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        diagonals: impl Handle<T>,
        rhs: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&diagonals, "TridiagonalSolve").input(diagonals).input(rhs).output()
    }
}

/// `TruncateDiv`: the quotient rounded toward zero.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn truncate_div<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "TruncateDiv").input(x).input(y).output()
}

/// `TruncateMod`.
///
/// `T`: float, double, int32, int64. Has no gradient.
#[track_caller]
pub fn truncate_mod<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "TruncateMod").input(x).input(y).output()
}

/// `TruncatedNormal`: random numbers of a normal distribution cut at two standard deviations.
///
/// `T`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes. Options: [`TruncatedNormal`].
#[track_caller]
pub fn truncated_normal<Dtype: TensorType, T: TensorType>(shape: impl Handle<T>) -> Output<Dtype> {
    TruncatedNormal::new().build(shape)
}
options! { TruncatedNormal {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl TruncatedNormal {
    /// Adds the node: see [`truncated_normal()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, T: TensorType>(&self, shape: impl Handle<T>) -> Output<Dtype> {
        self.0.on(&shape, "TruncatedNormal").dtype::<Dtype>("dtype").input(shape).output()
    }
}

/// `UnbatchDataset`. Has no gradient. Options: [`UnbatchDataset`].
#[track_caller]
pub fn unbatch_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    UnbatchDataset::new().build(input_dataset, output_types, output_shapes)
}
options! { UnbatchDataset {
metadata: &str = "metadata", "\"\"";
} }
impl UnbatchDataset {
    /// Adds the node: see [`unbatch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "UnbatchDataset")
            .input(input_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `UnicodeDecode`.
///
/// `Tsplits`: int32, int64. Has no gradient. Returns `row_splits`, `char_values`. Options: [`UnicodeDecode`].
#[track_caller]
pub fn unicode_decode<Tsplits: TensorType>(
    input: impl Handle<String>,
    input_encoding: &str,
) -> (Output<Tsplits>, Output<i32>) {
    UnicodeDecode::new().build(input, input_encoding)
}
options! { UnicodeDecode {
errors: &str = "errors", "\"replace\"";
replacement_char: i64 = "replacement_char", "65533";
replace_control_characters: bool = "replace_control_characters", "false";
} }
impl UnicodeDecode {
    /// Adds the node: see [`unicode_decode()`].
    #[track_caller]
    pub fn build<Tsplits: TensorType>(
        &self,
        input: impl Handle<String>,
        input_encoding: &str,
    ) -> (Output<Tsplits>, Output<i32>) {
        let built = self
            .0
            .on(&input, "UnicodeDecode")
            .dtype::<Tsplits>("Tsplits")
            .input(input)
            .attr("input_encoding", input_encoding)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `UnicodeDecodeWithOffsets`.
///
/// `Tsplits`: int32, int64. Has no gradient. Returns `row_splits`, `char_values`, `char_to_byte_starts`. Options: [`UnicodeDecodeWithOffsets`].
#[track_caller]
pub fn unicode_decode_with_offsets<Tsplits: TensorType>(
    input: impl Handle<String>,
    input_encoding: &str,
) -> (Output<Tsplits>, Output<i32>, Output<i64>) {
    UnicodeDecodeWithOffsets::new().build(input, input_encoding)
}
options! { UnicodeDecodeWithOffsets {
errors: &str = "errors", "\"replace\"";
replacement_char: i64 = "replacement_char", "65533";
replace_control_characters: bool = "replace_control_characters", "false";
} }
impl UnicodeDecodeWithOffsets {
    /// Adds the node: see [`unicode_decode_with_offsets()`].
    #[track_caller]
    pub fn build<Tsplits: TensorType>(
        &self,
        input: impl Handle<String>,
        input_encoding: &str,
    ) -> (Output<Tsplits>, Output<i32>, Output<i64>) {
        let built = self
            .0
            .on(&input, "UnicodeDecodeWithOffsets")
            .dtype::<Tsplits>("Tsplits")
            .input(input)
            .attr("input_encoding", input_encoding)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `UnicodeEncode`.
///
/// `Tsplits`: int32, int64. Has no gradient. Options: [`UnicodeEncode`].
#[track_caller]
pub fn unicode_encode<Tsplits: TensorType>(
    input_values: impl Handle<i32>,
    input_splits: impl Operand<Tsplits>,
    output_encoding: &str,
) -> Output<String> {
    UnicodeEncode::new().build(input_values, input_splits, output_encoding)
}
options! { UnicodeEncode {
errors: &str = "errors", "\"replace\"";
replacement_char: i64 = "replacement_char", "65533";
} }
impl UnicodeEncode {
    /// Adds the node: see [`unicode_encode()`].
    #[track_caller]
    pub fn build<Tsplits: TensorType>(
        &self,
        input_values: impl Handle<i32>,
        input_splits: impl Operand<Tsplits>,
        output_encoding: &str,
    ) -> Output<String> {
        self.0
            .on(&input_values, "UnicodeEncode")
            .input(input_values)
            .input(input_splits)
            .attr("output_encoding", output_encoding)
            .output()
    }
}

/// `UnicodeScript`. Has no gradient.
#[track_caller]
pub fn unicode_script(input: impl Handle<i32>) -> Output<i32> {
    NewOp::on(&input, "UnicodeScript").input(input).output()
}

/// `UnicodeTranscode`. Has no gradient. Options: [`UnicodeTranscode`].
#[track_caller]
pub fn unicode_transcode(
    input: impl Handle<String>,
    input_encoding: &str,
    output_encoding: &str,
) -> Output<String> {
    UnicodeTranscode::new().build(input, input_encoding, output_encoding)
}
options! { UnicodeTranscode {
errors: &str = "errors", "\"replace\"";
replacement_char: i64 = "replacement_char", "65533";
replace_control_characters: bool = "replace_control_characters", "false";
} }
impl UnicodeTranscode {
    /// Adds the node: see [`unicode_transcode()`].
    #[track_caller]
    pub fn build(
        &self,
        input: impl Handle<String>,
        input_encoding: &str,
        output_encoding: &str,
    ) -> Output<String> {
        self.0
            .on(&input, "UnicodeTranscode")
            .input(input)
            .attr("input_encoding", input_encoding)
            .attr("output_encoding", output_encoding)
            .output()
    }
}

/// `UniformCandidateSampler`. Has no gradient. Returns `sampled_candidates`, `true_expected_count`, `sampled_expected_count`. Options: [`UniformCandidateSampler`].
#[track_caller]
pub fn uniform_candidate_sampler(
    true_classes: impl Handle<i64>,
    num_true: i64,
    num_sampled: i64,
    unique: bool,
    range_max: i64,
) -> (Output<i64>, Output<f32>, Output<f32>) {
    UniformCandidateSampler::new().build(true_classes, num_true, num_sampled, unique, range_max)
}
options! { UniformCandidateSampler {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl UniformCandidateSampler {
    /// Adds the node: see [`uniform_candidate_sampler()`].
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
            .on(&true_classes, "UniformCandidateSampler")
            .input(true_classes)
            .attr("num_true", num_true)
            .attr("num_sampled", num_sampled)
            .attr("unique", unique)
            .attr("range_max", range_max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Unique`: the distinct elements, and the position of each among them.
///
/// `OutIdx`: int32, int64. Has no gradient. Returns `y`, `idx`.
#[track_caller]
pub fn unique<OutIdx: TensorType, T: TensorType>(x: impl Handle<T>) -> (Output<T>, Output<OutIdx>) {
    let built = NewOp::on(&x, "Unique").dtype::<OutIdx>("out_idx").input(x).build();
    (built.output(0), built.output(1))
}

/// `UniqueDataset`. Has no gradient. Options: [`UniqueDataset`].
#[track_caller]
pub fn unique_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    UniqueDataset::new().build(input_dataset, output_types, output_shapes)
}
options! { UniqueDataset {
metadata: &str = "metadata", "\"\"";
} }
impl UniqueDataset {
    /// Adds the node: see [`unique_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "UniqueDataset")
            .input(input_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `UniqueV2`.
///
/// `Taxis`: int32, int64. `OutIdx`: int32, int64. Has no gradient. Returns `y`, `idx`.
#[track_caller]
pub fn unique_v2<OutIdx: TensorType, T: TensorType, Taxis: TensorType>(
    x: impl Handle<T>,
    axis: impl Operand<Taxis>,
) -> (Output<T>, Output<OutIdx>) {
    let built = NewOp::on(&x, "UniqueV2").dtype::<OutIdx>("out_idx").input(x).input(axis).build();
    (built.output(0), built.output(1))
}

/// `UniqueWithCounts`.
///
/// `OutIdx`: int32, int64. Has no gradient. Returns `y`, `idx`, `count`.
#[track_caller]
pub fn unique_with_counts<OutIdx: TensorType, T: TensorType>(
    x: impl Handle<T>,
) -> (Output<T>, Output<OutIdx>, Output<OutIdx>) {
    let built = NewOp::on(&x, "UniqueWithCounts").dtype::<OutIdx>("out_idx").input(x).build();
    (built.output(0), built.output(1), built.output(2))
}

/// `UniqueWithCountsV2`.
///
/// `Taxis`: int32, int64. `OutIdx`: int32, int64. Has no gradient. Returns `y`, `idx`, `count`.
#[track_caller]
pub fn unique_with_counts_v2<OutIdx: TensorType, T: TensorType, Taxis: TensorType>(
    x: impl Handle<T>,
    axis: impl Operand<Taxis>,
) -> (Output<T>, Output<OutIdx>, Output<OutIdx>) {
    let built =
        NewOp::on(&x, "UniqueWithCountsV2").dtype::<OutIdx>("out_idx").input(x).input(axis).build();
    (built.output(0), built.output(1), built.output(2))
}

/// `Unpack`: the slices of a tensor along an axis. Has a gradient. Options: [`Unpack`].
#[track_caller]
pub fn unpack<T: TensorType>(value: impl Handle<T>, num: i64) -> Vec<Output<T>> {
    Unpack::new().build(value, num)
}
options! { Unpack {
axis: i64 = "axis", "0";
} }
impl Unpack {
    /// Adds the node: see [`unpack()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, value: impl Handle<T>, num: i64) -> Vec<Output<T>> {
        let built = self.0.on(&value, "Unpack").input(value).attr("num", num).build();
        built.outputs("output", usize::try_from(num).unwrap_or(0))
    }
}

/// `UnravelIndex`.
///
/// `Tidx`: int32, int64. Has no gradient.
#[track_caller]
pub fn unravel_index<Tidx: TensorType>(
    indices: impl Handle<Tidx>,
    dims: impl Operand<Tidx>,
) -> Output<Tidx> {
    NewOp::on(&indices, "UnravelIndex").input(indices).input(dims).output()
}

/// `UnsortedSegmentJoin`.
///
/// `Tindices`: int32, int64. `Tnumsegments`: int32, int64. Has no gradient. Options: [`UnsortedSegmentJoin`].
#[track_caller]
pub fn unsorted_segment_join<Tindices: TensorType, Tnumsegments: TensorType>(
    inputs: impl Handle<String>,
    segment_ids: impl Operand<Tindices>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<String> {
    UnsortedSegmentJoin::new().build(inputs, segment_ids, num_segments)
}
options! { UnsortedSegmentJoin {
separator: &str = "separator", "\"\"";
} }
impl UnsortedSegmentJoin {
    /// Adds the node: see [`unsorted_segment_join()`].
    #[track_caller]
    pub fn build<Tindices: TensorType, Tnumsegments: TensorType>(
        &self,
        inputs: impl Handle<String>,
        segment_ids: impl Operand<Tindices>,
        num_segments: impl Operand<Tnumsegments>,
    ) -> Output<String> {
        self.0
            .on(&inputs, "UnsortedSegmentJoin")
            .input(inputs)
            .input(segment_ids)
            .input(num_segments)
            .output()
    }
}

/// `UnsortedSegmentMax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tindices`: int32, int64. `Tnumsegments`: int32, int64. Has a gradient.
#[track_caller]
pub fn unsorted_segment_max<T: TensorType, Tindices: TensorType, Tnumsegments: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    NewOp::on(&data, "UnsortedSegmentMax")
        .input(data)
        .input(segment_ids)
        .input(num_segments)
        .output()
}

/// `UnsortedSegmentMin`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tindices`: int32, int64. `Tnumsegments`: int32, int64. Has a gradient.
#[track_caller]
pub fn unsorted_segment_min<T: TensorType, Tindices: TensorType, Tnumsegments: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    NewOp::on(&data, "UnsortedSegmentMin")
        .input(data)
        .input(segment_ids)
        .input(num_segments)
        .output()
}

/// `UnsortedSegmentProd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. `Tnumsegments`: int32, int64. Has a gradient.
#[track_caller]
pub fn unsorted_segment_prod<T: TensorType, Tindices: TensorType, Tnumsegments: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    NewOp::on(&data, "UnsortedSegmentProd")
        .input(data)
        .input(segment_ids)
        .input(num_segments)
        .output()
}

/// `UnsortedSegmentSum`: the sum of the rows of each segment, in any order.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int16, int64. `Tnumsegments`: int32, int64. Has a gradient.
#[track_caller]
pub fn unsorted_segment_sum<T: TensorType, Tindices: TensorType, Tnumsegments: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    NewOp::on(&data, "UnsortedSegmentSum")
        .input(data)
        .input(segment_ids)
        .input(num_segments)
        .output()
}

/// `Unstage`. Has no gradient. Options: [`Unstage`].
#[track_caller]
pub fn unstage(g: &Graph, dtypes: &[DType]) -> Vec<Output<Untyped>> {
    Unstage::new().build(g, dtypes)
}
options! { Unstage {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl Unstage {
    /// Adds the node: see [`unstage()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Vec<Output<Untyped>> {
        let built = self.0.new(g, "Unstage").attr("dtypes", dtypes).build();
        built.outputs("values", dtypes.len())
    }
}

/// `UnwrapDatasetVariant`. Has no gradient.
#[track_caller]
pub fn unwrap_dataset_variant(input_handle: impl Handle<Variant>) -> Output<Variant> {
    NewOp::on(&input_handle, "UnwrapDatasetVariant").input(input_handle).output()
}

/// `UpperBound`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `OutType`: int32, int64. Has no gradient.
#[track_caller]
pub fn upper_bound<OutType: TensorType, T: TensorType>(
    sorted_inputs: impl Handle<T>,
    values: impl Operand<T>,
) -> Output<OutType> {
    NewOp::on(&sorted_inputs, "UpperBound")
        .dtype::<OutType>("out_type")
        .input(sorted_inputs)
        .input(values)
        .output()
}

/// `VarHandleOp`: the handle of a resource variable. Has no gradient. Options: [`VarHandleOp`].
#[track_caller]
pub fn var_handle_op(g: &Graph, dtype: DType, shape: impl Dims) -> Output<Resource> {
    VarHandleOp::new().build(g, dtype, shape)
}
options! { VarHandleOp {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
debug_name: &str = "debug_name", "\"\"";
allowed_devices: &[&str] = "allowed_devices", "[]";
} }
impl VarHandleOp {
    /// Adds the node: see [`var_handle_op()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtype: DType, shape: impl Dims) -> Output<Resource> {
        self.0
            .new(g, "VarHandleOp")
            .attr("dtype", dtype)
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `VarIsInitializedOp`: whether a resource variable has a value. No gradient passes.
#[track_caller]
pub fn var_is_initialized_op(resource: impl Handle<Resource>) -> Output<bool> {
    NewOp::on(&resource, "VarIsInitializedOp").input(resource).output()
}

/// `Variable`. Has no gradient. Options: [`Variable`].
#[track_caller]
pub fn variable<Dtype: TensorType>(g: &Graph, shape: impl Dims) -> Output<Ref<Dtype>> {
    Variable::new().build(g, shape)
}
options! { Variable {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl Variable {
    /// Adds the node: see [`variable()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, g: &Graph, shape: impl Dims) -> Output<Ref<Dtype>> {
        self.0
            .new(g, "Variable")
            .dtype::<Dtype>("dtype")
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `VariableShape`.
///
/// `OutType`: int32, int64. No gradient passes.
#[track_caller]
pub fn variable_shape<OutType: TensorType>(input: impl Handle<Resource>) -> Output<OutType> {
    NewOp::on(&input, "VariableShape").dtype::<OutType>("out_type").input(input).output()
}

/// `VariableV2`: a reference variable. Has no gradient. Options: [`VariableV2`].
#[track_caller]
pub fn variable_v2<Dtype: TensorType>(g: &Graph, shape: impl Dims) -> Output<Ref<Dtype>> {
    VariableV2::new().build(g, shape)
}
options! { VariableV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl VariableV2 {
    /// Adds the node: see [`variable_v2()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, g: &Graph, shape: impl Dims) -> Output<Ref<Dtype>> {
        self.0
            .new(g, "VariableV2")
            .dtype::<Dtype>("dtype")
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `Where`: the indices of the elements that are true.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn where_<T: TensorType>(input: impl Handle<T>) -> Output<i64> {
    NewOp::on(&input, "Where").input(input).output()
}

/// `While`. Has a gradient. Options: [`While`].
#[track_caller]
pub fn while_(
    g: &Graph,
    input: &[Output<Untyped>],
    cond: &Function,
    body: &Function,
) -> Vec<Output<Untyped>> {
    While::new().build(g, input, cond, body)
}
options! { While {
output_shapes: &[PartialShape] = "output_shapes", "[]";
parallel_iterations: i64 = "parallel_iterations", "10";
} }
impl While {
    /// Adds the node: see [`while_()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        input: &[Output<Untyped>],
        cond: &Function,
        body: &Function,
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .new(g, "While")
            .inputs(input)
            .attr("T", &dtypes_of(input)[..])
            .attr("cond", cond)
            .attr("body", body)
            .build();
        built.outputs("output", input.len())
    }
}

/// `WholeFileReader`. Has no gradient. Options: [`WholeFileReader`].
#[track_caller]
pub fn whole_file_reader(g: &Graph) -> Output<Ref<String>> {
    WholeFileReader::new().build(g)
}
options! { WholeFileReader {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl WholeFileReader {
    /// Adds the node: see [`whole_file_reader()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Ref<String>> {
        self.0.new(g, "WholeFileReader").output()
    }
}

/// `WholeFileReaderV2`. Has no gradient. Options: [`WholeFileReaderV2`].
#[track_caller]
pub fn whole_file_reader_v2(g: &Graph) -> Output<Resource> {
    WholeFileReaderV2::new().build(g)
}
options! { WholeFileReaderV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl WholeFileReaderV2 {
    /// Adds the node: see [`whole_file_reader_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Resource> {
        self.0.new(g, "WholeFileReaderV2").output()
    }
}

/// `WindowDataset`. Has no gradient. Options: [`WindowDataset`].
#[track_caller]
pub fn window_dataset(
    input_dataset: impl Handle<Variant>,
    size: impl Operand<i64>,
    shift: impl Operand<i64>,
    stride: impl Operand<i64>,
    drop_remainder: impl Operand<bool>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    WindowDataset::new().build(
        input_dataset,
        size,
        shift,
        stride,
        drop_remainder,
        output_types,
        output_shapes,
    )
}
options! { WindowDataset {
metadata: &str = "metadata", "\"\"";
} }
impl WindowDataset {
    /// Adds the node: see [`window_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        size: impl Operand<i64>,
        shift: impl Operand<i64>,
        stride: impl Operand<i64>,
        drop_remainder: impl Operand<bool>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "WindowDataset")
            .input(input_dataset)
            .input(size)
            .input(shift)
            .input(stride)
            .input(drop_remainder)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `WindowOp`. Has no gradient.
#[track_caller]
pub fn window_op(
    g: &Graph,
    inputs: &[Output<Untyped>],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::new(g, "WindowOp")
        .inputs(inputs)
        .attr("Tinputs", &dtypes_of(inputs)[..])
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `WrapDatasetVariant`. Has no gradient.
#[track_caller]
pub fn wrap_dataset_variant(input_handle: impl Handle<Variant>) -> Output<Variant> {
    NewOp::on(&input_handle, "WrapDatasetVariant").input(input_handle).output()
}

/// `WriteAudioSummary`. Has no gradient. Options: [`WriteAudioSummary`].
#[track_caller]
pub fn write_audio_summary(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tag: impl Operand<String>,
    tensor: impl Operand<f32>,
    sample_rate: impl Operand<f32>,
) -> Operation {
    WriteAudioSummary::new().build(writer, step, tag, tensor, sample_rate)
}
options! { WriteAudioSummary {
max_outputs: i64 = "max_outputs", "3";
} }
impl WriteAudioSummary {
    /// Adds the node: see [`write_audio_summary()`].
    #[track_caller]
    pub fn build(
        &self,
        writer: impl Handle<Resource>,
        step: impl Operand<i64>,
        tag: impl Operand<String>,
        tensor: impl Operand<f32>,
        sample_rate: impl Operand<f32>,
    ) -> Operation {
        self.0
            .on(&writer, "WriteAudioSummary")
            .input(writer)
            .input(step)
            .input(tag)
            .input(tensor)
            .input(sample_rate)
            .operation()
    }
}

/// `WriteFile`. No gradient passes.
#[track_caller]
pub fn write_file(filename: impl Handle<String>, contents: impl Operand<String>) -> Operation {
    NewOp::on(&filename, "WriteFile").input(filename).input(contents).operation()
}

/// `WriteGraphSummary`. Has no gradient.
#[track_caller]
pub fn write_graph_summary(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tensor: impl Operand<String>,
) -> Operation {
    NewOp::on(&writer, "WriteGraphSummary").input(writer).input(step).input(tensor).operation()
}

/// `WriteHistogramSummary`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bool, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn write_histogram_summary<T: TensorType>(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tag: impl Operand<String>,
    values: impl Operand<T>,
) -> Operation {
    NewOp::on(&writer, "WriteHistogramSummary")
        .input(writer)
        .input(step)
        .input(tag)
        .input(values)
        .operation()
}

/// `WriteImageSummary`.
///
/// `T`: float, double, uint8, half. Has no gradient. Options: [`WriteImageSummary`].
#[track_caller]
pub fn write_image_summary<T: TensorType>(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tag: impl Operand<String>,
    tensor: impl Operand<T>,
    bad_color: impl Operand<u8>,
) -> Operation {
    WriteImageSummary::new().build(writer, step, tag, tensor, bad_color)
}
options! { WriteImageSummary {
max_images: i64 = "max_images", "3";
} }
impl WriteImageSummary {
    /// Adds the node: see [`write_image_summary()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        writer: impl Handle<Resource>,
        step: impl Operand<i64>,
        tag: impl Operand<String>,
        tensor: impl Operand<T>,
        bad_color: impl Operand<u8>,
    ) -> Operation {
        self.0
            .on(&writer, "WriteImageSummary")
            .input(writer)
            .input(step)
            .input(tag)
            .input(tensor)
            .input(bad_color)
            .operation()
    }
}

/// `WriteRawProtoSummary`. Has no gradient.
#[track_caller]
pub fn write_raw_proto_summary(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tensor: impl Operand<String>,
) -> Operation {
    NewOp::on(&writer, "WriteRawProtoSummary").input(writer).input(step).input(tensor).operation()
}

/// `WriteScalarSummary`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn write_scalar_summary<T: TensorType>(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tag: impl Operand<String>,
    value: impl Operand<T>,
) -> Operation {
    NewOp::on(&writer, "WriteScalarSummary")
        .input(writer)
        .input(step)
        .input(tag)
        .input(value)
        .operation()
}

/// `WriteSummary`. Has no gradient.
#[track_caller]
pub fn write_summary<T: TensorType>(
    writer: impl Handle<Resource>,
    step: impl Operand<i64>,
    tensor: impl Operand<T>,
    tag: impl Operand<String>,
    summary_metadata: impl Operand<String>,
) -> Operation {
    NewOp::on(&writer, "WriteSummary")
        .input(writer)
        .input(step)
        .input(tensor)
        .input(tag)
        .input(summary_metadata)
        .operation()
}

/// `Xdivy`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn xdivy<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Xdivy").input(x).input(y).output()
}

/// `XlaBroadcastHelper`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient. Returns `lhs_output`, `rhs_output`.
#[track_caller]
pub fn xla_broadcast_helper<T: TensorType, Tindices: TensorType>(
    lhs: impl Handle<T>,
    rhs: impl Operand<T>,
    broadcast_dims: impl Operand<Tindices>,
) -> (Output<T>, Output<T>) {
    let built =
        NewOp::on(&lhs, "XlaBroadcastHelper").input(lhs).input(rhs).input(broadcast_dims).build();
    (built.output(0), built.output(1))
}

/// `XlaCallModule`. Has no gradient. Options: [`XlaCallModule`].
#[track_caller]
pub fn xla_call_module(
    g: &Graph,
    args: &[Output<Untyped>],
    version: i64,
    module: &str,
    sout: &[PartialShape],
    tout: &[DType],
) -> Vec<Output<Untyped>> {
    XlaCallModule::new().build(g, args, version, module, sout, tout)
}
options! { XlaCallModule {
dim_args_spec: &[&str] = "dim_args_spec", "[]";
platforms: &[&str] = "platforms", "[]";
function_list: &[Function] = "function_list", "[]", |value| functions_attr(value);
has_token_input_output: bool = "has_token_input_output", "false";
disabled_checks: &[&str] = "disabled_checks", "[]";
use_shardy_partitioner: bool = "use_shardy_partitioner", "false";
} }
impl XlaCallModule {
    /// Adds the node: see [`xla_call_module()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        args: &[Output<Untyped>],
        version: i64,
        module: &str,
        sout: &[PartialShape],
        tout: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .new(g, "XlaCallModule")
            .inputs(args)
            .attr("Tin", &dtypes_of(args)[..])
            .attr("version", version)
            .attr("module", module)
            .attr("Sout", sout)
            .attr("Tout", tout)
            .build();
        built.outputs("output", tout.len())
    }
}

/// `XlaConv`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_conv<T: TensorType, Tindices: TensorType>(
    lhs: impl Handle<T>,
    rhs: impl Operand<T>,
    window_strides: impl Operand<Tindices>,
    padding: impl Operand<Tindices>,
    lhs_dilation: impl Operand<Tindices>,
    rhs_dilation: impl Operand<Tindices>,
    feature_group_count: impl Operand<Tindices>,
    dimension_numbers: &str,
    precision_config: &str,
) -> Output<T> {
    NewOp::on(&lhs, "XlaConv")
        .input(lhs)
        .input(rhs)
        .input(window_strides)
        .input(padding)
        .input(lhs_dilation)
        .input(rhs_dilation)
        .input(feature_group_count)
        .attr("dimension_numbers", dimension_numbers)
        .attr("precision_config", precision_config)
        .output()
}

/// `XlaConvV2`.
///
/// `LhsT`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `RhsT`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. `PreferredElementType`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient. Options: [`XlaConvV2`].
#[track_caller]
pub fn xla_conv_v2<
    PreferredElementType: TensorType,
    LhsT: TensorType,
    RhsT: TensorType,
    Tindices: TensorType,
>(
    lhs: impl Handle<LhsT>,
    rhs: impl Operand<RhsT>,
    window_strides: impl Operand<Tindices>,
    padding: impl Operand<Tindices>,
    lhs_dilation: impl Operand<Tindices>,
    rhs_dilation: impl Operand<Tindices>,
    feature_group_count: impl Operand<Tindices>,
    dimension_numbers: &str,
    precision_config: &str,
) -> Output<PreferredElementType> {
    XlaConvV2::new().build(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        feature_group_count,
        dimension_numbers,
        precision_config,
    )
}
options! { XlaConvV2 {
batch_group_count: i64 = "batch_group_count", "1";
} }
impl XlaConvV2 {
    /// Adds the node: see [`xla_conv_v2()`].
    #[track_caller]
    pub fn build<
        PreferredElementType: TensorType,
        LhsT: TensorType,
        RhsT: TensorType,
        Tindices: TensorType,
    >(
        &self,
        lhs: impl Handle<LhsT>,
        rhs: impl Operand<RhsT>,
        window_strides: impl Operand<Tindices>,
        padding: impl Operand<Tindices>,
        lhs_dilation: impl Operand<Tindices>,
        rhs_dilation: impl Operand<Tindices>,
        feature_group_count: impl Operand<Tindices>,
        dimension_numbers: &str,
        precision_config: &str,
    ) -> Output<PreferredElementType> {
        self.0
            .on(&lhs, "XlaConvV2")
            .dtype::<PreferredElementType>("preferred_element_type")
            .input(lhs)
            .input(rhs)
            .input(window_strides)
            .input(padding)
            .input(lhs_dilation)
            .input(rhs_dilation)
            .input(feature_group_count)
            .attr("dimension_numbers", dimension_numbers)
            .attr("precision_config", precision_config)
            .output()
    }
}

/// `XlaDot`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn xla_dot<T: TensorType>(
    lhs: impl Handle<T>,
    rhs: impl Operand<T>,
    dimension_numbers: &str,
    precision_config: &str,
) -> Output<T> {
    NewOp::on(&lhs, "XlaDot")
        .input(lhs)
        .input(rhs)
        .attr("dimension_numbers", dimension_numbers)
        .attr("precision_config", precision_config)
        .output()
}

/// `XlaDotV2`.
///
/// `LhsT`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `RhsT`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `PreferredElementType`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn xla_dot_v2<PreferredElementType: TensorType, LhsT: TensorType, RhsT: TensorType>(
    lhs: impl Handle<LhsT>,
    rhs: impl Operand<RhsT>,
    dimension_numbers: &str,
    precision_config: &str,
) -> Output<PreferredElementType> {
    NewOp::on(&lhs, "XlaDotV2")
        .dtype::<PreferredElementType>("preferred_element_type")
        .input(lhs)
        .input(rhs)
        .attr("dimension_numbers", dimension_numbers)
        .attr("precision_config", precision_config)
        .output()
}

/// `XlaDynamicSlice`.
///
/// `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_dynamic_slice<T: TensorType, Tindices: TensorType>(
    input: impl Handle<T>,
    start_indices: impl Operand<Tindices>,
    size_indices: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&input, "XlaDynamicSlice")
        .input(input)
        .input(start_indices)
        .input(size_indices)
        .output()
}

/// `XlaDynamicUpdateSlice`.
///
/// `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_dynamic_update_slice<T: TensorType, Tindices: TensorType>(
    input: impl Handle<T>,
    update: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&input, "XlaDynamicUpdateSlice").input(input).input(update).input(indices).output()
}

/// `XlaEinsum`.
///
/// `T`: float, complex64, bfloat16. Has no gradient.
#[track_caller]
pub fn xla_einsum<T: TensorType>(
    a: impl Handle<T>,
    b: impl Operand<T>,
    equation: &str,
) -> Output<T> {
    NewOp::on(&a, "XlaEinsum").input(a).input(b).attr("equation", equation).output()
}

/// `XlaGather`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_gather<T: TensorType, Tindices: TensorType>(
    operand: impl Handle<T>,
    start_indices: impl Operand<Tindices>,
    slice_sizes: impl Operand<Tindices>,
    dimension_numbers: &str,
    indices_are_sorted: bool,
) -> Output<T> {
    NewOp::on(&operand, "XlaGather")
        .input(operand)
        .input(start_indices)
        .input(slice_sizes)
        .attr("dimension_numbers", dimension_numbers)
        .attr("indices_are_sorted", indices_are_sorted)
        .output()
}

/// `XlaIf`. Has no gradient.
#[track_caller]
pub fn xla_if<Tcond: TensorType>(
    cond: impl Handle<Tcond>,
    inputs: &[Output<Untyped>],
    then_branch: &Function,
    else_branch: &Function,
    tout: &[DType],
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&cond, "XlaIf")
        .input(cond)
        .inputs(inputs)
        .attr("Tin", &dtypes_of(inputs)[..])
        .attr("then_branch", then_branch)
        .attr("else_branch", else_branch)
        .attr("Tout", tout)
        .build();
    built.outputs("output", tout.len())
}

/// `XlaKeyValueSort`.
///
/// `K`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient. Returns `sorted_keys`, `sorted_values`.
#[track_caller]
pub fn xla_key_value_sort<K: TensorType, V: TensorType>(
    keys: impl Handle<K>,
    values: impl Operand<V>,
) -> (Output<K>, Output<V>) {
    let built = NewOp::on(&keys, "XlaKeyValueSort").input(keys).input(values).build();
    (built.output(0), built.output(1))
}

/// `XlaOptimizationBarrier`. Has no gradient.
#[track_caller]
pub fn xla_optimization_barrier(g: &Graph, input: &[Output<Untyped>]) -> Vec<Output<Untyped>> {
    let built = NewOp::new(g, "XlaOptimizationBarrier")
        .inputs(input)
        .attr("T", &dtypes_of(input)[..])
        .build();
    built.outputs("output", input.len())
}

/// `XlaPad`.
///
/// `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_pad<T: TensorType, Tindices: TensorType>(
    input: impl Handle<T>,
    padding_value: impl Operand<T>,
    padding_low: impl Operand<Tindices>,
    padding_high: impl Operand<Tindices>,
    padding_interior: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&input, "XlaPad")
        .input(input)
        .input(padding_value)
        .input(padding_low)
        .input(padding_high)
        .input(padding_interior)
        .output()
}

/// `XlaReduce`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn xla_reduce<T: TensorType>(
    input: impl Handle<T>,
    init_value: impl Operand<T>,
    dimensions_to_reduce: &[i64],
    reducer: &Function,
) -> Output<T> {
    NewOp::on(&input, "XlaReduce")
        .input(input)
        .input(init_value)
        .attr("dimensions_to_reduce", dimensions_to_reduce)
        .attr("reducer", reducer)
        .output()
}

/// `XlaReducePrecision`.
///
/// `T`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn xla_reduce_precision<T: TensorType>(
    operand: impl Handle<T>,
    exponent_bits: i64,
    mantissa_bits: i64,
) -> Output<T> {
    NewOp::on(&operand, "XlaReducePrecision")
        .input(operand)
        .attr("exponent_bits", exponent_bits)
        .attr("mantissa_bits", mantissa_bits)
        .output()
}

/// `XlaReduceWindow`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_reduce_window<T: TensorType, Tindices: TensorType>(
    input: impl Handle<T>,
    init_value: impl Operand<T>,
    window_dimensions: impl Operand<Tindices>,
    window_strides: impl Operand<Tindices>,
    base_dilations: impl Operand<Tindices>,
    window_dilations: impl Operand<Tindices>,
    padding: impl Operand<Tindices>,
    computation: &Function,
) -> Output<T> {
    NewOp::on(&input, "XlaReduceWindow")
        .input(input)
        .input(init_value)
        .input(window_dimensions)
        .input(window_strides)
        .input(base_dilations)
        .input(window_dilations)
        .input(padding)
        .attr("computation", computation)
        .output()
}

/// `XlaRemoveDynamicDimensionSize`. Has no gradient.
#[track_caller]
pub fn xla_remove_dynamic_dimension_size<T: TensorType>(
    input: impl Handle<T>,
    dim_index: impl Operand<i32>,
) -> Output<T> {
    NewOp::on(&input, "XlaRemoveDynamicDimensionSize").input(input).input(dim_index).output()
}

/// `XlaReplicaId`. Has no gradient.
#[track_caller]
pub fn xla_replica_id(g: &Graph) -> Output<i32> {
    NewOp::new(g, "XlaReplicaId").output()
}

/// `XlaScatter`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_scatter<T: TensorType, Tindices: TensorType>(
    operand: impl Handle<T>,
    scatter_indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
    update_computation: &Function,
    dimension_numbers: &str,
    indices_are_sorted: bool,
) -> Output<T> {
    NewOp::on(&operand, "XlaScatter")
        .input(operand)
        .input(scatter_indices)
        .input(updates)
        .attr("update_computation", update_computation)
        .attr("dimension_numbers", dimension_numbers)
        .attr("indices_are_sorted", indices_are_sorted)
        .output()
}

/// `XlaSelectAndScatter`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient.
#[track_caller]
pub fn xla_select_and_scatter<T: TensorType, Tindices: TensorType>(
    operand: impl Handle<T>,
    window_dimensions: impl Operand<Tindices>,
    window_strides: impl Operand<Tindices>,
    padding: impl Operand<Tindices>,
    source: impl Operand<T>,
    init_value: impl Operand<T>,
    select: &Function,
    scatter: &Function,
) -> Output<T> {
    NewOp::on(&operand, "XlaSelectAndScatter")
        .input(operand)
        .input(window_dimensions)
        .input(window_strides)
        .input(padding)
        .input(source)
        .input(init_value)
        .attr("select", select)
        .attr("scatter", scatter)
        .output()
}

/// `XlaSetBound`. Has no gradient.
#[track_caller]
pub fn xla_set_bound(input: impl Handle<i32>, bound: impl Operand<i32>) -> Output<i32> {
    NewOp::on(&input, "XlaSetBound").input(input).input(bound).output()
}

/// `XlaSharding`. Has no gradient. Options: [`XlaSharding`].
#[track_caller]
pub fn xla_sharding<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    XlaSharding::new().build(input)
}
options! { XlaSharding {
sharding: &str = "sharding", "\"\"";
unspecified_dims: &[i64] = "unspecified_dims", "[]";
} }
impl XlaSharding {
    /// Adds the node: see [`xla_sharding()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "XlaSharding").input(input).output()
    }
}

/// `XlaSort`. Has no gradient.
#[track_caller]
pub fn xla_sort<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "XlaSort").input(input).output()
}

/// `XlaVariadicReduce`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn xla_variadic_reduce<T: TensorType>(
    g: &Graph,
    input: &[Output<T>],
    init_value: &[Output<T>],
    dimensions_to_reduce: &[i64],
    reducer: &Function,
) -> Vec<Output<T>> {
    let built = NewOp::new(g, "XlaVariadicReduce")
        .inputs(input)
        .attr("N", input.len() as i64)
        .dtype::<T>("T")
        .inputs(init_value)
        .attr("dimensions_to_reduce", dimensions_to_reduce)
        .attr("reducer", reducer)
        .build();
    built.outputs("output", input.len())
}

/// `XlaVariadicReduceV2`. Has no gradient.
#[track_caller]
pub fn xla_variadic_reduce_v2(
    g: &Graph,
    inputs: &[Output<Untyped>],
    init_values: &[Output<Untyped>],
    dimensions_to_reduce: &[i64],
    reducer: &Function,
) -> Vec<Output<Untyped>> {
    let built = NewOp::new(g, "XlaVariadicReduceV2")
        .inputs(inputs)
        .attr("T", &dtypes_of(inputs)[..])
        .inputs(init_values)
        .attr("dimensions_to_reduce", dimensions_to_reduce)
        .attr("reducer", reducer)
        .build();
    built.outputs("outputs", inputs.len())
}

/// `XlaVariadicSort`. Has no gradient.
#[track_caller]
pub fn xla_variadic_sort(
    g: &Graph,
    inputs: &[Output<Untyped>],
    dimension: impl Operand<i32>,
    comparator: &Function,
    is_stable: bool,
) -> Vec<Output<Untyped>> {
    let built = NewOp::new(g, "XlaVariadicSort")
        .inputs(inputs)
        .attr("T", &dtypes_of(inputs)[..])
        .input(dimension)
        .attr("comparator", comparator)
        .attr("is_stable", is_stable)
        .build();
    built.outputs("outputs", inputs.len())
}

/// `XlaWhile`. Has no gradient.
#[track_caller]
pub fn xla_while(
    g: &Graph,
    input: &[Output<Untyped>],
    cond: &Function,
    body: &Function,
) -> Vec<Output<Untyped>> {
    let built = NewOp::new(g, "XlaWhile")
        .inputs(input)
        .attr("T", &dtypes_of(input)[..])
        .attr("cond", cond)
        .attr("body", body)
        .build();
    built.outputs("output", input.len())
}

/// `Xlog1py`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn xlog1py<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Xlog1py").input(x).input(y).output()
}

/// `Xlogy`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn xlogy<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Xlogy").input(x).input(y).output()
}

/// `ZerosLike`: zeros of the same shape. No gradient passes.
#[track_caller]
pub fn zeros_like<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "ZerosLike").input(x).output()
}

/// `Zeta`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn zeta<T: TensorType>(x: impl Handle<T>, q: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Zeta").input(x).input(q).output()
}

/// `ZipDataset`. Has no gradient. Options: [`ZipDataset`].
#[track_caller]
pub fn zip_dataset(
    g: &Graph,
    input_datasets: &[Output<Variant>],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ZipDataset::new().build(g, input_datasets, output_types, output_shapes)
}
options! { ZipDataset {
metadata: &str = "metadata", "\"\"";
} }
impl ZipDataset {
    /// Adds the node: see [`zip_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        input_datasets: &[Output<Variant>],
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .new(g, "ZipDataset")
            .inputs(input_datasets)
            .attr("N", input_datasets.len() as i64)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}
