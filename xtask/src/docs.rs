//! `cargo xtask docs`: the parts of `docs/` that are made from the code, and the book around them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::{book, run};

/// A generated file, and the cargo command that prints it.
const GENERATED: &[(&str, &[&str])] = &[
    (
        "docs/src/reference/ops.md",
        &["run", "--quiet", "--package", "thalweg", "--", "ops", "--markdown"],
    ),
    (
        "docs/src/reference/commands.md",
        &["run", "--quiet", "--package", "thalweg", "--", "man", "--markdown"],
    ),
];

/// How many recorded cases pass for each op; the golden test tells when it is stale.
const RESULTS: &str = "crates/ops/src/golden_results.txt";

/// Writes every generated file, checks the book and makes its site.
pub(crate) fn write() -> Result<()> {
    write_results()?;
    crate::api::write()?;
    for (path, command) in GENERATED {
        let text = run::output(&mut run::cargo(command))?;
        std::fs::write(run::root().join(path), text)
            .with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    book::check()?;
    book::build()
}

/// Runs the recorded cases and writes down how many pass. That fewer pass than before is a
/// mistake, not news.
fn write_results() -> Result<()> {
    let path = run::root().join(RESULTS);
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let fresh = run::target_dir().join("golden_results.txt");
    let test =
        ["test", "--quiet", "--package", "thalweg-runtime", "--test", "golden", "as_planned"];
    run::check(run::cargo(&test).env("GOLDEN_RESULTS", &fresh))?;
    let after = std::fs::read_to_string(&fresh).context("the golden test wrote no results")?;
    let fewer = fewer(&before, &after);
    ensure!(fewer.is_empty(), "fewer recorded cases pass than before: {}", fewer.join(", "));
    std::fs::write(&path, after).with_context(|| format!("cannot write {RESULTS}"))?;
    println!("wrote {RESULTS}");
    Ok(())
}

/// Ops with fewer passing cases in `after` than in `before`.
fn fewer(before: &str, after: &str) -> Vec<String> {
    let passed = |text: &str| -> BTreeMap<String, usize> {
        let line = |l: &str| {
            let mut words = l.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    };
    let now = passed(after);
    let is_less = |(op, count): &(String, usize)| now.get(op).copied().unwrap_or(0) < *count;
    passed(before).into_iter().filter(is_less).map(|(op, _)| op).collect()
}

/// Fails if a generated file is not what the code makes of it now, or if the book is not as it
/// should be.
pub(crate) fn check() -> Result<()> {
    // First what needs no build.
    book::check()?;
    crate::api::check()?;
    for (path, command) in GENERATED {
        let fresh = run::output(&mut run::cargo(command))?;
        let stands = std::fs::read_to_string(run::root().join(path)).unwrap_or_default();
        ensure!(stands == fresh, "{path} is stale: run `cargo xtask docs`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_count_that_goes_down_is_seen() {
        assert!(super::fewer("A 2 3\nB 1 1\n", "A 3 3\nB 1 1\nC 0 1\n").is_empty());
        assert_eq!(super::fewer("A 2 3\nB 1 1\n", "A 1 3\n"), ["A", "B"]);
    }
}
