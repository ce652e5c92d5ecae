//! Ragged tensors as variants.

use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::OpDef;
use thalweg_graph::shape::ShapeContext;
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Bytes, DType, PartialShape, Result, Shape, Tensor, Variant, VariantValue, bail, check_nesting,
    ensure, err,
};

use super::coo::set_outputs;
use super::gradients;
use super::ragged::{Splits, SplitsWriter, check_nested};
use crate::cells::{Cell, blank};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        RAGGED_TENSOR_TO_VARIANT.with_gradient(gradients::ragged_to_variant),
        RAGGED_TENSOR_FROM_VARIANT.with_gradient(gradients::ragged_from_variant),
        OpDef::new("RaggedTensorToVariantGradient", to_variant_gradient_shape),
    ],
    kernels: &[
        KernelSpec { op: "RaggedTensorToVariant", create: to_variant, ..KernelSpec::CPU },
        KernelSpec { op: "RaggedTensorFromVariant", create: from_variant, ..KernelSpec::CPU },
        KernelSpec {
            op: "RaggedTensorToVariantGradient",
            create: to_variant_gradient,
            ..KernelSpec::CPU
        },
    ],
};

/// TensorFlow's type name of the variant.
const RAGGED_TYPE: &str = "RaggedTensorVariant";

/// A ragged tensor: row splits from the outermost dimension inwards, and values.
#[derive(Clone, Debug)]
pub(crate) struct Ragged {
    splits: SmallVec<[Tensor; 2]>,
    values: Tensor,
    /// Nesting depth of variants in the values.
    depth: usize,
}

impl Variant for Ragged {
    fn type_name(&self) -> &str {
        RAGGED_TYPE
    }

    fn encode(&self) -> Option<(Bytes, Vec<Tensor>)> {
        let tensors = self.splits.iter().chain([&self.values]).cloned().collect();
        Some((Bytes::new(), tensors))
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

impl Ragged {
    fn new(splits: SmallVec<[Tensor; 2]>, values: Tensor) -> Result<Ragged> {
        let depth = check_nesting(&values)?;
        Ok(Ragged { splits, values, depth })
    }

    /// A ragged tensor with one level of row splits.
    pub(crate) fn of_rows(splits: Tensor, values: Tensor) -> Result<Ragged> {
        Ragged::new(SmallVec::from_iter([splits]), values)
    }

    /// The row splits, from the outermost dimension inwards.
    pub(crate) fn splits(&self) -> &[Tensor] {
        &self.splits
    }

    /// The values.
    pub(crate) fn values(&self) -> &Tensor {
        &self.values
    }

    /// The same row splits with other values.
    pub(crate) fn with_values(self, values: Tensor) -> Result<Ragged> {
        Ragged::new(self.splits, values)
    }

    /// A scalar variant that holds the ragged tensor.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_variants(Shape::scalar(), vec![self.into_variant()])
    }

    /// The ragged tensor in a variant, which may have been decoded from another process.
    pub(crate) fn of(value: &VariantValue, i: usize) -> Result<Ragged> {
        let encoded = value.as_ref().filter(|v| v.type_name() == RAGGED_TYPE);
        let mut tensors = match encoded.and_then(|v| v.encode()) {
            Some((_, tensors)) => tensors,
            None => bail!(
                InvalidArgument,
                "Input Variant element at index {i} doesn't hold a RaggedTensorVariant"
            ),
        };
        let values = tensors.pop().ok_or_else(|| {
            err!(InvalidArgument, "the RaggedTensorVariant at index {i} has no values")
        })?;
        Ragged::new(tensors.into(), values)
    }

    fn into_variant(self) -> VariantValue {
        Some(Arc::new(self))
    }
}

const RAGGED_TENSOR_TO_VARIANT: OpDef = OpDef::new("RaggedTensorToVariant", to_variant_shape);

fn to_variant_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (ragged_rank, is_batched) =
        (c.attrs().size("RAGGED_RANK")?, c.attrs().bool("batched_input")?);
    for i in 0..ragged_rank {
        c.with_rank(i, "rt_nested_splits", 1)?;
    }
    if !is_batched {
        c.set_output(0, PartialShape::scalar());
        return Ok(());
    }
    let rows = match ragged_rank {
        0 => c.with_rank_at_least(0, "rt_dense_values", 1)?.dim(0),
        _ => c.input(0).dim(0).and_then(|n| n.checked_sub(1)),
    };
    c.set_output(0, PartialShape::new([rows]));
    Ok(())
}

