//! Ops S. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `SampleDistortedBoundingBox`.
///
/// `T`: int32, uint8, int16, int8, int64. No gradient passes. Returns `begin`, `size`, `bboxes`. Options: [`SampleDistortedBoundingBox`].
#[track_caller]
pub fn sample_distorted_bounding_box<T: TensorType>(
    image_size: impl Handle<T>,
    bounding_boxes: impl Operand<f32>,
) -> (Output<T>, Output<T>, Output<f32>) {
    SampleDistortedBoundingBox::new().build(image_size, bounding_boxes)
}
options! { SampleDistortedBoundingBox {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
min_object_covered: f32 = "min_object_covered", "0.1";
aspect_ratio_range: &[f32] = "aspect_ratio_range", "[0.75, 1.33]";
area_range: &[f32] = "area_range", "[0.05, 1.0]";
max_attempts: i64 = "max_attempts", "100";
use_image_if_no_bounding_boxes: bool = "use_image_if_no_bounding_boxes", "false";
} }
impl SampleDistortedBoundingBox {
    /// Adds the node: see [`sample_distorted_bounding_box()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        image_size: impl Handle<T>,
        bounding_boxes: impl Operand<f32>,
    ) -> (Output<T>, Output<T>, Output<f32>) {
        let built = self
            .0
            .on(&image_size, "SampleDistortedBoundingBox")
            .input(image_size)
            .input(bounding_boxes)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `SampleDistortedBoundingBoxV2`.
///
/// `T`: int32, uint8, int16, int8, int64. No gradient passes. Returns `begin`, `size`, `bboxes`. Options: [`SampleDistortedBoundingBoxV2`].
#[track_caller]
pub fn sample_distorted_bounding_box_v2<T: TensorType>(
    image_size: impl Handle<T>,
    bounding_boxes: impl Operand<f32>,
    min_object_covered: impl Operand<f32>,
) -> (Output<T>, Output<T>, Output<f32>) {
    SampleDistortedBoundingBoxV2::new().build(image_size, bounding_boxes, min_object_covered)
}
options! { SampleDistortedBoundingBoxV2 {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
aspect_ratio_range: &[f32] = "aspect_ratio_range", "[0.75, 1.33]";
area_range: &[f32] = "area_range", "[0.05, 1.0]";
max_attempts: i64 = "max_attempts", "100";
use_image_if_no_bounding_boxes: bool = "use_image_if_no_bounding_boxes", "false";
} }
impl SampleDistortedBoundingBoxV2 {
    /// Adds the node: see [`sample_distorted_bounding_box_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        image_size: impl Handle<T>,
        bounding_boxes: impl Operand<f32>,
        min_object_covered: impl Operand<f32>,
    ) -> (Output<T>, Output<T>, Output<f32>) {
        let built = self
            .0
            .on(&image_size, "SampleDistortedBoundingBoxV2")
            .input(image_size)
            .input(bounding_boxes)
            .input(min_object_covered)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `SamplingDataset`. Has no gradient.
#[track_caller]
pub fn sampling_dataset(
    input_dataset: impl Handle<Variant>,
    rate: impl Operand<f32>,
    seed: impl Operand<i64>,
    seed2: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "SamplingDataset")
        .input(input_dataset)
        .input(rate)
        .input(seed)
        .input(seed2)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `Save`. No gradient passes.
#[track_caller]
pub fn save(
    filename: impl Handle<String>,
    tensor_names: impl Operand<String>,
    data: &[Output<Untyped>],
) -> Operation {
    NewOp::on(&filename, "Save")
        .input(filename)
        .input(tensor_names)
        .inputs(data)
        .attr("T", &dtypes_of(data)[..])
        .operation()
}

/// `SaveSlices`. No gradient passes.
#[track_caller]
pub fn save_slices(
    filename: impl Handle<String>,
    tensor_names: impl Operand<String>,
    shapes_and_slices: impl Operand<String>,
    data: &[Output<Untyped>],
) -> Operation {
    NewOp::on(&filename, "SaveSlices")
        .input(filename)
        .input(tensor_names)
        .input(shapes_and_slices)
        .inputs(data)
        .attr("T", &dtypes_of(data)[..])
        .operation()
}

/// `SaveV2`: writes tensors to a checkpoint. No gradient passes.
#[track_caller]
pub fn save_v2(
    prefix: impl Handle<String>,
    tensor_names: impl Operand<String>,
    shape_and_slices: impl Operand<String>,
    tensors: &[Output<Untyped>],
) -> Operation {
    NewOp::on(&prefix, "SaveV2")
        .input(prefix)
        .input(tensor_names)
        .input(shape_and_slices)
        .inputs(tensors)
        .attr("dtypes", &dtypes_of(tensors)[..])
        .operation()
}

/// `ScalarSummary`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn scalar_summary<T: TensorType>(
    tags: impl Handle<String>,
    values: impl Operand<T>,
) -> Output<String> {
    NewOp::on(&tags, "ScalarSummary").input(tags).input(values).output()
}

/// `ScaleAndTranslate`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half. Has a gradient. Options: [`ScaleAndTranslate`].
#[track_caller]
pub fn scale_and_translate<T: TensorType>(
    images: impl Handle<T>,
    size: impl Operand<i32>,
    scale: impl Operand<f32>,
    translation: impl Operand<f32>,
) -> Output<f32> {
    ScaleAndTranslate::new().build(images, size, scale, translation)
}
options! { ScaleAndTranslate {
kernel_type: &str = "kernel_type", "\"lanczos3\"";
antialias: bool = "antialias", "true";
} }
impl ScaleAndTranslate {
    /// Adds the node: see [`scale_and_translate()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        images: impl Handle<T>,
        size: impl Operand<i32>,
        scale: impl Operand<f32>,
        translation: impl Operand<f32>,
    ) -> Output<f32> {
        self.0
            .on(&images, "ScaleAndTranslate")
            .input(images)
            .input(size)
            .input(scale)
            .input(translation)
            .output()
    }
}

/// `ScaleAndTranslateGrad`.
///
/// `T`: float. Has no gradient. Options: [`ScaleAndTranslateGrad`].
#[track_caller]
pub fn scale_and_translate_grad<T: TensorType>(
    grads: impl Handle<T>,
    original_image: impl Operand<T>,
    scale: impl Operand<f32>,
    translation: impl Operand<f32>,
) -> Output<T> {
    ScaleAndTranslateGrad::new().build(grads, original_image, scale, translation)
}
options! { ScaleAndTranslateGrad {
kernel_type: &str = "kernel_type", "\"lanczos3\"";
antialias: bool = "antialias", "true";
} }
impl ScaleAndTranslateGrad {
    /// Adds the node: see [`scale_and_translate_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        grads: impl Handle<T>,
        original_image: impl Operand<T>,
        scale: impl Operand<f32>,
        translation: impl Operand<f32>,
    ) -> Output<T> {
        self.0
            .on(&grads, "ScaleAndTranslateGrad")
            .input(grads)
            .input(original_image)
            .input(scale)
            .input(translation)
            .output()
    }
}

/// `ScanDataset`. Has no gradient. Options: [`ScanDataset`].
#[track_caller]
pub fn scan_dataset(
    input_dataset: impl Handle<Variant>,
    initial_state: &[Output<Untyped>],
    other_arguments: &[Output<Untyped>],
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ScanDataset::new().build(
        input_dataset,
        initial_state,
        other_arguments,
        f,
        output_types,
        output_shapes,
    )
}
options! { ScanDataset {
preserve_cardinality: bool = "preserve_cardinality", "false";
use_default_device: bool = "use_default_device", "true";
metadata: &str = "metadata", "\"\"";
} }
impl ScanDataset {
    /// Adds the node: see [`scan_dataset()`].
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
            .on(&input_dataset, "ScanDataset")
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

/// `ScatterAdd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. No gradient passes. Options: [`ScatterAdd`].
#[track_caller]
pub fn scatter_add<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterAdd::new().build(ref_, indices, updates)
}
options! { ScatterAdd {
use_locking: bool = "use_locking", "false";
} }
impl ScatterAdd {
    /// Adds the node: see [`scatter_add()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterAdd").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterDiv`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. No gradient passes. Options: [`ScatterDiv`].
#[track_caller]
pub fn scatter_div<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterDiv::new().build(ref_, indices, updates)
}
options! { ScatterDiv {
use_locking: bool = "use_locking", "false";
} }
impl ScatterDiv {
    /// Adds the node: see [`scatter_div()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterDiv").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterMax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient. Options: [`ScatterMax`].
#[track_caller]
pub fn scatter_max<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterMax::new().build(ref_, indices, updates)
}
options! { ScatterMax {
use_locking: bool = "use_locking", "false";
} }
impl ScatterMax {
    /// Adds the node: see [`scatter_max()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterMax").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterMin`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient. Options: [`ScatterMin`].
#[track_caller]
pub fn scatter_min<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterMin::new().build(ref_, indices, updates)
}
options! { ScatterMin {
use_locking: bool = "use_locking", "false";
} }
impl ScatterMin {
    /// Adds the node: see [`scatter_min()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterMin").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterMul`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. No gradient passes. Options: [`ScatterMul`].
#[track_caller]
pub fn scatter_mul<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterMul::new().build(ref_, indices, updates)
}
options! { ScatterMul {
use_locking: bool = "use_locking", "false";
} }
impl ScatterMul {
    /// Adds the node: see [`scatter_mul()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterMul").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterNd`: zeros with updates at index vectors.
///
/// `Tindices`: int32, int16, int64. Has a gradient. Options: [`ScatterNd`].
#[track_caller]
pub fn scatter_nd<T: TensorType, Tindices: TensorType>(
    indices: impl Handle<Tindices>,
    updates: impl Operand<T>,
    shape: impl Operand<Tindices>,
) -> Output<T> {
    ScatterNd::new().build(indices, updates, shape)
}
options! { ScatterNd {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNd {
    /// Adds the node: see [`scatter_nd()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        indices: impl Handle<Tindices>,
        updates: impl Operand<T>,
        shape: impl Operand<Tindices>,
    ) -> Output<T> {
        self.0.on(&indices, "ScatterNd").input(indices).input(updates).input(shape).output()
    }
}

/// `ScatterNdAdd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. No gradient passes. Options: [`ScatterNdAdd`].
#[track_caller]
pub fn scatter_nd_add<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterNdAdd::new().build(ref_, indices, updates)
}
options! { ScatterNdAdd {
use_locking: bool = "use_locking", "false";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNdAdd {
    /// Adds the node: see [`scatter_nd_add()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterNdAdd").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterNdMax`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient. Options: [`ScatterNdMax`].
#[track_caller]
pub fn scatter_nd_max<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterNdMax::new().build(ref_, indices, updates)
}
options! { ScatterNdMax {
use_locking: bool = "use_locking", "false";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNdMax {
    /// Adds the node: see [`scatter_nd_max()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterNdMax").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterNdMin`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has no gradient. Options: [`ScatterNdMin`].
#[track_caller]
pub fn scatter_nd_min<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterNdMin::new().build(ref_, indices, updates)
}
options! { ScatterNdMin {
use_locking: bool = "use_locking", "false";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNdMin {
    /// Adds the node: see [`scatter_nd_min()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterNdMin").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterNdNonAliasingAdd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient. Options: [`ScatterNdNonAliasingAdd`].
#[track_caller]
pub fn scatter_nd_non_aliasing_add<T: TensorType, Tindices: TensorType>(
    input: impl Handle<T>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<T> {
    ScatterNdNonAliasingAdd::new().build(input, indices, updates)
}
options! { ScatterNdNonAliasingAdd {
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNdNonAliasingAdd {
    /// Adds the node: see [`scatter_nd_non_aliasing_add()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        input: impl Handle<T>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&input, "ScatterNdNonAliasingAdd")
            .input(input)
            .input(indices)
            .input(updates)
            .output()
    }
}

/// `ScatterNdSub`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. No gradient passes. Options: [`ScatterNdSub`].
#[track_caller]
pub fn scatter_nd_sub<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterNdSub::new().build(ref_, indices, updates)
}
options! { ScatterNdSub {
use_locking: bool = "use_locking", "false";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNdSub {
    /// Adds the node: see [`scatter_nd_sub()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterNdSub").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterNdUpdate`.
///
/// `Tindices`: int32, int64. No gradient passes. Options: [`ScatterNdUpdate`].
#[track_caller]
pub fn scatter_nd_update<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterNdUpdate::new().build(ref_, indices, updates)
}
options! { ScatterNdUpdate {
use_locking: bool = "use_locking", "true";
bad_indices_policy: &str = "bad_indices_policy", "\"\"";
} }
impl ScatterNdUpdate {
    /// Adds the node: see [`scatter_nd_update()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterNdUpdate").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterSub`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. No gradient passes. Options: [`ScatterSub`].
#[track_caller]
pub fn scatter_sub<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterSub::new().build(ref_, indices, updates)
}
options! { ScatterSub {
use_locking: bool = "use_locking", "false";
} }
impl ScatterSub {
    /// Adds the node: see [`scatter_sub()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterSub").input(ref_).input(indices).input(updates).output()
    }
}

/// `ScatterUpdate`.
///
/// `Tindices`: int32, int64. Has no gradient. Options: [`ScatterUpdate`].
#[track_caller]
pub fn scatter_update<T: TensorType, Tindices: TensorType>(
    ref_: impl Handle<Ref<T>>,
    indices: impl Operand<Tindices>,
    updates: impl Operand<T>,
) -> Output<Ref<T>> {
    ScatterUpdate::new().build(ref_, indices, updates)
}
options! { ScatterUpdate {
use_locking: bool = "use_locking", "true";
} }
impl ScatterUpdate {
    /// Adds the node: see [`scatter_update()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        indices: impl Operand<Tindices>,
        updates: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "ScatterUpdate").input(ref_).input(indices).input(updates).output()
    }
}

/// `SegmentMax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn segment_max<T: TensorType, Tindices: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&data, "SegmentMax").input(data).input(segment_ids).output()
}

/// `SegmentMean`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn segment_mean<T: TensorType, Tindices: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&data, "SegmentMean").input(data).input(segment_ids).output()
}

/// `SegmentMin`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn segment_min<T: TensorType, Tindices: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&data, "SegmentMin").input(data).input(segment_ids).output()
}

/// `SegmentProd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn segment_prod<T: TensorType, Tindices: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&data, "SegmentProd").input(data).input(segment_ids).output()
}

/// `SegmentSum`: the sum of the rows of each segment.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn segment_sum<T: TensorType, Tindices: TensorType>(
    data: impl Handle<T>,
    segment_ids: impl Operand<Tindices>,
) -> Output<T> {
    NewOp::on(&data, "SegmentSum").input(data).input(segment_ids).output()
}

/// `Select`: elements of the first where a condition is true, of the second elsewhere.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, bfloat16, uint16, complex128, half, resource, variant, uint32, uint64. Has a gradient.
#[track_caller]
pub fn select<T: TensorType>(
    condition: impl Handle<bool>,
    t: impl Operand<T>,
    e: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&condition, "Select").input(condition).input(t).input(e).output()
}

/// `SelectV2`: elements of the first where a condition is true, of the second elsewhere, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, bfloat16, uint16, complex128, half, resource, variant, uint32, uint64. Has a gradient.
#[track_caller]
pub fn select_v2<T: TensorType>(
    condition: impl Handle<bool>,
    t: impl Operand<T>,
    e: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&condition, "SelectV2").input(condition).input(t).input(e).output()
}

/// `SelfAdjointEig`.
///
/// `T`: float, double. Has no gradient.
#[track_caller]
pub fn self_adjoint_eig<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "SelfAdjointEig").input(input).output()
}

