//! Clusters within one process: the same master and workers, without sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

mod support;

use std::sync::mpsc;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use support::*;
use thalweg_cluster::{ClusterSpec, Master, Member, MemoryNetwork, Task, TaskName, TaskOptions};
use thalweg_graph::{OpRegistry, Scope};
use thalweg_kernel::{Cancellation, KernelRegistry};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_tensor::{Code, DType, Result, Shape, Tensor};

static REGISTRIES: LazyLock<(Arc<OpRegistry>, Arc<KernelRegistry>)> =
    LazyLock::new(|| (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES)));

struct Cluster {
    network: Arc<MemoryNetwork>,
    spec: ClusterSpec,
}

impl Cluster {
    fn new(tasks: &[(&str, u32)]) -> Cluster {
        let mut spec = ClusterSpec::default();
        for (job, index) in tasks {
            spec.add(TaskName::new(job, *index), "memory:1").unwrap();
        }
        Cluster { network: MemoryNetwork::new(), spec }
    }

    fn start(&self, job: &str, index: u32) -> Arc<Member> {
        let options = TaskOptions { job: job.into(), index, ..Default::default() };
        let task = Task::new(options, REGISTRIES.0.clone(), REGISTRIES.1.clone());
        self.network.join(Arc::new(task), self.spec.clone())
    }
}

/// A session of a master, driven without a client.
struct Client {
    master: Arc<Master>,
    handle: String,
}

impl Client {
    fn open(member: &Arc<Member>, scope: &Scope) -> Client {
        let master = Arc::new(Master::of(member.clone()));
        let request = pb::CreateSessionRequest {
            graph_def: Some(scope.to_graph().to_def()),
            ..Default::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let opened = runtime.block_on(master.open_session(request)).unwrap();
        Client { master, handle: opened.session_handle }
    }

    fn start(
        &self,
        fetch: &[&str],
        target: &[&str],
        cancellation: &Cancellation,
    ) -> mpsc::Receiver<Result<Vec<Tensor>>> {
        let names = |list: &[&str]| list.iter().map(|&n| n.to_owned()).collect();
        let request = pb::RunStepRequest {
            session_handle: self.handle.clone(),
            fetch: names(fetch),
            target: names(target),
            ..Default::default()
        };
        let (tell, told) = mpsc::channel();
        self.master.run_step(request, cancellation, move |result| {
            let _ = tell.send(result.map(|step| step.ran.0));
        });
        told
    }

    fn run(&self, fetch: &[&str], target: &[&str]) -> Result<Vec<Tensor>> {
        let told = self.start(fetch, target, &Cancellation::default());
        told.recv_timeout(Duration::from_secs(20)).expect("the step ends")
    }
}

/// A counter on `ps` to which each worker adds what it computes.
fn counter() -> Scope {
    let s = scope();
    let mut ps = s.on_device("/job:ps/task:0");
    let shape = Shape::scalar();
    let v = ps.op("VariableV2").name("v").attr("dtype", DType::Float).attr("shape", &shape);
    let v = v.build().unwrap();
    let zero = ps.constant(&number(0.0)).unwrap();
    ps.op("Assign").name("init").inputs(&[v, zero]).build().unwrap();
    for i in 0..2 {
        let mut worker = s.on_device(&format!("/job:worker/task:{i}"));
        let (a, b) = (worker.constant(&number(1.0)), worker.constant(&number(i as f32)));
        let sum = worker.op("AddV2").inputs(&[a.unwrap(), b.unwrap()]).build().unwrap();
        ps.op("AssignAdd").name(&format!("add{i}")).inputs(&[v, sum]).build().unwrap();
    }
    let types = &[DType::Float][..];
    let queue = ps.op("FIFOQueueV2").name("queue").attr("component_types", types);
    let queue = queue.build().unwrap();
    let got = ps.op("QueueDequeueV2").name("got").attr("component_types", types).input(queue);
    let got = got.build().unwrap();
    s.on_device("/job:worker/task:1").op("Neg").name("late").input(got).build().unwrap();
    s
}

const TASKS: [(&str, u32); 3] = [("ps", 0), ("worker", 0), ("worker", 1)];

#[test]
fn masters_share_state_and_leave_nothing_behind() {
    let cluster = Cluster::new(&TASKS);
    let members: Vec<_> = TASKS.iter().map(|(job, i)| cluster.start(job, *i)).collect();
    let clients = [Client::open(&members[1], &counter()), Client::open(&members[2], &counter())];
    clients[0].run(&[], &["init"]).unwrap();
    std::thread::scope(|threads| {
        for (i, client) in clients.iter().enumerate() {
            threads.spawn(move || {
                for _ in 0..50 {
                    client.run(&[], &[&format!("add{i}")]).unwrap();
                }
            });
        }
    });
    assert_eq!(numbers(&clients[1].run(&["v:0"], &[]).unwrap()), [150.0]);
    let begin = Instant::now();
    while members.iter().any(|m| m.steps_known() > 0) {
        assert!(begin.elapsed() < Duration::from_secs(5), "steps are left behind");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_crash_ends_steps_that_need_the_task() {
    let cluster = Cluster::new(&TASKS);
    let members: Vec<_> = TASKS.iter().map(|(job, i)| cluster.start(job, *i)).collect();
    let client = Client::open(&members[1], &counter());
    client.run(&[], &["init"]).unwrap();
    let waiting = client.start(&["late:0"], &[], &Cancellation::default());
    assert!(waiting.recv_timeout(Duration::from_millis(200)).is_err(), "nothing is in the queue");
    cluster.network.crash(&TaskName::new("ps", 0));
    let e = waiting.recv_timeout(Duration::from_secs(5)).unwrap().unwrap_err();
    assert_eq!(e.code(), Code::Unavailable, "{e}");
    assert!(e.message().contains("/job:ps/replica:0/task:0"), "{e}");
    let e = client.run(&["v:0"], &[]).unwrap_err();
    assert_eq!(e.code(), Code::Unavailable, "{e}");
    // What does not need it goes on.
    let mut s = scope();
    constant_sum(&mut s);
    let other = Client::open(&members[1], &s);
    assert_eq!(numbers(&other.run(&["sum:0"], &[]).unwrap()), [3.0]);
    // A task that starts anew is found by new sessions, and refused by old ones.
    cluster.start("ps", 0);
    let e = client.run(&["v:0"], &[]).unwrap_err();
    assert!(matches!(e.code(), Code::Aborted | Code::Unavailable), "{e}");
    let client = Client::open(&members[1], &counter());
    client.run(&[], &["init"]).unwrap();
    assert_eq!(numbers(&client.run(&["add1:0"], &[]).unwrap()), [2.0]);
}

#[test]
fn a_cancelled_step_ends_on_all_tasks() {
    let cluster = Cluster::new(&TASKS);
    let members: Vec<_> = TASKS.iter().map(|(job, i)| cluster.start(job, *i)).collect();
    let client = Client::open(&members[1], &counter());
    for _ in 0..20 {
        let cancellation = Cancellation::default();
        let waiting = client.start(&["late:0"], &[], &cancellation);
        cancellation.cancel(thalweg_tensor::err!(Cancelled, "enough"));
        let e = waiting.recv_timeout(Duration::from_secs(5)).unwrap().unwrap_err();
        assert_eq!(e.code(), Code::Cancelled, "{e}");
    }
    let begin = Instant::now();
    while members.iter().any(|m| m.steps_known() > 0) {
        assert!(begin.elapsed() < Duration::from_secs(5), "steps are left behind");
        std::thread::sleep(Duration::from_millis(5));
    }
}
