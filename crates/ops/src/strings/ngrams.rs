//! `StringNGrams`.

use bytes::Bytes;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    DType, PartialShape, Result, Shape, StringBuilder, Tensor, bail, ensure, err,
};

use super::text::FirstError;
use crate::indices::Indices;
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("StringNGrams", n_grams_shape).with_work(Work::serial::<30>)],
    kernels: &[KernelSpec {
        op: "StringNGrams",
        constraints: &[("Tsplits", &[DType::Int32, DType::Int64])],
        create: string_n_grams,
        ..KernelSpec::CPU
    }],
};

fn n_grams_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "data", 1)?;
    let splits = c.with_rank(1, "data_splits", 1)?;
    c.set_output(0, PartialShape::new([None]));
    c.set_output(1, splits);
    Ok(())
}

/// Attrs of the op.
struct Grams {
    separator: Bytes,
    widths: Vec<i64>,
    left_pad: Bytes,
    right_pad: Bytes,
    /// Padding on each side; `None` for the n-gram width less one.
    pad_width: Option<i64>,
    keeps_short: bool,
}

impl Grams {
    fn pads(&self, width: i64) -> i64 {
        self.pad_width.map_or(width - 1, |pads| pads.min(width - 1))
    }

    /// Number of n-grams of this width in a row of `len` tokens.
    fn count(&self, len: i64, width: i64) -> i64 {
        (len + 2 * self.pads(width) - width + 1).max(0)
    }

    /// The widths of a row's n-grams with their numbers; with `preserve_short_sequences`, a row too
    /// short for any n-gram gives one n-gram of the whole row.
    fn of_row(&self, len: i64) -> impl Iterator<Item = (i64, i64)> {
        let counts = self.widths.iter().map(move |&w| (w, self.count(len, w)));
        let is_lost = self.keeps_short && len > 0 && counts.clone().all(|(_, n)| n == 0);
        let whole = is_lost.then(|| (len + 2 * self.pad_width.unwrap_or(0), 1));
        counts.chain(whole)
    }

    /// Writes n-gram `index` of `count` of this width over `tokens`.
    fn write(
        &self,
        tokens: &[Bytes],
        width: i64,
        count: i64,
        index: i64,
        out: &mut StringBuilder,
    ) -> Result<()> {
        let pads = self.pads(width);
        let left = (pads - index).max(0);
        let right = (pads - (count - (index + 1))).max(0);
        let first = if left > 0 { 0 } else { (index - pads) as usize };
        let inner = (width - left - right).max(0) as usize;
        let inner = tokens
            .get(first..)
            .and_then(|t| t.get(..inner))
            .ok_or_else(|| err!(Internal, "an n-gram is out of bounds of its row"))?;
        let mut is_first = true;
        let mut put = |item: &[u8]| {
            if !std::mem::take(&mut is_first) {
                out.push(&self.separator)?;
            }
            out.push(item)
        };
        (0..left).try_for_each(|_| put(&self.left_pad))?;
        inner.iter().try_for_each(|token| put(token))?;
        (0..right).try_for_each(|_| put(&self.right_pad))
    }
}

fn string_n_grams(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let widths = attrs.ints("ngram_widths")?;
    for &width in widths {
        ensure!(
            (1..=i64::from(i32::MAX)).contains(&width),
            InvalidArgument,
            "ngram_widths must be positive and fit 32 bits, one is {width}"
        );
    }
    let pad_width = attrs.int("pad_width")?;
    ensure!(
        i32::try_from(pad_width).is_ok(),
        InvalidArgument,
        "pad_width must fit 32 bits, is {pad_width}"
    );
    let grams = Grams {
        separator: attrs.bytes("separator")?.clone(),
        widths: widths.to_vec(),
        left_pad: attrs.bytes("left_pad")?.clone(),
        right_pad: attrs.bytes("right_pad")?.clone(),
        pad_width: (pad_width >= 0).then_some(pad_width),
        keeps_short: attrs.bool("preserve_short_sequences")?,
    };
    AnyKernel::new(move |ctx| compute(ctx, &grams))
}

