//! Gamma, Poisson and binomial values by rejection sampling, which takes a variable number of
//! random numbers per value.
//!
//! Each output element has its own range of the stream, so any part of a tensor may be filled by
//! itself. All arithmetic is in double precision; the result is rounded to the element type at the
//! end.

use half::{bf16, f16};
use num_traits::Float;

use super::distributions::Real;
use super::philox::{BLOCKS_PER_OUTPUT, Philox};

/// Maximum rounds of a rejection loop; valid parameters need a handful.
const ROUNDS_MAX: usize = 10_000;

/// A distribution with given parameters.
pub(crate) trait Sampler {
    /// Blocks between the ranges of two consecutive outputs.
    fn blocks_per_output(&self) -> u64 {
        BLOCKS_PER_OUTPUT
    }

    /// One value, from the range that begins at `philox`.
    fn sample(&self, philox: Philox) -> f64;
}

/// An element type to which sampled values are rounded.
pub(crate) trait FromSample: Copy {
    /// The largest finite value, as a double.
    const HIGHEST: f64;
    /// The conversion of infinity: infinity, or zero where the type has none.
    const INFINITY: f64;

    /// Rounds or truncates to this type; integers saturate.
    fn from_sample(value: f64) -> Self;
}

/// Implements [`FromSample`]: the largest value, infinity and the conversion.
macro_rules! impl_from_sample {
    ($($t:ty, $highest:expr, $infinity:expr, $convert:expr;)+) => {
        $(impl FromSample for $t {
            const HIGHEST: f64 = $highest;
            const INFINITY: f64 = $infinity;

            #[inline]
            fn from_sample(value: f64) -> $t {
                $convert(value)
            }
        })+
    };
}

impl_from_sample! {
    f16, 65504.0, f64::INFINITY, |value| f16::from_f32(value as f32);
    bf16, 3.389_531_389_251_535_5e38, f64::INFINITY, |value| bf16::from_f32(value as f32);
    f32, f32::MAX as f64, f64::INFINITY, |value| value as f32;
    f64, f64::MAX, f64::INFINITY, |value| value;
    i32, i32::MAX as f64, 0.0, |value| value as i32;
    i64, i64::MAX as f64, 0.0, |value| value as i64;
}

/// Fills `out`, which begins at element `first` of a tensor of shape `[samples, parameters]`.
///
/// `sampler` makes the sampler of a parameter. In the stream, all samples of a parameter are
/// consecutive.
///
/// `sampler` makes the sampler of a parameter. The stream is laid out the other way round, all
/// samples of a parameter next to each other.
pub(crate) fn fill_samples<S: Sampler, T: FromSample>(
    philox: Philox,
    sampler: &dyn Fn(usize) -> S,
    [samples, parameters]: [usize; 2],
    first: usize,
    out: &mut [T],
) {
    let Some(mut parameter) = first.checked_rem(parameters) else { return };
    let mut sample = first / parameters;
    let mut bound = sampler(parameter);
    for value in out {
        let output = (parameter as u64).wrapping_mul(samples as u64).wrapping_add(sample as u64);
        let start = philox.skipped(output.wrapping_mul(bound.blocks_per_output()));
        *value = T::from_sample(bound.sample(start));
        if parameters == 1 {
            sample += 1;
            continue;
        }
        parameter += 1;
        if parameter == parameters {
            parameter = 0;
            sample += 1;
        }
        bound = sampler(parameter);
    }
}

/// Doubles drawn from a shared generator, each group in reverse order.
struct Backwards {
    values: [f64; 2],
    left: usize,
    make: fn([u32; 4]) -> [f64; 2],
}

impl Backwards {
    fn uniform() -> Self {
        Self { values: [0.0; 2], left: 0, make: f64::uniform }
    }

    fn normal() -> Self {
        Self { values: [0.0; 2], left: 0, make: f64::wide_normal }
    }

    fn next(&mut self, philox: &mut Philox) -> f64 {
        if self.left == 0 {
            self.values = (self.make)(philox.next_block());
            self.left = self.values.len();
        }
        self.left -= 1;
        self.values[self.left]
    }
}

/// Gamma values of rate 1 (Marsaglia and Tsang).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gamma {
    alpha: f64,
    /// Marsaglia and Tsang's `d` and `c`, for `alpha + 1` where `alpha` is below one.
    d: f64,
    c: f64,
}

