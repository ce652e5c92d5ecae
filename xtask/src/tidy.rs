//! Rules that a program can check; ARCHITECTURE.md says why they are there.
//!
//! clippy has those that need types (`SAFETY` notes, clocks, threads); these need only text, and
//! `features` asks cargo. That
//! hash order reaches no plan is not among them: a program cannot see it, a test compares plans.

mod edges;
mod features;
mod rules;
#[cfg(test)]
pub(crate) use rules::UNSAFE;

use anyhow::{Result, bail};

use crate::source::{self, File};

/// Something that breaks a rule.
#[derive(Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn new(file: &File, line: usize, what: impl Into<String>) -> Problem {
        Problem { path: file.path.clone(), line, what: what.into() }
    }
}

/// Prints every problem; fails if there is one.
pub(crate) fn run() -> Result<()> {
    let files = source::files()?;
    let mut problems = problems(&files);
    problems.extend(features::check()?);
    for Problem { path, line, what } in &problems {
        eprintln!("{path}:{line}: {what}");
    }
    match problems.len() {
        0 => {
            println!("{} files are tidy", files.len());
            Ok(())
        }
        n => bail!("{n} problems"),
    }
}

fn problems(files: &[File]) -> Vec<Problem> {
    let checks = [
        edges::check,
        rules::banned_words,
        rules::headers,
        rules::test_files,
        rules::unsafe_code,
        rules::clocks_and_threads,
        rules::prints,
        rules::sockets,
        rules::places,
        rules::file_sizes,
        rules::op_names,
        rules::op_comparisons,
    ];
    checks.iter().flat_map(|check| check(files)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let problems = problems(&source::files().unwrap());
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
