//! A graph under construction that keeps its variables.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_api::{Graph, NewVariable, Registry};
use thalweg_formats::saved_model::RUN_STATE_ATTR;
use thalweg_graph::{NodeId, Output, Scope};
use thalweg_tensor::{DType, PartialShape, Result, Shape, Tensor, ensure, err};

use crate::placement::Placer;
use crate::{Initializer, Parameter, Part, Partitioner, Placement, Variable};

/// What a network is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Dropout is applied; normalizations use batch statistics and update moving averages.
    Training,
    /// Inference.
    Inference,
}

/// A scope that also keeps variables; it derefs to [`Scope`].
///
/// Layers of a model have names, and variables are named after them: the second `dense` layer is
/// `dense_1`. [`ModelScope::inference`] starts the names again, so a network that is built a second time
/// finds the variables of the first.
pub struct ModelScope {
    /// The graph, which keeps the variables.
    graph: Graph,
    scope: Scope,
    phase: Phase,
    /// The prefix of variable names.
    path: String,
    /// The device that nodes request; empty for none.
    device: String,
    /// How parameters of layers are partitioned; `None` for not at all.
    partitioner: Option<Partitioner>,
    /// The dtype of products in layers, if it is not float.
    compute: Option<DType>,
    /// How often each layer name was used in this view.
    names: Rc<RefCell<BTreeMap<String, u32>>>,
    shared: Arc<Mutex<Shared>>,
}

/// What a graph keeps for its models besides variables.
#[derive(Default)]
struct Shared {
    /// Local state of a run, which is not saved.
    locals: BTreeMap<String, Local>,
    /// Nodes that a training step runs besides the optimizer's.
    updates: Vec<NodeId>,
    /// Regularization terms of the loss by name.
    penalties: Vec<(String, Output)>,
    /// Summaries by tag.
    summaries: Vec<(String, Output)>,
    placer: Placer,
}

/// A function that adds a variable's initial value.
pub(crate) type FirstValue<'a> = dyn Fn(&mut Scope) -> Result<Output> + 'a;

/// A variable that is not saved.
#[derive(Clone, Copy)]
struct Local {
    handle: Output,
    /// The initializer; `None` if another op sets the variable.
    init: Option<NodeId>,
}

impl Deref for ModelScope {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.scope
    }
}

impl DerefMut for ModelScope {
    fn deref_mut(&mut self) -> &mut Scope {
        &mut self.scope
    }
}

impl ModelScope {
    /// A model at the root of a graph, for training.
    pub fn new(scope: Scope) -> ModelScope {
        let ops = scope.with_graph(|graph| graph.registry().clone());
        let registry = Registry { ops, kernels: Registry::built_in().kernels };
        ModelScope::of(&Graph::over(scope, registry))
    }

    /// The model of a graph, in the name scope of this view: it has the graph's variables, and
    /// sessions of the graph initialize those that it adds.
    pub fn of(graph: &Graph) -> ModelScope {
        ModelScope {
            scope: graph.as_scope().clone(),
            shared: graph.extension(Mutex::<Shared>::default),
            graph: graph.root(),
            phase: Phase::Training,
            path: graph.as_scope().prefix().to_owned(),
            device: graph.as_scope().device().to_owned(),
            partitioner: None,
            compute: None,
            names: Rc::default(),
        }
    }

    /// The graph, as a view that adds nodes where this model does.
    pub fn graph(&self) -> Graph {
        self.graph.with_scope(self.scope.clone())
    }

    /// The same model with layer parameters partitioned, each partition placed on its own. Only
    /// parameters that are added later are partitioned; [`ModelScope::variable`] and [`ModelScope::counter`]
    /// are not.
    #[must_use]
    pub fn partitioned(&self, partitioner: Partitioner) -> ModelScope {
        ModelScope { partitioner: Some(partitioner), ..self.with_scope(self.scope.clone()) }
    }

    /// The same model with products of layers computed in another dtype.
    pub(crate) fn compute_in(&self, dtype: DType) -> ModelScope {
        ModelScope { compute: Some(dtype), ..self.with_scope(self.scope.clone()) }
    }

    /// The dtype of products in layers, if it is not float.
    pub(crate) fn compute_dtype(&self) -> Option<DType> {
        self.compute
    }

    /// Sets the placement of variables that are added from now on.
    #[must_use]
    pub fn place(self, placement: Placement) -> ModelScope {
        self.shared.lock().placer = Placer::new(placement);
        self
    }

