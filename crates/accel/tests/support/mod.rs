//! The accelerator of the tests, and sessions on it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_accel::pjrt::{Client, OptionValue, Plugin};
use thalweg_accel::{Accelerator, AcceleratorOptions};
use thalweg_kernel::{DeviceDescription, DeviceName, HostDevice, PhysicalDevice};
use thalweg_plan::Choice;
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
    let plugin = Plugin::load(&path).unwrap();
    let client = Client::create(&plugin, &[("cpu_device_count", OptionValue::Int(1))]).unwrap();
    Some(Accelerator::new(client, 0, "XLA_CPU", options).unwrap())
}

/// A session of a CPU and the accelerator.
pub(crate) fn options(accelerator: &Arc<Accelerator>) -> SessionOptions {
    let cpu = DeviceDescription::cpu(DeviceName::cpu("localhost", 0, 0), 8 << 30);
    let name = DeviceName { device_type: "XLA_CPU".into(), ..DeviceName::cpu("localhost", 0, 0) };
    let devices = vec![HostDevice::shared(cpu), accelerator.clone().named(name, 2)];
    let mut options = SessionOptions { devices, ..SessionOptions::default() };
    options.plan.allow_soft_placement = true;
    options.plan.choice = Choice::First;
    options
}
