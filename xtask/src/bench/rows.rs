//! The rows: what `benches/peers/README.md` lists, with units and limits.

/// How a row's result is printed.
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
    /// Thousands of records, examples or events in a second.
    Records,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us/step",
            Unit::Nodes => "Mnodes/s",
            Unit::Flops => "GFLOP/s",
            Unit::Elements => "Melements/s",
            Unit::Records => "krecords/s",
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
            Unit::Records => work / seconds * 1e-3,
        }
    }
}

/// A row of the table.
pub(super) struct RowSpec {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) limit: Option<Limit>,
    /// How many times faster than the better peer we mean to be, where that was said.
    pub(super) target: Option<f64>,
}

/// A row of our own peer that only uses the machine: multiply-adds, or moving memory.
pub(super) struct Limit {
    pub(super) row: String,
    /// Work of that row that a unit of this one needs at least: bytes that must move, for example.
    pub(super) work_per_unit: f64,
}

/// Rows, their unit, and bytes that must move for each element where that is the limit.
const BY_STEP: &[&str] = &["session/no_op", "session/scalar_fetch", "session/scalar_feed_fetch"];
const BY_STEP_AND_THREADS: &[&str] = &[
    "lstm/v1_forward",
    "lstm/v2_forward",
    "lstm/unrolled_forward",
    "lstm/v1_training",
    "lstm/v2_training",
    "lstm/unrolled_training",
];
/// Models that train, and how many times the better peer's speed is aimed at.
const BY_TRAINING_STEP: &[(&str, f64)] =
    &[("train/mlp", 0.9), ("train/lenet", 0.9), ("train/lstm", 0.9)];
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
    "loop/empty_10k",
];
const BY_FLOP: &[&str] = &[
    "matmul/f32/256",
    "matmul/f32/1024",
    "matmul/f32/2048",
    "conv/3x3_64",
    "conv/1x1_64_256",
    "conv/7x7_stride_2",
    "conv/backprop_input",
    "conv/backprop_filter",
    "conv/depthwise_3x3",
    "matmul/batch_64x128",
];
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
    ("elementwise/relu/1M", None),
    ("elementwise/sigmoid/1M", None),
    ("elementwise/log/1M", None),
    ("elementwise/sqrt/1M", None),
    ("elementwise/rsqrt/1M", None),
    ("elementwise/sin/1M", None),
    ("elementwise/erf/1M", None),
    ("elementwise/div/1M", None),
    ("elementwise/pow/1M", None),
    ("elementwise/maximum/1M", None),
    ("elementwise/greater/1M", None),
    ("elementwise/select/1M", None),
    ("elementwise/add_f16/1M", None),
    ("elementwise/add_row/1M", None),
    ("elementwise/add_column/1M", None),
    ("elementwise/cast_f16/1M", None),
    ("elementwise/bias_add/1M", None),
    ("elementwise/relu_grad/1M", None),
    ("reduce/sum_rows/1M", None),
    ("reduce/sum_columns/1M", None),
    ("reduce/sum_short_rows/1M", None),
    ("reduce/mean_images/1.6M", None),
    ("reduce/max_rows/1M", None),
    ("reduce/argmax_rows/1M", None),
    ("reduce/bias_grad/1M", None),
    ("softmax/1024x10", None),
    ("softmax/log_128x1000", None),
    ("softmax/sparse_cross_entropy_128x1000", None),
    ("pool/max_2x2", None),
    ("pool/max_3x3", None),
    ("pool/avg_3x3", None),
    ("pool/max_grad_2x2", None),
    ("batch_norm/training", None),
    ("batch_norm/inference", None),
    ("batch_norm/grad", None),
    ("gather/scalars_1M", None),
    ("gather/nd_8192x128", None),
    ("scatter/nd_8192x128", None),
    ("scatter/segment_sum_8192x128", None),
    ("scatter/sorted_segment_sum_8192x128", None),
    ("transpose/nhwc_nchw", None),
    ("transpose/heads", None),
    ("concat/pad_1M", None),
    ("concat/tile_1M", None),
    ("concat/slice_1M", None),
    ("random/uniform/1M", None),
    ("random/truncated_normal/1M", None),
    ("sort/top_k_128x1000", None),
];
/// Pipelines, and how many times the better peer's rate is aimed at.
const BY_RECORD: &[(&str, f64)] = &[
    ("input/tfrecord_read", 3.0),
    ("input/parse_example_batched", 2.0),
    ("input/parse_single", 5.0),
    ("input/mnist_pipeline", 2.0),
];
/// Building a graph; the peers have no such rows.
const BY_BUILT_NODE: &[&str] = &["build/scope_10k", "build/handles_10k"];
const THREADS: &[u32] = &[1, 2];

