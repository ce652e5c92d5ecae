//! Operations that move elements: broadcasting, reshaping, slicing, gathering.

use thalweg_tensor::DType;

use crate::elementwise::broadcast_dims;
use crate::value::{Dims, Value, array, positions};

/// What the dimensions of a gather mean; the fields are StableHLO's.
#[derive(Clone, Debug, Default)]
pub struct GatherDims {
    /// Dimensions of the result that run over a slice.
    pub offset_dims: Vec<usize>,
    /// Dimensions of a slice that are dropped.
    pub collapsed_slice_dims: Vec<usize>,
    /// Batch dimensions of the operand.
    pub operand_batching_dims: Vec<usize>,
    /// Batch dimensions of the indices.
    pub start_indices_batching_dims: Vec<usize>,
    /// The operand's dimension of each index.
    pub start_index_map: Vec<usize>,
    /// The dimension of the indices that holds one index tuple.
    pub index_vector_dim: usize,
}

/// What the dimensions of a scatter mean; the fields are StableHLO's.
#[derive(Clone, Debug, Default)]
pub struct ScatterDims {
    /// Dimensions of the updates that run over a window.
    pub update_window_dims: Vec<usize>,
    /// Dimensions of the operand that a window lacks.
    pub inserted_window_dims: Vec<usize>,
    /// Batch dimensions of the operand.
    pub input_batching_dims: Vec<usize>,
    /// Batch dimensions of the indices.
    pub scatter_indices_batching_dims: Vec<usize>,
    /// The operand's dimension of each index.
    pub scatter_dims_to_operand_dims: Vec<usize>,
    /// The dimension of the indices that holds one index tuple.
    pub index_vector_dim: usize,
}

impl Value {
    /// Broadcasts as NumPy does: dimensions are added in front, those of 1 repeated.
    pub fn broadcast_to(&self, dims: &[usize]) -> Value {
        if *self.dims == *dims {
            return self.clone();
        }
        if broadcast_dims(&self.dims, dims).as_deref() != Some(dims) {
            let sentence = format!("Incompatible shapes: {:?} vs. {dims:?}", self.dims);
            return self.mistake(&sentence, self.dtype, dims);
        }
        let first = dims.len() - self.rank();
        self.broadcast_in(dims, &(first..dims.len()).collect::<Vec<_>>())
    }

    /// Broadcasts to `dims`; dimension `i` becomes dimension `places[i]`.
    pub fn broadcast_in(&self, dims: &[usize], places: &[usize]) -> Value {
        let fits = places.len() == self.rank()
            && places
                .iter()
                .zip(&self.dims)
                .all(|(&p, &d)| dims.get(p).is_some_and(|&to| d == 1 || d == to));
        if !fits {
            let sentence = format!("cannot broadcast {:?} into {dims:?} at {places:?}", self.dims);
            return self.mistake(&sentence, self.dtype, dims);
        }
        let attrs = format!("broadcast_dimensions = {}", positions(places));
        self.op("broadcast_in_dim", &[self], &attrs, self.dtype, dims)
    }

    /// The same elements with other dimensions.
    pub fn reshape(&self, dims: &[usize]) -> Value {
        if *self.dims == *dims {
            return self.clone();
        }
        if dims.iter().product::<usize>() != self.num_elements() {
            let sentence = format!("cannot reshape {:?} to {dims:?}", self.dims);
            return self.mistake(&sentence, self.dtype, dims);
        }
        self.op("reshape", &[self], "", self.dtype, dims)
    }

    /// One dimension.
    pub fn flatten(&self) -> Value {
        self.reshape(&[self.num_elements()])
    }

    /// A dimension of 1 at a position.
    pub fn expand(&self, position: usize) -> Value {
        let mut dims = self.dims.clone();
        dims.insert(position.min(self.rank()), 1);
        self.reshape(&dims)
    }

