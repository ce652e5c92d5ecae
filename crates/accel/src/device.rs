//! An accelerator as a device of a session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_graph::Graph;
use thalweg_kernel::{AnyKernel, Device, DeviceDescription, FusedNode, KernelRegistry};
use thalweg_plan::form_regions;
use thalweg_tensor::{Budget, Charge, Result, Tensor};

use crate::memory::{Memory, memory_of};
use crate::pjrt::Client;
use crate::region::RegionKernel;

/// How 32-bit products are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// In 32 bits.
    #[default]
    Full,
    /// With operands rounded to what the hardware is fastest with: TF32 on NVIDIA GPUs.
    Fast,
}

/// What an accelerator has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Programs compiled.
    pub compilations: AtomicU64,
    /// Programs run.
    pub executions: AtomicU64,
}

/// One device of a plugin, which runs regions of graphs.
pub struct Accelerator {
    description: DeviceDescription,
    pub(crate) client: Arc<Client>,
    /// Index among the client's devices.
    pub(crate) ordinal: usize,
    /// Bounds the bytes of tensors in the device's memory.
    pub(crate) budget: Arc<Budget>,
    pub(crate) precision: Precision,
    pub(crate) counters: Counters,
    /// A reference to itself, for kernels.
    this: std::sync::Weak<Accelerator>,
}

impl Accelerator {
    /// The device `ordinal` of a client, with the name, speed and memory of `description`.
    pub fn new(
        client: Arc<Client>,
        ordinal: usize,
        description: DeviceDescription,
        precision: Precision,
    ) -> Arc<Accelerator> {
        let limit = usize::try_from(description.memory_bytes).unwrap_or(usize::MAX);
        Arc::new_cyclic(|this| Accelerator {
            budget: Budget::new(limit),
            description,
            client,
            ordinal,
            precision,
            counters: Counters::default(),
            this: this.clone(),
        })
    }

    /// What it has done so far: compilations and executions.
    pub fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.counters.compilations), load(&self.counters.executions))
    }

    /// Bytes of tensors in its memory.
    pub fn used_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// The plugin's client.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// A tensor of the host in the device's memory; the copy may be under way when this returns.
    pub(crate) fn put(&self, tensor: &Tensor) -> Result<Memory> {
        let charge = Charge::new(&self.budget, tensor.size_bytes())?;
        Ok(Memory { buffer: self.client.upload(tensor, self.ordinal)?, _charge: charge })
    }
}

impl Device for Accelerator {
    fn description(&self) -> &DeviceDescription {
        &self.description
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.device_memory() {
            Some(_) => memory_of(tensor)?.buffer.read(),
            None => Ok(tensor.clone()),
        }
    }

    fn upload(&self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.device_memory() {
            Some(_) => Ok(tensor.clone()),
            None => self.put(tensor)?.into_tensor(),
        }
    }

    fn fuse(&self, graph: Graph, kernels: &Arc<KernelRegistry>) -> Result<(Graph, Vec<FusedNode>)> {
        let device_type = &self.description.name.device_type;
        let (graph, regions) = form_regions(graph, kernels, device_type)?;
        let Some(this) = self.this.upgrade() else { return Ok((graph, Vec::new())) };
        let fused = regions.into_iter().map(|region| FusedNode {
            node: region.node,
            is_on_host: region.is_read_on_host.clone(),
            kernel: AnyKernel::Async(Arc::new(RegionKernel::new(
                region,
                this.clone(),
                kernels.clone(),
            ))),
        });
        let fused = fused.collect();
        Ok((graph, fused))
    }
}

impl fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accelerator({}, device {})", self.description.name, self.ordinal)
    }
}
