//! Every definition here against the interfaces of TensorFlow 2.21.

use thalweg_graph::{Flag, Op};
use thalweg_ops::{FAMILIES, TENSORFLOW_INTERFACES, op_registry};

/// The parts of a definition that TensorFlow's interface has too, one a line.
fn interface(op: &Op) -> Vec<String> {
    let inputs = op.inputs.iter().map(|a| format!("input {a:?}"));
    let outputs = op.outputs.iter().map(|a| format!("output {a:?}"));
    let attrs = op.attrs.iter().map(|a| format!("attr {a:?}"));
    let mut flags: Vec<String> = op.flags.iter().map(|f: &Flag| format!("flag {f:?}")).collect();
    flags.sort();
    inputs.chain(outputs).chain(attrs).chain(flags).collect()
}

#[test]
fn every_interface_is_read() {
    let lines = TENSORFLOW_INTERFACES.lines().filter(|l| !l.starts_with('#')).count();
    assert_eq!(lines, 1908);
    let registry = op_registry(FAMILIES).unwrap();
    assert_eq!(registry.interfaces().len(), lines);
}

#[test]
fn definitions_equal_tensorflows() {
    let registry = op_registry(FAMILIES).unwrap();
    let mut differences = Vec::new();
    for op in registry.defined() {
        let Some(known) = registry.interfaces().get(&op.name) else {
            differences.push(format!("{}: TensorFlow has no such op", op.name));
            continue;
        };
        let (ours, theirs) = (interface(op), interface(known));
        for line in ours.iter().filter(|l| !theirs.contains(l)) {
            differences.push(format!("{}: only here: {line}", op.name));
        }
        for line in theirs.iter().filter(|l| !ours.contains(l)) {
            differences.push(format!("{}: only in TensorFlow: {line}", op.name));
        }
        // Equal sets in another order.
        if ours != theirs && ours.len() == theirs.len() {
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            differences.push(format!("{}: the order differs at {at:?}", op.name));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
