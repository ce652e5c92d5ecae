//! LU decomposition with partial pivoting on accelerators, and what follows from it: one loop over the
//! columns, for all matrices of a batch at once.
//!
//! A singular matrix is no error: its inverse and solutions are not finite.

use thalweg_hlo::{Comparison, Value};
use thalweg_kernel::Lowering;
use thalweg_tensor::{DType, Result, ensure};

use super::factor_lowering::{adjoint, is_lower, square_input};
use crate::lowering::{set_narrow, wide};
use crate::rows_lowering::gathered;

/// The factors of a batch of square matrices.
pub(crate) struct Factors {
    /// The unit lower triangle below the diagonal, the upper one on and above it.
    both: Value,
    /// Row `i` of the product of the factors is row `order[i]` of the matrix.
    order: Value,
    /// 1, or -1 after an odd number of exchanges of rows.
    parity: Value,
}

/// The matrices of input `i` in one batch dimension, in the dtype of computation.
fn batch_of(x: &Value) -> Value {
    let (rows, columns) = (x.dims()[x.rank() - 2], x.dims()[x.rank() - 1]);
    let count = x.dims()[..x.rank() - 2].iter().product();
    wide(x).reshape(&[count, rows, columns])
}

/// Row or column `k` of each matrix, with a dimension of 1 in its place.
fn line(x: &Value, dim: usize, k: &Value) -> Value {
    let mut starts = vec![k.scalar_like(0.0); x.rank()];
    let mut sizes = x.dims().to_vec();
    (starts[dim], sizes[dim]) = (k.clone(), 1);
    x.dynamic_slice(&starts, &sizes)
}

/// Exchanges row `k` and the row at `pivot` of each matrix; row `k` comes back too.
fn exchanged(x: &Value, k: &Value, is_pivot: &Value, is_current: &Value) -> (Value, Value) {
    let chosen = is_pivot.select(x, &x.scalar_like(0.0)).sum(&[1]).expand(1);
    let current = line(x, 1, k);
    (is_current.select(&chosen, &is_pivot.select(&current, x)), chosen)
}

impl Factors {
    pub(crate) fn of(a: &Value) -> Factors {
        let dims = a.dims().to_vec();
        let (count, n) = (dims[0], dims[1]);
        let rows = a.iota(DType::Int32, &[count, n, 1], 1);
        let columns = a.iota(DType::Int32, &[1, 1, n], 2);
        let real = a.abs();
        let start = [
            a.splat(DType::Int32, &[], 0.0),
            a.clone(),
            rows.clone(),
            real.splat(real.dtype(), &[count], 1.0),
        ];
        let end = a.splat(DType::Int32, &[], n as f64);
        let done = Value::repeat_while(
            &start,
            |v| v[0].compare(Comparison::Less, &end),
            |v| {
                let [k, a, order, parity] = v else { return v.to_vec() };
                let is_current = rows.compare(Comparison::Equal, k);
                let is_below = rows.compare(Comparison::Greater, k);
                let size = line(a, 2, k).abs();
                let size = is_below.or(&is_current).select(&size, &size.scalar_like(-1.0));
                let pivot = size.arg_extreme(1, true, DType::Int32).expand(1);
                let is_pivot = rows.compare(Comparison::Equal, &pivot);
                let (swapped, row) = exchanged(a, k, &is_pivot, &is_current);
                let (order, _) = exchanged(order, k, &is_pivot, &is_current);
                let is_even = pivot.compare(Comparison::Equal, k).reshape(&[count]);
                let parity = is_even.select(parity, &parity.negate());
                let pivot = line(&row, 2, k);
                let is_nothing = pivot.abs().compare_to(Comparison::Equal, 0.0);
                let zero = a.scalar_like(0.0);
                let factors = line(&swapped, 2, k) / &pivot;
                let factors = is_below.and(&is_nothing.not()).select(&factors, &zero);
                let is_right = columns.compare(Comparison::Greater, k);
                let rest = &swapped - &factors * is_right.select(&row, &zero);
                let is_column = columns.compare(Comparison::Equal, k).and(&is_below);
                vec![k + 1.0, is_column.select(&factors, &rest), order, parity]
            },
        );
        Factors {
            both: done[1].clone(),
            order: done[2].reshape(&[count, n]),
            parity: done[3].clone(),
        }
    }

    /// The solutions of systems with these matrices, or with their adjoints.
    fn solve(&self, right: &Value, is_adjoint: bool) -> Value {
        let one = self.both.scalar_like(1.0);
        let is_lower = is_lower(&self.both);
        let is_diagonal = is_lower.and(&adjoint(&is_lower));
        // What is on the other side of the diagonal is not read.
        let lower = is_diagonal.select(&one, &self.both);
        if !is_adjoint {
            let right = gathered(right, &self.order, 1, 1);
            let right = lower.triangular_solve(&right, true, false);
            return self.both.triangular_solve(&right, false, false);
        }
        let right = self.both.triangular_solve(right, false, true);
        let right = lower.triangular_solve(&right, true, true);
        let places = self.order.iota(DType::Int32, self.order.dims(), 1);
        let inverse = Value::sort_together(&[self.order.clone(), places], 1, |v| {
            v[0].0.compare(Comparison::Less, &v[0].1)
        });
        gathered(&right, &inverse[1], 1, 1)
    }

