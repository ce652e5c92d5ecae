//! Variables, both generations: reference edges (`VariableV2`, `Assign`) and resource handles
//! (`VarHandleOp`, `AssignVariableOp`).
//!
//! Both kinds are cells of the same type in the task's resource manager, in separate namespaces.
//! Kernels that change a variable work for both: [`variable_input`] finds the cell, and [`change`]
//! changes it.

use std::sync::{Arc, OnceLock};

use thalweg_graph::{OpDef, Role, ShapeContext, Work, gradient, shape};
use thalweg_hlo::Value;
use thalweg_kernel::{
    ANONYMOUS_VARIABLE, AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering,
    Variable,
};
use thalweg_tensor::{
    Code, Complex32, Complex64, DType, Error, PartialShape, Resource, ResourceHandle, Result,
    Shape, Tensor, bail, bf16, ensure, err, f16,
};

use crate::CHEAP;
use crate::number::Number;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        VARIABLE_V2,
        VARIABLE,
        OpDef::new("TemporaryVariable", shape::from_attr).with_work(Work::none),
        OpDef::new("DestroyTemporaryVariable", shape::unchanged).with_work(Work::none),
        OpDef::new("IsVariableInitialized", shape::scalar).with_work(Work::none),
        ASSIGN.without_gradient(),
        ASSIGN_ADD.without_gradient(),
        ASSIGN_SUB.without_gradient(),
        OpDef::new("CountUpTo", count_shape),
        VAR_HANDLE_OP,
        VAR_IS_INITIALIZED_OP.without_gradient(),
        READ_VARIABLE_OP.with_gradient(gradient::unchanged),
        ASSIGN_VARIABLE_OP,
        ASSIGN_ADD_VARIABLE_OP,
        ASSIGN_SUB_VARIABLE_OP,
        OpDef::new("DestroyResourceOp", shape::unknown),
        VARIABLE_SHAPE.without_gradient(),
        OpDef::new("ResourceCountUpTo", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "VariableV2", create: ref_variable, ..CHEAP },
        KernelSpec { op: "Variable", create: ref_variable, ..CHEAP },
        KernelSpec { op: "TemporaryVariable", create: temporary_variable, ..KernelSpec::CPU },
        KernelSpec { op: "DestroyTemporaryVariable", create: destroy_temporary, ..CHEAP },
        KernelSpec { op: "IsVariableInitialized", create: is_ref_initialized, ..CHEAP },
        KernelSpec { op: "Assign", create: assign, ..CHEAP },
        cpu_kernel!("AssignAdd", "T" in [
            f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64,
        ] => assign_add),
        cpu_kernel!("AssignSub", "T" in [
            f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64,
        ] => assign_sub),
        cpu_kernel!("CountUpTo", "T" in [i32, i64] => count_up_to; is_cheap: true),
        KernelSpec { op: "VarHandleOp", create: var_handle, ..CHEAP },
        KernelSpec { op: "VarIsInitializedOp", create: is_initialized, ..CHEAP },
        KernelSpec { op: "ReadVariableOp", create: read_variable, ..CHEAP },
        KernelSpec { op: "AssignVariableOp", create: assign_variable, ..CHEAP },
        cpu_kernel!("AssignAddVariableOp", "dtype" in [
            f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64,
        ] => assign_add),
        cpu_kernel!("AssignSubVariableOp", "dtype" in [
            f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64,
        ] => assign_sub),
        KernelSpec { op: "DestroyResourceOp", create: destroy_resource, ..CHEAP },
        KernelSpec { op: "VariableShape", create: variable_shape, ..CHEAP },
        cpu_kernel!("ResourceCountUpTo", "T" in [i32, i64] => count_up_to; is_cheap: true),
        // An accelerator's variables are the task's; only their values lie in its memory.
        KernelSpec { op: "VariableV2", create: ref_variable, ..ON_ANY_DEVICE },
        KernelSpec { op: "Variable", create: ref_variable, ..ON_ANY_DEVICE },
        KernelSpec { op: "VarHandleOp", create: var_handle, ..ON_ANY_DEVICE },
        KernelSpec { op: "DestroyResourceOp", create: destroy_resource, ..ON_ANY_DEVICE },
        KernelSpec {
            op: "IsVariableInitialized",
            create: is_ref_initialized,
            host_outputs: &["is_initialized"],
            ..ON_ANY_DEVICE
        },
        KernelSpec {
            op: "VarIsInitializedOp",
            create: is_initialized,
            host_outputs: &["is_initialized"],
            ..ON_ANY_DEVICE
        },
        KernelSpec::lowering("Assign", lower_assign),
        KernelSpec::lowering("AssignAdd", |l| lower_update(l, Value::plus)),
        KernelSpec::lowering("AssignSub", |l| lower_update(l, Value::minus)),
        KernelSpec::lowering("AssignVariableOp", lower_assign_resource),
        KernelSpec::lowering("AssignAddVariableOp", |l| lower_update(l, Value::plus)),
        KernelSpec::lowering("AssignSubVariableOp", |l| lower_update(l, Value::minus)),
        KernelSpec::lowering("ReadVariableOp", |l| {
            let value = l.read_variable(0)?;
            l.set(0, value)
        }),
        KernelSpec::lowering("VariableShape", lower_variable_shape).of_shapes(),
    ],
};

