//! Tensors as text: abbreviated for people, complete as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use thalweg_tensor::{
    Complex32, Complex64, DType, Element, Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz,
    Float8E5m2, Float8E5m2fnuz, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Tensor, bf16, f16,
};

use crate::number::float_text;

/// Tensors with more elements are abbreviated.
const SHOWN_WHOLE_MAX: usize = 1000;
/// The number of items shown at either end of an abbreviated dimension.
const EDGE: usize = 3;
/// The line width for numbers.
const LINE_COLUMNS: usize = 100;
/// The maximum number of bytes of a string that are shown.
const STRING_BYTES_MAX: usize = 200;

/// One element.
#[derive(PartialEq)]
pub(crate) enum Scalar {
    Int(i128),
    Single(f32),
    Double(f64),
    Complex(f64, f64),
    Bool(bool),
    String(thalweg_tensor::Bytes),
    Other(String),
}

/// Access to a tensor's elements by position.
pub(crate) struct Elements<'a>(Box<dyn Fn(usize) -> Scalar + 'a>);

impl<'a> Elements<'a> {
    /// The element at a position within the tensor.
    pub(crate) fn get(&self, position: usize) -> Scalar {
        (self.0)(position)
    }

    pub(crate) fn new(tensor: &'a Tensor) -> Result<Elements<'a>> {
        macro_rules! each {
            ($t:ty, $make:expr) => {
                Self::plain::<$t>(tensor, $make)
            };
        }
        match tensor.dtype() {
            DType::Float => each!(f32, Scalar::Single),
            DType::Double => each!(f64, Scalar::Double),
            DType::Half => each!(f16, |x| Scalar::Single(x.to_f32())),
            DType::BFloat16 => each!(bf16, |x| Scalar::Single(x.to_f32())),
            DType::Float8E5m2 => each!(Float8E5m2, |x| Scalar::Single(x.to_f32())),
            DType::Float8E4m3fn => each!(Float8E4m3fn, |x| Scalar::Single(x.to_f32())),
            DType::Float8E4m3fnuz => each!(Float8E4m3fnuz, |x| Scalar::Single(x.to_f32())),
            DType::Float8E4m3b11fnuz => each!(Float8E4m3b11fnuz, |x| Scalar::Single(x.to_f32())),
            DType::Float8E5m2fnuz => each!(Float8E5m2fnuz, |x| Scalar::Single(x.to_f32())),
            DType::Int8 => each!(i8, |x| Scalar::Int(x.into())),
            DType::Int16 => each!(i16, |x| Scalar::Int(x.into())),
            DType::Int32 => each!(i32, |x| Scalar::Int(x.into())),
            DType::Int64 => each!(i64, |x| Scalar::Int(x.into())),
            DType::UInt8 => each!(u8, |x| Scalar::Int(x.into())),
            DType::UInt16 => each!(u16, |x| Scalar::Int(x.into())),
            DType::UInt32 => each!(u32, |x| Scalar::Int(x.into())),
            DType::UInt64 => each!(u64, |x| Scalar::Int(x.into())),
            DType::QInt8 => each!(QInt8, |x| Scalar::Int(x.0.into())),
            DType::QInt16 => each!(QInt16, |x| Scalar::Int(x.0.into())),
            DType::QInt32 => each!(QInt32, |x| Scalar::Int(x.0.into())),
            DType::QUInt8 => each!(QUInt8, |x| Scalar::Int(x.0.into())),
            DType::QUInt16 => each!(QUInt16, |x| Scalar::Int(x.0.into())),
            DType::Complex64 => {
                each!(Complex32, |x| Scalar::Complex(x.re.into(), x.im.into()))
            }
            DType::Complex128 => each!(Complex64, |x| Scalar::Complex(x.re, x.im)),
            DType::Bool => each!(bool, Scalar::Bool),
            DType::Int4 | DType::Int2 => {
                let (bytes, unused) =
                    (tensor.as_bytes()?, if tensor.dtype() == DType::Int4 { 4 } else { 6 });
                Ok(Elements(Box::new(move |i| {
                    Scalar::Int((((bytes[i] << unused) as i8) >> unused).into())
                })))
            }
            DType::UInt4 | DType::UInt2 => {
                let (bytes, mask) =
                    (tensor.as_bytes()?, if tensor.dtype() == DType::UInt4 { 15 } else { 3 });
                Ok(Elements(Box::new(move |i| Scalar::Int((bytes[i] & mask).into()))))
            }
            DType::String => {
                let strings = tensor.strings()?;
                Ok(Elements(Box::new(move |i| Scalar::String(strings[i].clone()))))
            }
            DType::Resource => {
                let handles = tensor.resources()?;
                Ok(Elements(Box::new(move |i| Scalar::Other(format!("{:?}", handles[i])))))
            }
            DType::Variant => {
                let values = tensor.variants()?;
                let name = |i: usize| match &values[i] {
                    Some(value) => format!("<variant {}>", value.type_name()),
                    None => "<empty variant>".to_owned(),
                };
                Ok(Elements(Box::new(move |i| Scalar::Other(name(i)))))
            }
        }
    }

    fn plain<T: Element>(
        tensor: &'a Tensor,
        make: impl Fn(T) -> Scalar + 'a,
    ) -> Result<Elements<'a>> {
        let slice = tensor.as_slice::<T>()?;
        Ok(Elements(Box::new(move |i| make(slice[i]))))
    }
}