/// `SelfAdjointEigV2`.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Returns `e`, `v`. Options: [`SelfAdjointEigV2`].
#[track_caller]
pub fn self_adjoint_eig_v2<T: TensorType>(input: impl Handle<T>) -> (Output<T>, Output<T>) {
    SelfAdjointEigV2::new().build(input)
}
options! { SelfAdjointEigV2 {
compute_v: bool = "compute_v", "true";
} }
impl SelfAdjointEigV2 {
    /// Adds the node: see [`self_adjoint_eig_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> (Output<T>, Output<T>) {
        let built = self.0.on(&input, "SelfAdjointEigV2").input(input).build();
        (built.output(0), built.output(1))
    }
}

/// `Selu`: the scaled exponential linear unit.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn selu<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    NewOp::on(&features, "Selu").input(features).output()
}

/// `SeluGrad`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn selu_grad<T: TensorType>(gradients: impl Handle<T>, outputs: impl Operand<T>) -> Output<T> {
    NewOp::on(&gradients, "SeluGrad").input(gradients).input(outputs).output()
}

/// `SerializeIterator`. Has no gradient. Options: [`SerializeIterator`].
#[track_caller]
pub fn serialize_iterator(resource_handle: impl Handle<Resource>) -> Output<Variant> {
    SerializeIterator::new().build(resource_handle)
}
options! { SerializeIterator {
external_state_policy: i64 = "external_state_policy", "0";
} }
impl SerializeIterator {
    /// Adds the node: see [`serialize_iterator()`].
    #[track_caller]
    pub fn build(&self, resource_handle: impl Handle<Resource>) -> Output<Variant> {
        self.0.on(&resource_handle, "SerializeIterator").input(resource_handle).output()
    }
}

/// `SerializeManySparse`.
///
/// `OutType`: string, variant. Has no gradient.
#[track_caller]
pub fn serialize_many_sparse<OutType: TensorType, T: TensorType>(
    sparse_indices: impl Operand<i64>,
    sparse_values: impl Handle<T>,
    sparse_shape: impl Operand<i64>,
) -> Output<OutType> {
    NewOp::on(&sparse_values, "SerializeManySparse")
        .dtype::<OutType>("out_type")
        .input(sparse_indices)
        .input(sparse_values)
        .input(sparse_shape)
        .output()
}

/// `SerializeSparse`.
///
/// `OutType`: string, variant. Has no gradient.
#[track_caller]
pub fn serialize_sparse<OutType: TensorType, T: TensorType>(
    sparse_indices: impl Operand<i64>,
    sparse_values: impl Handle<T>,
    sparse_shape: impl Operand<i64>,
) -> Output<OutType> {
    NewOp::on(&sparse_values, "SerializeSparse")
        .dtype::<OutType>("out_type")
        .input(sparse_indices)
        .input(sparse_values)
        .input(sparse_shape)
        .output()
}

/// `SerializeTensor`. No gradient passes.
#[track_caller]
pub fn serialize_tensor<T: TensorType>(tensor: impl Handle<T>) -> Output<String> {
    NewOp::on(&tensor, "SerializeTensor").input(tensor).output()
}

/// `SetSize`.
///
/// `T`: int32, uint8, int16, int8, string, int64, uint16. No gradient passes. Options: [`SetSize`].
#[track_caller]
pub fn set_size<T: TensorType>(
    set_indices: impl Operand<i64>,
    set_values: impl Handle<T>,
    set_shape: impl Operand<i64>,
) -> Output<i32> {
    SetSize::new().build(set_indices, set_values, set_shape)
}
options! { SetSize {
validate_indices: bool = "validate_indices", "true";
} }
impl SetSize {
    /// Adds the node: see [`set_size()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        set_indices: impl Operand<i64>,
        set_values: impl Handle<T>,
        set_shape: impl Operand<i64>,
    ) -> Output<i32> {
        self.0
            .on(&set_values, "SetSize")
            .input(set_indices)
            .input(set_values)
            .input(set_shape)
            .output()
    }
}

/// `Shape`: the shape of a tensor.
///
/// `OutType`: int32, int64. No gradient passes.
#[track_caller]
pub fn shape<OutType: TensorType, T: TensorType>(input: impl Handle<T>) -> Output<OutType> {
    NewOp::on(&input, "Shape").dtype::<OutType>("out_type").input(input).output()
}

/// `ShapeN`: the shapes of tensors.
///
/// `OutType`: int32, int64. No gradient passes.
#[track_caller]
pub fn shape_n<OutType: TensorType, T: TensorType>(
    g: &Graph,
    input: &[Output<T>],
) -> Vec<Output<OutType>> {
    let built = NewOp::new(g, "ShapeN")
        .dtype::<OutType>("out_type")
        .inputs(input)
        .attr("N", input.len() as i64)
        .dtype::<T>("T")
        .build();
    built.outputs("output", input.len())
}

/// `ShardDataset`. Has no gradient. Options: [`ShardDataset`].
#[track_caller]
pub fn shard_dataset(
    input_dataset: impl Handle<Variant>,
    num_shards: impl Operand<i64>,
    index: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ShardDataset::new().build(input_dataset, num_shards, index, output_types, output_shapes)
}
options! { ShardDataset {
require_non_empty: bool = "require_non_empty", "false";
metadata: &str = "metadata", "\"\"";
} }
impl ShardDataset {
    /// Adds the node: see [`shard_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        num_shards: impl Operand<i64>,
        index: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ShardDataset")
            .input(input_dataset)
            .input(num_shards)
            .input(index)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ShardedFilename`. Has no gradient.
#[track_caller]
pub fn sharded_filename(
    basename: impl Handle<String>,
    shard: impl Operand<i32>,
    num_shards: impl Operand<i32>,
) -> Output<String> {
    NewOp::on(&basename, "ShardedFilename").input(basename).input(shard).input(num_shards).output()
}

/// `ShardedFilespec`. Has no gradient.
#[track_caller]
pub fn sharded_filespec(
    basename: impl Handle<String>,
    num_shards: impl Operand<i32>,
) -> Output<String> {
    NewOp::on(&basename, "ShardedFilespec").input(basename).input(num_shards).output()
}

/// `ShuffleAndRepeatDataset`. Has no gradient. Options: [`ShuffleAndRepeatDataset`].
#[track_caller]
pub fn shuffle_and_repeat_dataset(
    input_dataset: impl Handle<Variant>,
    buffer_size: impl Operand<i64>,
    seed: impl Operand<i64>,
    seed2: impl Operand<i64>,
    count: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ShuffleAndRepeatDataset::new().build(
        input_dataset,
        buffer_size,
        seed,
        seed2,
        count,
        output_types,
        output_shapes,
    )
}
options! { ShuffleAndRepeatDataset {
reshuffle_each_iteration: bool = "reshuffle_each_iteration", "true";
metadata: &str = "metadata", "\"\"";
} }
impl ShuffleAndRepeatDataset {
    /// Adds the node: see [`shuffle_and_repeat_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        buffer_size: impl Operand<i64>,
        seed: impl Operand<i64>,
        seed2: impl Operand<i64>,
        count: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ShuffleAndRepeatDataset")
            .input(input_dataset)
            .input(buffer_size)
            .input(seed)
            .input(seed2)
            .input(count)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ShuffleAndRepeatDatasetV2`. Has no gradient. Options: [`ShuffleAndRepeatDatasetV2`].
#[track_caller]
pub fn shuffle_and_repeat_dataset_v2(
    input_dataset: impl Handle<Variant>,
    buffer_size: impl Operand<i64>,
    seed: impl Operand<i64>,
    seed2: impl Operand<i64>,
    count: impl Operand<i64>,
    seed_generator: impl Operand<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ShuffleAndRepeatDatasetV2::new().build(
        input_dataset,
        buffer_size,
        seed,
        seed2,
        count,
        seed_generator,
        output_types,
        output_shapes,
    )
}
options! { ShuffleAndRepeatDatasetV2 {
reshuffle_each_iteration: bool = "reshuffle_each_iteration", "true";
metadata: &str = "metadata", "\"\"";
} }
impl ShuffleAndRepeatDatasetV2 {
    /// Adds the node: see [`shuffle_and_repeat_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        buffer_size: impl Operand<i64>,
        seed: impl Operand<i64>,
        seed2: impl Operand<i64>,
        count: impl Operand<i64>,
        seed_generator: impl Operand<Resource>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ShuffleAndRepeatDatasetV2")
            .input(input_dataset)
            .input(buffer_size)
            .input(seed)
            .input(seed2)
            .input(count)
            .input(seed_generator)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ShuffleDataset`. Has no gradient. Options: [`ShuffleDataset`].
#[track_caller]
pub fn shuffle_dataset(
    input_dataset: impl Handle<Variant>,
    buffer_size: impl Operand<i64>,
    seed: impl Operand<i64>,
    seed2: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ShuffleDataset::new().build(
        input_dataset,
        buffer_size,
        seed,
        seed2,
        output_types,
        output_shapes,
    )
}
options! { ShuffleDataset {
reshuffle_each_iteration: bool = "reshuffle_each_iteration", "true";
metadata: &str = "metadata", "\"\"";
} }
impl ShuffleDataset {
    /// Adds the node: see [`shuffle_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        buffer_size: impl Operand<i64>,
        seed: impl Operand<i64>,
        seed2: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ShuffleDataset")
            .input(input_dataset)
            .input(buffer_size)
            .input(seed)
            .input(seed2)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ShuffleDatasetV2`. Has no gradient. Options: [`ShuffleDatasetV2`].
#[track_caller]
pub fn shuffle_dataset_v2(
    input_dataset: impl Handle<Variant>,
    buffer_size: impl Operand<i64>,
    seed_generator: impl Operand<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ShuffleDatasetV2::new().build(
        input_dataset,
        buffer_size,
        seed_generator,
        output_types,
        output_shapes,
    )
}
options! { ShuffleDatasetV2 {
metadata: &str = "metadata", "\"\"";
} }
impl ShuffleDatasetV2 {
    /// Adds the node: see [`shuffle_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        buffer_size: impl Operand<i64>,
        seed_generator: impl Operand<Resource>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ShuffleDatasetV2")
            .input(input_dataset)
            .input(buffer_size)
            .input(seed_generator)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ShuffleDatasetV3`. Has no gradient. Options: [`ShuffleDatasetV3`].
#[track_caller]
pub fn shuffle_dataset_v3(
    input_dataset: impl Handle<Variant>,
    buffer_size: impl Operand<i64>,
    seed: impl Operand<i64>,
    seed2: impl Operand<i64>,
    seed_generator: impl Operand<Resource>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ShuffleDatasetV3::new().build(
        input_dataset,
        buffer_size,
        seed,
        seed2,
        seed_generator,
        output_types,
        output_shapes,
    )
}
options! { ShuffleDatasetV3 {
reshuffle_each_iteration: bool = "reshuffle_each_iteration", "true";
metadata: &str = "metadata", "\"\"";
} }
impl ShuffleDatasetV3 {
    /// Adds the node: see [`shuffle_dataset_v3()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        buffer_size: impl Operand<i64>,
        seed: impl Operand<i64>,
        seed2: impl Operand<i64>,
        seed_generator: impl Operand<Resource>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ShuffleDatasetV3")
            .input(input_dataset)
            .input(buffer_size)
            .input(seed)
            .input(seed2)
            .input(seed_generator)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Sigmoid`: the logistic function of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sigmoid<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Sigmoid").input(x).output()
}

/// `SigmoidGrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sigmoid_grad<T: TensorType>(y: impl Handle<T>, dy: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "SigmoidGrad").input(y).input(dy).output()
}

/// `Sign`: -1, 0 or 1 by the sign of each element.
///
/// `T`: float, double, int32, int16, int8, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sign<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Sign").input(x).output()
}

/// `Sin`: the sine of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sin<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Sin").input(x).output()
}

/// `Sinh`: the hyperbolic sine of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sinh<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Sinh").input(x).output()
}

/// `Size`: the number of elements.
///
/// `OutType`: int32, int64. No gradient passes.
#[track_caller]
pub fn size<OutType: TensorType, T: TensorType>(input: impl Handle<T>) -> Output<OutType> {
    NewOp::on(&input, "Size").dtype::<OutType>("out_type").input(input).output()
}

/// `SkipDataset`. Has no gradient. Options: [`SkipDataset`].
#[track_caller]
pub fn skip_dataset(
    input_dataset: impl Handle<Variant>,
    count: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    SkipDataset::new().build(input_dataset, count, output_types, output_shapes)
}
options! { SkipDataset {
metadata: &str = "metadata", "\"\"";
} }
impl SkipDataset {
    /// Adds the node: see [`skip_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        count: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "SkipDataset")
            .input(input_dataset)
            .input(count)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Slice`: a block of a tensor.
///
/// `Index`: int32, int64. Has a gradient.
#[track_caller]
pub fn slice<T: TensorType, Index: TensorType>(
    input: impl Handle<T>,
    begin: impl Operand<Index>,
    size: impl Operand<Index>,
) -> Output<T> {
    NewOp::on(&input, "Slice").input(input).input(begin).input(size).output()
}

/// `SlidingWindowDataset`. Has no gradient. Options: [`SlidingWindowDataset`].
#[track_caller]
pub fn sliding_window_dataset(
    input_dataset: impl Handle<Variant>,
    window_size: impl Operand<i64>,
    window_shift: impl Operand<i64>,
    window_stride: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    SlidingWindowDataset::new().build(
        input_dataset,
        window_size,
        window_shift,
        window_stride,
        output_types,
        output_shapes,
    )
}
options! { SlidingWindowDataset {
drop_remainder: bool = "drop_remainder", "true";
} }
impl SlidingWindowDataset {
    /// Adds the node: see [`sliding_window_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        window_size: impl Operand<i64>,
        window_shift: impl Operand<i64>,
        window_stride: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "SlidingWindowDataset")
            .input(input_dataset)
            .input(window_size)
            .input(window_shift)
            .input(window_stride)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `Snapshot`. Has no gradient.
