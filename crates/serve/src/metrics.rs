//! Metrics in Prometheus format, under the names that TensorFlow Serving uses.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::{Device, DeviceStats};
use thalweg_tensor::Code;

use crate::batching::Counts as BatchCounts;
use crate::store::Store;
use crate::versions::Stage;

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the methods")]
pub enum Api {
    Predict,
    Classify,
    Regress,
    MultiInference,
    GetModelMetadata,
    GetModelStatus,
    ReloadConfig,
    SessionRun,
    ModelInfer,
    ModelMetadata,
}

impl Api {
    /// The name in labels.
    pub fn name(self) -> &'static str {
        match self {
            Api::Predict => "Predict",
            Api::Classify => "Classify",
            Api::Regress => "Regress",
            Api::MultiInference => "MultiInference",
            Api::GetModelMetadata => "GetModelMetadata",
            Api::GetModelStatus => "GetModelStatus",
            Api::ReloadConfig => "HandleReloadConfigRequest",
            Api::SessionRun => "SessionRun",
            Api::ModelInfer => "ModelInfer",
            Api::ModelMetadata => "ModelMetadata",
        }
    }
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// Over gRPC.
    Grpc,
    /// Over HTTP.
    Rest,
}

impl Entry {
    fn name(self) -> &'static str {
        match self {
            Entry::Grpc => "GRPC",
            Entry::Rest => "REST",
        }
    }
}

/// Upper bounds of the latency buckets in microseconds: from 10 on, each 1.8 times the last.
static BOUNDS: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..33).map(|i| 10.0 * 1.8f64.powi(i)).collect());

/// A latency histogram.
#[derive(Clone, Default)]
struct Times {
    buckets: Vec<u64>,
    micros: f64,
    count: u64,
}

impl Times {
    fn add(&mut self, time: Duration) {
        let micros = time.as_secs_f64() * 1e6;
        self.buckets.resize(BOUNDS.len() + 1, 0);
        let bucket = BOUNDS.partition_point(|&bound| bound < micros);
        self.buckets[bucket] += 1;
        self.micros += micros;
        self.count += 1;
    }
}

/// A histogram of the number of examples per request, by powers of two.
#[derive(Clone, Default)]
struct Examples {
    buckets: [u64; EXAMPLE_BOUNDS + 1],
    count: u64,
    requests: u64,
}

/// The number of bounds 1, 2, 4 and so on; a further bucket holds larger numbers.
const EXAMPLE_BOUNDS: usize = 20;

impl Examples {
    fn add(&mut self, count: u64) {
        let bucket = (0..EXAMPLE_BOUNDS).find(|&i| count <= 1 << i).unwrap_or(EXAMPLE_BOUNDS);
        self.buckets[bucket] += 1;
        self.count += count;
        self.requests += 1;
    }
}

