//! The recorded cases: reading, running and comparing them.

#![allow(dead_code, reason = "each test that includes this file uses some of it")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use prost::Message;
use serde_json::Value as Json;
use thalweg_formats::storage::{LocalStorage, Metadata, ReadAt, Storage, WriteFile};
use thalweg_kernel::KernelRegistry;
use thalweg_proto as pb;
use thalweg_tensor::*;

/// Elements at the end of a tensor that TensorFlow's vector loop does not cover and computes
/// differently: their number, by case.
const LEFT_OVER: [(&str, usize); 3] =
    [("unary/Sign/6", 2), ("binary/Pow/33", 4), ("binary/Atan2/27", 4)];

/// The folder for cases with files, with a separate root, initially empty.
pub(crate) struct Scratch(std::path::PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thalweg-golden-{}-{number}", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        scratch.empty();
        scratch
    }

    /// Removes the files of a case.
    pub(crate) fn empty(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
        std::fs::create_dir_all(self.0.join("golden_files")).unwrap();
    }

    /// Storage in which relative paths are below the folder.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(Under(self.0.to_str().unwrap().to_owned()))
    }
}

/// Local files, with relative paths below a folder.
struct Under(String);

impl Under {
    const FILES: LocalStorage = LocalStorage { syncs: false };

    fn at(&self, path: &str) -> String {
        match path.is_empty() || path.starts_with('/') || path.contains("://") {
            true => path.to_owned(),
            false => format!("{}/{path}", self.0),
        }
    }
}

impl Storage for Under {
    fn open(&self, path: &str) -> Result<Arc<dyn ReadAt>> {
        Under::FILES.open(&self.at(path))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Under::FILES.create(&self.at(path))
    }

    fn append(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Under::FILES.append(&self.at(path))
    }

    fn replace(&self, path: &str) -> Result<Box<dyn WriteFile>> {
        Under::FILES.replace(&self.at(path))
    }

    fn metadata(&self, path: &str) -> Result<Metadata> {
        Under::FILES.metadata(&self.at(path))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        Under::FILES.list(&self.at(folder))
    }

    fn remove(&self, path: &str) -> Result<()> {
        Under::FILES.remove(&self.at(path))
    }

