//! Handles of tensors and nodes.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use thalweg_graph::{Endpoint, NodeId};
use thalweg_tensor::{DType, PartialShape, Result, err};

use crate::dtype::{Any, Ref, TensorType};
use crate::graph::Graph;
use crate::node::{NewOp, poisoned};

/// A tensor of a graph under construction. Methods and operators add nodes that compute with it.
///
/// It is cheap to clone. If the node of a handle could not be added, the handle is poisoned: nodes
/// that use it are not added either, and only the first mistake is reported, by [`Graph::check`].
pub struct Output<T: TensorType> {
    raw: Raw,
    of: PhantomData<fn() -> T>,
}

/// A handle without its element type.
#[derive(Clone)]
#[doc(hidden)]
pub struct Raw {
    pub(crate) graph: Graph,
    /// The tensor; `None` if its node could not be added.
    pub(crate) at: Option<Endpoint>,
    /// The body of the branch or loop that it belongs to; 0 for the graph itself.
    pub(crate) body: u32,
}

impl<T: TensorType> Clone for Output<T> {
    fn clone(&self) -> Output<T> {
        Output { raw: self.raw.clone(), of: PhantomData }
    }
}

impl<T: TensorType> fmt::Debug for Output<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Ok(name) => write!(f, "{name}: {} {:?}", self.raw.dtype_name(), self.shape()),
            Err(_) => f.write_str("(poisoned)"),
        }
    }
}

impl Raw {
    fn dtype_name(&self) -> &'static str {
        self.info(|dtype, _| dtype.name()).unwrap_or("unknown")
    }

    fn info<R>(&self, look: impl FnOnce(DType, &PartialShape) -> R) -> Option<R> {
        let at = self.graph.checked(self).ok().flatten()?;
        self.graph.as_scope().with_graph(|g| {
            let info = g.node(at.node).outputs.get(at.index as usize)?;
            Some(look(info.dtype, &info.shape))
        })
    }

    /// The name as feeds and fetches take it.
    pub(crate) fn name(&self) -> Result<String> {
        match self.graph.checked(self)? {
            Some(at) => Ok(self.graph.as_scope().name_of(at)),
            None => Err(poisoned()),
        }
    }
}

impl<T: TensorType> Output<T> {
    pub(crate) fn new(graph: Graph, at: Option<Endpoint>) -> Output<T> {
        let body = graph.body();
        Output { raw: Raw { graph, at, body }, of: PhantomData }
    }

    /// A handle of a tensor whose node could not be added to this graph.
    pub fn poisoned(graph: &Graph) -> Output<T> {
        Output::new(graph.clone(), None)
    }

    pub(crate) fn of_raw(raw: Raw) -> Output<T> {
        Output { raw, of: PhantomData }
    }

    pub(crate) fn raw(&self) -> &Raw {
        &self.raw
    }

    /// The view of the graph to which methods of this handle add nodes.
    pub fn graph(&self) -> &Graph {
        &self.raw.graph
    }

    /// The same tensor, whose methods add nodes to another view: in its name scope, on its device,
    /// after its control inputs.
    #[track_caller]
    pub fn within(&self, view: &Graph) -> Output<T> {
        let at = match view.checked(&self.raw) {
            Ok(at) => at,
            Err(e) => {
                view.record(Location::caller(), e);
                None
            }
        };
        let raw = Raw { graph: view.clone(), at, body: self.raw.body };
        Output { raw, of: PhantomData }
    }

    /// The static shape, as far as it is known.
    pub fn shape(&self) -> PartialShape {
        self.raw.info(|_, shape| shape.clone()).unwrap_or_else(PartialShape::unknown)
    }

    /// The dtype; `None` if the handle is poisoned.
    pub fn dtype(&self) -> Option<DType> {
        self.raw.info(|dtype, _| dtype)
    }

    /// The name as a GraphDef has it: `scope/node:0`.
    pub fn name(&self) -> Result<String> {
        self.raw.name()
    }

