//! Output tensors of parsed features: sparse, dense and ragged.

use thalweg_graph::NodeAttrs;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Bytes, DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use super::features::{List, Names, Value, Wanted, fill, find, offsets};

/// The shape of a dense feature.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Sizes, without the first if it is variable.
    dims: Vec<usize>,
    /// Whether the first size is that of the longest list in the batch.
    pub(super) is_variable: bool,
    /// Elements of a row, or of one step of a variable row.
    pub(super) stride: usize,
}

impl Row {
    /// The shapes in attr `name`.
    pub(super) fn all(attrs: &NodeAttrs<'_>, name: &str) -> Result<Vec<Row>> {
        attrs.shapes(name)?.iter().map(Row::new).collect()
    }

    fn new(shape: &PartialShape) -> Result<Row> {
        let sizes = match shape.dims() {
            Some([None, inner @ ..]) => (true, inner),
            Some(dims) => (false, dims),
            None => (false, &[None][..]),
        };
        let (is_variable, dims) = sizes;
        let dims: Option<Vec<usize>> = dims.iter().copied().collect();
        let dims = dims.ok_or_else(|| {
            err!(
                InvalidArgument,
                "dense shape {shape} has unknown rank or unknown inner dimensions"
            )
        })?;
        let stride = Shape::new(&dims)?.num_elements();
        ensure!(
            !is_variable || stride > 0,
            InvalidArgument,
            "dense shape {shape} has steps without elements"
        );
        Ok(Row { dims, is_variable, stride })
    }

    /// The shape of a batch (or of one example) whose lists have at most `longest` values.
    pub(super) fn shape(&self, batch: &[usize], longest: usize) -> Result<Shape> {
        let mut dims = batch.to_vec();
        if self.is_variable {
            dims.push(longest / self.stride);
        }
        dims.extend_from_slice(&self.dims);
        Shape::new(&dims)
    }

    /// The default must have one element for a variable row, and the whole row or no element for a
    /// fixed one.
    pub(super) fn check_default(&self, key: &Bytes, default: &Tensor) -> Result<()> {
        let elements = default.num_elements();
        let key = || String::from_utf8_lossy(key);
        if self.is_variable {
            ensure!(
                elements == 1,
                InvalidArgument,
                "the default of '{}', whose length varies, must be one element, got shape {}",
                key(),
                default.shape()
            );
        } else {
            ensure!(
                elements == 0 || default.shape().dims() == self.dims,
                InvalidArgument,
                "the default of '{}' has shape {}, its feature {:?}",
                key(),
                default.shape(),
                self.dims
            );
        }
        Ok(())
    }
}

/// The features of each form: sparse, dense and ragged.
#[derive(Clone, Default)]
pub(super) struct Forms {
    pub(super) sparse: Vec<DType>,
    pub(super) dense: Vec<(DType, Row)>,
    /// Dtypes of values and of row splits.
    pub(super) ragged: Vec<(DType, DType)>,
}

impl Forms {
    /// Reads the attrs with the dtypes of sparse, dense and ragged values, shapes, and row splits.
    pub(super) fn new(attrs: &NodeAttrs<'_>, names: &AttrNames) -> Result<Forms> {
        let dtypes = |name: &str| if name.is_empty() { Ok(Vec::new()) } else { attrs.dtypes(name) };
        let dense = dtypes(names.dense)?;
        let rows = Row::all(attrs, names.shapes)?;
        ensure!(
            dense.len() == rows.len(),
            InvalidArgument,
            "{} has {} shapes for {} features",
            names.shapes,
            rows.len(),
            dense.len()
        );
        let (ragged, splits) = (dtypes(names.ragged)?, dtypes(names.splits)?);
        ensure!(
            ragged.len() == splits.len(),
            InvalidArgument,
            "{} has {} types for {} features",
            names.splits,
            splits.len(),
            ragged.len()
        );
        Ok(Forms {
            sparse: dtypes(names.sparse)?,
            dense: dense.into_iter().zip(rows).collect(),
            ragged: ragged.into_iter().zip(splits).collect(),
        })
    }

