//! Counts and times, in the form and under the names that TensorFlow Serving's users scrape.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_tensor::Code;

use crate::batching::Counts as BatchCounts;
use crate::store::Store;
use crate::versions::Stage;

/// What was asked for.
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

/// How a request came.
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

/// Upper ends of the buckets of times, in microseconds: from 10 on, each 1.8 times the last.
static BOUNDS: LazyLock<Vec<f64>> =
    LazyLock::new(|| (0..33).map(|i| 10.0 * 1.8f64.powi(i)).collect());

/// Times, by bucket.
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

/// A request's model, method, way and outcome.
type RequestKey = (String, Api, Entry, Option<&'static str>);

#[derive(Default)]
struct Counts {
    requests: BTreeMap<RequestKey, u64>,
    latencies: BTreeMap<(String, Api, Entry), Times>,
    examples: BTreeMap<String, (u64, u64)>,
    runs: BTreeMap<String, Times>,
    loads: BTreeMap<(String, &'static str), (u64, Duration)>,
    warm_ups: BTreeMap<(String, &'static str), Times>,
}

/// Folders of versions that are remembered; there may be a new one every minute.
const FOLDERS_MAX: usize = 256;

/// What a server counts.
#[derive(Default)]
pub struct Metrics(Mutex<Counts>);

impl Metrics {
    /// A request was answered.
    pub fn request(&self, model: &str, api: Api, entry: Entry, code: Option<Code>, time: Duration) {
        let mut counts = self.0.lock();
        let key = (model.to_owned(), api, entry, code.map(Code::name));
        *counts.requests.entry(key).or_default() += 1;
        counts.latencies.entry((model.to_owned(), api, entry)).or_default().add(time);
    }

    /// A request brought this many examples.
    pub fn examples(&self, model: &str, count: usize) {
        let mut counts = self.0.lock();
        let (requests, examples) = counts.examples.entry(model.to_owned()).or_default();
        *requests += 1;
        *examples += count as u64;
    }

    /// A model ran.
    pub fn run(&self, model: &str, time: Duration) {
        let mut counts = self.0.lock();
        match counts.runs.get_mut(model) {
            Some(times) => times.add(time),
            None => counts.runs.entry(model.to_owned()).or_default().add(time),
        }
    }

    /// A version was loaded, or could not be.
    pub fn load(&self, folder: &str, is_ok: bool, time: Duration) {
        let mut counts = self.0.lock();
        let (count, total) = counts.loads.entry((folder.to_owned(), outcome(is_ok))).or_default();
        *count += 1;
        *total += time;
        if counts.loads.len() > FOLDERS_MAX {
            counts.loads.pop_first();
        }
    }

    /// A version was warmed, or could not be.
    pub fn warm_up(&self, folder: &str, is_ok: bool, time: Duration) {
        let mut counts = self.0.lock();
        counts.warm_ups.entry((folder.to_owned(), outcome(is_ok))).or_default().add(time);
        if counts.warm_ups.len() > FOLDERS_MAX {
            counts.warm_ups.pop_first();
        }
    }

    /// All of it, as Prometheus reads it.
    pub fn text(&self, store: &Store) -> String {
        let mut out = String::new();
        let counts = self.0.lock();
        requests(&mut out, &counts);
        latencies(&mut out, &counts);
        examples(&mut out, &counts);
        loads(&mut out, &counts);
        drop(counts);
        models(&mut out, store);
        batches(&mut out, store);
        out
    }
}

/// The lines that come before those of a metric.
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
    for ((model, _, _, code), count) in &counts.requests {
        *by_status.entry((model, code.unwrap_or("OK"))).or_default() += count;
    }
    for ((model, status), count) in by_status {
        let model = label(model);
        let _ = writeln!(out, "{name}{{model_name=\"{model}\",status=\"{status}\"}} {count}");
    }
    let name = "thalweg_serve_requests_total";
    head(out, name, "counter", "Requests by model, method, way and outcome.");
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
    for (model, times) in &counts.runs {
        let labels = format!("model_name=\"{}\",API=\"Predict\",runtime=\"Thalweg\"", label(model));
        histogram(out, name, &labels, times);
    }
}

fn histogram(out: &mut String, name: &str, labels: &str, times: &Times) {
    let mut total = 0;
    for (i, count) in times.buckets.iter().enumerate() {
        total += count;
        let bound = BOUNDS.get(i).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
    }
    let _ = writeln!(out, "{name}_sum{{{labels}}} {}", times.micros);
    let _ = writeln!(out, "{name}_count{{{labels}}} {}", times.count);
}

fn outcome(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "fail" }
}

fn loads(out: &mut String, counts: &Counts) {
    let name = ":tensorflow:cc:saved_model:load_attempt_count";
    head(out, name, "counter", "The number of times a SavedModel was to be loaded.");
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
    for (model, (_, examples)) in &counts.examples {
        let _ = writeln!(out, "{name}{{model=\"{}\"}} {examples}", label(model));
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
    head(out, memory, "gauge", "Memory that a version holds.");
    for (model, view) in &views {
        for (version, servable) in &view.available {
            let (model, bytes) = (label(model), servable.memory_bytes());
            let _ = writeln!(out, "{memory}{{model=\"{model}\",version=\"{version}\"}} {bytes}");
        }
    }
    let failed = "thalweg_serve_load_failures";
    head(out, failed, "gauge", "Versions that could not be loaded the last time it was tried.");
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
        ("thalweg_serve_refused_total", "counter", "Requests turned away, the queue full.", |c| {
            c.refused
        }),
        ("thalweg_serve_waiting_rows", "gauge", "Rows that wait for a batch.", |c| c.waiting),
    ];
    for (name, kind, help, field) in fields {
        head(out, name, kind, help);
        for (labels, counts) in &found {
            let _ = writeln!(out, "{name}{labels} {}", field(counts));
        }
    }
}
