//! The flags of `thalweg serve`: ours in kebab-case, and TensorFlow Serving's spellings of the same
//! as hidden aliases, so that its command lines work.

use std::str::FromStr;

use tracing::warn;

use crate::accelerator::AcceleratorFlags;
use crate::ports::parse_port;

/// Serve SavedModels over the gRPC and REST interfaces of TensorFlow Serving and KServe.
///
/// The first lines on standard output are `gRPC listening on HOST:PORT` and `HTTP listening on
/// HOST:PORT`. SIGTERM or SIGINT shuts the server down once the requests in flight are answered, a
/// second signal at once. Flags of tensorflow_model_server are accepted as it spells them
/// (--model_name, --rest_api_port); those that have no effect here are logged.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    pub(super) models: ModelFlags,

    #[command(flatten)]
    pub(super) listen: ListenFlags,

    #[command(flatten)]
    pub(super) loading: LoadingFlags,

    #[command(flatten)]
    pub(super) batching: BatchingFlags,

    #[command(flatten)]
    pub(super) limits: LimitFlags,

    #[command(flatten)]
    pub(super) accelerators: AcceleratorFlags,

    #[command(flatten)]
    pub(super) shutdown: ShutdownFlags,

    /// Load this model, run it, describe it, and exit
    #[arg(long, value_name = "DIR", help_heading = "Check",
          conflicts_with_all = ["models", "model_config_file"])]
    pub(super) check: Option<String>,

    /// Print one JSON object instead of text
    #[arg(long, requires = "check", help_heading = "Check")]
    pub(super) json: bool,

    #[command(flatten)]
    ignored: Ignored,
}

/// Flags that name models.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Models")]
pub(super) struct ModelFlags {
    /// A model and the folder of its versions; may be repeated
    #[arg(long = "model", value_name = "NAME=DIR")]
    pub(super) models: Vec<String>,

    /// Name of the model at --model-base-path [default: MODEL_NAME, or "default"]
    #[arg(long, alias = "model_name", value_name = "NAME")]
    pub(super) model_name: Option<String>,

    /// Folder that holds the versions of a model, each in a folder whose name is a number
    #[arg(long, alias = "model_base_path", value_name = "DIR")]
    pub(super) model_base_path: Option<String>,

    /// File with a ModelServerConfig in protobuf text format: models, version policies, labels
    #[arg(long, alias = "model_config_file", value_name = "FILE")]
    pub(super) model_config_file: Option<String>,

    /// Poll interval of --model-config-file in seconds; 0 reads it once
    #[arg(
        long,
        alias = "model_config_file_poll_wait_seconds",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    pub(super) model_config_file_poll_wait_seconds: u64,

    /// Poll interval for new versions in seconds; 0 polls once
    #[arg(
        long,
        alias = "file_system_poll_wait_seconds",
        value_name = "SECONDS",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub(super) file_system_poll_wait_seconds: i64,

    /// Tags of the MetaGraph, separated by commas
    #[arg(long, alias = "saved_model_tags", value_name = "TAGS", default_value = "serve")]
    pub(super) saved_model_tags: String,

    /// Version transition policy: availability-preserving loads the new version before it unloads
    /// the old one, resource-preserving unloads the old one first
    #[arg(long, value_name = "POLICY", value_enum, default_value = "availability-preserving")]
    pub(super) transition: TransitionFlag,
}

/// Flags of the network interfaces.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Network")]
pub(super) struct ListenFlags {
    /// Address to listen on [default: loopback]
    #[arg(long, value_name = "HOST")]
    pub(super) host: Option<String>,

    /// Port for gRPC; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value = "8500", value_parser = parse_port)]
    pub(super) port: u16,

    /// Port for HTTP (REST, metrics, health checks); 0 picks a free one
    #[arg(long, value_name = "PORT", default_value = "8501", value_parser = parse_port)]
    pub(super) http_port: u16,

    /// TensorFlow Serving's flag: 0 disables HTTP
    #[arg(
        long = "rest_api_port",
        alias = "rest-api-port",
        hide = true,
        conflicts_with = "http_port"
    )]
    pub(super) rest_api_port: Option<RestApiPort>,

    /// Do not listen for gRPC
    #[arg(long)]
    pub(super) no_grpc: bool,

    /// Do not listen for HTTP
    #[arg(long, conflicts_with = "no_grpc")]
    pub(super) no_http: bool,

    /// Deadline of an HTTP request in milliseconds
    #[arg(long, alias = "rest_api_timeout_in_ms", value_name = "MS", default_value_t = 30_000)]
    pub(super) http_timeout_ms: u64,

    /// Allow cross-origin requests over HTTP (CORS)
    #[arg(long, alias = "rest_api_enable_cors_support", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_cors: bool,

    /// Let clients run any part of a model's graph (SessionService), not only its signatures
    #[arg(long, alias = "enable_session_service", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_session_service: bool,

    /// File with a MonitoringConfig in protobuf text format: whether and where metrics are served
    #[arg(long, alias = "monitoring_config_file", value_name = "FILE")]
    pub(super) monitoring_config_file: Option<String>,
}

impl ListenFlags {
    /// The port for gRPC; `None` if it is disabled.
    pub(super) fn grpc(&self) -> Option<u16> {
        (!self.no_grpc).then_some(self.port)
    }