#[track_caller]
pub fn snapshot<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "Snapshot").input(input).output()
}

/// `Softmax`: the softmax along the last axis.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn softmax<T: TensorType>(logits: impl Handle<T>) -> Output<T> {
    NewOp::on(&logits, "Softmax").input(logits).output()
}

/// `SoftmaxCrossEntropyWithLogits`: the cross entropy of logits with class probabilities.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Returns `loss`, `backprop`.
#[track_caller]
pub fn softmax_cross_entropy_with_logits<T: TensorType>(
    features: impl Handle<T>,
    labels: impl Operand<T>,
) -> (Output<T>, Output<T>) {
    let built =
        NewOp::on(&features, "SoftmaxCrossEntropyWithLogits").input(features).input(labels).build();
    (built.output(0), built.output(1))
}

/// `Softplus`: log(1 + exp(x)) of each element.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn softplus<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    NewOp::on(&features, "Softplus").input(features).output()
}

/// `SoftplusGrad`.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn softplus_grad<T: TensorType>(
    gradients: impl Handle<T>,
    features: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&gradients, "SoftplusGrad").input(gradients).input(features).output()
}

/// `Softsign`: x / (1 + |x|) of each element.
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn softsign<T: TensorType>(features: impl Handle<T>) -> Output<T> {
    NewOp::on(&features, "Softsign").input(features).output()
}

/// `SoftsignGrad`.
///
/// `T`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn softsign_grad<T: TensorType>(
    gradients: impl Handle<T>,
    features: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&gradients, "SoftsignGrad").input(gradients).input(features).output()
}

/// `SpaceToBatch`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tpaddings`: int32, int64. Has a gradient.
#[track_caller]
pub fn space_to_batch<T: TensorType, Tpaddings: TensorType>(
    input: impl Handle<T>,
    paddings: impl Operand<Tpaddings>,
    block_size: i64,
) -> Output<T> {
    NewOp::on(&input, "SpaceToBatch")
        .input(input)
        .input(paddings)
        .attr("block_size", block_size)
        .output()
}

/// `SpaceToBatchND`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `TblockShape`: int32, int64. `Tpaddings`: int32, int64. Has a gradient.
#[track_caller]
pub fn space_to_batch_nd<T: TensorType, TblockShape: TensorType, Tpaddings: TensorType>(
    input: impl Handle<T>,
    block_shape: impl Operand<TblockShape>,
    paddings: impl Operand<Tpaddings>,
) -> Output<T> {
    NewOp::on(&input, "SpaceToBatchND").input(input).input(block_shape).input(paddings).output()
}

/// `SpaceToDepth`: moves blocks of pixels into channels. Has a gradient. Options: [`SpaceToDepth`].
#[track_caller]
pub fn space_to_depth<T: TensorType>(input: impl Handle<T>, block_size: i64) -> Output<T> {
    SpaceToDepth::new().build(input, block_size)
}
options! { SpaceToDepth {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl SpaceToDepth {
    /// Adds the node: see [`space_to_depth()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>, block_size: i64) -> Output<T> {
        self.0.on(&input, "SpaceToDepth").input(input).attr("block_size", block_size).output()
    }
}

/// `SparseAccumulatorApplyGradient`.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn sparse_accumulator_apply_gradient<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    local_step: impl Operand<i64>,
    gradient_indices: impl Operand<i64>,
    gradient_values: impl Operand<Dtype>,
    gradient_shape: impl Operand<i64>,
    has_known_shape: bool,
) -> Operation {
    NewOp::on(&handle, "SparseAccumulatorApplyGradient")
        .input(handle)
        .input(local_step)
        .input(gradient_indices)
        .input(gradient_values)
        .input(gradient_shape)
        .attr("has_known_shape", has_known_shape)
        .operation()
}

/// `SparseAccumulatorTakeGradient`.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient. Returns `indices`, `values`, `shape`.
#[track_caller]
pub fn sparse_accumulator_take_gradient<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    num_required: impl Operand<i32>,
) -> (Output<i64>, Output<Dtype>, Output<i64>) {
    let built = NewOp::on(&handle, "SparseAccumulatorTakeGradient")
        .dtype::<Dtype>("dtype")
        .input(handle)
        .input(num_required)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseAdd`.
///
/// `T`: float, double, int32, int16, int8, complex64, int64, complex128. `Treal`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient. Returns `sum_indices`, `sum_values`, `sum_shape`.
#[track_caller]
pub fn sparse_add<T: TensorType, Treal: TensorType>(
    a_indices: impl Operand<i64>,
    a_values: impl Handle<T>,
    a_shape: impl Operand<i64>,
    b_indices: impl Operand<i64>,
    b_values: impl Operand<T>,
    b_shape: impl Operand<i64>,
    thresh: impl Operand<Treal>,
) -> (Output<i64>, Output<T>, Output<i64>) {
    let built = NewOp::on(&a_values, "SparseAdd")
        .input(a_indices)
        .input(a_values)
        .input(a_shape)
        .input(b_indices)
        .input(b_values)
        .input(b_shape)
        .input(thresh)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseAddGrad`.
///
/// `T`: float, double, int32, int16, int8, complex64, int64, complex128. Has a gradient. Returns `a_val_grad`, `b_val_grad`.
#[track_caller]
pub fn sparse_add_grad<T: TensorType>(
    backprop_val_grad: impl Handle<T>,
    a_indices: impl Operand<i64>,
    b_indices: impl Operand<i64>,
    sum_indices: impl Operand<i64>,
) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&backprop_val_grad, "SparseAddGrad")
        .input(backprop_val_grad)
        .input(a_indices)
        .input(b_indices)
        .input(sum_indices)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseApplyAdadelta`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyAdadelta`].
#[track_caller]
pub fn sparse_apply_adadelta<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    accum_update: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyAdadelta::new().build(var, accum, accum_update, lr, rho, epsilon, grad, indices)
}
options! { SparseApplyAdadelta {
use_locking: bool = "use_locking", "false";
} }
impl SparseApplyAdadelta {
    /// Adds the node: see [`sparse_apply_adadelta()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        accum_update: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyAdadelta")
            .input(var)
            .input(accum)
            .input(accum_update)
            .input(lr)
            .input(rho)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .output()
    }
}

/// `SparseApplyAdagrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyAdagrad`].
#[track_caller]
pub fn sparse_apply_adagrad<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyAdagrad::new().build(var, accum, lr, grad, indices)
}
options! { SparseApplyAdagrad {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl SparseApplyAdagrad {
    /// Adds the node: see [`sparse_apply_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(indices)
            .output()
    }
}

/// `SparseApplyAdagradDA`.
///
/// `T`: float, double. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyAdagradDA`].
#[track_caller]
pub fn sparse_apply_adagrad_da<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    gradient_accumulator: impl Operand<Ref<T>>,
    gradient_squared_accumulator: impl Operand<Ref<T>>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    global_step: impl Operand<i64>,
) -> Output<Ref<T>> {
    SparseApplyAdagradDA::new().build(
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
options! { SparseApplyAdagradDA {
use_locking: bool = "use_locking", "false";
} }
impl SparseApplyAdagradDA {
    /// Adds the node: see [`sparse_apply_adagrad_da()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        gradient_accumulator: impl Operand<Ref<T>>,
        gradient_squared_accumulator: impl Operand<Ref<T>>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        global_step: impl Operand<i64>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyAdagradDA")
            .input(var)
            .input(gradient_accumulator)
            .input(gradient_squared_accumulator)
            .input(grad)
            .input(indices)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(global_step)
            .output()
    }
}

/// `SparseApplyAdagradV2`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyAdagradV2`].
#[track_caller]
pub fn sparse_apply_adagrad_v2<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyAdagradV2::new().build(var, accum, lr, epsilon, grad, indices)
}
options! { SparseApplyAdagradV2 {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl SparseApplyAdagradV2 {
    /// Adds the node: see [`sparse_apply_adagrad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyAdagradV2")
            .input(var)
            .input(accum)
            .input(lr)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .output()
    }
}

/// `SparseApplyCenteredRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyCenteredRMSProp`].
#[track_caller]
pub fn sparse_apply_centered_rms_prop<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    mg: impl Operand<Ref<T>>,
    ms: impl Operand<Ref<T>>,
    mom: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyCenteredRMSProp::new()
        .build(var, mg, ms, mom, lr, rho, momentum, epsilon, grad, indices)
}
options! { SparseApplyCenteredRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl SparseApplyCenteredRMSProp {
    /// Adds the node: see [`sparse_apply_centered_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        mg: impl Operand<Ref<T>>,
        ms: impl Operand<Ref<T>>,
        mom: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyCenteredRMSProp")
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
            .output()
    }
}

/// `SparseApplyFtrl`.
///
/// `T`: float, double, bfloat16, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyFtrl`].
#[track_caller]
pub fn sparse_apply_ftrl<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    linear: impl Operand<Ref<T>>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Output<Ref<T>> {
    SparseApplyFtrl::new().build(var, accum, linear, grad, indices, lr, l1, l2, lr_power)
}
options! { SparseApplyFtrl {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl SparseApplyFtrl {
    /// Adds the node: see [`sparse_apply_ftrl()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        linear: impl Operand<Ref<T>>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyFtrl")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(indices)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(lr_power)
            .output()
    }
}

/// `SparseApplyFtrlV2`.
///
/// `T`: float, double, bfloat16, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyFtrlV2`].
#[track_caller]
pub fn sparse_apply_ftrl_v2<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    linear: impl Operand<Ref<T>>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    l2_shrinkage: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Output<Ref<T>> {
    SparseApplyFtrlV2::new().build(
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
options! { SparseApplyFtrlV2 {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl SparseApplyFtrlV2 {
    /// Adds the node: see [`sparse_apply_ftrl_v2()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        linear: impl Operand<Ref<T>>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        l2_shrinkage: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyFtrlV2")
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
            .output()
    }
}

/// `SparseApplyMomentum`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyMomentum`].
#[track_caller]
pub fn sparse_apply_momentum<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
    momentum: impl Operand<T>,
) -> Output<Ref<T>> {
    SparseApplyMomentum::new().build(var, accum, lr, grad, indices, momentum)
}
options! { SparseApplyMomentum {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl SparseApplyMomentum {
    /// Adds the node: see [`sparse_apply_momentum()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
        momentum: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyMomentum")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(indices)
            .input(momentum)
            .output()
    }
}

/// `SparseApplyProximalAdagrad`.
///
/// `T`: float, double. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyProximalAdagrad`].
#[track_caller]
pub fn sparse_apply_proximal_adagrad<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyProximalAdagrad::new().build(var, accum, lr, l1, l2, grad, indices)
}
options! { SparseApplyProximalAdagrad {
use_locking: bool = "use_locking", "false";
} }
impl SparseApplyProximalAdagrad {
    /// Adds the node: see [`sparse_apply_proximal_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyProximalAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(grad)
            .input(indices)
            .output()
    }
}

/// `SparseApplyProximalGradientDescent`.
///
/// `T`: float, double. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyProximalGradientDescent`].
#[track_caller]
pub fn sparse_apply_proximal_gradient_descent<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    alpha: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyProximalGradientDescent::new().build(var, alpha, l1, l2, grad, indices)
}
options! { SparseApplyProximalGradientDescent {
use_locking: bool = "use_locking", "false";
} }
impl SparseApplyProximalGradientDescent {
    /// Adds the node: see [`sparse_apply_proximal_gradient_descent()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        alpha: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyProximalGradientDescent")
            .input(var)
            .input(alpha)
            .input(l1)
            .input(l2)
            .input(grad)
            .input(indices)
            .output()
    }
}

/// `SparseApplyRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has no gradient. Options: [`SparseApplyRMSProp`].
#[track_caller]
pub fn sparse_apply_rms_prop<T: TensorType, Tindices: TensorType>(
    var: impl Handle<Ref<T>>,
    ms: impl Operand<Ref<T>>,
    mom: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
    indices: impl Operand<Tindices>,
) -> Output<Ref<T>> {
    SparseApplyRMSProp::new().build(var, ms, mom, lr, rho, momentum, epsilon, grad, indices)
}
options! { SparseApplyRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl SparseApplyRMSProp {
    /// Adds the node: see [`sparse_apply_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        ms: impl Operand<Ref<T>>,
        mom: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
        indices: impl Operand<Tindices>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "SparseApplyRMSProp")
            .input(var)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .input(indices)
            .output()
    }
}

/// `SparseBincount`.
///
/// `T`: float, double, int32, int64. `Tidx`: int32, int64. Has no gradient. Options: [`SparseBincount`].
#[track_caller]
pub fn sparse_bincount<Tidx: TensorType, T: TensorType>(
    indices: impl Operand<i64>,
    values: impl Operand<Tidx>,
    dense_shape: impl Operand<i64>,
    size: impl Operand<Tidx>,
    weights: impl Handle<T>,
) -> Output<T> {
    SparseBincount::new().build(indices, values, dense_shape, size, weights)
}
options! { SparseBincount {
binary_output: bool = "binary_output", "false";
} }
impl SparseBincount {
    /// Adds the node: see [`sparse_bincount()`].
    #[track_caller]
    pub fn build<Tidx: TensorType, T: TensorType>(
        &self,
        indices: impl Operand<i64>,
        values: impl Operand<Tidx>,
        dense_shape: impl Operand<i64>,
        size: impl Operand<Tidx>,
        weights: impl Handle<T>,
    ) -> Output<T> {
        self.0
            .on(&weights, "SparseBincount")
            .input(indices)
            .input(values)
            .input(dense_shape)
            .input(size)
            .input(weights)
            .output()
    }
}

