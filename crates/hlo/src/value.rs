//! SSA values, and how an operation is appended to their program.

use std::fmt;
use std::rc::Rc;

use smallvec::SmallVec;
use thalweg_tensor::DType;

use crate::element::element_type;
use crate::program::Body;

/// The dimensions of a value.
pub(crate) type Dims = SmallVec<[usize; 4]>;

/// An SSA value of a program: a tensor of known dtype and dimensions.
#[derive(Clone)]
pub struct Value {
    pub(crate) body: Rc<Body>,
    pub(crate) id: u32,
    pub(crate) dtype: DType,
    pub(crate) dims: Dims,
}

impl Value {
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether this is the same value of the program as another.
    pub fn is(&self, other: &Value) -> bool {
        self.id == other.id
    }

    /// The type as StableHLO writes it: `tensor<2x3xf32>`.
    pub(crate) fn ty(&self) -> String {
        type_text(self.dtype, &self.dims)
    }

    /// Appends an operation with one result.
    pub(crate) fn op(
        &self,
        name: &str,
        operands: &[&Value],
        attrs: &str,
        dtype: DType,
        dims: &[usize],
    ) -> Value {
        self.body.append(name, operands, attrs, dtype, dims)
    }

    /// Records a mistake; the result stands for the value that cannot be made.
    pub(crate) fn mistake(&self, sentence: &str, dtype: DType, dims: &[usize]) -> Value {
        self.body.mistake(sentence);
        Value { body: self.body.clone(), id: self.id, dtype, dims: dims.into() }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}: {}", self.id, self.ty())
    }
}

/// A tensor type as StableHLO writes it.
pub(crate) fn type_text(dtype: DType, dims: &[usize]) -> String {
    let mut text = String::from("tensor<");
    for dim in dims {
        text += &format!("{dim}x");
    }
    text + element_type(dtype).unwrap_or("none") + ">"
}

/// A list of numbers as the attribute `array<i64: 1, 2>`.
pub(crate) fn array(numbers: &[i64]) -> String {
    let list: Vec<String> = numbers.iter().map(i64::to_string).collect();
    if list.is_empty() { "array<i64>".into() } else { format!("array<i64: {}>", list.join(", ")) }
}

/// A list of positions as the attribute `array<i64: 1, 2>`.
pub(crate) fn positions(numbers: &[usize]) -> String {
    array(&numbers.iter().map(|&n| n as i64).collect::<Vec<_>>())
}
