//! Philox4x32-10, the counter-based generator behind every random op.
//!
//! A [`Philox`] is a position in a stream of 128-bit blocks, each a pure function of the key and
//! the counter. Parallel work skips to its own block instead of sharing a generator, so the bits do
//! not depend on the division of work. There is no lock, and the caller chooses the seed.

/// Blocks that a stateful op reserves for each output element, however many it uses.
pub(crate) const BLOCKS_PER_OUTPUT: u64 = 256;

/// Blocks that are computed together, for SIMD.
pub(crate) const SIDE_BY_SIDE: usize = 16;

/// `SIDE_BY_SIDE` blocks, each as two 64-bit words: the first and third of the block's four 32-bit
/// words are the lower halves.
pub(crate) type Words = [u64; 2 * SIDE_BY_SIDE];

/// Multipliers and key increments of the published generator.
pub(crate) const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
pub(crate) const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
pub(crate) const ROUNDS: usize = 10;

/// Key with which a stateless op scrambles its two seeds.
pub(crate) const SCRAMBLE_KEY: [u32; 2] = [0x3ec8_f720, 0x0246_1e29];

/// A position in one of 2^64 streams of 2^128 blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Philox {
    counter: [u32; 4],
    key: [u32; 2],
}

impl Philox {
    /// The generator of a stateful op: `seed` is the key, `seed2` the upper half of the counter.
    pub(crate) fn from_seeds(seed: i64, seed2: i64) -> Self {
        Self::from_words(seed.cast_unsigned(), [0, seed2.cast_unsigned()])
    }

    /// The generator of a stateless op, whose two seeds are scrambled into key and counter.
    pub(crate) fn from_stateless_seed(seed: [i64; 2]) -> Self {
        let counter = seed.map(i64::cast_unsigned);
        let scramble = Self { counter: halves(counter), key: SCRAMBLE_KEY };
        let [key0, key1, counter2, counter3] = scramble.block();
        Self { counter: [0, 0, counter2, counter3], key: [key0, key1] }
    }

    /// The generator at an explicit key and counter, lower word first.
    pub(crate) fn from_words(key: u64, counter: [u64; 2]) -> Self {
        let [key0, key1, _, _] = halves([key, 0]);
        Self { counter: halves(counter), key: [key0, key1] }
    }

    /// Key and counter in the form that [`Philox::from_words`] takes.
    pub(crate) fn words(&self) -> (u64, [u64; 2]) {
        let [c0, c1, c2, c3] = self.counter;
        (join(self.key), [join([c0, c1]), join([c2, c3])])
    }

    /// The block at this position.
    #[inline]
    pub(crate) fn block(&self) -> [u32; 4] {
        let mut counter = self.counter;
        let mut key = self.key;
        for _ in 0..ROUNDS {
            let product0 = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
            let product1 = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
            counter = [
                high(product1) ^ counter[1] ^ key[0],
                low(product1),
                high(product0) ^ counter[3] ^ key[1],
                low(product0),
            ];
            key = next_key(key);
        }
        counter
    }

    /// `SIDE_BY_SIDE` blocks: the block at this position and the following ones at distance
    /// `stride`.
    ///
    /// A block is two 64-bit words here. A product of two 32-bit words is a 64-bit word with its
    /// halves swapped, and the other half of each word is shifted down by 32 bits; so a round is
    /// one multiplication, one shuffle, one shift and two additions without carry on whole vectors.
    #[inline(always)]
    pub(crate) fn side_by_side(&self, stride: u64) -> Words {
        let (_, [low_word, high_word]) = self.words();
        let mut state = [0u64; 2 * SIDE_BY_SIDE];
        for (lane, block) in (0..).zip(state.as_chunks_mut::<2>().0) {
            let (low_word, carry) = low_word.overflowing_add(stride.wrapping_mul(lane));
            *block = [low_word, high_word.wrapping_add(u64::from(carry))];
        }
        let mut key = self.key;
        for _ in 0..ROUNDS {
            for block in state.as_chunks_mut::<2>().0 {
                let [first, second] = *block;
                let product0 = u64::from(low(first)) * u64::from(MULTIPLIERS[0]);
                let product1 = u64::from(low(second)) * u64::from(MULTIPLIERS[1]);
                *block = [
                    product1.rotate_left(32) ^ (first >> 32) ^ u64::from(key[0]),
                    product0.rotate_left(32) ^ (second >> 32) ^ u64::from(key[1]),
                ];
            }
            key = next_key(key);
        }
        state
    }

    /// The block at this position; advances to the next.
    #[inline]
    pub(crate) fn next_block(&mut self) -> [u32; 4] {
        let block = self.block();
        self.skip(1);
        block
    }

    /// Advances by `count` blocks. The counter is one 128-bit number that wraps around.
    #[inline]
    pub(crate) fn skip(&mut self, count: u64) {
        let (_, [low, high]) = self.words();
        let (low, carry) = low.overflowing_add(count);
        self.counter = halves([low, high.wrapping_add(u64::from(carry))]);
    }

