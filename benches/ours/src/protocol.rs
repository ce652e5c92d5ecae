//! The line protocol of peers (`benches/peers/README.md`), on stdin and stdout.

use std::io::{BufRead, Write};
use std::time::Instant;

use thalweg_tensor::Result;

/// Answers commands until the input ends: `prepare` makes a row and says how much work a run is, `run`
/// runs it this many times, `report` says in words what else is known of it.
pub(crate) fn serve<Row>(
    prepare: impl Fn(&str) -> Result<(f64, Row)>,
    run: impl Fn(&mut Row, u64) -> Result<()>,
    report: impl Fn(&Row) -> String,
) {
    let mut prepared: Option<Row> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let answer = match line.split_once(' ') {
            Some(("prepare", name)) => {
                // Caches of the previous row must not affect this one.
                drop(prepared.take());
                match prepare(name) {
                    Ok((units, row)) => {
                        prepared = Some(row);
                        format!("ready {units}")
                    }
                    Err(e) => format!("absent {}", e.to_string().replace('\n', " ")),
                }
            }
            Some(("run", count)) => timed(prepared.as_mut(), count, &run),
            _ if line == "report" => prepared.as_ref().map(&report).unwrap_or_default(),
            _ if line == "quit" => return,
            _ => format!("absent unknown command {line:?}"),
        };
        println!("{answer}");
        if std::io::stdout().flush().is_err() {
            return;
        }
    }
}

/// Wall time of `count` runs in seconds, as text.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn timed<Row>(
    row: Option<&mut Row>,
    count: &str,
    run: impl Fn(&mut Row, u64) -> Result<()>,
) -> String {
    let (Some(row), Ok(count)) = (row, count.trim().parse::<u64>()) else {
        return "absent nothing is prepared, or the count is not a number".into();
    };
    let start = Instant::now();
    match run(row, count) {
        Ok(()) => format!("{:.9}", start.elapsed().as_secs_f64()),
        Err(e) => format!("absent {e}"),
    }
}
