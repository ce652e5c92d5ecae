//! `cargo xtask docs`: the parts of `docs/` that are made from the code.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::run;

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

/// Writes every generated file.
pub(crate) fn write() -> Result<()> {
    write_results()?;
    for (path, command) in GENERATED {
        let text = run::output(&mut run::cargo(command))?;
        std::fs::write(run::root().join(path), text)
            .with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Plays the recorded cases and writes down how they fare. That fewer pass than before is a
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

/// Ops of which fewer cases pass in `after` than in `before`.
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

/// Fails if a generated file is not what the code makes of it now, or if a link leads nowhere.
pub(crate) fn check() -> Result<()> {
    for (path, command) in GENERATED {
        let fresh = run::output(&mut run::cargo(command))?;
        let stands = std::fs::read_to_string(run::root().join(path)).unwrap_or_default();
        ensure!(stands == fresh, "{path} is stale: run `cargo xtask docs`");
    }
    check_links()
}

/// Relative links in Markdown lead to files that are there.
fn check_links() -> Result<()> {
    let mut broken = Vec::new();
    for file in crate::source::files()?.iter().filter(|f| f.path.ends_with(".md")) {
        let folder = run::root().join(&file.path).parent().map(ToOwned::to_owned);
        for target in links(&file.text) {
            let path = target.split('#').next().unwrap_or_default();
            let is_local = !path.is_empty() && !path.contains("://");
            if is_local && !folder.as_ref().is_some_and(|f| f.join(path).exists()) {
                broken.push(format!("{}: ({target})", file.path));
            }
        }
    }
    ensure!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
    Ok(())
}

/// Targets of `[text](target)` outside code blocks.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Code between single backquotes has no links either.
        for plain in line.split('`').step_by(2) {
            for (at, mark) in plain.match_indices("](") {
                let rest = &plain[at + mark.len()..];
                found.extend(rest.find(')').map(|end| &rest[..end]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_count_that_goes_down_is_seen() {
        assert!(super::fewer("A 2 3\nB 1 1\n", "A 3 3\nB 1 1\nC 0 1\n").is_empty());
        assert_eq!(super::fewer("A 2 3\nB 1 1\n", "A 1 3\n"), ["A", "B"]);
    }

    #[test]
    fn links_in_code_are_none() {
        let text = "see [a](b.md#c) and `x[i](j)`\n```\n[d](e)\n```\n[f](g)";
        assert_eq!(super::links(text), ["b.md#c", "g"]);
    }
}
