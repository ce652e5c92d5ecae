//! `PaddedBatchDataset`: batches of elements padded to one shape.

use std::sync::Arc;

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{Budget, Result, Shape, Tensor, bail, ensure};

use super::batch::{BatchIterator, batches, checked_size};
use super::dataset::{Iterate, Source, Transform, YieldBudget, flag_input, transformation};
use super::element::{Element, GatheredElements};
use super::scope::Scope;
use crate::cells::{Cell, fill};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("PaddedBatchDataset", shape::scalar),
        OpDef::new("PaddedBatchDatasetV2", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "PaddedBatchDataset", create: padded_batch, ..KernelSpec::CPU },
        KernelSpec { op: "PaddedBatchDatasetV2", create: padded_batch, ..KernelSpec::CPU },
    ],
};

/// Padded shape of a component (`None`: the largest size in the batch) and padding value.
struct Padding {
    sizes: Vec<Option<usize>>,
    value: Tensor,
}

/// `PaddedBatchDataset`: elements padded to a common shape and stacked.
pub(crate) struct PaddedBatchDataset {
    size: usize,
    drops_remainder: bool,
    /// `None` pads every component with zeros to the largest size in the batch.
    paddings: Option<Arc<[Padding]>>,
}

impl PaddedBatchDataset {
    /// Pads elements with zeros to the largest shape in their batch.
    pub(crate) fn to_largest(size: usize) -> PaddedBatchDataset {
        PaddedBatchDataset { size, drops_remainder: false, paddings: None }
    }
}

/// Padding with zeros to the largest size in the batch.
fn default_paddings(elements: &[Element]) -> Result<Arc<[Padding]>> {
    let Some(first) = elements.first() else { bail!(Internal, "an empty batch") };
    let padding = |tensor: &Tensor| {
        let value = Tensor::zeros(tensor.dtype(), Shape::scalar())?;
        Ok(Padding { sizes: vec![None; tensor.rank()], value })
    };
    first.iter().map(padding).collect()
}

fn padded_batch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let drop_input = init.node.input_range("drop_remainder").ok().map(|range| range.start);
    transformation(init, move |ctx, input, spec| {
        let size = checked_size(ctx.scalar_int(1, "batch_size")?)?;
        let drops_remainder = match drop_input {
            Some(i) => flag_input(ctx, i, "drop_remainder")?,
            None => false,
        };
        let paddings = Some(paddings(ctx, &input)?);
        input.then(spec, PaddedBatchDataset { size, drops_remainder, paddings })
    })
}

fn paddings(ctx: &KernelContext<'_>, input: &Source) -> Result<Arc<[Padding]>> {
    let (shapes, values) = (ctx.input_range("padded_shapes")?, ctx.input_range("padding_values")?);
    let dtypes = &input.spec().dtypes;
    ensure!(
        shapes.len() == dtypes.len(),
        InvalidArgument,
        "Number of padded shapes ({}) must match the number of components in the input dataset's elements ({})",
        shapes.len(),
        dtypes.len()
    );
    ensure!(
        values.len() == dtypes.len(),
        InvalidArgument,
        "Number of padding values ({}) must match the number of components in the input dataset's elements ({})",
        values.len(),
        dtypes.len()
    );
    shapes
        .zip(values)
        .zip(dtypes.iter())
        .map(|((shape, value), &dtype)| {
            ensure!(
                ctx.input(shape)?.rank() == 1,
                InvalidArgument,
                "All padded shapes must be vectors"
            );
            let mut sizes = Vec::new();
            for size in ctx.ints(shape, "padded_shapes")? {
                sizes.push(match size {
                    -1 => None,
                    size => match usize::try_from(size) {
                        Ok(size) => Some(size),
                        Err(_) => bail!(InvalidArgument, "a padded shape cannot have size {size}"),
                    },
                });
            }
            let value = ctx.input(value)?.clone();
            ensure!(value.rank() == 0, InvalidArgument, "All padding values must be scalars");
            ensure!(
                value.dtype() == dtype,
                InvalidArgument,
                "Mismatched type between padding value ({}) and input dataset's component type ({dtype})",
                value.dtype()
            );
            Ok(Padding { sizes, value })
        })
        .collect()
}

