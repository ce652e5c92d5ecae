//! The rules on single files.

use std::collections::BTreeSet;

use super::Problem;
use crate::source::{self, File, code, crate_of};

/// Files and folders in which `unsafe` may stand.
pub(crate) const UNSAFE: &[&str] = &[
    "crates/tensor/",
    "crates/ops/",
    "crates/accel/src/pjrt/raw/",
    "crates/formats/src/storage/map.rs",
    "crates/cluster/src/network/stream/incoming_tensor.rs",
    "crates/cluster/src/network/stream/ring.rs",
    "crates/runtime/src/execute/",
    "crates/runtime/src/pool/mod.rs",
    "crates/serve/src/idle_priority.rs",
    "benches/ours/src/peak.rs",
];

/// Files and folders that may read a clock or start a thread. Kernels take time and threads from
/// their context, so that a simulator can own both.
const CLOCKS_AND_THREADS: &[&str] = &[
    // A client cannot be closed on a thread of its own.
    "crates/accel/src/pjrt/raw/client.rs",
    // The time at which a file was last used.
    "crates/accel/src/programs.rs",
    "crates/runtime/src/execute/deadline.rs",
    "crates/runtime/src/environment.rs",
    "crates/runtime/src/pool/mod.rs",
    "crates/runtime/src/pool/blocking.rs",
    "crates/serve/src/idle_priority.rs",
    "crates/storage/src/clock.rs",
    // Clients of sessions, which may have threads of their own.
    "crates/cli/",
    "crates/train/examples/",
    "crates/train/src/chief.rs",
    "crates/train/src/trainer/monitor.rs",
    "examples/",
    "xtask/",
    "benches/",
];

/// Crates in which no socket may occur: all that exist so far.
const NO_SOCKETS: &[&str] =
    &["proto", "tensor", "graph", "kernel", "ops", "accel", "plan", "runtime"];

/// Files and folders that may write to standard output or standard error. All other code of the
/// libraries logs by `tracing`.
const PRINTS: &[&str] = &[
    // What a command prints is its result, a failure included.
    "crates/cli/",
    // A build script talks to cargo.
    "crates/proto/build.rs",
    // `Print` and `PrintV2` write to these streams.
    "crates/ops/src/debug.rs",
    // The progress of a training on its caller's terminal.
    "crates/train/src/trainer/screen.rs",
];

/// Hosts that a text may name.
const HOSTS: &[&str] = &[
    "doc.rust-lang.org",
    "docs.rs",
    "github.com",
    "numpy.org",
    "rustup.rs",
    "sh.rustup.rs",
    // The name of a metadata segment in JPEG files.
    "ns.adobe.com",
    "ui.perfetto.dev",
    "www.apache.org",
    "www.tensorflow.org",
    // The namespace of SVG files.
    "www.w3.org",
    // Where the digits come from that the training examples learn.
    "yann.lecun.com",
];

/// Crates that may name only structural ops: the others are data to them.
const OP_BLIND: &[&str] = &["plan", "runtime"];

/// Crates that rewrite and run graphs: they recognise ops by their roles.
const ROLE_BASED: &[&str] = &["graph", "plan", "runtime", "cluster"];

/// Ops besides the structural ones of which `plan` makes nodes: floats narrowed for a transfer, references that
/// go on behind a region.
const MADE_BY_PLAN: &[&str] = &["Cast", "RefIdentity"];

const LINES_MAX: usize = 600;

/// Files that are longer, with their length. Entries shrink and go; none is added.
const LONGER: &[(&str, usize)] = &[("crates/ops/src/cast.rs", 665)];

/// A file this much shorter than its entry above needs a lower entry.
const SLACK: usize = 20;

fn under(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| path == *place || place.ends_with('/') && path.starts_with(place))
}

/// Rust that ships: not in a `tests` folder.
fn shipped(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| f.is_rust() && !f.is_test())
}

/// Lines (from 1) on which `word` occurs as a word of its own.
fn lines_with(text: &str, word: &str) -> Vec<usize> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let found = line.match_indices(word).any(|(at, _)| {
            !is_part(line[..at].chars().next_back())
                && !is_part(line[at + word.len()..].chars().next())
        });
        if found {
            lines.push(i + 1);
        }
    }
    lines
}

