//! Measures what a slow worker costs in each coordination mode:
//! `cargo run --release -p thalweg-train --example coordination -- FOLDER SECONDS`.
//!
//! Writes `coordination.csv` (the course of each training) and `coordination-rates.csv` (what came of
//! it) to the folder. `docs/src/concepts/experiments/plot.py` draws them.
#![allow(clippy::disallowed_methods, reason = "an experiment has threads and time of its own")]

mod race;

use std::fmt::Write;
use std::time::Duration;

use race::{Point, Race};
use thalweg_train::Mode;

const WORKERS: usize = 5;
const MODES: [(&str, Mode); 4] = [
    ("async", Mode::Async),
    ("sync", Mode::Sync { order: thalweg_train::Order::Arrival }),
    ("backup", Mode::Backup { spare: 1 }),
    ("stale", Mode::Stale { bound: 4 }),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "docs/src/concepts/experiments".into());
    let seconds: u64 = args.next().map_or(Ok(30), |text| text.parse())?;
    let mut course = String::from("mode,slowness,seconds,updates,used,dropped,loss\n");
    let mut rates = String::from(
        "mode,slowness,seconds,updates_per_second,gradients_per_second,dropped_share,loss\n",
    );
    for slowness in [1, 4] {
        for (name, mode) in MODES {
            let race = Race {
                mode,
                workers: WORKERS,
                pace: Duration::from_millis(100),
                slowness,
                length: Duration::from_secs(seconds),
                interval: Duration::from_millis(500),
            };
            let points = race.run()?;
            for p in &points {
                let Point { seconds, updates, used, dropped, loss } = p;
                writeln!(
                    course,
                    "{name},{slowness},{seconds:.2},{updates},{used},{dropped},{loss:.4}"
                )?;
            }
            let row = summary(&points);
            println!("{name:7} x{slowness}  {row}");
            writeln!(rates, "{name},{slowness},{row}")?;
        }
    }
    std::fs::write(format!("{folder}/coordination.csv"), course)?;
    std::fs::write(format!("{folder}/coordination-rates.csv"), rates)?;
    Ok(())
}

/// Seconds, changes and used gradients per second, the share that was dropped, the last loss.
fn summary(points: &[Point]) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let seconds = last.seconds - first.seconds;
    let updates = (last.updates - first.updates) as f64 / seconds;
    let (used, dropped) = (last.used - first.used, last.dropped - first.dropped);
    let gradients = used as f64 / seconds;
    let share = dropped as f64 / (used + dropped).max(1) as f64;
    format!("{seconds:.1},{updates:.2},{gradients:.2},{share:.3},{:.4}", last.loss)
}
