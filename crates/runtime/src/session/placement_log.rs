//! The placement log: the device of each of the client's nodes.

use thalweg_graph::Graph;
use thalweg_kernel::DeviceDescription;
use thalweg_plan::{Options, Pins, StepSignature, Target, compile};
use thalweg_tensor::Result;

use crate::session::SessionCore;

impl SessionCore {
    /// Logs the device of each of the client's nodes, also of those that optimization removes.
    pub(crate) fn log_placement(
        &self,
        graph: &Graph,
        step: &StepSignature,
        devices: &[DeviceDescription],
        pins: &Pins,
    ) -> Result<()> {
        let Some(log) = &self.options.placement_log else { return Ok(()) };
        let options = Options { optimize: false, ..self.options.plan };
        let plan = compile(graph, step, &Target { options, ..self.target(devices, pins) })?;
        for partition in &plan.partitions {
            let device = partition.device.to_string();
            for node in partition.graph.nodes() {
                if !node.role().is_transfer() {
                    log(&node.name, &node.op.name, &device);
                }
            }
        }
        Ok(())
    }
}
