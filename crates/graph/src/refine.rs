//! Graphs of which more is known than when they were built: a pass knows the shapes of feeds, say.

use smallvec::SmallVec;
use thalweg_tensor::{Context, PartialShape, Result, Tensor};

use crate::shape::ShapeContext;
use crate::value::partial_value;
use crate::{Endpoint, Graph, Node, NodeId};

impl Graph {
    /// Infers the shapes of a node's outputs again, now that more is known of its inputs. What was
    /// known before stays known.
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

    /// The integers that an output holds in every step, if shapes and constants settle all of them.
    pub fn settled_integers(&self, endpoint: Endpoint) -> Option<Tensor> {
        let info = self.output(endpoint);
        let value = partial_value(self, endpoint)?.to_tensor(info.dtype)?;
        info.shape.is_compatible_with(value.shape()).then_some(value)
    }

    /// Puts another node in the place of one: of another op, with as many outputs.
    pub fn replace(&mut self, id: NodeId, node: Node) {
        debug_assert_eq!(node.outputs.len(), self.node(id).outputs.len(), "edges stay good");
        debug_assert_eq!(node.name, self.node(id).name, "names stay good");
        *self.node_mut(id) = node;
    }
}
