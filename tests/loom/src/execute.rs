//! The executor: offered nodes, the end of a step, the counts of nodes and readers, the rendezvous.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::sync::mpsc;
use loom::thread;

use crate::shared_cell::SharedCell;
use crate::{Error, Rendezvous, RendezvousKey, Value};

#[path = "../../../crates/runtime/src/execute/counts.rs"]
mod counts;
#[path = "../../../crates/runtime/src/execute/offers.rs"]
mod offers;
#[path = "../../../crates/runtime/src/execute/outstanding.rs"]
mod outstanding;
#[path = "../../../crates/runtime/src/execute/rendezvous.rs"]
mod rendezvous;

use counts::{
    ARRIVED, INPUTS_SHIFT, IterationCount, counted, has_read, is_last_reader, merge_control,
    merge_input,
};
use offers::Offers;
use outstanding::Outstanding;
use rendezvous::LocalRendezvous;

/// Models of the end of a step.
pub mod outstanding_model {
    use super::*;

    struct Step {
        outstanding: Outstanding,
        values: Vec<SharedCell<u32>>,
        offers: AtomicUsize,
    }

    impl Step {
        fn release(&self) {
            if self.outstanding.release() {
                self.outstanding.wake_waiter();
            }
        }
    }

    fn step(threads: usize) -> Arc<Step> {
        let values = (0..threads).map(|_| SharedCell::new(0)).collect();
        let outstanding = Outstanding::new();
        outstanding.add(threads + 1);
        Arc::new(Step { outstanding, values, offers: AtomicUsize::new(0) })
    }

