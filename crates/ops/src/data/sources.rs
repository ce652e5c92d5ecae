//! Source datasets: tensors, slices, ranges, random numbers.

use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::smallvec;
use thalweg_graph::{OpDef, shape};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    DType, PartialShape, Result, Shape, Tensor, bail, bf16, check_nesting, ensure, f16,
};

use super::dataset::{Dataset, INFINITE, Iterate, Next, Source, dataset_kernel};
use super::element::{Element, Spec, slice};
use super::scope::Scope;
use super::seeds::{SeedGenerator, input_seeds, seed_generator};
use crate::math::random::philox::{Philox, Samples};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("TensorDataset", shape::scalar),
        OpDef::new("TensorSliceDataset", shape::scalar),
        OpDef::new("SparseTensorSliceDataset", shape::scalar),
        OpDef::new("RangeDataset", shape::scalar),
        RANDOM_DATASET,
        EXPERIMENTAL_RANDOM_DATASET,
        OpDef::new("RandomDatasetV2", shape::scalar),
    ],
    kernels: &[
        KernelSpec { op: "TensorDataset", create: tensors, ..KernelSpec::CPU },
        KernelSpec { op: "TensorSliceDataset", create: slices, ..KernelSpec::CPU },
        KernelSpec { op: "SparseTensorSliceDataset", create: sparse_slices, ..KernelSpec::CPU },
        KernelSpec { op: "RangeDataset", create: range, ..KernelSpec::CPU },
        KernelSpec { op: "RandomDataset", create: random, ..KernelSpec::CPU },
        KernelSpec { op: "ExperimentalRandomDataset", create: random, ..KernelSpec::CPU },
        KernelSpec { op: "RandomDatasetV2", create: random, ..KernelSpec::CPU },
    ],
};

const RANDOM_DATASET: OpDef = OpDef::new("RandomDataset", shape::scalar);

const EXPERIMENTAL_RANDOM_DATASET: OpDef =
    OpDef { name: "ExperimentalRandomDataset", ..RANDOM_DATASET };

fn all_inputs(ctx: &KernelContext<'_>) -> Result<Element> {
    (0..ctx.num_inputs()).map(|i| ctx.input(i).cloned()).collect()
}

/// The spec of whole tensors (`dims_cut` 0) or of their slices (1).
fn spec_of(components: &[Tensor], dims_cut: usize) -> Result<Spec> {
    let shape = |t: &Tensor| PartialShape::new(t.shape()[dims_cut..].iter().map(|&d| Some(d)));
    Spec::new(
        components.iter().map(Tensor::dtype).collect::<Vec<_>>(),
        components.iter().map(shape).collect::<Vec<_>>(),
    )
}

/// Maximum nesting depth of datasets in the tensors; other variants are limited to the same depth.
fn depth_of(components: &[Tensor]) -> Result<usize> {
    let mut depth = 0;
    for tensor in components {
        check_nesting(tensor)?;
        if tensor.dtype() == DType::Variant {
            depth = tensor.variants()?.iter().map(Source::depth_in).max().unwrap_or(0).max(depth);
        }
    }
    Ok(depth)
}

/// `TensorDataset`: a single element with these tensors.
struct TensorDataset {
    components: Element,
    spec: Spec,
}

fn tensors(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| {
        let dataset = tensor_dataset(all_inputs(ctx)?)?;
        declared.check_accepts(dataset.spec())?;
        Ok(dataset)
    })
}

/// A `TensorDataset`.
pub(crate) fn tensor_dataset(components: Element) -> Result<Source> {
    let (spec, depth) = (spec_of(&components, 0)?, depth_of(&components)?);
    Source::new(TensorDataset { components, spec }, depth)
}

impl Dataset for TensorDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        1
    }

    fn iterate(&self, _: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(SingleElementIterator(Some(self.components.clone()))))
    }
}

struct SingleElementIterator(Option<Element>);

impl Iterate for SingleElementIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        Poll::Ready(Ok(self.0.take()))
    }
}

/// `TensorSliceDataset`: an element for each index of the tensors' first dimension.
struct TensorSliceDataset {
    components: Element,
    count: usize,
    spec: Spec,
}

fn slices(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| {
        let dataset = slices_of(all_inputs(ctx)?)?;
        declared.check_accepts(dataset.spec())?;
        Ok(dataset)
    })
}

/// A `TensorSliceDataset`.
pub(crate) fn slices_of(components: Element) -> Result<Source> {
    let first = components.first().map(|t| t.shape().clone());
    let count = match first.as_ref().and_then(|shape| shape.first()) {
        Some(&count) => count,
        None => bail!(InvalidArgument, "All components must be at least 1-dimensional"),
    };
    for tensor in &components {
        ensure!(
            tensor.rank() > 0,
            InvalidArgument,
            "All components must be at least 1-dimensional"
        );
        ensure!(
            tensor.shape()[0] == count,
            InvalidArgument,
            "All components must have the same size in the 0th dimension"
        );
    }
    let (spec, depth) = (spec_of(&components, 1)?, depth_of(&components)?);
    Source::new(TensorSliceDataset { components, count, spec }, depth)
}

