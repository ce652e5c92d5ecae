//! Reaping of orphaned processes when this process runs as PID 1 of a container.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions, wait, waitpid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The children that this process waits for itself: their exit status must not be taken by the
/// reaper.
#[derive(Clone, Default)]
pub(crate) struct Children(Arc<Mutex<BTreeSet<i32>>>);

/// A registered child; it is unregistered on drop.
pub(crate) struct RegisteredChild {
    children: Children,
    id: i32,
}

impl Children {
    /// Starts a child. It may end before it is registered, but it is not reaped before that.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<(Child, RegisteredChild)> {
        let mut ids = self.0.lock();
        let child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
        ids.insert(id);
        Ok((child, RegisteredChild { children: self.clone(), id }))
    }

    /// Reaps ended children that are not registered.
    fn bury_others(&self) {
        let ids = self.0.lock();
        if ids.is_empty() {
            while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
            return;
        }
        let others = ended_children(std::process::id()).into_iter().filter(|id| !ids.contains(id));
        for id in others.filter_map(Pid::from_raw) {
            let _ = waitpid(Some(id), WaitOptions::NOHANG);
        }
    }
}

impl Drop for RegisteredChild {
    fn drop(&mut self) {
        self.children.0.lock().remove(&self.id);
    }
}

/// Reaps orphans from now on, except for `own` children, if this process is PID 1 of its container.
pub(crate) fn reap(own: &Children) -> io::Result<()> {
    if std::process::id() == 1 {
        tokio::spawn(reap_all(signal(SignalKind::child())?, own.clone()));
    }
    Ok(())
}

async fn reap_all(mut ended: Signal, own: Children) {
    loop {
        own.bury_others();
        if ended.recv().await.is_none() {
            return;
        }
    }
}

/// Zombie children of a process.
fn ended_children(parent: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_ended = |id: &i32| {
        fs::read(format!("/proc/{id}/stat"))
            .is_ok_and(|stat| is_ended_child(&String::from_utf8_lossy(&stat), parent))
    };
    processes.filter(has_ended).collect()
}

/// Whether a line of `/proc/PID/stat` is of a zombie child. The process name in it may contain any
/// character.
fn is_ended_child(stat: &str, parent: u32) -> bool {
    let mut words = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    words.next() == Some("Z") && words.next().and_then(|id| id.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_children_are_known_by_state_and_parent() {
        assert!(is_ended_child("12 (sh) Z 1 12 12 0 -1", 1));
        assert!(is_ended_child("12 (a) S 9 (b) Z 1 12", 1));
        assert!(!is_ended_child("12 (sh) S 1 12 12 0 -1", 1));
        assert!(!is_ended_child("12 (sh) Z 11 12 12 0 -1", 1));
        assert!(!is_ended_child("", 1));
    }

    #[test]
    fn a_child_that_nobody_waited_for_is_found() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id().cast_signed();
        // It is one until it is waited for.
        let is_found = || ended_children(std::process::id()).contains(&id);
        let found = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_found()
        });
        assert!(found);
        child.wait().unwrap();
        assert!(!is_found());
    }
}
