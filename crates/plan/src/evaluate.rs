//! Evaluating a pure node while a plan or a program is made.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;
use thalweg_graph::Node;
use thalweg_kernel::{
    AnyKernel, Cancellation, DeviceDescription, DeviceName, Environment, HostDevice, KernelContext,
    KernelInit, KernelRegistry, NodeStates, SessionContext, StepContext, StepId, Value,
};
use thalweg_tensor::{Budget, DType, FlushDenormals, Tensor};

/// Runs CPU kernels of pure nodes, without devices, files or threads, within a bound on memory.
pub struct Evaluator {
    kernels: Arc<KernelRegistry>,
    step: Arc<StepContext>,
}

impl Evaluator {
    /// An evaluator whose tensors take at most `bytes_max`.
    pub fn new(kernels: &Arc<KernelRegistry>, bytes_max: usize) -> Evaluator {
        let budget = Budget::new(bytes_max);
        let device = DeviceDescription::cpu(DeviceName::cpu("fold", 0, 0), 0);
        let session = Arc::new(SessionContext::isolated(&budget, Environment::frozen()));
        let (id, cancellation) = (StepId::default(), Cancellation::default());
        let device = HostDevice::shared(device);
        let step = Arc::new(StepContext::new(session, device, id, cancellation));
        Evaluator { kernels: kernels.clone(), step }
    }

    /// The outputs of a node; `None` if it has no synchronous kernel or the kernel fails: then it fails in
    /// its step with an error for the client.
    pub fn evaluate(&self, node: &Node, inputs: &mut [Value]) -> Option<SmallVec<[Tensor; 1]>> {
        let spec = self.kernels.find(node, "CPU").ok()?;
        let environment = self.step.environment();
        // Pure nodes keep nothing.
        let states = NodeStates::default();
        let init = KernelInit { node, budget: self.step.budget(), environment, states: &states };
        let dtypes: SmallVec<[DType; 4]> = node.outputs.iter().map(|o| o.dtype).collect();
        let mut outputs: SmallVec<[Value; 4]> =
            std::iter::repeat_n(Value::Empty, dtypes.len()).collect();
        let run = || {
            let Ok(AnyKernel::Sync(kernel)) = (spec.create)(&init) else { return None };
            let mut ctx = KernelContext::new(node, &dtypes, &self.step, inputs, &mut outputs);
            let _flush = FlushDenormals::enter();
            kernel.compute(&mut ctx).ok()
        };
        catch_unwind(AssertUnwindSafe(run)).ok().flatten()?;
        outputs.into_iter().map(|output| output.tensor().cloned()).collect()
    }
}
