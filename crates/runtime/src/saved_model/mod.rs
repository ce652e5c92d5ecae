//! SavedModels: loaded into a session, run by signature, and written from a session.

mod builder;
mod load;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_formats::saved_model::{Functions, Signature, TensorSpec, unknown_signature};
use thalweg_proto as pb;
use thalweg_tensor::{Context, Result, Tensor, bail, ensure, err};

pub use builder::SavedModelBuilder;
pub use load::{LoadOptions, Registries};

use crate::{RunMetadata, RunOptions, Session};

/// A loaded model, usable from any number of threads at once.
///
/// It shares no state with other models, nor with other versions of this one.
pub struct SavedModel {
    folder: String,
    session: Session,
    signatures: BTreeMap<String, Arc<Signature>>,
    functions: Functions,
    /// Signatures of functions that were called. The lock is held while the graph is extended.
    called: Mutex<BTreeMap<String, Arc<Signature>>>,
}

/// One run of a signature, ready for [`Session::run_with`] or [`Session::start`].
pub struct Step {
    /// Values by the tensors that they are fed to.
    pub feeds: Vec<(String, Tensor)>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// The tensors of these outputs, in the same order.
    pub fetches: Vec<String>,
}

impl SavedModel {
    /// The folder that it was loaded from.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The signatures by name.
    pub fn signatures(&self) -> &BTreeMap<String, Arc<Signature>> {
        &self.signatures
    }

    /// Functions of the model's objects, which can be called like signatures.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The signature with this name. Where there is none, the function of the model's objects that is
    /// found under this path or has this name.
    pub fn signature(&self, name: &str) -> Result<Arc<Signature>> {
        if let Some(signature) = self.signatures.get(name) {
            return Ok(signature.clone());
        }
        let at = || format!("{}: function '{name}'", self.folder);
        match self.functions.find(name).context(at)? {
            Some(function) => self.function(function).context(at),
            None => {
                let names = self.signatures.keys();
                Err(unknown_signature(&self.folder, name, names, &self.functions))
            }
        }
    }

    /// Makes a concrete function callable.
    fn function(&self, name: &str) -> Result<Arc<Signature>> {
        let mut called = self.called.lock();
        if let Some(signature) = called.get(name) {
            return Ok(signature.clone());
        }
        let call = self.functions.call(name)?;
        let signature = Arc::new(Signature::from_proto(&call.signature)?);
        self.session.extend(pb::GraphDef { node: call.nodes, ..Default::default() })?;
        called.insert(name.to_owned(), signature.clone());
        Ok(signature)
    }

    /// Feeds a signature's inputs and returns all its outputs by name.
    pub fn run(
        &self,
        signature: &str,
        inputs: &[(&str, Tensor)],
    ) -> Result<BTreeMap<String, Tensor>> {
        let step = self.step(signature, inputs, &[])?;
        let (tensors, _) = self.run_step(&RunOptions::default(), &step)?;
        Ok(step.outputs.into_iter().zip(tensors).collect())
    }

    /// Runs a step that [`SavedModel::step`] made; the outputs come in its order.
    pub fn run_step(
        &self,
        options: &RunOptions,
        step: &Step,
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        let feeds: Vec<(&str, Tensor)> =
            step.feeds.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let fetches: Vec<&str> = step.fetches.iter().map(String::as_str).collect();
        self.session.run_with(options, &feeds, &fetches, &[])
    }

    /// Checks feeds against a signature. No names of `outputs` means all outputs.
    pub fn step(
        &self,
        signature: &str,
        inputs: &[(&str, Tensor)],
        outputs: &[&str],
    ) -> Result<Step> {
        let found = self.signature(signature)?;
        step(&found, inputs, outputs).context(|| format!("signature '{signature}'"))
    }
}

fn step(signature: &Signature, inputs: &[(&str, Tensor)], outputs: &[&str]) -> Result<Step> {
    let mut given: BTreeMap<&str, &Tensor> = BTreeMap::new();
    for (name, value) in inputs {
        ensure!(
            signature.inputs.contains_key(*name),
            InvalidArgument,
            "there is no input '{name}'; the inputs are {}",
            described(&signature.inputs)
        );
        ensure!(
            given.insert(name, value).is_none(),
            InvalidArgument,
            "the input '{name}' is given twice"
        );
    }
    let mut feeds = Vec::with_capacity(signature.inputs.len());
    for (name, spec) in &signature.inputs {
        let value = given.get(name.as_str()).copied().or_else(|| signature.defaults.get(name));
        let Some(value) = value else {
            bail!(
                InvalidArgument,
                "the input '{name}' is missing; the inputs are {}",
                described(&signature.inputs)
            );
        };
        check(spec, value).context(|| format!("input '{name}'"))?;
        feeds.push((spec.tensor.clone(), value.clone()));
    }
    let names: Vec<String> = match outputs {
        [] => signature.outputs.keys().cloned().collect(),
        some => some.iter().map(|&n| n.to_owned()).collect(),
    };
    let mut fetches = Vec::with_capacity(names.len());
    for name in &names {
        let spec = signature.outputs.get(name).ok_or_else(|| {
            let there = described(&signature.outputs);
            err!(InvalidArgument, "there is no output '{name}'; the outputs are {there}")
        })?;
        fetches.push(spec.tensor.clone());
    }
    Ok(Step { feeds, outputs: names, fetches })
}

/// Names with dtypes and shapes, for errors.
pub fn described(specs: &BTreeMap<String, TensorSpec>) -> String {
    let one =
        |(name, spec): (&String, &TensorSpec)| format!("{name} ({} {})", spec.dtype, spec.shape);
    specs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Fails if a value has not the dtype and shape of a signature's input.
pub fn check(spec: &TensorSpec, value: &Tensor) -> Result<()> {
    ensure!(
        value.dtype() == spec.dtype,
        InvalidArgument,
        "{} was expected, {} was given",
        spec.dtype,
        value.dtype()
    );
    ensure!(
        spec.shape.is_compatible_with(value.shape()),
        InvalidArgument,
        "shape {} was expected, {} was given",
        spec.shape,
        value.shape()
    );
    Ok(())
}
