//! KServe's REST interface.

pub(super) mod request;
mod route;

use std::fmt::Write;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use serde_json::{Value, json};
use thalweg_proto::inference as pb;
use thalweg_proto::inference::model_metadata_response::TensorMetadata;
use thalweg_proto::tensorflow::serving::ModelSpec;
use thalweg_tensor::{Charge, Context, Result, Tensor, err};

use self::request::Infer;
use self::route::{Route, Verb};
use super::{Reply, Rest, body, on_large, write};
use crate::growing::GrowingCharge;
use crate::inference::{Predicted, predict};
use crate::kserve;
use crate::metrics::{Api, Entry};
use crate::servable::Servable;

/// The header with the number of JSON bytes of a body; raw tensors follow them.
pub(super) const JSON_LENGTH: &str = "inference-header-content-length";

impl Rest {
    pub(super) async fn kserve<B>(&self, parts: &Parts, body: B) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let engine = &*self.engine;
        match route::parse(&parts.method, parts.uri.path())? {
            Route::Server => Ok(Reply::json(server(&kserve::server_metadata()).to_string())),
            Route::Live => Ok(Reply::json(json!({ "live": true }).to_string())),
            Route::Ready => {
                Ok(readiness(engine.is_ready(), &json!({ "ready": engine.is_ready() })))
            }
            Route::Model(spec, Verb::Ready) => {
                let is_ready = kserve::is_model_ready(engine, &spec)?;
                Ok(readiness(is_ready, &json!({ "name": spec.name, "ready": is_ready })))
            }
            Route::Model(spec, Verb::Metadata) => {
                let answer = async { kserve::model_metadata(engine, &spec) };
                let name = &spec.name;
                let found = engine.counted(name, Api::ModelMetadata, Entry::Rest, answer).await?;
                Ok(Reply::json(metadata(&found).to_string()))
            }
            Route::Model(spec, Verb::Infer) => {
                let limit = self.options.body_bytes_max;
                let received = body::read(body, &parts.headers, limit, &engine.incoming).await?;
                let answer = self.infer(&spec, &parts.headers, received.bytes.clone());
                engine.counted(&spec.name, Api::ModelInfer, Entry::Rest, answer).await
            }
        }
    }

    async fn infer(&self, spec: &ModelSpec, headers: &HeaderMap, text: Bytes) -> Result<Reply> {
        let servable = self.engine.store.get(Some(spec))?;
        let json_len = json_length(headers)?;
        let of_pool = servable.clone();
        let mut room = GrowingCharge::new(&self.engine.incoming);
        let (_room, mut asked) = on_large(text.len(), move || {
            let signature = |name: &str| of_pool.signature(name).map(|found| &**found.1);
            let asked = request::read(&text, json_len, &mut room, signature)?;
            Ok((room, asked))
        })
        .await?;
        let outputs: Vec<String> = asked.outputs.iter().map(|(name, _)| name.clone()).collect();
        let inputs = std::mem::take(&mut asked.inputs);
        let ran = predict(&servable, &asked.signature, inputs, &outputs).await?;
        let elements: usize = ran.tensors.iter().map(Tensor::num_elements).sum();
        let room = Charge::new(&self.engine.incoming, write::bytes_max(&ran.tensors)?)?;
        on_large(elements, move || {
            Ok(Reply { room: Some(room), ..answer(&servable, &asked, &ran)? })
        })
        .await
    }
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
    let parsed = parsed.ok_or_else(|| err!(InvalidArgument, "{JSON_LENGTH} is not a number"))?;
    Ok(Some(parsed))
}

fn readiness(is_ready: bool, body: &Value) -> Reply {
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Reply { status, ..Reply::json(body.to_string()) }
}

fn server(found: &pb::ServerMetadataResponse) -> Value {
    json!({ "name": found.name, "version": found.version, "extensions": found.extensions })
}

fn metadata(found: &pb::ModelMetadataResponse) -> Value {
    let one = |tensor: &TensorMetadata| json!({ "name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape });
    json!({
        "name": found.name,
        "versions": found.versions,
        "platform": found.platform,
        "inputs": found.inputs.iter().map(one).collect::<Vec<_>>(),
        "outputs": found.outputs.iter().map(one).collect::<Vec<_>>(),
    })
}

/// The answer to an inference request.
fn answer(servable: &Servable, asked: &Infer, ran: &Predicted) -> Result<Reply> {
    let mut out = String::from("{\"model_name\":");
    write::text(&mut out, servable.model());
    // Writing into a string cannot fail.
    let _ = write!(out, ",\"model_version\":\"{}\"", servable.version());
    if let Some(id) = &asked.id {
        out.push_str(",\"id\":");
        write::text(&mut out, id);
    }
    out.push_str(",\"outputs\":[");
    let mut raw = Vec::new();
    let wanted: Vec<String> = asked.outputs.iter().map(|(name, _)| name.clone()).collect();
    for (i, (name, tensor)) in ran.in_order(&wanted).into_iter().enumerate() {
        let is_binary = asked.outputs.get(i).and_then(|(_, is_binary)| *is_binary);
        let comma = if i > 0 { "," } else { "" };
        out.push_str(comma);
        let put = output(&mut out, name, tensor, is_binary.unwrap_or(asked.is_binary));
        raw.extend(put.context(|| format!("output '{name}'"))?);
    }
    out.push_str("]}");
    if raw.is_empty() {
        return Ok(Reply::json(out));
    }
    let json_len = out.len();
    let mut bytes = BytesMut::from(out.as_bytes());
    raw.iter().for_each(|part| bytes.extend_from_slice(part));
    Ok(Reply::binary(bytes.freeze(), json_len))
}

/// Writes an output; returns its raw elements if they follow the JSON.
fn output(out: &mut String, name: &str, tensor: &Tensor, is_binary: bool) -> Result<Option<Bytes>> {
    let datatype = kserve::datatype(tensor.dtype())?;
    out.push_str("{\"name\":");
    write::text(out, name);
    let shape = tensor.shape().to_i64();
    let _ = write!(out, ",\"datatype\":\"{datatype}\",\"shape\":{:?}", &shape[..]);
    if is_binary {
        let raw = kserve::to_raw(tensor)?;
        let _ = write!(out, ",\"parameters\":{{\"binary_data_size\":{}}}}}", raw.len());
        return Ok(Some(raw));
    }
    out.push_str(",\"data\":");
    write::flat(out, tensor)?;
    out.push('}');
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_as_json_and_raw() {
        let tensor = Tensor::vector(&[1.5f32, -2.0]).unwrap();
        let mut out = String::new();
        assert_eq!(output(&mut out, "y", &tensor, false).unwrap(), None);
        assert_eq!(out, r#"{"name":"y","datatype":"FP32","shape":[2],"data":[1.5, -2.0]}"#);
        out.clear();
        let raw = output(&mut out, "y", &tensor, true).unwrap().unwrap();
        assert_eq!(&raw[..], b"\0\0\xc0\x3f\0\0\0\xc0");
        assert!(out.ends_with(r#""parameters":{"binary_data_size":8}}"#), "{out}");
        out.clear();
        output(&mut out, "s", &Tensor::scalar_string("a\"b"), false).unwrap();
        assert_eq!(out, r#"{"name":"s","datatype":"BYTES","shape":[],"data":["a\"b"]}"#);
    }
}