pub(super) fn all() -> Vec<RowSpec> {
    let on = |name: &str, threads: u32| format!("{name}/{threads}t");
    let mut rows: Vec<RowSpec> =
        BY_STEP.iter().map(|name| RowSpec::new(*name, Unit::Microseconds)).collect();
    for &threads in THREADS {
        let row = |name: &&str| RowSpec::new(on(name, threads), Unit::Microseconds);
        rows.extend(BY_STEP_AND_THREADS.iter().map(row));
    }
    for &threads in THREADS {
        rows.extend(BY_TRAINING_STEP.iter().map(|&(name, target)| RowSpec {
            target: Some(target),
            ..RowSpec::new(on(name, threads), Unit::Microseconds)
        }));
    }
    for &threads in THREADS {
        rows.extend(BY_NODE.iter().map(|name| RowSpec::new(on(name, threads), Unit::Nodes)));
    }
    for &threads in THREADS {
        rows.extend(BY_FLOP.iter().map(|name| RowSpec {
            limit: Some(Limit { row: on("peak/fma", threads), work_per_unit: 1.0 }),
            ..RowSpec::new(on(name, threads), Unit::Flops)
        }));
    }
    for &threads in THREADS {
        rows.extend(BY_ELEMENT.iter().map(|&(name, bytes)| RowSpec {
            limit:
                bytes.map(|work_per_unit| Limit { row: on("peak/copy", threads), work_per_unit }),
            ..RowSpec::new(on(name, threads), Unit::Elements)
        }));
    }
    for &threads in THREADS {
        rows.extend(BY_RECORD.iter().map(|&(name, target)| RowSpec {
            target: Some(target),
            ..RowSpec::new(on(name, threads), Unit::Records)
        }));
    }
    rows.push(RowSpec { target: Some(20.0), ..RowSpec::new("events/read", Unit::Records) });
    rows.extend(BY_BUILT_NODE.iter().map(|name| RowSpec::new(*name, Unit::Nodes)));
    rows
}

impl RowSpec {
    /// A row without a limit and without a target.
    fn new(name: impl Into<String>, unit: Unit) -> RowSpec {
        RowSpec { name: name.into(), unit, limit: None, target: None }
    }
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

    /// Our peer's table says what a row is, this file how it is printed.
    #[test]
    fn the_rows_of_our_peer_are_listed() {
        let table = include_str!("../../../benches/ours/src/kernels.rs");
        let listed: Vec<String> = all().into_iter().map(|r| r.name).collect();
        let rows = table.split("    row(\"").skip(1).filter_map(|row| row.split('"').next());
        let (mut count, is_listed) = (0, |row: &str| listed.contains(&format!("{row}/1t")));
        for row in rows {
            assert!(is_listed(row), "{row} is not listed");
            count += 1;
        }
        assert!(count > 50, "the table has {count} rows");
    }

    #[test]
    fn units() {
        assert_eq!(Unit::Microseconds.show(1.0, 2e-6), 2.0);
        assert_eq!(Unit::Nodes.show(10_000.0, 0.001), 10.0);
        assert_eq!(Unit::Flops.show(2e9, 0.5), 4.0);
    }
}
