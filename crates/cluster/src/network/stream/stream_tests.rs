//! A task asks another for tensors, whatever the way between them.

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

/// A task that has tensors, and one that wants them.
struct Two {
    owner: Arc<Member>,
    asker: Arc<Member>,
    runtime: Option<tokio::runtime::Runtime>,
    _stop: watch::Sender<bool>,
}

fn member(index: u32, spec: &ClusterSpec, way: TensorTransport) -> Arc<Member> {
    let options =
        TaskOptions { job: "t".into(), index, tensor_transport: way, ..Default::default() };
    let task = Task::new(options, OpRegistry::new([]).unwrap(), KernelRegistry::new([]));
    Member::of(Arc::new(task), spec.clone())
}

impl Two {
    fn new(way: TensorTransport, hello: Option<HelloResponse>) -> Two {
        Two::with(way, hello, ServerOptions::default())
    }

    fn with(way: TensorTransport, hello: Option<HelloResponse>, options: ServerOptions) -> Two {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let mut spec = ClusterSpec::default();
        spec.add(TaskName::new("t", 0), &listener.local_addr().unwrap().to_string()).unwrap();
        spec.add(TaskName::new("t", 1), "127.0.0.1:1").unwrap();
        let owner = member(0, &spec, way);
        let master = Arc::new(Master::of(owner.clone()));
        let server = Server::new(master, options);
        if let Some(hello) = hello {
            server.say(HelloResponse { incarnation: owner.task.incarnation, ..hello });
        }
        let (stop, stopped) = watch::channel(false);
        runtime.spawn(server.serve(listener, stopped));
        let asker = member(1, &spec, TensorTransport::Auto);
        Two { owner, asker, runtime: Some(runtime), _stop: stop }
    }

    /// Where the owner is.
    fn address(&self) -> String {
        self.asker.cluster.address(&TaskName::new("t", 0)).unwrap().to_owned()
    }

    fn key(&self, name: &str) -> RendezvousKey {
        let incarnation = self.owner.task.incarnation;
        let device = |i: u32| format!("/job:t/replica:0/task:{i}/device:CPU:0");
        let key = format!("{};{incarnation:016x};{};{name};0:0", device(0), device(1));
        RendezvousKey(key.into())
    }

    fn send(&self, step: u64, name: &str, value: Value) {
        self.owner.steps.begin(step).local().send(&self.key(name), value).unwrap();
    }

    fn ask(
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
        let (tell, told) = mpsc::channel();
        let transport = self.asker.transport.as_ref().unwrap();
        let done = Box::new(move |value| drop(tell.send(value)));
        let call = Call { to: &TaskName::new("t", 0), timeout: None, cancellation };
        transport.recv_tensor(call, request, done);
        told
    }

    fn receive(&self, step: i64, name: &str) -> Result<Value> {
        let told = self.ask(step, name, &Cancellation::default());
        told.recv_timeout(LIMIT).expect("there is an answer")
    }
}

/// The ways, and whether a stream is open once a tensor came.
fn ways() -> Vec<(&'static str, Two, bool)> {
    let hello = |version: u32, unix_name: &str| {
        Some(HelloResponse { version, unix_name: unix_name.into(), ..Default::default() })
    };
    let auto = TensorTransport::Auto;
    vec![
        ("unix", Two::new(auto, None), true),
        ("TCP", Two::new(auto, hello(VERSION, "")), true),
        ("a name of another machine", Two::new(auto, hello(VERSION, "thalweg-no")), true),
        ("a name that is not ours", Two::new(auto, hello(VERSION, "no")), true),
        ("another version", Two::new(auto, hello(99, "")), false),
        ("gRPC", Two::new(TensorTransport::Grpc, None), false),
    ]
}

fn large() -> Tensor {
    let values: Vec<f32> = (0..3_000_001).map(|i| i as f32).collect();
    Tensor::from_slice(Shape::new(&[values.len()]).unwrap(), &values).unwrap()
}

