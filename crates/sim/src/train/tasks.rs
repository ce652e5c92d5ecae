//! Tasks: their devices, network interfaces and state, which a crash takes away.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_graph::Node;
use thalweg_kernel::{
    AnyKernel, DeviceDescription, HostDevice, KernelContext, KernelOrigin, ResourceManager,
    SessionContext, StepContext, Value, Variable,
};
use thalweg_tensor::{Result, Tensor, err};

use super::network::Interface;
use super::world::{Id, World};

/// A worker's or a parameter server's process.
pub(super) struct Task {
    pub session: Arc<SessionContext>,
    pub device: Arc<HostDevice>,
    pub interface: Interface,
    /// How often it has crashed.
    pub epoch: u32,
    pub is_alive: bool,
    /// Nanoseconds in which it executed nodes.
    pub busy: u64,
    pub(super) queue: VecDeque<(Id, u32)>,
    pub(super) free_at: u64,
    pub(super) is_scheduled: bool,
    pub(super) current: Option<(Id, u32)>,
    pub(super) handles: FxHashMap<usize, Value>,
}

impl Task {
    pub(super) fn new(
        description: DeviceDescription,
        interface: Interface,
        origin: &KernelOrigin,
    ) -> Task {
        Task {
            session: session(origin),
            device: Arc::new(HostDevice(description)),
            interface,
            epoch: 0,
            is_alive: true,
            busy: 0,
            queue: VecDeque::new(),
            free_at: 0,
            is_scheduled: false,
            current: None,
            handles: FxHashMap::default(),
        }
    }
}

fn session(origin: &KernelOrigin) -> Arc<SessionContext> {
    let isolated = SessionContext::isolated(&origin.budget, origin.environment.clone());
    Arc::new(SessionContext { resources: ResourceManager::new("localhost"), ..isolated })
}

impl World {
    /// A task dies: what it executes and what it holds is lost.
    pub(super) fn crash(&mut self, task: u32) {
        let on = &mut self.tasks[task as usize];
        on.epoch += 1;
        on.is_alive = false;
        on.queue.clear();
        on.current = None;
        on.handles.clear();
    }

    /// A task that died is back, without state.
    pub(super) fn restart(&mut self, task: u32) {
        let (now, origin) = (self.events.now(), self.origin.clone());
        let on = &mut self.tasks[task as usize];
        on.is_alive = true;
        on.is_scheduled = false;
        on.free_at = now;
        on.session = session(&origin);
        on.interface.reset(now);
    }

    /// The handle of state that a node makes on a task.
    pub(super) fn handle(
        &mut self,
        task: u32,
        node: &Arc<Node>,
        context: &Arc<StepContext>,
    ) -> Result<Value> {
        let key = Arc::as_ptr(node) as usize;
        if let Some(value) = self.tasks[task as usize].handles.get(&key) {
            return Ok(value.clone());
        }
        let spec = self.origin.kernels.find(node, "CPU")?;
        let kernel = (spec.create)(&self.origin.init(node))?;
        let AnyKernel::Sync(kernel) = kernel else {
            return Err(err!(Internal, "'{}' makes no handle", node.name));
        };
        let dtypes: Vec<_> = node.outputs.iter().map(|output| output.dtype).collect();
        let mut outputs = vec![Value::Empty; dtypes.len()];
        let mut inputs = [];
        let mut ctx = KernelContext::new(node, &dtypes, context, &mut inputs, &mut outputs);
        kernel.compute(&mut ctx)?;
        let value = outputs.swap_remove(0);
        self.tasks[task as usize].handles.insert(key, value.clone());
        Ok(value)
    }

    /// Sets an integer variable on a task, as a checkpoint that is restored does.
    pub(super) fn set_variable(&self, task: u32, name: &str, value: i64) -> Result<bool> {
        let resources = &self.tasks[task as usize].session.resources;
        let Some(variable) = resources.find::<Variable>("", name) else {
            return Ok(false);
        };
        variable.assign(Tensor::scalar(value))?;
        Ok(true)
    }
}
