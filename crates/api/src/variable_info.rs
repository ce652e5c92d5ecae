//! What a graph knows of a variable.

use std::fmt;

use thalweg_formats::saved_model::{SLICE_ATTR, SLICE_OF_ATTR};
use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, ensure};

/// A variable: a parameter, a slot of an optimizer, or a counter. It knows its graph: use in another
/// graph is an error.
#[derive(Clone, Debug)]
pub struct VariableInfo {
    /// `dense/kernel`: also its name in checkpoints.
    pub name: String,
    /// The dtype of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// The resource handle, which optimizers and gathers take.
    pub handle: Output,
    /// The node that initializes it.
    pub init: NodeId,
    /// Whether optimizers update it.
    pub is_trainable: bool,
    /// The device that it requests; empty for none.
    pub device: String,
    /// Its position in the partitioned variable; `None` if it is not a partition.
    pub part: Option<Part>,
    owner: Owner,
}

/// A scope of the graph that a variable belongs to.
#[derive(Clone)]
struct Owner(Scope);

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a graph)")
    }
}

/// The description of a variable to add.
pub struct NewVariable<'a> {
    /// Its full name.
    pub name: &'a str,
    /// The dtype of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: &'a Shape,
    /// The device that it requests; empty for none.
    pub device: &'a str,
    /// Its position in the partitioned variable; `None` if it is not a partition.
    pub part: Option<Part>,
}

/// The position of a partition in its variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of the whole variable, also in checkpoints.
    pub of: String,
    /// The shape of the whole variable.
    pub whole: Shape,
    /// The axis of the partitioning.
    pub axis: usize,
    /// The offset of the partition along that axis.
    pub begin: usize,
}

impl Part {
    /// The partition in the notation of TensorFlow's savers: `4 6 0,2:0,6` is rows 0 and 1 of a 4
    /// by 6 matrix.
    pub fn spec(&self, shape: &Shape) -> String {
        let whole: Vec<String> = self.whole.dims().iter().map(usize::to_string).collect();
        let extent = |(axis, size): (usize, &usize)| {
            format!("{},{size}", if axis == self.axis { self.begin } else { 0 })
        };
        let extents: Vec<String> = shape.dims().iter().enumerate().map(extent).collect();
        format!("{} {}", whole.join(" "), extents.join(":"))
    }
}

impl VariableInfo {
    /// Adds a variable with the initial value that `initial` adds. Its nodes are at the root of the
    /// graph, whatever scope adds them, as their names are.
    pub fn add(
        scope: &Scope,
        new: NewVariable<'_>,
        initial: impl FnOnce(&mut Scope) -> Result<Output>,
    ) -> Result<VariableInfo> {
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
        Ok(VariableInfo {
            name: name.to_owned(),
            dtype,
            shape: shape.clone(),
            handle,
            init,
            is_trainable: true,
            device: device.to_owned(),
            part,
            owner: Owner(scope),
        })
    }

    /// Its name in checkpoints and its slice specification; empty for a whole variable.
    pub fn saved_as(&self) -> (String, String) {
        match &self.part {
            Some(part) => (part.of.clone(), part.spec(&self.shape)),
            None => (self.name.clone(), String::new()),
        }
    }

    /// An error unless the variable belongs to the graph of `scope`.
    pub fn check_graph(&self, scope: &Scope) -> Result<()> {
        ensure!(
            self.owner.0.is_same_graph(scope),
            InvalidArgument,
            "variable '{}' belongs to another graph",
            self.name
        );
        Ok(())
    }

    /// Its value when the node that is added here runs.
    pub fn read(&self, scope: &mut Scope) -> Result<Output> {
        self.check_graph(scope)?;
        scope.op("ReadVariableOp").input(self.handle).attr("dtype", self.dtype).build()
    }

    /// Its rows at `indices`.
    pub fn gather(&self, scope: &mut Scope, indices: Output) -> Result<Output> {
        self.check_graph(scope)?;
        let node = scope.op("ResourceGather").inputs(&[self.handle, indices]);
        node.attr("dtype", self.dtype).build()
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.shape.num_elements() * self.dtype.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_as_tensorflow_does() {
        let whole = Shape::new(&[4, 6]).unwrap();
        let part = Part { of: "w".into(), whole, axis: 1, begin: 4 };
        assert_eq!(part.spec(&Shape::new(&[4, 2]).unwrap()), "4 6 0,4:4,2");
    }
}
