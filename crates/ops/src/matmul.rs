//! Matrix products and batched matrix products.

use half::{bf16, f16};
use num_complex::Complex;
use parking_lot::Mutex;
use smallvec::SmallVec;
use thalweg_graph::{NodeAttrs, OpDef, ShapeContext, shape};
use thalweg_hlo::{DotDims, Value};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, err};

use crate::math::gemm::{MatMut, MatRef, Write};
use crate::matmul_gradients::{batch_mat_mul_grad, mat_mul_grad, sparse_mat_mul_grad};
use crate::product::{Factor, is_small, multiply, multiply_here, multiply_weights};
use crate::split::for_each_rows;
use crate::work;

pub(crate) static FAMILY: Family = Family {
    ops: &[MAT_MUL, BATCH_MAT_MUL, BATCH_MAT_MUL_V2, BATCH_MAT_MUL_V3, SPARSE_MAT_MUL],
    kernels: &[
        cpu_kernel!("MatMul", "T" in [f32, f64, f16, bf16, i32, i64, Complex<f32>, Complex<f64>]
            => mat_mul),
        cpu_kernel!("BatchMatMul", "T" in [f32, f64, f16, bf16, i32, i64, Complex<f32>,
            Complex<f64>] => batch_mat_mul),
        cpu_kernel!("BatchMatMulV2", "T" in [f32, f64, f16, bf16, i16, i32, i64, Complex<f32>,
            Complex<f64>] => batch_mat_mul),
        KernelSpec { op: "BatchMatMulV3", create: batch_mat_mul_v3, ..KernelSpec::CPU },
        KernelSpec { op: "SparseMatMul", create: sparse_mat_mul, ..KernelSpec::CPU },
        KernelSpec::lowering("MatMul", lower_mat_mul),
        KernelSpec::lowering("SparseMatMul", lower_mat_mul),
        KernelSpec::lowering("BatchMatMul", lower_batch_mat_mul),
        KernelSpec::lowering("BatchMatMulV2", lower_batch_mat_mul),
        KernelSpec::lowering("BatchMatMulV3", lower_batch_mat_mul),
    ],
};

fn lower_mat_mul(l: &mut Lowering<'_>) -> Result<()> {
    let dtype = l.output_dtype(0);
    let (a, b) = (l.input(0)?.convert(dtype), l.input(1)?.convert(dtype));
    let inner = |transposes: bool, last: usize| vec![if transposes { 1 - last } else { last }];
    let contracting =
        (inner(l.attrs().bool("transpose_a")?, 1), inner(l.attrs().bool("transpose_b")?, 0));
    let dims = DotDims { contracting, ..DotDims::default() };
    l.set(0, a.dot_general(&b, &dims, dtype))
}

fn lower_batch_mat_mul(l: &mut Lowering<'_>) -> Result<()> {
    let flags = [l.attrs().bool("adj_x")?, l.attrs().bool("adj_y")?];
    let (dims, dtype) = (l.output_dims(0)?, l.output_dtype(0));
    ensure!(dims.len() >= 2, InvalidArgument, "a product of matrices has shape {dims:?}");
    let count = dims.len() - 2;
    let factor = |i: usize| {
        let factor = l.input(i)?.convert(dtype);
        ensure!(
            factor.rank() >= 2,
            InvalidArgument,
            "In[{i}] ndims must be >= 2: {:?}",
            factor.dims()
        );
        Ok(if flags[i] { factor.conjugate() } else { factor })
    };
    let (x, y) = (factor(0)?, factor(1)?);
    let inner = |swaps: bool, at: usize| if swaps { 1 - at } else { at };
    if y.rank() == 2 {
        // One matrix on the right: the batches are rows.
        let contracting = (vec![x.rank() - 2 + inner(flags[0], 1)], vec![inner(flags[1], 0)]);
        let dot = DotDims { contracting, ..DotDims::default() };
        return l.set(0, x.dot_general(&y, &dot, dtype));
    }
    let stretched = |v: &Value| {
        let own = [&dims[..count], &v.dims()[v.rank() - 2..]].concat();
        v.broadcast_to(&own)
    };
    let batch: Vec<usize> = (0..count).collect();
    let contracting = (vec![count + inner(flags[0], 1)], vec![count + inner(flags[1], 0)]);
    let dot = DotDims { batch: (batch.clone(), batch), contracting };
    l.set(0, stretched(&x).dot_general(&stretched(&y), &dot, dtype))
}

