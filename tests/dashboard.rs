//! `thalweg dashboard` as a process: its API over plain HTTP, who is let in, its limits, and a task that dies.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "support/folder.rs"]
mod folder;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use folder::Folder;
use serde_json::{Value, json};
use thalweg::cluster::{ConnectOptions, RemoteSession};
use thalweg::formats::LocalStorage;
use thalweg::formats::events::{EventWriter, Histogram, summary};
use thalweg::prelude::*;
use thalweg::proto::Codec;

/// The command in a process of its own; killed when dropped.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(args: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Process { child, lines }
    }

    /// The rest of the first line that begins like this.
    fn after(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no line '{prefix}'");
            if let Some(rest) = line.trim().strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn task() -> (Process, String) {
    let mut task = Process::start(&["server", "--port", "0", "--threads", "1"]);
    let address = task.after("listening on ");
    (task, address)
}

/// An answer.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

struct Dashboard {
    process: Process,
    address: String,
    /// With the token, if there is one.
    url: String,
}

impl Dashboard {
    fn start(args: &[&str]) -> Dashboard {
        Dashboard::of(Process::start(&[&["dashboard", "--port", "0"], args].concat()))
    }

    /// The dashboard of a process that prints its address.
    fn of(mut process: Process) -> Dashboard {
        let url = process.after("dashboard at http://");
        let address = url.split('/').next().unwrap().to_owned();
        Dashboard { process, address, url }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes and reads until the connection is closed.
    fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The server may refuse, and close, before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        for header in headers {
            head.push_str(&format!("{header}\r\n"));
        }
        let is_own = |header: &&str| header.to_ascii_lowercase().starts_with("host:");
        if !headers.iter().any(is_own) {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        parse(&self.exchange(&[head.as_bytes(), body].concat()))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        answer.json()
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &["Content-Type: application/json"], body.as_bytes())
    }
}

fn parse(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(answer)));
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: answer[end + 4..].to_vec() }
}

