//! The other tasks of a cluster as one session of a master uses them: their devices, and the worker
//! sessions on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use thalweg_kernel::{Cancellation, DeviceDescription, DeviceName, Entropy, Rendezvous};
use thalweg_plan::Partition;
use thalweg_proto as pb;
use thalweg_runtime::{RemotePartitions, RemoteTasks};
use thalweg_tensor::{Result, err};

use crate::cluster_spec::TaskName;
use crate::master::remote_partitions::RegisteredPartitions;
use crate::member::Member;
use crate::network::single_flight::SingleFlight;
use crate::network::transport::{Call, Done, Transport};

/// Timeout of `CreateWorkerSession` and `RegisterGraph`.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Step ids have this many bits, as TensorFlow's have.
const STEP_BITS: u32 = 57;

/// The other tasks of one session.
pub(crate) struct SessionPeers {
    this: Weak<SessionPeers>,
    pub(crate) member: Arc<Member>,
    /// The session's handle, which is also that of its worker sessions.
    pub(crate) handle: String,
    pub(crate) config: pb::ConfigProto,
    devices: RwLock<Vec<DeviceDescription>>,
    attributes: RwLock<Vec<pb::DeviceAttributes>>,
    tasks: Mutex<BTreeMap<TaskName, Arc<RemoteTask>>>,
    is_closed: AtomicBool,
}

/// One other task.
pub(crate) struct RemoteTask {
    pub(crate) name: TaskName,
    /// `CreateWorkerSession` on the task.
    session: SingleFlight<()>,
}

impl SessionPeers {
    pub(crate) fn new(
        member: Arc<Member>,
        handle: &str,
        config: pb::ConfigProto,
    ) -> Arc<SessionPeers> {
        Arc::new_cyclic(|this| SessionPeers {
            this: this.clone(),
            member,
            handle: handle.to_owned(),
            config,
            devices: RwLock::default(),
            attributes: RwLock::default(),
            tasks: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    fn shared(&self) -> Arc<SessionPeers> {
        self.this.upgrade().expect("a borrowed SessionPeers has an owner")
    }

    /// Adds the devices of a task, unless it has been added.
    pub(crate) fn add(&self, task: &TaskName, attributes: &[pb::DeviceAttributes]) {
        if self.has_task(task) {
            return;
        }
        for device in attributes {
            let Ok(mut name) = device.name.parse::<DeviceName>() else { continue };
            if self.member.is_propagated {
                // The answer has the name that the task was started with.
                (name.job, name.task) = (task.job.clone(), task.index);
            }
            if TaskName::of(&name) != *task {
                continue;
            }
            let device = pb::DeviceAttributes { name: name.to_string(), ..device.clone() };
            let memory = device.memory_limit.max(0) as u64;
            let description = DeviceDescription {
                incarnation: device.incarnation,
                ..DeviceDescription::cpu(name, memory)
            };
            self.devices.write().push(description);
            self.attributes.write().push(device);
        }
    }

    /// The tasks whose devices have been added, sorted.
    pub(crate) fn tasks(&self) -> Vec<TaskName> {
        let mut tasks: Vec<TaskName> =
            self.devices.read().iter().map(|d| TaskName::of(&d.name)).collect();
        tasks.sort();
        tasks.dedup();
        tasks
    }

    /// Whether a task's devices have been added.
    pub(crate) fn has_task(&self, task: &TaskName) -> bool {
        self.devices.read().iter().any(|d| TaskName::of(&d.name) == *task)
    }

    /// The devices, for `ListDevices`.
    pub(crate) fn attributes(&self) -> Vec<pb::DeviceAttributes> {
        self.attributes.read().clone()
    }

    /// Whether the session is closed, and its worker sessions with it.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Closes the worker sessions, without waiting for the tasks.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks.values().filter(|t| t.session.result().is_some()) {
            let session_handle = self.handle.clone();
            let request = pb::DeleteWorkerSessionRequest { session_handle };
            self.member.notify(&task.name, |transport, call, done| {
                transport.delete_worker_session(call, request, done);
            });
        }
    }

    /// The task of this name.
    pub(crate) fn task(&self, name: &TaskName) -> Arc<RemoteTask> {
        let make = || Arc::new(RemoteTask { name: name.clone(), session: SingleFlight::default() });
        self.tasks.lock().entry(name.clone()).or_insert_with(make).clone()
    }

    pub(crate) fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.member.task.options.environment.entropy
    }

    /// Creates the worker session on a task, if there is none yet.
    pub(crate) fn create_worker_session(
        &self,
        task: &Arc<RemoteTask>,
        then: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        if !task.session.get(Box::new(then)) {
            return;
        }
        let request = pb::CreateWorkerSessionRequest {
            session_handle: self.handle.clone(),
            server_def: Some(pb::ServerDef {
                cluster: self.member.is_propagated.then(|| self.member.cluster.to_proto()),
                job_name: task.name.job.clone(),
                task_index: task.name.index as i32,
                protocol: "grpc".into(),
                default_session_config: Some(pb::ConfigProto::default()),
                ..Default::default()
            }),
            isolate_session_state: self.config.isolate_session_state,
            master_task: self.member.name.to_string(),
            master_incarnation: self.member.task.incarnation as i64,
            ..Default::default()
        };
        let opened = task.clone();
        let done = Box::new(move |result: Result<()>| opened.session.complete(&result));
        self.call(&task.name, done, |transport, call, done| {
            transport.create_worker_session(call, request, done);
        });
    }

    /// Makes a call that a session or a plan needs, which no step cancels: `start` gets the transport
    /// and the arguments of its method.
    pub(crate) fn call<T>(
        &self,
        to: &TaskName,
        done: Done<T>,
        start: impl FnOnce(&dyn Transport, Call<'_>, Done<T>),
    ) {
        let Some(transport) = &self.member.transport else {
            return done(Err(err!(
                Unavailable,
                "{to} is not known: this task belongs to no cluster"
            )));
        };
        let cancellation = &Cancellation::default();
        start(&**transport, Call { to, timeout: Some(SETUP_TIMEOUT), cancellation }, done);
    }
}

impl RemoteTasks for SessionPeers {
    fn devices(&self) -> Vec<DeviceDescription> {
        self.devices.read().clone()
    }

    fn take(&self, partitions: Vec<Partition>) -> Result<Arc<dyn RemotePartitions>> {
        Ok(Arc::new(RegisteredPartitions::new(&self.shared(), partitions)))
    }

    fn next_step(&self) -> u64 {
        (self.entropy().next_u64() >> (64 - STEP_BITS)).max(1)
    }

    fn rendezvous(&self, step: u64) -> Arc<dyn Rendezvous> {
        self.member.rendezvous(step)
    }
}