impl Gamma {
    /// Gamma values of shape `alpha`.
    pub(crate) fn new(alpha: f64) -> Self {
        let d = alpha + if alpha < 1.0 { 2.0 / 3.0 } else { -1.0 / 3.0 };
        Self { alpha, d, c: 1.0 / 3.0 / d.sqrt() }
    }
}

impl Sampler for Gamma {
    fn sample(&self, mut philox: Philox) -> f64 {
        let Self { alpha, d, c } = *self;
        let mut uniforms = Backwards::uniform();
        if alpha == 1.0 {
            return -(-uniforms.next(&mut philox)).ln_1p();
        }
        let mut normals = Backwards::normal();
        for _ in 0..ROUNDS_MAX {
            let x = normals.next(&mut philox);
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            let u = uniforms.next(&mut philox);
            // The first test avoids the logarithms of the second for most values.
            let accepted = u < 1.0 - 0.0331 * (x * x) * (x * x)
                || u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln());
            if accepted {
                let boost =
                    if alpha < 1.0 { uniforms.next(&mut philox).powf(1.0 / alpha) } else { 1.0 };
                return d * v * boost;
            }
        }
        f64::NAN
    }
}

/// Poisson values: a product of uniforms for small rates, Hörmann's transformed rejection for
/// others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poisson {
    rate: f64,
    /// Values above this are redrawn.
    highest: f64,
    infinity: f64,
}

impl Poisson {
    /// Poisson values of a rate, to be rounded to the element type `T`.
    pub(crate) fn new<T: FromSample>(rate: f64) -> Self {
        Self { rate, highest: T::HIGHEST, infinity: T::INFINITY }
    }

    fn sample_small(&self, mut philox: Philox) -> f64 {
        let bound = (-self.rate).exp();
        let mut uniforms = Backwards::uniform();
        let mut product = 1.0;
        let mut events = 0.0;
        for _ in 0..ROUNDS_MAX {
            product *= uniforms.next(&mut philox);
            if product <= bound {
                break;
            }
            events += 1.0;
        }
        events
    }

    fn sample_large(&self, mut philox: Philox) -> f64 {
        let rate = self.rate;
        let b = 0.931 + 2.53 * rate.sqrt();
        let a = -0.059 + 0.02483 * b;
        let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
        let log_rate = rate.ln();
        let mut uniforms = Backwards::uniform();
        for _ in 0..ROUNDS_MAX {
            let u = uniforms.next(&mut philox) - 0.5;
            let v = uniforms.next(&mut philox);
            let edge = 0.5 - u.abs();
            let k = ((2.0 * a / edge + b) * u + rate + 0.43).floor();
            if k > self.highest {
                continue;
            }
            if edge >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2.0) {
                return k;
            }
            if k < 0.0 || (edge < 0.013 && v > edge) {
                continue;
            }
            let s = (v * inverse_alpha / (a / (edge * edge) + b)).ln();
            if s <= -rate + k * log_rate - libm::lgamma(k + 1.0) {
                return k;
            }
        }
        // The rate is far above the range of the element type, so no value fits.
        self.highest
    }
}

impl Sampler for Poisson {
    fn sample(&self, philox: Philox) -> f64 {
        if self.rate < 10.0 {
            self.sample_small(philox)
        } else if self.rate.is_finite() {
            self.sample_large(philox)
        } else if self.rate.is_nan() {
            f64::NAN
        } else {
            self.infinity
        }
    }
}

/// Binomial values: a sum of geometric gaps for small means, Hörmann's rejection for others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binomial {
    count: f64,
    /// Probability of the less likely outcome, which is the one counted.
    rare: f64,
    /// Whether the counted outcome is the failure.
    mirrored: bool,
    large: bool,
}

impl Binomial {
    /// The number of successes in `count` trials of probability `probability`.
    ///
    /// The method is chosen in the precision of `T`.
    ///
    /// The method is chosen in the precision of `T`.
    pub(crate) fn new<T: Float + Into<f64>>(count: T, probability: T) -> Self {
        let probability_f64: f64 = probability.into();
        let mirrored = probability_f64 > 0.5;
        let rare = if mirrored { T::one() - probability } else { probability };
        let mean: f64 = (count * rare).into();
        Self { count: count.into(), rare: rare.into(), mirrored, large: mean >= 10.0 }
    }

