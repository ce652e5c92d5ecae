//! Memory limits: a task's budget, its sessions' budgets, and the charges against them.
//!
//! A [`Budget`] without a parent has a limit. A budget with a parent has none of its own: it reserves
//! bytes of its parent, a chunk at a time, and hands them out. Both ways a charge is one atomic
//! subtraction as long as enough is reserved.
//!
//! What is guaranteed: the bytes that all budgets of a tree have handed out and not got back never
//! exceed the limit. A request is refused only after every budget of the tree has returned the
//! reserved bytes that it does not use, so a request that fits is granted, unless other threads
//! reserve a chunk of [`Budget::chunk_bytes`] each at that very moment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::{Result, bail};

/// The most that a budget reserves of its parent ahead of need.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// A limit on the bytes that the tensors and objects of a task may hold together, or a session's
/// share of it.
#[derive(Debug)]
pub struct Budget {
    /// The limit of the tree's root.
    limit_bytes: usize,
    /// Bytes that can be charged without asking the parent.
    available_bytes: AtomicUsize,
    /// Bytes reserved of the parent, those that are charged included; the limit where there is no
    /// parent.
    reserved_bytes: AtomicUsize,
    /// Reserved bytes that never return to the parent before the budget itself is dropped.
    kept_bytes: usize,
    /// With more than this available, the budget returns bytes to its parent.
    idle_bytes_max: usize,
    parent: Option<Arc<Budget>>,
    /// Budgets that reserve bytes of this one.
    children: Mutex<Vec<Weak<Budget>>>,
}

