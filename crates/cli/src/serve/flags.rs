//! The flags of `thalweg serve`: TensorFlow Serving's, spelled as there, and a few of our own.

use std::str::FromStr;

use tracing::warn;

/// Serve SavedModels over TensorFlow Serving's gRPC and REST interfaces.
///
/// The first lines on standard output are `gRPC listening on HOST:PORT` and `HTTP listening on
/// HOST:PORT`. SIGTERM or SIGINT shuts the server down once the requests in flight are answered, a
/// second signal at once.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Address to listen on [default: loopback]
    #[arg(long, value_name = "HOST")]
    pub(super) host: Option<String>,

    /// Port for gRPC; 0 disables it, `any` picks a free one
    #[arg(long, value_name = "PORT", default_value = "8500")]
    pub(super) port: Port,

    /// Port for HTTP (REST, metrics, health checks); 0 disables it, `any` picks a free one
    #[arg(long = "rest_api_port", value_name = "PORT", default_value = "8501")]
    pub(super) rest_api_port: Port,

    /// A model and the folder of its versions; may be repeated
    #[arg(long = "model", value_name = "NAME=FOLDER")]
    pub(super) models: Vec<String>,

    /// Name of the model at --model_base_path [default: MODEL_NAME, or "default"]
    #[arg(long = "model_name", value_name = "NAME")]
    pub(super) model_name: Option<String>,

    /// Folder that holds the versions of a model, each in a folder whose name is a number
    #[arg(long = "model_base_path", value_name = "FOLDER")]
    pub(super) model_base_path: Option<String>,

    /// File with a ModelServerConfig in protobuf text format: models, version policies, labels
    #[arg(long = "model_config_file", value_name = "FILE")]
    pub(super) model_config_file: Option<String>,

    /// Poll interval of --model_config_file in seconds; 0 reads it once
    #[arg(
        long = "model_config_file_poll_wait_seconds",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    pub(super) model_config_file_poll_wait_seconds: u64,

    /// File with a MonitoringConfig in protobuf text format: whether and where metrics are served
    #[arg(long = "monitoring_config_file", value_name = "FILE")]
    pub(super) monitoring_config_file: Option<String>,

    /// Poll interval for new versions in seconds; 0 polls once
    #[arg(
        long = "file_system_poll_wait_seconds",
        value_name = "SECONDS",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub(super) file_system_poll_wait_seconds: i64,

    /// Number of retries after a version failed to load
    #[arg(long = "max_num_load_retries", value_name = "N", default_value_t = 5)]
    pub(super) max_num_load_retries: u32,

    /// Interval of retries in microseconds
    #[arg(long = "load_retry_interval_micros", value_name = "N", default_value_t = 60_000_000)]
    pub(super) load_retry_interval_micros: u64,

    /// Number of versions that are loaded concurrently [default: 1]
    #[arg(long = "num_load_threads", value_name = "N", default_value_t = 0)]
    pub(super) num_load_threads: u32,

    /// Tags of the MetaGraph, separated by commas
    #[arg(long = "saved_model_tags", value_name = "TAGS", default_value = "serve")]
    pub(super) saved_model_tags: String,

    /// Warm up each version before it is available: with the requests in its assets.extra, else
    /// with zeros
    #[arg(long = "enable_model_warmup", value_name = "BOOL", num_args = 0..=1,
          default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_model_warmup: bool,

    /// Whether versions without warm-up requests are warmed up with zeros
    #[arg(long = "generated_warmup", value_name = "BOOL", num_args = 0..=1,
          default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) generated_warmup: bool,

    /// How often each warm-up request is run
    #[arg(long = "num_request_iterations_for_warmup", value_name = "N")]
    pub(super) num_request_iterations_for_warmup: Option<u32>,

    /// Deadline of an HTTP request in milliseconds
    #[arg(long = "rest_api_timeout_in_ms", value_name = "N", default_value_t = 30_000)]
    pub(super) rest_api_timeout_in_ms: u64,

    /// Allow cross-origin requests over HTTP (CORS)
    #[arg(long = "rest_api_enable_cors_support", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) rest_api_enable_cors_support: bool,

    /// Let callers run any part of a model's graph (SessionService), not only its signatures
    #[arg(long = "enable_session_service", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_session_service: bool,

    /// Order of loading and unloading when a version replaces another: load the new one first, or
    /// unload the old one first
    #[arg(long, value_name = "WHAT", value_enum, default_value = "availability")]
    pub(super) transition: TransitionFlag,

    /// Memory limit for all models in megabytes [default: 80 % of the machine's or container's
    /// memory]
    #[arg(long = "memory_limit", value_name = "MB")]
    pub(super) memory_limit: Option<usize>,

    /// Number of threads that run kernels [default: one per core, or as the container allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,

    /// Seconds that the server continues to serve after a shutdown signal, while it reports that it
    /// is not ready
    #[arg(long = "lame_duck_seconds", value_name = "SECONDS", default_value_t = 0)]
    pub(super) lame_duck_seconds: u32,

    /// Seconds that requests in flight have to end at shutdown
    #[arg(long = "drain_seconds", value_name = "SECONDS", default_value_t = 30)]
    pub(super) drain_seconds: u32,

    /// Load this model, run it, describe it, and exit
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["models", "model_config_file"])]
    pub(super) check: Option<String>,

    /// Print the description as JSON
    #[arg(long, requires = "check")]
    pub(super) json: bool,

    /// Exit when standard input closes, which means that the parent process has ended
    #[arg(long)]
    pub(super) with_parent: bool,

    #[command(flatten)]
    pub(super) batching: BatchingFlags,

    #[command(flatten)]
    pub(super) limits: LimitFlags,

    #[command(flatten)]
    ignored: Ignored,
}

