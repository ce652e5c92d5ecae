//! Costs that steps measure for later plans: where devices are chosen by the cost model, some steps of a
//! plan are traced, what their nodes took is kept, and the plan is made anew with it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHasher;
use thalweg_graph::{Flag, Graph, WorkContext};
use thalweg_plan::{Choice, MeasuredCosts, NodeRun, Plan};

use crate::session::SessionCore;
use crate::session::callable::{SharedConstants, refs};
use crate::session::metadata::{NodeTiming, RunMetadata};
use crate::session::plan_cache::{CachedPlan, KeyRef, PlanKey};

/// Costs that sessions measure and plan by; they may be saved and loaded.
pub type SharedCosts = Arc<RwLock<MeasuredCosts>>;

/// The last step of a plan after which it is made anew.
const LAST_PLANNED_STEP: u64 = 1024;

/// What the steps of a plan teach; the plans that replace it share it.
pub(crate) struct Learning {
    steps: AtomicU64,
    /// The plan made with what was measured, if it places nodes elsewhere.
    newest: RwLock<Option<Arc<CachedPlan>>>,
    /// A number for where the newest plan places nodes.
    placement: AtomicU64,
}

impl Learning {
    /// For a plan with devices chosen so, if anything is to be learnt.
    pub(crate) fn of(choice: Choice, plan: &Plan) -> Option<Arc<Learning>> {
        (choice != Choice::Default).then(|| {
            Arc::new(Learning {
                steps: AtomicU64::new(0),
                newest: RwLock::default(),
                placement: AtomicU64::new(placement_number(plan)),
            })
        })
    }

    /// Counts a step; returns its number if it is to be traced: the second, the fifth, the 17th, ...
    /// The first pays for what is done once.
    pub(crate) fn begin_step(&self) -> Option<u64> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        (step.is_power_of_two() && step.trailing_zeros().is_multiple_of(2)).then_some(step)
    }

    pub(crate) fn newest(&self) -> Option<Arc<CachedPlan>> {
        self.newest.read().clone()
    }
}

/// A number that is equal for plans that place the same nodes on the same devices.
fn placement_number(plan: &Plan) -> u64 {
    let mut hasher = FxHasher::default();
    for partition in &plan.partitions {
        partition.device.hash(&mut hasher);
        partition.graph.nodes().iter().for_each(|node| node.name.hash(&mut hasher));
    }
    hasher.finish()
}

impl SessionCore {
    /// Keeps what the nodes of traced step number `step` took, and plans anew with it.
    pub(crate) fn learn(&self, plan: &Arc<CachedPlan>, step: u64, metadata: &RunMetadata) {
        {
            let graph = self.graph.read();
            let mut costs = self.options.cost_model.measured.write();
            let runs = busy_runs(&metadata.nodes).into_iter();
            for run in runs.filter(|run| !may_wait(&graph, run.node)) {
                costs.record(&run);
            }
        }
        if step > LAST_PLANNED_STEP || self.all_devices().len() == 1 {
            return;
        }
        let (core, plan) = (self.this.clone(), plan.clone());
        self.pool.spawn(move || {
            if let Some(core) = core.upgrade() {
                core.replan(&plan);
            }
        });
    }

    /// Makes a plan anew; an error leaves the old one.
    fn replan(&self, plan: &CachedPlan) {
        let Some(learning) = &plan.learning else { return };
        let PlanKey { feeds, fetches, targets, is_partial, choice } = &plan.key;
        let (feeds, fetches, targets) = (refs(feeds), refs(fetches), refs(targets));
        let key = KeyRef {
            feeds: &&feeds[..],
            fetches: &fetches,
            targets: &targets,
            is_partial: *is_partial,
            choice: *choice,
        };
        let Ok(compiled) = self.compile(key, &[]) else { return };
        let number = placement_number(&compiled);
        if learning.placement.swap(number, Ordering::Relaxed) == number {
            return;
        }
        let constants = SharedConstants::default();
        let made = self.finish_plan(key, &[], (compiled, Some(learning.clone())), &constants);
        if let Ok(made) = made {
            *learning.newest.write() = Some(made);
        }
    }
}

