//! String tensors that kernels compute element by element.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{
    Budget, DType, Error, Result, Shape, StringBuilder, Tensor, copy_string, ensure,
};

use crate::split::for_each_rows;

/// A substring: shares the string's memory if it is at least half of it, else a copy that is
/// charged to `budget`, so that a small part does not keep a large string alive.
pub(crate) fn part(source: &Bytes, range: Range<usize>, budget: &Arc<Budget>) -> Result<Bytes> {
    if range.len() >= source.len().div_ceil(2) {
        Ok(source.slice(range))
    } else {
        copy_string(&source[range], budget)
    }
}

/// The error of the smallest position that any thread has recorded.
pub(crate) struct FirstError(Mutex<Option<(usize, Error)>>);

impl FirstError {
    /// No error yet.
    pub(crate) fn new() -> Self {
        FirstError(Mutex::new(None))
    }

    /// Records an error at a position.
    #[cold]
    pub(crate) fn note(&self, position: usize, error: Error) {
        let mut first = self.0.lock();
        if first.as_ref().is_none_or(|(p, _)| position < *p) {
            *first = Some((position, error));
        }
    }

    /// Fails with the recorded error, if any.
    pub(crate) fn check(self) -> Result<()> {
        self.0.into_inner().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// A string tensor whose element `i` is written by `body(i, text)`, in parallel if that pays.
pub(crate) fn write_strings(
    ctx: &KernelContext<'_>,
    shape: Shape,
    nanoseconds: f64,
    body: impl Fn(usize, &mut StringBuilder) -> Result<()> + Sync,
) -> Result<Tensor> {
    make_each(ctx, shape, nanoseconds, |first, out: &mut [Bytes]| {
        let mut text = StringBuilder::new(ctx.budget());
        for (i, slot) in out.iter_mut().enumerate() {
            let written = body(first + i, &mut text).and_then(|()| text.take());
            *slot = written.map_err(|e| (first + i, e))?;
        }
        Ok(())
    })
}

/// A string tensor whose element `i` is `body(i)`, in parallel if that pays. `body` charges the
/// strings.
pub(crate) fn make_strings(
    ctx: &KernelContext<'_>,
    shape: Shape,
    nanoseconds: f64,
    body: impl Fn(usize) -> Result<Bytes> + Sync,
) -> Result<Tensor> {
    make_each(ctx, shape, nanoseconds, |first, out: &mut [Bytes]| {
        for (i, slot) in out.iter_mut().enumerate() {
            *slot = body(first + i).map_err(|e| (first + i, e))?;
        }
        Ok(())
    })
}

fn make_each(
    ctx: &KernelContext<'_>,
    shape: Shape,
    nanoseconds: f64,
    body: impl Fn(usize, &mut [Bytes]) -> Result<(), (usize, Error)> + Sync,
) -> Result<Tensor> {
    let mut output = ctx.zeros(DType::String, shape)?;
    let errors = FirstError::new();
    for_each_rows(ctx, output.strings_mut()?, 1, nanoseconds, |first, out| {
        if let Err((position, error)) = body(first, out) {
            errors.note(position, error);
        }
    })?;
    errors.check()?;
    Ok(output)
}

/// The scalar string in input `i`, called `name`.
pub(crate) fn scalar_string<'a>(
    ctx: &'a KernelContext<'_>,
    i: usize,
    name: &str,
) -> Result<&'a Bytes> {
    let tensor = ctx.input(i)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{name} must be a scalar, got shape {}",
        tensor.shape()
    );
    Ok(&tensor.strings()?[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_are_copies() {
        let (whole, budget) = (Bytes::from(vec![b'x'; 100]), Budget::new(1000));
        let part = |range| part(&whole, range, &budget).unwrap();
        assert_eq!(part(10..90).as_ptr(), whole[10..].as_ptr());
        let copy = part(10..50);
        assert_ne!(copy.as_ptr(), whole[10..].as_ptr());
        assert_eq!((copy.len(), budget.used_bytes()), (40, 40));
        assert!(super::part(&Bytes::new(), 0..0, &budget).unwrap().is_empty());
    }
}