/// A kernel that handles variables and no elements of them.
const ON_ANY_DEVICE: KernelSpec = KernelSpec { is_cheap: true, ..KernelSpec::ACCELERATOR };

/// Replaces a variable behind a reference.
fn lower_assign(l: &mut Lowering<'_>) -> Result<()> {
    let value = l.input(1)?;
    if l.attrs().bool("validate_shape")? {
        let state = l.variable_state(0)?;
        let shape = match &state.value {
            Some(current) => Shape::new(current.dims())?,
            None => state.shape.to_shape().unwrap_or_default(),
        };
        ensure!(
            shape.dims() == value.dims(),
            InvalidArgument,
            "Assign requires shapes of both tensors to match. lhs shape= {shape} rhs shape= {}",
            Shape::new(value.dims())?
        );
    }
    l.assign_variable(0, value)?;
    l.forward(0, 0)
}

/// Replaces a resource variable.
fn lower_assign_resource(l: &mut Lowering<'_>) -> Result<()> {
    let value = l.input(1)?;
    if let (true, Some(current)) = (l.attrs().bool("validate_shape")?, &l.variable_state(0)?.value)
    {
        ensure!(
            current.dims() == value.dims(),
            InvalidArgument,
            "Trying to assign to variable with tensor with wrong shape. Expected {} got {}",
            Shape::new(current.dims())?,
            Shape::new(value.dims())?
        );
    }
    l.assign_variable(0, value)
}

/// Combines a variable with a value of its shape.
fn lower_update(l: &mut Lowering<'_>, combine: fn(&Value, &Value) -> Value) -> Result<()> {
    let (old, by) = (l.read_variable(0)?, l.input(1)?);
    ensure!(
        old.dims() == by.dims(),
        InvalidArgument,
        "the variable has shape {:?}, the update {:?}",
        old.dims(),
        by.dims()
    );
    l.assign_variable(0, combine(&old, &by))?;
    if l.node().outputs.is_empty() { Ok(()) } else { l.forward(0, 0) }
}

fn lower_variable_shape(l: &mut Lowering<'_>) -> Result<()> {
    let dims = l.read_variable(0)?.dims().to_vec();
    let shape = Shape::new(&dims)?.to_i64();
    let value = match l.output_dtype(0) {
        DType::Int64 => Tensor::vector(&shape)?,
        _ => Tensor::vector(&shape.iter().map(|&d| d as i32).collect::<Vec<_>>())?,
    };
    l.set_host(0, value)
}

const VARIABLE_V2: OpDef = OpDef {
    name: "VariableV2",
    shape: shape::from_attr,
    role: Role::Variable,
    work: Work::none,
    ..OpDef::DEFAULT
};

const VARIABLE: OpDef = OpDef { name: "Variable", shape: old_variable_shape, ..VARIABLE_V2 };

/// In old graphs, a scalar shape means "unknown".
fn old_variable_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.attrs().shape("shape")?;
    c.set_output(0, if shape.rank() == Some(0) { PartialShape::unknown() } else { shape });
    Ok(())
}

const ASSIGN: OpDef = OpDef::new("Assign", assign_shape).with_work(Work::none);

/// The value's shape, which must be the variable's unless the op may change it.
fn assign_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.attrs().bool("validate_shape")? {
        return shape::merged(c);
    }
    c.set_output(0, c.input(1).clone());
    Ok(())
}

const ASSIGN_ADD: OpDef = OpDef::new("AssignAdd", shape::merged).with_work(Work::updates::<1, 1>);

const ASSIGN_SUB: OpDef = OpDef { name: "AssignSub", ..ASSIGN_ADD };

fn count_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "ref", 0)?;
    shape::scalar(c)
}

const VAR_HANDLE_OP: OpDef = OpDef {
    name: "VarHandleOp",
    shape: shape::scalar,
    role: Role::VarHandle,
    work: Work::none,
    ..OpDef::DEFAULT
};

