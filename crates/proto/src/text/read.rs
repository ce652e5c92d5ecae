//! Text to messages: a tokenizer with one token of lookahead and a recursive descent over
//! descriptors, whose depth is bounded.

use std::borrow::Cow;

use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value,
};

use super::{DEPTH_MAX, TextError, descriptor};

type Result<T> = std::result::Result<T, TextError>;

pub(super) fn message(descriptor: MessageDescriptor, text: &str) -> Result<DynamicMessage> {
    let mut reader = Reader { text, at: 0, token: Token::End, token_start: 0 };
    reader.advance()?;
    let mut message = DynamicMessage::new(descriptor);
    while reader.token != Token::End {
        reader.field(&mut message, 0)?;
    }
    Ok(message)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    /// Digits and the characters that follow them; the field's type determines their meaning.
    Number(&'a str),
    /// The inside of a string literal, with escapes.
    Quoted(&'a str),
    Symbol(char),
    End,
}

struct Reader<'a> {
    text: &'a str,
    /// The offset after `token`.
    at: usize,
    token: Token<'a>,
    token_start: usize,
}

impl<'a> Reader<'a> {
    fn field(&mut self, message: &mut DynamicMessage, depth: usize) -> Result<()> {
        let start = self.token_start;
        match self.token {
            Token::Name(name) => {
                let Some(field) = message.descriptor().get_field_by_name(name) else {
                    let owner = message.descriptor();
                    return self.fail(format!("{} has no field '{name}'", owner.full_name()));
                };
                self.advance()?;
                self.values(message, &field, start, depth)?;
            }
            Token::Symbol('[') => self.expanded_any(message, depth)?,
            _ => return self.expected("a field name"),
        }
        if let Token::Symbol(',' | ';') = self.token {
            self.advance()?;
        }
        Ok(())
    }

    /// The value after a field's name: one, or a list in brackets.
    fn values(
        &mut self,
        message: &mut DynamicMessage,
        field: &FieldDescriptor,
        start: usize,
        depth: usize,
    ) -> Result<()> {
        let has_colon = self.take(':')?;
        let is_message = matches!(field.kind(), Kind::Message(_));
        let may_lack_colon = is_message && matches!(self.token, Token::Symbol('{' | '<' | '['));
        if !(has_colon || may_lack_colon) {
            return self.expected("':'");
        }
        if !(field.is_list() || field.is_map()) {
            let value = self.value(&field.kind(), depth)?;
            return self.set_once(message, field, value, start);
        }
        if !self.take('[')? {
            let value = self.value(&field.kind(), depth)?;
            return self.append(message, field, value, start);
        }
        if self.take(']')? {
            return Ok(());
        }
        loop {
            let value = self.value(&field.kind(), depth)?;
            self.append(message, field, value, start)?;
            if self.take(']')? {
                return Ok(());
            }
            if !self.take(',')? {
                return self.expected("',' or ']'");
            }
        }
    }

    fn set_once(
        &self,
        message: &mut DynamicMessage,
        field: &FieldDescriptor,
        value: Value,
        start: usize,
    ) -> Result<()> {
        let name = field.name();
        if message.has_field(field) {
            return self.fail_at(start, format!("'{name}' is set twice"));
        }
        if let Some(oneof) = field.containing_oneof()
            && let Some(other) = oneof.fields().find(|other| message.has_field(other))
        {
            let other = other.name();
            return self.fail_at(start, format!("'{name}' excludes '{other}', set before"));
        }
        message.set_field(field, value);
        Ok(())
    }

    fn append(
        &self,
        message: &mut DynamicMessage,
        field: &FieldDescriptor,
        value: Value,
        start: usize,
    ) -> Result<()> {
        match (message.get_field_mut(field), value) {
            (Value::List(list), value) => list.push(value),
            (Value::Map(map), Value::Message(entry)) => {
                let Some((key, value)) = key_and_value(&entry) else {
                    return self.fail_at(start, "this key cannot be a map's key".to_owned());
                };
                map.insert(key, value);
            }
            _ => unreachable!("only lists and maps are appended to, and map entries are messages"),
        }
        Ok(())
    }

    /// `[type.googleapis.com/tensorflow.GraphDef] { ... }` in place of the fields of an `Any`.
    fn expanded_any(&mut self, message: &mut DynamicMessage, depth: usize) -> Result<()> {
        let start = self.token_start;
        if message.descriptor().full_name() != "google.protobuf.Any" {
            return self.fail("only google.protobuf.Any takes a type in brackets".to_owned());
        }
        let Some(length) = self.text[self.at..].find(']') else {
            return self.fail("this '[' is never closed".to_owned());
        };
        let url = self.text[self.at..self.at + length].trim();
        self.at += length + 1;
        self.advance()?;

        let Some(body_descriptor) = url.rsplit_once('/').and_then(|(_, name)| descriptor(name))
        else {
            return self.fail_at(start, format!("'{url}' names no message that is known here"));
        };
        self.take(':')?;
        let body = self.message_value(body_descriptor, depth)?.encode_to_vec();
        for (number, value) in [(1, Value::String(url.to_owned())), (2, Value::Bytes(body.into()))]
        {
            let field = message.descriptor().get_field(number).expect("Any has fields 1 and 2");
            self.set_once(message, &field, value, start)?;
        }
        Ok(())
    }

    fn value(&mut self, kind: &Kind, depth: usize) -> Result<Value> {
        Ok(match kind {
            Kind::Message(descriptor) => {
                Value::Message(self.message_value(descriptor.clone(), depth)?)
            }
            Kind::Double => Value::F64(self.float(|text| text.parse().ok())?),
            // Not through f64: that would round twice.
            Kind::Float => Value::F32(self.float(|text| text.parse().ok())?),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(self.integer()?),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(self.integer()?),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(self.integer()?),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(self.integer()?),
            Kind::Bool => Value::Bool(self.bool()?),
            Kind::Bytes => Value::Bytes(self.bytes()?.into()),
            Kind::String => {
                let start = self.token_start;
                match String::from_utf8(self.bytes()?) {
                    Ok(string) => Value::String(string),
                    Err(_) => return self.fail_at(start, "the string is not UTF-8".to_owned()),
                }
            }
            Kind::Enum(descriptor) => {
                let Token::Name(name) = self.token else {
                    return Ok(Value::EnumNumber(self.integer()?));
                };
                let Some(value) = descriptor.get_value_by_name(name) else {
                    return self.fail(format!("{} has no value '{name}'", descriptor.full_name()));
                };
                self.advance()?;
                Value::EnumNumber(value.number())
            }
        })
    }

    fn message_value(
        &mut self,
        descriptor: MessageDescriptor,
        depth: usize,
    ) -> Result<DynamicMessage> {
        let close = match self.token {
            Token::Symbol('{') => '}',
            Token::Symbol('<') => '>',
            _ => return self.expected("'{'"),
        };
        if depth == DEPTH_MAX {
            return self.fail(format!("messages nest deeper than {DEPTH_MAX} levels"));
        }
        self.advance()?;
        let mut message = DynamicMessage::new(descriptor);
        while !self.take(close)? {
            if let Token::Name(_) | Token::Symbol('[') = self.token {
                self.field(&mut message, depth + 1)?;
            } else {
                return self.expected(&format!("a field name or '{close}'"));
            }
        }
        Ok(message)
    }

    fn integer<T: TryFrom<i128>>(&mut self) -> Result<T> {
        let start = self.token_start;
        let is_negative = self.take('-')?;
        let Token::Number(text) = self.token else {
            return self.expected("an integer");
        };
        let (digits, radix) = match text.as_bytes() {
            [b'0', b'x' | b'X', ..] => (&text[2..], 16),
            [b'0', _, ..] => (&text[1..], 8),
            _ => (text, 10),
        };
        let magnitude = i128::from_str_radix(digits, radix).ok();
        let value = magnitude.map(|m| if is_negative { -m } else { m });
        let Some(value) = value.and_then(|value| T::try_from(value).ok()) else {
            let (sign, name) = (if is_negative { "-" } else { "" }, std::any::type_name::<T>());
            return self.fail_at(start, format!("'{sign}{text}' is not a number that fits {name}"));
        };
        self.advance()?;
        Ok(value)
    }

    fn float<T: std::ops::Neg<Output = T>>(
        &mut self,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let is_negative = self.take('-')?;
        let magnitude = match self.token {
            Token::Number(text) => parse(text.strip_suffix(['f', 'F']).unwrap_or(text)),
            Token::Name(name) => match name.to_ascii_lowercase().as_str() {
                "inf" | "infinity" => parse("inf"),
                "nan" => parse("nan"),
                _ => None,
            },
            _ => None,
        };
        let Some(magnitude) = magnitude else {
            return self.expected("a number");
        };
        self.advance()?;
        Ok(if is_negative { -magnitude } else { magnitude })
    }

    fn bool(&mut self) -> Result<bool> {
        let value = match self.token {
            Token::Name("true" | "True" | "t") | Token::Number("1") => true,
            Token::Name("false" | "False" | "f") | Token::Number("0") => false,
            _ => return self.expected("true or false"),
        };
        self.advance()?;
        Ok(value)
    }

    /// One string literal, or several adjacent ones, which are concatenated.
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let Token::Quoted(_) = self.token else {
            return self.expected("a string");
        };
        while let Token::Quoted(inside) = self.token {
            self.unescape(inside, &mut bytes)?;
            self.advance()?;
        }
        Ok(bytes)
    }

    fn unescape(&self, inside: &str, out: &mut Vec<u8>) -> Result<()> {
        let mut rest = inside;
        while let Some(backslash) = rest.find('\\') {
            out.extend_from_slice(&rest.as_bytes()[..backslash]);
            rest = &rest[backslash..];
            let Some(length) = unescape_one(rest, out) else {
                // The quote that opened the literal is one byte.
                let start = self.token_start + 1 + (inside.len() - rest.len());
                return self.fail_at(start, "this escape has no meaning".to_owned());
            };
            rest = &rest[length..];
        }
        out.extend_from_slice(rest.as_bytes());
        Ok(())
    }

    fn take(&mut self, symbol: char) -> Result<bool> {
        let found = self.token == Token::Symbol(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn advance(&mut self) -> Result<()> {
        self.skip_blanks();
        self.token_start = self.at;
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let second_is_digit = rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        let (token, length) = match first {
            'A'..='Z' | 'a'..='z' | '_' => {
                let length =
                    length_while(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
                (Token::Name(&rest[..length]), length)
            }
            '0'..='9' => number(rest),
            '.' if second_is_digit => number(rest),
            '"' | '\'' => {
                let Some(inside) = quoted(rest) else {
                    return self.fail("this string does not end on its line".to_owned());
                };
                (Token::Quoted(inside), inside.len() + 2)
            }
            '{' | '}' | '<' | '>' | '[' | ']' | ':' | ',' | ';' | '-' => (Token::Symbol(first), 1),
            _ => return self.fail(format!("{first:?} has no place here")),
        };
        self.token = token;
        self.at += length;
        Ok(())
    }

    fn skip_blanks(&mut self) {
        loop {
            self.at += length_while(&self.text[self.at..], |byte| {
                matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
            });
            if !self.text[self.at..].starts_with('#') {
                return;
            }
            self.at += length_while(&self.text[self.at..], |byte| byte != b'\n');
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T> {
        let found: Cow<'_, str> = match self.token {
            Token::Name(text) | Token::Number(text) => format!("'{text}'").into(),
            Token::Symbol(symbol) => format!("'{symbol}'").into(),
            Token::Quoted(_) => "a string".into(),
            Token::End => "the end".into(),
        };
        self.fail(format!("expected {what}, found {found}"))
    }

    fn fail<T>(&self, message: String) -> Result<T> {
        self.fail_at(self.token_start, message)
    }

    fn fail_at<T>(&self, offset: usize, message: String) -> Result<T> {
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        Err(TextError { line, column: before[line_start..].chars().count() + 1, message })
    }
}

fn key_and_value(entry: &DynamicMessage) -> Option<(MapKey, Value)> {
    let descriptor = entry.descriptor();
    let key = entry.get_field(&descriptor.map_entry_key_field()).into_owned().into_map_key()?;
    Some((key, entry.get_field(&descriptor.map_entry_value_field()).into_owned()))
}

fn length_while(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !belongs(byte)).unwrap_or(text.len())
}

/// Takes too many characters rather than too few (`1abc` is one token), so that the error shows all
/// of them.
fn number(rest: &str) -> (Token<'_>, usize) {
    let bytes = rest.as_bytes();
    let is_hex = matches!(bytes, [b'0', b'x' | b'X', ..]);
    let mut length = 0;
    while let Some(&byte) = bytes.get(length) {
        let follows_exponent = length > 0 && matches!(bytes[length - 1], b'e' | b'E');
        let is_sign = matches!(byte, b'+' | b'-') && follows_exponent && !is_hex;
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || is_sign) {
            break;
        }
        length += 1;
    }
    (Token::Number(&rest[..length]), length)
}

/// The inside of the string literal at the start of `rest`, if it ends on its line.
fn quoted(rest: &str) -> Option<&str> {
    let bytes = rest.as_bytes();
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b'\n' => return None,
            b'\\' => at += 2,
            byte if byte == bytes[0] => return Some(&rest[1..at]),
            _ => at += 1,
        }
    }
}

/// Appends the bytes of the escape sequence at the start of `text`; returns its length.
fn unescape_one(text: &str, out: &mut Vec<u8>) -> Option<usize> {
    let after = text.strip_prefix('\\')?;
    let kind = *after.as_bytes().first()?;
    let byte = match kind {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'?' | b'\\' | b'\'' | b'"' => kind,
        b'0'..=b'7' => {
            let length = after.bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            out.push(u8::from_str_radix(&after[..length], 8).ok()?);
            return Some(1 + length);
        }
        b'x' | b'X' => {
            let length = after[1..].bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
            out.push(u8::from_str_radix(&after[1..=length], 16).ok()?);
            return Some(2 + length);
        }
        b'u' | b'U' => {
            let length = if kind == b'u' { 4 } else { 8 };
            let character = char::from_u32(hex(after.get(1..=length)?)?)?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(2 + length);
        }
        _ => return None,
    };
    out.push(byte);
    Some(2)
}

/// Digits only, where `from_str_radix` would also take a sign.
fn hex(digits: &str) -> Option<u32> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    all_digits.then(|| u32::from_str_radix(digits, 16).ok())?
}
