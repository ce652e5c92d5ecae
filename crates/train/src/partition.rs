//! Partitioned variables: each partition is a variable of its own, saved as a slice of the whole.

use std::panic::Location;

use thalweg_api::{Graph, Output, TensorType, on_behalf_of, tf};
use thalweg_tensor::{DType, Shape};

use crate::Variable;
use crate::layers::lookup;
use crate::state::State;

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
#[derive(Clone, Debug, Default)]
pub struct Parameter {
    /// `dense/kernel`: also its name in checkpoints.
    pub name: String,
    /// Its shape as a whole.
    pub shape: Shape,
    /// The variables that hold it, in order; none if it could not be added.
    pub parts: Vec<Variable>,
}

impl Parameter {
    /// Its value when the nodes of `view` run.
    #[track_caller]
    pub fn read(&self, view: &Graph) -> Output<f32> {
        on_behalf_of(Location::caller(), || {
            let values: Vec<Output<f32>> =
                self.parts.iter().map(|part| State::of(view, part).read(view)).collect();
            match self.parts.first().map(|first| &first.part) {
                None => Output::poisoned(view),
                Some(None) => values[0].clone(),
                Some(Some(part)) => tf::concat_v2(view, &values, part.axis as i32),
            }
        })
    }

    /// The rows at `indices`, gathered on the device of each partition.
    #[track_caller]
    pub fn gather<I: TensorType>(&self, view: &Graph, indices: &Output<I>) -> Output<f32> {
        on_behalf_of(Location::caller(), || lookup(view, &self.parts, indices))
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
