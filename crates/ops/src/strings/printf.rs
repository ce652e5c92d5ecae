//! Number formatting as by C's `printf`: `%f`, `%e`, `%g` and `%d` with flags, width and precision.

use std::fmt::Write;

use thalweg_tensor::{Result, StringBuilder};

/// Maximum decimals; all later digits of a double are zero.
const DECIMALS_MAX: usize = 1100;

/// Notation of a floating-point number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notation {
    /// `%f`.
    Fixed,
    /// `%e`.
    Scientific,
    /// `%g`.
    General,
}

/// A conversion specification: the part between `%` and the letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Minimum number of characters.
    pub(crate) width: usize,
    /// Digits after the point; for `%g` significant digits.
    pub(crate) precision: usize,
    /// `0`, `-`, `+`, a space, `#`, or none.
    pub(crate) flag: Option<u8>,
}

impl Spec {
    /// No width, no flag.
    pub(crate) const PLAIN: Spec = Spec { width: 0, precision: 6, flag: None };

    fn sign(self, is_negative: bool) -> &'static [u8] {
        match self.flag {
            _ if is_negative => b"-",
            Some(b'+') => b"+",
            Some(b' ') => b" ",
            _ => b"",
        }
    }

    /// Appends `sign` and `body`, padded to the width.
    fn put(
        self,
        out: &mut StringBuilder,
        sign: &[u8],
        body: &[u8],
        may_fill_zeroes: bool,
    ) -> Result<()> {
        let missing = self.width.saturating_sub(sign.len() + body.len());
        let zeroes = self.flag == Some(b'0') && may_fill_zeroes;
        if !zeroes && self.flag != Some(b'-') {
            out.push_repeated(b' ', missing)?;
        }
        out.push(sign)?;
        if zeroes {
            out.push_repeated(b'0', missing)?;
        }
        out.push(body)?;
        if self.flag == Some(b'-') {
            out.push_repeated(b' ', missing)?;
        }
        Ok(())
    }
}

/// `%d` of a signed number.
pub(crate) fn signed(out: &mut StringBuilder, spec: Spec, value: i64) -> Result<()> {
    let digits = value.unsigned_abs().to_string();
    spec.put(out, spec.sign(value < 0), digits.as_bytes(), true)
}

/// `%u`, which knows no sign.
pub(crate) fn unsigned(out: &mut StringBuilder, spec: Spec, value: u64) -> Result<()> {
    spec.put(out, b"", value.to_string().as_bytes(), true)
}

/// `%s`, with the width in bytes.
pub(crate) fn string(out: &mut StringBuilder, spec: Spec, value: &[u8]) -> Result<()> {
    spec.put(out, b"", value, false)
}

/// `%f`, `%e` or `%g`.
pub(crate) fn float(
    out: &mut StringBuilder,
    notation: Notation,
    spec: Spec,
    value: f64,
) -> Result<()> {
    let sign = spec.sign(value.is_sign_negative());
    if !value.is_finite() {
        let word: &[u8] = if value.is_nan() { b"nan" } else { b"inf" };
        return spec.put(out, sign, word, false);
    }
    let magnitude = value.abs();
    let keeps_point = spec.flag == Some(b'#');
    let body = match notation {
        Notation::Fixed => fixed(magnitude, spec.precision, keeps_point),
        Notation::Scientific => scientific(magnitude, spec.precision, keeps_point),
        Notation::General => general(magnitude, spec.precision, keeps_point),
    };
    // Digits beyond `DECIMALS_MAX` are zeros, appended here.
    let more = match notation {
        Notation::General => 0,
        _ => spec.precision.saturating_sub(DECIMALS_MAX),
    };
    if more == 0 {
        return spec.put(out, sign, body.as_bytes(), true);
    }
    let at = body.find('e').unwrap_or(body.len());
    let mut long = StringBuilder::new(out.budget());
    long.push(&body.as_bytes()[..at])?;
    long.push_repeated(b'0', more)?;
    long.push(&body.as_bytes()[at..])?;
    spec.put(out, sign, long.as_bytes(), true)
}

fn fixed(magnitude: f64, precision: usize, keeps_point: bool) -> String {
    let point = if precision == 0 && keeps_point { "." } else { "" };
    format!("{magnitude:.*}{point}", precision.min(DECIMALS_MAX))
}

