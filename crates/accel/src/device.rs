//! An accelerator, and the devices of tasks that it is.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use thalweg_graph::Graph;
use thalweg_kernel::{
    ACCELERATORS, AnyKernel, Device, DeviceDescription, DeviceName, DeviceStats, FusedNode,
    KernelOrigin, PhysicalDevice,
};
use thalweg_plan::form_regions;
use thalweg_tensor::{Budget, Charge, Error, Result, Tensor, ensure, err};

use crate::compile::Target;
use crate::discover::default_program_folder;
use crate::memory::{Memory, memory_of};
use crate::pjrt::{Client, CompileOptions, Executable, OptionValue};
use crate::programs::ProgramFolder;
use crate::region::RegionKernel;

/// Bytes of tensors on a device whose plugin does not say how much memory it has.
const UNKNOWN_MEMORY_BYTES: usize = 8 << 30;

/// The share of a node in the time to start the program of its region.
const REGION_NODE_SECONDS: f64 = 1e-7;

/// How 32-bit products are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// In 32 bits.
    #[default]
    Full,
    /// With operands rounded to what the hardware is fastest with: TF32 on NVIDIA GPUs.
    Fast,
}

/// How a process uses accelerators.
#[derive(Clone, Debug, Default)]
pub struct AcceleratorOptions {
    /// How 32-bit products are computed.
    pub precision: Precision,
    /// The fraction of a GPU's memory that this process may take, between 0 and 1; `None` leaves it to the
    /// plugin. Memory is taken as it is needed.
    pub memory_fraction: Option<f32>,
    /// Where compiled programs are kept for later processes.
    pub program_cache: ProgramCache,
}

/// Where compiled programs are kept for later processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProgramCache {
    /// Nowhere.
    #[default]
    None,
    /// In the user's cache folder ([`default_program_folder`]), except programs of XLA's CPU backend, which
    /// compiles quickly and for one model of processor.
    Standard,
    /// In this folder.
    Folder(PathBuf),
}

impl ProgramCache {
    /// The folder for programs of this client. The standard one may be missing; one that was named is
    /// an error then.
    fn open(&self, client: &Client) -> Result<Option<ProgramFolder>> {
        match self {
            ProgramCache::None => Ok(None),
            ProgramCache::Standard if is_cpu(client) => Ok(None),
            ProgramCache::Standard => {
                let Some(folder) = default_program_folder() else { return Ok(None) };
                let opened = ProgramFolder::open(&folder).map_err(|e| {
                    let reason = e.message();
                    tracing::warn!(target: "thalweg::accelerator", "no program is kept: {reason}");
                });
                Ok(opened.ok())
            }
            ProgramCache::Folder(folder) => ProgramFolder::open(folder).map(Some),
        }
    }
}

/// Whether the plugin is XLA's CPU backend.
pub(crate) fn is_cpu(client: &Client) -> bool {
    matches!(client.platform_name(), "cpu" | "Host")
}

/// Model and instructions of this machine's processor.
fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = all.split("\n\n").next().unwrap_or_default();
    let is_fixed = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().trim_end();
        ["model name", "flags", "CPU part", "Features"].contains(&name)
    };
    first.lines().filter(is_fixed).collect::<Vec<_>>().join("\n")
}

/// What an accelerator has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Programs compiled.
    pub compilations: AtomicU64,
    /// Programs taken from the folder of compiled programs.
    pub loads: AtomicU64,
    /// Programs run.
    pub executions: AtomicU64,
    /// The most bytes of tensors in its memory at once.
    pub peak_bytes: AtomicU64,
    /// Bytes copied from the host.
    pub bytes_from_host: AtomicU64,
    /// Bytes copied to the host.
    pub bytes_to_host: AtomicU64,
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
    programs: Option<ProgramFolder>,
    /// Whether the plugin's fused attention is called: until a program with it does not compile.
    fuses_attention: AtomicBool,
}

