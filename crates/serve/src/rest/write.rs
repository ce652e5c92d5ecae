//! JSON answers, with numbers formatted as TensorFlow Serving formats them.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use thalweg_proto::tensorflow::serving as pb;
use thalweg_tensor::{DType, Result, Tensor, bail, bf16, ensure, f16};

use super::tensors::Format;

/// The suffix of output names whose strings are encoded in base64.
const BYTES_SUFFIX: &str = "_bytes";

/// The answer of `:predict`.
pub(crate) fn predictions(format: Format, outputs: &[(&str, &Tensor)]) -> Result<String> {
    ensure!(!outputs.is_empty(), InvalidArgument, "Cannot convert empty tensor map to JSON");
    match format {
        Format::Row => rows(outputs),
        Format::Column => columns(outputs),
    }
}

/// The maximum length of a formatted number with separator and its share of brackets.
const NUMBER_BYTES_MAX: usize = 32;
/// The maximum length of an escaped byte: `\u00XX`.
const ESCAPED_BYTES_MAX: usize = 6;

/// An upper bound on the size of tensors as text, except for names and brackets of empty lists.
pub(crate) fn bytes_max(tensors: &[Tensor]) -> Result<usize> {
    let mut bytes = 0usize;
    for tensor in tensors {
        bytes = bytes.saturating_add(tensor.num_elements().saturating_mul(NUMBER_BYTES_MAX));
        if tensor.dtype() == DType::String {
            let texts: usize = tensor.strings()?.iter().map(Bytes::len).sum();
            bytes = bytes.saturating_add(texts.saturating_mul(ESCAPED_BYTES_MAX));
        }
    }
    Ok(bytes)
}

fn rows(outputs: &[(&str, &Tensor)]) -> Result<String> {
    let mut count = None;
    for (name, tensor) in outputs {
        let Some(&rows) = tensor.shape().dims().first() else {
            bail!(InvalidArgument, "Tensor name: {name} has no shape information")
        };
        let expected = *count.get_or_insert(rows);
        ensure!(
            rows == expected,
            InvalidArgument,
            "Tensor name: {name} has inconsistent batch size: {rows} expecting: {expected}"
        );
    }
    let mut out = String::from("{\n    \"predictions\": [");
    let rows = count.unwrap_or(0);
    for row in 0..rows {
        let comma = if row > 0 { "," } else { "" };
        if let [(name, tensor)] = outputs {
            out.push_str(if row > 0 { ", " } else { "" });
            write_row(&mut out, name, tensor, row, rows)?;
            continue;
        }
        out.push_str(comma);
        out.push_str("\n        {");
        for (i, (name, tensor)) in outputs.iter().enumerate() {
            out.push_str(if i > 0 { ",\n            " } else { "\n            " });
            text(&mut out, name);
            out.push_str(": ");
            write_row(&mut out, name, tensor, row, rows)?;
        }
        out.push_str("\n        }");
    }
    out.push_str("\n    ]\n}");
    Ok(out)
}

fn write_row(out: &mut String, name: &str, tensor: &Tensor, row: usize, rows: usize) -> Result<()> {
    let each = tensor.num_elements() / rows.max(1);
    let values = Values::new(name, tensor)?;
    nested(out, &values, &tensor.shape().dims()[1..], row * each)
}

fn columns(outputs: &[(&str, &Tensor)]) -> Result<String> {
    let mut out = String::from("{\n    \"outputs\": ");
    if let [(name, tensor)] = outputs {
        nested(&mut out, &Values::new(name, tensor)?, tensor.shape().dims(), 0)?;
    } else {
        out.push('{');
        for (i, (name, tensor)) in outputs.iter().enumerate() {
            out.push_str(if i > 0 { ",\n        " } else { "\n        " });
            text(&mut out, name);
            out.push_str(": ");
            nested(&mut out, &Values::new(name, tensor)?, tensor.shape().dims(), 0)?;
        }
        out.push_str("\n    }");
    }
    out.push_str("\n}");
    Ok(out)
}

