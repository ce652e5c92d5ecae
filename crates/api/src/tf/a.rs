//! Ops A. Made by `cargo xtask api`: do not edit.

use super::support::*;

/// `Abs`: the absolute value of each element.
///
/// `T`: float, double, int32, int16, int8, int64, bfloat16, half. Has a gradient.
#[track_caller]
pub fn abs<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Abs").input(x).output()
}

/// `AccumulateNV2`: the sum of tensors of one shape.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn accumulate_n_v2<T: TensorType>(
    g: &Graph,
    inputs: &[Output<T>],
    shape: impl Dims,
) -> Output<T> {
    NewOp::new(g, "AccumulateNV2")
        .inputs(inputs)
        .attr("N", inputs.len() as i64)
        .dtype::<T>("T")
        .attr("shape", &shape.to_partial())
        .output()
}

/// `AccumulatorApplyGradient`.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn accumulator_apply_gradient<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    local_step: impl Operand<i64>,
    gradient: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&handle, "AccumulatorApplyGradient")
        .input(handle)
        .input(local_step)
        .input(gradient)
        .operation()
}

/// `AccumulatorNumAccumulated`. Has no gradient.
#[track_caller]
pub fn accumulator_num_accumulated(handle: impl Handle<Ref<String>>) -> Output<i32> {
    NewOp::on(&handle, "AccumulatorNumAccumulated").input(handle).output()
}

/// `AccumulatorSetGlobalStep`. Has no gradient.
#[track_caller]
pub fn accumulator_set_global_step(
    handle: impl Handle<Ref<String>>,
    new_global_step: impl Operand<i64>,
) -> Operation {
    NewOp::on(&handle, "AccumulatorSetGlobalStep").input(handle).input(new_global_step).operation()
}

/// `AccumulatorTakeGradient`.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn accumulator_take_gradient<Dtype: TensorType>(
    handle: impl Handle<Ref<String>>,
    num_required: impl Operand<i32>,
) -> Output<Dtype> {
    NewOp::on(&handle, "AccumulatorTakeGradient")
        .dtype::<Dtype>("dtype")
        .input(handle)
        .input(num_required)
        .output()
}

/// `Acos`: the inverse cosine of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn acos<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Acos").input(x).output()
}

/// `Acosh`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn acosh<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Acosh").input(x).output()
}

/// `Add`: the sum, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn add<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "Add").input(x).input(y).output()
}

/// `AddN`: the sum of tensors of one shape.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, variant, uint32, uint64. Has a gradient.
#[track_caller]
pub fn add_n<T: TensorType>(g: &Graph, inputs: &[Output<T>]) -> Output<T> {
    NewOp::new(g, "AddN").inputs(inputs).attr("N", inputs.len() as i64).dtype::<T>("T").output()
}

/// `AddV2`: the sum, with broadcasting.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has a gradient.
#[track_caller]
pub fn add_v2<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<T> {
    NewOp::on(&x, "AddV2").input(x).input(y).output()
}

/// `AdjustContrast`.
///
/// `T`: float, double, int32, uint8, int16, int8. Has no gradient.
#[track_caller]
pub fn adjust_contrast<T: TensorType>(
    images: impl Handle<T>,
    contrast_factor: impl Operand<f32>,
    min_value: impl Operand<f32>,
    max_value: impl Operand<f32>,
) -> Output<f32> {
    NewOp::on(&images, "AdjustContrast")
        .input(images)
        .input(contrast_factor)
        .input(min_value)
        .input(max_value)
        .output()
}

/// `AdjustContrastv2`.
///
/// `T`: float. Has no gradient.
#[track_caller]
pub fn adjust_contrastv2<T: TensorType>(
    images: impl Handle<T>,
    contrast_factor: impl Operand<f32>,
) -> Output<T> {
    NewOp::on(&images, "AdjustContrastv2").input(images).input(contrast_factor).output()
}

/// `AdjustHue`.
///
/// `T`: float. Has no gradient.
#[track_caller]
pub fn adjust_hue<T: TensorType>(images: impl Handle<T>, delta: impl Operand<f32>) -> Output<T> {
    NewOp::on(&images, "AdjustHue").input(images).input(delta).output()
}

/// `AdjustSaturation`.
///
/// `T`: float. Has no gradient.
#[track_caller]
pub fn adjust_saturation<T: TensorType>(
    images: impl Handle<T>,
    scale: impl Operand<f32>,
) -> Output<T> {
    NewOp::on(&images, "AdjustSaturation").input(images).input(scale).output()
}

