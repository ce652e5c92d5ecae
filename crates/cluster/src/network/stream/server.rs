//! The server side of the stream protocol.

use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxHashMap;
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_rpc::report_accept_error;
use thalweg_tensor::{Charge, Result, err};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::frame::{
    self, FrameKind, HEADER_BYTES, Header, PREFACE_BYTES, Preface, RingOffer, VERSION,
};
use super::reader::Reader;
use super::ring::{RingWriter, SlotSet};
use super::send_queue::{self, Answer, Outgoing, SendCharge};
use super::socket;
use crate::step::worker_step::step_ended;
use crate::worker::{TensorRequest, Worker};

/// Bytes charged for a request besides its own.
const REQUEST_BYTES: usize = 256;
/// Maximum number of queued items without a charge; reading stops while all are in use.
const SPARE_MAX: usize = 1024;
/// Pause after a failed `accept`.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Serves connections of our own user to a unix socket, at most `connections_max`, until `stop`.
pub(crate) async fn accept_all(
    listener: UnixListener,
    worker: Arc<Worker>,
    connections_max: usize,
    handshake_timeout: Duration,
    stop: watch::Receiver<bool>,
) {
    let Ok(user) = socket::own_user() else { return };
    let mut connections = JoinSet::new();
    let mut stopped = stop.clone();
    loop {
        let is_full = connections.len() >= connections_max;
        tokio::select! {
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, _)) if !socket::is_of(user, &stream) => {}
                Ok((stream, _)) => {
                    socket::tune_unix(&stream);
                    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
                    let (reader, writer) = stream.into_split();
                    let (worker, stop) = (worker.clone(), stop.clone());
                    connections.spawn(serve(worker, reader, writer, peer, handshake_timeout, stop));
                }
                // No file descriptor left, or the client has disconnected already.
                Err(e) => {
                    report_accept_error(&e);
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = wait_for_stop(&mut stopped) => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Ready when `stop` is set or its sender was dropped.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Answers the requests of a connection until it ends, or `stop`. The preface must come within
/// `handshake_timeout`. `peer` is the process id of the other end, if it is on this machine.
pub(crate) async fn serve<R, W>(
    worker: Arc<Worker>,
    mut reader: R,
    mut writer: W,
    peer: Option<i32>,
    handshake_timeout: Duration,
    mut stop: watch::Receiver<bool>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let incarnation = worker.task().incarnation;
    let handshake = exchange_prefaces(&mut reader, &mut writer, incarnation);
    let prefaces = tokio::select! {
        prefaces = tokio::time::timeout(handshake_timeout, handshake) => prefaces,
        () = wait_for_stop(&mut stop) => return,
    };
    if !matches!(prefaces, Ok(Ok(true))) {
        return;
    }
    let (outgoing, queue) = mpsc::unbounded_channel();
    let spare = Arc::new(Semaphore::new(SPARE_MAX));
    let requests = RequestReader {
        worker,
        open: Arc::default(),
        outgoing,
        spare,
        peer,
        slots: OnceLock::new(),
    };
    let mut reader = Reader::new(reader);
    let asked = async {
        tokio::select! {
            // The peer sees how the connection ended.
            _ = requests.read_all(&mut reader) => {}
            () = wait_for_stop(&mut stop) => {
                // Queued answers are still sent.
                let _ = requests.outgoing.send(Outgoing::Last);
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = asked => {}
        _ = send_queue::write_all(writer, queue) => {}
    }
}

/// Exchanges prefaces; false if the client's names another incarnation or version.
async fn exchange_prefaces(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    incarnation: u64,
) -> io::Result<bool> {
    let mut theirs = [0; PREFACE_BYTES];
    reader.read_exact(&mut theirs).await?;
    let ours = Preface { version: VERSION, incarnation };
    if !Preface::decode(&theirs).is_ok_and(|theirs| theirs == ours) {
        return Ok(false);
    }
    writer.write_all(&ours.encode()).await?;
    Ok(true)
}

/// Open requests by id.
type OpenRequests = Mutex<FxHashMap<u64, (TensorRequest, Charge)>>;

/// Reads and handles the requests of a connection.
struct RequestReader {
    worker: Arc<Worker>,
    open: Arc<OpenRequests>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    spare: Arc<Semaphore>,
    /// The process id of the other end, if it is on this machine.
    peer: Option<i32>,
    /// Free slots of the shared memory that the peer has offered; none if it could not be opened.
    slots: OnceLock<Option<Arc<SlotSet>>>,
}

impl Drop for RequestReader {
    /// Cancels the open requests.
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.open.lock());
        open.into_values().for_each(|(asked, _)| asked.cancel());
    }
}

impl RequestReader {
    async fn read_all(&self, reader: &mut Reader<impl AsyncRead + Unpin>) -> Result<()> {
        let lost = |e: io::Error| err!(Cancelled, "the stream failed: {e}");
        while let Some(header) = reader.array::<HEADER_BYTES>().await.map_err(lost)? {
            let header = Header::decode(&header)?;
            match header.kind {
                FrameKind::Request => {
                    let body = reader.bytes(header.len).await.map_err(lost)?;
                    let request = pb::RecvTensorRequest::decode(&body[..]).map_err(|e| {
                        frame::protocol_error(&format!("a request cannot be decoded: {e}"))
                    })?;
                    self.handle_request(header.id, &request, header.len).await?;
                }
                FrameKind::Cancel => self.cancel(header.id).await,
                FrameKind::Ring => {
                    let body = reader.array_whole().await.map_err(lost)?;
                    self.open_ring(RingOffer::decode(header.id, &body))?;
                }
                FrameKind::SlotFreed => self.slot_freed(header.id)?,
                _ => {
                    return Err(frame::protocol_error(
                        "the client sent a frame that only servers send",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Handles a request; an error ends the connection.
    async fn handle_request(
        &self,
        id: u64,
        request: &pb::RecvTensorRequest,
        len: usize,
    ) -> Result<()> {
        if self.open.lock().contains_key(&id) {
            return Err(frame::protocol_error("two open requests have the same id"));
        }
        // Charged until the answer is sent.
        let charge = match Charge::new(&self.worker.task().incoming, len + REQUEST_BYTES) {
            Ok(charge) => charge,
            Err(e) => {
                answer(&self.outgoing, id, &Err(e), self.spare().await);
                return Ok(());
            }
        };
        let tensor = match self.worker.tensor_request(request) {
            Ok(tensor) => tensor,
            Err(e) => {
                answer(&self.outgoing, id, &Err(e), SendCharge::Charged { _charge: charge });
                return Ok(());
            }
        };
        self.open.lock().insert(id, (tensor.clone(), charge));
        let (open, outgoing) = (Arc::downgrade(&self.open), self.outgoing.clone());
        let mut asked =
            OpenRequest { id, step: request.step_id as u64, open, outgoing, is_answered: false };
        tensor.receive(&request.rendezvous_key, move |result| asked.answer(&result));
        Ok(())
    }

    /// Opens the shared memory that the client offers; ignores the offer if that fails.
    fn open_ring(&self, offer: RingOffer) -> Result<()> {
        let writer = self.peer.and_then(|process| RingWriter::open(process, offer).ok());
        let (writer, slots) = writer.unzip();
        self.slots
            .set(slots)
            .map_err(|_| frame::protocol_error("a second offer of shared memory"))?;
        if let Some(writer) = writer {
            let _ = self.outgoing.send(Outgoing::Ring(writer));
        }
        Ok(())
    }

    fn slot_freed(&self, slot: u64) -> Result<()> {
        let slots = self.slots.get().and_then(Option::as_ref);
        if !slots.is_some_and(|slots| slots.add(slot)) {
            return Err(frame::protocol_error("a slot was freed that was not filled"));
        }
        let _ = self.outgoing.send(Outgoing::SlotFreed);
        Ok(())
    }

    async fn cancel(&self, id: u64) {
        let asked = self.open.lock().remove(&id);
        match asked {
            Some((asked, _)) => asked.cancel(),
            // The answer is queued already.
            None => {
                let cancelled = Outgoing::Cancelled { id, _charge: self.spare().await };
                let _ = self.outgoing.send(cancelled);
            }
        }
    }

    /// Waits for a permit. Items that hold one are sent, or the connection ends, so this ends.
    async fn spare(&self) -> SendCharge {
        let permit = self.spare.clone().acquire_owned().await;
        SendCharge::Spare { _permit: permit.expect("the semaphore is never closed") }
    }
}

/// An open request. Dropping it without an answer answers that its step has ended.
struct OpenRequest {
    id: u64,
    step: u64,
    open: Weak<OpenRequests>,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    is_answered: bool,
}

impl OpenRequest {
    fn answer(&mut self, result: &Result<Value>) {
        self.is_answered = true;
        let asked = self.open.upgrade().and_then(|open| open.lock().remove(&self.id));
        // None if the request was cancelled.
        if let Some((_, charge)) = asked {
            answer(&self.outgoing, self.id, result, SendCharge::Charged { _charge: charge });
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(&Err(step_ended(self.step)));
        }
    }
}

fn answer(
    outgoing: &mpsc::UnboundedSender<Outgoing>,
    id: u64,
    result: &Result<Value>,
    charge: SendCharge,
) {
    let (kind, start, content) = frame::answer(result)
        .unwrap_or_else(|e| (FrameKind::Error, frame::encode_error(&e), Default::default()));
    // The receiver is dropped with the connection.
    let _ = outgoing.send(Outgoing::Answer(Answer { id, kind, start, content, _charge: charge }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::{Budget, Code, Tensor};

    #[test]
    fn a_request_is_answered_once_even_if_the_worker_drops_it() {
        let budget = Budget::new(10);
        let open = Arc::new(OpenRequests::default());
        let tensor = TensorRequest::for_standalone_task(7);
        let (outgoing, mut queue) = mpsc::unbounded_channel();
        let open_request = |id: u64| {
            open.lock().insert(id, (tensor.clone(), Charge::new(&budget, 1).unwrap()));
            let (open, outgoing) = (Arc::downgrade(&open), outgoing.clone());
            OpenRequest { id, step: 7, open, outgoing, is_answered: false }
        };
        let mut next = || match queue.try_recv() {
            Ok(Outgoing::Answer(answer)) => Some((answer.id, answer.kind, answer.start)),
            _ => None,
        };
        drop(open_request(1));
        let (id, kind, body) = next().unwrap();
        let e = frame::decode_error(&body);
        assert_eq!((id, kind, e.code()), (1, FrameKind::Error, Code::Aborted));
        assert_eq!(e.message(), "step 7 has ended");
        let mut asked = open_request(2);
        asked.answer(&Ok(Value::Tensor(Tensor::scalar(1i32))));
        // A client may reuse an id.
        let again = open_request(2);
        drop(asked);
        assert!(matches!(next(), Some((2, FrameKind::Tensor, _))));
        assert!(next().is_none() && open.lock().contains_key(&2));
        // A cancelled request needs no answer.
        open.lock().remove(&2);
        drop(again);
        assert!(next().is_none());
        assert_eq!(budget.used_bytes(), 0);
    }
}
