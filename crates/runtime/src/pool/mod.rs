//! The thread pool of the process: work-stealing deques, and parallel loops on top of them.
//!
//! A job waits in the injector, if a thread outside of the pool queued it or it is to run last, or in
//! the deque of the pool's thread that queued it. A thread takes jobs one at a time, so none waits in the
//! deque of a thread that only took it along. It prefers its own deque, newest job first, then the
//! injector, then the other deques. Jobs that queue further jobs may go on for ever, so one job in
//! [`OLDEST_EVERY`] is the oldest of the injector or of a deque instead, in rotation: every job runs
//! unless all threads are held by jobs that do not return. Steps without an end return to the pool when
//! [`Pool::is_asked`], wherever the job waits.

pub(crate) mod background;
pub(crate) mod blocking;
mod blocks;
pub(crate) mod on_pool;
mod sleepers;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_deque::{Injector, Stealer, Worker};
use parking_lot::Mutex;
use thalweg_kernel::Parallel;
use thalweg_tensor::FlushDenormals;

use blocks::Blocks;
use sleepers::Sleepers;

/// Rounds that an idle thread spins before it sleeps.
const SPINS: u32 = 200;
/// A thread takes one of this many jobs from where jobs wait longest.
const OLDEST_EVERY: u32 = 16;

/// Work that several threads of the pool can share. Helping when none is left has no effect.
pub(crate) trait Work: Send + Sync {
    /// Runs until no work is left.
    fn help(self: Arc<Self>);
}

type Job = Arc<dyn Work>;

/// A job that is done once.
struct Once<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send> Work for Once<F> {
    fn help(self: Arc<Self>) {
        let body = self.0.lock().take();
        if let Some(body) = body {
            body();
        }
    }
}

/// Threads that run kernels. One pool serves all sessions of the process.
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    injector: Injector<Job>,
    stealers: Vec<Stealer<Job>>,
    sleepers: Sleepers,
    is_closing: AtomicBool,
}

thread_local! {
    /// The deque of this thread, if it is one of a pool's.
    static LOCAL: Cell<*const (Worker<Job>, *const Shared)> = const { Cell::new(ptr::null()) };
}

static GLOBAL: OnceLock<Pool> = OnceLock::new();

impl Pool {
    /// The process's pool, with a thread per core unless [`Pool::start_global`] said otherwise.
    pub fn global() -> &'static Pool {
        GLOBAL.get_or_init(|| {
            Pool::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        })
    }

    /// Starts the process's pool with `threads` threads. False if the pool runs already.
    pub fn start_global(threads: usize) -> bool {
        GLOBAL.set(Pool::new(threads)).is_ok()
    }

    /// A pool of its own; its threads end when it is dropped.
    pub fn new(threads: usize) -> Pool {
        let workers: Vec<Worker<Job>> = (0..threads.max(1)).map(|_| Worker::new_lifo()).collect();
        let shared = Arc::new(Shared {
            injector: Injector::new(),
            stealers: workers.iter().map(Worker::stealer).collect(),
            sleepers: Sleepers::new(),
            is_closing: AtomicBool::new(false),
        });
        for (i, worker) in workers.into_iter().enumerate() {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(format!("thalweg-{i}"))
                .spawn(move || shared.run(worker, i))
                .expect("the system has room for the pool's threads");
        }
        Pool { shared }
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.shared.stealers.len()
    }

    /// Queues `body` for a thread of the pool. It must not block.
    pub fn spawn(&self, body: impl FnOnce() + Send + 'static) {
        self.push(Arc::new(Once(Mutex::new(Some(body)))));
    }

    /// As [`Pool::spawn`], behind all queued jobs.
    pub(crate) fn spawn_last(&self, body: impl FnOnce() + Send + 'static) {
        self.push_last(Arc::new(Once(Mutex::new(Some(body)))));
    }

    /// Queues `job`.
    pub(crate) fn push(&self, job: Job) {
        self.shared.push(job);
    }

    /// Queues `job` behind all queued jobs.
    pub(crate) fn push_last(&self, job: Job) {
        self.shared.injector.push(job);
        self.shared.sleepers.wake_one();
    }

    /// Whether this is a thread of the pool, and jobs are queued for any of its threads.
    pub(crate) fn is_asked(&self) -> bool {
        self.shared.local().is_some() && self.shared.has_jobs()
    }

    /// Calls `body(i)` for every `i < blocks` on this thread and up to `threads - 1` others.
    pub(crate) fn parallel(&self, threads: usize, blocks: usize, body: &(dyn Fn(usize) + Sync)) {
        let helpers = threads.min(blocks).min(self.threads() + 1).saturating_sub(1);
        if helpers == 0 {
            (0..blocks).for_each(body);
            return;
        }
        // SAFETY: the lifetime of `body` is erased, but no thread calls it after this function ends:
        // a helper calls it only for a block it has claimed, and this function returns, or unwinds,
        // only after every block has been finished (see `ParallelLoop`).
        let body = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync)>(
                body,
            )
        };
        let work = Arc::new(ParallelLoop {
            body,
            blocks: Blocks::new(blocks),
            has_panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        for _ in 0..helpers {
            self.push(work.clone());
        }
        work.run_blocks();
        work.blocks.wait();
        let panic = work.panic.lock().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.sleepers.wake_all();
    }
}

