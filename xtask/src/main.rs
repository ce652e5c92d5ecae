//! Everything that CI does: `cargo xtask test`, and the parts of it one by one.
#![expect(clippy::disallowed_methods, reason = "this program times what it starts")]

mod api;
mod bench;
mod book;
mod docs;
mod programs;
mod run;
mod size;
mod source;
mod test;
mod tidy;
mod valgrind;
mod venv;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--all] [PART ...]
                      everything CI runs, with the time of each part; --all adds the long suites;
                      with names, only those parts
  tidy                what a program can check of the rules in ARCHITECTURE.md
  docs [--check]      write the generated parts of docs/, check the book and make its site (mdbook, if
                      installed); or only say whether all is fresh and right
  book [--program FILE] [PAGE]
                      run the shell blocks of the book, or of pages whose path has PAGE in it; with
                      this thalweg command instead of one that is built first
  api [--check]       write the typed functions of crates/api/src/tf, or only say whether they are fresh
  size                lines by crate, the longest files and functions
  bench [--filter X] [--json FILE] [--venv DIR] [--rounds N] [--list]
                      this program beside TensorFlow and PyTorch, interleaved
  bench server [--rounds N] [--json FILE] [--large]
                      TensorFlow's client with a server of ours, with TensorFlow's, and with one that
                      does nothing
  bench checkpoints [--megabytes N] [--rounds N] [--folder DIR] [--json FILE]
                      saving and restoring on a server of ours, on TensorFlow's, and the disk
  bench transfer [--rounds N] [--json FILE] [--large]
                      tensors from a worker to a parameter server: ours, TensorFlow's, bare sockets
  bench steps [--rounds N] [--only ROW] [--large] [--json FILE]
                      small steps of a cluster of ours and of TensorFlow's
  bench serving [latency | reload] [--rounds N] [--seconds S] [--json FILE]
                      requests to a model server, and to one that only sends them back; what one
                      caller waits, beside TensorFlow in process; a large model replaced under load";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let Some((command, rest)) = args.split_first() else { bail!("no command\n\n{USAGE}") };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (command.as_str(), &rest[..]) {
        ("help" | "--help" | "-h", _) | (_, ["--help" | "-h", ..]) => {
            println!("{USAGE}");
            Ok(())
        }
        ("test", ["--all", parts @ ..]) => test::run(true, parts),
        ("test", parts) => test::run(false, parts),
        ("tidy", []) => tidy::run(),
        ("docs", []) => docs::write(),
        ("docs", ["--check"]) => docs::check(),
        ("book", ["--program", program]) => book::shell::run(Path::new(program), ""),
        ("book", ["--program", program, page]) => book::shell::run(Path::new(program), page),
        ("book", []) => test::run_book(""),
        ("book", [page]) => test::run_book(page),
        ("api", []) => api::write(),
        ("api", ["--check"]) => api::check(),
        ("size", []) => size::run(),
        ("bench", ["server", options @ ..]) => bench::server(options),
        ("bench", ["checkpoints", options @ ..]) => bench::checkpoints(options),
        ("bench", ["transfer", options @ ..]) => bench::transfer(options),
        ("bench", ["steps", options @ ..]) => bench::steps(options),
        ("bench", ["serving", options @ ..]) => bench::serving(options),
        ("bench", options) => bench::run(options),
        _ => bail!("'{}' is not a command\n\n{USAGE}", args.join(" ")),
    }
}
