//! The answering side of a fast stream.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxHashMap;
use thalweg_kernel::Value;
use thalweg_proto as pb;
use thalweg_tensor::{Charge, Result, err};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::frame::{self, HEADER_BYTES, Header, Kind, PREFACE_BYTES, Preface, VERSION};
use super::leaving::{self, Answer, Leaving};
use super::reader::Reader;
use super::socket;
use crate::worker::Worker;

/// What a question costs besides its bytes.
const QUESTION_BYTES: usize = 256;
/// Between attempts to take a connection.
const RETRY: Duration = Duration::from_millis(10);

/// Serves the connections to a unix socket, so many at a time, until `stop` says so.
pub(crate) async fn accept_all(
    listener: UnixListener,
    worker: Arc<Worker>,
    connections_max: usize,
    stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut stopped = stop.clone();
    loop {
        let is_full = connections.len() >= connections_max;
        tokio::select! {
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, _)) => {
                    socket::tune_unix(&stream);
                    let (reader, writer) = stream.into_split();
                    connections.spawn(serve(worker.clone(), reader, writer, stop.clone()));
                }
                // Out of descriptors, or a client gone before it was taken: others may still come.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
            Some(_) = connections.join_next() => {}
            () = told(&mut stopped) => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Ready when it is time to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    // Who could say so may be gone; that is as good as saying it.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Answers a connection's questions until it ends, or `stop` says so.
pub(crate) async fn serve<R, W>(
    worker: Arc<Worker>,
    mut reader: R,
    mut writer: W,
    mut stop: watch::Receiver<bool>,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let incarnation = worker.task().incarnation;
    let greeted = tokio::select! {
        greeted = greet(&mut reader, &mut writer, incarnation) => greeted,
        () = told(&mut stop) => return,
    };
    if !matches!(greeted, Ok(true)) {
        return;
    }
    let (leave, leaving) = mpsc::unbounded_channel();
    let questions = Questions { worker, open: Arc::default(), leave };
    let mut reader = Reader::new(reader);
    let asked = async {
        tokio::select! {
            // Whatever ended it, the other side knows as well as we do.
            _ = questions.take_all(&mut reader) => {}
            () = told(&mut stop) => {
                // What is on its way arrives.
                let _ = questions.leave.send(Leaving::Last);
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = asked => {}
        _ = leaving::write_all(writer, leaving) => {}
    }
}

/// Exchanges prefaces; false if the other side means another task or speaks another version.
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

/// Steps of which tensors are wanted, by the number of the question.
type Open = Mutex<FxHashMap<u64, (i64, Charge)>>;

struct Questions {
    worker: Arc<Worker>,
    open: Arc<Open>,
    leave: mpsc::UnboundedSender<Leaving>,
}

impl Drop for Questions {
    /// Nobody waits for the answers any more.
    fn drop(&mut self) {
        let open = std::mem::take(&mut *self.open.lock());
        open.into_values().for_each(|(step, _)| self.worker.recv_tensor_given_up(step));
    }
}

impl Questions {
    async fn take_all(&self, reader: &mut Reader<impl AsyncRead + Unpin>) -> Result<()> {
        let lost = |e: io::Error| err!(Cancelled, "the stream broke off: {e}");
        while let Some(header) = reader.array::<HEADER_BYTES>().await.map_err(lost)? {
            let header = Header::decode(&header)?;
            match header.kind {
                Kind::Want => {
                    let body = reader.bytes(header.len).await.map_err(lost)?;
                    let request = pb::RecvTensorRequest::decode(&body[..])
                        .map_err(|e| frame::broken(&format!("a question is unclear: {e}")))?;
                    self.want(header.id, &request, header.len)?;
                }
                Kind::GiveUp => self.give_up(header.id)?,
                _ => return Err(frame::broken("a question is an answer")),
            }
        }
        Ok(())
    }

    /// Fails if the connection must end.
    fn want(&self, id: u64, request: &pb::RecvTensorRequest, len: usize) -> Result<()> {
        let charge = self.charge(len)?;
        {
            let mut open = self.open.lock();
            if open.contains_key(&id) {
                return Err(frame::broken("two questions have one number"));
            }
            open.insert(id, (request.step_id, charge));
        }
        let (open, leave) = (Arc::downgrade(&self.open), self.leave.clone());
        self.worker.recv_tensor(request, move |result| {
            let asked = open.upgrade().and_then(|open| open.lock().remove(&id));
            if let Some((_, charge)) = asked {
                answer(&leave, id, &result, charge);
            }
        });
        Ok(())
    }

    fn give_up(&self, id: u64) -> Result<()> {
        let asked = self.open.lock().remove(&id);
        match asked {
            Some((step, _)) => self.worker.recv_tensor_given_up(step),
            // It is on its way already.
            None => {
                let dropped = Leaving::Dropped { id, _charge: self.charge(0)? };
                let _ = self.leave.send(dropped);
            }
        }
        Ok(())
    }

    /// Room for a question, until its answer has left: somebody may ask and never listen.
    fn charge(&self, len: usize) -> Result<Charge> {
        Charge::new(&self.worker.task().incoming, len + QUESTION_BYTES)
    }
}

fn answer(leave: &mpsc::UnboundedSender<Leaving>, id: u64, result: &Result<Value>, charge: Charge) {
    let (kind, start, content) = frame::answer(result)
        .unwrap_or_else(|e| (Kind::Failed, frame::encode_error(&e), Default::default()));
    // If the connection is gone, nobody waits.
    let _ = leave.send(Leaving::Answer(Answer { id, kind, start, content, _charge: charge }));
}
