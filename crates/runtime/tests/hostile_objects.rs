//! Hostile sizes through every op whose outputs are objects (strings, variants, resources): the process
//! stays within its memory limit.
//!
//! The ops are those of the registry that have such an output, statically or in a recorded case. Each
//! is taken from a recorded case, so that its other inputs are valid. One input after the other is
//! replaced: integers by huge ones, strings by long ones and by many, arrays by long ones. A step may
//! succeed or fail; the process may not grow by more than [`GROWTH_BYTES_MAX`] and no step may take
//! longer than [`STEP_TIME_MAX`]. There is one test here, so that nothing else runs in the process.
//!
//! `HOSTILE_OP=Name` runs one op and prints how each step ended.
#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]
#![allow(clippy::disallowed_methods, reason = "the test bounds real time")]

#[path = "../../ops/tests/support/cases.rs"]
mod cases;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use thalweg_graph::{ArgType, Graph, Node, OpRegistry, structural};
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{RunOptions, Session, SessionOptions};
use thalweg_tensor::{Bytes, Code, DType, Result, Shape, Tensor, trim_recycled_memory};

/// Of each session.
const LIMIT_BYTES: usize = 8 << 20;
/// How much the process may grow, freed memory that the allocators keep included.
const GROWTH_BYTES_MAX: u64 = 256 << 20;
/// After this a step ends with `DeadlineExceeded`: some ops wait for others.
const TIMEOUT: Duration = Duration::from_secs(2);
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
/// Length of a string that fits the limit once, not twice.
const STRING_BYTES: usize = 5 << 20;
/// Elements whose slots alone exceed the limit.
const MANY: usize = 1 << 18;

/// Ops that are not run, and why.
const SKIPPED: &[(&str, &str)] = &[
    ("FixedLengthRecordReader", "TensorFlow cannot run it, so that there is no recorded case"),
    ("GeneratorDataset", "its recorded cases have it only inside functions"),
    ("TextLineDataset", "its recorded cases have it only inside functions"),
];

/// Ops whose outputs grow with their inputs: each must refuse some step. Not here, because replacing one
/// input at a time makes their outputs no larger than the limit or runs into [`TIMEOUT`]: TensorListSplit,
/// BroadcastTo, RaggedTensorToVariant, SerializeManySparse, StringFormat, StringSplitV2. Their steps are
/// held to the growth and time bounds only.
const REFUSE: &[&str] = &[
    "AsString",
    "DecodeCompressed",
    "EncodeBase64",
    "Fill",
    "GatherV2",
    "RegexReplace",
    "StringJoin",
    "StringNGrams",
    "StringUpper",
    "Substr",
    "TensorListReserve",
    "TensorListResize",
    "Tile",
    "UnicodeTranscode",
];

/// How a step ended: `None` is success.
type Ended = Option<Code>;

/// One op with a case that it takes part in.
struct Subject {
    case: Json,
    node: String,
}

fn has_object_output(node: &Node) -> bool {
    node.outputs.iter().any(|output| output.dtype.is_object())
}

/// By op, the first recorded case with a node of that op that has an output of objects; cases that
/// were recorded for the op itself come first.
fn subjects(ops: &Arc<OpRegistry>, kernels: &KernelRegistry) -> BTreeMap<String, Subject> {
    let mut subjects: BTreeMap<String, (bool, Subject)> = BTreeMap::new();
    for case in cases::cases() {
        let is_interpreted = |op: &str| structural::OPS.iter().any(|def| def.name == op);
        let runs = |op: &String| is_interpreted(op) || !kernels.for_op(op).is_empty();
        if !cases::strings(&case["ops"]).iter().all(runs) {
            continue;
        }
        let Ok(graph) = Graph::from_def(ops.clone(), cases::graph_of(&case)) else { continue };
        for node in graph.nodes().iter().filter(|node| has_object_output(node)) {
            let is_own = case["op"] == *node.op.name && case["steps"][0]["error"].is_null();
            let known = subjects.get(&node.op.name);
            if !node.inputs.is_empty() && known.is_none_or(|(own, _)| is_own && !own) {
                let subject = Subject { case: case.clone(), node: node.name.to_string() };
                subjects.insert(node.op.name.clone(), (is_own, subject));
            }
        }
    }
    subjects.into_iter().map(|(op, (_, subject))| (op, subject)).collect()
}

/// A string of `a`s and blanks, and many parts of it share its memory.
fn long_string() -> Bytes {
    b"a ".repeat(STRING_BYTES / 2).into()
}

/// `dims` with so many more rows that there are about `elements` elements.
fn with_more_rows(shape: &Shape, elements: usize) -> Option<Shape> {
    let mut dims = shape.dims().to_vec();
    let row: usize = dims.get(1..)?.iter().product();
    dims[0] = elements.div_ceil(row.max(1));
    Shape::new(&dims).ok()
}

