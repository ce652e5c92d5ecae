//! A pull parser for JSON that keeps no tree.
//!
//! Besides JSON it accepts `NaN`, `Infinity` and `Inf`, as TensorFlow Serving does.

use std::borrow::Cow;

use thalweg_tensor::{Result, bail, ensure, err};

/// The maximum nesting depth.
pub(crate) const DEPTH_MAX: usize = 128;

/// The kind of a value, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    List,
    Text,
    Number,
    Bool,
    Null,
}

impl Kind {
    /// The name in error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Object => "Object",
            Kind::List => "Array",
            Kind::Text => "String",
            Kind::Number => "Number",
            Kind::Bool => "Bool",
            Kind::Null => "Null",
        }
    }
}

/// A position in a text.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of a text.
    pub(crate) fn new(text: &'a [u8]) -> Reader<'a> {
        Reader { text, at: 0, depth: 0 }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.text.get(self.at).copied()
    }

    fn fail<T>(&self, what: &str) -> Result<T> {
        bail!(InvalidArgument, "JSON Parse error: {what} at offset: {}", self.at)
    }

    /// The kind of the next value.
    pub(crate) fn kind(&mut self) -> Result<Kind> {
        Ok(match self.peek() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::List,
            Some(b'"') => Kind::Text,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => Kind::Number,
            Some(_) => return self.fail("Invalid value."),
            None => return self.fail("The document ends too early."),
        })
    }

    /// Enters a list or object; returns false, and skips it, if it is empty.
    pub(crate) fn enter(&mut self) -> Result<bool> {
        let close = match self.peek() {
            Some(b'{') => b'}',
            Some(b'[') => b']',
            _ => return self.fail("Expected a list or an object."),
        };
        if self.depth >= DEPTH_MAX {
            return self.fail(&format!("Nested deeper than {DEPTH_MAX} levels."));
        }
        self.at += 1;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        self.depth += 1;
        Ok(true)
    }

    /// After an element or member: whether there is another.
    pub(crate) fn next(&mut self) -> Result<bool> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b']' | b'}') => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ => self.fail("Missing a comma or a closing bracket."),
        }
    }

    /// The name of a member, and the colon.
    pub(crate) fn key(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return self.fail("Missing a name for object member.");
        }
        let key = self.text()?;
        if self.peek() != Some(b':') {
            return self.fail("Missing a colon after a name of object member.");
        }
        self.at += 1;
        Ok(key)
    }

    /// A string.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>> {
        self.space();
        let start = self.at + 1;
        let mut end = start;
        loop {
            match self.text.get(end) {
                Some(b'"') => break,
                Some(b'\\') => return self.escaped(start, end),
                Some(0..=0x1F) | None => {
                    self.at = end;
                    return self.fail("Missing a closing quotation mark in string.");
                }
                Some(_) => end += 1,
            }
        }
        let plain = std::str::from_utf8(&self.text[start..end]);
        let plain = plain.map_err(|_| self.not_utf8())?;
        self.at = end + 1;
        Ok(Cow::Borrowed(plain))
    }

    fn not_utf8(&self) -> thalweg_tensor::Error {
        err!(
            InvalidArgument,
            "JSON Parse error: Invalid encoding in string. at offset: {}",
            self.at
        )
    }

    /// A string with escapes, the first at `end`.
    fn escaped(&mut self, start: usize, mut end: usize) -> Result<Cow<'a, str>> {
        let mut plain = self.text[start..end].to_vec();
        loop {
            let Some(&byte) = self.text.get(end) else {
                self.at = end;
                return self.fail("Missing a closing quotation mark in string.");
            };
            end += 1;
            match byte {
                b'"' => break,
                b'\\' => {
                    self.at = end;
                    self.escape(&mut plain)?;
                    end = self.at;
                }
                0..=0x1F => {
                    self.at = end;
                    return self.fail("Invalid character in string.");
                }
                _ => plain.push(byte),
            }
        }
        self.at = end;
        String::from_utf8(plain).map(Cow::Owned).map_err(|_| self.not_utf8())
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(&byte) = self.text.get(self.at) else {
            return self.fail("Invalid escape character in string.");
        };
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let unit = self.hex()?;
                let code = match unit {
                    0xD800..=0xDBFF => {
                        let is_pair = self.text[self.at..].starts_with(b"\\u");
                        self.at += 2;
                        let low = if is_pair { self.hex()? } else { 0 };
                        if !(0xDC00..=0xDFFF).contains(&low) {
                            return self.fail("The surrogate pair in string is invalid.");
                        }
                        0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                    }
                    unit => unit,
                };
                let Some(code) = char::from_u32(code) else {
                    return self.fail("The surrogate pair in string is invalid.");
                };
                out.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return self.fail("Invalid escape character in string."),
        });
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
        let is_hex = digits.len() == 4 && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        match u32::from_str_radix(digits, 16) {
            Ok(unit) if is_hex => {
                self.at += 4;
                Ok(unit)
            }
            _ => self.fail("Incorrect hex digit after \\u escape in string."),
        }
    }

    /// The text of a number.
    pub(crate) fn number(&mut self) -> Result<&'a str> {
        self.space();
        let start = self.at;
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
        let len = self.text[start..].iter().take_while(|b| is_part(b)).count();
        let digits = &self.text[start..start + len];
        if !is_number(digits) {
            return self.fail("Invalid value.");
        }
        self.at += len;
        Ok(std::str::from_utf8(digits).unwrap_or_default())
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Result<bool> {
        self.space();
        let value = self.text[self.at..].starts_with(b"true");
        self.word(if value { "true" } else { "false" })?;
        Ok(value)
    }

    fn word(&mut self, word: &str) -> Result<()> {
        let rest = &self.text[self.at..];
        let ends = rest.get(word.len()).is_none_or(|b| !b.is_ascii_alphanumeric());
        if !(rest.starts_with(word.as_bytes()) && ends) {
            return self.fail("Invalid value.");
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips a value and returns its text.
    pub(crate) fn skip(&mut self) -> Result<&'a [u8]> {
        self.space();
        let (start, outer) = (self.at, self.depth);
        // Which of those we are in are objects; as deep as `enter` lets us go.
        let mut objects: Vec<bool> = Vec::new();
        loop {
            let kind = self.kind()?;
            match kind {
                Kind::Object | Kind::List => {
                    if self.enter()? {
                        objects.push(kind == Kind::Object);
                        if kind == Kind::Object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Kind::Text => drop(self.text()?),
                Kind::Number => drop(self.number()?),
                Kind::Bool => drop(self.boolean()?),
                Kind::Null => self.word("null")?,
            }
            while self.depth > outer && !self.next_of(&objects)? {
                objects.pop();
            }
            match objects.last() {
                None => return Ok(&self.text[start..self.at]),
                Some(true) => drop(self.key()?),
                Some(false) => {}
            }
        }
    }

    /// As [`Reader::next`], with the matching bracket.
    fn next_of(&mut self, objects: &[bool]) -> Result<bool> {
        let close = if objects.last() == Some(&true) { b'}' } else { b']' };
        match self.peek() {
            Some(b',') => {}
            Some(byte) if byte == close => {}
            _ => return self.fail("Missing a comma or a closing bracket."),
        }
        self.next()
    }

    /// Fails if anything follows the value.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail("The document root must not be followed by other values."),
        }
    }
}

