//! The queue of requests that wait for a batch.
//!
//! A state machine without I/O: time is an argument, requests are ids with a number of rows, and
//! the caller keeps their tensors. Requests with equal keys can share a batch; the oldest goes
//! first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// When a batch is due, and how many rows may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The maximum rows of a batch.
    pub(crate) batch_rows: usize,
    /// The number of rows with which a batch is due before the timeout.
    pub(crate) enough_rows: usize,
    /// How long the oldest request waits for others.
    pub(crate) wait: Duration,
    /// The maximum number of waiting rows; further requests are rejected.
    pub(crate) waiting_rows: usize,
    /// Whether a request may be split over several batches.
    pub(crate) may_split: bool,
}

/// Why a request was rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rejected {
    /// The queue is full.
    Full,
    /// The request has more rows than a batch and may not be split.
    TooLarge,
}

/// The rows of one request in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) request: u64,
    /// The first of its rows in this batch.
    pub(crate) start: usize,
    pub(crate) rows: usize,
    /// Whether these are the last rows of the request.
    pub(crate) is_last: bool,
}

/// A batching key, made by the caller.
pub(crate) type Key = Arc<[usize]>;

#[derive(Clone, Debug)]
struct QueuedRequest {
    request: u64,
    key: Key,
    rows: usize,
    taken: usize,
    arrived: Duration,
}

impl QueuedRequest {
    fn left(&self) -> usize {
        self.rows - self.taken
    }
}

/// The queue of one method.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<QueuedRequest>,
    rows: usize,
}

impl Queue {
    /// Adds a request of `rows` rows.
    pub(crate) fn push(
        &mut self,
        (request, key): (u64, Key),
        rows: usize,
        now: Duration,
        limits: &Limits,
    ) -> Result<(), Rejected> {
        if rows > limits.batch_rows && !limits.may_split {
            return Err(Rejected::TooLarge);
        }
        // An empty queue accepts a request larger than the limit, which could never run otherwise.
        if !self.waiting.is_empty() && self.rows.saturating_add(rows) > limits.waiting_rows {
            return Err(Rejected::Full);
        }
        self.rows += rows;
        self.waiting.push_back(QueuedRequest { request, key, rows, taken: 0, arrived: now });
        Ok(())
    }

    /// Removes a request.
    pub(crate) fn cancel(&mut self, request: u64) {
        if let Some(at) = self.waiting.iter().position(|w| w.request == request) {
            self.remove(at);
        }
    }

    /// The next batch, if one is due.
    pub(crate) fn take(&mut self, now: Duration, limits: &Limits) -> Option<Vec<Piece>> {
        let oldest = self.waiting.front()?;
        let enough = limits.enough_rows.min(limits.batch_rows);
        let is_due =
            oldest.arrived + limits.wait <= now || self.rows_of(&oldest.key, enough) >= enough;
        let key = oldest.key.clone();
        is_due.then(|| self.take_rows(&key, limits))
    }

    /// When the next batch is due, if no further request arrives.
    pub(crate) fn next_due(&self, limits: &Limits) -> Option<Duration> {
        Some(self.waiting.front()?.arrived + limits.wait)
    }

