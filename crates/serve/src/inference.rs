//! Inference on models by name: tensors in, tensors out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thalweg_kernel::Cancellation;
use thalweg_proto::google::protobuf::Int64Value;
use thalweg_proto::tensorflow::serving::{self as pb, model_spec::VersionChoice};
use thalweg_runtime::{RunMetadata, RunOptions};
use thalweg_tensor::{Budget, Context, Result, Tensor, ensure, err};
use tokio::sync::oneshot;

use crate::servable::{CancelOnDrop, Method, Servable};

/// The result of running a signature.
pub struct Predicted {
    /// The method that ran.
    pub method: Arc<Method>,
    /// Its outputs, in the method's order.
    pub tensors: Vec<Tensor>,
}

impl Predicted {
    /// The outputs that `wanted` names, in its order; all outputs, sorted by name, if it is empty.
    pub fn in_order<'a>(&'a self, wanted: &'a [String]) -> Vec<(&'a str, &'a Tensor)> {
        let outputs = &self.method.outputs;
        let one = |name: &'a String| {
            let at = outputs.binary_search(name).ok()?;
            Some((name.as_str(), self.tensors.get(at)?))
        };
        let wanted = if wanted.is_empty() { outputs } else { wanted };
        wanted.iter().filter_map(one).collect()
    }
}

/// Runs a signature, the default one if the name is empty; fetches all outputs if none are named.
pub async fn predict(
    servable: &Arc<Servable>,
    signature: &str,
    inputs: BTreeMap<String, Tensor>,
    outputs: &[String],
) -> Result<Predicted> {
    let method = servable.method(signature, outputs).await?;
    let feeds = method.feeds(inputs)?;
    let tensors = servable.run(&method, feeds).await?;
    Ok(Predicted { method, tensors })
}

/// The tensors of a message. Tensors that are larger than their encoding are charged to `budget`.
pub fn tensors(
    protos: BTreeMap<String, thalweg_proto::TensorProto>,
    budget: &Arc<Budget>,
) -> Result<BTreeMap<String, Tensor>> {
    let one = |(name, proto): (String, thalweg_proto::TensorProto)| {
        let tensor =
            Tensor::from_proto(&proto, Some(budget)).context(|| format!("input '{name}'"))?;
        Ok((name, tensor))
    };
    protos.into_iter().map(one).collect()
}

/// Fetched tensors under the names that the request uses.
pub type SessionRan = (Vec<(String, Tensor)>, RunMetadata);

/// Runs any part of a model's graph (`SessionRun`).
pub async fn session_run(
    servable: &Arc<Servable>,
    request: &pb::SessionRunRequest,
    budget: &Arc<Budget>,
) -> Result<SessionRan> {
    let aliases = match request.tensor_name_is_alias {
        true => Some(servable.signature(spec_signature(request.model_spec.as_ref()))?.1.clone()),
        false => None,
    };
    let mut seen = BTreeSet::new();
    let mut feeds = Vec::with_capacity(request.feed.len());
    for feed in &request.feed {
        ensure!(seen.insert(&feed.name), InvalidArgument, "'{}' is fed twice", feed.name);
        let proto = feed
            .tensor
            .as_ref()
            .ok_or_else(|| err!(InvalidArgument, "the feed '{}' has no tensor", feed.name))?;
        let tensor = Tensor::from_proto(proto, Some(budget)).context(|| &feed.name)?;
        let name = match &aliases {
            Some(signature) => named(&signature.inputs, &feed.name)?,
            None => feed.name.clone(),
        };
        feeds.push((name, tensor));
    }
    let mut fetches = Vec::with_capacity(request.fetch.len());
    for fetch in &request.fetch {
        fetches.push(match &aliases {
            Some(signature) => named(&signature.outputs, fetch)?,
            None => fetch.clone(),
        });
    }
    let asked = request.options.as_ref();
    let cancellation = Cancellation::default();
    let mut guard = CancelOnDrop::new(cancellation.clone());
    let timeout = asked.map(|o| o.timeout_in_ms).filter(|&ms| ms > 0);
    let options = RunOptions {
        timeout: timeout.map(|ms| std::time::Duration::from_millis(ms.unsigned_abs())),
        trace: asked.is_some_and(|o| o.trace_level > 0),
        partition_graphs: asked.is_some_and(|o| o.output_partition_graphs),
        cancellation: Some(cancellation),
        ..Default::default()
    };
    let (sender, receiver) = oneshot::channel();
    let session = servable.saved().session();
    session.start(options, feeds, fetches, request.target.clone(), move |result| {
        let _ = sender.send(result);
    });
    let result = receiver.await.unwrap_or_else(|_| {
        Err(err!(Internal, "internal error: the step was dropped without a result"))
    });
    guard.disarm();
    let (tensors, metadata) = result?;
    Ok((request.fetch.iter().cloned().zip(tensors).collect(), metadata))
}

fn named(
    specs: &BTreeMap<String, thalweg_formats::saved_model::TensorSpec>,
    alias: &str,
) -> Result<String> {
    let spec = specs.get(alias).ok_or_else(|| {
        let there: Vec<&str> = specs.keys().map(String::as_str).collect();
        err!(InvalidArgument, "the signature has no '{alias}'; it has {{{}}}", there.join(", "))
    })?;
    Ok(spec.tensor.clone())
}

/// The signature name of a request; empty for the default one.
pub(crate) fn spec_signature(spec: Option<&pb::ModelSpec>) -> &str {
    spec.map_or("", |s| s.signature_name.as_str())
}

/// The model specification in an answer.
pub(crate) fn answered_by(servable: &Servable, signature: &str) -> pb::ModelSpec {
    pb::ModelSpec {
        name: servable.model().to_owned(),
        version_choice: Some(VersionChoice::Version(Int64Value { value: servable.version() })),
        signature_name: signature.to_owned(),
    }
}
