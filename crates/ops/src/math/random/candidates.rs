//! Candidate sampling of classes (for sampled softmax and NCE losses), and expected counts.

use std::collections::HashSet;

use super::distributions::{unit_f32, unit_f64};
use super::philox::Samples;

/// 32-bit samples that an op reserves for each candidate.
pub(crate) const SAMPLES_PER_CANDIDATE: u64 = 2048;

/// Maximum number of draws while looking for distinct classes.
const TRIES_MAX: u32 = 1 << 24;

/// A distribution over the classes `0..range`.
#[derive(Clone, Debug)]
pub(crate) enum CandidateSampler {
    /// Every class once, in order.
    All {
        /// Number of classes.
        range: i64,
    },
    /// All classes with equal probability.
    Uniform {
        /// Number of classes.
        range: i64,
    },
    /// Class `k` with probability proportional to `ln((k + 2) / (k + 1))`.
    LogUniform {
        /// Number of classes.
        range: i64,
    },
    /// Probability proportional to one plus the number of times the class was seen (unigram).
    Learned(Counts),
    /// Probability proportional to given weights.
    Fixed(Weights),
}

/// Outputs of one run of a sampler.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    /// The classes drawn.
    pub(crate) classes: &'a mut [i64],
    /// Expected count of each sampled class (`sampled_expected_count`).
    pub(crate) expected: &'a mut [f32],
    /// Expected count of each true class (`true_expected_count`).
    pub(crate) true_expected: &'a mut [f32],
}

impl CandidateSampler {
    /// Number of classes.
    pub(crate) fn range(&self) -> i64 {
        match self {
            Self::All { range } | Self::Uniform { range } | Self::LogUniform { range } => *range,
            Self::Learned(counts) => counts.len() as i64,
            Self::Fixed(weights) => weights.weights.len() as i64,
        }
    }

    /// Draws `out.len()` classes, distinct if `unique`. Returns `None` if so many distinct classes
    /// were not found.
    pub(crate) fn draw(
        &self,
        samples: &mut Samples,
        unique: bool,
        true_classes: &[i64],
        out: Candidates<'_>,
    ) -> Option<()> {
        let Candidates { classes, expected, true_expected } = out;
        if let Self::All { .. } = self {
            (0..).zip(classes).for_each(|(class, place)| *place = class);
            expected.fill(1.0);
            true_expected.fill(1.0);
            return Some(());
        }
        let tries = self.draw_classes(samples, unique, classes)?;
        let expect = |class: i64| expected_count(self.probability(class), classes.len(), tries);
        expected.iter_mut().zip(&*classes).for_each(|(count, &class)| *count = expect(class));
        let pairs = true_expected.iter_mut().zip(true_classes);
        pairs.for_each(|(count, &class)| *count = expect(class));
        Some(())
    }

    /// Draws classes and returns the number of draws.
    fn draw_classes(
        &self,
        samples: &mut Samples,
        unique: bool,
        classes: &mut [i64],
    ) -> Option<u32> {
        if unique && classes.len() > self.drawable() {
            return None;
        }
        let mut seen = HashSet::new();
        if unique {
            seen.try_reserve(classes.len()).ok()?;
        }
        let mut tries = 0u32;
        for place in classes {
            loop {
                if unique && tries == TRIES_MAX {
                    return None;
                }
                tries = tries.saturating_add(1);
                let class = self.draw_one(samples)?;
                if !unique || seen.insert(class) {
                    *place = class;
                    break;
                }
            }
        }
        Some(tries)
    }

    /// Number of classes with a probability above zero.
    fn drawable(&self) -> usize {
        match self {
            Self::Fixed(weights) => weights.weights.iter().filter(|&&weight| weight != 0.0).count(),
            _ => usize::try_from(self.range()).unwrap_or(0),
        }
    }

