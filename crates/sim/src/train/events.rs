//! Virtual time and the events in it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The longest duration, three years: sums of a few do not overflow.
const LONGEST: u64 = 100_000_000_000_000_000;

/// Virtual nanoseconds.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    ((seconds * 1e9).round() as u64).min(LONGEST)
}

pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

/// Events in the order of their times; those of one time in the order in which they were added.
pub(super) struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    added: u64,
    now: u64,
}

struct Entry<E> {
    time: u64,
    number: u64,
    event: E,
}

impl<E> Events<E> {
    pub(super) fn new() -> Events<E> {
        Events { heap: BinaryHeap::new(), added: 0, now: 0 }
    }

    /// The time of the last event that was taken.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// How many events there were.
    pub(super) fn count(&self) -> u64 {
        self.added
    }

    /// Adds an event; one of the past happens now.
    pub(super) fn add(&mut self, time: u64, event: E) {
        let time = time.max(self.now);
        self.heap.push(Entry { time, number: self.added, event });
        self.added += 1;
    }

    pub(super) fn next(&mut self) -> Option<E> {
        let Entry { time, event, .. } = self.heap.pop()?;
        self.now = time;
        Some(event)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap's greatest entry is the earliest event.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}
