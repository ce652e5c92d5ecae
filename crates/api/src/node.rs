//! Adds one node, or notes why it could not be added.

use std::panic::Location;

use smallvec::SmallVec;
use thalweg_graph::{ArgDef, ArgType, Attrs, Endpoint, IntoAttr, Node, NodeId};
use thalweg_tensor::{DType, Error, Result, Tensor, err};

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

    /// Sets a type attr to the dtype of `T`. [`crate::Any`] leaves it to the inputs, and is a mistake
    /// if they do not determine it: the op's default would be a guess.
    pub fn dtype<T: TensorType>(self, name: &str) -> NewOp<'a> {
        match T::DTYPE {
            Some(dtype) => self.attr(name, dtype),
            None => self.dtype_of_inputs(name),
        }
    }

    #[cold]
    fn dtype_of_inputs(mut self, name: &str) -> NewOp<'a> {
        let is_given = |input: &ArgDef| match &input.ty {
            ArgType::Attr(attr) | ArgType::ListAttr(attr) => attr == name,
            ArgType::Fixed(_) => false,
        };
        // An op that does not exist is the mistake of adding the node.
        let op = self.graph.registry().ops.get(self.op).cloned();
        if op.is_ok_and(|op| !op.inputs.iter().any(is_given)) {
            let error = err!(
                InvalidArgument,
                "the inputs of {} do not determine its attr '{name}': it needs an element type, such \
                 as f32, where `Any` was given",
                self.op
            );
            self.refuse(error);
        }
        self
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

    /// Notes that an input cannot be taken.
    fn fail(&mut self, error: Error) {
        let op = self.op;
        self.refuse(error.map_message(|m| format!("input {} of {op}: {m}", self.inputs.len())));
    }

    /// Notes this mistake, unless the node has one already.
    fn refuse(&mut self, error: Error) {
        if !self.is_poisoned {
            self.graph.record(self.caller, error);
        }
        self.is_poisoned = true;
    }

    /// Adds the node; its only output. A mistake if the node has it with another dtype, as
    /// [`Built::output`] says.
    pub fn output<T: TensorType>(self) -> Output<T> {
        self.build().into_output(0)
    }

    /// Adds the node; a handle of it as a target.
    pub fn operation(self) -> Operation {
        self.build().operation()
    }

    /// Adds the node.
    pub fn build(self) -> Built {
        let NewOp { graph, op, name, inputs, attrs, is_poisoned, caller } = self;
        let body = graph.body();
        if is_poisoned {
            return Built { graph, node: None, first: None, body, caller };
        }
        let mut node = graph.as_scope().node(op).inputs(&inputs).attrs(attrs);
        if let Some(name) = name {
            node = node.name(name);
        }
        let first = |node: &Node| node.outputs.first().map(|output| output.dtype);
        match node.build_with(|id, node| (id, first(node))) {
            Ok((node, first)) => {
                graph.locate(node, caller);
                Built { graph, node: Some(node), first, body, caller }
            }
            Err(e) => {
                graph.record(caller, e);
                Built { graph, node: None, first: None, body, caller }
            }
        }
    }
}

/// A node that was added, or could not be.
///
/// Its outputs are typed by the program: one that the node does not have, or has with another dtype,
/// is a mistake of the line that began the node. An output of [`crate::Any`] has any dtype.
pub struct Built {
    graph: Graph,
    node: Option<NodeId>,
    /// The dtype of the first output: that of most nodes, which is checked without a lock.
    first: Option<DType>,
    /// The body of the branch or loop that the node belongs to.
    body: u32,
    caller: Caller,
}

impl Built {
    /// Its output at this position, counted over all of its tensors.
    pub fn output<T: TensorType>(&self, index: usize) -> Output<T> {
        let at = self.endpoint::<T>(index);
        Output::of_raw(Raw { graph: self.graph.clone(), at, body: self.body })
    }

    fn into_output<T: TensorType>(self, index: usize) -> Output<T> {
        let at = self.endpoint::<T>(index);
        Output::of_raw(Raw { graph: self.graph, at, body: self.body })
    }

    /// The output at this position; `None`, and a mistake, unless it is one of `T`.
    fn endpoint<T: TensorType>(&self, index: usize) -> Option<Endpoint> {
        let node = self.node.filter(|_| self.holds(index, T::DTYPE))?;
        Some(Endpoint { node, index: index as u32 })
    }

    /// Whether there is an output at this position, and has this dtype if one is given; a mistake if
    /// not.
    fn holds(&self, index: usize, dtype: Option<DType>) -> bool {
        if index == 0 && self.first.is_some() && (dtype.is_none() || dtype == self.first) {
            return true;
        }
        match (self.look(|node| node.outputs.get(index).map(|output| output.dtype)), dtype) {
            // Of a node in the body of a branch or loop that is complete no output can be used.
            (None, _) | (Some(Some(_)), None) => true,
            (Some(Some(dtype)), Some(wanted)) if dtype == wanted => true,
            (Some(dtype), wanted) => {
                self.graph.record(self.caller, self.wrong_output(index, dtype.zip(wanted)));
                false
            }
        }
    }

    #[cold]
    fn wrong_output(&self, index: usize, dtypes: Option<(DType, DType)>) -> Error {
        let describe =
            |node: &Node| (format!("'{}' ({})", node.name, node.op.name), node.outputs.len());
        let (node, count) = self.look(describe).unwrap_or_default();
        match dtypes {
            Some((dtype, wanted)) => err!(
                InvalidArgument,
                "output {index} of node {node} holds {dtype}, where {wanted} was expected"
            ),
            None => err!(InvalidArgument, "node {node} has {count} outputs, no output {index}"),
        }
    }

    /// Its outputs of the list `name`; `count` poisoned ones if the node could not be added.
    pub fn outputs<T: TensorType>(&self, name: &str, count: usize) -> Vec<Output<T>> {
        match self.look(|node| node.output_range(name)) {
            None => (0..count).map(|_| self.output(0)).collect(),
            Some(range) => {
                range.map_or_else(|_| Vec::new(), |range| range.map(|i| self.output(i)).collect())
            }
        }
    }

    /// Its first output of the argument `name`.
    pub fn named<T: TensorType>(&self, name: &str) -> Output<T> {
        let range = self.look(|node| node.output_range(name));
        self.output(range.and_then(Result::ok).map_or(0, |range| range.start))
    }

    /// The node as a target.
    pub fn operation(&self) -> Operation {
        Operation::of_body(self.graph.clone(), self.node, self.body)
    }

    /// What `look` finds of the node; `None` if it could not be added, or if its body is complete.
    fn look<R>(&self, look: impl FnOnce(&Node) -> R) -> Option<R> {
        let node = self.node?;
        self.graph.check_body(self.body).ok()?;
        Some(self.graph.as_scope().with_graph(|g| look(g.node(node))))
    }
}

/// The error of a handle that cannot be used: the mistake that caused it is in the graph's list.
pub(crate) fn poisoned() -> Error {
    err!(
        InvalidArgument,
        "the handle stands for a node that could not be added: `Graph::check` says why"
    )
}
