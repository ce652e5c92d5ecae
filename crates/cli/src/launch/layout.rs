//! The tasks of a launched cluster, and how a program learns its task.

use std::collections::BTreeMap;
use std::io;

use serde_json::json;

use crate::ports::FreePorts;

/// The jobs that the launch waits for; tasks of other jobs are stopped when these have ended.
const WORKING_JOBS: &[&str] = &["chief", "worker"];

/// The flags by which TensorFlow 1.x programs get their task.
const FLAGS: &[&str] = &[
    "ps_hosts",
    "worker_hosts",
    "chief_hosts",
    "evaluator_hosts",
    "job_name",
    "task_index",
    "task_id",
];

/// The jobs and the address of each of their tasks.
#[derive(Debug)]
pub(super) struct Layout {
    jobs: BTreeMap<String, Vec<String>>,
}

/// One task of a layout.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LaunchTask {
    pub job: String,
    pub index: usize,
}

impl LaunchTask {
    /// `worker/0`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.job, self.index)
    }

    /// Whether the launch waits for this task to end.
    pub(super) fn is_working(&self) -> bool {
        WORKING_JOBS.contains(&self.job.as_str())
    }
}

impl Layout {
    /// This many tasks of each job, on free ports of this machine.
    pub(super) fn on_free_ports(counts: &[(&str, usize)]) -> io::Result<Layout> {
        let mut free = FreePorts::default();
        let mut jobs = BTreeMap::new();
        for &(job, count) in counts.iter().filter(|(_, count)| *count > 0) {
            jobs.insert(job.to_owned(), free.addresses(count)?);
        }
        Ok(Layout { jobs })
    }

    /// All tasks, by job.
    pub(super) fn tasks(&self) -> Vec<LaunchTask> {
        let tasks = |(job, addresses): (&String, &Vec<String>)| -> Vec<LaunchTask> {
            (0..addresses.len()).map(|index| LaunchTask { job: job.clone(), index }).collect()
        };
        self.jobs.iter().flat_map(tasks).collect()
    }

    /// The address of a task.
    pub(super) fn address(&self, task: &LaunchTask) -> &str {
        &self.jobs[&task.job][task.index]
    }

    /// The TF_CONFIG of a task.
    pub(super) fn tf_config(&self, task: &LaunchTask) -> String {
        let task = json!({"type": task.job, "index": task.index});
        json!({"cluster": self.jobs, "task": task, "environment": "cloud"}).to_string()
    }

    /// The arguments of a task, for those of `FLAGS` that its program knows.
    pub(super) fn arguments(&self, task: &LaunchTask, known: &[&str]) -> Vec<String> {
        let value = |flag: &str| match flag {
            "job_name" => Some(task.job.clone()),
            "task_index" | "task_id" => Some(task.index.to_string()),
            _ => {
                let job = flag.strip_suffix("_hosts")?;
                self.jobs.get(job).map(|addresses| addresses.join(","))
            }
        };
        known.iter().filter_map(|flag| Some(format!("--{flag}={}", value(flag)?))).collect()
    }
}

/// Those of `FLAGS` that the text of a program defines: quoted, with or without dashes.
pub(super) fn flags_in(program: &str) -> Vec<&'static str> {
    let defined = |flag: &&&str| {
        ["\"", "'"].iter().any(|quote| {
            program.contains(&format!("{quote}{flag}{quote}"))
                || program.contains(&format!("{quote}--{flag}{quote}"))
        })
    };
    FLAGS.iter().filter(defined).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_told_their_place() {
        let layout = Layout::on_free_ports(&[("ps", 2), ("worker", 3), ("chief", 0)]).unwrap();
        let names: Vec<String> = layout.tasks().iter().map(LaunchTask::name).collect();
        assert_eq!(names, ["ps/0", "ps/1", "worker/0", "worker/1", "worker/2"]);
        let task = LaunchTask { job: "worker".into(), index: 2 };
        let config: serde_json::Value = serde_json::from_str(&layout.tf_config(&task)).unwrap();
        assert_eq!(config["task"], json!({"type": "worker", "index": 2}));
        assert_eq!(config["cluster"]["worker"][2], layout.address(&task));
        assert!(config["cluster"]["chief"].is_null());

        let known =
            flags_in("flags.DEFINE_string('ps_hosts', ''); add('--task_index'); 'job_name'");
        assert_eq!(known, ["ps_hosts", "job_name", "task_index"]);
        let ps =
            [0, 1].map(|index| layout.address(&LaunchTask { job: "ps".into(), index }).to_owned());
        let expected = [
            format!("--ps_hosts={}", ps.join(",")),
            "--job_name=worker".into(),
            "--task_index=2".into(),
        ];
        assert_eq!(layout.arguments(&task, &known), expected);
        // A flag for hosts of a job that is not there is left to its default.
        assert!(layout.arguments(&task, &["chief_hosts"]).is_empty());
    }

    #[test]
    fn addresses_differ() {
        let layout = Layout::on_free_ports(&[("ps", 20), ("worker", 20)]).unwrap();
        let mut addresses: Vec<&str> =
            layout.tasks().iter().map(|task| layout.address(task)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 40);
    }
}
