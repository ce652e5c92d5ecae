//! Our side of the benchmarks: speaks the line protocol of `benches/peers/README.md` on stdin and
//! stdout, and runs each row on an in-process session with the optimizer off.

mod rows;

use std::io::{BufRead, Write};
use std::time::Instant;

use thalweg_runtime::Callable;
use thalweg_tensor::{Result, Tensor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A row that can run.
struct Prepared {
    /// Held for what it keeps: state, plans.
    _session: thalweg_runtime::Session,
    callable: Callable,
    feeds: Vec<Tensor>,
}

fn main() {
    let mut prepared: Option<Prepared> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let answer = match line.split_once(' ') {
            Some(("prepare", row)) => match prepare(row) {
                Ok((units, ready)) => {
                    prepared = Some(ready);
                    format!("ready {units}")
                }
                Err(e) => format!("absent {}", e.to_string().replace('\n', " ")),
            },
            Some(("run", count)) => run(prepared.as_ref(), count),
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
    let row = rows::build(name)?;
    // The peers count the nodes they ran; so do we, besides what feeds and joins them.
    if let Some(nodes) = row.nodes {
        let feeds: Vec<&str> = row.feeds.iter().map(|(n, _)| n.as_str()).collect();
        let fetches: Vec<&str> = row.fetches.iter().map(String::as_str).collect();
        let targets: Vec<&str> = row.targets.iter().map(String::as_str).collect();
        let planned = row.session.planned_nodes(&feeds, &fetches, &targets)?;
        thalweg_tensor::ensure!(
            planned >= nodes,
            Internal,
            "{planned} nodes are planned, the row has {nodes}"
        );
    }
    let names: Vec<&str> = row.feeds.iter().map(|(n, _)| n.as_str()).collect();
    let fetches: Vec<&str> = row.fetches.iter().map(String::as_str).collect();
    let targets: Vec<&str> = row.targets.iter().map(String::as_str).collect();
    let callable = row.session.make_callable(&names, &fetches, &targets)?;
    let feeds: Vec<Tensor> = row.feeds.iter().map(|(_, t)| t.clone()).collect();
    for _ in 0..30 {
        callable.call(&feeds)?;
    }
    Ok((row.units, Prepared { _session: row.session, callable, feeds }))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn run(prepared: Option<&Prepared>, count: &str) -> String {
    let (Some(row), Ok(count)) = (prepared, count.trim().parse::<u64>()) else {
        return "absent nothing is prepared, or the count is not a number".into();
    };
    let start = Instant::now();
    for _ in 0..count {
        if let Err(e) = row.callable.call(&row.feeds) {
            return format!("absent {e}");
        }
    }
    format!("{:.9}", start.elapsed().as_secs_f64())
}
