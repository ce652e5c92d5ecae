//! A seeded pseudorandom number generator for client programs; ops have generators of their own.

/// SplitMix64, a pseudorandom number generator: the same seed gives the same sequence in every run.
///
/// ```
/// use thalweg_train::Rng;
///
/// let mut rng = Rng::new(7);
/// assert!((0.0..1.0).contains(&rng.unit()));
/// assert!(rng.below(6) < 6);
/// let mut items = [1, 2, 3, 4];
/// rng.shuffle(&mut items);
/// assert_eq!(items.iter().sum::<i32>(), 10);
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A uniform `f32` in `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A uniform integer in `[0, limit)`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// A uniformly random permutation of `items` (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly_and_repeat() {
        let mut rng = Rng::new(1);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[rng.below(10)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        let mean = (0..10_000).map(|_| rng.unit()).sum::<f32>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(Rng::new(5).bits(), Rng::new(5).bits());
        assert_ne!(Rng::new(5).bits(), Rng::new(6).bits());
        assert_eq!(Rng::new(5).below(0), 0);
    }

    #[test]
    fn shuffles_keep_what_is_there() {
        let mut order: Vec<usize> = (0..100).collect();
        Rng::new(3).shuffle(&mut order);
        assert!(order.iter().enumerate().filter(|(i, x)| i == *x).count() < 10);
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
