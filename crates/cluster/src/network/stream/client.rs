//! The client side of the stream protocol: one connection to each task of ours, made on demand.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxHashMap;
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_rpc::Channel;
use thalweg_tensor::{Budget, Charge, Code, Error, Result, ensure, err};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::info;

use super::frame::{
    FrameKind, HEADER_BYTES, Header, PREFACE_BYTES, Preface, RingOffer, SMALL_BYTES_MAX,
    START_BYTES, SlotRange, TensorStart, VERSION, decode_error, protocol_error,
};
use super::hello::{HelloRequest, HelloResponse};
use super::incoming_tensor::IncomingTensor;
use super::reader::Reader;
use super::ring::{self, RING_TENSOR_BYTES_MIN, Ring, SlotSet};
use super::socket;
use crate::network::grpc::methods::HELLO;

/// Timeout of a connection attempt.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Maximum number of devices of a task; a device's incarnation is the task's plus its index.
const DEVICES_MAX: u64 = 1024;
/// Maximum number of remembered incarnations without a stream.
const INCARNATIONS_MAX: usize = 16;

/// The connection to the stream server of another task, if that task has one.
#[derive(Default)]
pub(crate) struct Streams {
    state: Mutex<State>,
    /// Held while a connection is made.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Incarnations, as in rendezvous keys, whose tensors are received by gRPC.
    without: Vec<u64>,
}

/// How tensors of a task are received.
enum TensorRoute {
    Stream(Arc<Connection>),
    Grpc,
}

impl Streams {
    /// The connection to the task with this incarnation; none if its tensors are received by gRPC.
    pub(crate) async fn find(
        &self,
        name: &impl std::fmt::Display,
        control: &Channel,
        incarnation: u64,
    ) -> Result<Option<Arc<Connection>>> {
        let route = match self.known_route(incarnation) {
            Some(route) => route,
            None => {
                let _first = self.connecting.lock().await;
                match self.known_route(incarnation) {
                    Some(route) => route,
                    None => self.connect(name, control, incarnation).await?,
                }
            }
        };
        Ok(match route {
            TensorRoute::Stream(connection) => Some(connection),
            TensorRoute::Grpc => None,
        })
    }

    /// Drops the connection; the next request makes a new one.
    pub(crate) fn disconnect(&self) {
        self.state.lock().connection = None;
    }

    /// Whether there is a connection.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock();
        state.connection.as_ref().is_some_and(|connection| !connection.is_lost())
    }

    fn known_route(&self, incarnation: u64) -> Option<TensorRoute> {
        let state = self.state.lock();
        if let Some(connection) = &state.connection
            && connection.serves(incarnation)
        {
            return Some(TensorRoute::Stream(connection.clone()));
        }
        state.without.contains(&incarnation).then_some(TensorRoute::Grpc)
    }

    async fn connect(
        &self,
        name: &impl std::fmt::Display,
        control: &Channel,
        incarnation: u64,
    ) -> Result<TensorRoute> {
        let hello = say_hello(control).await?;
        // If the task has another incarnation than the key, it refuses the request itself.
        if let Some(connection) = hello.as_ref().and_then(|hello| self.reusable(hello)) {
            return Ok(TensorRoute::Stream(connection));
        }
        let opened = match &hello {
            Some(hello) => open(control, hello).await,
            None => None,
        };
        let mut state = self.state.lock();
        match opened {
            Some((connection, socket)) => {
                info!(
                    target: "thalweg::transport",
                    task = %name,
                    socket,
                    "tensors of {name} come by a {socket} socket"
                );
                let connection = Arc::new(connection);
                state.connection = Some(connection.clone());
                Ok(TensorRoute::Stream(connection))
            }
            None => {
                if state.without.len() >= INCARNATIONS_MAX {
                    state.without.remove(0);
                }
                state.without.push(incarnation);
                Ok(TensorRoute::Grpc)
            }
        }
    }

    /// The open connection, if it is to the task that sent `hello`.
    fn reusable(&self, hello: &HelloResponse) -> Option<Arc<Connection>> {
        let state = self.state.lock();
        let is_same = |c: &&Arc<Connection>| c.incarnation == hello.incarnation && !c.is_lost();
        state.connection.as_ref().filter(is_same).cloned()
    }
}

