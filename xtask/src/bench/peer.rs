//! A process that speaks the lines of `benches/peers/README.md`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A running peer.
pub(super) struct Peer {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What `prepare` is answered with.
pub(super) enum Answer {
    /// The work in one run.
    Ready(f64),
    /// Why the row cannot be run.
    Absent(String),
}

impl Peer {
    /// Starts the program; its notices go to `log`, graphs of rows lie in `graphs`.
    pub(super) fn start(
        name: &str,
        program: &Path,
        args: &[&Path],
        log: &Path,
        graphs: &Path,
    ) -> Result<Peer> {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .env("TF_CPP_MIN_LOG_LEVEL", "2")
            .env("THALWEG_BENCH_GRAPHS", graphs)
            .spawn()
            .with_context(|| format!("cannot start the {name} peer, {}", program.display()))?;
        let input = child.stdin.take().context("stdin was piped")?;
        let output = BufReader::new(child.stdout.take().context("stdout was piped")?);
        Ok(Peer { name: name.to_owned(), child, input, output })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.input, "{line}").with_context(|| format!("the {} peer ended", self.name))?;
        let mut answer = String::new();
        let read = self.output.read_line(&mut answer)?;
        if read == 0 {
            bail!("the {} peer ended at '{line}'", self.name);
        }
        Ok(answer.trim().to_owned())
    }

    pub(super) fn prepare(&mut self, row: &str) -> Result<Answer> {
        let answer = self.ask(&format!("prepare {row}"))?;
        match answer.split_once(' ') {
            Some(("ready", units)) => Ok(Answer::Ready(units.parse().context("units")?)),
            Some(("absent", why)) => Ok(Answer::Absent(why.to_owned())),
            _ => bail!("the {} peer answered {answer:?} to 'prepare {row}'", self.name),
        }
    }

    /// Seconds that this many runs took, by the peer's own clock.
    pub(super) fn time(&mut self, runs: u64) -> Result<f64> {
        let answer = self.ask(&format!("run {runs}"))?;
        answer
            .parse()
            .with_context(|| format!("the {} peer answered {answer:?} to 'run {runs}'", self.name))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Writing fails if the peer has ended already.
        if writeln!(self.input, "quit").is_err() || self.child.wait().is_err() {
            eprintln!("the {} peer ended early", self.name);
        }
    }
}
