//! The shell blocks of the README and the book run, page by page, in a scratch folder.
//!
//! - `sh`: runs to its end and succeeds.
//! - `sh,server`: each command keeps running and says where it listens. It runs until the next such
//!   command of the page, the last one until the page ends.
//! - `sh,norun`: does not run here; `NOT_RUN` says why.
//!
//! What a block needs that the reader has anyway, files mostly, comes from comments before it,
//! which readers do not see: `<!-- sh`, commands, `-->`. Those of `<!-- sh,cleanup` run at the end
//! of the page, whatever happened before.
//!
//! Ports of the text (`PORTS`) become free ones, also where a command takes them by default;
//! `cargo run --release --` becomes the command that was built, and `cargo run --release --example`
//! the example, built with it.

use std::fs::File as Output;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::documents;
use super::markdown::fences;
use crate::run;
use crate::source::{self, File};

/// Blocks that do not run: the page, how the block begins, and why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "cargo run --release -- launch", "needs a Python with TensorFlow: part cluster"),
    (
        "README.md",
        "cargo run --release -- quickstart",
        "takes minutes unoptimised: tests/quickstart.rs",
    ),
    ("README.md", "cargo xtask test", "runs these blocks itself"),
    ("docs/src/concepts/cluster.md", "CLUSTER='ps=10.0.0.1:2222", "needs four machines"),
    (
        "docs/src/how-to/accelerators.md",
        "thalweg run graph.pb --device gpu",
        "needs an accelerator: part accelerator",
    ),
    (
        "docs/src/how-to/accelerators.md",
        "thalweg run my_model --accelerator",
        "needs a plugin: part accelerator",
    ),
    (
        "docs/src/how-to/containers.md",
        "cd deploy && docker-compose",
        "needs docker: part container",
    ),
    ("docs/src/how-to/containers.md", "export CARGO_TARGET_X86_64", "needs docker: part container"),
    ("docs/src/how-to/files.md", "export S3_ENDPOINT", "needs an object store: part s3"),
    (
        "docs/src/how-to/launching.md",
        "thalweg launch --ps 2",
        "needs a Python with TensorFlow: part cluster",
    ),
    (
        "docs/src/how-to/dashboard.md",
        "thalweg server --port 2222",
        "a page of its own says where it is: tests/dashboard.rs",
    ),
    (
        "docs/src/how-to/dashboard.md",
        "thalweg dashboard --logdir",
        "a page of its own says where it is: tests/dashboard.rs",
    ),
    (
        "docs/src/how-to/placement.md",
        "thalweg calibrate --output",
        "measures for minutes unoptimised: tests/placement.rs",
    ),
    (
        "docs/src/how-to/placement.md",
        "thalweg cluster trace",
        "needs a client that runs steps: part cluster",
    ),
    (
        "docs/src/how-to/running-graphs.md",
        "thalweg run train.pbtxt",
        "needs a cluster on other machines",
    ),
    (
        "docs/src/how-to/troubleshooting.md",
        "thalweg cluster status",
        "needs a cluster that has trouble",
    ),
    (
        "docs/src/how-to/from-estimators.md",
        "thalweg launch --chief",
        "needs a Python with TensorFlow",
    ),
    (
        "docs/src/how-to/from-tensorflow-1.md",
        "thalweg launch --ps 2",
        "needs a Python with TensorFlow",
    ),
    ("docs/src/how-to/from-tensorflow-1.md", "thalweg server --cluster", "needs three machines"),
    (
        "docs/src/tutorial/first-run.md",
        "cargo build --release",
        "the command is built before the blocks run",
    ),
    (
        "docs/src/tutorial/own-net.md",
        "cargo build --release",
        "the command is built before the blocks run",
    ),
];

