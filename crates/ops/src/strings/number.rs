//! `StringToNumber`, by the rules of C's `strtod` and `strtol` in base ten.

use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit};
use thalweg_tensor::{Element, Result, err};

use super::pieces::is_space;
use super::text::FirstError;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("StringToNumber", shape::unchanged)
        .with_work(Work::serial::<15>)
        .without_gradient()],
    kernels: &[cpu_kernel!(
        "StringToNumber", "out_type" in [f32, f64, i32, i64, u32, u64] => string_to_number
    )],
};

/// Nanoseconds per number.
const NANOSECONDS: f64 = 40.0;

fn string_to_number<T: FromText>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let mut output = ctx.allocate_output(0, input.shape().clone())?;
        let errors = FirstError::new();
        for_each_rows(ctx, output.as_mut_slice::<T>()?, 1, NANOSECONDS, |first, out| {
            for (i, slot) in out.iter_mut().enumerate() {
                let string = &strings[first + i];
                *slot = T::from_text(trimmed(string)).unwrap_or_else(|| {
                    errors.note(first + i, err!(InvalidArgument, "{string:?} is not a number"));
                    T::default()
                });
            }
        })?;
        errors.check()?;
        ctx.set_output(0, output)
    })
}

/// The text without surrounding whitespace.
pub(crate) fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_space(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_space(*last)
    {
        text = rest;
    }
    text
}

/// A number type parsed from text without surrounding whitespace.
pub(crate) trait FromText: Element {
    /// The number, if the whole text is one and in range.
    fn from_text(text: &[u8]) -> Option<Self>;
}

macro_rules! integers_from_text {
    ($($t:ty),+) => { $(
        impl FromText for $t {
            fn from_text(text: &[u8]) -> Option<Self> {
                // Unsigned numbers have no minus sign, not even -0.
                if <$t>::MIN == 0 && text.first() == Some(&b'-') {
                    return None;
                }
                std::str::from_utf8(text).ok()?.parse().ok()
            }
        }
    )+ };
}

integers_from_text!(i32, i64, u32, u64);

impl FromText for f32 {
    fn from_text(text: &[u8]) -> Option<f32> {
        let (is_negative, digits) = without_sign(text);
        let magnitude = match magnitude(digits)? {
            Magnitude::Decimal(text) => text.parse().ok()?,
            Magnitude::Binary(mantissa, exponent) => scaled(mantissa as f32, exponent) as f32,
            Magnitude::Special(value) => value as f32,
        };
        Some(if is_negative { -magnitude } else { magnitude })
    }
}

impl FromText for f64 {
    fn from_text(text: &[u8]) -> Option<f64> {
        let (is_negative, digits) = without_sign(text);
        let magnitude = match magnitude(digits)? {
            Magnitude::Decimal(text) => text.parse().ok()?,
            Magnitude::Binary(mantissa, exponent) => scaled(mantissa as f64, exponent),
            Magnitude::Special(value) => value,
        };
        Some(if is_negative { -magnitude } else { magnitude })
    }
}

fn without_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// A parsed number without its sign.
enum Magnitude<'a> {
    /// Decimal digits, which Rust parses and rounds as C does.
    Decimal(&'a str),
    /// A number times a power of two. The lowest bit is sticky: set if any later bit was.
    Binary(u64, i64),
    /// Infinity or NaN.
    Special(f64),
}

fn magnitude(text: &[u8]) -> Option<Magnitude<'_>> {
    if let [b'0', b'x' | b'X', digits @ ..] = text {
        return hexadecimal(digits);
    }
    if text.first()?.is_ascii_alphabetic() {
        return special(text).map(Magnitude::Special);
    }
    // Rust parses what C parses, except for words.
    let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    if !text.iter().all(is_digit) || !matches!(text[0], b'0'..=b'9' | b'.') {
        return None;
    }
    std::str::from_utf8(text).ok().map(Magnitude::Decimal)
}

fn special(text: &[u8]) -> Option<f64> {
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        return Some(f64::INFINITY);
    }
    let (name, payload) = text.split_at_checked(3)?;
    let is_payload = match payload {
        [] => true,
        [b'(', inside @ .., b')'] => inside.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_'),
        _ => false,
    };
    (name.eq_ignore_ascii_case(b"nan") && is_payload).then_some(f64::NAN)
}

