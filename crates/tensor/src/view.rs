//! Tensors that share the memory of others: reshaped, bitcast, and ranges of rows.

use std::sync::Arc;

use crate::{Budget, DType, Result, Shape, Tensor, ensure};

impl Tensor {
    /// The same elements in another shape of the same size; shares the memory.
    pub fn reshaped(mut self, shape: Shape) -> Result<Tensor> {
        ensure!(
            shape.num_elements() == self.num_elements(),
            InvalidArgument,
            "shape {} with {} values cannot become {shape}, which has {}",
            self.shape(),
            self.num_elements(),
            shape.num_elements()
        );
        match self.0.head_mut() {
            Some(head) => head.shape = shape,
            None => self = Tensor(self.0.view(self.dtype(), shape, 0)?),
        }
        Ok(self)
    }

    /// The same bits read as another dtype of the same size; shares the memory.
    pub fn bitcast_same_size(mut self, dtype: DType) -> Result<Tensor> {
        ensure!(
            dtype.size() == self.dtype().size() && !dtype.is_object() && dtype != DType::Bool,
            InvalidArgument,
            "{} and {dtype} differ in size",
            self.dtype()
        );
        // Complex numbers align to their parts: a view of received bytes may not fit the new dtype.
        if !self.host_data()?.addr().is_multiple_of(dtype.size()) {
            self = self.deep_copy(None)?;
        }
        match self.0.head_mut() {
            Some(head) => head.dtype = dtype,
            None => self = Tensor(self.0.view(dtype, self.shape().clone(), 0)?),
        }
        Ok(self)
    }

    /// Rows `start..start + count` of the first dimension: a view of plain elements, a copy of objects'
    /// handles that is charged to `budget`.
    pub fn rows(&self, start: usize, count: usize, budget: Option<&Arc<Budget>>) -> Result<Tensor> {
        let rows = self.shape().first().copied().unwrap_or(0);
        ensure!(
            start.checked_add(count).is_some_and(|end| end <= rows),
            Internal,
            "rows {start}..{start}+{count} of shape {}",
            self.shape()
        );
        let mut dims = self.shape().dims().to_vec();
        dims[0] = count;
        let shape = Shape::new(&dims)?;
        let row_elements: usize = self.shape()[1..].iter().product();
        let range = start * row_elements..(start + count) * row_elements;
        if self.dtype().is_object() {
            return self.copy_objects(shape, range, budget);
        }
        self.host_data()?;
        let offset_bytes = range.start * self.dtype().size();
        Ok(Tensor(self.0.view(self.dtype(), shape, offset_bytes)?))
    }

    /// Whether both tensors share their elements' memory.
    pub fn shares_memory_with(&self, other: &Tensor) -> bool {
        self.0.root().is_same(other.0.root())
    }
}
