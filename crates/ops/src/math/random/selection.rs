//! Random permutations, and sampling from a categorical distribution.

use num_traits::AsPrimitive;

use super::distributions::unit_f64;
use super::philox::{Philox, Samples};

/// Fisher-Yates shuffle in place, with one 32-bit sample for each item but the last.
pub(crate) fn shuffle<T>(philox: Philox, items: &mut [T]) {
    let mut samples = Samples::new(philox);
    for first in 0..items.len().saturating_sub(1) {
        // Only 32 bits of the length are used, and the op reserves samples for no more.
        let left = (items.len() - first) as u32;
        let offset = samples.next_u32().checked_rem(left).unwrap_or(0);
        items.swap(first, first + offset as usize);
    }
}

/// Blocks that one run of a multinomial op reserves.
pub(crate) fn multinomial_blocks(rows: u64, samples: u64) -> u64 {
    let doubled = samples.div_ceil(4).wrapping_mul(8);
    rows.wrapping_mul(doubled).wrapping_mul(super::philox::BLOCKS_PER_OUTPUT)
}

/// Draws one row of a multinomial op: class indices, by inverting the cumulative distribution.
///
/// `row` is the index of the row in its batch. Rows are consecutive in the stream, with two samples
/// for each draw, as in one thread of TensorFlow. Logits that are not finite are never drawn; if no
/// logit is finite, the result is the number of classes. `logits` is overwritten.
pub(crate) fn multinomial_row<C: Copy + 'static>(
    philox: Philox,
    row: u64,
    logits: &mut [f64],
    out: &mut [C],
) where
    usize: AsPrimitive<C>,
{
    let max = logits.iter().copied().filter(|l| l.is_finite()).fold(f64::MIN, f64::max);
    let mut total = 0.0;
    for logit in logits.iter_mut() {
        if logit.is_finite() {
            total += (*logit - max).exp();
        }
        *logit = total;
    }
    let cumulated = &*logits;
    let first = row.wrapping_mul(out.len() as u64).wrapping_mul(2);
    let mut samples = Samples::at(philox, first);
    for class in out {
        let upper = samples.next_u32();
        let target = unit_f64(upper, samples.next_u32()) * total;
        *class = cumulated.partition_point(|&up_to_here| up_to_here <= target).as_();
    }
}

#[cfg(test)]
mod tests {
    use super::super::philox::tests::fingerprint;
    use super::*;

    #[test]
    fn shuffle_is_tensorflow_s() {
        const LEN: i32 = 10_001;
        let mut philox = Philox::from_seeds(7, -11);
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut step: Vec<i32> = (0..LEN).collect();
            shuffle(philox.reserve_samples(LEN as u64 - 1), &mut step);
            all.extend(step);
        }
        assert_eq!(all[..6], [7129, 226, 9021, 3707, 3886, 5236]);
        assert_eq!(fingerprint(all.iter().flat_map(|item| item.to_le_bytes())), 0xf325d8dd825f2e95);
        shuffle::<i32>(philox, &mut []);
        shuffle(philox, &mut [1]);
    }

    fn multinomial(mut philox: Philox, logits: &[f64], draws: usize, steps: usize) -> Vec<i64> {
        let mut all = Vec::new();
        for _ in 0..steps {
            let start = philox.reserve(multinomial_blocks(7, draws as u64));
            for (row, logits) in (0..).zip(logits.chunks(13)) {
                let mut classes = vec![0; draws];
                multinomial_row(start, row, &mut logits.to_vec(), &mut classes);
                all.extend(classes);
            }
        }
        all
    }

    #[test]
    fn multinomial_is_tensorflow_s() {
        let print = |all: &[i64]| fingerprint(all.iter().flat_map(|class| class.to_le_bytes()));
        let stateful = Philox::from_seeds(7, -11);
        let mut logits: Vec<f64> = (0..91).map(|index| f64::from(index).sin() * 3.0).collect();
        let all = multinomial(stateful, &logits, 1003, 2);
        assert_eq!(all[..6], [7, 2, 2, 7, 1, 8]);
        assert_eq!(print(&all), 0xb9ac38e21e09308d);
        let all = multinomial(Philox::from_stateless_seed([3, 4]), &logits, 103, 1);
        assert_eq!(print(&all), 0x526163b7a42e1565);

        logits[3] = f64::INFINITY;
        logits[13..26].fill(f64::NEG_INFINITY);
        logits[26] = f64::NAN;
        logits[39..52].fill(-1e300);
        let all = multinomial(stateful, &logits, 103, 2);
        assert_eq!(all[103], 13, "no class can be drawn");
        assert_eq!(print(&all), 0xbe537a127e461be2);
    }
}