impl Shared {
    /// The deque of this thread, if it is one of this pool's.
    fn local(&self) -> Option<&Worker<Job>> {
        let local = LOCAL.get();
        if local.is_null() {
            return None;
        }
        // SAFETY: the pointer is set by `run` of this very thread to a value on its stack that
        // lives until the thread ends, and cleared before it goes; the reference does not leave the
        // thread, as deques are not `Sync`.
        let (worker, owner) = unsafe { &*local };
        ptr::eq(*owner, self).then_some(worker)
    }

    fn push(&self, job: Job) {
        match self.local() {
            Some(worker) => worker.push(job),
            None => self.injector.push(job),
        }
        self.sleepers.wake_one();
    }

    fn run(&self, worker: Worker<Job>, index: usize) {
        let _flush = FlushDenormals::enter();
        let local = (worker, ptr::from_ref(self));
        LOCAL.set(&raw const local);
        let mut taken = index as u32;
        while !self.is_closing.load(Ordering::Relaxed) {
            match self.find(&local.0, index, taken) {
                // Jobs catch what kernels throw. Should one of ours get through, the thread lives:
                // a pool that silently lost its threads would be worse than the bug.
                Some(job) => {
                    taken = taken.wrapping_add(1);
                    drop(catch_unwind(AssertUnwindSafe(|| job.help())));
                }
                None => self
                    .sleepers
                    .sleep(|| self.has_jobs() || self.is_closing.load(Ordering::SeqCst)),
            }
        }
        LOCAL.set(ptr::null());
    }

