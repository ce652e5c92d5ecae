//! Our peer of the benchmarks: speaks the line protocol of `benches/peers/README.md` on stdin and
//! stdout, and runs each row on an in-process session. The optimizer is off except in training
//! rows.

mod build;
mod input;
mod kernels;
mod loops;
mod peak;
mod protocol;
mod rows;
mod train;

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
    protocol::serve(prepare, Prepared::run, |_| "nothing".to_owned());
}

impl Prepared {
    fn run(&mut self, count: u64) -> Result<()> {
        match self {
            Prepared::Step(step) => step.run(count),
            Prepared::Peak(peak) => {
                peak.run(count);
                Ok(())
            }
            Prepared::Events(events) => events.run(count),
            Prepared::Build(build) => build.run(count),
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
            assert!(
                protocol::timed(Some(&mut ready), "3", Prepared::run).parse::<f64>().unwrap() > 0.0,
                "{row}"
            );
        }
        assert!(prepare("nothing/like/that").is_err());
        assert!(protocol::timed(None, "3", Prepared::run).starts_with("absent"));
    }
}
