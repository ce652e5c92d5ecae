//! Ops I, J, K, L. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `IFFT`.
///
/// `Tcomplex`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn ifft<Tcomplex: TensorType>(input: impl Handle<Tcomplex>) -> Output<Tcomplex> {
    NewOp::on(&input, "IFFT").input(input).output()
}

/// `IFFT2D`.
///
/// `Tcomplex`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn ifft2d<Tcomplex: TensorType>(input: impl Handle<Tcomplex>) -> Output<Tcomplex> {
    NewOp::on(&input, "IFFT2D").input(input).output()
}

/// `IFFT3D`.
///
/// `Tcomplex`: complex64, complex128. Has a gradient.
#[track_caller]
pub fn ifft3d<Tcomplex: TensorType>(input: impl Handle<Tcomplex>) -> Output<Tcomplex> {
    NewOp::on(&input, "IFFT3D").input(input).output()
}

/// `IFFTND`.
///
/// `Tcomplex`: complex64, complex128. Has no gradient.
#[track_caller]
pub fn ifftnd<Tcomplex: TensorType>(
    input: impl Handle<Tcomplex>,
    fft_length: impl Operand<i32>,
    axes: impl Operand<i32>,
) -> Output<Tcomplex> {
    NewOp::on(&input, "IFFTND").input(input).input(fft_length).input(axes).output()
}

/// `IRFFT`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has a gradient.
#[track_caller]
pub fn irfft<Treal: TensorType, Tcomplex: TensorType>(
    input: impl Handle<Tcomplex>,
    fft_length: impl Operand<i32>,
) -> Output<Treal> {
    NewOp::on(&input, "IRFFT").dtype::<Treal>("Treal").input(input).input(fft_length).output()
}

/// `IRFFT2D`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has a gradient.
#[track_caller]
pub fn irfft2d<Treal: TensorType, Tcomplex: TensorType>(
    input: impl Handle<Tcomplex>,
    fft_length: impl Operand<i32>,
) -> Output<Treal> {
    NewOp::on(&input, "IRFFT2D").dtype::<Treal>("Treal").input(input).input(fft_length).output()
}

/// `IRFFT3D`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has no gradient.
#[track_caller]
pub fn irfft3d<Treal: TensorType, Tcomplex: TensorType>(
    input: impl Handle<Tcomplex>,
    fft_length: impl Operand<i32>,
) -> Output<Treal> {
    NewOp::on(&input, "IRFFT3D").dtype::<Treal>("Treal").input(input).input(fft_length).output()
}

/// `IRFFTND`.
///
/// `Tcomplex`: complex64, complex128. `Treal`: float, double. Has no gradient.
#[track_caller]
pub fn irfftnd<Treal: TensorType, Tcomplex: TensorType>(
    input: impl Handle<Tcomplex>,
    fft_length: impl Operand<i32>,
    axes: impl Operand<i32>,
) -> Output<Treal> {
    NewOp::on(&input, "IRFFTND")
        .dtype::<Treal>("Treal")
        .input(input)
        .input(fft_length)
        .input(axes)
        .output()
}

/// `Identity`: the same tensor. Has a gradient.
#[track_caller]
pub fn identity<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "Identity").input(input).output()
}

/// `IdentityN`: the same tensors. Has a gradient.
#[track_caller]
pub fn identity_n(g: &Graph, input: &[Output<Untyped>]) -> Vec<Output<Untyped>> {
    let built = NewOp::new(g, "IdentityN").inputs(input).attr("T", &dtypes_of(input)[..]).build();
    built.outputs("output", input.len())
}

