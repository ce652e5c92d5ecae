//! Philox4x32-10 and its distributions in programs, element by element: the same numbers as those of
//! `math::random`.

use thalweg_hlo::{Comparison, GatherDims, Reduction, Value};
use thalweg_tensor::DType;

use crate::lowering::rounded_as;
use crate::math::random::distributions::LOG_ARGUMENT_MIN;
use crate::math::random::elementary::{
    COSINE_COEFFICIENTS, FIRST_SLICE, LOG_COEFFICIENTS, QUARTERS_SCALED, SINE_COEFFICIENTS, SLICES,
};
use crate::math::random::philox::{KEY_STEPS, MULTIPLIERS, ROUNDS, SCRAMBLE_KEY};

/// Blocks of the stream that a truncated normal distribution reserves for each element.
const TRUNCATED_BLOCKS: usize = 64;

/// A position in the stream of a generator: scalars.
pub(crate) struct Stream {
    /// The two words of the key (uint32).
    key: [Value; 2],
    /// The two words of the counter (uint64), lower one first.
    counter: [Value; 2],
}

/// The four words of a block (uint32), each for many blocks.
type Block = [Value; 4];

/// The lower and the upper half of 64-bit words.
fn halves(word: &Value) -> [Value; 2] {
    let upper = word.shift_right_logical(&word.scalar_like(32.0));
    [word.convert(DType::UInt32), upper.convert(DType::UInt32)]
}

/// 64-bit words from their halves.
fn join(lower: &Value, upper: &Value) -> Value {
    let upper = upper.convert(DType::UInt64);
    upper.shift_left(&upper.scalar_like(32.0)).or(&lower.convert(DType::UInt64))
}

/// The blocks at these counters.
fn philox(mut counter: Block, mut key: [Value; 2]) -> Block {
    let product = |word: &Value, multiplier: u32| {
        let wide = word.convert(DType::UInt64);
        halves(&wide.times(&wide.scalar_like(multiplier.into())))
    };
    for _ in 0..ROUNDS {
        let [low0, high0] = product(&counter[0], MULTIPLIERS[0]);
        let [low1, high1] = product(&counter[2], MULTIPLIERS[1]);
        counter =
            [high1.xor(&counter[1]).xor(&key[0]), low1, high0.xor(&counter[3]).xor(&key[1]), low0];
        key = [0, 1].map(|i| key[i].plus(&key[i].scalar_like(KEY_STEPS[i].into())));
    }
    counter
}

impl Stream {
    /// The position with this key and counter: scalars of dtype uint64.
    pub(crate) fn new(key: &Value, counter: [Value; 2]) -> Stream {
        Stream { key: halves(key), counter }
    }

    /// The position of a stateless op with these seeds: scalars of dtype uint64.
    pub(crate) fn from_stateless_seed([first, second]: &[Value; 2]) -> Stream {
        let ([c0, c1], [c2, c3]) = (halves(first), halves(second));
        let key = SCRAMBLE_KEY.map(|k| c0.scalar_like(k.into()));
        let [key0, key1, low, high] = philox([c0, c1, c2, c3], key);
        let upper = join(&low, &high);
        Stream { key: [key0, key1], counter: [upper.scalar_like(0.0), upper] }
    }

    /// Key and counter, as the arguments of [`Stream::new`].
    pub(crate) fn words(&self) -> (Value, &[Value; 2]) {
        (join(&self.key[0], &self.key[1]), &self.counter)
    }

    /// The counter `count` blocks ahead.
    pub(crate) fn counter_after(&self, count: u64) -> [Value; 2] {
        let [low, high] = &self.counter;
        self.sum(&low.splat_integer(DType::UInt64, &[], count.into()), low, high)
    }

    /// The 128-bit sum of the counter and 64-bit numbers.
    fn sum(&self, count: &Value, low: &Value, high: &Value) -> [Value; 2] {
        let sum = low.plus(count);
        let carry = sum.compare(Comparison::Less, low).convert(DType::UInt64);
        [sum, high.plus(&carry)]
    }

