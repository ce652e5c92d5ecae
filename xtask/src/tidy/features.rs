//! Each package is built with the same features alone as in the whole workspace.
//!
//! Cargo unifies features over the packages that a command selects. A dependency whose features
//! differ between `--package` and `--workspace` is built twice, and so is everything above it.

use std::collections::BTreeSet;

use anyhow::Result;

use super::Problem;
use crate::run;

/// Dependencies that have other features when their dependent is built alone.
pub(super) fn check() -> Result<Vec<Problem>> {
    let workspace = tree(&["--workspace"])?;
    let together = packages(&workspace);
    let members = tree(&["--workspace", "--depth", "0"])?;
    let names: BTreeSet<&str> = members.lines().filter_map(|l| l.split(' ').next()).collect();
    let mut problems = Vec::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let alone = tree(&["--package", name])?;
        for package in packages(&alone).difference(&together) {
            let what = format!(
                "`--package {name}` builds {package}, which `--workspace` does not: \
                 declare the same features"
            );
            problems.push(Problem { path: "Cargo.toml".into(), line: 1, what });
        }
    }
    Ok(problems)
}

/// Every package of a dependency graph, one per line, with its features.
fn tree(selection: &[&str]) -> Result<String> {
    let tree = ["tree", "--quiet", "--locked", "--prefix", "none", "--format", "{p} [{f}]"];
    run::output(&mut run::cargo(&[&tree[..], selection].concat()))
}

/// The lines of [`tree`]; those of a package whose dependencies stand elsewhere end in `(*)`.
fn packages(tree: &str) -> BTreeSet<&str> {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.filter(|line| line.ends_with(']') && line.contains(" [")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_told_apart_by_their_features() {
        let together = packages("a v1 [std]\nb v2 []\n\na v1 [std] (*)\n[dev-dependencies]\n");
        assert_eq!(together, BTreeSet::from(["a v1 [std]", "b v2 []"]));
        let alone = packages("a v1 []\nb v2 []");
        assert_eq!(alone.difference(&together).collect::<Vec<_>>(), [&"a v1 []"]);
    }

    #[test]
    fn one_package_is_built_as_with_the_others() {
        let problems = check().unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
