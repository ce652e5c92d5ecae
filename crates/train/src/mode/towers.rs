//! In-graph replication: several towers in one graph, run by one client as one step.

use std::collections::BTreeMap;

use thalweg_api::{self as api, Operation};
use thalweg_graph::{Adjoint, IndexedSlices, NodeId, Output};
use thalweg_tensor::{DType, Result, ensure};

use crate::{Model, ModelScope, Optimizer, Variable};

/// Adds a step that updates the variables by the mean of the gradients of `losses`, one per tower.
/// A tower is the network built on one device over the same variables ([`Model::tower`]).
#[track_caller]
pub fn train_towers(
    model: &Model,
    optimizer: impl Into<Optimizer>,
    losses: &[api::Output<f32>],
) -> Operation {
    let optimizer = optimizer.into();
    let added = model.graph().build(|_| {
        let losses: Vec<Output> =
            losses.iter().map(api::Output::endpoint).collect::<Result<_>>()?;
        towers(&mut model.as_scope(), &optimizer, &losses)
    });
    added.map_or_else(|| Operation::poisoned(model), |node| model.operation(node))
}

fn towers(model: &mut ModelScope, optimizer: &Optimizer, losses: &[Output]) -> Result<NodeId> {
    ensure!(!losses.is_empty(), InvalidArgument, "there are no towers");
    let mut by_variable: BTreeMap<String, (Variable, Vec<Adjoint>)> = BTreeMap::new();
    let mut names = Vec::new();
    for &loss in losses {
        // Gradients are computed on the device of their loss.
        let device = model.with_graph(|graph| graph.node(loss.node).device.to_string());
        let mut tower = model.with_scope(model.child("gradients")).on(&device);
        for (variable, adjoint) in optimizer.whole_gradients(&mut tower, loss)? {
            let entry = by_variable.entry(variable.name.clone());
            let entry = entry.or_insert_with(|| {
                names.push(variable.name.clone());
                (variable, Vec::new())
            });
            entry.1.push(adjoint);
        }
    }
    let mut means = Vec::with_capacity(names.len());
    for name in names {
        let Some((variable, adjoints)) = by_variable.remove(&name) else { continue };
        let mut beside = model.on(&variable.device);
        let mean = mean(&mut beside, &adjoints, losses.len())?;
        means.push((variable, mean));
    }
    let beside = |model: &ModelScope, variable: &Variable| model.on(&variable.device);
    let means = optimizer.clipped(model, means, beside)?;
    optimizer.apply(model, &means)
}

/// The sum of the gradients in the order given, divided by `count`; a tower without a gradient
/// counts as zero.
fn mean(model: &mut ModelScope, adjoints: &[Adjoint], count: usize) -> Result<Adjoint> {
    let mut rows = Vec::new();
    for adjoint in adjoints {
        match adjoint {
            Adjoint::Sparse(slices) => rows.push(*slices),
            Adjoint::Dense(_) => break,
        }
    }
    if rows.len() == adjoints.len() {
        return mean_rows(model, &rows, count);
    }
    let mut dense = Vec::with_capacity(adjoints.len());
    for adjoint in adjoints {
        dense.push(adjoint.to_dense(model)?);
    }
    let sum = model.op("AddN").inputs(&dense).build()?;
    let dtype = model.dtype(sum);
    let count = model.number(dtype, count as f64)?;
    Ok(Adjoint::Dense(model.add("RealDiv", &[sum, count])?))
}

fn mean_rows(model: &mut ModelScope, rows: &[IndexedSlices], count: usize) -> Result<Adjoint> {
    let mut indices = Vec::with_capacity(rows.len());
    for slices in rows {
        indices.push(model.cast(slices.indices, DType::Int64)?);
    }
    let values: Vec<Output> = rows.iter().map(|slices| slices.values).collect();
    let (indices, values) = (joined(model, &indices)?, joined(model, &values)?);
    let dtype = model.dtype(values);
    let count = model.number(dtype, count as f64)?;
    let values = model.add("RealDiv", &[values, count])?;
    Ok(Adjoint::Sparse(IndexedSlices { values, indices, dense_shape: rows[0].dense_shape }))
}

/// Concatenation along the first axis.
pub(super) fn joined(model: &mut ModelScope, parts: &[Output]) -> Result<Output> {
    if let [one] = parts {
        return Ok(*one);
    }
    let axis = model.int(0)?;
    model.op("ConcatV2").inputs(parts).input(axis).build()
}
