//! `RecvTensor` between two tasks, by every transport.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use thalweg_graph::OpRegistry;
use thalweg_kernel::{Cancellation, KernelRegistry, Rendezvous, RendezvousKey, Value};
use thalweg_proto as pb;
use thalweg_rpc::{Channel, ConnectPolicy};
use thalweg_tensor::{Code, Result, Shape, Tensor, err};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::client::Streams;
use super::frame::VERSION;
use super::hello::HelloResponse;
use crate::cluster_spec::{ClusterSpec, TaskName};
use crate::master::Master;
use crate::member::Member;
use crate::network::grpc::{Server, ServerOptions};
use crate::network::transport::Call;
use crate::task::{Task, TaskOptions, TensorTransport};

const LIMIT: Duration = Duration::from_secs(20);

/// A task that sends tensors, and one that receives them.
struct TaskPair {
    producer: Arc<Member>,
    consumer: Arc<Member>,
    runtime: Option<tokio::runtime::Runtime>,
    _stop: watch::Sender<bool>,
}

fn member(index: u32, spec: &ClusterSpec, tensor_transport: TensorTransport) -> Arc<Member> {
    let options = TaskOptions { job: "t".into(), index, tensor_transport, ..Default::default() };
    let task = Task::new(options, OpRegistry::new([]).unwrap(), KernelRegistry::new([]));
    Member::new(Arc::new(task), spec.clone())
}

impl TaskPair {
    fn new(transport: TensorTransport, hello: Option<HelloResponse>) -> TaskPair {
        TaskPair::with(transport, hello, ServerOptions::default())
    }

    fn with(
        transport: TensorTransport,
        hello: Option<HelloResponse>,
        options: ServerOptions,
    ) -> TaskPair {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let mut spec = ClusterSpec::default();
        spec.add(TaskName::new("t", 0), &listener.local_addr().unwrap().to_string()).unwrap();
        spec.add(TaskName::new("t", 1), "127.0.0.1:1").unwrap();
        let producer = member(0, &spec, transport);
        let master = Arc::new(Master::with_member(producer.clone()));
        let server = Server::new(master, options);
        if let Some(hello) = hello {
            server.set_hello(HelloResponse { incarnation: producer.task.incarnation, ..hello });
        }
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(server.serve(listener, stopped));
        let consumer = member(1, &spec, TensorTransport::Auto);
        TaskPair { producer, consumer, runtime: Some(runtime), _stop: stop }
    }

    /// The producer's address.
    fn address(&self) -> String {
        self.consumer.cluster.address(&TaskName::new("t", 0)).unwrap().to_owned()
    }

    fn key(&self, name: &str) -> RendezvousKey {
        let incarnation = self.producer.task.incarnation;
        let device = |i: u32| format!("/job:t/replica:0/task:{i}/device:CPU:0");
        let key = format!("{};{incarnation:016x};{};{name};0:0", device(0), device(1));
        RendezvousKey(key.into())
    }

    fn send(&self, step: u64, name: &str, value: Value) {
        self.producer.steps.begin(step).local().send(&self.key(name), value).unwrap();
    }

    fn request(
        &self,
        step: i64,
        name: &str,
        cancellation: &Cancellation,
    ) -> mpsc::Receiver<Result<Value>> {
        let request = pb::RecvTensorRequest {
            step_id: step,
            rendezvous_key: self.key(name).0.to_string(),
            ..Default::default()
        };
        let (sender, receiver) = mpsc::channel();
        let transport = self.consumer.transport.as_ref().unwrap();
        let done = Box::new(move |value| drop(sender.send(value)));
        let call = Call { to: &TaskName::new("t", 0), timeout: None, cancellation };
        transport.recv_tensor(call, request, done);
        receiver
    }

    fn receive(&self, step: i64, name: &str) -> Result<Value> {
        let receiver = self.request(step, name, &Cancellation::default());
        receiver.recv_timeout(LIMIT).expect("there is an answer")
    }
}

/// The transports by name, and whether each uses a stream.
fn transports() -> Vec<(&'static str, TaskPair, bool)> {
    let hello = |version: u32, unix_name: &str| {
        Some(HelloResponse { version, unix_name: unix_name.into(), ..Default::default() })
    };
    let auto = TensorTransport::Auto;
    vec![
        ("unix", TaskPair::new(auto, None), true),
        ("TCP", TaskPair::new(auto, hello(VERSION, "")), true),
        (
            "a unix socket of another machine",
            TaskPair::new(auto, hello(VERSION, "thalweg-no")),
            true,
        ),
        ("a socket name without our prefix", TaskPair::new(auto, hello(VERSION, "no")), true),
        ("another protocol version", TaskPair::new(auto, hello(99, "")), false),
        ("gRPC", TaskPair::new(TensorTransport::Grpc, None), false),
    ]
}

