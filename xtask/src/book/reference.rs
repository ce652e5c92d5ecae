//! The reference pages say what the source says: variables, metrics and limits.

use std::collections::BTreeSet;

use super::text_of;
use crate::source::{self, File};

const ENVIRONMENT: &str = "docs/src/reference/environment.md";
const METRICS: &str = "docs/src/reference/metrics.md";
const LIMITS: &str = "docs/src/reference/limits.md";
const COMMANDS: &str = "docs/src/reference/commands.md";
const TROUBLESHOOTING: &str = "docs/src/how-to/troubleshooting.md";

/// Words in capitals in the source that are no environment variables of the program. A new one
/// belongs here or into the page.
const NO_VARIABLES: &[&str] = &[
    "ALREADY_EXISTS",
    "CARGO_PKG_VERSION",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "F8_E4M3",
    "F8_E5M2",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "NO_MASK",
    "NO_TRANSPOSE",
    "OUT_DIR",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "REDUCED_REDUNDANCY",
    "RESOURCE_EXHAUSTED",
    "VARIABLE_VALUE",
    "XLA_CPU",
];

/// Flags of other programs, and those of TensorFlow Serving that are refused.
const OTHER_FLAGS: &[&str] = &[
    "--all",
    "--chief_hosts",
    "--example",
    "--exit-code-from",
    "--features",
    "--filter",
    "--grpc_socket_path",
    "--large",
    "--learning_rate",
    "--list",
    "--release",
    "--rm",
    "--ssl_config_file",
    "--task_id",
    "--ulimit",
    "--version",
];

/// Crates whose words in capitals are names of dtypes, ops and attrs.
const WITHOUT_VARIABLES: &[&str] = &["crates/api/", "crates/graph/", "crates/ops/"];

/// What ships: the library and the command, without tests.
fn shipped(files: &[File]) -> impl Iterator<Item = &File> {
    let is_part = |path: &str| {
        path.starts_with("src/") || (path.starts_with("crates/") && path.contains("/src/"))
    };
    files.iter().filter(move |f| f.is_rust() && !f.is_test() && is_part(&f.path))
}

/// String literals of what ships, but for those of tests.
fn literals(file: &File) -> Vec<String> {
    let code = source::code(source::without_tests(&file.text));
    code.strings.into_iter().map(|(_, text)| text).collect()
}

/// Every variable in the source is in the page, and the reverse.
pub(super) fn environment(files: &[File]) -> Vec<String> {
    let mut read = BTreeSet::new();
    for file in shipped(files).filter(|f| !WITHOUT_VARIABLES.iter().any(|c| f.path.starts_with(c)))
    {
        read.extend(literals(file).into_iter().filter(|text| is_variable(text)));
    }
    read.retain(|name| !NO_VARIABLES.contains(&name.as_str()));
    let is_there = |name: &str| shipped(files).any(|file| file.text.contains(name));
    compare(files, ENVIRONMENT, &read, is_there)
}

/// Capitals and digits in several words: `TF_CONFIG`.
fn is_variable(text: &str) -> bool {
    let word =
        |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    text.contains('_')
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.split('_').all(word)
}

/// Every metric in the source is in the page, and the reverse.
pub(super) fn metrics(files: &[File]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for file in shipped(files).filter(|f| f.text.contains("# TYPE ") || f.text.contains("# HELP "))
    {
        names.extend(literals(file).iter().filter_map(|text| metric(text)));
    }
    compare(files, METRICS, &names, |name| names.contains(name))
}

/// The metric whose name is a literal, or begins one.
fn metric(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let name = &text[..end.unwrap_or(text.len())];
    let is_name = name.starts_with(":tensorflow:") || name.starts_with("thalweg_");
    is_name.then(|| name.to_owned())
}

/// The names in the first column of a page's tables, and those of the source, are the same.
fn compare(
    files: &[File],
    page: &str,
    source: &BTreeSet<String>,
    is_there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let Some(text) = text_of(files, page) else { return vec![format!("{page} is missing")] };
    let told: BTreeSet<String> = rows(text).flat_map(|(_, row)| quoted(row.first())).collect();
    let missing = source.difference(&told).map(|name| format!("{page}: {name} is not in a table"));
    let gone = told.iter().filter(|name| !is_there(name));
    missing.chain(gone.map(|name| format!("{page}: the source has no {name}"))).collect()
}

/// Every flag that a page names is one of the generated list of commands, in kebab-case or as
/// TensorFlow Serving spells it, or of another program.
pub(super) fn flags(files: &[File]) -> Vec<String> {
    let Some(text) = text_of(files, COMMANDS) else {
        return vec![format!("{COMMANDS} is missing")];
    };
    let known: BTreeSet<&str> = text.lines().flat_map(flags_of).collect();
    let mut problems = Vec::new();
    for page in super::pages(files).filter(|page| page.path != COMMANDS) {
        for (i, line) in page.text.lines().enumerate() {
            let is_known = |flag: &str| {
                let kebab = flag.replace('_', "-");
                known.contains(flag) || known.contains(&*kebab) || OTHER_FLAGS.contains(&flag)
            };
            for flag in flags_of(line).filter(|flag| !is_known(flag)) {
                problems.push(format!("{}:{}: no command has {flag}", page.path, i + 1));
            }
        }
    }
    problems
}

