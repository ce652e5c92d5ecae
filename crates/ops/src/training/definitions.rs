//! The interfaces of the optimizers' ops.
//!
//! Each optimizer has up to four: dense and sparse, for reference edges and for handles. They differ
//! in how a variable is written, and in `indices`.

use thalweg_graph::{Flag, OpDef};

use super::apply_shape;

const NUMBER: &str = "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}";
const INDICES: &str = "Tindices: {int32, int64}";
const LOCKING: &str = "use_locking: bool = false";
const NESTEROV: &str = "use_nesterov: bool = false";
const SLOTS: &str = "update_slots: bool = true";
const BY_RATE: &str = "multiply_linear_by_lr: bool = false";

/// An op on reference edges: it hands the variable on.
const REFERENCE: OpDef = OpDef { outputs: &["out: Ref(T)"], ..OpDef::DEFAULT };

/// An op on handles.
const RESOURCE: OpDef = OpDef { flags: &[Flag::Stateful], ..OpDef::DEFAULT };

/// All of them.
pub(super) const ALL: &[OpDef] = &[
    APPLY_ADA_MAX,
    APPLY_ADADELTA,
    APPLY_ADAGRAD,
    APPLY_ADAGRAD_DA,
    APPLY_ADAGRAD_V2,
    APPLY_ADAM,
    APPLY_ADD_SIGN,
    APPLY_CENTERED_RMS_PROP,
    APPLY_FTRL,
    APPLY_FTRL_V2,
    APPLY_GRADIENT_DESCENT,
    APPLY_MOMENTUM,
    APPLY_POWER_SIGN,
    APPLY_PROXIMAL_ADAGRAD,
    APPLY_PROXIMAL_GRADIENT_DESCENT,
    APPLY_RMS_PROP,
    RESOURCE_APPLY_ADA_MAX,
    RESOURCE_APPLY_ADADELTA,
    RESOURCE_APPLY_ADAGRAD,
    RESOURCE_APPLY_ADAGRAD_DA,
    RESOURCE_APPLY_ADAGRAD_V2,
    RESOURCE_APPLY_ADAM,
    RESOURCE_APPLY_ADAM_WITH_AMSGRAD,
    RESOURCE_APPLY_ADD_SIGN,
    RESOURCE_APPLY_CENTERED_RMS_PROP,
    RESOURCE_APPLY_FTRL,
    RESOURCE_APPLY_FTRL_V2,
    RESOURCE_APPLY_GRADIENT_DESCENT,
    RESOURCE_APPLY_KERAS_MOMENTUM,
    RESOURCE_APPLY_MOMENTUM,
    RESOURCE_APPLY_POWER_SIGN,
    RESOURCE_APPLY_PROXIMAL_ADAGRAD,
    RESOURCE_APPLY_PROXIMAL_GRADIENT_DESCENT,
    RESOURCE_APPLY_RMS_PROP,
    RESOURCE_SPARSE_APPLY_ADADELTA,
    RESOURCE_SPARSE_APPLY_ADAGRAD,
    RESOURCE_SPARSE_APPLY_ADAGRAD_DA,
    RESOURCE_SPARSE_APPLY_ADAGRAD_V2,
    RESOURCE_SPARSE_APPLY_CENTERED_RMS_PROP,
    RESOURCE_SPARSE_APPLY_FTRL,
    RESOURCE_SPARSE_APPLY_FTRL_V2,
    RESOURCE_SPARSE_APPLY_KERAS_MOMENTUM,
    RESOURCE_SPARSE_APPLY_MOMENTUM,
    RESOURCE_SPARSE_APPLY_PROXIMAL_ADAGRAD,
    RESOURCE_SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT,
    RESOURCE_SPARSE_APPLY_RMS_PROP,
    SPARSE_APPLY_ADADELTA,
    SPARSE_APPLY_ADAGRAD,
    SPARSE_APPLY_ADAGRAD_DA,
    SPARSE_APPLY_ADAGRAD_V2,
    SPARSE_APPLY_CENTERED_RMS_PROP,
    SPARSE_APPLY_FTRL,
    SPARSE_APPLY_FTRL_V2,
    SPARSE_APPLY_MOMENTUM,
    SPARSE_APPLY_PROXIMAL_ADAGRAD,
    SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT,
    SPARSE_APPLY_RMS_PROP,
];

