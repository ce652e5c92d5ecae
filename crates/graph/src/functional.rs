//! Definitions of the ops that call functions of the graph's library: calls, branches, loops,
//! symbolic gradients.

use thalweg_tensor::{PartialShape, Result, ensure};

use crate::shape::ShapeContext;
use crate::structural::STRUCTURAL;
use crate::{OpDef, Role, functional_gradient, loop_gradient};

pub(crate) const PARTITIONED_CALL: OpDef =
    OpDef { name: "PartitionedCall", role: Role::PartitionedCall, ..STRUCTURAL }
        .with_gradient(functional_gradient::call);

pub(crate) const STATEFUL_PARTITIONED_CALL: OpDef =
    OpDef { name: "StatefulPartitionedCall", ..PARTITIONED_CALL };

pub(crate) const REMOTE_CALL: OpDef =
    OpDef { name: "RemoteCall", role: Role::RemoteCall, ..STRUCTURAL };

pub(crate) const SYMBOLIC_GRADIENT: OpDef = OpDef {
    name: "SymbolicGradient",
    shape: gradient_shapes,
    role: Role::SymbolicGradient,
    ..STRUCTURAL
}
.with_gradient(functional_gradient::symbolic_gradient);

/// The adjoint of an input has the shape of the input.
fn gradient_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    ensure!(
        c.num_inputs() >= c.num_outputs(),
        InvalidArgument,
        "len(inputs) < len(outputs): {} inputs cannot have {} adjoints",
        c.num_inputs(),
        c.num_outputs()
    );
    for i in 0..c.num_outputs() {
        c.set_output(i, c.input(i).clone());
    }
    Ok(())
}

pub(crate) const STATELESS_IF: OpDef =
    OpDef { name: "StatelessIf", shape: branch_shapes, role: Role::If, ..STRUCTURAL }
        .with_gradient(functional_gradient::branch);

pub(crate) const IF: OpDef = OpDef { name: "If", ..STATELESS_IF };

pub(crate) const INTERNAL_IF: OpDef = OpDef { name: "_If", role: Role::If, ..STRUCTURAL };

/// `If` under the name that XLA's bridge has for it.
pub(crate) const XLA_IF: OpDef = OpDef { name: "XlaIf", role: Role::If, ..STRUCTURAL };

pub(crate) const STATELESS_CASE: OpDef =
    OpDef { name: "StatelessCase", shape: branch_shapes, role: Role::Case, ..STRUCTURAL }
        .with_gradient(functional_gradient::branch);

pub(crate) const CASE: OpDef = OpDef { name: "Case", ..STATELESS_CASE };

pub(crate) const STATELESS_WHILE: OpDef =
    OpDef { name: "StatelessWhile", shape: loop_shapes, role: Role::While, ..STRUCTURAL }
        .with_gradient(loop_gradient::while_loop);

pub(crate) const WHILE: OpDef = OpDef { name: "While", ..STATELESS_WHILE };

pub(crate) const INTERNAL_WHILE: OpDef =
    OpDef { name: "_While", shape: unchanged_shapes, role: Role::While, ..STRUCTURAL };

/// `While` under the name that XLA's bridge has for it.
pub(crate) const XLA_WHILE: OpDef =
    OpDef { name: "XlaWhile", shape: unchanged_shapes, role: Role::While, ..STRUCTURAL };

pub(crate) const FOR: OpDef =
    OpDef { name: "For", role: Role::For, ..STRUCTURAL }.with_gradient(loop_gradient::for_loop);

/// The attr `output_shapes`, if it is not empty.
fn declared_shapes(c: &ShapeContext<'_>) -> Result<Option<Vec<PartialShape>>> {
    let shapes = c.attrs().shapes("output_shapes")?;
    if shapes.is_empty() {
        return Ok(None);
    }
    ensure!(
        shapes.len() == c.num_outputs(),
        InvalidArgument,
        "output_shapes must be as many as the outputs: {} vs. {}",
        shapes.len(),
        c.num_outputs()
    );
    Ok(Some(shapes))
}

fn branch_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    for (i, shape) in declared_shapes(c)?.into_iter().flatten().enumerate() {
        c.set_output(i, shape);
    }
    Ok(())
}

/// Without `output_shapes` a loop variable keeps the shape of its initial value, as in TensorFlow.
fn loop_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    match declared_shapes(c)? {
        Some(shapes) => {
            shapes.into_iter().enumerate().for_each(|(i, shape)| c.set_output(i, shape));
            Ok(())
        }
        None => unchanged_shapes(c),
    }
}

fn unchanged_shapes(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 0..c.num_outputs() {
        c.set_output(i, c.input(i).clone());
    }
    Ok(())
}
