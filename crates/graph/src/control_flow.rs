//! The dataflow ops of branches and loops. The runtime interprets them; here is what they look like.
//!
//! `Switch` sends its input to one of its outputs, the others are dead; `Merge` passes on the input
//! that is not. `Enter` hands a value to a loop's frame, `NextIteration` to its next iteration, `Exit`
//! back to where the loop stands.

use smallvec::SmallVec;
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

/// What all inputs have in common: any of them may be the one that comes.
fn merge_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut common = c.input(0).clone();
    for i in 1..c.num_inputs() {
        common = match (common.dims(), c.input(i).dims()) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                let dims: SmallVec<[Option<usize>; 4]> =
                    a.iter().zip(b).map(|(x, y)| x.filter(|_| x == y)).collect();
                PartialShape::new(dims)
            }
            _ => PartialShape::unknown(),
        };
    }
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