/// Hexadecimal digits with an optional point and an optional binary exponent.
fn hexadecimal(text: &[u8]) -> Option<Magnitude<'_>> {
    let power_at = text.iter().position(|b| matches!(b, b'p' | b'P'));
    let (digits, power) = match power_at {
        Some(at) => (&text[..at], decimal_power(&text[at + 1..])?),
        None => (text, 0),
    };
    let (mut mantissa, mut exponent, mut count, mut point) = (0u64, 0i64, 0usize, false);
    for &byte in digits {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = u64::from(char::from(byte).to_digit(16)?);
        count += 1;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if point { 4 } else { 0 };
        } else {
            mantissa |= u64::from(digit != 0);
            exponent += if point { 0 } else { 4 };
        }
    }
    (count > 0).then_some(Magnitude::Binary(mantissa, exponent.saturating_add(power)))
}

fn decimal_power(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = without_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let power = digits.iter().fold(0i64, |power, &digit| {
        power.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(1 << 40)
    });
    Some(if is_negative { -power } else { power })
}

fn scaled(mantissa: impl Into<f64>, exponent: i64) -> f64 {
    // In two steps, so that neither power overflows before the other compensates.
    let exponent = exponent.clamp(-4000, 4000) as i32;
    let half = exponent / 2;
    let mut value: f64 = mantissa.into();
    for part in [half, exponent - half] {
        for step in [part / 2, part - part / 2] {
            value *= 2f64.powi(step);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("+1.5", Some(1.5)),
            ("1.", Some(1.0)),
            (".5", Some(0.5)),
            ("1e3", Some(1000.0)),
            ("0x10", Some(16.0)),
            ("0x.8", Some(0.5)),
            ("0x1.8p1", Some(3.0)),
            ("-0X1P-2", Some(-0.25)),
            ("0x1.fffffffffffffffff", Some(2.0)),
            ("0x123456789abcdef01", Some(2.0988295479420645e19)),
            ("0x1p2000", Some(f64::INFINITY)),
            ("0x1p-2000", Some(0.0)),
            ("1e400", Some(f64::INFINITY)),
            ("-iNf", Some(f64::NEG_INFINITY)),
            ("infinity", Some(f64::INFINITY)),
            ("1e99999999999999999999", Some(f64::INFINITY)),
            ("0x1p99999999999999999999999", Some(f64::INFINITY)),
            ("", None),
            ("-", None),
            (".", None),
            ("e5", None),
            ("1e", None),
            ("1e+", None),
            ("1e5.5", None),
            ("--1", None),
            ("+-1", None),
            ("0x", None),
            ("0x1p", None),
            ("0x-1", None),
            ("1_000", None),
            ("1f", None),
            ("infin", None),
            ("nanx", None),
            ("nan(", None),
            ("nan(a b)", None),
            ("1 2", None),
            ("1\0", None),
            ("\u{967}", None),
        ] {
            assert_eq!(f64::from_text(text.as_bytes()), expected, "{text:?}");
            let narrow = f32::from_text(text.as_bytes());
            assert_eq!(narrow.is_some(), expected.is_some(), "{text:?}");
        }
        for nan in ["nan", "-NaN", "nan(1)", "nan()"] {
            assert!(f64::from_text(nan.as_bytes()).is_some_and(f64::is_nan), "{nan}");
        }
        assert_eq!(f32::from_text(b"3.5e38"), Some(f32::INFINITY));
        assert_eq!(f64::from_text(trimmed(b"\t\x0b 1\n ")), Some(1.0));
    }

    #[test]
    fn integers() {
        assert_eq!(i32::from_text(b"-2147483648"), Some(i32::MIN));
        assert_eq!(i32::from_text(b"2147483648"), None);
        assert_eq!(i64::from_text(b"+007"), Some(7));
        assert_eq!(u64::from_text(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u32::from_text(b"-0"), None);
        for bad in ["", "1.0", "0x10", "1e3", "--1", "+-1", "1 2", "+"] {
            assert_eq!(i64::from_text(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