    fn remove_folder(&self, path: &str) -> Result<()> {
        Under::FILES.remove_folder(&self.at(path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Under::FILES.rename(&self.at(from), &self.at(to))
    }

    fn create_folder(&self, path: &str) -> Result<()> {
        Under::FILES.create_folder(&self.at(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Every recorded case.
pub(crate) fn cases() -> Vec<Json> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "gz")) {
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        cases.extend(text.lines().map(|l| serde_json::from_str::<Json>(l).unwrap()));
    }
    assert!(!cases.is_empty(), "{folder} holds no recorded cases");
    cases
}

fn bytes(text: &Json) -> Bytes {
    base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap().into()
}

pub(crate) fn tensor(text: &Json) -> Tensor {
    Tensor::from_proto(&pb::TensorProto::decode(bytes(text)).unwrap(), None).unwrap()
}

pub(crate) fn strings(list: &Json) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|s| s.as_str().unwrap().to_owned()).collect()
}

/// The graph of a case.
pub(crate) fn graph_of(case: &Json) -> pb::GraphDef {
    pb::GraphDef::decode(bytes(&case["graph"])).unwrap()
}

/// Runs every case whose ops all have kernels; prints the cases that did not run and why, fails on
/// any difference. `GOLDEN=Op` selects the cases of one op. Returns by op the numbers of passing
/// and of all cases.
pub(crate) fn play_all(
    kernels: &KernelRegistry,
    runs_without_kernel: fn(&str) -> bool,
    mut run: impl FnMut(pb::GraphDef, &mut dyn FnMut(Run<'_>) -> Result<()>) -> Result<()>,
) -> Results {
    let filter = std::env::var("GOLDEN").ok();
    let has = |op: &str| runs_without_kernel(op) || !kernels.for_op(op).is_empty();
    let (mut passed, mut failures) = (0, Vec::new());
    let mut results = Results::new();
    let mut not_run: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases() {
        let op = case["op"].as_str().unwrap();
        if filter.as_ref().is_some_and(|f| f != op) {
            continue;
        }
        let counts: &mut (usize, usize) = results.entry(op.to_owned()).or_default();
        counts.1 += 1;
        let needs: BTreeSet<String> = strings(&case["ops"]).into_iter().collect();
        if let Some(missing) = needs.iter().find(|op| !has(op)) {
            *not_run.entry(missing.clone()).or_default() += 1;
            continue;
        }
        match run(graph_of(&case), &mut |step| play(&case, step)) {
            Ok(()) => {
                passed += 1;
                counts.0 += 1;
            }
            Err(e) => failures.push(format!("{} ({}): {e}", case["id"], case["kind"])),
        }
    }
    assert!(!results.is_empty(), "no recorded case is of the op {filter:?}");
    let waiting: usize = not_run.values().sum();
    println!("golden cases: {passed} pass, {} fail, {waiting} wait for an op:", failures.len());
    for (op, count) in &not_run {
        println!("  {op}: {count}");
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    results
}

/// By op, the numbers of passing and of all cases.
pub(crate) type Results = BTreeMap<String, (usize, usize)>;

/// Runs one step with feeds, fetches and targets.
pub(crate) type Run<'a> =
    &'a mut dyn FnMut(&HashMap<String, Tensor>, &[String], &[String]) -> Result<Vec<Tensor>>;

/// Runs a case's steps in order; the error describes a difference.
pub(crate) fn play(case: &Json, run: Run<'_>) -> Result<()> {
    let feeds: HashMap<String, Tensor> = case["feeds"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), tensor(value)))
        .collect();
    let tolerance = Tolerance::of(case);
    for (n, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let fetches = strings(&step["fetch"]);
        let result = run(&feeds, &fetches, &strings(&step["targets"]));
        if let Some(code) = step["error"]["code"].as_i64() {
            let wanted = &step["error"];
            match result {
                Err(e) if e.code() as i64 == code => continue,
                Err(e) => bail!(Unknown, "step {n}: wanted {wanted}, got {e}"),
                Ok(_) => bail!(Unknown, "step {n}: wanted {wanted}, got a value"),
            }
        }
        compare_all(&result?, step, &tolerance).context(|| format!("step {n}"))?;
    }
    Ok(())
}

/// Compares results computed in another way with the outputs of a case's only step.
pub(crate) fn compare_step(case: &Json, got: &[Tensor]) -> Result<()> {
    compare_all(got, &case["steps"][0], &Tolerance::of(case))
}

fn compare_all(got: &[Tensor], step: &Json, tolerance: &Tolerance) -> Result<()> {
    let expected = step["expect"].as_array().unwrap();
    ensure!(
        got.len() == expected.len(),
        Unknown,
        "{} tensors were computed, {} were recorded",
        got.len(),
        expected.len()
    );
    for (i, (got, wanted)) in got.iter().zip(expected).enumerate() {
        compare(got, &tensor(wanted), tolerance)
            .context(|| format!("fetch {i} ({})", step["fetch"][i]))?;
    }
    Ok(())
}

struct Tolerance {
    relative: f64,
    absolute: f64,
    /// Elements at the end that are not compared.
    left_over: usize,
}

impl Tolerance {
    fn of(case: &Json) -> Tolerance {
        Tolerance {
            relative: case["tol"][0].as_f64().unwrap_or(0.0),
            absolute: case["tol"][1].as_f64().unwrap_or(0.0),
            left_over: LEFT_OVER.iter().find(|(id, _)| case["id"] == *id).map_or(0, |l| l.1),
        }
    }
}

fn compare(got: &Tensor, wanted: &Tensor, tolerance: &Tolerance) -> Result<()> {
    let Tolerance { relative, absolute, left_over } = *tolerance;
    ensure!(got.dtype() == wanted.dtype(), Unknown, "{got:?} is not {wanted:?}");
    ensure!(got.shape() == wanted.shape(), Unknown, "{got:?} is not {wanted:?}");
    if got.dtype() == DType::String {
        // NumPy arrays in the recorder drop trailing zero bytes of strings.
        let trimmed = |s: &Bytes| s.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        let is_same = |(a, b): (&Bytes, &Bytes)| a[..trimmed(a)] == b[..trimmed(b)];
        ensure!(
            got.strings()?.iter().zip(wanted.strings()?).all(is_same),
            Unknown,
            "strings differ: {:?} is not {:?}",
            got.strings()?,
            wanted.strings()?
        );
        return Ok(());
    }
    let (Some(a), Some(b)) = (numbers(got)?, numbers(wanted)?) else {
        ensure!(got.as_bytes()? == wanted.as_bytes()?, Unknown, "bytes differ");
        return Ok(());
    };
    let compared = a.len() - left_over * a.len() / got.num_elements().max(1);
    for (i, (&x, &y)) in a.iter().zip(&b).take(compared).enumerate() {
        let close =
            x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= absolute + relative * y.abs();
        ensure!(close, Unknown, "element {i} is {x}, not {y} (tolerance {relative}, {absolute})");
    }
    Ok(())
}

/// Floating-point elements as f64; complex ones as pairs.
pub(crate) fn numbers(t: &Tensor) -> Result<Option<Vec<f64>>> {
    Ok(Some(match t.dtype() {
        DType::Float => t.as_slice::<f32>()?.iter().map(|&x| x.into()).collect(),
        DType::Double => t.as_slice::<f64>()?.to_vec(),
        DType::Half => t.as_slice::<f16>()?.iter().map(|&x| x.into()).collect(),
        DType::BFloat16 => t.as_slice::<bf16>()?.iter().map(|&x| x.into()).collect(),
        DType::Complex64 => {
            t.as_slice::<Complex32>()?.iter().flat_map(|c| [c.re.into(), c.im.into()]).collect()
        }
        DType::Complex128 => t.as_slice::<Complex64>()?.iter().flat_map(|c| [c.re, c.im]).collect(),
        _ => return Ok(None),
    }))
}
