//! `thalweg run`: runs a graph or SavedModel, and prints or saves the results.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_cluster::Connect;
use thalweg_graph::Graph;
use thalweg_runtime::{PlacedNode, Session, SessionOptions};
use thalweg_storage::ByUrl;
use thalweg_tensor::{Context, Result};

use crate::accelerator::AcceleratorFlags;
use crate::simulate::CostFlags;
use crate::step::{AnySession, Step};
use crate::{Failure, Registry, files, graph_file, model, names, value};

/// Run a graph or SavedModel that TensorFlow wrote, and print or save the results.
///
/// With a graph, names are those of tensors and nodes; with a SavedModel, those of the inputs and
/// outputs of a signature. Without --feed and --fetch they are listed.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// GraphDef, binary or text, as tf.io.write_graph writes it; or the folder of a SavedModel
    pub(crate) graph: PathBuf,

    /// Value of a tensor, or of an input of the signature: a number, a list such as [[1,2],[3,4]],
    /// true, "text", or @FILE.npy; @FILE may be an image for strings
    #[arg(long = "feed", alias = "input", value_name = "NAME=VALUE", help_heading = "Step")]
    pub(crate) feeds: Vec<String>,

    /// Tensor, or output of the signature, to fetch and print [default: all outputs of the
    /// signature]
    #[arg(long = "fetch", alias = "output", value_name = "NAME", help_heading = "Step")]
    pub(crate) fetches: Vec<String>,

    /// Graphs only: target node to run
    #[arg(long = "target", value_name = "NODE", help_heading = "Step")]
    pub(crate) targets: Vec<String>,

    /// Graphs only: node to run in a step of its own first, such as the initializer of variables
    #[arg(long = "init", value_name = "NODE", help_heading = "Step")]
    pub(crate) inits: Vec<String>,

    /// SavedModels only: the signature to run [default: serving_default]
    #[arg(long, value_name = "NAME", help_heading = "Step")]
    pub(crate) signature: Option<String>,

    /// SavedModels only: tags of the MetaGraph, separated by commas [default: serve, or those of
    /// the only MetaGraph]
    #[arg(long = "saved-model-tags", aliases = ["tag", "saved_model_tags"], value_name = "TAGS",
          value_delimiter = ',', help_heading = "Step")]
    pub(crate) tags: Vec<String>,

    /// Graphs only: run on this server, or on a task of a cluster, instead of locally
    #[arg(long, value_name = "HOST:PORT", help_heading = "Execution")]
    pub(crate) server: Option<String>,

    /// Number of threads that run kernels [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..),
          help_heading = "Execution")]
    pub(crate) threads: Option<u16>,

    /// Device on which nodes run that state none: cpu, or gpu for whatever accelerator there is
    /// [default: the accelerator, if --accelerator gives one]
    #[arg(long, value_name = "DEVICE", value_parser = ["cpu", "gpu"], ignore_case = true,
          help_heading = "Execution")]
    pub(crate) device: Option<String>,

    #[command(flatten)]
    pub(crate) accelerators: AcceleratorFlags,

    #[command(flatten)]
    pub(crate) costs: CostFlags,

    /// Print the device of each node and the reason for it to standard error
    #[arg(long, help_heading = "Placement")]
    pub(crate) explain: bool,

    /// Deadline of a step in seconds [default: none]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true,
          value_parser = parse_seconds, help_heading = "Execution")]
    pub(crate) timeout: Option<Duration>,

    /// Run the step this often and print its duration
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Execution",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Tensor, or output of the signature, to fetch and write to an .npy file
    #[arg(long = "save", value_name = "NAME=FILE", help_heading = "Output")]
    pub(crate) saves: Vec<String>,

    /// Write a timeline of the (last) step, for ui.perfetto.dev or chrome://tracing, and show what
    /// its time went into: on standard error, or with --json in the object
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) trace: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// The value of a flag that is a positive number of seconds.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "it must be a number of seconds".to_owned())?;
    if number > 0.0 {
        Duration::try_from_secs_f64(number).map_err(|e| e.to_string())
    } else {
        Err("it must be above 0".to_owned())
    }
}

