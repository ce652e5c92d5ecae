//! TensorFlow's `ClusterSpec`: the tasks of a cluster with their addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thalweg_kernel::{DeviceName, DeviceSpec};
use thalweg_proto as pb;
use thalweg_tensor::{Error, Result, ensure, err};

/// Maximum number of tasks in a cluster.
const TASKS_MAX: usize = 100_000;

/// The name of a task, `/job:worker/replica:0/task:1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskName {
    /// The job.
    pub job: String,
    /// The index within the job.
    pub index: u32,
}

impl TaskName {
    /// Task `index` of `job`.
    pub fn new(job: &str, index: u32) -> TaskName {
        TaskName { job: job.to_owned(), index }
    }

    /// The task that a device belongs to.
    pub fn of(device: &DeviceName) -> TaskName {
        TaskName::new(&device.job, device.task)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/job:{}/replica:0/task:{}", self.job, self.index)
    }
}

impl FromStr for TaskName {
    type Err = Error;

    fn from_str(text: &str) -> Result<TaskName> {
        let spec: DeviceSpec = text.parse()?;
        let partial = || err!(InvalidArgument, "'{text}' does not name a task");
        Ok(TaskName { job: spec.job.ok_or_else(partial)?, index: spec.task.ok_or_else(partial)? })
    }
}

/// The tasks of a cluster with their addresses, `host:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSpec {
    tasks: BTreeMap<TaskName, String>,
}

impl ClusterSpec {
    /// Adds a task; an error if the cluster has it already.
    pub fn add(&mut self, task: TaskName, address: &str) -> Result<()> {
        ensure!(!task.job.is_empty(), InvalidArgument, "a job has no name");
        ensure!(
            self.tasks.len() < TASKS_MAX,
            ResourceExhausted,
            "a cluster has at most {TASKS_MAX} tasks"
        );
        ensure!(
            is_address(address),
            InvalidArgument,
            "'{address}', the address of {task}, is not host:port"
        );
        let known = self.tasks.insert(task, address.to_owned());
        ensure!(known.is_none(), InvalidArgument, "a task of the cluster occurs twice");
        Ok(())
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// All tasks with their addresses, sorted.
    pub fn tasks(&self) -> impl Iterator<Item = (&TaskName, &str)> {
        self.tasks.iter().map(|(task, address)| (task, address.as_str()))
    }

    /// The address of a task.
    pub fn address(&self, task: &TaskName) -> Option<&str> {
        self.tasks.get(task).map(String::as_str)
    }

    /// Changes the address of a task; false if it is the same, or there is no such task.
    pub(crate) fn move_to(&mut self, task: &TaskName, address: &str) -> bool {
        match self.tasks.get_mut(task) {
            Some(known) if known != address => {
                *known = address.to_owned();
                true
            }
            _ => false,
        }
    }

    /// The jobs, sorted.
    pub fn jobs(&self) -> Vec<&str> {
        let mut jobs: Vec<&str> = self.tasks.keys().map(|t| t.job.as_str()).collect();
        jobs.dedup();
        jobs
    }

    /// Number of tasks of a job.
    pub fn count(&self, job: &str) -> usize {
        self.tasks.keys().filter(|t| t.job == job).count()
    }

    /// The cluster as a `ClusterDef`.
    pub(crate) fn to_proto(&self) -> pb::ClusterDef {
        let mut jobs: BTreeMap<&str, pb::JobDef> = BTreeMap::new();
        for (task, address) in &self.tasks {
            let job = jobs.entry(&task.job).or_default();
            job.name.clone_from(&task.job);
            job.tasks.insert(task.index as i32, address.clone());
        }
        pb::ClusterDef { job: jobs.into_values().collect() }
    }

    /// The cluster that a `ClusterDef` describes.
    pub fn from_proto(proto: &pb::ClusterDef) -> Result<ClusterSpec> {
        let mut cluster = ClusterSpec::default();
        for job in &proto.job {
            let mut tasks: Vec<(&i32, &String)> = job.tasks.iter().collect();
            tasks.sort();
            for (&index, address) in tasks {
                let index = u32::try_from(index)
                    .map_err(|_| err!(InvalidArgument, "job '{}' has task {index}", job.name))?;
                cluster.add(TaskName::new(&job.name, index), address)?;
            }
        }
        Ok(cluster)
    }
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl FromStr for ClusterSpec {
    type Err = Error;

    /// `ps=host:port,host:port;worker=host:port`, or TensorFlow's `ps|host:port;host:port,worker|...`.
    fn from_str(text: &str) -> Result<ClusterSpec> {
        let (jobs, mark, tasks) =
            if text.contains('=') { (';', '=', ',') } else { (',', '|', ';') };
        let mut cluster = ClusterSpec::default();
        for part in text.split(jobs).map(str::trim).filter(|p| !p.is_empty()) {
            let (job, list) = part
                .split_once(mark)
                .ok_or_else(|| err!(InvalidArgument, "'{part}' is not job=host:port,host:port"))?;
            for (i, address) in list.split(tasks).enumerate() {
                cluster.add(TaskName::new(job.trim(), i as u32), address.trim())?;
            }
        }
        Ok(cluster)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn both_notations_give_the_same_cluster() {
        let ours: ClusterSpec = "ps=a:1,b:2; worker=c:3".parse().unwrap();
        let theirs: ClusterSpec = "ps|a:1;b:2,worker|c:3".parse().unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(ours.jobs(), ["ps", "worker"]);
        assert_eq!(ours.address(&TaskName::new("ps", 1)), Some("b:2"));
        assert_eq!(ours.count("ps"), 2);
        assert_eq!(ClusterSpec::from_proto(&ours.to_proto()).unwrap(), ours);
        assert!("".parse::<ClusterSpec>().unwrap().is_empty());
        for (invalid, words) in [
            ("ps", "not job=host:port"),
            ("ps=a", "not host:port"),
            ("ps=a:x", "not host:port"),
            ("ps=a:1;ps=b:2", "occurs twice"),
            ("=a:1", "a job has no name"),
            ("ps=", "not host:port"),
            ("ps=:1", "not host:port"),
        ] {
            let e = invalid.parse::<ClusterSpec>().unwrap_err();
            assert_eq!(e.code(), Code::InvalidArgument, "{invalid}: {e}");
            assert!(e.message().contains(words), "{invalid}: {e}");
        }
    }

    #[test]
    fn task_names_round_trip() {
        let task: TaskName = "/job:ps/replica:0/task:3".parse().unwrap();
        assert_eq!(task, TaskName::new("ps", 3));
        assert_eq!(task.to_string(), "/job:ps/replica:0/task:3");
        let e = "/job:ps".parse::<TaskName>().unwrap_err();
        assert_eq!(
            (e.code(), e.message()),
            (Code::InvalidArgument, "'/job:ps' does not name a task")
        );
    }
}