impl Dataset for TensorSliceDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.count as i64
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(TensorSliceIterator {
            components: self.components.clone(),
            next: 0,
            count: self.count,
            scope: scope.clone(),
        }))
    }
}

struct TensorSliceIterator {
    components: Element,
    next: usize,
    count: usize,
    scope: Arc<Scope>,
}

impl Iterate for TensorSliceIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        if self.next >= self.count {
            return Poll::Ready(Ok(None));
        }
        let i = self.next;
        self.next += 1;
        let cut = |t: &Tensor| slice(t, i, &self.scope.budget);
        Poll::Ready(self.components.iter().map(cut).collect::<Result<Element>>().map(Some))
    }
}

/// `SparseTensorSliceDataset`: a sparse tensor for each index of the first dimension.
struct SparseTensorSliceDataset {
    indices: Tensor,
    values: Tensor,
    /// Dense shape of the slices.
    shape: Tensor,
    rank: usize,
    count: i64,
    spec: Spec,
}

fn sparse_slices(_: &KernelInit<'_>) -> Result<AnyKernel> {
    dataset_kernel(|ctx| {
        let (indices, values, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        ensure!(
            indices.rank() == 2,
            InvalidArgument,
            "Input indices must be a matrix. Got: {}",
            indices.shape()
        );
        ensure!(
            values.rank() == 1,
            InvalidArgument,
            "Input values must be a vector. Got: {}",
            values.shape()
        );
        ensure!(
            shape.rank() == 1,
            InvalidArgument,
            "Input shape must be a vector. Got: {}",
            shape.shape()
        );
        let (entries, rank) = (indices.shape()[0], indices.shape()[1]);
        ensure!(
            values.shape()[0] == entries,
            InvalidArgument,
            "Number of values must match first dimension of indices. Got {} values, indices shape: {}",
            values.shape()[0],
            indices.shape()
        );
        ensure!(
            shape.shape()[0] == rank,
            InvalidArgument,
            "Number of dimensions must match second dimension of indices. Got {} dimensions, indices shape: {}",
            shape.shape()[0],
            indices.shape()
        );
        ensure!(rank > 0, InvalidArgument, "The shape argument requires at least one element.");
        let sizes = Shape::from_i64(shape.as_slice()?)?;
        check_sparse(indices.as_slice()?, rank)?;
        let spec = Spec::new(
            vec![DType::Int64, values.dtype(), DType::Int64],
            vec![
                PartialShape::new([None, Some(rank - 1)]),
                PartialShape::new([None]),
                PartialShape::new([Some(rank - 1)]),
            ],
        )?;
        let dataset = SparseTensorSliceDataset {
            indices: indices.clone(),
            values: values.clone(),
            shape: shape.rows(1, rank - 1, None)?,
            rank,
            count: sizes[0] as i64,
            spec,
        };
        Source::new(dataset, 0)
    })
}

/// The entries of a slice must be consecutive. Their bounds are not checked here.
fn check_sparse(indices: &[i64], rank: usize) -> Result<()> {
    let is_sorted = indices.chunks_exact(rank).is_sorted_by_key(|index| index[0]);
    ensure!(
        is_sorted,
        Unimplemented,
        "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered input is not currently supported."
    );
    Ok(())
}

impl Dataset for SparseTensorSliceDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.count
    }

    fn iterate(&self, scope: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(SparseTensorSliceIterator {
            indices: self.indices.clone(),
            values: self.values.clone(),
            shape: self.shape.clone(),
            rank: self.rank,
            count: self.count,
            next: 0,
            used: 0,
            scope: scope.clone(),
        }))
    }
}

struct SparseTensorSliceIterator {
    indices: Tensor,
    values: Tensor,
    shape: Tensor,
    rank: usize,
    count: i64,
    next: i64,
    /// Number of entries in earlier slices.
    used: usize,
    scope: Arc<Scope>,
}