/// How a reader runs the command, and an example.
const RUN: &str = "cargo run --release -- ";
const RUN_EXAMPLE: &str = "cargo run --release --example ";
/// Ports that stand in the text.
const PORTS: [&str; 5] = ["2222", "2223", "2224", "8500", "8501"];
/// The longest time of a block. The command is built without optimization.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(240);
/// The longest time until a server says where it listens.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// What a page has to run, in its order.
#[derive(Debug, PartialEq)]
struct Step {
    line: usize,
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Run,
    Server,
    NotRun,
    Cleanup,
}

/// Blocks that do not run are those of the list.
pub(super) fn exceptions_are_needed(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = vec![false; NOT_RUN.len()];
    for page in documents(files) {
        let not_run = |step: &Step| step.kind == Kind::NotRun;
        for step in steps(&page.text).into_iter().filter(not_run) {
            let entry = |(path, begin, _): &(&str, &str, &str)| {
                *path == page.path && step.text.starts_with(begin)
            };
            match NOT_RUN.iter().position(entry) {
                Some(i) => used[i] = true,
                None => problems.push(format!(
                    "{}:{}: say in xtask/src/book/shell.rs why this does not run",
                    page.path, step.line
                )),
            }
        }
    }
    for ((path, begin, _), _) in NOT_RUN.iter().zip(used).filter(|(_, used)| !used) {
        problems
            .push(format!("xtask/src/book/shell.rs: {path} has no block '{begin}' to leave out"));
    }
    problems
}

