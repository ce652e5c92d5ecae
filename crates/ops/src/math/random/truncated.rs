//! The truncated normal distribution, with parameters per batch.
//!
//! The random numbers of a batch depend on how many the previous batches used, so the whole tensor
//! is computed sequentially. TensorFlow's result is the same as long as one of its threads computes
//! all of it.

use num_traits::Float;

use super::distributions::Real;
use super::philox::Philox;

/// Consecutive rejections after which a sampler fails.
const REFUSALS_MAX: usize = 1000;

/// Batch length of a stateful op whose parameters are common to all values.
pub(crate) const COMMON_BATCH: u64 = 100;

/// A normal distribution and its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truncation<T> {
    /// Mean before truncation.
    pub(crate) mean: T,
    /// Standard deviation before truncation.
    pub(crate) stddev: T,
    /// Lower bound, possibly minus infinity.
    pub(crate) minval: T,
    /// Upper bound, possibly infinity.
    pub(crate) maxval: T,
}

/// Why no values were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TruncationError {
    /// The standard deviation or the interval is invalid, or no bound is finite.
    InvalidParameters,
    /// A rejection sampler failed.
    NothingAccepted,
}

/// Blocks that one run of the stateful op reserves.
pub(crate) fn blocks_reserved(batches: u64, samples_per_batch: u64) -> u64 {
    let refusals = REFUSALS_MAX as u64;
    batches.wrapping_mul(2 * refusals).wrapping_mul(samples_per_batch.wrapping_add(3)) / 4
}

/// Fills `out` batch by batch, `samples_per_batch` values each, the last cut short.
pub(crate) fn fill_batches<T: Real + Float>(
    mut philox: Philox,
    samples_per_batch: usize,
    parameters: impl Fn(usize) -> Truncation<T>,
    out: &mut [T],
) -> Result<(), TruncationError> {
    for (batch, values) in out.chunks_mut(samples_per_batch.max(1)).enumerate() {
        sample_batch(&mut philox, parameters(batch), values.iter_mut())?;
    }
    Ok(())
}

/// Fills `out`, of shape `[samples, batches]`, column by column.
pub(crate) fn fill_columns<T: Real + Float>(
    mut philox: Philox,
    batches: usize,
    parameters: impl Fn(usize) -> Truncation<T>,
    out: &mut [T],
) -> Result<(), TruncationError> {
    for column in 0..batches {
        let values = out.iter_mut().skip(column).step_by(batches);
        sample_batch(&mut philox, parameters(column), values)?;
    }
    Ok(())
}

/// The proposal distribution, chosen by the bounds.
enum Proposal<T> {
    Normal,
    Uniform { lift: T },
    Exponential { alpha: T },
}

/// Bounds in standard deviations from the mean, mirrored so that one-sided bounds are lower bounds.
struct Bounds<T> {
    low: T,
    high: T,
    /// Negative where mirrored.
    stddev: T,
}

/// Draws values for one batch, starting at a new block; the rest of the last block is discarded.
fn sample_batch<'a, T: Real + Float + 'a>(
    philox: &mut Philox,
    parameters: Truncation<T>,
    mut out: impl Iterator<Item = &'a mut T>,
) -> Result<(), TruncationError> {
    let bounds = normalized(parameters)?;
    let proposal = proposal(&bounds);
    let mut refusals = 0;
    let mut next = out.next();
    while next.is_some() {
        let mut round = Round::new(&proposal, &bounds, philox);
        while let Some((value, accepted)) = round.next() {
            if accepted {
                let Some(place) = next else { break };
                *place = value * bounds.stddev + parameters.mean;
                next = out.next();
                refusals = 0;
                if next.is_none() {
                    break;
                }
            } else {
                refusals += 1;
                if refusals > proposal.refusals_max() {
                    return Err(TruncationError::NothingAccepted);
                }
            }
        }
    }
    Ok(())
}

impl<T> Proposal<T> {
    fn refusals_max(&self) -> usize {
        match self {
            Self::Normal => REFUSALS_MAX,
            Self::Uniform { .. } | Self::Exponential { .. } => REFUSALS_MAX - 1,
        }
    }
}

