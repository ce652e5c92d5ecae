//! `inference.GRPCInferenceService`.

mod contents;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use thalweg_formats::saved_model::Signature;
use thalweg_proto::inference as pb;
use thalweg_proto::inference::infer_parameter::ParameterChoice;
use thalweg_proto::inference::model_infer_request::InferInputTensor;
use thalweg_proto::inference::model_infer_response::InferOutputTensor;
use thalweg_rpc::{FieldPath, MessageBody, Pieces, Rope, decode, message, response};
use thalweg_tensor::{Budget, Charge, Context, Result, Tensor, bail, ensure};

use super::{Call, Services, decode_request, decoded_size};
use crate::engine::Engine;
use crate::inference::{Predicted, predict};
use crate::kserve;
use crate::metrics::{Api, Entry};
use crate::servable::Servable;

/// Field path from a `ModelInferRequest` to the bytes of its tensors.
const RAW_INPUTS: FieldPath = &[7];
/// Field number of `ModelInferResponse.raw_output_contents`.
const RAW_OUTPUT_CONTENTS: u32 = 6;

impl Services {
    pub(super) async fn kserve<B>(
        &self,
        method: &str,
        call: Call<B>,
    ) -> Result<Response<MessageBody>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let path: FieldPath = if method == "ModelInfer" { RAW_INPUTS } else { &[] };
        let rope = self.message(call, path).await?;
        let engine = &*self.engine;
        // Inputs share the message's memory until the response is encoded.
        let _charge =
            Charge::new(&engine.incoming, decoded_size::bytes_max(&rope, &decoded_size::INFER))?;
        Ok(match method {
            "ServerLive" => message(&pb::ServerLiveResponse { live: true }),
            "ServerReady" => message(&pb::ServerReadyResponse { ready: engine.is_ready() }),
            "ServerMetadata" => message(&kserve::server_metadata()),
            "ModelReady" => {
                let request: pb::ModelReadyRequest = decode(rope)?;
                let spec = kserve::spec(&request.name, &request.version);
                message(&pb::ModelReadyResponse { ready: kserve::is_model_ready(engine, &spec)? })
            }
            "ModelMetadata" => {
                let request: pb::ModelMetadataRequest = decode(rope)?;
                let spec = kserve::spec(&request.name, &request.version);
                let answer = async { kserve::model_metadata(engine, &spec) };
                let name = &spec.name;
                message(&engine.counted(name, Api::ModelMetadata, Entry::Grpc, answer).await?)
            }
            "ModelInfer" => self.infer(rope).await?,
            _ => bail!(Unimplemented, "inference.GRPCInferenceService has no method {method}"),
        })
    }

    async fn infer(&self, rope: Rope) -> Result<Response<MessageBody>> {
        let request: pb::ModelInferRequest = decode_request(rope).await?;
        let engine = &*self.engine;
        let name = request.model_name.clone();
        engine.counted(&name, Api::ModelInfer, Entry::Grpc, infer(engine, request)).await
    }
}

async fn infer(engine: &Engine, request: pb::ModelInferRequest) -> Result<Response<MessageBody>> {
    let spec = kserve::spec(&request.model_name, &request.model_version);
    let servable = engine.store.get(Some(&spec))?;
    let signature_name = parameters(&request.parameters)?.to_owned();
    let (_, signature) = servable.signature(&signature_name)?;
    let outputs = outputs(signature, request.outputs)?;
    let is_raw = !request.raw_input_contents.is_empty();
    let inputs = inputs(signature, request.inputs, request.raw_input_contents, &engine.incoming)?;
    let ran = predict(&servable, &signature_name, inputs, &outputs).await?;
    inferred(&servable, request.id, (&ran, &outputs), is_raw)
}

/// Checks the parameters of a request; returns the signature that they name.
fn parameters(parameters: &BTreeMap<String, pb::InferParameter>) -> Result<&str> {
    let mut signature = "";
    for (name, parameter) in parameters {
        kserve::check_parameter(name)?;
        if name == kserve::SIGNATURE_NAME {
            let Some(ParameterChoice::StringParam(value)) = &parameter.parameter_choice else {
                bail!(InvalidArgument, "the parameter '{name}' must be a string")
            };
            signature = value;
        }
    }
    Ok(signature)
}

fn outputs(
    signature: &Signature,
    asked: Vec<pb::model_infer_request::InferRequestedOutputTensor>,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for output in asked {
        kserve::check_output(signature, &output.name)?;
        parameters(&output.parameters)?;
        names.push(output.name);
    }
    Ok(names)
}

fn inputs(
    signature: &Signature,
    given: Vec<InferInputTensor>,
    raw: Vec<Bytes>,
    budget: &Arc<Budget>,
) -> Result<BTreeMap<String, Tensor>> {
    ensure!(
        raw.is_empty() || raw.len() == given.len(),
        InvalidArgument,
        "the request has {} inputs and {} raw_input_contents; expected one of each for each input",
        given.len(),
        raw.len()
    );
    let is_raw = !raw.is_empty();
    let mut raw = raw.into_iter();
    let mut found = BTreeMap::new();
    for mut input in given {
        let name = std::mem::take(&mut input.name);
        kserve::check_input(signature, &name)?;
        let raw = if is_raw { raw.next() } else { None };
        let tensor = tensor(input, raw, budget).context(|| format!("input '{name}'"))?;
        ensure!(
            !found.contains_key(&name),
            InvalidArgument,
            "the request has input '{name}' twice"
        );
        found.insert(name, tensor);
    }
    Ok(found)
}

