//! What lowerings share: the precision of 16-bit floats, checks of shapes, and functions that StableHLO
//! lacks.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

/// Dtypes of programs, for lowerings of ops that also forward handles of resources.
pub(crate) const VALUES: &[DType] = &[
    DType::Float,
    DType::Double,
    DType::Half,
    DType::BFloat16,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Bool,
    DType::Complex64,
    DType::Complex128,
];

/// The value in the dtype in which it is computed: single precision for 16-bit floats.
pub(crate) fn wide(x: &Value) -> Value {
    match x.dtype() {
        DType::Half | DType::BFloat16 => x.convert(DType::Float),
        _ => x.clone(),
    }
}

/// Single precision rounded to the precision of a 16-bit float, which XLA would keep between two
/// conversions.
pub(crate) fn rounded_as(x: &Value, dtype: DType) -> Value {
    match dtype {
        DType::Half => x.reduce_precision(5, 10),
        DType::BFloat16 => x.reduce_precision(8, 7),
        _ => x.clone(),
    }
}

/// Sets output `i`, rounded to its dtype.
pub(crate) fn set_narrow(l: &mut Lowering<'_>, i: usize, value: &Value) -> Result<()> {
    l.set(i, value.convert(l.output_dtype(i)))
}

/// Lowers a function of one input, which computes 16-bit floats in single precision.
pub(crate) fn wide_unary(l: &mut Lowering<'_>, f: impl FnOnce(&Value) -> Value) -> Result<()> {
    let x = wide(&l.input(0)?);
    set_narrow(l, 0, &f(&x))
}

/// Lowers a function of two inputs, which computes 16-bit floats in single precision.
pub(crate) fn wide_binary(
    l: &mut Lowering<'_>,
    f: impl FnOnce(&Value, &Value) -> Value,
) -> Result<()> {
    let (x, y) = (wide(&l.input(0)?), wide(&l.input(1)?));
    set_narrow(l, 0, &f(&x, &y))
}

/// As [`wide_binary`], for inputs with the same number of elements; the output has the shape of the
/// first.
pub(crate) fn wide_pairs(
    l: &mut Lowering<'_>,
    f: impl FnOnce(&Value, &Value) -> Value,
) -> Result<()> {
    let (x, y) = (wide(&l.input(0)?), wide(&l.input(1)?));
    ensure!(
        x.num_elements() == y.num_elements(),
        InvalidArgument,
        "both inputs must have as many elements, got shapes {:?} and {:?}",
        x.dims(),
        y.dims()
    );
    let y = y.reshape(x.dims());
    set_narrow(l, 0, &f(&x, &y))
}

/// Checks that all inputs from `first` on have one shape.
pub(crate) fn check_same_shapes(l: &Lowering<'_>, first: usize) -> Result<()> {
    let wanted = l.input(first)?;
    for i in first + 1..l.num_inputs() {
        let input = l.input(i)?;
        ensure!(
            input.dims() == wanted.dims(),
            InvalidArgument,
            "Inputs to {} must have the same size and shape. Input {first}: {:?} != input {i}: {:?}",
            l.node().op.name,
            wanted.dims(),
            input.dims()
        );
    }
    Ok(())
}

/// Whether the elements are 0.
pub(crate) fn is_zero(x: &Value) -> Value {
    x.compare_to(Comparison::Equal, 0.0)
}

/// Whether the elements are less than 0.
pub(crate) fn is_negative(x: &Value) -> Value {
    x.compare_to(Comparison::Less, 0.0)
}

/// `magnitude` with the sign of `x`; `x` itself where it is 0.
pub(crate) fn with_sign_of(magnitude: &Value, x: &Value) -> Value {
    is_zero(x).select(x, &(magnitude * x.sign()))
}

/// i z.
fn times_i(z: &Value) -> Value {
    z.imaginary().negate().complex(&z.real())
}

/// -i z.
fn times_minus_i(z: &Value) -> Value {
    z.imaginary().complex(&z.real().negate())
}

