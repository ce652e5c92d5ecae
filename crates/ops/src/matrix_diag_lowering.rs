//! Lowering of `MatrixDiag`, `MatrixDiagPart` and `MatrixSetDiag`.
//!
//! A single diagonal, the usual case, is sliced or broadcast; of a range of diagonals the positions are
//! computed and gathered.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, Shape, Tensor, ensure};

use crate::matrix_diag::{Align, Band, Layout, matrix_size, split_matrix};
use crate::rows_lowering::gathered;

/// The range of diagonals in input `i`; the main diagonal if there is no such input.
fn band(l: &Lowering<'_>, i: usize) -> Result<Band> {
    if i < l.num_inputs() { Band::new(&l.ints(i)?) } else { Ok(Band::MAIN) }
}

/// The padding in input `i`; zero if there is no such input.
fn padding(l: &Lowering<'_>, i: usize, like: &Value) -> Result<Value> {
    if i >= l.num_inputs() {
        return Ok(like.scalar_like(0.0));
    }
    let padding = l.input(i)?;
    ensure!(padding.num_elements() == 1, InvalidArgument, "Padding must be scalar.");
    Ok(padding.reshape(&[]))
}

pub(crate) fn diag(l: &mut Lowering<'_>) -> Result<()> {
    let (stored, band) = (l.input(0)?, band(l, 1)?);
    let longest = stored.dims().last().copied().unwrap_or(0);
    let (rows, columns) = match l.num_inputs() {
        1 => (longest, longest),
        _ => matrix_size(band, longest, l.int(2)?, l.int(3)?)?,
    };
    let outer = if band.count() > 1 { 2 } else { 1 };
    let rank = stored.rank();
    ensure!(
        rank >= outer && (outer == 1 || stored.dims()[rank - 2] as i64 == band.count()),
        InvalidArgument,
        "The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index range."
    );
    let align = Align::from_attrs(&l.attrs())?;
    let layout = Layout { band, rows, columns, stored: longest, align };
    let padding = padding(l, 4, &stored)?;
    let dims = l.output_dims(0)?;
    l.set(0, layout.place(&stored, &padding, &dims))
}

pub(crate) fn set(l: &mut Lowering<'_>) -> Result<()> {
    let (x, stored, band) = (l.input(0)?, l.input(1)?, band(l, 2)?);
    let shape = Shape::new(x.dims())?;
    let (batch, rows, columns) = split_matrix(&shape)?;
    band.check_within(rows, columns)?;
    let longest = band.longest(rows, columns);
    ensure!(
        *stored.dims() == [batch, &band.stored(longest)].concat(),
        InvalidArgument,
        "diagonals {} to {} of matrices {shape} do not have shape {:?}",
        band.lower,
        band.upper,
        stored.dims()
    );
    let align = Align::from_attrs(&l.attrs())?;
    let layout = Layout { band, rows, columns, stored: longest, align };
    l.set(0, layout.place(&stored, &x, x.dims()))
}

pub(crate) fn part(l: &mut Lowering<'_>) -> Result<()> {
    let (x, band) = (l.input(0)?, band(l, 1)?);
    let shape = Shape::new(x.dims())?;
    let (batch, rows, columns) = split_matrix(&shape)?;
    band.check_within(rows, columns)?;
    let stored = band.longest(rows, columns);
    let align = Align::from_attrs(&l.attrs())?;
    let layout = Layout { band, rows, columns, stored, align };
    let padding = padding(l, 2, &x)?;
    let taken = layout.take(&x.reshape(&[batch.iter().product(), rows * columns]), &padding)?;
    l.set(0, taken.reshape(&[batch, &band.stored(stored)].concat()))
}

