//! `grpc.reflection`: the names of the services, and the descriptors of their messages.
//!
//! Both versions have the same messages on the wire.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Response;
use http_body::Body;
use http_body_util::BodyExt;
use prost::Message;
use prost_reflect::{DescriptorPool, FileDescriptor};
use thalweg_proto::grpc::reflection::v1 as pb;
use thalweg_proto::grpc::reflection::v1::server_reflection_request::MessageRequest;
use thalweg_proto::grpc::reflection::v1::server_reflection_response::MessageResponse;
use thalweg_tensor::{Code, Error, Result, ensure, err};
use tokio::sync::mpsc;

use super::body::framed;
use super::{Call, GrpcBody, Services};
use crate::engine::Engine;

/// Names of files and symbols are short.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Compressed flag and length.
const PREFIX_LEN: usize = 5;
/// Interval at which an idle stream checks whether the server shuts down.
const DRAIN_INTERVAL: Duration = Duration::from_millis(200);

/// Built on the first request.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(thalweg_proto::FILE_DESCRIPTOR_SET)
        .expect("the build of thalweg-proto wrote valid descriptors")
});

impl Services {
    pub(super) fn reflection<B>(&self, method: &str, call: Call<B>) -> Result<Response<GrpcBody>>
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::fmt::Display,
    {
        ensure!(
            method == "ServerReflectionInfo",
            Unimplemented,
            "grpc.reflection.v1.ServerReflection has no method {method}"
        );
        let (sender, receiver) = mpsc::channel(1);
        let services = services(self.has_session_service);
        let stream = Stream { services, sent: BTreeSet::new() };
        tokio::spawn(answer_all(call.body, self.engine.clone(), stream, sender));
        Ok(GrpcBody::stream(receiver))
    }
}

/// The services of a server.
fn services(has_session_service: bool) -> Vec<&'static str> {
    let mut services = vec![
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
        "tensorflow.serving.ModelService",
        "tensorflow.serving.PredictionService",
    ];
    if has_session_service {
        services.push("tensorflow.serving.SessionService");
    }
    services
}

async fn answer_all<B>(
    mut body: B,
    engine: Arc<Engine>,
    mut stream: Stream,
    sender: mpsc::Sender<Result<Bytes>>,
) where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut received = BytesMut::new();
    while !sender.is_closed() && !engine.is_draining() {
        let coming = tokio::time::timeout(DRAIN_INTERVAL, next_data(&mut body));
        let Ok(data) = coming.await else { continue };
        // The caller disconnected, or has sent its last request.
        let Some(data) = data else { return };
        received.extend_from_slice(&data);
        loop {
            let answer = match next_request(&mut received) {
                Ok(None) => break,
                Ok(Some(request)) => Ok(framed(&stream.answer(request))),
                Err(e) => Err(e),
            };
            let is_over = answer.is_err();
            if sender.send(answer).await.is_err() || is_over {
                return;
            }
        }
    }
}

async fn next_data<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Option<Bytes> {
    loop {
        if let Ok(data) = body.frame().await?.ok()?.into_data() {
            return Some(data);
        }
    }
}

/// Removes the next message from the received bytes, if it is complete.
fn next_request(received: &mut BytesMut) -> Result<Option<pb::ServerReflectionRequest>> {
    let Some((prefix, _)) = received.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
    ensure!(prefix[0] == 0, Unimplemented, "compressed messages in streams are not supported");
    let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    ensure!(
        len <= REQUEST_BYTES_MAX,
        ResourceExhausted,
        "the message has {len} bytes; at most {REQUEST_BYTES_MAX} are accepted"
    );
    if received.len() - PREFIX_LEN < len {
        return Ok(None);
    }
    received.advance(PREFIX_LEN);
    let message = received.split_to(len).freeze();
    let request = pb::ServerReflectionRequest::decode(message);
    request.map(Some).map_err(|e| err!(InvalidArgument, "the message cannot be decoded: {e}"))
}

/// State of a reflection stream.
struct Stream {
    services: Vec<&'static str>,
    /// Files that the caller has received.
    sent: BTreeSet<String>,
}

impl Stream {
    fn answer(&mut self, request: pb::ServerReflectionRequest) -> pb::ServerReflectionResponse {
        let answer = self.found(request.message_request.as_ref()).unwrap_or_else(|e| {
            MessageResponse::ErrorResponse(pb::ErrorResponse {
                error_code: e.code() as i32,
                error_message: e.message().to_owned(),
            })
        });
        pb::ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(answer),
        }
    }

    fn found(&mut self, asked: Option<&MessageRequest>) -> Result<MessageResponse> {
        let absent = |what: &str, name: &str| {
            Error::new(Code::NotFound, format!("there is no {what} '{name}'"))
        };
        match asked {
            Some(MessageRequest::ListServices(_)) => {
                let one = |&name: &&str| pb::ServiceResponse { name: name.to_owned() };
                let service = self.services.iter().map(one).collect();
                Ok(MessageResponse::ListServicesResponse(pb::ListServiceResponse { service }))
            }
            Some(MessageRequest::FileByFilename(name)) => {
                let file = POOL.get_file_by_name(name).ok_or_else(|| absent("file", name))?;
                Ok(self.file(&file))
            }
            Some(MessageRequest::FileContainingSymbol(name)) => {
                let file = file_of(name).ok_or_else(|| absent("symbol", name))?;
                Ok(self.file(&file))
            }
            Some(MessageRequest::FileContainingExtension(asked)) => {
                Err(absent("extension of", &asked.containing_type))
            }
            Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
                let found =
                    POOL.get_message_by_name(name).ok_or_else(|| absent("message", name))?;
                let answer = pb::ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: found.extensions().map(|e| e.number() as i32).collect(),
                };
                Ok(MessageResponse::AllExtensionNumbersResponse(answer))
            }
            None => Err(err!(InvalidArgument, "the request names no file, symbol or extension")),
        }
    }

    /// A file, preceded by its imports that the caller has not received.
    fn file(&mut self, file: &FileDescriptor) -> MessageResponse {
        self.sent.insert(file.name().to_owned());
        let mut found = vec![Bytes::from(file.encode_to_vec())];
        let mut imports: Vec<FileDescriptor> = file.dependencies().collect();
        while let Some(import) = imports.pop() {
            if self.sent.insert(import.name().to_owned()) {
                found.push(Bytes::from(import.encode_to_vec()));
                imports.extend(import.dependencies());
            }
        }
        MessageResponse::FileDescriptorResponse(pb::FileDescriptorResponse {
            file_descriptor_proto: found,
        })
    }
}

