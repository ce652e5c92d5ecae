//! The rendezvous of one step on one task: local tensors, and `RecvTensor` for those of other tasks.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_kernel::{
    Cancellation, DeviceName, Entropy, Received, Rendezvous, RendezvousKey, Value,
};
use thalweg_proto as pb;
use thalweg_runtime::LocalRendezvous;
use thalweg_tensor::{Error, Result, ensure, err};

use crate::cluster_spec::TaskName;
use crate::diagnostics::{Awaited, Diagnostics};
use crate::errors::from_task;
use crate::network::transport::{Call, Transport};

/// The rendezvous of a step.
pub(crate) struct TaskRendezvous {
    step: u64,
    /// Prefix of the names of this task's devices.
    prefix: String,
    transport: Option<Arc<dyn Transport>>,
    entropy: Arc<dyn Entropy>,
    local: LocalRendezvous,
    /// Fetches of variables that another task's client waits for: sent when the updates are done.
    fetched: Mutex<Vec<(RendezvousKey, Value)>>,
    /// Cancels the calls to other tasks.
    aborted: Cancellation,
    diagnostics: Arc<Diagnostics>,
}

impl TaskRendezvous {
    pub(crate) fn new(
        own: &TaskName,
        transport: Option<Arc<dyn Transport>>,
        entropy: Arc<dyn Entropy>,
        step: u64,
        diagnostics: Arc<Diagnostics>,
    ) -> TaskRendezvous {
        TaskRendezvous {
            step,
            prefix: format!("{own}/"),
            transport,
            entropy,
            local: LocalRendezvous::default(),
            fetched: Mutex::default(),
            aborted: Cancellation::default(),
            diagnostics,
        }
    }

    /// The tensors that this task sends, and the requests of other tasks for them.
    pub(crate) fn local(&self) -> &LocalRendezvous {
        &self.local
    }

    /// Cancelled when the step is aborted.
    pub(crate) fn aborted(&self) -> &Cancellation {
        &self.aborted
    }

    /// Sends the fetched variables: this task's partition of the step has ended.
    pub(crate) fn send_fetched(&self) {
        for (key, value) in std::mem::take(&mut *self.fetched.lock()) {
            // It fails in a step that was cancelled, whose cause whoever waits gets.
            let _ = self.local.send(&key, value.without_alias());
        }
    }

    fn ask(&self, transport: Option<&Arc<dyn Transport>>, key: &RendezvousKey, received: Received) {
        let (from, transport) = match (sender(key), transport) {
            (Ok(from), Some(transport)) => (from, transport),
            (Ok(from), None) => {
                let alone = err!(Unavailable, "{from} is not known: this task is in no cluster");
                return received(Err(alone));
            }
            (Err(e), _) => return received(Err(e)),
        };
        let request = pb::RecvTensorRequest {
            step_id: self.step as i64,
            rendezvous_key: key.0.to_string(),
            // Zero would mean none.
            request_id: self.entropy.next_u64().max(1) as i64,
            ..Default::default()
        };
        let task = from.clone();
        let waits = self.diagnostics.wait(self.step, Awaited::Tensor(key.clone()));
        let logged = self
            .diagnostics
            .logged_from()
            .map(|start| (self.diagnostics.clone(), key.clone(), start));
        let step = self.step;
        let done = Box::new(move |value: Result<Value>| {
            drop(waits);
            if let (Some((diagnostics, key, start)), Ok(value)) = (logged, &value) {
                diagnostics.log(step, key, value, start);
            }
            received(value.map_err(|e| from_task(&task.to_string(), e)));
        });
        let call = Call { to: &from, timeout: None, cancellation: &self.aborted };
        transport.recv_tensor(call, request, done);
    }
}

impl Rendezvous for TaskRendezvous {
    fn send(&self, key: &RendezvousKey, value: Value) -> Result<()> {
        if matches!(value, Value::Alias(_)) && is_between_tasks(&key.0) {
            self.fetched.lock().push((key.clone(), value));
            return Ok(());
        }
        self.local.send(key, value)
    }

    fn receive(&self, key: &RendezvousKey, received: Received) {
        if key.0.starts_with(&self.prefix) {
            self.local.receive(key, received);
        } else {
            self.ask(self.transport.as_ref(), key, received);
        }
    }

    fn abort(&self, cause: &Error) {
        self.local.abort(cause);
        self.aborted.cancel(cause.clone());
    }
}

/// A step's rendezvous as a session with a propagated cluster uses it: the task has another name there, and
/// another transport.
pub(crate) struct AliasRendezvous {
    table: Arc<TaskRendezvous>,
    prefix: String,
    transport: Arc<dyn Transport>,
}

impl AliasRendezvous {
    pub(crate) fn new(
        table: Arc<TaskRendezvous>,
        own: &TaskName,
        transport: Arc<dyn Transport>,
    ) -> AliasRendezvous {
        AliasRendezvous { table, prefix: format!("{own}/"), transport }
    }
}

impl Rendezvous for AliasRendezvous {
    fn send(&self, key: &RendezvousKey, value: Value) -> Result<()> {
        self.table.send(key, value)
    }

    fn receive(&self, key: &RendezvousKey, received: Received) {
        if key.0.starts_with(&self.prefix) {
            self.table.local.receive(key, received);
        } else {
            self.table.ask(Some(&self.transport), key, received);
        }
    }

    fn abort(&self, cause: &Error) {
        self.table.abort(cause);
    }
}

/// The sender in a rendezvous key.
pub(crate) struct Sender {
    pub(crate) device: DeviceName,
    pub(crate) incarnation: u64,
}

impl Sender {
    /// Parses a rendezvous key.
    pub(crate) fn of(key: &str) -> Result<Sender> {
        let bad = || err!(InvalidArgument, "Invalid  rendezvous key: {key}");
        let parts: Vec<&str> = key.split(';').collect();
        ensure!(parts.len() == 5 && parts[1].len() == 16, InvalidArgument, "{}", bad().message());
        let device = parts[0].parse().map_err(|_| bad())?;
        parts[2].parse::<DeviceName>().map_err(|_| bad())?;
        let incarnation = u64::from_str_radix(parts[1], 16).map_err(|_| bad())?;
        Ok(Sender { device, incarnation })
    }
}

/// Whether the tensor of a key goes to another task than the one it comes from.
fn is_between_tasks(key: &str) -> bool {
    let task = |part: usize| Some(key.split(';').nth(part)?.rsplit_once("/device:")?.0);
    task(0) != task(2)
}

fn sender(key: &RendezvousKey) -> Result<TaskName> {
    Ok(TaskName::of(&Sender::of(&key.0)?.device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let key = "/job:ps/replica:0/task:1/device:CPU:0;606683d07063fa6b;\
                   /job:worker/replica:0/task:0/device:CPU:0;edge_4_v/read;0:0";
        let sender = Sender::of(key).unwrap();
        assert_eq!(TaskName::of(&sender.device), TaskName::new("ps", 1));
        assert_eq!(sender.incarnation, 0x6066_83d0_7063_fa6b);
        for broken in ["", "x", "a;b;c;d;e", &key[..60], &key.replace("606683d0", "60668xd0")] {
            assert!(Sender::of(broken).is_err(), "{broken}");
        }
        assert!(is_between_tasks(key));
        assert!(!is_between_tasks(
            &key.replace("/job:worker/replica:0/task:0", "/job:ps/replica:0/task:1")
        ));
    }
}
