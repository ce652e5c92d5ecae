//! The variables of a model: parameters of layers, slots of optimizers, counters, local state.

use std::collections::BTreeMap;

use thalweg_api::{Graph, NewOp, NewVariable, Operation, Output, Resource, TensorType};
use thalweg_formats::saved_model::RUN_STATE_ATTR;
use thalweg_graph::{Endpoint, NodeId, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, ensure, err};

use super::Model;
use crate::placement::Placer;
use crate::state::State;
use crate::view::group;
use crate::{Initializer, Parameter, Part, Variable};

/// What a graph keeps for its models besides variables: without handles, which would keep the graph.
#[derive(Default)]
pub(super) struct Shared {
    /// Local state of a run, which is not saved.
    locals: BTreeMap<String, Local>,
    /// Nodes that a training step runs besides the optimizer's.
    pub(super) updates: Vec<NodeId>,
    /// Regularization terms of the loss by name.
    pub(super) penalties: Vec<(String, Endpoint)>,
    /// Summaries by tag.
    pub(super) summaries: Vec<(String, Endpoint)>,
    pub(super) placer: Placer,
}

/// A variable that is not saved.
#[derive(Clone, Copy)]
struct Local {
    handle: Endpoint,
    /// The initializer; `None` if another op sets the variable.
    init: Option<NodeId>,
}

/// A variable that is not saved, to be found or added.
pub(crate) struct NewLocal<'a> {
    pub name: &'a str,
    pub device: &'a str,
    pub dtype: DType,
    pub shape: PartialShape,
}

impl Model {
    /// All variables, in the order in which they were added: those of layers, the slots of
    /// optimizers, and counters.
    pub fn variables(&self) -> Vec<Variable> {
        self.graph().variables()
    }

    /// The trainable variables.
    pub fn trainable(&self) -> Vec<Variable> {
        self.variables().into_iter().filter(|variable| variable.is_trainable).collect()
    }

    /// The variable with this full name.
    pub fn find(&self, name: &str) -> Option<Variable> {
        self.graph().find_variable(name)
    }

    /// The trainable variable `name` of this layer, never partitioned: found, or added with this
    /// initializer.
    pub(crate) fn whole(
        &self,
        name: &str,
        dims: &[usize],
        first: &Initializer,
    ) -> Result<Variable> {
        self.variable_of(name, DType::Float, dims, first, true)
    }

    /// A variable that is not trainable.
    pub(crate) fn untrained(
        &self,
        name: &str,
        dtype: DType,
        dims: &[usize],
        first: &Initializer,
    ) -> Result<Variable> {
        self.variable_of(name, dtype, dims, first, false)
    }

    /// A variable of this layer: found, or added with this initializer.
    pub(super) fn variable_of(
        &self,
        name: &str,
        dtype: DType,
        dims: &[usize],
        first: &Initializer,
        is_trainable: bool,
    ) -> Result<Variable> {
        let full = self.full_name(name);
        let shape = Shape::new(dims)?;
        if let Some(found) = self.find(&full) {
            check_found(&full, (&found.shape, found.dtype), (&shape, dtype))?;
            return Ok(found);
        }
        ensure!(
            self.parts_of(&full).is_empty(),
            InvalidArgument,
            "variable '{full}' is already partitioned"
        );
        let new = NewVariable { name: &full, dtype, shape: &shape, device: "", part: None };
        self.add_variable(new, first, self.next_seeds(), is_trainable)
    }

    /// A layer parameter of this name: found, or added with this initializer, partitioned if the
    /// model is [`Model::partitioned`].
    pub(crate) fn parts(
        &self,
        name: &str,
        dims: &[usize],
        first: &Initializer,
    ) -> Result<Parameter> {
        let full = self.full_name(name);
        let (shape, dtype) = (Shape::new(dims)?, DType::Float);
        let found = self.parts_of(&full);
        if let Some(Part { whole, .. }) = found.first().and_then(|first| first.part.as_ref()) {
            check_found(&full, (whole, found[0].dtype), (&shape, dtype))?;
            return Ok(Parameter { name: full, shape, parts: found });
        }
        let cut = self.partitioner.and_then(|partitioner| partitioner.cut(&shape, dtype));
        let Some((axis, sizes)) = cut.filter(|_| self.find(&full).is_none()) else {
            let parts = vec![self.variable_of(name, dtype, dims, first, true)?];
            return Ok(Parameter { name: full, shape, parts });
        };
        let mut seeds = self.next_seeds();
        let (mut parts, mut begin) = (Vec::with_capacity(sizes.len()), 0);
        for (i, size) in sizes.into_iter().enumerate() {
            let mut dims = dims.to_vec();
            dims[axis] = size;
            let (name, shape_of_part) = (format!("{full}/part_{i}"), Shape::new(&dims)?);
            let part = Part { of: full.clone(), whole: shape.clone(), axis, begin };
            let (shape, part) = (&shape_of_part, Some(part));
            let new = NewVariable { name: &name, dtype, shape, device: "", part };
            parts.push(self.add_variable(new, first, seeds, true)?);
            begin += size;
            if !first.needs_whole() {
                seeds = self.next_seeds();
            }
        }
        Ok(Parameter { name: full, shape, parts })
    }

