//! Shape functions of ops on batches of matrices.

use thalweg_graph::ShapeContext;
use thalweg_tensor::{PartialShape, Result, ensure};

/// The last two sizes of a tensor, and its batch dimensions.
pub(crate) struct Matrices {
    pub(crate) batch: PartialShape,
    pub(crate) rows: Option<usize>,
    pub(crate) columns: Option<usize>,
}

impl Matrices {
    /// The sizes of input `i`; all unknown if its rank is unknown.
    pub(crate) fn of(c: &ShapeContext<'_>, i: usize, name: &str) -> Result<Matrices> {
        let shape = c.with_rank_at_least(i, name, 2)?;
        Ok(match shape.dims() {
            Some([batch @ .., rows, columns]) => Matrices {
                batch: PartialShape::new(batch.iter().copied()),
                rows: *rows,
                columns: *columns,
            },
            _ => Matrices { batch: PartialShape::unknown(), rows: None, columns: None },
        })
    }

    /// As [`Matrices::of`], for matrices that must be square.
    pub(crate) fn square(c: &ShapeContext<'_>, i: usize, name: &str) -> Result<Matrices> {
        let mut matrices = Matrices::of(c, i, name)?;
        let side = equal(matrices.rows, matrices.columns, "the sides of a square matrix")?;
        (matrices.rows, matrices.columns) = (side, side);
        Ok(matrices)
    }

    /// The batch dimensions followed by `last`.
    pub(crate) fn with(&self, last: &[Option<usize>]) -> PartialShape {
        followed(&self.batch, last)
    }

    /// The smaller of rows and columns.
    pub(crate) fn shorter(&self) -> Option<usize> {
        match (self.rows, self.columns) {
            (Some(0), _) | (_, Some(0)) => Some(0),
            (rows, columns) => rows.zip(columns).map(|(rows, columns)| rows.min(columns)),
        }
    }
}

/// `batch` followed by these sizes.
pub(crate) fn followed(batch: &PartialShape, last: &[Option<usize>]) -> PartialShape {
    match batch.dims() {
        Some(dims) => PartialShape::new(dims.iter().chain(last).copied()),
        None => PartialShape::unknown(),
    }
}

/// Merges two sizes that must be equal.
pub(crate) fn equal(a: Option<usize>, b: Option<usize>, what: &str) -> Result<Option<usize>> {
    if let (Some(a), Some(b)) = (a, b) {
        ensure!(a == b, InvalidArgument, "{what} must be equal, but are {a} and {b}");
    }
    Ok(a.or(b))
}

/// The output has the shape of the input, whose matrices must be square.
pub(crate) fn square(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::square(c, 0, "input")?;
    c.set_output(0, matrices.with(&[matrices.rows, matrices.columns]));
    Ok(())
}

/// Outputs of one number for each square matrix.
pub(crate) fn numbers(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrices = Matrices::square(c, 0, "input")?;
    for i in 0..c.num_outputs() {
        c.set_output(i, matrices.batch.clone());
    }
    Ok(())
}
