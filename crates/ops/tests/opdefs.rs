//! Every definition has the interface of the op in TensorFlow 2.21.

use thalweg_graph::{OpRegistry, TENSORFLOW_INTERFACES};
use thalweg_ops::{FAMILIES, op_registry};

#[test]
fn every_interface_is_read() {
    let lines: Vec<&str> = TENSORFLOW_INTERFACES.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(lines.len(), 1908);
    let registry = OpRegistry::new([]).unwrap();
    assert_eq!(registry.names().len(), lines.len());
    for line in lines {
        let fields = line.split(" |").count();
        assert_eq!(fields, 5, "name, inputs, outputs, attrs and flags: {line}");
        let name = line.split_once(" |").unwrap().0;
        let op = registry.get(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(op.name, name);
    }
}

#[test]
fn definitions_are_of_ops_of_tensorflow() {
    let registry = op_registry(FAMILIES).unwrap();
    let definitions = FAMILIES.iter().flat_map(|f| f.ops);
    let own: Vec<&str> = definitions.filter(|d| d.interface.is_some()).map(|d| d.name).collect();
    assert!(own.is_empty(), "these state an interface instead of taking TensorFlow's: {own:?}");
    assert_eq!(registry.names().len(), 1908);
    let parsed = registry.defined();
    assert!(parsed.len() > 1000 && parsed.iter().all(|op| registry.is_defined(&op.name)));
}