/// `All`: whether all elements along axes are true.
///
/// `Tidx`: int32, int64. Has no gradient. Options: [`All`].
#[track_caller]
pub fn all<Tidx: TensorType>(
    input: impl Handle<bool>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<bool> {
    All::new().build(input, reduction_indices)
}
options! { All {
keep_dims: bool = "keep_dims", "false";
} }
impl All {
    /// Adds the node: see [`all()`].
    #[track_caller]
    pub fn build<Tidx: TensorType>(
        &self,
        input: impl Handle<bool>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<bool> {
        self.0.on(&input, "All").input(input).input(reduction_indices).output()
    }
}

/// `AllCandidateSampler`. Has no gradient. Returns `sampled_candidates`, `true_expected_count`, `sampled_expected_count`. Options: [`AllCandidateSampler`].
#[track_caller]
pub fn all_candidate_sampler(
    true_classes: impl Handle<i64>,
    num_true: i64,
    num_sampled: i64,
    unique: bool,
) -> (Output<i64>, Output<f32>, Output<f32>) {
    AllCandidateSampler::new().build(true_classes, num_true, num_sampled, unique)
}
options! { AllCandidateSampler {
seed: i64 = "seed", "0";
seed2: i64 = "seed2", "0";
} }
impl AllCandidateSampler {
    /// Adds the node: see [`all_candidate_sampler()`].
    #[track_caller]
    pub fn build(
        &self,
        true_classes: impl Handle<i64>,
        num_true: i64,
        num_sampled: i64,
        unique: bool,
    ) -> (Output<i64>, Output<f32>, Output<f32>) {
        let built = self
            .0
            .on(&true_classes, "AllCandidateSampler")
            .input(true_classes)
            .attr("num_true", num_true)
            .attr("num_sampled", num_sampled)
            .attr("unique", unique)
            .build();
        (built.output(0), built.output(1), built.output(2))
    }
}

/// `Angle`.
///
/// `T`: complex64, complex128. `Tout`: float, double. Has a gradient.
#[track_caller]
pub fn angle<Tout: TensorType, T: TensorType>(input: impl Handle<T>) -> Output<Tout> {
    NewOp::on(&input, "Angle").dtype::<Tout>("Tout").input(input).output()
}

/// `AnonymousHashTable`. Has no gradient.
#[track_caller]
pub fn anonymous_hash_table(g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
    NewOp::new(g, "AnonymousHashTable")
        .attr("key_dtype", key_dtype)
        .attr("value_dtype", value_dtype)
        .output()
}

/// `AnonymousIterator`. Has no gradient.
#[track_caller]
pub fn anonymous_iterator(
    g: &Graph,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    NewOp::new(g, "AnonymousIterator")
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `AnonymousIteratorV2`. Has no gradient. Returns `handle`, `deleter`.
#[track_caller]
pub fn anonymous_iterator_v2(
    g: &Graph,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> (Output<Resource>, Output<Variant>) {
    let built = NewOp::new(g, "AnonymousIteratorV2")
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .build();
    (built.output(0), built.output(1))
}

/// `AnonymousIteratorV3`. Has no gradient.
#[track_caller]
pub fn anonymous_iterator_v3(
    g: &Graph,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    NewOp::new(g, "AnonymousIteratorV3")
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `AnonymousMemoryCache`. Has no gradient. Returns `handle`, `deleter`.
#[track_caller]
pub fn anonymous_memory_cache(g: &Graph) -> (Output<Resource>, Output<Variant>) {
    let built = NewOp::new(g, "AnonymousMemoryCache").build();
    (built.output(0), built.output(1))
}

/// `AnonymousMultiDeviceIterator`. Has no gradient. Returns `handle`, `deleter`.
#[track_caller]
pub fn anonymous_multi_device_iterator(
    g: &Graph,
    devices: &[&str],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> (Output<Resource>, Output<Variant>) {
    let built = NewOp::new(g, "AnonymousMultiDeviceIterator")
        .attr("devices", devices)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .build();
    (built.output(0), built.output(1))
}

/// `AnonymousMultiDeviceIteratorV3`. Has no gradient.
#[track_caller]
pub fn anonymous_multi_device_iterator_v3(
    g: &Graph,
    devices: &[&str],
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Resource> {
    NewOp::new(g, "AnonymousMultiDeviceIteratorV3")
        .attr("devices", devices)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `AnonymousMutableDenseHashTable`.
///
/// `KeyDtype`: int32, string, int64. Has no gradient. Options: [`AnonymousMutableDenseHashTable`].
#[track_caller]
pub fn anonymous_mutable_dense_hash_table<KeyDtype: TensorType>(
    empty_key: impl Handle<KeyDtype>,
    deleted_key: impl Operand<KeyDtype>,
    value_dtype: DType,
) -> Output<Resource> {
    AnonymousMutableDenseHashTable::new().build(empty_key, deleted_key, value_dtype)
}
options! { AnonymousMutableDenseHashTable {
value_shape: impl Dims = "value_shape", "empty", |value| &value.to_partial();
initial_num_buckets: i64 = "initial_num_buckets", "131072";
max_load_factor: f32 = "max_load_factor", "0.8";
} }
impl AnonymousMutableDenseHashTable {
    /// Adds the node: see [`anonymous_mutable_dense_hash_table()`].
    #[track_caller]
    pub fn build<KeyDtype: TensorType>(
        &self,
        empty_key: impl Handle<KeyDtype>,
        deleted_key: impl Operand<KeyDtype>,
        value_dtype: DType,
    ) -> Output<Resource> {
        self.0
            .on(&empty_key, "AnonymousMutableDenseHashTable")
            .input(empty_key)
            .input(deleted_key)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `AnonymousMutableHashTable`. Has no gradient.
#[track_caller]
pub fn anonymous_mutable_hash_table(
    g: &Graph,
    key_dtype: DType,
    value_dtype: DType,
) -> Output<Resource> {
    NewOp::new(g, "AnonymousMutableHashTable")
        .attr("key_dtype", key_dtype)
        .attr("value_dtype", value_dtype)
        .output()
}

/// `AnonymousMutableHashTableOfTensors`. Has no gradient. Options: [`AnonymousMutableHashTableOfTensors`].
#[track_caller]
pub fn anonymous_mutable_hash_table_of_tensors(
    g: &Graph,
    key_dtype: DType,
    value_dtype: DType,
) -> Output<Resource> {
    AnonymousMutableHashTableOfTensors::new().build(g, key_dtype, value_dtype)
}
options! { AnonymousMutableHashTableOfTensors {
value_shape: impl Dims = "value_shape", "empty", |value| &value.to_partial();
} }
impl AnonymousMutableHashTableOfTensors {
    /// Adds the node: see [`anonymous_mutable_hash_table_of_tensors()`].
    #[track_caller]
    pub fn build(&self, g: &Graph, key_dtype: DType, value_dtype: DType) -> Output<Resource> {
        self.0
            .new(g, "AnonymousMutableHashTableOfTensors")
            .attr("key_dtype", key_dtype)
            .attr("value_dtype", value_dtype)
            .output()
    }
}

/// `AnonymousSeedGenerator`. Has no gradient. Returns `handle`, `deleter`.
#[track_caller]
pub fn anonymous_seed_generator(
    seed: impl Handle<i64>,
    seed2: impl Operand<i64>,
    reshuffle: impl Operand<bool>,
) -> (Output<Resource>, Output<Variant>) {
    let built = NewOp::on(&seed, "AnonymousSeedGenerator")
        .input(seed)
        .input(seed2)
        .input(reshuffle)
        .build();
    (built.output(0), built.output(1))
}

/// `Any`: whether any element along axes is true.
///
/// `Tidx`: int32, int64. Has no gradient. Options: [`Any`].
#[track_caller]
pub fn any<Tidx: TensorType>(
    input: impl Handle<bool>,
    reduction_indices: impl Operand<Tidx>,
) -> Output<bool> {
    Any::new().build(input, reduction_indices)
}
options! { Any {
keep_dims: bool = "keep_dims", "false";
} }
impl Any {
    /// Adds the node: see [`any()`].
    #[track_caller]
    pub fn build<Tidx: TensorType>(
        &self,
        input: impl Handle<bool>,
        reduction_indices: impl Operand<Tidx>,
    ) -> Output<bool> {
        self.0.on(&input, "Any").input(input).input(reduction_indices).output()
    }
}

/// `ApplyAdaMax`.
///
/// `T`: float, double, half. Has no gradient. Options: [`ApplyAdaMax`].
#[track_caller]
pub fn apply_ada_max<T: TensorType>(
    var: impl Handle<Ref<T>>,
    m: impl Operand<Ref<T>>,
    v: impl Operand<Ref<T>>,
    beta1_power: impl Operand<T>,
    lr: impl Operand<T>,
    beta1: impl Operand<T>,
    beta2: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyAdaMax::new().build(var, m, v, beta1_power, lr, beta1, beta2, epsilon, grad)
}
options! { ApplyAdaMax {
use_locking: bool = "use_locking", "false";
} }
impl ApplyAdaMax {
    /// Adds the node: see [`apply_ada_max()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        m: impl Operand<Ref<T>>,
        v: impl Operand<Ref<T>>,
        beta1_power: impl Operand<T>,
        lr: impl Operand<T>,
        beta1: impl Operand<T>,
        beta2: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyAdaMax")
            .input(var)
            .input(m)
            .input(v)
            .input(beta1_power)
            .input(lr)
            .input(beta1)
            .input(beta2)
            .input(epsilon)
            .input(grad)
            .output()
    }
}

/// `ApplyAdadelta`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyAdadelta`].
#[track_caller]
pub fn apply_adadelta<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    accum_update: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyAdadelta::new().build(var, accum, accum_update, lr, rho, epsilon, grad)
}
options! { ApplyAdadelta {
use_locking: bool = "use_locking", "false";
} }
impl ApplyAdadelta {
    /// Adds the node: see [`apply_adadelta()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        accum_update: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyAdadelta")
            .input(var)
            .input(accum)
            .input(accum_update)
            .input(lr)
            .input(rho)
            .input(epsilon)
            .input(grad)
            .output()
    }
}

/// `ApplyAdagrad`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyAdagrad`].
#[track_caller]
pub fn apply_adagrad<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyAdagrad::new().build(var, accum, lr, grad)
}
options! { ApplyAdagrad {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl ApplyAdagrad {
    /// Adds the node: see [`apply_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&var, "ApplyAdagrad").input(var).input(accum).input(lr).input(grad).output()
    }
}

/// `ApplyAdagradDA`.
///
/// `T`: float, double. Has no gradient. Options: [`ApplyAdagradDA`].
#[track_caller]
pub fn apply_adagrad_da<T: TensorType>(
    var: impl Handle<Ref<T>>,
    gradient_accumulator: impl Operand<Ref<T>>,
    gradient_squared_accumulator: impl Operand<Ref<T>>,
    grad: impl Operand<T>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    global_step: impl Operand<i64>,
) -> Output<Ref<T>> {
    ApplyAdagradDA::new().build(
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
options! { ApplyAdagradDA {
use_locking: bool = "use_locking", "false";
} }
impl ApplyAdagradDA {
    /// Adds the node: see [`apply_adagrad_da()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        gradient_accumulator: impl Operand<Ref<T>>,
        gradient_squared_accumulator: impl Operand<Ref<T>>,
        grad: impl Operand<T>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        global_step: impl Operand<i64>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyAdagradDA")
            .input(var)
            .input(gradient_accumulator)
            .input(gradient_squared_accumulator)
            .input(grad)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(global_step)
            .output()
    }
}

/// `ApplyAdagradV2`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyAdagradV2`].
#[track_caller]
pub fn apply_adagrad_v2<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyAdagradV2::new().build(var, accum, lr, epsilon, grad)
}
options! { ApplyAdagradV2 {
use_locking: bool = "use_locking", "false";
update_slots: bool = "update_slots", "true";
} }
impl ApplyAdagradV2 {
    /// Adds the node: see [`apply_adagrad_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyAdagradV2")
            .input(var)
            .input(accum)
            .input(lr)
            .input(epsilon)
            .input(grad)
            .output()
    }
}

/// `ApplyAdam`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyAdam`].
#[track_caller]
pub fn apply_adam<T: TensorType>(
    var: impl Handle<Ref<T>>,
    m: impl Operand<Ref<T>>,
    v: impl Operand<Ref<T>>,
    beta1_power: impl Operand<T>,
    beta2_power: impl Operand<T>,
    lr: impl Operand<T>,
    beta1: impl Operand<T>,
    beta2: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyAdam::new().build(var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad)
}
options! { ApplyAdam {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ApplyAdam {
    /// Adds the node: see [`apply_adam()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        m: impl Operand<Ref<T>>,
        v: impl Operand<Ref<T>>,
        beta1_power: impl Operand<T>,
        beta2_power: impl Operand<T>,
        lr: impl Operand<T>,
        beta1: impl Operand<T>,
        beta2: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyAdam")
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
            .output()
    }
}

/// `ApplyAddSign`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ApplyAddSign`].
#[track_caller]
pub fn apply_add_sign<T: TensorType>(
    var: impl Handle<Ref<T>>,
    m: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    alpha: impl Operand<T>,
    sign_decay: impl Operand<T>,
    beta: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyAddSign::new().build(var, m, lr, alpha, sign_decay, beta, grad)
}
options! { ApplyAddSign {
use_locking: bool = "use_locking", "false";
} }
impl ApplyAddSign {
    /// Adds the node: see [`apply_add_sign()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        m: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        alpha: impl Operand<T>,
        sign_decay: impl Operand<T>,
        beta: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyAddSign")
            .input(var)
            .input(m)
            .input(lr)
            .input(alpha)
            .input(sign_decay)
            .input(beta)
            .input(grad)
            .output()
    }
}

/// `ApplyCenteredRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyCenteredRMSProp`].
#[track_caller]
pub fn apply_centered_rms_prop<T: TensorType>(
    var: impl Handle<Ref<T>>,
    mg: impl Operand<Ref<T>>,
    ms: impl Operand<Ref<T>>,
    mom: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyCenteredRMSProp::new().build(var, mg, ms, mom, lr, rho, momentum, epsilon, grad)
}
options! { ApplyCenteredRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl ApplyCenteredRMSProp {
    /// Adds the node: see [`apply_centered_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType>(
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
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyCenteredRMSProp")
            .input(var)
            .input(mg)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .output()
    }
}

/// `ApplyFtrl`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ApplyFtrl`].
#[track_caller]
pub fn apply_ftrl<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    linear: impl Operand<Ref<T>>,
    grad: impl Operand<T>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyFtrl::new().build(var, accum, linear, grad, lr, l1, l2, lr_power)
}
options! { ApplyFtrl {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl ApplyFtrl {
    /// Adds the node: see [`apply_ftrl()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        linear: impl Operand<Ref<T>>,
        grad: impl Operand<T>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyFtrl")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(lr_power)
            .output()
    }
}

/// `ApplyFtrlV2`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ApplyFtrlV2`].
#[track_caller]
pub fn apply_ftrl_v2<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    linear: impl Operand<Ref<T>>,
    grad: impl Operand<T>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    l2_shrinkage: impl Operand<T>,
    lr_power: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyFtrlV2::new().build(var, accum, linear, grad, lr, l1, l2, l2_shrinkage, lr_power)
}
options! { ApplyFtrlV2 {
use_locking: bool = "use_locking", "false";
multiply_linear_by_lr: bool = "multiply_linear_by_lr", "false";
} }
impl ApplyFtrlV2 {
    /// Adds the node: see [`apply_ftrl_v2()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        linear: impl Operand<Ref<T>>,
        grad: impl Operand<T>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        l2_shrinkage: impl Operand<T>,
        lr_power: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyFtrlV2")
            .input(var)
            .input(accum)
            .input(linear)
            .input(grad)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(l2_shrinkage)
            .input(lr_power)
            .output()
    }
}

/// `ApplyGradientDescent`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyGradientDescent`].
#[track_caller]
pub fn apply_gradient_descent<T: TensorType>(
    var: impl Handle<Ref<T>>,
    alpha: impl Operand<T>,
    delta: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyGradientDescent::new().build(var, alpha, delta)
}
options! { ApplyGradientDescent {
use_locking: bool = "use_locking", "false";
} }
impl ApplyGradientDescent {
    /// Adds the node: see [`apply_gradient_descent()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        alpha: impl Operand<T>,
        delta: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&var, "ApplyGradientDescent").input(var).input(alpha).input(delta).output()
    }
}

/// `ApplyMomentum`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyMomentum`].
#[track_caller]
pub fn apply_momentum<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    grad: impl Operand<T>,
    momentum: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyMomentum::new().build(var, accum, lr, grad, momentum)
}
options! { ApplyMomentum {
use_locking: bool = "use_locking", "false";
use_nesterov: bool = "use_nesterov", "false";
} }
impl ApplyMomentum {
    /// Adds the node: see [`apply_momentum()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        grad: impl Operand<T>,
        momentum: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyMomentum")
            .input(var)
            .input(accum)
            .input(lr)
            .input(grad)
            .input(momentum)
            .output()
    }
}

