//! Ops that forward their input: `Identity`, `StopGradient`, `CheckNumerics` and the like.

use thalweg_graph::shape::{self, ShapeContext};
use thalweg_graph::{GradientContext, OpDef, PartialValue, Role, ValueContext, Work, gradient};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, Element, Result, Tensor, bail, bf16, f16};

use crate::CHEAP;
use crate::array_sources::forward;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        IDENTITY_N,
        OpDef::new("StopGradient", shape::unchanged)
            .with_work(Work::none)
            .with_role(Role::Forward)
            .with_value(same_input)
            .without_gradient(),
        PREVENT_GRADIENT,
        OpDef::new("Snapshot", shape::unchanged).with_work(Work::none).with_value(same_input),
        OpDef::new("DeepCopy", shape::unchanged).with_work(Work::moves),
        CHECK_NUMERICS,
        CHECK_NUMERICS_V2,
        OpDef::new("RefIdentity", shape::unchanged)
            .with_work(Work::none)
            .with_gradient(gradient::unchanged),
        OpDef::new("DebugGradientIdentity", shape::unchanged)
            .with_work(Work::none)
            .with_role(Role::Forward)
            .with_gradient(gradient::unchanged),
        DEBUG_GRADIENT_REF_IDENTITY,
    ],
    kernels: &[
        KernelSpec { op: "IdentityN", create: |_| AnyKernel::new(forward_all), ..CHEAP },
        KernelSpec { op: "StopGradient", ..FORWARD },
        KernelSpec { op: "PreventGradient", ..FORWARD },
        KernelSpec { op: "Snapshot", ..FORWARD },
        KernelSpec { op: "DebugGradientIdentity", ..FORWARD },
        KernelSpec { op: "DeepCopy", create: deep_copy, ..KernelSpec::CPU },
        cpu_kernel!("CheckNumerics", "T" in [f16, bf16, f32, f64] => check_numerics),
        cpu_kernel!("CheckNumericsV2", "T" in [f16, bf16, f32, f64] => check_numerics_v2),
        KernelSpec { op: "RefIdentity", ..FORWARD_REF },
        KernelSpec { op: "RefIdentity", create: FORWARD_REF.create, ..KernelSpec::ACCELERATOR },
        KernelSpec { op: "DebugGradientRefIdentity", ..FORWARD_REF },
        KernelSpec::lowering("IdentityN", |l| {
            (0..l.num_inputs()).try_for_each(|i| l.forward(i, i))
        }),
        KernelSpec::lowering("StopGradient", |l| l.forward(0, 0)),
        KernelSpec::lowering("PreventGradient", |l| l.forward(0, 0)),
        KernelSpec::lowering("Snapshot", |l| l.forward(0, 0)),
        KernelSpec::lowering("DebugGradientIdentity", |l| l.forward(0, 0)),
        KernelSpec::lowering("DeepCopy", |l| l.forward(0, 0)),
        KernelSpec::lowering("CheckNumerics", |l| l.forward(0, 0)),
        KernelSpec::lowering("CheckNumericsV2", |l| l.forward(0, 0)),
    ],
};

const FORWARD: KernelSpec = KernelSpec { create: |_| AnyKernel::new(forward), ..CHEAP };
const FORWARD_REF: KernelSpec = KernelSpec { create: |_| AnyKernel::new(forward_ref), ..CHEAP };

const IDENTITY_N: OpDef = OpDef::new("IdentityN", all_unchanged)
    .with_work(Work::none)
    .with_role(Role::Forward)
    .with_value(same_input)
    .with_gradient(identity_n_grad);

fn all_unchanged(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 0..c.num_outputs() {
        c.set_output(i, c.input(i).clone());
    }
    Ok(())
}

fn same_input(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    c.input(c.output())
}

fn identity_n_grad(g: &mut GradientContext<'_>) -> Result<()> {
    for i in 0..g.num_outputs() {
        if let Some(adjoint) = g.adjoint(i) {
            g.set_adjoint(i, adjoint)?;
        }
    }
    Ok(())
}

/// Fails: the op marks a tensor through which no gradient may flow.
fn prevent_gradient_grad(g: &mut GradientContext<'_>) -> Result<()> {
    bail!(NotFound, "Gradient explicitly disabled. Reason: {}", g.attrs().string("message")?)
}

/// `CheckNumerics` of the adjoint.
fn check_numerics_grad(g: &mut GradientContext<'_>, op: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let message = format!("The gradient has NaN or Inf. {}", g.attrs().string("message")?);
    let checked = g.op(op).input(grad).attr("message", message.as_str()).build()?;
    g.set(0, checked)
}

