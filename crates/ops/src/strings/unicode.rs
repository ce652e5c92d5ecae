//! Strings and their code points: decoding, encoding, transcoding, scripts.

use bytes::Bytes;
use thalweg_graph::{NodeAttrs, OpDef, ShapeContext, Work, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    DType, PartialShape, Result, Shape, StringBuilder, Tensor, bail, ensure, err,
};

use super::encoding::Encoding;
use super::scripts::script;
use super::text::{FirstError, make_strings, write_strings};
use crate::indices::Indices;
use crate::split::{Disjoint, for_each_rows};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        UNICODE_DECODE,
        UNICODE_DECODE_WITH_OFFSETS,
        OpDef::new("UnicodeEncode", encode_shape).with_work(Work::serial::<30>),
        OpDef::new("UnicodeTranscode", shape::unchanged).with_work(Work::serial::<30>),
        OpDef::new("UnicodeScript", shape::unchanged),
    ],
    kernels: &[
        KernelSpec { op: "UnicodeDecode", create: unicode_decode, ..KernelSpec::CPU },
        KernelSpec { op: "UnicodeDecodeWithOffsets", create: unicode_decode, ..KernelSpec::CPU },
        KernelSpec { op: "UnicodeEncode", create: unicode_encode, ..KernelSpec::CPU },
        KernelSpec { op: "UnicodeTranscode", create: unicode_transcode, ..KernelSpec::CPU },
        KernelSpec { op: "UnicodeScript", create: unicode_script, ..KernelSpec::CPU },
    ],
};

/// Nanoseconds per short string.
const NANOSECONDS: f64 = 150.0;

const UNICODE_DECODE: OpDef =
    OpDef::new("UnicodeDecode", decode_shape).with_work(Work::serial::<30>);

const UNICODE_DECODE_WITH_OFFSETS: OpDef =
    OpDef { name: "UnicodeDecodeWithOffsets", ..UNICODE_DECODE };

fn decode_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let dims = c.input(0).dims();
    let strings = dims.and_then(|d| d.iter().try_fold(1usize, |n, &size| n.checked_mul(size?)));
    c.set_output(0, PartialShape::new([strings.and_then(|n| n.checked_add(1))]));
    c.set_output(1, PartialShape::new([None]));
    c.set_output(2, PartialShape::new([None]));
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum OnError {
    Fail,
    Replace,
    Skip,
}

/// Treatment of malformed sequences and control characters.
#[derive(Clone, Copy)]
struct Policy {
    on_error: OnError,
    replacement: u32,
    /// Whether control characters are replaced (`replace_control_characters`).
    replaces_controls: bool,
}

impl Policy {
    fn new(attrs: &NodeAttrs<'_>) -> Result<Policy> {
        let replacement = attrs.int("replacement_char")?;
        let on_error = match &attrs.bytes("errors")?[..] {
            b"strict" => OnError::Fail,
            b"replace" => OnError::Replace,
            b"ignore" => OnError::Skip,
            other => {
                bail!(InvalidArgument, "errors cannot be {:?}", other.escape_ascii().to_string())
            }
        };
        let is_code = (0..=0x10_ffff).contains(&replacement);
        ensure!(
            is_code,
            InvalidArgument,
            "replacement_char {replacement} is not a Unicode code point"
        );
        let replaces_controls = match attrs.get("replace_control_characters") {
            Some(_) => attrs.bool("replace_control_characters")?,
            None => false,
        };
        Ok(Policy { on_error, replacement: replacement as u32, replaces_controls })
    }

    /// Whether the policy applies to a code point.
    fn applies_to(&self, code: Option<u32>) -> bool {
        code.is_none_or(|c| self.replaces_controls && c <= 0x1f)
    }

    /// The code point in its place, or `None` to drop it.
    fn resolve(&self, code: Option<u32>) -> Option<u32> {
        match code {
            Some(c) if !self.applies_to(code) => Some(c),
            _ => (self.on_error != OnError::Skip).then_some(self.replacement),
        }
    }

    fn malformed() -> thalweg_tensor::Error {
        err!(InvalidArgument, "the input string is not well-formed in its encoding")
    }
}

