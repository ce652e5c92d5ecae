//! Rust values as tensors: scalars, arrays, slices, vectors, nested ones, strings.

use thalweg_tensor::{
    Bytes, Complex32, Complex64, DType, Result, Shape, Tensor, bail, bf16, ensure, err, f16,
};

use crate::dtype::{TensorType, Value};
use crate::node::NewOp;
use crate::operand::Operand;

/// A Rust value that can be fed or become a constant of element type `T`.
///
/// Scalars, arrays, slices and vectors, nested to any depth, and [`Tensor`]s.
pub trait IntoTensor<T: TensorType> {
    /// The tensor; an error if nested vectors are ragged, or if a [`Tensor`] has another dtype.
    fn into_tensor(self) -> Result<Tensor>;
}

/// Values in rows: what [`IntoTensor`] is implemented for at any depth of nesting.
pub trait Nested<T: Value> {
    /// Appends the sizes of the dimensions.
    fn dims(&self, dims: &mut Vec<usize>);

    /// Appends the sizes of the rows of an empty value: those that the type tells, and 0.
    fn empty_dims(dims: &mut Vec<usize>);

    /// Appends the elements; an error unless the sizes are `dims`.
    fn append(&self, dims: &[usize], elements: &mut Vec<T::Stored>) -> Result<()>;

    /// The elements of several values, if they lie side by side in memory.
    fn side_by_side(values: &[Self]) -> Option<&[T::Stored]>
    where
        Self: Sized,
    {
        let _ = values;
        None
    }

    /// The elements, if they lie side by side in memory.
    fn flat(&self) -> Option<&[T::Stored]> {
        None
    }
}

fn nested_tensor<T: Value, N: Nested<T> + ?Sized>(value: &N) -> Result<Tensor> {
    let mut dims = Vec::new();
    value.dims(&mut dims);
    let shape = Shape::new(&dims)?;
    if let Some(flat) = value.flat() {
        return T::to_tensor(shape, flat);
    }
    let mut elements = Vec::with_capacity(shape.num_elements());
    value.append(&dims, &mut elements)?;
    T::to_tensor(shape, &elements)
}

macro_rules! scalars {
    ($($t:ty),+) => { $(
        impl Nested<$t> for $t {
            fn dims(&self, _: &mut Vec<usize>) {}

            fn empty_dims(_: &mut Vec<usize>) {}

            fn append(&self, dims: &[usize], elements: &mut Vec<$t>) -> Result<()> {
                check_depth(dims)?;
                elements.push(*self);
                Ok(())
            }

            fn side_by_side(values: &[$t]) -> Option<&[$t]> {
                Some(values)
            }

            fn flat(&self) -> Option<&[$t]> {
                Some(std::slice::from_ref(self))
            }
        }
    )+ };
}

scalars!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64);

macro_rules! strings {
    ($($t:ty => |$x:ident| $bytes:expr;)+) => { $(
        impl Nested<String> for $t {
            fn dims(&self, _: &mut Vec<usize>) {}

            fn empty_dims(_: &mut Vec<usize>) {}

            fn append(&self, dims: &[usize], elements: &mut Vec<Bytes>) -> Result<()> {
                check_depth(dims)?;
                let $x = self;
                elements.push($bytes);
                Ok(())
            }
        }
    )+ };
}

strings! {
    str => |x| Bytes::copy_from_slice(x.as_bytes());
    String => |x| Bytes::copy_from_slice(x.as_bytes());
    Bytes => |x| x.clone();
}

fn check_depth(dims: &[usize]) -> Result<()> {
    ensure!(dims.is_empty(), InvalidArgument, "a nested value is less deep than the one before it");
    Ok(())
}

impl<T: Value, N: Nested<T>> Nested<T> for [N] {
    fn dims(&self, dims: &mut Vec<usize>) {
        dims.push(self.len());
        match self.first() {
            Some(first) => first.dims(dims),
            None => N::empty_dims(dims),
        }
    }

    fn empty_dims(dims: &mut Vec<usize>) {
        dims.push(0);
        N::empty_dims(dims);
    }

