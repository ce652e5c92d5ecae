//! The Classify, Regress and MultiInference APIs: models that take serialized `tf.Example`s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message;
use thalweg_formats::saved_model::Signature;
use thalweg_proto::tensorflow::serving::{self as pb, inference_result, input::Kind};
use thalweg_tensor::{Result, Shape, Tensor, bail, ensure, err};

use crate::inference::{answered_by, predict};
use crate::servable::Servable;

/// The method name of classification signatures.
pub const CLASSIFY_METHOD: &str = "tensorflow/serving/classify";
/// The method name of regression signatures.
pub const REGRESS_METHOD: &str = "tensorflow/serving/regress";
/// Names of the inputs and outputs of these signatures.
const INPUTS: &str = "inputs";
const CLASSES: &str = "classes";
const SCORES: &str = "scores";
const OUTPUTS: &str = "outputs";
/// The maximum size of the copies of a request's context, which is merged into each example.
const CONTEXT_BYTES_MAX: usize = 256 << 20;

/// Classifies examples; the response has a list of classes per example.
pub async fn classify(
    servable: &Arc<Servable>,
    signature: &str,
    input: Option<&pb::Input>,
) -> Result<(String, pb::ClassificationResult)> {
    let (name, found) = find(servable, signature, CLASSIFY_METHOD, "classification")?;
    let outputs: Vec<String> = [CLASSES, SCORES]
        .iter()
        .map(|&o| o.to_owned())
        .filter(|o| found.outputs.contains_key(o))
        .collect();
    ensure!(
        !outputs.is_empty(),
        FailedPrecondition,
        "the signature '{name}' has neither the output '{CLASSES}' nor '{SCORES}'"
    );
    let (examples, given) = examples(input, found)?;
    let ran = predict(servable, name, given, &outputs).await?;
    let by_name: BTreeMap<&str, &Tensor> =
        ran.method.outputs.iter().map(String::as_str).zip(&ran.tensors).collect();
    let (classes, scores) = (by_name.get(CLASSES).copied(), by_name.get(SCORES).copied());
    Ok((name.to_owned(), classifications(examples, classes, scores)?))
}

/// Computes a regression value for each example.
pub async fn regress(
    servable: &Arc<Servable>,
    signature: &str,
    input: Option<&pb::Input>,
) -> Result<(String, pb::RegressionResult)> {
    let (name, found) = find(servable, signature, REGRESS_METHOD, "regression")?;
    ensure!(
        found.outputs.contains_key(OUTPUTS),
        FailedPrecondition,
        "the signature '{name}' has no output '{OUTPUTS}'"
    );
    let (examples, given) = examples(input, found)?;
    let ran = predict(servable, name, given, &[OUTPUTS.to_owned()]).await?;
    let [values] = &ran.tensors[..] else { bail!(Internal, "one output was asked for") };
    Ok((name.to_owned(), regressions(examples, values)?))
}

/// Runs several signatures of one model on the same examples.
pub async fn multi_inference(
    servable: &Arc<Servable>,
    request: &pb::MultiInferenceRequest,
) -> Result<pb::MultiInferenceResponse> {
    let mut seen = BTreeSet::new();
    let mut results = Vec::with_capacity(request.tasks.len());
    for task in &request.tasks {
        let signature = task.model_spec.as_ref().map_or("", |s| &s.signature_name);
        ensure!(
            seen.insert(signature),
            InvalidArgument,
            "the signature '{signature}' is asked twice"
        );
        let input = request.input.as_ref();
        let (name, result) = match task.method_name.as_str() {
            CLASSIFY_METHOD => {
                let (name, result) = classify(servable, signature, input).await?;
                (name, inference_result::Result::ClassificationResult(result))
            }
            REGRESS_METHOD => {
                let (name, result) = regress(servable, signature, input).await?;
                (name, inference_result::Result::RegressionResult(result))
            }
            other => bail!(
                Unimplemented,
                "the method '{other}' is not one of {CLASSIFY_METHOD} and {REGRESS_METHOD}"
            ),
        };
        let model_spec = Some(answered_by(servable, &name));
        results.push(pb::InferenceResult { model_spec, result: Some(result) });
    }
    Ok(pb::MultiInferenceResponse { results })
}

/// The number of examples.
pub fn count(input: Option<&pb::Input>) -> usize {
    match input.and_then(|i| i.kind.as_ref()) {
        Some(Kind::ExampleList(list)) => list.examples.len(),
        Some(Kind::ExampleListWithContext(list)) => list.examples.len(),
        None => 0,
    }
}

