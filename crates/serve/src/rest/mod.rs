//! TensorFlow Serving's REST interface and KServe's, metrics and health checks.

mod body;
mod describe;
mod examples;
#[cfg(test)]
mod hostile_tests;
mod json;
mod kserve;
mod route;
mod tensors;
mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CONTENT_ENCODING, CONTENT_TYPE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use thalweg_proto::tensorflow::serving::ModelSpec;
use thalweg_runtime::on_pool;
use thalweg_tensor::{Charge, Error, Result, Tensor, err};

use self::route::Verb;
use crate::connection::{Call, Calls, with_call};
use crate::engine::Engine;
use crate::growing::GrowingCharge;
use crate::inference::predict;
use crate::metrics::{Api, Entry};

/// Options of the REST interface.
#[derive(Clone, Debug)]
pub struct RestOptions {
    /// The maximum size of a request body, compressed or not.
    pub body_bytes_max: usize,
    /// The deadline of a request, from its head to its answer.
    pub timeout: Duration,
    /// Whether cross-origin requests are allowed (CORS).
    pub cors: bool,
    /// The path of the metrics; none if empty.
    pub metrics_path: Option<String>,
}

impl Default for RestOptions {
    fn default() -> Self {
        RestOptions {
            body_bytes_max: 256 << 20,
            timeout: Duration::from_secs(30),
            cors: false,
            metrics_path: Some("/monitoring/prometheus/metrics".to_owned()),
        }
    }
}

/// Answers HTTP requests.
pub(crate) struct Rest {
    pub(crate) engine: Arc<Engine>,
    /// The calls of the connection.
    pub(crate) calls: Arc<Calls>,
    pub(crate) options: RestOptions,
}

/// Larger bodies are parsed on the thread pool.
const LARGE_BYTES: usize = 64 << 10;

/// A response before it is encoded.
struct Reply {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
    /// The number of JSON bytes, if raw tensors follow.
    json_len: Option<usize>,
    /// The memory charge of the body until it is sent.
    room: Option<Charge>,
}

impl Reply {
    fn json(text: String) -> Reply {
        let (status, body) = (StatusCode::OK, text.into());
        Reply { status, kind: JSON, body, json_len: None, room: None }
    }

    fn text(text: String) -> Reply {
        Reply { kind: TEXT, ..Reply::json(text) }
    }

    fn error(e: &Error) -> Reply {
        Reply { status: route::http_status(e.code()), ..Reply::json(write::error(e.message())) }
    }

    /// JSON followed by raw tensors.
    fn binary(body: Bytes, json_len: usize) -> Reply {
        let status = StatusCode::OK;
        Reply { status, kind: BINARY, body, json_len: Some(json_len), room: None }
    }
}

