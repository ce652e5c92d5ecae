//! The rewriting kit: orders, reachability, dropping nodes, functions that nodes call.

use thalweg_graph::{Graph, Node, NodeId, Successors, dependencies, keep_nodes};

use crate::support::import;

/// `d` reads `b` and `c`, which read `a`; `e` comes after `b`.
fn diamond() -> Graph {
    import(
        r#"node { name: "d" op: "NoOp" input: "^b" input: "^c" }
           node { name: "b" op: "NoOp" input: "^a" }
           node { name: "e" op: "NoOp" input: "^b" }
           node { name: "a" op: "NoOp" }
           node { name: "c" op: "NoOp" input: "^a" }"#,
    )
    .unwrap()
}

fn names(graph: &Graph, ids: impl IntoIterator<Item = NodeId>) -> Vec<&str> {
    ids.into_iter().map(|id| &*graph.node(id).name).collect()
}

#[test]
fn successors_and_topological_order() {
    let graph = diamond();
    let successors = Successors::of(&graph);
    let after = |name: &str| names(&graph, successors.after(graph.find(name).unwrap()).to_vec());
    assert_eq!((after("a"), after("b"), after("d")), (vec!["b", "c"], vec!["d", "e"], vec![]));
    assert_eq!(successors.num_edges(), 5);
    assert_eq!(names(&graph, graph.topological_order()), ["a", "b", "c", "e", "d"]);
    let ends = graph.has_successor().into_iter().map(|has| !has);
    assert_eq!(ends.collect::<Vec<_>>(), [true, false, true, false, false]);
}

#[test]
fn a_cycle_and_what_follows_it_are_not_in_the_order() {
    let mut graph = diamond();
    let [a, b] = ["a", "b"].map(|name| graph.find(name).unwrap());
    graph.add_control_input(a, b);
    assert_eq!(names(&graph, graph.topological_order()), [""; 0]);
}

#[test]
fn dropped_nodes_leave_a_graph_without_gaps() {
    let graph = diamond();
    let is_kept = dependencies(graph.nodes(), graph.find("e"));
    assert_eq!(is_kept, [false, true, true, true, false]);
    let kept = Graph::from_nodes(&graph, keep_nodes(graph.nodes().to_vec(), &is_kept));
    let edges = |node: &Node| names(&kept, node.predecessors()).join(" ");
    let shown: Vec<String> =
        kept.nodes().iter().map(|node| format!("{}<-{}", node.name, edges(node))).collect();
    assert_eq!(shown, ["b<-a", "e<-b", "a<-"]);
    // A control edge from a node that is dropped goes with it.
    let without_b = keep_nodes(graph.nodes().to_vec(), &[true, false, true, true, true]);
    assert_eq!(without_b[0].control_inputs[..], [NodeId(3)]);
    assert!(without_b[1].control_inputs.is_empty());
}

#[test]
fn functions_are_reachable_through_attrs_and_under_their_own_names() {
    let graph = import(
        r#"node { name: "call" op: "PartitionedCall"
                  attr { key: "Tin" value { list { } } } attr { key: "Tout" value { list { } } }
                  attr { key: "f" value { func { name: "f" } } } }
           library {
             function { signature { name: "f" } node_def { name: "n" op: "g" } }
             function { signature { name: "g" } node_def { name: "n" op: "PartitionedCall"
                        attr { key: "f" value { func { name: "f" } } } } }
             function { signature { name: "h" } node_def { name: "n" op: "g" } }
           }"#,
    )
    .unwrap();
    let call = graph.node(graph.find("call").unwrap());
    assert_eq!(call.callees().collect::<Vec<_>>(), ["f", "PartitionedCall"]);
    let mut reached: Vec<&str> = graph
        .library()
        .reachable(call.callees())
        .map(|function| function.signature.as_ref().unwrap().name.as_str())
        .collect();
    reached.sort_unstable();
    assert_eq!(reached, ["f", "g"]);
}
