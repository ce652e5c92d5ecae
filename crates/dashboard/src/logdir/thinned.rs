//! A series of values in bounded memory: when it is full, every second one is dropped.
//!
//! What is kept is evenly spaced and depends only on the values that came, unlike a random sample: two readers
//! of the same files show the same.

/// The size of a value in memory.
pub(super) trait Size {
    /// Bytes, headers included.
    fn bytes(&self) -> usize;
}

/// A series of which at most `max` values are kept, and the last one.
#[derive(Debug)]
pub(super) struct Thinned<T> {
    /// Values by their position in the series.
    kept: Vec<(u64, T)>,
    /// The last value, if it is not kept.
    last: Option<(u64, T)>,
    /// Positions that are multiples of this are kept.
    stride: u64,
    /// The number of all values.
    total: u64,
    max: usize,
    bytes: usize,
}

impl<T: Size> Thinned<T> {
    /// An empty series of which at most `max` values, at least 2, are kept.
    pub(super) fn new(max: usize) -> Thinned<T> {
        Thinned { kept: Vec::new(), last: None, stride: 1, total: 0, max: max.max(2), bytes: 0 }
    }

    /// Appends a value.
    pub(super) fn push(&mut self, value: T) {
        let position = self.total;
        self.total += 1;
        self.bytes += value.bytes();
        let replaced = self.last.take();
        self.bytes -= replaced.map_or(0, |(_, value)| value.bytes());
        if !position.is_multiple_of(self.stride) {
            self.last = Some((position, value));
            return;
        }
        if self.kept.len() >= self.max {
            self.stride *= 2;
            let (stride, bytes) = (self.stride, &mut self.bytes);
            self.kept.retain(|(position, value)| {
                let is_kept = position.is_multiple_of(stride);
                *bytes -= if is_kept { 0 } else { value.bytes() };
                is_kept
            });
        }
        match position.is_multiple_of(self.stride) {
            true => self.kept.push((position, value)),
            false => self.last = Some((position, value)),
        }
    }

    /// The number of all values that came.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The size of what is kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values that are left of those at position `after` and behind it, in order.
    pub(super) fn since(&self, after: u64) -> impl Iterator<Item = &T> {
        let all = self.kept.iter().chain(&self.last);
        all.filter(move |(position, _)| *position >= after).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Size for u64 {
        fn bytes(&self) -> usize {
            8
        }
    }

    #[test]
    fn few_values_are_all_kept() {
        let mut series = Thinned::new(10);
        (0..10u64).for_each(|x| series.push(x));
        assert_eq!(series.since(0).copied().collect::<Vec<_>>(), (0..10).collect::<Vec<u64>>());
        assert_eq!(series.since(7).copied().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!((series.total(), series.bytes()), (10, 80));
    }

    #[test]
    fn many_values_are_evenly_spaced_and_the_last_is_there() {
        let mut series = Thinned::new(8);
        for x in 0..1000u64 {
            series.push(x);
            let kept: Vec<u64> = series.since(0).copied().collect();
            assert!(kept.len() <= 9 && kept[0] == 0 && kept.last() == Some(&x), "{kept:?}");
            assert!(kept.is_sorted() && series.bytes() == 8 * kept.len());
            let strides: Vec<u64> = kept.windows(2).map(|w| w[1] - w[0]).collect();
            let all_but_last = &strides[..strides.len().saturating_sub(1)];
            assert!(all_but_last.windows(2).all(|w| w[0] == w[1]), "{kept:?}");
        }
        assert_eq!(series.total(), 1000);
    }
}