/// `IdentityReader`. Has no gradient. Options: [`IdentityReader`].
#[track_caller]
pub fn identity_reader(g: &Graph) -> Output<Ref<String>> {
    IdentityReader::new().build(g)
}
options! { IdentityReader {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl IdentityReader {
    /// Adds the node: see [`identity_reader()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Ref<String>> {
        self.0.new(g, "IdentityReader").output()
    }
}

/// `IdentityReaderV2`. Has no gradient. Options: [`IdentityReaderV2`].
#[track_caller]
pub fn identity_reader_v2(g: &Graph) -> Output<Resource> {
    IdentityReaderV2::new().build(g)
}
options! { IdentityReaderV2 {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl IdentityReaderV2 {
    /// Adds the node: see [`identity_reader_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Resource> {
        self.0.new(g, "IdentityReaderV2").output()
    }
}

/// `If`. Has a gradient. Options: [`If`].
#[track_caller]
pub fn if_<Tcond: TensorType>(
    cond: impl Handle<Tcond>,
    input: &[Output<Untyped>],
    tout: &[DType],
    then_branch: &Function,
    else_branch: &Function,
) -> Vec<Output<Untyped>> {
    If::new().build(cond, input, tout, then_branch, else_branch)
}
options! { If {
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl If {
    /// Adds the node: see [`if_()`].
    #[track_caller]
    pub fn build<Tcond: TensorType>(
        &self,
        cond: impl Handle<Tcond>,
        input: &[Output<Untyped>],
        tout: &[DType],
        then_branch: &Function,
        else_branch: &Function,
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&cond, "If")
            .input(cond)
            .inputs(input)
            .attr("Tin", &dtypes_of(input)[..])
            .attr("Tout", tout)
            .attr("then_branch", then_branch)
            .attr("else_branch", else_branch)
            .build();
        built.outputs("output", tout.len())
    }
}

/// `Igamma`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn igamma<T: TensorType>(a: impl Handle<T>, x: impl Operand<T>) -> Output<T> {
    NewOp::on(&a, "Igamma").input(a).input(x).output()
}

/// `IgammaGradA`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn igamma_grad_a<T: TensorType>(a: impl Handle<T>, x: impl Operand<T>) -> Output<T> {
    NewOp::on(&a, "IgammaGradA").input(a).input(x).output()
}

/// `Igammac`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn igammac<T: TensorType>(a: impl Handle<T>, x: impl Operand<T>) -> Output<T> {
    NewOp::on(&a, "Igammac").input(a).input(x).output()
}

/// `IgnoreErrorsDataset`. Has no gradient. Options: [`IgnoreErrorsDataset`].
#[track_caller]
pub fn ignore_errors_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    IgnoreErrorsDataset::new().build(input_dataset, output_types, output_shapes)
}
options! { IgnoreErrorsDataset {
log_warning: bool = "log_warning", "false";
} }
impl IgnoreErrorsDataset {
    /// Adds the node: see [`ignore_errors_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "IgnoreErrorsDataset")
            .input(input_dataset)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Imag`.
///
/// `T`: complex64, complex128. `Tout`: float, double. Has a gradient.
#[track_caller]
pub fn imag<Tout: TensorType, T: TensorType>(input: impl Handle<T>) -> Output<Tout> {
    NewOp::on(&input, "Imag").dtype::<Tout>("Tout").input(input).output()
}

/// `ImageProjectiveTransformV2`.
///
/// `Dtype`: float, double, int32, uint8, int64, bfloat16, half. Has a gradient. Options: [`ImageProjectiveTransformV2`].
#[track_caller]
pub fn image_projective_transform_v2<Dtype: TensorType>(
    images: impl Handle<Dtype>,
    transforms: impl Operand<f32>,
    output_shape: impl Operand<i32>,
    interpolation: &str,
) -> Output<Dtype> {
    ImageProjectiveTransformV2::new().build(images, transforms, output_shape, interpolation)
}
options! { ImageProjectiveTransformV2 {
fill_mode: &str = "fill_mode", "\"CONSTANT\"";
} }
impl ImageProjectiveTransformV2 {
    /// Adds the node: see [`image_projective_transform_v2()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        images: impl Handle<Dtype>,
        transforms: impl Operand<f32>,
        output_shape: impl Operand<i32>,
        interpolation: &str,
    ) -> Output<Dtype> {
        self.0
            .on(&images, "ImageProjectiveTransformV2")
            .input(images)
            .input(transforms)
            .input(output_shape)
            .attr("interpolation", interpolation)
            .output()
    }
}

/// `ImageProjectiveTransformV3`.
///
/// `Dtype`: float, double, int32, uint8, int64, bfloat16, half. Has a gradient. Options: [`ImageProjectiveTransformV3`].
#[track_caller]
pub fn image_projective_transform_v3<Dtype: TensorType>(
    images: impl Handle<Dtype>,
    transforms: impl Operand<f32>,
    output_shape: impl Operand<i32>,
    fill_value: impl Operand<f32>,
    interpolation: &str,
) -> Output<Dtype> {
    ImageProjectiveTransformV3::new().build(
        images,
        transforms,
        output_shape,
        fill_value,
        interpolation,
    )
}
options! { ImageProjectiveTransformV3 {
fill_mode: &str = "fill_mode", "\"CONSTANT\"";
} }
impl ImageProjectiveTransformV3 {
    /// Adds the node: see [`image_projective_transform_v3()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        images: impl Handle<Dtype>,
        transforms: impl Operand<f32>,
        output_shape: impl Operand<i32>,
        fill_value: impl Operand<f32>,
        interpolation: &str,
    ) -> Output<Dtype> {
        self.0
            .on(&images, "ImageProjectiveTransformV3")
            .input(images)
            .input(transforms)
            .input(output_shape)
            .input(fill_value)
            .attr("interpolation", interpolation)
            .output()
    }
}

