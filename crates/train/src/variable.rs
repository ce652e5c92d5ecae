//! Variables of a model.

use thalweg_formats::saved_model::{SLICE_ATTR, SLICE_OF_ATTR};
use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape};

use crate::partition::Part;

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
    /// What it is a part of; none if it is whole.
    pub part: Option<Part>,
}

/// A variable that is to be added.
pub(crate) struct NewVariable<'a> {
    pub name: &'a str,
    pub dtype: DType,
    pub shape: &'a Shape,
    pub device: &'a str,
    pub part: Option<Part>,
}

impl Variable {
    /// Adds a variable whose first value `initial` gives. The nodes stand at the top of the graph,
    /// whatever scope asks for them, as their names do.
    pub(crate) fn add(
        scope: &Scope,
        new: NewVariable<'_>,
        initial: impl FnOnce(&mut Scope) -> Result<Output>,
    ) -> Result<Variable> {
        let NewVariable { name, dtype, shape, device, part } = new;
        let mut scope = scope.on_device(device);
        let mut handle = scope
            .op("VarHandleOp")
            .name(name)
            .attr("dtype", dtype)
            .attr("shape", &PartialShape::from(shape))
            .attr("shared_name", name);
        if let Some(part) = &part {
            // In the graph too: whoever has only that saves it as a slice.
            handle = handle.attr(SLICE_OF_ATTR, &*part.of).attr(SLICE_ATTR, &*part.spec(shape));
        }
        let handle = handle.build()?;
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
            part,
        })
    }

    /// Its name in checkpoints, and which slice of that it is; empty if it is all of it.
    pub fn saved_as(&self) -> (String, String) {
        match &self.part {
            Some(part) => (part.of.clone(), part.spec(&self.shape)),
            None => (self.name.clone(), String::new()),
        }
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