/// A request's model, API, protocol and outcome.
type RequestKey = (String, Api, Entry, Option<&'static str>);

#[derive(Default)]
struct Counts {
    requests: BTreeMap<RequestKey, u64>,
    latencies: BTreeMap<(String, Api, Entry), Times>,
    examples: BTreeMap<String, Examples>,
    runs: BTreeMap<(String, Api), Times>,
    loads: BTreeMap<(String, &'static str), (u64, Duration)>,
    warm_ups: BTreeMap<(String, &'static str), Times>,
}

/// The maximum number of version folders with metrics.
const FOLDERS_MAX: usize = 256;

/// The metrics of a server.
#[derive(Default)]
pub struct Metrics(Mutex<Counts>);

impl Metrics {
    /// Counts an answered request.
    pub fn request(&self, model: &str, api: Api, entry: Entry, code: Option<Code>, time: Duration) {
        let mut counts = self.0.lock();
        let key = (model.to_owned(), api, entry, code.map(Code::name));
        *counts.requests.entry(key).or_default() += 1;
        counts.latencies.entry((model.to_owned(), api, entry)).or_default().add(time);
    }

    /// Counts the examples of a request.
    pub fn examples(&self, model: &str, count: usize) {
        let mut counts = self.0.lock();
        counts.examples.entry(model.to_owned()).or_default().add(count as u64);
    }

    /// Records a run of a signature of this kind.
    pub fn run(&self, model: &str, api: Api, time: Duration) {
        self.0.lock().runs.entry((model.to_owned(), api)).or_default().add(time);
    }

    /// Records the loading of a version.
    pub fn load(&self, folder: &str, is_ok: bool, time: Duration) {
        let mut counts = self.0.lock();
        let (count, total) = counts.loads.entry((folder.to_owned(), outcome(is_ok))).or_default();
        *count += 1;
        *total += time;
        if counts.loads.len() > FOLDERS_MAX {
            counts.loads.pop_first();
        }
    }

    /// Records the warm-up of a version.
    pub fn warm_up(&self, folder: &str, is_ok: bool, time: Duration) {
        let mut counts = self.0.lock();
        counts.warm_ups.entry((folder.to_owned(), outcome(is_ok))).or_default().add(time);
        if counts.warm_ups.len() > FOLDERS_MAX {
            counts.warm_ups.pop_first();
        }
    }

    /// All metrics in Prometheus text format, those of the models' devices too.
    pub fn text(&self, store: &Store, devices: &[Arc<dyn Device>]) -> String {
        let mut out = String::new();
        let counts = self.0.lock();
        requests(&mut out, &counts);
        latencies(&mut out, &counts);
        examples(&mut out, &counts);
        loads(&mut out, &counts);
        drop(counts);
        models(&mut out, store);
        batches(&mut out, store);
        accelerators(&mut out, devices);
        out
    }
}

/// The values of these counters in `text`, summed over all labels. A name may be TensorFlow's, with
/// slashes, or Prometheus's; names that are not counters are left out.
pub fn counters(text: &str, names: &[String]) -> BTreeMap<String, i64> {
    let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|l| l.strip_suffix(" counter")) {
            totals.insert(name, 0);
        } else if let Some((name, value)) = counted(line)
            && let Some(total) = totals.get_mut(name)
        {
            *total = total.saturating_add(value);
        }
    }
    let found = |name: &String| Some((name.clone(), *totals.get(&*name.replace('/', ":"))?));
    names.iter().filter_map(found).collect()
}

/// The name and the value of a line with an integer value.
fn counted(line: &str) -> Option<(&str, i64)> {
    let (labelled, value) = line.rsplit_once(' ')?;
    Some((labelled.split('{').next()?, value.parse().ok()?))
}

/// The HELP and TYPE lines of a metric.
fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn requests(out: &mut String, counts: &Counts) {
    let name = ":tensorflow:serving:request_count";
    head(out, name, "counter", "The total number of requests.");
    let mut by_status: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    // Only APIs that run a model; all others are counted under our own name alone.
    let runs = |(_, api, _, _): &RequestKey| {
        matches!(
            api,
            Api::Predict
                | Api::Classify
                | Api::Regress
                | Api::MultiInference
                | Api::SessionRun
                | Api::ModelInfer
        )
    };
    for ((model, _, _, code), count) in counts.requests.iter().filter(|(key, _)| runs(key)) {
        *by_status.entry((model, code.unwrap_or("OK"))).or_default() += count;
    }
    for ((model, status), count) in by_status {
        let model = label(model);
        let _ = writeln!(out, "{name}{{model_name=\"{model}\",status=\"{status}\"}} {count}");
    }
    let name = "thalweg_serve_requests_total";
    head(out, name, "counter", "Requests by model, method, protocol and outcome.");
    for ((model, api, entry, code), count) in &counts.requests {
        let (model, api, entry) = (label(model), api.name(), entry.name());
        let _ = writeln!(
            out,
            "{name}{{model=\"{model}\",api=\"{api}\",entrypoint=\"{entry}\",code=\"{}\"}} {count}",
            code.unwrap_or("OK")
        );
    }
}

fn latencies(out: &mut String, counts: &Counts) {
    let name = ":tensorflow:serving:request_latency";
    head(out, name, "histogram", "Time from a request to its answer in microseconds.");
    for ((model, api, entry), times) in &counts.latencies {
        let (model, api, entry) = (label(model), api.name(), entry.name());
        let labels = format!("model_name=\"{model}\",API=\"{api}\",entrypoint=\"{entry}\"");
        histogram(out, name, &labels, times);
    }
    let name = ":tensorflow:serving:runtime_latency";
    head(out, name, "histogram", "Time that models took to run in microseconds.");
    for ((model, api), times) in &counts.runs {
        let (model, api) = (label(model), api.name());
        let labels = format!("model_name=\"{model}\",API=\"{api}\",runtime=\"Thalweg\"");
        histogram(out, name, &labels, times);
    }
}

fn histogram(out: &mut String, name: &str, labels: &str, times: &Times) {
    buckets(out, name, labels, &times.buckets, |i| BOUNDS.get(i).copied());
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}", times.micros);
    let _ = writeln!(out, "{name}_count{{{labels}}} {}", times.count);
}

fn buckets(
    out: &mut String,
    name: &str,
    labels: &str,
    counts: &[u64],
    bound: impl Fn(usize) -> Option<f64>,
) {
    let mut total = 0;
    for (i, count) in counts.iter().enumerate() {
        total += count;
        let bound = bound(i).map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
    }
}

fn outcome(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "fail" }
}

