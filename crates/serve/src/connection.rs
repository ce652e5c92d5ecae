//! Timeouts of connections: idle connections, and answers that the client does not read.
//!
//! A client must not hold server memory indefinitely: a connection without calls is closed after a
//! timeout, sooner when most connection slots are taken, and so is a connection whose client does
//! not read an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thalweg_tensor::Charge;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// How long a connection may be open without a call.
    pub idle: Duration,
    /// How long an answer may take to be sent.
    pub answer: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        ConnectionTimeouts { idle: Duration::from_secs(300), answer: Duration::from_secs(60) }
    }
}

/// The idle timeout while few connection slots are free.
pub(crate) const IDLE_CROWDED: Duration = Duration::from_secs(5);
/// How long a client has to close a connection that the server wants to end.
const GOODBYE: Duration = Duration::from_secs(5);
/// The maximum interval of timeout checks.
const LOOK: Duration = Duration::from_secs(5);

/// The connection slots of one protocol.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) left: Arc<Semaphore>,
    pub(crate) max: usize,
}

impl Places {
    pub(crate) fn new(max: usize) -> Places {
        Places { left: Arc::new(Semaphore::new(max)), max }
    }

    /// Whether few slots are free.
    fn are_few(&self) -> bool {
        self.left.available_permits() < self.max.div_ceil(8)
    }
}

/// Answers are counted by the eighth of the timeout in which they began: an answer that is still
/// unsent when its slot comes round again is overdue.
const SLOTS: usize = 8;

/// The calls of a connection.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Calls whose answer is not sent completely.
    open: AtomicUsize,
    /// The current slot.
    slot: AtomicUsize,
    /// Answers being sent, by slot.
    sending: [AtomicUsize; SLOTS],
}

/// One call, until its answer is sent.
#[derive(Debug)]
pub(crate) struct Call {
    of: Arc<Calls>,
    slot: Option<usize>,
    _room: Option<Charge>,
}

impl Calls {
    /// Begins a call.
    pub(crate) fn begin(self: &Arc<Self>) -> Call {
        self.open.fetch_add(1, Ordering::Relaxed);
        Call { of: self.clone(), slot: None, _room: None }
    }

    /// Advances to the next slot; false if an answer is overdue.
    fn turn(&self) -> bool {
        let next = (self.slot.load(Ordering::Relaxed) + 1) % SLOTS;
        self.slot.store(next, Ordering::Relaxed);
        self.sending[next].load(Ordering::Relaxed) == 0
    }
}

impl Call {
    /// Marks the answer as ready; it holds `room`, its memory charge, until it is sent.
    pub(crate) fn answered(&mut self, room: Option<Charge>) {
        let slot = self.of.slot.load(Ordering::Relaxed);
        self.of.sending[slot].fetch_add(1, Ordering::Relaxed);
        (self.slot, self._room) = (Some(slot), room);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.of.sending[slot].fetch_sub(1, Ordering::Relaxed);
        }
        self.of.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes of an answer. The transport keeps them until they are sent, and with them the call.
pub(crate) fn held(bytes: Bytes, call: Arc<Call>) -> Bytes {
    struct Held {
        bytes: Bytes,
        _call: Arc<Call>,
    }
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(Held { bytes, _call: call })
}

/// The timeouts and counters that a connection is checked against.
pub(crate) struct Watch {
    pub(crate) calls: Arc<Calls>,
    pub(crate) timeouts: ConnectionTimeouts,
    pub(crate) places: Places,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Idle,
    Stuck,
}

/// The state between two checks.
#[derive(Default)]
struct Seen {
    idled: Duration,
    since_turn: Duration,
}

impl Watch {
    /// Completes when the connection must be closed.
    async fn verdict(&self, may_idle: bool) -> Verdict {
        let (mut seen, pause) = (Seen::default(), self.pause());
        loop {
            tokio::time::sleep(pause).await;
            if let Some(verdict) = self.look(&mut seen, pause, may_idle) {
                return verdict;
            }
        }
    }

    /// The duration of a slot.
    fn part(&self) -> Duration {
        self.timeouts.answer / (SLOTS as u32 - 1)
    }

    /// The interval of checks.
    fn pause(&self) -> Duration {
        LOOK.min(self.part()).min(self.timeouts.idle / 4).max(Duration::from_millis(1))
    }

