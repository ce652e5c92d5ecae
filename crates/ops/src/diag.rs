//! `Diag` and `DiagPart`: diagonals of tensors of any rank.

use smallvec::SmallVec;
use thalweg_graph::{Gradient, GradientContext, OpDef, ShapeContext, Work};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, ensure};

use crate::strided::{Dim, StridedCopy};

pub(crate) static FAMILY: Family = Family {
    ops: &[DIAG, DIAG_PART],
    kernels: &[
        KernelSpec { op: "Diag", constraints: NUMBERS, create: diag, ..KernelSpec::CPU },
        KernelSpec { op: "DiagPart", constraints: NUMBERS, create: diag_part, ..KernelSpec::CPU },
        KernelSpec::lowering("Diag", lower_diag).for_dtypes(NUMBERS),
        KernelSpec::lowering("DiagPart", lower_diag_part).for_dtypes(NUMBERS),
    ],
};

const NUMBERS: &[(&str, &[DType])] = &[(
    "T",
    &[
        DType::BFloat16,
        DType::Half,
        DType::Float,
        DType::Double,
        DType::Int32,
        DType::Int64,
        DType::Complex64,
        DType::Complex128,
    ],
)];

const DIAG: OpDef = OpDef::new("Diag", diag_shape)
    .with_work(Work::moves)
    .with_gradient(|g| by_inverse(g, "DiagPart"));

/// The gradient of an op that rearranges elements: the op `inverse` rearranges them back.
fn by_inverse(g: &mut GradientContext<'_>, inverse: &str) -> Result<()> {
    let grad = g.grad(0)?;
    let moved = g.add(inverse, &[grad])?;
    g.set(0, moved)
}

fn diag_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let diagonal = c.with_rank_at_least(0, "diagonal", 1)?;
    let Some(dims) = diagonal.dims() else { return Ok(()) };
    c.set_output(0, PartialShape::new(dims.iter().chain(dims).copied()));
    Ok(())
}

fn diag(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let diagonal = ctx.input(0)?;
        let dims = diagonal.shape().dims();
        ensure!(!dims.is_empty(), InvalidArgument, "Input must be at least rank 1, got 0");
        let twice: SmallVec<[usize; 8]> = dims.iter().chain(dims).copied().collect();
        let mut out = ctx.zeros(diagonal.dtype(), Shape::new(&twice)?)?;
        let len = diagonal.num_elements();
        let mut copy = StridedCopy::default();
        copy.dims.push(Dim { len, source: 1, target: len + 1 });
        copy.run(ctx, diagonal, &mut out)?;
        ctx.set_output(0, out)
    })
}

/// The elements of the diagonal are as many apart as it has elements.
fn lower_diag(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?.flatten(), l.output_dims(0)?);
    let apart = x.pad(&x.scalar_like(0.0), &[0], &[0], &[x.num_elements() as i64]);
    l.set(0, apart.reshape(&dims))
}

fn lower_diag_part(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims) = (l.input(0)?.flatten(), l.output_dims(0)?);
    let step = dims.iter().product::<usize>() + 1;
    l.set(0, x.slice(&[0], &[x.num_elements()], &[step]).reshape(&dims))
}

const DIAG_PART: OpDef = OpDef {
    name: "DiagPart",
    shape: diag_part_shape,
    gradient: Gradient::By(|g| by_inverse(g, "Diag")),
    work: Work::copies_outputs,
    ..DIAG
};

fn diag_part_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    ensure!(
        dims.len() % 2 == 0 && !dims.is_empty(),
        InvalidArgument,
        "Input must have even and non-zero rank, input rank is {}",
        dims.len()
    );
    let (first, second) = dims.split_at(dims.len() / 2);
    let first = PartialShape::new(first.iter().copied());
    let merged = first.merge(&PartialShape::new(second.iter().copied()))?;
    c.set_output(0, merged);
    Ok(())
}

fn diag_part(_: &KernelInit<'_>) -> Result<AnyKernel> {
    AnyKernel::new(|ctx| {
        let input = ctx.input(0)?;
        let shape = input.shape();
        ensure!(
            shape.rank() % 2 == 0,
            InvalidArgument,
            "The rank of the tensor should be even and positive, got shape {shape}"
        );
        let half = shape.rank() / 2;
        let (first, second) = shape.split_at(half);
        if let Some(i) = first.iter().zip(second).position(|(a, b)| a != b) {
            thalweg_tensor::bail!(
                InvalidArgument,
                "Invalid shape {shape}: dimensions {i} and {} do not match.",
                i + half
            );
        }
        let mut out = ctx.allocate(input.dtype(), Shape::new(first)?)?;
        let len = out.num_elements();
        let mut copy = StridedCopy::default();
        copy.dims.push(Dim { len, source: len as isize + 1, target: 1 });
        copy.run(ctx, input, &mut out)?;
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, code};
    use thalweg_tensor::{Code, Tensor};

    #[test]
    fn shapes() {
        assert_eq!(call("Diag").shape(DType::Float, "2,?").infer(), "[2,?,2,?]");
        assert_eq!(call("DiagPart").shape(DType::Float, "2,?,?,3").infer(), "[2,3]");
        for input in ["", "2", "2,3"] {
            let got = call("DiagPart").shape(DType::Float, input).infer();
            assert!(got.starts_with("INVALID_ARGUMENT"), "{input}: {got}");
        }
    }

    #[test]
    fn there_and_back() {
        for dims in [&[1usize][..], &[3], &[2, 2], &[0], &[2, 3, 2]] {
            let count: usize = dims.iter().product();
            let values: Vec<i64> = (1..=count as i64).collect();
            let diagonal = Tensor::from_slice(Shape::new(dims).unwrap(), &values).unwrap();
            let wide = call("Diag").input(diagonal).run().unwrap();
            let sum: i64 = wide.as_slice::<i64>().unwrap().iter().sum();
            assert_eq!(sum, values.iter().sum::<i64>());
            let back = call("DiagPart").input(wide).run().unwrap();
            assert_eq!(back.shape().dims(), dims);
            assert_eq!(back.as_slice::<i64>().unwrap(), values);
        }
        let large = Tensor::zeros(DType::Float, Shape::new(&[1 << 20]).unwrap()).unwrap();
        assert_eq!(code(call("Diag").input(large).run()), Some(Code::ResourceExhausted));
    }
}
