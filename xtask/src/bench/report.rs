//! Medians, ratios and spread; the table and the JSON rows.

use std::fmt::Write;

use super::rows::Unit;

/// Whose results are shown, ours first.
pub(super) const COLUMNS: [&str; 4] = ["ours", "tensorflow", "pytorch", "tensorboard"];

/// What was measured.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) unit: Unit,
    /// Work in one run.
    pub(super) units: f64,
    /// What the machine could do at best.
    pub(super) limit: Option<f64>,
    /// The ratio that is aimed at.
    pub(super) target: Option<f64>,
}

/// A row's results.
pub(super) struct Measured {
    row: Row,
    /// In the row's unit; `None` where a peer has no such row.
    medians: [Option<f64>; COLUMNS.len()],
    /// How many times faster ours is than the better peer, round by round: the median.
    ratio: Option<f64>,
    /// The quarter and three-quarter points of the rounds' ratios.
    spread: Option<(f64, f64)>,
    absent: Vec<String>,
}

impl Measured {
    /// From seconds per run, by peer and round.
    pub(super) fn new(
        row: Row,
        seconds: &[Vec<f64>; COLUMNS.len()],
        absent: Vec<String>,
    ) -> Measured {
        let medians = seconds
            .each_ref()
            .map(|s| quantile(s, 0.5).map(|median| row.unit.show(row.units, median)));
        let [ours, others @ ..] = seconds;
        let median = |s: &&Vec<f64>| quantile(s, 0.5).unwrap_or(f64::INFINITY);
        let better = others.iter().min_by(|a, b| median(a).total_cmp(&median(b)));
        let ratios: Vec<f64> =
            ours.iter().zip(better.into_iter().flatten()).map(|(o, p)| p / o).collect();
        let ratio = quantile(&ratios, 0.5);
        let spread = quantile(&ratios, 0.25).zip(quantile(&ratios, 0.75));
        Measured { row, medians, ratio, spread, absent }
    }

    /// The result in a line, as it comes in.
    pub(super) fn line(&self) -> String {
        let mut line = String::new();
        for (name, median) in COLUMNS.iter().zip(self.medians) {
            if let Some(median) = median {
                let _ = write!(line, "{name} {}  ", number(median));
            }
        }
        let _ = write!(line, "{}", self.row.unit.name());
        for why in &self.absent {
            let _ = write!(line, "  ({why})");
        }
        line
    }
}

/// Linear between the two nearest; `None` of nothing.
fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = at * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    Some(low + (high - low) * position.fract())
}

/// Three or four digits that count.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

pub(super) fn print_table(rows: &[Measured]) {
    println!(
        "{:32} {:11} {:>9} {:>10} {:>9} {:>11} {:>7}  {:13} {:>8} {:>6}",
        "row",
        "unit",
        "ours",
        "tensorflow",
        "pytorch",
        "tensorboard",
        "ratio",
        "spread",
        "limit",
        "target"
    );
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), number);
    for m in rows {
        let [ours, tensorflow, pytorch, tensorboard] = m.medians.map(cell);
        let ratio = m.ratio.map_or("-".to_owned(), |r| format!("{r:.2}x"));
        let spread = m.spread.map_or("-".to_owned(), |(a, b)| format!("{a:.2}-{b:.2}"));
        let target = m.row.target.map_or("-".to_owned(), |t| format!("{}x", number(t)));
        println!(
            "{:32} {:11} {ours:>9} {tensorflow:>10} {pytorch:>9} {tensorboard:>11} {ratio:>7}  \
             {spread:13} {:>8} {target:>6}",
            m.row.name,
            m.row.unit.name(),
            cell(m.row.limit)
        );
    }
    println!(
        "\nmedians; ratio: how many times faster than the better peer, median and quartiles of the \
         rounds"
    );
    if rows.iter().any(|m| m.row.unit.is_lower_better()) {
        println!("us/step: less is better; all others: more is better");
    }
}

/// An array of rows, one a line.
pub(super) fn json(rows: &[Measured]) -> String {
    let value = |v: Option<f64>| v.map_or("null".to_owned(), |v| format!("{v:.6}"));
    let lines: Vec<String> = rows
        .iter()
        .map(|m| {
            let medians: Vec<String> = COLUMNS
                .iter()
                .zip(m.medians)
                .map(|(name, median)| format!("\"{name}\": {}", value(median)))
                .collect();
            format!(
                "  {{\"row\": \"{}\", \"unit\": \"{}\", {}, \"limit\": {}}}",
                m.row.name,
                m.row.unit.name(),
                medians.join(", "),
                value(m.row.limit)
            )
        })
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.5), Some(1.5));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn ratios_are_to_the_better_peer() {
        let row =
            Row { name: "r".into(), unit: Unit::Nodes, units: 1e6, limit: None, target: None };
        let m =
            Measured::new(row, &[vec![1.0, 1.0], vec![4.0, 4.0], vec![2.0, 2.0], vec![]], vec![]);
        assert_eq!(m.medians, [Some(1.0), Some(0.25), Some(0.5), None]);
        assert_eq!(m.ratio, Some(2.0));
        assert_eq!(
            json(&[m]),
            "[\n  {\"row\": \"r\", \"unit\": \"Mnodes/s\", \"ours\": 1.000000, \
             \"tensorflow\": 0.250000, \"pytorch\": 0.500000, \
             \"tensorboard\": null, \"limit\": null}\n]\n"
        );
    }
}
