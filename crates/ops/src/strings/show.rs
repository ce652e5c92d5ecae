//! Formatting of tensors as text, as in TensorFlow.
//!
//! [`flat`] is the form of `Assert` and `Print`: the first elements, with brackets around inner
//! dimensions. [`nested`] is the form of `StringFormat` (and so of `tf.print`): the elements at
//! both ends of every dimension, on separate lines. Both write bytes, since strings may contain
//! any.

use thalweg_tensor::{
    DType, Element, Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz, Float8E5m2, Float8E5m2fnuz,
    QInt8, QInt16, QUInt8, QUInt16, ResourceHandle, Result, StringBuilder, Tensor, bf16, f16,
};

use super::printf::{brief_f32, brief_f64};

/// Writes the first `entries_max` elements (all of them if it is negative), then `...` if there
/// are more. The caller writes the outer brackets.
pub(crate) fn flat(tensor: &Tensor, entries_max: i64, out: &mut StringBuilder) -> Result<()> {
    let total = tensor.num_elements();
    let limit = limit(entries_max, total);
    if tensor.dtype() == DType::Bool && limit == 0 {
        return Ok(());
    }
    let Some(element) = printer(tensor, false)? else { return objects(tensor, limit, out) };
    if tensor.rank() == 0 {
        if limit > 0 {
            element(0, out)?;
        }
    } else {
        flat_dim(tensor.shape(), limit, &*element, &mut 0, out)?;
    }
    if total > limit { out.push(b"...") } else { Ok(()) }
}

/// Writes up to `ends` elements from both ends of every dimension (all of them if it is negative)
/// in brackets, strings in quotes.
pub(crate) fn nested(tensor: &Tensor, ends: i64, out: &mut StringBuilder) -> Result<()> {
    let total = tensor.num_elements();
    let limit = limit(ends, total);
    if tensor.dtype() == DType::Bool && limit == 0 {
        return Ok(());
    }
    let Some(element) = printer(tensor, true)? else {
        if tensor.rank() > 0 {
            out.push(b"[")?;
        }
        objects(tensor, limit, out)?;
        return if tensor.rank() > 0 { out.push(b"]") } else { Ok(()) };
    };
    if tensor.rank() == 0 {
        return if limit > 0 { element(0, out) } else { out.push(b"...") };
    }
    Nested { dims: tensor.shape(), ends: limit, element: &*element }.dim(0, 0, out)
}

fn limit(entries_max: i64, total: usize) -> usize {
    usize::try_from(entries_max).map_or(total, |max| max.min(total))
}

type Printer<'a> = dyn Fn(usize, &mut StringBuilder) -> Result<()> + 'a;

fn flat_dim(
    dims: &[usize],
    limit: usize,
    element: &Printer<'_>,
    next: &mut usize,
    out: &mut StringBuilder,
) -> Result<()> {
    let Some((&count, inner)) = dims.split_first() else { return Ok(()) };
    for i in 0..count {
        if *next >= limit {
            return Ok(());
        }
        if inner.is_empty() {
            if i > 0 {
                out.push(b" ")?;
            }
            element(*next, out)?;
            *next += 1;
            continue;
        }
        let end = *next + inner.last().copied().unwrap_or(1);
        out.push(b"[")?;
        flat_dim(inner, limit, element, next, out)?;
        // An inner row that is cut off ends with `...`; for the outermost, the end of the text
        // does.
        if inner.len() == 1 && *next < end {
            out.push(b"...")?;
        }
        out.push(b"]")?;
    }
    Ok(())
}

struct Nested<'a> {
    dims: &'a [usize],
    ends: usize,
    element: &'a Printer<'a>,
}

impl Nested<'_> {
    fn dim(&self, depth: usize, first: usize, out: &mut StringBuilder) -> Result<()> {
        let Some(&count) = self.dims.get(depth) else { return (self.element)(first, out) };
        let step: usize = self.dims[depth + 1..].iter().product();
        out.push(b"[")?;
        for i in 0..count.min(self.ends) {
            if i > 0 {
                self.spacing(depth, out)?;
            }
            self.dim(depth + 1, first + i * step, out)?;
        }
        if count > self.ends.saturating_mul(2) {
            self.spacing(depth, out)?;
            out.push(b"...")?;
        }
        for i in self.ends.max(count.saturating_sub(self.ends))..count {
            self.spacing(depth, out)?;
            self.dim(depth + 1, first + i * step, out)?;
        }
        out.push(b"]")
    }

    /// A space within a row, else as many newlines as there are inner dimensions.
    fn spacing(&self, depth: usize, out: &mut StringBuilder) -> Result<()> {
        let within = self.dims.len() - depth - 1;
        out.push_repeated(b'\n', within)?;
        out.push_repeated(b' ', if within == 0 { 1 } else { depth + 1 })
    }
}

