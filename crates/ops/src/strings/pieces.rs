//! `StringSplit` and `StringSplitV2`.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Budget, DType, PartialShape, Result, Shape, ensure};

use super::text::{FirstError, part, scalar_string};
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("StringSplit", split_shape).with_work(Work::serial::<30>).without_gradient(),
        OpDef::new("StringSplitV2", split_shape).with_work(Work::serial::<30>),
    ],
    kernels: &[
        KernelSpec { op: "StringSplit", create: string_split, ..KernelSpec::CPU },
        KernelSpec { op: "StringSplitV2", create: string_split_v2, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per row, for the length of a sentence.
const NANOSECONDS_PER_ROW: f64 = 200.0;

fn split_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "input", 1)?;
    c.with_rank(1, "the separator", 0)?;
    c.set_output(0, PartialShape::new([None, Some(2)]));
    c.set_output(1, PartialShape::new([None]));
    c.set_output(2, PartialShape::new([Some(2)]));
    Ok(())
}

fn string_split(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let skips_empty = init.attrs().bool("skip_empty")?;
    AnyKernel::new(move |ctx| {
        let delimiters = scalar_string(ctx, 1, "delimiter")?.clone();
        split(ctx, |text, found| by_any_byte(text, &delimiters, skips_empty, found))
    })
}

fn string_split_v2(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let cuts_max = usize::try_from(init.attrs().int("maxsplit")?).unwrap_or(usize::MAX);
    AnyKernel::new(move |ctx| {
        let separator = scalar_string(ctx, 1, "sep")?.clone();
        split(ctx, |text, found| {
            if cuts_max == 0 {
                found(0..text.len());
            } else if separator.is_empty() {
                by_whitespace(text, cuts_max, found);
            } else {
                by_separator(text, &separator, cuts_max, found);
            }
        })
    })
}

/// Every byte of `delimiters` separates; without delimiters, every byte is a piece. An empty text
/// has no pieces.
fn by_any_byte(text: &[u8], delimiters: &[u8], skips: bool, found: &mut dyn FnMut(Range<usize>)) {
    if delimiters.is_empty() {
        return (0..text.len()).for_each(|i| found(i..i + 1));
    }
    if text.is_empty() {
        return;
    }
    let mut start = 0;
    for piece in text.split(|byte| delimiters.contains(byte)) {
        if !(skips && piece.is_empty()) {
            found(start..start + piece.len());
        }
        start += piece.len() + 1;
    }
}

/// Whitespace as C's `isspace` defines it, which includes the vertical tab.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Splits at runs of whitespace. After `cuts_max` splits the rest is one piece, even if empty.
fn by_whitespace(text: &[u8], cuts_max: usize, found: &mut dyn FnMut(Range<usize>)) {
    let skip = |from: usize, space: bool| {
        text[from..].iter().position(|&b| is_space(b) != space).map_or(text.len(), |n| from + n)
    };
    let (mut start, mut cuts) = (skip(0, true), 0);
    while start < text.len() {
        let end = skip(start, false);
        found(start..end);
        start = skip(end, true);
        cuts += 1;
        if cuts == cuts_max {
            return found(start..text.len());
        }
    }
}

fn by_separator(
    text: &[u8],
    separator: &[u8],
    cuts_max: usize,
    found: &mut dyn FnMut(Range<usize>),
) {
    let (mut start, mut from, mut cuts) = (0, 0, 0);
    while cuts < cuts_max {
        // Searching for the first byte uses a fast library function.
        let Some(n) = text[from..].iter().position(|&b| b == separator[0]) else { break };
        let at = from + n;
        if text[at..].starts_with(separator) {
            found(start..at);
            start = at + separator.len();
            from = start;
            cuts += 1;
        } else {
            from = at + 1;
        }
    }
    found(start..text.len());
}

/// Splits every row twice: once to count the pieces, and once to fill the outputs.
fn split(
    ctx: &mut KernelContext<'_>,
    cut: impl Fn(&[u8], &mut dyn FnMut(Range<usize>)) + Sync,
) -> Result<()> {
    let input = ctx.input(0)?;
    ensure!(
        input.rank() == 1,
        InvalidArgument,
        "input must be a vector, got shape {}",
        input.shape()
    );
    let rows = input.strings()?;
    let mut starts = ctx.allocate(DType::Int64, Shape::new(&[rows.len()])?)?;
    let counts = Disjoint::new(starts.as_mut_slice::<i64>()?);
    ctx.parallel_for(rows.len(), NANOSECONDS_PER_ROW, |range| {
        // SAFETY: `parallel_for` hands out disjoint ranges.
        let counts = unsafe { counts.part(range.clone()) };
        for (row, count) in rows[range].iter().zip(counts) {
            *count = 0;
            cut(row, &mut |_| *count += 1);
        }
    })?;
    let (mut total, mut widest) = (0, 0);
    for slot in starts.as_mut_slice::<i64>()? {
        let count = *slot;
        *slot = total;
        total += count;
        widest = widest.max(count);
    }
    let starts = starts.as_slice::<i64>()?;
    let pieces = total as usize;
    let mut indices = ctx.allocate_output(0, Shape::new(&[pieces, 2])?)?;
    let mut values = ctx.zeros(DType::String, Shape::new(&[pieces])?)?;
    let places = Disjoint::new(indices.as_mut_slice::<i64>()?);
    let slots = Disjoint::new(values.strings_mut()?);
    let errors = FirstError::new();
    ctx.parallel_for(rows.len(), NANOSECONDS_PER_ROW, |range| {
        let ends = |row: usize| starts.get(row).map_or(pieces, |&s| s as usize);
        let (first, end) = (ends(range.start), ends(range.end));
        // SAFETY: rows are disjoint, and each row's pieces lie between its start and the next's.
        let (places, slots) = unsafe { (places.part(first * 2..end * 2), slots.part(first..end)) };
        let start = range.start;
        if let Err(e) = fill(range, rows, &cut, (places, slots), ctx.budget()) {
            errors.note(start, e);
        }
    })?;
    errors.check()?;
    let mut shape = ctx.allocate_output(2, Shape::new(&[2])?)?;
    shape.as_mut_slice::<i64>()?.copy_from_slice(&[rows.len() as i64, widest]);
    ctx.set_output(0, indices)?;
    ctx.set_output(1, values)?;
    ctx.set_output(2, shape)
}

