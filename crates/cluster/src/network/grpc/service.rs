//! The gRPC services of a task: routes requests by path, decodes them, calls the master, encodes responses.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use prost::Message;
use thalweg_kernel::Cancellation;
use thalweg_proto as pb;
use thalweg_rpc::{
    MessageBody, ReceiveLimits, Rope, decode, is_large, message, not_grpc, parse_timeout, read,
    status,
};
use thalweg_runtime::on_pool;
use thalweg_tensor::{Result, bail, err};
use tokio::sync::{oneshot, watch};

use super::methods::request_tensors;
use super::responses;
use crate::master::Master;
use crate::master::discover::{cleanup_all, discover};
use crate::network::stream::hello::{HelloRequest, HelloResponse};
use crate::worker::Worker;

/// The services of one task.
pub(crate) struct Service {
    pub(crate) master: Arc<Master>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) message_bytes_max: usize,
    /// The response of `Hello`, once the task listens for streams.
    pub(crate) hello: OnceLock<HelloResponse>,
    /// Whether the server is shutting down.
    pub(crate) is_stopping: AtomicBool,
    /// Whether `Stop` is allowed.
    pub(crate) may_be_stopped: bool,
    /// Set by `Stop`: how long to wait for sessions to be closed.
    pub(crate) stop_requested: watch::Sender<Option<Duration>>,
}

/// Cancels a step when its call is dropped: the client cancelled the call or disconnected.
struct CancelOnDrop<'a> {
    cancellation: Cancellation,
    is_armed: bool,
    service: &'a Service,
    session: String,
    connection: &'a Weak<()>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.cancellation
                .cancel(err!(Cancelled, "the client disconnected or cancelled the call"));
            self.service.master.note_lost_call(&self.session, self.connection.clone());
        }
    }
}

