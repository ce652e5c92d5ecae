//! Programs from Rust's registry, installed once.

use std::path::PathBuf;

use anyhow::Result;

use crate::run;

/// The path of a program that `cargo install` brings.
pub(crate) fn install(name: &str, version: &str, args: &[&str]) -> Result<PathBuf> {
    let folder = run::target_dir().join("programs").join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if !program.exists() {
        let install = ["install", "--quiet", "--locked", name, "--version", version];
        let mut install = run::cargo(&[&install[..], args].concat());
        // Its own target folder is a temporary one.
        run::check(install.arg("--root").arg(&folder).env_remove("CARGO_TARGET_DIR"))?;
    }
    Ok(program)
}
