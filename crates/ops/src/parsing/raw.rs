//! `DecodeRaw`: strings reinterpreted as numbers.

use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Bytes, DType, PartialShape, Result, Tensor, ensure, err};

use super::with_last;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("DecodeRaw", one_more_dimension)
            .with_work(Work::copies_outputs)
            .without_gradient(),
        OpDef::new("DecodePaddedRaw", padded_shape)
            .with_work(Work::copies_outputs)
            .without_gradient(),
    ],
    kernels: &[
        KernelSpec { op: "DecodeRaw", create: decode_raw, ..KernelSpec::CPU },
        KernelSpec { op: "DecodePaddedRaw", create: decode_padded_raw, ..KernelSpec::CPU },
    ],
};

fn one_more_dimension(c: &mut ShapeContext<'_>) -> Result<()> {
    set_rows(c, None);
    Ok(())
}

fn padded_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "fixed_length", 0)?;
    let size = c.attrs().dtype("out_type")?.size();
    let width = match c.partial_value(1).and_then(|v| v.first()) {
        // A width of zero is an error only at run time, as in TensorFlow.
        Some(0) => Some(0),
        Some(length) => Some(padded_width(length, size)?),
        None => None,
    };
    set_rows(c, width);
    Ok(())
}

/// The output has the input's shape followed by `width`.
fn set_rows(c: &mut ShapeContext<'_>, width: Option<usize>) {
    if let Some(dims) = c.input(0).dims() {
        let dims = dims.iter().copied().chain([width]);
        c.set_output(0, PartialShape::new(dims));
    }
}

fn padded_width(length: i64, size: usize) -> Result<usize> {
    let bytes = usize::try_from(length).ok().filter(|&n| n > 0).ok_or_else(|| {
        err!(InvalidArgument, "fixed_length ({length}) must be greater than zero")
    })?;
    ensure!(
        bytes.is_multiple_of(size),
        InvalidArgument,
        "fixed_length ({length}) must be a multiple of the size of out_type ({size})"
    );
    Ok(bytes / size)
}

/// Byte layout of one element.
#[derive(Clone, Copy)]
struct Layout {
    dtype: DType,
    little_endian: bool,
}

impl Layout {
    fn new(init: &KernelInit<'_>) -> Result<Layout> {
        let attrs = init.attrs();
        Ok(Layout { dtype: attrs.dtype("out_type")?, little_endian: attrs.bool("little_endian")? })
    }

    /// Converts bytes in place to native byte order.
    fn finish(self, row: &mut [u8]) {
        // Each part of a complex number is swapped by itself.
        let number =
            if self.dtype.is_complex() { self.dtype.size() / 2 } else { self.dtype.size() };
        if self.dtype == DType::Bool {
            row.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        } else if self.little_endian != cfg!(target_endian = "little") && number > 1 {
            row.chunks_exact_mut(number).for_each(<[u8]>::reverse);
        }
    }
}

fn decode_raw(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let layout = Layout::new(init)?;
    AnyKernel::new(move |ctx| {
        let input = ctx.input(0)?;
        let rows = input.strings()?;
        let length = rows.first().map_or(0, Bytes::len);
        if let Some((i, other)) = rows.iter().enumerate().find(|(_, row)| row.len() != length) {
            return Err(err!(
                InvalidArgument,
                "DecodeRaw requires input strings to all be the same size, but element {i} has \
                 size {} != {length}",
                other.len()
            ));
        }
        let size = layout.dtype.size();
        ensure!(
            length.is_multiple_of(size),
            InvalidArgument,
            "Input to DecodeRaw has length {length} that is not a multiple of {size}, the size of {}",
            layout.dtype
        );
        let shape = with_last(input.shape(), length / size)?;
        // A single row in native byte order: the tensor can share the string's memory.
        if rows.len() == 1 && layout.little_endian && cfg!(target_endian = "little") {
            let output = Tensor::from_bytes(layout.dtype, shape, rows[0].clone())?;
            return ctx.set_output(0, output);
        }
        let output = ctx.allocate_output(0, shape)?;
        decode_rows(ctx, layout, output, length)
    })
}

fn decode_padded_raw(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let layout = Layout::new(init)?;
    AnyKernel::new(move |ctx| {
        let size = layout.dtype.size();
        let width = padded_width(ctx.scalar_int(1, "fixed_length")?, size)?;
        let output = ctx.allocate_output(0, with_last(ctx.input(0)?.shape(), width)?)?;
        decode_rows(ctx, layout, output, width * size)
    })
}