/// The elements as text: nested brackets, `...` where elements are omitted.
pub(crate) fn show(tensor: &Tensor) -> Result<String> {
    let elements = Elements::new(tensor)?;
    let is_partial = tensor.num_elements() > SHOWN_WHOLE_MAX;
    let mut shower = Shower {
        dims: tensor.shape().dims(),
        elements,
        is_partial,
        width: 0,
        left: SHOWN_WHOLE_MAX,
        text: String::new(),
    };
    if tensor.num_elements() == 0 && tensor.rank() > 0 {
        return Ok("[]".to_owned());
    }
    // Once for the width of the widest element, once to write them.
    shower.list(0, 0);
    (shower.left, shower.text) = (SHOWN_WHOLE_MAX, String::new());
    shower.list(0, 0);
    Ok(shower.text)
}

struct Shower<'a> {
    dims: &'a [usize],
    elements: Elements<'a>,
    is_partial: bool,
    width: usize,
    /// The remaining number of elements to show: with many short dimensions the edges alone are too
    /// many.
    left: usize,
    text: String,
}

impl Shower<'_> {
    fn list(&mut self, level: usize, first: usize) {
        let Some(&length) = self.dims.get(level) else {
            return self.element(first);
        };
        let stride: usize = self.dims[level + 1..].iter().product();
        let is_innermost = level + 1 == self.dims.len();
        self.text.push('[');
        let mut i = 0;
        while i < length {
            if i > 0 {
                self.separate(level, is_innermost);
            }
            let skips = self.is_partial && length > 2 * EDGE && i == EDGE;
            if skips || self.left == 0 {
                self.text.push_str("...");
                if self.left == 0 {
                    break;
                }
                i = length - EDGE;
                continue;
            }
            self.list(level + 1, first + i * stride);
            i += 1;
        }
        self.text.push(']');
    }

    /// Writes the separator of two items of a list.
    fn separate(&mut self, level: usize, is_innermost: bool) {
        let column = self.text.len() - self.text.rfind('\n').map_or(0, |at| at + 1);
        if is_innermost && column + 1 + self.width < LINE_COLUMNS {
            self.text.push(' ');
            return;
        }
        let lines = if is_innermost { 1 } else { self.dims.len() - level - 1 };
        self.text.extend(std::iter::repeat_n('\n', lines.min(2)));
        self.text.extend(std::iter::repeat_n(' ', level + 1));
    }

    fn element(&mut self, position: usize) {
        self.left = self.left.saturating_sub(1);
        let element = (self.elements.0)(position);
        if matches!(element, Scalar::String(_) | Scalar::Other(_)) {
            self.text.push_str(&shown(element));
            return;
        }
        let text = shown(element);
        self.width = self.width.max(text.chars().count());
        let _ = write!(self.text, "{text:>width$}", width = self.width);
    }
}

