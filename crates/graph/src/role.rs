//! Roles: what an op means to the passes that rewrite graphs and to the executor.

/// The role of an op beyond its kernel, as its definition states it
/// ([`OpDef::role`](crate::OpDef)). Passes and the executor match on the role and never compare
/// names. Forms of one op that differ only in their signature (`Ref` forms, host forms, stateless
/// forms) share a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// An op with a kernel and no special meaning.
    #[default]
    Ordinary,
    /// `NoOp`: orders other nodes by its control edges.
    NoOp,
    /// `Const`: its output is the attr `value`.
    Const,
    /// `Identity`: its output is its input.
    Identity,
    /// `IdentityN`, `StopGradient`, `CheckNumerics` and their like: a kernel runs, which sets each output
    /// to the input of the same position, unchanged.
    Forward,
    /// `Placeholder`: fails unless the step feeds it.
    Placeholder,
    /// `PlaceholderWithDefault`: its output is its input unless the step feeds it.
    PlaceholderWithDefault,
    /// `VariableV2`: a reference to a variable.
    Variable,
    /// `VarHandleOp`: a resource handle of a variable.
    VarHandle,
    /// `_Arg`: an argument of a function body.
    Arg,
    /// `_Retval`: a result of a function body.
    Retval,
    /// `_Send`: sends its input to the rendezvous, or to the client as a fetch.
    Send,
    /// `_Recv`: receives its output from the rendezvous, or from the client as a feed.
    Recv,
    /// `Switch`: its second input selects which output is alive.
    Switch,
    /// `Merge`: forwards the first input that is alive.
    Merge,
    /// `Enter`: forwards its input to the first iteration of a frame.
    Enter,
    /// `Exit`: forwards its input out of a frame.
    Exit,
    /// `NextIteration`: forwards its input to the frame's next iteration.
    NextIteration,
    /// `LoopCond`: the condition of a loop; forwards its input.
    LoopCond,
    /// `ControlTrigger`: runs even if its inputs are dead.
    ControlTrigger,
    /// The op is a function of the graph's library under its own name.
    Function,
    /// `PartitionedCall`: calls the function in the attr `f`.
    PartitionedCall,
    /// `RemoteCall`: calls the function in the attr `f` on the device that its first input names.
    RemoteCall,
    /// `SymbolicGradient`: calls the gradient of the function in the attr `f`.
    SymbolicGradient,
    /// `If`: calls `then_branch` or `else_branch`.
    If,
    /// `Case`: calls one of `branches`.
    Case,
    /// `While`: calls `body` as long as `cond` returns true.
    While,
    /// `For`: calls `body` for each number of a range.
    For,
}

impl Role {
    /// Whether the op is one of the control flow ops that represent branches and loops as dataflow.
    pub fn is_control_flow(self) -> bool {
        use Role::*;
        matches!(self, Switch | Merge | Enter | Exit | NextIteration | LoopCond | ControlTrigger)
    }

    /// Whether the op calls functions: its effects are those of the functions.
    pub fn is_call(self) -> bool {
        use Role::*;
        matches!(self, Function | PartitionedCall | RemoteCall | SymbolicGradient | For)
            || self.is_branch()
            || self == While
    }

    /// Whether the op calls one of several functions.
    pub fn is_branch(self) -> bool {
        matches!(self, Role::If | Role::Case)
    }

    /// Whether the op moves a tensor between devices, or between the client and a device.
    pub fn is_transfer(self) -> bool {
        matches!(self, Role::Send | Role::Recv)
    }

    /// Whether the op is a variable: its state outlives the step.
    pub fn is_variable(self) -> bool {
        matches!(self, Role::Variable | Role::VarHandle)
    }

    /// Whether the executor runs the op itself, on every device, without a kernel.
    pub fn is_interpreted(self) -> bool {
        use Role::*;
        match self {
            Ordinary | Forward | Placeholder | PlaceholderWithDefault | Variable | VarHandle => {
                false
            }
            NoOp | Const | Identity | Arg | Retval | Send | Recv => true,
            Switch | Merge | Enter | Exit | NextIteration | LoopCond | ControlTrigger => true,
            Function | PartitionedCall | RemoteCall | SymbolicGradient => true,
            If | Case | While | For => true,
        }
    }
}