/// `SparseConcat`. No gradient passes. Returns `output_indices`, `output_values`, `output_shape`.
#[track_caller]
pub fn sparse_concat<T: TensorType>(
    g: &Graph,
    indices: &[Output<i64>],
    values: &[Output<T>],
    shapes: &[Output<i64>],
    concat_dim: i64,
) -> (Output<i64>, Output<T>, Output<i64>) {
    let built = NewOp::new(g, "SparseConcat")
        .inputs(indices)
        .attr("N", indices.len() as i64)
        .inputs(values)
        .dtype::<T>("T")
        .inputs(shapes)
        .attr("concat_dim", concat_dim)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseConditionalAccumulator`. Has no gradient. Options: [`SparseConditionalAccumulator`].
#[track_caller]
pub fn sparse_conditional_accumulator(
    g: &Graph,
    dtype: DType,
    shape: impl Dims,
) -> Output<Ref<String>> {
    SparseConditionalAccumulator::new().build(g, dtype, shape)
}
options! { SparseConditionalAccumulator {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
reduction_type: &str = "reduction_type", "\"MEAN\"";
} }
impl SparseConditionalAccumulator {
    /// Adds the node: see [`sparse_conditional_accumulator()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtype: DType, shape: impl Dims) -> Output<Ref<String>> {
        self.0
            .new(g, "SparseConditionalAccumulator")
            .attr("dtype", dtype)
            .attr("shape", &shape.to_partial())
            .output()
    }
}

/// `SparseCountSparseOutput`.
///
/// `T`: int32, int64. `OutputType`: float, double, int32, int64. Has no gradient. Returns `output_indices`, `output_values`, `output_dense_shape`. Options: [`SparseCountSparseOutput`].
#[track_caller]
pub fn sparse_count_sparse_output<T: TensorType, OutputType: TensorType>(
    indices: impl Operand<i64>,
    values: impl Handle<T>,
    dense_shape: impl Operand<i64>,
    weights: impl Operand<OutputType>,
    binary_output: bool,
) -> (Output<i64>, Output<OutputType>, Output<i64>) {
    SparseCountSparseOutput::new().build(indices, values, dense_shape, weights, binary_output)
}
options! { SparseCountSparseOutput {
minlength: i64 = "minlength", "-1";
maxlength: i64 = "maxlength", "-1";
} }
impl SparseCountSparseOutput {
    /// Adds the node: see [`sparse_count_sparse_output()`].
    #[track_caller]
    pub fn build<T: TensorType, OutputType: TensorType>(
        &self,
        indices: impl Operand<i64>,
        values: impl Handle<T>,
        dense_shape: impl Operand<i64>,
        weights: impl Operand<OutputType>,
        binary_output: bool,
    ) -> (Output<i64>, Output<OutputType>, Output<i64>) {
        let built = self
            .0
            .on(&values, "SparseCountSparseOutput")
            .input(indices)
            .input(values)
            .input(dense_shape)
            .input(weights)
            .attr("binary_output", binary_output)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `SparseCross`.
///
/// `DenseTypes`: string, int64. `OutType`: string, int64. `SparseTypes`: string, int64. Has no gradient. Returns `output_indices`, `output_values`, `output_shape`.
#[track_caller]
pub fn sparse_cross<OutType: TensorType>(
    g: &Graph,
    indices: &[Output<i64>],
    values: &[Output<Untyped>],
    shapes: &[Output<i64>],
    dense_inputs: &[Output<Untyped>],
    hashed_output: bool,
    num_buckets: i64,
    hash_key: i64,
    internal_type: DType,
) -> (Output<i64>, Output<OutType>, Output<i64>) {
    let built = NewOp::new(g, "SparseCross")
        .dtype::<OutType>("out_type")
        .inputs(indices)
        .attr("N", indices.len() as i64)
        .inputs(values)
        .attr("sparse_types", &dtypes_of(values)[..])
        .inputs(shapes)
        .inputs(dense_inputs)
        .attr("dense_types", &dtypes_of(dense_inputs)[..])
        .attr("hashed_output", hashed_output)
        .attr("num_buckets", num_buckets)
        .attr("hash_key", hash_key)
        .attr("internal_type", internal_type)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseCrossHashed`.
///
/// `DenseTypes`: string, int64. `SparseTypes`: string, int64. Has no gradient. Returns `output_indices`, `output_values`, `output_shape`.
#[track_caller]
pub fn sparse_cross_hashed(
    g: &Graph,
    indices: &[Output<i64>],
    values: &[Output<Untyped>],
    shapes: &[Output<i64>],
    dense_inputs: &[Output<Untyped>],
    num_buckets: impl Operand<i64>,
    strong_hash: impl Operand<bool>,
    salt: impl Operand<i64>,
) -> (Output<i64>, Output<i64>, Output<i64>) {
    let built = NewOp::new(g, "SparseCrossHashed")
        .inputs(indices)
        .attr("N", indices.len() as i64)
        .inputs(values)
        .attr("sparse_types", &dtypes_of(values)[..])
        .inputs(shapes)
        .inputs(dense_inputs)
        .attr("dense_types", &dtypes_of(dense_inputs)[..])
        .input(num_buckets)
        .input(strong_hash)
        .input(salt)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseCrossV2`.
///
/// `DenseTypes`: string, int64. `SparseTypes`: string, int64. Has no gradient. Returns `output_indices`, `output_values`, `output_shape`.
#[track_caller]
pub fn sparse_cross_v2(
    g: &Graph,
    indices: &[Output<i64>],
    values: &[Output<Untyped>],
    shapes: &[Output<i64>],
    dense_inputs: &[Output<Untyped>],
    sep: impl Operand<String>,
) -> (Output<i64>, Output<String>, Output<i64>) {
    let built = NewOp::new(g, "SparseCrossV2")
        .inputs(indices)
        .attr("N", indices.len() as i64)
        .inputs(values)
        .attr("sparse_types", &dtypes_of(values)[..])
        .inputs(shapes)
        .inputs(dense_inputs)
        .attr("dense_types", &dtypes_of(dense_inputs)[..])
        .input(sep)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseDenseCwiseAdd`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn sparse_dense_cwise_add<T: TensorType>(
    sp_indices: impl Operand<i64>,
    sp_values: impl Handle<T>,
    sp_shape: impl Operand<i64>,
    dense: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&sp_values, "SparseDenseCwiseAdd")
        .input(sp_indices)
        .input(sp_values)
        .input(sp_shape)
        .input(dense)
        .output()
}

/// `SparseDenseCwiseDiv`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn sparse_dense_cwise_div<T: TensorType>(
    sp_indices: impl Operand<i64>,
    sp_values: impl Handle<T>,
    sp_shape: impl Operand<i64>,
    dense: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&sp_values, "SparseDenseCwiseDiv")
        .input(sp_indices)
        .input(sp_values)
        .input(sp_shape)
        .input(dense)
        .output()
}

/// `SparseDenseCwiseMul`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn sparse_dense_cwise_mul<T: TensorType>(
    sp_indices: impl Operand<i64>,
    sp_values: impl Handle<T>,
    sp_shape: impl Operand<i64>,
    dense: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&sp_values, "SparseDenseCwiseMul")
        .input(sp_indices)
        .input(sp_values)
        .input(sp_shape)
        .input(dense)
        .output()
}

/// Outputs of [`sparse_fill_empty_rows`].
#[derive(Clone, Debug)]
pub struct SparseFillEmptyRowsOutputs<T: TensorType> {
    /// `output_indices`.
    pub output_indices: Output<i64>,
    /// `output_values`.
    pub output_values: Output<T>,
    /// `empty_row_indicator`.
    pub empty_row_indicator: Output<bool>,
    /// `reverse_index_map`.
    pub reverse_index_map: Output<i64>,
}

/// `SparseFillEmptyRows`. Has a gradient. Returns `output_indices`, `output_values`, `empty_row_indicator`, `reverse_index_map`.
#[track_caller]
pub fn sparse_fill_empty_rows<T: TensorType>(
    indices: impl Operand<i64>,
    values: impl Handle<T>,
    dense_shape: impl Operand<i64>,
    default_value: impl Operand<T>,
) -> SparseFillEmptyRowsOutputs<T> {
    let built = NewOp::on(&values, "SparseFillEmptyRows")
        .input(indices)
        .input(values)
        .input(dense_shape)
        .input(default_value)
        .build();
    SparseFillEmptyRowsOutputs {
        output_indices: built.output(0),
        output_values: built.output(1),
        empty_row_indicator: built.output(2),
        reverse_index_map: built.output(3),
    }
}

/// `SparseFillEmptyRowsGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient. Returns `d_values`, `d_default_value`.
#[track_caller]
pub fn sparse_fill_empty_rows_grad<T: TensorType>(
    reverse_index_map: impl Operand<i64>,
    grad_values: impl Handle<T>,
) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&grad_values, "SparseFillEmptyRowsGrad")
        .input(reverse_index_map)
        .input(grad_values)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseMatMul`.
///
/// `Ta`: float, bfloat16. `Tb`: float, bfloat16. Has a gradient. Options: [`SparseMatMul`].
#[track_caller]
pub fn sparse_mat_mul<Ta: TensorType, Tb: TensorType>(
    a: impl Handle<Ta>,
    b: impl Operand<Tb>,
) -> Output<f32> {
    SparseMatMul::new().build(a, b)
}
options! { SparseMatMul {
transpose_a: bool = "transpose_a", "false";
transpose_b: bool = "transpose_b", "false";
a_is_sparse: bool = "a_is_sparse", "false";
b_is_sparse: bool = "b_is_sparse", "false";
} }
impl SparseMatMul {
    /// Adds the node: see [`sparse_mat_mul()`].
    #[track_caller]
    pub fn build<Ta: TensorType, Tb: TensorType>(
        &self,
        a: impl Handle<Ta>,
        b: impl Operand<Tb>,
    ) -> Output<f32> {
        self.0.on(&a, "SparseMatMul").input(a).input(b).output()
    }
}

/// `SparseReduceMax`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient. Options: [`SparseReduceMax`].
#[track_caller]
pub fn sparse_reduce_max<T: TensorType>(
    input_indices: impl Operand<i64>,
    input_values: impl Handle<T>,
    input_shape: impl Operand<i64>,
    reduction_axes: impl Operand<i32>,
) -> Output<T> {
    SparseReduceMax::new().build(input_indices, input_values, input_shape, reduction_axes)
}
options! { SparseReduceMax {
keep_dims: bool = "keep_dims", "false";
} }
impl SparseReduceMax {
    /// Adds the node: see [`sparse_reduce_max()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input_indices: impl Operand<i64>,
        input_values: impl Handle<T>,
        input_shape: impl Operand<i64>,
        reduction_axes: impl Operand<i32>,
    ) -> Output<T> {
        self.0
            .on(&input_values, "SparseReduceMax")
            .input(input_indices)
            .input(input_values)
            .input(input_shape)
            .input(reduction_axes)
            .output()
    }
}

/// `SparseReduceMaxSparse`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient. Returns `output_indices`, `output_values`, `output_shape`. Options: [`SparseReduceMaxSparse`].
#[track_caller]
pub fn sparse_reduce_max_sparse<T: TensorType>(
    input_indices: impl Operand<i64>,
    input_values: impl Handle<T>,
    input_shape: impl Operand<i64>,
    reduction_axes: impl Operand<i32>,
) -> (Output<i64>, Output<T>, Output<i64>) {
    SparseReduceMaxSparse::new().build(input_indices, input_values, input_shape, reduction_axes)
}
options! { SparseReduceMaxSparse {
keep_dims: bool = "keep_dims", "false";
} }
impl SparseReduceMaxSparse {
    /// Adds the node: see [`sparse_reduce_max_sparse()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input_indices: impl Operand<i64>,
        input_values: impl Handle<T>,
        input_shape: impl Operand<i64>,
        reduction_axes: impl Operand<i32>,
    ) -> (Output<i64>, Output<T>, Output<i64>) {
        let built = self
            .0
            .on(&input_values, "SparseReduceMaxSparse")
            .input(input_indices)
            .input(input_values)
            .input(input_shape)
            .input(reduction_axes)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `SparseReduceSum`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient. Options: [`SparseReduceSum`].
#[track_caller]
pub fn sparse_reduce_sum<T: TensorType>(
    input_indices: impl Operand<i64>,
    input_values: impl Handle<T>,
    input_shape: impl Operand<i64>,
    reduction_axes: impl Operand<i32>,
) -> Output<T> {
    SparseReduceSum::new().build(input_indices, input_values, input_shape, reduction_axes)
}
options! { SparseReduceSum {
keep_dims: bool = "keep_dims", "false";
} }
impl SparseReduceSum {
    /// Adds the node: see [`sparse_reduce_sum()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input_indices: impl Operand<i64>,
        input_values: impl Handle<T>,
        input_shape: impl Operand<i64>,
        reduction_axes: impl Operand<i32>,
    ) -> Output<T> {
        self.0
            .on(&input_values, "SparseReduceSum")
            .input(input_indices)
            .input(input_values)
            .input(input_shape)
            .input(reduction_axes)
            .output()
    }
}

/// `SparseReduceSumSparse`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient. Returns `output_indices`, `output_values`, `output_shape`. Options: [`SparseReduceSumSparse`].
#[track_caller]
pub fn sparse_reduce_sum_sparse<T: TensorType>(
    input_indices: impl Operand<i64>,
    input_values: impl Handle<T>,
    input_shape: impl Operand<i64>,
    reduction_axes: impl Operand<i32>,
) -> (Output<i64>, Output<T>, Output<i64>) {
    SparseReduceSumSparse::new().build(input_indices, input_values, input_shape, reduction_axes)
}
options! { SparseReduceSumSparse {
keep_dims: bool = "keep_dims", "false";
} }
impl SparseReduceSumSparse {
    /// Adds the node: see [`sparse_reduce_sum_sparse()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input_indices: impl Operand<i64>,
        input_values: impl Handle<T>,
        input_shape: impl Operand<i64>,
        reduction_axes: impl Operand<i32>,
    ) -> (Output<i64>, Output<T>, Output<i64>) {
        let built = self
            .0
            .on(&input_values, "SparseReduceSumSparse")
            .input(input_indices)
            .input(input_values)
            .input(input_shape)
            .input(reduction_axes)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `SparseReorder`. Has a gradient. Returns `output_indices`, `output_values`.
#[track_caller]
pub fn sparse_reorder<T: TensorType>(
    input_indices: impl Operand<i64>,
    input_values: impl Handle<T>,
    input_shape: impl Operand<i64>,
) -> (Output<i64>, Output<T>) {
    let built = NewOp::on(&input_values, "SparseReorder")
        .input(input_indices)
        .input(input_values)
        .input(input_shape)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseReshape`. Has no gradient. Returns `output_indices`, `output_shape`.
#[track_caller]
pub fn sparse_reshape(
    input_indices: impl Handle<i64>,
    input_shape: impl Operand<i64>,
    new_shape: impl Operand<i64>,
) -> (Output<i64>, Output<i64>) {
    let built = NewOp::on(&input_indices, "SparseReshape")
        .input(input_indices)
        .input(input_shape)
        .input(new_shape)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSegmentMean`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has a gradient. Options: [`SparseSegmentMean`].
#[track_caller]
pub fn sparse_segment_mean<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    data: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
) -> Output<T> {
    SparseSegmentMean::new().build(data, indices, segment_ids)
}
options! { SparseSegmentMean {
sparse_gradient: bool = "sparse_gradient", "false";
} }
impl SparseSegmentMean {
    /// Adds the node: see [`sparse_segment_mean()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
        &self,
        data: impl Handle<T>,
        indices: impl Operand<Tidx>,
        segment_ids: impl Operand<Tsegmentids>,
    ) -> Output<T> {
        self.0.on(&data, "SparseSegmentMean").input(data).input(indices).input(segment_ids).output()
    }
}

/// `SparseSegmentMeanGrad`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has no gradient.
#[track_caller]
pub fn sparse_segment_mean_grad<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    grad: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    output_dim0: impl Operand<i32>,
) -> Output<T> {
    NewOp::on(&grad, "SparseSegmentMeanGrad")
        .input(grad)
        .input(indices)
        .input(segment_ids)
        .input(output_dim0)
        .output()
}