fn loads(out: &mut String, counts: &Counts) {
    let name = ":tensorflow:cc:saved_model:load_attempt_count";
    head(out, name, "counter", "The number of attempts to load a SavedModel.");
    for ((folder, status), (count, _)) in &counts.loads {
        let folder = label(folder);
        let _ = writeln!(out, "{name}{{model_path=\"{folder}\",status=\"{status}\"}} {count}");
    }
    let name = ":tensorflow:cc:saved_model:load_latency";
    head(out, name, "counter", "Time that loading SavedModels took in microseconds.");
    for ((folder, status), (_, time)) in &counts.loads {
        if *status == outcome(true) {
            let _ =
                writeln!(out, "{name}{{model_path=\"{}\"}} {}", label(folder), time.as_micros());
        }
    }
    let name = ":tensorflow:serving:model_warmup_latency";
    head(out, name, "histogram", "Time that warming a model took in microseconds.");
    for ((folder, status), times) in &counts.warm_ups {
        let labels = format!("model_path=\"{}\",status=\"{status}\"", label(folder));
        histogram(out, name, &labels, times);
    }
}

fn examples(out: &mut String, counts: &Counts) {
    let name = ":tensorflow:serving:request_example_count_total";
    head(out, name, "counter", "The total number of tensorflow.Examples.");
    for (model, examples) in &counts.examples {
        let _ = writeln!(out, "{name}{{model=\"{}\"}} {}", label(model), examples.count);
    }
    let name = ":tensorflow:serving:request_example_counts";
    head(out, name, "histogram", "The number of tensorflow.Examples per request.");
    for (model, examples) in &counts.examples {
        let labels = format!("model=\"{}\"", label(model));
        let bound = |i| (i < EXAMPLE_BOUNDS).then(|| f64::from(1u32 << i));
        buckets(out, name, &labels, &examples.buckets, bound);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", examples.count);
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", examples.requests);
    }
}

fn models(out: &mut String, store: &Store) {
    let views = store.views();
    let stages = "thalweg_serve_version_state";
    head(out, stages, "gauge", "1 for the state that a version is in.");
    for (model, view) in &views {
        for (version, (stage, _)) in &view.statuses {
            let state = format!("{stage:?}").to_uppercase();
            let model = label(model);
            let _ = writeln!(
                out,
                "{stages}{{model=\"{model}\",version=\"{version}\",state=\"{state}\"}} 1"
            );
        }
    }
    let memory = "thalweg_serve_model_memory_bytes";
    head(out, memory, "gauge", "Memory that a version holds, alone or with others.");
    for (model, view) in &views {
        for (version, servable) in &view.available {
            let (model, bytes) = (label(model), servable.memory_bytes());
            let _ = writeln!(out, "{memory}{{model=\"{model}\",version=\"{version}\"}} {bytes}");
        }
    }
    let plans = "thalweg_serve_sized_plans";
    head(out, plans, "gauge", "Plans for specific input shapes that a version keeps.");
    for (model, view) in &views {
        for (version, servable) in &view.available {
            let (model, count) = (label(model), servable.sized_plans());
            let _ = writeln!(out, "{plans}{{model=\"{model}\",version=\"{version}\"}} {count}");
        }
    }
    let failed = "thalweg_serve_load_failures";
    head(out, failed, "gauge", "Versions whose last attempt to load failed.");
    for (model, view) in &views {
        let is_failed = |s: &&(Stage, Option<thalweg_tensor::Error>)| s.1.is_some();
        let count = view.statuses.values().filter(is_failed).count();
        let _ = writeln!(out, "{failed}{{model=\"{}\"}} {count}", label(model));
    }
}

fn batches(out: &mut String, store: &Store) {
    let mut found = Vec::new();
    for (model, view) in &store.views() {
        for (version, servable) in &view.available {
            if let Some(counts) = servable.batched() {
                let model = label(model);
                found.push((format!("{{model=\"{model}\",version=\"{version}\"}}"), counts));
            }
        }
    }
    type Field = fn(&BatchCounts) -> u64;
    let fields: [(&str, &str, &str, Field); 4] = [
        ("thalweg_serve_batches_total", "counter", "Batches that have run.", |c| c.batches),
        ("thalweg_serve_batched_rows_total", "counter", "Rows of requests in batches.", |c| c.rows),
        (
            "thalweg_serve_refused_total",
            "counter",
            "Requests rejected by a full batching queue.",
            |c| c.rejected,
        ),
        ("thalweg_serve_waiting_rows", "gauge", "Rows that wait for a batch.", |c| c.waiting),
    ];
    for (name, kind, help, field) in fields {
        head(out, name, kind, help);
        for (labels, counts) in &found {
            let _ = writeln!(out, "{name}{labels} {}", field(counts));
        }
    }
}