    /// The blocks at these distances (uint64) from the position.
    fn blocks(&self, distances: &Value) -> Block {
        let [low, high] = self.sum(distances, &self.counter[0], &self.counter[1]);
        let ([c0, c1], [c2, c3]) = (halves(&low), halves(&high));
        philox([c0, c1, c2, c3], self.key.clone())
    }

    /// For `len` elements in groups of `group`, a power of two: the block of each one's group, and its
    /// position in the group (uint32).
    fn elements(&self, len: usize, group: usize) -> (Block, Value) {
        let index = self.counter[0].iota(DType::UInt64, &[len], 0);
        let shift = index.scalar_like(group.trailing_zeros().into());
        let block = self.blocks(&index.shift_right_logical(&shift));
        let index = index.convert(DType::UInt32);
        (block, index.and(&index.scalar_like(group as f64 - 1.0)))
    }

    /// Floats in [0, 1) of this dtype.
    pub(crate) fn uniform(&self, dtype: DType, len: usize) -> Value {
        let (block, position) = self.elements(len, group_of(dtype));
        match dtype {
            DType::Double => {
                let [upper, lower] = pair_of(&block, &position);
                unit_f64(&upper, &lower)
            }
            _ => unit(&word_of(&block, &position), dtype),
        }
    }

    /// Standard normal floats of this dtype.
    pub(crate) fn normal(&self, dtype: DType, len: usize) -> Value {
        let (block, position) = self.elements(len, group_of(dtype));
        narrow(&wide_normal(&block, &position, dtype), dtype)
    }

    /// Standard normal floats of this dtype with absolute values below 2: others are replaced by the next
    /// ones of the group's part of the stream.
    pub(crate) fn truncated_normal(&self, dtype: DType, len: usize) -> Value {
        let group = group_of(dtype);
        let (groups, blocks) = (len.div_ceil(group), group * TRUNCATED_BLOCKS);
        let any = &self.counter[0];
        let wide = if dtype == DType::Double { DType::Double } else { DType::Float };
        // The number of blocks drawn, the last of them, and what has been taken from those before. The
        // drawn values are a result of an iteration so that they are computed once.
        let drawn = any.splat(DType::UInt64, &[], 0.0);
        let filled = any.splat(DType::UInt32, &[groups, 1], 0.0);
        let values = any.splat(wide, &[groups, group], 0.0);
        let initial = [drawn, values.clone(), filled, values];
        let is_open = |state: &[Value]| {
            let is_unfilled = state[2].compare_to(Comparison::Less, group as f64);
            let is_left = state[0].compare_to(Comparison::LessEqual, blocks as f64);
            is_unfilled.reduce(Reduction::Or, &[0, 1]).and(&is_left)
        };
        let draw = |state: &[Value]| {
            let [drawn, last, filled, values] = state else { return Vec::new() };
            let position = any.iota(DType::UInt32, &[1, group], 1);
            let is_first = drawn.compare_to(Comparison::Equal, 0.0);
            let is_final = drawn.compare_to(Comparison::Equal, blocks as f64);
            let is_accepted = last.abs().compare_to(Comparison::Less, 2.0).or(&is_final);
            let is_accepted = is_accepted.and(&is_first.not());
            let (mut filled, mut values) = (filled.clone(), values.clone());
            for i in 0..group {
                let (value, takes) =
                    (last.slice_dim(1, i, i + 1), is_accepted.slice_dim(1, i, i + 1));
                let is_place = position.compare(Comparison::Equal, &filled).and(&takes);
                values = is_place.select(&value, &values);
                filled = filled.plus(&takes.convert(DType::UInt32));
            }
            let index = any.iota(DType::UInt64, &[groups, 1], 0);
            let distances = index.times(&index.scalar_like(blocks as f64)).plus(drawn);
            let next = wide_normal(&self.blocks(&distances), &position, dtype);
            vec![drawn.plus(&drawn.scalar_like(1.0)), next, filled, values]
        };
        let values = Value::repeat_while(&initial, is_open, draw).remove(3);
        narrow(&values, dtype).reshape(&[groups * group]).slice_dim(0, 0, len)
    }

