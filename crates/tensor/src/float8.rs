//! The five 8-bit float formats TensorFlow stores: conversions only, no arithmetic.

/// How a format lays out its 8 bits.
struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// Result of overflow, and whether `0x80` is NaN (then there is no -0).
    special: Special,
}

#[derive(PartialEq)]
enum Special {
    /// Infinities and NaNs as in IEEE 754: the highest exponent is reserved.
    Ieee,
    /// No infinities; NaN is all ones after the sign.
    FiniteAllOnesNan,
    /// No infinities, no negative zero; NaN is `0x80`.
    FiniteNegativeZeroNan,
}

impl Format {
    fn nan(&self) -> u8 {
        match self.special {
            Special::Ieee => 0x7f & !((1 << (self.mantissa_bits - 1)) - 1),
            Special::FiniteAllOnesNan => 0x7f,
            Special::FiniteNegativeZeroNan => 0x80,
        }
    }

    /// The largest magnitude's bits, without sign.
    fn largest(&self) -> u8 {
        match self.special {
            Special::Ieee => 0x7b,
            Special::FiniteAllOnesNan => 0x7e,
            Special::FiniteNegativeZeroNan => 0x7f,
        }
    }

    fn decode(&self, bits: u8) -> f32 {
        let (sign, magnitude) = (bits & 0x80, u32::from(bits & 0x7f));
        let is_nan = match self.special {
            Special::Ieee => magnitude > 0x7c,
            Special::FiniteAllOnesNan => magnitude == 0x7f,
            Special::FiniteNegativeZeroNan => bits == 0x80,
        };
        if is_nan {
            return f32::NAN.copysign(if sign == 0 { 1.0 } else { -1.0 });
        }
        if self.special == Special::Ieee && magnitude == 0x7c {
            return if sign == 0 { f32::INFINITY } else { f32::NEG_INFINITY };
        }
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = (magnitude & ((1 << self.mantissa_bits) - 1)) as f32;
        let unit = 2f32.powi(-(self.mantissa_bits as i32));
        let value = if exponent == 0 {
            mantissa * unit * 2f32.powi(1 - self.bias)
        } else {
            (1.0 + mantissa * unit) * 2f32.powi(exponent - self.bias)
        };
        if sign == 0 { value } else { -value }
    }

    /// Rounds to nearest, ties to even.
    fn encode(&self, value: f32) -> u8 {
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        if value.is_nan() {
            return if self.special == Special::FiniteNegativeZeroNan {
                0x80
            } else {
                sign | self.nan()
            };
        }
        let overflow = match self.special {
            Special::Ieee => sign | 0x7c,
            Special::FiniteAllOnesNan => sign | 0x7f,
            Special::FiniteNegativeZeroNan => 0x80,
        };
        if value.is_infinite() {
            return overflow;
        }
        // In f64 every step below is exact, so the one rounding is `round_ties_even`.
        let magnitude = f64::from(value.abs());
        let exponent_min = 1 - self.bias;
        let exponent =
            if magnitude == 0.0 { exponent_min } else { exponent_of(magnitude).max(exponent_min) };
        let unit = 2f64.powi(exponent - self.mantissa_bits as i32);
        let units = (magnitude / unit).round_ties_even() as u32;
        // A carry out of the mantissa moves into the exponent field by plain addition.
        let field = ((exponent - exponent_min) as u32) << self.mantissa_bits;
        let bits = field + units;
        if bits > u32::from(self.largest()) {
            return overflow;
        }
        let bits = bits as u8;
        if bits == 0 && self.special == Special::FiniteNegativeZeroNan { 0 } else { sign | bits }
    }
}

/// floor(log2(x)) of a positive normal number.
fn exponent_of(x: f64) -> i32 {
    ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023
}

macro_rules! float8 {
    ($($(#[$doc:meta])* $name:ident: $mantissa:literal, $bias:literal, $special:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(transparent)]
        pub struct $name(pub u8);

        impl $name {
            const FORMAT: Format =
                Format { mantissa_bits: $mantissa, bias: $bias, special: Special::$special };

            /// The nearest value of this format, ties to even.
            pub fn from_f32(value: f32) -> Self {
                Self(Self::FORMAT.encode(value))
            }

            /// The exact value.
            pub fn to_f32(self) -> f32 {
                Self::FORMAT.decode(self.0)
            }
        }
    )+ };
}

float8! {
    /// 5 exponent bits, 2 mantissa bits, IEEE special values.
    Float8E5m2: 2, 15, Ieee;
    /// 4 exponent bits, 3 mantissa bits, finite.
    Float8E4m3fn: 3, 7, FiniteAllOnesNan;
    /// 4 exponent bits, 3 mantissa bits, finite, no negative zero.
    Float8E4m3fnuz: 3, 8, FiniteNegativeZeroNan;
    /// 4 exponent bits, 3 mantissa bits, bias 11, finite, no negative zero.
    Float8E4m3b11fnuz: 3, 11, FiniteNegativeZeroNan;
    /// 5 exponent bits, 2 mantissa bits, finite, no negative zero.
    Float8E5m2fnuz: 2, 16, FiniteNegativeZeroNan;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_a_round_trip() {
        for bits in 0..=255u8 {
            for (decoded, encoded) in [
                (Float8E5m2(bits).to_f32(), Float8E5m2::from_f32(Float8E5m2(bits).to_f32()).0),
                (
                    Float8E4m3fn(bits).to_f32(),
                    Float8E4m3fn::from_f32(Float8E4m3fn(bits).to_f32()).0,
                ),
                (
                    Float8E4m3fnuz(bits).to_f32(),
                    Float8E4m3fnuz::from_f32(Float8E4m3fnuz(bits).to_f32()).0,
                ),
                (
                    Float8E5m2fnuz(bits).to_f32(),
                    Float8E5m2fnuz::from_f32(Float8E5m2fnuz(bits).to_f32()).0,
                ),
            ] {
                if !decoded.is_nan() {
                    assert_eq!(encoded, bits, "{bits:#x} is {decoded}");
                }
            }
        }
    }

    #[test]
    fn largest_values_and_overflow() {
        assert_eq!(Float8E4m3fn(0x7e).to_f32(), 448.0);
        assert!(Float8E4m3fn::from_f32(1e9).to_f32().is_nan());
        assert_eq!(Float8E5m2(0x7b).to_f32(), 57344.0);
        assert_eq!(Float8E5m2::from_f32(1e9).to_f32(), f32::INFINITY);
        assert_eq!(Float8E4m3b11fnuz(0x7f).to_f32(), 30.0);
        assert_eq!(Float8E4m3fn::from_f32(-0.0).0, 0x80);
        assert_eq!(Float8E4m3fnuz::from_f32(-0.0).0, 0);
    }
}
