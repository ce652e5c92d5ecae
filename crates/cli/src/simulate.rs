//! `thalweg simulate`: places and times a step on devices that need not exist.

pub(crate) mod train;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::{Value, json};
use thalweg_graph::Graph;
use thalweg_plan::{Choice, MeasuredCosts};
use thalweg_runtime::{CostModel, SessionOptions, SharedCosts};
use thalweg_sim::json::timeline_to_json;
use thalweg_sim::units::{bytes_text, time_text};
use thalweg_sim::{
    Factors, Machines, PlannedStep, PlayedStep, SegmentKind, Simulation, StepChoice, costs,
    trace_json,
};
use thalweg_tensor::{Context, Result, Shape, bail, err};

use crate::{Failure, Registry, files, graph_file, names};

/// Most bytes of a devices file and of a file of measured costs.
const FILE_BYTES_MAX: usize = 256 << 20;
/// Most nodes of the placement, and most pieces of the critical path, that the text lists.
const LISTED_MAX: usize = 20;

/// Place and time a step on devices of any speed.
///
/// Devices and links are described in a file (`docs/src/how-to/placement.md`); they need not exist.
/// The step is planned as a session plans it and played in virtual time. Placeholders that the step
/// needs are fed.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Args {
    /// GraphDef, MetaGraphDef or SavedModel file, binary or text
    #[arg(required_unless_present = "train")]
    pub(crate) graph: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) step: StepFlags,

    #[command(flatten)]
    pub(crate) costs: CostFlags,

    #[command(flatten)]
    train: train::TrainFlags,

    /// Algorithms to compare, separated by commas: default, greedy, etf, auto
    #[arg(long, value_name = "ALGORITHMS", value_delimiter = ',', value_parser = parse_placement,
          help_heading = "Placement")]
    compare: Vec<Choice>,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Write the timeline to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<PathBuf>,
}

/// Which step of a graph is simulated.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Step")]
pub(crate) struct StepFlags {
    /// Tensor to fetch
    #[arg(long = "fetch", value_name = "NAME")]
    pub(crate) fetches: Vec<String>,

    /// Target node to run
    #[arg(long = "target", value_name = "NODE")]
    pub(crate) targets: Vec<String>,

    /// Shape of a placeholder, such as x=[32,784]; if one is given, all must be [default: what the
    /// graph says, with 32 for dimensions that it leaves open]
    #[arg(long = "shape", value_name = "NAME=SHAPE")]
    pub(crate) shapes: Vec<String>,
}

/// What devices and nodes cost.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Placement")]
pub(crate) struct CostFlags {
    /// Devices and links: a file with [[device]] and [[link]] entries, as `thalweg calibrate` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) devices: Option<PathBuf>,

    /// Measured costs of nodes, as `thalweg server --costs` and `thalweg run --costs` keep them
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,

    /// How devices are chosen: default (TensorFlow's rules), greedy or etf (by the cost model), or auto,
    /// the best of them [default: default; of simulate auto]
    #[arg(long, value_name = "ALGORITHM", value_parser = parse_placement)]
    pub(crate) placement: Option<Choice>,
}

impl CostFlags {
    /// The cost model of the flags.
    pub(crate) fn cost_model(&self) -> Result<CostModel> {
        let machines = match &self.devices {
            Some(path) => read_machines(path)?,
            None => Machines::default(),
        };
        let measured = read_costs(self.costs.as_deref())?;
        Ok(CostModel {
            links: machines.links.clone(),
            speeds: machines.speeds(),
            measured: Arc::new(RwLock::new(measured)),
        })
    }

    /// The options of a session with what the flags say.
    pub(crate) fn apply(&self, mut options: SessionOptions) -> Result<SessionOptions> {
        options.cost_model = self.cost_model()?;
        options.plan.choice = self.placement.unwrap_or_default();
        Ok(options)
    }

    /// Writes what was measured to the file of `--costs`, if there is one.
    pub(crate) fn save(&self, measured: &SharedCosts) -> Result<(), Failure> {
        if let Some(path) = &self.costs {
            let text = costs::to_json(&measured.read());
            files::write(path, text.as_bytes())?;
        }
        Ok(())
    }
}

/// The value of a flag that names an algorithm of placement.
pub(crate) fn parse_placement(text: &str) -> Result<Choice, String> {
    let known = Choice::NAMES.map(|(name, _)| name).join(", ");
    Choice::from_name(text).ok_or_else(|| format!("there are {known}"))
}

/// Reads a devices file.
pub(crate) fn read_machines(path: &Path) -> Result<Machines> {
    let text = read_text(path)?;
    Machines::parse(&text).context(|| path.display())
}

