//! `cargo xtask docs`: the parts of `docs/` that are made from the code.

use anyhow::{Context, Result, ensure};

use crate::run;

/// A generated file, and the cargo command that prints it.
const GENERATED: &[(&str, &[&str])] = &[(
    "docs/ops.md",
    &["run", "--quiet", "--package", "thalweg-ops", "--example", "ops_reference"],
)];

/// Writes every generated file.
pub(crate) fn write() -> Result<()> {
    for (path, command) in GENERATED {
        let text = run::output(&mut run::cargo(command))?;
        std::fs::write(run::root().join(path), text)
            .with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
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
    fn links_in_code_are_none() {
        let text = "see [a](b.md#c) and `x[i](j)`\n```\n[d](e)\n```\n[f](g)";
        assert_eq!(super::links(text), ["b.md#c", "g"]);
    }
}