    fn draw_one(&self, samples: &mut Samples) -> Option<i64> {
        match self {
            Self::All { .. } => None,
            Self::Uniform { range } => {
                let range = u64::try_from(*range).ok().filter(|&range| range > 0)?;
                Some(below_u64(samples, range) as i64)
            }
            Self::LogUniform { range } => {
                let upper = samples.next_u32();
                let uniform = unit_f64(upper, samples.next_u32());
                let class = (uniform * (*range as f64).ln_1p()).exp() as i64 - 1;
                class.checked_rem(*range)
            }
            Self::Learned(counts) => {
                let position = below_u32(samples, counts.total());
                Some(counts.class_at(position) as i64)
            }
            Self::Fixed(weights) => Some(weights.draw(samples) as i64),
        }
    }

    fn probability(&self, class: i64) -> f32 {
        match self {
            Self::All { .. } => 1.0,
            Self::Uniform { range } => (1.0 / *range as f64) as f32,
            Self::LogUniform { range } => {
                let class = class as f64;
                (((class + 2.0) / (class + 1.0)).ln() / (*range as f64).ln_1p()) as f32
            }
            Self::Learned(counts) => {
                let count = usize::try_from(class).map_or(0, |class| counts.get(class));
                count as f32 / counts.total() as f32
            }
            Self::Fixed(weights) => {
                let weight =
                    usize::try_from(class).ok().and_then(|class| weights.weights.get(class));
                weight.map_or(0.0, |weight| weight / weights.total)
            }
        }
    }
}

/// Expected number of occurrences of a class of the given probability among `count` candidates
/// found in `tries` draws.
fn expected_count(probability: f32, count: usize, tries: u32) -> f32 {
    if tries as usize == count {
        probability * count as f32
    } else {
        -(tries as f32 * (-probability).ln_1p()).exp_m1()
    }
}

/// A uniform integer below `bound`, by rejection of the samples that would bias the result.
pub(crate) fn below_u32(samples: &mut Samples, bound: u32) -> u32 {
    let dropped = u32::MAX.checked_rem(bound).map_or(0, |rest| rest.wrapping_add(1));
    loop {
        let sample = samples.next_u32();
        if bound.is_power_of_two() {
            return sample & (bound - 1);
        }
        // Fewer than half of all samples are rejected.
        if sample >= dropped {
            return sample.checked_rem(bound).unwrap_or(0);
        }
    }
}

/// As [`below_u32`], from 64-bit samples.
fn below_u64(samples: &mut Samples, bound: u64) -> u64 {
    let dropped = u64::MAX.checked_rem(bound).map_or(0, |rest| rest.wrapping_add(1));
    loop {
        let sample = samples.next_u64();
        if bound.is_power_of_two() {
            return sample & (bound - 1);
        }
        if sample >= dropped {
            return sample.checked_rem(bound).unwrap_or(0);
        }
    }
}

/// How often each class was seen, plus one, with prefix sums in a Fenwick tree.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    counts: Vec<u32>,
    tree: Vec<u32>,
    total: u32,
}

impl Counts {
    /// Bytes that the counts of one class take.
    pub(crate) const BYTES_PER_CLASS: usize = 2 * size_of::<u32>();

    /// Counts of one for every class; `None` if the allocation failed.
    pub(crate) fn new(range: u32) -> Option<Self> {
        let (mut counts, mut tree) = (Vec::new(), Vec::new());
        counts.try_reserve_exact(range as usize).ok()?;
        tree.try_reserve_exact(range as usize + 1).ok()?;
        counts.resize(range as usize, 1);
        // Node `i` (from 1) holds the sum of the `i & -i` counts up to and including the `i`-th.
        tree.extend((0..=range).map(|node| node & node.wrapping_neg()));
        Some(Self { counts, tree, total: range })
    }

    /// Counts occurrences of classes; stops when the total would overflow.
    pub(crate) fn update(&mut self, classes: &[i64]) {
        let room = (i32::MAX as u32).saturating_sub(self.total) as usize;
        for &class in classes.iter().take(room) {
            let Some(class) = usize::try_from(class).ok().filter(|&class| class < self.len())
            else {
                continue;
            };
            self.counts[class] += 1;
            self.total += 1;
            let mut node = class + 1;
            while node < self.tree.len() {
                self.tree[node] += 1;
                node += node & node.wrapping_neg();
            }
        }
    }