    /// The elements on the diagonal.
    fn diagonal(&self) -> Value {
        let is_lower = is_lower(&self.both);
        let is_diagonal = is_lower.and(&adjoint(&is_lower));
        is_diagonal.select(&self.both, &self.both.scalar_like(0.0)).sum(&[2])
    }

    fn parity(&self) -> Value {
        match self.both.dtype().is_complex() {
            true => self.parity.complex(&self.parity.zeros_like()),
            false => self.parity.clone(),
        }
    }
}

fn product(x: &Value) -> Value {
    x.reduce(thalweg_hlo::Reduction::Product, &[1])
}

pub(crate) fn lower_determinant(l: &mut Lowering<'_>) -> Result<()> {
    let x = square_input(l, 0)?;
    let dims = &x.dims()[..x.rank() - 2];
    if x.num_elements() == 0 {
        return l.set(0, x.splat(x.dtype(), dims, 1.0));
    }
    let factors = Factors::of(&batch_of(&x));
    let determinant = product(&factors.diagonal()) * factors.parity();
    l.set(0, determinant.reshape(dims))
}

/// The sign and the logarithm of the absolute value.
pub(crate) fn lower_log_determinant(l: &mut Lowering<'_>) -> Result<()> {
    let x = square_input(l, 0)?;
    let dims = &x.dims()[..x.rank() - 2];
    if x.num_elements() == 0 {
        l.set(0, x.splat(x.dtype(), dims, 1.0))?;
        return l.set(1, x.splat(x.dtype(), dims, 0.0));
    }
    let factors = Factors::of(&batch_of(&x));
    let diagonal = factors.diagonal();
    let size = diagonal.abs();
    let is_complex = x.dtype().is_complex();
    let sized = if is_complex { size.complex(&size.zeros_like()) } else { size.clone() };
    let signs = &diagonal / sized;
    let is_zero = size.compare_to(Comparison::Equal, 0.0);
    let signs = is_zero.select(&signs.scalar_like(0.0), &signs);
    let log = size.log().sum(&[1]);
    let log = if is_complex { log.complex(&log.zeros_like()) } else { log };
    l.set(0, (product(&signs) * factors.parity()).reshape(dims))?;
    l.set(1, log.reshape(dims))
}

pub(crate) fn lower_inverse(l: &mut Lowering<'_>) -> Result<()> {
    let x = square_input(l, 0)?;
    if x.num_elements() == 0 {
        return l.set(0, x);
    }
    let batch = batch_of(&x);
    let is_lower = is_lower(&batch);
    let is_diagonal = is_lower.and(&adjoint(&is_lower));
    let identity = is_diagonal.select(&batch.scalar_like(1.0), &batch.scalar_like(0.0));
    let inverse = Factors::of(&batch).solve(&identity, l.attrs().bool("adjoint")?);
    set_narrow(l, 0, &inverse.reshape(x.dims()))
}

pub(crate) fn lower_solve(l: &mut Lowering<'_>) -> Result<()> {
    let (x, right) = (square_input(l, 0)?, l.input(1)?);
    let fits = right.rank() == x.rank() && right.dims()[..x.rank() - 1] == x.dims()[..x.rank() - 1];
    ensure!(
        fits,
        InvalidArgument,
        "Input matrix and rhs are incompatible: {:?} and {:?}",
        x.dims(),
        right.dims()
    );
    if right.num_elements() == 0 || x.num_elements() == 0 {
        return l.set(0, right);
    }
    let is_adjoint = l.attrs().bool("adjoint")?;
    let solution = Factors::of(&batch_of(&x)).solve(&batch_of(&right), is_adjoint);
    set_narrow(l, 0, &solution.reshape(right.dims()))
}

pub(crate) fn lower_lu(l: &mut Lowering<'_>) -> Result<()> {
    let x = square_input(l, 0)?;
    let dims = x.dims().to_vec();
    if x.num_elements() == 0 {
        l.set(1, x.splat(l.output_dtype(1), &dims[..dims.len() - 1], 0.0))?;
        return l.set(0, x);
    }
    let factors = Factors::of(&batch_of(&x));
    l.set(0, factors.both.reshape(&dims))?;
    let order = factors.order.convert(l.output_dtype(1));
    l.set(1, order.reshape(&dims[..dims.len() - 1]))
}

