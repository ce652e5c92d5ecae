//! Devices chosen by the cost model: per session and per step, by measurements of earlier steps.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::{Arc, Mutex};

use thalweg_graph::{Graph, Scope};
use thalweg_kernel::{DeviceDescription, DeviceName, HostDevice};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_plan::{Choice, DeviceSpeed, DeviceSpeeds};
use thalweg_runtime::{CostModel, PlacedNode, RunOptions, Session, SessionOptions};
use thalweg_tensor::{DType, Tensor};

/// A product of random matrices, which nothing binds to a device.
fn product() -> Graph {
    let mut s = Scope::new(op_registry(FAMILIES).unwrap());
    let shape = s.constant(&Tensor::vector(&[64i32, 64]).unwrap()).unwrap();
    let random = s.op("RandomUniform").name("x").input(shape).attr("dtype", DType::Float);
    let x = random.build().unwrap();
    let y = s.op("MatMul").name("y").input(x).input(x).build().unwrap();
    let axes = s.constant(&Tensor::vector(&[0i32, 1]).unwrap()).unwrap();
    s.op("Max").name("z").input(y).input(axes).build().unwrap();
    s.to_graph()
}

fn cpu(index: u32) -> Arc<dyn thalweg_kernel::Device> {
    let name = DeviceName::cpu("localhost", 0, index);
    HostDevice::shared(DeviceDescription::cpu(name, 1 << 30))
}

type Lines = Arc<Mutex<Vec<(String, u32, String)>>>;

/// A session on two CPUs, of which the second is described as a hundred times as fast.
fn session(choice: Choice) -> (Session, CostModel, Lines) {
    let speed = DeviceSpeed {
        flops_per_second: Some(1e13),
        memory_bytes_per_second: Some(2e12),
        start_seconds: Some(1e-9),
        ..DeviceSpeed::default()
    };
    let cost_model = CostModel {
        speeds: DeviceSpeeds(vec![("/cpu:1".parse().unwrap(), speed)]),
        ..CostModel::default()
    };
    let lines: Lines = Arc::default();
    let log = lines.clone();
    let mut options = SessionOptions {
        devices: vec![cpu(0), cpu(1)],
        cost_model: cost_model.clone(),
        placement_log: Some(Arc::new(move |placed: &PlacedNode<'_>| {
            let line = (placed.node.to_owned(), placed.device.index, placed.to_string());
            log.lock().unwrap().push(line);
        })),
        ..SessionOptions::default()
    };
    options.plan.choice = choice;
    let session = Session::new(product(), kernel_registry(FAMILIES), options).unwrap();
    (session, cost_model, lines)
}

fn device_of(lines: &Lines, node: &str) -> (u32, String) {
    let lines = lines.lock().unwrap();
    let (_, device, reason) = lines.iter().rev().find(|(name, ..)| name == node).unwrap();
    (*device, reason.clone())
}

#[test]
fn the_cost_model_chooses_the_fast_device_and_says_why() {
    for choice in [Choice::Greedy, Choice::Etf, Choice::Auto] {
        let (session, _, lines) = session(choice);
        session.run(&[], &["z"], &[]).unwrap();
        let (device, reason) = device_of(&lines, "y");
        assert_eq!(device, 1, "{choice:?}: {reason}");
    }
    let (session, _, lines) = session(Choice::Greedy);
    session.run(&[], &["z"], &[]).unwrap();
    let (_, reason) = device_of(&lines, "y");
    assert!(reason.starts_with("earliest finish (") && reason.contains("CPU:0"), "{reason}");
    // A step may be placed otherwise than the session's.
    let options = RunOptions { placement: Some(Choice::Default), ..RunOptions::default() };
    session.run_with(&options, &[], &["z"], &[]).unwrap();
    assert_eq!(device_of(&lines, "y"), (0, "default".to_owned()));
    assert_eq!(session.cached_plans(), 2);
}

#[test]
fn measured_steps_correct_a_wrong_description() {
    let (session, cost_model, lines) = session(Choice::Greedy);
    let one_step = || session.run(&[], &["z"], &[]).unwrap();
    one_step();
    assert_eq!(device_of(&lines, "y").0, 1);
    assert!(cost_model.measured.read().is_empty(), "the first step is not measured");
    one_step();
    // What is described as a hundred times as fast is not: whatever was measured on CPU 1 is what it
    // takes there, and CPU 0 is taken to be a hundred times as slow. So the nodes stay; but the product
    // is known now.
    {
        let measured = cost_model.measured.read();
        let found: Vec<_> = measured.iter().filter(|(node, ..)| *node == "y").collect();
        assert_eq!(found.len(), 1, "{found:?}");
        let (_, device, measurement) = found[0];
        assert!(device.ends_with("CPU:1") && measurement.seconds > 0.0, "{found:?}");
        assert_eq!(measurement.bytes, [64 * 64 * 4]);
    }
    // CPU 0 is measured too, by a step that is placed there; it turns out to be as fast. Then it costs
    // nothing to stay where the step is fetched.
    let by_rules = RunOptions { placement: Some(Choice::Default), ..RunOptions::default() };
    session.run_with(&by_rules, &[], &["z"], &[]).unwrap();
    for _ in 0..20 {
        one_step();
    }
    let is_known = |count: u64| cost_model.measured.read().iter().any(|(.., m)| m.count >= count);
    assert!(is_known(2), "of 21 steps three are traced");
    // The step still computes what it did.
    let z = one_step();
    let largest: f32 = z[0].scalar_value().unwrap();
    assert!((5.0..64.0).contains(&largest), "{largest}");
}

#[test]
fn what_nobody_asked_for_is_not_reported() {
    let (session, _, _) = session(Choice::Auto);
    for _ in 0..6 {
        let (_, report) = session.run_with(&RunOptions::default(), &[], &["z"], &[]).unwrap();
        assert!(report.nodes.is_empty() && report.cost_graph.is_none());
    }
    let traced = RunOptions { trace: true, ..RunOptions::default() };
    let (_, report) = session.run_with(&traced, &[], &["z"], &[]).unwrap();
    assert!(report.nodes.iter().any(|n| &*n.node == "y"));
}