    fn len(&self) -> usize {
        self.counts.len()
    }

    fn total(&self) -> u32 {
        self.total
    }

    fn get(&self, class: usize) -> u32 {
        self.counts.get(class).copied().unwrap_or(0)
    }

    /// The class whose interval of cumulative counts contains `position`.
    fn class_at(&self, position: u32) -> usize {
        let mut left = position;
        let mut node = 0;
        let mut step = self.len().next_power_of_two();
        while step > 0 {
            if let Some(&sum) = self.tree.get(node + step)
                && sum <= left
            {
                node += step;
                left -= sum;
            }
            step /= 2;
        }
        node
    }
}

/// Given weights, with the table of Walker's alias method.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    weights: Vec<f32>,
    total: f32,
    /// For each class: the probability that its slot keeps, and its alias.
    slots: Vec<(f32, usize)>,
}

impl Weights {
    /// Weights of classes in order; reserved classes, which are never drawn, have weight zero.
    pub(crate) fn new(weights: Vec<f32>) -> Self {
        let total = weights.iter().sum();
        let slots = alias_slots(&weights);
        Self { weights, total, slots }
    }

    /// Weights from occurrences raised to the power `distortion`, after `reserved` unused classes.
    ///
    /// Only the classes `k` with `k % shards == shard` are kept.
    pub(crate) fn from_unigrams(
        unigrams: &[f32],
        distortion: f32,
        reserved: usize,
        [shards, shard]: [usize; 2],
    ) -> Self {
        let kept = |class: usize| class.checked_rem(shards) == Some(shard);
        let mut weights = vec![0.0; Self::reserved_kept(reserved, [shards, shard])];
        let first = weights.len();
        let numbered = (first..).zip(unigrams).filter(|&(class, _)| kept(class));
        weights.extend(numbered.map(|(_, unigram)| unigram.powf(distortion)));
        Self::new(weights)
    }

    /// Maximum bytes per class while the table is built.
    pub(crate) const BYTES_PER_CLASS: usize = 64;

    /// Number of the `reserved` classes that belong to this shard.
    pub(crate) fn reserved_kept(reserved: usize, [shards, shard]: [usize; 2]) -> usize {
        if shard < shards { reserved.saturating_sub(shard).div_ceil(shards) } else { 0 }
    }

    fn draw(&self, samples: &mut Samples) -> usize {
        let part = unit_f32(samples.next_u32());
        let slot = below_u32(samples, self.slots.len() as u32) as usize;
        match self.slots.get(slot) {
            Some(&(own, other)) if part >= own => other,
            _ => slot,
        }
    }
}