    fn sample_small(&self, mut philox: Philox) -> f64 {
        let mut uniforms = Backwards::uniform();
        let log_failure = (-self.rare).ln_1p();
        let mut trials = 0.0;
        let mut events = 0.0;
        for _ in 0..ROUNDS_MAX {
            trials += (uniforms.next(&mut philox).ln() / log_failure).ceil();
            if trials > self.count {
                break;
            }
            events += 1.0;
        }
        events
    }

    fn sample_large(&self, mut philox: Philox) -> f64 {
        let Self { count, rare, .. } = *self;
        let deviation = (count * rare * (1.0 - rare)).sqrt();
        let b = 1.15 + 2.53 * deviation;
        let a = -0.0873 + 0.0248 * b + 0.01 * rare;
        let c = count * rare + 0.5;
        let box_height = 0.92 - 4.2 / b;
        let odds = rare / (1.0 - rare);
        let alpha = (2.83 + 5.1 / b) * deviation;
        let mode = ((count + 1.0) * rare).floor();
        let mut uniforms = Backwards::uniform();
        for _ in 0..ROUNDS_MAX {
            let u = uniforms.next(&mut philox);
            let v = uniforms.next(&mut philox);
            let u = u - 0.5;
            let edge = 0.5 - u.abs();
            let k = ((2.0 * a / edge + b) * u + c).floor();
            if edge >= 0.07 && v <= box_height {
                return k;
            }
            if k < 0.0 || k > count {
                continue;
            }
            let s = (v * alpha / (a / (edge * edge) + b)).ln();
            let bound = (mode + 0.5) * ((mode + 1.0) / (odds * (count - mode + 1.0))).ln()
                + (count + 1.0) * ((count - mode + 1.0) / (count - k + 1.0)).ln()
                + (k + 0.5) * (odds * (count - k + 1.0) / (k + 1.0)).ln()
                + stirling_remainder(mode)
                + stirling_remainder(count - mode)
                - stirling_remainder(k)
                - stirling_remainder(count - k);
            if s <= bound {
                return k;
            }
        }
        f64::NAN
    }
}

impl Sampler for Binomial {
    fn blocks_per_output(&self) -> u64 {
        if self.large { BLOCKS_PER_OUTPUT } else { 42 }
    }

    fn sample(&self, philox: Philox) -> f64 {
        if self.count <= 0.0 || (!self.mirrored && self.rare <= 0.0) {
            return 0.0;
        }
        if self.mirrored && self.rare <= 0.0 {
            return self.count;
        }
        if self.rare.is_nan() || self.count.is_nan() {
            return f64::NAN;
        }
        let events = if self.large { self.sample_large(philox) } else { self.sample_small(philox) };
        if self.mirrored { self.count - events } else { events }
    }
}

