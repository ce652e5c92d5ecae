//! Exact conversion of numbers between dtypes.

use thalweg_tensor::{
    Complex32, Complex64, DType, Element, Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz,
    Float8E5m2, Float8E5m2fnuz, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Shape, Tensor,
    bail, bf16, ensure, err, f16,
};

/// A number of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Bool(bool),
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

impl Number {
    /// Reads `1`, `-2.5e3`, `nan`, `inf`, `true` or `1+2j`.
    pub(crate) fn parse(text: &str) -> Option<Number> {
        if let Ok(flag) = text.to_ascii_lowercase().parse() {
            return Some(Number::Bool(flag));
        }
        if let Ok(int) = text.parse() {
            return Some(Number::Int(int));
        }
        if let Ok(float) = text.parse() {
            return Some(Number::Float(float));
        }
        let parts = text.strip_suffix('j')?;
        // The sign between the parts is the last one that does not belong to an exponent.
        let split = parts
            .rmatch_indices(['+', '-'])
            .map(|(at, _)| at)
            .find(|&at| at > 0 && !parts[..at].ends_with(['e', 'E']));
        let (re, im) = parts.split_at(split.unwrap_or(0));
        let re = if re.is_empty() { 0.0 } else { re.parse().ok()? };
        Some(Number::Complex(re, im.parse().ok()?))
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Bool(b) => write!(f, "{b}"),
            Number::Int(i) => write!(f, "{i}"),
            Number::Float(x) => f.write_str(&float_text(*x)),
            Number::Complex(re, im) => write!(f, "{re}{im:+}j"),
        }
    }
}

/// The shortest decimal text that reads back as the same number.
pub(crate) fn float_text(x: f64) -> String {
    let size = x.abs();
    if x != 0.0 && x.is_finite() && !(1e-5..1e16).contains(&size) {
        return format!("{x:e}");
    }
    format!("{x}")
}

/// A tensor of these numbers, each of which must be representable in `dtype`.
pub(crate) fn tensor(
    dtype: DType,
    shape: Shape,
    numbers: impl Iterator<Item = Number>,
) -> Result<Tensor> {
    macro_rules! ints {
        ($t:ty) => {
            fill(shape, numbers, |n| int::<$t>(n, dtype))
        };
        ($t:ty, $wrap:expr) => {
            fill(shape, numbers, |n| int::<$t>(n, dtype).map($wrap))
        };
    }
    macro_rules! floats {
        ($from:expr, $back:expr) => {
            fill(shape, numbers, |n| narrow(n, dtype, $from, $back))
        };
    }
    match dtype {
        DType::Bool => fill(shape, numbers, boolean),
        DType::Int8 => ints!(i8),
        DType::Int16 => ints!(i16),
        DType::Int32 => ints!(i32),
        DType::Int64 => ints!(i64),
        DType::UInt8 => ints!(u8),
        DType::UInt16 => ints!(u16),
        DType::UInt32 => ints!(u32),
        DType::UInt64 => ints!(u64),
        DType::QInt8 => ints!(i8, QInt8),
        DType::QInt16 => ints!(i16, QInt16),
        DType::QInt32 => ints!(i32, QInt32),
        DType::QUInt8 => ints!(u8, QUInt8),
        DType::QUInt16 => ints!(u16, QUInt16),
        DType::Double => fill(shape, numbers, |n| float(n, dtype)),
        DType::Float => floats!(|x| x as f32, f64::from),
        DType::Half => floats!(f16::from_f64, f16::to_f64),
        DType::BFloat16 => floats!(bf16::from_f64, bf16::to_f64),
        DType::Float8E5m2 => floats!(|x| Float8E5m2::from_f32(x as f32), |x| x.to_f32().into()),
        DType::Float8E4m3fn => floats!(|x| Float8E4m3fn::from_f32(x as f32), |x| x.to_f32().into()),
        DType::Float8E4m3fnuz => {
            floats!(|x| Float8E4m3fnuz::from_f32(x as f32), |x| x.to_f32().into())
        }
        DType::Float8E4m3b11fnuz => {
            floats!(|x| Float8E4m3b11fnuz::from_f32(x as f32), |x| x.to_f32().into())
        }
        DType::Float8E5m2fnuz => {
            floats!(|x| Float8E5m2fnuz::from_f32(x as f32), |x| x.to_f32().into())
        }
        DType::Complex64 => fill(shape, numbers, |n| {
            complex(n).map(|(re, im)| Complex32::new(re as f32, im as f32))
        }),
        DType::Complex128 => {
            fill(shape, numbers, |n| complex(n).map(|(re, im)| Complex64::new(re, im)))
        }
        DType::Int4 | DType::UInt4 | DType::Int2 | DType::UInt2 => {
            small_ints(dtype, shape, numbers)
        }
        _ => bail!(InvalidArgument, "a {dtype} cannot be fed"),
    }
}

fn boolean(n: Number) -> Result<bool> {
    match n {
        Number::Bool(b) => Ok(b),
        Number::Int(i @ (0 | 1)) => Ok(i == 1),
        n => bail!(InvalidArgument, "{n} is not a bool; write true or false"),
    }
}

