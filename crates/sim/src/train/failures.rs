//! Failures: which task fails when.

use std::fmt;
use std::str::FromStr;

use thalweg_tensor::{Error, Result, ensure, err};

use super::TrainJob;

/// What a task does in a training job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It computes gradients; worker 0 is the chief.
    Worker,
    /// It holds variables.
    Ps,
}

/// A task that is killed and started again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// What it does.
    pub role: Role,
    /// Its index.
    pub index: u32,
    /// When, in seconds since training began.
    pub at: f64,
}

impl Failure {
    pub(super) fn check(&self, job: &TrainJob) -> Result<()> {
        let count = match self.role {
            Role::Worker => job.workers,
            Role::Ps => job.ps,
        };
        ensure!(self.index < count, InvalidArgument, "the job has no task {self}: only {count}");
        Ok(())
    }

    /// `ps/0`.
    pub(super) fn task(&self) -> String {
        let job = match self.role {
            Role::Worker => "worker",
            Role::Ps => "ps",
        };
        format!("{job}/{}", self.index)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}s", self.task(), self.at)
    }
}

impl FromStr for Failure {
    type Err = Error;

    /// `ps/0@3s`, `worker/2@1500ms`, `worker/1@0.5`.
    fn from_str(text: &str) -> Result<Failure> {
        let bad = || {
            err!(InvalidArgument, "'{text}' is no failure: one is JOB/TASK@TIME, such as ps/0@3s")
        };
        let (task, time) = text.split_once('@').ok_or_else(bad)?;
        let (job, index) = task.split_once('/').ok_or_else(bad)?;
        let role = match job {
            "ps" => Role::Ps,
            "worker" | "chief" => Role::Worker,
            _ => return Err(bad()),
        };
        let (number, unit) = match (time.strip_suffix("ms"), time.strip_suffix('s')) {
            (Some(number), _) => (number, 1e-3),
            (_, Some(number)) => (number, 1.0),
            _ => (time, 1.0),
        };
        let seconds: f64 = number.trim().parse().map_err(|_| bad())?;
        let at = seconds * unit;
        if !(0.0..=1e9).contains(&at) {
            return Err(bad());
        }
        Ok(Failure { role, index: index.parse().map_err(|_| bad())?, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read() {
        let read = |text: &str| text.parse::<Failure>();
        assert_eq!(read("ps/0@3s").unwrap(), Failure { role: Role::Ps, index: 0, at: 3.0 });
        let other = Failure { role: Role::Worker, index: 12, at: 1.5 };
        assert_eq!(read("worker/12@1500ms").unwrap(), other);
        assert_eq!(read("worker/12@1.5").unwrap(), other);
        assert_eq!(other.to_string(), "worker/12@1.5s");
        for bad in ["", "ps@3s", "ps/0", "gpu/0@3s", "ps/x@3s", "ps/0@s", "ps/0@-1s", "ps/0@nan"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