/// Calls `Hello`; none if the task has no stream server of our version.
async fn say_hello(control: &Channel) -> Result<Option<HelloResponse>> {
    let request = HelloRequest { version: VERSION };
    let answer: Result<HelloResponse> = control.call(HELLO, &request, None).await;
    match answer {
        Ok(hello) if hello.version == VERSION => Ok(Some(hello)),
        // The task is lost; gRPC would not reach it either.
        Err(e) if e.code() == Code::Unavailable => Err(e),
        // A TensorFlow task, or one of another version.
        _ => Ok(None),
    }
}

/// Connects to the task that sent `hello`; returns the kind of socket too. None if it is not reachable.
async fn open(control: &Channel, hello: &HelloResponse) -> Option<(Connection, &'static str)> {
    let incoming = control.incoming();
    if !hello.unix_name.is_empty()
        && let Ok(Ok(stream)) =
            tokio::time::timeout(CONNECT_LIMIT, socket::connect(&hello.unix_name)).await
    {
        socket::tune_unix(&stream);
        let (reader, writer) = stream.into_split();
        if let Some(connection) = exchange_prefaces(reader, writer, hello, incoming, true).await {
            return Some((connection, "unix"));
        }
    }
    let stream = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(&*control.address())).await;
    // The unix socket may have been one of another machine.
    let stream = stream.ok()?.ok()?;
    socket::tune_tcp(&stream);
    let (reader, writer) = stream.into_split();
    let connection = exchange_prefaces(reader, writer, hello, incoming, false).await?;
    Some((connection, "TCP"))
}

/// Exchanges prefaces and starts the connection; none if it is not the task that sent `hello`. `is_local`
/// allows shared memory.
async fn exchange_prefaces<R, W>(
    mut reader: R,
    mut writer: W,
    hello: &HelloResponse,
    incoming: &Arc<Budget>,
    is_local: bool,
) -> Option<Connection>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let ours = Preface { version: VERSION, incarnation: hello.incarnation };
    let exchange = async {
        writer.write_all(&ours.encode()).await?;
        let mut theirs = [0; PREFACE_BYTES];
        reader.read_exact(&mut theirs).await?;
        Ok::<_, io::Error>(theirs)
    };
    let theirs = tokio::time::timeout(CONNECT_LIMIT, exchange).await.ok()?.ok()?;
    let is_right = Preface::decode(&theirs).is_ok_and(|theirs| theirs == ours);
    is_right.then(|| Connection::start(reader, writer, hello.incarnation, incoming, is_local))
}

/// A connection over which tensors are received.
pub(crate) struct Connection {
    /// The incarnation of the task at the other end.
    incarnation: u64,
    next_id: AtomicU64,
    requests: mpsc::UnboundedSender<Bytes>,
    pending: Arc<PendingRequests>,
}

/// Requests without an answer.
#[derive(Default)]
struct PendingRequests {
    state: Mutex<PendingState>,
    /// Notified when a request is cancelled: its tensor may be partly received.
    cancelled: Notify,
}

#[derive(Default)]
struct PendingState {
    waiting: FxHashMap<u64, oneshot::Sender<Result<Value>>>,
    /// Why the connection ended.
    lost: Option<Error>,
}

impl PendingRequests {
    fn answer(&self, id: u64, result: Result<Value>) {
        let waiting = self.state.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            // The receiver is dropped if the request was cancelled.
            let _ = waiting.send(result);
        }
    }

    fn is_waiting(&self, id: u64) -> bool {
        self.state.lock().waiting.contains_key(&id)
    }

    fn lose(&self, cause: &Error) {
        let waiting = {
            let mut state = self.state.lock();
            state.lost.get_or_insert_with(|| cause.clone());
            std::mem::take(&mut state.waiting)
        };
        for waiting in waiting.into_values() {
            let _ = waiting.send(Err(cause.clone()));
        }
    }
}

