//! Shape inference: the context of shape functions, and common shape functions.

use smallvec::SmallVec;
use thalweg_tensor::{DType, PartialShape, Result, Tensor, bail, ensure};

use crate::value::{PartialValue, partial_value};
use crate::{Graph, Node, NodeAttrs, Role};

/// A shape function: sets the shapes of a node's outputs, or fails if the inputs' shapes are
/// invalid.
pub type ShapeFn = fn(&mut ShapeContext<'_>) -> Result<()>;

/// A node whose output shapes are being inferred.
pub struct ShapeContext<'a> {
    graph: &'a Graph,
    node: &'a Node,
    outputs: SmallVec<[PartialShape; 1]>,
}

static UNKNOWN: PartialShape = PartialShape::UNKNOWN;

impl<'a> ShapeContext<'a> {
    pub(crate) fn new(graph: &'a Graph, node: &'a Node) -> Self {
        let outputs = node.outputs.iter().map(|_| PartialShape::unknown()).collect();
        ShapeContext { graph, node, outputs }
    }

    pub(crate) fn into_outputs(self) -> SmallVec<[PartialShape; 1]> {
        self.outputs
    }

    /// The node's attrs.
    pub fn attrs(&self) -> NodeAttrs<'a> {
        self.node.attrs()
    }

    /// Number of flattened inputs.
    pub fn num_inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// Number of flattened outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Positions of the argument `name` among the flattened inputs.
    pub fn input_range(&self, name: &str) -> Result<std::ops::Range<usize>> {
        self.node.input_range(name)
    }

    /// Shape of input `i`; unknown for back edges of loops.
    pub fn input(&self, i: usize) -> &'a PartialShape {
        input_shape(self.graph, self.node, i)
    }

    /// Dtype of input `i`, if it exists and is not the back edge of a loop.
    pub fn input_dtype(&self, i: usize) -> Option<DType> {
        let endpoint = self.node.inputs.get(i)?;
        let source = self.graph.nodes().get(endpoint.node.index())?;
        source.outputs.get(endpoint.index as usize).map(|o| o.dtype)
    }

    /// The shape of the variable whose resource handle is input `i`, as far as known.
    pub fn variable_shape(&self, i: usize) -> PartialShape {
        /// Maximum number of nodes between the consumer of the handle and the node that creates it.
        const HOPS_MAX: usize = 16;
        let Some(&start) = self.node.inputs.get(i) else { return PartialShape::unknown() };
        let mut endpoint = start;
        for _ in 0..HOPS_MAX {
            let Some(node) = self.graph.nodes().get(endpoint.node.index()) else { break };
            let attrs = node.attrs();
            match (node.role(), node.inputs.first()) {
                (Role::VarHandle, _) => {
                    return attrs.shape("shape").unwrap_or(PartialShape::UNKNOWN);
                }
                (Role::Identity | Role::Enter | Role::Switch, Some(&source)) => {
                    endpoint = source;
                }
                // An `_Arg` carries the shape known to the caller of the function.
                _ => {
                    let shapes = attrs.shapes("_handle_shapes").unwrap_or_default();
                    return shapes.into_iter().next().unwrap_or(PartialShape::UNKNOWN);
                }
            }
        }
        PartialShape::unknown()
    }

    /// The value of input `i`, if it is a constant.
    pub fn constant(&self, i: usize) -> Option<Tensor> {
        crate::value::constant(self.graph, *self.node.inputs.get(i)?)
    }

    /// The integers in input `i` (a scalar or vector), as far as known.
    pub fn partial_value(&self, i: usize) -> Option<PartialValue> {
        partial_value(self.graph, *self.node.inputs.get(i)?)
    }

    /// The shape in the integer vector of input `i`; -1 is unknown.
    pub fn shape_from_input(&self, i: usize) -> Result<PartialShape> {
        if let Some(value) = self.partial_value(i) {
            return value.to_shape();
        }
        Ok(match self.input(i).dims() {
            Some([Some(rank)]) if *rank <= thalweg_tensor::RANK_MAX => PartialShape::of_rank(*rank),
            _ => PartialShape::unknown(),
        })
    }

    /// Sets the shape of output `i`.
    pub fn set_output(&mut self, i: usize, shape: PartialShape) {
        if let Some(output) = self.outputs.get_mut(i) {
            *output = shape;
        }
    }

    /// Checks that input `i`, called `name`, has this rank, if its rank is known.
    pub fn with_rank(&self, i: usize, name: &str, rank: usize) -> Result<PartialShape> {
        let shape = self.input(i);
        match shape.rank() {
            None => Ok(PartialShape::of_rank(rank)),
            Some(r) if r == rank => Ok(shape.clone()),
            Some(_) => bail!(InvalidArgument, "{name} must have rank {rank}, got shape {shape}"),
        }
    }

    /// Checks that input `i`, called `name`, has at least this rank, if its rank is known.
    pub fn with_rank_at_least(
        &self,
        i: usize,
        name: &str,
        rank: usize,
    ) -> Result<&'a PartialShape> {
        let shape = self.input(i);
        ensure!(
            shape.rank().is_none_or(|r| r >= rank),
            InvalidArgument,
            "{name} must have at least rank {rank}, got shape {shape}"
        );
        Ok(shape)
    }
}