/// The function of a complex number `z` as -i f(i z).
fn rotated(z: &Value, f: fn(&Value) -> Value) -> Value {
    times_minus_i(&f(&times_i(z)))
}

/// √(1 - z) and √(1 + z), with the signs of zeros that the branch cuts need.
fn roots(z: &Value) -> (Value, Value) {
    let (re, im) = (z.real(), z.imaginary());
    let one = re.ones_like();
    ((&one - &re).complex(&im.negate()).sqrt(), (&one + &re).complex(&im).sqrt())
}

/// Inverse sine; of complex numbers after Kahan.
pub(crate) fn asin(x: &Value) -> Value {
    if x.dtype().is_complex() {
        let (below, above) = roots(x);
        let re = x.real().atan2(&(&below * &above).real());
        return re.complex(&asinh(&(below.conjugate() * above).imaginary()));
    }
    let one = x.ones_like();
    x.atan2(&((&one - x) * (&one + x)).sqrt())
}

/// Inverse cosine; of complex numbers after Kahan.
pub(crate) fn acos(x: &Value) -> Value {
    if x.dtype().is_complex() {
        let (below, above) = roots(x);
        let re = below.real().atan2(&above.real()) * 2.0;
        return re.complex(&asinh(&(above.conjugate() * below).imaginary()));
    }
    let one = x.ones_like();
    (&one - x).sqrt().atan2(&(&one + x).sqrt()) * 2.0
}

/// Inverse tangent.
pub(crate) fn atan(x: &Value) -> Value {
    match x.dtype().is_complex() {
        true => rotated(x, atanh),
        false => x.atan2(&x.ones_like()),
    }
}

/// e^|x| / 2 and e^-|x| / 2, without overflow before the former is infinite.
fn half_exponentials(x: &Value) -> (Value, Value) {
    let root = (x.abs() * 0.5).exp();
    (&root * 0.5 * &root, root.reciprocal() * 0.5 / &root)
}

/// Hyperbolic sine.
pub(crate) fn sinh(x: &Value) -> Value {
    if x.dtype().is_complex() {
        let (re, im) = (x.real(), x.imaginary());
        return (sinh(&re) * im.cosine()).complex(&(cosh(&re) * im.sine()));
    }
    let (rising, falling) = half_exponentials(x);
    let large = (rising - falling) * x.sign();
    let growth = x.exp_minus_one();
    let small = (&growth + &growth / (&growth + 1.0)) * 0.5;
    x.abs().compare_to(Comparison::Less, 1.0).select(&small, &large)
}

/// Hyperbolic cosine.
pub(crate) fn cosh(x: &Value) -> Value {
    if x.dtype().is_complex() {
        let (re, im) = (x.real(), x.imaginary());
        return (cosh(&re) * im.cosine()).complex(&(sinh(&re) * im.sine()));
    }
    let (rising, falling) = half_exponentials(x);
    rising + falling
}

/// Inverse hyperbolic sine.
pub(crate) fn asinh(x: &Value) -> Value {
    if x.dtype().is_complex() {
        return rotated(x, asin);
    }
    let a = x.abs();
    let square = a.square();
    let near = (&a + &square / ((&square + 1.0).sqrt() + 1.0)).log_plus_one();
    let far = a.log() + std::f64::consts::LN_2;
    // Beyond this, a² + 1 is a² in double precision too, and a² is finite in single precision.
    let magnitude = a.compare_to(Comparison::Less, 1e9).select(&near, &far);
    with_sign_of(&magnitude, x)
}

