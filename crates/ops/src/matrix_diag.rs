//! `MatrixDiag`, `MatrixDiagPart` and `MatrixSetDiag`.
//!
//! A range of diagonals is stored as a matrix: one row per diagonal, the highest first, all as long
//! as the longest. Shorter diagonals are aligned left or right, according to `align`.

use smallvec::SmallVec;
use thalweg_graph::{Gradient, GradientContext, NodeAttrs, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, bail, ensure};

use crate::cells::{Cell, blank, fill, nanoseconds_per_cell};
use crate::matrix_diag_lowering as lowering;
use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[
        MATRIX_DIAG,
        MATRIX_DIAG_V2,
        MATRIX_DIAG_V3,
        BATCH_MATRIX_DIAG,
        MATRIX_DIAG_PART,
        MATRIX_DIAG_PART_V2,
        MATRIX_DIAG_PART_V3,
        BATCH_MATRIX_DIAG_PART,
        MATRIX_SET_DIAG,
        MATRIX_SET_DIAG_V2,
        MATRIX_SET_DIAG_V3,
        BATCH_MATRIX_SET_DIAG,
    ],
    kernels: &[
        kernel("MatrixDiag", matrix_diag, &[]),
        kernel("BatchMatrixDiag", matrix_diag, &[]),
        kernel("MatrixDiagV2", matrix_diag, &["k", "num_rows", "num_cols", "padding_value"]),
        kernel("MatrixDiagV3", matrix_diag, &["k", "num_rows", "num_cols", "padding_value"]),
        kernel("MatrixDiagPart", matrix_diag_part, &[]),
        kernel("BatchMatrixDiagPart", matrix_diag_part, &[]),
        kernel("MatrixDiagPartV2", matrix_diag_part, &["k", "padding_value"]),
        kernel("MatrixDiagPartV3", matrix_diag_part, &["k", "padding_value"]),
        kernel("MatrixSetDiag", matrix_set_diag, &[]),
        kernel("BatchMatrixSetDiag", matrix_set_diag, &[]),
        kernel("MatrixSetDiagV2", matrix_set_diag, &["k"]),
        kernel("MatrixSetDiagV3", matrix_set_diag, &["k"]),
        KernelSpec::lowering("MatrixDiag", lowering::diag).for_dtypes(TYPES),
        KernelSpec::lowering("BatchMatrixDiag", lowering::diag).for_dtypes(TYPES),
        KernelSpec::lowering("MatrixDiagV2", lowering::diag)
            .for_dtypes(TYPES)
            .with_host_inputs(&["k", "num_rows", "num_cols"]),
        KernelSpec::lowering("MatrixDiagV3", lowering::diag)
            .for_dtypes(TYPES)
            .with_host_inputs(&["k", "num_rows", "num_cols"]),
        KernelSpec::lowering("MatrixDiagPart", lowering::part).for_dtypes(TYPES),
        KernelSpec::lowering("BatchMatrixDiagPart", lowering::part).for_dtypes(TYPES),
        KernelSpec::lowering("MatrixDiagPartV2", lowering::part)
            .for_dtypes(TYPES)
            .with_host_inputs(&["k"]),
        KernelSpec::lowering("MatrixDiagPartV3", lowering::part)
            .for_dtypes(TYPES)
            .with_host_inputs(&["k"]),
        KernelSpec::lowering("MatrixSetDiag", lowering::set).for_dtypes(TYPES),
        KernelSpec::lowering("BatchMatrixSetDiag", lowering::set).for_dtypes(TYPES),
        KernelSpec::lowering("MatrixSetDiagV2", lowering::set)
            .for_dtypes(TYPES)
            .with_host_inputs(&["k"]),
        KernelSpec::lowering("MatrixSetDiagV3", lowering::set)
            .for_dtypes(TYPES)
            .with_host_inputs(&["k"]),
    ],
};

