//! Loads a GraphDef that TensorFlow wrote and runs it:
//! `cargo run --example graph_file [GRAPH.pb FETCH]`.
//!
//! It prints the number of nodes and functions, and the fetched tensor: `[3.0, 0.0, 2.5]` for the
//! default graph.

use prost::Message;
use thalweg::graph::Graph;
use thalweg::proto::GraphDef;
use thalweg::runtime::Session;
use thalweg::{Registry, Tensor, session_options};

const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/graphs/functions.pb");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (path, fetch) = (args.next(), args.next());
    let def = GraphDef::decode(&std::fs::read(path.as_deref().unwrap_or(FUNCTIONS))?[..])?;
    let Registry { ops, kernels } = Registry::built_in();
    let graph = Graph::from_def(ops, def)?;
    println!("{} nodes, {} functions", graph.len(), graph.library().names().count());
    let names: Vec<String> = graph.nodes().iter().map(|node| node.name.to_string()).collect();
    let fetch = fetch.as_ref().unwrap_or(&names[names.len() - 1]);

    let session = Session::new(graph, kernels, session_options())?;
    // Any tensor can be fed; the default graph begins with a placeholder of three floats.
    let x = (names[0].as_str(), Tensor::vector(&[1.0f32, -2.0, 0.5])?);
    let feeds = if path.is_none() { vec![x] } else { Vec::new() };
    let results = session.run(&feeds, &[fetch], &[])?;
    println!("{fetch}: {:?}", results[0]);
    assert!(path.is_some() || results[0].as_slice::<f32>()? == [3.0, 0.0, 2.5]);
    Ok(())
}