/// `ImageSummary`.
///
/// `T`: float, double, uint8, half. No gradient passes. Options: [`ImageSummary`].
#[track_caller]
pub fn image_summary<T: TensorType>(
    tag: impl Handle<String>,
    tensor: impl Operand<T>,
) -> Output<String> {
    ImageSummary::new().build(tag, tensor)
}
options! { ImageSummary {
max_images: i64 = "max_images", "3";
bad_color: &Tensor = "bad_color", "empty", |value| tensor_attr(value);
} }
impl ImageSummary {
    /// Adds the node: see [`image_summary()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        tag: impl Handle<String>,
        tensor: impl Operand<T>,
    ) -> Output<String> {
        self.0.on(&tag, "ImageSummary").input(tag).input(tensor).output()
    }
}

/// `ImportEvent`. Has no gradient.
#[track_caller]
pub fn import_event(writer: impl Handle<Resource>, event: impl Operand<String>) -> Operation {
    NewOp::on(&writer, "ImportEvent").input(writer).input(event).operation()
}

/// `InTopK`.
///
/// `T`: int32, int64. Has no gradient.
#[track_caller]
pub fn in_top_k<T: TensorType>(
    predictions: impl Handle<f32>,
    targets: impl Operand<T>,
    k: i64,
) -> Output<bool> {
    NewOp::on(&predictions, "InTopK").input(predictions).input(targets).attr("k", k).output()
}

/// `InTopKV2`: whether the target is among the k largest predictions.
///
/// `T`: int32, int64. Has no gradient.
#[track_caller]
pub fn in_top_k_v2<T: TensorType>(
    predictions: impl Handle<f32>,
    targets: impl Operand<T>,
    k: impl Operand<T>,
) -> Output<bool> {
    NewOp::on(&predictions, "InTopKV2").input(predictions).input(targets).input(k).output()
}

/// `InitializeTable`. No gradient passes.
#[track_caller]
pub fn initialize_table<Tkey: TensorType, Tval: TensorType>(
    table_handle: impl Handle<Ref<String>>,
    keys: impl Operand<Tkey>,
    values: impl Operand<Tval>,
) -> Operation {
    NewOp::on(&table_handle, "InitializeTable")
        .input(table_handle)
        .input(keys)
        .input(values)
        .operation()
}

/// `InitializeTableFromTextFile`. No gradient passes. Options: [`InitializeTableFromTextFile`].
#[track_caller]
pub fn initialize_table_from_text_file(
    table_handle: impl Handle<Ref<String>>,
    filename: impl Operand<String>,
    key_index: i64,
    value_index: i64,
) -> Operation {
    InitializeTableFromTextFile::new().build(table_handle, filename, key_index, value_index)
}
options! { InitializeTableFromTextFile {
vocab_size: i64 = "vocab_size", "-1";
delimiter: &str = "delimiter", "\"\\t\"";
offset: i64 = "offset", "0";
} }
impl InitializeTableFromTextFile {
    /// Adds the node: see [`initialize_table_from_text_file()`].
    #[track_caller]
    pub fn build(
        &self,
        table_handle: impl Handle<Ref<String>>,
        filename: impl Operand<String>,
        key_index: i64,
        value_index: i64,
    ) -> Operation {
        self.0
            .on(&table_handle, "InitializeTableFromTextFile")
            .input(table_handle)
            .input(filename)
            .attr("key_index", key_index)
            .attr("value_index", value_index)
            .operation()
    }
}

/// `InitializeTableFromTextFileV2`. No gradient passes. Options: [`InitializeTableFromTextFileV2`].
#[track_caller]
pub fn initialize_table_from_text_file_v2(
    table_handle: impl Handle<Resource>,
    filename: impl Operand<String>,
    key_index: i64,
    value_index: i64,
) -> Operation {
    InitializeTableFromTextFileV2::new().build(table_handle, filename, key_index, value_index)
}
options! { InitializeTableFromTextFileV2 {
vocab_size: i64 = "vocab_size", "-1";
delimiter: &str = "delimiter", "\"\\t\"";
offset: i64 = "offset", "0";
} }
impl InitializeTableFromTextFileV2 {
    /// Adds the node: see [`initialize_table_from_text_file_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        table_handle: impl Handle<Resource>,
        filename: impl Operand<String>,
        key_index: i64,
        value_index: i64,
    ) -> Operation {
        self.0
            .on(&table_handle, "InitializeTableFromTextFileV2")
            .input(table_handle)
            .input(filename)
            .attr("key_index", key_index)
            .attr("value_index", value_index)
            .operation()
    }
}

