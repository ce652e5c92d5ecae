//! The rows: what `benches/peers/README.md` lists, with units and limits.

/// How a row's result is told.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Unit {
    /// Microseconds for each run.
    Microseconds,
    /// Millions of nodes in a second.
    Nodes,
    /// Billions of floating-point operations in a second.
    Flops,
    /// Millions of elements in a second.
    Elements,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us/step",
            Unit::Nodes => "Mnodes/s",
            Unit::Flops => "GFLOP/s",
            Unit::Elements => "Melements/s",
        }
    }

    pub(super) fn is_lower_better(self) -> bool {
        self == Unit::Microseconds
    }

    /// `work` done in `seconds`, in this unit.
    pub(super) fn show(self, work: f64, seconds: f64) -> f64 {
        match self {
            Unit::Microseconds => seconds * 1e6,
            Unit::Nodes | Unit::Elements => work / seconds * 1e-6,
            Unit::Flops => work / seconds * 1e-9,
        }
    }
}

/// A row of the table.
pub(super) struct RowSpec {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) limit: Option<Limit>,
}

/// A row of our own peer that only uses the machine: multiply-adds, or moving memory.
pub(super) struct Limit {
    pub(super) row: String,
    /// Work of that row that a unit of this one needs at least: bytes that must move, for example.
    pub(super) work_per_unit: f64,
}

/// Rows, their unit, and bytes that must move for each element where that is the limit.
const BY_STEP: &[&str] = &["session/no_op", "session/scalar_fetch", "session/scalar_feed_fetch"];
const BY_NODE: &[&str] = &[
    "dispatch/noop_wide_10k",
    "dispatch/noop_chain_10k",
    "dispatch/identity_chain_10k",
    "dispatch/identity_layers_10k",
    "dispatch/identity_wide_10k",
    "dispatch/add_chain_2k",
    "dispatch/add_chain_10k",
    "dispatch/add_layers_2k",
    "dispatch/add_layers_10k",
];
const BY_FLOP: &[&str] = &["matmul/f32/256", "matmul/f32/1024", "matmul/f32/2048"];
const BY_ELEMENT: &[(&str, Option<f64>)] = &[
    ("elementwise/add/1M", Some(12.0)),
    ("elementwise/mul/1M", Some(12.0)),
    ("elementwise/exp/1M", None),
    ("elementwise/tanh/1M", None),
    ("reduce/sum/1M", Some(4.0)),
    ("softmax/128x1000", None),
    ("random/normal/1M", None),
    ("transpose/1024", Some(8.0)),
    ("concat/8x128x1024", Some(8.0)),
    ("gather/8192x128", Some(8.0)),
];
const THREADS: &[u32] = &[1, 2];

pub(super) fn all() -> Vec<RowSpec> {
    let mut rows: Vec<RowSpec> = BY_STEP
        .iter()
        .map(|name| RowSpec { name: (*name).to_owned(), unit: Unit::Microseconds, limit: None })
        .collect();
    let on = |name: &str, threads: u32| format!("{name}/{threads}t");
    for &threads in THREADS {
        rows.extend(BY_NODE.iter().map(|name| RowSpec {
            name: on(name, threads),
            unit: Unit::Nodes,
            limit: None,
        }));
    }
    for &threads in THREADS {
        rows.extend(BY_FLOP.iter().map(|name| RowSpec {
            name: on(name, threads),
            unit: Unit::Flops,
            limit: Some(Limit { row: on("peak/fma", threads), work_per_unit: 1.0 }),
        }));
    }
    for &threads in THREADS {
        rows.extend(BY_ELEMENT.iter().map(|&(name, bytes)| RowSpec {
            name: on(name, threads),
            unit: Unit::Elements,
            limit:
                bytes.map(|work_per_unit| Limit { row: on("peak/copy", threads), work_per_unit }),
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all().into_iter().map(|r| r.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn units() {
        assert_eq!(Unit::Microseconds.show(1.0, 2e-6), 2.0);
        assert_eq!(Unit::Nodes.show(10_000.0, 0.001), 10.0);
        assert_eq!(Unit::Flops.show(2e9, 0.5), 4.0);
    }
}
