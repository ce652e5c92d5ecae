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

use super::frame::{self, HEADER_BYTES, Header, Kind, Offer, PREFACE_BYTES, Preface, VERSION};
use super::reader::Reader;
use super::ring::{Filling, SlotSet};
use super::send_queue::{self, Answer, Outgoing, SendCharge};
use super::socket;
use crate::step::worker_step::is_over;
use crate::worker::{TensorRequest, Worker};

/// Charged for a request besides its bytes.
const REQUEST_BYTES: usize = 256;
/// Maximum number of queued items without a charge; reading stops while all are in use.
const SPARE_MAX: usize = 1024;
/// Pause after a failed `accept`.
const RETRY: Duration = Duration::from_millis(10);

/// Serves connections of our own user to a unix socket, at most `connections_max`, until `stop`.
pub(crate) async fn accept_all(
    listener: UnixListener,
    worker: Arc<Worker>,
    connections_max: usize,
    greeting_limit: Duration,
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
                    connections.spawn(serve(worker, reader, writer, peer, greeting_limit, stop));
                }
                // No file descriptor left, or the client is gone already.
                Err(e) => {
                    report_accept_error(&e);
                    tokio::time::sleep(RETRY).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = told(&mut stopped) => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Ready when `stop` is set or its sender is gone.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Answers the requests of a connection until it ends, or `stop`. The preface must come within
/// `greeting_limit`. `peer` is the process id of the other end, if it is on this machine.
pub(crate) async fn serve<R, W>(
    worker: Arc<Worker>,
    mut reader: R,
    mut writer: W,
    peer: Option<i32>,
    greeting_limit: Duration,
    mut stop: watch::Receiver<bool>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let incarnation = worker.task().incarnation;
    let greeting = greet(&mut reader, &mut writer, incarnation);
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(greeting_limit, greeting) => greeted,
        () = told(&mut stop) => return,
    };
    if !matches!(greeted, Ok(Ok(true))) {
        return;
    }
    let (leave, leaving) = mpsc::unbounded_channel();
    let spare = Arc::new(Semaphore::new(SPARE_MAX));
    let requests =
        Requests { worker, open: Arc::default(), leave, spare, peer, slots: OnceLock::new() };
    let mut reader = Reader::new(reader);
    let asked = async {
        tokio::select! {
            // The other side sees how the connection ended.
            _ = requests.take_all(&mut reader) => {}
            () = told(&mut stop) => {
                // Queued answers are still sent.
                let _ = requests.leave.send(Outgoing::Last);
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = asked => {}
        _ = send_queue::write_all(writer, leaving) => {}
    }
}

/// Exchanges prefaces; false if the other side wants another incarnation or version.
async fn greet(
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
type Open = Mutex<FxHashMap<u64, (TensorRequest, Charge)>>;

struct Requests {
    worker: Arc<Worker>,
    open: Arc<Open>,
    leave: mpsc::UnboundedSender<Outgoing>,
    spare: Arc<Semaphore>,
    /// The process id of the other end, if it is on this machine.
    peer: Option<i32>,
    /// Free slots of the shared memory that the peer has offered; none if it could not be opened.
    slots: OnceLock<Option<Arc<SlotSet>>>,
}

impl Drop for Requests {
    /// Cancels the open requests.
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.open.lock());
        open.into_values().for_each(|(asked, _)| asked.give_up());
    }
}

impl Requests {
    async fn take_all(&self, reader: &mut Reader<impl AsyncRead + Unpin>) -> Result<()> {
        let lost = |e: io::Error| err!(Cancelled, "the stream broke off: {e}");
        while let Some(header) = reader.array::<HEADER_BYTES>().await.map_err(lost)? {
            let header = Header::decode(&header)?;
            match header.kind {
                Kind::Want => {
                    let body = reader.bytes(header.len).await.map_err(lost)?;
                    let request = pb::RecvTensorRequest::decode(&body[..])
                        .map_err(|e| frame::broken(&format!("a request cannot be decoded: {e}")))?;
                    self.want(header.id, &request, header.len).await?;
                }
                Kind::GiveUp => self.give_up(header.id).await,
                Kind::Ring => {
                    let body = reader.array_whole().await.map_err(lost)?;
                    self.share(Offer::decode(header.id, &body))?;
                }
                Kind::Freed => self.freed(header.id)?,
                _ => return Err(frame::broken("the client sent an answer")),
            }
        }
        Ok(())
    }

    /// Handles a request; an error ends the connection.
    async fn want(&self, id: u64, request: &pb::RecvTensorRequest, len: usize) -> Result<()> {
        if self.open.lock().contains_key(&id) {
            return Err(frame::broken("two requests have one number"));
        }
        // Charged until the answer is sent.
        let charge = match Charge::new(&self.worker.task().incoming, len + REQUEST_BYTES) {
            Ok(charge) => charge,
            Err(e) => {
                answer(&self.leave, id, &Err(e), self.spare().await);
                return Ok(());
            }
        };
        let tensor = match self.worker.tensor_request(request) {
            Ok(tensor) => tensor,
            Err(e) => {
                answer(&self.leave, id, &Err(e), SendCharge::Charged { _charge: charge });
                return Ok(());
            }
        };
        self.open.lock().insert(id, (tensor.clone(), charge));
        let (open, leave) = (Arc::downgrade(&self.open), self.leave.clone());
        let mut asked = Asked { id, step: request.step_id as u64, open, leave, is_answered: false };
        tensor.receive(&request.rendezvous_key, move |result| asked.answer(&result));
        Ok(())
    }

    /// The peer offers shared memory, which is ignored if it cannot be opened.
    fn share(&self, offer: Offer) -> Result<()> {
        let filling = self.peer.and_then(|process| Filling::open(process, offer).ok());
        let (filling, slots) = filling.unzip();
        self.slots.set(slots).map_err(|_| frame::broken("shared memory was offered twice"))?;
        if let Some(filling) = filling {
            let _ = self.leave.send(Outgoing::Ring(filling));
        }
        Ok(())
    }

    fn freed(&self, slot: u64) -> Result<()> {
        let slots = self.slots.get().and_then(Option::as_ref);
        if !slots.is_some_and(|slots| slots.add(slot)) {
            return Err(frame::broken("a slot is freed that was not filled"));
        }
        let _ = self.leave.send(Outgoing::Freed);
        Ok(())
    }

    async fn give_up(&self, id: u64) {
        let asked = self.open.lock().remove(&id);
        match asked {
            Some((asked, _)) => asked.give_up(),
            // The answer is queued already.
            None => {
                let dropped = Outgoing::Dropped { id, _room: self.spare().await };
                let _ = self.leave.send(dropped);
            }
        }
    }

    /// Waits for a permit. Items that hold one are sent, or the connection ends, so this ends.
    async fn spare(&self) -> SendCharge {
        let permit = self.spare.clone().acquire_owned().await;
        SendCharge::Spare { _permit: permit.expect("the semaphore is never closed") }
    }
}

/// An open request. If it is dropped without an answer, the answer is that its step is over.
struct Asked {
    id: u64,
    step: u64,
    open: Weak<Open>,
    leave: mpsc::UnboundedSender<Outgoing>,
    is_answered: bool,
}

impl Asked {
    fn answer(&mut self, result: &Result<Value>) {
        self.is_answered = true;
        let asked = self.open.upgrade().and_then(|open| open.lock().remove(&self.id));
        // If it is not there, it was cancelled.
        if let Some((_, charge)) = asked {
            answer(&self.leave, self.id, result, SendCharge::Charged { _charge: charge });
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answer(&Err(is_over(self.step)));
        }
    }
}

fn answer(
    leave: &mpsc::UnboundedSender<Outgoing>,
    id: u64,
    result: &Result<Value>,
    room: SendCharge,
) {
    let (kind, start, content) = frame::answer(result)
        .unwrap_or_else(|e| (Kind::Failed, frame::encode_error(&e), Default::default()));
    // There is no receiver if the connection is gone.
    let _ = leave.send(Outgoing::Answer(Answer { id, kind, start, content, _room: room }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::{Budget, Code, Tensor};

    #[test]
    fn a_question_is_answered_once_even_if_the_worker_lets_it_go() {
        let budget = Budget::new(10);
        let open = Arc::new(Open::default());
        let tensor = TensorRequest::of_a_task_alone(7);
        let (leave, mut leaving) = mpsc::unbounded_channel();
        let ask = |id: u64| {
            open.lock().insert(id, (tensor.clone(), Charge::new(&budget, 1).unwrap()));
            let (open, leave) = (Arc::downgrade(&open), leave.clone());
            Asked { id, step: 7, open, leave, is_answered: false }
        };
        let mut next = || match leaving.try_recv() {
            Ok(Outgoing::Answer(answer)) => Some((answer.id, answer.kind, answer.start)),
            _ => None,
        };
        drop(ask(1));
        let (id, kind, body) = next().unwrap();
        let e = frame::decode_error(&body);
        assert_eq!((id, kind, e.code()), (1, Kind::Failed, Code::Aborted));
        assert_eq!(e.message(), "step 7 is over");
        let mut asked = ask(2);
        asked.answer(&Ok(Value::Tensor(Tensor::scalar(1i32))));
        // A client may use a number again.
        let again = ask(2);
        drop(asked);
        assert!(matches!(next(), Some((2, Kind::Tensor, _))));
        assert!(next().is_none() && open.lock().contains_key(&2));
        // One that was given up needs no answer.
        open.lock().remove(&2);
        drop(again);
        assert!(next().is_none());
        assert_eq!(budget.used_bytes(), 0);
    }
}