#[test]
fn tensors_arrive_by_every_way() {
    for (way, two, is_stream) in ways() {
        two.send(1, "large", Value::Tensor(large()));
        two.send(1, "text", Value::Tensor(Tensor::scalar_string("ab")));
        two.send(1, "dead", Value::Dead);
        let waits = two.ask(1, "late", &Cancellation::default());
        let Ok(Value::Tensor(got)) = two.receive(1, "large") else { panic!("{way}: no tensor") };
        assert!(got.as_bytes().unwrap() == large().as_bytes().unwrap(), "{way}");
        // By now there may be memory that both share.
        two.send(1, "again", Value::Tensor(large()));
        let Ok(Value::Tensor(got)) = two.receive(1, "again") else { panic!("{way}: none again") };
        assert!(got.as_bytes().unwrap() == large().as_bytes().unwrap(), "{way}");
        if cfg!(target_os = "linux") && way == "unix" {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            assert!(maps.matches("memfd:thalweg-ring").count() >= 2, "each side has it");
        }
        let Ok(Value::Tensor(got)) = two.receive(1, "text") else { panic!("{way}: no text") };
        assert_eq!(got.strings().unwrap(), ["ab"], "{way}");
        assert!(matches!(two.receive(1, "dead"), Ok(Value::Dead)), "{way}");
        two.send(1, "late", Value::Tensor(Tensor::scalar(true)));
        let Ok(Ok(Value::Tensor(got))) = waits.recv_timeout(LIMIT) else { panic!("{way}: late") };
        assert_eq!(got.as_slice::<bool>().unwrap(), [true], "{way}");
        assert_eq!(two.asker.streams_open(), usize::from(is_stream), "{way}");
    }
}

#[test]
fn failures_arrive_by_every_way() {
    for (way, two, _) in ways() {
        let waits = two.ask(1, "never", &Cancellation::default());
        // The key must name this start of the task.
        let e = two.receive(1, "x;y").err().unwrap();
        assert_eq!(e.code(), Code::InvalidArgument, "{way}: {e}");
        two.owner.steps.begin(1);
        two.owner.steps.finished(1, Some(err!(Internal, "boom")));
        let e = waits.recv_timeout(LIMIT).unwrap().err().unwrap();
        assert_eq!((e.code(), e.message()), (Code::Internal, "boom"), "{way}");
    }
}

#[test]
fn who_cancels_is_answered_and_leaves_nothing_behind() {
    for (way, two, _) in ways() {
        let cancellations: Vec<_> = (0..50).map(|_| Cancellation::default()).collect();
        let asked = cancellations.iter().enumerate();
        let told: Vec<_> = asked.map(|(i, c)| two.ask(9, &format!("n{i}"), c)).collect();
        let known = |wanted: bool| {
            let is_so = |_| {
                std::thread::sleep(Duration::from_millis(5));
                (two.owner.steps_known() > 0) == wanted
            };
            (0..4000).any(is_so)
        };
        assert!(known(true), "{way}: the questions arrive");
        cancellations.iter().for_each(|c| c.cancel(err!(Cancelled, "enough")));
        for told in told {
            assert_eq!(told.recv_timeout(LIMIT).unwrap().err().unwrap().code(), Code::Cancelled);
        }
        assert!(known(false), "{way}: the step is forgotten");
        assert_eq!(two.owner.task.incoming.used_bytes(), 0, "{way}");
    }
}

#[test]
fn a_task_that_dies_is_lost_at_once() {
    for (way, mut two, _) in ways() {
        two.send(1, "a", Value::Tensor(Tensor::scalar(1i32)));
        two.receive(1, "a").unwrap();
        let waits = two.ask(1, "never", &Cancellation::default());
        assert!(waits.recv_timeout(Duration::from_millis(50)).is_err(), "{way}: nothing comes");
        two.runtime.take().unwrap().shutdown_background();
        let e = waits.recv_timeout(Duration::from_secs(5)).unwrap().err().unwrap();
        assert_eq!(e.code(), Code::Unavailable, "{way}: {e}");
        assert!(e.message().contains("/job:t/replica:0/task:0 is lost"), "{way}: {e}");
        assert_eq!(two.receive(1, "a").err().unwrap().code(), Code::Unavailable, "{way}");
        assert_eq!(two.asker.streams_open(), 0, "{way}");
    }
}

