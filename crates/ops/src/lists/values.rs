//! Arithmetic on variants: addition and zeros-like of lists and ragged tensors.

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Result, Tensor, VariantValue, bail, ensure};

use super::list::TensorList;
use crate::add_n::sum_of_two;
use crate::data::optional;
use crate::sparse::ragged_variant::Ragged;

/// `AddN` of variants.
pub(crate) fn add_variants(ctx: &mut KernelContext<'_>) -> Result<()> {
    let mut sum = ctx.take_input(0)?;
    for i in 1..ctx.num_inputs() {
        sum = sum_of_variants(ctx, &sum, ctx.input(i)?)?;
    }
    ctx.set_output(0, sum)
}

fn only<'a>(tensor: &'a Tensor, op: &str) -> Result<&'a VariantValue> {
    match (tensor.rank(), tensor.variants()?) {
        (0, [value]) => Ok(value),
        _ => bail!(
            InvalidArgument,
            "{op} of non-scalar Tensor with dtype=DT_VARIANT is not supported; it has shape {}",
            tensor.shape()
        ),
    }
}

fn sum_of_variants(ctx: &KernelContext<'_>, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (x, y) = (only(a, "AddN")?, only(b, "AddN")?);
    if let (Ok(a), Ok(b)) = (TensorList::of(x, ""), TensorList::of(y, "")) {
        return sum_of_lists(ctx, &a, &b)?.into_tensor();
    }
    if let (Ok(a), Ok(b)) = (Ragged::of(x, 0), Ragged::of(y, 0)) {
        return sum_of_ragged(ctx, a, &b);
    }
    bail!(Internal, "Variants that cannot be added: {x:?} and {y:?}")
}

fn sum_of_lists(ctx: &KernelContext<'_>, a: &TensorList, b: &TensorList) -> Result<TensorList> {
    ensure!(
        a.dtype == b.dtype,
        InvalidArgument,
        "Trying to add two lists of tensors of different dtypes. One is {} and the other is {}",
        a.dtype,
        b.dtype
    );
    let mut sum = TensorList::new(a.dtype, a.shape.merge(&b.shape)?);
    ensure!(
        a.len() == b.len(),
        InvalidArgument,
        "Trying to add two lists of tensors with different lengths. One is {} and the other is {}",
        a.len(),
        b.len()
    );
    sum.resize(a.len(), None, ctx.budget())?;
    for (i, pair) in a.elements().iter().zip(b.elements()).enumerate() {
        sum.set(
            i,
            match pair {
                (Some(x), Some(y)) => Some(sum_of_elements(ctx, x, y)?),
                (x, y) => x.clone().or_else(|| y.clone()),
            },
            ctx.budget(),
        )?;
    }
    Ok(sum)
}

fn sum_of_elements(ctx: &KernelContext<'_>, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match a.dtype() {
        DType::Variant => sum_of_variants(ctx, a, b),
        _ => sum_of_two(ctx, a, b),
    }
}

fn sum_of_ragged(ctx: &KernelContext<'_>, a: Ragged, b: &Ragged) -> Result<Tensor> {
    let is_same = |(a, b): (&Tensor, &Tensor)| {
        Ok::<_, thalweg_tensor::Error>(a.dtype() == b.dtype() && a.as_bytes()? == b.as_bytes()?)
    };
    let mut agree = a.splits().len() == b.splits().len();
    for pair in a.splits().iter().zip(b.splits()) {
        agree = agree && is_same(pair)?;
    }
    ensure!(agree, InvalidArgument, "Can't add RaggedTensorVariants: the splits differ");
    let values = sum_of_two(ctx, a.values(), b.values())?;
    a.with_values(values)?.into_tensor()
}

/// `ZerosLike` of a tensor of variants.
pub(crate) fn zero_variants(ctx: &KernelContext<'_>, tensor: &Tensor) -> Result<Tensor> {
    if tensor.variants()?.iter().all(Option::is_none) {
        return ctx.zeros(DType::Variant, tensor.shape().clone());
    }
    let value = only(tensor, "ZerosLike")?;
    if let Ok(list) = TensorList::of(value, "") {
        let mut zeros = TensorList::new(list.dtype, list.shape.clone());
        zeros.resize(list.len(), None, ctx.budget())?;
        for (i, element) in list.elements().iter().enumerate() {
            let zero = element.as_ref().map(|element| zero_element(ctx, element)).transpose()?;
            zeros.set(i, zero, ctx.budget())?;
        }
        return zeros.into_tensor();
    }
    if let Ok(ragged) = Ragged::of(value, 0) {
        let values = zero_element(ctx, ragged.values())?;
        return ragged.with_values(values)?.into_tensor();
    }
    if value.as_ref().is_some_and(|v| v.type_name() == optional::OPTIONAL_TYPE) {
        return optional::zeros(ctx, value);
    }
    bail!(Internal, "ZerosLike does not support the variant {value:?}")
}

pub(crate) fn zero_element(ctx: &KernelContext<'_>, element: &Tensor) -> Result<Tensor> {
    match element.dtype() {
        DType::Variant => zero_variants(ctx, element),
        DType::String | DType::Resource => {
            bail!(
                InvalidArgument,
                "ZerosLike does not support list elements of dtype {}",
                element.dtype()
            )
        }
        dtype => ctx.zeros(dtype, element.shape().clone()),
    }
}