fn large() -> Tensor {
    let values: Vec<f32> = (0..3_000_001).map(|i| i as f32).collect();
    Tensor::from_slice(Shape::new(&[values.len()]).unwrap(), &values).unwrap()
}

#[test]
fn tensors_arrive_by_every_transport() {
    for (name, pair, is_stream) in transports() {
        pair.send(1, "large", Value::Tensor(large()));
        pair.send(1, "text", Value::Tensor(Tensor::scalar_string("ab")));
        pair.send(1, "dead", Value::Dead);
        let pending = pair.request(1, "late", &Cancellation::default());
        let Ok(Value::Tensor(got)) = pair.receive(1, "large") else { panic!("{name}: no tensor") };
        assert!(got.as_bytes().unwrap() == large().as_bytes().unwrap(), "{name}");
        // Shared memory may be set up by now.
        pair.send(1, "again", Value::Tensor(large()));
        let Ok(Value::Tensor(got)) = pair.receive(1, "again") else { panic!("{name}: none again") };
        assert!(got.as_bytes().unwrap() == large().as_bytes().unwrap(), "{name}");
        if cfg!(target_os = "linux") && name == "unix" {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            assert!(maps.matches("memfd:thalweg-ring").count() >= 2, "both sides have mapped it");
        }
        let Ok(Value::Tensor(got)) = pair.receive(1, "text") else { panic!("{name}: no text") };
        assert_eq!(got.strings().unwrap(), ["ab"], "{name}");
        assert!(matches!(pair.receive(1, "dead"), Ok(Value::Dead)), "{name}");
        pair.send(1, "late", Value::Tensor(Tensor::scalar(true)));
        let Ok(Ok(Value::Tensor(got))) = pending.recv_timeout(LIMIT) else {
            panic!("{name}: late")
        };
        assert_eq!(got.as_slice::<bool>().unwrap(), [true], "{name}");
        assert_eq!(pair.consumer.streams_open(), usize::from(is_stream), "{name}");
    }
}

#[test]
fn errors_arrive_by_every_transport() {
    for (name, pair, _) in transports() {
        let pending = pair.request(1, "never", &Cancellation::default());
        // The key must be valid.
        let e = pair.receive(1, "x;y").err().unwrap();
        assert_eq!(e.code(), Code::InvalidArgument, "{name}: {e}");
        pair.producer.steps.begin(1);
        pair.producer.steps.finished(1, Some(err!(Internal, "boom")));
        let e = pending.recv_timeout(LIMIT).unwrap().err().unwrap();
        assert_eq!((e.code(), e.message()), (Code::Internal, "boom"), "{name}");
    }
}

#[test]
fn cancelled_requests_leave_no_steps_behind() {
    for (name, pair, _) in transports() {
        let cancellations: Vec<_> = (0..50).map(|_| Cancellation::default()).collect();
        let asked = cancellations.iter().enumerate();
        let receiver: Vec<_> = asked.map(|(i, c)| pair.request(9, &format!("n{i}"), c)).collect();
        let known = |wanted: bool| {
            let is_so = |_| {
                std::thread::sleep(Duration::from_millis(5));
                (pair.producer.steps_known() > 0) == wanted
            };
            (0..4000).any(is_so)
        };
        assert!(known(true), "{name}: the requests arrive");
        cancellations.iter().for_each(|c| c.cancel(err!(Cancelled, "enough")));
        for receiver in receiver {
            assert_eq!(
                receiver.recv_timeout(LIMIT).unwrap().err().unwrap().code(),
                Code::Cancelled
            );
        }
        assert!(known(false), "{name}: the step is dropped");
        assert_eq!(pair.producer.task.incoming.used_bytes(), 0, "{name}");
    }
}

#[test]
fn a_crashed_task_is_lost_at_once() {
    for (name, mut pair, _) in transports() {
        pair.send(1, "a", Value::Tensor(Tensor::scalar(1i32)));
        pair.receive(1, "a").unwrap();
        let pending = pair.request(1, "never", &Cancellation::default());
        let early = pending.recv_timeout(Duration::from_millis(50));
        assert!(matches!(early, Err(mpsc::RecvTimeoutError::Timeout)), "{name}: it still waits");
        pair.runtime.take().unwrap().shutdown_background();
        let e = pending.recv_timeout(Duration::from_secs(5)).unwrap().err().unwrap();
        assert_eq!(e.code(), Code::Unavailable, "{name}: {e}");
        assert!(e.message().contains("/job:t/replica:0/task:0 is lost"), "{name}: {e}");
        assert_eq!(pair.receive(1, "a").err().unwrap().code(), Code::Unavailable, "{name}");
        assert_eq!(pair.consumer.streams_open(), 0, "{name}");
    }
}

