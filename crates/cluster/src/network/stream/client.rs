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
    HEADER_BYTES, Header, Kind, Offer, PREFACE_BYTES, Preface, SMALL_BYTES_MAX, START_BYTES,
    SlotRange, TensorStart, VERSION, broken, decode_error,
};
use super::hello::{HelloRequest, HelloResponse};
use super::incoming_tensor::IncomingTensor;
use super::reader::Reader;
use super::ring::{self, Ring, SlotSet, WORTHWHILE_BYTES};
use super::socket;
use crate::network::grpc::methods::HELLO;

/// Timeout of a connection attempt.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Maximum number of devices of a task; a device's incarnation is the task's plus its index.
const DEVICES_MAX: u64 = 1024;
/// Maximum number of remembered incarnations without a stream.
const STARTS_MAX: usize = 16;

/// The connection to the stream server of another task, if it has one.
#[derive(Default)]
pub(crate) struct Streams {
    state: Mutex<State>,
    /// Held while a connection is made.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Incarnations, as in rendezvous keys, whose tensors come by gRPC.
    without: Vec<u64>,
}

/// How a task's tensors come.
enum Way {
    Stream(Arc<Connection>),
    Grpc,
}

impl Streams {
    /// The connection to the task with this incarnation; none if its tensors come by gRPC.
    pub(crate) async fn find(
        &self,
        name: &impl std::fmt::Display,
        control: &Channel,
        incarnation: u64,
    ) -> Result<Option<Arc<Connection>>> {
        let way = match self.known(incarnation) {
            Some(way) => way,
            None => {
                let _first = self.connecting.lock().await;
                match self.known(incarnation) {
                    Some(way) => way,
                    None => self.connect(name, control, incarnation).await?,
                }
            }
        };
        Ok(match way {
            Way::Stream(connection) => Some(connection),
            Way::Grpc => None,
        })
    }

    /// Drops the connection; the next request makes a new one.
    pub(crate) fn forget(&self) {
        self.state.lock().connection = None;
    }

    /// Whether there is a connection.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock();
        state.connection.as_ref().is_some_and(|connection| !connection.is_lost())
    }

    fn known(&self, incarnation: u64) -> Option<Way> {
        let state = self.state.lock();
        if let Some(connection) = &state.connection
            && connection.serves(incarnation)
        {
            return Some(Way::Stream(connection.clone()));
        }
        state.without.contains(&incarnation).then_some(Way::Grpc)
    }

    async fn connect(
        &self,
        name: &impl std::fmt::Display,
        control: &Channel,
        incarnation: u64,
    ) -> Result<Way> {
        let hello = say_hello(control).await?;
        // If the task has another incarnation than the key, it refuses the request itself.
        if let Some(connection) = hello.as_ref().and_then(|hello| self.alive(hello)) {
            return Ok(Way::Stream(connection));
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
                Ok(Way::Stream(connection))
            }
            None => {
                if state.without.len() >= STARTS_MAX {
                    state.without.remove(0);
                }
                state.without.push(incarnation);
                Ok(Way::Grpc)
            }
        }
    }

    /// The open connection, if it is to the task that sent `hello`.
    fn alive(&self, hello: &HelloResponse) -> Option<Arc<Connection>> {
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
        if let Some(connection) = greet(reader, writer, hello, incoming, true).await {
            return Some((connection, "unix"));
        }
    }
    let stream = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(&*control.address())).await;
    // The unix socket may have been one of another machine.
    let stream = stream.ok()?.ok()?;
    socket::tune_tcp(&stream);
    let (reader, writer) = stream.into_split();
    let connection = greet(reader, writer, hello, incoming, false).await?;
    Some((connection, "TCP"))
}

/// Exchanges prefaces and starts the connection; none if it is not the task that sent `hello`. `is_near`
/// allows shared memory.
async fn greet<R, W>(
    mut reader: R,
    mut writer: W,
    hello: &HelloResponse,
    incoming: &Arc<Budget>,
    is_near: bool,
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
    is_right.then(|| Connection::start(reader, writer, hello.incarnation, incoming, is_near))
}

/// A connection over which tensors come.
pub(crate) struct Connection {
    /// The incarnation of the task at the other end.
    incarnation: u64,
    next_id: AtomicU64,
    requests: mpsc::UnboundedSender<Bytes>,
    calls: Arc<Calls>,
}