fn is_number(digits: &[u8]) -> bool {
    let rest = digits.strip_prefix(b"-").unwrap_or(digits);
    if matches!(rest, b"NaN" | b"Infinity" | b"Inf") {
        return true;
    }
    let count = |s: &[u8]| s.iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = count(rest);
    if whole == 0 || whole > 1 && rest[0] == b'0' {
        return false;
    }
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let len = count(fraction);
        if len == 0 {
            return false;
        }
        rest = &fraction[len..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            digits => digits,
        };
        return !exponent.is_empty() && count(exponent) == exponent.len();
    }
    rest.is_empty()
}

/// The members of an object, each with the text of its value; of duplicate names the first counts.
pub(crate) fn members<'a>(text: &'a [u8]) -> Result<Vec<(Cow<'a, str>, &'a [u8])>> {
    ensure!(!text.is_empty(), InvalidArgument, "JSON Parse error: The document is empty");
    let mut reader = Reader::new(text);
    if reader.kind()? != Kind::Object {
        reader.skip()?;
        bail!(InvalidArgument, "JSON Value: Is not object");
    }
    let mut found: Vec<(Cow<'a, str>, &'a [u8])> = Vec::new();
    let mut goes_on = reader.enter()?;
    while goes_on {
        let key = reader.key()?;
        let value = reader.skip()?;
        if found.iter().all(|(name, _)| *name != key) {
            ensure!(found.len() < MEMBERS_MAX, InvalidArgument, "the object has too many members");
            found.push((key, value));
        }
        goes_on = reader.next()?;
    }
    reader.end()?;
    Ok(found)
}

/// The maximum number of top-level members of a request.
const MEMBERS_MAX: usize = 64;