    /// Sets the seed of random ops that are added from now on.
    #[must_use]
    pub fn seed(self, seed: i64) -> ModelScope {
        self.graph.set_seed(seed);
        self
    }

    /// The same model for inference: a network built here finds its variables.
    pub fn inference(&self) -> ModelScope {
        ModelScope {
            scope: self.scope.child("inference"),
            phase: Phase::Inference,
            path: self.path.clone(),
            device: self.device.clone(),
            partitioner: self.partitioner,
            compute: self.compute,
            names: Rc::default(),
            graph: self.graph.clone(),
            shared: self.shared.clone(),
        }
    }

    /// The same model on another device (a tower): a network built here finds its variables and is
    /// built for training.
    pub fn tower(&self, device: &str) -> ModelScope {
        let tower = self.with_scope(self.scope.child("tower"));
        ModelScope { names: Rc::default(), ..tower.on(device) }
    }

    /// What this view is built for.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The same model with nodes on `device`.
    pub fn on(&self, device: &str) -> ModelScope {
        let scope = self.scope.on_device(device);
        ModelScope { device: device.to_owned(), ..self.with_scope(scope) }
    }

    /// The same model with another scope for its nodes.
    pub fn with_scope(&self, scope: Scope) -> ModelScope {
        ModelScope {
            scope,
            phase: self.phase,
            path: self.path.clone(),
            device: self.device.clone(),
            partitioner: self.partitioner,
            compute: self.compute,
            names: self.names.clone(),
            graph: self.graph.clone(),
            shared: self.shared.clone(),
        }
    }

    /// A sub-scope for a layer: names of nodes and variables get its name as prefix.
    pub fn layer(&self, name: &str) -> ModelScope {
        let full = format!("{}{name}", self.path);
        let count = {
            let mut names = self.names.borrow_mut();
            let count = names.entry(full.clone()).or_insert(0);
            *count += 1;
            *count - 1
        };
        let numbered =
            |base: &str| if count == 0 { base.into() } else { format!("{base}_{count}") };
        ModelScope {
            path: format!("{}/", numbered(&full)),
            ..self.with_scope(self.scope.child(&numbered(name)))
        }
    }

    /// A placeholder called `name`.
    pub fn input(&mut self, name: &str, dtype: DType, dims: &[Option<usize>]) -> Result<Output> {
        let shape = PartialShape::new(dims.iter().copied());
        self.op("Placeholder").name(name).attr("dtype", dtype).attr("shape", &shape).build()
    }

    /// The trainable variable `name` of this layer: found, or added with this initializer.
    pub fn variable(&self, name: &str, dims: &[usize], first: &Initializer) -> Result<Variable> {
        self.variable_of(name, DType::Float, dims, first, true)
    }

    /// A variable that is not trainable.
    pub fn counter(
        &self,
        name: &str,
        dtype: DType,
        dims: &[usize],
        first: &Initializer,
    ) -> Result<Variable> {
        self.variable_of(name, dtype, dims, first, false)
    }

