//! Definitions of the control flow ops. The executor interprets them.
//!
//! `Switch` forwards its input to one of its outputs, the others are dead; `Merge` forwards the
//! first input that is alive. `Enter` forwards a value to the first iteration of a loop's frame,
//! `NextIteration` to the frame's next iteration, `Exit` to the parent frame.

use thalweg_tensor::{PartialShape, Result};

use crate::shape::{self, ShapeContext};
use crate::structural::STRUCTURAL;
use crate::{OpDef, Role};

pub(crate) const SWITCH: OpDef =
    OpDef { name: "Switch", shape: switch_shape, role: Role::Switch, ..STRUCTURAL };

pub(crate) const REF_SWITCH: OpDef = OpDef { name: "RefSwitch", ..SWITCH };

pub(crate) const SWITCH_N: OpDef = OpDef { name: "_SwitchN", ..SWITCH };

fn switch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "the index of the output to take", 0)?;
    for i in 0..c.num_outputs() {
        c.set_output(i, c.input(0).clone());
    }
    Ok(())
}

pub(crate) const MERGE: OpDef =
    OpDef { name: "Merge", shape: merge_shape, role: Role::Merge, ..STRUCTURAL };

pub(crate) const REF_MERGE: OpDef = OpDef { name: "RefMerge", ..MERGE };

/// The most specific shape that all inputs have, since any of them may be forwarded.
fn merge_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs = (1..c.num_inputs()).map(|i| c.input(i));
    let common = inputs.fold(c.input(0).clone(), |common, other| shape::common(&common, other));
    c.set_output(0, common);
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

pub(crate) const ENTER: OpDef =
    OpDef { name: "Enter", shape: shape::unchanged, role: Role::Enter, ..STRUCTURAL };

pub(crate) const REF_ENTER: OpDef = OpDef { name: "RefEnter", ..ENTER };

pub(crate) const EXIT: OpDef =
    OpDef { name: "Exit", shape: shape::unchanged, role: Role::Exit, ..STRUCTURAL };

pub(crate) const REF_EXIT: OpDef = OpDef { name: "RefExit", ..EXIT };

pub(crate) const NEXT_ITERATION: OpDef =
    OpDef { name: "NextIteration", role: Role::NextIteration, ..EXIT };

pub(crate) const REF_NEXT_ITERATION: OpDef =
    OpDef { name: "RefNextIteration", role: Role::NextIteration, ..REF_EXIT };

pub(crate) const LOOP_COND: OpDef =
    OpDef { name: "LoopCond", shape: loop_cond_shape, role: Role::LoopCond, ..STRUCTURAL };

fn loop_cond_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, "a loop's condition", 0)?;
    c.set_output(0, shape);
    Ok(())
}

pub(crate) const CONTROL_TRIGGER: OpDef =
    OpDef { name: "ControlTrigger", role: Role::ControlTrigger, ..STRUCTURAL };