/// Integers of less than a byte, each in a byte of its own.
fn small_ints(dtype: DType, shape: Shape, numbers: impl Iterator<Item = Number>) -> Result<Tensor> {
    let (low, high) = small_range(dtype);
    let byte = |n: Number| {
        let i = int::<i64>(n, dtype)?;
        ensure!((low..=high).contains(&i), InvalidArgument, "{n} does not fit in {dtype}");
        Ok(i as u8)
    };
    let bytes: Result<Vec<u8>> = numbers.map(byte).collect();
    Tensor::from_bytes(dtype, shape, bytes?.into())
}

fn small_range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::Int4 => (-8, 7),
        DType::UInt4 => (0, 15),
        DType::Int2 => (-2, 1),
        _ => (0, 3),
    }
}

fn fill<T: Element>(
    shape: Shape,
    numbers: impl Iterator<Item = Number>,
    convert: impl Fn(Number) -> Result<T>,
) -> Result<Tensor> {
    let mut tensor = Tensor::zeros(T::DTYPE, shape)?;
    for (to, number) in tensor.as_mut_slice::<T>()?.iter_mut().zip(numbers) {
        *to = convert(number)?;
    }
    Ok(tensor)
}

fn int<T: TryFrom<i128>>(number: Number, dtype: DType) -> Result<T> {
    let int = match number {
        Number::Int(int) => int,
        Number::Float(x) if x.fract() == 0.0 && x.abs() < 2f64.powi(64) => x as i128,
        Number::Float(x) if x.is_infinite() || x.fract() == 0.0 => {
            bail!(InvalidArgument, "{number} does not fit in {dtype}")
        }
        Number::Float(_) => {
            bail!(InvalidArgument, "{number} is not an integer, {dtype} was expected")
        }
        _ => return Err(mismatch(number, dtype)),
    };
    T::try_from(int).map_err(|_| err!(InvalidArgument, "{number} does not fit in {dtype}"))
}

fn float(number: Number, dtype: DType) -> Result<f64> {
    match number {
        Number::Int(int) => Ok(int as f64),
        Number::Float(x) => Ok(x),
        _ => Err(mismatch(number, dtype)),
    }
}

/// Rounds to a narrower type; finite numbers must stay finite.
fn narrow<T: Copy>(
    number: Number,
    dtype: DType,
    from: impl Fn(f64) -> T,
    back: impl Fn(T) -> f64,
) -> Result<T> {
    let wide = float(number, dtype)?;
    let narrowed = from(wide);
    ensure!(
        back(narrowed).is_finite() || !wide.is_finite(),
        InvalidArgument,
        "{number} does not fit in {dtype}"
    );
    Ok(narrowed)
}

fn complex(number: Number) -> Result<(f64, f64)> {
    match number {
        Number::Complex(re, im) => Ok((re, im)),
        _ => float(number, DType::Complex128).map(|re| (re, 0.0)),
    }
}

fn mismatch(number: Number, dtype: DType) -> thalweg_tensor::Error {
    let kind = if matches!(number, Number::Bool(_)) { "a bool" } else { "complex" };
    err!(InvalidArgument, "{number} is {kind}, {dtype} was expected")
}

/// `tensor` converted to another dtype of the same kind, as TensorFlow's Python client converts
/// feeds: integers that do not fit are rejected, floats are rounded.
pub(crate) fn converted(tensor: Tensor, dtype: DType) -> Result<Tensor> {
    let given = tensor.dtype();
    if given == dtype {
        return Ok(tensor);
    }
    let shape = tensor.shape().clone();
    macro_rules! numbers {
        ($t:ty, $make:expr) => {
            self::tensor(dtype, shape, tensor.as_slice::<$t>()?.iter().map(|&x| $make(x)))
        };
    }
    let to_float = dtype.is_floating() || dtype.is_complex();
    match given {
        DType::Double if to_float => numbers!(f64, Number::Float),
        DType::Float if to_float => numbers!(f32, |x: f32| Number::Float(x.into())),
        DType::Half if to_float => numbers!(f16, |x: f16| Number::Float(x.into())),
        DType::Complex128 if dtype.is_complex() => {
            numbers!(Complex64, |x: Complex64| Number::Complex(x.re, x.im))
        }
        _ if !to_float && !dtype.is_integer() => Err(no_conversion(given, dtype)),
        DType::Int64 => numbers!(i64, |x: i64| Number::Int(x.into())),
        DType::Int32 => numbers!(i32, |x: i32| Number::Int(x.into())),
        DType::Int16 => numbers!(i16, |x: i16| Number::Int(x.into())),
        DType::Int8 => numbers!(i8, |x: i8| Number::Int(x.into())),
        DType::UInt64 => numbers!(u64, |x: u64| Number::Int(x.into())),
        DType::UInt32 => numbers!(u32, |x: u32| Number::Int(x.into())),
        DType::UInt16 => numbers!(u16, |x: u16| Number::Int(x.into())),
        DType::UInt8 => numbers!(u8, |x: u8| Number::Int(x.into())),
        _ => Err(no_conversion(given, dtype)),
    }
}

fn no_conversion(given: DType, dtype: DType) -> thalweg_tensor::Error {
    err!(InvalidArgument, "the value has dtype {given}, {dtype} was expected")
}
