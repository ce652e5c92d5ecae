//! Element-wise operations; binary ones broadcast.

use std::ops::{Add, Div, Mul, Neg, Sub};

use thalweg_tensor::DType;

use crate::element::is_unsigned;
use crate::value::{Dims, Value};

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

macro_rules! unary {
    ($($method:ident = $op:literal, $doc:literal;)+) => {
        impl Value {
            $(
                #[doc = $doc]
                pub fn $method(&self) -> Value {
                    self.op($op, &[self], "", self.dtype, &self.dims)
                }
            )+
        }
    };
}

unary! {
    negate = "negate", "The negative.";
    exp = "exponential", "The exponential.";
    exp_minus_one = "exponential_minus_one", "`exp(x) - 1`, exact near 0.";
    log = "log", "The natural logarithm.";
    log_plus_one = "log_plus_one", "`log(1 + x)`, exact near 0.";
    sqrt = "sqrt", "The square root.";
    rsqrt = "rsqrt", "The reciprocal of the square root.";
    cbrt = "cbrt", "The cube root.";
    sine = "sine", "The sine.";
    cosine = "cosine", "The cosine.";
    tan = "tan", "The tangent.";
    tanh = "tanh", "The hyperbolic tangent.";
    logistic = "logistic", "`1 / (1 + exp(-x))`.";
    sign = "sign", "-1, 0 or 1 by the sign.";
    floor = "floor", "The greatest integer that is not greater.";
    ceil = "ceil", "The least integer that is not less.";
    round_half_even = "round_nearest_even", "The nearest integer; of two, the even one.";
    round_half_away = "round_nearest_afz", "The nearest integer; of two, the one farther from 0.";
    not = "not", "The logical or bitwise complement.";
    population_count = "popcnt", "The number of bits that are set.";
    count_leading_zeros = "count_leading_zeros", "The number of high bits that are not set.";
}

macro_rules! binary {
    ($($method:ident = $op:literal, $doc:literal;)+) => {
        impl Value {
            $(
                #[doc = $doc]
                pub fn $method(&self, other: &Value) -> Value {
                    self.binary($op, other)
                }
            )+
        }
    };
}

binary! {
    plus = "add", "The sum.";
    minus = "subtract", "The difference.";
    times = "multiply", "The product.";
    divided_by = "divide", "The quotient; of integers, rounded towards zero.";
    remainder = "remainder", "The remainder of a division that rounds towards zero.";
    maximum = "maximum", "The greater one; NaN if one is.";
    minimum = "minimum", "The lesser one; NaN if one is.";
    power = "power", "`self` to the power of `other`.";
    atan2 = "atan2", "The angle of the point (`other`, `self`).";
    and = "and", "The logical or bitwise and.";
    or = "or", "The logical or bitwise or.";
    xor = "xor", "The logical or bitwise exclusive or.";
    shift_left = "shift_left", "The bits shifted left.";
    shift_right_arithmetic = "shift_right_arithmetic", "The bits shifted right, keeping the sign.";
    shift_right_logical = "shift_right_logical", "The bits shifted right, with zeros from the left.";
}

impl Value {
    fn binary(&self, op: &str, other: &Value) -> Value {
        if self.dtype != other.dtype {
            let sentence = format!("{op} of {} and {}", self.dtype, other.dtype);
            return self.mistake(&sentence, self.dtype, &self.dims);
        }
        match broadcast_dims(&self.dims, &other.dims) {
            Some(dims) => {
                let (a, b) = (self.broadcast_to(&dims), other.broadcast_to(&dims));
                self.op(op, &[&a, &b], "", self.dtype, &dims)
            }
            None => self.not_broadcastable(other, self.dtype),
        }
    }

    fn not_broadcastable(&self, other: &Value, dtype: DType) -> Value {
        let sentence = format!("Incompatible shapes: {:?} vs. {:?}", self.dims, other.dims);
        self.mistake(&sentence, dtype, &self.dims)
    }

    /// The absolute value; of complex numbers, real.
    pub fn abs(&self) -> Value {
        if is_unsigned(self.dtype) {
            return self.clone();
        }
        self.op("abs", &[self], "", real_part(self.dtype), &self.dims)
    }

    /// The real part.
    pub fn real(&self) -> Value {
        self.op("real", &[self], "", real_part(self.dtype), &self.dims)
    }

    /// The imaginary part.
    pub fn imaginary(&self) -> Value {
        self.op("imag", &[self], "", real_part(self.dtype), &self.dims)
    }

    /// The complex numbers with these real and imaginary parts.
    pub fn complex(&self, imaginary: &Value) -> Value {
        let dtype = if self.dtype == DType::Double { DType::Complex128 } else { DType::Complex64 };
        match broadcast_dims(&self.dims, &imaginary.dims) {
            Some(dims) => {
                let (a, b) = (self.broadcast_to(&dims), imaginary.broadcast_to(&dims));
                self.op("complex", &[&a, &b], "", dtype, &dims)
            }
            None => self.not_broadcastable(imaginary, dtype),
        }
    }

    /// Whether the numbers are neither infinite nor NaN.
    pub fn is_finite(&self) -> Value {
        self.op("is_finite", &[self], "", DType::Bool, &self.dims)
    }

    /// Whether the numbers are NaN.
    pub fn is_nan(&self) -> Value {
        self.compare(Comparison::NotEqual, self)
    }

