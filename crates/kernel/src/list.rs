//! Lists of tensors in a program: rows of a buffer of known size, and how many of them there are.

use thalweg_hlo::{Program, Value};
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bail, ensure, err};

/// Most bytes of the rows of a list in a program.
const ROWS_BYTES_MAX: usize = 4 << 30;

/// Most bytes of an element that is known.
const KNOWN_BYTES_MAX: usize = 1024;

/// What is known of the elements of a list.
#[derive(Clone, Debug)]
pub enum Elements {
    /// There are none.
    None,
    /// All are this tensor, as shapes that each iteration of a loop saves for its gradient.
    Equal(Tensor),
    /// Nothing.
    Any,
}

impl Elements {
    /// What is known of the elements of two lists together.
    pub fn with(&self, other: &Elements) -> Elements {
        match (self, other) {
            (Elements::None, other) | (other, Elements::None) => other.clone(),
            (Elements::Equal(a), Elements::Equal(b)) if is_equal(a, b) => self.clone(),
            _ => Elements::Any,
        }
    }

    /// Whether the same is known.
    pub fn is(&self, other: &Elements) -> bool {
        match (self, other) {
            (Elements::None, Elements::None) | (Elements::Any, Elements::Any) => true,
            (Elements::Equal(a), Elements::Equal(b)) => is_equal(a, b),
            _ => false,
        }
    }
}

fn is_equal(a: &Tensor, b: &Tensor) -> bool {
    a.dtype() == b.dtype()
        && a.shape() == b.shape()
        && matches!((a.as_bytes(), b.as_bytes()), (Ok(a), Ok(b)) if a == b)
}

/// A list of tensors of one shape while a region is compiled.
///
/// The length is `offset`, or `base + offset`: in the body of a loop `base` is the length at the beginning
/// of an iteration. It is at most `length_max`, and the rows suffice for that.
#[derive(Clone, Debug)]
pub struct List {
    /// The dtype of its elements.
    pub dtype: DType,
    /// The shape that its elements were declared to have.
    pub element_shape: PartialShape,
    /// Its elements, and room for more; `None` as long as their shape is not known. Elements that nothing
    /// has set are zeros.
    pub rows: Option<Value>,
    /// A part of its length that is known only in a step, a scalar (int32).
    pub base: Option<Value>,
    /// The other part of its length.
    pub offset: i64,
    /// The greatest `offset` so far.
    pub offset_max: i64,
    /// A bound on its length.
    pub length_max: usize,
    /// What is known of its elements.
    pub elements: Elements,
    /// Whether there may be elements that nothing has set.
    pub has_unset: bool,
    /// The length that pushes must not exceed.
    pub elements_max: Option<usize>,
}

impl List {
    /// A list of `length` elements that nothing has set.
    pub fn new(dtype: DType, element_shape: PartialShape, length: usize) -> List {
        let offset = length as i64;
        List {
            dtype,
            element_shape,
            rows: None,
            base: None,
            offset,
            offset_max: offset,
            length_max: length,
            elements: if length > 0 { Elements::Any } else { Elements::None },
            has_unset: length > 0,
            elements_max: None,
        }
    }

    /// The length, if it is known.
    pub fn known_length(&self) -> Option<usize> {
        match self.base {
            None => usize::try_from(self.offset).ok(),
            Some(_) => None,
        }
    }

    /// The length as a value of the program (int32).
    pub fn length(&self, program: &Program) -> Value {
        self.position(program, 0)
    }

    /// The length and `more`, as a value of the program (int32).
    fn position(&self, program: &Program, more: i64) -> Value {
        let offset = program.scalar(DType::Int32, (self.offset + more) as f64);
        match &self.base {
            None => offset,
            Some(base) if self.offset + more == 0 => base.clone(),
            Some(base) => base.plus(&offset),
        }
    }

    /// The dimensions of its elements, if they are known.
    pub fn element_dims(&self) -> Option<Vec<usize>> {
        match &self.rows {
            Some(rows) => Some(rows.dims()[1..].to_vec()),
            None => self.element_shape.to_shape().map(|shape| shape.to_vec()),
        }
    }

    /// The list with room for `capacity` elements of these dimensions.
    pub fn with_rows(&self, program: &Program, dims: &[usize], capacity: usize) -> Result<List> {
        let bytes = dims.iter().chain([&capacity]).try_fold(self.dtype.size(), |n, &d| {
            n.checked_mul(d).filter(|&bytes| bytes <= ROWS_BYTES_MAX)
        });
        ensure!(
            bytes.is_some(),
            ResourceExhausted,
            "a list of {capacity} tensors {dims:?} has more than {ROWS_BYTES_MAX} bytes"
        );
        ensure!(
            self.element_dims().is_none_or(|own| own == dims)
                && self.element_shape.is_compatible_with(&thalweg_tensor::Shape::new(dims)?),
            Unimplemented,
            "a list in a program has tensors of one shape, not {:?} and {dims:?}",
            self.element_dims()
        );
        let mut list = self.clone();
        list.rows = Some(match &self.rows {
            Some(rows) if rows.dims()[0] >= capacity => rows.clone(),
            Some(rows) => {
                let zero = program.constant(&Tensor::zeros(self.dtype, Default::default())?);
                let mut high = vec![0; rows.rank()];
                high[0] = (capacity - rows.dims()[0]) as i64;
                let none = vec![0; rows.rank()];
                rows.pad(&zero, &none, &high, &none)
            }
            None => {
                let zero = program.constant(&Tensor::zeros(self.dtype, Default::default())?);
                zero.broadcast_to(&[&[capacity], dims].concat())
            }
        });
        Ok(list)
    }

