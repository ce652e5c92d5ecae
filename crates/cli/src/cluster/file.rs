//! The cluster file: tasks, their addresses, and their limits.
//!
//! ```toml
//! name = "recommender"        # by default the file's name
//! restarts = 5                # how often a task that ended is started again; 0 by default
//! transport = "grpc"          # how tensors go between tasks; "auto" by default
//!
//! [job.ps]
//! tasks = ["127.0.0.1:2222", "127.0.0.1:2223"]
//! memory_mb = 2048            # of each task
//! threads = 2
//!
//! [job.worker]
//! tasks = 3                   # on ports that are free when the cluster starts
//! accelerator = "auto"        # as `thalweg server --accelerator` takes it
//! precision = "fast"          # and --precision
//! accelerator_memory = 0.3    # and --accelerator-memory
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use clap::ValueEnum;
use thalweg_cluster::{ClusterSpec, TaskName};
use thalweg_tensor::{Context, Result, bail, ensure, err};
use toml::{Table, Value};

use crate::accelerator::{AcceleratorFlags, PrecisionFlag};
use crate::ports::FreePorts;
use crate::server::Transport;

/// The maximum number of tasks of a file.
const TASKS_MAX: usize = 10_000;

/// The contents of a cluster file.
#[derive(Debug, PartialEq)]
pub(super) struct ClusterFile {
    pub name: String,
    pub restarts: u32,
    pub transport: Option<Transport>,
    pub jobs: BTreeMap<String, Job>,
}

/// One job of the file.
#[derive(Debug, PartialEq)]
pub(super) struct Job {
    pub tasks: Tasks,
    pub memory_mb: Option<u32>,
    pub threads: Option<u32>,
    pub accelerators: AcceleratorFlags,
}

/// The addresses of a job's tasks.
#[derive(Debug, PartialEq)]
pub(super) enum Tasks {
    /// These addresses.
    At(Vec<String>),
    /// This many tasks, on free ports of this machine.
    Free(usize),
}

impl ClusterFile {
    pub(super) fn read(path: &Path) -> Result<ClusterFile> {
        let text =
            std::fs::read_to_string(path).map_err(|e| err!(NotFound, "{}: {e}", path.display()))?;
        let stem = path.file_stem().map_or("cluster".into(), |stem| stem.to_string_lossy());
        Self::parse(&text, &stem).context(|| path.display())
    }

    fn parse(text: &str, stem: &str) -> Result<ClusterFile> {
        let table: Table =
            text.parse().map_err(|e: toml::de::Error| err!(InvalidArgument, "{}", e.message()))?;
        known(&table, &["name", "restarts", "transport", "job"])?;
        let jobs = match table.get("job") {
            Some(Value::Table(jobs)) if !jobs.is_empty() => jobs,
            _ => bail!(
                InvalidArgument,
                "the file has no job; write [job.ps], [job.worker] and so on"
            ),
        };
        let name = match table.get("name") {
            None => stem.to_owned(),
            Some(Value::String(name)) => name.clone(),
            Some(other) => bail!(InvalidArgument, "name must be a string, not {other}"),
        };
        ensure!(
            is_name(&name),
            InvalidArgument,
            "'{name}' is not a valid cluster name: letters, digits, '-' and '_', first a letter"
        );
        let jobs: BTreeMap<String, Job> = jobs
            .iter()
            .map(|(name, job)| Ok((name.clone(), Job::parse(job).context(|| name)?)))
            .collect::<Result<_>>()?;
        let bad = jobs.keys().find(|name| !is_name(name));
        ensure!(
            bad.is_none(),
            InvalidArgument,
            "'{}' is not a valid job name: letters, digits, '-' and '_', first a letter",
            bad.unwrap_or(&name)
        );
        let restarts = number(&table, "restarts")?.unwrap_or(0);
        let transport = table.get("transport").map(transport).transpose()?;
        let file = ClusterFile { name, restarts, transport, jobs };
        let tasks = file.task_count();
        ensure!(
            tasks <= TASKS_MAX,
            InvalidArgument,
            "the file has {tasks} tasks, more than {TASKS_MAX}"
        );
        Ok(file)
    }

