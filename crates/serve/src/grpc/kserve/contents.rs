//! Elements in the typed fields of `InferTensorContents`.

use std::sync::Arc;

use thalweg_proto::inference::InferTensorContents;
use thalweg_tensor::{Budget, DType, Element, Result, Shape, Tensor, bail, ensure, err};

use crate::kserve::datatype;

/// Whether typed fields can hold such elements; others are sent raw.
pub(super) fn is_typed(dtype: DType) -> bool {
    !matches!(dtype, DType::Half | DType::BFloat16)
}

/// The tensor of an input. Small numbers are encoded in few bytes, so tensors are charged to
/// `budget`.
pub(super) fn to_tensor(
    dtype: DType,
    shape: Shape,
    contents: InferTensorContents,
    budget: &Arc<Budget>,
) -> Result<Tensor> {
    check_fields(dtype, &contents)?;
    match dtype {
        DType::Bool => plain(shape, &contents.bool_contents, budget),
        DType::Int8 => narrowed::<_, i8>(shape, &contents.int_contents, budget),
        DType::Int16 => narrowed::<_, i16>(shape, &contents.int_contents, budget),
        DType::Int32 => plain(shape, &contents.int_contents, budget),
        DType::Int64 => plain(shape, &contents.int64_contents, budget),
        DType::UInt8 => narrowed::<_, u8>(shape, &contents.uint_contents, budget),
        DType::UInt16 => narrowed::<_, u16>(shape, &contents.uint_contents, budget),
        DType::UInt32 => plain(shape, &contents.uint_contents, budget),
        DType::UInt64 => plain(shape, &contents.uint64_contents, budget),
        DType::Float => plain(shape, &contents.fp32_contents, budget),
        DType::Double => plain(shape, &contents.fp64_contents, budget),
        DType::String => {
            check_count(&shape, contents.bytes_contents.len())?;
            Tensor::from_strings(shape, contents.bytes_contents)
        }
        other => bail!(InvalidArgument, "{other} has no typed form; send raw_input_contents"),
    }
}

/// The field that holds such elements.
fn field(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool_contents",
        DType::Int8 | DType::Int16 | DType::Int32 => "int_contents",
        DType::Int64 => "int64_contents",
        DType::UInt8 | DType::UInt16 | DType::UInt32 => "uint_contents",
        DType::UInt64 => "uint64_contents",
        DType::Float => "fp32_contents",
        DType::Double => "fp64_contents",
        DType::String => "bytes_contents",
        _ => "raw_input_contents",
    }
}

/// Rejects values in another field, which would be ignored otherwise.
fn check_fields(dtype: DType, contents: &InferTensorContents) -> Result<()> {
    let counts = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    let wanted = field(dtype);
    for (name, count) in counts {
        ensure!(
            count == 0 || name == wanted,
            InvalidArgument,
            "{} values belong in {wanted}; {name} has {count}",
            datatype(dtype)?
        );
    }
    Ok(())
}

fn check_count(shape: &Shape, count: usize) -> Result<()> {
    ensure!(
        shape.num_elements() == count,
        InvalidArgument,
        "{count} values are not a tensor of shape {shape}"
    );
    Ok(())
}

fn plain<T: Element>(shape: Shape, values: &[T], budget: &Arc<Budget>) -> Result<Tensor> {
    check_count(&shape, values.len())?;
    let mut tensor = Tensor::allocate(T::DTYPE, shape, Some(budget))?;
    tensor.as_mut_slice::<T>()?.copy_from_slice(values);
    Ok(tensor)
}

fn narrowed<W, N>(shape: Shape, values: &[W], budget: &Arc<Budget>) -> Result<Tensor>
where
    W: Copy + std::fmt::Display,
    N: Element + TryFrom<W>,
{
    let narrow = |&value: &W| {
        N::try_from(value).map_err(|_| err!(InvalidArgument, "{value} is not an {}", N::DTYPE))
    };
    plain(shape, &values.iter().map(narrow).collect::<Result<Vec<N>>>()?, budget)
}

