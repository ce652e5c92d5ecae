//! Tensor literals of the command line: `0.5`, `[[1, 2], [3, 4]]`, `"text"`, `true`.

use thalweg_tensor::{Bytes, DType, RANK_MAX, Result, Shape, Tensor, bail, ensure};

use crate::number::{self, Number};

/// A nested list of untyped items.
#[derive(Debug, PartialEq)]
struct Literal {
    dims: Vec<usize>,
    items: Vec<Item>,
}

#[derive(Debug, PartialEq)]
struct Item {
    text: Vec<u8>,
    is_quoted: bool,
}

/// The tensor of a literal with this dtype.
pub(crate) fn tensor(text: &str, dtype: DType) -> Result<Tensor> {
    let text = text.trim();
    if dtype == DType::String {
        // Bare words are a string, because shells remove quotes.
        if !text.starts_with(['[', '"', '\'']) {
            return Ok(Tensor::scalar_string(Bytes::copy_from_slice(text.as_bytes())));
        }
        let literal = parse(text)?;
        let strings = literal.items.into_iter().map(|item| item.text.into()).collect();
        return Tensor::from_strings(Shape::new(&literal.dims)?, strings);
    }
    let literal = parse(text)?;
    let numbers =
        literal.items.iter().map(|item| item.number(dtype)).collect::<Result<Vec<_>>>()?;
    number::tensor(dtype, Shape::new(&literal.dims)?, numbers.into_iter())
}

impl Item {
    fn number(&self, dtype: DType) -> Result<Number> {
        let text = String::from_utf8_lossy(&self.text);
        ensure!(!self.is_quoted, InvalidArgument, "{text:?} is a string, {dtype} was expected");
        match Number::parse(&text) {
            Some(number) => Ok(number),
            None => bail!(InvalidArgument, "{text:?} is not a number, {dtype} was expected"),
        }
    }
}

fn parse(text: &str) -> Result<Literal> {
    Parser { rest: text, literal: Literal { dims: Vec::new(), items: Vec::new() }, depth: None }
        .run()
}

struct Parser<'a> {
    rest: &'a str,
    literal: Literal,
    /// The nesting depth of the items, once there is one.
    depth: Option<usize>,
}