fn unicode_decode(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let encoding = Encoding::named(attrs.bytes("input_encoding")?)?;
    let policy = Policy::new(&attrs)?;
    AnyKernel::new(move |ctx| decode(ctx, encoding, policy))
}

/// Decodes every string twice: once to count the code points, and once to fill the outputs.
fn decode(ctx: &mut KernelContext<'_>, encoding: Encoding, policy: Policy) -> Result<()> {
    let input = ctx.input(0)?;
    let strings = input.strings()?;
    let mut starts = ctx.zeros(DType::Int64, Shape::new(&[strings.len() + 1])?)?;
    let errors = FirstError::new();
    for_each_rows(
        ctx,
        &mut starts.as_mut_slice::<i64>()?[1..],
        1,
        NANOSECONDS,
        |first, counts| {
            for (i, count) in counts.iter_mut().enumerate() {
                encoding.decode(&strings[first + i], &mut |code, _| {
                    if code.is_none() && policy.on_error == OnError::Fail {
                        errors.note(first + i, Policy::malformed());
                    }
                    *count += i64::from(policy.resolve(code).is_some());
                });
            }
        },
    )?;
    errors.check()?;
    let mut total = 0;
    for slot in starts.as_mut_slice::<i64>()? {
        total += *slot;
        *slot = total;
    }
    let splits = starts.as_slice::<i64>()?;
    let shape = Shape::from_i64(&[total])?;
    let mut values = ctx.allocate_output(1, shape.clone())?;
    let mut offsets = ctx.allocate(DType::Int64, shape)?;
    let codes = Disjoint::new(values.as_mut_slice::<i32>()?);
    let places = Disjoint::new(offsets.as_mut_slice::<i64>()?);
    ctx.parallel_for(strings.len(), NANOSECONDS, |range| {
        for row in range {
            let range = splits[row] as usize..splits[row + 1] as usize;
            // SAFETY: rows are disjoint, and so are their code points.
            let (codes, places) = unsafe { (codes.part(range.clone()), places.part(range)) };
            let mut slots = codes.iter_mut().zip(places);
            encoding.decode(&strings[row], &mut |code, start| {
                if let Some(code) = policy.resolve(code)
                    && let Some((value, place)) = slots.next()
                {
                    (*value, *place) = (code as i32, start as i64);
                }
            });
        }
    })?;
    let row_splits = narrowed(ctx, &starts)?;
    ctx.set_output(0, row_splits)?;
    ctx.set_output(1, values)?;
    if ctx.num_outputs() > 2 {
        ctx.set_output(2, offsets)?;
    }
    Ok(())
}

/// The row splits in the dtype of the first output.
fn narrowed(ctx: &KernelContext<'_>, splits: &Tensor) -> Result<Tensor> {
    if ctx.output_dtype(0)? == DType::Int64 {
        return Ok(splits.clone());
    }
    let mut narrow = ctx.allocate_output(0, splits.shape().clone())?;
    for (to, &from) in narrow.as_mut_slice::<i32>()?.iter_mut().zip(splits.as_slice::<i64>()?) {
        *to = i32::try_from(from)
            .map_err(|_| err!(InvalidArgument, "{from} characters do not fit int32 splits"))?;
    }
    Ok(narrow)
}

fn unicode_transcode(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let from = Encoding::named(attrs.bytes("input_encoding")?)?;
    let to = Encoding::named(attrs.bytes("output_encoding")?)?;
    let policy = Policy::new(&attrs)?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let (strings, shape) = (input.strings()?, input.shape().clone());
        let stays = |s: &Bytes| {
            from == to
                && to == Encoding::Utf8
                && !policy.replaces_controls
                && std::str::from_utf8(s).is_ok()
        };
        let output = if strings.iter().all(stays) {
            make_strings(ctx, shape, 5.0, |i| Ok(strings[i].clone()))?
        } else {
            write_strings(ctx, shape, NANOSECONDS, |i, out| {
                transcode(&strings[i], from, to, policy, out)
            })?
        };
        ctx.set_output(0, output)
    })
}

fn transcode(
    string: &[u8],
    from: Encoding,
    to: Encoding,
    policy: Policy,
    out: &mut StringBuilder,
) -> Result<()> {
    let mut result = Ok(());
    from.decode(string, &mut |code, _| {
        if result.is_err() {
            return;
        }
        if policy.applies_to(code) && policy.on_error == OnError::Fail {
            result = Err(Policy::malformed());
        } else if let Some(code) = policy.resolve(code) {
            result = to.encode(code, out);
        }
    });
    result
}

