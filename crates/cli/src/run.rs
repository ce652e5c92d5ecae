//! `thalweg run`: feeds a GraphDef that TensorFlow wrote, and shows or saves what it gives.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thalweg_graph::Graph;
use thalweg_kernel::Environment;
use thalweg_runtime::{RunMetadata, RunOptions, Session, SessionOptions, memory_limit_bytes};
use thalweg_tensor::{Code, Context, Error, Result, Tensor, bail, ensure, npy};

use crate::{Failure, Registry, files, graph_file, literal, names, number, output};

/// Run a graph that TensorFlow wrote and show or save what it computes.
///
/// Without --fetch and --target it lists the graph's inputs and outputs.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// GraphDef, binary or text, as tf.io.write_graph writes it
    graph: PathBuf,

    /// Give a tensor its value: a number, a list such as [[1,2],[3,4]], true, "text", or @FILE.npy
    #[arg(long = "feed", value_name = "NAME=VALUE")]
    feeds: Vec<String>,

    /// Compute this tensor and show it
    #[arg(long = "fetch", value_name = "NAME")]
    fetches: Vec<String>,

    /// Run this node for its effect
    #[arg(long = "target", value_name = "NODE")]
    targets: Vec<String>,

    /// Run this node in a step of its own first, as the initializer of variables
    #[arg(long = "init", value_name = "NODE")]
    inits: Vec<String>,

    /// Compute this tensor and write it to an .npy file
    #[arg(long = "save", value_name = "NAME=FILE")]
    saves: Vec<String>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Write a timeline of the (last) step, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Threads to use; by default one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Give up a step after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,

    /// Run the step this often and tell how long it took
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

/// A number of seconds as a command line has it.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "it must be a number of seconds".to_owned())?;
    if number > 0.0 {
        Duration::try_from_secs_f64(number).map_err(|e| e.to_string())
    } else {
        Err("it must be above 0".to_owned())
    }
}

/// Runs what the arguments say.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let feeds =
        args.feeds.iter().map(|f| split(f, "feed", "VALUE")).collect::<Result<Vec<_>, _>>()?;
    let saves =
        args.saves.iter().map(|s| split(s, "save", "FILE")).collect::<Result<Vec<_>, _>>()?;
    let graph = Graph::from_def(registry.ops.clone(), graph_file::read(&args.graph)?)
        .context(|| args.graph.display())?;
    if args.fetches.is_empty() && args.targets.is_empty() && saves.is_empty() {
        names::list(&graph, out)?;
        let sentence = "say what to compute: --fetch NAME, --save NAME=FILE or --target NODE";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let step = Step::new(args, &graph, &feeds, &saves)?;
    let mut options = SessionOptions::default();
    if let Some(threads) = args.threads {
        (options.inter_threads, options.intra_threads) = (threads.into(), threads.into());
    }
    let environment = options.environment.clone();
    let session = Session::new(graph, registry.kernels.clone(), options)?;
    let done = step.run(args, &session, &environment)?;
    for &(fetch, path) in &step.saves {
        let content =
            npy::write(&done.tensors[fetch]).context(|| format!("--save {}", path.display()))?;
        files::write(path, &content)?;
    }
    if let Some(path) = &args.trace {
        files::write(path, done.metadata.to_trace_json().as_bytes())?;
    }
    if args.json { done.write_json(&step, out) } else { done.write_text(&step, out) }
}

fn split<'a>(text: &'a str, option: &str, what: &str) -> Result<(&'a str, &'a str), Failure> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(Failure::Usage(format!("--{option} {text:?} must be NAME={what}"))),
    }
}