    /// How many tasks there are.
    pub(super) fn task_count(&self) -> usize {
        self.jobs.values().map(|job| job.tasks.count()).sum()
    }

    /// The tasks of a file's text, all of which must have addresses.
    pub(super) fn cluster(text: &str) -> Result<ClusterSpec> {
        let mut cluster = ClusterSpec::default();
        for (name, job) in Self::parse(text, "cluster")?.jobs {
            let addresses = match &job.tasks {
                Tasks::At(addresses) => addresses,
                Tasks::Free(count) => bail!(
                    InvalidArgument,
                    "job {name} has {count} tasks without addresses; only `thalweg cluster` knows the \
                     ports that it chose for them"
                ),
            };
            for (address, index) in addresses.iter().zip(0..) {
                cluster.add(TaskName::new(&name, index), address)?;
            }
        }
        Ok(cluster)
    }

    /// Every job with its addresses; free ports are chosen now.
    pub(super) fn addresses(&self) -> io::Result<BTreeMap<String, Vec<String>>> {
        let mut free = FreePorts::default();
        let mut found = BTreeMap::new();
        for (name, job) in &self.jobs {
            let addresses = match &job.tasks {
                Tasks::At(addresses) => addresses.clone(),
                Tasks::Free(count) => free.addresses(*count)?,
            };
            found.insert(name.clone(), addresses);
        }
        Ok(found)
    }
}

impl Tasks {
    fn count(&self) -> usize {
        match self {
            Tasks::At(addresses) => addresses.len(),
            Tasks::Free(count) => *count,
        }
    }
}

impl Job {
    fn parse(value: &Value) -> Result<Job> {
        let Value::Table(table) = value else { bail!(InvalidArgument, "a job must be a table") };
        let keys =
            ["tasks", "memory_mb", "threads", "accelerator", "precision", "accelerator_memory"];
        known(table, &keys)?;
        let tasks = match table.get("tasks") {
            Some(Value::Array(list)) => Tasks::At(list.iter().map(address).collect::<Result<_>>()?),
            Some(Value::Integer(_)) => Tasks::Free(number(table, "tasks")?.unwrap_or(0) as usize),
            _ => bail!(InvalidArgument, "tasks must be a list of \"host:port\", or a number"),
        };
        ensure!(tasks.count() > 0, InvalidArgument, "the job has no tasks");
        Ok(Job {
            tasks,
            memory_mb: number(table, "memory_mb")?,
            threads: number(table, "threads")?,
            accelerators: accelerators(table)?,
        })
    }
}

/// Whether a name is valid for a job or a cluster: it becomes part of file and device names.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().all(fits) && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

fn address(value: &Value) -> Result<String> {
    let text = value.as_str().unwrap_or_default();
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    ensure!(port.is_some_and(|port| port > 0), InvalidArgument, "{value} must be \"host:port\"");
    Ok(text.to_owned())
}

fn transport(value: &Value) -> Result<Transport> {
    let word = value.as_str().unwrap_or_default();
    Transport::from_str(word, false)
        .map_err(|_| err!(InvalidArgument, "transport must be \"auto\" or \"grpc\", not {value}"))
}

fn accelerators(table: &Table) -> Result<AcceleratorFlags> {
    let word = |key: &str| match table.get(key) {
        Some(Value::String(word)) => Ok(Some(word.as_str())),
        Some(other) => Err(err!(InvalidArgument, "{key} must be a string, not {other}")),
        None => Ok(None),
    };
    let accelerator = word("accelerator")?.map(str::parse).transpose();
    let precision = word("precision")?.map(|word| {
        PrecisionFlag::from_str(word, false).map_err(|_| {
            err!(InvalidArgument, "precision must be \"full\" or \"fast\", not \"{word}\"")
        })
    });
    let memory = table.get("accelerator_memory").map(|value| {
        let fraction = value.as_float().map(|x| x as f32).filter(|x| *x > 0.0 && *x <= 1.0);
        fraction.ok_or_else(|| {
            err!(InvalidArgument, "accelerator_memory must be above 0 and at most 1, not {value}")
        })
    });
    Ok(AcceleratorFlags {
        accelerator: accelerator.context(|| "accelerator")?,
        precision: precision.transpose()?.unwrap_or_default(),
        accelerator_memory: memory.transpose()?,
        program_cache: None,
    })
}