/// `ApplyPowerSign`.
///
/// `T`: float, double, bfloat16, half. Has no gradient. Options: [`ApplyPowerSign`].
#[track_caller]
pub fn apply_power_sign<T: TensorType>(
    var: impl Handle<Ref<T>>,
    m: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    logbase: impl Operand<T>,
    sign_decay: impl Operand<T>,
    beta: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyPowerSign::new().build(var, m, lr, logbase, sign_decay, beta, grad)
}
options! { ApplyPowerSign {
use_locking: bool = "use_locking", "false";
} }
impl ApplyPowerSign {
    /// Adds the node: see [`apply_power_sign()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        m: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        logbase: impl Operand<T>,
        sign_decay: impl Operand<T>,
        beta: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyPowerSign")
            .input(var)
            .input(m)
            .input(lr)
            .input(logbase)
            .input(sign_decay)
            .input(beta)
            .input(grad)
            .output()
    }
}

/// `ApplyProximalAdagrad`.
///
/// `T`: float, double. Has no gradient. Options: [`ApplyProximalAdagrad`].
#[track_caller]
pub fn apply_proximal_adagrad<T: TensorType>(
    var: impl Handle<Ref<T>>,
    accum: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyProximalAdagrad::new().build(var, accum, lr, l1, l2, grad)
}
options! { ApplyProximalAdagrad {
use_locking: bool = "use_locking", "false";
} }
impl ApplyProximalAdagrad {
    /// Adds the node: see [`apply_proximal_adagrad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        accum: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyProximalAdagrad")
            .input(var)
            .input(accum)
            .input(lr)
            .input(l1)
            .input(l2)
            .input(grad)
            .output()
    }
}

