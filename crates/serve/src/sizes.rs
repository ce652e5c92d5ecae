//! Plans of a method for specific input shapes, beside the plan for any shapes.
//!
//! Frequent shapes get a plan of their own, made on a thread of low priority while requests use the
//! general plan. Callers choose the shapes, so the number of counted shapes, the number of plans
//! and the time spent on planning are all bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_kernel::Clock;
use thalweg_runtime::{Callable, RunMetadata, RunOptions};
use thalweg_tensor::{Budget, Code, Result, Shape, Tensor};

use crate::idle_priority;

/// The number of calls with the same shapes after which they get a plan.
const CALLS: u32 = 8;
/// The period in calls after which counts are halved.
const PERIOD: u32 = 1024;
/// The maximum number of plans that a method keeps for specific shapes; more if there are more
/// allowed batch sizes.
const PLANS_MAX: usize = 8;
/// The maximum number of batch sizes that are planned in advance.
const PREPARED_MAX: usize = 32;
/// The maximum number of plans for specific shapes of all methods of a version.
const VERSION_PLANS_MAX: usize = 64;
/// The maximum number of shapes without a plan that are counted.
const COUNTED_MAX: usize = 32;
/// After planning, no plan is made for this multiple of the time that planning took, within these
/// bounds.
const REST_FACTOR: u32 = 20;
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(30);

/// Runs a method by the plan that fits the shapes of its feeds best.
pub(crate) struct Sizes {
    general: Callable,
    plan_limiter: Arc<PlanLimiter>,
    /// Whether plans for specific shapes are not smaller than the general one.
    is_useless: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    special: Vec<SizedPlan>,
    counted: Vec<Counted>,
    /// The number of calls in this period.
    calls: u32,
    /// The number of batch sizes that were planned in advance.
    prepared: usize,
}

/// A plan for specific shapes.
struct SizedPlan {
    callable: Callable,
    calls: u32,
}

/// Shapes that have no plan.
struct Counted {
    shapes: Vec<Shape>,
    calls: u32,
}

/// Limits the planning of a version: one plan at a time, with pauses in between.
pub(crate) struct PlanLimiter {
    clock: Arc<dyn Clock>,
    state: Mutex<PlanningState>,
}

#[derive(Default)]
struct PlanningState {
    is_busy: bool,
    rests_until: Duration,
    plans: usize,
}

impl PlanLimiter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<PlanLimiter> {
        Arc::new(PlanLimiter { clock, state: Mutex::default() })
    }

    /// The number of plans for specific shapes that the version keeps.
    pub(crate) fn plans(&self) -> usize {
        self.state.lock().plans
    }

    /// The permission to make a plan, if one may be made now.
    fn permit(self: &Arc<Self>) -> Option<PlanPermit> {
        let begin = self.clock.monotonic();
        let mut work = self.state.lock();
        if work.is_busy || begin < work.rests_until {
            return None;
        }
        work.is_busy = true;
        Some(PlanPermit { plan_limiter: self.clone(), begin })
    }

    /// Reserves a slot for another plan.
    fn reserve_slot(&self) -> bool {
        let mut work = self.state.lock();
        let has_room = work.plans < VERSION_PLANS_MAX;
        work.plans += usize::from(has_room);
        has_room
    }

    fn release_slots(&self, plans: usize) {
        self.state.lock().plans -= plans;
    }
}

/// The permission to make one plan; a pause follows.
struct PlanPermit {
    plan_limiter: Arc<PlanLimiter>,
    begin: Duration,
}

impl PlanPermit {
    /// Marks the begin of the planning thread.
    fn begins(&mut self) {
        self.begin = self.plan_limiter.clock.monotonic();
    }
}

impl Drop for PlanPermit {
    fn drop(&mut self) {
        let now = self.plan_limiter.clock.monotonic();
        let took = now.saturating_sub(self.begin);
        let mut work = self.plan_limiter.state.lock();
        work.is_busy = false;
        work.rests_until = now + (took.saturating_mul(REST_FACTOR)).clamp(REST_MIN, REST_MAX);
    }
}