/// Marks of unfinished work.
pub(super) fn banned_words(files: &[File]) -> Vec<Problem> {
    // Written apart, so that this file does not hold them.
    let anywhere = [concat!("FIX", "ME"), concat!("XX", "X")];
    let in_code = [concat!("dbg", "!"), concat!("todo", "!"), concat!("unimplemented", "!")];
    let mut problems = Vec::new();
    for file in files {
        let code = if file.is_rust() { code(&file.text).text } else { String::new() };
        let said = anywhere.iter().map(|word| (word, &file.text));
        let coded = in_code.iter().map(|word| (word, &code));
        for (word, text) in said.chain(coded) {
            for line in lines_with(text, word) {
                problems.push(Problem::new(file, line, format!("'{word}' is for drafts")));
            }
        }
    }
    problems
}

/// The first line of a module says what it is.
pub(super) fn headers(files: &[File]) -> Vec<Problem> {
    shipped(files)
        .filter(|f| !f.text.starts_with("//! "))
        .map(|f| Problem::new(f, 1, "a file begins with a `//!` line that says what it is"))
        .collect()
}

/// A file of tests is recognised by its name; `testing` holds what tests share.
pub(super) fn test_files(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in shipped(files) {
        for (i, pair) in file.text.lines().collect::<Vec<_>>().windows(2).enumerate() {
            if pair[0].trim() != "#[cfg(test)]" {
                continue;
            }
            let declared = pair[1].trim().trim_start_matches("pub(crate) ");
            let name = declared.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
            if name.is_some_and(|name| name != "testing" && !name.ends_with("_tests")) {
                let what = "a file of tests is called `*_tests.rs`";
                problems.push(Problem::new(file, i + 2, what));
            }
        }
    }
    problems
}

pub(super) fn unsafe_code(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in shipped(files).filter(|f| !under(&f.path, UNSAFE)) {
        for line in lines_with(&code(&file.text).text, "unsafe") {
            problems.push(Problem::new(file, line, "`unsafe` has no place in this file"));
        }
    }
    problems
}

pub(super) fn clocks_and_threads(files: &[File]) -> Vec<Problem> {
    let words =
        ["Instant::now", "SystemTime::now", "thread::spawn", "thread::Builder", "thread::scope"];
    let mut problems = Vec::new();
    for file in shipped(files).filter(|f| !under(&f.path, CLOCKS_AND_THREADS)) {
        if file.path.contains("/examples/") {
            continue;
        }
        let code = code(source::without_tests(&file.text)).text;
        for word in words {
            for line in lines_with(&code, word) {
                let what = format!("{word}: take it from the context or the pool");
                problems.push(Problem::new(file, line, what));
            }
        }
    }
    problems
}

/// Libraries log; they do not print.
pub(super) fn prints(files: &[File]) -> Vec<Problem> {
    let words = ["print!", "println!", "eprint!", "eprintln!", "io::stdout", "io::stderr"];
    let mut problems = Vec::new();
    for file in shipped(files).filter(|f| !under(&f.path, PRINTS)) {
        if !file.path.starts_with("crates/") || file.path.contains("/examples/") {
            continue;
        }
        let code = code(source::without_tests(&file.text)).text;
        for word in words {
            for line in lines_with(&code, word) {
                let what = format!("{word}: log by `tracing`");
                problems.push(Problem::new(file, line, what));
            }
        }
    }
    problems
}

pub(super) fn sockets(files: &[File]) -> Vec<Problem> {
    let words = ["std::net", "std::os::unix::net", "tokio", "async fn"];
    let mut problems = Vec::new();
    for file in shipped(files) {
        if !crate_of(&file.path).is_some_and(|name| NO_SOCKETS.contains(&name)) {
            continue;
        }
        let code = code(&file.text).text;
        for word in words {
            for line in lines_with(&code, word) {
                problems.push(Problem::new(file, line, format!("{word} occurs only at the edges")));
            }
        }
    }
    problems
}

/// Paths of one machine, and hosts that are not on the allow-list.
pub(super) fn places(files: &[File]) -> Vec<Problem> {
    let folders = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
    ];
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.path != "Cargo.lock") {
        for (i, line) in file.text.lines().enumerate() {
            let starts = |at: usize| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '}'))
            };
            for folder in folders {
                if line.match_indices(folder).any(|(at, _)| starts(at)) {
                    let what = format!("{folder} is a path of one machine");
                    problems.push(Problem::new(file, i + 1, what));
                }
            }
            for host in hosts(line).filter(|host| !HOSTS.contains(host)) {
                let what = format!("host {host:?} is not in the list (xtask/src/tidy/rules.rs)");
                problems.push(Problem::new(file, i + 1, what));
            }
        }
    }
    problems
}

