//! Partially known shapes: each size, or the rank itself, may be unknown.

use std::fmt;

use smallvec::SmallVec;
use thalweg_proto::{TensorShapeProto, tensor_shape_proto::Dim};

use crate::{RANK_MAX, Result, Shape, bail, ensure};

/// What graph construction knows of a tensor's shape; `None` is a size that only the step determines.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartialShape(Option<SmallVec<[Option<usize>; 4]>>);

impl PartialShape {
    /// Nothing is known, not even the rank; for statics.
    pub const UNKNOWN: PartialShape = PartialShape(None);

    /// Nothing is known, not even the rank.
    pub fn unknown() -> Self {
        PartialShape(None)
    }

    /// The shape of a scalar.
    pub fn scalar() -> Self {
        PartialShape(Some(SmallVec::new()))
    }

    /// Known rank, no known size.
    pub fn of_rank(rank: usize) -> Self {
        PartialShape(Some(smallvec::smallvec![None; rank]))
    }

    /// From sizes, each known or not.
    pub fn new(dims: impl IntoIterator<Item = Option<usize>>) -> Self {
        PartialShape(Some(dims.into_iter().collect()))
    }

    /// The sizes, or `None` if the rank is unknown.
    pub fn dims(&self) -> Option<&[Option<usize>]> {
        self.0.as_deref()
    }

    /// The rank, if known.
    pub fn rank(&self) -> Option<usize> {
        self.0.as_ref().map(SmallVec::len)
    }

    /// Size `i`, if the rank and the size are known.
    pub fn dim(&self, i: usize) -> Option<usize> {
        self.0.as_ref().and_then(|dims| dims.get(i).copied().flatten())
    }

    /// The concrete shape, if every size is known and their product does not overflow.
    pub fn to_shape(&self) -> Option<Shape> {
        let dims: Option<SmallVec<[usize; 4]>> = self.0.as_ref()?.iter().copied().collect();
        Shape::new(&dims?).ok()
    }

    /// Whether `shape` has this rank and these sizes, as far as they are known.
    pub fn is_compatible_with(&self, shape: &Shape) -> bool {
        self.0.as_ref().is_none_or(|dims| {
            dims.len() == shape.rank()
                && dims.iter().zip(shape.iter()).all(|(d, s)| d.is_none_or(|d| d == *s))
        })
    }

    /// The most specific shape that both agree with; an error if they contradict each other.
    pub fn merge(&self, other: &PartialShape) -> Result<PartialShape> {
        let (Some(a), Some(b)) = (&self.0, &other.0) else {
            return Ok(if self.0.is_some() { self.clone() } else { other.clone() });
        };
        ensure!(
            a.len() == b.len(),
            InvalidArgument,
            "shapes must have equal rank, but are {self} and {other}"
        );
        let mut merged = SmallVec::with_capacity(a.len());
        for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
            merged.push(match (x, y) {
                (Some(x), Some(y)) if x != y => bail!(
                    InvalidArgument,
                    "dimension {i} in both shapes must be equal, but is {x} in {self} and {y} in {other}"
                ),
                _ => x.or(y),
            });
        }
        Ok(PartialShape(Some(merged)))
    }

    /// From TensorFlow's message: size -1 is unknown.
    pub fn from_proto(proto: &TensorShapeProto) -> Result<PartialShape> {
        if proto.unknown_rank {
            return Ok(PartialShape::unknown());
        }
        ensure!(
            proto.dim.len() <= RANK_MAX,
            InvalidArgument,
            "rank {} exceeds {RANK_MAX}",
            proto.dim.len()
        );
        let mut dims = SmallVec::with_capacity(proto.dim.len());
        for dim in &proto.dim {
            dims.push(match dim.size {
                -1 => None,
                size if size >= 0 => Some(size as usize),
                size => bail!(InvalidArgument, "a shape cannot have size {size}"),
            });
        }
        let known: SmallVec<[usize; 4]> = dims.iter().copied().flatten().collect();
        Shape::new(&known)?;
        Ok(PartialShape(Some(dims)))
    }

    /// TensorFlow's message.
    pub fn to_proto(&self) -> TensorShapeProto {
        let Some(dims) = &self.0 else {
            return TensorShapeProto { unknown_rank: true, dim: Vec::new() };
        };
        let dim = |d: &Option<usize>| Dim { size: d.map_or(-1, |d| d as i64), name: String::new() };
        TensorShapeProto { unknown_rank: false, dim: dims.iter().map(dim).collect() }
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> Self {
        PartialShape::new(shape.iter().map(|&d| Some(d)))
    }
}

impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = &self.0 else { return f.write_str("<unknown>") };
        f.write_str("[")?;
        for (i, d) in dims.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            match d {
                Some(d) => write!(f, "{d}")?,
                None => f.write_str("?")?,
            }
        }
        f.write_str("]")
    }
}

impl fmt::Debug for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn merge_keeps_what_either_knows() {
        let a = PartialShape::new([Some(2), None]);
        let b = PartialShape::new([None, Some(3)]);
        assert_eq!(a.merge(&b).unwrap().to_string(), "[2,3]");
        assert_eq!(a.merge(&PartialShape::unknown()).unwrap(), a);
        for other in [PartialShape::new([Some(4), None]), PartialShape::of_rank(3)] {
            assert_eq!(a.merge(&other).unwrap_err().code(), Code::InvalidArgument);
        }
    }
}
