//! The inverse discrete cosine transform, in the integer arithmetic of libjpeg-turbo, which
//! TensorFlow uses, so that samples are equal.

/// DCT method (`dct_method`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Method {
    /// `INTEGER_FAST`, with 8 fractional bits: TensorFlow's default.
    Fast,
    /// `INTEGER_ACCURATE`, with 13 fractional bits.
    Accurate,
}

/// Dequantization factors of one component, in the form that the transform needs.
pub(super) struct Factors {
    method: Method,
    /// Samples along each side of an output block: 8, 4, 2 or 1.
    pub(super) side: usize,
    values: [i32; 64],
}

/// Scale factors of the AAN transform along one axis, times 2^14.
const AAN: [f64; 8] = [
    1.0,
    1.387_039_845,
    1.306_562_965,
    1.175_875_602,
    1.0,
    0.785_694_958,
    0.541_196_1,
    0.275_899_379,
];

impl Factors {
    pub(super) fn new(quantization: &[u16; 64], method: Method, side: usize) -> Factors {
        // Scaled output is always computed with the accurate transform.
        let method = if side == 8 { method } else { Method::Accurate };
        let mut values = quantization.map(i32::from);
        if method == Method::Fast {
            for (i, value) in values.iter_mut().enumerate() {
                let scale = (AAN[i / 8] * AAN[i % 8] * f64::from(1 << 14)).round() as i64;
                *value = ((i64::from(*value) * scale + (1 << 11)) >> 12) as i32;
            }
        }
        Factors { method, side, values }
    }

    /// Transforms one block into `side` rows of `side` samples, at distance `stride`.
    pub(super) fn transform(&self, block: &[i16; 64], out: &mut [u8], stride: usize) {
        let rounded = |bits: u32| move |x: i32| descale(x, bits);
        match (self.side, self.method) {
            (8, Method::Fast) => self.both(block, out, stride, fast_1d, |x| x, |x| x >> 5),
            (8, Method::Accurate) => {
                self.both(block, out, stride, accurate_1d, rounded(11), rounded(18));
            }
            (4, _) => self.both(block, out, stride, four_1d, rounded(12), rounded(19)),
            (2, _) => self.both(block, out, stride, two_1d, rounded(13), rounded(20)),
            _ => out[0] = sample(descale(self.at(block, 0), 3)),
        }
    }

    #[inline(always)]
    fn at(&self, block: &[i16; 64], i: usize) -> i32 {
        i32::from(block[i]).wrapping_mul(self.values[i])
    }

    /// Transforms columns, then rows.
    #[inline(always)]
    fn both<const N: usize>(
        &self,
        block: &[i16; 64],
        out: &mut [u8],
        stride: usize,
        along: impl Fn([i32; 8]) -> [i32; N],
        after_columns: impl Fn(i32) -> i32,
        after_rows: impl Fn(i32) -> i32,
    ) {
        let flat = |x: i32| along([x, 0, 0, 0, 0, 0, 0, 0])[0];
        if block[1..].iter().all(|&x| x == 0) {
            let value = sample(after_rows(flat(after_columns(flat(self.at(block, 0))))));
            out.chunks_mut(stride).take(N).for_each(|row| row[..N].fill(value));
            return;
        }
        let mut work = [[0; 8]; N];
        for x in 0..8 {
            let column = std::array::from_fn(|y| self.at(block, 8 * y + x));
            for (row, value) in work.iter_mut().zip(along(column)) {
                row[x] = after_columns(value);
            }
        }
        for (row, out) in work.iter().zip(out.chunks_mut(stride)) {
            for (out, value) in out.iter_mut().zip(along(*row)) {
                *out = sample(after_rows(value));
            }
        }
    }
}

/// Right shift with rounding to nearest.
#[inline(always)]
fn descale(x: i32, bits: u32) -> i32 {
    x.wrapping_add(1 << (bits - 1)) >> bits
}

/// A sample as a byte, after adding 128 and clamping.
#[inline(always)]
fn sample(x: i32) -> u8 {
    x.saturating_add(128).clamp(0, 255) as u8
}

/// Product with a fixed-point factor of `bits` fractional bits.
#[inline(always)]
fn times(x: i32, factor: i32) -> i32 {
    x.wrapping_mul(factor)
}

/// Butterfly: the sums of even and odd parts, and their differences in reverse order.
#[inline(always)]
fn mirrored(even: [i32; 4], odd: [i32; 4]) -> [i32; 8] {
    std::array::from_fn(|i| match i {
        0..4 => even[i].wrapping_add(odd[i]),
        _ => even[7 - i].wrapping_sub(odd[7 - i]),
    })
}

