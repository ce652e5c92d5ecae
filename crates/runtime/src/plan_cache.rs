//! Plans by what they feed, fetch and run; the least recently used goes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::executable::Executable;

/// One kind of step, ready to run.
pub(crate) struct CachedPlan {
    pub(crate) key: PlanKey,
    pub(crate) parts: Vec<Arc<Executable>>,
    last_used: AtomicU64,
}

impl CachedPlan {
    pub(crate) fn new(key: PlanKey, parts: Vec<Arc<Executable>>) -> Arc<CachedPlan> {
        Arc::new(CachedPlan { key, parts, last_used: AtomicU64::new(0) })
    }
}

/// Names of a step's feeds, fetches and targets, in the caller's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanKey {
    pub(crate) feeds: Vec<String>,
    pub(crate) fetches: Vec<String>,
    pub(crate) targets: Vec<String>,
}

/// A key that borrows its names, so that looking up allocates nothing.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) feeds: &'a dyn Names,
    pub(crate) fetches: &'a [&'a str],
    pub(crate) targets: &'a [&'a str],
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

impl Names for &[&str] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn get(&self, i: usize) -> &str {
        self[i]
    }
}

impl KeyRef<'_> {
    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        for i in 0..self.feeds.len() {
            self.feeds.get(i).hash(&mut hasher);
        }
        (self.fetches, self.targets).hash(&mut hasher);
        hasher.finish()
    }

    fn is(&self, key: &PlanKey) -> bool {
        key.feeds.len() == self.feeds.len()
            && key.feeds.iter().enumerate().all(|(i, name)| name == self.feeds.get(i))
            && key.fetches == self.fetches
            && key.targets == self.targets
    }

    pub(crate) fn to_owned(self) -> PlanKey {
        let owned = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
        PlanKey {
            feeds: (0..self.feeds.len()).map(|i| self.feeds.get(i).to_owned()).collect(),
            fetches: owned(self.fetches),
            targets: owned(self.targets),
        }
    }
}

/// A bounded set of plans.
pub(crate) struct PlanCache {
    capacity: usize,
    clock: AtomicU64,
    plans: RwLock<FxHashMap<u64, SmallVec<[Arc<CachedPlan>; 1]>>>,
}

impl PlanCache {
    pub(crate) fn new(capacity: usize) -> Self {
        PlanCache { capacity: capacity.max(1), clock: AtomicU64::new(0), plans: RwLock::default() }
    }

    pub(crate) fn find(&self, key: KeyRef<'_>) -> Option<Arc<CachedPlan>> {
        let plans = self.plans.read();
        let found = plans.get(&key.hash())?.iter().find(|p| key.is(&p.key))?;
        found.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(found.clone())
    }

    /// Keeps `plan`, unless another thread was faster; then that one is returned.
    pub(crate) fn insert(&self, key: KeyRef<'_>, plan: Arc<CachedPlan>) -> Arc<CachedPlan> {
        let mut plans = self.plans.write();
        if plans.values().map(SmallVec::len).sum::<usize>() >= self.capacity {
            evict_oldest(&mut plans);
        }
        let bucket = plans.entry(key.hash()).or_default();
        if let Some(known) = bucket.iter().find(|p| key.is(&p.key)) {
            return known.clone();
        }
        plan.last_used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        bucket.push(plan.clone());
        plan
    }

    pub(crate) fn clear(&self) {
        self.plans.write().clear();
    }
}

fn evict_oldest(plans: &mut FxHashMap<u64, SmallVec<[Arc<CachedPlan>; 1]>>) {
    let used = |p: &Arc<CachedPlan>| p.last_used.load(Ordering::Relaxed);
    let oldest = plans
        .iter()
        .filter_map(|(hash, bucket)| Some((bucket.iter().map(used).min()?, *hash)))
        .min();
    if let Some((age, hash)) = oldest
        && let Some(bucket) = plans.get_mut(&hash)
    {
        bucket.retain(|p| used(p) != age);
        if bucket.is_empty() {
            plans.remove(&hash);
        }
    }
}
