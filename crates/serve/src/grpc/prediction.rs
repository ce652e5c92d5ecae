//! `PredictionService`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use prost::{Message, Name};
use thalweg_proto::google::protobuf::Any;
use thalweg_proto::tensorflow::serving as pb;
use thalweg_rpc::{FieldPath, MessageBody, Pieces, Rope, decode, message, response};
use thalweg_tensor::{Budget, Charge, Context, Result, Tensor, bail, ensure, err};

use super::incoming::{IncomingTensor, PredictRequest};
use super::outputs::put_named;
use super::{Call, Services, decode_request, decoded_size};
use crate::engine::Engine;
use crate::examples::{self, multi_inference};
use crate::inference::{Predicted, answered_by, predict, spec_signature};
use crate::metrics::{Api, Entry};
use crate::servable::Servable;

/// Field path from a `PredictRequest` to the bytes of its tensors.
const PREDICT_TENSORS: FieldPath = &[2, 2, 4];

impl Services {
    pub(super) async fn prediction<B>(
        &self,
        method: &str,
        call: Call<B>,
    ) -> Result<Response<MessageBody>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let path: FieldPath = if method == "Predict" { PREDICT_TENSORS } else { &[] };
        let rope = self.message(call, path).await?;
        let engine = &*self.engine;
        let kind = if method == "Predict" {
            &decoded_size::PREDICT
        } else {
            &decoded_size::EXAMPLES_REQUEST
        };
        // Inputs share the message's memory until the response is encoded.
        let _charge = Charge::new(&engine.incoming, decoded_size::bytes_max(&rope, kind))?;
        match method {
            "Predict" => self.predict(rope).await,
            "Classify" => {
                let request: pb::ClassificationRequest = decode_request(rope).await?;
                let name = model_name(request.model_spec.as_ref());
                let answer = classify(engine, &request);
                let answer = engine.counted(name, Api::Classify, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            "Regress" => {
                let request: pb::RegressionRequest = decode_request(rope).await?;
                let name = model_name(request.model_spec.as_ref());
                let answer = regress(engine, &request);
                let answer = engine.counted(name, Api::Regress, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            "MultiInference" => {
                let request: pb::MultiInferenceRequest = decode_request(rope).await?;
                let spec = request.tasks.first().and_then(|t| t.model_spec.as_ref());
                let answer = infer_all(engine, &request);
                let name = model_name(spec);
                let answer = engine.counted(name, Api::MultiInference, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            "GetModelMetadata" => {
                let request: pb::GetModelMetadataRequest = decode(rope)?;
                let name = model_name(request.model_spec.as_ref());
                let answer = async { metadata(engine, &request) };
                let answer =
                    engine.counted(name, Api::GetModelMetadata, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            _ => {
                bail!(Unimplemented, "tensorflow.serving.PredictionService has no method {method}")
            }
        }
    }

    async fn predict(&self, rope: Rope) -> Result<Response<MessageBody>> {
        let request: PredictRequest = decode_request(rope).await?;
        let engine = &*self.engine;
        let name = model_name(request.model_spec.as_ref()).to_owned();
        let answer = async {
            let servable = engine.store.get(request.model_spec.as_ref())?;
            let inputs = tensors(request.inputs, &engine.incoming)?;
            let signature = spec_signature(request.model_spec.as_ref());
            let ran = predict(&servable, signature, inputs, &request.output_filter).await?;
            predicted(&servable, &ran)
        };
        engine.counted(&name, Api::Predict, Entry::Grpc, answer).await
    }
}

fn tensors(
    inputs: BTreeMap<String, IncomingTensor>,
    budget: &Arc<Budget>,
) -> Result<BTreeMap<String, Tensor>> {
    let one = |(name, input): (String, IncomingTensor)| {
        let tensor = input.tensor(budget).context(|| format!("input '{name}'"))?;
        Ok((name, tensor))
    };
    inputs.into_iter().map(one).collect()
}

/// The model that a request names.
pub(super) fn model_name(spec: Option<&pb::ModelSpec>) -> &str {
    spec.map_or("", |s| s.name.as_str())
}

fn predicted(servable: &Servable, ran: &Predicted) -> Result<Response<MessageBody>> {
    let mut pieces = Pieces::default();
    for (name, tensor) in ran.method.outputs.iter().zip(&ran.tensors) {
        put_named(&mut pieces, 1, name, tensor)?;
    }
    pieces.put_message(2, &answered_by(servable, &ran.method.name));
    Ok(response(pieces))
}

async fn classify(
    engine: &Engine,
    request: &pb::ClassificationRequest,
) -> Result<pb::ClassificationResponse> {
    let servable = engine.store.get(request.model_spec.as_ref())?;
    let signature = spec_signature(request.model_spec.as_ref());
    let input = request.input.as_ref();
    let (name, result) = examples::classify(&servable, signature, input).await?;
    engine.metrics.examples(servable.model(), examples::count(input));
    let model_spec = Some(answered_by(&servable, &name));
    Ok(pb::ClassificationResponse { model_spec, result: Some(result) })
}

async fn regress(
    engine: &Engine,
    request: &pb::RegressionRequest,
) -> Result<pb::RegressionResponse> {
    let servable = engine.store.get(request.model_spec.as_ref())?;
    let signature = spec_signature(request.model_spec.as_ref());
    let input = request.input.as_ref();
    let (name, result) = examples::regress(&servable, signature, input).await?;
    engine.metrics.examples(servable.model(), examples::count(input));
    let model_spec = Some(answered_by(&servable, &name));
    Ok(pb::RegressionResponse { model_spec, result: Some(result) })
}

async fn infer_all(
    engine: &Engine,
    request: &pb::MultiInferenceRequest,
) -> Result<pb::MultiInferenceResponse> {
    let spec = request.tasks.first().and_then(|t| t.model_spec.as_ref());
    ensure!(!request.tasks.is_empty(), InvalidArgument, "the request has no tasks");
    let name = model_name(spec);
    let other = |t: &pb::InferenceTask| model_name(t.model_spec.as_ref()) != name;
    ensure!(
        !request.tasks.iter().any(other),
        InvalidArgument,
        "all tasks of one request must name the same model"
    );
    let servable = engine.store.get(spec)?;
    let answer = multi_inference(&servable, request).await?;
    engine.metrics.examples(servable.model(), examples::count(request.input.as_ref()));
    Ok(answer)
}

/// The only supported metadata field.
pub(crate) const SIGNATURE_DEF: &str = "signature_def";

/// The signatures of a model.
pub(crate) fn metadata(
    engine: &Engine,
    request: &pb::GetModelMetadataRequest,
) -> Result<pb::GetModelMetadataResponse> {
    ensure!(
        !request.metadata_field.is_empty(),
        InvalidArgument,
        "GetModelMetadataRequest must specify at least one metadata_field"
    );
    for field in &request.metadata_field {
        ensure!(field == SIGNATURE_DEF, InvalidArgument, "Metadata field {field} is not supported");
    }
    let servable = engine.store.get(request.model_spec.as_ref())?;
    let map = pb::SignatureDefMap { signature_def: servable.signature_defs().clone() };
    let mut value = Vec::new();
    map.encode(&mut value).map_err(|e| err!(Internal, "{e}"))?;
    let any = Any {
        type_url: format!("type.googleapis.com/{}", pb::SignatureDefMap::full_name()),
        value: value.into(),
    };
    Ok(pb::GetModelMetadataResponse {
        model_spec: Some(answered_by(&servable, "")),
        metadata: BTreeMap::from([(SIGNATURE_DEF.to_owned(), any)]),
    })
}
