//! The inputs of a region in one step, and what a program was compiled for.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thalweg_kernel::{StepContext, Variable, VariableBuffer};
use thalweg_tensor::{Code, DType, Error, ResourceHandle, Result, Shape, Tensor};

use crate::compile::{InputKind, LoweredRegion, VariableKind};
use crate::memory::Memory;

/// An input of a region in one step.
pub(crate) enum Input {
    /// A tensor of the host, whose value programs depend on.
    Known(Tensor),
    Memory(Arc<Memory>),
    /// A reference or handle of the variable at this position.
    Variable(usize),
}

/// The inputs of a region in one step.
pub(crate) struct Inputs {
    pub(crate) all: Vec<Input>,
    /// Each once, in the order of the first inputs that refer to them.
    pub(crate) variables: Vec<Arc<Variable>>,
    /// Positions in `variables` by address.
    positions: FxHashMap<usize, usize>,
    /// Variables of handles that nothing has assigned yet: the region may be the first.
    missing: Vec<Missing>,
}

/// A variable that the task does not have yet.
struct Missing {
    position: usize,
    handle: ResourceHandle,
    error: Error,
}

/// What a program was compiled for.
pub(crate) struct Signature {
    inputs: Vec<InputKind>,
    variables: Vec<Option<ValueType>>,
}

/// Dtype and shape of the value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueType {
    dtype: DType,
    shape: Shape,
}

impl ValueType {
    /// Whether `value` is of this type.
    pub(crate) fn is_of(&self, value: &Tensor) -> bool {
        self.dtype == value.dtype() && self.shape == *value.shape()
    }
}

impl Inputs {
    /// Inputs to which `capacity` can be added.
    pub(crate) fn with_capacity(capacity: usize) -> Inputs {
        Inputs {
            all: Vec::with_capacity(capacity),
            variables: Vec::with_capacity(capacity),
            positions: FxHashMap::default(),
            missing: Vec::new(),
        }
    }

    /// The input that refers to a variable; several may refer to the same one.
    pub(crate) fn variable(&mut self, variable: Arc<Variable>) -> Input {
        let next = self.variables.len();
        let position = *self.positions.entry(Arc::as_ptr(&variable).addr()).or_insert(next);
        if position == next {
            self.variables.push(variable);
        }
        Input::Variable(position)
    }

    /// The variable among the inputs whose value is in this buffer.
    pub(crate) fn variable_of(&self, buffer: &Arc<VariableBuffer>) -> Option<Input> {
        let has_it = |v: &Arc<Variable>| v.buffer().is_ok_and(|own| Arc::ptr_eq(&own, buffer));
        self.variables.iter().position(has_it).map(Input::Variable)
    }

    /// The input that is a handle of a variable, which need not exist.
    pub(crate) fn handle(&mut self, handle: &ResourceHandle, step: &StepContext) -> Result<Input> {
        let error = match step.resources().resolve(handle) {
            Ok(variable) => return Ok(self.variable(variable)),
            Err(e) => e,
        };
        let is_same = |m: &&Missing| {
            (&m.handle.container, &m.handle.name) == (&handle.container, &handle.name)
        };
        if let Some(known) = self.missing.iter().find(is_same) {
            return Ok(Input::Variable(known.position));
        }
        let declared = handle.dtypes_and_shapes.first().filter(|_| handle.owned.is_none());
        let (Some((dtype, shape)), Code::NotFound) = (declared, error.code()) else {
            return Err(error);
        };
        let budget = step.state_budget().clone();
        let variable = Variable::new(handle.name.clone(), *dtype, shape.clone(), budget);
        let input = self.variable(Arc::new(variable));
        let position = self.variables.len() - 1;
        self.missing.push(Missing { position, handle: handle.clone(), error });
        Ok(input)
    }

    /// Makes the variables that the region is the first to assign; the error of one that it does not.
    pub(crate) fn create_missing(
        &mut self,
        lowered: &LoweredRegion,
        step: &StepContext,
    ) -> Result<()> {
        for Missing { position, handle, error } in std::mem::take(&mut self.missing) {
            if !lowered.assigned.iter().any(|(assigned, _)| *assigned == position) {
                return Err(error);
            }
            let (container, name) = (handle.container.clone(), handle.name.clone());
            let new = &self.variables[position];
            let (dtype, shape) = (new.dtype(), new.shape().clone());
            let budget = step.state_budget().clone();
            let make = || Ok(Variable::new(name.clone(), dtype, shape, budget));
            self.variables[position] =
                step.resources().find_or_create(container, name.clone(), make)?;
        }
        Ok(())
    }

    /// What a program for these inputs is compiled for.
    pub(crate) fn signature(&self) -> Signature {
        let kind = |input: &Input| match input {
            Input::Known(tensor) => InputKind::Known(tensor.clone()),
            Input::Memory(memory) => {
                InputKind::Buffer(memory.buffer.dtype(), memory.buffer.shape().clone())
            }
            Input::Variable(position) => InputKind::Variable(*position),
        };
        let value_type = |v: &Arc<Variable>| {
            let value = v.snapshot()?;
            Some(ValueType { dtype: value.dtype(), shape: value.shape().clone() })
        };
        Signature {
            inputs: self.all.iter().map(kind).collect(),
            variables: self.variables.iter().map(value_type).collect(),
        }
    }
}

impl Signature {
    /// The inputs.
    pub(crate) fn inputs(&self) -> &[InputKind] {
        &self.inputs
    }

    /// The types of the variables' values.
    pub(crate) fn variables(&self) -> &[Option<ValueType>] {
        &self.variables
    }

    /// The variables of `inputs`, whose signature this is.
    pub(crate) fn variable_kinds(&self, inputs: &Inputs) -> Vec<VariableKind> {
        let kind = |(variable, value): (&Arc<Variable>, &Option<ValueType>)| VariableKind {
            name: variable.name().to_string(),
            dtype: variable.dtype(),
            declared: variable.shape().clone(),
            shape: value.as_ref().map(|value| value.shape.clone()),
        };
        inputs.variables.iter().zip(&self.variables).map(kind).collect()
    }

    /// Whether a program of this signature takes these inputs, if their variables have values of its types.
    pub(crate) fn takes(&self, inputs: &Inputs) -> bool {
        let takes = |(kind, input): (&InputKind, &Input)| match (kind, input) {
            (InputKind::Known(known), Input::Known(value)) => is_equal(known, value),
            (InputKind::Buffer(dtype, shape), Input::Memory(memory)) => {
                *dtype == memory.buffer.dtype() && shape.dims() == memory.buffer.dims()
            }
            (InputKind::Variable(known), Input::Variable(position)) => known == position,
            _ => false,
        };
        self.inputs.iter().zip(&inputs.all).all(takes)
    }

    /// Whether the variables of `inputs` have values of its types now.
    pub(crate) fn takes_variables(&self, inputs: &Inputs) -> bool {
        inputs.variables.iter().zip(&self.variables).all(|(variable, value_type)| {
            match (variable.snapshot(), value_type) {
                (Some(value), Some(value_type)) => value_type.is_of(&value),
                (None, None) => true,
                _ => false,
            }
        })
    }
}

/// Whether two tensors of the host are the same; those that share memory are not compared by bytes.
fn is_equal(a: &Tensor, b: &Tensor) -> bool {
    a.dtype() == b.dtype()
        && a.shape() == b.shape()
        && match (a.as_bytes(), b.as_bytes()) {
            (Ok(a), Ok(b)) => std::ptr::eq(a, b) || a == b,
            _ => false,
        }
}
