//! `thalweg simulate --train`: a training job on tasks that need not exist.

use std::io::Write;

use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_sim::train::{Failure as TaskFailure, NetDescription, Network, Straggler};
use thalweg_sim::train::{TrainJob, TrainReport};
use thalweg_sim::units::{self, bytes_text, time_text};
use thalweg_sim::{Machines, StepChoice, StepWork};
use thalweg_tensor::{Context, Result, bail, ensure};
use thalweg_train::Mode;

use super::read_machines;
use crate::Failure;

/// Variables that a job has whose flags describe its parameters.
const PARTS: usize = 16;
/// Samples of a batch, where nothing says it.
const BATCH: usize = 32;
/// Most events that the text lists.
const EVENTS_LISTED: usize = 30;

/// A training job.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Training")]
pub(crate) struct TrainFlags {
    /// Play a training job: of GRAPH's step, whose variables lie on parameter servers, or of
    /// --parameters and --flops. Speeds of tasks are those of the first worker and the first ps of
    /// --devices
    #[arg(long)]
    pub(crate) train: bool,

    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) workers: u32,

    /// Number of parameter servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ps: u32,

    /// Coordination mode: async, sync, backup or stale
    #[arg(long, value_name = "MODE", default_value = "sync",
          value_parser = ["async", "sync", "backup", "stale"])]
    pub(crate) mode: String,

    /// Backup workers that a round does not wait for, in mode backup
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) spare: usize,

    /// Staleness bound in steps, in mode stale
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) bound: usize,

    /// Bytes of the parameters, such as 100MB, without a graph
    #[arg(long, value_name = "SIZE")]
    parameters: Option<String>,

    /// Floating-point operations of a worker's step, without a graph
    #[arg(long, value_name = "N", requires = "parameters")]
    flops: Option<f64>,

    /// Standard deviation of the logarithm of the factor by which steps differ
    #[arg(long, value_name = "SIGMA", default_value_t = 0.0)]
    straggler: f64,

    /// Worker that is slower in all steps, such as 3=2.5
    #[arg(long = "slow-worker", value_name = "N=FACTOR")]
    slow_workers: Vec<String>,

    /// Task that fails, and when: ps/0@3s, worker/1@500ms
    #[arg(long = "fail", value_name = "TASK@TIME")]
    fails: Vec<String>,

    /// How long a task that fails is away
    #[arg(long, value_name = "TIME", default_value = "3s")]
    restart: String,

    /// Updates from one checkpoint to the next; 0 for none
    #[arg(long, value_name = "N", default_value_t = 0)]
    checkpoint_every: u64,

    /// Updates of the variables after which training ends
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    updates: u64,

    /// What random numbers follow from: equal seeds give equal results
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The mode of this name.
pub(crate) fn mode(name: &str, spare: usize, bound: usize) -> Result<Mode> {
    Ok(match name {
        "async" => Mode::Async,
        "sync" => Mode::sync(),
        "backup" => Mode::Backup { spare },
        "stale" => Mode::Stale { bound },
        _ => bail!(
            InvalidArgument,
            "there is no mode '{name}': there are async, sync, backup, stale"
        ),
    })
}

impl TrainFlags {
    /// The job, for a step of a graph or for the flags' parameters.
    fn job(&self, machines: &Machines, work: Option<&StepWork>) -> Result<TrainJob> {
        let net = match (work, &self.parameters) {
            (Some(work), _) => net(work),
            (None, Some(text)) => {
                let bytes = units::bytes(text).context(|| "--parameters")? as usize;
                NetDescription::dense(bytes, PARTS, self.flops.unwrap_or(0.0), BATCH)
            }
            (None, None) => bail!(
                InvalidArgument,
                "what is trained? Give a graph with --fetch or --target, or --parameters SIZE"
            ),
        };
        let mode = mode(&self.mode, self.spare, self.bound)?;
        let mut job = on_machines(TrainJob::new(self.workers, self.ps, mode, net), machines)?;
        job.straggler = Straggler {
            sigma: self.straggler,
            slow_workers: self.slow_workers.iter().map(|text| slow(text)).collect::<Result<_>>()?,
            ..Straggler::default()
        };
        let failures = self.fails.iter().map(|text| text.parse::<TaskFailure>());
        job.failures = failures.collect::<Result<_>>().context(|| "--fail")?;
        job.restart_seconds = units::seconds(&self.restart).context(|| "--restart")?;
        job.checkpoint_every = self.checkpoint_every;
        job.updates = self.updates;
        job.seed = self.seed;
        Ok(job)
    }
}