impl Accelerator {
    /// The device `ordinal` of a client as one of type `device_type`. Its tensors take at most the memory
    /// that the plugin says it has.
    pub fn new(
        client: Arc<Client>,
        ordinal: usize,
        device_type: &str,
        options: &AcceleratorOptions,
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
        let fraction = f64::from(options.memory_fraction.unwrap_or(1.0));
        let unknown = (UNKNOWN_MEMORY_BYTES as f64 * fraction) as usize;
        let programs = options.program_cache.open(&client)?;
        Ok(Arc::new(Accelerator {
            device_type: device_type.to_owned(),
            budget: Budget::new(of_plugin.unwrap_or(unknown)),
            client,
            ordinal,
            precision: options.precision,
            counters: Counters::default(),
            programs,
            fuses_attention: AtomicBool::new(true),
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

    /// What it has done so far: compilations (programs from the folder do not count) and executions.
    pub fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.counters.compilations), load(&self.counters.executions))
    }

    /// Programs taken from the folder of compiled programs.
    pub fn loads(&self) -> u64 {
        self.counters.loads.load(Ordering::Relaxed)
    }

    /// Remembers the use of memory if it is the highest so far.
    pub(crate) fn note_use(&self) {
        let used = self.budget.used_bytes() as u64;
        // Usually it is not, which costs no write.
        if used > self.counters.peak_bytes.load(Ordering::Relaxed) {
            self.counters.peak_bytes.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// The most bytes of tensors that its memory held at once; what programs need while they run comes on
    /// top, and is in the plugin's own statistics.
    pub fn peak_bytes(&self) -> usize {
        self.counters.peak_bytes.load(Ordering::Relaxed) as usize
    }

    /// Bytes of tensors in its memory.
    pub fn used_bytes(&self) -> usize {
        self.budget.used_bytes()
    }

    /// What it has done so far, and its memory. What the plugin says of the memory comes first: it counts
    /// what running programs need, too.
    pub fn stats(&self) -> DeviceStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of_plugin = self.plugin_device().memory_stats().unwrap_or_default();
        let counters = &self.counters;
        DeviceStats {
            kind: self.plugin_device().kind().to_owned(),
            compilations: load(&counters.compilations),
            loads: load(&counters.loads),
            executions: load(&counters.executions),
            bytes_from_host: load(&counters.bytes_from_host),
            bytes_to_host: load(&counters.bytes_to_host),
            memory_used_bytes: of_plugin.bytes_in_use.unwrap_or(self.used_bytes() as u64),
            memory_peak_bytes: of_plugin.peak_bytes_in_use.unwrap_or(self.peak_bytes() as u64),
            memory_limit_bytes: self.budget.limit_bytes() as u64,
        }
    }

    /// The plugin's client.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// What programs are made for.
    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            platform: self.client.platform_name(),
            device_type: &self.device_type,
            precision: self.precision,
            fuses_attention: self.fuses_attention.load(Ordering::Relaxed),
        }
    }

