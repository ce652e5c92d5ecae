//! Masters and workers in one process over every transport: direct calls, gRPC, streams.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]

mod support;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use support::*;
use thalweg_cluster::grpc::{Server, ServerOptions};
use thalweg_cluster::{
    ClusterSpec, Master, Member, MemoryNetwork, Task, TaskName, TaskOptions, TensorTransport,
};
use thalweg_graph::{OpRegistry, Scope};
use thalweg_kernel::{Cancellation, KernelRegistry};
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_tensor::{Code, DType, Result, Shape, Tensor};
use tokio::runtime::Runtime;
use tokio::sync::watch;

static REGISTRIES: LazyLock<(Arc<OpRegistry>, Arc<KernelRegistry>)> =
    LazyLock::new(|| (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES)));

/// The transport between the tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    Memory,
    Grpc,
    Stream,
}

const CARRIERS: [Carrier; 3] = [Carrier::Memory, Carrier::Grpc, Carrier::Stream];

struct Cluster {
    carrier: Carrier,
    network: Arc<MemoryNetwork>,
    spec: ClusterSpec,
    /// Listeners of tasks that have not been started.
    listeners: Mutex<BTreeMap<TaskName, TcpListener>>,
    servers: Mutex<BTreeMap<TaskName, (Runtime, watch::Sender<bool>)>>,
}

impl Cluster {
    fn new(carrier: Carrier, tasks: &[(&str, u32)]) -> Cluster {
        let (mut spec, mut listeners) = (ClusterSpec::default(), BTreeMap::new());
        for (job, index) in tasks {
            let (name, listener) =
                (TaskName::new(job, *index), TcpListener::bind("127.0.0.1:0").unwrap());
            spec.add(name.clone(), &listener.local_addr().unwrap().to_string()).unwrap();
            listeners.insert(name, listener);
        }
        let (network, servers) = (MemoryNetwork::new(), Mutex::default());
        Cluster { carrier, network, spec, listeners: Mutex::new(listeners), servers }
    }

    /// All tasks, started.
    fn of(carrier: Carrier, tasks: &[(&str, u32)]) -> (Cluster, Vec<Arc<Member>>) {
        let cluster = Cluster::new(carrier, tasks);
        let members = tasks.iter().map(|(job, i)| cluster.start(job, *i)).collect();
        (cluster, members)
    }

    fn start(&self, job: &str, index: u32) -> Arc<Member> {
        let tensor_transport = match self.carrier {
            Carrier::Stream => TensorTransport::Auto,
            _ => TensorTransport::Grpc,
        };
        let options =
            TaskOptions { job: job.into(), index, tensor_transport, ..Default::default() };
        let task = Arc::new(Task::new(options, REGISTRIES.0.clone(), REGISTRIES.1.clone()));
        if self.carrier == Carrier::Memory {
            return self.network.join(task, self.spec.clone());
        }
        let name = TaskName::new(job, index);
        let listener = self.listeners.lock().unwrap().remove(&name);
        let listener = listener.unwrap_or_else(|| self.listen_again(&name));
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let member = Member::new(task, self.spec.clone());
        let server =
            Server::new(Arc::new(Master::with_member(member.clone())), ServerOptions::default());
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(async move {
            server.serve(tokio::net::TcpListener::from_std(listener).unwrap(), stopped).await;
        });
        self.servers.lock().unwrap().insert(name, (runtime, stop));
        member
    }