    fn append(&self, dims: &[usize], elements: &mut Vec<T::Stored>) -> Result<()> {
        let Some((&len, rest)) = dims.split_first() else {
            bail!(InvalidArgument, "a nested value is deeper than the one before it");
        };
        ensure!(
            self.len() == len,
            InvalidArgument,
            "rows have {len} and {} elements: a tensor cannot be ragged",
            self.len()
        );
        match N::side_by_side(self) {
            Some(flat) => elements.extend_from_slice(flat),
            None => self.iter().try_for_each(|row| row.append(rest, elements))?,
        }
        Ok(())
    }

    fn flat(&self) -> Option<&[T::Stored]> {
        N::side_by_side(self)
    }
}

impl<T: Value, N: Nested<T>, const LEN: usize> Nested<T> for [N; LEN] {
    fn dims(&self, dims: &mut Vec<usize>) {
        self[..].dims(dims);
    }

    fn empty_dims(dims: &mut Vec<usize>) {
        dims.push(LEN);
        N::empty_dims(dims);
    }

    fn append(&self, dims: &[usize], elements: &mut Vec<T::Stored>) -> Result<()> {
        self[..].append(dims, elements)
    }

    fn side_by_side(values: &[Self]) -> Option<&[T::Stored]> {
        N::side_by_side(values.as_flattened())
    }

    fn flat(&self) -> Option<&[T::Stored]> {
        self[..].flat()
    }
}

impl<T: Value, N: Nested<T>> Nested<T> for Vec<N> {
    fn dims(&self, dims: &mut Vec<usize>) {
        self[..].dims(dims);
    }

    fn empty_dims(dims: &mut Vec<usize>) {
        <[N]>::empty_dims(dims);
    }

    fn append(&self, dims: &[usize], elements: &mut Vec<T::Stored>) -> Result<()> {
        self[..].append(dims, elements)
    }

    fn flat(&self) -> Option<&[T::Stored]> {
        self[..].flat()
    }
}

impl<T: Value, N: Nested<T> + ?Sized> Nested<T> for &N {
    fn dims(&self, dims: &mut Vec<usize>) {
        (**self).dims(dims);
    }

    fn empty_dims(dims: &mut Vec<usize>) {
        N::empty_dims(dims);
    }

    fn append(&self, dims: &[usize], elements: &mut Vec<T::Stored>) -> Result<()> {
        (**self).append(dims, elements)
    }

    fn flat(&self) -> Option<&[T::Stored]> {
        (**self).flat()
    }
}

/// Implements both traits of values that nest.
macro_rules! values {
    ($([$($generics:tt)*] $element:ty, $t:ty;)+) => { $(
        impl<$($generics)*> IntoTensor<$element> for $t {
            fn into_tensor(self) -> Result<Tensor> {
                nested_tensor::<$element, $t>(&self)
            }
        }

        impl<$($generics)*> Operand<$element> for $t {
            fn push_to(self, op: &mut NewOp<'_>) {
                op.push_value(nested_tensor::<$element, $t>(&self));
            }
        }
    )+ };
}

values! {
    [] f32, f32; [] f64, f64; [] f16, f16; [] bf16, bf16;
    [] i8, i8; [] i16, i16; [] i32, i32; [] i64, i64;
    [] u8, u8; [] u16, u16; [] u32, u32; [] u64, u64;
    [] bool, bool; [] Complex32, Complex32; [] Complex64, Complex64;
    [] String, &str; [] String, String; [] String, Bytes;
    [T: Value, N: Nested<T>, const LEN: usize] T, [N; LEN];
    [T: Value, N: Nested<T>, const LEN: usize] T, &[N; LEN];
    [T: Value, N: Nested<T>] T, &[N];
    [T: Value, N: Nested<T>] T, Vec<N>;
    [T: Value, N: Nested<T>] T, &Vec<N>;
}

impl<T: TensorType> IntoTensor<T> for Tensor {
    fn into_tensor(self) -> Result<Tensor> {
        check_dtype::<T>(&self)?;
        Ok(self)
    }
}

impl<T: TensorType> IntoTensor<T> for &Tensor {
    fn into_tensor(self) -> Result<Tensor> {
        check_dtype::<T>(self)?;
        Ok(self.clone())
    }
}

impl<T: TensorType> Operand<T> for Tensor {
    fn push_to(self, op: &mut NewOp<'_>) {
        op.push_value(IntoTensor::<T>::into_tensor(self));
    }
}

impl<T: TensorType> Operand<T> for &Tensor {
    fn push_to(self, op: &mut NewOp<'_>) {
        op.push_value(IntoTensor::<T>::into_tensor(self));
    }
}