    /// Dimension `i` of the result is dimension `permutation[i]`.
    pub fn transpose(&self, permutation: &[usize]) -> Value {
        if permutation.iter().enumerate().all(|(i, &p)| i == p) && permutation.len() == self.rank()
        {
            return self.clone();
        }
        let mut sorted = permutation.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.rank()) {
            let sentence = format!("{permutation:?} does not permute {:?}", self.dims);
            return self.mistake(&sentence, self.dtype, &self.dims);
        }
        let dims: Dims = permutation.iter().map(|&p| self.dims[p]).collect();
        let attrs = format!("permutation = {}", positions(permutation));
        self.op("transpose", &[self], &attrs, self.dtype, &dims)
    }

    /// Every `strides[i]`-th element from `starts[i]` to below `limits[i]`.
    pub fn slice(&self, starts: &[usize], limits: &[usize], strides: &[usize]) -> Value {
        let fits = [starts.len(), limits.len(), strides.len()] == [self.rank(); 3]
            && (0..self.rank())
                .all(|i| starts[i] <= limits[i] && limits[i] <= self.dims[i] && strides[i] > 0);
        if !fits {
            let sentence =
                format!("slice {starts:?}..{limits:?} by {strides:?} of {:?}", self.dims);
            return self.mistake(&sentence, self.dtype, &self.dims);
        }
        let dims: Dims =
            (0..self.rank()).map(|i| (limits[i] - starts[i]).div_ceil(strides[i])).collect();
        if dims == self.dims {
            return self.clone();
        }
        let attrs = format!(
            "start_indices = {}, limit_indices = {}, strides = {}",
            positions(starts),
            positions(limits),
            positions(strides)
        );
        self.op("slice", &[self], &attrs, self.dtype, &dims)
    }

    /// The elements `start..end` of one dimension.
    pub fn slice_dim(&self, dim: usize, start: usize, end: usize) -> Value {
        let mut starts = vec![0; self.rank()];
        let mut limits = self.dims.to_vec();
        if dim < self.rank() {
            (starts[dim], limits[dim]) = (start, end);
        }
        self.slice(&starts, &limits, &vec![1; self.rank()])
    }

    /// A slice of size `sizes` that begins at `starts`, scalars of an integer dtype.
    pub fn dynamic_slice(&self, starts: &[Value], sizes: &[usize]) -> Value {
        let operands: Vec<&Value> = std::iter::once(self).chain(starts).collect();
        let attrs = format!("slice_sizes = {}", positions(sizes));
        self.op("dynamic_slice", &operands, &attrs, self.dtype, sizes)
    }

    /// The elements with `update` in place of those that begin at `starts`.
    pub fn dynamic_update_slice(&self, update: &Value, starts: &[Value]) -> Value {
        let operands: Vec<&Value> = [self, update].into_iter().chain(starts).collect();
        self.op("dynamic_update_slice", &operands, "", self.dtype, &self.dims)
    }

    /// Elements in reversed order along some dimensions.
    pub fn reverse(&self, dims: &[usize]) -> Value {
        let attrs = format!("dimensions = {}", positions(dims));
        self.op("reverse", &[self], &attrs, self.dtype, &self.dims)
    }

    /// Adds `low` and `high` elements `padding` on both sides of each dimension, and `interior` between
    /// its elements; negative numbers remove elements.
    pub fn pad(&self, padding: &Value, low: &[i64], high: &[i64], interior: &[i64]) -> Value {
        let dims: Option<Dims> = (0..self.rank())
            .map(|i| {
                let size = self.dims[i] as i64;
                let inside = size + (size - 1).max(0) * interior.get(i)?;
                usize::try_from(inside + low.get(i)? + high.get(i)?).ok()
            })
            .collect();
        let Some(dims) = dims else {
            let sentence = format!("padding {low:?}, {high:?}, {interior:?} of {:?}", self.dims);
            return self.mistake(&sentence, self.dtype, &self.dims);
        };
        let attrs = format!(
            "edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
            array(low),
            array(high),
            array(interior)
        );
        self.op("pad", &[self, padding], &attrs, self.dtype, &dims)
    }

    /// Joins this value and others along a dimension.
    pub fn concatenate(&self, others: &[Value], dim: usize) -> Value {
        let all: Vec<&Value> = std::iter::once(self).chain(others).collect();
        let fits = dim < self.rank()
            && all.iter().all(|v| {
                v.dtype == self.dtype
                    && v.rank() == self.rank()
                    && (0..self.rank()).all(|i| i == dim || v.dims[i] == self.dims[i])
            });
        if !fits {
            let dims: Vec<&[usize]> = all.iter().map(|v| v.dims()).collect();
            let sentence = format!("cannot concatenate {dims:?} along dimension {dim}");
            return self.mistake(&sentence, self.dtype, &self.dims);
        }
        if others.is_empty() {
            return self.clone();
        }
        let mut dims = self.dims.clone();
        dims[dim] = all.iter().map(|v| v.dims[dim]).sum();
        let attrs = format!("dimension = {dim} : i64");
        self.op("concatenate", &all, &attrs, self.dtype, &dims)
    }

    /// The numbers 0, 1, 2... along a dimension, in the program of this value.
    pub fn iota(&self, dtype: DType, dims: &[usize], dim: usize) -> Value {
        self.op("iota", &[], &format!("iota_dimension = {dim} : i64"), dtype, dims)
    }

    /// Slices of size `sizes` at the given indices, which are clamped so that slices fit.
    pub fn gather(
        &self,
        indices: &Value,
        dims: &GatherDims,
        sizes: &[usize],
        result: &[usize],
    ) -> Value {
        let attrs = format!(
            "dimension_numbers = #stablehlo.gather<offset_dims = {:?}, collapsed_slice_dims = {:?}, \
             operand_batching_dims = {:?}, start_indices_batching_dims = {:?}, start_index_map = {:?}, \
             index_vector_dim = {}>, indices_are_sorted = false, slice_sizes = {}",
            dims.offset_dims,
            dims.collapsed_slice_dims,
            dims.operand_batching_dims,
            dims.start_indices_batching_dims,
            dims.start_index_map,
            dims.index_vector_dim,
            positions(sizes)
        );
        self.op("gather", &[self, indices], &attrs, self.dtype, result)
    }

    /// The elements with `updates` combined into windows at the given indices; windows that do not fit
    /// are left out. `combine` gets the element and the update.
    pub fn scatter(
        &self,
        indices: &Value,
        updates: &Value,
        dims: &ScatterDims,
        is_unique: bool,
        combine: impl FnOnce(&Value, &Value) -> Value,
    ) -> Value {
        let scalar = (self.dtype, Dims::new());
        let (region, _) =
            self.body.region(&[scalar.clone(), scalar], |v| vec![combine(&v[0], &v[1])]);
        let attrs = format!(
            " {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {:?}, \
             inserted_window_dims = {:?}, input_batching_dims = {:?}, \
             scatter_indices_batching_dims = {:?}, scatter_dims_to_operand_dims = {:?}, \
             index_vector_dim = {}>, indices_are_sorted = false, unique_indices = {is_unique}}}",
            dims.update_window_dims,
            dims.inserted_window_dims,
            dims.input_batching_dims,
            dims.scatter_indices_batching_dims,
            dims.scatter_dims_to_operand_dims,
            dims.index_vector_dim
        );
        let operands = [self, indices, updates];
        let result = [(self.dtype, self.dims.clone())];
        self.body
            .append_all("scatter", &operands, &format!(" ({region})"), &attrs, &result)
            .remove(0)
    }
}