/// The decoded string of `{"b64": "..."}`, if the next object is one.
pub(crate) fn base64_object(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>> {
    let mut ahead = reader.clone();
    let is_one = ahead.enter()? && ahead.key()? == "b64" && ahead.kind()? == Kind::Text;
    if !is_one {
        return Ok(None);
    }
    let encoded = ahead.text()?;
    if ahead.next()? {
        return Ok(None);
    }
    let decoded = decode_base64(&encoded)?;
    *reader = ahead;
    Ok(Some(decoded))
}

/// Decodes base64 in the standard or URL-safe alphabet, with or without padding.
fn decode_base64(text: &str) -> Result<Vec<u8>> {
    use base64::Engine;
    use base64::alphabet::{STANDARD, URL_SAFE};
    use base64::engine::DecodePaddingMode;
    use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config)
        .decode(text)
        .map_err(|e| err!(InvalidArgument, "Unable to base64 decode: {e}"))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn skipped(text: &str) -> Result<()> {
        let mut reader = Reader::new(text.as_bytes());
        reader.skip()?;
        reader.end()
    }

    #[test]
    fn what_is_json() {
        for text in [
            "1",
            "-0",
            "1.5e-7",
            "1E+9",
            "NaN",
            "-Infinity",
            "-Inf",
            "true",
            "null",
            "\"\"",
            "[]",
            "{}",
            " [ 1 , [ ] , { \"a\" : [ { } ] } ] ",
            r#"{"a":1,"b":[true,false,null,"x"]}"#,
            r#""\u00e9\ud83d\ude00\n\"\\\/""#,
        ] {
            assert!(skipped(text).is_ok(), "{text}: {}", skipped(text).unwrap_err());
        }
    }

    #[test]
    fn what_is_not_json() {
        for text in [
            "",
            " ",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "--1",
            "nan",
            "tru",
            "truex",
            "nul",
            "[",
            "[1",
            "[1,]",
            "[1}",
            "{\"a\":1]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "[1 2]",
            "1 2",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\",
            "]",
            "}",
            ",",
            "\u{1}",
            "\"\u{1}\"",
            "[[1]",
            "{\"a\":{\"b\":1}",
        ] {
            assert_eq!(
                skipped(text).err().map(|e| e.code()),
                Some(Code::InvalidArgument),
                "{text:?}"
            );
        }
        assert_eq!(
            Reader::new(b"\"\xff\"").text().err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            Reader::new(b"\"\\n\xff\"").text().err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |n: usize| skipped(&("[".repeat(n) + &"]".repeat(n)));
        assert!(deep(DEPTH_MAX).is_ok());
        assert!(deep(DEPTH_MAX + 2).unwrap_err().message().contains("Nested deeper"));
        assert_eq!(deep(1_000_000).err().map(|e| e.code()), Some(Code::InvalidArgument));
        assert_eq!(
            skipped(&"{\"a\":".repeat(1_000_000)).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn members_are_found() {
        let found = members(br#" {"a": [1, {"b": 2}], "c\n": "x", "a": 3} "#).unwrap();
        let found: Vec<(&str, &str)> =
            found.iter().map(|(k, v)| (&**k, std::str::from_utf8(v).unwrap())).collect();
        assert_eq!(found, [("a", "[1, {\"b\": 2}]"), ("c\n", "\"x\"")]);
        assert_eq!(members(b"").unwrap_err().message(), "JSON Parse error: The document is empty");
        assert!(members(b"[1]").unwrap_err().message().contains("Is not object"));
        assert_eq!(members(b"{} {}").err().map(|e| e.code()), Some(Code::InvalidArgument));
    }

    #[test]
    fn base64_of_any_kind() {
        let decoded = |text: &str| base64_object(&mut Reader::new(text.as_bytes()));
        assert_eq!(decoded(r#"{"b64": "aGk="}"#).unwrap().unwrap(), b"hi");
        assert_eq!(decoded(r#"{"b64":"aGk"}"#).unwrap().unwrap(), b"hi");
        assert_eq!(decoded(r#"{"b64":"_-8="}"#).unwrap().unwrap(), [0xFF, 0xEF]);
        assert_eq!(decoded(r#"{"b64":"/+8="}"#).unwrap().unwrap(), [0xFF, 0xEF]);
        assert_eq!(decoded(r#"{"b64":"?"}"#).err().map(|e| e.code()), Some(Code::InvalidArgument));
        assert_eq!(decoded(r#"{"b64":"aGk=","c":1}"#).unwrap(), None);
        assert_eq!(decoded(r#"{"b64":1}"#).unwrap(), None);
        assert_eq!(decoded("{}").unwrap(), None);
    }
}
