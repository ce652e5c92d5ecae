//! Gradient buffers: where the gradients of a round are kept until they are applied.

use std::collections::BTreeMap;

use thalweg_graph::{Adjoint, IndexedSlices, NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor};

use super::Order;
use super::sync::{clear, take};
use super::towers::joined;
use crate::optimizer::summed_rows;
use crate::{ModelScope, Variable};

/// Buffers for the gradients of all variables.
pub(super) struct Store {
    places: Vec<Place>,
}

/// The workers whose gradients a round applies.
#[derive(Clone, Copy)]
pub(super) struct Admitted {
    /// A float vector: 1 for each worker whose gradient is applied, else 0.
    pub votes: Output,
    /// The number of workers.
    pub count: usize,
}

/// The buffer for the gradients of one variable, on the variable's device.
struct Place {
    variable: Variable,
    is_sparse: bool,
    kind: Kind,
}

enum Kind {
    /// One accumulator for all workers, which keeps their sum.
    Sum(Output),
    /// A slot variable per worker; for sparse gradients one of indices and one of values.
    Slots(Vec<Slot>),
}

#[derive(Clone, Copy)]
struct Slot {
    values: Output,
    indices: Option<Output>,
}

impl Store {
    pub(super) fn new(
        model: &ModelScope,
        gradients: &[(Variable, Adjoint)],
        count: usize,
        order: Order,
    ) -> Result<Store> {
        let place = |(variable, adjoint): &(Variable, Adjoint)| {
            let is_sparse = matches!(adjoint, Adjoint::Sparse(_));
            let kind = match order {
                Order::Arrival => Kind::Sum(accumulator(model, variable, is_sparse)?),
                Order::Worker => {
                    let slot = |index| Slot::new(model, variable, is_sparse, index);
                    Kind::Slots((0..count).map(slot).collect::<Result<_>>()?)
                }
            };
            Ok(Place { variable: variable.clone(), is_sparse, kind })
        };
        Ok(Store { places: gradients.iter().map(place).collect::<Result<_>>()? })
    }

    /// Adds a worker's gradients; returns the nodes that must have run before the worker votes.
    pub(super) fn deliver(
        &self,
        model: &ModelScope,
        gradients: &[(Variable, Adjoint)],
        index: usize,
        round: Output,
    ) -> Result<Vec<NodeId>> {
        let mut model = model.with_scope(model.child("deliver"));
        let mut nodes = Vec::with_capacity(self.places.len());
        for (place, (_, adjoint)) in self.places.iter().zip(gradients) {
            nodes.extend(place.deliver(&mut model, *adjoint, index, round)?);
        }
        Ok(nodes)
    }

    /// The mean of the gradients of the admitted workers.
    pub(super) fn combine(
        &self,
        model: &ModelScope,
        admitted: Admitted,
    ) -> Result<Vec<(Variable, Adjoint)>> {
        let model = model.with_scope(model.child("combine"));
        // The votes are copied once to each parameter server.
        let mut weights: BTreeMap<&str, Weights> = BTreeMap::new();
        let mut combined = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let device = place.variable.device.as_str();
            let mut beside = model.on(device);
            if !weights.contains_key(device) {
                weights.insert(device, Weights::new(&mut beside, admitted)?);
            }
            let mean = place.mean(&mut beside, &weights[device])?;
            combined.push((place.variable.clone(), mean));
        }
        Ok(combined)
    }

    /// Whether each accumulator holds the gradients of the admitted workers and no others.
    pub(super) fn are_whole(&self, model: &ModelScope, admitted: Admitted) -> Result<Vec<Output>> {
        let model = model.with_scope(model.child("whole"));
        let mut whole = Vec::new();
        for place in &self.places {
            let Kind::Sum(accumulator) = place.kind else { continue };
            let mut beside = model.on(&place.variable.device);
            let count = beside.add("AccumulatorNumAccumulated", &[accumulator])?;
            let count = beside.cast(count, DType::Float)?;
            let axis = beside.int(0)?;
            let wanted = beside.add("Sum", &[admitted.votes, axis])?;
            whole.push(beside.add("Equal", &[count, wanted])?);
        }
        Ok(whole)
    }

    /// Empties the accumulators.
    pub(super) fn clear(&self, model: &ModelScope, round: Output) -> Result<Vec<NodeId>> {
        let model = model.with_scope(model.child("clear"));
        let mut nodes = Vec::new();
        for place in &self.places {
            let Kind::Sum(accumulator) = place.kind else { continue };
            let mut beside = model.on(&place.variable.device);
            nodes.push(clear(&mut beside, accumulator, round, |scope, last| {
                place.add_nothing(scope, accumulator, last)
            })?);
        }
        Ok(nodes)
    }
}