    /// The partitions of a variable, in order; empty if it is not partitioned.
    fn parts_of(&self, name: &str) -> Vec<Variable> {
        let parts = (0..).map_while(|i| self.find(&format!("{name}/part_{i}")));
        let is_of = |part: &Variable| part.part.as_ref().is_some_and(|part| part.of == name);
        parts.take_while(is_of).collect()
    }

    /// Adds a variable on the device that the placement chooses.
    fn add_variable(
        &self,
        new: NewVariable<'_>,
        first: &Initializer,
        seeds: (i64, i64),
        is_trainable: bool,
    ) -> Result<Variable> {
        let bytes = new.shape.num_elements() * new.dtype.size();
        let device = self.shared.lock().placer.next(bytes, self.as_scope().device());
        let new = NewVariable { device: &device, ..new };
        let (dtype, shape, part) = (new.dtype, new.shape, new.part.clone());
        let initial = |scope: &mut Scope| match &part {
            Some(part) => first.build_part(scope, dtype, (part, shape), seeds),
            None => first.build(scope, dtype, shape, seeds),
        };
        let mut added = Variable::add(self.root().as_scope(), new, initial)?;
        added.is_trainable = is_trainable;
        self.keep_variable(added.clone());
        Ok(added)
    }

    /// The number of training steps: an int64 variable called `global_step`.
    pub(crate) fn step_counter(&self) -> Result<Variable> {
        self.top().untrained("global_step", DType::Int64, &[], &Initializer::Zeros)
    }
}

/// A slot variable on the device of another variable and named after it, as optimizers keep. The slot
/// of a partition is a partition too.
pub(crate) fn slot(
    graph: &Graph,
    of: &Variable,
    name: &str,
    first: &Initializer,
) -> Result<Variable> {
    beside(graph, of, name, |scope, (shape, part)| match part {
        Some(part) => first.build_part(scope, of.dtype, (part, shape), graph.next_seeds()),
        None => first.build(scope, of.dtype, shape, graph.next_seeds()),
    })
}

/// A slot variable with the same initial value as its variable, as for an average.
pub(crate) fn slot_like(graph: &Graph, of: &Variable, name: &str) -> Result<Variable> {
    beside(graph, of, name, |scope, _| {
        let value = scope.with_graph(|graph| graph.node(of.init).inputs.get(1).copied());
        value.ok_or_else(|| err!(Internal, "variable '{}' has no initial value", of.name))
    })
}

fn beside(
    graph: &Graph,
    of: &Variable,
    name: &str,
    first: impl FnOnce(&mut Scope, (&Shape, Option<&Part>)) -> Result<Endpoint>,
) -> Result<Variable> {
    of.check_graph(graph.as_scope())?;
    let full = format!("{}/{name}", of.name);
    if let Some(found) = graph.find_variable(&full) {
        return Ok(found);
    }
    let part = of.part.as_ref();
    let part = part.map(|part| Part { of: format!("{}/{name}", part.of), ..part.clone() });
    let Variable { dtype, shape, device, .. } = of;
    let new = NewVariable { name: &full, dtype: *dtype, shape, device, part: part.clone() };
    let mut added =
        Variable::add(graph.root().as_scope(), new, |scope| first(scope, (shape, part.as_ref())))?;
    added.is_trainable = false;
    graph.keep_variable(added.clone());
    Ok(added)
}