    /// Compares; the result is bool.
    pub fn compare(&self, comparison: Comparison, other: &Value) -> Value {
        let Some(dims) = broadcast_dims(&self.dims, &other.dims) else {
            return self.not_broadcastable(other, DType::Bool);
        };
        if self.dtype != other.dtype {
            let sentence = format!("comparison of {} and {}", self.dtype, other.dtype);
            return self.mistake(&sentence, DType::Bool, &dims);
        }
        let direction = match comparison {
            Comparison::Equal => "EQ",
            Comparison::NotEqual => "NE",
            Comparison::Less => "LT",
            Comparison::LessEqual => "LE",
            Comparison::Greater => "GT",
            Comparison::GreaterEqual => "GE",
        };
        let attrs = format!("comparison_direction = #stablehlo<comparison_direction {direction}>");
        let (a, b) = (self.broadcast_to(&dims), other.broadcast_to(&dims));
        self.op("compare", &[&a, &b], &attrs, DType::Bool, &dims)
    }

    /// Compares with a constant.
    pub fn compare_to(&self, comparison: Comparison, x: f64) -> Value {
        self.compare(comparison, &self.scalar_like(x))
    }

    /// Of a condition: the elements of `yes` where it holds, else those of `no`. All three broadcast.
    pub fn select(&self, yes: &Value, no: &Value) -> Value {
        let dims =
            broadcast_dims(&yes.dims, &no.dims).and_then(|dims| broadcast_dims(&self.dims, &dims));
        match dims {
            Some(dims) if yes.dtype == no.dtype && self.dtype == DType::Bool => {
                let operands = [self, yes, no].map(|v| v.broadcast_to(&dims));
                let operands = [&operands[0], &operands[1], &operands[2]];
                self.op("select", &operands, "", yes.dtype, &dims)
            }
            _ => self.mistake(
                &format!("select by {} of {} and {}", self.ty(), yes.ty(), no.ty()),
                yes.dtype,
                &yes.dims,
            ),
        }
    }

    /// Clamps to a range; the bounds broadcast.
    pub fn clamp(&self, low: &Value, high: &Value) -> Value {
        self.maximum(low).minimum(high)
    }

    /// The values in another dtype, converted as StableHLO does: floats to integers towards zero.
    pub fn convert(&self, dtype: DType) -> Value {
        match self.dtype == dtype {
            true => self.clone(),
            false => self.op("convert", &[self], "", dtype, &self.dims),
        }
    }

    /// The values in the dtype in which sums and products of them are computed: float for the 16-bit
    /// floats, else their own.
    pub fn widened(&self) -> Value {
        match self.dtype {
            DType::Half | DType::BFloat16 => self.convert(DType::Float),
            _ => self.clone(),
        }
    }

    /// The same bits in a dtype of the same size.
    pub fn bitcast(&self, dtype: DType) -> Value {
        self.bitcast_to(dtype, &self.dims)
    }

    /// The same bits in another dtype and the dimensions that follow from its size.
    pub fn bitcast_to(&self, dtype: DType, dims: &[usize]) -> Value {
        self.op("bitcast_convert", &[self], "", dtype, dims)
    }

    /// The conjugate of complex numbers; real ones unchanged.
    pub fn conjugate(&self) -> Value {
        match self.dtype.is_complex() {
            true => self.real().complex(&self.imaginary().negate()),
            false => self.clone(),
        }
    }

    /// `x * x`.
    pub fn square(&self) -> Value {
        self * self
    }

    /// `1 / x`.
    pub fn reciprocal(&self) -> Value {
        self.ones_like() / self
    }

    /// The values rounded to the precision of another float dtype.
    pub fn reduce_precision(&self, exponent_bits: u32, mantissa_bits: u32) -> Value {
        let attrs =
            format!("exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32");
        self.op("reduce_precision", &[self], &attrs, self.dtype, &self.dims)
    }
}

/// The dtype of the real part.
fn real_part(dtype: DType) -> DType {
    match dtype {
        DType::Complex64 => DType::Float,
        DType::Complex128 => DType::Double,
        other => other,
    }
}

/// The dimensions to which two values broadcast; `None` if they do not.
pub(crate) fn broadcast_dims(a: &[usize], b: &[usize]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let dim = |dims: &[usize], i: usize| {
        (i + dims.len()).checked_sub(rank).map_or(1, |position| dims[position])
    };
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

macro_rules! operator {
    ($trait:ident, $function:ident, $method:ident) => {
        impl $trait<&Value> for &Value {
            type Output = Value;
            fn $function(self, other: &Value) -> Value {
                self.$method(other)
            }
        }
        impl $trait<Value> for &Value {
            type Output = Value;
            fn $function(self, other: Value) -> Value {
                self.$method(&other)
            }
        }
        impl $trait<&Value> for Value {
            type Output = Value;
            fn $function(self, other: &Value) -> Value {
                self.$method(other)
            }
        }
        impl $trait<Value> for Value {
            type Output = Value;
            fn $function(self, other: Value) -> Value {
                self.$method(&other)
            }
        }
        impl $trait<f64> for &Value {
            type Output = Value;
            fn $function(self, other: f64) -> Value {
                self.$method(&self.scalar_like(other))
            }
        }
        impl $trait<f64> for Value {
            type Output = Value;
            fn $function(self, other: f64) -> Value {
                self.$method(&self.scalar_like(other))
            }
        }
    };
}

operator!(Add, add, plus);
operator!(Sub, sub, minus);
operator!(Mul, mul, times);
operator!(Div, div, divided_by);

impl Neg for &Value {
    type Output = Value;
    fn neg(self) -> Value {
        self.negate()
    }
}

impl Neg for Value {
    type Output = Value;
    fn neg(self) -> Value {
        self.negate()
    }
}
