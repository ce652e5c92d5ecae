//! Random numbers for programs around a graph; ops draw their own.

/// Numbers that look random and are the same in every run that begins with the same seed.
///
/// ```
/// use thalweg_train::Dice;
///
/// let mut dice = Dice::new(7);
/// assert!((0.0..1.0).contains(&dice.unit()));
/// assert!(dice.below(6) < 6);
/// let mut cards = [1, 2, 3, 4];
/// dice.shuffle(&mut cards);
/// assert_eq!(cards.iter().sum::<i32>(), 10);
/// ```
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// 64 bits, by the generator SplitMix64.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 to less than 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A whole number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// Brings things into an order that is any with the same chance.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for i in (1..things.len()).rev() {
            things.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly_and_repeat() {
        let mut dice = Dice::new(1);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[dice.below(10)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        let mean = (0..10_000).map(|_| dice.unit()).sum::<f32>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(Dice::new(5).bits(), Dice::new(5).bits());
        assert_ne!(Dice::new(5).bits(), Dice::new(6).bits());
        assert_eq!(Dice::new(5).below(0), 0);
    }

    #[test]
    fn shuffles_keep_what_is_there() {
        let mut order: Vec<usize> = (0..100).collect();
        Dice::new(3).shuffle(&mut order);
        assert!(order.iter().enumerate().filter(|(i, x)| i == *x).count() < 10);
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
