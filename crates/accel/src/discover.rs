//! Finding accelerators: which plugin, of which device type, how many devices.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use thalweg_kernel::{ACCELERATORS, PhysicalDevice};
use thalweg_tensor::{Context, Error, Result, bail, ensure, err};

use crate::device::{Accelerator, AcceleratorOptions, is_cpu};
use crate::pjrt::{Client, OptionValue, Plugin};

/// The environment variable that names a plugin: `PLUGIN.so[=TYPE[:COUNT]]`.
pub const PLUGIN_VARIABLE: &str = "THALWEG_ACCELERATOR";
/// Folders where plugins of the system may lie.
const USUAL_FOLDERS: &[&str] = &["/usr/local/lib/thalweg", "/usr/lib/thalweg"];
/// Most devices of one plugin that a task takes.
const DEVICES_MAX: usize = 64;

/// The accelerators that a task is to have: the value of `--accelerator`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// None.
    #[default]
    None,
    /// Those of the first plugin that is found, if there is one.
    Auto,
    /// Those of this plugin.
    Plugin(PluginChoice),
}

/// A plugin, and what its devices are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginChoice {
    /// Its file.
    pub path: PathBuf,
    /// The type of its devices; by default what the plugin's platform says.
    pub device_type: Option<String>,
    /// How many of its devices; by default all, but one of XLA's CPU backend.
    pub count: Option<usize>,
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Choice> {
        match text {
            "none" => Ok(Choice::None),
            "auto" => Ok(Choice::Auto),
            "" => bail!(InvalidArgument, "it must be none, auto or PLUGIN.so[=TYPE[:COUNT]]"),
            _ => text.parse().map(Choice::Plugin),
        }
    }
}

impl FromStr for PluginChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<PluginChoice> {
        let (path, rest) = match text.rsplit_once('=') {
            Some((path, rest)) => (path, Some(rest)),
            None => (text, None),
        };
        let (device_type, count) = match rest.map(|rest| rest.split_once(':').unwrap_or((rest, "")))
        {
            None => (None, None),
            Some((device_type, "")) => (Some(device_type), None),
            Some((device_type, count)) => (Some(device_type), Some(count)),
        };
        let device_type = device_type.map(str::to_uppercase);
        if let Some(device_type) = &device_type {
            ensure!(
                ACCELERATORS.contains(&device_type.as_str()),
                InvalidArgument,
                "'{device_type}' is not a type of accelerators; they are {}",
                ACCELERATORS.join(", ")
            );
        }
        let count = count.map(|count| match count.parse() {
            Ok(count @ 1..=DEVICES_MAX) => Ok(count),
            _ => Err(err!(InvalidArgument, "'{count}' is not a number from 1 to {DEVICES_MAX}")),
        });
        Ok(PluginChoice { path: path.into(), device_type, count: count.transpose()? })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::None => f.write_str("none"),
            Choice::Auto => f.write_str("auto"),
            Choice::Plugin(plugin) => {
                write!(f, "{}", plugin.path.display())?;
                if let Some(device_type) = &plugin.device_type {
                    write!(f, "={device_type}")?;
                }
                plugin.count.map_or(Ok(()), |count| write!(f, ":{count}"))
            }
        }
    }
}

/// The accelerators of a choice. `auto` without a plugin gives none; a plugin that was named must load.
pub fn open(choice: &Choice, options: &AcceleratorOptions) -> Result<Vec<Arc<Accelerator>>> {
    match choice {
        Choice::None => Ok(Vec::new()),
        Choice::Plugin(plugin) => open_plugin(plugin, options),
        Choice::Auto => {
            for candidate in candidates()? {
                match open_plugin(&candidate, options) {
                    Ok(devices) => return Ok(devices),
                    Err(e) => {
                        let path = candidate.path.display();
                        tracing::warn!(
                            target: "thalweg::accelerator",
                            "the plugin {path} is not used: {}",
                            e.message()
                        );
                    }
                }
            }
            Ok(Vec::new())
        }
    }
}

/// The same as devices that tasks name.
pub fn open_physical(
    choice: &Choice,
    options: &AcceleratorOptions,
) -> Result<Vec<Arc<dyn PhysicalDevice>>> {
    let devices = open(choice, options)?;
    Ok(devices.into_iter().map(|device| device as Arc<dyn PhysicalDevice>).collect())
}

fn open_plugin(
    choice: &PluginChoice,
    options: &AcceleratorOptions,
) -> Result<Vec<Arc<Accelerator>>> {
    let named = || choice.path.display().to_string();
    let plugin = Plugin::load(&choice.path)?;
    let of_client = &client_options(choice, options)[..];
    let device_type = choice.device_type.as_deref();
    let client = match device_type {
        Some(device_type) => Client::create_named(&plugin, of_client, device_type),
        None => Client::create(&plugin, of_client),
    };
    let client = client.context(named)?;
    let device_type = match device_type {
        Some(device_type) => device_type.to_owned(),
        None => device_type_of(client.platform_name()).to_owned(),
    };
    let all = client.devices().len();
    let by_default = if is_cpu(&client) { 1 } else { all };
    let wanted = choice.count.unwrap_or(by_default);
    ensure!(
        wanted <= all && all > 0,
        NotFound,
        "{}: the plugin has {all} devices, not {wanted}",
        named()
    );
    (0..wanted).map(|i| Accelerator::new(client.clone(), i, &device_type, options)).collect()
}

