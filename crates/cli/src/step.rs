//! One step of a session as the command line describes it: run, printed, saved.

use std::io::Write;
use std::path::Path;

use thalweg_cluster::RemoteSession;
use thalweg_kernel::Environment;
use thalweg_runtime::{RunMetadata, RunOptions, Session, system_environment};
use thalweg_sim::{Summary, measured};
use thalweg_tensor::{Code, Context, Error, Result, Tensor, npy};

use crate::cluster::trace::write_timeline;
use crate::run::Args;
use crate::{Failure, files, output};

/// A local or remote session.
pub(crate) enum AnySession<'a> {
    Local(&'a Session),
    Remote(&'a RemoteSession),
}

/// The step of the arguments, checked against the graph.
pub(crate) struct Step<'a> {
    pub(crate) feeds: Vec<(&'a str, Tensor)>,
    /// The fetches: those to print first, then those that are only saved.
    fetches: Vec<Fetch<'a>>,
    shown: usize,
    pub(crate) targets: Vec<&'a str>,
    /// The files of fetches.
    saves: Vec<(usize, &'a Path)>,
}

/// A tensor, and its name in the output.
#[derive(PartialEq, Eq)]
struct Fetch<'a> {
    label: &'a str,
    tensor: &'a str,
}

impl<'a> Step<'a> {
    /// An empty step.
    pub(crate) fn new(args: &Args) -> Result<Step<'a>> {
        if let Some(path) = &args.trace {
            files::check_writable(path).context(|| "--trace")?;
        }
        let (feeds, fetches, targets, saves) = Default::default();
        Ok(Step { feeds, fetches, shown: 0, targets, saves })
    }

    /// Fetches a tensor and prints it under `label`; called before `save`.
    pub(crate) fn show(&mut self, label: &'a str, tensor: &'a str) {
        self.fetch(label, tensor);
        self.shown = self.fetches.len();
    }

    /// Fetches a tensor and writes it to a file.
    pub(crate) fn save(&mut self, label: &'a str, tensor: &'a str, path: &'a Path) -> Result<()> {
        files::check_writable(path).context(|| "--save")?;
        let position = self.fetch(label, tensor);
        self.saves.push((position, path));
        Ok(())
    }

    /// The index of a tensor among the fetches, to which it is added if necessary.
    fn fetch(&mut self, label: &'a str, tensor: &'a str) -> usize {
        let fetch = Fetch { label, tensor };
        let known = self.fetches.iter().position(|f| *f == fetch);
        known.unwrap_or_else(|| {
            self.fetches.push(fetch);
            self.fetches.len() - 1
        })
    }

    /// Runs the step, then prints and saves the results.
    pub(crate) fn run_and_write(
        &self,
        args: &Args,
        session: &AnySession<'_>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut done = self.run(args, session, &system_environment())?;
        for &(fetch, path) in &self.saves {
            let content = npy::write(&done.tensors[fetch])
                .context(|| format!("--save {}", path.display()))?;
            files::write(path, &content)?;
        }
        if let Some(path) = &args.trace {
            let timeline = measured(&done.metadata);
            write_timeline(path, &timeline)?;
            done.trace = Some(Summary::of(&timeline).to_json());
            if !args.json {
                eprint!("{}", Summary::of(&timeline));
            }
        }
        if args.json { done.write_json(self, out) } else { done.write_text(self, out) }
    }

    fn run(
        &self,
        args: &Args,
        session: &AnySession<'_>,
        environment: &Environment,
    ) -> Result<StepResult> {
        let plain = RunOptions { timeout: args.timeout, ..Default::default() };
        for init in &args.inits {
            session.run_with(&plain, &self.feeds, &[], &[init]).context(|| "--init")?;
        }
        let call = self.prepared(session)?;
        let mut done = StepResult::default();
        for step in 0..args.repeat {
            let trace = args.trace.is_some() && step + 1 == args.repeat;
            let start = environment.clock.monotonic();
            let result = call(&RunOptions { trace, ..plain.clone() });
            done.seconds.push((environment.clock.monotonic() - start).as_secs_f64());
            (done.tensors, done.metadata) =
                result.map_err(|e| self.with_advice(e, args, session))?;
        }
        Ok(done)
    }

    /// The step as a function that can be called repeatedly.
    fn prepared<'s>(&'s self, session: &'s AnySession<'_>) -> Result<Box<Call<'s>>> {
        let fetches: Vec<&str> = self.fetches.iter().map(|f| f.tensor).collect();
        let session = match session {
            AnySession::Local(session) => session,
            AnySession::Remote(_) => {
                let run = move |options: &RunOptions| {
                    session.run_with(options, &self.feeds, &fetches, &self.targets)
                };
                return Ok(Box::new(run));
            }
        };
        let names: Vec<&str> = self.feeds.iter().map(|(name, _)| *name).collect();
        let values: Vec<Tensor> = self.feeds.iter().map(|(_, value)| value.clone()).collect();
        let callable = session.make_callable(&names, &fetches, &self.targets)?;
        Ok(Box::new(move |options| callable.call_with(options, &values)))
    }

    /// Adds advice about flags to an error.
    fn with_advice(&self, error: Error, args: &Args, session: &AnySession<'_>) -> Error {
        let AnySession::Local(session) = session else { return error };
        let init = session.with_graph(|g| g.find("init").is_some());
        if error.code() != Code::FailedPrecondition || !args.inits.is_empty() || !init {
            return error;
        }
        error.map_message(|m| format!("{m}; the graph has a node 'init': try --init init"))
    }
}