/// All elements in a flat list.
pub(super) fn flat(out: &mut String, tensor: &Tensor) -> Result<()> {
    nested(out, &Values::new("", tensor)?, &[tensor.num_elements()], 0)
}

/// The values of `dims`, beginning with element `at`.
fn nested(out: &mut String, values: &Values<'_>, dims: &[usize], at: usize) -> Result<()> {
    let Some((&size, inner)) = dims.split_first() else {
        values.write(out, at);
        return Ok(());
    };
    let each: usize = inner.iter().product();
    out.push('[');
    for i in 0..size {
        if i > 0 {
            out.push_str(", ");
        }
        nested(out, values, inner, at + i * each)?;
    }
    out.push(']');
    Ok(())
}

/// Elements that JSON can express.
enum Values<'a> {
    Float(&'a [f32]),
    Double(&'a [f64]),
    Half(&'a [f16]),
    BFloat16(&'a [bf16]),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    UInt8(&'a [u8]),
    UInt16(&'a [u16]),
    UInt32(&'a [u32]),
    UInt64(&'a [u64]),
    Bool(&'a [bool]),
    Text(&'a [Bytes]),
    Base64(&'a [Bytes]),
}

impl<'a> Values<'a> {
    fn new(name: &str, tensor: &'a Tensor) -> Result<Values<'a>> {
        Ok(match tensor.dtype() {
            DType::Float => Values::Float(tensor.as_slice()?),
            DType::Double => Values::Double(tensor.as_slice()?),
            DType::Half => Values::Half(tensor.as_slice()?),
            DType::BFloat16 => Values::BFloat16(tensor.as_slice()?),
            DType::Int8 => Values::Int8(tensor.as_slice()?),
            DType::Int16 => Values::Int16(tensor.as_slice()?),
            DType::Int32 => Values::Int32(tensor.as_slice()?),
            DType::Int64 => Values::Int64(tensor.as_slice()?),
            DType::UInt8 => Values::UInt8(tensor.as_slice()?),
            DType::UInt16 => Values::UInt16(tensor.as_slice()?),
            DType::UInt32 => Values::UInt32(tensor.as_slice()?),
            DType::UInt64 => Values::UInt64(tensor.as_slice()?),
            DType::Bool => Values::Bool(tensor.as_slice()?),
            DType::String if name.ends_with(BYTES_SUFFIX) => Values::Base64(tensor.strings()?),
            DType::String => Values::Text(tensor.strings()?),
            other => bail!(
                InvalidArgument,
                "Failed to write JSON value for tensor type: {other}, the output '{name}'"
            ),
        })
    }

    fn write(&self, out: &mut String, i: usize) {
        // Writing into a string cannot fail.
        let _ = match self {
            Values::Float(v) => return float(out, v[i]),
            Values::Double(v) => return double(out, v[i]),
            Values::Half(v) => return float(out, v[i].to_f32()),
            Values::BFloat16(v) => return float(out, v[i].to_f32()),
            Values::Int8(v) => write!(out, "{}", v[i]),
            Values::Int16(v) => write!(out, "{}", v[i]),
            Values::Int32(v) => write!(out, "{}", v[i]),
            Values::Int64(v) => write!(out, "{}", v[i]),
            Values::UInt8(v) => write!(out, "{}", v[i]),
            Values::UInt16(v) => write!(out, "{}", v[i]),
            Values::UInt32(v) => write!(out, "{}", v[i]),
            Values::UInt64(v) => write!(out, "{}", v[i]),
            Values::Bool(v) => write!(out, "{}", v[i]),
            Values::Base64(v) => return base64_text(out, &v[i]),
            // Bytes that are not UTF-8 are written as base64.
            Values::Text(v) => match std::str::from_utf8(&v[i]) {
                Ok(plain) => return text(out, plain),
                Err(_) => return base64_text(out, &v[i]),
            },
        };
    }
}

fn base64_text(out: &mut String, bytes: &[u8]) {
    out.push_str("{\"b64\": \"");
    STANDARD.encode_string(bytes, out);
    out.push_str("\"}");
}

/// The answer of `:classify`.
pub(crate) fn classifications(result: &pb::ClassificationResult) -> String {
    let mut out = String::from("{\n    \"results\": [");
    for (i, example) in result.classifications.iter().enumerate() {
        out.push_str(if i > 0 { ", [" } else { "[" });
        for (j, class) in example.classes.iter().enumerate() {
            out.push_str(if j > 0 { ", [" } else { "[" });
            text(&mut out, &class.label);
            out.push_str(", ");
            float(&mut out, class.score);
            out.push(']');
        }
        out.push(']');
    }
    out.push_str("\n    ]\n}");
    out
}

/// The answer of `:regress`.
pub(crate) fn regressions(result: &pb::RegressionResult) -> String {
    let mut out = String::from("{\n    \"results\": [");
    for (i, regression) in result.regressions.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        float(&mut out, regression.value);
    }
    out.push_str("]\n}");
    out
}

/// An error response.
pub(crate) fn error(message: &str) -> String {
    let mut out = String::from("{\n    \"error\": ");
    text(&mut out, message);
    out.push_str("\n}");
    out
}

/// A quoted and escaped string.
pub(crate) fn text(out: &mut String, plain: &str) {
    out.push('"');
    for c in plain.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Six digits if they are exact, else nine.
fn float(out: &mut String, value: f32) {
    if !value.is_finite() {
        return unbounded(out, value.is_nan(), value < 0.0);
    }
    // The shortest digits that give the number back.
    let mut shortest = format!("{value:e}");
    let mut precision = 6;
    if digits(&shortest) > 6 {
        precision = 9;
        shortest = format!("{value:.8e}");
    }
    general(out, &shortest, precision);
}

/// As [`float`], with six digits or seventeen.
fn double(out: &mut String, value: f64) {
    if !value.is_finite() {
        return unbounded(out, value.is_nan(), value < 0.0);
    }
    let mut shortest = format!("{value:e}");
    let mut precision = 6;
    if digits(&shortest) > 6 {
        precision = 17;
        shortest = format!("{value:.16e}");
    }
    general(out, &shortest, precision);
}

fn digits(scientific: &str) -> usize {
    scientific.bytes().take_while(|&b| b != b'e').filter(u8::is_ascii_digit).count()
}

fn unbounded(out: &mut String, is_nan: bool, is_negative: bool) {
    out.push_str(match (is_nan, is_negative) {
        (true, _) => "NaN",
        (_, true) => "-Infinity",
        (_, false) => "Infinity",
    });
}

/// Scientific notation as C's `%g` writes it, with `.0` after integers.
fn general(out: &mut String, scientific: &str, precision: i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let all: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let all = all.trim_end_matches('0');
    let all = if all.is_empty() { "0" } else { all };
    out.push_str(sign);
    if exponent < -4 || exponent >= precision {
        out.push_str(&all[..1]);
        if all.len() > 1 {
            out.push('.');
            out.push_str(&all[1..]);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else if exponent < 0 {
        out.push_str("0.");
        (1..-exponent).for_each(|_| out.push('0'));
        out.push_str(all);
    } else {
        let whole = exponent as usize + 1;
        if all.len() > whole {
            out.push_str(&all[..whole]);
            out.push('.');
            out.push_str(&all[whole..]);
        } else {
            out.push_str(all);
            (all.len()..whole).for_each(|_| out.push('0'));
            out.push_str(".0");
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use thalweg_tensor::Shape;

    #[test]
    fn numbers_as_tensorflow_serving_writes_them() {
        for (value, wanted) in [
            (0.0f32, "0.0"),
            (-0.0, "-0.0"),
            (2.5, "2.5"),
            (3.0, "3.0"),
            (0.2, "0.2"),
            (100_000.0, "100000.0"),
            (1_000_000.0, "1e+06"),
            (9_000_000.0, "9e+06"),
            (0.000_03, "3e-05"),
            (0.0001, "0.0001"),
            (1.0 / 3.0, "0.333333343"),
            (16_777_216.0, "16777216.0"),
            (123_456_792.0, "123456792.0"),
            (1.234_567_9e10, "1.23456788e+10"),
            (f32::MAX, "3.40282347e+38"),
            (f32::MIN_POSITIVE, "1.17549435e-38"),
            (f32::NAN, "NaN"),
            (f32::NEG_INFINITY, "-Infinity"),
        ] {
            let mut out = String::new();
            float(&mut out, value);
            assert_eq!(out, wanted, "{value}");
        }
        for (value, wanted) in [
            (0.1f64, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e300, "1e+300"),
            (1.0 / 3.0, "0.33333333333333331"),
            (f64::INFINITY, "Infinity"),
        ] {
            let mut out = String::new();
            double(&mut out, value);
            assert_eq!(out, wanted, "{value}");
        }
    }

    #[test]
    fn every_float_comes_back() {
        let mut bits = 1u32;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = f32::from_bits(bits);
            if value.is_finite() {
                let mut out = String::new();
                float(&mut out, value);
                assert_eq!(out.parse::<f32>().unwrap().to_bits(), bits, "{out}");
            }
        }
    }

    #[test]
    fn both_forms() {
        let y = Tensor::vector(&[2.5f32, 3.0, 4.5]).unwrap();
        let z = Tensor::from_slice(Shape::new(&[3, 2]).unwrap(), &[1i32, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(
            predictions(Format::Row, &[("y", &y)]).unwrap(),
            "{\n    \"predictions\": [2.5, 3.0, 4.5\n    ]\n}"
        );
        assert_eq!(
            predictions(Format::Column, &[("z", &z)]).unwrap(),
            "{\n    \"outputs\": [[1, 2], [3, 4], [5, 6]]\n}"
        );
        let both = predictions(Format::Row, &[("y", &y), ("z", &z)]).unwrap();
        let both: serde_json::Value = serde_json::from_str(&both).unwrap();
        assert_eq!(both["predictions"][1], serde_json::json!({"y": 3.0, "z": [3, 4]}));
        let both = predictions(Format::Column, &[("y", &y), ("z", &z)]).unwrap();
        let both: serde_json::Value = serde_json::from_str(&both).unwrap();
        assert_eq!(both["outputs"]["z"][2], serde_json::json!([5, 6]));
        let scalar = Tensor::scalar(1.0f32);
        assert_eq!(
            predictions(Format::Row, &[("s", &scalar)]).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            predictions(Format::Row, &[("y", &y), ("s", &Tensor::vector(&[1i64]).unwrap())])
                .err()
                .map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert!(
            predictions(Format::Column, &[("s", &scalar)]).unwrap().contains("\"outputs\": 1.0")
        );
        assert_eq!(
            predictions(Format::Row, &[]).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn strings() {
        let strings = |items: &[&'static [u8]]| {
            let items: Vec<Bytes> = items.iter().map(|i| Bytes::from_static(i)).collect();
            Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
        };
        let tensor = strings(&[b"a\"\\\n\x01", b"\xff"]);
        let json = predictions(Format::Column, &[("s", &tensor)]).unwrap();
        assert!(json.contains(r#"["a\"\\\n\u0001", {"b64": "/w=="}]"#), "{json}");
        let json = predictions(Format::Column, &[("s_bytes", &tensor)]).unwrap();
        assert!(json.contains(r#"[{"b64": "YSJcCgE="}, {"b64": "/w=="}]"#), "{json}");
    }
}