    /// Checks the timeouts after `passed` since the last check.
    fn look(&self, seen: &mut Seen, passed: Duration, may_idle: bool) -> Option<Verdict> {
        seen.since_turn += passed;
        if seen.since_turn >= self.part() {
            seen.since_turn = Duration::ZERO;
            if !self.calls.turn() {
                return Some(Verdict::Stuck);
            }
        }
        let is_idle = may_idle && self.calls.open.load(Ordering::Relaxed) == 0;
        seen.idled = if is_idle { seen.idled + passed } else { Duration::ZERO };
        let idle = self.timeouts.idle;
        let limit = if self.places.are_few() { idle.min(IDLE_CROWDED) } else { idle };
        (seen.idled >= limit).then_some(Verdict::Idle)
    }

    /// Waits for the first byte of a client; false on timeout. A client that sends nothing costs no
    /// more memory than this wait.
    pub(crate) async fn is_greeted(
        &self,
        stream: &TcpStream,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        tokio::select! {
            greeted = stream.readable() => greeted.is_ok(),
            _ = self.verdict(true) => false,
            _ = stop.wait_for(|stopped| *stopped) => false,
        }
    }

    /// Runs a connection until the client closes it, the server stops, or a timeout expires. `end`
    /// makes it refuse new calls.
    pub(crate) async fn run<C: Future>(
        self,
        connection: C,
        end: impl FnOnce(Pin<&mut C>),
        mut stop: watch::Receiver<bool>,
    ) {
        tokio::pin!(connection);
        let verdict = tokio::select! {
            _ = &mut connection => return,
            verdict = self.verdict(true) => Some(verdict),
            _ = stop.wait_for(|stopped| *stopped) => None,
        };
        if verdict == Some(Verdict::Stuck) {
            // Whatever is left of it goes with the connection.
            return;
        }
        end(connection.as_mut());
        // A call that came in the meantime is answered, and its answer has its time.
        tokio::select! {
            _ = connection => {}
            _ = self.verdict(false) => {}
            () = self.silence() => {}
        }
    }

    /// Completes when no call is open, after a grace period in which the client can close.
    async fn silence(&self) {
        loop {
            tokio::time::sleep(GOODBYE).await;
            if self.calls.open.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Budget;

    use super::*;

    fn watch(idle: u64, answer: u64) -> Watch {
        let timeouts = ConnectionTimeouts {
            idle: Duration::from_secs(idle),
            answer: Duration::from_secs(answer),
        };
        Watch { calls: Arc::default(), timeouts, places: Places::new(8) }
    }

    /// The verdict, and after how many seconds it came.
    fn wait(watch: &Watch, may_idle: bool) -> Option<(Verdict, u64)> {
        let (mut seen, mut waited) = (Seen::default(), Duration::ZERO);
        while waited < Duration::from_secs(10_000) {
            waited += watch.pause();
            if let Some(verdict) = watch.look(&mut seen, watch.pause(), may_idle) {
                return Some((verdict, waited.as_secs()));
            }
        }
        None
    }

    #[test]
    fn who_idles_has_to_go_and_sooner_in_a_crowd() {
        let watch = watch(60, 1000);
        assert_eq!(wait(&watch, true), Some((Verdict::Idle, 60)));
        assert_eq!(wait(&watch, false), None);
        let taken = watch.places.left.clone().try_acquire_many_owned(8).unwrap();
        assert_eq!(wait(&watch, true), Some((Verdict::Idle, 5)));
        drop(taken);
        // Who asks does not idle.
        let call = watch.calls.begin();
        assert_eq!(wait(&watch, true), None);
        drop(call);
        assert_eq!(wait(&watch, true), Some((Verdict::Idle, 60)));
    }

    #[test]
    fn an_answer_that_nobody_takes_ends_the_connection() {
        let watch = watch(1000, 7);
        let budget = Budget::new(100);
        let mut call = watch.calls.begin();
        // The time that it takes to make an answer does not count.
        assert_eq!(wait(&watch, true), None);
        call.answered(Some(Charge::new(&budget, 60).unwrap()));
        let bytes = held(Bytes::from_static(b"answer"), Arc::new(call));
        let (verdict, seconds) = wait(&watch, true).unwrap();
        assert_eq!(verdict, Verdict::Stuck);
        assert!((7..=8).contains(&seconds), "{seconds}");
        assert_eq!((&bytes[..], budget.used_bytes()), (&b"answer"[..], 60));
        drop(bytes);
        assert_eq!((budget.used_bytes(), watch.calls.open.load(Ordering::Relaxed)), (0, 0));
        // Many that are taken in time are fine.
        let mut seen = Seen::default();
        for _ in 0..100 {
            let mut call = watch.calls.begin();
            call.answered(None);
            for _ in 0..6 {
                assert_eq!(watch.look(&mut seen, Duration::from_secs(1), true), None);
            }
        }
    }
}