/// `ApplyProximalGradientDescent`.
///
/// `T`: float, double. Has no gradient. Options: [`ApplyProximalGradientDescent`].
#[track_caller]
pub fn apply_proximal_gradient_descent<T: TensorType>(
    var: impl Handle<Ref<T>>,
    alpha: impl Operand<T>,
    l1: impl Operand<T>,
    l2: impl Operand<T>,
    delta: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyProximalGradientDescent::new().build(var, alpha, l1, l2, delta)
}
options! { ApplyProximalGradientDescent {
use_locking: bool = "use_locking", "false";
} }
impl ApplyProximalGradientDescent {
    /// Adds the node: see [`apply_proximal_gradient_descent()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        alpha: impl Operand<T>,
        l1: impl Operand<T>,
        l2: impl Operand<T>,
        delta: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyProximalGradientDescent")
            .input(var)
            .input(alpha)
            .input(l1)
            .input(l2)
            .input(delta)
            .output()
    }
}

/// `ApplyRMSProp`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has no gradient. Options: [`ApplyRMSProp`].
#[track_caller]
pub fn apply_rms_prop<T: TensorType>(
    var: impl Handle<Ref<T>>,
    ms: impl Operand<Ref<T>>,
    mom: impl Operand<Ref<T>>,
    lr: impl Operand<T>,
    rho: impl Operand<T>,
    momentum: impl Operand<T>,
    epsilon: impl Operand<T>,
    grad: impl Operand<T>,
) -> Output<Ref<T>> {
    ApplyRMSProp::new().build(var, ms, mom, lr, rho, momentum, epsilon, grad)
}
options! { ApplyRMSProp {
use_locking: bool = "use_locking", "false";
} }
impl ApplyRMSProp {
    /// Adds the node: see [`apply_rms_prop()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        var: impl Handle<Ref<T>>,
        ms: impl Operand<Ref<T>>,
        mom: impl Operand<Ref<T>>,
        lr: impl Operand<T>,
        rho: impl Operand<T>,
        momentum: impl Operand<T>,
        epsilon: impl Operand<T>,
        grad: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0
            .on(&var, "ApplyRMSProp")
            .input(var)
            .input(ms)
            .input(mom)
            .input(lr)
            .input(rho)
            .input(momentum)
            .input(epsilon)
            .input(grad)
            .output()
    }
}

