//! `thalweg server`: one task of a cluster, the counterpart of `tf.distribute.Server`.

use std::fs;
use std::future;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use thalweg_cluster::grpc::{Server, ServerOptions};
use thalweg_cluster::notation::{self, is_toml, json_cluster};
use thalweg_cluster::{
    CPUS_MAX, ClusterFile, ClusterSpec, Master, Member, Task, TaskName, TaskOptions,
    TensorTransport,
};
use thalweg_formats::{LocalStorage, NoStorage, Rooted, Storage};
use thalweg_proto::{self as pb, text};
use thalweg_runtime::{Pool, SharedCosts};
use thalweg_storage::{AllowedUrls, ByUrl};
use thalweg_tensor::{Context, Result, bail, ensure, err};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::accelerator::AcceleratorFlags;
use crate::orphans::{self, Children};
use crate::ports::parse_port;
use crate::simulate::CostFlags;
use crate::{Failure, Registry, cluster, descriptors};

/// The default port.
const DEFAULT_PORT: u16 = 2222;
/// The maximum number of kernel threads.
const THREADS_MAX: u32 = 1024;
/// The number of I/O threads; kernels run on threads of their own.
pub(crate) const IO_THREADS: usize = 2;

/// Start a server: one task that TensorFlow clients can use as session target.
///
/// Without --cluster and TF_CONFIG it is the only task, /job:local/task:0. The first line on
/// standard output is `listening on HOST:PORT`. SIGTERM or SIGINT shuts it down in order, a second
/// signal at once; so does a training that stops its tasks, if --allow-stop permits it.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    #[command(flatten)]
    listen: ListenFlags,

    #[command(flatten)]
    cluster: ClusterFlags,

    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    accelerators: AcceleratorFlags,

    #[command(flatten)]
    timeouts: Timeouts,

    #[command(flatten)]
    costs: CostFlags,

    #[command(flatten)]
    shutdown: ShutdownFlags,
}

/// Flags of the network interface.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Network")]
struct ListenFlags {
    /// Address to listen on [default: loopback]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,

    /// Port to listen on; 0 picks a free one [default: that of the task in the cluster, or 2222]
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    port: Option<u16>,
}

/// Flags that say which task of which cluster the server is.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
struct ClusterFlags {
    /// Tasks of the cluster: job=host:port,host:port;job=..., TensorFlow's
    /// job|host:port;host:port,job|..., JSON {"job": ["host:port", ...]}, or @FILE with one of
    /// these or with a cluster file of `thalweg cluster up`; a file is read again when it changes,
    /// for tasks that restart at another address
    #[arg(long = "cluster", value_name = "SPEC")]
    spec: Option<String>,

    /// Job of this task [default: that of TF_CONFIG, or the only job of the cluster]
    #[arg(long, aliases = ["job", "job_name"], value_name = "NAME")]
    job_name: Option<String>,

    /// Index of this task within its job [default: that of TF_CONFIG, or 0]
    #[arg(long, aliases = ["task", "task_index"], value_name = "N")]
    task_index: Option<u32>,

    /// How tensors are received from other tasks: auto uses the stream protocol where both tasks
    /// support it, over a Unix socket on the same machine; grpc uses TensorFlow's protocol only
    #[arg(long, value_name = "PROTOCOL", value_enum, default_value_t)]
    transport: Transport,

    /// Default configuration of sessions: a ConfigProto as text, or @FILE with one. Its
    /// device_count is the number of this task's CPU devices
    #[arg(long, value_name = "CONFIG")]
    session_config: Option<String>,
}

/// Flags of the end of the server.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Shutdown")]
struct ShutdownFlags {
    /// Let clients stop the task, as a training does with its parameter servers; always allowed on
    /// a loopback address
    #[arg(long)]
    allow_stop: bool,

    /// Exit when standard input, a pipe, closes, which means that the parent process has ended
    #[arg(long)]
    with_parent: bool,
}

/// See [`TensorTransport`].
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Transport {
    #[default]
    Auto,
    Grpc,
}

impl Transport {
    /// The value of `--transport`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Grpc => "grpc",
        }
    }
}

/// Flags of file access by clients.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
struct Files {
    /// Folder outside of which clients may neither read nor write [default: on a loopback address
    /// all files of this user, on others none]
    #[arg(long, value_name = "DIR")]
    file_root: Option<String>,

