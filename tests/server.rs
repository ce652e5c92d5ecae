//! `thalweg server` as a process: how fast it starts, what it weighs, what clients leave behind.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thalweg::cluster::{ConnectOptions, RemoteSession};
use thalweg::graph::Scope;
use thalweg::prelude::*;

/// A server in a process of its own; ended when dropped.
struct Process {
    child: Child,
    target: String,
    started_in: Duration,
}

impl Process {
    fn start(args: &[&str]) -> Process {
        let begin = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["server", "--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started_in = begin.elapsed();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        Process { target: format!("grpc://{address}"), child, started_in }
    }

    /// A number of kilobytes from /proc.
    fn kilobytes(&self, field: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn open(&self, scope: &Scope) -> RemoteSession {
        let graph = scope.to_graph().to_def();
        RemoteSession::open(&self.target, graph, ConnectOptions::default()).unwrap()
    }

    /// The process's own memory, once it has come down to `limit` or has had its time to.
    ///
    /// The pages of the program itself do not count: how many of them a start touches is a matter
    /// of the build profile and of what the system maps around them.
    fn settled_kilobytes(&self, limit: usize) -> usize {
        let begin = Instant::now();
        loop {
            let now = self.kilobytes("RssAnon");
            if now <= limit || begin.elapsed() > Duration::from_secs(10) {
                return now;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// x -> sum = x + 1, and a queue that nobody fills.
fn model() -> Scope {
    let mut s = thalweg::scope();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    let one = s.constant(&Tensor::scalar(1.0f32)).unwrap();
    s.op("AddV2").name("sum").inputs(&[x, one]).build().unwrap();
    let types = &[DType::Float][..];
    let queue = s.op("FIFOQueueV2").name("queue").attr("component_types", types);
    let queue = queue.build().unwrap();
    let dequeue = s.op("QueueDequeueV2").name("dequeue").attr("component_types", types);
    dequeue.input(queue).build().unwrap();
    s
}

fn step(session: &RemoteSession, x: f32) {
    let got = session.run(&[("x", Tensor::scalar(x))], &["sum"], &[]).unwrap();
    assert_eq!(got[0].as_slice::<f32>().unwrap(), [x + 1.0]);
}

/// Other work on the machine makes starts slower, never faster: the best of some counts.
#[test]
fn a_server_starts_at_once_and_weighs_little() {
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let server = Process::start(&[]);
        let kilobytes = server.settled_kilobytes(24 << 10);
        assert!(kilobytes < 24 << 10, "{kilobytes} KB when idle");
        best = best.min(server.started_in);
        if best < Duration::from_millis(100) {
            return;
        }
    }
    panic!("the quickest start took {best:?}");
}

#[test]
fn limits_come_from_flags() {
    let server = Process::start(&["--node-limit", "4", "--message-limit", "1"]);
    let graph = model().to_graph().to_def();
    let e = RemoteSession::open(&server.target, graph, ConnectOptions::default());
    assert_eq!(e.map(|_| ()).unwrap_err().code(), Code::ResourceExhausted);
    let session = RemoteSession::open(&server.target, Default::default(), Default::default());
    let session = session.unwrap();
    let large = Tensor::zeros(DType::Float, Shape::new(&[1 << 20]).unwrap()).unwrap();
    let e = session.run(&[("x", large)], &["x"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::ResourceExhausted, "{e}");
}

/// A variable of ten million floats, with the nodes `NAME/assign` and `NAME/destroy`.
fn large_variable(s: &mut Scope, name: &str) {
    let shape = Shape::new(&[10_000_000]).unwrap();
    let handle = s.op("VarHandleOp").name(name).attr("shared_name", name);
    let handle = handle.attr("dtype", DType::Float).attr("shape", &shape).build().unwrap();
    let dims = s.constant(&Tensor::vector(&[10_000_000i32]).unwrap()).unwrap();
    let one = s.constant(&Tensor::scalar(1.0f32)).unwrap();
    let value = s.add("Fill", &[dims, one]).unwrap();
    let assign = s.op("AssignVariableOp").name(&format!("{name}/assign"));
    assign.inputs(&[handle, value]).build_node().unwrap();
    let destroy = s.op("DestroyResourceOp").name(&format!("{name}/destroy"));
    destroy.input(handle).build_node().unwrap();
}

#[test]
fn sessions_share_the_memory_limit() {
    let server = Process::start(&["--memory-limit", "64"]);
    let mut scope = thalweg::scope();
    for name in ["a", "b"] {
        large_variable(&mut scope, name);
    }
    let (first, second) = (server.open(&scope), server.open(&scope));
    first.run(&[], &[], &["a/assign"]).unwrap();
    for session in [&first, &second] {
        let refused = session.run(&[], &[], &["b/assign"]).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    }
    // The task holds the variable, not the session that made it.
    first.close().unwrap();
    let refused = second.run(&[], &[], &["b/assign"]).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    second.run(&[], &[], &["a/destroy"]).unwrap();
    second.run(&[], &[], &["b/assign"]).unwrap();
}

#[test]
fn a_server_refuses_hostile_sizes_before_it_grows() {
    let server = Process::start(&["--memory-limit", "64"]);
    let mut s = model();
    let word = s.constant(&Tensor::scalar_string(vec![b'x'; 10_000])).unwrap();
    let count = s.constant(&Tensor::scalar(1_000_000_000i32)).unwrap();
    let counts = s.constant(&Tensor::vector(&[200_000i32]).unwrap()).unwrap();
    let scalar = s.constant(&Tensor::vector::<i32>(&[]).unwrap()).unwrap();
    let list = s.op("TensorListReserve").name("list").attr("element_dtype", DType::Float);
    list.inputs(&[scalar, count]).build().unwrap();
    // 200,000 handles of one string fit; the string of two gigabytes that joins them does not.
    let words = s.op("Fill").inputs(&[counts, word]).build().unwrap();
    let axis = s.constant(&Tensor::scalar(0i32)).unwrap();
    s.op("ReduceJoin").name("join").inputs(&[words, axis]).build().unwrap();
    let session = server.open(&s);
    step(&session, 1.0);
    let before = server.kilobytes("VmRSS");
    for fetch in ["list", "join"] {
        let refused = session.run(&[], &[fetch], &[]).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        step(&session, 2.0);
    }
    let growth = server.kilobytes("VmHWM").saturating_sub(before);
    assert!(growth < 256 << 10, "the server grew by {growth} kB");
}

/// Memory is within a tenth of where it was.
#[track_caller]
fn assert_returned(server: &Process, before: usize, what: &str) {
    let limit = before + before / 10;
    let after = server.settled_kilobytes(limit);
    assert!(after <= limit, "{before} KB before {what}, {after} KB after");
}

#[test]
#[ignore = "long"]
fn a_hundred_thousand_steps_leave_nothing() {
    let server = Process::start(&[]);
    let scope = model();
    let run = |steps: usize| {
        let session = server.open(&scope);
        (0..steps).for_each(|i| step(&session, i as f32));
        session.close().unwrap();
    };
    run(5_000);
    let before = server.kilobytes("RssAnon");
    run(100_000);
    assert_returned(&server, before, "100,000 steps");
}

#[test]
#[ignore = "long"]
fn ten_thousand_sessions_leave_nothing() {
    let server = Process::start(&[]);
    let scope = model();
    let run = |sessions: usize| {
        for i in 0..sessions {
            let session = server.open(&scope);
            step(&session, i as f32);
            session.close().unwrap();
        }
    };
    run(500);
    let before = server.kilobytes("RssAnon");
    run(10_000);
    assert_returned(&server, before, "10,000 sessions");
}

/// Where a client that is about to be killed finds its server.
const VICTIM: &str = "THALWEG_TEST_VICTIM";

/// Not a test but the client of the next one: it says when its step waits, and waits for its end.
#[test]
#[ignore = "long"]
fn victim() {
    let Ok(target) = std::env::var(VICTIM) else { return };
    let graph = model().to_graph().to_def();
    let session = RemoteSession::open(&target, graph, ConnectOptions::default()).unwrap();
    let large = Tensor::zeros(DType::Float, Shape::new(&[1 << 20]).unwrap()).unwrap();
    session.run(&[("x", large)], &["sum"], &[]).unwrap();
    eprintln!("waiting");
    let _ = session.run(&[], &["dequeue"], &[]);
}

#[test]
#[ignore = "long"]
fn a_hundred_killed_clients_leave_nothing() {
    let server = Process::start(&["--session-timeout", "1"]);
    let kill = |times: usize| {
        for _ in 0..times {
            let mut client = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "victim", "--ignored", "--nocapture"])
                .env(VICTIM, &server.target)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(client.stderr.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().contains("waiting")), "the client failed");
            // In the middle of its step, or just before.
            std::thread::sleep(Duration::from_millis(5));
            client.kill().unwrap();
            client.wait().unwrap();
        }
    };
    kill(5);
    let before = server.settled_kilobytes(0);
    kill(100);
    assert_returned(&server, before, "100 killed clients");
    step(&server.open(&model()), 1.0);
}

/// Reads and writes a file through a server; what reading gave.
fn through(server: &Process, write: &str, read: &str) -> (Result<()>, Result<String>) {
    let mut scope = thalweg::scope();
    let text = |scope: &mut Scope, text: &str| {
        scope.constant(&Tensor::scalar_string(text.to_owned())).unwrap()
    };
    let (name, content) = (text(&mut scope, write), text(&mut scope, "hello"));
    scope.op("WriteFile").name("write").inputs(&[name, content]).build_node().unwrap();
    let name = text(&mut scope, read);
    scope.op("ReadFile").name("read").input(name).build().unwrap();
    let session = server.open(&scope);
    let written = session.run(&[], &[], &["write"]).map(drop);
    let found = session.run(&[], &["read:0"], &[]);
    let found = found.map(|r| String::from_utf8_lossy(&r[0].strings().unwrap()[0]).into_owned());
    (written, found)
}

#[test]
fn files_are_those_of_this_machine_or_under_a_root() {
    let folder = std::env::temp_dir().join(format!("thalweg-files-{}", std::process::id()));
    let root = folder.join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(folder.join("secret"), "secret").unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let denied = |r: Result<String>| assert_eq!(r.unwrap_err().code(), Code::PermissionDenied);

    let (written, found) = through(&Process::start(&[]), &path("plain"), &path("secret"));
    written.unwrap();
    assert_eq!(found.unwrap(), "secret");

    let server = Process::start(&["--file-root", root.to_str().unwrap()]);
    let (written, found) = through(&server, &path("root/in"), "in");
    written.unwrap();
    assert_eq!(found.unwrap(), "hello");
    std::os::unix::fs::symlink(path("secret"), path("root/link")).unwrap();
    for read in [path("secret"), "../secret".into(), path("root/../secret"), "link".into()] {
        denied(through(&server, "in", &read).1);
    }
    assert_eq!(through(&server, &path("out"), "in").0.unwrap_err().code(), Code::PermissionDenied);

    let mut open = Process::start(&["--host", "0.0.0.0"]);
    open.target = open.target.replace("0.0.0.0", "127.0.0.1");
    let (written, found) = through(&open, &path("out"), &path("secret"));
    assert!(written.unwrap_err().message().contains("--file-root"));
    denied(found);
    assert!(!folder.join("out").exists());
    std::fs::remove_dir_all(folder).unwrap();
}

/// `thalweg run --server` runs the graph there, not here: what it leaves is there.
#[test]
fn a_graph_runs_on_a_server_from_the_command_line() {
    let server = Process::start(&[]);
    let path = std::env::temp_dir().join(format!("thalweg-there-{}.pbtxt", std::process::id()));
    let graph = r#"
        node { name: "v" op: "VariableV2"
               attr { key: "dtype" value { type: DT_INT32 } } attr { key: "shape" value { shape {} } } }
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_INT32 } } }
        node { name: "init" op: "Assign" input: "v" input: "x" attr { key: "T" value { type: DT_INT32 } } }
        node { name: "add" op: "AssignAdd" input: "v" input: "x" attr { key: "T" value { type: DT_INT32 } } }"#;
    std::fs::write(&path, graph).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["run", path.to_str().unwrap(), "--json", "--feed", "x=5", "--server"])
            .arg(server.target.strip_prefix("grpc://").unwrap())
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["fetches"].clone()
    };
    let first = run(&["--init", "init", "--fetch", "add", "--repeat", "3"]);
    assert_eq!(first["add"]["values"], 20);
    // Another process, another session, the same variable.
    let second = run(&["--fetch", "add"]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(second["add"]["values"], 25);
}