fn to_variant(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let ragged_rank = init.attrs().size("RAGGED_RANK")?;
    let is_batched = init.attrs().bool("batched_input")?;
    AnyKernel::new(move |ctx| {
        let output = encoded(ctx, ragged_rank, is_batched)?;
        ctx.set_output(0, output)
    })
}

fn encoded(ctx: &KernelContext<'_>, ragged_rank: usize, is_batched: bool) -> Result<Tensor> {
    let levels: SmallVec<[Splits<'_>; 4]> =
        (0..ragged_rank).map(|i| Splits::of(ctx.input(i)?)).collect::<Result<_>>()?;
    let values = ctx.input(ragged_rank)?;
    if ragged_rank > 0 {
        check_nested(&levels, values)?;
    }
    if !is_batched {
        let splits = (0..ragged_rank).map(|i| ctx.input(i).cloned()).collect::<Result<_>>()?;
        return Ragged::new(splits, values.clone())?.into_tensor();
    }
    ensure!(values.rank() > 0, InvalidArgument, "a scalar cannot be a batch");
    let rows = levels.first().map_or(values.shape()[0], |level| level.rows);
    let mut output = Tensor::zeros_in(DType::Variant, Shape::new(&[rows])?, Some(ctx.budget()))?;
    for (row, slot) in output.variants_mut()?.iter_mut().enumerate() {
        *slot = component(ctx, &levels, values, row)?.into_variant();
    }
    Ok(output)
}

/// Row `row` of a ragged tensor, with one rank less.
fn component(
    ctx: &KernelContext<'_>,
    levels: &[Splits<'_>],
    values: &Tensor,
    row: usize,
) -> Result<Ragged> {
    let Some((outer, inner)) = levels.split_first() else {
        let shape = Shape::new(&values.shape()[1..])?;
        let values = values.rows(row, 1, Some(ctx.budget()))?.reshaped(shape)?;
        values.ensure_charged(ctx.budget())?;
        return Ragged::new(SmallVec::new(), values);
    };
    let (mut start, mut end) = (outer.start(row), outer.start(row + 1));
    let mut splits = SmallVec::new();
    for (k, level) in inner.iter().enumerate() {
        let mut writer = SplitsWriter::new(ctx, ctx.input(k + 1)?.dtype(), end - start)?;
        let first = level.start(start);
        for i in start..end {
            writer.push(level.start(i + 1) - first)?;
        }
        splits.push(writer.finish());
        (start, end) = (first, level.start(end));
    }
    let values = values.rows(start, end - start, Some(ctx.budget()))?;
    values.ensure_charged(ctx.budget())?;
    Ragged::new(splits, values)
}

const RAGGED_TENSOR_FROM_VARIANT: OpDef = OpDef::new("RaggedTensorFromVariant", from_variant_shape);

fn from_variant_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, output) =
        (c.attrs().int("input_ragged_rank")?, c.attrs().int("output_ragged_rank")?);
    if let Some(rank) = c.input(0).rank().filter(|_| input >= 0) {
        ensure!(
            output - input == rank as i64,
            InvalidArgument,
            "encoded_ragged must have rank {output} - {input}, got shape {}",
            c.input(0)
        );
    }
    for i in 0..c.num_outputs() - 1 {
        c.set_output(i, PartialShape::of_rank(1));
    }
    Ok(())
}

