//! The log of a server, as a process writes it: text or JSON, by level and target.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg::prelude::*;

/// How long a message may take to appear.
const LIMIT: Duration = Duration::from_secs(40);

/// A server in a process of its own whose standard error goes to a file.
struct Server {
    child: Child,
    log: PathBuf,
    target: String,
}

impl Server {
    fn start(name: &str, args: &[&str], variables: &[(&str, &str)]) -> Server {
        let log = std::env::temp_dir().join(format!("thalweg-{name}-{}.log", std::process::id()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .arg("server")
            .args(args)
            .env_remove("RUST_LOG")
            .env_remove("THALWEG_LOG")
            .env_remove("THALWEG_LOG_FORMAT")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        Server { target: format!("grpc://{address}"), child, log }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The first line that holds `words`, once there is one.
    fn line(&self, words: &str) -> String {
        let begin = Instant::now();
        loop {
            let text = self.text();
            if let Some(line) = text.lines().find(|line| line.contains(words)) {
                return line.to_owned();
            }
            assert!(begin.elapsed() < LIMIT, "'{words}' is not in:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server in order; all that it logged.
    fn end(mut self) -> String {
        self.signal("-TERM");
        self.child.wait().unwrap();
        self.text()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

/// On the parameter server: y = check(x), which fails where x is not finite, and y is negated by the
/// worker.
fn model() -> Scope {
    let s = thalweg::scope();
    let (mut ps, mut worker) = (s.on_device("/job:ps/task:0"), s.on_device("/job:worker/task:0"));
    let x = worker.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    let y = ps.op("CheckNumerics").name("y").attr("message", "bad").input(x).build().unwrap();
    worker.op("Neg").name("z").input(y).build().unwrap();
    s
}

fn open(server: &Server) -> RemoteSession {
    let mut options = ConnectOptions::default();
    options.config.log_device_placement = true;
    RemoteSession::open(&server.target, model().to_graph().to_def(), options).unwrap()
}

fn run(session: &RemoteSession, x: f32) -> Result<Vec<Tensor>> {
    session.run(&[("x", Tensor::scalar(x))], &["z"], &[])
}

/// A parameter server and a worker, each with its flags.
fn start_both(test: &str, ps: &[&str], worker: &[&str]) -> (Server, Server) {
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = ports.each_ref().map(|port| port.local_addr().unwrap());
    let spec = format!("ps={a};worker={b}");
    drop(ports);
    let start = |job: &str, args: &[&str]| {
        let own = ["--cluster", &spec, "--job", job, "--task", "0"];
        Server::start(&format!("{test}-{job}"), &[&own[..], args].concat(), &[])
    };
    (start("ps", ps), start("worker", worker))
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

#[test]
fn text_shows_placement_and_a_silent_task_by_default() {
    let (ps, worker) = start_both("log-text", &[], &[]);
    let session = open(&worker);
    run(&session, 1.0).unwrap();
    let placed = worker.line("y: (CheckNumerics): ");
    let message = "y: (CheckNumerics): /job:ps/replica:0/task:0/device:CPU:0";
    assert!(placed.ends_with(&format!("Z INFO {message}")), "{placed}");
    worker.line("INFO tensors of /job:ps/replica:0/task:0 come by a unix socket");
    ps.signal("-STOP");
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| run(&session, 1.0));
        worker.line("WARN /job:ps/replica:0/task:0 has been silent for 3 s; calls to it wait");
        ps.signal("-CONT");
        worker.line("INFO /job:ps/replica:0/task:0 has answered after ");
        waits.join().unwrap().unwrap();
    });
    drop(session);
    assert!(!worker.text().contains("DEBUG"), "{}", worker.text());
    let said = worker.end();
    assert!(said.contains("INFO /job:worker/replica:0/task:0 ends after 2 steps"), "{said}");
}

#[test]
fn json_has_the_fields() {
    let flags = ["--log-format", "json", "--log-level", "trace"];
    let (ps, worker) = start_both("log-json", &flags, &flags);
    let session = open(&worker);
    run(&session, f32::NAN).unwrap_err();
    drop(session);
    worker.line("is closed");
    let (ps, worker) = (ps.end(), worker.end());
    let lines: Vec<Value> = ps.lines().chain(worker.lines()).map(json).collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field} in {line}");
        }
    }
    let find = |target: &str, level: &str, words: &str| -> &Value {
        let found = lines.iter().find(|line| {
            line["target"] == target && line["message"].as_str().unwrap().contains(words)
        });
        let found = found.unwrap_or_else(|| panic!("{target}: {words}\n{ps}{worker}"));
        assert_eq!(found["level"], level, "{found}");
        found
    };
    let placed = find("thalweg::placement", "INFO", "y: (CheckNumerics)");
    assert_eq!((&placed["node"], &placed["op"]), (&json("\"y\""), &json("\"CheckNumerics\"")));
    let opened = find("thalweg::session", "DEBUG", "is open");
    let session = opened["session"].as_str().unwrap();
    let started = find("thalweg::step", "TRACE", "starts on 1 other tasks");
    let partition = find("thalweg::step", "DEBUG", "a partition of step");
    for line in [started, partition] {
        assert_eq!(
            (&line["session"], &line["step"]),
            (&json(&format!("{session:?}")), &started["step"])
        );
        assert!(line["step"].is_u64(), "{line}");
    }
    assert_eq!(find("thalweg::step", "DEBUG", "a step of session")["session"], session);
    let end = find("thalweg::server", "INFO", "/job:ps/replica:0/task:0 ends after");
    assert_eq!(end["task"], "/job:ps/replica:0/task:0");
    assert!(end["of_clients"].is_u64() && end["of_others"].is_u64(), "{end}");
}

#[test]
fn a_filter_comes_from_a_flag_or_the_environment() {
    let log = |name: &str, args: &[&str], variables: &[(&str, &str)]| {
        Server::start(name, &[&["--port", "0"], args].concat(), variables).end()
    };
    let has_end = |log: &str| log.contains("ends after 0 steps");
    assert!(has_end(&log("log-default", &[], &[])));
    assert_eq!(log("log-flag", &["--log-level", "warn"], &[("THALWEG_LOG", "trace")]), "");
    assert_eq!(log("log-own", &[], &[("THALWEG_LOG", "error"), ("RUST_LOG", "info")]), "");
    assert_eq!(log("log-usual", &[], &[("RUST_LOG", "thalweg::server=off")]), "");
    let refused =
        log("log-refused", &[], &[("RUST_LOG", "[span]"), ("THALWEG_LOG_FORMAT", "json")]);
    assert!(
        json(refused.lines().next().unwrap())["message"].as_str().unwrap().contains("RUST_LOG")
    );
    assert!(has_end(&refused), "{refused}");
}

#[test]
fn mistakes_in_flags_are_named() {
    for (args, variable, words) in [
        (&["--log-level", "loud"][..], ("A", "a"), "--log-level: 'loud' is not a level"),
        (&[], ("THALWEG_LOG", "x=y"), "THALWEG_LOG: 'y' is not a level"),
        (&[], ("THALWEG_LOG_FORMAT", "xml"), "THALWEG_LOG_FORMAT: "),
        (&["--log-format", "xml"], ("A", "a"), "possible values: text, json"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["ops"])
            .args(args)
            .envs([variable])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["run", "/nonexistent.pbtxt", "--log-format", "json"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(json(said.trim())["level"], "ERROR", "{said}");
}
