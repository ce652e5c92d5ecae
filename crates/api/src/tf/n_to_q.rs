//! Ops N, O, P, Q. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `Ndtri`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn ndtri<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Ndtri").input(x).output()
}

/// `Neg`: each element negated.
///
/// `T`: float, double, int32, int16, int8, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn neg<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Neg").input(x).output()
}

/// `NextAfter`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn next_after<T: TensorType>(x1: impl Handle<T>, x2: impl Operand<T>) -> Output<T> {
    NewOp::on(&x1, "NextAfter").input(x1).input(x2).output()
}

/// `NextIteration`. Has no gradient.
#[track_caller]
pub fn next_iteration<T: TensorType>(data: impl Handle<T>) -> Output<T> {
    NewOp::on(&data, "NextIteration").input(data).output()
}

/// `NoOp`: nothing: a node for control edges. Has no gradient.
#[track_caller]
pub fn no_op(g: &Graph) -> Operation {
    NewOp::new(g, "NoOp").operation()
}

/// `NonDeterministicInts`.
///
/// `Dtype`: int32, int64, uint32, uint64. Has no gradient.
#[track_caller]
pub fn non_deterministic_ints<Dtype: TensorType, ShapeDtype: TensorType>(
    shape: impl Handle<ShapeDtype>,
) -> Output<Dtype> {
    NewOp::on(&shape, "NonDeterministicInts").dtype::<Dtype>("dtype").input(shape).output()
}

/// `NonMaxSuppression`. No gradient passes. Options: [`NonMaxSuppression`].
#[track_caller]
pub fn non_max_suppression(
    boxes: impl Handle<f32>,
    scores: impl Operand<f32>,
    max_output_size: impl Operand<i32>,
) -> Output<i32> {
    NonMaxSuppression::new().build(boxes, scores, max_output_size)
}
options! { NonMaxSuppression {
iou_threshold: f32 = "iou_threshold", "0.5";
} }
impl NonMaxSuppression {
    /// Adds the node: see [`non_max_suppression()`].
    #[track_caller]
    pub fn build(
        &self,
        boxes: impl Handle<f32>,
        scores: impl Operand<f32>,
        max_output_size: impl Operand<i32>,
    ) -> Output<i32> {
        self.0
            .on(&boxes, "NonMaxSuppression")
            .input(boxes)
            .input(scores)
            .input(max_output_size)
            .output()
    }
}

/// `NonMaxSuppressionV2`.
///
/// `T`: float, half. `TThreshold`: float, half. No gradient passes.
#[track_caller]
pub fn non_max_suppression_v2<T: TensorType, TThreshold: TensorType>(
    boxes: impl Handle<T>,
    scores: impl Operand<T>,
    max_output_size: impl Operand<i32>,
    iou_threshold: impl Operand<TThreshold>,
) -> Output<i32> {
    NewOp::on(&boxes, "NonMaxSuppressionV2")
        .input(boxes)
        .input(scores)
        .input(max_output_size)
        .input(iou_threshold)
        .output()
}

/// `NonMaxSuppressionV3`.
///
/// `T`: float, half. `TThreshold`: float, half. Has no gradient.
#[track_caller]
pub fn non_max_suppression_v3<T: TensorType, TThreshold: TensorType>(
    boxes: impl Handle<T>,
    scores: impl Operand<T>,
    max_output_size: impl Operand<i32>,
    iou_threshold: impl Operand<TThreshold>,
    score_threshold: impl Operand<TThreshold>,
) -> Output<i32> {
    NewOp::on(&boxes, "NonMaxSuppressionV3")
        .input(boxes)
        .input(scores)
        .input(max_output_size)
        .input(iou_threshold)
        .input(score_threshold)
        .output()
}

/// `NonMaxSuppressionV4`.
///
/// `T`: float, half. `TThreshold`: float, half. Has no gradient. Returns `selected_indices`, `valid_outputs`. Options: [`NonMaxSuppressionV4`].
#[track_caller]
pub fn non_max_suppression_v4<T: TensorType, TThreshold: TensorType>(
    boxes: impl Handle<T>,
    scores: impl Operand<T>,
    max_output_size: impl Operand<i32>,
    iou_threshold: impl Operand<TThreshold>,
    score_threshold: impl Operand<TThreshold>,
) -> (Output<i32>, Output<i32>) {
    NonMaxSuppressionV4::new().build(boxes, scores, max_output_size, iou_threshold, score_threshold)
}
options! { NonMaxSuppressionV4 {
pad_to_max_output_size: bool = "pad_to_max_output_size", "false";
} }
impl NonMaxSuppressionV4 {
    /// Adds the node: see [`non_max_suppression_v4()`].
    #[track_caller]
    pub fn build<T: TensorType, TThreshold: TensorType>(
        &self,
        boxes: impl Handle<T>,
        scores: impl Operand<T>,
        max_output_size: impl Operand<i32>,
        iou_threshold: impl Operand<TThreshold>,
        score_threshold: impl Operand<TThreshold>,
    ) -> (Output<i32>, Output<i32>) {
        let built = self
            .0
            .on(&boxes, "NonMaxSuppressionV4")
            .input(boxes)
            .input(scores)
            .input(max_output_size)
            .input(iou_threshold)
            .input(score_threshold)
            .build();
        (built.output(0), built.output(1))
    }
}

/// `NonMaxSuppressionV5`.
///
/// `T`: float, half. Has no gradient. Returns `selected_indices`, `selected_scores`, `valid_outputs`. Options: [`NonMaxSuppressionV5`].
#[track_caller]
pub fn non_max_suppression_v5<T: TensorType>(
    boxes: impl Handle<T>,
    scores: impl Operand<T>,
    max_output_size: impl Operand<i32>,
    iou_threshold: impl Operand<T>,
    score_threshold: impl Operand<T>,
    soft_nms_sigma: impl Operand<T>,
) -> (Output<i32>, Output<T>, Output<i32>) {
    NonMaxSuppressionV5::new().build(
        boxes,
        scores,
        max_output_size,
        iou_threshold,
        score_threshold,
        soft_nms_sigma,
    )
}
options! { NonMaxSuppressionV5 {
pad_to_max_output_size: bool = "pad_to_max_output_size", "false";
} }
impl NonMaxSuppressionV5 {
    /// Adds the node: see [`non_max_suppression_v5()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        boxes: impl Handle<T>,
        scores: impl Operand<T>,
        max_output_size: impl Operand<i32>,
        iou_threshold: impl Operand<T>,
        score_threshold: impl Operand<T>,
        soft_nms_sigma: impl Operand<T>,
    ) -> (Output<i32>, Output<T>, Output<i32>) {
        let built = self
            .0
            .on(&boxes, "NonMaxSuppressionV5")
            .input(boxes)
            .input(scores)
            .input(max_output_size)
            .input(iou_threshold)
            .input(score_threshold)
            .input(soft_nms_sigma)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `NonMaxSuppressionWithOverlaps`. No gradient passes.
#[track_caller]
pub fn non_max_suppression_with_overlaps(
    overlaps: impl Handle<f32>,
    scores: impl Operand<f32>,
    max_output_size: impl Operand<i32>,
    overlap_threshold: impl Operand<f32>,
    score_threshold: impl Operand<f32>,
) -> Output<i32> {
    NewOp::on(&overlaps, "NonMaxSuppressionWithOverlaps")
        .input(overlaps)
        .input(scores)
        .input(max_output_size)
        .input(overlap_threshold)
        .input(score_threshold)
        .output()
}

/// `NonSerializableDataset`. Has no gradient.
#[track_caller]
pub fn non_serializable_dataset(
    input_dataset: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "NonSerializableDataset")
        .input(input_dataset)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `NotEqual`: whether elements differ, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. No gradient passes. Options: [`NotEqual`].
#[track_caller]
pub fn not_equal<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    NotEqual::new().build(x, y)
}
options! { NotEqual {
incompatible_shape_error: bool = "incompatible_shape_error", "true";
} }
impl NotEqual {
    /// Adds the node: see [`not_equal()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
        self.0.on(&x, "NotEqual").input(x).input(y).output()
    }
}

/// `NthElement`.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64. Has a gradient. Options: [`NthElement`].
#[track_caller]
pub fn nth_element<T: TensorType>(input: impl Handle<T>, n: impl Operand<i32>) -> Output<T> {
    NthElement::new().build(input, n)
}
options! { NthElement {
reverse: bool = "reverse", "false";
} }
impl NthElement {
    /// Adds the node: see [`nth_element()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>, n: impl Operand<i32>) -> Output<T> {
        self.0.on(&input, "NthElement").input(input).input(n).output()
    }
}

/// `OneHot`: vectors with one value at an index.
///
/// `TI`: int32, uint8, int8, int64. No gradient passes. Options: [`OneHot`].
#[track_caller]
pub fn one_hot<T: TensorType, TI: TensorType>(
    indices: impl Handle<TI>,
    depth: impl Operand<i32>,
    on_value: impl Operand<T>,
    off_value: impl Operand<T>,
) -> Output<T> {
    OneHot::new().build(indices, depth, on_value, off_value)
}
options! { OneHot {
axis: i64 = "axis", "-1";
} }
impl OneHot {
    /// Adds the node: see [`one_hot()`].
    #[track_caller]
    pub fn build<T: TensorType, TI: TensorType>(
        &self,
        indices: impl Handle<TI>,
        depth: impl Operand<i32>,
        on_value: impl Operand<T>,
        off_value: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&indices, "OneHot")
            .input(indices)
            .input(depth)
            .input(on_value)
            .input(off_value)
            .output()
    }
}