const MAT_MUL: OpDef =
    OpDef::new("MatMul", product_shape).with_work(work::matrix_product).with_gradient(mat_mul_grad);

const SPARSE_MAT_MUL: OpDef =
    OpDef { name: "SparseMatMul", ..MAT_MUL }.with_gradient(sparse_mat_mul_grad);

const BATCH_MAT_MUL: OpDef = OpDef::new("BatchMatMul", batch_shape)
    .with_work(work::matrix_product)
    .with_gradient(batch_mat_mul_grad);

const BATCH_MAT_MUL_V2: OpDef =
    OpDef { name: "BatchMatMulV2", shape: broadcast_batch_shape, ..BATCH_MAT_MUL };

const BATCH_MAT_MUL_V3: OpDef = OpDef { name: "BatchMatMulV3", ..BATCH_MAT_MUL_V2 };

/// The last two sizes of a factor, exchanged if it is transposed.
fn matrix_dims(shape: &PartialShape, transpose: bool) -> (Option<usize>, Option<usize>) {
    let Some([.., rows, columns]) = shape.dims() else { return (None, None) };
    if transpose { (*columns, *rows) } else { (*rows, *columns) }
}

/// Rows and columns of a product.
fn inferred_product(
    c: &ShapeContext<'_>,
    flags: [&str; 2],
) -> Result<(Option<usize>, Option<usize>)> {
    let (rows, inner_a) = matrix_dims(c.input(0), c.attrs().bool(flags[0])?);
    let (inner_b, columns) = matrix_dims(c.input(1), c.attrs().bool(flags[1])?);
    ensure!(
        inner_a.is_none() || inner_b.is_none() || inner_a == inner_b,
        InvalidArgument,
        "Matrix size-incompatible: inner dimensions of {} and {} differ",
        c.input(0),
        c.input(1)
    );
    Ok((rows, columns))
}

fn product_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, "a", 2)?;
    c.with_rank(1, "b", 2)?;
    let (rows, columns) = inferred_product(c, ["transpose_a", "transpose_b"])?;
    c.set_output(0, PartialShape::new([rows, columns]));
    Ok(())
}

fn batch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    infer_batch(c, PartialShape::merge)
}

fn broadcast_batch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    infer_batch(c, shape::broadcast_shapes)
}

fn infer_batch(
    c: &mut ShapeContext<'_>,
    combine: fn(&PartialShape, &PartialShape) -> Result<PartialShape>,
) -> Result<()> {
    c.with_rank_at_least(0, "x", 2)?;
    c.with_rank_at_least(1, "y", 2)?;
    let (rows, columns) = inferred_product(c, ["adj_x", "adj_y"])?;
    let batch = |i: usize| {
        let dims = c.input(i).dims()?;
        Some(PartialShape::new(dims[..dims.len() - 2].iter().copied()))
    };
    let (Some(x), Some(y)) = (batch(0), batch(1)) else { return Ok(()) };
    let batch = combine(&x, &y)?;
    let dims = batch.dims().unwrap_or(&[]).iter().copied();
    c.set_output(0, PartialShape::new(dims.chain([rows, columns])));
    Ok(())
}

fn mat_mul<T: Conjugate>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let flags = Transposes::new(init.attrs(), ["transpose_a", "transpose_b"])?;
    AnyKernel::new(move |ctx| {
        let (a, b) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        multiply_matrices::<T>(ctx, &a, &b, flags)
    })
}