/// Hosts of the URLs in a line; placeholders (`http://HOST`, `http://{host}`) are none.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    let after = line.match_indices("://").map(|(at, mark)| (&line[..at], &line[at + mark.len()..]));
    after.filter_map(|(before, rest)| {
        let is_web = before.ends_with("http") || before.ends_with("https");
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-'));
        let host = &rest[..end.unwrap_or(rest.len())];
        (is_web && host.contains('.')).then(|| host.trim_end_matches('.'))
    })
}

/// Long files hide things. Those that are too long may only get shorter.
pub(super) fn file_sizes(files: &[File]) -> Vec<Problem> {
    file_sizes_with(files, LONGER)
}

fn file_sizes_with(files: &[File], longer: &[(&str, usize)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in shipped(files).filter(|file| !file.is_generated()) {
        let lines = source::lines_without_tests(&file.text);
        let entry = longer.iter().find(|(path, _)| *path == file.path).map(|&(_, max)| max);
        let what = match entry {
            Some(max) if lines > max => format!("{lines} lines without tests; it had {max}"),
            Some(_) if lines <= LINES_MAX => "short enough now: take it off the list".into(),
            Some(max) if lines + SLACK < max => format!("{lines} lines now: lower its entry"),
            None if lines > LINES_MAX => format!("{lines} lines without tests, above {LINES_MAX}"),
            _ => continue,
        };
        problems.push(Problem::new(file, 1, what));
    }
    for (path, _) in longer.iter().filter(|(path, _)| files.iter().all(|f| f.path != *path)) {
        let what = format!("{path} is on the list of long files, but is not there");
        problems.push(Problem { path: "xtask/src/tidy/rules.rs".into(), line: 1, what });
    }
    problems
}

/// Ops have roles, which their definitions state; passes and executors do not compare names.
pub(super) fn op_comparisons(files: &[File]) -> Vec<Problem> {
    let is_comparison = |line: &str| {
        line.split_once("op.name").is_some_and(|(before, after)| {
            let after = after.trim_start_matches(".as_str()").trim_start();
            let is_matched = before.contains("match ") || before.contains("matches!(");
            is_matched || after.starts_with("== \"") || after.starts_with("!= \"")
        })
    };
    let mut problems = Vec::new();
    let is_covered = |f: &&File| crate_of(&f.path).is_some_and(|name| ROLE_BASED.contains(&name));
    for file in shipped(files).filter(is_covered) {
        let code = code(source::without_tests(&file.text)).text;
        for (i, _) in code.lines().enumerate().filter(|(_, line)| is_comparison(line)) {
            let what = "compares the name of an op; match on its role".to_owned();
            problems.push(Problem::new(file, i + 1, what));
        }
    }
    problems
}

/// Ops whose meaning lies in the graph itself: those that crate `graph` defines.
fn structural_ops(files: &[File]) -> BTreeSet<String> {
    let graph = shipped(files).filter(|f| crate_of(&f.path) == Some("graph"));
    let lines = graph.flat_map(|f| source::without_tests(&f.text).lines());
    let names = lines.filter_map(|line| line.split_once("name: \"")?.1.split_once('"'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Plans and executors know the structural ops; all others are data to them.
pub(super) fn op_names(files: &[File]) -> Vec<Problem> {
    let list = files.iter().find(|f| f.path == "crates/graph/src/tensorflow_ops.txt");
    let structural = structural_ops(files);
    let ops: BTreeSet<&str> = list
        .into_iter()
        .flat_map(|f| f.text.lines())
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(" |").next())
        .filter(|op| !structural.contains(*op) && !MADE_BY_PLAN.contains(op))
        .collect();
    let mut problems = Vec::new();
    for file in shipped(files) {
        if !crate_of(&file.path).is_some_and(|name| OP_BLIND.contains(&name))
            || file.path.contains("/examples/")
        {
            continue;
        }
        for (line, text) in code(source::without_tests(&file.text)).strings {
            if ops.contains(text.as_str()) {
                let what = format!("names the op {text:?}, which is not structural");
                problems.push(Problem::new(file, line, what));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    fn lines(problems: &[Problem]) -> Vec<usize> {
        problems.iter().map(|p| p.line).collect()
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(lines_with("an unsafe word\nunsafely\nnot_unsafe\n(unsafe)", "unsafe"), [1, 4]);
    }

    #[test]
    fn drafts_are_found() {
        let draft = file("a.md", concat!("FIX", "ME: later\nfine"));
        assert_eq!(lines(&banned_words(&[draft])), [1]);
        let quoted = file("a.rs", concat!("//! \"dbg", "!\"\nlet x = \"todo", "!\";\n"));
        assert_eq!(lines(&banned_words(&[quoted])), [0; 0]);
        let called = file("a.rs", concat!("fn f() {\n    todo", "!()\n}"));
        assert_eq!(lines(&banned_words(&[called])), [2]);
    }

    #[test]
    fn headers_are_asked_for() {
        assert_eq!(lines(&headers(&[file("crates/x/src/a.rs", "use b;\n")])), [1]);
        assert!(headers(&[file("crates/x/tests/a.rs", "use b;\n")]).is_empty());
    }

    #[test]
    fn test_files_are_named_so() {
        let text = "//! x\n#[cfg(test)]\nmod a_tests;\n#[cfg(test)]\nmod model;\n";
        assert_eq!(lines(&test_files(&[file("crates/x/src/a.rs", text)])), [5]);
        let inline = "//! x\n#[cfg(test)]\nmod tests {\n}\n";
        assert!(test_files(&[file("crates/x/src/a.rs", inline)]).is_empty());
    }

    #[test]
    fn unsafe_stays_where_it_is() {
        let text = "//! x\nfn f() { unsafe { g() } }\n";
        assert_eq!(lines(&unsafe_code(&[file("crates/graph/src/a.rs", text)])), [2]);
        assert!(unsafe_code(&[file("crates/tensor/src/a.rs", text)]).is_empty());
    }

    #[test]
    fn clocks_stay_outside() {
        let text = "//! x\nlet t = Instant::now();\n\n#[cfg(test)]\nmod tests { thread::spawn }\n";
        assert_eq!(lines(&clocks_and_threads(&[file("crates/plan/src/a.rs", text)])), [2]);
    }

    #[test]
    fn libraries_do_not_print() {
        let text = "//! x\nprintln!(1);\neprintln!(2);\nlet x = std::io::stderr();\n";
        assert_eq!(lines(&prints(&[file("crates/plan/src/a.rs", text)])), [2, 3, 4]);
        assert!(prints(&[file("crates/cli/src/a.rs", text)]).is_empty());
    }

    #[test]
    fn places_are_found() {
        let text = concat!(
            "see /ho",
            "me/me/x\nhttps://docs.rs/x and https:/",
            "/evil.example/\n",
            "a/wo",
            "rk/b"
        );
        assert_eq!(lines(&places(&[file("a.md", text)])), [1, 2]);
    }

    #[test]
    fn long_files_only_shrink() {
        let long = |n: usize| file("crates/x/src/a.rs", &"//! x\n".repeat(n));
        let listed = [("crates/x/src/a.rs", 700)];
        let what = |n: usize, list: &[(&str, usize)]| {
            file_sizes_with(&[long(n)], list).into_iter().map(|p| p.what).collect::<Vec<_>>()
        };
        assert_eq!(what(600, &[]), [""; 0]);
        assert_eq!(what(601, &[]), ["601 lines without tests, above 600"]);
        assert_eq!(what(700, &listed), [""; 0]);
        assert_eq!(what(701, &listed), ["701 lines without tests; it had 700"]);
        assert_eq!(what(679, &listed), ["679 lines now: lower its entry"]);
        assert_eq!(what(590, &listed), ["short enough now: take it off the list"]);
    }

    #[test]
    fn ops_are_recognised_by_role() {
        let text = "//! x\nlet a = node.op.name == \"Const\";\nmatch node.op.name.as_str() {}\n\
                    let b = other.op.name == node.op.name;\n";
        assert_eq!(lines(&op_comparisons(&[file("crates/plan/src/a.rs", text)])), [2, 3]);
        assert_eq!(lines(&op_comparisons(&[file("crates/ops/src/a.rs", text)])), [0; 0]);
    }

    #[test]
    fn ops_are_data_to_the_plan() {
        let list = file("crates/graph/src/tensorflow_ops.txt", "# x\nMatMul | a\nConst | b\n");
        let defined = "//! x\nconst CONST: OpDef = OpDef {\n    name: \"Const\",\n};\n";
        let graph = file("crates/graph/src/a.rs", defined);
        let plan = file("crates/plan/src/a.rs", "//! x\nlet a = (\"Const\",\n\"MatMul\");\n");
        assert_eq!(lines(&op_names(&[list, graph, plan])), [3]);
    }
}