/// Inverse hyperbolic cosine.
pub(crate) fn acosh(x: &Value) -> Value {
    if x.dtype().is_complex() {
        let (re, im) = (x.real(), x.imaginary());
        let (below, above) = ((&re - 1.0).complex(&im).sqrt(), (&re + 1.0).complex(&im).sqrt());
        let radius = asinh(&(below.conjugate() * &above).real());
        return radius.complex(&(below.imaginary().atan2(&above.real()) * 2.0));
    }
    let rest = x - 1.0;
    let near = (&rest + (&rest * (&rest + 2.0)).sqrt()).log_plus_one();
    let far = x.log() + std::f64::consts::LN_2;
    let result = x.compare_to(Comparison::Greater, 1e9).select(&far, &near);
    x.compare_to(Comparison::Less, 1.0).select(&x.full_like(f64::NAN), &result)
}

/// Inverse hyperbolic tangent; of complex numbers after Kahan.
pub(crate) fn atanh(x: &Value) -> Value {
    if x.dtype().is_complex() {
        let (re, im) = (x.real(), x.imaginary());
        let (a, one) = (re.abs(), re.ones_like());
        let below = (&one - &a).square() + im.square();
        let radius = (&a * 4.0 / below).log_plus_one() * 0.25;
        let angle = (&im * 2.0).atan2(&((&one - &re) * (&one + &re) - im.square())) * 0.5;
        return with_sign_of(&radius, &re).complex(&angle);
    }
    (x.log_plus_one() - x.negate().log_plus_one()) * 0.5
}

/// The greater one, NaN if one is: XLA's own operation may lose a NaN on a CPU.
pub(crate) fn maximum(x: &Value, y: &Value) -> Value {
    extreme(x, y, Comparison::Greater)
}

/// The lesser one, NaN if one is.
pub(crate) fn minimum(x: &Value, y: &Value) -> Value {
    extreme(x, y, Comparison::Less)
}

fn extreme(x: &Value, y: &Value, comparison: Comparison) -> Value {
    let takes_x = x.compare(comparison, y);
    match x.dtype().is_integer() {
        true => takes_x.select(x, y),
        false => takes_x.or(&x.is_nan()).select(x, y),
    }
}

/// The quotient rounded towards zero.
pub(crate) fn truncated_quotient(x: &Value, y: &Value) -> Value {
    truncated(&(x / y))
}

/// A float rounded towards zero; an integer unchanged.
pub(crate) fn truncated(x: &Value) -> Value {
    match x.dtype().is_integer() {
        true => x.clone(),
        false => is_negative(x).select(&x.ceil(), &x.floor()),
    }
}

/// Whether the remainder of a division towards zero differs from that of one that rounds down.
fn is_off(rest: &Value, y: &Value) -> Value {
    is_zero(rest).not().and(&is_negative(rest).xor(&is_negative(y)))
}

/// The quotient rounded down.
pub(crate) fn floored_quotient(x: &Value, y: &Value) -> Value {
    if !x.dtype().is_integer() {
        return (x / y).floor();
    }
    let quotient = x / y;
    is_off(&x.remainder(y), y).select(&(&quotient - 1.0), &quotient)
}

/// The remainder with the sign of `y`.
pub(crate) fn floored_remainder(x: &Value, y: &Value) -> Value {
    let rest = x.remainder(y);
    is_off(&rest, y).select(&(&rest + y), &rest)
}

/// The next representable float after `x` towards `y`.
pub(crate) fn next_after(x: &Value, y: &Value) -> Value {
    let integer = if x.dtype() == DType::Double { DType::Int64 } else { DType::Int32 };
    let (x, y) = (x.plus(&y.zeros_like()), y.plus(&x.zeros_like()));
    let bits = x.bitcast(integer);
    let one = bits.scalar_like(1.0);
    let grows = is_negative(&x).xor(&y.compare(Comparison::Greater, &x));
    let moved = grows.select(&(&bits + &one), &(&bits - &one));
    let lowest_bit = is_negative(&y).select(&(one.highest_like().not() + &one), &one);
    let next = is_zero(&x).select(&lowest_bit, &moved).bitcast(x.dtype());
    let is_nan = x.is_nan().or(&y.is_nan());
    let stays = x.compare(Comparison::Equal, &y);
    is_nan.select(&(&x + &y), &stays.select(&y, &next))
}