/// Fills rows of `row_bytes` bytes: longer strings are truncated, shorter ones zero-padded.
fn decode_rows(
    ctx: &mut KernelContext<'_>,
    layout: Layout,
    mut output: Tensor,
    row_bytes: usize,
) -> Result<()> {
    let rows = ctx.input(0)?.strings()?;
    // SAFETY: `finish` leaves only 0 and 1 in a bool tensor.
    let bytes = unsafe { output.bytes_mut()? };
    for_each_rows(ctx, bytes, row_bytes, 10.0 + row_bytes as f64 * 0.1, |first, part| {
        for (row, source) in part.chunks_exact_mut(row_bytes).zip(&rows[first..]) {
            let (filled, rest) = row.split_at_mut(source.len().min(row_bytes));
            filled.copy_from_slice(&source[..filled.len()]);
            rest.fill(0);
            layout.finish(row);
        }
    })?;
    ctx.set_output(0, output)
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Code, Complex32, Shape, bf16};

    use super::*;
    use crate::testing::{call, code};

    fn strings(items: &[&[u8]]) -> Tensor {
        let items: Vec<Bytes> = items.iter().map(|s| Bytes::copy_from_slice(s)).collect();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    fn raw(input: Tensor, dtype: DType, little_endian: bool) -> Result<Tensor> {
        call("DecodeRaw")
            .input(input)
            .attr("out_type", dtype)
            .attr("little_endian", little_endian)
            .run()
    }

    #[test]
    fn shapes() {
        let raw = |s| call("DecodeRaw").shape(DType::String, s).attr("out_type", DType::Int32);
        assert_eq!(raw("2,?").infer(), "[2,?,?]");
        assert_eq!(raw("unknown").infer(), "<unknown>");
        let padded = |length: i32| {
            call("DecodePaddedRaw")
                .shape(DType::String, "3")
                .constant(Tensor::scalar(length))
                .attr("out_type", DType::Int16)
                .infer()
        };
        assert_eq!(padded(8), "[3,4]");
        assert_eq!(padded(0), "[3,0]");
        for bad in [3, -2] {
            assert!(padded(bad).contains("fixed_length"), "{bad}");
        }
    }

    #[test]
    fn both_byte_orders() {
        let bytes = strings(&[b"\x00\x01\x00\x02", b"\x00\x03\x00\x04"]);
        let big = raw(bytes.clone(), DType::Int16, false).unwrap();
        assert_eq!(big.as_slice::<i16>().unwrap(), [1, 2, 3, 4]);
        let little = raw(bytes, DType::Int16, true).unwrap();
        assert_eq!(little.as_slice::<i16>().unwrap(), [0x100, 0x200, 0x300, 0x400]);
        let one = strings(&[&[1.0f32.to_be_bytes(), 2.0f32.to_be_bytes()].concat()]);
        let complex = raw(one, DType::Complex64, false).unwrap();
        assert_eq!(complex.as_slice::<Complex32>().unwrap(), [Complex32::new(1.0, 2.0)]);
        let half = raw(strings(&[b"\x3f\x80"]), DType::BFloat16, false).unwrap();
        assert_eq!(half.as_slice::<bf16>().unwrap(), [bf16::ONE]);
    }

    #[test]
    fn bools_are_zero_or_one() {
        let flags = raw(strings(&[b"\x00\x01", b"\x02\xff"]), DType::Bool, true).unwrap();
        assert_eq!(flags.as_slice::<bool>().unwrap(), [false, true, true, true]);
    }

    #[test]
    fn empty_and_uneven() {
        assert_eq!(raw(strings(&[]), DType::Int32, true).unwrap().shape().dims(), [0, 0]);
        assert_eq!(raw(strings(&[b"", b""]), DType::Int32, true).unwrap().shape().dims(), [2, 0]);
        for bad in [&[b"abcd".as_slice(), b"abc"][..], &[b"abc"]] {
            assert_eq!(code(raw(strings(bad), DType::Int32, true)), Some(Code::InvalidArgument));
        }
    }

    #[test]
    fn padding() {
        let padded = |little_endian: bool| {
            let output = call("DecodePaddedRaw")
                .input(strings(&[b"abc", b"abcdef", b""]))
                .input(Tensor::scalar(4i32))
                .attr("out_type", DType::Int16)
                .attr("little_endian", little_endian)
                .backwards()
                .run();
            output.unwrap().as_slice::<i16>().unwrap().to_vec()
        };
        assert_eq!(padded(true), [25185, 99, 25185, 25699, 0, 0]);
        assert_eq!(padded(false), [24930, 25344, 24930, 25444, 0, 0]);
    }
}