impl Parser<'_> {
    fn run(mut self) -> Result<Literal> {
        // The current lengths of the open lists, outermost first.
        let mut open: Vec<usize> = Vec::new();
        loop {
            if self.take('[') {
                ensure!(
                    open.len() < RANK_MAX,
                    InvalidArgument,
                    "lists nest deeper than {RANK_MAX}"
                );
                ensure!(
                    self.depth.is_none_or(|d| open.len() < d),
                    InvalidArgument,
                    "a list is at a position where other lists have a value"
                );
                open.push(0);
                if !self.take(']') {
                    continue;
                }
                self.close(&mut open)?;
            } else {
                self.item(open.len())?;
            }
            // A value has ended, and possibly some lists with it.
            loop {
                let Some(length) = open.last_mut() else {
                    ensure!(
                        self.rest.trim().is_empty(),
                        InvalidArgument,
                        "unexpected {:?} after the value",
                        self.rest.trim()
                    );
                    return Ok(self.literal);
                };
                *length += 1;
                if self.take(',') {
                    break;
                }
                ensure!(
                    self.take(']'),
                    InvalidArgument,
                    "expected ',' or ']', found {}",
                    self.next_for_message()
                );
                self.close(&mut open)?;
            }
        }
    }

    fn close(&mut self, open: &mut Vec<usize>) -> Result<()> {
        let length = open.pop().unwrap_or(0);
        let level = open.len();
        let dims = &mut self.literal.dims;
        if dims.len() <= level {
            // Inner lists close before outer ones, so the last dimension is known first.
            dims.resize(level + 1, usize::MAX);
        }
        if dims[level] == usize::MAX {
            dims[level] = length;
        }
        ensure!(
            dims[level] == length,
            InvalidArgument,
            "lists at the same depth must have the same length: one has {} items, another {length}",
            dims[level]
        );
        Ok(())
    }

    fn item(&mut self, depth: usize) -> Result<()> {
        ensure!(
            *self.depth.get_or_insert(depth) == depth && self.literal.dims.len() <= depth,
            InvalidArgument,
            "a value is at a position where others have a list"
        );
        self.rest = self.rest.trim_start();
        let item = match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
            _ => {
                let ends = |c: char| matches!(c, ',' | '[' | ']') || c.is_whitespace();
                let (word, rest) =
                    self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
                ensure!(
                    !word.is_empty(),
                    InvalidArgument,
                    "expected a value, found {}",
                    self.next_for_message()
                );
                self.rest = rest;
                Item { text: word.into(), is_quoted: false }
            }
        };
        self.literal.items.push(item);
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<Item> {
        let mut text = Vec::new();
        let mut rest = &self.rest[1..];
        loop {
            let Some(c) = rest.chars().next() else {
                bail!(InvalidArgument, "a string has no closing {quote}");
            };
            rest = &rest[c.len_utf8()..];
            match c {
                c if c == quote => break,
                '\\' => text.push(escaped(&mut rest)?),
                c => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.rest = rest;
        Ok(Item { text, is_quoted: true })
    }

    fn take(&mut self, c: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn next_for_message(&self) -> String {
        self.rest.trim_start().chars().next().map_or("the end".to_owned(), |c| format!("'{c}'"))
    }
}

/// The byte of an escape sequence.
fn escaped(rest: &mut &str) -> Result<u8> {
    let Some(c) = rest.chars().next() else {
        bail!(InvalidArgument, "a string ends in a backslash");
    };
    *rest = &rest[c.len_utf8()..];
    Ok(match c {
        'n' => b'\n',
        't' => b'\t',
        'r' => b'\r',
        '0' => 0,
        '\\' | '"' | '\'' => c as u8,
        'x' => {
            let digits = rest.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            let Some(byte) = digits else {
                bail!(InvalidArgument, "\\x must have two hexadecimal digits");
            };
            *rest = &rest[2..];
            byte
        }
        c => bail!(InvalidArgument, "unknown escape sequence \\{c} in a string"),
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn shapes_follow_brackets() {
        for (text, expected) in [
            ("1", "[]"),
            ("[1, 2 ,3]", "[3]"),
            ("[[1,2],[3,4],[5,6]]", "[3,2]"),
            ("[]", "[0]"),
            ("[[],[]]", "[2,0]"),
            ("[[[1]]]", "[1,1,1]"),
            (
                "[1,[2]]",
                "error: INVALID_ARGUMENT: a list is at a position where other lists have a value",
            ),
            (
                "[[1],2]",
                "error: INVALID_ARGUMENT: a value is at a position where others have a list",
            ),
            (
                "[[1],[2,3]]",
                "error: INVALID_ARGUMENT: lists at the same depth must have the same length: \
                 one has 1 items, another 2",
            ),
            (
                "[[],[1]]",
                "error: INVALID_ARGUMENT: lists at the same depth must have the same length: \
                 one has 0 items, another 1",
            ),
            (
                "[[],1]",
                "error: INVALID_ARGUMENT: a value is at a position where others have a list",
            ),
            ("[1", "error: INVALID_ARGUMENT: expected ',' or ']', found the end"),
            ("[1,]", "error: INVALID_ARGUMENT: expected a value, found ']'"),
            ("1 2", "error: INVALID_ARGUMENT: unexpected \"2\" after the value"),
            ("1]", "error: INVALID_ARGUMENT: unexpected \"]\" after the value"),
            ("", "error: INVALID_ARGUMENT: expected a value, found the end"),
            ("a", "error: INVALID_ARGUMENT: \"a\" is not a number, float was expected"),
            ("'1'", "error: INVALID_ARGUMENT: \"1\" is a string, float was expected"),
        ] {
            let shape = match tensor(text, DType::Float) {
                Ok(t) => t.shape().to_string(),
                Err(e) => format!("error: {e}"),
            };
            assert_eq!(shape, expected, "case {text:?}");
        }
        assert_eq!(
            tensor(&"[".repeat(100_000), DType::Float).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            tensor(&"[[]".repeat(100_000), DType::Float).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn numbers_become_the_dtype_or_are_refused() {
        for (text, dtype, expected) in [
            ("300", DType::UInt8, "300 does not fit in uint8"),
            ("-1", DType::UInt64, "-1 does not fit in uint64"),
            ("1.5", DType::Int32, "1.5 is not an integer, int32 was expected"),
            ("nan", DType::Int32, "NaN is not an integer, int32 was expected"),
            ("true", DType::Int32, "true is a bool, int32 was expected"),
            ("2", DType::Bool, "2 is not a bool; write true or false"),
            ("1e39", DType::Float, "1e39 does not fit in float"),
            ("70000", DType::Half, "70000 does not fit in half"),
            ("1+2j", DType::Float, "1+2j is complex, float was expected"),
            ("8", DType::Int4, "8 does not fit in int4"),
            ("1", DType::Resource, "a resource cannot be fed"),
        ] {
            assert_eq!(tensor(text, dtype).unwrap_err().message(), expected);
        }
        let value = |text, dtype| tensor(text, dtype).unwrap();
        assert_eq!(value("255", DType::UInt8).scalar_value::<u8>().unwrap(), 255);
        assert_eq!(value("1e3", DType::Int16).scalar_value::<i16>().unwrap(), 1000);
        assert_eq!(
            value("18446744073709551615", DType::UInt64).scalar_value::<u64>().unwrap(),
            u64::MAX
        );
        assert_eq!(value("-inf", DType::Float).scalar_value::<f32>().unwrap(), f32::NEG_INFINITY);
        assert_eq!(value("3", DType::Double).scalar_value::<f64>().unwrap(), 3.0);
        assert!(value("true", DType::Bool).scalar_value::<bool>().unwrap());
        let complex = value("-1.5-2e1j", DType::Complex64);
        assert_eq!(
            complex.as_bytes().unwrap(),
            [(-1.5f32).to_le_bytes(), (-20f32).to_le_bytes()].concat()
        );
    }

    #[test]
    fn strings_keep_their_bytes() {
        let strings = |text| {
            let t = tensor(text, DType::String).unwrap();
            t.strings().unwrap().iter().map(|s| s.escape_ascii().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(strings("plain words, too"), ["plain words, too"]);
        assert_eq!(strings("''"), [""]);
        assert_eq!(strings(r#"["a\n", 'b\xff', c]"#), ["a\\n", "b\\xff", "c"]);
        assert_eq!(
            tensor(r"'\x0é'", DType::String).err().map(|e| e.code()),
            Some(Code::InvalidArgument)
        );
        let code = tensor(r"'\", DType::String).err().map(|e| e.code());
        assert_eq!(code, Some(Code::InvalidArgument));
    }
}