    /// Computes attention by plain operations from now on.
    pub(crate) fn give_up_fused_attention(&self, error: &Error) {
        if self.fuses_attention.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                target: "thalweg::accelerator",
                device = ?self,
                "attention is not fused, which takes more time and memory: {}",
                error.message()
            );
        }
    }

    /// Compiles a program for it, or loads what an earlier process compiled.
    pub(crate) fn compile(&self, text: &str) -> Result<Arc<Executable>> {
        let options = self.compile_options();
        let Some(programs) = &self.programs else { return self.compile_anew(text, &options) };
        let key = self.program_key(text, &options);
        if let Some(program) = programs.read(&key) {
            match self.client.deserialize(&program, &options) {
                Ok(executable) => {
                    self.counters.loads.fetch_add(1, Ordering::Relaxed);
                    return Ok(executable);
                }
                Err(e) => {
                    let reason = e.message();
                    tracing::debug!(target: "thalweg::accelerator", "compiled again: {reason}");
                    programs.remove(&key);
                }
            }
        }
        let executable = self.compile_anew(text, &options)?;
        // Not every plugin writes programs.
        if let Ok(program) = executable.serialize() {
            programs.write(&key, &program);
        }
        Ok(executable)
    }

    /// Everything that a compiled program depends on: the plugin's file, the device, the options, the text.
    fn program_key(&self, text: &str, options: &CompileOptions) -> Vec<u8> {
        let (client, plugin) = (&self.client, self.client.plugin());
        let file = std::fs::metadata(plugin.path()).ok();
        let file = file.map(|m| (m.len(), m.modified().ok()));
        let (path, version) = (plugin.path().display(), client.platform_version());
        let kind = self.plugin_device().kind();
        // Programs of XLA's CPU backend use all instructions of the processor.
        let processor = if is_cpu(client) { processor() } else { String::new() };
        format!("{path}\n{file:?}\n{version}\n{kind}\n{processor}\n{options:?}\n{text}")
            .into_bytes()
    }

    fn compile_anew(&self, text: &str, options: &CompileOptions) -> Result<Arc<Executable>> {
        self.counters.compilations.fetch_add(1, Ordering::Relaxed);
        self.client.compile(text, options)
    }

    /// How programs are compiled for it.
    fn compile_options(&self) -> CompileOptions {
        let mut options = CompileOptions { device: self.ordinal, ..CompileOptions::default() };
        // The result of each operation is rounded to its dtype, as TensorFlow's kernels do; values that are kept
        // for the gradient take no more memory than they need.
        let rounds = ("xla_allow_excess_precision".to_owned(), OptionValue::Bool(false));
        options.overrides.push(rounds);
        if is_cpu(&self.client) {
            // NaN is the greatest and the least number, as in TensorFlow.
            let precise = ("xla_cpu_enable_fast_min_max".to_owned(), OptionValue::Bool(false));
            options.overrides.push(precise);
        }
        options
    }

    /// A copy in host memory, when it is there.
    pub(crate) fn read(&self, memory: &Memory) -> Result<Tensor> {
        self.count_read(memory);
        memory.buffer.read()
    }

    /// Starts a copy to new host memory, charged to `budget`; `done` may come on the plugin's thread.
    pub(crate) fn start_read(
        &self,
        memory: &Memory,
        budget: &Arc<Budget>,
        done: impl FnOnce(Result<Tensor>) + Send + 'static,
    ) {
        self.count_read(memory);
        memory.buffer.download(Some(budget), done);
    }

    fn count_read(&self, memory: &Memory) {
        let bytes = memory.buffer.size_bytes() as u64;
        self.counters.bytes_to_host.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A tensor of the host in the device's memory. The copy may be under way when this returns; it reads
    /// the tensor's own memory, which is kept until then.
    pub(crate) fn put(&self, tensor: &Tensor) -> Result<Memory> {
        let bytes = tensor.size_bytes();
        let charge = Charge::new(&self.budget, bytes)?;
        self.counters.bytes_from_host.fetch_add(bytes as u64, Ordering::Relaxed);
        let memory = Memory::new(self.client.upload(tensor, self.ordinal)?, charge);
        self.note_use();
        Ok(memory)
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
            start_seconds: REGION_NODE_SECONDS,
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
            Some(_) => self.accelerator.read(&*memory_of(tensor)?),
            None => Ok(tensor.clone()),
        }
    }

    fn upload(&self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.device_memory() {
            Some(_) => Ok(tensor.clone()),
            None => self.accelerator.put(tensor)?.into_tensor(),
        }
    }

    fn stats(&self) -> Option<DeviceStats> {
        Some(self.accelerator.stats())
    }

    fn fuse(&self, graph: Graph, origin: &KernelOrigin) -> Result<(Graph, Vec<FusedNode>)> {
        let device_type = &self.description.name.device_type;
        let (graph, regions) = form_regions(graph, &origin.kernels, device_type)?;
        let fused = regions.into_iter().map(|region| FusedNode {
            node: region.node,
            is_on_host: region.is_read_on_host.clone(),
            kernel: AnyKernel::Async(Arc::new(RegionKernel::new(
                region,
                self.accelerator.clone(),
                origin.clone(),
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
