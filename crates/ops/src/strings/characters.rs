//! String ops by byte and character: strip, lower, upper, length, substr.
//!
//! A UTF-8 character begins with any byte but `10xxxxxx`; the text need not be valid UTF-8.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_graph::{OpDef, ShapeContext, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Budget, DType, PartialShape, Result, bail, ensure};

use super::pieces::is_space;
use super::text::{FirstError, make_strings, part, write_strings};
use crate::broadcast::{Plan, broadcast_shape};
use crate::indices::Indices;
use crate::split::{Disjoint, for_each_rows};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("StringStrip", shape::unchanged),
        STRING_LOWER,
        STRING_UPPER,
        OpDef::new("StringLength", shape::unchanged),
        OpDef::new("Substr", substr_shape),
    ],
    kernels: &[
        KernelSpec { op: "StringStrip", create: string_strip, ..KernelSpec::CPU },
        KernelSpec {
            op: "StringLower",
            create: |init| change_case(init, &LOWER),
            ..KernelSpec::CPU
        },
        KernelSpec {
            op: "StringUpper",
            create: |init| change_case(init, &UPPER),
            ..KernelSpec::CPU
        },
        KernelSpec { op: "StringLength", create: string_length, ..KernelSpec::CPU },
        KernelSpec { op: "Substr", create: substr, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per short string.
const NANOSECONDS: f64 = 60.0;

fn string_strip(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let output = make_strings(ctx, input.shape().clone(), NANOSECONDS, |i| {
            let string = &strings[i];
            let solid = |b: &u8| !is_space(*b);
            let start = string.iter().position(solid).unwrap_or(string.len());
            let end = string.iter().rposition(solid).map_or(start, |last| last + 1);
            part(string, start..end, ctx.budget())
        })?;
        ctx.set_output(0, output)
    })
}

const STRING_LOWER: OpDef = OpDef::new("StringLower", shape::unchanged);

const STRING_UPPER: OpDef = OpDef { name: "StringUpper", ..STRING_LOWER };

/// Upper or lower case conversion, for bytes and for text.
struct Case {
    byte: fn(&u8) -> u8,
    text: fn(&str) -> String,
}

static LOWER: Case = Case { byte: u8::to_ascii_lowercase, text: str::to_lowercase };
static UPPER: Case = Case { byte: u8::to_ascii_uppercase, text: str::to_uppercase };

fn change_case(init: &KernelInit<'_>, case: &'static Case) -> Result<AnyKernel> {
    let encoding = init.attrs().bytes("encoding")?;
    let is_text = match &encoding[..] {
        b"" => false,
        b"utf-8" => true,
        _ => bail!(InvalidArgument, "encoding must be '' or 'utf-8', is {encoding:?}"),
    };
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let output = write_strings(ctx, input.shape().clone(), NANOSECONDS, |i, out| {
            let mut string = &strings[i][..];
            if is_text {
                // TensorFlow reads text up to the first zero byte.
                string = string.split(|&b| b == 0).next().unwrap_or_default();
            }
            // ASCII text needs no Unicode conversion.
            if is_text && !string.is_ascii() {
                return out.push((case.text)(&String::from_utf8_lossy(string)).as_bytes());
            }
            out.push(string)?;
            let written = out.as_mut_bytes();
            written.iter_mut().for_each(|b| *b = (case.byte)(b));
            Ok(())
        })?;
        ctx.set_output(0, output)
    })
}

/// Whether the attr `unit` is `UTF8_CHAR`.
fn counts_characters(init: &KernelInit<'_>) -> Result<bool> {
    Ok(match &init.attrs().bytes("unit")?[..] {
        b"BYTE" => false,
        b"UTF8_CHAR" => true,
        other => bail!(InvalidArgument, "unit must be BYTE or UTF8_CHAR, is {other:?}"),
    })
}

/// Whether a byte is a UTF-8 continuation byte.
fn continues(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn string_length(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let by_character = counts_characters(init)?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let strings = input.strings()?;
        let mut output = ctx.allocate_output(0, input.shape().clone())?;
        let lengths = output.as_mut_slice::<i32>()?;
        let nanoseconds = if by_character { 30.0 } else { 2.0 };
        for_each_rows(ctx, lengths, 1, nanoseconds, |first, lengths| {
            for (length, string) in lengths.iter_mut().zip(&strings[first..]) {
                *length = if by_character {
                    string.iter().filter(|&&b| !continues(b)).count() as i32
                } else {
                    string.len() as i32
                };
            }
        })?;
        ctx.set_output(0, output)
    })
}

