//! Threads for jobs that wait for files, so that no thread of the pool has to.
//!
//! They are made as jobs come, up to a bound, and end when there has been nothing to do for a while.
//! Such jobs must not wait for each other: with all threads taken, a job waits until one is free.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Jobs at once. Most of them wait for a disk or a network, so this is no matter of cores.
const THREADS_MAX: usize = 16;
/// How long a thread without a job stays.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

struct Waiting {
    state: Mutex<State>,
    wake: Condvar,
}

static WAITING: LazyLock<Waiting> =
    LazyLock::new(|| Waiting { state: Mutex::default(), wake: Condvar::new() });

/// Runs `job` on a thread on which it may wait for files.
pub(crate) fn spawn(job: Job) {
    let mut state = WAITING.state.lock();
    state.jobs.push_back(job);
    if state.jobs.len() <= state.idle {
        WAITING.wake.notify_one();
        return;
    }
    if state.threads >= THREADS_MAX {
        return;
    }
    state.threads += 1;
    let number = state.threads;
    drop(state);
    let name = format!("thalweg-files-{number}");
    if std::thread::Builder::new().name(name).spawn(work).is_err() {
        let mut state = WAITING.state.lock();
        state.threads -= 1;
        // Somebody will come for the job, unless nobody is there: then it is done here.
        let left = if state.threads == 0 { state.jobs.pop_back() } else { None };
        drop(state);
        if let Some(job) = left {
            job();
        }
    }
}

/// Calls `work(i)` for every `i < count` on this thread and up to `threads - 1` others.
pub(crate) fn spread(threads: usize, count: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            work(i);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            let builder = std::thread::Builder::new().name("thalweg-files".into());
            // Without room for another thread those that are there do the work.
            if builder.spawn_scoped(scope, take).is_err() {
                break;
            }
        }
        take();
    });
}

/// What a thread does until it has been idle for long.
fn work() {
    let mut state = WAITING.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A bug in one job is that job's: whoever waits for it is told when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = WAITING.state.lock();
            continue;
        }
        state.idle += 1;
        let waited = WAITING.wake.wait_for(&mut state, IDLE);
        state.idle -= 1;
        if waited.timed_out() && state.jobs.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn all_of_a_spread_is_done() {
        for (threads, count) in [(1, 5), (4, 3), (3, 1000), (2, 0)] {
            let sum = AtomicUsize::new(0);
            spread(threads, count, &|i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), count * (count + 1) / 2);
        }
    }

    #[test]
    fn jobs_wait_beside_each_other_and_survive_a_panic() {
        let (done, results) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let told = done.clone();
        spawn(Box::new(move || {
            gate.recv().unwrap();
            told.send(0).unwrap();
        }));
        spawn(Box::new(|| panic!("a bug")));
        for i in 1..=40 {
            let done = done.clone();
            spawn(Box::new(move || done.send(i).unwrap()));
        }
        // All others are over while the first still waits.
        let others: Vec<i32> = (0..40).map(|_| results.recv().unwrap()).collect();
        assert!(!others.contains(&0));
        go.send(()).unwrap();
        assert_eq!(results.recv().unwrap(), 0);
        assert!(WAITING.state.lock().threads <= THREADS_MAX);
    }
}
