//! Feature lists of serialized `SequenceExample` messages, as tensors.

use thalweg_formats::wire::{Content, Fields};
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Bytes, DType, Result, Shape, Tensor, ensure};

use super::features::{
    List, Value, Wanted, fill, for_each_entry, index, offsets, read_list, table,
};
use super::outputs::{Batch, Forms, split_tensor};
use crate::split::for_each_rows;
use crate::strings::text::FirstError;

/// A feature list found in a message.
#[derive(Clone, Copy, Default)]
struct Steps<'a> {
    /// Bytes of the `FeatureList`.
    body: &'a [u8],
    is_present: bool,
    /// Number of steps, of all values, and of values in the longest step.
    steps: usize,
    values: usize,
    longest: usize,
}

impl<'a> Steps<'a> {
    /// The value list of each step.
    fn lists(self, dtype: DType) -> impl Iterator<Item = Result<List<'a>>> {
        Fields::new(self.body).filter_map(move |field| match field {
            Ok((1, Content::Bytes(feature))) => Some(read_list(feature, dtype)),
            Ok(_) => None,
            Err(e) => Some(Err(e)),
        })
    }

    /// Counts steps and values; every step of a dense feature must have `exact` values.
    fn measure(&mut self, dtype: DType, exact: Option<usize>) -> Result<()> {
        for list in self.lists(dtype) {
            let list = list?;
            ensure!(
                exact.is_none_or(|n| list.is_present && n == list.count),
                InvalidArgument,
                "step {} has {} values, not the {} of its shape",
                self.steps,
                list.count,
                exact.unwrap_or(0)
            );
            self.steps += 1;
            self.values += list.count;
            self.longest = self.longest.max(list.count);
        }
        Ok(())
    }
}

/// The feature lists that an op requests, and its options for missing ones.
pub(super) struct WantedSteps<'a> {
    pub(super) forms: &'a Forms,
    pub(super) wanted: &'a [Wanted],
    /// For each dense feature list, whether it may be missing.
    pub(super) may_miss: &'a [bool],
    /// Whether the lengths of dense feature lists are outputs.
    pub(super) has_lengths: bool,
}

impl WantedSteps<'_> {
    /// If feature list `i` is dense: the elements of one step, and whether it may be missing.
    fn dense(&self, i: usize) -> Option<(usize, bool)> {
        let d = i.checked_sub(self.forms.sparse.len())?;
        let (_, row) = self.forms.dense.get(d)?;
        Some((row.stride, self.may_miss.get(d).copied().unwrap_or(false)))
    }

    fn find<'a>(&self, ctx: &KernelContext<'_>, batch: &Batch<'a>) -> Result<Vec<Steps<'a>>> {
        let width = self.wanted.len();
        let mut found: Vec<Steps<'a>> = table(ctx, batch.examples.len(), width)?;
        let (index, failure) = (index(self.wanted), FirstError::new());
        for_each_rows(ctx, &mut found, width, 1000.0 * width as f64, |first, rows| {
            for (i, row) in rows.chunks_exact_mut(width).enumerate() {
                let example = &batch.examples[first + i][..];
                let located = for_each_entry(example, 2, |key, body| {
                    index.for_each(key, |i| {
                        row[i] = Steps { body, is_present: true, ..Default::default() };
                    });
                    Ok(())
                });
                if let Err(e) = located.and_then(|()| self.measure(row)) {
                    let name = batch.names.of(first + i);
                    failure.note(first + i, e.map_message(|m| format!("Name: {name}, {m}")));
                }
            }
        })?;
        failure.check()?;
        Ok(found)
    }

    fn measure(&self, row: &mut [Steps<'_>]) -> Result<()> {
        for (i, (steps, wanted)) in row.iter_mut().zip(self.wanted).enumerate() {
            let key = || String::from_utf8_lossy(&wanted.key);
            let dense = self.dense(i);
            ensure!(
                steps.is_present || dense.is_none_or(|(_, may_miss)| may_miss),
                InvalidArgument,
                "Feature list '{}' is required but could not be found; \
                 feature_list_dense_missing_assumed_empty says which may be missing",
                key()
            );
            steps
                .measure(wanted.dtype, dense.map(|(stride, _)| stride))
                .map_err(|e| e.map_message(|m| format!("Feature list '{}': {m}", key())))?;
        }
        Ok(())
    }
}

/// The feature lists of one name in all examples.
struct Column<'a> {
    batch: &'a Batch<'a>,
    table: &'a [Steps<'a>],
    width: usize,
    at: usize,
    dtype: DType,
}

