//! Devices: names, descriptions for placement, and copies between host and device memory.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thalweg_graph::{Graph, NodeId};
use thalweg_tensor::{Error, Result, Tensor, err};

use crate::{ACCELERATORS, AnyKernel, KernelOrigin};

/// A device name as users write it: any part may be missing or `*`.
///
/// `/job:ps/task:1`, `/device:GPU:*`, `/cpu:0`, `/job:worker/replica:0/task:0/device:CPU:0`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceSpec {
    /// The job, if said.
    pub job: Option<String>,
    /// The replica, if said.
    pub replica: Option<u32>,
    /// The task, if said.
    pub task: Option<u32>,
    /// The device type in upper case, if said.
    pub device_type: Option<String>,
    /// The index among the task's devices of that type, if said.
    pub index: Option<u32>,
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceSpec> {
        let bad = || err!(InvalidArgument, "malformed device specification '{text}'");
        let number = |t: &str| match t {
            "*" => Ok(None),
            _ => t.parse::<u32>().map(Some).map_err(|_| bad()),
        };
        let mut spec = DeviceSpec::default();
        for part in text.split('/').filter(|p| !p.is_empty()) {
            match part.split_once(':').ok_or_else(bad)? {
                ("job", "*") => {}
                ("job", job) => spec.job = Some(job.to_owned()),
                ("replica", n) => spec.replica = number(n)?,
                ("task", n) => spec.task = number(n)?,
                ("device", rest) => {
                    let (device_type, index) = rest.split_once(':').unwrap_or((rest, "*"));
                    spec.device_type = (device_type != "*").then(|| device_type.to_uppercase());
                    spec.index = number(index)?;
                }
                // TensorFlow's old short form.
                (device_type @ ("cpu" | "gpu" | "CPU" | "GPU"), index) => {
                    spec.device_type = Some(device_type.to_uppercase());
                    spec.index = number(index)?;
                }
                _ => return Err(bad()),
            }
        }
        if !text.is_empty() && !text.starts_with('/') {
            return Err(bad());
        }
        Ok(spec)
    }
}

impl DeviceSpec {
    /// Whether `name` agrees with every part that is given.
    pub fn matches(&self, name: &DeviceName) -> bool {
        self.job.as_ref().is_none_or(|j| *j == name.job)
            && self.replica.is_none_or(|r| r == name.replica)
            && self.task.is_none_or(|t| t == name.task)
            && self.device_type.as_ref().is_none_or(|t| *t == name.device_type)
            && self.index.is_none_or(|i| i == name.index)
    }
}

/// The full name of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName {
    /// The job.
    pub job: String,
    /// The replica; 0 everywhere today.
    pub replica: u32,
    /// The task within the job.
    pub task: u32,
    /// The type, in upper case.
    pub device_type: String,
    /// The index among the task's devices of that type.
    pub index: u32,
}

impl DeviceName {
    /// CPU `index` of a task.
    pub fn cpu(job: &str, task: u32, index: u32) -> DeviceName {
        DeviceName { job: job.into(), replica: 0, task, device_type: "CPU".into(), index }
    }

    /// Whether both are devices of one task.
    pub fn is_same_task(&self, other: &DeviceName) -> bool {
        (&self.job, self.replica, self.task) == (&other.job, other.replica, other.task)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceName { job, replica, task, device_type, index } = self;
        write!(f, "/job:{job}/replica:{replica}/task:{task}/device:{device_type}:{index}")
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceName> {
        let spec: DeviceSpec = text.parse()?;
        let partial = || err!(InvalidArgument, "'{text}' is not the full name of a device");
        Ok(DeviceName {
            job: spec.job.ok_or_else(partial)?,
            replica: spec.replica.ok_or_else(partial)?,
            task: spec.task.ok_or_else(partial)?,
            device_type: spec.device_type.ok_or_else(partial)?,
            index: spec.index.ok_or_else(partial)?,
        })
    }
}

/// The description of a device by which placement chooses.
#[derive(Clone, Debug)]
pub struct DeviceDescription {
    /// Its full name.
    pub name: DeviceName,
    /// A number that is new whenever the device's task restarts.
    pub incarnation: u64,
    /// Arithmetic speed, floating-point operations per second.
    pub flops_per_second: f64,
    /// Speed of its own memory, bytes per second.
    pub memory_bytes_per_second: f64,
    /// Time to start a kernel.
    pub start_seconds: f64,
    /// Bytes it can hold.
    pub memory_bytes: u64,
    /// Whether its memory is the host's, so that no copy is needed between the two.
    pub shares_host_memory: bool,
}

impl DeviceDescription {
    /// A CPU of ordinary speed.
    pub fn cpu(name: DeviceName, memory_bytes: u64) -> DeviceDescription {
        DeviceDescription {
            name,
            incarnation: 1,
            flops_per_second: 1e11,
            memory_bytes_per_second: 2e10,
            start_seconds: 5e-7,
            memory_bytes,
            shares_host_memory: true,
        }
    }