const VAR_IS_INITIALIZED_OP: OpDef = OpDef::new("VarIsInitializedOp", shape::scalar);

const READ_VARIABLE_OP: OpDef = OpDef::new("ReadVariableOp", read_shape).with_work(Work::none);

fn read_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.variable_shape(0));
    Ok(())
}

const ASSIGN_VARIABLE_OP: OpDef =
    OpDef::new("AssignVariableOp", update_shape).with_work(Work::none);

/// The value's shape must be compatible with the variable's.
fn update_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.variable_shape(0).merge(c.input(1))?;
    Ok(())
}

const ASSIGN_ADD_VARIABLE_OP: OpDef =
    OpDef { name: "AssignAddVariableOp", work: Work::updates::<1, 1>, ..ASSIGN_VARIABLE_OP };

const ASSIGN_SUB_VARIABLE_OP: OpDef =
    OpDef { name: "AssignSubVariableOp", ..ASSIGN_ADD_VARIABLE_OP };

const VARIABLE_SHAPE: OpDef = OpDef::new("VariableShape", shape_of_variable).with_work(Work::none);

fn shape_of_variable(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new([c.variable_shape(0).rank()]));
    Ok(())
}

/// A variable behind reference edges, in a namespace separate from resource variables: a client may
/// use one name for both.
struct RefVariable(Arc<Variable>);

impl Resource for RefVariable {
    fn kind(&self) -> &'static str {
        "Variable"
    }

    fn has_handle(&self) -> bool {
        false
    }

    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }
}

/// Container and name of a node's state; an empty container means the task's default.
fn names(init: &KernelInit<'_>) -> Result<(Arc<str>, Arc<str>)> {
    let attrs = init.attrs();
    let name = attrs.string("shared_name")?;
    let name = if name.is_empty() { init.node.name.clone() } else { name.into() };
    Ok((attrs.string("container")?.into(), name))
}

fn ref_variable(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (container, name) = names(init)?;
    let dtype = init.attrs().dtype("dtype")?;
    let shape = init.attrs().shape("shape")?;
    // A variable without a declared shape has the shape of a scalar in this check until it is
    // initialized.
    if shape.rank().is_some() && shape.to_shape().is_none() {
        bail!(InvalidArgument, "Shape {shape} is not fully defined");
    }
    AnyKernel::new(move |ctx| {
        let found: Arc<RefVariable> =
            ctx.resources().find_or_create(container.clone(), name.clone(), || {
                let budget = ctx.step().state_budget().clone();
                let variable = Variable::new(name.clone(), dtype, shape.clone(), budget);
                Ok(RefVariable(Arc::new(variable)))
            })?;
        ensure!(
            found.0.dtype() == dtype,
            Internal,
            "variable {name} is {}, but this node declares it {dtype}",
            found.0.dtype()
        );
        ctx.set_output_ref(0, found.0.clone())
    })
}

/// `TemporaryVariable`: a zero-initialized variable that lives as long as references to it.
fn temporary_variable(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let name = init.attrs().string("var_name")?;
    let name: Arc<str> = if name.is_empty() { init.node.name.clone() } else { name.into() };
    let dtype = init.attrs().dtype("dtype")?;
    let declared = init.attrs().shape("shape")?;
    let Some(shape) = declared.to_shape() else {
        bail!(InvalidArgument, "Shape {declared} is not fully defined");
    };
    AnyKernel::new(move |ctx| {
        let budget = ctx.budget().clone();
        let variable = Variable::new(name.clone(), dtype, declared.clone(), budget);
        variable.assign(ctx.zeros(dtype, shape.clone())?)?;
        ctx.set_output_ref(0, Arc::new(variable))
    })
}

fn destroy_temporary(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let name: Arc<str> = init.attrs().string("var_name")?.into();
    AnyKernel::new(move |ctx| {
        let variable = ctx.input_ref(0)?;
        ensure!(
            *variable.name() == name,
            NotFound,
            "temporary variable {name} does not exist; the input is {}",
            variable.name()
        );
        let value = variable.read()?;
        ctx.set_output(0, value)
    })
}

fn is_ref_initialized(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let is_initialized = ctx.input_ref(0)?.is_initialized();
        ctx.set_output(0, Tensor::scalar(is_initialized))
    })
}

fn assign(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let validate_shape = init.attrs().bool("validate_shape")?;
    AnyKernel::new(move |ctx| {
        let variable = ctx.input_ref(0)?;
        let value = ctx.take_input(1)?;
        if validate_shape {
            let shape = match variable.snapshot() {
                Some(current) => current.shape().clone(),
                None => variable.shape().to_shape().unwrap_or_default(),
            };
            ensure!(
                shape == *value.shape(),
                InvalidArgument,
                "Assign requires shapes of both tensors to match. lhs shape= {shape} rhs shape= {}",
                value.shape()
            );
        }
        replace(ctx, &variable, value)?;
        ctx.set_output_ref(0, variable)
    })
}