/// Element dtypes of TensorFlow's kernels.
pub(crate) const MOVED: &[DType] = &[
    DType::Bool,
    DType::Complex128,
    DType::Complex64,
    DType::Double,
    DType::Float,
    DType::BFloat16,
    DType::Half,
    DType::Int32,
    DType::Int8,
    DType::UInt8,
    DType::Int16,
    DType::UInt16,
    DType::UInt32,
    DType::Int64,
    DType::UInt64,
];

const TYPES: &[(&str, &[DType])] = &[("T", MOVED)];

const fn kernel(
    op: &'static str,
    create: fn(&KernelInit<'_>) -> Result<AnyKernel>,
    host_inputs: &'static [&'static str],
) -> KernelSpec {
    KernelSpec { op, create, host_inputs, constraints: TYPES, ..KernelSpec::CPU }
}

/// A range of diagonals; 0 is the main diagonal, positive ones are above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Band {
    pub(crate) lower: i64,
    pub(crate) upper: i64,
}

impl Band {
    pub(crate) const MAIN: Band = Band { lower: 0, upper: 0 };

    /// The range from the elements of `k`: one diagonal, or both ends.
    pub(crate) fn new(k: &[i64]) -> Result<Band> {
        let (lower, upper) = match *k {
            [] => bail!(InvalidArgument, "Expected diag_index to have at least 1 element"),
            [k] => (k, k),
            [lower, upper] => (lower, upper),
            _ => bail!(
                InvalidArgument,
                "diag_index must have only one or two elements, received {} elements.",
                k.len()
            ),
        };
        ensure!(
            lower <= upper,
            InvalidArgument,
            "lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}"
        );
        Ok(Band { lower, upper })
    }

    /// The range from input `i`.
    fn from_input(ctx: &KernelContext<'_>, i: usize) -> Result<Band> {
        let k = ctx.input(i)?;
        ensure!(
            k.rank() <= 1,
            InvalidArgument,
            "diag_index must be a scalar or vector, received shape: {}",
            k.shape()
        );
        Band::new(&ctx.ints(i, "k")?)
    }

    /// The range from input `i` of a node, if its value is known.
    fn from_constant(c: &ShapeContext<'_>, i: usize) -> Result<Option<Band>> {
        let shape = c.input(i);
        ensure!(
            shape.rank().is_none_or(|r| r <= 1),
            InvalidArgument,
            "diag_index must be a scalar or vector, received shape: {shape}"
        );
        let value = c.partial_value(i).and_then(|value| value.known());
        value.map(|k| Band::new(&k)).transpose()
    }

    pub(crate) fn count(self) -> i64 {
        self.upper - self.lower + 1
    }

    /// Checks that the diagonals are inside the matrix.
    pub(crate) fn check_within(self, rows: usize, columns: usize) -> Result<()> {
        let (rows, columns) = (rows as i64, columns as i64);
        for (name, index) in [("lower", self.lower), ("upper", self.upper)] {
            ensure!(
                (-rows < index && index < columns) || index == 0,
                InvalidArgument,
                "{name}_diag_index is out of bound: {index}. It must be between {} and {columns}",
                -rows
            );
        }
        Ok(())
    }

    /// Elements of the longest diagonal of the range in a matrix of this size.
    pub(crate) fn longest(self, rows: usize, columns: usize) -> usize {
        let down = rows as i64 + self.upper.min(0);
        let across = columns as i64 - self.lower.max(0);
        down.min(across).max(0) as usize
    }

    /// The sizes of the stored diagonals after the batch dimensions.
    pub(crate) fn stored(self, longest: usize) -> SmallVec<[usize; 2]> {
        let count = (self.count() > 1).then_some(self.count() as usize);
        count.into_iter().chain([longest]).collect()
    }
}

/// Positions of diagonals in a matrix and in their storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) band: Band,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Elements of a stored row.
    pub(crate) stored: usize,
    pub(crate) align: Align,
}

/// Which diagonals are left-aligned in their rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Align {
    pub(crate) upper_left: bool,
    pub(crate) lower_left: bool,
}

