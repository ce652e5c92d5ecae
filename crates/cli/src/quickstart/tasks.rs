//! The tasks of the quickstart cluster: processes that are started, killed and restarted.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::Environment;
use thalweg_runtime::system_environment;
use thalweg_tensor::{Result, err};
use thalweg_train::trainer::{Callback, Control, Event, Step};

use super::process::Process;
use crate::ports::FreePorts;

/// The line that a task prints once it listens.
const LISTENING: &str = "listening on";
/// The jobs, with the number of their tasks.
const JOBS: [(&str, usize); 2] = [("ps", 1), ("worker", 2)];

/// Processes on this machine, each a task of one cluster. They are stopped on drop.
pub(super) struct Tasks {
    addresses: BTreeMap<String, Vec<String>>,
    /// Further arguments of workers.
    of_workers: Vec<String>,
    logs: String,
    running: Mutex<BTreeMap<String, Process>>,
    /// Held while ended tasks are restarted: several threads may notice an end at the same time.
    restarting: Mutex<()>,
}

impl Tasks {
    /// Starts all tasks, workers with these further arguments; their output goes to `folder/logs`.
    pub(super) fn start(folder: &str, of_workers: &[String]) -> Result<Tasks> {
        let failed = |e: std::io::Error| err!(Unavailable, "the tasks cannot be started: {e}");
        let logs = format!("{folder}/logs");
        fs::create_dir_all(&logs).map_err(failed)?;
        let mut ports = FreePorts::default();
        let mut addresses = BTreeMap::new();
        for (job, count) in JOBS {
            addresses.insert(job.to_owned(), ports.addresses(count).map_err(failed)?);
        }
        drop(ports);
        let tasks = Tasks {
            addresses,
            of_workers: of_workers.to_vec(),
            logs,
            running: Mutex::default(),
            restarting: Mutex::default(),
        };
        for (name, _) in tasks.addresses() {
            tasks.spawn(&name)?;
        }
        for (name, _) in tasks.addresses() {
            if let Some(task) = tasks.running.lock().get_mut(&name) {
                task.wait_for_line(LISTENING)?;
            }
        }
        Ok(tasks)
    }

    /// `ps=host:port;worker=host:port,host:port`.
    pub(super) fn spec(&self) -> String {
        let job =
            |(job, addresses): (&String, &Vec<String>)| format!("{job}={}", addresses.join(","));
        self.addresses.iter().map(job).collect::<Vec<_>>().join(";")
    }

    /// All tasks by name, `worker/0`, with their addresses.
    pub(super) fn addresses(&self) -> Vec<(String, String)> {
        let of_job = |(job, addresses): (&String, &Vec<String>)| {
            let named = |(i, at): (usize, &String)| (format!("{job}/{i}"), at.clone());
            addresses.iter().enumerate().map(named).collect::<Vec<_>>()
        };
        self.addresses.iter().flat_map(of_job).collect()
    }

    /// Whether there is such a task.
    pub(super) fn has(&self, name: &str) -> bool {
        self.addresses().iter().any(|(task, _)| task == name)
    }

    /// The process id of a task; 0 if there is none.
    pub(super) fn id(&self, name: &str) -> u32 {
        self.running.lock().get(name).map_or(0, Process::id)
    }

    /// Kills a task with SIGKILL and waits until it has ended: its connections close a little
    /// earlier.
    pub(super) fn kill(&self, name: &str) -> Result<()> {
        let mut running = self.running.lock();
        running.get_mut(name).ok_or_else(|| err!(NotFound, "there is no task {name}"))?.kill()
    }

    /// Restarts the tasks that have ended; returns their names.
    pub(super) fn restart_ended(&self) -> Result<Vec<String>> {
        let ended = |(name, task): (&String, &mut Process)| task.has_ended().then(|| name.clone());
        let _alone = self.restarting.lock();
        let ended: Vec<String> = self.running.lock().iter_mut().filter_map(ended).collect();
        for name in &ended {
            self.spawn(name)?;
        }
        Ok(ended)
    }

