//! `ArgMax` and `ArgMin`: the index of the extreme along a dimension, the first of equal ones.
//!
//! NaN is never an extreme; if all elements are NaN, the index is 0.

use half::{bf16, f16};
use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelContext, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

use crate::math::fold::{Fold, MaximumNumber, MinimumNumber, loops};
use crate::math::vectorized::vectorized;
use crate::math::widen::Widen;
use crate::split::Disjoint;

pub(crate) static FAMILY: Family = Family {
    ops: &[ARG_MAX, ARG_MIN],
    kernels: &[
        cpu_kernel!("ArgMax", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            bool] => arg_max; host_inputs: &["dimension"]),
        cpu_kernel!("ArgMin", "T" in [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            bool] => arg_min; host_inputs: &["dimension"]),
        KernelSpec::lowering("ArgMax", |l| lower(l, true)).with_host_inputs(&["dimension"]),
        KernelSpec::lowering("ArgMin", |l| lower(l, false)).with_host_inputs(&["dimension"]),
    ],
};

fn lower(l: &mut Lowering<'_>, is_max: bool) -> Result<()> {
    let x = l.input(0)?;
    let axis = checked_axis(l.int(1)?, x.rank())?;
    let count = x.dims()[axis];
    ensure!(count > 0, InvalidArgument, "Reduction axis {axis} is empty in shape {:?}", x.dims());
    let x = match x.dtype() {
        DType::Bool => x.convert(DType::UInt8),
        dtype if dtype.is_floating() => {
            let least = if is_max { x.lowest_like() } else { x.highest_like() };
            x.is_nan().select(&least, &x)
        }
        _ => x,
    };
    let dtype = if count <= i32::MAX as usize { DType::Int32 } else { DType::Int64 };
    l.set(0, x.arg_extreme(axis, is_max, dtype).convert(l.output_dtype(0)))
}

const ARG_MAX: OpDef =
    OpDef::new("ArgMax", without_dimension).with_work(Work::per_input::<1>).without_gradient();

const ARG_MIN: OpDef = OpDef { name: "ArgMin", ..ARG_MAX };

fn without_dimension(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, "dimension", 0)?;
    let Some(dims) = c.input(0).dims() else { return Ok(()) };
    if dims.len() <= 1 {
        c.set_output(0, PartialShape::scalar());
        return Ok(());
    }
    let value = c.partial_value(1);
    let Some(axis) = value.and_then(|value| *value.elements.first()?) else {
        c.set_output(0, PartialShape::of_rank(dims.len() - 1));
        return Ok(());
    };
    let axis = checked_axis(axis, dims.len())?;
    let left = dims.iter().enumerate().filter(|&(i, _)| i != axis).map(|(_, &d)| d);
    c.set_output(0, PartialShape::new(left));
    Ok(())
}

fn checked_axis(axis: i64, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    match usize::try_from(at) {
        Ok(at) if at < rank => Ok(at),
        _ => bail!(
            InvalidArgument,
            "Expected dimension in the range [-{rank}, {rank}), but got {axis}"
        ),
    }
}

fn arg_max<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    MaximumNumber: Fold<T::Wide>,
    T::Wide: PartialOrd,
{
    AnyKernel::new(arg_extreme::<T, MaximumNumber>)
}

