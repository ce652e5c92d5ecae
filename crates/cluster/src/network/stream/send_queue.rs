//! The send queue of a stream's server: small answers in batches, large ones round robin, a part at a time.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use thalweg_tensor::Charge;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;

use super::frame::{Header, Kind, PART_BYTES};
use super::ring::{Filling, PLACED_BYTES_MIN};

/// Answers with at most this much content are copied into a batch.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// Maximum size of a batch.
const BATCH_BYTES: usize = 64 << 10;
/// A peer that receives nothing for this long is considered lost.
const STUCK_LIMIT: Duration = Duration::from_secs(600);

/// An item for the writing side.
pub(super) enum Outgoing {
    Answer(Answer),
    /// The request of this id was cancelled.
    Dropped {
        id: u64,
        _room: SendCharge,
    },
    /// From now on large content goes through this shared memory.
    Ring(Filling),
    /// A slot of the shared memory is free again.
    Freed,
    /// The last item.
    Last,
}

/// An answer; its content is sent from the tensor's memory.
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) start: Bytes,
    pub(super) content: Bytes,
    pub(super) _room: SendCharge,
}

/// What an item holds until it is sent: a peer may send requests and never read.
pub(super) enum SendCharge {
    /// The charge of a request.
    Charged { _charge: Charge },
    /// One of a connection's permits for answers that the budget has no room for.
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
                false => in_time(async { Ok(source.recv().await) }).await?,
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
        let mut part = queue.next_part();
        in_time(target.write_all_buf(&mut part)).await?;
    }
}

/// Bounds a wait for the peer to receive something.
async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(STUCK_LIMIT, work);
    done.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Items to be written.
#[derive(Default)]
struct Queue {
    small: VecDeque<Answer>,
    /// Round robin, a part of each at a time.
    large: VecDeque<Answer>,
    /// Shared memory for large answers, if the peer has offered some.
    ring: Option<Filling>,
    is_last: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Whether a part can be written now.
    fn is_ready(&self) -> bool {
        let is_full = self.ring.as_ref().is_some_and(Filling::is_full);
        let is_held_up = |answer: &Answer| is_full && is_placed(answer);
        !self.small.is_empty() || self.large.front().is_some_and(|answer| !is_held_up(answer))
    }

    fn take(&mut self, next: Outgoing) {
        match next {
            Outgoing::Answer(answer) if answer.content.len() > COPIED_BYTES_MAX => {
                self.large.push_back(answer);
            }
            Outgoing::Answer(answer) => self.small.push_back(answer),
            Outgoing::Dropped { id, .. } => self.large.retain(|answer| answer.id != id),
            Outgoing::Ring(ring) => self.ring = Some(ring),
            Outgoing::Freed => {}
            Outgoing::Last => {
                self.is_last = true;
                // No `Freed` frames are read after this.
                self.ring = None;
            }
        }
    }

