//! Datasets in a session: random pipelines compared with vectors, iterators shared by threads, steps and
//! sessions that end during a draw, and sizes beyond the memory limit.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use support::*;
use thalweg_graph::Graph;
use thalweg_kernel::ResourceManager;
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Code, Result};

const TYPES: (&str, &str) = ("output_types", "list { type: DT_INT64 }");
const SCALARS: (&str, &str) = ("output_shapes", "list { shape { } }");
const VECTORS: (&str, &str) = ("output_shapes", "list { shape { dim { size: -1 } } }");

/// A graph in text format, node by node.
#[derive(Default)]
struct Text {
    text: String,
    nodes: usize,
}

impl Text {
    fn node(&mut self, op: &str, inputs: &[String], attrs: &[(&str, &str)]) -> String {
        let name = format!("n{}", self.nodes);
        self.nodes += 1;
        let inputs: String = inputs.iter().map(|i| format!(r#" input: "{i}""#)).collect();
        let attr = |(key, value): &(&str, &str)| {
            format!(r#" attr {{ key: "{key}" value {{ {value} }} }}"#)
        };
        let attrs: String = attrs.iter().map(attr).collect();
        self.text.push_str(&format!(r#"node {{ name: "{name}" op: "{op}"{inputs}{attrs} }} "#));
        name
    }

    fn int(&mut self, value: i64) -> String {
        let tensor = format!("tensor {{ dtype: DT_INT64 tensor_shape {{ }} int64_val: {value} }}");
        self.node("Const", &[], &[("dtype", "type: DT_INT64"), ("value", &tensor)])
    }

    fn flag(&mut self, value: bool) -> String {
        let tensor = format!("tensor {{ dtype: DT_BOOL tensor_shape {{ }} bool_val: {value} }}");
        self.node("Const", &[], &[("dtype", "type: DT_BOOL"), ("value", &tensor)])
    }

    fn range(&mut self, n: i64) -> String {
        let bounds = [self.int(0), self.int(n), self.int(1)];
        self.node("RangeDataset", &bounds, &[TYPES, SCALARS])
    }

    /// A dataset of scalars on top of one, with numbers as further inputs.
    fn on(&mut self, op: &str, input: &str, numbers: &[i64]) -> String {
        let mut inputs = vec![input.to_owned()];
        for &n in numbers {
            inputs.push(self.int(n));
        }
        self.node(op, &inputs, &[TYPES, SCALARS])
    }

    /// Adds an iterator: `init` begins, the last name draws.
    fn iterator(&mut self, dataset: &str) -> (String, String) {
        let unnamed = [("shared_name", r#"s: """#), ("container", r#"s: """#)];
        let attrs = [unnamed[0], unnamed[1], TYPES, SCALARS];
        let iterator = self.node("IteratorV2", &[], &attrs);
        let init = self.node("MakeIterator", &[dataset.to_owned(), iterator.clone()], &[]);
        (init, self.node("IteratorGetNext", &[iterator], &[TYPES, SCALARS]))
    }
}

/// A session with options of its own.
fn session_over(text: &str, options: SessionOptions) -> Session {
    let def = thalweg_proto::text::decode("tensorflow.GraphDef", text).unwrap();
    let (ops, kernels) = registries();
    Session::new(Graph::from_def(ops, def).unwrap(), kernels, options).unwrap()
}

fn draw(session: &Session, next: &str) -> Result<i64> {
    session.run(&[], &[next], &[])?[0].scalar_value()
}

fn drain(session: &Session, next: &str) -> Result<Vec<i64>> {
    let mut drawn = Vec::new();
    loop {
        match draw(session, next) {
            Ok(x) => drawn.push(x),
            Err(e) if e.code() == Code::OutOfRange => return Ok(drawn),
            Err(e) => return Err(e),
        }
    }
}

/// A seeded pseudo-random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: i64) -> i64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as i64 % n
    }
}

/// One more transformation, on a graph and on a vector alike.
fn transform(text: &mut Text, dataset: &str, model: Vec<i64>, rng: &mut Rng) -> (String, Vec<i64>) {
    let n = rng.below(5);
    match rng.below(9) {
        0 => (text.on("TakeDataset", dataset, &[n]), model[..model.len().min(n as usize)].to_vec()),
        1 => (text.on("SkipDataset", dataset, &[n]), model[model.len().min(n as usize)..].to_vec()),
        2 => (text.on("RepeatDataset", dataset, &[n]), model.repeat(n as usize)),
        3 => {
            let every = model.iter().copied().skip(1).step_by(3).collect();
            (text.on("ShardDataset", dataset, &[3, 1]), every)
        }
        4 => (text.on("PrefetchDataset", dataset, &[n]), model),
        5 => {
            let file = text.node(
                "Const",
                &[],
                &[
                    ("dtype", "type: DT_STRING"),
                    ("value", r#"tensor { dtype: DT_STRING tensor_shape { } string_val: "" }"#),
                ],
            );
            let inputs = [dataset.to_owned(), file];
            (text.node("CacheDataset", &inputs, &[TYPES, SCALARS]), model)
        }
        6 => {
            let (size, drops) = (n + 1, rng.below(2) == 1);
            let inputs = [dataset.to_owned(), text.int(size), text.flag(drops)];
            let batched = text.node("BatchDatasetV2", &inputs, &[TYPES, VECTORS]);
            let whole =
                if drops { model.len() / size as usize * size as usize } else { model.len() };
            (text.on("UnbatchDataset", &batched, &[]), model[..whole].to_vec())
        }
        7 => {
            let inputs = [dataset.to_owned(), dataset.to_owned()];
            (text.node("ConcatenateDataset", &inputs, &[TYPES, SCALARS]), model.repeat(2))
        }
        _ => (text.on("ShuffleDataset", dataset, &[1, n + 1, 3]), model),
    }
}

#[test]
fn random_pipelines_do_what_vectors_do() {
    watched("random pipelines", || {
        let mut rng = Rng(7);
        for round in 0..150 {
            let mut text = Text::default();
            let n = rng.below(20);
            let (mut dataset, mut model) = (text.range(n), (0..n).collect::<Vec<_>>());
            for _ in 0..rng.below(7) {
                (dataset, model) = transform(&mut text, &dataset, model, &mut rng);
                model.truncate(10_000);
            }
            let count = text.node("DatasetCardinality", &[dataset.clone()], &[]);
            let (init, next) = text.iterator(&dataset);
            let session = text_session(&text.text, 2).unwrap();
            for _ in 0..2 {
                session.run(&[], &[], &[&init]).unwrap();
                let mut drawn = drain(&session, &next).unwrap();
                drawn.truncate(10_000);
                assert_eq!(drawn, model, "round {round}: {}", text.text);
                assert_eq!(draw(&session, &next).unwrap_err().code(), Code::OutOfRange);
            }
            // The number of rows in a batch is not known when the graph is built.
            let counted = draw(&session, &count).unwrap();
            let is_unknown = counted == -2 && text.text.contains("UnbatchDataset");
            assert!(is_unknown || counted == model.len() as i64, "round {round}: {}", text.text);
        }
    });
}

#[test]
fn threads_share_an_iterator() {
    watched("shared iterator", || {
        let mut text = Text::default();
        let range = text.range(2000);
        let ahead = text.on("PrefetchDataset", &range, &[8]);
        let (init, next) = text.iterator(&ahead);
        let session = text_session(&text.text, 2).unwrap();
        session.run(&[], &[], &[&init]).unwrap();
        let mut all: Vec<i64> = std::thread::scope(|s| {
            let threads: Vec<_> =
                (0..4).map(|_| s.spawn(|| drain(&session, &next).unwrap())).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (0..2000).collect::<Vec<_>>());
    });
}

/// A predicate that is false for every element.
const NEVER: &str = r#"library { function {
    signature { name: "never" input_arg { name: "x" type: DT_INT64 }
        output_arg { name: "r" type: DT_BOOL } }
    node_def { name: "less" op: "Less" input: "x" input: "x" attr { key: "T" value { type: DT_INT64 } } }
    ret { key: "r" value: "less:z:0" } } } "#;

fn endless(text: &mut Text) -> String {
    let range = text.range(i64::MAX);
    let predicate = ("predicate", r#"func { name: "never" }"#);
    let nothing = ("Targuments", "list { }");
    text.node("FilterDataset", &[range], &[predicate, nothing, TYPES, SCALARS])
}

#[test]
fn a_search_without_end_ends_with_its_step() {
    watched("endless search", || {
        let mut text = Text::default();
        let dataset = endless(&mut text);
        let (init, next) = text.iterator(&dataset);
        let session = text_session(&format!("{}{NEVER}", text.text), 2).unwrap();
        session.run(&[], &[], &[&init]).unwrap();
        let options =
            RunOptions { timeout: Some(Duration::from_millis(100)), ..Default::default() };
        for _ in 0..3 {
            let ended = session.run_with(&options, &[], &[&next], &[]).unwrap_err();
            assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended}");
        }
    });
}

/// Prefetching must not keep a session alive that the program has dropped.
#[test]
fn sessions_are_dropped_while_their_iterators_run() {
    watched("closing sessions", || {
        let resources = ResourceManager::new("localhost");
        for _ in 0..3 {
            let mut text = Text::default();
            let (endless, range) = (endless(&mut text), text.range(1 << 40));
            let both = [range, endless];
            let joined = text.node("ConcatenateDataset", &both, &[TYPES, SCALARS]);
            let ahead = text.on("PrefetchDataset", &joined, &[100]);
            let (init, next) = text.iterator(&ahead);
            let graph = format!("{}{NEVER}", text.text);
            let options =
                SessionOptions { resources: Some(resources.clone()), ..Default::default() };
            let session = session_over(&graph, options);
            session.run(&[], &[], &[&init]).unwrap();
            assert_eq!(draw(&session, &next).unwrap(), 0);
            drop(session);
        }
        for _ in 0..500 {
            if Arc::strong_count(&resources) == 1 {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{} others hold the resources", Arc::strong_count(&resources) - 1);
    });
}

#[test]
fn buffers_take_no_more_than_there_is() {
    watched("bounded buffers", || {
        for op in ["ShuffleDataset", "BatchDataset"] {
            let mut text = Text::default();
            let range = text.range(i64::MAX);
            let dataset = if op == "BatchDataset" {
                let inputs = [range, text.int(i64::MAX)];
                let batch = text.node(op, &inputs, &[TYPES, VECTORS]);
                text.on("UnbatchDataset", &batch, &[])
            } else {
                text.on(op, &range, &[i64::MAX, 1, 2])
            };
            let (init, next) = text.iterator(&dataset);
            let options = SessionOptions { memory_limit_bytes: 1 << 22, ..Default::default() };
            let session = session_over(&text.text, options);
            session.run(&[], &[], &[&init]).unwrap();
            let refused = draw(&session, &next).unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{op}: {refused}");
        }
    });
}

#[test]
fn datasets_do_not_pile_up_beyond_the_stack() {
    watched("deep datasets", || {
        let mut text = Text::default();
        let mut dataset = text.range(10);
        for _ in 0..300 {
            dataset = text.on("TakeDataset", &dataset, &[5]);
        }
        let (init, next) = text.iterator(&dataset);
        for _ in 0..200 {
            dataset = text.on("TakeDataset", &dataset, &[5]);
        }
        let (too_deep, _) = text.iterator(&dataset);
        let session = text_session(&text.text, 2).unwrap();
        session.run(&[], &[], &[&init]).unwrap();
        assert_eq!(drain(&session, &next).unwrap(), [0, 1, 2, 3, 4]);
        let refused = session.run(&[], &[], &[&too_deep]).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    });
}
