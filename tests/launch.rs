//! `thalweg launch` as a user runs it: places told, output kept apart, one exit code, nobody left.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "support/folder.rs"]
mod folder;
#[path = "support/skips.rs"]
mod skips;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use folder::Folder;

/// Where the tasks of one test keep their output.
struct Logs(Folder);

impl Logs {
    fn new(test: &str) -> Logs {
        Logs(Folder::new(&format!("launch-{test}")))
    }

    /// The folder, for `--log-dir`.
    fn text(&self) -> &str {
        self.0.0.to_str().unwrap()
    }

    fn launch(&self, args: &[&str], script: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["launch", "--log-dir", self.text()])
            .args(args)
            .args(["--", "sh", "-c", script])
            .output()
            .unwrap()
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
        let log = std::fs::read_to_string(logs.0.path(&format!("{task}-{index}.log"))).unwrap();
        assert!(log.contains("args --ps_hosts=127.0.0.1:"), "{log}");
        assert!(log.contains(&format!("--job_name={task} --task_index={index}")), "{log}");
    }
}

#[test]
fn servers_are_told_of_the_transport() {
    let logs = Logs::new("transport");
    let args = ["--ps", "0", "--transport", "grpc", "--memory-limit", "64"];
    let output = logs.launch(&args, r#"echo "$THALWEG_SERVER_FLAGS""#);
    let flags = r#"[worker/0] ["--transport","grpc","--memory-limit","64"]"#;
    assert!(shown(&output).contains(flags), "{}", shown(&output));
    let wrong = logs.launch(&["--transport", "tcp"], "true");
    assert_eq!(wrong.status.code(), Some(2));
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
        .args(["launch", "--log-dir", logs.text(), "--", "sleep", "1000"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Its tasks have started once their logs are there.
    let begin = Instant::now();
    while !logs.0.0.join("worker-0.log").exists() {
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

/// `unshare` with what it takes to be the first process of a new namespace; none where that is not
/// allowed.
fn unshare() -> Option<Command> {
    let first = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let own_user = [&["--user", "--map-root-user"], &first[..]].concat();
    let works = |args: &&[&str]| {
        let tried = Command::new("unshare").args(*args).arg("true").output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let args = [&first[..], &own_user].into_iter().find(works)?;
    let mut command = Command::new("unshare");
    command.args(args);
    Some(command)
}

/// The first process of a container buries what others leave there, and learns how its own children
/// end nonetheless.
#[test]
fn as_the_first_process_it_reaps_orphans() {
    let Some(mut unshare) = unshare() else {
        skips::skipped(
            "launch: as_the_first_process_it_reaps_orphans",
            "`unshare --pid` is not allowed",
        );
        return;
    };
    let logs = Logs::new("first");
    // Whoever the children of a shell in the background belong to when the shell has ended.
    let script = r#"
        for i in 1 2 3; do sh -c 'sleep 0.1 & echo left $(cut -d " " -f 4 /proc/self/stat)'; done
        sleep 0.5
        for i in 1 2 3 4 5 6 7 8 9; do
            left=$(grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l)
            [ $left = 0 ] && break; sleep 0.3
        done
        echo zombies $left; exit 7"#;
    let output = unshare
        .arg(env!("CARGO_BIN_EXE_thalweg"))
        .args(["launch", "--log-dir", logs.text(), "--ps", "0", "--workers", "2"])
        .args(["--keep-going", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let shown = shown(&output);
    assert_eq!(output.status.code(), Some(7), "{shown}");
    for worker in ["worker/0", "worker/1"] {
        assert!(shown.contains(&format!("[{worker}] zombies 0\n")), "{shown}");
        assert!(shown.contains(&format!("[{worker}] left ")), "{shown}");
    }
}

/// A few hundred tasks need more descriptors than a process has at first.
#[test]
fn the_limit_on_open_files_is_raised_or_named() {
    let logs = Logs::new("files");
    let launch = |limit: &str| {
        let program = env!("CARGO_BIN_EXE_thalweg");
        let script = format!("ulimit {limit} 40 && exec {program} \"$@\"");
        Command::new("sh")
            .args(["-c", &script, "sh", "launch", "--ps", "0", "--workers", "20", "--log-dir"])
            .args([logs.text(), "--", "true"])
            .output()
            .unwrap()
    };
    let raised = launch("-Sn");
    assert!(raised.status.success(), "{}", shown(&raised));
    assert!(raised.stderr.is_empty(), "{}", String::from_utf8_lossy(&raised.stderr));
    let low = launch("-n");
    assert!(!low.status.success(), "{}", shown(&low));
    let said = String::from_utf8_lossy(&low.stderr);
    assert!(said.contains("and the limit is 40: raise the hard limit"), "{said}");
}

/// What tasks other than `who` do not do.
fn only(who: &str, script: &str) -> String {
    let (job, index) = who.split_once('/').unwrap();
    format!(r#"case "$TF_CONFIG" in *'"index":{index},"type":"{job}"'*) {script};; esac"#)
}

#[test]
fn a_chief_is_a_task_beside_the_workers() {
    let logs = Logs::new("chief");
    let script = r#"echo "$TF_CONFIG""#;
    let output = logs.launch(&["--ps", "1", "--workers", "1", "--chief"], script);
    let shown = shown(&output);
    assert!(output.status.success(), "{shown}");
    for task in ["chief", "worker"] {
        let line = shown.lines().find(|line| line.starts_with(&format!("[{task}/0] {{")));
        let config = line.unwrap_or_else(|| panic!("{task} said nothing: {shown}"));
        for part in [
            r#""chief":["127.0.0.1:"#,
            r#""ps":["127.0.0.1:"#,
            r#""worker":["127.0.0.1:"#,
            &format!(r#""task":{{"index":0,"type":"{task}"}}"#),
        ] {
            assert!(config.contains(part), "{part} is not in {config}");
        }
    }
    // It works: its failure is the command's, and parameter servers wait for it too.
    let failing = only("chief/0", "sleep 0.5; exit 9");
    let output = logs.launch(&["--ps", "1", "--workers", "1", "--chief"], &failing);
    assert_eq!(output.status.code(), Some(9), "{}", self::shown(&output));
}

#[test]
fn the_killed_start_again_and_the_failed_if_told_so() {
    for (flags, kind, starts, code) in [
        (&[][..], "kill -9 $$", 4, 137),
        (&["--restarts", "1"], "kill -9 $$", 2, 137),
        (&["--restarts", "0"], "kill -9 $$", 1, 137),
        (&["--restarts", "1"], "exit 5", 1, 5),
        (&["--restarts", "1", "--restart-failed"], "exit 5", 2, 5),
    ] {
        let logs = Logs::new(&format!("restarts-{}-{starts}", kind.len() + flags.len()));
        let script = only("worker/0", &format!("echo begins; {kind}"));
        let args = [&["--ps", "0", "--workers", "1"][..], flags].concat();
        let output = logs.launch(&args, &script);
        let shown = shown(&output);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {shown}");
        assert_eq!(shown.matches("[worker/0] begins").count(), starts, "{flags:?}: {shown}");
        // Who reads one task's log alone learns of it too.
        let log = std::fs::read_to_string(logs.0.path("worker-0.log")).unwrap();
        assert_eq!(log.matches("restarts in").count(), starts - 1, "{log}");
    }
}

#[test]
fn others_go_on_if_told_so() {
    let script = format!("{}; sleep 3; echo done", only("worker/1", "exit 6"));
    for (flags, lines) in [(&[][..], 0), (&["--keep-going"], 2)] {
        let logs = Logs::new(&format!("keep-{lines}"));
        let args = [&["--ps", "0", "--workers", "3"][..], flags].concat();
        let output = logs.launch(&args, &script);
        let shown = shown(&output);
        assert_eq!(output.status.code(), Some(6), "{shown}");
        assert_eq!(shown.matches("] done").count(), lines, "{shown}");
    }
}
