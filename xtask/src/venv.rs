//! Virtual environments with packages from Python's registry, made once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run;

/// The TensorFlow whose clients and answers count.
pub(crate) const TENSORFLOW: &str = "tensorflow-cpu==2.21.0";
/// The TensorBoard that must show what we write.
pub(crate) const TENSORBOARD: &str = "tensorboard==2.21.0";
/// The client of TensorFlow Serving. It asks for a TensorFlow by another name than ours.
const SERVING_API: &str = "tensorflow-serving-api==2.21.0";
/// Clients of a model server, with what the others do not bring: Triton's for KServe's protocol, with
/// what it needs for HTTP, and one that asks a server which services it has.
pub(crate) const SERVING_CLIENTS: &[&str] = &[
    SERVING_API,
    "tritonclient==2.73.0",
    "python-rapidjson==1.25",
    "geventhttpclient==2.6.1",
    "gevent==26.9.0",
    "greenlet==3.5.6",
    "zope.event==6.2",
    "zope.interface==8.7",
    "brotli==1.2.1",
    "grpcio-reflection==1.76.0",
];
/// What drives a browser.
pub(crate) const BROWSER_DRIVER: &str = "playwright==1.65.2";
/// An older one whose clients count too, and the Pythons that it has packages for.
pub(crate) const OLDER_TENSORFLOW: &str = "tensorflow-cpu==2.15.1";
const OLDER_PYTHONS: &[&str] = &["3.11", "3.10", "3.9"];

/// A Python that the older TensorFlow runs on, if there is one.
pub(crate) fn older_python() -> Option<String> {
    let names = OLDER_PYTHONS.iter().map(|version| format!("python{version}"));
    names.into_iter().find(|name| run::succeeds(&mut run::command(name, &["--version"])))
}

/// A virtual environment in `folder`, with what these calls of `pip install` bring.
pub(crate) fn make(folder: &Path, installs: &[&[&str]]) -> Result<PathBuf> {
    make_with("python3", folder, installs)
}

/// The same for the interpreter `python`.
pub(crate) fn make_with(python: &str, folder: &Path, installs: &[&[&str]]) -> Result<PathBuf> {
    let venv = folder.join("venv");
    let made = venv.join("thalweg-ready");
    let wanted = format!("{installs:?}");
    if std::fs::read_to_string(&made).is_ok_and(|m| m == wanted) {
        return Ok(venv);
    }
    eprintln!("installing Python packages into {} (some gigabytes)", venv.display());
    run::check(run::command(python, &["-m", "venv", "--clear"]).arg(&venv))
        .context("python3 with the venv module is needed (apt-get install python3 python3-venv)")?;
    let pip = venv.join("bin/pip");
    for install in installs {
        let args = [&["install", "--quiet"], *install].concat();
        run::check(&mut run::command(&pip, &args))?;
    }
    std::fs::write(made, wanted)?;
    Ok(venv)
}

/// Packages without what they depend on, in a folder that goes into `PYTHONPATH`.
pub(crate) fn extra(python: &Path, folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    let made = folder.join("thalweg-ready");
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&made).is_ok_and(|m| m == wanted) {
        return Ok(folder.to_owned());
    }
    let mut pip = run::command(python, &["-m", "pip", "install", "--quiet", "--no-deps"]);
    run::check(pip.args(["--upgrade", "--target"]).arg(folder).args(packages))?;
    std::fs::write(made, wanted)?;
    Ok(folder.to_owned())
}

/// XLA's CPU backend as a PJRT plugin, by its hash: one third-party release for x86-64.
const PJRT_CPU: &str = "lammps-jax-pjrt-cpu==0.11.2 \
    --hash=sha256:1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1";

/// The plugin of XLA's CPU backend, installed into `folder`.
pub(crate) fn pjrt_cpu_plugin(folder: &Path) -> Result<PathBuf> {
    let plugin = folder.join("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so");
    let made = folder.join("thalweg-ready");
    if plugin.exists() && std::fs::read_to_string(&made).is_ok_and(|m| m == PJRT_CPU) {
        return Ok(plugin);
    }
    std::fs::create_dir_all(folder)?;
    let requirements = folder.join("requirements.txt");
    std::fs::write(&requirements, format!("{PJRT_CPU}\n"))?;
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"];
    let mut pip = run::command("python3", &pip);
    pip.args(["--require-hashes", "--upgrade", "--target"]).arg(folder);
    run::check(pip.arg("-r").arg(&requirements))
        .context("python3 with pip is needed (apt-get install python3-pip)")?;
    std::fs::write(made, PJRT_CPU)?;
    Ok(plugin)
}
