//! `SparseCross`: feature crosses, joined as strings or hashed to numbers.

use smallvec::SmallVec;
use thalweg_graph::shape::ShapeContext;
use thalweg_graph::{OpDef, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{
    Bytes, DType, PartialShape, Result, Shape, StringBuilder, Tensor, bail, ensure, err,
};

use super::coo::{Coordinates, matrix, set_outputs, set_sparse_outputs};
use super::ragged::{Splits, SplitsWriter, check_nested};
use crate::cells::blank;
use crate::strings::hash::{fingerprint64, sip_hash};

pub(crate) static FAMILY: Family = Family {
    ops: &[
        OpDef::new("SparseCross", cross_shape).with_work(Work::serial::<200>),
        OpDef::new("SparseCrossV2", cross_shape).with_work(Work::serial::<200>),
        OpDef::new("SparseCrossHashed", cross_shape).with_work(Work::serial::<200>),
        OpDef::new("RaggedCross", ragged_cross_shape).with_work(Work::serial::<200>),
    ],
    kernels: &[
        KernelSpec { op: "SparseCross", create: cross, ..KernelSpec::CPU },
        KernelSpec { op: "SparseCrossV2", create: cross_joined, ..KernelSpec::CPU },
        KernelSpec { op: "SparseCrossHashed", create: cross_hashed, ..KernelSpec::CPU },
        KernelSpec { op: "RaggedCross", create: ragged_cross, ..KernelSpec::CPU },
    ],
};

fn cross_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    set_sparse_outputs(c, 0, None, Some(2));
    Ok(())
}

/// The features of a column.
#[derive(Clone, Copy)]
enum Features<'a> {
    Numbers(&'a [i64]),
    Strings(&'a [Bytes]),
}

impl<'a> Features<'a> {
    fn of(tensor: &'a Tensor) -> Result<Features<'a>> {
        Ok(match tensor.dtype() {
            DType::String => Features::Strings(tensor.strings()?),
            _ => Features::Numbers(tensor.as_slice()?),
        })
    }

    fn len(&self) -> usize {
        match self {
            Features::Numbers(numbers) => numbers.len(),
            Features::Strings(strings) => strings.len(),
        }
    }
}

/// Position of the features of each row.
enum Rows<'a> {
    /// For each row the index of the first feature and the number of features.
    Sparse(Tensor),
    /// The same number of features in each row.
    Dense(usize),
    Ragged(Splits<'a>),
}

/// One column of features.
struct Column<'a> {
    features: Features<'a>,
    rows: Rows<'a>,
    /// Number of rows.
    batch: usize,
}

impl<'a> Column<'a> {
    /// A column from a sparse matrix; rows that are out of order or out of bounds have no features.
    fn sparse(
        ctx: &KernelContext<'_>,
        indices: &'a Tensor,
        values: &'a Tensor,
        shape: &'a Tensor,
    ) -> Result<Column<'a>> {
        let sparse = Coordinates::of(indices, values, shape)?;
        ensure!(
            sparse.rank == 2,
            InvalidArgument,
            "shape should imply a 2D tensor, but got {:?}",
            sparse.sizes
        );
        let batch = sparse.shape()?[0];
        let mut starts = matrix(ctx, batch, 2)?;
        let mut next = 0;
        for (row, slot) in starts.as_mut_slice::<i64>()?.chunks_exact_mut(2).enumerate() {
            let first = next;
            while next < sparse.count && sparse.row(next)[0] == row as i64 {
                next += 1;
            }
            slot.copy_from_slice(&[first as i64, (next - first) as i64]);
        }
        Ok(Column { features: Features::of(values)?, rows: Rows::Sparse(starts), batch })
    }

    fn dense(tensor: &'a Tensor) -> Result<Column<'a>> {
        let [batch, width] = tensor.shape()[..] else {
            bail!(
                InvalidArgument,
                "Dense inputs should be a matrix but received shape {}",
                tensor.shape()
            );
        };
        Ok(Column { features: Features::of(tensor)?, rows: Rows::Dense(width), batch })
    }

    fn ragged(values: &'a Tensor, splits: &'a Tensor) -> Result<Column<'a>> {
        ensure!(
            values.rank() == 1,
            InvalidArgument,
            "ragged_values should be a vector but received shape {}",
            values.shape()
        );
        let splits = Splits::of(splits)?;
        check_nested(&[splits], values)?;
        let batch = splits.rows;
        Ok(Column { features: Features::of(values)?, rows: Rows::Ragged(splits), batch })
    }

    /// The index of the first feature of a row, and their number.
    fn row(&self, row: usize) -> Result<(usize, usize)> {
        Ok(match &self.rows {
            Rows::Sparse(starts) => {
                let starts = starts.as_slice::<i64>()?;
                (starts[2 * row] as usize, starts[2 * row + 1] as usize)
            }
            Rows::Dense(width) => (row * width, *width),
            Rows::Ragged(splits) => (splits.start(row), splits.start(row + 1) - splits.start(row)),
        })
    }

    fn is_sparse(&self) -> bool {
        matches!(self.rows, Rows::Sparse(_))
    }
}

