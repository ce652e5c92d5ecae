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
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum interval of timeout checks.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The connection slots of one protocol.
#[derive(Clone)]
pub(crate) struct ConnectionSlots {
    pub(crate) left: Arc<Semaphore>,
    pub(crate) max: usize,
}

impl ConnectionSlots {
    pub(crate) fn new(max: usize) -> ConnectionSlots {
        ConnectionSlots { left: Arc::new(Semaphore::new(max)), max }
    }

    /// Whether few slots are free.
    fn is_crowded(&self) -> bool {
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
    _charge: Option<Charge>,
}

impl Calls {
    /// Begins a call.
    pub(crate) fn begin(self: &Arc<Self>) -> Call {
        self.open.fetch_add(1, Ordering::Relaxed);
        Call { of: self.clone(), slot: None, _charge: None }
    }

    /// Advances to the next slot; false if an answer is overdue.
    fn advance_slot(&self) -> bool {
        let next = (self.slot.load(Ordering::Relaxed) + 1) % SLOTS;
        self.slot.store(next, Ordering::Relaxed);
        self.sending[next].load(Ordering::Relaxed) == 0
    }
}

impl Call {
    /// Marks the answer as ready; it holds `charge`, its memory charge, until it is sent.
    pub(crate) fn answered(&mut self, charge: Option<Charge>) {
        let slot = self.of.slot.load(Ordering::Relaxed);
        self.of.sending[slot].fetch_add(1, Ordering::Relaxed);
        (self.slot, self._charge) = (Some(slot), charge);
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
pub(crate) fn with_call(bytes: Bytes, call: Arc<Call>) -> Bytes {
    struct BytesWithCall {
        bytes: Bytes,
        _call: Arc<Call>,
    }
    impl AsRef<[u8]> for BytesWithCall {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(BytesWithCall { bytes, _call: call })
}

/// The timeouts and counters that a connection is checked against.
pub(crate) struct ConnectionMonitor {
    pub(crate) calls: Arc<Calls>,
    pub(crate) timeouts: ConnectionTimeouts,
    pub(crate) slots: ConnectionSlots,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CloseReason {
    Idle,
    AnswerOverdue,
}

/// The state between two checks.
#[derive(Default)]
struct CheckState {
    idle_time: Duration,
    slot_time: Duration,
}

impl ConnectionMonitor {
    /// Completes when the connection must be closed.
    async fn close_reason(&self, may_idle: bool) -> CloseReason {
        let (mut state, check_interval) = (CheckState::default(), self.check_interval());
        loop {
            tokio::time::sleep(check_interval).await;
            if let Some(close_reason) = self.check(&mut state, check_interval, may_idle) {
                return close_reason;
            }
        }
    }

    /// The duration of a slot.
    fn slot_duration(&self) -> Duration {
        self.timeouts.answer / (SLOTS as u32 - 1)
    }

    /// The interval of checks.
    fn check_interval(&self) -> Duration {
        CHECK_INTERVAL_MAX
            .min(self.slot_duration())
            .min(self.timeouts.idle / 4)
            .max(Duration::from_millis(1))
    }

    /// Checks the timeouts after `passed` since the last check.
    fn check(
        &self,
        state: &mut CheckState,
        passed: Duration,
        may_idle: bool,
    ) -> Option<CloseReason> {
        state.slot_time += passed;
        if state.slot_time >= self.slot_duration() {
            state.slot_time = Duration::ZERO;
            if !self.calls.advance_slot() {
                return Some(CloseReason::AnswerOverdue);
            }
        }
        let is_idle = may_idle && self.calls.open.load(Ordering::Relaxed) == 0;
        state.idle_time = if is_idle { state.idle_time + passed } else { Duration::ZERO };
        let idle = self.timeouts.idle;
        let limit = if self.slots.is_crowded() { idle.min(IDLE_CROWDED) } else { idle };
        (state.idle_time >= limit).then_some(CloseReason::Idle)
    }

    /// Waits for the first byte of a client; false on timeout. A client that sends nothing costs no
    /// more memory than this wait.
    pub(crate) async fn has_first_byte(
        &self,
        stream: &TcpStream,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        tokio::select! {
            ready = stream.readable() => ready.is_ok(),
            _ = self.close_reason(true) => false,
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
        let close_reason = tokio::select! {
            _ = &mut connection => return,
            close_reason = self.close_reason(true) => Some(close_reason),
            _ = stop.wait_for(|stopped| *stopped) => None,
        };
        if close_reason == Some(CloseReason::AnswerOverdue) {
            // Dropping the connection drops its unsent data.
            return;
        }
        end(connection.as_mut());
        // A call that began in the meantime is still answered, within the answer timeout.
        tokio::select! {
            _ = connection => {}
            _ = self.close_reason(false) => {}
            () = self.drained() => {}
        }
    }

    /// Completes when no call is open, after a grace period in which the client can close.
    async fn drained(&self) {
        loop {
            tokio::time::sleep(CLOSE_TIMEOUT).await;
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

    fn watch(idle: u64, answer: u64) -> ConnectionMonitor {
        let timeouts = ConnectionTimeouts {
            idle: Duration::from_secs(idle),
            answer: Duration::from_secs(answer),
        };
        ConnectionMonitor { calls: Arc::default(), timeouts, slots: ConnectionSlots::new(8) }
    }

    /// Why the connection is closed, and after how many seconds.
    fn wait(watch: &ConnectionMonitor, may_idle: bool) -> Option<(CloseReason, u64)> {
        let (mut state, mut waited) = (CheckState::default(), Duration::ZERO);
        while waited < Duration::from_secs(10_000) {
            waited += watch.check_interval();
            if let Some(close_reason) = watch.check(&mut state, watch.check_interval(), may_idle) {
                return Some((close_reason, waited.as_secs()));
            }
        }
        None
    }

    #[test]
    fn idle_connections_are_closed_and_sooner_if_slots_are_scarce() {
        let watch = watch(60, 1000);
        assert_eq!(wait(&watch, true), Some((CloseReason::Idle, 60)));
        assert_eq!(wait(&watch, false), None);
        let taken = watch.slots.left.clone().try_acquire_many_owned(8).unwrap();
        assert_eq!(wait(&watch, true), Some((CloseReason::Idle, 5)));
        drop(taken);
        // A connection with a call is not idle.
        let call = watch.calls.begin();
        assert_eq!(wait(&watch, true), None);
        drop(call);
        assert_eq!(wait(&watch, true), Some((CloseReason::Idle, 60)));
    }

    #[test]
    fn an_unread_answer_closes_the_connection() {
        let watch = watch(1000, 7);
        let budget = Budget::new(100);
        let mut call = watch.calls.begin();
        // The time before the answer is ready does not count.
        assert_eq!(wait(&watch, true), None);
        call.answered(Some(Charge::new(&budget, 60).unwrap()));
        let bytes = with_call(Bytes::from_static(b"answer"), Arc::new(call));
        let (close_reason, seconds) = wait(&watch, true).unwrap();
        assert_eq!(close_reason, CloseReason::AnswerOverdue);
        assert!((7..=8).contains(&seconds), "{seconds}");
        assert_eq!((&bytes[..], budget.used_bytes()), (&b"answer"[..], 60));
        drop(bytes);
        assert_eq!((budget.used_bytes(), watch.calls.open.load(Ordering::Relaxed)), (0, 0));
        // Many answers that are read in time are allowed.
        let mut state = CheckState::default();
        for _ in 0..100 {
            let mut call = watch.calls.begin();
            call.answered(None);
            for _ in 0..6 {
                assert_eq!(watch.check(&mut state, Duration::from_secs(1), true), None);
            }
        }
    }
}
