//! Numbers that a seed determines.

/// SplitMix64.
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Seeds that differ by one must not walk through each other's numbers.
        Random { seed, state: (seed + 1).wrapping_mul(0x94d0_49bb_1331_11eb) }
    }

    /// What it was made of.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Numbers at the edges of types.
    pub(crate) fn number(&mut self) -> i64 {
        let edges = [
            0,
            1,
            -1,
            2,
            3,
            7,
            255,
            256,
            -128,
            65536,
            i64::from(i32::MAX),
            i64::from(i32::MIN),
            1 << 31,
            1 << 32,
            1 << 40,
            1 << 60,
            i64::MAX,
            i64::MIN,
        ];
        *self.pick(&edges).unwrap()
    }

    /// One time in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Mostly a number that could be meant, sometimes one at an edge.
    pub(crate) fn size(&mut self) -> i64 {
        if self.one_in(12) { self.number() } else { self.below(6) as i64 - 1 }
    }
}
