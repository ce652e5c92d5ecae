//! The chief of synchronous training: a thread that runs rounds beside worker 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use thalweg_kernel::Cancellation;
use thalweg_runtime::RunOptions;
use thalweg_tensor::{Code, Error, Result, err};

use crate::{ChiefOps, RunSteps};

/// The most consecutive rounds that may be aborted: an update that fails deterministically would
/// fail again.
const GIVEN_UP_MAX: u32 = 3;

/// A thread that runs the chief's ops, one round after the other, until it is stopped or a round
/// fails.
pub struct Chief {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

struct Shared {
    is_stopping: AtomicBool,
    rounds: AtomicU64,
    /// The error that ended the thread.
    failure: Mutex<Option<Error>>,
    /// Cancels a wait for gradients. An update of variables is never cancelled.
    cancellation: Cancellation,
}

impl Chief {
    /// Starts the chief: aborts the round in flight, then runs rounds.
    #[allow(clippy::disallowed_methods, reason = "the chief is a client, with a thread of its own")]
    pub fn start(
        session: Arc<impl RunSteps + Send + Sync + 'static>,
        ops: &ChiefOps,
    ) -> Result<Chief> {
        session.run_step(&[], &[], &[&ops.start])?;
        let shared = Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            failure: Mutex::default(),
            cancellation: Cancellation::default(),
        });
        let (of_thread, ops) = (shared.clone(), ops.clone());
        let thread = std::thread::Builder::new()
            .name("thalweg-chief".into())
            .spawn(move || of_thread.lead(&*session, &ops))
            .map_err(|e| err!(ResourceExhausted, "cannot start the chief's thread: {e}"))?;
        Ok(Chief { shared, thread: Some(thread) })
    }

    /// The number of rounds that the chief has completed.
    pub fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Whether the chief runs rounds: it was not stopped and no round has failed.
    pub fn is_leading(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The error of the round that ended the chief, if one failed.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure.lock().clone()
    }

    /// Stops the chief after the current round if that round has its gradients, and releases the
    /// workers that wait. Returns the error of a failed round.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.shared.cancellation.cancel(err!(Cancelled, "the chief stops"));
        thread.join().unwrap_or_else(|_| Err(err!(Internal, "the chief's thread has panicked")))
    }
}

impl Drop for Chief {
    fn drop(&mut self) {
        // `stop` returns the error; here it is dropped.
        let _ = self.end();
    }
}

impl Shared {
    fn lead(&self, session: &impl RunSteps, ops: &ChiefOps) -> Result<()> {
        let led = self.lead_rounds(session, ops);
        *self.failure.lock() = led.as_ref().err().cloned();
        // Workers must not wait for a chief that has ended.
        let released = session.run_step(&[], &[], &[&ops.release]);
        led.and(released.map(|_| ()))
    }

    fn lead_rounds(&self, session: &impl RunSteps, ops: &ChiefOps) -> Result<()> {
        let options =
            RunOptions { cancellation: Some(self.cancellation.clone()), ..Default::default() };
        let mut given_up = 0;
        while !self.is_stopping.load(Ordering::Relaxed) {
            match session.run_step_with(&options, &[], &[], &[&ops.wait]) {
                Ok(_) => {}
                Err(e)
                    if self.is_stopping.load(Ordering::Relaxed) && e.code() == Code::Cancelled =>
                {
                    break;
                }
                Err(e) => return Err(e),
            }
            match session.run_step(&[], &[], &[&ops.apply]) {
                Ok(_) => {
                    given_up = 0;
                    self.rounds.fetch_add(1, Ordering::Relaxed);
                }
                Err(e) if e.code() == Code::InvalidArgument && given_up < GIVEN_UP_MAX => {
                    given_up += 1;
                    session.run_step(&[], &[], &[&ops.start])?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