/// `InitializeTableV2`. No gradient passes.
#[track_caller]
pub fn initialize_table_v2<Tkey: TensorType, Tval: TensorType>(
    table_handle: impl Handle<Resource>,
    keys: impl Operand<Tkey>,
    values: impl Operand<Tval>,
) -> Operation {
    NewOp::on(&table_handle, "InitializeTableV2")
        .input(table_handle)
        .input(keys)
        .input(values)
        .operation()
}

/// `InterleaveDataset`. Has no gradient. Options: [`InterleaveDataset`].
#[track_caller]
pub fn interleave_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    cycle_length: impl Operand<i64>,
    block_length: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    InterleaveDataset::new().build(
        input_dataset,
        other_arguments,
        cycle_length,
        block_length,
        f,
        output_types,
        output_shapes,
    )
}
options! { InterleaveDataset {
metadata: &str = "metadata", "\"\"";
} }
impl InterleaveDataset {
    /// Adds the node: see [`interleave_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        cycle_length: impl Operand<i64>,
        block_length: impl Operand<i64>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "InterleaveDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(cycle_length)
            .input(block_length)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Inv`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn inv<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Inv").input(x).output()
}

/// `InvGrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn inv_grad<T: TensorType>(y: impl Handle<T>, dy: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "InvGrad").input(y).input(dy).output()
}

/// `Invert`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn invert<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Invert").input(x).output()
}

/// `InvertPermutation`: the inverse of a permutation.
///
/// `T`: int32, int64. No gradient passes.
#[track_caller]
pub fn invert_permutation<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "InvertPermutation").input(x).output()
}

/// `IsFinite`: whether each element is finite.
///
/// `T`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn is_finite<T: TensorType>(x: impl Handle<T>) -> Output<bool> {
    NewOp::on(&x, "IsFinite").input(x).output()
}

/// `IsInf`: whether each element is infinite.
///
/// `T`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn is_inf<T: TensorType>(x: impl Handle<T>) -> Output<bool> {
    NewOp::on(&x, "IsInf").input(x).output()
}

/// `IsNan`: whether each element is not a number.
///
/// `T`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn is_nan<T: TensorType>(x: impl Handle<T>) -> Output<bool> {
    NewOp::on(&x, "IsNan").input(x).output()
}

/// `IsVariableInitialized`. Has no gradient.
#[track_caller]
pub fn is_variable_initialized<Dtype: TensorType>(ref_: impl Handle<Ref<Dtype>>) -> Output<bool> {
    NewOp::on(&ref_, "IsVariableInitialized").input(ref_).output()
}

/// `IsotonicRegression`.
///
/// `T`: float, double, int32, int16, int8, int64, bfloat16, half. `OutputDtype`: float, double, bfloat16, half. Has a gradient. Returns `output`, `segments`.
#[track_caller]
pub fn isotonic_regression<OutputDtype: TensorType, T: TensorType>(
    input: impl Handle<T>,
) -> (Output<OutputDtype>, Output<i32>) {
    let built = NewOp::on(&input, "IsotonicRegression")
        .dtype::<OutputDtype>("output_dtype")
        .input(input)
        .build();
    (built.output(0), built.output(1))
}