    /// The number of waiting rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    fn rows_of(&self, key: &Key, enough: usize) -> usize {
        let mut rows = 0;
        for waiting in self.waiting.iter().filter(|w| w.key == *key) {
            rows += waiting.left();
            if rows >= enough {
                break;
            }
        }
        rows
    }

    fn take_rows(&mut self, key: &Key, limits: &Limits) -> Vec<Piece> {
        let (mut pieces, mut free, mut at) = (Vec::new(), limits.batch_rows, 0);
        while free > 0 && at < self.waiting.len() {
            let waiting = &mut self.waiting[at];
            let left = waiting.left();
            if waiting.key != *key || (left > free && !limits.may_split) {
                at += 1;
                continue;
            }
            let rows = left.min(free);
            let is_last = rows == left;
            pieces.push(Piece { request: waiting.request, start: waiting.taken, rows, is_last });
            free -= rows;
            if is_last {
                self.remove(at);
            } else {
                waiting.taken += rows;
                self.rows -= rows;
                at += 1;
            }
        }
        pieces
    }

    fn remove(&mut self, at: usize) -> QueuedRequest {
        let waiting = self.waiting.remove(at).expect("the caller found this index");
        self.rows -= waiting.left();
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn key(of: usize) -> Key {
        Arc::new([of])
    }

    fn limits() -> Limits {
        Limits { batch_rows: 8, enough_rows: 8, wait: ms(10), waiting_rows: 20, may_split: true }
    }

    fn piece(request: u64, start: usize, rows: usize, is_last: bool) -> Piece {
        Piece { request, start, rows, is_last }
    }

    #[test]
    fn a_batch_is_due_when_full_or_when_the_oldest_has_waited() {
        let mut queue = Queue::default();
        queue.push((1, key(0)), 3, ms(0), &limits()).unwrap();
        queue.push((2, key(0)), 4, ms(5), &limits()).unwrap();
        assert_eq!(queue.take(ms(9), &limits()), None);
        assert_eq!(queue.next_due(&limits()), Some(ms(10)));
        let both = vec![piece(1, 0, 3, true), piece(2, 0, 4, true)];
        assert_eq!(queue.take(ms(10), &limits()), Some(both));
        assert_eq!((queue.rows(), queue.next_due(&limits())), (0, None));
        queue.push((3, key(0)), 8, ms(11), &limits()).unwrap();
        assert_eq!(queue.take(ms(11), &limits()), Some(vec![piece(3, 0, 8, true)]));
    }

    #[test]
    fn large_requests_are_split_and_counted_once() {
        let mut queue = Queue::default();
        queue.push((1, key(0)), 19, ms(0), &limits()).unwrap();
        queue.push((2, key(0)), 1, ms(0), &limits()).unwrap();
        assert_eq!(queue.take(ms(0), &limits()), Some(vec![piece(1, 0, 8, false)]));
        assert_eq!(queue.take(ms(0), &limits()), Some(vec![piece(1, 8, 8, false)]));
        assert_eq!(queue.rows(), 4);
        let rest = vec![piece(1, 16, 3, true), piece(2, 0, 1, true)];
        assert_eq!(queue.take(ms(10), &limits()), Some(rest));
        assert_eq!(queue.rows(), 0);
    }

    #[test]
    fn requests_that_cannot_be_split_wait_or_are_rejected() {
        let limits = Limits { may_split: false, ..limits() };
        let mut queue = Queue::default();
        assert_eq!(queue.push((1, key(0)), 9, ms(0), &limits), Err(Rejected::TooLarge));
        for (request, rows) in [(2, 5), (3, 4), (4, 3)] {
            queue.push((request, key(0)), rows, ms(0), &limits).unwrap();
        }
        let first = vec![piece(2, 0, 5, true), piece(4, 0, 3, true)];
        assert_eq!(queue.take(ms(0), &limits), Some(first));
        assert_eq!(queue.take(ms(10), &limits), Some(vec![piece(3, 0, 4, true)]));
    }

    #[test]
    fn a_full_queue_rejects_requests() {
        let mut queue = Queue::default();
        queue.push((1, key(0)), 18, ms(0), &limits()).unwrap();
        assert_eq!(queue.push((2, key(0)), 3, ms(0), &limits()), Err(Rejected::Full));
        queue.push((3, key(0)), 2, ms(0), &limits()).unwrap();
        queue.cancel(1);
        assert_eq!(queue.rows(), 2);
        queue.push((4, key(0)), 18, ms(1), &limits()).unwrap();
    }

    #[test]
    fn requests_with_different_keys_share_no_batch() {
        let mut queue = Queue::default();
        for (request, kind) in [(1, 7), (2, 9), (3, 7)] {
            queue.push((request, key(kind)), 2, ms(0), &limits()).unwrap();
        }
        let sevens = vec![piece(1, 0, 2, true), piece(3, 0, 2, true)];
        assert_eq!(queue.take(ms(10), &limits()), Some(sevens));
        assert_eq!(queue.take(ms(10), &limits()), Some(vec![piece(2, 0, 2, true)]));
    }
}