    /// The rows, for as many elements as there can be.
    fn filled(&self, program: &Program, dims: Option<&[usize]>) -> Result<Value> {
        let dims = self.element_dims().or_else(|| dims.map(<[usize]>::to_vec));
        let dims =
            dims.ok_or_else(|| err!(Unimplemented, "a list of elements of unknown shape is read"))?;
        let list = self.with_rows(program, &dims, self.length_max)?;
        list.rows.ok_or_else(|| err!(Internal, "a list has no rows"))
    }

    /// The rows as a tensor, if the length is known; `dims` are those of the elements of a list of which none
    /// was set.
    pub fn stacked(&self, program: &Program, dims: Option<&[usize]>) -> Result<Value> {
        let Some(length) = self.known_length() else {
            bail!(Unimplemented, "the length of a list is known only in a step");
        };
        Ok(self.filled(program, dims)?.slice_dim(0, 0, length))
    }

    /// The list of the rows of a tensor.
    pub fn of_rows(rows: Value, element_shape: PartialShape) -> List {
        let length = rows.dims()[0];
        let dtype = rows.dtype();
        let list = List::new(dtype, element_shape, length);
        List { rows: Some(rows), has_unset: false, ..list }
    }

    /// Element `index`, a scalar (int32) that is at least 0 and less than the length.
    pub fn get(&self, program: &Program, index: &Value, dims: Option<&[usize]>) -> Result<Value> {
        let rows = self.filled(program, dims)?;
        let mut sizes = rows.dims().to_vec();
        ensure!(sizes[0] > 0, InvalidArgument, "an empty list has no elements");
        sizes[0] = 1;
        let starts = starts(program, index, rows.rank());
        Ok(rows.dynamic_slice(&starts, &sizes).reshape(&rows.dims()[1..]))
    }

    /// The list with another element `index`, a scalar (int32) that is at least 0 and less than the length.
    pub fn set(&self, program: &Program, index: &Value, element: &Value) -> Result<List> {
        let mut list = self.with_rows(program, element.dims(), self.length_max)?;
        list.elements = Elements::Any;
        list.rows = list.rows.map(|rows| {
            let starts = starts(program, index, rows.rank());
            rows.dynamic_update_slice(&element.expand(0), &starts)
        });
        Ok(list)
    }

    /// The list with one more element.
    pub fn pushed(&self, program: &Program, element: &Value) -> Result<List> {
        let is_full = self.known_length().zip(self.elements_max).is_some_and(|(n, max)| n >= max);
        ensure!(!is_full, InvalidArgument, "Tried to push item into a full list");
        let mut list = self.with_rows(program, element.dims(), self.length_max + 1)?;
        let index = self.position(program, 0);
        list.offset += 1;
        list.offset_max = list.offset_max.max(list.offset);
        list.length_max += 1;
        list.set(program, &index, element)
    }

    /// The list with one more element, which is known.
    pub fn pushed_known(&self, program: &Program, element: &Tensor) -> Result<List> {
        let mut list = self.pushed(program, &program.constant(element))?;
        if element.size_bytes() <= KNOWN_BYTES_MAX {
            list.elements = self.elements.with(&Elements::Equal(element.clone()));
        }
        Ok(list)
    }

    /// The list without its last element, and that element.
    pub fn popped(&self, program: &Program, dims: Option<&[usize]>) -> Result<(List, Value)> {
        ensure!(self.length_max > 0, InvalidArgument, "Trying to pop from an empty list.");
        let index = self.position(program, -1);
        let element = self.get(program, &index, dims)?;
        let mut list = self.clone();
        list.offset -= 1;
        if list.base.is_none() {
            list.length_max -= 1;
        }
        Ok((list, element))
    }

    /// The list with this length; elements beyond the former one are zeros.
    pub fn resized(&self, program: &Program, length: usize) -> Result<List> {
        let Some(own) = self.known_length() else {
            bail!(Unimplemented, "the length of a list is known only in a step");
        };
        let mut list = List::new(self.dtype, self.element_shape.clone(), length);
        list.has_unset = self.has_unset || length > own;
        list.elements_max = self.elements_max;
        if let (Some(rows), Some(dims)) = (&self.rows, self.element_dims()) {
            list.rows = Some(rows.slice_dim(0, 0, own.min(length)));
            list = list.with_rows(program, &dims, length)?;
        }
        Ok(list)
    }
}

fn starts(program: &Program, index: &Value, rank: usize) -> Vec<Value> {
    let zero = || program.scalar(DType::Int32, 0.0);
    std::iter::once(index.clone()).chain((1..rank).map(|_| zero())).collect()
}
