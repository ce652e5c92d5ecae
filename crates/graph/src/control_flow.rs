//! Definitions of the control flow ops. The executor interprets them.
//!
//! `Switch` forwards its input to one of its outputs, the others are dead; `Merge` forwards the first
//! input that is alive. `Enter` forwards a value into the first iteration of a loop's frame,
//! `NextIteration` to the frame's next iteration, `Exit` to the parent frame.

use thalweg_tensor::{PartialShape, Result};

use crate::shape::{self, ShapeContext};
use crate::{Flag, OpDef, Role};

pub(crate) const SWITCH: OpDef = OpDef {
    name: "Switch",
    role: Role::Switch,
    inputs: &["data: T", "pred: bool"],
    outputs: &["output_false: T", "output_true: T"],
    attrs: &["T: type"],
    shape: switch_shape,
    ..OpDef::DEFAULT
};

pub(crate) const REF_SWITCH: OpDef = OpDef {
    name: "RefSwitch",
    inputs: &["data: Ref(T)", "pred: bool"],
    outputs: &["output_false: Ref(T)", "output_true: Ref(T)"],
    flags: &[Flag::AllowsUninitializedInput],
    ..SWITCH
};

pub(crate) const SWITCH_N: OpDef = OpDef {
    name: "_SwitchN",
    inputs: &["data: T", "output_index: int32"],
    outputs: &["outputs: num_outs * T"],
    attrs: &["num_outs: int >= 1", "T: type"],
    ..SWITCH
};

fn switch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "the index of the output to take", 0)?;
    for i in 0..c.num_outputs() {
        c.set_output(i, c.input(0).clone());
    }
    Ok(())
}

pub(crate) const MERGE: OpDef = OpDef {
    name: "Merge",
    role: Role::Merge,
    inputs: &["inputs: N * T"],
    outputs: &["output: T", "value_index: int32"],
    attrs: &["T: type", "N: int >= 1"],
    shape: merge_shape,
    ..OpDef::DEFAULT
};

pub(crate) const REF_MERGE: OpDef = OpDef {
    name: "RefMerge",
    inputs: &["inputs: Ref(N * T)"],
    outputs: &["output: Ref(T)", "value_index: int32"],
    ..MERGE
};

/// The most specific shape that all inputs have: any of them may be forwarded.
fn merge_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs = (1..c.num_inputs()).map(|i| c.input(i));
    let common = inputs.fold(c.input(0).clone(), |common, other| shape::common(&common, other));
    c.set_output(0, common);
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

pub(crate) const ENTER: OpDef = OpDef {
    name: "Enter",
    role: Role::Enter,
    inputs: &["data: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: type",
        "frame_name: string",
        "is_constant: bool = false",
        "parallel_iterations: int = 10",
    ],
    shape: shape::unchanged,
    ..OpDef::DEFAULT
};

pub(crate) const REF_ENTER: OpDef =
    OpDef { name: "RefEnter", inputs: &["data: Ref(T)"], outputs: &["output: Ref(T)"], ..ENTER };

pub(crate) const EXIT: OpDef = OpDef {
    name: "Exit",
    role: Role::Exit,
    inputs: &["data: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: shape::unchanged,
    ..OpDef::DEFAULT
};

pub(crate) const REF_EXIT: OpDef =
    OpDef { name: "RefExit", inputs: &["data: Ref(T)"], outputs: &["output: Ref(T)"], ..EXIT };

pub(crate) const NEXT_ITERATION: OpDef =
    OpDef { name: "NextIteration", role: Role::NextIteration, ..EXIT };

pub(crate) const REF_NEXT_ITERATION: OpDef =
    OpDef { name: "RefNextIteration", role: Role::NextIteration, ..REF_EXIT };

pub(crate) const LOOP_COND: OpDef = OpDef {
    name: "LoopCond",
    role: Role::LoopCond,
    inputs: &["input: bool"],
    outputs: &["output: bool"],
    shape: loop_cond_shape,
    ..OpDef::DEFAULT
};

fn loop_cond_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, "a loop's condition", 0)?;
    c.set_output(0, shape);
    Ok(())
}

pub(crate) const CONTROL_TRIGGER: OpDef =
    OpDef { name: "ControlTrigger", role: Role::ControlTrigger, ..OpDef::DEFAULT };
