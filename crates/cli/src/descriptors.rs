//! The limit on open file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The maximum limit that is requested: some programs that inherit the limit iterate over all
/// descriptors below it.
const LIMIT_MAX: u64 = 1 << 20;
/// Descriptors besides connections: logs, pipes, files of graphs.
const BASE_COUNT: u64 = 64;
/// Connections between two tasks: calls, tensors and a stream, in each direction, and one for a
/// reconnection.
const PER_PEER: u64 = 8;
/// Descriptors of a supervisor per process: pipes, its log, a handle, and a port while free ones
/// are chosen.
const PER_PROCESS: u64 = 6;

/// Raises the soft limit as far as this user may.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(LIMIT_MAX, |hard| hard.min(LIMIT_MAX));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without the permission the old limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// A warning if a task of a cluster of `tasks` tasks may run out of descriptors.
pub(crate) fn shortage_of_task(tasks: usize) -> Option<String> {
    let needed = BASE_COUNT + PER_PEER * tasks as u64;
    shortage(needed, &format!("a task of a cluster of {tasks}"), limit())
}

/// A warning if a supervisor of `processes` processes may run out of descriptors.
pub(crate) fn shortage_of_supervisor(processes: usize) -> Option<String> {
    let needed = BASE_COUNT + PER_PROCESS * processes as u64;
    shortage(needed, &format!("the supervisor of {processes} processes"), limit())
}

fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

fn shortage(needed: u64, who: &str, limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|limit| *limit < needed)?;
    Some(format!(
        "{who} needs up to {needed} open file descriptors, and the limit is {limit}: raise \
         the hard limit (ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of docker)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_named() {
        assert_eq!(shortage(1000, "a task", Some(1000)), None);
        assert_eq!(shortage(1000, "a task", None), None);
        let said = shortage(1000, "a task", Some(999)).unwrap();
        assert!(said.contains("up to 1000") && said.contains("the limit is 999"), "{said}");
    }
}