/// QR decomposition by Householder reflections: a loop that makes one column after the other zero below
/// the diagonal, and one that multiplies the reflections.
pub(crate) fn lower_qr(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    ensure!(x.rank() >= 2, InvalidArgument, "Input must have rank >= 2, got {}", x.rank());
    let batch = &x.dims()[..x.rank() - 2];
    let (m, n) = (x.dims()[x.rank() - 2], x.dims()[x.rank() - 1]);
    let inner = if l.attrs().bool("full_matrices")? { m } else { m.min(n) };
    let (q_dims, r_dims) = ([batch, &[m, inner]].concat(), [batch, &[inner, n]].concat());
    let identity = |a: &Value, dims: &[usize]| {
        let (row, column) = (a.iota(DType::Int32, dims, 1), a.iota(DType::Int32, dims, 2));
        let is_diagonal = row.compare(Comparison::Equal, &column);
        is_diagonal.select(&a.scalar_like(1.0), &a.scalar_like(0.0))
    };
    if x.num_elements() == 0 {
        let count: usize = batch.iter().product();
        let q = identity(&x, &[count, m, inner]).reshape(&q_dims);
        l.set(0, q)?;
        return l.set(1, x.splat(x.dtype(), &r_dims, 0.0));
    }
    let a = batch_of(&x);
    let count = a.dims()[0];
    let (reflected, vectors, taus) = reflections(&a);
    let start = identity(&a, &[count, m, inner]);
    let q = reflected_back(&start, &vectors, &taus);
    let (row, column) = (a.iota(DType::Int32, &[1, m, n], 1), a.iota(DType::Int32, &[1, m, n], 2));
    let is_upper = column.compare(Comparison::GreaterEqual, &row);
    let r = is_upper.select(&reflected, &a.scalar_like(0.0)).slice_dim(1, 0, inner);
    set_narrow(l, 0, &q.reshape(&q_dims))?;
    set_narrow(l, 1, &r.reshape(&r_dims))
}

/// A real number per matrix in the dtype of the matrices.
fn in_dtype_of(x: &Value, real: &Value) -> Value {
    if x.dtype().is_complex() { real.complex(&real.zeros_like()) } else { real.clone() }
}

/// The matrices with zeros below their diagonals, the vectors of the reflections that made them, in
/// columns, and their factors.
fn reflections(a: &Value) -> (Value, Value, Value) {
    let (count, m, n) = (a.dims()[0], a.dims()[1], a.dims()[2]);
    let steps = m.min(n);
    let rows = a.iota(DType::Int32, &[count, m, 1], 1);
    let columns = a.iota(DType::Int32, &[1, 1, steps], 2);
    let start = [
        a.splat(DType::Int32, &[], 0.0),
        a.clone(),
        a.splat(a.dtype(), &[count, m, steps], 0.0),
        a.splat(a.dtype(), &[count, 1, steps], 0.0),
    ];
    let end = a.splat(DType::Int32, &[], steps as f64);
    let tiny =
        if a.abs().dtype() == DType::Double { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() };
    let done = Value::repeat_while(
        &start,
        |v| v[0].compare(Comparison::Less, &end),
        |v| {
            let [k, a, vectors, taus] = v else { return v.to_vec() };
            let zero = a.scalar_like(0.0);
            let column = line(a, 2, k);
            let head = line(&column, 1, k);
            let is_below = rows.compare(Comparison::Greater, k);
            let tail = is_below.select(&column, &zero);
            let rest = tail.abs().square().sum(&[1]).expand(1);
            let (re, im) = match a.dtype().is_complex() {
                true => (head.real(), head.imaginary()),
                false => (head.clone(), head.zeros_like()),
            };
            let is_done = rest
                .compare_to(Comparison::LessEqual, tiny)
                .and(&im.square().compare_to(Comparison::LessEqual, tiny));
            let norm = (re.square() + im.square() + &rest).sqrt();
            let is_positive = re.compare_to(Comparison::GreaterEqual, 0.0);
            let beta = in_dtype_of(a, &is_positive.select(&norm.negate(), &norm));
            let vector = &tail / (&head - &beta);
            let is_head = rows.compare(Comparison::Equal, k);
            let vector = is_head.select(&a.scalar_like(1.0), &vector);
            let vector = is_done.not().select(&vector, &zero);
            let tau = is_done.select(&zero, &((&beta - &head).conjugate() / &beta));
            let reflected = reflect(a, &vector, &tau);
            let is_column = columns.compare(Comparison::Equal, k);
            let vectors = is_column.select(&vector, vectors);
            let taus = is_column.select(&tau, taus);
            vec![k + 1.0, reflected, vectors, taus]
        },
    );
    (done[1].clone(), done[2].clone(), done[3].clone())
}

/// (1 - tau v v^H) x, for a column `v` of each matrix.
fn reflect(x: &Value, v: &Value, tau: &Value) -> Value {
    let sums = (v.conjugate() * x).sum(&[1]).expand(1);
    x - tau * v * sums
}

/// The product of all reflections with matrices, the last one first.
fn reflected_back(start: &Value, vectors: &Value, taus: &Value) -> Value {
    let steps = vectors.dims()[2];
    let last = start.splat(DType::Int32, &[], steps as f64 - 1.0);
    let done = Value::repeat_while(
        &[last, start.clone()],
        |v| v[0].compare_to(Comparison::GreaterEqual, 0.0),
        |v| {
            let (k, x) = (&v[0], &v[1]);
            let reflected = reflect(x, &line(vectors, 2, k), &line(taus, 2, k).conjugate());
            vec![k + -1.0, reflected]
        },
    );
    done[1].clone()
}
