//! Lowering of the optimizers' ops: finds the variables, checks shapes, and applies a rule to all
//! elements or to rows.
//!
//! Rows of equal index are applied one after the other, as on a CPU, in rounds: each takes one of every
//! index. A row at an index out of range is left out.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::{Family, KernelSpec, Lowering};
use thalweg_tensor::DType::{self, BFloat16, Complex64, Complex128, Double, Float, Half};
use thalweg_tensor::{Code, Result, ensure};

use super::lowered_rules::*;
use crate::cumulative::scanned;
use crate::lowering::wide;
use crate::rows_lowering::{gathered, scattered, wide as wide_indices};
use crate::variable_lowering::{forward_reference, held};

/// The lowerings of all forms of every optimizer op.
pub(crate) static FAMILY: Family = Family { ops: &[], kernels: KERNELS };

type Constraints = &'static [(&'static str, &'static [DType])];

const FIELDS: Constraints = &[("T", &[Half, BFloat16, Float, Double, Complex64, Complex128])];
const REALS: Constraints = &[("T", &[Half, BFloat16, Float, Double])];
const WITHOUT_BF16: Constraints = &[("T", &[Half, Float, Double])];
const WIDE: Constraints = &[("T", &[Float, Double])];

const KERNELS: &[KernelSpec] = &[
    KernelSpec::lowering("ApplyGradientDescent", |l| lower(l, gradient_descent)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyGradientDescent", |l| lower(l, gradient_descent))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyMomentum", |l| lower(l, momentum)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyMomentum", |l| lower(l, momentum)).for_dtypes(FIELDS),
    KernelSpec::lowering("SparseApplyMomentum", |l| lower(l, momentum)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyMomentum", |l| lower(l, momentum)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyKerasMomentum", |l| lower(l, keras_momentum))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyKerasMomentum", |l| lower(l, keras_momentum))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyAdagrad", |l| lower(l, adagrad)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyAdagrad", |l| lower(l, adagrad)).for_dtypes(FIELDS),
    KernelSpec::lowering("SparseApplyAdagrad", |l| lower(l, adagrad)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyAdagrad", |l| lower(l, adagrad)).for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyAdagradV2", |l| lower(l, adagrad_v2)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyAdagradV2", |l| lower(l, adagrad_v2)).for_dtypes(FIELDS),
    KernelSpec::lowering("SparseApplyAdagradV2", |l| lower(l, adagrad_v2)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyAdagradV2", |l| lower(l, adagrad_v2))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyAdadelta", |l| lower(l, adadelta)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyAdadelta", |l| lower(l, adadelta)).for_dtypes(FIELDS),
    KernelSpec::lowering("SparseApplyAdadelta", |l| lower(l, adadelta)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyAdadelta", |l| lower(l, adadelta)).for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyRMSProp", |l| lower(l, rms_prop)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyRMSProp", |l| lower(l, rms_prop)).for_dtypes(FIELDS),
    KernelSpec::lowering("SparseApplyRMSProp", |l| lower(l, rms_prop)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyRMSProp", |l| lower(l, rms_prop)).for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyCenteredRMSProp", |l| lower(l, centered_rms_prop))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyCenteredRMSProp", |l| lower(l, centered_rms_prop))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("SparseApplyCenteredRMSProp", |l| lower(l, centered_rms_prop))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceSparseApplyCenteredRMSProp", |l| lower(l, centered_rms_prop))
        .for_dtypes(FIELDS),
    KernelSpec::lowering("ApplyAdam", |l| lower(l, adam)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyAdam", |l| lower(l, adam)).for_dtypes(FIELDS),
    KernelSpec::lowering("ResourceApplyAdamWithAmsgrad", |l| lower(l, amsgrad)).for_dtypes(REALS),
    KernelSpec::lowering("ApplyAdaMax", |l| lower(l, ada_max)).for_dtypes(WITHOUT_BF16),
    KernelSpec::lowering("ResourceApplyAdaMax", |l| lower(l, ada_max)).for_dtypes(WITHOUT_BF16),
    KernelSpec::lowering("ApplyAddSign", |l| lower(l, add_sign)).for_dtypes(REALS),
    KernelSpec::lowering("ResourceApplyAddSign", |l| lower(l, add_sign)).for_dtypes(REALS),
    KernelSpec::lowering("ApplyPowerSign", |l| lower(l, power_sign)).for_dtypes(REALS),
    KernelSpec::lowering("ResourceApplyPowerSign", |l| lower(l, power_sign)).for_dtypes(REALS),
    KernelSpec::lowering("ApplyProximalGradientDescent", |l| lower(l, proximal_gradient_descent))
        .for_dtypes(WIDE),
    KernelSpec::lowering("ResourceApplyProximalGradientDescent", |l| {
        lower(l, proximal_gradient_descent)
    })
    .for_dtypes(WIDE),
    KernelSpec::lowering("SparseApplyProximalGradientDescent", |l| {
        lower(l, proximal_gradient_descent)
    })
    .for_dtypes(WIDE),
    KernelSpec::lowering("ResourceSparseApplyProximalGradientDescent", |l| {
        lower(l, proximal_gradient_descent)
    })
    .for_dtypes(WIDE),
    KernelSpec::lowering("ApplyProximalAdagrad", |l| lower(l, proximal_adagrad)).for_dtypes(WIDE),
    KernelSpec::lowering("ResourceApplyProximalAdagrad", |l| lower(l, proximal_adagrad))
        .for_dtypes(WIDE),
    KernelSpec::lowering("SparseApplyProximalAdagrad", |l| lower(l, proximal_adagrad))
        .for_dtypes(WIDE),
    KernelSpec::lowering("ResourceSparseApplyProximalAdagrad", |l| lower(l, proximal_adagrad))
        .for_dtypes(WIDE),
    KernelSpec::lowering("ApplyAdagradDA", |l| lower(l, adagrad_da)).for_dtypes(WIDE),
    KernelSpec::lowering("ResourceApplyAdagradDA", |l| lower(l, adagrad_da)).for_dtypes(WIDE),
    KernelSpec::lowering("SparseApplyAdagradDA", |l| lower(l, adagrad_da)).for_dtypes(WIDE),
    KernelSpec::lowering("ResourceSparseApplyAdagradDA", |l| lower(l, adagrad_da)).for_dtypes(WIDE),
    KernelSpec::lowering("ApplyFtrl", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("ResourceApplyFtrl", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("SparseApplyFtrl", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("ResourceSparseApplyFtrl", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("ApplyFtrlV2", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("ResourceApplyFtrlV2", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("SparseApplyFtrlV2", |l| lower(l, ftrl)).for_dtypes(REALS),
    KernelSpec::lowering("ResourceSparseApplyFtrlV2", |l| lower(l, ftrl)).for_dtypes(REALS),
];

fn lower(
    l: &mut Lowering<'_>,
    prepare: fn(&LoweredParameters<'_, '_>) -> Result<LoweredRule>,
) -> Result<()> {
    let position = |name: &str| l.node().input_range(name).map(|range| range.start);
    let gradient = position("grad").or_else(|_| position("delta"))?;
    let indices = position("indices").ok();
    let rule = prepare(&LoweredParameters(l))?;
    for i in 0..rule.slots {
        for j in 0..i {
            ensure!(
                !l.is_same_variable(i, j)?,
                InvalidArgument,
                "variable {} cannot be its own slot",
                l.variable_state(i)?.name
            );
        }
    }
    let slots: Vec<Value> =
        (0..rule.slots).map(|i| held(l, i, Code::Internal)).collect::<Result<_>>()?;
    let gradient = l.input(gradient)?;
    let indices = indices.map(|i| l.input(i)).transpose()?;
    check_shapes(&slots, &gradient, indices.as_ref())?;
    let after = match indices {
        None => applied(&rule, &slots, &gradient),
        Some(indices) => applied_to_rows(&rule, slots, &gradient, &indices)?,
    };
    for (i, value) in after.into_iter().enumerate() {
        l.assign_variable(i, value)?;
    }
    forward_reference(l)
}

fn check_shapes(slots: &[Value], gradient: &Value, indices: Option<&Value>) -> Result<()> {
    let dims = slots[0].dims();
    for slot in &slots[1..] {
        ensure!(
            slot.dims() == dims,
            InvalidArgument,
            "var and its slots do not have the same shape: {dims:?} and {:?}",
            slot.dims()
        );
    }
    let Some(indices) = indices else {
        ensure!(
            gradient.dims() == dims,
            InvalidArgument,
            "var and grad do not have the same shape: {dims:?} and {:?}",
            gradient.dims()
        );
        return Ok(());
    };
    ensure!(!dims.is_empty(), InvalidArgument, "var must be at least 1 dimensional");
    ensure!(
        indices.rank() == 1,
        InvalidArgument,
        "indices must be one-dimensional, got shape {:?}",
        indices.dims()
    );
    ensure!(
        gradient.dims() == [indices.dims(), &dims[1..]].concat(),
        InvalidArgument,
        "grad must have a row of var for each index: var is {dims:?}, grad {:?}, indices {:?}",
        gradient.dims(),
        indices.dims()
    );
    Ok(())
}

/// The rule on equally many elements of the slots and the gradient.
fn applied(rule: &LoweredRule, slots: &[Value], gradient: &Value) -> Vec<Value> {
    let before: Vec<Value> = slots.iter().map(wide).collect();
    let after = (rule.step)(&before, &wide(gradient));
    after.into_iter().zip(slots).map(|(value, slot)| value.convert(slot.dtype())).collect()
}

/// The rule on the rows that `indices` select.
fn applied_to_rows(
    rule: &LoweredRule,
    slots: Vec<Value>,
    gradient: &Value,
    indices: &Value,
) -> Result<Vec<Value>> {
    if gradient.num_elements() == 0 {
        return Ok(slots);
    }
    let indices = wide_indices(indices);
    let round = |slots: &[Value], indices: &Value| -> Result<Vec<Value>> {
        let rows: Vec<Value> = slots.iter().map(|slot| gathered(slot, indices, 0, 0)).collect();
        let after = applied(rule, &rows, gradient);
        let column = indices.expand(1);
        let put =
            |(slot, rows): (&Value, &Value)| scattered(slot, &column, rows, |_, new| new.clone());
        slots.iter().zip(&after).map(put).collect()
    };
    if indices.num_elements() == 1 {
        return round(&slots, &indices);
    }
    let turns = occurrences(&indices);
    let last = turns.max_of(&[0]);
    let first = turns.scalar_like(0.0);
    let nowhere = indices.scalar_like(-1.0);
    let values: Vec<Value> = [first].into_iter().chain(slots).collect();
    let mut mistake = Ok(());
    let after = Value::repeat_while(
        &values,
        |v| v[0].compare(Comparison::LessEqual, &last),
        |v| {
            let is_due = turns.compare(Comparison::Equal, &v[0]);
            let after = round(&v[1..], &is_due.select(&indices, &nowhere));
            let after = after.unwrap_or_else(|e| {
                mistake = Err(e);
                v[1..].to_vec()
            });
            [&v[0] + 1.0].into_iter().chain(after).collect()
        },
    );
    mistake.map(|()| after[1..].to_vec())
}

/// For each index, how often it occurs before.
fn occurrences(indices: &Value) -> Value {
    let dims = indices.dims();
    let positions = indices.iota(DType::Int32, dims, 0);
    let together = [indices.clone(), positions.clone()];
    let sorted = Value::sort_together(&together, 0, |v| v[0].0.compare(Comparison::Less, &v[0].1));
    let (sorted, order) = (&sorted[0], &sorted[1]);
    let shifted = sorted.pad(&sorted.scalar_like(-1.0), &[1], &[-1], &[0]);
    let is_first = sorted
        .compare(Comparison::NotEqual, &shifted)
        .or(&positions.compare_to(Comparison::Equal, 0.0));
    let starts = is_first.select(&positions, &positions.zeros_like());
    let starts = scanned(&starts, 0, false, 0.0, Value::maximum);
    let together = [order.clone(), positions - starts];
    Value::sort_together(&together, 0, |v| v[0].0.compare(Comparison::Less, &v[0].1)).remove(1)
}