/// Compilations, executions, copies and memory of accelerators; nothing where there are none.
fn accelerators(out: &mut String, devices: &[Arc<dyn Device>]) {
    let found: Vec<(String, DeviceStats)> = devices
        .iter()
        .filter_map(|device| {
            let (name, stats) = (&device.description().name, device.stats()?);
            Some((format!("{{device=\"{}:{}\"}}", name.device_type, name.index), stats))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    type Field = fn(&DeviceStats) -> u64;
    let fields: [(&str, &str, &str, Field); 8] = [
        ("thalweg_accelerator_compilations_total", "counter", "Programs compiled.", |s| {
            s.compilations
        }),
        (
            "thalweg_accelerator_loads_total",
            "counter",
            "Programs loaded that an earlier process compiled.",
            |s| s.loads,
        ),
        ("thalweg_accelerator_executions_total", "counter", "Programs run.", |s| s.executions),
        (
            "thalweg_accelerator_bytes_from_host_total",
            "counter",
            "Bytes copied from the host to the device.",
            |s| s.bytes_from_host,
        ),
        (
            "thalweg_accelerator_bytes_to_host_total",
            "counter",
            "Bytes copied from the device to the host.",
            |s| s.bytes_to_host,
        ),
        ("thalweg_accelerator_memory_used_bytes", "gauge", "Memory in use.", |s| {
            s.memory_used_bytes
        }),
        (
            "thalweg_accelerator_memory_peak_bytes",
            "gauge",
            "The most memory in use at once.",
            |s| s.memory_peak_bytes,
        ),
        ("thalweg_accelerator_memory_limit_bytes", "gauge", "The most that may be in use.", |s| {
            s.memory_limit_bytes
        }),
    ];
    for (name, kind, help, field) in fields {
        head(out, name, kind, help);
        for (labels, stats) in &found {
            let _ = writeln!(out, "{name}{labels} {}", field(stats));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_counted_by_request() {
        let metrics = Metrics::default();
        for count in [1, 3, 5_000_000] {
            metrics.examples("m", count);
        }
        let mut out = String::new();
        examples(&mut out, &metrics.0.lock());
        let name = ":tensorflow:serving:request_example_counts";
        for line in [
            ":tensorflow:serving:request_example_count_total{model=\"m\"} 5000004".to_owned(),
            format!("{name}_bucket{{model=\"m\",le=\"1\"}} 1"),
            format!("{name}_bucket{{model=\"m\",le=\"2\"}} 1"),
            format!("{name}_bucket{{model=\"m\",le=\"4\"}} 2"),
            format!("{name}_bucket{{model=\"m\",le=\"+Inf\"}} 3"),
            format!("{name}_sum{{model=\"m\"}} 5000004"),
            format!("{name}_count{{model=\"m\"}} 3"),
        ] {
            assert!(out.lines().any(|found| found == line), "{line} is not in:\n{out}");
        }
    }

    #[test]
    fn counters_by_name() {
        let metrics = Metrics::default();
        for (model, folder) in [("a", "/m/a/1"), ("b", "/m/b/1 2")] {
            metrics.request(model, Api::Predict, Entry::Grpc, None, Duration::ZERO);
            metrics.load(folder, true, Duration::from_micros(7));
        }
        let mut out = String::new();
        requests(&mut out, &metrics.0.lock());
        latencies(&mut out, &metrics.0.lock());
        loads(&mut out, &metrics.0.lock());
        for (name, total) in [
            ("/tensorflow/serving/request_count", Some(2)),
            (":tensorflow:serving:request_count", Some(2)),
            ("/tensorflow/cc/saved_model/load_attempt_count", Some(2)),
            ("/tensorflow/cc/saved_model/load_latency", Some(14)),
            // Neither histograms nor unknown names.
            ("/tensorflow/serving/request_latency", None),
            ("/tensorflow/serving/request_latency_count", None),
            ("nobody", None),
            ("", None),
        ] {
            let found = counters(&out, &[name.to_owned()]);
            assert_eq!(found.get(name).copied(), total, "{name}");
        }
    }

    #[test]
    fn metadata_requests_are_counted_under_our_name_alone() {
        let metrics = Metrics::default();
        for api in [Api::Predict, Api::GetModelStatus, Api::GetModelMetadata] {
            metrics.request("m", api, Entry::Grpc, None, Duration::ZERO);
        }
        let mut out = String::new();
        requests(&mut out, &metrics.0.lock());
        let ours = out.lines().filter(|l| l.starts_with("thalweg_serve_requests_total{"));
        assert_eq!(ours.count(), 3, "{out}");
        let line = ":tensorflow:serving:request_count{model_name=\"m\",status=\"OK\"} 1";
        assert!(out.lines().any(|found| found == line), "{out}");
    }
}
