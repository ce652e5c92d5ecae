//! Data parallelism over several devices of one task: each device computes the gradient of its part
//! of a batch, and the variables are updated by the mean, which equals the gradient of the whole
//! batch.
//!
//! `cargo run --release --example gradient_averaging -- [STEPS]`
//!
//! It prints the losses of one and of several devices side by side: equal up to rounding, from 2.34
//! down to 0.4 and less.

use thalweg::kernel::{Device, DeviceDescription, DeviceName, HostDevice};
use thalweg::runtime::SessionOptions;
use thalweg::train::{Dense, Flatten, Layer, Model, Rng, Sequential, losses, mnist, train_towers};
use thalweg::{Output, Result, Sgd, feed, session_options, tf};

const DEVICES: usize = 2;
const BATCH: usize = 64;

/// Trains on `towers` devices, each with its part of the batch; returns the losses of all steps.
fn train(towers: usize, steps: usize) -> Result<Vec<f32>> {
    let model = Model::new();
    let (images, labels) = mnist::inputs(&model);
    let net = Sequential::new().then(Flatten).then(Dense::new(64).relu()).then(Dense::new(10));
    let parts = tf::split(0, &images, towers as i64).into_iter();
    let parts = parts.zip(tf::split(0, &labels, towers as i64)).enumerate();
    let parts: Vec<Output<f32>> = parts
        .map(|(i, (images, labels))| {
            let tower = model.tower(&format!("/device:CPU:{i}"));
            losses::softmax_cross_entropy(&net.apply(&tower, &images), &labels)
        })
        .collect();
    let train = train_towers(&model, Sgd::new(0.2), &parts);
    let loss = tf::pack(&model, &parts).mean();

    // CPU devices, which share the machine's cores.
    let device = |i: usize| -> std::sync::Arc<dyn Device> {
        let name = DeviceName::cpu("localhost", 0, i as u32);
        HostDevice::shared(DeviceDescription::cpu(name, 4 << 30))
    };
    let devices = (0..towers).map(device).collect();
    let session = model.session_with(SessionOptions { devices, ..session_options() })?;
    let digits = mnist::train()?;
    let mut rng = Rng::new(1);
    let mut step = |_| {
        let (pixels, classes) = digits.random_batch(&mut rng, BATCH)?;
        session.run(&loss, feed! { images: pixels, labels: classes }, &[&train])
    };
    (0..steps).map(&mut step).collect()
}

fn main() -> Result<()> {
    // A build for development is a hundred times slower: it takes a look.
    let default = if cfg!(debug_assertions) { 5 } else { 300 };
    let steps: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    let (one, several) = (train(1, steps)?, train(DEVICES, steps)?);
    for step in (0..steps).step_by((steps / 5).max(1)) {
        println!("step {step}: loss {:.4} on one device, {:.4} on two", one[step], several[step]);
    }
    // Both began with the same weights and saw the same digits: they differ by rounding alone.
    let far = one.iter().zip(&several).find(|(a, b)| (*a - *b).abs() > 1e-3 * (1.0 + a.abs()));
    assert!(far.is_none(), "the devices did not train one net: {far:?}");
    assert!(steps < 2 || several[steps - 1] < several[0], "it learnt nothing");
    Ok(())
}