    /// Whether it is an accelerator, which runs programs.
    pub fn is_accelerator(&self) -> bool {
        ACCELERATORS.contains(&self.name.device_type.as_str())
    }
}

/// What a device has done so far, and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Its model: `NVIDIA H200`.
    pub kind: String,
    /// Programs compiled.
    pub compilations: u64,
    /// Programs that an earlier process compiled, loaded from files.
    pub loads: u64,
    /// Programs run.
    pub executions: u64,
    /// Bytes copied from the host.
    pub bytes_from_host: u64,
    /// Bytes copied to the host.
    pub bytes_to_host: u64,
    /// Bytes of memory in use.
    pub memory_used_bytes: u64,
    /// The most that were in use at once.
    pub memory_peak_bytes: u64,
    /// The most that may be.
    pub memory_limit_bytes: u64,
}

/// A device that runs kernels.
pub trait Device: Send + Sync {
    /// Its name, speed and memory.
    fn description(&self) -> &DeviceDescription;
    /// A copy (or the tensor itself) that host code can read.
    fn download(&self, tensor: &Tensor) -> Result<Tensor>;
    /// A copy (or the tensor itself) in the device's memory.
    fn upload(&self, tensor: &Tensor) -> Result<Tensor>;
    /// What it has done so far, if it counts.
    fn stats(&self) -> Option<DeviceStats> {
        None
    }
    /// Groups the nodes of a partition that the device runs as one; it makes their kernels.
    fn fuse(&self, graph: Graph, _: &KernelOrigin) -> Result<(Graph, Vec<FusedNode>)> {
        Ok((graph, Vec::new()))
    }
}

/// A device of the machine, which each task or session has under a name of its own.
pub trait PhysicalDevice: Send + Sync {
    /// Its type, in upper case.
    fn device_type(&self) -> &str;
    /// The device under this name; `incarnation` is new whenever its task restarts.
    fn named(self: Arc<Self>, name: DeviceName, incarnation: u64) -> Arc<dyn Device>;
}

/// The devices under their names in a task: of each type they are numbered from 0.
pub fn name_devices(
    physical: &[Arc<dyn PhysicalDevice>],
    job: &str,
    task: u32,
    incarnation: u64,
) -> Vec<Arc<dyn Device>> {
    let mut named: Vec<Arc<dyn Device>> = Vec::with_capacity(physical.len());
    for device in physical {
        let device_type = device.device_type().to_owned();
        let is_same = |d: &&Arc<dyn Device>| d.description().name.device_type == device_type;
        let index = named.iter().filter(is_same).count() as u32;
        let name = DeviceName { device_type, ..DeviceName::cpu(job, task, index) };
        // As of CPUs: a task tells keys of an earlier start by it.
        let own = incarnation.wrapping_add(u64::from(index));
        named.push(device.clone().named(name, own));
    }
    named
}

/// A node that stands for several of a partition.
pub struct FusedNode {
    /// The node.
    pub node: NodeId,
    /// Its kernel, which takes inputs in the device's memory or the host's.
    pub kernel: AnyKernel,
    /// For each output, whether the kernel leaves it in host memory.
    pub is_on_host: Vec<bool>,
}

/// A device whose memory is the host's.
pub struct HostDevice(pub DeviceDescription);

impl HostDevice {
    /// As a shared device.
    pub fn shared(description: DeviceDescription) -> Arc<dyn Device> {
        Arc::new(HostDevice(description))
    }
}

impl Device for HostDevice {
    fn description(&self) -> &DeviceDescription {
        &self.0
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(tensor.clone())
    }

    fn upload(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(tensor.clone())
    }
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn names_and_patterns() {
        let name: DeviceName = "/job:ps/replica:0/task:1/device:CPU:0".parse().unwrap();
        assert_eq!(name.to_string(), "/job:ps/replica:0/task:1/device:CPU:0");
        for (pattern, matches) in [
            ("", true),
            ("/job:ps", true),
            ("/job:ps/task:1", true),
            ("/device:CPU:*", true),
            ("/cpu:0", true),
            ("/device:cpu:0", true),
            ("/job:*/task:*", true),
            ("/job:worker", false),
            ("/device:GPU:0", false),
            ("/task:2", false),
        ] {
            assert_eq!(pattern.parse::<DeviceSpec>().unwrap().matches(&name), matches, "{pattern}");
        }
        for broken in ["job:ps", "/job", "/task:x", "/nosuch:1", "/device:CPU:x"] {
            let e = broken.parse::<DeviceSpec>().unwrap_err();
            assert_eq!(e.code(), Code::InvalidArgument, "{broken}: {e}");
        }
    }
}
