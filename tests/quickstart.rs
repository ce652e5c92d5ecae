//! `thalweg quickstart` as a user runs it, with no network but this machine's own where the system lets a
//! test have that: small here, whole with `cargo xtask test --all`.
#![cfg(all(feature = "cli", feature = "remote", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has time of its own")]

#[path = "support/skips.rs"]
mod skips;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use thalweg::formats::LocalStorage;
use thalweg::formats::events::{EventReader, Scalars, event_files};
use thalweg::formats::record::ReadOptions;
use thalweg::prelude::*;
use thalweg::train::mnist;

/// A folder of one test; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("thalweg-quickstart-test-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tour: its lines, and the JSON of the last.
struct Tour {
    text: String,
    summary: Json,
    had_no_network: bool,
}

/// Runs its arguments where the only network is the machine's own.
const APART: [&str; 5] = ["unshare", "-rn", "sh", "-c", "ip link set lo up && exec \"$@\""];

/// What `program` is started with so that it reaches nobody outside; none where that is not allowed.
fn apart(program: &str) -> Option<Command> {
    let command = |program: &str| {
        let mut command = Command::new(APART[0]);
        command.args(&APART[1..]).args(["sh", program]);
        command
    };
    let probe = command("true").stdin(Stdio::null()).stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        return Some(command(program));
    }
    skips::skipped("quickstart: without a network", "`unshare -rn` and `ip` do not work here");
    None
}