    /// Pairs the dtypes with the keys of sparse, dense and ragged features.
    pub(super) fn wanted(
        &self,
        sparse: &[Bytes],
        dense: &[Bytes],
        ragged: &[Bytes],
    ) -> Result<Vec<Wanted>> {
        for (keys, types, what) in [
            (sparse.len(), self.sparse.len(), "sparse"),
            (dense.len(), self.dense.len(), "dense"),
            (ragged.len(), self.ragged.len(), "ragged"),
        ] {
            ensure!(keys == types, InvalidArgument, "{keys} {what} keys for {types} {what} types");
        }
        let types = self.sparse.iter().chain(self.dense.iter().map(|(dtype, _)| dtype));
        let types = types.chain(self.ragged.iter().map(|(dtype, _)| dtype));
        let keys = sparse.iter().chain(dense).chain(ragged);
        Ok(keys.zip(types).map(|(key, &dtype)| Wanted { key: key.clone(), dtype }).collect())
    }

    /// Number of outputs for these features.
    pub(super) fn num_outputs(&self) -> usize {
        3 * self.sparse.len() + self.dense.len() + 2 * self.ragged.len()
    }
}

/// The names of an op's attrs for [`Forms`]; empty if it has none.
pub(super) struct AttrNames {
    pub(super) sparse: &'static str,
    pub(super) dense: &'static str,
    pub(super) shapes: &'static str,
    pub(super) ragged: &'static str,
    pub(super) splits: &'static str,
}

/// A batch of examples, or a single one.
pub(super) struct Batch<'a> {
    pub(super) examples: &'a [Bytes],
    pub(super) names: Names<'a>,
    /// Whether the outputs have a batch dimension.
    pub(super) is_batch: bool,
    /// Shape of the unused row splits of a single example, as in TensorFlow.
    pub(super) single_splits: Shape,
}

impl<'a> Batch<'a> {
    /// Input `i`, which must have a rank that `ranks` allows.
    pub(super) fn new(
        serialized: &'a Tensor,
        names: &'a [Bytes],
        ranks: &[usize],
    ) -> Result<Batch<'a>> {
        ensure!(
            ranks.contains(&serialized.rank()),
            InvalidArgument,
            "Expected serialized to be {}, got shape {}",
            match ranks {
                [0] => "a scalar",
                [1] => "a vector",
                _ => "a scalar or vector",
            },
            serialized.shape()
        );
        let is_batch = serialized.rank() == 1;
        let single_splits = Shape::new(&[0])?;
        Ok(Batch { examples: serialized.strings()?, names: Names(names), is_batch, single_splits })
    }

    /// The batch dimension, if there is one.
    pub(super) fn dims(&self) -> Vec<usize> {
        if self.is_batch { vec![self.examples.len()] } else { Vec::new() }
    }

    /// Row splits of the examples.
    pub(super) fn splits(
        &self,
        ctx: &KernelContext<'_>,
        dtype: DType,
        ends: &[usize],
    ) -> Result<Tensor> {
        match self.is_batch {
            true => split_tensor(ctx, dtype, ends),
            false => ctx.zeros(dtype, self.single_splits.clone()),
        }
    }
}

/// The lists of one feature in all examples.
struct Column<'a> {
    batch: &'a Batch<'a>,
    table: &'a [List<'a>],
    width: usize,
    at: usize,
}

