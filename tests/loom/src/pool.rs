//! The pool: threads that sleep and are woken, and the blocks of a parallel loop.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::shared_cell::SharedCell;

#[path = "../../../crates/runtime/src/pool/blocks.rs"]
mod blocks;
#[path = "../../../crates/runtime/src/pool/sleepers.rs"]
mod sleepers;

use blocks::Blocks;
use sleepers::Sleepers;

/// A queue of jobs that promises nothing about the order of other memory.
#[derive(Default)]
struct Jobs(AtomicUsize);

impl Jobs {
    fn push(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn pop(&self) -> bool {
        let less = |n: usize| n.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Each of `jobs` jobs, pushed by a thread of its own, is found by one of `threads` threads, which
/// look for work and sleep as the pool's do; then the pool closes and they end.
pub fn sleep_model(threads: usize, jobs: usize) {
    let shared = Arc::new((Sleepers::new(), Jobs::default(), AtomicBool::new(false)));
    let done = Arc::new(AtomicUsize::new(0));
    let run = |_| {
        let (shared, done) = (shared.clone(), done.clone());
        thread::spawn(move || {
            let (sleepers, queue, is_closing) = &*shared;
            while !is_closing.load(Ordering::Relaxed) {
                if queue.pop() {
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == jobs {
                        is_closing.store(true, Ordering::SeqCst);
                        sleepers.wake_all();
                    }
                } else {
                    sleepers.sleep(|| !queue.is_empty() || is_closing.load(Ordering::SeqCst));
                }
            }
        })
    };
    let pool: Vec<_> = (0..threads).map(run).collect();
    let push = |shared: &(Sleepers, Jobs, AtomicBool)| {
        shared.1.push();
        shared.0.wake_one();
    };
    let others = (1..jobs).map(|_| {
        let shared = shared.clone();
        thread::spawn(move || push(&shared))
    });
    let others: Vec<_> = others.collect();
    push(&shared);
    others.into_iter().chain(pool).for_each(|thread| thread.join().unwrap());
    assert_eq!(done.load(Ordering::Relaxed), jobs);
}

/// A loop whose owner is gone after `wait`: every block has run once, its writes are seen, and no
/// helper touches the owner's data later.
pub fn blocks_model(helpers: usize, blocks: usize) {
    struct Loop {
        blocks: Blocks,
        /// Stands for the loop's body, which lives as long as the owner waits.
        body: SharedCell<bool>,
        results: Vec<SharedCell<usize>>,
    }
    let shared = Arc::new(Loop {
        blocks: Blocks::new(blocks),
        body: SharedCell::new(true),
        results: (0..blocks).map(|_| SharedCell::new(0)).collect(),
    });
    fn work(shared: &Loop) {
        while let Some(block) = shared.blocks.claim() {
            shared.body.read(|body| assert!(*body, "the owner is gone"));
            shared.results[block].write(|result| *result += 1);
            shared.blocks.finish();
        }
    }
    let help = |_| {
        let shared = shared.clone();
        thread::spawn(move || work(&shared))
    };
    let threads: Vec<_> = (0..helpers).map(help).collect();
    work(&shared);
    shared.blocks.wait();
    shared.body.write(|body| *body = false);
    for result in &shared.results {
        result.read(|result| assert_eq!(*result, 1));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