fn check_splits(splits: Indices<'_>, count: usize, tokens: usize) -> Result<()> {
    let mut previous = 0;
    for i in 0..count {
        let split = splits.at(i);
        if i == 0 && split != 0 {
            bail!(InvalidArgument, "data_splits must begin with 0, begins with {split}");
        }
        ensure!(
            (previous..=tokens as i64).contains(&split),
            InvalidArgument,
            "data_splits must ascend within 0..={tokens}, but number {i} is {split}"
        );
        previous = split;
    }
    ensure!(
        count == 0 || previous == tokens as i64,
        InvalidArgument,
        "data_splits must end with the number of tokens, {tokens}, ends with {previous}"
    );
    Ok(())
}

fn compute(ctx: &mut KernelContext<'_>, grams: &Grams) -> Result<()> {
    let (data, data_splits) = (ctx.input(0)?, ctx.input(1)?);
    let tokens = data.strings()?;
    let (splits, count) = (Indices::of(data_splits)?, data_splits.num_elements());
    check_splits(splits, count, tokens.len())?;
    // Without widths the padding is not checked.
    ensure!(
        !(grams.keeps_short && grams.widths.is_empty() && grams.pad_width.is_none())
            || tokens.is_empty()
            || count == 0,
        InvalidArgument,
        "pad_width must not be negative where there are no ngram_widths to keep short rows with"
    );
    let mut starts = ctx.zeros(DType::Int64, data_splits.shape().clone())?;
    if tokens.is_empty() || count == 0 {
        let none = ctx.zeros(DType::String, data.shape().clone())?;
        ctx.set_output(0, none)?;
        return set_splits(ctx, &starts);
    }
    let mut total = 0i64;
    for (i, slot) in starts.as_mut_slice::<i64>()?.iter_mut().enumerate().skip(1) {
        for (_, n) in grams.of_row(splits.at(i) - splits.at(i - 1)) {
            total = total
                .checked_add(n)
                .ok_or_else(|| err!(InvalidArgument, "there are more n-grams than numbers"))?;
        }
        *slot = total;
    }
    let mut output = ctx.zeros(DType::String, Shape::from_i64(&[total])?)?;
    let offsets = starts.as_slice::<i64>()?;
    let out = Disjoint::new(output.strings_mut()?);
    let errors = FirstError::new();
    let rows = count - 1;
    let cost = 100.0 * (1 + total as usize / rows.max(1)) as f64;
    ctx.parallel_for(rows, cost, |range| {
        let mut text = StringBuilder::new(ctx.budget());
        for row in range {
            let tokens = &tokens[splits.at(row) as usize..splits.at(row + 1) as usize];
            // SAFETY: rows are disjoint, and so are their n-grams.
            let slots = unsafe { out.part(offsets[row] as usize..offsets[row + 1] as usize) };
            if let Err(e) = write_row(grams, tokens, &mut text, slots) {
                return errors.note(row, e);
            }
        }
    })?;
    errors.check()?;
    ctx.set_output(0, output)?;
    set_splits(ctx, &starts)
}

fn write_row(
    grams: &Grams,
    tokens: &[Bytes],
    text: &mut StringBuilder,
    slots: &mut [Bytes],
) -> Result<()> {
    let mut slots = slots.iter_mut();
    for (width, count) in grams.of_row(tokens.len() as i64) {
        for (index, slot) in (0..count).zip(&mut slots) {
            grams.write(tokens, width, count, index, text)?;
            *slot = text.take()?;
        }
    }
    Ok(())
}