impl Place {
    fn deliver(
        &self,
        model: &mut ModelScope,
        adjoint: Adjoint,
        index: usize,
        round: Output,
    ) -> Result<Vec<NodeId>> {
        let (values, indices) = match adjoint {
            Adjoint::Dense(values) => (values, None),
            // Duplicate rows are summed on the worker, so that fewer are transferred.
            Adjoint::Sparse(rows) => {
                let (values, indices) = summed_rows(model, rows)?;
                (values, Some(model.cast(indices, DType::Int64)?))
            }
        };
        let mut beside = model.on(&self.variable.device);
        match (&self.kind, indices) {
            (Kind::Sum(accumulator), Some(indices)) => {
                Ok(vec![self.add_rows(&mut beside, *accumulator, round, (values, indices))?])
            }
            (Kind::Sum(accumulator), None) => {
                let node = beside.op("AccumulatorApplyGradient");
                Ok(vec![node.inputs(&[*accumulator, round, values]).build_node()?])
            }
            (Kind::Slots(slots), indices) => slots[index].set(&mut beside, values, indices),
        }
    }

    fn mean(&self, model: &mut ModelScope, weights: &Weights) -> Result<Adjoint> {
        match &self.kind {
            Kind::Sum(accumulator) => {
                let taken = take(model, *accumulator, 1)?;
                if !self.is_sparse {
                    return Ok(Adjoint::Dense(taken));
                }
                // The accumulator holds the sum: TensorFlow's mean of a row is over those who have
                // the row, not over all workers.
                let [indices, values] = [0, 1].map(|index| Output { index, ..taken });
                self.mean_of_rows(model, (indices, values), weights.voters)
            }
            Kind::Slots(slots) if self.is_sparse => {
                let (mut indices, mut values) = (Vec::new(), Vec::new());
                for (slot, is_admitted) in slots.iter().zip(&weights.is_admitted) {
                    let (of_slot, rows) = slot.rows_if(model, *is_admitted, &self.variable)?;
                    indices.push(of_slot);
                    values.push(rows);
                }
                let rows = (joined(model, &indices)?, joined(model, &values)?);
                self.mean_of_rows(model, rows, weights.voters)
            }
            Kind::Slots(slots) => {
                let dtype = self.variable.dtype;
                let zero = model.number(dtype, 0.0)?;
                let mut parts = Vec::with_capacity(slots.len());
                for (slot, is_admitted) in slots.iter().zip(&weights.is_admitted) {
                    let value = read(model, slot.values, dtype)?;
                    parts.push(model.add("SelectV2", &[*is_admitted, value, zero])?);
                }
                let sum = model.op("AddN").inputs(&parts).build()?;
                let count = model.cast(weights.voters, dtype)?;
                Ok(Adjoint::Dense(model.add("RealDiv", &[sum, count])?))
            }
        }
    }

    fn mean_of_rows(
        &self,
        model: &mut ModelScope,
        (indices, values): (Output, Output),
        count: Output,
    ) -> Result<Adjoint> {
        let count = model.cast(count, self.variable.dtype)?;
        let values = model.add("RealDiv", &[values, count])?;
        let dense_shape = model.constant(&dims(&self.variable.shape)?)?;
        Ok(Adjoint::Sparse(IndexedSlices { values, indices, dense_shape }))
    }

    fn add_rows(
        &self,
        scope: &mut Scope,
        accumulator: Output,
        round: Output,
        (values, indices): (Output, Output),
    ) -> Result<NodeId> {
        let shape = scope.constant(&dims(&self.variable.shape)?)?;
        let node = scope.op("SparseAccumulatorApplyGradient");
        let node = node.inputs(&[accumulator, round, indices, values, shape]);
        node.attr("has_known_shape", true).build_node()
    }

    /// Adds a zero gradient.
    fn add_nothing(&self, scope: &mut Scope, accumulator: Output, round: Output) -> Result<NodeId> {
        let zero = scope.number(self.variable.dtype, 0.0)?;
        let mut zeros = |dims: &[usize]| {
            let dims: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
            let dims = scope.constant(&Tensor::vector(&dims)?)?;
            scope.add("Fill", &[dims, zero])
        };
        let shape = self.variable.shape.dims();
        if !self.is_sparse {
            let zeros = zeros(shape)?;
            let node = scope.op("AccumulatorApplyGradient");
            return node.inputs(&[accumulator, round, zeros]).build_node();
        }
        let row = zeros(&[&[1], &shape[1..]].concat())?;
        let first = scope.constant(&Tensor::vector(&[0i64])?)?;
        self.add_rows(scope, accumulator, round, (row, first))
    }
}