/// Runs the graph or SavedModel.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    if files::is_folder(&args.graph)? {
        if args.server.is_some() {
            return Err(Failure::Usage("--server is for graphs, not for SavedModels".into()));
        }
        return model::run(args, registry, out);
    }
    if args.signature.is_some() || !args.tags.is_empty() {
        return Err(Failure::Usage(format!(
            "{} is not the folder of a SavedModel; --signature and --saved-model-tags are for \
             SavedModels only",
            args.graph.display()
        )));
    }
    let feeds = split_all(&args.feeds, "feed", "VALUE")?;
    let saves = split_all(&args.saves, "save", "FILE")?;
    let graph = Graph::from_def(registry.ops.clone(), graph_file::read(&args.graph)?)
        .context(|| args.graph.display())?;
    if args.fetches.is_empty() && args.targets.is_empty() && saves.is_empty() {
        names::list(&graph, out)?;
        let sentence = "nothing to compute: give --fetch NAME, --save NAME=FILE or --target NODE";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let step = graph_step(args, &graph, &feeds, &saves)?;
    if let Some(server) = &args.server {
        let target =
            if server.contains("://") { server.clone() } else { format!("grpc://{server}") };
        let session = Session::connect(&target, &graph)?;
        let ran = step.run_and_write(args, &AnySession::Remote(&session), out);
        // Otherwise the server keeps the session for a client that might reconnect.
        let closed = session.close();
        return ran.and_then(|()| Ok(closed?));
    }
    let options = session_options(args, SessionOptions::default())?;
    let measured = options.cost_model.measured.clone();
    let session = Session::new(graph, registry.kernels.clone(), options)?;
    step.run_and_write(args, &AnySession::Local(&session), out)?;
    args.costs.save(&measured)
}

/// The session options of the arguments.
pub(crate) fn session_options(args: &Args, mut options: SessionOptions) -> Result<SessionOptions> {
    options = args.accelerators.apply(args.device.as_deref(), options)?;
    options.environment.storage = Arc::new(ByUrl::default());
    options = args.costs.apply(options)?;
    if args.explain {
        options.placement_log = Some(Arc::new(|placed: &PlacedNode<'_>| {
            eprintln!("{}: ({}): {}: {placed}", placed.node, placed.op, placed.device);
        }));
    }
    if let Some(threads) = args.threads {
        (options.inter_threads, options.intra_threads) = (threads.into(), threads.into());
    }
    Ok(options)
}

/// Splits `NAME=value` arguments.
pub(crate) fn split_all<'a>(
    texts: &'a [String],
    option: &str,
    what: &str,
) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    let split = |text: &'a String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(Failure::Usage(format!("--{option} {text:?} must be NAME={what}"))),
    };
    texts.iter().map(split).collect()
}

/// The feeds, fetches and targets of the arguments, checked against a graph.
fn graph_step<'a>(
    args: &'a Args,
    graph: &Graph,
    feeds: &[(&'a str, &'a str)],
    saves: &[(&'a str, &'a str)],
) -> Result<Step<'a>> {
    let mut step = Step::new(args)?;
    for fetch in &args.fetches {
        names::tensor(graph, fetch).context(|| "--fetch")?;
        step.show(fetch, fetch);
    }
    for &(name, path) in saves {
        names::tensor(graph, name).context(|| "--save")?;
        step.save(name, name, Path::new(path))?;
    }
    step.targets = args.targets.iter().map(String::as_str).collect();
    for target in &args.targets {
        names::node(graph, target).context(|| "--target")?;
    }
    for init in &args.inits {
        names::node(graph, init).context(|| "--init")?;
    }
    for &(name, value) in feeds {
        let at = || format!("--feed {name}");
        let info = graph.output(names::tensor(graph, name).context(at)?);
        let tensor = value::tensor(value, info.dtype, &info.shape).context(at)?;
        step.feeds.push((name, tensor));
    }
    Ok(step)
}
