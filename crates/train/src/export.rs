//! Export of a trained model as a SavedModel.

use std::sync::Arc;

use thalweg_graph::{Output, Scope};
use thalweg_kernel::Environment;
use thalweg_ops::Registry;
use thalweg_runtime::{SavedModelBuilder, Session, SessionOptions, system_environment};
use thalweg_storage::ByUrl;
use thalweg_tensor::Result;

use crate::{Model, Saver};

/// The signature of an exported model: inputs and outputs by name.
#[derive(Clone, Debug)]
pub struct Served {
    /// Tensors that callers feed.
    pub inputs: Vec<(&'static str, Output)>,
    /// Tensors that callers fetch.
    pub outputs: Vec<(&'static str, Output)>,
}

/// Writes the inference graph that `build` adds, with the variables of a checkpoint, as the next
/// version of a SavedModel under `folder`; returns the folder of that version.
pub fn export(
    checkpoint: &str,
    folder: &str,
    build: impl FnOnce(&mut Model) -> Result<Served>,
) -> Result<String> {
    export_with(&Registry::built_in(), checkpoint, folder, build)
}

/// As [`export`], of a model with these ops. What loads the model needs them too.
pub fn export_with(
    registry: &Registry,
    checkpoint: &str,
    folder: &str,
    build: impl FnOnce(&mut Model) -> Result<Served>,
) -> Result<String> {
    let mut model = Model::new(Scope::new(registry.ops.clone())).inference();
    let served = build(&mut model)?;
    let environment = Environment { storage: Arc::new(ByUrl::default()), ..system_environment() };
    let options = SessionOptions { environment, ..SessionOptions::default() };
    let session = Session::new(model.to_graph(), registry.kernels.clone(), options)?;
    // Restored through a graph of its own: the model has no nodes that savers need.
    let variables: Vec<(String, Output)> =
        model.variables().into_iter().map(|variable| (variable.name, variable.handle)).collect();
    let saver = Saver::new(&mut model, &variables)?;
    saver.restore(&session.beside(model.to_graph())?, checkpoint)?;
    let names = |tensors: &[(&'static str, Output)]| -> Vec<(&'static str, String)> {
        tensors.iter().map(|&(name, tensor)| (name, model.name_of(tensor))).collect()
    };
    let (inputs, outputs) = (names(&served.inputs), names(&served.outputs));
    let version = SavedModelBuilder::new(&session)
        .signature("serving_default", &borrowed(&inputs), &borrowed(&outputs))?
        .save_version(folder)?;
    Ok(format!("{}/{version}", folder.trim_end_matches('/')))
}

fn borrowed<'a>(names: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    names.iter().map(|(name, tensor)| (*name, tensor.as_str())).collect()
}