/// Flags of batching.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct BatchingFlags {
    /// Batch requests that arrive at the same time
    #[arg(long = "enable_batching", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_batching: bool,

    /// File with BatchingParameters in protobuf text format; implies --enable_batching
    #[arg(long = "batching_parameters_file", value_name = "FILE")]
    pub(super) batching_parameters_file: Option<String>,

    /// Let the file batching_params.pbtxt in a version's folder override the batching parameters
    #[arg(long = "enable_per_model_batching_parameters", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_per_model_batching_parameters: bool,

    /// Adapt batch sizes and timeouts to the load, with this latency goal
    #[arg(long = "latency_goal_ms", value_name = "MS", conflicts_with = "batching_parameters_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) latency_goal_ms: Option<u32>,

    /// Maximum rows of a batch with --latency_goal_ms
    #[arg(long = "max_batch_rows", value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_batch_rows: u32,
}

/// Limits on clients.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct LimitFlags {
    /// Maximum number of open gRPC connections, and of HTTP connections; further ones wait
    #[arg(long = "max_connections", value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) max_connections: u32,

    /// Maximum size of a gRPC message in megabytes
    #[arg(long = "max_message_mb", value_name = "MB", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub(super) max_message_mb: u32,

    /// Maximum size of an HTTP body in megabytes, compressed or not
    #[arg(long = "max_body_mb", value_name = "MB", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_body_mb: u32,

    /// Idle timeout of a connection in seconds; over HTTP at most 60
    #[arg(long = "idle_seconds", value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) idle_seconds: u32,

    /// Timeout in seconds for a client to read an answer; then its connection is closed
    #[arg(long = "answer_seconds", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) answer_seconds: u32,
}

/// A port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Port {
    None,
    Any,
    Number(u16),
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Port, String> {
        match text {
            "0" => Ok(Port::None),
            "any" => Ok(Port::Any),
            number => number.parse().map(Port::Number).map_err(|_| "no port".to_owned()),
        }
    }
}

/// The order of loading and unloading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TransitionFlag {
    Availability,
    Resources,
}

