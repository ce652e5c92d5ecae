//! The PJRT caller against a plugin, which `THALWEG_TEST_PJRT_PLUGIN` names: XLA's CPU backend, or
//! another with at least one device.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_accel::pjrt::{Client, CompileOptions, OptionValue, Plugin};
use thalweg_tensor::{Shape, Tensor};

#[path = "../../../tests/support/skips.rs"]
mod skips;

/// The plugin, or a record that `test` is skipped.
fn plugin_for(test: &str) -> Option<PathBuf> {
    let plugin = std::env::var_os("THALWEG_TEST_PJRT_PLUGIN").map(PathBuf::from);
    if plugin.is_none() {
        skips::skipped(test, "THALWEG_TEST_PJRT_PLUGIN names no plugin");
    }
    plugin
}

/// A client with two devices.
fn client(path: &Path) -> Arc<Client> {
    let plugin = Plugin::load(path).unwrap();
    Client::create(&plugin, &[("cpu_device_count", OptionValue::Int(2))]).unwrap()
}

fn matrix(values: &[f32; 4]) -> Tensor {
    Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), values).unwrap()
}

const DOT: &str =
    "func.func public @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %0 : tensor<2x2xf32>
}";

#[test]
fn matrices_are_multiplied() {
    let Some(path) = plugin_for("matrices_are_multiplied") else { return };
    let client = client(&path);
    let program = client.compile(DOT, &CompileOptions::default()).unwrap();
    assert_eq!((program.num_outputs(), program.device()), (1, 0));
    let a = client.upload(&matrix(&[1.0, 2.0, 3.0, 4.0]), 0).unwrap();
    let b = client.upload(&matrix(&[5.0, 6.0, 7.0, 8.0]), 0).unwrap();
    let product = program.execute(&[&a, &b], &[]).unwrap();
    let product = product[0].read().unwrap();
    assert_eq!(product.as_slice::<f32>().unwrap(), [19.0, 22.0, 43.0, 50.0]);
}
