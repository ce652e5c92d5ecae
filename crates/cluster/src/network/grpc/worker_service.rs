//! TensorFlow's `WorkerService` over gRPC.

use std::sync::Weak;

use http::Response;
use thalweg_kernel::{Cancellation, Value};
use thalweg_proto as pb;
use thalweg_rpc::{MessageBody, Rope, decode, message};
use thalweg_runtime::on_pool;
use thalweg_tensor::{Code, Result, bail, err};
use tokio::sync::oneshot;

use super::responses;
use super::service::{Service, decode_request};
use crate::master::session::decode_feeds;
use crate::worker::TensorRequest;

/// Calls a function when it is dropped, unless it was disarmed: the caller cancelled the RPC or disconnected.
struct CallOnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> CallOnDrop<F> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl Service {
    pub(super) async fn worker_call(
        &self,
        method: &str,
        rope: Rope,
        connection: &Weak<()>,
    ) -> Result<Response<MessageBody>> {
        let worker = self.worker.clone();
        Ok(match method {
            "RecvTensor" => self.recv_tensor(&decode(rope)?).await,
            "RunGraph" => self.run_graph(decode_request(rope).await?, connection).await,
            "CleanupGraph" => message(&worker.cleanup_graph(&decode(rope)?)),
            "GetStatus" => message(&worker.get_status()),
            "CreateWorkerSession" => {
                let request = decode(rope)?;
                message(&on_pool(move || worker.create_session(&request)).await?)
            }
            "DeleteWorkerSession" => {
                let request = decode(rope)?;
                message(&on_pool(move || Ok(worker.delete_session(&request))).await?)
            }
            "RegisterGraph" => {
                match on_pool(move || worker.register_graph(decode(rope)?)).await {
                    Ok(response) => message(&response),
                    // The worker session is not known.
                    Err(e) if e.code() == Code::Aborted => responses::restarted_status(&e),
                    Err(e) => return Err(e),
                }
            }
            "DeregisterGraph" => {
                let request = decode(rope)?;
                message(&on_pool(move || worker.deregister_graph(&request)).await?)
            }
            "CleanupAll" => {
                let request = decode(rope)?;
                message(&on_pool(move || Ok(worker.cleanup_all(&request))).await?)
            }
            "Logging" => message(&worker.logging(&decode(rope)?)),
            "MarkRecvFinished" => message(&pb::MarkRecvFinishedResponse {}),
            _ => bail!(Unimplemented, "tensorflow.WorkerService has no method {method}"),
        })
    }

    async fn recv_tensor(&self, request: &pb::RecvTensorRequest) -> Response<MessageBody> {
        let result = match self.worker.tensor_request(request) {
            Ok(tensor_request) => received(tensor_request, request).await,
            Err(e) => Err(e),
        };
        if let Err(e) = &result
            && self.worker.has_other_incarnation(&request.rendezvous_key)
        {
            return responses::restarted_status(e);
        }
        let clock = &self.master.task().options.environment.clock;
        responses::recv_tensor_response(result, clock.wall())
    }

    async fn run_graph(
        &self,
        mut request: pb::RunGraphRequest,
        connection: &Weak<()>,
    ) -> Response<MessageBody> {
        let errors_in_body = request.store_errors_in_response_body;
        let sent = std::mem::take(&mut request.send);
        let sent = match decode_feeds(sent, &self.master.task().budget) {
            Ok(sent) => sent,
            Err(e) => return responses::run_graph_response(Err(e), errors_in_body),
        };
        let cancellation = Cancellation::default();
        let guarded = cancellation.clone();
        let guard = CallOnDrop(Some(move || {
            guarded.cancel(err!(Cancelled, "the master cancelled RunGraph or disconnected"));
        }));
        let (sender, receiver) = oneshot::channel();
        let connection = Some(connection.clone());
        self.worker.run_graph(&request, sent, connection, &cancellation, move |result| {
            let _ = sender.send(result);
        });
        let result = receiver.await.unwrap_or_else(|_| {
            Err(err!(Internal, "internal error: the step was dropped without a result"))
        });
        guard.disarm();
        responses::run_graph_response(result, errors_in_body)
    }
}

/// The requested tensor, once it has been sent. Dropping the future cancels the request.
async fn received(tensor_request: TensorRequest, request: &pb::RecvTensorRequest) -> Result<Value> {
    let (sender, receiver) = oneshot::channel();
    let guarded = tensor_request.clone();
    let guard = CallOnDrop(Some(move || guarded.cancel()));
    tensor_request.receive(&request.rendezvous_key, move |result| {
        // The receiver is dropped if the call was cancelled.
        let _ = sender.send(result);
    });
    let step = request.step_id;
    let result = receiver.await.unwrap_or_else(|_| Err(err!(Aborted, "step {step} has ended")));
    guard.disarm();
    result
}