impl Iterate for SparseTensorSliceIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        if self.next >= self.count {
            return Poll::Ready(Ok(None));
        }
        let all = self.indices.as_slice::<i64>()?;
        let own = all[self.used * self.rank..]
            .chunks_exact(self.rank)
            .take_while(|index| index[0] == self.next)
            .count();
        let shape = Shape::new(&[own, self.rank - 1])?;
        let mut indices = Tensor::allocate(DType::Int64, shape, Some(&self.scope.budget))?;
        let rows = all[self.used * self.rank..].chunks_exact(self.rank).take(own);
        let target = indices.as_mut_slice::<i64>()?;
        for (target, row) in target.chunks_exact_mut((self.rank - 1).max(1)).zip(rows) {
            target.copy_from_slice(&row[1..]);
        }
        let values = self.values.rows(self.used, own, Some(&self.scope.budget))?;
        self.used += own;
        self.next += 1;
        Poll::Ready(Ok(Some(smallvec![indices, values, self.shape.clone()])))
    }
}

/// `RangeDataset`.
struct RangeDataset {
    start: i64,
    step: i64,
    count: u64,
    dtype: DType,
    spec: Spec,
}

fn range(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let declared = Spec::of(init.attrs())?;
    dataset_kernel(move |ctx| {
        let start = ctx.scalar_int(0, "start")?;
        let stop = ctx.scalar_int(1, "stop")?;
        let step = ctx.scalar_int(2, "step")?;
        ensure!(declared.dtypes.len() == 1, InvalidArgument, "a range has one component");
        numbers(start, stop, step, declared.dtypes[0])
    })
}

/// A `RangeDataset` from `start` up to but excluding `stop`.
pub(crate) fn numbers(start: i64, stop: i64, step: i64, dtype: DType) -> Result<Source> {
    ensure!(step != 0, InvalidArgument, "step must be a non-zero integer.");
    number(0, dtype)?;
    let distance = if step > 0 {
        i128::from(stop) - i128::from(start)
    } else {
        i128::from(start) - i128::from(stop)
    };
    let step_size = i128::from(step).abs();
    let count = if distance <= 0 { 0 } else { (distance + step_size - 1) / step_size };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    Source::new(RangeDataset { start, step, count, dtype, spec: Spec::scalars(dtype) }, 0)
}

impl Dataset for RangeDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        i64::try_from(self.count).unwrap_or(i64::MAX)
    }

    fn iterate(&self, _: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        Ok(Box::new(RangeIterator {
            next: self.start,
            step: self.step,
            left: self.count,
            dtype: self.dtype,
        }))
    }
}

struct RangeIterator {
    next: i64,
    step: i64,
    left: u64,
    dtype: DType,
}

impl Iterate for RangeIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let value = number(self.next, self.dtype)?;
        self.left -= 1;
        self.next = self.next.wrapping_add(self.step);
        Poll::Ready(Ok(Some(smallvec![value])))
    }
}

/// An integer as a scalar of a dtype.
fn number(value: i64, dtype: DType) -> Result<Tensor> {
    Ok(match dtype {
        DType::Int8 => Tensor::scalar(value as i8),
        DType::Int16 => Tensor::scalar(value as i16),
        DType::Int32 => Tensor::scalar(value as i32),
        DType::Int64 => Tensor::scalar(value),
        DType::UInt8 => Tensor::scalar(value as u8),
        DType::UInt16 => Tensor::scalar(value as u16),
        DType::UInt32 => Tensor::scalar(value as u32),
        DType::UInt64 => Tensor::scalar(value as u64),
        DType::Float => Tensor::scalar(value as f32),
        DType::Double => Tensor::scalar(value as f64),
        DType::Half => Tensor::scalar(f16::from_f32(value as f32)),
        DType::BFloat16 => Tensor::scalar(bf16::from_f32(value as f32)),
        other => bail!(InvalidArgument, "Unsupported data type: {other}"),
    })
}

/// `RandomDataset`: an infinite sequence of random numbers.
struct RandomDataset {
    seeds: Arc<SeedGenerator>,
    spec: Spec,
}

fn random(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let rerandomizes = init.attrs().get("rerandomize_each_iteration").is_some()
        && init.attrs().bool("rerandomize_each_iteration")?;
    dataset_kernel(move |ctx| {
        let seeds = input_seeds(ctx, 0)?;
        let seeds = seed_generator(ctx, 2, seeds, rerandomizes)?;
        Source::new(RandomDataset { seeds, spec: Spec::scalars(DType::Int64) }, 0)
    })
}

impl Dataset for RandomDataset {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn rewind(&self) {
        self.seeds.rewind();
    }

    fn cardinality(&self) -> i64 {
        INFINITE
    }

    fn iterate(&self, _: &Arc<Scope>) -> Result<Box<dyn Iterate>> {
        let (seed, seed2) = self.seeds.generate();
        Ok(Box::new(RandomIterator(Samples::new(Philox::from_seeds(seed, seed2)))))
    }
}

struct RandomIterator(Samples);

impl Iterate for RandomIterator {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Next {
        Poll::Ready(Ok(Some(smallvec![Tensor::scalar(i64::from(self.0.next_u32()))])))
    }
}
