//! Flags that say which accelerators a command uses.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_accel::{AcceleratorOptions, Choice, Precision, ProgramCache};
use thalweg_kernel::PhysicalDevice;
use thalweg_runtime::SessionOptions;
use thalweg_tensor::{Result, ensure};
use tracing::info;

/// Which accelerators, and how they multiply.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Accelerators")]
pub(crate) struct AcceleratorFlags {
    /// Accelerators to use: none; auto, those of the first PJRT plugin found (THALWEG_ACCELERATOR,
    /// jax_plugins of the Python environment, /usr/local/lib/thalweg); or PLUGIN.so[=TYPE[:COUNT]] with
    /// TYPE GPU, TPU or XLA_CPU [default: none]
    #[arg(long, value_name = "WHICH")]
    pub(crate) accelerator: Option<Choice>,

    /// How accelerators multiply 32-bit floats: in full, or fast (TF32 on NVIDIA GPUs, as
    /// TensorFlow does by default)
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub(crate) precision: PrecisionFlag,

    /// The fraction of a GPU's memory that this process may take; processes that share a GPU need one
    /// [default: the plugin's, 0.75 of CUDA's]
    #[arg(long, value_name = "FRACTION", value_parser = parse_fraction)]
    pub(crate) accelerator_memory: Option<f32>,

    /// Folder in which compiled programs are kept for later processes, or none [default:
    /// ~/.cache/thalweg/programs; nothing of XLA's CPU backend]
    #[arg(long, value_name = "DIR")]
    pub(crate) program_cache: Option<PathBuf>,
}

fn parse_fraction(text: &str) -> std::result::Result<f32, String> {
    let fraction: f32 = text.parse().map_err(|_| "expected a number between 0 and 1".to_owned())?;
    if fraction > 0.0 && fraction <= 1.0 {
        return Ok(fraction);
    }
    Err("expected a number above 0, at most 1".to_owned())
}

/// See [`Precision`].
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum PrecisionFlag {
    #[default]
    Full,
    Fast,
}

impl From<PrecisionFlag> for Precision {
    fn from(flag: PrecisionFlag) -> Precision {
        match flag {
            PrecisionFlag::Full => Precision::Full,
            PrecisionFlag::Fast => Precision::Fast,
        }
    }
}

/// What `--device gpu` says where there is none.
pub(crate) const NO_ACCELERATOR: &str =
    "--device gpu: there is no accelerator; `thalweg devices` says what is missing";

/// Whether a value of `--device` is an accelerator.
pub(crate) fn wants_accelerator(device: Option<&str>) -> bool {
    device.is_some_and(|device| !device.eq_ignore_ascii_case("cpu"))
}

impl AcceleratorFlags {
    /// The arguments by which another process of this program gets the same.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        let mut put = |flag: &str, value: Option<String>| {
            args.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        };
        put("--accelerator", self.accelerator.as_ref().map(Choice::to_string));
        put("--precision", (self.precision == PrecisionFlag::Fast).then(|| "fast".to_owned()));
        put("--accelerator-memory", self.accelerator_memory.map(|fraction| fraction.to_string()));
        put("--program-cache", self.program_cache.as_ref().map(|p| p.display().to_string()));
        args
    }

    /// The same with an accelerator where `--device`'s value asks for one and no flag names it.
    pub(crate) fn for_device(&self, device: Option<&str>) -> AcceleratorFlags {
        let accelerator = match wants_accelerator(device) {
            true => Some(self.accelerator.clone().unwrap_or(Choice::Auto)),
            false if device.is_some() => None,
            false => self.accelerator.clone(),
        };
        AcceleratorFlags { accelerator, ..self.clone() }
    }

    fn options(&self) -> AcceleratorOptions {
        let program_cache = match &self.program_cache {
            None => ProgramCache::Standard,
            Some(folder) if folder.as_os_str() == "none" => ProgramCache::None,
            Some(folder) => ProgramCache::Folder(folder.clone()),
        };
        AcceleratorOptions {
            precision: self.precision.into(),
            memory_fraction: self.accelerator_memory,
            program_cache,
        }
    }

    /// The accelerators.
    pub(crate) fn open(&self) -> Result<Vec<Arc<dyn PhysicalDevice>>> {
        let choice = self.accelerator.clone().unwrap_or_default();
        let devices = thalweg_accel::open(&choice, &self.options())?;
        for device in &devices {
            let (kind, plugin) = (device.plugin_device().kind(), device.client().plugin());
            info!(
                target: "thalweg::accelerator",
                "uses {} ({kind}) by {}",
                device.device_type(),
                plugin.path().display()
            );
        }
        if choice == Choice::Auto && devices.is_empty() {
            info!(target: "thalweg::accelerator", "no accelerator was found; `thalweg devices` says more");
        }
        Ok(devices.into_iter().map(|device| device as Arc<dyn PhysicalDevice>).collect())
    }

    /// Gives a session of this process the accelerators beside its CPU. With `device`, as `--device`
    /// takes it, a session that is to run on an accelerator has one, or this is an error.
    pub(crate) fn apply(
        &self,
        device: Option<&str>,
        options: SessionOptions,
    ) -> Result<SessionOptions> {
        let physical = self.for_device(device).open()?;
        ensure!(!wants_accelerator(device) || !physical.is_empty(), NotFound, "{NO_ACCELERATOR}");
        Ok(options.with_accelerators(&physical))
    }
}
