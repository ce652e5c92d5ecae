//! Variables of a model.

use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape};

/// A tensor that outlives steps: parameters, slots of optimizers, counters.
#[derive(Clone, Debug)]
pub struct Variable {
    /// `dense/kernel`: also its name in checkpoints.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// The resource; what optimizers and gathers work on.
    pub handle: Output,
    /// The node that sets it to its first value.
    pub init: NodeId,
    /// Whether optimizers change it.
    pub is_trainable: bool,
    /// The device it is asked to live on; empty where it is asked for none.
    pub device: String,
}

impl Variable {
    /// Adds a variable whose first value `initial` gives. The nodes stand at the top of the graph,
    /// whatever scope asks for them, as their names do.
    pub(crate) fn add(
        scope: &Scope,
        name: &str,
        dtype: DType,
        shape: &Shape,
        device: &str,
        initial: impl FnOnce(&mut Scope) -> Result<Output>,
    ) -> Result<Variable> {
        let mut scope = scope.on_device(device);
        let handle = scope
            .op("VarHandleOp")
            .name(name)
            .attr("dtype", dtype)
            .attr("shape", &PartialShape::from(shape))
            .attr("shared_name", name)
            .build()?;
        let mut first = scope.child(&format!("{name}/Initializer"));
        let value = initial(&mut first)?;
        let assign = scope.op("AssignVariableOp").name(&format!("{name}/Assign"));
        let init = assign.inputs(&[handle, value]).build_node()?;
        Ok(Variable {
            name: name.to_owned(),
            dtype,
            shape: shape.clone(),
            handle,
            init,
            is_trainable: true,
            device: device.to_owned(),
        })
    }

    /// Its value when the node that is added here runs.
    pub fn read(&self, scope: &mut Scope) -> Result<Output> {
        scope.op("ReadVariableOp").input(self.handle).attr("dtype", self.dtype).build()
    }

    /// The rows of it that `indices` name.
    pub fn gather(&self, scope: &mut Scope, indices: Output) -> Result<Output> {
        let node = scope.op("ResourceGather").inputs(&[self.handle, indices]);
        node.attr("dtype", self.dtype).build()
    }

    /// Bytes that it takes.
    pub fn size_bytes(&self) -> usize {
        self.shape.num_elements() * self.dtype.size()
    }
}