/// The formatter for the tensor's elements; `None` for dtypes without a text form.
fn printer(tensor: &Tensor, is_quoted: bool) -> Result<Option<Box<Printer<'_>>>> {
    fn float<T: Element>(tensor: &Tensor, wide: fn(T) -> f32) -> Result<Box<Printer<'_>>> {
        let elements = tensor.as_slice::<T>()?;
        Ok(Box::new(move |i, out| brief_f32(out, wide(elements[i]))))
    }
    fn integer<T: Element>(tensor: &Tensor, wide: fn(T) -> i64) -> Result<Box<Printer<'_>>> {
        let elements = tensor.as_slice::<T>()?;
        Ok(Box::new(move |i, out| out.print(wide(elements[i]))))
    }
    Ok(Some(match tensor.dtype() {
        DType::Float => float(tensor, |x: f32| x)?,
        DType::Half => float(tensor, f16::to_f32)?,
        DType::BFloat16 => float(tensor, bf16::to_f32)?,
        DType::Float8E5m2 => float(tensor, Float8E5m2::to_f32)?,
        DType::Float8E4m3fn => float(tensor, Float8E4m3fn::to_f32)?,
        DType::Float8E4m3fnuz => float(tensor, Float8E4m3fnuz::to_f32)?,
        DType::Float8E4m3b11fnuz => float(tensor, Float8E4m3b11fnuz::to_f32)?,
        DType::Float8E5m2fnuz => float(tensor, Float8E5m2fnuz::to_f32)?,
        DType::Double => {
            let elements = tensor.as_slice::<f64>()?;
            Box::new(move |i, out| brief_f64(out, elements[i]))
        }
        DType::UInt64 => {
            let elements = tensor.as_slice::<u64>()?;
            Box::new(move |i, out| out.print(elements[i]))
        }
        DType::Bool => integer(tensor, |x: bool| x.into())?,
        DType::Int8 => integer(tensor, |x: i8| x.into())?,
        DType::UInt8 => integer(tensor, |x: u8| x.into())?,
        DType::Int16 => integer(tensor, |x: i16| x.into())?,
        DType::UInt16 => integer(tensor, |x: u16| x.into())?,
        DType::Int32 => integer(tensor, |x: i32| x.into())?,
        DType::UInt32 => integer(tensor, |x: u32| x.into())?,
        DType::Int64 => integer(tensor, |x: i64| x)?,
        DType::QInt8 => integer(tensor, |x: QInt8| x.0.into())?,
        DType::QUInt8 => integer(tensor, |x: QUInt8| x.0.into())?,
        DType::QInt16 => integer(tensor, |x: QInt16| x.0.into())?,
        DType::QUInt16 => integer(tensor, |x: QUInt16| x.0.into())?,
        DType::Int4 | DType::Int2 => {
            let bytes = tensor.as_bytes()?;
            Box::new(move |i, out| out.print(bytes[i].cast_signed()))
        }
        DType::UInt4 | DType::UInt2 => {
            let bytes = tensor.as_bytes()?;
            Box::new(move |i, out| out.print(bytes[i]))
        }
        DType::String => {
            let strings = tensor.strings()?;
            let quote: &[u8] = if is_quoted { b"\"" } else { b"" };
            Box::new(move |i, out| {
                out.push(quote)?;
                escaped(&strings[i], out)?;
                out.push(quote)
            })
        }
        DType::Complex64 | DType::Complex128 | DType::QInt32 | DType::Resource | DType::Variant => {
            return Ok(None);
        }
    }))
}

/// Bytes escaped as in a C string, except that bytes above ASCII are kept.
fn escaped(bytes: &[u8], out: &mut StringBuilder) -> Result<()> {
    for &byte in bytes {
        match byte {
            b'\n' => out.push(b"\\n")?,
            b'\r' => out.push(b"\\r")?,
            b'\t' => out.push(b"\\t")?,
            b'"' | b'\'' | b'\\' => out.push(&[b'\\', byte])?,
            0..0x20 | 0x7f => out.print(format_args!("\\{byte:03o}"))?,
            _ => out.push(&[byte])?,
        }
    }
    Ok(())
}

/// Elements shown in a row for any shape: handles, variants, and unprintable types.
fn objects(tensor: &Tensor, limit: usize, out: &mut StringBuilder) -> Result<()> {
    for i in 0..limit {
        if i > 0 {
            out.push(b" ")?;
        }
        match tensor.dtype() {
            DType::Resource => handle(&tensor.resources()?[i], out)?,
            DType::Variant => {
                let name = tensor.variants()?[i].as_ref().map_or("", |v| v.type_name());
                let short = name.rsplit("::").next().unwrap_or(name);
                out.print(format_args!("<{short}>"))?;
            }
            _ => out.push(b"?")?,
        }
    }
    if limit < tensor.num_elements() { out.push(b"...") } else { Ok(()) }
}