/// The file that defines a message, enum or service, or a part of one.
fn file_of(symbol: &str) -> Option<FileDescriptor> {
    if let Some(message) = POOL.get_message_by_name(symbol) {
        return Some(message.parent_file());
    }
    if let Some(found) = POOL.get_enum_by_name(symbol) {
        return Some(found.parent_file());
    }
    if let Some(service) = POOL.get_service_by_name(symbol) {
        return Some(service.parent_file());
    }
    let (outer, name) = symbol.rsplit_once('.')?;
    if let Some(message) = POOL.get_message_by_name(outer) {
        let is_part = message.get_field_by_name(name).is_some()
            || message.oneofs().any(|oneof| oneof.name() == name);
        if is_part {
            return Some(message.parent_file());
        }
    }
    if let Some(service) = POOL.get_service_by_name(outer) {
        let is_method = service.methods().any(|method| method.name() == name);
        return is_method.then(|| service.parent_file());
    }
    // The values of an enum are siblings of the enum.
    let mut enums = POOL.all_enums();
    let found = enums.find(|e| e.values().any(|value| value.full_name() == symbol))?;
    Some(found.parent_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream { services: services(true), sent: BTreeSet::new() }
    }

    fn request(stream: &mut Stream, asked: MessageRequest) -> MessageResponse {
        let request =
            pb::ServerReflectionRequest { host: "h".into(), message_request: Some(asked) };
        let answer = stream.answer(request.clone());
        assert_eq!(answer.original_request, Some(request));
        answer.message_response.unwrap()
    }

    fn files(answer: &MessageResponse) -> usize {
        match answer {
            MessageResponse::FileDescriptorResponse(found) => found.file_descriptor_proto.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_service_is_described() {
        let MessageResponse::ListServicesResponse(list) =
            request(&mut stream(), MessageRequest::ListServices(String::new()))
        else {
            panic!("no list")
        };
        assert_eq!(list.service.len(), 7);
        for service in list.service {
            let asked = MessageRequest::FileContainingSymbol(service.name.clone());
            assert!(files(&request(&mut stream(), asked)) > 0, "{}", service.name);
        }
    }

    #[test]
    fn imports_are_sent_once() {
        let mut stream = stream();
        let asked = MessageRequest::FileContainingSymbol("tensorflow.GraphDef".into());
        assert!(files(&request(&mut stream, asked.clone())) > 3);
        assert_eq!(files(&request(&mut stream, asked)), 1);
    }

    #[test]
    fn symbols_of_all_kinds() {
        let name = |symbol: &str| file_of(symbol).map(|file| file.name().to_owned());
        let inference = Some("inference/inference.proto".to_owned());
        for symbol in [
            "inference.ModelInferRequest",
            "inference.ModelInferRequest.InferInputTensor",
            "inference.ModelInferRequest.model_name",
            "inference.InferParameter.parameter_choice",
            "inference.GRPCInferenceService",
            "inference.GRPCInferenceService.ModelInfer",
        ] {
            assert_eq!(name(symbol), inference, "{symbol}");
        }
        let types = Some("tensorflow/core/framework/types.proto".to_owned());
        assert_eq!(name("tensorflow.DataType"), types);
        assert_eq!(name("tensorflow.DT_FLOAT"), types);
        for symbol in ["", ".", "inference", "inference.GRPCInferenceService.No", "no.Such"] {
            assert_eq!(name(symbol), None, "{symbol}");
        }
        for asked in [
            MessageRequest::FileByFilename("no.proto".into()),
            MessageRequest::FileContainingSymbol("no.Such".into()),
            MessageRequest::AllExtensionNumbersOfType("no.Such".into()),
        ] {
            let MessageResponse::ErrorResponse(error) = request(&mut stream(), asked) else {
                panic!("no error")
            };
            assert_eq!(error.error_code, 5);
        }
    }

    #[test]
    fn requests_split_over_frames() {
        let request = pb::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices("*".into())),
        };
        let bytes = framed(&request);
        let mut received = BytesMut::new();
        for byte in bytes.iter().chain(&bytes).take(bytes.len() * 2 - 1) {
            received.extend_from_slice(&[*byte]);
            if received.len() < bytes.len() {
                assert_eq!(next_request(&mut received).unwrap(), None);
            } else {
                assert_eq!(next_request(&mut received).unwrap(), Some(request.clone()));
            }
        }
        for (bytes, words) in [
            (&b"\x01\0\0\0\0"[..], "compressed"),
            (b"\0\xff\xff\xff\xff", "4294967295 bytes"),
            (b"\0\0\0\0\x01\xff", "cannot be decoded"),
        ] {
            let error = next_request(&mut BytesMut::from(bytes)).unwrap_err();
            assert!(error.message().contains(words), "{error}");
        }
    }
}
