//! The cluster that training runs on: parameter servers and workers.

use std::sync::Arc;
use std::time::Duration;

use thalweg_cluster::grpc::{LocalCluster, stop_tasks};
use thalweg_cluster::notation::read_cluster;
use thalweg_cluster::{ClusterSpec, ConnectOptions, RemoteSession, TaskName, TaskOptions};
use thalweg_graph::Graph;
use thalweg_kernel::PhysicalDevice;
use thalweg_ops::Registry;
use thalweg_tensor::{Error, Result, ensure, err};

use crate::{Model, Replica, Spread};

/// The job whose tasks hold variables.
const PS: &str = "ps";
/// The jobs whose tasks compute; task 0 of the first job that exists is worker 0.
const WORKERS: [&str; 2] = ["chief", "worker"];

/// How long a task may take to acknowledge a request to stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Which tasks are stopped when training ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stops {
    /// No task: they stay for the next training. Tasks of [`Cluster::local`] end with the cluster.
    #[default]
    Nobody,
    /// The parameter servers.
    Ps,
    /// The parameter servers and the workers.
    All,
}

/// A cluster of parameter servers and workers.
///
/// Each worker has its own session on its own task, over its own graph. The workers share the
/// variables, which are placed on the parameter servers:
///
/// ```
/// use thalweg_tensor::{Result, Tensor};
/// use thalweg_train::{Cluster, Initializer, Mode, Model, Optimizer, losses};
///
/// # fn main() -> Result<()> {
/// let cluster = Cluster::local(1, 2)?;
/// for worker in 0..2 {
///     let model = cluster.place(Model::new(), worker)?;
///     let x = model.placeholder::<f32>("x", []);
///     let w = model.parameter("w", &[], &Initializer::Zeros);
///     let loss = losses::mean_squared_error(&w, &x);
///     let train =
///         Mode::Async.minimize(&model, &Optimizer::sgd(0.25), &loss, cluster.replica(worker))?;
///     let session = cluster.open(worker, &model)?;
///     if worker == 0 {
///         session.initialize()?;
///     }
///     train.run(&session, &[(&x.name()?, Tensor::scalar(1.0f32))], &[])?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Cluster {
    spec: ClusterSpec,
    ps: Vec<TaskName>,
    workers: Vec<TaskName>,
    options: ConnectOptions,
    spread: Spread,
    registry: Registry,
    local: Option<LocalCluster>,
}

impl Cluster {
    /// A cluster whose tasks run elsewhere, as a cluster specification:
    /// `ps=host:port,host:port;worker=host:port`, TensorFlow's
    /// `ps|host:port;host:port,worker|host:port`, JSON (`{"ps": ["host:port"], ...}` or the
    /// contents of TF_CONFIG), or `@FILE` with one of these. No connection is made yet.
    pub fn connect(tasks: &str) -> Result<Cluster> {
        Cluster::of(read_cluster(tasks)?)
    }

    /// As [`Cluster::connect`], from a parsed cluster specification.
    pub fn of(spec: ClusterSpec) -> Result<Cluster> {
        let tasks = |job: &str| {
            let tasks = spec.tasks().map(|(task, _)| task).filter(|task| task.job == job);
            tasks.cloned().collect::<Vec<TaskName>>()
        };
        let workers: Vec<TaskName> = WORKERS.into_iter().flat_map(tasks).collect();
        let ps = tasks(PS);
        ensure!(!workers.is_empty(), InvalidArgument, "a cluster without workers trains nothing");
        let (options, spread) = (ConnectOptions::default(), Spread::default());
        let registry = Registry::built_in();
        Ok(Cluster { spec, ps, workers, options, spread, registry, local: None })
    }

    /// A cluster of `ps` parameter servers and `workers` workers in this process, on loopback; the
    /// tasks end when the cluster is dropped.
    pub fn local(ps: u32, workers: u32) -> Result<Cluster> {
        Cluster::local_with(ps, workers, Registry::built_in())
    }

    /// As [`Cluster::local`], with tasks that have these ops and kernels.
    pub fn local_with(ps: u32, workers: u32, registry: Registry) -> Result<Cluster> {
        Cluster::local_on(ps, workers, &[], registry)
    }

    /// As [`Cluster::local_with`], with accelerators for the workers. Each worker gets an equal share of
    /// them; several workers use one where there are fewer than workers. Parameter servers stay on
    /// CPUs.
    pub fn local_on(
        ps: u32,
        workers: u32,
        accelerators: &[Arc<dyn PhysicalDevice>],
        registry: Registry,
    ) -> Result<Cluster> {
        let Registry { ops, kernels } = registry.clone();
        let jobs = [(PS, ps), ("worker", workers)];
        let accelerators = accelerators.to_vec();
        let options = move |task: &TaskName| TaskOptions {
            accelerators: match task.job == PS {
                true => Vec::new(),
                false => share(&accelerators, task.index as usize, workers as usize),
            },
            ..TaskOptions::default()
        };
        let local = LocalCluster::start_with(&jobs, options, ops, kernels)?;
        let cluster = Cluster::of(local.spec().clone())?.with_registry(registry);
        Ok(Cluster { local: Some(local), ..cluster })
    }