/// The number of rows, which all columns must have.
fn batch_size(columns: &[Column<'_>]) -> Result<usize> {
    let batch = columns.first().map_or(0, |c| c.batch);
    for (i, column) in columns.iter().enumerate() {
        ensure!(
            column.batch == batch,
            InvalidArgument,
            "Expected batch size {batch} got {} at position {i}",
            column.batch
        );
    }
    Ok(batch)
}

/// The number of crosses of each row.
struct Counts {
    /// Cumulative number of crosses before each row, followed by the total.
    starts: Tensor,
    total: usize,
    largest: usize,
}

fn count_crosses(ctx: &KernelContext<'_>, columns: &[Column<'_>], batch: usize) -> Result<Counts> {
    let mut starts = ctx.zeros(DType::Int64, Shape::new(&[batch.saturating_add(1)])?)?;
    let (mut total, mut largest) = (0usize, 0);
    for (row, slot) in starts.as_mut_slice::<i64>()?[1..].iter_mut().enumerate() {
        let mut crosses = 1usize;
        for column in columns {
            crosses = crosses.checked_mul(column.row(row)?.1).ok_or_else(too_many)?;
        }
        total = total.checked_add(crosses).ok_or_else(too_many)?;
        largest = largest.max(crosses);
        *slot = i64::try_from(total).map_err(|_| too_many())?;
    }
    Ok(Counts { starts, total, largest })
}

#[cold]
fn too_many() -> thalweg_tensor::Error {
    err!(InvalidArgument, "there are too many crosses to count them in 63 bits")
}

/// How the features of a cross are combined.
enum Maker {
    Join(Bytes),
    Hash {
        /// The initial value of the hash; if `None`, the first feature's hash.
        key: Option<u64>,
        buckets: i64,
        features: FeatureHash,
    },
}

/// Hash of a feature.
enum FeatureHash {
    /// Strings by their fingerprint, integers by their value.
    Plain,
    /// Integers of sparse columns by the fingerprint of their low half.
    Fingerprint,
    /// All features by a keyed hash.
    Keyed([u64; 2]),
}

impl FeatureHash {
    fn of(&self, column: &Column<'_>, i: usize) -> u64 {
        match (self, column.features) {
            (FeatureHash::Keyed(key), Features::Strings(strings)) => sip_hash(*key, &strings[i]),
            (_, Features::Strings(strings)) => fingerprint64(&strings[i]),
            (FeatureHash::Keyed(key), Features::Numbers(numbers)) => {
                sip_hash(*key, &(numbers[i] as u32).to_le_bytes())
            }
            (FeatureHash::Fingerprint, Features::Numbers(numbers)) if column.is_sparse() => {
                fingerprint64(&(numbers[i] as u32).to_le_bytes())
            }
            (_, Features::Numbers(numbers)) => numbers[i] as u64,
        }
    }
}

/// TensorFlow's `FingerprintCat64`.
fn concatenate_fingerprints(first: u64, second: u64) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |x: u64| x ^ (x >> 47);
    let second = mix(second.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    let both = (first ^ FACTOR ^ second).wrapping_mul(FACTOR);
    mix(mix(both).wrapping_mul(FACTOR))
}