impl Align {
    /// The alignment from the attr; left if there is none.
    pub(crate) fn from_attrs(attrs: &NodeAttrs<'_>) -> Result<Align> {
        let align = match attrs.get("align") {
            Some(_) => attrs.string("align")?,
            None => "LEFT_LEFT",
        };
        Ok(Align { upper_left: align.starts_with("LEFT"), lower_left: align.ends_with("LEFT") })
    }
}

impl Layout {
    /// Number of elements of diagonal `d`, and their offset in its row.
    pub(crate) fn diagonal(&self, d: i64) -> (usize, usize) {
        let down = self.rows as i64 + d.min(0);
        let across = self.columns as i64 - d.max(0);
        let len = (down.min(across).max(0) as usize).min(self.stored);
        let is_left = (d >= 0 && self.align.upper_left) || (d <= 0 && self.align.lower_left);
        (len, if is_left { 0 } else { self.stored - len })
    }

    /// The columns of row `row` that are on stored diagonals.
    fn columns_of(&self, row: usize) -> std::ops::Range<usize> {
        let at = |d: i64| (row as i64).saturating_add(d).clamp(0, self.columns as i64) as usize;
        at(self.band.lower)..at(self.band.upper.saturating_add(1))
    }

    /// Index of the element at `row` and `column` among the stored elements of its matrix.
    fn position(&self, row: usize, column: usize) -> usize {
        let d = column as i64 - row as i64;
        let (_, offset) = self.diagonal(d);
        (self.band.upper - d) as usize * self.stored + offset + row.min(column)
    }

    /// Stored elements per matrix.
    fn stored_elements(&self) -> usize {
        self.band.count() as usize * self.stored
    }

    /// Writes the stored diagonals to the rows from `first` on, counted over the batch.
    fn write_rows<C: Cell>(&self, first: usize, out: &mut [C], stored: &[C]) {
        for (row, out) in (first..).zip(out.chunks_exact_mut(self.columns.max(1))) {
            let (matrix, row) = (row / self.rows, row % self.rows);
            let stored = &stored[matrix * self.stored_elements()..][..self.stored_elements()];
            for column in self.columns_of(row) {
                out[column] = stored[self.position(row, column)].clone();
            }
        }
    }
}

/// The padding value: the first element of input `i`, or zero if there is none.
fn padding<C: Cell>(ctx: &KernelContext<'_>, i: usize) -> Result<C> {
    if i >= ctx.num_inputs() {
        return Ok(C::default());
    }
    Ok(C::view(ctx.input(i)?)?.first().cloned().unwrap_or_default())
}

const MATRIX_DIAG: OpDef =
    OpDef::new("MatrixDiag", square_shape).with_gradient(|g| diag_grad(g, "MatrixDiagPart"));

/// The diagonals of the gradient.
fn diag_grad(g: &mut GradientContext<'_>, part: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let mut inputs: SmallVec<[_; 3]> = smallvec::smallvec![grad];
    if g.num_inputs() > 1 {
        inputs.push(g.input(1));
        inputs.push(g.number_like(grad, 0.0)?);
    }
    let taken = g.op_like(part, &["align"]).inputs(&inputs).build()?;
    g.set(0, taken)
}

const BATCH_MATRIX_DIAG: OpDef =
    OpDef { name: "BatchMatrixDiag", gradient: Gradient::Unknown, ..MATRIX_DIAG };

const MATRIX_DIAG_V2: OpDef = OpDef {
    name: "MatrixDiagV2",
    shape: matrix_diag_shape,
    gradient: Gradient::By(|g| diag_grad(g, "MatrixDiagPartV2")),
    ..MATRIX_DIAG
};

const MATRIX_DIAG_V3: OpDef = OpDef {
    name: "MatrixDiagV3",
    gradient: Gradient::By(|g| diag_grad(g, "MatrixDiagPartV3")),
    ..MATRIX_DIAG_V2
};