/// `SparseSegmentMeanGradV2`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has no gradient. Returns `output`, `sorted_unique_indices`.
#[track_caller]
pub fn sparse_segment_mean_grad_v2<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    grad: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    dense_output_dim0: impl Operand<i32>,
) -> (Output<T>, Output<Tidx>) {
    let built = NewOp::on(&grad, "SparseSegmentMeanGradV2")
        .input(grad)
        .input(indices)
        .input(segment_ids)
        .input(dense_output_dim0)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSegmentMeanWithNumSegments`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tnumsegments`: int32, int64. `Tsegmentids`: int32, int64. Has a gradient. Options: [`SparseSegmentMeanWithNumSegments`].
#[track_caller]
pub fn sparse_segment_mean_with_num_segments<
    T: TensorType,
    Tidx: TensorType,
    Tnumsegments: TensorType,
    Tsegmentids: TensorType,
>(
    data: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    SparseSegmentMeanWithNumSegments::new().build(data, indices, segment_ids, num_segments)
}
options! { SparseSegmentMeanWithNumSegments {
sparse_gradient: bool = "sparse_gradient", "false";
} }
impl SparseSegmentMeanWithNumSegments {
    /// Adds the node: see [`sparse_segment_mean_with_num_segments()`].
    #[track_caller]
    pub fn build<
        T: TensorType,
        Tidx: TensorType,
        Tnumsegments: TensorType,
        Tsegmentids: TensorType,
    >(
        &self,
        data: impl Handle<T>,
        indices: impl Operand<Tidx>,
        segment_ids: impl Operand<Tsegmentids>,
        num_segments: impl Operand<Tnumsegments>,
    ) -> Output<T> {
        self.0
            .on(&data, "SparseSegmentMeanWithNumSegments")
            .input(data)
            .input(indices)
            .input(segment_ids)
            .input(num_segments)
            .output()
    }
}

/// `SparseSegmentSqrtN`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has a gradient. Options: [`SparseSegmentSqrtN`].
#[track_caller]
pub fn sparse_segment_sqrt_n<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    data: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
) -> Output<T> {
    SparseSegmentSqrtN::new().build(data, indices, segment_ids)
}
options! { SparseSegmentSqrtN {
sparse_gradient: bool = "sparse_gradient", "false";
} }
impl SparseSegmentSqrtN {
    /// Adds the node: see [`sparse_segment_sqrt_n()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
        &self,
        data: impl Handle<T>,
        indices: impl Operand<Tidx>,
        segment_ids: impl Operand<Tsegmentids>,
    ) -> Output<T> {
        self.0
            .on(&data, "SparseSegmentSqrtN")
            .input(data)
            .input(indices)
            .input(segment_ids)
            .output()
    }
}

/// `SparseSegmentSqrtNGrad`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has no gradient.
#[track_caller]
pub fn sparse_segment_sqrt_n_grad<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    grad: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    output_dim0: impl Operand<i32>,
) -> Output<T> {
    NewOp::on(&grad, "SparseSegmentSqrtNGrad")
        .input(grad)
        .input(indices)
        .input(segment_ids)
        .input(output_dim0)
        .output()
}

/// `SparseSegmentSqrtNGradV2`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has no gradient. Returns `output`, `sorted_unique_indices`.
#[track_caller]
pub fn sparse_segment_sqrt_n_grad_v2<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    grad: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    dense_output_dim0: impl Operand<i32>,
) -> (Output<T>, Output<Tidx>) {
    let built = NewOp::on(&grad, "SparseSegmentSqrtNGradV2")
        .input(grad)
        .input(indices)
        .input(segment_ids)
        .input(dense_output_dim0)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSegmentSqrtNWithNumSegments`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tnumsegments`: int32, int64. `Tsegmentids`: int32, int64. Has a gradient. Options: [`SparseSegmentSqrtNWithNumSegments`].
#[track_caller]
pub fn sparse_segment_sqrt_n_with_num_segments<
    T: TensorType,
    Tidx: TensorType,
    Tnumsegments: TensorType,
    Tsegmentids: TensorType,
>(
    data: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    SparseSegmentSqrtNWithNumSegments::new().build(data, indices, segment_ids, num_segments)
}
options! { SparseSegmentSqrtNWithNumSegments {
sparse_gradient: bool = "sparse_gradient", "false";
} }
impl SparseSegmentSqrtNWithNumSegments {
    /// Adds the node: see [`sparse_segment_sqrt_n_with_num_segments()`].
    #[track_caller]
    pub fn build<
        T: TensorType,
        Tidx: TensorType,
        Tnumsegments: TensorType,
        Tsegmentids: TensorType,
    >(
        &self,
        data: impl Handle<T>,
        indices: impl Operand<Tidx>,
        segment_ids: impl Operand<Tsegmentids>,
        num_segments: impl Operand<Tnumsegments>,
    ) -> Output<T> {
        self.0
            .on(&data, "SparseSegmentSqrtNWithNumSegments")
            .input(data)
            .input(indices)
            .input(segment_ids)
            .input(num_segments)
            .output()
    }
}

/// `SparseSegmentSum`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has a gradient. Options: [`SparseSegmentSum`].
#[track_caller]
pub fn sparse_segment_sum<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    data: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
) -> Output<T> {
    SparseSegmentSum::new().build(data, indices, segment_ids)
}
options! { SparseSegmentSum {
sparse_gradient: bool = "sparse_gradient", "false";
} }
impl SparseSegmentSum {
    /// Adds the node: see [`sparse_segment_sum()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
        &self,
        data: impl Handle<T>,
        indices: impl Operand<Tidx>,
        segment_ids: impl Operand<Tsegmentids>,
    ) -> Output<T> {
        self.0.on(&data, "SparseSegmentSum").input(data).input(indices).input(segment_ids).output()
    }
}

/// `SparseSegmentSumGrad`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has no gradient.
#[track_caller]
pub fn sparse_segment_sum_grad<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    grad: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    output_dim0: impl Operand<i32>,
) -> Output<T> {
    NewOp::on(&grad, "SparseSegmentSumGrad")
        .input(grad)
        .input(indices)
        .input(segment_ids)
        .input(output_dim0)
        .output()
}

/// `SparseSegmentSumGradV2`.
///
/// `T`: float, double, bfloat16, half. `Tidx`: int32, int64. `Tsegmentids`: int32, int64. Has no gradient. Returns `output`, `sorted_unique_indices`.
#[track_caller]
pub fn sparse_segment_sum_grad_v2<T: TensorType, Tidx: TensorType, Tsegmentids: TensorType>(
    grad: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    dense_output_dim0: impl Operand<i32>,
) -> (Output<T>, Output<Tidx>) {
    let built = NewOp::on(&grad, "SparseSegmentSumGradV2")
        .input(grad)
        .input(indices)
        .input(segment_ids)
        .input(dense_output_dim0)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSegmentSumWithNumSegments`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int64. `Tnumsegments`: int32, int64. `Tsegmentids`: int32, int64. Has a gradient. Options: [`SparseSegmentSumWithNumSegments`].
#[track_caller]
pub fn sparse_segment_sum_with_num_segments<
    T: TensorType,
    Tidx: TensorType,
    Tnumsegments: TensorType,
    Tsegmentids: TensorType,
>(
    data: impl Handle<T>,
    indices: impl Operand<Tidx>,
    segment_ids: impl Operand<Tsegmentids>,
    num_segments: impl Operand<Tnumsegments>,
) -> Output<T> {
    SparseSegmentSumWithNumSegments::new().build(data, indices, segment_ids, num_segments)
}
options! { SparseSegmentSumWithNumSegments {
sparse_gradient: bool = "sparse_gradient", "false";
} }
impl SparseSegmentSumWithNumSegments {
    /// Adds the node: see [`sparse_segment_sum_with_num_segments()`].
    #[track_caller]
    pub fn build<
        T: TensorType,
        Tidx: TensorType,
        Tnumsegments: TensorType,
        Tsegmentids: TensorType,
    >(
        &self,
        data: impl Handle<T>,
        indices: impl Operand<Tidx>,
        segment_ids: impl Operand<Tsegmentids>,
        num_segments: impl Operand<Tnumsegments>,
    ) -> Output<T> {
        self.0
            .on(&data, "SparseSegmentSumWithNumSegments")
            .input(data)
            .input(indices)
            .input(segment_ids)
            .input(num_segments)
            .output()
    }
}

/// `SparseSlice`. Has a gradient. Returns `output_indices`, `output_values`, `output_shape`.
#[track_caller]
pub fn sparse_slice<T: TensorType>(
    indices: impl Operand<i64>,
    values: impl Handle<T>,
    shape: impl Operand<i64>,
    start: impl Operand<i64>,
    size: impl Operand<i64>,
) -> (Output<i64>, Output<T>, Output<i64>) {
    let built = NewOp::on(&values, "SparseSlice")
        .input(indices)
        .input(values)
        .input(shape)
        .input(start)
        .input(size)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `SparseSliceGrad`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn sparse_slice_grad<T: TensorType>(
    backprop_val_grad: impl Handle<T>,
    input_indices: impl Operand<i64>,
    input_start: impl Operand<i64>,
    output_indices: impl Operand<i64>,
) -> Output<T> {
    NewOp::on(&backprop_val_grad, "SparseSliceGrad")
        .input(backprop_val_grad)
        .input(input_indices)
        .input(input_start)
        .input(output_indices)
        .output()
}

/// `SparseSoftmax`.
///
/// `T`: float, double, half. Has a gradient.
#[track_caller]
pub fn sparse_softmax<T: TensorType>(
    sp_indices: impl Operand<i64>,
    sp_values: impl Handle<T>,
    sp_shape: impl Operand<i64>,
) -> Output<T> {
    NewOp::on(&sp_values, "SparseSoftmax")
        .input(sp_indices)
        .input(sp_values)
        .input(sp_shape)
        .output()
}

/// `SparseSoftmaxCrossEntropyWithLogits`: the cross entropy of logits with class indices.
///
/// `T`: float, double, bfloat16, half. `Tlabels`: int32, int64. Has a gradient. Returns `loss`, `backprop`.
#[track_caller]
pub fn sparse_softmax_cross_entropy_with_logits<T: TensorType, Tlabels: TensorType>(
    features: impl Handle<T>,
    labels: impl Operand<Tlabels>,
) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&features, "SparseSoftmaxCrossEntropyWithLogits")
        .input(features)
        .input(labels)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSparseMaximum`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient. Returns `output_indices`, `output_values`.
#[track_caller]
pub fn sparse_sparse_maximum<T: TensorType>(
    a_indices: impl Operand<i64>,
    a_values: impl Handle<T>,
    a_shape: impl Operand<i64>,
    b_indices: impl Operand<i64>,
    b_values: impl Operand<T>,
    b_shape: impl Operand<i64>,
) -> (Output<i64>, Output<T>) {
    let built = NewOp::on(&a_values, "SparseSparseMaximum")
        .input(a_indices)
        .input(a_values)
        .input(a_shape)
        .input(b_indices)
        .input(b_values)
        .input(b_shape)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSparseMinimum`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has no gradient. Returns `output_indices`, `output_values`.
#[track_caller]
pub fn sparse_sparse_minimum<T: TensorType>(
    a_indices: impl Operand<i64>,
    a_values: impl Handle<T>,
    a_shape: impl Operand<i64>,
    b_indices: impl Operand<i64>,
    b_values: impl Operand<T>,
    b_shape: impl Operand<i64>,
) -> (Output<i64>, Output<T>) {
    let built = NewOp::on(&a_values, "SparseSparseMinimum")
        .input(a_indices)
        .input(a_values)
        .input(a_shape)
        .input(b_indices)
        .input(b_values)
        .input(b_shape)
        .build();
    (built.output(0), built.output(1))
}

/// `SparseSplit`. Has no gradient. Returns `output_indices`, `output_values`, `output_shape`.
#[track_caller]
pub fn sparse_split<T: TensorType>(
    split_dim: impl Operand<i64>,
    indices: impl Operand<i64>,
    values: impl Handle<T>,
    shape: impl Operand<i64>,
    num_split: i64,
) -> (Vec<Output<i64>>, Vec<Output<T>>, Vec<Output<i64>>) {
    let built = NewOp::on(&values, "SparseSplit")
        .input(split_dim)
        .input(indices)
        .input(values)
        .input(shape)
        .attr("num_split", num_split)
        .build();
    (
        built.outputs("output_indices", usize::try_from(num_split).unwrap_or(0)),
        built.outputs("output_values", usize::try_from(num_split).unwrap_or(0)),
        built.outputs("output_shape", usize::try_from(num_split).unwrap_or(0)),
    )
}

/// `SparseTensorDenseAdd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient.
#[track_caller]
pub fn sparse_tensor_dense_add<T: TensorType, Tindices: TensorType>(
    a_indices: impl Handle<Tindices>,
    a_values: impl Operand<T>,
    a_shape: impl Operand<Tindices>,
    b: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&a_indices, "SparseTensorDenseAdd")
        .input(a_indices)
        .input(a_values)
        .input(a_shape)
        .input(b)
        .output()
}

/// `SparseTensorDenseMatMul`.
///
/// `T`: float, double, int32, complex64, bfloat16, complex128, half. `Tindices`: int32, int64. Has a gradient. Options: [`SparseTensorDenseMatMul`].
#[track_caller]
pub fn sparse_tensor_dense_mat_mul<T: TensorType, Tindices: TensorType>(
    a_indices: impl Handle<Tindices>,
    a_values: impl Operand<T>,
    a_shape: impl Operand<i64>,
    b: impl Operand<T>,
) -> Output<T> {
    SparseTensorDenseMatMul::new().build(a_indices, a_values, a_shape, b)
}
options! { SparseTensorDenseMatMul {
adjoint_a: bool = "adjoint_a", "false";
adjoint_b: bool = "adjoint_b", "false";
} }
impl SparseTensorDenseMatMul {
    /// Adds the node: see [`sparse_tensor_dense_mat_mul()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        a_indices: impl Handle<Tindices>,
        a_values: impl Operand<T>,
        a_shape: impl Operand<i64>,
        b: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&a_indices, "SparseTensorDenseMatMul")
            .input(a_indices)
            .input(a_values)
            .input(a_shape)
            .input(b)
            .output()
    }
}