impl Maker {
    fn join(
        &self,
        separator: &[u8],
        columns: &[Column<'_>],
        picks: &[usize],
        cross: &mut StringBuilder,
    ) -> Result<Bytes> {
        for (n, (column, &i)) in columns.iter().zip(picks).enumerate() {
            if n > 0 {
                cross.push(separator)?;
            }
            match column.features {
                Features::Strings(strings) => cross.push(&strings[i])?,
                Features::Numbers(numbers) => cross.print(numbers[i])?,
            }
        }
        cross.take()
    }

    fn hashed(
        key: Option<u64>,
        buckets: i64,
        features: &FeatureHash,
        columns: &[Column<'_>],
        picks: &[usize],
    ) -> i64 {
        let hashes = columns.iter().zip(picks).map(|(column, &i)| features.of(column, i));
        let hash = match key {
            Some(key) => hashes.fold(key, concatenate_fingerprints),
            None => hashes.reduce(concatenate_fingerprints).unwrap_or(0),
        };
        let modulus = if buckets > 0 { buckets as u64 } else { i64::MAX as u64 };
        (hash % modulus) as i64
    }

    /// All crosses, in order: the last column varies fastest.
    fn make(
        &self,
        ctx: &KernelContext<'_>,
        columns: &[Column<'_>],
        counts: &Counts,
    ) -> Result<Tensor> {
        let dtype = if matches!(self, Maker::Join(_)) { DType::String } else { DType::Int64 };
        let mut output = blank(ctx, dtype, Shape::new(&[counts.total])?)?;
        let starts = counts.starts.as_slice::<i64>()?;
        let mut ranges: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        let mut picks: SmallVec<[usize; 4]> = smallvec::smallvec![0; columns.len()];
        let mut text = StringBuilder::new(ctx.budget());
        for (row, ends) in starts.windows(2).enumerate() {
            ranges.clear();
            for column in columns {
                ranges.push(column.row(row)?);
            }
            for place in ends[0]..ends[1] {
                let mut rest = (place - ends[0]) as usize;
                for (pick, &(first, count)) in picks.iter_mut().zip(&ranges).rev() {
                    *pick = first + rest % count;
                    rest /= count;
                }
                match self {
                    Maker::Join(separator) => {
                        let cross = self.join(separator, columns, &picks, &mut text)?;
                        output.strings_mut()?[place as usize] = cross;
                    }
                    Maker::Hash { key, buckets, features } => {
                        let cross = Self::hashed(*key, *buckets, features, columns, &picks);
                        output.as_mut_slice::<i64>()?[place as usize] = cross;
                    }
                }
            }
            ctx.check_cancelled()?;
        }
        Ok(output)
    }
}

/// The columns of an op with sparse and dense inputs.
fn columns<'a>(ctx: &'a KernelContext<'_>) -> Result<Vec<Column<'a>>> {
    let (values, dense) = (ctx.input_range("values")?, ctx.input_range("dense_inputs")?);
    let n = ctx.input_range("indices")?.len();
    ensure!(values.len() == n, InvalidArgument, "Expected {n} input values, got {}", values.len());
    let mut columns = Vec::with_capacity(n + dense.len());
    for i in 0..n {
        let (indices, values, shape) = (ctx.input(i)?, ctx.input(n + i)?, ctx.input(2 * n + i)?);
        columns.push(Column::sparse(ctx, indices, values, shape)?);
    }
    for i in dense {
        columns.push(Column::dense(ctx.input(i)?)?);
    }
    Ok(columns)
}

/// The crosses of some columns, as a sparse matrix.
fn crosses(ctx: &KernelContext<'_>, columns: &[Column<'_>], maker: &Maker) -> Result<[Tensor; 3]> {
    let batch = batch_size(columns)?;
    // Columns without features may have any number of rows.
    let is_empty = columns.iter().any(|c| c.features.len() == 0);
    let counts = count_crosses(ctx, columns, if is_empty { 0 } else { batch })?;
    let mut indices = matrix(ctx, counts.total, 2)?;
    let rows = indices.as_mut_slice::<i64>()?;
    for (row, ends) in counts.starts.as_slice::<i64>()?.windows(2).enumerate() {
        for place in ends[0]..ends[1] {
            let at = 2 * place as usize;
            rows[at..at + 2].copy_from_slice(&[row as i64, place - ends[0]]);
        }
    }
    let values = maker.make(ctx, columns, &counts)?;
    Ok([indices, values, Tensor::vector(&[batch as i64, counts.largest as i64])?])
}

fn cross(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (key, buckets) = (attrs.int("hash_key")? as u64, attrs.int("num_buckets")?);
    let joins = attrs.dtype("out_type")? == DType::String;
    if attrs.dtype("internal_type")? == DType::String {
        let types = [attrs.dtypes("sparse_types")?, attrs.dtypes("dense_types")?].concat();
        if types.contains(&DType::Int64) {
            return AnyKernel::new(|_| {
                bail!(InvalidArgument, "Input values should be of internal type string, are int64")
            });
        }
    }
    AnyKernel::new(move |ctx| {
        let maker = if joins {
            Maker::Join(Bytes::from_static(b"_X_"))
        } else {
            Maker::Hash { key: Some(key), buckets, features: FeatureHash::Plain }
        };
        let outputs = crosses(ctx, &columns(ctx)?, &maker)?;
        set_outputs(ctx, outputs)
    })
}

fn cross_joined(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let separator = ctx.input(ctx.num_inputs() - 1)?;
        ensure!(
            separator.rank() == 0,
            InvalidArgument,
            "sep must be a scalar, got shape {}",
            separator.shape()
        );
        let maker = Maker::Join(separator.strings()?[0].clone());
        let outputs = crosses(ctx, &columns(ctx)?, &maker)?;
        set_outputs(ctx, outputs)
    })
}

