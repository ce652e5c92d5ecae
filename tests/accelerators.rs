//! Training in Rust on accelerators: sessions, towers over several devices, supervised training.
//! `THALWEG_TEST_PJRT_PLUGIN` names XLA's CPU plugin, whose devices stand for GPUs.
#![cfg(feature = "remote")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "support/folder.rs"]
mod folder;
#[path = "support/skips.rs"]
mod skips;

use std::sync::Arc;

use folder::Folder;
use thalweg::accel::{Accelerator, AcceleratorOptions, open};
use thalweg::kernel::PhysicalDevice;
use thalweg::prelude::*;
use thalweg::train::{Trainer, train_towers};
use thalweg::{registry, session_options};

/// So many GPUs, or a record that `test` is skipped.
fn gpus(test: &str, count: usize) -> Option<Vec<Arc<Accelerator>>> {
    let Ok(plugin) = std::env::var("THALWEG_TEST_PJRT_PLUGIN") else {
        skips::skipped(test, "THALWEG_TEST_PJRT_PLUGIN names no plugin");
        return None;
    };
    let choice = format!("{plugin}=GPU:{count}").parse().unwrap();
    Some(open(&choice, &AcceleratorOptions::default()).unwrap())
}

fn physical(gpus: &[Arc<Accelerator>]) -> Vec<Arc<dyn PhysicalDevice>> {
    gpus.iter().map(|gpu| gpu.clone() as Arc<dyn PhysicalDevice>).collect()
}

fn net() -> Sequential {
    Sequential::new().then(Flatten).then(Dense::new(32).relu()).then(Dense::new(10))
}

/// The losses of training on devices, each with its part of every batch.
fn towers(devices: &[String], options: SessionOptions) -> Vec<f32> {
    let model = Model::new();
    let (images, labels) = mnist::inputs(&model);
    let parts = tf::split(0, &images, devices.len() as i64).into_iter();
    let parts = parts.zip(tf::split(0, &labels, devices.len() as i64)).zip(devices);
    let net = net();
    let losses: Vec<Output<f32>> = parts
        .map(|((images, labels), device)| {
            let tower = model.tower(device);
            losses::softmax_cross_entropy(&net.apply(&tower, &images), &labels)
        })
        .collect();
    let train = train_towers(&model, Adam::new(0.01), &losses);
    let loss = tf::pack(&model, &losses).mean();
    let session = model.session_with(options).unwrap();
    let digits = mnist::train().unwrap();
    let mut rng = Rng::new(1);
    let step = |_| {
        let (pixels, classes) = digits.random_batch(&mut rng, 64).unwrap();
        session.run(&loss, feed! { images: pixels, labels: classes }, &[&train]).unwrap()
    };
    (0..30).map(step).collect()
}

#[test]
fn towers_on_several_devices_train_one_net() {
    let Some(gpus) = gpus("towers_on_several_devices_train_one_net", 4) else { return };
    let device = |i: usize| format!("/device:GPU:{i}");
    let cpu = towers(&["/device:CPU:0".to_owned()], session_options());
    let options = || session_options().with_accelerators(&physical(&gpus));
    for count in [1, 2, 4] {
        let before: Vec<u64> = gpus.iter().map(|gpu| gpu.counts().1).collect();
        let devices: Vec<String> = (0..count).map(device).collect();
        let losses = towers(&devices, options());
        for (step, (a, b)) in cpu.iter().zip(&losses).enumerate() {
            assert!((a - b).abs() < 1e-3 * (1.0 + a.abs()), "{count} devices, {step}: {a}, {b}");
        }
        for (i, gpu) in gpus.iter().enumerate() {
            let ran = gpu.counts().1 - before[i];
            assert!(i >= count || ran >= 30, "device {i} of {count} ran {ran} programs");
        }
    }
    assert!(cpu[29] < 0.7 * cpu[0], "{cpu:?}");
}

/// The losses of a worker whose variables are on a parameter server: 1,000 steps of gradient descent.
fn losses_with_a_parameter_server(worker: &[Arc<dyn PhysicalDevice>]) -> Vec<f32> {
    let cluster = Cluster::local_on(1, 1, worker, registry()).unwrap();
    let model = cluster.place(Model::new().seed(5), 0).unwrap();
    let (images, labels) = mnist::inputs(&model);
    let loss = losses::softmax_cross_entropy(&net().apply(&model, &images), &labels);
    let train = Sgd::new(0.1).minimize(&loss);
    let session = model.session_on(&cluster.target(0).unwrap()).unwrap();
    let step = session.prepare((&images, &labels), &loss, &[&train]).unwrap();
    let digits = mnist::train().unwrap();
    let mut rng = Rng::new(1);
    (0..1000).map(|_| step.run(digits.random_batch(&mut rng, 32).unwrap()).unwrap()).collect()
}

#[test]
fn a_thousand_steps_with_a_parameter_server_end_with_the_loss_of_a_cpu() {
    let test = "a_thousand_steps_with_a_parameter_server_end_with_the_loss_of_a_cpu";
    let Some(gpus) = gpus(test, 1) else { return };
    let wanted = losses_with_a_parameter_server(&[]);
    let got = losses_with_a_parameter_server(&physical(&gpus));
    assert!(gpus[0].counts().1 >= 1000, "the worker's device ran {} programs", gpus[0].counts().1);
    for (step, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        assert!((got - wanted).abs() < 1e-3, "step {step}: {got}, on a CPU {wanted}");
    }
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    assert!(mean(&wanted[950..]) < 0.5 * mean(&wanted[..50]), "it learnt nothing");
    println!("after 1,000 steps {:.6}, on a CPU {:.6}", got[999], wanted[999]);
}

#[test]
fn workers_of_a_local_cluster_share_accelerators() {
    let Some(gpus) = gpus("workers_of_a_local_cluster_share_accelerators", 2) else { return };
    let folder = Folder::new("accelerated-training");
    let cluster = Cluster::local_on(1, 2, &physical(&gpus), registry()).unwrap();
    let options = TrainOptions { folder: folder.path("out"), batch: 50, ..TrainOptions::default() };
    let digits = mnist::train().unwrap().first(2000);
    let outcome = Trainer::new(&cluster, options)
        .run(&digits, Adam::new(0.005), |model| {
            let (images, labels) = mnist::inputs(model);
            let logits = net().apply(model, &images);
            let loss = losses::softmax_cross_entropy(&logits, &labels);
            Net::new((&images, &labels), &loss)
        })
        .unwrap();
    assert!(outcome.updates >= 40, "{}", outcome.updates);
    for (i, gpu) in gpus.iter().enumerate() {
        let (compiled, ran) = gpu.counts();
        // Compiled once for each shape, not for each step.
        assert!(ran > compiled && compiled < 30, "device {i}: {compiled} compiled, {ran} ran");
    }
}
