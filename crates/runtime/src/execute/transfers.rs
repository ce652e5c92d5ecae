//! Copies between device and host memory on the edges of a partition, where the two differ.

use thalweg_graph::{Endpoint, Graph, Role};
use thalweg_kernel::{Device, FusedNode, KernelRegistry};
use thalweg_tensor::Result;

/// A copy between memories that an edge needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    None,
    ToHost,
    ToDevice,
}

/// Which inputs and outputs live on the host, where the device has memory of its own.
pub(crate) struct Transfers {
    /// For each node, whether each input and output is on the host; empty if all memory is.
    on_host: Vec<(Vec<bool>, Vec<bool>)>,
    /// For each node, whether its kernel takes inputs in either memory.
    takes_any: Vec<bool>,
}

impl Transfers {
    pub(crate) fn of(
        graph: &Graph,
        device: &dyn Device,
        kernels: &KernelRegistry,
        fused: &[FusedNode],
    ) -> Result<Transfers> {
        if device.description().shares_host_memory {
            return Ok(Transfers { on_host: Vec::new(), takes_any: Vec::new() });
        }
        let mut takes_any = vec![false; graph.len()];
        fused.iter().for_each(|f| takes_any[f.node.index()] = true);
        let device_type = &device.description().name.device_type;
        let mut on_host = Vec::with_capacity(graph.len());
        for (id, node) in graph.ids().zip(graph.nodes()) {
            // Strings, handles and variants have no other memory than the host's.
            let mut inputs: Vec<bool> =
                node.inputs.iter().map(|e| graph.output(*e).dtype.is_object()).collect();
            let mut outputs: Vec<bool> = node.outputs.iter().map(|o| o.dtype.is_object()).collect();
            match node.role() {
                // Tensors leave and enter a device through host memory.
                Role::Send | Role::Recv => {
                    inputs.fill(true);
                    outputs.fill(true);
                }
                // The executor reads a predicate, and writes a merge's index, on the host.
                Role::Switch => inputs[1] = true,
                Role::Merge => outputs[1] = true,
                // Identities, constants and calls with their `_Arg` and `_Retval` move nothing.
                role if role.is_interpreted() => {}
                _ if takes_any[id.index()] => {
                    let of_node = fused.iter().find(|f| f.node == id);
                    outputs = of_node.map(|f| f.is_on_host.clone()).unwrap_or(outputs);
                }
                _ => {
                    let spec = kernels.find(node, device_type)?;
                    if spec.runs_on_host {
                        inputs.fill(true);
                        outputs.fill(true);
                    }
                    for name in spec.host_inputs {
                        inputs[node.input_range(name)?].fill(true);
                    }
                    for name in spec.host_outputs {
                        outputs[node.output_range(name)?].fill(true);
                    }
                }
            }
            on_host.push((inputs, outputs));
        }
        Ok(Transfers { on_host, takes_any })
    }

    pub(crate) fn between(&self, from: Endpoint, to: usize, input: usize) -> Transfer {
        if self.on_host.is_empty() || self.takes_any[to] {
            return Transfer::None;
        }
        let is_on_host = self.on_host[from.node.index()].1[from.index as usize];
        match (is_on_host, self.on_host[to].0[input]) {
            (false, true) => Transfer::ToHost,
            (true, false) => Transfer::ToDevice,
            _ => Transfer::None,
        }
    }
}