fn square_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let diagonal = c.with_rank_at_least(0, "diagonal", 1)?;
    let Some(dims) = diagonal.dims() else { return Ok(()) };
    let last = dims[dims.len() - 1];
    c.set_output(0, PartialShape::new(dims.iter().copied().chain([last])));
    Ok(())
}

fn matrix_diag_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let diagonal = c.with_rank_at_least(0, "diagonal", 1)?;
    let band = Band::from_constant(c, 1)?;
    for (i, name) in [(2, "num_rows"), (3, "num_cols"), (4, "padding_value")] {
        c.with_rank(i, name, 0)?;
    }
    let (Some(band), Some(dims)) = (band, diagonal.dims()) else { return Ok(()) };
    let outer = if band.count() > 1 { 2 } else { 1 };
    ensure!(
        dims.len() >= outer,
        InvalidArgument,
        "diagonal must have at least rank {outer} for several diagonals, got shape {diagonal}"
    );
    let batch = &dims[..dims.len() - outer];
    let size = |i| c.partial_value(i).and_then(|value| *value.elements.first()?);
    let (rows, columns) = match (dims[dims.len() - 1], size(2), size(3)) {
        (Some(longest), Some(rows), Some(columns)) => {
            let (rows, columns) = matrix_size(band, longest, rows, columns)?;
            (Some(rows), Some(columns))
        }
        _ => (None, None),
    };
    c.set_output(0, PartialShape::new(batch.iter().copied().chain([rows, columns])));
    Ok(())
}

/// The size of the matrix with these diagonals; -1 where it was not requested.
pub(crate) fn matrix_size(
    band: Band,
    longest: usize,
    rows: i64,
    columns: i64,
) -> Result<(usize, usize)> {
    let least_rows = longest as i64 - band.upper.min(0);
    let least_columns = longest as i64 + band.lower.max(0);
    ensure!(rows == -1 || rows >= least_rows, InvalidArgument, "The number of rows is too small.");
    ensure!(
        columns == -1 || columns >= least_columns,
        InvalidArgument,
        "The number of columns is too small."
    );
    let (rows, columns) = match (rows, columns) {
        (-1, -1) => {
            let size = least_rows.max(least_columns);
            (size, size)
        }
        (-1, columns) => (least_rows, columns),
        (rows, -1) => (rows, least_columns),
        both => both,
    };
    ensure!(
        rows == least_rows || columns == least_columns,
        InvalidArgument,
        "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal."
    );
    Ok((rows as usize, columns as usize))
}

fn matrix_diag(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let align = Align::from_attrs(&init.attrs())?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        let Some(&longest) = shape.last() else {
            bail!(InvalidArgument, "diagonal must be at least 1-dim, received shape: {shape}");
        };
        let mut band = Band::MAIN;
        let (mut rows, mut columns) = (longest, longest);
        if ctx.num_inputs() > 1 {
            band = Band::from_input(ctx, 1)?;
            for (i, name) in [(2, "num_rows"), (3, "num_cols"), (4, "padding_value")] {
                ensure!(ctx.input(i)?.rank() == 0, InvalidArgument, "{name} must be a scalar");
            }
            let (wanted, across) = (ctx.scalar_int(2, "num_rows")?, ctx.scalar_int(3, "num_cols")?);
            (rows, columns) = matrix_size(band, longest, wanted, across)?;
        }
        let outer = if band.count() > 1 { 2 } else { 1 };
        ensure!(
            outer == 1 || (shape.rank() >= 2 && shape[shape.rank() - 2] as i64 == band.count()),
            InvalidArgument,
            "The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index range."
        );
        let batch = &shape[..shape.rank() - outer];
        let dims: SmallVec<[usize; 4]> = batch.iter().copied().chain([rows, columns]).collect();
        let layout = Layout { band, rows, columns, stored: longest, align };
        let mut out = blank(ctx, ctx.output_dtype(0)?, Shape::new(&dims)?)?;
        with_cell!(out.dtype(), C => {
            let padding = padding::<C>(ctx, 4)?;
            let stored = C::view(ctx.input(0)?)?;
            let cost = nanoseconds_per_cell::<C>() * columns as f64 + 5.0;
            for_each_rows(ctx, C::view_mut(&mut out)?, columns, cost, |first, out| {
                fill(out, &padding);
                layout.write_rows(first, out, stored);
            })?;
        });
        ctx.set_output(0, out)
    })
}

