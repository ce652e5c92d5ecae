//! The parts of a plan, made ready: those for this task's devices here, the others by their tasks.

use std::sync::Arc;

use thalweg_graph::{Graph, Node};
use thalweg_plan::Partition;
use thalweg_tensor::{Result, ensure};

use crate::execute::executable::{Create, Executable, Interface};
use crate::session::SessionCore;
use crate::session::callable::KnownConstants;
use crate::session::peers::RemoteParts;

/// What runs here, and what runs elsewhere.
pub(crate) type Parts = (Vec<Arc<Executable>>, Option<Arc<dyn RemoteParts>>);

impl SessionCore {
    /// Makes parts ready to run. `client` is what the caller gives and gets; it does so on the first
    /// device. Constants that are among `shared` are not made again.
    pub(crate) fn make_parts(
        &self,
        partitions: Vec<Partition>,
        client: Interface,
        shared: &KnownConstants,
    ) -> Result<Parts> {
        let may_receive_dead = client.may_receive_dead
            || partitions.len() > 1 && partitions.iter().any(|p| p.graph.has_control_flow());
        let is_here = |p: &Partition| self.devices.iter().any(|d| d.description().name == p.device);
        let like = partitions.first().map(|p| Graph::new_like(&p.graph));
        let (mut here, elsewhere): (Vec<_>, Vec<_>) = partitions.into_iter().partition(is_here);
        if here.is_empty()
            && let Some(graph) = like
        {
            // Somebody has to wait for the others.
            here.push(Partition { device: self.client_device().name.clone(), graph });
        }
        let mut parts = Vec::with_capacity(here.len());
        for (i, partition) in here.into_iter().enumerate() {
            let of_client = |count: usize| if i == 0 { count } else { 0 };
            let interface = Interface {
                feeds: of_client(client.feeds),
                fetches: of_client(client.fetches),
                may_receive_dead,
                ..client
            };
            parts.push(Arc::new(self.make_part(partition, interface, shared)?));
        }
        let Some(first) = elsewhere.first() else { return Ok((parts, None)) };
        ensure!(self.options.peers.is_some(), Internal, "{} is not a device here", first.device);
        let remote = match &self.options.peers {
            Some(peers) => Some(peers.take(elsewhere)?),
            None => None,
        };
        Ok((parts, remote))
    }

    fn make_part(
        &self,
        partition: Partition,
        interface: Interface,
        shared: &KnownConstants,
    ) -> Result<Executable> {
        let found = self.devices.iter().find(|d| d.description().name == partition.device);
        let device = found.expect("the part is one of those for devices here").clone();
        let stateful =
            |node: &Node, create: Create<'_>| self.stateful_kernel(node, &partition.device, create);
        let source = self.kernel_source(&stateful, shared);
        Executable::new(partition.graph, device, interface, &source)
    }
}
