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
use crate::diagnostics::{Diagnostics, WaitTarget};
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
    /// Variables that a client of another task fetches: sent when the step's updates of them are done.
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
            match value.without_alias_on_host() {
                // Fails if the step was cancelled: the receiver gets the cause then.
                Ok(value) => drop(self.local.send(&key, value)),
                Err(e) => self.abort(&e),
            }
        }
    }

    fn receive_remote(
        &self,
        transport: Option<&Arc<dyn Transport>>,
        key: &RendezvousKey,
        received: Received,
    ) {
        let (from, transport) = match (sending_task(key), transport) {
            (Ok(from), Some(transport)) => (from, transport),
            (Ok(from), None) => {
                let alone =
                    err!(Unavailable, "{from} is not known: this task belongs to no cluster");
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
        let waits = self.diagnostics.wait(self.step, WaitTarget::RecvTensor(key.clone()));
        let diagnostics = self.diagnostics.clone();
        let logged = diagnostics.rpc_log_start().map(|start| (key.clone(), start));
        let step = self.step;
        let done = Box::new(move |value: Result<Value>| {
            drop(waits);
            if let Ok(value) = &value {
                diagnostics.count_received(&task, value);
                if let Some((key, start)) = logged {
                    diagnostics.log(step, key, value, start);
                }
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
            self.receive_remote(self.transport.as_ref(), key, received);
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
            self.table.receive_remote(Some(&self.transport), key, received);
        }
    }

    fn abort(&self, cause: &Error) {
        self.table.abort(cause);
    }
}

/// The fields of a rendezvous key that name the sender, as TensorFlow's `ParsedKey`.
pub(crate) struct ParsedKey {
    pub(crate) src_device: DeviceName,
    pub(crate) src_incarnation: u64,
}

impl ParsedKey {
    /// Parses a rendezvous key.
    pub(crate) fn parse(key: &str) -> Result<ParsedKey> {
        let invalid = || err!(InvalidArgument, "Invalid  rendezvous key: {key}");
        let parts: Vec<&str> = key.split(';').collect();
        ensure!(
            parts.len() == 5 && parts[1].len() == 16,
            InvalidArgument,
            "{}",
            invalid().message()
        );
        let src_device = parts[0].parse().map_err(|_| invalid())?;
        parts[2].parse::<DeviceName>().map_err(|_| invalid())?;
        let src_incarnation = u64::from_str_radix(parts[1], 16).map_err(|_| invalid())?;
        Ok(ParsedKey { src_device, src_incarnation })
    }
}

/// Whether the tensor of a key goes to another task than the one it comes from.
fn is_between_tasks(key: &str) -> bool {
    let task = |field: usize| Some(key.split(';').nth(field)?.rsplit_once("/device:")?.0);
    task(0) != task(2)
}

fn sending_task(key: &RendezvousKey) -> Result<TaskName> {
    Ok(TaskName::of(&ParsedKey::parse(&key.0)?.src_device))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;

    use super::*;

    #[test]
    fn keys_are_parsed() {
        let key = "/job:ps/replica:0/task:1/device:CPU:0;606683d07063fa6b;\
                   /job:worker/replica:0/task:0/device:CPU:0;edge_4_v/read;0:0";
        let parsed = ParsedKey::parse(key).unwrap();
        assert_eq!(TaskName::of(&parsed.src_device), TaskName::new("ps", 1));
        assert_eq!(parsed.src_incarnation, 0x6066_83d0_7063_fa6b);
        for invalid in ["", "x", "a;b;c;d;e", &key[..60], &key.replace("606683d0", "60668xd0")] {
            let e = ParsedKey::parse(invalid).err().expect(invalid);
            assert_eq!(
                (e.code(), e.message().contains("rendezvous key")),
                (Code::InvalidArgument, true),
                "{e}"
            );
        }
        assert!(is_between_tasks(key));
        assert!(!is_between_tasks(
            &key.replace("/job:worker/replica:0/task:0", "/job:ps/replica:0/task:1")
        ));
    }
}
