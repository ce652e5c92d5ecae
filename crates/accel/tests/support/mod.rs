//! The accelerator of the tests, and sessions on it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_accel::{Accelerator, AcceleratorOptions, Choice, PluginChoice, open};
use thalweg_kernel::{DeviceDescription, DeviceName, HostDevice, PhysicalDevice};
use thalweg_runtime::SessionOptions;

#[path = "../../../../tests/support/skips.rs"]
mod skips;

pub(crate) const CPU: &str = "/device:CPU:0";
pub(crate) const DEVICE: &str = "/device:XLA_CPU:0";

/// The first device of the plugin; a record that `test` is skipped if there is none.
pub(crate) fn accelerator(test: &str) -> Option<Arc<Accelerator>> {
    accelerator_with(test, &AcceleratorOptions::default())
}

/// The same with options.
pub(crate) fn accelerator_with(
    test: &str,
    options: &AcceleratorOptions,
) -> Option<Arc<Accelerator>> {
    let path = std::env::var_os("THALWEG_TEST_PJRT_PLUGIN").map(PathBuf::from);
    let Some(path) = path else {
        skips::skipped(test, "THALWEG_TEST_PJRT_PLUGIN names no plugin");
        return None;
    };
    // The tests name the device so, whatever the plugin is for.
    let plugin = PluginChoice { path, device_type: Some("XLA_CPU".to_owned()), count: Some(1) };
    open(&Choice::Plugin(plugin), options).unwrap().into_iter().next()
}

/// A session of a CPU and the accelerator.
pub(crate) fn options(accelerator: &Arc<Accelerator>) -> SessionOptions {
    let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), 8 << 30);
    let name = DeviceName { device_type: "XLA_CPU".into(), ..DeviceName::cpu("localhost", 0, 0) };
    let devices = vec![HostDevice::shared(cpu), accelerator.clone().named(name, 2)];
    let mut options = SessionOptions { devices, ..SessionOptions::default() };
    options.plan.allow_soft_placement = true;
    options.plan.choice = thalweg_plan::Choice::Default;
    options
}
