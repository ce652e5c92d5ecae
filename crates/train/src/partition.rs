//! Partitioned variables: each partition is a variable of its own, saved as a slice of the whole.

use thalweg_graph::{Output, Scope};
use thalweg_tensor::{DType, Result, Shape, err};

use crate::layers::lookup;
use crate::{ModelScope, Variable};

/// How variables are partitioned: contiguously along one axis, the first partitions larger by one
/// where the axis is not divided evenly. Variables without that axis are not partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioner {
    /// A fixed number of partitions, fewer where the axis is shorter (`fixed_size_partitioner`).
    Fixed {
        /// The number of partitions.
        parts: usize,
        /// The axis.
        axis: usize,
    },
    /// The fewest partitions of which none is larger than `bytes`, down to one row each
    /// (`variable_axis_size_partitioner`).
    MaxBytes {
        /// The maximum size of a partition in bytes.
        bytes: usize,
        /// The axis.
        axis: usize,
        /// The maximum number of partitions, whatever their size.
        parts_max: Option<usize>,
    },
}

impl Partitioner {
    /// The axis and the sizes of the partitions along it; `None` if the variable is not
    /// partitioned.
    pub(crate) fn cut(self, shape: &Shape, dtype: DType) -> Option<(usize, Vec<usize>)> {
        let (Partitioner::Fixed { axis, .. } | Partitioner::MaxBytes { axis, .. }) = self;
        let length = shape.dims().get(axis).copied()?;
        let wanted = match self {
            Partitioner::Fixed { parts, .. } => parts,
            Partitioner::MaxBytes { bytes, parts_max, .. } => {
                let row = shape.num_elements() / length.max(1) * dtype.size();
                let rows = (bytes / row.max(1)).max(1);
                length.div_ceil(rows).min(parts_max.unwrap_or(usize::MAX))
            }
        };
        let parts = wanted.min(length);
        if parts < 2 {
            return None;
        }
        let (size, larger) = (length / parts, length % parts);
        Some((axis, (0..parts).map(|i| size + usize::from(i < larger)).collect()))
    }
}

/// A parameter of a layer, in one variable or partitioned.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// `dense/kernel`: also its name in checkpoints.
    pub name: String,
    /// Its shape as a whole.
    pub shape: Shape,
    /// The variables that hold it, in order; at least one.
    pub parts: Vec<Variable>,
}

impl Parameter {
    /// Its value when the nodes that are added here run.
    pub fn read(&self, scope: &mut Scope) -> Result<Output> {
        let values = self.parts.iter().map(|part| part.read(scope));
        let values = values.collect::<Result<Vec<Output>>>()?;
        let part = self.parts.first().and_then(|part| part.part.as_ref());
        let Some(part) = part else {
            let value = values.first().copied();
            return value
                .ok_or_else(|| err!(Internal, "parameter '{}' has no variables", self.name));
        };
        let axis = scope.number(DType::Int32, part.axis as f64)?;
        scope.op("ConcatV2").inputs(&values).inputs(&[axis]).build()
    }

    /// The rows at `indices`, gathered on the device of each partition.
    pub fn gather(&self, model: &mut ModelScope, indices: Output) -> Result<Output> {
        lookup(model, &self.parts, indices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_cut() {
        let fixed = |parts, axis| Partitioner::Fixed { parts, axis };
        let bytes = |bytes, parts_max| Partitioner::MaxBytes { bytes, axis: 0, parts_max };
        let cut = |partitioner: Partitioner, dims: &[usize]| {
            partitioner.cut(&Shape::new(dims).unwrap(), DType::Float)
        };
        assert_eq!(cut(fixed(3, 0), &[10, 2]), Some((0, vec![4, 3, 3])));
        assert_eq!(cut(fixed(3, 1), &[10, 2]), Some((1, vec![1, 1])));
        for (partitioner, dims) in [
            (fixed(3, 1), &[10][..]),
            (fixed(2, 0), &[]),
            (fixed(2, 0), &[1, 5]),
            (fixed(0, 0), &[9]),
        ] {
            assert_eq!(cut(partitioner, dims), None, "{partitioner:?} {dims:?}");
        }
        // Rows of 8 bytes, four to a part.
        assert_eq!(cut(bytes(35, None), &[10, 2]), Some((0, vec![4, 3, 3])));
        assert_eq!(cut(bytes(35, Some(2)), &[10, 2]), Some((0, vec![5, 5])));
        assert_eq!(cut(bytes(1, None), &[3, 2]), Some((0, vec![1, 1, 1])));
        assert_eq!(cut(bytes(80, None), &[10, 2]), None);
        assert_eq!(cut(bytes(0, None), &[0, 2]), None);
        assert_eq!(cut(bytes(9, None), &[9, 0]), None);
    }
}