/// Replaces the value of a variable.
fn replace(ctx: &KernelContext<'_>, variable: &Variable, value: Tensor) -> Result<()> {
    let (op, step) = (&ctx.node().op.name, ctx.step().step_id());
    ctx.resources().update(variable, op, step, || variable.assign(value))
}

/// Changes a variable's value in place; copies it first if a snapshot is held.
pub(crate) fn change<R>(
    ctx: &KernelContext<'_>,
    variable: &Variable,
    change: impl FnOnce(&mut Tensor) -> Result<R>,
) -> Result<R> {
    let (op, step) = (&ctx.node().op.name, ctx.step().step_id());
    ctx.resources().update(variable, op, step, || variable.update(change))
}

/// The variable of the reference or handle in input `i`.
pub(crate) fn variable_input(ctx: &KernelContext<'_>, i: usize) -> Result<Arc<Variable>> {
    match ctx.input(i) {
        Ok(_) => ctx.resources().resolve(handle(ctx, i)?),
        Err(_) => ctx.input_ref(i),
    }
}

/// Outputs the reference to the variable.
pub(crate) fn forward_ref(ctx: &mut KernelContext<'_>, variable: Arc<Variable>) -> Result<()> {
    if ctx.num_outputs() == 0 { Ok(()) } else { ctx.set_output_ref(0, variable) }
}

fn handle<'a>(ctx: &'a KernelContext<'_>, i: usize) -> Result<&'a ResourceHandle> {
    let tensor = ctx.input(i)?;
    match tensor.resources()? {
        [handle] => Ok(handle),
        _ => bail!(InvalidArgument, "expected one resource handle, got shape {}", tensor.shape()),
    }
}

fn assign_add<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dense_update(|ctx, target, value| update_each::<T>(ctx, target, value, T::plus))
}

fn assign_sub<T: Number>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dense_update(|ctx, target, value| update_each::<T>(ctx, target, value, T::minus))
}

fn dense_update(
    combine: fn(&KernelContext<'_>, &mut Tensor, &Tensor) -> Result<()>,
) -> Result<AnyKernel> {
    AnyKernel::new(move |ctx| {
        let variable = variable_input(ctx, 0)?;
        let value = ctx.input(1)?;
        change(ctx, &variable, |target| {
            ensure!(
                target.shape() == value.shape(),
                InvalidArgument,
                "Cannot update variable with shape {} using a Tensor with shape {}, shapes must be equal.",
                target.shape(),
                value.shape()
            );
            combine(ctx, target, value)
        })?;
        forward_ref(ctx, variable)
    })
}

fn update_each<T: Number>(
    ctx: &KernelContext<'_>,
    target: &mut Tensor,
    value: &Tensor,
    combine: impl Fn(T, T) -> T + Sync,
) -> Result<()> {
    let value = value.as_slice::<T>()?;
    for_each_rows(ctx, target.as_mut_slice::<T>()?, 1, 0.5, |first, part| {
        for (target, &value) in part.iter_mut().zip(&value[first..]) {
            *target = combine(*target, value);
        }
    })
}

/// `CountUpTo`: returns the value before the increment; an error at the limit.
fn count_up_to<T: Number + TryInto<i64> + From<bool>>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let limit = init.attrs().int("limit")?;
    AnyKernel::new(move |ctx| {
        let variable = variable_input(ctx, 0)?;
        let before = change(ctx, &variable, |value| {
            let [count] = value.as_mut_slice::<T>()? else {
                bail!(InvalidArgument, "input is not a scalar: {}", value.shape());
            };
            let before = *count;
            ensure!(
                before.try_into().is_ok_and(|before| before < limit),
                OutOfRange,
                "Reached limit of {limit}"
            );
            *count = before.plus(T::from(true));
            Ok(before)
        })?;
        ctx.set_output(0, Tensor::scalar(before))
    })
}

