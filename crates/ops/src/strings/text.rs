//! A growing text buffer that is charged to the session's budget.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_kernel::KernelContext;
use thalweg_tensor::{Budget, DType, Error, Result, Shape, Tensor, ensure, err};

use crate::split::for_each_rows;

/// Bytes that are written one after the other, never more than the session may hold.
pub(crate) struct Text {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl Text {
    /// Empty text, bounded by what is left of `budget`.
    pub(crate) fn new(budget: &Arc<Budget>) -> Text {
        Text { bytes: Vec::new(), budget: budget.clone() }
    }

    /// What bounds it.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Appends these bytes.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends one byte `count` times.
    pub(crate) fn push_repeated(&mut self, byte: u8, count: usize) -> Result<()> {
        self.reserve(count)?;
        self.bytes.resize(self.bytes.len() + count, byte);
        Ok(())
    }

    /// Appends what `value` prints as.
    pub(crate) fn print(&mut self, value: impl std::fmt::Display) -> Result<()> {
        use std::fmt::Write;
        write!(self, "{value}").map_err(|_| err!(ResourceExhausted, "out of memory for text"))
    }

    #[inline]
    fn reserve(&mut self, more: usize) -> Result<()> {
        if more <= self.bytes.capacity() - self.bytes.len() { Ok(()) } else { self.grow(more) }
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<()> {
        let wanted = self.bytes.len().saturating_add(more);
        let capacity = wanted.max(self.bytes.capacity().saturating_mul(2)).max(64);
        self.budget.check(wanted)?;
        self.bytes
            .try_reserve_exact(capacity - self.bytes.len())
            .map_err(|_| err!(ResourceExhausted, "out of memory for {capacity} bytes of text"))
    }

    /// What was written.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What was written, to be changed in place.
    pub(crate) fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// What was written, as a string of its own; the text is empty again.
    pub(crate) fn take(&mut self) -> Bytes {
        let bytes = Bytes::copy_from_slice(&self.bytes);
        self.bytes.clear();
        bytes
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        self.push(s.as_bytes()).map_err(|_| std::fmt::Error)
    }
}

/// Part of a string: shares its memory if it is most of it, so that a word never keeps a book.
pub(crate) fn part(source: &Bytes, range: Range<usize>) -> Bytes {
    if range.len() >= source.len().div_ceil(2) {
        source.slice(range)
    } else {
        Bytes::copy_from_slice(&source[range])
    }
}

/// The first error that threads meet, in the order of the tensor.
pub(crate) struct FirstError(Mutex<Option<(usize, Error)>>);

impl FirstError {
    /// None yet.
    pub(crate) fn new() -> Self {
        FirstError(Mutex::new(None))
    }

    /// Notes an error at a position.
    #[cold]
    pub(crate) fn note(&self, position: usize, error: Error) {
        let mut first = self.0.lock();
        if first.as_ref().is_none_or(|(p, _)| position < *p) {
            *first = Some((position, error));
        }
    }

    /// Fails with the first one that was noted.
    pub(crate) fn check(self) -> Result<()> {
        self.0.into_inner().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// A string tensor whose element `i` is what `body(i, text)` writes, on several threads if it pays.
pub(crate) fn write_strings(
    ctx: &KernelContext<'_>,
    shape: Shape,
    nanoseconds: f64,
    body: impl Fn(usize, &mut Text) -> Result<()> + Sync,
) -> Result<Tensor> {
    let written = AtomicUsize::new(0);
    make_each(ctx, shape, nanoseconds, |first, out: &mut [Bytes]| {
        let mut text = Text::new(ctx.budget());
        for (i, slot) in out.iter_mut().enumerate() {
            body(first + i, &mut text).map_err(|e| (first + i, e))?;
            let before = written.fetch_add(text.as_bytes().len(), Ordering::Relaxed);
            let total = before.saturating_add(text.as_bytes().len());
            ctx.budget().check(total).map_err(|e| (first + i, e))?;
            *slot = text.take();
        }
        Ok(())
    })
}

/// A string tensor whose element `i` is `body(i)`, on several threads if it pays.
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

/// The single string in input `i`, called `name`, which must be a scalar.
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
    use crate::testing::code;
    use thalweg_tensor::Code;

    #[test]
    fn text_stays_within_its_budget() {
        let mut text = Text::new(&Budget::new(1000));
        text.push(b"abc").unwrap();
        text.push_repeated(b'-', 2).unwrap();
        text.print(7).unwrap();
        assert_eq!(text.as_bytes(), b"abc--7");
        assert_eq!(code(text.push_repeated(0, 2000)), Some(Code::ResourceExhausted));
        assert_eq!(code(text.push_repeated(0, usize::MAX)), Some(Code::ResourceExhausted));
        assert_eq!(text.take(), "abc--7");
        assert_eq!(text.as_bytes(), b"");
    }

    #[test]
    fn small_parts_are_copies() {
        let book = Bytes::from(vec![b'x'; 100]);
        assert_eq!(part(&book, 10..90).as_ptr(), book[10..].as_ptr());
        assert_ne!(part(&book, 10..20).as_ptr(), book[10..].as_ptr());
        assert!(part(&Bytes::new(), 0..0).is_empty());
    }
}