/// Reads measured costs; a file that does not exist holds none.
pub(crate) fn read_costs(path: Option<&Path>) -> Result<MeasuredCosts> {
    match path {
        Some(path) if path.exists() => {
            costs::from_json(&read_text(path)?).context(|| path.display())
        }
        _ => Ok(MeasuredCosts::default()),
    }
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = files::read(path, FILE_BYTES_MAX)?;
    let text = std::str::from_utf8(&bytes);
    text.map(str::to_owned)
        .map_err(|_| err!(InvalidArgument, "{}: it is not UTF-8", path.display()))
}

impl StepFlags {
    /// The step, once its graph is known to have one.
    pub(crate) fn choice(&self) -> Result<StepChoice> {
        let shapes = self.shapes.iter().map(|text| shape(text).context(|| "--shape"));
        Ok(StepChoice {
            shapes: shapes.collect::<Result<BTreeMap<_, _>>>()?,
            fetches: self.fetches.clone(),
            targets: self.targets.clone(),
        })
    }
}

fn shape(text: &str) -> Result<(String, Shape)> {
    let (name, dims) = text
        .split_once('=')
        .ok_or_else(|| err!(InvalidArgument, "'{text}' must be NAME=[32,784]"))?;
    let dims = dims.trim().trim_start_matches('[').trim_end_matches(']');
    let numbers: Result<Vec<i64>, _> =
        dims.split(',').map(str::trim).filter(|d| !d.is_empty()).map(str::parse).collect();
    let numbers =
        numbers.map_err(|_| err!(InvalidArgument, "'{text}': a shape is written [32,784]"))?;
    let name = name.strip_suffix(":0").unwrap_or(name);
    Ok((name.to_owned(), Shape::from_i64(&numbers)?))
}

/// The simulation of a graph file on the devices of the flags.
pub(crate) fn simulation(
    graph: &Path,
    flags: &CostFlags,
    registry: &Registry,
) -> Result<Simulation> {
    let Some(devices) = &flags.devices else {
        bail!(InvalidArgument, "--devices FILE says which devices there are");
    };
    let machines = read_machines(devices)?;
    let def = graph_file::read_any(graph)?.into_iter().next();
    let def = def.ok_or_else(|| err!(InvalidArgument, "{}: no graph", graph.display()))?;
    let graph = Graph::from_def(registry.ops.clone(), def).context(|| graph.display())?;
    let measured = read_costs(flags.costs.as_deref())?;
    Simulation::new(graph, registry.kernels.clone(), machines, measured)
}