/// Whether a node has state and computes nothing: a queue or an accumulator, say, whose time is that of
/// whom it waits for.
fn may_wait(graph: &Graph, name: &str) -> bool {
    let node = graph.find(name).map(|id| graph.node(id));
    node.is_some_and(|node| {
        node.op.has(Flag::Stateful) && WorkContext::new(graph, node).work().flops == 0.0
    })
}

/// What each node of a traced step kept its device busy for, in all iterations of a loop together. Where
/// several ran at once on a device, each instant is divided among them: in the cost model a device runs
/// one at a time.
fn busy_runs(nodes: &[NodeTiming]) -> Vec<NodeRun<'_>> {
    let mut by_device: BTreeMap<&str, Vec<&NodeTiming>> = BTreeMap::new();
    for node in nodes.iter().filter(|n| !matches!(&*n.op, "_Send" | "_Recv")) {
        by_device.entry(&node.device).or_default().push(node);
    }
    let mut runs: BTreeMap<(&str, &str), NodeRun<'_>> = BTreeMap::new();
    for (device, timings) in by_device {
        for (timing, seconds) in timings.iter().zip(shares(&timings)) {
            let outputs = || timing.outputs.iter().map(|o| (o.slot, o.shape.clone(), o.bytes));
            let run = runs.entry((device, &timing.node)).or_insert_with(|| NodeRun {
                node: &timing.node,
                device,
                seconds: 0.0,
                outputs: outputs().collect(),
            });
            run.seconds += seconds;
        }
    }
    runs.into_values().collect()
}

/// For each timing, its share of the time, in seconds.
fn shares(timings: &[&NodeTiming]) -> Vec<f64> {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * timings.len());
    // What took no time has no share. Its end would come before its start, as all ends of a time come
    // before the starts.
    for (i, timing) in timings.iter().enumerate().filter(|(_, t)| t.end_ns > t.start_ns) {
        events.push((timing.start_ns, true, i));
        events.push((timing.end_ns, false, i));
    }
    events.sort_unstable();
    let mut shares = vec![0.0; timings.len()];
    // What one that ran since the beginning would have got.
    let (mut got, mut running, mut last) = (0.0f64, 0usize, 0u64);
    let mut got_at_start = vec![0.0; timings.len()];
    for (at, is_start, i) in events {
        if running > 0 {
            got += (at - last) as f64 * 1e-9 / running as f64;
        }
        last = at;
        if is_start {
            got_at_start[i] = got;
            running += 1;
        } else {
            shares[i] = got - got_at_start[i];
            running -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(start_ns: u64, end_ns: u64) -> NodeTiming {
        NodeTiming { start_ns, end_ns, ..NodeTiming::default() }
    }

    #[test]
    fn time_is_divided_among_those_who_ran() {
        let second = 1_000_000_000;
        let all = [timing(0, 4 * second), timing(2 * second, 4 * second), timing(4, 4)];
        let found = shares(&all.iter().collect::<Vec<_>>());
        let rounded: Vec<f64> = found.iter().map(|s| (s * 1e6).round() / 1e6).collect();
        assert_eq!(rounded, [3.0, 1.0, 0.0]);
        let sum: f64 = found.iter().sum();
        assert!((sum - 4.0).abs() < 1e-6, "the device was busy for four seconds: {sum}");
    }

    #[test]
    fn what_takes_no_time_takes_none_of_others() {
        let all = [timing(5, 5), timing(10, 20)];
        let found = shares(&all.iter().collect::<Vec<_>>());
        assert!(found[0] == 0.0 && (found[1] - 10e-9).abs() < 1e-15, "{found:?}");
    }

    #[test]
    fn few_steps_are_traced() {
        let learning = Learning {
            steps: AtomicU64::new(0),
            newest: RwLock::default(),
            placement: AtomicU64::new(0),
        };
        let traced: Vec<u64> = (0..300).filter_map(|_| learning.begin_step()).collect();
        assert_eq!(traced, [1, 4, 16, 64, 256]);
    }
}
