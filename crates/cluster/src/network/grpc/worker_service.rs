//! TensorFlow's `WorkerService` over gRPC.

use std::sync::Weak;

use http::Response;
use thalweg_kernel::{Cancellation, Value};
use thalweg_proto as pb;
use thalweg_rpc::{MessageBody, Rope, decode, message};
use thalweg_runtime::on_pool;
use thalweg_tensor::{Code, Result, bail, err};
use tokio::sync::oneshot;

use super::answer;
use super::service::{Service, decode_step};
use crate::master::session::feeds_of;
use crate::worker::TensorRequest;

/// Calls a function when it is dropped, unless it was disarmed: the caller of an RPC is gone.
struct EndOnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> EndOnDrop<F> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for EndOnDrop<F> {
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
            "RunGraph" => self.run_graph(decode_step(rope).await?, connection).await,
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
                    Err(e) if e.code() == Code::Aborted => answer::restarted(&e),
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
            _ => bail!(Unimplemented, "tensorflow.WorkerService has no {method}"),
        })
    }

    async fn recv_tensor(&self, request: &pb::RecvTensorRequest) -> Response<MessageBody> {
        let result = match self.worker.tensor_request(request) {
            Ok(asked) => received(asked, request).await,
            Err(e) => Err(e),
        };
        if let Err(e) = &result
            && self.worker.is_of_another_start(&request.rendezvous_key)
        {
            return answer::restarted(e);
        }
        let clock = &self.master.task().options.environment.clock;
        answer::received(result, clock.wall())
    }

    async fn run_graph(
        &self,
        mut request: pb::RunGraphRequest,
        connection: &Weak<()>,
    ) -> Response<MessageBody> {
        let errors_in_body = request.store_errors_in_response_body;
        let sent = std::mem::take(&mut request.send);
        let sent = match feeds_of(sent, &self.master.task().budget) {
            Ok(sent) => sent,
            Err(e) => return answer::ran(Err(e), errors_in_body),
        };
        let cancellation = Cancellation::default();
        let of_guard = cancellation.clone();
        let guard = EndOnDrop(Some(move || {
            of_guard.cancel(err!(Cancelled, "the master gave the step up, or is gone"));
        }));
        let (tell, told) = oneshot::channel();
        let connection = Some(connection.clone());
        self.worker.run_graph(&request, sent, connection, &cancellation, move |result| {
            let _ = tell.send(result);
        });
        let result = told.await.unwrap_or_else(|_| Err(err!(Internal, "the step was dropped")));
        guard.disarm();
        answer::ran(result, errors_in_body)
    }
}

/// The requested tensor, once it has been sent. Dropping the future cancels the request.
async fn received(asked: TensorRequest, request: &pb::RecvTensorRequest) -> Result<Value> {
    let (tell, told) = oneshot::channel();
    let of_guard = asked.clone();
    let guard = EndOnDrop(Some(move || of_guard.give_up()));
    asked.receive(&request.rendezvous_key, move |result| {
        // The receiver is gone if the call was cancelled.
        let _ = tell.send(result);
    });
    let step = request.step_id;
    let result = told.await.unwrap_or_else(|_| Err(err!(Aborted, "step {step} is over")));
    guard.disarm();
    result
}