/// The remainder of Stirling's formula for `ln(k!)`: a table up to ten, a series beyond.
fn stirling_remainder(k: f64) -> f64 {
    const TABLE: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    match TABLE.get(k as usize) {
        Some(&remainder) if k <= 9.0 => remainder,
        _ => {
            let square = (k + 1.0) * (k + 1.0);
            (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use num_traits::ToBytes;

    use super::super::philox::tests::fingerprint;
    use super::*;

    const SAMPLES: usize = 501;

    /// Fingerprint and first row of two runs of a stateful op, each filled in two parts.
    fn run<T>(mut philox: Philox, samplers: &[impl Sampler + Copy], steps: usize) -> (u64, Vec<T>)
    where
        T: FromSample + Default + ToBytes<Bytes: IntoIterator<Item = u8>>,
    {
        let len = SAMPLES * samplers.len();
        let mut all = Vec::new();
        for _ in 0..steps {
            let start = philox.reserve_outputs(len as u64);
            let mut step = vec![T::default(); len];
            let (head, tail) = step.split_at_mut(777);
            let sampler = |parameter: usize| samplers[parameter];
            let shape = [SAMPLES, samplers.len()];
            fill_samples(start, &sampler, shape, 777, tail);
            fill_samples(start, &sampler, shape, 0, head);
            all.extend(step);
        }
        let bytes = all.iter().flat_map(ToBytes::to_le_bytes);
        (fingerprint(bytes), all[..samplers.len()].to_vec())
    }

    fn stateful() -> Philox {
        Philox::from_seeds(7, -11)
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn gamma_is_tensorflow_s() {
        const ALPHAS: [f32; 6] = [0.1, 0.5, 1.0, 1.5, 3.0, 100.0];
        let samplers = ALPHAS.map(|alpha| Gamma::new(f64::from(alpha)));
        let (print, first) = run::<f32>(stateful(), &samplers, 2);
        assert_eq!(first, [2.1965789e-6, 0.16294852, 0.7190597, 1.0544152, 5.7090406, 110.36995]);
        assert_eq!(print, 0x24fba8f96a56e1af);
        let philox = Philox::from_stateless_seed([3, 4]);
        assert_eq!(run::<f32>(philox, &samplers, 1).0, 0xa926e8faf26c1c02);
        let samplers = [0.1, 0.5, 1.0, 1.5, 3.0, 100.0].map(Gamma::new);
        assert_eq!(run::<f64>(stateful(), &samplers, 2).0, 0x0b2a0c82adc67e42);
        let samplers = ALPHAS.map(|alpha| Gamma::new(f16::from_f32(alpha).to_f64()));
        assert_eq!(run::<f16>(stateful(), &samplers, 2).0, 0x11317aae4173424f);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn poisson_is_tensorflow_s() {
        const RATES: [f64; 8] = [0.0, 0.5, 3.0, 9.9, 10.0, 50.0, 1000.0, 1e6];
        let (print, first) = run::<i32>(stateful(), &RATES.map(Poisson::new::<i32>), 2);
        assert_eq!(first[..6], [0, 1, 2, 10, 7, 54]);
        assert_eq!(print, 0xca75f19893cfab7e);
        let print = |samplers: &[Poisson]| run::<f32>(stateful(), samplers, 2).0;
        assert_eq!(print(&RATES.map(Poisson::new::<f32>)), 0x451f90421147d801);
        let samplers = [0.5, 3.0, 20.0, 1e4].map(Poisson::new::<i64>);
        let philox = Philox::from_stateless_seed([3, 4]);
        assert_eq!(run::<i64>(philox, &samplers, 1), (0xaeb2d699db889f19, vec![3, 2, 13, 9969]));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn binomial_is_tensorflow_s() {
        let counts = [0.0, 5.0, 100.0, 1000.0, 20.0, 1e6, 30.0, 10.0];
        let probabilities = [0.5, 0.3, 0.05, 0.4, 0.9, 0.7, 0.0, 1.0];
        let samplers: [_; 8] =
            std::array::from_fn(|index| Binomial::new(counts[index], probabilities[index]));
        let (print, first) = run::<f64>(Philox::from_stateless_seed([3, 4]), &samplers, 1);
        assert_eq!(first, [0.0, 1.0, 8.0, 395.0, 18.0, 700154.0, 0.0, 10.0]);
        assert_eq!(print, 0x0c4bf178eef8a053);
    }

    #[test]
    fn odd_parameters_end() {
        let sample = |sampler: &dyn Sampler| sampler.sample(stateful());
        assert!(sample(&Gamma::new(f64::NAN)).is_nan());
        assert!(sample(&Gamma::new(-5.0)).is_nan());
        assert_eq!(sample(&Gamma::new(0.0)), 0.0);
        assert_eq!(sample(&Gamma::new(f64::INFINITY)), f64::INFINITY);
        assert!(sample(&Poisson::new::<f32>(f64::NAN)).is_nan());
        assert_eq!(sample(&Poisson::new::<f32>(f64::INFINITY)), f64::INFINITY);
        assert_eq!(sample(&Poisson::new::<i32>(f64::INFINITY)), 0.0);
        assert_eq!(sample(&Poisson::new::<i32>(-3.0)), 0.0);
        assert_eq!(i32::from_sample(sample(&Poisson::new::<i32>(1e12))), i32::MAX);
        assert!(sample(&Binomial::new(f64::NAN, 0.3)).is_nan());
        assert!(sample(&Binomial::new(10.0, f64::NAN)).is_nan());
        assert!(sample(&Binomial::new(f64::INFINITY, 0.3)).is_nan());
        assert_eq!(sample(&Binomial::new(10.0, 1.5)), 10.0);
        assert_eq!(sample(&Binomial::new(10.0, -1.5)), 0.0);
        fill_samples(stateful(), &|_| Gamma::new(1.0), [3, 0], 0, &mut [0.0f32; 3]);
    }
}
