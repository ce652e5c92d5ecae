//! `thalweg serve` as a process, without anybody's client: HTTP and gRPC by hand, versions that come and
//! go, its end, what it weighs afterwards.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thalweg::graph::Output;
use thalweg::prelude::*;

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("thalweg-serve-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A variable of so many bytes that `init` fills with zeros, its length, and its first element.
fn large_zeros(s: &mut Scope, bytes: usize) -> (Output, Output, Output) {
    let shape = Shape::new(&[bytes / 4]).unwrap();
    let handle = s.op("VarHandleOp").name("large").attr("dtype", DType::Float);
    let handle = handle.attr("shape", &PartialShape::from(&shape)).build().unwrap();
    let size = s.constant(&Tensor::vector(&[(bytes / 4) as i32]).unwrap()).unwrap();
    let zero = s.constant(&Tensor::scalar(0.0f32)).unwrap();
    let zeros = s.add("Fill", &[size, zero]).unwrap();
    s.op("AssignVariableOp").name("init").inputs(&[handle, zeros]).build_node().unwrap();
    let all = s.op("ReadVariableOp").input(handle).attr("dtype", DType::Float).build().unwrap();
    let begin = s.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
    let count = s.constant(&Tensor::vector(&[1i32]).unwrap()).unwrap();
    (handle, size, s.add("Slice", &[all, begin, count]).unwrap())
}

/// Writes y = x + add as the next version, with so many further bytes.
fn export(base: &str, add: f32, bytes: usize) {
    let mut s = thalweg::scope();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float);
    let x = x.attr("shape", &PartialShape::new([None])).build().unwrap();
    let one = s.constant(&Tensor::scalar(add)).unwrap();
    let mut y = s.add("AddV2", &[x, one]).unwrap();
    if bytes > 0 {
        let (_, _, first) = large_zeros(&mut s, bytes);
        y = s.add("AddV2", &[y, first]).unwrap();
    }
    s.op("Identity").name("y").inputs(&[y]).build().unwrap();
    let session = thalweg::session(&s).unwrap();
    if bytes > 0 {
        session.run(&[], &[], &["init"]).unwrap();
    }
    let builder = SavedModelBuilder::new(&session);
    let builder = builder.signature("serving_default", &[("x", "x")], &[("y", "y")]).unwrap();
    builder.save_version(base).unwrap();
}

/// A server in a process of its own; ended when dropped.
struct Process {
    child: Child,
    grpc: String,
    http: String,
}

impl Process {
    fn start(args: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["serve", "--port", "0", "--http-port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |what: &str| {
            let line = lines.next().unwrap().unwrap();
            line.strip_prefix(&format!("{what} listening on ")).unwrap().to_owned()
        };
        let (grpc, http) = (address("gRPC"), address("HTTP"));
        Process { child, grpc, http }
    }

    /// Status and body of an answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let len = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n");
        let text = self.send(&format!("{head}Connection: close\r\n\r\n{body}"));
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn predict(&self, body: &str) -> (u16, String) {
        self.ask("POST", "/v1/models/m:predict", body)
    }

    fn is_ready(&self) -> bool {
        self.ask("GET", "/readyz", "").0 == 200
    }