fn shown(element: Scalar) -> String {
    match element {
        Scalar::Int(i) => i.to_string(),
        Scalar::Single(x) => single_text(x),
        Scalar::Double(x) => float_text(x),
        Scalar::Complex(re, im) => {
            format!(
                "{}{}{}j",
                float_text(re),
                if im.is_sign_negative() { "" } else { "+" },
                float_text(im)
            )
        }
        Scalar::Bool(b) => b.to_string(),
        Scalar::String(s) => shown_string(&s),
        Scalar::Other(text) => text,
    }
}

fn single_text(x: f32) -> String {
    let size = x.abs();
    if x != 0.0 && x.is_finite() && !(1e-5..1e16).contains(&size) {
        return format!("{x:e}");
    }
    format!("{x}")
}

fn shown_string(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(STRING_BYTES_MAX)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => format!("{text:?}"),
        // The limit is within a character.
        Err(e) if e.error_len().is_none() && start.len() < bytes.len() => {
            format!("{:?}", String::from_utf8_lossy(&start[..e.valid_up_to()]))
        }
        Err(_) => format!("b\"{}\"", start.escape_ascii()),
    };
    if start.len() < bytes.len() { format!("{text}... ({} bytes)", bytes.len()) } else { text }
}

/// The tensor as JSON: `{"dtype": .., "shape": [..], "values": ..}`, values nested by shape.
///
/// Numbers that JSON cannot express are strings ("NaN", "Infinity", "-Infinity"), complex numbers
/// are pairs, strings that are not UTF-8 are `{"base64": ".."}`.
pub(crate) fn write_json(tensor: &Tensor, out: &mut dyn Write) -> Result<(), crate::Failure> {
    let elements = Elements::new(tensor)?;
    write!(out, "{{\"dtype\":\"{}\",\"shape\":{},\"values\":", tensor.dtype(), tensor.shape())?;
    if tensor.num_elements() == 0 {
        write_empty(tensor.shape().dims(), out)?;
    } else {
        write_values(tensor.shape().dims(), &elements, &mut 0, out)?;
    }
    out.write_all(b"}")?;
    Ok(())
}

fn write_values(
    dims: &[usize],
    elements: &Elements<'_>,
    position: &mut usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let [length, inner @ ..] = dims else {
        write_scalar((elements.0)(*position), out)?;
        *position += 1;
        return Ok(());
    };
    out.write_all(b"[")?;
    for i in 0..*length {
        if i > 0 {
            out.write_all(b",")?;
        }
        write_values(inner, elements, position, out)?;
    }
    out.write_all(b"]")
}

/// Nested lists down to the dimension of size 0. The sizes before it may be huge although there is
/// no element, so only small ones are written out.
fn write_empty(dims: &[usize], out: &mut dyn Write) -> io::Result<()> {
    match dims {
        [length @ 1..=SHOWN_WHOLE_MAX, inner @ ..] if dims_before_zero(dims) <= SHOWN_WHOLE_MAX => {
            out.write_all(b"[")?;
            for i in 0..*length {
                if i > 0 {
                    out.write_all(b",")?;
                }
                write_empty(inner, out)?;
            }
            out.write_all(b"]")
        }
        _ => out.write_all(b"[]"),
    }
}

fn dims_before_zero(dims: &[usize]) -> usize {
    dims.iter().take_while(|&&d| d > 0).fold(1, |product: usize, &d| product.saturating_mul(d))
}

