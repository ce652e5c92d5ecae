//! Writes the graph and variables of a session as a SavedModel.

use std::collections::BTreeMap;

use thalweg_formats::saved_model::{Export, PREDICT_METHOD, SERVE_TAG, Signature, TensorSpec};
use thalweg_formats::storage::join;
use thalweg_graph::Graph;
use thalweg_plan::StepSignature;
use thalweg_tensor::{Context, Result, Tensor, err};

use crate::Session;

/// Builds a SavedModel of a session's graph and variables.
///
/// TensorFlow's loaders and servers take the result: `tf.saved_model.load`,
/// `tf.compat.v1.saved_model.load`, TensorFlow Serving. Nodes lose their devices.
pub struct SavedModelBuilder<'a> {
    session: &'a Session,
    export: Export,
}

impl<'a> SavedModelBuilder<'a> {
    /// A builder for the session's graph as it is now, tagged `serve`.
    pub fn new(session: &'a Session) -> SavedModelBuilder<'a> {
        let export = Export {
            graph: session.with_graph(Graph::to_def),
            tags: [SERVE_TAG.to_owned()].into(),
            ..Default::default()
        };
        SavedModelBuilder { session, export }
    }

    /// Replaces the tags.
    pub fn tags(mut self, tags: &[&str]) -> Self {
        self.export.tags = tags.iter().map(|&t| t.to_owned()).collect();
        self
    }

    /// Adds a signature: names for callers, with the tensors that they stand for.
    pub fn signature(
        mut self,
        name: &str,
        inputs: &[(&str, &str)],
        outputs: &[(&str, &str)],
    ) -> Result<Self> {
        let specs = |named: &[(&str, &str)]| {
            self.session.with_graph(|graph| -> Result<BTreeMap<String, TensorSpec>> {
                named.iter().map(|&(key, tensor)| Ok((key.into(), spec(graph, tensor)?))).collect()
            })
        };
        let at = || format!("signature '{name}'");
        let signature = Signature {
            inputs: specs(inputs).context(at)?,
            outputs: specs(outputs).context(at)?,
            method: PREDICT_METHOD.to_owned(),
            ..Default::default()
        };
        self.export.signatures.insert(name.to_owned(), signature);
        Ok(self)
    }

    /// Adds an asset file. `tensor` is the constant or placeholder that holds its path; a loader feeds it
    /// the path in the loaded model.
    pub fn asset(mut self, tensor: &str, file: &str) -> Self {
        self.export.assets.push((tensor.to_owned(), file.to_owned()));
        self
    }

    /// Sets the initializer: the node that a loader runs after it has restored the variables.
    pub fn init_op(mut self, node: &str) -> Self {
        self.export.init_op = Some(node.to_owned());
        self
    }

    /// Writes the model to a folder that must not exist yet; after an error there is none.
    pub fn save(self, folder: &str) -> Result<()> {
        let SavedModelBuilder { session, export } = self;
        if let Some(node) = &export.init_op {
            session.with_graph(|g| StepSignature::resolve(g, &[], &[], &[node]))?;
        }
        let prepared = export.prepare()?;
        let storage = session.core().options.environment.storage.clone();
        prepared.write(&*storage, folder, |prefix| {
            let Some(step) = prepared.save_step() else { return Ok(()) };
            let registry = session.with_graph(|g| g.registry().clone());
            let graph = Graph::from_def(registry, prepared.graph().clone())?;
            let saver = session.beside(graph)?;
            let prefix = Tensor::scalar_string(prefix.to_owned());
            let feeds = [(step.filename_tensor.as_str(), prefix)];
            saver
                .run(&feeds, &[&step.saved_tensor], &[])
                .map(|_| ())
                .context(|| "the variables cannot be saved")
        })
    }

    /// Writes the model as the next version under `folder`, where servers look for versions: folders
    /// whose names are numbers. Returns the number.
    pub fn save_version(self, folder: &str) -> Result<u64> {
        let storage = self.session.core().options.environment.storage.clone();
        storage.create_folder(folder)?;
        let taken = storage.list(folder)?.iter().filter_map(|name| name.parse::<u64>().ok()).max();
        let next = match taken {
            None => 1,
            Some(newest) => newest
                .checked_add(1)
                .ok_or_else(|| err!(OutOfRange, "{folder}: there is no version after {newest}"))?,
        };
        self.save(&join(folder, &next.to_string()))?;
        Ok(next)
    }
}

fn spec(graph: &Graph, tensor: &str) -> Result<TensorSpec> {
    let endpoint = StepSignature::resolve(graph, &[], &[tensor], &[])?.fetches[0];
    let output = graph.output(endpoint);
    Ok(TensorSpec {
        tensor: format!("{}:{}", graph.node(endpoint.node).name, endpoint.index),
        dtype: output.dtype,
        shape: output.shape.clone(),
    })
}