    /// Integers from random bits, of an unsigned dtype of this size.
    fn bits(&self, size: usize, len: usize) -> Value {
        let (block, position) = self.elements(len, 16 / size);
        match size {
            8 => {
                let [lower, upper] = pair_of(&block, &position);
                join(&lower, &upper)
            }
            _ => word_of(&block, &position),
        }
    }

    /// Integers of this dtype, any with the same probability.
    pub(crate) fn full_int(&self, dtype: DType, len: usize) -> Value {
        signed_as(&self.bits(dtype.size(), len), dtype)
    }

    /// Integers of this dtype from `low` on, `range` different ones.
    pub(crate) fn uniform_int(&self, dtype: DType, len: usize, low: i128, range: u64) -> Value {
        let bits = self.bits(dtype.size(), len);
        let rest = bits.remainder(&bits.splat_integer(bits.dtype(), &[], range.into()));
        let low = bits.splat_integer(dtype, &[], low);
        signed_as(&rest, dtype).plus(&low)
    }
}

/// Elements that a block makes.
fn group_of(dtype: DType) -> usize {
    if dtype == DType::Double { 2 } else { 4 }
}

/// Unsigned integers as the dtype of the same size.
fn signed_as(x: &Value, dtype: DType) -> Value {
    if x.dtype() == dtype { x.clone() } else { x.bitcast(dtype) }
}

/// The word at a position from 0 to 3.
fn word_of(block: &Block, position: &Value) -> Value {
    let is_odd = position.and(&position.scalar_like(1.0)).compare_to(Comparison::Equal, 1.0);
    let first = is_odd.select(&block[1], &block[0]);
    let second = is_odd.select(&block[3], &block[2]);
    position.compare_to(Comparison::Less, 2.0).select(&first, &second)
}

/// The two words at a position of 0 or 1.
fn pair_of(block: &Block, position: &Value) -> [Value; 2] {
    let is_first = position.compare_to(Comparison::Equal, 0.0);
    [is_first.select(&block[0], &block[2]), is_first.select(&block[1], &block[3])]
}

/// Of words, the lower bits as a number in [0, 1): as many as the mantissa of `dtype` has.
fn unit(word: &Value, dtype: DType) -> Value {
    let bits = match dtype {
        DType::Half => 10,
        DType::BFloat16 => 7,
        _ => 23,
    };
    let mantissa = word.and(&word.scalar_like(f64::from((1u32 << bits) - 1)));
    (mantissa.convert(DType::Float) * (0.5f64).powi(bits)).convert(dtype)
}

/// A double in [0, 1) from the lower 20 bits of `upper` and all of `lower`.
fn unit_f64(upper: &Value, lower: &Value) -> Value {
    let upper = upper.and(&upper.scalar_like(f64::from(0x000f_ffff)));
    join(lower, &upper).convert(DType::Double) * (0.5f64).powi(52)
}

/// Standard normal values, in the dtype in which they are computed.
fn wide_normal(block: &Block, position: &Value, dtype: DType) -> Value {
    let parity = position.and(&position.scalar_like(1.0));
    if dtype == DType::Double {
        let [a, b, c, d] = block;
        let uniform = unit_f64(a, b);
        let radius = (uniform.maximum(&uniform.scalar_like(LOG_ARGUMENT_MIN)).log() * -2.0).sqrt();
        let angle = unit_f64(c, d) * std::f64::consts::TAU;
        let is_sine = parity.compare_to(Comparison::Equal, 0.0);
        return is_sine.select(&angle.sine(), &angle.cosine()).times(&radius);
    }
    let is_first = position.compare_to(Comparison::Less, 2.0);
    let radius_bits = is_first.select(&block[0], &block[2]);
    let angle_bits = is_first.select(&block[1], &block[3]);
    let uniform = unit(&radius_bits, DType::Float);
    let logarithm = ln(&uniform.maximum(&uniform.scalar_like(LOG_ARGUMENT_MIN)));
    // In double precision, because an accelerator may round roots of single precision otherwise.
    let radius = (logarithm * -2.0).convert(DType::Double).sqrt().convert(DType::Float);
    let turn = unit(&angle_bits, DType::Float).convert(DType::Double);
    let angle = (turn * std::f64::consts::TAU).convert(DType::Float);
    shifted_sine(&angle, &parity).times(&radius)
}