/// Waits until `found` gives something.
fn eventually<T>(what: &str, limit: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_cluster_is_found_from_one_task_and_a_killed_task_is_dead_within_seconds() {
    // Ports are found by tasks that end at once.
    let free = |_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let [ps, worker]: [String; 2] = std::array::from_fn(free);
    let spec = format!("ps={ps};worker={worker}");
    let start = |job: &str| {
        let mut task = Process::start(&[
            "server",
            "--cluster",
            &spec,
            "--job-name",
            job,
            "--task-index",
            "0",
            "--threads",
            "1",
        ]);
        task.after("listening on ");
        task
    };
    let (ps_task, worker_task) = (start("ps"), start("worker"));
    let dashboard = Dashboard::start(&["--connect", &worker]);
    let state = dashboard.json("/api/state");
    assert_eq!((&state["mode"], &state["title"]), (&json!("cluster"), &json!(worker)));
    assert_eq!(
        state["has"],
        json!({ "cluster": true, "logdir": false, "graph": false, "timeline": true,
                "simulation": false })
    );
    let names = ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"];
    let cluster = dashboard.json("/api/cluster");
    for (i, (name, address)) in names.iter().zip([&ps, &worker]).enumerate() {
        let task = &cluster["tasks"][i];
        assert_eq!((&task["task"], &task["address"]), (&json!(name), &json!(address)));
        assert_eq!(task["state"], "alive", "{task}");
        assert_eq!(task["devices"][0]["name"], format!("{name}/device:CPU:0"));
    }
    run_steps(&worker);
    let cluster = eventually("a step", Duration::from_secs(20), || {
        Some(dashboard.json("/api/cluster")).filter(|c| c["tasks"][1]["steps"].as_u64() >= Some(4))
    });
    let [ps_json, worker_json] = [0, 1].map(|i| &cluster["tasks"][i]);
    assert_eq!(ps_json["queues"], json!([{ "name": "tokens", "size": 3, "capacity": 7 }]));
    assert_eq!(worker_json["queues"], json!([{ "name": "endless", "size": 0, "capacity": -1 }]));
    // 3 elements of 1,000 floats, sent to the queue on the other task.
    assert_eq!(ps_json["links"][0]["to"], names[1]);
    assert!(ps_json["links"][0]["bytes"].as_u64().unwrap() >= 12_000, "{ps_json}");

    let is_state = |wanted: &str| {
        let tasks = dashboard.json("/api/cluster")["tasks"].take();
        let found = tasks.as_array().unwrap().iter().find(|t| t["task"] == names[0])?;
        (found["state"] == wanted).then(|| found.clone())
    };
    let first = is_state("alive").unwrap()["process"].clone();
    drop(ps_task);
    let dead = eventually("death", Duration::from_secs(5), || is_state("dead"));
    assert!(dead["detail"].as_str().unwrap().contains("refused"), "{dead}");
    assert_eq!(dead["process"], first, "what it was is still shown");
    let again = start("ps");
    let alive = eventually("restart", Duration::from_secs(20), || is_state("alive"));
    assert_ne!(alive["process"], first);
    let events = dashboard.json("/api/cluster")["events"].take();
    let has = |text: &str| {
        let texts = events.as_array().unwrap().iter().map(|e| e["text"].as_str().unwrap());
        texts.clone().any(|t| t.starts_with(names[0]) && t.contains(text))
    };
    assert!(has("is dead") && has("was restarted"), "{events}");
    drop((again, worker_task));
}

/// Enqueues three elements from the worker into a queue of the parameter server.
fn run_steps(target: &str) {
    let mut s = thalweg::scope();
    let queue = |s: &mut Scope, name: &str, capacity: i64| {
        let queue = s.op("FIFOQueueV2").name(name).attr("component_types", &[DType::Float][..]);
        queue.attr("capacity", capacity).attr("shared_name", name).build().unwrap()
    };
    let tokens = queue(&mut s.on_device("/job:ps/task:0"), "tokens", 7);
    let mut worker = s.on_device("/job:worker/task:0");
    let endless = queue(&mut worker, "endless", -1);
    let element = worker.op("Placeholder").name("element").attr("dtype", DType::Float);
    let element = element.build().unwrap();
    let sum = worker.op("AddV2").name("sum").inputs(&[element, element]).build().unwrap();
    worker.op("QueueSizeV2").name("size").input(endless).build().unwrap();
    let put = s.op("QueueEnqueueV2").name("put").input(tokens).inputs(&[sum]);
    put.attr("Tcomponents", &[DType::Float][..]).build_node().unwrap();
    let graph = s.to_graph().to_def();
    let target = format!("grpc://{target}");
    let session = RemoteSession::open(&target, graph, ConnectOptions::default()).unwrap();
    let ones = Tensor::vector(&[1.0f32; 1000]).unwrap();
    for _ in 0..3 {
        session.run(&[("element", ones.clone())], &[], &["put"]).unwrap();
    }
    let size = session.run(&[], &["size"], &[]).unwrap();
    assert_eq!(size[0].as_slice::<i32>().unwrap(), [0]);
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

/// When all events were written.
const NOW: Duration = Duration::from_secs(1_700_000_000);

fn loss_at(step: i64) -> Vec<thalweg::proto::summary::Value> {
    vec![summary::scalar("loss", 1.0 / step as f32).unwrap()]
}

/// An event file with five points of a loss, other summaries, a graph and a traced step.
fn recorded(folder: &str) -> EventWriter {
    let mut writer = EventWriter::create(&LocalStorage::default(), folder, NOW, "").unwrap();
    for step in 1..=5 {
        writer.summary(NOW, step, loss_at(step)).unwrap();
    }
    let mut histogram = Histogram::new();
    histogram.add(2.0);
    let others = vec![
        summary::histogram("weights", histogram),
        summary::images("digits/0", 28, 28, &[PNG.into()]).unwrap(),
        summary::text("notes", &["# heading", "text"]).unwrap(),
    ];
    writer.summary(NOW, 5, others).unwrap();
    let mut s = thalweg::scope();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    s.op("Relu").name("y").inputs(&[x]).build().unwrap();
    writer.graph(NOW, &s.to_graph().to_def()).unwrap();
    let session = thalweg::session(&s).unwrap();
    let options = RunOptions { trace: true, ..Default::default() };
    let feeds = [("x", Tensor::scalar(-1.0f32))];
    let (_, metadata) = session.run_with(&options, &feeds, &["y"], &[]).unwrap();
    writer.run_metadata(NOW, 5, "step5", &metadata.to_proto()).unwrap();
    writer.flush().unwrap();
    writer
}

#[test]
fn event_files_are_followed() {
    let folder = Folder::new("dashboard-events");
    let mut writer = recorded(&folder.path("train"));
    let dashboard = Dashboard::start(&["--logdir", folder.0.to_str().unwrap()]);
    let runs = dashboard.json("/api/runs");
    let tags =
        [("digits/0", "image"), ("loss", "scalar"), ("notes", "text"), ("weights", "histogram")];
    let tags = tags.map(|(tag, kind)| json!({ "tag": tag, "kind": kind }));
    assert_eq!(runs, json!({ "runs": [{ "run": "train", "tags": tags }] }));
    let state = dashboard.json("/api/state");
    assert_eq!(
        (&state["mode"], &state["has"]["graph"], &state["has"]["timeline"]),
        (&json!("logdir"), &json!(true), &json!(true))
    );

    let loss = dashboard.json("/api/scalars?run=train&tag=loss&after=0");
    assert_eq!(loss["points"][3], json!([4, 1.7e9, 0.25]));
    assert_eq!((loss["points"].as_array().unwrap().len(), &loss["next"]), (5, &json!(5)));
    writer.summary(NOW, 6, loss_at(6)).unwrap();
    writer.flush().unwrap();
    let more = eventually("a new point", Duration::from_secs(10), || {
        let more = dashboard.json("/api/scalars?run=train&tag=loss&after=5");
        (more["points"] != json!([])).then_some(more)
    });
    assert_eq!((&more["points"][0][0], &more["next"]), (&json!(6), &json!(6)));

    let histograms = dashboard.json("/api/histograms?run=train&tag=weights");
    assert_eq!(histograms["steps"][0]["buckets"].as_array().unwrap()[0][2], 1.0);
    let texts = dashboard.json("/api/texts?run=train&tag=notes");
    assert_eq!(texts["texts"][0]["text"], "# heading\ntext");
    let images = dashboard.json("/api/images?run=train&tag=digits%2F0");
    let image = dashboard.get(images["images"][0]["url"].as_str().unwrap());
    assert_eq!((image.status, &image.body[..]), (200, PNG));
    assert!(image.head.contains("content-type: image/png"), "{}", image.head);

    let graph = dashboard.json("/api/graph");
    assert_eq!((&graph["name"], graph["edges"].as_array().unwrap().len()), (&json!(["x", "y"]), 3));
    let steps = dashboard.json("/api/steps");
    assert_eq!(steps["steps"][0]["label"], "step5, step 5 of train");
    let id = steps["steps"][0]["id"].as_str().unwrap();
    let step = dashboard.json(&format!("/api/step?id={id}"));
    let spans = step["timeline"].as_array().unwrap();
    assert!(spans.iter().any(|span| span["op"] == "Relu" && span["kind"] == "compute"), "{step}");
    let perfetto = dashboard.get(&format!("/api/step.perfetto?id={id}"));
    assert!(perfetto.head.contains("content-disposition: attachment"), "{}", perfetto.head);
    assert!(perfetto.json()["traceEvents"].as_array().unwrap().len() > spans.len());

    refuses_what_is_not_there(&dashboard);
}

fn refuses_what_is_not_there(dashboard: &Dashboard) {
    for (path, status) in [
        ("/api/scalars?run=train", 400),
        ("/api/scalars?run=train&tag=none", 404),
        ("/api/scalars?run=..%2F..&tag=loss", 404),
        ("/api/scalars?run=train&tag=loss&after=-1", 400),
        ("/api/scalars?run=%zz&tag=loss", 400),
        ("/api/texts?run=train&tag=loss", 400),
        ("/api/image?run=train&tag=digits%2F0&step=5&index=7", 404),
        ("/api/step?id=99", 404),
        ("/api/cluster", 404),
        ("/api/simulation", 404),
        ("/api/none", 404),
        ("/../Cargo.toml", 404),
        ("/none", 404),
    ] {
        let answer = dashboard.get(path);
        assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
        assert!(!answer.error().is_empty());
    }
}

#[test]
fn quickstart_serves_one_until_its_training_ends() {
    let folder = Folder::new("dashboard-quickstart");
    let output = folder.0.to_str().unwrap();
    let start = |epochs: &str| {
        let fixed = "quickstart --dashboard --no-kill --images 1000 --filters 1 --test-images 10";
        let args: Vec<&str> = fixed.split(' ').collect();
        let output = format!("{output}/{epochs}");
        Process::start(&[&args, &["--epochs", epochs, "--output", &output][..]].concat())
    };
    // Training that lasts as long as the test looks at it.
    let dashboard = Dashboard::of(start("1000"));
    assert_eq!(dashboard.json("/api/state")["has"]["logdir"], true);
    let limit = Duration::from_secs(100);
    eventually("steps of both workers", limit, || {
        let tasks = dashboard.json("/api/cluster")["tasks"].take();
        let tasks = tasks.as_array().unwrap();
        assert_eq!(tasks.len(), 3);
        let has_steps =
            |task: &&Value| task["state"] == "alive" && task["steps"].as_u64() > Some(0);
        (tasks.iter().filter(has_steps).count() == 2).then_some(())
    });
    eventually("a point of the loss", limit, || {
        let loss = dashboard.get("/api/scalars?run=events&tag=loss");
        (loss.status == 200).then(|| assert_ne!(loss.json()["points"], json!([])))
    });
    drop(dashboard);
    let mut short = start("1");
    short.after("dashboard at ");
    let ended = eventually("its end", limit, || short.child.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_graph_file_is_placed_on_the_cluster() {
    let folder = Folder::new("dashboard-graph");
    let mut s = thalweg::scope();
    let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).build().unwrap();
    s.op("Relu").name("y").inputs(&[x]).build().unwrap();
    std::fs::write(folder.path("graph.pb"), s.to_graph().to_def().to_bytes()).unwrap();
    let (_task, address) = task();
    let dashboard = Dashboard::start(&["--connect", &address, &folder.path("graph.pb")]);
    dashboard.json("/api/cluster");
    let graph = dashboard.json("/api/graph");
    assert_eq!(graph["devices"], json!(["/job:local/replica:0/task:0/device:CPU:0"]));
    assert_eq!(graph["reason"].as_array().unwrap().len(), 2);
    let answer = dashboard.post("/api/trace", "{}");
    assert!(!answer.error().is_empty() && answer.status >= 400, "{}", answer.status);
}

#[test]
fn the_page_is_safe_and_complete() {
    let folder = Folder::new("dashboard-page");
    let dashboard = Dashboard::start(&["--logdir", folder.0.to_str().unwrap()]);
    assert!(dashboard.url.starts_with("127.0.0.1:") && dashboard.url.ends_with('/'));
    let page = dashboard.get("/");
    let text = String::from_utf8(page.body).unwrap();
    assert!(page.head.contains("content-type: text/html") && text.contains("<html"), "{text}");
    for header in [
        "content-security-policy: default-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-cache",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    let mut links = 0;
    for attribute in ["src=\"", "href=\""] {
        for rest in text.split(attribute).skip(1) {
            let path = rest.split('"').next().unwrap().trim_start_matches("./");
            assert!(!path.contains("//"), "the page needs nothing from elsewhere: {path}");
            let answer = dashboard.get(&format!("/{}", path.trim_start_matches('/')));
            assert_eq!(answer.status, 200, "{path}");
            links += 1;
        }
    }
    assert!(links > 0, "{text}");
    let tag = page.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let known = dashboard.ask("GET", "/", &[&format!("If-None-Match: {tag}")], b"");
    assert_eq!((known.status, known.body.len()), (304, 0));
    let head = dashboard.ask("HEAD", "/", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(dashboard.ask("DELETE", "/", &[], b"").status, 405);
    assert_eq!(dashboard.ask("DELETE", "/api/state", &[], b"").status, 405);
}

#[test]
fn this_machine_alone_needs_no_token() {
    let folder = Folder::new("dashboard-host");
    let dashboard = Dashboard::start(&["--logdir", folder.0.to_str().unwrap()]);
    let with = |header: &str| dashboard.ask("GET", "/api/state", &[header], b"").status;
    assert_eq!(with("Host: localhost:1234"), 200);
    assert_eq!(with("Host: evil.example"), 403);
    assert_eq!(with("Host: 127.0.0.1.evil.example"), 403);
    assert_eq!(with("Sec-Fetch-Site: cross-site"), 403);
    // A page of another site can send this without asking the browser for permission.
    let plain = dashboard.ask("POST", "/api/trace", &["Content-Type: text/plain"], b"{}");
    assert_eq!(plain.status, 415);
    assert_eq!(dashboard.ask("POST", "/api/trace", &[], b"{}").status, 415);
}

#[test]
fn other_machines_need_the_token() {
    let folder = Folder::new("dashboard-token");
    let logdir = folder.0.to_str().unwrap();
    let dashboard = Dashboard::start(&["--address", "0.0.0.0", "--logdir", logdir]);
    let (_, token) = dashboard.url.split_once("/?token=").unwrap();
    assert_eq!(token.len(), 32, "{token}");
    assert!(dashboard.address.starts_with("localhost:"), "{}", dashboard.address);
    assert_eq!(dashboard.get("/").status, 401);
    assert_eq!(dashboard.get("/style.css").status, 401);
    assert_eq!(dashboard.get("/?token=00000000000000000000000000000000").status, 401);
    let bearer = |token: &str| {
        let header = format!("Authorization: Bearer {token}");
        dashboard.ask("GET", "/api/state", &[&header, "Host: any.example"], b"").status
    };
    assert_eq!((bearer(token), bearer("wrong")), (200, 401));
    let redirect = dashboard.get(&format!("/?token={token}"));
    assert_eq!(redirect.status, 303);
    let header = |name: &str| {
        let line = redirect.head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}{}", redirect.head)).to_owned()
    };
    assert_eq!(header("location: "), "/");
    let cookie = header("set-cookie: ");
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert_eq!(dashboard.ask("GET", "/api/state", &[&cookie], b"").status, 200);

    let chosen =
        Dashboard::start(&["--address", "0.0.0.0", "--token", "chosen-token", "--logdir", logdir]);
    assert!(chosen.url.ends_with("/?token=chosen-token"));
    let other = Dashboard::start(&["--address", "0.0.0.0", "--logdir", logdir]);
    assert!(!other.url.ends_with(token), "tokens are drawn at each start");
}

#[test]
fn hostile_requests_are_refused_and_others_still_served() {
    let folder = Folder::new("dashboard-hostile");
    let dashboard = Dashboard::start(&["--logdir", folder.0.to_str().unwrap()]);
    let host = format!("Host: {}\r\n", dashboard.address);
    // A body that is too large by its length, and one that turns out to be.
    let large = vec![b' '; 70 << 10];
    let json = "Content-Type: application/json";
    assert_eq!(dashboard.ask("POST", "/api/simulation", &[json], &large).status, 413);
    let mut chunked = format!(
        "POST /api/simulation HTTP/1.1\r\n{host}{json}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..100 {
        chunked.extend_from_slice(b"400\r\n");
        chunked.extend_from_slice(&[b' '; 1024]);
        chunked.extend_from_slice(b"\r\n");
    }
    let answer = dashboard.exchange(&chunked);
    assert!(answer.is_empty() || parse(&answer).status == 413);
    for body in ["", "{", "[]", r#"{"unknown": 1}"#, &"[".repeat(60_000)] {
        assert_eq!(dashboard.post("/api/simulation", body).status, 400, "{body:.20}");
    }
    // Heads that are too long, have too many headers, or are none.
    let long = format!("GET /{} HTTP/1.1\r\n{host}\r\n", "a".repeat(40 << 10));
    let many = format!("GET / HTTP/1.1\r\n{host}{}\r\n", "X: y\r\n".repeat(500));
    for request in [
        long.as_bytes(),
        many.as_bytes(),
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"\0\0\0\r\n\r\n",
    ] {
        let mut request = request.to_vec();
        request.extend_from_slice(b"\r\n\r\n");
        let answer = dashboard.exchange(&request);
        assert!(answer.is_empty() || parse(&answer).status >= 400);
        assert_eq!(dashboard.get("/api/state").status, 200);
    }
}

#[test]
fn many_idle_connections_do_not_lock_others_out() {
    let folder = Folder::new("dashboard-idle");
    let dashboard = Dashboard::start(&["--logdir", folder.0.to_str().unwrap()]);
    // More than are accepted at once; half of them have begun a request.
    let mut idle: Vec<TcpStream> = (0..300).map(|_| dashboard.connect()).collect();
    for stream in idle.iter_mut().step_by(2) {
        stream.write_all(b"GET / HT").unwrap();
    }
    let begin = Instant::now();
    assert_eq!(dashboard.get("/api/state").status, 200);
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
}

#[test]
fn signals_end_it_and_mistakes_are_named() {
    let folder = Folder::new("dashboard-end");
    let logdir = folder.0.to_str().unwrap();
    let mut dashboard = Dashboard::start(&["--logdir", logdir]);
    // An open connection does not keep it.
    let _open = dashboard.connect();
    let id = dashboard.process.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let ended = eventually("its end", Duration::from_secs(10), || {
        dashboard.process.child.try_wait().unwrap()
    });
    assert!(ended.success(), "{ended}");

    let fails = |args: &[&str], code: i32, sentence: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args([&["dashboard", "--port", "0"], args].concat())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(sentence), "{text}");
    };
    fails(&[], 2, "there is nothing to show");
    fails(&["--logdir", logdir, "--token", "short"], 2, "8 to 256 characters");
    fails(&["--connect", "nonsense"], 2, "nonsense");
    fails(&["--logdir", "/nowhere/at/all"], 1, "/nowhere/at/all");
    fails(&["/nowhere/at/all"], 1, "/nowhere/at/all");
}
