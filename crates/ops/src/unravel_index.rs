//! `UnravelIndex`: flat row-major indices to coordinates.

use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, Element, PartialShape, Result, Shape, Tensor, ensure, err};

use crate::split::for_each_rows;

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("UnravelIndex", unravel_index_shape).with_work(Work::per_output::<400>)],
    kernels: &[
        cpu_kernel!("UnravelIndex", "Tidx" in [i32, i64] => unravel_index),
        KernelSpec::lowering("UnravelIndex", lower_unravel_index).with_host_inputs(&["dims"]),
    ],
};

fn unravel_index_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let dims = c.with_rank(1, "dims", 1)?;
    let indices = c.input(0);
    c.set_output(
        0,
        match indices.dims() {
            None => PartialShape::unknown(),
            Some([]) => dims,
            Some(_) => {
                PartialShape::new([dims.dim(0), indices.to_shape().map(|s| s.num_elements())])
            }
        },
    );
    Ok(())
}

fn lower_unravel_index(l: &mut Lowering<'_>) -> Result<()> {
    let (indices, dims, shape) = (l.input(0)?, l.ints(1)?, l.output_dims(0)?);
    ensure!(
        indices.num_elements() > 0 && indices.rank() <= 1,
        InvalidArgument,
        "The indices must be a scalar or a vector that is not empty, got {:?}",
        indices.dims()
    );
    match indices.dtype() {
        DType::Int64 => product(&dims)?,
        _ => product(&dims.iter().map(|&d| d as i32).collect::<Vec<_>>())?,
    };
    // The product from each dimension on, and of those after it.
    let whole: Vec<i64> = (0..dims.len()).map(|i| dims[i..].iter().product()).collect();
    let step: Vec<i64> = (0..dims.len()).map(|i| dims[i + 1..].iter().product()).collect();
    let column = |values: &[i64]| -> Result<Value> {
        Ok(indices.constant(&Tensor::vector(values)?).convert(indices.dtype()).expand(1))
    };
    let rows = indices.reshape(&[1, indices.num_elements()]);
    let coordinates = rows.remainder(&column(&whole)?) / column(&step)?;
    l.set(0, coordinates.reshape(&shape))
}

/// Integer types of indices.
trait Position: Element + Ord {
    fn to_i64(self) -> i64;
    fn from_i64(value: i64) -> Self;
    const MAX: i64;
}

impl Position for i32 {
    const MAX: i64 = i32::MAX as i64;

    fn to_i64(self) -> i64 {
        self.into()
    }

    fn from_i64(value: i64) -> Self {
        value as i32
    }
}

impl Position for i64 {
    const MAX: i64 = i64::MAX;

    fn to_i64(self) -> i64 {
        self
    }

    fn from_i64(value: i64) -> Self {
        value
    }
}

/// The product of all sizes, which must be positive.
fn product<T: Position>(dims: &[T]) -> Result<i64> {
    let mut product = 1i64;
    for (i, dim) in dims.iter().map(|d| d.to_i64()).enumerate() {
        ensure!(
            dim != 0,
            InvalidArgument,
            "Input dims cannot contain a dim of zero, but dims contains zero at index {i}"
        );
        ensure!(
            dim > 0,
            InvalidArgument,
            "Input dims cannot be negative. Got dim = {dim} at index {i}"
        );
        product = product.checked_mul(dim).filter(|&p| p <= T::MAX).ok_or_else(|| {
            err!(InvalidArgument, "Input dims product is causing integer overflow: {dims:?}")
        })?;
    }
    Ok(product)
}

fn unravel_index<T: Position>(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let (indices, dims) = (ctx.input(0)?, ctx.input(1)?);
        ensure!(
            indices.num_elements() > 0,
            InvalidArgument,
            "received empty tensor indices of shape {}",
            indices.shape()
        );
        ensure!(
            indices.rank() <= 1,
            InvalidArgument,
            "The indices can only be scalar or vector, got \"{}\"",
            indices.shape()
        );
        ensure!(
            dims.rank() == 1,
            InvalidArgument,
            "The dims can only be 1-D, got \"{}\"",
            dims.shape()
        );
        let (positions, dims) = (indices.as_slice::<T>()?, dims.as_slice::<T>()?);
        let product = product(dims)?;
        ensure!(
            positions.iter().all(|p| p.to_i64() < product),
            InvalidArgument,
            "index is out of bound as with dims"
        );
        let shape = match indices.rank() {
            0 => Shape::new(&[dims.len()])?,
            _ => Shape::new(&[dims.len(), positions.len()])?,
        };
        let mut out = ctx.allocate_output(0, shape)?;
        let nanoseconds = 10.0 * positions.len() as f64 + dims.len() as f64;
        for_each_rows(
            ctx,
            out.as_mut_slice::<T>()?,
            positions.len(),
            nanoseconds,
            |first, out| {
                for (row, out) in (first..).zip(out.chunks_exact_mut(positions.len())) {
                    let step: i64 = dims[row + 1..].iter().map(|d| d.to_i64()).product();
                    let whole = step * dims[row].to_i64();
                    for (out, p) in out.iter_mut().zip(positions) {
                        *out = T::from_i64(p.to_i64() % whole / step);
                    }
                }
            },
        )?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, DType, Tensor};

    #[test]
    fn coordinates() {
        for (indices, dims, expected) in [
            (&[22, 41, 37][..], &[7, 6][..], &[3, 6, 6, 4, 5, 1][..]),
            (&[-1], &[7, 6], &[0, -1]),
            (&[0], &[], &[]),
        ] {
            let call = call("UnravelIndex").input(Tensor::vector(indices).unwrap());
            let got = call.input(Tensor::vector::<i32>(dims).unwrap()).run().unwrap();
            assert_eq!(got.as_slice::<i32>().unwrap(), expected);
            assert_eq!(got.shape().dims(), [dims.len(), indices.len()]);
        }
        let scalar = call("UnravelIndex").input(Tensor::scalar(22i64));
        let scalar = scalar.input(Tensor::vector(&[7i64, 6]).unwrap()).run().unwrap();
        assert_eq!(scalar.as_slice::<i64>().unwrap(), [3, 4]);
    }

    #[test]
    fn hostile_inputs() {
        let most = i64::MAX;
        for (indices, dims) in [
            (&[42i64][..], &[7, 6][..]),
            (&[0], &[0, 6]),
            (&[0], &[-2, 6]),
            (&[], &[2, 3]),
            (&[5], &[most, most]),
            (&[i64::MIN], &[most, 0]),
        ] {
            let call = call("UnravelIndex").input(Tensor::vector(indices).unwrap());
            assert_eq!(
                code(call.input(Tensor::vector(dims).unwrap()).run()),
                Some(Code::InvalidArgument),
                "{dims:?}"
            );
        }
    }

    #[test]
    fn shapes() {
        let infer = |indices| {
            call("UnravelIndex").shape(DType::Int32, indices).shape(DType::Int32, "3").infer()
        };
        assert_eq!(infer(""), "[3]");
        assert_eq!(infer("5"), "[3,5]");
        assert_eq!(infer("?"), "[3,?]");
    }
}
