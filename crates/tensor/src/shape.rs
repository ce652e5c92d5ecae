//! Concrete shapes: the sizes of an existing tensor's dimensions.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use smallvec::SmallVec;

use crate::{Result, ensure, err};

/// The highest rank TensorFlow allows.
pub const RANK_MAX: usize = 254;

/// The sizes of a tensor's dimensions. Their product fits in an `i64`, so index arithmetic on
/// elements of an existing shape cannot overflow.
#[derive(Eq, Default)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape(SmallVec::new())
    }

    /// Checks rank, signs and overflow.
    pub fn new(dims: &[usize]) -> Result<Shape> {
        let shape = Shape(SmallVec::from_slice(dims));
        shape.check()?;
        Ok(shape)
    }

    /// As [`Shape::new`], from signed sizes; negative ones are an error.
    pub fn from_i64(dims: &[i64]) -> Result<Shape> {
        let mut sizes = SmallVec::with_capacity(dims.len().min(RANK_MAX + 1));
        for (i, &d) in dims.iter().enumerate() {
            let size = usize::try_from(d).ok().filter(|_| i <= RANK_MAX).ok_or_else(|| {
                err!(InvalidArgument, "dimension {i} must be at least 0, got {d}, in {dims:?}")
            })?;
            sizes.push(size);
        }
        let shape = Shape(sizes);
        shape.check()?;
        Ok(shape)
    }

    fn check(&self) -> Result<()> {
        ensure!(self.len() <= RANK_MAX, InvalidArgument, "rank {} exceeds {RANK_MAX}", self.len());
        // A zero hides an overflow of the others, but sub-shapes must not overflow either.
        let mut product: i64 = 1;
        for &d in self.iter().filter(|&&d| d != 0) {
            product =
                i64::try_from(d).ok().and_then(|d| product.checked_mul(d)).ok_or_else(|| {
                    err!(InvalidArgument, "shape {self} has too many elements for 63 bits")
                })?;
        }
        Ok(())
    }

    /// Number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The sizes.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Product of the sizes.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Whether the sizes are stored on the heap because there are more than fit inline.
    #[inline]
    pub(crate) fn is_on_heap(&self) -> bool {
        self.0.spilled()
    }

    /// The sizes as signed numbers, as messages and shape tensors hold them.
    pub fn to_i64(&self) -> SmallVec<[i64; 4]> {
        self.0.iter().map(|&d| d as i64).collect()
    }
}

// By hand: shapes are compared and copied for every small kernel, and most have few dimensions.
impl PartialEq for Shape {
    #[inline]
    fn eq(&self, other: &Shape) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        Shape(SmallVec::from_slice(&self.0))
    }
}

impl Deref for Shape {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn sizes_are_checked() {
        assert_eq!(Shape::from_i64(&[2, 3]).unwrap().num_elements(), 6);
        for dims in [&[-1][..], &[1 << 40, 1 << 40], &[0, 1 << 40, 1 << 40], &[1; 255]] {
            let e = Shape::from_i64(dims).unwrap_err();
            assert_eq!(e.code(), Code::InvalidArgument, "{dims:?}: {e}");
        }
        assert_eq!(Shape::from_i64(&[1; 254]).unwrap().num_elements(), 1);
        assert_eq!(Shape::from_i64(&[0, 5]).unwrap().num_elements(), 0);
    }
}