/// `ApproximateEqual`: whether elements differ by less than a tolerance.
///
/// `T`: float, double. No gradient passes. Options: [`ApproximateEqual`].
#[track_caller]
pub fn approximate_equal<T: TensorType>(x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
    ApproximateEqual::new().build(x, y)
}
options! { ApproximateEqual {
tolerance: f32 = "tolerance", "1e-5";
} }
impl ApproximateEqual {
    /// Adds the node: see [`approximate_equal()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, x: impl Handle<T>, y: impl Operand<T>) -> Output<bool> {
        self.0.on(&x, "ApproximateEqual").input(x).input(y).output()
    }
}

/// `ArgMax`: the index of the largest element along an axis.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bool, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int16, int64. `OutputType`: int32, int16, int64, uint16. No gradient passes.
#[track_caller]
pub fn arg_max<OutputType: TensorType, T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    dimension: impl Operand<Tidx>,
) -> Output<OutputType> {
    NewOp::on(&input, "ArgMax")
        .dtype::<OutputType>("output_type")
        .input(input)
        .input(dimension)
        .output()
}

/// `ArgMin`: the index of the smallest element along an axis.
///
/// `T`: float, double, int32, uint8, int16, int8, int64, bool, bfloat16, uint16, half, uint32, uint64. `Tidx`: int32, int64. `OutputType`: int32, int64. No gradient passes.
#[track_caller]
pub fn arg_min<OutputType: TensorType, T: TensorType, Tidx: TensorType>(
    input: impl Handle<T>,
    dimension: impl Operand<Tidx>,
) -> Output<OutputType> {
    NewOp::on(&input, "ArgMin")
        .dtype::<OutputType>("output_type")
        .input(input)
        .input(dimension)
        .output()
}

