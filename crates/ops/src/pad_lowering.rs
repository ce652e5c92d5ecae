//! Lowering of padding.

use smallvec::SmallVec;
use thalweg_hlo::Value;
use thalweg_kernel::Lowering;
use thalweg_tensor::{Result, ensure};

use crate::pad::{check_mirror, pairs};

/// The rows of input 1, one for each dimension of `x`.
fn paddings(l: &Lowering<'_>, x: &Value) -> Result<SmallVec<[[usize; 2]; 6]>> {
    let paddings = pairs(l.host(1)?)?;
    ensure!(
        paddings.len() == x.rank(),
        InvalidArgument,
        "The first dimension of paddings must be the rank of inputs: {} and {}",
        paddings.len(),
        x.rank()
    );
    Ok(paddings)
}

pub(crate) fn pad(l: &mut Lowering<'_>) -> Result<()> {
    let x = l.input(0)?;
    let paddings = paddings(l, &x)?;
    let value = if l.num_inputs() > 2 { l.input(2)? } else { x.scalar_like(0.0) };
    ensure!(value.rank() == 0, InvalidArgument, "constant_values must be a scalar");
    let side = |i: usize| paddings.iter().map(|p| p[i] as i64).collect::<Vec<_>>();
    l.set(0, x.pad(&value, &side(0), &side(1), &vec![0; x.rank()]))
}

/// Distance of the mirror from the edge: 0 repeats the edge (SYMMETRIC), 1 does not (REFLECT).
fn mirror_offset(l: &Lowering<'_>) -> Result<usize> {
    Ok(usize::from(l.attrs().string("mode")? == "REFLECT"))
}

pub(crate) fn mirror_pad(l: &mut Lowering<'_>) -> Result<()> {
    let (mut x, offset) = (l.input(0)?, mirror_offset(l)?);
    for (d, [before, after]) in paddings(l, &x)?.into_iter().enumerate() {
        let size = x.dims()[d];
        check_mirror(size, before, after, offset)?;
        let mirrored = |start: usize, len: usize| x.slice_dim(d, start, start + len).reverse(&[d]);
        let mut parts = Vec::new();
        if before > 0 {
            parts.push(mirrored(offset, before));
        }
        parts.push(x.clone());
        if after > 0 {
            parts.push(mirrored(size - offset - after, after));
        }
        x = parts[0].concatenate(&parts[1..], d);
    }
    l.set(0, x)
}

/// Adds the padding to the elements that it mirrors, dimension by dimension.
pub(crate) fn mirror_pad_grad(l: &mut Lowering<'_>) -> Result<()> {
    let (mut x, offset) = (l.input(0)?, mirror_offset(l)?);
    for (d, [before, after]) in paddings(l, &x)?.into_iter().enumerate() {
        let total = before.saturating_add(after);
        ensure!(
            total < x.dims()[d],
            InvalidArgument,
            "Total paddings must be less than the input dimension size: {total} was not less than {}",
            x.dims()[d]
        );
        let size = x.dims()[d] - total;
        check_mirror(size, before, after, offset)?;
        // The margin of `len` elements from `start` on, mirrored to `target` on.
        let folded = |start: usize, len: usize, target: usize| {
            let margin = x.slice_dim(d, start, start + len).reverse(&[d]);
            let (mut low, mut high) = (vec![0; x.rank()], vec![0; x.rank()]);
            (low[d], high[d]) = (target as i64, (size - target - len) as i64);
            margin.pad(&x.scalar_like(0.0), &low, &high, &vec![0; x.rank()])
        };
        let mut sum = x.slice_dim(d, before, before + size);
        if before > 0 {
            sum = sum + folded(0, before, offset);
        }
        if after > 0 {
            sum = sum + folded(before + size, after, size - offset - after);
        }
        x = sum;
    }
    l.set(0, x)
}
