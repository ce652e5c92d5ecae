//! `thalweg launch` as a user runs it: places told, output kept apart, one exit code, nobody left.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where the tasks of one test keep their output; gone when dropped.
struct Logs(PathBuf);

impl Logs {
    fn new(test: &str) -> Logs {
        Logs(std::env::temp_dir().join(format!("thalweg-launch-{test}-{}", std::process::id())))
    }

    fn launch(&self, args: &[&str], script: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["launch", "--logs", self.0.to_str().unwrap()])
            .args(args)
            .args(["--", "sh", "-c", script])
            .output()
            .unwrap()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_task_knows_its_place() {
    let logs = Logs::new("place");
    let script = r#"echo "$TF_CONFIG" | grep -o '"task":.*'; echo "args $0 $@""#;
    let output = logs.launch(&["--ps", "1", "--workers", "2", "--flags", "all"], script);
    let shown = shown(&output);
    assert!(output.status.success(), "{shown}");
    for (task, index) in [("worker", 0), ("worker", 1)] {
        let place = format!(r#"[{task}/{index}] "task":{{"index":{index},"type":"{task}"}}}}"#);
        assert!(shown.contains(&place), "{place} is not in {shown}");
        let log = std::fs::read_to_string(logs.0.join(format!("{task}-{index}.log"))).unwrap();
        assert!(log.contains("args --ps_hosts=127.0.0.1:"), "{log}");
        assert!(log.contains(&format!("--job_name={task} --task_index={index}")), "{log}");
    }
}

#[test]
fn parameter_servers_end_with_the_workers() {
    let logs = Logs::new("end");
    let begin = Instant::now();
    let script = r#"case "$TF_CONFIG" in *'"type":"ps"'*) sleep 1000;; *) echo done;; esac"#;
    let output = logs.launch(&["--ps", "2", "--workers", "1"], script);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(begin.elapsed() < Duration::from_secs(20), "the ps were waited for");
}

#[test]
fn a_failure_is_the_exit_code() {
    let logs = Logs::new("failure");
    let script =
        r#"case "$TF_CONFIG" in *'"index":1,"type":"worker"'*) exit 7;; *) sleep 1000;; esac"#;
    let output = logs.launch(&["--ps", "1", "--workers", "2"], script);
    assert_eq!(output.status.code(), Some(7), "{}", shown(&output));
    assert!(shown(&output).contains("[worker/1] thalweg: ended (exit status: 7)"));
}

#[test]
fn a_signal_ends_all() {
    let logs = Logs::new("signal");
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["launch", "--logs", logs.0.to_str().unwrap(), "--", "sleep", "1000"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Its tasks have started once their logs are there.
    let begin = Instant::now();
    while !logs.0.join("worker-0.log").exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "no task started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_cluster_that_does_nothing_is_refused() {
    let logs = Logs::new("nothing");
    let output = logs.launch(&["--workers", "0"], "true");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("without workers and chief"));
}
