//! Traced steps over tasks whose clocks differ, and steps that are traced from outside.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

mod support;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use support::*;
use thalweg_cluster::grpc::{LocalCluster, trace_next_step, traced_steps};
use thalweg_cluster::{ConnectOptions, RemoteSession, TaskName, TaskOptions};
use thalweg_graph::OpRegistry;
use thalweg_kernel::{Clock, Environment, KernelRegistry};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_runtime::{NodeTiming, RunMetadata, RunOptions, system_environment};
use thalweg_tensor::Code;

static REGISTRIES: LazyLock<(Arc<OpRegistry>, Arc<KernelRegistry>)> =
    LazyLock::new(|| (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES)));

const HOUR_NS: i64 = 3_600_000_000_000;

/// A wall clock that shows more, or less, than it should.
struct ShiftedClock(Arc<dyn Clock>, i64);

impl Clock for ShiftedClock {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn wall(&self) -> Duration {
        Duration::from_nanos((self.0.wall().as_nanos() as u64).wrapping_add_signed(self.1))
    }
}

/// A parameter server and a worker, whose clocks are off by so much.
fn cluster(ps_ns: i64, worker_ns: i64) -> LocalCluster {
    let options = move |task: &TaskName| {
        let shift_ns = if task.job == "ps" { ps_ns } else { worker_ns };
        let system = system_environment();
        let clock = Arc::new(ShiftedClock(system.clock.clone(), shift_ns));
        TaskOptions { environment: Environment { clock, ..system }, ..Default::default() }
    };
    let (ops, kernels) = (REGISTRIES.0.clone(), REGISTRIES.1.clone());
    LocalCluster::start_with(&[("ps", 1), ("worker", 1)], options, ops, kernels).unwrap()
}

fn address(cluster: &LocalCluster, job: &str) -> String {
    cluster.spec().address(&TaskName::new(job, 0)).unwrap().to_owned()
}

/// A session on the worker whose step doubles `x` on the parameter server and negates it on the worker.
fn session(cluster: &LocalCluster) -> RemoteSession {
    let mut s = scope();
    let x = placeholder(&mut s, "x");
    let mut ps = s.on_device("/job:ps/task:0");
    let twice = ps.op("AddV2").name("twice").inputs(&[x, x]).build().unwrap();
    s.on_device("/job:worker/task:0").op("Neg").name("negated").input(twice).build().unwrap();
    let target = format!("grpc://{}", address(cluster, "worker"));
    let graph = s.to_graph().to_def();
    RemoteSession::open(&target, graph, ConnectOptions::default()).unwrap()
}

fn run(session: &RemoteSession, trace: bool) -> RunMetadata {
    let options = RunOptions { trace, ..Default::default() };
    let feeds = [("x", number(2.0))];
    let (tensors, report) = session.run_with(&options, &feeds, &["negated"], &[]).unwrap();
    assert_eq!(numbers(&tensors), [-4.0]);
    report
}

fn node<'a>(report: &'a RunMetadata, op: &str, device: &str) -> &'a NodeTiming {
    let is_it =
        |n: &&NodeTiming| n.op == op && n.device.starts_with(device) && n.label.contains(" @");
    let plain = |n: &&NodeTiming| n.op == op && n.device.starts_with(device);
    report.nodes.iter().find(is_it).or_else(|| report.nodes.iter().find(plain)).unwrap()
}

#[test]
fn tasks_with_other_clocks_are_shown_by_the_masters() {
    for (ps, worker) in [(HOUR_NS, 0), (-HOUR_NS, 0), (5_000_000, HOUR_NS), (0, 0)] {
        let cluster = cluster(ps, worker);
        let session = session(&cluster);
        run(&session, false);
        let report = run(&session, true);
        let [clock] = &report.clocks[..] else { panic!("{:?}", report.clocks) };
        assert_eq!(clock.task, "/job:ps/replica:0/task:0");
        let error = clock.error_ns.unwrap();
        let off = clock.offset_ns.abs_diff(ps - worker);
        assert!(off <= error && error < 1_000_000_000, "{clock:?} for {ps} and {worker}");
        // The parts of the step lie within the calls, and what was received was sent before.
        let [call] = &report.dispatches[..] else { panic!("{:?}", report.dispatches) };
        let times = [call.asked_ns, call.sent_ns, call.began_ns, call.ended_ns, call.answered_ns];
        assert!(times.is_sorted() && call.answered_ns < 60_000_000_000, "{call:?}");
        let (sent, received) =
            (node(&report, "_Send", "/job:ps"), node(&report, "_Recv", "/job:worker"));
        // A `_Send` may deliver its tensor before it ends.
        assert!(sent.start_ns <= received.end_ns + 2 * error, "{sent:?} {received:?}");
        for node in &report.nodes {
            assert!(node.ready_ns <= node.start_ns && node.start_ns <= node.end_ns, "{node:?}");
            assert!(node.end_ns <= call.answered_ns + 60_000_000_000, "{node:?}");
        }
        let twice = node(&report, "AddV2", "/job:ps");
        assert!((call.began_ns..=call.ended_ns).contains(&twice.end_ns), "{twice:?} {call:?}");
        let keys: Vec<&str> = report.sent.iter().map(|sent| sent.key.as_str()).collect();
        assert!(
            keys.iter().any(|key| key.starts_with("/job:ps/") && key.contains("twice")),
            "{keys:?}"
        );
        assert!(report.sent.iter().all(|sent| sent.requested_ns <= sent.sent_ns));
        assert_ne!(report.step, 0);
        assert_eq!(report.master, "/job:worker/replica:0/task:0");
        session.close().unwrap();
    }
}

#[test]
fn the_next_step_of_a_client_is_traced_from_outside() {
    let cluster = cluster(0, 0);
    let (session, master) = (session(&cluster), address(&cluster, "worker"));
    let timeout = Duration::from_millis(100);
    let e = trace_next_step(&master, timeout).unwrap_err();
    assert_eq!(e.code(), Code::DeadlineExceeded, "{e}");
    assert!(traced_steps(&master, timeout).unwrap().is_empty());
    let traced = std::thread::scope(|scope| {
        let request = scope.spawn(|| trace_next_step(&master, Duration::from_secs(30)));
        while !request.is_finished() {
            // The client does not see that its step was traced.
            let report = run(&session, false);
            assert!(report.nodes.is_empty() && report.started_ns == 0, "{report:?}");
        }
        request.join().unwrap().unwrap()
    });
    assert!(traced.metadata.nodes.iter().any(|n| &*n.node == "twice"), "{traced:?}");
    assert!(traced.id != 0 && traced.metadata.dispatches.len() == 1, "{traced:?}");
    let kept = traced_steps(&master, Duration::from_secs(10)).unwrap();
    assert_eq!(kept.iter().map(|step| step.id).collect::<Vec<_>>(), [traced.id]);
    // A task that is no master of the job sees none of its steps.
    assert!(trace_next_step(&address(&cluster, "ps"), timeout).is_err());
    session.close().unwrap();
}
