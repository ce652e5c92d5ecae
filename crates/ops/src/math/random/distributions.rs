//! Distributions that map blocks of random bits to groups of values.
//!
//! Output is divided into groups of fixed length, and each group has a fixed range of the random
//! stream, so [`fill`] may be called for any part of a tensor that begins at a group boundary: any
//! division of the work gives the same bits. Distributions with parameters per element are in
//! `rejection`.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::elementary;
use super::philox::{Philox, SIDE_BY_SIDE, Words, join};

/// A distribution whose values come from fixed ranges of the random stream.
pub(crate) trait Distribution {
    /// The element type.
    type Item: Copy;
    /// Elements per group.
    const GROUP: usize;
    /// Blocks of the stream per group.
    const BLOCKS_PER_GROUP: u64;

    /// Computes consecutive groups that fill `out`; the last may be cut short.
    ///
    /// `words` has the first block of each group, and the range of the first group begins at
    /// `start`.
    fn groups(&self, words: &Words, start: Philox, out: &mut [Self::Item]);
}

/// Fills `out`, which begins with group `first_group` of the tensor; the last group may be cut
/// short.
pub(crate) fn fill<D: Distribution>(
    philox: Philox,
    dist: &D,
    first_group: u64,
    out: &mut [D::Item],
) {
    let start = philox.skipped(first_group.wrapping_mul(D::BLOCKS_PER_GROUP));
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
        {
            // SAFETY: the processor has what the function was compiled for.
            return unsafe { fill_avx512(start, dist, out) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function was compiled for.
            return unsafe { fill_avx2(start, dist, out) };
        }
    }
    fill_portable(start, dist, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw")]
fn fill_avx512<D: Distribution>(start: Philox, dist: &D, out: &mut [D::Item]) {
    fill_portable(start, dist, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2<D: Distribution>(start: Philox, dist: &D, out: &mut [D::Item]) {
    fill_portable(start, dist, out);
}

/// Compiled once for each vector width; the arithmetic, and so the bits, are the same.
#[inline(always)]
fn fill_portable<D: Distribution>(mut start: Philox, dist: &D, out: &mut [D::Item]) {
    for chunk in out.chunks_mut(D::GROUP * SIDE_BY_SIDE) {
        let words = start.side_by_side(D::BLOCKS_PER_GROUP);
        dist.groups(&words, start, chunk);
        start.skip(D::BLOCKS_PER_GROUP.wrapping_mul(SIDE_BY_SIDE as u64));
    }
}

/// A floating-point type that random ops produce.
pub(crate) trait Real: Copy {
    /// The type in which normal values are computed, `f32` for the narrow types.
    type Wide: Copy + PartialOrd;
    /// Array of one group of this type.
    type Group: AsRef<[Self]>;
    /// Array of one group of the wide type.
    type WideGroup: AsRef<[Self::Wide]>;
    /// Array of `SIDE_BY_SIDE` groups of this type.
    type Many: AsRef<[Self]>;
    /// Array of `SIDE_BY_SIDE` groups of the wide type.
    type WideMany: AsRef<[Self::Wide]>;
    /// Elements per block.
    const GROUP: usize;

    /// Uniform values in [0, 1), with random mantissa bits.
    fn uniform(block: [u32; 4]) -> Self::Group;
    /// Standard normal values, before rounding to this type.
    fn wide_normal(block: [u32; 4]) -> Self::WideGroup;
    /// As `uniform`, for `SIDE_BY_SIDE` blocks.
    fn uniforms(words: &Words) -> Self::Many;
    /// As `wide_normal`, for `SIDE_BY_SIDE` blocks.
    fn wide_normals(words: &Words) -> Self::WideMany;
    /// Rounds to this type.
    fn narrow(wide: Self::Wide) -> Self;
    /// Rounds to this type; the absolute value must be below ten.
    fn narrow_small(wide: Self::Wide) -> Self;
    /// Rounds a constant to this type.
    fn from_f64(value: f64) -> Self;
    /// The group whose `index`-th element is `value(index)`.
    fn group_from(value: impl FnMut(usize) -> Self) -> Self::Group;
    /// Whether the absolute value is below `bound`.
    fn within(wide: Self::Wide, bound: f32) -> bool;
}

/// Implements [`Real`] for a type from its wide type, its group length, and the functions for its
/// parts.
macro_rules! impl_real {
    ($t:ty, $wide:ty, $group:literal, $uniform:expr, $normal:expr, $normals:expr, $narrow:expr, $narrow_small:expr) => {
        impl Real for $t {
            type Wide = $wide;
            type Group = [$t; $group];
            type WideGroup = [$wide; $group];
            type Many = [$t; $group * SIDE_BY_SIDE];
            type WideMany = [$wide; $group * SIDE_BY_SIDE];
            const GROUP: usize = $group;

            #[inline(always)]
            fn uniform(block: [u32; 4]) -> [$t; $group] {
                const PARTS: usize = $group / 2;
                let [a, b, c, d] = block;
                let words = [join([a, b]), join([c, d])];
                let mut group = [<$t>::default(); $group];
                for (pair, word) in group.as_chunks_mut::<PARTS>().0.iter_mut().zip(words) {
                    *pair = $uniform(word);
                }
                group
            }

            #[inline(always)]
            fn uniforms(words: &Words) -> Self::Many {
                const PARTS: usize = $group / 2;
                let mut many = [<$t>::default(); $group * SIDE_BY_SIDE];
                for (pair, &word) in many.as_chunks_mut::<PARTS>().0.iter_mut().zip(words) {
                    *pair = $uniform(word);
                }
                many
            }

            #[inline(always)]
            fn wide_normal(block: [u32; 4]) -> [$wide; $group] {
                $normal(block)
            }

            #[inline(always)]
            fn wide_normals(words: &Words) -> Self::WideMany {
                $normals(words)
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> $t {
                $narrow(wide)
            }

            #[inline(always)]
            fn narrow_small(wide: $wide) -> $t {
                $narrow_small(wide)
            }

            #[inline]
            fn from_f64(value: f64) -> $t {
                $narrow(value as $wide)
            }

            #[inline]
            fn group_from(value: impl FnMut(usize) -> $t) -> [$t; $group] {
                std::array::from_fn(value)
            }

            #[inline(always)]
            fn within(wide: $wide, bound: f32) -> bool {
                wide.abs() < <$wide>::from(bound)
            }
        }
    };
}

impl_real!(
    f32,
    f32,
    4,
    |word| split(word).map(unit_f32),
    normal_f32,
    normals_f32,
    |wide| wide,
    |wide| wide
);
impl_real!(
    f64,
    f64,
    2,
    |word| [unit_f64(split(word)[0], split(word)[1])],
    normal_f64,
    normals_f64,
    |wide| wide,
    |wide| wide
);
impl_real!(
    f16,
    f32,
    4,
    |word| split(word).map(unit_f16),
    normal_f32,
    normals_f32,
    f16::from_f32,
    small_f16
);
impl_real!(
    bf16,
    f32,
    4,
    |word| split(word).map(unit_bf16),
    normal_f32,
    normals_f32,
    bf16::from_f32,
    bf16::from_f32
);

/// Uniform in [0, 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uniform<T>(PhantomData<T>);

/// Normal with mean 0 and standard deviation 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Normal<T>(PhantomData<T>);

/// Truncated standard normal: values two or more standard deviations from the mean are redrawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TruncatedNormal<T>(PhantomData<T>);

impl<T> Default for Uniform<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Normal<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for TruncatedNormal<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Real> Distribution for Uniform<T> {
    type Item = T;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline(always)]
    fn groups(&self, words: &Words, _start: Philox, out: &mut [T]) {
        copy_values(T::uniforms(words).as_ref(), out);
    }
}

impl<T: Real> Distribution for Normal<T> {
    type Item = T;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline(always)]
    fn groups(&self, words: &Words, _start: Philox, out: &mut [T]) {
        let wide = T::wide_normals(words);
        for (value, &wide) in out.iter_mut().zip(wide.as_ref()) {
            *value = T::narrow_small(wide);
        }
    }
}

impl<T: Real> Distribution for TruncatedNormal<T> {
    type Item = T;
    const GROUP: usize = T::GROUP;
    /// 256 samples are reserved for each element; a few of them are used.
    const BLOCKS_PER_GROUP: u64 = T::GROUP as u64 * 64;

    #[inline(always)]
    fn groups(&self, words: &Words, start: Philox, out: &mut [T]) {
        let wide = T::wide_normals(words);
        let first_values = wide.as_ref().chunks_exact(T::GROUP);
        for ((group, values), index) in out.chunks_mut(T::GROUP).zip(first_values).zip(0..) {
            if values.iter().all(|&value| T::within(value, 2.0)) {
                for (value, &wide) in group.iter_mut().zip(values) {
                    *value = T::narrow_small(wide);
                }
            } else {
                let stretch = start.skipped(Self::BLOCKS_PER_GROUP.wrapping_mul(index));
                draw_again::<T>(values, stretch, Self::BLOCKS_PER_GROUP, group);
            }
        }
    }
}

/// Fills a group from the accepted values of `first`, then from the following blocks.
fn draw_again<T: Real>(first: &[T::Wide], stretch: Philox, blocks: u64, group: &mut [T]) {
    let accepted = |value: &T::Wide| T::within(*value, 2.0);
    let mut places = group.iter_mut();
    for (&value, place) in first.iter().filter(|value| accepted(value)).zip(places.by_ref()) {
        *place = T::narrow_small(value);
    }
    let mut next = places.next();
    // One value in twenty is rejected; the range does not run out in practice, but it is finite.
    for block in 1..blocks {
        let is_last = block + 1 == blocks;
        for &value in T::wide_normal(stretch.skipped(block).block()).as_ref() {
            let Some(place) = next.take() else { return };
            if accepted(&value) || is_last {
                *place = T::narrow_small(value);
                next = places.next();
            } else {
                next = Some(place);
            }
        }
    }
}

/// Copies values until `out` is full; usually all values fit.
#[inline(always)]
fn copy_values<T: Copy>(values: &[T], out: &mut [T]) {
    let count = out.len().min(values.len());
    out[..count].copy_from_slice(&values[..count]);
}

/// An integer type that random ops produce.
pub(crate) trait Integer: Copy {
    /// Elements per block.
    const GROUP: usize;

    /// Integers from uniformly random bits.
    fn full_range(words: &Words, out: &mut [Self]);
    /// Integers `low + bits % range`. The modulo bias is not corrected, as in TensorFlow.
    fn in_range(words: &Words, low: Self, range: u64, out: &mut [Self]);
    /// `high - low`, if positive.
    fn distance(low: Self, high: Self) -> Option<u64>;
}

/// Implements [`Integer`] from the type's unsigned counterpart, the number of values in a 64-bit
/// word, and how it is split.
macro_rules! impl_integer {
    ($t:ty, $unsigned:ty, $per_word:literal, $split:expr) => {
        impl Integer for $t {
            const GROUP: usize = 2 * $per_word;

            #[inline(always)]
            fn full_range(words: &Words, out: &mut [$t]) {
                let mut many = [0; $per_word * 2 * SIDE_BY_SIDE];
                for (part, &word) in many.as_chunks_mut::<$per_word>().0.iter_mut().zip(words) {
                    *part = $split(word).map(|bits: $unsigned| bits as $t);
                }
                copy_values(&many, out);
            }

            #[inline(always)]
            fn in_range(words: &Words, low: $t, range: u64, out: &mut [$t]) {
                Self::full_range(words, out);
                let range = (range as $unsigned).max(1);
                for value in out {
                    *value = low.wrapping_add((*value as $unsigned % range) as $t);
                }
            }

            #[inline]
            fn distance(low: $t, high: $t) -> Option<u64> {
                (low < high).then(|| (high as $unsigned).wrapping_sub(low as $unsigned) as u64)
            }
        }
    };
}

impl_integer!(i32, u32, 2, split);
impl_integer!(u32, u32, 2, split);
impl_integer!(i64, u64, 1, |word: u64| [word]);
impl_integer!(u64, u64, 1, |word: u64| [word]);

/// Integers in `[low, high)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UniformInt<T> {
    low: T,
    range: u64,
}

impl<T: Integer> UniformInt<T> {
    /// Integers in `[low, high)`; `None` if the interval is empty.
    pub(crate) fn new(low: T, high: T) -> Option<Self> {
        Some(Self { low, range: T::distance(low, high)? })
    }
}

impl<T: Integer> Distribution for UniformInt<T> {
    type Item = T;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline(always)]
    fn groups(&self, words: &Words, _start: Philox, out: &mut [T]) {
        T::in_range(words, self.low, self.range, out);
    }
}

/// Uniform over all values of the integer type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullInt<T>(PhantomData<T>);

impl<T> Default for FullInt<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Integer> Distribution for FullInt<T> {
    type Item = T;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline(always)]
    fn groups(&self, words: &Words, _start: Philox, out: &mut [T]) {
        T::full_range(words, out);
    }
}

