//! Definitions of the structural ops, which the executor runs without a kernel: constants,
//! arguments and results of functions, sends and receives here, calls in `functional`, control flow
//! in `control_flow`.

use thalweg_tensor::{DType, PartialShape, Result, Shape, ensure};

use crate::shape::{self, ShapeContext};
use crate::value::{PartialValue, ValueContext};
use crate::{Gradient, OpDef, Role, Work, control_flow, functional, gradient};

/// An op that the executor runs: no work of its own, not even that of the functions that it calls.
pub(crate) const STRUCTURAL: OpDef = OpDef::DEFAULT.with_work(Work::none);

const NO_OP: OpDef = OpDef { name: "NoOp", role: Role::NoOp, ..STRUCTURAL };

const CONST: OpDef = OpDef {
    name: "Const",
    shape: const_shape,
    gradient: Gradient::None,
    role: Role::Const,
    ..STRUCTURAL
};

fn const_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (value, dtype) = (c.attrs().tensor_proto("value")?, c.attrs().dtype("dtype")?);
    let given = DType::from_proto(value.dtype)?;
    ensure!(given == dtype, InvalidArgument, "value is {given}, but dtype is {dtype}");
    let shape = match &value.tensor_shape {
        Some(shape) => Shape::from_proto(shape)?,
        None => Shape::scalar(),
    };
    c.set_output(0, PartialShape::from(&shape));
    Ok(())
}

const IDENTITY: OpDef = OpDef {
    name: "Identity",
    shape: shape::unchanged,
    value: Some(first_input_value),
    gradient: Gradient::By(gradient::unchanged),
    role: Role::Identity,
    ..STRUCTURAL
};

fn first_input_value(c: &mut ValueContext<'_>) -> Option<PartialValue> {
    c.input(0)
}

const ARG: OpDef = OpDef {
    name: "_Arg",
    shape: arg_shape,
    gradient: Gradient::None,
    role: Role::Arg,
    ..STRUCTURAL
};

/// The shape that the function declares for the argument, if any.
fn arg_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let known = c.attrs().shapes("_output_shapes").unwrap_or_default();
    if let [shape] = &known[..] {
        c.set_output(0, shape.clone());
    }
    Ok(())
}

const RETVAL: OpDef = OpDef { name: "_Retval", role: Role::Retval, ..STRUCTURAL };

const SEND: OpDef = OpDef { name: "_Send", role: Role::Send, ..STRUCTURAL };

const HOST_SEND: OpDef = OpDef { name: "_HostSend", ..SEND };

const RECV: OpDef = OpDef { name: "_Recv", role: Role::Recv, ..STRUCTURAL };

const HOST_RECV: OpDef = OpDef { name: "_HostRecv", ..RECV };

/// Definitions of the structural ops.
pub static OPS: &[OpDef] = &[
    NO_OP,
    CONST,
    IDENTITY,
    ARG,
    RETVAL,
    SEND,
    RECV,
    HOST_SEND,
    HOST_RECV,
    functional::PARTITIONED_CALL,
    functional::STATEFUL_PARTITIONED_CALL,
    functional::REMOTE_CALL,
    functional::SYMBOLIC_GRADIENT,
    functional::IF,
    functional::STATELESS_IF,
    functional::INTERNAL_IF,
    functional::XLA_IF,
    functional::CASE,
    functional::STATELESS_CASE,
    functional::WHILE,
    functional::STATELESS_WHILE,
    functional::INTERNAL_WHILE,
    functional::XLA_WHILE,
    functional::FOR,
    control_flow::SWITCH,
    control_flow::REF_SWITCH,
    control_flow::SWITCH_N,
    control_flow::MERGE,
    control_flow::REF_MERGE,
    control_flow::ENTER,
    control_flow::REF_ENTER,
    control_flow::EXIT,
    control_flow::REF_EXIT,
    control_flow::NEXT_ITERATION,
    control_flow::REF_NEXT_ITERATION,
    control_flow::LOOP_COND,
    control_flow::CONTROL_TRIGGER,
];