    /// The port for HTTP; `None` if it is disabled.
    pub(super) fn http(&self) -> Option<u16> {
        match self.rest_api_port {
            _ if self.no_http => None,
            Some(RestApiPort(port)) => port,
            None => Some(self.http_port),
        }
    }
}

/// Flags of loading and warming up versions.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Loading and warm-up")]
pub(super) struct LoadingFlags {
    /// Number of retries after a version failed to load
    #[arg(long, alias = "max_num_load_retries", value_name = "N", default_value_t = 5)]
    pub(super) max_num_load_retries: u32,

    /// Interval of retries in microseconds
    #[arg(
        long,
        alias = "load_retry_interval_micros",
        value_name = "MICROSECONDS",
        default_value_t = 60_000_000
    )]
    pub(super) load_retry_interval_micros: u64,

    /// Number of versions that are loaded concurrently; 0 stands for 1
    #[arg(long, alias = "num_load_threads", value_name = "N", default_value_t = 0)]
    pub(super) num_load_threads: u32,

    /// Warm up each version before it is available: with the requests in its assets.extra, else
    /// with zeros
    #[arg(long, alias = "enable_model_warmup", value_name = "BOOL", num_args = 0..=1,
          default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_model_warmup: bool,

    /// Warm up versions that have no recorded requests with zeros
    #[arg(long, alias = "generated_warmup", value_name = "BOOL", num_args = 0..=1,
          default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) generated_warmup: bool,

    /// How often each warm-up request is run [default: 1]
    #[arg(long, alias = "num_request_iterations_for_warmup", value_name = "N")]
    pub(super) num_request_iterations_for_warmup: Option<u32>,
}

/// Flags of batching.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Batching")]
pub(super) struct BatchingFlags {
    /// Batch requests that arrive at the same time
    #[arg(long, alias = "enable_batching", value_name = "BOOL", num_args = 0..=1,
          default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(super) enable_batching: bool,

    /// File with BatchingParameters in protobuf text format; implies --enable-batching
    #[arg(long, alias = "batching_parameters_file", value_name = "FILE")]
    pub(super) batching_parameters_file: Option<String>,

    /// Let the file batching_params.pbtxt in a version's folder override the batching parameters
    #[arg(long, alias = "enable_per_model_batching_parameters", value_name = "BOOL",
          num_args = 0..=1, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set)]
    pub(super) enable_per_model_batching_parameters: bool,

    /// Adapt batch sizes and batching timeouts to the load, with this latency goal in milliseconds
    #[arg(long, alias = "latency_goal_ms", value_name = "MS",
          conflicts_with = "batching_parameters_file",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) latency_goal_ms: Option<u32>,

    /// Maximum number of rows of a batch with --latency-goal-ms
    #[arg(long, alias = "max_batch_rows", value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_batch_rows: u32,
}

/// Limits on clients and memory.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitFlags {
    /// Memory limit for all models in megabytes [default: 80 % of the machine's or container's
    /// memory]
    #[arg(long, alias = "memory_limit", value_name = "MB")]
    pub(super) memory_limit: Option<usize>,

    /// Number of threads that run kernels [default: one per core, or as the container allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: Option<u32>,

    /// Maximum number of open gRPC connections, and of HTTP connections; further ones wait
    #[arg(long, alias = "max_connections", value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) connection_limit: u32,

    /// Maximum size of a gRPC message in megabytes
    #[arg(long, alias = "max_message_mb", value_name = "MB", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=2048))]
    pub(super) message_limit: u32,

    /// Maximum size of an HTTP body in megabytes, before and after decompression
    #[arg(long, alias = "max_body_mb", value_name = "MB", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) body_limit: u32,

    /// Idle timeout of a connection in seconds; over HTTP at most 60
    #[arg(long, alias = "idle_seconds", value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) idle_timeout: u32,

    /// Write timeout in seconds: a connection is closed if its client does not read a response for
    /// so long
    #[arg(long, alias = "answer_seconds", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) write_timeout: u32,
}

/// Flags of shutting down.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Shutdown")]
pub(super) struct ShutdownFlags {
    /// Seconds that the server continues to serve after a shutdown signal, while it reports that it
    /// is not ready
    #[arg(long, alias = "lame_duck_seconds", value_name = "SECONDS", default_value_t = 0)]
    pub(super) lame_duck_seconds: u32,

    /// Seconds after which a shutdown no longer waits for the requests in flight
    #[arg(long, alias = "drain_seconds", value_name = "SECONDS", default_value_t = 30)]
    pub(super) drain_timeout: u32,

    /// Exit when standard input, a pipe, closes, which means that the parent process has ended
    #[arg(long)]
    pub(super) with_parent: bool,
}

/// The value of TensorFlow Serving's --rest_api_port: 0 disables HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RestApiPort(Option<u16>);

impl FromStr for RestApiPort {
    type Err = String;

    fn from_str(text: &str) -> Result<RestApiPort, String> {
        Ok(RestApiPort(if text == "0" { None } else { Some(parse_port(text)?) }))
    }
}

/// The policy by which a version replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum TransitionFlag {
    #[value(alias = "availability")]
    AvailabilityPreserving,
    #[value(alias = "resources")]
    ResourcePreserving,
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