fn encode_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "input_values", 1)?;
    let splits = c.with_rank(1, "input_splits", 1)?;
    let splits = splits.dims().and_then(|d| d.first().copied()).flatten();
    c.set_output(0, PartialShape::new([splits.and_then(|n| n.checked_sub(1))]));
    Ok(())
}

fn unicode_encode(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let to = Encoding::named(attrs.bytes("output_encoding")?)?;
    let policy = Policy::new(&attrs)?;
    AnyKernel::new(move |ctx| {
        let (values, splits) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            values.rank() == 1 && splits.rank() == 1,
            InvalidArgument,
            "input_values and input_splits must be vectors, got shapes {} and {}",
            values.shape(),
            splits.shape()
        );
        let (rows, codes) = (splits.num_elements().checked_sub(1), values.as_slice::<i32>()?);
        let Some(rows) = rows else { bail!(InvalidArgument, "input_splits must not be empty") };
        let splits = Indices::of(splits)?;
        let ascends = (0..rows).all(|i| splits.at(i) <= splits.at(i + 1));
        ensure!(
            splits.at(0) == 0 && splits.at(rows) == codes.len() as i64 && ascends,
            InvalidArgument,
            "input_splits must ascend from 0 to the number of values, {}",
            codes.len()
        );
        let output = write_strings(ctx, Shape::new(&[rows])?, NANOSECONDS, |row, out| {
            let codes = &codes[splits.at(row) as usize..splits.at(row + 1) as usize];
            codes.iter().try_for_each(|&code| encode(code, to, policy, out))
        })?;
        ctx.set_output(0, output)
    })
}

fn encode(code: i32, to: Encoding, policy: Policy, out: &mut StringBuilder) -> Result<()> {
    let valid = u32::try_from(code).ok().filter(|&c| char::from_u32(c).is_some());
    ensure!(
        valid.is_some() || policy.on_error != OnError::Fail,
        InvalidArgument,
        "{code} is not a valid Unicode code point, or is a surrogate"
    );
    policy.resolve(valid).map_or(Ok(()), |code| to.encode(code, out))
}