/// The options of a plugin's client, which refuses those that it does not know.
fn client_options(
    choice: &PluginChoice,
    options: &AcceleratorOptions,
) -> Vec<(&'static str, OptionValue)> {
    let name = choice.path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let mut all = Vec::new();
    // Only XLA's CPU backend makes as many devices as it is asked for.
    if let Some(count) = choice.count.filter(|_| name.contains("cpu")) {
        all.push(("cpu_device_count", OptionValue::Int(count as i64)));
    }
    if name.contains("cuda") || name.contains("rocm") {
        // Else one process takes three quarters of the memory at once, and no other can run beside it.
        all.push(("preallocate", OptionValue::Bool(false)));
        if let Some(fraction) = options.memory_fraction {
            all.push(("memory_fraction", OptionValue::Float(fraction)));
        }
    }
    all
}

/// The folder of compiled programs of this user: below `XDG_CACHE_HOME` or `~/.cache`.
pub fn default_program_folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("thalweg").join("programs"))
}

/// The device type of a plugin's platform.
fn device_type_of(platform: &str) -> &'static str {
    match platform.to_lowercase().as_str() {
        "cpu" | "host" => "XLA_CPU",
        "tpu" => "TPU",
        _ => "GPU",
    }
}

/// Plugins that `auto` tries, in this order: the one of the environment variable, those of the active
/// Python environment, those in the usual folders.
pub fn candidates() -> Result<Vec<PluginChoice>> {
    if let Ok(text) = env::var(PLUGIN_VARIABLE)
        && !text.is_empty()
    {
        return match text.parse::<Choice>().context(|| PLUGIN_VARIABLE)? {
            Choice::Plugin(plugin) => Ok(vec![plugin]),
            Choice::None => Ok(Vec::new()),
            Choice::Auto => Ok(found()),
        };
    }
    Ok(found())
}

fn found() -> Vec<PluginChoice> {
    let mut paths: Vec<PathBuf> =
        searched_folders().iter().flat_map(|folder| plugins_below(folder)).collect();
    // Of two versions the newer name is first.
    paths.dedup();
    paths.into_iter().map(|path| PluginChoice { path, device_type: None, count: None }).collect()
}

/// The folders in which `auto` looks.
pub fn searched_folders() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        prefixes.extend(env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from));
    }
    prefixes.extend(env::var_os("HOME").map(|home| PathBuf::from(home).join(".local")));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut folders = Vec::new();
    for prefix in prefixes {
        for python in entries(&prefix.join("lib"), |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                folders.push(python.join(packages).join("jax_plugins"));
                folders.push(python.join(packages).join("libtpu"));
            }
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders.extend(USUAL_FOLDERS.iter().map(PathBuf::from));
    folders
}

/// Shared libraries in a folder and in its subfolders; those that are plugins by their names.
fn plugins_below(folder: &Path) -> Vec<PathBuf> {
    let is_plugin = |name: &str| {
        name.ends_with(".so") && (name.contains("plugin") || name.starts_with("libtpu"))
    };
    let mut all = entries(folder, is_plugin);
    for subfolder in entries(folder, |name| !name.contains('.')) {
        all.extend(entries(&subfolder, is_plugin));
    }
    all
}

/// Entries of a folder by a test of their names, the last by name first; none if it cannot be read.
fn entries(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            fits(entry.file_name().to_str()?).then(|| entry.path())
        })
        .collect();
    found.sort();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed_and_shown() {
        for text in ["none", "auto", "/x/p.so", "/x/p.so=GPU", "/x/a=b.so=XLA_CPU:4"] {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
        let Choice::Plugin(plugin) = "/x/p.so=xla_cpu:2".parse().unwrap() else {
            panic!("a path names a plugin")
        };
        assert_eq!((plugin.device_type.as_deref(), plugin.count), (Some("XLA_CPU"), Some(2)));
        for (text, part) in [
            ("", "none, auto"),
            ("/x/p.so=CPU", "GPU, TPU, XLA_CPU"),
            ("/x/p.so=GPU:0", "from 1 to"),
            ("/x/p.so=GPU:many", "from 1 to"),
        ] {
            let e = text.parse::<Choice>().unwrap_err();
            assert!(e.message().contains(part), "{text}: {e}");
        }
    }

    #[test]
    fn a_plugin_that_was_named_must_exist() {
        let choice: Choice = "/nowhere/plugin.so".parse().unwrap();
        let e = open(&choice, &AcceleratorOptions::default()).unwrap_err();
        assert_eq!(e.code(), thalweg_tensor::Code::NotFound, "{e}");
        assert!(open(&Choice::None, &AcceleratorOptions::default()).unwrap().is_empty());
    }

    #[test]
    fn platforms_have_device_types() {
        for (platform, device_type) in
            [("cuda", "GPU"), ("rocm", "GPU"), ("tpu", "TPU"), ("cpu", "XLA_CPU")]
        {
            assert_eq!(device_type_of(platform), device_type);
        }
    }
}
