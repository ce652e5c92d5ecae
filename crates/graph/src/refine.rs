//! Refinement of a graph by a pass that knows more than the builder did, such as the shapes of
//! feeds.

use smallvec::SmallVec;
use thalweg_tensor::{Context, PartialShape, Result, Tensor};

use crate::shape::ShapeContext;
use crate::value::partial_value;
use crate::{Endpoint, Graph, Node, NodeId};

impl Graph {
    /// Infers the shapes of a node's outputs again from the current shapes of its inputs, and
    /// merges them with the known ones.
    pub fn refine(&mut self, id: NodeId) -> Result<()> {
        let node = self.node(id);
        let at = || format!("node '{}' ({})", node.name, node.op.name);
        let mut context = ShapeContext::new(self, node);
        (node.op.shape)(&mut context).context(at)?;
        let known = node.outputs.iter().map(|output| &output.shape);
        let merged = known.zip(context.into_outputs()).map(|(known, shape)| known.merge(&shape));
        let shapes: SmallVec<[PartialShape; 1]> = merged.collect::<Result<_>>().context(at)?;
        for (output, shape) in self.node_mut(id).outputs.iter_mut().zip(shapes) {
            output.shape = shape;
        }
        Ok(())
    }

    /// The static value of an integer output: its elements in every step, if shapes and constants
    /// determine all of them.
    pub fn static_value(&self, endpoint: Endpoint) -> Option<Tensor> {
        let info = self.output(endpoint);
        let value = partial_value(self, endpoint)?.to_tensor(info.dtype)?;
        info.shape.is_compatible_with(value.shape()).then_some(value)
    }

    /// Replaces a node by one of the same name with the same number of outputs.
    pub fn replace(&mut self, id: NodeId, node: Node) {
        debug_assert_eq!(node.outputs.len(), self.node(id).outputs.len(), "edges stay good");
        debug_assert_eq!(node.name, self.node(id).name, "names stay good");
        *self.node_mut(id) = node;
    }
}