impl Sizes {
    /// Runs `general`, which takes any shapes, or plans derived from it.
    pub(crate) fn new(general: Callable, plan_limiter: Arc<PlanLimiter>) -> Arc<Sizes> {
        let (is_useless, state) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Sizes { general, plan_limiter, is_useless, state })
    }

    /// The memory budget of the session.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.general.budget()
    }

    /// Makes the feeds and runs the step, both on the pool; see [`Callable::start_with`].
    pub(crate) fn start_with(
        self: &Arc<Self>,
        options: RunOptions,
        feeds: impl FnOnce() -> Result<Vec<Tensor>> + Send + 'static,
        done: impl FnOnce(Result<(Vec<Tensor>, RunMetadata)>) + Send + 'static,
    ) {
        let this = self.clone();
        let choose = move || {
            let feeds = feeds()?;
            Ok((this.choose(&feeds), feeds))
        };
        self.general.start_with(options, choose, done);
    }

    /// The plan for these feeds. Frequent shapes get a plan later.
    fn choose(self: &Arc<Self>, feeds: &[Tensor]) -> Callable {
        if self.is_useless.load(Ordering::Relaxed) {
            return self.general.clone();
        }
        let mut state = self.state.lock();
        state.count_call();
        if let Some(special) = state.special.iter_mut().find(|s| s.callable.is_for(feeds)) {
            special.calls = special.calls.saturating_add(1);
            return special.callable.clone();
        }
        let wanted = state.count(feeds).filter(|&i| state.is_worth_a_plan(i));
        let permit = wanted.and_then(|i| Some((i, self.plan_limiter.permit()?)));
        if let Some((i, mut permit)) = permit {
            let shapes = state.counted.swap_remove(i).shapes;
            drop(state);
            let this = Arc::downgrade(self);
            // Without a planning thread the general plan is used.
            let _ = idle_priority::start(move || {
                permit.begins();
                if let Some(this) = this.upgrade() {
                    this.make_plan(&shapes);
                }
                drop(permit);
            });
        }
        self.general.clone()
    }

    /// Makes a plan for these shapes and keeps it if it is smaller than the general one.
    fn make_plan(&self, shapes: &[Shape]) {
        match self.general.for_shapes(shapes) {
            Ok(callable) if callable.size() < self.general.size() => self.keep_plan(callable),
            Ok(_) => self.is_useless.store(true, Ordering::Relaxed),
            Err(e) if e.code() == Code::Unimplemented => {
                self.is_useless.store(true, Ordering::Relaxed);
            }
            // An error concerns these shapes only; the callers' steps report it.
            Err(_) => {}
        }
    }

    /// Adds a plan; the least used one is dropped if there are too many.
    fn keep_plan(&self, callable: Callable) {
        let mut state = self.state.lock();
        let has_room = state.special.len() < state.plans_max() && self.plan_limiter.reserve_slot();
        let given_up = if has_room { None } else { state.least_used() };
        // Rare: other methods may have taken all slots meanwhile; the plan is dropped then.
        if has_room || given_up.is_some() {
            state.special.push(SizedPlan { callable, calls: CALLS });
        }
        drop(state);
        // Dropping a plan takes long, so not under the lock.
        drop(given_up);
    }

    /// Plans for batches of these sizes, with rows shaped like those of earlier calls.
    pub(crate) fn prepare(&self, sizes: &[usize]) {
        let rows: Vec<Vec<Shape>> = {
            let mut state = self.state.lock();
            state.prepared = sizes.len().min(PREPARED_MAX);
            state.counted.iter().map(|counted| counted.shapes.clone()).collect()
        };
        let mut wanted: Vec<Vec<Shape>> = Vec::new();
        for shapes in rows.iter().flat_map(|rows| sizes.iter().filter_map(|&n| resized(rows, n))) {
            if !wanted.contains(&shapes) && wanted.len() < PREPARED_MAX {
                wanted.push(shapes);
            }
        }
        for shapes in wanted {
            if !self.is_useless.load(Ordering::Relaxed) {
                self.make_plan(&shapes);
            }
        }
        let State { special, counted, .. } = &mut *self.state.lock();
        let has_plan = |c: &Counted| special.iter().any(|s| s.callable.shapes() == c.shapes);
        counted.retain(|c| !has_plan(c));
    }

    /// The number of plans besides the general one.
    #[cfg(test)]
    fn plans(&self) -> usize {
        self.state.lock().special.len()
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        self.plan_limiter.release_slots(self.state.get_mut().special.len());
    }
}

impl State {
    fn plans_max(&self) -> usize {
        PLANS_MAX.max(self.prepared)
    }

    /// Counts a call, and halves the counts after each period.
    fn count_call(&mut self) {
        self.calls += 1;
        if self.calls < PERIOD {
            return;
        }
        self.calls = 0;
        self.special.iter_mut().for_each(|s| s.calls /= 2);
        self.counted.iter_mut().for_each(|c| c.calls /= 2);
        self.counted.retain(|c| c.calls > 0);
    }