fn forward_all(ctx: &mut KernelContext<'_>) -> Result<()> {
    for i in 0..ctx.num_inputs() {
        let input = ctx.take_input(i)?;
        ctx.set_output(i, input)?;
    }
    Ok(())
}

const PREVENT_GRADIENT: OpDef = OpDef::new("PreventGradient", shape::unchanged)
    .with_work(Work::none)
    .with_role(Role::Forward)
    .with_value(same_input)
    .with_gradient(prevent_gradient_grad);

fn deep_copy(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        if ctx.output_dtype(0)? == DType::Variant {
            bail!(InvalidArgument, "Unsupported data type: variant");
        }
        let mut copy = ctx.take_input(0)?;
        copy.make_unique(Some(ctx.budget()))?;
        ctx.set_output(0, copy)
    })
}

const DEBUG_GRADIENT_REF_IDENTITY: OpDef = OpDef::new("DebugGradientRefIdentity", shape::unchanged)
    .with_work(Work::none)
    .with_gradient(gradient::unchanged);

fn forward_ref(ctx: &mut KernelContext<'_>) -> Result<()> {
    ctx.set_output_ref(0, ctx.input_ref(0)?)
}

const CHECK_NUMERICS: OpDef = OpDef::new("CheckNumerics", shape::unchanged)
    .with_role(Role::Forward)
    .with_gradient(|g| check_numerics_grad(g, "CheckNumerics"));
const CHECK_NUMERICS_V2: OpDef = OpDef::new("CheckNumericsV2", shape::unchanged)
    .with_role(Role::Forward)
    .with_gradient(|g| check_numerics_grad(g, "CheckNumericsV2"));

/// Floats that can be tested for NaN and infinity.
trait Checked: Element {
    fn is_finite(self) -> bool;
    fn to_f64(self) -> f64;
}

macro_rules! checked {
    ($($t:ty),+) => { $(
        impl Checked for $t {
            fn is_finite(self) -> bool {
                <$t>::is_finite(self)
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )+ };
}

checked!(f16, bf16, f32, f64);

/// Which non-finite values a tensor contains.
#[derive(Default)]
struct NonFinite {
    minus_infinity: bool,
    plus_infinity: bool,
    nan: bool,
}

/// Finds non-finite values; tensors without any take a single fast pass.
fn find_non_finite<T: Checked>(
    ctx: &KernelContext<'_>,
    tensor: &Tensor,
) -> Result<Option<NonFinite>> {
    let elements = tensor.as_slice::<T>()?;
    let sick = std::sync::atomic::AtomicBool::new(false);
    ctx.parallel_for(elements.len(), 0.3, |range| {
        // Counting without an early exit lets the loop vectorize.
        let bad: usize = elements[range].iter().map(|x| usize::from(!x.is_finite())).sum();
        if bad > 0 {
            sick.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    })?;
    if !sick.into_inner() {
        return Ok(None);
    }
    let mut found = NonFinite::default();
    for x in elements.iter().filter(|x| !x.is_finite()) {
        let x = x.to_f64();
        found.nan |= x.is_nan();
        found.plus_infinity |= x == f64::INFINITY;
        found.minus_infinity |= x == f64::NEG_INFINITY;
    }
    Ok(Some(found))
}

fn check_numerics<T: Checked>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let message = init.attrs().string("message")?.to_owned();
    AnyKernel::new(move |ctx| {
        if let Some(found) = find_non_finite::<T>(ctx, ctx.input(0)?)? {
            let what = match (found.plus_infinity || found.minus_infinity, found.nan) {
                (true, true) => "Inf and NaN",
                (true, false) => "Inf",
                _ => "NaN",
            };
            bail!(InvalidArgument, "{message} : Tensor had {what} values");
        }
        forward(ctx)
    })
}

fn check_numerics_v2<T: Checked>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let message = init.attrs().string("message")?.to_owned();
    AnyKernel::new(move |ctx| {
        if let Some(found) = find_non_finite::<T>(ctx, ctx.input(0)?)? {
            let kinds =
                [("-Inf", found.minus_infinity), ("+Inf", found.plus_infinity), ("NaN", found.nan)];
            let names: Vec<&str> = kinds.iter().filter(|k| k.1).map(|k| k.0).collect();
            let what = match names[..] {
                [a, b, c] => format!("{a}, {b}, and {c}"),
                _ => names.join(" and "),
            };
            bail!(InvalidArgument, "{message} : Tensor had {what} values");
        }
        forward(ctx)
    })
}