impl Budget {
    /// A budget of `limit_bytes`, without a parent.
    pub fn new(limit_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget {
            limit_bytes,
            available_bytes: AtomicUsize::new(limit_bytes),
            reserved_bytes: AtomicUsize::new(limit_bytes),
            kept_bytes: 0,
            idle_bytes_max: usize::MAX,
            parent: None,
            children: Mutex::default(),
        })
    }

    /// A budget that hands out bytes of `parent`, all of which return to the parent when the last
    /// charge is dropped.
    pub fn child(parent: &Arc<Budget>) -> Arc<Budget> {
        Self::child_of(parent, 0)
    }

    /// A child that reserves `kept_bytes` of `parent` for its whole life (or nothing, if the parent
    /// has no such bytes left), so that so many can be charged however full the parent is.
    pub fn child_with_reserve(parent: &Arc<Budget>, kept_bytes: usize) -> Arc<Budget> {
        let kept_bytes = if parent.take(kept_bytes).is_ok() { kept_bytes } else { 0 };
        Self::child_of(parent, kept_bytes)
    }

    fn child_of(parent: &Arc<Budget>, kept_bytes: usize) -> Arc<Budget> {
        let child = Arc::new(Budget {
            limit_bytes: parent.limit_bytes,
            available_bytes: AtomicUsize::new(kept_bytes),
            reserved_bytes: AtomicUsize::new(kept_bytes),
            kept_bytes,
            idle_bytes_max: kept_bytes + 2 * CHUNK_BYTES_MAX,
            parent: Some(parent.clone()),
            children: Mutex::default(),
        });
        let mut children = parent.children.lock();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child));
        child
    }

    /// The limit of the whole tree.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes charged now to this budget and its children. While other threads charge or return bytes,
    /// the sum may be off by what they change.
    pub fn used_bytes(&self) -> usize {
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        reserved.saturating_sub(self.idle_bytes())
    }

    /// Bytes that are available here or in a child.
    fn idle_bytes(&self) -> usize {
        let children = self.children.lock();
        let idle = children.iter().filter_map(Weak::upgrade).map(|child| child.idle_bytes());
        idle.sum::<usize>().saturating_add(self.available_bytes.load(Ordering::Relaxed))
    }

    /// Bytes that could be charged now, not counting what other children of the parent have reserved
    /// without using it.
    pub fn left_bytes(&self) -> usize {
        let above = self.parent.as_ref().map_or(0, |parent| parent.left_bytes());
        self.available_bytes.load(Ordering::Relaxed).saturating_add(above)
    }

    /// Charges `bytes`, or fails with `ResourceExhausted` and charges nothing.
    #[inline]
    pub fn take(&self, bytes: usize) -> Result<()> {
        if self.take_available(bytes) { Ok(()) } else { self.take_from_parent(bytes) }
    }

    /// Fails with `ResourceExhausted` if `bytes` could not be charged now; charges nothing.
    pub fn check(&self, bytes: usize) -> Result<()> {
        self.take(bytes)?;
        self.give_back(bytes);
        Ok(())
    }

    /// Returns bytes that [`Budget::take`] charged.
    #[inline]
    pub fn give_back(&self, bytes: usize) {
        let before = self.available_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.idle_bytes_max {
            self.return_idle(self.kept_bytes + self.chunk_bytes());
        }
    }

    /// Moves a charge of `bytes` from one budget to another. From a child to its parent, which has
    /// handed out the bytes already, this cannot fail.
    pub(crate) fn transfer(from: &Arc<Budget>, to: &Arc<Budget>, bytes: usize) -> Result<()> {
        if Arc::ptr_eq(from, to) {
            return Ok(());
        }
        if from.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, to)) {
            from.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Ok(());
        }
        to.take(bytes)?;
        from.give_back(bytes);
        Ok(())
    }

    /// Charges `bytes` of what is available. Nothing but the numbers is shared between threads, so
    /// relaxed operations suffice.
    #[inline]
    fn take_available(&self, bytes: usize) -> bool {
        self.available_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| {
                available.checked_sub(bytes)
            })
            .is_ok()
    }

    /// Bytes that the budget reserves of its parent ahead of need: a small part of a small limit.
    fn chunk_bytes(&self) -> usize {
        (self.limit_bytes / 64).min(CHUNK_BYTES_MAX)
    }

    #[cold]
    fn take_from_parent(&self, bytes: usize) -> Result<()> {
        let Some(parent) = &self.parent else {
            self.reclaim();
            return if self.take_available(bytes) { Ok(()) } else { self.refuse(bytes) };
        };
        if bytes > self.limit_bytes {
            return self.refuse(bytes);
        }
        let ahead = self.chunk_bytes();
        if parent.take_available(bytes.saturating_add(ahead)) {
            self.reserved_bytes.fetch_add(bytes + ahead, Ordering::Relaxed);
            self.available_bytes.fetch_add(ahead, Ordering::Relaxed);
            return Ok(());
        }
        // Close to the limit: all that is available here, and exactly the rest of the parent's.
        let own = self.available_bytes.swap(0, Ordering::Relaxed);
        let missing = bytes.saturating_sub(own);
        if parent.take(missing).is_err() {
            self.available_bytes.fetch_add(own, Ordering::Relaxed);
            return self.refuse(bytes);
        }
        self.reserved_bytes.fetch_add(missing, Ordering::Relaxed);
        self.give_back((own + missing) - bytes);
        Ok(())
    }

    /// Returns what is available beyond `idle_bytes` to the parent.
    #[cold]
    fn return_idle(&self, idle_bytes: usize) {
        let Some(parent) = &self.parent else { return };
        let before =
            self.available_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| {
                (available > idle_bytes).then_some(idle_bytes)
            });
        if let Ok(before) = before {
            let returned = before - idle_bytes;
            self.reserved_bytes.fetch_sub(returned, Ordering::Relaxed);
            parent.give_back(returned);
        }
    }

    /// Has the children return what they have reserved and do not use.
    fn reclaim(&self) {
        let children = self.children.lock().clone();
        for child in children.iter().filter_map(Weak::upgrade) {
            child.reclaim();
            child.return_idle(child.kept_bytes);
        }
    }

    fn root(&self) -> &Budget {
        self.parent.as_ref().map_or(self, |parent| parent.root())
    }

    #[cold]
    fn refuse(&self, bytes: usize) -> Result<()> {
        bail!(
            ResourceExhausted,
            "out of memory: {bytes} bytes asked for, {} of {} in use",
            self.root().used_bytes(),
            self.limit_bytes
        )
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            parent.give_back(*self.reserved_bytes.get_mut());
        }
    }
}