fn tensor(input: InferInputTensor, raw: Option<Bytes>, budget: &Arc<Budget>) -> Result<Tensor> {
    parameters(&input.parameters)?;
    let dtype = kserve::dtype(&input.datatype)?;
    let shape = kserve::shape(&input.shape)?;
    match (raw, input.contents) {
        (Some(_), Some(_)) => {
            bail!(InvalidArgument, "an input must not have contents beside raw_input_contents")
        }
        (Some(raw), None) => kserve::from_raw(dtype, shape, raw),
        (None, contents) => contents::to_tensor(dtype, shape, contents.unwrap_or_default(), budget),
    }
}

/// The response: raw if the request has raw inputs or an output has no typed form, else typed.
fn inferred(
    servable: &Servable,
    id: String,
    (ran, wanted): (&Predicted, &[String]),
    is_raw: bool,
) -> Result<Response<MessageBody>> {
    let is_raw = is_raw || !ran.tensors.iter().all(|t| contents::is_typed(t.dtype()));
    let mut head = pb::ModelInferResponse {
        model_name: servable.model().to_owned(),
        model_version: servable.version().to_string(),
        id,
        ..Default::default()
    };
    let outputs = ran.in_order(wanted);
    for &(name, tensor) in &outputs {
        let datatype = kserve::datatype(tensor.dtype()).context(|| format!("output '{name}'"))?;
        head.outputs.push(InferOutputTensor {
            name: name.to_owned(),
            datatype: datatype.to_owned(),
            shape: tensor.shape().to_i64().to_vec(),
            contents: if is_raw { None } else { Some(contents::from_tensor(tensor)?) },
            ..Default::default()
        });
    }
    let mut pieces = Pieces::default();
    pieces.put_fields(&head);
    if is_raw {
        for (_, tensor) in outputs {
            pieces.put_bytes(RAW_OUTPUT_CONTENTS, kserve::to_raw(tensor)?);
        }
    }
    Ok(response(pieces))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use thalweg_formats::saved_model::TensorSpec;
    use thalweg_tensor::{DType, PartialShape};

    fn signature() -> Signature {
        let spec = TensorSpec {
            tensor: "x:0".into(),
            dtype: DType::Float,
            shape: PartialShape::unknown(),
        };
        Signature { inputs: BTreeMap::from([("x".into(), spec)]), ..Default::default() }
    }

    fn input(name: &str, values: &[f32]) -> InferInputTensor {
        let contents =
            pb::InferTensorContents { fp32_contents: values.to_vec(), ..Default::default() };
        InferInputTensor {
            name: name.into(),
            datatype: "FP32".into(),
            shape: vec![2],
            contents: (!values.is_empty()).then_some(contents),
            ..Default::default()
        }
    }

    fn read(given: Vec<InferInputTensor>, raw: Vec<Bytes>) -> Result<BTreeMap<String, Tensor>> {
        inputs(&signature(), given, raw, &Budget::new(1000))
    }

    #[test]
    fn typed_and_raw_inputs() {
        let typed = read(vec![input("x", &[1.0, 2.0])], Vec::new()).unwrap();
        let raw = Bytes::from_static(b"\0\0\x80\x3f\0\0\0\x40");
        let raw = read(vec![input("x", &[])], vec![raw]).unwrap();
        assert_eq!(typed["x"].as_slice::<f32>().unwrap(), raw["x"].as_slice::<f32>().unwrap());
    }

    #[test]
    fn invalid_inputs_are_rejected() {
        let both = input("x", &[1.0, 2.0]);
        let raw = Bytes::from_static(b"12345678");
        for (given, raw, words) in [
            (vec![both.clone()], vec![raw.clone()], "beside raw_input_contents"),
            (vec![both.clone()], vec![raw.clone(), raw], "1 inputs and 2 raw"),
            (vec![both.clone(), both], vec![], "input 'x' twice"),
            (vec![input("y", &[1.0])], vec![], "unexpected input 'y'; the inputs are {x"),
            (vec![input("x", &[])], vec![], "input 'x': 0 values are not"),
        ] {
            let error = read(given, raw).unwrap_err();
            assert!(error.message().contains(words), "{error}");
        }
    }

    #[test]
    fn parameters_are_ignored_or_rejected() {
        let of = |name: &str, choice| {
            let parameter = pb::InferParameter { parameter_choice: Some(choice) };
            let map = BTreeMap::from([(name.to_owned(), parameter)]);
            parameters(&map).map(str::to_owned)
        };
        let text = |text: &str| ParameterChoice::StringParam(text.into());
        assert_eq!(of("signature_name", text("f")).unwrap(), "f");
        assert_eq!(of("priority", ParameterChoice::Int64Param(1)).unwrap(), "");
        assert_eq!(
            of("signature_name", ParameterChoice::BoolParam(true)).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            of("sequence_id", ParameterChoice::Int64Param(1)).err().map(|e| e.code()),
            Some(Code::Unimplemented)
        );
        assert_eq!(
            of("shared_memory_region", text("r")).err().map(|e| e.code()),
            Some(Code::Unimplemented)
        );
    }
}