/// Requests that wait for their tensors.
#[derive(Default)]
struct Calls {
    state: Mutex<CallsState>,
    /// Notified when a request is cancelled: its tensor may be half received.
    given_up: Notify,
}

#[derive(Default)]
struct CallsState {
    waiting: FxHashMap<u64, oneshot::Sender<Result<Value>>>,
    /// Why the connection ended.
    lost: Option<Error>,
}

impl Calls {
    fn answer(&self, id: u64, result: Result<Value>) {
        let waiting = self.state.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            // The receiver is gone if the request was cancelled.
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
struct GiveUp<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        let calls = &self.connection.calls;
        let was_waiting = calls.state.lock().waiting.remove(&self.id).is_some();
        if was_waiting {
            calls.given_up.notify_one();
            let mut frame = BytesMut::with_capacity(HEADER_BYTES);
            Header { id: self.id, kind: Kind::GiveUp, len: 0 }.put(&mut frame);
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
        is_near: bool,
    ) -> Connection
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let calls = Arc::new(Calls::default());
        let (requests, asked) = mpsc::unbounded_channel();
        let (of_task, incoming) = (calls.clone(), incoming.clone());
        tokio::spawn(async move {
            let notes = Notes::default();
            let answers = Answers {
                reader: Reader::new(reader),
                calls: &of_task,
                incoming: &incoming,
                arriving: FxHashMap::default(),
                notes: &notes,
                ring: None,
                may_share: is_near,
            };
            // Notes of the reading side are written before more is read.
            let end = tokio::select! {
                biased;
                end = answers.take_all() => end,
                end = write_requests(writer, asked, &notes) => end,
            };
            of_task.lose(&end);
        });
        Connection { incarnation, next_id: AtomicU64::new(1), requests, calls }
    }

    /// Whether the task at the other end has this device incarnation, as far as is known.
    fn serves(&self, incarnation: u64) -> bool {
        incarnation.wrapping_sub(self.incarnation) < DEVICES_MAX && !self.is_lost()
    }

    fn is_lost(&self) -> bool {
        self.calls.state.lock().lost.is_some()
    }

    /// Requests a tensor. Dropping the future cancels the request.
    pub(crate) async fn receive(&self, request: &pb::RecvTensorRequest) -> Result<Value> {
        let len = request.encoded_len();
        ensure!(len <= SMALL_BYTES_MAX, InvalidArgument, "a rendezvous key has {len} bytes");
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.calls.state.lock();
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            state.waiting.insert(id, tell);
        }
        let _give_up = GiveUp { connection: self, id };
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + len);
        Header { id, kind: Kind::Want, len }.put(&mut frame);
        request.encode_raw(&mut frame);
        // If the connection is gone, its requests have been answered, this one too.
        let _ = self.requests.send(frame.freeze());
        told.await.unwrap_or_else(|_| Err(err!(Unavailable, "the stream of tensors ended")))
    }
}

/// Writes requests until the connection is dropped; returns why it ended.
async fn write_requests(
    mut writer: impl AsyncWrite + Unpin,
    mut asked: mpsc::UnboundedReceiver<Bytes>,
    notes: &Notes,
) -> Error {
    loop {
        let mut batch = BytesMut::new();
        tokio::select! {
            first = asked.recv() => match first {
                Some(first) => batch.extend_from_slice(&first),
                None => return err!(Unavailable, "the stream of tensors was given up"),
            },
            () = notes.changed.notified() => {}
        }
        notes.put(&mut batch);
        while batch.len() < SMALL_BYTES_MAX
            && let Ok(next) = asked.try_recv()
        {
            batch.extend_from_slice(&next);
        }
        if let Err(e) = writer.write_all(&batch).await {
            return broke_off(&e);
        }
    }
}

/// What the reading side has the writing side send; bounded, however many frames come.
#[derive(Default)]
struct Notes {
    /// An offer of shared memory that is not sent yet.
    offer: Mutex<Option<Offer>>,
    freed: SlotSet,
    changed: Notify,
}

impl Notes {
    fn put(&self, out: &mut BytesMut) {
        if let Some(offer) = self.offer.lock().take() {
            offer.put(out);
        }
        while let Some(slot) = self.freed.take() {
            Header { id: slot as u64, kind: Kind::Freed, len: 0 }.put(out);
        }
    }
}