    /// Sets the ops of the graphs that a [`crate::Trainer`] builds for this cluster; the built-in
    /// ones by default. Tasks that run elsewhere need the kernels too.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Cluster {
        Cluster { registry, ..self }
    }

    /// The ops of graphs for this cluster, with their kernels.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Sets how sessions connect.
    #[must_use]
    pub fn options(self, options: ConnectOptions) -> Cluster {
        Cluster { options, ..self }
    }

    /// Sets how variables are distributed over the parameter servers; round-robin by default.
    #[must_use]
    pub fn spread(self, spread: Spread) -> Cluster {
        Cluster { spread, ..self }
    }

    /// All tasks with their addresses.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// The parameter-server tasks.
    pub fn ps(&self) -> &[TaskName] {
        &self.ps
    }

    /// The worker tasks; the first is the chief.
    pub fn workers(&self) -> &[TaskName] {
        &self.workers
    }

    /// The tasks of this process, if [`Cluster::local`] made them: tests can make them crash.
    pub fn tasks_here(&self) -> Option<&LocalCluster> {
        self.local.as_ref()
    }

    /// The replica index and the number of replicas of a worker.
    pub fn replica(&self, worker: usize) -> Replica {
        Replica { index: worker, count: self.workers.len() }
    }

    /// The device name of a worker.
    pub fn device(&self, worker: usize) -> Result<String> {
        let task = self.worker(worker)?;
        Ok(format!("/job:{}/task:{}", task.job, task.index))
    }

    /// The model as a worker builds it: variables on the parameter servers according to
    /// [`Cluster::spread`], all other nodes on the worker. Without parameter servers, variables are
    /// placed on the chief.
    pub fn place(&self, model: Model, worker: usize) -> Result<Model> {
        let (job, tasks) = match self.ps.len() {
            0 => (self.workers[0].job.clone(), 1),
            count => (PS.to_owned(), count as u32),
        };
        Ok(model.place(self.spread.over(job, tasks)).on(&self.device(worker)?))
    }

    /// Asks tasks to stop once no client has a session on them, at the latest after `grace`.
    /// Returns the tasks that keep running, with the reason: they are not Thalweg servers, clients
    /// may not stop them, or they do not answer.
    pub fn stop(&self, stops: Stops, grace: Duration) -> Result<Vec<(TaskName, Error)>> {
        let tasks = match stops {
            Stops::Nobody => Vec::new(),
            Stops::Ps => self.ps.clone(),
            Stops::All => [&self.ps[..], &self.workers].concat(),
        };
        let answers = stop_tasks(&self.spec, &tasks, grace, STOP_LIMIT)?;
        Ok(answers.into_iter().filter_map(|(task, answer)| Some((task, answer.err()?))).collect())
    }

    /// Opens a session on a worker's task by handle. Variables are not initialized: they may have
    /// values there.
    pub fn open(&self, worker: usize, model: &Model) -> Result<thalweg_api::Session> {
        model.check()?;
        model.session_over(self.session(worker, &model.as_scope().to_graph())?)
    }

    /// Opens a session on a worker's task.
    pub fn session(&self, worker: usize, graph: &Graph) -> Result<RemoteSession> {
        RemoteSession::open(&self.target(worker)?, graph.to_def(), self.options.clone())
    }

    /// The target of a worker's task, `grpc://host:port`, as `Graph::session_on` takes it.
    pub fn target(&self, worker: usize) -> Result<String> {
        let task = self.worker(worker)?;
        let address = self.spec.address(task);
        let address = address.ok_or_else(|| err!(Internal, "{task} has no address"))?;
        Ok(format!("grpc://{address}"))
    }

    fn worker(&self, worker: usize) -> Result<&TaskName> {
        let count = self.workers.len();
        let task = self.workers.get(worker);
        task.ok_or_else(|| err!(OutOfRange, "the cluster has no worker {worker}, only {count}"))
    }
}

/// The part of `all` that belongs to worker `index` of `workers`: every device whose number is its own
/// modulo their number, or one that it shares.
fn share<T: Clone>(all: &[T], index: usize, workers: usize) -> Vec<T> {
    if all.len() < workers {
        return all.get(index % all.len().max(1)).cloned().into_iter().collect();
    }
    all.iter().skip(index).step_by(workers.max(1)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn workers_share_devices_equally() {
        let all = [0, 1, 2, 3, 4];
        assert_eq!(share(&all, 0, 2), [0, 2, 4]);
        assert_eq!(share(&all, 1, 2), [1, 3]);
        assert_eq!([0, 1, 2].map(|worker| share(&all[..2], worker, 3)), [[0], [1], [0]]);
        assert!(share(&all[..0], 1, 2).is_empty());
        assert_eq!(share(&all, 0, 1), all);
    }
}