fn multiply_matrices<T: Factor>(
    ctx: &mut KernelContext<'_>,
    a: &Tensor,
    b: &Tensor,
    flags: Transposes,
) -> Result<()> {
    for (tensor, name) in [(a, "a"), (b, "b")] {
        ensure!(
            tensor.rank() == 2,
            InvalidArgument,
            "{name} must be a matrix, got shape {}",
            tensor.shape()
        );
    }
    let a = matrix::<T>(a, 0, flags.first)?;
    let (weights, b) = (b, matrix::<T>(b, 0, flags.second)?);
    check_inner(ctx, a.cols() == b.rows())?;
    let mut out = ctx.allocate_output(0, Shape::new(&[a.rows(), b.cols()])?)?;
    let c = whole(out.as_mut_slice()?, a.rows(), b.cols())?;
    multiply_weights(ctx, a, (weights, b), c, Write::Overwrite)?;
    ctx.set_output(0, out)
}

/// Which factors are transposed.
#[derive(Clone, Copy)]
struct Transposes {
    first: bool,
    second: bool,
}

impl Transposes {
    fn new(attrs: NodeAttrs<'_>, names: [&str; 2]) -> Result<Transposes> {
        Ok(Transposes { first: attrs.bool(names[0])?, second: attrs.bool(names[1])? })
    }
}

fn check_inner(ctx: &KernelContext<'_>, is_equal: bool) -> Result<()> {
    ensure!(
        is_equal,
        InvalidArgument,
        "Matrix size-incompatible: In[0]: {}, In[1]: {}",
        ctx.input(0)?.shape(),
        ctx.input(1)?.shape()
    );
    Ok(())
}

/// Matrix `index` of a batch, optionally transposed.
fn matrix<T: Factor>(batch: &Tensor, index: usize, transpose: bool) -> Result<MatRef<'_, T>> {
    let [.., rows, columns] = *batch.shape().dims() else {
        bail!(Internal, "{} is no matrix", batch.shape());
    };
    let data = &batch.as_slice::<T>()?[index * rows * columns..];
    let matrix = MatRef::row_major(data, rows, columns)
        .ok_or_else(|| err!(Internal, "matrix {index} of {} is out of bounds", batch.shape()))?;
    Ok(if transpose { matrix.transposed() } else { matrix })
}

fn whole<T>(data: &mut [T], rows: usize, columns: usize) -> Result<MatMut<'_, T>> {
    MatMut::row_major(data, rows, columns)
        .ok_or_else(|| err!(Internal, "the matrix product is out of bounds"))
}

/// Elements with a conjugate; for real elements the identity.
trait Conjugate: Factor {
    const IS_COMPLEX: bool = false;

    fn conjugate(self) -> Self {
        self
    }
}

macro_rules! own_conjugates {
    ($($t:ty),+) => { $(impl Conjugate for $t {})+ };
}

own_conjugates!(f32, f64, f16, bf16, i16, i32, i64);

impl<F: num_traits::Num + Copy + std::ops::Neg<Output = F>> Conjugate for Complex<F>
where
    Complex<F>: Factor,
{
    const IS_COMPLEX: bool = true;

    fn conjugate(self) -> Self {
        self.conj()
    }
}

fn batch_mat_mul<T: Conjugate>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let flags = Transposes::new(init.attrs(), ["adj_x", "adj_y"])?;
    let broadcasts = init.node.op.name != "BatchMatMul";
    AnyKernel::new(move |ctx| {
        let (x, y) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        multiply_batches::<T>(ctx, &x, &y, flags, broadcasts)
    })
}