#[test]
fn connections_that_are_no_streams_end() {
    use std::io::{Read, Write};
    let two = Two::new(TensorTransport::Auto, None);
    let address = two.address();
    let incarnation = two.owner.task.incarnation;
    let preface = super::frame::Preface { version: VERSION, incarnation }.encode();
    let mut offer = bytes::BytesMut::new();
    super::frame::Offer { number: 1, file: 1 }.put(&mut offer);
    let strange = [
        super::frame::Preface { version: 99, incarnation }.encode().to_vec(),
        super::frame::Preface { version: 1, incarnation: incarnation ^ 1 }.encode().to_vec(),
        [&preface[..], &[0xff; 100]].concat(),
        // A question that is no message, and one with an answer's kind.
        [&preface[..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff]].concat(),
        [&preface[..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]].concat(),
        // A slot of memory that was never offered, and memory that is offered twice.
        [&preface[..], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]].concat(),
        [&preface[..], &offer.repeat(2)].concat(),
    ];
    for bytes in &strange {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let end = socket.read_to_end(&mut answer).err().map(|e| e.kind());
        assert!(matches!(end, None | Some(std::io::ErrorKind::ConnectionReset)), "{end:?}");
        assert!(answer.is_empty() || answer == preface, "{answer:?}");
    }
    two.send(1, "a", Value::Dead);
    assert!(matches!(two.receive(1, "a"), Ok(Value::Dead)), "it still serves");
    assert_eq!(two.owner.task.incoming.used_bytes(), 0);
}

/// A client that takes a large tensor by hand.
#[cfg(target_os = "linux")]
struct Taker {
    socket: tokio::io::DuplexStream,
    served: tokio::task::JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

#[cfg(target_os = "linux")]
impl Taker {
    /// Offers the ring of this process, which the server takes for `process`, and asks for a tensor.
    async fn new(two: &Two, process: i32, ring: &super::ring::Ring) -> Taker {
        use super::frame::{Header, Kind, PREFACE_BYTES, Preface};
        use prost::Message;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        two.send(1, "large", Value::Tensor(large()));
        let rendezvous_key = two.key("large").0.to_string();
        let request = pb::RecvTensorRequest { step_id: 1, rendezvous_key, ..Default::default() };
        let preface = Preface { version: VERSION, incarnation: two.owner.task.incarnation };
        let mut said = bytes::BytesMut::from(&preface.encode()[..]);
        ring.offer().put(&mut said);
        Header { id: 1, kind: Kind::Want, len: request.encoded_len() }.put(&mut said);
        request.encode_raw(&mut said);
        let worker = Arc::new(crate::worker::Worker::new(two.owner.clone()));
        let (_stop, stopped) = watch::channel(false);
        let (mut socket, there) = tokio::io::duplex(1 << 20);
        let (reader, writer) = tokio::io::split(there);
        let served = super::server::serve(worker, reader, writer, Some(process), LIMIT, stopped);
        let served = tokio::spawn(served);
        socket.write_all(&said).await.unwrap();
        socket.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        Taker { socket, served, _stop }
    }