    /// The caller sleeps until other threads have ended the step, and then has its values to itself.
    pub fn end(threads: usize) {
        let step = step(threads);
        let threads: Vec<_> = (0..threads)
            .map(|i| {
                let step = step.clone();
                thread::spawn(move || {
                    step.values[i].write(|value| *value = 1);
                    step.release();
                })
            })
            .collect();
        if !step.outstanding.release() {
            while !step.outstanding.wait(|| false) {}
        }
        for value in &step.values {
            value.write(|value| assert_eq!(*value, 1));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Other threads offer a node each, which only the caller can run: it wakes for each.
    pub fn offers(threads: usize) {
        let step = step(threads);
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let step = step.clone();
                thread::spawn(move || {
                    step.outstanding.add(1);
                    step.offers.fetch_add(1, Ordering::Relaxed);
                    step.outstanding.wake_waiter();
                    step.release();
                })
            })
            .collect();
        let mut is_over = step.outstanding.release();
        while !is_over {
            match step.offers.swap(0, Ordering::Relaxed) {
                0 => is_over = step.outstanding.wait(|| step.offers.load(Ordering::Relaxed) > 0),
                taken => is_over = (0..taken).fold(false, |_, _| step.outstanding.release()),
            }
        }
        assert_eq!(step.offers.load(Ordering::Relaxed), 0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Models of offered nodes: every node runs once, for all interleavings of the threads.
pub mod offers_model {
    use super::*;

    const LEFT_BEHIND: &str = "a node was left behind, or ran twice";

    /// What the channel to the pool's thread carries.
    enum Message {
        /// A job that was counted.
        Job,
        /// The sender queues no more.
        End,
    }

    struct Partition {
        offers: Offers<u32>,
        outstanding: Outstanding,
        threads_max: usize,
        running: AtomicUsize,
        run: AtomicUsize,
    }

    impl Partition {
        /// A partition of a step for which `outstanding` threads and nodes are counted.
        fn new(threads_max: usize, outstanding: usize) -> Arc<Partition> {
            let partition = Partition {
                offers: Offers::new(threads_max),
                outstanding: Outstanding::new(),
                threads_max,
                running: AtomicUsize::new(0),
                run: AtomicUsize::new(0),
            };
            partition.outstanding.add(outstanding);
            Arc::new(partition)
        }

        fn release(&self) {
            if self.outstanding.release() {
                self.outstanding.wake_waiter();
            }
        }

        /// As `StepState::assist`; after `turn` nodes the thread leaves, and `queue` queues a job.
        fn assist(&self, turn: usize, mut queue: impl FnMut()) {
            let mut nodes = 0;
            loop {
                while self.offers.pop().is_some() {
                    let running = self.running.fetch_add(1, Ordering::Relaxed);
                    assert!(running < self.threads_max, "too many threads are active");
                    self.run.fetch_add(1, Ordering::Relaxed);
                    self.running.fetch_sub(1, Ordering::Relaxed);
                    self.release();
                    nodes += 1;
                    if nodes == turn {
                        if self.offers.leave_for_job() {
                            queue();
                        }
                        return;
                    }
                }
                if !self.offers.leave() {
                    return;
                }
            }
        }

        /// The pool's thread: runs jobs until `senders` senders have ended.
        fn run_jobs(&self, messages: &mpsc::Receiver<Message>, senders: usize, turn: usize) {
            let (mut open, mut own) = (senders, 0);
            loop {
                if own > 0 {
                    own -= 1;
                } else if open == 0 {
                    return;
                } else if matches!(messages.recv().unwrap(), Message::End) {
                    open -= 1;
                    continue;
                }
                if self.offers.begin_job() {
                    self.assist(turn, || own += 1);
                }
            }
        }
    }

    /// An active thread leaves, after `turn` nodes or for lack of them, while an asynchronous kernel
    /// completes on another thread, which offers `nodes` nodes; a thread of the pool runs the jobs.
    /// No thread waits for the end of the step.
    pub fn leaving(threads_max: usize, nodes: u32, turn: usize) {
        let partition = Partition::new(threads_max, 1);
        let (sender, jobs) = mpsc::channel();
        let offer = |partition: &Partition, node, sender: &mpsc::Sender<Message>| {
            partition.outstanding.add(1);
            partition.offers.push(&[node]);
            if partition.offers.count_job() {
                sender.send(Message::Job).unwrap();
            }
        };
        let pool = {
            let partition = partition.clone();
            thread::spawn(move || partition.run_jobs(&jobs, 2, turn))
        };
        partition.offers.enter();
        offer(&partition, 0, &sender);
        let completion = {
            let (partition, sender) = (partition.clone(), sender.clone());
            thread::spawn(move || {
                (1..=nodes).for_each(|node| offer(&partition, node, &sender));
                sender.send(Message::End).unwrap();
            })
        };
        partition.assist(turn, || sender.send(Message::Job).unwrap());
        sender.send(Message::End).unwrap();
        [completion, pool].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(partition.run.load(Ordering::Relaxed), nodes as usize + 1, "{LEFT_BEHIND}");
        assert!(partition.offers.is_empty());
    }

    /// The caller waits for the end of the step and helps, as `execute::run` does, while an asynchronous
    /// kernel completes on another thread and offers `nodes` nodes; a thread of the pool runs the jobs.
    pub fn waiting(threads_max: usize, nodes: u32) {
        let partition = Partition::new(threads_max, 2);
        let (sender, jobs) = mpsc::channel();
        let pool = {
            let partition = partition.clone();
            thread::spawn(move || partition.run_jobs(&jobs, 1, usize::MAX))
        };
        let completion = {
            let partition = partition.clone();
            thread::spawn(move || {
                for node in 0..nodes {
                    partition.outstanding.add(1);
                    partition.offers.push(&[node]);
                    if !partition.outstanding.wake_waiter() && partition.offers.count_job() {
                        sender.send(Message::Job).unwrap();
                    }
                }
                partition.release();
                sender.send(Message::End).unwrap();
            })
        };
        partition.offers.enter();
        partition.offers.leave_to_wait();
        if !partition.outstanding.release() {
            loop {
                if partition.offers.try_enter() {
                    partition.assist(usize::MAX, || unreachable!());
                }
                if partition.outstanding.wait(|| partition.offers.is_wanting()) {
                    break;
                }
            }
        }
        assert_eq!(partition.run.load(Ordering::Relaxed), nodes as usize, "{LEFT_BEHIND}");
        [pool, completion].into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Models of the counts of nodes, readers and iterations.
pub mod counts_model {
    use super::*;

    /// Runs `edges` on a thread each; how many made the node ready, and whether it was dead then.
    fn play(edges: Vec<Box<dyn FnOnce() -> Option<bool> + Send>>) -> Vec<bool> {
        let threads: Vec<_> = edges.into_iter().map(thread::spawn).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    }

    /// An ordinary node: the last of its producers runs it, sees all inputs, and knows whether one
    /// is dead.
    pub fn node(inputs: usize, dead: &[usize]) {
        let count = Arc::new(AtomicU32::new(inputs as u32));
        let slots: Arc<Vec<_>> = Arc::new((0..inputs).map(|_| SharedCell::new(0)).collect());
        let edge = |i: usize| -> Box<dyn FnOnce() -> Option<bool> + Send> {
            let (count, slots, mut is_dead) = (count.clone(), slots.clone(), dead.contains(&i));
            Box::new(move || {
                slots[i].write(|slot| *slot = i + 1);
                if !counted(&count, &mut is_dead) {
                    return None;
                }
                for (i, slot) in slots.iter().enumerate() {
                    slot.write(|slot| assert_eq!(*slot, i + 1));
                }
                Some(is_dead)
            })
        };
        assert_eq!(play((0..inputs).map(edge).collect()), [!dead.is_empty()]);
    }

    /// A merge of `inputs`, all dead but `alive`, with control edges: it runs once.
    pub fn merge(inputs: u16, alive: Option<u16>, controls: u32) {
        let count = Arc::new(AtomicU32::new(u32::from(inputs) << INPUTS_SHIFT | controls));
        let slot = Arc::new(SharedCell::new(0));
        let input = |i: u16| -> Box<dyn FnOnce() -> Option<bool> + Send> {
            let (count, slot, mut is_dead) = (count.clone(), slot.clone(), alive != Some(i));
            Box::new(move || {
                if !is_dead {
                    slot.write(|slot| *slot = 1);
                }
                let is_ready = merge_input(&count, i, false, &mut is_dead);
                is_ready.then(|| seen(&count, &slot, is_dead))
            })
        };
        let control = |_: u32| -> Box<dyn FnOnce() -> Option<bool> + Send> {
            let (count, slot, mut is_dead) = (count.clone(), slot.clone(), false);
            Box::new(move || {
                let is_ready = merge_control(&count, &mut is_dead);
                is_ready.then(|| seen(&count, &slot, is_dead))
            })
        };
        /// The merge runs: an alive one reads its input.
        fn seen(count: &AtomicU32, slot: &SharedCell<u32>, is_dead: bool) -> bool {
            assert_ne!(count.load(Ordering::Relaxed) & ARRIVED, 0);
            if !is_dead {
                slot.write(|slot| assert_eq!(*slot, 1));
            }
            is_dead
        }
        let edges = (0..inputs).map(input).chain((0..controls).map(control));
        assert_eq!(play(edges.collect()), [alive.is_none()]);
    }

    /// Several nodes read one value; the last takes it, and no thread reads it afterwards.
    pub fn readers(readers: usize) {
        let left = Arc::new(AtomicU32::new(readers as u32));
        let slot = Arc::new(SharedCell::new(Some(7)));
        let threads: Vec<_> = (0..readers)
            .map(|_| {
                let (left, slot) = (left.clone(), slot.clone());
                thread::spawn(move || {
                    if is_last_reader(&left) {
                        return slot.write(|slot| (*slot).take());
                    }
                    let value = slot.read(|slot| *slot);
                    if has_read(&left) {
                        slot.write(|slot| *slot = None);
                    }
                    value
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Some(7));
        }
        slot.read(|slot| assert_eq!(*slot, None));
    }

    /// Nodes of an iteration end it, one of them; it can be used again then.
    pub fn iteration(nodes: usize) {
        let shared = Arc::new((IterationCount::default(), SharedCell::new(0)));
        shared.0.begin(1);
        let node = |_| {
            let shared = shared.clone();
            move || {
                let (count, uses) = &*shared;
                uses.read(|uses| assert_eq!(*uses, 0));
                if count.release() {
                    uses.write(|uses| *uses = 1);
                }
            }
        };
        // The first node makes the others ready and counts them before it is over.
        let rest: Vec<_> = (1..nodes).map(node).collect();
        shared.0.add(nodes - 1);
        let threads: Vec<_> = rest.into_iter().map(thread::spawn).collect();
        node(0)();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.1.read(|uses| assert_eq!(*uses, 1));
    }
}

/// Models of the rendezvous within a process.
pub mod rendezvous_model {
    use super::*;

    const KEY: RendezvousKey = RendezvousKey("x");

    /// A value is sent and asked for at the same time, and perhaps the step is aborted: who asked is
    /// answered once, and nothing is left.
    pub fn meeting(is_aborted: bool) {
        let table = Arc::new(LocalRendezvous::default());
        let answers = Arc::new(AtomicUsize::new(0));
        let sender = {
            let table = table.clone();
            thread::spawn(move || table.send(&KEY, Value::Tensor(7)))
        };
        let aborter = is_aborted.then(|| {
            let table = table.clone();
            thread::spawn(move || table.abort(&Error("over".into())))
        });
        let slot = Arc::new(SharedCell::new(None));
        let (count, target) = (answers.clone(), slot.clone());
        table.receive(
            &KEY,
            Box::new(move |result| {
                target.write(|target| *target = Some(result));
                count.fetch_add(1, Ordering::Release);
            }),
        );
        let sent = sender.join().unwrap();
        aborter.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(answers.load(Ordering::Acquire), 1, "one answer");
        let received = slot.write(|slot| (*slot).take());
        match (received, sent) {
            (Some(Ok(value)), Ok(())) => assert_eq!(value, Value::Tensor(7)),
            (Some(Err(e)), _) => assert!(is_aborted && e.0 == "over", "{e}"),
            other => panic!("{other:?}"),
        }
        assert!(table.is_empty());
    }
}