    /// A job for thread `index`, which has taken `taken` jobs before; `None` if it finds none for a while.
    fn find(&self, worker: &Worker<Job>, index: usize, taken: u32) -> Option<Job> {
        if taken.is_multiple_of(OLDEST_EVERY)
            && let Some(job) = self.take_oldest(taken / OLDEST_EVERY)
        {
            return Some(job);
        }
        for round in 0..SPINS {
            if let Some(job) = worker.pop() {
                return Some(job);
            }
            if let Some(job) = self.injector.steal().success() {
                return Some(job);
            }
            if let Some(job) = self.steal_oldest(index + 1, self.stealers.len() - 1) {
                return Some(job);
            }
            if round.is_multiple_of(16) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        None
    }

    /// The oldest job of the injector, or of a deque; `turn` says which is asked first.
    fn take_oldest(&self, turn: u32) -> Option<Job> {
        if turn.is_multiple_of(2) {
            return self.injector.steal().success();
        }
        self.steal_oldest(turn as usize / 2, self.stealers.len())
    }

    /// The oldest job of the first of `count` deques from `start` on, in a circle, that has one.
    fn steal_oldest(&self, start: usize, count: usize) -> Option<Job> {
        let deque = |i: usize| &self.stealers[i % self.stealers.len()];
        (start..start + count).find_map(|i| deque(i).steal().success())
    }

    fn has_jobs(&self) -> bool {
        !self.injector.is_empty() || self.stealers.iter().any(|s| !s.is_empty())
    }
}

/// A loop whose blocks are claimed one by one. While a claimed block runs, the owner, and with it
/// `body`, is there; a helper that comes late never touches `body` (see `blocks`).
struct ParallelLoop {
    body: *const (dyn Fn(usize) + Sync),
    blocks: Blocks,
    has_panicked: AtomicBool,
    /// What the first block that panicked threw.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `body` is `Sync`, and valid whenever it is called, as argued above.
unsafe impl Send for ParallelLoop {}
// SAFETY: as for `Send`; everything else is atomic or locked.
unsafe impl Sync for ParallelLoop {}

impl ParallelLoop {
    /// Claims blocks until none is left. Never unwinds: the owner must not go while others work.
    fn run_blocks(&self) {
        while let Some(block) = self.blocks.claim() {
            if !self.has_panicked.load(Ordering::Relaxed) {
                // SAFETY: the block was claimed and is not finished, so the owner still waits.
                let run = || unsafe { (*self.body)(block) };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    self.has_panicked.store(true, Ordering::Relaxed);
                    self.panic.lock().get_or_insert(panic);
                }
            }
            self.blocks.finish();
        }
    }
}

impl Work for ParallelLoop {
    fn help(self: Arc<Self>) {
        self.run_blocks();
    }
}

/// Intra-op parallelism of a session: up to `threads` threads of the pool share one kernel's loop.
pub(crate) struct Share {
    pub(crate) pool: &'static Pool,
    pub(crate) threads: usize,
}

impl Parallel for Share {
    fn run(&self, blocks: usize, body: &(dyn Fn(usize) + Sync)) {
        self.pool.parallel(self.threads, blocks, body);
    }