fn unicode_script(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let shape = ctx.input(0)?.shape().clone();
        let (mut output, forwarded) = ctx.forward_input_or_allocate(&[0], DType::Int32, &shape)?;
        if forwarded.is_none() {
            output.as_mut_slice::<i32>()?.copy_from_slice(ctx.slice(0)?);
        }
        for_each_rows(ctx, output.as_mut_slice::<i32>()?, 1, 20.0, |_, codes| {
            codes.iter_mut().for_each(|code| *code = script(*code));
        })?;
        ctx.set_output(0, output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call, code};
    use thalweg_tensor::Code;

    fn strings(items: &[&'static [u8]]) -> Tensor {
        let items: Vec<Bytes> = items.iter().map(|s| Bytes::from_static(s)).collect();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    fn decoder(errors: &str, controls: bool) -> Call {
        call("UnicodeDecodeWithOffsets")
            .input(strings(&[b"h\xc3\xa9", b"", b"\xffa\x01"]))
            .attr("input_encoding", "UTF-8")
            .attr("errors", errors)
            .attr("replace_control_characters", controls)
    }

    #[test]
    fn decoding() {
        for (call, splits, values, places) in [
            (
                decoder("replace", false),
                [0, 2, 2, 5],
                &[104, 233, 65533, 97, 1][..],
                &[0, 1, 0, 1, 2][..],
            ),
            (decoder("ignore", false), [0, 2, 2, 4], &[104, 233, 97, 1], &[0, 1, 1, 2]),
            (decoder("ignore", true), [0, 2, 2, 3], &[104, 233, 97], &[0, 1, 1]),
            (
                decoder("replace", true).attr("replacement_char", 65i64),
                [0, 2, 2, 5],
                &[104, 233, 65, 97, 65],
                &[0, 1, 0, 1, 2],
            ),
        ] {
            let outputs = call.run_all().unwrap();
            assert_eq!(outputs[0].as_slice::<i64>().unwrap(), splits);
            assert_eq!(outputs[1].as_slice::<i32>().unwrap(), values);
            assert_eq!(outputs[2].as_slice::<i64>().unwrap(), places);
        }
        assert_eq!(code(decoder("strict", false).run_all()), Some(Code::InvalidArgument));
        assert_eq!(
            code(decoder("replace", false).attr("replacement_char", -1i64).run_all()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(decoder("replace", false).attr("input_encoding", "foo").run_all()),
            Some(Code::InvalidArgument)
        );
        let narrow = call("UnicodeDecode").input(Tensor::scalar_string("ab"));
        let narrow = narrow.attr("input_encoding", "UTF-8").attr("Tsplits", DType::Int32);
        assert_eq!(narrow.run().unwrap().as_slice::<i32>().unwrap(), [0, 2]);
    }

    #[test]
    fn transcoding() {
        let run = |input: &'static [u8], to: &str, errors: &str, controls: bool| {
            call("UnicodeTranscode")
                .input(strings(&[input]))
                .attr("input_encoding", "UTF-8")
                .attr("output_encoding", to)
                .attr("errors", errors)
                .attr("replace_control_characters", controls)
                .run()
                .ok()
                .map(|t| t.strings().unwrap()[0].clone())
        };
        let smile = "é😀".as_bytes();
        assert_eq!(run(smile, "UTF-8", "strict", false).unwrap(), smile);
        assert_eq!(run(smile, "UTF-16-BE", "strict", false).unwrap(), &b"\0\xe9\xd8=\xde\0"[..]);
        assert_eq!(
            run(b"a\xff", "UTF-32-BE", "replace", false).unwrap(),
            &b"\0\0\0a\0\0\xff\xfd"[..]
        );
        assert_eq!(run(b"a\xff\x01", "UTF-8", "ignore", true).unwrap(), "a");
        assert_eq!(run(b"a\x01", "UTF-8", "strict", true), None);
    }

    #[test]
    fn encoding() {
        let run = |values: &[i32], splits: &[i64], errors: &str, to: &str| {
            call("UnicodeEncode")
                .input(Tensor::vector(values).unwrap())
                .input(Tensor::vector(splits).unwrap())
                .attr("output_encoding", to)
                .attr("errors", errors)
                .run()
                .map(|t| t.strings().unwrap().to_vec())
        };
        let codes = [104, 0xd800, 0x11_0000, -1, 0xfffe, 0];
        let replaced = run(&codes, &[0, 1, 6], "replace", "UTF-8").unwrap();
        assert_eq!(replaced, ["h", "\u{fffd}\u{fffd}\u{fffd}\u{fffe}\0"]);
        assert_eq!(run(&codes, &[0, 1, 6], "ignore", "UTF-8").unwrap(), ["h", "\u{fffe}\0"]);
        assert_eq!(code(run(&codes, &[0, 6], "strict", "UTF-8")), Some(Code::InvalidArgument));
        assert_eq!(
            run(&[0x1_f600], &[0, 1], "strict", "UTF-16-BE").unwrap(),
            [&b"\xd8=\xde\0"[..]]
        );
        assert!(run(&[], &[0], "strict", "UTF-8").unwrap().is_empty());
        for splits in [&[][..], &[1, 2], &[0, 1], &[0, 3], &[0, 2, 1], &[0, 2, 1, 2], &[-1, 2]] {
            assert_eq!(
                code(run(&[65, 66], splits, "replace", "UTF-8")),
                Some(Code::InvalidArgument),
                "{splits:?}"
            );
        }
    }

    #[test]
    fn scripts_and_shapes() {
        let scripts = call("UnicodeScript").input(Tensor::vector(&[65, 0x3b1, -1]).unwrap());
        assert_eq!(scripts.run().unwrap().as_slice::<i32>().unwrap(), [25, 14, -1]);
        let decode = call("UnicodeDecode").shape(DType::String, "2,3");
        assert_eq!(decode.attr("input_encoding", "UTF-8").infer(), "[7] [?]");
        let encode = call("UnicodeEncode").shape(DType::Int32, "?").shape(DType::Int64, "4");
        assert_eq!(encode.attr("output_encoding", "UTF-8").infer(), "[3]");
    }
}
