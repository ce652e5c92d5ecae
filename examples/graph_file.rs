//! Loads a GraphDef that TensorFlow wrote and runs it:
//! `cargo run --example graph_file [GRAPH.pb FETCH]`.
//!
//! It prints the number of nodes and functions, and the fetched tensor: `[3.0, 0.0, 2.5]` for the
//! default graph.

use prost::Message;
use thalweg::prelude::*;
use thalweg::proto::GraphDef;
use thalweg::registry;

const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/graphs/functions.pb");

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (path, fetch) = match &args[..] {
        [path, fetch] => (path.as_str(), fetch.as_str()),
        _ => (FUNCTIONS, "y"),
    };
    let def = GraphDef::decode(&std::fs::read(path)?[..])?;
    let graph = Graph::from_def(registry().ops.clone(), def)?;
    println!("{path}: {} nodes, {} functions", graph.len(), graph.library().names().count());

    let session = Session::new(graph, registry().kernels.clone(), SessionOptions::default())?;
    // Any tensor can be fed; this graph has a placeholder of three floats.
    let feeds = match session.with_graph(|g| g.find("x").is_some()) {
        true => vec![("x", Tensor::vector(&[1.0f32, -2.0, 0.5])?)],
        false => Vec::new(),
    };
    let results = session.run(&feeds, &[fetch], &[])?;
    println!("{fetch}: {:?}", results[0]);
    if args.is_empty() {
        assert_eq!(results[0].as_slice::<f32>()?, [3.0, 0.0, 2.5]);
    }
    Ok(())
}
