//! Rows about building graphs: the same nodes by op name in a scope, and by handle.

use thalweg_api::{Graph, Output};
use thalweg_graph::Scope;
use thalweg_ops::Registry;
use thalweg_tensor::{Result, Shape, Tensor};

/// Layers of three nodes each.
const LAYERS: usize = 3_333;
const SIDE: usize = 4;

/// A way to build the graph.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// `scope.add("MatMul", &[x, w])?`.
    Scope,
    /// `x.matmul(&w)`.
    Handles,
}

impl Build {
    /// Nodes of one graph.
    pub(crate) const UNITS: f64 = (3 * LAYERS) as f64;

    /// The way that a row names; `None` if it is no such row.
    pub(crate) fn new(row: &str) -> Option<Build> {
        match row {
            "build/scope_10k" => Some(Build::Scope),
            "build/handles_10k" => Some(Build::Handles),
            _ => None,
        }
    }

    /// Builds the graph this often.
    pub(crate) fn run(self, count: u64) -> Result<()> {
        let registry = Registry::built_in();
        for _ in 0..count {
            let nodes = match self {
                Build::Scope => by_name(&registry)?,
                Build::Handles => by_handle(&registry)?,
            };
            std::hint::black_box(nodes);
        }
        Ok(())
    }
}

fn square(value: f32) -> Result<Tensor> {
    Tensor::from_slice(Shape::new(&[SIDE, SIDE])?, &[value; SIDE * SIDE])
}

fn by_name(registry: &Registry) -> Result<usize> {
    let mut scope = Scope::new(registry.ops.clone());
    let (w, b) = (scope.constant(&square(0.5)?)?, scope.constant(&square(0.1)?)?);
    let mut x = scope.constant(&square(1.0)?)?;
    for _ in 0..LAYERS {
        let product = scope.add("MatMul", &[x, w])?;
        let sum = scope.add("AddV2", &[product, b])?;
        x = scope.add("Relu", &[sum])?;
    }
    Ok(scope.with_graph(thalweg_graph::Graph::len))
}

fn by_handle(registry: &Registry) -> Result<usize> {
    let g = Graph::with_registry(registry.clone());
    let w: Output<f32> = g.constant(square(0.5)?);
    let b: Output<f32> = g.constant(square(0.1)?);
    let mut x: Output<f32> = g.constant(square(1.0)?);
    for _ in 0..LAYERS {
        x = (x.matmul(&w) + &b).relu();
    }
    g.check()?;
    Ok(g.as_scope().with_graph(thalweg_graph::Graph::len))
}