/// `Iterator`. Has no gradient.
#[track_caller]
pub fn iterator(
    g: &Graph,
    shared_name: &str,
    container: &str,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    NewOp::new(g, "Iterator")
        .attr("shared_name", shared_name)
        .attr("container", container)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `IteratorFromStringHandle`. Has no gradient. Options: [`IteratorFromStringHandle`].
#[track_caller]
pub fn iterator_from_string_handle(string_handle: impl Handle<String>) -> Output<Resource> {
    IteratorFromStringHandle::new().build(string_handle)
}
options! { IteratorFromStringHandle {
output_types: &[DType] = "output_types", "[]";
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl IteratorFromStringHandle {
    /// Adds the node: see [`iterator_from_string_handle()`].
    #[track_caller]
    pub fn build(&self, string_handle: impl Handle<String>) -> Output<Resource> {
        self.0.on(&string_handle, "IteratorFromStringHandle").input(string_handle).output()
    }
}

/// `IteratorFromStringHandleV2`. Has no gradient. Options: [`IteratorFromStringHandleV2`].
#[track_caller]
pub fn iterator_from_string_handle_v2(string_handle: impl Handle<String>) -> Output<Resource> {
    IteratorFromStringHandleV2::new().build(string_handle)
}
options! { IteratorFromStringHandleV2 {
output_types: &[DType] = "output_types", "[]";
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl IteratorFromStringHandleV2 {
    /// Adds the node: see [`iterator_from_string_handle_v2()`].
    #[track_caller]
    pub fn build(&self, string_handle: impl Handle<String>) -> Output<Resource> {
        self.0.on(&string_handle, "IteratorFromStringHandleV2").input(string_handle).output()
    }
}

/// `IteratorGetDevice`. Has no gradient.
#[track_caller]
pub fn iterator_get_device(resource: impl Handle<Resource>) -> Output<String> {
    NewOp::on(&resource, "IteratorGetDevice").input(resource).output()
}

/// `IteratorGetNext`. Has no gradient.
#[track_caller]
pub fn iterator_get_next(
    iterator: impl Handle<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&iterator, "IteratorGetNext")
        .input(iterator)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .build();
    built.outputs("components", output_types.len())
}

/// `IteratorGetNextAsOptional`. Has no gradient.
#[track_caller]
pub fn iterator_get_next_as_optional(
    iterator: impl Handle<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&iterator, "IteratorGetNextAsOptional")
        .input(iterator)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `IteratorGetNextSync`. Has no gradient.
#[track_caller]
pub fn iterator_get_next_sync(
    iterator: impl Handle<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&iterator, "IteratorGetNextSync")
        .input(iterator)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .build();
    built.outputs("components", output_types.len())
}

/// `IteratorToStringHandle`. Has no gradient.
#[track_caller]
pub fn iterator_to_string_handle(resource_handle: impl Handle<Resource>) -> Output<String> {
    NewOp::on(&resource_handle, "IteratorToStringHandle").input(resource_handle).output()
}

/// `IteratorV2`. Has no gradient.
#[track_caller]
pub fn iterator_v2(
    g: &Graph,
    shared_name: &str,
    container: &str,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    NewOp::new(g, "IteratorV2")
        .attr("shared_name", shared_name)
        .attr("container", container)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `L2Loss`: half the sum of squares.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn l2_loss<T: TensorType>(t: impl Handle<T>) -> Output<T> {
    NewOp::on(&t, "L2Loss").input(t).output()
}

/// `LRN`: local response normalization.
///
/// `T`: float, bfloat16, half. Has a gradient. Options: [`LRN`].
#[track_caller]
pub fn lrn<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    LRN::new().build(input)
}
options! { LRN {
depth_radius: i64 = "depth_radius", "5";
bias: f32 = "bias", "1.0";
alpha: f32 = "alpha", "1.0";
beta: f32 = "beta", "0.5";
} }
impl LRN {
    /// Adds the node: see [`lrn()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "LRN").input(input).output()
    }
}

/// `LRNGrad`.
///
/// `T`: float, bfloat16, half. Has no gradient. Options: [`LRNGrad`].
#[track_caller]
pub fn lrn_grad<T: TensorType>(
    input_grads: impl Handle<T>,
    input_image: impl Operand<T>,
    output_image: impl Operand<T>,
) -> Output<T> {
    LRNGrad::new().build(input_grads, input_image, output_image)
}
options! { LRNGrad {
depth_radius: i64 = "depth_radius", "5";
bias: f32 = "bias", "1.0";
alpha: f32 = "alpha", "1.0";
beta: f32 = "beta", "0.5";
} }
impl LRNGrad {
    /// Adds the node: see [`lrn_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input_grads: impl Handle<T>,
        input_image: impl Operand<T>,
        output_image: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&input_grads, "LRNGrad")
            .input(input_grads)
            .input(input_image)
            .input(output_image)
            .output()
    }
}

/// `LatencyStatsDataset`. Has no gradient.
#[track_caller]
pub fn latency_stats_dataset(
    input_dataset: impl Handle<Variant>,
    tag: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "LatencyStatsDataset")
        .input(input_dataset)
        .input(tag)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `LeakyRelu`: the rectified linear unit with a slope below zero.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`LeakyRelu`].