pub(super) const APPLY_ADA_MAX: OpDef = OpDef {
    name: "ApplyAdaMax",
    inputs: &[
        "var: Ref(T)",
        "m: Ref(T)",
        "v: Ref(T)",
        "beta1_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const APPLY_ADADELTA: OpDef = OpDef {
    name: "ApplyAdadelta",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "accum_update: Ref(T)",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const APPLY_ADAGRAD: OpDef = OpDef {
    name: "ApplyAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T"],
    attrs: &[NUMBER, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const APPLY_ADAGRAD_DA: OpDef = OpDef {
    name: "ApplyAdagradDA",
    inputs: &[
        "var: Ref(T)",
        "gradient_accumulator: Ref(T)",
        "gradient_squared_accumulator: Ref(T)",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const APPLY_ADAGRAD_V2: OpDef = OpDef {
    name: "ApplyAdagradV2",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "epsilon: T", "grad: T"],
    attrs: &[NUMBER, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const APPLY_ADAM: OpDef = OpDef {
    name: "ApplyAdam",
    inputs: &[
        "var: Ref(T)",
        "m: Ref(T)",
        "v: Ref(T)",
        "beta1_power: T",
        "beta2_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING, NESTEROV],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const APPLY_ADD_SIGN: OpDef = OpDef {
    name: "ApplyAddSign",
    inputs: &[
        "var: Ref(T)",
        "m: Ref(T)",
        "lr: T",
        "alpha: T",
        "sign_decay: T",
        "beta: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const APPLY_CENTERED_RMS_PROP: OpDef = OpDef {
    name: "ApplyCenteredRMSProp",
    inputs: &[
        "var: Ref(T)",
        "mg: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<4>,
    ..REFERENCE
};

pub(super) const APPLY_FTRL: OpDef = OpDef {
    name: "ApplyFtrl",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const APPLY_FTRL_V2: OpDef = OpDef {
    name: "ApplyFtrlV2",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const APPLY_GRADIENT_DESCENT: OpDef = OpDef {
    name: "ApplyGradientDescent",
    inputs: &["var: Ref(T)", "alpha: T", "delta: T"],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<1>,
    ..REFERENCE
};

pub(super) const APPLY_MOMENTUM: OpDef = OpDef {
    name: "ApplyMomentum",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "momentum: T"],
    attrs: &[NUMBER, LOCKING, NESTEROV],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const APPLY_POWER_SIGN: OpDef = OpDef {
    name: "ApplyPowerSign",
    inputs: &[
        "var: Ref(T)",
        "m: Ref(T)",
        "lr: T",
        "logbase: T",
        "sign_decay: T",
        "beta: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const APPLY_PROXIMAL_ADAGRAD: OpDef = OpDef {
    name: "ApplyProximalAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "l1: T", "l2: T", "grad: T"],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const APPLY_PROXIMAL_GRADIENT_DESCENT: OpDef = OpDef {
    name: "ApplyProximalGradientDescent",
    inputs: &["var: Ref(T)", "alpha: T", "l1: T", "l2: T", "delta: T"],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<1>,
    ..REFERENCE
};

pub(super) const APPLY_RMS_PROP: OpDef = OpDef {
    name: "ApplyRMSProp",
    inputs: &[
        "var: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const RESOURCE_APPLY_ADA_MAX: OpDef = OpDef {
    name: "ResourceApplyAdaMax",
    inputs: &[
        "var: resource",
        "m: resource",
        "v: resource",
        "beta1_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADADELTA: OpDef = OpDef {
    name: "ResourceApplyAdadelta",
    inputs: &[
        "var: resource",
        "accum: resource",
        "accum_update: resource",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADAGRAD: OpDef = OpDef {
    name: "ResourceApplyAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T"],
    attrs: &[NUMBER, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADAGRAD_DA: OpDef = OpDef {
    name: "ResourceApplyAdagradDA",
    inputs: &[
        "var: resource",
        "gradient_accumulator: resource",
        "gradient_squared_accumulator: resource",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADAGRAD_V2: OpDef = OpDef {
    name: "ResourceApplyAdagradV2",
    inputs: &["var: resource", "accum: resource", "lr: T", "epsilon: T", "grad: T"],
    attrs: &[NUMBER, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADAM: OpDef = OpDef {
    name: "ResourceApplyAdam",
    inputs: &[
        "var: resource",
        "m: resource",
        "v: resource",
        "beta1_power: T",
        "beta2_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING, NESTEROV],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADAM_WITH_AMSGRAD: OpDef = OpDef {
    name: "ResourceApplyAdamWithAmsgrad",
    inputs: &[
        "var: resource",
        "m: resource",
        "v: resource",
        "vhat: resource",
        "beta1_power: T",
        "beta2_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<4>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_ADD_SIGN: OpDef = OpDef {
    name: "ResourceApplyAddSign",
    inputs: &[
        "var: resource",
        "m: resource",
        "lr: T",
        "alpha: T",
        "sign_decay: T",
        "beta: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_CENTERED_RMS_PROP: OpDef = OpDef {
    name: "ResourceApplyCenteredRMSProp",
    inputs: &[
        "var: resource",
        "mg: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<4>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_FTRL: OpDef = OpDef {
    name: "ResourceApplyFtrl",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_FTRL_V2: OpDef = OpDef {
    name: "ResourceApplyFtrlV2",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_GRADIENT_DESCENT: OpDef = OpDef {
    name: "ResourceApplyGradientDescent",
    inputs: &["var: resource", "alpha: T", "delta: T"],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<1>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_KERAS_MOMENTUM: OpDef = OpDef {
    name: "ResourceApplyKerasMomentum",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "momentum: T"],
    attrs: &[NUMBER, LOCKING, NESTEROV],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_MOMENTUM: OpDef = OpDef {
    name: "ResourceApplyMomentum",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "momentum: T"],
    attrs: &[NUMBER, LOCKING, NESTEROV],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_POWER_SIGN: OpDef = OpDef {
    name: "ResourceApplyPowerSign",
    inputs: &[
        "var: resource",
        "m: resource",
        "lr: T",
        "logbase: T",
        "sign_decay: T",
        "beta: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_PROXIMAL_ADAGRAD: OpDef = OpDef {
    name: "ResourceApplyProximalAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "l1: T", "l2: T", "grad: T"],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_PROXIMAL_GRADIENT_DESCENT: OpDef = OpDef {
    name: "ResourceApplyProximalGradientDescent",
    inputs: &["var: resource", "alpha: T", "l1: T", "l2: T", "delta: T"],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<1>,
    ..RESOURCE
};

pub(super) const RESOURCE_APPLY_RMS_PROP: OpDef = OpDef {
    name: "ResourceApplyRMSProp",
    inputs: &[
        "var: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &[NUMBER, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_ADADELTA: OpDef = OpDef {
    name: "ResourceSparseApplyAdadelta",
    inputs: &[
        "var: resource",
        "accum: resource",
        "accum_update: resource",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_ADAGRAD: OpDef = OpDef {
    name: "ResourceSparseApplyAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices"],
    attrs: &[NUMBER, INDICES, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_ADAGRAD_DA: OpDef = OpDef {
    name: "ResourceSparseApplyAdagradDA",
    inputs: &[
        "var: resource",
        "gradient_accumulator: resource",
        "gradient_squared_accumulator: resource",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_ADAGRAD_V2: OpDef = OpDef {
    name: "ResourceSparseApplyAdagradV2",
    inputs: &[
        "var: resource",
        "accum: resource",
        "lr: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_CENTERED_RMS_PROP: OpDef = OpDef {
    name: "ResourceSparseApplyCenteredRMSProp",
    inputs: &[
        "var: resource",
        "mg: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<4>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_FTRL: OpDef = OpDef {
    name: "ResourceSparseApplyFtrl",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_FTRL_V2: OpDef = OpDef {
    name: "ResourceSparseApplyFtrlV2",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_KERAS_MOMENTUM: OpDef = OpDef {
    name: "ResourceSparseApplyKerasMomentum",
    inputs: &[
        "var: resource",
        "accum: resource",
        "lr: T",
        "grad: T",
        "indices: Tindices",
        "momentum: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, NESTEROV],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_MOMENTUM: OpDef = OpDef {
    name: "ResourceSparseApplyMomentum",
    inputs: &[
        "var: resource",
        "accum: resource",
        "lr: T",
        "grad: T",
        "indices: Tindices",
        "momentum: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, NESTEROV],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_PROXIMAL_ADAGRAD: OpDef = OpDef {
    name: "ResourceSparseApplyProximalAdagrad",
    inputs: &[
        "var: resource",
        "accum: resource",
        "lr: T",
        "l1: T",
        "l2: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<2>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT: OpDef = OpDef {
    name: "ResourceSparseApplyProximalGradientDescent",
    inputs: &["var: resource", "alpha: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<1>,
    ..RESOURCE
};

pub(super) const RESOURCE_SPARSE_APPLY_RMS_PROP: OpDef = OpDef {
    name: "ResourceSparseApplyRMSProp",
    inputs: &[
        "var: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<3>,
    ..RESOURCE
};

pub(super) const SPARSE_APPLY_ADADELTA: OpDef = OpDef {
    name: "SparseApplyAdadelta",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "accum_update: Ref(T)",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_ADAGRAD: OpDef = OpDef {
    name: "SparseApplyAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "indices: Tindices"],
    attrs: &[NUMBER, INDICES, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_ADAGRAD_DA: OpDef = OpDef {
    name: "SparseApplyAdagradDA",
    inputs: &[
        "var: Ref(T)",
        "gradient_accumulator: Ref(T)",
        "gradient_squared_accumulator: Ref(T)",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_ADAGRAD_V2: OpDef = OpDef {
    name: "SparseApplyAdagradV2",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "lr: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, SLOTS],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_CENTERED_RMS_PROP: OpDef = OpDef {
    name: "SparseApplyCenteredRMSProp",
    inputs: &[
        "var: Ref(T)",
        "mg: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<4>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_FTRL: OpDef = OpDef {
    name: "SparseApplyFtrl",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_FTRL_V2: OpDef = OpDef {
    name: "SparseApplyFtrlV2",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, BY_RATE],
    shape: apply_shape::<3>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_MOMENTUM: OpDef = OpDef {
    name: "SparseApplyMomentum",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "lr: T",
        "grad: T",
        "indices: Tindices",
        "momentum: T",
    ],
    attrs: &[NUMBER, INDICES, LOCKING, NESTEROV],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_PROXIMAL_ADAGRAD: OpDef = OpDef {
    name: "SparseApplyProximalAdagrad",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "lr: T",
        "l1: T",
        "l2: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<2>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT: OpDef = OpDef {
    name: "SparseApplyProximalGradientDescent",
    inputs: &["var: Ref(T)", "alpha: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<1>,
    ..REFERENCE
};

pub(super) const SPARSE_APPLY_RMS_PROP: OpDef = OpDef {
    name: "SparseApplyRMSProp",
    inputs: &[
        "var: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    attrs: &[NUMBER, INDICES, LOCKING],
    shape: apply_shape::<3>,
    ..REFERENCE
};
