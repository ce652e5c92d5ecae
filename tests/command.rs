//! The `thalweg` command on graphs that TensorFlow wrote, and on mistakes.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

fn thalweg(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thalweg")).args(args).output().unwrap()
}

fn graphs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/graphs")
}

fn graph(name: &str) -> String {
    graphs().join(name).to_str().unwrap().to_owned()
}

/// A folder of its own for one test.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("thalweg-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn json(output: &Output) -> Json {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Fails with this exit code and these words on the error stream.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let output = thalweg(args);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?} must say {word:?}, said {error:?}");
    }
    assert!(!error.contains("panicked"), "{args:?}: {error}");
}

fn assert_close(got: &Json, wanted: &Json, at: &str) {
    match (got, wanted) {
        (Json::Array(got), Json::Array(wanted)) => {
            assert_eq!(got.len(), wanted.len(), "{at}");
            for (i, (g, w)) in got.iter().zip(wanted).enumerate() {
                assert_close(g, w, &format!("{at}[{i}]"));
            }
        }
        (Json::Number(got), Json::Number(wanted)) => {
            let (got, wanted) = (got.as_f64().unwrap(), wanted.as_f64().unwrap());
            assert!((got - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{at}: {got}, {wanted}");
        }
        _ => assert_eq!(got, wanted, "{at}"),
    }
}

#[test]
fn recorded_graphs_give_tensorflows_numbers() {
    let mut count = 0;
    for entry in std::fs::read_dir(graphs()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let case: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let file = graph(case["graph"].as_str().unwrap());
        let mut args = vec!["run", &file, "--json"];
        args.extend(case["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()));
        let result = json(&thalweg(&args));
        let fetches = case["fetches"].as_object().unwrap();
        assert_eq!(result["fetches"].as_object().unwrap().len(), fetches.len(), "{file}");
        for (name, wanted) in fetches {
            let got = &result["fetches"][name];
            assert_eq!(got["shape"], wanted["shape"], "{name} of {file}");
            assert_close(&got["values"], &wanted["values"], &format!("{name} of {file}"));
        }
        assert!(result["seconds"].as_f64().unwrap() > 0.0);
        count += 1;
    }
    assert!(count >= 5, "{count} graphs");
}

#[test]
fn tensors_go_to_files_and_come_back() {
    let folder = folder("npy");
    let file = folder.join("class.npy");
    let mlp = graph("mlp.pb");
    let save = format!("--save=probabilities={}", file.display());
    let never = "--timeout=1.8e19";
    let feed = "--feed=x=[[1,2,3,4]]";
    let first = json(&thalweg(&[
        "run",
        &mlp,
        feed,
        "--feed=keep=1",
        "--fetch=class",
        "--json",
        &save,
        never,
    ]));
    assert_eq!(first["fetches"]["class"]["dtype"], "int64");
    assert!(first["fetches"].get("probabilities").is_none(), "saved, not shown");
    // What was saved feeds the same tensor again.
    let feed = format!("--feed=probabilities=@{}", file.display());
    let text = thalweg(&["run", &mlp, &feed, "--fetch=probabilities"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("probabilities: float [1,3]\n[["), "{text}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing but the file is left");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_timeline_has_what_perfetto_needs() {
    let folder = folder("trace");
    let file = folder.join("trace.json");
    let functions = graph("functions.pb");
    let trace = format!("--trace={}", file.display());
    json(&thalweg(&[
        "run",
        &functions,
        "--feed=x=[1,2,3]",
        "--fetch=y",
        "--json",
        &trace,
        "--repeat=3",
    ]));
    let timeline: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let spans: Vec<&Json> = events.iter().filter(|e| e["ph"] == "X").collect();
    assert!(!spans.is_empty());
    for span in spans {
        assert!(span["name"].is_string() && span["pid"].is_u64() && span["tid"].is_u64(), "{span}");
        assert!(span["ts"].as_f64().unwrap() >= 0.0 && span["dur"].as_f64().unwrap() >= 0.0);
    }
    assert!(events.iter().any(|e| e["ph"] == "M" && e["name"] == "process_name"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_a_fetch_the_graph_is_listed() {
    let output = thalweg(&["run", &graph("mlp.pb")]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "x     float [?,4]",
        "keep  float []",
        "probabilities  float [?,3]",
        "class          int64 [?]",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn mistakes_are_named() {
    let mlp = &graph("mlp.pb");
    let json = &graph("mlp.json");
    let folder = graphs();
    let folder = folder.to_str().unwrap();
    let x = "--feed=x=[[1,2,3,4]]";
    let fetch = "--fetch=class";
    for (args, code, words) in [
        (vec!["nonsense"], 2, vec!["unrecognized subcommand"]),
        (vec!["run", mlp, fetch, "--threads=0"], 2, vec!["--threads"]),
        (vec!["run", mlp, fetch, "--timeout=-1"], 2, vec!["--timeout", "above 0"]),
        (vec!["run", mlp, fetch, "--timeout=nan"], 2, vec!["--timeout"]),
        (vec!["run", mlp, fetch, "--timeout=1e300"], 2, vec!["--timeout"]),
        (vec!["run", mlp, fetch, "--feed=x"], 2, vec!["NAME=VALUE"]),
        (vec!["run", "no_such_file.pb", fetch], 1, vec!["NOT_FOUND", "no_such_file.pb"]),
        (vec!["run", folder, fetch], 1, vec!["NOT_FOUND", "neither saved_model.pb nor"]),
        (
            vec!["run", json, fetch],
            1,
            vec!["not a GraphDef", "read as binary", "read as text: line 1"],
        ),
        (vec!["run", "/dev/null", fetch], 1, vec!["the file is empty"]),
        (vec!["run", mlp, "--fetch=clas"], 1, vec!["NOT_FOUND", "did you mean 'class'"]),
        (vec!["run", mlp, "--fetch=class:7"], 1, vec!["INVALID_ARGUMENT", "one output"]),
        (
            vec!["run", mlp, "--fetch=class:x"],
            1,
            vec!["INVALID_ARGUMENT", "not the name of a tensor"],
        ),
        (vec!["run", mlp, "--target=clas"], 1, vec!["NOT_FOUND", "did you mean 'class'"]),
        (vec!["run", mlp, fetch, x], 1, vec!["INVALID_ARGUMENT", "'keep'"]),
        (
            vec!["run", mlp, fetch, "--feed=x=[1]"],
            1,
            vec!["INVALID_ARGUMENT", "shape [1]", "[?,4]"],
        ),
        (vec!["run", mlp, fetch, "--feed=keep=a"], 1, vec!["INVALID_ARGUMENT", "not a number"]),
        (vec!["run", mlp, fetch, "--feed=keep=@nothing.npy"], 1, vec!["NOT_FOUND", "nothing.npy"]),
        (
            vec!["run", mlp, fetch, &format!("--feed=keep=@{mlp}")],
            1,
            vec!["INVALID_ARGUMENT", "mlp.pb"],
        ),
        (
            vec!["run", mlp, fetch, "--save=class=/no/such/folder/x.npy"],
            1,
            vec!["NOT_FOUND", "folder"],
        ),
        (vec!["run", mlp, fetch, x, x], 1, vec!["INVALID_ARGUMENT", "fed twice"]),
        (
            vec!["run", &graph("variables.pb"), "--fetch=y"],
            1,
            vec!["FAILED_PRECONDITION", "--init init"],
        ),
    ] {
        refused(&args, code, &words);
    }
}

#[test]
fn ops_are_listed() {
    let list = json(&thalweg(&["ops", "--json"]));
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 1908);
    let find = |op: &str| list.iter().find(|e| e["op"] == op).unwrap();
    let mul = find("Mul");
    assert_eq!((&mul["supported"], &mul["gradient"]), (&true.into(), &true.into()));
    assert!(mul["dtypes"].as_array().unwrap().contains(&"float".into()));
    assert_eq!(mul["golden_passed"], mul["golden_total"]);
    assert!(mul["golden_total"].as_u64().unwrap() > 10);
    assert_eq!(find("XlaSend")["supported"], false);
    let text = String::from_utf8(thalweg(&["ops"]).stdout).unwrap();
    assert_eq!(text.lines().count(), 1908 + 2);
    assert!(text.ends_with("ops are supported\n"), "{text}");
}

/// A graph file of these nodes.
fn graph_of(folder: &Path, nodes: &str) -> String {
    let file = folder.join("graph.pbtxt");
    std::fs::write(&file, nodes).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn check_names_what_is_missing() {
    let folder = folder("check");
    let file = graph_of(
        &folder,
        r#"node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } } }
        node { name: "sent" op: "XlaSend" input: "x" attr { key: "T" value { type: DT_BOOL } }
            attr { key: "tensor_name" value { s: "t" } } }
        node { name: "strange" op: "NoSuchOp" }
        node { name: "loud" op: "NoOp" attr { key: "volume" value { i: 11 } } }
        node { name: "y" op: "Tanh" input: "x" attr { key: "T" value { type: DT_BOOL } } }"#,
    );
    let output = thalweg(&["check", &file]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for words in
        ["op XlaSend", "needed by sent", "op NoSuchOp", "attr NoOp", "volume", "dtype Tanh"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let shown = json_of(&thalweg(&["check", &file, "--json"]));
    assert_eq!(shown["nodes"], 5);
    assert_eq!(shown["unsupported"].as_array().unwrap().len(), 4, "{shown}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// What was printed, whatever the exit code.
fn json_of(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn check_passes_what_runs() {
    let mut checked = 0;
    for entry in std::fs::read_dir(graphs()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "pb") {
            let output = thalweg(&["check", path.to_str().unwrap()]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {error}", path.display());
            checked += 1;
        }
    }
    assert!(checked >= 4, "{checked} graphs");
    refused(&["check", "/nosuchfile"], 1, &["/nosuchfile"]);
    refused(&["check", "/"], 1, &["saved_model.pb"]);
}

#[test]
fn help_is_one_sentence_and_groups_of_commands() {
    let output = thalweg(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let about =
        "Run, train and serve TensorFlow graphs and SavedModels on one machine or a cluster";
    assert_eq!(lines.next(), Some(about));
    let headings: Vec<&str> = lines.filter(|l| l.ends_with(':') && !l.starts_with(' ')).collect();
    let expected = ["Run graphs:", "Train:", "Plan:", "Serve models:", "Clusters:", "Files:"];
    assert_eq!(headings[..6], expected);
    refused(&["srve"], 2, &["unrecognized subcommand 'srve'", "'serve'"]);
    refused(&["serve", "--prot", "1"], 2, &["'--prot'", "a similar argument exists: '--port'"]);
    refused(&["run", "x", "--timeout", "-1"], 2, &["'--timeout <SECONDS>': it must be above 0"]);
    refused(&["health", "--timeout", "0"], 2, &["'--timeout <SECONDS>': it must be above 0"]);
}

#[test]
fn completions_are_scripts_that_their_shells_take() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = thalweg(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["quickstart", "skip-bad", "http-port"] {
            assert!(script.contains(word), "{shell} has no {word}");
        }
    }
    // The one shell that is everywhere: the script completes a command and its flags.
    let script = String::from_utf8(thalweg(&["completions", "bash"]).stdout).unwrap();
    let asks = "COMP_WORDS=(thalweg che); COMP_CWORD=1; _thalweg thalweg che thalweg; \
                echo \"${COMPREPLY[@]}\"; \
                COMP_WORDS=(thalweg health --se); COMP_CWORD=2; _thalweg thalweg --se health; \
                echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash").arg("-c").arg(format!("{script}\n{asks}")).output().unwrap();
    let said = String::from_utf8(bash.stdout).unwrap();
    assert_eq!(said, "check checkpoint\n--server\n", "{}", String::from_utf8_lossy(&bash.stderr));
    refused(&["completions", "tcsh"], 2, &["'tcsh'", "bash, elvish, fish, powershell, zsh"]);
}

#[test]
fn manual_pages_are_printed_and_written() {
    let page = String::from_utf8(thalweg(&["man", "cluster", "up"]).stdout).unwrap();
    assert!(page.contains("\n.TH THALWEG-CLUSTER-UP 1 "), "{page}");
    assert!(page.contains("\\-\\-foreground") && page.contains(".SH \"EXIT STATUS\""), "{page}");
    let folder = folder("man");
    let pages = folder.join("man1");
    let output = thalweg(&["man", "--output", pages.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    let mut files: Vec<String> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(said, format!("{} manual pages in {}\n", files.len(), pages.display()));
    for file in ["thalweg.1", "thalweg-run.1", "thalweg-checkpoint-diff.1", "thalweg-man.1"] {
        assert!(files.iter().any(|f| f == file), "{file}: {files:?}");
    }
    let taken = folder.join("taken");
    std::fs::write(&taken, "").unwrap();
    refused(&["man", "--output", taken.to_str().unwrap()], 1, &["--output", "taken"]);
    refused(&["man", "clutser"], 2, &["there is no command 'thalweg clutser'", "cluster"]);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The page of the book is what the program prints.
#[test]
fn the_book_lists_the_flags_that_there_are() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/src/reference/commands.md");
    let printed = String::from_utf8(thalweg(&["man", "--markdown"]).stdout).unwrap();
    let stands = std::fs::read_to_string(page).unwrap();
    assert!(printed == stands, "docs/src/reference/commands.md is stale: run `cargo xtask docs`");
}
