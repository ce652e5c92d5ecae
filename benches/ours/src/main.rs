//! Our peer of the benchmarks: speaks the line protocol of `benches/peers/README.md` on stdin and
//! stdout, and runs each row on an in-process session. The optimizer is off except in training
//! rows.

mod build;
mod input;
mod kernels;
mod loops;
mod peak;
mod rows;
mod train;

use std::io::{BufRead, Write};
use std::time::Instant;

use build::Build;
use input::Events;
use peak::Peak;
use rows::Row;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Result, Tensor, ensure};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A row that can run.
enum Prepared {
    /// A step of a session.
    Step(Step),
    /// A bound of the machine's performance.
    Peak(Peak),
    /// An event file read for its numbers.
    Events(Events),
    /// A graph that is built.
    Build(Build),
}

fn main() {
    let mut prepared: Option<Prepared> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let answer = match line.split_once(' ') {
            Some(("prepare", row)) => {
                // Caches of the previous row must not affect this one.
                drop(prepared.take());
                match prepare(row) {
                    Ok((units, ready)) => {
                        prepared = Some(ready);
                        format!("ready {units}")
                    }
                    Err(e) => format!("absent {}", e.to_string().replace('\n', " ")),
                }
            }
            Some(("run", count)) => run(prepared.as_mut(), count),
            _ if line == "quit" => return,
            _ => format!("absent unknown command {line:?}"),
        };
        println!("{answer}");
        if std::io::stdout().flush().is_err() {
            return;
        }
    }
}

fn prepare(name: &str) -> Result<(f64, Prepared)> {
    let (base, threads) = split_threads(name);
    if let Some(peak) = Peak::new(base, threads) {
        return Ok((peak.units(), Prepared::Peak(peak)));
    }
    if let Some(events) = Events::new(base) {
        return Ok((Events::UNITS, Prepared::Events(events?)));
    }
    if let Some(build) = Build::new(base) {
        build.run(1)?;
        return Ok((Build::UNITS, Prepared::Build(build)));
    }
    let step = Step::new(rows::build(base, threads)?)?;
    Ok((step.row.units, Prepared::Step(step)))
}

/// Splits the thread count off a row's name: `.../2t` is 2, no suffix is 1.
fn split_threads(name: &str) -> (&str, usize) {
    match name.rsplit_once('/') {
        Some((base, "1t")) => (base, 1),
        Some((base, "2t")) => (base, 2),
        _ => (name, 1),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn run(prepared: Option<&mut Prepared>, count: &str) -> String {
    let (Some(row), Ok(count)) = (prepared, count.trim().parse::<u64>()) else {
        return "absent nothing is prepared, or the count is not a number".into();
    };
    let start = Instant::now();
    let result = match row {
        Prepared::Step(step) => step.run(count),
        Prepared::Peak(peak) => {
            peak.run(count);
            Ok(())
        }
        Prepared::Events(events) => events.run(count),
        Prepared::Build(build) => build.run(count),
    };
    match result {
        Ok(()) => format!("{:.9}", start.elapsed().as_secs_f64()),
        Err(e) => format!("absent {e}"),
    }
}

/// A row with a warmed-up session.
struct Step {
    row: Row,
}

impl Step {
    fn new(row: Row) -> Result<Step> {
        let step = Step { row };
        if let Some(init) = &step.row.init {
            step.row.session.run(&[], &[], &[init])?;
        }
        step.run(step.row.warm_up)?;
        // The peers count the nodes they run; so do we, plus the feeds and joins.
        if let Some(nodes) = step.row.nodes {
            let executed = step.executed()?;
            ensure!(executed >= nodes, Internal, "{executed} of {nodes} nodes were executed");
        }
        Ok(step)
    }

    fn feeds(&self) -> Vec<(&str, Tensor)> {
        self.row.feeds.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
    }

    /// Calls `Session::run` with names, as the peers call TensorFlow's.
    fn run(&self, count: u64) -> Result<()> {
        let (fetches, targets) = (names(&self.row.fetches), names(&self.row.targets));
        let feeds = self.feeds();
        for _ in 0..count {
            self.row.session.run(&feeds, &fetches, &targets)?;
        }
        Ok(())
    }

    /// Number of nodes that one traced step ran.
    fn executed(&self) -> Result<usize> {
        let (fetches, targets) = (names(&self.row.fetches), names(&self.row.targets));
        let options = RunOptions { trace: true, ..RunOptions::default() };
        let (_, metadata) =
            self.row.session.run_with(&options, &self.feeds(), &fetches, &targets)?;
        Ok(metadata.nodes.len())
    }
}

fn names(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts() {
        assert_eq!(split_threads("a/b/2t"), ("a/b", 2));
        assert_eq!(split_threads("matmul/f32/256"), ("matmul/f32/256", 1));
    }

    #[test]
    fn rows_are_prepared_and_run() {
        for (row, units) in [("session/no_op", 1.0), ("dispatch/identity_chain_10k/2t", 1e4)] {
            let (said, mut ready) = prepare(row).unwrap();
            assert_eq!(said, units, "{row}");
            assert!(run(Some(&mut ready), "3").parse::<f64>().unwrap() > 0.0, "{row}");
        }
        assert!(prepare("nothing/like/that").is_err());
        assert!(run(None, "3").starts_with("absent"));
    }
}