/// Sets the row splits output, narrowed to its dtype.
fn set_splits(ctx: &mut KernelContext<'_>, starts: &Tensor) -> Result<()> {
    if ctx.output_dtype(1)? == DType::Int64 {
        return ctx.set_output(1, starts.clone());
    }
    let mut narrow = ctx.allocate_output(1, starts.shape().clone())?;
    for (to, &from) in narrow.as_mut_slice::<i32>()?.iter_mut().zip(starts.as_slice::<i64>()?) {
        *to = i32::try_from(from)
            .map_err(|_| err!(InvalidArgument, "{from} n-grams do not fit int32 splits"))?;
    }
    ctx.set_output(1, narrow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Call, call, code};
    use thalweg_tensor::Code;

    fn grams(splits: &[i64], widths: &[i64], pad_width: i64, keeps_short: bool) -> Call {
        let tokens = ["a", "b", "c", "d", "e", "f"].map(|s| Bytes::from_static(s.as_bytes()));
        let data = Tensor::from_strings(Shape::new(&[6]).unwrap(), tokens.to_vec()).unwrap();
        call("StringNGrams")
            .input(data)
            .input(Tensor::vector(splits).unwrap())
            .attr("separator", "|")
            .attr("ngram_widths", widths)
            .attr("left_pad", "L")
            .attr("right_pad", "R")
            .attr("pad_width", pad_width)
            .attr("preserve_short_sequences", keeps_short)
    }

    #[test]
    fn with_and_without_pads() {
        for (call, expected) in [
            (grams(&[0, 4, 6], &[2], 0, false), "a|b b|c c|d e|f [0, 3, 4]"),
            (grams(&[0, 4, 6], &[2, 3], 0, false), "a|b b|c c|d a|b|c b|c|d e|f [0, 5, 6]"),
            (grams(&[0, 4, 6], &[3], 1, false), "L|a|b a|b|c b|c|d c|d|R L|e|f e|f|R [0, 4, 6]"),
            (grams(&[0, 1, 6], &[3], 0, true), "a b|c|d c|d|e d|e|f [0, 1, 4]"),
            (grams(&[0, 1, 6], &[5], 1, true), "L|a|R L|b|c|d|e b|c|d|e|f c|d|e|f|R [0, 1, 4]"),
            (grams(&[0, 6], &[7, 8], 0, true), "a|b|c|d|e|f [0, 1]"),
            (grams(&[0, 6], &[], 0, false), " [0, 0]"),
            (grams(&[], &[2], 0, false), "      []"),
        ] {
            let outputs = call.run_all().unwrap();
            let strings = outputs[0].strings().unwrap().iter().map(|s| String::from_utf8_lossy(s));
            let splits = outputs[1].as_slice::<i64>().unwrap();
            assert_eq!(format!("{} {splits:?}", strings.collect::<Vec<_>>().join(" ")), expected);
        }
        let dynamic = grams(&[0, 0, 6], &[3], -1, true).run_all().unwrap();
        assert_eq!(dynamic[0].strings().unwrap()[..3], ["L|L|R", "L|R|R", "L|L|a"]);
    }

    #[test]
    fn bad_splits_and_widths() {
        for splits in [&[0, 5][..], &[1, 6], &[0, 7], &[0, 4, 3, 6], &[-1, 6], &[6], &[0, 0, 0]] {
            assert_eq!(
                code(grams(splits, &[2], 0, false).run_all()),
                Some(Code::InvalidArgument),
                "{splits:?}"
            );
        }
        for width in [0, -1, 1 << 40, i64::MAX] {
            assert_eq!(
                code(grams(&[0, 6], &[width], 0, false).run_all()),
                Some(Code::InvalidArgument),
                "{width}"
            );
        }
        assert_eq!(
            code(grams(&[0, 6], &[2], 1 << 33, false).run_all()),
            Some(Code::InvalidArgument)
        );
        assert_eq!(code(grams(&[0, 6], &[], -1, true).run_all()), Some(Code::InvalidArgument));
        let wide = i64::from(i32::MAX);
        assert_eq!(
            code(grams(&[0, 6], &[wide], wide, false).run_all()),
            Some(Code::ResourceExhausted)
        );
    }
}
