//! Configuration: models, their folders, and the versions to serve.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_formats::Storage;
use thalweg_proto::tensorflow::serving::{self, model_server_config::Config};
use thalweg_proto::{self as pb, Codec};
use thalweg_tensor::{Context, Result, bail, ensure, err};

use crate::policy::VersionPolicy;

/// The configuration of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The name that requests use.
    pub name: String,
    /// The folder that holds its versions, each in a folder whose name is the version number.
    pub base_path: String,
    /// Which versions are served.
    pub policy: VersionPolicy,
    /// Version labels.
    pub labels: BTreeMap<String, i64>,
}

impl ModelConfig {
    /// A model whose latest version under a folder is served.
    pub fn new(name: impl Into<String>, base_path: impl Into<String>) -> ModelConfig {
        ModelConfig {
            name: name.into(),
            base_path: base_path.into(),
            policy: VersionPolicy::default(),
            labels: BTreeMap::new(),
        }
    }

    fn from_proto(proto: &serving::ModelConfig) -> Result<ModelConfig> {
        let name = &proto.name;
        ensure!(!name.is_empty(), InvalidArgument, "the model has no name");
        ensure!(
            !name.contains(['/', ':']),
            InvalidArgument,
            "a model's name must not contain '/' or ':', which separate the parts of a request's path"
        );
        ensure!(!proto.base_path.is_empty(), InvalidArgument, "the model has no base_path");
        ensure!(
            matches!(proto.model_platform.as_str(), "" | "tensorflow"),
            InvalidArgument,
            "the model_platform '{}' is not supported; expected 'tensorflow'",
            proto.model_platform
        );
        Ok(ModelConfig {
            name: name.clone(),
            base_path: proto.base_path.clone(),
            policy: VersionPolicy::from_proto(proto.model_version_policy.as_ref())?,
            labels: proto.version_labels.clone(),
        })
    }
}

/// The settings of a configuration that are accepted and have no effect, as sentences.
pub fn without_effect(config: &serving::ModelServerConfig) -> Vec<String> {
    let Some(Config::ModelConfigList(list)) = &config.config else { return Vec::new() };
    let logs = list.config.iter().filter(|proto| proto.logging_config.is_some());
    let one = |proto: &serving::ModelConfig| {
        format!(
            "model '{}': logging_config has no effect here: requests are not logged",
            proto.name
        )
    };
    logs.map(one).collect()
}

/// The models of a configuration; their names are distinct.
pub fn models(config: &serving::ModelServerConfig) -> Result<Vec<ModelConfig>> {
    let list = match &config.config {
        Some(Config::ModelConfigList(list)) => list,
        Some(Config::CustomModelConfig(_)) => {
            bail!(
                Unimplemented,
                "custom_model_config is not supported; name the models in a model_config_list"
            )
        }
        None => bail!(InvalidArgument, "the configuration has no model_config_list"),
    };
    let mut found = Vec::with_capacity(list.config.len());
    for (i, proto) in list.config.iter().enumerate() {
        let at = || format!("model {} '{}' of the model_config_list", i + 1, proto.name);
        found.push(ModelConfig::from_proto(proto).context(at)?);
    }
    check_names(&found)?;
    Ok(found)
}

/// Fails if two models have the same name.
pub fn check_names(models: &[ModelConfig]) -> Result<()> {
    let mut names = BTreeSet::new();
    for model in models {
        ensure!(
            names.insert(&model.name),
            InvalidArgument,
            "two models have the name '{}'",
            model.name
        );
    }
    Ok(())
}

/// The maximum size of a configuration file.
const CONFIG_BYTES_MAX: usize = 16 << 20;

/// Reads a message in protobuf text format from a file.
pub fn read_text<M: Codec>(storage: &dyn Storage, path: &str, full_name: &str) -> Result<M> {
    let bytes = storage.read(path, CONFIG_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| err!(InvalidArgument, "{path}: byte {} is not UTF-8", e.valid_up_to()))?;
    pb::text::decode(full_name, text).map_err(|e| err!(InvalidArgument, "{path}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ModelConfig>> {
        let config: serving::ModelServerConfig =
            pb::text::decode("tensorflow.serving.ModelServerConfig", text).unwrap();
        models(&config)
    }

    #[test]
    fn a_file_of_tensorflow_serving_is_read() {
        let text = r#"
            model_config_list {
              config {
                name: "first"
                base_path: "/models/first"
                model_platform: "tensorflow"
                model_version_policy { specific { versions: 42 versions: 43 } }
                version_labels { key: "stable" value: 42 }
                version_labels { key: "canary" value: 43 }
              }
              config { name: "second", base_path: "/models/second", model_platform: 'tensorflow' }
            }"#;
        let models = read(text).unwrap();
        assert_eq!(models[0].policy, VersionPolicy::Specific(BTreeSet::from([42, 43])));
        assert_eq!((models[0].labels["stable"], models[0].labels["canary"]), (42, 43));
        assert_eq!(models[1], ModelConfig::new("second", "/models/second"));
    }

    #[test]
    fn settings_without_effect_are_named() {
        let text = r#"model_config_list {
            config { name: "a" base_path: "/a" }
            config { name: "b" base_path: "/b" logging_config {
                log_collector_config { type: "t" filename_prefix: "/log" }
                sampling_config { sampling_rate: 0.5 } } } }"#;
        let config = pb::text::decode("tensorflow.serving.ModelServerConfig", text).unwrap();
        let [warning] = &without_effect(&config)[..] else { panic!("one model has it") };
        assert!(warning.starts_with("model 'b': logging_config has no effect"), "{warning}");
        assert_eq!(models(&config).unwrap().len(), 2);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("", "no model_config_list"),
            ("model_config_list { config { base_path: '/a' } }", "the model has no name"),
            ("model_config_list { config { name: 'a' } }", "model 1 'a'"),
            (
                "model_config_list { config { name: 'a/b' base_path: '/a' } }",
                "must not contain '/' or ':'",
            ),
            (
                "model_config_list { config { name: 'a' base_path: '/a' model_platform: 'onnx' } }",
                "'onnx' is not supported",
            ),
            (
                "model_config_list { config { name: 'a' base_path: '/a' } \
                 config { name: 'a' base_path: '/b' } }",
                "two models have the name 'a'",
            ),
            ("custom_model_config {}", "custom_model_config is not supported"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message().contains(words), "{text}: {error}");
        }
    }
}
