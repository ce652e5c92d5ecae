//! Optimizer update ops (`ApplyGradientDescent` and the like), dense and sparse.
//!
//! The elementwise update is a [`rules::Rule`]; this module finds the variables, checks shapes,
//! locks the cells and iterates. Dense and sparse, reference and resource forms of an optimizer
//! share one kernel.

mod definitions;
mod lowered_rules;
pub(crate) mod lowering;
mod rules;

use std::sync::Arc;

use rules::*;
use smallvec::SmallVec;
use thalweg_graph::ShapeContext;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Variable};
use thalweg_tensor::{
    Code, Complex32, Complex64, DType, Element, PartialShape, Result, Tensor, bail, bf16, ensure,
    err, f16,
};

use crate::math::simd::{self, Level, Loop};
use crate::split::Disjoint;
use crate::variable::{forward_ref, variable_input};
use crate::variable_rows::{row_numbers, walk_rows};

pub(crate) static FAMILY: Family = Family { ops: definitions::ALL, kernels: KERNELS };

/// All forms of every optimizer op, with the element types of TensorFlow's kernels.
const KERNELS: &[KernelSpec] = &[
    cpu_kernel!("ApplyGradientDescent", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => gradient_descent),
    cpu_kernel!("ResourceApplyGradientDescent", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => gradient_descent),
    cpu_kernel!("ApplyMomentum", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => momentum),
    cpu_kernel!("ResourceApplyMomentum", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => momentum),
    cpu_kernel!("SparseApplyMomentum", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => momentum),
    cpu_kernel!("ResourceSparseApplyMomentum", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => momentum),
    cpu_kernel!("ResourceApplyKerasMomentum", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => keras_momentum),
    cpu_kernel!("ResourceSparseApplyKerasMomentum", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => keras_momentum),
    cpu_kernel!("ApplyAdagrad", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad),
    cpu_kernel!("ResourceApplyAdagrad", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad),
    cpu_kernel!("SparseApplyAdagrad", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad),
    cpu_kernel!("ResourceSparseApplyAdagrad", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad),
    cpu_kernel!("ApplyAdagradV2", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad_v2),
    cpu_kernel!("ResourceApplyAdagradV2", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad_v2),
    cpu_kernel!("SparseApplyAdagradV2", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad_v2),
    cpu_kernel!("ResourceSparseApplyAdagradV2", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adagrad_v2),
    cpu_kernel!("ApplyAdadelta", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adadelta),
    cpu_kernel!("ResourceApplyAdadelta", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adadelta),
    cpu_kernel!("SparseApplyAdadelta", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adadelta),
    cpu_kernel!("ResourceSparseApplyAdadelta", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adadelta),
    cpu_kernel!("ApplyRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => rms_prop),
    cpu_kernel!("ResourceApplyRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => rms_prop),
    cpu_kernel!("SparseApplyRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => rms_prop),
    cpu_kernel!("ResourceSparseApplyRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => rms_prop),
    cpu_kernel!("ApplyCenteredRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => centered_rms_prop),
    cpu_kernel!("ResourceApplyCenteredRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => centered_rms_prop),
    cpu_kernel!("SparseApplyCenteredRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => centered_rms_prop),
    cpu_kernel!("ResourceSparseApplyCenteredRMSProp", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => centered_rms_prop),
    cpu_kernel!("ApplyAdam", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adam),
    cpu_kernel!("ResourceApplyAdam", "T" in [f16, bf16, f32, f64, Complex32, Complex64] => adam),
    cpu_kernel!("ResourceApplyAdamWithAmsgrad", "T" in [f16, bf16, f32, f64] => amsgrad),
    cpu_kernel!("ApplyAdaMax", "T" in [f16, f32, f64] => ada_max),
    cpu_kernel!("ResourceApplyAdaMax", "T" in [f16, f32, f64] => ada_max),
    cpu_kernel!("ApplyAddSign", "T" in [f16, bf16, f32, f64] => add_sign),
    cpu_kernel!("ResourceApplyAddSign", "T" in [f16, bf16, f32, f64] => add_sign),
    cpu_kernel!("ApplyPowerSign", "T" in [f16, bf16, f32, f64] => power_sign),
    cpu_kernel!("ResourceApplyPowerSign", "T" in [f16, bf16, f32, f64] => power_sign),
    cpu_kernel!("ApplyProximalGradientDescent", "T" in [f32, f64] => proximal_gradient_descent),
    cpu_kernel!("ResourceApplyProximalGradientDescent", "T" in [f32, f64] => proximal_gradient_descent),
    cpu_kernel!("SparseApplyProximalGradientDescent", "T" in [f32, f64] => proximal_gradient_descent),
    cpu_kernel!("ResourceSparseApplyProximalGradientDescent", "T" in [f32, f64] => proximal_gradient_descent),
    cpu_kernel!("ApplyProximalAdagrad", "T" in [f32, f64] => proximal_adagrad),
    cpu_kernel!("ResourceApplyProximalAdagrad", "T" in [f32, f64] => proximal_adagrad),
    cpu_kernel!("SparseApplyProximalAdagrad", "T" in [f32, f64] => proximal_adagrad),
    cpu_kernel!("ResourceSparseApplyProximalAdagrad", "T" in [f32, f64] => proximal_adagrad),
    cpu_kernel!("ApplyAdagradDA", "T" in [f32, f64] => adagrad_da),
    cpu_kernel!("ResourceApplyAdagradDA", "T" in [f32, f64] => adagrad_da),
    cpu_kernel!("SparseApplyAdagradDA", "T" in [f32, f64] => adagrad_da),
    cpu_kernel!("ResourceSparseApplyAdagradDA", "T" in [f32, f64] => adagrad_da),
    cpu_kernel!("ApplyFtrl", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("ResourceApplyFtrl", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("SparseApplyFtrl", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("ResourceSparseApplyFtrl", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("ApplyFtrlV2", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("ResourceApplyFtrlV2", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("SparseApplyFtrlV2", "T" in [f16, bf16, f32, f64] => ftrl),
    cpu_kernel!("ResourceSparseApplyFtrlV2", "T" in [f16, bf16, f32, f64] => ftrl),
];

/// Creates an optimizer's kernel for one element type.
macro_rules! creators {
    ($($name:ident: $rule:ident, $slots:literal, $field:ident;)+) => { $(
        fn $name<T: Stored<Wide: $field>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
            optimizer::<T, $rule<T::Wide>, $slots>(init)
        }
    )+ };
}

creators! {
    gradient_descent: GradientDescent, 1, Field;
    momentum: Momentum, 2, Field;
    keras_momentum: KerasMomentum, 2, Field;
    adagrad: Adagrad, 2, Field;
    adagrad_v2: AdagradV2, 2, Field;
    adadelta: Adadelta, 3, Field;
    rms_prop: RmsProp, 3, Field;
    centered_rms_prop: CenteredRmsProp, 4, Field;
    adam: Adam, 3, Field;
    amsgrad: Amsgrad, 4, Ordered;
    ada_max: AdaMax, 3, Ordered;
    add_sign: AddSign, 2, Ordered;
    power_sign: PowerSign, 2, Ordered;
    proximal_gradient_descent: ProximalGradientDescent, 1, Ordered;
    proximal_adagrad: ProximalAdagrad, 2, Ordered;
    adagrad_da: AdagradDa, 3, Ordered;
    ftrl: Ftrl, 3, Ordered;
}

/// Input shapes: `N` variables of one shape first; gradients have the same shape, or are rows with
/// their indices. The rest are scalars.
fn apply_shape<const N: usize>(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut variable = PartialShape::unknown();
    for i in 0..N {
        let is_handle = c.input_dtype(i) == Some(DType::Resource);
        let slot = if is_handle { c.variable_shape(i) } else { c.input(i).clone() };
        variable = variable.merge(&slot)?;
    }
    let gradient = c.input_range("grad").or_else(|_| c.input_range("delta"))?.start;
    let indices = c.input_range("indices").ok().map(|range| range.start);
    for i in (N..c.num_inputs()).filter(|&i| i != gradient && Some(i) != indices) {
        c.with_rank(i, "a parameter", 0)?;
    }
    if let Some(indices) = indices {
        let numbers = c.with_rank(indices, "indices", 1)?;
        if let Some(dims) = variable.dims() {
            ensure!(!dims.is_empty(), InvalidArgument, "a scalar has no rows");
            let rows = [numbers.dim(0)].into_iter().chain(dims[1..].iter().copied());
            PartialShape::new(rows).merge(c.input(gradient))?;
        }
    } else {
        variable = variable.merge(c.input(gradient))?;
    }
    c.set_output(0, variable);
    Ok(())
}

/// Element types of variables, and their compute types.
trait Stored: Element {
    type Wide: Field;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! impl_stored {
    ($($t:ty: $wide:ty, $widen:expr, $narrow:expr;)+) => { $(
        impl Stored for $t {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                $narrow(wide)
            }
        }
    )+ };
}

impl_stored! {
    f32: f32, |x| x, |x| x;
    f64: f64, |x| x, |x| x;
    f16: f32, f16::to_f32, f16::from_f32;
    bf16: f32, bf16::to_f32, bf16::from_f32;
    Complex32: Complex32, |x| x, |x| x;
    Complex64: Complex64, |x| x, |x| x;
}

/// The scalar inputs of an optimizer op, by name.
struct Parameters<'a, W> {
    ctx: &'a KernelContext<'a>,
    widen: fn(&Tensor) -> Result<W>,
}

impl<W> Parameters<'_, W> {
    fn scalar(&self, name: &str) -> Result<W> {
        let tensor = self.ctx.input(self.ctx.input_range(name)?.start)?;
        ensure!(tensor.rank() == 0, InvalidArgument, "{name} is not a scalar: {}", tensor.shape());
        (self.widen)(tensor)
    }

    fn integer(&self, name: &str) -> Result<i64> {
        self.ctx.scalar_int(self.ctx.input_range(name)?.start, name)
    }

    fn has(&self, name: &str) -> bool {
        self.ctx.node().op.inputs.iter().any(|input| input.name == name)
    }

    /// A bool attr; false if the op does not have it.
    fn flag(&self, name: &str) -> bool {
        self.ctx.node().attrs().bool(name).unwrap_or(false)
    }
}

fn optimizer<T, R, const N: usize>(init: &KernelInit<'_>) -> Result<AnyKernel>
where
    T: Stored,
    R: Rule<T::Wide, N>,
{
    let position = |name: &str| init.node.input_range(name).map(|range| range.start);
    let gradient = position("grad").or_else(|_| position("delta"))?;
    let indices = position("indices").ok();
    AnyKernel::new(move |ctx| {
        let variables: SmallVec<[Arc<Variable>; 4]> =
            (0..N).map(|i| slot_input(ctx, i)).collect::<Result<_>>()?;
        let widen = |tensor: &Tensor| tensor.scalar_value::<T>().map(T::widen);
        let rule = R::new(&Parameters { ctx, widen })?;
        let gradient = ctx.input(gradient)?;
        change_all(ctx, &variables, &mut |values| {
            let rows = check_shapes(ctx, values, gradient, indices)?;
            let mut slices: SmallVec<[&mut [T]; 4]> =
                values.iter_mut().map(|v| v.as_mut_slice::<T>()).collect::<Result<_>>()?;
            let mut slices = slices.drain(..);
            let slots: [_; N] =
                std::array::from_fn(|_| Disjoint::new(slices.next().expect("N variables")));
            let gradient = gradient.as_slice::<T>()?;
            match rows {
                None => apply_dense(ctx, rule, &slots, gradient),
                Some(rows) => apply_rows(ctx, rule, &slots, gradient, &rows),
            }
        })?;
        let [variable, ..] = &variables[..] else { return Ok(()) };
        forward_ref(ctx, variable.clone())
    })
}

fn slot_input(ctx: &KernelContext<'_>, i: usize) -> Result<Arc<Variable>> {
    variable_input(ctx, i).map_err(|e| match e.code() {
        Code::NotFound => err!(Internal, "Invalid variable reference: {}", e.message()),
        _ => e,
    })
}

/// Called with the locked values of several variables, in the order of the inputs.
type ChangeAll<'a> = &'a mut dyn FnMut(&mut [&mut Tensor]) -> Result<()>;

/// Locks several variables, in an order on which all kernels agree, and changes them.
fn change_all(
    ctx: &KernelContext<'_>,
    variables: &[Arc<Variable>],
    body: ChangeAll<'_>,
) -> Result<()> {
    let mut order: SmallVec<[usize; 4]> = (0..variables.len()).collect();
    order.sort_by_key(|&i| Arc::as_ptr(&variables[i]));
    if let Some(pair) = order.windows(2).find(|p| Arc::ptr_eq(&variables[p[0]], &variables[p[1]])) {
        let name = variables[pair[0]].name();
        bail!(InvalidArgument, "variable {name} cannot be its own slot");
    }
    let mut change = || lock_rest(variables, &order, SmallVec::new(), body);
    update_rest(ctx, variables, &mut change)
}

/// Passes each variable through `ResourceManager::update`, around a single change of all of them.
/// An observer is called when no variable is locked, so that it may read them.
fn update_rest(
    ctx: &KernelContext<'_>,
    variables: &[Arc<Variable>],
    change: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let Some((variable, rest)) = variables.split_first() else { return change() };
    let (op, step) = (&ctx.node().op.name, ctx.step().step_id());
    ctx.resources().update(&**variable, op, step, || update_rest(ctx, rest, change))
}

/// Locks the variables in `order`, while those in `locked` are held.
fn lock_rest(
    variables: &[Arc<Variable>],
    order: &[usize],
    mut locked: SmallVec<[(usize, &mut Tensor); 4]>,
    body: ChangeAll<'_>,
) -> Result<()> {
    let Some((&next, rest)) = order.split_first() else {
        locked.sort_by_key(|(i, _)| *i);
        let mut values: SmallVec<[&mut Tensor; 4]> = locked.into_iter().map(|(_, v)| v).collect();
        return body(&mut values);
    };
    variables[next].update(|value| {
        let mut all: SmallVec<[(usize, &mut Tensor); 4]> = SmallVec::new();
        // Moved one by one, as a `SmallVec` of references cannot shorten their lifetime.
        for (i, other) in locked {
            all.push((i, other));
        }
        all.push((next, value));
        lock_rest(variables, rest, all, body)
    })
}

/// Checks that the shapes agree; for a sparse gradient, returns the row indices.
fn check_shapes(
    ctx: &KernelContext<'_>,
    values: &[&mut Tensor],
    gradient: &Tensor,
    indices: Option<usize>,
) -> Result<Option<Tensor>> {
    let shape = values[0].shape();
    for slot in &values[1..] {
        ensure!(
            slot.shape() == shape,
            InvalidArgument,
            "var and its slots do not have the same shape: {shape} and {}",
            slot.shape()
        );
    }
    let Some(indices) = indices else {
        ensure!(
            gradient.shape() == shape,
            InvalidArgument,
            "var and grad do not have the same shape: {shape} and {}",
            gradient.shape()
        );
        return Ok(None);
    };
    let numbers = ctx.input(indices)?;
    ensure!(!shape.is_empty(), InvalidArgument, "var must be at least 1 dimensional");
    ensure!(
        numbers.rank() == 1,
        InvalidArgument,
        "indices must be one-dimensional, got shape {}",
        numbers.shape()
    );
    let wanted = numbers.shape().iter().chain(&shape[1..]);
    ensure!(
        gradient.shape().iter().eq(wanted),
        InvalidArgument,
        "grad must have a row of var for each index: var is {shape}, grad {}, indices {}",
        gradient.shape(),
        numbers.shape()
    );
    row_numbers(ctx, indices, shape[0]).map(Some)
}

/// Cost per element: loads, stores and a division or two.
fn nanoseconds_per_element<const N: usize>() -> f64 {
    0.5 + 0.3 * N as f64
}

fn apply_dense<T, R, const N: usize>(
    ctx: &KernelContext<'_>,
    rule: R,
    slots: &[Disjoint<'_, T>; N],
    gradient: &[T],
) -> Result<()>
where
    T: Stored,
    R: Rule<T::Wide, N>,
{
    ctx.parallel_for(gradient.len(), nanoseconds_per_element::<N>(), |range| {
        // SAFETY: `parallel_for` hands out disjoint ranges.
        let slots = slots.each_ref().map(|slot| unsafe { slot.part(range.clone()) });
        simd::run(Walk { rule, slots, gradient: &gradient[range] });
    })
}

fn apply_rows<T, R, const N: usize>(
    ctx: &KernelContext<'_>,
    rule: R,
    slots: &[Disjoint<'_, T>; N],
    gradient: &[T],
    rows: &Tensor,
) -> Result<()>
where
    T: Stored,
    R: Rule<T::Wide, N>,
{
    let rows = rows.as_slice::<i64>()?;
    let Some(row_len) = gradient.len().checked_div(rows.len()).filter(|&len| len > 0) else {
        return Ok(());
    };
    let count = slots[0].len() / row_len;
    let cost = row_len as f64 * nanoseconds_per_element::<N>();
    walk_rows(ctx, rows, count, cost, |position, row| {
        let range = row * row_len..(row + 1) * row_len;
        // SAFETY: `walk_rows` gives a row to one thread only, and one after the other.
        let slots = slots.each_ref().map(|slot| unsafe { slot.part(range.clone()) });
        let gradient = &gradient[position * row_len..(position + 1) * row_len];
        simd::run(Walk { rule, slots, gradient });
    })
}

/// The same range of elements of the variable, its slots and the gradient.
struct Walk<'a, T, R, const N: usize> {
    rule: R,
    slots: [&'a mut [T]; N],
    gradient: &'a [T],
}

impl<T: Stored, R: Rule<T::Wide, N>, const N: usize> Loop for Walk<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<L: Level>(self) {
        let Walk { rule, slots, gradient } = self;
        let len = gradient.len();
        // Known lengths let the compiler remove bounds checks.
        let mut slots = slots.map(|slot| &mut slot[..len]);
        for i in 0..len {
            let before: [T::Wide; N] = std::array::from_fn(|k| slots[k][i].widen());
            let after = rule.step(before, gradient[i].widen());
            for (slot, value) in slots.iter_mut().zip(after) {
                slot[i] = T::narrow(value);
            }
        }
    }
}
