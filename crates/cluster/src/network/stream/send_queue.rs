//! The send queue of a stream's server: small answers in batches, large ones round robin, a chunk at a time.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use thalweg_tensor::Charge;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;

use super::frame::{CHUNK_BYTES, FrameKind, Header};
use super::ring::{RingWriter, SLOT_CONTENT_BYTES_MIN};

/// Answers with at most this much content are copied into a batch.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// Maximum size of a batch.
const BATCH_BYTES: usize = 64 << 10;
/// A connection whose peer receives nothing for this long is closed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// An item of the queue.
pub(super) enum Outgoing {
    Answer(Answer),
    /// The request of this id was cancelled.
    Cancelled {
        id: u64,
        _charge: SendCharge,
    },
    /// Later large content is sent through this shared memory.
    Ring(RingWriter),
    /// A slot of the shared memory is free again.
    SlotFreed,
    /// The last item.
    Last,
}

/// An answer; its content is sent from the tensor's memory.
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) kind: FrameKind,
    pub(super) start: Bytes,
    pub(super) content: Bytes,
    pub(super) _charge: SendCharge,
}

/// Bounds the queue: an item holds its charge until it is sent, as a peer may send requests and never read.
pub(super) enum SendCharge {
    /// The charge of a request.
    Charged { _charge: Charge },
    /// One of a connection's permits for answers that cannot be charged to the budget.
    Spare { _permit: OwnedSemaphorePermit },
}

/// Writes items until the last one.
pub(super) async fn write_all(
    mut target: impl AsyncWrite + Unpin,
    mut source: UnboundedReceiver<Outgoing>,
) -> io::Result<()> {
    let mut queue = Queue::default();
    loop {
        if !queue.is_ready() {
            let next = match queue.is_empty() {
                true if queue.is_last => None,
                true => source.recv().await,
                false => with_write_timeout(async { Ok(source.recv().await) }).await?,
            };
            match next {
                Some(next) => queue.take(next),
                None => return target.shutdown().await,
            }
        }
        while let Ok(next) = source.try_recv() {
            queue.take(next);
        }
        if !queue.is_ready() {
            continue;
        }
        let mut chunk = queue.next_chunk();
        with_write_timeout(target.write_all_buf(&mut chunk)).await?;
    }
}

/// Bounds a wait for the peer to receive data.
async fn with_write_timeout<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(WRITE_TIMEOUT, work);
    done.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Items to be written.
#[derive(Default)]
struct Queue {
    small: VecDeque<Answer>,
    /// Round robin, a chunk of each at a time.
    large: VecDeque<Answer>,
    /// Shared memory for large answers, if the peer has offered some.
    ring: Option<RingWriter>,
    is_last: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Whether a chunk can be written now.
    fn is_ready(&self) -> bool {
        let is_full = self.ring.as_ref().is_some_and(RingWriter::is_full);
        let is_blocked = |answer: &Answer| is_full && uses_ring(answer);
        !self.small.is_empty() || self.large.front().is_some_and(|answer| !is_blocked(answer))
    }

    fn take(&mut self, next: Outgoing) {
        match next {
            Outgoing::Answer(answer) if answer.content.len() > COPIED_BYTES_MAX => {
                self.large.push_back(answer);
            }
            Outgoing::Answer(answer) => self.small.push_back(answer),
            Outgoing::Cancelled { id, .. } => self.large.retain(|answer| answer.id != id),
            Outgoing::Ring(ring) => self.ring = Some(ring),
            Outgoing::SlotFreed => {}
            Outgoing::Last => {
                self.is_last = true;
                // No `SlotFreed` frames are read after this.
                self.ring = None;
            }
        }
    }

    /// The next bytes: a batch of small answers, then a chunk of a large one.
    fn next_chunk(&mut self) -> impl Buf + use<> {
        let mut small = BytesMut::new();
        while small.len() < BATCH_BYTES {
            let Some(answer) = self.small.pop_front() else { break };
            let len = answer.start.len() + answer.content.len();
            Header { id: answer.id, kind: answer.kind, len }.put(&mut small);
            small.extend_from_slice(&answer.start);
            small.extend_from_slice(&answer.content);
        }
        let content = self.next_of_large(&mut small);
        small.freeze().chain(content)
    }

    /// Puts the header of a chunk of a large answer; returns the bytes that follow it.
    fn next_of_large(&mut self, head: &mut BytesMut) -> Bytes {
        let Some(mut answer) = self.large.pop_front() else { return Bytes::new() };
        let mut content = Bytes::new();
        match &mut self.ring {
            Some(ring) if uses_ring(&answer) => {
                let Some(range) = ring.write(&answer.content) else {
                    self.large.push_front(answer);
                    return content;
                };
                answer.content.advance(range.count);
                if answer.kind != FrameKind::Continuation {
                    Header { id: answer.id, kind: answer.kind, len: answer.start.len() }.put(head);
                    head.extend_from_slice(&answer.start);
                }
                range.put(answer.id, head);
            }
            _ => {
                content = answer.content.split_to(answer.content.len().min(CHUNK_BYTES));
                let len = answer.start.len() + content.len();
                Header { id: answer.id, kind: answer.kind, len }.put(head);
                head.extend_from_slice(&answer.start);
            }
        }
        if !answer.content.is_empty() {
            self.large.push_back(Answer {
                kind: FrameKind::Continuation,
                start: Bytes::new(),
                ..answer
            });
        }
        content
    }
}

