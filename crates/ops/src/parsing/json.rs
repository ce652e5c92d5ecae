//! `DecodeJSONExample`: JSON examples to serialized messages.
//!
//! The syntax is that of protobuf's JSON parser, which accepts more than JSON: quotes of either
//! kind, unquoted keys, a comma before a closing bracket. Values are encoded as they are read, so
//! features keep the order of the text.

use thalweg_graph::{OpDef, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Error, Result, bail, charge_string, ensure, err};

use crate::strings::number::{FromText, trimmed};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("DecodeJSONExample", shape::unchanged).with_work(Work::serial::<5000>)],
    kernels: &[KernelSpec { op: "DecodeJSONExample", create: decode_json, ..KernelSpec::CPU }],
};

fn decode_json(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let input = ctx.input(0)?;
        let mut output = ctx.zeros(input.dtype(), input.shape().clone())?;
        for (target, text) in output.strings_mut()?.iter_mut().zip(input.strings()?) {
            ctx.check_cancelled()?;
            // The message is at most as long as the text, except for the wrapping of each value.
            ctx.budget().check(text.len().saturating_mul(4))?;
            *target = charge_string(example(text)?, ctx.budget())?;
        }
        ctx.set_output(0, output)
    })
}

/// The serialized message for a JSON text.
fn example(text: &[u8]) -> Result<Vec<u8>> {
    let mut reader = Reader { text, at: 0 };
    let mut message = Vec::new();
    reader.object(&mut |reader, key| match key {
        b"features" => reader.message(1, &mut message, features),
        _ => Err(reader.unknown(key)),
    })?;
    reader.spaces();
    ensure!(
        reader.at == text.len(),
        InvalidArgument,
        "Error while parsing JSON: something follows the object, at byte {}",
        reader.at
    );
    Ok(message)
}

fn features(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    reader.object(&mut |reader, key| match key {
        b"feature" if reader.null() => Ok(()),
        b"feature" => {
            let mut seen = rustc_hash::FxHashSet::default();
            reader.object(&mut |reader, name| {
                ensure!(
                    std::str::from_utf8(name).is_ok() && seen.insert(name.to_vec()),
                    InvalidArgument,
                    "Error while parsing JSON: the feature '{}' is there twice, or not text",
                    String::from_utf8_lossy(name)
                );
                let mut entry = Vec::new();
                push_bytes(1, name, &mut entry);
                reader.message(2, &mut entry, feature)?;
                push_bytes(1, &entry, out);
                Ok(())
            })
        }
        _ => Err(reader.unknown(key)),
    })
}

fn feature(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    let mut kinds = 0;
    reader.object(&mut |reader, key| {
        let (number, value): (u32, ValueFn) = match key {
            b"bytesList" | b"bytes_list" => (1, bytes_value),
            b"floatList" | b"float_list" => (2, float_value),
            b"int64List" | b"int64_list" => (3, int_value),
            _ => return Err(reader.unknown(key)),
        };
        kinds += 1;
        ensure!(
            kinds == 1,
            InvalidArgument,
            "Error while parsing JSON: a feature holds more than one list"
        );
        reader.message(number, out, |reader, out| {
            reader.object(&mut |reader, key| match key {
                b"value" => reader.values(out, value),
                _ => Err(reader.unknown(key)),
            })
        })
    })
}

type ValueFn = fn(&mut Reader<'_>, &mut Vec<u8>) -> Result<()>;

fn bytes_value(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    if reader.null() {
        push_bytes(1, b"", out);
        return Ok(());
    }
    let text = reader.string()?;
    let bytes = base64(&text).ok_or_else(|| reader.error("bytes that are not base64"))?;
    push_bytes(1, &bytes, out);
    Ok(())
}

fn float_value(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    let value = if reader.null() { 0.0 } else { reader.float()? };
    out.push(0x0d);
    out.extend_from_slice(&value.to_le_bytes());
    Ok(())
}

fn int_value(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<()> {
    let value = if reader.null() { 0 } else { reader.integer()? };
    out.push(0x08);
    prost::encoding::encode_varint(value.cast_unsigned(), out);
    Ok(())
}

fn push_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Decodes base64 of either alphabet, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|&&b| b == b'=').count();
    let digits = &text[..text.len() - padding];
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) || digits.len() % 4 == 1 {
        return None;
    }
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::with_capacity(digits.len() / 4 * 3 + 2));
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