    /// Counts a call with shapes that have no plan, by the Misra-Gries algorithm: a new shape never
    /// replaces a more frequent one; if there is no free counter, all counts are decremented, so
    /// every shape with at least a thirtieth of the calls is found.
    fn count(&mut self, feeds: &[Tensor]) -> Option<usize> {
        let is_same = |c: &Counted| {
            c.shapes.len() == feeds.len()
                && c.shapes.iter().zip(feeds).all(|(shape, feed)| shape == feed.shape())
        };
        if let Some(i) = self.counted.iter().position(is_same) {
            self.counted[i].calls = self.counted[i].calls.saturating_add(1);
            return Some(i);
        }
        if self.counted.len() >= COUNTED_MAX {
            self.counted.iter_mut().for_each(|c| c.calls -= 1);
            self.counted.retain(|c| c.calls > 0);
            return None;
        }
        let shapes = feeds.iter().map(|feed| feed.shape().clone()).collect();
        self.counted.push(Counted { shapes, calls: 1 });
        None
    }

    /// Whether shapes are frequent, and more frequent than those of a plan that would be dropped.
    fn is_worth_a_plan(&self, i: usize) -> bool {
        let calls = self.counted[i].calls;
        let is_full = self.special.len() >= self.plans_max();
        calls >= CALLS && (!is_full || self.special.iter().any(|s| s.calls < calls))
    }

    fn least_used(&mut self) -> Option<SizedPlan> {
        let least = (0..self.special.len()).min_by_key(|&i| self.special[i].calls)?;
        Some(self.special.swap_remove(least))
    }
}