const MATRIX_DIAG_PART: OpDef = OpDef::new("MatrixDiagPart", matrix_diag_part_shape)
    .with_work(Work::copies_outputs)
    .with_gradient(|g| part_grad(g, "MatrixSetDiag"));

/// The gradient as diagonals of a zero matrix.
fn part_grad(g: &mut GradientContext<'_>, set: &str) -> Result<()> {
    let (grad, input) = (g.grad(0)?, g.input(0));
    let zeros = g.add("ZerosLike", &[input])?;
    let mut inputs: SmallVec<[_; 3]> = smallvec::smallvec![zeros, grad];
    if g.num_inputs() > 1 {
        inputs.push(g.input(1));
    }
    let placed = g.op_like(set, &["align"]).inputs(&inputs).build()?;
    g.set(0, placed)
}

const BATCH_MATRIX_DIAG_PART: OpDef =
    OpDef { name: "BatchMatrixDiagPart", gradient: Gradient::Unknown, ..MATRIX_DIAG_PART };

const MATRIX_DIAG_PART_V2: OpDef = OpDef {
    name: "MatrixDiagPartV2",
    gradient: Gradient::By(|g| part_grad(g, "MatrixSetDiagV2")),
    ..MATRIX_DIAG_PART
};

const MATRIX_DIAG_PART_V3: OpDef = OpDef {
    name: "MatrixDiagPartV3",
    gradient: Gradient::By(|g| part_grad(g, "MatrixSetDiagV3")),
    ..MATRIX_DIAG_PART_V2
};

fn matrix_diag_part_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, "input", 2)?;
    let band = if c.num_inputs() > 1 { Band::from_constant(c, 1)? } else { Some(Band::MAIN) };
    let (Some(band), Some(dims)) = (band, input.dims()) else { return Ok(()) };
    let (batch, matrix) = dims.split_at(dims.len() - 2);
    let longest = match *matrix {
        [Some(rows), Some(columns)] => {
            band.check_within(rows, columns)?;
            Some(band.longest(rows, columns))
        }
        _ => None,
    };
    let count = (band.count() > 1).then_some(Some(band.count() as usize));
    c.set_output(0, PartialShape::new(batch.iter().copied().chain(count).chain([longest])));
    Ok(())
}

/// The sizes of the matrices in input 0, whose rank must be at least 2.
pub(crate) fn split_matrix(shape: &Shape) -> Result<(&[usize], usize, usize)> {
    match shape.dims() {
        [batch @ .., rows, columns] => Ok((batch, *rows, *columns)),
        _ => bail!(InvalidArgument, "input must be at least 2-dim, received shape: {shape}"),
    }
}

fn matrix_diag_part(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let align = Align::from_attrs(&init.attrs())?;
    AnyKernel::new(move |ctx| {
        let shape = ctx.input(0)?.shape();
        let (batch, rows, columns) = split_matrix(shape)?;
        let mut band = Band::MAIN;
        if ctx.num_inputs() > 1 {
            band = Band::from_input(ctx, 1)?;
            let padding = ctx.input(2)?;
            ensure!(padding.num_elements() == 1, InvalidArgument, "Padding must be scalar.");
            band.check_within(rows, columns)?;
        }
        let stored = band.longest(rows, columns);
        let layout = Layout { band, rows, columns, stored, align };
        let dims: SmallVec<[usize; 4]> = batch.iter().copied().chain(band.stored(stored)).collect();
        let mut out = blank(ctx, ctx.output_dtype(0)?, Shape::new(&dims)?)?;
        with_cell!(out.dtype(), C => {
            let padding = padding::<C>(ctx, 2)?;
            let source = C::view(ctx.input(0)?)?;
            let cost = nanoseconds_per_cell::<C>().max(1.0) * stored as f64 + 5.0;
            for_each_rows(ctx, C::view_mut(&mut out)?, stored, cost, |first, out| {
                for (row, out) in (first..).zip(out.chunks_exact_mut(stored)) {
                    read_diagonal(&layout, row, out, source, &padding);
                }
            })?;
        });
        ctx.set_output(0, out)
    })
}

