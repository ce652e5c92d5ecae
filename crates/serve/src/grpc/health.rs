//! `grpc.health.v1.Health`.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use thalweg_proto::grpc::health::v1 as pb;
use thalweg_proto::grpc::health::v1::health_check_response::ServingStatus;
use thalweg_rpc::{decode, message};
use thalweg_tensor::{Result, bail, err};
use tokio::sync::mpsc;

use super::body::framed;
use super::{Call, GrpcBody, Services, whole};
use crate::engine::Engine;

/// Services with a health status; the empty name is the whole server.
const SERVICES: &[&str] = &[
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.SessionService",
    "inference.GRPCInferenceService",
];
/// Interval at which `Watch` checks for a change.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);

impl Services {
    pub(super) async fn health<B>(&self, method: &str, call: Call<B>) -> Result<Response<GrpcBody>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let rope = self.message(call, &[]).await?;
        let request: pb::HealthCheckRequest = decode(rope)?;
        let is_known = SERVICES.contains(&request.service.as_str());
        match method {
            "Check" if is_known => Ok(whole(message(&health(&self.engine, true)))),
            "Check" => Err(err!(NotFound, "there is no service '{}'", request.service)),
            "Watch" => {
                let (sender, receiver) = mpsc::channel(1);
                let engine = self.engine.clone();
                tokio::spawn(async move {
                    let mut last = None;
                    loop {
                        let now = health(&engine, is_known);
                        if last != Some(now.status) {
                            last = Some(now.status);
                            if sender.send(Ok(framed(&now))).await.is_err() {
                                return;
                            }
                        }
                        if sender.is_closed() || engine.is_draining() {
                            return;
                        }
                        tokio::time::sleep(WATCH_INTERVAL).await;
                    }
                });
                Ok(GrpcBody::stream(receiver))
            }
            _ => bail!(Unimplemented, "grpc.health.v1.Health has no method {method}"),
        }
    }
}

fn health(engine: &Engine, is_known: bool) -> pb::HealthCheckResponse {
    let status = match (is_known, engine.is_ready()) {
        (false, _) => ServingStatus::ServiceUnknown,
        (true, true) => ServingStatus::Serving,
        (true, false) => ServingStatus::NotServing,
    };
    pb::HealthCheckResponse { status: status as i32 }
}