/// Shape of input `i` of `node`; unknown if the source has no outputs yet.
pub(crate) fn input_shape<'a>(graph: &'a Graph, node: &Node, i: usize) -> &'a PartialShape {
    let Some(&endpoint) = node.inputs.get(i) else { return &UNKNOWN };
    let source = graph.nodes().get(endpoint.node.index());
    source.and_then(|n| n.outputs.get(endpoint.index as usize)).map_or(&UNKNOWN, |o| &o.shape)
}

/// Leaves the output shapes unknown.
pub fn unknown(_: &mut ShapeContext<'_>) -> Result<()> {
    Ok(())
}

/// The output has the shape of the first input.
pub fn unchanged(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.input(0).clone());
    Ok(())
}

/// Every output is a scalar.
pub fn scalar(c: &mut ShapeContext<'_>) -> Result<()> {
    for i in 0..c.num_outputs() {
        c.set_output(i, PartialShape::scalar());
    }
    Ok(())
}

/// All inputs and the output have the same shape.
pub fn merged(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = PartialShape::unknown();
    for i in 0..c.num_inputs() {
        shape = shape.merge(c.input(i))?;
    }
    c.set_output(0, shape);
    Ok(())
}

/// The output's shape is the integer vector in the first input.
pub fn from_first_input(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.shape_from_input(0)?);
    Ok(())
}

/// The output's shape is the attr `shape`.
pub fn from_attr(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, c.attrs().shape("shape")?);
    Ok(())
}

/// The output has the broadcast shape of the two inputs.
pub fn broadcast(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, broadcast_shapes(c.input(0), c.input(1))?);
    Ok(())
}

/// The most specific shape that both shapes match: dimensions that differ are unknown.
pub(crate) fn common(a: &PartialShape, b: &PartialShape) -> PartialShape {
    match (a.dims(), b.dims()) {
        (Some(x), Some(y)) if x.len() == y.len() => {
            PartialShape::new(x.iter().zip(y).map(|(p, q)| if p == q { *p } else { None }))
        }
        _ => PartialShape::unknown(),
    }
}

/// The shape of `a + b` under NumPy's broadcasting rules.
pub fn broadcast_shapes(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    let (Some(x), Some(y)) = (a.dims(), b.dims()) else { return Ok(PartialShape::unknown()) };
    let rank = x.len().max(y.len());
    let at = |dims: &[Option<usize>], i: usize| match (i + dims.len()).checked_sub(rank) {
        Some(j) => dims[j],
        None => Some(1),
    };
    let mut result = SmallVec::<[Option<usize>; 4]>::with_capacity(rank);
    for i in 0..rank {
        result.push(match (at(x, i), at(y, i)) {
            (Some(1), d) | (d, Some(1)) => d,
            (Some(p), Some(q)) if p == q => Some(p),
            (Some(_), Some(_)) => {
                bail!(InvalidArgument, "shapes {a} and {b} do not broadcast against each other")
            }
            // A known size above one determines the result: the unknown size must be the same or 1.
            (Some(d), None) | (None, Some(d)) => Some(d),
            (None, None) => None,
        });
    }
    Ok(PartialShape::new(result))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    fn shape(text: &str) -> PartialShape {
        if text == "unknown" {
            return PartialShape::unknown();
        }
        let dims = text.split(',').filter(|d| !d.is_empty());
        PartialShape::new(dims.map(|d| d.parse().ok()))
    }

    #[test]
    fn broadcasting() {
        for (a, b, expected) in [
            ("2,3", "3", "[2,3]"),
            ("2,1", "1,3", "[2,3]"),
            ("", "4", "[4]"),
            ("?,3", "2,1", "[2,3]"),
            ("?", "?", "[?]"),
            ("unknown", "2", "<unknown>"),
            ("?", "1", "[?]"),
            ("0", "1", "[0]"),
        ] {
            let result = broadcast_shapes(&shape(a), &shape(b)).unwrap();
            assert_eq!(result.to_string(), expected, "{a} with {b}");
        }
        let e = broadcast_shapes(&shape("2"), &shape("3")).unwrap_err();
        assert_eq!(e.code(), Code::InvalidArgument);
    }
}