/// `SparseTensorSliceDataset`. Has no gradient.
#[track_caller]
pub fn sparse_tensor_slice_dataset<Tvalues: TensorType>(
    indices: impl Handle<i64>,
    values: impl Operand<Tvalues>,
    dense_shape: impl Operand<i64>,
) -> Output<Variant> {
    NewOp::on(&indices, "SparseTensorSliceDataset")
        .input(indices)
        .input(values)
        .input(dense_shape)
        .output()
}

/// `SparseToDense`.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, qint8, quint8, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. `Tindices`: int32, int64. Has a gradient. Options: [`SparseToDense`].
#[track_caller]
pub fn sparse_to_dense<T: TensorType, Tindices: TensorType>(
    sparse_indices: impl Handle<Tindices>,
    output_shape: impl Operand<Tindices>,
    sparse_values: impl Operand<T>,
    default_value: impl Operand<T>,
) -> Output<T> {
    SparseToDense::new().build(sparse_indices, output_shape, sparse_values, default_value)
}
options! { SparseToDense {
validate_indices: bool = "validate_indices", "true";
} }
impl SparseToDense {
    /// Adds the node: see [`sparse_to_dense()`].
    #[track_caller]
    pub fn build<T: TensorType, Tindices: TensorType>(
        &self,
        sparse_indices: impl Handle<Tindices>,
        output_shape: impl Operand<Tindices>,
        sparse_values: impl Operand<T>,
        default_value: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&sparse_indices, "SparseToDense")
            .input(sparse_indices)
            .input(output_shape)
            .input(sparse_values)
            .input(default_value)
            .output()
    }
}

/// `SparseToSparseSetOperation`.
///
/// `T`: int32, uint8, int16, int8, string, int64, uint16. No gradient passes. Returns `result_indices`, `result_values`, `result_shape`. Options: [`SparseToSparseSetOperation`].
#[track_caller]
pub fn sparse_to_sparse_set_operation<T: TensorType>(
    set1_indices: impl Operand<i64>,
    set1_values: impl Handle<T>,
    set1_shape: impl Operand<i64>,
    set2_indices: impl Operand<i64>,
    set2_values: impl Operand<T>,
    set2_shape: impl Operand<i64>,
    set_operation: &str,
) -> (Output<i64>, Output<T>, Output<i64>) {
    SparseToSparseSetOperation::new().build(
        set1_indices,
        set1_values,
        set1_shape,
        set2_indices,
        set2_values,
        set2_shape,
        set_operation,
    )
}
options! { SparseToSparseSetOperation {
validate_indices: bool = "validate_indices", "true";
} }
impl SparseToSparseSetOperation {
    /// Adds the node: see [`sparse_to_sparse_set_operation()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        set1_indices: impl Operand<i64>,
        set1_values: impl Handle<T>,
        set1_shape: impl Operand<i64>,
        set2_indices: impl Operand<i64>,
        set2_values: impl Operand<T>,
        set2_shape: impl Operand<i64>,
        set_operation: &str,
    ) -> (Output<i64>, Output<T>, Output<i64>) {
        let built = self
            .0
            .on(&set1_values, "SparseToSparseSetOperation")
            .input(set1_indices)
            .input(set1_values)
            .input(set1_shape)
            .input(set2_indices)
            .input(set2_values)
            .input(set2_shape)
            .attr("set_operation", set_operation)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Spence`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn spence<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Spence").input(x).output()
}

/// `Split`: a tensor cut into equal parts along an axis. Has a gradient.
#[track_caller]
pub fn split<T: TensorType>(
    split_dim: impl Operand<i32>,
    value: impl Handle<T>,
    num_split: i64,
) -> Vec<Output<T>> {
    let built = NewOp::on(&value, "Split")
        .input(split_dim)
        .input(value)
        .attr("num_split", num_split)
        .build();
    built.outputs("output", usize::try_from(num_split).unwrap_or(0))
}

/// `SplitV`: a tensor cut into parts of given sizes along an axis.
///
/// `Tlen`: int32, int8, int64. Has a gradient.
#[track_caller]
pub fn split_v<T: TensorType, Tlen: TensorType>(
    value: impl Handle<T>,
    size_splits: impl Operand<Tlen>,
    split_dim: impl Operand<i32>,
    num_split: i64,
) -> Vec<Output<T>> {
    let built = NewOp::on(&value, "SplitV")
        .input(value)
        .input(size_splits)
        .input(split_dim)
        .attr("num_split", num_split)
        .build();
    built.outputs("output", usize::try_from(num_split).unwrap_or(0))
}

/// `Sqrt`: the square root of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sqrt<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Sqrt").input(x).output()
}

/// `SqrtGrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn sqrt_grad<T: TensorType>(y: impl Handle<T>, dy: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "SqrtGrad").input(y).input(dy).output()
}

/// `Square`: the square of each element.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn square<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Square").input(x).output()
}

/// `SquaredDifference`: the square of the difference, with broadcasting.
///
/// `T`: float, double, int32, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn squared_difference<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "SquaredDifference").input(x).input(y).output()
}

/// `Squeeze`: removes dimensions of size 1. Has a gradient. Options: [`Squeeze`].
#[track_caller]
pub fn squeeze<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    Squeeze::new().build(input)
}
options! { Squeeze {
squeeze_dims: &[i64] = "squeeze_dims", "[]";
} }
impl Squeeze {
    /// Adds the node: see [`squeeze()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "Squeeze").input(input).output()
    }
}

/// `Stack`. Has no gradient. Options: [`Stack`].
#[track_caller]
pub fn stack(g: &Graph, elem_type: DType) -> Output<Ref<String>> {
    Stack::new().build(g, elem_type)
}
options! { Stack {
stack_name: &str = "stack_name", "\"\"";
} }
impl Stack {
    /// Adds the node: see [`stack()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, elem_type: DType) -> Output<Ref<String>> {
        self.0.new(g, "Stack").attr("elem_type", elem_type).output()
    }
}

/// `StackClose`. Has no gradient.
#[track_caller]
pub fn stack_close(handle: impl Handle<Ref<String>>) -> Operation {
    NewOp::on(&handle, "StackClose").input(handle).operation()
}

/// `StackCloseV2`. Has no gradient.
#[track_caller]
pub fn stack_close_v2(handle: impl Handle<Resource>) -> Operation {
    NewOp::on(&handle, "StackCloseV2").input(handle).operation()
}

/// `StackPop`. Has no gradient.
#[track_caller]
pub fn stack_pop<ElemType: TensorType>(handle: impl Handle<Ref<String>>) -> Output<ElemType> {
    NewOp::on(&handle, "StackPop").dtype::<ElemType>("elem_type").input(handle).output()
}

/// `StackPopV2`. Has no gradient.
#[track_caller]
pub fn stack_pop_v2<ElemType: TensorType>(handle: impl Handle<Resource>) -> Output<ElemType> {
    NewOp::on(&handle, "StackPopV2").dtype::<ElemType>("elem_type").input(handle).output()
}

/// `StackPush`. Has no gradient. Options: [`StackPush`].
#[track_caller]
pub fn stack_push<T: TensorType>(
    handle: impl Handle<Ref<String>>,
    elem: impl Operand<T>,
) -> Output<T> {
    StackPush::new().build(handle, elem)
}
options! { StackPush {
swap_memory: bool = "swap_memory", "false";
} }
impl StackPush {
    /// Adds the node: see [`stack_push()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        handle: impl Handle<Ref<String>>,
        elem: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&handle, "StackPush").input(handle).input(elem).output()
    }
}

/// `StackPushV2`. Has no gradient. Options: [`StackPushV2`].
#[track_caller]
pub fn stack_push_v2<T: TensorType>(
    handle: impl Handle<Resource>,
    elem: impl Operand<T>,
) -> Output<T> {
    StackPushV2::new().build(handle, elem)
}
options! { StackPushV2 {
swap_memory: bool = "swap_memory", "false";
} }
impl StackPushV2 {
    /// Adds the node: see [`stack_push_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        handle: impl Handle<Resource>,
        elem: impl Operand<T>,
    ) -> Output<T> {
        self.0.on(&handle, "StackPushV2").input(handle).input(elem).output()
    }
}

/// `StackV2`. Has no gradient. Options: [`StackV2`].
#[track_caller]
pub fn stack_v2(max_size: impl Handle<i32>, elem_type: DType) -> Output<Resource> {
    StackV2::new().build(max_size, elem_type)
}
options! { StackV2 {
stack_name: &str = "stack_name", "\"\"";
} }
impl StackV2 {
    /// Adds the node: see [`stack_v2()`].
    #[track_caller]
    pub fn build(&self, max_size: impl Handle<i32>, elem_type: DType) -> Output<Resource> {
        self.0.on(&max_size, "StackV2").input(max_size).attr("elem_type", elem_type).output()
    }
}

