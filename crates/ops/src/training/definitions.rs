//! The interfaces of the optimizers' ops.
//!
//! Each optimizer has up to four ops: dense and sparse, for reference edges and for resource
//! handles. They differ in the dtype of the variable input, and in `indices`.

use thalweg_graph::{OpDef, Work};

use super::apply_shape;

/// All definitions.
pub(super) const ALL: &[OpDef] = &[
    OpDef::new("ApplyAdaMax", apply_shape::<3>).with_work(Work::updates::<3, 15>),
    OpDef::new("ApplyAdadelta", apply_shape::<3>).with_work(Work::updates::<3, 40>),
    OpDef::new("ApplyAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 25>),
    OpDef::new("ApplyAdagradDA", apply_shape::<3>).with_work(Work::updates::<3, 40>),
    OpDef::new("ApplyAdagradV2", apply_shape::<2>).with_work(Work::updates::<2, 25>),
    OpDef::new("ApplyAdam", apply_shape::<3>).with_work(Work::updates::<3, 25>),
    OpDef::new("ApplyAddSign", apply_shape::<2>).with_work(Work::updates::<2, 10>),
    OpDef::new("ApplyCenteredRMSProp", apply_shape::<4>).with_work(Work::updates::<4, 30>),
    OpDef::new("ApplyFtrl", apply_shape::<3>).with_work(Work::updates::<3, 1000>),
    OpDef::new("ApplyFtrlV2", apply_shape::<3>).with_work(Work::updates::<3, 1000>),
    OpDef::new("ApplyGradientDescent", apply_shape::<1>).with_work(Work::updates::<1, 2>),
    OpDef::new("ApplyMomentum", apply_shape::<2>).with_work(Work::updates::<2, 4>),
    OpDef::new("ApplyPowerSign", apply_shape::<2>).with_work(Work::updates::<2, 300>),
    OpDef::new("ApplyProximalAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 40>),
    OpDef::new("ApplyProximalGradientDescent", apply_shape::<1>).with_work(Work::updates::<1, 6>),
    OpDef::new("ApplyRMSProp", apply_shape::<3>).with_work(Work::updates::<3, 25>),
    OpDef::new("ResourceApplyAdaMax", apply_shape::<3>).with_work(Work::updates::<3, 15>),
    OpDef::new("ResourceApplyAdadelta", apply_shape::<3>).with_work(Work::updates::<3, 40>),
    OpDef::new("ResourceApplyAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 25>),
    OpDef::new("ResourceApplyAdagradDA", apply_shape::<3>).with_work(Work::updates::<3, 40>),
    OpDef::new("ResourceApplyAdagradV2", apply_shape::<2>).with_work(Work::updates::<2, 25>),
    OpDef::new("ResourceApplyAdam", apply_shape::<3>).with_work(Work::updates::<3, 25>),
    OpDef::new("ResourceApplyAdamWithAmsgrad", apply_shape::<4>).with_work(Work::updates::<4, 30>),
    OpDef::new("ResourceApplyAddSign", apply_shape::<2>).with_work(Work::updates::<2, 10>),
    OpDef::new("ResourceApplyCenteredRMSProp", apply_shape::<4>).with_work(Work::updates::<4, 30>),
    OpDef::new("ResourceApplyFtrl", apply_shape::<3>).with_work(Work::updates::<3, 1000>),
    OpDef::new("ResourceApplyFtrlV2", apply_shape::<3>).with_work(Work::updates::<3, 1000>),
    OpDef::new("ResourceApplyGradientDescent", apply_shape::<1>).with_work(Work::updates::<1, 2>),
    OpDef::new("ResourceApplyKerasMomentum", apply_shape::<2>).with_work(Work::updates::<2, 4>),
    OpDef::new("ResourceApplyMomentum", apply_shape::<2>).with_work(Work::updates::<2, 4>),
    OpDef::new("ResourceApplyPowerSign", apply_shape::<2>).with_work(Work::updates::<2, 300>),
    OpDef::new("ResourceApplyProximalAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 40>),
    OpDef::new("ResourceApplyProximalGradientDescent", apply_shape::<1>)
        .with_work(Work::updates::<1, 6>),
    OpDef::new("ResourceApplyRMSProp", apply_shape::<3>).with_work(Work::updates::<3, 25>),
    OpDef::new("ResourceSparseApplyAdadelta", apply_shape::<3>).with_work(Work::updates::<3, 280>),
    OpDef::new("ResourceSparseApplyAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 150>),
    OpDef::new("ResourceSparseApplyAdagradDA", apply_shape::<3>).with_work(Work::updates::<3, 250>),
    OpDef::new("ResourceSparseApplyAdagradV2", apply_shape::<2>).with_work(Work::updates::<2, 150>),
    OpDef::new("ResourceSparseApplyCenteredRMSProp", apply_shape::<4>)
        .with_work(Work::updates::<4, 250>),
    OpDef::new("ResourceSparseApplyFtrl", apply_shape::<3>).with_work(Work::updates::<3, 1300>),
    OpDef::new("ResourceSparseApplyFtrlV2", apply_shape::<3>).with_work(Work::updates::<3, 1300>),
    OpDef::new("ResourceSparseApplyKerasMomentum", apply_shape::<2>)
        .with_work(Work::updates::<2, 130>),
    OpDef::new("ResourceSparseApplyMomentum", apply_shape::<2>).with_work(Work::updates::<2, 130>),
    OpDef::new("ResourceSparseApplyProximalAdagrad", apply_shape::<2>)
        .with_work(Work::updates::<2, 250>),
    OpDef::new("ResourceSparseApplyProximalGradientDescent", apply_shape::<1>)
        .with_work(Work::updates::<1, 100>),
    OpDef::new("ResourceSparseApplyRMSProp", apply_shape::<3>).with_work(Work::updates::<3, 225>),
    OpDef::new("SparseApplyAdadelta", apply_shape::<3>).with_work(Work::updates::<3, 280>),
    OpDef::new("SparseApplyAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 150>),
    OpDef::new("SparseApplyAdagradDA", apply_shape::<3>).with_work(Work::updates::<3, 250>),
    OpDef::new("SparseApplyAdagradV2", apply_shape::<2>).with_work(Work::updates::<2, 150>),
    OpDef::new("SparseApplyCenteredRMSProp", apply_shape::<4>).with_work(Work::updates::<4, 250>),
    OpDef::new("SparseApplyFtrl", apply_shape::<3>).with_work(Work::updates::<3, 1300>),
    OpDef::new("SparseApplyFtrlV2", apply_shape::<3>).with_work(Work::updates::<3, 1300>),
    OpDef::new("SparseApplyMomentum", apply_shape::<2>).with_work(Work::updates::<2, 130>),
    OpDef::new("SparseApplyProximalAdagrad", apply_shape::<2>).with_work(Work::updates::<2, 250>),
    OpDef::new("SparseApplyProximalGradientDescent", apply_shape::<1>)
        .with_work(Work::updates::<1, 100>),
    OpDef::new("SparseApplyRMSProp", apply_shape::<3>).with_work(Work::updates::<3, 225>),
];