/// What the arguments name, found and checked.
struct Step<'a> {
    feeds: Vec<(&'a str, Tensor)>,
    /// Those to show come first, those only to save after them.
    fetches: Vec<&'a str>,
    shown: usize,
    targets: Vec<&'a str>,
    /// Which fetch goes to which file.
    saves: Vec<(usize, &'a Path)>,
}

impl<'a> Step<'a> {
    fn new(
        args: &'a Args,
        graph: &Graph,
        feeds: &[(&'a str, &'a str)],
        saves: &[(&'a str, &'a str)],
    ) -> Result<Step<'a>> {
        let mut step = Step {
            feeds: Vec::new(),
            fetches: Vec::new(),
            shown: 0,
            targets: args.targets.iter().map(String::as_str).collect(),
            saves: Vec::new(),
        };
        for fetch in &args.fetches {
            step.fetch(graph, fetch).context(|| "--fetch")?;
        }
        step.shown = step.fetches.len();
        for &(name, path) in saves {
            let position = step.fetch(graph, name).context(|| "--save")?;
            files::check_writable(Path::new(path)).context(|| "--save")?;
            step.saves.push((position, Path::new(path)));
        }
        for target in &args.targets {
            names::node(graph, target).context(|| "--target")?;
        }
        for init in &args.inits {
            names::node(graph, init).context(|| "--init")?;
        }
        if let Some(path) = &args.trace {
            files::check_writable(path).context(|| "--trace")?;
        }
        for &(name, value) in feeds {
            let tensor = feed(graph, name, value).context(|| format!("--feed {name}"))?;
            step.feeds.push((name, tensor));
        }
        Ok(step)
    }

    /// Position of a tensor among the fetches, where it is put if it is not there yet.
    fn fetch(&mut self, graph: &Graph, name: &'a str) -> Result<usize> {
        names::tensor(graph, name)?;
        let known = self.fetches.iter().position(|f| *f == name);
        Ok(known.unwrap_or_else(|| {
            self.fetches.push(name);
            self.fetches.len() - 1
        }))
    }

    fn run(&self, args: &Args, session: &Session, environment: &Environment) -> Result<Done> {
        let plain = RunOptions { timeout: args.timeout, ..Default::default() };
        for init in &args.inits {
            session.run_with(&plain, &self.feeds, &[], &[init]).context(|| "--init")?;
        }
        let names: Vec<&str> = self.feeds.iter().map(|(name, _)| *name).collect();
        let values: Vec<Tensor> = self.feeds.iter().map(|(_, value)| value.clone()).collect();
        let callable = session.make_callable(&names, &self.fetches, &self.targets)?;
        let mut done = Done::default();
        for step in 0..args.repeat {
            let trace = args.trace.is_some() && step + 1 == args.repeat;
            let start = environment.clock.monotonic();
            let result = callable.call_with(&RunOptions { trace, ..plain.clone() }, &values);
            done.seconds.push((environment.clock.monotonic() - start).as_secs_f64());
            (done.tensors, done.metadata) = result.map_err(|e| self.explained(e, args, session))?;
        }
        Ok(done)
    }

    /// Adds what the command line could do about an error.
    fn explained(&self, error: Error, args: &Args, session: &Session) -> Error {
        let init = session.with_graph(|g| g.find("init").is_some());
        if error.code() != Code::FailedPrecondition || !args.inits.is_empty() || !init {
            return error;
        }
        error.map_message(|m| format!("{m}; the graph has a node 'init': perhaps --init init"))
    }
}

/// The tensor that `value` stands for at the tensor called `name`.
fn feed(graph: &Graph, name: &str, value: &str) -> Result<Tensor> {
    let info = graph.output(names::tensor(graph, name)?);
    let tensor = match value.strip_prefix('@') {
        Some(path) => {
            let path = Path::new(path);
            ensure!(path.as_os_str() != "", InvalidArgument, "@ must be followed by a file");
            let bytes = files::read(path, memory_limit_bytes())?;
            npy::read(bytes, None)
                .and_then(|tensor| number::converted(tensor, info.dtype))
                .context(|| path.display())?
        }
        None => literal::tensor(value, info.dtype)?,
    };
    if !info.shape.is_compatible_with(tensor.shape()) {
        bail!(
            InvalidArgument,
            "the value has shape {}, {} was expected",
            tensor.shape(),
            info.shape
        );
    }
    Ok(tensor)
}

/// What a step gave.
#[derive(Default)]
struct Done {
    tensors: Vec<Tensor>,
    metadata: RunMetadata,
    /// How long each step took.
    seconds: Vec<f64>,
}

impl Done {
    fn sorted_seconds(&self) -> Vec<f64> {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn shown<'a>(&'a self, step: &'a Step<'_>) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
        step.fetches.iter().copied().zip(&self.tensors).take(step.shown)
    }

    fn write_text(&self, step: &Step<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        for (name, tensor) in self.shown(step) {
            writeln!(out, "{name}: {} {}", tensor.dtype(), tensor.shape())?;
            writeln!(out, "{}", output::show(tensor)?)?;
        }
        for (fetch, path) in &step.saves {
            let (name, tensor) = (step.fetches[*fetch], &self.tensors[*fetch]);
            writeln!(out, "{name}: {} {} in {}", tensor.dtype(), tensor.shape(), path.display())?;
        }
        if let [fastest, .., slowest] = self.sorted_seconds()[..] {
            let median = self.sorted_seconds()[self.seconds.len() / 2];
            writeln!(
                out,
                "{} steps: {:.1} us in the median, {:.1} to {:.1}",
                self.seconds.len(),
                median * 1e6,
                fastest * 1e6,
                slowest * 1e6
            )?;
        }
        Ok(())
    }

    fn write_json(&self, step: &Step<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        out.write_all(b"{\"fetches\":{")?;
        for (i, (name, tensor)) in self.shown(step).enumerate() {
            out.write_all(if i == 0 { b"" } else { b"," })?;
            write!(out, "{}:", serde_json::Value::from(name))?;
            output::write_json(tensor, out)?;
        }
        let sorted = self.sorted_seconds();
        write!(out, "}},\"seconds\":{}", sorted[sorted.len() / 2])?;
        if let [fastest, .., slowest] = sorted[..] {
            write!(out, ",\"steps\":{},\"fastest\":{fastest},\"slowest\":{slowest}", sorted.len())?;
        }
        writeln!(out, "}}")?;
        Ok(())
    }
}