/// `Stage`. Has no gradient. Options: [`Stage`].
#[track_caller]
pub fn stage(g: &Graph, values: &[Output<Untyped>]) -> Operation {
    Stage::new().build(g, values)
}
options! { Stage {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl Stage {
    /// Adds the node: see [`stage()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, values: &[Output<Untyped>]) -> Operation {
        self.0.new(g, "Stage").inputs(values).attr("dtypes", &dtypes_of(values)[..]).operation()
    }
}

/// `StageClear`. Has no gradient. Options: [`StageClear`].
#[track_caller]
pub fn stage_clear(g: &Graph, dtypes: &[DType]) -> Operation {
    StageClear::new().build(g, dtypes)
}
options! { StageClear {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl StageClear {
    /// Adds the node: see [`stage_clear()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Operation {
        self.0.new(g, "StageClear").attr("dtypes", dtypes).operation()
    }
}

/// `StagePeek`. Has no gradient. Options: [`StagePeek`].
#[track_caller]
pub fn stage_peek(index: impl Handle<i32>, dtypes: &[DType]) -> Vec<Output<Untyped>> {
    StagePeek::new().build(index, dtypes)
}
options! { StagePeek {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl StagePeek {
    /// Adds the node: see [`stage_peek()`].
    #[track_caller]
    pub fn build(&self, index: impl Handle<i32>, dtypes: &[DType]) -> Vec<Output<Untyped>> {
        let built = self.0.on(&index, "StagePeek").input(index).attr("dtypes", dtypes).build();
        built.outputs("values", dtypes.len())
    }
}

/// `StageSize`. Has no gradient. Options: [`StageSize`].
#[track_caller]
pub fn stage_size(g: &Graph, dtypes: &[DType]) -> Output<i32> {
    StageSize::new().build(g, dtypes)
}
options! { StageSize {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl StageSize {
    /// Adds the node: see [`stage_size()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Output<i32> {
        self.0.new(g, "StageSize").attr("dtypes", dtypes).output()
    }
}

/// `StatefulPartitionedCall`. Has a gradient. Options: [`StatefulPartitionedCall`].
#[track_caller]
pub fn stateful_partitioned_call(
    g: &Graph,
    args: &[Output<Untyped>],
    tout: &[DType],
    f: &Function,
) -> Vec<Output<Untyped>> {
    StatefulPartitionedCall::new().build(g, args, tout, f)
}
options! { StatefulPartitionedCall {
config: &str = "config", "\"\"";
config_proto: &str = "config_proto", "\"\"";
executor_type: &str = "executor_type", "\"\"";
} }
impl StatefulPartitionedCall {
    /// Adds the node: see [`stateful_partitioned_call()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        args: &[Output<Untyped>],
        tout: &[DType],
        f: &Function,
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .new(g, "StatefulPartitionedCall")
            .inputs(args)
            .attr("Tin", &dtypes_of(args)[..])
            .attr("Tout", tout)
            .attr("f", f)
            .build();
        built.outputs("output", tout.len())
    }
}

/// `StatefulRandomBinomial`.
///
/// `S`: int32, int64. `T`: float, double, half. `Dtype`: float, double, int32, int64, half. Has no gradient.
#[track_caller]
pub fn stateful_random_binomial<Dtype: TensorType, S: TensorType, T: TensorType>(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    shape: impl Operand<S>,
    counts: impl Operand<T>,
    probs: impl Operand<T>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulRandomBinomial")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(algorithm)
        .input(shape)
        .input(counts)
        .input(probs)
        .output()
}

/// `StatefulStandardNormal`.
///
/// `Dtype`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn stateful_standard_normal<Dtype: TensorType, ShapeDtype: TensorType>(
    resource: impl Handle<Resource>,
    shape: impl Operand<ShapeDtype>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulStandardNormal")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(shape)
        .output()
}

/// `StatefulStandardNormalV2`.
///
/// `Dtype`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn stateful_standard_normal_v2<Dtype: TensorType, ShapeDtype: TensorType>(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    shape: impl Operand<ShapeDtype>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulStandardNormalV2")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(algorithm)
        .input(shape)
        .output()
}

/// `StatefulTruncatedNormal`.
///
/// `Dtype`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn stateful_truncated_normal<Dtype: TensorType, ShapeDtype: TensorType>(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    shape: impl Operand<ShapeDtype>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulTruncatedNormal")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(algorithm)
        .input(shape)
        .output()
}

/// `StatefulUniform`.
///
/// `Dtype`: float, double, bfloat16, half. Has no gradient.
#[track_caller]
pub fn stateful_uniform<Dtype: TensorType, ShapeDtype: TensorType>(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    shape: impl Operand<ShapeDtype>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulUniform")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(algorithm)
        .input(shape)
        .output()
}

/// `StatefulUniformFullInt`.
///
/// `Dtype`: int32, int64, uint32, uint64. Has no gradient.
#[track_caller]
pub fn stateful_uniform_full_int<Dtype: TensorType, ShapeDtype: TensorType>(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    shape: impl Operand<ShapeDtype>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulUniformFullInt")
        .dtype::<Dtype>("dtype")
        .input(resource)
        .input(algorithm)
        .input(shape)
        .output()
}

/// `StatefulUniformInt`.
///
/// `Dtype`: int32, int64. Has no gradient.
#[track_caller]
pub fn stateful_uniform_int<Dtype: TensorType, ShapeDtype: TensorType>(
    resource: impl Handle<Resource>,
    algorithm: impl Operand<i64>,
    shape: impl Operand<ShapeDtype>,
    minval: impl Operand<Dtype>,
    maxval: impl Operand<Dtype>,
) -> Output<Dtype> {
    NewOp::on(&resource, "StatefulUniformInt")
        .input(resource)
        .input(algorithm)
        .input(shape)
        .input(minval)
        .input(maxval)
        .output()
}

/// `StatelessCase`. Has a gradient. Options: [`StatelessCase`].
#[track_caller]
pub fn stateless_case(
    branch_index: impl Handle<i32>,
    input: &[Output<Untyped>],
    tout: &[DType],
    branches: &[Function],
) -> Vec<Output<Untyped>> {
    StatelessCase::new().build(branch_index, input, tout, branches)
}
options! { StatelessCase {
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl StatelessCase {
    /// Adds the node: see [`stateless_case()`].
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
            .on(&branch_index, "StatelessCase")
            .input(branch_index)
            .inputs(input)
            .attr("Tin", &dtypes_of(input)[..])
            .attr("Tout", tout)
            .attr("branches", functions_attr(branches))
            .build();
        built.outputs("output", tout.len())
    }
}

/// `StatelessIf`. Has a gradient. Options: [`StatelessIf`].
#[track_caller]
pub fn stateless_if<Tcond: TensorType>(
    cond: impl Handle<Tcond>,
    input: &[Output<Untyped>],
    tout: &[DType],
    then_branch: &Function,
    else_branch: &Function,
) -> Vec<Output<Untyped>> {
    StatelessIf::new().build(cond, input, tout, then_branch, else_branch)
}
options! { StatelessIf {
output_shapes: &[PartialShape] = "output_shapes", "[]";
} }
impl StatelessIf {
    /// Adds the node: see [`stateless_if()`].
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
            .on(&cond, "StatelessIf")
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

/// `StatelessMultinomial`.
///
/// `T`: float, double, bfloat16, half. `Tseed`: int32, int64. `OutputDtype`: int32, int64. No gradient passes.
#[track_caller]
pub fn stateless_multinomial<OutputDtype: TensorType, T: TensorType, Tseed: TensorType>(
    logits: impl Handle<T>,
    num_samples: impl Operand<i32>,
    seed: impl Operand<Tseed>,
) -> Output<OutputDtype> {
    NewOp::on(&logits, "StatelessMultinomial")
        .dtype::<OutputDtype>("output_dtype")
        .input(logits)
        .input(num_samples)
        .input(seed)
        .output()
}

/// `StatelessParameterizedTruncatedNormal`.
///
/// `S`: int32, int64. `Tseed`: int32, int64. `Dtype`: float, double, half. Has a gradient.
#[track_caller]
pub fn stateless_parameterized_truncated_normal<
    S: TensorType,
    Tseed: TensorType,
    Dtype: TensorType,
>(
    shape: impl Handle<S>,
    seed: impl Operand<Tseed>,
    means: impl Operand<Dtype>,
    stddevs: impl Operand<Dtype>,
    minvals: impl Operand<Dtype>,
    maxvals: impl Operand<Dtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessParameterizedTruncatedNormal")
        .input(shape)
        .input(seed)
        .input(means)
        .input(stddevs)
        .input(minvals)
        .input(maxvals)
        .output()
}

/// `StatelessRandomBinomial`.
///
/// `S`: int32, int64. `T`: float, double, half. `Tseed`: int32, int64. `Dtype`: float, double, int32, int64, half. No gradient passes.
#[track_caller]
pub fn stateless_random_binomial<
    Dtype: TensorType,
    S: TensorType,
    Tseed: TensorType,
    T: TensorType,
>(
    shape: impl Handle<S>,
    seed: impl Operand<Tseed>,
    counts: impl Operand<T>,
    probs: impl Operand<T>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomBinomial")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(seed)
        .input(counts)
        .input(probs)
        .output()
}

/// `StatelessRandomGammaV2`.
///
/// `T`: int32, int64. `Tseed`: int32, int64. `Dtype`: float, double, half. Has a gradient.
#[track_caller]
pub fn stateless_random_gamma_v2<Dtype: TensorType, T: TensorType, Tseed: TensorType>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
    alpha: impl Operand<Dtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomGammaV2").input(shape).input(seed).input(alpha).output()
}

/// `StatelessRandomGammaV3`.
///
/// `Dtype`: float, double, half. `ShapeDtype`: int32, int64. Has a gradient.
#[track_caller]
pub fn stateless_random_gamma_v3<Dtype: TensorType, ShapeDtype: TensorType>(
    shape: impl Handle<ShapeDtype>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
    alpha: impl Operand<Dtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomGammaV3")
        .input(shape)
        .input(key)
        .input(counter)
        .input(alg)
        .input(alpha)
        .output()
}

/// `StatelessRandomGetAlg`. Has no gradient.
#[track_caller]
pub fn stateless_random_get_alg(g: &Graph) -> Output<i32> {
    NewOp::new(g, "StatelessRandomGetAlg").output()
}

/// `StatelessRandomGetKeyCounter`.
///
/// `Tseed`: int32, int64. Has no gradient. Returns `key`, `counter`.
#[track_caller]
pub fn stateless_random_get_key_counter<Tseed: TensorType>(
    seed: impl Handle<Tseed>,
) -> (Output<u64>, Output<u64>) {
    let built = NewOp::on(&seed, "StatelessRandomGetKeyCounter").input(seed).build();
    (built.output(0), built.output(1))
}

/// `StatelessRandomGetKeyCounterAlg`.
///
/// `Tseed`: int32, int64. Has no gradient. Returns `key`, `counter`, `alg`.
#[track_caller]
pub fn stateless_random_get_key_counter_alg<Tseed: TensorType>(
    seed: impl Handle<Tseed>,
) -> (Output<u64>, Output<u64>, Output<i32>) {
    let built = NewOp::on(&seed, "StatelessRandomGetKeyCounterAlg").input(seed).build();
    (built.output(0), built.output(1), built.output(2))
}

/// `StatelessRandomNormal`.
///
/// `T`: int32, int64. `Tseed`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn stateless_random_normal<Dtype: TensorType, T: TensorType, Tseed: TensorType>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomNormal")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(seed)
        .output()
}

/// `StatelessRandomNormalV2`.
///
/// `Tshape`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn stateless_random_normal_v2<Dtype: TensorType, Tshape: TensorType>(
    shape: impl Handle<Tshape>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomNormalV2")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(key)
        .input(counter)
        .input(alg)
        .output()
}

/// `StatelessRandomPoisson`.
///
/// `Rtype`: float, double, int32, int64, half. `T`: int32, int64. `Tseed`: int32, int64. `Dtype`: float, double, int32, int64, half. No gradient passes.
#[track_caller]
pub fn stateless_random_poisson<
    Dtype: TensorType,
    Rtype: TensorType,
    T: TensorType,
    Tseed: TensorType,
>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
    lam: impl Operand<Rtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomPoisson")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(seed)
        .input(lam)
        .output()
}

/// `StatelessRandomUniform`: random numbers that depend on a seed alone.
///
/// `T`: int32, int64. `Tseed`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn stateless_random_uniform<Dtype: TensorType, T: TensorType, Tseed: TensorType>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomUniform")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(seed)
        .output()
}

/// `StatelessRandomUniformFullInt`.
///
/// `T`: int32, int64. `Tseed`: int32, int64, uint32, uint64. `Dtype`: int32, int64, uint32, uint64. No gradient passes.
#[track_caller]
pub fn stateless_random_uniform_full_int<Dtype: TensorType, T: TensorType, Tseed: TensorType>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomUniformFullInt")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(seed)
        .output()
}

/// `StatelessRandomUniformFullIntV2`.
///
/// `Tshape`: int32, int64. `Dtype`: int32, int64, uint32, uint64. No gradient passes.
#[track_caller]
pub fn stateless_random_uniform_full_int_v2<Dtype: TensorType, Tshape: TensorType>(
    shape: impl Handle<Tshape>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomUniformFullIntV2")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(key)
        .input(counter)
        .input(alg)
        .output()
}

/// `StatelessRandomUniformInt`.
///
/// `T`: int32, int64. `Tseed`: int32, int64. `Dtype`: int32, int64. No gradient passes.
#[track_caller]
pub fn stateless_random_uniform_int<Dtype: TensorType, T: TensorType, Tseed: TensorType>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
    minval: impl Operand<Dtype>,
    maxval: impl Operand<Dtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomUniformInt")
        .input(shape)
        .input(seed)
        .input(minval)
        .input(maxval)
        .output()
}

/// `StatelessRandomUniformIntV2`.
///
/// `Tshape`: int32, int64. `Dtype`: int32, int64, uint32, uint64. No gradient passes.
#[track_caller]
pub fn stateless_random_uniform_int_v2<Dtype: TensorType, Tshape: TensorType>(
    shape: impl Handle<Tshape>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
    minval: impl Operand<Dtype>,
    maxval: impl Operand<Dtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomUniformIntV2")
        .input(shape)
        .input(key)
        .input(counter)
        .input(alg)
        .input(minval)
        .input(maxval)
        .output()
}

/// `StatelessRandomUniformV2`.
///
/// `Tshape`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn stateless_random_uniform_v2<Dtype: TensorType, Tshape: TensorType>(
    shape: impl Handle<Tshape>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessRandomUniformV2")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(key)
        .input(counter)
        .input(alg)
        .output()
}

/// `StatelessSampleDistortedBoundingBox`.
///
/// `T`: int32, uint8, int16, int8, int64. `Tseed`: int32, int64. Has no gradient. Returns `begin`, `size`, `bboxes`. Options: [`StatelessSampleDistortedBoundingBox`].
#[track_caller]
pub fn stateless_sample_distorted_bounding_box<T: TensorType, Tseed: TensorType>(
    image_size: impl Handle<T>,
    bounding_boxes: impl Operand<f32>,
    min_object_covered: impl Operand<f32>,
    seed: impl Operand<Tseed>,
) -> (Output<T>, Output<T>, Output<f32>) {
    StatelessSampleDistortedBoundingBox::new().build(
        image_size,
        bounding_boxes,
        min_object_covered,
        seed,
    )
}
options! { StatelessSampleDistortedBoundingBox {
aspect_ratio_range: &[f32] = "aspect_ratio_range", "[0.75, 1.33]";
area_range: &[f32] = "area_range", "[0.05, 1.0]";
max_attempts: i64 = "max_attempts", "100";
use_image_if_no_bounding_boxes: bool = "use_image_if_no_bounding_boxes", "false";
} }
impl StatelessSampleDistortedBoundingBox {
    /// Adds the node: see [`stateless_sample_distorted_bounding_box()`].
    #[track_caller]
    pub fn build<T: TensorType, Tseed: TensorType>(
        &self,
        image_size: impl Handle<T>,
        bounding_boxes: impl Operand<f32>,
        min_object_covered: impl Operand<f32>,
        seed: impl Operand<Tseed>,
    ) -> (Output<T>, Output<T>, Output<f32>) {
        let built = self
            .0
            .on(&image_size, "StatelessSampleDistortedBoundingBox")
            .input(image_size)
            .input(bounding_boxes)
            .input(min_object_covered)
            .input(seed)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `StatelessShuffle`. Has no gradient.
#[track_caller]
pub fn stateless_shuffle<T: TensorType>(
    value: impl Handle<T>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
) -> Output<T> {
    NewOp::on(&value, "StatelessShuffle").input(value).input(key).input(counter).input(alg).output()
}

/// `StatelessTruncatedNormal`.
///
/// `T`: int32, int64. `Tseed`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn stateless_truncated_normal<Dtype: TensorType, T: TensorType, Tseed: TensorType>(
    shape: impl Handle<T>,
    seed: impl Operand<Tseed>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessTruncatedNormal")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(seed)
        .output()
}

/// `StatelessTruncatedNormalV2`.
///
/// `Tshape`: int32, int64. `Dtype`: float, double, bfloat16, half. No gradient passes.
#[track_caller]
pub fn stateless_truncated_normal_v2<Dtype: TensorType, Tshape: TensorType>(
    shape: impl Handle<Tshape>,
    key: impl Operand<u64>,
    counter: impl Operand<u64>,
    alg: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&shape, "StatelessTruncatedNormalV2")
        .dtype::<Dtype>("dtype")
        .input(shape)
        .input(key)
        .input(counter)
        .input(alg)
        .output()
}

/// `StatelessWhile`. Has a gradient. Options: [`StatelessWhile`].
#[track_caller]
pub fn stateless_while(
    g: &Graph,
    input: &[Output<Untyped>],
    cond: &Function,
    body: &Function,
) -> Vec<Output<Untyped>> {
    StatelessWhile::new().build(g, input, cond, body)
}
options! { StatelessWhile {
output_shapes: &[PartialShape] = "output_shapes", "[]";
parallel_iterations: i64 = "parallel_iterations", "10";
} }
impl StatelessWhile {
    /// Adds the node: see [`stateless_while()`].
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
            .new(g, "StatelessWhile")
            .inputs(input)
            .attr("T", &dtypes_of(input)[..])
            .attr("cond", cond)
            .attr("body", body)
            .build();
        built.outputs("output", input.len())
    }
}

/// `StaticRegexFullMatch`. Has no gradient.
#[track_caller]
pub fn static_regex_full_match(input: impl Handle<String>, pattern: &str) -> Output<bool> {
    NewOp::on(&input, "StaticRegexFullMatch").input(input).attr("pattern", pattern).output()
}

/// `StaticRegexReplace`. Has no gradient. Options: [`StaticRegexReplace`].
#[track_caller]
pub fn static_regex_replace(
    input: impl Handle<String>,
    pattern: &str,
    rewrite: &str,
) -> Output<String> {
    StaticRegexReplace::new().build(input, pattern, rewrite)
}
options! { StaticRegexReplace {
replace_global: bool = "replace_global", "true";
} }
impl StaticRegexReplace {
    /// Adds the node: see [`static_regex_replace()`].
    #[track_caller]
    pub fn build(
        &self,
        input: impl Handle<String>,
        pattern: &str,
        rewrite: &str,
    ) -> Output<String> {
        self.0
            .on(&input, "StaticRegexReplace")
            .input(input)
            .attr("pattern", pattern)
            .attr("rewrite", rewrite)
            .output()
    }
}

