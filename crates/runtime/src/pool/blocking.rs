//! Threads for jobs that block on files, so that no thread of the pool does.
//!
//! A thread is started when a job finds none idle, up to [`THREADS_MAX`], and ends after [`IDLE`]
//! without a job. When all threads are busy a job is queued, so jobs must not wait for each other.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Most threads. Their jobs mostly wait for a disk or a network, so this does not depend on cores.
const THREADS_MAX: usize = 16;
/// How long a thread waits for a job before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

struct BlockingThreads {
    state: Mutex<State>,
    wake: Condvar,
}

static THREADS: LazyLock<BlockingThreads> =
    LazyLock::new(|| BlockingThreads { state: Mutex::default(), wake: Condvar::new() });

/// Queues `job` for a blocking thread.
pub(crate) fn spawn(job: Job) {
    let mut state = THREADS.state.lock();
    state.jobs.push_back(job);
    if state.jobs.len() <= state.idle {
        THREADS.wake.notify_one();
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
        let mut state = THREADS.state.lock();
        state.threads -= 1;
        // A running thread takes the job; if there is none, this thread runs it.
        let left = if state.threads == 0 { state.jobs.pop_back() } else { None };
        drop(state);
        if let Some(job) = left {
            job();
        }
    }
}

/// Calls `work(i)` for every `i < count` on this thread and up to `threads - 1` others.
pub(crate) fn for_each(threads: usize, count: usize, work: &(dyn Fn(usize) + Sync)) {
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
            // If the system refuses a thread, the others do the work.
            if builder.spawn_scoped(scope, take).is_err() {
                break;
            }
        }
        take();
    });
}

/// The loop of a blocking thread.
fn work() {
    let mut state = THREADS.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A panic must not end the thread; the job's waiter sees that its completion is dropped.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = THREADS.state.lock();
            continue;
        }
        state.idle += 1;
        let waited = THREADS.wake.wait_for(&mut state, IDLE);
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
    fn every_index_is_visited() {
        for (threads, count) in [(1, 5), (4, 3), (3, 1000), (2, 0)] {
            let sum = AtomicUsize::new(0);
            for_each(threads, count, &|i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), count * (count + 1) / 2);
        }
    }

    #[test]
    fn jobs_wait_beside_each_other_and_survive_a_panic() {
        let (done, results) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let first_done = done.clone();
        spawn(Box::new(move || {
            gate.recv().unwrap();
            first_done.send(0).unwrap();
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
        assert!(THREADS.state.lock().threads <= THREADS_MAX);
    }
}
