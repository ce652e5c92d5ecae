//! Flags that say which accelerators a command uses.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_accel::{AcceleratorOptions, Choice, Precision, ProgramCache};
use thalweg_kernel::{
    Device, DeviceDescription, DeviceName, HostDevice, PhysicalDevice, name_devices,
};
use thalweg_tensor::{Result, ensure};
use tracing::info;

/// Which accelerators, and how they multiply.
#[derive(clap::Args, Clone, Debug, Default)]
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

impl AcceleratorFlags {
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

    /// The devices of a session in this process: a CPU, and the accelerators. With `device`, as
    /// `--device` takes it, a session that is to run on an accelerator has one, or this is an error.
    pub(crate) fn session_devices(
        &self,
        device: Option<&str>,
        memory: u64,
    ) -> Result<Vec<Arc<dyn Device>>> {
        let wants_accelerator = device.is_some_and(|d| !d.eq_ignore_ascii_case("cpu"));
        let flags = match (&self.accelerator, wants_accelerator) {
            (None, true) => &AcceleratorFlags { accelerator: Some(Choice::Auto), ..self.clone() },
            _ => self,
        };
        let physical =
            if device.is_none() || wants_accelerator { flags.open()? } else { Vec::new() };
        ensure!(
            !wants_accelerator || !physical.is_empty(),
            NotFound,
            "--device {}: there is no accelerator; `thalweg devices` says what is missing",
            device.unwrap_or_default()
        );
        let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), memory);
        let accelerators = name_devices(&physical, "localhost", 0, 1);
        Ok(std::iter::once(HostDevice::shared(cpu)).chain(accelerators).collect())
    }
}
