//! `cargo xtask api`: the typed functions of `crates/api/src/tf/`, one for each op that steps can run.
//!
//! They are made from the table that `crates/ops/examples/op_table.rs` prints, which joins the
//! interfaces with the kernels, and from the sentences in `api/sentences.txt`.

mod render;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::run;

const FOLDER: &str = "crates/api/src/tf";

/// The files, each with the first letters of its ops.
const FILES: &[(&str, &str)] = &[
    ("a", "A"),
    ("b", "B"),
    ("c", "C"),
    ("d", "D"),
    ("e_to_h", "EFGH"),
    ("i_to_l", "IJKL"),
    ("m", "M"),
    ("n_to_q", "NOPQ"),
    ("r", "R"),
    ("s", "S"),
    ("t_to_z", "TUVWXYZ"),
];

/// What our own words say of ops: `Name sentence` a line.
const SENTENCES: &str = include_str!("api/sentences.txt");

/// Writes the generated files.
pub(crate) fn write() -> Result<()> {
    for (path, text) in files()? {
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("wrote {FOLDER}");
    Ok(())
}

/// Fails if a generated file is not what the ops make of it now.
pub(crate) fn check() -> Result<()> {
    for (path, text) in files()? {
        let stands = std::fs::read_to_string(&path).unwrap_or_default();
        ensure!(stands == text, "{} is stale: run `cargo xtask api`", path.display());
    }
    Ok(())
}

fn files() -> Result<Vec<(PathBuf, String)>> {
    let example = ["run", "--quiet", "--package", "thalweg-ops", "--example", "op_table"];
    let ops = table::parse(&run::output(&mut run::cargo(&example))?)?;
    let sentences: BTreeMap<&str, &str> =
        SENTENCES.lines().filter_map(|line| line.split_once(' ')).collect();
    for name in sentences.keys() {
        ensure!(ops.iter().any(|op| op.name == *name), "sentences.txt has no op of ours: {name}");
    }
    let mut files = Vec::new();
    for (name, letters) in FILES {
        let mut text = format!(
            "//! Ops {}. Made by `cargo xtask api`: do not edit.\n\nuse super::support::*;\n",
            letters.chars().map(String::from).collect::<Vec<_>>().join(", ")
        );
        for op in ops.iter().filter(|op| op.name.starts_with(|c| letters.contains(c))) {
            text += &render::op(op, sentences.get(&*op.name).copied());
        }
        files.push((run::root().join(FOLDER).join(format!("{name}.rs")), formatted(&text)?));
    }
    Ok(files)
}

/// The text as `cargo fmt` leaves it.
fn formatted(text: &str) -> Result<String> {
    use std::io::Write;
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .current_dir(run::root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt")?;
    let mut stdin = rustfmt.stdin.take().context("rustfmt has no input")?;
    let text = text.to_owned();
    // On a thread of its own: rustfmt may write before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = rustfmt.wait_with_output()?;
    writer.join().ok().context("writing to rustfmt panicked")??;
    ensure!(output.status.success(), "rustfmt refused the generated code");
    Ok(String::from_utf8(output.stdout)?)
}
