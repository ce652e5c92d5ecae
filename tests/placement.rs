//! `thalweg simulate` and `thalweg run --placement` as commands, on devices that do not exist.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value as Json;

/// Two branches of products, joined, then an update of the variable.
const GRAPH: &str = r#"
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: -1 } dim { size: 256 } } } } }
node { name: "w" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } }
       attr { key: "shape" value { shape { dim { size: 256 } dim { size: 256 } } } } }
node { name: "a" op: "MatMul" input: "x" input: "w" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "b" op: "Tanh" input: "a" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "c" op: "MatMul" input: "b" input: "w" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "there" op: "Tanh" input: "c" device: "/job:ps/task:0"
       attr { key: "T" value { type: DT_FLOAT } } }
"#;

const DEVICES: &str = r#"
[[device]]
name = "/job:worker/task:0"
flops = 1e10
memory_bandwidth = "1 GB/s"
[[device]]
name = "/job:worker/task:1/device:GPU:0"
flops = 1e13
memory_bandwidth = "1 TB/s"
memory = "8 GB"
[[device]]
name = "/job:ps"
[link]
latency = "20 us"
bandwidth = "10 GB/s"
"#;

struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(test: &str) -> Files {
        let name = format!("thalweg-placement-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Files { folder }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn thalweg(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = thalweg(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&text(args)).unwrap()
}

#[test]
fn a_step_is_placed_and_timed() {
    let files = Files::new("step");
    let (graph, devices) = (files.write("graph.pbtxt", GRAPH), files.write("d.toml", DEVICES));
    let trace = files.folder.join("trace.json").to_str().unwrap().to_owned();
    let base =
        ["simulate", &graph, "--fetch", "c", "--devices", &devices, "--shape", "x=[512,256]"];
    let args =
        [&base[..], &["--json", "--compare", "default,greedy,etf", "--trace", &trace]].concat();
    let first = text(&args);
    assert_eq!(first, text(&args), "equal inputs give equal bytes");
    let report: Json = serde_json::from_str(&first).unwrap();
    let on = |node: &str| {
        let rows = report["placement"].as_array().unwrap();
        let row = rows.iter().find(|row| row["node"] == node).unwrap();
        row["device"].as_str().unwrap().to_owned()
    };
    let gpu = "/job:worker/replica:0/task:1/device:GPU:0";
    assert_eq!((on("a").as_str(), on("c").as_str()), (gpu, gpu));
    let step = report["step_seconds"].as_f64().unwrap();
    let by = |name: &str| {
        let all = report["compared"].as_array().unwrap();
        let found = all.iter().find(|row| row["algorithm"] == name).unwrap();
        found["step_seconds"].as_f64().unwrap()
    };
    // A product takes 67 MFLOP: 6.7 ms on the worker, 7 us on the GPU.
    assert!(by("default") > 13e-3 && step < 1e-3, "{step}, {}", by("default"));
    assert!(step <= by("greedy") * 1.05 && step <= by("etf") * 1.05, "{step}");
    let path = report["critical_path"].as_array().unwrap();
    let charged: f64 =
        path.iter().map(|s| s["end"].as_f64().unwrap() - s["start"].as_f64().unwrap()).sum();
    assert!(charged >= 0.95 * step - 21e-6, "{charged} of {step}");
    let link = report["links"].as_array().unwrap().iter().find(|l| l["to"] == gpu).unwrap();
    assert_eq!(link["bytes"], 512 * 256 * 4);
    assert!(report["devices"][1]["peak_memory_bytes"].as_u64().unwrap() > 256 * 256 * 4);
    assert!(!report["what_if"].as_array().unwrap().is_empty());
    let events: Json = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 5);
    let shown = text(&base);
    for part in ["(auto placement)", "critical path", "what if", gpu] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn constraints_bind_every_algorithm() {
    let files = Files::new("constraints");
    let (graph, devices) = (files.write("graph.pbtxt", GRAPH), files.write("d.toml", DEVICES));
    for algorithm in ["default", "greedy", "etf", "auto"] {
        let args = ["simulate", &graph, "--fetch", "there", "--devices", &devices];
        let report = json(&[&args[..], &["--placement", algorithm, "--json"]].concat());
        let rows = report["placement"].as_array().unwrap();
        let row = rows.iter().find(|row| row["node"] == "there").unwrap();
        assert_eq!(row["device"], "/job:ps/replica:0/task:0/device:CPU:0", "{algorithm}");
        assert_eq!(row["reason"], "device constraint", "{algorithm}");
    }
}

#[test]
fn training_jobs_are_played_and_repeated() {
    let files = Files::new("train");
    let devices = files.write("d.toml", DEVICES);
    let base = ["simulate", "--train", "--workers", "4", "--ps", "2", "--parameters", "1MB"];
    let flags = ["--flops", "1e9", "--updates", "30", "--straggler", "0.4", "--devices", &devices];
    let args = [&base[..], &flags, &["--json"]].concat();
    let run = |more: &[&str]| text(&[&args[..], more].concat());
    assert_eq!(run(&["--seed", "7"]), run(&["--seed", "7"]));
    assert_ne!(run(&["--seed", "7"]), run(&["--seed", "8"]));
    let report = |more: &[&str]| -> Json { serde_json::from_str(&run(more)).unwrap() };
    let calm = report(&[]);
    assert_eq!((&calm["updates_done"], &calm["lost_updates"]), (&30.into(), &0.into()));
    let half = format!("ps/0@{}s", calm["seconds"].as_f64().unwrap() / 2.0);
    let lost = |more: &[&str]| report(&[&["--fail", &half], more].concat());
    let (all, few) = (lost(&[]), lost(&["--checkpoint-every", "5"]));
    assert!(all["lost_updates"].as_u64() > few["lost_updates"].as_u64(), "{all} {few}");
    assert!(few["lost_updates"].as_u64().unwrap() <= 5, "{few}");
    assert!(all["seconds"].as_f64() > calm["seconds"].as_f64());
    let backup = report(&["--mode", "backup", "--spare", "1"]);
    assert!(backup["steps_per_second"].as_f64() > calm["steps_per_second"].as_f64());
}

#[test]
fn mistakes_are_named() {
    let files = Files::new("mistakes");
    let (graph, devices) = (files.write("graph.pbtxt", GRAPH), files.write("d.toml", DEVICES));
    let wrong = files.write("wrong.toml", "[[device]]\nname = \"/job:a\"\nspeed = 3\n");
    let small = "[[device]]\nname = \"/job:a\"\ntasks = 2\nmemory = \"1 kB\"\n";
    let small = files.write("small.toml", small);
    let simulate = ["simulate", &graph];
    let cases: [(&[&str], i32, &str); 10] = [
        (&["--fetch", "c"], 1, "--devices FILE"),
        (&["--devices", &devices], 2, "nothing to simulate"),
        (&["--fetch", "nosuch", "--devices", &devices], 1, "nosuch"),
        (&["--fetch", "c", "--devices", &wrong], 1, "no key 'speed'"),
        (&["--fetch", "c", "--devices", "/nonexistent"], 1, "/nonexistent"),
        (&["--fetch", "c", "--devices", &devices, "--placement", "best"], 2, "there are default"),
        (&["--fetch", "c", "--devices", &devices, "--shape", "y=[1]"], 1, "'y'"),
        (&["--fetch", "c", "--devices", &devices, "--shape", "x=[a]"], 1, "[32,784]"),
        (&["--fetch", "c", "--devices", &small, "--placement", "greedy"], 1, "has no room"),
        (&["--train", "--fetch", "c", "--devices", &devices, "--fail", "x/0@1s"], 1, "--fail"),
    ];
    for (more, code, part) in cases {
        let output = thalweg(&[&simulate[..], more].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{more:?}: {error}");
        assert!(error.contains(part), "{more:?} must say {part:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
}

#[test]
fn a_run_explains_and_keeps_its_costs() {
    let files = Files::new("run");
    let costs = files.folder.join("costs.json").to_str().unwrap().to_owned();
    let graph = r#"
node { name: "n" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
       attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 64 } } } }
node { name: "r" op: "RandomUniform" input: "n" attr { key: "T" value { type: DT_INT32 } }
       attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "s" op: "Tanh" input: "r" attr { key: "T" value { type: DT_FLOAT } } }
"#;
    let graph = files.write("graph.pbtxt", graph);
    let args = ["run", &graph, "--fetch", "s", "--repeat", "8", "--placement", "greedy"];
    let output = thalweg(&[&args[..], &["--explain", "--costs", &costs]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    assert!(
        error.contains("s: (Tanh): /job:localhost/replica:0/task:0/device:CPU:0: only device"),
        "{error}"
    );
    let saved: Json = serde_json::from_str(&fs::read_to_string(&costs).unwrap()).unwrap();
    let measured = saved["measurements"].as_array().unwrap();
    let tanh = measured.iter().find(|m| m["node"] == "s").unwrap();
    assert_eq!((&tanh["count"], &tanh["bytes"][0]), (&2.into(), &256.into()));
    // The next run goes on with them.
    let again = thalweg(&[&args[..], &["--costs", &costs]].concat());
    assert!(again.status.success());
    let saved: Json = serde_json::from_str(&fs::read_to_string(&costs).unwrap()).unwrap();
    let measured = saved["measurements"].as_array().unwrap();
    assert_eq!(measured.iter().find(|m| m["node"] == "s").unwrap()["count"], 4);
}
