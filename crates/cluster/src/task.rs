//! One task of a cluster: its name, its devices, and the state that outlives sessions.

use std::sync::Arc;

use thalweg_graph::OpRegistry;
use thalweg_kernel::{
    Device, DeviceDescription, DeviceName, Environment, HostDevice, KernelRegistry, ResourceManager,
};
use thalweg_proto as pb;
use thalweg_runtime::{memory_limit_bytes, system_environment};

/// What a task is told when it starts.
#[derive(Clone)]
pub struct TaskOptions {
    /// The job it belongs to.
    pub job: String,
    /// Its number within the job.
    pub index: u32,
    /// Bytes that its tensors may take together.
    pub memory_limit_bytes: usize,
    /// Time, entropy and files.
    pub environment: Environment,
}

impl Default for TaskOptions {
    fn default() -> Self {
        TaskOptions {
            job: "local".into(),
            index: 0,
            memory_limit_bytes: memory_limit_bytes(),
            environment: system_environment(),
        }
    }
}

/// A task: everything that its sessions share.
pub struct Task {
    /// What it was told.
    pub options: TaskOptions,
    /// The ops it knows.
    pub ops: Arc<OpRegistry>,
    /// The kernels it has.
    pub kernels: Arc<KernelRegistry>,
    /// Named state. TensorFlow calls the default container after the job.
    pub resources: Arc<ResourceManager>,
    /// Differs from that of every other start of the task.
    pub incarnation: u64,
}

impl Task {
    /// A task with nothing in it.
    pub fn new(options: TaskOptions, ops: Arc<OpRegistry>, kernels: Arc<KernelRegistry>) -> Task {
        let resources = ResourceManager::new(&options.job);
        // Zero means "not known" in the protocol.
        let incarnation = options.environment.entropy.next_u64().max(1);
        Task { options, ops, kernels, resources, incarnation }
    }

    /// The task's name as messages have it, `/job:local/replica:0/task:0`.
    pub fn name(&self) -> String {
        format!("/job:{}/replica:0/task:{}", self.options.job, self.options.index)
    }

    /// The first `cpus` CPU devices; all share the machine's cores.
    pub fn devices(&self, cpus: u32) -> Vec<Arc<dyn Device>> {
        let device = |i: u32| {
            let name = DeviceName::cpu(&self.options.job, self.options.index, i);
            let memory = self.options.memory_limit_bytes as u64;
            let incarnation = self.incarnation.wrapping_add(u64::from(i));
            HostDevice::shared(DeviceDescription {
                incarnation,
                ..DeviceDescription::cpu(name, memory)
            })
        };
        (0..cpus.max(1)).map(device).collect()
    }
}

/// A device as `ListDevices` tells of it.
pub(crate) fn attributes(device: &DeviceDescription) -> pb::DeviceAttributes {
    pb::DeviceAttributes {
        name: device.name.to_string(),
        device_type: device.name.device_type.clone(),
        memory_limit: device.memory_bytes as i64,
        locality: Some(pb::DeviceLocality::default()),
        incarnation: device.incarnation,
        xla_global_id: -1,
        ..Default::default()
    }
}
