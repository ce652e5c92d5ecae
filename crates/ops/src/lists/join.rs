//! Concatenation of list elements into a new tensor.

use std::ops::Range;

use thalweg_kernel::KernelContext;
use thalweg_tensor::{DType, Result, Shape, Tensor, ensure};

use crate::cells::{Cell, blank, nanoseconds_per_cell};
use crate::split::Disjoint;

/// Concatenates `count` pieces. `piece` returns the range of output elements of piece `i` and the
/// tensor to copy there, or `None` for zeros. The ranges must be consecutive.
pub(crate) fn joined<'a>(
    ctx: &KernelContext<'_>,
    dtype: DType,
    shape: Shape,
    count: usize,
    piece: impl Fn(usize) -> (Option<&'a Tensor>, Range<usize>) + Sync,
) -> Result<Tensor> {
    let mut output = blank(ctx, dtype, shape)?;
    let mut end = 0;
    for i in 0..count {
        let (tensor, range) = piece(i);
        let fits = tensor.is_none_or(|t| t.dtype() == dtype && t.num_elements() == range.len());
        ensure!(
            fits && range.start == end,
            Internal,
            "piece {i} has the wrong dtype, size or position"
        );
        end = range.end;
    }
    ensure!(
        end == output.num_elements(),
        Internal,
        "the pieces have {end} elements, not those of the output"
    );
    with_cell!(dtype, C => copy::<C>(ctx, C::view_mut(&mut output)?, count, piece)?);
    Ok(output)
}

fn copy<'a, C: Cell>(
    ctx: &KernelContext<'_>,
    output: &mut [C],
    count: usize,
    piece: impl Fn(usize) -> (Option<&'a Tensor>, Range<usize>) + Sync,
) -> Result<()> {
    for i in 0..count {
        piece(i).0.map(C::view).transpose()?;
    }
    let average = output.len() as f64 / count.max(1) as f64;
    let output = Disjoint::new(output);
    ctx.parallel_for(count, 20.0 + average * nanoseconds_per_cell::<C>(), |pieces| {
        for i in pieces {
            let (tensor, range) = piece(i);
            // SAFETY: `joined` has checked that the pieces' ranges follow each other, and
            // `parallel_for` hands out each piece once.
            let target = unsafe { output.part(range) };
            match tensor.map(C::view) {
                Some(Ok(source)) => target.clone_from_slice(source),
                _ => target.fill(C::default()),
            }
        }
    })
}
