//! Tensors from other devices that several regions read: each is copied to the device once.

use std::collections::BTreeMap;

use thalweg_graph::{Endpoint, IntoAttr, Node, NodeId, Role};
use thalweg_tensor::Result;

use super::{Draft, Fusion};

impl Fusion<'_> {
    /// Received tensors that several regions read: they are copied to the device once.
    pub(super) fn shared_receives(&self, drafts: &[Draft]) -> Vec<Endpoint> {
        let mut readers: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for draft in drafts {
            for (e, _) in draft.inputs.iter().zip(&draft.is_static).filter(|(_, known)| !**known) {
                let output = self.graph.output(*e);
                if self.graph.node(e.node).role() == Role::Recv && !output.dtype.is_object() {
                    *readers.entry((e.node.0, e.index)).or_default() += 1;
                }
            }
        }
        let shared = readers.into_iter().filter(|(_, count)| *count > 1);
        shared.map(|((node, index), _)| Endpoint { node: NodeId(node), index }).collect()
    }

    /// An identity on the device, whose input the executor copies there.
    pub(super) fn upload_node(&self, of: Endpoint, source: Endpoint) -> Result<Node> {
        let (received, output) = (self.graph.node(of.node), self.graph.output(of));
        let name = format!("{}/on_device", received.name);
        let mut node = Node::bare(name, self.graph.registry().get("Identity")?.clone());
        node.device = received.device.clone();
        node.attrs.set("T", output.dtype.into_attr());
        node.inputs.push(source);
        node.outputs.push(output.clone());
        Ok(node)
    }
}
