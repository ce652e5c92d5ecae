//! A cluster whose tasks are all servers of this process, on loopback.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_graph::OpRegistry;
use thalweg_kernel::KernelRegistry;
use thalweg_tensor::{Result, ensure, err};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::server::{Server, ServerOptions};
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::master::Master;
use crate::member::Member;
use crate::task::{Task, TaskOptions};

/// I/O threads of all tasks together; kernels run on the process's pool.
const IO_THREADS: usize = 2;
/// Bound on the shutdown of the I/O runtime.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The options of each task, except for job and index.
type OptionsOf = Box<dyn Fn(&TaskName) -> TaskOptions + Send + Sync>;

/// A cluster whose tasks are servers of this process. They end with it.
pub struct LocalCluster {
    spec: ClusterSpec,
    options: OptionsOf,
    ops: Arc<OpRegistry>,
    kernels: Arc<KernelRegistry>,
    running: Mutex<BTreeMap<TaskName, Running>>,
    /// Set until the cluster is dropped.
    runtime: Option<Runtime>,
}

/// A running task.
struct Running {
    master: Arc<Master>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl LocalCluster {
    /// Starts the given number of tasks of each job, on free ports. `options` are those of all tasks
    /// except for job and index.
    pub fn start(
        jobs: &[(&str, u32)],
        options: TaskOptions,
        ops: Arc<OpRegistry>,
        kernels: Arc<KernelRegistry>,
    ) -> Result<LocalCluster> {
        LocalCluster::start_with(jobs, move |_| options.clone(), ops, kernels)
    }

    /// As [`LocalCluster::start`], with options for each task.
    pub fn start_with(
        jobs: &[(&str, u32)],
        options: impl Fn(&TaskName) -> TaskOptions + Send + Sync + 'static,
        ops: Arc<OpRegistry>,
        kernels: Arc<KernelRegistry>,
    ) -> Result<LocalCluster> {
        let options = Box::new(options);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(IO_THREADS)
            .thread_name("thalweg-io")
            .enable_all()
            .build()
            .map_err(|e| err!(ResourceExhausted, "cannot start the I/O threads: {e}"))?;
        let mut spec = ClusterSpec::default();
        let mut listeners = Vec::new();
        for (job, count) in jobs {
            for index in 0..*count {
                let (listener, address) = listen(&runtime, "127.0.0.1:0")?;
                spec.add(TaskName::new(job, index), &address)?;
                listeners.push((TaskName::new(job, index), listener));
            }
        }
        let running = Mutex::default();
        let cluster = LocalCluster { spec, options, ops, kernels, running, runtime: Some(runtime) };
        for (task, listener) in listeners {
            cluster.serve(task, listener)?;
        }
        Ok(cluster)
    }

    /// The tasks and their addresses.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Crashes a task: closes its connections and drops its state.
    pub fn crash(&self, task: &TaskName) -> Result<()> {
        let running = self.running.lock().remove(task);
        let running = running.ok_or_else(|| err!(NotFound, "{task} is not running"))?;
        running.serving.abort();
        // An error says that the server was aborted, as intended.
        let _ = self.runtime()?.block_on(running.serving);
        running.master.close_all();
        Ok(())
    }

    /// Restarts a crashed task without its state, at the same address.
    pub fn restart(&self, task: &TaskName) -> Result<()> {
        let is_running = self.running.lock().contains_key(task);
        ensure!(!is_running, AlreadyExists, "{task} is running already");
        let address = self.spec.address(task);
        let address = address.ok_or_else(|| err!(NotFound, "the cluster has no {task}"))?;
        let (listener, _) = listen(self.runtime()?, address)?;
        self.serve(task.clone(), listener)
    }

    fn serve(&self, task: TaskName, listener: TcpListener) -> Result<()> {
        let options =
            TaskOptions { job: task.job.clone(), index: task.index, ..(self.options)(&task) };
        let state = Arc::new(Task::new(options, self.ops.clone(), self.kernels.clone()));
        let master = Arc::new(Master::with_member(Member::new(state, self.spec.clone())));
        // Clients are on this machine.
        let options = ServerOptions { may_be_stopped: true, ..ServerOptions::default() };
        let server = Server::new(master.clone(), options);
        let (stop, stopped) = watch::channel(false);
        let serving = self.runtime()?.spawn(server.serve(listener, stopped));
        self.running.lock().insert(task, Running { master, stop, serving });
        Ok(())
    }

    fn runtime(&self) -> Result<&Runtime> {
        self.runtime.as_ref().ok_or_else(|| err!(FailedPrecondition, "the cluster was shut down"))
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for running in self.running.get_mut().values() {
            // There is no receiver if the server has ended.
            let _ = running.stop.send(true);
            running.master.close_all();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}

fn listen(runtime: &Runtime, address: &str) -> Result<(TcpListener, String)> {
    let cannot = |e: std::io::Error| err!(Unavailable, "cannot listen on {address}: {e}");
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?.to_string();
    Ok((listener, address))
}