fn multiply_batches<T: Conjugate>(
    ctx: &mut KernelContext<'_>,
    x: &Tensor,
    y: &Tensor,
    flags: Transposes,
    broadcasts: bool,
) -> Result<()> {
    for (tensor, name) in [(x, "In[0]"), (y, "In[1]")] {
        let shape = tensor.shape();
        ensure!(shape.rank() >= 2, InvalidArgument, "{name} ndims must be >= 2: {shape}");
    }
    let batch = Batches::new(x.shape(), y.shape(), broadcasts)?;
    let (mut x, mut y) = (x.clone(), y.clone());
    if T::IS_COMPLEX && flags.first {
        x = conjugated::<T>(ctx, &x)?;
    }
    if T::IS_COMPLEX && flags.second {
        y = conjugated::<T>(ctx, &y)?;
    }
    let sizes = |t: &Tensor, swap: bool| {
        let (rows, columns) = (t.shape()[t.rank() - 2], t.shape()[t.rank() - 1]);
        if swap { (columns, rows) } else { (rows, columns) }
    };
    let ((rows, inner), (inner_y, columns)) = (sizes(&x, flags.first), sizes(&y, flags.second));
    check_inner(ctx, inner == inner_y)?;
    let dims: SmallVec<[usize; 4]> = batch.dims.iter().copied().chain([rows, columns]).collect();
    let mut out = ctx.allocate_output(0, Shape::new(&dims)?)?;
    let data = out.as_mut_slice::<T>()?;
    if batch.is_one_matrix_on_the_right() && !flags.first && x.num_elements() > 0 {
        // All batches are multiplied by the same matrix, so their rows form one matrix.
        let all_rows = x.num_elements() / inner;
        let a = MatRef::row_major(x.as_slice::<T>()?, all_rows, inner)
            .ok_or_else(|| err!(Internal, "the rows of {} are out of bounds", x.shape()))?;
        let b = matrix::<T>(&y, 0, flags.second)?;
        multiply_weights(ctx, a, (&y, b), whole(data, all_rows, columns)?, Write::Overwrite)?;
    } else if !data.is_empty() {
        let product = Product { x: &x, y: &y, flags, batch, size: (rows, columns), inner };
        product.run::<T>(ctx, data)?;
    }
    ctx.set_output(0, out)
}

/// How the matrices of two batches are paired.
pub(crate) struct Batches {
    /// The batch dimensions of the result.
    pub(crate) dims: SmallVec<[usize; 4]>,
    x_steps: SmallVec<[usize; 4]>,
    y_steps: SmallVec<[usize; 4]>,
}

impl Batches {
    /// The pairing of two tensors of matrices with equal or broadcast batch dimensions.
    pub(crate) fn new(x: &Shape, y: &Shape, broadcasts: bool) -> Result<Batches> {
        let (x_dims, y_dims) = (&x[..x.rank() - 2], &y[..y.rank() - 2]);
        ensure!(
            broadcasts || x_dims == y_dims,
            InvalidArgument,
            "In[0] and In[1] must have the same batch dimensions: {x} vs. {y}"
        );
        let rank = x_dims.len().max(y_dims.len());
        let at =
            |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
        let mut dims = SmallVec::new();
        for i in 0..rank {
            dims.push(match (at(x_dims, i), at(y_dims, i)) {
                (1, d) | (d, 1) => d,
                (a, b) if a == b => a,
                _ => bail!(
                    InvalidArgument,
                    "In[0] and In[1] must have compatible batch dimensions: {x} vs. {y}"
                ),
            });
        }
        let steps = |own: &[usize]| {
            let mut step = 1;
            let mut steps: SmallVec<[usize; 4]> = smallvec::smallvec![0; rank];
            for i in (0..rank).rev() {
                let size = at(own, i);
                steps[i] = if size == 1 { 0 } else { step };
                step *= size;
            }
            steps
        };
        Ok(Batches { x_steps: steps(x_dims), y_steps: steps(y_dims), dims })
    }

    /// The number of pairs.
    pub(crate) fn count(&self) -> usize {
        self.dims.iter().product()
    }

