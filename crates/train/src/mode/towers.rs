//! In-graph replication: several towers in one graph, run by one client as one step.

use std::collections::BTreeMap;
use std::panic::Location;

use thalweg_api::{Any, Graph, Operation, Output, TensorType, on_behalf_of, tf};
use thalweg_tensor::{DType, Result, ensure};

use crate::view::{cast_to, like};
use crate::{Gradient, Model, Optimizer, Variable};

/// Adds a step that updates the variables by the mean of the gradients of `losses`, one per tower.
/// A tower is the network built on one device over the same variables ([`Model::tower`]).
#[track_caller]
pub fn train_towers(
    model: &Model,
    optimizer: impl Into<Optimizer>,
    losses: &[Output<f32>],
) -> Operation {
    let optimizer = optimizer.into();
    on_behalf_of(Location::caller(), || {
        let added = model.build(|_| towers(model, &optimizer, losses));
        added.unwrap_or_else(|| Operation::poisoned(model))
    })
}

fn towers(model: &Model, optimizer: &Optimizer, losses: &[Output<f32>]) -> Result<Operation> {
    ensure!(!losses.is_empty(), InvalidArgument, "there are no towers");
    let mut by_variable: BTreeMap<String, (Variable, Vec<Gradient>)> = BTreeMap::new();
    let mut names = Vec::new();
    for loss in losses {
        // Gradients are computed on the device of their loss.
        let node = loss.endpoint()?.node;
        let device = model.as_scope().with_graph(|graph| graph.node(node).device.to_string());
        let tower = model.at(model.scope("gradients").device(&device));
        for (variable, gradient) in optimizer.whole_gradients(&tower, loss)? {
            let entry = by_variable.entry(variable.name.clone());
            let entry = entry.or_insert_with(|| {
                names.push(variable.name.clone());
                (variable, Vec::new())
            });
            entry.1.push(gradient);
        }
    }
    let mut means = Vec::with_capacity(names.len());
    for name in names {
        let Some((variable, gradients)) = by_variable.remove(&name) else { continue };
        let mean = mean(&model.device(&variable.device), &gradients, losses.len() as f64);
        means.push((variable, mean));
    }
    let means = optimizer.clipped(model, means, |variable| model.device(&variable.device));
    Ok(optimizer.apply(model, &means))
}

/// The sum of the gradients in the order given, divided by `count`; a tower without a gradient
/// counts as zero.
fn mean(at: &Graph, gradients: &[Gradient], count: f64) -> Gradient {
    let (mut all, mut rows, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
    for gradient in gradients {
        let Gradient::Sparse { values, indices, dense_shape } = gradient else { continue };
        all.push(values.clone());
        rows.push(cast_to(&indices.within(at), DType::Int64));
        shapes.push(dense_shape.clone());
    }
    let divided = |sum: Output<Any>| &sum / like(&sum, count);
    if rows.len() == gradients.len() {
        let (values, indices) = (divided(joined(at, &all)), joined(at, &rows));
        return Gradient::Sparse { values, indices, dense_shape: shapes.swap_remove(0) };
    }
    let dense: Vec<Output<Any>> = gradients.iter().map(|gradient| gradient.to_dense(at)).collect();
    Gradient::Dense(divided(tf::add_n(at, &dense)))
}

/// Concatenation along the first axis.
pub(super) fn joined<T: TensorType>(at: &Graph, parts: &[Output<T>]) -> Output<T> {
    match parts {
        [one] => one.within(at),
        _ => tf::concat_v2(at, parts, 0),
    }
}