/// `AsString`: each number as text.
///
/// `T`: float, double, int32, uint8, int16, int8, string, complex64, int64, bool, bfloat16, uint16, complex128, half, variant, uint32, uint64. No gradient passes. Options: [`AsString`].
#[track_caller]
pub fn as_string<T: TensorType>(input: impl Handle<T>) -> Output<String> {
    AsString::new().build(input)
}
options! { AsString {
precision: i64 = "precision", "-1";
scientific: bool = "scientific", "false";
shortest: bool = "shortest", "false";
width: i64 = "width", "-1";
fill: &str = "fill", "\"\"";
} }
impl AsString {
    /// Adds the node: see [`as_string()`].
    #[track_caller]
    pub fn build<T: TensorType>(&self, input: impl Handle<T>) -> Output<String> {
        self.0.on(&input, "AsString").input(input).output()
    }
}

/// `Asin`: the inverse sine of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn asin<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Asin").input(x).output()
}

/// `Asinh`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn asinh<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Asinh").input(x).output()
}

/// `Assert`: fails the step unless a condition is true, and says the data. No gradient passes. Options: [`Assert`].
#[track_caller]
pub fn assert(condition: impl Handle<bool>, data: &[Output<Untyped>]) -> Operation {
    Assert::new().build(condition, data)
}
options! { Assert {
summarize: i64 = "summarize", "3";
} }
impl Assert {
    /// Adds the node: see [`assert()`].
    #[track_caller]
    pub fn build(&self, condition: impl Handle<bool>, data: &[Output<Untyped>]) -> Operation {
        self.0
            .on(&condition, "Assert")
            .input(condition)
            .inputs(data)
            .attr("T", &dtypes_of(data)[..])
            .operation()
    }
}

