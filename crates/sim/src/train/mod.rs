//! Distributed training in virtual time.
//!
//! The graphs of [`thalweg_train::Mode`] are built for workers and parameter servers that need not
//! exist, planned and partitioned as a cluster would, and executed by discrete events. Kernels on small
//! tensors run for real: votes, tokens, queues, mutexes and accumulators decide who waits for whom.
//! Gradients and parameters are ghosts, of which only the size counts; kernels that would compute them
//! take the time that the cost model says.

mod events;
mod execute;
mod failures;
mod net;
mod network;
mod program;
mod replica;
mod report;
mod tasks;
mod workers;
mod world;

use thalweg_kernel::{DeviceDescription, DeviceName};
use thalweg_tensor::{Result, ensure};
use thalweg_train::{Mode, Optimizer};

pub use failures::{Failure, Role};
pub use net::{LayerDescription, NetDescription};
pub use network::Network;
pub use report::{DeviceShare, TrainReport};

/// The most tasks of either kind.
const TASKS_MAX: u32 = 20_000;
/// The most variables of all workers together, and the most pairs of workers that notify each other.
const SIZE_MAX: u64 = 4_000_000;
/// The most updates of one simulation.
const UPDATES_MAX: u64 = 100_000_000;

/// A training job to simulate.
#[derive(Clone, Debug)]
pub struct TrainJob {
    /// Number of workers.
    pub workers: u32,
    /// Number of parameter servers, among which variables are dealt in turn.
    pub ps: u32,
    /// How the workers synchronize.
    pub mode: Mode,
    /// What updates the variables.
    pub optimizer: Optimizer,
    /// What they train.
    pub net: NetDescription,
    /// A worker's device; its name does not matter.
    pub worker: DeviceDescription,
    /// A parameter server's device; its name does not matter.
    pub server: DeviceDescription,
    /// The network between the tasks.
    pub network: Network,
    /// How long the same step takes from time to time and from worker to worker.
    pub straggler: Straggler,
    /// Tasks that fail.
    pub failures: Vec<Failure>,
    /// How long a task that fails is away.
    pub restart_seconds: f64,
    /// Updates from one checkpoint to the next; 0 for none.
    pub checkpoint_every: u64,
    /// Bytes per second at which a task writes and reads checkpoints.
    pub disk_bandwidth: f64,
    /// Training ends after this many updates of the variables.
    pub updates: u64,
    /// Training ends at this time at the latest.
    pub seconds_max: f64,
    /// What random numbers follow from.
    pub seed: u64,
}

/// The distribution of the factor by which a worker's step takes longer than the cost model says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Straggler {
    /// Standard deviation of the logarithm of a log-normal factor with median 1.
    pub sigma: f64,
    /// The probability of a step that takes longer by `factor` on top.
    pub probability: f64,
    /// By how much such a step takes longer.
    pub factor: f64,
    /// Workers that are slow in all steps, with their factors.
    pub slow_workers: Vec<(u32, f64)>,
}

impl TrainJob {
    /// A job without stragglers, failures and checkpoints on ordinary tasks with a 10 Gb/s network.
    pub fn new(workers: u32, ps: u32, mode: Mode, net: NetDescription) -> TrainJob {
        let cpu = |job: &str| DeviceDescription::cpu(DeviceName::cpu(job, 0, 0), 64 << 30);
        TrainJob {
            workers,
            ps,
            mode,
            optimizer: Optimizer::sgd(0.1),
            net,
            worker: cpu("worker"),
            server: cpu("ps"),
            network: Network::default(),
            straggler: Straggler::default(),
            failures: Vec::new(),
            restart_seconds: 3.0,
            checkpoint_every: 0,
            disk_bandwidth: 500e6,
            updates: 20,
            seconds_max: 1e6,
            seed: 1,
        }
    }

    /// Runs the job in virtual time. Equal jobs give equal reports.
    pub fn run(&self) -> Result<TrainReport> {
        self.check()?;
        workers::Training::new(self)?.run()
    }

    /// Whether each worker updates the variables by itself.
    pub fn is_asynchronous(&self) -> bool {
        matches!(self.mode, Mode::Async | Mode::Stale { .. })
    }

    fn check(&self) -> Result<()> {
        ensure!(
            (1..=TASKS_MAX).contains(&self.workers) && (1..=TASKS_MAX).contains(&self.ps),
            InvalidArgument,
            "{} workers and {} parameter servers: there must be 1 to {TASKS_MAX} of each",
            self.workers,
            self.ps
        );
        let (workers, layers) = (u64::from(self.workers), self.net.layers.len() as u64);
        let size = match self.mode {
            // Each worker notifies all others.
            Mode::Stale { .. } => workers * workers.max(layers),
            _ => workers * layers,
        };
        ensure!(
            size <= SIZE_MAX,
            InvalidArgument,
            "{workers} workers with {layers} variables each are more than this simulates in one job"
        );
        ensure!(
            (1..=UPDATES_MAX).contains(&self.updates),
            InvalidArgument,
            "the number of updates must be 1 to {UPDATES_MAX}, not {}",
            self.updates
        );
        let is_rate = |x: f64| x.is_finite() && x >= 1.0;
        for device in [&self.worker, &self.server] {
            let has_speed = is_rate(device.flops_per_second)
                && is_rate(device.memory_bytes_per_second)
                && (0.0..=1e6).contains(&device.start_seconds);
            ensure!(has_speed, InvalidArgument, "a device of {device:?} computes nothing");
        }
        ensure!(is_rate(self.disk_bandwidth), InvalidArgument, "a disk needs a bandwidth");
        let is_time = |x: f64| (0.0..=1e9).contains(&x);
        ensure!(
            is_time(self.restart_seconds) && is_time(self.seconds_max),
            InvalidArgument,
            "times must be 0 to 1e9 seconds"
        );
        self.network.check()?;
        self.straggler.check()?;
        self.failures.iter().try_for_each(|failure| failure.check(self))
    }
}

impl Straggler {
    fn check(&self) -> Result<()> {
        let factors = self.slow_workers.iter().map(|(_, factor)| *factor);
        let are_factors = factors.chain([self.factor]).all(|x| (0.0..=1e6).contains(&x));
        ensure!(
            (0.0..=10.0).contains(&self.sigma)
                && (0.0..=1.0).contains(&self.probability)
                && are_factors,
            InvalidArgument,
            "{self:?} is no distribution of factors"
        );
        Ok(())
    }
}