    async fn next(&mut self) -> (super::frame::Kind, Vec<u8>) {
        use tokio::io::AsyncReadExt;
        let mut header = [0; super::frame::HEADER_BYTES];
        self.socket.read_exact(&mut header).await.unwrap();
        let header = super::frame::Header::decode(&header).unwrap();
        let mut body = vec![0; header.len];
        self.socket.read_exact(&mut body).await.unwrap();
        (header.kind, body)
    }
}

/// Who takes a large tensor, as far as the slots go; then it frees a slot twice, frees one that there
/// is not, offers memory again, or is gone.
#[cfg(target_os = "linux")]
#[test]
fn takers_of_large_tensors_may_be_strange() {
    use super::frame::{Header, Kind};
    use super::ring::{Ring, SLOTS};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let two = Two::new(TensorTransport::Auto, None);
    let ring = Ring::make().unwrap();
    let mut offer = bytes::BytesMut::new();
    ring.offer().put(&mut offer);
    let freed = |slot: usize| {
        let mut frame = bytes::BytesMut::new();
        Header { id: slot as u64, kind: Kind::Freed, len: 0 }.put(&mut frame);
        frame.to_vec()
    };
    for ending in [freed(0).repeat(SLOTS + 9), freed(SLOTS), offer.to_vec(), vec![]] {
        two.runtime.as_ref().unwrap().block_on(async {
            let mut taker = Taker::new(&two, std::process::id() as i32, &ring).await;
            let mut placed = 0;
            while placed < SLOTS {
                placed += usize::from(taker.next().await.0 == Kind::Placed);
            }
            let more = tokio::time::timeout(Duration::from_millis(50), taker.socket.read_u8());
            assert!(more.await.is_err(), "without a slot nothing comes");
            taker.socket.write_all(&ending).await.unwrap();
            if ending.is_empty() {
                drop(taker.socket);
            }
            tokio::time::timeout(LIMIT, taker.served).await.expect("it ends").unwrap();
        });
        assert_eq!(two.owner.task.incoming.used_bytes(), 0, "{ending:?}");
    }
}

/// Memory may be offered that the other side does not find.
#[cfg(target_os = "linux")]
#[test]
fn without_the_memory_tensors_come_by_the_socket() {
    use super::frame::{Kind, START_BYTES, TensorStart};
    let two = Two::new(TensorTransport::Auto, None);
    let ring = super::ring::Ring::make().unwrap();
    let expected = large();
    let expected = expected.as_bytes().unwrap();
    two.runtime.as_ref().unwrap().block_on(async {
        let mut taker = Taker::new(&two, 0, &ring).await;
        let (kind, body) = taker.next().await;
        assert_eq!(kind, Kind::Tensor);
        let (fixed, rest) = body.split_at(START_BYTES);
        let head_bytes = TensorStart::head_bytes(fixed.try_into().unwrap()).unwrap();
        let mut got = rest[head_bytes..].to_vec();
        while got.len() < expected.len() {
            let (kind, body) = taker.next().await;
            assert_eq!(kind, Kind::More);
            got.extend_from_slice(&body);
        }
        assert!(got == expected);
    });
}

#[test]
fn who_connects_and_says_nothing_is_let_go() {
    use std::io::{Read, Write};
    let greeting_limit = Duration::from_millis(200);
    let options = ServerOptions { greeting_limit, ..Default::default() };
    let two = Two::with(TensorTransport::Auto, None, options);
    for said in [&[][..], &super::frame::MAGIC] {
        let mut socket = std::net::TcpStream::connect(two.address()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(said).unwrap();
        assert!(matches!(socket.read(&mut [0]), Ok(0)), "{said:?}: the connection ends");
    }
}

#[test]
fn a_task_without_room_refuses_questions_and_keeps_the_stream() {
    for (way, two, is_stream) in ways() {
        if !is_stream {
            continue;
        }
        two.send(1, "a", Value::Dead);
        two.receive(1, "a").unwrap();
        let incoming = &two.owner.task.incoming;
        let all = incoming.left_bytes();
        incoming.take(all).unwrap();
        // More than may be on their way without a charge.
        let asked = |i| two.ask(1, &format!("n{i}"), &Cancellation::default());
        let told: Vec<_> = (0..3000).map(asked).collect();
        for told in told {
            let e = told.recv_timeout(LIMIT).unwrap().err().unwrap();
            assert_eq!(e.code(), Code::ResourceExhausted, "{way}: {e}");
        }
        incoming.give_back(all);
        assert_eq!(two.asker.streams_open(), 1, "{way}");
        two.send(1, "b", Value::Dead);
        assert!(matches!(two.receive(1, "b"), Ok(Value::Dead)), "{way}: it goes on");
    }
}

/// Keys of an earlier start come after a restart; each is refused by the connection that there is.
#[test]
fn another_start_needs_no_connection_of_its_own() {
    let two = Two::new(TensorTransport::Auto, None);
    let incoming = two.asker.task.incoming.clone();
    let control = Channel::new(Arc::new(two.address()), ConnectPolicy::Once(LIMIT), incoming);
    let (streams, earlier) = (Streams::default(), two.owner.task.incarnation ^ (1 << 40));
    let find = async || streams.find(&"t", &control, earlier).await.unwrap().unwrap();
    two.runtime.as_ref().unwrap().block_on(async {
        let first = find().await;
        assert!(Arc::ptr_eq(&first, &find().await));
        streams.forget();
        assert!(!Arc::ptr_eq(&first, &find().await), "what is forgotten is made anew");
    });
}

/// A receive may find a step's table just before the step ends.
#[test]
fn who_comes_as_a_step_ends_is_told_so() {
    let two = Two::new(TensorTransport::Auto, None);
    let table = two.owner.steps.begin(5);
    assert!(two.owner.steps.finished_whole(5, None));
    let (tell, told) = mpsc::channel();
    let received = Box::new(move |value: Result<Value>| drop(tell.send(value)));
    table.local().receive(&two.key("late"), received);
    let e = told.try_recv().expect("it is answered at once").err().unwrap();
    assert_eq!((e.code(), e.message()), (Code::Aborted, "step 5 is over"));
}