#[test]
fn connections_with_protocol_errors_are_closed() {
    use std::io::{Read, Write};
    let pair = TaskPair::new(TensorTransport::Auto, None);
    let address = pair.address();
    let incarnation = pair.producer.task.incarnation;
    let preface = super::frame::Preface { version: VERSION, incarnation }.encode();
    let mut offer = bytes::BytesMut::new();
    super::frame::RingOffer { fd: 1, inode: 1 }.put(&mut offer);
    let invalid = [
        super::frame::Preface { version: 99, incarnation }.encode().to_vec(),
        super::frame::Preface { version: 1, incarnation: incarnation ^ 1 }.encode().to_vec(),
        [&preface[..], &[0xff; 100]].concat(),
        // A request that cannot be decoded, and a frame kind that only servers send.
        [&preface[..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff]].concat(),
        [&preface[..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]].concat(),
        // A freed slot without shared memory, and two offers of shared memory.
        [&preface[..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]].concat(),
        [&preface[..], &offer.repeat(2)].concat(),
    ];
    for bytes in &invalid {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A connection may also be reset.
        let end = socket.read_to_end(&mut answer).err().map(|e| e.kind());
        assert!(matches!(end, None | Some(std::io::ErrorKind::ConnectionReset)), "{end:?}");
        assert!(answer.is_empty() || answer == preface, "{answer:?}");
    }
    pair.send(1, "a", Value::Dead);
    assert!(matches!(pair.receive(1, "a"), Ok(Value::Dead)), "it still serves");
    assert_eq!(pair.producer.task.incoming.used_bytes(), 0);
}

/// A client that encodes its frames itself and receives a large tensor.
#[cfg(target_os = "linux")]
struct RawClient {
    socket: tokio::io::DuplexStream,
    server: tokio::task::JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

#[cfg(target_os = "linux")]
impl RawClient {
    /// Offers the ring of this process, which the server takes for `process`, and asks for a tensor.
    async fn new(pair: &TaskPair, process: i32, ring: &super::ring::Ring) -> RawClient {
        use super::frame::{FrameKind, Header, PREFACE_BYTES, Preface};
        use prost::Message;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        pair.send(1, "large", Value::Tensor(large()));
        let rendezvous_key = pair.key("large").0.to_string();
        let request = pb::RecvTensorRequest { step_id: 1, rendezvous_key, ..Default::default() };
        let preface = Preface { version: VERSION, incarnation: pair.producer.task.incarnation };
        let mut request_bytes = bytes::BytesMut::from(&preface.encode()[..]);
        ring.offer().put(&mut request_bytes);
        Header { id: 1, kind: FrameKind::Request, len: request.encoded_len() }
            .put(&mut request_bytes);
        request.encode_raw(&mut request_bytes);
        let worker = Arc::new(crate::worker::Worker::new(pair.producer.clone()));
        let (_stop, stopped) = watch::channel(false);
        let (mut socket, there) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(there);
        let server = super::server::serve(worker, reader, writer, Some(process), LIMIT, stopped);
        let server = tokio::spawn(server);
        socket.write_all(&request_bytes).await.unwrap();
        socket.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        RawClient { socket, server, _stop }
    }

