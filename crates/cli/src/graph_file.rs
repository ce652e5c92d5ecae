//! GraphDef files, binary or text.

use std::path::Path;

use thalweg_proto::{self as pb, Codec};
use thalweg_runtime::memory_limit_bytes;
use thalweg_tensor::{Bytes, Result, bail, ensure, err};

use crate::files;

/// Reads a GraphDef, binary or text.
pub(crate) fn read(path: &Path) -> Result<pb::GraphDef> {
    let bytes = files::read(path, memory_limit_bytes())?;
    decode(&bytes).map_err(|e| e.map_message(|m| format!("{}: {m}", path.display())))
}

/// Reads the graphs of a GraphDef, a MetaGraphDef or a SavedModel.
pub(crate) fn read_any(path: &Path) -> Result<Vec<pb::GraphDef>> {
    let bytes = files::read(path, memory_limit_bytes())?;
    if let Some((_, graphs)) = other_kind(&bytes) {
        return Ok(graphs);
    }
    if let Ok(text) = std::str::from_utf8(&bytes)
        && let Ok(model) = pb::text::decode::<pb::SavedModel>("tensorflow.SavedModel", text)
    {
        return Ok(model.meta_graphs.into_iter().filter_map(|m| m.graph_def).collect());
    }
    let graph =
        decode(&bytes).map_err(|e| e.map_message(|m| format!("{}: {m}", path.display())))?;
    Ok(vec![graph])
}

/// Decodes a GraphDef.
pub(crate) fn decode(bytes: &Bytes) -> Result<pb::GraphDef> {
    ensure!(
        !bytes.is_empty(),
        InvalidArgument,
        "the file is empty; a GraphDef was expected, as tf.io.write_graph writes it"
    );
    let binary = match pb::GraphDef::decode_from(&mut bytes.clone()) {
        Ok(graph) if !graph.node.is_empty() => return Ok(graph),
        other => other,
    };
    if let Some((kind, _)) = other_kind(bytes) {
        let instead = match kind {
            "SavedModel" => "to run it, name the folder that the file lies in",
            _ => "a GraphDef was expected, as tf.io.write_graph writes it",
        };
        bail!(InvalidArgument, "the file is a {kind}; {instead}");
    }
    let binary = match binary {
        Ok(graph) => return checked(graph),
        Err(e) => e,
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => match pb::text::decode::<pb::GraphDef>("tensorflow.GraphDef", text) {
            Ok(graph) => return checked(graph),
            Err(e) => e.to_string(),
        },
        Err(e) => format!("byte {} is not UTF-8", e.valid_up_to()),
    };
    Err(err!(
        InvalidArgument,
        "the file is not a GraphDef, as tf.io.write_graph writes it: read as binary: {binary}; \
         read as text: {text}"
    ))
}

fn checked(graph: pb::GraphDef) -> Result<pb::GraphDef> {
    ensure!(!graph.node.is_empty(), InvalidArgument, "the file holds a GraphDef without nodes");
    Ok(graph)
}

/// Detects MetaGraphDef and SavedModel files: the kind, and the graphs in it.
fn other_kind(bytes: &Bytes) -> Option<(&'static str, Vec<pb::GraphDef>)> {
    let graphs = |metas: Vec<pb::MetaGraphDef>| -> Vec<pb::GraphDef> {
        metas.into_iter().filter_map(|m| m.graph_def).filter(|g| !g.node.is_empty()).collect()
    };
    if let Ok(model) = pb::SavedModel::decode_from(&mut bytes.clone())
        && model.saved_model_schema_version > 0
        && !model.meta_graphs.is_empty()
    {
        return Some(("SavedModel", graphs(model.meta_graphs)));
    }
    let meta = graphs(vec![pb::MetaGraphDef::decode_from(&mut bytes.clone()).ok()?]);
    (!meta.is_empty()).then_some(("MetaGraphDef", meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        decode(&Bytes::copy_from_slice(bytes)).unwrap_err().to_string()
    }

    #[test]
    fn both_formats_are_read() {
        let text = "node { name: 'x' op: 'NoOp' } # a comment";
        let graph = decode(&Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(graph.node[0].name, "x");
        assert_eq!(decode(&graph.to_bytes().into()).unwrap(), graph);
    }

    #[test]
    fn other_files_are_named() {
        assert!(message(b"").contains("the file is empty"));
        assert!(message(b"hello").contains("read as text: line 1"), "{}", message(b"hello"));
        assert!(message(b"\xff\xfe").contains("byte 0 is not UTF-8"));
        assert!(message(b"versions { producer: 1 }").contains("without nodes"));
        let node = vec![pb::NodeDef { name: "x".into(), ..Default::default() }];
        let graph_def = Some(pb::GraphDef { node, ..Default::default() });
        let meta = pb::MetaGraphDef { graph_def, ..Default::default() };
        assert!(message(&meta.to_bytes()).contains("MetaGraphDef"));
        let model = pb::SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta] };
        assert!(message(&model.to_bytes()).contains("SavedModel"));
    }
}