    /// URL prefix that clients may read and write, with the credentials of this process:
    /// s3://BUCKET/PREFIX, hdfs://HOST:PORT/DIR, s3://; may be repeated [default: on a loopback
    /// address without --file-root all, otherwise none]
    #[arg(long = "allow-url", value_name = "URL")]
    allow_urls: Vec<String>,

    /// Rename checkpoints and other local files into place without syncing them: faster, but a
    /// power failure (not a crash of the process) may corrupt them
    #[arg(long, alias = "unsynced")]
    no_sync: bool,
}

impl Files {
    fn storage(&self, place: &ServerTask) -> Result<ByUrl> {
        for url in &self.allow_urls {
            ensure!(
                url.starts_with("s3://") || url.starts_with("hdfs://"),
                InvalidArgument,
                "--allow-url {url}: it must begin with s3:// or hdfs://"
            );
        }
        let files = LocalStorage { syncs: !self.no_sync };
        let is_trusted = place.is_loopback();
        let local: Arc<dyn Storage> = match &self.file_root {
            Some(root) => Arc::new(Rooted::new(root, files).context(|| "--file-root")?),
            None if is_trusted => Arc::new(files),
            None => Arc::new(NoStorage),
        };
        let takes_all = is_trusted && self.file_root.is_none() && self.allow_urls.is_empty();
        let allowed = match takes_all {
            true => AllowedUrls::All,
            false => AllowedUrls::Under(self.allow_urls.clone()),
        };
        Ok(ByUrl::new(local, allowed))
    }
}

/// Limits on all clients together.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// Memory limit for tensors, strings, lists, state and received messages of all sessions
    /// together, in megabytes [default: 80 % of the machine's or container's memory]
    #[arg(long, value_name = "MB")]
    memory_limit: Option<usize>,

    /// Number of threads that run kernels [default: one per core, or as the container allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)))]
    threads: Option<u32>,

    /// Maximum size of a message in megabytes [default: 4095]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(1..=4095))]
    message_limit: Option<u32>,

    /// Maximum number of nodes of a session's graph [default: 4000000]
    #[arg(long, value_name = "N")]
    node_limit: Option<usize>,

    /// Maximum number of concurrent steps, including those that wait for a queue [default: 100000]
    #[arg(long, value_name = "N")]
    step_limit: Option<usize>,

    /// Maximum number of open connections; further ones wait [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connection_limit: Option<u32>,

    /// Maximum number of concurrent calls per connection; further ones wait [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    call_limit: Option<u32>,
}

/// Limits on time.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Timeouts")]
struct Timeouts {
    /// Seconds that a session waits for tasks that its graph needs and that have never been
    /// reachable [default: 600]
    #[arg(long, alias = "startup-wait", value_name = "SECONDS")]
    startup_timeout: Option<u32>,

    /// Seconds without an answer after which another task counts as lost, and its steps fail; a
    /// crashed task is noticed at once [default: 30]
    #[arg(long, alias = "silence-limit", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=86400))]
    heartbeat_timeout: Option<u32>,

    /// Seconds that a session stays open after its client disconnected during a call [default: 60]
    #[arg(long, alias = "orphan-limit", value_name = "SECONDS")]
    session_timeout: Option<u32>,
}

impl Timeouts {
    fn apply(&self, task: &mut TaskOptions, server: &mut ServerOptions) {
        if let Some(seconds) = self.startup_timeout {
            task.startup_timeout = Duration::from_secs(seconds.into());
        }
        if let Some(seconds) = self.heartbeat_timeout {
            task.heartbeat_timeout = Duration::from_secs(seconds.into());
        }
        if let Some(seconds) = self.session_timeout {
            server.session_timeout = Duration::from_secs(seconds.into());
        }
    }
}

impl Limits {
    fn task_options(&self, place: &ServerTask) -> TaskOptions {
        let mut options = TaskOptions {
            job: place.job.clone(),
            index: place.task,
            rewrite: Some(thalweg_ops::unfuse),
            ..Default::default()
        };
        if let Some(megabytes) = self.memory_limit {
            options.memory_limit_bytes = megabytes.saturating_mul(MEGABYTE);
        }
        options.graph_nodes_max = self.node_limit.unwrap_or(options.graph_nodes_max);
        options.steps_max = self.step_limit.unwrap_or(options.steps_max);
        options
    }