fn from_variant(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (input_rank, output_rank) =
        (attrs.int("input_ragged_rank")?, attrs.int("output_ragged_rank")?);
    let (values, splits) = (attrs.dtype("Tvalues")?, attrs.dtype("Tsplits")?);
    AnyKernel::new(move |ctx| {
        let encoded = ctx.input(0)?;
        let dims = encoded.shape().clone();
        let inferred = output_rank - dims.rank() as i64;
        let input_rank = if input_rank == -1 { inferred } else { input_rank };
        ensure!(
            input_rank == inferred && inferred >= -1 && (inferred >= 0 || dims.rank() > 0),
            InvalidArgument,
            "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); \
             output_ragged_rank: {output_rank}, input_ragged_rank: {input_rank}, encoded_ragged: \
             {dims}"
        );
        let mut components = Vec::with_capacity(encoded.num_elements());
        for (i, value) in encoded.variants()?.iter().enumerate() {
            let ragged = Ragged::of(value, i)?;
            check_component(&ragged, input_rank.max(0) as usize, values, splits)?;
            components.push(ragged);
        }
        if dims.rank() == 0 {
            let Some(Ragged { splits, values, .. }) = components.pop() else {
                bail!(Internal, "a scalar has one element");
            };
            return set_outputs(ctx, splits.into_iter().chain([values]));
        }
        let mut outputs = uniform(ctx, splits, &dims)?;
        if input_rank < 0 {
            outputs.push(stacked(ctx, &components, values)?);
        } else {
            nest(ctx, splits, &components, input_rank as usize, &mut outputs)?;
            outputs.push(concatenated(ctx, &components, values)?);
        }
        set_outputs(ctx, outputs)
    })
}

fn check_component(ragged: &Ragged, rank: usize, values: DType, splits: DType) -> Result<()> {
    ensure!(
        ragged.splits.len() == rank,
        InvalidArgument,
        "Encoded input RaggedTensorVariant has ragged_rank={}. Expected ragged_rank={rank}.",
        ragged.splits.len()
    );
    ensure!(
        ragged.values.dtype() == values,
        InvalidArgument,
        "Expected values Tensor dtype: {values}, found: {}",
        ragged.values.dtype()
    );
    for tensor in &ragged.splits {
        ensure!(
            tensor.dtype() == splits && tensor.rank() == 1 && tensor.num_elements() > 0,
            InvalidArgument,
            "Expected row_splits to be a vector of {splits}, found {} of shape {}",
            tensor.dtype(),
            tensor.shape()
        );
    }
    Ok(())
}

/// Row splits of the dimensions of the variant tensor except the last.
fn uniform(ctx: &KernelContext<'_>, dtype: DType, dims: &Shape) -> Result<Vec<Tensor>> {
    let mut outputs = Vec::with_capacity(dims.rank() + 2);
    for pair in dims.windows(2) {
        // As in TensorFlow, the splits of a third dimension have a single row.
        let mut writer = SplitsWriter::new(ctx, dtype, pair[0])?;
        for row in 1..=pair[0] {
            writer.push(row * pair[1])?;
        }
        outputs.push(writer.finish());
    }
    Ok(outputs)
}

/// Appends the row splits of the concatenated components.
fn nest(
    ctx: &KernelContext<'_>,
    dtype: DType,
    components: &[Ragged],
    rank: usize,
    outputs: &mut Vec<Tensor>,
) -> Result<()> {
    let mut writer = SplitsWriter::new(ctx, dtype, components.len())?;
    let mut end = 0usize;
    for component in components {
        let rows = match component.splits.first() {
            Some(splits) => splits.num_elements() - 1,
            None => *component.values.shape().first().ok_or_else(|| {
                err!(InvalidArgument, "scalars cannot be the rows of a ragged tensor")
            })?,
        };
        end = end.saturating_add(rows);
        writer.push(end)?;
    }
    outputs.push(writer.finish());
    for level in 0..rank {
        let rows = components.iter().map(|c| c.splits[level].num_elements() - 1).sum();
        let mut writer = SplitsWriter::new(ctx, dtype, rows)?;
        let mut offset = 0usize;
        for component in components {
            let splits = Splits::of(&component.splits[level])?;
            for row in 1..=splits.rows {
                writer.push(offset.saturating_add(splits.start(row)))?;
            }
            offset = offset.saturating_add(splits.end());
        }
        outputs.push(writer.finish());
    }
    Ok(())
}