const BINARY: &str = "application/octet-stream";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Rest {
    /// Answers one request within its deadline.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let call = self.calls.begin();
        let is_gzip_fine = body::accepts_gzip(request.headers());
        let is_head = request.method() == Method::HEAD;
        let late = |_| err!(DeadlineExceeded, "Timed out after {:?}", self.options.timeout);
        let answered = tokio::time::timeout(self.options.timeout, self.dispatch(request)).await;
        let mut reply = answered.map_err(late).flatten().unwrap_or_else(|e| Reply::error(&e));
        let packed = match is_gzip_fine {
            true => {
                let plain = reply.body.clone();
                on_large(plain.len(), move || Ok(body::compressed(&plain))).await.ok().flatten()
            }
            false => None,
        };
        let is_packed = packed.is_some();
        reply.body = packed.unwrap_or(reply.body);
        match Charge::new(&self.engine.incoming, reply.body.len()) {
            Ok(room) => {
                self.response(Reply { room: Some(room), ..reply }, call, (is_packed, is_head))
            }
            Err(e) => self.response(Reply::error(&e), call, (false, is_head)),
        }
    }

    /// The HTTP response, charged until it is sent.
    fn response(
        &self,
        reply: Reply,
        mut call: Call,
        (is_packed, is_head): (bool, bool),
    ) -> Response<Full<Bytes>> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
        if let Some(len) = reply.json_len {
            headers.insert(kserve::JSON_LENGTH, HeaderValue::from(len));
        }
        if self.options.cors {
            allow_all(&mut headers);
        }
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        call.answered(reply.room);
        let bytes = if is_head { Bytes::new() } else { with_call(reply.body, Arc::new(call)) };
        let mut response = Response::new(Full::new(bytes));
        *response.status_mut() = reply.status;
        *response.headers_mut() = headers;
        response
    }

    async fn dispatch<B>(&self, request: Request<B>) -> Result<Reply>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let (method, path) = (&parts.method, parts.uri.path());
        let is_read = *method == Method::GET || *method == Method::HEAD;
        match path {
            "/healthz" | "/livez" if is_read => return Ok(Reply::text("ok\n".to_owned())),
            "/readyz" if is_read => return Ok(self.readiness()),
            _ => {}
        }
        if is_read && self.options.metrics_path.as_deref() == Some(path) {
            return Ok(Reply::text(self.engine.metrics_text()));
        }
        if *method == Method::OPTIONS && self.options.cors {
            return Ok(Reply::text(String::new()));
        }
        if path == "/v2" || path.starts_with("/v2/") {
            return self.kserve(&parts, body).await;
        }
        if !path.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("/v1/")) {
            return route::unknown(method, path);
        }
        let (spec, verb) = route::parse(method, path)?;
        let limit = self.options.body_bytes_max;
        let received = match verb {
            Verb::Status | Verb::Metadata => None,
            _ => Some(body::read(body, &parts.headers, limit, &self.engine.incoming).await?),
        };
        let text = received.as_ref().map(|r| r.bytes.clone()).unwrap_or_default();
        self.model(spec, verb, text).await
    }

    fn readiness(&self) -> Reply {
        if self.engine.is_ready() {
            return Reply::text("ok\n".to_owned());
        }
        let mut text = String::new();
        if self.engine.is_draining() {
            text.push_str("the server is shutting down\n");
        }
        for (name, view) in self.engine.store.views() {
            if view.available.is_empty() {
                text.push_str(&format!("no version of model '{name}' is available\n"));
            }
        }
        Reply { status: StatusCode::SERVICE_UNAVAILABLE, ..Reply::text(text) }
    }

    async fn model(&self, spec: ModelSpec, verb: Verb, text: Bytes) -> Result<Reply> {
        let engine = &*self.engine;
        let name = spec.name.clone();
        let api = match verb {
            Verb::Predict => Api::Predict,
            Verb::Classify => Api::Classify,
            Verb::Regress => Api::Regress,
            Verb::Status => Api::GetModelStatus,
            Verb::Metadata => Api::GetModelMetadata,
        };
        let answer = async {
            match verb {
                Verb::Predict => self.predict(&spec, text).await,
                Verb::Classify | Verb::Regress => self.examples(&spec, verb, text).await,
                Verb::Status => {
                    Ok(Reply::json(describe::status(&engine.store.status(Some(&spec))?)))
                }
                Verb::Metadata => {
                    Ok(Reply::json(describe::metadata(&*engine.store.get(Some(&spec))?)))
                }
            }
        };
        engine.counted(&name, api, Entry::Rest, answer).await
    }

    async fn predict(&self, spec: &ModelSpec, text: Bytes) -> Result<Reply> {
        let servable = self.engine.store.get(Some(spec))?;
        let of_pool = servable.clone();
        let mut room = GrowingCharge::new(&self.engine.incoming);
        let (_room, signature, format, inputs) = on_large(text.len(), move || {
            let members = json::members(&text)?;
            let signature = tensors::signature_name(&members)?.into_owned();
            let (_, found) = of_pool.signature(&signature).map_err(|e| {
                // TensorFlow Serving's code for it here, unlike over gRPC.
                err!(InvalidArgument, "{}", e.message())
            })?;
            let (format, inputs) = tensors::inputs(&members, found, &mut room)?;
            Ok((room, signature, format, inputs))
        })
        .await?;
        let ran = predict(&servable, &signature, inputs, &[]).await?;
        let elements: usize = ran.tensors.iter().map(Tensor::num_elements).sum();
        let room = Charge::new(&self.engine.incoming, write::bytes_max(&ran.tensors)?)?;
        on_large(elements, move || {
            let outputs = ran.method.outputs.iter().map(String::as_str).zip(&ran.tensors);
            let text = write::predictions(format, &outputs.collect::<Vec<_>>())?;
            Ok(Reply { room: Some(room), ..Reply::json(text) })
        })
        .await
    }

    async fn examples(&self, spec: &ModelSpec, verb: Verb, text: Bytes) -> Result<Reply> {
        let servable = self.engine.store.get(Some(spec))?;
        let mut room = GrowingCharge::new(&self.engine.incoming);
        let (_room, signature, input) = on_large(text.len(), move || {
            let members = json::members(&text)?;
            let signature = tensors::signature_name(&members)?.into_owned();
            let input = examples::input(&members, &mut room)?;
            Ok((room, signature, input))
        })
        .await?;
        let count = crate::examples::count(Some(&input));
        let answer = match verb {
            Verb::Classify => {
                let (_, result) =
                    crate::examples::classify(&servable, &signature, Some(&input)).await?;
                write::classifications(&result)
            }
            _ => {
                let (_, result) =
                    crate::examples::regress(&servable, &signature, Some(&input)).await?;
                write::regressions(&result)
            }
        };
        self.engine.metrics.examples(servable.model(), count);
        Ok(Reply::json(answer))
    }
}

/// Runs small work here and large work on the pool: I/O threads must not be blocked.
async fn on_large<T: Send + 'static>(
    size: usize,
    body: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if size < LARGE_BYTES { body() } else { on_pool(body).await }
}

fn allow_all(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("Content-Type, Content-Encoding, Accept, Accept-Encoding"),
    );
}
