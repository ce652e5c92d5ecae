//! Tests of the modules with `unsafe` under valgrind's memcheck.
//!
//! Valgrind shows programs a processor without AVX-512, so kernels run at their AVX2 level there. The
//! tests have the system's allocator; mimalloc is the binary's alone.

use anyhow::{Result, ensure};

use crate::run;

/// Tests of one package that run under valgrind.
struct Suite {
    package: &'static str,
    /// The test target: `--lib`, or `--test` and its name.
    target: &'static [&'static str],
    /// Modules whose `unsafe` the tests run through, as tidy's list has them.
    covers: &'static [&'static str],
    /// Parts of the names of tests; none for all.
    names: &'static [&'static str],
    /// As `names`, of tests that do not run, with the reason.
    skipped: &'static [(&'static str, &'static str)],
}

const LIB: Suite = Suite { package: "", target: &["--lib"], covers: &[], names: &[], skipped: &[] };

/// Tests that take seconds.
const QUICK: &[Suite] = &[
    Suite {
        package: "thalweg-tensor",
        covers: &["crates/tensor/"],
        skipped: &[("denormals_are_zero", "valgrind ignores the processor's mode for denormals")],
        ..LIB
    },
    Suite {
        package: "thalweg-formats",
        target: &["--test", "checkpoints"],
        covers: &["crates/formats/src/storage/map.rs"],
        names: &["mapped_files_are_viewed"],
        ..LIB
    },
    Suite {
        package: "thalweg-runtime",
        covers: &["crates/runtime/src/pool/mod.rs"],
        names: &["execute::", "pool::"],
        ..LIB
    },
    Suite {
        package: "thalweg-runtime",
        target: &["--test", "moves"],
        covers: &["crates/runtime/src/execute/"],
        ..LIB
    },
    // Against a plugin that the tests make up: XLA's own are too large.
    Suite {
        package: "thalweg-accel",
        covers: &["crates/accel/src/pjrt/raw/"],
        skipped: &[("memory_of_a_transfer_without_end", "that memory is leaked on purpose")],
        ..LIB
    },
    Suite {
        package: "thalweg-serve",
        covers: &["crates/serve/src/idle_priority.rs"],
        names: &["idle_priority"],
        ..LIB
    },
    Suite {
        package: "thalweg-cluster",
        covers: &[
            "crates/cluster/src/network/stream/incoming_tensor.rs",
            "crates/cluster/src/network/stream/ring.rs",
        ],
        names: &["network::stream::ring", "network::stream::incoming", "network::stream::slot"],
        ..LIB
    },
];

/// Tests that take minutes.
const LONG: &[Suite] = &[
    Suite { package: "thalweg-runtime", target: &["--test", "partial_run"], ..LIB },
    Suite { package: "thalweg-runtime", target: &["--test", "live_reads"], ..LIB },
    Suite { package: "thalweg-ops", covers: &["crates/ops/"], ..LIB },
];

/// The exit code of `valgrind` when it has found an error.
const FOUND: &str = "97";

/// Runs the quick suites.
pub(crate) fn quick() -> Result<()> {
    check(QUICK)
}

/// Runs the long suites.
pub(crate) fn long() -> Result<()> {
    check(LONG)
}

fn check(suites: &[Suite]) -> Result<()> {
    install()?;
    // A spinning thread must not keep the others from running.
    let options = "--quiet --fair-sched=yes --leak-check=full --errors-for-leak-kinds=definite \
                   --show-leak-kinds=definite --num-callers=30";
    let runner = format!("valgrind --error-exitcode={FOUND} {options}");
    let host = format!("{}_UNKNOWN_LINUX_GNU", std::env::consts::ARCH.to_uppercase());
    let mut failed = Vec::new();
    for Suite { package, target, covers, names, skipped } in suites {
        let title = [&[*package], *target, *names].concat().join(" ");
        println!("-- {title}");
        println!("covers {}", covers.join(" "));
        let mut test = run::cargo(&["test", "--quiet", "--package", package]);
        test.args(*target).arg("--").args(*names);
        for (name, reason) in *skipped {
            println!("not run: {name}: {reason}");
            test.args(["--skip", name]);
        }
        // A suite that fails does not keep the others from running.
        if let Err(e) = run::check(test.env(format!("CARGO_TARGET_{host}_RUNNER"), &runner)) {
            eprintln!("{e:#}");
            failed.push(title);
        }
    }
    ensure!(failed.is_empty(), "failed under valgrind: {}", failed.join("; "));
    Ok(())
}

/// Installs valgrind where that can be done and it is missing.
fn install() -> Result<()> {
    let is_there = || run::succeeds(&mut run::command("valgrind", &["--version"]));
    if is_there() {
        return Ok(());
    }
    let install = ["install", "--yes", "--no-install-recommends", "valgrind"];
    let is_installed = run::succeeds(&mut run::command("apt-get", &["update"]))
        && run::succeeds(&mut run::command("apt-get", &install))
        && is_there();
    ensure!(is_installed, "valgrind is missing: install it (apt-get install valgrind)");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::UNSAFE;

    #[test]
    fn every_module_with_unsafe_is_covered() {
        let covered: Vec<&str> =
            QUICK.iter().chain(LONG).flat_map(|suite| suite.covers).copied().collect();
        // A benchmark, which has no tests.
        for path in UNSAFE.iter().filter(|path| !path.starts_with("benches/")) {
            assert!(covered.contains(path), "{path} is in no suite");
        }
        for path in covered {
            assert!(UNSAFE.contains(&path), "{path} has no unsafe code any more");
        }
    }
}
