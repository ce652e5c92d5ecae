//! Supervised training over processes: tasks and programs that are killed and started again.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

#[path = "support/folder.rs"]
mod folder;

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use folder::Folder;
use thalweg::cluster::ConnectOptions;
use thalweg::formats::checkpoint::{BundleReader, CheckpointState};
use thalweg::formats::{LocalStorage, Storage};
use thalweg::prelude::*;
use thalweg::train::trainer::{Callback, Control, Screen, Step};
use thalweg::train::{
    Cluster, Dense, Flatten, Layer, Mode, Net, Sgd, TrainOptions, Trainer, losses, mnist,
};

const SAMPLES: usize = 2000;
const BATCH: usize = 25;
const EPOCHS: u64 = 4;
const BATCHES_PER_SHARD: usize = 4;
const UPDATES_LOST_MAX: u64 = 30;
/// By how much the accuracy of a disturbed run may differ from that of an undisturbed one: gradients
/// are averaged in other company, and two runs of the same program differ as much.
const TOLERANCE: f32 = 0.03;
const PATIENCE: Duration = Duration::from_secs(150);

/// A process; killed when dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command, log: &str) -> Process {
        let log = File::options().create(true).append(true).open(log).unwrap();
        let command = command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        Process(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits for its end; whether it succeeded.
    fn ends_well(&mut self) -> bool {
        let mut ended = None;
        eventually("the end of a process", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One parameter server and two workers, each a process.
struct Tasks {
    spec: String,
    folder: PathBuf,
    running: Mutex<Vec<(String, Process)>>,
}

impl Tasks {
    fn start(folder: &Folder) -> Arc<Tasks> {
        // All are open until all are known, so that no two are the same.
        let ports: Vec<TcpListener> =
            (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let at: Vec<String> =
            ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
        drop(ports);
        let spec = format!("ps={};worker={},{}", at[0], at[1], at[2]);
        let tasks = Tasks { spec, folder: folder.0.clone(), running: Mutex::default() };
        ["ps/0", "worker/0", "worker/1"].into_iter().for_each(|name| tasks.spawn(name));
        Arc::new(tasks)
    }

    fn spawn(&self, name: &str) {
        let (job, task) = name.split_once('/').unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        let command = command.args(["server", "--with-parent", "--threads", "1"]);
        let command = command.args(["--cluster", &self.spec, "--job", job, "--task", task]);
        let log = self.folder.join(name.replace('/', "-")).display().to_string();
        let process = Process::start(command.env_remove("TF_CONFIG"), &log);
        self.running.lock().unwrap().push((name.to_owned(), process));
    }

    /// Kills a task and, after a while, starts it again.
    fn kill(&self, name: &str) {
        self.running.lock().unwrap().retain(|(other, _)| other != name);
        std::thread::sleep(Duration::from_millis(100));
        self.spawn(name);
    }
}

/// Kills a task at each of these numbers of updates.
struct Killer {
    tasks: Arc<Tasks>,
    victims: Vec<(u64, &'static str)>,
    next: AtomicUsize,
}

impl Callback for Killer {
    fn on_step(&self, step: &Step, _control: &Control) -> Result<()> {
        let next = self.next.load(Ordering::SeqCst);
        if let Some(&(at, name)) = self.victims.get(next)
            && step.updates >= at
            && self
                .next
                .compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            self.tasks.kill(name);
        }
        Ok(())
    }
}

/// What a training printed.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn options(folder: &str) -> TrainOptions {
    TrainOptions {
        folder: folder.to_owned(),
        mode: Mode::sync(),
        batch: BATCH,
        epochs: EPOCHS,
        batches_per_shard: BATCHES_PER_SHARD,
        updates_lost_max: UPDATES_LOST_MAX,
        outage_max: PATIENCE,
        ..TrainOptions::default()
    }
}

/// The program that all of these tests run.
fn train(
    spec: &str,
    options: TrainOptions,
    callback: Option<Arc<dyn Callback>>,
    screen: Screen,
) -> Result<()> {
    let connect = ConnectOptions { connect_timeout: Duration::from_secs(1), ..Default::default() };
    let cluster = Cluster::connect(spec)?.options(connect);
    let mut trainer = Trainer::new(&cluster, options).screen(screen);
    if let Some(callback) = callback {
        trainer = trainer.callback(callback);
    }
    let digits = mnist::train()?.first(SAMPLES);
    let outcome = trainer.run(&digits, Sgd::new(0.1), |model| {
        let images = model.placeholder::<f32>("images", [None, Some(28), Some(28), Some(1)]);
        let labels = model.placeholder::<i64>("labels", [None]);
        let logits = Dense::new(10).apply(model, &Flatten.apply(model, &images));
        Net::new((&images, &labels), &losses::softmax_cross_entropy(&logits, &labels))
    })?;
    assert_eq!(outcome.samples, SAMPLES as u64 * EPOCHS);
    Ok(())
}

/// What the last checkpoint of a folder has: the accuracy on test digits, and updates. Each sample was
/// used once per epoch.
fn result(folder: &str) -> (f32, i64) {
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::default());
    let state = CheckpointState::read(&*storage, folder).unwrap().unwrap();
    let bundle = BundleReader::open(&storage, &state.latest).unwrap();
    let read = |name: &str| bundle.read(name).unwrap();
    let table = read("leases");
    let used: Vec<i64> = table.as_slice::<i64>().unwrap().chunks_exact(3).map(|r| r[1]).collect();
    let per_shard = BATCH * BATCHES_PER_SHARD;
    assert_eq!(used, vec![per_shard as i64 * EPOCHS as i64; SAMPLES / per_shard]);
    let (kernel, bias) = (read("dense/kernel"), read("dense/bias"));
    let (kernel, bias) = (kernel.as_slice::<f32>().unwrap(), bias.as_slice::<f32>().unwrap());
    let digits = mnist::test().unwrap().first(2000);
    let is_right = |i: &usize| {
        let image = digits.image(*i).unwrap();
        let score = |class: usize| {
            let product =
                |(j, &pixel): (usize, &u8)| f32::from(pixel) / 255.0 * kernel[j * 10 + class];
            bias[class] + image.iter().enumerate().map(product).sum::<f32>()
        };
        let best = (0..10).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
        best == usize::from(digits.label(*i).unwrap())
    };
    let right = (0..digits.len()).filter(is_right).count();
    (right as f32 / digits.len() as f32, read("global_step").scalar_value().unwrap())
}

/// A number of each event of a kind that a screen was told of.
fn told(text: &str, event: &str, field: &str) -> Vec<u64> {
    let is_it = format!("\"event\":\"{event}\"");
    let field = format!("\"{field}\":");
    let of_line = |line: &str| {
        let rest = line.contains(&is_it).then(|| line.split_once(&field)).flatten()?.1;
        rest.split([',', '}']).next()?.parse().ok()
    };
    text.lines().filter_map(of_line).collect()
}

#[test]
fn worker_chief_and_server_are_killed_and_the_result_is_the_same() {
    let folder = Folder::new("training-killed");
    let run = |name: &str, victims: Vec<(u64, &'static str)>| {
        let at = folder.path(name);
        fs::create_dir_all(&at).unwrap();
        let (tasks, page) = (Tasks::start(&folder), Page::default());
        let count = victims.len();
        let killer = Arc::new(Killer { tasks: tasks.clone(), victims, next: AtomicUsize::new(0) });
        let screen = Screen::new(false, Box::new(page.clone()));
        let callback = killer.clone() as Arc<dyn Callback>;
        let ended = train(&tasks.spec, options(&at), Some(callback), screen);
        let text = page.text();
        ended.unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        assert_eq!(killer.next.load(Ordering::SeqCst), count, "{text}");
        (result(&at), text)
    };
    let ((calm, rounds), _) = run("calm", vec![]);
    let ((rough, rounds_rough), text) =
        run("rough", vec![(40, "worker/1"), (70, "worker/0"), (100, "ps/0")]);
    assert!(calm > 0.8, "{calm}");
    assert!((calm - rough).abs() < TOLERANCE, "{calm} and {rough}\n{text}");
    let all = (SAMPLES / BATCH) as i64 * EPOCHS as i64;
    assert!((all / 2..all * 2 / 3).contains(&rounds), "{rounds}");
    assert!((all / 2..all * 2 / 3).contains(&rounds_rough), "{rounds_rough}\n{text}");
    // The screen says who was interrupted, that all came back, and what was lost: with the server, and
    // with a worker that died in the middle of changing variables.
    let (interrupted, back) = (told(&text, "lost", "worker"), told(&text, "back", "worker"));
    assert!(interrupted.contains(&0) && interrupted.contains(&1), "{text}");
    assert!(back.contains(&0) && back.contains(&1), "{text}");
    let lost = told(&text, "restored", "updates_lost");
    assert!((1..=3).contains(&lost.len()), "{lost:?}\n{text}");
    assert!(lost.iter().all(|&lost| lost <= UPDATES_LOST_MAX), "{lost:?}\n{text}");
}

const ROLE: &str = "THALWEG_TEST_TRAINER";

/// Not a test but what the next one starts: a program that drives one worker.
#[test]
fn trainer_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let [worker, spec, folder] = role.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!() };
    let workers = Some(vec![worker.parse().unwrap()]);
    let screen = Screen::new(false, Box::new(std::io::stderr()));
    train(spec, TrainOptions { workers, ..options(folder) }, None, screen).unwrap();
}

