//! Sharding of a data set: the samples of each shard in each epoch, and their order.

use thalweg_tensor::{Result, ensure};

/// A data set split into shards, each of which is used once per epoch.
///
/// Every epoch has its own permutation of the samples, the same for every worker, so a shard that
/// moves to another worker continues where it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards {
    samples: u64,
    per_shard: u64,
    seed: u64,
}

/// The maximum number of shards: the lease table is read and written as a whole.
const COUNT_MAX: u64 = 1 << 20;

impl Shards {
    /// `samples` samples in shards of `per_shard`; the last shard may have fewer.
    pub fn new(samples: usize, per_shard: usize, seed: u64) -> Result<Shards> {
        ensure!(samples > 0, InvalidArgument, "the data set is empty");
        ensure!(per_shard > 0, InvalidArgument, "a shard needs at least one sample");
        let shards = Shards { samples: samples as u64, per_shard: per_shard as u64, seed };
        ensure!(
            shards.count() as u64 <= COUNT_MAX,
            InvalidArgument,
            "{samples} samples in shards of {per_shard} are more than {COUNT_MAX} shards"
        );
        Ok(shards)
    }

    /// The number of shards.
    pub fn count(&self) -> usize {
        self.samples.div_ceil(self.per_shard) as usize
    }

    /// The number of samples in all.
    pub fn samples(&self) -> usize {
        self.samples as usize
    }

    /// The number of samples of a shard.
    pub fn size(&self, shard: usize) -> usize {
        let begin = (shard as u64).saturating_mul(self.per_shard);
        self.samples.saturating_sub(begin).min(self.per_shard) as usize
    }

    /// The next samples of a shard of which `used` have been used over all epochs: up to `count`,
    /// fewer where its epoch ends, none if there is no such shard.
    pub fn batch(&self, shard: usize, used: u64, count: usize) -> Vec<usize> {
        let size = self.size(shard) as u64;
        if size == 0 {
            return Vec::new();
        }
        let (epoch, offset) = (used / size, used % size);
        let begin = shard as u64 * self.per_shard + offset;
        let count = (count as u64).min(size - offset);
        (begin..begin + count).map(|place| self.at(epoch, place) as usize).collect()
    }

    /// The sample at a position of an epoch's permutation. The permutation is computed element by
    /// element (a Feistel network with cycle walking), so its memory does not grow with the number
    /// of samples.
    fn at(&self, epoch: u64, place: u64) -> u64 {
        // A Feistel network over a power of four; results that are not samples are encrypted again.
        let half = (u64::BITS - (self.samples - 1).leading_zeros()).div_ceil(2).max(1);
        let mask = (1u64 << half) - 1;
        let key = mix(self.seed ^ mix(epoch));
        let mut at = place;
        loop {
            let (mut left, mut right) = (at >> half, at & mask);
            for round in 0..4 {
                let next = left ^ (mix(key ^ right ^ (round << 56)) & mask);
                (left, right) = (right, next);
            }
            at = left << half | right;
            if at < self.samples {
                return at;
            }
        }
    }
}

/// A hash of `x` (SplitMix64's finalizer).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_each_sample_once() {
        for (samples, per_shard, batch) in
            [(1, 1, 1), (2, 5, 3), (10, 3, 2), (64, 8, 8), (1000, 70, 16), (1025, 100, 1000)]
        {
            let shards = Shards::new(samples, per_shard, 7).unwrap();
            let mut orders = Vec::new();
            for epoch in 0..3u64 {
                let mut order = Vec::new();
                for shard in 0..shards.count() {
                    let size = shards.size(shard) as u64;
                    let mut used = epoch * size;
                    while used < (epoch + 1) * size {
                        let batch = shards.batch(shard, used, batch);
                        used += batch.len() as u64;
                        order.extend(batch);
                    }
                }
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..samples).collect::<Vec<_>>());
                orders.push(order);
            }
            if samples > 50 {
                assert!(orders[0] != orders[1] && orders[1] != orders[2]);
                let fixed = orders[0].iter().enumerate().filter(|(i, at)| i == *at).count();
                assert!(fixed < 10, "{fixed} of {samples} stay in place");
            }
        }
    }

    #[test]
    fn what_is_not_there_has_no_samples() {
        let shards = Shards::new(10, 4, 0).unwrap();
        assert_eq!((shards.count(), shards.size(2), shards.size(3)), (3, 2, 0));
        assert_eq!(shards.batch(3, 0, 5), [0; 0]);
        assert_eq!(shards.batch(usize::MAX, u64::MAX, 5), [0; 0]);
        for (samples, per_shard) in [(0, 1), (1, 0), (1 << 30, 1)] {
            assert!(Shards::new(samples, per_shard, 0).is_err());
        }
    }
}
