//! The placement log: the device of each of the client's nodes, and the reason for it.

use thalweg_graph::Graph;
use thalweg_plan::{StepSignature, Target, place_step};
use thalweg_tensor::Result;

use crate::session::SessionCore;
use crate::session::options::PlacedNode;

impl SessionCore {
    /// Logs the device of each of the client's nodes, also of those that optimization removes.
    pub(crate) fn log_placement(
        &self,
        graph: &Graph,
        step: &StepSignature,
        target: &Target<'_>,
    ) -> Result<()> {
        let Some(log) = &self.options.placement_log else { return Ok(()) };
        let (placed, placement) = place_step(graph, step, target)?;
        let name = |device: u32| &target.devices[device as usize].name;
        for id in placed.ids() {
            let (node, i) = (placed.node(id), id.index());
            if node.role().is_transfer() {
                continue;
            }
            let elsewhere = placement.elsewhere.get(i).map_or(&[][..], |all| all);
            log(&PlacedNode {
                node: &node.name,
                op: &node.op.name,
                device: name(placement.devices[i]),
                reason: placement.reasons[i],
                finish_seconds: placement.predicted.get(i).map(|(_, end)| *end),
                elsewhere: elsewhere.iter().map(|&(d, finish)| (name(d), finish)).collect(),
            });
        }
        Ok(())
    }
}