/// The typed form of a tensor.
pub(super) fn from_tensor(tensor: &Tensor) -> Result<InferTensorContents> {
    let mut contents = InferTensorContents::default();
    match tensor.dtype() {
        DType::Bool => contents.bool_contents = tensor.as_slice()?.to_vec(),
        DType::Int8 => contents.int_contents = widened(tensor.as_slice::<i8>()?),
        DType::Int16 => contents.int_contents = widened(tensor.as_slice::<i16>()?),
        DType::Int32 => contents.int_contents = tensor.as_slice()?.to_vec(),
        DType::Int64 => contents.int64_contents = tensor.as_slice()?.to_vec(),
        DType::UInt8 => contents.uint_contents = widened(tensor.as_slice::<u8>()?),
        DType::UInt16 => contents.uint_contents = widened(tensor.as_slice::<u16>()?),
        DType::UInt32 => contents.uint_contents = tensor.as_slice()?.to_vec(),
        DType::UInt64 => contents.uint64_contents = tensor.as_slice()?.to_vec(),
        DType::Float => contents.fp32_contents = tensor.as_slice()?.to_vec(),
        DType::Double => contents.fp64_contents = tensor.as_slice()?.to_vec(),
        DType::String => contents.bytes_contents = tensor.strings()?.to_vec(),
        other => bail!(Internal, "{other} has no typed form"),
    }
    Ok(contents)
}

fn widened<N: Copy + Into<W>, W>(values: &[N]) -> Vec<W> {
    values.iter().map(|&value| value.into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_contents_round_trip() {
        for tensor in [
            Tensor::vector(&[true, false]).unwrap(),
            Tensor::vector(&[-128i8, 127]).unwrap(),
            Tensor::vector(&[-5i16]).unwrap(),
            Tensor::vector(&[i32::MIN]).unwrap(),
            Tensor::scalar(i64::MAX),
            Tensor::vector(&[255u8]).unwrap(),
            Tensor::vector(&[65535u16]).unwrap(),
            Tensor::vector(&[u32::MAX]).unwrap(),
            Tensor::vector(&[u64::MAX]).unwrap(),
            Tensor::vector(&[1.5f32]).unwrap(),
            Tensor::vector(&[0.1f64]).unwrap(),
            Tensor::scalar_string("hi"),
            Tensor::zeros(DType::Float, Shape::new(&[0, 3]).unwrap()).unwrap(),
        ] {
            assert!(is_typed(tensor.dtype()));
            let contents = from_tensor(&tensor).unwrap();
            let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
            let back = to_tensor(dtype, shape, contents, &Budget::new(1000)).unwrap();
            assert_eq!(back.to_proto().unwrap(), tensor.to_proto().unwrap());
        }
        assert!(!is_typed(DType::Half));
    }

    #[test]
    fn contents_that_do_not_fit_are_rejected() {
        let read = |dtype, sizes: &[usize], contents| {
            let shape = Shape::new(sizes).unwrap();
            to_tensor(dtype, shape, contents, &Budget::new(1000)).unwrap_err().message().to_owned()
        };
        let ints = |values: &[i32]| InferTensorContents {
            int_contents: values.to_vec(),
            ..Default::default()
        };
        assert_eq!(read(DType::Int8, &[1], ints(&[128])), "128 is not an int8");
        assert!(read(DType::Int32, &[1 << 40], ints(&[1])).contains("1 values are not"));
        assert_eq!(
            read(DType::Float, &[1], ints(&[1])),
            "FP32 values belong in fp32_contents; int_contents has 1"
        );
        assert!(read(DType::Half, &[1], ints(&[])).contains("raw_input_contents"));
        assert!(read(DType::Int32, &[1000], ints(&[1; 1000])).contains("out of memory"));
    }
}