    /// Stops all tasks and waits for their end.
    pub(super) fn end(&self) {
        let mut running = std::mem::take(&mut *self.running.lock());
        running.values_mut().for_each(Process::ask_to_end);
    }

    fn spawn(&self, name: &str) -> Result<()> {
        let (job, index) = name.split_once('/').unwrap_or((name, "0"));
        let spec = self.spec();
        let cluster = ["--cluster", &spec, "--job-name", job, "--task-index", index];
        let of_workers = if job == "worker" { &self.of_workers[..] } else { &[] };
        let of_workers: Vec<&str> = of_workers.iter().map(String::as_str).collect();
        let common = ["server", "--with-parent", "--threads", "1"];
        let args = [&common[..], &cluster, &of_workers].concat();
        let log = format!("{}/{}.log", self.logs, name.replace('/', "-"));
        let task = Process::start(name, &args, log)?;
        self.running.lock().insert(name.to_owned(), task);
        Ok(())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills tasks during training, and restarts them once workers notice.
pub(super) struct FaultInjector {
    tasks: Arc<Tasks>,
    environment: Environment,
    /// Tasks, with the number of updates at which each is killed.
    schedule: Vec<(String, u64)>,
    next: AtomicUsize,
    kills: Mutex<Vec<Kill>>,
}

/// A killed task: when it was killed, and when that was detected.
struct Kill {
    name: String,
    killed: Duration,
    detected: Option<Duration>,
}

impl FaultInjector {
    /// Kills these tasks, spread evenly over this number of updates.
    pub(super) fn new(tasks: Arc<Tasks>, names: Vec<String>, updates: u64) -> FaultInjector {
        let parts = names.len() as u64 + 1;
        let at = |(i, name): (usize, String)| (name, updates * (i as u64 + 1) / parts);
        FaultInjector {
            tasks,
            environment: system_environment(),
            schedule: names.into_iter().enumerate().map(at).collect(),
            next: AtomicUsize::new(0),
            kills: Mutex::default(),
        }
    }

    /// The killed tasks, the time until a worker detected the failure, and the time of the kill.
    pub(super) fn kills(&self) -> Vec<(String, Option<Duration>, Duration)> {
        let all = self.kills.lock();
        let report = |kill: &Kill| {
            let after = kill.detected.map(|at| at.saturating_sub(kill.killed));
            (kill.name.clone(), after, kill.killed)
        };
        all.iter().map(report).collect()
    }

    /// How long it took until the first kill was detected.
    pub(super) fn detection(&self) -> Option<Duration> {
        self.kills().into_iter().find_map(|(_, detected, _)| detected)
    }
}

impl Callback for FaultInjector {
    fn on_step(&self, step: &Step, _control: &Control) -> Result<()> {
        let next = self.next.load(Ordering::SeqCst);
        let Some((name, at)) = self.schedule.get(next) else { return Ok(()) };
        // Another worker's step triggers the kill, so that the task dies in the middle of a step.
        let is_other = *name != format!("worker/{}", step.worker);
        let is_due = is_other
            && step.updates >= *at
            && self
                .next
                .compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if is_due {
            // Recorded before the kill, which a worker may detect at once.
            let killed = self.environment.clock.monotonic();
            self.kills.lock().push(Kill { name: name.clone(), killed, detected: None });
            self.tasks.kill(name)?;
        }
        Ok(())
    }

    fn on_event(&self, event: &Event) {
        if !matches!(event, Event::Lost { .. }) {
            return;
        }
        let now = self.environment.clock.monotonic();
        if let Some(kill) = self.kills.lock().last_mut() {
            kill.detected.get_or_insert(now);
        }
        // If a task cannot be restarted, training ends with the error of its loss.
        let _ = self.tasks.restart_ended();
    }
}