/// The candidates of one group of random numbers, in order.
struct Round<'a, T: Real> {
    proposal: &'a Proposal<T>,
    bounds: &'a Bounds<T>,
    values: T::Group,
    /// Second group of random numbers, which decides on the acceptance of uniform candidates.
    acceptance: Option<T::Group>,
    index: usize,
}

impl<'a, T: Real + Float> Round<'a, T> {
    fn new(proposal: &'a Proposal<T>, bounds: &'a Bounds<T>, philox: &mut Philox) -> Self {
        let block = philox.next_block();
        let values = match proposal {
            Proposal::Normal => {
                let wide = T::wide_normal(block);
                T::group_from(|index| T::narrow(wide.as_ref()[index]))
            }
            Proposal::Uniform { .. } | Proposal::Exponential { .. } => T::uniform(block),
        };
        let acceptance =
            matches!(proposal, Proposal::Uniform { .. }).then(|| T::uniform(philox.next_block()));
        Self { proposal, bounds, values, acceptance, index: 0 }
    }

    /// A candidate and whether it is accepted.
    fn next(&mut self) -> Option<(T, bool)> {
        let Bounds { low, high, .. } = *self.bounds;
        let values = self.values.as_ref();
        let value = *values.get(self.index)?;
        let two = T::from_f64(2.0);
        match *self.proposal {
            Proposal::Normal => {
                self.index += 1;
                Some((value, value >= low && value <= high))
            }
            Proposal::Uniform { lift } => {
                let judge = *self.acceptance.as_ref()?.as_ref().get(self.index)?;
                self.index += 1;
                let candidate = value * (high - low) + low;
                let density = ((lift - candidate * candidate) / two).exp();
                Some((candidate, judge <= density))
            }
            Proposal::Exponential { alpha } => {
                let judge = *values.get(self.index + 1)?;
                self.index += 2;
                let candidate = -value.ln() / alpha + low;
                let distance = if low < alpha { alpha - candidate } else { low - alpha };
                let density = (-distance * distance / two).exp();
                Some((candidate, judge <= density && candidate < high))
            }
        }
    }
}

fn normalized<T: Real + Float>(parameters: Truncation<T>) -> Result<Bounds<T>, TruncationError> {
    let Truncation { mean, mut stddev, mut minval, mut maxval } = parameters;
    let bounded = minval.is_finite() || maxval.is_finite();
    if !(stddev > T::zero() && minval < maxval && bounded) {
        return Err(TruncationError::InvalidParameters);
    }
    if minval == T::neg_infinity() || maxval < mean {
        (minval, maxval) = (maxval, minval);
        stddev = -stddev;
    }
    Ok(Bounds { low: (minval - mean) / stddev, high: (maxval - mean) / stddev, stddev })
}

/// Chooses among normal, uniform and exponential proposals (Robert, 1995, and plain rejection).
fn proposal<T: Real + Float>(bounds: &Bounds<T>) -> Proposal<T> {
    let &Bounds { low, high, .. } = bounds;
    let near = T::from_f64(1.3);
    let two = T::from_f64(2.0);
    let four = T::from_f64(4.0);
    let root = (low * low + four).sqrt();
    let exponent = T::from_f64(0.5) + (low * (low - root)) / four;
    let widest_uniform = two * exponent.exp() / (low + root);
    if (low < -near && high >= T::zero()) || (high > near && low <= T::zero()) {
        Proposal::Normal
    } else if high - low < widest_uniform {
        Proposal::Uniform { lift: if low < T::zero() { T::zero() } else { low * low } }
    } else {
        Proposal::Exponential { alpha: (low + root) / two }
    }
}

#[cfg(test)]
mod tests {
    use num_traits::ToBytes;

    use super::super::philox::tests::fingerprint;
    use super::*;

    const BATCHES: usize = 7;
    const SAMPLES: usize = 203;

