//! `Bitcast`: reinterprets the bits of elements as another dtype.

use smallvec::SmallVec;
use thalweg_graph::{OpDef, ShapeContext};
use thalweg_kernel::{AnyKernel, Family, KernelInit, KernelSpec};
use thalweg_tensor::{DType, PartialShape, Result, Shape, bail, ensure, err};

pub(crate) static FAMILY: Family = Family {
    ops: &[OpDef::new("Bitcast", bitcast_shape)],
    kernels: &[KernelSpec { op: "Bitcast", create: bitcast, ..KernelSpec::CPU }],
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
