//! The graphs among the recorded cases, and graphs written as text.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use prost::Message;
use thalweg_graph::{Graph, OpRegistry};
use thalweg_proto as pb;
use thalweg_tensor::Result;

/// Ops of this workspace over TensorFlow's interfaces.
pub(crate) fn registry() -> Arc<OpRegistry> {
    thalweg_ops::op_registry(thalweg_ops::FAMILIES).unwrap()
}

/// Name and graph of every recorded case.
pub(crate) fn recorded_graphs() -> Vec<(String, pb::GraphDef)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "gz"));
    files.sort();
    let mut graphs = Vec::new();
    for file in files {
        let mut text = String::new();
        let file = std::fs::File::open(file).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        for line in text.lines() {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(case["graph"].as_str().unwrap())
                .unwrap();
            let def = pb::GraphDef::decode(&bytes[..]).unwrap();
            graphs.push((case["id"].as_str().unwrap().to_owned(), def));
        }
    }
    assert!(!graphs.is_empty(), "testdata/golden holds no recorded cases");
    graphs
}

/// A GraphDef in text format.
pub(crate) fn text_graph(text: &str) -> pb::GraphDef {
    pb::text::decode("tensorflow.GraphDef", text).unwrap()
}

/// Imports a GraphDef in text format.
pub(crate) fn import(text: &str) -> Result<Graph> {
    Graph::from_def(registry(), text_graph(text))
}
