//! `thalweg cluster` as a user runs it: up, status, logs, down, restarts, and mistakes.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "support/folder.rs"]
mod folder;

use std::borrow::Cow;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use folder::Folder;

/// A cluster of one test; down and gone when dropped.
struct Cluster {
    folder: Folder,
}

impl Cluster {
    fn new(test: &str, file: &str) -> Cluster {
        let folder = Folder::new(&format!("cluster-{test}"));
        fs::write(folder.path("cluster.toml"), file).unwrap();
        Cluster { folder }
    }

    fn command(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["cluster", "--state", "state"])
            .args(args)
            .current_dir(&self.folder.0)
            .output()
            .unwrap()
    }

    fn up(&self) -> Vec<(String, String)> {
        let output = self.command(&["up"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let tasks = text.lines().filter_map(|line| line.split_once(" listens on "));
        tasks.map(|(task, address)| (task.to_owned(), address.to_owned())).collect()
    }

    /// The processes that listen for this cluster: they name its addresses.
    fn servers(&self, address: &str) -> Vec<u32> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let id: u32 = entry.unwrap().file_name().to_str()?.parse().ok()?;
            let command = fs::read(format!("/proc/{id}/cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).into_owned();
            (command.contains("--with-parent") && command.contains(address)).then_some(id)
        });
        processes.collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.command(&["down"]);
    }
}

/// What the command line of a process has after a flag.
fn told(process: u32, flag: &str) -> Option<String> {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap();
    let mut words = command.split(|b| *b == 0).map(String::from_utf8_lossy);
    words.find(|word| word == flag)?;
    words.next().map(Cow::into_owned)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn up_logs_down() {
    let cluster = Cluster::new(
        "up",
        "[job.ps]\ntasks = 1\nmemory_mb = 256\n[job.worker]\ntasks = 2\nthreads = 1\n",
    );
    let tasks = cluster.up();
    let names: Vec<&str> = tasks.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ps/0", "worker/0", "worker/1"]);
    let status = cluster.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["tasks"][0]["memory"]["limit_bytes"], 256 << 20);
    assert!(status["tasks"][1]["memory"]["limit_bytes"].as_u64().unwrap() > 256 << 20);
    assert_eq!([1_usize, 2].map(|i| status["tasks"][i]["threads"].clone()), [1, 1]);

    let again = cluster.command(&["up"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is already up"));

    let logs = cluster.command(&["logs", "ps/0"]);
    let address = &tasks[0].1;
    assert_eq!(String::from_utf8(logs.stdout).unwrap(), format!("listening on {address}\n"));
    let wrong = cluster.command(&["logs", "ps/7"]);
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("the tasks are ps/0, worker/0, worker/1")
    );

    let down = cluster.command(&["down"]);
    assert!(String::from_utf8(down.stdout).unwrap().contains("is down"));
    let refused = TcpStream::connect(address).expect_err("it listens after it was ended");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(cluster.servers(address), Vec::<u32>::new());
    let down = cluster.command(&["down"]);
    assert!(String::from_utf8(down.stdout).unwrap().contains("is not up"));
}

#[test]
fn the_file_and_the_command_line_choose_the_transport() {
    let file = "transport = \"grpc\"\n[job.ps]\ntasks = 2\n";
    for (flags, transport) in [(&["up"][..], "grpc"), (&["up", "--transport", "auto"], "auto")] {
        let cluster = Cluster::new(&format!("transport-{transport}"), file);
        let up = cluster.command(flags);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let text = String::from_utf8(up.stdout).unwrap();
        let address = text.lines().next().unwrap().rsplit_once(' ').unwrap().1;
        let servers = cluster.servers(address);
        assert_eq!(servers.len(), 2);
        for server in servers {
            assert_eq!(told(server, "--transport").as_deref(), Some(transport));
        }
    }
}

#[test]
fn status_tells_how_each_task_is() {
    let cluster = Cluster::new("status", "[job.ps]\ntasks = 1\n[job.worker]\ntasks = 2\n");
    let not_up = cluster.command(&["status"]);
    assert_eq!(not_up.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&not_up.stderr).contains("is not up"));
    let tasks = cluster.up();
    let status = cluster.command(&["status", "--waits"]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(status.status.success(), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    // A heading, a line for each task, an empty line, and who waits.
    assert_eq!(lines.len(), tasks.len() + 3, "{text}");
    for ((task, address), line) in tasks.iter().zip(&lines[1..]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..3], [task, "alive", address], "{text}");
        assert_eq!(words[3..5], [env!("CARGO_PKG_VERSION"), "CPU:0"], "{text}");
    }
    assert_eq!(lines.last(), Some(&"no step waits"), "{text}");

    let signal = |name: &str, index: usize| {
        let id = cluster.servers(&tasks[index].1);
        let of_task = |id: &&u32| {
            let (job, task) = tasks[index].0.split_once('/').unwrap();
            told(**id, "--job-name").unwrap() == job && told(**id, "--task-index").unwrap() == task
        };
        let id = id.iter().find(of_task).unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
        id
    };
    let stopped = signal("-STOP", 0);
    let state = format!("/proc/{stopped}/status");
    eventually("the stop", || fs::read_to_string(&state).unwrap().contains("State:\tT"));
    signal("-KILL", 1);
    eventually("the end of the killed one", || TcpStream::connect(&tasks[1].1).is_err());
    let begin = Instant::now();
    let status = cluster.command(&["status", "--json"]);
    let took = begin.elapsed();
    signal("-CONT", 0);
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert_eq!(status.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let states: Vec<&str> = (0..3).map(|i| json["tasks"][i]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["silent", "dead", "alive"]);

    let health = |address: &str| {
        let args = ["health", "--address", address];
        Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).output().unwrap().status.code()
    };
    assert_eq!(health(&tasks[2].1), Some(0));
    assert_eq!(health(&tasks[1].1), Some(1));
}