/// Runs a step.
type Call<'a> = dyn Fn(&RunOptions) -> Result<(Vec<Tensor>, RunMetadata)> + 'a;

impl AnySession<'_> {
    pub(crate) fn run_with(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, RunMetadata)> {
        match self {
            AnySession::Local(session) => session.run_with(options, feeds, fetches, targets),
            AnySession::Remote(session) => session.run_with(options, feeds, fetches, targets),
        }
    }
}

/// The result of a step.
#[derive(Default)]
struct StepResult {
    tensors: Vec<Tensor>,
    metadata: RunMetadata,
    /// What the time of the traced step went into.
    trace: Option<serde_json::Value>,
    /// The durations of the steps.
    seconds: Vec<f64>,
}

impl StepResult {
    fn sorted_seconds(&self) -> Vec<f64> {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn shown<'a>(&'a self, step: &'a Step<'_>) -> impl Iterator<Item = (&'a str, &'a Tensor)> {
        step.fetches.iter().map(|f| f.label).zip(&self.tensors).take(step.shown)
    }

    fn write_text(&self, step: &Step<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        for (name, tensor) in self.shown(step) {
            writeln!(out, "{name}: {} {}", tensor.dtype(), tensor.shape())?;
            writeln!(out, "{}", output::show(tensor)?)?;
        }
        for (fetch, path) in &step.saves {
            let (name, tensor) = (step.fetches[*fetch].label, &self.tensors[*fetch]);
            writeln!(out, "{name}: {} {} in {}", tensor.dtype(), tensor.shape(), path.display())?;
        }
        if let [fastest, .., slowest] = self.sorted_seconds()[..] {
            let median = self.sorted_seconds()[self.seconds.len() / 2];
            writeln!(
                out,
                "{} steps: median {:.1} us, minimum {:.1}, maximum {:.1}",
                self.seconds.len(),
                median * 1e6,
                fastest * 1e6,
                slowest * 1e6
            )?;
        }
        Ok(())
    }

    fn write_json(&self, step: &Step<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        out.write_all(b"{\"fetches\":{")?;
        for (i, (name, tensor)) in self.shown(step).enumerate() {
            out.write_all(if i == 0 { b"" } else { b"," })?;
            write!(out, "{}:", serde_json::Value::from(name))?;
            output::write_json(tensor, out)?;
        }
        let sorted = self.sorted_seconds();
        write!(out, "}},\"seconds\":{}", sorted[sorted.len() / 2])?;
        if let [fastest, .., slowest] = sorted[..] {
            write!(out, ",\"steps\":{},\"fastest\":{fastest},\"slowest\":{slowest}", sorted.len())?;
        }
        if let Some(trace) = &self.trace {
            write!(out, ",\"trace\":{trace}")?;
        }
        writeln!(out, "}}")?;
        Ok(())
    }
}
