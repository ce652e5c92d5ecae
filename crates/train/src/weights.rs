//! Trainable variables as plain tensors, to be transferred between sessions.

use thalweg_graph::NodeId;
use thalweg_tensor::{PartialShape, Result, Tensor, ensure};

use crate::Model;

/// The fetches, feeds and targets that read a model's trainable variables from a session or write
/// them.
///
/// ```
/// # use thalweg_graph::Scope;
/// # use thalweg_tensor::{DType, Result};
/// # use thalweg_train::{Dense, Layer, Model, Weights};
/// # fn main() -> Result<()> {
/// # let mut model = Model::new(Scope::new(thalweg_ops::op_registry(thalweg_ops::FAMILIES)?));
/// let x = model.input("x", DType::Float, &[None, Some(3)])?;
/// Dense::new(2).apply(&mut model, x)?;
/// let weights = Weights::new(&mut model)?;
/// // session.run(&[], &weights.reads(), &[])?                         the kernel and the bias
/// // session.run(&weights.feeds(&values)?, &[], &[weights.set()])?    both set to other values
/// assert_eq!(weights.reads().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Weights {
    reads: Vec<String>,
    inputs: Vec<String>,
    set: String,
}

impl Weights {
    /// Adds the nodes for the trainable variables, in the order of [`Model::trainable`].
    pub fn new(model: &mut Model) -> Result<Weights> {
        let (mut reads, mut inputs) = (Vec::new(), Vec::new());
        let mut assigns: Vec<NodeId> = Vec::new();
        for variable in model.trainable() {
            let mut beside = model.with_scope(model.child("weights")).on(&variable.device);
            let value = variable.read(&mut beside)?;
            let shape = PartialShape::from(&variable.shape);
            let input = beside.placeholder(variable.dtype, &shape)?;
            let node = beside.op("AssignVariableOp").inputs(&[variable.handle, input]);
            assigns.push(node.build_node()?);
            reads.push(model.name_of(value));
            inputs.push(model.name_of(input));
        }
        let set = model.op("NoOp").name("set_weights").after(&assigns).build_node()?;
        Ok(Weights { reads, inputs, set: model.node_name(set) })
    }

    /// The fetches that read the variables.
    pub fn reads(&self) -> Vec<&str> {
        self.reads.iter().map(String::as_str).collect()
    }

    /// The feeds for [`Weights::set`].
    pub fn feeds(&self, values: &[Tensor]) -> Result<Vec<(&str, Tensor)>> {
        ensure!(
            values.len() == self.inputs.len(),
            InvalidArgument,
            "{} tensors were given for {} variables",
            values.len(),
            self.inputs.len()
        );
        Ok(self.inputs.iter().map(String::as_str).zip(values.iter().cloned()).collect())
    }

    /// The target that assigns the fed values.
    pub fn set(&self) -> &str {
        &self.set
    }
}
