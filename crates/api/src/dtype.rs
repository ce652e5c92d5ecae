//! Element types of handles.

use std::marker::PhantomData;

use thalweg_tensor::{
    Bytes, Complex32, Complex64, DType, Float8E4m3b11fnuz, Float8E4m3fn, Float8E4m3fnuz,
    Float8E5m2, Float8E5m2fnuz, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Shape, Tensor,
    bf16, f16,
};

/// The element type of a handle: a Rust number, `bool`, [`String`], or a marker of this module.
pub trait TensorType: Send + Sync + Sized + 'static {
    /// The dtype of the elements; `None` if only the graph knows it ([`Any`]).
    const DTYPE: Option<DType>;
}

/// The dtype of `T` for the function of this name, which makes tensors of it; an error for [`Any`].
pub fn known_dtype<T: TensorType>(function: &str) -> Result<DType> {
    T::DTYPE.ok_or_else(|| {
        thalweg_tensor::err!(
            InvalidArgument,
            "`{function}` must know the element type of what it makes, as in `{function}::<f32>`: \
             `Any` says none"
        )
    })
}

/// An element type that Rust values can have: a number, `bool` or a string.
pub trait Value: TensorType {
    /// The elements as a tensor stores them: strings are stored as bytes.
    type Stored: Clone + Send + Sync + 'static;

    /// A tensor of these elements, in row-major order.
    fn to_tensor(shape: Shape, elements: &[Self::Stored]) -> Result<Tensor>;

    /// The elements of a tensor, in row-major order; an error if it has another dtype.
    fn elements(tensor: &Tensor) -> Result<&[Self::Stored]>;

    /// One element as a Rust value.
    fn of_stored(stored: &Self::Stored) -> Result<Self>;
}

/// Marks a tensor whose dtype is known only to the graph. [`crate::Output::typed`] converts from it.
#[derive(Clone, Copy, Debug)]
pub enum Any {}

/// Marks a handle of a resource: a variable, table, queue or iterator.
#[derive(Clone, Copy, Debug)]
pub enum Resource {}

/// Marks a variant: a tensor list, a dataset or an optional.
#[derive(Clone, Copy, Debug)]
pub enum Variant {}

/// Marks a reference to the buffer of a variable of the first kind (`VariableV2`).
#[derive(Clone, Copy, Debug)]
pub struct Ref<T>(PhantomData<fn() -> T>);

impl TensorType for Any {
    const DTYPE: Option<DType> = None;
}

impl TensorType for Resource {
    const DTYPE: Option<DType> = Some(DType::Resource);
}

impl TensorType for Variant {
    const DTYPE: Option<DType> = Some(DType::Variant);
}

impl<T: TensorType> TensorType for Ref<T> {
    const DTYPE: Option<DType> = T::DTYPE;
}

impl TensorType for String {
    const DTYPE: Option<DType> = Some(DType::String);
}

impl Value for String {
    type Stored = Bytes;

    fn to_tensor(shape: Shape, elements: &[Bytes]) -> Result<Tensor> {
        Tensor::from_strings(shape, elements.to_vec())
    }

    fn elements(tensor: &Tensor) -> Result<&[Bytes]> {
        tensor.strings()
    }

    fn of_stored(stored: &Bytes) -> Result<String> {
        String::from_utf8(stored.to_vec()).map_err(|_| {
            thalweg_tensor::err!(
                InvalidArgument,
                "a string element is not UTF-8: fetch it as a Tensor to get its bytes"
            )
        })
    }
}

macro_rules! numbers {
    ($($t:ty => $dtype:ident),+ $(,)?) => { $(
        impl TensorType for $t {
            const DTYPE: Option<DType> = Some(DType::$dtype);
        }

        impl Value for $t {
            type Stored = $t;

            fn to_tensor(shape: Shape, elements: &[$t]) -> Result<Tensor> {
                Tensor::from_slice(shape, elements)
            }

            fn elements(tensor: &Tensor) -> Result<&[$t]> {
                tensor.as_slice::<$t>()
            }

            fn of_stored(stored: &$t) -> Result<$t> {
                Ok(*stored)
            }
        }
    )+ };
}

numbers! {
    f32 => Float, f64 => Double, f16 => Half, bf16 => BFloat16,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64, bool => Bool,
    Complex32 => Complex64, Complex64 => Complex128,
    QInt8 => QInt8, QUInt8 => QUInt8, QInt16 => QInt16, QUInt16 => QUInt16, QInt32 => QInt32,
    Float8E5m2 => Float8E5m2, Float8E4m3fn => Float8E4m3fn, Float8E4m3fnuz => Float8E4m3fnuz,
    Float8E4m3b11fnuz => Float8E4m3b11fnuz, Float8E5m2fnuz => Float8E5m2fnuz,
}
