//! Roles of ops: which definitions have one, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_graph::{Role, structural};

use crate::support::registry;

const ROLES: &str = "\
Arg: _Arg
Case: Case StatelessCase
Const: Const
ControlTrigger: ControlTrigger
Enter: Enter RefEnter
Exit: Exit RefExit
For: For
Forward: CheckNumerics CheckNumericsV2 DebugGradientIdentity EnsureShape IdentityN PreventGradient Print StopGradient
Identity: Identity
If: If StatelessIf XlaIf _If
LoopCond: LoopCond
Merge: Merge RefMerge
NextIteration: NextIteration RefNextIteration
NoOp: NoOp
PartitionedCall: PartitionedCall StatefulPartitionedCall
Placeholder: Placeholder PlaceholderV2
PlaceholderWithDefault: PlaceholderWithDefault
Recv: _HostRecv _Recv
RemoteCall: RemoteCall
Retval: _Retval
Send: _HostSend _Send
Switch: RefSwitch Switch _SwitchN
SymbolicGradient: SymbolicGradient
VarHandle: VarHandleOp
Variable: Variable VariableV2
While: StatelessWhile While XlaWhile _While
";

#[test]
fn no_other_op_has_a_role() {
    let registry = registry();
    let mut roles: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for op in registry.defined().into_iter().filter(|op| op.role != Role::Ordinary) {
        roles.entry(format!("{:?}", op.role)).or_default().push(&op.name);
    }
    let lines = roles.iter().map(|(role, names)| format!("{role}: {}\n", names.join(" ")));
    assert_eq!(lines.collect::<String>(), ROLES);
}

#[test]
fn structural_ops_are_those_that_run_without_a_kernel() {
    let registry = registry();
    let interpreted: BTreeSet<&str> = registry
        .defined()
        .into_iter()
        .filter(|op| op.role.is_interpreted())
        .map(|op| op.name.as_str())
        .collect();
    let structural: BTreeSet<&str> = structural::OPS.iter().map(|def| def.name).collect();
    assert_eq!(interpreted, structural);
}
