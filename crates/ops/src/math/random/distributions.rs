//! Distributions that map blocks of random bits to groups of values.
//!
//! Output is cut into groups of fixed length and each group owns a fixed stretch of the stream, so
//! [`fill`] may be called for any part of a tensor that begins at a group boundary: any division of
//! the work gives the same bits. Distributions with parameters per element are in `rejection`.

use std::marker::PhantomData;

use half::{bf16, f16};

use super::philox::{Philox, join};

/// Values made from a stretch of the random stream.
pub(crate) trait Distribution {
    /// The element type.
    type Item: Copy;
    /// An array of [`Distribution::GROUP`] elements.
    type Group: AsRef<[Self::Item]>;
    /// Elements made at a time.
    const GROUP: usize;
    /// Blocks of the stream that each group owns.
    const BLOCKS_PER_GROUP: u64;

    /// The group whose stretch begins with the block `first` and goes on at `rest`.
    fn group(&self, first: [u32; 4], rest: Philox) -> Self::Group;
}

/// Fills `out`, which begins with group `first_group` of the tensor; the last group may be cut short.
pub(crate) fn fill<D: Distribution>(
    philox: Philox,
    dist: &D,
    first_group: u64,
    out: &mut [D::Item],
) {
    const SIDE_BY_SIDE: usize = 8;
    let mut start = philox.skipped(first_group.wrapping_mul(D::BLOCKS_PER_GROUP));
    for chunk in out.chunks_mut(D::GROUP * SIDE_BY_SIDE) {
        // Stretches of one block lie next to each other, so their blocks are computed together.
        let blocks = (D::BLOCKS_PER_GROUP == 1).then(|| start.blocks::<SIDE_BY_SIDE>());
        for (index, part) in chunk.chunks_mut(D::GROUP).enumerate() {
            let first = blocks.map_or_else(|| start.block(), |blocks| blocks[index]);
            let group = dist.group(first, start.skipped(1));
            part.copy_from_slice(&group.as_ref()[..part.len()]);
            start.skip(D::BLOCKS_PER_GROUP);
        }
    }
}

/// A floating-point type that random ops produce.
pub(crate) trait Real: Copy {
    /// The type in which normal values are computed, `f32` for the narrow types.
    type Wide: Copy + PartialOrd;
    /// An array of one group of this type.
    type Group: AsRef<[Self]>;
    /// An array of one group of the wide type.
    type WideGroup: AsRef<[Self::Wide]>;
    /// Elements made of one block.
    const GROUP: usize;

    /// Uniform values in [0, 1), from the mantissa bits alone.
    fn uniform(block: [u32; 4]) -> Self::Group;
    /// Standard normal values, before rounding to this type.
    fn wide_normal(block: [u32; 4]) -> Self::WideGroup;
    /// Rounds to this type.
    fn narrow(wide: Self::Wide) -> Self;
    /// Rounds a constant to this type.
    fn from_f64(value: f64) -> Self;
    /// The group whose `index`-th element is `value(index)`.
    fn group_from(value: impl FnMut(usize) -> Self) -> Self::Group;
    /// Whether the value is nearer to zero than `bound`.
    fn within(wide: Self::Wide, bound: f32) -> bool;
}

/// Implements [`Real`] for a type: its wide type, its group length, and how its parts are computed.
macro_rules! impl_real {
    ($t:ty, $wide:ty, $group:literal, $uniform:expr, $normal:expr, $narrow:expr) => {
        impl Real for $t {
            type Wide = $wide;
            type Group = [$t; $group];
            type WideGroup = [$wide; $group];
            const GROUP: usize = $group;

            #[inline]
            fn uniform(block: [u32; 4]) -> [$t; $group] {
                $uniform(block)
            }

            #[inline]
            fn wide_normal(block: [u32; 4]) -> [$wide; $group] {
                $normal(block)
            }

            #[inline]
            fn narrow(wide: $wide) -> $t {
                $narrow(wide)
            }

            #[inline]
            fn from_f64(value: f64) -> $t {
                $narrow(value as $wide)
            }

            #[inline]
            fn group_from(value: impl FnMut(usize) -> $t) -> [$t; $group] {
                std::array::from_fn(value)
            }

            #[inline]
            fn within(wide: $wide, bound: f32) -> bool {
                wide.abs() < <$wide>::from(bound)
            }
        }
    };
}

impl_real!(f32, f32, 4, |block: [u32; 4]| block.map(unit_f32), normal_f32, |wide| wide);
impl_real!(f64, f64, 2, uniform_f64, normal_f64, |wide| wide);
impl_real!(f16, f32, 4, |block: [u32; 4]| block.map(unit_f16), normal_f32, f16::from_f32);
impl_real!(bf16, f32, 4, |block: [u32; 4]| block.map(unit_bf16), normal_f32, bf16::from_f32);

/// Uniform in [0, 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uniform<T>(PhantomData<T>);

/// Normal with mean 0 and deviation 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Normal<T>(PhantomData<T>);

/// Standard normal, drawn anew where it falls two deviations or more from the mean.
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
    type Group = T::Group;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline]
    fn group(&self, first: [u32; 4], _rest: Philox) -> T::Group {
        T::uniform(first)
    }
}

impl<T: Real> Distribution for Normal<T> {
    type Item = T;
    type Group = T::Group;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline]
    fn group(&self, first: [u32; 4], _rest: Philox) -> T::Group {
        let wide = T::wide_normal(first);
        T::group_from(|index| T::narrow(wide.as_ref()[index]))
    }
}

impl<T: Real> Distribution for TruncatedNormal<T> {
    type Item = T;
    type Group = T::Group;
    const GROUP: usize = T::GROUP;
    /// 256 samples for each element, of which a handful are used.
    const BLOCKS_PER_GROUP: u64 = T::GROUP as u64 * 64;