/// Cancels a request when it is dropped, unless it is answered.
struct CancelOnDrop<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let pending = &self.connection.pending;
        let was_waiting = pending.state.lock().waiting.remove(&self.id).is_some();
        if was_waiting {
            pending.cancelled.notify_one();
            let mut frame = BytesMut::with_capacity(HEADER_BYTES);
            Header { id: self.id, kind: FrameKind::Cancel, len: 0 }.put(&mut frame);
            let _ = self.connection.requests.send(frame.freeze());
        }
    }
}

impl Connection {
    fn start<R, W>(
        reader: R,
        writer: W,
        incarnation: u64,
        incoming: &Arc<Budget>,
        is_local: bool,
    ) -> Connection
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let pending = Arc::new(PendingRequests::default());
        let (requests, asked) = mpsc::unbounded_channel();
        let (reader_pending, incoming) = (pending.clone(), incoming.clone());
        tokio::spawn(async move {
            let control = ControlFrames::default();
            let answers = AnswerReader {
                reader: Reader::new(reader),
                pending: &reader_pending,
                incoming: &incoming,
                partial: FxHashMap::default(),
                control: &control,
                ring: None,
                may_offer_ring: is_local,
            };
            // Control frames of the reading side are written before more is read.
            let end = tokio::select! {
                biased;
                end = answers.read_all() => end,
                end = write_requests(writer, asked, &control) => end,
            };
            reader_pending.lose(&end);
        });
        Connection { incarnation, next_id: AtomicU64::new(1), requests, pending }
    }

    /// Whether a device of the connected task may have this incarnation.
    fn serves(&self, incarnation: u64) -> bool {
        incarnation.wrapping_sub(self.incarnation) < DEVICES_MAX && !self.is_lost()
    }

    fn is_lost(&self) -> bool {
        self.pending.state.lock().lost.is_some()
    }

    /// Requests a tensor. Dropping the future cancels the request.
    pub(crate) async fn receive(&self, request: &pb::RecvTensorRequest) -> Result<Value> {
        let len = request.encoded_len();
        ensure!(
            len <= SMALL_BYTES_MAX,
            InvalidArgument,
            "a RecvTensor request has {len} bytes; the stream protocol takes at most {SMALL_BYTES_MAX}"
        );
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.pending.state.lock();
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            state.waiting.insert(id, sender);
        }
        let _cancel_on_drop = CancelOnDrop { connection: self, id };
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + len);
        Header { id, kind: FrameKind::Request, len }.put(&mut frame);
        request.encode_raw(&mut frame);
        // If the connection was lost, all its requests have failed, this one too.
        let _ = self.requests.send(frame.freeze());
        receiver.await.unwrap_or_else(|_| Err(err!(Unavailable, "the stream was closed")))
    }
}

/// Writes requests until the connection is dropped; returns why it ended.
async fn write_requests(
    mut writer: impl AsyncWrite + Unpin,
    mut asked: mpsc::UnboundedReceiver<Bytes>,
    control: &ControlFrames,
) -> Error {
    loop {
        let mut batch = BytesMut::new();
        tokio::select! {
            first = asked.recv() => match first {
                Some(first) => batch.extend_from_slice(&first),
                None => return err!(Unavailable, "the stream was closed by this task"),
            },
            () = control.changed.notified() => {}
        }
        control.put(&mut batch);
        while batch.len() < SMALL_BYTES_MAX
            && let Ok(next) = asked.try_recv()
        {
            batch.extend_from_slice(&next);
        }
        if let Err(e) = writer.write_all(&batch).await {
            return io_error(&e);
        }
    }
}

/// Frames that the reading side has the writing side send: one offer and a set of slots, so they are bounded.
#[derive(Default)]
struct ControlFrames {
    /// An offer of shared memory that is not sent yet.
    offer: Mutex<Option<RingOffer>>,
    freed: SlotSet,
    changed: Notify,
}