/// The two 32-bit samples in a word, in the order of the stream.
#[inline(always)]
fn split(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// A float in [0, 1) from the lower 23 bits.
#[inline]
pub(crate) fn unit_f32(bits: u32) -> f32 {
    f32::from_bits(127 << 23 | bits & 0x007f_ffff) - 1.0
}

/// A double in [0, 1) from the lower 20 bits of `upper` and all of `lower`.
#[inline]
pub(crate) fn unit_f64(upper: u32, lower: u32) -> f64 {
    f64::from_bits(1023 << 52 | join([lower, upper & 0x000f_ffff])) - 1.0
}

/// A half-precision float in [0, 1) from the lower 10 bits.
#[inline(always)]
fn unit_f16(bits: u32) -> f16 {
    // The value in single precision has at most ten significant bits, so its upper bits are those
    // of the half-precision number except for the exponent's bias.
    const SCALE: f32 = 1.0 / 1024.0;
    const BIASES_APART: u32 = (127 - 15) << 10;
    let single = ((bits & 0x03ff) as f32 * SCALE).to_bits() >> 13;
    f16::from_bits(single.saturating_sub(BIASES_APART) as u16)
}

/// A bfloat16 in [0, 1) from the lower 7 bits.
#[inline(always)]
fn unit_bf16(bits: u32) -> bf16 {
    const SCALE: f32 = 1.0 / 128.0;
    bf16::from_bits((((bits & 0x007f) as f32 * SCALE).to_bits() >> 16) as u16)
}

/// Rounds a number far below the largest half-precision number, ties to even, without a branch.
#[inline(always)]
fn small_f16(wide: f32) -> f16 {
    const LEAST_NORMAL: u32 = (127 - 14) << 23;
    const BIASES_APART: u32 = (127 - 15) << 23;
    // Adding this to a subnormal number leaves its rounded bits in the low bits of the sum.
    const ALIGNER: f32 = 0.5;
    let sign = (wide.to_bits() >> 16) & 0x8000;
    let bits = wide.to_bits() & 0x7fff_ffff;
    let is_odd = bits >> 13 & 1;
    let normal = bits.wrapping_sub(BIASES_APART).wrapping_add(0x0fff + is_odd) >> 13;
    let subnormal = (f32::from_bits(bits) + ALIGNER).to_bits().wrapping_sub(ALIGNER.to_bits());
    let rounded = if bits < LEAST_NORMAL { subnormal } else { normal };
    f16::from_bits((sign | rounded) as u16)
}

/// Minimum argument of the logarithm, which keeps it finite.
pub(crate) const LOG_ARGUMENT_MIN: f64 = 1.0e-7;

/// A random angle in [0, 2 pi); scaled in double precision and rounded once.
#[inline(always)]
pub(crate) fn turn_f32(bits: u32) -> f32 {
    (std::f64::consts::TAU * f64::from(unit_f32(bits))) as f32
}

#[inline(always)]
fn radius_f32(bits: u32) -> f32 {
    (-2.0 * elementary::ln(unit_f32(bits).max(LOG_ARGUMENT_MIN as f32))).sqrt()
}

/// Two normal values by the Box-Muller transform, sine before cosine.
#[inline(always)]
fn box_muller_f32(word: u64) -> [f32; 2] {
    let [radius_bits, angle_bits] = split(word);
    let radius = radius_f32(radius_bits);
    let (sine, cosine) = elementary::sin_cos(turn_f32(angle_bits));
    [sine * radius, cosine * radius]
}

#[inline(always)]
fn normal_f32([a, b, c, d]: [u32; 4]) -> [f32; 4] {
    let [first, second] = box_muller_f32(join([a, b]));
    let [third, fourth] = box_muller_f32(join([c, d]));
    [first, second, third, fourth]
}

#[inline(always)]
fn normals_f32(words: &Words) -> [f32; 4 * SIDE_BY_SIDE] {
    let mut many = [0.0; 4 * SIDE_BY_SIDE];
    for (pair, &word) in many.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *pair = box_muller_f32(word);
    }
    many
}