fn handle(handle: &ResourceHandle, out: &mut StringBuilder) -> Result<()> {
    let ResourceHandle { name, device, container, .. } = handle;
    let kind = handle.owned.as_ref().map_or("", |resource| resource.kind());
    out.print(format_args!(
        "<ResourceHandle(name=\"{name}\", device=\"{device}\", container=\"{container}\", \
         type=\"{kind}\", dtype and shapes : \"["
    ))?;
    for (i, (dtype, shape)) in handle.dtypes_and_shapes.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let number = dtype.to_proto();
        out.print(format_args!("{comma} DType enum: {number}, Shape: {shape}"))?;
    }
    out.push(b" ]\")>")
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::{Budget, Bytes, Code, Complex32, Shape};

    use super::*;
    use crate::testing::code;

    fn text(write: impl Fn(&mut StringBuilder) -> Result<()>) -> String {
        let mut out = StringBuilder::new(&Budget::new(1 << 20));
        write(&mut out).unwrap();
        String::from_utf8_lossy(out.as_bytes()).into_owned()
    }

    fn range(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let values: Vec<i32> = (0..shape.num_elements() as i32).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    fn strings(items: &[&'static str]) -> Tensor {
        let items = items.iter().map(|s| Bytes::from_static(s.as_bytes())).collect::<Vec<_>>();
        Tensor::from_strings(Shape::new(&[items.len()]).unwrap(), items).unwrap()
    }

    #[test]
    fn flat_summaries() {
        let cube = range(&[3, 2, 2]);
        for (tensor, max, expected) in [
            (cube.clone(), -1, "[[0 1][2 3]][[4 5][6 7]][[8 9][10 11]]"),
            (cube.clone(), 0, "..."),
            (cube.clone(), 1, "[[0...]]..."),
            (cube.clone(), 2, "[[0 1]]..."),
            (cube.clone(), 3, "[[0 1][2...]]..."),
            (cube, 5, "[[0 1][2 3]][[4...]]..."),
            (range(&[3]), 2, "0 1..."),
            (range(&[3]), 100, "0 1 2"),
            (range(&[]), 0, "..."),
            (range(&[]), 1, "0"),
            (range(&[0]), 3, ""),
            (range(&[2, 0]), 3, ""),
            (Tensor::vector(&[true, false]).unwrap(), 0, ""),
            (Tensor::vector(&[true, false]).unwrap(), 1, "1..."),
            (strings(&["a\"b", "é\n"]), -1, "a\\\"b é\\n"),
            (Tensor::vector(&[Complex32::default(); 2]).unwrap(), 1, "?..."),
        ] {
            assert_eq!(text(|out| flat(&tensor, max, out)), expected, "{tensor:?} {max}");
        }
    }

    #[test]
    fn nested_summaries() {
        for (tensor, ends, expected) in [
            (range(&[10]), -1, "[0 1 2 3 4 5 6 7 8 9]"),
            (range(&[10]), 0, "[ ...]"),
            (range(&[10]), 2, "[0 1 ... 8 9]"),
            (range(&[7]), 3, "[0 1 2 ... 4 5 6]"),
            (range(&[6]), 3, "[0 1 2 3 4 5]"),
            (range(&[3, 3]), 1, "[[0 ... 2]\n ...\n [6 ... 8]]"),
            (range(&[2, 2, 2]), 3, "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"),
            (range(&[2, 0]), 3, "[\n ...]"),
            (range(&[0, 2]), 3, "[]"),
            (range(&[]), 0, "..."),
            (range(&[]), 3, "0"),
            (Tensor::vector::<bool>(&[]).unwrap(), 3, ""),
            (strings(&["a\"b", "\u{1}\u{7f}"]), -1, "[\"a\\\"b\" \"\\001\\177\"]"),
            (Tensor::vector(&[Complex32::default(); 2]).unwrap(), 1, "[?...]"),
        ] {
            assert_eq!(text(|out| nested(&tensor, ends, out)), expected, "{tensor:?} {ends}");
        }
        let handle = Tensor::from_resources(Shape::scalar(), vec![ResourceHandle::default()]);
        assert!(text(|out| nested(&handle.clone().unwrap(), 3, out)).starts_with("<Resource"));
    }

    #[test]
    fn long_text_is_refused() {
        let mut out = StringBuilder::new(&Budget::new(1000));
        assert_eq!(code(nested(&range(&[1000]), -1, &mut out)), Some(Code::ResourceExhausted));
    }
}
