//! Data parallelism over several devices of one task: each device computes the gradient of its part
//! of a batch, and the variables are updated by the mean, which equals the gradient of the whole
//! batch.
//!
//! `cargo run --release --example gradient_averaging -- [STEPS]`
//!
//! It prints the losses of one and of several devices side by side: equal up to rounding, from 2.34
//! down to 0.4 and less.

use thalweg::kernel::{Device, DeviceDescription, DeviceName, HostDevice};
use thalweg::prelude::*;
use thalweg::train::{mnist, train_towers};

const DEVICES: usize = 2;
const BATCH: usize = 64;

/// A session with this number of CPU devices, which share the machine's cores.
fn session_on(model: &Model, devices: usize) -> Result<Session> {
    let device = |i: usize| -> std::sync::Arc<dyn Device> {
        let name = DeviceName::cpu("localhost", 0, i as u32);
        HostDevice::shared(DeviceDescription::cpu(name, 4 << 30))
    };
    let options = SessionOptions {
        devices: (0..devices).map(device).collect(),
        ..thalweg::session_options()
    };
    Session::new(model.to_graph(), thalweg::registry().kernels.clone(), options)
}

/// Trains on `towers` devices, each with its part of the batch; returns the losses of all steps.
fn train(towers: usize, steps: usize) -> Result<Vec<f32>> {
    let mut model = Model::new(thalweg::scope());
    let side = Some(mnist::SIDE);
    let images = model.input("images", DType::Float, &[Some(BATCH), side, side, Some(1)])?;
    let labels = model.input("labels", DType::Int64, &[Some(BATCH)])?;
    let net = Sequential::new().then(Flatten).then(Dense::new(64).relu()).then(Dense::new(10));
    let axis = model.int(0)?;
    let mut cut = |of: Output| {
        let node = model.op("Split").inputs(&[axis, of]);
        node.attr("num_split", towers as i64).build_all()
    };
    let (images, labels) = (cut(images)?, cut(labels)?);
    let mut parts = Vec::new();
    for i in 0..towers {
        let mut tower = model.tower(&format!("/device:CPU:{i}"));
        let scores = net.apply(&mut tower, images[i])?;
        parts.push(losses::softmax_cross_entropy(&mut tower, scores, labels[i])?);
    }
    let step = train_towers(&mut model, &Optimizer::sgd(0.2), &parts)?;
    let together = model.op("Pack").inputs(&parts).build()?;
    let loss = losses::mean(&mut model, together)?;
    let init = model.init()?;
    let (loss, step) = (model.name_of(loss), model.node_name(step));

    let session = session_on(&model, towers)?;
    session.run(&[], &[], &[&model.node_name(init)])?;
    let digits = mnist::train()?;
    let mut rng = Rng::new(1);
    let mut all = Vec::new();
    for _ in 0..steps {
        let batch: Vec<usize> = (0..BATCH).map(|_| rng.below(digits.len())).collect();
        let (images, labels) = digits.batch(&batch)?;
        let feeds = [("images:0", images), ("labels:0", labels)];
        all.push(session.run(&feeds, &[&loss], &[&step])?[0].scalar_value::<f32>()?);
    }
    Ok(all)
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