/// As [`normal_f32`], in double precision; logarithm, sine and cosine are the C library's.
#[inline]
fn normal_f64([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    let radius_uniform = unit_f64(a, b).max(LOG_ARGUMENT_MIN);
    let angle = std::f64::consts::TAU * unit_f64(c, d);
    let radius = (-2.0 * radius_uniform.ln()).sqrt();
    let (sine, cosine) = elementary::sin_cos_f64(angle);
    [sine * radius, cosine * radius]
}

#[inline(always)]
fn normals_f64(words: &Words) -> [f64; 2 * SIDE_BY_SIDE] {
    let mut many = [0.0; 2 * SIDE_BY_SIDE];
    for (pair, block) in many.as_chunks_mut::<2>().0.iter_mut().zip(words.as_chunks::<2>().0) {
        let ([a, b], [c, d]) = (split(block[0]), split(block[1]));
        *pair = normal_f64([a, b, c, d]);
    }
    many
}

#[cfg(test)]
mod tests {
    use num_traits::ToBytes;

    use super::super::philox::tests::fingerprint;
    use super::*;

    /// Output length: odd, and many blocks of work.
    const LEN: usize = 10_001;

    /// Fingerprint of `steps` runs of a stateful op, each filled in parts, last part first.
    fn run<D>(mut philox: Philox, dist: &D, steps: usize) -> (u64, Vec<D::Item>)
    where
        D: Distribution<Item: Default + ToBytes<Bytes: IntoIterator<Item = u8>>>,
    {
        let mut all = Vec::new();
        for _ in 0..steps {
            let start = philox.reserve_outputs(LEN as u64);
            let mut step = vec![D::Item::default(); LEN];
            let parts: Vec<_> = step.chunks_mut(777 * D::GROUP).enumerate().collect();
            for (part, values) in parts.into_iter().rev() {
                fill(start, dist, part as u64 * 777, values);
            }
            all.extend(step);
        }
        let bytes = all.iter().flat_map(ToBytes::to_le_bytes);
        (fingerprint(bytes), all[..4].to_vec())
    }

    fn stateful() -> Philox {
        Philox::from_seeds(7, -11)
    }

    fn stateless() -> Philox {
        Philox::from_stateless_seed([-5, 123_456_789_012])
    }

    #[test]
    fn one_element_at_a_time() {
        let mut philox = Philox::from_seeds(1, 2);
        for bits in [0x3ed0133c, 0x3edcfa78] {
            let mut out = [0.0f32];
            fill(philox.reserve_outputs(1), &Uniform::default(), 0, &mut out);
            assert_eq!(out[0].to_bits(), bits);
        }
        let mut out = [0.0f32; 3];
        fill(Philox::from_seeds(1, 2), &Normal::default(), 0, &mut out);
        assert_eq!(out.map(f32::to_bits), [0xbf85fcdd, 0x3f56f6e1, 0x3f9e2fe3]);
    }

    #[test]
    fn uniform_is_tensorflow_s() {
        let (print, first) = run(stateful(), &Uniform::<f32>::default(), 2);
        assert_eq!(first, [0.9460726, 0.16017926, 0.67838144, 0.65374684]);
        assert_eq!(print, 0x74f28102dd38253b);
        let (print, first) = run(stateful(), &Uniform::<f64>::default(), 2);
        assert_eq!(
            first,
            [0.5685810337964059, 0.427051601286506, 0.3194691413458155, 0.5929995043713883]
        );
        assert_eq!(print, 0xef5032182b3e2d98);
        assert_eq!(run(stateful(), &Uniform::<f16>::default(), 2).0, 0x37bae16a9dc7752b);
        assert_eq!(run(stateful(), &Uniform::<bf16>::default(), 2).0, 0x1d61c389dd82758a);
        assert_eq!(run(stateless(), &Uniform::<f32>::default(), 1).0, 0x666eddafc7dd7dba);
        assert_eq!(run(stateless(), &Uniform::<f64>::default(), 1).0, 0x71474a14a0dc8cdb);
        assert_eq!(run(stateless(), &Uniform::<f16>::default(), 1).0, 0x2e87fa3f3572a77d);
        assert_eq!(run(stateless(), &Uniform::<bf16>::default(), 1).0, 0x93cb9ab5dcd10f54);
    }

    /// The bits are equal in double precision if the C library is glibc, as in TensorFlow.
    #[cfg(target_env = "gnu")]
    #[test]
    fn normal_is_tensorflow_s() {
        let (print, first) = run(stateful(), &Normal::<f32>::default(), 2);
        assert_eq!(first, [0.28134042, 0.17809987, -0.7247038, -0.5008948]);
        assert_eq!(print, 0x2b2f69098c3525ee);
        let (print, first) = run(stateful(), &Normal::<f64>::default(), 2);
        assert_eq!(
            first,
            [0.47018763959912935, -0.9529671852419608, -0.8333628732176138, -1.2600379000708624]
        );
        assert_eq!(print, 0x90718833e4e770ed);
        assert_eq!(run(stateful(), &Normal::<f16>::default(), 2).0, 0x8561d3509292d516);
        assert_eq!(run(stateful(), &Normal::<bf16>::default(), 2).0, 0x9417bd4d469bb812);
        assert_eq!(run(stateless(), &Normal::<f32>::default(), 1).0, 0x33caddfc16537d1f);
        assert_eq!(run(stateless(), &Normal::<f64>::default(), 1).0, 0x6fb22060e8f815de);
        assert_eq!(run(stateless(), &Normal::<f16>::default(), 1).0, 0xaefde43c9035cb78);
        assert_eq!(run(stateless(), &Normal::<bf16>::default(), 1).0, 0xf2ec265c432f856e);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn truncated_normal_is_tensorflow_s() {
        let (print, first) = run(stateful(), &TruncatedNormal::<f32>::default(), 2);
        assert_eq!(first, [0.28134042, 0.17809987, -0.7247038, -0.5008948]);
        assert_eq!(print, 0x4c4446af59e6b15c);
        let (print, first) = run(stateful(), &TruncatedNormal::<f64>::default(), 2);
        assert_eq!(
            first,
            [0.47018763959912935, -0.9529671852419608, 0.5253452120823991, 0.3584492499570668]
        );
        assert_eq!(print, 0x1eb6625c9802f502);
        assert_eq!(run(stateful(), &TruncatedNormal::<f16>::default(), 2).0, 0x9969134577f45a22);
        assert_eq!(run(stateful(), &TruncatedNormal::<bf16>::default(), 2).0, 0xcbdde9e422c61825);
        assert_eq!(run(stateless(), &TruncatedNormal::<f32>::default(), 1).0, 0x591fc1a8a2c8108a);
        assert_eq!(run(stateless(), &TruncatedNormal::<f64>::default(), 1).0, 0xfd713a77d9b49960);
        assert_eq!(run(stateless(), &TruncatedNormal::<f16>::default(), 1).0, 0xbc704212e4926b88);
        assert_eq!(run(stateless(), &TruncatedNormal::<bf16>::default(), 1).0, 0x3a88a4ac57569aa1);
    }

    #[test]
    fn integers_are_tensorflow_s() {
        let between = UniformInt::new(i32::MIN, i32::MAX).expect("not empty");
        let (print, first) = run(stateful(), &between, 2);
        assert_eq!(first, [561584360, -317423423, -287910604, -1890341382]);
        assert_eq!(print, 0xa9192c76583b1504);
        let between = UniformInt::new(-3i32, 10).expect("not empty");
        assert_eq!(run(stateful(), &between, 2), (0x7ce38faa7ad5fa6f, vec![7, 3, 1, 1]));
        let between = UniformInt::new(i64::MIN, i64::MAX).expect("not empty");
        assert_eq!(run(stateful(), &between, 2).0, 0xc0ae562ab2c3ea1a);
        let between = UniformInt::new(5i64, (1 << 40) + 17).expect("not empty");
        assert_eq!(run(stateful(), &between, 2).0, 0x42ee53677ea43f77);
        assert!(UniformInt::new(3i64, 3).is_none());

        let philox = Philox::from_stateless_seed([3, 4]);
        let (print, first) = run(philox, &FullInt::<i32>::default(), 1);
        assert_eq!(first, [-1860230133, -671226999, -1390659934, 1052501199]);
        assert_eq!(print, 0x00f9816a72aa2e1d);
        assert_eq!(run(philox, &FullInt::<u32>::default(), 1).0, print);
        assert_eq!(run(philox, &FullInt::<i64>::default(), 1).0, 0x49091678fc3c65eb);
        assert_eq!(run(philox, &FullInt::<u64>::default(), 1).0, 0x49091678fc3c65eb);
    }
}