/// The digits before `e`, and the exponent.
fn parts(magnitude: f64, decimals: usize) -> (String, i32) {
    let text = format!("{magnitude:.*e}", decimals.min(DECIMALS_MAX));
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

fn with_exponent(mut digits: String, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(digits, "e{sign}{:02}", exponent.unsigned_abs()).expect("a string takes any text");
    digits
}

fn scientific(magnitude: f64, precision: usize, keeps_point: bool) -> String {
    let (mut digits, exponent) = parts(magnitude, precision);
    if precision == 0 && keeps_point {
        digits.push('.');
    }
    with_exponent(digits, exponent)
}

fn general(magnitude: f64, precision: usize, keeps_zeroes: bool) -> String {
    let significant = precision.clamp(1, DECIMALS_MAX) as i32;
    let (mut digits, exponent) = parts(magnitude, significant as usize - 1);
    let is_fixed = (-4..significant).contains(&exponent);
    if is_fixed {
        digits = fixed(magnitude, (significant - 1 - exponent) as usize, keeps_zeroes);
    } else if keeps_zeroes && significant == 1 {
        digits.push('.');
    }
    if !keeps_zeroes && digits.contains('.') {
        digits.truncate(digits.trim_end_matches('0').trim_end_matches('.').len());
    }
    if is_fixed { digits } else { with_exponent(digits, exponent) }
}

/// A float with 6 digits if they round-trip, else 9.
pub(crate) fn brief_f32(out: &mut StringBuilder, value: f32) -> Result<()> {
    let wide = f64::from(flushed_f32(value));
    let short = general(wide.abs(), 6, false);
    let is_same = short.parse::<f32>().is_ok_and(|back| f64::from(back) == wide.abs());
    let precision = if is_same { 6 } else { 9 };
    float(out, Notation::General, Spec { precision, ..Spec::PLAIN }, wide)
}

/// A double with 15 digits if they round-trip, else 17.
pub(crate) fn brief_f64(out: &mut StringBuilder, value: f64) -> Result<()> {
    let value = flushed_f64(value);
    let short = general(value.abs(), 15, false);
    let is_same = short.parse::<f64>().is_ok_and(|back| back == value.abs());
    let precision = if is_same { 15 } else { 17 };
    float(out, Notation::General, Spec { precision, ..Spec::PLAIN }, value)
}

/// TensorFlow's threads flush subnormal numbers to zero.
pub(crate) fn flushed_f32(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

/// As [`flushed_f32`].
pub(crate) fn flushed_f64(value: f64) -> f64 {
    if value.is_subnormal() { 0f64.copysign(value) } else { value }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Budget, Code};

    use super::*;
    use crate::testing::code;

    fn shown(notation: Notation, spec: Spec, value: f64) -> String {
        let mut out = StringBuilder::new(&Budget::new(1 << 20));
        float(&mut out, notation, spec, value).unwrap();
        String::from_utf8(out.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn floats_are_written_as_c_writes_them() {
        use Notation::{Fixed, General, Scientific};
        for (notation, precision, value, expected) in [
            (Fixed, 6, 0.1, "0.100000"),
            (Fixed, 0, 2.5, "2"),
            (Fixed, 0, 3.5, "4"),
            (Fixed, 0, 0.5, "0"),
            (Fixed, 2, 0.125, "0.12"),
            (Fixed, 1, 1e20, "100000000000000000000.0"),
            (Fixed, 6, -0.0, "-0.000000"),
            (Scientific, 6, 9.9999999, "1.000000e+01"),
            (Scientific, 2, 1e300, "1.00e+300"),
            (Scientific, 0, 12345.0, "1e+04"),
            (General, 6, 100000.0, "100000"),
            (General, 6, 1e6, "1e+06"),
            (General, 6, 999999.5, "1e+06"),
            (General, 6, 0.0001, "0.0001"),
            (General, 6, 0.00001234, "1.234e-05"),
            (General, 3, 9995.0, "1e+04"),
            (General, 1, 2.5, "2"),
            (General, 0, 2.5, "2"),
            (General, 6, 0.0, "0"),
            (General, 6, f64::INFINITY, "inf"),
            (General, 6, f64::NEG_INFINITY, "-inf"),
            (General, 6, f64::NAN, "nan"),
        ] {
            let spec = Spec { precision, ..Spec::PLAIN };
            assert_eq!(shown(notation, spec, value), expected, "{value} {notation:?}");
        }
    }

    #[test]
    fn flags_and_widths() {
        for (flag, value, expected) in [
            (Some(b'0'), -1.5, "-001.5"),
            (Some(b'-'), -1.5, "-1.5  "),
            (Some(b'+'), 1.5, "  +1.5"),
            (Some(b' '), 1.5, "   1.5"),
            (Some(b'0'), f64::INFINITY, "   inf"),
            (None, f64::NAN, "   nan"),
        ] {
            let spec = Spec { width: 6, precision: 1, flag };
            assert_eq!(shown(Notation::Fixed, spec, value), expected);
        }
        let hash = Spec { precision: 0, flag: Some(b'#'), ..Spec::PLAIN };
        assert_eq!(shown(Notation::Fixed, hash, 3.0), "3.");
        let hash = Spec { precision: 3, flag: Some(b'#'), ..Spec::PLAIN };
        assert_eq!(shown(Notation::General, hash, 3.0), "3.00");
    }

    #[test]
    fn precision_beyond_what_doubles_have() {
        let long = shown(Notation::Fixed, Spec { precision: 70_000, ..Spec::PLAIN }, 1.5);
        assert_eq!(long.len(), 70_002);
        let long = shown(Notation::Scientific, Spec { precision: 70_000, ..Spec::PLAIN }, 1.5);
        assert!(long.starts_with("1.5") && long.ends_with("0e+00") && long.len() == 70_006);
        let spec = Spec { precision: 70_000, ..Spec::PLAIN };
        assert_eq!(shown(Notation::General, spec, 1.5), "1.5");
        let spec = Spec { precision: usize::MAX, ..Spec::PLAIN };
        let mut out = StringBuilder::new(&Budget::new(1 << 20));
        assert_eq!(
            code(float(&mut out, Notation::Fixed, spec, 1.5)),
            Some(Code::ResourceExhausted)
        );
    }

    #[test]
    fn brief_numbers_read_back() {
        let mut out = StringBuilder::new(&Budget::new(1 << 20));
        for value in [0.1, 1.0 / 3.0, 9_999_995.0, 12345.678, 1e-45, f32::MAX] {
            brief_f32(&mut out, value).unwrap();
            out.push(b" ").unwrap();
        }
        brief_f64(&mut out, 1.0 / 3.0).unwrap();
        let expected = "0.1 0.333333343 9999995 12345.6777 0 3.40282347e+38 0.33333333333333331";
        assert_eq!(String::from_utf8_lossy(out.as_bytes()), expected);
    }
}
