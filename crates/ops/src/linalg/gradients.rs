//! Helpers of linear algebra gradients: products, adjoints and diagonals of matrices.

use thalweg_graph::{GradientContext, Output};
use thalweg_tensor::{DType, Result, Tensor};

use crate::gradients::{Arithmetic, conj};

/// Operations on matrices in the last two dimensions of tensors.
pub(crate) trait MatrixArithmetic {
    /// The product of two matrices; the flags select the adjoint of each.
    fn product(&mut self, x: (Output, bool), y: (Output, bool)) -> Result<Output>;
    /// The conjugate transpose.
    fn adjoint_matrix(&mut self, x: Output) -> Result<Output>;
    /// The diagonal of matrices.
    fn diagonal(&mut self, x: Output) -> Result<Output>;
    /// Matrices with this diagonal, zero elsewhere.
    fn diagonal_matrix(&mut self, x: Output) -> Result<Output>;
    /// The lower (or upper) triangle; zero elsewhere.
    fn triangle(&mut self, x: Output, is_lower: bool) -> Result<Output>;
    /// `x` with a new dimension of size 1 at `axis`.
    fn expanded(&mut self, x: Output, axis: i32) -> Result<Output>;
    /// An Einstein sum.
    fn einsum(&mut self, equation: &str, operands: &[Output]) -> Result<Output>;
    /// The slice `begin..end` of axis `axis` of a tensor of known rank.
    fn part(&mut self, x: Output, axis: i32, range: (i32, Option<i32>)) -> Result<Output>;
    /// `x / (x² + tiny)`: the reciprocal, except zero at zero.
    fn safe_reciprocal(&mut self, x: Output) -> Result<Output>;
    /// The real part of a complex tensor, as a complex tensor; a real tensor unchanged.
    fn real_part(&mut self, x: Output) -> Result<Output>;
}

impl MatrixArithmetic for GradientContext<'_> {
    fn product(
        &mut self,
        (x, adj_x): (Output, bool),
        (y, adj_y): (Output, bool),
    ) -> Result<Output> {
        self.op("BatchMatMulV2").inputs(&[x, y]).attr("adj_x", adj_x).attr("adj_y", adj_y).build()
    }

    fn adjoint_matrix(&mut self, x: Output) -> Result<Output> {
        let turned = self.einsum("...ij->...ji", &[x])?;
        conj(self, turned)
    }

    fn diagonal(&mut self, x: Output) -> Result<Output> {
        self.einsum("...ii->...i", &[x])
    }

    fn diagonal_matrix(&mut self, x: Output) -> Result<Output> {
        self.einsum("...i->...ii", &[x])
    }

    fn triangle(&mut self, x: Output, is_lower: bool) -> Result<Output> {
        let (all, none) = (self.int(-1)?, self.int(0)?);
        let [lower, upper] = if is_lower { [all, none] } else { [none, all] };
        self.add("MatrixBandPart", &[x, lower, upper])
    }

    fn expanded(&mut self, x: Output, axis: i32) -> Result<Output> {
        let axis = self.int(axis)?;
        self.add("ExpandDims", &[x, axis])
    }

    fn einsum(&mut self, equation: &str, operands: &[Output]) -> Result<Output> {
        self.op("Einsum").inputs(operands).attr("equation", equation).build()
    }

    fn part(&mut self, x: Output, axis: i32, (begin, end): (i32, Option<i32>)) -> Result<Output> {
        // An ellipsis covers the axes before, however many there are.
        let after = -1 - axis;
        let mut begins = vec![0];
        let mut ends = vec![0];
        begins.push(begin);
        ends.push(end.unwrap_or(0));
        begins.extend((0..after).map(|_| 0));
        ends.extend((0..after).map(|_| 0));
        let open = ((1i64 << after) - 1) << 2;
        let end_mask = open | if end.is_none() { 2 } else { 0 };
        let (begins, ends) = (self.ints(&begins)?, self.ints(&ends)?);
        let steps = self.ints(&vec![1; after as usize + 2])?;
        self.op("StridedSlice")
            .inputs(&[x, begins, ends, steps])
            .attr("ellipsis_mask", 1i64)
            .attr("begin_mask", open)
            .attr("end_mask", end_mask)
            .build()
    }

    fn safe_reciprocal(&mut self, x: Output) -> Result<Output> {
        let square = self.times(x, x)?;
        let above = self.shifted(square, 1e-20)?;
        let inverse = self.reciprocal(above)?;
        self.times(x, inverse)
    }

    fn real_part(&mut self, x: Output) -> Result<Output> {
        let dtype = self.dtype(x);
        let narrow = match dtype {
            DType::Complex64 => DType::Float,
            DType::Complex128 => DType::Double,
            _ => return Ok(x),
        };
        let real = self.op("Real").input(x).attr("Tout", narrow).build()?;
        self.cast(real, dtype)
    }
}

/// The shape of `x` followed by these numbers, as a vector.
pub(crate) fn shape_and(g: &mut GradientContext<'_>, x: Output, last: &[i32]) -> Result<Output> {
    let (shape, last) = (g.shape_of(x)?, g.ints(last)?);
    let axis = g.int(0)?;
    g.op("ConcatV2").inputs(&[shape, last, axis]).build()
}

/// Ones of the dtype of `like`, of shape `shape` followed by `count` (a vector of one number).
pub(crate) fn ones(g: &mut GradientContext<'_>, shape: Output, like: Output) -> Result<Output> {
    let one = g.number_like(like, 1.0)?;
    g.add("Fill", &[shape, one])
}

/// Element `axis` of the shape of `x`, as a vector of one number.
pub(crate) fn size_along(g: &mut GradientContext<'_>, x: Output, axis: i32) -> Result<Output> {
    let known = g.shape(x);
    if let Some(rank) = known.rank() {
        let at = if axis < 0 { axis + rank as i32 } else { axis };
        if let Some(size) = known.dim(at as usize).and_then(|size| i32::try_from(size).ok()) {
            return g.scope().constant(&Tensor::vector(&[size])?);
        }
    }
    let shape = g.shape_of(x)?;
    let begin = g.ints(&[axis])?;
    let (end, step) = (g.ints(&[axis.wrapping_add(1)])?, g.ints(&[1])?);
    // For the last element there is no end index, so `end_mask` is set.
    let open = if axis == -1 { 1i64 } else { 0 };
    g.op("StridedSlice").inputs(&[shape, begin, end, step]).attr("end_mask", open).build()
}
