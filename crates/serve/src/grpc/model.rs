//! `ModelService`.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use thalweg_proto::tensorflow::serving as pb;
use thalweg_rpc::{MessageBody, decode, message};
use thalweg_tensor::{Result, bail, err};
use tracing::warn;

use super::prediction::model_name;
use super::{Call, Services};
use crate::config;
use crate::engine::Engine;
use crate::metrics::{Api, Entry, counters};

impl Services {
    pub(super) async fn model<B>(
        &self,
        method: &str,
        call: Call<B>,
    ) -> Result<Response<MessageBody>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let rope = self.message(call, &[]).await?;
        let engine = &*self.engine;
        match method {
            "GetModelStatus" => {
                let request: pb::GetModelStatusRequest = decode(rope)?;
                let answer = async {
                    let model_version_status = engine.store.status(request.model_spec.as_ref())?;
                    Ok(pb::GetModelStatusResponse { model_version_status })
                };
                let name = model_name(request.model_spec.as_ref());
                let answer = engine.counted(name, Api::GetModelStatus, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            "HandleReloadConfigRequest" => {
                let request: pb::ReloadConfigRequest = decode(rope)?;
                let answer = async {
                    let config = request.config.as_ref();
                    let config =
                        config.ok_or_else(|| err!(InvalidArgument, "the request has no config"))?;
                    let models = config::models(config)?;
                    for what in config::without_effect(config) {
                        warn!(target: "thalweg::serve", "{what}");
                    }
                    let before = counted(engine, &request.metric_names);
                    engine.store.reload(models).await?;
                    let after = counted(engine, &request.metric_names);
                    let status = Some(pb::StatusProto::default());
                    Ok(pb::ReloadConfigResponse { status, metric: increases(&before, after) })
                };
                let answer = engine.counted("", Api::ReloadConfig, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            _ => bail!(Unimplemented, "tensorflow.serving.ModelService has no method {method}"),
        }
    }
}

/// Values of the named counters; empty if the request names none.
fn counted(engine: &Engine, names: &[String]) -> BTreeMap<String, i64> {
    if names.is_empty() {
        return BTreeMap::new();
    }
    counters(&engine.metrics_text(), names)
}

/// The increase of each counter.
fn increases(before: &BTreeMap<String, i64>, after: BTreeMap<String, i64>) -> Vec<pb::Metric> {
    let one = |(name, value): (String, i64)| {
        let increase = value - before.get(&name).copied().unwrap_or(0);
        let value_increase = Some(pb::metric::ValueIncrease::Int64ValueIncrease(increase));
        pb::Metric { name, value_increase }
    };
    after.into_iter().map(one).collect()
}