    fn server_options(&self) -> ServerOptions {
        let mut options = ServerOptions::default();
        if let Some(megabytes) = self.message_limit {
            options.message_bytes_max = megabytes as usize * MEGABYTE;
        }
        if let Some(connections) = self.connection_limit {
            options.connections_max = connections as usize;
        }
        options.calls_max = self.call_limit.unwrap_or(options.calls_max);
        options
    }
}

const MEGABYTE: usize = 1 << 20;

/// Runs the task until a signal arrives.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let tf_config = std::env::var("TF_CONFIG").ok();
    let place =
        ServerTask::new(args, tf_config.as_deref()).map_err(|e| Failure::Usage(e.to_string()))?;
    let config = session_config(args).map_err(|e| Failure::Usage(e.to_string()))?;
    descriptors::raise_limit();
    if let Some(shortage) = descriptors::shortage_of_task(place.cluster.tasks().count()) {
        warn!(target: "thalweg::server", "{shortage}");
    }
    if let Some(threads) = args.limits.threads.or_else(|| threads_of(&config)) {
        Pool::start_global(threads as usize);
    }
    let mut options = args.limits.task_options(&place);
    let may_be_stopped = args.shutdown.allow_stop || place.is_loopback();
    let mut server_options = ServerOptions { may_be_stopped, ..args.limits.server_options() };
    args.timeouts.apply(&mut options, &mut server_options);
    options.session_config = config;
    let storage = args.files.storage(&place).map_err(|e| Failure::Usage(e.to_string()))?;
    options.environment.storage = Arc::new(storage);
    options.tensor_transport = match args.cluster.transport {
        Transport::Auto => TensorTransport::Auto,
        Transport::Grpc => TensorTransport::Grpc,
    };
    options.accelerators = args.accelerators.open()?;
    options.placement = args.costs.placement.unwrap_or_default();
    options.cost_model = args.costs.cost_model()?;
    let measured = options.cost_model.measured.clone();
    let task = Task::new(options, registry.ops.clone(), registry.kernels.clone());
    let task = Arc::new(task);
    let member = match place.cluster.is_empty() {
        true => Member::standalone(task),
        false => match &place.file {
            None => Member::new(task, place.cluster.clone()),
            Some(file) => Member::with_addresses(task, place.cluster.clone(), file.clone()),
        },
    };
    let master = Arc::new(Master::with_member(member.clone()));
    let server = Server::new(master, server_options);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .thread_name("thalweg-io")
        .enable_all()
        .build()
        .map_err(Failure::Output)?;
    runtime.block_on(async {
        let keeping = keep_costs(args.costs.clone(), measured.clone());
        tokio::select! {
            served = serve(server, &place.address, args.shutdown.with_parent, &member, out) => served,
            never = keeping => never,
        }
    })?;
    args.costs.save(&measured)
}

/// How often measured costs are written while the server runs.
const COSTS_INTERVAL: Duration = Duration::from_secs(30);

/// Writes measured costs now and then, if there is a file for them; never completes without an error.
async fn keep_costs(flags: CostFlags, measured: SharedCosts) -> Result<(), Failure> {
    let mut written = measured.read().len();
    loop {
        tokio::time::sleep(COSTS_INTERVAL).await;
        let count = measured.read().len();
        if flags.costs.is_some() && count != written {
            written = count;
            let (flags, measured) = (flags.clone(), measured.clone());
            let saving = tokio::task::spawn_blocking(move || flags.save(&measured));
            if !matches!(saving.await, Ok(Ok(()))) {
                warn!(target: "thalweg::server", "the measured costs could not be written");
            }
        }
    }
}

fn session_config(args: &Args) -> Result<pb::ConfigProto> {
    let Some(text) = &args.cluster.session_config else { return Ok(pb::ConfigProto::default()) };
    let text = match text.strip_prefix('@') {
        Some(path) => {
            fs::read_to_string(path).map_err(|e| err!(NotFound, "--session-config: {path}: {e}"))?
        }
        None => text.clone(),
    };
    let config: pb::ConfigProto = text::decode("tensorflow.ConfigProto", &text)
        .map_err(|e| err!(InvalidArgument, "--session-config: {e}"))?;
    let cpus = config.device_count.get("CPU").copied().unwrap_or(1);
    ensure!(
        (0..=CPUS_MAX).contains(&cpus),
        InvalidArgument,
        "--session-config: device_count of CPU is {cpus}; it must be between 0 and {CPUS_MAX}"
    );
    Ok(config)
}