impl ControlFrames {
    fn put(&self, out: &mut BytesMut) {
        if let Some(offer) = self.offer.lock().take() {
            offer.put(out);
        }
        while let Some(slot) = self.freed.take() {
            Header { id: slot as u64, kind: FrameKind::SlotFreed, len: 0 }.put(out);
        }
    }
}

fn io_error(e: &io::Error) -> Error {
    err!(Unavailable, "the stream failed: {e}")
}

/// Why reading a stream failed.
enum StreamError {
    Io(io::Error),
    Protocol(Error),
}

impl From<io::Error> for StreamError {
    fn from(e: io::Error) -> StreamError {
        StreamError::Io(e)
    }
}

impl From<Error> for StreamError {
    fn from(e: Error) -> StreamError {
        StreamError::Protocol(e)
    }
}

/// Reads the answers of a connection.
struct AnswerReader<'a, R> {
    reader: Reader<R>,
    pending: &'a PendingRequests,
    incoming: &'a Arc<Budget>,
    /// Partly received tensors, by request id.
    partial: FxHashMap<u64, IncomingTensor>,
    control: &'a ControlFrames,
    /// The shared memory that was offered.
    ring: Option<(Ring, Charge)>,
    /// Whether the other task is on this machine and no shared memory was offered yet.
    may_offer_ring: bool,
}