    fn is_one_matrix_on_the_right(&self) -> bool {
        self.y_steps.iter().all(|&step| step == 0)
            && self.x_steps.iter().zip(&self.dims).all(|(&step, &dim)| step > 0 || dim == 1)
    }

    /// The indices of the matrices of pair `index`.
    pub(crate) fn pair(&self, mut index: usize) -> (usize, usize) {
        let (mut x, mut y) = (0, 0);
        for i in (0..self.dims.len()).rev() {
            let at = index % self.dims[i];
            index /= self.dims[i];
            x += at * self.x_steps[i];
            y += at * self.y_steps[i];
        }
        (x, y)
    }
}

struct Product<'a> {
    x: &'a Tensor,
    y: &'a Tensor,
    flags: Transposes,
    batch: Batches,
    size: (usize, usize),
    inner: usize,
}

impl Product<'_> {
    /// Small products run on one thread each, large ones on all threads.
    fn run<T: Factor>(&self, ctx: &KernelContext<'_>, out: &mut [T]) -> Result<()> {
        let (rows, columns) = self.size;
        let each = rows * columns;
        let factors = |index: usize| {
            let (x, y) = self.batch.pair(index);
            Ok((
                matrix::<T>(self.x, x, self.flags.first)?,
                matrix::<T>(self.y, y, self.flags.second)?,
            ))
        };
        let (first_a, first_b) = factors(0)?;
        if self.batch.count() == 1 || !is_small(first_a, first_b) {
            for (index, out) in out.chunks_exact_mut(each).enumerate() {
                let (a, b): (MatRef<'_, T>, MatRef<'_, T>) = factors(index)?;
                multiply(ctx, a, b, whole(out, rows, columns)?, Write::Overwrite)?;
            }
            return Ok(());
        }
        let failure = Mutex::new(None);
        let nanoseconds = 20.0 + 0.05 * each as f64 * self.inner as f64;
        for_each_rows(ctx, out, each, nanoseconds, |first, out| {
            for (index, out) in (first..).zip(out.chunks_exact_mut(each)) {
                let result = factors(index).and_then(|(a, b)| {
                    multiply_here(a, b, whole(out, rows, columns)?, Write::Overwrite)
                });
                if let Err(error) = result {
                    *failure.lock() = Some(error);
                }
            }
        })?;
        failure.into_inner().map_or(Ok(()), Err)
    }
}

fn conjugated<T: Conjugate>(ctx: &KernelContext<'_>, x: &Tensor) -> Result<Tensor> {
    let mut out = ctx.allocate(T::DTYPE, x.shape().clone())?;
    let data = x.as_slice::<T>()?;
    for_each_rows(ctx, out.as_mut_slice::<T>()?, 1, 0.5, |first, out| {
        out.iter_mut().zip(&data[first..]).for_each(|(to, x)| *to = x.conjugate());
    })?;
    Ok(out)
}

/// 8-bit factors are first converted to the type of the product, exactly.
fn batch_mat_mul_v3(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let types = ["Ta", "Tb", "Tout"].map(|name| init.attrs().dtype(name));
    let [x, y, out] = types;
    let (x, y, out) = (x?, y?, out?);
    let is_byte = |t: DType| matches!(t, DType::Int8 | DType::UInt8);
    match out {
        DType::Int32 if is_byte(x) && is_byte(y) => mixed::<i32>(init),
        DType::BFloat16 if is_byte(x) != is_byte(y) && (x == out || y == out) => {
            mixed::<bf16>(init)
        }
        _ if x != out || y != out => {
            bail!(Unimplemented, "BatchMatMulV3 has no kernel for {x} times {y} as {out}")
        }
        DType::Float => batch_mat_mul::<f32>(init),
        DType::Double => batch_mat_mul::<f64>(init),
        DType::BFloat16 => batch_mat_mul::<bf16>(init),
        DType::Int16 => batch_mat_mul::<i16>(init),
        DType::Int32 => batch_mat_mul::<i32>(init),
        DType::Int64 => batch_mat_mul::<i64>(init),
        DType::Complex64 => batch_mat_mul::<Complex<f32>>(init),
        DType::Complex128 => batch_mat_mul::<Complex<f64>>(init),
        _ => bail!(Unimplemented, "BatchMatMulV3 has no kernel for {out}"),
    }
}

