//! Adds one node, or notes why it could not be added.

use std::panic::Location;

use smallvec::SmallVec;
use thalweg_graph::{Attrs, Endpoint, IntoAttr, NodeId};
use thalweg_tensor::{Error, Result, Tensor, err};

use crate::dtype::TensorType;
use crate::graph::Graph;
use crate::mistake::Caller;
use crate::operand::{Handle, Operand};
use crate::output::{Operation, Output, Raw};

/// A node under construction: what generated functions are made of, and what ops of a program's own
/// families are built with.
///
/// ```
/// use thalweg_api::{Graph, NewOp, Output};
/// let g = Graph::new();
/// let x = g.constant([1.0f32, -2.0]);
/// let y: Output<f32> = NewOp::new(&g, "LeakyRelu").input(&x).attr("alpha", 0.1f32).output();
/// let session = g.session().unwrap();
/// assert_eq!(session.run::<_, Vec<f32>>(&y, (), &[]).unwrap(), [1.0, -0.2]);
/// ```
#[must_use = "the node is added by `output`, `outputs` or `operation`"]
pub struct NewOp<'a> {
    graph: Graph,
    op: &'a str,
    name: Option<&'a str>,
    inputs: SmallVec<[Endpoint; 4]>,
    attrs: Attrs,
    is_poisoned: bool,
    caller: Caller,
}

impl<'a> NewOp<'a> {
    /// A node of this op, in the name scope and on the device of `graph`.
    #[track_caller]
    pub fn new(graph: &Graph, op: &'a str) -> NewOp<'a> {
        NewOp::at(graph, op, Location::caller())
    }

    /// A node of this op, where the nodes of a handle are added.
    #[track_caller]
    pub fn on<T: TensorType>(handle: &impl Handle<T>, op: &'a str) -> NewOp<'a> {
        NewOp::at(handle.view(), op, Location::caller())
    }

    /// As [`NewOp::new`], for a node that the line `caller` asked for.
    pub(crate) fn at(graph: &Graph, op: &'a str, caller: Caller) -> NewOp<'a> {
        NewOp {
            graph: graph.clone(),
            op,
            name: None,
            inputs: SmallVec::new(),
            attrs: Attrs::default(),
            is_poisoned: false,
            caller,
        }
    }

    /// Sets the node's name; by default it is the op's.
    pub fn name(mut self, name: impl Into<Option<&'a str>>) -> NewOp<'a> {
        self.name = name.into();
        self
    }

    /// Appends an input of one tensor.
    pub fn input<T: TensorType>(mut self, input: impl Operand<T>) -> NewOp<'a> {
        input.push_to(&mut self);
        self
    }

    /// Appends an input that is a list of tensors.
    pub fn inputs<T: TensorType>(mut self, inputs: &[Output<T>]) -> NewOp<'a> {
        for input in inputs {
            self.push(input.raw());
        }
        self
    }

    /// Sets an attr; types and numbers that the inputs determine need not be set.
    pub fn attr(mut self, name: &str, value: impl IntoAttr) -> NewOp<'a> {
        self.attrs.set(name, value.into_attr());
        self
    }

    /// Sets a type attr to the dtype of `T`, if it is known.
    pub fn dtype<T: TensorType>(self, name: &str) -> NewOp<'a> {
        match T::DTYPE {
            Some(dtype) => self.attr(name, dtype),
            None => self,
        }
    }

    /// Sets several attrs.
    pub fn attrs(mut self, attrs: &Attrs) -> NewOp<'a> {
        for (name, value) in attrs.iter() {
            self.attrs.set(name.clone(), value.clone());
        }
        self
    }

    /// Appends a tensor as an input.
    pub(crate) fn push(&mut self, input: &Raw) {
        match self.graph.checked(input) {
            Ok(Some(endpoint)) => self.inputs.push(endpoint),
            Ok(None) => self.is_poisoned = true,
            Err(e) => self.fail(e),
        }
    }

    /// Appends a constant as an input.
    pub(crate) fn push_value(&mut self, value: Result<Tensor>) {
        let constant = value.and_then(|tensor| {
            let attrs = Attrs::of_const(&tensor)?;
            // It waits for nothing, so that it can be folded.
            self.graph.as_scope().node("Const").detached().attrs(attrs).build()
        });
        match constant {
            Ok(endpoint) => self.inputs.push(endpoint),
            Err(e) => self.fail(e),
        }
    }

    /// Notes that the node cannot be added.
    fn fail(&mut self, error: Error) {
        if !self.is_poisoned {
            let op = self.op;
            let error = error.map_message(|m| format!("input {} of {op}: {m}", self.inputs.len()));
            self.graph.record(self.caller, error);
        }
        self.is_poisoned = true;
    }

    /// Adds the node; its only output.
    pub fn output<T: TensorType>(self) -> Output<T> {
        self.build().output(0)
    }

    /// Adds the node; a handle of it as a target.
    pub fn operation(self) -> Operation {
        let built = self.build();
        Operation::new(built.graph, built.node)
    }

    /// Adds the node.
    pub fn build(self) -> Built {
        let NewOp { graph, op, name, inputs, attrs, is_poisoned, caller } = self;
        if is_poisoned {
            return Built { graph, node: None };
        }
        let mut node = graph.as_scope().node(op).inputs(&inputs).attrs(attrs);
        if let Some(name) = name {
            node = node.name(name);
        }
        let node = match node.build_node() {
            Ok(node) => {
                graph.locate(node, caller);
                Some(node)
            }
            Err(e) => {
                graph.record(caller, e);
                None
            }
        };
        Built { graph, node }
    }
}

/// A node that was added, or could not be.
pub struct Built {
    graph: Graph,
    node: Option<NodeId>,
}

impl Built {
    /// Its output at this position, counted over all of its tensors.
    pub fn output<T: TensorType>(&self, index: usize) -> Output<T> {
        let at = self.node.map(|node| Endpoint { node, index: index as u32 });
        Output::new(self.graph.clone(), at)
    }

    /// Its outputs of the list `name`; `count` poisoned ones if the node could not be added.
    pub fn outputs<T: TensorType>(&self, name: &str, count: usize) -> Vec<Output<T>> {
        let Some(node) = self.node else {
            return (0..count).map(|_| self.output(0)).collect();
        };
        let range = self.graph.as_scope().with_graph(|g| g.node(node).output_range(name));
        range.map_or_else(|_| Vec::new(), |range| range.map(|i| self.output(i)).collect())
    }

    /// Its first output of the argument `name`.
    pub fn named<T: TensorType>(&self, name: &str) -> Output<T> {
        let Some(node) = self.node else { return self.output(0) };
        let range = self.graph.as_scope().with_graph(|g| g.node(node).output_range(name));
        self.output(range.map_or(0, |range| range.start))
    }

    /// The node as a target.
    pub fn operation(&self) -> Operation {
        Operation::new(self.graph.clone(), self.node)
    }
}

/// The error of a handle that cannot be used: the mistake that caused it is in the graph's list.
pub(crate) fn poisoned() -> Error {
    err!(
        InvalidArgument,
        "the handle stands for a node that could not be added: `Graph::check` says why"
    )
}