fn check_dtype<T: TensorType>(tensor: &Tensor) -> Result<()> {
    let wanted: Option<DType> = T::DTYPE;
    if let Some(wanted) = wanted {
        let dtype = tensor.dtype();
        ensure!(
            dtype == wanted,
            InvalidArgument,
            "the tensor holds {dtype}, where {wanted} was expected"
        );
    }
    Ok(())
}

/// What a fetched tensor of element type `T` becomes: a scalar, a vector, nested vectors, an array,
/// or the [`Tensor`] itself.
pub trait FromTensor<T: TensorType>: Sized {
    /// The value; an error if the tensor's shape is not that of this type.
    fn from_tensor(tensor: Tensor) -> Result<Self>;
}

impl<T: TensorType> FromTensor<T> for Tensor {
    fn from_tensor(tensor: Tensor) -> Result<Tensor> {
        Ok(tensor)
    }
}

macro_rules! from_scalars {
    ($($t:ty),+ $(,)?) => { $(
        impl FromTensor<$t> for $t {
            fn from_tensor(tensor: Tensor) -> Result<$t> {
                let [element] = <$t as Value>::elements(&tensor)? else {
                    bail!(
                        InvalidArgument,
                        "a scalar was asked for, but the tensor has shape {}: fetch it as a Vec, an \
                         array or a Tensor",
                        tensor.shape()
                    );
                };
                <$t as Value>::of_stored(element)
            }
        }

        impl FromRows<$t> for $t {
            const RANK: usize = 0;

            fn from_rows(_: &[usize], elements: &[<$t as Value>::Stored]) -> Result<$t> {
                <$t as Value>::of_stored(&elements[0])
            }
        }
    )+ };
}

from_scalars!(
    f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64, String,
);

/// A value that is made of the elements of a tensor of its rank.
pub trait FromRows<T: Value>: Sized {
    /// How deep it is nested.
    const RANK: usize;

    /// The value of these sizes, which are as many as `RANK`.
    fn from_rows(dims: &[usize], elements: &[T::Stored]) -> Result<Self>;
}

/// The most rows without elements that a fetch makes.
const EMPTY_ROWS_MAX: usize = 1 << 20;

impl<T: Value, R: FromRows<T>> FromRows<T> for Vec<R> {
    const RANK: usize = R::RANK + 1;

    fn from_rows(dims: &[usize], elements: &[T::Stored]) -> Result<Self> {
        let (rest, size) = row(dims);
        // Rows without elements take memory here, and none in the tensor.
        ensure!(
            size > 0 || dims[0] <= EMPTY_ROWS_MAX,
            ResourceExhausted,
            "{} empty rows were fetched into a Vec; at most {EMPTY_ROWS_MAX} are",
            dims[0]
        );
        (0..dims[0]).map(|i| R::from_rows(rest, &elements[i * size..(i + 1) * size])).collect()
    }
}

impl<T: Value, R: FromRows<T>, const LEN: usize> FromRows<T> for [R; LEN] {
    const RANK: usize = R::RANK + 1;

    fn from_rows(dims: &[usize], elements: &[T::Stored]) -> Result<Self> {
        let len = dims[0];
        let other = || {
            err!(InvalidArgument, "an array of {LEN} was asked for, but the dimension has {len}")
        };
        if len != LEN {
            return Err(other());
        }
        Vec::<R>::from_rows(dims, elements)?.try_into().map_err(|_| other())
    }
}

/// The sizes of a row, and the number of its elements.
fn row(dims: &[usize]) -> (&[usize], usize) {
    let rest = &dims[1..];
    (rest, rest.iter().product())
}

macro_rules! from_nested {
    ($([$($generics:tt)*] $t:ty;)+) => { $(
        impl<T: Value, R: FromRows<T>, $($generics)*> FromTensor<T> for $t {
            fn from_tensor(tensor: Tensor) -> Result<Self> {
                let rank = <$t as FromRows<T>>::RANK;
                ensure!(
                    tensor.rank() == rank,
                    InvalidArgument,
                    "a value of rank {rank} was asked for, but the tensor has shape {}",
                    tensor.shape()
                );
                <$t as FromRows<T>>::from_rows(tensor.shape().dims(), T::elements(&tensor)?)
            }
        }
    )+ };
}

from_nested! {
    [] Vec<R>;
    [const LEN: usize] [R; LEN];
}
