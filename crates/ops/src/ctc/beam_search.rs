//! CTC beam search.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use thalweg_tensor::{Error, Result, ensure, err};

use super::log_add;

const NEVER: f64 = f64::NEG_INFINITY;
const NO_LABEL: u32 = u32::MAX;

/// Log probabilities of a prefix: of its paths that end in a blank, of those that end in its last
/// label, and of both together.
#[derive(Clone, Copy)]
struct Probability {
    total: f64,
    blank: f64,
    label: f64,
}

impl Probability {
    const NONE: Probability = Probability { total: NEVER, blank: NEVER, label: NEVER };
}

/// A prefix: a parent prefix and the label that follows it.
struct Prefix {
    parent: Option<u32>,
    label: u32,
    before: Probability,
    now: Probability,
}

/// A prefix in the beam; the heap returns the least likely first.
#[derive(Clone, Copy)]
struct Leaf {
    total: f64,
    prefix: u32,
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Leaf {}

impl PartialOrd for Leaf {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Leaf {
    fn cmp(&self, other: &Self) -> Ordering {
        other.total.total_cmp(&self.total).then(self.prefix.cmp(&other.prefix))
    }
}

/// A label sequence and its log probability.
pub(super) struct Labelling {
    pub(super) labels: Vec<u32>,
    pub(super) log_probability: f64,
}

pub(super) struct BeamSearch {
    width: usize,
    prefixes: Vec<Prefix>,
    children: FxHashMap<(u32, u32), u32>,
    leaves: BinaryHeap<Leaf>,
}

impl BeamSearch {
    /// A beam of `width` prefixes that contains only the empty one.
    pub(super) fn new(width: usize) -> BeamSearch {
        let certain = Probability { total: 0.0, blank: 0.0, label: NEVER };
        let root =
            Prefix { parent: None, label: NO_LABEL, before: Probability::NONE, now: certain };
        BeamSearch {
            width,
            prefixes: vec![root],
            children: FxHashMap::default(),
            leaves: BinaryHeap::from(vec![Leaf { total: 0.0, prefix: 0 }]),
        }
    }

    /// Processes the scores of all classes at the next time step; the last class is the blank.
    pub(super) fn step(&mut self, scores: &[f64]) -> Result<()> {
        let Some((&blank, labels)) = scores.split_last() else { return Ok(()) };
        let max = scores.iter().copied().fold(NEVER, f64::max);
        let offset = max + scores.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        let branches = self.sorted_leaves();
        self.leaves.clear();
        for &b in &branches {
            let prefix = &mut self.prefixes[b as usize];
            prefix.before = prefix.now;
        }
        for &b in &branches {
            self.stay(b, blank - offset, |label| labels[label as usize] - offset);
        }
        for &b in &branches {
            let before = self.prefixes[b as usize].before;
            if !self.is_candidate(before.total) {
                continue;
            }
            for (label, score) in (0..).zip(labels) {
                self.grow(b, label, score - offset)?;
            }
        }
        Ok(())
    }

    /// The prefixes in the beam, most likely first.
    fn sorted_leaves(&self) -> Vec<u32> {
        let mut leaves: Vec<Leaf> = self.leaves.iter().copied().collect();
        // `Leaf` is ordered so that the least likely is last.
        leaves.sort_unstable();
        leaves.into_iter().map(|leaf| leaf.prefix).collect()
    }

    /// Extends the paths of prefix `b` without adding a label: by a blank or its last label.
    fn stay(&mut self, b: u32, blank: f64, score: impl Fn(u32) -> f64) {
        let mut now = self.prefixes[b as usize].now;
        let Prefix { parent, label, before, .. } = self.prefixes[b as usize];
        if let Some(parent) = parent {
            let parent = &self.prefixes[parent as usize];
            if parent.now.total != NEVER {
                // A repeated label needs a blank between.
                let is_same = label == parent.label;
                let from = if is_same { parent.before.blank } else { parent.before.total };
                now.label = log_add(now.label, from);
            }
            now.label += score(label);
        }
        now.blank = before.total + blank;
        now.total = log_add(now.blank, now.label);
        self.prefixes[b as usize].now = now;
        self.leaves.push(Leaf { total: now.total, prefix: b });
    }

    /// Whether a prefix of this log probability enters the beam.
    fn is_candidate(&self, total: f64) -> bool {
        let bottom = self.leaves.peek().map_or(NEVER, |leaf| leaf.total);
        total > NEVER && (self.leaves.len() < self.width || total > bottom)
    }

    /// Adds the prefix `b` followed by `label` if it is likely enough.
    fn grow(&mut self, b: u32, label: u32, score: f64) -> Result<()> {
        let known = self.children.get(&(b, label)).copied();
        if known.is_some_and(|c| self.prefixes[c as usize].now.total != NEVER) {
            return Ok(());
        }
        let parent = &self.prefixes[b as usize];
        let from = if label == parent.label { parent.before.blank } else { parent.before.total };
        let total = score + from;
        if !self.is_candidate(total) {
            // A prefix that was evicted at this time step is not extended either.
            if let Some(child) = known {
                self.prefixes[child as usize].before = Probability::NONE;
            }
            return Ok(());
        }
        let now = Probability { total, blank: NEVER, label: total };
        let child = match known {
            Some(child) => child,
            None => self.add(b, label)?,
        };
        self.prefixes[child as usize].now = now;
        if self.leaves.len() == self.width
            && let Some(bottom) = self.leaves.pop()
        {
            self.prefixes[bottom.prefix as usize].now = Probability::NONE;
        }
        self.leaves.push(Leaf { total, prefix: child });
        Ok(())
    }

    fn add(&mut self, parent: u32, label: u32) -> Result<u32> {
        let full = || -> Error { err!(ResourceExhausted, "too many prefixes in a beam search") };
        let child = u32::try_from(self.prefixes.len()).map_err(|_| full())?;
        self.prefixes.try_reserve(1).map_err(|_| full())?;
        self.children.try_reserve(1).map_err(|_| full())?;
        let parent_id = parent;
        let none = Probability::NONE;
        self.prefixes.push(Prefix { parent: Some(parent_id), label, before: none, now: none });
        self.children.insert((parent, label), child);
        Ok(child)
    }

    /// The `count` most likely label sequences; repeated labels are merged if `merges`.
    pub(super) fn best(&self, count: usize, merges: bool) -> Result<Vec<Labelling>> {
        ensure!(
            count <= self.width,
            InvalidArgument,
            "requested more paths than the beam width: {count}, {}",
            self.width
        );
        ensure!(
            count <= self.leaves.len(),
            InvalidArgument,
            "Less leaves in the beam search than requested: {}, not {count}",
            self.leaves.len()
        );
        let best = self.sorted_leaves();
        let labelling = |&leaf: &u32| Labelling {
            labels: self.labels(leaf, merges),
            log_probability: self.prefixes[leaf as usize].now.total,
        };
        Ok(best[..count].iter().map(labelling).collect())
    }

    fn labels(&self, leaf: u32, merges: bool) -> Vec<u32> {
        let mut labels = Vec::new();
        let mut prefix = &self.prefixes[leaf as usize];
        let mut after = NO_LABEL;
        while let Some(parent) = prefix.parent {
            if !merges || prefix.label != after {
                labels.push(prefix.label);
            }
            after = prefix.label;
            prefix = &self.prefixes[parent as usize];
        }
        labels.reverse();
        labels
    }
}