fn find<'a>(
    servable: &'a Servable,
    signature: &str,
    method: &str,
    what: &str,
) -> Result<(&'a str, &'a Signature)> {
    let (name, found) =
        servable.signature(signature).map_err(|e| err!(InvalidArgument, "{}", e.message()))?;
    ensure!(
        found.method == method,
        InvalidArgument,
        "Expected {what} signature method_name to be {method}. Was: {}",
        found.method
    );
    ensure!(
        found.inputs.len() == 1 && found.inputs.contains_key(INPUTS),
        FailedPrecondition,
        "a signature for {what} has the one input '{INPUTS}', '{name}' has others"
    );
    Ok((name, found))
}

/// The number of examples, and the input tensor with each of them serialized.
fn examples(
    input: Option<&pb::Input>,
    signature: &Signature,
) -> Result<(usize, BTreeMap<String, Tensor>)> {
    let serialized: Vec<Bytes> = match input.and_then(|i| i.kind.as_ref()) {
        Some(Kind::ExampleList(list)) => {
            list.examples.iter().map(|e| Bytes::from(e.encode_to_vec())).collect()
        }
        Some(Kind::ExampleListWithContext(list)) => {
            let context = list.context.as_ref().map(Message::encode_to_vec).unwrap_or_default();
            let copies = context.len().saturating_mul(list.examples.len());
            ensure!(
                copies <= CONTEXT_BYTES_MAX,
                ResourceExhausted,
                "the context of {} bytes in each of {} examples takes more than {} MB: send fewer at \
                 a time",
                context.len(),
                list.examples.len(),
                CONTEXT_BYTES_MAX >> 20
            );
            // Messages one after the other are one message: what an example says itself counts.
            let merged = |e: &thalweg_proto::Example| {
                let mut bytes = BytesMut::with_capacity(context.len() + e.encoded_len());
                bytes.extend_from_slice(&context);
                e.encode_raw(&mut bytes);
                bytes.freeze()
            };
            list.examples.iter().map(merged).collect()
        }
        None => Vec::new(),
    };
    ensure!(!serialized.is_empty(), InvalidArgument, "Input is empty.");
    let count = serialized.len();
    let tensor = Tensor::from_strings(Shape::new(&[count])?, serialized)?;
    let name = signature.inputs.keys().next().cloned().unwrap_or_default();
    Ok((count, BTreeMap::from([(name, tensor)])))
}

fn classifications(
    examples: usize,
    classes: Option<&Tensor>,
    scores: Option<&Tensor>,
) -> Result<pb::ClassificationResult> {
    let width = |tensor: &Tensor, what: &str| match *tensor.shape().dims() {
        [rows, columns] if rows == examples => Ok(columns),
        _ => bail!(
            InvalidArgument,
            "the {what} should have the shape [{examples}, number of classes], they have {}",
            tensor.shape()
        ),
    };
    let labels = classes.map(|c| Ok((width(c, CLASSES)?, c.strings()?))).transpose()?;
    let scores = scores.map(|s| Ok((width(s, SCORES)?, s.as_slice::<f32>()?))).transpose()?;
    let columns = match (&labels, &scores) {
        (Some((a, _)), Some((b, _))) => {
            ensure!(
                a == b,
                InvalidArgument,
                "there are {a} classes and {b} scores for each example"
            );
            *a
        }
        (Some((a, _)), None) | (None, Some((a, _))) => *a,
        (None, None) => 0,
    };
    let class = |i: usize| pb::Class {
        label: labels.as_ref().map_or_else(String::new, |(_, l)| text(&l[i])),
        score: scores.as_ref().map_or(0.0, |(_, s)| s[i]),
    };
    let one = |row: usize| pb::Classifications {
        classes: (row * columns..(row + 1) * columns).map(class).collect(),
    };
    Ok(pb::ClassificationResult { classifications: (0..examples).map(one).collect() })
}

/// Labels as text, which responses require.
fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn regressions(examples: usize, values: &Tensor) -> Result<pb::RegressionResult> {
    ensure!(
        matches!(*values.shape().dims(), [n] | [n, 1] if n == examples),
        InvalidArgument,
        "the outputs should have the shape [{examples}] or [{examples}, 1], they have {}",
        values.shape()
    );
    let regressions =
        values.as_slice::<f32>()?.iter().map(|&value| pb::Regression { value }).collect();
    Ok(pb::RegressionResult { regressions })
}