/// The words of a line that begin with two hyphens and a letter.
fn flags_of(line: &str) -> impl Iterator<Item = &str> {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    line.match_indices("--").filter_map(move |(at, _)| {
        let word = &line[at..];
        let end = word.find(|c: char| !is_inside(c)).unwrap_or(word.len());
        let starts = !line[..at].ends_with(is_inside);
        let is_flag = word[2..].starts_with(|c: char| c.is_ascii_lowercase());
        (starts && is_flag).then_some(&word[..end])
    })
}

/// Each row of the limits ends in a file of the source and words that stand there.
pub(super) fn limits(files: &[File]) -> Vec<String> {
    let Some(text) = text_of(files, LIMITS) else { return vec![format!("{LIMITS} is missing")] };
    let mut problems = Vec::new();
    for (line, row) in rows(text) {
        let told = quoted(row.last());
        let [path, words] = &told[..] else {
            problems.push(format!("{LIMITS}:{line}: the last column is `FILE`: `words of it`"));
            continue;
        };
        let problem = match text_of(files, path) {
            None => format!("{path} is not there"),
            Some(source) if !source.contains(words.as_str()) => {
                format!("'{words}' is not in {path}: has the limit changed?")
            }
            Some(_) => continue,
        };
        problems.push(format!("{LIMITS}:{line}: {problem}"));
    }
    problems
}

/// Each message of the troubleshooting page is one of the source: the first column, where `...`
/// stands for what differs from time to time.
pub(super) fn messages(files: &[File]) -> Vec<String> {
    let Some(text) = text_of(files, TROUBLESHOOTING) else {
        return vec![format!("{TROUBLESHOOTING} is missing")];
    };
    let sources: Vec<String> = shipped(files).map(|file| joined(&file.text)).collect();
    let mut problems = Vec::new();
    for (line, row) in rows(text) {
        for message in quoted(row.first()) {
            let parts: Vec<&str> = message.split("...").filter(|part| part.len() > 3).collect();
            // All in one file: several messages may have a part in common.
            let has_all = |source: &String| parts.iter().all(|part| source.contains(*part));
            if parts.is_empty() || !sources.iter().any(has_all) {
                problems.push(format!("{TROUBLESHOOTING}:{line}: the source has no '{message}'"));
            }
        }
    }
    problems
}

/// A source whose string literals do not go over several lines.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// Lines (from 1) and cells of the rows of tables, without their heads.
fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &&str| line.starts_with("|--");
    let row = move |i: usize| {
        let cells = lines[i].strip_prefix("| ")?.trim_end().strip_suffix('|')?;
        let is_head = lines.get(i + 1).is_some_and(is_rule);
        (!is_head).then(|| (i + 1, cells.split(" | ").map(str::trim).collect()))
    };
    (0..text.lines().count()).filter_map(row)
}

/// What stands between backquotes in a cell.
fn quoted(cell: Option<&&str>) -> Vec<String> {
    let cell = cell.copied().unwrap_or_default();
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn variables_and_metrics_are_recognised() {
        assert!(is_variable("TF_CONFIG") && is_variable("S3_ENDPOINT"));
        assert!(!is_variable("CONFIG") && !is_variable("A_b") && !is_variable("_A"));
        assert_eq!(metric("thalweg_x_total{a} ").as_deref(), Some("thalweg_x_total"));
        assert_eq!(metric("request_count"), None);
    }

    #[test]
    fn an_outdated_table_is_found() {
        let source =
            "fn f() { env::var(\"A_B\"); var(\"C_D\") }\n#[cfg(test)]\nmod tests { \"E_F\" }";
        let page = "| variable | what |\n|---|---|\n| `A_B` | `not this` |\n| `X_Y` | |\n";
        let files = [file("crates/cli/src/a.rs", source), file(ENVIRONMENT, page)];
        let expected = [
            format!("{ENVIRONMENT}: C_D is not in a table"),
            format!("{ENVIRONMENT}: the source has no X_Y"),
        ];
        assert_eq!(environment(&files), expected);
    }

    #[test]
    fn messages_are_those_of_the_source() {
        let source = "err!(NotFound, \"no {what} in \\\n    the {place}\")";
        let page =
            "| message | cause |\n|---|---|\n| `no ... in the ...` | a |\n| `nobody` | b |\n";
        let files = [file("crates/x/src/a.rs", source), file(TROUBLESHOOTING, page)];
        assert_eq!(messages(&files), [format!("{TROUBLESHOOTING}:4: the source has no 'nobody'")]);
    }

    #[test]
    fn flags_that_no_command_has_are_found() {
        let page =
            "`--model_name`, `--folder DIR`, cargo --release, -->, a--b, `--port 0`\n|---|\n";
        let files = [
            file(COMMANDS, "- `--model-name NAME`: x\n- `--port N`: y\n"),
            file("docs/src/a.md", page),
        ];
        assert_eq!(flags(&files), ["docs/src/a.md:1: no command has --folder"]);
    }

    #[test]
    fn limits_are_those_of_the_source() {
        let page = "| what | limit | where |\n|---|---|---|\n\
            | a | 5 | `crates/x/src/a.rs`: `A: u32 = 5` |\n\
            | b | 6 | `crates/x/src/a.rs`: `B: u32 = 7` |\n| c | 1 | |\n";
        let files = [file("crates/x/src/a.rs", "const A: u32 = 5;"), file(LIMITS, page)];
        let problems = limits(&files);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("docs/src/reference/limits.md:4: 'B: u32 = 7'"));
    }
}
