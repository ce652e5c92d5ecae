//! Messages to text.

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, Value};

pub(super) fn message(message: &DynamicMessage) -> String {
    let mut out = String::new();
    fields(&mut out, 0, message);
    out
}

fn fields(out: &mut String, indent: usize, message: &DynamicMessage) {
    for (descriptor, value) in message.fields() {
        match value {
            Value::List(list) => {
                for item in list {
                    field(out, indent, &descriptor, item);
                }
            }
            Value::Map(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                let Kind::Message(entry) = descriptor.kind() else {
                    unreachable!("a map field is a list of entry messages")
                };
                for (key, value) in entries {
                    block(out, indent, descriptor.name(), |out, indent| {
                        entry_field(out, indent, &entry.map_entry_key_field(), &key.clone().into());
                        entry_field(out, indent, &entry.map_entry_value_field(), value);
                    });
                }
            }
            _ => field(out, indent, &descriptor, value),
        }
    }
}

/// A key or a value of a map: like any field, it is left out where it is the default.
fn entry_field(out: &mut String, indent: usize, descriptor: &FieldDescriptor, value: &Value) {
    if matches!(value, Value::Message(_)) || !value.is_default(&descriptor.kind()) {
        field(out, indent, descriptor, value);
    }
}

fn block(out: &mut String, indent: usize, name: &str, body: impl FnOnce(&mut String, usize)) {
    push_line(out, indent, format_args!("{name} {{"));
    body(out, indent + 2);
    push_line(out, indent, format_args!("}}"));
}

fn field(out: &mut String, indent: usize, descriptor: &FieldDescriptor, value: &Value) {
    let name = descriptor.name();
    match value {
        Value::Bool(v) => push_line(out, indent, format_args!("{name}: {v}")),
        Value::I32(v) => push_line(out, indent, format_args!("{name}: {v}")),
        Value::I64(v) => push_line(out, indent, format_args!("{name}: {v}")),
        Value::U32(v) => push_line(out, indent, format_args!("{name}: {v}")),
        Value::U64(v) => push_line(out, indent, format_args!("{name}: {v}")),
        Value::F32(v) => {
            let v = float(v.is_nan(), v.is_infinite(), format!("{v:e}"));
            push_line(out, indent, format_args!("{name}: {v}"));
        }
        Value::F64(v) => {
            let v = float(v.is_nan(), v.is_infinite(), format!("{v:e}"));
            push_line(out, indent, format_args!("{name}: {v}"));
        }
        Value::String(v) => {
            push_line(out, indent, format_args!("{name}: \"{}\"", escape(v.as_bytes())));
        }
        Value::Bytes(v) => push_line(out, indent, format_args!("{name}: \"{}\"", escape(v))),
        Value::EnumNumber(number) => {
            let value = descriptor.kind().as_enum().and_then(|e| e.get_value(*number));
            match value {
                Some(value) => push_line(out, indent, format_args!("{name}: {}", value.name())),
                None => push_line(out, indent, format_args!("{name}: {number}")),
            }
        }
        Value::Message(v) => block(out, indent, name, |out, indent| fields(out, indent, v)),
        Value::List(_) | Value::Map(_) => unreachable!("`fields` takes these apart"),
    }
}

fn push_line(out: &mut String, indent: usize, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{:indent$}{line}", "").expect("a String takes every write");
}

/// Lays out the shortest digits that read back as the same number the way TensorFlow's Python does.
/// `scientific` is Rust's `{:e}`: digits with at most one point, `e`, exponent.
fn float(is_nan: bool, is_infinite: bool, scientific: String) -> String {
    if is_nan {
        return "nan".to_owned();
    }
    if is_infinite {
        return scientific;
    }
    let (mantissa, exponent) = scientific.split_once('e').expect("{:e} writes an exponent");
    let exponent: i32 = exponent.parse().expect("{:e} writes a small integer exponent");
    let (sign, mantissa) =
        mantissa.strip_prefix('-').map_or(("", mantissa), |positive| ("-", positive));
    if !(-4..16).contains(&exponent) {
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{exponent_sign}{:02}", exponent.unsigned_abs());
    }

    let digits: String = mantissa.chars().filter(|&c| c != '.').collect();
    let Ok(point) = usize::try_from(exponent + 1) else {
        return format!("{sign}0.{}{digits}", "0".repeat((-1 - exponent).unsigned_abs() as usize));
    };
    if point == 0 {
        return format!("{sign}0.{digits}");
    }
    if digits.len() <= point {
        return format!("{sign}{digits}{}.0", "0".repeat(point - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..point], &digits[point..])
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\'' => out.push_str("\\'"),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => write!(out, "\\{byte:03o}").expect("a String takes every write"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn floats_look_like_pythons() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.000_1, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (123_456.0, "123456.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e300, "1e+300"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            let text = super::float(value.is_nan(), value.is_infinite(), format!("{value:e}"));
            assert_eq!(text, expected, "{value}");
        }
    }
}
