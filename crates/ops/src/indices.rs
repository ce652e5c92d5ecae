//! Index tensors of any integer dtype.

use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_tensor::{DType, Result, Shape, Tensor, bail};

/// Elements of an index tensor of any integer dtype. Each read has a predictable branch, which
/// avoids compiling every loop for each dtype.
#[derive(Clone, Copy)]
pub(crate) enum Indices<'a> {
    I8(&'a [i8]),
    U8(&'a [u8]),
    I16(&'a [i16]),
    U16(&'a [u16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl<'a> Indices<'a> {
    /// The elements of an integer tensor.
    pub(crate) fn of(tensor: &'a Tensor) -> Result<Indices<'a>> {
        Ok(match tensor.dtype() {
            DType::Int8 => Indices::I8(tensor.as_slice()?),
            DType::UInt8 => Indices::U8(tensor.as_slice()?),
            DType::Int16 => Indices::I16(tensor.as_slice()?),
            DType::UInt16 => Indices::U16(tensor.as_slice()?),
            DType::Int32 => Indices::I32(tensor.as_slice()?),
            DType::Int64 => Indices::I64(tensor.as_slice()?),
            other => bail!(InvalidArgument, "indices must be integers, are {other}"),
        })
    }

    /// Element `i`.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize) -> i64 {
        match self {
            Indices::I8(s) => s[i].into(),
            Indices::U8(s) => s[i].into(),
            Indices::I16(s) => s[i].into(),
            Indices::U16(s) => s[i].into(),
            Indices::I32(s) => s[i].into(),
            Indices::I64(s) => s[i],
        }
    }

    /// Element `i`, if it is in `0..limit`.
    #[inline(always)]
    pub(crate) fn below(&self, i: usize, limit: usize) -> Option<usize> {
        // As an unsigned number, a negative index exceeds any limit.
        let index = self.at(i) as u64;
        (index < limit as u64).then_some(index as usize)
    }
}

/// The smallest position of an invalid element that any thread has found.
pub(crate) struct FirstBad(AtomicUsize);

impl FirstBad {
    /// No position yet.
    pub(crate) fn new() -> Self {
        FirstBad(AtomicUsize::new(usize::MAX))
    }

    /// Records an invalid position.
    #[cold]
    pub(crate) fn note(&self, position: usize) {
        self.0.fetch_min(position, Ordering::Relaxed);
    }

    /// The smallest recorded position.
    pub(crate) fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&p| p != usize::MAX)
    }
}

/// The coordinates of element `position` in a tensor of this shape, for error messages: `1,2`.
pub(crate) fn coordinates(mut position: usize, shape: &Shape) -> String {
    let mut found: Vec<String> = Vec::new();
    for &size in shape.iter().rev() {
        found.push((position % size.max(1)).to_string());
        position /= size.max(1);
    }
    found.reverse();
    found.join(",")
}
