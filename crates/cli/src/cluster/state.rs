//! The state of a running cluster on disk, for the commands that query or stop it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thalweg_tensor::{Result, err};

/// The state folder of one cluster: logs of its tasks, its supervisor, its tasks.
pub(super) struct StateFolder(PathBuf);

/// A cluster as it was started.
#[derive(Debug, PartialEq)]
pub(super) struct Started {
    /// The process id of the supervisor.
    pub supervisor: u32,
    /// Name and address of each task.
    pub tasks: Vec<(String, String)>,
}

impl StateFolder {
    /// The state folder of the cluster `name`, in `parent` or the user's state folder.
    pub(super) fn of(name: &str, parent: Option<&Path>) -> Result<StateFolder> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => default_parent()?,
        };
        let folder = parent.join(name);
        fs::create_dir_all(&folder).map_err(|e| err!(Unavailable, "{}: {e}", folder.display()))?;
        Ok(StateFolder(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The log file of a task.
    pub(super) fn log(&self, task: &str) -> PathBuf {
        self.0.join(format!("{}.log", task.replace('/', "-")))
    }

    /// The output of a task, as far as it is readable.
    pub(super) fn output(&self, task: &str) -> String {
        fs::read(self.log(task)).map_or(String::new(), |b| String::from_utf8_lossy(&b).into_owned())
    }

    /// Locks the cluster; `None` if a supervisor holds the lock. The lock is released when the file
    /// is closed, thus when the process ends.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        let path = self.0.join("lock");
        let file = File::options().create(true).write(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Writes the state.
    pub(super) fn save(&self, started: &Started) -> io::Result<()> {
        let tasks: Vec<Value> = started
            .tasks
            .iter()
            .map(|(name, address)| json!({"name": name, "address": address}))
            .collect();
        let text = json!({"supervisor": started.supervisor, "tasks": tasks}).to_string();
        let path = self.0.join("cluster.json.new");
        File::create(&path)?.write_all(text.as_bytes())?;
        fs::rename(path, self.0.join("cluster.json"))
    }

    /// The state of the last start; `None` if there was none.
    pub(super) fn started(&self) -> Option<Started> {
        let text = fs::read_to_string(self.0.join("cluster.json")).ok()?;
        let json: Value = serde_json::from_str(&text).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let tasks = json["tasks"].as_array()?.iter();
        Some(Started {
            supervisor: u32::try_from(json["supervisor"].as_u64()?).ok()?,
            tasks: tasks
                .map(|task| Some((text(&task["name"])?, text(&task["address"])?)))
                .collect::<Option<_>>()?,
        })
    }
}

fn default_parent() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match (set("XDG_STATE_HOME"), set("HOME")) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => PathBuf::from(home).join(".local/state"),
        (None, None) => {
            return Err(err!(
                FailedPrecondition,
                "HOME is not set: --state-dir DIR says where logs are kept"
            ));
        }
    };
    Ok(state.join("thalweg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_supervisor_at_a_time() {
        let parent = std::env::temp_dir().join(format!("thalweg-state-{}", std::process::id()));
        let state = StateFolder::of("mine", Some(&parent)).unwrap();
        assert_eq!(state.started(), None);
        let held = state.lock().unwrap();
        assert!(held.is_some());
        assert!(state.lock().unwrap().is_none());
        drop(held);
        assert!(state.lock().unwrap().is_some());
        let started = Started { supervisor: 7, tasks: vec![("ps/0".into(), "h:1".into())] };
        state.save(&started).unwrap();
        assert_eq!(state.started(), Some(started));
        fs::remove_dir_all(parent).unwrap();
    }
}