    fn variable_of(
        &self,
        name: &str,
        dtype: DType,
        dims: &[usize],
        first: &Initializer,
        is_trainable: bool,
    ) -> Result<Variable> {
        let full = format!("{}{name}", self.path);
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
    /// model is [`ModelScope::partitioned`].
    pub fn parameter(&self, name: &str, dims: &[usize], first: &Initializer) -> Result<Parameter> {
        let full = format!("{}{name}", self.path);
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
        let device = self.shared.lock().placer.next(bytes, &self.device);
        let new = NewVariable { device: &device, ..new };
        let (dtype, shape, part) = (new.dtype, new.shape, new.part.clone());
        let initial = |scope: &mut Scope| match &part {
            Some(part) => first.build_part(scope, dtype, (part, shape), seeds),
            None => first.build(scope, dtype, shape, seeds),
        };
        let mut added = Variable::add(self.graph.as_scope(), new, initial)?;
        added.is_trainable = is_trainable;
        Ok(self.keep(added))
    }

    /// A slot variable on the device of another variable and named after it, as optimizers keep.
    /// The slot of a partition is a partition too.
    pub fn slot(&self, of: &Variable, name: &str, first: &Initializer) -> Result<Variable> {
        self.beside(of, name, |scope, (shape, part)| match part {
            Some(part) => first.build_part(scope, of.dtype, (part, shape), self.next_seeds()),
            None => first.build(scope, of.dtype, shape, self.next_seeds()),
        })
    }

    /// A slot variable with the same initial value as its variable, as for an average.
    pub fn slot_like(&self, of: &Variable, name: &str) -> Result<Variable> {
        self.beside(of, name, |scope, _| {
            let value = scope.with_graph(|graph| graph.node(of.init).inputs.get(1).copied());
            value.ok_or_else(|| err!(Internal, "variable '{}' has no initial value", of.name))
        })
    }

    fn beside(
        &self,
        of: &Variable,
        name: &str,
        first: impl FnOnce(&mut Scope, (&Shape, Option<&Part>)) -> Result<Output>,
    ) -> Result<Variable> {
        of.check_graph(&self.scope)?;
        let full = format!("{}/{name}", of.name);
        if let Some(found) = self.find(&full) {
            return Ok(found);
        }
        let part = of.part.as_ref();
        let part = part.map(|part| Part { of: format!("{}/{name}", part.of), ..part.clone() });
        let Variable { dtype, shape, device, .. } = of;
        let new = NewVariable { name: &full, dtype: *dtype, shape, device, part: part.clone() };
        let mut added = Variable::add(self.graph.as_scope(), new, |scope| {
            first(scope, (shape, part.as_ref()))
        })?;
        added.is_trainable = false;
        Ok(self.keep(added))
    }

    fn keep(&self, variable: Variable) -> Variable {
        self.graph.keep_variable(variable.clone());
        variable
    }

    /// The variable with this full name.
    pub fn find(&self, name: &str) -> Option<Variable> {
        self.graph.find_variable(name)
    }

    /// All variables, in the order they were added.
    pub fn variables(&self) -> Vec<Variable> {
        self.graph.variables()
    }

    /// The trainable variables.
    pub fn trainable(&self) -> Vec<Variable> {
        self.variables().into_iter().filter(|variable| variable.is_trainable).collect()
    }

    /// The number of training steps: an int64 variable called `global_step`.
    pub fn global_step(&self) -> Result<Variable> {
        self.top().counter("global_step", DType::Int64, &[], &Initializer::Zeros)
    }

    /// This model without a prefix for variable names.
    pub fn top(&self) -> ModelScope {
        ModelScope { path: String::new(), ..self.with_scope(self.scope.clone()) }
    }

    /// This model with nodes at the root of the graph, on `device`, without control inputs.
    pub(crate) fn top_on(&self, device: &str) -> ModelScope {
        let scope = self.graph.as_scope().on_device(device);
        ModelScope { path: String::new(), ..self.with_scope(scope) }
    }

    /// The node that initializes every variable.
    pub fn init(&self) -> Result<NodeId> {
        let mut nodes: Vec<NodeId> =
            self.variables().iter().map(|variable| variable.init).collect();
        nodes.extend(self.local_inits());
        self.graph.as_scope().node("NoOp").name("init").after(&nodes).build_node()
    }

    /// The node that initializes local state, which checkpoints do not hold: a run that continues
    /// from a checkpoint begins with it.
    pub fn init_local(&self) -> Result<NodeId> {
        let nodes = self.local_inits();
        self.graph.as_scope().node("NoOp").name("init_local").after(&nodes).build_node()
    }

    fn local_inits(&self) -> Vec<NodeId> {
        self.shared.lock().locals.values().filter_map(|local| local.init).collect()
    }

    /// Whether training can continue, a bool: all variables are initialized and the chief has
    /// started.
    pub fn ready(&self) -> Result<Output> {
        let (mut root, handles) = {
            let variables = self.variables().into_iter().map(|variable| variable.handle);
            let shared = self.shared.lock();
            let locals = shared.locals.values().map(|local| local.handle);
            (self.graph.as_scope().child("ready"), variables.chain(locals).collect::<Vec<Output>>())
        };
        let mut all = Vec::with_capacity(handles.len());
        for handle in handles {
            all.push(root.op("VarIsInitializedOp").input(handle).build()?);
        }
        let all = root.op("Pack").inputs(&all).build()?;
        let axis = root.constant(&Tensor::scalar(0i32))?;
        root.op("All").name("ready").inputs(&[all, axis]).build()
    }

    /// The handle of a local variable: state of a run that checkpoints do not hold. Found, or
    /// added; without a `first` value another op must set it.
    pub(crate) fn local(
        &self,
        name: &str,
        device: &str,
        dtype: DType,
        shape: &PartialShape,
        first: Option<&FirstValue<'_>>,
    ) -> Result<Output> {
        let found = self.shared.lock().locals.get(name).copied();
        if let Some(found) = found {
            return Ok(found.handle);
        }
        let mut root = self.graph.as_scope().on_device(device);
        let handle = root.op("VarHandleOp").name(name).attr("dtype", dtype);
        let handle = handle.attr("shape", shape).attr("shared_name", name);
        // In the graph too: savers that have only that leave it out.
        let handle = handle.attr(RUN_STATE_ATTR, true).build()?;
        let init = match first {
            Some(first) => {
                let value = first(&mut root.child(&format!("{name}/Initializer")))?;
                let assign = root.op("AssignVariableOp").name(&format!("{name}/Assign"));
                let init = assign.inputs(&[handle, value]).build_node()?;
                self.graph.add_initializer(init);
                Some(init)
            }
            None => None,
        };
        self.shared.lock().locals.insert(name.to_owned(), Local { handle, init });
        Ok(handle)
    }

    /// Makes training steps run `node` too.
    pub fn add_update(&self, node: NodeId) {
        self.shared.lock().updates.push(node);
    }

    /// The nodes that training steps run besides the optimizer.
    pub fn updates(&self) -> Vec<NodeId> {
        self.shared.lock().updates.clone()
    }

    /// Adds a regularization term to the loss; one of this name counts once, however often the
    /// network is built.
    pub fn add_penalty(&self, name: &str, penalty: Output) {
        let mut shared = self.shared.lock();
        if shared.penalties.iter().all(|(other, _)| other != name) {
            shared.penalties.push((name.to_owned(), penalty));
        }
    }

    /// `loss` plus all regularization terms.
    pub fn with_penalties(&mut self, loss: Output) -> Result<Output> {
        let penalties: Vec<Output> =
            self.shared.lock().penalties.iter().map(|(_, penalty)| *penalty).collect();
        if penalties.is_empty() {
            return Ok(loss);
        }
        let terms = [vec![loss], penalties].concat();
        self.op("AddN").inputs(&terms).build()
    }

    /// Keeps a summary under its tag; the first with a tag stays.
    pub(crate) fn keep_summary(&self, tag: String, summary: Output) {
        self.shared.lock().summaries.push((tag, summary));
    }

    /// Whether there is a summary with this tag.
    pub(crate) fn has_summary(&self, tag: &str) -> bool {
        self.shared.lock().summaries.iter().any(|(other, _)| other == tag)
    }

    /// All summaries, in the order they were added.
    pub(crate) fn kept_summaries(&self) -> Vec<Output> {
        self.shared.lock().summaries.iter().map(|(_, summary)| *summary).collect()
    }

    /// A name with the prefix of this layer.
    pub(crate) fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// Seeds for the next random op: the model's seed, and one that no other op of the model has.
    pub fn next_seeds(&self) -> (i64, i64) {
        self.graph.next_seeds()
    }

    /// The name of a node, as targets take it.
    pub fn node_name(&self, node: NodeId) -> String {
        self.with_graph(|graph| graph.node(node).name.to_string())
    }

    /// The static shape of a tensor.
    pub fn shape(&self, of: Output) -> PartialShape {
        self.with_graph(|graph| graph.output(of).shape.clone())
    }

    /// The dtype of a tensor.
    pub fn dtype(&self, of: Output) -> DType {
        self.with_graph(|graph| graph.output(of).dtype)
    }

    /// The size of a tensor's last dimension, which must be known.
    pub fn features(&self, of: Output) -> Result<usize> {
        let shape = self.shape(of);
        let last = shape.dims().and_then(|dims| dims.last().copied().flatten());
        let name = self.name_of(of);
        last.ok_or_else(|| {
            err!(
                InvalidArgument,
                "the last dimension of '{name}' is not known ({shape:?}), so a layer cannot be sized"
            )
        })
    }

    /// An int32 vector constant, as shapes, axes and permutations are given.
    pub fn ints(&mut self, values: &[i32]) -> Result<Output> {
        self.constant(&Tensor::vector(values)?)
    }

    /// An int32 scalar constant.
    pub fn int(&mut self, value: i32) -> Result<Output> {
        self.constant(&Tensor::scalar(value))
    }

    /// A float scalar constant.
    pub fn float(&mut self, value: f32) -> Result<Output> {
        self.constant(&Tensor::scalar(value))
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
