//! The rendezvous of a step: a table by which a `_Send` passes a value to its `_Recv`, in either order.

use std::fmt;
use std::sync::Arc;

use thalweg_tensor::{Error, Result};

use crate::Value;

/// Names one transfer of one step, in TensorFlow's form:
/// `send_device;incarnation;recv_device;tensor_name;frame:iteration`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RendezvousKey(pub Arc<str>);

impl RendezvousKey {
    /// The key of a transfer outside loops.
    pub fn new(send_device: &str, incarnation: u64, recv_device: &str, tensor_name: &str) -> Self {
        RendezvousKey(
            format!("{send_device};{incarnation:016x};{recv_device};{tensor_name};0:0").into(),
        )
    }

    /// The key of the same transfer in an iteration of a loop.
    pub fn in_frame(&self, frame: u64, iteration: u64) -> Self {
        let name = self.0.rsplit_once(';').map_or(&*self.0, |(name, _)| name);
        RendezvousKey(format!("{name};{frame}:{iteration}").into())
    }
}

impl fmt::Debug for RendezvousKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Called once with the received value, or with the error that aborted the step.
pub type Received = Box<dyn FnOnce(Result<Value>) + Send>;

/// The rendezvous of one step.
pub trait Rendezvous: Send + Sync {
    /// Passes `value` to the receiver of `key`, or keeps it until there is one.
    fn send(&self, key: &RendezvousKey, value: Value) -> Result<()>;
    /// Calls `received` when the value for `key` was sent, or when the rendezvous is aborted.
    fn receive(&self, key: &RendezvousKey, received: Received);
    /// Fails all receives and sends, pending and future ones, with `cause`.
    fn abort(&self, cause: &Error);
}
