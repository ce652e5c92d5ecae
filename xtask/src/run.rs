//! Starting programs, and where the repository is.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The folder that holds the workspace's `Cargo.toml`. Cargo says it at run time: clones that share
/// a build folder may share this program too, so what it was compiled with may be another's.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().expect("xtask lies in the workspace").to_owned()
}

/// Where cargo builds to.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The variable that names the file in which tests record, a line each, what they skipped and why.
const SKIPPED_TESTS: &str = "THALWEG_SKIPPED_TESTS";

/// The file that [`SKIPPED_TESTS`] names.
pub(crate) fn skipped_tests() -> PathBuf {
    target_dir().join("skipped-tests.txt")
}

/// A command in the root, its words as they would be typed.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).env(SKIPPED_TESTS, skipped_tests());
    command
}

/// `cargo`, the one that runs this program.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
}

/// Runs to the end; what it prints goes to the terminal.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    ensure!(status.success(), "{shown} failed ({status})");
    Ok(())
}

/// Runs to the end; gives what it printed on stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    ensure!(output.status.success(), "{shown} failed ({})", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{shown} printed no text"))
}

/// Whether the program starts and succeeds; its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