fn number(table: &Table, key: &str) -> Result<Option<u32>> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
    Ok(Some(number.ok_or_else(|| {
        err!(InvalidArgument, "{key} must be a non-negative integer, not {value}")
    })?))
}

/// Rejects unknown keys.
fn known(table: &Table, keys: &[&str]) -> Result<()> {
    match table.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => {
            bail!(InvalidArgument, "unknown key '{key}'; the keys are {}", keys.join(", "))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file() {
        let text = r#"
            name = "mine"
            restarts = 2
            transport = "grpc"
            [job.ps]
            tasks = ["127.0.0.1:2222", "other:2223"]
            memory_mb = 512
            [job.worker]
            tasks = 3
            threads = 1
            accelerator = "/p.so=gpu:2"
            precision = "fast"
            accelerator_memory = 0.5
        "#;
        let file = ClusterFile::parse(text, "stem").unwrap();
        assert_eq!((file.name.as_str(), file.restarts), ("mine", 2));
        assert_eq!(file.transport, Some(Transport::Grpc));
        assert_eq!(file.jobs["ps"].memory_mb, Some(512));
        assert_eq!(file.jobs["worker"].threads, Some(1));
        let flags =
            ["--accelerator", "/p.so=GPU:2", "--precision", "fast", "--accelerator-memory", "0.5"];
        assert_eq!(file.jobs["worker"].accelerators.to_args(), flags);
        assert!(file.jobs["ps"].accelerators.to_args().is_empty());
        let addresses = file.addresses().unwrap();
        assert_eq!(addresses["ps"], ["127.0.0.1:2222", "other:2223"]);
        let mut free = addresses["worker"].clone();
        free.dedup();
        assert_eq!(free.len(), 3);
        assert_eq!(ClusterFile::parse("[job.a]\ntasks = 1", "stem").unwrap().name, "stem");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("", "has no job"),
            ("[job.ps]", "must be a list of"),
            ("[job.ps]\ntasks = []", "no tasks"),
            ("[job.ps]\ntasks = 0", "no tasks"),
            ("[job.ps]\ntasks = -1", "must be a non-negative integer"),
            ("[job.ps]\ntasks = 1\naccelerator = 1", "must be a string"),
            ("[job.ps]\ntasks = 1\naccelerator = \"p.so=CPU\"", "not a type of accelerators"),
            ("[job.ps]\ntasks = 1\nprecision = \"half\"", "\"full\" or \"fast\""),
            ("[job.ps]\ntasks = 1\naccelerator_memory = 1.5", "at most 1"),
            ("[job.ps]\ntasks = 100000", "more than"),
            ("[job.ps]\ntasks = [\"here\"]", "host:port"),
            ("[job.ps]\ntasks = [\"here:0\"]", "host:port"),
            ("[job.ps]\ntasks = 1\nmemory = 3", "unknown key 'memory'"),
            ("[job.\"../x\"]\ntasks = 1", "not a valid job name"),
            ("name = \"a/b\"\n[job.ps]\ntasks = 1", "not a valid cluster name"),
            ("transport = \"tcp\"\n[job.ps]\ntasks = 1", "\"auto\" or \"grpc\""),
            ("transport = 1\n[job.ps]\ntasks = 1", "\"auto\" or \"grpc\""),
            ("restarts = true\n[job.ps]\ntasks = 1", "must be a non-negative integer"),
            ("[job", "unclosed"),
        ] {
            let error = ClusterFile::parse(text, "stem").unwrap_err();
            assert!(error.message().contains(words), "{text:?}: {error}");
        }
    }
}
