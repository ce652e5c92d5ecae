//! Pruning of a GraphDef to the nodes and functions that some nodes need.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_graph::{TensorName, callees};
use thalweg_proto as pb;

/// Removes the nodes that none of `roots` (names of nodes or tensors) needs, and the functions that
/// no remaining node calls.
pub(crate) fn prune(mut graph: pb::GraphDef, roots: &[String]) -> pb::GraphDef {
    let index: BTreeMap<&str, usize> =
        graph.node.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let mut is_needed = vec![false; graph.node.len()];
    let find = |name: &str| index.get(node_of(name)).copied();
    let mut pending: Vec<usize> = roots.iter().filter_map(|r| find(r)).collect();
    while let Some(i) = pending.pop() {
        if !std::mem::replace(&mut is_needed[i], true) {
            pending.extend(graph.node[i].input.iter().filter_map(|input| find(input)));
        }
    }
    let mut kept = is_needed.iter();
    graph.node.retain(|_| kept.next() == Some(&true));
    keep_functions(&mut graph);
    graph
}

fn node_of(name: &str) -> &str {
    TensorName::parse(name).map_or(name, |tensor| tensor.node)
}

fn keep_functions(graph: &mut pb::GraphDef) {
    let Some(library) = &mut graph.library else { return };
    let bodies: BTreeMap<&str, &pb::FunctionDef> = library
        .function
        .iter()
        .filter_map(|f| Some((f.signature.as_ref()?.name.as_str(), f)))
        .collect();
    let mut needed: BTreeSet<String> = BTreeSet::new();
    let mut pending: Vec<String> = graph.node.iter().flat_map(callees).map(str::to_owned).collect();
    while let Some(name) = pending.pop() {
        let Some(body) = bodies.get(name.as_str()) else { continue };
        if needed.insert(name) {
            pending.extend(body.node_def.iter().flat_map(callees).map(str::to_owned));
        }
    }
    let is_needed =
        |f: &pb::FunctionDef| f.signature.as_ref().is_some_and(|s| needed.contains(&s.name));
    library.function.retain(is_needed);
    library.gradient.retain(|g| needed.contains(&g.function_name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_root_needs_is_dropped() {
        let text = r#"
            node { name: "x" op: "Placeholder" }
            node { name: "y" op: "Call" input: "x:0" input: "^z" attr { key: "f" value { func { name: "F" } } } }
            node { name: "z" op: "NoOp" }
            node { name: "saver" op: "SaveV2" input: "x" }
            library {
              function { signature { name: "F" } node_def { name: "n" op: "G" } }
              function { signature { name: "G" } }
              function { signature { name: "H" } }
            }"#;
        let graph = pb::text::decode("tensorflow.GraphDef", text).unwrap();
        let kept = prune(graph, &["y:0".to_owned(), "absent".to_owned()]);
        let names: Vec<&str> = kept.node.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["x", "y", "z"]);
        let functions = kept.library.unwrap().function;
        let functions: Vec<String> =
            functions.into_iter().map(|f| f.signature.unwrap().name).collect();
        assert_eq!(functions, ["F", "G"]);
    }
}