/// Copies the values of all components, concatenated.
fn copy_values(components: &[Ragged], output: &mut Tensor) -> Result<()> {
    with_cell!(output.dtype(), C => {
        let mut rest = C::view_mut(output)?;
        for component in components {
            let from = C::view(&component.values)?;
            let (to, after) = rest.split_at_mut(from.len());
            to.clone_from_slice(from);
            rest = after;
        }
    });
    Ok(())
}

/// The values of all components, concatenated along their first dimension.
fn concatenated(ctx: &KernelContext<'_>, components: &[Ragged], dtype: DType) -> Result<Tensor> {
    let mut dims: SmallVec<[usize; 6]> = match components.first() {
        Some(first) => first.values.shape()[..].into(),
        None => smallvec::smallvec![0],
    };
    let mut rows = 0usize;
    for component in components {
        let shape = component.values.shape();
        ensure!(
            !shape.is_empty() && shape[1..] == dims[1..],
            InvalidArgument,
            "All flat_values must have compatible shapes. Shape {shape} does not go with {:?}",
            &dims[..]
        );
        rows = rows.saturating_add(shape[0]);
    }
    dims[0] = rows;
    let mut output = blank(ctx, dtype, Shape::new(&dims)?)?;
    copy_values(components, &mut output)?;
    Ok(output)
}

/// The values of all components, which have one shape, stacked along a new first dimension.
fn stacked(ctx: &KernelContext<'_>, components: &[Ragged], dtype: DType) -> Result<Tensor> {
    let mut dims: SmallVec<[usize; 6]> = smallvec::smallvec![components.len()];
    if let Some(first) = components.first() {
        dims.extend_from_slice(first.values.shape());
    }
    for component in components {
        let shape = component.values.shape();
        ensure!(
            shape[..] == dims[1..],
            InvalidArgument,
            "All flat_values must have compatible shapes. Shape {shape} does not go with {:?}",
            &dims[1..]
        );
    }
    let mut output = blank(ctx, dtype, Shape::new(&dims)?)?;
    copy_values(components, &mut output)?;
    Ok(output)
}

fn to_variant_gradient_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.shape_from_input(2)?);
    Ok(())
}

fn to_variant_gradient(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let dtype = init.attrs().dtype("Tvalues")?;
    AnyKernel::new(move |ctx| {
        let (grads, splits) = (ctx.input(0)?, ctx.input(1)?);
        let shape = ctx.shape_input(2, "dense_values_shape")?;
        let rows = match splits.rank() {
            0 => None,
            _ => Some(Splits::of(splits)?),
        };
        let inner: usize = shape.iter().skip(1).product();
        let mut output = Tensor::zeros_in(dtype, shape, Some(ctx.budget()))?;
        let mut at = 0usize;
        for (i, value) in grads.variants()?.iter().enumerate() {
            let Some(_) = value else {
                // A row without a gradient is zero.
                if let Some(rows) = rows.filter(|rows| i < rows.rows) {
                    let len = rows.start(i + 1) - rows.start(i);
                    at = at.saturating_add(len.saturating_mul(inner));
                }
                continue;
            };
            let values = Ragged::of(value, i)?.values;
            ensure!(
                values.dtype() == dtype,
                InvalidArgument,
                "Expected values Tensor dtype: {dtype}, found: {}",
                values.dtype()
            );
            with_cell!(dtype, C => {
                let from = C::view(&values)?;
                let to = C::view_mut(&mut output)?.get_mut(at..).and_then(|t| t.get_mut(..from.len()));
                to.ok_or_else(|| {
                    err!(InvalidArgument, "the gradients have more values than dense_values_shape")
                })?
                .clone_from_slice(from);
            });
            at = at.saturating_add(values.num_elements());
        }
        ctx.set_output(0, output)
    })
}