    fn listen_again(&self, name: &TaskName) -> TcpListener {
        let (address, begin) = (self.spec.address(name).unwrap(), Instant::now());
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => return listener,
                Err(e) => assert!(begin.elapsed() < Duration::from_secs(10), "{address}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn crash(&self, name: &TaskName) {
        match self.carrier {
            Carrier::Memory => self.network.crash(name),
            _ => self.servers.lock().unwrap().remove(name).unwrap().0.shutdown_background(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, (runtime, _)) in std::mem::take(&mut *self.servers.lock().unwrap()) {
            runtime.shutdown_background();
        }
    }
}

/// A session of a master, driven without a client.
struct Client {
    master: Arc<Master>,
    handle: String,
}

impl Client {
    fn open(member: &Arc<Member>, scope: &Scope) -> Client {
        let master = Arc::new(Master::with_member(member.clone()));
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
        let (sender, receiver) = mpsc::channel();
        self.master.run_step(request, cancellation, move |result| {
            let _ = sender.send(result.map(|step| step.ran.0));
        });
        receiver
    }

    fn run(&self, fetch: &[&str], target: &[&str]) -> Result<Vec<Tensor>> {
        let receiver = self.start(fetch, target, &Cancellation::default());
        receiver.recv_timeout(Duration::from_secs(20)).expect("the step ends")
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
fn masters_share_state_and_clean_up_their_steps() {
    for carrier in CARRIERS {
        let (_cluster, members) = Cluster::of(carrier, &TASKS);
        let clients =
            [Client::open(&members[1], &counter()), Client::open(&members[2], &counter())];
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
        assert_eq!(numbers(&clients[1].run(&["v:0"], &[]).unwrap()), [150.0], "{carrier:?}");
        let streams = members[0].streams_open();
        assert_eq!(streams, if carrier == Carrier::Stream { 2 } else { 0 }, "{carrier:?}");
        let begin = Instant::now();
        while members.iter().any(|m| m.steps_known() > 0) {
            assert!(begin.elapsed() < Duration::from_secs(5), "the tasks still hold steps");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_crash_fails_the_steps_that_need_the_task() {
    for carrier in CARRIERS {
        let (cluster, members) = Cluster::of(carrier, &TASKS);
        let client = Client::open(&members[1], &counter());
        client.run(&[], &["init"]).unwrap();
        let waiting = client.start(&["late:0"], &[], &Cancellation::default());
        let early = waiting.recv_timeout(Duration::from_millis(200));
        assert!(matches!(early, Err(mpsc::RecvTimeoutError::Timeout)), "the queue is empty");
        cluster.crash(&TaskName::new("ps", 0));
        let e = waiting.recv_timeout(Duration::from_secs(5)).unwrap().unwrap_err();
        assert_eq!(e.code(), Code::Unavailable, "{e}");
        assert!(e.message().contains("/job:ps/replica:0/task:0"), "{e}");
        let e = client.run(&["v:0"], &[]).unwrap_err();
        assert_eq!(e.code(), Code::Unavailable, "{e}");
        // A step that does not need the task succeeds.
        let mut s = scope();
        constant_sum(&mut s);
        let other = Client::open(&members[1], &s);
        assert_eq!(numbers(&other.run(&["sum:0"], &[]).unwrap()), [3.0]);
        // After a restart new sessions find the task, and steps of old sessions fail.
        cluster.start("ps", 0);
        let e = client.run(&["v:0"], &[]).unwrap_err();
        assert!(matches!(e.code(), Code::Aborted | Code::Unavailable), "{e}");
        let client = Client::open(&members[1], &counter());
        client.run(&[], &["init"]).unwrap();
        assert_eq!(numbers(&client.run(&["add1:0"], &[]).unwrap()), [2.0]);
    }
}

#[test]
fn a_cancelled_step_ends_on_all_tasks() {
    for carrier in CARRIERS {
        let (_cluster, members) = Cluster::of(carrier, &TASKS);
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
            assert!(begin.elapsed() < Duration::from_secs(5), "the tasks still hold steps");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// `count` vectors on the worker, each of which is sent to the parameter server and summed there.
fn vectors(count: usize, elements: usize) -> Scope {
    let s = scope();
    let mut worker = s.on_device("/job:worker/task:0");
    let mut ps = s.on_device("/job:ps/task:0");
    for i in 0..count {
        let value = worker.constant(&number(i as f32)).unwrap();
        let dims = worker.constant(&Tensor::vector(&[elements as i32]).unwrap()).unwrap();
        // In [0, 1), so its floor is zero; random, so that no constant folding removes it.
        let random = worker.op("RandomUniform").attr("dtype", DType::Float).input(dims);
        let random = random.build().unwrap();
        let zero = worker.op("Floor").input(random).build().unwrap();
        let filled = worker.op("AddV2").inputs(&[zero, value]).build().unwrap();
        let axis = ps.constant(&Tensor::vector(&[0i32]).unwrap()).unwrap();
        ps.op("Sum").name(&format!("sum{i}")).inputs(&[filled, axis]).build().unwrap();
    }
    s
}

#[test]
fn large_tensors_and_many_small_ones_arrive_whole() {
    for carrier in CARRIERS {
        let (_cluster, members) = Cluster::of(carrier, &TASKS);
        for (count, elements) in [(3, 600_000), (300, 3)] {
            let client = Client::open(&members[1], &vectors(count, elements));
            let names: Vec<String> = (0..count).map(|i| format!("sum{i}:0")).collect();
            let fetches: Vec<&str> = names.iter().map(String::as_str).collect();
            let sums = numbers(&client.run(&fetches, &[]).unwrap());
            let expected: Vec<f32> = (0..count).map(|i| (i * elements) as f32).collect();
            assert_eq!(sums, expected, "{carrier:?}");
            let streams = members[0].streams_open();
            assert_eq!(streams, usize::from(carrier == Carrier::Stream), "{carrier:?}");
        }
    }
}