impl<'a> Column<'a> {
    fn list(&self, example: usize) -> &List<'a> {
        &self.table[example * self.width + self.at]
    }

    fn counts(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        (0..self.batch.examples.len()).map(|i| self.list(i).count)
    }

    fn longest(&self) -> usize {
        self.counts().max().unwrap_or(0)
    }

    /// The values of all lists, concatenated.
    fn values(&self, ctx: &KernelContext<'_>, dtype: DType, ends: &[usize]) -> Result<Tensor> {
        let total = ends.last().copied().unwrap_or(0);
        let mut output = ctx.zeros(dtype, Shape::new(&[total])?)?;
        match dtype {
            DType::Float => self.fill_values::<f32>(ctx, &mut output, ends)?,
            DType::Int64 => self.fill_values::<i64>(ctx, &mut output, ends)?,
            _ => self.fill_values::<Bytes>(ctx, &mut output, ends)?,
        }
        Ok(output)
    }

    fn fill_values<T: Value>(
        &self,
        ctx: &KernelContext<'_>,
        output: &mut Tensor,
        ends: &[usize],
    ) -> Result<()> {
        let examples = self.batch.examples;
        fill(
            ctx,
            output,
            examples.len(),
            |i| ends[i]..ends[i + 1],
            |i, part: &mut [T]| T::decode(self.list(i).body, &examples[i], ctx.budget(), part),
        )
    }

    /// Indices, values and dense shape of a sparse tensor.
    fn sparse(&self, ctx: &KernelContext<'_>, dtype: DType) -> Result<[Tensor; 3]> {
        let ends = offsets(ctx, self.counts())?;
        let values = self.values(ctx, dtype, &ends)?;
        let rank = if self.batch.is_batch { 2 } else { 1 };
        let mut indices = ctx.zeros(DType::Int64, Shape::new(&[values.num_elements(), rank])?)?;
        let range = |i: usize| ends[i] * rank..ends[i + 1] * rank;
        fill(ctx, &mut indices, self.batch.examples.len(), range, |i, part: &mut [i64]| {
            for (j, index) in part.chunks_exact_mut(rank).enumerate() {
                index[rank - 1] = j as i64;
                if rank == 2 {
                    index[0] = i as i64;
                }
            }
            Ok(())
        })?;
        let mut shape = self.batch.dims();
        shape.push(self.longest());
        let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        Ok([indices, values, Tensor::vector(&shape)?])
    }

    /// Values and row splits of a ragged tensor; a single example has no rows.
    fn ragged(&self, ctx: &KernelContext<'_>, dtype: DType, splits: DType) -> Result<[Tensor; 2]> {
        let ends = offsets(ctx, self.counts())?;
        let values = self.values(ctx, dtype, &ends)?;
        Ok([values, self.batch.splits(ctx, splits, &ends)?])
    }

    fn dense(
        &self,
        ctx: &KernelContext<'_>,
        wanted: &Wanted,
        row: &Row,
        default: &Tensor,
    ) -> Result<Tensor> {
        for i in 0..self.batch.examples.len() {
            self.check_dense(i, wanted, row, default.num_elements() > 0)?;
        }
        let mut output = ctx.zeros(wanted.dtype, row.shape(&self.batch.dims(), self.longest())?)?;
        match wanted.dtype {
            DType::Float => self.fill_dense::<f32>(ctx, &mut output, default)?,
            DType::Int64 => self.fill_dense::<i64>(ctx, &mut output, default)?,
            _ => self.fill_dense::<Bytes>(ctx, &mut output, default)?,
        }
        Ok(output)
    }

    fn check_dense(&self, i: usize, wanted: &Wanted, row: &Row, has_default: bool) -> Result<()> {
        let list = self.list(i);
        let describe = || {
            let (name, key) = (self.batch.names.of(i), String::from_utf8_lossy(&wanted.key));
            format!("Name: {name}, Feature: {key} (data type: {})", wanted.dtype)
        };
        if !list.is_present {
            ensure!(
                has_default,
                InvalidArgument,
                "{} is required but could not be found.",
                describe()
            );
            return Ok(());
        }
        let is_whole = match row.is_variable {
            true => list.count.is_multiple_of(row.stride),
            false => list.count == row.stride,
        };
        ensure!(
            is_whole,
            InvalidArgument,
            "{} has {} values, which do not fill {}its shape of {} elements",
            describe(),
            list.count,
            if row.is_variable { "steps of " } else { "" },
            row.stride
        );
        Ok(())
    }

    /// Fills rows of equal length with the list's values, then the default.
    fn fill_dense<T: Value>(
        &self,
        ctx: &KernelContext<'_>,
        output: &mut Tensor,
        default: &Tensor,
    ) -> Result<()> {
        let examples = self.batch.examples;
        let length = output.num_elements() / examples.len().max(1);
        let default = T::elements(default)?;
        let range = |i: usize| i * length..(i + 1) * length;
        fill(ctx, output, examples.len(), range, |i, row: &mut [T]| {
            let list = self.list(i);
            let (values, rest) = row.split_at_mut(list.count.min(length));
            T::decode(list.body, &examples[i], ctx.budget(), values)?;
            match default {
                [one] => rest.fill(one.clone()),
                all if all.len() == rest.len() => rest.clone_from_slice(all),
                _ if rest.is_empty() => {}
                _ => bail!(Internal, "a default of {} elements", default.len()),
            }
            Ok(())
        })
    }
}