/// Fills row `row` of the stored diagonals, counted over the batch.
fn read_diagonal<C: Cell>(layout: &Layout, row: usize, out: &mut [C], source: &[C], padding: &C) {
    let count = layout.band.count() as usize;
    let (matrix, d) = (row / count, layout.band.upper - (row % count) as i64);
    let (len, offset) = layout.diagonal(d);
    out[..offset].fill(padding.clone());
    out[offset + len..].fill(padding.clone());
    let (down, across) = ((-d).max(0) as usize, d.max(0) as usize);
    let start = matrix * layout.rows * layout.columns + down * layout.columns + across;
    for (i, out) in out[offset..offset + len].iter_mut().enumerate() {
        *out = source[start + i * (layout.columns + 1)].clone();
    }
}

const MATRIX_SET_DIAG: OpDef = OpDef::new("MatrixSetDiag", matrix_set_diag_shape)
    .with_gradient(|g| set_grad(g, "MatrixDiagPart"));

/// The gradient with its diagonals set to zero, and these diagonals.
fn set_grad(g: &mut GradientContext<'_>, part: &str) -> Result<()> {
    let (grad, diagonal, set) = (g.grad(0)?, g.input(1), g.node().op.name.clone());
    let zeros = g.add("ZerosLike", &[diagonal])?;
    let k = (g.num_inputs() > 2).then(|| g.input(2));
    let inputs: SmallVec<[_; 3]> = [grad, zeros].into_iter().chain(k).collect();
    let emptied = g.op_like(&set, &["align"]).inputs(&inputs).build()?;
    g.set(0, emptied)?;
    let mut inputs: SmallVec<[_; 3]> = [grad].into_iter().chain(k).collect();
    if k.is_some() {
        inputs.push(g.number_like(grad, 0.0)?);
    }
    let taken = g.op_like(part, &["align"]).inputs(&inputs).build()?;
    g.set(1, taken)
}

const BATCH_MATRIX_SET_DIAG: OpDef =
    OpDef { name: "BatchMatrixSetDiag", gradient: Gradient::Unknown, ..MATRIX_SET_DIAG };

const MATRIX_SET_DIAG_V2: OpDef = OpDef {
    name: "MatrixSetDiagV2",
    gradient: Gradient::By(|g| set_grad(g, "MatrixDiagPartV2")),
    ..MATRIX_SET_DIAG
};

const MATRIX_SET_DIAG_V3: OpDef = OpDef {
    name: "MatrixSetDiagV3",
    gradient: Gradient::By(|g| set_grad(g, "MatrixDiagPartV3")),
    ..MATRIX_SET_DIAG_V2
};

fn matrix_set_diag_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_least(0, "input", 2)?;
    let diagonal = c.with_rank_at_least(1, "diagonal", 1)?;
    let band = if c.num_inputs() > 2 { Band::from_constant(c, 2)? } else { Some(Band::MAIN) };
    let mut output = input.clone();
    if let (Some(band), Some(dims)) = (band, input.dims()) {
        let (batch, matrix) = dims.split_at(dims.len() - 2);
        let longest = match *matrix {
            [Some(rows), Some(columns)] => {
                band.check_within(rows, columns)?;
                Some(band.longest(rows, columns))
            }
            _ => None,
        };
        let count = (band.count() > 1).then_some(Some(band.count() as usize));
        let expected = PartialShape::new(batch.iter().copied().chain(count).chain([longest]));
        let merged = expected.merge(diagonal)?;
        let batch = merged.dims().map_or(batch, |dims| &dims[..batch.len()]);
        output = PartialShape::new(batch.iter().chain(matrix).copied());
    }
    c.set_output(0, output);
    Ok(())
}