fn var_handle(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (container, name) = names(init)?;
    let dtype = init.attrs().dtype("dtype")?;
    let shape = init.attrs().shape("shape")?;
    let is_anonymous = *name == *ANONYMOUS_VARIABLE;
    let made: OnceLock<Tensor> = OnceLock::new();
    AnyKernel::new(move |ctx| {
        if let Some(handle) = made.get() {
            return ctx.set_output(0, handle.clone());
        }
        let default = ctx.resources().default_container();
        let owned = is_anonymous.then(|| -> Arc<dyn Resource> {
            let budget = ctx.step().state_budget().clone();
            Arc::new(Variable::new(name.clone(), dtype, shape.clone(), budget))
        });
        let handle = ResourceHandle {
            device: ctx.step().device().description().name.to_string().into(),
            container: if container.is_empty() { default.clone() } else { container.clone() },
            name: name.clone(),
            dtypes_and_shapes: [(dtype, shape.clone())].into(),
            owned,
        };
        let handle = Tensor::from_resources(Shape::scalar(), vec![handle])?;
        if !is_anonymous {
            // Concurrent first steps create equal handles.
            let _ = made.set(handle.clone());
        }
        ctx.set_output(0, handle)
    })
}

fn is_initialized(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let found: Result<Arc<Variable>> = ctx.resources().resolve(handle(ctx, 0)?);
        let is_initialized = found.is_ok_and(|variable| variable.is_initialized());
        ctx.set_output(0, Tensor::scalar(is_initialized))
    })
}

fn read_variable(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("dtype")?;
    AnyKernel::new(move |ctx| {
        let handle = handle(ctx, 0)?;
        let found: Result<Arc<Variable>> = ctx.resources().resolve(handle);
        let variable = match found {
            Ok(variable) => variable,
            Err(e) if e.code() == Code::NotFound => return Err(missing(handle)),
            Err(e) => return Err(e),
        };
        let value = variable.snapshot().ok_or_else(|| missing(handle))?;
        ensure!(
            value.dtype() == dtype,
            InvalidArgument,
            "Trying to read variable with wrong dtype. Expected {dtype} got {}",
            value.dtype()
        );
        ctx.set_output(0, value)
    })
}

/// Clients search for this text to detect missing initialization.
fn missing(handle: &ResourceHandle) -> Error {
    let ResourceHandle { container, name, .. } = handle;
    err!(
        FailedPrecondition,
        "Could not find variable {name}. This could mean that the variable has been deleted. In TF1, it can also mean the variable is uninitialized. Debug info: container={container}, status error message=Resource {container}/{name}/N10tensorflow3VarE does not exist."
    )
}

fn assign_variable(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("dtype")?;
    let validate_shape = init.attrs().bool("validate_shape")?;
    AnyKernel::new(move |ctx| {
        let value = ctx.take_input(1)?;
        let variable = find_or_create(ctx, handle(ctx, 0)?, dtype)?;
        ensure!(
            variable.dtype() == dtype,
            InvalidArgument,
            "Trying to assign variable with wrong dtype. Expected {} got {dtype}",
            variable.dtype()
        );
        if let (true, Some(current)) = (validate_shape, variable.snapshot()) {
            ensure!(
                current.shape() == value.shape(),
                InvalidArgument,
                "Trying to assign to variable with tensor with wrong shape. Expected {} got {}",
                current.shape(),
                value.shape()
            );
        }
        replace(ctx, &variable, value)
    })
}

/// The variable of a handle, created by the first assignment.
fn find_or_create(
    ctx: &KernelContext<'_>,
    handle: &ResourceHandle,
    dtype: DType,
) -> Result<Arc<Variable>> {
    if handle.owned.is_some() {
        return ctx.resources().resolve(handle);
    }
    ctx.resources().find_or_create(handle.container.clone(), handle.name.clone(), || {
        let declared = handle.dtypes_and_shapes.first();
        let shape = declared.map_or(PartialShape::UNKNOWN, |(_, shape)| shape.clone());
        let budget = ctx.step().state_budget().clone();
        Ok(Variable::new(handle.name.clone(), dtype, shape, budget))
    })
}

fn destroy_resource(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let ignore_lookup_error = init.attrs().bool("ignore_lookup_error")?;
    AnyKernel::new(move |ctx| match ctx.resources().remove_handle(handle(ctx, 0)?) {
        Err(e) if ignore_lookup_error && e.code() == Code::NotFound => Ok(()),
        other => other,
    })
}

fn variable_shape(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = variable_input(ctx, 0)?.with_value(|value| Ok(value.shape().clone()))?;
        let sizes = shape.to_i64();
        let output = if ctx.output_dtype(0)? == DType::Int64 {
            Tensor::vector(&sizes)?
        } else {
            let narrow: Vec<i32> = sizes
                .iter()
                .map(|&size| {
                    i32::try_from(size).map_err(|_| {
                        err!(InvalidArgument, "size {size} of the variable exceeds 32 bits")
                    })
                })
                .collect::<Result<_>>()?;
            Tensor::vector(&narrow)?
        };
        ctx.set_output(0, output)
    })
}
