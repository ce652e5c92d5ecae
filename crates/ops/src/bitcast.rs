//! `Bitcast`: reinterprets the bits of elements as another dtype.

use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext, Work};
use thalweg_hlo::Value;
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec, Lowering};
use thalweg_tensor::{DType, PartialShape, Result, Shape, bail, ensure, err};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("Bitcast", bitcast_shape).with_work(Work::none)],
    kernels: &[
        KernelSpec { op: "Bitcast", create: bitcast, ..KernelSpec::CPU },
        KernelSpec::lowering("Bitcast", lower_bitcast),
    ],
};

/// The shape after reinterpreting elements of dtype `from` as elements of another size.
fn bitcast_sizes(sizes: &[Option<usize>], from: DType, to: DType) -> Result<PartialShape> {
    let (from_bytes, to_bytes) = (from.size(), to.size());
    ensure!(
        from_bytes > 0 && to_bytes > 0,
        InvalidArgument,
        "Bitcast does not support {from} to {to}"
    );
    let mut sizes: SmallVec<[Option<usize>; 4]> = SmallVec::from_slice(sizes);
    if from_bytes > to_bytes {
        sizes.push(Some(from_bytes / to_bytes));
    } else if from_bytes < to_bytes {
        let expected = to_bytes / from_bytes;
        match sizes.pop() {
            Some(None) => {}
            Some(Some(last)) if last == expected => {}
            _ => bail!(
                InvalidArgument,
                "to become {to}, a {from} tensor's last dimension must have size {expected}"
            ),
        }
    }
    Ok(PartialShape::new(sizes))
}

fn bitcast_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let Some(sizes) = c.input(0).dims() else { return Ok(()) };
    let shape = bitcast_sizes(sizes, c.attrs().dtype("T")?, c.attrs().dtype("type")?)?;
    c.set_output(0, shape);
    Ok(())
}

fn lower_bitcast(l: &mut Lowering<'_>) -> Result<()> {
    let (x, dims, to) = (l.input(0)?, l.output_dims(0)?, l.output_dtype(0));
    if x.dtype() == to {
        return l.set(0, x);
    }
    // Programs reinterpret no complex numbers, so those are pairs of floats in between.
    let x = if x.dtype().is_complex() { pairs_of(&x) } else { x };
    if !to.is_complex() {
        return l.set(0, bits_as(&x, to, &dims));
    }
    let part = if to == DType::Complex128 { DType::Double } else { DType::Float };
    let mut pair_dims = dims.clone();
    pair_dims.push(2);
    let (pairs, last) = (bits_as(&x, part, &pair_dims), dims.len());
    let halves = [0, 1].map(|i| pairs.slice_dim(last, i, i + 1).reshape(&dims));
    l.set(0, halves[0].complex(&halves[1]))
}

/// Real and imaginary parts, along a new last dimension.
fn pairs_of(x: &Value) -> Value {
    let last = x.rank();
    x.real().expand(last).concatenate(&[x.imaginary().expand(last)], last)
}

/// The same bytes in another dtype and these dimensions.
fn bits_as(x: &Value, to: DType, dims: &[usize]) -> Value {
    let (from_bytes, to_bytes) = (x.dtype().size(), to.size());
    let elements = x.num_elements();
    if from_bytes < to_bytes {
        let ratio = to_bytes / from_bytes;
        let rows = elements / ratio;
        return x.reshape(&[rows, ratio]).bitcast_to(to, &[rows]).reshape(dims);
    }
    let ratio = from_bytes / to_bytes;
    let parts = if ratio == 1 { vec![elements] } else { vec![elements, ratio] };
    x.flatten().bitcast_to(to, &parts).reshape(dims)
}

fn bitcast(init: &KernelInit<'_>) -> Result<AnyKernel> {
    let (from, to) = (init.attrs().dtype("T")?, init.attrs().dtype("type")?);
    AnyKernel::new(move |ctx| {
        let x = ctx.take_input(0)?;
        if from.size() == to.size() {
            return ctx.set_output(0, x.bitcast_same_size(to)?);
        }
        let sizes: SmallVec<[Option<usize>; 4]> = x.shape().iter().map(|&d| Some(d)).collect();
        let shape: Option<Shape> = bitcast_sizes(&sizes, from, to)?.to_shape();
        let shape = shape.ok_or_else(|| err!(InvalidArgument, "{x:?} is too large for {to}"))?;
        let mut out = ctx.allocate(to, shape)?;
        // SAFETY: the op's types exclude bool.
        let target = unsafe { out.bytes_mut()? };
        let source = x.as_bytes()?;
        ensure!(target.len() == source.len(), Internal, "{x:?} does not fill {out:?}");
        target.copy_from_slice(source);
        ctx.set_output(0, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    #[test]
    fn bitcast_shapes() {
        for (sizes, from, to, expected) in [
            (&[Some(3)][..], DType::Float, DType::Int32, "[3]"),
            (&[Some(3), None], DType::Double, DType::UInt8, "[3,?,8]"),
            (&[Some(3), Some(4)], DType::UInt8, DType::Float, "[3]"),
            (&[None], DType::UInt8, DType::Float, "[]"),
        ] {
            assert_eq!(bitcast_sizes(sizes, from, to).unwrap().to_string(), expected);
        }
        assert_eq!(
            code(bitcast_sizes(&[], DType::UInt8, DType::Float)),
            Some(Code::InvalidArgument)
        );
        assert_eq!(
            code(bitcast_sizes(&[Some(3)], DType::UInt8, DType::Float)),
            Some(Code::InvalidArgument)
        );
    }
}