/// `StopGradient`: the same tensor, through which no gradient passes. No gradient passes.
#[track_caller]
pub fn stop_gradient<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    NewOp::on(&input, "StopGradient").input(input).output()
}

/// `StridedSlice`: a slice with steps along each dimension.
///
/// `Index`: int32, int16, int64. Has a gradient. Options: [`StridedSlice`].
#[track_caller]
pub fn strided_slice<T: TensorType, Index: TensorType>(
    input: impl Handle<T>,
    begin: impl Operand<Index>,
    end: impl Operand<Index>,
    strides: impl Operand<Index>,
) -> Output<T> {
    StridedSlice::new().build(input, begin, end, strides)
}
options! { StridedSlice {
begin_mask: i64 = "begin_mask", "0";
end_mask: i64 = "end_mask", "0";
ellipsis_mask: i64 = "ellipsis_mask", "0";
new_axis_mask: i64 = "new_axis_mask", "0";
shrink_axis_mask: i64 = "shrink_axis_mask", "0";
} }
impl StridedSlice {
    /// Adds the node: see [`strided_slice()`].
    #[track_caller]
    pub fn build<T: TensorType, Index: TensorType>(
        &self,
        input: impl Handle<T>,
        begin: impl Operand<Index>,
        end: impl Operand<Index>,
        strides: impl Operand<Index>,
    ) -> Output<T> {
        self.0
            .on(&input, "StridedSlice")
            .input(input)
            .input(begin)
            .input(end)
            .input(strides)
            .output()
    }
}

/// `StridedSliceAssign`.
///
/// `Index`: int32, int64. Has no gradient. Options: [`StridedSliceAssign`].
#[track_caller]
pub fn strided_slice_assign<T: TensorType, Index: TensorType>(
    ref_: impl Handle<Ref<T>>,
    begin: impl Operand<Index>,
    end: impl Operand<Index>,
    strides: impl Operand<Index>,
    value: impl Operand<T>,
) -> Output<Ref<T>> {
    StridedSliceAssign::new().build(ref_, begin, end, strides, value)
}
options! { StridedSliceAssign {
begin_mask: i64 = "begin_mask", "0";
end_mask: i64 = "end_mask", "0";
ellipsis_mask: i64 = "ellipsis_mask", "0";
new_axis_mask: i64 = "new_axis_mask", "0";
shrink_axis_mask: i64 = "shrink_axis_mask", "0";
} }
impl StridedSliceAssign {
    /// Adds the node: see [`strided_slice_assign()`].
    #[track_caller]
    pub fn build<T: TensorType, Index: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        begin: impl Operand<Index>,
        end: impl Operand<Index>,
        strides: impl Operand<Index>,
        value: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&ref_, "StridedSliceAssign")
            .input(ref_)
            .input(begin)
            .input(end)
            .input(strides)
            .input(value)
            .output()
    }
}

/// `StridedSliceGrad`.
///
/// `Index`: int32, int64. Has a gradient. Options: [`StridedSliceGrad`].
#[track_caller]
pub fn strided_slice_grad<T: TensorType, Index: TensorType>(
    shape: impl Handle<Index>,
    begin: impl Operand<Index>,
    end: impl Operand<Index>,
    strides: impl Operand<Index>,
    dy: impl Operand<T>,
) -> Output<T> {
    StridedSliceGrad::new().build(shape, begin, end, strides, dy)
}
options! { StridedSliceGrad {
begin_mask: i64 = "begin_mask", "0";
end_mask: i64 = "end_mask", "0";
ellipsis_mask: i64 = "ellipsis_mask", "0";
new_axis_mask: i64 = "new_axis_mask", "0";
shrink_axis_mask: i64 = "shrink_axis_mask", "0";
} }
impl StridedSliceGrad {
    /// Adds the node: see [`strided_slice_grad()`].
    #[track_caller]
    pub fn build<T: TensorType, Index: TensorType>(
        &self,
        shape: impl Handle<Index>,
        begin: impl Operand<Index>,
        end: impl Operand<Index>,
        strides: impl Operand<Index>,
        dy: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&shape, "StridedSliceGrad")
            .input(shape)
            .input(begin)
            .input(end)
            .input(strides)
            .input(dy)
            .output()
    }
}

/// `StringFormat`. Has no gradient. Options: [`StringFormat`].
#[track_caller]
pub fn string_format(g: &Graph, inputs: &[Output<Untyped>]) -> Output<String> {
    StringFormat::new().build(g, inputs)
}
options! { StringFormat {
template: &str = "template", "\"%s\"";
placeholder: &str = "placeholder", "\"%s\"";
summarize: i64 = "summarize", "3";
} }
impl StringFormat {
    /// Adds the node: see [`string_format()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, inputs: &[Output<Untyped>]) -> Output<String> {
        self.0.new(g, "StringFormat").inputs(inputs).attr("T", &dtypes_of(inputs)[..]).output()
    }
}

/// `StringJoin`: strings joined element by element. No gradient passes. Options: [`StringJoin`].
#[track_caller]
pub fn string_join(g: &Graph, inputs: &[Output<String>]) -> Output<String> {
    StringJoin::new().build(g, inputs)
}
options! { StringJoin {
separator: &str = "separator", "\"\"";
} }
impl StringJoin {
    /// Adds the node: see [`string_join()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, inputs: &[Output<String>]) -> Output<String> {
        self.0.new(g, "StringJoin").inputs(inputs).attr("N", inputs.len() as i64).output()
    }
}

/// `StringLength`: the length of each string. Has no gradient. Options: [`StringLength`].
#[track_caller]
pub fn string_length(input: impl Handle<String>) -> Output<i32> {
    StringLength::new().build(input)
}
options! { StringLength {
unit: &str = "unit", "\"BYTE\"";
} }
impl StringLength {
    /// Adds the node: see [`string_length()`].
    #[track_caller]
    pub fn build(&self, input: impl Handle<String>) -> Output<i32> {
        self.0.on(&input, "StringLength").input(input).output()
    }
}

/// `StringLower`. Has no gradient. Options: [`StringLower`].
#[track_caller]
pub fn string_lower(input: impl Handle<String>) -> Output<String> {
    StringLower::new().build(input)
}
options! { StringLower {
encoding: &str = "encoding", "\"\"";
} }
impl StringLower {
    /// Adds the node: see [`string_lower()`].
    #[track_caller]
    pub fn build(&self, input: impl Handle<String>) -> Output<String> {
        self.0.on(&input, "StringLower").input(input).output()
    }
}

/// `StringNGrams`.
///
/// `Tsplits`: int32, int64. Has no gradient. Returns `ngrams`, `ngrams_splits`.
#[track_caller]
pub fn string_n_grams<Tsplits: TensorType>(
    data: impl Handle<String>,
    data_splits: impl Operand<Tsplits>,
    separator: &str,
    ngram_widths: &[i64],
    left_pad: &str,
    right_pad: &str,
    pad_width: i64,
    preserve_short_sequences: bool,
) -> (Output<String>, Output<Tsplits>) {
    let built = NewOp::on(&data, "StringNGrams")
        .input(data)
        .input(data_splits)
        .attr("separator", separator)
        .attr("ngram_widths", ngram_widths)
        .attr("left_pad", left_pad)
        .attr("right_pad", right_pad)
        .attr("pad_width", pad_width)
        .attr("preserve_short_sequences", preserve_short_sequences)
        .build();
    (built.output(0), built.output(1))
}

/// `StringSplit`. No gradient passes. Returns `indices`, `values`, `shape`. Options: [`StringSplit`].
#[track_caller]
pub fn string_split(
    input: impl Handle<String>,
    delimiter: impl Operand<String>,
) -> (Output<i64>, Output<String>, Output<i64>) {
    StringSplit::new().build(input, delimiter)
}
options! { StringSplit {
skip_empty: bool = "skip_empty", "true";
} }
impl StringSplit {
    /// Adds the node: see [`string_split()`].
    #[track_caller]
    pub fn build(
        &self,
        input: impl Handle<String>,
        delimiter: impl Operand<String>,
    ) -> (Output<i64>, Output<String>, Output<i64>) {
        let built = self.0.on(&input, "StringSplit").input(input).input(delimiter).build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `StringSplitV2`: the words of each string. Has no gradient. Returns `indices`, `values`, `shape`. Options: [`StringSplitV2`].
#[track_caller]
pub fn string_split_v2(
    input: impl Handle<String>,
    sep: impl Operand<String>,
) -> (Output<i64>, Output<String>, Output<i64>) {
    StringSplitV2::new().build(input, sep)
}
options! { StringSplitV2 {
maxsplit: i64 = "maxsplit", "-1";
} }
impl StringSplitV2 {
    /// Adds the node: see [`string_split_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input: impl Handle<String>,
        sep: impl Operand<String>,
    ) -> (Output<i64>, Output<String>, Output<i64>) {
        let built = self.0.on(&input, "StringSplitV2").input(input).input(sep).build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `StringStrip`. Has no gradient.
#[track_caller]
pub fn string_strip(input: impl Handle<String>) -> Output<String> {
    NewOp::on(&input, "StringStrip").input(input).output()
}

/// `StringToHashBucket`. No gradient passes.
#[track_caller]
pub fn string_to_hash_bucket(string_tensor: impl Handle<String>, num_buckets: i64) -> Output<i64> {
    NewOp::on(&string_tensor, "StringToHashBucket")
        .input(string_tensor)
        .attr("num_buckets", num_buckets)
        .output()
}

/// `StringToHashBucketFast`. No gradient passes.
#[track_caller]
pub fn string_to_hash_bucket_fast(input: impl Handle<String>, num_buckets: i64) -> Output<i64> {
    NewOp::on(&input, "StringToHashBucketFast")
        .input(input)
        .attr("num_buckets", num_buckets)
        .output()
}

/// `StringToHashBucketStrong`. No gradient passes.
#[track_caller]
pub fn string_to_hash_bucket_strong(
    input: impl Handle<String>,
    num_buckets: i64,
    key: &[i64],
) -> Output<i64> {
    NewOp::on(&input, "StringToHashBucketStrong")
        .input(input)
        .attr("num_buckets", num_buckets)
        .attr("key", key)
        .output()
}

/// `StringToNumber`: the number that each string says.
///
/// `OutType`: float, double, int32, int64, uint32, uint64. No gradient passes.
#[track_caller]
pub fn string_to_number<OutType: TensorType>(
    string_tensor: impl Handle<String>,
) -> Output<OutType> {
    NewOp::on(&string_tensor, "StringToNumber")
        .dtype::<OutType>("out_type")
        .input(string_tensor)
        .output()
}

/// `StringUpper`. Has no gradient. Options: [`StringUpper`].
#[track_caller]
pub fn string_upper(input: impl Handle<String>) -> Output<String> {
    StringUpper::new().build(input)
}
options! { StringUpper {
encoding: &str = "encoding", "\"\"";
} }
impl StringUpper {
    /// Adds the node: see [`string_upper()`].
    #[track_caller]
    pub fn build(&self, input: impl Handle<String>) -> Output<String> {
        self.0.on(&input, "StringUpper").input(input).output()
    }
}

/// `Sub`: the difference, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn sub<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Sub").input(x).input(y).output()
}

/// `Substr`.
///
/// `T`: int32, int64. Has no gradient. Options: [`Substr`].
#[track_caller]
pub fn substr<T: TensorType>(
    input: impl Handle<String>,
    pos: impl Operand<T>,
    len: impl Operand<T>,
) -> Output<String> {
    Substr::new().build(input, pos, len)
}
options! { Substr {
unit: &str = "unit", "\"BYTE\"";
} }
impl Substr {
    /// Adds the node: see [`substr()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<String>,
        pos: impl Operand<T>,
        len: impl Operand<T>,
    ) -> Output<String> {
        self.0.on(&input, "Substr").input(input).input(pos).input(len).output()
    }
}

/// `Sum`: the sum along axes.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Sum`].
#[track_caller]
pub fn sum<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<T> {
    Sum::new().build(input, reduction_indices)
}
options! { Sum {
keep_dims: bool = "keep_dims", "false";
} }
impl Sum {
    /// Adds the node: see [`sum()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        input: impl Handle<T>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&input, "Sum").input(input).input(reduction_indices).output()
    }
}

/// `SummaryWriter`. Has no gradient. Options: [`SummaryWriter`].
#[track_caller]
pub fn summary_writer(g: &Graph) -> Output<Resource> {
    SummaryWriter::new().build(g)
}
options! { SummaryWriter {
shared_name: &str = "shared_name", "\"\"";
container: &str = "container", "\"\"";
} }
impl SummaryWriter {
    /// Adds the node: see [`summary_writer()`].
    #[track_caller]
    pub fn build(&self, g: &Graph) -> Output<Resource> {
        self.0.new(g, "SummaryWriter").output()
    }
}

/// `Svd`: the singular value decomposition of matrices.
///
/// `T`: float, double, complex64, complex128. Has a gradient. Returns `s`, `u`, `v`. Options: [`Svd`].
#[track_caller]
pub fn svd<T: TensorType>(input: impl Handle<T>) -> (Output<T>, Output<T>, Output<T>) {
    Svd::new().build(input)
}
options! { Svd {
compute_uv: bool = "compute_uv", "true";
full_matrices: bool = "full_matrices", "false";
} }
impl Svd {
    /// Adds the node: see [`svd()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> (Output<T>, Output<T>, Output<T>) {
        let built = self.0.on(&input, "Svd").input(input).build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Switch`. Has no gradient. Returns `output_false`, `output_true`.
#[track_caller]
pub fn switch<T: TensorType>(
    data: impl Handle<T>,
    pred: impl Operand<bool>,
) -> (Output<T>, Output<T>) {
    let built = NewOp::on(&data, "Switch").input(data).input(pred).build();
    (built.output(0), built.output(1))
}

/// `SymbolicGradient`. Has a gradient.
#[track_caller]
pub fn symbolic_gradient(
    g: &Graph,
    input: &[Output<Untyped>],
    tout: &[DType],
    f: &Function,
) -> Vec<Output<Untyped>> {
    let built = NewOp::new(g, "SymbolicGradient")
        .inputs(input)
        .attr("Tin", &dtypes_of(input)[..])
        .attr("Tout", tout)
        .attr("f", f)
        .build();
    built.outputs("output", tout.len())
}
