//! The session's plans by feeds, fetches and targets: a bounded cache that evicts the least recently
//! used plan.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use thalweg_kernel::StepId;
use thalweg_plan::Choice;
use thalweg_tensor::{Result, Shape, Tensor, ensure};

use crate::execute::StepState;
use crate::execute::executable::Executable;
use crate::execute::recycler::Recycler;
use crate::session::learning::Learning;
use crate::session::remote_tasks::RemotePartitions;
use crate::session::report::Reports;

/// Most states of ended steps that a plan keeps, and most bytes of them together.
const IDLE_STATES_MAX: usize = 64;
const IDLE_BYTES_MAX: usize = 64 << 20;

/// A plan with its executables.
pub(crate) struct CachedPlan {
    pub(crate) key: PlanKey,
    /// Shapes that the feeds must have; empty if any shapes will do.
    pub(crate) shapes: Box<[Shape]>,
    /// One per partition of this task; the first has the client's feeds and fetches.
    pub(crate) executables: Vec<Arc<Executable>>,
    /// Partitions that other tasks run.
    pub(crate) remote: Option<Arc<dyn RemotePartitions>>,
    /// What its steps teach, if devices were chosen by the cost model.
    pub(crate) learning: Option<Arc<Learning>>,
    last_used: AtomicU64,
    /// States of steps that ended well. They own the executables, so these cannot own them.
    states: Recycler<Arc<StepState>>,
}

impl CachedPlan {
    pub(crate) fn new(
        key: PlanKey,
        shapes: &[Shape],
        executables: Vec<Arc<Executable>>,
        remote: Option<Arc<dyn RemotePartitions>>,
        learning: Option<Arc<Learning>>,
    ) -> Arc<CachedPlan> {
        let state_bytes: usize = executables.iter().map(|e| e.state_bytes()).sum();
        Arc::new(CachedPlan {
            key,
            shapes: shapes.into(),
            executables,
            remote,
            learning,
            last_used: AtomicU64::new(0),
            states: Recycler::new((IDLE_BYTES_MAX / state_bytes.max(1)).clamp(1, IDLE_STATES_MAX)),
        })
    }

    /// The plan that has replaced this one by what was learnt, or this one.
    pub(crate) fn newest(self: Arc<CachedPlan>) -> Arc<CachedPlan> {
        let newer = self.learning.as_ref().and_then(|learning| learning.newest());
        newer.unwrap_or(self)
    }

    /// Whether steps with these reports use the state of earlier steps: all of the plan is one
    /// partition of this task, and nodes are not timed.
    pub(crate) fn recycles(&self, reports: Reports) -> bool {
        self.executables.len() == 1 && self.remote.is_none() && !reports.times_nodes()
    }

    /// The state of an earlier step, reset for step `step_id`. A state that is still in use, by a job
    /// that the pool runs late for instance, is dropped.
    pub(crate) fn recycled_state(&self, step_id: StepId) -> Option<Arc<StepState>> {
        loop {
            let mut state = self.states.take()?;
            if Arc::get_mut(&mut state).and_then(|s| s.reset(step_id)).is_some() {
                return Some(state);
            }
        }
    }

    /// Whether a caller brings as many feeds as the plan has.
    pub(crate) fn check_count(&self, feeds: usize) -> Result<()> {
        let expected = self.key.feeds.len();
        ensure!(feeds == expected, InvalidArgument, "{expected} feeds expected, got {feeds}");
        Ok(())
    }

    /// Whether it is for feeds of these shapes.
    pub(crate) fn is_for(&self, feeds: &[Tensor]) -> bool {
        self.shapes.is_empty()
            || self.shapes.len() == feeds.len()
                && self.shapes.iter().zip(feeds).all(|(shape, feed)| feed.shape() == shape)
    }

    /// Keeps the state of a step that ended well for a later one.
    pub(crate) fn recycle(&self, state: Arc<StepState>) {
        self.states.put(state);
    }
}

/// Names of a step's feeds, fetches and targets, in the caller's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanKey {
    pub(crate) feeds: Vec<String>,
    pub(crate) fetches: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) is_partial: bool,
    /// How devices are chosen, if not as in the session's options.
    pub(crate) choice: Option<Choice>,
}

/// A key that borrows its names, so that looking up allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) feeds: &'a dyn Names,
    pub(crate) fetches: &'a [&'a str],
    pub(crate) targets: &'a [&'a str],
    /// Whether feeds and fetches pass through the rendezvous.
    pub(crate) is_partial: bool,
    /// How devices are chosen, if not as in the session's options.
    pub(crate) choice: Option<Choice>,
}

