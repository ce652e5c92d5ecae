//! Conversions from and to arrays of the crate `ndarray`.

use ndarray::{Array, ArrayBase, ArrayD, Data, Dimension, IxDyn};
use thalweg_tensor::{Result, Shape, Tensor, err};

use crate::dtype::Value;
use crate::node::NewOp;
use crate::operand::Operand;
use crate::value::{FromTensor, IntoTensor};

fn tensor<T, S, D>(array: &ArrayBase<S, D>) -> Result<Tensor>
where
    T: Value<Stored = T> + Clone,
    S: Data<Elem = T>,
    D: Dimension,
{
    let shape = Shape::new(array.shape())?;
    match array.as_slice() {
        Some(elements) => T::to_tensor(shape, elements),
        None => T::to_tensor(shape, &array.iter().cloned().collect::<Vec<T>>()),
    }
}

macro_rules! arrays {
    ($($t:ty),+) => { $(
        impl<T, S, D> IntoTensor<T> for $t
        where
            T: Value<Stored = T> + Clone,
            S: Data<Elem = T>,
            D: Dimension,
        {
            fn into_tensor(self) -> Result<Tensor> {
                tensor::<T, S, D>(&self)
            }
        }

        impl<T, S, D> Operand<T> for $t
        where
            T: Value<Stored = T> + Clone,
            S: Data<Elem = T>,
            D: Dimension,
        {
            fn push_to(self, op: &mut NewOp<'_>) {
                op.push_value(tensor::<T, S, D>(&self));
            }
        }
    )+ };
}

arrays!(ArrayBase<S, D>, &ArrayBase<S, D>);

impl<T: Value<Stored = T> + Clone, D: Dimension> FromTensor<T> for Array<T, D> {
    fn from_tensor(tensor: Tensor) -> Result<Array<T, D>> {
        let elements = T::elements(&tensor)?.to_vec();
        let array: ArrayD<T> = ArrayBase::from_shape_vec(IxDyn(tensor.shape().dims()), elements)
            .map_err(|e| err!(Internal, "the elements of a tensor fill its shape: {e}"))?;
        array.into_dimensionality().map_err(|_| {
            err!(
                InvalidArgument,
                "an array of rank {} was asked for, but the tensor has shape {}",
                D::NDIM.unwrap_or_default(),
                tensor.shape()
            )
        })
    }
}