/// Runs the blocks of every page, or of those whose path contains `filter`, with the command
/// `thalweg`; fails after all pages if one failed.
pub(crate) fn run(thalweg: &Path, filter: &str) -> Result<()> {
    let has_curl = run::succeeds(&mut run::command("curl", &["--version"]));
    ensure!(has_curl, "the blocks need curl (apt-get install curl)");
    let files = source::files()?;
    let mut failed = Vec::new();
    for page in documents(&files).filter(|page| page.path.contains(filter)) {
        let steps = steps(&page.text);
        let begin = Instant::now();
        let count = steps.iter().filter(|s| matches!(s.kind, Kind::Run | Kind::Server)).count();
        if count == 0 {
            continue;
        }
        match run_page(thalweg, &page.path, &steps) {
            Ok(()) => {
                let elapsed = begin.elapsed().as_secs_f64();
                println!("ok     {} ({count} blocks, {elapsed:.1} s)", page.path);
            }
            Err(error) => {
                println!("FAILED {}: {error:#}", page.path);
                failed.push(page.path.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "shell blocks fail in {}", failed.join(", "));
    Ok(())
}

/// The examples that the blocks run, by name.
pub(crate) fn examples() -> Result<Vec<String>> {
    let files = source::files()?;
    let runs = |step: &Step| step.kind == Kind::Run;
    let mut names = Vec::new();
    for step in documents(&files).flat_map(|page| steps(&page.text)).filter(runs) {
        let after = step.text.split(RUN_EXAMPLE).skip(1);
        names.extend(after.filter_map(|rest| Some(rest.split_whitespace().next()?.to_owned())));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// The shell blocks of a page, and the comments with commands.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for fence in fences(text) {
        let kind = match fence.info.as_str() {
            "sh" => Kind::Run,
            "sh,server" => Kind::Server,
            "sh,norun" => Kind::NotRun,
            _ => continue,
        };
        steps.push(Step { line: fence.line, kind, text: fence.text });
    }
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let kind = match line {
            "<!-- sh" => Kind::Run,
            "<!-- sh,server" => Kind::Server,
            "<!-- sh,cleanup" => Kind::Cleanup,
            _ => continue,
        };
        let text = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "-->");
        let text = text.flat_map(|line| [line, "\n"]).collect();
        steps.push(Step { line: i + 1, kind, text });
    }
    steps.sort_by_key(|step| step.line);
    steps
}

fn run_page(thalweg: &Path, path: &str, steps: &[Step]) -> Result<()> {
    let name = path.replace('/', "-");
    let scratch = Scratch::new(&run::target_dir().join("book-scratch").join(name), thalweg)?;
    let mut server = None;
    let mut done = Ok(());
    for step in steps.iter().filter(|step| step.kind != Kind::Cleanup) {
        done = match step.kind {
            Kind::Run => scratch.run(&step.text),
            Kind::Server => scratch.serve(&step.text, &mut server),
            Kind::NotRun | Kind::Cleanup => Ok(()),
        };
        if done.is_err() {
            done = done.with_context(|| format!("block at line {}", step.line));
            break;
        }
    }
    drop(server);
    for step in steps.iter().filter(|step| step.kind == Kind::Cleanup) {
        done = done.and(scratch.run(&step.text));
    }
    if done.is_ok() {
        std::fs::remove_dir_all(&scratch.folder)?;
    }
    done
}

/// The folder where the blocks of a page run, with the command on their path.
struct Scratch {
    folder: PathBuf,
    /// Each port of the text, and the free port that stands for it.
    ports: Vec<(&'static str, String)>,
}

impl Scratch {
    fn new(folder: &Path, thalweg: &Path) -> Result<Scratch> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder.join(".bin"))?;
        let ports = free_ports(PORTS.len())?.into_iter();
        let ports: Vec<_> = PORTS.into_iter().zip(ports.map(|port| port.to_string())).collect();
        let scratch = Scratch { folder: folder.to_owned(), ports };
        let command = folder.join(".bin/thalweg");
        std::fs::write(&command, scratch.command(thalweg))?;
        let example = folder.join(".bin/example");
        let built = thalweg.with_file_name("examples").display().to_string();
        let run =
            "#!/bin/sh\nname=$1; shift; test \"$1\" != -- || shift\nexec 'BUILT'/$name \"$@\"\n";
        std::fs::write(&example, run.replace("BUILT", &built))?;
        run::check(run::command("chmod", &["+x"]).args([&command, &example]))?;
        Ok(scratch)
    }

    /// `thalweg`, with free ports in place of the default ones.
    fn command(&self, thalweg: &Path) -> String {
        let text = "#!/bin/sh\n\
            case \"$1 $* \" in\n\
            *' --port '* | *' --cluster '* | *' --check '* | *' --help '* | *' --server '*) ;;\n\
            server*) set -- \"$@\" --port 2222 ;;\n\
            serve*) set -- \"$@\" --port 8500 --http-port 8501 ;;\n\
            health*) set -- \"$@\" --server 127.0.0.1:2222 ;;\n\
            esac\n\
            exec 'THALWEG' \"$@\"\n";
        self.with_ports(text).replace("THALWEG", &thalweg.display().to_string())
    }

    fn with_ports(&self, text: &str) -> String {
        self.ports.iter().fold(text.to_owned(), |text, (port, free)| text.replace(port, free))
    }

    /// The shell that runs `text`, in a process group of its own; its output goes to `output`.
    fn shell(&self, text: &str, output: &Path) -> Result<Group> {
        let text = self.with_ports(text).replace(RUN, "thalweg ").replace(RUN_EXAMPLE, "example ");
        // An answer that is an error is no success here.
        let text = format!("curl() {{ command curl --fail-with-body \"$@\"; }}\n{text}");
        let path = std::env::var("PATH").unwrap_or_default();
        let out = Output::create(output)?;
        let child = Command::new("sh")
            .args(["-e", "-c", &text])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.folder.join(".bin").display()))
            .env("REPOSITORY", run::root())
            .env("HOME", &self.folder)
            .env("XDG_STATE_HOME", self.folder.join(".state"))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Group(child))
    }

    /// Runs `text` to its end, which has to be a good one.
    fn run(&self, text: &str) -> Result<()> {
        let output = self.folder.join(".output");
        let mut group = self.shell(text, &output)?;
        let limit = Instant::now() + BLOCK_TIME_MAX;
        let status = loop {
            match group.0.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > limit => {
                    bail!("no end within {} s:\n{}", BLOCK_TIME_MAX.as_secs(), end_of(&output))
                }
                None => std::thread::sleep(POLL),
            }
        };
        ensure!(status.success(), "{status}:\n{}", end_of(&output));
        Ok(())
    }

    /// Starts each command of `text`, which has to listen; the last one is `server` then.
    fn serve(&self, text: &str, server: &mut Option<Group>) -> Result<()> {
        for command in text.replace("\\\n", " ").lines().filter(|line| !line.starts_with('#')) {
            // Its ports are those of the next one.
            drop(server.take());
            let output = self.folder.join(".server-output");
            let mut group = self.shell(command, &output)?;
            let limit = Instant::now() + START_TIME_MAX;
            while !std::fs::read_to_string(&output)?.contains("istening on ") {
                if let Some(status) = group.0.try_wait()? {
                    bail!("'{command}': {status}:\n{}", end_of(&output));
                }
                ensure!(
                    Instant::now() < limit,
                    "'{command}' does not listen:\n{}",
                    end_of(&output)
                );
                std::thread::sleep(POLL);
            }
            *server = Some(group);
        }
        Ok(())
    }
}