fn fill(
    range: Range<usize>,
    rows: &[Bytes],
    cut: &impl Fn(&[u8], &mut dyn FnMut(Range<usize>)),
    (places, slots): (&mut [i64], &mut [Bytes]),
    budget: &Arc<Budget>,
) -> Result<()> {
    let (mut next, mut failure) = (0, None);
    for row in range {
        let first = next;
        cut(&rows[row], &mut |piece| {
            places[2 * next] = row as i64;
            places[2 * next + 1] = (next - first) as i64;
            match part(&rows[row], piece, budget) {
                Ok(text) => slots[next] = text,
                Err(e) => failure = failure.take().or(Some(e)),
            }
            next += 1;
        });
        if let Some(e) = failure {
            return Err(e);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Tensor};

    use super::*;
    use crate::testing::{call, code};

    fn strings(items: &[&'static str]) -> Tensor {
        let items: Vec<Bytes> = items.iter().map(|s| Bytes::from_static(s.as_bytes())).collect();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    fn shown(outputs: &[Tensor]) -> String {
        let values = outputs[1].strings().unwrap().iter().map(|s| String::from_utf8_lossy(s));
        let indices = outputs[0].as_slice::<i64>().unwrap();
        let pairs = indices.chunks(2).map(|p| format!("{}{}", p[0], p[1]));
        format!(
            "{} {} {:?}",
            pairs.collect::<Vec<_>>().join(","),
            values.collect::<Vec<_>>().join("|"),
            outputs[2].as_slice::<i64>().unwrap()
        )
    }

    #[test]
    fn by_delimiters() {
        for (input, delimiter, skip, expected) in [
            (&["a b", "c"][..], " ", true, "00,01,10 a|b|c [2, 2]"),
            (&["", " a  b "], " ", false, "10,11,12,13,14 |a||b| [2, 5]"),
            (&["", " a  b "], " ", true, "10,11 a|b [2, 2]"),
            (&["a,b;c"], ",;", true, "00,01,02 a|b|c [1, 3]"),
            (&["ab"], "", false, "00,01 a|b [1, 2]"),
            (&[], " ", true, "  [0, 0]"),
        ] {
            let call = call("StringSplit").input(strings(input));
            let call = call.input(Tensor::scalar_string(delimiter)).attr("skip_empty", skip);
            assert_eq!(shown(&call.run_all().unwrap()), expected, "{input:?} {delimiter:?}");
        }
    }

    #[test]
    fn as_python_splits_except_at_the_last_cut() {
        for (input, separator, cuts, expected) in [
            ("  a \t\n b\u{b}\u{c}\r ", "", -1, "00,01 a|b [1, 2]"),
            ("a b ", "", 2, "00,01,02 a|b| [1, 3]"),
            ("a b c  ", "", 1, "00,01 a|b c   [1, 2]"),
            ("a,,b,", ",", -1, "00,01,02,03 a||b| [1, 4]"),
            ("a,,b,", ",", 1, "00,01 a|,b, [1, 2]"),
            ("aaa", "aa", -1, "00,01 |a [1, 2]"),
            ("a<b<>c", "<>", -5, "00,01 a<b|c [1, 2]"),
            (" ", "", 0, "00   [1, 1]"),
            ("", "", -1, "  [1, 0]"),
            ("", ",", -1, "00  [1, 1]"),
        ] {
            let call = call("StringSplitV2").input(strings(&[input]));
            let call = call.input(Tensor::scalar_string(separator)).attr("maxsplit", cuts as i64);
            assert_eq!(shown(&call.run_all().unwrap()), expected, "{input:?} {separator:?}");
        }
    }

    #[test]
    fn many_rows_in_any_order() {
        let rows: Vec<Bytes> = (0..2000).map(|i| "x ".repeat(i % 7).into()).collect();
        let input = Tensor::from_strings(Shape::new(&[rows.len()]).unwrap(), rows).unwrap();
        let run = |backwards: bool| {
            let call = call("StringSplitV2").input(input.clone()).input(Tensor::scalar_string(""));
            shown(&if backwards { call.backwards() } else { call }.run_all().unwrap())
        };
        assert_eq!(run(false), run(true));
        assert!(run(false).ends_with("[2000, 6]"));
    }

    #[test]
    fn wrong_ranks_are_refused() {
        for op in ["StringSplit", "StringSplitV2"] {
            let scalar = Tensor::scalar_string("a");
            assert_eq!(
                code(call(op).input(scalar.clone()).input(scalar).run_all()),
                Some(Code::InvalidArgument)
            );
            assert_eq!(
                code(call(op).input(strings(&["a"])).input(strings(&["b"])).run_all()),
                Some(Code::InvalidArgument)
            );
        }
        let shapes = call("StringSplit").shape(DType::String, "3").shape(DType::String, "");
        assert_eq!(shapes.infer(), "[?,2] [?] [2]");
    }
}