/// `AssertCardinalityDataset`. Has no gradient.
#[track_caller]
pub fn assert_cardinality_dataset(
    input_dataset: impl Handle<Variant>,
    cardinality: impl Operand<i64>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "AssertCardinalityDataset")
        .input(input_dataset)
        .input(cardinality)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `AssertNextDataset`. Has no gradient.
#[track_caller]
pub fn assert_next_dataset(
    input_dataset: impl Handle<Variant>,
    transformations: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "AssertNextDataset")
        .input(input_dataset)
        .input(transformations)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `AssertPrevDataset`. Has no gradient.
#[track_caller]
pub fn assert_prev_dataset(
    input_dataset: impl Handle<Variant>,
    transformations: impl Operand<String>,
    output_types: &[DType],
    output_shapes: &[PartialShape],
) -> Output<Variant> {
    NewOp::on(&input_dataset, "AssertPrevDataset")
        .input(input_dataset)
        .input(transformations)
        .attr("output_types", output_types)
        .attr("output_shapes", output_shapes)
        .output()
}

/// `Assign`: sets a reference variable. No gradient passes. Options: [`Assign`].
#[track_caller]
pub fn assign<T: TensorType>(ref_: impl Handle<Ref<T>>, value: impl Operand<T>) -> Output<Ref<T>> {
    Assign::new().build(ref_, value)
}
options! { Assign {
validate_shape: bool = "validate_shape", "true";
use_locking: bool = "use_locking", "true";
} }
impl Assign {
    /// Adds the node: see [`assign()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        value: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "Assign").input(ref_).input(value).output()
    }
}

/// `AssignAdd`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. No gradient passes. Options: [`AssignAdd`].
#[track_caller]
pub fn assign_add<T: TensorType>(
    ref_: impl Handle<Ref<T>>,
    value: impl Operand<T>,
) -> Output<Ref<T>> {
    AssignAdd::new().build(ref_, value)
}
options! { AssignAdd {
use_locking: bool = "use_locking", "false";
} }
impl AssignAdd {
    /// Adds the node: see [`assign_add()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        value: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "AssignAdd").input(ref_).input(value).output()
    }
}

/// `AssignAddVariableOp`: adds to a resource variable.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn assign_add_variable_op<Dtype: TensorType>(
    resource: impl Handle<Resource>,
    value: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "AssignAddVariableOp").input(resource).input(value).operation()
}

/// `AssignSub`.
///
/// `T`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. No gradient passes. Options: [`AssignSub`].
#[track_caller]
pub fn assign_sub<T: TensorType>(
    ref_: impl Handle<Ref<T>>,
    value: impl Operand<T>,
) -> Output<Ref<T>> {
    AssignSub::new().build(ref_, value)
}
options! { AssignSub {
use_locking: bool = "use_locking", "false";
} }
impl AssignSub {
    /// Adds the node: see [`assign_sub()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        ref_: impl Handle<Ref<T>>,
        value: impl Operand<T>,
    ) -> Output<Ref<T>> {
        self.0.on(&ref_, "AssignSub").input(ref_).input(value).output()
    }
}

/// `AssignSubVariableOp`: subtracts from a resource variable.
///
/// `Dtype`: float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, half, uint32, uint64. Has no gradient.
#[track_caller]
pub fn assign_sub_variable_op<Dtype: TensorType>(
    resource: impl Handle<Resource>,
    value: impl Operand<Dtype>,
) -> Operation {
    NewOp::on(&resource, "AssignSubVariableOp").input(resource).input(value).operation()
}

/// `AssignVariableOp`: sets a resource variable. Has no gradient. Options: [`AssignVariableOp`].
#[track_caller]
pub fn assign_variable_op<Dtype: TensorType>(
    resource: impl Handle<Resource>,
    value: impl Operand<Dtype>,
) -> Operation {
    AssignVariableOp::new().build(resource, value)
}
options! { AssignVariableOp {
validate_shape: bool = "validate_shape", "false";
} }
impl AssignVariableOp {
    /// Adds the node: see [`assign_variable_op()`].
    #[track_caller]
    pub fn build<Dtype: TensorType>(
        &self,
        resource: impl Handle<Resource>,
        value: impl Operand<Dtype>,
    ) -> Operation {
        self.0.on(&resource, "AssignVariableOp").input(resource).input(value).operation()
    }
}

/// `Atan`: the inverse tangent of each element.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn atan<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Atan").input(x).output()
}