/// A shell with all that it started, which ends when this is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = self.0.id();
        let signal = |name: &str| is_sent(name, group);
        signal("-TERM");
        let limit = Instant::now() + Duration::from_secs(10);
        while signal("-0") && Instant::now() < limit {
            // Its process is there until it was waited for.
            let _ = self.0.try_wait();
            std::thread::sleep(POLL);
        }
        signal("-KILL");
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process group; whether there is one.
fn is_sent(signal: &str, group: u32) -> bool {
    run::succeeds(&mut run::command("sh", &["-c", &format!("kill {signal} -{group}")]))
}

/// The last lines that a block printed.
fn end_of(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Ports that are free now, all different.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let bind = |_| std::net::TcpListener::bind(("127.0.0.1", 0));
    let listeners = (0..count).map(bind).collect::<std::io::Result<Vec<_>>>()?;
    let port = |listener: &std::net::TcpListener| Ok(listener.local_addr()?.port());
    listeners.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn steps_come_in_the_order_of_the_page() {
        let text = "<!-- sh\ntouch a\n-->\n```sh\nls a\n```\n<!-- other -->\n```sh,server\nx\n```\n\
            <!-- sh,cleanup\nrm a\n-->\n```sh,norun\ny\n```\n";
        let found: Vec<_> = steps(text).into_iter().map(|s| (s.line, s.kind, s.text)).collect();
        let expected = [
            (1, Kind::Run, "touch a\n"),
            (4, Kind::Run, "ls a\n"),
            (8, Kind::Server, "x\n"),
            (11, Kind::Cleanup, "rm a\n"),
            (14, Kind::NotRun, "y\n"),
        ];
        let expected = expected.map(|(line, kind, text)| (line, kind, text.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_block_that_is_left_out_without_a_reason_is_found() {
        let problems = exceptions_are_needed(&[file("README.md", "```sh,norun\nsleep 9\n```\n")]);
        assert_eq!(problems.len(), NOT_RUN.len() + 1, "{problems:#?}");
        assert!(problems[0].starts_with("README.md:1: say in"));
    }

    #[test]
    fn a_block_that_fails_is_told_with_its_output() {
        let folder = run::target_dir().join(format!("book-test-{}", std::process::id()));
        let scratch = Scratch::new(&folder, Path::new("thalweg")).unwrap();
        let error = scratch.run("echo before; false; echo after").unwrap_err().to_string();
        assert!(error.contains("before") && !error.contains("after"), "{error}");
        scratch.run("test -d .bin && test \"$HOME\" = \"$PWD\"").unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn servers_end_with_their_page() {
        let folder = run::target_dir().join(format!("book-servers-{}", std::process::id()));
        let scratch = Scratch::new(&folder, Path::new("thalweg")).unwrap();
        let mut server = None;
        let text = "echo listening on 1; sleep 60 & wait\n# none\necho listening on 2; sleep 60\n";
        scratch.serve(text, &mut server).unwrap();
        let group = server.as_ref().unwrap().0.id();
        drop(server);
        assert!(!is_sent("-0", group));
        assert!(scratch.serve("exit 3\n", &mut None).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