/// The hostile values that replace an input.
fn hostile(original: &Tensor, long: &Bytes) -> Vec<Tensor> {
    let shape = original.shape();
    let mut tensors = Vec::new();
    match original.dtype() {
        DType::String => {
            let filled = |shape: &Shape, item: &Bytes| {
                Tensor::from_strings(shape.clone(), vec![item.clone(); shape.num_elements()])
            };
            tensors.extend(filled(shape, long));
            for (elements, length) in [(64, 1 << 18), (MANY, 20)] {
                let more = with_more_rows(shape, elements);
                tensors.extend(more.and_then(|more| filled(&more, &long.slice(..length)).ok()));
            }
        }
        DType::Int32 | DType::Int64 if original.num_elements() > 0 => {
            for huge in [1_000_000_000, 1 << 40] {
                tensors.extend(with_last(original, huge));
            }
            tensors.extend(repeated(original));
        }
        _ => tensors.extend(repeated(original)),
    }
    tensors
}

/// The same integers with another one at the end, or with the greatest that the dtype has.
fn with_last(original: &Tensor, huge: i64) -> Result<Tensor> {
    let mut changed = original.deep_copy(None)?;
    if original.dtype() == DType::Int64 {
        *changed.as_mut_slice::<i64>()?.last_mut().unwrap() = huge;
    } else {
        *changed.as_mut_slice::<i32>()?.last_mut().unwrap() =
            i32::try_from(huge).unwrap_or(i32::MAX);
    }
    Ok(changed)
}

/// The rows again and again.
fn repeated(original: &Tensor) -> Option<Tensor> {
    let bytes = original.as_bytes().ok().filter(|bytes| !bytes.is_empty())?;
    let shape = with_more_rows(original.shape(), MANY)?;
    let wanted = shape.num_elements() * original.dtype().size();
    let content: Vec<u8> = bytes.iter().copied().cycle().take(wanted).collect();
    Tensor::from_bytes(original.dtype(), shape, content.into()).ok()
}

/// The most memory that the process had at once since the last call.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024;
    // Sets the peak to what the process has now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak
}

struct Runner {
    ops: Arc<OpRegistry>,
    kernels: Arc<KernelRegistry>,
    scratch: cases::Scratch,
    is_verbose: bool,
    baseline_bytes: u64,
    failures: Mutex<Vec<String>>,
}

impl Runner {
    fn session(&self, case: &Json) -> Result<Session> {
        self.scratch.empty();
        let graph = Graph::from_def(self.ops.clone(), cases::graph_of(case))?;
        let mut options = SessionOptions {
            memory_limit_bytes: LIMIT_BYTES,
            inter_threads: 1,
            intra_threads: 1,
            ..Default::default()
        };
        options.plan.optimize = false;
        options.environment.storage = self.scratch.storage();
        Session::new(graph, self.kernels.clone(), options)
    }

    fn run(
        &self,
        session: &Session,
        feeds: &HashMap<String, Tensor>,
        fetches: &[String],
        targets: &[String],
    ) -> Result<Vec<Tensor>> {
        let options = RunOptions { timeout: Some(TIMEOUT), ..Default::default() };
        let feeds: Vec<(&str, Tensor)> =
            feeds.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let fetches: Vec<&str> = fetches.iter().map(String::as_str).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        session.run_with(&options, &feeds, &fetches, &targets).map(|(tensors, _)| tensors)
    }

    /// Runs a case with some endpoints fed, and fetches `outputs` too; returns how its steps ended.
    fn play(&self, case: &Json, fed: &HashMap<String, Tensor>, outputs: &[String]) -> Vec<Ended> {
        let Ok(session) = self.session(case) else { return Vec::new() };
        let mut feeds = feeds_of(case);
        feeds.extend(fed.iter().map(|(name, tensor)| (name.clone(), tensor.clone())));
        let code = |result: Result<Vec<Tensor>>| result.err().map(|e| e.code());
        let mut codes = Vec::new();
        for step in case["steps"].as_array().unwrap() {
            let (fetches, targets) =
                (cases::strings(&step["fetch"]), cases::strings(&step["targets"]));
            codes.push(code(self.run(&session, &feeds, &fetches, &targets)));
        }
        codes.push(code(self.run(&session, &feeds, outputs, &[])));
        codes
    }