impl<'a> Column<'a> {
    fn steps(&self, example: usize) -> &Steps<'a> {
        &self.table[example * self.width + self.at]
    }

    fn all(&self) -> impl ExactSizeIterator<Item = &Steps<'a>> + '_ {
        (0..self.batch.examples.len()).map(|i| self.steps(i))
    }

    fn max_steps(&self) -> usize {
        self.all().map(|s| s.steps).max().unwrap_or(0)
    }

    /// Decodes the values of every example into its part of a new tensor.
    fn values(
        &self,
        ctx: &KernelContext<'_>,
        shape: Shape,
        range_of: impl Fn(usize) -> std::ops::Range<usize> + Sync,
    ) -> Result<Tensor> {
        let mut output = ctx.zeros(self.dtype, shape)?;
        match self.dtype {
            DType::Float => self.fill_values::<f32>(ctx, &mut output, range_of)?,
            DType::Int64 => self.fill_values::<i64>(ctx, &mut output, range_of)?,
            _ => self.fill_values::<Bytes>(ctx, &mut output, range_of)?,
        }
        Ok(output)
    }

    fn fill_values<T: Value>(
        &self,
        ctx: &KernelContext<'_>,
        output: &mut Tensor,
        range_of: impl Fn(usize) -> std::ops::Range<usize> + Sync,
    ) -> Result<()> {
        let examples = self.batch.examples;
        fill(ctx, output, examples.len(), range_of, |i, mut part: &mut [T]| {
            for list in self.steps(i).lists(self.dtype) {
                let list = list?;
                let (values, rest) = part.split_at_mut(list.count);
                T::decode(list.body, &examples[i], ctx.budget(), values)?;
                part = rest;
            }
            Ok(())
        })
    }

    fn sparse(&self, ctx: &KernelContext<'_>) -> Result<[Tensor; 3]> {
        let ends = offsets(ctx, self.all().map(|s| s.values))?;
        let total = ends.last().copied().unwrap_or(0);
        let values = self.values(ctx, Shape::new(&[total])?, |i| ends[i]..ends[i + 1])?;
        let rank = if self.batch.is_batch { 3 } else { 2 };
        let mut indices = ctx.zeros(DType::Int64, Shape::new(&[total, rank])?)?;
        let range = |i: usize| ends[i] * rank..ends[i + 1] * rank;
        fill(ctx, &mut indices, self.batch.examples.len(), range, |i, part: &mut [i64]| {
            let mut slots = part.chunks_exact_mut(rank);
            for (step, list) in self.steps(i).lists(self.dtype).enumerate() {
                for (k, slot) in (0..list?.count).zip(&mut slots) {
                    slot[0] = i as i64;
                    slot[rank - 2] = step as i64;
                    slot[rank - 1] = k as i64;
                }
            }
            Ok(())
        })?;
        let mut shape = self.batch.dims();
        shape.extend([self.max_steps(), self.all().map(|s| s.longest).max().unwrap_or(0)]);
        let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        Ok([indices, values, Tensor::vector(&shape)?])
    }

    /// Values, zero-padded to the longest list, and lengths.
    fn dense(&self, ctx: &KernelContext<'_>, dims: &Shape, stride: usize) -> Result<[Tensor; 2]> {
        let length = self.max_steps();
        let mut shape = self.batch.dims();
        shape.push(length);
        shape.extend_from_slice(dims.dims());
        let row = length * stride;
        let values = self.values(ctx, Shape::new(&shape)?, |i| i * row..(i + 1) * row)?;
        let mut lengths = ctx.zeros(DType::Int64, Shape::new(&self.batch.dims())?)?;
        let slots = lengths.as_mut_slice::<i64>()?;
        slots.iter_mut().zip(self.all()).for_each(|(slot, s)| *slot = s.steps as i64);
        Ok([values, lengths])
    }

    /// Values, outer row splits (examples to steps) and inner row splits (steps to values).
    fn ragged(&self, ctx: &KernelContext<'_>, splits: DType) -> Result<[Tensor; 3]> {
        let ends = offsets(ctx, self.all().map(|s| s.values))?;
        let total = ends.last().copied().unwrap_or(0);
        let values = self.values(ctx, Shape::new(&[total])?, |i| ends[i]..ends[i + 1])?;
        let outer = offsets(ctx, self.all().map(|s| s.steps))?;
        let mut inner: Vec<usize> = table(ctx, outer.last().copied().unwrap_or(0) + 1, 1)?;
        let (mut end, mut slots) = (0, inner[1..].iter_mut());
        for steps in self.all() {
            for (list, slot) in steps.lists(self.dtype).zip(&mut slots) {
                end += list?.count;
                *slot = end;
            }
        }
        let outer = self.batch.splits(ctx, splits, &outer)?;
        Ok([values, outer, split_tensor(ctx, splits, &inner)?])
    }
}

/// Parses the feature lists of a batch and sets the outputs from `first` on: indices, values and
/// shapes of the sparse ones, values (and lengths) of the dense ones, values, outer and inner row
/// splits of the ragged ones.
pub(super) fn parse_steps(
    ctx: &mut KernelContext<'_>,
    batch: &Batch<'_>,
    wanted: &WantedSteps<'_>,
    first: usize,
) -> Result<()> {
    let found = wanted.find(ctx, batch)?;
    let column = |at: usize, dtype: DType| Column {
        batch,
        table: &found,
        width: wanted.wanted.len(),
        at,
        dtype,
    };
    let forms = wanted.forms;
    let (num_sparse, num_dense) = (forms.sparse.len(), forms.dense.len());
    let num_ragged = forms.ragged.len();
    for (s, &dtype) in forms.sparse.iter().enumerate() {
        for (k, tensor) in column(s, dtype).sparse(ctx)?.into_iter().enumerate() {
            ctx.set_output(first + k * num_sparse + s, tensor)?;
        }
    }
    let mut first = first + 3 * num_sparse;
    for (d, (dtype, row)) in forms.dense.iter().enumerate() {
        let shape = row.shape(&[], 0)?;
        let tensors = column(num_sparse + d, *dtype).dense(ctx, &shape, row.stride)?;
        let count = if wanted.has_lengths { 2 } else { 1 };
        for (k, tensor) in tensors.into_iter().take(count).enumerate() {
            ctx.set_output(first + k * num_dense + d, tensor)?;
        }
    }
    first += if wanted.has_lengths { 2 * num_dense } else { num_dense };
    for (r, &(dtype, splits)) in forms.ragged.iter().enumerate() {
        let tensors = column(num_sparse + num_dense + r, dtype).ragged(ctx, splits)?;
        for (k, tensor) in tensors.into_iter().enumerate() {
            ctx.set_output(first + k * num_ragged + r, tensor)?;
        }
    }
    Ok(())
}
