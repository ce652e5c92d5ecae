//! Constants.

use std::fmt::Write;
use std::rc::Rc;

use thalweg_tensor::{DType, Tensor};

use crate::element::{bytes_of, integer_bytes, integer_range};
use crate::program::Body;
use crate::value::{Value, type_text};

impl Body {
    /// A constant with all elements `x`.
    pub(crate) fn splat(self: &Rc<Self>, dtype: DType, dims: &[usize], x: f64) -> Value {
        match dtype {
            DType::Float8E5m2 | DType::Float8E4m3fn => {
                self.splat(DType::Float, dims, x).convert(dtype)
            }
            _ => self.raw(dtype, dims, &bytes_of(dtype, x)),
        }
    }

    /// A constant with the elements of a tensor.
    pub(crate) fn constant(self: &Rc<Self>, tensor: &Tensor) -> Value {
        let (dtype, dims) = (tensor.dtype(), tensor.shape().dims());
        match tensor.as_bytes() {
            Ok(bytes) => self.raw(dtype, dims, splat_of(bytes, dtype.size()).unwrap_or(bytes)),
            Err(e) => {
                self.mistake(&format!("a constant cannot be read: {}", e.message()));
                self.raw(dtype, dims, &bytes_of(dtype, 0.0))
            }
        }
    }

    /// A constant from the bytes of all elements, or of the one that all are equal to.
    pub(crate) fn raw(self: &Rc<Self>, dtype: DType, dims: &[usize], bytes: &[u8]) -> Value {
        if dtype == DType::Bool && bytes.len() != 1 {
            // Bits would have to be packed.
            return self.raw(DType::UInt8, dims, bytes).convert(DType::Bool);
        }
        let elements = match dtype {
            _ if dims.contains(&0) => String::new(),
            DType::Bool => (bytes != [0]).to_string(),
            _ => {
                let mut hex = String::with_capacity(bytes.len() * 2 + 4);
                hex.push_str("\"0x");
                for byte in bytes {
                    // Writing to a string cannot fail.
                    let _ = write!(hex, "{byte:02X}");
                }
                hex + "\""
            }
        };
        let attrs = format!("value = dense<{elements}> : {}", type_text(dtype, dims));
        self.append("constant", &[], &attrs, dtype, dims)
    }
}

/// The one element that all are equal to.
fn splat_of(bytes: &[u8], size: usize) -> Option<&[u8]> {
    let first = bytes.get(..size)?;
    bytes.chunks(size.max(1)).all(|element| element == first).then_some(first)
}

impl Value {
    /// A scalar constant of this value's dtype.
    pub fn scalar_like(&self, x: f64) -> Value {
        self.body.splat(self.dtype, &[], x)
    }

    /// A constant of this value's dtype and dimensions.
    pub fn full_like(&self, x: f64) -> Value {
        self.body.splat(self.dtype, &self.dims, x)
    }

    /// Zeros of this value's dtype and dimensions.
    pub fn zeros_like(&self) -> Value {
        self.full_like(0.0)
    }

    /// Ones of this value's dtype and dimensions.
    pub fn ones_like(&self) -> Value {
        self.full_like(1.0)
    }

    /// A constant in the program of this value, with all elements `x`.
    pub fn splat(&self, dtype: DType, dims: &[usize], x: f64) -> Value {
        self.body.splat(dtype, dims, x)
    }

    /// An integer constant in the program of this value, exact where `f64` is not.
    pub fn splat_integer(&self, dtype: DType, dims: &[usize], x: i128) -> Value {
        self.body.raw(dtype, dims, &integer_bytes(dtype, x))
    }

    /// A constant vector of doubles in the program of this value.
    pub fn doubles(&self, numbers: &[f64]) -> Value {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.body.raw(DType::Double, &[numbers.len()], &bytes)
    }

    /// A constant in the program of this value.
    pub fn constant(&self, tensor: &Tensor) -> Value {
        self.body.constant(tensor)
    }

    /// The least value of the dtype, as a scalar: minus infinity for floats.
    pub fn lowest_like(&self) -> Value {
        self.extreme(f64::NEG_INFINITY, integer_range(self.dtype).0)
    }

    /// The greatest value of the dtype, as a scalar: infinity for floats.
    pub fn highest_like(&self) -> Value {
        self.extreme(f64::INFINITY, integer_range(self.dtype).1)
    }

    fn extreme(&self, float: f64, integer: i128) -> Value {
        match self.dtype.is_integer() || self.dtype == DType::Bool {
            true => self.splat_integer(self.dtype, &[], integer),
            false => self.scalar_like(float),
        }
    }
}