    async fn next(&mut self) -> (super::frame::FrameKind, Vec<u8>) {
        use tokio::io::AsyncReadExt;
        let mut header = [0; super::frame::HEADER_BYTES];
        self.socket.read_exact(&mut header).await.unwrap();
        let header = super::frame::Header::decode(&header).unwrap();
        let mut body = vec![0; header.len];
        self.socket.read_exact(&mut body).await.unwrap();
        (header.kind, body)
    }
}

/// A client receives a large tensor until no slot is free; then it frees a slot twice, frees a slot that does
/// not exist, offers memory again, or disconnects.
#[cfg(target_os = "linux")]
#[test]
fn clients_that_misuse_slots_are_disconnected() {
    use super::frame::{FrameKind, Header};
    use super::ring::{Ring, SLOTS};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let pair = TaskPair::new(TensorTransport::Auto, None);
    let ring = Ring::allocate().unwrap();
    let mut offer = bytes::BytesMut::new();
    ring.offer().put(&mut offer);
    let freed = |slot: usize| {
        let mut frame = bytes::BytesMut::new();
        Header { id: slot as u64, kind: FrameKind::SlotFreed, len: 0 }.put(&mut frame);
        frame.to_vec()
    };
    for ending in [freed(0).repeat(SLOTS + 9), freed(SLOTS), offer.to_vec(), vec![]] {
        pair.runtime.as_ref().unwrap().block_on(async {
            let mut client = RawClient::new(&pair, std::process::id() as i32, &ring).await;
            let mut placed = 0;
            while placed < SLOTS {
                placed += usize::from(client.next().await.0 == FrameKind::SlotFilled);
            }
            let more = tokio::time::timeout(Duration::from_millis(50), client.socket.read_u8());
            assert!(more.await.is_err(), "without a free slot nothing is sent");
            client.socket.write_all(&ending).await.unwrap();
            if ending.is_empty() {
                drop(client.socket);
            }
            tokio::time::timeout(LIMIT, client.server).await.expect("it ends").unwrap();
        });
        assert_eq!(pair.producer.task.incoming.used_bytes(), 0, "{ending:?}");
    }
}

/// Memory may be offered that the other side does not find.
#[cfg(target_os = "linux")]
#[test]
fn without_the_memory_tensors_come_by_the_socket() {
    use super::frame::{FrameKind, START_BYTES, TensorStart};
    let pair = TaskPair::new(TensorTransport::Auto, None);
    let ring = super::ring::Ring::allocate().unwrap();
    let expected = large();
    let expected = expected.as_bytes().unwrap();
    pair.runtime.as_ref().unwrap().block_on(async {
        let mut client = RawClient::new(&pair, 0, &ring).await;
        let (kind, body) = client.next().await;
        assert_eq!(kind, FrameKind::Tensor);
        let (fixed, rest) = body.split_at(START_BYTES);
        let head_bytes = TensorStart::head_bytes(fixed.try_into().unwrap()).unwrap();
        let mut got = rest[head_bytes..].to_vec();
        while got.len() < expected.len() {
            let (kind, body) = client.next().await;
            assert_eq!(kind, FrameKind::Continuation);
            got.extend_from_slice(&body);
        }
        assert!(got == expected);
    });
}

#[test]
fn who_connects_and_says_nothing_is_let_go() {
    use std::io::{Read, Write};
    let handshake_timeout = Duration::from_millis(200);
    let options = ServerOptions { handshake_timeout, ..Default::default() };
    let pair = TaskPair::with(TensorTransport::Auto, None, options);
    for request_bytes in [&[][..], &super::frame::MAGIC] {
        let mut socket = std::net::TcpStream::connect(pair.address()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(request_bytes).unwrap();
        assert!(matches!(socket.read(&mut [0]), Ok(0)), "{request_bytes:?}: the connection ends");
    }
}

#[test]
fn a_task_without_memory_refuses_requests_and_keeps_the_stream() {
    for (name, pair, is_stream) in transports() {
        if !is_stream {
            continue;
        }
        pair.send(1, "a", Value::Dead);
        pair.receive(1, "a").unwrap();
        let incoming = &pair.producer.task.incoming;
        let all = incoming.left_bytes();
        incoming.take(all).unwrap();
        // More than may be queued without a charge.
        let asked = |i| pair.request(1, &format!("n{i}"), &Cancellation::default());
        let receiver: Vec<_> = (0..3000).map(asked).collect();
        for receiver in receiver {
            let e = receiver.recv_timeout(LIMIT).unwrap().err().unwrap();
            assert_eq!(e.code(), Code::ResourceExhausted, "{name}: {e}");
        }
        incoming.give_back(all);
        assert_eq!(pair.consumer.streams_open(), 1, "{name}");
        pair.send(1, "b", Value::Dead);
        assert!(matches!(pair.receive(1, "b"), Ok(Value::Dead)), "{name}: it goes on");
    }
}

/// After a restart keys may name the former incarnation; the open connection refuses them.
#[test]
fn a_former_incarnation_needs_no_connection_of_its_own() {
    let pair = TaskPair::new(TensorTransport::Auto, None);
    let incoming = pair.consumer.task.incoming.clone();
    let control = Channel::new(Arc::new(pair.address()), ConnectPolicy::Once(LIMIT), incoming);
    let (streams, earlier) = (Streams::default(), pair.producer.task.incarnation ^ (1 << 40));
    let find = async || streams.find(&"t", &control, earlier).await.unwrap().unwrap();
    pair.runtime.as_ref().unwrap().block_on(async {
        let first = find().await;
        assert!(Arc::ptr_eq(&first, &find().await));
        streams.disconnect();
        assert!(!Arc::ptr_eq(&first, &find().await), "a disconnected stream is connected again");
    });
}

/// A receive may find a step's rendezvous just before the step ends.
#[test]
fn a_receive_at_the_end_of_its_step_fails() {
    let pair = TaskPair::new(TensorTransport::Auto, None);
    let table = pair.producer.steps.begin(5);
    assert!(pair.producer.steps.finish_and_clean_up(5, None));
    let (sender, receiver) = mpsc::channel();
    let received = Box::new(move |value: Result<Value>| drop(sender.send(value)));
    table.local().receive(&pair.key("late"), received);
    let e = receiver.try_recv().expect("it is answered at once").err().unwrap();
    assert_eq!((e.code(), e.message()), (Code::Aborted, "step 5 has ended"));
}