    /// A copy of this generator, `count` blocks ahead.
    #[inline]
    #[must_use]
    pub(crate) fn skipped(mut self, count: u64) -> Self {
        self.skip(count);
        self
    }

    /// Reserves the next `count` blocks: returns their start and advances past them.
    pub(crate) fn reserve(&mut self, count: u64) -> Self {
        let start = *self;
        self.skip(count);
        start
    }

    /// Reserves the blocks that a stateful op uses for `outputs` elements.
    pub(crate) fn reserve_outputs(&mut self, outputs: u64) -> Self {
        self.reserve(outputs.wrapping_mul(BLOCKS_PER_OUTPUT))
    }

    /// Reserves whole blocks for `count` 32-bit samples.
    pub(crate) fn reserve_samples(&mut self, count: u64) -> Self {
        self.reserve(count.div_ceil(4))
    }
}

#[inline]
fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])]
}

/// The stream of a generator, one 32-bit sample at a time.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    philox: Philox,
    block: [u32; 4],
    used: usize,
}

impl Samples {
    /// Samples from the beginning of the generator's next block.
    pub(crate) fn new(philox: Philox) -> Self {
        Self { philox, block: [0; 4], used: 4 }
    }

    /// Samples from the `index`-th 32-bit sample on.
    pub(crate) fn at(philox: Philox, index: u64) -> Self {
        let mut samples = Self::new(philox.skipped(index / 4));
        for _ in 0..index % 4 {
            samples.next_u32();
        }
        samples
    }

    /// 32 random bits.
    #[inline]
    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.block = self.philox.next_block();
            self.used = 0;
        }
        let sample = self.block[self.used];
        self.used += 1;
        sample
    }

    /// 64 random bits, the lower half drawn first.
    #[inline]
    pub(crate) fn next_u64(&mut self) -> u64 {
        let low = self.next_u32();
        join([low, self.next_u32()])
    }
}

/// Two 64-bit words as four 32-bit ones, lower halves first.
#[inline]
fn halves([first, second]: [u64; 2]) -> [u32; 4] {
    [low(first), high(first), low(second), high(second)]
}

/// A 64-bit word from its halves, the lower first.
#[inline]
pub(crate) fn join([lower, upper]: [u32; 2]) -> u64 {
    u64::from(lower) | u64::from(upper) << 32
}

#[inline]
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// FNV-1a hash of little-endian bytes, by which long outputs are compared with TensorFlow's.
    pub(crate) fn fingerprint(bytes: impl IntoIterator<Item = u8>) -> u64 {
        bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn known_answers() {
        // Test vectors of the authors of Philox.
        for (counter, key, block) in [
            ([0; 2], 0, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u64::MAX; 2], u64::MAX, [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x85a308d3_243f6a88, 0x03707344_13198a2e],
                0x299f31d0_a4093822,
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(Philox::from_words(key, counter).block(), block);
        }
    }

    #[test]
    fn stateless_seeds_are_scrambled() {
        let words = |seed| Philox::from_stateless_seed(seed).words();
        assert_eq!(words([0, 0]), (0xdf7a3ef6dd5b9083, [0, 0xff2f51a833da8054]));
        assert_eq!(words([1, 2]), (0x908502c96d2f7fba, [0, 0xf7734320619cb60b]));
        assert_eq!(words([i64::MAX, i64::MIN]), (0x1c35cbcf4911f239, [0, 0x830b0d82250965cf]));
    }

    #[test]
    fn blocks_side_by_side_are_the_blocks_one_by_one() {
        for low in [0, 5, u64::from(u32::MAX) - 3, u64::MAX - 3] {
            for stride in [1, 128, 256] {
                let mut philox = Philox::from_words(42, [low, u64::MAX]);
                for block in philox.side_by_side(stride).as_chunks::<2>().0 {
                    assert_eq!(halves(*block), philox.block(), "counter {low:#x}, stride {stride}");
                    philox.skip(stride);
                }
            }
        }
    }

    #[test]
    fn skipping_carries_and_wraps() {
        let mut philox = Philox::from_words(1, [u64::MAX, u64::MAX]);
        philox.skip(1);
        assert_eq!(philox.words(), (1, [0, 0]));
        assert_eq!(philox.skipped(u64::MAX).skipped(2).words(), (1, [1, 1]));
        assert_eq!(philox.reserve_samples(5).words(), (1, [0, 0]));
        assert_eq!(philox.words(), (1, [2, 0]));
    }

    #[test]
    fn samples_start_anywhere() {
        let philox = Philox::from_seeds(3, 4);
        let mut all = Samples::new(philox);
        for index in 0..11 {
            assert_eq!(Samples::at(philox, index).next_u32(), all.next_u32());
        }
    }
}
