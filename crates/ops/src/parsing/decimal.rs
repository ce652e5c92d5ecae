//! Numbers written as text, by TensorFlow's rules: spaces around them, signs, `inf`, `nan` and
//! hexadecimal floats; nothing may be left over.

/// A decimal integer.
pub(crate) fn integer<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let text = trimmed(text);
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A float; what is too large is infinite, what is too small is zero.
pub(crate) fn float32(text: &[u8]) -> Option<f32> {
    float(text, |t| t.parse().ok(), |x| x as f32)
}

/// A float; what is too large is infinite, what is too small is zero.
pub(crate) fn float64(text: &[u8]) -> Option<f64> {
    float(text, |t| t.parse().ok(), |x| x)
}

fn trimmed(text: &[u8]) -> &[u8] {
    // C's spaces include the vertical tab, Rust's do not.
    let is_space = |b: &u8| b.is_ascii_whitespace() || *b == 0x0b;
    let start = text.iter().position(|b| !is_space(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|b| !is_space(b)).map_or(start, |i| i + 1);
    &text[start..end]
}

fn float<T: std::ops::Neg<Output = T>>(
    text: &[u8],
    decimal: fn(&str) -> Option<T>,
    from_f64: fn(f64) -> T,
) -> Option<T> {
    let text = std::str::from_utf8(trimmed(text)).ok()?;
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let is_hexadecimal = digits.get(..2).is_some_and(|p| p.eq_ignore_ascii_case("0x"));
    let magnitude = if is_hexadecimal {
        from_f64(hexadecimal(&digits[2..])?)
    } else {
        // A second sign is not a number; Rust's words (`inf`, `nan`, `infinity`) are TensorFlow's.
        let begins = |c: u8| c.is_ascii_alphanumeric() || c == b'.';
        if !digits.bytes().next().is_some_and(begins) {
            return None;
        }
        decimal(digits)?
    };
    Some(if is_negative { -magnitude } else { magnitude })
}

/// What follows `0x`: digits with perhaps a point, and perhaps a power of two.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.find(['p', 'P']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let exponent = exponent.saturating_sub(i32::try_from(fraction.len()).ok()?.saturating_mul(4));
    Some(libm::ldexp(value, exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        for (text, expected) in [
            ("5", Some(5)),
            (" +5\t", Some(5)),
            ("-0005", Some(-5)),
            ("2147483647", Some(i32::MAX)),
            ("-2147483648", Some(i32::MIN)),
            ("2147483648", None),
            ("0x10", None),
            ("1e3", None),
            ("--5", None),
            ("- 5", None),
            ("5\0", None),
            ("+", None),
            (" ", None),
            ("", None),
        ] {
            assert_eq!(integer::<i32>(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn floats() {
        for (text, expected) in [
            ("1.5", Some(1.5)),
            (".5", Some(0.5)),
            (" 5. ", Some(5.0)),
            ("-INF", Some(f32::NEG_INFINITY)),
            ("Infinity", Some(f32::INFINITY)),
            ("1e400", Some(f32::INFINITY)),
            ("1e-46", Some(0.0)),
            ("0x1p3", Some(8.0)),
            ("-0x1.8", Some(-1.5)),
            ("0x", None),
            ("1e", None),
            ("1.5f", None),
            ("1_0", None),
            ("1 2", None),
            ("--1", None),
            ("+-1", None),
            ("nanx", None),
            ("", None),
        ] {
            assert_eq!(float32(text.as_bytes()), expected, "{text:?}");
            assert_eq!(float64(text.as_bytes()).is_some(), expected.is_some(), "{text:?}");
        }
        assert!(float32(b"NaN").unwrap().is_nan() && float64(b"-nan").unwrap().is_nan());
    }
}