#[test]
fn what_dies_comes_back_where_told_so() {
    let cluster = Cluster::new("restart", "restarts = 1\n[job.worker]\ntasks = 1\n");
    let address = cluster.up()[0].1.clone();
    let first = cluster.servers(&address)[0];
    assert!(Command::new("kill").args(["-9", &first.to_string()]).status().unwrap().success());
    eventually("a second process", || {
        cluster.servers(&address).iter().any(|id| *id != first)
            && TcpStream::connect(&address).is_ok()
    });
}

#[test]
fn tasks_end_with_a_supervisor_that_is_killed() {
    let cluster = Cluster::new("killed", "[job.worker]\ntasks = 1\n");
    let address = cluster.up()[0].1.clone();
    let text = fs::read_to_string(cluster.folder.path("state/cluster/cluster.json")).unwrap();
    let id = serde_json::from_str::<serde_json::Value>(&text).unwrap()["supervisor"].to_string();
    assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
    eventually("the end of its task", || cluster.servers(&address).is_empty());
}

/// Follows a task's log until it is dropped.
struct Follower {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Follower {
    fn new(cluster: &Cluster, task: &str) -> Follower {
        let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["cluster", "--state", "state", "logs", task, "-f"])
            .current_dir(&cluster.folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for pipe in pipes {
            let lines = lines.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    lines.lock().unwrap().push(line);
                }
            });
        }
        Follower { child, lines }
    }

    fn count(&self, words: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(words)).count()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn logs_are_followed_over_restarts_and_a_new_start() {
    let cluster = Cluster::new("follow", "restarts = 1\n[job.worker]\ntasks = 1\n");
    let address = cluster.up()[0].1.clone();
    let follower = Follower::new(&cluster, "worker/0");
    eventually("the first line", || follower.count("listening on") == 1);
    let first = cluster.servers(&address)[0];
    assert!(Command::new("kill").args(["-9", &first.to_string()]).status().unwrap().success());
    eventually("the word of its restart", || follower.count("restarts in 0.5 s") == 1);
    eventually("its second start", || follower.count("listening on") == 2);
    cluster.command(&["down"]);
    eventually("the word that it is down", || follower.count("the cluster is down") == 1);
    cluster.up();
    eventually("its third start", || follower.count("listening on") == 3);
    cluster.command(&["down"]);
    eventually("the second word", || follower.count("the cluster is down") == 2);
    assert_eq!(follower.count("listening on"), 3);
}

#[test]
fn a_task_that_cannot_listen_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    // 192.0.2.0/24 is nobody's.
    for (i, address) in [format!("127.0.0.1:{port}"), "192.0.2.7:2222".into()].iter().enumerate() {
        let file = format!("[job.ps]\ntasks = [\"{address}\"]\n");
        let cluster = Cluster::new(&format!("alone-{i}"), &file);
        let output = cluster.command(&["up"]);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let why = format!("cannot listen on {address}");
        assert!(said.contains("ps/0: ") && said.contains(&why), "{said}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let file = format!("[job.ps]\ntasks = [\"127.0.0.1:{port}\"]\n[job.worker]\ntasks = 1\n");
    let cluster = Cluster::new("taken", &file);
    // The one that listens there is not ours: the task itself must have ended well.
    let output = cluster.command(&["up"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("ps/0"), "{said}");
}