/// The number of kernel threads in a ConfigProto, if it sets one.
fn threads_of(config: &pb::ConfigProto) -> Option<u32> {
    let wanted = config.intra_op_parallelism_threads.max(config.inter_op_parallelism_threads);
    u32::try_from(wanted)
        .ok()
        .filter(|&threads| threads > 0)
        .map(|threads| threads.min(THREADS_MAX))
}

async fn serve(
    server: Server,
    address: &str,
    with_parent: bool,
    member: &Member,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut parent = with_parent.then(parent_pipe).transpose()?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|e| Failure::Failed(err!(Unavailable, "cannot listen on {address}: {e}")))?;
    let address: SocketAddr = listener.local_addr()?;
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    orphans::reap(&Children::default())?;
    writeln!(out, "listening on {address}")?;
    out.flush()?;
    let (stop, stopped) = watch::channel(false);
    let mut serving = tokio::spawn(server.serve(listener, stopped));
    let has_ended = tokio::select! {
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
        () = parent_gone(parent.as_mut()) => false,
        // A client has asked the task to stop.
        _ = &mut serving => true,
    };
    let _ = stop.send(true);
    let (of_clients, of_others) = member.steps_ended();
    let name = member.task().name();
    info!(
        target: "thalweg::server",
        task = %name,
        of_clients,
        of_others,
        "{name} ends after {of_clients} steps as master and {of_others} partial steps as worker"
    );
    if has_ended {
        return Ok(());
    }
    tokio::select! {
        _ = serving => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Standard input as a pipe, for [`parent_gone`].
pub(crate) fn parent_pipe() -> Result<pipe::Receiver, Failure> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    pipe::Receiver::from_owned_fd(input)
        .map_err(|e| Failure::Usage(format!("--with-parent needs a pipe as standard input: {e}")))
}

/// Completes when the other end of the pipe is closed; never without a pipe.
pub(crate) async fn parent_gone(pipe: Option<&mut pipe::Receiver>) {
    let Some(pipe) = pipe else { return future::pending().await };
    let mut bytes = [0; 64];
    while matches!(pipe.read(&mut bytes).await, Ok(1..)) {}
}

/// The address of a server on this machine, from TF_CONFIG or by default.
pub(crate) fn own_address() -> String {
    let tf_config = std::env::var("TF_CONFIG").ok();
    let resolved = ServerTask::new(&Args::default(), tf_config.as_deref());
    resolved.map_or_else(|_| join("127.0.0.1", DEFAULT_PORT), |place| place.address)
}

/// The task and its address.
struct ServerTask {
    job: String,
    task: u32,
    address: String,
    /// All tasks; empty for a single task.
    cluster: ClusterSpec,
    /// The cluster file, if there is one.
    file: Option<Arc<ClusterFile>>,
}

impl ServerTask {
    /// From flags and, where they are not given, from TF_CONFIG, as TensorFlow's servers do.
    fn new(args: &Args, tf_config: Option<&str>) -> Result<ServerTask> {
        let config: serde_json::Value = match tf_config.filter(|t| !t.trim().is_empty()) {
            Some(text) => serde_json::from_str(text)
                .map_err(|e| err!(InvalidArgument, "TF_CONFIG is not JSON: {e}"))?,
            None => serde_json::Value::Null,
        };
        let file = match args.cluster.spec.as_ref().and_then(|text| text.strip_prefix('@')) {
            Some(path) => {
                let file = ClusterFile::open(path.as_ref(), parse_text).context(|| "--cluster")?;
                Some(Arc::new(file))
            }
            None => None,
        };
        let cluster = match (&file, &args.cluster.spec) {
            (Some(file), _) => file.cluster(),
            (None, Some(text)) => parse_text(text).context(|| "--cluster")?,
            (None, None) => json_cluster(&config["cluster"]).context(|| "TF_CONFIG")?,
        };
        let given = &config["task"];
        let job =
            args.cluster.job_name.clone().or_else(|| given["type"].as_str().map(str::to_owned));
        let index = args.cluster.task_index.or_else(|| index_of(&given["index"])).unwrap_or(0);
        // The default is loopback: other machines reach the server only if --host says so.
        let host = args.listen.host.as_deref().unwrap_or("127.0.0.1");
        if cluster.is_empty() {
            let job = job.unwrap_or_else(|| "local".into());
            let address = join(host, args.listen.port.unwrap_or(DEFAULT_PORT));
            return Ok(ServerTask { job, task: index, address, cluster, file });
        }
        let names = cluster.jobs();
        let job = match job {
            Some(job) => job,
            None if names.len() == 1 => names[0].to_owned(),
            None => {
                bail!(
                    InvalidArgument,
                    "the cluster has several jobs; choose one: --job-name {}",
                    names.join("|")
                )
            }
        };
        ensure!(
            names.contains(&job.as_str()),
            InvalidArgument,
            "the cluster has no job '{job}'; it has {}",
            names.join(", ")
        );
        let own = cluster.address(&TaskName::new(&job, index)).ok_or_else(|| {
            let count = cluster.count(&job);
            err!(InvalidArgument, "job '{job}' has {count} tasks, there is no task {index}")
        })?;
        let port = own.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let port: u16 = port.ok_or_else(|| err!(InvalidArgument, "'{own}' is not host:port"))?;
        let address = join(host, args.listen.port.unwrap_or(port));
        Ok(ServerTask { job, task: index, address, cluster, file })
    }
}

