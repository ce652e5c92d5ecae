//! Export of a trained model as a SavedModel.

use thalweg_api::{Any, Output, Registry, TensorType, session_options};
use thalweg_runtime::{SavedModelBuilder, Session};
use thalweg_tensor::{Result, ensure};

use crate::{Model, Saver};

/// The signature of an exported model: inputs and outputs by name.
#[derive(Clone, Debug, Default)]
pub struct Served {
    inputs: Vec<(String, Output<Any>)>,
    outputs: Vec<(String, Output<Any>)>,
}

impl Served {
    /// A signature without inputs and outputs.
    pub fn new() -> Served {
        Served::default()
    }

    /// Adds a tensor that callers feed.
    #[must_use]
    pub fn input<T: TensorType>(mut self, name: &str, input: &Output<T>) -> Served {
        self.inputs.push((name.to_owned(), input.any()));
        self
    }

    /// Adds a tensor that callers fetch.
    #[must_use]
    pub fn output<T: TensorType>(mut self, name: &str, output: &Output<T>) -> Served {
        self.outputs.push((name.to_owned(), output.any()));
        self
    }
}

/// Writes the inference graph that `build` adds, with the variables of a checkpoint, as the next
/// version of a SavedModel under `folder`; returns the folder of that version.
pub fn export(
    checkpoint: &str,
    folder: &str,
    build: impl FnOnce(&Model) -> Served,
) -> Result<String> {
    export_with(&Registry::built_in(), checkpoint, folder, build)
}

/// As [`export`], of a model with these ops. What loads the model needs them too.
pub fn export_with(
    registry: &Registry,
    checkpoint: &str,
    folder: &str,
    build: impl FnOnce(&Model) -> Served,
) -> Result<String> {
    let model = Model::with_registry(registry.clone()).inference();
    let served = build(&model);
    model.check()?;
    ensure!(!served.outputs.is_empty(), InvalidArgument, "the signature to export has no outputs");
    let graph = || model.as_scope().to_graph();
    let session = Session::new(graph(), registry.kernels.clone(), session_options())?;
    // Restored through a graph of its own: the model has no nodes that savers need.
    let saver = Saver::of_model(&model)?;
    saver.restore(&session.beside(graph())?, checkpoint)?;
    let names = |tensors: &[(String, Output<Any>)]| -> Result<Vec<(String, String)>> {
        tensors.iter().map(|(name, tensor)| Ok((name.clone(), tensor.name()?))).collect()
    };
    let (inputs, outputs) = (names(&served.inputs)?, names(&served.outputs)?);
    let version = SavedModelBuilder::new(&session)
        .signature("serving_default", &borrowed(&inputs), &borrowed(&outputs))?
        .save_version(folder)?;
    Ok(format!("{}/{version}", folder.trim_end_matches('/')))
}

fn borrowed(names: &[(String, String)]) -> Vec<(&str, &str)> {
    names.iter().map(|(name, tensor)| (name.as_str(), tensor.as_str())).collect()
}
