//! Variables by handle.

use std::fmt;
use std::ops::Deref;

use thalweg_tensor::Result;

use crate::dtype::{Resource, TensorType};
use crate::graph::Graph;
use crate::mistake::Caller;
use crate::node::{NewOp, poisoned};
use crate::operand::Operand;
use crate::output::{Operation, Output};
use crate::variable_info::VariableInfo;

/// State that steps share: a parameter, a counter, a buffer.
///
/// It derefs to the [`Output`] of its value, which a step reads when it needs it first. Where the
/// order of reads and updates in one step matters, [`Variable::read_within`] reads after the control
/// inputs of a view.
#[derive(Clone)]
pub struct Variable<T: TensorType> {
    info: Option<VariableInfo>,
    handle: Output<Resource>,
    value: Output<T>,
}

impl<T: TensorType> fmt::Debug for Variable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.value, f)
    }
}

impl<T: TensorType> Deref for Variable<T> {
    type Target = Output<T>;

    fn deref(&self) -> &Output<T> {
        &self.value
    }
}

impl<T: TensorType> Variable<T> {
    /// The handle of a variable that the graph has, or of none if it could not be added.
    pub(crate) fn of(graph: &Graph, info: Option<VariableInfo>, caller: Caller) -> Variable<T> {
        let info = info.filter(|info| match info.check_graph(graph.as_scope()) {
            Ok(()) => true,
            Err(e) => {
                graph.record(caller, e);
                false
            }
        });
        let handle = Output::new(graph.root(), info.as_ref().map(|info| info.handle));
        let value = match &info {
            None => Output::new(graph.clone(), None),
            Some(info) => {
                let root = graph.root().device(&info.device);
                let name = format!("{}/Read/ReadVariableOp", info.name);
                let read = NewOp::at(&root, "ReadVariableOp", caller).name(&*name).input(&handle);
                read.attr("dtype", info.dtype).output::<T>().within(graph)
            }
        };
        Variable { info, handle, value }
    }

    /// What the graph knows of the variable; an error if it could not be added.
    pub fn info(&self) -> Result<&VariableInfo> {
        self.info.as_ref().ok_or_else(poisoned)
    }

    /// The resource handle, which ops that update variables take.
    pub fn handle(&self) -> &Output<Resource> {
        &self.handle
    }

    /// The value, read when a step needs it first.
    pub fn value(&self) -> &Output<T> {
        &self.value
    }

    /// The value, read after the control inputs of `view`.
    #[track_caller]
    pub fn read_within(&self, view: &Graph) -> Output<T> {
        self.update(view, "ReadVariableOp").output()
    }

    /// Adds a node that sets the value.
    #[track_caller]
    pub fn assign(&self, value: impl Operand<T>) -> Operation {
        self.update(self.graph(), "AssignVariableOp").input(value).operation()
    }

    /// Adds a node that adds to the value.
    #[track_caller]
    pub fn assign_add(&self, value: impl Operand<T>) -> Operation {
        self.update(self.graph(), "AssignAddVariableOp").input(value).operation()
    }

    /// Adds a node that subtracts from the value.
    #[track_caller]
    pub fn assign_sub(&self, value: impl Operand<T>) -> Operation {
        self.update(self.graph(), "AssignSubVariableOp").input(value).operation()
    }

    #[track_caller]
    fn update<'a>(&self, view: &Graph, op: &'a str) -> NewOp<'a> {
        let op = NewOp::new(view, op).input(&self.handle);
        match &self.info {
            Some(info) => op.attr("dtype", info.dtype),
            None => op,
        }
    }
}
