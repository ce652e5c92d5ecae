//! Element types: TensorFlow's dtypes and their StableHLO notation, and elements as bytes.

use half::{bf16, f16};
use thalweg_tensor::DType;

/// StableHLO's notation for each dtype that programs may use.
const ELEMENTS: &[(DType, &str)] = &[
    (DType::Float, "f32"),
    (DType::Double, "f64"),
    (DType::Half, "f16"),
    (DType::BFloat16, "bf16"),
    (DType::Int8, "i8"),
    (DType::Int16, "i16"),
    (DType::Int32, "i32"),
    (DType::Int64, "i64"),
    (DType::UInt8, "ui8"),
    (DType::UInt16, "ui16"),
    (DType::UInt32, "ui32"),
    (DType::UInt64, "ui64"),
    (DType::Bool, "i1"),
    (DType::Complex64, "complex<f32>"),
    (DType::Complex128, "complex<f64>"),
    (DType::Float8E5m2, "f8E5M2"),
    (DType::Float8E4m3fn, "f8E4M3FN"),
];

/// The notation for a dtype; `None` if programs cannot use it.
pub fn element_type(dtype: DType) -> Option<&'static str> {
    ELEMENTS.iter().find(|(d, _)| *d == dtype).map(|(_, name)| *name)
}

/// The dtype of a notation.
pub fn dtype_of_element(name: &str) -> Option<DType> {
    ELEMENTS.iter().find(|(_, n)| *n == name).map(|(dtype, _)| *dtype)
}

/// Whether programs can use a dtype.
pub fn is_supported(dtype: DType) -> bool {
    element_type(dtype).is_some()
}

/// The bytes of an element with the value `x`, rounded to the dtype and clamped to its range.
pub(crate) fn bytes_of(dtype: DType, x: f64) -> Vec<u8> {
    match dtype {
        DType::Float => (x as f32).to_le_bytes().to_vec(),
        DType::Double => x.to_le_bytes().to_vec(),
        DType::Half => f16::from_f64(x).to_le_bytes().to_vec(),
        DType::BFloat16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        DType::Complex64 => [(x as f32).to_le_bytes(), 0f32.to_le_bytes()].concat(),
        DType::Complex128 => [x.to_le_bytes(), 0f64.to_le_bytes()].concat(),
        _ => integer_bytes(dtype, x as i128),
    }
}

/// The bytes of an integer element, clamped to its range.
pub(crate) fn integer_bytes(dtype: DType, x: i128) -> Vec<u8> {
    let (low, high) = integer_range(dtype);
    x.clamp(low, high).to_le_bytes()[..dtype.size()].to_vec()
}

/// The least and the greatest value of an integer dtype; of bool, 0 and 1.
pub(crate) fn integer_range(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::Bool => (0, 1),
        _ if is_unsigned(dtype) => (0, (1 << (8 * dtype.size())) - 1),
        _ => (-(1 << (8 * dtype.size().max(1) - 1)), (1 << (8 * dtype.size().max(1) - 1)) - 1),
    }
}

/// Whether a dtype is an unsigned integer.
pub(crate) fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64)
}