/// Whether the rest of an answer is sent through shared memory, if a ring is set up.
fn uses_ring(answer: &Answer) -> bool {
    answer.content.len() >= SLOT_CONTENT_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Budget;

    fn charge() -> SendCharge {
        SendCharge::Charged { _charge: Charge::new(&Budget::new(1), 1).unwrap() }
    }

    fn answer(id: u64, bytes: usize) -> Outgoing {
        let (start, content) = (Bytes::from_static(b"start"), Bytes::from(vec![id as u8; bytes]));
        Outgoing::Answer(Answer { id, kind: FrameKind::Tensor, start, content, _charge: charge() })
    }

    /// The headers of the written frames, in order.
    fn frames(mut bytes: Bytes) -> Vec<(u64, FrameKind, usize)> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let header = Header::decode(bytes.split_to(16)[..].try_into().unwrap()).unwrap();
            assert!(bytes.split_to(header.len).len() == header.len);
            frames.push((header.id, header.kind, header.len));
        }
        frames
    }

    /// With shared memory at most as many chunks are sent as slots are free; after `Last` the socket takes the rest.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_answers_wait_for_slots() {
        use super::super::ring::{Ring, SLOT_BYTES, SLOTS};
        let ring = Ring::allocate().unwrap();
        let (filling, free) = RingWriter::open(std::process::id() as i32, ring.offer()).unwrap();
        let mut queue = Queue::default();
        queue.take(Outgoing::Ring(filling));
        assert!(!queue.is_ready());
        queue.take(answer(1, SLOT_BYTES * (SLOTS + 2)));
        let next = |queue: &mut Queue| {
            assert!(queue.is_ready());
            let mut chunk = queue.next_chunk();
            frames(chunk.copy_to_bytes(chunk.remaining()))
        };
        let (first, filled, continuation) =
            (FrameKind::Tensor, FrameKind::SlotFilled, FrameKind::Continuation);
        assert_eq!(next(&mut queue), [(1, first, 5), (1, filled, 8)]);
        for _ in 1..SLOTS {
            assert_eq!(next(&mut queue), [(1, filled, 8)]);
        }
        assert!(!queue.is_ready() && !queue.is_empty());
        queue.take(answer(2, 10));
        assert_eq!(next(&mut queue), [(2, first, 15)], "a small answer needs no slot");
        assert!(!queue.is_ready());
        assert!(free.add(3));
        assert_eq!(next(&mut queue), [(1, filled, 8)]);
        queue.take(Outgoing::Last);
        assert_eq!(next(&mut queue), [(1, continuation, SLOT_BYTES)]);
        assert!(queue.is_empty());
        let mut got = vec![0; SLOT_BYTES];
        ring.read(3, &mut got);
        assert!(got.iter().all(|byte| *byte == 1));
    }

    /// The last bytes of a tensor may be too few for a slot.
    #[cfg(target_os = "linux")]
    #[test]
    fn small_content_is_sent_over_the_socket() {
        use super::super::ring::{Ring, SLOT_BYTES};
        let ring = Ring::allocate().unwrap();
        let (filling, _) = RingWriter::open(std::process::id() as i32, ring.offer()).unwrap();
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        sender.send(Outgoing::Ring(filling)).ok().unwrap();
        sender.send(answer(1, COPIED_BYTES_MAX + 1)).ok().unwrap();
        sender.send(answer(2, SLOT_BYTES + SLOT_CONTENT_BYTES_MIN - 1)).ok().unwrap();
        drop(sender);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut written = Vec::new();
        runtime.block_on(write_all(&mut written, receiver)).unwrap();
        assert_eq!(
            frames(written.into()),
            [
                (1, FrameKind::Tensor, COPIED_BYTES_MAX + 6),
                (2, FrameKind::Tensor, 5),
                (2, FrameKind::SlotFilled, 8),
                (2, FrameKind::Continuation, SLOT_CONTENT_BYTES_MIN - 1)
            ]
        );
    }

    #[test]
    fn small_answers_pass_large_ones_which_take_turns() {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        for (id, bytes) in
            [(1, CHUNK_BYTES * 2 + 1), (2, CHUNK_BYTES + 7), (3, 10), (4, 0), (5, 20_000)]
        {
            sender.send(answer(id, bytes)).ok().unwrap();
        }
        sender.send(Outgoing::Cancelled { id: 5, _charge: charge() }).ok().unwrap();
        sender.send(Outgoing::Last).ok().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut written = Vec::new();
        runtime.block_on(write_all(&mut written, receiver)).unwrap();
        let (first, continuation) = (FrameKind::Tensor, FrameKind::Continuation);
        assert_eq!(
            frames(written.into()),
            [
                (3, first, 15),
                (4, first, 5),
                (1, first, CHUNK_BYTES + 5),
                (2, first, CHUNK_BYTES + 5),
                (1, continuation, CHUNK_BYTES),
                (2, continuation, 7),
                (1, continuation, 1),
            ]
        );
    }
}