/// Types that bytes convert to.
trait FromByte: Conjugate {
    fn from_byte(x: i16) -> Self;
}

impl FromByte for i32 {
    fn from_byte(x: i16) -> i32 {
        i32::from(x)
    }
}

impl FromByte for bf16 {
    fn from_byte(x: i16) -> bf16 {
        bf16::from_f32(f32::from(x))
    }
}

fn mixed<T: FromByte>(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let flags = Transposes::new(init.attrs(), ["adj_x", "adj_y"])?;
    AnyKernel::new(move |ctx| {
        let (x, y) = (from_bytes::<T>(ctx, 0)?, from_bytes::<T>(ctx, 1)?);
        multiply_batches::<T>(ctx, &x, &y, flags, true)
    })
}

fn from_bytes<T: FromByte>(ctx: &KernelContext<'_>, i: usize) -> Result<Tensor> {
    let input = ctx.input(i)?;
    if input.dtype() == T::DTYPE {
        return Ok(input.clone());
    }
    let mut out = ctx.allocate(T::DTYPE, input.shape().clone())?;
    let to = out.as_mut_slice::<T>()?.iter_mut();
    match input.dtype() {
        DType::Int8 => {
            to.zip(input.as_slice::<i8>()?).for_each(|(to, &x)| *to = T::from_byte(x.into()));
        }
        _ => to.zip(input.as_slice::<u8>()?).for_each(|(to, &x)| *to = T::from_byte(x.into())),
    }
    Ok(out)
}

