//! Which crate may use which: arrows only go down.

use super::Problem;
use crate::source::{File, crate_of};

/// A crate, and the crates of the workspace that it may use directly.
const ALLOWED: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("tensor", &["proto"]),
    ("formats", &["proto", "tensor"]),
    ("graph", &["proto", "tensor"]),
    ("hlo", &["tensor"]),
    ("kernel", &["proto", "tensor", "formats", "graph", "hlo"]),
    ("ops", &["proto", "tensor", "formats", "graph", "hlo", "kernel"]),
    ("plan", &["proto", "tensor", "graph", "hlo", "kernel"]),
    ("accel", &["tensor", "graph", "hlo", "kernel", "plan"]),
    ("runtime", &["proto", "tensor", "formats", "graph", "kernel", "plan"]),
    ("rpc", &["tensor", "formats", "kernel"]),
    ("cluster", &["proto", "tensor", "graph", "kernel", "plan", "runtime", "rpc"]),
    ("serve", &["proto", "tensor", "formats", "kernel", "runtime", "rpc"]),
    ("storage", &["proto", "tensor", "formats"]),
    ("api", &["tensor", "formats", "graph", "kernel", "ops", "runtime", "cluster", "storage"]),
    (
        "train",
        &["tensor", "formats", "graph", "kernel", "ops", "runtime", "cluster", "storage", "api"],
    ),
    ("sim", &["proto", "tensor", "graph", "kernel", "ops", "plan", "runtime", "api", "train"]),
    (
        "dashboard",
        &[
            "proto", "tensor", "formats", "graph", "kernel", "ops", "plan", "runtime", "cluster",
            "sim",
        ],
    ),
    (
        "cli",
        &[
            "proto",
            "tensor",
            "formats",
            "graph",
            "kernel",
            "ops",
            "plan",
            "accel",
            "runtime",
            "cluster",
            "serve",
            "storage",
            "api",
            "train",
            "sim",
            "dashboard",
        ],
    ),
];

/// Crates that talk to the world outside the process.
const EDGES: &[&str] = &["rpc", "cluster", "serve", "storage", "dashboard", "cli"];

/// Crates from outside that bring sockets or an async runtime; only [`EDGES`] may have them.
const EDGE_ONLY: &[&str] = &["tokio", "tonic", "hyper", "h2", "axum", "mio", "socket2", "reqwest"];

pub(super) fn check(files: &[File]) -> Vec<Problem> {
    let manifests = files.iter().filter(|f| f.path.ends_with("/Cargo.toml"));
    manifests
        .flat_map(|f| crate_of(&f.path).map_or_else(Vec::new, |name| manifest(f, name)))
        .collect()
}

fn manifest(file: &File, name: &str) -> Vec<Problem> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
        let what = format!(
            "crate '{name}' is not in the table of allowed edges (xtask/src/tidy/edges.rs)"
        );
        return vec![Problem::new(file, 1, what)];
    };
    let mut problems = Vec::new();
    for (line, section, dependency) in dependencies(&file.text) {
        if EDGE_ONLY.contains(&dependency) && !EDGES.contains(&name) {
            let what =
                format!("'{name}' may not use {dependency}: sockets occur only at the edges");
            problems.push(Problem::new(file, line, what));
        }
        // Tests may look at anything: cargo itself refuses what would be a cycle.
        let Some(used) = dependency.strip_prefix("thalweg-") else { continue };
        if section != "dev-dependencies" && !allowed.contains(&used) {
            let what = format!("'{name}' may not use '{used}', only {allowed:?}");
            problems.push(Problem::new(file, line, what));
        }
    }
    problems
}

/// Line, section and name of each dependency in a manifest.
fn dependencies(text: &str) -> Vec<(usize, &str, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            // `[target.'cfg(unix)'.dependencies]` ends as `[dependencies]` does.
            section = header.trim_end_matches(']').rsplit('.').next().unwrap_or("");
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let end = line.find([' ', '.', '=']).unwrap_or(line.len());
            found.push((i + 1, section, &line[..end]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        check(&[file]).into_iter().map(|p| format!("{}: {}", p.line, p.what)).collect()
    }

    #[test]
    fn arrows_go_down() {
        let up = "[dependencies]\nthalweg-proto.workspace = true\nthalweg-kernel.workspace = true\n\
                  [dev-dependencies]\nthalweg-ops.workspace = true\n";
        assert_eq!(
            problems("crates/graph/Cargo.toml", up),
            ["3: 'graph' may not use 'kernel', only [\"proto\", \"tensor\"]"]
        );
        assert_eq!(problems("crates/ops/Cargo.toml", up), [""; 0]);
    }

    #[test]
    fn sockets_stay_outside() {
        let text = "[target.'cfg(unix)'.dependencies]\ntokio = { version = \"1\" }\n";
        assert_eq!(
            problems("crates/runtime/Cargo.toml", text),
            ["2: 'runtime' may not use tokio: sockets occur only at the edges"]
        );
    }

    #[test]
    fn new_crates_need_a_row() {
        assert_eq!(problems("crates/novel/Cargo.toml", "").len(), 1);
    }
}
