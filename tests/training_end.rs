//! The end of a training on a cluster of processes: which of them end with it.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use thalweg::prelude::*;
use thalweg::train::trainer::{Outcome, Screen};
use thalweg::train::{
    Dense, Flatten, Layer, Model, Net, Optimizer, Stops, TrainOptions, Trainer, losses, mnist,
};

/// How long a task may take to end.
const LIMIT: Duration = Duration::from_secs(20);

/// Tasks of a cluster, each a process; ended when dropped.
struct Tasks {
    spec: String,
    children: Vec<(String, Child)>,
    folder: String,
}

impl Tasks {
    /// Two parameter servers, the second as `second` says, and two workers.
    fn start(test: &str, second: &[&str]) -> Tasks {
        let ports: Vec<TcpListener> =
            (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |i: usize| ports[i].local_addr().unwrap().to_string();
        let spec = format!("ps={},{};worker={},{}", address(0), address(1), address(2), address(3));
        drop(ports);
        let folder = std::env::temp_dir().join(format!("thalweg-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut tasks = Tasks { spec, children: Vec::new(), folder: folder.display().to_string() };
        for (job, index) in [("ps", "0"), ("ps", "1"), ("worker", "0"), ("worker", "1")] {
            let extra = if (job, index) == ("ps", "1") { second } else { &[] };
            let mut child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
                .args(["server", "--cluster", &tasks.spec, "--job", job, "--task", index])
                .args(extra)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            tasks.children.push((format!("{job}/{index}"), child));
            assert!(line.starts_with("listening on "), "{job}/{index}: {line}");
        }
        tasks
    }

    /// Trains from two programs, one for each worker; what came of it for each.
    fn train(&self, stops: Stops) -> [Outcome; 2] {
        let one = |worker: usize| {
            let cluster = Cluster::connect(&self.spec).unwrap();
            let options = TrainOptions {
                folder: self.folder.clone(),
                batch: 20,
                workers: Some(vec![worker]),
                outage_max: LIMIT,
                stops,
                ..TrainOptions::default()
            };
            let digits = mnist::train().unwrap().first(2000);
            let trainer = Trainer::new(&cluster, options).screen(Screen::none());
            trainer.run(&digits, Optimizer::sgd(0.1), net).unwrap()
        };
        std::thread::scope(|threads| {
            let other = threads.spawn(|| one(1));
            [one(0), other.join().unwrap()]
        })
    }

    /// How a task ended; none if it is there after the time that it has for that.
    fn end(&mut self, name: &str, limit: Duration) -> Option<ExitStatus> {
        let (_, child) = self.children.iter_mut().find(|(other, _)| other == name).unwrap();
        let begin = Instant::now();
        loop {
            match child.try_wait().unwrap() {
                None if begin.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
                ended => return ended,
            }
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn net(model: &Model) -> Net {
    let images = model.placeholder::<f32>("images", [None, Some(28), Some(28), Some(1)]);
    let labels = model.placeholder::<i64>("labels", [None]);
    let logits = Dense::new(10).apply(model, &Flatten.apply(model, &images));
    Net::new((&images, &labels), &losses::softmax_cross_entropy(&logits, &labels))
}

#[test]
fn parameter_servers_end_with_a_training_that_says_so() {
    let mut tasks = Tasks::start("end-ps", &["--host", "127.0.0.1", "--allow-stop"]);
    // By default all stay, for the next training.
    let outcomes = tasks.train(Stops::Nobody);
    assert_eq!(outcomes[0].updates, 100);
    assert!(outcomes[0].left.is_empty() && outcomes[0].checkpoint.is_some());
    for name in ["ps/0", "ps/1", "worker/0", "worker/1"] {
        assert_eq!(tasks.end(name, Duration::from_millis(500)), None, "{name}");
    }
    std::fs::remove_dir_all(&tasks.folder).unwrap();
    let outcomes = tasks.train(Stops::Ps);
    assert!(outcomes.iter().all(|outcome| outcome.interruptions == 0), "{outcomes:?}");
    for name in ["ps/0", "ps/1"] {
        assert!(tasks.end(name, LIMIT).is_some_and(|status| status.success()), "{name}");
    }
    for name in ["worker/0", "worker/1"] {
        assert_eq!(tasks.end(name, Duration::ZERO), None, "{name}");
    }
}

#[test]
fn a_task_that_others_can_reach_ends_only_if_it_lets_them() {
    let mut tasks = Tasks::start("end-all", &["--host", "0.0.0.0"]);
    let outcomes = tasks.train(Stops::All);
    let left: Vec<String> = outcomes[0].left.iter().map(|(task, _)| task.to_string()).collect();
    assert_eq!(left, ["/job:ps/replica:0/task:1"]);
    assert_eq!(outcomes[0].left[0].1.code(), Code::PermissionDenied);
    for name in ["ps/0", "worker/0", "worker/1"] {
        assert!(tasks.end(name, LIMIT).is_some_and(|status| status.success()), "{name}");
    }
    assert_eq!(tasks.end("ps/1", Duration::from_secs(2)), None);
}

#[test]
fn tasks_of_this_process_end_with_their_cluster() {
    let cluster = Cluster::local(1, 1).unwrap();
    let addresses: Vec<String> =
        cluster.spec().tasks().map(|(_, address)| address.to_owned()).collect();
    assert!(addresses.iter().all(|address| TcpStream::connect(address).is_ok()));
    drop(cluster);
    for address in addresses {
        assert!(TcpStream::connect(&address).is_err(), "{address} still listens");
    }
}