    #[inline]
    fn group(&self, first: [u32; 4], mut rest: Philox) -> T::Group {
        let mut wide = T::wide_normal(first);
        let mut index_in_block = 0;
        let mut blocks_left = Self::BLOCKS_PER_GROUP;
        T::group_from(|_| {
            loop {
                if index_in_block == T::GROUP {
                    wide = T::wide_normal(rest.next_block());
                    index_in_block = 0;
                    blocks_left = blocks_left.saturating_sub(1);
                }
                let value = wide.as_ref()[index_in_block];
                index_in_block += 1;
                // One value in twenty is refused; the stretch never runs out in practice.
                if T::within(value, 2.0) || blocks_left == 0 {
                    return T::narrow(value);
                }
            }
        })
    }
}

/// An integer type that random ops produce.
pub(crate) trait Integer: Copy {
    /// An array of one group of this type.
    type Group: AsRef<[Self]>;
    /// Elements made of one block.
    const GROUP: usize;

    /// Random bits as integers.
    fn full_range(block: [u32; 4]) -> Self::Group;
    /// Integers from `low` on, `range` of them; the remainder of the division is not corrected for.
    fn in_range(block: [u32; 4], low: Self, range: u64) -> Self::Group;
    /// How many integers there are from `low` to before `high`, if any.
    fn distance(low: Self, high: Self) -> Option<u64>;
}

/// Implements [`Integer`]: its unsigned twin, its group length, and how a block becomes a group.
macro_rules! impl_integer {
    ($t:ty, $unsigned:ty, $group:literal, $bits:expr) => {
        impl Integer for $t {
            type Group = [$t; $group];
            const GROUP: usize = $group;

            #[inline]
            fn full_range(block: [u32; 4]) -> [$t; $group] {
                $bits(block).map(|bits: $unsigned| bits as $t)
            }

            #[inline]
            fn in_range(block: [u32; 4], low: $t, range: u64) -> [$t; $group] {
                let range = range as $unsigned;
                $bits(block).map(|bits: $unsigned| low.wrapping_add((bits % range.max(1)) as $t))
            }

            #[inline]
            fn distance(low: $t, high: $t) -> Option<u64> {
                (low < high).then(|| (high as $unsigned).wrapping_sub(low as $unsigned) as u64)
            }
        }
    };
}

impl_integer!(i32, u32, 4, |block| block);
impl_integer!(u32, u32, 4, |block| block);
impl_integer!(i64, u64, 2, pairs);
impl_integer!(u64, u64, 2, pairs);

/// Integers in `[low, high)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UniformInt<T> {
    low: T,
    range: u64,
}

impl<T: Integer> UniformInt<T> {
    /// Integers in `[low, high)`; `None` where there are none.
    pub(crate) fn new(low: T, high: T) -> Option<Self> {
        Some(Self { low, range: T::distance(low, high)? })
    }
}

impl<T: Integer> Distribution for UniformInt<T> {
    type Item = T;
    type Group = T::Group;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline]
    fn group(&self, first: [u32; 4], _rest: Philox) -> T::Group {
        T::in_range(first, self.low, self.range)
    }
}

/// Any integer of the type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullInt<T>(PhantomData<T>);

impl<T> Default for FullInt<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Integer> Distribution for FullInt<T> {
    type Item = T;
    type Group = T::Group;
    const GROUP: usize = T::GROUP;
    const BLOCKS_PER_GROUP: u64 = 1;

    #[inline]
    fn group(&self, first: [u32; 4], _rest: Philox) -> T::Group {
        T::full_range(first)
    }
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
#[inline]
fn unit_f16(bits: u32) -> f16 {
    f16::from_bits(15 << 10 | (bits & 0x03ff) as u16) - f16::ONE
}

/// A bfloat16 in [0, 1) from the lower 7 bits.
#[inline]
fn unit_bf16(bits: u32) -> bf16 {
    bf16::from_bits(127 << 7 | (bits & 0x007f) as u16) - bf16::ONE
}

#[inline]
fn pairs([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [join([a, b]), join([c, d])]
}

#[inline]
fn uniform_f64([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    [unit_f64(a, b), unit_f64(c, d)]
}

#[inline]
fn normal_f32([a, b, c, d]: [u32; 4]) -> [f32; 4] {
    let [first, second] = box_muller_f32(a, b);
    let [third, fourth] = box_muller_f32(c, d);
    [first, second, third, fourth]
}

/// Keeps the logarithm finite.
const LOG_ARGUMENT_MIN: f64 = 1.0e-7;

/// Two normal values by the Box-Muller transform, sine before cosine.
#[inline]
fn box_muller_f32(radius_bits: u32, angle_bits: u32) -> [f32; 2] {
    let radius_uniform = unit_f32(radius_bits).max(LOG_ARGUMENT_MIN as f32);
    // The turn is scaled in double precision and rounded once.
    let angle = (std::f64::consts::TAU * f64::from(unit_f32(angle_bits))) as f32;
    let radius = (-2.0 * radius_uniform.ln()).sqrt();
    let (sine, cosine) = angle.sin_cos();
    [sine * radius, cosine * radius]
}

/// As [`box_muller_f32`], in double precision.
#[inline]
fn normal_f64([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    let radius_uniform = unit_f64(a, b).max(LOG_ARGUMENT_MIN);
    let angle = std::f64::consts::TAU * unit_f64(c, d);
    let radius = (-2.0 * radius_uniform.ln()).sqrt();
    let (sine, cosine) = angle.sin_cos();
    [sine * radius, cosine * radius]
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

    /// Equal bits where logarithm, sine and cosine come from glibc, as they do in TensorFlow.
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