fn write_scalar(element: Scalar, out: &mut dyn Write) -> io::Result<()> {
    match element {
        Scalar::Int(i) => write!(out, "{i}"),
        Scalar::Single(x) if x.is_finite() => out.write_all(single_text(x).as_bytes()),
        Scalar::Single(x) => write_double(x.into(), out),
        Scalar::Double(x) => write_double(x, out),
        Scalar::Complex(re, im) => {
            out.write_all(b"[")?;
            write_double(re, out)?;
            out.write_all(b",")?;
            write_double(im, out)?;
            out.write_all(b"]")
        }
        Scalar::Bool(b) => write!(out, "{b}"),
        Scalar::String(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(serde_json::to_writer(out, text)?),
            Err(_) => {
                use base64::Engine;
                let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
                write!(out, "{{\"base64\":\"{text}\"}}")
            }
        },
        Scalar::Other(text) => Ok(serde_json::to_writer(out, &text)?),
    }
}

fn write_double(x: f64, out: &mut dyn Write) -> io::Result<()> {
    if x.is_nan() {
        return out.write_all(b"\"NaN\"");
    }
    if x.is_infinite() {
        return out.write_all(if x > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
    }
    out.write_all(float_text(x).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_tensor::{Bytes, Shape};

    fn counted(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let values: Vec<i32> = (0..shape.num_elements() as i32).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    fn json(tensor: &Tensor) -> serde_json::Value {
        let mut out = Vec::new();
        write_json(tensor, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn people_see_brackets() {
        assert_eq!(show(&counted(&[])).unwrap(), "0");
        assert_eq!(show(&counted(&[3])).unwrap(), "[0 1 2]");
        assert_eq!(show(&counted(&[2, 6])).unwrap(), "[[ 0  1  2  3  4  5]\n [ 6  7  8  9 10 11]]");
        assert_eq!(show(&counted(&[2, 1, 1])).unwrap(), "[[[0]]\n\n [[1]]]");
        assert_eq!(show(&counted(&[0, 3])).unwrap(), "[]");
        assert_eq!(show(&counted(&[2000])).unwrap(), "[   0    1    2 ... 1997 1998 1999]");
        let many = show(&counted(&[2; 16])).unwrap();
        assert!(many.len() < 60_000 && many.contains("..."), "{}", many.len());
        let deep = show(&counted(&[1; 254])).unwrap();
        assert_eq!(deep.len(), 2 * 254 + 1);
        let strings = vec![Bytes::from_static("é".as_bytes()), Bytes::from_static(b"\xff")];
        let strings = Tensor::from_strings(Shape::new(&[2]).unwrap(), strings).unwrap();
        assert_eq!(show(&strings).unwrap(), "[\"é\" b\"\\xff\"]");
        let long = Tensor::scalar_string("é".repeat(1000));
        assert!(show(&long).unwrap().ends_with("(2000 bytes)"));
    }

    #[test]
    fn json_keeps_every_number() {
        let floats = [0.1f32, f32::NAN, f32::INFINITY, -f32::INFINITY, 1e-30, 1e30, -0.0];
        let mut out = Vec::new();
        write_json(&Tensor::vector(&floats).unwrap(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"dtype":"float","shape":[7],"values":[0.1,"NaN","Infinity","-Infinity",1e-30,1e30,-0]}"#
        );
        let longs = Tensor::vector(&[i64::MIN, i64::MAX]).unwrap();
        assert_eq!(json(&longs)["values"], serde_json::json!([i64::MIN, i64::MAX]));
        let strings = vec![Bytes::from_static(b"a\"\n"), Bytes::from_static(b"\xff")];
        let strings = Tensor::from_strings(Shape::new(&[1, 2]).unwrap(), strings).unwrap();
        assert_eq!(json(&strings)["values"], serde_json::json!([["a\"\n", {"base64": "/w=="}]]));
        let empty =
            |dims: &[usize]| json(&Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap());
        assert_eq!(empty(&[2, 0])["values"], serde_json::json!([[], []]));
        assert_eq!(empty(&[1 << 40, 0])["values"], serde_json::json!([]));
        let small =
            Tensor::from_bytes(DType::Int4, Shape::new(&[2]).unwrap(), vec![0x0f, 7].into());
        assert_eq!(json(&small.unwrap())["values"], serde_json::json!([-1, 7]));
    }
}