impl<R: AsyncRead + Unpin> AnswerReader<'_, R> {
    /// Reads answers until the stream ends; returns why it ended.
    async fn read_all(mut self) -> Error {
        loop {
            match self.next().await {
                Ok(true) => {}
                Ok(false) => return err!(Unavailable, "the other task closed the stream"),
                Err(StreamError::Io(e)) => return io_error(&e),
                // A task that violates the protocol is treated as lost.
                Err(StreamError::Protocol(e)) => {
                    return e.with_code(Code::Unavailable);
                }
            }
        }
    }

    /// Reads one frame, or drops tensors of cancelled requests; false at the end of the stream.
    async fn next(&mut self) -> Result<bool, StreamError> {
        let header = tokio::select! {
            header = self.reader.array::<HEADER_BYTES>() => header?,
            () = self.pending.cancelled.notified() => {
                self.partial.retain(|id, _| self.pending.is_waiting(*id));
                return Ok(true);
            }
        };
        let Some(header) = header else { return Ok(false) };
        let header = Header::decode(&header)?;
        match header.kind {
            FrameKind::Request | FrameKind::Cancel | FrameKind::Ring | FrameKind::SlotFreed => {
                return Err(protocol_error("the server sent a request").into());
            }
            FrameKind::Dead => {
                self.partial.remove(&header.id);
                self.pending.answer(header.id, Ok(Value::Dead));
            }
            FrameKind::Error => {
                self.partial.remove(&header.id);
                let body = self.reader.bytes(header.len).await?;
                self.pending.answer(header.id, Err(decode_error(&body)));
            }
            FrameKind::Tensor => self.begin_tensor(header).await?,
            FrameKind::Continuation => self.read_content(header.id, header.len).await?,
            FrameKind::SlotFilled => {
                let slot_range = SlotRange::decode(&self.reader.array_whole().await?);
                self.read_slot(header.id, slot_range)?;
                // Lets the writing side send `Freed`, and other async tasks run.
                tokio::task::yield_now().await;
            }
        }
        Ok(true)
    }

    async fn begin_tensor(&mut self, header: Header) -> Result<(), StreamError> {
        let rest = header.len.checked_sub(START_BYTES);
        let rest =
            rest.ok_or_else(|| protocol_error("a Tensor frame is too short for its head"))?;
        let fixed = self.reader.array_whole::<START_BYTES>().await?;
        let head_bytes = TensorStart::head_bytes(&fixed)?;
        let rest = rest.checked_sub(head_bytes);
        let rest =
            rest.ok_or_else(|| protocol_error("the head of a tensor is longer than its frame"))?;
        let head = self.reader.bytes(head_bytes).await?;
        let start = TensorStart::decode(&fixed, &head)?;
        if self.partial.contains_key(&header.id) {
            return Err(protocol_error("a second Tensor frame for one request").into());
        }
        if start.content_bytes >= RING_TENSOR_BYTES_MIN {
            self.offer_ring();
        }
        if self.pending.is_waiting(header.id) {
            match IncomingTensor::new(start, self.incoming) {
                Ok(partial) => {
                    self.partial.insert(header.id, partial);
                }
                // The budget is exhausted: the content is skipped.
                Err(e) => self.pending.answer(header.id, Err(e)),
            }
        }
        self.read_content(header.id, rest).await
    }

    async fn read_content(&mut self, id: u64, count: usize) -> Result<(), StreamError> {
        if !self.pending.is_waiting(id) {
            self.partial.remove(&id);
        }
        let Some(partial) = self.partial.get_mut(&id) else {
            return Ok(self.reader.skip(count).await?);
        };
        if count > partial.missing() {
            return Err(protocol_error("a tensor has more bytes than its head announced").into());
        }
        self.reader.fill(partial.unfilled(count)?).await?;
        self.finish_if_complete(id);
        Ok(())
    }

    /// Offers shared memory, once; if it cannot be allocated, all content is sent over the socket.
    fn offer_ring(&mut self) {
        if std::mem::take(&mut self.may_offer_ring)
            && let Ok(charge) = Charge::new(self.incoming, ring::BYTES)
            && let Ok(ring) = Ring::allocate()
        {
            *self.control.offer.lock() = Some(ring.offer());
            self.control.changed.notify_one();
            self.ring = Some((ring, charge));
        }
    }

    fn read_slot(&mut self, id: u64, slot_range: SlotRange) -> Result<()> {
        let ring = self.ring.as_ref().filter(|_| ring::is_valid(slot_range));
        let (ring, _) = ring.ok_or_else(|| {
            protocol_error(
                "a SlotFilled frame names a slot or a length that the ring does not have",
            )
        })?;
        if !self.pending.is_waiting(id) {
            self.partial.remove(&id);
        }
        if let Some(partial) = self.partial.get_mut(&id) {
            if slot_range.count > partial.missing() {
                return Err(protocol_error("a tensor has more bytes than its head announced"));
            }
            ring.read(slot_range.slot, partial.unfilled(slot_range.count)?);
        }
        if !self.control.freed.add(slot_range.slot as u64) {
            return Err(protocol_error("a slot was filled before it was freed"));
        }
        self.control.changed.notify_one();
        self.finish_if_complete(id);
        Ok(())
    }

    fn finish_if_complete(&mut self, id: u64) {
        if self.partial.get(&id).is_some_and(|partial| partial.missing() == 0)
            && let Some(whole) = self.partial.remove(&id)
        {
            self.pending.answer(id, whole.finish(self.incoming).map(Value::Tensor));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use thalweg_tensor::{Shape, Tensor};
    use tokio::io::DuplexStream;

    use super::super::frame::{CHUNK_BYTES, answer};
    use super::*;
    use crate::network::stream::ring::{SLOT_BYTES, SLOTS};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A connection and the server side of it, driven by the test.
    struct TestPeer {
        connection: Arc<Connection>,
        requests: Reader<DuplexStream>,
        answers: DuplexStream,
        incoming: Arc<Budget>,
    }

    fn run_script<F: Future<Output = ()>>(script: impl FnOnce(TestPeer) -> F) {
        run_script_with(false, script);
    }

    fn run_script_with<F: Future<Output = ()>>(is_local: bool, script: impl FnOnce(TestPeer) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (answers, reader) = tokio::io::duplex(1000);
            let (writer, requests) = tokio::io::duplex(1000);
            let incoming = Budget::new(64 << 20);
            let connection = Arc::new(Connection::start(reader, writer, 7, &incoming, is_local));
            let requests = Reader::new(requests);
            let script = script(TestPeer { connection, requests, answers, incoming });
            tokio::time::timeout(LIMIT, script).await.expect("nothing hangs");
        });
    }

    impl TestPeer {
        /// Requests a tensor, in a task of its own.
        fn request(&self, key: &str) -> tokio::task::JoinHandle<Result<Value>> {
            let request =
                pb::RecvTensorRequest { rendezvous_key: key.into(), ..Default::default() };
            let connection = self.connection.clone();
            tokio::spawn(async move { connection.receive(&request).await })
        }

        /// The next frame of the client: its id, its kind, the rendezvous key.
        async fn next_request(&mut self) -> (u64, FrameKind, String) {
            let header = self.requests.array_whole().await.unwrap();
            let header = Header::decode(&header).unwrap();
            let body = self.requests.bytes(header.len).await.unwrap();
            let request = pb::RecvTensorRequest::decode(&body[..]).unwrap();
            (header.id, header.kind, request.rendezvous_key)
        }

        async fn frame(&mut self, id: u64, kind: FrameKind, body: &[&[u8]]) {
            let mut frame = BytesMut::new();
            Header { id, kind, len: body.iter().map(|part| part.len()).sum() }.put(&mut frame);
            body.iter().for_each(|part| frame.extend_from_slice(part));
            self.answers.write_all(&frame).await.unwrap();
        }

        /// The next frame, an offer of shared memory.
        async fn offer(&mut self) -> RingOffer {
            let header = Header::decode(&self.requests.array_whole().await.unwrap()).unwrap();
            assert_eq!(header.kind, FrameKind::Ring);
            RingOffer::decode(header.id, &self.requests.array_whole().await.unwrap())
        }

        async fn send_slot_range(&mut self, id: u64, slot: usize, count: usize) {
            let mut frame = BytesMut::new();
            SlotRange { slot, count }.put(id, &mut frame);
            self.answers.write_all(&frame).await.unwrap();
        }

        async fn answer(&mut self, id: u64, result: Result<Value>) {
            let (kind, start, content) = answer(&result).unwrap();
            self.frame(id, kind, &[&start, &content]).await;
        }
    }

    fn numbers(value: Result<Value>) -> Vec<i32> {
        let Ok(Value::Tensor(tensor)) = value else { panic!("no tensor came") };
        tensor.as_slice::<i32>().unwrap().to_vec()
    }

    fn tensor(values: &[i32]) -> Result<Value> {
        Ok(Value::Tensor(Tensor::vector(values).unwrap()))
    }

    #[test]
    fn answers_come_in_any_order_and_in_chunks() {
        run_script(async |mut peer| {
            let calls =
                [peer.request("a"), peer.request("b"), peer.request("c"), peer.request("d")];
            let mut ids = FxHashMap::default();
            for _ in 0..4 {
                let (id, kind, key) = peer.next_request().await;
                assert_eq!(kind, FrameKind::Request);
                ids.insert(key, id);
            }
            let large =
                Tensor::from_slice(Shape::new(&[CHUNK_BYTES]).unwrap(), &vec![5i32; CHUNK_BYTES]);
            let (start, content) = TensorStart::of(&large.unwrap()).unwrap();
            let parts: Vec<&[u8]> = content.chunks(CHUNK_BYTES).collect();
            peer.frame(ids["a"], FrameKind::Tensor, &[&start, parts[0]]).await;
            peer.answer(ids["b"], tensor(&[1, 2])).await;
            peer.frame(ids["a"], FrameKind::Continuation, &[parts[1]]).await;
            peer.answer(ids["c"], Ok(Value::Dead)).await;
            peer.answer(ids["d"], Err(err!(Aborted, "step 3 has ended"))).await;
            peer.frame(ids["a"], FrameKind::Continuation, &[parts[2]]).await;
            peer.frame(ids["a"], FrameKind::Continuation, &[parts[3]]).await;
            let [a, b, c, d] = calls;
            assert_eq!(numbers(b.await.unwrap()), [1, 2]);
            assert!(matches!(c.await.unwrap(), Ok(Value::Dead)));
            let e = d.await.unwrap().err().unwrap();
            assert_eq!((e.code(), e.message()), (Code::Aborted, "step 3 has ended"));
            assert_eq!(numbers(a.await.unwrap()), vec![5; CHUNK_BYTES]);
        });
    }

    /// Shared memory is offered with the first large tensor, and slots are freed even if the request was cancelled.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_tensors_come_through_shared_memory() {
        run_script_with(true, async |mut peer| {
            let call = peer.request("a");
            let (a, _, _) = peer.next_request().await;
            let values = vec![5i32; CHUNK_BYTES];
            let (start, content) = TensorStart::of(&Tensor::vector(&values).unwrap()).unwrap();
            peer.frame(a, FrameKind::Tensor, &[&start, &content[..100]]).await;
            let offer = peer.offer().await;
            let mut ring = Ring::open(std::process::id() as i32, offer).unwrap();
            for (i, part) in content[100..].chunks(SLOT_BYTES).enumerate() {
                let slot = i % SLOTS;
                ring.write(slot, part);
                peer.send_slot_range(a, slot, part.len()).await;
                let (freed, kind, _) = peer.next_request().await;
                assert_eq!((freed, kind), (slot as u64, FrameKind::SlotFreed));
            }
            assert_eq!(numbers(call.await.unwrap()), values);
            peer.send_slot_range(a, 2, 9).await;
            assert_eq!(
                peer.next_request().await.0,
                2,
                "the slot is freed although no request waits"
            );
            assert_eq!(peer.incoming.used_bytes(), ring::BYTES, "it is charged");
        });
    }

    /// Slots that do not exist, more bytes than the tensor has, a slot that was not freed, slots without shared
    /// memory, and an end of the stream in the middle of a tensor.
    #[cfg(target_os = "linux")]
    #[test]
    fn invalid_slot_ranges_fail_all_requests() {
        let invalid: [(bool, &[(usize, usize)]); 8] = [
            (true, &[(SLOTS, 9)]),
            (true, &[(u32::MAX as usize, 9)]),
            (true, &[(0, SLOT_BYTES + 1)]),
            (true, &[(0, u32::MAX as usize)]),
            (true, &[(0, SLOT_BYTES), (1, SLOT_BYTES - 1), (2, 2)]),
            (true, &[(1, 9), (1, 9), (1, 9), (1, 9)]),
            (false, &[(0, 9)]),
            (true, &[(3, SLOT_BYTES)]),
        ];
        for (is_local, places) in invalid {
            run_script_with(is_local, async |mut peer| {
                let calls = [peer.request("a"), peer.request("b")];
                let (id, _, _) = peer.next_request().await;
                peer.next_request().await;
                let large = Tensor::vector(&vec![1u8; 2 * SLOT_BYTES]).unwrap();
                let (start, _) = TensorStart::of(&large).unwrap();
                peer.frame(id, FrameKind::Tensor, &[&start]).await;
                let mut frames = BytesMut::new();
                for (slot, count) in places {
                    SlotRange { slot: *slot, count: *count }.put(id, &mut frames);
                }
                peer.answers.write_all(&frames).await.unwrap();
                drop(peer.answers);
                for call in calls {
                    let e = call.await.unwrap().err().unwrap();
                    assert_eq!(e.code(), Code::Unavailable, "{places:?}: {e}");
                }
                assert_eq!(peer.incoming.used_bytes(), 0, "{places:?}");
            });
        }
    }

    #[test]
    fn a_cancelled_request_is_sent_and_its_late_answer_is_skipped() {
        run_script(async |mut peer| {
            let call = peer.request("a");
            let (id, _, _) = peer.next_request().await;
            call.abort();
            let (cancelled, kind, _) = peer.next_request().await;
            assert_eq!((cancelled, kind), (id, FrameKind::Cancel));
            peer.answer(id, tensor(&[1])).await;
            let next = peer.request("b");
            let (id, _, _) = peer.next_request().await;
            peer.answer(id, tensor(&[2])).await;
            assert_eq!(numbers(next.await.unwrap()), [2]);
            assert_eq!(peer.incoming.used_bytes(), 0);
        });
    }

    /// The server sends nothing more of a cancelled tensor, so the client must free its memory itself.
    #[test]
    fn a_partly_received_tensor_is_freed_when_it_is_cancelled() {
        run_script(async |mut peer| {
            let (call, stays) = (peer.request("a"), peer.request("b"));
            let (first, second) = (peer.next_request().await, peer.next_request().await);
            let (a, b) = if first.2 == "a" { (first.0, second.0) } else { (second.0, first.0) };
            let large = Tensor::vector(&vec![5i32; CHUNK_BYTES]).unwrap();
            let (start, content) = TensorStart::of(&large).unwrap();
            let part = &content[..1000];
            for id in [a, b] {
                peer.frame(id, FrameKind::Tensor, &[&start, part]).await;
            }
            while peer.incoming.used_bytes() < 2 * content.len() {
                tokio::task::yield_now().await;
            }
            call.abort();
            let (cancelled, kind, _) = peer.next_request().await;
            assert_eq!((cancelled, kind), (a, FrameKind::Cancel));
            while peer.incoming.used_bytes() >= 2 * content.len() {
                tokio::task::yield_now().await;
            }
            // A chunk may have been in flight.
            peer.frame(a, FrameKind::Continuation, &[part]).await;
            for rest in content[1000..].chunks(CHUNK_BYTES) {
                peer.frame(b, FrameKind::Continuation, &[rest]).await;
            }
            assert_eq!(numbers(stays.await.unwrap()), vec![5; CHUNK_BYTES]);
        });
    }

    #[test]
    fn a_tensor_beyond_the_budget_fails_alone() {
        run_script(async |mut peer| {
            let call = peer.request("a");
            let (id, _, _) = peer.next_request().await;
            let mut start = [0; START_BYTES];
            start[..8].copy_from_slice(&(1u64 << 50).to_le_bytes());
            peer.frame(id, FrameKind::Tensor, &[&start, b"some"]).await;
            peer.frame(id, FrameKind::Continuation, &[b"more"]).await;
            assert_eq!(call.await.unwrap().err().unwrap().code(), Code::ResourceExhausted);
            let next = peer.request("b");
            let (id, _, _) = peer.next_request().await;
            peer.answer(id, tensor(&[2])).await;
            assert_eq!(numbers(next.await.unwrap()), [2]);
        });
    }

    /// Every protocol error and every early end of the stream fails all requests with UNAVAILABLE.
    #[test]
    fn a_broken_stream_fails_all_requests() {
        let header = |kind: u32, len: u32| {
            [&1u64.to_le_bytes()[..], &len.to_le_bytes(), &kind.to_le_bytes()].concat()
        };
        let twice = [header(3, 13), vec![9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat().repeat(2);
        let too_much =
            [header(3, 15), vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], vec![1, 2]].concat();
        let no_head = [header(3, 13), vec![0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]].concat();
        for bytes in [
            vec![],
            vec![1, 2, 3],
            vec![0xff; 16],
            header(1, 0),
            header(3, 5),
            header(4, u32::MAX),
            twice,
            too_much,
            no_head,
        ] {
            run_script(async |mut peer| {
                let calls = [peer.request("a"), peer.request("b")];
                let (_, _) = (peer.next_request().await, peer.next_request().await);
                peer.answers.write_all(&bytes).await.unwrap();
                drop(peer.answers);
                for call in calls {
                    let e = call.await.unwrap().err().unwrap();
                    assert_eq!(e.code(), Code::Unavailable, "{bytes:?}: {e}");
                }
                assert!(!peer.connection.serves(7));
                assert_eq!(peer.incoming.used_bytes(), 0, "{bytes:?}");
            });
        }
    }
}
