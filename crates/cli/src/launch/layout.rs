//! The tasks of a launched cluster, and how a program learns its task.

use std::collections::BTreeMap;
use std::io;

use serde_json::json;

use crate::ports::FreePorts;

/// Jobs whose end ends the program; tasks of other jobs serve them.
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
pub(super) struct Place {
    pub job: String,
    pub index: usize,
}

impl Place {
    /// `worker/0`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.job, self.index)
    }

    /// Whether the program ends with tasks of this kind.
    pub(super) fn works(&self) -> bool {
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
    pub(super) fn places(&self) -> Vec<Place> {
        let places = |(job, addresses): (&String, &Vec<String>)| -> Vec<Place> {
            (0..addresses.len()).map(|index| Place { job: job.clone(), index }).collect()
        };
        self.jobs.iter().flat_map(places).collect()
    }

    /// The address of a task.
    pub(super) fn address(&self, place: &Place) -> &str {
        &self.jobs[&place.job][place.index]
    }

    /// The TF_CONFIG of a task.
    pub(super) fn tf_config(&self, place: &Place) -> String {
        let task = json!({"type": place.job, "index": place.index});
        json!({"cluster": self.jobs, "task": task, "environment": "cloud"}).to_string()
    }

    /// The arguments of a task, for those of `FLAGS` that its program knows.
    pub(super) fn arguments(&self, place: &Place, known: &[&str]) -> Vec<String> {
        let value = |flag: &str| match flag {
            "job_name" => Some(place.job.clone()),
            "task_index" | "task_id" => Some(place.index.to_string()),
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
        let names: Vec<String> = layout.places().iter().map(Place::name).collect();
        assert_eq!(names, ["ps/0", "ps/1", "worker/0", "worker/1", "worker/2"]);
        let place = Place { job: "worker".into(), index: 2 };
        let config: serde_json::Value = serde_json::from_str(&layout.tf_config(&place)).unwrap();
        assert_eq!(config["task"], json!({"type": "worker", "index": 2}));
        assert_eq!(config["cluster"]["worker"][2], layout.address(&place));
        assert!(config["cluster"]["chief"].is_null());

        let known =
            flags_in("flags.DEFINE_string('ps_hosts', ''); add('--task_index'); 'job_name'");
        assert_eq!(known, ["ps_hosts", "job_name", "task_index"]);
        let ps = [0, 1].map(|index| layout.address(&Place { job: "ps".into(), index }).to_owned());
        let expected = [
            format!("--ps_hosts={}", ps.join(",")),
            "--job_name=worker".into(),
            "--task_index=2".into(),
        ];
        assert_eq!(layout.arguments(&place, &known), expected);
        // A flag for hosts of a job that is not there is left to its default.
        assert!(layout.arguments(&place, &["chief_hosts"]).is_empty());
    }

    #[test]
    fn addresses_differ() {
        let layout = Layout::on_free_ports(&[("ps", 20), ("worker", 20)]).unwrap();
        let mut addresses: Vec<&str> =
            layout.places().iter().map(|place| layout.address(place)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 40);
    }
}
