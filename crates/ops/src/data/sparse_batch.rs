//! `DenseToSparseBatchDataset`: batches as sparse tensors, whose elements may differ in size.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{Budget, DType, Result, Shape, Tensor, bail, ensure};

use super::batch::{BatchIterator, batches, checked_size};
use super::dataset::{Iterate, Next, Source, Transform, YieldBudget, transformation};
use super::element::{Element, GatheredElements};
use super::scope::Scope;
use crate::cells::Cell;
use crate::sparse::serialize::as_variants;

pub(crate) static FAMILY: Family = Family {
    ops: &[DENSE_TO_SPARSE_BATCH_DATASET, EXPERIMENTAL_DENSE_TO_SPARSE_BATCH_DATASET],
    kernels: &[
        KernelSpec { op: "DenseToSparseBatchDataset", create: sparse_batch, ..KernelSpec::CPU },
        KernelSpec {
            op: "ExperimentalDenseToSparseBatchDataset",
            create: sparse_batch,
            ..KernelSpec::CPU
        },
    ],
};

const DENSE_TO_SPARSE_BATCH_DATASET: OpDef = OpDef::new("DenseToSparseBatchDataset", shape::scalar);

const EXPERIMENTAL_DENSE_TO_SPARSE_BATCH_DATASET: OpDef =
    OpDef { name: "ExperimentalDenseToSparseBatchDataset", ..DENSE_TO_SPARSE_BATCH_DATASET };

/// `DenseToSparseBatchDataset`: tensors of one rank as rows of a sparse tensor.
struct SparseBatchDataset {
    size: usize,
    /// The row shape; `None` for the largest size in the batch.
    row: Arc<[Option<usize>]>,
}

fn sparse_batch(init: &KernelInit<'_>) -> Result<AnyKernel> {
    transformation(init, |ctx, input, spec| {
        let size = checked_size(ctx.scalar_int(1, "batch_size")?)?;
        ensure!(ctx.input(2)?.rank() == 1, InvalidArgument, "row_shape must be a vector");
        let known = |size: i64| match (size, usize::try_from(size)) {
            (-1, _) => Ok(None),
            (_, Ok(size)) => Ok(Some(size)),
            _ => bail!(InvalidArgument, "Dimension {size} of row_shape must be >= -1"),
        };
        let row = ctx.ints(2, "row_shape")?.into_iter().map(known).collect::<Result<_>>()?;
        let components = input.spec().dtypes.len();
        ensure!(
            components == 1,
            InvalidArgument,
            "DenseToSparseDataset only supports inputs with a single component, got {components}"
        );
        input.then(spec, SparseBatchDataset { size, row })
    })
}

impl Transform for SparseBatchDataset {
    fn cardinality(&self, input: &Source) -> i64 {
        batches(input.cardinality(), self.size, false)
    }

    fn iterate(&self, input: &Source, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let row = self.row.clone();
        let input = Box::new(RowShapeIterator { input: input.iterate(scope)?, row: row.clone() });
        Ok(Box::new(BatchIterator {
            input: Some(input),
            size: self.size,
            drops_remainder: false,
            continues_after_error: false,
            gathered: GatheredElements::new(&scope.budget),
            failed: 0,
            error: None,
            scope: scope.clone(),
            yield_budget: YieldBudget::default(),
            stack: Box::new(move |elements: &mut [Element], budget: &Arc<Budget>| {
                sparse(elements, &row, budget)
            }),
        }))
    }
}

/// Iterator over elements that fit the row shape, with an error for each that does not.
struct RowShapeIterator {
    input: Box<dyn Iterate>,
    row: Arc<[Option<usize>]>,
}

impl Iterate for RowShapeIterator {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        let next = ready!(self.input.poll_next(cx))?;
        Poll::Ready(match next {
            Some(element) => check_fits(&element, &self.row).map(|()| Some(element)),
            None => Ok(None),
        })
    }
}

fn check_fits(element: &[Tensor], row: &[Option<usize>]) -> Result<()> {
    let [tensor] = element else {
        bail!(InvalidArgument, "an element has {} components, not one", element.len());
    };
    ensure!(
        tensor.rank() == row.len(),
        InvalidArgument,
        "Input element had shape {} that is incompatible with the row shape of rank {}",
        tensor.shape(),
        row.len()
    );
    let mut sizes = tensor.shape().iter().zip(row);
    ensure!(
        sizes.all(|(&size, limit)| limit.is_none_or(|limit| size <= limit)),
        DataLoss,
        "Input element had shape {} that is larger than the row shape",
        tensor.shape()
    );
    Ok(())
}

fn sparse(elements: &[Element], row: &[Option<usize>], budget: &Arc<Budget>) -> Result<Element> {
    let mut sizes: Vec<usize> = row.iter().map(|size| size.unwrap_or(0)).collect();
    for element in elements {
        for (target, &size) in sizes.iter_mut().zip(element[0].shape().iter()) {
            *target = size.max(*target);
        }
    }
    let Some(first) = elements.first() else { bail!(Internal, "an empty batch") };
    let dtype = first[0].dtype();
    let rank = row.len() + 1;
    let total = elements.iter().map(|element| element[0].num_elements()).sum();
    let mut indices = Tensor::allocate(DType::Int64, Shape::new(&[total, rank])?, Some(budget))?;
    let mut values = Tensor::blank_in(dtype, Shape::new(&[total])?, Some(budget))?;
    with_cell!(dtype, C => {
        let mut target = <C as Cell>::view_mut(&mut values)?;
        for element in elements {
            let source = <C as Cell>::view(&element[0])?;
            let (head, rest) = target.split_at_mut(source.len());
            head.clone_from_slice(source);
            target = rest;
        }
    });
    let mut places = indices.as_mut_slice::<i64>()?.chunks_exact_mut(rank);
    for (number, element) in elements.iter().enumerate() {
        let tensor = &element[0];
        for at in 0..tensor.num_elements() {
            let Some(place) = places.next() else {
                bail!(Internal, "there are more values than were counted")
            };
            let mut rest = at;
            for (index, &size) in place[1..].iter_mut().zip(tensor.shape().iter()).rev() {
                *index = (rest % size) as i64;
                rest /= size;
            }
            place[0] = number as i64;
        }
    }
    let mut shape = vec![elements.len() as i64];
    shape.extend(sizes.iter().map(|&size| size as i64));
    Ok(Element::from_iter([as_variants(vec![indices, values, Tensor::vector(&shape)?], budget)?]))
}