/// Local state of a run, which checkpoints do not hold, and the nodes that initialize it.
impl Model {
    /// A local variable: found, or added. Where `first` adds no value, another op must set it.
    pub(crate) fn local<T: TensorType>(
        &self,
        new: &NewLocal<'_>,
        first: impl FnOnce(&Graph) -> Option<Output<T>>,
    ) -> State<T> {
        let root = self.root().device(new.device);
        let found = self.shared.lock().locals.get(new.name).copied();
        if let Some(found) = found {
            return State::new(self.root().output(found.handle), new.dtype);
        }
        let handle = NewOp::new(&root, "VarHandleOp").name(new.name).attr("dtype", new.dtype);
        let handle = handle.attr("shape", &new.shape).attr("shared_name", new.name);
        // In the graph too: savers that have only that leave it out.
        let handle: Output<Resource> = handle.attr(RUN_STATE_ATTR, true).output();
        let init = first(&root.scope(&format!("{}/Initializer", new.name))).map(|value| {
            let name = format!("{}/Assign", new.name);
            NewOp::new(&root, "AssignVariableOp")
                .name(&*name)
                .input(&handle)
                .input(&value)
                .operation()
        });
        let init = init.and_then(|init| init.node().ok());
        if let Ok(handle) = handle.endpoint() {
            self.shared.lock().locals.insert(new.name.to_owned(), Local { handle, init });
        }
        init.into_iter().for_each(|init| self.add_initializer(init));
        State::new(handle, new.dtype)
    }

    /// A local variable of 64-bit integers; see [`Model::local`].
    pub(crate) fn local_ints(
        &self,
        (name, device): (&str, &str),
        shape: PartialShape,
        first: impl FnOnce(&Graph) -> Option<Output<i64>>,
    ) -> State<i64> {
        self.local(&NewLocal { name, device, dtype: DType::Int64, shape }, first)
    }

    /// The target that initializes every variable. Sessions by handle do so themselves.
    pub fn init(&self) -> Operation {
        let of_variables = self.variables().into_iter().map(|variable| variable.init);
        self.all_of("init", of_variables.chain(self.local_inits()))
    }

    /// The target that initializes local state, which checkpoints do not hold: a run that continues
    /// from a checkpoint begins with it.
    pub fn init_local(&self) -> Operation {
        self.all_of("init_local", self.local_inits().into_iter())
    }

    fn all_of(&self, name: &str, nodes: impl Iterator<Item = NodeId>) -> Operation {
        let nodes: Vec<Operation> = nodes.map(|node| self.operation(node)).collect();
        group(&self.root(), name, &nodes)
    }

    fn local_inits(&self) -> Vec<NodeId> {
        self.shared.lock().locals.values().filter_map(|local| local.init).collect()
    }

    /// Whether training can continue: all variables are initialized and the chief has started.
    pub fn ready(&self) -> Output<bool> {
        let root = self.root().scope("ready");
        let variables = self.variables().into_iter().map(|variable| variable.handle);
        let locals: Vec<Endpoint> =
            self.shared.lock().locals.values().map(|local| local.handle).collect();
        let is_initialized = |handle: Endpoint| {
            thalweg_api::tf::var_is_initialized_op(root.output::<Resource>(handle))
        };
        let all: Vec<Output<bool>> = variables.chain(locals).map(is_initialized).collect();
        let all = thalweg_api::tf::pack(&root, &all);
        NewOp::new(&root, "All").name("ready").input(&all).input(0i32).output()
    }

    /// The updates that training steps run besides the optimizer.
    pub(crate) fn updates(&self) -> Vec<Operation> {
        let updates = self.shared.lock().updates.clone();
        updates.into_iter().map(|node| self.operation(node)).collect()
    }

    /// The target of a step that runs these nodes and the model's updates.
    pub(crate) fn train_step(&self, mut nodes: Vec<Operation>) -> Operation {
        nodes.extend(self.updates());
        group(self, "train_step", &nodes)
    }
}

/// Checks that a variable that was found has the dtype and shape that are asked for.
fn check_found(
    name: &str,
    (shape, dtype): (&Shape, DType),
    (asked_shape, asked_dtype): (&Shape, DType),
) -> Result<()> {
    ensure!(
        shape == asked_shape && dtype == asked_dtype,
        InvalidArgument,
        "variable '{name}' is {} of shape {shape}, not {} of shape {asked_shape}",
        dtype.name(),
        asked_dtype.name()
    );
    Ok(())
}
