//! A server in this process, on a free port.
#![allow(dead_code, reason = "no test uses all helpers")]
#![allow(clippy::disallowed_methods, reason = "a test has threads and time of its own")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::mpsc;
use std::sync::{Arc, LazyLock};

use thalweg_cluster::grpc::{Server, ServerOptions};
use thalweg_cluster::{ConnectOptions, Master, RemoteSession, Task, TaskOptions};
use thalweg_graph::{OpRegistry, Output, Scope};
use thalweg_kernel::KernelRegistry;
use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
use thalweg_proto as pb;
use thalweg_tensor::{DType, Tensor};
use tokio::net::TcpListener;
use tokio::sync::watch;

static REGISTRIES: LazyLock<(Arc<OpRegistry>, Arc<KernelRegistry>)> =
    LazyLock::new(|| (op_registry(FAMILIES).unwrap(), kernel_registry(FAMILIES)));

/// A server that lives until it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: String,
    pub(crate) master: Arc<Master>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TestServer {
    pub(crate) fn new() -> TestServer {
        TestServer::with(TaskOptions::default(), ServerOptions::default())
    }

    pub(crate) fn with(task: TaskOptions, options: ServerOptions) -> TestServer {
        let task = Task::new(task, REGISTRIES.0.clone(), REGISTRIES.1.clone());
        let master = Arc::new(Master::new(Arc::new(task)));
        let server = Server::new(master.clone(), options);
        let (stop, stopped) = watch::channel(false);
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap().to_string()).unwrap();
                server.serve(listener, stopped).await;
            });
        });
        TestServer { address: receiver.recv().unwrap(), master, stop, thread: Some(thread) }
    }

    pub(crate) fn target(&self) -> String {
        format!("grpc://{}", self.address)
    }

    pub(crate) fn open(&self, scope: &Scope) -> RemoteSession {
        RemoteSession::open(&self.target(), scope.to_graph().to_def(), ConnectOptions::default())
            .unwrap()
    }

    /// Checks that the server runs a step.
    #[track_caller]
    pub(crate) fn assert_alive(&self) {
        let mut s = scope();
        let sum = constant_sum(&mut s);
        let session = self.open(&s);
        assert_eq!(numbers(&session.run(&[], &[&s.name_of(sum)], &[]).unwrap()), [3.0]);
        session.close().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        let _ = self.thread.take().unwrap().join();
    }
}

pub(crate) fn scope() -> Scope {
    Scope::new(REGISTRIES.0.clone())
}

pub(crate) fn number(x: f32) -> Tensor {
    Tensor::scalar(x)
}

pub(crate) fn numbers(tensors: &[Tensor]) -> Vec<f32> {
    tensors.iter().map(|t| t.as_slice::<f32>().unwrap()[0]).collect()
}

pub(crate) fn constant_sum(s: &mut Scope) -> Output {
    let (a, b) = (s.constant(&number(1.0)).unwrap(), s.constant(&number(2.0)).unwrap());
    s.op("AddV2").name("sum").inputs(&[a, b]).build().unwrap()
}

pub(crate) fn placeholder(s: &mut Scope, name: &str) -> Output {
    s.op("Placeholder").name(name).attr("dtype", DType::Float).build().unwrap()
}

/// A queue of floats, an enqueue of `enqueued` and a dequeue.
pub(crate) fn queue(s: &mut Scope, enqueued: Output) -> (Output, Output) {
    let handle = s
        .op("FIFOQueueV2")
        .name("queue")
        .attr("component_types", &[DType::Float][..])
        .attr("capacity", 10_000_i64)
        .build()
        .unwrap();
    s.op("QueueEnqueueV2").name("enqueue").inputs(&[handle, enqueued]).build_all().unwrap();
    let dequeued = s
        .op("QueueDequeueV2")
        .name("dequeue")
        .attr("component_types", &[DType::Float][..])
        .input(handle)
        .build()
        .unwrap();
    (handle, dequeued)
}

/// A GraphDef of this many nodes that do nothing.
pub(crate) fn idle_graph(nodes: usize) -> pb::GraphDef {
    let node =
        |i: usize| pb::NodeDef { name: format!("n{i}"), op: "NoOp".into(), ..Default::default() };
    pb::GraphDef { node: (0..nodes).map(node).collect(), ..Default::default() }
}