impl Service {
    /// Answers one request, within its `grpc-timeout`.
    pub(crate) async fn respond<B>(
        &self,
        request: Request<B>,
        connection: &Weak<()>,
    ) -> Response<MessageBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let timeout = request.headers().get("grpc-timeout").and_then(|t| t.to_str().ok());
        let Some(timeout) = timeout.and_then(parse_timeout) else {
            return self.dispatch(request, connection).await;
        };
        match tokio::time::timeout(timeout, self.dispatch(request, connection)).await {
            Ok(response) => response,
            Err(_) => status(&err!(DeadlineExceeded, "Deadline Exceeded")),
        }
    }

    async fn dispatch<B>(&self, request: Request<B>, connection: &Weak<()>) -> Response<MessageBody>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        if request.method() != Method::POST {
            return status(&err!(Unimplemented, "gRPC calls are POST requests"));
        }
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        if !content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            return not_grpc();
        }
        let path = request.uri().path().to_owned();
        let result = match path.rsplit_once('/') {
            Some(("/tensorflow.MasterService", method)) => {
                let tensors = request_tensors(method);
                match read(request.into_body(), self.limits(), tensors).await {
                    Ok(rope) => self.master_call(method, rope, connection).await,
                    Err(e) => Err(e),
                }
            }
            Some(("/tensorflow.WorkerService", method)) => {
                let tensors = request_tensors(method);
                match read(request.into_body(), self.limits(), tensors).await {
                    Ok(rope) => self.worker_call(method, rope, connection).await,
                    Err(e) => Err(e),
                }
            }
            Some(("/thalweg.Peer", "Hello")) => {
                let rope = read(request.into_body(), self.limits(), &[]).await;
                rope.and_then(|rope| self.hello(rope))
            }
            Some(("/thalweg.Peer", "Trace")) => {
                match read(request.into_body(), self.limits(), &[]).await {
                    Ok(rope) => self.trace(rope).await,
                    Err(e) => Err(e),
                }
            }
            Some(("/thalweg.Peer", method)) => {
                let rope = read(request.into_body(), self.limits(), &[]).await;
                rope.and_then(|rope| self.peer_call(method, rope))
            }
            Some(("/grpc.health.v1.Health", method)) => {
                let rope = read(request.into_body(), self.limits(), &[]).await;
                rope.and_then(|rope| self.health_call(method, rope))
            }
            Some(("/tensorflow.eager.EagerService", _)) => Err(err!(
                Unimplemented,
                "eager execution on remote tasks is not supported; graphs and sessions \
                 (tf.compat.v1.Session with this server as its target) are"
            )),
            _ => Err(err!(Unimplemented, "{path} is not a method of this server")),
        };
        result.unwrap_or_else(|e| status(&e))
    }

    /// `/thalweg.Peer/Hello`: the address of the stream server.
    fn hello(&self, rope: Rope) -> Result<Response<MessageBody>> {
        let _: HelloRequest = decode(rope)?;
        let hello = self.hello.get();
        let hello = hello
            .ok_or_else(|| err!(Unimplemented, "this task does not serve the stream protocol"))?;
        Ok(message(hello))
    }

    fn limits(&self) -> ReceiveLimits<'_> {
        let incoming = &self.master.task().incoming;
        ReceiveLimits { message_bytes_max: self.message_bytes_max, incoming }
    }

    async fn master_call(
        &self,
        method: &str,
        rope: Rope,
        connection: &Weak<()>,
    ) -> Result<Response<MessageBody>> {
        let master = self.master.clone();
        Ok(match method {
            "RunStep" => self.run_step(decode_request(rope).await?, connection).await,
            "RunCallable" => self.run_callable(decode_request(rope).await?, connection).await,
            "CreateSession" => {
                let request: pb::CreateSessionRequest = on_pool(move || decode(rope)).await?;
                message(&master.open_session(request).await?)
            }
            "ExtendSession" => {
                let request: pb::ExtendSessionRequest = on_pool(move || decode(rope)).await?;
                if let Some(peers) = master.peers_of(&request.session_handle) {
                    discover(&peers, request.graph_def.as_ref()).await?;
                }
                message(&on_pool(move || master.extend_session(request)).await?)
            }
            "MakeCallable" => {
                let request = decode(rope)?;
                message(&on_pool(move || master.make_callable(&request)).await?)
            }
            "PartialRunSetup" => {
                let request = decode(rope)?;
                message(&on_pool(move || master.partial_run_setup(&request)).await?)
            }
            "CloseSession" => {
                let request = decode(rope)?;
                message(&on_pool(move || master.close_session(&request)).await?)
            }
            "Reset" => {
                let request: pb::ResetRequest = decode(rope)?;
                let containers = request.container.clone();
                let response = on_pool(move || Ok(master.reset(&request))).await?;
                cleanup_all(self.master.member(), &containers).await;
                message(&response)
            }
            "ReleaseCallable" => message(&master.release_callable(&decode(rope)?)?),
            "ListDevices" => message(&master.list_devices(&decode(rope)?)?),
            _ => bail!(Unimplemented, "tensorflow.MasterService has no method {method}"),
        })
    }

    fn guard<'a>(&'a self, session: &str, connection: &'a Weak<()>) -> CancelOnDrop<'a> {
        CancelOnDrop {
            cancellation: Cancellation::default(),
            is_armed: true,
            service: self,
            session: session.to_owned(),
            connection,
        }
    }

    async fn run_step(
        &self,
        request: pb::RunStepRequest,
        connection: &Weak<()>,
    ) -> Response<MessageBody> {
        let errors_in_body = request.store_errors_in_response_body;
        let mut guard = self.guard(&request.session_handle, connection);
        let (sender, receiver) = oneshot::channel();
        self.master.run_step(request, &guard.cancellation, move |result| {
            // The receiver is dropped if the call was cancelled.
            let _ = sender.send(result);
        });
        let result = receiver.await.unwrap_or_else(|_| {
            Err(err!(Internal, "internal error: the step was dropped without a result"))
        });
        guard.is_armed = false;
        responses::run_step_response(result, errors_in_body)
    }

    async fn run_callable(
        &self,
        request: pb::RunCallableRequest,
        connection: &Weak<()>,
    ) -> Response<MessageBody> {
        let mut guard = self.guard(&request.session_handle, connection);
        let (sender, receiver) = oneshot::channel();
        self.master.run_callable(request, &guard.cancellation, move |result| {
            let _ = sender.send(result);
        });
        let result = receiver.await.unwrap_or_else(|_| {
            Err(err!(Internal, "internal error: the step was dropped without a result"))
        });
        guard.is_armed = false;
        responses::run_callable_response(result)
    }
}

/// Decodes a request, on the pool if it is large.
pub(super) async fn decode_request<M: Message + Default + 'static>(rope: Rope) -> Result<M> {
    if is_large(&rope) { on_pool(move || decode(rope)).await } else { decode(rope) }
}