impl Slot {
    fn new(model: &ModelScope, variable: &Variable, is_sparse: bool, index: usize) -> Result<Slot> {
        let name = format!("coordination/{}/worker_{index}", variable.name);
        let (device, dtype) = (variable.device.as_str(), variable.dtype);
        let first = |rows: Option<usize>| {
            let mut dims: Vec<i64> = variable.shape.dims().iter().map(|dim| *dim as i64).collect();
            if let (Some(rows), Some(first)) = (rows, dims.first_mut()) {
                *first = rows as i64;
            }
            move |scope: &mut Scope| {
                let dims = scope.constant(&Tensor::vector(&dims)?)?;
                let zero = scope.number(dtype, 0.0)?;
                scope.add("Fill", &[dims, zero])
            }
        };
        if !is_sparse {
            let shape = PartialShape::from(&variable.shape);
            let values = model.local(&name, device, dtype, &shape, Some(&first(None)))?;
            return Ok(Slot { values, indices: None });
        }
        let rest = variable.shape.dims().iter().skip(1).map(|dim| Some(*dim));
        let shape = PartialShape::new(std::iter::once(None).chain(rest));
        let values = model.local(&name, device, dtype, &shape, Some(&first(Some(0))))?;
        let none = |scope: &mut Scope| scope.constant(&Tensor::vector::<i64>(&[])?);
        let (name, shape) = (format!("{name}/rows"), PartialShape::new([None]));
        let indices = model.local(&name, device, DType::Int64, &shape, Some(&none))?;
        Ok(Slot { values, indices: Some(indices) })
    }

    fn set(
        self,
        scope: &mut Scope,
        values: Output,
        indices: Option<Output>,
    ) -> Result<Vec<NodeId>> {
        let mut set = |handle: Output, value: Output| {
            scope.op("AssignVariableOp").inputs(&[handle, value]).build_node()
        };
        let mut nodes = vec![set(self.values, values)?];
        if let (Some(handle), Some(indices)) = (self.indices, indices) {
            nodes.push(set(handle, indices)?);
        }
        Ok(nodes)
    }

    /// Indices and values of the gradient's rows if the worker is admitted, else none.
    fn rows_if(
        self,
        model: &mut ModelScope,
        is_admitted: Output,
        variable: &Variable,
    ) -> Result<(Output, Output)> {
        let all = model.ints(&[-1])?;
        let none = model.ints(&[0])?;
        let count = model.add("SelectV2", &[is_admitted, all, none])?;
        let indices = read(model, self.indices.unwrap_or(self.values), DType::Int64)?;
        let indices = model.add("Slice", &[indices, none, count])?;
        let values = read(model, self.values, variable.dtype)?;
        let rank = variable.shape.dims().len();
        let begin = model.ints(&vec![0; rank])?;
        let rest = model.ints(&vec![-1; rank - 1])?;
        let size = joined(model, &[count, rest])?;
        let values = model.add("Slice", &[values, begin, size])?;
        Ok((indices, values))
    }
}

/// The votes, copied to one device.
struct Weights {
    /// The number of admitted workers, a scalar.
    voters: Output,
    /// Whether each worker is admitted.
    is_admitted: Vec<Output>,
}

impl Weights {
    fn new(model: &mut ModelScope, admitted: Admitted) -> Result<Weights> {
        let axis = model.int(0)?;
        let voters = model.add("Sum", &[admitted.votes, axis])?;
        let zero = model.float(0.0)?;
        let is_admitted = model.add("Greater", &[admitted.votes, zero])?;
        let parts = model.op("Unpack").input(is_admitted).attr("num", admitted.count as i64);
        Ok(Weights { voters, is_admitted: parts.build_all()? })
    }
}

/// The accumulator of a variable's gradients, with the name that `SyncReplicasOptimizer` gives it.
fn accumulator(model: &ModelScope, variable: &Variable, is_sparse: bool) -> Result<Output> {
    let (op, reduction) = match is_sparse {
        true => ("SparseConditionalAccumulator", "SUM"),
        false => ("ConditionalAccumulator", "MEAN"),
    };
    let name = format!("{}/grad_accum", variable.name);
    let shared_name = format!("{}:0/grad_accum", variable.name);
    let mut beside = model.top().on(&variable.device);
    let node = beside.op(op).name(&name).attr("dtype", variable.dtype);
    let node = node.attr("shape", &PartialShape::from(&variable.shape));
    let node = node.attr("shared_name", shared_name.as_str()).attr("reduction_type", reduction);
    node.build()
}

fn read(scope: &mut Scope, handle: Output, dtype: DType) -> Result<Output> {
    scope.op("ReadVariableOp").input(handle).attr("dtype", dtype).build()
}

/// A shape as an int64 vector.
fn dims(shape: &Shape) -> Result<Tensor> {
    let dims: Vec<i64> = shape.dims().iter().map(|dim| *dim as i64).collect();
    Tensor::vector(&dims)
}
