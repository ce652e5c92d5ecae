//! Executables of a plan's partitions for this task's devices; other tasks take over the rest.

use std::sync::Arc;

use thalweg_graph::{Graph, Node};
use thalweg_plan::Partition;
use thalweg_tensor::{Result, ensure};

use crate::execute::executable::{Create, Executable, Interface, KernelSource};
use crate::session::SessionCore;
use crate::session::callable::SharedConstants;
use crate::session::remote_tasks::RemotePartitions;

/// Executables of this task, and the partitions of other tasks.
pub(crate) type Executables = (Vec<Arc<Executable>>, Option<Arc<dyn RemotePartitions>>);

impl SessionCore {
    /// Makes an executable of each partition for a device of this task. The first one has the
    /// `client`'s feeds and fetches. Constants that are among `shared` are not made again.
    pub(crate) fn make_executables(
        &self,
        partitions: Vec<Partition>,
        client: Interface,
        shared: &SharedConstants,
    ) -> Result<Executables> {
        let may_receive_dead = client.may_receive_dead
            || partitions.len() > 1 && partitions.iter().any(|p| p.graph.has_control_flow());
        let is_here = |p: &Partition| self.devices.iter().any(|d| d.description().name == p.device);
        let like = partitions.first().map(|p| Graph::new_like(&p.graph));
        let (mut here, elsewhere): (Vec<_>, Vec<_>) = partitions.into_iter().partition(is_here);
        if here.is_empty()
            && let Some(graph) = like
        {
            // This task waits for the others, with an empty partition.
            here.push(Partition { device: self.client_device().name.clone(), graph });
        }
        let mut executables = Vec::with_capacity(here.len());
        for (i, partition) in here.into_iter().enumerate() {
            let of_client = |count: usize| if i == 0 { count } else { 0 };
            let interface = Interface {
                feeds: of_client(client.feeds),
                fetches: of_client(client.fetches),
                may_receive_dead,
                ..client
            };
            executables.push(Arc::new(self.make_executable(partition, interface, shared)?));
        }
        let Some(first) = elsewhere.first() else { return Ok((executables, None)) };
        ensure!(
            self.options.remote_tasks.is_some(),
            Internal,
            "{} is not a device here",
            first.device
        );
        let remote = match &self.options.remote_tasks {
            Some(tasks) => Some(tasks.take(elsewhere)?),
            None => None,
        };
        Ok((executables, remote))
    }

    fn make_executable(
        &self,
        partition: Partition,
        interface: Interface,
        shared: &SharedConstants,
    ) -> Result<Executable> {
        let found = self.devices.iter().find(|d| d.description().name == partition.device);
        let device = found.expect("the partition is one of those for devices of this task").clone();
        let stateful =
            |node: &Node, create: Create<'_>| self.stateful_kernel(node, &partition.device, create);
        let origin = self.own_kernel_origin();
        let source = KernelSource { origin: &origin, stateful: &stateful, constants: shared };
        Executable::new(partition.graph, device, interface, &source)
    }
}