    fn resident_kilobytes(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const ONE: &str = r#"{"instances": [1.0, 2.5]}"#;

#[test]
fn a_model_is_served_replaced_and_drained() {
    let folder = Folder::new("replaced");
    export(folder.path(), 1.0, 0);
    let mut server = Process::start(&["--model", &format!("m={}", folder.path())]);
    eventually("it is ready", || server.is_ready());
    let answer = "{\n    \"predictions\": [2.0, 3.5\n    ]\n}";
    assert_eq!(server.predict(ONE), (200, answer.to_owned()));
    export(folder.path(), 10.0, 0);
    eventually("the new version is there", || server.predict(ONE).1.contains("[11.0, 12.5"));
    let (status, text) = server.ask("GET", "/v1/models/m", "");
    assert_eq!(status, 200);
    assert!(text.contains("\"AVAILABLE\""), "{text}");
    assert_eq!(server.ask("GET", "/v1/models/nothing", "").0, 404);
    assert_eq!(server.predict("{").0, 400);
    let id = server.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn memory_comes_back_when_a_version_goes() {
    const LARGE: usize = 96 << 20;
    let folder = Folder::new("memory");
    export(folder.path(), 1.0, 0);
    let server = Process::start(&["--model", &format!("m={}", folder.path())]);
    eventually("it is ready", || server.is_ready());
    assert_eq!(server.predict(ONE).0, 200);
    let before = server.resident_kilobytes();
    export(folder.path(), 2.0, LARGE);
    eventually("the large version is there", || server.predict(ONE).1.contains("[3.0, 4.5"));
    let large = server.resident_kilobytes();
    assert!(large > before + (LARGE >> 10) * 9 / 10, "{before} kB, then {large} kB");
    export(folder.path(), 3.0, 0);
    eventually("the small version is there", || server.predict(ONE).1.contains("[4.0, 5.5"));
    let limit = before + before / 10 + 4096;
    eventually("memory comes back", || server.resident_kilobytes() <= limit);
}

/// Writes a version with a variable of so many bytes, all zero: y = x + its first element, and a
/// signature that adds x to all of it.
fn export_written(base: &str, bytes: usize) {
    let mut s = thalweg::scope();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float);
    let x = x.attr("shape", &PartialShape::new([Some(1)])).build().unwrap();
    let (handle, size, first) = large_zeros(&mut s, bytes);
    s.op("AddV2").name("y").inputs(&[x, first]).build().unwrap();
    let none = s.constant(&Tensor::vector::<i32>(&[]).unwrap()).unwrap();
    let amount = s.add("Reshape", &[x, none]).unwrap();
    let amounts = s.add("Fill", &[size, amount]).unwrap();
    let add = s.op("AssignAddVariableOp").inputs(&[handle, amounts]).build_node().unwrap();
    s.op("Identity").name("written").inputs(&[x]).after(&[add]).build().unwrap();
    let session = thalweg::session(&s).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    let builder = SavedModelBuilder::new(&session);
    let builder = builder.signature("serving_default", &[("x", "x")], &[("y", "y")]).unwrap();
    let builder = builder.signature("write", &[("x", "x")], &[("y", "written")]).unwrap();
    builder.save_version(base).unwrap();
}

#[test]
fn versions_share_what_is_equal_and_nothing_that_is_written() {
    const LARGE: usize = 96 << 20;
    let folder = Folder::new("shared");
    export_written(folder.path(), LARGE);
    let config = folder.0.join("models.config");
    let text = format!(
        "model_config_list {{ config {{ name: 'm' base_path: '{}' model_platform: 'tensorflow' \
         model_version_policy {{ all {{}} }} }} }}",
        folder.path()
    );
    std::fs::write(&config, text).unwrap();
    let server = Process::start(&["--model_config_file", config.to_str().unwrap()]);
    eventually("it is ready", || server.is_ready());
    let ask = |version: u32, signature: &str, x: f32| {
        let body = format!("{{\"signature_name\": \"{signature}\", \"inputs\": [{x:?}]}}");
        let (status, text) =
            server.ask("POST", &format!("/v1/models/m/versions/{version}:predict"), &body);
        (status == 200).then(|| text.split(['[', ']']).nth(1).unwrap().trim().to_owned())
    };
    assert_eq!(ask(1, "serving_default", 1.0).as_deref(), Some("1.0"));
    let one = server.resident_kilobytes();
    export_written(folder.path(), LARGE);
    eventually("both are there", || ask(2, "serving_default", 1.0).is_some());
    let limit = one + (LARGE >> 10) / 4;
    eventually("there is one of what is equal", || server.resident_kilobytes() < limit);
    // Who writes has a copy from then on.
    assert_eq!(ask(1, "write", 5.0).as_deref(), Some("5.0"));
    assert_eq!(ask(1, "serving_default", 1.0).as_deref(), Some("6.0"));
    assert_eq!(ask(2, "serving_default", 1.0).as_deref(), Some("1.0"));
    assert_eq!(ask(2, "write", 3.0).as_deref(), Some("3.0"));
    assert_eq!(ask(2, "serving_default", 1.0).as_deref(), Some("4.0"));
    assert_eq!(ask(1, "serving_default", 1.0).as_deref(), Some("6.0"));
    assert!(server.resident_kilobytes() > limit);
    // What one leaves behind is the other's.
    std::fs::remove_dir_all(folder.0.join("1")).unwrap();
    eventually("the first has gone", || ask(1, "serving_default", 1.0).is_none());
    assert_eq!(ask(2, "serving_default", 1.0).as_deref(), Some("4.0"));
}

#[test]
fn harm_is_answered_and_forgotten() {
    let folder = Folder::new("harm");
    export(folder.path(), 1.0, 0);
    let server = Process::start(&["--model", &format!("m={}", folder.path())]);
    eventually("it is ready", || server.is_ready());
    let before = server.resident_kilobytes();
    for (body, words) in [
        ("[".repeat(1 << 20), "Nested deeper"),
        (format!("{{\"instances\": [{}]}}", "9".repeat(1 << 20)), "loss of precision"),
        (format!("{{\"instances\": [\"{}\"]}}", "x".repeat(1 << 20)), "not of expected type"),
        (format!("{{\"{}\": 1}}", "k".repeat(1 << 20)), "Missing"),
        (
            format!(
                "{{{}\"z\": 1}}",
                (0..1000).map(|i| format!("\"k{i}\": 1, ")).collect::<String>()
            ),
            "too many members",
        ),
    ] {
        let (status, text) = server.predict(&body);
        assert_eq!(status, 400, "{words}");
        assert!(
            text.contains(words) && text.len() < 2000,
            "{words}: {}",
            &text[..text.len().min(500)]
        );
    }
    // Bytes that are no protocol of ours, on either port, and connections that say nothing.
    let connections: Vec<TcpStream> = (0..500)
        .map(|i| {
            let address = if i % 2 == 0 { &server.grpc } else { &server.http };
            let mut stream = TcpStream::connect(address).unwrap();
            if i % 4 < 2 {
                let _ = stream.write_all(&[i as u8; 100]);
            }
            stream
        })
        .collect();
    assert_eq!(server.predict(ONE).0, 200);
    drop(connections);
    eventually("memory stays small", || server.resident_kilobytes() < before + (64 << 10));
}

#[test]
fn flags_are_checked() {
    let run = |args: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_thalweg")).arg("serve").args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (args, words) in [
        (&["--model", "m"][..], "must be NAME=DIR"),
        (&["--model_config_file", "/no/such/file"], "/no/such/file"),
        (&["--model", "m=/a", "--model", "m=/b"], "two models have the name 'm'"),
        (&["--model", "m=/a", "--port", "99999"], "0 picks a free one"),
    ] {
        let (code, said) = run(args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// The listening lines of a server with these flags, which is then ended.
fn listening(args: &[&str], count: usize) -> Vec<String> {
    let folder = Folder::new("ports");
    let model = format!("m={}", folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["serve", "--model", &model])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(count);
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    for line in &lines {
        let (_, address) = line.split_once(" listening on ").unwrap();
        assert!(!address.ends_with(":0"), "{line}");
        TcpStream::connect(address).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn port_0_is_a_free_port_and_interfaces_are_disabled_by_name() {
    for (args, expected) in [
        (&["--port", "0", "--http-port", "0"][..], &["gRPC", "HTTP"][..]),
        (&["--port=0", "--rest_api_port=any"], &["gRPC", "HTTP"]),
        (&["--no-grpc", "--http-port=0"], &["HTTP"]),
        (&["--port=0", "--no-http"], &["gRPC"]),
        // As TensorFlow Serving reads its own flag.
        (&["--port=0", "--rest_api_port=0"], &["gRPC"]),
    ] {
        assert_eq!(listening(args, expected.len()), expected, "{args:?}");
    }
}