    fn threads(&self) -> usize {
        self.threads
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Barrier, mpsc};
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_block_runs_once() {
        let pool = Pool::new(3);
        for blocks in [0, 1, 2, 7, 1000] {
            let counts: Vec<AtomicUsize> = (0..blocks).map(|_| AtomicUsize::new(0)).collect();
            pool.parallel(4, blocks, &|i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{blocks}");
        }
    }

    #[test]
    fn loops_nest() {
        let pool = Pool::new(2);
        let count = AtomicUsize::new(0);
        pool.parallel(3, 8, &|_| {
            pool.parallel(3, 8, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(count.load(Ordering::Relaxed), 64);
    }

    /// An endless loop, which leaves its thread to queued jobs as loops of steps do, until `is_over`.
    fn take_turns(pool: &Arc<Pool>, is_over: &Arc<AtomicBool>) {
        while !is_over.load(Ordering::Relaxed) {
            if pool.is_asked() {
                let (next_pool, next_over) = (pool.clone(), is_over.clone());
                pool.spawn_last(move || take_turns(&next_pool, &next_over));
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Whether `is_over` becomes true in time; the pool's endless loops end in any case.
    fn ends(is_over: &AtomicBool) -> bool {
        // At least 20 seconds.
        for _ in 0..20_000 {
            if is_over.load(Ordering::Relaxed) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.swap(true, Ordering::Relaxed)
    }

    /// Occupies a thread of `pool` until the gate is dropped; returns once it does.
    fn occupy(pool: &Pool) -> mpsc::Sender<()> {
        let (gate, opened) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        pool.spawn(move || {
            begun.send(()).unwrap();
            opened.recv().unwrap_err();
        });
        begins.recv().unwrap();
        gate
    }

    #[test]
    fn a_job_queued_between_endless_loops_runs() {
        let (pool, is_over) = (Arc::new(Pool::new(2)), Arc::new(AtomicBool::new(false)));
        let gates = [occupy(&pool), occupy(&pool)];
        let both_run = Arc::new(Barrier::new(2));
        let begin_loop = || {
            let (pool, is_over, both_run) = (pool.clone(), is_over.clone(), both_run.clone());
            move || {
                both_run.wait();
                take_turns(&pool, &is_over);
            }
        };
        pool.spawn(begin_loop());
        let ending = is_over.clone();
        pool.spawn(move || ending.store(true, Ordering::Relaxed));
        pool.spawn(begin_loop());
        // A thread that took half of the queue at once would keep the job in its deque.
        drop(gates);
        assert!(ends(&is_over), "the job lies in the deque of a thread that loops");
    }

    #[test]
    fn a_job_that_an_endless_loop_queued_runs() {
        let (pool, is_over) = (Arc::new(Pool::new(1)), Arc::new(AtomicBool::new(false)));
        let (own_pool, own_over) = (pool.clone(), is_over.clone());
        pool.spawn(move || {
            let ending = own_over.clone();
            own_pool.spawn(move || ending.store(true, Ordering::Relaxed));
            take_turns(&own_pool, &own_over);
        });
        assert!(ends(&is_over), "the job lies in the deque of the thread that loops");
    }

    #[test]
    fn a_job_of_an_occupied_thread_runs_on_one_that_loops() {
        let (pool, is_over) = (Arc::new(Pool::new(2)), Arc::new(AtomicBool::new(false)));
        // One thread loops; the other queues the job to its own deque, and does not return.
        let (own_pool, own_over) = (pool.clone(), is_over.clone());
        pool.spawn(move || take_turns(&own_pool, &own_over));
        let (own_pool, ending) = (pool.clone(), is_over.clone());
        let (gate, opened) = mpsc::channel::<()>();
        pool.spawn(move || {
            own_pool.spawn(move || ending.store(true, Ordering::Relaxed));
            opened.recv().unwrap_err();
        });
        assert!(ends(&is_over), "the job lies in the deque of a thread that does not return");
        drop(gate);
    }

    #[test]
    fn jobs_that_queue_each_other_do_not_starve_others() {
        let (pool, is_over) = (Arc::new(Pool::new(1)), Arc::new(AtomicBool::new(false)));
        fn queue_next(pool: &Arc<Pool>, is_over: &Arc<AtomicBool>) {
            if !is_over.load(Ordering::Relaxed) {
                let (next_pool, next_over) = (pool.clone(), is_over.clone());
                pool.spawn(move || queue_next(&next_pool, &next_over));
            }
        }
        let gate = occupy(&pool);
        for _ in 0..2 {
            let (own_pool, own_over) = (pool.clone(), is_over.clone());
            pool.spawn(move || queue_next(&own_pool, &own_over));
        }
        let ending = is_over.clone();
        pool.spawn(move || ending.store(true, Ordering::Relaxed));
        drop(gate);
        assert!(ends(&is_over), "the thread takes jobs from its own deque alone");
    }

    #[test]
    fn a_panic_reaches_the_caller_and_leaves_the_pool_usable() {
        let pool = Pool::new(2);
        // Wherever the panic happens, on the owner's thread or a helper's, the owner stays until
        // no thread can touch the loop's body any more.
        for bad in 0..100 {
            let inside = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.parallel(3, 100, &|i| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(i != bad, "block {bad}");
                });
            }));
            assert_eq!(inside.load(Ordering::SeqCst), 0, "a block outlived its loop");
            let message = result.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*message, format!("block {bad}"));
        }
        let count = AtomicUsize::new(0);
        pool.parallel(3, 100, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
}
