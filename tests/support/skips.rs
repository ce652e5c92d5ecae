//! Tests that this machine does not allow are named, so that `cargo xtask test` lists them.

use std::io::Write;

/// The variable that `cargo xtask test` sets to the file in which it looks for skipped tests.
const SKIPPED_TESTS: &str = "THALWEG_SKIPPED_TESTS";

/// Reports that `test`, or the part of it that this names, did not run.
pub(crate) fn skipped(test: &str, why: &str) {
    eprintln!("skipped: {test}: {why}");
    if let Some(path) = std::env::var_os(SKIPPED_TESTS) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{test}: {why}").unwrap();
    }
}