fn slow(text: &str) -> Result<(u32, f64)> {
    let parsed = text.split_once('=').and_then(|(worker, factor)| {
        Some((worker.parse().ok()?, factor.parse::<f64>().ok().filter(|f| *f > 0.0)?))
    });
    ensure!(parsed.is_some(), InvalidArgument, "--slow-worker {text}: write it as 3=2.5");
    Ok(parsed.unwrap_or_default())
}

/// The net of a step: a layer for each of its variables, which share its arithmetic by their sizes.
fn net(work: &StepWork) -> NetDescription {
    let bytes: u64 = work.variables.iter().map(|v| v.bytes).sum();
    NetDescription::dense(bytes as usize, work.variables.len().max(1), work.flops, BATCH)
}

/// The job on the first worker, the first ps and the link between them that a file describes.
pub(crate) fn on_machines(mut job: TrainJob, machines: &Machines) -> Result<TrainJob> {
    if machines.devices.is_empty() {
        return Ok(job);
    }
    let devices = machines.descriptions()?;
    let first = |jobs: &[&str]| -> Option<&DeviceDescription> {
        devices.iter().find(|d| jobs.contains(&d.name.job.as_str()))
    };
    if let Some(worker) = first(&["worker", "chief", "localhost"]) {
        job.worker = worker.clone();
    }
    if let Some(server) = first(&["ps"]) {
        job.server = server.clone();
    }
    let (worker, server) = (DeviceName::cpu("worker", 0, 0), DeviceName::cpu("ps", 0, 0));
    let (latency, bandwidth) = machines.links.between(&worker, &server);
    job.network = Network {
        latency,
        worker_bandwidth: bandwidth,
        server_bandwidth: bandwidth,
        ..job.network
    };
    Ok(job)
}

/// Plays the job.
pub(crate) fn run(
    args: &super::Args,
    simulation: Option<(&thalweg_sim::Simulation, &StepChoice)>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let machines = match &args.costs.devices {
        Some(path) => read_machines(path)?,
        None => Machines::default(),
    };
    let work = simulation.map(|(simulation, step)| simulation.work(step)).transpose()?;
    let job = args.train.job(&machines, work.as_ref())?;
    let report = job.run()?;
    if args.json {
        writeln!(out, "{}", report.to_json())?;
        return Ok(());
    }
    print(&job, &report, out)
}

fn print(job: &TrainJob, report: &TrainReport, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "{} workers, {} parameter servers, {:?}: {} of parameters",
        job.workers,
        job.ps,
        job.mode,
        bytes_text(job.net.bytes() as f64)
    )?;
    writeln!(
        out,
        "{:.3} updates/s, {:.1} samples/s: {} updates in {}",
        report.steps_per_second,
        report.samples_per_second,
        report.updates_done,
        time_text(report.seconds)
    )?;
    writeln!(
        out,
        "a worker's step takes {} (10 %: {}, 90 %: {})",
        time_text(report.median_seconds),
        time_text(report.p10_seconds),
        time_text(report.p90_seconds)
    )?;
    writeln!(
        out,
        "lost: {} updates, {} steps of workers; dropped as late: {} gradients; {} checkpoints",
        report.lost_updates, report.lost_steps, report.dropped_gradients, report.checkpoints
    )?;
    for (at, text) in report.events.iter().take(EVENTS_LISTED) {
        writeln!(out, "  {:>11}  {text}", time_text(*at))?;
    }
    writeln!(out, "\ntasks                                             busy      sent   received")?;
    for share in report.devices.iter().take(EVENTS_LISTED) {
        writeln!(
            out,
            "  {:<44} {:>5.1} % {:>9} {:>10}",
            share.name,
            share.busy * 100.0,
            bytes_text(share.bytes_out as f64),
            bytes_text(share.bytes_in as f64)
        )?;
    }
    Ok(())
}
