//! `thalweg dashboard`: a cluster, its steps and its training in a browser.

pub(crate) mod live;
pub(crate) mod simulated;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_dashboard::{ClusterSource, Dashboard, Options, Simulation, check_token};
use thalweg_plan::Choice;
use thalweg_proto as pb;
use thalweg_runtime::system_environment;
use thalweg_storage::ByUrl;
use thalweg_tensor::{Result, ensure, err};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::live::MasterTracer;
use self::simulated::SimulatedStep;
use crate::orphans::{self, Children};
use crate::ports::parse_port;
use crate::server::{IO_THREADS, join, parse_cluster};
use crate::simulate::{self, CostFlags, StepFlags};
use crate::{Failure, Registry, descriptors, graph_file};

/// The usual port.
pub(crate) const DEFAULT_PORT: u16 = 6007;
/// Bytes of a token that is drawn at the start, written as hexadecimal digits.
const TOKEN_BYTES: usize = 16;

/// Show a cluster, event files or a graph in a browser.
///
/// Serves one page until it is interrupted. On the loopback interface it is for this machine; on any other
/// address it needs a token, which is part of the URL that is printed.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The cluster: the address of one of its tasks (HOST:PORT), which lists the others, or a cluster as
    /// `thalweg server --cluster` takes it
    #[arg(long, value_name = "CLUSTER", help_heading = "Show")]
    connect: Option<String>,

    /// Folder with event files, in itself or below; each folder that has some is a run
    #[arg(long, value_name = "DIR", help_heading = "Show")]
    logdir: Option<String>,

    /// File with a graph: a GraphDef, MetaGraphDef or SavedModel, binary or text
    #[arg(value_name = "GRAPH", help_heading = "Show")]
    graph: Option<PathBuf>,

    /// Simulate a step of GRAPH on the devices of this file, with sliders for their speeds
    #[arg(long, value_name = "DEVICES", requires = "graph", help_heading = "Show")]
    simulate: Option<PathBuf>,

    #[command(flatten)]
    step: StepFlags,

    /// Address to listen on
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Listen")]
    address: String,

    /// Port to listen on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, value_parser = parse_port,
          help_heading = "Listen")]
    port: u16,

    /// Token that clients must have [default: a random one, unless the address is a loopback address]
    #[arg(long, value_name = "TOKEN", help_heading = "Listen")]
    token: Option<String>,
}

/// Serves until a signal arrives.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let usage = |e: thalweg_tensor::Error| Failure::Usage(e.to_string());
    if args.connect.is_none() && args.logdir.is_none() && args.graph.is_none() {
        let sentence = "there is nothing to show: give --connect, --logdir or GRAPH";
        return Err(Failure::Usage(sentence.into()));
    }
    if let Some(token) = &args.token {
        check_token(token).map_err(usage)?;
    }
    let cluster = args.connect.as_deref().map(cluster_source).transpose().map_err(usage)?;
    let graph = args.graph.as_deref().map(read_graph).transpose()?;
    let simulation = match (&args.simulate, &args.graph) {
        (Some(devices), Some(graph)) => Some(simulation(args, devices, graph, registry)?),
        _ => None,
    };
    let options = Options {
        cluster,
        logdir: args.logdir.clone().map(|root| (Arc::new(ByUrl::default()) as _, root)),
        graph,
        simulation,
        tracer: args.connect.is_some().then(|| Arc::new(MasterTracer) as _),
        ..options(title(args), registry)
    };
    let dashboard = Dashboard::new(options)?;
    descriptors::raise_limit();
    runtime()?.block_on(serve(args, dashboard, out))
}

/// What the sliders change.
fn simulation(
    args: &Args,
    devices: &Path,
    graph: &Path,
    registry: &Registry,
) -> Result<Arc<dyn Simulation>, Failure> {
    if args.step.fetches.is_empty() && args.step.targets.is_empty() {
        let sentence = "--simulate plays a step: give --fetch NAME or --target NODE";
        return Err(Failure::Usage(sentence.into()));
    }
    let flags = CostFlags { devices: Some(devices.to_owned()), ..CostFlags::default() };
    let simulation = simulate::simulation(graph, &flags, registry)?;
    Ok(Arc::new(SimulatedStep::new(simulation, args.step.choice()?, Choice::Auto)))
}

/// The I/O threads of a dashboard.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(IO_THREADS).thread_name("thalweg-io").enable_all();
    runtime.build().map_err(Failure::Output)
}

