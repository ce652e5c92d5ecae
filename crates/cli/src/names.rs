//! Lookup of tensors and nodes by name, with suggestions for misspelt names.

use std::io::{self, Write};

use thalweg_graph::{Endpoint, Graph, Node, NodeId, Role, TensorName};
use thalweg_tensor::{Result, bail, ensure, err};

/// The maximum number of suggestions for an unknown name.
const SUGGESTIONS_MAX: usize = 3;
/// The maximum number of names in a listing, per kind.
const LISTED_MAX: usize = 20;

/// The tensor `name`, with or without output index.
pub(crate) fn tensor(graph: &Graph, name: &str) -> Result<Endpoint> {
    let parsed = TensorName::parse(name)?;
    ensure!(!parsed.is_control, InvalidArgument, "{name:?} is not the name of a tensor");
    let id = node(graph, parsed.node)?;
    let outputs = graph.node(id).outputs.len();
    if parsed.index as usize >= outputs {
        bail!(
            InvalidArgument,
            "tensor '{name}' does not exist: node '{}' ({}) has {}",
            parsed.node,
            graph.node(id).op.name,
            match outputs {
                0 => "no outputs; --target runs it".to_owned(),
                1 => "one output".to_owned(),
                n => format!("{n} outputs"),
            }
        );
    }
    Ok(Endpoint { node: id, index: parsed.index })
}

/// The node `name`.
pub(crate) fn node(graph: &Graph, name: &str) -> Result<NodeId> {
    graph.find(name).ok_or_else(|| {
        let similar: Vec<String> = similar(graph, name).iter().map(|n| format!("'{n}'")).collect();
        let hint = match &similar[..] {
            [] => "without --fetch and --target, its inputs and outputs are listed".to_owned(),
            [one] => format!("did you mean {one}?"),
            [first @ .., last] => format!("did you mean {} or {last}?", first.join(", ")),
        };
        err!(NotFound, "the graph has no node '{name}'; {hint}")
    })
}

/// Names similar to `name`, best first.
fn similar<'a>(graph: &'a Graph, name: &str) -> Vec<&'a str> {
    let wanted = name.to_ascii_lowercase();
    let allowed = (wanted.len() / 3).clamp(1, 5);
    let mut found: Vec<(usize, &str)> = Vec::new();
    for node in graph.nodes() {
        let candidate = node.name.to_ascii_lowercase();
        let last_part = candidate.rsplit('/').next().unwrap_or_default();
        let distance = if last_part == wanted {
            1
        } else if candidate.len().abs_diff(wanted.len()) <= allowed {
            edit_distance(candidate.as_bytes(), wanted.as_bytes())
        } else {
            usize::MAX
        };
        if distance <= allowed {
            found.push((distance, &node.name));
        }
    }
    found.sort();
    found.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| name).collect()
}

/// The Levenshtein distance.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Lists the placeholders, outputs and targets of a graph.
pub(crate) fn list(graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
    let is_read = graph.has_successor();
    let is_input = |n: &Node| matches!(n.role(), Role::Placeholder | Role::PlaceholderWithDefault);
    let ends = graph.ids().filter(|id| !is_read[id.index()]).map(|id| graph.node(id));
    let (fetchable, targets): (Vec<&Node>, Vec<&Node>) =
        ends.filter(|n| !is_input(n)).partition(|n| !n.outputs.is_empty());
    let inputs: Vec<&Node> = graph.nodes().iter().filter(|n| is_input(n)).collect();
    section(out, "inputs, to feed", &inputs)?;
    section(out, "outputs, to fetch", &fetchable)?;
    section(out, "nodes to run for their effect", &targets)
}

fn section(out: &mut dyn Write, title: &str, nodes: &[&Node]) -> io::Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    writeln!(out, "{title}:")?;
    let width = nodes.iter().take(LISTED_MAX).map(|n| n.name.len()).max().unwrap_or(0);
    for node in nodes.iter().take(LISTED_MAX) {
        let what = match node.outputs.first() {
            Some(output) => format!("{} {}", output.dtype, output.shape),
            None => node.op.name.clone(),
        };
        writeln!(out, "  {:width$}  {what}", node.name)?;
    }
    if nodes.len() > LISTED_MAX {
        writeln!(out, "  and {} more", nodes.len() - LISTED_MAX)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_proto as pb;

    fn graph(names: &[&str]) -> Graph {
        let node = |name: &&str| pb::NodeDef {
            name: (*name).to_owned(),
            op: "NoOp".to_owned(),
            ..Default::default()
        };
        let def = pb::GraphDef { node: names.iter().map(node).collect(), ..Default::default() };
        Graph::from_def(crate::Registry::with_families(&[]).unwrap().ops, def).unwrap()
    }

    #[test]
    fn near_names_are_offered() {
        let graph = graph(&["dense/MatMul", "dense/BiasAdd", "Softmax", "y"]);
        for (name, expected) in [
            ("MatMul", "did you mean 'dense/MatMul'?"),
            ("sofmax", "did you mean 'Softmax'?"),
            ("dense/Biasadd", "did you mean 'dense/BiasAdd'?"),
            ("x", "did you mean 'y'?"),
            ("nothing_like_it", "without --fetch and --target"),
        ] {
            let error = node(&graph, name).unwrap_err();
            assert!(error.message().contains(expected), "{name}: {error}");
        }
        let error = tensor(&graph, "y:0").unwrap_err();
        assert!(error.message().contains("no outputs"), "{error}");
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance(b"", b"abc"), 3);
        assert_eq!(edit_distance(b"kitten", b"sitting"), 3);
        assert_eq!(edit_distance(b"same", b"same"), 0);
    }
}