impl ServerTask {
    /// Whether the address is a loopback address.
    fn is_loopback(&self) -> bool {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// The task index, which is a number or a string in JSON.
fn index_of(value: &serde_json::Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u32::try_from(number).ok()
}

pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// As [`parse_text`], or from a file.
pub(crate) fn parse_cluster(text: &str) -> Result<ClusterSpec> {
    match text.strip_prefix('@') {
        Some(path) => Ok(ClusterFile::open(path.as_ref(), parse_text)?.cluster()),
        None => parse_text(text),
    }
}

/// Any notation of a cluster, or the contents of a file for `thalweg cluster up`.
fn parse_text(text: &str) -> Result<ClusterSpec> {
    if is_toml(text) { cluster::parse_file(text) } else { notation::parse_cluster(text) }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn place(args: &Args, tf_config: Option<&str>) -> String {
        match ServerTask::new(args, tf_config) {
            Ok(p) => format!("{}/{} {}", p.job, p.task, p.address),
            Err(e) => e.message().to_owned(),
        }
    }

    fn of_cluster(spec: Option<&str>, job: &str, index: u32) -> Args {
        let cluster = ClusterFlags {
            spec: spec.map(str::to_owned),
            job_name: Some(job.to_owned()),
            task_index: Some(index),
            ..ClusterFlags::default()
        };
        Args { cluster, ..Args::default() }
    }

    #[test]
    fn places() {
        let none = Args::default();
        assert_eq!(place(&none, None), "local/0 127.0.0.1:2222");
        let listen = ListenFlags { port: Some(0), host: Some("::1".into()) };
        let free = Args { listen, ..none.clone() };
        assert_eq!(place(&free, None), "local/0 [::1]:0");
        let config = r#"{"cluster": {"ps": ["a:1"], "worker": ["b:2", "c:3"]},
            "task": {"type": "worker", "index": "1"}}"#;
        assert_eq!(place(&none, Some(config)), "worker/1 127.0.0.1:3");
        let ps = of_cluster(None, "ps", 0);
        assert_eq!(place(&ps, Some(config)), "ps/0 127.0.0.1:1");
        let flags = of_cluster(Some("ps|a:7;b:8,worker|c:9"), "ps", 1);
        assert_eq!(place(&flags, None), "ps/1 127.0.0.1:8");
        let ours = of_cluster(Some("ps=a:7,b:8;worker=c:9"), "ps", 1);
        assert_eq!(place(&ours, None), "ps/1 127.0.0.1:8");
    }

    #[test]
    fn files_that_clients_may_touch() {
        let code = |host: &str, files: &Files, path: &str| {
            let listen = ListenFlags { host: Some(host.into()), ..ListenFlags::default() };
            let args = Args { listen, ..Args::default() };
            let place = ServerTask::new(&args, None).unwrap();
            files.storage(&place).unwrap().exists(path).err().map(|e| e.code())
        };
        let refused = Some(Code::PermissionDenied);
        let (here, there) = (std::env::temp_dir(), "s3://b/k");
        let here = here.to_str().unwrap();
        let none = Files::default();
        for host in ["127.0.0.1", "127.1.2.3", "::1", "localhost"] {
            assert_eq!(code(host, &none, here), None, "{host}");
            assert_ne!(code(host, &none, there), refused, "{host}");
        }
        for host in ["0.0.0.0", "::", "10.0.0.1", "example"] {
            assert_eq!(code(host, &none, here), refused, "{host}");
            assert_eq!(code(host, &none, there), refused, "{host}");
        }
        let root = Files { file_root: Some(here.into()), ..none.clone() };
        assert_eq!(code("0.0.0.0", &root, here), None);
        assert_eq!(code("0.0.0.0", &root, &format!("file://{here}")), None);
        assert_eq!(code("0.0.0.0", &root, "/"), refused);
        assert_eq!(code("127.0.0.1", &root, there), refused);
        let urls = Files { allow_urls: vec!["s3://b".into()], ..none };
        assert_ne!(code("0.0.0.0", &urls, there), refused);
        assert_eq!(code("0.0.0.0", &urls, "s3://b2/k"), refused);
        assert_eq!(code("0.0.0.0", &urls, here), refused);
        assert_eq!(code("127.0.0.1", &urls, here), None);
        let wrong = Files { allow_urls: vec!["/tmp".into()], ..Files::default() };
        let local = ServerTask::new(&Args::default(), None).unwrap();
        let error = wrong.storage(&local).err().unwrap();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("must begin with s3:// or hdfs://"), "{error}");
    }