fn substr_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, pos, len) = (c.input(0), c.input(1), c.input(2));
    if let (Some(p), Some(l)) = (pos.rank(), len.rank()) {
        ensure!(p == l, InvalidArgument, "pos and len must have one shape, got {pos} and {len}");
    }
    let merged = pos.merge(len)?;
    let shape = if merged.rank().is_none() {
        PartialShape::unknown()
    } else {
        shape::broadcast_shapes(input, &merged)?
    };
    c.set_output(0, shape);
    Ok(())
}

fn substr(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let by_character = counts_characters(init)?;
    AnyKernel::new(move |ctx| {
        let (input, pos, len) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        ensure!(
            pos.shape() == len.shape(),
            InvalidArgument,
            "pos and len must have one shape, got {} and {}",
            pos.shape(),
            len.shape()
        );
        let shape = broadcast_shape(&[input.shape(), pos.shape()])?;
        let plan = Plan::new(&shape, [input.shape(), pos.shape()]);
        let strides = plan.row_strides();
        let (strings, positions, lengths) =
            (input.strings()?, Indices::of(pos)?, Indices::of(len)?);
        let mut output = ctx.zeros(DType::String, shape.clone())?;
        let out = Disjoint::new(output.strings_mut()?);
        let errors = FirstError::new();
        ctx.parallel_for(shape.num_elements(), NANOSECONDS, |range| {
            plan.for_each_row(range, |[string, index], start, count| {
                // SAFETY: `parallel_for` hands out disjoint ranges, of which these are parts.
                let slots = unsafe { out.part(start..start + count) };
                for (k, slot) in slots.iter_mut().enumerate() {
                    let source = &strings[string + k * strides[0]];
                    let at = index + k * strides[1];
                    let (pos, len) = (positions.at(at), lengths.at(at));
                    match cut(source, pos, len, by_character, ctx.budget()) {
                        Ok(bytes) => *slot = bytes,
                        Err(e) => errors.note(start + k, e),
                    }
                }
            });
        })?;
        errors.check()?;
        ctx.set_output(0, output)
    })
}

fn cut(
    source: &Bytes,
    pos: i64,
    len: i64,
    by_character: bool,
    budget: &Arc<Budget>,
) -> Result<Bytes> {
    let range = if by_character { characters(source, pos, len) } else { bytes(source, pos, len) };
    match range {
        Some(range) => part(source, range, budget),
        None => bail!(InvalidArgument, "pos {pos} lies outside a string of {} bytes", source.len()),
    }
}

/// A negative position counts from the end; a negative length extends to the end.
fn bytes(source: &[u8], pos: i64, len: i64) -> Option<Range<usize>> {
    let size = source.len() as i64;
    let start = if pos < 0 { pos.checked_add(size)? } else { pos };
    if !(0..=size).contains(&start) {
        return None;
    }
    let rest = size - start;
    let taken = if (0..rest).contains(&len) { len } else { rest };
    Some(start as usize..(start + taken) as usize)
}

/// A negative position counts from the end. A negative length is empty after a non-negative
/// position, and an error after a negative one.
fn characters(source: &[u8], pos: i64, len: i64) -> Option<Range<usize>> {
    if pos >= 0 {
        let start = forward(source, 0, pos)?;
        let end = forward(source, start, len.max(0)).unwrap_or(source.len());
        return Some(start..end);
    }
    if len < 0 {
        return None;
    }
    let from_end = pos.checked_neg()?;
    let end = back(source, source.len(), (from_end - len).max(0))?;
    let start = back(source, end, from_end.min(len))?;
    Some(start..end)
}

/// The position `count` characters after `at`, if it exists.
fn forward(source: &[u8], mut at: usize, count: i64) -> Option<usize> {
    for _ in 0..count {
        if at >= source.len() {
            return None;
        }
        at += 1;
        while at < source.len() && continues(source[at]) {
            at += 1;
        }
    }
    Some(at)
}

