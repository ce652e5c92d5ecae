//! Background work that is done only while a client of the dashboard asks for its results.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long work goes on after the last request of a client.
const WATCHED_FOR: Duration = Duration::from_secs(15);

/// Clients on the one side, rounds of background work on the other.
pub(crate) struct Attention {
    /// When a client asked last.
    asked: Mutex<Option<Instant>>,
    is_asked: Notify,
    /// When the last round ended.
    rounds: watch::Sender<Option<Instant>>,
}

impl Default for Attention {
    fn default() -> Self {
        Attention {
            asked: Mutex::default(),
            is_asked: Notify::new(),
            rounds: watch::Sender::new(None),
        }
    }
}

impl Attention {
    /// A client asks: rounds begin, and one that ended no longer than `fresh_for` ago is waited for, at most
    /// for `limit`.
    pub(crate) async fn ask(&self, fresh_for: Duration, limit: Duration) {
        *self.asked.lock() = Some(Instant::now());
        self.is_asked.notify_one();
        let is_fresh = |at: &Option<Instant>| at.is_some_and(|at| at.elapsed() < fresh_for);
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
            let is_watched = self.asked.lock().is_some_and(|asked| asked.elapsed() < WATCHED_FOR);
            if !is_watched {
                self.is_asked.notified().await;
                continue;
            }
            let next = Instant::now() + interval;
            round().await;
            self.rounds.send_replace(Some(Instant::now()));
            tokio::time::sleep_until(next).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn work_is_done_on_request_only() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (attention, rounds) =
                (Arc::new(Attention::default()), Arc::new(AtomicUsize::new(0)));
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