    fn parameters<T: Real>(batch: usize) -> Truncation<T> {
        let infinity = f64::INFINITY;
        let [mean, stddev, minval, maxval] = [
            [0.0, 1.0, -1.0, 1.0],
            [1.0, 2.0, -infinity, 1.5],
            [2.0, 0.5, 3.0, infinity],
            [-1.0, 1.0, 2.0, 6.0],
            [5.0, 1.0, -2.0, 1.0],
            [0.0, 3.0, -10.0, 10.0],
            [0.5, 1.0, 0.4, 0.6],
        ][batch]
            .map(T::from_f64);
        Truncation { mean, stddev, minval, maxval }
    }

    /// Fingerprints of the stateful op with parameters per batch and the stateless op.
    fn run<T>() -> [u64; 2]
    where
        T: Real + Float + ToBytes<Bytes: IntoIterator<Item = u8>>,
    {
        let mut philox = Philox::from_seeds(7, -11);
        let blocks = blocks_reserved(BATCHES as u64, SAMPLES as u64);
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut step = vec![T::zero(); BATCHES * SAMPLES];
            fill_batches(philox.reserve(blocks), SAMPLES, parameters, &mut step).expect("valid");
            all.extend(step);
        }
        let stateful = fingerprint(all.iter().flat_map(ToBytes::to_le_bytes));
        let mut all = vec![T::zero(); BATCHES * SAMPLES];
        let philox = Philox::from_stateless_seed([3, 4]);
        fill_columns(philox, BATCHES, parameters, &mut all).expect("valid");
        [stateful, fingerprint(all.iter().flat_map(ToBytes::to_le_bytes))]
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn bounded_normal_is_tensorflow_s() {
        assert_eq!(run::<f32>(), [0x09dc1a97f1c72abf, 0x5bf6dbe0ff8145b2]);
        assert_eq!(run::<f64>(), [0x8318a4043cbb2b97, 0x903a0af1c714ee64]);
        assert_eq!(run::<half::f16>(), [0x7a3bae3523c16d1e, 0xb373bb43507d6921]);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn common_parameters_work_in_batches_of_a_hundred() {
        let common = |_| Truncation { mean: 0.3f32, stddev: 1.5, minval: -1.0, maxval: 2.0 };
        let mut philox = Philox::from_seeds(7, -11);
        let len = BATCHES * SAMPLES;
        let blocks = blocks_reserved((len as u64).div_ceil(COMMON_BATCH), COMMON_BATCH);
        let mut all = vec![0.0; 2 * len];
        for step in all.chunks_mut(len) {
            let start = philox.reserve(blocks);
            fill_batches(start, COMMON_BATCH as usize, common, step).expect("valid");
        }
        assert_eq!(all[..4], [-0.51946217, 0.9612406, 1.6679952, 0.57239115]);
        let print = fingerprint(all.iter().flat_map(ToBytes::to_le_bytes));
        assert_eq!(print, 0x033787c10e2547b4);
    }

    #[test]
    fn bad_parameters_are_refused() {
        let philox = Philox::from_seeds(1, 2);
        let infinity = f32::INFINITY;
        for [mean, stddev, minval, maxval] in [
            [0.0, 0.0, -1.0, 1.0],
            [0.0, -1.0, -1.0, 1.0],
            [0.0, f32::NAN, -1.0, 1.0],
            [0.0, 1.0, 1.0, 1.0],
            [0.0, 1.0, f32::NAN, 1.0],
            [0.0, 1.0, -infinity, infinity],
        ] {
            let bad = Truncation { mean, stddev, minval, maxval };
            let refused = fill_columns(philox, 1, |_| bad, &mut [0.0; 3]);
            assert_eq!(refused, Err(TruncationError::InvalidParameters), "{bad:?}");
        }
        let far = Truncation { mean: f32::NAN, stddev: 1.0, minval: 0.0, maxval: 1.0 };
        assert_eq!(
            fill_columns(philox, 1, |_| far, &mut [0.0; 3]),
            Err(TruncationError::NothingAccepted)
        );
        assert_eq!(fill_columns(philox, 0, |_| far, &mut []), Ok(()));
    }
}