/// The options of a dashboard that shows nothing yet.
pub(crate) fn options(title: String, registry: &Registry) -> Options {
    Options {
        title,
        cluster: None,
        logdir: None,
        graph: None,
        registry: registry.clone(),
        tracer: None,
        simulation: None,
        clock: system_environment().clock,
    }
}

/// The address of one task, or all tasks of a cluster.
fn cluster_source(text: &str) -> Result<ClusterSource> {
    let has_port = || {
        let (host, port) = text.rsplit_once(':')?;
        let is_host = !host.is_empty() && !host.contains(['=', ',', ';', '|', '{', '@', '"']);
        (is_host && port.parse::<u16>().is_ok()).then_some(())
    };
    if has_port().is_some() {
        return Ok(ClusterSource::Address(text.to_owned()));
    }
    let cluster = parse_cluster(text)?;
    ensure!(!cluster.is_empty(), InvalidArgument, "the cluster has no tasks");
    Ok(ClusterSource::Spec(cluster))
}

/// The graph of a file; of several, the first.
fn read_graph(path: &Path) -> Result<pb::GraphDef> {
    let graphs = graph_file::read_any(path)?;
    let first = graphs.into_iter().next();
    first.ok_or_else(|| err!(InvalidArgument, "{} has no graph", path.display()))
}

fn title(args: &Args) -> String {
    let graph = args.graph.as_ref().map(|path| path.display().to_string());
    let parts = [args.connect.clone(), args.logdir.clone(), graph];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

async fn serve(args: &Args, dashboard: Dashboard, out: &mut dyn Write) -> Result<(), Failure> {
    let listener = listen(&args.address, args.port).await?;
    let address = listener.local_addr()?;
    let token = match &args.token {
        None if !address.ip().is_loopback() => Some(random_token()?),
        given => given.clone(),
    };
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    orphans::reap(&Children::default())?;
    writeln!(out, "dashboard at {}", url(address, token.as_deref()))?;
    out.flush()?;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(dashboard.serve(listener, token, stopped));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let _ = stop.send(true);
    tokio::select! {
        ended = serving => ended.map_err(|e| err!(Internal, "{e}"))??,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Binds the port.
pub(crate) async fn listen(host: &str, port: u16) -> Result<TcpListener> {
    let address = join(host, port);
    let listener = TcpListener::bind(&address).await;
    listener.map_err(|e| err!(Unavailable, "cannot listen on {address}: {e}"))
}

/// Where a browser finds the dashboard; of all interfaces, on this machine.
pub(crate) fn url(address: SocketAddr, token: Option<&str>) -> String {
    let host = match address.ip().is_unspecified() {
        true => join("localhost", address.port()),
        false => address.to_string(),
    };
    match token {
        Some(token) => format!("http://{host}/?token={token}"),
        None => format!("http://{host}/"),
    }
}

/// A token from the system's source of random numbers.
fn random_token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|e| err!(Unavailable, "no random token: /dev/urandom: {e}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_an_address_or_a_specification() {
        for text in ["localhost:2222", "10.0.0.1:1", "[::1]:2222"] {
            let source = cluster_source(text).unwrap();
            assert!(matches!(source, ClusterSource::Address(a) if a == text), "{text}");
        }
        for text in ["ps=a:1;worker=b:2", r#"{"worker": ["h:1"]}"#, "worker|h:1;h:2"] {
            assert!(matches!(cluster_source(text), Ok(ClusterSource::Spec(_))), "{text}");
        }
        for text in ["", "localhost", "localhost:99999", ":2222", "@/nowhere.toml"] {
            assert!(cluster_source(text).is_err(), "{text}");
        }
    }

    #[test]
    fn urls_lead_to_this_machine() {
        for (address, token, expected) in [
            ("127.0.0.1:6007", None, "127.0.0.1:6007/"),
            ("[::1]:6007", None, "[::1]:6007/"),
            ("0.0.0.0:1", Some("abc"), "localhost:1/?token=abc"),
        ] {
            assert_eq!(url(address.parse().unwrap(), token), format!("http://{expected}"));
        }
    }

    #[test]
    fn tokens_differ_and_are_accepted() {
        let (a, b) = (random_token().unwrap(), random_token().unwrap());
        assert!(a != b && a.len() == 2 * TOKEN_BYTES);
        check_token(&a).unwrap();
    }
}