fn arg_min<T: Widen>(_: &KernelInit<'_>) -> Result<AnyKernel>
where
    MinimumNumber: Fold<T::Wide>,
    T::Wide: PartialOrd,
{
    AnyKernel::new(arg_extreme::<T, MinimumNumber>)
}

/// Results that a thread keeps on its stack.
const TILE: usize = 256;
/// Elements whose extreme is computed at a time.
const CHUNK: usize = 1024;

fn arg_extreme<T: Widen, F: Fold<T::Wide>>(ctx: &mut KernelContext<'_>) -> Result<()> {
    let input = ctx.input(0)?;
    let axis = checked_axis(ctx.scalar_int(1, "dimension")?, input.rank())?;
    let (dims, data) = (input.shape(), ctx.slice::<T>(0)?);
    let (count, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    ensure!(count > 0, InvalidArgument, "Reduction axis {axis} is empty in shape {dims}");
    let left: SmallVec<[usize; 4]> =
        dims[..axis].iter().chain(&dims[axis + 1..]).copied().collect();
    let mut found = ctx.allocate(DType::Int64, Shape::new(&left)?)?;
    let out = Disjoint::new(found.as_mut_slice::<i64>()?);
    let outer = if data.is_empty() { 0 } else { data.len() / (count * inner) };
    let tiles = inner.div_ceil(TILE);
    let nanoseconds = 0.5 * count as f64 * inner.min(TILE) as f64;
    ctx.parallel_for(outer * tiles, nanoseconds, |items| {
        for item in items {
            let (block, tile) = (item / tiles, item % tiles);
            let columns = tile * TILE..((tile + 1) * TILE).min(inner);
            let start = block * inner;
            // SAFETY: each item has its own block and range of columns.
            let out = unsafe { out.part(start + columns.start..start + columns.end) };
            let data = &data[block * count * inner..(block + 1) * count * inner];
            if inner == 1 {
                out[0] = arg_run::<T, F>(data) as i64;
            } else {
                arg_columns::<T, F>(out, &data[columns.start..], inner);
            }
        }
    })?;
    let output = converted(ctx, found)?;
    ctx.set_output(0, output)
}

/// The index of the extreme of a run.
fn arg_run<T: Widen, F: Fold<T::Wide>>(data: &[T]) -> usize {
    let fold = loops::<T::Wide, F>().run;
    let (mut best, mut best_chunk) = (F::START, 0);
    for (i, chunk) in data.chunks(CHUNK).enumerate() {
        let extreme = F::merge(best, T::with_wide(chunk, fold));
        if extreme != best {
            (best, best_chunk) = (extreme, i);
        }
    }
    let start = best_chunk * CHUNK;
    let chunk = &data[start..data.len().min(start + CHUNK)];
    start + T::with_wide(chunk, |x| find(x, best)).unwrap_or(0)
}

vectorized! {
    /// Index of the first element equal to `wanted`.
    fn find<L>[A: Copy | PartialEq](x: &[A], wanted: A) -> Option<usize> {
        let is_here = |chunk: &&[A]| chunk.iter().fold(false, |any, &x| any | (x == wanted));
        let chunk = x.chunks(32).position(|chunk| is_here(&chunk))?;
        let start = chunk * 32;
        x[start..].iter().position(|&x| x == wanted).map(|i| start + i)
    }
}

/// The index of the extreme of each column; rows are `stride` apart.
fn arg_columns<T: Widen, F: Fold<T::Wide>>(out: &mut [i64], data: &[T], stride: usize) {
    let mut best = [F::START; TILE];
    let best = &mut best[..out.len()];
    out.fill(0);
    for (i, row) in data.chunks(stride).enumerate() {
        let row = &row[..out.len()];
        T::with_wide(row, |x| improve::<T::Wide, F>(best, out, x, i as i64));
    }
}

vectorized! {
    pub(crate) fn improve<L>[A: Copy | PartialEq, F: Fold<A>](best: &mut [A], at: &mut [i64], x: &[A], i: i64) {
        for ((best, at), &x) in best.iter_mut().zip(at).zip(x) {
            let extreme = F::merge(*best, x);
            *at = if extreme == *best { *at } else { i };
            *best = extreme;
        }
    }
}

/// The indices in the dtype of the output, truncated to its width.
fn converted(ctx: &KernelContext<'_>, found: Tensor) -> Result<Tensor> {
    let dtype = ctx.output_dtype(0)?;
    if dtype == DType::Int64 {
        return Ok(found);
    }
    let from = found.as_slice::<i64>()?;
    let mut out = ctx.allocate(dtype, found.shape().clone())?;
    macro_rules! convert {
        ($t:ty) => {
            out.as_mut_slice::<$t>()?.iter_mut().zip(from).for_each(|(to, &x)| *to = x as $t)
        };
    }
    match dtype {
        DType::Int32 => convert!(i32),
        DType::Int16 => convert!(i16),
        DType::UInt16 => convert!(u16),
        other => bail!(Internal, "output_type cannot be {other}"),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::call;

    #[test]
    fn shapes() {
        for (input, axis, expected) in [
            ("2,3,4", 1, "[2,4]"),
            ("2,?,4", -1, "[2,?]"),
            ("5", 0, "[]"),
            ("unknown", 0, "<unknown>"),
        ] {
            let call = call("ArgMax").shape(DType::Float, input).constant(Tensor::scalar(axis));
            assert_eq!(call.infer(), expected, "{input}");
        }
        let call = |input| call("ArgMin").shape(DType::Float, input);
        assert_eq!(call("2,3").shape(DType::Int32, "").infer(), "[?]");
        assert!(call("2,3").constant(Tensor::scalar(2)).infer().starts_with("INVALID_ARGUMENT"));
    }

    #[test]
    fn first_of_the_extremes() {
        const NAN: f32 = f32::NAN;
        const LOWEST: f32 = f32::NEG_INFINITY;
        let mut long = vec![1.0; 5000];
        (long[3333], long[4444]) = (2.0, 2.0);
        for (values, largest, smallest) in [
            (&[1.0, 3.0, 3.0, -1.0, -1.0][..], 1, 3),
            (&[NAN, 2.0, NAN, 3.0], 3, 1),
            (&[NAN, NAN], 0, 0),
            (&[LOWEST, LOWEST], 0, 0),
            (&long, 3333, 0),
        ] {
            for (op, expected) in [("ArgMax", largest), ("ArgMin", smallest)] {
                let run = call(op).input(Tensor::vector(values).unwrap());
                let got = run.input(Tensor::scalar(0)).run().unwrap();
                assert_eq!(got.scalar_value::<i64>().unwrap(), expected, "{op}");
                // The same values as columns of a matrix.
                let columns: Vec<f32> = values.iter().flat_map(|&v| [v, 0.0, v]).collect();
                let shape = Shape::new(&[values.len(), 3]).unwrap();
                let run = call(op).input(Tensor::from_slice(shape, &columns).unwrap());
                let got = run.attr("output_type", DType::Int32).input(Tensor::scalar(-2));
                let expected = expected as i32;
                assert_eq!(got.run().unwrap().as_slice::<i32>().unwrap(), [expected, 0, expected]);
            }
        }
    }

    #[test]
    fn hostile_inputs() {
        for (dims, axis) in [(&[2, 3][..], 2i64), (&[2, 3], i64::MIN), (&[], 0), (&[0, 2], 0)] {
            let input = Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
            let error = call("ArgMax").input(input).input(Tensor::scalar(axis)).run().unwrap_err();
            assert_eq!(error.code(), thalweg_tensor::Code::InvalidArgument);
        }
        let empty = Tensor::zeros(DType::Float, Shape::new(&[0, 2]).unwrap()).unwrap();
        let got = call("ArgMax").input(empty).input(Tensor::scalar(1)).run().unwrap();
        assert_eq!(got.shape().dims(), [0]);
    }
}