    /// The tensor without this API; an error if the handle is poisoned.
    pub fn endpoint(&self) -> Result<Endpoint> {
        self.raw.graph.checked(&self.raw)?.ok_or_else(poisoned)
    }

    /// The node that computes the tensor, as a target.
    pub fn operation(&self) -> Operation {
        Operation {
            graph: self.raw.graph.clone(),
            node: self.raw.at.map(|at| at.node),
            body: self.raw.body,
        }
    }

    /// The same tensor under this name, which programs that load the graph know it by.
    #[track_caller]
    #[must_use]
    pub fn named(&self, name: &str) -> Output<T> {
        NewOp::new(self.graph(), "Identity").name(name).input(self).output()
    }

    /// The same tensor without its element type.
    pub fn any(&self) -> Output<Any> {
        Output { raw: self.raw.clone(), of: PhantomData }
    }

    /// The same tensor as one of `U`; a mistake if it has another dtype. [`Output::cast`] converts.
    #[track_caller]
    pub fn typed<U: TensorType>(&self) -> Output<U> {
        let mut raw = self.raw.clone();
        if let (Some(wanted), Some(dtype)) = (U::DTYPE, self.dtype())
            && wanted != dtype
        {
            let name = self.name().unwrap_or_default();
            let error =
                err!(InvalidArgument, "'{name}' holds {dtype}, where {wanted} was expected");
            self.graph().record(Location::caller(), error);
            raw.at = None;
        }
        Output { raw, of: PhantomData }
    }
}

impl<T: TensorType> Output<Ref<T>> {
    /// The value of the variable when a node that takes it starts.
    pub fn value(&self) -> Output<T> {
        Output { raw: self.raw.clone(), of: PhantomData }
    }
}

/// A node of a graph, which a step runs for its effect: a target.
#[derive(Clone)]
pub struct Operation {
    graph: Graph,
    node: Option<NodeId>,
    body: u32,
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().unwrap_or_else(|_| "(poisoned)".into()))
    }
}

impl Operation {
    pub(crate) fn new(graph: Graph, node: Option<NodeId>) -> Operation {
        let body = graph.body();
        Operation::of_body(graph, node, body)
    }

    pub(crate) fn of_body(graph: Graph, node: Option<NodeId>, body: u32) -> Operation {
        Operation { graph, node, body }
    }

    /// A handle of a node that could not be added to this graph.
    pub fn poisoned(graph: &Graph) -> Operation {
        Operation::new(graph.clone(), None)
    }

    /// Whether the node could not be added.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.node.is_none()
    }

    /// The view of the graph to which it was added.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The node without this API; an error if the handle is poisoned.
    pub fn node(&self) -> Result<NodeId> {
        self.graph.check_body(self.body)?;
        self.node.ok_or_else(poisoned)
    }

    /// The name as a GraphDef has it.
    pub fn name(&self) -> Result<String> {
        let node = self.node()?;
        Ok(self.graph.as_scope().with_graph(|g| g.node(node).name.to_string()))
    }
}

/// What a step may run without fetching: an [`Operation`], or the node of an [`Output`].
pub trait Target {
    /// The node.
    fn to_operation(&self) -> Operation;
}

impl Target for Operation {
    fn to_operation(&self) -> Operation {
        self.clone()
    }
}

impl<T: TensorType> Target for Output<T> {
    fn to_operation(&self) -> Operation {
        self.operation()
    }
}

impl<T: Target + ?Sized> Target for &T {
    fn to_operation(&self) -> Operation {
        (**self).to_operation()
    }
}

impl Graph {
    /// The node of a target, if it is one of this graph.
    pub(crate) fn node_of(&self, target: &dyn Target) -> Result<NodeId> {
        let operation = target.to_operation();
        if !self.is_same(&operation.graph) {
            return Err(self.foreign(&operation.graph, &operation.name().unwrap_or_default()));
        }
        operation.node()
    }
}
