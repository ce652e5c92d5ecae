//! Hyperparameters of a run, for TensorBoard's HParams plugin.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use thalweg_proto as pb;
use thalweg_tensor::{DType, Result, Shape, Tensor};

use super::summary::for_plugin;

/// The value of a hyperparameter.
#[derive(Clone, Debug, PartialEq)]
pub enum HParam {
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// A bool.
    Flag(bool),
}

/// The summary value that begins a run: its hyperparameters, and the name of its session group.
pub fn session_start(
    hparams: &BTreeMap<String, HParam>,
    group: &str,
    start: Duration,
) -> Result<pb::summary::Value> {
    let kind = |value: &HParam| match value {
        HParam::Number(number) => Kind::Number(*number),
        HParam::Text(text) => Kind::Text(text.clone()),
        HParam::Flag(flag) => Kind::Flag(*flag),
    };
    let hparams = hparams.iter().map(|(n, v)| (n.clone(), Value { kind: Some(kind(v)) })).collect();
    let info = SessionStartInfo {
        hparams,
        group_name: group.to_owned(),
        start_time_secs: start.as_secs_f64(),
    };
    value("_hparams_/session_start_info", &PluginData { start: Some(info), end: None })
}

/// The summary value that ends a run, with its status.
pub fn session_end(is_success: bool, end: Duration) -> Result<pb::summary::Value> {
    const SUCCESS: i32 = 1;
    const FAILURE: i32 = 2;
    let status = if is_success { SUCCESS } else { FAILURE };
    let info = SessionEndInfo { status, end_time_secs: end.as_secs_f64() };
    value("_hparams_/session_end_info", &PluginData { start: None, end: Some(info) })
}

fn value(tag: &str, data: &PluginData) -> Result<pb::summary::Value> {
    // The plugin reads the metadata only; the dashboard requires that a tensor is present.
    let nothing = Tensor::zeros(DType::Float, Shape::new(&[0])?)?;
    let content = data.encode_to_vec().into();
    for_plugin(tag, "hparams", content, pb::DataClass::Tensor, &nothing)
}

/// `tensorboard.hparams.HParamsPluginData`: one of the two is there.
#[derive(Clone, PartialEq, Message)]
struct PluginData {
    #[prost(message, optional, tag = "3")]
    start: Option<SessionStartInfo>,
    #[prost(message, optional, tag = "4")]
    end: Option<SessionEndInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionStartInfo {
    #[prost(btree_map = "string, message", tag = "1")]
    hparams: BTreeMap<String, Value>,
    #[prost(string, tag = "4")]
    group_name: String,
    #[prost(double, tag = "5")]
    start_time_secs: f64,
}

#[derive(Clone, PartialEq, Message)]
struct SessionEndInfo {
    #[prost(int32, tag = "1")]
    status: i32,
    #[prost(double, tag = "2")]
    end_time_secs: f64,
}

/// `google.protobuf.Value`, as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "2, 3, 4")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Flag(bool),
}
