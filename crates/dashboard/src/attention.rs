//! Background work that is done only while a client of the dashboard asks for its results.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::Clock;
use tokio::sync::{Notify, watch};

/// How long work goes on after the last request of a client.
const WATCHED_FOR: Duration = Duration::from_secs(15);

/// Clients on the one side, rounds of background work on the other. Moments are those of the monotonic clock.
pub(crate) struct Attention {
    clock: Arc<dyn Clock>,
    /// When a client asked last.
    asked: Mutex<Option<Duration>>,
    is_asked: Notify,
    /// When the last round ended.
    rounds: watch::Sender<Option<Duration>>,
}

impl Attention {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Attention {
        let rounds = watch::Sender::new(None);
        Attention { clock, asked: Mutex::default(), is_asked: Notify::new(), rounds }
    }

    /// A client asks: rounds begin, and one that ended no longer than `fresh_for` ago is waited for, at most
    /// for `limit`.
    pub(crate) async fn ask(&self, fresh_for: Duration, limit: Duration) {
        *self.asked.lock() = Some(self.clock.monotonic());
        self.is_asked.notify_one();
        let is_fresh = |at: &Option<Duration>| at.is_some_and(|at| self.since(at) < fresh_for);
        let mut rounds = self.rounds.subscribe();
        let _ = tokio::time::timeout(limit, rounds.wait_for(is_fresh)).await;
    }

    /// Does rounds of work, which begin `interval` apart, for ever while clients ask.
    pub(crate) async fn work<F: Future<Output = ()>>(
        &self,
        interval: Duration,
        round: impl Fn() -> F,
    ) {
        loop {
            let is_watched = self.asked.lock().is_some_and(|at| self.since(at) < WATCHED_FOR);
            if !is_watched {
                self.is_asked.notified().await;
                continue;
            }
            let begin = self.clock.monotonic();
            round().await;
            self.rounds.send_replace(Some(self.clock.monotonic()));
            tokio::time::sleep(interval.saturating_sub(self.since(begin))).await;
        }
    }

    fn since(&self, moment: Duration) -> Duration {
        self.clock.monotonic().saturating_sub(moment)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use thalweg_runtime::system_environment;

    use super::*;

    #[test]
    fn work_is_done_on_request_only() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (attention, rounds) = (
                Arc::new(Attention::new(system_environment().clock)),
                Arc::new(AtomicUsize::new(0)),
            );
            let (working, counter) = (attention.clone(), rounds.clone());
            let work = tokio::spawn(async move {
                let round = || async {
                    counter.fetch_add(1, Ordering::Relaxed);
                };
                working.work(Duration::from_millis(1), round).await;
            });
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(rounds.load(Ordering::Relaxed), 0);
            attention.ask(Duration::from_secs(5), Duration::from_secs(60)).await;
            assert!(rounds.load(Ordering::Relaxed) > 0);
            work.abort();
        });
    }
}