/// The row splits as a tensor of this dtype.
pub(super) fn split_tensor(
    ctx: &KernelContext<'_>,
    dtype: DType,
    ends: &[usize],
) -> Result<Tensor> {
    let mut splits = ctx.allocate(dtype, Shape::new(&[ends.len()])?)?;
    if dtype == DType::Int64 {
        let slots = splits.as_mut_slice::<i64>()?;
        slots.iter_mut().zip(ends).for_each(|(slot, &end)| *slot = end as i64);
        return Ok(splits);
    }
    for (slot, &end) in splits.as_mut_slice::<i32>()?.iter_mut().zip(ends) {
        *slot = i32::try_from(end)
            .map_err(|_| err!(InvalidArgument, "{end} values exceed row splits of int32"))?;
    }
    Ok(splits)
}

/// Parses the features of a batch and sets the outputs from `first_output` on: indices, values and
/// shapes of the sparse features, the dense ones, values and row splits of the ragged ones. The
/// inputs from `first_default` on are the defaults of the dense ones.
pub(super) fn parse(
    ctx: &mut KernelContext<'_>,
    batch: &Batch<'_>,
    forms: &Forms,
    wanted: &[Wanted],
    (first_default, first_output): (usize, usize),
) -> Result<()> {
    for (d, (_, row)) in forms.dense.iter().enumerate() {
        row.check_default(&wanted[forms.sparse.len() + d].key, ctx.input(first_default + d)?)?;
    }
    let table = find(ctx, batch.examples, wanted, &batch.names)?;
    let column = |at: usize| Column { batch, table: &table, width: wanted.len(), at };
    let (num_sparse, num_dense) = (forms.sparse.len(), forms.dense.len());
    let num_ragged = forms.ragged.len();
    for (s, &dtype) in forms.sparse.iter().enumerate() {
        for (k, tensor) in column(s).sparse(ctx, dtype)?.into_iter().enumerate() {
            ctx.set_output(first_output + k * num_sparse + s, tensor)?;
        }
    }
    for (d, (_, row)) in forms.dense.iter().enumerate() {
        let at = num_sparse + d;
        let default = ctx.input(first_default + d)?;
        let tensor = column(at).dense(ctx, &wanted[at], row, default)?;
        ctx.set_output(first_output + 3 * num_sparse + d, tensor)?;
    }
    for (r, &(dtype, splits)) in forms.ragged.iter().enumerate() {
        let at = num_sparse + num_dense + r;
        for (k, tensor) in column(at).ragged(ctx, dtype, splits)?.into_iter().enumerate() {
            let output = first_output + 3 * num_sparse + num_dense + k * num_ragged + r;
            ctx.set_output(output, tensor)?;
        }
    }
    Ok(())
}