impl Transform for PaddedBatchDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        batches(input.cardinality(), self.size, self.drops_remainder)
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let paddings = self.paddings.clone();
        Ok(Box::new(BatchIterator {
            input: Some(input.iterate(scope)?),
            size: self.size,
            drops_remainder: self.drops_remainder,
            continues_after_error: false,
            gathered: GatheredElements::new(&scope.budget),
            failed: 0,
            error: None,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
            stack: Box::new(move |elements: &mut [Element], budget: &Arc<Budget>| {
                let elements = &*elements;
                let paddings = match &paddings {
                    Some(paddings) => paddings.clone(),
                    None => default_paddings(elements)?,
                };
                let component = |(i, padding)| padded_component(elements, i, padding, budget);
                paddings.iter().enumerate().map(component).collect::<Result<Element>>()
            }),
        }))
    }
}

fn padded_component(
    elements: &[Element],
    i: usize,
    padding: &Padding,
    budget: &Arc<Budget>,
) -> Result<Tensor> {
    let mut dims = vec![elements.len()];
    dims.extend(padding.sizes.iter().map(|size| size.unwrap_or(0)));
    for element in elements {
        let Some(tensor) = element.get(i) else {
            bail!(InvalidArgument, "an element of the batch has no component {i}");
        };
        ensure!(
            tensor.dtype() == padding.value.dtype(),
            InvalidArgument,
            "component {i} is {}, its padding {}",
            tensor.dtype(),
            padding.value.dtype()
        );
        ensure!(
            tensor.rank() == padding.sizes.len(),
            InvalidArgument,
            "All elements in a batch must have the same rank as the padded shape for component{i}: expected rank {} but got element with rank {}",
            padding.sizes.len(),
            tensor.rank()
        );
        for ((target, padded), &size) in
            dims[1..].iter_mut().zip(&padding.sizes).zip(tensor.shape().iter())
        {
            ensure!(
                padded.is_none_or(|padded| size <= padded),
                DataLoss,
                "Attempted to pad to a smaller size than the input element."
            );
            *target = size.max(*target);
        }
    }
    let mut batch = Tensor::blank_in(padding.value.dtype(), Shape::new(&dims)?, Some(budget))?;
    with_cell!(padding.value.dtype(), C => {
        let cells = <C as Cell>::view_mut(&mut batch)?;
        if let [value] = <C as Cell>::view(&padding.value)? {
            fill(cells, value);
        }
        let row: usize = dims[1..].iter().product();
        for (target, element) in cells.chunks_exact_mut(row.max(1)).zip(elements) {
            let tensor = &element[i];
            place(target, &dims[1..], <C as Cell>::view(tensor)?, tensor.shape());
        }
    });
    Ok(batch)
}

/// Copies an array to the origin of a larger one.
fn place<C: Cell>(target: &mut [C], target_dims: &[usize], source: &[C], source_dims: &[usize]) {
    let (Some(&wide), Some(&narrow)) = (target_dims.last(), source_dims.last()) else {
        return target.clone_from_slice(source);
    };
    if source.is_empty() {
        return;
    }
    let outer = source_dims.len() - 1;
    let mut index = vec![0; outer];
    for run in source.chunks_exact(narrow) {
        let row = index.iter().zip(target_dims).fold(0, |row, (&at, &size)| row * size + at);
        target[row * wide..row * wide + narrow].clone_from_slice(run);
        for (at, &size) in index.iter_mut().zip(source_dims).rev() {
            *at += 1;
            if *at < size {
                break;
            }
            *at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Bits;

    #[test]
    fn corners() {
        let source = Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1, 2, 3, 4]).unwrap();
        let mut target = Tensor::zeros(source.dtype(), Shape::new(&[3, 3]).unwrap()).unwrap();
        let cells = Bits::<4>::view_mut(&mut target).unwrap();
        place(cells, &[3, 3], Bits::<4>::view(&source).unwrap(), &[2, 2]);
        assert_eq!(target.as_slice::<i32>().unwrap(), [1, 2, 0, 3, 4, 0, 0, 0, 0]);
    }
}