/// Simulates the step.
pub fn run(args: &Args, registry: &Registry, out: &mut dyn Write) -> Result<(), Failure> {
    let Some(graph) = &args.graph else { return train::run(args, None, out) };
    let simulation = simulation(graph, &args.costs, registry)?;
    if args.step.fetches.is_empty() && args.step.targets.is_empty() {
        names::list(simulation.graph(), out)?;
        let sentence = "nothing to simulate: give --fetch NAME or --target NODE";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let step = args.step.choice()?;
    if args.train.train {
        return train::run(args, Some((&simulation, &step)), out);
    }
    let planned = simulation.plan(&step, args.costs.placement.unwrap_or(Choice::Auto))?;
    let played = planned.play(&Factors::default());
    let what_if = planned.what_if(&played, &Factors::default());
    let mut compared = Vec::new();
    for &choice in &args.compare {
        let seconds = simulation.plan(&step, choice)?.play(&Factors::default()).timeline.seconds;
        compared.push((choice, seconds));
    }
    if let Some(path) = &args.trace {
        files::write(path, trace_json(&played.timeline).as_bytes())?;
    }
    if args.json {
        let mut json = report(&planned, &played, &what_if);
        json["compared"] = compared
            .iter()
            .map(|(choice, seconds)| json!({"algorithm": choice.name(), "step_seconds": seconds}))
            .collect();
        writeln!(out, "{json}")?;
        return Ok(());
    }
    print(&planned, &played, &what_if, out)?;
    if !compared.is_empty() {
        writeln!(out, "\nalgorithms")?;
        for (choice, seconds) in compared {
            writeln!(out, "  {:<8} {:>12}", choice.name(), time_text(seconds))?;
        }
    }
    Ok(())
}

/// The whole report as JSON.
pub(crate) fn report(
    planned: &PlannedStep,
    played: &PlayedStep,
    what_if: &[(String, f64)],
) -> Value {
    let mut json = timeline_to_json(&played.timeline);
    for (i, device) in planned.program.devices().iter().enumerate() {
        json["devices"][i]["peak_memory_bytes"] = json!(played.peak_memory_bytes[i]);
        json["devices"][i]["memory_bytes"] = json!(device.memory_bytes);
    }
    json["algorithm"] = json!(planned.choice.name());
    json["placement"] = planned.placement_to_json().into();
    let changes = what_if.iter();
    let changes = changes.map(|(what, seconds)| json!({"change": what, "step_seconds": seconds}));
    json["what_if"] = changes.collect();
    json
}

fn print(
    planned: &PlannedStep,
    played: &PlayedStep,
    what_if: &[(String, f64)],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let timeline = &played.timeline;
    writeln!(out, "step: {} ({} placement)", time_text(timeline.seconds), planned.choice.name())?;
    print_devices(planned, played, out)?;
    print_placement(planned, out)?;
    writeln!(out, "\ncritical path")?;
    let path = timeline.critical_path();
    let mut longest: Vec<usize> = (0..path.len()).collect();
    let seconds = |i: &usize| path[*i].end - path[*i].start;
    longest.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)).then(a.cmp(b)));
    longest.truncate(LISTED_MAX);
    longest.sort_unstable();
    for i in &longest {
        let segment = &path[*i];
        let name = |device: u32| planned.device_name(device);
        let what = match segment.kind {
            SegmentKind::Compute(device) => format!("compute on {}", name(device)),
            SegmentKind::Link(from, to) => format!("from {} to {}", name(from), name(to)),
            SegmentKind::Queueing(device) => format!("queued on {}", name(device)),
            SegmentKind::Waiting(device) => format!("waits on {}", name(device)),
        };
        let node = &timeline.spans[segment.span as usize].node;
        writeln!(
            out,
            "  {:>11}  {:>10}  {node}: {what}",
            time_text(segment.start),
            time_text(seconds(i))
        )?;
    }
    if path.len() > longest.len() {
        writeln!(out, "  ({} shorter pieces are not listed)", path.len() - longest.len())?;
    }
    if !what_if.is_empty() {
        writeln!(out, "\nwhat if")?;
        for (what, seconds) in what_if {
            writeln!(out, "  {:>11}  {what}", time_text(*seconds))?;
        }
    }
    Ok(())
}

fn print_devices(
    planned: &PlannedStep,
    played: &PlayedStep,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let json = timeline_to_json(&played.timeline);
    writeln!(out, "\ndevices                                            busy    peak memory")?;
    for (i, device) in planned.program.devices().iter().enumerate() {
        let busy = json["devices"][i]["busy_seconds"].as_f64().unwrap_or(0.0);
        writeln!(
            out,
            "  {:<44} {:>9}  {:>9} of {}",
            device.name.to_string(),
            time_text(busy),
            bytes_text(played.peak_memory_bytes[i] as f64),
            bytes_text(device.memory_bytes as f64)
        )?;
    }
    let links = json["links"].as_array().map_or(&[][..], |links| links);
    if !links.is_empty() {
        writeln!(out, "\nlinks")?;
    }
    for link in links {
        let text = |key: &str| link[key].as_str().unwrap_or("").to_owned();
        writeln!(
            out,
            "  {:>10} in {} tensors, {:>10}: from {} to {}",
            bytes_text(link["bytes"].as_f64().unwrap_or(0.0)),
            link["transfers"],
            time_text(link["seconds"].as_f64().unwrap_or(0.0)),
            text("from"),
            text("to")
        )?;
    }
    Ok(())
}

fn print_placement(planned: &PlannedStep, out: &mut dyn Write) -> Result<(), Failure> {
    let mut by_device: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for row in &planned.placement {
        *by_device.entry((row.device, row.reason.text())).or_default() += 1;
    }
    writeln!(out, "\nplacement")?;
    for ((device, reason), count) in by_device {
        writeln!(out, "  {count:>6} nodes on {}: {reason}", planned.device_name(device))?;
    }
    let chosen = planned.placement.iter().filter(|row| row.elsewhere.len() > 1);
    for row in chosen.take(LISTED_MAX) {
        let elsewhere = row.elsewhere.iter().filter(|(device, _)| *device != row.device);
        let elsewhere: Vec<String> = elsewhere
            .map(|&(device, finish)| {
                format!("{} on {}", time_text(finish), planned.device_name(device))
            })
            .collect();
        writeln!(
            out,
            "  {} ({}) on {}: finishes at {}; {}",
            row.node,
            row.op,
            planned.device_name(row.device),
            time_text(row.finish.unwrap_or(0.0)),
            elsewhere.join(", ")
        )?;
    }
    Ok(())
}