impl Tour {
    /// Runs it from a folder that has nothing to do with this project, with the binary alone.
    fn take(folder: &Folder, args: &[&str]) -> Tour {
        let alone = folder.0.join("thalweg");
        std::fs::copy(env!("CARGO_BIN_EXE_thalweg"), &alone).unwrap();
        let separate = apart(alone.to_str().unwrap());
        let had_no_network = separate.is_some();
        let output = separate
            .unwrap_or_else(|| Command::new(&alone))
            .arg("quickstart")
            .args(args)
            .arg("--folder=run")
            .current_dir(&folder.0)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}\n{}", logs(&folder.0));
        let summary = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        Tour { text, summary, had_no_network }
    }

    /// The line that begins so.
    fn line(&self, begin: &str) -> &str {
        let mut lines = self.text.lines().map(str::trim);
        lines.find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{}", self.text))
    }

    fn served_classes(&self) -> Vec<i64> {
        let classes = self.summary["served_classes"].as_array().unwrap();
        classes.iter().map(|class| class.as_i64().unwrap()).collect()
    }

    /// The server said what the model says.
    fn check_answers(&self) {
        let registry = thalweg::registry();
        let model = SavedModel::load(
            self.summary["saved_model"].as_str().unwrap(),
            &[],
            (registry.ops.clone(), registry.kernels.clone()),
            LoadOptions::default(),
        )
        .unwrap();
        let (images, _) = mnist::test().unwrap().batch(&(10..20).collect::<Vec<_>>()).unwrap();
        let found = model.run("serving_default", &[("images", images)]).unwrap();
        assert_eq!(self.served_classes(), found["classes"].as_slice::<i64>().unwrap());
    }

    /// The lines that it shows serve the model and ask it, when they are pasted.
    fn check_lines(&self, folder: &Folder) {
        let has_curl = Command::new("curl").arg("--version").output().is_ok();
        if !has_curl {
            skips::skipped("quickstart: the line with curl", "curl is not installed");
            return;
        }
        let _server = Shell::start(self.line("./thalweg serve "), folder);
        let curl = self.line("curl ");
        // It is not there at once.
        let begin = Instant::now();
        let answer = loop {
            let command = format!("{curl} --silent --noproxy '*'");
            let output = Command::new("sh").args(["-c", &command]).output().unwrap();
            let answer: Json = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if let Some(rows) = answer["predictions"].as_array() {
                break rows.clone();
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{curl}\n{answer}\n{output:?}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let classes: Vec<_> = answer.iter().map(|row| row["classes"].as_i64().unwrap()).collect();
        assert_eq!(classes, self.served_classes());
    }

    fn number(&self, key: &str) -> f64 {
        self.summary[key].as_f64().unwrap_or_else(|| panic!("no number {key}\n{}", self.text))
    }

    /// What the summary names is there.
    fn check_files(&self) {
        let path = |key: &str| self.summary[key].as_str().unwrap().to_owned();
        assert!(Path::new(&format!("{}.index", path("checkpoint"))).is_file(), "{}", self.text);
        assert!(Path::new(&path("saved_model")).join("saved_model.pb").is_file(), "{}", self.text);
        let files = event_files(&LocalStorage::default(), &path("events")).unwrap();
        let mut reader =
            EventReader::open(&LocalStorage::default(), &files[0], ReadOptions::default()).unwrap();
        let (mut scalars, mut tags) = (Scalars::new(), Vec::new());
        while let Some(found) = scalars.next(&mut reader).unwrap() {
            let found: Vec<usize> = found.iter().map(|scalar| scalar.tag).collect();
            tags.extend(found.iter().map(|&tag| scalars.tag(tag).to_owned()));
        }
        for tag in ["loss", "accuracy", "updates_per_second"] {
            assert!(tags.iter().any(|found| found == tag), "{tag} is not among {tags:?}");
        }
    }
}

/// A pasted line; what it started ends when this is dropped.
struct Shell(Child);

impl Shell {
    fn start(line: &str, folder: &Folder) -> Shell {
        let line = format!("exec {line}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(&folder.0).stdin(Stdio::null()).stdout(Stdio::null());
        Shell(shell.spawn().unwrap())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the tasks printed.
fn logs(folder: &Path) -> String {
    let files = std::fs::read_dir(folder.join("run/logs")).into_iter().flatten().flatten();
    files.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
}

/// Small enough for kernels that are not optimised.
const SMALL: [&str; 6] = [
    "--images=400",
    "--batch=20",
    "--epochs=2",
    "--filters=2",
    "--test-images=200",
    "--checkpoint-every=8",
];

#[test]
fn a_small_tour_loses_a_worker_and_nothing_else() {
    let folder = Folder::new("small");
    let tour = Tour::take(&folder, &SMALL);
    tour.check_files();
    tour.check_answers();
    tour.check_lines(&folder);
    assert_eq!(tour.number("updates_lost"), 0.0);
    assert!(tour.number("detection_seconds") < 5.0, "{}", tour.text);
    assert!(tour.number("train_seconds") > 0.0);
    // Chance is 0.1.
    assert!(tour.number("test_accuracy") > 0.2, "{}", tour.text);
    for words in
        ["40 updates", "worker/1 was killed", "no update was lost", "\"event\":\"lost\"", "█"]
    {
        assert!(tour.text.contains(words), "{words} is not in\n{}", tour.text);
    }
    let wrong = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["quickstart", "--kill=worker/7"])
        .arg(format!("--folder={}", folder.0.display()))
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn worker_chief_and_parameter_server_may_die() {
    let folder = Folder::new("deaths");
    let kills = ["--kill=worker/1", "--kill=worker/0", "--kill=ps/0"];
    let tour = Tour::take(&folder, &[&SMALL[..], &kills].concat());
    tour.check_files();
    // Every batch led to one update that is in the variables, whatever was lost between.
    let checkpoint = tour.summary["checkpoint"].as_str().unwrap();
    assert!(checkpoint.ends_with("model-40"), "{}", tour.text);
    assert!(tour.number("updates_lost") <= 8.0, "{}", tour.text);
    for words in ["worker/1 was killed", "worker/0 was killed", "ps/0 was killed", "\"restored\""] {
        assert!(tour.text.contains(words), "{words} is not in\n{}", tour.text);
    }
}

#[test]
#[ignore = "two minutes, and kernels that are optimised; cargo xtask test --all runs it"]
fn the_whole_tour_learns_to_read() {
    let folder = Folder::new("whole");
    let calm = Tour::take(&folder, &["--undisturbed"]);
    calm.check_files();
    let kills = ["--kill=worker/1", "--kill=worker/0", "--kill=ps/0"];
    let folder = Folder::new("whole-deaths");
    let rough = Tour::take(&folder, &kills);
    for tour in [&calm, &rough] {
        assert!(tour.had_no_network);
        assert!(tour.number("test_accuracy") >= 0.985, "{}", tour.text);
        assert!(tour.number("seconds") < 120.0, "{}", tour.text);
    }
    assert!(rough.number("updates_lost") <= 200.0, "{}", rough.text);
    let apart = (calm.number("test_accuracy") - rough.number("test_accuracy")).abs();
    assert!(apart < 0.005, "{apart}");
}
