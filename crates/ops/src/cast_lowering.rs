//! `Cast` on accelerators: the conversions of the CPU kernel, also of numbers out of range.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result};

use crate::cast::digits;
use crate::lowering::wide;

pub(crate) fn lower_cast(l: &mut Lowering<'_>) -> Result<()> {
    let (x, to) = (l.input(0)?, l.output_dtype(0));
    let truncates = l.attrs().bool("Truncate")?;
    l.set(0, converted(&x, to, truncates))
}

/// The elements in another dtype; `truncates` cuts off digits of floats instead of rounding.
pub(crate) fn converted(x: &Value, to: DType, truncates: bool) -> Value {
    let from = x.dtype();
    if from == to {
        return x.clone();
    }
    if to.is_complex() {
        let part = if to == DType::Complex128 { DType::Double } else { DType::Float };
        let re = if from.is_complex() { x.real() } else { x.clone() };
        let im = if from.is_complex() { x.imaginary() } else { re.zeros_like() };
        return converted(&re, part, truncates).complex(&converted(&im, part, truncates));
    }
    if from.is_complex() {
        return converted(&x.real(), to, truncates);
    }
    if to == DType::Bool {
        return wide(x).compare_to(Comparison::NotEqual, 0.0);
    }
    let Some(has) = digits(from) else { return x.convert(to) };
    match digits(to) {
        Some(keeps) if truncates && keeps < has => cut_off(x, keeps).convert(to),
        Some(_) => x.convert(to),
        None => float_to_integer(&wide(x), to),
    }
}

/// A float with all but `keeps` digits of its mantissa cleared.
fn cut_off(x: &Value, keeps: u32) -> Value {
    let (x, bits, has) = match x.dtype() {
        DType::Double => (x.clone(), DType::Int64, 52),
        _ => (x.convert(DType::Float), DType::Int32, 23),
    };
    let mask = x.splat_integer(bits, &[], -(1i128 << (has - keeps)));
    x.bitcast(bits).and(&mask).bitcast(x.dtype())
}

/// Float to integer as x86-64's instructions do it, on which TensorFlow's CPU kernels rely: numbers
/// out of range become the least number of the 32-bit or 64-bit type of which the result is a part.
fn float_to_integer(x: &Value, to: DType) -> Value {
    match to {
        DType::UInt64 => {
            let low = fitting(x, DType::Int64);
            let high = fitting(&(x - 9_223_372_036_854_775_808.0), DType::Int64);
            let sign = low.shift_right_arithmetic(&low.scalar_like(63.0));
            low.or(&high.and(&sign)).convert(to)
        }
        DType::UInt32 | DType::Int64 => fitting(x, DType::Int64).convert(to),
        _ => fitting(x, DType::Int32).convert(to),
    }
}

/// Numbers that do not fit become the least one.
fn fitting(x: &Value, to: DType) -> Value {
    let bound = if to == DType::Int64 { 63 } else { 31 };
    let fits = x.abs().compare_to(Comparison::Less, 2f64.powi(bound));
    let safe = fits.select(x, &x.zeros_like());
    let lowest = x.splat_integer(to, &[], -(1i128 << bound));
    fits.select(&safe.convert(to), &lowest)
}
