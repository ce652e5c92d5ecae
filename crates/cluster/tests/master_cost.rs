//! Processor time of a step on the master of a cluster, with idle tasks. The only test in this file: it measures
//! the processor time of the whole process.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

mod support;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use support::*;
use thalweg_cluster::{ClusterSpec, Master, MemoryNetwork, Task, TaskName, TaskOptions};
use thalweg_graph::Scope;
use thalweg_kernel::Cancellation;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_tensor::{DType, Shape};

const OTHERS: u32 = 7;
/// Maximum processor time of a step; unoptimised code gets a larger bound.
const MICROSECONDS_MAX: f64 = if cfg!(debug_assertions) { 3000.0 } else { 50.0 };
const STEPS: u32 = if cfg!(debug_assertions) { 500 } else { 20_000 };

/// A variable on each of the other tasks, to which the worker adds one.
fn graph(s: &Scope) -> Vec<String> {
    let one = s.on_device("/job:worker/task:0").constant(&number(1.0)).unwrap();
    let add = |i: u32| {
        let mut ps = s.on_device(&format!("/job:ps/task:{i}"));
        let v = ps.op("VariableV2").attr("dtype", DType::Float).attr("shape", &Shape::scalar());
        let v = v.build().unwrap();
        let name = format!("add{i}");
        ps.op("AssignAdd").name(&name).inputs(&[v, one]).build().unwrap();
        name
    };
    (0..OTHERS).map(add).collect()
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    // In ticks, of which Linux shows a hundred to the second.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "optimised, it is one of the long tests")]
fn a_step_over_eight_tasks_costs_its_master_little() {
    let mut spec = ClusterSpec::default();
    spec.add(TaskName::new("worker", 0), "memory:1").unwrap();
    let network = MemoryNetwork::new();
    for i in 0..OTHERS {
        spec.add(TaskName::new("ps", i), "memory:1").unwrap();
        network.join_idle(TaskName::new("ps", i));
    }
    let options = TaskOptions { job: "worker".into(), ..Default::default() };
    let task = Task::new(options, op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES));
    let master = Arc::new(Master::with_member(network.join(Arc::new(task), spec)));
    let s = scope();
    let targets = graph(&s);
    let request =
        pb::CreateSessionRequest { graph_def: Some(s.to_graph().to_def()), ..Default::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let opened = runtime.block_on(master.open_session(request)).unwrap();
    let step = pb::RunStepRequest {
        session_handle: opened.session_handle,
        target: targets,
        ..Default::default()
    };
    let run = || {
        let (sender, receiver) = mpsc::channel();
        master.run_step(step.clone(), &Cancellation::default(), move |result| {
            let _ = sender.send(result.map(|_| ()));
        });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    };
    (0..STEPS / 10).for_each(|_| run());
    let begin = cpu_seconds();
    (0..STEPS).for_each(|_| run());
    let microseconds = (cpu_seconds() - begin) * 1e6 / f64::from(STEPS);
    println!("{microseconds:.1} us of processor time for each step");
    assert!(microseconds < MICROSECONDS_MAX, "{microseconds} us");
    assert_eq!(master.member().steps_known(), 0);
}