    #[test]
    fn what_sessions_have_by_default() {
        let resolved = |text: &str| {
            let cluster =
                ClusterFlags { session_config: Some(text.into()), ..ClusterFlags::default() };
            let args = Args { cluster, ..Args::default() };
            session_config(&args).map_err(|e| e.message().to_owned())
        };
        let config =
            resolved("inter_op_parallelism_threads: 3 intra_op_parallelism_threads: 2").unwrap();
        assert_eq!(threads_of(&config), Some(3));
        assert_eq!(
            threads_of(&resolved("inter_op_parallelism_threads: 99999").unwrap()),
            Some(1024)
        );
        assert_eq!(threads_of(&resolved("inter_op_parallelism_threads: -1").unwrap()), None);
        let cpus = |n: i32| resolved(&format!("device_count {{ key: \"CPU\" value: {n} }}"));
        assert_eq!(cpus(2).unwrap().device_count["CPU"], 2);
        assert!(cpus(1000).unwrap_err().contains("between 0 and 256"));
        assert!(resolved("device_cuont {}").unwrap_err().contains("--session-config"));
        assert!(resolved("@/nonexistent/config").unwrap_err().contains("/nonexistent/config"));
    }

    #[test]
    fn the_file_of_cluster_up_tells_addresses_too() {
        let path = std::env::temp_dir().join(format!("thalweg-place-{}.toml", std::process::id()));
        let said = |text: &str, job: &str, task: u32| {
            fs::write(&path, text).unwrap();
            let spec = format!("@{}", path.display());
            let args = of_cluster(Some(&spec), job, task);
            let status = parse_cluster(&spec);
            (place(&args, None), status.map(|cluster| cluster.tasks().count()))
        };
        let text = "name = \"mine\"\nrestarts = 1\n[job.ps]\ntasks = [\"a:1\", \"b:2\"]\n\
                    memory_mb = 5\n[job.worker]\ntasks = [\"c:3\"]\n";
        assert_eq!(said(text, "ps", 1), ("ps/1 127.0.0.1:2".into(), Ok(3)));
        let (free, of_status) = said("[job.ps]\ntasks = 2\n", "ps", 0);
        assert!(free.contains("ps has 2 tasks without addresses"), "{free}");
        assert_eq!(of_status.unwrap_err().code(), Code::InvalidArgument);
        let (wrong, _) = said("[job.ps]\ntsks = 2\n", "ps", 0);
        assert!(wrong.contains("unknown key 'tsks'"), "{wrong}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn mistakes() {
        let with = |spec: &str, job: &str, task: u32| of_cluster(Some(spec), job, task);
        assert!(place(&with("ps|a:1", "nosuch", 0), None).contains("has no job 'nosuch'"));
        assert!(place(&with("ps|a:1", "ps", 4), None).contains("there is no task 4"));
        assert!(place(&with("ps|a", "ps", 0), None).contains("not host:port"));
        assert!(place(&with("ps", "ps", 0), None).contains("not job=host:port"));
        assert!(place(&Args::default(), Some("{")).contains("TF_CONFIG is not JSON"));
        assert!(place(&Args::default(), Some(r#"{"cluster": [1]}"#)).contains("not an object"));
    }
}
