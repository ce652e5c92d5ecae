//! The interface between kernels and the runtime that executes them.
//!
//! A [`Kernel`] computes one node's outputs from its inputs. It reaches memory, state, files, the
//! clock, entropy, threads and functions only through its [`KernelContext`], which belongs to one
//! node in one step ([`StepContext`]) of one session ([`SessionContext`]). [`KernelSpec`] names the
//! op, device type and dtypes of a kernel. This crate runs no kernels: `runtime` does.

mod background;
mod cancellation;
mod context;
mod device;
mod environment;
mod function;
mod list;
mod lowering;
mod node_states;
mod parallel;
mod registry;
mod rendezvous;
mod resource;
mod value;
mod variable;

pub use background::{Background, NoBackground};
pub use cancellation::{Cancellation, Registration};
pub use context::{
    AsyncCall, Completion, KernelContext, Outputs, SessionContext, StepContext, StepId,
};
pub use device::{
    Device, DeviceDescription, DeviceName, DeviceSpec, DeviceStats, FusedNode, HostDevice,
    PhysicalDevice, name_devices,
};
pub use environment::{Clock, Entropy, Environment};
pub use function::{CallDone, FunctionRunner, KeptFunction, KeptGraph};
pub use list::{Elements, List};
pub use lowering::{Functions, Lower, Lowering, MakeWords, Operand, RegionVariable, StepWords};
pub use node_states::NodeStates;
pub use parallel::{OneThread, Parallel};
pub use registry::{
    ACCELERATORS, AnyKernel, AsyncKernel, Constraint, Family, Kernel, KernelInit, KernelOrigin,
    KernelRegistry, KernelSpec,
};
pub use rendezvous::{Received, Rendezvous, RendezvousKey};
pub use resource::{ResourceManager, StateObserver};
pub use value::Value;
pub use variable::{ANONYMOUS_VARIABLE, Variable, VariableBuffer};