#[track_caller]
pub fn leaky_relu<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    LeakyRelu::new().build(features)
}
options! { LeakyRelu {
alpha: f32 = "alpha", "0.2";
} }
impl LeakyRelu {
    /// Adds the node: see [`leaky_relu()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, features: impl Handle<T>) -> Output<T> {
        self.0.on(&features, "LeakyRelu").input(features).output()
    }
}

/// `LeakyReluGrad`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`LeakyReluGrad`].
#[track_caller]
pub fn leaky_relu_grad<T: TensorType>(
    gradients: impl Handle<T>,
    features: impl Operand<T>,
) -> Output<T> {
    LeakyReluGrad::new().build(gradients, features)
}
options! { LeakyReluGrad {
alpha: f32 = "alpha", "0.2";
} }
impl LeakyReluGrad {
    /// Adds the node: see [`leaky_relu_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        gradients: impl Handle<T>,
        features: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&gradients, "LeakyReluGrad").input(gradients).input(features).output()
    }
}

/// `LearnedUnigramCandidateSampler`. Has no gradient. Returns `sampled_candidates`, `true_expected_count`, `sampled_expected_count`. Options: [`LearnedUnigramCandidateSampler`].
#[track_caller]
pub fn learned_unigram_candidate_sampler(
    true_classes: impl Handle<i64>,
    num_true: i64,
    num_sampled: i64,
    unique: bool,
    range_max: i64,
) -> (Output<i64>, Output<f32>, Output<f32>) {
    LearnedUnigramCandidateSampler::new().build(
        true_classes,
        num_true,
        num_sampled,
        unique,
        range_max,
    )
}
options! { LearnedUnigramCandidateSampler {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl LearnedUnigramCandidateSampler {
    /// Adds the node: see [`learned_unigram_candidate_sampler()`].
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
            .on(&true_classes, "LearnedUnigramCandidateSampler")
            .input(true_classes)
            .attr("num_true", num_true)
            .attr("num_sampled", num_sampled)
            .attr("unique", unique)
            .attr("range_max", range_max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `LeftShift`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn left_shift<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "LeftShift").input(x).input(y).output()
}

/// `LegacyParallelInterleaveDatasetV2`. Has no gradient. Options: [`LegacyParallelInterleaveDatasetV2`].
#[track_caller]
pub fn legacy_parallel_interleave_dataset_v2(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    cycle_length: impl Operand<i64>,
    block_length: impl Operand<i64>,
    buffer_output_elements: impl Operand<i64>,
    prefetch_input_elements: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    LegacyParallelInterleaveDatasetV2::new().build(
        input_dataset,
        other_arguments,
        cycle_length,
        block_length,
        buffer_output_elements,
        prefetch_input_elements,
        f,
        output_types,
        output_shapes,
    )
}
options! { LegacyParallelInterleaveDatasetV2 {
deterministic: &str = "deterministic", "\"default\"";
metadata: &str = "metadata", "\"\"";
} }
impl LegacyParallelInterleaveDatasetV2 {
    /// Adds the node: see [`legacy_parallel_interleave_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        cycle_length: impl Operand<i64>,
        block_length: impl Operand<i64>,
        buffer_output_elements: impl Operand<i64>,
        prefetch_input_elements: impl Operand<i64>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "LegacyParallelInterleaveDatasetV2")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(cycle_length)
            .input(block_length)
            .input(buffer_output_elements)
            .input(prefetch_input_elements)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Less`: whether the first is less, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn less<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    NewOp::on(&x, "Less").input(x).input(y).output()
}

/// `LessEqual`: whether the first is less or equal, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn less_equal<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    NewOp::on(&x, "LessEqual").input(x).input(y).output()
}

/// `Lgamma`: the logarithm of the absolute gamma function.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn lgamma<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Lgamma").input(x).output()
}

/// `LinSpace`: evenly spaced numbers.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. No gradient passes.
#[track_caller]
pub fn lin_space<T: TensorType, Tidx: TensorType>(
    start: impl Handle<T>,
    stop: impl Operand<T>,
    num: impl Operand<Tidx>,
) -> Output<T> {
    NewOp::on(&start, "LinSpace").input(start).input(stop).input(num).output()
}

/// `ListDataset`. Has no gradient. Options: [`ListDataset`].
#[track_caller]
pub fn list_dataset(
    g: &Graph,
    tensors: &[Output<Untyped>],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ListDataset::new().build(g, tensors, output_types, output_shapes)
}
options! { ListDataset {
metadata: &str = "metadata", "\"\"";
} }
impl ListDataset {
    /// Adds the node: see [`list_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        tensors: &[Output<Untyped>],
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .new(g, "ListDataset")
            .inputs(tensors)
            .attr("Tinput_types", &dtypes_of(tensors)[..])
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ListDiff`.
///
/// `OutIdx`: int32, int64. Has no gradient. Returns `out`, `idx`.
#[track_caller]
pub fn list_diff<OutIdx: TensorType, T: TensorType>(
    x: impl Handle<T>,
    y: impl Operand<T>,
) -> (Output<T>, Output<OutIdx>) {
    let built = NewOp::on(&x, "ListDiff").dtype::<OutIdx>("out_idx").input(x).input(y).build();
    (built.output(0), built.output(1))
}

/// `Log`: the natural logarithm of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn log<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Log").input(x).output()
}

/// `Log1p`: the natural logarithm of 1 plus each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn log1p<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Log1p").input(x).output()
}

/// `LogMatrixDeterminant`.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Returns `sign`, `log_abs_determinant`.
#[track_caller]
pub fn log_matrix_determinant<T: TensorType>(input: impl Handle<T>) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&input, "LogMatrixDeterminant").input(input).build();
    (built.output(0), built.output(1))
}

/// `LogSoftmax`: the logarithm of the softmax along the last axis.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn log_softmax<T: TensorType>(logits: impl Handle<T>) -> Output<T> {
    NewOp::on(&logits, "LogSoftmax").input(logits).output()
}

/// `LogUniformCandidateSampler`. Has no gradient. Returns `sampled_candidates`, `true_expected_count`, `sampled_expected_count`. Options: [`LogUniformCandidateSampler`].
#[track_caller]
pub fn log_uniform_candidate_sampler(
    true_classes: impl Handle<i64>,
    num_true: i64,
    num_sampled: i64,
    unique: bool,
    range_max: i64,
) -> (Output<i64>, Output<f32>, Output<f32>) {
    LogUniformCandidateSampler::new().build(true_classes, num_true, num_sampled, unique, range_max)
}
options! { LogUniformCandidateSampler {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl LogUniformCandidateSampler {
    /// Adds the node: see [`log_uniform_candidate_sampler()`].
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
            .on(&true_classes, "LogUniformCandidateSampler")
            .input(true_classes)
            .attr("num_true", num_true)
            .attr("num_sampled", num_sampled)
            .attr("unique", unique)
            .attr("range_max", range_max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `LogicalAnd`: whether both are true. No gradient passes.
#[track_caller]
pub fn logical_and(x: impl Handle<bool>, y: impl Operand<bool>) -> Output<bool> {
    NewOp::on(&x, "LogicalAnd").input(x).input(y).output()
}

/// `LogicalNot`: whether each is false. No gradient passes.
#[track_caller]
pub fn logical_not(x: impl Handle<bool>) -> Output<bool> {
    NewOp::on(&x, "LogicalNot").input(x).output()
}

/// `LogicalOr`: whether either is true. No gradient passes.
#[track_caller]
pub fn logical_or(x: impl Handle<bool>, y: impl Operand<bool>) -> Output<bool> {
    NewOp::on(&x, "LogicalOr").input(x).input(y).output()
}

/// `LookupTableExport`. Has no gradient. Returns `keys`, `values`.
#[track_caller]
pub fn lookup_table_export<Tkeys: TensorType, Tvalues: TensorType>(
    table_handle: impl Handle<Ref<String>>,
) -> (Output<Tkeys>, Output<Tvalues>) {
    let built = NewOp::on(&table_handle, "LookupTableExport")
        .dtype::<Tkeys>("Tkeys")
        .dtype::<Tvalues>("Tvalues")
        .input(table_handle)
        .build();
    (built.output(0), built.output(1))
}

/// `LookupTableExportV2`. Has no gradient. Returns `keys`, `values`.
#[track_caller]
pub fn lookup_table_export_v2<Tkeys: TensorType, Tvalues: TensorType>(
    table_handle: impl Handle<Resource>,
) -> (Output<Tkeys>, Output<Tvalues>) {
    let built = NewOp::on(&table_handle, "LookupTableExportV2")
        .dtype::<Tkeys>("Tkeys")
        .dtype::<Tvalues>("Tvalues")
        .input(table_handle)
        .build();
    (built.output(0), built.output(1))
}

/// `LookupTableFind`. No gradient passes.
#[track_caller]
pub fn lookup_table_find<Tin: TensorType, Tout: TensorType>(
    table_handle: impl Handle<Ref<String>>,
    keys: impl Operand<Tin>,
    default_value: impl Operand<Tout>,
) -> Output<Tout> {
    NewOp::on(&table_handle, "LookupTableFind")
        .input(table_handle)
        .input(keys)
        .input(default_value)
        .output()
}

/// `LookupTableFindV2`. No gradient passes.
#[track_caller]
pub fn lookup_table_find_v2<Tin: TensorType, Tout: TensorType>(
    table_handle: impl Handle<Resource>,
    keys: impl Operand<Tin>,
    default_value: impl Operand<Tout>,
) -> Output<Tout> {
    NewOp::on(&table_handle, "LookupTableFindV2")
        .input(table_handle)
        .input(keys)
        .input(default_value)
        .output()
}

/// `LookupTableImport`. Has no gradient.
#[track_caller]
pub fn lookup_table_import<Tin: TensorType, Tout: TensorType>(
    table_handle: impl Handle<Ref<String>>,
    keys: impl Operand<Tin>,
    values: impl Operand<Tout>,
) -> Operation {
    NewOp::on(&table_handle, "LookupTableImport")
        .input(table_handle)
        .input(keys)
        .input(values)
        .operation()
}

/// `LookupTableImportV2`. Has no gradient.
#[track_caller]
pub fn lookup_table_import_v2<Tin: TensorType, Tout: TensorType>(
    table_handle: impl Handle<Resource>,
    keys: impl Operand<Tin>,
    values: impl Operand<Tout>,
) -> Operation {
    NewOp::on(&table_handle, "LookupTableImportV2")
        .input(table_handle)
        .input(keys)
        .input(values)
        .operation()
}

/// `LookupTableInsert`. No gradient passes.
#[track_caller]
pub fn lookup_table_insert<Tin: TensorType, Tout: TensorType>(
    table_handle: impl Handle<Ref<String>>,
    keys: impl Operand<Tin>,
    values: impl Operand<Tout>,
) -> Operation {
    NewOp::on(&table_handle, "LookupTableInsert")
        .input(table_handle)
        .input(keys)
        .input(values)
        .operation()
}

/// `LookupTableInsertV2`. No gradient passes.
#[track_caller]
pub fn lookup_table_insert_v2<Tin: TensorType, Tout: TensorType>(
    table_handle: impl Handle<Resource>,
    keys: impl Operand<Tin>,
    values: impl Operand<Tout>,
) -> Operation {
    NewOp::on(&table_handle, "LookupTableInsertV2")
        .input(table_handle)
        .input(keys)
        .input(values)
        .operation()
}

/// `LookupTableRemoveV2`. Has no gradient.
#[track_caller]
pub fn lookup_table_remove_v2<Tin: TensorType>(
    table_handle: impl Handle<Resource>,
    keys: impl Operand<Tin>,
) -> Operation {
    NewOp::on(&table_handle, "LookupTableRemoveV2").input(table_handle).input(keys).operation()
}

/// `LookupTableSize`. No gradient passes.
#[track_caller]
pub fn lookup_table_size(table_handle: impl Handle<Ref<String>>) -> Output<i64> {
    NewOp::on(&table_handle, "LookupTableSize").input(table_handle).output()
}

/// `LookupTableSizeV2`. No gradient passes.
#[track_caller]
pub fn lookup_table_size_v2(table_handle: impl Handle<Resource>) -> Output<i64> {
    NewOp::on(&table_handle, "LookupTableSizeV2").input(table_handle).output()
}

/// `LoopCond`. Has no gradient.
#[track_caller]
pub fn loop_cond(input: impl Handle<bool>) -> Output<bool> {
    NewOp::on(&input, "LoopCond").input(input).output()
}

/// `LowerBound`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `OutType`: int32, int64. Has no gradient.
#[track_caller]
pub fn lower_bound<OutType: TensorType, T: TensorType>(
    sorted_inputs: impl Handle<T>,
    values: impl Operand<T>,
) -> Output<OutType> {
    NewOp::on(&sorted_inputs, "LowerBound")
        .dtype::<OutType>("out_type")
        .input(sorted_inputs)
        .input(values)
        .output()
}

/// `Lu`.
///
/// `T`: float, double, complex64, complex128. `OutputIdxType`: int32, int64. Has no gradient. Returns `lu`, `p`.
#[track_caller]
pub fn lu<OutputIdxType: TensorType, T: TensorType>(
    input: impl Handle<T>,
) -> (Output<T>, Output<OutputIdxType>) {
    let built =
        NewOp::on(&input, "Lu").dtype::<OutputIdxType>("output_idx_type").input(input).build();
    (built.output(0), built.output(1))
}