impl Layout {
    /// Matrices of dimensions `dims` with the stored diagonals, and elsewhere those of `others`, which
    /// broadcasts.
    fn place(&self, stored: &Value, others: &Value, dims: &[usize]) -> Value {
        let matrix = [self.rows, self.columns];
        if dims.contains(&0) || self.stored == 0 {
            return others.broadcast_to(dims);
        }
        let batch: usize = dims[..dims.len() - 2].iter().product();
        let place = |dim: usize| stored.iota(DType::Int64, &matrix, dim);
        let d = place(1) - place(0);
        let is_stored = d
            .compare_to(Comparison::GreaterEqual, self.band.lower as f64)
            .and(&d.compare_to(Comparison::LessEqual, self.band.upper as f64));
        let all = [batch, self.rows, self.columns];
        let values = if self.band.count() == 1 {
            // An element depends on its row only, or below the main diagonal on its column.
            let dim = usize::from(self.band.upper < 0);
            let missing = matrix[dim] as i64 - self.stored as i64;
            let line = stored.reshape(&[batch, self.stored]);
            line.pad(&line.scalar_like(0.0), &[0, 0], &[0, missing], &[0, 0])
                .broadcast_in(&all, &[0, dim + 1])
        } else {
            let row = (-&d + self.band.upper as f64) * self.stored as f64;
            let position = row + self.offset(&d) + place(0).minimum(&place(1));
            let position = is_stored.select(&position, &position.scalar_like(-1.0));
            let stored = stored.reshape(&[batch, self.band.count() as usize * self.stored]);
            gathered(&stored, &position, 1, 0)
        };
        is_stored.select(&values.reshape(dims), others)
    }

    /// Where diagonal `d` begins in its stored row.
    fn offset(&self, d: &Value) -> Value {
        let zero = d.scalar_like(0.0);
        let down = d.minimum(&zero) + self.rows as f64;
        let across = -(d.maximum(&zero) - self.columns as f64);
        let len = down.minimum(&across).minimum(&d.scalar_like(self.stored as f64));
        let right = -(len - self.stored as f64);
        let is_left = |comparison, is_left: bool| match is_left {
            true => d.compare_to(comparison, 0.0),
            false => d.splat(DType::Bool, d.dims(), 0.0),
        };
        is_left(Comparison::GreaterEqual, self.align.upper_left)
            .or(&is_left(Comparison::LessEqual, self.align.lower_left))
            .select(&zero, &right)
    }

    /// The diagonals of matrices, each of which is a row of `x`: batch, diagonal, position.
    fn take(&self, x: &Value, padding: &Value) -> Result<Value> {
        let (batch, count) = (x.dims()[0], self.band.count());
        let dims = [batch, count as usize, self.stored];
        if dims.contains(&0) {
            return Ok(x.splat(x.dtype(), &dims, 0.0));
        }
        let start = |d: i64| (-d).max(0) as usize * self.columns + d.max(0) as usize;
        if count == 1 {
            let first = start(self.band.upper);
            let limit = first + (self.stored - 1) * (self.columns + 1) + 1;
            let line = x.slice(&[0, first], &[batch, limit], &[1, self.columns + 1]);
            return Ok(line.reshape(&dims));
        }
        let diagonals: Vec<i64> = (0..count).map(|i| self.band.upper - i).collect();
        let column = |f: &dyn Fn(i64) -> usize| -> Result<Value> {
            let values: Vec<i64> = diagonals.iter().map(|&d| f(d) as i64).collect();
            Ok(x.constant(&Tensor::vector(&values)?).expand(1))
        };
        let place = x.iota(DType::Int64, &dims[1..], 1) - column(&|d| self.diagonal(d).1)?;
        let is_there = place
            .compare_to(Comparison::GreaterEqual, 0.0)
            .and(&place.compare(Comparison::Less, &column(&|d| self.diagonal(d).0)?));
        let position = place * (self.columns + 1) as f64 + column(&start)?;
        let position = is_there.select(&position, &position.scalar_like(-1.0));
        Ok(is_there.select(&gathered(x, &position, 1, 0), padding))
    }
}