/// Rounds to the dtype.
fn narrow(wide: &Value, dtype: DType) -> Value {
    let rounded = rounded_as(wide, dtype);
    if dtype != DType::Half {
        return rounded.convert(dtype);
    }
    // Rounding flushes subnormal numbers, whose spacing is that of single precision beside 0.75.
    let is_subnormal = wide.abs().compare_to(Comparison::Less, (0.5f64).powi(14));
    is_subnormal.select(&(wide + 0.75 - 0.75), &rounded).convert(dtype)
}

/// The polynomial with these coefficients, lowest first.
fn polynomial(x: &Value, coefficients: &[f64]) -> Value {
    let (highest, lower) = coefficients.split_last().unwrap_or((&0.0, &[]));
    lower.iter().rev().fold(x.full_like(*highest), |sum, &c| sum * x + c)
}

/// The natural logarithm of a positive normal number of dtype float, as `elementary::ln`.
fn ln(x: &Value) -> Value {
    let bits = x.bitcast(DType::UInt32);
    let offset = bits.minus(&bits.scalar_like(FIRST_SLICE.into()));
    let signed = offset.bitcast(DType::Int32);
    let exponent = signed.shift_right_arithmetic(&signed.scalar_like(23.0)).convert(DType::Double);
    let whole = offset.and(&offset.scalar_like(f64::from(0xff80_0000u32)));
    let mantissa = bits.minus(&whole).bitcast(DType::Float).convert(DType::Double);
    let slice = offset.shift_right_logical(&offset.scalar_like(19.0));
    let slice = slice.and(&slice.scalar_like(15.0)).convert(DType::Int32);
    let inverse = entries(&SLICES.map(|s| s.inverse), &slice);
    let log = entries(&SLICES.map(|s| s.log), &slice);
    let r = mantissa * inverse - 1.0;
    let curve = polynomial(&r, &LOG_COEFFICIENTS) * r.square();
    (curve + (log + exponent * std::f64::consts::LN_2 + r)).convert(DType::Float)
}

/// The entries of a table at these indices.
fn entries(table: &[f64], indices: &Value) -> Value {
    let dims = GatherDims {
        collapsed_slice_dims: vec![0],
        start_index_map: vec![0],
        index_vector_dim: indices.rank(),
        ..GatherDims::default()
    };
    indices.doubles(table).gather(indices, &dims, &[1], indices.dims())
}

/// The sine of an angle in [0, 2 pi] plus as many quarter turns, as `elementary::sin_cos`.
fn shifted_sine(angle: &Value, quarters: &Value) -> Value {
    let angle = angle.convert(DType::Double);
    let scaled = (&angle * QUARTERS_SCALED).convert(DType::Int32);
    let rounded = scaled.plus(&scaled.scalar_like(f64::from(1 << 23)));
    let quarter = rounded.shift_right_arithmetic(&rounded.scalar_like(24.0));
    let x = angle - quarter.convert(DType::Double) * std::f64::consts::FRAC_PI_2;
    let square = x.square();
    let [s1, s2, s3] = SINE_COEFFICIENTS;
    let [c1, c2, c3, c4] = COSINE_COEFFICIENTS;
    let sine = (&x + &x * (polynomial(&square, &[s1, s2, s3]) * &square)).convert(DType::Float);
    let cosine = polynomial(&square, &[1.0, c1, c2, c3, c4]).convert(DType::Float);
    let quarter = quarter.plus(&quarters.convert(DType::Int32));
    let has = |bit: f64| quarter.and(&quarter.scalar_like(bit)).compare_to(Comparison::Equal, bit);
    let value = has(1.0).select(&cosine, &sine);
    has(2.0).select(&value.negate(), &value)
}