/// Builds the alias table: pairs slots above the average with slots below, last ones first.
fn alias_slots(weights: &[f32]) -> Vec<(f32, usize)> {
    let sum: f64 = weights.iter().copied().map(f64::from).sum();
    let count = weights.len() as f32;
    let mut shares: Vec<f64> =
        weights.iter().map(|weight| f64::from(weight * count) / sum).collect();
    let mut others: Vec<usize> = (0..weights.len()).collect();
    let (mut low, mut high): (Vec<usize>, Vec<usize>) =
        (0..weights.len()).partition(|&class| shares[class] < 1.0);
    while let (Some(&giver), Some(taker)) = (high.last(), low.last().copied()) {
        low.pop();
        others[taker] = giver;
        shares[giver] -= 1.0 - shares[taker];
        if shares[giver] < 1.0 {
            high.pop();
            low.push(giver);
        }
    }
    for class in low.into_iter().chain(high) {
        shares[class] = 1.0;
        others[class] = class;
    }
    shares.into_iter().zip(others).map(|(share, other)| (share as f32, other)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::philox::Philox;
    use super::super::philox::tests::fingerprint;
    use super::*;

    const COUNT: usize = 15;
    const TRUE_CLASSES: [i64; 4] = [0, 3, 7, 1];

    fn draw(
        sampler: &CandidateSampler,
        samples: &mut Samples,
        unique: bool,
        count: usize,
        true_classes: &[i64],
    ) -> Option<(Vec<i64>, Vec<f32>, Vec<f32>)> {
        let (mut classes, mut expected) = (vec![0; count], vec![0.0; count]);
        let mut true_expected = vec![0.0; true_classes.len()];
        let out = Candidates {
            classes: &mut classes,
            expected: &mut expected,
            true_expected: &mut true_expected,
        };
        sampler.draw(samples, unique, true_classes, out)?;
        Some((classes, expected, true_expected))
    }

    /// Fingerprint of the three outputs of a candidate sampler op, for each of several steps.
    fn run(mut sampler: CandidateSampler, unique: bool, steps: usize) -> u64 {
        let mut philox = Philox::from_seeds(7, -11);
        let mut bytes = Vec::new();
        for _ in 0..steps {
            let start = philox.reserve_samples(SAMPLES_PER_CANDIDATE * COUNT as u64);
            let mut samples = Samples::new(start);
            let (classes, expected, true_expected) =
                draw(&sampler, &mut samples, unique, COUNT, &TRUE_CLASSES).expect("enough");
            bytes.extend(classes.iter().flat_map(|class| class.to_le_bytes()));
            bytes.extend(true_expected.iter().flat_map(|count| count.to_le_bytes()));
            bytes.extend(expected.iter().flat_map(|count| count.to_le_bytes()));
            if let CandidateSampler::Learned(counts) = &mut sampler {
                counts.update(&TRUE_CLASSES);
            }
        }
        fingerprint(bytes)
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn candidates_are_tensorflow_s() {
        let range = 23;
        let uniform = CandidateSampler::Uniform { range };
        assert_eq!(run(uniform.clone(), true, 2), 0x0a5abc3c8cd65eb7);
        assert_eq!(run(uniform, false, 2), 0xe5fb87e4e4a2ae29);
        let log_uniform = CandidateSampler::LogUniform { range };
        assert_eq!(run(log_uniform.clone(), true, 2), 0xb0115ac99e133a0a);
        assert_eq!(run(log_uniform, false, 2), 0xf651c303e60db0b9);
        let learned = CandidateSampler::Learned(Counts::new(23).unwrap());
        assert_eq!(run(learned.clone(), true, 3), 0xb3d69c9c208fea89);
        assert_eq!(run(learned, false, 3), 0x1c386733aba959bf);
        let unigrams: Vec<f32> = (0..22).map(|class| (class % 5 + 1) as f32).collect();
        let fixed = CandidateSampler::Fixed(Weights::from_unigrams(&unigrams, 0.75, 1, [1, 0]));
        assert_eq!(fixed.range(), range);
        assert_eq!(run(fixed.clone(), true, 2), 0x8306cbc7bf2081fe);
        assert_eq!(run(fixed, false, 2), 0x4e243556c62f0ece);
    }

    #[test]
    fn impossible_draws_end() {
        let mut samples = Samples::new(Philox::from_seeds(1, 2));
        let mut two = |sampler: &CandidateSampler| draw(sampler, &mut samples, true, 2, &[]);
        assert_eq!(two(&CandidateSampler::Uniform { range: 1 }), None);
        assert_eq!(two(&CandidateSampler::Uniform { range: 0 }), None);
        assert_eq!(two(&CandidateSampler::LogUniform { range: 0 }), None);
        assert_eq!(two(&CandidateSampler::Learned(Counts::new(0).unwrap())), None);
        assert_eq!(two(&CandidateSampler::Fixed(Weights::new(vec![]))), None);
        assert_eq!(two(&CandidateSampler::Fixed(Weights::new(vec![1.0, 0.0]))), None);
        let all = draw(&CandidateSampler::All { range: 2 }, &mut samples, true, 2, &[1]);
        assert_eq!(all.map(|all| all.0), Some(vec![0, 1]));
        let odd = CandidateSampler::Fixed(Weights::new(vec![f32::NAN, -1.0]));
        assert!(draw(&odd, &mut samples, false, 9, &[5]).is_some());
    }
}
