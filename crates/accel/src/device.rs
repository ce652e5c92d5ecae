//! An accelerator, and the devices of tasks that it is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thalweg_graph::Graph;
use thalweg_kernel::{
    ACCELERATORS, AnyKernel, Device, DeviceDescription, DeviceName, FusedNode, KernelRegistry,
    PhysicalDevice,
};
use thalweg_plan::form_regions;
use thalweg_tensor::{Budget, Charge, Result, Tensor, ensure, err};

use crate::memory::{Memory, memory_of};
use crate::pjrt::{Client, CompileOptions, OptionValue};
use crate::region::RegionKernel;

/// Bytes of tensors on a device whose plugin does not say how much memory it has.
const UNKNOWN_MEMORY_BYTES: usize = 8 << 30;

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

/// One device of a plugin, which runs regions of graphs. Each task or session that uses it has it
/// under a name of its own ([`Accelerator::named`]).
pub struct Accelerator {
    device_type: String,
    pub(crate) client: Arc<Client>,
    /// Index among the client's devices.
    pub(crate) ordinal: usize,
    /// Bounds the bytes of tensors in the device's memory.
    pub(crate) budget: Arc<Budget>,
    pub(crate) precision: Precision,
    pub(crate) counters: Counters,
}

impl Accelerator {
    /// The device `ordinal` of a client as one of type `device_type`, whose tensors take at most
    /// `memory_limit` bytes of its memory; without a limit, what the plugin says that it has.
    pub fn new(
        client: Arc<Client>,
        ordinal: usize,
        device_type: &str,
        memory_limit: Option<usize>,
        precision: Precision,
    ) -> Result<Arc<Accelerator>> {
        ensure!(
            ACCELERATORS.contains(&device_type),
            InvalidArgument,
            "'{device_type}' is not a type of accelerators; they are {}",
            ACCELERATORS.join(", ")
        );
        let device = client.devices().get(ordinal).ok_or_else(|| {
            err!(
                InvalidArgument,
                "the plugin has {} devices, not {ordinal}",
                client.devices().len()
            )
        })?;
        let stats = device.memory_stats().unwrap_or_default();
        let of_plugin = stats.bytes_limit.and_then(|bytes| usize::try_from(bytes).ok());
        let limit = memory_limit.or(of_plugin).unwrap_or(UNKNOWN_MEMORY_BYTES);
        Ok(Arc::new(Accelerator {
            device_type: device_type.to_owned(),
            budget: Budget::new(limit),
            client,
            ordinal,
            precision,
            counters: Counters::default(),
        }))
    }

    /// Its type: `GPU`, `TPU`, `XLA_CPU`.
    pub fn device_type(&self) -> &str {
        &self.device_type
    }

    /// The plugin's device.
    pub fn plugin_device(&self) -> &crate::pjrt::Device {
        &self.client.devices()[self.ordinal]
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

    /// How programs are compiled for it.
    pub(crate) fn compile_options(&self) -> CompileOptions {
        let mut options = CompileOptions { device: self.ordinal, ..CompileOptions::default() };
        if matches!(self.client.platform_name(), "cpu" | "Host") {
            // NaN is the greatest and the least number, as in TensorFlow.
            let precise = ("xla_cpu_enable_fast_min_max".to_owned(), OptionValue::Bool(false));
            options.overrides.push(precise);
        }
        options
    }

    /// A tensor of the host in the device's memory; the copy may be under way when this returns.
    pub(crate) fn put(&self, tensor: &Tensor) -> Result<Memory> {
        let charge = Charge::new(&self.budget, tensor.size_bytes())?;
        Ok(Memory { buffer: self.client.upload(tensor, self.ordinal)?, _charge: charge })
    }
}

impl PhysicalDevice for Accelerator {
    fn device_type(&self) -> &str {
        &self.device_type
    }

    fn named(self: Arc<Self>, name: DeviceName, incarnation: u64) -> Arc<dyn Device> {
        let (flops_per_second, memory_bytes_per_second) = match self.device_type.as_str() {
            "XLA_CPU" => (1e11, 2e10),
            _ => (5e13, 2e12),
        };
        let description = DeviceDescription {
            name,
            incarnation,
            flops_per_second,
            memory_bytes_per_second,
            memory_bytes: self.budget.limit_bytes() as u64,
            shares_host_memory: false,
        };
        Arc::new(NamedAccelerator { description, accelerator: self })
    }
}

/// An accelerator under the name that it has in a task.
struct NamedAccelerator {
    description: DeviceDescription,
    accelerator: Arc<Accelerator>,
}

impl Device for NamedAccelerator {
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
            None => self.accelerator.put(tensor)?.into_tensor(),
        }
    }

    fn fuse(&self, graph: Graph, kernels: &Arc<KernelRegistry>) -> Result<(Graph, Vec<FusedNode>)> {
        let device_type = &self.description.name.device_type;
        let (graph, regions) = form_regions(graph, kernels, device_type)?;
        let fused = regions.into_iter().map(|region| FusedNode {
            node: region.node,
            is_on_host: region.is_read_on_host.clone(),
            kernel: AnyKernel::Async(Arc::new(RegionKernel::new(
                region,
                self.accelerator.clone(),
                kernels.clone(),
            ))),
        });
        let fused = fused.collect();
        Ok((graph, fused))
    }
}

impl fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accelerator({} {})", self.device_type, self.plugin_device().debug_string())
    }
}