/// A parser. The recursion depth is that of the message types, independent of the text.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn error(&self, what: &str) -> Error {
        err!(InvalidArgument, "Error while parsing JSON: {what}, at byte {}", self.at)
    }

    fn unknown(&self, key: &[u8]) -> Error {
        self.error(&format!("no such field: '{}'", String::from_utf8_lossy(key)))
    }

    fn spaces(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.spaces();
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        is_here
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        ensure!(
            self.eat(byte),
            InvalidArgument,
            "{}",
            self.error("unexpected character").message()
        );
        Ok(())
    }

    /// Consumes `null` if it is next.
    fn null(&mut self) -> bool {
        self.spaces();
        let is_null = self.text[self.at..].starts_with(b"null");
        self.at += if is_null { 4 } else { 0 };
        is_null
    }

    /// Parses an object: `each` reads the value of every key.
    fn object(&mut self, each: &mut dyn FnMut(&mut Self, &[u8]) -> Result<()>) -> Result<()> {
        self.expect(b'{')?;
        while !self.eat(b'}') {
            let key = self.key()?;
            self.expect(b':')?;
            each(self, &key)?;
            if !self.eat(b',') {
                return self.expect(b'}');
            }
        }
        Ok(())
    }

    /// Parses a message into field `number`; `null` means no message.
    fn message(
        &mut self,
        number: u32,
        out: &mut Vec<u8>,
        read: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        if self.null() {
            return Ok(());
        }
        let mut message = Vec::new();
        read(self, &mut message)?;
        push_bytes(number, &message, out);
        Ok(())
    }

    /// Parses a list of values, or a single value as a list; nested lists are flattened.
    fn values(&mut self, out: &mut Vec<u8>, value: ValueFn) -> Result<()> {
        if self.null() {
            return Ok(());
        }
        // Number of open brackets, which are all of one kind, so no stack is needed.
        let mut depth = 0;
        loop {
            if self.eat(b'[') {
                depth += 1;
                if !self.eat(b']') {
                    continue;
                }
                depth -= 1;
            } else {
                value(self, out)?;
            }
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let has_comma = self.eat(b',');
                if !self.eat(b']') {
                    if !has_comma {
                        return Err(self.error("a comma or bracket was expected"));
                    }
                    break;
                }
                depth -= 1;
            }
        }
    }

    fn key(&mut self) -> Result<Vec<u8>> {
        if matches!(self.peek(), Some(b'"' | b'\'')) {
            return self.string();
        }
        let is_word = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
        let length = self.text[self.at..].iter().take_while(is_word).count();
        if length == 0 || self.text[self.at].is_ascii_digit() {
            return Err(self.error("a key was expected"));
        }
        self.at += length;
        Ok(self.text[self.at - length..self.at].to_vec())
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        let quote = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => quote,
            _ => return Err(self.error("a string was expected")),
        };
        self.at += 1;
        let mut string = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else {
                return Err(self.error("a string does not end"));
            };
            self.at += 1;
            match byte {
                _ if byte == quote => return Ok(string),
                b'\\' => self.escape(&mut string)?,
                0..0x20 => return Err(self.error("a control character in a string")),
                _ => string.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let byte = self.text.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' | b'\'' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = self.hex()?;
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    let low = self.hex()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.error("half a surrogate pair"));
                    }
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                }
                let c = char::from_u32(unit).ok_or_else(|| self.error("half a surrogate pair"))?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.error("an unknown escape")),
        });
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.and_then(|d| std::str::from_utf8(d).ok());
        let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let value = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        self.at += 4;
        value.ok_or_else(|| self.error("four hexadecimal digits were expected"))
    }

    /// The text of a number, quoted or not.
    fn number(&mut self) -> Result<Vec<u8>> {
        if matches!(self.peek(), Some(b'"' | b'\'')) {
            return self.string();
        }
        let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = self.text[self.at..].iter().take_while(is_part).count();
        let text = self.text[self.at..self.at + length].to_vec();
        // JSON numbers have no plus sign, no leading zeros, and digits before a decimal point.
        let digits = text.strip_prefix(b"-").unwrap_or(&text);
        let is_json = match digits {
            [b'0', next, ..] => !next.is_ascii_digit(),
            [first, ..] => first.is_ascii_digit(),
            [] => false,
        };
        if !is_json {
            return Err(self.error("a number was expected"));
        }
        self.at += length;
        Ok(text)
    }

    fn float(&mut self) -> Result<f32> {
        let text = self.number()?;
        // Infinity must be written as a word; a number out of range is an error.
        let is_word = text.iter().any(|b| matches!(b, b'n' | b'N'));
        let value = f32::from_text(trimmed(&text)).filter(|x| x.is_finite() || is_word);
        value.ok_or_else(|| self.error("a number that is no float"))
    }

    fn integer(&mut self) -> Result<i64> {
        let text = self.number()?;
        if let Some(value) = i64::from_text(trimmed(&text)) {
            return Ok(value);
        }
        // 1.0 and 1e2 are integers, too; the limits are exact in f64.
        match f64::from_text(trimmed(&text)) {
            Some(x)
                if x.fract() == 0.0
                    && (-9223372036854775808.0..9223372036854775808.0).contains(&x) =>
            {
                Ok(x as i64)
            }
            _ => bail!(InvalidArgument, "{}", self.error("a number that is no int64").message()),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use thalweg_proto as pb;

    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    fn inside(list: &str) -> Result<Vec<u8>> {
        example(format!("{{\"features\":{{\"feature\":{{\"a\":{list}}}}}}}").as_bytes())
    }

    #[test]
    fn values_as_tensorflow_writes_them() {
        for (list, expected) in [
            ("{}", &b"\n\x07\n\x05\n\x01a\x12\x00"[..]),
            ("null", b"\n\x05\n\x03\n\x01a"),
            ("{\"int64List\":{\"value\":[1.0]}}", b"\n\x0b\n\t\n\x01a\x12\x04\x1a\x02\x08\x01"),
            ("{\"int64_list\":{\"value\":1}}", b"\n\x0b\n\t\n\x01a\x12\x04\x1a\x02\x08\x01"),
            (
                "{\"int64List\":{\"value\":[[],[[1],],]}}",
                b"\n\x0b\n\t\n\x01a\x12\x04\x1a\x02\x08\x01",
            ),
            ("{\"int64List\":{\"value\":null}}", b"\n\t\n\x07\n\x01a\x12\x02\x1a\x00"),
            ("{\"bytesList\":{\"value\":[\"YQ\"]}}", b"\n\x0c\n\n\n\x01a\x12\x05\n\x03\n\x01a"),
        ] {
            assert_eq!(inside(list).unwrap(), expected, "{list}");
        }
        for text in
            ["{'features':{}}", "{features:{}}", "{\"features\":{},}", " {\"features\" : {} } "]
        {
            assert_eq!(example(text.as_bytes()).unwrap(), b"\n\0"[..], "{text}");
        }
        assert_eq!(example(b"{\"features\":null}").unwrap(), b""[..]);
    }

    #[test]
    fn lists_are_messages() {
        let text = br#"{"features":{"feature":{"i":{"int64List":{"value":["1",2,1e2,-3]}},
            "f":{"floatList":{"value":[1.5,"NaN","-Infinity","4.5"]}},
            "\u00e9":{"bytesList":{"value":["YWJj",""]}}}}}"#;
        let features = pb::Example::decode(&example(text).unwrap()[..]).unwrap().features.unwrap();
        let kind = |name: &str| features.feature[name].kind.clone().unwrap();
        let ints = pb::Int64List { value: vec![1, 2, 100, -3] };
        assert_eq!(kind("i"), pb::feature::Kind::Int64List(ints));
        let bytes = pb::BytesList { value: vec!["abc".into(), "".into()] };
        assert_eq!(kind("\u{e9}"), pb::feature::Kind::BytesList(bytes));
        let pb::feature::Kind::FloatList(floats) = kind("f") else { panic!("not floats") };
        assert!(floats.value[1].is_nan() && floats.value[2] == f32::NEG_INFINITY);
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            "[]",
            "null",
            "{} x",
            "{",
            "{\"x\":1}",
            "{\"features\":",
            "{\"features\":{\"\\u12\":",
        ] {
            assert_eq!(code(example(text.as_bytes())), Some(Code::InvalidArgument), "{text}");
        }
        for list in [
            "{\"int64List\":{\"value\":[1.5]}}",
            "{\"int64List\":{\"value\":[9223372036854775808]}}",
            "{\"floatList\":{\"value\":[1e39]}}",
            "{\"floatList\":{\"value\":[true]}}",
            "{\"floatList\":{\"value\":[\"1.5x\"]}}",
            "{\"bytesList\":{\"value\":[\"?\"]}}",
            "{\"int64List\":{\"value\":[1]},\"floatList\":{\"value\":[1]}}",
            "{},\"a\":{}",
            "{\"floatList\":{\"value\":[+1]}}",
            "{\"floatList\":{\"value\":[01]}}",
            "{\"floatList\":{\"value\":[.5]}}",
            "{\"floatList\":{\"value\":[1 2]}}",
            "{\"floatList\":{\"value\":[[1]}}",
        ] {
            assert_eq!(code(inside(list)), Some(Code::InvalidArgument), "{list}");
        }
    }

    #[test]
    fn every_prefix_ends() {
        let text = br#"{"features":{"feature":{"a":{"bytesList":{"value":["YQ==","\u00e9"]}}}}}"#;
        for cut in 0..text.len() {
            assert_eq!(code(example(&text[..cut])), Some(Code::InvalidArgument), "{cut}");
        }
    }
}