fn matrix_set_diag(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let align = Align::from_attrs(&init.attrs())?;
    AnyKernel::new(move |ctx| {
        let (shape, diagonal) = (ctx.input(0)?.shape().clone(), ctx.input(1)?.shape());
        let (batch, rows, columns) = split_matrix(&shape)?;
        ensure!(
            diagonal.rank() >= 1,
            InvalidArgument,
            "diagonal must be at least 1-dim, received shape: {diagonal}"
        );
        let mut band = Band::MAIN;
        if ctx.num_inputs() > 2 {
            band = Band::from_input(ctx, 2)?;
            band.check_within(rows, columns)?;
        }
        let stored = band.longest(rows, columns);
        let expected: SmallVec<[usize; 4]> =
            batch.iter().copied().chain(band.stored(stored)).collect();
        ensure!(
            diagonal.dims() == &expected[..],
            InvalidArgument,
            "diagonals {} to {} of matrices {shape} must have shape {:?}, but have {diagonal}",
            band.lower,
            band.upper,
            expected
        );
        let layout = Layout { band, rows, columns, stored, align };
        let dtype = ctx.output_dtype(0)?;
        let (mut out, taken) = ctx.forward_input_or_allocate(&[0], dtype, &shape)?;
        with_cell!(dtype, C => {
            let source = if taken.is_some() { None } else { Some(C::view(ctx.input(0)?)?) };
            let stored = C::view(ctx.input(1)?)?;
            let cost = nanoseconds_per_cell::<C>() * columns as f64 + 5.0;
            for_each_rows(ctx, C::view_mut(&mut out)?, columns, cost, |first, out| {
                if let Some(source) = source {
                    out.clone_from_slice(&source[first * columns..][..out.len()]);
                }
                layout.write_rows(first, out, stored);
            })?;
        });
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code, pairs};
    use thalweg_tensor::{Code, Tensor};

    fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    fn counting(dims: &[usize]) -> Tensor {
        let values: Vec<f32> = (1..=dims.iter().product::<usize>()).map(|i| i as f32).collect();
        tensor(dims, &values)
    }

    #[test]
    fn shapes() {
        let part = |input: &str, k: &[i32]| {
            let call = call("MatrixDiagPartV3").shape(DType::Float, input);
            call.constant(Tensor::vector(k).unwrap()).shape(DType::Float, "").infer()
        };
        assert_eq!(part("5,3,4", &[-1, 2]), "[5,4,3]");
        assert_eq!(part("?,3,4", &[2]), "[?,2]");
        assert_eq!(part("5,?,4", &[2, 3]), "[5,2,?]");
        assert!(part("3,4", &[4]).starts_with("INVALID_ARGUMENT"));
        let diag = |diagonal: &str, k: &[i32], rows: i32, columns: i32| {
            let call = call("MatrixDiagV3").shape(DType::Float, diagonal);
            let call = call.constant(Tensor::vector(k).unwrap()).constant(Tensor::scalar(rows));
            call.constant(Tensor::scalar(columns)).shape(DType::Float, "").infer()
        };
        assert_eq!(diag("3", &[1], -1, -1), "[4,4]");
        assert_eq!(diag("7,2,3", &[-1, 0], -1, -1), "[7,3,3]");
        assert_eq!(diag("2", &[1], 2, -1), "[2,3]");
        assert!(diag("2", &[1], 5, 5).starts_with("INVALID_ARGUMENT"));
        assert!(diag("2", &[0, 1], -1, -1).starts_with("INVALID_ARGUMENT"));
    }

    /// Recorded from TensorFlow: the range -2..=2 of a 3 by 4 matrix, in each alignment.
    #[test]
    fn alignments() {
        for (align, expected) in [
            ("LEFT_RIGHT", [3, 8, 9, 2, 7, 12, 1, 6, 11, 9, 5, 10, 9, 9, 9]),
            ("RIGHT_LEFT", [9, 3, 8, 2, 7, 12, 1, 6, 11, 5, 10, 9, 9, 9, 9]),
            ("LEFT_LEFT", [3, 8, 9, 2, 7, 12, 1, 6, 11, 5, 10, 9, 9, 9, 9]),
            ("RIGHT_RIGHT", [9, 3, 8, 2, 7, 12, 1, 6, 11, 9, 5, 10, 9, 9, 9]),
        ] {
            let part = call("MatrixDiagPartV3").input(counting(&[3, 4]));
            let part = part.input(Tensor::vector(&[-2, 2]).unwrap()).input(Tensor::scalar(9f32));
            let part = part.attr("align", align).run().unwrap();
            assert_eq!(part.as_slice::<f32>().unwrap(), expected.map(|x| x as f32), "{align}");
        }
    }

    /// `MatrixDiagPart` inverts `MatrixSetDiag` and `MatrixDiag`.
    #[test]
    fn there_and_back() {
        let sizes = [(1usize, 1usize), (3, 4), (4, 2)];
        for ((rows, columns), align) in sizes
            .into_iter()
            .flat_map(|s| ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"].map(|a| (s, a)))
        {
            for lower in 1 - rows as i32..columns as i32 {
                for upper in lower..columns as i32 {
                    let k = || Tensor::vector(&[lower, upper]).unwrap();
                    let matrix = counting(&[2, rows, columns]);
                    let part = call("MatrixDiagPartV3").input(matrix.clone()).input(k());
                    let part = part.input(Tensor::scalar(-1f32)).attr("align", align);
                    let part = part.backwards().run().unwrap();
                    let zeros = tensor(&[2, rows, columns], &vec![0.0; 2 * rows * columns]);
                    let set = call("MatrixSetDiagV3").input(zeros).input(part.clone()).input(k());
                    let set = set.attr("align", align).run().unwrap();
                    let set = set.as_slice::<f32>().unwrap();
                    for (i, (&got, &from)) in
                        pairs(set, matrix.as_slice::<f32>().unwrap()).enumerate()
                    {
                        let d = (i % columns) as i32 - (i / columns % rows) as i32;
                        let expected = if (lower..=upper).contains(&d) { from } else { 0.0 };
                        assert_eq!(got, expected, "{rows} {columns} {lower} {upper} {align}");
                    }
                    let size = |n: usize| Tensor::scalar(n as i32);
                    let made = call("MatrixDiagV3").input(part).input(k()).input(size(rows));
                    let made = made.input(size(columns)).input(Tensor::scalar(0f32));
                    let made = made.attr("align", align).run().unwrap();
                    assert_eq!(made.as_slice::<f32>().unwrap(), set);
                }
            }
        }
    }

    #[test]
    fn hostile_inputs() {
        let diag = |diagonal: Tensor, k: &[i32], rows: i32, columns: i32| {
            let call = call("MatrixDiagV2").input(diagonal);
            let call = call.input(Tensor::vector(k).unwrap()).input(Tensor::scalar(rows));
            call.input(Tensor::scalar(columns)).input(Tensor::scalar(0f32)).run()
        };
        assert_eq!(code(diag(counting(&[2]), &[-1, 0], -1, -1)), Some(Code::InvalidArgument));
        assert_eq!(code(diag(Tensor::scalar(1f32), &[0], -1, -1)), Some(Code::InvalidArgument));
        assert_eq!(
            code(diag(counting(&[2]), &[i32::MIN, i32::MAX], -1, -1)),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(diag(counting(&[2]), &[i32::MAX], i32::MAX, i32::MAX)),
            Some(Code::InvalidArgument)
        );
        assert_eq!(code(diag(counting(&[2]), &[], -1, -1)), Some(Code::InvalidArgument));
        let empty = || Tensor::zeros(DType::Float, Shape::new(&[2, 0, 3]).unwrap()).unwrap();
        let part = call("MatrixDiagPart").input(empty()).run().unwrap();
        assert_eq!(part.shape().dims(), [2, 0]);
    }
}