/// `Atan2`: the angle of the point (x, y).
///
/// `T`: float, double, bfloat16, half. Has a gradient.
#[track_caller]
pub fn atan2<T: TensorType>(y: impl Handle<T>, x: impl Operand<T>) -> Output<T> {
    NewOp::on(&y, "Atan2").input(y).input(x).output()
}

/// `Atanh`.
///
/// `T`: float, double, complex64, bfloat16, complex128, half. Has a gradient.
#[track_caller]
pub fn atanh<T: TensorType>(x: impl Handle<T>) -> Output<T> {
    NewOp::on(&x, "Atanh").input(x).output()
}

/// `AudioSummary`. No gradient passes. Options: [`AudioSummary`].
#[track_caller]
pub fn audio_summary(
    tag: impl Handle<String>,
    tensor: impl Operand<f32>,
    sample_rate: f32,
) -> Output<String> {
    AudioSummary::new().build(tag, tensor, sample_rate)
}
options! { AudioSummary {
max_outputs: i64 = "max_outputs", "3";
} }
impl AudioSummary {
    /// Adds the node: see [`audio_summary()`].
    #[track_caller]
    pub fn build(
        &self,
        tag: impl Handle<String>,
        tensor: impl Operand<f32>,
        sample_rate: f32,
    ) -> Output<String> {
        self.0
            .on(&tag, "AudioSummary")
            .input(tag)
            .input(tensor)
            .attr("sample_rate", sample_rate)
            .output()
    }
}

/// `AudioSummaryV2`. No gradient passes. Options: [`AudioSummaryV2`].
#[track_caller]
pub fn audio_summary_v2(
    tag: impl Handle<String>,
    tensor: impl Operand<f32>,
    sample_rate: impl Operand<f32>,
) -> Output<String> {
    AudioSummaryV2::new().build(tag, tensor, sample_rate)
}
options! { AudioSummaryV2 {
max_outputs: i64 = "max_outputs", "3";
} }
impl AudioSummaryV2 {
    /// Adds the node: see [`audio_summary_v2()`].
    #[track_caller]
    pub fn build(
        &self,
        tag: impl Handle<String>,
        tensor: impl Operand<f32>,
        sample_rate: impl Operand<f32>,
    ) -> Output<String> {
        self.0.on(&tag, "AudioSummaryV2").input(tag).input(tensor).input(sample_rate).output()
    }
}

/// `AvgPool`: the average over windows of images.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`AvgPool`].
#[track_caller]
pub fn avg_pool<T: TensorType>(
    value: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    AvgPool::new().build(value, ksize, strides, padding)
}
options! { AvgPool {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl AvgPool {
    /// Adds the node: see [`avg_pool()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        value: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&value, "AvgPool")
            .input(value)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `AvgPool3D`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`AvgPool3D`].
#[track_caller]
pub fn avg_pool3d<T: TensorType>(
    input: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    AvgPool3D::new().build(input, ksize, strides, padding)
}
options! { AvgPool3D {
data_format: &str = "data_format", "\"NDHWC\"";
} }
impl AvgPool3D {
    /// Adds the node: see [`avg_pool3d()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        input: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&input, "AvgPool3D")
            .input(input)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `AvgPool3DGrad`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`AvgPool3DGrad`].
#[track_caller]
pub fn avg_pool3d_grad<T: TensorType>(
    orig_input_shape: impl Operand<i32>,
    grad: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    AvgPool3DGrad::new().build(orig_input_shape, grad, ksize, strides, padding)
}
options! { AvgPool3DGrad {
data_format: &str = "data_format", "\"NDHWC\"";
} }
impl AvgPool3DGrad {
    /// Adds the node: see [`avg_pool3d_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input_shape: impl Operand<i32>,
        grad: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&grad, "AvgPool3DGrad")
            .input(orig_input_shape)
            .input(grad)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}

/// `AvgPoolGrad`.
///
/// `T`: float, double, bfloat16, half. Has a gradient. Options: [`AvgPoolGrad`].
#[track_caller]
pub fn avg_pool_grad<T: TensorType>(
    orig_input_shape: impl Operand<i32>,
    grad: impl Handle<T>,
    ksize: &[i64],
    strides: &[i64],
    padding: &str,
) -> Output<T> {
    AvgPoolGrad::new().build(orig_input_shape, grad, ksize, strides, padding)
}
options! { AvgPoolGrad {
data_format: &str = "data_format", "\"NHWC\"";
} }
impl AvgPoolGrad {
    /// Adds the node: see [`avg_pool_grad()`].
    #[track_caller]
    pub fn build<T: TensorType>(
        &self,
        orig_input_shape: impl Operand<i32>,
        grad: impl Handle<T>,
        ksize: &[i64],
        strides: &[i64],
        padding: &str,
    ) -> Output<T> {
        self.0
            .on(&grad, "AvgPoolGrad")
            .input(orig_input_shape)
            .input(grad)
            .attr("ksize", ksize)
            .attr("strides", strides)
            .attr("padding", padding)
            .output()
    }
}