/// The position `count` characters before `at`, if it exists.
fn back(source: &[u8], mut at: usize, count: i64) -> Option<usize> {
    for _ in 0..count {
        at = at.checked_sub(1)?;
        while at > 0 && continues(source[at]) {
            at -= 1;
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Shape, Tensor};

    use super::*;
    use crate::testing::{call, code};

    fn strings(items: &[&'static [u8]]) -> Tensor {
        let items: Vec<Bytes> = items.iter().map(|s| Bytes::from_static(s)).collect();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    #[test]
    fn strips_and_changes_case() {
        let stripped = call("StringStrip").input(strings(&[b" a ", b"\t\x0b x \0", b"  ", b""]));
        assert_eq!(stripped.run().unwrap().strings().unwrap(), ["a", "x \0", "", ""]);
        for (op, encoding, input, expected) in [
            ("StringLower", "", "ABC\u{c9}", "abc\u{c9}"),
            ("StringLower", "utf-8", "ABC\u{c9} ΣΑΣ", "abc\u{e9} σας"),
            ("StringUpper", "utf-8", "stra\u{df}e", "STRASSE"),
            ("StringUpper", "", "stra\u{df}e", "STRA\u{df}E"),
            ("StringUpper", "", "a\0b", "A\0B"),
            ("StringUpper", "utf-8", "a\0b", "A"),
        ] {
            let call = call(op).input(Tensor::scalar_string(input)).attr("encoding", encoding);
            assert_eq!(call.run().unwrap().strings().unwrap()[0], expected);
        }
        let broken = call("StringLower").input(strings(&[b"A\xff\xe3\x81"]));
        let lower = broken.attr("encoding", "utf-8").run().unwrap();
        assert_eq!(lower.strings().unwrap()[0], "a\u{fffd}\u{fffd}");
        let refused = call("StringLower").input(strings(&[])).attr("encoding", "latin1");
        assert_eq!(code(refused.run()), Some(Code::InvalidArgument));
    }

    #[test]
    fn lengths_count_what_begins_a_character() {
        let input = strings(&[b"", b"abc", "é日😀".as_bytes(), b"\xff\x80", b"\x80\x80"]);
        for (unit, expected) in [("BYTE", [0, 3, 9, 2, 2]), ("UTF8_CHAR", [0, 3, 3, 1, 0])] {
            let lengths = call("StringLength").input(input.clone()).attr("unit", unit);
            assert_eq!(lengths.run().unwrap().as_slice::<i32>().unwrap(), expected);
        }
    }

    fn substr(source: &'static [u8], pos: i64, len: i64, unit: &str) -> Option<Bytes> {
        let call = call("Substr").input(Tensor::scalar_string(source)).attr("unit", unit);
        let run = call.input(Tensor::scalar(pos)).input(Tensor::scalar(len)).run();
        run.ok().map(|t| t.strings().unwrap()[0].clone())
    }

    #[test]
    fn parts_by_bytes() {
        for (pos, len, expected) in [
            (0, 2, Some("ab")),
            (-2, 5, Some("cd")),
            (4, 0, Some("")),
            (5, 0, None),
            (-4, 1, Some("a")),
            (-5, 1, None),
            (1, -1, Some("bcd")),
            (i64::MIN, 1, None),
            (0, i64::MAX, Some("abcd")),
        ] {
            let found = substr(b"abcd", pos, len, "BYTE");
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{pos} {len}");
        }
    }

    #[test]
    fn parts_by_characters() {
        for (pos, len, expected) in [
            (0, 2, Some("hé")),
            (2, 100, Some("日x")),
            (4, 0, Some("")),
            (5, 0, None),
            (0, -1, Some("")),
            (-1, 1, Some("x")),
            (-3, 2, Some("é日")),
            (-2, 5, Some("日x")),
            (-4, 5, Some("hé日x")),
            (-5, 6, None),
            (-4, 0, Some("")),
            (-1, -2, None),
            (i64::MIN, 1, None),
            (-1, i64::MAX, Some("x")),
        ] {
            let found = substr("hé日x".as_bytes(), pos, len, "UTF8_CHAR");
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{pos} {len}");
        }
        assert_eq!(substr(b"\x80\x80ab", 0, 1, "UTF8_CHAR").unwrap(), &b"\x80\x80"[..]);
        assert_eq!(substr(b"a\xe3bcd", 1, 2, "UTF8_CHAR").unwrap(), &b"\xe3b"[..]);
    }

    #[test]
    fn parts_stretch_over_positions() {
        let column = |values: &[i32]| {
            Tensor::from_slice(Shape::new(&[values.len(), 1]).unwrap(), values).unwrap()
        };
        let run = |pos: Tensor, len: Tensor| {
            call("Substr").input(strings(&[b"abcdef", b"ghijkl"])).input(pos).input(len).run()
        };
        let grid = run(column(&[0, 1, 2]), column(&[1, 2, 3])).unwrap();
        assert_eq!(grid.strings().unwrap(), ["a", "g", "bc", "hi", "cde", "ijk"]);
        assert_eq!(code(run(column(&[0, 1]), column(&[1]))), Some(Code::InvalidArgument));
        let vector = Tensor::vector(&[0, 0, 0]).unwrap();
        assert_eq!(code(run(vector.clone(), vector)), Some(Code::InvalidArgument));
        let shapes = call("Substr").shape(DType::String, "2,1").shape(DType::Int32, "3");
        assert_eq!(shapes.shape(DType::Int32, "?").infer(), "[2,3]");
    }
}