/// The shapes with another number of rows.
fn resized(shapes: &[Shape], rows: usize) -> Option<Vec<Shape>> {
    let one = |shape: &Shape| {
        let mut dims = shape.to_vec();
        *dims.first_mut()? = rows;
        Shape::new(&dims).ok()
    };
    shapes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use thalweg_graph::Scope;
    use thalweg_ops::{FAMILIES, kernel_registry, op_registry};
    use thalweg_runtime::{Session, SessionOptions};
    use thalweg_tensor::{DType, PartialShape};
    use tokio::sync::oneshot;

    use super::*;

    /// `x` reshaped to one row, whose size constant folding can use; or `-x`, which known shapes do not improve.
    fn sizes(fetch: &str) -> (Arc<Sizes>, Session) {
        let mut s = Scope::new(op_registry(FAMILIES).unwrap());
        let shape = PartialShape::new([None, None]);
        let x = s.op("Placeholder").name("x").attr("dtype", DType::Float).attr("shape", &shape);
        let x = x.build().unwrap();
        s.op("Neg").name("negated").input(x).build().unwrap();
        let size = s.op("Size").input(x).build().unwrap();
        let one = s.constant(&Tensor::scalar(1i32)).unwrap();
        let target = s.op("Pack").inputs(&[one, size]).build().unwrap();
        s.op("Reshape").name("row").inputs(&[x, target]).build().unwrap();
        let options = SessionOptions::default();
        let plan_limiter = PlanLimiter::new(options.environment.clock.clone());
        let session = Session::new(s.to_graph(), kernel_registry(FAMILIES), options).unwrap();
        let general = session.make_callable(&["x"], &[fetch], &[]).unwrap();
        (Sizes::new(general, plan_limiter), session)
    }

    fn ones(rows: usize, width: usize) -> Tensor {
        let shape = Shape::new(&[rows, width]).unwrap();
        Tensor::from_slice(shape, &vec![1.0f32; rows * width]).unwrap()
    }

    async fn call(sizes: &Arc<Sizes>, feed: Tensor) -> Result<Vec<Tensor>> {
        let (sender, receiver) = oneshot::channel();
        sizes.start_with(
            RunOptions::default(),
            move || Ok(vec![feed]),
            move |result| {
                let _ = sender.send(result.map(|(tensors, _)| tensors));
            },
        );
        receiver.await.unwrap()
    }

    /// Calls until the method has this many plans.
    async fn until(sizes: &Arc<Sizes>, plans: usize, feed: impl Fn() -> Tensor) {
        for _ in 0..60_000 {
            let elements = feed().num_elements();
            let row = call(sizes, feed()).await.unwrap().remove(0);
            assert_eq!(row.shape().dims(), [1, elements]);
            if sizes.plans() >= plans {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} plans after a minute", sizes.plans());
    }

    #[tokio::test]
    async fn frequent_shapes_get_a_plan() {
        let (sizes, _session) = sizes("row");
        for _ in 0..CALLS - 1 {
            call(&sizes, ones(2, 3)).await.unwrap();
        }
        assert_eq!(sizes.state.lock().counted[0].calls, CALLS - 1);
        until(&sizes, 1, || ones(2, 3)).await;
        assert!(sizes.choose(&[ones(2, 3)]).size() < sizes.general.size());
        // Other shapes use the general plan.
        assert_eq!(sizes.choose(&[ones(3, 2)]).size(), sizes.general.size());
        until(&sizes, 2, || ones(3, 2)).await;
        let plan_limiter = sizes.plan_limiter.clone();
        assert_eq!(plan_limiter.plans(), 2);
        drop(sizes);
        // The last step may still hold the plan.
        for _ in 0..1000 {
            if plan_limiter.plans() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the dropped plans keep their slots");
    }

    #[tokio::test]
    async fn a_plan_that_is_not_smaller_is_dropped() {
        let (sizes, _session) = sizes("negated");
        for _ in 0..60_000 {
            call(&sizes, ones(2, 3)).await.unwrap();
            if sizes.is_useless.load(Ordering::Relaxed) {
                assert_eq!(sizes.plans(), 0);
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the plan was not dropped within a minute");
    }

    #[test]
    fn rare_shapes_do_not_displace_frequent_ones() {
        let mut state = State::default();
        let mut common = 0;
        for i in 0..100_000 {
            state.count_call();
            state.count(&[ones(1 + i, 0)]);
            assert!(state.counted.len() <= COUNTED_MAX);
            if i % 8 == 0 {
                let found = state.count(&[ones(0, 7)]);
                common += usize::from(found.is_some_and(|i| state.is_worth_a_plan(i)));
            }
        }
        assert!(common > 1000, "{common}");
        let worth = (0..state.counted.len()).filter(|&i| state.is_worth_a_plan(i)).count();
        assert!(worth <= 1, "{worth}");
    }

    #[test]
    fn the_limiter_permits_one_plan_at_a_time_with_pauses() {
        let (sizes, _session) = sizes("row");
        let plan_limiter = &sizes.plan_limiter;
        let permit = plan_limiter.permit().expect("it is idle");
        assert!(plan_limiter.permit().is_none(), "it is busy");
        drop(permit);
        assert!(plan_limiter.permit().is_none(), "it rests");
        assert!(plan_limiter.state.lock().rests_until >= REST_MIN);
        for _ in 0..VERSION_PLANS_MAX {
            assert!(plan_limiter.reserve_slot());
        }
        assert!(!plan_limiter.reserve_slot());
        // Without a free slot a plan replaces one of its own method, or is dropped.
        sizes.make_plan(&[Shape::new(&[2, 2]).unwrap()]);
        assert_eq!(sizes.plans(), 0);
        plan_limiter.release_slots(VERSION_PLANS_MAX);
    }

    #[test]
    fn the_least_used_plan_is_dropped() {
        let (sizes, _session) = sizes("row");
        for rows in 1..=PLANS_MAX {
            sizes.make_plan(&[Shape::new(&[rows, 2]).unwrap()]);
        }
        for rows in (1..=PLANS_MAX).filter(|&rows| rows != 3) {
            sizes.choose(&[ones(rows, 2)]);
        }
        sizes.make_plan(&[Shape::new(&[40, 2]).unwrap()]);
        assert_eq!(sizes.plans(), PLANS_MAX);
        let general = sizes.general.size();
        assert_eq!(sizes.choose(&[ones(3, 2)]).size(), general);
        assert!(sizes.choose(&[ones(40, 2)]).size() < general);
        assert_eq!(sizes.plan_limiter.plans(), PLANS_MAX);
    }

    #[test]
    fn allowed_batch_sizes_are_planned_in_advance() {
        let (sizes, _session) = sizes("row");
        sizes.choose(&[ones(16, 5)]);
        let allowed: Vec<usize> = (1..=12).collect();
        sizes.prepare(&allowed);
        assert_eq!(sizes.plans(), 12, "more than without");
        for rows in allowed {
            assert!(sizes.choose(&[ones(rows, 5)]).size() < sizes.general.size(), "{rows}");
        }
    }
}