fn program(worker: usize, tasks: &Tasks, folder: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", "trainer_process", "--nocapture"]);
    let command = command.env(ROLE, format!("{worker} {} {folder}", tasks.spec));
    Process::start(command, &format!("{folder}/{worker}.log"))
}

/// A program for each worker. The chief's is killed, with its task, and comes back; so is the other's.
#[test]
fn programs_share_a_training_and_may_be_killed() {
    let folder = Folder::new("training-shared");
    let tasks = Tasks::start(&folder);
    let at = folder.path("run");
    fs::create_dir_all(&at).unwrap();
    let text = |worker: usize| {
        let path = Path::new(&at).join(format!("{worker}.log"));
        fs::read_to_string(path).unwrap_or_default()
    };
    let mut programs = [0, 1].map(|worker| program(worker, &tasks, &at));
    for (victim, saves) in [(0, 2), (1, 4)] {
        eventually("a checkpoint", || told(&text(0), "saved", "updates").len() >= saves);
        programs[victim].kill();
        tasks.kill(["worker/0", "worker/1"][victim]);
        programs[victim] = program(victim, &tasks, &at);
    }
    for (worker, program) in programs.iter_mut().enumerate() {
        assert!(program.ends_well(), "worker {worker}\n{}\n{}", text(0), text(1));
    }
    let (accuracy, _) = result(&at);
    assert!(accuracy > 0.8, "{accuracy}\n{}", text(0));
    // Variables were given their values once; whoever came later went on with them, unless the chief
    // was killed in the middle of a change.
    assert_eq!(told(&text(0), "began", "updates_lost"), [0], "{}", text(0));
    let (joined, restored) =
        (told(&text(0), "joined", "worker"), told(&text(0), "restored", "updates_lost"));
    assert_eq!(joined.len() + restored.len(), 1, "{}", text(0));
    assert_eq!(told(&text(1), "joined", "worker"), [1, 1], "{}", text(1));
}