    /// Replaces each input of the subject's node in turn; returns how all steps ended.
    fn attack(&self, op: &str, subject: &Subject, long: &Bytes) -> Vec<Ended> {
        let case = &subject.case;
        let graph = Graph::from_def(self.ops.clone(), cases::graph_of(case)).unwrap();
        let node = graph.node(graph.find(&subject.node).unwrap());
        let outputs = node.outputs.iter().enumerate().filter(|(_, output)| !output.is_ref);
        let outputs: Vec<String> = outputs.map(|(i, _)| format!("{}:{i}", node.name)).collect();
        let mut ended = Vec::new();
        for &input in &node.inputs {
            let info = graph.output(input);
            let name = format!("{}:{}", graph.node(input.node).name, input.index);
            if info.is_ref || matches!(info.dtype, DType::Resource | DType::Variant) {
                continue;
            }
            let Some(original) = self.original(case, &name) else { continue };
            for tensor in hostile(&original, long) {
                let (what, begin) = (format!("{op}: {name} = {tensor:?}"), Instant::now());
                let codes = self.play(case, &HashMap::from([(name.clone(), tensor)]), &outputs);
                self.check(&what, begin.elapsed(), &codes);
                ended.extend(codes);
            }
        }
        ended
    }

    /// The value of an input as it was recorded.
    fn original(&self, case: &Json, name: &str) -> Option<Tensor> {
        let feeds = feeds_of(case);
        if let Some(fed) = feeds.get(name) {
            return Some(fed.clone());
        }
        let session = self.session(case).ok()?;
        self.run(&session, &feeds, &[name.to_owned()], &[]).ok()?.pop()
    }

    fn check(&self, what: &str, taken: Duration, codes: &[Ended]) {
        trim_recycled_memory();
        let growth = peak_bytes().saturating_sub(self.baseline_bytes);
        if self.is_verbose {
            println!("{what}: {codes:?}, {taken:?}, {} MB", growth >> 20);
        }
        let longest = STEP_TIME_MAX * u32::try_from(codes.len().max(1)).unwrap();
        if growth >= GROWTH_BYTES_MAX || taken >= longest {
            let failure = format!("{what}: {codes:?}, {taken:?}, {} MB more", growth >> 20);
            self.failures.lock().unwrap().push(failure);
        }
    }
}

fn feeds_of(case: &Json) -> HashMap<String, Tensor> {
    let feeds = case["feeds"].as_object().into_iter().flatten();
    let tensor = |(name, value): (&String, &Json)| {
        let name = if name.contains(':') { name.clone() } else { format!("{name}:0") };
        (name, cases::tensor(value))
    };
    feeds.map(tensor).collect()
}

/// Ops of the registry with a kernel, an input, and an output that is declared as objects.
fn declared(ops: &OpRegistry, kernels: &KernelRegistry) -> BTreeSet<String> {
    let is_object = |ty: &ArgType| matches!(ty, ArgType::Fixed(dtype) if dtype.is_object());
    let all = ops.defined().into_iter().filter(|op| !kernels.for_op(&op.name).is_empty());
    all.filter(|op| !op.inputs.is_empty() && op.outputs.iter().any(|arg| is_object(&arg.ty)))
        .map(|op| op.name.clone())
        .collect()
}

#[test]
fn ops_with_objects_stay_within_the_memory_limit() {
    let (ops, kernels) = (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES));
    let subjects = subjects(&ops, &kernels);
    let skipped: BTreeSet<&str> = SKIPPED.iter().map(|(op, _)| *op).collect();
    let missing: Vec<String> = declared(&ops, &kernels)
        .into_iter()
        .filter(|op| !subjects.contains_key(op) && !skipped.contains(op.as_str()))
        .collect();
    assert!(missing.is_empty(), "ops without a case, and not listed as skipped: {missing:?}");
    let wanted = std::env::var("HOSTILE_OP").ok();
    let long = long_string();
    let scratch = cases::Scratch::new();
    // The first call forgets the peak of reading the cases.
    peak_bytes();
    let (is_verbose, baseline_bytes) = (wanted.is_some(), peak_bytes());
    let failures = Mutex::default();
    let runner = Runner { ops, kernels, scratch, is_verbose, baseline_bytes, failures };
    let mut ended: BTreeMap<&str, Vec<Ended>> = BTreeMap::new();
    for (op, subject) in &subjects {
        if wanted.as_ref().is_none_or(|wanted| wanted == op) {
            ended.insert(op, runner.attack(op, subject, &long));
        }
    }
    println!("{} ops", ended.len());
    for (op, reason) in SKIPPED {
        println!("not run: {op}: {reason}");
    }
    let mut failures = runner.failures.into_inner().unwrap();
    for op in REFUSE.iter().filter(|op| wanted.as_ref().is_none_or(|wanted| wanted == **op)) {
        let codes = ended.get(op).map(Vec::as_slice).unwrap_or_default();
        if !codes.contains(&Some(Code::ResourceExhausted)) {
            failures.push(format!("{op} refused nothing: {codes:?}"));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