/// `OneShotIterator`. Has no gradient. Options: [`OneShotIterator`].
#[track_caller]
pub fn one_shot_iterator(
    g: &Graph,
    dataset_factory: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    OneShotIterator::new().build(g, dataset_factory, output_types, output_shapes)
}
options! { OneShotIterator {
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OneShotIterator {
    /// Adds the node: see [`one_shot_iterator()`].
    #[track_caller]
    pub fn build(
        &self,
        g: &Graph,
        dataset_factory: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Resource> {
        self.0
            .new(g, "OneShotIterator")
            .attr("dataset_factory", dataset_factory)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `OnesLike`: ones of the same shape.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64. No gradient passes.
#[track_caller]
pub fn ones_like<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "OnesLike").input(x).output()
}

/// `OptimizeDataset`. Has no gradient. Options: [`OptimizeDataset`].
#[track_caller]
pub fn optimize_dataset(
    input_dataset: impl Handle<Variant>,
    optimizations: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    OptimizeDataset::new().build(input_dataset, optimizations, output_types, output_shapes)
}
options! { OptimizeDataset {
optimization_configs: &[&str] = "optimization_configs", "[]";
} }
impl OptimizeDataset {
    /// Adds the node: see [`optimize_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        optimizations: impl Operand<String>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "OptimizeDataset")
            .input(input_dataset)
            .input(optimizations)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `OptimizeDatasetV2`. Has no gradient. Options: [`OptimizeDatasetV2`].
#[track_caller]
pub fn optimize_dataset_v2(
    input_dataset: impl Handle<Variant>,
    optimizations_enabled: impl Operand<String>,
    optimizations_disabled: impl Operand<String>,
    optimizations_default: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    OptimizeDatasetV2::new().build(
        input_dataset,
        optimizations_enabled,
        optimizations_disabled,
        optimizations_default,
        output_types,
        output_shapes,
    )
}
options! { OptimizeDatasetV2 {
optimization_configs: &[&str] = "optimization_configs", "[]";
} }
impl OptimizeDatasetV2 {
    /// Adds the node: see [`optimize_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        optimizations_enabled: impl Operand<String>,
        optimizations_disabled: impl Operand<String>,
        optimizations_default: impl Operand<String>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "OptimizeDatasetV2")
            .input(input_dataset)
            .input(optimizations_enabled)
            .input(optimizations_disabled)
            .input(optimizations_default)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `OptionalFromValue`. Has a gradient.
#[track_caller]
pub fn optional_from_value(g: &Graph, components: &[Output<Untyped>]) -> Output<Variant> {
    NewOp::new(g, "OptionalFromValue")
        .inputs(components)
        .attr("Toutput_types", &dtypes_of(components)[..])
        .output()
}

/// `OptionalGetValue`. Has a gradient.
#[track_caller]
pub fn optional_get_value(
    optional: impl Handle<Variant>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Vec<Output<Untyped>> {
    let built = NewOp::on(&optional, "OptionalGetValue")
        .input(optional)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .build();
    built.outputs("components", output_types.len())
}

/// `OptionalHasValue`. Has no gradient.
#[track_caller]
pub fn optional_has_value(optional: impl Handle<Variant>) -> Output<bool> {
    NewOp::on(&optional, "OptionalHasValue").input(optional).output()
}

/// `OptionalNone`. Has no gradient.
#[track_caller]
pub fn optional_none(g: &Graph) -> Output<Variant> {
    NewOp::new(g, "OptionalNone").output()
}

/// `OptionsDataset`. Has no gradient. Options: [`OptionsDataset`].
#[track_caller]
pub fn options_dataset(
    input_dataset: impl Handle<Variant>,
    serialized_options: &str,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    OptionsDataset::new().build(input_dataset, serialized_options, output_types, output_shapes)
}
options! { OptionsDataset {
metadata: &str = "metadata", "\"\"";
} }
impl OptionsDataset {
    /// Adds the node: see [`options_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        serialized_options: &str,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "OptionsDataset")
            .input(input_dataset)
            .attr("serialized_options", serialized_options)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `OrderedMapClear`. Has no gradient. Options: [`OrderedMapClear`].
#[track_caller]
pub fn ordered_map_clear(g: &Graph, dtypes: &[DType]) -> Operation {
    OrderedMapClear::new().build(g, dtypes)
}
options! { OrderedMapClear {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapClear {
    /// Adds the node: see [`ordered_map_clear()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Operation {
        self.0.new(g, "OrderedMapClear").attr("dtypes", dtypes).operation()
    }
}

/// `OrderedMapIncompleteSize`. Has no gradient. Options: [`OrderedMapIncompleteSize`].
#[track_caller]
pub fn ordered_map_incomplete_size(g: &Graph, dtypes: &[DType]) -> Output<i32> {
    OrderedMapIncompleteSize::new().build(g, dtypes)
}
options! { OrderedMapIncompleteSize {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapIncompleteSize {
    /// Adds the node: see [`ordered_map_incomplete_size()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Output<i32> {
        self.0.new(g, "OrderedMapIncompleteSize").attr("dtypes", dtypes).output()
    }
}

/// `OrderedMapPeek`. Has no gradient. Options: [`OrderedMapPeek`].
#[track_caller]
pub fn ordered_map_peek(
    key: impl Handle<i64>,
    indices: impl Operand<i32>,
    dtypes: &[DType],
) -> Vec<Output<Untyped>> {
    OrderedMapPeek::new().build(key, indices, dtypes)
}
options! { OrderedMapPeek {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapPeek {
    /// Adds the node: see [`ordered_map_peek()`].
    #[track_caller]
    pub fn build(
        &self,
        key: impl Handle<i64>,
        indices: impl Operand<i32>,
        dtypes: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&key, "OrderedMapPeek")
            .input(key)
            .input(indices)
            .attr("dtypes", dtypes)
            .build();
        built.outputs("values", dtypes.len())
    }
}

/// `OrderedMapSize`. Has no gradient. Options: [`OrderedMapSize`].
#[track_caller]
pub fn ordered_map_size(g: &Graph, dtypes: &[DType]) -> Output<i32> {
    OrderedMapSize::new().build(g, dtypes)
}
options! { OrderedMapSize {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapSize {
    /// Adds the node: see [`ordered_map_size()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, dtypes: &[DType]) -> Output<i32> {
        self.0.new(g, "OrderedMapSize").attr("dtypes", dtypes).output()
    }
}

/// `OrderedMapStage`. Has no gradient. Options: [`OrderedMapStage`].
#[track_caller]
pub fn ordered_map_stage(
    key: impl Handle<i64>,
    indices: impl Operand<i32>,
    values: &[Output<Untyped>],
    dtypes: &[DType],
) -> Operation {
    OrderedMapStage::new().build(key, indices, values, dtypes)
}
options! { OrderedMapStage {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapStage {
    /// Adds the node: see [`ordered_map_stage()`].
    #[track_caller]
    pub fn build(
        &self,
        key: impl Handle<i64>,
        indices: impl Operand<i32>,
        values: &[Output<Untyped>],
        dtypes: &[DType],
    ) -> Operation {
        self.0
            .on(&key, "OrderedMapStage")
            .input(key)
            .input(indices)
            .inputs(values)
            .attr("fake_dtypes", &dtypes_of(values)[..])
            .attr("dtypes", dtypes)
            .operation()
    }
}

/// `OrderedMapUnstage`. Has no gradient. Options: [`OrderedMapUnstage`].
#[track_caller]
pub fn ordered_map_unstage(
    key: impl Handle<i64>,
    indices: impl Operand<i32>,
    dtypes: &[DType],
) -> Vec<Output<Untyped>> {
    OrderedMapUnstage::new().build(key, indices, dtypes)
}
options! { OrderedMapUnstage {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapUnstage {
    /// Adds the node: see [`ordered_map_unstage()`].
    #[track_caller]
    pub fn build(
        &self,
        key: impl Handle<i64>,
        indices: impl Operand<i32>,
        dtypes: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&key, "OrderedMapUnstage")
            .input(key)
            .input(indices)
            .attr("dtypes", dtypes)
            .build();
        built.outputs("values", dtypes.len())
    }
}

/// `OrderedMapUnstageNoKey`. Has no gradient. Returns `key`, `values`. Options: [`OrderedMapUnstageNoKey`].
#[track_caller]
pub fn ordered_map_unstage_no_key(
    indices: impl Handle<i32>,
    dtypes: &[DType],
) -> (Output<i64>, Vec<Output<Untyped>>) {
    OrderedMapUnstageNoKey::new().build(indices, dtypes)
}
options! { OrderedMapUnstageNoKey {
capacity: i64 = "capacity", "0";
memory_limit: i64 = "memory_limit", "0";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl OrderedMapUnstageNoKey {
    /// Adds the node: see [`ordered_map_unstage_no_key()`].
    #[track_caller]
    pub fn build(
        &self,
        indices: impl Handle<i32>,
        dtypes: &[DType],
    ) -> (Output<i64>, Vec<Output<Untyped>>) {
        let built = self
            .0
            .on(&indices, "OrderedMapUnstageNoKey")
            .input(indices)
            .attr("dtypes", dtypes)
            .build();
        (built.named("key"), built.outputs("values", dtypes.len()))
    }
}

/// `Pack`: tensors stacked along a new axis. Has a gradient. Options: [`Pack`].
#[track_caller]
pub fn pack<T: TensorType>(g: &Graph, values: &[Output<T>]) -> Output<T> {
    Pack::new().build(g, values)
}
options! { Pack {
axis: i64 = "axis", "0";
} }
impl Pack {
    /// Adds the node: see [`pack()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, g: &Graph, values: &[Output<T>]) -> Output<T> {
        self.0.new(g, "Pack").inputs(values).attr("N", values.len() as i64).dtype::<T>("T").output()
    }
}

/// `Pad`: a tensor padded with zeros.
///
/// `Tpaddings`: int32, int64. Has a gradient.
#[track_caller]
pub fn pad<T: TensorType, Tpaddings: TensorType>(
    input: impl Handle<T>,
    paddings: impl Operand<Tpaddings>,
) -> Output<T> {
    NewOp::on(&input, "Pad").input(input).input(paddings).output()
}

/// `PadV2`: a tensor padded with a value.
///
/// `Tpaddings`: int32, int64. Has a gradient.
#[track_caller]
pub fn pad_v2<T: TensorType, Tpaddings: TensorType>(
    input: impl Handle<T>,
    paddings: impl Operand<Tpaddings>,
    constant_values: impl Operand<T>,
) -> Output<T> {
    NewOp::on(&input, "PadV2").input(input).input(paddings).input(constant_values).output()
}

/// `PaddedBatchDataset`. Has no gradient. Options: [`PaddedBatchDataset`].
#[track_caller]
pub fn padded_batch_dataset(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    padded_shapes: &[Output<i64>],
    padding_values: &[Output<Untyped>],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    PaddedBatchDataset::new().build(
        input_dataset,
        batch_size,
        padded_shapes,
        padding_values,
        output_shapes,
    )
}
options! { PaddedBatchDataset {
metadata: &str = "metadata", "\"\"";
} }
impl PaddedBatchDataset {
    /// Adds the node: see [`padded_batch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        batch_size: impl Operand<i64>,
        padded_shapes: &[Output<i64>],
        padding_values: &[Output<Untyped>],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "PaddedBatchDataset")
            .input(input_dataset)
            .input(batch_size)
            .inputs(padded_shapes)
            .attr("N", padded_shapes.len() as i64)
            .inputs(padding_values)
            .attr("Toutput_types", &dtypes_of(padding_values)[..])
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `PaddedBatchDatasetV2`. Has no gradient. Options: [`PaddedBatchDatasetV2`].
#[track_caller]
pub fn padded_batch_dataset_v2(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    padded_shapes: &[Output<i64>],
    padding_values: &[Output<Untyped>],
    drop_remainder: impl Operand<bool>,
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    PaddedBatchDatasetV2::new().build(
        input_dataset,
        batch_size,
        padded_shapes,
        padding_values,
        drop_remainder,
        output_shapes,
    )
}
options! { PaddedBatchDatasetV2 {
parallel_copy: bool = "parallel_copy", "false";
metadata: &str = "metadata", "\"\"";
} }
impl PaddedBatchDatasetV2 {
    /// Adds the node: see [`padded_batch_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        batch_size: impl Operand<i64>,
        padded_shapes: &[Output<i64>],
        padding_values: &[Output<Untyped>],
        drop_remainder: impl Operand<bool>,
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "PaddedBatchDatasetV2")
            .input(input_dataset)
            .input(batch_size)
            .inputs(padded_shapes)
            .attr("N", padded_shapes.len() as i64)
            .inputs(padding_values)
            .attr("Toutput_types", &dtypes_of(padding_values)[..])
            .input(drop_remainder)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `PaddingFIFOQueue`. Has no gradient. Options: [`PaddingFIFOQueue`].
#[track_caller]
pub fn padding_fifo_queue(g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
    PaddingFIFOQueue::new().build(g, component_types)
}
options! { PaddingFIFOQueue {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl PaddingFIFOQueue {
    /// Adds the node: see [`padding_fifo_queue()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Ref<String>> {
        self.0.new(g, "PaddingFIFOQueue").attr("component_types", component_types).output()
    }
}

/// `PaddingFIFOQueueV2`. Has no gradient. Options: [`PaddingFIFOQueueV2`].
#[track_caller]
pub fn padding_fifo_queue_v2(g: &Graph, component_types: &[DType]) -> Output<Resource> {
    PaddingFIFOQueueV2::new().build(g, component_types)
}
options! { PaddingFIFOQueueV2 {
shapes: &[PartialShape] = "shapes", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl PaddingFIFOQueueV2 {
    /// Adds the node: see [`padding_fifo_queue_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, component_types: &[DType]) -> Output<Resource> {
        self.0.new(g, "PaddingFIFOQueueV2").attr("component_types", component_types).output()
    }
}

/// `ParallelBatchDataset`. Has no gradient. Options: [`ParallelBatchDataset`].
#[track_caller]
pub fn parallel_batch_dataset(
    input_dataset: impl Handle<Variant>,
    batch_size: impl Operand<i64>,
    num_parallel_calls: impl Operand<i64>,
    drop_remainder: impl Operand<bool>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelBatchDataset::new().build(
        input_dataset,
        batch_size,
        num_parallel_calls,
        drop_remainder,
        output_types,
        output_shapes,
    )
}
options! { ParallelBatchDataset {
parallel_copy: bool = "parallel_copy", "false";
deterministic: &str = "deterministic", "\"default\"";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelBatchDataset {
    /// Adds the node: see [`parallel_batch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        batch_size: impl Operand<i64>,
        num_parallel_calls: impl Operand<i64>,
        drop_remainder: impl Operand<bool>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelBatchDataset")
            .input(input_dataset)
            .input(batch_size)
            .input(num_parallel_calls)
            .input(drop_remainder)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParallelConcat`. Has no gradient.
#[track_caller]
pub fn parallel_concat<T: TensorType>(
    g: &Graph,
    values: &[Output<T>],
    shape: impl Dims,
) -> Output<T> {
    NewOp::new(g, "ParallelConcat")
        .inputs(values)
        .attr("N", values.len() as i64)
        .dtype::<T>("T")
        .attr("shape", &shape.to_partial())
        .output()
}

/// `ParallelDynamicStitch`. Has a gradient.
#[track_caller]
pub fn parallel_dynamic_stitch<T: TensorType>(
    g: &Graph,
    indices: &[Output<i32>],
    data: &[Output<T>],
) -> Output<T> {
    NewOp::new(g, "ParallelDynamicStitch")
        .inputs(indices)
        .attr("N", indices.len() as i64)
        .inputs(data)
        .dtype::<T>("T")
        .output()
}

/// `ParallelFilterDataset`. Has no gradient. Options: [`ParallelFilterDataset`].
#[track_caller]
pub fn parallel_filter_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    num_parallel_calls: impl Operand<i64>,
    predicate: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelFilterDataset::new().build(
        input_dataset,
        other_arguments,
        num_parallel_calls,
        predicate,
        output_types,
        output_shapes,
    )
}
options! { ParallelFilterDataset {
deterministic: &str = "deterministic", "\"default\"";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelFilterDataset {
    /// Adds the node: see [`parallel_filter_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        num_parallel_calls: impl Operand<i64>,
        predicate: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelFilterDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(num_parallel_calls)
            .attr("predicate", predicate)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParallelInterleaveDataset`. Has no gradient. Options: [`ParallelInterleaveDataset`].
#[track_caller]
pub fn parallel_interleave_dataset(
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
    ParallelInterleaveDataset::new().build(
        input_dataset,
        other_arguments,
        cycle_length,
        block_length,
        sloppy,
        buffer_output_elements,
        prefetch_input_elements,
        f,
        output_types,
        output_shapes,
    )
}
options! { ParallelInterleaveDataset {
metadata: &str = "metadata", "\"\"";
} }
impl ParallelInterleaveDataset {
    /// Adds the node: see [`parallel_interleave_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
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
        self.0
            .on(&input_dataset, "ParallelInterleaveDataset")
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
}

/// `ParallelInterleaveDatasetV2`. Has no gradient. Options: [`ParallelInterleaveDatasetV2`].
#[track_caller]
pub fn parallel_interleave_dataset_v2(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    cycle_length: impl Operand<i64>,
    block_length: impl Operand<i64>,
    num_parallel_calls: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelInterleaveDatasetV2::new().build(
        input_dataset,
        other_arguments,
        cycle_length,
        block_length,
        num_parallel_calls,
        f,
        output_types,
        output_shapes,
    )
}
options! { ParallelInterleaveDatasetV2 {
sloppy: bool = "sloppy", "false";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelInterleaveDatasetV2 {
    /// Adds the node: see [`parallel_interleave_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        cycle_length: impl Operand<i64>,
        block_length: impl Operand<i64>,
        num_parallel_calls: impl Operand<i64>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelInterleaveDatasetV2")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(cycle_length)
            .input(block_length)
            .input(num_parallel_calls)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParallelInterleaveDatasetV3`. Has no gradient. Options: [`ParallelInterleaveDatasetV3`].
#[track_caller]
pub fn parallel_interleave_dataset_v3(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    cycle_length: impl Operand<i64>,
    block_length: impl Operand<i64>,
    num_parallel_calls: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelInterleaveDatasetV3::new().build(
        input_dataset,
        other_arguments,
        cycle_length,
        block_length,
        num_parallel_calls,
        f,
        output_types,
        output_shapes,
    )
}
options! { ParallelInterleaveDatasetV3 {
deterministic: &str = "deterministic", "\"default\"";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelInterleaveDatasetV3 {
    /// Adds the node: see [`parallel_interleave_dataset_v3()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        cycle_length: impl Operand<i64>,
        block_length: impl Operand<i64>,
        num_parallel_calls: impl Operand<i64>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelInterleaveDatasetV3")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(cycle_length)
            .input(block_length)
            .input(num_parallel_calls)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParallelInterleaveDatasetV4`. Has no gradient. Options: [`ParallelInterleaveDatasetV4`].
#[track_caller]
pub fn parallel_interleave_dataset_v4(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    cycle_length: impl Operand<i64>,
    block_length: impl Operand<i64>,
    buffer_output_elements: impl Operand<i64>,
    prefetch_input_elements: impl Operand<i64>,
    num_parallel_calls: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelInterleaveDatasetV4::new().build(
        input_dataset,
        other_arguments,
        cycle_length,
        block_length,
        buffer_output_elements,
        prefetch_input_elements,
        num_parallel_calls,
        f,
        output_types,
        output_shapes,
    )
}
options! { ParallelInterleaveDatasetV4 {
deterministic: &str = "deterministic", "\"default\"";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelInterleaveDatasetV4 {
    /// Adds the node: see [`parallel_interleave_dataset_v4()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        cycle_length: impl Operand<i64>,
        block_length: impl Operand<i64>,
        buffer_output_elements: impl Operand<i64>,
        prefetch_input_elements: impl Operand<i64>,
        num_parallel_calls: impl Operand<i64>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelInterleaveDatasetV4")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(cycle_length)
            .input(block_length)
            .input(buffer_output_elements)
            .input(prefetch_input_elements)
            .input(num_parallel_calls)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParallelMapDataset`. Has no gradient. Options: [`ParallelMapDataset`].
#[track_caller]
pub fn parallel_map_dataset(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    num_parallel_calls: impl Operand<i32>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelMapDataset::new().build(
        input_dataset,
        other_arguments,
        num_parallel_calls,
        f,
        output_types,
        output_shapes,
    )
}
options! { ParallelMapDataset {
use_inter_op_parallelism: bool = "use_inter_op_parallelism", "true";
sloppy: bool = "sloppy", "false";
preserve_cardinality: bool = "preserve_cardinality", "false";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelMapDataset {
    /// Adds the node: see [`parallel_map_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        num_parallel_calls: impl Operand<i32>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelMapDataset")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(num_parallel_calls)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParallelMapDatasetV2`. Has no gradient. Options: [`ParallelMapDatasetV2`].
#[track_caller]
pub fn parallel_map_dataset_v2(
    input_dataset: impl Handle<Variant>,
    other_arguments: &[Output<Untyped>],
    num_parallel_calls: impl Operand<i64>,
    f: &Function,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    ParallelMapDatasetV2::new().build(
        input_dataset,
        other_arguments,
        num_parallel_calls,
        f,
        output_types,
        output_shapes,
    )
}
options! { ParallelMapDatasetV2 {
use_inter_op_parallelism: bool = "use_inter_op_parallelism", "true";
deterministic: &str = "deterministic", "\"default\"";
preserve_cardinality: bool = "preserve_cardinality", "false";
use_unbounded_threadpool: bool = "use_unbounded_threadpool", "false";
metadata: &str = "metadata", "\"\"";
} }
impl ParallelMapDatasetV2 {
    /// Adds the node: see [`parallel_map_dataset_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        other_arguments: &[Output<Untyped>],
        num_parallel_calls: impl Operand<i64>,
        f: &Function,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "ParallelMapDatasetV2")
            .input(input_dataset)
            .inputs(other_arguments)
            .attr("Targuments", &dtypes_of(other_arguments)[..])
            .input(num_parallel_calls)
            .attr("f", f)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `ParameterizedTruncatedNormal`.
///
/// `T`: int32, int64. `Dtype`: float, double, half. No gradient passes. Options: [`ParameterizedTruncatedNormal`].
#[track_caller]
pub fn parameterized_truncated_normal<Dtype: TensorType, T: TensorType>(
    shape: impl Handle<T>,
    means: impl Operand<Dtype>,
    stdevs: impl Operand<Dtype>,
    minvals: impl Operand<Dtype>,
    maxvals: impl Operand<Dtype>,
) -> Output<Dtype> {
    ParameterizedTruncatedNormal::new().build(shape, means, stdevs, minvals, maxvals)
}
options! { ParameterizedTruncatedNormal {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl ParameterizedTruncatedNormal {
    /// Adds the node: see [`parameterized_truncated_normal()`].
    #[track_caller]
    pub fn build<Dtype: TensorType, T: TensorType>(
        &self,
        shape: impl Handle<T>,
        means: impl Operand<Dtype>,
        stdevs: impl Operand<Dtype>,
        minvals: impl Operand<Dtype>,
        maxvals: impl Operand<Dtype>,
    ) -> Output<Dtype> {
        self.0
            .on(&shape, "ParameterizedTruncatedNormal")
            .input(shape)
            .input(means)
            .input(stdevs)
            .input(minvals)
            .input(maxvals)
            .output()
    }
}

/// Outputs of [`parse_example`].
#[derive(Clone, Debug)]
pub struct ParseExampleOutputs {
    /// `sparse_indices`.
    pub sparse_indices: Vec<Output<i64>>,
    /// `sparse_values`.
    pub sparse_values: Vec<Output<Untyped>>,
    /// `sparse_shapes`.
    pub sparse_shapes: Vec<Output<i64>>,
    /// `dense_values`.
    pub dense_values: Vec<Output<Untyped>>,
}

/// `ParseExample`.
///
/// `Tdense`: float, string, int64. `SparseTypes`: float, string, int64. Has no gradient. Returns `sparse_indices`, `sparse_values`, `sparse_shapes`, `dense_values`.
#[track_caller]
pub fn parse_example(
    serialized: impl Handle<String>,
    names: impl Operand<String>,
    sparse_keys: &[Output<String>],
    dense_keys: &[Output<String>],
    dense_defaults: &[Output<Untyped>],
    sparse_types: &[DType],
    dense_shapes: &[PartialShape],
) -> ParseExampleOutputs {
    let built = NewOp::on(&serialized, "ParseExample")
        .input(serialized)
        .input(names)
        .inputs(sparse_keys)
        .attr("Nsparse", sparse_keys.len() as i64)
        .inputs(dense_keys)
        .attr("Ndense", dense_keys.len() as i64)
        .inputs(dense_defaults)
        .attr("Tdense", &dtypes_of(dense_defaults)[..])
        .attr("sparse_types", sparse_types)
        .attr("dense_shapes", dense_shapes)
        .build();
    ParseExampleOutputs {
        sparse_indices: built.outputs("sparse_indices", sparse_keys.len()),
        sparse_values: built.outputs("sparse_values", sparse_types.len()),
        sparse_shapes: built.outputs("sparse_shapes", sparse_keys.len()),
        dense_values: built.outputs("dense_values", dense_defaults.len()),
    }
}

/// `ParseExampleDataset`.
///
/// `Tdense`: float, string, int64. Has no gradient. Options: [`ParseExampleDataset`].
#[track_caller]
pub fn parse_example_dataset(
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
    ParseExampleDataset::new().build(
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
options! { ParseExampleDataset {
sloppy: bool = "sloppy", "false";
ragged_keys: &[&str] = "ragged_keys", "[]";
ragged_value_types: &[DType] = "ragged_value_types", "[]";
ragged_split_types: &[DType] = "ragged_split_types", "[]";
} }
impl ParseExampleDataset {
    /// Adds the node: see [`parse_example_dataset()`].
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
            .on(&input_dataset, "ParseExampleDataset")
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

/// `ParseExampleDatasetV2`.
///
/// `Tdense`: float, string, int64. Has no gradient. Options: [`ParseExampleDatasetV2`].
#[track_caller]
pub fn parse_example_dataset_v2(
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
    ParseExampleDatasetV2::new().build(
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
options! { ParseExampleDatasetV2 {
deterministic: &str = "deterministic", "\"default\"";
ragged_keys: &[&str] = "ragged_keys", "[]";
ragged_value_types: &[DType] = "ragged_value_types", "[]";
ragged_split_types: &[DType] = "ragged_split_types", "[]";
} }
impl ParseExampleDatasetV2 {
    /// Adds the node: see [`parse_example_dataset_v2()`].
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
            .on(&input_dataset, "ParseExampleDatasetV2")
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

/// Outputs of [`parse_example_v2`].
#[derive(Clone, Debug)]
pub struct ParseExampleV2Outputs {
    /// `sparse_indices`.
    pub sparse_indices: Vec<Output<i64>>,
    /// `sparse_values`.
    pub sparse_values: Vec<Output<Untyped>>,
    /// `sparse_shapes`.
    pub sparse_shapes: Vec<Output<i64>>,
    /// `dense_values`.
    pub dense_values: Vec<Output<Untyped>>,
    /// `ragged_values`.
    pub ragged_values: Vec<Output<Untyped>>,
    /// `ragged_row_splits`.
    pub ragged_row_splits: Vec<Output<Untyped>>,
}

/// `ParseExampleV2`.
///
/// `Tdense`: float, string, int64. `RaggedSplitTypes`: int32, int64. `RaggedValueTypes`: float, string, int64. `SparseTypes`: float, string, int64. Has no gradient. Returns `sparse_indices`, `sparse_values`, `sparse_shapes`, `dense_values`, `ragged_values`, `ragged_row_splits`.
#[track_caller]
pub fn parse_example_v2(
    serialized: impl Handle<String>,
    names: impl Operand<String>,
    sparse_keys: impl Operand<String>,
    dense_keys: impl Operand<String>,
    ragged_keys: impl Operand<String>,
    dense_defaults: &[Output<Untyped>],
    num_sparse: i64,
    sparse_types: &[DType],
    ragged_value_types: &[DType],
    ragged_split_types: &[DType],
    dense_shapes: &[PartialShape],
) -> ParseExampleV2Outputs {
    let built = NewOp::on(&serialized, "ParseExampleV2")
        .input(serialized)
        .input(names)
        .input(sparse_keys)
        .input(dense_keys)
        .input(ragged_keys)
        .inputs(dense_defaults)
        .attr("Tdense", &dtypes_of(dense_defaults)[..])
        .attr("num_sparse", num_sparse)
        .attr("sparse_types", sparse_types)
        .attr("ragged_value_types", ragged_value_types)
        .attr("ragged_split_types", ragged_split_types)
        .attr("dense_shapes", dense_shapes)
        .build();
    ParseExampleV2Outputs {
        sparse_indices: built.outputs("sparse_indices", usize::try_from(num_sparse).unwrap_or(0)),
        sparse_values: built.outputs("sparse_values", sparse_types.len()),
        sparse_shapes: built.outputs("sparse_shapes", usize::try_from(num_sparse).unwrap_or(0)),
        dense_values: built.outputs("dense_values", dense_defaults.len()),
        ragged_values: built.outputs("ragged_values", ragged_value_types.len()),
        ragged_row_splits: built.outputs("ragged_row_splits", ragged_split_types.len()),
    }
}

/// Outputs of [`parse_sequence_example`].
#[derive(Clone, Debug)]
pub struct ParseSequenceExampleOutputs {
    /// `context_sparse_indices`.
    pub context_sparse_indices: Vec<Output<i64>>,
    /// `context_sparse_values`.
    pub context_sparse_values: Vec<Output<Untyped>>,
    /// `context_sparse_shapes`.
    pub context_sparse_shapes: Vec<Output<i64>>,
    /// `context_dense_values`.
    pub context_dense_values: Vec<Output<Untyped>>,
    /// `feature_list_sparse_indices`.
    pub feature_list_sparse_indices: Vec<Output<i64>>,
    /// `feature_list_sparse_values`.
    pub feature_list_sparse_values: Vec<Output<Untyped>>,
    /// `feature_list_sparse_shapes`.
    pub feature_list_sparse_shapes: Vec<Output<i64>>,
    /// `feature_list_dense_values`.
    pub feature_list_dense_values: Vec<Output<Untyped>>,
    /// `feature_list_dense_lengths`.
    pub feature_list_dense_lengths: Vec<Output<i64>>,
}

/// `ParseSequenceExample`.
///
/// `TcontextDense`: float, string, int64. `ContextSparseTypes`: float, string, int64. `FeatureListDenseTypes`: float, string, int64. `FeatureListSparseTypes`: float, string, int64. Has no gradient. Returns `context_sparse_indices`, `context_sparse_values`, `context_sparse_shapes`, `context_dense_values`, `feature_list_sparse_indices`, `feature_list_sparse_values`, `feature_list_sparse_shapes`, `feature_list_dense_values`, `feature_list_dense_lengths`. Options: [`ParseSequenceExample`].
#[track_caller]
pub fn parse_sequence_example(
    serialized: impl Handle<String>,
    debug_name: impl Operand<String>,
    context_dense_defaults: &[Output<Untyped>],
    feature_list_dense_missing_assumed_empty: &[&str],
    context_sparse_keys: &[&str],
    context_dense_keys: &[&str],
    feature_list_sparse_keys: &[&str],
    feature_list_dense_keys: &[&str],
) -> ParseSequenceExampleOutputs {
    ParseSequenceExample::new().build(
        serialized,
        debug_name,
        context_dense_defaults,
        feature_list_dense_missing_assumed_empty,
        context_sparse_keys,
        context_dense_keys,
        feature_list_sparse_keys,
        feature_list_dense_keys,
    )
}
options! { ParseSequenceExample {
ncontext_sparse: i64 = "Ncontext_sparse", "0";
ncontext_dense: i64 = "Ncontext_dense", "0";
nfeature_list_sparse: i64 = "Nfeature_list_sparse", "0";
nfeature_list_dense: i64 = "Nfeature_list_dense", "0";
context_sparse_types: &[DType] = "context_sparse_types", "[]";
feature_list_dense_types: &[DType] = "feature_list_dense_types", "[]";
context_dense_shapes: &[PartialShape] = "context_dense_shapes", "[]";
feature_list_sparse_types: &[DType] = "feature_list_sparse_types", "[]";
feature_list_dense_shapes: &[PartialShape] = "feature_list_dense_shapes", "[]";
} }
impl ParseSequenceExample {
    /// Adds the node: see [`parse_sequence_example()`].
    #[track_caller]
    pub fn build(
        &self,
        serialized: impl Handle<String>,
        debug_name: impl Operand<String>,
        context_dense_defaults: &[Output<Untyped>],
        feature_list_dense_missing_assumed_empty: &[&str],
        context_sparse_keys: &[&str],
        context_dense_keys: &[&str],
        feature_list_sparse_keys: &[&str],
        feature_list_dense_keys: &[&str],
    ) -> ParseSequenceExampleOutputs {
        let built = self
            .0
            .on(&serialized, "ParseSequenceExample")
            .input(serialized)
            .input(debug_name)
            .inputs(context_dense_defaults)
            .attr("Tcontext_dense", &dtypes_of(context_dense_defaults)[..])
            .attr(
                "feature_list_dense_missing_assumed_empty",
                feature_list_dense_missing_assumed_empty,
            )
            .attr("context_sparse_keys", context_sparse_keys)
            .attr("context_dense_keys", context_dense_keys)
            .attr("feature_list_sparse_keys", feature_list_sparse_keys)
            .attr("feature_list_dense_keys", feature_list_dense_keys)
            .build();
        ParseSequenceExampleOutputs {
            context_sparse_indices: built.outputs("context_sparse_indices", 0),
            context_sparse_values: built.outputs("context_sparse_values", 0),
            context_sparse_shapes: built.outputs("context_sparse_shapes", 0),
            context_dense_values: built
                .outputs("context_dense_values", context_dense_defaults.len()),
            feature_list_sparse_indices: built.outputs("feature_list_sparse_indices", 0),
            feature_list_sparse_values: built.outputs("feature_list_sparse_values", 0),
            feature_list_sparse_shapes: built.outputs("feature_list_sparse_shapes", 0),
            feature_list_dense_values: built.outputs("feature_list_dense_values", 0),
            feature_list_dense_lengths: built.outputs("feature_list_dense_lengths", 0),
        }
    }
}

/// Outputs of [`parse_sequence_example_v2`].
#[derive(Clone, Debug)]
pub struct ParseSequenceExampleV2Outputs {
    /// `context_sparse_indices`.
    pub context_sparse_indices: Vec<Output<i64>>,
    /// `context_sparse_values`.
    pub context_sparse_values: Vec<Output<Untyped>>,
    /// `context_sparse_shapes`.
    pub context_sparse_shapes: Vec<Output<i64>>,
    /// `context_dense_values`.
    pub context_dense_values: Vec<Output<Untyped>>,
    /// `context_ragged_values`.
    pub context_ragged_values: Vec<Output<Untyped>>,
    /// `context_ragged_row_splits`.
    pub context_ragged_row_splits: Vec<Output<Untyped>>,
    /// `feature_list_sparse_indices`.
    pub feature_list_sparse_indices: Vec<Output<i64>>,
    /// `feature_list_sparse_values`.
    pub feature_list_sparse_values: Vec<Output<Untyped>>,
    /// `feature_list_sparse_shapes`.
    pub feature_list_sparse_shapes: Vec<Output<i64>>,
    /// `feature_list_dense_values`.
    pub feature_list_dense_values: Vec<Output<Untyped>>,
    /// `feature_list_dense_lengths`.
    pub feature_list_dense_lengths: Vec<Output<i64>>,
    /// `feature_list_ragged_values`.
    pub feature_list_ragged_values: Vec<Output<Untyped>>,
    /// `feature_list_ragged_outer_splits`.
    pub feature_list_ragged_outer_splits: Vec<Output<Untyped>>,
    /// `feature_list_ragged_inner_splits`.
    pub feature_list_ragged_inner_splits: Vec<Output<Untyped>>,
}

/// `ParseSequenceExampleV2`.
///
/// `TcontextDense`: float, string, int64. `ContextRaggedSplitTypes`: int32, int64. `ContextRaggedValueTypes`: float, string, int64. `ContextSparseTypes`: float, string, int64. `FeatureListDenseTypes`: float, string, int64. `FeatureListRaggedSplitTypes`: int32, int64. `FeatureListRaggedValueTypes`: float, string, int64. `FeatureListSparseTypes`: float, string, int64. Has no gradient. Returns `context_sparse_indices`, `context_sparse_values`, `context_sparse_shapes`, `context_dense_values`, `context_ragged_values`, `context_ragged_row_splits`, `feature_list_sparse_indices`, `feature_list_sparse_values`, `feature_list_sparse_shapes`, `feature_list_dense_values`, `feature_list_dense_lengths`, `feature_list_ragged_values`, `feature_list_ragged_outer_splits`, `feature_list_ragged_inner_splits`. Options: [`ParseSequenceExampleV2`].
#[track_caller]
pub fn parse_sequence_example_v2(
    serialized: impl Handle<String>,
    debug_name: impl Operand<String>,
    context_sparse_keys: impl Operand<String>,
    context_dense_keys: impl Operand<String>,
    context_ragged_keys: impl Operand<String>,
    feature_list_sparse_keys: impl Operand<String>,
    feature_list_dense_keys: impl Operand<String>,
    feature_list_ragged_keys: impl Operand<String>,
    feature_list_dense_missing_assumed_empty: impl Operand<bool>,
    context_dense_defaults: &[Output<Untyped>],
) -> ParseSequenceExampleV2Outputs {
    ParseSequenceExampleV2::new().build(
        serialized,
        debug_name,
        context_sparse_keys,
        context_dense_keys,
        context_ragged_keys,
        feature_list_sparse_keys,
        feature_list_dense_keys,
        feature_list_ragged_keys,
        feature_list_dense_missing_assumed_empty,
        context_dense_defaults,
    )
}
options! { ParseSequenceExampleV2 {
ncontext_sparse: i64 = "Ncontext_sparse", "0";
context_sparse_types: &[DType] = "context_sparse_types", "[]";
context_ragged_value_types: &[DType] = "context_ragged_value_types", "[]";
context_ragged_split_types: &[DType] = "context_ragged_split_types", "[]";
context_dense_shapes: &[PartialShape] = "context_dense_shapes", "[]";
nfeature_list_sparse: i64 = "Nfeature_list_sparse", "0";
nfeature_list_dense: i64 = "Nfeature_list_dense", "0";
feature_list_dense_types: &[DType] = "feature_list_dense_types", "[]";
feature_list_sparse_types: &[DType] = "feature_list_sparse_types", "[]";
feature_list_ragged_value_types: &[DType] = "feature_list_ragged_value_types", "[]";
feature_list_ragged_split_types: &[DType] = "feature_list_ragged_split_types", "[]";
feature_list_dense_shapes: &[PartialShape] = "feature_list_dense_shapes", "[]";
} }
impl ParseSequenceExampleV2 {
    /// Adds the node: see [`parse_sequence_example_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        serialized: impl Handle<String>,
        debug_name: impl Operand<String>,
        context_sparse_keys: impl Operand<String>,
        context_dense_keys: impl Operand<String>,
        context_ragged_keys: impl Operand<String>,
        feature_list_sparse_keys: impl Operand<String>,
        feature_list_dense_keys: impl Operand<String>,
        feature_list_ragged_keys: impl Operand<String>,
        feature_list_dense_missing_assumed_empty: impl Operand<bool>,
        context_dense_defaults: &[Output<Untyped>],
    ) -> ParseSequenceExampleV2Outputs {
        let built = self
            .0
            .on(&serialized, "ParseSequenceExampleV2")
            .input(serialized)
            .input(debug_name)
            .input(context_sparse_keys)
            .input(context_dense_keys)
            .input(context_ragged_keys)
            .input(feature_list_sparse_keys)
            .input(feature_list_dense_keys)
            .input(feature_list_ragged_keys)
            .input(feature_list_dense_missing_assumed_empty)
            .inputs(context_dense_defaults)
            .attr("Tcontext_dense", &dtypes_of(context_dense_defaults)[..])
            .build();
        ParseSequenceExampleV2Outputs {
            context_sparse_indices: built.outputs("context_sparse_indices", 0),
            context_sparse_values: built.outputs("context_sparse_values", 0),
            context_sparse_shapes: built.outputs("context_sparse_shapes", 0),
            context_dense_values: built
                .outputs("context_dense_values", context_dense_defaults.len()),
            context_ragged_values: built.outputs("context_ragged_values", 0),
            context_ragged_row_splits: built.outputs("context_ragged_row_splits", 0),
            feature_list_sparse_indices: built.outputs("feature_list_sparse_indices", 0),
            feature_list_sparse_values: built.outputs("feature_list_sparse_values", 0),
            feature_list_sparse_shapes: built.outputs("feature_list_sparse_shapes", 0),
            feature_list_dense_values: built.outputs("feature_list_dense_values", 0),
            feature_list_dense_lengths: built.outputs("feature_list_dense_lengths", 0),
            feature_list_ragged_values: built.outputs("feature_list_ragged_values", 0),
            feature_list_ragged_outer_splits: built.outputs("feature_list_ragged_outer_splits", 0),
            feature_list_ragged_inner_splits: built.outputs("feature_list_ragged_inner_splits", 0),
        }
    }
}

/// Outputs of [`parse_single_example`].
#[derive(Clone, Debug)]
pub struct ParseSingleExampleOutputs {
    /// `sparse_indices`.
    pub sparse_indices: Vec<Output<i64>>,
    /// `sparse_values`.
    pub sparse_values: Vec<Output<Untyped>>,
    /// `sparse_shapes`.
    pub sparse_shapes: Vec<Output<i64>>,
    /// `dense_values`.
    pub dense_values: Vec<Output<Untyped>>,
}

/// `ParseSingleExample`.
///
/// `Tdense`: float, string, int64. `SparseTypes`: float, string, int64. Has no gradient. Returns `sparse_indices`, `sparse_values`, `sparse_shapes`, `dense_values`.
#[track_caller]
pub fn parse_single_example(
    serialized: impl Handle<String>,
    dense_defaults: &[Output<Untyped>],
    num_sparse: i64,
    sparse_keys: &[&str],
    dense_keys: &[&str],
    sparse_types: &[DType],
    dense_shapes: &[PartialShape],
) -> ParseSingleExampleOutputs {
    let built = NewOp::on(&serialized, "ParseSingleExample")
        .input(serialized)
        .inputs(dense_defaults)
        .attr("Tdense", &dtypes_of(dense_defaults)[..])
        .attr("num_sparse", num_sparse)
        .attr("sparse_keys", sparse_keys)
        .attr("dense_keys", dense_keys)
        .attr("sparse_types", sparse_types)
        .attr("dense_shapes", dense_shapes)
        .build();
    ParseSingleExampleOutputs {
        sparse_indices: built.outputs("sparse_indices", usize::try_from(num_sparse).unwrap_or(0)),
        sparse_values: built.outputs("sparse_values", sparse_types.len()),
        sparse_shapes: built.outputs("sparse_shapes", usize::try_from(num_sparse).unwrap_or(0)),
        dense_values: built.outputs("dense_values", dense_defaults.len()),
    }
}

/// Outputs of [`parse_single_sequence_example`].
#[derive(Clone, Debug)]
pub struct ParseSingleSequenceExampleOutputs {
    /// `context_sparse_indices`.
    pub context_sparse_indices: Vec<Output<i64>>,
    /// `context_sparse_values`.
    pub context_sparse_values: Vec<Output<Untyped>>,
    /// `context_sparse_shapes`.
    pub context_sparse_shapes: Vec<Output<i64>>,
    /// `context_dense_values`.
    pub context_dense_values: Vec<Output<Untyped>>,
    /// `feature_list_sparse_indices`.
    pub feature_list_sparse_indices: Vec<Output<i64>>,
    /// `feature_list_sparse_values`.
    pub feature_list_sparse_values: Vec<Output<Untyped>>,
    /// `feature_list_sparse_shapes`.
    pub feature_list_sparse_shapes: Vec<Output<i64>>,
    /// `feature_list_dense_values`.
    pub feature_list_dense_values: Vec<Output<Untyped>>,
}

/// `ParseSingleSequenceExample`.
///
/// `TcontextDense`: float, string, int64. `ContextSparseTypes`: float, string, int64. `FeatureListDenseTypes`: float, string, int64. `FeatureListSparseTypes`: float, string, int64. Has no gradient. Returns `context_sparse_indices`, `context_sparse_values`, `context_sparse_shapes`, `context_dense_values`, `feature_list_sparse_indices`, `feature_list_sparse_values`, `feature_list_sparse_shapes`, `feature_list_dense_values`. Options: [`ParseSingleSequenceExample`].
#[track_caller]
pub fn parse_single_sequence_example(
    serialized: impl Handle<String>,
    feature_list_dense_missing_assumed_empty: impl Operand<String>,
    context_sparse_keys: &[Output<String>],
    context_dense_keys: &[Output<String>],
    feature_list_sparse_keys: &[Output<String>],
    feature_list_dense_keys: &[Output<String>],
    context_dense_defaults: &[Output<Untyped>],
    debug_name: impl Operand<String>,
) -> ParseSingleSequenceExampleOutputs {
    ParseSingleSequenceExample::new().build(
        serialized,
        feature_list_dense_missing_assumed_empty,
        context_sparse_keys,
        context_dense_keys,
        feature_list_sparse_keys,
        feature_list_dense_keys,
        context_dense_defaults,
        debug_name,
    )
}
options! { ParseSingleSequenceExample {
context_sparse_types: &[DType] = "context_sparse_types", "[]";
feature_list_dense_types: &[DType] = "feature_list_dense_types", "[]";
context_dense_shapes: &[PartialShape] = "context_dense_shapes", "[]";
feature_list_sparse_types: &[DType] = "feature_list_sparse_types", "[]";
feature_list_dense_shapes: &[PartialShape] = "feature_list_dense_shapes", "[]";
} }
impl ParseSingleSequenceExample {
    /// Adds the node: see [`parse_single_sequence_example()`].
    #[track_caller]
    pub fn build(
        &self,
        serialized: impl Handle<String>,
        feature_list_dense_missing_assumed_empty: impl Operand<String>,
        context_sparse_keys: &[Output<String>],
        context_dense_keys: &[Output<String>],
        feature_list_sparse_keys: &[Output<String>],
        feature_list_dense_keys: &[Output<String>],
        context_dense_defaults: &[Output<Untyped>],
        debug_name: impl Operand<String>,
    ) -> ParseSingleSequenceExampleOutputs {
        let built = self
            .0
            .on(&serialized, "ParseSingleSequenceExample")
            .input(serialized)
            .input(feature_list_dense_missing_assumed_empty)
            .inputs(context_sparse_keys)
            .attr("Ncontext_sparse", context_sparse_keys.len() as i64)
            .inputs(context_dense_keys)
            .attr("Ncontext_dense", context_dense_keys.len() as i64)
            .inputs(feature_list_sparse_keys)
            .attr("Nfeature_list_sparse", feature_list_sparse_keys.len() as i64)
            .inputs(feature_list_dense_keys)
            .attr("Nfeature_list_dense", feature_list_dense_keys.len() as i64)
            .inputs(context_dense_defaults)
            .attr("Tcontext_dense", &dtypes_of(context_dense_defaults)[..])
            .input(debug_name)
            .build();
        ParseSingleSequenceExampleOutputs {
            context_sparse_indices: built
                .outputs("context_sparse_indices", context_sparse_keys.len()),
            context_sparse_values: built.outputs("context_sparse_values", 0),
            context_sparse_shapes: built
                .outputs("context_sparse_shapes", context_sparse_keys.len()),
            context_dense_values: built
                .outputs("context_dense_values", context_dense_defaults.len()),
            feature_list_sparse_indices: built
                .outputs("feature_list_sparse_indices", feature_list_sparse_keys.len()),
            feature_list_sparse_values: built.outputs("feature_list_sparse_values", 0),
            feature_list_sparse_shapes: built
                .outputs("feature_list_sparse_shapes", feature_list_sparse_keys.len()),
            feature_list_dense_values: built.outputs("feature_list_dense_values", 0),
        }
    }
}

/// `ParseTensor`. No gradient passes.
#[track_caller]
pub fn parse_tensor<OutType: TensorType>(serialized: impl Handle<String>) -> Output<OutType> {
    NewOp::on(&serialized, "ParseTensor").dtype::<OutType>("out_type").input(serialized).output()
}

/// `PartitionedCall`. Has a gradient. Options: [`PartitionedCall`].
#[track_caller]
pub fn partitioned_call(
    g: &Graph,
    args: &[Output<Untyped>],
    tout: &[DType],
    f: &Function,
) -> Vec<Output<Untyped>> {
    PartitionedCall::new().build(g, args, tout, f)
}
options! { PartitionedCall {
config: &str = "config", "\"\"";
config_proto: &str = "config_proto", "\"\"";
executor_type: &str = "executor_type", "\"\"";
} }
impl PartitionedCall {
    /// Adds the node: see [`partitioned_call()`].
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
            .new(g, "PartitionedCall")
            .inputs(args)
            .attr("Tin", &dtypes_of(args)[..])
            .attr("Tout", tout)
            .attr("f", f)
            .build();
        built.outputs("output", tout.len())
    }
}

/// `Placeholder`: a tensor that each step feeds. Has no gradient. Options: [`Placeholder`].
#[track_caller]
pub fn placeholder<Dtype: TensorType>(g: &Graph) -> Output<Dtype> {
    Placeholder::new().build(g)
}
options! { Placeholder {
shape: impl Dims = "shape", "unknown", |value| &value.to_partial();
} }
impl Placeholder {
    /// Adds the node: see [`placeholder()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(&self, g: &Graph) -> Output<Dtype> {
        self.0.new(g, "Placeholder").dtype::<Dtype>("dtype").output()
    }
}

/// `PlaceholderV2`. Has no gradient.
#[track_caller]
pub fn placeholder_v2<Dtype: TensorType>(g: &Graph, shape: impl Dims) -> Output<Dtype> {
    NewOp::new(g, "PlaceholderV2")
        .dtype::<Dtype>("dtype")
        .attr("shape", &shape.to_partial())
        .output()
}

/// `PlaceholderWithDefault`: a tensor that a step may feed. Has a gradient.
#[track_caller]
pub fn placeholder_with_default<Dtype: TensorType>(
    input: impl Handle<Dtype>,
    shape: impl Dims,
) -> Output<Dtype> {
    NewOp::on(&input, "PlaceholderWithDefault")
        .input(input)
        .attr("shape", &shape.to_partial())
        .output()
}

/// `Polygamma`.
///
/// `T`: float, double. Has a gradient.
#[track_caller]
pub fn polygamma<T: TensorType>(a: impl Handle<T>, x: impl Operand<T>) -> Output<T> {
    NewOp::on(&a, "Polygamma").input(a).input(x).output()
}

/// `PopulationCount`.
///
/// `T`: int32, uint8, int16, int8, int64, uint16, uint32, uint64. No gradient passes.
#[track_caller]
pub fn population_count<T: TensorType>(x: impl Handle<T>) -> Output<u8> {
    NewOp::on(&x, "PopulationCount").input(x).output()
}

/// `Pow`: the first to the power of the second, with broadcasting.
///
/// `T`: float, double, int32, int16, int8, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn pow<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Pow").input(x).input(y).output()
}

/// `PrefetchDataset`. Has no gradient. Options: [`PrefetchDataset`].
#[track_caller]
pub fn prefetch_dataset(
    input_dataset: impl Handle<Variant>,
    buffer_size: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    PrefetchDataset::new().build(input_dataset, buffer_size, output_types, output_shapes)
}
options! { PrefetchDataset {
slack_period: i64 = "slack_period", "0";
legacy_autotune: bool = "legacy_autotune", "true";
buffer_size_min: i64 = "buffer_size_min", "0";
metadata: &str = "metadata", "\"\"";
} }
impl PrefetchDataset {
    /// Adds the node: see [`prefetch_dataset()`].
    #[track_caller]
    pub fn build(
        &self,
        input_dataset: impl Handle<Variant>,
        buffer_size: impl Operand<i64>,
        output_types: &[DType],
        output_shapes: &[PartialShape],
    ) -> Output<Variant> {
        self.0
            .on(&input_dataset, "PrefetchDataset")
            .input(input_dataset)
            .input(buffer_size)
            .attr("output_types", output_types)
            .attr("output_shapes", output_shapes)
            .output()
    }
}

/// `PreventGradient`. Has a gradient. Options: [`PreventGradient`].
#[track_caller]
pub fn prevent_gradient<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    PreventGradient::new().build(input)
}
options! { PreventGradient {
message: &str = "message", "\"\"";
} }
impl PreventGradient {
    /// Adds the node: see [`prevent_gradient()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "PreventGradient").input(input).output()
    }
}

/// `Print`. Has a gradient. Options: [`Print`].
#[track_caller]
pub fn print<T: TensorType>(input: impl Handle<T>, data: &[Output<Untyped>]) -> Output<T> {
    Print::new().build(input, data)
}
options! { Print {
message: &str = "message", "\"\"";
first_n: i64 = "first_n", "-1";
summarize: i64 = "summarize", "3";
} }
impl Print {
    /// Adds the node: see [`print()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        data: &[Output<Untyped>],
    ) -> Output<T> {
        self.0
            .on(&input, "Print")
            .input(input)
            .inputs(data)
            .attr("U", &dtypes_of(data)[..])
            .output()
    }
}

/// `PrintV2`. Has no gradient. Options: [`PrintV2`].
#[track_caller]
pub fn print_v2(input: impl Handle<String>) -> Operation {
    PrintV2::new().build(input)
}
options! { PrintV2 {
output_stream: &str = "output_stream", "\"stderr\"";
end: &str = "end", "\"\\n\"";
} }
impl PrintV2 {
    /// Adds the node: see [`print_v2()`].
    #[track_caller]
    pub fn build(&self, input: impl Handle<String>) -> Operation {
        self.0.on(&input, "PrintV2").input(input).operation()
    }
}

/// `PriorityQueue`. Has no gradient. Options: [`PriorityQueue`].
#[track_caller]
pub fn priority_queue(g: &Graph, shapes: &[PartialShape]) -> Output<Ref<String>> {
    PriorityQueue::new().build(g, shapes)
}
options! { PriorityQueue {
component_types: &[DType] = "component_types", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl PriorityQueue {
    /// Adds the node: see [`priority_queue()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, shapes: &[PartialShape]) -> Output<Ref<String>> {
        self.0.new(g, "PriorityQueue").attr("shapes", shapes).output()
    }
}

/// `PriorityQueueV2`. Has no gradient. Options: [`PriorityQueueV2`].
#[track_caller]
pub fn priority_queue_v2(g: &Graph, shapes: &[PartialShape]) -> Output<Resource> {
    PriorityQueueV2::new().build(g, shapes)
}
options! { PriorityQueueV2 {
component_types: &[DType] = "component_types", "[]";
capacity: i64 = "capacity", "-1";
container: &str = "container", "\"\"";
shared_name: &str = "shared_name", "\"\"";
} }
impl PriorityQueueV2 {
    /// Adds the node: see [`priority_queue_v2()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, shapes: &[PartialShape]) -> Output<Resource> {
        self.0.new(g, "PriorityQueueV2").attr("shapes", shapes).output()
    }
}

/// `PrivateThreadPoolDataset`. Has no gradient.
#[track_caller]
pub fn private_thread_pool_dataset(
    input_dataset: impl Handle<Variant>,
    num_threads: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "PrivateThreadPoolDataset")
        .input(input_dataset)
        .input(num_threads)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `Prod`: the product along axes.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. `Tidx`: int32, int64. Has a gradient. Options: [`Prod`].
#[track_caller]
pub fn prod<T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<T> {
    Prod::new().build(input, reduction_indices)
}
options! { Prod {
keep_dims: bool = "keep_dims", "false";
} }
impl Prod {
    /// Adds the node: see [`prod()`].
    #[track_caller]
    pub fn build<T: TensorType, Tidx: TensorType>(
        &self,
        input: impl Handle<T>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<T> {
        self.0.on(&input, "Prod").input(input).input(reduction_indices).output()
    }
}

/// `Qr`: the QR decomposition of matrices.
///
/// `T`: float, double, complex64, complex128, half. Has a gradient. Returns `q`, `r`. Options: [`Qr`].
#[track_caller]
pub fn qr<T: TensorType>(input: impl Handle<T>) -> (Output<T>, Output<T>) {
    Qr::new().build(input)
}
options! { Qr {
full_matrices: bool = "full_matrices", "false";
} }
impl Qr {
    /// Adds the node: see [`qr()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> (Output<T>, Output<T>) {
        let built = self.0.on(&input, "Qr").input(input).build();
        (built.output(0), built.output(1))
    }
}

/// `QuantizeAndDequantize`.
///
/// `T`: float, double. Has a gradient. Options: [`QuantizeAndDequantize`].
#[track_caller]
pub fn quantize_and_dequantize<T: TensorType>(input: impl Handle<T>) -> Output<T> {
    QuantizeAndDequantize::new().build(input)
}
options! { QuantizeAndDequantize {
signed_input: bool = "signed_input", "true";
num_bits: i64 = "num_bits", "8";
range_given: bool = "range_given", "false";
input_min: f32 = "input_min", "0.0";
input_max: f32 = "input_max", "0.0";
} }
impl QuantizeAndDequantize {
    /// Adds the node: see [`quantize_and_dequantize()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<T> {
        self.0.on(&input, "QuantizeAndDequantize").input(input).output()
    }
}

/// `QuantizeAndDequantizeV2`.
///
/// `T`: float, double. Has a gradient. Options: [`QuantizeAndDequantizeV2`].
#[track_caller]
pub fn quantize_and_dequantize_v2<T: TensorType>(
    input: impl Handle<T>,
    input_min: impl Operand<T>,
    input_max: impl Operand<T>,
) -> Output<T> {
    QuantizeAndDequantizeV2::new().build(input, input_min, input_max)
}
options! { QuantizeAndDequantizeV2 {
signed_input: bool = "signed_input", "true";
num_bits: i64 = "num_bits", "8";
range_given: bool = "range_given", "false";
round_mode: &str = "round_mode", "\"HALF_TO_EVEN\"";
narrow_range: bool = "narrow_range", "false";
axis: i64 = "axis", "-1";
} }
impl QuantizeAndDequantizeV2 {
    /// Adds the node: see [`quantize_and_dequantize_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        input_min: impl Operand<T>,
        input_max: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&input, "QuantizeAndDequantizeV2")
            .input(input)
            .input(input_min)
            .input(input_max)
            .output()
    }
}

/// `QuantizeAndDequantizeV3`.
///
/// `T`: float, double. Has a gradient. Options: [`QuantizeAndDequantizeV3`].
#[track_caller]
pub fn quantize_and_dequantize_v3<T: TensorType>(
    input: impl Handle<T>,
    input_min: impl Operand<T>,
    input_max: impl Operand<T>,
    num_bits: impl Operand<i32>,
) -> Output<T> {
    QuantizeAndDequantizeV3::new().build(input, input_min, input_max, num_bits)
}
options! { QuantizeAndDequantizeV3 {
signed_input: bool = "signed_input", "true";
range_given: bool = "range_given", "true";
narrow_range: bool = "narrow_range", "false";
axis: i64 = "axis", "-1";
} }
impl QuantizeAndDequantizeV3 {
    /// Adds the node: see [`quantize_and_dequantize_v3()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        input_min: impl Operand<T>,
        input_max: impl Operand<T>,
        num_bits: impl Operand<i32>,
    ) -> Output<T> {
        self.0
            .on(&input, "QuantizeAndDequantizeV3")
            .input(input)
            .input(input_min)
            .input(input_max)
            .input(num_bits)
            .output()
    }
}

/// `QuantizeAndDequantizeV4`.
///
/// `T`: float, double. Has a gradient. Options: [`QuantizeAndDequantizeV4`].
#[track_caller]
pub fn quantize_and_dequantize_v4<T: TensorType>(
    input: impl Handle<T>,
    input_min: impl Operand<T>,
    input_max: impl Operand<T>,
) -> Output<T> {
    QuantizeAndDequantizeV4::new().build(input, input_min, input_max)
}
options! { QuantizeAndDequantizeV4 {
signed_input: bool = "signed_input", "true";
num_bits: i64 = "num_bits", "8";
range_given: bool = "range_given", "false";
round_mode: &str = "round_mode", "\"HALF_TO_EVEN\"";
narrow_range: bool = "narrow_range", "false";
axis: i64 = "axis", "-1";
} }
impl QuantizeAndDequantizeV4 {
    /// Adds the node: see [`quantize_and_dequantize_v4()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        input_min: impl Operand<T>,
        input_max: impl Operand<T>,
    ) -> Output<T> {
        self.0
            .on(&input, "QuantizeAndDequantizeV4")
            .input(input)
            .input(input_min)
            .input(input_max)
            .output()
    }
}

/// `QuantizeAndDequantizeV4Grad`.
///
/// `T`: float, double. Has no gradient. Returns `input_backprop`, `input_min_backprop`, `input_max_backprop`. Options: [`QuantizeAndDequantizeV4Grad`].
#[track_caller]
pub fn quantize_and_dequantize_v4_grad<T: TensorType>(
    gradients: impl Handle<T>,
    input: impl Operand<T>,
    input_min: impl Operand<T>,
    input_max: impl Operand<T>,
) -> (Output<T>, Output<T>, Output<T>) {
    QuantizeAndDequantizeV4Grad::new().build(gradients, input, input_min, input_max)
}
options! { QuantizeAndDequantizeV4Grad {
axis: i64 = "axis", "-1";
} }
impl QuantizeAndDequantizeV4Grad {
    /// Adds the node: see [`quantize_and_dequantize_v4_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        gradients: impl Handle<T>,
        input: impl Operand<T>,
        input_min: impl Operand<T>,
        input_max: impl Operand<T>,
    ) -> (Output<T>, Output<T>, Output<T>) {
        let built = self
            .0
            .on(&gradients, "QuantizeAndDequantizeV4Grad")
            .input(gradients)
            .input(input)
            .input(input_min)
            .input(input_max)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `QuantizeDownAndShrinkRange`.
///
/// `Tinput`: qint32. `OutType`: quint8. Has no gradient. Returns `output`, `output_min`, `output_max`.
#[track_caller]
pub fn quantize_down_and_shrink_range<OutType: TensorType, Tinput: TensorType>(
    input: impl Handle<Tinput>,
    input_min: impl Operand<f32>,
    input_max: impl Operand<f32>,
) -> (Output<OutType>, Output<f32>, Output<f32>) {
    let built = NewOp::on(&input, "QuantizeDownAndShrinkRange")
        .dtype::<OutType>("out_type")
        .input(input)
        .input(input_min)
        .input(input_max)
        .build();
    (built.output(0), built.output(1), built.output(2))
}

/// `QuantizeV2`.
///
/// `T`: qint8, quint8, qint32, qint16, quint16. Has no gradient. Returns `output`, `output_min`, `output_max`. Options: [`QuantizeV2`].
#[track_caller]
pub fn quantize_v2<T: TensorType>(
    input: impl Handle<f32>,
    min_range: impl Operand<f32>,
    max_range: impl Operand<f32>,
) -> (Output<T>, Output<f32>, Output<f32>) {
    QuantizeV2::new().build(input, min_range, max_range)
}
options! { QuantizeV2 {
mode: &str = "mode", "\"MIN_COMBINED\"";
round_mode: &str = "round_mode", "\"HALF_AWAY_FROM_ZERO\"";
narrow_range: bool = "narrow_range", "false";
axis: i64 = "axis", "-1";
ensure_minimum_range: f32 = "ensure_minimum_range", "0.01";
} }
impl QuantizeV2 {
    /// Adds the node: see [`quantize_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<f32>,
        min_range: impl Operand<f32>,
        max_range: impl Operand<f32>,
    ) -> (Output<T>, Output<f32>, Output<f32>) {
        let built = self
            .0
            .on(&input, "QuantizeV2")
            .dtype::<T>("T")
            .input(input)
            .input(min_range)
            .input(max_range)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `QueueClose`. No gradient passes. Options: [`QueueClose`].
#[track_caller]
pub fn queue_close(handle: impl Handle<Ref<String>>) -> Operation {
    QueueClose::new().build(handle)
}
options! { QueueClose {
cancel_pending_enqueues: bool = "cancel_pending_enqueues", "false";
} }
impl QueueClose {
    /// Adds the node: see [`queue_close()`].
    #[track_caller]
    pub fn build(&self, handle: impl Handle<Ref<String>>) -> Operation {
        self.0.on(&handle, "QueueClose").input(handle).operation()
    }
}

/// `QueueCloseV2`. Has no gradient. Options: [`QueueCloseV2`].
#[track_caller]
pub fn queue_close_v2(handle: impl Handle<Resource>) -> Operation {
    QueueCloseV2::new().build(handle)
}
options! { QueueCloseV2 {
cancel_pending_enqueues: bool = "cancel_pending_enqueues", "false";
} }
impl QueueCloseV2 {
    /// Adds the node: see [`queue_close_v2()`].
    #[track_caller]
    pub fn build(&self, handle: impl Handle<Resource>) -> Operation {
        self.0.on(&handle, "QueueCloseV2").input(handle).operation()
    }
}

/// `QueueDequeue`. No gradient passes. Options: [`QueueDequeue`].
#[track_caller]
pub fn queue_dequeue(
    handle: impl Handle<Ref<String>>,
    component_types: &[DType],
) -> Vec<Output<Untyped>> {
    QueueDequeue::new().build(handle, component_types)
}
options! { QueueDequeue {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueDequeue {
    /// Adds the node: see [`queue_dequeue()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Ref<String>>,
        component_types: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&handle, "QueueDequeue")
            .input(handle)
            .attr("component_types", component_types)
            .build();
        built.outputs("components", component_types.len())
    }
}

/// `QueueDequeueMany`. No gradient passes. Options: [`QueueDequeueMany`].
#[track_caller]
pub fn queue_dequeue_many(
    handle: impl Handle<Ref<String>>,
    n: impl Operand<i32>,
    component_types: &[DType],
) -> Vec<Output<Untyped>> {
    QueueDequeueMany::new().build(handle, n, component_types)
}
options! { QueueDequeueMany {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueDequeueMany {
    /// Adds the node: see [`queue_dequeue_many()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Ref<String>>,
        n: impl Operand<i32>,
        component_types: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&handle, "QueueDequeueMany")
            .input(handle)
            .input(n)
            .attr("component_types", component_types)
            .build();
        built.outputs("components", component_types.len())
    }
}

/// `QueueDequeueManyV2`. Has no gradient. Options: [`QueueDequeueManyV2`].
#[track_caller]
pub fn queue_dequeue_many_v2(
    handle: impl Handle<Resource>,
    n: impl Operand<i32>,
    component_types: &[DType],
) -> Vec<Output<Untyped>> {
    QueueDequeueManyV2::new().build(handle, n, component_types)
}
options! { QueueDequeueManyV2 {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueDequeueManyV2 {
    /// Adds the node: see [`queue_dequeue_many_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Resource>,
        n: impl Operand<i32>,
        component_types: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&handle, "QueueDequeueManyV2")
            .input(handle)
            .input(n)
            .attr("component_types", component_types)
            .build();
        built.outputs("components", component_types.len())
    }
}

/// `QueueDequeueUpTo`. No gradient passes. Options: [`QueueDequeueUpTo`].
#[track_caller]
pub fn queue_dequeue_up_to(
    handle: impl Handle<Ref<String>>,
    n: impl Operand<i32>,
    component_types: &[DType],
) -> Vec<Output<Untyped>> {
    QueueDequeueUpTo::new().build(handle, n, component_types)
}
options! { QueueDequeueUpTo {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueDequeueUpTo {
    /// Adds the node: see [`queue_dequeue_up_to()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Ref<String>>,
        n: impl Operand<i32>,
        component_types: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&handle, "QueueDequeueUpTo")
            .input(handle)
            .input(n)
            .attr("component_types", component_types)
            .build();
        built.outputs("components", component_types.len())
    }
}

/// `QueueDequeueUpToV2`. Has no gradient. Options: [`QueueDequeueUpToV2`].
#[track_caller]
pub fn queue_dequeue_up_to_v2(
    handle: impl Handle<Resource>,
    n: impl Operand<i32>,
    component_types: &[DType],
) -> Vec<Output<Untyped>> {
    QueueDequeueUpToV2::new().build(handle, n, component_types)
}
options! { QueueDequeueUpToV2 {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueDequeueUpToV2 {
    /// Adds the node: see [`queue_dequeue_up_to_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Resource>,
        n: impl Operand<i32>,
        component_types: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&handle, "QueueDequeueUpToV2")
            .input(handle)
            .input(n)
            .attr("component_types", component_types)
            .build();
        built.outputs("components", component_types.len())
    }
}

/// `QueueDequeueV2`. Has no gradient. Options: [`QueueDequeueV2`].
#[track_caller]
pub fn queue_dequeue_v2(
    handle: impl Handle<Resource>,
    component_types: &[DType],
) -> Vec<Output<Untyped>> {
    QueueDequeueV2::new().build(handle, component_types)
}
options! { QueueDequeueV2 {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueDequeueV2 {
    /// Adds the node: see [`queue_dequeue_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Resource>,
        component_types: &[DType],
    ) -> Vec<Output<Untyped>> {
        let built = self
            .0
            .on(&handle, "QueueDequeueV2")
            .input(handle)
            .attr("component_types", component_types)
            .build();
        built.outputs("components", component_types.len())
    }
}

/// `QueueEnqueue`. No gradient passes. Options: [`QueueEnqueue`].
#[track_caller]
pub fn queue_enqueue(
    handle: impl Handle<Ref<String>>,
    components: &[Output<Untyped>],
) -> Operation {
    QueueEnqueue::new().build(handle, components)
}
options! { QueueEnqueue {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueEnqueue {
    /// Adds the node: see [`queue_enqueue()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Ref<String>>,
        components: &[Output<Untyped>],
    ) -> Operation {
        self.0
            .on(&handle, "QueueEnqueue")
            .input(handle)
            .inputs(components)
            .attr("Tcomponents", &dtypes_of(components)[..])
            .operation()
    }
}

/// `QueueEnqueueMany`. No gradient passes. Options: [`QueueEnqueueMany`].
#[track_caller]
pub fn queue_enqueue_many(
    handle: impl Handle<Ref<String>>,
    components: &[Output<Untyped>],
) -> Operation {
    QueueEnqueueMany::new().build(handle, components)
}
options! { QueueEnqueueMany {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueEnqueueMany {
    /// Adds the node: see [`queue_enqueue_many()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Ref<String>>,
        components: &[Output<Untyped>],
    ) -> Operation {
        self.0
            .on(&handle, "QueueEnqueueMany")
            .input(handle)
            .inputs(components)
            .attr("Tcomponents", &dtypes_of(components)[..])
            .operation()
    }
}

/// `QueueEnqueueManyV2`. Has no gradient. Options: [`QueueEnqueueManyV2`].
#[track_caller]
pub fn queue_enqueue_many_v2(
    handle: impl Handle<Resource>,
    components: &[Output<Untyped>],
) -> Operation {
    QueueEnqueueManyV2::new().build(handle, components)
}
options! { QueueEnqueueManyV2 {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueEnqueueManyV2 {
    /// Adds the node: see [`queue_enqueue_many_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Resource>,
        components: &[Output<Untyped>],
    ) -> Operation {
        self.0
            .on(&handle, "QueueEnqueueManyV2")
            .input(handle)
            .inputs(components)
            .attr("Tcomponents", &dtypes_of(components)[..])
            .operation()
    }
}

/// `QueueEnqueueV2`. Has no gradient. Options: [`QueueEnqueueV2`].
#[track_caller]
pub fn queue_enqueue_v2(
    handle: impl Handle<Resource>,
    components: &[Output<Untyped>],
) -> Operation {
    QueueEnqueueV2::new().build(handle, components)
}
options! { QueueEnqueueV2 {
timeout_ms: i64 = "timeout_ms", "-1";
} }
impl QueueEnqueueV2 {
    /// Adds the node: see [`queue_enqueue_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        handle: impl Handle<Resource>,
        components: &[Output<Untyped>],
    ) -> Operation {
        self.0
            .on(&handle, "QueueEnqueueV2")
            .input(handle)
            .inputs(components)
            .attr("Tcomponents", &dtypes_of(components)[..])
            .operation()
    }
}

/// `QueueIsClosed`. Has no gradient.
#[track_caller]
pub fn queue_is_closed(handle: impl Handle<Ref<String>>) -> Output<bool> {
    NewOp::on(&handle, "QueueIsClosed").input(handle).output()
}

/// `QueueIsClosedV2`. Has no gradient.
#[track_caller]
pub fn queue_is_closed_v2(handle: impl Handle<Resource>) -> Output<bool> {
    NewOp::on(&handle, "QueueIsClosedV2").input(handle).output()
}

/// `QueueSize`. No gradient passes.
#[track_caller]
pub fn queue_size(handle: impl Handle<Ref<String>>) -> Output<i32> {
    NewOp::on(&handle, "QueueSize").input(handle).output()
}

/// `QueueSizeV2`. Has no gradient.
#[track_caller]
pub fn queue_size_v2(handle: impl Handle<Resource>) -> Output<i32> {
    NewOp::on(&handle, "QueueSizeV2").input(handle).output()
}