    /// The next bytes: a batch of small answers, then a part of a large one.
    fn next_part(&mut self) -> impl Buf + use<> {
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

    /// Puts the header of a part of a large answer; returns the bytes that follow it.
    fn next_of_large(&mut self, head: &mut BytesMut) -> Bytes {
        let Some(mut answer) = self.large.pop_front() else { return Bytes::new() };
        let mut follows = Bytes::new();
        match &mut self.ring {
            Some(ring) if is_placed(&answer) => {
                let Some(place) = ring.fill(&answer.content) else {
                    self.large.push_front(answer);
                    return follows;
                };
                answer.content.advance(place.count);
                if answer.kind != Kind::More {
                    Header { id: answer.id, kind: answer.kind, len: answer.start.len() }.put(head);
                    head.extend_from_slice(&answer.start);
                }
                place.put(answer.id, head);
            }
            _ => {
                follows = answer.content.split_to(answer.content.len().min(PART_BYTES));
                let len = answer.start.len() + follows.len();
                Header { id: answer.id, kind: answer.kind, len }.put(head);
                head.extend_from_slice(&answer.start);
            }
        }
        if !answer.content.is_empty() {
            self.large.push_back(Answer { kind: Kind::More, start: Bytes::new(), ..answer });
        }
        follows
    }
}

/// Whether the rest of an answer goes through shared memory, if there is some.
fn is_placed(answer: &Answer) -> bool {
    answer.content.len() >= PLACED_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Budget;

    fn room() -> SendCharge {
        SendCharge::Charged { _charge: Charge::new(&Budget::new(1), 1).unwrap() }
    }

    fn answer(id: u64, bytes: usize) -> Outgoing {
        let (start, content) = (Bytes::from_static(b"start"), Bytes::from(vec![id as u8; bytes]));
        Outgoing::Answer(Answer { id, kind: Kind::Tensor, start, content, _room: room() })
    }

    /// Headers of what leaves, in order.
    fn frames(mut bytes: Bytes) -> Vec<(u64, Kind, usize)> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let header = Header::decode(bytes.split_to(16)[..].try_into().unwrap()).unwrap();
            assert!(bytes.split_to(header.len).len() == header.len);
            frames.push((header.id, header.kind, header.len));
        }
        frames
    }

    /// With shared memory only as much leaves as there are slots; what comes last needs none.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_answers_wait_for_slots() {
        use super::super::ring::{Ring, SLOT_BYTES, SLOTS};
        let ring = Ring::make().unwrap();
        let (filling, free) = Filling::open(std::process::id() as i32, ring.offer()).unwrap();
        let mut queue = Queue::default();
        queue.take(Outgoing::Ring(filling));
        assert!(!queue.is_ready());
        queue.take(answer(1, SLOT_BYTES * (SLOTS + 2)));
        let next = |queue: &mut Queue| {
            assert!(queue.is_ready());
            let mut part = queue.next_part();
            frames(part.copy_to_bytes(part.remaining()))
        };
        let (first, placed, more) = (Kind::Tensor, Kind::Placed, Kind::More);
        assert_eq!(next(&mut queue), [(1, first, 5), (1, placed, 8)]);
        for _ in 1..SLOTS {
            assert_eq!(next(&mut queue), [(1, placed, 8)]);
        }
        assert!(!queue.is_ready() && !queue.is_empty());
        queue.take(answer(2, 10));
        assert_eq!(next(&mut queue), [(2, first, 15)], "it needs no slot");
        assert!(!queue.is_ready());
        assert!(free.add(3));
        assert_eq!(next(&mut queue), [(1, placed, 8)]);
        queue.take(Outgoing::Last);
        assert_eq!(next(&mut queue), [(1, more, SLOT_BYTES)]);
        assert!(queue.is_empty());
        let mut got = vec![0; SLOT_BYTES];
        ring.read(3, &mut got);
        assert!(got.iter().all(|byte| *byte == 1));
    }

    /// What is left of a tensor may be too little for a slot.
    #[cfg(target_os = "linux")]
    #[test]
    fn little_content_leaves_by_the_socket() {
        use super::super::ring::{Ring, SLOT_BYTES};
        let ring = Ring::make().unwrap();
        let (filling, _) = Filling::open(std::process::id() as i32, ring.offer()).unwrap();
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        tell.send(Outgoing::Ring(filling)).ok().unwrap();
        tell.send(answer(1, COPIED_BYTES_MAX + 1)).ok().unwrap();
        tell.send(answer(2, SLOT_BYTES + PLACED_BYTES_MIN - 1)).ok().unwrap();
        drop(tell);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut written = Vec::new();
        runtime.block_on(write_all(&mut written, told)).unwrap();
        assert_eq!(
            frames(written.into()),
            [
                (1, Kind::Tensor, COPIED_BYTES_MAX + 6),
                (2, Kind::Tensor, 5),
                (2, Kind::Placed, 8),
                (2, Kind::More, PLACED_BYTES_MIN - 1)
            ]
        );
    }

    #[test]
    fn small_answers_pass_large_ones_which_take_turns() {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        for (id, bytes) in
            [(1, PART_BYTES * 2 + 1), (2, PART_BYTES + 7), (3, 10), (4, 0), (5, 20_000)]
        {
            tell.send(answer(id, bytes)).ok().unwrap();
        }
        tell.send(Outgoing::Dropped { id: 5, _room: room() }).ok().unwrap();
        tell.send(Outgoing::Last).ok().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut written = Vec::new();
        runtime.block_on(write_all(&mut written, told)).unwrap();
        let (first, more) = (Kind::Tensor, Kind::More);
        assert_eq!(
            frames(written.into()),
            [
                (3, first, 15),
                (4, first, 5),
                (1, first, PART_BYTES + 5),
                (2, first, PART_BYTES + 5),
                (1, more, PART_BYTES),
                (2, more, 7),
                (1, more, 1),
            ]
        );
    }
}