/// Flags of TensorFlow Serving that have no effect here. They are accepted, so that existing
/// command lines work, and listed on standard error. Flags that affect security (`ssl_config_file`,
/// `grpc_socket_path`) are rejected: a server that listens unencrypted although it was told to
/// encrypt would be worse than none.
#[derive(clap::Args, Clone, Debug)]
struct Ignored {
    #[arg(long = "num_unload_threads", hide = true)]
    num_unload_threads: Option<String>,
    #[arg(long = "rest_api_num_threads", hide = true)]
    rest_api_num_threads: Option<String>,
    #[arg(long = "grpc_max_threads", hide = true)]
    grpc_max_threads: Option<String>,
    #[arg(long = "grpc_channel_arguments", hide = true)]
    grpc_channel_arguments: Option<String>,
    #[arg(long = "tensorflow_session_parallelism", hide = true)]
    tensorflow_session_parallelism: Option<String>,
    #[arg(long = "tensorflow_intra_op_parallelism", hide = true)]
    tensorflow_intra_op_parallelism: Option<String>,
    #[arg(long = "tensorflow_inter_op_parallelism", hide = true)]
    tensorflow_inter_op_parallelism: Option<String>,
    #[arg(long = "per_process_gpu_memory_fraction", hide = true)]
    per_process_gpu_memory_fraction: Option<String>,
    #[arg(long = "flush_filesystem_caches", hide = true, num_args = 0..=1, default_missing_value = "true")]
    flush_filesystem_caches: Option<String>,
    #[arg(long = "allow_version_labels_for_unavailable_models", hide = true, num_args = 0..=1, default_missing_value = "true")]
    allow_version_labels_for_unavailable_models: Option<String>,
    #[arg(long = "enable_signature_method_name_check", hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_signature_method_name_check: Option<String>,
    #[arg(long = "enable_profiler", hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_profiler: Option<String>,
    #[arg(long = "xla_cpu_compilation_enabled", hide = true, num_args = 0..=1, default_missing_value = "true")]
    xla_cpu_compilation_enabled: Option<String>,
    #[arg(long = "skip_initialize_tpu", hide = true, num_args = 0..=1, default_missing_value = "true")]
    skip_initialize_tpu: Option<String>,
    #[arg(long = "platform_config_file", hide = true)]
    platform_config_file: Option<String>,
    #[arg(long = "thread_pool_factory_config_file", hide = true)]
    thread_pool_factory_config_file: Option<String>,
    #[arg(long = "mixed_precision", hide = true)]
    mixed_precision: Option<String>,
    #[arg(long = "num_tflite_pools", hide = true)]
    num_tflite_pools: Option<String>,
    #[arg(long = "num_tflite_interpreters_per_pool", hide = true)]
    num_tflite_interpreters_per_pool: Option<String>,
    #[arg(long = "enable_grpc_healthcheck_service", hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_grpc_healthcheck_service: Option<String>,
    #[arg(long = "enable_serialization_as_tensor_content", hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_serialization_as_tensor_content: Option<String>,
    #[arg(long = "prefer_tflite_model", hide = true, num_args = 0..=1, default_missing_value = "true")]
    prefer_tflite_model: Option<String>,
    #[arg(long = "remove_unused_fields_from_bundle_metagraph", hide = true, num_args = 0..=1, default_missing_value = "true")]
    remove_unused_fields_from_bundle_metagraph: Option<String>,
}

impl Args {
    /// Reports the flags that have no effect.
    pub(super) fn warn_of_ignored(&self) {
        let i = &self.ignored;
        for (name, value) in [
            ("num_unload_threads", &i.num_unload_threads),
            ("rest_api_num_threads", &i.rest_api_num_threads),
            ("grpc_max_threads", &i.grpc_max_threads),
            ("grpc_channel_arguments", &i.grpc_channel_arguments),
            ("tensorflow_session_parallelism", &i.tensorflow_session_parallelism),
            ("tensorflow_intra_op_parallelism", &i.tensorflow_intra_op_parallelism),
            ("tensorflow_inter_op_parallelism", &i.tensorflow_inter_op_parallelism),
            ("per_process_gpu_memory_fraction", &i.per_process_gpu_memory_fraction),
            ("flush_filesystem_caches", &i.flush_filesystem_caches),
            (
                "allow_version_labels_for_unavailable_models",
                &i.allow_version_labels_for_unavailable_models,
            ),
            ("enable_signature_method_name_check", &i.enable_signature_method_name_check),
            ("enable_profiler", &i.enable_profiler),
            ("xla_cpu_compilation_enabled", &i.xla_cpu_compilation_enabled),
            ("skip_initialize_tpu", &i.skip_initialize_tpu),
            ("platform_config_file", &i.platform_config_file),
            ("thread_pool_factory_config_file", &i.thread_pool_factory_config_file),
            ("mixed_precision", &i.mixed_precision),
            ("num_tflite_pools", &i.num_tflite_pools),
            ("num_tflite_interpreters_per_pool", &i.num_tflite_interpreters_per_pool),
            ("enable_grpc_healthcheck_service", &i.enable_grpc_healthcheck_service),
            ("enable_serialization_as_tensor_content", &i.enable_serialization_as_tensor_content),
            ("prefer_tflite_model", &i.prefer_tflite_model),
            (
                "remove_unused_fields_from_bundle_metagraph",
                &i.remove_unused_fields_from_bundle_metagraph,
            ),
        ] {
            if value.is_some() {
                warn!(target: "thalweg::serve", "--{name} has no effect here");
            }
        }
    }
}
