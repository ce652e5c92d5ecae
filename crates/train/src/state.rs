//! Variables whose reads and updates are ordered: each is a node of the view that is given.

use std::marker::PhantomData;

use thalweg_api::{Graph, NewOp, Operand, Operation, Output, Resource, TensorType};
use thalweg_tensor::DType;

use crate::Variable;

/// A variable by its resource handle.
pub(crate) struct State<T: TensorType> {
    handle: Output<Resource>,
    dtype: DType,
    of: PhantomData<fn() -> T>,
}

impl<T: TensorType> Clone for State<T> {
    fn clone(&self) -> State<T> {
        State::new(self.handle.clone(), self.dtype)
    }
}

impl<T: TensorType> std::fmt::Debug for State<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.handle.fmt(f)
    }
}

impl<T: TensorType> State<T> {
    /// The variable of a handle that holds this dtype.
    pub(crate) fn new(handle: Output<Resource>, dtype: DType) -> State<T> {
        State { handle, dtype, of: PhantomData }
    }

    /// A variable of this graph; a mistake if it belongs to another one.
    #[track_caller]
    pub(crate) fn of(graph: &Graph, variable: &Variable) -> State<T> {
        let is_own = graph.build(|scope| variable.check_graph(scope)).is_some();
        let handle = match is_own {
            true => graph.root().output(variable.handle),
            false => Output::poisoned(graph),
        };
        State::new(handle, variable.dtype)
    }

    /// The resource handle.
    pub(crate) fn handle(&self) -> &Output<Resource> {
        &self.handle
    }

    fn op<'a>(&self, at: &Graph, op: &'a str) -> NewOp<'a> {
        NewOp::new(at, op).attr("dtype", self.dtype).input(&self.handle)
    }

    /// The value when the nodes of `at` run.
    pub(crate) fn read(&self, at: &Graph) -> Output<T> {
        self.op(at, "ReadVariableOp").output()
    }

    /// Sets the value.
    pub(crate) fn assign(&self, at: &Graph, value: impl Operand<T>) -> Operation {
        self.op(at, "AssignVariableOp").input(value).operation()
    }

    /// Adds to the value.
    pub(crate) fn assign_add(&self, at: &Graph, value: impl Operand<T>) -> Operation {
        self.op(at, "AssignAddVariableOp").input(value).operation()
    }

    /// Subtracts from the value.
    pub(crate) fn assign_sub(&self, at: &Graph, value: impl Operand<T>) -> Operation {
        self.op(at, "AssignSubVariableOp").input(value).operation()
    }

    /// The rows at these indices.
    pub(crate) fn gather<I: TensorType>(&self, at: &Graph, rows: impl Operand<I>) -> Output<T> {
        self.op(at, "ResourceGather").input(rows).output()
    }

    /// Sets rows.
    pub(crate) fn scatter_update<I: TensorType>(
        &self,
        at: &Graph,
        rows: impl Operand<I>,
        values: impl Operand<T>,
    ) -> Operation {
        self.op(at, "ResourceScatterUpdate").input(rows).input(values).operation()
    }

    /// Adds to rows.
    pub(crate) fn scatter_add<I: TensorType>(
        &self,
        at: &Graph,
        rows: impl Operand<I>,
        values: impl Operand<T>,
    ) -> Operation {
        self.op(at, "ResourceScatterAdd").input(rows).input(values).operation()
    }

    /// Subtracts from rows.
    pub(crate) fn scatter_sub<I: TensorType>(
        &self,
        at: &Graph,
        rows: impl Operand<I>,
        values: impl Operand<T>,
    ) -> Operation {
        self.op(at, "ResourceScatterSub").input(rows).input(values).operation()
    }
}