fn broke_off(e: &io::Error) -> Error {
    err!(Unavailable, "the stream of tensors broke off: {e}")
}

enum Broken {
    Socket(io::Error),
    Rules(Error),
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Broken {
        Broken::Socket(e)
    }
}

impl From<Error> for Broken {
    fn from(e: Error) -> Broken {
        Broken::Rules(e)
    }
}

struct Answers<'a, R> {
    reader: Reader<R>,
    calls: &'a Calls,
    incoming: &'a Arc<Budget>,
    /// Tensors that are half received, by request.
    arriving: FxHashMap<u64, IncomingTensor>,
    notes: &'a Notes,
    /// The shared memory that was offered.
    ring: Option<(Ring, Charge)>,
    /// Whether the other side is on this machine and no shared memory was offered yet.
    may_share: bool,
}

impl<R: AsyncRead + Unpin> Answers<'_, R> {
    /// Reads answers until the stream ends; returns why it ended.
    async fn take_all(mut self) -> Error {
        loop {
            match self.next().await {
                Ok(true) => {}
                Ok(false) => return err!(Unavailable, "it closed the stream of tensors"),
                Err(Broken::Socket(e)) => return broke_off(&e),
                // A peer that breaks the protocol is treated as lost.
                Err(Broken::Rules(e)) => {
                    return e.with_code(Code::Unavailable);
                }
            }
        }
    }

    /// Reads one frame, or drops tensors of cancelled requests; false at the end of the stream.
    async fn next(&mut self) -> Result<bool, Broken> {
        let header = tokio::select! {
            header = self.reader.array::<HEADER_BYTES>() => header?,
            () = self.calls.given_up.notified() => {
                self.arriving.retain(|id, _| self.calls.is_waiting(*id));
                return Ok(true);
            }
        };
        let Some(header) = header else { return Ok(false) };
        let header = Header::decode(&header)?;
        match header.kind {
            Kind::Want | Kind::GiveUp | Kind::Ring | Kind::Freed => {
                return Err(broken("the server sent a request").into());
            }
            Kind::Dead => {
                self.arriving.remove(&header.id);
                self.calls.answer(header.id, Ok(Value::Dead));
            }
            Kind::Failed => {
                self.arriving.remove(&header.id);
                let body = self.reader.bytes(header.len).await?;
                self.calls.answer(header.id, Err(decode_error(&body)));
            }
            Kind::Tensor => self.begin(header).await?,
            Kind::More => self.go_on(header.id, header.len).await?,
            Kind::Placed => {
                let place = SlotRange::decode(&self.reader.array_whole().await?);
                self.take_placed(header.id, place)?;
                // Lets the writing side send `Freed`, and other async tasks run.
                tokio::task::yield_now().await;
            }
        }
        Ok(true)
    }

    async fn begin(&mut self, header: Header) -> Result<(), Broken> {
        let rest = header.len.checked_sub(START_BYTES);
        let rest = rest.ok_or_else(|| broken("a tensor has no beginning"))?;
        let fixed = self.reader.array_whole::<START_BYTES>().await?;
        let head_bytes = TensorStart::head_bytes(&fixed)?;
        let rest = rest.checked_sub(head_bytes);
        let rest = rest.ok_or_else(|| broken("a head is longer than its frame"))?;
        let head = self.reader.bytes(head_bytes).await?;
        let start = TensorStart::decode(&fixed, &head)?;
        if self.arriving.contains_key(&header.id) {
            return Err(broken("a tensor begins twice").into());
        }
        if start.content_bytes >= WORTHWHILE_BYTES {
            self.share();
        }
        if self.calls.is_waiting(header.id) {
            match IncomingTensor::new(start, self.incoming) {
                Ok(arriving) => {
                    self.arriving.insert(header.id, arriving);
                }
                // The budget has no room; its bytes are skipped.
                Err(e) => self.calls.answer(header.id, Err(e)),
            }
        }
        self.go_on(header.id, rest).await
    }

    async fn go_on(&mut self, id: u64, count: usize) -> Result<(), Broken> {
        if !self.calls.is_waiting(id) {
            self.arriving.remove(&id);
        }
        let Some(arriving) = self.arriving.get_mut(&id) else {
            return Ok(self.reader.skip(count).await?);
        };
        if count > arriving.missing() {
            return Err(broken("a tensor has more bytes than it said").into());
        }
        self.reader.fill(arriving.room(count)?).await?;
        self.end_if_whole(id);
        Ok(())
    }

    /// Offers shared memory, once; if it cannot be had, all comes by the socket.
    fn share(&mut self) {
        if std::mem::take(&mut self.may_share)
            && let Ok(charge) = Charge::new(self.incoming, ring::BYTES)
            && let Ok(ring) = Ring::make()
        {
            *self.notes.offer.lock() = Some(ring.offer());
            self.notes.changed.notify_one();
            self.ring = Some((ring, charge));
        }
    }

    fn take_placed(&mut self, id: u64, place: SlotRange) -> Result<()> {
        let ring = self.ring.as_ref().filter(|_| ring::has(place));
        let (ring, _) = ring.ok_or_else(|| broken("there is no such slot"))?;
        if !self.calls.is_waiting(id) {
            self.arriving.remove(&id);
        }
        if let Some(arriving) = self.arriving.get_mut(&id) {
            if place.count > arriving.missing() {
                return Err(broken("a tensor has more bytes than it said"));
            }
            ring.read(place.slot, arriving.room(place.count)?);
        }
        if !self.notes.freed.add(place.slot as u64) {
            return Err(broken("a slot is filled that was not freed"));
        }
        self.notes.changed.notify_one();
        self.end_if_whole(id);
        Ok(())
    }

    fn end_if_whole(&mut self, id: u64) {
        if self.arriving.get(&id).is_some_and(|arriving| arriving.missing() == 0)
            && let Some(whole) = self.arriving.remove(&id)
        {
            self.calls.answer(id, whole.finish(self.incoming).map(Value::Tensor));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use thalweg_tensor::{Shape, Tensor};
    use tokio::io::DuplexStream;

    use super::super::frame::{PART_BYTES, answer};
    use super::*;
    use crate::network::stream::ring::{SLOT_BYTES, SLOTS};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A connection and what is at its other end.
    struct Ends {
        connection: Arc<Connection>,
        requests: Reader<DuplexStream>,
        answers: DuplexStream,
        incoming: Arc<Budget>,
    }

    fn play<F: Future<Output = ()>>(script: impl FnOnce(Ends) -> F) {
        play_with(false, script);
    }

    fn play_with<F: Future<Output = ()>>(is_near: bool, script: impl FnOnce(Ends) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (answers, reader) = tokio::io::duplex(1000);
            let (writer, requests) = tokio::io::duplex(1000);
            let incoming = Budget::new(64 << 20);
            let connection = Arc::new(Connection::start(reader, writer, 7, &incoming, is_near));
            let requests = Reader::new(requests);
            let script = script(Ends { connection, requests, answers, incoming });
            tokio::time::timeout(LIMIT, script).await.expect("nothing hangs");
        });
    }

    impl Ends {
        /// Asks for a tensor, on the side.
        fn ask(&self, key: &str) -> tokio::task::JoinHandle<Result<Value>> {
            let request =
                pb::RecvTensorRequest { rendezvous_key: key.into(), ..Default::default() };
            let connection = self.connection.clone();
            tokio::spawn(async move { connection.receive(&request).await })
        }

        /// The next question: its number, what it is, its key.
        async fn question(&mut self) -> (u64, Kind, String) {
            let header = self.requests.array_whole().await.unwrap();
            let header = Header::decode(&header).unwrap();
            let body = self.requests.bytes(header.len).await.unwrap();
            let request = pb::RecvTensorRequest::decode(&body[..]).unwrap();
            (header.id, header.kind, request.rendezvous_key)
        }

        async fn frame(&mut self, id: u64, kind: Kind, body: &[&[u8]]) {
            let mut frame = BytesMut::new();
            Header { id, kind, len: body.iter().map(|part| part.len()).sum() }.put(&mut frame);
            body.iter().for_each(|part| frame.extend_from_slice(part));
            self.answers.write_all(&frame).await.unwrap();
        }

        /// The memory that is offered next.
        async fn offer(&mut self) -> Offer {
            let header = Header::decode(&self.requests.array_whole().await.unwrap()).unwrap();
            assert_eq!(header.kind, Kind::Ring);
            Offer::decode(header.id, &self.requests.array_whole().await.unwrap())
        }

        async fn place(&mut self, id: u64, slot: usize, count: usize) {
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
    fn answers_come_in_any_order_and_in_parts() {
        play(async |mut ends| {
            let calls = [ends.ask("a"), ends.ask("b"), ends.ask("c"), ends.ask("d")];
            let mut ids = FxHashMap::default();
            for _ in 0..4 {
                let (id, kind, key) = ends.question().await;
                assert_eq!(kind, Kind::Want);
                ids.insert(key, id);
            }
            let large =
                Tensor::from_slice(Shape::new(&[PART_BYTES]).unwrap(), &vec![5i32; PART_BYTES]);
            let (start, content) = TensorStart::of(&large.unwrap()).unwrap();
            let parts: Vec<&[u8]> = content.chunks(PART_BYTES).collect();
            ends.frame(ids["a"], Kind::Tensor, &[&start, parts[0]]).await;
            ends.answer(ids["b"], tensor(&[1, 2])).await;
            ends.frame(ids["a"], Kind::More, &[parts[1]]).await;
            ends.answer(ids["c"], Ok(Value::Dead)).await;
            ends.answer(ids["d"], Err(err!(Aborted, "step 3 is over"))).await;
            ends.frame(ids["a"], Kind::More, &[parts[2]]).await;
            ends.frame(ids["a"], Kind::More, &[parts[3]]).await;
            let [a, b, c, d] = calls;
            assert_eq!(numbers(b.await.unwrap()), [1, 2]);
            assert!(matches!(c.await.unwrap(), Ok(Value::Dead)));
            let e = d.await.unwrap().err().unwrap();
            assert_eq!((e.code(), e.message()), (Code::Aborted, "step 3 is over"));
            assert_eq!(numbers(a.await.unwrap()), vec![5; PART_BYTES]);
        });
    }

    /// Memory is offered with the first large tensor, and slots come back, wanted or not.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_tensors_come_through_shared_memory() {
        play_with(true, async |mut ends| {
            let call = ends.ask("a");
            let (a, _, _) = ends.question().await;
            let values = vec![5i32; PART_BYTES];
            let (start, content) = TensorStart::of(&Tensor::vector(&values).unwrap()).unwrap();
            ends.frame(a, Kind::Tensor, &[&start, &content[..100]]).await;
            let offer = ends.offer().await;
            let mut ring = Ring::open(std::process::id() as i32, offer).unwrap();
            for (i, part) in content[100..].chunks(SLOT_BYTES).enumerate() {
                let slot = i % SLOTS;
                ring.write(slot, part);
                ends.place(a, slot, part.len()).await;
                let (freed, kind, _) = ends.question().await;
                assert_eq!((freed, kind), (slot as u64, Kind::Freed));
            }
            assert_eq!(numbers(call.await.unwrap()), values);
            ends.place(a, 2, 9).await;
            assert_eq!(ends.question().await.0, 2, "nobody waits, the slot is freed all the same");
            assert_eq!(ends.incoming.used_bytes(), ring::BYTES, "it is charged");
        });
    }

    /// Places that there are not, more than a tensor has, one slot again and again, places without
    /// memory, and an end in the middle.
    #[cfg(target_os = "linux")]
    #[test]
    fn strange_places_end_all_calls() {
        let strange: [(bool, &[(usize, usize)]); 8] = [
            (true, &[(SLOTS, 9)]),
            (true, &[(u32::MAX as usize, 9)]),
            (true, &[(0, SLOT_BYTES + 1)]),
            (true, &[(0, u32::MAX as usize)]),
            (true, &[(0, SLOT_BYTES), (1, SLOT_BYTES - 1), (2, 2)]),
            (true, &[(1, 9), (1, 9), (1, 9), (1, 9)]),
            (false, &[(0, 9)]),
            (true, &[(3, SLOT_BYTES)]),
        ];
        for (is_near, places) in strange {
            play_with(is_near, async |mut ends| {
                let calls = [ends.ask("a"), ends.ask("b")];
                let (id, _, _) = ends.question().await;
                ends.question().await;
                let large = Tensor::vector(&vec![1u8; 2 * SLOT_BYTES]).unwrap();
                let (start, _) = TensorStart::of(&large).unwrap();
                ends.frame(id, Kind::Tensor, &[&start]).await;
                let mut frames = BytesMut::new();
                for (slot, count) in places {
                    SlotRange { slot: *slot, count: *count }.put(id, &mut frames);
                }
                ends.answers.write_all(&frames).await.unwrap();
                drop(ends.answers);
                for call in calls {
                    let e = call.await.unwrap().err().unwrap();
                    assert_eq!(e.code(), Code::Unavailable, "{places:?}: {e}");
                }
                assert_eq!(ends.incoming.used_bytes(), 0, "{places:?}");
            });
        }
    }

    #[test]
    fn who_gives_up_says_so_and_what_still_comes_is_passed_over() {
        play(async |mut ends| {
            let call = ends.ask("a");
            let (id, _, _) = ends.question().await;
            call.abort();
            let (given_up, kind, _) = ends.question().await;
            assert_eq!((given_up, kind), (id, Kind::GiveUp));
            ends.answer(id, tensor(&[1])).await;
            let next = ends.ask("b");
            let (id, _, _) = ends.question().await;
            ends.answer(id, tensor(&[2])).await;
            assert_eq!(numbers(next.await.unwrap()), [2]);
            assert_eq!(ends.incoming.used_bytes(), 0);
        });
    }

    /// The server sends nothing more of what is given up, so nothing else could free its memory.
    #[test]
    fn what_is_given_up_half_way_is_let_go() {
        play(async |mut ends| {
            let (call, stays) = (ends.ask("a"), ends.ask("b"));
            let (first, second) = (ends.question().await, ends.question().await);
            let (a, b) = if first.2 == "a" { (first.0, second.0) } else { (second.0, first.0) };
            let large = Tensor::vector(&vec![5i32; PART_BYTES]).unwrap();
            let (start, content) = TensorStart::of(&large).unwrap();
            let part = &content[..1000];
            for id in [a, b] {
                ends.frame(id, Kind::Tensor, &[&start, part]).await;
            }
            while ends.incoming.used_bytes() < 2 * content.len() {
                tokio::task::yield_now().await;
            }
            call.abort();
            let (given_up, kind, _) = ends.question().await;
            assert_eq!((given_up, kind), (a, Kind::GiveUp));
            while ends.incoming.used_bytes() >= 2 * content.len() {
                tokio::task::yield_now().await;
            }
            // A part may have been on its way.
            ends.frame(a, Kind::More, &[part]).await;
            for rest in content[1000..].chunks(PART_BYTES) {
                ends.frame(b, Kind::More, &[rest]).await;
            }
            assert_eq!(numbers(stays.await.unwrap()), vec![5; PART_BYTES]);
        });
    }

    #[test]
    fn a_tensor_for_which_there_is_no_room_fails_alone() {
        play(async |mut ends| {
            let call = ends.ask("a");
            let (id, _, _) = ends.question().await;
            let mut start = [0; START_BYTES];
            start[..8].copy_from_slice(&(1u64 << 50).to_le_bytes());
            ends.frame(id, Kind::Tensor, &[&start, b"some"]).await;
            ends.frame(id, Kind::More, &[b"more"]).await;
            assert_eq!(call.await.unwrap().err().unwrap().code(), Code::ResourceExhausted);
            let next = ends.ask("b");
            let (id, _, _) = ends.question().await;
            ends.answer(id, tensor(&[2])).await;
            assert_eq!(numbers(next.await.unwrap()), [2]);
        });
    }

    /// Whatever is wrong with the stream, all calls end at once and say so.
    #[test]
    fn a_broken_stream_ends_all_calls() {
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
            play(async |mut ends| {
                let calls = [ends.ask("a"), ends.ask("b")];
                let (_, _) = (ends.question().await, ends.question().await);
                ends.answers.write_all(&bytes).await.unwrap();
                drop(ends.answers);
                for call in calls {
                    let e = call.await.unwrap().err().unwrap();
                    assert_eq!(e.code(), Code::Unavailable, "{bytes:?}: {e}");
                }
                assert!(!ends.connection.serves(7));
                assert_eq!(ends.incoming.used_bytes(), 0, "{bytes:?}");
            });
        }
    }
}
