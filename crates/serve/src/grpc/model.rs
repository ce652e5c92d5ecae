//! `ModelService`.

use bytes::Bytes;
use http::Response;
use http_body::Body;
use thalweg_cluster::grpc::framing::{Answer, decode, message};
use thalweg_proto::tensorflow::serving as pb;
use thalweg_tensor::{Result, bail, err};

use super::prediction::model_name;
use super::{Call, Services};
use crate::config;
use crate::metrics::{Api, Entry};

impl Services {
    pub(super) async fn model<B>(&self, method: &str, call: Call<B>) -> Result<Response<Answer>>
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
                        config.ok_or_else(|| err!(InvalidArgument, "there is no config"))?;
                    let models = config::models(config)?;
                    config::without_effect(config).iter().for_each(|what| eprintln!("{what}"));
                    engine.store.reload(models).await?;
                    Ok(pb::ReloadConfigResponse {
                        status: Some(pb::StatusProto::default()),
                        metric: Vec::new(),
                    })
                };
                let answer = engine.counted("", Api::ReloadConfig, Entry::Grpc, answer).await?;
                Ok(message(&answer))
            }
            _ => bail!(Unimplemented, "tensorflow.serving.ModelService has no {method}"),
        }
    }
}
