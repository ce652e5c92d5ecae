//! Answers on their way out: small ones together, large ones in turn, a part at a time.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use thalweg_tensor::Charge;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;

use super::frame::{Header, Kind, PART_BYTES};

/// Answers with less content are copied and leave together.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// What leaves at once.
const BATCH_BYTES: usize = 64 << 10;
/// A peer that takes nothing for that long is not there.
const STUCK_LIMIT: Duration = Duration::from_secs(600);

/// Something for the writing side.
pub(super) enum Leaving {
    Answer(Answer),
    /// Nobody wants this one any more.
    Dropped {
        id: u64,
        _room: Room,
    },
    /// Nothing comes after what is there.
    Last,
}

/// An answer; its content leaves from where it is.
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) start: Bytes,
    pub(super) content: Bytes,
    pub(super) _room: Room,
}

/// What something takes until it has left: somebody may ask and never listen.
pub(super) enum Room {
    /// For a question.
    Charged { _charge: Charge },
    /// One of a connection's few for what must be said although the budget has no room.
    Spare { _permit: OwnedSemaphorePermit },
}

/// Writes what comes until the last of it.
pub(super) async fn write_all(
    mut target: impl AsyncWrite + Unpin,
    mut source: UnboundedReceiver<Leaving>,
) -> io::Result<()> {
    let mut queue = Queue::default();
    loop {
        if queue.is_empty() {
            if queue.is_last {
                return target.shutdown().await;
            }
            match source.recv().await {
                Some(next) => queue.take(next),
                None => return target.shutdown().await,
            }
        }
        while let Ok(next) = source.try_recv() {
            queue.take(next);
        }
        let mut part = queue.next_part();
        let written = tokio::time::timeout(STUCK_LIMIT, target.write_all_buf(&mut part));
        written.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
}

/// What is to be written.
#[derive(Default)]
struct Queue {
    small: VecDeque<Answer>,
    /// Begun or not; each gets its turn.
    large: VecDeque<Answer>,
    is_last: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    fn take(&mut self, next: Leaving) {
        match next {
            Leaving::Answer(answer) if answer.content.len() > COPIED_BYTES_MAX => {
                self.large.push_back(answer);
            }
            Leaving::Answer(answer) => self.small.push_back(answer),
            Leaving::Dropped { id, .. } => self.large.retain(|answer| answer.id != id),
            Leaving::Last => self.is_last = true,
        }
    }

    /// What is written next: some small answers, then a part of a large one.
    fn next_part(&mut self) -> impl Buf + use<> {
        let mut small = BytesMut::new();
        while small.len() < BATCH_BYTES {
            let Some(answer) = self.small.pop_front() else { break };
            let len = answer.start.len() + answer.content.len();
            Header { id: answer.id, kind: answer.kind, len }.put(&mut small);
            small.extend_from_slice(&answer.start);
            small.extend_from_slice(&answer.content);
        }
        let mut content = Bytes::new();
        if let Some(mut answer) = self.large.pop_front() {
            content = answer.content.split_to(answer.content.len().min(PART_BYTES));
            let len = answer.start.len() + content.len();
            Header { id: answer.id, kind: answer.kind, len }.put(&mut small);
            small.extend_from_slice(&answer.start);
            if !answer.content.is_empty() {
                self.large.push_back(Answer { kind: Kind::More, start: Bytes::new(), ..answer });
            }
        }
        small.freeze().chain(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::Budget;

    fn room() -> Room {
        Room::Charged { _charge: Charge::new(&Budget::new(1), 1).unwrap() }
    }

    fn answer(id: u64, bytes: usize) -> Leaving {
        let (start, content) = (Bytes::from_static(b"start"), Bytes::from(vec![id as u8; bytes]));
        Leaving::Answer(Answer { id, kind: Kind::Tensor, start, content, _room: room() })
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

    #[test]
    fn small_answers_pass_large_ones_which_take_turns() {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        for (id, bytes) in
            [(1, PART_BYTES * 2 + 1), (2, PART_BYTES + 7), (3, 10), (4, 0), (5, 20_000)]
        {
            tell.send(answer(id, bytes)).ok().unwrap();
        }
        tell.send(Leaving::Dropped { id: 5, _room: room() }).ok().unwrap();
        tell.send(Leaving::Last).ok().unwrap();
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