/// The Arai-Agui-Nakajima transform along one axis; products are truncated.
#[inline(always)]
fn fast_1d(x: [i32; 8]) -> [i32; 8] {
    let product = |x: i32, factor: i32| times(x, factor) >> 8;
    let [add, sub] = [i32::wrapping_add, i32::wrapping_sub];
    let (tmp10, tmp11) = (add(x[0], x[4]), sub(x[0], x[4]));
    let tmp13 = add(x[2], x[6]);
    let tmp12 = sub(product(sub(x[2], x[6]), 362), tmp13);
    let even = [add(tmp10, tmp13), add(tmp11, tmp12), sub(tmp11, tmp12), sub(tmp10, tmp13)];
    let (z13, z10) = (add(x[5], x[3]), sub(x[5], x[3]));
    let (z11, z12) = (add(x[1], x[7]), sub(x[1], x[7]));
    let tmp7 = add(z11, z13);
    let tmp11 = product(sub(z11, z13), 362);
    let z5 = product(add(z10, z12), 473);
    let tmp10 = sub(product(z12, 277), z5);
    let tmp12 = add(product(z10, -669), z5);
    let tmp6 = sub(tmp12, tmp7);
    let tmp5 = sub(tmp11, tmp6);
    let tmp4 = add(tmp10, tmp5);
    mirrored(even, [tmp7, tmp6, tmp5, tmp4.wrapping_neg()])
}

/// The Loeffler-Ligtenberg-Moschytz transform along one axis, with 13 fractional bits.
#[inline(always)]
fn accurate_1d(x: [i32; 8]) -> [i32; 8] {
    let [add, sub] = [i32::wrapping_add, i32::wrapping_sub];
    let z1 = times(add(x[2], x[6]), 4433);
    let tmp2 = add(z1, times(x[6], -15137));
    let tmp3 = add(z1, times(x[2], 6270));
    let tmp0 = add(x[0], x[4]) << 13;
    let tmp1 = sub(x[0], x[4]) << 13;
    let even = [add(tmp0, tmp3), add(tmp1, tmp2), sub(tmp1, tmp2), sub(tmp0, tmp3)];
    let [tmp0, tmp1, tmp2, tmp3] = [x[7], x[5], x[3], x[1]];
    let z1 = times(add(tmp0, tmp3), -7373);
    let z2 = times(add(tmp1, tmp2), -20995);
    let (z3, z4) = (add(tmp0, tmp2), add(tmp1, tmp3));
    let z5 = times(add(z3, z4), 9633);
    let z3 = add(times(z3, -16069), z5);
    let z4 = add(times(z4, -3196), z5);
    let tmp0 = add(times(tmp0, 2446), add(z1, z3));
    let tmp1 = add(times(tmp1, 16819), add(z2, z4));
    let tmp2 = add(times(tmp2, 25172), add(z2, z3));
    let tmp3 = add(times(tmp3, 12299), add(z1, z4));
    mirrored(even, [tmp3, tmp2, tmp1, tmp0])
}

/// Four samples from eight coefficients; the fifth coefficient is ignored.
#[inline(always)]
fn four_1d(x: [i32; 8]) -> [i32; 4] {
    let [add, sub] = [i32::wrapping_add, i32::wrapping_sub];
    let tmp0 = x[0] << 14;
    let tmp2 = add(times(x[2], 15137), times(x[6], -6270));
    let (tmp10, tmp12) = (add(tmp0, tmp2), sub(tmp0, tmp2));
    let sum = |a: i32, b: i32, c: i32, d: i32| {
        add(add(times(x[7], a), times(x[5], b)), add(times(x[3], c), times(x[1], d)))
    };
    let tmp0 = sum(-1730, 11893, -17799, 8697);
    let tmp2 = sum(-4176, -4926, 7373, 20995);
    [add(tmp10, tmp2), add(tmp12, tmp0), sub(tmp12, tmp0), sub(tmp10, tmp2)]
}

/// Two samples from eight coefficients; of the even ones only the first is used.
#[inline(always)]
fn two_1d(x: [i32; 8]) -> [i32; 2] {
    let [add, sub] = [i32::wrapping_add, i32::wrapping_sub];
    let tmp10 = x[0] << 15;
    let tmp0 = add(
        add(times(x[7], -5906), times(x[5], 6967)),
        add(times(x[3], -10426), times(x[1], 29692)),
    );
    [add(tmp10, tmp0), sub(tmp10, tmp0)]
}