/// Bytes charged to a budget for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Charges `bytes` to `budget`.
    pub fn new(budget: &Arc<Budget>, bytes: usize) -> Result<Charge> {
        budget.take(bytes)?;
        Ok(Charge { budget: budget.clone(), bytes })
    }

    /// A charge of no bytes, to be grown.
    pub fn empty(budget: &Arc<Budget>) -> Charge {
        Charge { budget: budget.clone(), bytes: 0 }
    }

    /// The budget that is charged.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// How many bytes are charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` more, or fails and leaves the charge as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Up to `bytes` of this charge as a charge of their own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { budget: self.budget.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::Code;

    #[track_caller]
    fn assert_refused(result: Result<()>) {
        assert_eq!(result.unwrap_err().code(), Code::ResourceExhausted);
    }

    #[test]
    fn a_refused_charge_takes_nothing() {
        let budget = Budget::new(100);
        let first = Charge::new(&budget, 60).unwrap();
        for bytes in [60, usize::MAX] {
            let e = Charge::new(&budget, bytes).unwrap_err();
            assert_eq!(e.code(), Code::ResourceExhausted);
        }
        assert_refused(budget.check(41));
        budget.check(40).unwrap();
        assert_eq!((budget.used_bytes(), budget.left_bytes()), (60, 40));
        let mut first = first;
        let part = first.split(20);
        drop(first.split(100));
        assert_eq!(budget.used_bytes(), 20);
        drop((first, part));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn children_share_the_limit_to_the_last_byte() {
        let task = Budget::new(64 << 20);
        let (a, b) = (Budget::child(&task), Budget::child(&task));
        let first = Charge::new(&a, 40 << 20).unwrap();
        assert_eq!(Charge::new(&b, 40 << 20).unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!((a.used_bytes(), b.used_bytes()), (40 << 20, 0));
        // What `a` has reserved ahead of need is `b`'s as soon as nothing else is left.
        let second = Charge::new(&b, 24 << 20).unwrap();
        for budget in [&a, &b, &task] {
            assert_refused(budget.take(1));
        }
        drop(first);
        assert_eq!(a.used_bytes(), 0);
        b.check(40 << 20).unwrap();
        drop((second, a, b));
        assert_eq!(task.used_bytes(), 0);
    }

    #[test]
    fn a_reserve_counts_towards_a_large_charge() {
        let task = Budget::new(64 << 20);
        let incoming = Budget::child_with_reserve(&task, 1 << 20);
        let all = incoming.left_bytes();
        assert_eq!(all, 64 << 20);
        let charge = Charge::new(&incoming, all).unwrap();
        assert_refused(incoming.take(1));
        assert_refused(task.take(1));
        drop(charge);
        assert_eq!(task.used_bytes(), 0);
        task.check(63 << 20).unwrap();
        assert_refused(task.check(64 << 20));
    }

    #[test]
    fn a_child_returns_everything_after_its_last_charge() {
        let task = Budget::new(1 << 20);
        let session = Budget::child(&task);
        let held = Charge::new(&session, 1000).unwrap();
        drop(session);
        assert!(task.used_bytes() >= 1000);
        drop(held);
        assert_eq!(task.used_bytes(), 0);
    }

    #[test]
    fn reserved_bytes_stay_available_in_a_full_parent() {
        let task = Budget::new(1 << 20);
        let messages = Budget::child_with_reserve(&task, 1000);
        let session = Budget::child(&task);
        let all = Charge::new(&session, (1 << 20) - 1000).unwrap();
        assert_refused(session.take(1));
        let message = Charge::new(&messages, 1000).unwrap();
        assert_refused(messages.take(1));
        drop((message, all));
        session.check((1 << 20) - 1000).unwrap();
        drop((messages, session));
        assert_eq!(task.used_bytes(), 0);
    }

    #[test]
    fn threads_never_exceed_the_limit_together() {
        let limit = 1 << 20;
        let task = Budget::new(limit);
        let (held, exceeded) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|threads| {
            for seed in 1..5u64 {
                let (session, held, exceeded) = (Budget::child(&task), &held, &exceeded);
                threads.spawn(move || {
                    let (mut random, mut charges) = (seed, Vec::new());
                    for _ in 0..20_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let bytes = (random >> 46) as usize;
                        if random >> 33 & 1 == 0 && !charges.is_empty() {
                            let freed: Charge = charges.swap_remove(bytes % charges.len());
                            held.fetch_sub(freed.bytes(), Ordering::SeqCst);
                        } else if let Ok(charge) = Charge::new(&session, bytes) {
                            let total = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                            exceeded.fetch_or(total > limit, Ordering::SeqCst);
                            charges.push(charge);
                        }
                    }
                    let left: usize = charges.iter().map(Charge::bytes).sum();
                    held.fetch_sub(left, Ordering::SeqCst);
                });
            }
        });
        assert!(!exceeded.load(Ordering::SeqCst));
        assert_eq!(task.used_bytes(), 0);
    }
}
