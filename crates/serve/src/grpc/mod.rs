//! TensorFlow Serving's gRPC services and KServe's, by path.

mod body;
mod compressed;
mod decoded_size;
mod health;
mod incoming;
mod kserve;
mod model;
mod outputs;
mod prediction;
mod reflection;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use prost::Message;
use thalweg_rpc::{
    FieldPath, MessageBody, ReceiveLimits, Rope, decode, is_large, not_grpc, parse_timeout, read,
    status,
};
use thalweg_runtime::on_pool;
use thalweg_tensor::{Result, err};

pub(crate) use body::GrpcBody;

use crate::connection::{Call as OpenCall, Calls};
use crate::engine::Engine;
use crate::inflate::Encoding;

/// Answers gRPC calls.
pub(crate) struct Services {
    pub(crate) engine: Arc<Engine>,
    /// The calls of the connection.
    pub(crate) calls: Arc<Calls>,
    pub(crate) message_bytes_max: usize,
    pub(crate) has_session_service: bool,
}

impl Services {
    /// Answers one call within its deadline (`grpc-timeout`).
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<GrpcBody>
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let call = self.calls.begin();
        let timeout = request.headers().get("grpc-timeout").and_then(|t| t.to_str().ok());
        let Some(timeout) = timeout.and_then(parse_timeout) else {
            return self.with_charge(self.dispatch(request).await, call);
        };
        match tokio::time::timeout(timeout, self.dispatch(request)).await {
            Ok(response) => self.with_charge(response, call),
            Err(_) => whole(status(&err!(DeadlineExceeded, "Deadline Exceeded"))),
        }
    }

    fn with_charge(&self, response: Response<GrpcBody>, call: OpenCall) -> Response<GrpcBody> {
        let (parts, body) = response.into_parts();
        match body.with_charge(call, &self.engine.incoming) {
            Ok(body) => Response::from_parts(parts, body),
            Err(e) => whole(status(&e)),
        }
    }

    async fn dispatch<B>(&self, request: Request<B>) -> Response<GrpcBody>
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: std::fmt::Display,
    {
        if request.method() != Method::POST {
            return whole(status(&err!(Unimplemented, "gRPC calls are POST requests")));
        }
        let kind = request.headers().get(http::header::CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
            return whole(not_grpc());
        }
        let path = request.uri().path().to_owned();
        let encoding = match compressed::encoding(request.headers()) {
            Ok(encoding) => encoding,
            Err(e) => return whole(status(&e)),
        };
        let body = Call { body: request.into_body(), encoding };
        let result = match path.rsplit_once('/') {
            Some(("/tensorflow.serving.PredictionService", method)) => {
                self.prediction(method, body).await.map(whole)
            }
            Some(("/tensorflow.serving.ModelService", method)) => {
                self.model(method, body).await.map(whole)
            }
            Some(("/tensorflow.serving.SessionService", method)) if self.has_session_service => {
                self.session(method, body).await.map(whole)
            }
            Some(("/inference.GRPCInferenceService", method)) => {
                self.kserve(method, body).await.map(whole)
            }
            Some(("/grpc.health.v1.Health", method)) => self.health(method, body).await,
            Some((
                "/grpc.reflection.v1.ServerReflection"
                | "/grpc.reflection.v1alpha.ServerReflection",
                method,
            )) => self.reflection(method, body),
            _ => Err(err!(Unimplemented, "{path} is not a method of this server")),
        };
        result.unwrap_or_else(|e| whole(status(&e)))
    }

    /// Reads the one message of a unary call, whose tensors are at `path`.
    async fn message<B>(&self, call: Call<B>, path: FieldPath) -> Result<Rope>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let limits = ReceiveLimits {
            message_bytes_max: self.message_bytes_max,
            incoming: &self.engine.incoming,
        };
        match call.encoding {
            None => read(call.body, limits, path).await,
            Some(encoding) => compressed::read(call.body, limits, encoding).await,
        }
    }
}

/// Decodes a request, on the pool if it is large.
async fn decode_request<M: Message + Default + 'static>(rope: Rope) -> Result<M> {
    if is_large(&rope) { on_pool(move || decode(rope)).await } else { decode(rope) }
}

/// An unparsed call.
pub(crate) struct Call<B> {
    body: B,
    encoding: Option<Encoding>,
}

fn whole(response: Response<MessageBody>) -> Response<GrpcBody> {
    response.map(GrpcBody::whole)
}