fn cross_hashed(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let inputs = ctx.num_inputs();
        let buckets = ctx.scalar_int(inputs - 3, "num_buckets")?;
        let is_strong = ctx.input(inputs - 2)?.scalar_value::<bool>()?;
        let &[first, second] = ctx.slice::<i64>(inputs - 1)? else {
            bail!(
                InvalidArgument,
                "salt must have 2 elements, got shape {}",
                ctx.input(inputs - 1)?.shape()
            );
        };
        let features = match is_strong {
            true => FeatureHash::Keyed([first as u64, second as u64]),
            false => FeatureHash::Fingerprint,
        };
        let maker = Maker::Hash { key: None, buckets, features };
        let outputs = crosses(ctx, &columns(ctx)?, &maker)?;
        set_outputs(ctx, outputs)
    })
}

fn ragged_cross_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::of_rank(1));
    c.set_output(1, PartialShape::of_rank(1));
    Ok(())
}

/// The columns in the order of their kinds in `order`.
fn ragged_columns<'a>(ctx: &'a KernelContext<'_>, order: &str) -> Result<Vec<Column<'a>>> {
    let range = |name| ctx.input_range(name);
    let (ragged, splits) = (range("ragged_values")?, range("ragged_row_splits")?);
    let (sparse, values) = (range("sparse_indices")?, range("sparse_values")?);
    let (shapes, dense) = (range("sparse_shape")?, range("dense_inputs")?);
    ensure!(
        ragged.len() == splits.len() && sparse.len() == values.len(),
        InvalidArgument,
        "every ragged and sparse column needs all its parts"
    );
    let total = ragged.len() + sparse.len() + dense.len();
    ensure!(
        order.len() == total,
        InvalidArgument,
        "input_order must name {total} columns, is {order:?}"
    );
    let mut ragged = ragged.zip(splits);
    let mut sparse = sparse.zip(values).zip(shapes);
    let (mut dense, mut columns) = (dense, Vec::with_capacity(total));
    let missing = || err!(InvalidArgument, "input_order {order:?} does not fit the inputs");
    for kind in order.bytes() {
        columns.push(match kind {
            b'R' => {
                let (values, splits) = ragged.next().ok_or_else(missing)?;
                Column::ragged(ctx.input(values)?, ctx.input(splits)?)?
            }
            b'S' => {
                let ((indices, values), shape) = sparse.next().ok_or_else(missing)?;
                Column::sparse(ctx, ctx.input(indices)?, ctx.input(values)?, ctx.input(shape)?)?
            }
            b'D' => Column::dense(ctx.input(dense.next().ok_or_else(missing)?)?)?,
            _ => return Err(missing()),
        });
    }
    Ok(columns)
}

fn ragged_cross(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let attrs = init.attrs();
    let (key, buckets) = (attrs.int("hash_key")? as u64, attrs.int("num_buckets")?);
    let joins = attrs.dtype("out_values_type")? == DType::String;
    let splits_dtype = attrs.dtype("out_row_splits_type")?;
    let order = attrs.string("input_order")?.to_owned();
    AnyKernel::new(move |ctx| {
        let maker = if joins {
            Maker::Join(Bytes::from_static(b"_X_"))
        } else {
            Maker::Hash { key: Some(key), buckets, features: FeatureHash::Plain }
        };
        let outputs = ragged_crosses(ctx, &order, splits_dtype, &maker)?;
        set_outputs(ctx, outputs)
    })
}

fn ragged_crosses(
    ctx: &KernelContext<'_>,
    order: &str,
    splits_dtype: DType,
    maker: &Maker,
) -> Result<[Tensor; 2]> {
    let columns = ragged_columns(ctx, order)?;
    let batch = batch_size(&columns)?;
    let is_empty = columns.iter().any(|c| c.features.len() == 0);
    let mut writer = SplitsWriter::new(ctx, splits_dtype, batch)?;
    let counts = count_crosses(ctx, &columns, if is_empty { 0 } else { batch })?;
    let ends = &counts.starts.as_slice::<i64>()?[1..];
    for row in 0..batch {
        writer.push(ends.get(row).map_or(0, |&end| end as usize))?;
    }
    Ok([maker.make(ctx, &columns, &counts)?, writer.finish()])
}
