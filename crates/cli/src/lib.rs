//! The `thalweg` command: one module per subcommand, and the `main` that they share.
//!
//! A program with custom ops calls [`main_with`] with their families and gets a `thalweg` command
//! that knows them.

mod accelerator;
pub mod calibrate;
pub mod check;
pub mod checkpoint;
pub mod cluster;
pub mod completions;
pub mod dashboard;
mod descriptors;
pub mod devices;
pub mod events;
mod files;
mod graph_file;
pub mod health;
mod help;
pub mod inspect;
pub mod launch;
mod literal;
mod logging;
pub mod man;
mod model;
mod names;
mod number;
pub mod ops;
mod orphans;
mod output;
mod ports;
mod prune;
pub mod quickstart;
pub mod run;
pub mod serve;
pub mod server;
pub mod simulate;
mod step;
mod supervise;
pub mod tfrecord;
mod value;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use thalweg_kernel::Family;
pub use thalweg_ops::Registry;
use thalweg_tensor::{Error, Result};

/// Run, train and serve TensorFlow graphs and SavedModels on one machine or a cluster.
#[derive(Parser)]
#[command(name = "thalweg", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    logging: logging::Args,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Calibrate(calibrate::Args),
    Check(check::Args),
    Checkpoint(checkpoint::Args),
    Cluster(cluster::Args),
    Completions(completions::Args),
    Dashboard(dashboard::Args),
    Devices(devices::Args),
    Events(events::Args),
    Health(health::Args),
    Inspect(inspect::Args),
    Launch(launch::Args),
    Man(man::Args),
    Ops(ops::Args),
    Quickstart(quickstart::Args),
    Run(run::Args),
    Serve(Box<serve::Args>),
    Server(server::Args),
    Simulate(simulate::Args),
    Tfrecord(tfrecord::Args),
}

/// The `main` of a `thalweg` command that knows `families` besides the built-in ones. The exit code
/// is 0 on success, 1 on failure, 2 for invalid arguments, and that of the program for `launch`.
pub fn main_with(families: &[&Family]) -> ExitCode {
    let parsed = help::parser().try_get_matches();
    let cli = match parsed.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches)) {
        Ok(cli) => cli,
        Err(refusal) => {
            let _ = refusal.print();
            return ExitCode::from(if refusal.use_stderr() { 2 } else { 0 });
        }
    };
    let failures = match logging::start(&cli.logging) {
        Ok(failures) => failures,
        Err(sentence) => {
            eprintln!("thalweg: {sentence}");
            return ExitCode::from(2);
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let result = carry_out(&cli.command, families, &mut out);
    let result = result.and_then(|()| Ok(out.flush()?));
    let Err(failure) = result else { return ExitCode::SUCCESS };
    let _ = out.flush();
    match failure {
        Failure::Usage(sentence) => {
            failures.report(&sentence);
            ExitCode::from(2)
        }
        Failure::Failed(error) => {
            failures.report(&error);
            ExitCode::FAILURE
        }
        Failure::Exit(code) => ExitCode::from(code),
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Failure::Output(error) => {
            failures.report(&format_args!("the output could not be written: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. The registry is built only for commands that need it.
fn carry_out(command: &Command, families: &[&Family], out: &mut dyn Write) -> Result<(), Failure> {
    let registry = || Registry::with_families(families);
    match command {
        Command::Calibrate(args) => calibrate::run(args, &registry()?, out),
        Command::Check(args) => check::run(args, &registry()?, out),
        Command::Checkpoint(args) => checkpoint::run(args, out),
        Command::Cluster(args) => cluster::run(args, out),
        Command::Completions(args) => completions::run(args, out),
        Command::Dashboard(args) => dashboard::run(args, &registry()?, out),
        Command::Devices(args) => devices::run(args, out),
        Command::Events(args) => events::run(args, out),
        Command::Health(args) => health::run(args, out),
        Command::Inspect(args) => inspect::run(args, out),
        Command::Launch(args) => launch::run(args, out),
        Command::Man(args) => man::run(args, out),
        Command::Ops(args) => ops::run(args, &registry()?, out),
        Command::Quickstart(args) => quickstart::run(args, &registry()?, out),
        Command::Run(args) => run::run(args, &registry()?, out),
        Command::Serve(args) => serve::run(args, &registry()?, out),
        Command::Server(args) => server::run(args, &registry()?, out),
        Command::Simulate(args) => simulate::run(args, &registry()?, out),
        Command::Tfrecord(args) => tfrecord::run(args, out),
    }
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Invalid arguments, with a message.
    Usage(String),
    /// The command failed.
    Failed(Error),
    /// The output could not be written.
    Output(io::Error),
    /// A program that the command ran has failed, with this exit code.
    Exit(u8),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}