/// `SparseMatMul`: the sparsity flags are hints that this kernel ignores.
fn sparse_mat_mul(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let flags = Transposes::new(init.attrs(), ["transpose_a", "transpose_b"])?;
    AnyKernel::new(move |ctx| {
        let single = |i: usize| match ctx.input(i)?.dtype() {
            DType::BFloat16 => crate::map::wide_view::<bf16>(ctx, i),
            _ => Ok(ctx.input(i)?.clone()),
        };
        let (a, b) = (single(0)?, single(1)?);
        multiply_matrices::<f32>(ctx, &a, &b, flags)
    })
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        for (op, flags, x, y, expected) in [
            ("MatMul", [false, false], "2,3", "3,4", "[2,4]"),
            ("MatMul", [true, false], "3,2", "?,4", "[2,4]"),
            ("MatMul", [false, true], "unknown", "4,3", "[?,4]"),
            ("BatchMatMul", [false, true], "5,2,3", "?,4,3", "[5,2,4]"),
            ("BatchMatMulV2", [false, false], "5,1,2,3", "6,3,4", "[5,6,2,4]"),
            ("BatchMatMulV2", [false, false], "unknown", "6,3,4", "<unknown>"),
        ] {
            let names =
                if op == "MatMul" { ["transpose_a", "transpose_b"] } else { ["adj_x", "adj_y"] };
            let call = call(op).shape(DType::Float, x).shape(DType::Float, y);
            let got = call.attr(names[0], flags[0]).attr(names[1], flags[1]).infer();
            assert_eq!(got, expected, "{op} {x} {y}");
        }
        for (op, x, y) in [
            ("MatMul", "2,3", "2,3"),
            ("MatMul", "3", "3,4"),
            ("BatchMatMul", "2,2,3", "1,3,3"),
            ("BatchMatMulV2", "2,2,3", "3,3,3"),
            ("BatchMatMulV2", "3", "3,3"),
        ] {
            let got = call(op).shape(DType::Float, x).shape(DType::Float, y).infer();
            assert!(got.starts_with("INVALID_ARGUMENT"), "{op} {x} {y}: {got}");
        }
    }

    fn counted(dims: &[usize]) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        let values: Vec<i64> = (0..shape.num_elements() as i64).map(|i| i * 7 % 11 - 5).collect();
        Tensor::from_slice(shape, &values).unwrap()
    }

    /// Compares every pairing of batches with sums of products computed directly.
    #[test]
    fn batches_broadcast() {
        for (x_batch, y_batch, batch) in [
            (&[][..], &[][..], &[][..]),
            (&[3], &[3], &[3]),
            (&[3], &[], &[3]),
            (&[], &[3], &[3]),
            (&[2, 1], &[3], &[2, 3]),
            (&[2, 3], &[2, 1], &[2, 3]),
            (&[0], &[1], &[0]),
        ] {
            for (adj_x, adj_y) in [(false, false), (true, false), (false, true), (true, true)] {
                let (m, k, n) = (4, 3, 5);
                let dims = |batch: &[usize], rows, columns, swap| {
                    let last = if swap { [columns, rows] } else { [rows, columns] };
                    [batch, &last[..]].concat()
                };
                let x = counted(&dims(x_batch, m, k, adj_x));
                let y = counted(&dims(y_batch, k, n, adj_y));
                let call = call("BatchMatMulV2").attr("adj_x", adj_x).attr("adj_y", adj_y);
                let got = call.input(x.clone()).input(y.clone()).run().unwrap();
                assert_eq!(got.shape().dims(), dims(batch, m, n, false));
                let pairs = Batches::new(x.shape(), y.shape(), true).unwrap();
                let (x, y) = (x.as_slice::<i64>().unwrap(), y.as_slice::<i64>().unwrap());
                for (i, &value) in got.as_slice::<i64>().unwrap().iter().enumerate() {
                    let (a, b) = pairs.pair(i / (m * n));
                    let (row, column) = (i / n % m, i % n);
                    let x_at = |j| {
                        if adj_x { x[a * m * k + j * m + row] } else { x[a * m * k + row * k + j] }
                    };
                    let y_at = |j| {
                        if adj_y {
                            y[b * k * n + column * k + j]
                        } else {
                            y[b * k * n + j * n + column]
                        }
                    };
                    let expected: i64 = (0..k).map(|j| x_at(j) * y_at(j)).sum();
                    assert_eq!(value, expected, "{x_batch:?} {y_batch:?}");
                }
            }
        }
    }

    #[test]
    fn adjoints_conjugate() {
        let i = Tensor::from_slice(Shape::new(&[1, 1]).unwrap(), &[Complex::new(0.0f32, 1.0)]);
        let i = i.unwrap();
        let run = |op, name| {
            let call = call(op).input(i.clone()).input(i.clone());
            call.attr(name, true).run().unwrap().scalar_value::<Complex<f32>>().unwrap()
        };
        assert_eq!(run("BatchMatMul", "adj_x"), Complex::new(1.0, 0.0));
        assert_eq!(run("MatMul", "transpose_a"), Complex::new(-1.0, 0.0));
    }

    #[test]
    fn hostile_shapes() {
        for (op, x, y) in [
            ("MatMul", &[2][..], &[2, 3][..]),
            ("MatMul", &[2, 3], &[2, 3]),
            ("MatMul", &[2, 3, 4], &[4, 3]),
            ("BatchMatMul", &[2, 2, 2], &[1, 2, 2]),
            ("BatchMatMulV2", &[2, 2, 2], &[3, 2, 2]),
            ("BatchMatMulV2", &[2], &[2, 2]),
            ("BatchMatMulV2", &[0, 2, 3], &[0, 2, 3]),
        ] {
            let error = call(op).input(counted(x)).input(counted(y)).run().unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{op}");
        }
        let empty = call("MatMul").input(counted(&[2, 0])).input(counted(&[0, 3])).run().unwrap();
        assert_eq!(empty.as_slice::<i64>().unwrap(), [0; 6]);
    }
}