/// A list of names, however they are stored.
pub(crate) trait Names {
    fn len(&self) -> usize;
    fn get(&self, i: usize) -> &str;
}

impl<T> Names for &[(&str, T)] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn get(&self, i: usize) -> &str {
        self[i].0
    }
}

impl<T> Names for &[(String, T)] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn get(&self, i: usize) -> &str {
        &self[i].0
    }
}

impl Names for &[&str] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn get(&self, i: usize) -> &str {
        self[i]
    }
}

impl<'a> KeyRef<'a> {
    /// The key of a whole step, with devices chosen as in the session's options.
    pub(crate) fn new(
        feeds: &'a dyn Names,
        fetches: &'a [&'a str],
        targets: &'a [&'a str],
    ) -> KeyRef<'a> {
        KeyRef { feeds, fetches, targets, is_partial: false, choice: None }
    }

    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        for i in 0..self.feeds.len() {
            self.feeds.get(i).hash(&mut hasher);
        }
        (self.fetches, self.targets, self.is_partial, self.choice).hash(&mut hasher);
        hasher.finish()
    }

    fn matches(&self, key: &PlanKey) -> bool {
        key.feeds.len() == self.feeds.len()
            && key.feeds.iter().enumerate().all(|(i, name)| name == self.feeds.get(i))
            && key.fetches == self.fetches
            && key.targets == self.targets
            && key.is_partial == self.is_partial
            && key.choice == self.choice
    }

    pub(crate) fn to_owned(self) -> PlanKey {
        let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
        PlanKey {
            feeds: (0..self.feeds.len()).map(|i| self.feeds.get(i).to_owned()).collect(),
            fetches: owned(self.fetches),
            targets: owned(self.targets),
            is_partial: self.is_partial,
            choice: self.choice,
        }
    }
}

/// A bounded set of plans.
pub(crate) struct PlanCache {
    capacity: usize,
    clock: AtomicU64,
    plans: RwLock<Plans>,
}

/// By hash of the key; different keys may share one.
type Plans = FxHashMap<u64, SmallVec<[Arc<CachedPlan>; 1]>>;

impl PlanCache {
    pub(crate) fn new(capacity: usize) -> Self {
        PlanCache { capacity: capacity.max(1), clock: AtomicU64::new(0), plans: RwLock::default() }
    }

    pub(crate) fn find(&self, key: KeyRef<'_>) -> Option<Arc<CachedPlan>> {
        let plans = self.plans.read();
        let found = plans.get(&key.hash())?.iter().find(|p| key.matches(&p.key))?;
        found.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(found.clone())
    }

    /// Keeps `plan`, unless another thread was faster; then that one is returned.
    pub(crate) fn insert(&self, key: KeyRef<'_>, plan: Arc<CachedPlan>) -> Arc<CachedPlan> {
        let hash = key.hash();
        let mut plans = self.plans.write();
        let known = plans.get(&hash).and_then(|bucket| bucket.iter().find(|p| key.matches(&p.key)));
        if let Some(known) = known {
            return known.clone();
        }
        let evicted = (plans.values().map(SmallVec::len).sum::<usize>() >= self.capacity)
            .then(|| evict_oldest(&mut plans));
        plan.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        plans.entry(hash).or_default().push(plan.clone());
        // Dropping a plan frees kernels, constants and states: that is done without the lock.
        drop(plans);
        drop(evicted);
        plan
    }

    pub(crate) fn clear(&self) {
        let plans = std::mem::take(&mut *self.plans.write());
        drop(plans);
    }

    /// Number of plans.
    pub(crate) fn len(&self) -> usize {
        self.plans.read().values().map(SmallVec::len).sum()
    }
}

fn evict_oldest(plans: &mut Plans) -> Option<Arc<CachedPlan>> {
    let used = |p: &Arc<CachedPlan>| p.last_used.load(Ordering::Relaxed);
    let oldest =
        plans.iter().filter_map(|(hash, bucket)| Some((bucket.iter().map(used).min()?, *hash)));
    let (age, hash) = oldest.min()?;
    let bucket = plans.get_mut(&hash)?;
    let position = bucket.iter().position(|p| used(p) == age)?;
    let evicted = bucket.remove(position);
    if bucket.is_empty() {
        plans.remove(&hash);
    }
    Some(evicted)
}
